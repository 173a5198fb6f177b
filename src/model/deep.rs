//! What a deep reading of one backend file yields: every page, every record, and the hashes that etcd itself would answer.

use serde::{Deserialize, Serialize};

/// The answer of etcd's `Maintenance.HashKV`, computed from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashKv {
    pub revision: i64,
    pub compact_revision: i64,
    pub hash: u32,
}

/// What is asked of a backend when two of them are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashQuestion {
    /// Hash up to this revision.
    pub revision: i64,
    /// As after a compaction up to here, where that is higher than the backend's own.
    pub compact: i64,
    /// Only the records up to here, of those that count at `revision`; those of exactly this revision are listed.
    pub until: Option<i64>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashAnswer {
    pub hashkv: HashKv,
    /// In the order of the file; a transaction writes several. The first thousand.
    pub records: Vec<RecordAt>,
}

/// One record of a given revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordAt {
    /// Its number within the transaction.
    pub sub: i64,
    /// The first 200 characters.
    pub key: String,
    pub deleted: bool,
    /// CRC-32C of revision and record: whether two of them are the same.
    pub sum: u32,
}

/// Everything that one pass over a backend tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendDeep {
    pub pages: PageCounts,
    /// Records of bucket `key` in the file, older versions of keys and deletions included.
    pub records: u64,
    /// Those of them that are deletions.
    pub tombstones: u64,
    /// Bytes of all those records, keys and values as the file has them.
    pub record_bytes: u64,
    /// Live keys, exactly. `None`: some record cannot be read.
    pub keys: Option<u64>,
    /// Newest revision as a started etcd would report it.
    pub revision: Option<i64>,
    pub compaction: Compaction,
    /// As etcd 3.4.34, 3.5.16, 3.6 and later answer it. `None` where a page or record is broken: no number is better than a
    /// wrong one.
    pub hashkv: Option<HashKv>,
    /// As earlier versions answer it, where that is another number.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hashkv_before_3_4_34: Option<u32>,
    /// What `etcdctl snapshot status` prints.
    pub status: Option<SnapshotStatus>,
    /// Where the keys are: the first two parts of their paths, those with the most bytes first.
    pub prefixes: Vec<PrefixUse>,
    /// Lease ids that records name and bucket `lease` does not have. etcd starts, and never expires those keys.
    pub unknown_leases: u64,
    pub faults: Vec<PageFault>,
    /// All faults, also those beyond the ones that are listed.
    pub fault_count: u64,
    pub contents: Vec<ContentFault>,
    pub content_count: u64,
    /// Bytes that were read to see all this.
    pub bytes_read: u64,
}

/// Pages below the high-water mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCounts {
    pub branch: u64,
    pub leaf: u64,
    /// Pages that belong to the one before.
    pub overflow: u64,
    /// Pages of the freelist, where one is kept.
    pub freelist: u64,
    /// Pages that no tree reaches: the live figure is at most that, for etcd counts what its open transactions still hold.
    pub free: u64,
    /// Inline buckets, which live in another page.
    pub inline: u64,
    pub deepest: u64,
}

/// The two marks of a compaction in bucket `meta`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    pub scheduled: Option<i64>,
    pub finished: Option<i64>,
    /// One was begun and not finished: the first thing that a started etcd does is to go on with it.
    pub interrupted: bool,
}

/// `snapshot status` of a file with this content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotStatus {
    pub hash: u32,
    pub revision: i64,
    /// Records of all buckets: what versions up to 3.5 call totalKey.
    pub total_records: u64,
    /// Live keys: what 3.6 calls totalKey. It counts the mark of a bumped restore, too. `None`: some record cannot be read.
    pub total_key: Option<u64>,
    pub total_size: u64,
}

/// Keys that share the first two parts of their path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixUse {
    pub prefix: String,
    /// Live keys.
    pub keys: u64,
    /// Records, older versions and deletions included.
    pub records: u64,
    pub bytes: u64,
}

/// A page that is not what the tree above it promises.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageFault {
    /// The bucket on whose way it was found; `None` for the root bucket and the freelist.
    pub bucket: Option<String>,
    pub page: u64,
    /// Byte offset in the file.
    pub offset: u64,
    pub kind: FaultKind,
    /// One sentence: what is there, and what was expected.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The kernel did not give the bytes.
    Unreadable,
    /// A pointer leads to a meta page, or to the high-water mark or beyond.
    OutOfBounds,
    /// The page lies behind the end of the file.
    BeyondFile,
    /// The page says that it is another one.
    OtherId,
    /// The same, and that other page is in use too, or cannot be.
    OtherIdInUse,
    /// Neither branch nor leaf.
    Type,
    /// More further pages than any record needs.
    Run,
    EmptyBranch,
    /// An element reaches out of its page, or into the list of elements.
    Element,
    /// Keys not in order within the page.
    Order,
    /// Keys that do not belong below the parent.
    Parent,
    /// Reached by two pointers, or by a loop.
    Twice,
    Depth,
    /// The value of a bucket is too short.
    BucketValue,
    /// The page inside a bucket's value is none.
    Inline,
    /// A bucket within a bucket, or a plain key among the buckets: etcd makes none.
    Nested,
    /// The freelist is no freelist.
    Freelist,
    /// Free twice.
    FreeTwice,
    /// Free, and in use.
    FreeButUsed,
    /// Neither free nor in use.
    Lost,
    /// A meta page's number or transaction is not that of its place.
    Meta,
}

/// A record that is not etcd's, on a page that is sound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentFault {
    pub bucket: String,
    pub page: u64,
    pub offset: u64,
    pub kind: ContentKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContentKind {
    /// A key of bucket `key` that is not 17 or 18 bytes long, or whose last byte is no deletion mark.
    RevisionLength,
    /// Its ninth byte is not `_`: etcd 3.6 panics, earlier versions do not look.
    RevisionSeparator,
    /// A negative number in it.
    RevisionNegative,
    /// The value is no `mvccpb.KeyValue`: every etcd stops.
    Record,
    /// The value names no key: every etcd starts, and serves it under an empty one.
    Nameless,
    /// The value names another revision than its key does.
    OtherRevision,
    /// Its count of versions and its time of creation contradict each other.
    OtherVersion,
    /// A later revision of a key stands before an earlier one: etcd panics.
    Backwards,
    /// A value of a small bucket that etcd cannot read.
    Value,
}
