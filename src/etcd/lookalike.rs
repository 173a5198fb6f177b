//! What has the name of a data dir and never was one.

use super::dir::{kind_of, list, open_dir_str};
use rustix::fs::FileType;
use std::os::fd::{AsFd, BorrowedFd};

/// Is the `member` of this directory a file, or a directory without a single entry?
///
/// etcd makes `member/snap` in the same breath as `member` (etcd 3.4 etcdserver/server.go, `NewServer`: `TouchDirAll` of the
/// snap dir, parents included), so an empty one is no etcd's. Whatever cannot be looked at is none of these.
pub(super) fn is_lookalike(dir: BorrowedFd<'_>) -> bool {
    match kind_of(dir, "member", "member") {
        Ok(Some(FileType::Directory)) => {
            let entries = open_dir_str(dir, "member").and_then(|member| list(member.as_fd(), "member", 1));
            entries.is_ok_and(|entries| entries.is_empty())
        }
        // A link may lead to a data dir that was moved.
        Ok(Some(FileType::Symlink | FileType::Unknown) | None) | Err(_) => false,
        Ok(Some(
            FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice,
        )) => true,
    }
}
