//! The last steps before the gate: record, seal, move the mounts into place.

use super::machine::Failure;
use super::memory::{Forgotten, Memory};
use super::volume_root;
use crate::act::mount::{DetachedMount, MountError};
use crate::act::seal::MountpointState;
use crate::act::{datadir, seal};
use crate::config::GuardConfig;
use crate::device::Device;
use crate::fault::fault_point;
use crate::model::{DevNum, Fact, FsUuid, PublishDir, VolumeId, WHOLE};
use std::os::fd::{AsFd, BorrowedFd};

/// Everything that publishing needs to know.
pub struct Plan {
    pub config: GuardConfig,
    pub memory: Memory,
    pub volume_id: VolumeId,
    pub fs_uuid: Option<FsUuid>,
    pub facts: Vec<Fact>,
    pub data_dir: String,
    /// A fresh etcd: its data dir is created with the configured owner and mode.
    pub create: bool,
}

/// Where the mount comes from that is published.
pub enum Source {
    /// The volume was examined through it, and nothing of it is published yet.
    Examined(DetachedMount),
    /// Some directories are published already, the ones to start from: after a crash between two, or after somebody has
    /// unmounted one.
    Partly(Vec<PublishDir>, DevNum),
}

/// In this order, so that a crash anywhere leaves a closed gate and a record of what was begun: seal the mountpoints; make
/// the mount writable; create what a fresh etcd needs; keep the facts on node and volume; move the mounts into place.
/// Returns where they are, without links: what the kernel's mount table will say.
pub fn publish(plan: &Plan, source: Source, device: &mut Device) -> Result<Vec<PublishDir>, Failure> {
    fault_point("before-seal");
    let entries = seal_all(plan)?;
    fault_point("after-seal");
    let held = |error: MountError| Failure { reason: error.reason(), tool_output: None };
    let (mount, present) = match source {
        Source::Examined(mount) => (mount.make_writable(device, &plan.config.mount_options).map_err(held)?, Vec::new()),
        Source::Partly(present, devnum) => {
            let root = volume_root::open(&present, devnum, plan.config.fstype, true);
            let root = root.map_err(|error| Failure { reason: error.reason(), tool_output: None })?;
            match root.into_mount() {
                Some(mount) => (mount, present),
                // The whole volume is at its place: nothing is left to do.
                None => return Ok(present),
            }
        }
    };
    fault_point("after-second-mount");
    let root = mount.root().map_err(held)?;
    if plan.create {
        create(plan, root.as_fd())?;
    }
    fault_point("after-data-dir");
    let missing: Vec<PublishDir> = entries.iter().filter(|entry| !present.contains(entry)).cloned().collect();
    let mut facts = plan.facts.clone();
    let devnum = mount.devnum();
    for (configured, sealed) in plan.config.publish.entries().iter().zip(&entries) {
        if missing.contains(sealed) {
            facts.push(Fact::Published { at: configured.at.display().to_string(), devnum });
        }
    }
    let unmended = |error: Forgotten| Failure { reason: error.reason(), tool_output: None };
    mend(plan, root.as_fd()).map_err(unmended)?;
    plan.memory
        .keep_on_both(&plan.volume_id, plan.fs_uuid, &facts, root.as_fd())
        .map_err(|error| Failure { reason: error.reason(), tool_output: None })?;
    drop(root);
    fault_point("before-move-mount");
    match missing.as_slice() {
        [whole] if whole.from == WHOLE => drop(mount.publish(&whole.at).map_err(held)?),
        directories => mount.publish_directories(directories).map_err(held)?,
    }
    fault_point("after-move-mount");
    Ok(entries)
}

/// What [`publish`] would refuse before it moves anything, without doing any of it. `present`: what is published already.
/// Returns what would be moved, each with whether its mountpoint is missing so far.
pub fn foresee(config: &GuardConfig, present: &[PublishDir], create: bool) -> Result<Vec<(PublishDir, bool)>, Failure> {
    let failed = |reason| Failure { reason, tool_output: None };
    let mut foreseen = Vec::new();
    for entry in config.publish.entries() {
        let state = seal::foresee(&entry.at).map_err(|error| failed(error.reason()))?;
        if !present.iter().any(|present| present.from == entry.from) {
            foreseen.push((entry.clone(), state));
        }
    }
    if create && let Some(owner) = &config.owner {
        datadir::owner_ids(&owner.user, &owner.group).map_err(|error| failed(error.reason()))?;
    }
    let mut missing = Vec::new();
    for (entry, state) in foreseen {
        match state {
            MountpointState::Mounted { devnum, .. } => {
                let occupied = MountError::Occupied { at: entry.at, devnum };
                return Err(failed(occupied.reason()));
            }
            MountpointState::Missing => missing.push((entry, true)),
            MountpointState::Empty { .. } | MountpointState::NotEmpty { .. } | MountpointState::NotADirectory => {
                missing.push((entry, false));
            }
        }
    }
    Ok(missing)
}

/// Before anything is appended, so that what a crash left out keeps its order. A full volume costs the copy and nothing else.
fn mend(plan: &Plan, root: BorrowedFd<'_>) -> Result<(), Forgotten> {
    match plan.memory.mend(&plan.volume_id, plan.fs_uuid, root) {
        Err(error) if !error.no_room() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Every mountpoint, sealed; the entries with their places without links.
fn seal_all(plan: &Plan) -> Result<Vec<PublishDir>, Failure> {
    let mut entries = Vec::new();
    for entry in plan.config.publish.entries() {
        let sealed = seal::seal(&entry.at).map_err(|error| Failure { reason: error.reason(), tool_output: None })?;
        for warning in &sealed.warnings {
            tracing::warn!(event = "seal.warning", guard = %plan.config.name, "{warning}");
        }
        entries.push(PublishDir { from: entry.from.clone(), at: sealed.at });
    }
    Ok(entries)
}

/// What is published and the data dir, where they are missing, with the configured owner and mode.
fn create(plan: &Plan, root: BorrowedFd<'_>) -> Result<(), Failure> {
    let failed = |error: datadir::DataDirError| Failure { reason: error.reason(), tool_output: None };
    let owner = match &plan.config.owner {
        Some(owner) => Some(datadir::owner_ids(&owner.user, &owner.group).map_err(failed)?),
        None => None,
    };
    for directory in plan.config.publish.sources().iter().chain([&plan.data_dir]) {
        datadir::create(root, directory, owner, plan.config.dir_mode).map_err(failed)?;
        fault_point("after-directory");
    }
    Ok(())
}
