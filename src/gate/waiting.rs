//! `volhold wait NAME`: blocks until the gate is open. Made to be the only process of a oneshot unit.
//!
//! It returns when the ready file is there. While the guard waits or is held it stays: a hold may be answered by a person
//! hours later, and the unit that etcd waits for must then become active by itself. Only a time-out ends it otherwise.
//! It needs no agent: when none runs yet, it waits for the run dir to appear.
//!
//! Woken by the [`Bell`].

use super::bell::{Bell, LOOK_EVERY};
use super::files::{self, GateError};
use super::notify;
use crate::model::{BootId, Bypass, Gate, GuardName, GuardStatus, Reason};
use std::path::Path;
use std::time::{Duration, Instant};

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    Open,
    /// Open or held. Only the word of an agent of this boot counts: the status file lies in the run dir, which dies with it.
    Decided,
}

/// How a wait ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The gate is open (exit 0).
    Open,
    /// A person has opened it by hand: nobody has looked at the volume (exit 0, loudly).
    Bypassed(Bypass),
    /// The guard is held, for these reasons, and that is enough or the time is over (exit 3).
    Held(Vec<Reason>),
    /// Time is over and there is no verdict yet (exit 75). The state that the agent last wrote, if there is one.
    TimedOut(Option<Box<GuardStatus>>),
}

/// Waits until the gate of `guard` is open, or for at most `timeout`.
///
/// `on_change` hears each new state of the guard (a new gate, state, or first reason). systemd, where it listens, is told the
/// same as `STATUS=`. `boot_id` is this boot's: a ready file of another one opens nothing.
pub fn wait(
    run: &Path,
    guard: &GuardName,
    boot_id: &BootId,
    awaited: Until,
    timeout: Option<Duration>,
    on_change: &mut dyn FnMut(&GuardStatus),
) -> Result<WaitOutcome, GateError> {
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let bell = Bell::new(run)?;
    let mut told: Option<GuardStatus> = None;
    let mut said_nothing = false;
    loop {
        // Watch first, then look: what changes in between rings.
        bell.arm(run)?;
        if files::bypass(run, guard).is_none() && files::is_open(run, guard, boot_id)? {
            notify::status("open");
            return Ok(WaitOutcome::Open);
        }
        if let Some(bypass) = files::bypass(run, guard) {
            notify::status(&format!("BYPASSED: {}", bypass.note));
            return Ok(WaitOutcome::Bypassed(bypass));
        }
        match look(run, guard) {
            Some(now) => {
                if told.as_ref().is_none_or(|before| differs(before, &now)) {
                    notify::status(&sentence(&now));
                    on_change(&now);
                }
                match (awaited, now.gate) {
                    (Until::Decided, Gate::Held) => return Ok(WaitOutcome::Held(now.reasons)),
                    (Until::Decided | Until::Open, Gate::Held | Gate::Open | Gate::Waiting) => {}
                }
                told = Some(now);
            }
            None if !said_nothing && told.is_none() => {
                notify::status("waiting for the agent (volhold.service) to say something about this guard");
                said_nothing = true;
            }
            None => {}
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(ended(told));
        }
        bell.ring(left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY)))?;
    }
}

fn ended(told: Option<GuardStatus>) -> WaitOutcome {
    match told {
        Some(status) => match status.gate {
            Gate::Held => WaitOutcome::Held(status.reasons),
            Gate::Open | Gate::Waiting => WaitOutcome::TimedOut(Some(Box::new(status))),
        },
        None => WaitOutcome::TimedOut(None),
    }
}

/// What the agent says. A status that cannot be read says nothing: the ready file alone opens.
fn look(run: &Path, guard: &GuardName) -> Option<GuardStatus> {
    match files::read_status(run) {
        Ok(status) => status?.guards.into_iter().find(|status| status.name == *guard),
        Err(error) => {
            tracing::warn!(event = "status.unreadable", %error, "cannot read the status file");
            None
        }
    }
}

fn differs(before: &GuardStatus, now: &GuardStatus) -> bool {
    before.gate != now.gate
        || before.state != now.state
        || before.reasons != now.reasons
        || before.waits != now.waits
        || before.progress.as_ref().map(|progress| &progress.what)
            != now.progress.as_ref().map(|progress| &progress.what)
}

/// One line for `systemctl status`.
fn sentence(status: &GuardStatus) -> String {
    let gate = match status.gate {
        Gate::Open => "open",
        Gate::Waiting => "waiting",
        Gate::Held => "HELD",
    };
    match (status.reasons.first().or(status.waits.as_ref()), &status.progress) {
        (Some(reason), _) => format!("{gate}: {} ({})", reason.message, reason.code),
        (None, Some(progress)) => format!("{gate}: {}", progress.what),
        (None, None) => gate.to_owned(),
    }
}

#[cfg(test)]
mod tests;
