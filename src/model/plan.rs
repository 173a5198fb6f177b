//! What would be done about a guard, step by step: the document of `volhold plan`.

use super::{DataDirReport, DeviceFacts, GuardName, Mode, Reason, StartKind, VolumeId};
use serde::Serialize;

/// One guard's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuardPlan {
    pub name: GuardName,
    /// Of the configuration. An observed guard's plan says what `enforce` would do.
    pub mode: Mode,
    pub volume: Option<VolumeId>,
    pub device: Option<DeviceFacts>,
    /// The next look: at the agent's start, after `retry`, or when the device changes.
    #[serde(flatten)]
    pub next_look: Foreseen,
    /// The volume is mounted now, so that the next look changes little: what the first look after a reboot would do, were the
    /// machine shut down in order and the data as it is now.
    pub next_boot: Option<Foreseen>,
}

/// What one look would do and come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Foreseen {
    pub steps: Vec<PlanStep>,
    pub verdict: PlanVerdict,
    /// Why it would be held.
    pub reasons: Vec<Reason>,
    /// Told without holding.
    pub warnings: Vec<Reason>,
    /// Why the plan ends before a verdict: what cannot be known without doing it.
    pub unknown: Option<String>,
    /// The dir that etcd would start on.
    pub data_dir: Option<DataDirReport>,
    /// On what grounds.
    pub how: Option<StartKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanVerdict {
    WouldOpen,
    WouldHold,
    /// The gate is open and stays so, and what would hold is a doubt.
    WouldDoubt,
    /// It takes a step that writes to know.
    Unknown,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanStep {
    pub action: StepAction,
    /// What it is about, and what came of it where the plan has looked.
    pub detail: String,
    /// It writes to the guarded device or volume.
    pub writes: bool,
    /// The plan has done this, or the part of it that changes nothing: what it says is seen, not supposed.
    pub seen: bool,
    /// What `history` would show for it afterwards, in this order.
    pub recorded: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepAction {
    Find,
    Claim,
    Read,
    ReadAgain,
    ReadLedger,
    Format,
    Snapshot,
    Check,
    Mount,
    Look,
    Decide,
    Record,
    Seal,
    Publish,
    Open,
    LetGo,
}

impl StepAction {
    pub fn word(self) -> &'static str {
        match self {
            StepAction::Find => "find",
            StepAction::Claim => "claim",
            StepAction::Read => "read",
            StepAction::ReadAgain => "read again",
            StepAction::ReadLedger => "read ledger",
            StepAction::Format => "format",
            StepAction::Snapshot => "snapshot",
            StepAction::Check => "check",
            StepAction::Mount => "mount",
            StepAction::Look => "look",
            StepAction::Decide => "decide",
            StepAction::Record => "record",
            StepAction::Seal => "seal",
            StepAction::Publish => "publish",
            StepAction::Open => "open",
            StepAction::LetGo => "let go",
        }
    }
}
