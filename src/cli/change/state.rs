//! `state set NAME`: edits etcd-manager's `state` on a held volume.

use super::Subject;
use super::order::{Consent, Proposal, orderable, propose, stamp, tell};
use crate::cli::args::StateSetArgs;
use crate::cli::exit::Exit;
use crate::cli::explain::why_line;
use crate::cli::output::{Context, Failure};
use crate::model::{EtcdManagerState, Observed, StateEdit, VolumeChange, VolumeReading};

pub fn set(context: &Context, args: &StateSetArgs) -> Result<Exit, Failure> {
    let StateSetArgs { name, token, version, new_cluster, quarantined, yes } = args;
    let edit = StateEdit {
        token: token.clone(),
        version: version.clone(),
        new_cluster: *new_cluster,
        quarantined: *quarantined,
    };
    if edit.is_empty() {
        return Err(Failure::new(Exit::Usage, "nothing is to be set")
            .advise("name at least one of --token, --version, --new-cluster, --quarantined"));
    }
    let config = context.config()?;
    let subject = Subject::of(&config, name)?;
    let volume = orderable(&subject)?;
    let now = manager_state(reading(&subject)?)?;
    let proposal = Proposal {
        title: format!("Set etcd-manager's state of {name}"),
        facts: vec![("volume", volume.to_string()), ("says now", words(now))],
        changes: vec![VolumeChange::SetState { edit, keep: keep() }],
        adopt: false,
        then: "the agent reads the state back, examines the volume again, and decides by its rules".to_owned(),
    };
    tell(context, propose(context, &subject, volume, proposal, Consent::Yes(*yes))?)
}

/// The name under which the old one stays.
pub fn keep() -> String {
    format!("state.{}", stamp())
}

/// What the agent last saw on the volume.
pub(super) fn reading<'a>(subject: &'a Subject<'_>) -> Result<&'a VolumeReading, Failure> {
    let start = subject.decision.as_ref().and_then(|decision| decision.evidence.start.as_ref());
    start.and_then(|start| start.volume.seen()).ok_or_else(|| {
        Failure::new(Exit::TryLater, format!("what is on the volume of {} was not read yet", subject.guard.name))
            .advise(format!("why: volhold explain {}", subject.guard.name))
    })
}

pub(super) fn manager_state(reading: &VolumeReading) -> Result<&EtcdManagerState, Failure> {
    match &reading.manager_state {
        Some(Observed::Seen(state)) if state.nodes.is_empty() => Err(Failure::new(
            Exit::Refused,
            "the file state names no node: etcd-manager could start no member with it",
        )
        .advise(
            "etcd-manager itself empties it when it stops a member; keep a copy of an older state, if there is one",
        )),
        Some(Observed::Seen(state)) => Ok(state),
        Some(Observed::Unknown(why)) => Err(Failure::new(Exit::Refused, format!("the file state: {}", why_line(why)))),
        None => Err(Failure::new(Exit::NoMatch, "the volume has no file state: etcd-manager has never run on it")),
    }
}

pub fn words(state: &EtcdManagerState) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let yes = |value| if value { "yes" } else { "no" };
    format!(
        "cluster token {}, etcd version {}, new cluster {}, quarantined {}",
        or_none(&state.cluster_token),
        or_none(&state.etcd_version),
        yes(state.new_cluster),
        yes(state.quarantined)
    )
}
