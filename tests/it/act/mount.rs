//! Detached mounts: unseen until published, freed when dropped, never in the place of mkfs.

use crate::common::{
    Loop, Mounted, Tmp, disk, output, run,
    tmp::{mount_table, unmount},
};
use crate::device::open;
use crate::needs_root;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use volhold::act::mount::{self, Access, MountError, on_top_at};
use volhold::act::{seal, volume_ledger};
use volhold::device::Device;
use volhold::model::ReasonCode;

/// A clean ext4 with one file in it.
fn image(tmp: &Tmp) -> PathBuf {
    let content = tmp.join("content");
    fs::create_dir_all(content.join("member")).unwrap();
    fs::write(content.join("member/db"), "data").unwrap();
    let image = disk::sparse(&tmp.join("disk"), 32 * disk::MIB);
    disk::mkfs_ext4(&image, Some(&content));
    image
}

fn attach(image: &Path) -> (Loop, Device) {
    let device = Loop::new(image);
    let mut opened = open(device.node());
    opened.claim().unwrap();
    (device, opened)
}

fn below(root: &OwnedFd, path: &str) -> PathBuf {
    format!("/proc/self/fd/{}/{path}", root.as_raw_fd()).into()
}

fn words(options: &[&str]) -> Vec<String> {
    options.iter().map(|option| (*option).to_owned()).collect()
}

fn listed(device: &Loop) -> Vec<PathBuf> {
    let devnum = open(device.node()).facts().unwrap().devnum.to_string();
    mount_table().into_iter().filter(|mount| mount.devnum == devnum).map(|mount| mount.at).collect()
}

#[test]
fn what_is_examined_is_seen_by_nobody_and_cannot_be_written() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, mut opened) = attach(&image(&tmp));
    let mount = mount::examine(&mut opened, "ext4", &words(&["noatime"])).unwrap();
    assert_eq!(mount.access(), Access::Examine);
    let root = mount.root().unwrap();
    assert_eq!(fs::read(below(&root, "member/db")).unwrap(), b"data");
    assert_eq!(listed(&device), Vec::<PathBuf>::new());
    let error = fs::write(below(&root, "new"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(nix::errno::Errno::EROFS as i32));
    // While it exists the device is the filesystem's.
    assert!(!output("mkfs.ext4", &["-q", "-F", "-F", &device.name()]).status.success());
}

#[test]
fn dropping_it_frees_the_device() {
    needs_root!();
    let tmp = Tmp::new();
    let (_device, mut opened) = attach(&image(&tmp));
    let mount = mount::examine(&mut opened, "ext4", &[]).unwrap();
    assert!(!opened.claimed());
    assert!(opened.claim().is_err(), "busy while mounted");
    drop(mount);
    opened.reclaim().unwrap();
}

#[test]
fn a_published_volume_is_writable_above_and_closed_beneath() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, mut opened) = attach(&image(&tmp));
    let at = tmp.join("etcd");
    let mount = mount::examine(&mut opened, "ext4", &words(&["noatime", "nosuid"])).unwrap();
    let sealed = seal::seal(&at).unwrap();
    let mount = mount.make_writable(&mut opened, &words(&["noatime", "nosuid"])).unwrap();
    let root = mount.root().unwrap();
    volume_ledger::append(root.as_fd(), b"entry").unwrap();
    drop(root);
    let published = mount.publish(&sealed.at).unwrap();
    assert_eq!(Some(published.devnum), opened.devnum());
    assert_eq!(listed(&device), std::slice::from_ref(&at));
    let line = mount_table().into_iter().find(|mount| mount.at == at).unwrap();
    assert_eq!(line.source, device.name(), "mountinfo shows the node, not a path in /proc");
    assert!(line.options.starts_with("rw,") && line.options.contains("noatime"), "{line:?}");
    assert!(line.options.contains("nosuid") && line.super_options.starts_with("rw"), "{line:?}");
    fs::write(at.join("member/new"), "x").unwrap();
    assert_eq!(fs::read(at.join(".volhold/ledger")).unwrap(), b"entry");

    unmount(&at);
    for attempt in [fs::write(at.join("x"), "x"), fs::create_dir(at.join("member"))] {
        assert_eq!(attempt.unwrap_err().raw_os_error(), Some(nix::errno::Errno::EPERM as i32));
    }
    opened.reclaim().expect("nothing of the mount is left");
}

#[test]
fn a_mount_that_cannot_be_made_writable_leaves_the_device_claimed() {
    needs_root!();
    let tmp = Tmp::new();
    let (_device, mut opened) = attach(&image(&tmp));
    let mount = mount::examine(&mut opened, "ext4", &[]).unwrap();
    let error = mount.make_writable(&mut opened, &words(&["bogus"])).unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::MountFailed);
    assert!(opened.claimed());
}

#[test]
fn nothing_is_published_over_another_mount() {
    needs_root!();
    let tmp = Tmp::new();
    let at = tmp.join("etcd");
    let (_other, _mounted) = {
        let other = disk::sparse(&tmp.join("other"), 32 * disk::MIB);
        disk::mkfs_ext4(&other, None);
        let other = Loop::new(&other);
        let mounted = Mounted::new(other.node(), &at);
        (other, mounted)
    };
    let (device, mut opened) = attach(&image(&tmp));
    let mount = mount::examine(&mut opened, "ext4", &[]).unwrap().make_writable(&mut opened, &[]).unwrap();
    let top = on_top_at(&at).unwrap();
    assert!(top.is_some() && top != opened.devnum());
    let error = mount.publish(&at).unwrap_err();
    assert!(matches!(error, MountError::Occupied { devnum, .. } if Some(devnum) == top), "{error}");
    assert_eq!(listed(&device), Vec::<PathBuf>::new());
}

#[test]
fn looking_writes_not_one_byte_though_the_journal_wants_replay() {
    needs_root!();
    let tmp = Tmp::new();
    let image = dirty(&tmp);
    let before = disk::sha256(&image);
    let (device, mut opened) = attach(&image);
    let mount = mount::look_only(&mut opened, "ext4").unwrap();
    let root = mount.root().unwrap();
    assert_eq!(fs::read(below(&root, "member/db")).unwrap(), b"data");
    drop((root, mount));
    opened.reclaim().unwrap();
    assert_eq!(disk::sha256(&image), before, "on the medium");
    assert_eq!(device.sha256(), before, "and in the cache");

    // The same image is one that examining does write to, or this test would show nothing.
    drop(mount::examine(&mut opened, "ext4", &[]).unwrap());
    opened.reclaim().unwrap();
    assert_ne!(device.sha256(), before);
}

/// A copy of a mounted filesystem's image, as after a power cut.
fn dirty(tmp: &Tmp) -> PathBuf {
    let image = image(tmp);
    let device = Loop::new(&image);
    let mounted = Mounted::new(device.node(), &tmp.join("power"));
    fs::write(mounted.at().join("late"), "x").unwrap();
    run("sync", &["-f", mounted.at().to_str().unwrap()]);
    let copy = tmp.join("dirty");
    fs::copy(&image, &copy).unwrap();
    let dump = run("dumpe2fs", &["-h", copy.to_str().unwrap()]);
    assert!(dump.contains("needs_recovery"), "{dump}");
    copy
}

#[test]
fn a_wrong_option_is_mount_failed_and_named_and_the_claim_comes_back() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, mut opened) = attach(&image(&tmp));
    let before = device.sha256();
    let error = mount::examine(&mut opened, "ext4", &words(&["noatime", "bogus=7"])).unwrap_err();
    let reason = error.reason();
    assert_eq!(reason.code, ReasonCode::MountFailed);
    assert!(reason.message.contains("bogus") && reason.message.contains(&device.name()), "{}", reason.message);
    assert!(reason.message.contains("Unknown parameter"), "the kernel's words: {}", reason.message);
    assert!(opened.claimed());
    assert_eq!(device.sha256(), before);
}

#[test]
fn an_option_for_reading_only_is_refused_before_anything_is_tried() {
    needs_root!();
    let tmp = Tmp::new();
    let (_device, mut opened) = attach(&image(&tmp));
    let error = mount::examine(&mut opened, "ext4", &words(&["ro"])).unwrap_err();
    assert!(matches!(error, MountError::Option(_)), "{error}");
    assert!(opened.claimed());
}

#[test]
fn a_superblock_that_the_kernel_refuses_is_mount_failed_with_the_words_of_its_log() {
    needs_root!();
    let tmp = Tmp::new();
    let image = image(&tmp);
    // One bit of the label: the checksum no longer fits.
    let byte = disk::read_at(&image, 1024 + 0x78, 1)[0];
    disk::write_at(&image, 1024 + 0x78, &[byte ^ 1]);
    let (device, mut opened) = attach(&image);
    let before = device.sha256();
    let error = mount::examine(&mut opened, "ext4", &[]).unwrap_err();
    let reason = error.reason();
    assert_eq!(reason.code, ReasonCode::MountFailed);
    assert!(reason.message.contains("EBADMSG") && reason.message.contains("checksum"), "{}", reason.message);
    assert_eq!(device.sha256(), before);
    assert!(opened.claimed());
}

#[test]
fn a_feature_that_the_kernel_does_not_know_has_its_own_reason() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), 32 * disk::MIB);
    run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-O", "^metadata_csum", image.to_str().unwrap()]);
    let mut word = [0; 4];
    word.copy_from_slice(&disk::read_at(&image, 1024 + 0x60, 4));
    disk::write_at(&image, 1024 + 0x60, &(u32::from_le_bytes(word) | 1 << 30).to_le_bytes());
    let (device, mut opened) = attach(&image);
    let before = device.sha256();
    let error = mount::examine(&mut opened, "ext4", &[]).unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::FilesystemFeatureUnknown, "{}", error.reason().message);
    assert_eq!(device.sha256(), before);
}

#[test]
fn a_filesystem_that_the_kernel_does_not_have_is_mount_failed() {
    needs_root!();
    let tmp = Tmp::new();
    let (_device, mut opened) = attach(&image(&tmp));
    let error = mount::examine(&mut opened, "no-such-fs", &[]).unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::MountFailed);
    assert!(error.to_string().contains("ENODEV"), "{error}");
}

#[test]
fn a_superblock_that_somebody_else_mounted_in_between_is_not_joined() {
    needs_root!();
    let tmp = Tmp::new();
    let image = image(&tmp);
    let device = Loop::new(&image);
    let mut opened = open(device.node());
    let _theirs = Mounted::new(device.node(), &tmp.join("theirs"));
    let error = mount::examine(&mut opened, "ext4", &[]).unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::InUse, "{error}");
}

#[test]
fn a_name_that_leads_to_another_device_when_it_is_mounted_is_the_wrong_volume() {
    needs_root!();
    let tmp = Tmp::new();
    let right = Loop::new(&image(&tmp));
    let other = disk::sparse(&tmp.join("other"), 32 * disk::MIB);
    disk::mkfs_ext4(&other, None);
    let other = Loop::new(&other);
    // A private node is opened, and then made anew for the other disk: what a stale by-id name amounts to.
    let alias = tmp.join("alias");
    run("cp", &["-R", &right.name(), alias.to_str().unwrap()]);
    let mut opened = open(&alias);
    fs::remove_file(&alias).unwrap();
    run("cp", &["-R", &other.name(), alias.to_str().unwrap()]);
    let error = mount::examine(&mut opened, "ext4", &[]).unwrap_err();
    assert!(matches!(error, MountError::WrongVolume { .. }), "{error}");
    assert_eq!(error.reason().code, ReasonCode::WrongVolume);
    assert_eq!(listed(&other), Vec::<PathBuf>::new());
    // Nothing of the wrong mount is kept.
    open(other.node()).reclaim().unwrap();
    assert_eq!(opened.claim().unwrap_err().reason().code, ReasonCode::ChangedUnderneath);
}

#[test]
fn no_descriptor_of_a_mount_is_inherited() {
    needs_root!();
    let tmp = Tmp::new();
    let (_device, mut opened) = attach(&image(&tmp));
    let mount = mount::examine(&mut opened, "ext4", &[]).unwrap();
    let root = mount.root().unwrap();
    let flags = [root.as_raw_fd()].map(|fd| fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap());
    assert!(flags.iter().all(|info| close_on_exec(info)), "{flags:?}");
    // A child that outlives the mount must not keep the device busy.
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    drop((root, mount));
    let reclaimed = opened.reclaim();
    child.kill().unwrap();
    child.wait().unwrap();
    reclaimed.unwrap();
}

fn close_on_exec(fdinfo: &str) -> bool {
    let flags = fdinfo.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
    u32::from_str_radix(flags, 8).unwrap() & 0o2_000_000 != 0
}

#[test]
fn a_copy_of_a_mounted_xfs_may_be_looked_at_and_never_be_examined() {
    needs_root!();
    let tmp = Tmp::new();
    let original = disk::sparse(&tmp.join("disk"), 320 * disk::MIB);
    run("mkfs.xfs", &["-q", original.to_str().unwrap()]);
    let copy = tmp.join("copy");
    run("cp", &["--sparse=always", original.to_str().unwrap(), copy.to_str().unwrap()]);
    let original = Loop::new(&original);
    let _mounted = Mounted::new(original.node(), &tmp.join("original"));
    let (copy, mut opened) = attach(&copy);
    let before = copy.sha256();

    let error = mount::examine(&mut opened, "xfs", &[]).unwrap_err();
    let reason = error.reason();
    assert_eq!(reason.code, ReasonCode::FilesystemDuplicate, "{}", reason.message);
    assert!(reason.message.contains(&format!("{} has filesystem", original.name())), "{}", reason.message);
    assert!(opened.claimed());
    let error = mount::examine(&mut opened, "xfs", &words(&["nouuid"])).unwrap_err();
    assert!(matches!(error, MountError::Option(_)), "{error}");

    let looked = mount::look_only(&mut opened, "xfs").unwrap();
    assert_eq!(looked.access(), Access::LookOnly);
    assert!(fs::read_dir(below(&looked.root().unwrap(), ".")).unwrap().next().is_none());
    drop(looked);
    assert_eq!(copy.sha256(), before);
}
