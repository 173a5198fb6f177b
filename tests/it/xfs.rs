//! A guard of an XFS volume, over its life and in what can go wrong with it alone: never repaired, replayed by its mount, one
//! UUID on two devices, a filesystem that shuts itself down.

use crate::common::etcd::Member;
use crate::common::node::codes;
use crate::common::tmp::{self, mount_table};
use crate::common::{Guard, Loop, Mounted, Node, Tmp, disk, fixture, output, run};
use disk::MIB;
use std::path::{Path, PathBuf};

/// mkfs.xfs makes nothing below 300 MiB.
const SIZE: u64 = 320 * MIB;

fn blank(tmp: &Tmp) -> PathBuf {
    disk::sparse(&tmp.join("volume"), SIZE)
}

fn xfs(image: &Path, more: &[&str]) {
    let image = image.to_string_lossy();
    let mut args = vec!["-q", "-d", "agcount=4"];
    args.extend(more);
    args.push(&image);
    run("mkfs.xfs", &args);
}

/// An XFS with an etcd data dir in `data`, cleanly unmounted.
fn etcd_volume(tmp: &Tmp) -> PathBuf {
    let image = blank(tmp);
    xfs(&image, &[]);
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let device = Loop::new(&image);
    let mounted = Mounted::new(device.node(), &tmp.join("filled"));
    run("cp", &["-a", &tree.join("data").to_string_lossy(), &mounted.at().to_string_lossy()]);
    drop(mounted);
    image
}

fn guard(node: &Node, device: &Loop) -> Guard {
    Guard::enforce("main", device.node(), &node.path("mnt")).fstype("xfs").data_dir("data")
}

fn shut_down(at: &Path) {
    run("xfs_io", &["-x", "-c", "shutdown", &at.to_string_lossy()]);
}

#[track_caller]
fn first_message(status: &serde_json::Value) -> &str {
    status["reasons"][0]["message"].as_str().expect("a message")
}

#[test]
fn an_xfs_volume_lives_from_blank_through_kills_to_its_next_boot() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&blank(&tmp));
    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    node.start();
    let status = node.await_open("main");
    let mount = mount_table().into_iter().find(|mount| mount.at == node.path("mnt")).expect("published");
    assert_eq!(mount.source, device.name());
    assert!(mount.options.starts_with("rw") && !mount.super_options.contains("nouuid"), "{}", mount.super_options);
    let uuid = run("blkid", &["-p", "-o", "value", "-s", "UUID", &device.name()]);
    assert_eq!(status["fs_uuid"], uuid.trim());
    let looked = node.volhold(&["inspect", &device.name(), "-o", "json"]);
    assert_eq!((looked.code, &looked.json()["filesystem"]["fstype"]), (Some(0), &"xfs".into()), "{looked:#?}");

    let etcd = Member::new("master-a", &node.path("mnt/data")).start();
    for key in 0..20 {
        etcd.put(&format!("key-{key}"), "written");
    }
    // Both die, nothing is unmounted cleanly by them: the log of the filesystem holds what the next mount replays.
    node.kill_agent();
    let member = etcd.kill();
    shut_down(&node.path("mnt"));
    node.reboot();
    node.start();
    let again = node.await_open("main");
    assert_eq!(again["fs_uuid"], status["fs_uuid"], "{again:#}");
    let history = node.volhold(&["history", "main"]).stdout;
    assert!(history.contains("no fsck was run: mounting an xfs replays its"), "{history}");
    let etcd = member.start();
    assert_eq!(etcd.get("key-19"), "written");
    etcd.put("key-20", "after");
    etcd.stop();
    assert_eq!(node.gate_check("main").code, Some(0));
}

#[test]
fn a_dirty_log_is_replayed_by_the_mount_and_by_nothing_else() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = etcd_volume(&tmp);
    let device = Loop::new(&image);
    let at = tmp.join("used");
    let mounted = Mounted::new(device.node(), &at);
    std::fs::write(at.join("data/new"), "in the log only").unwrap();
    // Forces the log, so that the file is in it, and stops there.
    run("xfs_io", &["-x", "-c", "shutdown -f", &at.to_string_lossy()]);
    drop(mounted);
    let dirty = output("xfs_repair", &["-n", &device.name()]);
    let said = String::from_utf8_lossy(&dirty.stderr).into_owned() + &String::from_utf8_lossy(&dirty.stdout);
    assert!(said.contains("first mounting the filesystem to replay the log"), "{said}");
    let looked = volhold_inspect(&device);
    assert_eq!(looked, Some(0), "a log to replay is no damage");

    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    node.start();
    node.await_open("main");
    assert!(node.path("mnt/data/new").exists(), "the log was not replayed");
    let explained = node.volhold(&["history", "main", "-o", "json"]).stdout;
    assert!(!explained.contains("\"exit "), "something like a repair ran: {explained}");
}

fn volhold_inspect(device: &Loop) -> Option<i32> {
    let node = Node::new();
    node.configure(&[]);
    node.volhold(&["inspect", &device.name(), "-o", "json"]).code
}

/// Held by an agent for that reason, the device untouched; the status.
#[track_caller]
fn held_untouched(node: &mut Node, device: &Loop, reason: &str) -> serde_json::Value {
    let before = device.sha256();
    node.start();
    let status = node.await_held("main", reason);
    assert_eq!(before, device.sha256(), "the volume was written to while it was held");
    node.kill_agent();
    node.assert_closed("main");
    assert_eq!(before, device.sha256(), "the volume was written to");
    status
}

#[test]
fn an_xfs_volume_under_a_guard_for_ext4_is_named_and_not_touched() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&etcd_volume(&tmp));
    let mut node = Node::new();
    node.configure(&[guard(&node, &device).fstype("ext4")]);
    let status = held_untouched(&mut node, &device, "signature-found");
    let message = first_message(&status);
    assert!(message.contains("carries an xfs") && message.contains("fstype = \"ext4\""), "{message}");
}

#[test]
fn an_ext4_volume_under_a_guard_for_xfs_is_named_and_not_touched() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = blank(&tmp);
    disk::mkfs_ext4(&image, None);
    let device = Loop::new(&image);
    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    let status = held_untouched(&mut node, &device, "signature-found");
    let message = first_message(&status);
    assert!(message.contains("carries an ext4") && message.contains("fstype = \"xfs\""), "{message}");
}

#[test]
fn an_xfs_whose_first_group_is_overwritten_is_held_by_a_guard_for_xfs() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = etcd_volume(&tmp);
    disk::zero(&image, 0, SIZE / 4);
    let device = Loop::new(&image);
    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    held_untouched(&mut node, &device, "backup-superblock-found");
    assert_eq!(volhold_inspect(&device), Some(4));
}

/// Sets bits in a word of every superblock's features, with the checksum made right.
fn with_feature(image: &Path, field: &str, bits: u32) {
    let image = image.to_string_lossy();
    let told = run("xfs_db", &["-r", "-c", "sb 0", "-c", &format!("print {field}"), &image]);
    let now = told.trim().rsplit("= ").next().unwrap().trim_start_matches("0x");
    let all = u32::from_str_radix(now, 16).unwrap() | bits;
    run("xfs_db", &["-x", "-c", "sb 0", "-c", &format!("write -d {field} {all:#x}"), &image]);
}

#[test]
fn a_feature_that_no_6_1_kernel_mounts_is_told_before_anything_is_tried() {
    crate::needs_root!();
    for (field, bits, named) in [
        ("features_incompat", 0x80, "incompat 0x80 (parent)"),
        ("features_ro_compat", 0x4000_0000, "ro_compat 0x40000000"),
        ("features_log_incompat", 0x2, "log_incompat 0x2"),
    ] {
        let tmp = Tmp::new();
        let image = etcd_volume(&tmp);
        with_feature(&image, field, bits);
        let device = Loop::new(&image);
        let mut node = Node::new();
        node.configure(&[guard(&node, &device)]);
        let status = held_untouched(&mut node, &device, "filesystem-feature-unknown");
        assert!(first_message(&status).contains(named), "{status:#}");
        assert_eq!(volhold_inspect(&device), Some(4), "{named}");
    }
}

#[test]
fn a_damaged_xfs_holds_as_mount_failed_with_the_kernels_words_and_is_not_repaired() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = etcd_volume(&tmp);
    // The superblock stands, the free-space header of the first group does not.
    disk::noise(&image, 512, 512, 3);
    let device = Loop::new(&image);
    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    node.start();
    let status = node.await_held("main", "mount-failed");
    let message = first_message(&status);
    assert!(message.contains("the kernel says: XFS (loop"), "{message}");
    let explained = node.volhold(&["explain", "main", "-o", "json"]).json();
    let not_done = explained["not_done"].to_string();
    assert!(not_done.contains("no fsck was run") && !not_done.contains("nothing was written"), "{not_done}");
}

#[test]
fn a_copy_of_a_mounted_filesystem_is_held_with_the_name_of_the_other_and_told_apart_by_its_volume() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = blank(&tmp);
    let device = Loop::new(&image);
    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    node.start();
    node.await_open("main");
    let etcd = Member::new("master-a", &node.path("mnt/data")).start();
    etcd.put("key", "original");
    etcd.stop();
    // What a snapshot is: the same bytes on another device.
    run("xfs_freeze", &["-f", &node.path("mnt").to_string_lossy()]);
    let copy = tmp.join("copy");
    let copied = output("cp", &["--sparse=always", &image.to_string_lossy(), &copy.to_string_lossy()]);
    run("xfs_freeze", &["-u", &node.path("mnt").to_string_lossy()]);
    assert!(copied.status.success());
    let copy = Loop::new(&copy);

    let mut other = Node::new();
    other.configure(&[guard(&other, &copy)]);
    let status = held_untouched(&mut other, &copy, "filesystem-duplicate");
    let message = first_message(&status);
    assert!(message.contains(&format!("{} has filesystem", device.name())), "{message}");
    assert!(mount_table().iter().all(|mount| mount.source != copy.name()), "the copy is mounted");
    assert_eq!(node.volhold(&["wait", "main", "--timeout", "1s"]).code, Some(0), "the original serves on");

    // When the original has gone, the copy mounts, and is still not the volume whose name its ledger bears.
    node.kill_agent();
    tmp::unmount(&node.path("mnt"));
    other.start();
    other.await_held("main", "restored-volume");
}

#[test]
fn a_published_xfs_that_shut_down_is_noticed_by_who_looks_and_by_its_name() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&etcd_volume(&tmp));
    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    node.start();
    node.await_open("main");
    assert_eq!(node.gate_check("main").code, Some(0));
    shut_down(&node.path("mnt"));

    let checked = node.gate_check("main");
    assert_eq!(checked.code, Some(3), "{checked:#?}");
    assert!(checked.stderr.contains("unreadable") && checked.stderr.contains("has shut down"), "{checked:#?}");
    assert_eq!(node.volhold(&["retry", "main"]).code, Some(0));
    let status = node.await_status("main", "a doubt", |status| status["would_hold"] == true);
    assert_eq!(status["gate"], "open", "{status:#}");
    assert!(codes(&status["reasons"]).iter().all(|code| code == "unreadable"), "{status:#}");
    let message = first_message(&status);
    assert!(message.contains("has shut down") && message.contains("hutting down filesystem"), "{message}");
    // A new agent finds the same, and closes nothing either.
    node.kill_agent();
    node.start();
    let status = node.await_status("main", "a doubt", |status| status["would_hold"] == true);
    assert_eq!(status["gate"], "open", "{status:#}");
}

#[test]
fn a_mark_that_cannot_be_read_any_more_is_told_without_being_asked() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&blank(&tmp));
    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    node.start();
    node.await_open("main");
    shut_down(&node.path("mnt"));
    let status = node.await_status("main", "a doubt", |status| status["would_hold"] == true);
    assert_eq!(status["gate"], "open", "{status:#}");
    assert!(first_message(&status).contains("has shut down"), "{status:#}");
}
