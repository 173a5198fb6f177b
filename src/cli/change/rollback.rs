//! `rollback NAME --to DIR`: back to the old data dir, where a new one was started beside it. The new one goes into
//! quarantine, the old one gets the place that etcd will look in, etcd-manager's `state` names it again.

use super::Subject;
use super::order::{Consent, Proposal, orderable, propose, tell};
use super::quarantine::entry_name;
use super::state::{keep, manager_state, reading, words};
use crate::cli::args::RollbackArgs;
use crate::cli::exit::Exit;
use crate::cli::output::{Context, Failure};
use crate::cli::status::{data_line, reason_line};
use crate::model::{
    DataDirReport, EtcdGeneration, EtcdManagerState, Fingerprint, Reason, ReasonCode, SelectedBy, Severity, StateEdit,
    VolumeChange, VolumeReading,
};

/// What etcd-manager calls the cluster that it takes over from the days before it.
const LEGACY_TOKEN: &str = "etcd-cluster-token-etcd";
/// The only etcd 2 that kops has ever run under etcd-manager.
const LAST_ETCD_2: &str = "2.2.1";

pub fn run(context: &Context, args: &RollbackArgs) -> Result<Exit, Failure> {
    let config = context.config()?;
    let subject = Subject::of(&config, &args.name)?;
    let volume = orderable(&subject)?;
    let reasons = reasons(&subject);
    if !reasons.iter().any(|reason| answers(reason.code)) {
        let held = reasons.first().map_or_else(|| "it is not held".to_owned(), reason_line);
        return Err(Failure::new(
            Exit::Refused,
            format!("rollback is no answer to this, nothing was recorded: {held}"),
        )
        .advise(format!("what is: volhold explain {}", args.name)));
    }
    let reading = reading(&subject)?;
    let target = target(reading, &args.to)?;
    let Way { changes, state } = way(reading, target, args.version.as_deref())?;

    let mut ids = vec![volume.to_string()];
    let mut facts = vec![("volume", volume.to_string()), ("back to", data_line(target))];
    let selected = selected(reading);
    facts.extend(selected.map(|dir| ("away from", data_line(dir))));
    facts.extend(state.map(|state| ("state says", words(state))));
    facts.extend(reasons.iter().map(|reason| ("held because", reason_line(reason))));
    ids.extend(target.fingerprint.as_ref().and_then(|print| print.cluster_id).map(|id| id.to_string()));
    let adopt = !is_pinned(&subject, target.fingerprint.as_ref());
    let mut then = "the agent reads the volume again and, if the old dir is healthy, opens the gate on it".to_owned();
    if state.is_some() {
        then.push_str(
            ". etcd-manager follows its cluster spec: set etcdClusters[].version in kops back as well, or it migrates again",
        );
    }
    let proposal =
        Proposal { title: format!("Roll {} back to {}", args.name, target.path), facts, changes, adopt, then };
    tell(context, propose(context, &subject, volume, proposal, Consent::Typed(args.confirm.as_deref(), ids))?)
}

fn reasons(subject: &Subject<'_>) -> Vec<Reason> {
    match (&subject.status, &subject.decision) {
        (Some(status), _) => status.reasons.clone(),
        (None, Some(decision)) => decision.reasons.clone(),
        (None, None) => Vec::new(),
    }
}

/// Holds of which the cause is that etcd would start on another dir than the one with the data.
fn answers(code: ReasonCode) -> bool {
    matches!(
        code,
        ReasonCode::EmptyBesideOld
            | ReasonCode::DataVanished
            | ReasonCode::OtherCluster
            | ReasonCode::OtherMember
            | ReasonCode::WentBackwards
            | ReasonCode::MigrationUnderWay
    )
}

fn selected(reading: &VolumeReading) -> Option<&DataDirReport> {
    let path = &reading.selected.as_ref()?.path;
    reading.data_dirs.iter().find(|dir| dir.path == *path)
}

/// The dir to go back to: there, with data, and whole as far as the quick look can tell.
fn target<'a>(reading: &'a VolumeReading, wanted: &str) -> Result<&'a DataDirReport, Failure> {
    let wanted = wanted.trim_end_matches('/').trim_start_matches("./");
    let Some(dir) = reading.data_dirs.iter().find(|dir| dir.path == wanted) else {
        let there: Vec<&str> = reading.data_dirs.iter().map(|dir| dir.path.as_str()).collect();
        return Err(Failure::new(Exit::NoMatch, format!("there is no data dir {wanted} on the volume"))
            .advise(format!("data dirs, relative to the volume's root: {}", there.join(", "))));
    };
    if reading.selected.as_ref().is_some_and(|selection| selection.path == dir.path) {
        return Err(Failure::new(Exit::Refused, format!("{wanted} is the dir that is selected already")));
    }
    if dir.path.starts_with(".volhold/") {
        return Err(Failure::new(Exit::Refused, format!("{wanted} lies in quarantine"))
            .advise("give it back first: volhold quarantine restore NAME ENTRY --to PATH"));
    }
    let whole = match dir.etcd {
        EtcdGeneration::V2 | EtcdGeneration::V3 => dir.populated,
        EtcdGeneration::Empty | EtcdGeneration::None => false,
    };
    if !whole {
        return Err(Failure::new(Exit::Refused, format!("{wanted} holds no data to go back to")));
    }
    if let Some(defect) = dir.defects.iter().find(|defect| defect.severity == Severity::Damage) {
        return Err(Failure::new(Exit::Refused, format!("{wanted} is damaged: {}", defect.message))
            .advise("etcd would not start on it, or lose writes; restore from a backup instead"));
    }
    Ok(dir)
}

struct Way<'a> {
    changes: Vec<VolumeChange>,
    state: Option<&'a EtcdManagerState>,
}

/// From what is selected now to what shall be.
fn way<'a>(reading: &'a VolumeReading, target: &DataDirReport, version: Option<&str>) -> Result<Way<'a>, Failure> {
    let Some(selection) = &reading.selected else {
        return Err(Failure::new(Exit::Refused, "nothing says which data dir etcd would use")
            .advise("name the right one as data_dir of the guard, and in etcd's own configuration"));
    };
    let mut changes = Vec::new();
    if selection.exists {
        changes.push(VolumeChange::Quarantine { path: selection.path.clone(), name: entry_name(&selection.path) });
    }
    let (place, state) = match selection.by {
        SelectedBy::Config | SelectedBy::OnlyOne => (selection.path.clone(), None),
        SelectedBy::State => {
            let state = manager_state(reading)?;
            let token = token_of(&target.path);
            let edit = StateEdit {
                token: Some(token.clone()),
                version: version_for(state, target, version)?,
                new_cluster: Some(false),
                quarantined: Some(false),
            };
            (format!("data/{token}"), Some((state, edit)))
        }
    };
    if place != target.path {
        let taken = reading.data_dirs.iter().any(|dir| dir.path == place) && place != selection.path;
        if taken {
            return Err(Failure::new(Exit::Refused, format!("{place}, where {} has to go, is taken", target.path))
                .advise(format!("put that aside first: volhold quarantine NAME {place}")));
        }
        changes.push(VolumeChange::Move { from: target.path.clone(), to: place });
    }
    let state = state.map(|(state, edit)| {
        changes.push(VolumeChange::SetState { edit, keep: keep() });
        state
    });
    Ok(Way { changes, state })
}

fn token_of(path: &str) -> String {
    let name = path.strip_prefix("data/").or_else(|| path.strip_prefix("data-trashcan/"));
    name.filter(|name| !name.contains('/')).unwrap_or(LEGACY_TOKEN).to_owned()
}

/// The version that etcd-manager is to run on the old dir; `None`: the one that `state` names already.
fn version_for(
    state: &EtcdManagerState,
    target: &DataDirReport,
    given: Option<&str>,
) -> Result<Option<String>, Failure> {
    if let Some(given) = given {
        return Ok(Some(given.to_owned()));
    }
    let now = state.etcd_version.as_deref().unwrap_or_default().trim_start_matches('v');
    let minor = |version: &str| version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    let data = target.fingerprint.as_ref().and_then(|print| print.cluster_version.as_deref());
    match (target.etcd, data) {
        (EtcdGeneration::V2, _) if now.starts_with("2.") => Ok(None),
        (EtcdGeneration::V2, _) => Ok(Some(LAST_ETCD_2.to_owned())),
        (_, Some(data)) if minor(data) == minor(now) => Ok(None),
        (_, data) => {
            let (data, now) = (data.unwrap_or("an unknown version"), if now.is_empty() { "none" } else { now });
            Err(Failure::new(
                Exit::Usage,
                format!("{} was written by etcd of {data}, and the state names {now}", target.path),
            )
            .advise("say which etcd is to run on it: --version 3.4.13"))
        }
    }
}

/// The record expects exactly this identity already.
fn is_pinned(subject: &Subject<'_>, print: Option<&Fingerprint>) -> bool {
    let start = subject.decision.as_ref().and_then(|decision| decision.evidence.start.as_ref());
    let records = start.and_then(|start| start.records.seen());
    match (records.and_then(|records| records.pin.as_ref()), print) {
        (Some(pin), Some(print)) => print.cluster_id == Some(pin.cluster_id) && print.member_id == Some(pin.member_id),
        // Nothing is pinned: what is healthy is trusted at first use.
        (None, _) => true,
        (Some(_), None) => false,
    }
}
