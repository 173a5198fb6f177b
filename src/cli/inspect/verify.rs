//! `verify DIR`: one data dir, and whether etcd would keep it.
//!
//! Quick: the metas, the telling buckets and the log, as the agent reads them at boot. Deep: every page, record and file, and
//! what an etcd of a given version would do with all that.

use super::volume::read;
use super::{block_on, meter};
use crate::cli::exit::Exit;
use crate::cli::explain::{dir_lines, why_line};
use crate::cli::output::{Context, Failure, io_failure};
use crate::cli::text::{Screen, Tone, bytes, count};
use crate::decide::predict::predict;
use crate::etcd::VolumeHints;
use crate::model::{
    BackendDeep, DataDirFacts, DataDirReport, Defect, DirRole, EtcdGeneration, EtcdVersion, FaultKind, Observed,
    Prediction, ReasonCode, Severity, Starts, VolumeReading,
};
use crate::worker::{self, Deadline};
use serde::Serialize;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// The document of `verify DIR -o json`.
#[derive(Debug, Serialize)]
struct Verified {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    /// How much was read: `quick`, the metas, the telling buckets and the log; `deep`, everything.
    depth: &'static str,
    #[serde(flatten)]
    report: DataDirReport,
    /// What the whole backend says.
    #[serde(skip_serializing_if = "Option::is_none")]
    deep: Option<BackendDeep>,
    prediction: Prediction,
}

pub fn verify(context: &Context, dir: &Path, deep: bool, version: Option<EtcdVersion>) -> Result<Exit, Failure> {
    // The dir itself is the root of the reading, and the dir that is asked for.
    let reading = read(dir, VolumeHints { data_dir: Some(".".to_owned()), ..VolumeHints::default() })?;
    let unreadable = [reading.unreadable, reading.beyond].concat();
    let mut report = reading.data_dirs.into_iter().find(|report| report.path == ".").unwrap_or_else(|| DataDirReport {
        path: ".".to_owned(),
        role: DirRole::Candidate,
        layout: "none".to_owned(),
        etcd: EtcdGeneration::None,
        populated: false,
        fingerprint: None,
        defects: Vec::new(),
        locked_by: None,
    });
    report.path = dir.display().to_string();
    let whole = deep || version.is_some();
    let mut prediction = quick_prediction(&report, &unreadable);
    let mut found = None;
    if whole && report.etcd != EtcdGeneration::None {
        let facts = facts(dir)?;
        if let Some(version) = version.or_else(|| wrote_it(&report)) {
            prediction = predict(&facts, version);
            if !unreadable.is_empty() && prediction.starts == Starts::Yes {
                prediction.starts = Starts::Unknown;
                prediction.because.push(ReasonCode::Unreadable);
            }
        }
        found = facts.backend.deep.clone();
        add(&mut report, &facts);
    }
    let depth = if whole { "deep" } else { "quick" };
    let document =
        Verified { api_version: "volhold/v1", kind: "DataDirReport", depth, report, deep: found, prediction };
    let damaged = document.report.defects.iter().any(|defect| defect.severity == Severity::Damage);
    let keeps = document.prediction.starts == Starts::Yes && !document.prediction.loses && !damaged;
    let exit = match document.report.etcd {
        EtcdGeneration::None => Exit::NoMatch,
        EtcdGeneration::V3 if keeps => Exit::Ok,
        EtcdGeneration::V2 if keeps && whole => Exit::Ok,
        EtcdGeneration::V2 | EtcdGeneration::V3 | EtcdGeneration::Empty => Exit::Refused,
    };
    context.print(&document, |screen| draw_verified(screen, &document, &unreadable, exit))?;
    Ok(exit)
}

/// All facts of a data dir, read in a confined child.
pub(in crate::cli) fn facts(dir: &Path) -> Result<DataDirFacts, Failure> {
    let opened = File::open(dir).map_err(|e| io_failure(format!("cannot open {}", dir.display()), &e))?;
    let (show, done) = meter();
    let answer = block_on(worker::facts(opened.into(), deadline(), show))?;
    done();
    match answer {
        Observed::Seen(facts) => Ok(facts),
        Observed::Unknown(why) => {
            Err(Failure::new(Exit::Refused, format!("{} could not be read: {}", dir.display(), why_line(&why))))
        }
    }
}

/// A whole backend of the largest size that etcd is meant for takes minutes on a slow disk; a stalled one says nothing.
pub(in crate::cli) fn deadline() -> Deadline {
    Deadline { silence: Duration::from_secs(180), total: Duration::from_secs(3600) }
}

/// The version that wrote the dir, as far as it is told: its line.
pub(in crate::cli) fn wrote_it(report: &DataDirReport) -> Option<EtcdVersion> {
    let print = report.fingerprint.as_ref()?;
    let told = print.storage_version.as_deref().or(print.cluster_version.as_deref())?;
    let line: EtcdVersion = told.parse().ok()?;
    Some(EtcdVersion { patch: u64::MAX, ..line })
}

/// Puts into the report what only a whole reading tells.
pub(in crate::cli) fn add(report: &mut DataDirReport, facts: &DataDirFacts) {
    let Some(deep) = &facts.backend.deep else { return };
    // The quick reading stops at the first fault of a bucket; here they all are.
    report.defects.retain(|defect| !matches!(defect.code.as_str(), "backend-page" | "backend-content"));
    let defect = |code: &str, severity, offset, message: &str| Defect {
        code: code.to_owned(),
        severity,
        file: "member/snap/db".to_owned(),
        offset: Some(offset),
        message: message.to_owned(),
    };
    for fault in &deep.faults {
        let severity = match fault.kind {
            FaultKind::Lost | FaultKind::Meta => Severity::Warning,
            _ => Severity::Damage,
        };
        report.defects.push(defect("backend-page", severity, fault.offset, &fault.message));
    }
    for fault in &deep.contents {
        report.defects.push(defect("backend-content", Severity::Damage, fault.offset, &fault.message));
    }
    report.defects.sort_by_key(|defect| std::cmp::Reverse(defect.severity));
    if let Some(print) = &mut report.fingerprint {
        print.hashkv = deep.hashkv;
        print.log_version = facts.log_version();
        if deep.keys.is_some() {
            (print.keys, print.keys_capped) = (deep.keys, false);
        }
        if let Some(backend) = &mut print.backend {
            let free = deep.pages.free.saturating_mul(u64::from(backend.page_size));
            backend.size_in_use = Some(backend.size.saturating_sub(free)).filter(|_| deep.fault_count == 0);
        }
    }
}

fn draw_verified(screen: &mut Screen, it: &Verified, unreadable: &[String], exit: Exit) {
    let tone = if exit == Exit::Ok { Tone::Good } else { Tone::Bad };
    screen.tone(tone, &format!("{}: {}.", it.report.path, it.prediction.message));
    screen.blank();
    let reading = VolumeReading {
        data_dirs: vec![DataDirReport { path: ".".to_owned(), ..it.report.clone() }],
        selected: None,
        manager_state: None,
        unreadable: unreadable.to_vec(),
        beyond: Vec::new(),
        root_entries: Vec::new(),
        publish: Vec::new(),
    };
    for line in dir_lines(&reading) {
        line.draw(screen);
    }
    if let Some(print) = &it.report.fingerprint {
        for member in &print.members {
            let urls = member.peer_urls.join(" ");
            let learner = if member.learner { ", learner" } else { "" };
            screen.hanging("          member", 23, &format!("{} {} {urls}{learner}", member.id, member.name));
        }
        for alarm in &print.alarms {
            screen.hanging("  BAD     alarm", 23, alarm);
        }
    }
    if let Some(deep) = &it.deep {
        draw_deep(screen, deep);
    }
    for rule in &it.prediction.rules {
        screen.hanging("          rule", 23, &format!("{} ({})", rule.what, rule.source));
    }
    screen.blank();
    let what = match it.depth {
        "quick" => "A quick reading: metas, telling buckets, and the log. All of it: --deep.",
        _ => "Every page, record and file was read.",
    };
    screen.para(0, &format!("{what} Nothing was written."));
}

/// What a whole backend says, as a person wants it.
pub(super) fn draw_deep(screen: &mut Screen, deep: &BackendDeep) {
    let pages = &deep.pages;
    let line = format!(
        "{} branch, {} leaf, {} overflow, {} free; {} faults",
        count(pages.branch),
        count(pages.leaf),
        count(pages.overflow),
        count(pages.free),
        count(deep.fault_count.saturating_add(deep.content_count))
    );
    screen.hanging("          pages", 23, &line);
    let keys = deep.keys.map_or_else(|| "unknown".to_owned(), count);
    let line = format!(
        "{keys} live; {} records with {}, {} of them deletions",
        count(deep.records),
        bytes(deep.record_bytes),
        count(deep.tombstones)
    );
    screen.hanging("          keys", 23, &line);
    for one in deep.prefixes.iter().take(8) {
        let name = if one.prefix.is_empty() { "(no path)" } else { one.prefix.as_str() };
        screen.hanging("", 23, &format!("{name}: {} keys, {}", count(one.keys), bytes(one.bytes)));
    }
    if deep.compaction.interrupted {
        screen.hanging("          compaction", 23, "begun and not finished: the next etcd goes on with it");
    }
    if let Some(hash) = deep.hashkv {
        let line = format!("{} at revision {}, compacted at {}", hash.hash, hash.revision, hash.compact_revision);
        screen.hanging("          hashkv", 23, &line);
    }
    if let Some(status) = deep.status {
        let line = format!("hash {:x}, {} records, {}", status.hash, status.total_records, bytes(status.total_size));
        screen.hanging("          status", 23, &line);
    }
}

/// No damage, and all that a start needs was read: etcd starts. What it would do with damage differs from version to
/// version and is not promised here; that it must not be let start is certain.
fn quick_prediction(report: &DataDirReport, unreadable: &[String]) -> Prediction {
    let print = report.fingerprint.as_ref();
    let version = print.and_then(|p| p.storage_version.clone().or_else(|| p.cluster_version.clone()));
    let damage = report.defects.iter().filter(|d| d.severity == Severity::Damage);
    let mut because: Vec<ReasonCode> = damage.map(|d| crate::etcd::defect_reason_code(&d.code)).collect();
    if !unreadable.is_empty() {
        because.push(ReasonCode::Unreadable);
    }
    because.sort();
    because.dedup();
    let loses = because.iter().any(|code| {
        matches!(code, ReasonCode::WalBehindBackend | ReasonCode::WalDamaged | ReasonCode::SnapshotDamaged)
    });
    // Raft learns of its members from entries and snapshots alone.
    let knows_a_member = print.is_some_and(|p| p.raft.last_index.is_some() || p.raft.snapshot_index.is_some());
    let (starts, message) = match report.etcd {
        EtcdGeneration::None => (Starts::Unknown, "there is no etcd data dir here (no `member` in it)"),
        EtcdGeneration::Empty => {
            (Starts::Unknown, "nothing is in it yet: etcd would start as it was never started before")
        }
        EtcdGeneration::V2 => {
            because.push(ReasonCode::V2DataOnly);
            (Starts::Unknown, "data of etcd 2: an etcd 3.4 or later would start without it")
        }
        EtcdGeneration::V3 if because.is_empty() && !knows_a_member => {
            because.push(ReasonCode::WalDamaged);
            (
                Starts::Unhealthy,
                "the log has no entry and no snapshot: it serves only after a leader has sent it everything",
            )
        }
        EtcdGeneration::V3 if because.is_empty() => (Starts::Yes, "etcd would start, and lose nothing"),
        EtcdGeneration::V3 if loses => {
            (Starts::Unknown, "DAMAGED: etcd would not start, or would lose acknowledged writes")
        }
        EtcdGeneration::V3 => (Starts::Unknown, "DAMAGED or unreadable: etcd would not start, or not stay"),
    };
    let loses = loses || report.etcd == EtcdGeneration::V2;
    Prediction { version, starts, loses, message: message.to_owned(), because, rules: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Defect, Fingerprint, RaftProgress};

    fn report(etcd: EtcdGeneration, defects: &[(&str, Severity)]) -> DataDirReport {
        let defect = |(code, severity): &(&str, Severity)| Defect {
            code: (*code).to_owned(),
            severity: *severity,
            file: "member/wal".into(),
            offset: None,
            message: "x".into(),
        };
        DataDirReport {
            path: ".".into(),
            role: DirRole::Candidate,
            layout: "etcd".into(),
            etcd,
            populated: true,
            fingerprint: Some(Fingerprint {
                raft: RaftProgress { last_index: Some(7), ..RaftProgress::default() },
                ..Fingerprint::default()
            }),
            defects: defects.iter().map(defect).collect(),
            locked_by: None,
        }
    }

    #[test]
    fn only_a_3_dir_without_damage_is_predicted_to_start() {
        let predicted = |etcd, defects: &[(&str, Severity)]| {
            let p = quick_prediction(&report(etcd, defects), &[]);
            (p.starts, p.loses, p.because)
        };
        assert_eq!(predicted(EtcdGeneration::V3, &[]), (Starts::Yes, false, vec![]));
        assert_eq!(
            predicted(EtcdGeneration::V3, &[("wal-torn-tail", Severity::Warning)]),
            (Starts::Yes, false, vec![])
        );
        let lost = predicted(EtcdGeneration::V3, &[("wal-behind-backend", Severity::Damage)]);
        assert_eq!(lost, (Starts::Unknown, true, vec![ReasonCode::WalBehindBackend]));
        let bad = predicted(EtcdGeneration::V3, &[("backend-page", Severity::Damage)]);
        assert_eq!(bad, (Starts::Unknown, false, vec![ReasonCode::BackendDamaged]));
        assert_eq!(predicted(EtcdGeneration::V2, &[]), (Starts::Unknown, true, vec![ReasonCode::V2DataOnly]));
        assert_eq!(predicted(EtcdGeneration::Empty, &[]).0, Starts::Unknown);
    }

    #[test]
    fn a_log_without_an_entry_serves_nobody_by_itself() {
        let mut cut = report(EtcdGeneration::V3, &[("wal-torn-tail", Severity::Warning)]);
        cut.fingerprint = Some(Fingerprint::default());
        let p = quick_prediction(&cut, &[]);
        assert_eq!((p.starts, p.because), (Starts::Unhealthy, vec![ReasonCode::WalDamaged]));
    }

    #[test]
    fn what_could_not_be_looked_at_is_never_predicted_to_start() {
        let p = quick_prediction(&report(EtcdGeneration::V3, &[]), &["member/snap: EIO".to_owned()]);
        assert_eq!((p.starts, p.because), (Starts::Unknown, vec![ReasonCode::Unreadable]));
    }
}
