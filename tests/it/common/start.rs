//! What the start decision is asked with, where a test has read a real data dir: a volume with an ext4 that nothing speaks
//! against, and the numbers that a configuration has by default.

use volhold::model::{
    DataDirReport, FilesystemFacts, FsUuid, HighWater, Observed, Pin, Records, Siblings, StartEvidence, StartPolicy,
    Time, VolumeAge, VolumeId, VolumeReading,
};

pub const UUID: FsUuid = FsUuid(uuid::Uuid::from_u128(7));

pub fn evidence(volume: VolumeReading, records: Records) -> StartEvidence {
    let filesystem = FilesystemFacts {
        fstype: "ext4".into(),
        uuid: Some(UUID),
        label: None,
        made_at: None,
        last_mounted: None,
        unknown_features: vec![],
        clean: Some(true),
    };
    StartEvidence {
        volume_id: VolumeId("local:test".into()),
        filesystem: Observed::Seen(filesystem),
        volume: Observed::Seen(volume),
        records: Observed::Seen(records),
        running: Observed::Seen(None),
        age: Observed::Seen(VolumeAge::NoProvider),
        siblings: Siblings::not_named(),
        witness: Observed::Seen(None),
        to_run: Observed::Seen(None),
    }
}

pub fn policy() -> StartPolicy {
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

/// The record of a guard that was open over this dir until that second.
pub fn record_of(report: &DataDirReport, second: i64) -> Records {
    let fingerprint = report.fingerprint.as_ref().expect("a fingerprint");
    let at = Time::from_unix(second).expect("a time");
    Records {
        pin: Some(Pin {
            cluster_id: fingerprint.cluster_id.expect("a cluster id"),
            member_id: fingerprint.member_id.expect("a member id"),
            name: None,
            data_dir: report.path.clone(),
            fs_uuid: Some(UUID),
            at,
        }),
        high_water: Some(HighWater::of(&report.path, fingerprint)),
        held_data_at: Some(at),
        fs_uuids: vec![UUID],
        ..Records::default()
    }
}
