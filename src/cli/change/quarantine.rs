//! `quarantine NAME PATH`, `quarantine list`, `quarantine restore`: out of the way, and back. Nothing is deleted.

use super::Subject;
use super::order::{Consent, Proposal, orderable, propose, stamp, tell};
use crate::cli::args::{QuarantineArgs, QuarantineVerb};
use crate::cli::exit::Exit;
use crate::cli::output::{Context, Failure};
use crate::cli::status::data_line;
use crate::cli::text::{Tone, moment};
use crate::model::{Entry, EntryId, Fact, GuardName, Outcome, Time, VolumeChange, VolumeId, outcome_of};
use serde::Serialize;

pub fn run(context: &Context, args: &QuarantineArgs) -> Result<Exit, Failure> {
    match (&args.verb, &args.name, &args.path) {
        (Some(QuarantineVerb::List { name }), _, _) => list(context, name),
        (Some(QuarantineVerb::Restore { name, entry, to, yes }), _, _) => {
            restore(context, name, entry, to.as_deref(), *yes)
        }
        (None, Some(name), Some(path)) => put(context, name, path, args.yes),
        (None, None, _) | (None, _, None) => Err(Failure::new(Exit::Usage, "name a guard, and what to put aside")),
    }
}

fn put(context: &Context, name: &GuardName, path: &str, yes: bool) -> Result<Exit, Failure> {
    let config = context.config()?;
    let subject = Subject::of(&config, name)?;
    let volume = orderable(&subject)?;
    let path = path.trim_end_matches('/').trim_start_matches("./");
    let mut facts = vec![("volume", volume.to_string())];
    facts.extend(
        super::adopt::dirs(&subject).into_iter().filter(|dir| dir.path == path).map(|d| ("there now", data_line(d))),
    );
    let proposal = Proposal {
        title: format!("Quarantine {path} of {name}"),
        facts,
        changes: vec![VolumeChange::Quarantine { path: path.to_owned(), name: entry_name(path) }],
        adopt: false,
        then: "the agent examines the volume again, and decides by its rules".to_owned(),
    };
    tell(context, propose(context, &subject, volume, proposal, Consent::Yes(yes))?)
}

/// `<date>-<what>`.
pub fn entry_name(path: &str) -> String {
    let what: String = path
        .rsplit('/')
        .next()
        .unwrap_or(path)
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' })
        .take(100)
        .collect();
    format!("{}-{what}", stamp())
}

/// What lies in quarantine, by this node's ledger.
#[derive(Debug, Clone, Serialize)]
struct Kept {
    name: String,
    /// Where it was.
    from: String,
    volume: VolumeId,
    since: Time,
    order: EntryId,
}

#[derive(Debug, Serialize)]
struct Quarantine {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    guard: GuardName,
    entries: Vec<Kept>,
}

fn list(context: &Context, name: &GuardName) -> Result<Exit, Failure> {
    let config = context.config()?;
    let subject = Subject::of(&config, name)?;
    let reading = subject.ledger.read().map_err(|e| super::ledger_failure(&e))?;
    let entries = kept(&reading.own);
    let document = Quarantine { api_version: "volhold/v1", kind: "Quarantine", guard: name.clone(), entries };
    context.print(&document, |screen| {
        if document.entries.is_empty() {
            screen.para(0, "Nothing of this guard lies in quarantine, as far as this node knows.");
            return;
        }
        let longest = document.entries.iter().map(|kept| kept.name.len()).max().unwrap_or(0).saturating_add(2);
        screen.cells(Some(Tone::Head), &[(longest, "NAME"), (22, "SINCE"), (24, "VOLUME"), (0, "FROM")]);
        for kept in &document.entries {
            let (since, volume) = (moment(kept.since), kept.volume.to_string());
            screen.cells(None, &[(longest, &kept.name), (22, &since), (24, &volume), (0, &kept.from)]);
        }
        screen.para(0, "On the volume: .volhold/quarantine/NAME/content, with manifest.json beside it.");
    })?;
    Ok(Exit::Ok)
}

/// Orders that were done, one after the other.
fn kept(own: &[(EntryId, Entry)]) -> Vec<Kept> {
    let mut kept: Vec<Kept> = Vec::new();
    for (id, entry) in own {
        let order = match &entry.fact {
            Fact::Ordered { order } if outcome_of(own, id) == Some(&Outcome::Done) => order,
            _other => continue,
        };
        for change in &order.changes {
            match change {
                VolumeChange::Quarantine { path, name } => kept.push(Kept {
                    name: name.clone(),
                    from: path.clone(),
                    volume: entry.volume_id.clone(),
                    since: entry.time,
                    order: id.clone(),
                }),
                VolumeChange::GiveBack { name, .. } => kept.retain(|other| other.name != *name),
                VolumeChange::Move { .. } | VolumeChange::SetState { .. } => {}
            }
        }
    }
    kept
}

fn restore(context: &Context, name: &GuardName, entry: &str, to: Option<&str>, yes: bool) -> Result<Exit, Failure> {
    let config = context.config()?;
    let subject = Subject::of(&config, name)?;
    let volume = orderable(&subject)?;
    let reading = subject.ledger.read().map_err(|e| super::ledger_failure(&e))?;
    let known = kept(&reading.own).into_iter().find(|kept| kept.name == entry);
    let to = match (to, &known) {
        (Some(to), _) => to.to_owned(),
        (None, Some(known)) => known.from.clone(),
        (None, None) => {
            return Err(Failure::new(
                Exit::NoMatch,
                format!("this node knows no `{entry}` in the quarantine of {name}"),
            )
            .advise(format!("volhold quarantine list {name}; or say where it belongs: --to PATH")));
        }
    };
    let mut facts = vec![("volume", volume.to_string())];
    facts.extend(known.map(|known| ("was", format!("{}, put aside {}", known.from, moment(known.since)))));
    let proposal = Proposal {
        title: format!("Give {entry} of {name} back"),
        facts,
        changes: vec![VolumeChange::GiveBack { name: entry.to_owned(), to }],
        adopt: false,
        then: "the agent examines the volume again, and decides by its rules".to_owned(),
    };
    tell(context, propose(context, &subject, volume, proposal, Consent::Yes(yes))?)
}
