//! Lets a filesystem that is mounted have all of a device that has become larger. The kernel does it; no tool is needed.
//!
//! Only ever larger: how large it is now is asked first, and what is not more than that is no request at all.
//!
//! ext4 takes the new number of blocks (`EXT4_IOC_RESIZE_FS`, kernel fs/ext4/ext4.h and ioctl.c; wants `CAP_SYS_RESOURCE`), XFS
//! likewise (`XFS_IOC_FSGROWFSDATA`, kernel fs/xfs/libxfs/xfs_fs.h; wants `CAP_SYS_ADMIN`). Both refuse on a mount that is
//! read-only, and both are journalled: a crash leaves the old size, the new one, or one between.

use crate::device::ioctl;
use crate::model::Fstype;
use std::io;
use std::os::fd::BorrowedFd;
use thiserror::Error;

/// Less than this behind the device's end is what mkfs leaves, too: the last group of blocks has to hold more than its own
/// administration. Bytes.
const LEAST: u64 = 16 << 20;

/// How much of its device a filesystem has. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub device: u64,
    pub filesystem: u64,
    /// Of the filesystem.
    pub block: u64,
}

impl Room {
    /// The size that it could grow to, in whole blocks; `None` where there is nothing to gain.
    pub fn larger(&self) -> Option<u64> {
        let blocks = self.device.checked_div(self.block)?;
        let wanted = blocks.checked_mul(self.block)?;
        let gain = wanted.checked_sub(self.filesystem)?;
        (gain >= LEAST).then_some(wanted)
    }
}

#[derive(Debug, Error)]
pub enum GrowError {
    #[error("the {fstype} has {filesystem} bytes and its device {device}: there is nothing to grow by")]
    NoRoom { fstype: Fstype, filesystem: u64, device: u64 },
    #[error("the kernel does not let the {fstype} grow to {wanted} bytes{}", needs(*.fstype, .source))]
    Refused {
        fstype: Fstype,
        wanted: u64,
        #[source]
        source: io::Error,
    },
}

/// What the caller lacks, where that is known.
fn needs(fstype: Fstype, source: &io::Error) -> &'static str {
    match (source.kind(), fstype) {
        (io::ErrorKind::PermissionDenied, Fstype::Ext4) => {
            " (it takes CAP_SYS_RESOURCE, and a filesystem without errors)"
        }
        (io::ErrorKind::PermissionDenied, Fstype::Xfs) => " (it takes CAP_SYS_ADMIN)",
        (_other, Fstype::Ext4 | Fstype::Xfs) => "",
    }
}

/// Bytes and block size of the XFS whose root this is. It does not show in the device's own pages.
pub fn xfs_size(root: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let geometry = ioctl::xfs_geometry(root)?;
    let block = u64::from(geometry.block_size);
    let bytes = geometry.data_blocks.checked_mul(block).ok_or_else(|| io::Error::other("no size of a filesystem"))?;
    Ok((bytes, block))
}

/// Grows it to all of the device. `root`: its root, mounted writable. Comes back when it has grown.
///
/// The agent records that this is about to happen before it calls: it writes.
pub fn grow(root: BorrowedFd<'_>, fstype: Fstype, room: &Room) -> Result<u64, GrowError> {
    let Some(wanted) = room.larger() else {
        return Err(GrowError::NoRoom { fstype, filesystem: room.filesystem, device: room.device });
    };
    let refused = |source| GrowError::Refused { fstype, wanted, source };
    let blocks = wanted.checked_div(room.block).unwrap_or_default();
    match fstype {
        Fstype::Ext4 => ioctl::ext4_resize(root, blocks).map_err(refused)?,
        Fstype::Xfs => {
            let inodes = ioctl::xfs_geometry(root).map_err(refused)?.inode_percent;
            ioctl::xfs_grow(root, blocks, inodes).map_err(refused)?;
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_only_ever_grows_and_by_more_than_mkfs_leaves() {
        let room = |device, filesystem| Room { device, filesystem, block: 4096 };
        const GIB: u64 = 1 << 30;
        assert_eq!(room(2 * GIB, GIB).larger(), Some(2 * GIB));
        assert_eq!(room(2 * GIB + 5, GIB).larger(), Some(2 * GIB));
        for (device, filesystem) in [(GIB, GIB), (GIB, 2 * GIB), (GIB + LEAST - 4096, GIB), (0, GIB), (GIB, u64::MAX)] {
            assert_eq!(room(device, filesystem).larger(), None, "{device} {filesystem}");
        }
        assert_eq!(Room { device: 2 * GIB, filesystem: GIB, block: 0 }.larger(), None);
    }
}
