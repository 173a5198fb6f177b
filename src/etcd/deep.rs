//! The deep reading of one backend file: every page, every element, every record, in one pass.
//!
//! What it adds to [`super::schema`]'s quick reading: a structural check that is a superset of bbolt's own, exact counts, the
//! two hashes of etcd, and where the keys are. Memory is bounded by the number of pages (a bit each) and of keys that were
//! written since the last compaction (16 bytes each); it does not depend on what a length field says.
//!
//! The pass goes through `key` once, forward. Which of a key's records counts for the hash depends on later ones; those
//! behind the last finished compaction are therefore looked through before, backwards. Behind it lies what was written in the
//! last minutes: Kubernetes compacts every five.

mod elements;
mod freelist;
mod hash;
mod keys;
mod prefixes;
mod seen;
mod walk;
mod window;

use super::bolt::tree::{Bucket, Budget, Direction, Flow, Trees};
use super::bolt::{Meta, Metas, PAGE_HEADER, flags, parse_page_header};
use super::read_at::{ReadAt, ReadError, read_up_to};
use super::record;
use super::schema::{BackendError, BackendReading, read_backend};
use crate::model::{BackendDeep, Compaction, ContentKind, FaultKind, HashKv, RecordAt, SnapshotStatus};
use keys::{Backwards, Keys, Marks, Newest};
use walk::Walk;

/// Keys that are followed to see whether their records are in order, where something is out of order.
const ORDER_KEYS: usize = 2_000_000;

/// What a deep reading is asked for.
pub struct DeepQuestion<'a> {
    /// Hash up to this revision; `None`: the newest.
    pub revision: Option<i64>,
    /// As after a compaction up to here, where that is higher than the file's own: members that have compacted to different
    /// revisions give the same hash.
    pub compact: Option<i64>,
    /// Hash only the records up to there, of those that count at `revision`, and list those of exactly that revision here.
    pub until: Option<(i64, &'a mut Vec<RecordAt>)>,
    /// Is told from time to time how many pages were read, of how many at most.
    pub progress: &'a mut dyn FnMut(u64, u64),
}

/// Reads the whole backend. What a quick reading says comes along.
pub fn read_deep(from: &dyn ReadAt, question: DeepQuestion<'_>) -> Result<(BackendReading, BackendDeep), BackendError> {
    let size = from.size().map_err(|source| BackendError::Read(ReadError::Io { offset: 0, len: 0, source }))?;
    let reading = read_backend(from, Budget { bytes: 0, pages: 0 })?;
    let meta = reading.meta;
    let (scheduled, finished) = (reading.scheduled_compact, reading.finished_compact);
    let compaction = Compaction { scheduled, finished, interrupted: scheduled > finished };
    let newest_revision = reading.revision.unwrap_or(i64::MAX);
    let marks = Marks {
        revision: question.revision.unwrap_or(newest_revision),
        compact: scheduled.max(finished).max(question.compact).unwrap_or(-1),
        finished: finished.unwrap_or(-1),
        until: question.until.as_ref().map(|(until, _)| *until),
    };
    let mut whole = true;
    let mut newest = if marks.compact < 0 { None } else { follow(from, &reading, size, marks, &mut whole) };
    let total_pages = meta.high_water;
    let mut walk = Walk::new(from, meta, size);
    let mut tell = |pages: u64| (question.progress)(pages, total_pages);
    let mut keys = Keys::new(marks, newest.as_ref(), &mut tell);
    walk.everything(&mut keys);
    check_metas(from, &reading.metas, &mut walk);
    freelist::check(from, meta, size, &mut walk);

    let structure = walk.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Order | FaultKind::Parent));
    let whole = whole && !keys.key_broken && reading.revision.is_some();
    let mut deep = BackendDeep {
        records: keys.records,
        tombstones: keys.tombstones,
        record_bytes: keys.record_bytes,
        keys: keys.live().filter(|_| whole),
        revision: reading.revision,
        compaction,
        unknown_leases: keys.unknown_leases(),
        content_count: keys.content_count,
        bytes_read: walk.bytes_read(),
        ..BackendDeep::default()
    };
    if whole {
        let (hash, before) = keys.hashes();
        deep.hashkv = Some(HashKv { revision: marks.revision, compact_revision: marks.compact, hash });
        deep.hashkv_before_3_4_34 = Some(before).filter(|before| *before != hash);
    }
    if !keys.any_broken && walk.fault_count == 0 {
        deep.status = Some(SnapshotStatus {
            hash: keys.status_hash(),
            revision: keys.newest_main,
            total_records: keys.total_records,
            total_key: None,
            total_size: meta.size(),
        });
    }
    if let Some((_, listed)) = question.until {
        *listed = std::mem::take(&mut keys.listed);
    }
    let mark = keys.counted(0);
    deep.contents = std::mem::take(&mut keys.contents);
    deep.prefixes = std::mem::replace(&mut keys.prefixes, prefixes::Prefixes::new()).shown();
    drop(keys);
    if whole && deep.keys.is_none() {
        // Versions that contradict themselves do not tell what lives: every key is followed.
        let all = Marks { finished: -1, ..marks };
        let mut room = true;
        newest = follow(from, &reading, size, all, &mut room);
        deep.keys = newest.as_ref().filter(|_| room).map(Newest::live);
    }
    if let Some(status) = &mut deep.status {
        status.total_key = deep.keys.map(|keys| keys.saturating_add(mark));
    }
    if structure {
        let mut room = ORDER_KEYS;
        let mut backwards = Backwards::new(&mut room);
        Walk::new(from, meta, size).everything(&mut backwards);
        if let Some((place, main)) = backwards.found {
            deep.content_count = deep.content_count.saturating_add(1);
            deep.contents.push(crate::model::ContentFault {
                bucket: "key".to_owned(),
                page: place.page,
                offset: place.offset,
                kind: ContentKind::Backwards,
                message: format!(
                    "page {}: revision {main} of a key comes after a later one of the same key",
                    place.page
                ),
            });
        }
    }
    for problem in &reading.problems {
        if problem.kind == super::schema::ProblemKind::Content && !problem.message.starts_with("bucket key:") {
            deep.content_count = deep.content_count.saturating_add(1);
            let bucket = problem.message.strip_prefix("bucket ").and_then(|rest| rest.split(':').next());
            deep.contents.push(crate::model::ContentFault {
                bucket: bucket.unwrap_or_default().to_owned(),
                page: 0,
                offset: problem.offset.unwrap_or(0),
                kind: ContentKind::Value,
                message: problem.message.clone(),
            });
        }
    }
    deep.pages = walk.counts;
    deep.fault_count = walk.fault_count;
    deep.faults = walk.faults;
    Ok((reading, deep))
}

/// The newest revision of every key that was written after the last finished compaction, from the end backwards.
fn follow(from: &dyn ReadAt, reading: &BackendReading, size: u64, marks: Marks, whole: &mut bool) -> Option<Newest> {
    let trees = Trees::new(from, reading.meta, size);
    let mut newest = Newest::default();
    let mut budget = Budget { bytes: u64::MAX, pages: u64::MAX };
    let mut bucket: Option<Bucket> = None;
    let root = trees.walk(&trees.root(), Direction::Forward, &mut budget, &mut |page, item| {
        if item.bucket && item.key == b"key" {
            bucket = Some(trees.bucket(page, item.value)?);
        }
        Ok(Flow::On)
    });
    *whole &= root.is_ok();
    let Some(bucket) = bucket else { return Some(newest) };
    let ended = trees.walk(&bucket, Direction::Backward, &mut budget, &mut |_, item| {
        let (Some(revision), Some(record)) = (record::revision(item.key), record::parse(item.value)) else {
            *whole = false;
            return Ok(Flow::On);
        };
        if revision.main > marks.revision {
            return Ok(Flow::On);
        }
        if revision.main <= marks.finished {
            return Ok(Flow::Stop);
        }
        *whole &= newest.first(record.key, revision.main, revision.tombstone);
        Ok(if *whole { Flow::On } else { Flow::Stop })
    });
    *whole &= ended.is_ok();
    Some(newest)
}

/// A valid meta page stands where its transaction puts it.
fn check_metas(from: &dyn ReadAt, metas: &Metas, walk: &mut Walk<'_>) {
    for (page, meta) in [(0_u64, metas.first), (1, metas.second)] {
        let Ok(Meta { page_size, txid, .. }) = meta else { continue };
        let mut head = [0; PAGE_HEADER];
        let offset = page.saturating_mul(u64::from(page_size));
        // Its content was read a moment ago; that it cannot be any more is told by the walk.
        let got = read_up_to(from, &mut head, offset).unwrap_or(0);
        let Some(header) = parse_page_header(head.get(..got).unwrap_or(&[])) else { continue };
        if header.id != page || header.flags & flags::META == 0 {
            let what = format!("is a meta page that says number {}, type bits {:#06x}", header.id, header.flags);
            walk.fault(page, FaultKind::Meta, what);
        }
        if txid & 1 != page {
            walk.fault(
                page,
                FaultKind::Meta,
                format!("is the meta page of transaction {txid}, which belongs to the other"),
            );
        }
    }
}

#[cfg(test)]
#[path = "deep/tests.rs"]
mod tests;
