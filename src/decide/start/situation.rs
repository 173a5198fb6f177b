//! Which dir etcd would open, and what else lies on the volume.

use super::words::counted;
use crate::model::{
    DataDirReport, DirRole, EtcdGeneration, EtcdManagerState, Fingerprint, Observed, Records, Severity, StartPolicy,
    VolumeReading,
};

/// The dir that etcd would open.
#[derive(Debug, Clone, Copy)]
pub enum Selected<'a> {
    /// A data dir.
    Dir(&'a DataDirReport),
    /// Something names this path, and there is no data dir: an empty directory (`there`), or none at all.
    Bare { path: &'a str, by_state: bool, there: bool },
    /// Nothing says which.
    Nothing,
}

/// One look at the volume, taken apart.
pub struct Situation<'a> {
    pub reading: &'a VolumeReading,
    pub selected: Selected<'a>,
    /// Every populated dir but the selected one.
    pub others: Vec<&'a DataDirReport>,
}

impl<'a> Situation<'a> {
    pub fn of(reading: &'a VolumeReading, records: &'a Records) -> Self {
        // A report of no data dir is an empty directory, unless something about it is wrong: then it is not known to be one.
        let is_one = |dir: &DataDirReport| dir.etcd != EtcdGeneration::None || dir.populated || !dir.defects.is_empty();
        let dir = |path: &str| reading.data_dirs.iter().find(|dir| dir.path == path && is_one(dir));
        let selected = match &reading.selected {
            Some(selection) => match dir(&selection.path) {
                Some(dir) if selection.exists => Selected::Dir(dir),
                Some(_) | None => Selected::Bare {
                    path: &selection.path,
                    by_state: selection.by == crate::model::SelectedBy::State,
                    there: selection.exists,
                },
            },
            // Nothing selects: the dir that was pinned is the one that etcd opened last.
            None => match records.pin.as_ref().and_then(|pin| dir(&pin.data_dir)) {
                Some(dir) => Selected::Dir(dir),
                None => Selected::Nothing,
            },
        };
        let selected_path = match selected {
            Selected::Dir(dir) => Some(dir.path.as_str()),
            Selected::Bare { .. } | Selected::Nothing => None,
        };
        let others =
            reading.data_dirs.iter().filter(|dir| dir.populated && Some(dir.path.as_str()) != selected_path).collect();
        Situation { reading, selected, others }
    }

    pub fn dir(&self) -> Option<&'a DataDirReport> {
        match self.selected {
            Selected::Dir(dir) => Some(dir),
            Selected::Bare { .. } | Selected::Nothing => None,
        }
    }

    pub fn fingerprint(&self) -> Option<&'a Fingerprint> {
        self.dir().and_then(|dir| dir.fingerprint.as_ref())
    }

    /// The selected dir holds data.
    pub fn populated(&self) -> bool {
        self.dir().is_some_and(|dir| dir.populated)
    }

    /// The selected dir is damaged: what it does not show is no absence.
    pub fn damaged(&self) -> bool {
        self.dir().is_some_and(is_damaged)
    }

    /// etcd-manager's `state`, where it could be read.
    pub fn manager_state(&self) -> Option<&'a EtcdManagerState> {
        self.reading.manager_state.as_ref().and_then(Observed::seen)
    }

    /// Could everything be looked at that the question "is there nothing?" needs?
    pub fn all_read(&self) -> bool {
        let state_read = match &self.reading.manager_state {
            None | Some(Observed::Seen(_)) => true,
            Some(Observed::Unknown(_)) => false,
        };
        self.reading.unreadable.is_empty() && self.reading.beyond.is_empty() && state_read && !self.damaged()
    }

    /// The path to tell, relative to the volume's root.
    pub fn data_dir(&self, policy: &StartPolicy) -> String {
        match self.selected {
            Selected::Dir(dir) => dir.path.clone(),
            Selected::Bare { path, .. } => path.to_owned(),
            Selected::Nothing => unselected(policy),
        }
    }

    /// The selected place in words: "`data/x` (etcd 3, cluster 1f, 0 live keys, revision 1)".
    pub fn selected_in_words(&self) -> String {
        match self.selected {
            Selected::Dir(dir) => super::describe::dir(dir),
            Selected::Bare { path, there: true, .. } => format!("`{path}` (an empty directory)"),
            Selected::Bare { path, there: false, .. } => format!("`{path}` (which does not exist)"),
            Selected::Nothing => format!("the volume ({} that could be used)", counted(0, "data dir")),
        }
    }
}

/// The data dir where nothing on the volume selects one: the configured one, else the root of what is published first.
pub fn unselected(policy: &StartPolicy) -> String {
    policy.data_dir.as_ref().or_else(|| policy.publish.first()).cloned().unwrap_or_else(|| ".".to_owned())
}

pub fn is_damaged(dir: &DataDirReport) -> bool {
    dir.defects.iter().any(|defect| defect.severity == Severity::Damage)
}

pub fn is_archive(dir: &DataDirReport) -> bool {
    match dir.role {
        DirRole::Archive => true,
        DirRole::Selected | DirRole::Candidate | DirRole::Legacy => false,
    }
}

/// How far the WAL can carry the revision beyond the backend's: each entry raises it by at most one.
pub fn reachable_revision(fingerprint: &Fingerprint) -> Option<i64> {
    let revision = fingerprint.revision?;
    let entries = match (fingerprint.raft.last_index, fingerprint.consistent_index) {
        (Some(last), Some(applied)) => last.saturating_sub(applied),
        // Nothing was applied yet, or nothing is known: then nothing is promised.
        (Some(_) | None, None) | (None, Some(_)) => 0,
    };
    Some(revision.saturating_add(i64::try_from(entries).unwrap_or(i64::MAX)))
}
