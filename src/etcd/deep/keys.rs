//! What the records of a backend add up to: hashes, live keys, prefixes, and records that are not etcd's.

use super::super::bytes::printable;
use super::hash::{Running, Variant};
use super::prefixes::Prefixes;
use super::walk::{Place, Span, Visitor};
use crate::etcd::record::{self, BadRevision};
use crate::model::{ContentFault, ContentKind, RecordAt};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

/// Faults that are listed. All are counted.
const MAX_FAULTS: usize = 100;
/// Records of one revision that are listed. etcd allows 128 in a transaction, unless told otherwise.
const MAX_LISTED: usize = 1000;
/// Bytes of a key that are looked at for showing it.
const MAX_SHOWN: usize = 1024;
/// Lease ids that are remembered.
const MAX_LEASES: usize = 1_000_000;

/// The newest revision of every key whose newest one is above a compaction, up to a revision: `main * 2`, and 1 more for a
/// deletion. 16 bytes a key: keys are told apart by a keyed 64-bit hash.
#[derive(Debug, Default)]
pub(super) struct Newest {
    by_key: HashMap<u64, i64>,
    hasher: RandomState,
}

impl Newest {
    /// More keys than that are not followed; the table for them has 272 MiB.
    pub const MAX: usize = 14_000_000;

    /// `false`: there is no room for more.
    pub fn first(&mut self, key: &[u8], main: i64, tombstone: bool) -> bool {
        if self.by_key.len() >= Self::MAX {
            return false;
        }
        let newest = main.saturating_mul(2).saturating_add(i64::from(tombstone));
        self.by_key.entry(self.hasher.hash_one(key)).or_insert(newest);
        true
    }

    fn get(&self, key: &[u8]) -> Option<i64> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&self.hasher.hash_one(key)).copied()
    }

    pub fn live(&self) -> u64 {
        let live = self.by_key.values().filter(|newest| *newest & 1 == 0).count();
        // No user can write an empty key; `snapshot restore --bump-revision` leaves one as a mark.
        let mark = self.get(b"").is_some_and(|newest| newest & 1 == 0);
        u64::try_from(live).unwrap_or(u64::MAX).saturating_sub(u64::from(mark))
    }

    fn any_live(&self) -> bool {
        self.by_key.values().any(|newest| newest & 1 == 0)
    }
}

/// Where the records stand against the compactions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks {
    /// Hash up to here.
    pub revision: i64,
    /// The larger of scheduled and finished; -1 for none.
    pub compact: i64,
    /// The finished one; -1 for none. Up to here a key has one record at most.
    pub finished: i64,
    /// Only records up to here are hashed; those of exactly this revision are listed.
    pub until: Option<i64>,
}

/// Adds up all records.
pub(super) struct Keys<'m> {
    marks: Marks,
    /// `None`: nothing was ever compacted, so that versions alone say what lives.
    newest: Option<&'m Newest>,
    progress: &'m mut dyn FnMut(u64),
    in_key: bool,
    bucket: Vec<u8>,
    /// The hash of `snapshot status` up to the current bucket.
    total: Running,
    /// Of bucket `key` alone, with all its records.
    all: Running,
    all_bytes: u64,
    up_to: Variant,
    kept: Variant,
    strict: Variant,
    pub total_records: u64,
    pub records: u64,
    pub tombstones: u64,
    pub record_bytes: u64,
    pub newest_main: i64,
    live: i64,
    /// An empty key is there: the mark of a bumped restore.
    marked: bool,
    any_kept: bool,
    /// Versions and times of creation fit together.
    pub consistent: bool,
    /// A record of bucket `key` was left out or could not be read.
    pub key_broken: bool,
    /// A page or element of any bucket was left out.
    pub any_broken: bool,
    pub prefixes: Prefixes,
    leases: HashSet<i64>,
    used_leases: HashSet<i64>,
    pub contents: Vec<ContentFault>,
    pub content_count: u64,
    pub listed: Vec<RecordAt>,
}

impl<'m> Keys<'m> {
    pub fn new(marks: Marks, newest: Option<&'m Newest>, progress: &'m mut dyn FnMut(u64)) -> Self {
        Keys {
            marks,
            newest,
            progress,
            in_key: false,
            bucket: Vec::new(),
            total: Running::default(),
            all: Running::named(b"key"),
            all_bytes: 0,
            up_to: Variant::default(),
            kept: Variant::default(),
            strict: Variant::default(),
            total_records: 0,
            records: 0,
            tombstones: 0,
            record_bytes: 0,
            newest_main: 0,
            live: 0,
            marked: false,
            any_kept: false,
            consistent: true,
            key_broken: false,
            any_broken: false,
            prefixes: Prefixes::new(),
            leases: HashSet::new(),
            used_leases: HashSet::new(),
            contents: Vec::new(),
            content_count: 0,
            listed: Vec::new(),
        }
    }

    /// HashKV as 3.4.34, 3.5.16, 3.6 answer it, and as versions before.
    pub fn hashes(&self) -> (u32, u32) {
        if self.marks.until.is_some() {
            // What is kept further on does not decide about a part.
            let part = self.kept.value(&self.all);
            return (part, part);
        }
        let kept = self.any_kept || self.newest.is_some_and(Newest::any_live);
        let (now, before) = if kept { (&self.kept, &self.kept) } else { (&self.strict, &self.up_to) };
        (now.value(&self.all), before.value(&self.all))
    }

    pub fn status_hash(&self) -> u32 {
        self.total.value()
    }

    /// Live keys, where `newest` or consistent versions tell.
    pub fn live(&self) -> Option<u64> {
        match self.newest {
            Some(newest) => Some(u64::try_from(self.live).ok()?.saturating_add(newest.live())),
            None if self.consistent => u64::try_from(self.live).ok(),
            None => None,
        }
    }

    /// As 3.6 counts them: with the mark.
    pub fn counted(&self, live: u64) -> u64 {
        live.saturating_add(u64::from(self.marked))
    }

    pub fn unknown_leases(&self) -> u64 {
        u64::try_from(self.used_leases.difference(&self.leases).count()).unwrap_or(u64::MAX)
    }

    fn content(&mut self, place: Place, kind: ContentKind, what: String) {
        self.content_count = self.content_count.saturating_add(1);
        if self.contents.len() < MAX_FAULTS {
            let bucket = printable(&self.bucket);
            let message = format!("bucket {bucket}, page {}: {what}", place.page);
            self.contents.push(ContentFault { bucket, page: place.page, offset: place.offset, kind, message });
        }
    }

    /// Looks into a record. `None`: it cannot be read.
    fn record<'p>(
        &mut self,
        place: Place,
        key: &[u8],
        value: &'p [u8],
    ) -> Option<(record::Revision, record::Record<'p>)> {
        let hex = || key.iter().take(20).map(|byte| format!("{byte:02x}")).collect::<String>();
        let Some(revision) = record::revision(key) else {
            self.content(place, ContentKind::RevisionLength, format!("key {} is too short for a revision", hex()));
            return None;
        };
        let main = revision.main;
        match revision.bad {
            None => {}
            Some(BadRevision::Separator) => {
                let what = format!("key {} has no `_` between its numbers", hex());
                self.content(place, ContentKind::RevisionSeparator, what);
            }
            Some(BadRevision::Length) => {
                self.content(place, ContentKind::RevisionLength, format!("key {} is no revision", hex()));
                return None;
            }
            Some(BadRevision::Negative) => {
                self.content(place, ContentKind::RevisionNegative, format!("key {} has a negative number", hex()));
                return None;
            }
        }
        let Some(record) = record::parse(value) else {
            let what = format!("the record at revision {main} is no key-value message");
            self.content(place, ContentKind::Record, what);
            return None;
        };
        if record.nameless(value) {
            let what = format!("the record at revision {main} does not say of which key it is");
            self.content(place, ContentKind::Nameless, what);
            self.consistent = false;
        }
        // A deletion has the key alone, the mark of a bumped restore nothing at all.
        if !revision.tombstone && !value.is_empty() {
            if record.modified != main {
                let what =
                    format!("the record at revision {main} says that it was written at revision {}", record.modified);
                self.content(place, ContentKind::OtherRevision, what);
                self.consistent = false;
            } else if (record.version == 1) != (record.create == main) || record.version < 1 || record.create > main {
                let (version, create) = (record.version, record.create);
                let what = format!("the record at revision {main} is version {version} of a key made at {create}");
                self.content(place, ContentKind::OtherVersion, what);
                self.consistent = false;
            }
        }
        Some((revision, record))
    }

    fn take_key(&mut self, place: Place, page: &[u8], span: Span) {
        let (Some(key), Some(value)) = (page.get(span.key..span.value), page.get(span.value..span.end)) else { return };
        let bytes = u64::try_from(span.end.saturating_sub(span.key)).unwrap_or(u64::MAX);
        self.records = self.records.saturating_add(1);
        self.record_bytes = self.record_bytes.saturating_add(bytes);
        self.all_bytes = self.all_bytes.saturating_add(bytes);
        let Some((revision, record)) = self.record(place, key, value) else {
            self.key_broken = true;
            self.all.take(page, span.key, span.end);
            return;
        };
        let (main, tombstone) = (revision.main, revision.tombstone);
        self.newest_main = self.newest_main.max(main);
        self.tombstones = self.tombstones.saturating_add(u64::from(tombstone));
        let number = self.prefixes.number(record.key);
        self.prefixes.record(number, bytes);
        if record.lease != 0 && self.used_leases.len() < MAX_LEASES {
            self.used_leases.insert(record.lease);
        }
        let in_head = main <= self.marks.finished;
        let newest = self.newest.and_then(|newest| newest.get(record.key));
        let of_user = !record.key.is_empty();
        if !of_user {
            // See `Newest::live`.
            self.marked = !tombstone;
        } else if in_head {
            self.live = self.live.saturating_add(i64::from(!tombstone && newest.is_none()));
            self.prefixes.keys(number, i64::from(!tombstone));
        } else {
            let more = if tombstone { -1 } else { i64::from(record.version == 1) };
            self.prefixes.keys(number, more);
            if self.newest.is_none() {
                self.live = self.live.saturating_add(more);
            }
        }
        let hashed = self.hash(page, span, &revision, newest, in_head);
        if hashed && self.marks.until == Some(main) && self.listed.len() < MAX_LISTED {
            let sum = crc32c::crc32c(page.get(span.key..span.end).unwrap_or(&[]));
            let key = printable(record.key.get(..MAX_SHOWN).unwrap_or(record.key));
            self.listed.push(RecordAt { sub: revision.sub, key, deleted: tombstone, sum });
        }
    }

    /// Says whether the record counts.
    fn hash(
        &mut self,
        page: &[u8],
        span: Span,
        revision: &record::Revision,
        newest: Option<i64>,
        in_head: bool,
    ) -> bool {
        let (main, tombstone) = (revision.main, revision.tombstone);
        let (begin, end) = (span.key, span.end);
        let mut counts = false;
        if main > self.marks.until.unwrap_or(i64::MAX).min(self.marks.revision) {
            for variant in [&mut self.up_to, &mut self.kept, &mut self.strict] {
                variant.close(&mut self.all, page);
            }
        } else if !self.up_to.is_closed() {
            let is_newest = match newest {
                None => in_head,
                Some(newest) => !in_head && newest >> 1 == main,
            };
            let kept = !tombstone && is_newest;
            let after = main > self.marks.compact;
            // With marks, what lives above the finished compaction is asked of `newest` at the end.
            self.any_kept |= if self.newest.is_some() { in_head && kept } else { !tombstone };
            counts = after || kept;
            self.kept.record(&mut self.all, counts, page, begin, end);
            self.strict.record(&mut self.all, !(tombstone && main == self.marks.compact), page, begin, end);
        }
        self.all.take(page, begin, end);
        counts
    }
}

impl Visitor for Keys<'_> {
    fn begin(&mut self, bucket: &[u8]) {
        self.in_key = bucket == b"key";
        self.bucket = bucket.to_vec();
        if !self.in_key {
            self.total.feed(bucket);
        }
    }

    fn item(&mut self, place: Place, page: &[u8], item: Span) {
        self.total_records = self.total_records.saturating_add(1);
        if self.in_key {
            return self.take_key(place, page, item);
        }
        self.total.take(page, item.key, item.end);
        if self.bucket == b"lease"
            && self.leases.len() < MAX_LEASES
            && let Some(id) = page.get(item.key..item.value).and_then(|key| super::super::bytes::i64_be(key, 0))
        {
            self.leases.insert(id);
        }
    }

    fn end_page(&mut self, page: &[u8]) {
        if self.in_key {
            for variant in [&mut self.up_to, &mut self.kept, &mut self.strict] {
                variant.flush(page);
            }
            self.all.flush(page);
        } else {
            self.total.flush(page);
        }
    }

    fn broken(&mut self) {
        self.any_broken = true;
        self.key_broken |= self.in_key;
    }

    fn end(&mut self) {
        if self.in_key {
            // `key` three bytes long, and the records.
            let len = usize::try_from(self.all_bytes.saturating_add(3)).unwrap_or(usize::MAX);
            self.total = Running::joined(&self.total, &self.all, len);
        }
    }

    fn progress(&mut self, pages: u64) {
        (self.progress)(pages);
    }
}

/// Does a later revision of some key stand before an earlier one? etcd rebuilds its index in the order of the file, and
/// panics there (`keyIndex.put`).
pub(super) struct Backwards<'m> {
    in_key: bool,
    hasher: RandomState,
    newest: HashMap<u64, (i64, i64)>,
    pub found: Option<(Place, i64)>,
    room: &'m mut usize,
}

impl<'m> Backwards<'m> {
    pub fn new(room: &'m mut usize) -> Self {
        Backwards { in_key: false, hasher: RandomState::new(), newest: HashMap::new(), found: None, room }
    }
}

impl Visitor for Backwards<'_> {
    fn begin(&mut self, bucket: &[u8]) {
        self.in_key = bucket == b"key";
    }

    fn item(&mut self, place: Place, page: &[u8], item: Span) {
        if !self.in_key || *self.room == 0 || self.found.is_some() {
            return;
        }
        let (Some(key), Some(value)) = (page.get(item.key..item.value), page.get(item.value..item.end)) else { return };
        let (Some(revision), Some(record)) = (record::revision(key), record::parse(value)) else { return };
        let this = (revision.main, revision.sub);
        match self.newest.insert(self.hasher.hash_one(record.key), this) {
            Some(before) if before >= this => self.found = Some((place, revision.main)),
            Some(_) => {}
            None => *self.room = self.room.saturating_sub(1),
        }
    }

    fn end_page(&mut self, _page: &[u8]) {}
    fn broken(&mut self) {}
    fn end(&mut self) {}
}
