//! What is found of a filesystem, a volume manager or an etcd when all that other tools look for is gone: real ones, cut down
//! to one trace each.

use crate::common::disk::{MIB, read_at, sparse, write_at, zero};
use crate::common::{Loop, Tmp, fixture, run};
use crate::needs_root;
use std::fs::File;
use std::path::{Path, PathBuf};
use volhold::model::{Content, ContentClass, Finding, FindingKind, Observed, Validated};
use volhold::probe::{ProbeRequest, examine};

const WHOLE: ProbeRequest = ProbeRequest { full_scan: true, direct: true };

fn look(path: &Path) -> Content {
    let file = File::open(path).expect("the device opens");
    match examine(&file, &WHOLE, &mut |_| {}).content {
        Observed::Seen(content) => content,
        Observed::Unknown(why) => panic!("{}: {why:?}", path.display()),
    }
}

/// The findings of one kind at one place.
#[track_caller]
fn at(content: &Content, kind: FindingKind, offset: u64) -> Finding {
    let found = content.findings.iter().find(|finding| finding.kind == kind && finding.offset == offset);
    found.unwrap_or_else(|| panic!("no {kind:?} at {offset} in {:#?}", content.findings)).clone()
}

fn named(name: &str) -> FindingKind {
    FindingKind::Named(name.to_owned())
}

fn detail(finding: &Finding) -> &str {
    finding.detail.as_deref().unwrap_or_default()
}

fn image(tmp: &Tmp, name: &str) -> PathBuf {
    fixture::image(name, &tmp.join(name))
}

/// A disk of zeroes with `length` bytes of `image` at their place and nothing else: so no other trace can speak for them.
fn only(tmp: &Tmp, image: &Path, offset: u64, length: usize) -> PathBuf {
    let size = std::fs::metadata(image).expect("the image").len();
    let path = tmp.join("only");
    std::fs::remove_file(&path).ok();
    let path = sparse(&path, size);
    write_at(&path, offset, &read_at(image, offset, length));
    path
}

/// A disk of zeroes with `bytes` at `offset`.
fn blank_but(tmp: &Tmp, offset: u64, bytes: &[u8]) -> PathBuf {
    let path = tmp.join("disk");
    std::fs::remove_file(&path).ok();
    let path = sparse(&path, 64 * MIB);
    write_at(&path, offset, bytes);
    path
}

#[test]
fn an_ext4_is_known_by_its_journal_or_a_directory_alone() {
    let tmp = Tmp::new();
    let whole = image(&tmp, "ok-ext4");
    let journal = at(&look(&only(&tmp, &whole, 0x802_1000, 1024)), FindingKind::ExtJournal, 0x802_1000);
    assert!(journal.validated > Validated::Magic, "{journal:?}");
    assert!(detail(&journal).starts_with("superblock of a journal of 4096 blocks of 4096 bytes"), "{journal:?}");

    let root = at(&look(&only(&tmp, &whole, 0x102_5000, 4096)), FindingKind::EtcdDirectory, 0x102_5000);
    assert_eq!((root.validated, detail(&root)), (Validated::Structure, "a directory with lost+found, member"));

    // The same with other names is a directory like any other; with one length off it is none.
    let path = only(&tmp, &whole, 0x102_5000, 4096);
    let block = read_at(&path, 0x102_5000, 4096);
    let name = block.windows(6).position(|word| word == b"member").expect("the name") as u64;
    write_at(&path, 0x102_5000 + name, b"rebmem");
    at(&look(&path), FindingKind::ExtDirectory, 0x102_5000);
    write_at(&path, 0x102_5000 + 4, &[16]);
    let content = look(&path);
    assert_eq!((content.class, content.findings), (ContentClass::Other, vec![]));
}

#[test]
fn an_xfs_is_known_by_one_free_list_or_one_log_record() {
    let tmp = Tmp::new();
    let whole = image(&tmp, "ok-xfs");
    let list = at(&look(&only(&tmp, &whole, 0x500_0600, 512)), FindingKind::XfsAgHeader, 0x500_0600);
    assert_eq!((list.validated, detail(&list)), (Validated::Checksum, "AGFL of group 1"));
    assert_eq!(list.uuid.as_deref(), Some("22222222-3333-4444-8555-66666666bbbb"));

    let record = at(&look(&only(&tmp, &whole, 0xa00_6000, 512)), FindingKind::XfsLog, 0xa00_6000);
    assert_eq!(record.validated, Validated::Structure, "{record:?}");
    assert_eq!(record.uuid.as_deref(), Some("22222222-3333-4444-8555-66666666bbbb"));
}

#[test]
fn a_btrfs_is_known_by_the_nodes_of_its_trees() {
    let tmp = Tmp::new();
    let path = image(&tmp, "ok-btrfs");
    for mirror in [64 << 10, 64 * MIB] {
        zero(&path, mirror, 4096);
    }
    let content = look(&path);
    let node = content.findings.iter().find(|finding| finding.kind == named("btrfs")).expect("a node");
    assert_eq!(node.validated, Validated::Checksum, "{node:?}");
    assert!(detail(node).starts_with("node of btrfs' tree "), "{node:?}");
    assert_eq!(node.uuid.as_deref(), Some("33333333-4444-4555-8666-77777777cccc"));

    // One bit of it, and there is nothing to know it by.
    let one = only(&tmp, &path, node.offset, 16384);
    assert_eq!(at(&look(&one), named("btrfs"), node.offset).validated, Validated::Checksum);
    let byte = read_at(&one, node.offset + 8000, 1);
    write_at(&one, node.offset + 8000, &[byte[0] ^ 1]);
    assert_eq!(look(&one).findings, []);
}

#[test]
fn a_physical_volume_is_known_by_label_area_or_text_each_alone() {
    let tmp = Tmp::new();
    let whole = image(&tmp, "ok-lvm2");
    let label = at(&look(&only(&tmp, &whole, 512, 512)), named("LVM2_member"), 512);
    assert_eq!((label.validated, detail(&label)), (Validated::Checksum, "label of a physical volume"));
    let area = at(&look(&only(&tmp, &whole, 4096, 512)), named("LVM2_member"), 4096);
    assert_eq!((area.validated, detail(&area)), (Validated::Checksum, "header of a metadata area"));
    let text = at(&look(&only(&tmp, &whole, 0x1200, 512)), named("LVM2_member"), 0x1200);
    assert_eq!((text.validated, detail(&text)), (Validated::Structure, "metadata of the volume group vgetcd"));

    // pvck finds a label in any of the first four sectors; here it is found by what it says of its own place.
    let label = read_at(&whole, 512, 512);
    let moved = look(&blank_but(&tmp, 1536, &label));
    assert_eq!(at(&moved, named("LVM2_member"), 1536).validated, Validated::Checksum);
}

#[test]
fn a_luks2_is_known_by_either_header_and_by_its_checksum() {
    let tmp = Tmp::new();
    let whole = image(&tmp, "ok-luks2");
    for (offset, says) in [(0, "LUKS2 primary header"), (0x4000, "LUKS2 secondary header")] {
        let path = only(&tmp, &whole, offset, 0x4000);
        let header = at(&look(&path), named("crypto_LUKS"), offset);
        assert_eq!((header.validated, detail(&header)), (Validated::Checksum, says));
        // A key slot that was changed behind the header's back.
        let byte = read_at(&path, offset + 0x1100, 1);
        write_at(&path, offset + 0x1100, &[byte[0] ^ 1]);
        assert_eq!(at(&look(&path), named("crypto_LUKS"), offset).validated, Validated::Structure);
    }
}

#[test]
fn partition_tables_are_known_at_either_end_and_at_either_size_of_sector() {
    needs_root!();
    let tmp = Tmp::new();
    let path = sparse(&tmp.join("disk"), 64 * MIB);
    // sgdisk asks the device for the size of its sectors.
    let node = run("losetup", &["--find", "--show", "--sector-size", "4096", &path.to_string_lossy()]);
    let made = std::process::Command::new("sgdisk").args(["-o", "-n", "1:0:0", node.trim()]).output();
    run("losetup", &["--detach", node.trim()]);
    assert!(made.expect("sgdisk runs").status.success());
    let content = look(&path);
    assert_eq!(at(&content, FindingKind::GptHeader, 4096).validated, Validated::Checksum);
    assert_eq!(at(&content, FindingKind::GptBackupHeader, 64 * MIB - 4096).validated, Validated::Checksum);
    let mbr = at(&content, named("dos"), 0);
    assert_eq!((mbr.validated, detail(&mbr)), (Validated::Structure, "a partition table with 1 entries"));

    zero(&path, 0, 63 * MIB);
    let content = look(&path);
    assert_eq!(at(&content, FindingKind::GptBackupHeader, 64 * MIB - 4096).validated, Validated::Checksum);
    drop(Loop::read_only(&path));
}

/// What stands in a file of a data dir of etcd, put on a disk without a filesystem.
#[test]
fn what_etcd_wrote_is_known_wherever_it_lies() {
    let tmp = Tmp::new();
    let root = tmp.join("v2");
    fixture::etcd_tree("v2.3.8-v2keys", &root);
    let snap = std::fs::read(first(&root, "snap")).expect("a snapshot");
    let found = at(&look(&blank_but(&tmp, 20 * MIB + 512, &snap)), FindingKind::EtcdSnap, 20 * MIB + 512);
    assert_eq!(found.validated, Validated::Checksum, "{found:?}");
    let mut cut = snap.clone();
    let last = cut.len() - 1;
    cut[last] ^= 1;
    let content = look(&blank_but(&tmp, 20 * MIB + 512, &cut));
    assert!(content.findings.iter().all(|finding| finding.kind != FindingKind::EtcdSnap), "{:?}", content.findings);

    let json = snap.windows(8).position(|word| word == b"{\"Root\":").expect("the store");
    let store = look(&blank_but(&tmp, 20 * MIB + 77, &snap[json..]));
    assert_eq!(at(&store, FindingKind::EtcdV2Store, 20 * MIB + 77).validated, Validated::Structure);

    let root = tmp.join("v3");
    fixture::etcd_tree("v3.5.30-basic", &root);
    let db = std::fs::read(first(&root, "db")).expect("a backend");
    let whole = look(&blank_but(&tmp, 8 * MIB, &db));
    assert_eq!(at(&whole, FindingKind::BoltMeta, 8 * MIB).validated, Validated::Checksum);
    // Page 2 holds revisions; its first key is 2b hex.
    let alone = look(&blank_but(&tmp, 30 * MIB + 1024, &db[8192..12288]));
    let leaf = at(&alone, FindingKind::BoltLeaf, 30 * MIB + 1024);
    assert_eq!(leaf.validated, Validated::Structure);
    assert_eq!(detail(&leaf), "leaf page of etcd's backend: 22 keys from revision 43 on");
    // A file that was copied to no boundary at all.
    let odd = look(&blank_but(&tmp, 8 * MIB + 777, &db[..8192]));
    assert_eq!(at(&odd, FindingKind::BoltMeta, 8 * MIB + 777).validated, Validated::Checksum);
}

#[test]
fn keys_of_kubernetes_are_sure_in_a_record_and_a_hint_in_a_text() {
    let tmp = Tmp::new();
    let key = b"/registry/pods/kube-system/coredns";
    let record = [&[0x0a, u8::try_from(key.len()).expect("short")][..], key, &[0x12, 0x01, b'x']].concat();
    let found = at(&look(&blank_but(&tmp, 20 * MIB, &record)), FindingKind::EtcdKeys, 20 * MIB + 2);
    assert_eq!(found.validated, Validated::Structure);
    assert_eq!(detail(&found), "key /registry/pods/kube-system/coredns in a record of etcd");
    // Over the end of a block.
    let found = at(&look(&blank_but(&tmp, 20 * MIB + 4091, &record)), FindingKind::EtcdKeys, 20 * MIB + 4093);
    assert_eq!(found.validated, Validated::Structure);

    let text = b"see the keys below /registry/ in etcd";
    let found = at(&look(&blank_but(&tmp, 20 * MIB, text)), FindingKind::EtcdKeys, 20 * MIB + 19);
    assert_eq!(found.validated, Validated::Magic);
}

/// The first file below `root` whose name ends so.
#[track_caller]
fn first(root: &Path, ending: &str) -> PathBuf {
    let list = run("find", &[&root.to_string_lossy(), "-type", "f"]);
    let is_it = |path: &&str| path.ends_with(&format!(".{ending}")) || path.ends_with(&format!("/{ending}"));
    PathBuf::from(list.lines().find(is_it).unwrap_or_else(|| panic!("no {ending} in {list}")))
}

/// Written where no format keeps anything, wide enough for the samples: the pass is never begun.
#[test]
fn a_sample_finds_what_lies_far_from_every_telling_region() {
    let tmp = Tmp::new();
    let path = sparse(&tmp.join("disk"), 1 << 30);
    // Samples are 4 MiB apart on average, and no two further than 8 MiB.
    write_at(&path, 401 * MIB, &[0x2a].repeat(8 * MIB as usize));
    let content = look(&path);
    assert_eq!(content.class, ContentClass::Other);
    assert!(content.bytes_read < 40 * MIB, "{} bytes were read", content.bytes_read);
    let first = content.first_other.expect("a place");
    assert!((401 * MIB..409 * MIB).contains(&first), "{first}");
    let sample = content.sample.expect("a look at it");
    assert_eq!((sample.offset, sample.entropy), (first, 0));
    assert_eq!(sample.hex, "2a2a 2a2a 2a2a 2a2a 2a2a 2a2a 2a2a 2a2a  ****************");
}
