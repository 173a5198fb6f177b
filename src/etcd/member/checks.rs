//! Backend, snapshots and log held against each other: each may be sound and still not belong to the others.

use super::super::defects::Code;
use super::super::snap::SnapReading;
use super::super::wal::WalReading;
use super::{DB, DbState, Look, SNAP_DIR, Snaps, WAL_DIR, WalNames};
use crate::model::EtcdGeneration;

pub(super) struct Facts<'a> {
    pub db: DbState,
    pub snaps: &'a Snaps,
    pub wal_names: WalNames,
    pub consistent_after: Option<u64>,
}

/// Did an etcd 3 write log or snapshots?
pub(super) fn written_by_v3(snaps: &Snaps, wal: Option<&WalReading>) -> bool {
    wal.is_some_and(|wal| wal.written_by_v3) || snaps.good.as_ref().is_some_and(|snap| cluster_minor(snap).is_some())
}

/// Minor of the cluster version 3.x that the v2 store names.
fn cluster_minor(snap: &SnapReading) -> Option<u64> {
    let version = snap.store.as_ref().ok()?.cluster_version.as_deref()?;
    version.strip_prefix("3.")?.split('.').next()?.parse().ok()
}

pub(super) fn hold_against_each_other(look: &mut Look, facts: &Facts<'_>) {
    names(look, facts);
    backend_missing(look, facts);
    log_behind(look, facts);
    snapshots(look, facts);
    same_cluster(look, facts);
}

/// `wal.Exist` takes any `*.wal` for a log, the reader only those with good names.
fn names(look: &mut Look, facts: &Facts<'_>) {
    let WalNames { segments, odd, unreadable, .. } = facts.wal_names;
    if segments == 0 && odd > 0 && !unreadable {
        let message = format!("{odd} files end in .wal, none has a name that etcd reads: it refuses to start");
        look.defects.push(Code::WalEmpty.at(WAL_DIR, None, message));
    }
}

fn backend_missing(look: &mut Look, facts: &Facts<'_>) {
    let missing = match facts.db {
        DbState::Absent => "is missing",
        DbState::Empty => "has no bytes",
        DbState::Read | DbState::Bad => return,
    };
    let used = facts.snaps.files > 0 || look.wal.as_ref().is_some_and(|wal| wal.last_index().is_some());
    if used && written_by_v3(facts.snaps, look.wal.as_ref()) {
        let message = format!("the backend {missing}, though log or snapshots of etcd 3 are there");
        look.defects.push(Code::BackendMissing.at(DB, None, message));
        look.content_unknown = true;
    }
}

fn log_behind(look: &mut Look, facts: &Facts<'_>) {
    if facts.wal_names.unreadable {
        return;
    }
    let applied = look.backend.as_ref().and_then(|backend| backend.consistent_index).unwrap_or(0);
    if facts.wal_names.segments == 0 {
        if facts.wal_names.odd > 0 {
            return;
        }
        if applied > 0 {
            let message = format!(
                "no log is there, though the backend has applied entries up to {applied}: etcd would begin a new one and lose every write until it reaches that index"
            );
            look.defects.push(Code::WalBehindBackend.at(WAL_DIR, None, message));
        } else if facts.snaps.files > 0 {
            let message = "no log is there, though snapshots are: etcd would begin a new cluster";
            look.defects.push(Code::WalEmpty.at(WAL_DIR, None, message));
        }
        return;
    }
    // Where the log itself is broken, how far it goes is not known, and that is told already.
    let Some(wal) = look.wal.as_ref().filter(|wal| wal.whole) else { return };
    let last = wal.last_index().unwrap_or(0);
    let newest = facts.snaps.good.as_ref().map_or(0, |snap| snap.index);
    let defect = if last < applied {
        let message = format!(
            "the log ends at entry {last}, the backend has applied {applied}: what lies between is lost, and new writes would be too until their index is beyond it"
        );
        Code::WalBehindBackend.at(WAL_DIR, None, message)
    } else if look.etcd == EtcdGeneration::V2 && last < newest {
        let message = format!("the log ends at entry {last}, the newest snapshot holds {newest}");
        Code::WalBehindSnapshot.at(WAL_DIR, None, message)
    } else {
        return;
    };
    look.defects.push(defect);
}

fn snapshots(look: &mut Look, facts: &Facts<'_>) {
    let whole = look.wal.as_ref().filter(|wal| wal.whole);
    // From 3.4.8 on etcd uses only snapshots that the log mentions; before, and where the log is broken, any good one.
    let confirmed = |(index, term): (u64, u64)| match whole {
        Some(wal) if look.etcd == EtcdGeneration::V3 => wal.confirms(index, term),
        Some(_) | None => true,
    };
    let start = facts.snaps.usable.iter().copied().find(|found| confirmed(*found)).map_or(0, |(index, _)| index);
    let mut defects = Vec::new();
    if let Some(first) = facts.wal_names.first_index.filter(|first| *first > start) {
        let message = match start {
            0 => format!("no usable snapshot is there, and the log begins only at entry {first}"),
            start => {
                format!("the newest usable snapshot holds entry {start}, and the log begins only at entry {first}")
            }
        };
        defects.push(Code::SnapshotMissing.at(SNAP_DIR, None, message));
    }
    if let Some(backend) = look.backend.as_ref().filter(|_| facts.db == DbState::Read) {
        let applied = facts.consistent_after.or(backend.consistent_index).unwrap_or(0);
        // etcd 3.0 and 3.1 make a db beside v2 data and may never write to it; they start with it.
        let never_used = applied == 0 && backend.revision == Some(1) && backend.keys == Some(0);
        let minor = facts.snaps.good.as_ref().and_then(cluster_minor);
        let of_old = never_used && minor.is_none_or(|minor| minor <= 1);
        if applied < start && !facts.snaps.dbs.contains(&start) && !of_old {
            let message = format!(
                "the newest snapshot holds entry {start}, the backend only {applied}, and the backend that came with the snapshot ({start:016x}.snap.db) is not there"
            );
            defects.push(Code::SnapshotWithoutBackend.at(SNAP_DIR, None, message));
        }
    }
    look.defects.append(&mut defects);
}

/// Member ids that backend, snapshot and log speak of. All three are written by one member of one cluster.
fn same_cluster(look: &mut Look, facts: &Facts<'_>) {
    let (Some(backend), Some(snap)) = (&look.backend, &facts.snaps.good) else { return };
    if backend.members.is_empty() {
        return;
    }
    let in_backend = |id: u64| {
        backend.members.iter().any(|member| member.id.0 == id) || backend.removed.iter().any(|removed| removed.0 == id)
    };
    let in_snap = |id: u64| snap.voters.contains(&id) || snap.learners.contains(&id);
    // A snapshot of term 1 is what `snapshot restore` makes (a cluster's first election ends in term 2); up to 3.4 it leaves
    // the source's members in the backend.
    let restored = snap.term <= 1;
    let mut voters = snap.voters.iter().chain(&snap.learners).peekable();
    let defect = if !restored && voters.peek().is_some() && !voters.any(|id| in_backend(*id)) {
        let message = "no member that the newest snapshot names is known to the backend: it is another cluster's";
        Code::BackendOfOtherCluster.at(DB, None, message)
    } else if let Some(own) = look.wal.as_ref().and_then(|wal| wal.node_id)
        && !in_backend(own)
        && !in_snap(own)
    {
        let message = format!("the log belongs to member {own:x}, whom neither backend nor newest snapshot knows");
        Code::WalOfOtherMember.at(WAL_DIR, None, message)
    } else {
        return;
    };
    look.defects.push(defect);
}
