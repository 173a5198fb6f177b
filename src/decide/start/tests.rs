//! The rows of the design, one by one, and (in `enumerated`) all of their combinations.

mod emptied;
mod enumerated;
mod published;
mod room;
mod rows;
mod told;
mod version;
mod witness;

use super::*;
use crate::model::{
    ClusterId, DataDirReport, Defect, DirRole, EtcdGeneration, EtcdManagerState, FilesystemFacts, Fingerprint, FsUuid,
    HighWater, Member, MemberId, Pin, RaftProgress, SelectedBy, Selection, Severity, Sibling, Siblings, Time, V2Facts,
    VolumeAge, VolumeId, Why,
};

const OURS: ClusterId = ClusterId(0xc1);
const OTHER: ClusterId = ClusterId(0xc2);
const ME: MemberId = MemberId(0xa1);
const HIM: MemberId = MemberId(0xa2);

fn uuid(number: u128) -> FsUuid {
    FsUuid(uuid::Uuid::from_u128(number))
}

fn time() -> Time {
    Time::from_unix(1_700_000_000).unwrap()
}

/// A healthy dir: 100 live keys at revision 200, everything applied but five entries.
fn fingerprint(cluster: ClusterId, member: MemberId, keys: u64) -> Fingerprint {
    Fingerprint {
        cluster_id: Some(cluster),
        member_id: Some(member),
        members: vec![Member {
            id: member,
            name: "etcd-a".into(),
            peer_urls: vec!["https://a:2380".into()],
            client_urls: vec!["https://a:2379".into()],
            learner: false,
        }],
        raft: RaftProgress { term: Some(7), last_index: Some(305), ..RaftProgress::default() },
        consistent_index: Some(300),
        revision: Some(200),
        keys: Some(keys),
        ..Fingerprint::default()
    }
}

fn dir(path: &str, fingerprint: Option<Fingerprint>) -> DataDirReport {
    DataDirReport {
        path: path.into(),
        role: DirRole::Candidate,
        layout: "etcd".into(),
        etcd: EtcdGeneration::V3,
        populated: fingerprint.as_ref().is_some_and(|fingerprint| fingerprint.keys.is_some_and(|keys| keys > 0)),
        fingerprint,
        defects: vec![],
        locked_by: None,
    }
}

fn healthy(path: &str) -> DataDirReport {
    DataDirReport { role: DirRole::Selected, ..dir(path, Some(fingerprint(OURS, ME, 100))) }
}

/// What a bootstrap leaves: ids, revision 1, no key.
fn bootstrapped(path: &str) -> DataDirReport {
    let fingerprint = Fingerprint {
        raft: RaftProgress { term: Some(2), last_index: Some(4), ..RaftProgress::default() },
        consistent_index: Some(4),
        revision: Some(1),
        ..fingerprint(OURS, ME, 0)
    };
    DataDirReport { role: DirRole::Selected, ..dir(path, Some(fingerprint)) }
}

fn archive(path: &str, cluster: ClusterId, keys: u64) -> DataDirReport {
    DataDirReport { role: DirRole::Archive, ..dir(path, Some(fingerprint(cluster, HIM, keys))) }
}

/// An etcd 2 dir whose keys nobody has counted.
fn v2(path: &str, role: DirRole) -> DataDirReport {
    let mut fingerprint = fingerprint(OTHER, HIM, 0);
    fingerprint.keys = None;
    fingerprint.revision = None;
    fingerprint.consistent_index = None;
    fingerprint.v2 = Some(V2Facts { keys: None });
    DataDirReport { role, etcd: EtcdGeneration::V2, populated: true, ..dir(path, Some(fingerprint)) }
}

fn selects(path: &str, by: SelectedBy, exists: bool) -> Option<Selection> {
    Some(Selection { path: path.into(), by, exists })
}

fn reading(data_dirs: Vec<DataDirReport>, selected: Option<Selection>) -> VolumeReading {
    VolumeReading {
        data_dirs,
        selected,
        manager_state: None,
        unreadable: vec![],
        beyond: vec![],
        root_entries: vec![],
        publish: vec![],
    }
}

/// A volume with one healthy dir that configuration selects.
fn one_healthy() -> VolumeReading {
    reading(vec![healthy("default")], selects("default", SelectedBy::Config, true))
}

fn facts(uuid: Option<FsUuid>) -> FilesystemFacts {
    FilesystemFacts {
        fstype: "ext4".into(),
        uuid,
        label: None,
        made_at: Some(time()),
        last_mounted: None,
        unknown_features: vec![],
        clean: Some(true),
    }
}

/// No record, no provider, no running etcd.
fn first_look(volume: VolumeReading) -> StartEvidence {
    StartEvidence {
        volume_id: VolumeId("vol-1".into()),
        filesystem: Observed::Seen(facts(Some(uuid(1)))),
        volume: Observed::Seen(volume),
        records: Observed::Seen(Records::default()),
        running: Observed::Seen(None),
        age: Observed::Seen(VolumeAge::NoProvider),
        siblings: Siblings::not_named(),
        witness: Observed::Seen(None),
        to_run: Observed::Seen(None),
    }
}

fn with_records(volume: VolumeReading, records: Records) -> StartEvidence {
    StartEvidence { records: Observed::Seen(records), ..first_look(volume) }
}

fn pin(cluster: ClusterId, member: MemberId) -> Pin {
    Pin {
        cluster_id: cluster,
        member_id: member,
        name: Some("etcd-a".into()),
        data_dir: "default".into(),
        fs_uuid: Some(uuid(1)),
        at: time(),
    }
}

fn fingerprint_of(volume: &mut VolumeReading) -> &mut Fingerprint {
    volume.data_dirs[0].fingerprint.as_mut().unwrap()
}

/// What the high-water writer noted of the healthy dir, a little earlier.
fn mark() -> HighWater {
    HighWater {
        data_dir: "default".into(),
        cluster_id: Some(OURS),
        member_id: Some(ME),
        term: Some(7),
        consistent_index: Some(290),
        revision: Some(195),
        wal_last_index: Some(400),
        keys: Some(100),
    }
}

/// The record of a guard that has been open with the healthy dir.
fn known() -> Records {
    Records {
        pin: Some(pin(OURS, ME)),
        high_water: Some(mark()),
        held_data_at: Some(time()),
        fs_uuids: vec![uuid(1)],
        ..Records::default()
    }
}

fn policy() -> StartPolicy {
    StartPolicy {
        fresh: true,
        data_dir: None,
        publish: Vec::new(),
        member: None,
        peer_url: None,
        min_keys_percent: 50,
        far_behind_percent: 50,
        runs_as: None,
    }
}

fn starts(evidence: &StartEvidence) -> StartKind {
    match may_start(evidence, &policy()) {
        StartVerdict::Start { how, .. } => how,
        StartVerdict::Hold { reasons } => panic!("held: {reasons:#?}"),
    }
}

fn holds(evidence: &StartEvidence) -> Vec<Reason> {
    match may_start(evidence, &policy()) {
        StartVerdict::Hold { reasons } => reasons,
        StartVerdict::Start { .. } => panic!("started: {evidence:#?}"),
    }
}

fn codes(reasons: &[Reason]) -> Vec<ReasonCode> {
    reasons.iter().map(|reason| reason.code).collect()
}

/// The codes of a hold, once each, in order.
fn held_as(evidence: &StartEvidence) -> Vec<ReasonCode> {
    codes(&holds(evidence))
}

fn warned(evidence: &StartEvidence) -> Vec<ReasonCode> {
    match may_start(evidence, &policy()) {
        StartVerdict::Start { warnings, .. } => codes(&warnings),
        StartVerdict::Hold { reasons } => panic!("held: {reasons:#?}"),
    }
}

fn says(reason: &Reason, words: &[&str]) {
    for word in words {
        assert!(reason.message.contains(word), "`{word}` is not in: {}", reason.message);
    }
}

fn eio() -> Why {
    Why::Unreadable { detail: "EIO".into() }
}

fn defect(code: &str, file: &str) -> Defect {
    Defect {
        code: code.into(),
        severity: Severity::Damage,
        file: file.into(),
        offset: Some(4096),
        message: "it is broken".into(),
    }
}
