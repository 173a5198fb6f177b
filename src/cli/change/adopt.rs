//! `adopt NAME`: a person has looked, and says that what is there now is right, or is meant to be new.

use super::{FactToBe, Plan, Step, Subject, plan_and_record};
use crate::cli::args::AdoptArgs;
use crate::cli::exit::Exit;
use crate::cli::manual::{adopt_answers, page};
use crate::cli::output::{Context, Failure};
use crate::cli::status::{data_line, reason_line};
use crate::model::{Adoption, DataDirReport, Reason, ReasonCode};
use crate::record::NodeLedgerError;

pub fn run(context: &Context, args: &AdoptArgs) -> Result<Exit, Failure> {
    let what = match (args.restored, args.new_cluster, args.replacement) {
        (true, _, _) => Adoption::Restored,
        (_, true, _) => Adoption::NewCluster,
        (_, _, true) => Adoption::Replacement,
        (false, false, false) => Adoption::Identity,
    };
    let config = context.config()?;
    let subject = Subject::of(&config, &args.name)?;
    if subject.nothing_speaks_against_it() {
        return Err(Failure::new(Exit::Refused, format!("{} is open and nothing speaks against it", args.name))
            .advise("there is nothing to adopt: an answer now would stand for a question of later"));
    }
    let (plan, ids) = plan(&subject, what)?;
    plan_and_record(context, &subject, plan, args.confirm.as_deref(), &ids)
}

/// The plan, and the ids that count as consent: the volume's, and those of the clusters that this is about.
fn plan(subject: &Subject<'_>, what: Adoption) -> Result<(Plan, Vec<String>), Failure> {
    let volume = subject.volume_needed()?;
    let name = &subject.guard.name;
    let mut ids = vec![volume.to_string()];
    let mut facts = vec![("volume", volume.to_string())];
    let mut steps = Vec::new();

    let sets_ledger_aside = match subject.pin() {
        Ok(Some(pin)) => {
            ids.push(pin.cluster.to_string());
            facts.push(("pinned now", pin.says));
            false
        }
        Ok(None) => {
            facts.push(("pinned now", "nothing, on this node".to_owned()));
            false
        }
        Err(NodeLedgerError::Broken { path, source }) => {
            facts.push(("pinned now", format!("not known: {} is broken ({source})", path.display())));
            steps.push(Step::new("set-aside", true, "put the broken ledger of this node aside, under a dated name"));
            true
        }
        Err(error) => return Err(super::ledger_failure(&error)),
    };
    for dir in dirs(subject) {
        facts.push(("there now", data_line(dir)));
        if let Some(cluster) = dir.fingerprint.as_ref().and_then(|f| f.cluster_id) {
            let id = cluster.to_string();
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
    }
    if !facts.iter().any(|(name, _)| *name == "there now") {
        facts.push(("there now", "no etcd data was seen".to_owned()));
    }
    let reasons = subject.status.as_ref().map(|s| s.reasons.as_slice());
    let reasons = reasons.or_else(|| subject.decision.as_ref().map(|d| d.reasons.as_slice())).unwrap_or_default();
    if let Some(first) = reasons.first()
        && !reasons.iter().any(|r| adopt_answers(r.code))
    {
        // An answer that does not fit now would still stand when it fits something else.
        let cause = page(first.code).cause;
        return Err(Failure::new(Exit::Refused, format!("adopt is no answer to this, nothing was recorded: {cause}"))
            .advise(format!("what is: volhold explain {name}")));
    }
    if let Some(path) = starts_with_nothing(what).then(|| behind(reasons, selected(subject))).flatten() {
        let message = format!(
            "{path} holds data that is older than the record, and this answer says that etcd starts with nothing"
        );
        return Err(Failure::new(Exit::Refused, format!("{message}: nothing was recorded")).advise(format!(
            "to start with nothing, first: volhold quarantine {name} {path}; if this data is meant: volhold adopt {name} --restored"
        )));
    }
    facts.extend(reasons.iter().map(|r| ("held because", reason_line(r))));

    steps.extend(super::snapshot::step(subject, &volume));
    steps.push(Step::new("record", true, format!("record {}, for {volume}, in this node's ledger", words(what))));
    steps.push(subject.request_step());
    steps.push(Step::new("examine", false, consequence(what)));
    let title = format!("Adopt {name}: {}", words(what));
    Ok((Plan { title, facts, steps, volume, fact: FactToBe::Adopted(what), sets_ledger_aside }, ids))
}

fn starts_with_nothing(what: Adoption) -> bool {
    match what {
        Adoption::NewCluster | Adoption::Replacement => true,
        Adoption::Identity | Adoption::Restored => false,
    }
}

/// The selected dir where the very member of the record has gone back in time and still holds data. An answer that puts the
/// record of it away would let etcd start on exactly that. (A member that was added anew is behind the one before it.)
fn behind<'d>(reasons: &[Reason], selected: Option<&'d DataDirReport>) -> Option<&'d str> {
    let has = |code| reasons.iter().any(|reason| reason.code == code);
    let told = has(ReasonCode::WentBackwards) && !has(ReasonCode::OtherMember) && !has(ReasonCode::OtherCluster);
    selected.filter(|dir| told && dir.populated).map(|dir| dir.path.as_str())
}

fn selected<'a>(subject: &'a Subject<'_>) -> Option<&'a DataDirReport> {
    let start = subject.decision.as_ref().and_then(|decision| decision.evidence.start.as_ref());
    match start.and_then(|start| start.volume.seen()) {
        Some(reading) => {
            let path = &reading.selected.as_ref()?.path;
            reading.data_dirs.iter().find(|dir| dir.path == *path)
        }
        None => subject.status.as_ref().and_then(|status| status.data_dir.as_ref()),
    }
}

pub(super) fn dirs<'a>(subject: &'a Subject<'_>) -> Vec<&'a DataDirReport> {
    let start = subject.decision.as_ref().and_then(|d| d.evidence.start.as_ref());
    match start.and_then(|s| s.volume.seen()) {
        Some(reading) => reading.data_dirs.iter().collect(),
        None => subject.status.iter().filter_map(|s| s.data_dir.as_ref()).collect(),
    }
}

fn words(what: Adoption) -> &'static str {
    match what {
        Adoption::Identity => "that what is there now is right",
        Adoption::Restored => "that this volume was restored on purpose",
        Adoption::NewCluster => "that a new cluster is meant to start here",
        Adoption::Replacement => "that this member is meant to start empty and rejoin",
    }
}

fn consequence(what: Adoption) -> &'static str {
    match what {
        Adoption::Identity => {
            "the agent examines the volume again and, if it is healthy, pins what it finds and opens the gate"
        }
        Adoption::Restored => {
            "the agent examines the volume again and, if it is healthy, pins its state and opens the gate"
        }
        Adoption::NewCluster => {
            "the agent lets an etcd start on nothing, once; what older data there is stays where it is"
        }
        Adoption::Replacement => {
            "the agent lets this etcd start on nothing, once; it has to be removed from its cluster and added again first"
        }
    }
}
