//! What is mounted at a path, by the kernel's list.

use super::MountError;
use crate::device::{mountinfo::Mount, uses};
use crate::model::DevNum;
use std::path::Path;

/// The device that lies on top at a path (which has no links in it), if anything is mounted exactly there.
pub fn on_top_at(at: &Path) -> Result<Option<DevNum>, MountError> {
    Ok(top_at(at)?.map(|mount| mount.devnum))
}

/// The mount that lies on top at a path, if anything is mounted exactly there.
pub fn top_at(at: &Path) -> Result<Option<Mount>, MountError> {
    Ok(top_of(&sources_at(at)?).cloned())
}

/// Of mounts at one path, each has the one below as its parent; on top is the one that is nobody's parent.
fn top_of(stack: &[Mount]) -> Option<&Mount> {
    stack.iter().find(|mount| !stack.iter().any(|other| other.parent == mount.id))
}

/// Everything mounted exactly at a path, in the kernel's order (by age, not by position).
pub fn sources_at(at: &Path) -> Result<Vec<Mount>, MountError> {
    let mounts = uses::mounts(Path::new("/proc/thread-self/mountinfo")).map_err(MountError::Table)?;
    Ok(mounts.into_iter().filter(|mount| mount.at == at).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::device::mountinfo;

    #[test]
    fn on_top_is_the_last_moved_there_not_the_youngest() {
        // A detached mount is older than the mount that it was moved over.
        let text = b"40 50 7:1 / /etcd rw - ext4 /dev/loop1 rw\n50 20 7:2 / /etcd rw - ext4 /dev/loop2 rw\n";
        let stack = mountinfo::parse(text).unwrap();
        assert_eq!(top_of(&stack).map(|mount| mount.devnum), Some(DevNum { major: 7, minor: 1 }));
        assert_eq!(top_of(&[]), None);
    }
}
