//! What `status` shows: the state of every guard, as written to `/run/volhold/status.json`.

use super::{DataDirReport, DeviceFacts, FsUuid, GuardName, PublishDir, Reason, Time, VolumeId, VolumeSight};
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
    /// What the agent itself cannot do, one line each, without harm to any guard: a socket that cannot be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The document of `volhold status -o json` and of `GET /v1/status`: the agent's status, and how much it is worth right now.
#[derive(Debug, Clone, Serialize)]
pub struct StatusDocument {
    #[serde(rename = "apiVersion")]
    pub api_version: &'static str,
    pub kind: &'static str,
    pub agent: AgentFacts,
    pub guards: Vec<GuardStatus>,
    /// As in [`Status`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<String>,
    /// As in [`Status`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Gates that a person has opened by hand, without volhold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bypassed: Vec<Bypass>,
    /// Configured guards about which the agent has told nothing: not open.
    pub unreported: Vec<GuardName>,
}

impl StatusDocument {
    /// `status`: `None` where no agent has run since this machine started.
    pub fn new(agent: AgentFacts, status: Option<Status>, configured: &[GuardName]) -> Self {
        let (guards, config, warnings) = status.map(|s| (s.guards, s.config, s.warnings)).unwrap_or_default();
        let unreported =
            configured.iter().filter(|name| guards.iter().all(|guard| guard.name != **name)).cloned().collect();
        StatusDocument {
            api_version: "volhold/v1",
            kind: "Status",
            agent,
            guards,
            config,
            warnings,
            bypassed: Vec::new(),
            unreported,
        }
    }
}

/// A person has opened this gate by hand, in this boot and without volhold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bypass {
    pub name: GuardName,
    /// The person's words, or those of the command.
    pub note: String,
}

/// The agent behind a status.
#[derive(Debug, Clone, Serialize)]
pub struct AgentFacts {
    pub running: bool,
    pub pid: Option<u32>,
    pub version: Option<String>,
    pub written_at: Option<Time>,
}

impl AgentFacts {
    /// Of the agent that wrote this status, if one did.
    pub fn new(status: Option<&Status>, running: bool) -> Self {
        AgentFacts {
            running,
            pid: status.map(|s| s.pid),
            version: status.map(|s| s.version.clone()),
            written_at: status.map(|s| s.written_at),
        }
    }
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
    /// Where the volume is published; of several directories the one that the data dir lies in, as far as that is known.
    pub publish: String,
    /// Every directory of the volume that is published, where not the whole of it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish_dirs: Vec<PublishDir>,
    /// The dir that etcd would use, with its fingerprint.
    pub data_dir: Option<DataDirReport>,
    pub reasons: Vec<Reason>,
    /// What a volume that is on its way is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Reason>,
    /// Told without holding.
    #[serde(default)]
    pub warnings: Vec<Reason>,
    pub since: Time,
    /// What the last way from finding the device to a verdict took, step by step, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timings: Vec<Timing>,
    /// For monitoring.
    #[serde(default)]
    pub figures: Figures,
    /// How it stands with the tags in which EC2 remembers this volume. `None`: none are written for this guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<WitnessStatus>,
    /// What the watch over an open gate sees of the volume. `None`: the gate is not open, or nobody keeps watch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<VolumeSight>,
}

/// What came of writing the witness.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitnessStatus {
    /// When it was last written by this agent.
    pub written_at: Option<Time>,
    /// Why it is not written now. It costs nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Reason>,
}

/// What monitoring asks of a guard's volume and of its past.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// When volhold last made a filesystem on this volume, by the ledgers.
    #[serde(default)]
    pub formatted_at: Option<Time>,
    /// Since when the expected identity is the expected one.
    #[serde(default)]
    pub pinned_at: Option<Time>,
    /// Of the data dir in use, by its backend file as last read; newer than the fingerprint while the gate is open.
    #[serde(default)]
    pub revision: Option<i64>,
    /// Data dirs at the last look.
    #[serde(default)]
    pub data_dirs: Option<DataDirCounts>,
}

/// How many data dirs of each kind lie on a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataDirCounts {
    pub populated: u64,
    pub empty: u64,
    /// Populated, and of another cluster than the selected one.
    pub foreign: u64,
    /// Put away by somebody under a name that says so.
    pub archived: u64,
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
