//! A blank disk that goes wrong while it is looked at. It is blank all the time: what is held against it is only what went
//! wrong, and each time something has to be.
//!
//! Elsewhere: bad sectors and ranges (`probe`), a read that never returns and a reader that dies (`sandbox::lost`), another
//! disk under the same name (`device`), a writer between the first and the second reading (`probe`).

use crate::common::disk::{MIB, sparse, write_at};
use crate::common::{ErrFs, Loop, Tmp, run};
use crate::needs_root;
use std::fs::File;
use std::path::{Path, PathBuf};
use volhold::decide::format::{blank, objections_to_reading};
use volhold::model::{Blank, DeviceReading, Observed, ReasonCode, SecondReading, Why};
use volhold::probe::{ProbeAnswer, ProbeRequest, examine, second_reading};

const WHOLE: ProbeRequest = ProbeRequest { full_scan: true, direct: true };
const SIZE: u64 = 64 * MIB;

/// Looks at it, and does something to it as soon as the telling regions were read.
fn look_and(path: &Path, mut then: impl FnMut()) -> DeviceReading {
    let file = File::open(path).expect("it opens");
    examine(&file, &WHOLE, &mut |answer| {
        if let ProbeAnswer::Telling { .. } = answer {
            then();
        }
    })
}

fn look(path: &Path) -> DeviceReading {
    look_and(path, || {})
}

/// Nothing is proven, and the first reason is this one.
#[track_caller]
fn held(what: &str, reading: &DeviceReading, code: ReasonCode) {
    assert_eq!(blank(reading), Blank::Unknown, "{what}: {reading:?}");
    let reasons = objections_to_reading(reading, None);
    assert!(reasons.iter().any(|reason| reason.code == code), "{what}: no {code} in {reasons:#?}");
}

fn blank_disk(tmp: &Tmp) -> PathBuf {
    sparse(&tmp.join("backing"), SIZE)
}

#[test]
fn a_disk_that_fails_after_some_reads_is_unreadable_however_many_they_were() {
    needs_root!();
    let tmp = Tmp::new();
    let backing = blank_disk(&tmp);
    let whole = ErrFs::new(&backing, &tmp.join("good"), &[]);
    assert_eq!(blank(&look(&whole.file())), Blank::Proven, "it is the reads that are at fault");
    for reads in [0, 1, 30, 75, 150, 300] {
        let disk = ErrFs::new(&backing, &tmp.join(&format!("bad-{reads}")), &[format!("after:{reads}:0")]);
        held(&format!("after {reads} reads"), &look(&disk.file()), ReasonCode::Unreadable);
    }
}

#[test]
fn a_sector_that_can_be_read_only_once_is_unreadable() {
    needs_root!();
    let tmp = Tmp::new();
    let backing = blank_disk(&tmp);
    let now = tmp.join("now");
    let disk = ErrFs::new(&backing, &tmp.join("fuse"), &[format!("when:0:4096:{}", now.display())]);
    let reading = look(&disk.file());
    assert_eq!(blank(&reading), Blank::Proven);
    let content = reading.content.seen().expect("content");

    // Between the telling regions and the pass.
    let fails = look_and(&disk.file(), || drop(File::create(&now).expect("from now on")));
    held("in the pass", &fails, ReasonCode::Unreadable);
    // Between the first reading and the second.
    let file = File::open(disk.file()).expect("it opens");
    let second = second_reading(&file, &content.telling_digest, content.size_before);
    assert!(matches!(second, Observed::Unknown(Why::Unreadable { .. })), "{second:?}");
    std::fs::remove_file(&now).expect("as before");
    let second = second_reading(&file, &content.telling_digest, content.size_before);
    assert_eq!(second, Observed::Seen(SecondReading::Same));
}

#[test]
fn a_read_that_comes_short_is_told_as_that_and_never_filled_up() {
    needs_root!();
    let tmp = Tmp::new();
    let backing = blank_disk(&tmp);
    // As a file: a loop device in between fills up what is missing with zeroes before anybody can see it.
    for at in [0, 8192, 32 * MIB + 512, SIZE - 512] {
        let disk = ErrFs::new(&backing, &tmp.join(&format!("fuse-{at}")), &[format!("short:{at}:512")]);
        let reading = look(&disk.file());
        held(&format!("short at {at}"), &reading, ReasonCode::ShortRead);
        // FUSE takes a short read for a new end of the file, so the size alone would hold it too.
        assert!(matches!(reading.content, Observed::Unknown(Why::Short { .. })), "short at {at}: {reading:?}");
    }
}

#[test]
fn a_disk_that_vanishes_under_the_pass_is_unreadable() {
    needs_root!();
    let tmp = Tmp::new();
    let disk = ErrFs::new(&blank_disk(&tmp), &tmp.join("fuse"), &[]).disk();
    let server = disk.server_pid().to_string();
    let reading = look_and(disk.node.node(), || drop(run("kill", &["-KILL", &server])));
    held("vanished", &reading, ReasonCode::Unreadable);
}

#[test]
fn a_disk_that_grows_under_the_pass_is_not_proven() {
    needs_root!();
    let tmp = Tmp::new();
    let backing = blank_disk(&tmp);
    let disk = Loop::new(&backing);
    let reading = look_and(disk.node(), || {
        File::options().write(true).open(&backing).and_then(|file| file.set_len(2 * SIZE)).expect("grown");
        run("losetup", &["--set-capacity", &disk.name()]);
    });
    held("grown", &reading, ReasonCode::SizeMismatch);
}

#[test]
fn what_is_written_behind_the_first_look_is_seen_by_the_pass() {
    let tmp = Tmp::new();
    let backing = blank_disk(&tmp);
    let reading = look_and(&backing, || write_at(&backing, 4096, b"data"));
    assert_eq!(blank(&reading), Blank::No);
    assert_eq!(reading.content.seen().and_then(|content| content.first_other), Some(4096));
}

/// Between the checksum that is off and "nothing here" stands one flag.
#[test]
fn libblkid_is_asked_for_what_has_a_bad_checksum() {
    let tmp = Tmp::new();
    let named = |name: &str| {
        let reading = look(&crate::common::fixture::image(name, &tmp.join(name)));
        reading.libblkid.seen().expect("libblkid").named.clone()
    };
    let label = named("bc04-lvm-label-crc");
    assert!(label.iter().any(|name| name.kind == "LVM2_member" && name.bad_checksum), "{label:?}");
    for name in ["bc01-ext4-sb-bitflip", "bc02-xfs-sb-bitflip", "bc03-btrfs-sb-bitflip", "bs34-luks2-primary-zero"] {
        assert!(!named(name).is_empty(), "{name}");
    }
}
