//! Collects from one data dir the facts on which a start of etcd depends, whatever the version.

pub(super) mod log;
mod steady;

use super::bolt::{META_BYTES, MetaDefect, Metas, PAGE_HEADER, parse_meta, read_metas};
use super::deep::{DeepQuestion, read_deep};
use super::dir::{kind_of, list, open_dir_str, open_file};
use super::member::{DB, MAX_NAMES, SNAP_DIR, stamp};
use super::read_at::{ReadAt, read_up_to};
use super::schema::{BackendError, BackendReading};
use super::snap::{self, SnapError, read_snap};
use crate::model::{
    BackendDeep, BackendFile, DataDirFacts, GoodSnapshot, HashAnswer, HashQuestion, MetaState, SnapshotFile, Thing,
};
use rustix::fs::FileType;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use steady::steady;

/// Snapshot files that are read; etcd keeps five.
const MAX_SNAPS: usize = 64;

/// How long nothing may have moved before something odd counts. Longer than any tick of file times.
const SETTLE: std::time::Duration = std::time::Duration::from_millis(25);

/// Collects them. `progress` hears how many pages of the backend were read, of how many. No lock is taken: where an etcd
/// commits meanwhile, all is read again, and after some times told to be unstable. What looks damaged while something is being
/// written is looked at again too.
pub fn data_dir_facts(dir: BorrowedFd<'_>, progress: &mut dyn FnMut(u64, u64)) -> DataDirFacts {
    let seen = steady(
        || metas(dir),
        || {
            let before = stamp(dir).ok();
            let facts = collect(dir, progress);
            if facts.is_clean() {
                return Some(facts);
            }
            std::thread::sleep(SETTLE);
            // Where the names cannot be listed, that is what is odd.
            (before.is_none() || stamp(dir).ok() == before).then_some(facts)
        },
    );
    let backend = BackendFile { file: Thing::There, unstable: true, ..BackendFile::default() };
    seen.unwrap_or_else(|| DataDirFacts { member: Thing::There, backend, ..DataDirFacts::default() })
}

/// Which file the backend is, and its meta pages.
fn metas(dir: BorrowedFd<'_>) -> Option<(u64, Metas)> {
    let snap = open_dir_str(dir, SNAP_DIR).ok()?;
    let file = open_file(snap.as_fd(), "db", DB).ok()?;
    let inode = rustix::fs::fstat(&file).ok()?.st_ino;
    Some((inode, read_metas(&file).ok()?))
}

fn collect(dir: BorrowedFd<'_>, progress: &mut dyn FnMut(u64, u64)) -> DataDirFacts {
    let mut facts = DataDirFacts { member: thing(dir, "member", FileType::Directory), ..DataDirFacts::default() };
    facts.proxy = thing(dir, "proxy", FileType::Directory) == Thing::There;
    if facts.member != Thing::There {
        return facts;
    }
    let snap_dir = match open_dir_str(dir, SNAP_DIR) {
        Ok(fd) => Some(fd),
        Err(error) if error.is_absent() => None,
        Err(error) => {
            facts.unreadable.push(error.chain());
            None
        }
    };
    if let Some(fd) = &snap_dir {
        // The backend before the log: etcd writes the log first, so a log that ends before the backend is damage and no race.
        backend(fd.as_fd(), progress, &mut facts);
        snapshots(fd.as_fd(), &mut facts);
    }
    log::collect(dir, &mut facts);
    facts
}

fn thing(dir: BorrowedFd<'_>, name: &str, wanted: FileType) -> Thing {
    match kind_of(dir, name, name) {
        Ok(None) => Thing::Absent,
        Ok(Some(kind)) if kind == wanted => Thing::There,
        Ok(Some(_)) | Err(_) => Thing::Odd,
    }
}

fn backend(snap: BorrowedFd<'_>, progress: &mut dyn FnMut(u64, u64), facts: &mut DataDirFacts) {
    facts.backend.file = thing(snap, "db", FileType::RegularFile);
    if facts.backend.file != Thing::There {
        return;
    }
    match open_file(snap, "db", DB) {
        Ok(file) => read(&file, progress, &mut facts.backend, &mut facts.unreadable),
        Err(error) => facts.unreadable.push(error.chain()),
    }
}

/// The facts of a backend file alone. It may be in use, see [`data_dir_facts`].
pub fn backend_facts(file: &dyn ReadAt, progress: &mut dyn FnMut(u64, u64)) -> BackendFile {
    let seen = steady(
        || read_metas(file).ok(),
        || {
            let mut facts = BackendFile { file: Thing::There, ..BackendFile::default() };
            let mut unreadable = Vec::new();
            read(file, progress, &mut facts, &mut unreadable);
            Some(facts)
        },
    );
    seen.unwrap_or_else(|| BackendFile { file: Thing::There, unstable: true, ..BackendFile::default() })
}

fn read(file: &dyn ReadAt, progress: &mut dyn FnMut(u64, u64), facts: &mut BackendFile, unreadable: &mut Vec<String>) {
    if let Ok(metas) = read_metas(file) {
        facts.metas = [state(metas.first), state(metas.second)];
    }
    let found = match read_deep(file, DeepQuestion { revision: None, compact: None, until: None, progress }) {
        // bbolt before 1.3.7 takes a checksum of 0 for right: what it would see is read as if it were.
        Err(BackendError::NoMeta(metas))
            if [metas.first, metas.second].iter().any(|meta| state(*meta) == MetaState::ZeroChecksum) =>
        {
            read_deep(
                &Sealed { inner: file },
                DeepQuestion { revision: None, compact: None, until: None, progress: &mut |_, _| {} },
            )
        }
        other => other,
    };
    match found {
        Ok((reading, deep)) => take(facts, reading, deep),
        Err(BackendError::Empty) => facts.empty = true,
        Err(BackendError::NoMeta(_)) => {}
        Err(error @ BackendError::Read(_)) => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                text.push_str(&format!(": {error}"));
                cause = error.source();
            }
            unreadable.push(text);
        }
    }
}

fn take(facts: &mut BackendFile, reading: BackendReading, deep: BackendDeep) {
    facts.page_size = Some(reading.meta.page_size);
    facts.freelist = reading.meta.freelist != super::bolt::NO_FREELIST;
    facts.consistent_index = reading.consistent_index;
    facts.revision = reading.revision;
    facts.cluster_version = reading.cluster_version;
    facts.storage_version = reading.storage_version;
    facts.downgrade = reading.downgrade;
    facts.members = reading.members.iter().map(|member| member.id.0).collect();
    facts.deep = Some(deep);
}

fn state(meta: Result<super::bolt::Meta, MetaDefect>) -> MetaState {
    match meta {
        Ok(_) => MetaState::Valid,
        Err(MetaDefect::Short { .. }) => MetaState::Absent,
        Err(MetaDefect::Magic { .. }) => MetaState::Magic,
        Err(MetaDefect::Version { .. }) => MetaState::Version,
        Err(MetaDefect::Checksum { stored: 0, .. }) => MetaState::ZeroChecksum,
        Err(MetaDefect::Checksum { .. }) => MetaState::Checksum,
        Err(MetaDefect::PageSize { .. }) => MetaState::PageSize,
    }
}

/// A file whose meta pages of checksum 0 are shown with the checksum that they ought to have. Of a page size of 4096, as old
/// bbolt assumes it where the first meta page is not valid.
struct Sealed<'a> {
    inner: &'a dyn ReadAt,
}

impl ReadAt for Sealed<'_> {
    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let got = self.inner.read_at(buf, offset)?;
        for page in [0_u64, 4096] {
            let mut meta = [0; META_BYTES];
            let n = read_up_to(self.inner, &mut meta, page).map_err(io::Error::other)?;
            let Err(MetaDefect::Checksum { stored: 0, computed }) = parse_meta(meta.get(..n).unwrap_or(&[])) else {
                continue;
            };
            let sum = computed.to_le_bytes();
            let at = page.saturating_add(PAGE_HEADER as u64).saturating_add(56);
            for (n, byte) in sum.iter().enumerate() {
                let here = at.saturating_add(n as u64).checked_sub(offset).and_then(|n| usize::try_from(n).ok());
                if let Some(place) = here.filter(|here| *here < got).and_then(|here| buf.get_mut(here)) {
                    *place = *byte;
                }
            }
        }
        Ok(got)
    }
}

fn snapshots(snap: BorrowedFd<'_>, facts: &mut DataDirFacts) {
    let entries = match list(snap, SNAP_DIR, MAX_NAMES) {
        Ok(entries) => entries,
        Err(error) => return facts.unreadable.push(error.chain()),
    };
    for entry in entries.iter().rev() {
        let Some(name) = entry.text() else { continue };
        if let Some(index) = snap::parse_db_name(name).filter(|_| entry.kind == FileType::RegularFile) {
            facts.snapshot_backends.push(index);
        }
        let Some(parsed) = snap::parse_name(name).filter(|_| facts.snapshots.len() < MAX_SNAPS) else { continue };
        let path = format!("{SNAP_DIR}/{name}");
        let good = match open_file(snap, name, &path).map(|file| read_snap(&file)) {
            Ok(Ok(reading)) => {
                let store = reading.store.as_ref().ok();
                Some(GoodSnapshot {
                    index: reading.index,
                    term: reading.term,
                    cluster_version: store.and_then(|store| store.cluster_version.clone()),
                    custom_v2: store.is_some_and(|store| store.user_keys > 0),
                })
            }
            Ok(Err(SnapError::Read(error))) => {
                facts.unreadable.push(format!("{path}: {error}"));
                None
            }
            Ok(Err(_)) => None,
            Err(error) => {
                facts.unreadable.push(error.chain());
                None
            }
        };
        facts.snapshots.push(SnapshotFile { name: parsed, good });
    }
}

/// HashKV of a data dir's backend. `None`: it cannot be told.
pub fn hash_at(dir: BorrowedFd<'_>, question: HashQuestion, progress: &mut dyn FnMut(u64, u64)) -> Option<HashAnswer> {
    let mut once = || {
        let snap = open_dir_str(dir, SNAP_DIR).ok()?;
        let file = open_file(snap.as_fd(), "db", DB).ok()?;
        let mut records = Vec::new();
        let asked = DeepQuestion {
            revision: Some(question.revision),
            compact: Some(question.compact),
            until: question.until.map(|until| (until, &mut records)),
            progress: &mut *progress,
        };
        let hashkv = read_deep(&file, asked).ok()?.1.hashkv?;
        Some(HashAnswer { hashkv, records })
    };
    steady(|| metas(dir), || Some(once())).flatten()
}
