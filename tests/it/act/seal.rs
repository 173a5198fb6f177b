//! The directory under the mount.

use crate::common::{Loop, Mounted, Tmp, disk, output, run};
use crate::needs_root;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use volhold::act::Change;
use volhold::act::seal::{MountpointState, SHOWN, WriteTest, mountpoint_state, seal, test_write};
use volhold::model::{Observed, ReasonCode};

#[track_caller]
fn state(at: &Path) -> MountpointState {
    match mountpoint_state(at) {
        Observed::Seen(state) => state,
        Observed::Unknown(why) => panic!("{why:?}"),
    }
}

fn refuses_entries(at: &Path) -> bool {
    fs::write(at.join("x"), "x").is_err_and(|error| error.raw_os_error() == Some(nix::errno::Errno::EPERM as i32))
}

#[test]
fn a_missing_mountpoint_is_made_sealed_and_the_second_time_nothing_is_done() {
    needs_root!();
    let tmp = Tmp::new();
    let at = tmp.join("var/etcd");
    assert_eq!(state(&at), MountpointState::Missing);
    let sealed = seal(&at).unwrap();
    assert_eq!((sealed.change, sealed.created, sealed.warnings), (Change::Done, true, vec![]));
    assert_eq!(state(&at), MountpointState::Empty { sealed: true });
    assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o7777, 0o700);
    assert!(refuses_entries(&at));
    let again = seal(&at).unwrap();
    assert_eq!((again.change, again.created), (Change::Already, false));
}

#[test]
fn a_mountpoint_that_holds_something_is_refused_and_says_what() {
    needs_root!();
    let tmp = Tmp::new();
    let at = tmp.join("etcd");
    fs::create_dir_all(at.join("member")).unwrap();
    fs::write(at.join("a"), "").unwrap();
    assert_eq!(state(&at), MountpointState::NotEmpty { entries: vec!["a".into(), "member".into()], more: false });
    let reason = seal(&at).unwrap_err().reason();
    assert_eq!(reason.code, ReasonCode::MountpointNotEmpty);
    assert!(reason.message.contains("member"), "{}", reason.message);
    assert!(!refuses_entries(&at), "not sealed");
    for number in 0..30 {
        fs::write(at.join(format!("n{number:02}")), "").unwrap();
    }
    match state(&at) {
        MountpointState::NotEmpty { entries, more } => assert_eq!((entries.len(), more), (SHOWN, true)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_or_a_dangling_link_is_no_mountpoint() {
    needs_root!();
    let tmp = Tmp::new();
    let file = tmp.join("file");
    fs::write(&file, "").unwrap();
    assert_eq!(state(&file), MountpointState::NotADirectory);
    assert_eq!(seal(&file).unwrap_err().reason().code, ReasonCode::MountFailed);
    let dangling = tmp.join("dangling");
    symlink(tmp.join("nowhere"), &dangling).unwrap();
    assert_eq!(seal(&dangling).unwrap_err().reason().code, ReasonCode::MountFailed);
    assert!(!tmp.join("nowhere").exists());
}

#[test]
fn a_link_on_the_way_is_followed_once_and_told() {
    needs_root!();
    let tmp = Tmp::new();
    fs::create_dir(tmp.join("real")).unwrap();
    symlink(tmp.join("real"), tmp.join("link")).unwrap();
    let sealed = seal(&tmp.join("link/etcd")).unwrap();
    assert_eq!(sealed.at, fs::canonicalize(tmp.join("real")).unwrap().join("etcd"));
    assert_eq!(sealed.warnings.len(), 1, "{:?}", sealed.warnings);
    assert!(refuses_entries(&tmp.join("real/etcd")));
}

#[test]
fn beneath_a_live_mount_is_seen_and_sealed() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), 32 * disk::MIB);
    disk::mkfs_ext4(&image, None);
    let device = Loop::new(&image);
    let at = tmp.join("etcd");
    let mounted = Mounted::new(device.node(), &at);
    fs::write(at.join("above"), "x").unwrap();
    let devnum = crate::device::open(device.node()).devnum().unwrap();
    let beneath = |sealed| Observed::Seen(Box::new(MountpointState::Empty { sealed }));
    assert_eq!(state(&at), MountpointState::Mounted { devnum, beneath: beneath(false) });
    let sealed = seal(&at).unwrap();
    assert_eq!((sealed.change, sealed.created), (Change::Done, false));
    assert_eq!(state(&at), MountpointState::Mounted { devnum, beneath: beneath(true) });
    fs::write(at.join("still-above"), "x").expect("the mounted filesystem is not touched");
    drop(mounted);
    assert!(refuses_entries(&at));
}

#[test]
fn something_hidden_beneath_a_live_mount_is_found() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), 32 * disk::MIB);
    disk::mkfs_ext4(&image, None);
    let device = Loop::new(&image);
    let at = tmp.join("etcd");
    fs::create_dir_all(at.join("member")).unwrap();
    let _mounted = Mounted::new(device.node(), &at);
    match state(&at) {
        MountpointState::Mounted { beneath: Observed::Seen(beneath), .. } => {
            assert_eq!(*beneath, MountpointState::NotEmpty { entries: vec!["member".into()], more: false });
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(seal(&at).unwrap_err().reason().code, ReasonCode::MountpointNotEmpty);
}

#[test]
fn a_filesystem_that_cannot_seal_is_a_warning() {
    needs_root!();
    let tmp = Tmp::new();
    let on = tmp.join("proc");
    fs::create_dir(&on).unwrap();
    // ramfs knows no file flags on any kernel; tmpfs does since 6.6.
    run("mount", &["-t", "ramfs", "ramfs", on.to_str().unwrap()]);
    let sealed = seal(&on.join("etcd"));
    let there = on.join("etcd").is_dir();
    output("umount", &[on.to_str().unwrap()]);
    let sealed = sealed.unwrap();
    assert!(there);
    assert_eq!((sealed.created, sealed.warnings.len()), (true, 1), "{:?}", sealed.warnings);
}

#[test]
fn a_seal_is_tried_and_not_read_about_also_beneath_a_mount() {
    needs_root!();
    let tmp = Tmp::new();
    let at = tmp.join("etcd");
    let tried = |at: &Path| match test_write(at) {
        Observed::Seen(found) => found,
        Observed::Unknown(why) => panic!("{why:?}"),
    };
    assert_eq!(tried(&at), WriteTest::Missing);
    assert_eq!(tried(&tmp.join("nowhere/etcd")), WriteTest::Missing);
    fs::create_dir(&at).unwrap();
    assert_eq!(tried(&at), WriteTest::Written);
    assert_eq!(state(&at), MountpointState::Empty { sealed: false }, "nothing is left of the test");
    seal(&at).unwrap();
    assert_eq!(tried(&at), WriteTest::Refused);
    let image = disk::sparse(&tmp.join("image"), 16 * disk::MIB);
    disk::mkfs_ext4(&image, None);
    let volume = Loop::new(&image);
    let _mounted = Mounted::new(volume.node(), &at);
    assert_eq!(tried(&at), WriteTest::Refused, "the mount above it can be written to");
}
