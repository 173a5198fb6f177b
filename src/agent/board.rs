//! The state of all guards in one place: written to the status file, summed up for systemd.

use crate::gate::{files, notify};
use crate::model::{Gate, GuardName, GuardStatus, Mode, Status, Time};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Collects what the guards report. Each report is written at once, by rename, so that a reader never sees half of one.
pub struct Board {
    run: PathBuf,
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    guards: BTreeMap<GuardName, GuardStatus>,
    /// What is wrong with the configuration.
    config: Vec<String>,
}

impl Board {
    pub fn new(run: PathBuf) -> Self {
        Board { run, shown: Mutex::default() }
    }

    /// Takes a guard's state and shows it. A report that changes nothing is not written again.
    pub fn report(&self, status: GuardStatus) {
        let mut shown = self.shown();
        if shown.guards.get(&status.name) == Some(&status) {
            return;
        }
        shown.guards.insert(status.name.clone(), status);
        self.write(&shown);
    }

    /// Forgets a guard that is not configured any more.
    pub fn remove(&self, name: &GuardName) {
        let mut shown = self.shown();
        shown.guards.remove(name);
        self.write(&shown);
    }

    /// Shows what is wrong with the configuration; nothing where all is well.
    pub fn complain(&self, config: Vec<String>) {
        let mut shown = self.shown();
        if shown.config == config {
            return;
        }
        shown.config = config;
        self.write(&shown);
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        // A panic elsewhere must not blind the status: what is shown is whole after every change.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows what is known so far, also when that is no guard at all.
    pub fn show(&self) {
        self.write(&self.shown());
    }

    fn write(&self, shown: &Shown) {
        let list: Vec<GuardStatus> = shown.guards.values().cloned().collect();
        let summary = summary(&list);
        match shown.config.first() {
            Some(problem) => notify::status(&format!("{summary}; the configuration: {problem}")),
            None => notify::status(&summary),
        }
        let status = Status {
            api_version: "volhold/v1".to_owned(),
            kind: "Status".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            written_at: Time::now(),
            pid: std::process::id(),
            guards: list,
            config: shown.config.clone(),
        };
        if let Err(error) = files::write_status(&self.run, &status) {
            tracing::error!(event = "status.unwritten", error = %error, "cannot write the status file");
        }
    }
}

/// One line for `systemctl status`.
fn summary(guards: &[GuardStatus]) -> String {
    let words: Vec<String> = guards.iter().map(one).collect();
    if words.is_empty() { "no guard is configured".to_owned() } else { words.join("; ") }
}

fn one(guard: &GuardStatus) -> String {
    let gate = match (guard.mode, guard.gate) {
        (Mode::Observe, _) if guard.would_hold => "observed, would hold",
        (Mode::Observe, _) => "observed",
        (Mode::Enforce, Gate::Open) if guard.would_hold => "open, would hold",
        (Mode::Enforce, Gate::Open) => "open",
        (Mode::Enforce, Gate::Waiting) => "waiting",
        (Mode::Enforce, Gate::Held) => "HELD",
    };
    match guard.reasons.first() {
        Some(reason) => format!("{}: {gate}: {}", guard.name, reason.message),
        None => format!("{}: {gate}", guard.name),
    }
}
