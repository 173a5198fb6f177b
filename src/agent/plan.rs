//! What the agent would do about a guard, without doing it.
//!
//! The same state machine and the same decisions as the agent's: [`step`] says what is to be done, and here those actions
//! are answered instead of performed. What only looks is really done (finding, reading as bytes, the ledgers, the data
//! dirs); what writes is listed, and supposed to go well as far as that can be seen beforehand. Where it cannot be seen, the
//! plan ends there and says so.
//!
//! Nothing is claimed, locked, mounted in any namespace or written: the device is read through descriptors that cannot write,
//! and a filesystem is seen through [`View`].

/// The actions, answered.
mod dry;
/// Steps in words.
mod words;

use super::clock::Here;
use super::machine::{Action, Event, Guard, GuardPolicy, State, step};
use super::memory::Memory;
use crate::config::{Config, GuardConfig};
use crate::model::{BootId, DecisionVerdict, Foreseen, GuardPlan, Mode, PlanVerdict, StartVerdict};
use crate::record::{self, HostError};
use dry::{Answer, Dry, Scene};
use std::collections::VecDeque;

/// More steps than any way through the machine has.
const MOST_ACTIONS: usize = 64;

/// Plans these guards, one after the other. `progress` hears how much of a device was read, and of how much.
pub fn plan(
    config: &Config,
    guards: &[&GuardConfig],
    boot_id: &BootId,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<GuardPlan>, PlanError> {
    // Without an id nothing was ever kept here: an id that nobody has finds exactly that.
    let machine_id = record::known_machine_id(&config.paths.state).map_err(PlanError::Host)?.unwrap_or_default();
    let here = Here { boot_id: boot_id.clone(), machine_id };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(PlanError::Runtime)?;
    let plans = runtime.block_on(async {
        let mut plans = Vec::new();
        for guard in guards {
            plans.push(one(config, guard, &here, progress).await);
        }
        plans
    });
    // A thread that hangs in the kernel would keep the answer from being printed.
    runtime.shutdown_background();
    Ok(plans)
}

/// Why nothing could be planned at all. A guard's own troubles are in its plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("cannot start the readers")]
    Runtime(#[source] std::io::Error),
    #[error("cannot tell which machine this is")]
    Host(#[source] HostError),
}

async fn one(config: &Config, guard: &GuardConfig, here: &Here, progress: &mut dyn FnMut(u64, u64)) -> GuardPlan {
    let memory = Memory { state: config.paths.state.clone(), guard: guard.name.clone(), here: here.clone() };
    let mut dry = Dry::new(guard, &config.paths.run, memory, progress);
    let next_look = follow(&mut dry, guard).await;
    let device = dry.device_facts();
    let next_boot = if dry.mounted() {
        dry.scene = Scene::NextBoot;
        Some(follow(&mut dry, guard).await)
    } else {
        None
    };
    GuardPlan {
        name: guard.name.clone(),
        mode: guard.mode,
        volume: device.as_ref().map(|facts| facts.volume_id.clone()),
        device,
        next_look,
        next_boot,
    }
}

/// Feeds the machine from the first look on, until nothing is to be done any more or nothing more can be known.
async fn follow(dry: &mut Dry<'_>, config: &GuardConfig) -> Foreseen {
    let policy = GuardPolicy { mode: Mode::Enforce, ..super::driver::policy(config) };
    dry.begin();
    let (mut guard, first) = step(Guard::new(policy), Event::LookAgain);
    let mut queue = VecDeque::from(first);
    let mut decided = None;
    let mut unknown = None;
    let mut left = MOST_ACTIONS;
    while let Some(action) = queue.pop_front() {
        left = left.saturating_sub(1);
        if left == 0 {
            unknown = Some("the plan does not come to an end, which is a defect of volhold".to_owned());
            break;
        }
        if let Action::Decide(last) = &action {
            decided = Some(last.as_ref().clone());
        }
        match dry.answer(action, &guard).await {
            Answer::Event(event) => {
                let (next, actions) = step(guard, event);
                guard = next;
                queue.extend(actions);
            }
            Answer::Events(events) => {
                for event in events {
                    let (next, actions) = step(guard, event);
                    guard = next;
                    queue.extend(actions);
                }
            }
            Answer::Done => {}
            Answer::Unknown(why) => {
                unknown = Some(why);
                decided = None;
                break;
            }
        }
    }
    let verdict = match (&unknown, decided.as_ref().map(|decided| decided.verdict)) {
        (None, Some(DecisionVerdict::Opened | DecisionVerdict::WouldOpen)) => PlanVerdict::WouldOpen,
        (None, Some(DecisionVerdict::Held)) => PlanVerdict::WouldHold,
        (None, Some(DecisionVerdict::WouldHold)) => PlanVerdict::WouldDoubt,
        (Some(_), _) | (None, None) => PlanVerdict::Unknown,
    };
    let (how, open_dir) = match (&guard.state, guard.start_verdict()) {
        (State::Open { data_dir, .. }, Some(StartVerdict::Start { how, .. })) => (Some(*how), Some(data_dir.clone())),
        (State::Open { data_dir, .. }, _) => (None, Some(data_dir.clone())),
        _ => (None, None),
    };
    let volume = guard.start_evidence().and_then(|evidence| evidence.volume.seen());
    let data_dir =
        volume.zip(open_dir).and_then(|(volume, path)| volume.data_dirs.iter().find(|dir| dir.path == path).cloned());
    let (reasons, warnings) = decided.map(|decided| (decided.reasons, decided.warnings)).unwrap_or_default();
    Foreseen { steps: dry.take_steps(), verdict, reasons, warnings, unknown, data_dir, how }
}
