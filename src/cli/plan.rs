//! `volhold plan [NAME]`: what the next look would do, step by step, and what it would come to. Changes nothing.

pub mod repair;
pub mod restore;
mod way;

use super::exit::Exit;
use super::explain;
use super::output::{Context, Failure, diagnose};
use super::status::{agent_of, data_line, gate_word, reason_line};
use super::text::{Screen, Tone, bytes};
use crate::agent::plan;
use crate::config::GuardConfig;
use crate::model::{AgentFacts, Foreseen, GuardName, GuardPlan, GuardStatus, Mode, PlanVerdict};
use crate::record::boot_id;
use serde::Serialize;
use std::io::IsTerminal;

/// The document of `plan -o json`.
#[derive(Debug, Serialize)]
struct Document {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    agent: AgentFacts,
    guards: Vec<Planned>,
}

/// One guard: where it stands by the agent's word, and its plan.
#[derive(Debug, Serialize)]
struct Planned {
    #[serde(flatten)]
    plan: GuardPlan,
    /// What the agent says of it now; `None`: it has said nothing since this machine started.
    now: Option<GuardStatus>,
}

pub fn run(context: &Context, name: Option<&GuardName>) -> Result<Exit, Failure> {
    super::agent::needs_root("read devices and records")?;
    let config = context.config()?;
    let guards: Vec<&GuardConfig> = match name {
        Some(name) => vec![explain::known(&config, name)?],
        None => config.guards.iter().collect(),
    };
    let boot_id = boot_id().map_err(|e| Failure::new(Exit::Error, "cannot tell which boot this is").because(&e))?;
    let status = super::status::read(&config)?;
    let agent = agent_of(status.as_ref());
    let show = std::io::stderr().is_terminal();
    let mut told = 0;
    let plans = plan::plan(&config, &guards, &boot_id, &mut |done, total| {
        let percent = u128::from(done).saturating_mul(100).checked_div(u128::from(total)).unwrap_or(0);
        if show && percent != told {
            told = percent;
            diagnose(&format!("\rreading {}: {percent}% ", bytes(total)));
        }
    })
    .map_err(|error| Failure::new(Exit::Error, "nothing can be planned").because(&error))?;
    if told > 0 {
        diagnose("\r                                        \r");
    }
    let reported = status.map(|status| status.guards).unwrap_or_default();
    let guards = plans
        .into_iter()
        .map(|plan| Planned { now: reported.iter().find(|guard| guard.name == plan.name).cloned(), plan })
        .collect();
    let document = Document { api_version: "volhold/v1", kind: "Plan", agent, guards };
    context.print(&document, |screen| draw(screen, &document))?;
    Ok(exit(&document.guards))
}

/// Held outweighs unknown.
fn exit(guards: &[Planned]) -> Exit {
    let verdicts: Vec<PlanVerdict> = guards
        .iter()
        .flat_map(|guard| [Some(&guard.plan.next_look), guard.plan.next_boot.as_ref()])
        .flatten()
        .map(|foreseen| foreseen.verdict)
        .collect();
    if verdicts.iter().any(|verdict| matches!(verdict, PlanVerdict::WouldHold | PlanVerdict::WouldDoubt)) {
        Exit::Held
    } else if verdicts.contains(&PlanVerdict::Unknown) {
        Exit::TryLater
    } else {
        Exit::Ok
    }
}

fn draw(screen: &mut Screen, document: &Document) {
    if document.guards.is_empty() {
        screen.para(0, "No guard is configured, so nothing would be done.");
        return;
    }
    for (number, guard) in document.guards.iter().enumerate() {
        if number > 0 {
            screen.blank();
        }
        draw_guard(screen, guard, &document.agent);
    }
    screen.blank();
    screen.para(0, "W writes to the device. The plan itself changed nothing: it claims, mounts and writes nothing.");
}

fn draw_guard(screen: &mut Screen, guard: &Planned, agent: &AgentFacts) {
    let plan = &guard.plan;
    let (tone, words) = headline(plan);
    screen.tone(tone, &format!("{} {words}", plan.name));
    if plan.mode == Mode::Observe {
        screen.para(0, "This guard observes, so none of it is done; with mode = \"enforce\" it would be.");
    }
    screen.para(0, &now(guard, agent));
    screen.blank();
    let title = if agent.running { "At the next look" } else { "When the agent starts" };
    draw_steps(screen, title, &plan.next_look);
    if let Some(boot) = &plan.next_boot {
        screen.blank();
        draw_steps(screen, "After the next boot, shut down in order and with the data as it is now", boot);
    }
}

fn now(guard: &Planned, agent: &AgentFacts) -> String {
    match (&guard.now, agent.running) {
        (Some(now), true) => {
            let first = now.reasons.first().map_or_else(String::new, |reason| format!(", {}", reason.code));
            format!("Now: {}{first}; the agent runs.", gate_word(now))
        }
        (Some(now), false) => format!("Now: the agent does not run; it left this guard {}.", gate_word(now)),
        (None, true) => "Now: the agent runs, and has said nothing of this guard.".to_owned(),
        (None, false) => "Now: no agent has run since this machine started.".to_owned(),
    }
}

fn draw_steps(screen: &mut Screen, title: &str, foreseen: &Foreseen) {
    screen.tone(Tone::Head, title);
    for (number, step) in foreseen.steps.iter().enumerate() {
        let number = number.saturating_add(1);
        let writes = if step.writes { "W" } else { " " };
        screen.hanging(&format!("  {number:>2} {writes} {:<11}", step.action.word()), 18, &step.detail);
    }
    if let Some(why) = &foreseen.unknown {
        screen.hanging("   ?   ends here", 18, why);
    }
    for reason in foreseen.reasons.iter() {
        screen.hanging("  -", 4, &reason_line(reason));
    }
    for warning in &foreseen.warnings {
        screen.hanging("  warning", 11, &reason_line(warning));
    }
    if let Some(dir) = &foreseen.data_dir {
        screen.hanging("  data", 11, &data_line(dir));
    }
}

fn headline(plan: &GuardPlan) -> (Tone, String) {
    let first = |foreseen: &Foreseen| foreseen.reasons.first().map_or_else(String::new, reason_line);
    let look = &plan.next_look;
    match (look.verdict, &plan.next_boot) {
        (PlanVerdict::WouldHold, _) => (Tone::Bad, format!("would be HELD: {}", first(look))),
        (PlanVerdict::WouldDoubt, _) => (Tone::Bad, format!("stays open, in doubt: {}", first(look))),
        (PlanVerdict::Unknown, _) => {
            let why = look.unknown.as_deref().unwrap_or("no decision is come to");
            (Tone::Warn, format!("is NOT KNOWN before it is done: {why}"))
        }
        (PlanVerdict::WouldOpen, None) => (Tone::Good, "would OPEN.".to_owned()),
        (PlanVerdict::WouldOpen, Some(boot)) => match boot.verdict {
            PlanVerdict::WouldOpen => (Tone::Good, "is open, and would OPEN again after a reboot.".to_owned()),
            PlanVerdict::WouldHold | PlanVerdict::WouldDoubt => {
                (Tone::Bad, format!("is open, but would be HELD after a reboot: {}", first(boot)))
            }
            PlanVerdict::Unknown => {
                (Tone::Warn, "is open; what comes after a reboot is not known before it is done.".to_owned())
            }
        },
    }
}
