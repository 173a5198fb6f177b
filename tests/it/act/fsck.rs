//! e2fsck -p: clean, damaged, unknown.

use crate::common::{Loop, Tmp, disk, run};
use crate::device::open;
use crate::needs_root;
use std::path::{Path, PathBuf};
use std::time::Duration;
use volhold::act::fsck::{DEFAULT_LIMIT, ext4_preen};
use volhold::device::Device;
use volhold::model::ReasonCode;

const SUPERBLOCK: u64 = 1024;
const INCOMPAT: u64 = SUPERBLOCK + 0x60;
const RO_COMPAT: u64 = SUPERBLOCK + 0x64;
const STATE: u64 = SUPERBLOCK + 0x3a;

/// An ext4 without checksums, so that a byte can be changed.
fn image(tmp: &Tmp) -> PathBuf {
    let image = disk::sparse(&tmp.join("disk"), 32 * disk::MIB);
    run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "^metadata_csum", image.to_str().unwrap()]);
    image
}

fn attach(image: &Path) -> (Loop, Device) {
    let device = Loop::new(image);
    let mut opened = open(device.node());
    opened.claim().unwrap();
    (device, opened)
}

fn set_bits(image: &Path, offset: u64, bits: u32) {
    let mut word = [0; 4];
    word.copy_from_slice(&disk::read_at(image, offset, 4));
    disk::write_at(image, offset, &(u32::from_le_bytes(word) | bits).to_le_bytes());
}

#[test]
fn a_clean_filesystem_is_left_byte_for_byte_as_it_was() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, mut opened) = attach(&image(&tmp));
    let before = device.sha256();
    let fsck = ext4_preen(&mut opened, DEFAULT_LIMIT).unwrap();
    assert_eq!(fsck.exit, 0);
    assert!(fsck.output.starts_with(&device.name()), "the device has its own name in what is shown: {}", fsck.output);
    assert!(opened.claimed());
    assert_eq!(device.sha256(), before);
}

#[test]
fn what_a_boot_would_repair_is_repaired() {
    needs_root!();
    let tmp = Tmp::new();
    let image = image(&tmp);
    // "Not cleanly unmounted", and a free-block count that is off.
    disk::write_at(&image, STATE, &0u16.to_le_bytes());
    disk::write_at(&image, SUPERBLOCK + 0x0c, &1u32.to_le_bytes());
    let (device, mut opened) = attach(&image);
    let fsck = ext4_preen(&mut opened, DEFAULT_LIMIT).unwrap();
    assert!([0, 1].contains(&fsck.exit), "{fsck:?}");
    drop(opened);
    run("e2fsck", &["-fn", &device.name()]);
}

#[test]
fn damage_that_needs_a_person_is_fsck_failed_with_the_words_of_e2fsck() {
    needs_root!();
    let tmp = Tmp::new();
    let image = image(&tmp);
    // The root directory's inode becomes a file of nothing, and the superblock asks for a check.
    let dump = run("dumpe2fs", &[image.to_str().unwrap()]);
    let table = dump.lines().find_map(|line| line.trim().strip_prefix("Inode table at ")).unwrap();
    let block: u64 = table.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    disk::zero(&image, block * 4096 + 256, 256);
    disk::write_at(&image, STATE, &2u16.to_le_bytes());
    let (device, mut opened) = attach(&image);
    let error = ext4_preen(&mut opened, DEFAULT_LIMIT).unwrap_err();
    let reason = error.reason();
    assert_eq!(reason.code, ReasonCode::FsckFailed, "{error}");
    assert!(error.output().unwrap().contains("UNEXPECTED INCONSISTENCY"), "{error:?}");
    assert!(reason.message.contains(&device.name()), "{}", reason.message);
    assert!(opened.claimed(), "a held volume stays claimed");
}

#[test]
fn a_feature_that_e2fsck_does_not_know_has_its_own_reason() {
    needs_root!();
    for offset in [INCOMPAT, RO_COMPAT] {
        let tmp = Tmp::new();
        let image = image(&tmp);
        set_bits(&image, offset, 1 << 30);
        let (device, mut opened) = attach(&image);
        let before = device.sha256();
        let error = ext4_preen(&mut opened, DEFAULT_LIMIT).unwrap_err();
        assert_eq!(error.reason().code, ReasonCode::FilesystemFeatureUnknown, "{error:?}");
        assert_eq!(device.sha256(), before);
        assert!(opened.claimed());
    }
}

#[test]
fn a_check_that_takes_too_long_is_timed_out() {
    needs_root!();
    let tmp = Tmp::new();
    let (_device, mut opened) = attach(&image(&tmp));
    let error = ext4_preen(&mut opened, Duration::ZERO).unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::TimedOut, "{error:?}");
    assert!(opened.claimed());
}

#[test]
fn no_filesystem_at_all_is_fsck_failed_and_nothing_is_written() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, mut opened) = attach(&disk::sparse(&tmp.join("disk"), 8 * disk::MIB));
    let before = device.sha256();
    assert_eq!(ext4_preen(&mut opened, DEFAULT_LIMIT).unwrap_err().reason().code, ReasonCode::FsckFailed);
    assert_eq!(device.sha256(), before);
}
