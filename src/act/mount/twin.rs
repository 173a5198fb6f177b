//! Which other device has the same filesystem mounted.
//!
//! XFS refuses to mount a filesystem whose UUID is mounted already (`fs/xfs/xfs_mount.c:xfs_uuid_mount`): a copy of a
//! snapshot beside its original. It answers EINVAL, as it does for nearly everything, so the other one is looked for.

use crate::act::mkfs::kinds::{SUPERBLOCK_LEN, kind};
use crate::model::{FsUuid, Fstype};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The kernel lists each mounted XFS here by its device's name, whatever namespace it is mounted in, or none.
const MOUNTED: &str = "/sys/fs/xfs";

/// The device with this UUID on it that is mounted as XFS and is not `node`.
pub(super) fn mounted_elsewhere(node: &Path) -> Option<Twin> {
    let uuid = uuid_on(node)?;
    let own = node.file_name()?;
    let entries = std::fs::read_dir(MOUNTED).ok()?;
    entries
        .filter_map(|entry| entry.ok().map(|entry| entry.file_name()))
        .filter(|name| name != own)
        // `/` in a device's name is `!` in sysfs.
        .map(|name| Path::new("/dev").join(name.to_string_lossy().replace('!', "/")))
        .find(|other| uuid_on(other) == Some(uuid))
        .map(|other| Twin { node: other, uuid })
}

/// The other device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Twin {
    pub node: PathBuf,
    pub uuid: FsUuid,
}

/// A device that cannot be read is none that is known to be the other one: the message is poorer for it, the mount has
/// failed already.
fn uuid_on(node: &Path) -> Option<FsUuid> {
    let layout = &kind(Fstype::Xfs).superblock;
    let mut superblock = [0_u8; SUPERBLOCK_LEN];
    File::open(node).and_then(|file| file.read_exact_at(&mut superblock, layout.at)).ok()?;
    layout.uuid_in(&superblock)
}
