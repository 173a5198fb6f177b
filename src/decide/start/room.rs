//! Can etcd get at its dir, and has it room to write?
//!
//! A dir that etcd's user cannot enter ends it at each start, and tempts the next hand to make a new one: that holds. A
//! filesystem that is nearly full, or a backend over its quota, lets it start and read: that is told.

use super::situation::Situation;
use super::version::opens;
use super::words::grouped;
use super::{Kind, Objections};
use crate::model::{EtcdToRun, FileOwner, Free, Observed, Reason, ReasonCode, StartPolicy};
use serde_json::json;

/// Below this etcd gets no further than to its next file: bbolt's least growth and a few pages of log.
pub const LEAST_BYTES: u64 = 8 << 20;
/// The same of inodes.
pub const LEAST_INODES: u64 = 8;
/// etcd's own default of `--quota-backend-bytes` (etcd v3.5.30 `server/storage/quota.go`).
const QUOTA: u64 = 2 << 30;

/// May the configured user do with each file what etcd does?
pub fn access(situation: &Situation<'_>, policy: &StartPolicy, objections: &mut Objections) {
    let Some((uid, gid)) = policy.runs_as.filter(|(uid, _)| *uid != 0) else { return };
    let Some(dir) = situation.dir() else { return };
    let owners = dir.fingerprint.iter().flat_map(|fingerprint| &fingerprint.place.owners);
    let Some(closed) = owners.into_iter().find(|file| is_closed(file, uid, gid)) else { return };
    let FileOwner { path, uid: owner, gid: group, mode, directory: _ } = closed;
    let message = format!(
        "`{}/{path}` belongs to user {owner}, group {group}, mode {mode:04o}: etcd, as user {uid}, group {gid}, cannot use it",
        dir.path
    );
    let detail =
        json!({ "path": path, "uid": owner, "gid": group, "mode": format!("{mode:04o}"), "runs_as": [uid, gid] });
    objections.add(Kind::Configured, Reason::new(ReasonCode::WrongOwner, message).with_detail(detail));
}

/// Closed to this user for sure. Another group's bits may be his by a further group that nobody here knows of: then it is not.
fn is_closed(file: &FileOwner, uid: u32, gid: u32) -> bool {
    let needed = if file.directory { 0o7 } else { 0o6 };
    let grants = |shift: u32| (file.mode >> shift) & needed == needed;
    if file.uid == uid {
        !grants(6)
    } else if file.gid == gid {
        !grants(3)
    } else {
        !grants(3) && !grants(0)
    }
}

/// The manifest puts the log elsewhere: what is missing here is not lost, and cannot be judged from this volume.
pub fn log(situation: &Situation<'_>, to_run: &Observed<Option<EtcdToRun>>, objections: &mut Objections) {
    let Some((dir, fingerprint)) = situation.dir().zip(situation.fingerprint()) else { return };
    let wal_dir = opens(situation, to_run).and_then(|etcd| etcd.flags?.wal_dir);
    if let (Some(wal_dir), None) = (wal_dir, fingerprint.raft.last_index) {
        let message = format!(
            "etcd is started with `--wal-dir={wal_dir}`: the log of `{}` lies there, and a dir is judged with its log in it",
            dir.path
        );
        objections.add(Kind::Unread, Reason::new(ReasonCode::Unreadable, message));
    }
}

/// A filesystem that is full, a backend over its quota.
pub fn space(situation: &Situation<'_>, to_run: &Observed<Option<EtcdToRun>>, warnings: &mut Vec<Reason>) {
    let Some((dir, fingerprint)) = situation.dir().zip(situation.fingerprint()) else { return };
    if let Some(Free { bytes, inodes }) = fingerprint.place.free
        && (bytes < LEAST_BYTES || inodes.is_some_and(|inodes| inodes < LEAST_INODES))
    {
        let inodes = inodes.map_or_else(String::new, |inodes| format!(" and {} inodes", grouped(inodes)));
        let message = format!(
            "{} bytes{inodes} are left on the filesystem of `{}`: etcd fails at its next file",
            grouped(bytes),
            dir.path
        );
        warnings.push(Reason::new(ReasonCode::NoSpace, message));
    }
    // Only a manifest says which quota there is: what nobody passed is etcd's own.
    let flags = opens(situation, to_run).and_then(|etcd| etcd.flags);
    let quota = flags.map(|flags| flags.quota.filter(|quota| *quota > 0).unwrap_or(QUOTA));
    if let (Some(quota), Some(backend)) = (quota, &fingerprint.backend)
        && backend.size > quota
    {
        let message = format!(
            "the backend of `{}` has {} bytes, and its quota is {}: etcd sets the alarm NOSPACE at the next write",
            dir.path,
            grouped(backend.size),
            grouped(quota)
        );
        warnings.push(Reason::new(ReasonCode::NoSpace, message));
    }
}
