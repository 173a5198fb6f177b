//! Something stirs on the volume of an open gate: it is looked at, told, and by policy what runs etcd is halted.

use super::{Driver, Event, SHORT, blocking};
use crate::act::halt::{self, Cgroup};
use crate::agent::machine::{State, is_hard, step};
use crate::agent::volume_root::VolumeRoot;
use crate::config::AtRunTime;
use crate::etcd::{lockers, strays};
use crate::fault::fault_point;
use crate::model::{Fact, Mode, Reason, ReasonCode, StartEvidence};
use crate::watch::{Process, processes};
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Between two looks of which the second has to say the same: renaming a file over another one, as a defragmentation does,
/// and moving a directory take no longer.
const SETTLES: Duration = Duration::from_millis(300);

/// What was halted, and how to tell whether it still is.
#[derive(Debug)]
pub(super) struct Halted {
    pub(super) warning: Reason,
    /// `None`: a unit, which a person starts again.
    cgroup: Option<Cgroup>,
}

impl Driver {
    /// The kernel hinted at the data dir, or at what lies beside it.
    pub(super) async fn attend_to_stir(&mut self, stop: &watch::Receiver<bool>) {
        let began = Instant::now();
        self.follow(Event::LookAgain, stop).await;
        let marked = self.mark().await;
        self.follow(marked, stop).await;
        self.rounds.looked(began.elapsed());
    }

    /// What is read through the mount of an open gate. News against it is read twice: what it says may be the half of a rename.
    pub(super) async fn look_at_open(&mut self) -> StartEvidence {
        let (mut evidence, mut astray) = self.look_once().await;
        if matches!(self.guard.state, State::Open { .. }) && self.speaks_anew(&evidence, &astray) {
            tokio::time::sleep(SETTLES).await;
            (evidence, astray) = self.look_once().await;
        }
        self.astray = astray;
        self.tell_watched();
        evidence
    }

    async fn look_once(&mut self) -> (StartEvidence, Vec<Reason>) {
        let root = self.mounted_root(false).await;
        let again = root.as_ref().ok().and_then(|root| root.try_clone().ok()).map(VolumeRoot::from);
        let evidence = self.evidence(root).await;
        let astray = match again {
            Some(root) => self.who_is_astray(root, &evidence).await,
            None => Vec::new(),
        };
        (evidence, astray)
    }

    /// Hands on what speaks against the gate besides what is read of the data. Whatever follows from it follows with the
    /// reading.
    pub(super) fn tell_watched(&mut self) {
        let seen = self.watched();
        let _with_the_reading = self.feed(Event::Watched(seen));
    }

    pub(super) fn watched(&self) -> Vec<Reason> {
        let told = self.told_of_sight().doubts;
        self.astray.iter().cloned().chain(told).collect()
    }

    /// Would the guard be in doubt for something that it is not in doubt for now?
    fn speaks_anew(&self, evidence: &StartEvidence, astray: &[Reason]) -> bool {
        let (told, _) = step(self.guard.clone(), Event::Watched(astray.to_vec()));
        let (told, _) = step(told, Event::Looked(Box::new(evidence.clone())));
        let now: Vec<ReasonCode> = self.guard.reasons().iter().map(|reason| reason.code).collect();
        told.reasons().iter().any(|reason| !now.contains(&reason.code))
    }

    /// Etcds that have files of this volume open which are in no data dir that was found.
    async fn who_is_astray(&self, root: VolumeRoot, evidence: &StartEvidence) -> Vec<Reason> {
        let Some(volume) = evidence.volume.seen() else { return Vec::new() };
        let dirs: Vec<String> = volume.data_dirs.iter().map(|dir| dir.path.clone()).collect();
        let looked = blocking(SHORT, move || {
            let lockers = lockers(root.as_fd())?;
            Ok::<Vec<Process>, crate::etcd::EtcdError>(processes(strays(root.as_fd(), &lockers, &dirs)?))
        });
        // What cannot be looked at is no news.
        let Ok(Ok(astray)) = looked.await else { return Vec::new() };
        let told = astray.iter().filter(|process| process.is_etcd()).map(|process| {
            let message = format!(
                "{} (process {}) works on files that are in no data dir of the volume any more: its dir, or a file in it, was \
                 removed, renamed or replaced",
                process.name, process.pid
            );
            Reason::new(ReasonCode::DataReplaced, message)
        });
        told.collect()
    }

    /// The data went away, or became another's, under the open gate: by policy what runs etcd is halted. Only for what was
    /// seen to happen; what an agent finds at its start may be days old, and a person may be at work on it.
    pub(super) async fn attend_to_halting(&mut self, stop: &watch::Receiver<bool>) {
        self.look_at_halted().await;
        let codes = match (&self.guard.state, self.config.mode) {
            (State::Open { .. }, Mode::Enforce) => self.hard_codes(),
            (_, Mode::Enforce | Mode::Observe) => {
                self.was_well = false;
                return;
            }
        };
        if codes.is_empty() {
            self.was_well = true;
            return;
        }
        if !std::mem::take(&mut self.was_well) || self.config.at_run_time == AtRunTime::Tell {
            return;
        }
        // A mark reads once; and what is halted is said to be so by two looks.
        tokio::time::sleep(SETTLES).await;
        self.follow(Event::LookAgain, stop).await;
        let codes = self.hard_codes();
        if codes.is_empty() {
            self.was_well = true;
            return;
        }
        match self.config.at_run_time.clone() {
            AtRunTime::Tell => {}
            AtRunTime::Freeze => self.freeze(&codes).await,
            AtRunTime::Stop(units) => self.stop_units(&units, &codes).await,
        }
        self.report();
    }

    fn hard_codes(&self) -> Vec<String> {
        let hard = self.guard.reasons().iter().filter(|reason| is_hard(reason));
        hard.map(|reason| reason.code.as_str().to_owned()).collect()
    }

    async fn freeze(&mut self, codes: &[String]) {
        let Ok(root) = self.mounted_root(false).await else { return };
        let found = blocking(SHORT, move || {
            let pids = lockers(root.as_fd()).unwrap_or_default().into_keys();
            processes(pids)
                .into_iter()
                .filter(Process::is_etcd)
                .map(|it| (it.pid, Cgroup::of_process(it.pid)))
                .collect::<Vec<_>>()
        });
        let found = found.await.unwrap_or_default();
        if found.is_empty() {
            tracing::warn!(event = "etcd.unhalted", guard = %self.config.name, "no etcd has files of the volume open: nothing to freeze");
        }
        for (pid, cgroup) in found {
            let done = match cgroup {
                Ok(cgroup) if self.halted.iter().any(|halted| halted.cgroup.as_ref() == Some(&cgroup)) => continue,
                Ok(cgroup) => self.freeze_one(cgroup, codes).await,
                Err(error) => Err(crate::agent::chain(&error)),
            };
            if let Err(why) = done {
                tracing::error!(event = "etcd.unhalted", guard = %self.config.name, pid, "not frozen: {why}");
            }
        }
    }

    async fn freeze_one(&mut self, cgroup: Cgroup, codes: &[String]) -> Result<(), String> {
        let what = format!("the cgroup {}", cgroup.at.display());
        self.keep_halted(&what, codes).await?;
        let work = cgroup.clone();
        blocking(SHORT, move || work.freeze())
            .await
            .map_err(|stuck| stuck.words("freezing a cgroup"))?
            .map_err(|error| crate::agent::chain(&error))?;
        let words =
            format!("{what} is frozen because of {}; to let it run again: {}", codes.join(", "), cgroup.thaw_command());
        self.has_halted(words, Some(cgroup));
        Ok(())
    }

    async fn stop_units(&mut self, units: &[String], codes: &[String]) {
        for unit in units {
            let done = match self.keep_halted(unit, codes).await {
                Ok(()) => {
                    let name = unit.clone();
                    match blocking(SHORT, move || halt::stop_unit(&name)).await {
                        Ok(done) => done.map_err(|error| crate::agent::chain(&error)),
                        Err(stuck) => Err(stuck.words("systemctl stop")),
                    }
                }
                Err(why) => Err(why),
            };
            match done {
                Ok(()) => {
                    let words = format!("{unit} was stopped because of {}", codes.join(", "));
                    self.has_halted(words, None);
                }
                Err(why) => {
                    tracing::error!(event = "etcd.unhalted", guard = %self.config.name, unit, "not stopped: {why}");
                }
            }
        }
    }

    /// On record before it happens.
    async fn keep_halted(&self, what: &str, codes: &[String]) -> Result<(), String> {
        let fact = Fact::Halted { what: what.to_owned(), codes: codes.to_vec() };
        self.note(&self.volume_id(), self.fs_uuid(), fact).await.map_err(|reason| reason.message)?;
        fault_point("before-halt");
        Ok(())
    }

    fn has_halted(&mut self, words: String, cgroup: Option<Cgroup>) {
        tracing::error!(event = "etcd.halted", guard = %self.config.name, "{words}");
        self.halted.push(Halted { warning: Reason::new(ReasonCode::EtcdFrozen, words), cgroup });
    }

    /// What a person has let run again is not said to be halted any more.
    async fn look_at_halted(&mut self) {
        let well = self.hard_codes().is_empty();
        let mut still = Vec::new();
        for halted in std::mem::take(&mut self.halted) {
            let frozen = match halted.cgroup.clone() {
                Some(cgroup) => {
                    // One that is gone is halted no more.
                    let looked = blocking(SHORT, move || cgroup.is_frozen().unwrap_or(false)).await;
                    looked.unwrap_or(true)
                }
                None => !well,
            };
            if frozen {
                still.push(halted);
            }
        }
        self.halted = still;
    }
}
