//! The start verdict over real data dirs: read with `etcd::examine_volume`, decided by `decide::start`, nothing in between.
//! Needs no root: a folder stands for the mounted volume.

use crate::common::{Tmp, fixture, start};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use volhold::decide::start::may_start;
use volhold::etcd::{VolumeHints, examine_volume};
use volhold::model::{DataDirReport, Reason, ReasonCode, Records, StartKind, StartPolicy, StartVerdict, VolumeReading};

fn read(root: &Path, data_dir: Option<&str>) -> VolumeReading {
    let root = File::open(root).expect("the folder can be opened");
    let hints = VolumeHints { data_dir: data_dir.map(str::to_owned), ..VolumeHints::default() };
    examine_volume(root.as_fd(), &hints)
}

fn decide(volume: VolumeReading, records: Records, data_dir: Option<&str>) -> StartVerdict {
    let policy = StartPolicy { data_dir: data_dir.map(str::to_owned), ..start::policy() };
    may_start(&start::evidence(volume, records), &policy)
}

/// A volume nobody knows anything of.
fn first_look(root: &Path) -> StartVerdict {
    decide(read(root, None), Records::default(), None)
}

#[track_caller]
fn kind(what: &str, verdict: StartVerdict) -> StartKind {
    match verdict {
        StartVerdict::Start { how, .. } => how,
        StartVerdict::Hold { reasons } => panic!("{what} is held: {reasons:#?}"),
    }
}

#[track_caller]
fn held(what: &str, verdict: StartVerdict) -> Vec<Reason> {
    match verdict {
        StartVerdict::Hold { reasons } => reasons,
        StartVerdict::Start { how, data_dir, .. } => panic!("{what} starts in {data_dir}: {how:?}"),
    }
}

/// The record of a guard that was open until this moment.
fn record_of(report: &DataDirReport) -> Records {
    start::record_of(report, 1_800_000_000)
}

/// Dirs of real etcds that nothing was done to, with one data dir each.
const UNDAMAGED: &[&str] = &[
    "k3s-layout",
    "kops-events-3nodes-quarantined",
    "kops-running-3.4",
    "upgrade-2.2.1-2.3.8-3.0.17-3.1.12-migrated",
    "upgrade-2.2.1-to-2.3.8-inplace",
    "upgrade-2.2.1-to-3.0.17-inplace",
    "upgrade-2.2.1-to-3.1.12-inplace",
    "upgrade-3.3.25-3.4.23-3.5.30-3.6.12",
    "upgrade-3.4.23-3.5.16",
    "upgrade-3.5.30-3.6.12-3.7.1",
    "v2.2.1-multiwal-seg64k",
    "v2.2.1-v2keys",
    "v2.3.8-v2keys",
    "v2.3.8-v3demo",
    "v3.0.17-basic",
    "v3.1.12-auth",
    "v3.1.12-basic",
    "v3.1.12-restored",
    "v3.1.12-sigkill",
    "v3.2.26-alarm-nospace",
    "v3.2.26-basic",
    "v3.2.26-multiwal-seg64k",
    "v3.3.25-basic",
    "v3.4.23-alarm-nospace",
    "v3.4.23-auth",
    "v3.4.23-basic",
    "v3.4.23-force-new-cluster",
    "v3.4.23-restored",
    "v3.4.23-sigkill",
    "v3.4.23-v2keys",
    "v3.5.1-basic",
    "v3.5.16-auth",
    "v3.5.16-basic",
    "v3.5.30-basic",
    "v3.5.30-downgrade-enabled",
    "v3.5.30-multiwal-64MB",
    "v3.5.30-pagesize-16k-freelistsync",
    "v3.5.30-pagesize-16k-nofreelistsync",
    "v3.5.30-pagesize-64k-freelistsync",
    "v3.5.30-pagesize-64k-nofreelistsync",
    "v3.5.30-restored",
    "v3.5.30-restored-bumped",
    "v3.5.30-sigkill",
    "v3.6.12-alarm-nospace",
    "v3.6.12-auth",
    "v3.6.12-basic",
    "v3.6.12-downgrade-enabled",
    "v3.6.12-downgrade-enabled-then-3.5.30",
    "v3.6.12-force-new-cluster",
    "v3.6.12-multiwal-seg64k",
    "v3.6.12-restored",
    "v3.6.12-restored-bumped",
    "v3.6.12-sigkill",
    "v3.7.1-auth",
    "v3.7.1-basic",
    "v3.7.1-downgrade-enabled",
    "v3.7.1-restored",
    "v3.7.1-sigkill",
];

/// Bootstrapped, and never written to.
const EMPTY: &[&str] = &[
    "v2.2.1-empty",
    "v2.3.8-empty",
    "v3.1.12-empty",
    "v3.4.23-empty",
    "v3.5.30-empty",
    "v3.6.12-empty",
    "v3.7.1-empty",
];

#[test]
fn every_undamaged_dir_starts_on_first_use_and_then_continues() {
    let tmp = Tmp::new();
    let mut wrong = Vec::new();
    for name in UNDAMAGED {
        let root = tmp.join(name);
        fixture::etcd_tree(name, &root);
        let volume = read(&root, None);
        let selected = volume.selected.as_ref().expect("one dir is selected").path.clone();
        let report = volume.data_dirs.iter().find(|dir| dir.path == selected).expect("its report");
        let known = decide(volume.clone(), record_of(report), None);
        let first = decide(volume, Records::default(), None);
        for (verdict, expected) in [(first, StartKind::FirstUse), (known, StartKind::Continues)] {
            if !matches!(&verdict, StartVerdict::Start { how, data_dir, .. } if *how == expected && *data_dir == selected)
            {
                wrong.push(format!("{name}: expected {expected:?}, got {verdict:#?}"));
            }
        }
        std::fs::remove_dir_all(&root).expect("the folder goes away");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_dir_that_was_never_written_to_starts_fresh_and_is_vanished_data_where_a_record_knows_more() {
    let tmp = Tmp::new();
    for name in EMPTY {
        let root = tmp.join(name);
        fixture::etcd_tree(name, &root);
        assert_eq!(kind(name, first_look(&root)), StartKind::Fresh);

        let volume = read(&root, None);
        let mut records = record_of(&volume.data_dirs[0]);
        let mark = records.high_water.as_mut().expect("a mark");
        // The same ids, as a bootstrap gives them again.
        (mark.keys, mark.wal_last_index) = (Some(500), Some(9_000));
        (mark.consistent_index, mark.term, mark.revision) = (Some(9_000), Some(40), Some(8_000));
        let reasons = held(name, decide(volume, records, None));
        assert_eq!(reasons[0].code, ReasonCode::DataVanished, "{name}: {reasons:#?}");
    }
}

#[test]
fn each_member_of_a_cluster_starts_alone_and_three_in_one_place_are_ambiguous() {
    let tmp = Tmp::new();
    let root = tmp.join("cluster");
    fixture::etcd_tree("v3.4.23-3member", &root);
    for member in ["m1", "m2", "m3"] {
        assert_eq!(kind(member, first_look(&root.join(member))), StartKind::FirstUse);
        assert_eq!(
            kind(member, decide(read(&root, Some(member)), Records::default(), Some(member))),
            StartKind::FirstUse,
            "no other member is ahead of it"
        );
    }
    assert_eq!(held("all three", first_look(&root))[0].code, ReasonCode::DataDirAmbiguous);

    // One member's record, another member's data in its place.
    let volume = read(&root.join("m1"), None);
    let records = record_of(&volume.data_dirs[0]);
    let reasons = held("another member", decide(read(&root.join("m2"), None), records, None));
    assert_eq!(reasons[0].code, ReasonCode::OtherMember, "{reasons:#?}");
}

#[test]
fn a_new_empty_etcd_3_beside_etcd_2_data_is_held_and_both_are_named() {
    let tmp = Tmp::new();
    let root = tmp.join("v");
    fixture::etcd_tree("kops-volume", &root);
    let reasons = held("kops-volume", first_look(&root));
    assert_eq!(reasons[0].code, ReasonCode::EmptyBesideOld, "{reasons:#?}");
    assert_eq!(reasons.len(), 1, "{reasons:#?}");
    let message = &reasons[0].message;
    for part in
        ["`data/NMfO49sfJAXCvq4-VQE8Ug` (etcd 3, cluster 6a106014023b639a, 0 live keys", "`var/etcd/data` (etcd 2,"]
    {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn a_finished_migration_and_one_under_way_start() {
    let tmp = Tmp::new();
    let adopted = tmp.join("adopted");
    fixture::etcd_tree("kops-adopted-legacy", &adopted);
    assert_eq!(kind("adopted", first_look(&adopted)), StartKind::FirstUse);

    let stopped = tmp.join("stopped");
    fixture::etcd_tree("kops-stopped-empty-state", &stopped);
    match first_look(&stopped) {
        StartVerdict::Start { how: StartKind::MigrationUnderWay, warnings, .. } => {
            assert!(warnings[0].message.contains("data-trashcan/2mUcl-KLZQVFt-0Pzx-5dQ"), "{warnings:#?}");
        }
        other => panic!("{other:#?}"),
    }
    // The old dir is not complete any more: then it is no migration.
    std::fs::remove_dir_all(stopped.join("data-trashcan/2mUcl-KLZQVFt-0Pzx-5dQ/member/wal"))
        .expect("the log goes away");
    let reasons = held("incomplete", first_look(&stopped));
    assert_eq!(reasons[0].code, ReasonCode::EmptyBesideOld, "{reasons:#?}");
}

#[test]
fn a_live_dir_that_was_emptied_is_held_against_what_lies_in_the_trashcan() {
    for emptied in ["data/etcd-cluster-token-etcd/member/wal", "data/etcd-cluster-token-etcd/member"] {
        let tmp = Tmp::new();
        let root = tmp.join("v");
        fixture::etcd_tree("kops-adopted-legacy", &root);
        std::fs::remove_dir_all(root.join("data/etcd-cluster-token-etcd/member")).expect("the data goes away");
        if emptied.ends_with("wal") {
            std::fs::create_dir_all(root.join("data/etcd-cluster-token-etcd/member")).expect("an empty member");
        }
        let reasons = held("emptied", first_look(&root));
        assert_eq!(reasons[0].code, ReasonCode::EmptyBesideOld, "{reasons:#?}");
        assert!(
            reasons[0].message.contains("`data-trashcan/etcd-cluster-token-etcd` (etcd 2"),
            "{}",
            reasons[0].message
        );
    }
}

#[test]
fn a_state_that_names_a_missing_dir_or_is_garbage_is_held_as_that() {
    let tmp = Tmp::new();
    let missing = tmp.join("missing");
    fixture::etcd_tree("kops-state-names-missing-dir", &missing);
    let reasons = held("missing", first_look(&missing));
    assert_eq!(reasons[0].code, ReasonCode::DataVanished, "{reasons:#?}");
    assert!(reasons[0].message.contains("`data/G0W1ztlz9K4zFZijT_2yGQ` (etcd 3"), "{}", reasons[0].message);

    let garbage = tmp.join("garbage");
    fixture::etcd_tree("kops-state-garbage", &garbage);
    let reasons = held("garbage", first_look(&garbage));
    assert_eq!(reasons[0].code, ReasonCode::Unreadable, "{reasons:#?}");
    assert_eq!(reasons.len(), 1, "{reasons:#?}");
}

/// What was done to a data dir, and the reason that comes first. etcd itself starts on some of these.
const DAMAGED: &[(&str, ReasonCode)] = &[
    ("dmg-wal-dir-missing-3.4.23", ReasonCode::WalBehindBackend),
    ("dmg-wal-dir-missing-3.5.30", ReasonCode::WalBehindBackend),
    ("dmg-wal-crc-mid-3.5.30", ReasonCode::WalDamaged),
    ("dmg-wal-torn-last-record-3.5.30", ReasonCode::WalDamaged),
    ("dmg-wal-other-cluster-3.5.30", ReasonCode::WalDamaged),
    ("dmg-db-both-metas-bad-3.4.23", ReasonCode::BackendDamaged),
    ("dmg-db-missing-3.6.12", ReasonCode::BackendDamaged),
    ("dmg-db-swapped-with-other-3.5.30", ReasonCode::BackendDamaged),
    ("dmg-fs-member-is-file-3.5.30", ReasonCode::Unreadable),
];

#[test]
fn damaged_dirs_are_held_under_the_name_of_their_damage() {
    let tmp = Tmp::new();
    let mut wrong = Vec::new();
    for (name, code) in DAMAGED {
        let root = tmp.join(name);
        fixture::etcd_tree(name, &root);
        match first_look(&root) {
            StartVerdict::Hold { reasons } if reasons.iter().any(|reason| reason.code == *code) => {}
            other => wrong.push(format!("{name}: expected {code}, got {other:#?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wiped_dir_has_vanished_and_a_lost_log_is_named_before_what_follows_from_it() {
    let tmp = Tmp::new();
    let root = tmp.join("v");
    fixture::etcd_tree("v3.4.23-basic", &root);
    let records = record_of(&read(&root, None).data_dirs[0]);

    std::fs::remove_dir_all(root.join("data/member/wal")).expect("the log goes away");
    let reasons = held("no log", decide(read(&root, None), records.clone(), None));
    assert_eq!(reasons[0].code, ReasonCode::WalBehindBackend, "{reasons:#?}");

    std::fs::remove_dir_all(root.join("data/member")).expect("the data goes away");
    for data_dir in [None, Some("data")] {
        let reasons = held("wiped", decide(read(&root, data_dir), records.clone(), data_dir));
        assert_eq!(reasons[0].code, ReasonCode::DataVanished, "{reasons:#?}");
        assert!(reasons[0].message.contains("live keys at revision"), "{}", reasons[0].message);
    }
}

#[test]
fn an_older_copy_of_the_same_member_went_backwards() {
    let tmp = Tmp::new();
    let root = tmp.join("v");
    fixture::etcd_tree("v3.4.23-basic", &root);
    let volume = read(&root, None);
    let mut records = record_of(&volume.data_dirs[0]);
    let mark = records.high_water.as_mut().expect("a mark");
    mark.consistent_index = mark.wal_last_index.map(|last| last + 1);
    let reasons = held("an older copy", decide(volume, records, None));
    assert_eq!(reasons[0].code, ReasonCode::WentBackwards, "{reasons:#?}");
    assert_eq!(reasons.len(), 1, "{reasons:#?}");
}
