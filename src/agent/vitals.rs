//! Signs of life: what is asked before the service manager is told that the agent lives.
//!
//! One thread drives everything, so a runtime that stands still tells nobody anything. What it cannot show is a part that
//! has died (a panic ends one task and nothing else) or waits for something that never comes. So each part says when it
//! waits for the world, which may take for ever, and when it works, which may not: all that can block has a limit of its
//! own, far below [`PATIENCE`]. A disk that stalls is therefore no reason to fall silent.
//!
//! Falling silent makes the service manager kill and start the agent. That closes no gate and stops no etcd; of all that can
//! be interrupted only an mkfs leaves something that a person has to look at, and so no part's death is told while one runs.

use crate::gate::notify;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// Longest that a part may work without a sign: twice the longest single step, an mkfs or fsck of half an hour each.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);

/// What a part last said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Waits,
    WorksSince(Instant),
    /// As before, on something that must not be interrupted.
    Formats(Instant),
    /// Gone without a word.
    Died,
}

/// All parts of the agent.
#[derive(Debug, Clone, Default)]
pub struct Vitals(Arc<Mutex<Parts>>);

#[derive(Debug, Default)]
struct Parts {
    next: u64,
    said: BTreeMap<u64, (String, Said)>,
}

/// One part. Dropped without [`Sign::ends`], it has died.
#[derive(Debug)]
pub struct Sign {
    vitals: Vitals,
    number: u64,
    ended: bool,
}

impl Vitals {
    /// A new part, which waits.
    pub fn part(&self, name: String) -> Sign {
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = parts.next;
        parts.next = number.saturating_add(1);
        parts.said.insert(number, (name, Said::Waits));
        Sign { vitals: self.clone(), number, ended: false }
    }

    /// The first part that does not live; `None`: all do, or one must not be interrupted now.
    fn missing(&self, now: Instant) -> Option<String> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let late = |since: Instant| now.saturating_duration_since(since) > PATIENCE;
        let formats = parts.said.values().any(|(_, said)| matches!(said, Said::Formats(since) if !late(*since)));
        let mut missing = parts.said.values().filter_map(|(name, said)| match said {
            Said::Waits => None,
            Said::WorksSince(since) | Said::Formats(since) if late(*since) => Some(format!("{name} hangs")),
            Said::WorksSince(_) | Said::Formats(_) => None,
            Said::Died => Some(format!("{name} has died")),
        });
        missing.next().filter(|_| !formats)
    }
}

impl Sign {
    fn say(&self, what: Said) {
        let mut parts = self.vitals.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, said)) = parts.said.get_mut(&self.number) {
            *said = what;
        }
    }

    /// Waits for the world.
    pub fn waits(&self) {
        self.say(Said::Waits);
    }

    /// Begins a step, or has got further with it.
    pub fn works(&self) {
        self.say(Said::WorksSince(Instant::now()));
    }

    /// Begins an mkfs.
    pub fn formats(&self) {
        self.say(Said::Formats(Instant::now()));
    }

    /// There is nothing more to do for this part.
    pub fn ends(mut self) {
        self.ended = true;
    }
}

impl Drop for Sign {
    fn drop(&mut self) {
        if !self.ended {
            self.say(Said::Died);
            return;
        }
        let mut parts = self.vitals.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.said.remove(&self.number);
    }
}

/// Tells the service manager, as often as it asked for, that all parts live. Returns at once where it did not ask.
pub async fn tell(vitals: Vitals) {
    let Some(interval) = notify::watchdog_interval() else { return };
    let mut ticks = tokio::time::interval(interval);
    // After a pause of the whole machine one sign is as good as many.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = None;
    loop {
        ticks.tick().await;
        match vitals.missing(Instant::now()) {
            None => notify::watchdog(),
            Some(who) if told.as_ref() != Some(&who) => {
                tracing::error!(
                    event = "agent.dying",
                    "{who}: the service manager is not told any more that the agent lives"
                );
                told = Some(who);
            }
            Some(_same) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn who_waits_lives_for_ever_and_who_works_as_long_as_a_step_may_take() {
        let vitals = Vitals::default();
        let (waits, works) = (vitals.part("one".into()), vitals.part("two".into()));
        works.works();
        let now = Instant::now();
        assert_eq!(vitals.missing(now + PATIENCE / 2), None);
        assert_eq!(vitals.missing(now + PATIENCE * 2), Some("two hangs".into()));
        works.waits();
        assert_eq!(vitals.missing(now + PATIENCE * 1000), None);
        waits.ends();
        works.ends();
        assert_eq!(vitals.missing(now), None);
    }

    #[test]
    fn who_is_dropped_in_the_middle_has_died_unless_another_formats() {
        let vitals = Vitals::default();
        let formats = vitals.part("one".into());
        drop(vitals.part("two".into()));
        let now = Instant::now();
        assert_eq!(vitals.missing(now), Some("two has died".into()));
        formats.formats();
        assert_eq!(vitals.missing(now), None, "an mkfs would be interrupted");
        assert!(vitals.missing(now + PATIENCE * 2).is_some(), "but not for ever");
        formats.works();
        assert_eq!(vitals.missing(now), Some("two has died".into()));
    }
}
