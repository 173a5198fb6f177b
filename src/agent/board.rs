//! The state of all guards in one place: written to the status file, summed up for systemd.

use crate::gate::{files, notify};
use crate::model::{Gate, GuardName, GuardStatus, Mode, Status, Time};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

/// Collects what the guards report. Each report is written at once, by rename, so that a reader never sees half of one.
pub struct Board {
    run: PathBuf,
    guards: Mutex<BTreeMap<GuardName, GuardStatus>>,
}

impl Board {
    pub fn new(run: PathBuf) -> Self {
        Board { run, guards: Mutex::new(BTreeMap::new()) }
    }

    /// Takes a guard's state and shows it. A report that changes nothing is not written again.
    pub fn report(&self, status: GuardStatus) {
        let mut guards = match self.guards.lock() {
            Ok(guards) => guards,
            // A panic elsewhere must not blind the status: the map itself is whole after every insert.
            Err(poisoned) => poisoned.into_inner(),
        };
        if guards.get(&status.name) == Some(&status) {
            return;
        }
        guards.insert(status.name.clone(), status);
        self.write(&guards);
    }

    /// Shows what is known so far, also when that is no guard at all.
    pub fn show(&self) {
        match self.guards.lock() {
            Ok(guards) => self.write(&guards),
            Err(poisoned) => self.write(&poisoned.into_inner()),
        }
    }

    fn write(&self, guards: &BTreeMap<GuardName, GuardStatus>) {
        let list: Vec<GuardStatus> = guards.values().cloned().collect();
        notify::status(&summary(&list));
        let status = Status {
            api_version: "volhold/v1".to_owned(),
            kind: "Status".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            written_at: Time::now(),
            pid: std::process::id(),
            guards: list,
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
