//! The helpers themselves: a rig that fails to fail would make every test on it worthless.

use super::etcd::Member;
use super::{ErrFs, Loop, Tmp, disk, fixture};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

#[test]
fn a_loop_device_is_gone_after_its_test_and_shows_what_the_file_holds() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), disk::MIB);
    disk::write_at(&image, 4096, b"something");
    let device = Loop::new(&image);
    let backing = format!("/sys/block/{}/loop/backing_file", device.node().file_name().unwrap().to_string_lossy());
    assert_eq!(std::fs::read_to_string(&backing).unwrap().trim(), image.to_string_lossy());
    assert_eq!(device.sha256(), disk::sha256(&image));
    drop(device);
    // A child that another test is just starting has a copy of the descriptor until it becomes its program.
    let left = || std::fs::read_to_string(&backing).is_ok_and(|file| file.trim() == image.to_string_lossy());
    let until = Instant::now() + Duration::from_secs(10);
    while left() {
        assert!(Instant::now() < until, "the loop device outlived its test");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_bad_disk_fails_where_it_was_told_to_and_nowhere_else() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), 4 * disk::MIB);
    let bad = ErrFs::new(&image, &tmp.join("fuse"), &[format!("eio:{}:512", 2 * disk::MIB)]).disk();
    let device = File::open(bad.node.node()).unwrap();
    let mut page = [1; 4096];
    device.read_exact_at(&mut page, 0).unwrap();
    device.read_exact_at(&mut page, 3 * disk::MIB).unwrap();
    assert_eq!(page, [0; 4096]);
    let error = device.read_exact_at(&mut page, 2 * disk::MIB).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(nix::errno::Errno::EIO as i32));
}

#[test]
fn a_killed_etcd_keeps_every_write_that_it_acknowledged() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let etcd = Member::new("rig", &tmp.join("data")).start();
    let load = etcd.load("k", 200);
    let written = load.join().unwrap();
    assert_eq!(written, 200);
    etcd.put("name", "value");
    let etcd = etcd.kill().start();
    assert_eq!(etcd.get("name"), "value");
    assert_eq!(etcd.get("k00000199").len(), 300);
}

#[test]
fn a_packed_data_dir_is_one_that_etcd_starts_on() {
    crate::needs_root!();
    let tmp = Tmp::new();
    fixture::etcd_tree("v3.4.23-basic", tmp.path());
    let mut member = Member::new("etcd-basic", &tmp.join("data"));
    member.more.push("--force-new-cluster".to_owned());
    let etcd = member.start();
    assert_ne!(etcd.ctl(&["get", "", "--prefix", "--keys-only", "--limit", "1"]).trim(), "");
}
