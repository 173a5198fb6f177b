//! Whose the dir is, and what room there is.

use super::*;
use crate::model::{BackendFacts, EtcdFlags, EtcdToRun, FileOwner, Free, NamedBy};

/// The healthy dir, with one thing of this owner and mode in it.
fn owned(uid: u32, gid: u32, mode: u32, directory: bool) -> StartEvidence {
    let mut volume = one_healthy();
    let path = if directory { "member" } else { "member/snap/db" };
    let owner = FileOwner { path: path.into(), uid, gid, mode, directory };
    volume.data_dirs[0].fingerprint.as_mut().unwrap().place.owners = vec![owner];
    with_records(volume, known())
}

fn as_user(evidence: &StartEvidence, runs_as: Option<(u32, u32)>) -> StartVerdict {
    may_start(evidence, &StartPolicy { runs_as, ..policy() })
}

#[test]
fn a_dir_that_etcds_user_cannot_use_is_held_and_whose_it_is_is_said() {
    let StartVerdict::Hold { reasons } = as_user(&owned(0, 0, 0o700, true), Some((105, 110))) else {
        panic!("started")
    };
    assert_eq!(codes(&reasons), [ReasonCode::WrongOwner]);
    says(&reasons[0], &["`default/member`", "user 0", "mode 0700", "user 105", "group 110"]);
}

#[test]
fn each_class_of_bits_counts_for_whom_it_is_and_a_doubt_holds_nothing() {
    let starts = |uid, gid, mode, directory| {
        matches!(as_user(&owned(uid, gid, mode, directory), Some((105, 110))), StartVerdict::Start { .. })
    };
    assert!(starts(105, 110, 0o700, true) && starts(105, 0, 0o600, false));
    assert!(!starts(105, 110, 0o577, true), "its owner has his own bits alone");
    assert!(starts(0, 110, 0o070, true) && !starts(0, 110, 0o057, true));
    assert!(starts(0, 0, 0o777, true) && starts(0, 0, 0o666, false));
    assert!(!starts(0, 0, 0o755, true) && !starts(0, 0, 0o644, false));
    assert!(starts(0, 999, 0o770, true), "it may be one of his groups");
    for runs_as in [None, Some((0, 0))] {
        assert!(matches!(as_user(&owned(7, 7, 0, true), runs_as), StartVerdict::Start { .. }), "{runs_as:?}");
    }
}

#[test]
fn a_full_filesystem_and_a_backend_over_its_quota_are_told_and_start() {
    let with = |free: Option<Free>, size: u64, flags: Option<EtcdFlags>| {
        let mut volume = one_healthy();
        let print = volume.data_dirs[0].fingerprint.as_mut().unwrap();
        print.place.free = free;
        print.backend = Some(BackendFacts { page_size: 4096, size, size_in_use: None, txid: 1 });
        let etcd = EtcdToRun { version: None, by: NamedBy::Manifest, at: None, flags };
        StartEvidence { to_run: Observed::Seen(Some(etcd)), ..with_records(volume, known()) }
    };
    let room = Some(Free { bytes: 1 << 30, inodes: Some(1000) });
    let quota = |quota| Some(EtcdFlags { quota, ..EtcdFlags::default() });
    assert_eq!(warned(&with(room, 1 << 20, quota(None))), []);
    for free in [Free { bytes: 4096, inodes: Some(1000) }, Free { bytes: 1 << 30, inodes: Some(0) }] {
        assert_eq!(warned(&with(Some(free), 0, None)), [ReasonCode::NoSpace], "{free:?}");
    }
    assert_eq!(warned(&with(Some(Free { bytes: 1 << 30, inodes: None }), 0, None)), []);
    assert_eq!(warned(&with(room, 3 << 30, quota(None))), [ReasonCode::NoSpace], "etcd's own default");
    assert_eq!(warned(&with(room, 3 << 30, quota(Some(8 << 30)))), []);
    assert_eq!(warned(&with(room, 3 << 30, quota(Some(1 << 30)))), [ReasonCode::NoSpace]);
    assert_eq!(warned(&with(room, 3 << 30, None)), [], "nobody says which quota");
}

#[test]
fn a_log_that_lies_elsewhere_by_the_manifest_is_said_to_and_holds() {
    let with = |wal_dir: Option<&str>, last_index| {
        let mut volume = one_healthy();
        let print = volume.data_dirs[0].fingerprint.as_mut().unwrap();
        print.raft = RaftProgress { last_index, ..RaftProgress::default() };
        let flags = EtcdFlags { wal_dir: wal_dir.map(str::to_owned), ..EtcdFlags::default() };
        let etcd = EtcdToRun { version: None, by: NamedBy::Manifest, at: None, flags: Some(flags) };
        let StartVerdict::Hold { reasons } =
            may_start(&StartEvidence { to_run: Observed::Seen(Some(etcd)), ..first_look(volume) }, &policy())
        else {
            return false;
        };
        reasons.iter().any(|reason| reason.message.contains("--wal-dir=/wal"))
    };
    assert!(with(Some("/wal"), None));
    assert!(!with(Some("/wal"), Some(305)), "it is in the dir, whatever the flag says");
    assert!(!with(None, None));
}
