//! From the data dirs to the open gate, and what is told while it is open.

use super::beside::newcomers;
use super::{Action, Decided, Failure, Guard, Place, State};
use crate::decide::start::may_start;
use crate::model::{
    DecisionVerdict, Fact, HighWater, Mode, Observed, Reason, ReasonCode, Records, StartEvidence, StartKind,
    StartVerdict,
};

pub(super) fn on_looked(guard: &mut Guard, evidence: StartEvidence) -> Vec<Action> {
    let verdict = may_start(&evidence, &guard.policy.start);
    guard.start = Some(evidence.clone());
    guard.verdict = Some(verdict.clone());
    let mounted_already = guard.found.as_ref().is_some_and(|found| found.place == Place::Mounted);
    match (guard.policy.mode, verdict) {
        (Mode::Observe, StartVerdict::Hold { reasons }) => guard.observed(reasons),
        (Mode::Observe, StartVerdict::Start { warnings, how, data_dir }) => {
            guard.warnings = warnings;
            let facts = facts_of(how, &data_dir, &evidence);
            let mut actions = vec![Action::Record(facts)];
            let beside = newcomers(guard, &evidence, Some(&data_dir));
            actions.extend(guard.observed(beside));
            actions
        }
        (Mode::Enforce, StartVerdict::Start { how, data_dir, warnings }) => {
            guard.warnings = warnings;
            let was_open = match &guard.state {
                State::Open { data_dir, .. } => Some(data_dir.clone()),
                State::Discovering
                | State::Attaching { .. }
                | State::Examining
                | State::Formatting
                | State::Inspecting
                | State::Publishing
                | State::Held { .. }
                | State::Observing { .. } => None,
            };
            let mut facts = facts_of(how, &data_dir, &evidence);
            if was_open.is_some() || guard.gate_was_open() {
                // Still the allowance that the gate was opened with. Said again at every look, it would fill both ledgers for as
                // long as etcd writes nothing.
                facts.retain(|fact| !is_fresh_allowed(fact));
            }
            let mut doubts = doubts_about(how, &guard.warnings);
            doubts.extend(newcomers(guard, &evidence, Some(&data_dir)));
            let decision = |guard: &Guard| if guard.would_hold() { doubted(guard) } else { opened(guard) };
            if let Some(opened_for) = was_open {
                // What etcd moved to in doubt is not what the gate was opened for.
                let data_dir = if doubts.is_empty() { data_dir } else { opened_for };
                guard.stays_open(data_dir.clone(), doubts);
                // Renewed: the ready file may have gone with the run dir.
                vec![decision(guard), Action::OpenGate { facts, data_dir, how }]
            } else if mounted_already {
                guard.stays_open(data_dir.clone(), doubts);
                vec![decision(guard), Action::OpenGate { facts, data_dir, how }]
            } else {
                guard.state = State::Publishing;
                // An adopted empty place is a fresh start too; a dir that is there stays as it is.
                let create = matches!(how, StartKind::Fresh | StartKind::Adopted);
                vec![opened(guard), Action::Publish { facts, data_dir, create }]
            }
        }
        (Mode::Enforce, StartVerdict::Hold { reasons }) => {
            let open_dir = match &guard.state {
                State::Open { data_dir, .. } => Some(data_dir.clone()),
                State::Discovering
                | State::Attaching { .. }
                | State::Examining
                | State::Formatting
                | State::Inspecting
                | State::Publishing
                | State::Held { .. }
                | State::Observing { .. } => {
                    let selected = evidence.volume.seen().and_then(|volume| volume.selected.as_ref());
                    let dir = selected.map(|selection| selection.path.clone());
                    let dir = dir.or_else(|| guard.policy.start.data_dir.clone()).unwrap_or_else(|| ".".to_owned());
                    guard.gate_was_open().then_some(dir)
                }
            };
            match open_dir {
                // The gate was opened before: told loudly, never closed.
                Some(data_dir) => {
                    let mut doubts = reasons;
                    doubts.extend(newcomers(guard, &evidence, Some(&data_dir)));
                    guard.stays_open(data_dir.clone(), doubts);
                    vec![doubted(guard), Action::OpenGate { facts: Vec::new(), data_dir, how: StartKind::Running }]
                }
                None => guard.hold(reasons, Action::Secure),
            }
        }
    }
}

pub(super) fn on_published(guard: &mut Guard) -> Vec<Action> {
    if guard.state != State::Publishing {
        return Vec::new();
    }
    match &guard.verdict {
        Some(StartVerdict::Start { how, data_dir, .. }) => {
            let (how, data_dir) = (*how, data_dir.clone());
            guard.stays_open(data_dir.clone(), Vec::new());
            vec![Action::OpenGate { facts: Vec::new(), data_dir, how }]
        }
        Some(StartVerdict::Hold { .. }) | None => Vec::new(),
    }
}

/// What is missing of an open gate's directories could not be put back: told, and the gate stays as it is.
pub(super) fn on_unpublished(guard: &mut Guard, failure: Failure) -> Vec<Action> {
    let data_dir = match &guard.verdict {
        Some(StartVerdict::Start { data_dir, .. }) if guard.gate_was_open() => data_dir.clone(),
        Some(_) | None => return guard.fail(failure),
    };
    guard.stays_open(data_dir, vec![failure.reason]);
    vec![doubted(guard)]
}

/// The decision to open, kept before the gate opens.
fn opened(guard: &Guard) -> Action {
    Action::Decide(Box::new(Decided {
        verdict: DecisionVerdict::Opened,
        reasons: Vec::new(),
        warnings: guard.warnings.clone(),
        evidence: guard.evidence(),
        not_done: guard.did.no_fsck.map(str::to_owned).into_iter().collect(),
    }))
}

fn doubted(guard: &Guard) -> Action {
    Action::Decide(Box::new(Decided {
        verdict: DecisionVerdict::WouldHold,
        reasons: guard.reasons().to_vec(),
        warnings: guard.warnings.clone(),
        evidence: guard.evidence(),
        not_done: vec!["the gate was open already: it was not closed, and etcd was not stopped".to_owned()],
    }))
}

/// An etcd that runs is never stopped, but what would have held it is a doubt and no remark: an empty etcd that was started
/// beside the old data is to be seen now.
fn doubts_about(how: StartKind, warnings: &[Reason]) -> Vec<Reason> {
    const HOLD: &[ReasonCode] = &[
        ReasonCode::WrongVolume,
        ReasonCode::RestoredVolume,
        ReasonCode::FilesystemReplaced,
        ReasonCode::DataVanished,
        ReasonCode::EmptyBesideOld,
        ReasonCode::DataDirAmbiguous,
        ReasonCode::OtherCluster,
        ReasonCode::OtherMember,
    ];
    if how != StartKind::Running {
        return Vec::new();
    }
    warnings.iter().filter(|warning| HOLD.contains(&warning.code)).cloned().collect()
}

fn is_fresh_allowed(fact: &Fact) -> bool {
    matches!(fact, Fact::FreshAllowed { .. })
}

/// What a start is to be remembered by: whose data it is, and that there is data. How far it got follows as marks, once
/// that is durable.
fn facts_of(how: StartKind, data_dir: &str, evidence: &StartEvidence) -> Vec<Fact> {
    let records = match &evidence.records {
        Observed::Seen(records) => records,
        Observed::Unknown(_) => return Vec::new(),
    };
    let because = match how {
        StartKind::Fresh => return vec![Fact::FreshAllowed { data_dir: data_dir.to_owned() }],
        // Only a person or etcd-manager can end these; the pin stays as it is.
        StartKind::MigrationUnderWay | StartKind::IdentityChanged => return Vec::new(),
        StartKind::Adopted => "adopted",
        StartKind::FirstUse | StartKind::Running => "first-use",
        StartKind::Continues => "grown-here",
    };
    let report = match &evidence.volume {
        Observed::Seen(volume) => volume.data_dirs.iter().find(|dir| dir.path == data_dir),
        Observed::Unknown(_) => None,
    };
    let fingerprint = report.and_then(|report| report.fingerprint.as_ref());
    let ids = fingerprint.and_then(|print| Some((print.cluster_id?, print.member_id?)));
    let mut facts = Vec::new();
    if records.pin.is_none() || how == StartKind::Adopted {
        match ids {
            Some((cluster_id, member_id)) => facts.push(Fact::Pinned {
                cluster_id,
                member_id,
                name: fingerprint.and_then(|print| print.name.clone()),
                data_dir: data_dir.to_owned(),
                because: because.to_owned(),
            }),
            // An adopted dir without ids is an allowed fresh start.
            None if how == StartKind::Adopted => facts.push(Fact::FreshAllowed { data_dir: data_dir.to_owned() }),
            None => {}
        }
    }
    let populated = report.is_some_and(|report| report.populated);
    if populated && (records.held_data_at.is_none() || how == StartKind::Adopted) {
        facts.push(Fact::HoldsData {
            mark: HighWater {
                data_dir: data_dir.to_owned(),
                cluster_id: ids.map(|(cluster_id, _)| cluster_id),
                member_id: ids.map(|(_, member_id)| member_id),
                term: None,
                consistent_index: None,
                revision: None,
                wal_last_index: None,
                keys: fingerprint.and_then(|print| print.keys),
            },
        });
    }
    facts
}

/// The data dir is empty while the gate is open, and a record says that it held data: told now, not at the next boot.
fn vanished(guard: &mut Guard, data_dir: &str, records: &Records) -> Vec<Action> {
    let Some(at) = records.held_data_at else { return Vec::new() };
    // A look has said more of it already.
    const SAID: &[ReasonCode] =
        &[ReasonCode::DataVanished, ReasonCode::DataReplaced, ReasonCode::EmptyBesideOld, ReasonCode::DataDirAmbiguous];
    if guard.reasons().iter().any(|reason| SAID.contains(&reason.code)) {
        return Vec::new();
    }
    let message = format!("`{data_dir}` held data at {at} and is empty now, while its gate is open");
    guard.stays_open(data_dir.to_owned(), vec![Reason::new(ReasonCode::DataVanished, message)]);
    vec![doubted(guard)]
}

/// What the watch sees, besides what is read of the data.
pub(super) fn on_watched(guard: &mut Guard, seen: Vec<Reason>) -> Vec<Action> {
    match guard.watch_tells(seen) {
        true if guard.would_hold() => vec![doubted(guard)],
        true => vec![opened(guard)],
        false => Vec::new(),
    }
}

/// A mark while the gate is open: identity at once, progress as a high-water mark.
pub(super) fn on_marked(
    guard: &mut Guard,
    mark: Observed<Option<HighWater>>,
    records: Observed<Records>,
) -> Vec<Action> {
    let State::Open { data_dir, .. } = &guard.state else { return Vec::new() };
    let data_dir = data_dir.clone();
    // What is unknown while the gate is open is no progress, and closes nothing.
    let (Observed::Seen(mark), Observed::Seen(records)) = (mark, records) else { return Vec::new() };
    let Some(mark) = mark else { return vanished(guard, &data_dir, &records) };
    let (Some(cluster_id), Some(member_id)) = (mark.cluster_id, mark.member_id) else { return Vec::new() };
    let mut facts = Vec::new();
    match &records.pin {
        None => facts.push(Fact::Pinned {
            cluster_id,
            member_id,
            name: None,
            data_dir: data_dir.clone(),
            because: "grown-here".to_owned(),
        }),
        Some(pin) if (pin.cluster_id, pin.member_id) != (cluster_id, member_id) => {
            let message = format!(
                "the identity changed while the gate was open: cluster {} member {} became cluster {cluster_id} member \
                 {member_id}",
                pin.cluster_id, pin.member_id
            );
            let known = records.identity_changed == Some((cluster_id, member_id));
            guard.stays_open(data_dir, vec![Reason::new(ReasonCode::IdentityChanged, message)]);
            if known {
                return Vec::new();
            }
            let fact = Fact::IdentityChanged {
                from_cluster: pin.cluster_id,
                from_member: pin.member_id,
                to_cluster: cluster_id,
                to_member: member_id,
            };
            return vec![Action::Record(vec![fact]), doubted(guard)];
        }
        Some(_same) => {}
    }
    let holds = mark.keys.unwrap_or(0) > 0;
    let further = match &records.high_water {
        None => true,
        Some(last) => {
            mark.consistent_index > last.consistent_index
                || mark.term > last.term
                || mark.revision > last.revision
                || mark.wal_last_index > last.wal_last_index
        }
    };
    if holds && further {
        facts.push(Fact::HoldsData { mark });
    }
    if facts.is_empty() { Vec::new() } else { vec![Action::Record(facts)] }
}
