//! `/proc/PID/mountinfo`, parsed (proc_pid_mountinfo(5); the format is `fs/proc_namespace.c:show_mountinfo`).
//!
//! ```text
//! 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//! (1)(2)(3)   (4)   (5)      (6)     (7)   (8) (9)  (10)         (11)
//! ```

use crate::model::DevNum;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount, in the order in which the kernel lists them: a later one at the same path lies on top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub id: u64,
    pub parent: u64,
    /// `st_dev` of what is mounted.
    pub devnum: DevNum,
    /// The directory of the filesystem that is mounted, `/` for the whole.
    pub root: PathBuf,
    pub at: PathBuf,
    /// Per-mount options (`rw,noatime`).
    pub options: String,
    pub fstype: String,
    /// The source as it was named.
    pub source: PathBuf,
    /// Options of the superblock.
    pub super_options: String,
}

/// A line that does not have the documented form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("mountinfo line not understood: {0}")]
pub struct NotUnderstood(pub String);

/// Reads a whole mountinfo text. One line that is not understood spoils all: a mount that was overlooked would be taken
/// for "not mounted".
pub fn parse(text: &[u8]) -> Result<Vec<Mount>, NotUnderstood> {
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| parse_line(line).ok_or_else(|| NotUnderstood(String::from_utf8_lossy(line).into_owned())))
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let devnum = DevNum { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let root = path(fields.next()?);
    let at = path(fields.next()?);
    let options = text(fields.next()?);
    // Optional fields (`shared:1`, `master:2`) end with a lone dash.
    fields.by_ref().find(|field| *field == b"-")?;
    let fstype = text(fields.next()?);
    let source = path(fields.next()?);
    let super_options = text(fields.next()?);
    Some(Mount { id, parent, devnum, root, at, options, fstype, source, super_options })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// Undoes the kernel's octal escapes (`\040` for a blank), as in mountinfo and `/proc/swaps`.
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                Some((((a & 7) << 6) | ((b & 7) << 3) | (c & 7), after))
            }
            (_, _) => None,
        };
        let (byte, after) = octal.unwrap_or((*first, tail));
        out.push(byte);
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes_is_taken_apart() {
        let line = b"36 35 98:0 /sub /mnt/a\\040b\\134c rw,noatime shared:1 master:2 - ext4 /dev/nvme1n1 rw,errors=remount-ro\n";
        let mounts = parse(line).unwrap();
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].devnum, DevNum { major: 98, minor: 0 });
        assert_eq!(mounts[0].at, PathBuf::from("/mnt/a b\\c"));
        assert_eq!(mounts[0].root, PathBuf::from("/sub"));
        assert_eq!(mounts[0].source, PathBuf::from("/dev/nvme1n1"));
        assert_eq!(mounts[0].fstype, "ext4");
        assert_eq!(mounts[0].super_options, "rw,errors=remount-ro");
    }

    #[test]
    fn one_broken_line_spoils_the_whole_reading() {
        let text = b"36 35 98:0 / /mnt rw - ext4 /dev/a rw\n37 35 98 / /mnt rw - ext4 /dev/a rw\n";
        assert!(parse(text).is_err());
        assert!(parse(b"36 35 98:0 / /mnt rw ext4 /dev/a rw\n").is_err(), "no dash");
    }

    #[test]
    fn the_kernels_own_list_is_understood() {
        let text = std::fs::read("/proc/thread-self/mountinfo").unwrap();
        let mounts = parse(&text).unwrap();
        assert!(mounts.iter().any(|mount| mount.at.as_os_str() == "/"), "the root is mounted");
    }
}
