//! Whole data dirs and single files of etcd, for the verbs that look at them.

use super::parent::{Flatten, conclude, run};
use super::{Deadline, Line, Request};
use crate::model::{DataDirFacts, EtcdFile, EtcdManagerState, HashAnswer, HashQuestion, Observed, StateEdit};
use std::os::fd::OwnedFd;

/// All facts of one data dir. `progress` hears how many pages of the backend were read, of how many.
pub async fn facts(dir: OwnedFd, deadline: Deadline, mut progress: impl FnMut(u64, u64)) -> Observed<DataDirFacts> {
    let mut seen = None;
    let outcome = run(dir, &Request::Facts, deadline, |line| match line {
        Line::Facts(answer) => seen = Some(*answer),
        Line::Pages { done, total } => progress(done, total),
        _ => {}
    })
    .await;
    conclude(outcome, seen)
}

/// HashKV of one data dir at a revision, as after a compaction.
pub async fn hash(
    dir: OwnedFd,
    question: HashQuestion,
    deadline: Deadline,
    mut progress: impl FnMut(u64, u64),
) -> Observed<Option<HashAnswer>> {
    let mut seen = None;
    let outcome = run(dir, &Request::Hash(question), deadline, |line| match line {
        Line::Hash(answer) => seen = Some(answer),
        Line::Pages { done, total } => progress(done, total),
        _ => {}
    })
    .await;
    conclude(outcome, seen)
}

/// A file by itself; `None`: it is none of etcd's.
pub async fn etcd_file(
    file: OwnedFd,
    named_db: bool,
    deadline: Deadline,
    mut progress: impl FnMut(u64, u64),
) -> Observed<Option<EtcdFile>> {
    let mut seen = None;
    let outcome = run(file, &Request::File { named_db }, deadline, |line| match line {
        Line::File(answer) => seen = Some(answer),
        Line::Pages { done, total } => progress(done, total),
        _ => {}
    })
    .await;
    conclude(outcome, seen).and_then_observed()
}

/// etcd-manager's `state`.
pub async fn state(file: OwnedFd, deadline: Deadline) -> Observed<EtcdManagerState> {
    let mut seen = None;
    let outcome = run(file, &Request::State, deadline, |line| {
        if let Line::State(answer) = line {
            seen = Some(answer);
        }
    })
    .await;
    conclude(outcome, seen).and_then_observed()
}

/// The bytes of etcd-manager's `state` with an edit made; nothing is written.
pub async fn edited_state(file: OwnedFd, edit: &StateEdit, deadline: Deadline) -> Observed<Vec<u8>> {
    let mut seen = None;
    let outcome = run(file, &Request::EditState(edit.clone()), deadline, |line| {
        if let Line::EditedState(answer) = line {
            seen = Some(answer);
        }
    })
    .await;
    conclude(outcome, seen).and_then_observed()
}
