//! The write-ahead log (`member/wal/%016x-%016x.wal` = sequence number, index of the first entry).
//!
//! Every record but those of type crc feeds one running CRC-32C that goes on from file to file; each file begins with the
//! value carried over, then the metadata, then the hard state (etcd v3.6.12 `server/storage/wal/wal.go`). Entries may be
//! overwritten: an entry with index i takes the place of all that came with i and later.
//!
//! A quick reading follows the chain through as many of the last files as its budget allows, and at least through the last
//! one; of files before that only the head is read. What etcd itself would do with a damaged record (cut it off, or refuse)
//! decides between warning and damage.

pub mod frame;

pub use frame::{SegmentHead, looks_like_segment};

use super::defects::Code;
use super::entry;
use super::proto::{HardState, InternalRaftRequest, RaftEntry, V2Request, WalMetadata, WalSnapshot};
use super::read_at::{ReadAt, ReadError, read_up_to};
use crate::model::{Defect, EntryKind};
use frame::{Frame, Frames};
use prost::Message;
use std::collections::VecDeque;

/// Snapshot records remembered; etcd makes one every 10,000 entries or more, and keeps few files.
const MAX_SNAPSHOTS: usize = 10_000;
const MAX_JUMPS: usize = 16;
/// Entries that the backend has not applied and whose kind is remembered. etcd commits after 10,000 at the latest.
const MAX_UNAPPLIED: usize = 1 << 20;
/// Bytes of log read beyond the budget to see what the backend has not applied.
const MAX_FORCED: u64 = 512 << 20;

/// One file of the log.
pub struct Segment {
    /// For messages, relative to the data dir.
    pub path: String,
    pub seq: u64,
    /// Index that its first entry has.
    pub index: u64,
    pub source: Box<dyn ReadAt>,
}

/// Sequence number and first index out of a file name. As etcd's `Sscanf("%016x-%016x.wal")`, which takes shorter numbers.
pub fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (seq, index) = name.strip_suffix(".wal")?.split_once('-')?;
    let number = |text: &str| {
        let fits = (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        fits.then(|| u64::from_str_radix(text, 16).ok())?
    };
    Some((number(seq)?, number(index)?))
}

/// What to look for while reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct WalQuestion {
    /// Writes of the v3 API matter after this index (what the backend has applied).
    pub v3_after: u64,
    /// Writes of the v2 API matter after this index (what the newest snapshot holds).
    pub v2_after: u64,
    /// Bytes of files that may be read in full; the last file is, whatever it has.
    pub budget: u64,
}

/// What the log says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WalReading {
    pub node_id: Option<u64>,
    pub cluster_id: Option<u64>,
    /// Index of the first entry that the log can still hold.
    pub first_index: Option<u64>,
    /// Index and term of the last entry that was read.
    pub last_entry: Option<(u64, u64)>,
    /// Index of the last entry before the part that was read, as the first file's name says. A file that was just begun has
    /// no entry yet.
    pub base: u64,
    pub hard_state: Option<HardState>,
    /// (index, term) of snapshot records, oldest first.
    pub snapshots: VecDeque<(u64, u64)>,
    /// Frames with padding were seen: etcd 3 wrote here.
    pub written_by_v3: bool,
    /// A write of the v3 API after [`WalQuestion::v3_after`] that makes a key.
    pub unapplied_put: bool,
    /// What the entries after [`WalQuestion::v3_after`] ask for, in their order; [`MAX_UNAPPLIED`] of them at most.
    pub unapplied: Vec<EntryKind>,
    /// A write of the v2 API after [`WalQuestion::v2_after`] that makes a user's key.
    pub unapplied_v2_put: bool,
    /// Index of the last entry after [`WalQuestion::v2_after`] that etcd 3.6 refuses ([`entry::refused_v2`]).
    pub refused_v2: Option<u64>,
    /// The chain was followed to the end of the last file (a torn tail is an end).
    pub whole: bool,
    pub defects: Vec<Defect>,
}

impl WalReading {
    /// The larger of the last entry's index and the newest snapshot record's.
    pub fn last_index(&self) -> Option<u64> {
        let snapshot = self.snapshots.iter().map(|(index, _)| *index).max().filter(|index| *index > 0);
        self.last_entry_index().max(snapshot)
    }

    /// Index of the last entry.
    pub fn last_entry_index(&self) -> Option<u64> {
        self.last_entry.map(|(index, _)| index).or(Some(self.base).filter(|base| *base > 0))
    }

    /// Highest term seen anywhere.
    pub fn term(&self) -> Option<u64> {
        let snapshot = self.snapshots.iter().map(|(_, term)| *term).max();
        let state = self.hard_state.map(|state| state.term);
        let entry = self.last_entry.map(|(_, term)| term);
        state.max(entry).max(snapshot).filter(|term| *term > 0)
    }

    /// Index of the newest snapshot record (0, the one of a new log, is none).
    pub fn snapshot_index(&self) -> Option<u64> {
        self.snapshots.iter().map(|(index, _)| *index).max().filter(|index| *index > 0)
    }

    /// etcd would use a snapshot of this index and term: the log mentions it, and it is committed
    /// (`wal.ValidSnapshotEntries`, 3.4.8). What the part that was not read says is taken on trust.
    pub fn confirms(&self, index: u64, term: u64) -> bool {
        let told = self.snapshots.contains(&(index, term)) || index <= self.base;
        told && self.hard_state.is_none_or(|state| index <= state.commit)
    }
}

/// A jump in the indexes of entries, allowed only where a snapshot fills it.
struct Jump {
    path: String,
    offset: u64,
    expected: u64,
    found: u64,
}

struct Chain {
    reading: WalReading,
    question: WalQuestion,
    crc: u32,
    metadata: Option<Vec<u8>>,
    expected: u64,
    jumps: Vec<Jump>,
}

/// Reads the log. `segments` are sorted by sequence number.
pub fn read_wal(segments: &[Segment], question: WalQuestion) -> Result<WalReading, (String, ReadError)> {
    let mut chain =
        Chain { reading: WalReading::default(), question, crc: 0, metadata: None, expected: 1, jumps: Vec::new() };
    let Some(last) = segments.last() else { return Ok(chain.reading) };
    let mut defects = Vec::new();
    for (before, after) in segments.iter().zip(segments.iter().skip(1)) {
        if before.seq.checked_add(1) != Some(after.seq) {
            let message = format!("file {} follows file {}: what lies between is missing", after.seq, before.seq);
            defects.push(Code::WalGap.at(&after.path, None, message));
        }
    }
    let full = whole_from(segments, question)?;
    for (n, segment) in segments.iter().enumerate() {
        let failed = |error| (segment.path.clone(), error);
        if n == 0 {
            chain.reading.first_index = Some(segment.index.max(1));
        }
        if n < full {
            chain.read_head(segment).map_err(failed)?;
            continue;
        }
        if n == full {
            chain.expected = segment.index.max(1);
            chain.reading.base = segment.index.saturating_sub(1);
            // A reader that begins in the middle takes over what the file carries.
            chain.crc = 0;
        }
        if !chain.read_segment(segment, segment.seq == last.seq).map_err(failed)? {
            break;
        }
    }
    chain.finish(last);
    let mut reading = chain.reading;
    defects.append(&mut reading.defects);
    reading.defects = defects;
    Ok(reading)
}

/// Number of the first file to be read in full.
fn whole_from(segments: &[Segment], question: WalQuestion) -> Result<usize, (String, ReadError)> {
    let mut left = question.budget;
    let mut forced = MAX_FORCED;
    let mut from = segments.len().saturating_sub(1);
    for (n, segment) in segments.iter().enumerate().rev().skip(1) {
        let size = segment_size(segment).map_err(|error| (segment.path.clone(), error))?;
        // What the backend has not applied must be seen, whatever it costs, within reason.
        let after = segments.get(from).map_or(0, |segment| segment.index);
        let needed = question.v3_after > 0 && after > question.v3_after.saturating_add(1) && forced > size;
        if size > left && !needed {
            break;
        }
        if size > left {
            forced = forced.saturating_sub(size);
        }
        left = left.saturating_sub(size);
        from = n;
    }
    Ok(from)
}

fn segment_size(segment: &Segment) -> Result<u64, ReadError> {
    segment.source.size().map_err(|source| ReadError::Io { offset: 0, len: 0, source })
}

impl Chain {
    fn defect(&mut self, code: Code, path: &str, offset: u64, message: impl Into<String>) {
        self.reading.defects.push(code.at(path, Some(offset), message));
    }

    fn read_head(&mut self, segment: &Segment) -> Result<(), ReadError> {
        let mut head = [0; 4096];
        let got = read_up_to(segment.source.as_ref(), &mut head, 0)?;
        let head = head.get(..got).unwrap_or(&[]);
        match looks_like_segment(head) {
            Some(found) => {
                let metadata = WalMetadata { node_id: found.node_id, cluster_id: found.cluster_id };
                self.take_metadata(metadata.encode_to_vec(), &segment.path, 0);
            }
            None => {
                let what = "does not begin with a checksum and the member's metadata";
                self.defect(Code::WalRecord, &segment.path, 0, what);
            }
        }
        Ok(())
    }

    /// `false`: etcd would not get beyond this file.
    fn read_segment(&mut self, segment: &Segment, last: bool) -> Result<bool, ReadError> {
        let size = segment_size(segment)?;
        let mut frames = Frames::new(segment.source.as_ref(), size);
        let mut records = 0_u64;
        let path = &segment.path;
        loop {
            let at = frames.offset();
            let end = match frames.next_frame()? {
                Frame::Record { record, padded, torn, .. } => {
                    self.reading.written_by_v3 |= padded;
                    records = records.saturating_add(1);
                    if record.kind == frame::CRC {
                        if self.crc != 0 && self.crc != record.crc {
                            let (running, carried) = (self.crc, record.crc);
                            let message = format!(
                                "carries checksum {carried:#010x} over, the records before give {running:#010x}"
                            );
                            self.defect(Code::WalCrc, path, at, message);
                            return Ok(false);
                        }
                        self.crc = record.crc;
                        continue;
                    }
                    let crc = crc32c::crc32c_append(self.crc, &record.data);
                    if crc != record.crc {
                        Some((torn, "its checksum is wrong", Code::WalCrc))
                    } else {
                        self.crc = crc;
                        if !self.take(record.kind, &record.data, path, at) {
                            return Ok(false);
                        }
                        continue;
                    }
                }
                Frame::End => None,
                Frame::Cut { what } => Some((true, what, Code::WalCrc)),
                Frame::Length { found } => {
                    let message = format!(
                        "a length of {found} bytes, which no etcd writes; versions before 3.5.6 refuse it, later ones drop everything from here on"
                    );
                    self.defect(Code::WalLength, path, at, message);
                    return Ok(false);
                }
                Frame::Undecodable { len, .. } if len >= frame::IMPLAUSIBLE => {
                    let message = format!(
                        "a length of {len} bytes and no record behind it; versions before 3.5.6 refuse it, later ones may drop everything from here on"
                    );
                    self.defect(Code::WalLength, path, at, message);
                    return Ok(false);
                }
                Frame::Undecodable { torn, len: _ } => Some((torn, "it cannot be decoded", Code::WalRecord)),
            };
            match end {
                None => {
                    if records == 0 {
                        self.defect(Code::WalEmpty, path, 0, format!("{size} bytes without a record"));
                        return Ok(false);
                    }
                    if last && let Some(beyond) = frames.first_non_zero()? {
                        let message =
                            format!("the log ends at byte {at}, but there is something behind; etcd would zero it");
                        self.defect(Code::WalBeyondEnd, path, beyond, message);
                    }
                    self.reading.whole |= last;
                    return Ok(true);
                }
                Some((true, what, _)) if last => {
                    let message =
                        format!("the last record is torn ({what}), as a power cut leaves it; etcd cuts it off");
                    self.defect(Code::WalTornTail, path, at, message);
                    self.reading.whole = true;
                    return Ok(true);
                }
                Some((true, what, code)) => {
                    let message = format!("a record is torn ({what}) though further files follow");
                    self.defect(code, path, at, message);
                    return Ok(false);
                }
                Some((false, what, code)) => {
                    self.defect(code, path, at, format!("a record is damaged: {what}, and it is no torn write"));
                    return Ok(false);
                }
            }
        }
    }

    /// Takes a record whose checksum is right. `false`: etcd would refuse.
    fn take(&mut self, kind: i64, data: &[u8], path: &str, at: u64) -> bool {
        match kind {
            frame::METADATA => return self.take_metadata(data.to_vec(), path, at),
            frame::ENTRY => {
                if let Ok(entry) = RaftEntry::decode(data) {
                    self.take_entry(&entry, path, at);
                    return true;
                }
            }
            frame::STATE => {
                if let Ok(state) = HardState::decode(data) {
                    self.reading.hard_state = Some(state);
                    return true;
                }
            }
            frame::SNAPSHOT => {
                if let Ok(snapshot) = WalSnapshot::decode(data) {
                    if self.reading.snapshots.len() >= MAX_SNAPSHOTS {
                        self.reading.snapshots.pop_front();
                    }
                    self.reading.snapshots.push_back((snapshot.index, snapshot.term));
                    return true;
                }
            }
            _ => {}
        }
        self.defect(Code::WalRecord, path, at, format!("a record of type {kind} that cannot be read"));
        false
    }

    fn take_metadata(&mut self, data: Vec<u8>, path: &str, at: u64) -> bool {
        if self.metadata.as_ref().is_some_and(|known| *known != data) {
            let message = "its metadata (member and cluster id) are not those of the files before";
            self.defect(Code::WalConflictingMetadata, path, at, message);
            return false;
        }
        // 2.x and 3.x write both ids as fields of any value; nothing at all is not a member's.
        match WalMetadata::decode(data.as_slice()) {
            Ok(ids) => {
                self.reading.node_id = Some(ids.node_id);
                self.reading.cluster_id = Some(ids.cluster_id);
                self.metadata = Some(data);
                true
            }
            Err(_) => {
                self.defect(Code::WalRecord, path, at, "the member's metadata cannot be read");
                false
            }
        }
    }

    fn take_entry(&mut self, entry: &RaftEntry, path: &str, at: u64) {
        if entry.index > self.expected && self.jumps.len() < MAX_JUMPS {
            let (expected, found) = (self.expected, entry.index);
            self.jumps.push(Jump { path: path.to_owned(), offset: at, expected, found });
        }
        self.expected = entry.index.saturating_add(1);
        self.reading.last_entry = Some((entry.index, entry.term));
        self.note_unapplied(entry);
        if self.reading.refused_v2.is_some_and(|index| index >= entry.index) {
            self.reading.refused_v2 = None;
        }
        if entry.index > self.question.v2_after && entry::refused_v2(entry) {
            self.reading.refused_v2 = Some(entry.index);
        }
        let v3 = entry.index > self.question.v3_after && !self.reading.unapplied_put;
        let v2 = entry.index > self.question.v2_after && !self.reading.unapplied_v2_put;
        if entry.kind == 0 && (v3 || v2) && !entry.data.is_empty() {
            let write = write_in(&entry.data);
            self.reading.unapplied_put |= v3 && write.v3;
            self.reading.unapplied_v2_put |= v2 && write.v2;
        }
    }

    /// An entry that stands where others stood takes their place, and that of all behind them.
    fn note_unapplied(&mut self, entry: &RaftEntry) {
        let Some(place) = entry.index.checked_sub(self.question.v3_after.saturating_add(1)) else {
            // Replaced from before what counts: nothing of it is left.
            self.reading.unapplied.clear();
            return;
        };
        let unapplied = &mut self.reading.unapplied;
        unapplied.truncate(usize::try_from(place).unwrap_or(usize::MAX));
        if unapplied.len() < MAX_UNAPPLIED {
            unapplied.push(entry::told(entry).kind);
        }
    }

    fn finish(&mut self, last: &Segment) {
        let newest = self.reading.snapshot_index().unwrap_or(0);
        for jump in std::mem::take(&mut self.jumps) {
            if newest.saturating_add(1) < jump.found {
                let Jump { path, offset, expected, found } = jump;
                let message = format!("entry {found} where entry {expected} belongs, and no snapshot fills the gap");
                self.defect(Code::WalGap, &path, offset, message);
            }
        }
        if self.metadata.is_none() && self.reading.defects.is_empty() {
            self.defect(Code::WalEmpty, &last.path, 0, "no record says whose log this is");
        }
    }
}

struct Write {
    v3: bool,
    v2: bool,
}

/// Does a normal entry make a key? etcd tries the v3 message first, then the bare v2 request (`server.applyEntryNormal`).
fn write_in(data: &[u8]) -> Write {
    if let Ok(request) = InternalRaftRequest::decode(data) {
        let txn = request.txn.is_some_and(|txn| {
            // Which branch a txn takes is known only by applying it; either may make the key.
            txn.success.iter().chain(&txn.failure).any(|op| op.put.is_some() || op.txn.is_some())
        });
        return Write { v3: request.put.is_some() || txn, v2: request.v2.is_some_and(|v2| makes_user_key(&v2)) };
    }
    Write { v3: false, v2: V2Request::decode(data).is_ok_and(|request| makes_user_key(&request)) }
}

fn makes_user_key(request: &V2Request) -> bool {
    matches!(request.method.as_slice(), b"PUT" | b"POST") && request.path.starts_with(b"/1/") && !request.dir
}

#[cfg(test)]
#[path = "wal/tests.rs"]
mod tests;
