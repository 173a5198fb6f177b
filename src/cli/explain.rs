//! `volhold explain`: why a guard is where it is, from what lies on this node. No agent, no network.
//!
//! The screen answers in the order in which a person asks at night: what is the matter, is my data still there, what would
//! have happened, what was not done, what do I type. The last decision gives the evidence, the status file what holds now,
//! the manual the rest.

mod evidence;

pub use evidence::{EvidenceLine, device_lines, dir_lines, finding_title, reading_lines, why_line};

use super::args::ExplainArgs;
use super::exit::Exit;
use super::manual::{Names, Page, Severity, page};
use super::output::{AS_ROOT, Context, Failure};
use super::status::{agent_of, reason_line};
use super::text::{Screen, Tone, bytes, since};
use crate::config::{Config, GuardConfig};
use crate::model::{
    AgentFacts, Decision, DecisionEvidence, DecisionVerdict, Gate, GuardName, GuardStatus, Mode, Reason, ReasonCode,
    Time,
};
use crate::record::{DecisionError, load_decision};
use serde::Serialize;

/// The document of `explain -o json`.
#[derive(Debug, Serialize)]
pub struct Explanation {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    guard: GuardName,
    mode: Mode,
    /// `None`: the agent has not run since this machine started.
    gate: Option<Gate>,
    /// State and cause in one sentence.
    summary: String,
    /// When the evidence was gathered.
    decided_at: Option<Time>,
    evidence: Vec<EvidenceLine>,
    /// The evidence as the decision saw it.
    facts: Option<DecisionEvidence>,
    reasons: Vec<Reason>,
    warnings: Vec<Reason>,
    meaning: Vec<String>,
    without_the_guard: Option<String>,
    not_done: Vec<String>,
    check: Vec<String>,
    choices: Vec<ChoiceFilled>,
    agent: AgentFacts,
}

/// One thing that a person can do, ready to be typed.
#[derive(Debug, Serialize)]
struct ChoiceFilled {
    command: String,
    effect: String,
    safe: bool,
}

pub fn run(context: &Context, args: &ExplainArgs) -> Result<Exit, Failure> {
    if let Some(code) = &args.reason {
        return print_page(context, code);
    }
    let Some(name) = &args.name else {
        return Err(Failure::new(Exit::Usage, "name a guard, or --reason CODE"));
    };
    let config = context.config()?;
    let known = known(&config, name)?;
    let explanation = explanation(&config, known)?;
    context.print(&explanation, |screen| draw(screen, &explanation, Time::now()))?;
    let held = explanation.gate == Some(Gate::Held) || (explanation.gate.is_none() && !explanation.reasons.is_empty());
    Ok(if held { Exit::Refused } else { Exit::Ok })
}

/// The guard's configuration; a guard that nobody configured is a mistake in the configuration, not a wait.
pub fn known<'a>(config: &'a Config, name: &GuardName) -> Result<&'a GuardConfig, Failure> {
    config.guards.iter().find(|g| &g.name == name).ok_or_else(|| not_configured(config, name))
}

/// Whoever mistyped a name sees those that there are.
pub fn not_configured(config: &Config, name: &GuardName) -> Failure {
    let names: Vec<&str> = config.guards.iter().map(|g| g.name.as_str()).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Failure::new(Exit::BadConfig, format!("no guard is called {name}")).advise(format!("configured: {known}"))
}

/// The last decision about a guard; `None` where none was made on this node.
pub fn decision(config: &Config, name: &GuardName) -> Result<Option<Decision>, Failure> {
    load_decision(&config.paths.state, name).map_err(|error| {
        let denied = matches!(&error, DecisionError::Read { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied);
        let exit = if denied { Exit::NoPermission } else { Exit::Error };
        let failure = Failure::new(exit, format!("the last decision about {name} cannot be read")).because(&error);
        if denied { failure.advise(AS_ROOT) } else { failure }
    })
}

/// What the commands of the manual are filled with.
pub fn names(guard: &GuardConfig, status: Option<&GuardStatus>, decision: Option<&Decision>) -> Names {
    let facts = decision.map(|d| &d.evidence);
    let device = status.and_then(|s| s.device.as_ref()).or_else(|| facts.and_then(|f| f.device.as_ref()));
    let start = facts.and_then(|f| f.start.as_ref());
    let volume = status
        .and_then(|s| s.volume.clone())
        .or_else(|| device.map(|d| d.volume_id.clone()))
        .or_else(|| start.map(|s| s.volume_id.clone()));
    let reading = start.and_then(|s| s.volume.seen());
    let data_dir = reading.and_then(|r| r.selected.as_ref()).map(|s| s.path.clone()).or_else(|| guard.data_dir.clone());
    let places = volume.as_ref().map_or_else(|| guard.publish.clone(), |volume| guard.publish.of_volume(volume));
    let publish = places.main(data_dir.as_deref());
    let dir = data_dir.as_deref().map(|dir| {
        let place = places.entry_of(dir).and_then(|entry| entry.place_of(dir));
        place.unwrap_or_else(|| publish.to_owned()).display().to_string()
    });
    let pin = start.and_then(|s| s.records.seen()).and_then(|r| r.pin.as_ref());
    let member = pin.map(|p| p.member_id).or_else(|| {
        let dirs = reading.map(|r| r.data_dirs.as_slice()).unwrap_or_default();
        dirs.iter().filter(|d| d.populated).find_map(|d| d.fingerprint.as_ref()?.member_id)
    });
    Names {
        guard: Some(guard.name.to_string()),
        device: device.map(|d| d.node.clone()),
        volume: volume.map(|v| v.0),
        publish: Some(publish.display().to_string()),
        dir,
        member: member.map(|m| m.to_string()),
    }
}

fn explanation(config: &Config, guard: &GuardConfig) -> Result<Explanation, Failure> {
    let status = super::status::read(config)?;
    let agent = agent_of(status.as_ref());
    let current = status.as_ref().and_then(|s| s.guards.iter().find(|g| g.name == guard.name));
    let decision = decision(config, &guard.name)?;
    let names = names(guard, current, decision.as_ref());

    let reasons = match (current, &decision) {
        // Where the decision is about these reasons, its words are the whole ones: root reads it.
        (Some(status), decision) => {
            let whole = |told: &Reason| {
                let mut decided = decision.iter().flat_map(|decision| &decision.reasons);
                decided.find(|reason| reason.for_everybody() == *told).unwrap_or(told).clone()
            };
            status.reasons.iter().map(whole).collect()
        }
        (None, Some(decision)) => decision.reasons.clone(),
        (None, None) => Vec::new(),
    };
    let warnings = match (current, &decision) {
        (Some(status), _) => status.warnings.clone(),
        (None, Some(decision)) => decision.warnings.clone(),
        (None, None) => Vec::new(),
    };
    let main = reasons.first().or_else(|| warnings.first()).map(|r| page(r.code));
    let choices = main.map_or_else(Vec::new, |page| choices(page, &names));
    let facts = decision.as_ref().map(|d| d.evidence.clone());
    Ok(Explanation {
        api_version: "volhold/v1",
        kind: "Explanation",
        guard: guard.name.clone(),
        mode: guard.mode,
        gate: current.map(|g| g.gate),
        summary: summary(&guard.name, current, decision.as_ref(), &reasons, &warnings),
        decided_at: decision.as_ref().map(|d| d.time),
        evidence: facts.as_ref().map_or_else(Vec::new, evidence::lines),
        facts,
        meaning: main.map_or_else(Vec::new, |p| vec![names.fill(p.found), names.fill(p.means)]),
        without_the_guard: main.filter(|p| p.severity > Severity::Information).map(|p| names.fill(p.without)),
        not_done: decision.as_ref().map_or_else(Vec::new, |d| d.not_done.clone()),
        check: main
            .map_or_else(Vec::new, |p| p.check.iter().filter(|c| names.fits(c)).map(|c| names.fill(c)).collect()),
        choices,
        reasons,
        warnings,
        agent,
    })
}

fn choices(page: &Page, names: &Names) -> Vec<ChoiceFilled> {
    let fill = |c: &super::manual::Choice| ChoiceFilled {
        command: names.fill(c.command),
        effect: names.fill(c.effect),
        safe: c.safe,
    };
    page.choices.iter().filter(|c| names.fits(c.command)).map(fill).collect()
}

fn summary(
    name: &GuardName,
    status: Option<&GuardStatus>,
    decision: Option<&Decision>,
    reasons: &[Reason],
    warnings: &[Reason],
) -> String {
    let cause = reasons.first().map(|r| page(r.code).cause);
    let warning = warnings.first().map(|r| page(r.code).cause);
    let enforced = status.is_some_and(|s| s.mode == Mode::Enforce);
    match status.map(|s| (s.gate, s.would_hold)) {
        Some((Gate::Open, true)) if enforced => format!(
            "{name} is OPEN, and would be held if it were closed: {}.",
            cause.unwrap_or("the agent gives no reason")
        ),
        Some((Gate::Held, _)) => format!("{name} is HELD: {}.", cause.unwrap_or("the agent gives no reason")),
        Some((Gate::Open | Gate::Waiting, true)) => {
            format!("{name} would be HELD if it were enforced: {}.", cause.unwrap_or("the agent gives no reason"))
        }
        Some((Gate::Waiting, false)) => match cause {
            Some(cause) => format!("{name} is waiting: {cause}."),
            None => format!("{name} is waiting: it is still being examined, and nothing speaks against it so far."),
        },
        // What nobody has mounted is read as bytes only.
        Some((Gate::Open, false)) if !enforced && decision.is_none_or(|d| d.evidence.start.is_none()) => {
            format!("{name} observes, and nothing speaks against it so far: its data is read once somebody mounts it.")
        }
        Some((Gate::Open, false)) => match warning {
            Some(warning) => format!("{name} is open, with a warning: {warning}."),
            None => format!("{name} is open: nothing speaks against it."),
        },
        None => match decision.map(|d| d.verdict) {
            Some(DecisionVerdict::Held | DecisionVerdict::WouldHold) => format!(
                "{name} is not decided on since this machine started; before that it was held: {}.",
                cause.unwrap_or("the agent gave no reason")
            ),
            Some(DecisionVerdict::Opened | DecisionVerdict::WouldOpen) => {
                format!("{name} is not decided on since this machine started; before that it was open.")
            }
            None => format!("{name} was never decided on: the agent has not run on this node."),
        },
    }
}

fn draw(screen: &mut Screen, it: &Explanation, now: Time) {
    let tone = match (it.gate, it.reasons.is_empty()) {
        (Some(Gate::Open), true) => Tone::Good,
        (Some(Gate::Waiting), true) | (None, true) => Tone::Warn,
        (_, false) | (Some(Gate::Held), true) => Tone::Bad,
    };
    screen.tone(tone, &it.summary);
    if !it.agent.running {
        screen.para(0, "The agent is not running; this is what was known last. systemctl start volhold");
    }
    draw_reasons(screen, it);
    draw_evidence(screen, it, now);
    draw_meaning(screen, it);
    draw_choices(screen, it);
}

fn draw_reasons(screen: &mut Screen, it: &Explanation) {
    for (title, list) in [("Because", &it.reasons), ("Told without holding", &it.warnings)] {
        if !list.is_empty() {
            section(screen, title);
            for reason in list {
                screen.hanging("  -", 4, &reason_line(reason));
            }
        }
    }
}

fn draw_evidence(screen: &mut Screen, it: &Explanation, now: Time) {
    if it.evidence.is_empty() {
        section(screen, "What was found");
        screen.para(2, "No decision is on record on this node, so there is no evidence to show.");
        return;
    }
    let device = it.facts.as_ref().and_then(|f| f.device.as_ref());
    let title = device.map_or_else(
        || "What was found".to_owned(),
        |d| format!("What was found on {} ({}, {})", d.volume_id, d.node, bytes(d.size)),
    );
    section(screen, &title);
    for line in &it.evidence {
        line.draw(screen);
    }
    if let Some(at) = it.decided_at {
        screen.para(2, &format!("as of {}", since(at, now)));
    }
}

fn draw_meaning(screen: &mut Screen, it: &Explanation) {
    if !it.meaning.is_empty() {
        section(screen, "What it means");
        for text in &it.meaning {
            screen.para(2, text);
        }
    }
    if let Some(text) = &it.without_the_guard {
        section(screen, "What would have happened without the guard");
        screen.para(2, text);
    }
    if !it.not_done.is_empty() {
        section(screen, "What was NOT done");
        for text in &it.not_done {
            screen.hanging("  -", 4, text);
        }
    }
    if !it.check.is_empty() {
        section(screen, "Look at");
        for text in &it.check {
            screen.hanging("  -", 4, text);
        }
    }
}

fn draw_choices(screen: &mut Screen, it: &Explanation) {
    if it.choices.is_empty() {
        return;
    }
    section(screen, "Choose (safest first)");
    for (number, choice) in (1_u32..).zip(&it.choices) {
        screen.verbatim(2, &format!("{number}  {}", choice.command));
        screen.para(7, &format!("{} {}", if choice.safe { "Safe." } else { "NOT safe." }, choice.effect));
    }
    screen.para(2, "Not offered: formatting. To discard a volume, create a new one and configure that.");
    let more: Vec<String> = it.reasons.iter().skip(1).map(|r| r.code.to_string()).collect();
    if !more.is_empty() {
        screen.para(2, &format!("About the other reasons: volhold explain --reason CODE, for {}", more.join(", ")));
    }
}

fn section(screen: &mut Screen, title: &str) {
    screen.blank();
    screen.tone(Tone::Head, title);
}

/// The document of `explain --reason CODE -o json`.
#[derive(Debug, Serialize)]
struct ReasonPage {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    code: ReasonCode,
    severity: Severity,
    cause: &'static str,
    found: &'static str,
    meaning: &'static str,
    without_the_guard: &'static str,
    check: Vec<String>,
    choices: Vec<ChoiceFilled>,
}

fn print_page(context: &Context, code: &str) -> Result<Exit, Failure> {
    let Some(code) = ReasonCode::ALL.iter().copied().find(|c| c.as_str() == code) else {
        let all: Vec<&str> = ReasonCode::ALL.iter().map(|c| c.as_str()).collect();
        return Err(Failure::new(Exit::NoMatch, format!("there is no reason code `{code}`"))
            .advise(format!("there are: {}", all.join(", "))));
    };
    let (page, names) = (page(code), Names::default());
    let document = ReasonPage {
        api_version: "volhold/v1",
        kind: "ReasonPage",
        code,
        severity: page.severity,
        cause: page.cause,
        found: page.found,
        meaning: page.means,
        without_the_guard: page.without,
        check: page.check.iter().map(|c| names.fill(c)).collect(),
        choices: choices(page, &names),
    };
    context.print(&document, |screen| {
        screen.tone(Tone::Head, &format!("{code} ({}): {}.", page.severity.word(), page.cause));
        for (title, text) in [
            ("What was found", page.found),
            ("What it means", page.means),
            ("What would have happened without the guard", page.without),
        ] {
            section(screen, title);
            screen.para(2, text);
        }
        section(screen, "Look at");
        for text in &document.check {
            screen.hanging("  -", 4, text);
        }
        section(screen, "Choose (safest first)");
        for (number, choice) in (1_u32..).zip(&document.choices) {
            screen.verbatim(2, &format!("{number}  {}", choice.command));
            screen.para(7, &format!("{} {}", if choice.safe { "Safe." } else { "NOT safe." }, choice.effect));
        }
    })?;
    Ok(Exit::Ok)
}
