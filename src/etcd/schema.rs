//! What the buckets of etcd's backend mean (etcd v3.6.12 `server/storage/schema/*`; v3.4 `mvcc/kvstore.go`,
//! `etcdserver/api/membership/store.go`).
//!
//! | bucket | key → value |
//! |---|---|
//! | `key` | revision → `mvccpb.KeyValue` |
//! | `meta` | `consistent_index` u64 BE, `term` u64 BE (3.5), `scheduledCompactRev`, `finishedCompactRev`: revisions, `storageVersion` (3.6) |
//! | `members`, `members_removed` | id in unpadded hex → JSON, `removed` |
//! | `cluster` | `clusterVersion` text, `downgrade` JSON (3.5) |
//! | `lease`, `alarm`, `auth` | u64 BE, `AlarmMember`, `authEnabled` |
//!
//! One broken bucket does not hide the others: what could be read is returned beside the problems.

use super::bolt::tree::{Bucket, Budget, Direction, Ended, Flow, Item, PageDefect, TreeError, Trees};
use super::bolt::{Meta, Metas, read_metas};
use super::bytes::{i64_be, printable, u64_be};
use super::proto::AlarmMember;
use super::read_at::{ReadAt, ReadError};
use super::record;
use crate::model::{Member, MemberId};
use prost::Message;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};

/// Live keys are counted exactly up to here, and are "at least this many" beyond.
pub const KEY_CAP: u64 = 10_000;
/// How many different keys the count remembers at most (16 bytes each).
const MAX_SEEN: usize = 1_000_000;
/// What the small buckets may cost, each.
const SMALL_BUCKET_MIB: u64 = 16;
/// etcd has about a dozen buckets; more than that is no backend of etcd.
const MAX_BUCKETS: usize = 256;

/// Something wrong in the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    pub offset: Option<u64>,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The kernel did not give the bytes.
    Unreadable,
    /// A page on the way is wrong.
    Page,
    /// The page is sound, what it holds is not etcd's.
    Content,
}

/// What one reading of a backend yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendReading {
    pub metas: Metas,
    pub meta: Meta,
    pub consistent_index: Option<u64>,
    pub term: Option<u64>,
    /// Newest revision as a started etcd would report it; 1 for an empty store. `None` when the way to it is broken.
    pub revision: Option<i64>,
    /// Last compaction as a started etcd would report it; -1 when there never was one.
    pub compact_revision: Option<i64>,
    /// The two marks of a compaction, where bucket `meta` has them.
    pub scheduled_compact: Option<i64>,
    pub finished_compact: Option<i64>,
    pub keys: Option<u64>,
    pub keys_capped: bool,
    pub leases: Option<u64>,
    pub alarms: Vec<String>,
    pub auth_enabled: Option<bool>,
    pub members: Vec<Member>,
    pub removed: Vec<MemberId>,
    pub cluster_version: Option<String>,
    pub storage_version: Option<String>,
    pub downgrade: Option<String>,
    pub problems: Vec<Problem>,
}

/// Why a backend could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("the backend cannot be read")]
    Read(#[source] ReadError),
    #[error("the backend has no bytes")]
    Empty,
    /// Neither meta page is valid.
    #[error("neither meta page is valid (the first: {first}; the second: {second})",
        first = describe(&.0.first), second = describe(&.0.second))]
    NoMeta(Metas),
}

fn describe(meta: &Result<Meta, super::bolt::MetaDefect>) -> String {
    match meta {
        Ok(meta) => format!("valid, txid {}", meta.txid),
        Err(defect) => defect.to_string(),
    }
}

/// A revision: `main i64 BE | '_' | sub i64 BE`, and `t` behind it for a deletion (`mvcc/revision.go`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision {
    pub main: i64,
    pub sub: i64,
    pub tombstone: bool,
}

/// `None`: not a revision key (length, separator, sign or mark are wrong; etcd 3.6 panics on such a key).
pub fn parse_revision(key: &[u8]) -> Option<Revision> {
    let tombstone = match key.len() {
        17 => false,
        18 if key.get(17) == Some(&b't') => true,
        _ => return None,
    };
    let (main, sub) = (i64_be(key, 0)?, i64_be(key, 9)?);
    (key.get(8) == Some(&b'_') && main >= 0 && sub >= 0).then_some(Revision { main, sub, tombstone })
}

/// Reads the backend. `count` is what the walk over `key` may cost; when it ends before the count does, the count is a
/// lower bound.
pub fn read_backend(from: &dyn ReadAt, count: Budget) -> Result<BackendReading, BackendError> {
    let size = from.size().map_err(|source| BackendError::Read(ReadError::Io { offset: 0, len: 0, source }))?;
    if size == 0 {
        return Err(BackendError::Empty);
    }
    let metas = read_metas(from).map_err(BackendError::Read)?;
    let meta = metas.newest().ok_or(BackendError::NoMeta(metas))?;
    let trees = Trees::new(from, meta, size);
    let mut reading = BackendReading {
        metas,
        meta,
        consistent_index: None,
        term: None,
        revision: None,
        compact_revision: None,
        scheduled_compact: None,
        finished_compact: None,
        keys: None,
        keys_capped: false,
        leases: None,
        alarms: Vec::new(),
        auth_enabled: None,
        members: Vec::new(),
        removed: Vec::new(),
        cluster_version: None,
        storage_version: None,
        downgrade: None,
        problems: Vec::new(),
    };
    if let Err(error) = trees.check_freelist() {
        reading.problems.push(problem("freelist", &error));
    }
    let buckets = match buckets(&trees) {
        Ok(buckets) => buckets,
        Err(error) => {
            reading.problems.push(problem("root bucket", &error));
            return Ok(reading);
        }
    };
    let mut small = |name: &str, take: &mut dyn FnMut(&mut BackendReading, Item<'_>) -> Option<String>| -> bool {
        let Some(bucket) = buckets.get(name.as_bytes()) else { return true };
        let mut budget = Budget::mib(SMALL_BUCKET_MIB);
        let mut wrong = None;
        let ended = trees.walk(bucket, Direction::Forward, &mut budget, &mut |page, item| {
            if let Some(what) = take(&mut reading, item) {
                wrong = Some((trees.offset(page), what));
                return Ok(Flow::Stop);
            }
            Ok(Flow::On)
        });
        match (ended, wrong) {
            (Ok(_), Some((offset, what))) => {
                let message = format!("bucket {name}: {what}");
                let offset = (offset > 0).then_some(offset);
                reading.problems.push(Problem { kind: ProblemKind::Content, offset, message });
                false
            }
            (Ok(ended), None) => ended == Ended::Complete,
            (Err(error), _) => {
                reading.problems.push(problem(name, &error));
                false
            }
        }
    };
    let (mut scheduled, mut finished) = (None, None);
    let meta_whole = small("meta", &mut |reading, item| meta_item(reading, item, &mut scheduled, &mut finished));
    small("members", &mut member_item);
    small("members_removed", &mut |reading, item| match hex_id(item.key) {
        Some(id) => {
            reading.removed.push(id);
            None
        }
        None => Some(format!("key `{}` is no member id", printable(item.key))),
    });
    small("cluster", &mut cluster_item);
    small("alarm", &mut alarm_item);
    let auth_whole = small("auth", &mut |reading, item| {
        if item.key == b"authEnabled" {
            reading.auth_enabled = Some(item.value == [1]);
        }
        None
    });
    let mut leases = 0_u64;
    let lease_whole = small("lease", &mut |_, _| {
        leases = leases.saturating_add(1);
        None
    });
    reading.leases = lease_whole.then_some(leases);
    if auth_whole && reading.auth_enabled.is_none() {
        reading.auth_enabled = Some(false);
    }
    (reading.scheduled_compact, reading.finished_compact) = (scheduled, finished);
    if meta_whole {
        // A compaction that was begun is resumed by the first etcd that starts.
        reading.compact_revision = Some(finished.max(scheduled).unwrap_or(-1));
    }
    let newest = match buckets.get(&b"key"[..]) {
        Some(bucket) => count_keys(&trees, bucket, count, &mut reading),
        None => {
            if reading.consistent_index.unwrap_or(0) > 0 {
                let message = "there is a consistent index but no bucket `key`".to_owned();
                reading.problems.push(Problem { kind: ProblemKind::Content, offset: None, message });
                None
            } else {
                reading.keys = Some(0);
                Some(1)
            }
        }
    };
    // mvcc/kvstore.go restore: a compaction marks revisions as used whose records are gone.
    reading.revision =
        newest.filter(|_| meta_whole).map(|main| main.max(scheduled.unwrap_or(1)).max(finished.unwrap_or(1)));
    Ok(reading)
}

/// The consistent index alone, as of now: for the checks that must not compare an old backend with a new log.
pub fn read_consistent_index(from: &dyn ReadAt) -> Result<Option<(u64, u64)>, BackendError> {
    let reading = read_backend(from, Budget { bytes: 0, pages: 0 })?;
    Ok(reading.consistent_index.map(|index| (reading.meta.txid, index)))
}

fn buckets(trees: &Trees<'_>) -> Result<BTreeMap<Vec<u8>, Bucket>, TreeError> {
    let mut found = BTreeMap::new();
    trees.walk(&trees.root(), Direction::Forward, &mut Budget::mib(SMALL_BUCKET_MIB), &mut |page, item| {
        if item.bucket {
            found.insert(item.key.to_vec(), trees.bucket(page, item.value)?);
        }
        Ok(if found.len() < MAX_BUCKETS { Flow::On } else { Flow::Stop })
    })?;
    Ok(found)
}

/// Walks `key` from its newest record back. Returns the newest main revision (1 for none), `None` when the way is broken.
///
/// Going back, the first record of a key is its newest one: it is live unless that is a tombstone.
fn count_keys(trees: &Trees<'_>, bucket: &Bucket, mut budget: Budget, reading: &mut BackendReading) -> Option<i64> {
    let mut newest = None;
    let mut seen: HashSet<(u64, u64)> = HashSet::new();
    let (one, two) = (RandomState::new(), RandomState::new());
    let mut live = 0_u64;
    let mut enough = false;
    let mut wrong = None;
    // The way to the newest record is read whatever the count may cost.
    let no_count = budget.bytes == 0;
    if no_count {
        budget = Budget::mib(64);
    }
    let ended = trees.walk(bucket, Direction::Backward, &mut budget, &mut |page, item| {
        let Some(revision) = parse_revision(item.key) else {
            wrong = Some((page, format!("key {} is no revision", hex(item.key))));
            return Ok(Flow::Stop);
        };
        let Some(record) = record::parse(item.value) else {
            wrong = Some((page, format!("the record at revision {} is no key-value message", revision.main)));
            return Ok(Flow::Stop);
        };
        if record.nameless(item.value) {
            wrong = Some((page, format!("the record at revision {} does not say of which key it is", revision.main)));
            return Ok(Flow::Stop);
        }
        let key = record.key;
        newest = newest.or(Some(revision.main));
        // No user can write an empty key; `snapshot restore --bump-revision` leaves one as a mark.
        let of_user = !key.is_empty() && !revision.tombstone;
        if seen.insert((one.hash_one(key), two.hash_one(key))) && of_user {
            live = live.saturating_add(1);
        }
        enough = live >= KEY_CAP || seen.len() >= MAX_SEEN;
        Ok(if enough || no_count { Flow::Stop } else { Flow::On })
    });
    match (ended, wrong) {
        (_, Some((page, what))) => {
            let offset = Some(trees.offset(page)).filter(|offset| *offset > 0);
            reading.problems.push(Problem {
                kind: ProblemKind::Content,
                offset,
                message: format!("bucket key: {what}"),
            });
        }
        (Err(error), None) => reading.problems.push(problem("key", &error)),
        (Ok(_), None) if no_count => {}
        (Ok(ended), None) => {
            reading.keys = Some(live);
            reading.keys_capped = enough || ended == Ended::Budget;
            if ended == Ended::Budget && newest.is_none() {
                reading.keys = None;
                return None;
            }
            return Some(newest.unwrap_or(1));
        }
    }
    if no_count && reading.problems.is_empty() { Some(newest.unwrap_or(1)) } else { newest }
}

fn meta_item(
    reading: &mut BackendReading,
    item: Item<'_>,
    scheduled: &mut Option<i64>,
    finished: &mut Option<i64>,
) -> Option<String> {
    let name = printable(item.key);
    let number = || u64_be(item.value, 0).filter(|_| item.value.len() == 8);
    let revision = || parse_revision(item.value).map(|revision| revision.main);
    let target: Option<String> = match item.key {
        b"consistent_index" => match number() {
            Some(index) => {
                reading.consistent_index = Some(index);
                None
            }
            None => Some(name),
        },
        b"term" => match number() {
            Some(term) => {
                reading.term = Some(term);
                None
            }
            None => Some(name),
        },
        b"scheduledCompactRev" => match revision() {
            Some(main) => {
                *scheduled = Some(main);
                None
            }
            None => Some(name),
        },
        b"finishedCompactRev" => match revision() {
            Some(main) => {
                *finished = Some(main);
                None
            }
            None => Some(name),
        },
        b"storageVersion" => {
            reading.storage_version = Some(printable(item.value));
            None
        }
        _ => None,
    };
    target.map(|name| format!("{name} has the value {}", hex(item.value)))
}

/// The JSON that etcd keeps for a member (`membership.Member`).
#[derive(serde::Deserialize)]
struct MemberJson {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Option<Vec<String>>,
    #[serde(default, rename = "clientURLs")]
    client_urls: Option<Vec<String>>,
    #[serde(default, rename = "isLearner")]
    learner: bool,
}

fn member_item(reading: &mut BackendReading, item: Item<'_>) -> Option<String> {
    let Some(id) = hex_id(item.key) else {
        return Some(format!("key `{}` is no member id", printable(item.key)));
    };
    match serde_json::from_slice::<MemberJson>(item.value) {
        Ok(json) => {
            reading.members.push(Member {
                id,
                name: json.name,
                peer_urls: json.peer_urls.unwrap_or_default(),
                client_urls: json.client_urls.unwrap_or_default(),
                learner: json.learner,
            });
            None
        }
        Err(error) => Some(format!("member {id} is no member's JSON: {error}")),
    }
}

#[derive(serde::Deserialize)]
struct DowngradeJson {
    #[serde(default, rename = "target-version")]
    target: String,
    #[serde(default)]
    enabled: bool,
}

fn cluster_item(reading: &mut BackendReading, item: Item<'_>) -> Option<String> {
    match item.key {
        b"clusterVersion" => reading.cluster_version = Some(printable(item.value)),
        b"downgrade" => match serde_json::from_slice::<DowngradeJson>(item.value) {
            Ok(json) => reading.downgrade = json.enabled.then_some(json.target),
            Err(error) => return Some(format!("downgrade is no downgrade's JSON: {error}")),
        },
        _ => {}
    }
    None
}

fn alarm_item(reading: &mut BackendReading, item: Item<'_>) -> Option<String> {
    match AlarmMember::decode(item.key) {
        Ok(alarm) => {
            let name = match alarm.alarm {
                1 => "NOSPACE".to_owned(),
                2 => "CORRUPT".to_owned(),
                other => format!("ALARM-{other}"),
            };
            if !reading.alarms.contains(&name) && reading.alarms.len() < 100 {
                reading.alarms.push(name);
            }
            None
        }
        Err(error) => Some(format!("key {} is no alarm: {error}", hex(item.key))),
    }
}

fn hex_id(key: &[u8]) -> Option<MemberId> {
    let text = std::str::from_utf8(key).ok()?;
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())).then(|| text.parse().ok())?
}

fn hex(bytes: &[u8]) -> String {
    let mut text: String = bytes.iter().take(24).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > 24 {
        text.push('…');
    }
    text
}

fn problem(bucket: &str, error: &TreeError) -> Problem {
    match error {
        TreeError::Read { page, source: source @ ReadError::Io { offset, .. } } => Problem {
            kind: ProblemKind::Unreadable,
            offset: Some(*offset),
            message: format!("bucket {bucket}: page {page} cannot be read: {source}"),
        },
        // The file ends where a page should be: it shrank after its size was taken, or was cut.
        TreeError::Read { page, source: source @ ReadError::Short { offset, .. } } => Problem {
            kind: ProblemKind::Page,
            offset: Some(*offset),
            message: format!("bucket {bucket}: page {page} is cut: {source}"),
        },
        TreeError::Page { page, offset, what } => {
            let place = match what {
                PageDefect::Inline { .. } => "inline page".to_owned(),
                PageDefect::OutOfBounds { .. }
                | PageDefect::BeyondFile { .. }
                | PageDefect::OtherId { .. }
                | PageDefect::Type { .. }
                | PageDefect::Run { .. }
                | PageDefect::EmptyBranch
                | PageDefect::Element { .. }
                | PageDefect::Order { .. }
                | PageDefect::Parent
                | PageDefect::Twice
                | PageDefect::Depth
                | PageDefect::BucketValue => format!("page {page}"),
            };
            Problem {
                kind: ProblemKind::Page,
                offset: (*offset > 0).then_some(*offset),
                message: format!("bucket {bucket}: {place} {what}"),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;

    fn key(main: i64, sub: i64) -> Vec<u8> {
        [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()].concat()
    }

    #[test]
    fn revision_keys_are_read_and_all_others_refused() {
        assert_eq!(parse_revision(&key(54, 2)), Some(Revision { main: 54, sub: 2, tombstone: false }));
        let mut tombstone = key(54, 2);
        tombstone.push(b't');
        assert_eq!(parse_revision(&tombstone), Some(Revision { main: 54, sub: 2, tombstone: true }));
        tombstone.push(b't');
        assert_eq!(parse_revision(&tombstone), None, "19 bytes");
        assert_eq!(parse_revision(&key(54, 2)[..16]), None, "16 bytes");
        assert_eq!(
            parse_revision(&[&54_i64.to_be_bytes()[..], b"-", &2_i64.to_be_bytes()].concat()),
            None,
            "separator"
        );
        assert_eq!(parse_revision(&key(-1, 0)), None, "negative");
        assert_eq!(parse_revision(&[&key(1, 0)[..], b"x"].concat()), None, "mark");
    }
}
