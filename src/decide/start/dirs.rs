//! The data dirs of the volume: can they be read, which one is meant, and is another one ahead of it?

use super::identity::{Standing, is_recorded};
use super::keys::Keys;
use super::situation::{Selected, Situation, is_archive, is_damaged, reachable_revision};
use super::words::unknown;
use super::{Kind, Objections, describe};
use crate::model::{
    DataDirReport, Defect, EtcdManagerState, Observed, Reason, ReasonCode, Records, Severity, StartPolicy,
    VolumeReading,
};
use serde_json::json;

/// Whatever could not be looked at holds: an etcd that starts beside it may start beside the data.
pub fn unreadable(reading: &VolumeReading, objections: &mut Objections) {
    if let Some(Observed::Unknown(why)) = &reading.manager_state {
        objections.add(Kind::Unread, unknown("etcd-manager's `state`, which says what etcd will open,", why));
    }
    for path in &reading.unreadable {
        let message = format!("a part of the volume could not be read: {path}");
        objections.add(Kind::Unread, Reason::new(ReasonCode::Unreadable, message));
    }
}

/// What lies beyond a bound of the search may be an older or a larger dir: a doubt about a dir that no record knows. A dir that
/// continues its record is not held for what somebody keeps beside it.
pub fn beyond(reading: &VolumeReading, standing: Standing, objections: &mut Objections, warnings: &mut Vec<Reason>) {
    for what in &reading.beyond {
        let reason = Reason::new(ReasonCode::Unreadable, format!("a part of the volume was not looked at: {what}"));
        if standing.continues() {
            warnings.push(reason);
        } else {
            objections.add(Kind::Unread, reason);
        }
    }
}

/// Defects of the selected dir: damage holds under its own name, warnings are told.
pub fn damage(situation: &Situation<'_>, objections: &mut Objections, warnings: &mut Vec<Reason>) {
    let Some(dir) = situation.dir() else { return };
    for defect in &dir.defects {
        let named = ReasonCode::ALL.iter().copied().find(|code| code.as_str() == defect.code);
        let code = named.unwrap_or_else(|| code_by_part(defect));
        let at = defect.offset.map_or_else(String::new, |offset| format!(" at byte {offset}"));
        let message = format!("`{}`: {} ({}{at})", dir.path, defect.message, defect.file);
        let reason = Reason::new(code, message)
            .with_detail(json!({ "defect": defect.code, "file": defect.file, "offset": defect.offset }));
        match defect.severity {
            Severity::Damage => {
                let kind = if code == ReasonCode::Unreadable { Kind::Unread } else { Kind::Damage };
                objections.add(kind, reason);
            }
            // A finer word than a reason code is for `verify`; an alert needs a page in the manual.
            Severity::Warning if named.is_some() => warnings.push(reason),
            Severity::Warning | Severity::Info => {}
        }
    }
    wal_behind_backend(dir, objections);
    if let Some(fingerprint) = &dir.fingerprint
        && !fingerprint.alarms.is_empty()
    {
        let message = format!("`{}` has the alarm {} set", dir.path, fingerprint.alarms.join(" and "));
        warnings.push(Reason::new(ReasonCode::AlarmSet, message));
    }
}

/// etcd starts on this, calls itself healthy, and applies no write until its WAL has passed the backend again. The reader of
/// the dir says so too; this rule does not depend on it.
fn wal_behind_backend(dir: &DataDirReport, objections: &mut Objections) {
    let Some(fingerprint) = dir.fingerprint.as_ref().filter(|_| !is_damaged(dir)) else { return };
    let (ends, applied) = match (fingerprint.raft.last_index, fingerprint.consistent_index) {
        (Some(last), Some(applied)) if last < applied => (format!("ends at index {last}"), applied),
        (None, Some(applied)) if applied > 0 => ("has no index at all".to_owned(), applied),
        (Some(_) | None, Some(_) | None) => return,
    };
    let message = format!(
        "the WAL of `{}` {ends}, and its backend has applied index {applied}: etcd would lose what is written to it",
        dir.path
    );
    objections.add(Kind::Damage, Reason::new(ReasonCode::WalBehindBackend, message));
}

/// The reason code for a defect whose own word is finer than one, by the part of the dir that the word begins with. A word
/// that this version does not know is *unreadable*: unknown is never healthy.
fn code_by_part(defect: &Defect) -> ReasonCode {
    match defect.code.split('-').next() {
        Some("wal") => ReasonCode::WalDamaged,
        Some("backend") => ReasonCode::BackendDamaged,
        Some("snapshot") => ReasonCode::SnapshotDamaged,
        Some(_) | None => ReasonCode::Unreadable,
    }
}

/// Somebody else's etcd has it.
pub fn in_use(situation: &Situation<'_>, objections: &mut Objections) {
    if let Some(dir) = situation.dir()
        && let Some(pid) = dir.locked_by
    {
        let message = format!("process {pid} holds the lock on `{}`", dir.path);
        objections.add(Kind::Unclear, Reason::new(ReasonCode::DirInUse, message));
    }
}

/// Which dir is meant, and is it there?
pub fn selection(situation: &Situation<'_>, objections: &mut Objections) {
    match situation.selected {
        Selected::Dir(_) => {}
        Selected::Bare { path, by_state: true, there: false } => {
            // A state that announces a new cluster is written before its dir is made.
            let announced = situation.manager_state().is_some_and(|state| state.new_cluster);
            if !announced {
                let beside = match best(&situation.others) {
                    Some(other) => format!("; the volume holds {}", describe::dir(other)),
                    None => String::new(),
                };
                let message = format!(
                    "etcd-manager's `state` says that etcd's data is in `{path}`, and there is no such directory{beside}"
                );
                objections.add(Kind::Vanished, Reason::new(ReasonCode::DataVanished, message));
            }
        }
        Selected::Bare { path: _, by_state: true | false, there: true | false } => {}
        Selected::Nothing => {
            let usable: Vec<&DataDirReport> =
                situation.reading.data_dirs.iter().filter(|dir| !is_archive(dir)).collect();
            // Where `state` could not be read, that is why nothing selects.
            let state_unread = matches!(situation.reading.manager_state, Some(Observed::Unknown(_)));
            if usable.iter().any(|dir| dir.populated) && !state_unread {
                let list: Vec<String> = usable.iter().map(|dir| describe::dir(dir)).collect();
                let message = format!(
                    "nothing says which of these data dirs etcd will open: {}; set `data_dir` for this guard",
                    list.join(", ")
                );
                let detail = json!({ "data_dirs": usable.iter().map(|dir| &dir.path).collect::<Vec<_>>() });
                objections.add(Kind::Unclear, Reason::new(ReasonCode::DataDirAmbiguous, message).with_detail(detail));
            }
        }
    }
}

/// The other dirs that hold more than the selected one, or that it cannot be shown not to be behind, best first.
pub fn ahead<'a>(situation: &Situation<'a>, policy: &StartPolicy) -> Vec<&'a DataDirReport> {
    let mut ahead: Vec<&DataDirReport> =
        situation.others.iter().copied().filter(|other| is_ahead(other, situation.dir(), policy)).collect();
    ahead.sort_by_key(|dir| std::cmp::Reverse(weight(dir)));
    ahead
}

/// Live keys first, then revision, then what is no archive. For choosing whom to name, never for deciding.
fn weight(dir: &DataDirReport) -> (u64, i64, bool) {
    let revision = dir.fingerprint.as_ref().and_then(|fingerprint| fingerprint.revision).unwrap_or(0);
    (Keys::of(dir).all().unwrap_or(0), revision, !is_archive(dir))
}

fn best<'a>(dirs: &[&'a DataDirReport]) -> Option<&'a DataDirReport> {
    dirs.iter().copied().max_by_key(|dir| weight(dir))
}

/// Is `other`, which is populated, ahead of the selected dir?
fn is_ahead(other: &DataDirReport, selected: Option<&DataDirReport>, policy: &StartPolicy) -> bool {
    let Some(selected) = selected.filter(|dir| dir.populated) else { return true };
    let (mine, theirs) = (selected.fingerprint.as_ref(), other.fingerprint.as_ref());
    let one_cluster =
        mine.zip(theirs).filter(|(mine, theirs)| mine.cluster_id.is_some() && mine.cluster_id == theirs.cluster_id);
    let more_keys = match Keys::of(selected).are_far_behind(&Keys::of(other), policy.far_behind_percent) {
        Some(behind) => behind,
        // Keys that nobody could count. Within one cluster the raft index tells; else an archive is taken for what its name
        // says, and anything else is a doubt.
        None => {
            let not_behind = one_cluster.is_some_and(|(mine, theirs)| {
                mine.raft.last_index.zip(theirs.raft.last_index).is_some_and(|(mine, theirs)| mine >= theirs)
            });
            !not_behind && !is_archive(other)
        }
    };
    let later_revision = one_cluster.is_some_and(|(mine, theirs)| match (reachable_revision(mine), theirs.revision) {
        (Some(reachable), Some(revision)) => reachable < revision,
        (Some(_) | None, None) | (None, Some(_)) => false,
    });
    more_keys || later_revision
}

/// Nothing, or far less, in the selected place while another dir holds more.
pub fn beside(
    situation: &Situation<'_>,
    standing: Standing,
    records: &Records,
    policy: &StartPolicy,
    objections: &mut Objections,
) {
    match standing {
        // What was pinned was accepted with all that lies beside it.
        Standing::Continues | Standing::SameIds => return,
        Standing::NotPinned | Standing::ChangedWhileOpen | Standing::Otherwise => {}
    }
    match situation.selected {
        // Nothing is selected and something could be: that is `data-dir-ambiguous`, or `unreadable`.
        Selected::Nothing if situation.reading.data_dirs.iter().any(|dir| !is_archive(dir) && dir.populated) => return,
        Selected::Nothing | Selected::Dir(_) | Selected::Bare { .. } => {}
    }
    let state_unread = matches!(situation.reading.manager_state, Some(Observed::Unknown(_)));
    if situation.damaged() || (state_unread && situation.dir().is_none()) {
        return;
    }
    let ahead = ahead(situation, policy);
    // The dir on record is the one that is meant, whatever else holds more.
    let recorded = ahead.iter().find(|dir| is_recorded(dir, records));
    let Some(best) = recorded.or(ahead.first()) else { return };
    let what = if situation.populated() { "is far behind, or cannot be shown not to be" } else { "holds nothing" };
    let more = match ahead.len() {
        0 | 1 => String::new(),
        more => format!(", and {} more", more.saturating_sub(1)),
    };
    let known = match recorded {
        Some(dir) if !is_archive(dir) => {
            format!(
                "; that is the data on record: name it, `data_dir = {:?}`, or find out who changed the name",
                dir.path
            )
        }
        Some(_) => "; that is the data on record, put away by somebody".to_owned(),
        None => String::new(),
    };
    let message = format!(
        "etcd would start on {}, which {what}, while the volume holds {}{more}{known}",
        situation.selected_in_words(),
        describe::dir(best)
    );
    let detail = json!({
        "selected": situation.dir().map(describe::as_detail),
        "ahead": ahead.iter().map(|dir| describe::as_detail(dir)).collect::<Vec<_>>(),
    });
    objections.add(Kind::BesideOld, Reason::new(ReasonCode::EmptyBesideOld, message).with_detail(detail));
}

/// etcd-manager's own migration or restore: its `state` says so, and the old dir lies complete where it puts old dirs. Then
/// only etcd-manager can end it, and it needs etcd for that: what the migration explains is told, and does not hold.
pub fn migration(
    situation: &Situation<'_>,
    records: &Records,
    objections: &mut Objections,
    warnings: &mut Vec<Reason>,
) -> bool {
    let Some(state) = situation.manager_state() else { return false };
    let EtcdManagerState { empty, new_cluster, cluster_token: _, etcd_version: _, quarantined, nodes: _ } = state;
    let says = if *empty {
        "is empty"
    } else if *new_cluster {
        "announces a new cluster"
    } else if *quarantined {
        "says quarantined"
    } else {
        return false;
    };
    let in_trashcan = |dir: &&DataDirReport| dir.path.starts_with("data-trashcan/") && !is_damaged(dir);
    let all_put_away = !situation.others.is_empty() && situation.others.iter().all(in_trashcan);
    let pinned_is_there = match &records.pin {
        None => true,
        Some(pin) => situation.others.iter().any(|dir| {
            dir.fingerprint.as_ref().is_some_and(|fingerprint| fingerprint.cluster_id == Some(pin.cluster_id))
        }),
    };
    if !all_put_away || !pinned_is_there || !(objections.has(Kind::BesideOld) || objections.has(Kind::Vanished)) {
        return false;
    }
    let old = best(&situation.others).map_or_else(String::new, describe::dir);
    objections.explain_by_migration();
    let message = format!(
        "etcd-manager's `state` {says} and the old data lies complete in {old}: its own migration or restore is under way, \
         which only it can end"
    );
    warnings.push(Reason::new(ReasonCode::MigrationUnderWay, message));
    true
}
