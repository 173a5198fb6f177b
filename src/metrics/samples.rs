//! From a status to samples.

use super::table::{self, Metric};
use super::{Measured, Sample, Sources, Verdict};
use crate::model::{
    AccessSight, DeviceSight, EtcdSight, Gate, GuardName, GuardStatus, Mode, MountSight, ReasonCode, VolumeSight,
    WriteSight,
};
use std::collections::{BTreeMap, BTreeSet};

/// Every value of every metric.
pub(super) fn samples(sources: &Sources<'_>) -> Vec<Sample> {
    let status = sources.status;
    let mut all = Collected(Vec::new());
    let mut names: Vec<&GuardName> = status.guards.iter().map(|guard| &guard.name).chain(sources.configured).collect();
    names.sort();
    names.dedup();
    for name in names {
        let measured = sources.measured.get(name).copied().unwrap_or_default();
        all.counted(sources, name);
        all.add(&table::GATE_BYPASSED, &[name.as_str()], bit(measured.bypassed));
        match status.guards.iter().find(|guard| guard.name == *name) {
            Some(guard) => all.guard(guard, measured),
            None => all.unreported(name),
        }
    }
    all.add(&table::LAST_UPDATE, &[], seconds(sources.now.unix()));
    let revision = option_env!("VOLHOLD_REVISION").unwrap_or("unknown");
    all.add(&table::BUILD_INFO, &[&status.version, revision], 1.0);
    all.add(&table::AGENT_WARNINGS, &[], count(status.config.len().saturating_add(status.warnings.len())));
    all.0
}

struct Collected(Vec<Sample>);

impl Collected {
    fn add(&mut self, metric: &'static Metric, labels: &[&str], value: f64) {
        self.0.push(Sample { metric, labels: labels.iter().map(|&label| label.to_owned()).collect(), value });
    }

    fn add_known(&mut self, metric: &'static Metric, guard: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.add(metric, &[guard], value);
        }
    }

    fn counted(&mut self, sources: &Sources<'_>, name: &GuardName) {
        let (tally, label) = (sources.tally, name.as_str());
        self.add(&table::HOLD_SECONDS, &[label], tally.held_seconds(name, sources.instant));
        self.add(&table::PROBE_ERRORS, &[label], whole(tally.unreadable(name)));
        // Also those that never came up, at 0: an increase from nothing shows nowhere.
        for code in ReasonCode::ALL.iter().filter(|code| Verdict::of(**code) == Verdict::RefuseFormat) {
            self.add(&table::FORMAT_REFUSALS, &[label, code.as_str()], whole(tally.refusals(name, *code)));
        }
    }

    /// Configured, and nothing told of it: it waits.
    fn unreported(&mut self, name: &GuardName) {
        self.add(&table::GATE_OPEN, &[name.as_str()], 0.0);
        self.add(&table::WOULD_HOLD, &[name.as_str()], 0.0);
        self.verdicts(name.as_str(), &[(Verdict::Wait, "")]);
    }

    fn guard(&mut self, guard: &GuardStatus, measured: Measured) {
        let name = guard.name.as_str();
        self.add(&table::GATE_OPEN, &[name], bit(guard.gate == Gate::Open));
        self.add(&table::WOULD_HOLD, &[name], bit(guard.would_hold));
        self.verdicts(name, &verdicts(guard));
        self.remarks(guard);
        self.info(guard);
        self.add(&table::VOLUME_ATTACHED, &[name], bit(guard.device.is_some()));
        self.add_known(&table::VOLUME_MOUNTED, name, measured.mounted.map(bit));
        self.add(&table::VOLUME_PUBLISHED, &[name], bit(measured.published));
        self.watch(guard);
        self.add_known(&table::VOLUME_SIZE, name, guard.device.as_ref().map(|device| whole(device.size)));
        self.add_known(&table::FILESYSTEM_SIZE, name, measured.filesystem_size.map(whole));
        self.add_known(&table::FILESYSTEM_AVAILABLE, name, measured.filesystem_available.map(whole));
        self.add_known(&table::FILESYSTEM_FILES, name, measured.files.map(whole));
        self.add_known(&table::FILESYSTEM_FILES_FREE, name, measured.files_free.map(whole));
        let figures = &guard.figures;
        self.add_known(&table::FORMAT_TIME, name, figures.formatted_at.map(|at| seconds(at.unix())));
        self.add_known(&table::PINNED_TIME, name, figures.pinned_at.map(|at| seconds(at.unix())));
        if let Some(dirs) = &figures.data_dirs {
            for (state, number) in [
                ("populated", dirs.populated),
                ("empty", dirs.empty),
                ("foreign", dirs.foreign),
                ("archived", dirs.archived),
            ] {
                self.add(&table::DATA_DIRS, &[name, state], whole(number));
            }
        }
        self.add_known(&table::IDENTITY_MATCH, name, identity_match(guard).map(bit));
        self.add_known(&table::REVISION, name, figures.revision.map(seconds));
        let print = guard.data_dir.as_ref().and_then(|dir| dir.fingerprint.as_ref());
        let members = print.map(|print| print.members.len()).filter(|members| *members > 0);
        self.add_known(&table::MEMBERS, name, members.map(count));
        let backend = print.and_then(|print| print.backend.as_ref());
        self.add_known(&table::BACKEND_SIZE, name, backend.map(|backend| whole(backend.size)));
        let mut steps: BTreeMap<&str, u64> = BTreeMap::new();
        for timing in &guard.timings {
            let sum = steps.entry(timing.step.as_str()).or_default();
            *sum = sum.saturating_add(timing.us);
        }
        for (step, us) in steps {
            self.add(&table::STEP_DURATION, &[name, step], whole(us) / 1e6);
        }
        let written = guard.witness.as_ref().and_then(|witness| witness.written_at);
        self.add_known(&table::WITNESS_TIME, name, written.map(|at| seconds(at.unix())));
    }

    /// Each code once, whatever tells it.
    fn remarks(&mut self, guard: &GuardStatus) {
        let trouble = guard.witness.as_ref().and_then(|witness| witness.trouble.as_ref());
        let told = guard.warnings.iter().chain(&guard.waits).chain(trouble);
        let codes: BTreeSet<&str> = told.map(|reason| reason.code.as_str()).collect();
        for code in codes {
            self.add(&table::GUARD_WARNING, &[guard.name.as_str(), code], 1.0);
        }
    }

    fn watch(&mut self, guard: &GuardStatus) {
        let Some(VolumeSight { mount, device, access, filesystem_errors, write, space: _, etcd }) = &guard.watch else {
            return;
        };
        let name = guard.name.as_str();
        self.add_known(&table::MOUNT_IN_PLACE, name, mount.as_ref().map(|mount| bit(*mount == MountSight::InPlace)));
        self.add_known(&table::DEVICE_PRESENT, name, device.map(|device| bit(device == DeviceSight::Present)));
        let read_only = match (access, write) {
            (Some(AccessSight::ReadOnly { .. }), _) | (_, Some(WriteSight::ReadOnly)) => Some(true),
            (Some(AccessSight::Writable), _) => Some(false),
            (None, _) => None,
        };
        self.add_known(&table::READ_ONLY, name, read_only.map(bit));
        self.add_known(&table::FILESYSTEM_ERRORS, name, filesystem_errors.map(whole));
        let running = etcd.as_ref().map(|etcd| matches!(etcd, EtcdSight::Running { .. }));
        self.add_known(&table::ETCD_RUNNING, name, running.map(bit));
        self.add_known(&table::WRITE_TEST, name, write.as_ref().map(|write| bit(*write == WriteSight::Done)));
    }

    fn info(&mut self, guard: &GuardStatus) {
        let print = guard.data_dir.as_ref().and_then(|dir| dir.fingerprint.as_ref());
        let known = |what: Option<String>| what.unwrap_or_default();
        let mode = match guard.mode {
            Mode::Observe => "observe",
            Mode::Enforce => "enforce",
        };
        self.add(
            &table::GUARD_INFO,
            &[
                guard.name.as_str(),
                mode,
                &known(guard.volume.as_ref().map(ToString::to_string)),
                &known(guard.fs_uuid.map(|uuid| uuid.to_string())),
                &known(print.and_then(|print| print.cluster_id).map(|id| id.to_string())),
                &known(print.and_then(|print| print.member_id).map(|id| id.to_string())),
                &guard.publish,
            ],
            1.0,
        );
    }

    /// A row for each that is the case, and one at 0 for each verdict that is not.
    fn verdicts(&mut self, guard: &str, now: &[(Verdict, &'static str)]) {
        for verdict in Verdict::ALL {
            let mut reasons: Vec<&str> =
                now.iter().filter(|(is, _)| is == verdict).map(|(_, reason)| *reason).collect();
            reasons.sort_unstable();
            reasons.dedup();
            if reasons.is_empty() {
                self.add(&table::GUARD_VERDICT, &[guard, verdict.as_str(), ""], 0.0);
            }
            for reason in reasons {
                self.add(&table::GUARD_VERDICT, &[guard, verdict.as_str(), reason], 1.0);
            }
        }
    }
}

fn verdicts(guard: &GuardStatus) -> Vec<(Verdict, &'static str)> {
    if guard.reasons.is_empty() {
        return match guard.gate {
            Gate::Open => vec![(Verdict::Ok, "")],
            Gate::Waiting | Gate::Held => vec![(Verdict::Wait, "")],
        };
    }
    guard.reasons.iter().map(|reason| (Verdict::of(reason.code), reason.code.as_str())).collect()
}

/// `None`: no data was read, or nothing is pinned that it could be compared with.
fn identity_match(guard: &GuardStatus) -> Option<bool> {
    let codes = || guard.reasons.iter().chain(&guard.warnings).map(|reason| reason.code);
    let differs =
        |code| matches!(code, ReasonCode::OtherCluster | ReasonCode::OtherMember | ReasonCode::IdentityChanged);
    if codes().any(differs) {
        return Some(false);
    }
    let read = guard.data_dir.as_ref().and_then(|dir| dir.fingerprint.as_ref()?.cluster_id);
    (read.is_some() && guard.figures.pinned_at.is_some()).then_some(true)
}

fn bit(yes: bool) -> f64 {
    if yes { 1.0 } else { 0.0 }
}

// Prometheus knows no other numbers than these; above 2^53 the last digits are lost.
fn whole(number: u64) -> f64 {
    number as f64
}

fn seconds(number: i64) -> f64 {
    number as f64
}

fn count(number: usize) -> f64 {
    number as f64
}
