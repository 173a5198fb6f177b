//! A fresh encrypted volume reads as noise. When may it be formatted? Real noise on real loop devices, read by the real
//! probe, decided by the real rule; what EC2 says of the volume is put beside it, word by word.

use crate::common::disk::{MIB, noise, read_at, sparse, write_at};
use crate::common::{ErrFs, Loop, Tmp, fixture};
use std::fs::File;
use std::path::Path;
use volhold::decide::format::may_format;
use volhold::model::{
    BootMillis, Claim, Content, ContentClass, DevNum, DeviceFacts, DeviceReading, FindingKind, FormatEvidence,
    FormatHistory, FormatPolicy, FsUuid, Identity, Observed, Origin, Reason, ReasonCode, Validated, VolumeId, Why,
};
use volhold::probe::{ProbeRequest, examine, second_reading};

/// What EC2 may say of a volume, and whether a volume that reads as noise may be formatted then.
const SAYS: [(&str, Option<Says>, bool); 7] = [
    ("new, encrypted, not from a snapshot", Some(Says { encrypted: true, snapshot: false, young: true }), true),
    ("not encrypted", Some(Says { encrypted: false, snapshot: false, young: true }), false),
    ("from a snapshot", Some(Says { encrypted: true, snapshot: true, young: true }), false),
    ("older than a day", Some(Says { encrypted: true, snapshot: false, young: false }), false),
    ("old, from a snapshot", Some(Says { encrypted: true, snapshot: true, young: false }), false),
    ("old and not encrypted", Some(Says { encrypted: false, snapshot: false, young: false }), false),
    ("nothing: a device of this machine", None, false),
];

#[derive(Clone, Copy)]
struct Says {
    encrypted: bool,
    snapshot: bool,
    young: bool,
}

fn origin(says: Option<Says>) -> Origin {
    match says {
        None => Origin::NoProvider,
        Some(Says { encrypted, snapshot, young }) => {
            Origin::Provider { encrypted, from_snapshot: snapshot.then(|| "snap-0a1b2c3d".to_owned()), young }
        }
    }
}

/// All that was read of one device, and all else as good as it can be.
struct Looked {
    reading: DeviceReading,
    evidence: FormatEvidence,
}

/// Reads the device twice.
#[track_caller]
fn look(path: &Path) -> Looked {
    let file = File::open(path).expect("the device opens");
    let reading = examine(&file, &ProbeRequest { full_scan: true, direct: true }, &mut |_| {});
    let content = reading.content.seen().expect("the content");
    let second = second_reading(&file, &content.telling_digest, content.size_before);
    let device = DeviceFacts {
        requested: "vol-0123456789abcdef0".to_owned(),
        node: path.display().to_string(),
        devnum: DevNum { major: 259, minor: 3 },
        size: content.size_before,
        logical_block: 512,
        read_only: false,
        whole_disk: true,
        serial: Some("vol0123456789abcdef0".to_owned()),
        diskseq: None,
        backing_file: None,
        volume_id: VolumeId("vol-0123456789abcdef0".to_owned()),
        uses: Vec::new(),
    };
    let evidence = FormatEvidence {
        device: Observed::Seen(device),
        claim: Observed::Seen(Claim::Ours),
        identity: Observed::Seen(Identity::Matches),
        libblkid: reading.libblkid.clone(),
        content: reading.content.clone(),
        origin: Observed::Seen(origin(SAYS[0].1)),
        history: Observed::Seen(FormatHistory::None),
        second_reading: second,
    };
    Looked { reading, evidence }
}

impl Looked {
    #[track_caller]
    fn content(&self) -> &Content {
        self.reading.content.seen().expect("the content")
    }

    fn has(&self, kind: &FindingKind, validated: Validated) -> bool {
        self.content().findings.iter().any(|finding| finding.kind == *kind && finding.validated == validated)
    }

    /// What is said against formatting; nothing: it may be formatted.
    fn objections(&self, change: impl FnOnce(&mut FormatEvidence)) -> Vec<Reason> {
        let mut evidence = self.evidence.clone();
        change(&mut evidence);
        match may_format(FormatPolicy::IfBlank, &evidence, BootMillis(1)) {
            Ok(_permit) => Vec::new(),
            Err(refusal) => refusal.reasons,
        }
    }

    /// Every word of EC2's.
    #[track_caller]
    fn may_be_formatted_if_ec2_vouches(&self, what: &str) {
        assert_eq!((self.content().class, self.content().complete), (ContentClass::Uniform, true), "{what}");
        for (words, says, may) in SAYS {
            let objections = self.objections(|evidence| evidence.origin = Observed::Seen(origin(says)));
            assert_eq!(objections.is_empty(), may, "{what}; EC2 says: {words}: {objections:#?}");
        }
        for why in [Why::TimedOut { detail: String::new() }, Why::NotRun { detail: String::new() }] {
            let objections = self.objections(|evidence| evidence.origin = Observed::Unknown(why));
            assert!(!objections.is_empty(), "{what}: formatted on a word that nobody said");
        }
        let used = FormatHistory::Used { says: "data on Monday".to_owned() };
        assert!(!self.objections(|evidence| evidence.history = Observed::Seen(used)).is_empty(), "{what}");
    }

    #[track_caller]
    fn is_refused_whatever_ec2_says(&self, what: &str, code: ReasonCode) {
        for (words, says, _) in SAYS {
            let objections = self.objections(|evidence| evidence.origin = Observed::Seen(origin(says)));
            let said = objections.iter().any(|reason| reason.code == code);
            assert!(said, "{what}; EC2 says: {words}: {objections:#?}");
        }
    }
}

fn noisy(tmp: &Tmp, size: u64, seed: u64) -> std::path::PathBuf {
    let path = sparse(&tmp.join("volume"), size);
    noise(&path, 0, size, seed);
    path
}

#[test]
fn a_gigabyte_of_noise_may_be_formatted_on_the_word_of_ec2_and_on_no_less() {
    crate::needs_root!();
    let tmp = Tmp::new();
    // Made while it is read: a gigabyte of disk is more than a machine that runs tests may have left.
    let image = sparse(&tmp.join("volume"), 1024 * MIB);
    let disk = ErrFs::new(&image, &tmp.join("fuse"), &["noise:20261201:0".to_owned()]).disk();
    look(disk.node.node()).may_be_formatted_if_ec2_vouches("1 GiB of noise");
}

#[test]
fn noise_of_any_seed_between_blocks_that_are_zero_is_a_fresh_volume_too() {
    let tmp = Tmp::new();
    for seed in 1..=12 {
        let path = noisy(&tmp, 8 * MIB + 512, seed);
        // What was never written of an encrypted volume may read as zero as well.
        write_at(&path, seed * 65_536, &[0; 3 * 4096]);
        look(&path).may_be_formatted_if_ec2_vouches(&format!("noise of seed {seed}"));
    }
}

#[test]
fn magic_that_noise_hits_by_chance_is_listed_and_keeps_no_fresh_volume_from_its_filesystem() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let path = noisy(&tmp, 64 * MIB, 3);

    // `s_magic` of ext2/3/4 where a primary superblock, and where a backup of 4 KiB blocks would have it.
    write_at(&path, 1024 + 56, &[0x53, 0xEF]);
    write_at(&path, 32_768 * 1024 + 1024 + 56, &[0x53, 0xEF]);
    // What libblkid takes it for hangs on the feature bits: noise has all kinds. Never one with a checksum that would be off.
    let ro_compat = read_at(&path, 1024 + 100 + 1, 1)[0] & !0x04;
    write_at(&path, 1024 + 100 + 1, &[ro_compat]);
    let device = Loop::new(&path);
    let looked = look(device.node());
    assert!(looked.has(&FindingKind::ExtSuperblock, Validated::Magic), "{:?}", looked.content().findings);
    let answer = looked.reading.libblkid.seen().expect("libblkid answers");
    // 2.38 believes in it; 2.41 and 2.42 ask more of a superblock, and see nothing. The answer is the same.
    assert!(!answer.says_nothing() || !answer.version.starts_with("2.38."), "libblkid does not believe in it");
    looked.may_be_formatted_if_ec2_vouches("a chance 0xEF53");
}

#[test]
fn one_valid_backup_superblock_amid_noise_is_refused_whatever_ec2_says() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let path = noisy(&tmp, 256 * MIB, 4);
    let copy = read_at(&fixture::image("ok-ext4", &tmp.join("ok-ext4")), 32_768 * 4096, 1024);
    // Where mke2fs puts it, and where no layout would.
    for at in [32_768 * 4096, 200 * MIB + 7 * 4096] {
        write_at(&path, at, &copy);
        let device = Loop::new(&path);
        let looked = look(device.node());
        let found = looked.content().findings.iter().find(|finding| finding.kind == FindingKind::ExtBackupSuperblock);
        assert!(found.is_some_and(|finding| finding.validated > Validated::Magic), "{:?}", looked.content().findings);
        looked.is_refused_whatever_ec2_says("a backup superblock", ReasonCode::BackupSuperblockFound);
        // An mkfs of ours that was cut does not explain one that has another UUID.
        let intent =
            FormatHistory::UnfinishedIntent { fs_uuid: FsUuid(uuid::Uuid::from_u128(1)), same_attachment: true };
        assert!(!looked.objections(|evidence| evidence.history = Observed::Seen(intent)).is_empty());
        drop(device);
        noise(&path, at / MIB * MIB, MIB, 5);
    }
}

#[test]
fn one_block_that_is_not_noise_is_refused_whatever_ec2_says() {
    let tmp = Tmp::new();
    let path = noisy(&tmp, 8 * MIB, 6);
    let text = "member=a cluster=main ".repeat(200);
    write_at(&path, 5 * MIB, &text.as_bytes()[..4096]);
    look(&path).is_refused_whatever_ec2_says("a block of text", ReasonCode::UnknownData);
}
