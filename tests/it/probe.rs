//! The probe room against real images and real bad disks: never blank what is not, never silent about what could not be
//! read, and the common damage called by its name.

use crate::common::disk::{MIB, mkfs_ext4, noise, read_at, sparse, write_at, zero};
use crate::common::{ErrFs, Loop, Tmp, fixture, output, run};
use crate::needs_root;
use serde::Deserialize;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use volhold::cli::manual::blind_spots::BLIND_SPOTS;
use volhold::decide::format::objections_to_reading;
use volhold::model::{
    Blank, Content, ContentClass, DeviceReading, Finding, FindingKind, Observed, ReasonCode, SecondReading, Validated,
    Why,
};
use volhold::probe::{ProbeAnswer, ProbeRequest, assemble, blank, examine, second_reading};

const WHOLE: ProbeRequest = ProbeRequest { full_scan: true, direct: true };
const EXT4_UUID: &str = "11111111-2222-4333-8444-5555555555aa";
const XFS_UUID: &str = "22222222-3333-4444-8555-66666666bbbb";

fn look(path: &Path) -> DeviceReading {
    look_and_listen(path).0
}

#[track_caller]
fn look_and_listen(path: &Path) -> (DeviceReading, Vec<ProbeAnswer>) {
    let file = File::open(path).expect("the device opens");
    let mut answers = Vec::new();
    let reading = examine(&file, &WHOLE, &mut |answer| answers.push(answer));
    (reading, answers)
}

#[track_caller]
fn content(reading: &DeviceReading) -> &Content {
    reading.content.seen().unwrap_or_else(|| panic!("no content: {reading:?}"))
}

#[track_caller]
fn found(reading: &DeviceReading, kind: FindingKind) -> &Finding {
    let findings = &content(reading).findings;
    findings.iter().find(|finding| finding.kind == kind).unwrap_or_else(|| panic!("no {kind:?} in {findings:?}"))
}

/// What the fixtures' maker knows about each image; `truth.json` beside them.
#[derive(Debug, Deserialize)]
struct Truth {
    file: String,
    must_refuse_mkfs: bool,
    fstype: Option<String>,
    uuid: Option<String>,
}

fn unpack(packed: &Path, into: &Path) {
    run("zstd", &["-q", "-d", "-f", "--sparse", &packed.to_string_lossy(), "-o", &into.to_string_lossy()]);
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/blk")
}

/// Any write moves these.
fn stamp(path: &Path) -> (i64, i64, u64) {
    let meta = std::fs::metadata(path).expect("the image is there");
    (meta.mtime_nsec(), meta.ctime_nsec(), meta.len())
}

fn image(tmp: &Tmp, name: &str) -> PathBuf {
    fixture::image(name, &tmp.join(name))
}

#[test]
fn every_image_is_judged_by_what_its_maker_knows_of_it() {
    let text = std::fs::read_to_string(fixtures().join("truth.json")).expect("truth.json");
    let truths: Vec<Truth> = serde_json::from_str(&text).expect("truth.json");
    assert!(truths.len() > 50);
    let tmp = Tmp::new();
    for truth in &truths {
        let image = tmp.join("image");
        unpack(&fixtures().join(&truth.file), &image);
        let before = stamp(&image);
        let reading = look(&image);
        let file = &truth.file;
        if truth.must_refuse_mkfs {
            assert_ne!(blank(&reading), Blank::Proven, "{file}: {reading:?}");
        } else {
            assert_eq!(blank(&reading), Blank::Proven, "{file}: {reading:?}");
            assert_eq!(content(&reading).class, ContentClass::Zero, "{file}");
        }
        // Of these alone the primary superblock stands; images of other makers' filesystems are not parsed here.
        let stands = ["ok-ext4", "ok-xfs", "am02", "am03"].iter().any(|name| file.starts_with(name));
        let uuid = reading.filesystem.as_ref().map(|fs| fs.uuid.map(|uuid| uuid.to_string()));
        match (&truth.fstype, stands) {
            (Some(fstype), true) => {
                assert_eq!(uuid, Some(truth.uuid.clone()), "{file}");
                assert_eq!(reading.filesystem.as_ref().map(|fs| &fs.fstype), Some(fstype), "{file}");
            }
            // Two filesystems claim it: the maker names none, the ext4 is whole.
            (None, true) => assert_eq!(uuid, Some(Some(EXT4_UUID.to_owned())), "{file}"),
            // Killed in the middle of mkfs.xfs, which writes its superblock early.
            (_, false) if file.starts_with("bs22") => {}
            (_, false) => assert_eq!(reading.filesystem, None, "{file}"),
        }
        assert_eq!(before, stamp(&image), "{file} was written to");
    }
}

#[test]
fn every_image_is_judged_alike_through_a_block_device() {
    needs_root!();
    let text = std::fs::read_to_string(fixtures().join("truth.json")).expect("truth.json");
    let truths: Vec<Truth> = serde_json::from_str(&text).expect("truth.json");
    let tmp = Tmp::new();
    let mut compared = 0;
    // A loop device has whole sectors only: one image is too small for it.
    for truth in truths.iter().filter(|truth| !truth.file.starts_with("t0")) {
        let image = tmp.join("image");
        unpack(&fixtures().join(&truth.file), &image);
        let as_file = look(&image);
        let disk = Loop::read_only(&image);
        let (as_device, answers) = look_and_listen(disk.node());
        // The lengths of the pass may differ, as a device has no holes.
        assert_eq!(blank(&as_file), blank(&as_device), "{}: {as_device:?}", truth.file);
        assert_eq!(content(&as_file), content(&as_device), "{}", truth.file);
        assert_eq!(as_file.filesystem, as_device.filesystem, "{}", truth.file);
        for answer in &answers {
            if let ProbeAnswer::Progress { direct, .. } = answer {
                assert!(direct, "{}: read through the page cache", truth.file);
            }
        }
        compared += 1;
    }
    assert!(compared > 48, "{compared}");
}

/// Words of which a refusal must have one, by the name of the image; `None`: nothing on it has a name, and the refusal shows
/// the bytes instead.
const SAYS: &[(&str, Option<&[&str]>)] = &[
    ("ok-ext4", Some(&["ext4"])),
    ("ok-xfs", Some(&["xfs"])),
    ("ok-btrfs", Some(&["btrfs"])),
    ("bs01", Some(&["backup superblock of an ext2/3/4"])),
    ("bs04", Some(&["backup superblock of an ext2/3/4"])),
    ("bs05", Some(&["the journal of an ext3/4"])),
    ("bs07", Some(&["backup superblock of an ext2/3/4"])),
    ("bs08", Some(&["backup superblock of an ext2/3/4"])),
    ("bs09", Some(&["an allocation-group header of an XFS"])),
    ("bs13", Some(&["superblock of btrfs"])),
    ("bs14", Some(&["an ext2/3/4 superblock stands at byte 1049600"])),
    ("bs15", Some(&["ext4 of"])),
    ("ok-gpt", Some(&["a GPT partition table"])),
    ("bs16", Some(&["an ext2/3/4 superblock stands at byte 1049600"])),
    ("ok-lvm2", Some(&["LVM2_member"])),
    ("bs18", Some(&["metadata of the volume group vgetcd", "header of a metadata area"])),
    ("bs19", Some(&["a directory of etcd", "a meta page of a bolt file", "the journal of an ext3/4"])),
    ("bs22", Some(&["xfs"])),
    ("bs23", Some(&["a meta page of a bolt file"])),
    ("bs24", Some(&["a meta page of a bolt file"])),
    ("bs25", Some(&["the head of an etcd WAL"])),
    ("bs26", Some(&["a meta page of a bolt file"])),
    ("bs28", None),
    ("bs29", None),
    ("bs30", None),
    ("bs33", None),
    ("ok-luks2", Some(&["crypto_LUKS"])),
    ("bs34", Some(&["LUKS2 secondary header"])),
    ("bs35", Some(&["key slots of a LUKS2 header"])),
    ("bs36", None),
    ("ok-bcache", Some(&["bcache"])),
    ("bs37", Some(&["ext4 of"])),
    ("bs39", Some(&["exfat"])),
    ("bs40", Some(&["jfs"])),
    ("bs41", Some(&["f2fs"])),
    ("bs42", Some(&["f2fs"])),
    ("bs43", Some(&["nilfs2"])),
    ("bs44", Some(&["the head of an etcd WAL", "tar"])),
    ("bs45", None),
    ("bc01", Some(&["its checksum is wrong"])),
    ("bc02", Some(&["its checksum is wrong"])),
    ("bc03", Some(&["btrfs"])),
    ("bc04", Some(&["label of a physical volume, its checksum is wrong"])),
    ("am02", Some(&["btrfs"])),
    ("am03", Some(&["ext4"])),
    ("t03", None),
];

#[test]
fn every_refusal_of_an_image_names_what_is_there_or_shows_it() {
    let text = std::fs::read_to_string(fixtures().join("truth.json")).expect("truth.json");
    let truths: Vec<Truth> = serde_json::from_str(&text).expect("truth.json");
    let tmp = Tmp::new();
    let mut wrong = Vec::new();
    // Those of too few bytes to be a volume have nothing that could be named.
    let is_volume = |truth: &&Truth| !["t00", "t01", "t02"].iter().any(|name| truth.file.starts_with(name));
    for truth in truths.iter().filter(|truth| truth.must_refuse_mkfs).filter(is_volume) {
        let image = tmp.join("image");
        unpack(&fixtures().join(&truth.file), &image);
        let reasons = objections_to_reading(&look(&image), None);
        let file = &truth.file;
        let (_, says) =
            SAYS.iter().find(|(name, _)| file.starts_with(name)).unwrap_or_else(|| panic!("{file}: no words"));
        let messages: Vec<&str> = reasons.iter().map(|reason| reason.message.as_str()).collect();
        let right = match says {
            Some(words) => words.iter().all(|word| messages.iter().any(|message| message.contains(word))),
            None => {
                reasons.first().is_some_and(|reason| reason.code == ReasonCode::UnknownData)
                    && messages.iter().any(|message| message.contains(" bits of entropy in a byte, "))
            }
        };
        if !right {
            wrong.push(format!("{file}: {says:?}, but {messages:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The table in volhold-runbook(7), held against the tools of this machine. What changed with libblkid 2.39 is left out with it.
#[test]
fn the_tools_say_what_the_manual_says_of_them() {
    needs_root!();
    let tmp = Tmp::new();
    let old = output("blkid", &["--version"]);
    let old = String::from_utf8_lossy(&old.stdout).contains("2.38");
    let mut wrong = Vec::new();
    for spot in BLIND_SPOTS {
        let image = image(&tmp, spot.image);
        let disk = Loop::read_only(&image);
        let node = disk.name();
        let text = |program: &str, args: &[&str]| {
            let out = output(program, &[args, &[node.as_str()]].concat());
            (out.status.code(), String::from_utf8_lossy(&out.stdout).trim().to_owned())
        };
        let blkid = match text("blkid", &["-p"]).0 {
            Some(0) => "found",
            Some(2) => "nothing",
            Some(8) => "ambivalent",
            other => panic!("blkid -p {}: {other:?}", spot.image),
        };
        let wipefs = if text("wipefs", &["-n"]).1.is_empty() { "nothing" } else { "found" };
        let lsblk = if text("lsblk", &["-f", "-n", "-o", "FSTYPE"]).1.is_empty() { "nothing" } else { "found" };
        let file = text("file", &["-s", "-b"]).1;
        let same = (blkid == spot.blkid || spot.blkid == "ambivalent" && !old)
            && wipefs == spot.wipefs
            && lsblk == spot.lsblk
            && file.starts_with(spot.file);
        let reasons = objections_to_reading(&look(disk.node()), None);
        if !same || !reasons.iter().any(|reason| reason.message.contains(spot.volhold)) {
            wrong.push(format!("{spot:?}, but: {blkid}, {wipefs}, {lsblk}, {file}, {reasons:#?}"));
        }
        drop(disk);
        std::fs::remove_file(&image).expect("the image goes away");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Images of util-linux' own tests: licensed so that they stay outside of this repository, read where they are present.
#[test]
fn no_image_of_other_peoples_tests_is_blank() {
    let named = std::env::var_os("VOLHOLD_PEER_CORPUS").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus/peer");
    let peer = named.clone().unwrap_or(beside).join("util-linux");
    if !peer.exists() {
        assert!(named.is_none(), "VOLHOLD_PEER_CORPUS is set, but there is no {}", peer.display());
        println!("SKIP: no {}", peer.display());
        return;
    }
    let tmp = Tmp::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(&peer).expect("the peer images") {
        let packed = entry.expect("an entry").path();
        if packed.extension().is_none_or(|extension| extension != "zst") {
            continue;
        }
        let image = tmp.join("image");
        unpack(&packed, &image);
        let reading = look(&image);
        let name = packed.display();
        assert_ne!(blank(&reading), Blank::Proven, "{name}: {reading:?}");
        let named = reading.libblkid.seen().is_some_and(|answer| !answer.says_nothing());
        let other = reading
            .content
            .seen()
            .is_some_and(|content| content.class == ContentClass::Other || !content.findings.is_empty());
        assert!(named || other, "{name}: {reading:?}");
        let found = [ReasonCode::SignatureFound, ReasonCode::BackupSuperblockFound];
        let reasons = objections_to_reading(&reading, None);
        assert!(reasons.iter().any(|reason| found.contains(&reason.code)), "{name} has no name: {reasons:#?}");
        seen += 1;
    }
    assert!(seen > 80, "{seen}");
}

#[test]
fn a_lost_ext4_primary_is_named_by_its_backup() {
    let tmp = Tmp::new();
    let first_mib = image(&tmp, "ok-ext4");
    zero(&first_mib, 0, MIB);
    for (path, offset) in [
        (image(&tmp, "bs01-ext4-first4k-zero"), 32768 * 4096),
        (first_mib, 32768 * 4096),
        (image(&tmp, "bs04-ext4-1kblk-sb-zero"), 8193 * 1024),
        (image(&tmp, "bs07-ext4-first32m-zero"), 32768 * 4096),
    ] {
        let reading = look(&path);
        let backup = found(&reading, FindingKind::ExtBackupSuperblock);
        assert_eq!(backup.offset, offset, "{}", path.display());
        assert_eq!(backup.uuid.as_deref(), Some(EXT4_UUID));
        assert_eq!(backup.validated, Validated::Checksum);
        assert_eq!(reading.filesystem, None);
        assert_eq!(blank(&reading), Blank::No);
    }
}

#[test]
fn an_ext2_without_checksums_is_named_by_its_backup_as_well() {
    let tmp = Tmp::new();
    let path = sparse(&tmp.join("disk"), 300 * MIB);
    run("mkfs.ext2", &["-q", "-F", "-b", "4096", "-U", EXT4_UUID, &path.to_string_lossy()]);
    let whole = look(&path);
    assert_eq!(whole.filesystem.as_ref().map(|fs| fs.fstype.as_str()), Some("ext2"), "{whole:?}");
    zero(&path, 0, 4096);
    let reading = look(&path);
    let backup = found(&reading, FindingKind::ExtBackupSuperblock);
    assert_eq!((backup.offset, backup.validated), (32768 * 4096, Validated::Structure), "{backup:?}");
    assert_eq!(backup.uuid.as_deref(), Some(EXT4_UUID));
}

#[test]
fn a_lost_xfs_primary_is_named_by_its_allocation_groups() {
    let tmp = Tmp::new();
    let sector = image(&tmp, "bs09-xfs-sb-zero");
    let reading = look(&sector);
    let header = found(&reading, FindingKind::XfsAgHeader);
    assert_eq!((header.offset, header.validated), (512, Validated::Checksum), "the AGF of group 0");

    // The whole first group overwritten: what is left begins a quarter into the device.
    let group = image(&tmp, "ok-xfs");
    zero(&group, 0, 80 * MIB);
    let reading = look(&group);
    let header = found(&reading, FindingKind::XfsAgHeader);
    assert_eq!((header.offset, header.validated), (80 * MIB, Validated::Checksum));
    assert_eq!(header.uuid.as_deref(), Some(XFS_UUID));
    assert_eq!(blank(&reading), Blank::No);
}

#[test]
fn an_xfs_that_was_grown_is_still_named_by_its_second_group() {
    needs_root!();
    let tmp = Tmp::new();
    // 20 GiB made, 33 GiB now: a quarter of the present size says nothing about where the groups are.
    let path = sparse(&tmp.join("disk"), 20 << 30);
    run("mkfs.xfs", &["-q", "-m", &format!("uuid={XFS_UUID}"), &path.to_string_lossy()]);
    File::options().write(true).open(&path).and_then(|file| file.set_len(33 << 30)).expect("grown");
    zero(&path, 0, 64 * MIB);
    let reading = look(&path);
    let header = found(&reading, FindingKind::XfsAgHeader);
    assert_eq!(header.offset, 5 << 30, "{header:?}");
    assert_eq!(header.uuid.as_deref(), Some(XFS_UUID));

    // An unusual size, with the headers of group 0 behind the lost primary: they say how long a group is.
    let path = sparse(&tmp.join("odd"), 7 << 30);
    run("mkfs.xfs", &["-q", "-m", &format!("uuid={XFS_UUID}"), &path.to_string_lossy()]);
    File::options().write(true).open(&path).and_then(|file| file.set_len(9 << 30)).expect("grown");
    zero(&path, 0, 512);
    let reading = look(&path);
    let copies: Vec<&Finding> = content(&reading).findings.iter().filter(|f| f.offset == (7 << 30) / 4).collect();
    assert_eq!(copies.len(), 1, "{:?}", content(&reading).findings);
    assert_eq!(copies[0].uuid.as_deref(), Some(XFS_UUID));
}

#[test]
fn a_gpt_of_which_only_the_backup_is_left_is_named() {
    let tmp = Tmp::new();
    let path = sparse(&tmp.join("disk"), 64 * MIB);
    run("sgdisk", &["--new=1:2048:0", &path.to_string_lossy()]);
    zero(&path, 0, MIB);
    let reading = look(&path);
    let header = found(&reading, FindingKind::GptBackupHeader);
    assert_eq!((header.offset, header.validated), (64 * MIB - 512, Validated::Checksum));
    let guid = run("sgdisk", &["--print", &image(&tmp, "ok-gpt").to_string_lossy()]);
    let whole = look(&tmp.join("ok-gpt"));
    let uuid = found(&whole, FindingKind::GptHeader).uuid.clone().expect("a disk id");
    assert!(guid.to_lowercase().contains(&uuid), "{uuid} in {guid}");
    let named = &reading.libblkid.seen().expect("libblkid").named;
    assert!(named.iter().any(|name| name.kind == "gpt"), "FORCE_GPT finds it too: {named:?}");
}

#[test]
fn bolt_pages_and_wal_heads_without_a_filesystem_are_named() {
    let tmp = Tmp::new();
    for (name, kind, offset) in [
        ("bs23-bbolt-raw-at-8m", FindingKind::BoltMeta, 8 * MIB),
        ("bs24-bbolt-raw-16k-pages", FindingKind::BoltMeta, 5 * MIB + 16 * 1024),
        ("bs26-bbolt-meta1-only", FindingKind::BoltMeta, 20 * MIB + 4096),
        ("bs25-etcd-wal-raw", FindingKind::EtcdWal, 33 * MIB),
    ] {
        let reading = look(&image(&tmp, name));
        let finding = found(&reading, kind);
        assert_eq!((finding.offset, finding.validated), (offset, Validated::Checksum), "{name}");
        assert_eq!(blank(&reading), Blank::No, "{name}");
    }
}

#[test]
fn what_lies_behind_the_first_other_block_gets_its_name_too() {
    let tmp = Tmp::new();
    let path = image(&tmp, "bs26-bbolt-meta1-only");
    write_at(&path, 5 * MIB, b"a line of text that has no name of its own");
    let reading = look(&path);
    assert_eq!(content(&reading).first_other, Some(5 * MIB));
    assert_eq!(found(&reading, FindingKind::BoltMeta).offset, 20 * MIB + 4096);

    // But not endlessly far: the verdict has been reached.
    let path = sparse(&tmp.join("large"), 1 << 30);
    write_at(&path, 5 * MIB, b"text");
    write_at(&path, 900 * MIB, &read_at(&tmp.join("bs26-bbolt-meta1-only"), 20 * MIB, 16384));
    let reading = look(&path);
    assert!(!content(&reading).complete && content(&reading).bytes_read < 100 * MIB, "{:?}", content(&reading));
    assert_eq!(content(&reading).findings, []);
}

#[test]
fn one_byte_anywhere_is_seen_and_placed() {
    let tmp = Tmp::new();
    for (name, byte) in [
        ("bs28-one-byte-middle", 32_506_633),
        ("bs29-one-byte-last", 67_108_863),
        ("bs30-last-512-of-unaligned", 67_109_375),
    ] {
        let reading = look(&image(&tmp, name));
        let content = content(&reading);
        assert_eq!(content.class, ContentClass::Other, "{name}");
        assert_eq!(content.first_other, Some(byte / 4096 * 4096), "{name}");
        assert_eq!(
            reading.libblkid.seen().map(|answer| answer.says_nothing()),
            Some(true),
            "{name}: libblkid is blind"
        );
    }
    // Every place of a small device, as sector sizes and tails vary.
    for size in [MIB, MIB + 512, MIB + 1536, 3 * MIB + 3584] {
        let path = sparse(&tmp.join("small"), size);
        for byte in [0, 511, 4096, size / 2, size - 4097, size - 513, size - 1] {
            write_at(&path, byte, &[1]);
            let reading = look(&path);
            assert_eq!(content(&reading).first_other, Some(byte / 4096 * 4096), "byte {byte} of {size}");
            assert_eq!(blank(&reading), Blank::No);
            write_at(&path, byte, &[0]);
        }
        assert_eq!(blank(&look(&path)), Blank::Proven, "{size} bytes of zero");
    }
}

#[test]
fn seeded_noise_is_uniform_and_read_to_its_end() {
    let tmp = Tmp::new();
    let size = 64 * MIB + 512;
    let path = sparse(&tmp.join("noise"), size);
    noise(&path, 0, size, 7);
    let reading = look(&path);
    let seen = content(&reading);
    assert_eq!((seen.class, seen.complete, seen.bytes_read), (ContentClass::Uniform, true, size));
    assert_eq!(seen.first_other, Some(0));
    assert!(seen.findings.iter().all(|finding| finding.validated == Validated::Magic), "{:?}", seen.findings);
    assert_eq!(blank(&reading), Blank::Unknown);

    // Magic of ext2/3/4 where a primary would be: listed, and still uniform.
    write_at(&path, 1080, &[0x53, 0xEF]);
    let reading = look(&path);
    assert_eq!(found(&reading, FindingKind::ExtSuperblock).validated, Validated::Magic);
    assert_eq!((content(&reading).class, content(&reading).complete), (ContentClass::Uniform, true));

    // One valid copy of a superblock among the noise: it validates, whatever surrounds it.
    let copy = read_at(&image(&tmp, "ok-ext4"), 32768 * 4096, 1024);
    write_at(&path, 40 * MIB, &copy);
    let reading = look(&path);
    assert!(found(&reading, FindingKind::ExtBackupSuperblock).validated > Validated::Magic);
    assert_eq!(blank(&reading), Blank::No);
}

#[test]
fn an_ext4_superblock_tells_what_the_tools_tell() {
    let tmp = Tmp::new();
    let path = sparse(&tmp.join("disk"), 128 * MIB);
    mkfs_ext4(&path, None);
    let name = path.to_string_lossy().into_owned();
    run("tune2fs", &["-L", "etcd-events", "-U", EXT4_UUID, "-M", "/mnt/master-vol", &name]);
    let facts = look(&path).filesystem.expect("a filesystem");
    assert_eq!(facts.fstype, "ext4");
    assert_eq!(facts.uuid.map(|uuid| uuid.to_string()).as_deref(), Some(EXT4_UUID));
    assert_eq!(facts.label.as_deref(), Some("etcd-events"));
    assert_eq!(facts.last_mounted.as_deref(), Some("/mnt/master-vol"));
    assert!(facts.clean == Some(true) && facts.unknown_features.is_empty(), "{facts:?}");
    let made = run("date", &["-u", "-d", &dumpe2fs(&name, "Filesystem created:"), "+%s"]);
    assert_eq!(facts.made_at.map(|time| time.unix().to_string()).as_deref(), Some(made.trim()));

    run("debugfs", &["-w", "-R", "feature needs_recovery", &name]);
    assert_eq!(look(&path).filesystem.expect("a filesystem").clean, Some(false), "it needs recovery");
    run("debugfs", &["-w", "-R", "feature -needs_recovery", &name]);
    run("debugfs", &["-w", "-R", "set_super_value state 2", &name]);
    assert_eq!(look(&path).filesystem.expect("a filesystem").clean, Some(false), "it holds errors");
}

fn dumpe2fs(device: &str, field: &str) -> String {
    let text = run("dumpe2fs", &["-h", device]);
    let line = text.lines().find(|line| line.starts_with(field)).unwrap_or_else(|| panic!("no {field} in {text}"));
    line.trim_start_matches(field).trim().to_owned()
}

#[test]
fn a_feature_that_no_tool_knows_is_listed_by_its_bit() {
    let tmp = Tmp::new();
    for (word, at, bit, expected) in [
        ("incompat", 96, 0x4000_0000_u32, "incompat 0x40000000"),
        ("ro_compat", 100, 0x2000_0000, "ro_compat 0x20000000"),
        ("compat", 92, 0x8000_0000, "compat 0x80000000"),
    ] {
        let path = sparse(&tmp.join(word), 64 * MIB);
        // Without checksums, so that a changed bit is all that is changed.
        run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "^metadata_csum", &path.to_string_lossy()]);
        assert!(look(&path).filesystem.expect("a filesystem").unknown_features.is_empty());
        let now = read_at(&path, 1024 + at, 4);
        let now = u32::from_le_bytes([now[0], now[1], now[2], now[3]]);
        write_at(&path, 1024 + at, &(now | bit).to_le_bytes());
        let facts = look(&path).filesystem.expect("still a filesystem");
        assert_eq!(facts.unknown_features, vec![expected.to_owned()]);
        let fsck = output("e2fsck", &["-n", "-f", &path.to_string_lossy()]);
        assert!(!fsck.status.success(), "e2fsck does not know it either: {fsck:?}");
    }
}

#[test]
fn a_superblock_with_a_wrong_checksum_is_no_standing_filesystem() {
    let tmp = Tmp::new();
    for (name, kind) in
        [("bc01-ext4-sb-bitflip", FindingKind::ExtSuperblock), ("bc02-xfs-sb-bitflip", FindingKind::XfsSuperblock)]
    {
        let reading = look(&image(&tmp, name));
        assert_eq!(reading.filesystem, None, "{name}");
        assert_eq!(found(&reading, kind).validated, Validated::Structure, "{name}");
    }
    let lvm = look(&image(&tmp, "bc04-lvm-label-crc"));
    let named = &lvm.libblkid.seen().expect("libblkid").named;
    assert!(named.iter().any(|name| name.bad_checksum), "BADCSUM is asked for: {named:?}");
}

/// A blank disk and an ext4, with reads that fail somewhere.
fn bad_disk(tmp: &Tmp, backing: &Path, rule: &str) -> crate::common::errfs::BadDisk {
    let at = tmp.join(&format!("fuse-{}", rule.replace(':', "-")));
    ErrFs::new(backing, &at, &[rule.to_owned()]).disk()
}

#[track_caller]
fn unreadable(reading: &DeviceReading) -> String {
    match &reading.content {
        Observed::Unknown(Why::Unreadable { detail }) => detail.clone(),
        other => panic!("not unreadable: {other:?}"),
    }
}

#[test]
fn a_blank_disk_with_a_bad_sector_is_not_blank_wherever_the_sector_is() {
    needs_root!();
    let tmp = Tmp::new();
    let backing = sparse(&tmp.join("backing"), 64 * MIB);
    for (rule, first_bad) in [
        (format!("eio:0:{}", 64 * MIB), 0),
        (format!("eio:{}:4096", 32 * MIB + 8192), 32 * MIB + 8192),
        (format!("eio:{}:65536", 64 * MIB - 65536), 64 * MIB - 65536),
        (String::from("eio:0:4096"), 0),
    ] {
        let disk = bad_disk(&tmp, &backing, &rule);
        let reading = look(disk.node.node());
        assert_eq!(blank(&reading), Blank::Unknown, "{rule}: {reading:?}");
        let detail = unreadable(&reading);
        assert!(detail.contains(&format!("at offset {first_bad} failed")), "{rule}: {detail}");
    }
}

#[test]
fn libblkid_alone_would_call_a_disk_blank_whose_middle_cannot_be_read() {
    needs_root!();
    let tmp = Tmp::new();
    let backing = sparse(&tmp.join("backing"), 64 * MIB);
    let disk = bad_disk(&tmp, &backing, &format!("eio:{}:4096", 32 * MIB));
    let reading = look(disk.node.node());
    assert_eq!(reading.libblkid.seen().map(|answer| answer.says_nothing()), Some(true));
    assert_eq!(blank(&reading), Blank::Unknown);
}

#[test]
fn an_ext4_on_a_bad_disk_is_told_with_both_its_name_and_the_bad_read() {
    needs_root!();
    let tmp = Tmp::new();
    let backing = image(&tmp, "ok-ext4");
    for rule in ["eio:0:0x10000000", "eio:0:4096", "eio:0x10000:4096", "eio:0xfff0000:0x10000"] {
        let disk = bad_disk(&tmp, &backing, rule);
        let reading = look(disk.node.node());
        assert_ne!(blank(&reading), Blank::Proven, "{rule}");
        match &reading.content {
            Observed::Seen(content) => {
                assert!(content.read_errors > 0 && !content.complete, "{rule}: {content:?}");
                assert!(content.findings.iter().any(|f| f.uuid.as_deref() == Some(EXT4_UUID)), "{rule}: {content:?}");
            }
            Observed::Unknown(_) => assert_eq!(rule, "eio:0:0x10000000", "only where nothing at all can be read"),
        }
        let answer = reading.libblkid.seen().expect("libblkid was asked");
        assert!(answer.safeprobe < 0, "{rule}: a negative code stays one: {answer:?}");
    }
}

#[test]
fn a_loop_device_whose_file_was_cut_after_attaching_is_unreadable() {
    needs_root!();
    let tmp = Tmp::new();
    let path = sparse(&tmp.join("disk"), 64 * MIB);
    let disk = Loop::new(&path);
    File::options().write(true).open(&path).and_then(|file| file.set_len(512)).expect("cut");
    run("blockdev", &["--flushbufs", &disk.name()]);
    let reading = look(disk.node());
    assert_eq!(blank(&reading), Blank::Unknown);
    unreadable(&reading);
}

#[test]
fn a_device_of_size_zero_proves_nothing() {
    needs_root!();
    let tmp = Tmp::new();
    for name in ["t00-zero-bytes", "t01-511-bytes"] {
        let disk = Loop::new(&image(&tmp, name));
        let reading = look(disk.node());
        assert_eq!(blank(&reading), Blank::Unknown, "{name}");
        assert!(matches!(&reading.content, Observed::Unknown(Why::Short { .. })), "{name}: {reading:?}");
    }
}

#[test]
fn what_is_no_device_is_unreadable() {
    let tmp = Tmp::new();
    for path in [tmp.path(), Path::new("/dev/null")] {
        let reading = look(path);
        assert_eq!(blank(&reading), Blank::Unknown);
        unreadable(&reading);
        assert!(matches!(reading.libblkid, Observed::Unknown(_)), "{}: {reading:?}", path.display());
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_not_blank() {
    let tmp = Tmp::new();
    let path = sparse(&tmp.join("disk"), 64 * MIB);
    let file = File::open(&path).expect("the image opens");
    let reading = examine(&file, &WHOLE, &mut |answer| {
        if let ProbeAnswer::Telling { .. } = answer {
            File::options().write(true).open(&path).and_then(|file| file.set_len(32 * MIB)).expect("cut");
        }
    });
    assert_eq!(blank(&reading), Blank::Unknown, "{reading:?}");
    assert!(reading.content.seen().is_none_or(|content| !content.complete), "{reading:?}");
}

#[test]
fn an_image_that_cannot_be_read_past_the_cache_is_read_through_it_and_says_so() {
    needs_root!();
    let tmp = Tmp::new();
    let at = tmp.join("ramfs");
    std::fs::create_dir(&at).expect("a mountpoint");
    // ramfs knows no O_DIRECT; the folder's removal unmounts it.
    run("mount", &["-t", "ramfs", "none", &at.to_string_lossy()]);
    let path = sparse(&at.join("disk"), 8 * MIB);
    let (reading, answers) = look_and_listen(&path);
    assert_eq!(blank(&reading), Blank::Proven, "{reading:?}");
    let direct: Vec<bool> = answers
        .iter()
        .filter_map(|answer| match answer {
            ProbeAnswer::Progress { direct, .. } => Some(*direct),
            ProbeAnswer::Libblkid(_) | ProbeAnswer::Telling { .. } | ProbeAnswer::Content(_) => None,
        })
        .collect();
    assert!(!direct.is_empty() && !direct.contains(&true), "{direct:?}");
}

#[test]
fn a_descriptor_that_reads_past_the_cache_itself_is_examined_as_well() {
    use std::os::unix::fs::OpenOptionsExt;
    let tmp = Tmp::new();
    let path = image(&tmp, "ok-ext4");
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path).expect("opens with O_DIRECT");
    let reading = examine(&file, &WHOLE, &mut |_| {});
    assert_eq!(reading.libblkid.seen().map(|answer| answer.safeprobe), Some(0), "{reading:?}");
    assert_eq!(reading, look(&path));
}

#[test]
fn the_second_reading_sees_a_raw_writer_that_no_claim_stops() {
    needs_root!();
    let tmp = Tmp::new();
    let path = sparse(&tmp.join("disk"), 64 * MIB);
    let disk = Loop::new(&path);
    let file = File::open(disk.node()).expect("the device opens");
    let first = examine(&file, &WHOLE, &mut |_| {});
    let (digest, size) = (content(&first).telling_digest.clone(), content(&first).size_before);
    assert_eq!(second_reading(&file, &digest, size), Observed::Seen(SecondReading::Same));

    let changed = |reading: Observed<SecondReading>| matches!(reading, Observed::Seen(SecondReading::Changed { .. }));
    assert!(changed(second_reading(&file, &digest, size + 512)), "another size");
    // Through the page cache and not yet on the disk, as `dd of=` leaves it.
    let device = File::options().write(true).open(disk.node()).expect("the device opens for writing");
    std::os::unix::fs::FileExt::write_at(&device, &[1], 64 * MIB - 1).expect("written");
    assert!(changed(second_reading(&file, &digest, size)), "a byte at the end");
    std::os::unix::fs::FileExt::write_at(&device, &[0], 64 * MIB - 1).expect("written");
    assert_eq!(second_reading(&file, &digest, size), Observed::Seen(SecondReading::Same), "as it was");

    let bad = bad_disk(&tmp, &path, "eio:0:4096");
    let bad = File::open(bad.node.node()).expect("the bad disk opens");
    assert!(matches!(second_reading(&bad, &digest, size), Observed::Unknown(Why::Unreadable { .. })));
}

#[test]
fn a_lost_reader_leaves_what_it_has_said() {
    let tmp = Tmp::new();
    let lost = Why::TimedOut { detail: String::from("no answer for 12 s") };
    let (whole, answers) = look_and_listen(&image(&tmp, "bs01-ext4-first4k-zero"));
    assert_eq!(assemble(answers.clone().into_iter(), lost.clone()), whole, "nothing was missing");

    let until_telling: Vec<ProbeAnswer> =
        answers.iter().filter(|answer| !matches!(answer, ProbeAnswer::Content(_))).cloned().collect();
    let reading = assemble(until_telling.into_iter(), lost.clone());
    assert_eq!(found(&reading, FindingKind::ExtBackupSuperblock).uuid.as_deref(), Some(EXT4_UUID));
    assert!(content(&reading).read_errors > 0 && !content(&reading).complete);
    assert_eq!(reading.libblkid, whole.libblkid);

    let (_, answers) = look_and_listen(&sparse(&tmp.join("blank"), 64 * MIB));
    let until_telling = answers.into_iter().filter(|answer| !matches!(answer, ProbeAnswer::Content(_)));
    let reading = assemble(until_telling, lost.clone());
    assert_eq!(reading.content, Observed::Unknown(lost.clone()), "nothing found is not blank");
    assert_eq!(assemble(std::iter::empty(), lost.clone()).libblkid, Observed::Unknown(lost));
}

#[test]
fn answers_come_in_order_and_survive_their_trip_as_json() {
    let tmp = Tmp::new();
    let path = sparse(&tmp.join("disk"), 200 * MIB);
    noise(&path, 0, 200 * MIB, 3);
    let (_, answers) = look_and_listen(&path);
    let order: Vec<u8> = answers
        .iter()
        .filter_map(|answer| match answer {
            ProbeAnswer::Libblkid(_) => Some(0),
            ProbeAnswer::Telling { .. } => Some(1),
            ProbeAnswer::Progress { .. } => None,
            ProbeAnswer::Content(_) => Some(2),
        })
        .collect();
    assert_eq!(order, [0, 1, 2]);
    let done: Vec<u64> = answers
        .iter()
        .filter_map(|answer| match answer {
            ProbeAnswer::Progress { done, total, .. } => {
                assert_eq!(*total, 200 * MIB);
                Some(*done)
            }
            ProbeAnswer::Libblkid(_) | ProbeAnswer::Telling { .. } | ProbeAnswer::Content(_) => None,
        })
        .collect();
    assert!(done.len() >= 3 && done.is_sorted() && done.last() == Some(&(200 * MIB)), "{done:?}");
    assert!(done.windows(2).all(|pair| pair[1] - pair[0] <= 80 * MIB), "{done:?}");
    for answer in answers {
        let line = serde_json::to_string(&answer).expect("json");
        assert_eq!(serde_json::from_str::<ProbeAnswer>(&line).expect("json"), answer);
    }
}

#[test]
fn without_the_pass_nothing_is_ever_proven() {
    let tmp = Tmp::new();
    let file = File::open(sparse(&tmp.join("disk"), 64 * MIB)).expect("the image opens");
    let reading = examine(&file, &ProbeRequest { full_scan: false, direct: true }, &mut |_| {});
    assert!(!content(&reading).complete);
    assert_eq!(blank(&reading), Blank::Unknown);
}
