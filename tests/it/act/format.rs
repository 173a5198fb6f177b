//! mkfs needs a permit for this very device.

use crate::common::{Loop, Tmp, disk, run};
use crate::device::{claimed, open};
use crate::needs_root;
use std::time::Duration;
use volhold::act::mkfs::{self, MkfsError};
use volhold::decide::format::{FormatPermit, PERMIT_LASTS_MS, may_format};
use volhold::device::Device;
use volhold::model::{
    BlkidAnswer, BootMillis, Claim, Content, ContentClass, DeviceFacts, FormatEvidence, FormatHistory, FormatPolicy,
    FsUuid, Fstype, Identity, Observed, Origin, ReasonCode, SecondReading,
};

const NOW: BootMillis = BootMillis(1_000_000);
const LIMIT: Duration = Duration::from_secs(120);
const SIZE: u64 = 64 * disk::MIB;
/// mkfs.xfs makes nothing below 300 MiB.
const XFS_SIZE: u64 = 320 * disk::MIB;

fn uuid() -> FsUuid {
    FsUuid("8f1d4c5e-0b7a-4a53-9d8e-2f6b1c3d4e5f".parse().unwrap())
}

/// A permit from the only place that makes them, on evidence that a blank device would give.
#[track_caller]
fn permit_for(facts: DeviceFacts) -> FormatPermit {
    let size = facts.size;
    let evidence = FormatEvidence {
        device: Observed::Seen(facts),
        claim: Observed::Seen(Claim::Ours),
        identity: Observed::Seen(Identity::Matches),
        libblkid: Observed::Seen(BlkidAnswer { safeprobe: 1, probe_loop: 1, named: vec![], version: "2.38.1".into() }),
        content: Observed::Seen(Content {
            class: ContentClass::Zero,
            complete: true,
            bytes_read: size,
            read_errors: 0,
            first_other: None,
            findings: vec![],
            sample: None,
            telling_digest: "0".repeat(64),
            size_before: size,
            size_after: size,
        }),
        origin: Observed::Seen(Origin::NoProvider),
        history: Observed::Seen(FormatHistory::None),
        second_reading: Observed::Seen(SecondReading::Same),
    };
    may_format(FormatPolicy::IfBlank, &evidence, NOW).expect("nothing speaks against a blank device")
}

fn make(permit: FormatPermit, device: &mut Device) -> Result<mkfs::Made, MkfsError> {
    mkfs::make(permit, device, Fstype::Ext4, uuid(), NOW, LIMIT)
}

#[test]
fn a_permitted_device_gets_the_filesystem_with_the_recorded_uuid_and_stays_claimed() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, mut opened) = claimed(&tmp, SIZE);
    let permit = permit_for(opened.facts().unwrap());
    let made = make(permit, &mut opened).unwrap();
    assert_eq!(made.uuid, uuid());
    assert!(opened.claimed());
    let dump = run("dumpe2fs", &["-h", &device.name()]);
    assert!(dump.contains(&uuid().to_string()), "{dump}");
    assert!(dump.contains("Filesystem volume name:   <none>"), "{dump}");
    let features = dump.lines().find(|line| line.starts_with("Filesystem features:")).unwrap();
    let mut features: Vec<_> = features.split_whitespace().skip(2).collect();
    features.sort_unstable();
    let mut wanted = [
        "has_journal",
        "ext_attr",
        "resize_inode",
        "dir_index",
        "filetype",
        "extent",
        "64bit",
        "flex_bg",
        "sparse_super",
        "large_file",
        "huge_file",
        "dir_nlink",
        "extra_isize",
        "metadata_csum",
    ];
    wanted.sort_unstable();
    assert_eq!(features, wanted, "exactly what an e2fsck of 2016 knows, whatever mke2fs.conf says");
    drop(opened);
    run("e2fsck", &["-fn", &device.name()]);
}

/// What `xfs_db` says of fields of the primary superblock, in order.
fn xfs_fields(device: &Loop, fields: &[&str]) -> Vec<String> {
    let print = format!("print {}", fields.join(" "));
    let told = run("xfs_db", &["-r", "-c", "sb 0", "-c", &print, &device.name()]);
    told.lines().map(|line| line.split_once(" = ").map_or(line, |(_, value)| value).to_owned()).collect()
}

#[test]
fn a_permitted_device_gets_an_xfs_that_every_kernel_from_5_10_on_mounts() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, mut opened) = claimed(&tmp, XFS_SIZE);
    let permit = permit_for(opened.facts().unwrap());
    let made = mkfs::make(permit, &mut opened, Fstype::Xfs, uuid(), NOW, LIMIT).unwrap();
    assert_eq!((made.uuid, made.output.trim()), (uuid(), ""));
    assert!(opened.claimed());
    let fields = ["uuid", "fname", "inprogress", "blocksize", "inodesize"];
    let wanted = [uuid().to_string(), "\"\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\\000\"".to_owned()];
    let found = xfs_fields(&device, &fields);
    assert_eq!(&found[..2], &wanted);
    assert_eq!(&found[2..], &["0", "4096", "512"]);
    // `XFS_SB_FEAT_*_ALL` of kernel 5.10, less what it calls experimental (inobtcount 0x8, bigtime 0x8): finobt, rmapbt,
    // reflink; ftype, sparse inodes, meta_uuid; no compat and no log bits.
    let known_to_5_10 = [0, 0x7, 0x7, 0];
    // What is wanted of it: finobt; ftype and sparse inodes.
    let wanted = [0, 0x1, 0x3, 0];
    let words = ["features_compat", "features_ro_compat", "features_incompat", "features_log_incompat"];
    for ((word, found), (known, wanted)) in
        words.iter().zip(xfs_fields(&device, &words)).zip(known_to_5_10.into_iter().zip(wanted))
    {
        let found = u32::from_str_radix(found.trim_start_matches("0x"), 16).unwrap();
        assert_eq!(found & !known, 0, "{word} {found:#x}");
        assert_eq!(found, wanted, "{word} {found:#x}");
    }
    let version = run("xfs_db", &["-r", "-c", "version", &device.name()]);
    assert!(version.contains("V5,") && version.contains("CRC"), "{version}");
    drop(opened);
    run("xfs_repair", &["-n", &device.name()]);
}

#[test]
fn mkfs_xfs_refuses_by_itself_where_a_filesystem_stands() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), XFS_SIZE);
    disk::mkfs_ext4(&image, None);
    let device = Loop::new(&image);
    let mut opened = open(device.node());
    opened.claim().unwrap();
    let before = device.sha256();
    // Evidence that is wrong on purpose: the last net below the permit.
    let permit = permit_for(opened.facts().unwrap());
    let error = mkfs::make(permit, &mut opened, Fstype::Xfs, uuid(), NOW, LIMIT).unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::MkfsFailed);
    assert!(error.reason().message.contains("ext4"), "{}", error.reason().message);
    assert!(opened.claimed());
    assert_eq!(device.sha256(), before);
}

#[test]
fn the_size_is_the_whole_device_also_when_noise_stood_there_before() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), SIZE);
    disk::noise(&image, 0, SIZE, 7);
    let device = Loop::new(&image);
    let mut opened = open(device.node());
    opened.claim().unwrap();
    let permit = permit_for(opened.facts().unwrap());
    make(permit, &mut opened).unwrap();
    drop(opened);
    let check = run("e2fsck", &["-fn", &device.name()]);
    assert!(check.contains("/16384 blocks"), "{check}");
}

#[test]
fn a_permit_for_another_device_formats_nothing() {
    needs_root!();
    let tmp = Tmp::new();
    let other = Loop::new(&disk::sparse(&tmp.join("other"), SIZE));
    let (device, mut opened) = claimed(&tmp, SIZE);
    let before = device.sha256();
    let permit = permit_for(open(other.node()).facts().unwrap());
    let error = make(permit, &mut opened).unwrap_err();
    assert!(matches!(error, MkfsError::PermitForAnother { .. }), "{error}");
    assert_eq!(error.reason().code, ReasonCode::IdentityMismatch);
    assert_eq!((device.sha256(), other.sha256()), (before.clone(), before));
    assert!(opened.claimed());
}

#[test]
fn a_permit_for_an_earlier_attachment_or_another_size_formats_nothing() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, mut opened) = claimed(&tmp, SIZE);
    let before = device.sha256();
    let facts = opened.facts().unwrap();
    let earlier = DeviceFacts { diskseq: facts.diskseq.map(|number| number - 1), ..facts.clone() };
    let smaller = DeviceFacts { size: facts.size - 512, ..facts };
    for wrong in [earlier, smaller] {
        let error = make(permit_for(wrong), &mut opened).unwrap_err();
        assert!(matches!(error, MkfsError::PermitForAnother { .. }), "{error}");
    }
    assert_eq!(device.sha256(), before);
}

#[test]
fn an_old_permit_formats_nothing() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, mut opened) = claimed(&tmp, SIZE);
    let before = device.sha256();
    let permit = permit_for(opened.facts().unwrap());
    let later = BootMillis(NOW.0 + PERMIT_LASTS_MS);
    let error = mkfs::make(permit, &mut opened, Fstype::Ext4, uuid(), later, LIMIT).unwrap_err();
    assert!(matches!(error, MkfsError::PermitExpired { .. }), "{error}");
    assert_eq!(device.sha256(), before);
}

#[test]
fn without_the_claim_a_permit_formats_nothing() {
    needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), SIZE));
    let mut opened = open(device.node());
    let before = device.sha256();
    let permit = permit_for(opened.facts().unwrap());
    let error = make(permit, &mut opened).unwrap_err();
    assert!(matches!(error, MkfsError::NotClaimed { .. }), "{error}");
    assert_eq!(device.sha256(), before);
}

#[test]
fn mkfs_refuses_by_itself_when_somebody_took_the_device_in_between() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, mut opened) = claimed(&tmp, SIZE);
    let before = device.sha256();
    let permit = permit_for(opened.facts().unwrap());
    // A copy of our own claim (systemd's store has one) that was not let go: mkfs must run into it, not past it.
    let copy = opened.claim_fd().unwrap().try_clone_to_owned().unwrap();
    let error = make(permit, &mut opened).unwrap_err();
    assert_eq!(device.sha256(), before, "{error}");
    drop(copy);
    opened.reclaim().unwrap();
}

#[test]
fn a_device_that_fails_while_it_is_written_is_mkfs_failed_and_claimed_again() {
    needs_root!();
    let tmp = Tmp::new();
    let device = Loop::read_only(&disk::sparse(&tmp.join("disk"), SIZE));
    let mut opened = open(device.node());
    opened.claim().unwrap();
    let before = device.sha256();
    let permit = permit_for(DeviceFacts { read_only: false, ..opened.facts().unwrap() });
    let error = make(permit, &mut opened).unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::MkfsFailed);
    assert!(error.reason().message.contains(&device.name()), "{}", error.reason().message);
    assert!(opened.claimed());
    assert_eq!(device.sha256(), before);
}
