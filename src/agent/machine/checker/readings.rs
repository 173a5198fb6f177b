//! From the abstract world to the evidence that the real code is given, and back from the facts that it wants kept.

use super::known::{Answer, Known, Line, Provider, Told};
use super::world::{Content, Data, Tags};
use crate::agent::machine::{Event, Failure, Found, Place};
use crate::cloud::Knowledge;
use crate::model::{
    BlkidAnswer, BlkidName, BootId, BootMillis, ClusterId, ContentClass, DataDirReport, DevNum, DeviceFacts,
    DeviceReading, DeviceUse, DirRole, Entry, EntryId, EtcdGeneration, Fact, FilesystemFacts, Fingerprint, FsUuid,
    HighWater, Identity, MemberId, Observed, Origin, RaftProgress, Reason, ReasonCode, Records, RunningEtcd,
    SecondReading, SelectedBy, Selection, Sibling, Siblings, StartEvidence, Time, VolumeAge, VolumeId, VolumeReading,
    Why, Witness,
};

const SIZE: u64 = 1 << 30;
const CLUSTER: ClusterId = ClusterId(7);
pub const DIR: &str = "etcd";
const ASIDE: &str = "etcd.before";

fn now() -> Time {
    Time::from_unix(1_800_000_000).expect("a time")
}

pub fn volume_id(v: u8) -> VolumeId {
    VolumeId(format!("vol-0000000{v}"))
}

pub fn uuid(n: u8) -> FsUuid {
    FsUuid(uuid::Uuid::from_u128(n.into()))
}

fn member(id: MemberId) -> u8 {
    u8::try_from(id.0).expect("one of ours")
}

fn unknown<T>() -> Observed<T> {
    Observed::Unknown(Why::TimedOut { detail: "no answer".into() })
}

fn reason() -> Reason {
    Reason::new(ReasonCode::Unreadable, "it failed")
}

fn failure() -> Failure {
    Failure { reason: reason(), tool_output: None }
}

fn devnum() -> DevNum {
    DevNum { major: 259, minor: 1 }
}

fn mark(data: Data) -> HighWater {
    let Data::Member { member, progress } = data else { unreachable!("a mark of nothing") };
    let progress = u64::from(progress);
    HighWater {
        data_dir: DIR.into(),
        cluster_id: Some(CLUSTER),
        member_id: Some(MemberId(member.into())),
        term: Some(2),
        consistent_index: Some(10 * progress),
        revision: i64::try_from(1 + progress).ok(),
        // One more, as where the leader has not said yet that it counts.
        wal_last_index: Some(10 * progress + 1),
        keys: Some(progress),
    }
}

/// What `HoldsData` says when a gate opens: that there is data, and not how far it got.
fn glimpse(data: Data) -> HighWater {
    HighWater { term: None, consistent_index: None, revision: None, wal_last_index: None, ..mark(data) }
}

fn data(mark: &HighWater) -> Option<Data> {
    let progress = u8::try_from(mark.keys?).expect("few keys");
    Some(Data::Member { member: member(mark.member_id?), progress })
}

pub fn entry(line: &Line) -> (EntryId, Entry) {
    let (place, instance, number) = line.id;
    let fact = match line.told {
        Told::Intent { uuid: n, seq } => Fact::FormatIntent {
            fs_uuid: uuid(n),
            devnum: devnum(),
            diskseq: Some(seq.into()),
            evidence_digest: String::new(),
        },
        Told::Formatted { uuid: n } => Fact::Formatted { fs_uuid: uuid(n) },
        Told::Fresh => Fact::FreshAllowed { data_dir: DIR.into() },
        Told::Pinned { member, .. } => Fact::Pinned {
            cluster_id: CLUSTER,
            member_id: MemberId(member.into()),
            name: None,
            data_dir: DIR.into(),
            because: String::new(),
        },
        Told::Seen(data) => Fact::HoldsData { mark: glimpse(data) },
        Told::Holds(data) => Fact::HoldsData { mark: mark(data) },
        Told::Changed { from, to } => Fact::IdentityChanged {
            from_cluster: CLUSTER,
            from_member: MemberId(from.into()),
            to_cluster: CLUSTER,
            to_member: MemberId(to.into()),
        },
        Told::Adopted(what) => Fact::Adopted { what, confirmed: String::new() },
        Told::Released => Fact::Released { until: Time::from_unix(1_900_000_000).expect("a time"), until_boot: None },
        Told::Retried => Fact::Retried,
        Told::Published => Fact::Published { at: "/var/lib/etcd".into(), devnum: devnum() },
    };
    let entry = Entry {
        time: now(),
        boot_id: BootId(format!("{place}-{instance}-{}", line.boot)),
        machine_id: format!("{place}-{instance}"),
        guard: "etcd".parse().expect("a name"),
        volume_id: volume_id(line.volume),
        fs_uuid: line.fs.map(uuid),
        version: String::new(),
        fact,
    };
    (EntryId(format!("{place}-{instance}-{number}")), entry)
}

/// What a fact is in this world; `None` where the fold does not look at it.
pub fn told(fact: &Fact) -> Option<Told> {
    Some(match fact {
        Fact::FormatIntent { .. } | Fact::Formatted { .. } => unreachable!("the driver's own"),
        Fact::FreshAllowed { .. } => Told::Fresh,
        Fact::Pinned { member_id, because, .. } => {
            Told::Pinned { member: member(*member_id), adopted: because == "adopted" }
        }
        Fact::HoldsData { mark } if mark.consistent_index.is_none() => Told::Seen(data(mark)?),
        Fact::HoldsData { mark } => Told::Holds(data(mark)?),
        Fact::IdentityChanged { from_member, to_member, .. } => {
            Told::Changed { from: member(*from_member), to: member(*to_member) }
        }
        Fact::Adopted { what, .. } => Told::Adopted(*what),
        other => unreachable!("the machine keeps no {other:?}"),
    })
}

pub fn tags(records: &Records, volume: u8, fs: Option<u8>) -> Tags {
    Tags {
        volume,
        fs,
        pin: records.pin.as_ref().map(|pin| member(pin.member_id)),
        mark: records.high_water.as_ref().and_then(|mark| Some((data(mark)?, mark.consistent_index.is_some()))),
    }
}

fn witness(tags: &Tags) -> Witness {
    Witness {
        volume: Some(volume_id(tags.volume)),
        fs_uuid: tags.fs.map(uuid),
        cluster_id: tags.pin.map(|_| CLUSTER),
        member_id: tags.pin.map(|member| MemberId(member.into())),
        data_dir: tags.pin.map(|_| DIR.into()),
        mark: tags.mark.map(|(data, durable)| if durable { mark(data) } else { glimpse(data) }),
        seen_at: Some(now()),
        ..Witness::default()
    }
}

fn filesystem(fs: u8) -> FilesystemFacts {
    FilesystemFacts {
        fstype: "ext4".into(),
        uuid: Some(uuid(fs)),
        label: None,
        made_at: None,
        last_mounted: None,
        unknown_features: Vec::new(),
        clean: Some(true),
    }
}

fn reading(content: Content, encrypted: bool) -> DeviceReading {
    let named = match content {
        Content::Fs { .. } => vec![BlkidName {
            kind: "ext4".into(),
            usage: None,
            uuid: None,
            label: None,
            offset: Some(1080),
            bad_checksum: false,
        }],
        Content::Blank | Content::Cut { .. } | Content::Damaged => Vec::new(),
    };
    let class = match content {
        Content::Blank if encrypted => ContentClass::Uniform,
        Content::Blank => ContentClass::Zero,
        Content::Fs { .. } | Content::Cut { .. } | Content::Damaged => ContentClass::Other,
    };
    let complete = class != ContentClass::Other;
    DeviceReading {
        libblkid: Observed::Seen(BlkidAnswer {
            safeprobe: i32::from(named.is_empty()),
            probe_loop: 1,
            named,
            version: "2.38.1".into(),
        }),
        content: Observed::Seen(crate::model::Content {
            class,
            complete,
            bytes_read: if complete { SIZE } else { 8192 },
            read_errors: 0,
            first_other: (!complete).then_some(4096),
            sample: None,
            // Nothing is recognised in what is half there or damaged: the hardest case for the rule.
            findings: Vec::new(),
            telling_digest: String::new(),
            size_before: SIZE,
            size_after: SIZE,
        }),
        filesystem: match content {
            Content::Fs { uuid, .. } => Some(filesystem(uuid)),
            Content::Blank | Content::Cut { .. } | Content::Damaged => None,
        },
    }
}

fn unread() -> DeviceReading {
    DeviceReading { libblkid: unknown(), content: unknown(), filesystem: None }
}

fn data_dir(path: &str, role: DirRole, data: Data) -> Option<DataDirReport> {
    let Data::Member { member, progress } = data else { return None };
    let HighWater { term, consistent_index, revision, wal_last_index, keys, .. } = mark(data);
    Some(DataDirReport {
        path: path.into(),
        role,
        layout: "etcd".into(),
        etcd: EtcdGeneration::V3,
        populated: progress > 0,
        fingerprint: Some(Fingerprint {
            cluster_id: Some(CLUSTER),
            member_id: Some(MemberId(member.into())),
            raft: RaftProgress {
                term,
                commit: consistent_index,
                first_index: Some(1),
                // The entry that did not count yet may have gone again since a mark saw it.
                last_index: wal_last_index.map(|last| last - 1),
                snapshot_index: None,
            },
            consistent_index,
            revision,
            keys,
            ..Fingerprint::default()
        }),
        defects: Vec::new(),
        locked_by: None,
    })
}

fn volume_reading(data: Data, aside: Data) -> VolumeReading {
    let selected = data_dir(DIR, DirRole::Selected, data);
    let exists = selected.is_some();
    let data_dirs: Vec<_> = selected.into_iter().chain(data_dir(ASIDE, DirRole::Archive, aside)).collect();
    VolumeReading {
        root_entries: data_dirs.iter().map(|dir| dir.path.clone()).collect(),
        data_dirs,
        selected: Some(Selection { path: DIR.into(), by: SelectedBy::Config, exists }),
        manager_state: None,
        unreadable: Vec::new(),
        beyond: Vec::new(),
        publish: Vec::new(),
    }
}

/// What the provider is asked for where there is nothing, and what it says (`agent::evidence`).
fn siblings(older: bool) -> Siblings {
    let an_hour = Time::from_unix(now().unix() - 7200).expect("a time");
    let created = if older { an_hour } else { now() };
    let other = Sibling {
        volume: volume_id(9),
        member: "other".into(),
        created: Some(created),
        attached: None,
        ran: Vec::new(),
    };
    Siblings::Listed { created: now(), me: None, of: vec![other] }
}

fn knowledge(provider: Provider) -> Knowledge {
    let Provider { tags, encrypted, young, from_snapshot } = provider;
    Knowledge {
        identity: Observed::Seen(Identity::Matches),
        origin: Observed::Seen(Origin::Provider {
            encrypted,
            from_snapshot: from_snapshot.then(|| "snap-1".into()),
            young,
        }),
        age: Observed::Seen(if young { VolumeAge::Young } else { VolumeAge::Old }),
        witness: Observed::Seen(tags.as_ref().map(witness)),
    }
}

/// The real event of an answer.
#[expect(clippy::too_many_lines, reason = "one arm for each answer")]
pub fn event(known: &Known, answer: &Answer) -> Event {
    match *answer {
        Answer::LookAgain => Event::LookAgain,
        Answer::Found { master, boot, volume, seq, records, used, mounted, gate, provider } => {
            let records = known.records.get(records).clone();
            let known = provider.map_or_else(|| Knowledge::not_asked("EC2 was not asked"), knowledge);
            let uses = if used { vec![DeviceUse::Mount { at: "/mnt/person".into() }] } else { Vec::new() };
            Event::Found(Box::new(Found {
                facts: DeviceFacts {
                    requested: "/dev/nvme1n1".into(),
                    node: "/dev/nvme1n1".into(),
                    devnum: devnum(),
                    size: SIZE,
                    logical_block: 512,
                    read_only: false,
                    whole_disk: true,
                    serial: None,
                    diskseq: Some(seq.into()),
                    backing_file: None,
                    volume_id: volume_id(volume),
                    uses,
                },
                place: if mounted { Place::Mounted } else { Place::Free },
                records: Observed::Seen(records),
                identity: known.identity,
                origin: known.origin,
                witness: known.witness,
                gate_open: gate,
                boot_id: BootId(format!("{master}-{}-{}", boot.0, boot.1)),
                now: now(),
                now_boot: Some(BootMillis(1)),
            }))
        }
        Answer::NotHere => Event::NotHere,
        Answer::NotFound => Event::NotFound(reason()),
        Answer::Brought => Event::Brought,
        Answer::Waits => Event::Waits(reason()),
        Answer::Known(provider) => Event::Known(Box::new(knowledge(provider))),
        Answer::NotKnown => Event::Known(Box::new(Knowledge {
            identity: unknown(),
            origin: unknown(),
            age: unknown(),
            witness: unknown(),
        })),
        Answer::Claimed(true) => Event::Claimed(Ok(())),
        Answer::Claimed(false) => Event::Claimed(Err(reason())),
        Answer::Read { content, encrypted } => Event::Read(Box::new(reading(content, encrypted))),
        Answer::Unread => Event::Read(Box::new(unread())),
        Answer::Reread { same } => {
            let second = if same { SecondReading::Same } else { SecondReading::Changed { detail: "other".into() } };
            Event::Reread { second: Observed::Seen(second), now: BootMillis(2) }
        }
        Answer::Remembered { records } => {
            Event::Remembered(Box::new(Observed::Seen(known.records.get(records).clone())))
        }
        Answer::NotRemembered => Event::Remembered(Box::new(unknown())),
        Answer::Made(Some(fs)) => Event::Made(Ok(uuid(fs))),
        Answer::Made(None) => Event::Made(Err(failure())),
        Answer::Checked(true) => Event::Checked(Ok(())),
        Answer::Checked(false) => Event::Checked(Err(failure())),
        Answer::Mounted(true) => Event::Mounted(Ok(())),
        Answer::Mounted(false) => Event::Mounted(Err(failure())),
        Answer::Looked { volume, content, records, running, provider } => {
            let Content::Fs { uuid: fs, data, aside } = content else { unreachable!("no root without a filesystem") };
            let records = known.records.get(records).clone();
            let nothing = !data.lives() && !aside.lives();
            Event::Looked(Box::new(StartEvidence {
                volume_id: volume_id(volume),
                filesystem: Observed::Seen(filesystem(fs)),
                volume: Observed::Seen(volume_reading(data, aside)),
                running: Observed::Seen(running.then(|| RunningEtcd { pid: 9, data_dir: DIR.into() })),
                age: match provider {
                    _ if !nothing => Observed::not_run("there is data"),
                    Some((_, true, _)) => Observed::Seen(VolumeAge::Young),
                    Some((_, false, _)) => Observed::Seen(VolumeAge::Old),
                    None => unknown(),
                },
                siblings: match provider {
                    _ if !nothing => Observed::not_run("there is data"),
                    Some((_, _, older)) => Observed::Seen(siblings(older)),
                    None => unknown(),
                },
                witness: match provider {
                    _ if records.pin.is_some() => Observed::not_run("the ledgers say whose data this is"),
                    Some((tags, _, _)) => Observed::Seen(tags.as_ref().map(witness)),
                    None => unknown(),
                },
                records: Observed::Seen(records),
                to_run: Observed::Seen(None),
            }))
        }
        Answer::NotLooked { volume, records } => Event::Looked(Box::new(StartEvidence {
            volume_id: volume_id(volume),
            filesystem: unknown(),
            volume: unknown(),
            records: Observed::Seen(known.records.get(records).clone()),
            running: unknown(),
            age: unknown(),
            siblings: unknown(),
            witness: unknown(),
            to_run: Observed::Seen(None),
        })),
        Answer::Published(true) => Event::Published(Ok(())),
        Answer::Published(false) => Event::Published(Err(failure())),
        Answer::Marked { data, records } => Event::Marked {
            mark: Observed::Seen(data_mark(data)),
            records: Box::new(Observed::Seen(known.records.get(records).clone())),
        },
    }
}

fn data_mark(data: Data) -> Option<HighWater> {
    match data {
        Data::None => None,
        Data::Member { .. } => Some(mark(data)),
    }
}
