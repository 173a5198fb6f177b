//! Everything that bears on the question "may etcd start on this volume?".

use super::{EtcdToRun, FilesystemFacts, Observed, Reason, Records, Time, VolumeId, VolumeReading, Witness};
use serde::{Deserialize, Serialize};

/// The whole input of `decide::start::may_start` besides the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartEvidence {
    pub volume_id: VolumeId,
    /// The filesystem as examined (UUID of the mounted root).
    pub filesystem: Observed<FilesystemFacts>,
    /// Every data dir on the volume.
    pub volume: Observed<VolumeReading>,
    /// Union of node ledger and volume ledger.
    pub records: Observed<Records>,
    /// An etcd that runs on this volume's published path right now.
    pub running: Observed<Option<RunningEtcd>>,
    /// How young the provider says the volume is.
    pub age: Observed<VolumeAge>,
    /// What the other members' volumes say of whether this one is new with them.
    #[serde(default = "Siblings::not_named")]
    pub siblings: Observed<Siblings>,
    /// What tags on the volume say, asked for where the ledgers pin nothing. `None`: it has none of volhold's.
    #[serde(default = "no_witness")]
    pub witness: Observed<Option<Witness>>,
    /// The etcd that is to be started. `None`: nothing names it.
    #[serde(default = "not_named")]
    pub to_run: Observed<Option<EtcdToRun>>,
}

fn not_named() -> Observed<Option<EtcdToRun>> {
    Observed::Seen(None)
}

fn no_witness() -> Observed<Option<Witness>> {
    Observed::Seen(None)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningEtcd {
    pub pid: u32,
    /// Data dir relative to the volume's root.
    pub data_dir: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeAge {
    /// The local provider cannot say: fresh is allowed once and then consumed.
    NoProvider,
    Young,
    Old,
}

/// Volumes of the other members of the same cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "siblings")]
pub enum Siblings {
    /// There is no provider, or nothing on the volume names its cluster.
    NotNamed,
    /// All that the provider lists. `created`: this volume itself, by the same clock.
    /// `me`: the member that this volume is of, as its own tag says.
    Listed { created: Time, me: Option<String>, of: Vec<Sibling> },
}

impl Siblings {
    /// Where nobody could name any.
    pub fn not_named() -> Observed<Siblings> {
        Observed::Seen(Siblings::NotNamed)
    }
}

/// The volume of another member, or another volume of this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sibling {
    pub volume: VolumeId,
    pub member: String,
    pub created: Option<Time>,
    /// Since when an instance has it.
    pub attached: Option<Time>,
    /// Members of etcd that have run, as volhold's tags on that volume remember them.
    #[serde(default)]
    pub ran: Vec<String>,
}

/// The numbers and wishes of the start decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartPolicy {
    /// May an etcd start on nothing at all?
    pub fresh: bool,
    /// Data dir that configuration names, relative to the volume's root.
    pub data_dir: Option<String>,
    /// Directories of the volume that are published, relative to its root; none where the whole volume is.
    #[serde(default)]
    pub publish: Vec<String>,
    /// Who this node is, if configuration says.
    pub member: Option<String>,
    pub peer_url: Option<String>,
    /// Live keys that a changed identity must keep, in percent of the last pinned reading (50; 0 for events).
    pub min_keys_percent: u8,
    /// A dir is far behind when its live keys are below this percentage of the best dir's (50).
    pub far_behind_percent: u8,
    /// User and group that etcd runs as, if configuration says.
    #[serde(default)]
    pub runs_as: Option<(u32, u32)>,
}

/// May etcd start?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum StartVerdict {
    Start {
        how: StartKind,
        /// The data dir, relative to the volume's root.
        data_dir: String,
        /// Told and alerted, without holding.
        warnings: Vec<Reason>,
    },
    Hold {
        reasons: Vec<Reason>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartKind {
    /// Populated, healthy, continues what is recorded.
    Continues,
    /// Populated, healthy, nothing recorded: trusted on first use and pinned.
    FirstUse,
    /// Nothing there, and nothing says that there should be.
    Fresh,
    /// An etcd runs on it already: ours.
    Running,
    /// etcd-manager's own migration or restore.
    MigrationUnderWay,
    /// Ids changed while the gate was open; warned.
    IdentityChanged,
    /// A person adopted what is there.
    Adopted,
}
