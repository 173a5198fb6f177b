//! The state of all guards in one place: written to the status file, summed up for systemd, handed to those who ask over
//! HTTP.

use crate::gate::feed::{Feed, Listener, Snapshot, What};
use crate::gate::readers::Readers;
use crate::gate::{files, notify};
use crate::metrics::Tally;
use crate::model::{Gate, GuardName, GuardStatus, Mode, Status, Time};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Collects what the guards report. Each report is written at once, by rename, so that a reader never sees half of one.
pub struct Board {
    run: PathBuf,
    readers: Readers,
    shown: Mutex<Shown>,
    feed: Feed,
}

#[derive(Default)]
struct Shown {
    guards: BTreeMap<GuardName, GuardStatus>,
    configured: Vec<GuardName>,
    /// What is wrong with the configuration.
    config: Vec<String>,
    /// What the agent itself cannot do, by what it is about.
    warnings: BTreeMap<&'static str, String>,
    changes: u64,
    tally: Tally,
}

impl Board {
    /// `readers`: who may read the status file.
    pub fn new(run: PathBuf, readers: Readers) -> Self {
        let shown = Shown::default();
        let feed = Feed::new(shown.snapshot());
        Board { run, readers, shown: Mutex::new(shown), feed }
    }

    /// Takes a guard's state and shows it. A report that changes nothing is not written again.
    pub fn report(&self, status: GuardStatus) {
        let mut shown = self.shown();
        if shown.guards.get(&status.name) == Some(&status) {
            return;
        }
        shown.tally.see(&status, Instant::now());
        shown.guards.insert(status.name.clone(), status.clone());
        self.write(&mut shown, Some(What::Guard { guard: Box::new(status) }));
    }

    /// Forgets a guard that is not configured any more.
    pub fn remove(&self, name: &GuardName) {
        let mut shown = self.shown();
        shown.guards.remove(name);
        shown.tally.forget(name);
        shown.configured.retain(|known| known != name);
        self.write(&mut shown, Some(What::Removed { name: name.clone() }));
    }

    /// Which guards are to be expected.
    pub fn configured(&self, names: Vec<GuardName>) {
        let mut shown = self.shown();
        if shown.configured != names {
            shown.configured = names;
            // Said with the first report of each.
            self.feed.tell(shown.snapshot(), None);
        }
    }

    /// Shows what is wrong with the configuration; nothing where all is well.
    pub fn complain(&self, config: Vec<String>) {
        let mut shown = self.shown();
        if shown.config == config {
            return;
        }
        shown.config = config;
        let what = shown.about_the_agent();
        self.write(&mut shown, Some(what));
    }

    /// Shows what the agent itself cannot do, without harm to any guard; `None` where it can again. `true`: that is news.
    pub fn warn(&self, about: &'static str, problem: Option<String>) -> bool {
        let mut shown = self.shown();
        if shown.warnings.get(about) == problem.as_ref() {
            return false;
        }
        match problem {
            Some(problem) => shown.warnings.insert(about, problem),
            None => shown.warnings.remove(about),
        };
        let what = shown.about_the_agent();
        self.write(&mut shown, Some(what));
        true
    }

    /// What was counted so far.
    pub fn tally(&self) -> Tally {
        self.shown().tally.clone()
    }

    /// For those who tell about it.
    pub fn listener(&self) -> Listener {
        self.feed.listener()
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        // A panic elsewhere must not blind the status: what is shown is whole after every change.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows what is known so far, also when that is no guard at all.
    pub fn show(&self) {
        self.write(&mut self.shown(), None);
    }

    fn write(&self, shown: &mut Shown, what: Option<What>) {
        shown.changes = shown.changes.saturating_add(1);
        let snapshot = shown.snapshot();
        // First of all: whoever has read the file and asks over HTTP then must not be told of earlier times.
        self.feed.tell(snapshot.clone(), what);
        let status = &snapshot.status;
        let summary = summary(&status.guards);
        match status.config.first() {
            Some(problem) => notify::status(&format!("{summary}; the configuration: {problem}")),
            None => notify::status(&summary),
        }
        if let Err(error) = files::write_status(&self.run, status, self.readers) {
            tracing::error!(event = "status.unwritten", error = %error, "cannot write the status file");
        }
    }
}

impl Shown {
    fn snapshot(&self) -> Snapshot {
        let status = Status {
            api_version: "volhold/v1".to_owned(),
            kind: "Status".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            written_at: Time::now(),
            pid: std::process::id(),
            guards: self.guards.values().cloned().collect(),
            config: self.config.clone(),
            warnings: self.warnings.values().cloned().collect(),
        };
        Snapshot { number: self.changes, status, configured: self.configured.clone() }
    }

    fn about_the_agent(&self) -> What {
        What::Agent { config: self.config.clone(), warnings: self.warnings.values().cloned().collect() }
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
