//! A decision with all that led to it, kept on the node so that it can be explained without network or agent.

use super::{BootId, DeviceFacts, DeviceReading, FormatEvidence, GuardName, Reason, StartEvidence, StartVerdict, Time};
use serde::{Deserialize, Serialize};

/// The last decision of a guard, `/var/lib/volhold/guards/NAME/decision.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub guard: GuardName,
    pub time: Time,
    pub boot_id: BootId,
    /// volhold's version.
    pub version: String,
    pub verdict: DecisionVerdict,
    pub reasons: Vec<Reason>,
    pub warnings: Vec<Reason>,
    /// What was seen, as far as the guard got.
    pub evidence: DecisionEvidence,
    /// What was deliberately not done: "not formatted", "not mounted", …
    pub not_done: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionVerdict {
    Opened,
    Held,
    /// Observe mode: enforce would hold.
    WouldHold,
    /// Observe mode: enforce would open.
    WouldOpen,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionEvidence {
    pub device: Option<DeviceFacts>,
    pub reading: Option<DeviceReading>,
    pub format: Option<FormatEvidence>,
    pub start: Option<StartEvidence>,
    pub start_verdict: Option<StartVerdict>,
    /// Output of a tool that failed (e2fsck, mkfs, the kernel's words about a mount).
    pub tool_output: Option<String>,
}
