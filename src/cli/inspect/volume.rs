//! `inspect DIR`: every etcd data dir below a directory. `verify DIR`: one of them, and whether etcd would keep it.

use super::block_on;
use crate::cli::exit::Exit;
use crate::cli::explain::{dir_lines, why_line};
use crate::cli::output::{Context, Failure, io_failure};
use crate::cli::text::{Screen, Tone};
use crate::etcd::VolumeHints;
use crate::model::{
    DataDirReport, DirRole, EtcdGeneration, EtcdManagerState, Observed, ReasonCode, Selection, Severity, VolumeReading,
};
use crate::worker::{self, Deadline};
use serde::Serialize;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// A reading of a volume takes seconds; a stalled disk takes for ever.
const AT_MOST: Duration = Duration::from_secs(180);

/// The document of `inspect DIR -o json`.
#[derive(Debug, Serialize)]
struct VolumeReport {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    path: String,
    data_dirs: Vec<DataDirReport>,
    selected: Option<Selection>,
    manager_state: Option<Observed<EtcdManagerState>>,
    /// What could not be looked at: what is under it is not known.
    unreadable: Vec<String>,
    root_entries: Vec<String>,
}

/// The document of `verify DIR -o json`.
#[derive(Debug, Serialize)]
struct Verified {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    /// How much was read: this version reads the metas, the telling buckets and the log.
    depth: &'static str,
    #[serde(flatten)]
    report: DataDirReport,
    prediction: Prediction,
}

/// What etcd would do with it, as far as a quick reading can tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Prediction {
    /// The version that wrote the dir, as far as known.
    version: Option<String>,
    starts: &'static str,
    loses: bool,
    message: String,
    because: Vec<ReasonCode>,
}

pub fn run(context: &Context, root: &Path) -> Result<Exit, Failure> {
    let reading = read(root, VolumeHints::default())?;
    let exit = if !reading.unreadable.is_empty() || !reading.beyond.is_empty() {
        Exit::Refused
    } else if reading.data_dirs.is_empty() {
        Exit::NoMatch
    } else if reading.data_dirs.iter().any(|dir| worst(dir) == Some(Severity::Damage)) {
        Exit::Refused
    } else {
        Exit::Ok
    };
    let lines = dir_lines(&reading);
    let VolumeReading { data_dirs, selected, manager_state, mut unreadable, beyond, root_entries, publish: _ } =
        reading;
    unreadable.extend(beyond);
    let document = VolumeReport {
        api_version: "volhold/v1",
        kind: "VolumeReport",
        path: root.display().to_string(),
        data_dirs,
        selected,
        manager_state,
        unreadable,
        root_entries,
    };
    context.print(&document, |screen| {
        let found = match document.data_dirs.len() {
            0 => "no etcd data dir".to_owned(),
            1 => "one etcd data dir".to_owned(),
            n => format!("{n} etcd data dirs"),
        };
        let (tone, more) = match exit {
            Exit::Ok => (Tone::Good, ""),
            Exit::Refused => (Tone::Bad, ", and not all is well"),
            Exit::NoMatch
            | Exit::Error
            | Exit::Usage
            | Exit::Held
            | Exit::TryLater
            | Exit::NoPermission
            | Exit::BadConfig => (Tone::Warn, ""),
        };
        screen.tone(tone, &format!("{}: {found}{more}.", root.display()));
        screen.blank();
        for line in &lines {
            line.draw(screen);
        }
        screen.blank();
        screen.para(0, "Nothing was written. One dir in detail: volhold verify DIR");
    })?;
    Ok(exit)
}

pub fn verify(context: &Context, dir: &Path) -> Result<Exit, Failure> {
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
    let prediction = predict(&report, &unreadable);
    let document = Verified { api_version: "volhold/v1", kind: "DataDirReport", depth: "quick", report, prediction };
    let exit = match (document.report.etcd, document.prediction.starts, document.prediction.loses) {
        (EtcdGeneration::None, _, _) => Exit::NoMatch,
        (EtcdGeneration::V3, "yes", false) => Exit::Ok,
        (EtcdGeneration::V2 | EtcdGeneration::V3 | EtcdGeneration::Empty, _, _) => Exit::Refused,
    };
    context.print(&document, |screen| draw_verified(screen, &document, &unreadable, exit))?;
    Ok(exit)
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
    screen.blank();
    screen.para(0, "A quick reading: metas, telling buckets, and the log. Nothing was written.");
}

fn worst(dir: &DataDirReport) -> Option<Severity> {
    dir.defects.iter().map(|d| d.severity).max()
}

/// No damage, and all that a start needs was read: etcd starts. What it would do with damage differs from version to
/// version and is not promised here; that it must not be let start is certain.
fn predict(report: &DataDirReport, unreadable: &[String]) -> Prediction {
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
    let (starts, message) = match report.etcd {
        EtcdGeneration::None => ("unknown", "there is no etcd data dir here (no `member` in it)"),
        EtcdGeneration::Empty => ("unknown", "nothing is in it yet: etcd would start as it was never started before"),
        EtcdGeneration::V2 => {
            because.push(ReasonCode::V2DataOnly);
            ("unknown", "data of etcd 2: an etcd 3.4 or later would start without it")
        }
        EtcdGeneration::V3 if because.is_empty() => ("yes", "etcd would start, and lose nothing"),
        EtcdGeneration::V3 if loses => ("unknown", "DAMAGED: etcd would not start, or would lose acknowledged writes"),
        EtcdGeneration::V3 => ("unknown", "DAMAGED or unreadable: etcd would not start, or not stay"),
    };
    let loses = loses || report.etcd == EtcdGeneration::V2;
    Prediction { version, starts, loses, message: message.to_owned(), because }
}

fn read(root: &Path, hints: VolumeHints) -> Result<VolumeReading, Failure> {
    let metadata = std::fs::metadata(root).map_err(|e| io_failure(format!("cannot open {}", root.display()), &e))?;
    if !metadata.is_dir() {
        return Err(Failure::new(Exit::Usage, format!("{} is no directory", root.display()))
            .advise("a device or an image: volhold inspect"));
    }
    let dir = File::open(root).map_err(|e| io_failure(format!("cannot open {}", root.display()), &e))?;
    match block_on(worker::examine_volume(dir.into(), &hints, Deadline::quiet(AT_MOST)))? {
        Observed::Seen(reading) => Ok(reading),
        Observed::Unknown(why) => {
            Err(Failure::new(Exit::Refused, format!("{} could not be examined: {}", root.display(), why_line(&why))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Defect, Fingerprint};

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
            fingerprint: Some(Fingerprint::default()),
            defects: defects.iter().map(defect).collect(),
            locked_by: None,
        }
    }

    #[test]
    fn only_a_3_dir_without_damage_is_predicted_to_start() {
        let predicted = |etcd, defects: &[(&str, Severity)]| {
            let p = predict(&report(etcd, defects), &[]);
            (p.starts, p.loses, p.because)
        };
        assert_eq!(predicted(EtcdGeneration::V3, &[]), ("yes", false, vec![]));
        assert_eq!(predicted(EtcdGeneration::V3, &[("wal-torn-tail", Severity::Warning)]), ("yes", false, vec![]));
        let lost = predicted(EtcdGeneration::V3, &[("wal-behind-backend", Severity::Damage)]);
        assert_eq!(lost, ("unknown", true, vec![ReasonCode::WalBehindBackend]));
        let bad = predicted(EtcdGeneration::V3, &[("backend-page", Severity::Damage)]);
        assert_eq!(bad, ("unknown", false, vec![ReasonCode::BackendDamaged]));
        assert_eq!(predicted(EtcdGeneration::V2, &[]), ("unknown", true, vec![ReasonCode::V2DataOnly]));
        assert_eq!(predicted(EtcdGeneration::Empty, &[]).0, "unknown");
    }

    #[test]
    fn what_could_not_be_looked_at_is_never_predicted_to_start() {
        let p = predict(&report(EtcdGeneration::V3, &[]), &["member/snap: EIO".to_owned()]);
        assert_eq!((p.starts, p.because), ("unknown", vec![ReasonCode::Unreadable]));
    }
}
