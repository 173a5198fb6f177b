//! What is counted over the agent's life: time in which etcd was kept back, refusals to format, failures to read.

use super::Verdict;
use crate::model::{Gate, GuardName, GuardStatus, Mode, ReasonCode};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Counts.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    guards: BTreeMap<GuardName, Counted>,
}

#[derive(Debug, Clone, Default)]
struct Counted {
    kept_back: Duration,
    /// Kept back since.
    since: Option<Instant>,
    refusals: BTreeMap<ReasonCode, u64>,
    unreadable: u64,
    /// Reasons at the last sight: one that stays is not counted again.
    reasons: BTreeSet<ReasonCode>,
}

impl Tally {
    /// Takes note of a guard's state, which has been so from `now` on.
    pub fn see(&mut self, status: &GuardStatus, now: Instant) {
        let counted = self.guards.entry(status.name.clone()).or_default();
        let kept_back = match (status.mode, status.gate) {
            (Mode::Observe, _) | (Mode::Enforce, Gate::Open) => false,
            (Mode::Enforce, Gate::Waiting | Gate::Held) => true,
        };
        counted.kept_back = counted.kept_back_until(now);
        counted.since = kept_back.then_some(now);
        let reasons: BTreeSet<ReasonCode> = status.reasons.iter().map(|reason| reason.code).collect();
        for code in reasons.difference(&counted.reasons) {
            if Verdict::of(*code) == Verdict::RefuseFormat {
                let count = counted.refusals.entry(*code).or_default();
                *count = count.saturating_add(1);
            }
        }
        let fails = |reasons: &BTreeSet<ReasonCode>| reasons.iter().any(|code| Verdict::of(*code) == Verdict::IoError);
        if fails(&reasons) && !fails(&counted.reasons) {
            counted.unreadable = counted.unreadable.saturating_add(1);
        }
        counted.reasons = reasons;
    }

    /// The guard is not configured any more.
    pub fn forget(&mut self, name: &GuardName) {
        self.guards.remove(name);
    }

    /// Seconds for which etcd was kept back.
    pub(super) fn held_seconds(&self, name: &GuardName, now: Instant) -> f64 {
        self.guards.get(name).map_or(0.0, |counted| counted.kept_back_until(now).as_secs_f64())
    }

    pub(super) fn refusals(&self, name: &GuardName, code: ReasonCode) -> u64 {
        self.guards.get(name).and_then(|counted| counted.refusals.get(&code)).copied().unwrap_or(0)
    }

    pub(super) fn unreadable(&self, name: &GuardName) -> u64 {
        self.guards.get(name).map_or(0, |counted| counted.unreadable)
    }
}

impl Counted {
    fn kept_back_until(&self, now: Instant) -> Duration {
        let running = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.kept_back.saturating_add(running)
    }
}
