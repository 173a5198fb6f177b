//! The ledger on a mounted volume of its own: a full one, and one that somebody mounts into.

use crate::common::{Loop, Mounted, Tmp, disk, run, tmp::unmount};
use crate::needs_root;
use std::fs::{self, File};
use std::os::fd::AsFd;
use volhold::act::volume_ledger::{append, read, replace};

fn volume(tmp: &Tmp) -> (Loop, Mounted) {
    let image = disk::sparse(&tmp.join("disk"), 16 * disk::MIB);
    disk::mkfs_ext4(&image, None);
    let device = Loop::new(&image);
    let mounted = Mounted::new(device.node(), &tmp.join("volume"));
    (device, mounted)
}

#[test]
fn a_ledger_is_replaced_on_a_volume_and_stands_there_after_the_next_mount() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, mounted) = volume(&tmp);
    let root = File::open(mounted.at()).unwrap();
    append(root.as_fd(), &vec![7; 2 << 20]).unwrap();
    // Of an agent that was killed while it replaced it.
    fs::write(mounted.at().join(".volhold/.ledger.new"), "half of a ledger").unwrap();
    replace(root.as_fd(), b"short").unwrap();
    drop((root, mounted));
    let again = Mounted::new(device.node(), &tmp.join("volume"));
    let root = File::open(again.at()).unwrap();
    assert_eq!(read(root.as_fd()).unwrap().unwrap(), b"short");
    let names: Vec<_> =
        fs::read_dir(again.at().join(".volhold")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["ledger"]);
}

#[test]
fn on_a_full_volume_the_old_ledger_stays_whole_and_no_part_of_a_new_one() {
    needs_root!();
    let tmp = Tmp::new();
    let (_device, mounted) = volume(&tmp);
    let root = File::open(mounted.at()).unwrap();
    append(root.as_fd(), b"the old one").unwrap();
    let error = replace(root.as_fd(), &vec![7; 24 << 20]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    assert_eq!(read(root.as_fd()).unwrap().unwrap(), b"the old one");
    assert!(!mounted.at().join(".volhold/.ledger.new").exists());
    append(root.as_fd(), b" goes on").unwrap();
    assert_eq!(read(root.as_fd()).unwrap().unwrap(), b"the old one goes on");
}

#[test]
fn a_ledger_in_another_mount_is_not_replaced() {
    needs_root!();
    let tmp = Tmp::new();
    let (_device, mounted) = volume(&tmp);
    let root = File::open(mounted.at()).unwrap();
    append(root.as_fd(), b"ours").unwrap();
    let over = mounted.at().join(".volhold");
    run("mount", &["-t", "tmpfs", "tmpfs", &over.to_string_lossy()]);
    fs::write(over.join("ledger"), "theirs").unwrap();
    let error = replace(root.as_fd(), b"new").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::CrossesDevices, "{error}");
    assert_eq!(fs::read(over.join("ledger")).unwrap(), b"theirs");
    unmount(&over);
    assert_eq!(read(root.as_fd()).unwrap().unwrap(), b"ours");
}
