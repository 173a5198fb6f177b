//! What is mounted at a path, by the kernel's list.

use super::MountError;
use crate::device::{mountinfo::Mount, uses};
use crate::model::DevNum;
use std::path::Path;

/// The device that lies on top at a path (which has no links in it), if anything is mounted exactly there.
pub fn on_top_at(at: &Path) -> Result<Option<DevNum>, MountError> {
    Ok(sources_at(at)?.last().map(|mount| mount.devnum))
}

/// Everything mounted exactly at a path, the one on top last.
pub fn sources_at(at: &Path) -> Result<Vec<Mount>, MountError> {
    let mounts = uses::mounts(Path::new("/proc/thread-self/mountinfo")).map_err(MountError::Table)?;
    Ok(mounts.into_iter().filter(|mount| mount.at == at).collect())
}
