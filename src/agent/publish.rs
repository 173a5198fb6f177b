//! The last steps before the gate: record, seal, move the mount into place.

use super::machine::Failure;
use super::memory::Memory;
use crate::act::{datadir, kernel_log::shutdown_of, mount::DetachedMount, seal};
use crate::config::GuardConfig;
use crate::device::Device;
use crate::fault::fault_point;
use crate::model::{DevNum, Fact, FsUuid, Reason, ReasonCode, VolumeId};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

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

/// In this order, so that a crash anywhere leaves a closed gate and a record of what was begun: seal the mountpoint; make
/// the mount writable; create the fresh data dir; keep the facts on node and volume; move the mount into place.
/// Returns where that is, without links: what the kernel's mount table will say.
pub fn publish(plan: &Plan, mount: DetachedMount, device: &mut Device) -> Result<PathBuf, Failure> {
    let at = &plan.config.publish;
    fault_point("before-seal");
    let sealed = seal::seal(at).map_err(|error| Failure { reason: error.reason(), tool_output: None })?;
    for warning in &sealed.warnings {
        tracing::warn!(event = "seal.warning", guard = %plan.config.name, "{warning}");
    }
    fault_point("after-seal");
    let mount = mount
        .make_writable(device, &plan.config.mount_options)
        .map_err(|error| Failure { reason: error.reason(), tool_output: None })?;
    fault_point("after-second-mount");
    let root = mount.root().map_err(|error| Failure { reason: error.reason(), tool_output: None })?;
    if plan.create {
        let failed = |error: datadir::DataDirError| Failure { reason: error.reason(), tool_output: None };
        let owner = match &plan.config.owner {
            Some(owner) => Some(datadir::owner_ids(&owner.user, &owner.group).map_err(failed)?),
            None => None,
        };
        datadir::create(root.as_fd(), &plan.data_dir, owner, plan.config.dir_mode).map_err(failed)?;
    }
    fault_point("after-data-dir");
    let mut facts = plan.facts.clone();
    let devnum = mount.devnum();
    facts.push(Fact::Published { at: at.display().to_string(), devnum });
    plan.memory
        .keep_on_both(&plan.volume_id, plan.fs_uuid, &facts, root.as_fd())
        .map_err(|error| Failure { reason: error.reason(), tool_output: None })?;
    drop(root);
    fault_point("before-move-mount");
    mount.publish(&sealed.at).map_err(|error| Failure { reason: error.reason(), tool_output: None })?;
    fault_point("after-move-mount");
    Ok(sealed.at)
}

/// Why the mount that should be at a path is not.
#[derive(Debug, thiserror::Error)]
pub enum NotThere {
    #[error("cannot open {at}")]
    Open {
        at: PathBuf,
        #[source]
        source: Errno,
    },
    /// Not even the root can be opened: so an XFS answers that has shut down, and a disk that fails.
    #[error("{at} cannot be read: {}", .said.as_deref().map_or_else(
        || "its filesystem has shut down or its disk fails (EIO)".to_owned(),
        |said| format!("its filesystem has shut down and stays so until it is unmounted (the kernel says: {said})")))]
    Io { at: PathBuf, said: Option<String> },
    #[error("{at} is on device {found}, and the volume is device {expected}")]
    OtherDevice { at: PathBuf, found: DevNum, expected: DevNum },
}

impl NotThere {
    /// The reason that a guard is held for.
    pub fn reason(&self) -> Reason {
        let code = match self {
            NotThere::Io { .. } => ReasonCode::Unreadable,
            NotThere::Open { .. } | NotThere::OtherDevice { .. } => ReasonCode::WrongVolume,
        };
        Reason::new(code, super::chain(self))
    }
}

/// Opens the root of a mounted volume and makes sure that it is this device's.
pub fn open_root(at: &Path, expected: DevNum) -> Result<OwnedFd, NotThere> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = |source| match source {
        Errno::IO => NotThere::Io { at: at.to_owned(), said: name_of(expected).and_then(|node| shutdown_of(&node)) },
        source => NotThere::Open { at: at.to_owned(), source },
    };
    let root = rustix::fs::open(at, flags, Mode::empty()).map_err(open)?;
    let found = DevNum::from_dev_t(rustix::fs::fstat(&root).map_err(open)?.st_dev);
    if found == expected { Ok(root) } else { Err(NotThere::OtherDevice { at: at.to_owned(), found, expected }) }
}

/// What the kernel calls a block device in its log. Without sysfs the log is not understood, and says nothing.
fn name_of(devnum: DevNum) -> Option<PathBuf> {
    std::fs::read_link(format!("/sys/dev/block/{devnum}")).ok()
}
