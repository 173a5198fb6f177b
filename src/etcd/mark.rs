//! Progress that survives a power cut: read, then made durable, then told.
//!
//! What a running etcd shows may still be in memory only. A record of it would accuse a healthy member of having gone
//! backwards after a power cut. So: read the newest meta and what hangs from it, see that it is still the newest, flush the
//! backend and the last log file (`fdatasync` works on a descriptor that is open for reading), see that both names still
//! lead to the files that were flushed, and only then tell what was read first. Everything that etcd wrote since is ahead of
//! it, and bolt itself never lets a newer state reach the disk before its pages.

use super::bolt::read_metas;
use super::dir::{list, open_dir_str, open_file};
use super::error::EtcdError;
use super::member::{DB, Look, MAX_NAMES, SNAP_DIR, WAL_DIR};
use super::quick::settled;
use super::wal;
use crate::model::{ClusterId, EtcdGeneration, HighWater, MemberId, Severity};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

const ATTEMPTS: usize = 5;

/// The mark of a data dir that may be live. `None`: there is no member yet. `data_dir` is what the mark calls it.
///
/// # Errors
/// When something cannot be read or flushed, when the dir is damaged (its progress would mean nothing), and when backend or
/// log were replaced again and again meanwhile.
pub fn durable_mark(dir: BorrowedFd<'_>, data_dir: &str) -> Result<Option<HighWater>, EtcdError> {
    for _ in 0..ATTEMPTS {
        // Before the look: what is looked at must be what is flushed.
        let db = optional(open_in(dir, SNAP_DIR, "db"))?;
        let log = last_log_file(dir)?;
        let look = settled(dir, 0);
        match look.etcd {
            EtcdGeneration::Empty | EtcdGeneration::None if look.worst() < Some(Severity::Damage) => return Ok(None),
            EtcdGeneration::V3 if look.backend.is_none() && db.is_none() && log.is_none() => return Ok(None),
            EtcdGeneration::Empty | EtcdGeneration::None | EtcdGeneration::V2 | EtcdGeneration::V3 => {}
        }
        if let Some(defect) = look.defects.iter().find(|defect| defect.severity == Severity::Damage) {
            return Err(EtcdError::Damaged {
                path: format!("{data_dir}/{}", defect.file),
                what: defect.message.clone(),
                code: super::defect_reason_code(&defect.code),
            });
        }
        if let Some(file) = &db {
            sync(file, DB)?;
        }
        if let Some((name, file)) = &log {
            sync(file, &format!("{WAL_DIR}/{name}"))?;
        }
        if unchanged(dir, db.as_ref(), log.as_ref(), &look)? {
            return Ok(Some(mark_of(&look, data_dir)));
        }
    }
    Err(EtcdError::Unstable { path: data_dir.to_owned() })
}

/// Both names still lead to the flushed files, and the backend has not gone back behind what was read.
fn unchanged(
    dir: BorrowedFd<'_>,
    db: Option<&File>,
    log: Option<&(String, File)>,
    look: &Look,
) -> Result<bool, EtcdError> {
    let same_db = match (db, optional(open_in(dir, SNAP_DIR, "db"))?) {
        (None, None) => true,
        (Some(old), Some(new)) => {
            let metas = read_metas(old).map_err(|source| EtcdError::Read { path: DB.to_owned(), source })?;
            let read = look.backend.as_ref().map(|backend| backend.meta.txid);
            same_file(old, &new, DB)? && metas.newest().map(|meta| meta.txid) >= read
        }
        (Some(_), None) | (None, Some(_)) => false,
    };
    // A further log file may have been begun meanwhile; etcd flushes the old one when it does. What was read before lies in
    // the flushed file as long as that was the last one when the look began, and the look saw no more than one more.
    let same_log = match (log, last_log_file(dir)?) {
        (None, None) => true,
        (Some((old_name, old)), Some((name, new))) if *old_name == name => same_file(old, &new, WAL_DIR)?,
        (Some(_) | None, Some(_) | None) => false,
    };
    Ok(same_db && same_log)
}

fn mark_of(look: &Look, data_dir: &str) -> HighWater {
    let wal = look.wal.as_ref();
    let backend = look.backend.as_ref();
    HighWater {
        data_dir: data_dir.to_owned(),
        cluster_id: wal.and_then(|wal| wal.cluster_id).map(ClusterId),
        member_id: wal.and_then(|wal| wal.node_id).map(MemberId),
        term: wal.and_then(|wal| wal.term()),
        consistent_index: backend.and_then(|backend| backend.consistent_index),
        revision: backend.and_then(|backend| backend.revision),
        wal_last_index: wal.and_then(|wal| wal.last_index()),
        keys: match (backend, &look.snap) {
            (Some(backend), _) => backend.keys,
            (None, Some(snap)) => snap.store.as_ref().ok().map(|store| store.user_keys),
            (None, None) => None,
        },
    }
}

fn last_log_file(dir: BorrowedFd<'_>) -> Result<Option<(String, File)>, EtcdError> {
    let log = match open_dir_str(dir, WAL_DIR) {
        Ok(log) => log,
        Err(error) if error.is_absent() => return Ok(None),
        Err(error) => return Err(error),
    };
    let entries = list(log.as_fd(), WAL_DIR, MAX_NAMES)?;
    let parsed = entries.iter().filter_map(|entry| Some((wal::parse_name(entry.text()?)?, entry.text()?)));
    let Some((_, name)) = parsed.max() else { return Ok(None) };
    let file = optional(open_file(log.as_fd(), name, &format!("{WAL_DIR}/{name}")))?;
    Ok(file.map(|file| (name.to_owned(), file)))
}

fn open_in(dir: BorrowedFd<'_>, sub: &str, name: &str) -> Result<File, EtcdError> {
    open_file(open_dir_str(dir, sub)?.as_fd(), name, &format!("{sub}/{name}"))
}

/// Absence as `None`, every other error as it is.
fn optional<T>(found: Result<T, EtcdError>) -> Result<Option<T>, EtcdError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

fn sync(file: &File, path: &str) -> Result<(), EtcdError> {
    file.sync_data().map_err(|source| EtcdError::Sync { path: path.to_owned(), source })
}

fn same_file(one: &File, two: &File, path: &str) -> Result<bool, EtcdError> {
    let stat = |file: &File| file.metadata().map_err(|source| EtcdError::Stat { path: path.to_owned(), source });
    let (one, two) = (stat(one)?, stat(two)?);
    Ok((one.dev(), one.ino()) == (two.dev(), two.ino()))
}
