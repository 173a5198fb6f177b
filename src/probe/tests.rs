//! Parsers of foreign bytes: they never panic, they see what is there, and one flipped bit never makes them surer.

use super::classify::{Class, classify, is_zero};
use super::signature::{Findings, Search, filesystem, signatures};
use super::telling::judge;
use crate::model::{Finding, FindingKind, Validated};
use proptest::prelude::*;

const SIZE: u64 = 1 << 30;

fn search(block: &[u8], offset: u64) -> Vec<Finding> {
    let mut findings = Findings::default();
    Search::new(SIZE).written(block, offset, &mut findings);
    Search::new(SIZE).block(block, offset, &mut findings);
    findings.sorted()
}

/// Bytes that look random: splitmix64.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A superblock as mke2fs 1.47 writes it for group `group` of 262144 blocks of 4 KiB, with checksum.
fn ext4_superblock(group: u16) -> Vec<u8> {
    let mut sb = vec![0; 1024];
    put(&mut sb, 0, &65536_u32.to_le_bytes());
    put(&mut sb, 4, &262_144_u32.to_le_bytes());
    put(&mut sb, 24, &2_u32.to_le_bytes());
    put(&mut sb, 32, &32768_u32.to_le_bytes());
    put(&mut sb, 36, &32768_u32.to_le_bytes());
    put(&mut sb, 40, &8192_u32.to_le_bytes());
    put(&mut sb, 56, &0xEF53_u16.to_le_bytes());
    put(&mut sb, 58, &1_u16.to_le_bytes());
    put(&mut sb, 76, &1_u32.to_le_bytes());
    put(&mut sb, 88, &256_u16.to_le_bytes());
    put(&mut sb, 90, &group.to_le_bytes());
    put(&mut sb, 92, &0x3c_u32.to_le_bytes());
    put(&mut sb, 96, &0x2c2_u32.to_le_bytes());
    put(&mut sb, 100, &0x46b_u32.to_le_bytes());
    put(&mut sb, 104, &[0x11; 16]);
    put(&mut sb, 120, b"etcd");
    let checksum = !crc32c::crc32c(&sb[..1020]);
    put(&mut sb, 1020, &checksum.to_le_bytes());
    sb
}

fn xfs_superblock() -> Vec<u8> {
    xfs_superblock_with(&[])
}

/// With these 32-bit words at these places.
fn xfs_superblock_with(words: &[(usize, u32)]) -> Vec<u8> {
    let mut sector = vec![0; 512];
    put(&mut sector, 0, b"XFSB");
    put(&mut sector, 4, &4096_u32.to_be_bytes());
    put(&mut sector, 8, &262_144_u64.to_be_bytes());
    put(&mut sector, 32, &[0x22; 16]);
    put(&mut sector, 84, &65536_u32.to_be_bytes());
    put(&mut sector, 88, &4_u32.to_be_bytes());
    put(&mut sector, 100, &0xb4a5_u16.to_be_bytes());
    put(&mut sector, 102, &512_u16.to_be_bytes());
    put(&mut sector, 104, &512_u16.to_be_bytes());
    for (at, word) in words {
        put(&mut sector, *at, &word.to_be_bytes());
    }
    let checksum = super::bytes::crc32c_without(&sector, 224).unwrap();
    put(&mut sector, 224, &checksum.to_le_bytes());
    sector
}

fn bolt_meta() -> Vec<u8> {
    let mut page = vec![0; 80];
    put(&mut page, 8, &4_u16.to_le_bytes());
    put(&mut page, 16, &0xED0C_DAED_u32.to_le_bytes());
    put(&mut page, 20, &2_u32.to_le_bytes());
    put(&mut page, 24, &4096_u32.to_le_bytes());
    put(&mut page, 32, &4_u64.to_le_bytes());
    put(&mut page, 48, &2_u64.to_le_bytes());
    put(&mut page, 56, &6_u64.to_le_bytes());
    put(&mut page, 64, &9_u64.to_le_bytes());
    // FNV-1a, 64 bit, written out once more so that the parser is not checked against itself.
    let mut hash: u64 = 14_695_981_039_346_656_037;
    for byte in &page[16..72] {
        hash ^= u64::from(*byte);
        hash = hash.wrapping_mul(1_099_511_628_211);
    }
    put(&mut page, 72, &hash.to_le_bytes());
    page
}

fn block_with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 4096];
    put(&mut block, at, bytes);
    block
}

#[test]
fn each_format_is_recognised_by_its_checksum_where_it_stands() {
    let cases = [
        (FindingKind::ExtSuperblock, 0, block_with(1024, &ext4_superblock(0))),
        (FindingKind::ExtBackupSuperblock, 32768 * 4096, block_with(0, &ext4_superblock(1))),
        (FindingKind::XfsSuperblock, 0, block_with(0, &xfs_superblock())),
        (FindingKind::XfsAgHeader, 65536 * 4096, block_with(0, &xfs_superblock())),
        (FindingKind::BoltMeta, 8 << 20, block_with(0, &bolt_meta())),
    ];
    for (kind, offset, block) in cases {
        let findings = search(&block, offset);
        assert_eq!(findings.len(), 1, "{kind:?}: {findings:?}");
        assert_eq!((&findings[0].kind, findings[0].validated), (&kind, Validated::Checksum));
    }
    let facts = filesystem(&block_with(1024, &ext4_superblock(0))).unwrap();
    assert_eq!((facts.fstype.as_str(), facts.label.as_deref(), facts.clean), ("ext4", Some("etcd"), Some(true)));
    assert_eq!(filesystem(&block_with(1024, &ext4_superblock(1))), None, "a copy is no primary");
}

/// Superblocks of md as `mdadm` writes them, with the sum of their words worked out once more.
fn md_superblock(version: u32, sector: u64) -> Vec<u8> {
    let (len, hole) = if version == 0 { (4096, 152) } else { (256 + 2 * 384, 216) };
    let mut sb = vec![0; len];
    put(&mut sb, 0, &0xa92b_4efc_u32.to_le_bytes());
    put(&mut sb, 4, &version.to_le_bytes());
    if version == 0 {
        put(&mut sb, 8, &90_u32.to_le_bytes());
        put(&mut sb, 20, &[0x33; 4]);
        put(&mut sb, 52, &[0x33; 12]);
    } else {
        put(&mut sb, 16, &[0x33; 16]);
        put(&mut sb, 32, b"node:0");
        put(&mut sb, 144, &sector.to_le_bytes());
        put(&mut sb, 220, &384_u32.to_le_bytes());
        sb[256..].fill(0xff);
    }
    let sum: u64 = sb.chunks(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
    put(&mut sb, hole, &(((sum & 0xffff_ffff) + (sum >> 32)) as u32).to_le_bytes());
    sb
}

#[test]
fn members_of_md_are_known_in_each_of_their_four_places() {
    let uuid = Some(String::from("33333333-3333-3333-3333-333333333333"));
    // 0.90 in the last whole 64 KiB but one, 1.0 near the end, 1.1 at the start, 1.2 behind 4 KiB.
    for (version, offset) in [(0, SIZE - 0x10000), (1, SIZE - 0x2000), (1, 0), (1, 4096)] {
        let mut block = md_superblock(version, offset / 512);
        block.resize(4096, 0);
        let findings = search(&block, offset);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].kind, FindingKind::Named(String::from("linux_raid_member")));
        assert_eq!((findings[0].validated, &findings[0].uuid), (Validated::Checksum, &uuid), "{version} at {offset}");
        block[100] ^= 1;
        assert_eq!(search(&block, offset)[0].validated, Validated::Structure, "{version} at {offset}");
        assert_eq!(search(&block, offset + 4096)[0].validated, Validated::Magic, "{version} at {offset}");
    }
}

#[test]
fn a_copy_in_a_journal_is_not_taken_for_a_backup_in_its_place() {
    let findings = search(&block_with(1024, &ext4_superblock(0)), 300 << 20);
    assert_eq!(findings[0].kind, FindingKind::ExtSuperblock);
    assert!(findings[0].detail.as_deref().unwrap().contains("begins at 314572800"), "{findings:?}");
    let findings = search(&block_with(0, &ext4_superblock(1)), 4096);
    assert!(findings[0].detail.as_deref().unwrap().contains("not where such a copy belongs"), "{findings:?}");
}

#[test]
fn an_xfs_names_the_features_that_a_6_1_kernel_does_not_mount() {
    let unknown =
        |words: &[(usize, u32)]| filesystem(&block_with(0, &xfs_superblock_with(words))).unwrap().unknown_features;
    let (compat, ro_compat, incompat, log_incompat) = (208, 212, 216, 220);
    assert_eq!(unknown(&[(ro_compat, 0xf), (incompat, 0x3f), (log_incompat, 1)]), [""; 0], "all that 6.1 knows");
    assert_eq!(unknown(&[(compat, 1 << 30)]), [""; 0], "a kernel warns of these and mounts");
    assert_eq!(unknown(&[(incompat, 0xc3)]), ["incompat 0x40 (exchange)", "incompat 0x80 (parent)"]);
    assert_eq!(unknown(&[(incompat, 1 << 31), (ro_compat, 0x11)]), ["incompat 0x80000000", "ro_compat 0x10"]);
    assert_eq!(unknown(&[(log_incompat, 0x3)]), ["log_incompat 0x2"]);
}

#[test]
fn an_xfs_says_of_itself_that_it_is_unfinished_and_never_that_it_is_clean() {
    let clean = |words: &[(usize, u32)]| filesystem(&block_with(0, &xfs_superblock_with(words))).unwrap().clean;
    assert_eq!(clean(&[]), None, "only the log knows");
    assert_eq!(clean(&[(124, 0x0000_0100)]), Some(false), "mkfs did not come to its end");
    assert_eq!(clean(&[(216, 0x10)]), Some(false), "xfs_repair did not come to its end");
}

#[test]
fn noise_is_uniform_and_what_people_write_is_not() {
    for seed in 0..2000 {
        assert_eq!(classify(&noise(4096, seed)), Class::Uniform, "seed {seed}");
    }
    for len in [512, 1024, 2560] {
        assert_eq!(classify(&noise(len, 5)), Class::Uniform, "{len}");
    }
    assert_eq!(classify(&noise(511, 5)), Class::Other, "too few bytes to count");

    let text: Vec<u8> = b"the quick brown fox jumps over the lazy dog\n".iter().copied().cycle().take(4096).collect();
    let base64: Vec<u8> = noise(4096, 1).iter().map(|byte| b'A' + byte % 58).collect();
    let counter: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let mut half = noise(4096, 1);
    half[2048..].fill(0);
    let mut header = noise(4096, 1);
    header[..512].fill(0);
    for (name, block) in [
        ("text", text),
        ("base64", base64),
        ("a counter, more even than chance", counter),
        ("half noise", half),
        ("noise with one zero sector", header),
        ("all ones", vec![0xff; 4096]),
        ("a superblock", block_with(1024, &ext4_superblock(0))),
    ] {
        assert_eq!(classify(&block), Class::Other, "{name}");
    }
}

#[test]
fn one_bit_at_any_place_is_not_zero() {
    for len in [1, 63, 64, 65, 512, 4096, 4097, 65536] {
        assert!(is_zero(&vec![0; len]));
        for at in [0, len / 2, len - 1] {
            for bit in [0, 7] {
                let mut block = vec![0; len];
                block[at] = 1 << bit;
                assert!(!is_zero(&block), "bit {bit} of byte {at} of {len}");
            }
        }
    }
}

#[test]
fn the_first_block_of_each_sort_is_placed() {
    let mut data = vec![0; 64 << 10];
    put(&mut data, 8192, &noise(4096, 1));
    put(&mut data, 20480, &[1]);
    let judged = judge(&Search::new(SIZE), &data, 1 << 20, &mut Findings::default());
    assert_eq!(judged.first_uniform, Some((1 << 20) + 8192));
    assert_eq!(judged.first_other, Some((1 << 20) + 20480));
}

#[test]
fn findings_by_magic_never_crowd_out_those_that_validate() {
    let mut findings = Findings::default();
    for number in 0..10_000_u64 {
        findings.add(Finding {
            kind: FindingKind::BoltMeta,
            offset: number * 4096,
            validated: Validated::Magic,
            uuid: None,
            detail: None,
        });
    }
    let valid = Finding {
        kind: FindingKind::ExtBackupSuperblock,
        offset: 1 << 40,
        validated: Validated::Checksum,
        uuid: None,
        detail: None,
    };
    findings.add(valid.clone());
    findings.add(valid.clone());
    let list = findings.sorted();
    assert!(list.len() < 300, "{}", list.len());
    assert_eq!(list.iter().filter(|finding| **finding == valid).count(), 1);
}

/// Cut from real volumes and files.
const SEEDS: [&[u8]; 15] = [
    include_bytes!("../../fuzz/seeds/signature/bolt"),
    include_bytes!("../../fuzz/seeds/signature/btrfs"),
    include_bytes!("../../fuzz/seeds/signature/directory"),
    include_bytes!("../../fuzz/seeds/signature/exfat"),
    include_bytes!("../../fuzz/seeds/signature/ext4"),
    include_bytes!("../../fuzz/seeds/signature/f2fs"),
    include_bytes!("../../fuzz/seeds/signature/gpt"),
    include_bytes!("../../fuzz/seeds/signature/jfs"),
    include_bytes!("../../fuzz/seeds/signature/journal"),
    include_bytes!("../../fuzz/seeds/signature/leaf"),
    include_bytes!("../../fuzz/seeds/signature/luks"),
    include_bytes!("../../fuzz/seeds/signature/lvm"),
    include_bytes!("../../fuzz/seeds/signature/tar"),
    include_bytes!("../../fuzz/seeds/signature/xfs"),
    include_bytes!("../../fuzz/seeds/signature/xfs-log"),
];

#[test]
fn every_seed_of_the_fuzzer_is_something() {
    for (number, seed) in SEEDS.iter().enumerate() {
        let places = [0, 4096, 0x1800, 0xf000, 64 << 10, 5 << 20, 0x102_5000, 0x802_1000];
        let best = places.iter().flat_map(|at| signatures(seed, *at, SIZE)).map(|finding| finding.validated).max();
        assert!(best > Some(Validated::Magic), "seed {number}: {best:?}");
    }
}

/// A block around one of the formats, where it stands, and where in the block it begins.
fn formats() -> impl Strategy<Value = (Vec<u8>, u64)> {
    prop_oneof![
        Just((block_with(1024, &ext4_superblock(0)), 0)),
        Just((block_with(0, &ext4_superblock(1)), 32768 * 4096)),
        Just((block_with(0, &xfs_superblock()), 0)),
        Just((block_with(0, &bolt_meta()), 8 << 20)),
    ]
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4200), offset in any::<u64>()) {
        let offset = offset / 4096 * 4096;
        search(&bytes, offset);
        filesystem(&bytes);
        judge(&Search::new(offset), &bytes, offset, &mut Findings::default());
    }

    /// Noise behind a right magic reaches further into the parsers than noise alone.
    #[test]
    fn no_bytes_behind_a_magic_make_a_parser_panic_or_validate(
        seed in any::<u64>(),
        magic in prop_oneof![
            Just((0_usize, &b"XFSB"[..])), Just((0, &b"XAGF\0\0\0\x01"[..])), Just((0, &b"XAGI\0\0\0\x01"[..])),
            Just((0, &b"EFI PART"[..])), Just((16, &[0xED, 0xDA, 0x0C, 0xED, 2, 0, 0, 0][..])),
            Just((56, &[0x53, 0xEF][..])), Just((64, &b"_BHRfS_M"[..])), Just((0, &b"SKUL\xba\xbe\0\x02"[..])),
            Just((0, &[4, 0, 0, 0, 0, 0, 0, 0x84, 8, 4, 0x10, 0, 0, 0, 0, 0][..])),
            Just((0, &[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4][..])), Just((4, &[12, 0, 1, 2, b'.', 0, 0, 0, 3, 0, 0, 0][..])),
            Just((0, &b"XAFL"[..])), Just((0, &[0xFE, 0xED, 0xBA, 0xBE, 0, 0, 0, 1, 0, 0, 0, 2][..])),
            Just((4, &[0; 28][..])), Just((0, &b"LUKS\xba\xbe\0\x02"[..])), Just((0, &b"LABELONE"[..])),
            Just((4, &b" LVM2 x[5A%r0N*>"[..])), Just((0, &[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0][..])),
            Just((0, &[0xfc, 0x4e, 0x2b, 0xa9, 0, 0, 0, 0, 90, 0, 0, 0][..])), Just((510, &[0x55, 0xAA][..])),
            Just((8, &[2, 0, 1, 0, 0, 0, 0, 0][..])), Just((0, &[8, 0x85, 0x80, 0x80, 0x80, 1, 0x12, 0x20, 0x0a][..])),
            Just((700, &[0x0a, 0x20, b'/', b'r', b'e', b'g', b'i', b's', b't', b'r', b'y', b'/'][..])),
            Just((100, &[0xED, 0xDA, 0x0C, 0xED, 2, 0, 0, 0][..])), Just((0, &b"JFS1\x01\0\0\0"[..])),
            Just((0, &[0x10, 0x20, 0xF5, 0xF2][..])), Just((164, &[0xfc, 0x0f, 0, 0][..])), Just((257, &b"ustar"[..])),
            Just((4, &[0x8b, 0x42, 0x3c, 0x10][..])), Just((0, &[0x57, 0x45, 0x56, 0x82][..])),
        ],
        offset in (0_u64..1 << 18).prop_map(|block| block * 4096),
    ) {
        let mut block = noise(4096, seed);
        put(&mut block, magic.0, magic.1);
        let findings = search(&block, offset);
        filesystem(&block);
        prop_assert!(findings.iter().all(|finding| finding.validated == Validated::Magic), "{findings:?}");
    }

    /// What the fuzzer starts from, cut, moved and damaged: deeper in the parsers than any noise gets.
    #[test]
    fn no_damage_to_a_real_structure_makes_a_parser_panic(
        seed in 0..SEEDS.len(),
        damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..12),
        keep in any::<usize>(),
        offset in (0_u64..1 << 20).prop_map(|block| block * 512),
        size in any::<u64>(),
    ) {
        let mut bytes = SEEDS[seed].to_vec();
        let len = bytes.len();
        for (at, byte) in damage {
            bytes[at % len] = byte;
        }
        bytes.truncate(keep % len + 1);
        signatures(&bytes, offset, size);
        filesystem(&bytes);
    }

    #[test]
    fn one_flipped_bit_never_passes_for_a_right_checksum((block, offset) in formats(), bit in 0_usize..4096 * 8) {
        let whole = search(&block, offset);
        prop_assert_eq!(whole[0].validated, Validated::Checksum);
        let mut damaged = block.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        for finding in search(&damaged, offset) {
            if finding.validated == Validated::Checksum {
                // The flip lies outside of what the checksum covers: then nothing about the finding may differ but its
                // place in the page, which bolt's checksum leaves out.
                prop_assert_eq!(&finding.uuid, &whole[0].uuid);
                prop_assert_eq!(&finding.detail, &whole[0].detail);
            }
        }
    }

    /// What is not blank is refused wherever it lies and however little it is.
    #[test]
    fn any_other_byte_in_a_zero_stretch_is_judged_other(at in 0_usize..200_000, byte in 1_u8..) {
        let mut data = vec![0; 200_000];
        data[at] = byte;
        let judged = judge(&Search::new(SIZE), &data, 0, &mut Findings::default());
        prop_assert_eq!(judged.first_other, Some((at / 4096 * 4096) as u64));
    }
}
