//! The verbs that put a person's word on record: `adopt`, `release`, `retry`, `unpin`, and those that order something to be
//! done to a held volume.
//!
//! None of them touches a volume itself. Each appends one entry to this node's ledger and leaves a request in the run folder,
//! which makes the agent look again; what follows is the agent's decision, by its rules. Where the word can do harm, the
//! plan is printed first and a typed id is the consent; without it nothing is recorded.

pub mod adopt;
mod order;
pub mod quarantine;
pub mod release;
pub mod rollback;
pub mod snapshot;
pub mod state;
pub mod unpin;

use super::exit::Exit;
use super::explain;
use super::output::{AS_ROOT, Context, Failure, diagnose, io_failure, put};
use super::status::agent_of;
use super::text::{Screen, Tone, clean};
use crate::config::{Config, GuardConfig};
use crate::gate::files::post_request;
use crate::model::{
    Adoption, AgentFacts, BootMillis, ClusterId, Decision, Entry, EntryId, Fact, FsUuid, GuardName, GuardStatus,
    Outcome, Time, VolumeId,
};
use crate::record::{NodeLedger, NodeLedgerError, boot_id, machine_id};
use serde::Serialize;
use std::io::{BufRead, IsTerminal};

/// The document of a changing verb, `-o json`.
#[derive(Debug, Serialize)]
pub struct Change {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    guard: GuardName,
    steps: Vec<Step>,
    done: bool,
    /// The ledger entry that says so; `null` where nothing was recorded.
    recorded: Option<EntryId>,
    /// The snapshot that was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
    /// What became of an order; not there where none was given, or it is not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    agent: AgentFacts,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    pub action: &'static str,
    pub detail: String,
    /// Writes to something that outlives the verb.
    pub writes: bool,
}

impl Step {
    pub fn new(action: &'static str, writes: bool, detail: impl Into<String>) -> Self {
        Step { action, detail: detail.into(), writes }
    }
}

/// What is known about a guard when a person speaks about it.
struct Subject<'a> {
    config: &'a Config,
    guard: &'a GuardConfig,
    status: Option<GuardStatus>,
    decision: Option<Decision>,
    agent: AgentFacts,
    ledger: NodeLedger,
    machine_id: String,
}

impl<'a> Subject<'a> {
    fn of(config: &'a Config, name: &GuardName) -> Result<Self, Failure> {
        let guard = explain::known(config, name)?;
        let status = super::status::read(config)?;
        let agent = agent_of(status.as_ref());
        let status = status.and_then(|s| s.guards.into_iter().find(|g| &g.name == name));
        let decision = explain::decision(config, name)?;
        let machine_id = machine_id(&config.paths.state)
            .map_err(|e| Failure::new(Exit::Error, "cannot tell which machine this is").because(&e))?;
        let ledger = NodeLedger::at(&config.paths.state, name, &machine_id);
        Ok(Subject { config, guard, status, decision, agent, ledger, machine_id })
    }

    /// A running agent shows an open gate without doubt or warning.
    fn nothing_speaks_against_it(&self) -> bool {
        let open = self.status.as_ref().is_some_and(|s| {
            s.gate == crate::model::Gate::Open
                && s.mode == crate::model::Mode::Enforce
                && s.reasons.is_empty()
                && s.warnings.is_empty()
        });
        self.agent.running && open
    }

    /// The volume as the agent last saw it.
    fn volume(&self) -> Option<VolumeId> {
        let facts = self.decision.as_ref().map(|d| &d.evidence);
        self.status
            .as_ref()
            .and_then(|s| s.volume.clone())
            .or_else(|| facts.and_then(|f| f.device.as_ref()).map(|d| d.volume_id.clone()))
            .or_else(|| facts.and_then(|f| f.start.as_ref()).map(|s| s.volume_id.clone()))
    }

    /// The same, for verbs that speak about one certain volume.
    fn volume_needed(&self) -> Result<VolumeId, Failure> {
        self.volume().ok_or_else(|| {
            Failure::new(Exit::TryLater, format!("no volume is known for {} yet", self.guard.name))
                .advise("the agent has to find it first: volhold status")
        })
    }

    fn fs_uuid(&self) -> Option<FsUuid> {
        let reading = self.decision.as_ref().and_then(|d| d.evidence.reading.as_ref());
        self.status
            .as_ref()
            .and_then(|s| s.fs_uuid)
            .or_else(|| reading.and_then(|r| r.filesystem.as_ref()).and_then(|f| f.uuid))
    }

    /// The latest pin on this node, as the ledger has it.
    fn pin(&self) -> Result<Option<PinnedIdentity>, NodeLedgerError> {
        let reading = self.ledger.read()?;
        Ok(reading.own.iter().rev().find_map(|(_, entry)| match &entry.fact {
            Fact::Pinned { cluster_id, member_id, name, data_dir, because: _ } => Some(PinnedIdentity {
                cluster: *cluster_id,
                says: format!(
                    "cluster {cluster_id}, member {}{member_id} in {data_dir}, since {}",
                    name.as_ref().map_or_else(String::new, |n| format!("{n} ")),
                    super::text::moment(entry.time)
                ),
            }),
            Fact::FormatIntent { .. }
            | Fact::Formatted { .. }
            | Fact::FreshAllowed { .. }
            | Fact::HoldsData { .. }
            | Fact::IdentityChanged { .. }
            | Fact::Adopted { .. }
            | Fact::Released { .. }
            | Fact::Retried
            | Fact::Unpinned { .. }
            | Fact::Ordered { .. }
            | Fact::Carried { .. }
            | Fact::Enabled { .. }
            | Fact::Disabled
            | Fact::Bypassed { .. }
            | Fact::Fsck { .. }
            | Fact::NotChecked { .. }
            | Fact::Snapshot { .. }
            | Fact::Grow { .. }
            | Fact::Restarted { .. }
            | Fact::Halted { .. }
            | Fact::Published { .. }
            | Fact::Decided { .. } => None,
        }))
    }

    /// Appends the fact, and asks the agent to look.
    fn record(&self, volume_id: VolumeId, fact: Fact) -> Result<EntryId, Failure> {
        let id = self.append(volume_id, fact)?;
        post_request(&self.config.paths.run, &self.guard.name).map_err(|e| {
            super::status::gate_failure("it is on record, but the request for the agent cannot be written", &e)
                .advise("the agent takes it at its next start: systemctl restart volhold")
        })?;
        Ok(id)
    }

    fn append(&self, volume_id: VolumeId, fact: Fact) -> Result<EntryId, Failure> {
        let boot_id = boot_id().map_err(|e| Failure::new(Exit::Error, "cannot tell which boot this is").because(&e))?;
        let entry = Entry {
            time: Time::now(),
            boot_id,
            machine_id: self.machine_id.clone(),
            guard: self.guard.name.clone(),
            volume_id,
            fs_uuid: self.fs_uuid(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            fact,
        };
        self.ledger.append(&entry).map_err(|e| ledger_failure(&e))
    }

    /// The volume; where the device was never there, what was configured stands for it.
    fn volume_or_configured(&self) -> VolumeId {
        self.volume().unwrap_or_else(|| self.guard.device.unseen_id())
    }

    fn change(&self, steps: Vec<Step>, recorded: Option<EntryId>) -> Change {
        Change {
            api_version: "volhold/v1",
            kind: "Change",
            guard: self.guard.name.clone(),
            steps,
            done: recorded.is_some(),
            recorded,
            snapshot: None,
            outcome: None,
            agent: self.agent.clone(),
        }
    }

    fn request_step(&self) -> Step {
        let detail = if self.agent.running {
            "ask the agent to look at this guard now".to_owned()
        } else {
            "leave a request; the agent is NOT running and takes it when it starts (systemctl start volhold)".to_owned()
        };
        Step::new("request", true, detail)
    }
}

struct PinnedIdentity {
    cluster: ClusterId,
    says: String,
}

pub fn ledger_failure(error: &NodeLedgerError) -> Failure {
    let denied = matches!(error, NodeLedgerError::Io { source, .. }
        if source.kind() == std::io::ErrorKind::PermissionDenied);
    let exit = if denied { Exit::NoPermission } else { Exit::Error };
    let failure = Failure::new(exit, "nothing was recorded").because(error);
    if denied { failure.advise(AS_ROOT) } else { failure }
}

/// Was the consent given? `ids` are the ones that count; any of them will do.
///
/// On a terminal it is asked for; elsewhere `--confirm` has to carry it. A wrong id is no consent, and no second try: who
/// types another volume's id is at the wrong guard.
fn consent(given: Option<&str>, ids: &[String]) -> Result<String, Failure> {
    let wanted = ids.join(" or ");
    let typed = match given {
        Some(id) => id.to_owned(),
        None if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() => {
            diagnose(&format!("\nTo go on, type {}: ", clean(&wanted)));
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map_err(|e| io_failure("cannot read your answer", &e))?;
            line.trim().to_owned()
        }
        None => {
            return Err(Failure::new(Exit::Usage, "consent is missing, nothing was recorded")
                .advise(format!("if this is what you want, add: --confirm {wanted}")));
        }
    };
    if ids.contains(&typed) {
        Ok(typed)
    } else {
        let typed = if typed.is_empty() { "nothing".to_owned() } else { format!("`{typed}`") };
        Err(Failure::new(Exit::Usage, "the id is another one, nothing was recorded")
            .advise(format!("typed: {typed}; expected: {wanted}")))
    }
}

/// Prints the plan, asks, records, and says what is on record now. `facts` is what a person should see before agreeing.
fn plan_and_record(
    context: &Context,
    subject: &Subject<'_>,
    plan: Plan,
    given: Option<&str>,
    ids: &[String],
) -> Result<Exit, Failure> {
    let table = context.output == super::args::Output::Table;
    if table {
        let mut screen = context.screen();
        plan.draw(&mut screen);
        put(&screen.finish())?;
    }
    let confirmed = match consent(given, ids) {
        Ok(confirmed) => confirmed,
        Err(refused) => {
            if !table {
                context.print(&subject.change(plan.steps, None), |_| {})?;
            }
            return Err(refused);
        }
    };
    match plan.fact {
        FactToBe::Adopted(_) => snapshot::before_adopt(subject, &plan.volume)?,
        FactToBe::Released(..) | FactToBe::Unpinned => {}
    }
    if plan.sets_ledger_aside {
        subject.ledger.set_aside().map_err(|e| ledger_failure(&e))?;
    }
    let id = subject.record(plan.volume, plan.fact.with(confirmed))?;
    finish(context, subject, plan.steps, id)
}

fn finish(context: &Context, subject: &Subject<'_>, steps: Vec<Step>, id: EntryId) -> Result<Exit, Failure> {
    let change = subject.change(steps, Some(id.clone()));
    context.print(&change, |screen| {
        screen.tone(Tone::Good, &format!("On record as {}.", id.0));
        if subject.agent.running {
            screen.para(0, "The agent looks at it now. What it decides: volhold status");
        } else {
            screen.para(0, "The agent is NOT running; it takes this when it starts: systemctl start volhold");
        }
    })?;
    Ok(Exit::Ok)
}

/// What a verb is about to do.
struct Plan {
    title: String,
    /// What is known now: a name and what it says.
    facts: Vec<(&'static str, String)>,
    steps: Vec<Step>,
    volume: VolumeId,
    fact: FactToBe,
    sets_ledger_aside: bool,
}

/// The entry, but for what is typed.
enum FactToBe {
    Adopted(Adoption),
    Released(Time, Option<BootMillis>),
    Unpinned,
}

impl FactToBe {
    fn with(self, confirmed: String) -> Fact {
        match self {
            FactToBe::Adopted(what) => Fact::Adopted { what, confirmed },
            FactToBe::Released(until, until_boot) => Fact::Released { until, until_boot },
            FactToBe::Unpinned => Fact::Unpinned { confirmed },
        }
    }
}

impl Plan {
    fn draw(&self, screen: &mut Screen) {
        screen.tone(Tone::Head, &self.title);
        for (name, says) in &self.facts {
            screen.hanging(&format!("  {name}"), 16, says);
        }
        screen.blank();
        screen.tone(Tone::Head, "This will");
        for (number, step) in (1_u32..).zip(&self.steps) {
            screen.hanging(&format!("  {number}"), 5, &step.detail);
        }
    }
}

/// Puts on record what a verb has done to a guard; nobody has to look at anything because of it.
pub fn told(config: &Config, name: &GuardName, fact: Fact) -> Result<EntryId, Failure> {
    let subject = Subject::of(config, name)?;
    subject.append(subject.volume_or_configured(), fact)
}

/// `retry NAME`: asks for a new look. Harmless, so nobody is asked.
pub fn retry(context: &Context, name: &GuardName) -> Result<Exit, Failure> {
    let config = context.config()?;
    let subject = Subject::of(&config, name)?;
    let steps = vec![
        Step::new("record", true, format!("record that a new look at {name} was asked for")),
        subject.request_step(),
    ];
    let id = subject.record(subject.volume_or_configured(), Fact::Retried)?;
    finish(context, &subject, steps, id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_of_the_ids_in_full_is_consent() {
        let ids = ["vol-0a".to_owned(), "cdf8".to_owned()];
        assert_eq!(consent(Some("vol-0a"), &ids).unwrap(), "vol-0a");
        assert_eq!(consent(Some("cdf8"), &ids).unwrap(), "cdf8");
        for wrong in ["", "vol-0", "vol-0a ", "VOL-0A", "yes", "vol-0a or cdf8"] {
            assert_eq!(consent(Some(wrong), &ids).unwrap_err().exit, Exit::Usage, "{wrong:?}");
        }
    }

    #[test]
    fn nothing_is_consent_where_no_id_is_known() {
        assert_eq!(consent(Some(""), &[]).unwrap_err().exit, Exit::Usage);
    }
}
