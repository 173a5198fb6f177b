//! Orders: what the agent is to do to a held volume. The plan, the consent, the entry, and what became of it.

use super::{Change, Step, Subject, consent};
use crate::cli::args::Output;
use crate::cli::exit::Exit;
use crate::cli::output::{Context, Failure, put};
use crate::cli::text::{Screen, Tone};
use crate::model::{
    EntryId, Fact, Gate, Mode, Order, Outcome, Time, VolumeChange, VolumeId, outcome_of, pending_orders,
};
use std::time::{Duration, Instant};

/// How long the agent may take: fsck and mount come before.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is agreed to.
pub struct Proposal {
    pub title: String,
    pub facts: Vec<(&'static str, String)>,
    pub changes: Vec<VolumeChange>,
    pub adopt: bool,
    /// What happens after the changes.
    pub then: String,
}

/// What counts as a yes.
pub enum Consent<'a> {
    /// `--yes`: it can be undone.
    Yes(bool),
    /// An id, typed.
    Typed(Option<&'a str>, Vec<String>),
}

/// The volume that an order can be given for now, or why none can.
pub(super) fn orderable(subject: &Subject<'_>) -> Result<VolumeId, Failure> {
    let name = &subject.guard.name;
    if subject.guard.mode == Mode::Observe {
        return Err(Failure::new(Exit::Refused, format!("{name} observes: volhold changes nothing on its volume"))
            .advise("do it by hand where the volume is mounted, with etcd stopped"));
    }
    let gate = subject.status.as_ref().map(|status| status.gate);
    if gate == Some(Gate::Open) {
        return Err(Failure::new(
            Exit::Refused,
            format!("{name} is open: an etcd may be writing, and nothing is moved under it"),
        )
        .advise("stop etcd (and what starts it), unmount the volume, then: volhold retry NAME; or reboot: it is asked again before anything starts"));
    }
    if subject.fs_uuid().is_none() {
        return Err(Failure::new(Exit::TryLater, format!("no filesystem is known on the volume of {name}"))
            .advise(format!("what is there: volhold explain {name}")));
    }
    let reading = subject.ledger.read().map_err(|e| super::ledger_failure(&e))?;
    if let Some((id, _, order)) = pending_orders(&reading.own).first() {
        let words: Vec<String> = order.changes.iter().map(ToString::to_string).collect();
        return Err(Failure::new(
            Exit::TryLater,
            format!("an earlier order ({}) is still to be carried out: {}", id.0, words.join("; ")),
        )
        .advise(format!("volhold retry {name}")));
    }
    subject.volume_needed()
}

/// `20261201T031500Z`, in names of files that stay.
pub fn stamp() -> String {
    Time::now().to_string().chars().filter(|c| !matches!(c, '-' | ':')).collect()
}

/// Prints the plan, asks, records, and waits until the agent says what became of it.
pub(super) fn propose(
    context: &Context,
    subject: &Subject<'_>,
    volume: VolumeId,
    proposal: Proposal,
    agreed: Consent<'_>,
) -> Result<(Exit, Option<Change>), Failure> {
    let steps = steps(subject, &volume, &proposal);
    let table = context.output == Output::Table;
    if table {
        let mut screen = context.screen();
        draw(&mut screen, &proposal, &steps);
        put(&screen.finish())?;
    }
    let confirmed = match agreed {
        Consent::Yes(true) => Ok("yes".to_owned()),
        Consent::Yes(false) => agree(),
        Consent::Typed(given, ids) => consent(given, &ids),
    };
    let confirmed = match confirmed {
        Ok(confirmed) => confirmed,
        Err(refused) => {
            if !table {
                context.print(&subject.change(steps, None), |_| {})?;
            }
            return Err(refused);
        }
    };
    let order = Order { changes: proposal.changes, adopt: proposal.adopt, confirmed };
    let id = subject.record(volume, Fact::Ordered { order })?;
    let mut change = subject.change(steps, Some(id.clone()));
    if !subject.agent.running {
        change.done = false;
        return Ok((Exit::TryLater, Some(change)));
    }
    match awaited(subject, &id)? {
        Some(outcome) => {
            let exit = match &outcome {
                Outcome::Done => Exit::Ok,
                Outcome::NotDone { .. } => Exit::Refused,
            };
            change.done = outcome == Outcome::Done;
            change.outcome = Some(outcome);
            Ok((exit, Some(change)))
        }
        None => {
            change.done = false;
            Ok((Exit::TryLater, Some(change)))
        }
    }
}

/// Says how it ended.
pub fn tell(context: &Context, (exit, change): (Exit, Option<Change>)) -> Result<Exit, Failure> {
    let Some(change) = change else { return Ok(exit) };
    context.print(&change, |screen| {
        let recorded = change.recorded.as_ref().map_or("nothing", |id| id.0.as_str());
        match &change.outcome {
            Some(Outcome::Done) => {
                screen.tone(Tone::Good, &format!("Done; on record as {recorded}."));
                screen.para(0, "The agent has looked at the volume again. What it decided: volhold status");
            }
            Some(Outcome::NotDone { why }) => {
                screen.tone(Tone::Bad, &format!("NOT done ({recorded}): {why}"));
            }
            None if change.agent.running => {
                screen.para(0, &format!("On record as {recorded}; the agent has not come to it yet. See: volhold history"));
            }
            None => screen.para(
                0,
                &format!("On record as {recorded}. The agent is NOT running; it does this when it starts: systemctl start volhold"),
            ),
        }
    })?;
    Ok(exit)
}

fn agree() -> Result<String, Failure> {
    use std::io::IsTerminal;
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        return consent(None, &["yes".to_owned()]);
    }
    Err(Failure::new(Exit::Usage, "consent is missing, nothing was recorded")
        .advise("if this is what you want, add: --yes"))
}

fn steps(subject: &Subject<'_>, volume: &VolumeId, proposal: &Proposal) -> Vec<Step> {
    let mut steps = vec![Step::new("record", true, format!("record the order, for {volume}, in this node's ledger"))];
    steps.push(subject.request_step());
    steps.extend(proposal.changes.iter().map(|change| {
        let action = match change {
            VolumeChange::Quarantine { .. } => "quarantine",
            VolumeChange::GiveBack { .. } => "give-back",
            VolumeChange::Move { .. } => "move",
            VolumeChange::SetState { .. } => "set-state",
        };
        Step::new(action, true, format!("on the volume, by the agent: {change}"))
    }));
    if proposal.adopt {
        steps.push(Step::new("record", true, "record that what is there then is right, as adopt does"));
    }
    steps.push(Step::new("examine", false, proposal.then.clone()));
    steps
}

fn draw(screen: &mut Screen, proposal: &Proposal, steps: &[Step]) {
    screen.tone(Tone::Head, &proposal.title);
    for (name, says) in &proposal.facts {
        screen.hanging(&format!("  {name}"), 16, says);
    }
    screen.blank();
    screen.tone(Tone::Head, "This will");
    for (number, step) in (1_u32..).zip(steps) {
        screen.hanging(&format!("  {number}"), 5, &step.detail);
    }
}

/// What became of the order. The agent writes it into the ledger, which is the only place where it is sure to be. `None`: it
/// has not come to it, or has died; then the next one finishes what this one began.
fn awaited(subject: &Subject<'_>, id: &EntryId) -> Result<Option<Outcome>, Failure> {
    let until = Instant::now().checked_add(PATIENCE);
    loop {
        let reading = subject.ledger.read().map_err(|e| super::ledger_failure(&e))?;
        if let Some(outcome) = outcome_of(&reading.own, id) {
            return Ok(Some(outcome.clone()));
        }
        let runs = crate::cli::status::agent_of(crate::cli::status::read(subject.config)?.as_ref()).running;
        if !runs || until.is_none_or(|until| Instant::now() >= until) {
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
