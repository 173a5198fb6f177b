//! What the watch over an open gate sees is told: in the status, in the journal, as doubts. It closes and halts nothing.

use super::{Driver, Event, watch};
use crate::agent::machine::State;
use crate::agent::machine::sight::{self, Told};
use crate::agent::watching::{Target, Watcher};
use crate::model::{Mode, Reason, ReasonCode, VolumeSight};

impl Driver {
    /// Keeps watch while the gate is open, over what it is open for.
    pub(super) fn keep_watch(&mut self) {
        let target = self.to_watch();
        if self.watcher.as_ref().map(Watcher::target) == target.as_ref() {
            return;
        }
        // What was seen of something else is nothing seen of this.
        self.sight = VolumeSight::default();
        self.watcher = match (target, self.rounds.hints()) {
            (Some(target), Some(hints)) => Some(Watcher::start(target, hints)),
            (Some(_) | None, _) => None,
        };
        self.report();
    }

    fn to_watch(&self) -> Option<Target> {
        let (State::Open { data_dir, .. }, Mode::Enforce) = (&self.guard.state, self.config.mode) else { return None };
        let facts = self.guard.device()?;
        Some(Target {
            entries: self.mounted(),
            data_dir: data_dir.clone(),
            devnum: facts.devnum,
            diskseq: facts.diskseq,
            node: facts.node.clone(),
            fstype: self.config.fstype,
        })
    }

    pub(super) fn told_of_sight(&self) -> Told {
        // An observed or closed guard is not watched, and old sights are none.
        let Some(watcher) = &self.watcher else { return Told::default() };
        sight::told(&self.sight, &watcher.target().node)
    }

    /// Shown at once, and only then kept as a decision: what is kept lies on disks, which may hang.
    pub(super) async fn take_sight(&mut self, sight: VolumeSight, stop: &watch::Receiver<bool>) {
        let before = self.told_of_sight();
        self.sight = sight;
        let now = self.told_of_sight();
        self.journal(&before, &now);
        let seen = self.watched();
        let actions = self.feed(Event::Watched(seen));
        self.report();
        for action in actions {
            if *stop.borrow() {
                return;
            }
            let _nothing_follows = self.perform(action).await;
        }
        self.report();
        let lost = |told: &Told| told.doubts.iter().any(|reason| reason.code == ReasonCode::MountLost);
        if lost(&before) && !lost(&now) {
            // Whoever looked meanwhile could not see the data.
            self.follow(Event::LookAgain, stop).await;
        }
    }

    fn journal(&self, before: &Told, now: &Told) {
        let all = |told: &Told| -> Vec<Reason> { told.doubts.iter().chain(&told.remarks).cloned().collect() };
        let (before, now) = (all(before), all(now));
        for reason in now.iter().filter(|reason| !before.contains(reason)) {
            tracing::error!(event = "watch.found", guard = %self.config.name, code = %reason.code, "{}; nothing was stopped", reason.message);
        }
        for reason in before.iter().filter(|reason| !now.contains(reason)) {
            tracing::info!(event = "watch.over", guard = %self.config.name, code = %reason.code, "no longer so: {}", reason.message);
        }
    }
}

/// What the watcher sees, when that is news; for ever where nobody keeps watch.
pub(super) async fn seen(watcher: &mut Option<Watcher>) -> VolumeSight {
    match watcher {
        Some(watcher) => watcher.news().await,
        None => std::future::pending().await,
    }
}
