//! What the kernel says in its log while a mount fails. Filesystems answer a bad superblock with a bare errno and put the
//! reason nowhere else (facts: EBADMSG for a checksum, EINVAL for nearly everything).

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

/// A place in the kernel's log: everything after it is new.
pub(super) struct Mark(Option<OwnedFd>);

impl Mark {
    /// From now on. Without the right to read the log, nothing will have been said; that only makes a message poorer.
    pub(super) fn now() -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let log = rustix::fs::open("/dev/kmsg", flags, Mode::empty());
        Mark(log.and_then(|log| rustix::fs::seek(&log, SeekFrom::End(0)).map(|_| log)).ok())
    }

    /// Lines said since about the node, without level and time.
    pub(super) fn lines_about(self, node: &Path) -> Vec<String> {
        let Some(log) = self.0 else { return Vec::new() };
        let Some(name) = node.file_name().map(|name| name.to_string_lossy().into_owned()) else { return Vec::new() };
        let mut lines = Vec::new();
        let mut record = vec![0u8; RECORD_LIMIT];
        for _ in 0..RECORDS_LIMIT {
            match rustix::io::read(&log, &mut record) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(record.get(..length).unwrap_or_default());
                    if let Some(line) = message_about(&text, &name) {
                        lines.push(line);
                    }
                }
                // Messages were overwritten before they were read: go on with the oldest that is there.
                Err(Errno::PIPE | Errno::INTR) => {}
                Err(_) => break,
            }
        }
        lines.truncate(LINES_LIMIT);
        lines
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
}
