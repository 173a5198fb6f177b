//! `volhold wait NAME`: made to be the only process of the oneshot unit that etcd waits for, and useful by hand.
//!
//! It says on standard error what it waits for, whenever that changes; the exit code is the answer.

use super::exit::Exit;
use super::explain;
use super::output::{self, Context, Failure};
use super::status::{gate_failure, gate_word, reason_line, state_word};
use crate::gate::{Until, WaitOutcome};
use crate::model::{Bypass, Gate, GuardName, GuardStatus, Mode, Reason};
use crate::record::boot_id;
use crate::worker::Keeper;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where one sentence is all that is said.
const NOTHING: [&str; 0] = [];

/// `decided`: a hold ends the wait too, as a success: what waits is not etcd.
pub fn run(context: &Context, name: &GuardName, timeout: Option<Duration>, decided: bool) -> Result<Exit, Failure> {
    // Whatever is wrong with volhold or its configuration must not keep closed what a person has opened.
    let config = match context.config() {
        Ok(config) => config,
        Err(failure) => return bypassed(&default_run(), name).ok_or(failure),
    };
    let run = &config.paths.run;
    let mode = match explain::known(&config, name) {
        Ok(guard) => guard.mode,
        Err(failure) => return bypassed(run, name).ok_or(failure),
    };
    if mode == Mode::Observe {
        // As `gate check` has it: a guard that observes holds nothing back, and its gate never opens.
        output::tell(&format!("volhold: {name} observes: it holds nothing back"), NOTHING);
        return Ok(Exit::Ok);
    }
    let boot_id = boot_id().map_err(|e| Failure::new(Exit::Error, "cannot tell which boot this is").because(&e))?;
    let until = if decided { Until::Decided } else { Until::Open };
    let mut keeper = None;
    let outcome = crate::gate::wait(run, name, &boot_id, until, timeout, &mut |status| {
        tell(status);
        // Whoever waits for any decision is gone in a moment.
        if !decided {
            keep_held(run, status, &mut keeper);
        }
    })
    .map_err(|e| gate_failure("cannot wait", &e))?;
    drop(keeper);
    Ok(match outcome {
        WaitOutcome::Open => Exit::Ok,
        WaitOutcome::Bypassed(bypass) => shout(&bypass),
        WaitOutcome::Held(reasons) => {
            tell_held(name, &reasons);
            if decided { Exit::Ok } else { Exit::Held }
        }
        WaitOutcome::TimedOut(status) => {
            let state = status.map_or("the agent has said nothing about it", |s| gate_word(&s));
            output::tell(&format!("volhold: the time is over; {name}: {state}"), NOTHING);
            Exit::TryLater
        }
    })
}

/// Beside a wait for a held guard runs a process that keeps a copy of its claim: with it the volume stays nobody else's while
/// the agent is stopped. Only root can have one; without it the agent and systemd keep the claim alone.
fn keep_held(run: &Path, status: &GuardStatus, keeper: &mut Option<Keeper>) {
    let held = status.gate == Gate::Held && status.mode == Mode::Enforce;
    if !held || !rustix::process::geteuid().is_root() || keeper.as_mut().is_some_and(Keeper::lives) {
        return;
    }
    match Keeper::start(run, &status.name) {
        Ok(started) => *keeper = Some(started),
        Err(error) => {
            output::tell(&format!("volhold: {}: no copy of the claim is kept here: {error}", status.name), NOTHING);
        }
    }
}

/// `volhold keep-claim RUN NAME`: the keeper itself, until the process that waits is gone.
pub fn keep_claim(run: &Path, name: &GuardName) -> Exit {
    match crate::gate::claims::keep(run, name, std::io::stdin().as_fd()) {
        Ok(()) => Exit::Ok,
        Err(error) => gate_failure("no copy of the claim is kept here", &error).report(),
    }
}

/// The answer where a person has opened the gate by hand.
fn bypassed(run: &Path, name: &GuardName) -> Option<Exit> {
    crate::gate::files::bypass(run, name).map(|bypass| shout(&bypass))
}

/// Where the run dir is unless configured otherwise; the command that bypasses knows no other.
pub fn default_run() -> PathBuf {
    PathBuf::from(crate::config::DEFAULT_RUN)
}

/// Says on standard error that nobody has looked at what is behind this gate.
pub fn shout(bypass: &Bypass) -> Exit {
    output::tell(
        &format!("volhold: {} is BYPASSED until the next boot: its volume and data were NOT checked", bypass.name),
        [&bypass.note, "volhold status"],
    );
    Exit::Ok
}

/// Says on standard error that a guard is held, and why.
pub fn tell_held(name: &GuardName, reasons: &[Reason]) {
    let next = format!("volhold explain {name}");
    output::tell(&format!("volhold: {name} is HELD"), reasons.iter().map(reason_line).chain([next]));
}

fn tell(status: &GuardStatus) {
    let mut text = format!("volhold: {}: {} ({})", status.name, gate_word(status), state_word(status.state));
    if let Some(reason) = status.reasons.first().or(status.waits.as_ref()) {
        text.push_str(&format!(", {}", reason_line(reason)));
    } else if let Some(progress) = &status.progress {
        text.push_str(&format!(", {}", progress.what));
    }
    output::tell(&text, NOTHING);
}
