//! Keeps a ledger small: a rewritten ledger that says the same.
//!
//! High-water marks come every few minutes for years (about 130 KB a day), so a ledger must be rewritten now and then. What
//! is dropped can be dropped because [`fold`](mod@crate::record::fold) says the same with and without it:
//!
//! * Of the marks between two *turning points* (any other entry that bears on a verdict), for one volume, filesystem,
//!   dir and identity, the last is kept and each one that holds the highest term, consistent index, revision or WAL
//!   index: progress is a maximum, so the others add nothing.
//! * Of entries that only tell (decisions, publications, fsck) the newest 256 KiB are kept.
//! * Everything else is kept, also kinds that this version does not know, byte for byte.
//!
//! Rewriting was chosen over segments (`ledger.1`, …) because a reader then still has one file with one chain; the chain is
//! made anew, the ids of the entries stay (they come from the payload alone).

use super::{EncodeError, LedgerBroken, NO_HASH, RawFrame, encode, walk};
use crate::model::{ClusterId, Entry, Fact, FsUuid, HighWater, MemberId, VolumeId};
use std::collections::HashMap;

/// How many bytes of entries that only tell are kept.
const TELLING_BUDGET: usize = 256 * 1024;

/// A ledger cannot be rewritten.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    #[error("the ledger is broken")]
    Broken(#[source] LedgerBroken),
    #[error("an entry cannot be written again")]
    Encode(#[source] EncodeError),
}

/// What an entry is to the one who rewrites.
enum Role {
    /// Kept, and marks on both sides of it are not merged.
    Turning,
    Mark,
    /// For people: the oldest go first.
    Telling,
    /// Of a kind that is not known here: kept, and treated as a turning point, since it may be one.
    Unknown,
}

fn role(entry: Option<&Entry>) -> Role {
    let Some(entry) = entry else { return Role::Unknown };
    match entry.fact {
        Fact::HoldsData { .. } => Role::Mark,
        Fact::Fsck { .. }
        | Fact::NotChecked { .. }
        | Fact::Snapshot { .. }
        | Fact::Grow { .. }
        | Fact::Restarted { .. }
        | Fact::Halted { .. }
        | Fact::Published { .. }
        | Fact::Decided { .. }
        | Fact::Enabled { .. }
        | Fact::Disabled
        | Fact::Bypassed { .. } => Role::Telling,
        Fact::Released { .. }
        | Fact::Retried
        | Fact::Unpinned { .. }
        | Fact::Ordered { .. }
        | Fact::Carried { .. }
        | Fact::FormatIntent { .. }
        | Fact::Formatted { .. }
        | Fact::FreshAllowed { .. }
        | Fact::Pinned { .. }
        | Fact::IdentityChanged { .. }
        | Fact::Adopted { .. } => Role::Turning,
    }
}

/// Marks that speak of the same thing.
#[derive(PartialEq, Eq, Hash)]
struct Subject {
    machine: String,
    volume: VolumeId,
    fs_uuid: Option<FsUuid>,
    data_dir: String,
    cluster: Option<ClusterId>,
    member: Option<MemberId>,
}

/// Index of the last mark of a subject, and of those with the highest value of each kind.
#[derive(Default, Clone, Copy)]
struct Kept {
    last: usize,
    term: (u64, usize),
    consistent_index: (u64, usize),
    revision: (i64, usize),
    wal_last_index: (u64, usize),
}

impl Kept {
    fn first(index: usize, mark: &HighWater) -> Self {
        Kept {
            last: index,
            term: (mark.term.unwrap_or(0), index),
            consistent_index: (mark.consistent_index.unwrap_or(0), index),
            revision: (mark.revision.unwrap_or(0), index),
            wal_last_index: (mark.wal_last_index.unwrap_or(0), index),
        }
    }

    fn take(&mut self, index: usize, mark: &HighWater) {
        let new = Kept::first(index, mark);
        self.last = index;
        self.term = self.term.max(new.term);
        self.consistent_index = self.consistent_index.max(new.consistent_index);
        self.revision = self.revision.max(new.revision);
        self.wal_last_index = self.wal_last_index.max(new.wal_last_index);
    }

    fn indexes(&self) -> [usize; 5] {
        [self.last, self.term.1, self.consistent_index.1, self.revision.1, self.wal_last_index.1]
    }
}

/// A ledger longer than this is worth rewriting.
pub const REWRITE_ABOVE: usize = 1024 * 1024;

/// What should stand in the place of a ledger that has grown: `None` while it is small, or when rewriting saves less than a
/// quarter. For both ledgers; whoever writes it replaces the file at once (written beside it, made durable, renamed).
pub fn plan_rewrite(bytes: &[u8]) -> Result<Option<Vec<u8>>, CompactError> {
    if bytes.len() <= REWRITE_ABOVE {
        return Ok(None);
    }
    let shorter = compact(bytes)?;
    let worth_it = shorter.len().saturating_mul(4) <= bytes.len().saturating_mul(3);
    Ok(worth_it.then_some(shorter))
}

/// The same ledger, shorter. The torn tail, if there is one, is left out. Returns the bytes also when nothing could be
/// dropped: the caller compares lengths.
pub fn compact(bytes: &[u8]) -> Result<Vec<u8>, CompactError> {
    let walked = walk(bytes).map_err(CompactError::Broken)?;
    let mut entries = Vec::with_capacity(walked.frames.len());
    for raw in &walked.frames {
        entries.push((raw, raw.entry().map_err(CompactError::Broken)?));
    }
    let mut keep = vec![false; entries.len()];
    keep_marks(&entries, &mut keep);
    keep_telling(&entries, &mut keep);

    let mut out = Vec::new();
    let mut last_hash = NO_HASH;
    for ((raw, _), _) in entries.iter().zip(&keep).filter(|(_, kept)| **kept) {
        let frame = encode(&last_hash, raw.flags, raw.payload).map_err(CompactError::Encode)?;
        last_hash = frame.hash;
        out.extend_from_slice(&frame.bytes);
    }
    Ok(out)
}

fn set(keep: &mut [bool], index: usize) {
    if let Some(slot) = keep.get_mut(index) {
        *slot = true;
    }
}

fn keep_marks(entries: &[(&RawFrame<'_>, Option<Entry>)], keep: &mut [bool]) {
    let mut run: HashMap<Subject, Kept> = HashMap::new();
    for (index, (_, entry)) in entries.iter().enumerate() {
        match (role(entry.as_ref()), entry) {
            (Role::Turning | Role::Unknown, _) => {
                set(keep, index);
                run.drain().for_each(|(_, kept)| kept.indexes().into_iter().for_each(|at| set(keep, at)));
            }
            (Role::Mark, Some(entry)) => {
                if let Fact::HoldsData { mark } = &entry.fact {
                    let subject = Subject {
                        machine: entry.machine_id.clone(),
                        volume: entry.volume_id.clone(),
                        fs_uuid: entry.fs_uuid,
                        data_dir: mark.data_dir.clone(),
                        cluster: mark.cluster_id,
                        member: mark.member_id,
                    };
                    run.entry(subject)
                        .and_modify(|kept| kept.take(index, mark))
                        .or_insert_with(|| Kept::first(index, mark));
                }
            }
            (Role::Mark | Role::Telling, _) => {}
        }
    }
    run.drain().for_each(|(_, kept)| kept.indexes().into_iter().for_each(|at| set(keep, at)));
}

fn keep_telling(entries: &[(&RawFrame<'_>, Option<Entry>)], keep: &mut [bool]) {
    let mut left = TELLING_BUDGET;
    for (index, (raw, entry)) in entries.iter().enumerate().rev() {
        if matches!(role(entry.as_ref()), Role::Telling) {
            let Some(rest) = left.checked_sub(raw.len) else { break };
            left = rest;
            set(keep, index);
        }
    }
}
