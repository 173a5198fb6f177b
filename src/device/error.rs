//! What can go wrong before a device is ours. Each error says which reason a guard is held for.

use crate::model::{DeviceUse, Reason, ReasonCode};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Opening a device, or asking about it, failed.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// No node, a link that leads nowhere, a node without a driver, or a device that has gone since.
    #[error("{requested}: there is no such device ({detail})")]
    Missing { requested: String, detail: String },
    #[error("{requested}: not permitted to open {path}")]
    NotPermitted {
        requested: String,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{requested}: {path} is {what}, not a block device")]
    NotABlockDevice { requested: String, path: PathBuf, what: &'static str },
    /// `UUID=` or `LABEL=` fits several devices.
    #[error("{requested}: fits {}", .nodes.iter().map(|n| n.display().to_string()).collect::<Vec<_>>().join(" and "))]
    Ambiguous { requested: String, nodes: Vec<PathBuf> },
    /// A device of no bytes: an unbound loop device, a disk whose medium is gone.
    #[error("{requested}: {node} has a size of 0 bytes")]
    SizeZero { requested: String, node: PathBuf },
    /// Something stands where the volume should, and is not it.
    #[error("{requested}: {node} is not that volume: {detail}")]
    NotTheVolume { requested: String, node: PathBuf, detail: String },
    #[error("{operation} {path}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl DeviceError {
    /// Tells apart what a failed open means.
    pub(super) fn from_open(requested: &str, path: PathBuf, source: io::Error) -> Self {
        let requested = requested.to_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {
                // Mostly it is the very name that was asked for; then once is enough.
                let what =
                    if path.display().to_string() == requested { "it".into() } else { path.display().to_string() };
                DeviceError::Missing { requested, detail: format!("{what} does not exist") }
            }
            Some(libc::ENXIO | libc::ENODEV) => DeviceError::Missing {
                requested,
                detail: format!("{} is a node that no driver answers for", path.display()),
            },
            Some(libc::ENOMEDIUM) => {
                DeviceError::Missing { requested, detail: format!("{} has no medium", path.display()) }
            }
            Some(libc::EACCES | libc::EPERM) => DeviceError::NotPermitted { requested, path, source },
            Some(_) | None => DeviceError::Io { operation: "open", path, source },
        }
    }

    /// The reason that a guard is held for.
    pub fn reason(&self) -> Reason {
        match self {
            DeviceError::Missing { requested, detail } => Reason::new(
                ReasonCode::DeviceMissing,
                format!("device {requested} is not there: {detail}; nothing was formatted or mounted in its place"),
            ),
            DeviceError::NotPermitted { requested, path, source } => Reason::new(
                ReasonCode::NoPermission,
                format!(
                    "device {requested} cannot be opened: {} on {} (volhold needs root)",
                    words(source),
                    path.display()
                ),
            ),
            DeviceError::NotABlockDevice { requested, path, what } => Reason::new(
                ReasonCode::NotABlockDevice,
                format!("device {requested} leads to {}, which is {what} and not a block device", path.display()),
            ),
            DeviceError::Ambiguous { requested, nodes } => Reason::new(
                ReasonCode::VolumeAmbiguous,
                format!(
                    "{requested} fits {} devices ({}): expected exactly one, so none was touched",
                    nodes.len(),
                    nodes.iter().map(|node| node.display().to_string()).collect::<Vec<_>>().join(", ")
                ),
            )
            .with_detail(serde_json::json!({ "nodes": nodes })),
            DeviceError::SizeZero { requested, node } => Reason::new(
                ReasonCode::SizeMismatch,
                format!("device {requested} ({}) has a size of 0 bytes: nothing is attached to it", node.display()),
            ),
            DeviceError::NotTheVolume { requested, node, detail } => Reason::new(
                ReasonCode::IdentityMismatch,
                format!("{} is not {requested}: {detail}; it was left alone", node.display()),
            ),
            DeviceError::Io { operation, path, source } => Reason::new(
                ReasonCode::Unreadable,
                format!("asking the kernel about the device failed: {operation} {}: {}", path.display(), words(source)),
            ),
        }
    }
}

/// Taking the claim failed.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// The kernel refused `O_EXCL`, or a loop device sits on top (which `O_EXCL` does not notice).
    #[error("{node} is in use: {}", describe_uses(.uses, .openers))]
    InUse { node: PathBuf, uses: Vec<DeviceUse>, openers: Vec<Opener> },
    /// The device number now leads to something else than what was opened.
    #[error("{node} is not the device that was opened: {detail}")]
    Changed { node: PathBuf, detail: String },
    /// Only whole disks are claimed: a partition leaves the rest of its disk to others.
    #[error("{node} is a partition")]
    NotWholeDisk { node: PathBuf },
    /// An image file: it has to be attached to a loop device first.
    #[error("{path} is an image file, which cannot be claimed")]
    Image { path: PathBuf },
    /// A descriptor taken over from an earlier process is not this device.
    #[error("the descriptor handed over for {node} is something else: {detail}")]
    Foreign { node: PathBuf, detail: String },
    #[error("claim {node}")]
    Io {
        node: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("claim {node}: the device could not be asked about")]
    Device {
        node: PathBuf,
        #[source]
        source: DeviceError,
    },
}

impl ClaimError {
    /// The reason that a guard is held for.
    pub fn reason(&self) -> Reason {
        match self {
            ClaimError::InUse { node, uses, openers } => Reason::new(
                ReasonCode::InUse,
                format!("device {} is in use by somebody else: {}", node.display(), describe_uses(uses, openers)),
            )
            .with_detail(serde_json::json!({ "uses": uses, "openers": openers })),
            ClaimError::Changed { node, detail } => Reason::new(
                ReasonCode::ChangedUnderneath,
                format!("device {} is no longer the one that was examined: {detail}", node.display()),
            ),
            ClaimError::NotWholeDisk { node } => Reason::new(
                ReasonCode::Partitioned,
                format!("device {} is a partition: volhold guards whole disks only", node.display()),
            ),
            ClaimError::Image { path } => Reason::new(
                ReasonCode::NotABlockDevice,
                format!("{} is an image file and not attached to a loop device", path.display()),
            ),
            ClaimError::Foreign { node, detail } => Reason::new(
                ReasonCode::IdentityMismatch,
                format!("the claim kept over the restart is not for device {}: {detail}", node.display()),
            ),
            ClaimError::Io { node, source } => match source.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => Reason::new(
                    ReasonCode::NoPermission,
                    format!("device {} cannot be claimed: {} (volhold needs root)", node.display(), words(source)),
                ),
                Some(libc::ENXIO | libc::ENODEV | libc::ENOENT | libc::ENOMEDIUM) => Reason::new(
                    ReasonCode::DeviceMissing,
                    format!("device {} has gone: {}", node.display(), words(source)),
                ),
                Some(_) | None => Reason::new(
                    ReasonCode::Unreadable,
                    format!("claiming device {} failed: {}", node.display(), words(source)),
                ),
            },
            ClaimError::Device { node: _, source } => source.reason(),
        }
    }
}

/// A process that has the node open.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Opener {
    pub pid: u32,
    /// `/proc/PID/comm`.
    pub name: String,
}

/// One phrase that names everybody.
pub fn describe_uses(uses: &[DeviceUse], openers: &[Opener]) -> String {
    let mut words: Vec<String> = uses
        .iter()
        .map(|used| match used {
            DeviceUse::Mount { at } => format!("mounted at {at}"),
            DeviceUse::Swap => "used as swap".to_owned(),
            DeviceUse::Holder { name } => format!("held by {name}"),
            DeviceUse::LoopOnTop { name } => format!("loop device {name} sits on top of it"),
            DeviceUse::Partition { name } => format!("has partition {name}"),
            DeviceUse::Exclusive => "claimed exclusively by another process or mount namespace".to_owned(),
        })
        .collect();
    if !openers.is_empty() {
        let names: Vec<_> = openers.iter().map(|opener| format!("{} (pid {})", opener.name, opener.pid)).collect();
        words.push(format!("opened by {}", names.join(", ")));
    }
    words.join("; ")
}

/// An error in the kernel's words, without Rust's `(os error 5)`.
pub(crate) fn words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_owned(),
        None => error.to_string(),
    }
}
