//! Incident B: an empty etcd started beside the old data, on volumes shaped as kops and etcd-manager leave them.
//!
//! The trees are real data dirs of real etcds (2.2.1, 3.1.12, 3.4.23), laid out and with a `state` file as etcd-manager does.

use crate::common::node::codes;
use crate::common::{Guard, Loop, Mounted, Node, Tmp, disk, fixture, run};
use disk::MIB;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The dir that `state` selects on the volume of incident 2, and the one with the old data.
const NEW: &str = "data/NMfO49sfJAXCvq4-VQE8Ug";
const OLD: &str = "var/etcd/data";
/// What etcd-manager calls the data it took over from earlier days.
const ADOPTED: &str = "data/etcd-cluster-token-etcd";
const TRASH: &str = "data-trashcan/etcd-cluster-token-etcd";

/// A clean ext4 with the tree of a fixture, changed as the test wants.
fn kops(tmp: &Tmp, name: &str, change: impl FnOnce(&Path)) -> PathBuf {
    let tree = tmp.join("tree");
    fixture::etcd_tree(name, &tree);
    change(&tree);
    let image = disk::sparse(&tmp.join("volume"), 160 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    image
}

#[track_caller]
fn held(name: &str, change: impl FnOnce(&Path), reason: &str) -> Value {
    let tmp = Tmp::new();
    let device = Loop::new(&kops(&tmp, name, change));
    let mut node = Node::new();
    node.configure(&[Guard::enforce("etcd-main", device.node(), &node.path("mnt"))]);
    node.start();
    let status = node.await_held("etcd-main", reason);
    assert!(
        std::fs::read_dir(node.path("mnt")).map_or(0, Iterator::count) == 0,
        "a held volume is not to be seen at its place"
    );
    // While it is held nobody else gets it either: etcd-manager would mount it by itself.
    let elsewhere = tmp.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let mount = crate::common::output("mount", &[&device.name(), &elsewhere.to_string_lossy()]);
    assert!(!mount.status.success(), "a held volume could be mounted by somebody else");
    status
}

#[track_caller]
fn starts(name: &str) -> Value {
    let tmp = Tmp::new();
    let device = Loop::new(&kops(&tmp, name, |_| {}));
    let mut node = Node::new();
    node.configure(&[Guard::enforce("etcd-main", device.node(), &node.path("mnt"))]);
    node.start();
    let status = node.await_open("etcd-main");
    assert_eq!(node.volhold(&["wait", "etcd-main", "--timeout", "1s"]).code, Some(0));
    assert_eq!(node.volhold(&["status", "-o", "json"]).code, Some(0));
    assert!(node.path("mnt/state").exists(), "the volume is where kubelet looks for it");
    status
}

/// The message of the reason with that code.
#[track_caller]
fn message(status: &Value, code: &str) -> String {
    let reasons = status["reasons"].as_array().unwrap();
    let reason = reasons.iter().find(|reason| reason["code"] == code);
    reason.unwrap_or_else(|| panic!("no {code} in {status:#}"))["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_new_empty_etcd_beside_etcd2_data_is_held_and_both_dirs_are_named() {
    crate::needs_root!();
    let status = held("kops-volume", |_| {}, "empty-beside-old");
    let message = message(&status, "empty-beside-old");
    assert!(message.contains(NEW) && message.contains(OLD), "{message}");
}

#[test]
fn a_finished_migration_of_etcd2_data_starts() {
    crate::needs_root!();
    starts("kops-adopted-legacy");
}

#[test]
fn a_migration_under_way_starts_because_only_etcd_manager_can_end_it() {
    crate::needs_root!();
    let status = starts("kops-stopped-empty-state");
    assert!(codes(&status["warnings"]).contains(&"migration-under-way".to_owned()), "{status:#}");
}

#[test]
fn a_live_dir_emptied_after_its_migration_is_held_against_the_trashcan() {
    crate::needs_root!();
    let emptied = |tree: &Path| {
        std::fs::remove_dir_all(tree.join(ADOPTED)).unwrap();
        std::fs::create_dir(tree.join(ADOPTED)).unwrap();
    };
    let status = held("kops-adopted-legacy", emptied, "empty-beside-old");
    let message = message(&status, "empty-beside-old");
    assert!(message.contains(ADOPTED) && message.contains(TRASH), "{message}");
}

#[test]
fn a_state_that_names_a_dir_that_is_gone_is_held() {
    crate::needs_root!();
    held("kops-state-names-missing-dir", |_| {}, "data-vanished");
}

#[test]
fn a_state_that_nobody_can_read_is_held() {
    crate::needs_root!();
    held("kops-state-garbage", |_| {}, "unreadable");
}

#[test]
fn observe_would_hold_the_same_data_where_the_system_mounts_it_itself() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&kops(&tmp, "kops-volume", |_| {}));
    let mut node = Node::new();
    let _mounted = Mounted::new(device.node(), &node.path("mnt"));
    node.configure(&[Guard::observe("etcd-main", device.node(), &node.path("mnt"))]);
    node.start();
    let status = node.await_status("etcd-main", "a finished look", |status| status["state"] == "observing");
    assert_eq!(status["would_hold"], true, "{status:#}");
    assert!(codes(&status["reasons"]).contains(&"empty-beside-old".to_owned()), "{status:#}");
    // It says so and does nothing about it.
    run("touch", &[&node.path("mnt/written-by-the-system").to_string_lossy()]);
}

#[test]
fn observe_has_nothing_against_a_finished_migration() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&kops(&tmp, "kops-adopted-legacy", |_| {}));
    let mut node = Node::new();
    let _mounted = Mounted::new(device.node(), &node.path("mnt"));
    node.configure(&[Guard::observe("etcd-main", device.node(), &node.path("mnt"))]);
    node.start();
    let status = node.await_status("etcd-main", "a finished look", |status| !status["data_dir"].is_null());
    assert_eq!(status["would_hold"], false, "{status:#}");
}
