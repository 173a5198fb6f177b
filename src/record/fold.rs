//! What the union of the ledgers says about one volume. Pure; no clock, and no trust in the clocks of those who wrote.
//!
//! **Which entries count.** Those that name this volume id, or the filesystem UUID that is there now: a copy of a
//! filesystem under a new volume id brings its memory along. Entries that only tell (decisions, publications, fsck) never
//! bear on the result: what a *held* guard noted about a filesystem must not make that filesystem known.
//!
//! **Order.** Within one ledger, position. Between two ledgers there is no common clock (clocks go back ten years), so:
//!
//! * The same entry in both ledgers (same id) is a common point: what stands before it in either is older than what stands
//!   behind it in either.
//! * A person's answer (`Adopted`, `Unpinned`) supersedes the pins, marks and changes that stand before it. In the other ledger, where
//!   it may be missing (a held volume is not written to), it supersedes everything up to the first entry that its own
//!   ledger holds behind it; where there is none, everything. Two answers that do not know of each other supersede only
//!   their own side.
//! * *That there was data* is forgotten only by an answer which says that this starts empty (`new-cluster`,
//!   `replacement`); which filesystems there were is never forgotten.
//! * Progress is a maximum, so it needs no order.
//!
//! Writers should therefore put pins, marks and answers into both ledgers as the same entry. Where one of the two writes
//! failed, nothing breaks: copies that fork are no defect.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each question here is about a few kinds; `fs_uuids` names all, so that a new kind stops the build in this file"
)]

use crate::model::{
    Adoption, ClusterId, Entry, EntryId, Fact, FsUuid, HighWater, MemberId, OpenIntent, Pin, Records, Release, Time,
    VolumeId,
};

/// A ledger as this module walks it: entries with their ids, oldest first.
type Ledger<'a> = Vec<(&'a EntryId, &'a Entry)>;
type Part<'a> = [(&'a EntryId, &'a Entry)];

/// Folds the ledger of this node (own entries only, see [`NodeReading`](super::NodeReading)) and the one on the volume.
///
/// `fs_uuid` is the filesystem that is on the volume now, where it is known. `node_ledger_present` is set when `node` is not
/// empty; the caller may know better whether there was a file.
pub fn fold(
    node: &[(EntryId, Entry)],
    volume: &[(EntryId, Entry)],
    volume_id: &VolumeId,
    fs_uuid: Option<FsUuid>,
) -> Records {
    let counts =
        |entry: &Entry| entry.volume_id == *volume_id || fs_uuid.is_some_and(|uuid| entry.fs_uuid == Some(uuid));
    let n: Ledger<'_> = node.iter().filter(|(_, entry)| counts(entry)).map(|(id, entry)| (id, entry)).collect();
    let v: Ledger<'_> = volume.iter().filter(|(_, entry)| counts(entry)).map(|(id, entry)| (id, entry)).collect();

    let since_answer = since_last(&n, &v, |_| true);
    let (n_now, v_now) = (since_answer.node, since_answer.volume);
    let since_empty = since_last(&n, &v, |answer| answer.is_some_and(starts_empty));
    let (pin, pins_contradict) = choose_pin(n_now, v_now);
    let adoption =
        since_answer.answer.flatten().filter(|_| !n_now.iter().chain(v_now).any(|(_, entry)| consumes(&entry.fact)));
    Records {
        high_water: high_water(pin.as_ref(), n_now, v_now),
        held_data_at: held_data_at(since_empty.node, since_empty.volume),
        fs_uuids: fs_uuids(&n, &v, volume_id),
        formatted: distinct(n.iter().chain(&v).filter_map(|(_, entry)| match entry.fact {
            Fact::Formatted { fs_uuid } => Some(fs_uuid),
            _ => None,
        })),
        formatted_at: n
            .iter()
            .chain(&v)
            .filter(|(_, entry)| matches!(entry.fact, Fact::Formatted { .. }))
            .map(|(_, entry)| entry.time)
            .max(),
        open_intent: open_intent(&n, &v).or_else(|| open_intent(&v, &n)),
        fresh_allowed: distinct(
            n.iter()
                .chain(&v)
                .filter(|(_, entry)| matches!(entry.fact, Fact::FreshAllowed { .. }))
                .filter_map(|(_, entry)| entry.fs_uuid),
        ),
        identity_changed: identity_changed(n_now, v_now),
        adoption,
        emptied: match adoption {
            // While it stands nothing was noted since: what all of both ledgers say is what was so before.
            Some(Adoption::Replacement) => high_water(choose_pin(&n, &v).0.as_ref(), &n, &v),
            // A new cluster may well have the ids of the old one, which are made of names and URLs.
            Some(Adoption::NewCluster | Adoption::Identity | Adoption::Restored) | None => None,
        },
        answered: since_answer.answer.is_some(),
        names_other_volume: names_other_volume(node, volume, volume_id, fs_uuid),
        released: released(node),
        node_ledger_present: !node.is_empty(),
        pin,
        pins_contradict,
    }
}

/// An answer which says that this starts with nothing.
fn starts_empty(what: Adoption) -> bool {
    match what {
        Adoption::NewCluster | Adoption::Replacement => true,
        Adoption::Identity | Adoption::Restored => false,
    }
}

/// What ends the time in which a person's answer stands: the thing answered for has been seen to run.
fn consumes(fact: &Fact) -> bool {
    matches!(fact, Fact::Pinned { .. } | Fact::HoldsData { .. })
}

fn holds(ledger: &Part<'_>, id: &EntryId) -> bool {
    position(ledger, id).is_some()
}

fn position(ledger: &Part<'_>, id: &EntryId) -> Option<usize> {
    ledger.iter().position(|(other, _)| *other == id)
}

/// What stands behind position `at`.
fn behind<'l, 'a>(ledger: &'l Part<'a>, at: usize) -> &'l Part<'a> {
    ledger.get(at.saturating_add(1)..).unwrap_or_default()
}

/// Both ledgers, from the newest answer of a sort on.
struct Since<'l, 'a> {
    node: &'l Part<'a>,
    volume: &'l Part<'a>,
    /// `Some(None)`: what was pinned does not count any more, and nothing is adopted.
    answer: Option<Option<Adoption>>,
}

fn since_last<'l, 'a>(n: &'l Part<'a>, v: &'l Part<'a>, sort: impl Fn(Option<Adoption>) -> bool) -> Since<'l, 'a> {
    let last_answer = |ledger: &'l Part<'a>| {
        ledger.iter().enumerate().rev().find_map(|(at, (id, entry))| match entry.fact {
            Fact::Adopted { what, .. } if sort(Some(what)) => Some((at, *id, Some(what))),
            Fact::Unpinned { .. } if sort(None) => Some((at, *id, None)),
            _ => None,
        })
    };
    match (last_answer(n), last_answer(v)) {
        (None, None) => Since { node: n, volume: v, answer: None },
        (Some((at, _, what)), None) => {
            Since { node: behind(n, at), volume: not_superseded(n, at, v), answer: Some(what) }
        }
        (None, Some((at, _, what))) => {
            Since { node: not_superseded(v, at, n), volume: behind(v, at), answer: Some(what) }
        }
        (Some((n_at, n_id, n_what)), Some((v_at, v_id, v_what))) => {
            match (holds(n, v_id), holds(v, n_id)) {
                // The volume's answer is the newer one: it stands behind the node's, which the node does not know yet.
                (false, true) => Since {
                    node: shorter(behind(n, n_at), not_superseded(v, v_at, n)),
                    volume: behind(v, v_at),
                    answer: Some(v_what),
                },
                (true, false) => Since {
                    node: behind(n, n_at),
                    volume: shorter(behind(v, v_at), not_superseded(n, n_at, v)),
                    answer: Some(n_what),
                },
                // The same one, or two that do not know of each other.
                (true, true) | (false, false) => {
                    Since { node: behind(n, n_at), volume: behind(v, v_at), answer: Some(n_what) }
                }
            }
        }
    }
}

/// The part of `other` that the answer at `at` in `own` does not supersede.
fn not_superseded<'l, 'a>(own: &Part<'a>, at: usize, other: &'l Part<'a>) -> &'l Part<'a> {
    let later = behind(own, at);
    if let Some(known) = own.get(at).and_then(|(id, _)| position(other, id)) {
        return behind(other, known);
    }
    let common = other.iter().position(|(id, _)| holds(later, id)).unwrap_or(other.len());
    other.get(common..).unwrap_or_default()
}

/// Both are tails of one ledger: the one that begins later.
fn shorter<'l, 'a>(one: &'l Part<'a>, two: &'l Part<'a>) -> &'l Part<'a> {
    if one.len() < two.len() { one } else { two }
}

/// A pin as it stands in a ledger.
struct Standing<'a> {
    id: &'a EntryId,
    pin: Pin,
}

impl Standing<'_> {
    fn same_identity(&self, other: &Standing<'_>) -> bool {
        self.pin.cluster_id == other.pin.cluster_id && self.pin.member_id == other.pin.member_id
    }
}

fn last_pin<'a>(ledger: &Part<'a>) -> Option<Standing<'a>> {
    ledger.iter().rev().find_map(|(id, entry)| {
        let Fact::Pinned { cluster_id, member_id, name, data_dir, because: _ } = &entry.fact else { return None };
        let pin = Pin {
            cluster_id: *cluster_id,
            member_id: *member_id,
            name: name.clone(),
            data_dir: data_dir.clone(),
            fs_uuid: entry.fs_uuid,
            at: entry.time,
        };
        Some(Standing { id, pin })
    })
}

/// The pin that stands, and whether another one that cannot be told to be older says something else.
fn choose_pin(n: &Part<'_>, v: &Part<'_>) -> (Option<Pin>, bool) {
    let (on_node, on_volume) = match (last_pin(n), last_pin(v)) {
        (None, None) => return (None, false),
        (Some(one), None) | (None, Some(one)) => return (Some(one.pin), false),
        (Some(on_node), Some(on_volume)) => (on_node, on_volume),
    };
    let node_is_older = holds(v, on_node.id);
    let volume_is_older = holds(n, on_volume.id);
    match (node_is_older, volume_is_older) {
        (true, false) => (Some(on_volume.pin), false),
        // Both: the two ledgers end with the same pin.
        (false, true) | (true, true) => (Some(on_node.pin), false),
        (false, false) => {
            let contradict = !on_node.same_identity(&on_volume);
            let node_leads = progress(high_water(Some(&on_node.pin), n, v).as_ref())
                >= progress(high_water(Some(&on_volume.pin), n, v).as_ref());
            (Some(if node_leads { on_node.pin } else { on_volume.pin }), contradict)
        }
    }
}

/// What two marks are compared by.
fn progress(mark: Option<&HighWater>) -> (Option<u64>, Option<u64>, Option<i64>, Option<u64>) {
    match mark {
        Some(mark) => (mark.term, mark.consistent_index, mark.revision, mark.wal_last_index),
        None => (None, None, None, None),
    }
}

/// Highest progress for the pinned identity, of both ledgers, since another identity was pinned. Without a pin: for the
/// identity that was noted last. Dir and live keys are those of the newest mark.
fn high_water(pin: Option<&Pin>, n: &Part<'_>, v: &Part<'_>) -> Option<HighWater> {
    let of_ledger = |ledger: &Part<'_>| {
        let start = ledger.iter().rposition(|(_, entry)| match (&entry.fact, pin) {
            (Fact::Pinned { cluster_id, member_id, .. }, Some(pin)) => {
                *cluster_id != pin.cluster_id || *member_id != pin.member_id
            }
            _ => false,
        });
        let part = start.map_or(ledger, |at| behind(ledger, at));
        let mut marks = part.iter().rev().filter_map(|(_, entry)| match &entry.fact {
            Fact::HoldsData { mark } if pin.is_none_or(|pin| speaks_of(mark, pin)) => Some(mark),
            _ => None,
        });
        let newest = marks.next()?.clone();
        let identity = (newest.cluster_id, newest.member_id);
        Some(marks.filter(|mark| pin.is_some() || (mark.cluster_id, mark.member_id) == identity).fold(newest, highest))
    };
    match (of_ledger(n), of_ledger(v)) {
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => Some(one),
        (Some(one), Some(two))
            if pin.is_none() && (one.cluster_id, one.member_id) != (two.cluster_id, two.member_id) =>
        {
            Some(if progress(Some(&one)) >= progress(Some(&two)) { one } else { two })
        }
        (Some(one), Some(two)) if progress(Some(&one)) >= progress(Some(&two)) => Some(highest(one, &two)),
        (Some(one), Some(two)) => Some(highest(two, &one)),
    }
}

/// A mark without ids (nothing could be read but progress) is taken to speak of the pinned member.
fn speaks_of(mark: &HighWater, pin: &Pin) -> bool {
    mark.cluster_id.is_none_or(|id| id == pin.cluster_id) && mark.member_id.is_none_or(|id| id == pin.member_id)
}

/// The newer mark, its progress raised to what the other says where that is higher.
fn highest(newest: HighWater, other: &HighWater) -> HighWater {
    HighWater {
        cluster_id: newest.cluster_id.or(other.cluster_id),
        member_id: newest.member_id.or(other.member_id),
        term: newest.term.max(other.term),
        consistent_index: newest.consistent_index.max(other.consistent_index),
        revision: newest.revision.max(other.revision),
        wal_last_index: newest.wal_last_index.max(other.wal_last_index),
        keys: newest.keys.or(other.keys),
        data_dir: newest.data_dir,
    }
}

/// For display: the later of the two ledgers' last marks.
fn held_data_at(n: &Part<'_>, v: &Part<'_>) -> Option<Time> {
    let last = |ledger: &Part<'_>| {
        ledger.iter().rev().find(|(_, entry)| matches!(entry.fact, Fact::HoldsData { .. })).map(|(_, entry)| entry.time)
    };
    last(n).max(last(v))
}

/// Filesystems that were accepted on this volume, newest last. The volume's own ledger lies in the filesystem that is there
/// now, so what only it names comes last.
fn fs_uuids(n: &Part<'_>, v: &Part<'_>, volume_id: &VolumeId) -> Vec<FsUuid> {
    let named = |entry: &Entry| {
        if entry.volume_id != *volume_id {
            return None;
        }
        match &entry.fact {
            Fact::Formatted { fs_uuid } => Some(*fs_uuid),
            Fact::FreshAllowed { .. }
            | Fact::Pinned { .. }
            | Fact::HoldsData { .. }
            | Fact::IdentityChanged { .. }
            | Fact::Adopted { .. } => entry.fs_uuid,
            Fact::FormatIntent { .. }
            | Fact::Released { .. }
            | Fact::Retried
            | Fact::Unpinned { .. }
            | Fact::Ordered { .. }
            | Fact::Carried { .. }
            | Fact::Enabled { .. }
            | Fact::Disabled
            | Fact::Bypassed { .. }
            | Fact::Fsck { .. }
            | Fact::NotChecked { .. }
            | Fact::Snapshot { .. }
            | Fact::Grow { .. }
            | Fact::Restarted { .. }
            | Fact::Halted { .. }
            | Fact::Published { .. }
            | Fact::Decided { .. } => None,
        }
    };
    let mut uuids: Vec<FsUuid> = Vec::new();
    for uuid in n.iter().filter_map(|(_, entry)| named(entry)) {
        uuids.retain(|other| *other != uuid);
        uuids.push(uuid);
    }
    let only_on_volume: Vec<FsUuid> = v.iter().filter_map(|(_, entry)| named(entry)).collect();
    let known = uuids.clone();
    for uuid in only_on_volume.into_iter().filter(|uuid| !known.contains(uuid)) {
        uuids.retain(|other| *other != uuid);
        uuids.push(uuid);
    }
    uuids
}

fn distinct(uuids: impl Iterator<Item = FsUuid>) -> Vec<FsUuid> {
    let mut seen = Vec::new();
    for uuid in uuids {
        if !seen.contains(&uuid) {
            seen.push(uuid);
        }
    }
    seen
}

/// The last intent of `own` that nothing has ended: no `Formatted`, and no filesystem seen to live on the volume since.
/// (A person's answer does not end it: a rule may want to know both.)
fn open_intent(own: &Part<'_>, other: &Part<'_>) -> Option<OpenIntent> {
    let lives = |fact: &Fact| {
        matches!(
            fact,
            Fact::Formatted { .. } | Fact::FreshAllowed { .. } | Fact::Pinned { .. } | Fact::HoldsData { .. }
        )
    };
    let (at, id, intent) = own.iter().enumerate().rev().find_map(|(at, (id, entry))| match &entry.fact {
        Fact::FormatIntent { fs_uuid, devnum, diskseq, evidence_digest: _ } => Some((
            at,
            *id,
            OpenIntent { fs_uuid: *fs_uuid, boot_id: entry.boot_id.clone(), diskseq: *diskseq, devnum: *devnum },
        )),
        _ => None,
    })?;
    let ended_here = behind(own, at).iter().any(|(_, entry)| lives(&entry.fact));
    // Behind the same intent in the other ledger any of these ends it; in a ledger that does not know the intent, only what
    // speaks of its filesystem.
    let known = position(other, id);
    let since = known.map_or(other, |at| behind(other, at));
    let ended_there = since.iter().any(|(_, entry)| match &entry.fact {
        Fact::Formatted { fs_uuid } => known.is_some() || *fs_uuid == intent.fs_uuid,
        fact => lives(fact) && (known.is_some() || entry.fs_uuid == Some(intent.fs_uuid)),
    });
    (!ended_here && !ended_there).then_some(intent)
}

/// The last change of identity that no pin and no answer has followed.
fn identity_changed(n: &Part<'_>, v: &Part<'_>) -> Option<(ClusterId, MemberId)> {
    fn last<'a>(own: &Part<'a>, other: &Part<'a>) -> Option<(&'a EntryId, (ClusterId, MemberId))> {
        let (id, to) = own.iter().rev().find_map(|(id, entry)| match &entry.fact {
            Fact::IdentityChanged { to_cluster, to_member, .. } => Some(Some((*id, (*to_cluster, *to_member)))),
            Fact::Pinned { .. } => Some(None),
            _ => None,
        })??;
        let pinned_there = position(other, id)
            .is_some_and(|at| behind(other, at).iter().any(|(_, entry)| matches!(entry.fact, Fact::Pinned { .. })));
        (!pinned_there).then_some((id, to))
    }
    match (last(n, v), last(v, n)) {
        (None, None) => None,
        (Some((_, to)), None) | (None, Some((_, to))) => Some(to),
        (Some((n_id, _)), Some((_, v_to))) if holds(v, n_id) => Some(v_to),
        (Some((_, n_to)), Some(_)) => Some(n_to),
    }
}

/// The other volume that the ledger on this volume speaks of, unless this volume was accepted since: by what its own ledger
/// says behind the last foreign entry, or by an answer on this node that still stands or was given for this filesystem.
fn names_other_volume(
    node: &[(EntryId, Entry)],
    volume: &[(EntryId, Entry)],
    volume_id: &VolumeId,
    fs_uuid: Option<FsUuid>,
) -> Option<VolumeId> {
    let ours = |entry: &Entry| entry.volume_id == *volume_id;
    let restored = |entry: &Entry| ours(entry) && matches!(entry.fact, Fact::Adopted { what: Adoption::Restored, .. });
    let at = volume.iter().rposition(|(_, entry)| !ours(entry))?;
    let since = volume.get(at.saturating_add(1)..).unwrap_or_default();
    let accepted_on_volume = since.iter().any(|(_, entry)| consumes(&entry.fact) || restored(entry));
    let for_this_filesystem =
        node.iter().any(|(_, entry)| restored(entry) && fs_uuid.is_some() && entry.fs_uuid == fs_uuid);
    let stands = node
        .iter()
        .rev()
        .take_while(|(_, entry)| !(ours(entry) && consumes(&entry.fact)))
        .any(|(_, entry)| restored(entry));
    if accepted_on_volume || for_this_filesystem || stands {
        return None;
    }
    volume.get(at).map(|(_, entry)| entry.volume_id.clone())
}

/// A release is this node's and the guard's, whatever volume was there; a retry ends it.
fn released(node: &[(EntryId, Entry)]) -> Option<Release> {
    node.iter().rev().find_map(|(_, entry)| match entry.fact {
        Fact::Released { until, until_boot } => {
            Some(Some(Release { until, until_boot, said_at: entry.time, boot_id: entry.boot_id.clone() }))
        }
        Fact::Retried => Some(None),
        _ => None,
    })?
}

#[cfg(test)]
mod tests;
