//! The facts of one data dir from which any etcd's behaviour at start follows: what is there, told without a version in mind.

use super::{BackendDeep, ContentKind};
use serde::{Deserialize, Serialize};

/// One data dir.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataDirFacts {
    pub member: Thing,
    /// `proxy` is a directory.
    pub proxy: bool,
    pub backend: BackendFile,
    /// Snapshot files by name, newest first.
    pub snapshots: Vec<SnapshotFile>,
    /// Indexes of `.snap.db` files: backends received from a leader.
    pub snapshot_backends: Vec<u64>,
    pub log: LogFacts,
    /// What could not be looked at.
    pub unreadable: Vec<String>,
}

/// What stands at a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Thing {
    #[default]
    Absent,
    /// What belongs there.
    There,
    /// Something else: a file for a directory, a directory or a link for a file.
    Odd,
}

/// The backend, as far as a start depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendFile {
    pub file: Thing,
    /// An etcd writes to it, and it changed each time while it was read: nothing else is told.
    pub unstable: bool,
    /// No bytes: bbolt makes a db of it.
    pub empty: bool,
    pub metas: [MetaState; 2],
    pub page_size: Option<u32>,
    /// A freelist is kept in the file: bbolt then takes that for true, and does not walk over all pages at open.
    pub freelist: bool,
    pub consistent_index: Option<u64>,
    pub revision: Option<i64>,
    pub cluster_version: Option<String>,
    pub storage_version: Option<String>,
    /// Target of a downgrade that is enabled.
    pub downgrade: Option<String>,
    /// Ids in bucket `members`.
    pub members: Vec<u64>,
    /// Whole reading. `None`: no meta page leads anywhere.
    pub deep: Option<BackendDeep>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetaState {
    #[default]
    Absent,
    Valid,
    /// Its checksum is 0, which bbolt before 1.3.7 takes.
    ZeroChecksum,
    Magic,
    Version,
    Checksum,
    PageSize,
}

/// One `.snap` file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotFile {
    /// From its name.
    pub name: (u64, u64),
    /// `None`: its checksum or form is wrong; etcd sets it aside.
    pub good: Option<GoodSnapshot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoodSnapshot {
    pub index: u64,
    pub term: u64,
    /// `/0/version` of its v2 store.
    pub cluster_version: Option<String>,
    /// Users' keys of the v2 API are in it.
    pub custom_v2: bool,
}

/// The log, file by file: each as a reader finds it that begins there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFacts {
    /// Some name ends in `.wal`: etcd takes it for a member that has run.
    pub any: bool,
    /// One of those is no file that can be opened.
    pub broken_name: Option<String>,
    pub files: Vec<LogFile>,
}

/// One file of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFile {
    pub seq: u64,
    /// Index of its first entry, by its name.
    pub index: u64,
    pub size: u64,
    /// Checksum that it carries over from the file before; `None`: it has no record of that kind first.
    pub carries: Option<u32>,
    /// Checksum at its end.
    pub leaves: u32,
    pub records: u64,
    /// Frames with padding: versions before 3.0 read their length wrong.
    pub padded: bool,
    /// Member and cluster.
    pub metadata: Option<(u64, u64)>,
    /// Later metadata in the same file is another.
    pub conflict: bool,
    /// Index and term of its first and last entry.
    pub first: Option<(u64, u64)>,
    pub last: Option<(u64, u64)>,
    /// Entries whose index does not follow the one before.
    pub jump: Option<(u64, u64)>,
    /// Term and commit of the last hard state.
    pub state: Option<(u64, u64)>,
    /// (index, term) of its snapshot records.
    pub snapshots: Vec<(u64, u64)>,
    /// Highest cluster version that an entry sets, with the entry's index.
    pub cluster_version: Option<(u64, String)>,
    /// Index of the last entry of the v2 API that 3.6 refuses: all but a member's attributes and the cluster version.
    pub refused_v2: Option<u64>,
    /// Minor versions of etcd 3 above 0 that its entries need, each with the last index at which one does.
    #[serde(default)]
    pub needs: Vec<(u8, u64)>,
    pub end: LogEnd,
    /// Where.
    pub end_at: u64,
    /// Something other than zeros follows.
    pub more: bool,
}

/// How the reading of a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogEnd {
    /// With the file.
    Whole,
    /// At a length of zero: the rest was allocated ahead.
    Zero,
    /// A record that reaches beyond the file, of a length below 10 MiB.
    Cut,
    /// The same, of 10 MiB or more.
    Length,
    /// A checksum is wrong, or the record does not decode; `torn`: a sector of it is all zeros.
    Bad { torn: bool },
    /// The same, of 10 MiB or more.
    Long { torn: bool },
    /// A carried checksum in the middle of the file contradicts.
    Chain,
    /// A record of no known type, or whose content does not decode.
    Foreign,
}

impl LogFile {
    /// It ends as etcd leaves it, and nothing is missing in between.
    pub fn is_whole(&self) -> bool {
        matches!(self.end, LogEnd::Whole | LogEnd::Zero) && !self.more && self.jump.is_none()
    }
}

impl DataDirFacts {
    /// The least version of etcd that understands every entry behind the newest snapshot (etcd v3.6.12
    /// `server/storage/wal/version.go`): as long as it is above what a downgrade wants, 3.6 does not lower the version of its
    /// storage. `None` without a log.
    pub fn log_version(&self) -> Option<String> {
        let mentioned =
            |good: &&GoodSnapshot| self.log.files.iter().any(|file| file.snapshots.contains(&(good.index, good.term)));
        let good = self.snapshots.iter().filter_map(|file| file.good.as_ref()).filter(mentioned);
        let from = good.map(|good| good.index).max().unwrap_or(0);
        let needs = self.log.files.iter().flat_map(|file| &file.needs);
        let minor = needs.filter(|(_, last)| *last > from).map(|(minor, _)| *minor).max().unwrap_or(0);
        (!self.log.files.is_empty()).then(|| format!("3.{minor}.0"))
    }

    /// Nothing is odd about it. Where something is, and an etcd writes, it may have been half written.
    pub fn is_clean(&self) -> bool {
        let backend = self.backend.deep.as_ref();
        self.unreadable.is_empty()
            && backend.is_some_and(|deep| deep.fault_count == 0 && deep.content_count == 0)
            && self.snapshots.iter().all(|snapshot| snapshot.good.is_some())
            && self.log.broken_name.is_none()
            && self.log.files.iter().all(|file| file.is_whole() && !file.conflict)
    }

    /// Some content that the structure does not guard is wrong.
    pub fn has_content(&self, kind: ContentKind) -> bool {
        self.backend.deep.as_ref().is_some_and(|deep| deep.contents.iter().any(|fault| fault.kind == kind))
    }
}

/// A version of etcd. As text in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EtcdVersion {
    pub major: u64,
    pub minor: u64,
    pub patch: u64,
}

impl EtcdVersion {
    pub const fn new(major: u64, minor: u64, patch: u64) -> Self {
        EtcdVersion { major, minor, patch }
    }

    pub fn at_least(self, major: u64, minor: u64, patch: u64) -> bool {
        self >= EtcdVersion::new(major, minor, patch)
    }
}

impl TryFrom<String> for EtcdVersion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<EtcdVersion> for String {
    fn from(version: EtcdVersion) -> String {
        version.to_string()
    }
}

impl std::fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.patch == u64::MAX {
            return write!(f, "{}.{}", self.major, self.minor);
        }
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl std::str::FromStr for EtcdVersion {
    type Err = String;

    /// `3.5.16`, with or without a `v` before it; `3.5` means the newest of that line.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no version of etcd: write it as 3.5.16 or 3.5");
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let mut number = || parts.next().map(|part| part.parse::<u64>().map_err(|_| wrong())).transpose();
        let (major, minor, patch) = (number()?, number()?, number()?);
        match (major, minor, parts.next()) {
            (Some(major), Some(minor), None) => Ok(EtcdVersion { major, minor, patch: patch.unwrap_or(u64::MAX) }),
            _ => Err(wrong()),
        }
    }
}

/// What an etcd would do with a data dir.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// The version that was asked about.
    pub version: Option<String>,
    pub starts: Starts,
    /// It would start, and acknowledged writes would be gone, or later writes would hang.
    pub loses: bool,
    /// What etcd says, or what to expect.
    pub message: String,
    pub because: Vec<super::ReasonCode>,
    /// The rules that led here: each names what it found, and the file of etcd's source that does it.
    #[serde(default)]
    pub rules: Vec<RuleHit>,
}

/// One rule that applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleHit {
    pub what: String,
    /// Version and file of etcd or bbolt.
    pub source: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Starts {
    Yes,
    No,
    /// The process runs and never serves.
    Unhealthy,
    Unknown,
}

/// One file of etcd, looked at by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "file", rename_all = "kebab-case")]
pub enum EtcdFile {
    /// `member/snap/db`, a `.snap.db`, or what `etcdctl snapshot save` wrote.
    Backend {
        /// The checksum that `snapshot save` puts behind the backend is right. `None`: there is none.
        sha256: Option<bool>,
        backend: Box<BackendFile>,
    },
    /// A file of the log.
    Wal { log: Box<LogFile> },
    /// A `.snap` file.
    Snap { index: u64, term: u64, voters: Vec<super::MemberId>, cluster_version: Option<String>, v2_keys: Option<u64> },
}
