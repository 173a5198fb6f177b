//! Is this the member that the record, and the configuration, expect, and is it as far as it was?

use super::keys::{Keys, at_least};
use super::situation::{Situation, is_damaged, reachable_revision};
use super::{Kind, Objections, describe, dirs};
use crate::model::{
    ClusterId, DataDirReport, EtcdFlags, EtcdGeneration, EtcdToRun, Fingerprint, HighWater, MemberId, Observed, Pin,
    RaftProgress, Reason, ReasonCode, Records, StartPolicy,
};
use serde_json::json;

/// How the selected dir stands to the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// No record pins an identity.
    NotPinned,
    /// The pinned ids, and progress not behind what was noted.
    Continues,
    /// The pinned ids, and no progress was ever noted.
    SameIds,
    /// Other ids, and the record saw them appear while the gate was open.
    ChangedWhileOpen,
    /// Something else, and objected to; or there is no dir to compare.
    Otherwise,
}

impl Standing {
    pub fn continues(self) -> bool {
        match self {
            Standing::Continues | Standing::SameIds => true,
            Standing::NotPinned | Standing::ChangedWhileOpen | Standing::Otherwise => false,
        }
    }
}

/// Compares the selected dir with pin and high-water mark.
pub fn against_record(
    situation: &Situation<'_>,
    records: &Records,
    policy: &StartPolicy,
    objections: &mut Objections,
    warnings: &mut Vec<Reason>,
) -> Standing {
    let Some(dir) = situation.dir() else {
        return if records.pin.is_none() { Standing::NotPinned } else { Standing::Otherwise };
    };
    let fingerprint = match &dir.fingerprint {
        Some(fingerprint) => fingerprint,
        None if dir.populated && !situation.damaged() => {
            let message = format!("the data dir `{}` holds data, and nothing in it says which member it is", dir.path);
            objections.add(Kind::Unread, Reason::new(ReasonCode::Unreadable, message));
            return Standing::Otherwise;
        }
        None if records.pin.is_none() => return Standing::NotPinned,
        None => return Standing::Otherwise,
    };
    let behind = records
        .high_water
        .as_ref()
        .filter(|mark| speaks_of_this_cluster(mark, records.pin.as_ref(), fingerprint))
        .map(|mark| backwards(situation, dir, fingerprint, mark, objections));
    let came_back =
        |mark: &&HighWater| ids(fingerprint).is_some() && ids(fingerprint) == mark.cluster_id.zip(mark.member_id);
    if let Some(mark) = records.emptied.as_ref().filter(came_back) {
        // A member that was removed and added again has another id: this is the old one, which was to be gone.
        backwards(situation, dir, fingerprint, mark, objections);
    }
    let Some(pin) = &records.pin else {
        if dir.populated && dir.etcd == EtcdGeneration::V3 && !situation.damaged() && ids(fingerprint).is_none() {
            objections.add(Kind::Unread, no_ids(dir));
        }
        return Standing::NotPinned;
    };
    let Some((cluster, member)) = ids(fingerprint) else {
        // A dir without ids that holds nothing is `data-vanished`, said elsewhere; damage is damage.
        if dir.populated && !situation.damaged() {
            objections.add(Kind::Unread, no_ids(dir));
        }
        return Standing::Otherwise;
    };
    if (cluster, member) == (pin.cluster_id, pin.member_id) {
        if pin.data_dir != dir.path {
            let message = format!("the member was last seen in `{}` and is now in `{}`", pin.data_dir, dir.path);
            warnings.push(Reason::new(ReasonCode::ConfigChanged, message));
        }
        return match behind {
            Some(false) => Standing::Continues,
            None => Standing::SameIds,
            Some(true) => Standing::Otherwise,
        };
    }
    other_ids(situation, dir, (cluster, member), pin, records, policy, objections, warnings)
}

fn ids(fingerprint: &Fingerprint) -> Option<(ClusterId, MemberId)> {
    fingerprint.cluster_id.zip(fingerprint.member_id)
}

fn no_ids(dir: &DataDirReport) -> Reason {
    let message = format!("the data dir `{}` holds data, and its cluster and member id cannot be read", dir.path);
    Reason::new(ReasonCode::Unreadable, message)
}

#[expect(clippy::too_many_arguments, reason = "the row of the design asks for all of them")]
fn other_ids(
    situation: &Situation<'_>,
    dir: &DataDirReport,
    (cluster, member): (ClusterId, MemberId),
    pin: &Pin,
    records: &Records,
    policy: &StartPolicy,
    objections: &mut Objections,
    warnings: &mut Vec<Reason>,
) -> Standing {
    let seen_while_open = records.identity_changed == Some((cluster, member));
    let kept = keys_kept(dir, records.high_water.as_ref(), policy);
    let ahead = dirs::ahead(situation, policy);
    let name = pin.name.as_ref().map_or_else(String::new, |name| format!(", `{name}`"));
    let expected = format!("cluster {}, member {}{name}, pinned at {}", pin.cluster_id, pin.member_id, pin.at);
    if seen_while_open && dir.populated && kept && ahead.is_empty() {
        let message = format!(
            "`{}` changed from cluster {}, member {} to cluster {cluster}, member {member} while the gate was open, and etcd \
             has served it since; adopt it, if that was meant",
            dir.path, pin.cluster_id, pin.member_id
        );
        warnings.push(Reason::new(ReasonCode::IdentityChanged, message));
        return Standing::ChangedWhileOpen;
    }
    let (kind, code, found) = if cluster == pin.cluster_id {
        (Kind::OtherMember, ReasonCode::OtherMember, format!("member {member} of the same cluster"))
    } else {
        (Kind::OtherCluster, ReasonCode::OtherCluster, format!("cluster {cluster}, member {member}"))
    };
    let mut message = format!("`{}` belongs to {found}; expected is {expected}", dir.path);
    if dir.fingerprint.as_ref().is_some_and(was_restored) {
        message.push_str(RESTORED);
    }
    if seen_while_open {
        message.push_str(" (the change was seen while the gate was open");
        if !kept {
            message.push_str(&format!(", but it keeps less than {} % of the keys", policy.min_keys_percent));
        }
        if let Some(other) = ahead.first() {
            message.push_str(&format!(", but `{}` is ahead of it", other.path));
        }
        message.push(')');
    }
    let detail = json!({
        "data_dir": dir.path,
        "found": { "cluster_id": cluster, "member_id": member },
        "expected": { "cluster_id": pin.cluster_id, "member_id": pin.member_id },
    });
    objections.add(kind, Reason::new(code, message).with_detail(detail));
    Standing::Otherwise
}

/// Does the dir still hold the share of keys that a changed identity must keep?
fn keys_kept(dir: &DataDirReport, mark: Option<&HighWater>, policy: &StartPolicy) -> bool {
    if policy.min_keys_percent == 0 {
        return true;
    }
    match (Keys::of(dir).all(), mark.and_then(|mark| mark.keys)) {
        (Some(now), Some(then)) => at_least(now, then, policy.min_keys_percent),
        (Some(_) | None, None) | (None, Some(_)) => false,
    }
}

/// Progress is compared within one cluster id only. A mark without ids speaks of the pinned member.
fn speaks_of_this_cluster(mark: &HighWater, pin: Option<&Pin>, fingerprint: &Fingerprint) -> bool {
    let cluster = mark.cluster_id.or(pin.map(|pin| pin.cluster_id));
    cluster.is_some() && cluster == fingerprint.cluster_id
}

/// The three comparisons, within one cluster id only. Never last index against last index, and never the backend's
/// revision alone: after a power cut a healthy member may have lost its uncommitted tail. Returns whether it is behind, or
/// not known not to be.
fn backwards(
    situation: &Situation<'_>,
    dir: &DataDirReport,
    fingerprint: &Fingerprint,
    mark: &HighWater,
    objections: &mut Objections,
) -> bool {
    let HighWater { term: noted_term, consistent_index: noted_index, revision: noted_revision, .. } = mark;
    let (lines, not_known) = compared(fingerprint, mark);
    let behind = !lines.is_empty() || !not_known.is_empty();
    // A damaged dir is told as damaged, and one that holds nothing as vanished: both explain why it is behind.
    if !lines.is_empty() && (dir.populated || situation.damaged()) {
        let restored = if was_restored(fingerprint) { RESTORED } else { "" };
        let message = format!("`{}` is older than it was: {}{restored}", dir.path, lines.join("; "));
        let detail = json!({
            "found": { "last_index": fingerprint.raft.last_index, "term": fingerprint.raft.term,
                       "revision": fingerprint.revision, "consistent_index": fingerprint.consistent_index },
            "recorded": { "consistent_index": noted_index, "term": noted_term, "revision": noted_revision },
        });
        objections.add(Kind::Backwards, Reason::new(ReasonCode::WentBackwards, message).with_detail(detail));
    }
    if !not_known.is_empty() && dir.populated && !situation.damaged() {
        let message = format!("of `{}` it is not known {}", dir.path, not_known.join(", nor "));
        objections.add(Kind::Unread, Reason::new(ReasonCode::Unreadable, message));
    }
    behind
}

/// Is this dir, wherever it lies, the one that the record speaks of: the pinned ids, undamaged, and as far as it was noted?
pub fn is_recorded(dir: &DataDirReport, records: &Records) -> bool {
    let (Some(pin), Some(fingerprint)) = (&records.pin, &dir.fingerprint) else { return false };
    let same = ids(fingerprint) == Some((pin.cluster_id, pin.member_id));
    let as_far = records.high_water.as_ref().is_none_or(|mark| {
        let (behind, not_known) = compared(fingerprint, mark);
        behind.is_empty() && not_known.is_empty()
    });
    dir.populated && !is_damaged(dir) && same && as_far
}

/// What is behind the mark, and what of it cannot be told.
fn compared(fingerprint: &Fingerprint, mark: &HighWater) -> (Vec<String>, Vec<String>) {
    let HighWater {
        data_dir: _,
        cluster_id: _,
        member_id: _,
        term: noted_term,
        consistent_index: noted_index,
        revision: noted_revision,
        wal_last_index: _,
        keys: _,
    } = mark;
    let mut lines = Vec::new();
    let mut not_known = Vec::new();
    match (fingerprint.raft.last_index, *noted_index) {
        (Some(last), Some(noted)) if last < noted => {
            lines.push(format!("its WAL ends at index {last}, and index {noted} was applied already"));
        }
        (None, Some(noted)) => not_known.push(format!("where its WAL ends (index {noted} was applied already)")),
        (Some(_), Some(_)) | (Some(_) | None, None) => {}
    }
    match (fingerprint.raft.term, *noted_term) {
        (Some(term), Some(noted)) if term < noted => {
            lines.push(format!("its raft term is {term}, and was {noted}"));
        }
        (None, Some(noted)) => not_known.push(format!("its raft term (it was {noted})")),
        (Some(_), Some(_)) | (Some(_) | None, None) => {}
    }
    match (reachable_revision(fingerprint), *noted_revision) {
        (Some(reachable), Some(noted)) if reachable < noted => {
            lines.push(format!("it can reach revision {reachable} at most, and was at {noted}"));
        }
        (None, Some(noted)) => not_known.push(format!("its revision (it was {noted})")),
        (Some(_), Some(_)) | (Some(_) | None, None) => {}
    }
    (lines, not_known)
}

/// The own member, as the dir names it, against `member` and `peer_url` of the guard. A member that has no name yet (added,
/// never started) contradicts nothing.
pub fn against_configuration(situation: &Situation<'_>, policy: &StartPolicy, objections: &mut Objections) {
    let (Some(dir), Some(fingerprint)) = (situation.dir(), situation.fingerprint()) else { return };
    let Some(own) = fingerprint.members.iter().find(|member| Some(member.id) == fingerprint.member_id) else { return };
    if let Some(expected) = &policy.member
        && !own.name.is_empty()
        && own.name != *expected
    {
        let message = format!(
            "`{}` belongs to the member `{}` ({}), and this node is configured to be `{expected}`",
            dir.path, own.name, own.id
        );
        objections.add(Kind::Configured, Reason::new(ReasonCode::OtherMember, message));
    }
    let same = |url: &String, expected: &str| url.trim_end_matches('/') == expected.trim_end_matches('/');
    if let Some(expected) = &policy.peer_url
        && !own.peer_urls.is_empty()
        && !own.peer_urls.iter().any(|url| same(url, expected))
    {
        let message = format!(
            "`{}` belongs to a member with the peer URL {}, and this node is configured with {expected}",
            dir.path,
            own.peer_urls.join(" and ")
        );
        objections.add(Kind::Configured, Reason::new(ReasonCode::OtherMember, message));
    }
}

/// The member that the static pod's manifest starts, where configuration names none. A name alone may be changed, and so may
/// a URL; an etcd that is started under both of another member would speak for him.
pub fn against_manifest(
    situation: &Situation<'_>,
    to_run: &Observed<Option<EtcdToRun>>,
    policy: &StartPolicy,
    objections: &mut Objections,
) {
    if policy.member.is_some() || policy.peer_url.is_some() {
        return;
    }
    let (Some(dir), Some(fingerprint)) = (situation.dir(), situation.fingerprint()) else { return };
    let Some(own) = fingerprint.members.iter().find(|member| Some(member.id) == fingerprint.member_id) else { return };
    let Some(etcd) = super::version::opens(situation, to_run) else { return };
    let Some(EtcdFlags { name: Some(name), peer_urls, quota: _, wal_dir: _ }) = &etcd.flags else { return };
    let same = |one: &String, other: &String| one.trim_end_matches('/') == other.trim_end_matches('/');
    let shares = own.peer_urls.iter().any(|url| peer_urls.iter().any(|other| same(url, other)));
    if own.name.is_empty() || own.name == *name || own.peer_urls.is_empty() || peer_urls.is_empty() || shares {
        return;
    }
    let message = format!(
        "`{}` belongs to the member `{}` ({}, {}), and {} starts `{name}` with {}",
        dir.path,
        own.name,
        own.id,
        own.peer_urls.join(" and "),
        etcd.at.as_deref().unwrap_or("the manifest"),
        peer_urls.join(" and ")
    );
    objections.add(Kind::Configured, Reason::new(ReasonCode::OtherMember, message));
}

const RESTORED: &str = "; it was made by `snapshot restore`, and no etcd has run on it yet";

/// As `snapshot restore` leaves it (etcd v3.5.30 `etcdutl/snapshot/v3_snapshot.go` saveWALAndSnap): a snapshot of the last
/// entry, in term 1. A member that ran has had an election, and so a later term.
fn was_restored(fingerprint: &Fingerprint) -> bool {
    let RaftProgress { term, commit: _, first_index: _, last_index, snapshot_index } = &fingerprint.raft;
    *term == Some(1) && snapshot_index.is_some() && snapshot_index == last_index
}

/// What a record noted of this volume, for a sentence.
pub fn remembered(records: &Records) -> String {
    match (&records.high_water, &records.pin) {
        (Some(mark), Some(_) | None) => describe::mark(mark),
        (None, Some(pin)) => format!("`{}` of cluster {}, member {}", pin.data_dir, pin.cluster_id, pin.member_id),
        (None, None) => "etcd data".to_owned(),
    }
}
