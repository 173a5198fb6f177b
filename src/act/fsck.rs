//! `e2fsck -p`: what a boot would do, and nothing more. Any other repair is for a person to decide.

use super::tool::{self, Ended, ToolError};
use crate::device::{ClaimError, Device};
use crate::model::{Reason, ReasonCode};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// How long e2fsck may take unless configured otherwise: it hangs, it does not fail, on a stalled volume.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(30 * 60);

/// A filesystem that e2fsck leaves clean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fsck {
    /// 0: nothing to do. 1: errors corrected.
    pub exit: i32,
    pub output: String,
}

#[derive(Debug, Error)]
pub enum FsckError {
    #[error("e2fsck -p on {node} ended with {}", exit_words(*.exit))]
    Refused { node: PathBuf, exit: Option<i32>, output: String },
    /// e2fsck is older than the filesystem.
    #[error("e2fsck does not know a feature of the filesystem on {node}")]
    FeatureUnknown { node: PathBuf, output: String },
    #[error("check {node}")]
    Tool {
        node: PathBuf,
        #[source]
        source: ToolError,
    },
    #[error("hand {node} to e2fsck")]
    Handover {
        node: PathBuf,
        #[source]
        source: io::Error,
    },
    /// e2fsck is done, but the device did not become ours again.
    #[error("claim again after e2fsck")]
    Claim(#[source] ClaimError),
}

impl FsckError {
    /// The reason that a guard is held for.
    pub fn reason(&self) -> Reason {
        match self {
            FsckError::Refused { node, exit, output } => Reason::new(
                ReasonCode::FsckFailed,
                format!(
                    "e2fsck -p on {} ended with {}: the filesystem has damage that needs a person ({})",
                    node.display(),
                    exit_words(*exit),
                    first_line(output)
                ),
            )
            .with_detail(serde_json::json!({ "exit": exit, "output": output })),
            FsckError::FeatureUnknown { node, output } => Reason::new(
                ReasonCode::FilesystemFeatureUnknown,
                format!(
                    "the filesystem on {} has a feature that this machine's e2fsck does not know: it was made by a newer \
                     system ({})",
                    node.display(),
                    first_line(output)
                ),
            )
            .with_detail(serde_json::json!({ "output": output })),
            FsckError::Tool { node, source } => match source {
                ToolError::TimedOut { output, .. } => {
                    Reason::new(ReasonCode::TimedOut, format!("checking {} with e2fsck: {source}", node.display()))
                        .with_detail(serde_json::json!({ "output": output }))
                }
                ToolError::NotFound { .. } => {
                    Reason::new(ReasonCode::FsckFailed, format!("{} could not be checked: {source}", node.display()))
                }
                ToolError::Run { source: cause, .. } => Reason::new(
                    ReasonCode::FsckFailed,
                    format!("{} could not be checked: {source}: {cause}", node.display()),
                ),
            },
            FsckError::Handover { node, source } => Reason::new(
                ReasonCode::Unreadable,
                format!("{} could not be opened anew for e2fsck: {source}", node.display()),
            ),
            FsckError::Claim(source) => source.reason(),
        }
    }

    /// What e2fsck said.
    pub fn output(&self) -> Option<&str> {
        match self {
            FsckError::Refused { output, .. } | FsckError::FeatureUnknown { output, .. } => Some(output),
            FsckError::Tool { source: ToolError::TimedOut { output, .. }, .. } => Some(output),
            FsckError::Tool { .. } | FsckError::Handover { .. } | FsckError::Claim(_) => None,
        }
    }
}

/// Checks an ext filesystem. Where its superblock says clean, without writing first (`-n`): `-p` counts kilobytes written
/// and sets the time in the superblock even where there is nothing to do, and a volume that is held a moment later must be
/// byte for byte what it was. Whatever else that look finds is left to [`ext4_preen`].
pub fn ext4_check(device: &mut Device, says_clean: bool, limit: Duration) -> Result<Fsck, FsckError> {
    if says_clean {
        match e2fsck(device, "-n", limit) {
            Err(FsckError::Refused { .. }) => {}
            looked @ (Ok(_)
            | Err(
                FsckError::FeatureUnknown { .. }
                | FsckError::Tool { .. }
                | FsckError::Handover { .. }
                | FsckError::Claim(_),
            )) => return looked,
        }
    }
    ext4_preen(device, limit)
}

/// Checks an ext filesystem and lets e2fsck repair what it calls safe (`-p`, which replays the journal). The claim is let
/// go while it runs (e2fsck takes its own) and is ours again afterwards, also when e2fsck failed.
///
/// The agent records that this is about to happen before it calls: it writes.
pub fn ext4_preen(device: &mut Device, limit: Duration) -> Result<Fsck, FsckError> {
    e2fsck(device, "-p", limit)
}

/// What [`ext4_check`] finds where the superblock says clean, and what it comes to if that is enough: `Refused` says that
/// it would go on to repair. Writes nothing and needs no claim.
pub fn ext4_foresee(device: &Device, limit: Duration) -> Result<Fsck, FsckError> {
    judged(device, run(device, "-n", limit)?)
}

fn e2fsck(device: &mut Device, how: &str, limit: Duration) -> Result<Fsck, FsckError> {
    let was_claimed = device.claimed();
    device.let_go();
    let ended = run(device, how, limit);
    if was_claimed {
        device.reclaim().map_err(FsckError::Claim)?;
    }
    judged(device, ended?)
}

fn run(device: &Device, how: &str, limit: Duration) -> Result<Ended, FsckError> {
    let node = device.node().to_owned();
    let in_tool = |source| FsckError::Tool { node: node.clone(), source };
    let program = tool::find("e2fsck").map_err(in_tool)?;
    let stdin = device.child_stdin().map_err(|source| FsckError::Handover { node: node.clone(), source })?;
    tool::run(&program, &[how, Device::CHILD_PATH], stdin, limit).map_err(in_tool)
}

fn judged(device: &Device, ended: Ended) -> Result<Fsck, FsckError> {
    let node = device.node().to_owned();
    // In the output the device has the name that e2fsck was given.
    let output = ended.output.replace(Device::CHILD_PATH, &node.display().to_string());
    // `EXT2_ET_UNSUPP_FEATURE` and its read-only sister, e2fsprogs lib/ext2fs/ext2_err.et and e2fsck/unix.c.
    let feature_unknown =
        output.contains("unsupported feature(s)") || output.contains("unsupported read-only feature(s)");
    match ended.exit {
        Some(exit @ (0 | 1)) => Ok(Fsck { exit, output }),
        Some(_) | None if feature_unknown => Err(FsckError::FeatureUnknown { node, output }),
        exit @ (Some(_) | None) => Err(FsckError::Refused { node, exit, output }),
    }
}

/// e2fsck(8), EXIT CODE: a sum of bits.
fn exit_words(exit: Option<i32>) -> String {
    let Some(code) = exit else { return "a signal".to_owned() };
    let bits = [
        (1, "errors corrected"),
        (2, "corrected, reboot wanted"),
        (4, "errors left uncorrected"),
        (8, "operational error"),
        (16, "usage error"),
        (32, "canceled"),
        (128, "library error"),
    ];
    let words: Vec<_> = bits.iter().filter(|(bit, _)| code & bit != 0).map(|(_, word)| *word).collect();
    format!("exit code {code} ({})", words.join(", "))
}

fn first_line(output: &str) -> &str {
    output.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing")
}
