//! What `status` shows: the state of every guard, as written to `/run/volhold/status.json`.

use super::{DataDirReport, DeviceFacts, FsUuid, GuardName, Reason, Time, VolumeId};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    pub kind: String,
    /// volhold's version.
    pub version: String,
    /// When this was written, and by which process.
    pub written_at: Time,
    pub pid: u32,
    pub guards: Vec<GuardStatus>,
    /// What is wrong with the configuration as it stands, one line each: the agent runs on the last valid one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardStatus {
    pub name: GuardName,
    pub mode: Mode,
    pub gate: Gate,
    pub would_hold: bool,
    pub state: StateName,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub progress: Option<Progress>,
    pub volume: Option<VolumeId>,
    pub device: Option<DeviceFacts>,
    pub fs_uuid: Option<FsUuid>,
    /// Where the volume is published.
    pub publish: String,
    /// The dir that etcd would use, with its fingerprint.
    pub data_dir: Option<DataDirReport>,
    pub reasons: Vec<Reason>,
    /// Told without holding.
    #[serde(default)]
    pub warnings: Vec<Reason>,
    pub since: Time,
    /// What the last way from finding the device to a verdict took, step by step, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timings: Vec<Timing>,
}

/// How long one step took, by the monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// The step, such as `fsck`.
    pub step: String,
    /// Microseconds.
    pub us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    Observe,
    Enforce,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    Open,
    Waiting,
    Held,
}

/// The states of design.md section 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateName {
    Discovering,
    Attaching,
    Settling,
    Examining,
    Formatting,
    Inspecting,
    Publishing,
    Open,
    Degraded,
    Held,
    /// Observe mode: looked, and waiting for somebody to mount it or for a change.
    Observing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub what: String,
    pub done: u64,
    pub total: u64,
    /// Seconds that the rest is expected to take.
    pub remaining_s: Option<u64>,
}
