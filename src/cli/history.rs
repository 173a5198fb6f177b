//! `volhold history [NAME]`: what was decided and done, from the node's ledger, oldest first. Needs no agent and no network.

use super::exit::Exit;
use super::explain;
use super::manual;
use super::output::{Context, Failure};
use super::text::{Screen, Tone, bytes, clean, moment};
use crate::config::{Config, GuardConfig};
use crate::model::{BootId, Entry, EntryId, Fact, GuardName, ReasonCode, Time};
use crate::record::{NodeLedger, machine_id};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct History {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    entries: Vec<Line>,
}

/// One entry of a ledger, decisions and acts alike.
#[derive(Debug, Serialize)]
pub struct Line {
    id: EntryId,
    time: Time,
    boot_id: BootId,
    guard: GuardName,
    /// What was decided or done: the kind of the entry, or for a verdict what it was about.
    decision: String,
    verdict: String,
    reasons: Vec<Because>,
    evidence_digest: Option<String>,
    version: String,
    /// The entry was written by another machine (an image was made of its disk): no memory of this node.
    foreign: bool,
}

#[derive(Debug, Serialize)]
struct Because {
    code: String,
    /// What the code means; the sentence of that day is in the decision that `explain` shows.
    message: String,
}

/// Prints the entries of one guard, or of all, in the order in which each guard's were written.
pub fn run(context: &Context, name: Option<&GuardName>) -> Result<Exit, Failure> {
    let config = context.config()?;
    let guards: Vec<&GuardConfig> = match name {
        Some(name) => vec![explain::known(&config, name)?],
        None => config.guards.iter().collect(),
    };
    let mut entries = Vec::new();
    for guard in guards {
        entries.extend(lines(&config, guard)?);
    }
    let document = History { api_version: "volhold/v1", kind: "History", entries };
    context.print(&document, |screen| draw(screen, &document))?;
    Ok(Exit::Ok)
}

/// What one guard's ledger on this node says.
pub fn lines(config: &Config, guard: &GuardConfig) -> Result<Vec<Line>, Failure> {
    let machine = machine_id(&config.paths.state)
        .map_err(|e| Failure::new(Exit::Error, "cannot tell which machine this is").because(&e))?;
    let reading = NodeLedger::at(&config.paths.state, &guard.name, &machine)
        .read()
        .map_err(|error| super::change::ledger_failure(&error))?;
    let own = reading.own.into_iter().map(|(id, entry)| line(id, entry, false));
    let foreign = reading.foreign.into_iter().map(|(id, entry)| line(id, entry, true));
    Ok(own.chain(foreign).collect())
}

fn line(id: EntryId, entry: Entry, foreign: bool) -> Line {
    let Entry { time, boot_id, machine_id: _, guard, volume_id: _, fs_uuid: _, version, fact } = entry;
    let decision = fact.word().to_owned();
    let (verdict, codes, evidence_digest) = match fact {
        Fact::Decided { decision: _, verdict, codes, evidence_digest } => (verdict, codes, Some(evidence_digest)),
        Fact::FormatIntent { fs_uuid, evidence_digest, .. } => {
            (format!("begins with UUID {fs_uuid}"), Vec::new(), Some(evidence_digest))
        }
        Fact::Formatted { fs_uuid } => (format!("done: {fs_uuid}"), Vec::new(), None),
        Fact::FreshAllowed { data_dir } => (format!("etcd may start on nothing in {data_dir}"), Vec::new(), None),
        Fact::Pinned { cluster_id, member_id, data_dir, because, .. } => {
            let what = format!("cluster {cluster_id} member {member_id} in {data_dir} ({because})");
            (what, Vec::new(), None)
        }
        Fact::HoldsData { mark } => {
            let revision = mark.revision.map_or_else(String::new, |revision| format!(" at revision {revision}"));
            (format!("{} holds data{revision}", mark.data_dir), Vec::new(), None)
        }
        Fact::IdentityChanged { from_cluster, to_cluster, .. } => {
            let codes = vec![ReasonCode::IdentityChanged.as_str().to_owned()];
            (format!("cluster {from_cluster} became {to_cluster}"), codes, None)
        }
        Fact::Adopted { what, confirmed } => {
            let what = match what {
                crate::model::Adoption::Identity => "what is there",
                crate::model::Adoption::Restored => "a restored volume",
                crate::model::Adoption::NewCluster => "a new cluster",
                crate::model::Adoption::Replacement => "an empty member",
            };
            (format!("{what}, confirmed by {confirmed}"), Vec::new(), None)
        }
        Fact::Released { until, until_boot: _ } => (format!("until {until}"), Vec::new(), None),
        Fact::Retried => ("asked for a new look".to_owned(), Vec::new(), None),
        Fact::Unpinned { confirmed } => {
            (format!("the pin does not count any more, confirmed by {confirmed}"), Vec::new(), None)
        }
        Fact::Ordered { order } => {
            let words: Vec<String> = order.changes.iter().map(ToString::to_string).collect();
            (format!("ordered: {}; confirmed by {}", words.join("; "), order.confirmed), Vec::new(), None)
        }
        Fact::Carried { order, outcome } => (format!("{}: {outcome}", order.0), Vec::new(), None),
        Fact::Enabled { preset } => (format!("etcd's start waits for the gate ({preset})"), Vec::new(), None),
        Fact::Disabled => ("nothing waits for the gate any more".to_owned(), Vec::new(), None),
        Fact::Bypassed { note } => (note, Vec::new(), None),
        Fact::Fsck { exit: None, .. } => ("begins".to_owned(), Vec::new(), None),
        Fact::Fsck { exit: Some(exit), .. } => (format!("exit {exit}"), Vec::new(), None),
        Fact::Snapshot { id, before } => (format!("{id}, before: {before}"), Vec::new(), None),
        Fact::Grow { from, to, done } => {
            let how = if done { "grew" } else { "grows" };
            (format!("{how} from {} to {}", bytes(from), bytes(to)), Vec::new(), None)
        }
        Fact::Halted { what, codes } => (format!("halts {what}"), codes.clone(), None),
        Fact::Restarted { what, pid } => (format!("ends {what}, process {pid}"), Vec::new(), None),
        Fact::NotChecked { why } => (why, Vec::new(), None),
        Fact::Published { at, .. } => (format!("at {at}"), Vec::new(), None),
    };
    let reasons = codes
        .into_iter()
        .map(|code| {
            let known = ReasonCode::ALL.iter().find(|known| known.as_str() == code);
            let message =
                known.map_or_else(|| "a code of another version".to_owned(), |c| manual::page(*c).cause.into());
            Because { code, message }
        })
        .collect();
    Line { id, time, boot_id, guard, decision, verdict, reasons, evidence_digest, version, foreign }
}

fn draw(screen: &mut Screen, document: &History) {
    if document.entries.is_empty() {
        screen.para(0, "Nothing was decided on this node yet.");
        return;
    }
    // One guard needs no column of its own.
    let many =
        document.entries.iter().any(|line| document.entries.first().is_some_and(|first| first.guard != line.guard));
    let longest = document.entries.iter().map(|line| line.guard.as_str().len()).max().unwrap_or(0);
    let guard_width = if many { longest.clamp(5, 30).saturating_add(2) } else { 0 };
    let head = if many { "GUARD" } else { "" };
    screen.cells(Some(Tone::Head), &[(22, "TIME"), (guard_width, head), (10, "WHAT"), (0, "HOW IT ENDED")]);
    for line in &document.entries {
        let codes: Vec<&str> = line.reasons.iter().map(|reason| reason.code.as_str()).collect();
        let mut verdict = clean(&line.verdict);
        if !codes.is_empty() {
            verdict.push_str(&format!(" [{}]", codes.join(", ")));
        }
        if line.foreign {
            verdict.push_str(" (by another machine)");
        }
        let time = moment(line.time);
        let guard = if many { line.guard.as_str() } else { "" };
        let lead = format!("{time:<22}{guard:<guard_width$}{:<9}", clean(&line.decision));
        screen.hanging(&lead, guard_width.saturating_add(32), &verdict);
    }
}
