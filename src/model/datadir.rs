//! What was found in etcd data dirs: the facts behind the start verdict, and the stable `fingerprint` of the contract.

use super::{ClusterId, FsUuid, MemberId, Observed, Time, VolumeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that one look at a mounted volume yields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeReading {
    /// Every data dir found, in order of path.
    pub data_dirs: Vec<DataDirReport>,
    /// Which dir etcd would use, and who says so. `None`: nobody names one, and there is not exactly one candidate.
    #[serde(default)]
    pub selected: Option<Selection>,
    /// etcd-manager's `state`, where the volume has one.
    pub manager_state: Option<Observed<EtcdManagerState>>,
    /// Parts of the tree that could not be looked at. Any of these is a reason to hold.
    pub unreadable: Vec<String>,
    /// Parts of the tree that were not looked at because a bound of ours was met: nothing is wrong with them, and nothing is
    /// known of them.
    #[serde(default)]
    pub beyond: Vec<String>,
    /// Names at the root of the volume besides `lost+found` and `.volhold`, at most 20: "empty" is to be shown, not believed.
    pub root_entries: Vec<String>,
    /// What stands where each directory that is to be published should be; empty where the whole volume is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<PublishSource>,
}

/// A directory of the volume that is to be published, as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishSource {
    /// Relative to the volume's root.
    pub from: String,
    pub kind: Observed<SourceKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    Directory,
    Missing,
    /// A symbolic link, itself or on the way to it.
    Link,
    NotADirectory,
}

/// The data dir that would be started. It is named here even when it is not there: then no report has the role `selected`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Relative to the volume's root.
    pub path: String,
    pub by: SelectedBy,
    /// The directory is there. `false` is told apart from "could not be looked at", which is in `unreadable`.
    pub exists: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelectedBy {
    /// `data_dir` of the guard's configuration.
    Config,
    /// The cluster token in etcd-manager's `state`.
    State,
    /// Nobody names one, and it is the only candidate.
    OnlyOne,
}

/// One data dir (the directory that holds `member`, or would).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataDirReport {
    /// Relative to the volume's root; `.` for the root itself.
    pub path: String,
    pub role: DirRole,
    /// Who laid it out: `etcd`, `kops-etcd-manager`, `kops-legacy`, `k3s`, …
    pub layout: String,
    pub etcd: EtcdGeneration,
    /// It holds, or held, something: a live key, or v2 data. `false` for a dir that a bootstrap just made.
    pub populated: bool,
    pub fingerprint: Option<Fingerprint>,
    pub defects: Vec<Defect>,
    /// Somebody holds the lock on its backend or WAL (`/proc/locks`).
    pub locked_by: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirRole {
    /// The one that configuration or etcd-manager's `state` names.
    Selected,
    /// Could be started by somebody.
    Candidate,
    /// Put away by somebody under a name that says so (`data-trashcan`, `etcd-old`, `*.bak`, quarantine).
    Archive,
    /// Laid out by a tool of earlier days (`var/etcd/data`).
    Legacy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EtcdGeneration {
    #[serde(rename = "2")]
    V2,
    #[serde(rename = "3")]
    V3,
    /// A `member` dir without content.
    #[serde(rename = "empty")]
    Empty,
    /// Not a data dir.
    #[serde(rename = "none")]
    None,
}

/// Identity, progress and content of one data dir, as `contract.md` names the fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub cluster_id: Option<ClusterId>,
    pub member_id: Option<MemberId>,
    pub name: Option<String>,
    pub peer_urls: Vec<String>,
    pub members: Vec<Member>,
    pub removed_members: Vec<MemberId>,
    pub raft: RaftProgress,
    pub consistent_index: Option<u64>,
    /// Of the backend file; what the WAL holds beyond is in `unapplied`.
    pub revision: Option<i64>,
    pub compact_revision: Option<i64>,
    /// Live keys; capped in a quick reading, see `keys_capped`.
    pub keys: Option<u64>,
    /// `keys` stopped at the cap: "at least".
    #[serde(default)]
    pub keys_capped: bool,
    pub leases: Option<u64>,
    pub alarms: Vec<String>,
    pub auth_enabled: Option<bool>,
    /// Of a deep reading: what the member itself would answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hashkv: Option<super::HashKv>,
    pub storage_version: Option<String>,
    pub cluster_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub downgrade: Option<String>,
    pub backend: Option<BackendFacts>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub v2: Option<V2Facts>,
    pub unapplied: Option<Unapplied>,
    /// Of a deep reading: the least version of etcd that understands the log from the newest snapshot on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub log_version: Option<String>,
    /// Index of the last request of the v2 API behind the newest snapshot that etcd 3.6 refuses to start on: all but a
    /// member's attributes and the cluster version.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub v2_request: Option<u64>,
    /// Members that are learners in the backend and voters in the v2 store: etcd 3.5.1 to 3.5.19 keep a promotion in the one
    /// only (etcd issue 19557).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub promoted: Vec<MemberId>,
    pub place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub id: MemberId,
    pub name: String,
    pub peer_urls: Vec<String>,
    /// Empty until the member has run: names prove nothing, these do.
    pub client_urls: Vec<String>,
    pub learner: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftProgress {
    pub term: Option<u64>,
    pub commit: Option<u64>,
    pub first_index: Option<u64>,
    /// The larger of the last entry's index and the newest WAL snapshot record's: a member that has just received the
    /// leader's snapshot has no entries yet.
    pub last_index: Option<u64>,
    /// Index of the newest snapshot record in the WAL.
    pub snapshot_index: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendFacts {
    pub page_size: u32,
    /// High-water mark times page size: what etcd calls dbSize, not the file's length.
    pub size: u64,
    pub size_in_use: Option<u64>,
    pub txid: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct V2Facts {
    /// User keys of the v2 store, where counted.
    pub keys: Option<u64>,
}

/// WAL entries beyond the backend's consistent index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unapplied {
    pub entries: u64,
    pub first: u64,
    pub last: u64,
    /// How many of them ask for what ([`EntryKind`]), as far as they were read. A word that this version does not know
    /// comes from another version's record.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<String, u64>,
}

/// What an entry of the log asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// Nothing: a new leader begins with one.
    Empty,
    Put,
    DeleteRange,
    /// Which of its writes happen is known only by applying it.
    Txn,
    /// A read that had to be ordered among the writes.
    Range,
    Compaction,
    /// Granted, revoked, or its rest of time kept.
    Lease,
    Alarm,
    /// Users, roles, and who may log in.
    Auth,
    ClusterVersion,
    /// A member added, removed, changed or promoted, or its name and client URLs.
    Membership,
    Downgrade,
    /// A request of the v2 API.
    V2,
    /// It could not be read, or is of a kind that this version does not know.
    Unknown,
}

impl EntryKind {
    /// As it stands in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            EntryKind::Empty => "empty",
            EntryKind::Put => "put",
            EntryKind::DeleteRange => "delete-range",
            EntryKind::Txn => "txn",
            EntryKind::Range => "range",
            EntryKind::Compaction => "compaction",
            EntryKind::Lease => "lease",
            EntryKind::Alarm => "alarm",
            EntryKind::Auth => "auth",
            EntryKind::ClusterVersion => "cluster-version",
            EntryKind::Membership => "membership",
            EntryKind::Downgrade => "downgrade",
            EntryKind::V2 => "v2",
            EntryKind::Unknown => "unknown",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub fs_uuid: Option<FsUuid>,
    pub volume_id: Option<VolumeId>,
    /// Inode of the data dir.
    pub inode: Option<u64>,
    /// Birth time of `member`, where the filesystem keeps it.
    pub born_at: Option<Time>,
    /// Whose the dir, its directories and its backend are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<FileOwner>,
    /// What is free on the filesystem, where that could be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Free>,
}

/// Whose a directory or file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOwner {
    /// Relative to the data dir; `.` is the dir.
    pub path: String,
    pub uid: u32,
    pub gid: u32,
    /// The lower twelve bits.
    pub mode: u32,
    pub directory: bool,
}

/// What a filesystem has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Free {
    /// In bytes, what is set aside for root included.
    pub bytes: u64,
    /// `None`: it makes inodes as it needs them.
    pub inodes: Option<u64>,
}

/// Something wrong in a data dir.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defect {
    pub code: String,
    pub severity: Severity,
    /// Relative to the data dir.
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub offset: Option<u64>,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Info,
    Warning,
    /// etcd would not start, or would lose something.
    Damage,
}

/// etcd-manager's `state` file (`EtcdState` of its `etcdapi.proto`). A file of no bytes is valid: all fields default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdManagerState {
    /// The file has no bytes: etcd-manager was told to stop this node's etcd.
    pub empty: bool,
    pub new_cluster: bool,
    pub cluster_token: Option<String>,
    pub etcd_version: Option<String>,
    pub quarantined: bool,
    pub nodes: Vec<EtcdManagerNode>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdManagerNode {
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
}
