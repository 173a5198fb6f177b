//! What the world is told: the status, the journal, the decision that `explain` finds.

use super::{Driver, SHORT, blocking};
use crate::agent::machine::{Decided, State};
use crate::fault::fault_point;
use crate::model::{
    ClusterId, DataDirCounts, DataDirReport, Decision, DecisionVerdict, DirRole, EtcdGeneration, Fact, Figures,
    Fingerprint, GuardStatus, HighWater, Publish, PublishDir, Reason, Time, VolumeReading,
};

impl Driver {
    pub(super) async fn decide(&mut self, decided: Decided) {
        let Decided { verdict, reasons, warnings, evidence, not_done } = decided;
        // A device that is looked for every few seconds is not decided about every few seconds.
        let now = (verdict, reasons.clone(), warnings.clone());
        if self.decided.as_ref() == Some(&now) {
            return;
        }
        self.decided = Some(now);
        let decision = Decision {
            guard: self.config.name.clone(),
            time: Time::now(),
            boot_id: self.memory.here.boot_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            verdict,
            reasons,
            warnings,
            evidence,
            not_done,
        };
        let codes = decision.reasons.iter().map(|reason| reason.code.as_str().to_owned()).collect();
        let state = self.memory.state.clone();
        let stored = blocking(SHORT, move || {
            crate::record::decision::store_decision(&state, &decision)?;
            fault_point("after-decision");
            crate::record::decision::evidence_digest(&decision)
        });
        let stored = match stored.await {
            Ok(Ok(digest)) => Ok(digest),
            Ok(Err(error)) => Err(crate::agent::chain(&error)),
            Err(stuck) => Err(stuck.why("writing the decision").detail().to_owned()),
        };
        let digest = match stored {
            Ok(digest) => digest,
            Err(error) => {
                tracing::error!(event = "decision.unwritten", guard = %self.config.name, error, "the decision was not kept");
                return;
            }
        };
        let words = match verdict {
            DecisionVerdict::Opened => "opened",
            DecisionVerdict::Held => "held",
            DecisionVerdict::WouldHold => "would-hold",
            DecisionVerdict::WouldOpen => "would-open",
        };
        let fact =
            Fact::Decided { decision: "start".to_owned(), verdict: words.to_owned(), codes, evidence_digest: digest };
        if let Err(reason) = self.keep(&self.volume_id(), self.fs_uuid(), vec![fact]).await {
            tracing::error!(event = "record.failed", guard = %self.config.name, "the decision is not in the ledger: {}", reason.message);
        }
    }

    pub(super) fn status(&self) -> GuardStatus {
        let data_dir = self.guard.start_evidence().and_then(|evidence| {
            let volume = evidence.volume.seen()?;
            let path = match &self.guard.state {
                State::Open { data_dir, .. } => data_dir.clone(),
                State::Discovering
                | State::Attaching { .. }
                | State::Examining
                | State::Formatting
                | State::Inspecting
                | State::Publishing
                | State::Held { .. }
                | State::Observing { .. } => volume.selected.as_ref()?.path.clone(),
            };
            volume.data_dirs.iter().find(|dir| dir.path == path).cloned()
        });
        let mark = self.marked.as_ref().and_then(|(_, mark)| mark.as_ref());
        let data_dir = match (&self.guard.state, mark) {
            (State::Open { data_dir: path, .. }, Some(mark)) if mark.data_dir == *path => Some(grown(data_dir, mark)),
            _as_it_was_read => data_dir,
        };
        let places = self.places();
        GuardStatus {
            name: self.config.name.clone(),
            mode: self.config.mode,
            gate: self.guard.gate(),
            would_hold: self.guard.would_hold(),
            state: self.guard.state_name(),
            progress: self.progress.clone(),
            volume: Some(self.volume_id()),
            device: self.guard.device().cloned(),
            fs_uuid: self.fs_uuid(),
            publish: places.main(self.config.data_dir.as_deref()).display().to_string(),
            publish_dirs: directories(&places),
            data_dir,
            // Read by everybody, as the configuration has it.
            reasons: self.guard.reasons().iter().map(Reason::for_everybody).collect(),
            waits: self.guard.waits().cloned(),
            warnings: self.warnings(),
            since: self.since,
            timings: self.timings.told(),
            figures: self.figures(),
            witness: self.witness.as_ref().map(crate::cloud::witness::writer::Writer::status),
            watch: self.watcher.as_ref().map(|_keeps_watch| self.sight.clone()),
        }
    }

    fn figures(&self) -> Figures {
        let evidence = self.guard.start_evidence();
        let seen = evidence.and_then(|evidence| evidence.records.seen());
        // While the gate is open only the marks are news.
        let records = self.marked.as_ref().map(|(records, _)| records).or(seen);
        let marked = self.marked.as_ref().and_then(|(_, mark)| mark.as_ref()?.revision);
        let volume = evidence.and_then(|evidence| evidence.volume.seen());
        let selected = volume.and_then(selected_fingerprint);
        Figures {
            formatted_at: records.and_then(|records| records.formatted_at),
            pinned_at: records.and_then(|records| records.pin.as_ref()).map(|pin| pin.at),
            revision: marked.or_else(|| selected.and_then(|print| print.revision)),
            data_dirs: volume.map(|volume| count_dirs(&volume.data_dirs, selected.and_then(|print| print.cluster_id))),
        }
    }

    pub(super) fn warnings(&self) -> Vec<Reason> {
        self.guard
            .warnings
            .iter()
            .chain(&self.held_back)
            .chain(&self.provider_warnings)
            .chain(&self.enlarged)
            .chain(&self.unseen)
            .chain(self.halted.iter().map(|halted| &halted.warning))
            .cloned()
            .chain(self.told_of_sight().remarks)
            .collect()
    }

    pub(super) fn report(&mut self) {
        let now = (self.guard.gate(), self.guard.reasons().to_vec(), self.warnings(), self.guard.waits().cloned());
        if self.shown.as_ref() != Some(&now) {
            self.since = Time::now();
            let name = &self.config.name;
            match &self.guard.state {
                State::Held { reasons } => {
                    let first = reasons.first().map_or_else(String::new, |reason| reason.for_everybody().message);
                    tracing::error!(event = "guard.held", guard = %name, code = first_code(reasons), codes = ?codes(reasons), "held: {first}");
                }
                State::Open { data_dir, doubts } if doubts.is_empty() => {
                    tracing::info!(event = "guard.open", guard = %name, data_dir, "the gate is open");
                }
                State::Open { doubts, .. } | State::Observing { doubts } => {
                    let first = doubts.first().map(|reason| reason.for_everybody().message);
                    let first = first.as_deref().unwrap_or("nothing to hold for");
                    tracing::warn!(event = "guard.doubt", guard = %name, code = first_code(doubts), codes = ?codes(doubts), "{first}");
                }
                State::Attaching { waits: Some(reason) } => {
                    tracing::info!(event = "guard.waits", guard = %name, code = %reason.code, "waits: {}", reason.message);
                }
                State::Discovering
                | State::Attaching { waits: None }
                | State::Examining
                | State::Formatting
                | State::Inspecting
                | State::Publishing => {
                    tracing::debug!(event = "guard.state", guard = %name, state = ?self.guard.state_name());
                }
            }
            let known = self.shown.as_ref().map_or(&[][..], |(_, _, warnings, _)| warnings.as_slice());
            // Of the decision; whoever else warns tells it when it comes up.
            let own = self.guard.warnings.iter();
            for warning in own.filter(|warning| !known.iter().any(|other| other.code == warning.code)) {
                let told = warning.for_everybody().message;
                tracing::warn!(event = "guard.warning", guard = %name, code = warning.code.as_str(), "{told}");
            }
            self.shown = Some(now);
        }
        self.board.report(self.status());
    }
}

/// A dir in which there was nothing at the last look, or which was not there, and in which an etcd has begun since: the marks
/// say so before anybody looks again. One that held data already stays as it was read, whole.
fn grown(dir: Option<DataDirReport>, mark: &HighWater) -> DataDirReport {
    let mut dir = dir.unwrap_or_else(|| DataDirReport {
        path: mark.data_dir.clone(),
        role: DirRole::Selected,
        layout: "etcd".to_owned(),
        etcd: EtcdGeneration::None,
        populated: false,
        fingerprint: None,
        defects: Vec::new(),
        locked_by: None,
    });
    if dir.populated {
        return dir;
    }
    match dir.etcd {
        EtcdGeneration::Empty | EtcdGeneration::None if mark.revision.is_some() => dir.etcd = EtcdGeneration::V3,
        EtcdGeneration::Empty | EtcdGeneration::None => dir.etcd = EtcdGeneration::V2,
        EtcdGeneration::V2 | EtcdGeneration::V3 => {}
    }
    dir.populated = mark.keys.unwrap_or(0) > 0;
    let print = dir.fingerprint.get_or_insert_default();
    print.cluster_id = mark.cluster_id.or(print.cluster_id);
    print.member_id = mark.member_id.or(print.member_id);
    print.revision = mark.revision.or(print.revision);
    print.consistent_index = mark.consistent_index.or(print.consistent_index);
    print.keys = mark.keys.or(print.keys);
    dir
}

/// Of the form with directories only: who reads the status of a whole volume sees no change.
fn directories(publish: &Publish) -> Vec<PublishDir> {
    if publish.is_whole() { Vec::new() } else { publish.entries().to_vec() }
}

fn selected_fingerprint(volume: &VolumeReading) -> Option<&Fingerprint> {
    let path = &volume.selected.as_ref()?.path;
    volume.data_dirs.iter().find(|dir| dir.path == *path)?.fingerprint.as_ref()
}

fn count_dirs(dirs: &[DataDirReport], selected: Option<ClusterId>) -> DataDirCounts {
    let mut counts = DataDirCounts::default();
    for dir in dirs {
        let cluster = dir.fingerprint.as_ref().and_then(|print| print.cluster_id);
        let count = match (dir.role, dir.populated) {
            (DirRole::Archive, _) => &mut counts.archived,
            (DirRole::Selected | DirRole::Candidate | DirRole::Legacy, false) => &mut counts.empty,
            (DirRole::Selected | DirRole::Candidate | DirRole::Legacy, true) => {
                if selected.is_some() && cluster.is_some() && cluster != selected {
                    &mut counts.foreign
                } else {
                    &mut counts.populated
                }
            }
        };
        *count = count.saturating_add(1);
    }
    counts
}

fn first_code(reasons: &[Reason]) -> Option<&'static str> {
    reasons.first().map(|reason| reason.code.as_str())
}

fn codes(reasons: &[Reason]) -> Vec<&'static str> {
    reasons.iter().map(|reason| reason.code.as_str()).collect()
}
