//! `mkfs.ext4` and `mkfs.xfs`, with a permit.
//!
//! mkfs itself protects nothing: without a terminal and without `-F`, mkfs.ext4 overwrites a healthy ext4 and ends with 0
//! (measured). What protects is the permit, which is taken by value here and was made by proof of blankness only, and the
//! checks below that it is for this very device. No force flag is ever passed, so that mkfs's own refusals (mounted, in
//! use, xfs in the way for mkfs.xfs) stay in force.

pub(super) mod kinds;

use super::tool::{self, ToolError};
use crate::decide::format::FormatPermit;
use crate::device::{ClaimError, Device, DeviceError};
use crate::model::{BootMillis, FsUuid, Fstype, Reason, ReasonCode};
use kinds::{Kind, SUPERBLOCK_LEN, kind};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use thiserror::Error;

/// How long mkfs may take unless configured otherwise.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(30 * 60);

/// A program that is only asked for its options.
const USAGE_LIMIT: Duration = Duration::from_secs(10);

/// A filesystem that was made and read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub uuid: FsUuid,
    /// What mkfs said; normally nothing.
    pub output: String,
}

#[derive(Debug, Error)]
pub enum MkfsError {
    /// Nothing was run.
    #[error("the permit is not for {node}: {detail}")]
    PermitForAnother { node: PathBuf, detail: String },
    /// Nothing was run.
    #[error("the permit to format {node} has run out")]
    PermitExpired { node: PathBuf },
    /// Nothing was run: without the claim somebody else may be at work.
    #[error("{node} is not claimed")]
    NotClaimed { node: PathBuf },
    /// Nothing was run.
    #[error("ask about {node} before mkfs")]
    Device {
        node: PathBuf,
        #[source]
        source: DeviceError,
    },
    #[error("make a filesystem on {node}")]
    Tool {
        node: PathBuf,
        #[source]
        source: ToolError,
    },
    #[error("{program} on {node} ended with {exit:?}")]
    Failed { program: &'static str, node: PathBuf, exit: Option<i32>, output: String },
    #[error("claim again after mkfs")]
    Claim(#[source] ClaimError),
    #[error("{operation} {node}")]
    Io {
        operation: &'static str,
        node: PathBuf,
        #[source]
        source: io::Error,
    },
    /// mkfs ended well, but what stands on the device is something else.
    #[error("after {program}, {node} does not carry the filesystem that was asked for: {detail}")]
    ReadBack { program: &'static str, node: PathBuf, detail: String },
}

impl MkfsError {
    /// The reason that a guard is held for.
    pub fn reason(&self) -> Reason {
        match self {
            MkfsError::PermitForAnother { node, detail } => Reason::new(
                ReasonCode::IdentityMismatch,
                format!("{} was not formatted: what was examined is not what is opened ({detail})", node.display()),
            ),
            MkfsError::PermitExpired { node } => Reason::new(
                ReasonCode::MkfsFailed,
                format!("{} was not formatted: the evidence of its blankness is too old by now", node.display()),
            ),
            MkfsError::NotClaimed { node } => Reason::new(
                ReasonCode::InUse,
                format!("{} was not formatted: volhold does not hold its claim", node.display()),
            ),
            MkfsError::Device { source, .. } => source.reason(),
            MkfsError::Claim(source) => source.reason(),
            MkfsError::Failed { program, node, exit, output } => {
                let ended = exit.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
                Reason::new(
                    ReasonCode::MkfsFailed,
                    format!("{program} on {} ended with {ended}: {}", node.display(), output.trim()),
                )
                .with_detail(serde_json::json!({ "exit": exit, "output": output }))
            }
            MkfsError::Tool { node, source } => {
                Reason::new(ReasonCode::MkfsFailed, format!("no filesystem was made on {}: {source}", node.display()))
            }
            MkfsError::Io { operation, node, source } => {
                Reason::new(ReasonCode::MkfsFailed, format!("{operation} {}: {source}", node.display()))
            }
            MkfsError::ReadBack { program, node, detail } => Reason::new(
                ReasonCode::MkfsFailed,
                format!("{program} on {} ended well, but what was read back is wrong: {detail}", node.display()),
            ),
        }
    }
}

/// Makes a filesystem with this UUID on the device that the permit is for, and reads it back. `now` is the boot clock.
///
/// The caller has recorded the intent with this UUID and holds the claim and the udev lock. The claim is let go only while
/// mkfs runs (it takes its own) and is ours again afterwards, also when mkfs failed.
pub fn make(
    permit: FormatPermit,
    device: &mut Device,
    fstype: Fstype,
    uuid: FsUuid,
    now: BootMillis,
    limit: Duration,
) -> Result<Made, MkfsError> {
    let kind = kind(fstype);
    let program_name = kind.program;
    let node = device.node().to_owned();
    check_permit(&permit, device, now)?;
    let in_tool = |source| MkfsError::Tool { node: node.clone(), source };
    let program = tool::find(program_name).map_err(in_tool)?;
    let usage = if kind.asks_program() { usage(&program).map_err(in_tool)? } else { String::new() };
    let mut words = kind.arguments(uuid, &usage);
    words.push(Device::CHILD_PATH.to_owned());
    let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    let stdin = device.child_stdin().map_err(|source| MkfsError::Io {
        operation: "hand to mkfs",
        node: node.clone(),
        source,
    })?;
    device.let_go();
    let ended = tool::run(&program, &arguments, stdin, limit);
    device.reclaim().map_err(MkfsError::Claim)?;
    let ended = ended.map_err(in_tool)?;
    let output = ended.output.replace(Device::CHILD_PATH, &node.display().to_string());
    if ended.exit != Some(0) {
        return Err(MkfsError::Failed { program: program_name, node, exit: ended.exit, output });
    }
    read_back(device, &node, kind, uuid)?;
    Ok(Made { uuid, output })
}

/// What a mkfs says about its options when it is given none. It gets no device, and so cannot write to one.
fn usage(program: &Path) -> Result<String, ToolError> {
    tool::run(program, &[], Stdio::null(), USAGE_LIMIT).map(|ended| ended.output)
}

/// The permit is for this device in this attachment and size, still good, and the device is ours.
fn check_permit(permit: &FormatPermit, device: &Device, now: BootMillis) -> Result<(), MkfsError> {
    let node = device.node().to_owned();
    if !permit.is_valid_at(now) {
        return Err(MkfsError::PermitExpired { node });
    }
    let facts = device.facts().map_err(|source| MkfsError::Device { node: node.clone(), source })?;
    let permitted = (permit.devnum(), permit.diskseq(), permit.size());
    let opened = (facts.devnum, facts.diskseq, facts.size);
    if permitted != opened || device.devnum() != Some(permit.devnum()) {
        let words = |(devnum, diskseq, size): (crate::model::DevNum, Option<u64>, u64)| {
            let attachment = diskseq.map_or(String::new(), |number| format!(", attachment {number}"));
            format!("device {devnum} of {size} bytes{attachment}")
        };
        let detail = format!("permitted: {}; opened: {}", words(permitted), words(opened));
        return Err(MkfsError::PermitForAnother { node, detail });
    }
    if !device.claimed() {
        return Err(MkfsError::NotClaimed { node });
    }
    Ok(())
}

fn read_back(device: &Device, node: &Path, kind: &Kind, uuid: FsUuid) -> Result<(), MkfsError> {
    let failed = |operation| move |source| MkfsError::Io { operation, node: node.to_owned(), source };
    // From the medium, not from what mkfs left in the cache.
    device.drop_cache().map_err(failed("drop the cache of"))?;
    let mut superblock = [0u8; SUPERBLOCK_LEN];
    let reader = device.reader().map_err(failed("open to read back"))?;
    reader.read_exact_at(&mut superblock, kind.superblock.at).map_err(failed("read back the superblock of"))?;
    match kind.superblock.objection(&superblock, uuid) {
        None => Ok(()),
        Some(detail) => Err(MkfsError::ReadBack { program: kind.program, node: node.to_owned(), detail }),
    }
}
