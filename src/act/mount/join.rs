//! The whole of a filesystem of which only directories are mounted, for a moment: to read it, or to write the ledger.
//!
//! A second mount of a mounted filesystem is the same superblock: nothing is replayed, checked or changed by it. It must be
//! let go at once, since a mount that is kept makes the device busy after everybody else has unmounted it.

use super::{Access, DetachedMount, MountError, mount_node, stat_devnum};
use crate::act::options::{FsOption, MountOptions};
use crate::model::DevNum;
use rustix::mount::MountAttrFlags;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Mounts, detached, the root of the filesystem in which `within` lies. As long as `within` is open that filesystem stays
/// mounted, so that this can never be a mount of its own, with a replay of its own.
pub fn join(within: BorrowedFd<'_>, fstype: &str, access: Access) -> Result<DetachedMount, MountError> {
    let devnum = stat_devnum(within, "")
        .map_err(|errno| MountError::Root { node: PathBuf::from("a published directory"), source: errno.into() })?;
    let node = node_of(devnum)?;
    let options = |filesystem: Vec<FsOption>| MountOptions { attributes: MountAttrFlags::empty(), filesystem };
    match mount_node(&node, devnum, fstype, &options(Vec::new()), access) {
        // A filesystem that has become read-only after an error is joined as one that is.
        Err(MountError::Failed(tried)) if tried.errno == libc::EBUSY => {
            mount_node(&node, devnum, fstype, &options(vec![FsOption::Flag("ro".to_owned())]), access)
        }
        result => result,
    }
}

/// The canonical node: the kernel shows the source of a mount by the name that it was given.
fn node_of(devnum: DevNum) -> Result<PathBuf, MountError> {
    let failed = |source| MountError::Root { node: PathBuf::from(format!("device {devnum}")), source };
    let link = std::fs::read_link(format!("/sys/dev/block/{devnum}")).map_err(failed)?;
    let name = link.file_name().map(|name| name.to_string_lossy().replace('!', "/")).unwrap_or_default();
    let node = Path::new("/dev").join(name);
    let meta = std::fs::metadata(&node).map_err(failed)?;
    let found = DevNum::from_dev_t(meta.rdev());
    if !meta.file_type().is_block_device() || found != devnum {
        return Err(MountError::WrongVolume { node, opened: devnum, mounted: found });
    }
    Ok(node)
}
