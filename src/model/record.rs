//! Memory: the entries of ledgers, and what their union says.

use super::{
    BootId, BootMillis, ClusterId, DevNum, Fingerprint, FsUuid, GuardName, MemberId, Order, Outcome, Time, VolumeId,
};
use serde::{Deserialize, Serialize};

/// Identity of one ledger entry: the first 16 hex digits of its hash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntryId(pub String);

/// One remembered fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub time: Time,
    pub boot_id: BootId,
    /// `/etc/machine-id` of the writer.
    pub machine_id: String,
    pub guard: GuardName,
    pub volume_id: VolumeId,
    pub fs_uuid: Option<FsUuid>,
    /// volhold's version that wrote it.
    pub version: String,
    pub fact: Fact,
}

/// What can be remembered. New kinds are added; a reader that does not know one skips it unless its frame says
/// *must understand*.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Fact {
    /// mkfs is about to run with this UUID on this attachment.
    FormatIntent { fs_uuid: FsUuid, devnum: DevNum, diskseq: Option<u64>, evidence_digest: String },
    /// mkfs ran and the filesystem was read back with that UUID.
    Formatted { fs_uuid: FsUuid },
    /// An etcd was allowed to start on nothing.
    FreshAllowed { data_dir: String },
    /// This identity is the one to expect, and why: `first-use`, `grown-here`, `adopted`.
    Pinned { cluster_id: ClusterId, member_id: MemberId, name: Option<String>, data_dir: String, because: String },
    /// The dir was seen to hold data, with durable progress up to here. A high-water mark.
    HoldsData { mark: HighWater },
    /// The identity was seen to change while the gate was open.
    IdentityChanged { from_cluster: ClusterId, from_member: MemberId, to_cluster: ClusterId, to_member: MemberId },
    /// A person's answer to a hold.
    Adopted { what: Adoption, confirmed: String },
    /// A person let the claim go until then. `until_boot`: the same moment by the clock of the boot in which that was said.
    Released {
        until: Time,
        #[serde(default)]
        until_boot: Option<BootMillis>,
    },
    /// A person asked for a new look.
    Retried,
    /// A person no longer stands by what is pinned: the next healthy look pins what it finds.
    Unpinned { confirmed: String },
    /// A person ordered something to be done to the volume.
    Ordered { order: Order },
    /// What became of that order.
    Carried { order: EntryId, outcome: Outcome },
    /// A person made etcd's start wait for the gate, for this kind of master, and the guard enforce.
    Enabled { preset: String },
    /// A person took that away.
    Disabled,
    /// A person opened the gate by hand, without volhold; in that person's words, or those of the command.
    Bypassed { note: String },
    /// fsck is about to run, or ran with this exit code.
    Fsck { exit: Option<i32>, output: String },
    /// The volume is about to be mounted without fsck, and why.
    NotChecked { why: String },
    /// The filesystem is about to grow to all of its device, or has. Bytes.
    Grow { from: u64, to: u64, done: bool },
    /// This process is about to be ended, so that its container is started anew.
    Restarted { what: String, pid: u32 },
    /// By policy, this cgroup is about to be frozen or this unit stopped, because of these reasons.
    Halted { what: String, codes: Vec<String> },
    /// EC2 keeps the volume's state as it was before this.
    Snapshot { id: String, before: String },
    /// The volume was published at this path.
    Published { at: String, devnum: DevNum },
    /// A decision, with the digest of its evidence.
    Decided { decision: String, verdict: String, codes: Vec<String>, evidence_digest: String },
}

impl Fact {
    /// What `history` calls it.
    pub fn word(&self) -> &str {
        match self {
            Fact::FormatIntent { .. } | Fact::Formatted { .. } => "format",
            Fact::FreshAllowed { .. } => "fresh",
            Fact::Pinned { .. } => "pin",
            Fact::HoldsData { .. } => "progress",
            Fact::IdentityChanged { .. } => "identity",
            Fact::Adopted { .. } => "adopt",
            Fact::Released { .. } => "release",
            Fact::Retried => "retry",
            Fact::Unpinned { .. } => "unpin",
            Fact::Ordered { .. } | Fact::Carried { .. } => "order",
            Fact::Enabled { .. } => "enable",
            Fact::Disabled => "disable",
            Fact::Bypassed { .. } => "bypass",
            Fact::Fsck { .. } | Fact::NotChecked { .. } => "fsck",
            Fact::Snapshot { .. } => "snapshot",
            Fact::Grow { .. } => "grow",
            Fact::Restarted { .. } => "restart",
            Fact::Halted { .. } => "halt",
            Fact::Published { .. } => "publish",
            Fact::Decided { decision, .. } => decision,
        }
    }
}

/// Progress that survived a power cut: read, then made durable, then noted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighWater {
    pub data_dir: String,
    pub cluster_id: Option<ClusterId>,
    pub member_id: Option<MemberId>,
    pub term: Option<u64>,
    pub consistent_index: Option<u64>,
    pub revision: Option<i64>,
    pub wal_last_index: Option<u64>,
    pub keys: Option<u64>,
}

impl HighWater {
    pub fn of(data_dir: &str, fingerprint: &Fingerprint) -> Self {
        HighWater {
            data_dir: data_dir.to_owned(),
            cluster_id: fingerprint.cluster_id,
            member_id: fingerprint.member_id,
            term: fingerprint.raft.term,
            consistent_index: fingerprint.consistent_index,
            revision: fingerprint.revision,
            wal_last_index: fingerprint.raft.last_index,
            keys: fingerprint.keys,
        }
    }
}

/// What a person adopts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Adoption {
    /// What is there now is right: pin its identity.
    Identity,
    /// A volume restored from a snapshot.
    Restored,
    /// A new cluster is meant to start here, beside or instead of the old.
    NewCluster,
    /// This member is meant to start empty and rejoin.
    Replacement,
}

/// The union of all ledgers for one volume, as the rules need it. Made by `record::fold`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// The latest pin that no adoption has superseded.
    pub pin: Option<Pin>,
    /// Highest progress noted since that pin, for the pinned identity; without a pin, for the identity noted last.
    /// `data_dir` and `keys` are those of the newest mark.
    pub high_water: Option<HighWater>,
    /// When data was last noted; `None`: no record says that this volume held data since a person last said that it starts
    /// empty (`new-cluster`, `replacement`).
    pub held_data_at: Option<Time>,
    /// UUIDs of filesystems that were accepted on this volume id, newest last. Never forgotten: not empty means used.
    pub fs_uuids: Vec<FsUuid>,
    /// UUIDs of filesystems that volhold itself made.
    pub formatted: Vec<FsUuid>,
    /// When it last did. For people and monitoring; no rule looks at it.
    #[serde(default)]
    pub formatted_at: Option<Time>,
    /// An intent without its fact.
    pub open_intent: Option<OpenIntent>,
    /// Filesystems on which a fresh start was allowed already.
    pub fresh_allowed: Vec<FsUuid>,
    /// The last identity change seen while the gate was open, not yet adopted.
    pub identity_changed: Option<(ClusterId, MemberId)>,
    /// A person's answer that still stands: newer than every pin and every `HoldsData`.
    pub adoption: Option<Adoption>,
    /// While the answer *this member starts empty* stands: how far the member was that it was said of. Should that one's data
    /// come back instead, and be behind, it is as old as it would be without the answer.
    #[serde(default)]
    pub emptied: Option<HighWater>,
    /// A person has answered since the last pin (`adopt`, `unpin`), whether that answer still stands or not.
    #[serde(default)]
    pub answered: bool,
    /// `.volhold` on this volume speaks of another volume id.
    pub names_other_volume: Option<VolumeId>,
    /// Two ledgers pin different identities at the same time.
    pub pins_contradict: bool,
    /// A person has let the claim go for a while.
    #[serde(default)]
    pub released: Option<Release>,
    /// The ledger of this node was there at all (an empty one is no doubt, a missing one neither).
    pub node_ledger_present: bool,
}

/// How long a person lets the claim go, by both clocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    pub until: Time,
    /// The same moment by the clock of `boot_id`. `None`: an earlier version wrote it, or that clock could not be read.
    pub until_boot: Option<BootMillis>,
    pub said_at: Time,
    pub boot_id: BootId,
}

impl Release {
    /// Does it still stand? In the boot in which it was said the boot's clock decides, which nobody can set. After that the
    /// wall clock does, and where that is behind the moment of the release, it was set back: then nothing says how much of
    /// the time is left, and the claim is taken again.
    pub fn stands(&self, now: Time, boot_id: &BootId, now_boot: Option<BootMillis>) -> bool {
        match (self.until_boot, now_boot) {
            (Some(until), Some(now)) if self.boot_id == *boot_id => now < until,
            (Some(_) | None, Some(_) | None) => self.said_at <= now && now < self.until,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub cluster_id: ClusterId,
    pub member_id: MemberId,
    pub name: Option<String>,
    pub data_dir: String,
    pub fs_uuid: Option<FsUuid>,
    pub at: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenIntent {
    pub fs_uuid: FsUuid,
    pub boot_id: BootId,
    pub diskseq: Option<u64>,
    pub devnum: DevNum,
}
