//! `volhold wait NAME`: made to be the only process of the oneshot unit that etcd waits for, and useful by hand.
//!
//! It says on standard error what it waits for, whenever that changes; the exit code is the answer.

use super::exit::Exit;
use super::explain;
use super::output::{Context, Failure, diagnose};
use super::status::{gate_failure, gate_word, reason_line, state_word};
use super::text::clean;
use crate::gate::{Until, WaitOutcome};
use crate::model::{GuardName, GuardStatus, Mode, Reason};
use crate::record::boot_id;
use std::time::Duration;

/// `decided`: a hold ends the wait too, as a success: what waits is not etcd.
pub fn run(context: &Context, name: &GuardName, timeout: Option<Duration>, decided: bool) -> Result<Exit, Failure> {
    let config = context.config()?;
    if explain::known(&config, name)?.mode == Mode::Observe {
        // As `gate check` has it: a guard that observes holds nothing back, and its gate never opens.
        diagnose(&format!("volhold: {name} observes: it holds nothing back\n"));
        return Ok(Exit::Ok);
    }
    let boot_id = boot_id().map_err(|e| Failure::new(Exit::Error, "cannot tell which boot this is").because(&e))?;
    let until = if decided { Until::Decided } else { Until::Open };
    let outcome = crate::gate::wait(&config.paths.run, name, &boot_id, until, timeout, &mut |status| tell(status))
        .map_err(|e| gate_failure("cannot wait", &e))?;
    Ok(match outcome {
        WaitOutcome::Open => Exit::Ok,
        WaitOutcome::Held(reasons) => {
            tell_held(name, &reasons);
            if decided { Exit::Ok } else { Exit::Held }
        }
        WaitOutcome::TimedOut(status) => {
            let state = status.map_or("the agent has said nothing about it", |s| gate_word(&s));
            diagnose(&format!("volhold: the time is over; {name}: {state}\n"));
            Exit::TryLater
        }
    })
}

/// Says on standard error that a guard is held, and why.
pub fn tell_held(name: &GuardName, reasons: &[Reason]) {
    let mut text = format!("volhold: {name} is HELD\n");
    for reason in reasons {
        text.push_str(&format!("  {}\n", clean(&reason_line(reason))));
    }
    text.push_str(&format!("  volhold explain {name}\n"));
    diagnose(&text);
}

fn tell(status: &GuardStatus) {
    let mut text = format!("volhold: {}: {} ({})", status.name, gate_word(status), state_word(status.state));
    if let Some(reason) = status.reasons.first() {
        text.push_str(&format!(", {}", clean(&reason_line(reason))));
    } else if let Some(progress) = &status.progress {
        text.push_str(&format!(", {}", clean(&progress.what)));
    }
    text.push('\n');
    diagnose(&text);
}
