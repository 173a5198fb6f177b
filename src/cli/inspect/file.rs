//! `inspect FILE` of a file of etcd: a backend, a saved snapshot, a file of the log, a raft snapshot.

use super::verify::{deadline, draw_deep};
use super::{block_on, meter};
use crate::cli::exit::Exit;
use crate::cli::explain::why_line;
use crate::cli::output::{Context, Failure, io_failure};
use crate::cli::text::{Screen, Tone, count};
use crate::model::{BackendFile, EtcdFile, LogEnd, LogFile, MetaState, Observed};
use crate::worker;
use serde::Serialize;
use std::fs::File;
use std::path::Path;

/// The document of `inspect FILE -o json`.
#[derive(Debug, Serialize)]
struct FileReport {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    path: String,
    sound: bool,
    #[serde(flatten)]
    found: EtcdFile,
}

/// `None`: it is no file of etcd.
pub fn run(context: &Context, target: &Path) -> Result<Option<Exit>, Failure> {
    // What may not be opened is told by whoever looks at it as a device.
    let Ok(file) = File::open(target) else { return Ok(None) };
    let named_db = target.file_name().is_some_and(|name| name == "db") || target.extension().is_some_and(|e| e == "db");
    let (show, done) = meter();
    let answer = block_on(worker::etcd_file(file.into(), named_db, deadline(), show))?;
    done();
    let found = match answer {
        Observed::Seen(Some(found)) => found,
        Observed::Seen(None) => return Ok(None),
        Observed::Unknown(why) => {
            let error = std::io::Error::other(why_line(&why));
            return Err(io_failure(format!("{} could not be read", target.display()), &error));
        }
    };
    let sound = match &found {
        EtcdFile::Backend { sha256, backend } => *sha256 != Some(false) && backend_is_sound(backend),
        EtcdFile::Wal { log } => log.is_whole(),
        EtcdFile::Snap { .. } => true,
    };
    let path = target.display().to_string();
    let document = FileReport { api_version: "volhold/v1", kind: "EtcdFileReport", path, sound, found };
    context.print(&document, |screen| draw(screen, &document))?;
    Ok(Some(if sound { Exit::Ok } else { Exit::Refused }))
}

fn backend_is_sound(backend: &BackendFile) -> bool {
    let metas = backend.metas.iter().all(|meta| *meta == MetaState::Valid);
    metas && backend.deep.as_ref().is_some_and(|deep| deep.fault_count == 0 && deep.content_count == 0)
}

fn draw(screen: &mut Screen, it: &FileReport) {
    let what = match &it.found {
        EtcdFile::Backend { sha256: None, .. } => "a backend of etcd 3",
        EtcdFile::Backend { sha256: Some(true), .. } => "a saved snapshot, with the checksum that it was saved with",
        EtcdFile::Backend { sha256: Some(false), .. } => "a saved snapshot, and its checksum is WRONG",
        EtcdFile::Wal { .. } => "a file of the log",
        EtcdFile::Snap { .. } => "a raft snapshot",
    };
    let (tone, more) = match &it.found {
        EtcdFile::Backend { backend, .. } if backend.unstable => (
            Tone::Warn,
            "UNSTABLE: an etcd writes to it, and it changed each time while it was read. Try again when less is written",
        ),
        _ if it.sound => (Tone::Good, "sound"),
        _ => (Tone::Bad, "DAMAGED"),
    };
    screen.tone(tone, &format!("{}: {what}; {more}.", it.path));
    screen.blank();
    match &it.found {
        EtcdFile::Backend { backend, .. } => {
            let or = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
            let line = format!(
                "revision {}, applied entry {}",
                or(backend.revision.map(|n| n.to_string())),
                or(backend.consistent_index.map(|n| n.to_string()))
            );
            screen.hanging("          backend", 23, &line);
            for (n, meta) in backend.metas.iter().enumerate().filter(|(_, meta)| **meta != MetaState::Valid) {
                screen.hanging("  BAD     meta", 23, &format!("page {n}: {meta:?}"));
            }
            if let Some(deep) = &backend.deep {
                draw_deep(screen, deep);
                let faults = deep.faults.iter().map(|fault| &fault.message);
                for message in faults.chain(deep.contents.iter().map(|fault| &fault.message)).take(20) {
                    screen.hanging("  BAD     fault", 23, message);
                }
            }
        }
        EtcdFile::Wal { log } => draw_log(screen, log),
        EtcdFile::Snap { index, term, voters, cluster_version, v2_keys } => {
            let voters: Vec<String> = voters.iter().map(ToString::to_string).collect();
            screen.hanging("          entry", 23, &format!("{index}, term {term}; voters {}", voters.join(" ")));
            let version = cluster_version.as_deref().unwrap_or("unknown");
            let keys = v2_keys.map_or_else(|| "unknown".to_owned(), count);
            screen.hanging("          v2 store", 23, &format!("{keys} keys; cluster version {version}"));
        }
    }
    screen.blank();
    screen.para(0, "Nothing was written.");
}

fn draw_log(screen: &mut Screen, log: &LogFile) {
    if let Some((node, cluster)) = log.metadata {
        screen.hanging("          member", 23, &format!("{node:x} of cluster {cluster:x}"));
    }
    let place =
        |entry: Option<(u64, u64)>| entry.map_or_else(|| "none".to_owned(), |(n, term)| format!("{n} (term {term})"));
    let line = format!("{} to {}; {} records", place(log.first), place(log.last), count(log.records));
    screen.hanging("          entries", 23, &line);
    if let Some((term, commit)) = log.state {
        screen.hanging("          state", 23, &format!("term {term}, commit {commit}"));
    }
    let end = match log.end {
        LogEnd::Whole => "with the file",
        LogEnd::Zero => "before what was allocated ahead",
        LogEnd::Cut => "in the middle of a record: torn by a crash, or cut",
        LogEnd::Length => "at a length that no etcd writes",
        LogEnd::Long { .. } => "at a length of 10 MiB or more with no record behind it",
        LogEnd::Bad { torn: true } => "at a record that a crash has torn",
        LogEnd::Bad { torn: false } => "at a record whose checksum is wrong",
        LogEnd::Chain => "at a checksum that does not continue what is before it",
        LogEnd::Foreign => "at a record that is none of etcd's",
    };
    screen.hanging("          ends", 23, &format!("{end} (byte {})", log.end_at));
}
