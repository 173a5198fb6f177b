//! What the kernel says in its log, while a mount fails or of a filesystem that has shut down. Filesystems answer a bad
//! superblock with a bare errno and put the reason nowhere else (EBADMSG for a checksum, EINVAL for nearly everything), and
//! one that has shut down answers EIO to everything, as a bad disk does.

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A record is at most this long (`include/linux/printk.h`: CONSOLE_EXT_LOG_MAX).
const RECORD_LIMIT: usize = 8192;
/// Lines kept.
const LINES_LIMIT: usize = 20;
/// Records looked at: a flood of other messages must not hold us up.
const RECORDS_LIMIT: usize = 4096;
/// Records of the whole log: its ring has some megabytes at most, and a record 50 bytes at least.
const WHOLE_LOG: usize = 1 << 17;

/// A place in the kernel's log: everything after it is new.
pub(super) struct Mark(Option<OwnedFd>);

impl Mark {
    /// From now on. Without the right to read the log, nothing will have been said; that only makes a message poorer.
    pub(super) fn now() -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let log = rustix::fs::open("/dev/kmsg", flags, Mode::empty());
        Mark(log.and_then(|log| rustix::fs::seek(&log, SeekFrom::End(0)).map(|_| log)).ok())
    }

    /// From the oldest record that is still kept.
    fn oldest() -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Mark(rustix::fs::open("/dev/kmsg", flags, Mode::empty()).ok())
    }

    /// Lines said since about the node, without level and time; the first of them.
    pub(super) fn lines_about(self, node: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        self.each_about(node, RECORDS_LIMIT, |line| {
            if lines.len() < LINES_LIMIT {
                lines.push(line);
            }
        });
        lines
    }

    fn each_about(self, node: &Path, most: usize, mut heard: impl FnMut(String)) {
        let Some(log) = self.0 else { return };
        let Some(name) = node.file_name().map(|name| name.to_string_lossy().into_owned()) else { return };
        let mut record = vec![0u8; RECORD_LIMIT];
        for _ in 0..most {
            match rustix::io::read(&log, &mut record) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(record.get(..length).unwrap_or_default());
                    if let Some(line) = message_about(&text, &name) {
                        heard(line);
                    }
                }
                // Messages were overwritten before they were read: go on with the oldest that is there.
                Err(Errno::PIPE | Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }
}

/// What the kernel said when the filesystem that is mounted from this node shut itself down; `None` where its log says
/// nothing of that, or cannot be read.
pub fn shutdown_of(node: &Path) -> Option<String> {
    let mut said = None;
    Mark::oldest().each_about(node, WHOLE_LOG, |line| said = after(said.take(), line));
    said
}

/// The last word about a shutdown, after one more line: a later mount makes an earlier shutdown history.
fn after(said: Option<String>, line: String) -> Option<String> {
    // fs/xfs/xfs_fsops.c:xfs_do_force_shutdown, fs/ext4/ioctl.c:ext4_force_shutdown; fs/xfs/xfs_log_recover.c and
    // fs/ext4/super.c at a mount.
    let shut = line.contains("hutting down filesystem") || line.contains("shut down requested");
    let mounted = line.contains("Mounting V") || line.contains("mounted filesystem") && !line.contains("unmount");
    if shut {
        Some(line)
    } else if mounted {
        None
    } else {
        said
    }
}

/// `6,1234,98765,-;EXT4-fs (loop0): bad magic\n KEY=value\n` → the text, if it names the device as a word.
fn message_about(record: &str, name: &str) -> Option<String> {
    let (_, rest) = record.split_once(';')?;
    let line = rest.lines().next()?;
    line.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == name).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_lines_that_name_the_device_as_a_word_are_taken() {
        let record = "3,501,88231,-;EXT4-fs (loop1): bad magic\n SUBSYSTEM=block\n";
        assert_eq!(message_about(record, "loop1").unwrap(), "EXT4-fs (loop1): bad magic");
        assert_eq!(message_about("3,501,88231,-;EXT4-fs (loop12): bad magic\n", "loop1"), None);
    }

    #[test]
    fn a_shutdown_is_told_until_the_filesystem_is_mounted_anew() {
        let mounting = "XFS (loop1): Mounting V5 Filesystem 8f1d4c5e-0b7a-4a53-9d8e-2f6b1c3d4e5f";
        let shut = "XFS (loop1): User initiated shutdown (0x0) detected at xfs_fs_goingdown+0x4b/0x80 (fs/xfs/xfs_fsops.c:455).  \
                    Shutting down filesystem.";
        let rectify = "XFS (loop1): Please unmount the filesystem and rectify the problem(s)";
        let unmounting = "XFS (loop1): Unmounting Filesystem 8f1d4c5e-0b7a-4a53-9d8e-2f6b1c3d4e5f";
        let last = |lines: &[&str]| lines.iter().fold(None, |said, line| after(said, (*line).to_owned()));
        assert_eq!(last(&[mounting, shut, rectify]).as_deref(), Some(shut));
        assert_eq!(last(&[mounting, shut, rectify, unmounting, mounting]), None);
        assert_eq!(last(&[mounting]), None);
        let ext4 = "EXT4-fs (loop1): shut down requested (2)";
        assert_eq!(last(&["EXT4-fs (loop1): mounted filesystem 1 r/w", ext4]).as_deref(), Some(ext4));
        assert_eq!(last(&[ext4, "EXT4-fs (loop1): unmounting filesystem 1."]).as_deref(), Some(ext4));
    }
}
