//! `volhold status`: every guard on one screen, from the file that the agent keeps.
//!
//! It reads `status.json` and the process table, nothing else, so it answers while the agent is busy or gone. What an
//! agent that is gone wrote last is shown as just that. The agent's socket is not asked: it says the same, and would be a
//! second way with failures of its own to the one screen that must never be missing.

/// `--watch`.
pub mod watch;

use super::exit::Exit;
use super::output::{AS_ROOT, Context, Failure};
use super::text::{Screen, Tone, bytes, count, since};
use crate::config::Config;
use crate::gate::GateError;
use crate::gate::files::{bypasses, read_status};
use crate::model::{
    AgentFacts, DataDirReport, DeviceUse, EtcdGeneration, Gate, GuardName, GuardStatus, Mode, Progress, Publish,
    Reason, StateName, Status, StatusDocument, Time,
};

/// Reads the status file. `None`: there is none, so no agent has run since this machine started.
pub fn read(config: &Config) -> Result<Option<Status>, Failure> {
    read_status(&config.paths.run).map_err(|error| gate_failure("what the agent wrote cannot be read", &error))
}

/// An error of the run dir, with the exit code that it asks for.
pub fn gate_failure(what: &str, error: &GateError) -> Failure {
    let denied = match error {
        GateError::Write { source, .. } | GateError::Read { source, .. } | GateError::Watch { source, .. } => {
            source.kind() == std::io::ErrorKind::PermissionDenied
        }
        GateError::Parse { .. } | GateError::Encode { .. } | GateError::NotStale { .. } | GateError::Taken { .. } => {
            false
        }
    };
    let exit = if denied { Exit::NoPermission } else { Exit::Error };
    let failure = Failure::new(exit, what).because(error);
    if denied { failure.advise(AS_ROOT) } else { failure }
}

/// The process that wrote it still runs, and is volhold.
pub fn agent_of(status: Option<&Status>) -> AgentFacts {
    let running =
        status.is_some_and(|s| std::fs::read_to_string(format!("/proc/{}/stat", s.pid)).is_ok_and(|stat| lives(&stat)));
    AgentFacts::new(status, running)
}

/// A volhold that is not a mere entry of the process table, which keeps its name until its parent asks for its end.
/// `/proc/PID/stat` is `PID (NAME) STATE …` (proc_pid_stat(5)); the name may hold anything but more than 15 bytes.
fn lives(stat: &str) -> bool {
    let Some((before, after)) = stat.rsplit_once(')') else { return false };
    let name = before.split_once('(').map(|(_pid, name)| name);
    // Zombie and dead.
    name == Some("volhold") && !matches!(after.trim_start().chars().next(), None | Some('Z' | 'X' | 'x'))
}

pub fn run(context: &Context, timings: bool) -> Result<Exit, Failure> {
    let config = context.config()?;
    let status = read(&config)?;
    let document = document(&config, status);
    context.print(&document, |screen| draw(screen, &document, timings, Time::now()))?;
    Ok(exit(&document))
}

/// `status --held`: what a package's removal asks. From what the agent wrote last, also when it is gone: its claims may not be.
pub fn held(context: &Context) -> Result<Exit, Failure> {
    let config = context.config()?;
    let status = read(&config)?;
    let mut document = document(&config, status);
    document.guards.retain(|guard| guard.gate == Gate::Held && guard.mode == Mode::Enforce);
    document.unreported.clear();
    context.print(&document, |screen| {
        for guard in &document.guards {
            screen.verbatim(0, guard.name.as_str());
        }
    })?;
    Ok(exit(&document))
}

fn document(config: &Config, status: Option<Status>) -> StatusDocument {
    let agent = agent_of(status.as_ref());
    let configured: Vec<GuardName> = config.guards.iter().map(|guard| guard.name.clone()).collect();
    let document = StatusDocument::new(agent, status, &configured);
    StatusDocument { bypassed: bypasses(&config.paths.run), ..document }
}

/// Held outweighs waiting, and a guard that nobody reports is not open.
fn exit(document: &StatusDocument) -> Exit {
    if document.guards.iter().any(|g| g.gate == Gate::Held) {
        Exit::Held
    } else if document.guards.iter().any(|g| g.gate == Gate::Waiting) || !document.unreported.is_empty() {
        Exit::TryLater
    } else {
        Exit::Ok
    }
}

fn draw(screen: &mut Screen, document: &StatusDocument, timings: bool, now: Time) {
    draw_agent(screen, &document.agent, now);
    if !document.config.is_empty() {
        screen.tone(Tone::Bad, "The configuration cannot be used as it stands:");
        for problem in &document.config {
            screen.hanging("  config", 11, problem);
        }
    }
    for warning in &document.warnings {
        screen.hanging("  warning", 11, warning);
    }
    for bypass in &document.bypassed {
        screen.tone(Tone::Bad, &format!("{} is BYPASSED until the next boot:", bypass.name));
        screen.para(2, &bypass.note);
        screen.para(2, "volhold has NOT checked its volume and data. Its gate counts as open for etcd.");
    }
    screen.blank();
    if document.guards.is_empty() && document.unreported.is_empty() {
        screen.para(0, "No guard is configured, so volhold guards nothing here.");
        return;
    }
    let names = document.guards.iter().map(|g| &g.name).chain(&document.unreported);
    let width = names.map(|n| n.as_str().len()).max().map_or(8, |w| w.clamp(8, 30)).saturating_add(2);
    screen.cells(Some(Tone::Head), &[(2, ""), (width, "GUARD"), (13, "GATE"), (14, "STATE"), (0, "SINCE")]);
    for guard in &document.guards {
        draw_guard(screen, guard, width, now);
        if timings {
            draw_timings(screen, guard);
        }
    }
    for name in &document.unreported {
        screen.cells(
            Some(Tone::Warn),
            &[(2, "○"), (width, name.as_str()), (13, "unknown"), (14, "not reported"), (0, "-")],
        );
    }
    let asks = document.guards.iter().filter(|g| g.gate == Gate::Held || g.would_hold);
    let mut first = true;
    for guard in asks {
        if first {
            screen.blank();
            first = false;
        }
        screen.verbatim(0, &format!("Next: volhold explain {}", guard.name));
    }
}

fn draw_agent(screen: &mut Screen, agent: &AgentFacts, now: Time) {
    match (agent.running, agent.written_at) {
        (true, Some(at)) => {
            let version = agent.version.as_deref().unwrap_or("?");
            let pid = agent.pid.map_or_else(|| "?".to_owned(), |p| p.to_string());
            screen.para(0, &format!("volhold {version}, agent running (pid {pid}), last change {}", since(at, now)));
        }
        (false, Some(at)) => {
            screen.tone(Tone::Warn, "The agent is NOT running. This is what it wrote last:");
            screen.para(0, &since(at, now));
            screen.para(0, "Gates stay as they are without it; nothing is examined until it runs again.");
            screen.verbatim(0, "systemctl start volhold");
        }
        (_, None) => {
            screen.tone(Tone::Warn, "The agent has not run since this machine started, so no gate was decided.");
            screen.verbatim(0, "systemctl start volhold");
        }
    }
}

/// The word for the GATE column. In observe mode the gate is not ours: what enforce would do is what counts.
pub fn gate_word(guard: &GuardStatus) -> &'static str {
    match (guard.gate, guard.would_hold) {
        (Gate::Held, _) => "HELD",
        (Gate::Open, true) if guard.mode == Mode::Enforce => "open, doubted",
        (Gate::Open | Gate::Waiting, true) => "would hold",
        (Gate::Waiting, false) => "waiting",
        (Gate::Open, false) => "open",
    }
}

fn draw_guard(screen: &mut Screen, guard: &GuardStatus, width: usize, now: Time) {
    let bad = guard.gate == Gate::Held || guard.would_hold;
    let tone = if bad {
        Tone::Bad
    } else if guard.gate == Gate::Open {
        Tone::Good
    } else {
        Tone::Warn
    };
    let state = state_word(guard.state);
    screen.cells(
        Some(tone),
        &[
            (2, if bad { "●" } else { "○" }),
            (width, guard.name.as_str()),
            (13, gate_word(guard)),
            (14, state),
            (0, &since(guard.since, now)),
        ],
    );
    field(screen, "volume", &volume_line(guard));
    if let Some(waits) = &guard.waits {
        field(screen, "waits", &waits.message);
    }
    if let Some(progress) = &guard.progress {
        field(screen, "now", &progress_line(progress));
    }
    if let Some(dir) = &guard.data_dir {
        field(screen, "data", &data_line(dir));
    }
    if let Some((first, more)) = guard.reasons.split_first() {
        field(screen, "reason", &reason_line(first));
        if !more.is_empty() {
            let codes: Vec<&str> = more.iter().map(|r| r.code.as_str()).collect();
            field(screen, "", &format!("and {} more: {}", more.len(), codes.join(", ")));
        }
    }
    for warning in &guard.warnings {
        field(screen, "warning", &reason_line(warning));
    }
    if let Some(trouble) = guard.witness.as_ref().and_then(|witness| witness.trouble.as_ref()) {
        field(screen, "tags", &reason_line(trouble));
    }
    match guard.mode {
        Mode::Observe => field(screen, "mode", "observe: nothing is claimed, mounted or held"),
        Mode::Enforce => {}
    }
}

fn draw_timings(screen: &mut Screen, guard: &GuardStatus) {
    if guard.timings.is_empty() {
        field(screen, "took", "no step is done yet");
    }
    for timing in &guard.timings {
        screen.verbatim(4, &format!("{:>12}  {}", millis(timing.us), timing.step));
    }
    let sum = guard.timings.iter().fold(0_u64, |sum, timing| sum.saturating_add(timing.us));
    screen.verbatim(4, &format!("{:>12}  in all", millis(sum)));
}

/// Microseconds as milliseconds with one decimal.
fn millis(us: u64) -> String {
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}

fn field(screen: &mut Screen, name: &str, text: &str) {
    screen.hanging(&format!("    {name}"), 13, text);
}

pub fn state_word(state: StateName) -> &'static str {
    match state {
        StateName::Discovering => "discovering",
        StateName::Attaching => "attaching",
        StateName::Settling => "settling",
        StateName::Examining => "examining",
        StateName::Formatting => "formatting",
        StateName::Inspecting => "inspecting",
        StateName::Publishing => "publishing",
        StateName::Open => "open",
        StateName::Degraded => "degraded",
        StateName::Held => "held",
        StateName::Observing => "observing",
    }
}

pub fn volume_line(guard: &GuardStatus) -> String {
    let mut parts = vec![guard.volume.as_ref().map_or_else(|| "not found yet".to_owned(), ToString::to_string)];
    if let Some(device) = &guard.device {
        parts.push(device.node.clone());
        parts.push(bytes(device.size));
    }
    // Of a guard that observes, somebody else has mounted it, or nobody.
    let mounted =
        guard.device.iter().flat_map(|device| &device.uses).any(|other| matches!(other, DeviceUse::Mount { .. }));
    let there = guard.gate == Gate::Open && !guard.would_hold && (guard.mode == Mode::Enforce || mounted);
    parts.push(if there { format!("at {}", places(guard)) } else { format!("for {}", places(guard)) });
    parts.join(", ")
}

/// The one path, or each directory with its own.
pub fn places(guard: &GuardStatus) -> String {
    match Publish::directories(guard.publish_dirs.clone()) {
        Some(publish) => publish.paths().map(|at| at.display().to_string()).collect::<Vec<_>>().join(" and "),
        None => guard.publish.clone(),
    }
}

pub fn progress_line(progress: &Progress) -> String {
    let percent = u128::from(progress.done).saturating_mul(100).checked_div(u128::from(progress.total)).unwrap_or(0);
    let rest = progress.remaining_s.map_or_else(String::new, |s| {
        format!(", about {} left", super::text::span(i64::try_from(s).unwrap_or(i64::MAX)))
    });
    format!("{}: {percent}% of {}{rest}", progress.what, bytes(progress.total))
}

/// One data dir in one line: what it is, whose it is, how far it got.
pub fn data_line(dir: &DataDirReport) -> String {
    let mut parts = vec![dir.path.clone(), generation_word(dir.etcd).to_owned()];
    if let Some(print) = &dir.fingerprint {
        if let Some(version) = print.storage_version.as_ref().or(print.cluster_version.as_ref()) {
            parts.push(format!("version {version}"));
        }
        if let Some(member) = print.name.clone().or_else(|| print.member_id.map(|id| id.to_string())) {
            parts.push(format!("member {member}"));
        }
        if let Some(cluster) = print.cluster_id {
            parts.push(format!("cluster {cluster}"));
        }
        if let Some(revision) = print.revision {
            parts.push(format!("revision {}", count(revision)));
        }
        if let Some(keys) = print.keys {
            let least = if print.keys_capped { "at least " } else { "" };
            parts.push(format!("{least}{} keys", count(keys)));
        }
    }
    if !dir.populated {
        parts.push("empty".to_owned());
    }
    parts.join(", ")
}

pub fn generation_word(etcd: EtcdGeneration) -> &'static str {
    match etcd {
        EtcdGeneration::V2 => "etcd 2",
        EtcdGeneration::V3 => "etcd 3",
        EtcdGeneration::Empty => "nothing in it yet",
        EtcdGeneration::None => "no etcd data",
    }
}

pub fn reason_line(reason: &Reason) -> String {
    format!("{} [{}]", reason.message, reason.code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Progress;

    #[test]
    fn an_agent_that_has_died_does_not_run() {
        for state in ["R", "S", "D", "T", "t"] {
            assert!(lives(&format!("41 (volhold) {state} 1 41 41 0 -1")), "{state}");
        }
        for stat in ["41 (volhold) Z 1", "41 (volhold) X 1", "41 (volhold)", "41 (etcd) S 1", "41 (a (volhold) S 1", ""]
        {
            assert!(!lives(stat), "{stat}");
        }
    }

    #[test]
    fn progress_of_nothing_is_no_division_by_zero() {
        let line = |done, total, remaining_s| {
            progress_line(&Progress { what: "reading the device".into(), done, total, remaining_s })
        };
        assert_eq!(line(0, 0, None), "reading the device: 0% of 0 B");
        assert_eq!(line(5 << 30, 20 << 30, Some(129)), "reading the device: 25% of 20 GiB, about 2m 09s left");
        assert_eq!(line(u64::MAX, u64::MAX, None), "reading the device: 100% of 16777215 TiB");
    }
}
