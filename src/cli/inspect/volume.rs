//! `inspect DIR`: every etcd data dir below a directory.

use super::block_on;
use crate::cli::exit::Exit;
use crate::cli::explain::{dir_lines, why_line};
use crate::cli::output::{Context, Failure, io_failure};
use crate::cli::text::Tone;
use crate::etcd::VolumeHints;
use crate::model::{DataDirReport, EtcdManagerState, Observed, Selection, Severity, VolumeReading};
use crate::worker::{self, Deadline};
use serde::Serialize;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// A reading of a volume takes seconds; a stalled disk takes for ever.
pub(super) const AT_MOST: Duration = Duration::from_secs(180);

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

pub(super) fn worst(dir: &DataDirReport) -> Option<Severity> {
    dir.defects.iter().map(|d| d.severity).max()
}

pub(in crate::cli) fn read(root: &Path, hints: VolumeHints) -> Result<VolumeReading, Failure> {
    let metadata = std::fs::metadata(root).map_err(|e| io_failure(format!("cannot open {}", root.display()), &e))?;
    if !metadata.is_dir() {
        return Err(Failure::new(Exit::Usage, format!("{} is no directory", root.display()))
            .advise("a device or an image: volhold inspect"));
    }
    let dir = File::open(root).map_err(|e| io_failure(format!("cannot open {}", root.display()), &e))?;
    let (reading, _running) = block_on(worker::examine_volume(dir.into(), &hints, Deadline::quiet(AT_MOST)))?;
    match reading {
        Observed::Seen(reading) => Ok(reading),
        Observed::Unknown(why) => {
            Err(Failure::new(Exit::Refused, format!("{} could not be examined: {}", root.display(), why_line(&why))))
        }
    }
}
