//! What changes on the volume of an open gate, and how bad that is.

use super::{Guard, State};
use crate::model::{DataDirReport, DirRole, Mode, Reason, ReasonCode, StartEvidence, VolumeId, VolumeReading};
use serde_json::json;
use std::collections::BTreeSet;

/// The data dirs that were there when the gate opened, or when a person last answered.
pub(super) type Known = (VolumeId, BTreeSet<String>);

/// Data dirs that were not there when the gate opened, beside another one, and that nothing has put away. Not the one that
/// etcd is to use: whether that may be a new one is for the start rules.
///
/// What is there at a first look is for those rules too; and a person's answer is one about all that is there.
pub(super) fn newcomers(guard: &mut Guard, evidence: &StartEvidence, in_use: Option<&str>) -> Vec<Reason> {
    let (Some(volume), Some(records)) = (evidence.volume.seen(), evidence.records.seen()) else { return Vec::new() };
    let now: BTreeSet<String> = volume.data_dirs.iter().map(|dir| dir.path.clone()).collect();
    let was_looked_at = matches!(guard.state, State::Open { .. }) || guard.policy.mode == Mode::Observe;
    match &guard.known {
        Some((volume_id, known)) if was_looked_at && *volume_id == evidence.volume_id && records.adoption.is_none() => {
            volume.data_dirs.iter().filter_map(|dir| newcomer(dir, known, volume, in_use)).collect()
        }
        Some(_) | None => {
            guard.known = Some((evidence.volume_id.clone(), now));
            Vec::new()
        }
    }
}

fn newcomer(
    dir: &DataDirReport,
    known: &BTreeSet<String>,
    volume: &VolumeReading,
    in_use: Option<&str>,
) -> Option<Reason> {
    let selected = volume.selected.as_ref().map(|selection| selection.path.as_str());
    let own = [selected, in_use].contains(&Some(dir.path.as_str()));
    if dir.role == DirRole::Archive || known.contains(&dir.path) || own {
        return None;
    }
    let old = volume.data_dirs.iter().find(|other| other.path != dir.path && other.populated)?;
    let holds = if dir.populated { "holds data" } else { "holds no data" };
    let message = format!(
        "a second data dir appeared while the gate was open: `{}`, which {holds}, beside `{}`",
        dir.path, old.path
    );
    let detail = json!({ "data_dir": dir.path, "beside": old.path, "fresh": !dir.populated });
    Some(Reason::new(ReasonCode::SecondDataDir, message).with_detail(detail))
}

/// Is this one of the cases in which every further write of an etcd may be one too many? Never what could not be read.
pub fn is_hard(doubt: &Reason) -> bool {
    match doubt.code {
        ReasonCode::EmptyBesideOld
        | ReasonCode::DataVanished
        | ReasonCode::DataReplaced
        | ReasonCode::OtherCluster
        | ReasonCode::OtherMember
        | ReasonCode::IdentityChanged => true,
        ReasonCode::SecondDataDir => doubt.detail.as_ref().is_some_and(|detail| detail["fresh"] == true),
        _anything_else => false,
    }
}

impl Guard {
    /// The gate is open, and this is what speaks against it: what was read of the data, and what the watch has seen.
    pub(super) fn stays_open(&mut self, data_dir: String, mut doubts: Vec<Reason>) {
        doubts.extend(self.watched.iter().cloned());
        self.state = State::Open { data_dir, doubts };
    }

    /// The watch over an open gate tells what it sees now. `true`: that is news.
    pub(super) fn watch_tells(&mut self, seen: Vec<Reason>) -> bool {
        let State::Open { data_dir, doubts } = &self.state else { return false };
        if self.watched == seen {
            return false;
        }
        let (data_dir, mut others) = (data_dir.clone(), doubts.clone());
        others.retain(|doubt| !self.watched.contains(doubt));
        self.watched = seen;
        self.stays_open(data_dir, others);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_seen_to_go_wrong_with_the_data_is_hard() {
        let doubt = |code, detail| Reason { code, message: String::new(), detail };
        let fresh = |fresh: bool| doubt(ReasonCode::SecondDataDir, Some(json!({ "fresh": fresh })));
        // A second dir with data is somebody's copy; an empty one is what an etcd makes that has lost its way.
        assert!(is_hard(&fresh(true)) && !is_hard(&fresh(false)));
        assert!(!is_hard(&doubt(ReasonCode::SecondDataDir, None)));
        for code in [ReasonCode::EmptyBesideOld, ReasonCode::DataVanished, ReasonCode::DataReplaced] {
            assert!(is_hard(&doubt(code, None)), "{code}");
        }
        for code in [ReasonCode::Unreadable, ReasonCode::ReaderFailed, ReasonCode::WentBackwards, ReasonCode::InUse] {
            assert!(!is_hard(&doubt(code, None)), "{code}");
        }
    }
}
