//! The quick reading of one data dir: identity, progress, content and defects, in one report.
//!
//! etcd may be running on it. A look during which the backend committed, or in which something seems wrong, is taken again
//! until nothing moved: what is damaged stays damaged, what was only half written does not.

use super::bolt::tree::Budget;
use super::defects::Code;
use super::find::VolumeHints;
use super::lock::lock_holder;
use super::member::{self, DB, Look, LookBudget, SNAP_DIR, WAL_DIR};
use super::schema::BackendReading;
use super::wal::WalReading;
use crate::model::{
    BackendFacts, ClusterId, DataDirReport, DirRole, EtcdGeneration, FileOwner, Fingerprint, Free, Member, MemberId,
    Observed, Place, RaftProgress, Severity, Time, Unapplied, V2Facts,
};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Looks taken before the dir is called unreadable for moving.
const ATTEMPTS: u32 = 40;
/// How long nothing may have moved before a finding counts. Longer than any tick of file times.
const SETTLE: Duration = Duration::from_millis(25);
/// What the count of keys may cost at first; it is quartered each time the backend commits meanwhile.
const COUNT_MIB: u64 = 64;
/// Log read besides its last file.
const WAL_BYTES: u64 = 192 << 20;

/// Reads the data dir `dir`. `path` is what the report calls it; role and layout are for whoever knows the volume.
pub fn quick(dir: BorrowedFd<'_>, path: &str, hints: &VolumeHints) -> DataDirReport {
    let look = settled(dir, WAL_BYTES);
    let locked_by = match lock_holder(dir) {
        Observed::Seen(pid) => pid,
        Observed::Unknown(_) => None,
    };
    let populated = populated(&look);
    let etcd = look.etcd;
    let mut defects = look.defects.clone();
    defects.sort_by_key(|defect| std::cmp::Reverse(defect.severity));
    let fingerprint = match etcd {
        EtcdGeneration::V2 | EtcdGeneration::V3 => Some(fingerprint(dir, look, hints)),
        EtcdGeneration::Empty | EtcdGeneration::None => None,
    };
    DataDirReport {
        path: path.to_owned(),
        role: DirRole::Candidate,
        layout: "etcd".to_owned(),
        etcd,
        populated,
        fingerprint,
        defects,
        locked_by,
    }
}

/// Looks until nothing moved.
pub(super) fn settled(dir: BorrowedFd<'_>, wal: u64) -> Look {
    let mut count = COUNT_MIB;
    for attempt in 0..ATTEMPTS {
        let look = member::look(dir, LookBudget { count: Budget { bytes: count << 20, pages: u64::MAX }, wal });
        if !look.moved {
            // Something etcd leaves lying about is no reason to doubt the look.
            if look.worst().unwrap_or(Severity::Info) == Severity::Info {
                return look;
            }
            std::thread::sleep(SETTLE);
            if member::stamp(dir).is_ok_and(|now| look.stamp.as_ref() == Some(&now)) || look.stamp.is_none() {
                return look;
            }
        } else {
            count = (count / 4).max(1);
            // Not in step with etcd's batches of 100 ms.
            std::thread::sleep(Duration::from_millis(u64::from(attempt % 7).saturating_mul(3)));
        }
    }
    let mut look = member::look(dir, LookBudget { count: Budget::mib(1), wal });
    let message = format!("looked at {ATTEMPTS} times, and every time something moved");
    look.defects.push(Code::ChangedWhileRead.at("member", None, message));
    look
}

/// A live key, v2 data, or writes in the log that make either. What could not be seen counts as something.
fn populated(look: &Look) -> bool {
    let in_log = look.wal.as_ref().is_some_and(|wal| wal.unapplied_put || wal.unapplied_v2_put);
    let v3 = look.backend.as_ref().is_some_and(|backend| backend.keys.unwrap_or(1) > 0);
    let v2 = look.snap.as_ref().is_some_and(|snap| match &snap.store {
        Ok(store) => store.user_keys > 0,
        Err(_) => true,
    });
    in_log || v3 || v2 || look.content_unknown
}

fn fingerprint(dir: BorrowedFd<'_>, look: Look, hints: &VolumeHints) -> Fingerprint {
    let Look { etcd, backend, snap, wal, .. } = look;
    let store = snap.as_ref().and_then(|snap| snap.store.as_ref().ok());
    let wal = wal.unwrap_or_default();
    let consistent_index = backend.as_ref().and_then(|backend| backend.consistent_index);
    let mut print = Fingerprint {
        cluster_id: wal.cluster_id.map(ClusterId),
        member_id: wal.node_id.map(MemberId),
        raft: RaftProgress {
            term: wal.term().max(backend.as_ref().and_then(|backend| backend.term)),
            commit: wal.hard_state.map(|state| state.commit),
            first_index: wal.first_index,
            last_index: wal.last_index(),
            snapshot_index: wal.snapshot_index(),
        },
        consistent_index,
        v2_request: wal.refused_v2,
        unapplied: applied(backend.as_ref()).and_then(|applied| unapplied(&wal, applied)),
        place: place(dir, hints),
        ..Fingerprint::default()
    };
    if let Some(store) = store {
        print.members = store.members.clone();
        print.removed_members = store.removed.clone();
        print.cluster_version = store.cluster_version.clone();
        let keys = store.user_keys;
        print.v2 = (etcd == EtcdGeneration::V2 || keys > 0).then_some(V2Facts { keys: Some(keys) });
    } else if etcd == EtcdGeneration::V2 {
        // Without a snapshot the keys are in the log alone, and are not counted.
        print.v2 = Some(V2Facts { keys: None });
    }
    if let Some(backend) = backend {
        // `snapshot restore` up to 3.4 leaves the members of the cluster that the snapshot was made in; there the v2 store is
        // right. Everywhere else the backend is newer than the newest snapshot's store.
        let knows_own = |members: &[Member]| members.iter().any(|member| Some(member.id) == print.member_id);
        let stale = !knows_own(&backend.members) && knows_own(&print.members);
        let voter =
            |id| store.is_some_and(|store| store.members.iter().any(|member| member.id == id && !member.learner));
        if !stale {
            let promoted = backend.members.iter().filter(|member| member.learner && voter(member.id));
            print.promoted = promoted.map(|member| member.id).collect();
        }
        if !backend.members.is_empty() && !stale {
            print.members = backend.members;
            print.removed_members = backend.removed;
        }
        print.revision = backend.revision;
        print.compact_revision = backend.compact_revision;
        print.keys = backend.keys;
        print.keys_capped = backend.keys_capped;
        print.leases = backend.leases;
        print.alarms = backend.alarms;
        print.auth_enabled = backend.auth_enabled;
        print.storage_version = backend.storage_version;
        print.cluster_version = backend.cluster_version.or(print.cluster_version);
        print.downgrade = backend.downgrade;
        print.backend = Some(BackendFacts {
            page_size: backend.meta.page_size,
            size: backend.meta.size(),
            size_in_use: None,
            txid: backend.meta.txid,
        });
    }
    if let Some(own) = print.members.iter().find(|member| Some(member.id) == print.member_id) {
        print.name = Some(own.name.clone()).filter(|name| !name.is_empty());
        print.peer_urls = own.peer_urls.clone();
    }
    print
}

/// Index of the last entry that the backend has. Before etcd's first batch is committed the bucket has no such number: then
/// it has none.
fn applied(backend: Option<&BackendReading>) -> Option<u64> {
    let backend = backend?;
    // The compact revision is known exactly where the whole bucket `meta` was read.
    backend.consistent_index.or(backend.compact_revision.map(|_| 0))
}

fn unapplied(wal: &WalReading, applied: u64) -> Option<Unapplied> {
    let last = wal.last_entry_index()?.max(applied);
    let mut kinds = BTreeMap::new();
    for kind in &wal.unapplied {
        let count: &mut u64 = kinds.entry(kind.as_str().to_owned()).or_default();
        *count = count.saturating_add(1);
    }
    Some(Unapplied { entries: last.saturating_sub(applied), first: applied.saturating_add(1), last, kinds })
}

fn place(dir: BorrowedFd<'_>, hints: &VolumeHints) -> Place {
    use rustix::fs::{AtFlags, StatxFlags};
    // Where statx or the filesystem cannot say, the place stays unknown: it is never compared, only shown.
    let inode = rustix::fs::fstat(dir).ok().map(|stat| stat.st_ino);
    let born = rustix::fs::statx(dir, "member", AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).ok();
    let born_at = born
        .filter(|found| StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME))
        .and_then(|found| Time::from_unix(found.stx_btime.tv_sec));
    let owners = [".", "member", SNAP_DIR, WAL_DIR, DB].into_iter().filter_map(|path| owner(dir, path)).collect();
    let free = rustix::fs::fstatvfs(dir).ok().map(|stat| Free {
        bytes: stat.f_bfree.saturating_mul(stat.f_frsize),
        // A filesystem without a table of them says 0 of 0.
        inodes: (stat.f_files > 0).then_some(stat.f_ffree),
    });
    Place { fs_uuid: hints.fs_uuid, volume_id: hints.volume_id.clone(), inode, born_at, owners, free }
}

/// Whose it is; `None`: it is not there, or is no directory and no file.
fn owner(dir: BorrowedFd<'_>, path: &str) -> Option<FileOwner> {
    let stat = rustix::fs::statat(dir, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    let directory = kind == rustix::fs::FileType::Directory;
    let known = directory || kind == rustix::fs::FileType::RegularFile;
    let mode = stat.st_mode & 0o7777;
    known.then(|| FileOwner { path: path.to_owned(), uid: stat.st_uid, gid: stat.st_gid, mode, directory })
}
