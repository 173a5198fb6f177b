//! One look at one data dir: backend, snapshots and log, each read once, then held against each other.
//!
//! The order matters where etcd is running. It writes the log before it applies to the backend, so the backend is read
//! first, and a log that ends before it is damage and no race. It writes a snapshot only after the backend has what is in
//! it, so for that comparison the backend's index is read a second time, at the end.

mod checks;

use super::bolt::tree::Budget;
use super::bolt::{Metas, read_metas};
use super::defects::Code;
use super::dir::{Stamp, kind_name, kind_of, list, open_dir_str, open_file};
use super::error::EtcdError;
use super::schema::{BackendError, BackendReading, ProblemKind, read_backend, read_consistent_index};
use super::snap::{self, SnapError, SnapReading, read_snap};
use super::wal::{self, Segment, WalQuestion, WalReading, read_wal};
use crate::model::{Defect, EtcdGeneration, Severity};
use rustix::fs::FileType;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(super) const SNAP_DIR: &str = "member/snap";
pub(super) const WAL_DIR: &str = "member/wal";
pub(super) const DB: &str = "member/snap/db";
/// Names in one of a member's directories. etcd keeps a handful.
pub(super) const MAX_NAMES: usize = 20_000;
/// Snapshot files tried until one is good.
const MAX_SNAPS: usize = 64;
/// Good ones that are looked at; etcd keeps five (`--max-snapshots`).
const KEPT_SNAPS: usize = 6;
/// No further snapshot is read once the good ones had so many bytes.
const SNAP_BYTES: u64 = 32 << 20;

/// What a look may cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct LookBudget {
    /// For counting keys.
    pub count: Budget,
    /// Bytes of log besides the last file.
    pub wal: u64,
}

/// What was seen.
pub(super) struct Look {
    pub etcd: EtcdGeneration,
    pub backend: Option<BackendReading>,
    pub snap: Option<SnapReading>,
    pub wal: Option<WalReading>,
    /// The backend is there, but what it holds could not be seen.
    pub content_unknown: bool,
    pub defects: Vec<Defect>,
    /// The backend committed, or a file came or went, while this look was taken.
    pub moved: bool,
    /// Names and times of the member's files before the look.
    pub stamp: Option<Stamp>,
}

impl Look {
    fn nothing(etcd: EtcdGeneration) -> Self {
        Look {
            etcd,
            backend: None,
            snap: None,
            wal: None,
            content_unknown: false,
            defects: Vec::new(),
            moved: false,
            stamp: None,
        }
    }

    pub fn worst(&self) -> Option<Severity> {
        self.defects.iter().map(|defect| defect.severity).max()
    }

    fn unreadable(&mut self, path: &str, error: &EtcdError) {
        self.defects.push(Code::Unreadable.at(path, None, error.chain()));
    }
}

/// The directories of a member that are there.
struct Dirs {
    snap: Option<OwnedFd>,
    wal: Option<OwnedFd>,
}

/// Names and times of a member's files, as of now.
pub(super) fn stamp(dir: BorrowedFd<'_>) -> Result<Stamp, EtcdError> {
    let mut stamp = Stamp::default();
    for path in [SNAP_DIR, WAL_DIR] {
        match open_dir_str(dir, path) {
            Ok(fd) => stamp.add(fd.as_fd(), path, MAX_NAMES)?,
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(stamp)
}

/// Takes one look at the data dir.
pub(super) fn look(dir: BorrowedFd<'_>, budget: LookBudget) -> Look {
    let mut look = Look::nothing(EtcdGeneration::Empty);
    match kind_of(dir, "member", "member") {
        Ok(Some(FileType::Directory)) => {}
        Ok(None) => return Look::nothing(EtcdGeneration::None),
        Ok(Some(kind)) => {
            let message = format!("member is {}, not a directory", kind_name(kind));
            let mut look = Look::nothing(EtcdGeneration::None);
            look.defects.push(Code::MemberIsFile.at("member", None, message));
            look.content_unknown = true;
            return look;
        }
        Err(error) => {
            look.unreadable("member", &error);
            look.content_unknown = true;
            return look;
        }
    }
    match kind_of(dir, "proxy", "proxy") {
        Ok(Some(FileType::Directory)) => {
            let message = "both proxy and member are there; etcd refuses to choose";
            look.defects.push(Code::ProxyAndMember.at("proxy", None, message));
        }
        Ok(Some(_) | None) => {}
        Err(error) => look.unreadable("proxy", &error),
    }
    match stamp(dir) {
        Ok(stamp) => look.stamp = Some(stamp),
        Err(error) => look.unreadable("member", &error),
    }
    leftovers_of_member(dir, &mut look);
    let dirs = Dirs { snap: sub_dir(dir, SNAP_DIR, &mut look), wal: sub_dir(dir, WAL_DIR, &mut look) };

    let db = open_db(&dirs, &mut look);
    let before = db.as_ref().and_then(|file| read_metas(file).ok());
    let db_state = read_db(db.as_ref(), budget, &mut look);
    let snaps = read_snaps(&dirs, &mut look);
    let wal_names = read_log(&dirs, &snaps, budget, &mut look);
    let consistent_after = match &db {
        Some(file) => after(file, before, &mut look),
        None => None,
    };
    look.etcd = generation(&db_state, &snaps, &look, wal_names);
    let facts = checks::Facts { db: db_state, snaps: &snaps, wal_names, consistent_after };
    checks::hold_against_each_other(&mut look, &facts);
    look.snap = snaps.good;
    look
}

fn sub_dir(dir: BorrowedFd<'_>, path: &str, look: &mut Look) -> Option<OwnedFd> {
    match open_dir_str(dir, path) {
        Ok(fd) => Some(fd),
        Err(error) if error.is_absent() => None,
        Err(error) => {
            look.unreadable(path, &error);
            look.content_unknown = true;
            None
        }
    }
}

fn leftovers_of_member(dir: BorrowedFd<'_>, look: &mut Look) {
    let entries = match open_dir_str(dir, "member").and_then(|fd| list(fd.as_fd(), "member", MAX_NAMES)) {
        Ok(entries) => entries,
        Err(error) => return look.unreadable("member", &error),
    };
    for entry in entries.iter().filter(|entry| !matches!(entry.text(), Some("snap" | "wal"))) {
        let message = "nothing that etcd reads (`wal.tmp` is a log whose making was interrupted)";
        look.defects.push(Code::Leftover.at(&format!("member/{}", entry.shown()), None, message));
        if look.defects.len() > 50 {
            return;
        }
    }
}

/// What became of the backend file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DbState {
    Absent,
    /// No bytes: etcd makes a new db of it.
    Empty,
    Read,
    /// There, but not readable as a db.
    Bad,
}

fn open_db(dirs: &Dirs, look: &mut Look) -> Option<File> {
    match open_file(dirs.snap.as_ref()?.as_fd(), "db", DB) {
        Ok(file) => Some(file),
        Err(error) if error.is_absent() => None,
        Err(error) => {
            look.unreadable(DB, &error);
            look.content_unknown = true;
            None
        }
    }
}

fn read_db(db: Option<&File>, budget: LookBudget, look: &mut Look) -> DbState {
    let Some(file) = db else {
        return if look.content_unknown { DbState::Bad } else { DbState::Absent };
    };
    let reading = match read_backend(file, budget.count) {
        Ok(reading) => reading,
        Err(BackendError::Empty) => return DbState::Empty,
        Err(error @ BackendError::NoMeta(_)) => {
            let message = format!("{error}; etcd cannot open it");
            look.defects.push(Code::BackendUnreadable.at(DB, Some(0), message));
            look.content_unknown = true;
            return DbState::Bad;
        }
        Err(BackendError::Read(source)) => {
            look.unreadable(DB, &EtcdError::Read { path: DB.to_owned(), source });
            look.content_unknown = true;
            return DbState::Bad;
        }
    };
    for (number, meta) in [(0, reading.metas.first), (1, reading.metas.second)] {
        if let Err(defect) = meta {
            let offset = if number == 0 { 0 } else { u64::from(reading.meta.page_size) };
            let message =
                format!("meta page {number} is bad: {defect}; etcd falls back to transaction {}", reading.meta.txid);
            look.defects.push(Code::BackendOneMeta.at(DB, Some(offset), message));
        }
    }
    for problem in &reading.problems {
        let code = match problem.kind {
            ProblemKind::Unreadable => Code::Unreadable,
            ProblemKind::Page => Code::BackendPage,
            ProblemKind::Content => Code::BackendContent,
        };
        look.defects.push(code.at(DB, problem.offset, problem.message.clone()));
    }
    look.content_unknown |= reading.keys.is_none();
    look.backend = Some(reading);
    DbState::Read
}

/// What the names in `member/snap` and the newest good file say.
#[derive(Default)]
pub(super) struct Snaps {
    pub good: Option<SnapReading>,
    /// (index, term) of every snapshot that is good, newest first, as far as looked at.
    pub usable: Vec<(u64, u64)>,
    /// Snapshot files, good or bad.
    pub files: usize,
    /// Indexes of `.snap.db` files.
    pub dbs: Vec<u64>,
}

fn read_snaps(dirs: &Dirs, look: &mut Look) -> Snaps {
    let mut snaps = Snaps::default();
    let Some(dir) = &dirs.snap else { return snaps };
    let entries = match list(dir.as_fd(), SNAP_DIR, MAX_NAMES) {
        Ok(entries) => entries,
        Err(error) => {
            look.unreadable(SNAP_DIR, &error);
            return snaps;
        }
    };
    let mut names = Vec::new();
    for entry in &entries {
        let path = format!("{SNAP_DIR}/{}", entry.shown());
        match entry.text() {
            Some("db") => {}
            Some(name) if snap::parse_name(name).is_some() => names.push((name.to_owned(), path)),
            Some(name) if snap::parse_db_name(name).is_some() => {
                if entry.kind == FileType::RegularFile {
                    snaps.dbs.extend(snap::parse_db_name(name));
                }
            }
            Some(_) | None if look.defects.len() < 50 => {
                let message = "nothing that etcd reads: left by an interrupted operation, or put there by somebody";
                look.defects.push(Code::Leftover.at(&path, None, message));
            }
            Some(_) | None => {}
        }
    }
    snaps.files = names.len();
    let mut read = 0_u64;
    // etcd tries them by name, newest first (term before index).
    for (name, path) in names.iter().rev().take(MAX_SNAPS) {
        let file = match open_file(dir.as_fd(), name, path) {
            Ok(file) => file,
            Err(error) if error.is_absent() => {
                look.moved = true;
                continue;
            }
            Err(error) => {
                look.unreadable(path, &error);
                continue;
            }
        };
        match read_snap(&file) {
            Ok(reading) => {
                if let Err(error) = &reading.store {
                    // Its checksum is right, so this is what etcd wrote; 3.x has no use for it, 2.x cannot do without.
                    look.defects.push(Code::SnapshotBad.at(path, None, format!("its v2 store: {error}")));
                }
                snaps.usable.push((reading.index, reading.term));
                snaps.good.get_or_insert(reading);
                read = read.saturating_add(size_of_file(&file));
                // An older one matters only where the log does not mention the newer: one or two deep, and never for stores
                // of an etcd 2 so large that reading them takes long.
                if snaps.usable.len() >= KEPT_SNAPS || read > SNAP_BYTES {
                    break;
                }
            }
            Err(SnapError::Read(source)) => look.unreadable(path, &EtcdError::Read { path: path.clone(), source }),
            Err(error) => {
                let message = format!("{error}; etcd sets it aside and takes an older one");
                look.defects.push(Code::SnapshotBad.at(path, None, message));
            }
        }
    }
    snaps
}

fn size_of_file(file: &File) -> u64 {
    super::read_at::ReadAt::size(file).unwrap_or(u64::MAX)
}

/// What the names in `member/wal` say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WalNames {
    pub segments: usize,
    /// Names that end in `.wal` and are none that etcd reads.
    pub odd: usize,
    /// Index of the first file.
    pub first_index: Option<u64>,
    /// The directory, or files in it, could not be looked at.
    pub unreadable: bool,
}

fn read_log(dirs: &Dirs, snaps: &Snaps, budget: LookBudget, look: &mut Look) -> WalNames {
    let mut names = WalNames::default();
    let Some(dir) = &dirs.wal else { return names };
    let entries = match list(dir.as_fd(), WAL_DIR, MAX_NAMES) {
        Ok(entries) => entries,
        Err(error) => {
            look.unreadable(WAL_DIR, &error);
            names.unreadable = true;
            return names;
        }
    };
    let mut segments = Vec::new();
    for entry in &entries {
        let path = format!("{WAL_DIR}/{}", entry.shown());
        let parsed = entry.text().and_then(|name| Some((name, wal::parse_name(name)?)));
        let Some((name, (seq, index))) = parsed else {
            names.odd = names.odd.saturating_add(usize::from(entry.name.to_bytes().ends_with(b".wal")));
            // etcd's own: the next file, being prepared.
            if !matches!(entry.text(), Some("0.tmp" | "1.tmp")) && look.defects.len() < 50 {
                look.defects.push(Code::Leftover.at(&path, None, "not a name that etcd reads"));
            }
            continue;
        };
        match open_file(dir.as_fd(), name, &path) {
            Ok(file) => segments.push(Segment { path, seq, index, source: Box::new(file) }),
            Err(error) if error.is_absent() => look.moved = true,
            Err(error) => {
                names.unreadable = true;
                look.unreadable(&path, &error);
            }
        }
    }
    segments.sort_by_key(|segment| segment.seq);
    names.segments = segments.len();
    names.first_index = segments.first().map(|segment| segment.index);
    if segments.is_empty() || names.unreadable {
        return names;
    }
    let question = WalQuestion {
        v3_after: look.backend.as_ref().and_then(|backend| backend.consistent_index).unwrap_or(0),
        v2_after: snaps.good.as_ref().map_or(0, |snap| snap.index),
        budget: budget.wal,
    };
    match read_wal(&segments, question) {
        Ok(mut reading) => {
            look.defects.append(&mut reading.defects);
            look.wal = Some(reading);
        }
        Err((path, source)) => {
            names.unreadable = true;
            look.unreadable(&path, &EtcdError::Read { path: path.clone(), source });
        }
    }
    names
}

/// The consistent index at the end of the look, and whether the backend committed meanwhile.
fn after(file: &File, before: Option<Metas>, look: &mut Look) -> Option<u64> {
    let now = read_metas(file).ok();
    look.moved |= now != before;
    match read_consistent_index(file) {
        Ok(found) => found.map(|(_, index)| index),
        Err(BackendError::Read(_) | BackendError::Empty | BackendError::NoMeta(_)) => None,
    }
}

/// Which etcd laid this out. A log with padding, or a store that names a cluster version from 3.0 on, is etcd 3's.
fn generation(db: &DbState, snaps: &Snaps, look: &Look, wal: WalNames) -> EtcdGeneration {
    let v3 = checks::written_by_v3(snaps, look.wal.as_ref());
    match db {
        DbState::Empty | DbState::Read | DbState::Bad => EtcdGeneration::V3,
        DbState::Absent if v3 => EtcdGeneration::V3,
        DbState::Absent if snaps.files > 0 || wal.segments > 0 || wal.odd > 0 || wal.unreadable => EtcdGeneration::V2,
        DbState::Absent => EtcdGeneration::Empty,
    }
}
