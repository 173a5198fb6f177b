//! Does the volume still take writes, in truth? After an error of ext4, a shutdown of XFS or a disk that was pulled the mount
//! table goes on to say `rw`; only a write that has to reach the disk shows it.

use super::volume_ledger::{make_directory, open, open_directory};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// In `.volhold`, written over in place: on a full filesystem it needs no new room, and nothing grows.
const FILE: &str = "write-test";
const TEXT: &[u8] = b"volhold writes this to see whether the volume takes writes\n";

/// Writes a few bytes and waits until they, and the filesystem's own record of them, are on the disk. May hang as long as the
/// disk does. The error is the kernel's.
pub fn write_test(root: BorrowedFd) -> Result<(), Errno> {
    let directory = match open_directory(root) {
        Err(Errno::NOENT) => make_directory(root).map_err(|error| errno_of(&error))?,
        opened => opened?,
    };
    let file = open(directory.as_fd(), FILE, OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK)?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let written = rustix::io::pwrite(&file, TEXT, 0)?;
    if written < TEXT.len() {
        return Err(Errno::NOSPC);
    }
    rustix::fs::fsync(&file)
}

fn errno_of(error: &io::Error) -> Errno {
    let kind = error.kind();
    if kind == io::ErrorKind::ReadOnlyFilesystem {
        Errno::ROFS
    } else if kind == io::ErrorKind::StorageFull || kind == io::ErrorKind::QuotaExceeded {
        Errno::NOSPC
    } else {
        Errno::from_io_error(error).unwrap_or(Errno::IO)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn it_writes_one_file_over_and_over_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let root = File::open(dir.path()).unwrap();
        for _round in 0..3 {
            write_test(root.as_fd()).unwrap();
        }
        let file = dir.path().join(".volhold/write-test");
        assert_eq!(fs::read(&file).unwrap(), TEXT);
        fs::remove_file(&file).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "somebody's").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
        assert_eq!(write_test(root.as_fd()), Err(Errno::LOOP));
        assert_eq!(fs::read(&elsewhere).unwrap(), b"somebody's");
    }
}
