//! The whole input space, enumerated by representatives, against an oracle that looks at labels and not at values.

mod told;

use super::*;
use crate::model::{
    BlkidAnswer, BlkidName, Claim, Content, ContentClass, DeviceUse, Finding, FindingKind, FormatHistory, FsUuid,
    Identity, SecondReading, Validated, VolumeId, Why,
};

const SIZE: u64 = 1 << 30;
const NOW: BootMillis = BootMillis(5_000);
const INTENDED: FsUuid = FsUuid(uuid::Uuid::from_u128(0x1111));
const FOREIGN: FsUuid = FsUuid(uuid::Uuid::from_u128(0x2222));

/// A representative value and the label by which the oracle knows it.
type Labelled<T> = (&'static str, Observed<T>);

fn unknowns<T>() -> Vec<Labelled<T>> {
    let detail = || "so it was".to_owned();
    vec![
        ("unknown", Observed::Unknown(Why::Unreadable { detail: detail() })),
        ("unknown", Observed::Unknown(Why::Short { detail: detail() })),
        ("unknown", Observed::Unknown(Why::TimedOut { detail: detail() })),
        ("unknown", Observed::Unknown(Why::ReaderFailed { detail: detail() })),
        ("unknown", Observed::Unknown(Why::NotRun { detail: String::new() })),
    ]
}

fn with_unknowns<T>(seen: Vec<(&'static str, T)>) -> Vec<Labelled<T>> {
    seen.into_iter().map(|(label, value)| (label, Observed::Seen(value))).chain(unknowns()).collect()
}

fn good_device() -> DeviceFacts {
    DeviceFacts {
        requested: "/dev/disk/by-id/etcd".into(),
        node: "/dev/nvme1n1".into(),
        devnum: DevNum { major: 259, minor: 3 },
        size: SIZE,
        logical_block: 512,
        read_only: false,
        whole_disk: true,
        serial: None,
        diskseq: Some(12),
        backing_file: None,
        volume_id: VolumeId("local:etcd".into()),
        uses: vec![],
    }
}

fn devices() -> Vec<Labelled<DeviceFacts>> {
    let used = |other| DeviceFacts { uses: vec![other], ..good_device() };
    let name = || "dm-0".to_owned();
    with_unknowns(vec![
        ("good", good_device()),
        ("bad", DeviceFacts { size: 0, ..good_device() }),
        ("bad", DeviceFacts { read_only: true, ..good_device() }),
        ("bad", DeviceFacts { whole_disk: false, ..good_device() }),
        ("bad", used(DeviceUse::Mount { at: "/mnt".into() })),
        ("bad", used(DeviceUse::Swap)),
        ("bad", used(DeviceUse::Holder { name: name() })),
        ("bad", used(DeviceUse::LoopOnTop { name: name() })),
        ("bad", used(DeviceUse::Partition { name: name() })),
        ("bad", used(DeviceUse::Exclusive)),
    ])
}

fn claims() -> Vec<Labelled<Claim>> {
    with_unknowns(vec![("good", Claim::Ours), ("bad", Claim::Refused)])
}

fn identities() -> Vec<Labelled<Identity>> {
    let other_serial = Identity::OtherSerial { asked: VolumeId("vol-1".into()), found: "vol2".into() };
    with_unknowns(vec![
        ("good", Identity::Matches),
        ("bad", other_serial),
        ("bad", Identity::OtherSize { provider: SIZE, kernel: SIZE / 2 }),
    ])
}

fn answer(safeprobe: i32, probe_loop: i32, names: &[&str]) -> BlkidAnswer {
    let named = |kind: &&str| BlkidName {
        kind: (*kind).to_owned(),
        usage: None,
        uuid: None,
        label: None,
        offset: None,
        bad_checksum: false,
    };
    BlkidAnswer { safeprobe, probe_loop, named: names.iter().map(named).collect(), version: "2.38.1".into() }
}

fn answers() -> Vec<Labelled<BlkidAnswer>> {
    let mut weak_with_bad_checksum = answer(0, 1, &["hfsplus"]);
    weak_with_bad_checksum.named[0].bad_checksum = true;
    with_unknowns(vec![
        ("nothing", answer(1, 1, &[])),
        ("weak", answer(0, 1, &["atari"])),
        ("bad", answer(0, 1, &["atari", "ext4"])),
        ("bad", answer(0, 1, &["ext4"])),
        ("bad", answer(1, 1, &["crypto_LUKS"])),
        ("bad", answer(0, 1, &[])),
        ("bad", answer(1, 0, &[])),
        ("bad", answer(2, 1, &[])),
        ("bad", answer(-2, 1, &["atari"])),
        ("bad", answer(0, -5, &["atari"])),
        ("bad", answer(-5, -5, &[])),
        ("bad", answer(1, -5, &[])),
        ("bad", weak_with_bad_checksum),
    ])
}

fn finding(kind: FindingKind, validated: Validated, uuid: Option<FsUuid>) -> Finding {
    Finding { kind, offset: 4096, validated, uuid: uuid.map(|uuid| uuid.to_string()), detail: None }
}

/// What the oracle knows of one content: class, read wholly and without doubt, findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ContentLabel {
    class: ContentClass,
    whole: bool,
    findings: &'static str,
}

fn findings() -> Vec<(&'static str, Vec<Finding>)> {
    use FindingKind::*;
    vec![
        ("none", vec![]),
        ("magic", vec![finding(Named("hfsplus".into()), Validated::Magic, None)]),
        ("magic", vec![finding(ExtBackupSuperblock, Validated::Magic, None)]),
        ("own backup", vec![finding(ExtBackupSuperblock, Validated::Structure, Some(INTENDED))]),
        ("telling", vec![finding(ExtBackupSuperblock, Validated::Checksum, Some(FOREIGN))]),
        ("telling", vec![finding(ExtBackupSuperblock, Validated::Structure, None)]),
        ("telling", vec![finding(ExtSuperblock, Validated::Checksum, Some(INTENDED))]),
        ("telling", vec![finding(BoltMeta, Validated::Checksum, None)]),
    ]
}

const CLASSES: [ContentClass; 3] = [ContentClass::Zero, ContentClass::Uniform, ContentClass::Other];

fn content_of(class: ContentClass, findings: Vec<Finding>) -> Content {
    Content {
        class,
        complete: true,
        bytes_read: SIZE,
        read_errors: 0,
        first_other: (class != ContentClass::Zero).then_some(4096),
        findings,
        sample: None,
        telling_digest: "00".into(),
        size_before: SIZE,
        size_after: SIZE,
    }
}

/// Every way in which a scan can be less than a whole one.
fn weakened(content: &Content) -> Vec<Content> {
    vec![
        Content { complete: false, ..content.clone() },
        Content { complete: false, bytes_read: SIZE / 2, ..content.clone() },
        Content { bytes_read: SIZE - 1, ..content.clone() },
        Content { read_errors: 1, ..content.clone() },
        Content { complete: false, read_errors: 1, ..content.clone() },
        Content { size_after: SIZE - 512, ..content.clone() },
        Content { size_before: SIZE * 2, size_after: SIZE * 2, bytes_read: SIZE * 2, ..content.clone() },
    ]
}

fn contents() -> Vec<(ContentLabel, Content)> {
    let mut all = vec![];
    for class in CLASSES {
        for (label, findings) in findings() {
            let content = content_of(class, findings);
            all.extend(
                weakened(&content)
                    .into_iter()
                    .map(|content| (ContentLabel { class, whole: false, findings: label }, content)),
            );
            all.push((ContentLabel { class, whole: true, findings: label }, content));
        }
    }
    all
}

fn origins() -> Vec<Labelled<Origin>> {
    let provider = |encrypted, snapshot: bool, young| Origin::Provider {
        encrypted,
        from_snapshot: snapshot.then(|| "snap-1".to_owned()),
        young,
    };
    with_unknowns(vec![
        ("good", Origin::NoProvider),
        ("vouches", provider(true, false, true)),
        ("good", provider(false, false, true)),
        ("good", provider(true, false, false)),
        ("good", provider(false, false, false)),
        ("bad", provider(true, true, true)),
        ("bad", provider(false, true, true)),
        ("bad", provider(true, true, false)),
        ("bad", provider(false, true, false)),
    ])
}

fn histories() -> Vec<Labelled<FormatHistory>> {
    let intent = |same_attachment| FormatHistory::UnfinishedIntent { fs_uuid: INTENDED, same_attachment };
    with_unknowns(vec![
        ("none", FormatHistory::None),
        ("own intent", intent(true)),
        ("bad", intent(false)),
        ("bad", FormatHistory::Used { says: "data on Monday".into() }),
        ("bad", FormatHistory::Broken { detail: "entry 3".into() }),
    ])
}

fn second_readings() -> Vec<Labelled<SecondReading>> {
    with_unknowns(vec![("good", SecondReading::Same), ("bad", SecondReading::Changed { detail: "byte 0".into() })])
}

fn blank() -> FormatEvidence {
    FormatEvidence {
        device: Observed::Seen(good_device()),
        claim: Observed::Seen(Claim::Ours),
        identity: Observed::Seen(Identity::Matches),
        libblkid: Observed::Seen(answer(1, 1, &[])),
        content: Observed::Seen(content_of(ContentClass::Zero, vec![])),
        origin: Observed::Seen(Origin::NoProvider),
        history: Observed::Seen(FormatHistory::None),
        second_reading: Observed::Seen(SecondReading::Same),
    }
}

/// The two ways in which a device may be formatted, in terms of labels.
fn oracle(libblkid: &str, content: Option<ContentLabel>, origin: &str, history: &str) -> bool {
    let Some(ContentLabel { class, whole: true, findings }) = content else { return false };
    match class {
        ContentClass::Zero => {
            libblkid == "nothing"
                && findings == "none"
                && ["good", "vouches"].contains(&origin)
                && ["none", "own intent"].contains(&history)
        }
        ContentClass::Uniform => {
            ["nothing", "weak"].contains(&libblkid)
                && ["none", "magic"].contains(&findings)
                && origin == "vouches"
                && ["none", "own intent"].contains(&history)
        }
        // Not even behind an mkfs of ours that was cut: its tables cannot be told from what somebody wrote since.
        ContentClass::Other => false,
    }
}

fn codes(refusal: &Refusal) -> Vec<ReasonCode> {
    refusal.reasons.iter().map(|reason| reason.code).collect()
}

fn refused(evidence: &FormatEvidence) -> Vec<ReasonCode> {
    codes(&may_format(FormatPolicy::IfBlank, evidence, NOW).expect_err("refused"))
}

#[test]
fn a_blank_device_gets_a_permit_for_itself_that_expires() {
    let permit = may_format(FormatPolicy::IfBlank, &blank(), NOW).expect("permit");
    assert_eq!(permit.devnum(), good_device().devnum);
    assert_eq!(permit.diskseq(), Some(12));
    assert_eq!(permit.size(), SIZE);
    assert_eq!(permit.evidence_digest().len(), 64);
    assert!(permit.is_valid_at(NOW));
    assert!(permit.is_valid_at(BootMillis(permit.expires().0 - 1)));
    assert!(!permit.is_valid_at(permit.expires()));
    assert_eq!(permit.expires(), BootMillis(NOW.0 + PERMIT_LASTS_MS));
}

#[test]
fn the_digest_follows_the_evidence() {
    let first = may_format(FormatPolicy::IfBlank, &blank(), NOW).expect("permit");
    let again = may_format(FormatPolicy::IfBlank, &blank(), BootMillis(9_999)).expect("permit");
    let mut other = blank();
    if let Observed::Seen(content) = &mut other.content {
        content.telling_digest = "01".into();
    }
    let other = may_format(FormatPolicy::IfBlank, &other, NOW).expect("permit");
    assert_eq!(first.evidence_digest(), again.evidence_digest());
    assert_ne!(first.evidence_digest(), other.evidence_digest());
}

/// The sources that bear on each other, in full detail, the others good.
///
/// 22 of the states permit:
/// - 10: zero everywhere; libblkid says nothing; the five origins without snapshot; no history or our own cut mkfs;
/// - 12: noise; the one origin that vouches; libblkid says nothing or names a weak prober; no finding or one of two by
///   magic alone; no history or our own cut mkfs.
#[test]
fn of_all_contents_origins_and_histories_exactly_22_states_permit() {
    let (mut states, mut permits) = (0_u64, 0_u64);
    let contents: Vec<(Option<ContentLabel>, Observed<Content>)> = contents()
        .into_iter()
        .map(|(label, content)| (Some(label), Observed::Seen(content)))
        .chain(unknowns().into_iter().map(|(_, unknown)| (None, unknown)))
        .collect();
    let mut evidence = blank();
    for (blkid_label, libblkid) in answers() {
        evidence.libblkid = libblkid;
        for (content_label, content) in &contents {
            evidence.content = content.clone();
            for (origin_label, origin) in origins() {
                evidence.origin = origin;
                for (history_label, history) in histories() {
                    evidence.history = history;
                    let verdict = may_format(FormatPolicy::IfBlank, &evidence, NOW);
                    states += 1;
                    permits += u64::from(verdict.is_ok());
                    assert_eq!(
                        verdict.is_ok(),
                        oracle(blkid_label, *content_label, origin_label, history_label),
                        "{evidence:#?} gave {verdict:#?}"
                    );
                    if let Err(refusal) = verdict {
                        assert!(!refusal.reasons.is_empty(), "refused without a reason: {evidence:#?}");
                    }
                }
            }
        }
    }
    assert_eq!(states, 18 * 197 * 14 * 10);
    assert_eq!(permits, 22);
}

/// Policy, device, claim, identity and second reading in full detail, against the contents that a permit can stand on.
///
/// Only where all five are good: one of 2 × 15 × 7 × 8 × 7 each. Two contents: 2 permits.
#[test]
fn of_all_devices_claims_identities_and_second_readings_exactly_one_permits() {
    let noise = FormatEvidence {
        content: Observed::Seen(content_of(ContentClass::Uniform, vec![])),
        origin: Observed::Seen(Origin::Provider { encrypted: true, from_snapshot: None, young: true }),
        ..blank()
    };
    let (mut states, mut permits) = (0_u64, 0_u64);
    for base in [blank(), noise] {
        let mut evidence = base;
        for policy in [FormatPolicy::Never, FormatPolicy::IfBlank] {
            for (device_label, device) in devices() {
                evidence.device = device;
                for (claim_label, claim) in claims() {
                    evidence.claim = claim;
                    for (identity_label, identity) in identities() {
                        evidence.identity = identity;
                        for (second_label, second) in second_readings() {
                            evidence.second_reading = second;
                            let good = [device_label, claim_label, identity_label, second_label] == ["good"; 4];
                            let verdict = may_format(policy, &evidence, NOW);
                            states += 1;
                            permits += u64::from(verdict.is_ok());
                            assert_eq!(verdict.is_ok(), good && policy == FormatPolicy::IfBlank, "{evidence:#?}");
                        }
                    }
                }
            }
        }
    }
    assert_eq!(states, 2 * 2 * 15 * 7 * 8 * 7);
    assert_eq!(permits, 2);
}

/// Whatever permits, no weaker knowledge of the same device permits: each source unknown in each way, and each scan that is
/// less than a whole one. With the two enumerations: less certainty never turns a refusal into a permit.
#[test]
fn less_certainty_never_permits() {
    let mut weaker = 0;
    for class in CLASSES {
        for (_, origin) in origins() {
            for (_, history) in histories() {
                let base = FormatEvidence {
                    content: Observed::Seen(content_of(class, vec![])),
                    origin: origin.clone(),
                    history: history.clone(),
                    ..blank()
                };
                for index in 0..5 {
                    let each = [
                        FormatEvidence { device: unknowns()[index].1.clone(), ..base.clone() },
                        FormatEvidence { claim: unknowns()[index].1.clone(), ..base.clone() },
                        FormatEvidence { identity: unknowns()[index].1.clone(), ..base.clone() },
                        FormatEvidence { libblkid: unknowns()[index].1.clone(), ..base.clone() },
                        FormatEvidence { content: unknowns()[index].1.clone(), ..base.clone() },
                        FormatEvidence { origin: unknowns()[index].1.clone(), ..base.clone() },
                        FormatEvidence { history: unknowns()[index].1.clone(), ..base.clone() },
                        FormatEvidence { second_reading: unknowns()[index].1.clone(), ..base.clone() },
                    ];
                    for evidence in each {
                        weaker += 1;
                        assert!(may_format(FormatPolicy::IfBlank, &evidence, NOW).is_err(), "{evidence:#?}");
                    }
                }
                for content in weakened(&content_of(class, vec![])) {
                    weaker += 1;
                    let evidence = FormatEvidence { content: Observed::Seen(content), ..base.clone() };
                    assert!(may_format(FormatPolicy::IfBlank, &evidence, NOW).is_err(), "{evidence:#?}");
                }
            }
        }
    }
    assert_eq!(weaker, 3 * 14 * 10 * (5 * 8 + 7));
}

#[test]
fn every_finding_above_magic_refuses_under_its_own_code_whatever_the_content() {
    use FindingKind::*;
    let expected = [
        (ExtSuperblock, ReasonCode::SignatureFound),
        (ExtBackupSuperblock, ReasonCode::BackupSuperblockFound),
        (XfsSuperblock, ReasonCode::SignatureFound),
        (XfsAgHeader, ReasonCode::BackupSuperblockFound),
        (GptHeader, ReasonCode::SignatureFound),
        (GptBackupHeader, ReasonCode::SignatureFound),
        (BoltMeta, ReasonCode::EtcdDataFound),
        (EtcdWal, ReasonCode::EtcdDataFound),
        (ExtJournal, ReasonCode::SignatureFound),
        (ExtDirectory, ReasonCode::SignatureFound),
        (XfsLog, ReasonCode::SignatureFound),
        (EtcdDirectory, ReasonCode::EtcdDataFound),
        (BoltLeaf, ReasonCode::EtcdDataFound),
        (EtcdSnap, ReasonCode::EtcdDataFound),
        (EtcdV2Store, ReasonCode::EtcdDataFound),
        (EtcdKeys, ReasonCode::EtcdDataFound),
        (Named("LVM2_member".into()), ReasonCode::SignatureFound),
    ];
    for class in CLASSES {
        for (kind, code) in &expected {
            for validated in [Validated::Structure, Validated::Checksum] {
                let content = content_of(class, vec![finding(kind.clone(), validated, Some(FOREIGN))]);
                let evidence = FormatEvidence {
                    content: Observed::Seen(content),
                    origin: Observed::Seen(Origin::Provider { encrypted: true, from_snapshot: None, young: true }),
                    ..blank()
                };
                assert_eq!(refused(&evidence), [*code], "{kind:?} {validated:?} in {class:?}");
            }
        }
    }
}

/// An mkfs of ours was cut on this very attachment. What it left is held as that; what is not from it, as what it is.
#[test]
fn what_a_cut_mkfs_left_is_held_as_unfinished_and_never_made_anew() {
    let with = |findings| FormatEvidence {
        content: Observed::Seen(content_of(ContentClass::Other, findings)),
        history: Observed::Seen(FormatHistory::UnfinishedIntent { fs_uuid: INTENDED, same_attachment: true }),
        ..blank()
    };
    let backup = |uuid| vec![finding(FindingKind::ExtBackupSuperblock, Validated::Checksum, Some(uuid))];
    use ReasonCode::{BackupSuperblockFound, EtcdDataFound, IntentUnfinished, SignatureFound};
    assert_eq!(refused(&with(vec![])), [IntentUnfinished]);
    assert_eq!(refused(&with(backup(INTENDED))), [IntentUnfinished]);
    assert_eq!(refused(&with(backup(FOREIGN))), [BackupSuperblockFound, IntentUnfinished]);
    // What every mkfs.ext4 makes before it comes to the superblock: its journal, which need not say whose it is, and `lost+found`.
    let other = |kind, uuid| vec![finding(kind, Validated::Structure, uuid)];
    for (kind, uuid, reasons) in [
        (FindingKind::ExtJournal, None, vec![IntentUnfinished]),
        (FindingKind::ExtJournal, Some(INTENDED), vec![IntentUnfinished]),
        (FindingKind::ExtJournal, Some(FOREIGN), vec![SignatureFound, IntentUnfinished]),
        (FindingKind::ExtDirectory, None, vec![IntentUnfinished]),
        (FindingKind::EtcdDirectory, None, vec![EtcdDataFound, IntentUnfinished]),
        (FindingKind::XfsLog, Some(INTENDED), vec![SignatureFound, IntentUnfinished]),
    ] {
        assert_eq!(refused(&with(other(kind.clone(), uuid))), reasons, "{kind:?} {uuid:?}");
    }
}

#[test]
fn magic_alone_is_named_beside_unknown_data_and_contradicts_a_zero_scan() {
    let magic = || vec![finding(FindingKind::BoltMeta, Validated::Magic, None)];
    let of = |class| FormatEvidence { content: Observed::Seen(content_of(class, magic())), ..blank() };
    assert_eq!(refused(&of(ContentClass::Zero)), [ReasonCode::EtcdDataFound]);
    assert_eq!(refused(&of(ContentClass::Uniform)), [ReasonCode::UnknownData]);
    let refusal = may_format(FormatPolicy::IfBlank, &of(ContentClass::Other), NOW).expect_err("refused");
    assert_eq!(codes(&refusal), [ReasonCode::UnknownData]);
    assert_eq!(refusal.reasons[0].detail.as_ref().expect("detail")["offset"], 4096);
    assert_eq!(refusal.reasons[0].detail.as_ref().expect("detail")["magic_only"][0]["kind"], "bolt-meta");
}

#[test]
fn all_that_libblkid_names_is_told() {
    let said = |names: &[&str]| {
        let evidence = FormatEvidence { libblkid: Observed::Seen(answer(0, 1, names)), ..blank() };
        may_format(FormatPolicy::IfBlank, &evidence, NOW).expect_err("refused").reasons[0].message.clone()
    };
    let one = said(&["ext4"]);
    assert!(one.starts_with("libblkid sees ext4 on the device") && !one.contains("and also"), "{one}");
    let three = said(&["ext4", "xfs", "gpt"]);
    assert!(three.contains(", and also xfs, gpt ("), "{three}");
}

#[test]
fn unknown_data_is_named_with_its_offset() {
    let evidence = FormatEvidence { content: Observed::Seen(content_of(ContentClass::Other, vec![])), ..blank() };
    let refusal = may_format(FormatPolicy::IfBlank, &evidence, NOW).expect_err("refused");
    assert_eq!(codes(&refusal), [ReasonCode::UnknownData]);
    assert!(refusal.reasons[0].message.contains("at byte 4096"), "{}", refusal.reasons[0].message);
}

#[test]
fn a_failed_read_is_unreadable_and_a_scan_that_stopped_short_is_short() {
    let of = |content| FormatEvidence { content: Observed::Seen(content), ..blank() };
    let whole = content_of(ContentClass::Zero, vec![]);
    let failed = Content { complete: false, read_errors: 3, bytes_read: 100, ..whole.clone() };
    assert_eq!(refused(&of(failed)), [ReasonCode::Unreadable]);
    let short = Content { complete: false, bytes_read: 100, ..whole.clone() };
    assert_eq!(refused(&of(short)), [ReasonCode::ShortRead]);
    let shrunk = Content { size_after: SIZE - 512, ..whole };
    assert_eq!(refused(&of(shrunk)), [ReasonCode::SizeMismatch]);
}

#[test]
fn each_source_objects_under_its_own_code() {
    let with = |change: &dyn Fn(&mut FormatEvidence)| {
        let mut evidence = blank();
        change(&mut evidence);
        refused(&evidence)
    };
    let device = |change: &dyn Fn(&mut DeviceFacts)| {
        let mut facts = good_device();
        change(&mut facts);
        refused(&FormatEvidence { device: Observed::Seen(facts), ..blank() })
    };
    use ReasonCode::*;
    assert_eq!(device(&|facts| facts.size = 0), [SizeMismatch, SizeMismatch], "no size, and not that of the scan");
    assert_eq!(device(&|facts| facts.read_only = true), [NoPermission]);
    assert_eq!(device(&|facts| facts.whole_disk = false), [Partitioned]);
    assert_eq!(device(&|facts| facts.uses = vec![DeviceUse::Swap]), [InUse]);
    assert_eq!(device(&|facts| facts.uses = vec![DeviceUse::Exclusive]), [InUse]);
    assert_eq!(device(&|facts| facts.uses = vec![DeviceUse::Mount { at: "/x".into() }]), [InUse]);
    assert_eq!(device(&|facts| facts.uses = vec![DeviceUse::Holder { name: "x".into() }]), [InUse]);
    assert_eq!(device(&|facts| facts.uses = vec![DeviceUse::LoopOnTop { name: "x".into() }]), [InUse]);
    assert_eq!(device(&|facts| facts.uses = vec![DeviceUse::Partition { name: "x".into() }]), [Partitioned]);
    assert_eq!(with(&|evidence| evidence.claim = Observed::Seen(Claim::Refused)), [InUse]);
    for (index, code) in [(1, IdentityMismatch), (2, SizeMismatch)] {
        assert_eq!(with(&|evidence| evidence.identity = identities()[index].1.clone()), [code]);
    }
    for (index, code) in [(1, SignatureFound), (3, SignatureFound), (5, SignatureFound), (7, SignatureFound)] {
        assert_eq!(with(&|evidence| evidence.libblkid = answers()[index].1.clone()), [code]);
    }
    for index in [10, 11] {
        assert_eq!(with(&|evidence| evidence.libblkid = answers()[index].1.clone()), [Unreadable]);
    }
    assert_eq!(with(&|evidence| evidence.origin = origins()[5].1.clone()), [MadeFromSnapshot]);
    for (index, code) in [(2, IntentUnfinished), (3, HistorySaysUsed), (4, LedgerBroken)] {
        assert_eq!(with(&|evidence| evidence.history = histories()[index].1.clone()), [code]);
    }
    assert_eq!(with(&|evidence| evidence.second_reading = second_readings()[1].1.clone()), [ChangedUnderneath]);
    for (index, code) in [Unreadable, ShortRead, TimedOut, ReaderFailed, Unreadable].into_iter().enumerate() {
        assert_eq!(with(&|evidence| evidence.content = unknowns()[index].1.clone()), [code]);
        assert_eq!(with(&|evidence| evidence.history = unknowns()[index].1.clone()), [code]);
    }
}

#[test]
fn all_objections_are_reported_and_the_most_telling_comes_first() {
    let evidence = FormatEvidence {
        device: Observed::Seen(DeviceFacts { uses: vec![DeviceUse::Swap], ..good_device() }),
        claim: Observed::not_run("the device is in use"),
        identity: Observed::Seen(Identity::Matches),
        libblkid: Observed::Unknown(Why::TimedOut { detail: "10 s".into() }),
        content: Observed::Seen(Content {
            read_errors: 1,
            complete: false,
            ..content_of(
                ContentClass::Other,
                vec![
                    finding(FindingKind::BoltMeta, Validated::Checksum, None),
                    finding(FindingKind::ExtBackupSuperblock, Validated::Checksum, None),
                    finding(FindingKind::ExtBackupSuperblock, Validated::Checksum, None),
                ],
            )
        }),
        origin: origins()[5].1.clone(),
        history: histories()[3].1.clone(),
        second_reading: Observed::not_run(""),
    };
    let refusal = may_format(FormatPolicy::Never, &evidence, NOW).expect_err("refused");
    use ReasonCode::*;
    assert_eq!(
        codes(&refusal),
        [
            InUse,
            BackupSuperblockFound,
            EtcdDataFound,
            MadeFromSnapshot,
            HistorySaysUsed,
            TimedOut,
            Unreadable,
            // The claim and the second reading, at which nobody looked, are no news beside all this.
            PolicyForbidsFormat
        ]
    );
    let message = &refusal.reasons[1].message;
    assert!(message.contains("a backup superblock of an ext2/3/4 filesystem stands at byte 4096"), "{message}");
    assert!(message.contains("1 more like it"), "{message}");
}

#[test]
fn what_nobody_looked_at_refuses_also_when_it_is_all_there_is_to_say() {
    let evidence = FormatEvidence { second_reading: Observed::not_run("not yet"), ..blank() };
    let refusal = may_format(FormatPolicy::IfBlank, &evidence, NOW).expect_err("refused");
    assert_eq!(codes(&refusal), [ReasonCode::Unreadable]);
}

#[test]
fn a_policy_of_never_says_what_is_there() {
    let said = |content, names: &[&str]| {
        let libblkid = if names.is_empty() { answer(1, 1, &[]) } else { answer(0, 1, names) };
        let evidence = FormatEvidence { content, libblkid: Observed::Seen(libblkid), ..blank() };
        let refusal = may_format(FormatPolicy::Never, &evidence, NOW).expect_err("refused");
        let policy = refusal.reasons.into_iter().find(|reason| reason.code == ReasonCode::PolicyForbidsFormat);
        policy.expect("policy").message
    };
    let seen = |content| Observed::Seen(content);
    let zero = content_of(ContentClass::Zero, vec![]);
    assert!(said(seen(zero.clone()), &[]).contains("all of its 1073741824 bytes (1 GiB) are zero"));
    assert!(said(seen(zero.clone()), &["ext4"]).contains("it holds ext4"));
    assert!(said(seen(Content { complete: false, ..zero.clone() }), &[]).contains("not read to its end"));
    assert!(said(seen(Content { read_errors: 1, ..zero }), &[]).contains("cannot be read"));
    assert!(said(seen(content_of(ContentClass::Uniform, vec![])), &[]).contains("noise"));
    assert!(said(seen(content_of(ContentClass::Other, vec![])), &[]).contains("unknown kind"));
    assert!(said(Observed::not_run("no time"), &[]).contains("not known (no time)"));
    let bolt = vec![finding(FindingKind::BoltMeta, Validated::Structure, None)];
    assert!(said(seen(content_of(ContentClass::Other, bolt)), &[]).contains("bolt file"));
}

#[test]
fn inspect_asks_the_bytes_alone() {
    let reading = |libblkid, content| DeviceReading { libblkid, content, filesystem: None };
    let nothing = || Observed::Seen(answer(1, 1, &[]));
    let zero = reading(nothing(), Observed::Seen(content_of(ContentClass::Zero, vec![])));
    assert_eq!(objections_to_reading(&zero, None), []);
    assert_eq!(super::blank(&zero), Blank::Proven);

    let in_use = DeviceFacts { uses: vec![DeviceUse::Swap], ..good_device() };
    assert_eq!(objections_to_reading(&zero, Some(&in_use))[0].code, ReasonCode::InUse);

    let noise = reading(nothing(), Observed::Seen(content_of(ContentClass::Uniform, vec![])));
    assert_eq!(objections_to_reading(&noise, None)[0].code, ReasonCode::UnknownData);
    assert_eq!(super::blank(&noise), Blank::Unknown);
    let failed = reading(nothing(), Observed::Unknown(Why::Unreadable { detail: "EIO".into() }));
    assert_eq!(super::blank(&failed), Blank::Unknown);
    let error = reading(Observed::Seen(answer(-5, -5, &[])), zero.content.clone());
    assert_eq!(super::blank(&error), Blank::Unknown);
    let data = reading(nothing(), Observed::Seen(content_of(ContentClass::Other, vec![])));
    assert_eq!(super::blank(&data), Blank::No);
    let named = reading(Observed::Seen(answer(0, 1, &["ext4"])), failed.content.clone());
    assert_eq!(super::blank(&named), Blank::No);

    let filesystem = crate::model::FilesystemFacts {
        fstype: "ext4".into(),
        uuid: Some(FOREIGN),
        label: None,
        made_at: None,
        last_mounted: None,
        unknown_features: vec![],
        clean: Some(true),
    };
    let stands = DeviceReading { filesystem: Some(filesystem), ..zero };
    assert_eq!(super::blank(&stands), Blank::No);
    assert!(objections_to_reading(&stands, None)[0].message.contains(&FOREIGN.to_string()));

    let empty = reading(
        nothing(),
        Observed::Seen(Content {
            size_before: 0,
            size_after: 0,
            bytes_read: 0,
            ..content_of(ContentClass::Zero, vec![])
        }),
    );
    assert_eq!(objections_to_reading(&empty, None)[0].code, ReasonCode::SizeMismatch);
    assert_eq!(super::blank(&empty), Blank::Unknown);
}

/// Two bytes of noise at the place of `s_magic`: one in 65,536 fresh encrypted volumes has them, and libblkid believes in it.
#[test]
fn an_ext_by_its_magic_alone_amid_noise_is_chance_and_nothing_more_than_that_is() {
    let magic = |validated| Finding { offset: 1024, ..finding(FindingKind::ExtSuperblock, validated, None) };
    let named = |kind: &str, offset| {
        let mut named = answer(0, 1, &[kind]);
        named.named[0].offset = offset;
        named
    };
    let noise = |findings| Observed::Seen(content_of(ContentClass::Uniform, findings));
    let vouched = Observed::Seen(Origin::Provider { encrypted: true, from_snapshot: None, young: true });
    let chance = |kind| FormatEvidence {
        libblkid: Observed::Seen(named(kind, Some(1080))),
        content: noise(vec![magic(Validated::Magic)]),
        origin: vouched.clone(),
        ..blank()
    };
    for kind in ["ext2", "ext3", "ext4", "ext4dev", "jbd"] {
        assert!(may_format(FormatPolicy::IfBlank, &chance(kind), NOW).is_ok(), "{kind}");
    }
    let mut bad_checksum = named("ext4", Some(1080));
    bad_checksum.named[0].bad_checksum = true;
    let mut two = named("ext4", Some(1080));
    two.named.extend(answer(0, 1, &["xfs"]).named);
    let of = |answer| FormatEvidence { libblkid: Observed::Seen(answer), ..chance("ext4") };
    let with = |content| FormatEvidence { content, ..chance("ext4") };
    let mut unread = content_of(ContentClass::Uniform, vec![magic(Validated::Magic)]);
    unread.complete = false;
    for more in [
        of(named("xfs", Some(1080))),
        of(named("ext4", Some(0))),
        of(named("ext4", None)),
        of(bad_checksum),
        of(two),
        of(BlkidAnswer { safeprobe: -2, ..named("ext4", Some(1080)) }),
        of(BlkidAnswer { probe_loop: -5, ..named("ext4", Some(1080)) }),
        with(noise(vec![])),
        with(noise(vec![magic(Validated::Magic), magic(Validated::Structure)])),
        with(noise(vec![finding(FindingKind::ExtSuperblock, Validated::Magic, None)])),
        with(Observed::Seen(content_of(ContentClass::Other, vec![magic(Validated::Magic)]))),
        with(Observed::Seen(unread)),
        FormatEvidence { origin: Observed::Seen(Origin::NoProvider), ..chance("ext4") },
    ] {
        assert!(!refused(&more).is_empty());
    }
}
