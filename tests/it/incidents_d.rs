//! Incident D: the guard itself in the way. Beside a system that mounts its volume and runs its etcd, volhold must not be
//! noticed.

use crate::common::etcd::Member;
use crate::common::node::{PATIENCE, codes};
use crate::common::tmp::{mount_table, unmount};
use crate::common::{Guard, Loop, Mounted, Node, Tmp, disk, fixture, output, run};
use disk::MIB;
use std::path::Path;
use std::time::{Duration, Instant};

fn etcd_volume(tmp: &Tmp) -> Loop {
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let image = disk::sparse(&tmp.join("volume"), 160 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    Loop::new(&image)
}

/// How a mountpoint is mounted now: options of the mount and of the superblock.
fn options(at: &Path) -> Option<(String, String)> {
    mount_table().into_iter().find(|mount| mount.at == at).map(|mount| (mount.options, mount.super_options))
}

#[test]
fn observe_never_makes_the_systems_own_mount_fail_wait_or_come_out_read_only() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = etcd_volume(&tmp);
    let mut node = Node::new();
    let at = node.path("mnt");
    std::fs::create_dir(&at).unwrap();
    node.configure(&[Guard::observe("main", device.node(), &at).data_dir("data")]);
    for try_number in 0..50 {
        node.spawn();
        // The mount comes at another moment of the agent's look in each try: not waiting for something, but aiming.
        std::thread::sleep(Duration::from_millis(try_number * 4));
        let begun = Instant::now();
        let mounted = output("mount", &[&device.name(), &at.to_string_lossy()]);
        assert!(mounted.status.success(), "try {try_number}: {}", String::from_utf8_lossy(&mounted.stderr));
        // A mount that waits for a claim or a lock waits for seconds.
        assert!(begun.elapsed() < Duration::from_secs(5), "try {try_number}: {:?}", begun.elapsed());
        let (mount, superblock) = options(&at).expect("it is mounted");
        assert!(mount.starts_with("rw") && superblock.starts_with("rw"), "try {try_number}: {mount} {superblock}");
        std::fs::write(at.join("written"), format!("{try_number}")).expect("it can be written to");
        if try_number % 10 == 0 {
            // Now and then the agent gets to see the mount to the end.
            let status = node.await_status("main", "a look through the mount", |status| !status["data_dir"].is_null());
            assert_eq!(status["would_hold"], false, "{status:#}");
        }
        node.kill_agent();
        unmount(&at);
    }
}

#[test]
fn observe_writes_nothing_to_an_unmounted_device() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = etcd_volume(&tmp);
    let before = device.sha256();
    let mut node = Node::new();
    node.configure(&[Guard::observe("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.start();
    node.await_status("main", "a look at the device", |status| status["state"] == "observing");
    // Not even a claim: the system's fsck and mount need it for themselves.
    run("e2fsck", &["-n", &device.name()]);
    assert_eq!(before, device.sha256());
    assert!(!node.path("mnt").exists(), "observe made a mountpoint");
    // Its data was not read, and it is not where it would be published.
    let explained = node.volhold(&["explain", "main"]).stdout;
    assert!(explained.starts_with("main observes, and nothing speaks against it so far"), "{explained}");
    let status = node.volhold(&["status"]).stdout;
    let volume = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(volume.contains(&format!("for {}", node.path("mnt").display())), "{status}");
}

#[test]
fn observe_would_hold_a_device_that_enforce_would_hold() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = etcd_volume(&tmp);
    disk::zero(device.node(), 0, 4096);
    let before = device.sha256();
    let mut node = Node::new();
    node.configure(&[Guard::observe("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.start();
    let status = node.await_status("main", "a finished look", |status| status["state"] == "observing");
    assert_eq!(status["would_hold"], true, "{status:#}");
    assert!(codes(&status["reasons"]).contains(&"backup-superblock-found".to_owned()), "{status:#}");
    assert_eq!(before, device.sha256());
}

#[test]
fn a_first_install_beside_a_running_etcd_is_adopted_as_open_and_etcd_runs_on() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 256 * MIB));
    disk::mkfs_ext4(device.node(), None);
    let mut node = Node::new();
    let at = node.path("mnt");
    // Mounted by the system, etcd started by hand: nobody here has heard of volhold.
    let _mounted = Mounted::new(device.node(), &at);
    let mut etcd = Member::new("master-a", &at.join("data")).start();
    etcd.put("/registry/pods/one", "1");
    let pid = etcd.pid();

    node.configure(&[Guard::enforce("main", device.node(), &at).data_dir("data")]);
    node.start();
    node.await_open("main");
    assert_eq!(node.volhold(&["wait", "main", "--timeout", "1s"]).code, Some(0));
    assert!(etcd.lives() && etcd.pid() == pid);
    assert_eq!(etcd.get("/registry/pods/one"), "1");
    etcd.put("/registry/pods/two", "2");
    assert!(options(&at).is_some_and(|(mount, _)| mount.starts_with("rw")));
    // What it saw there counts from now on.
    crate::common::node::await_change(&node.path("state"), PATIENCE, || node.ledger("main").exists());
    etcd.stop();
    std::fs::remove_dir_all(at.join("data/member")).unwrap();
    let checked = node.gate_check("main");
    assert_eq!(checked.code, Some(3), "{checked:#?}");
}

#[test]
fn observe_says_of_a_running_etcd_that_it_would_open() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 256 * MIB));
    disk::mkfs_ext4(device.node(), None);
    let mut node = Node::new();
    let at = node.path("mnt");
    let _mounted = Mounted::new(device.node(), &at);
    let mut etcd = Member::new("master-a", &at.join("data")).start();
    etcd.put("/registry/pods/one", "1");
    node.configure(&[Guard::observe("main", device.node(), &at).data_dir("data")]);
    node.start();
    let status = node.await_status("main", "a look through the mount", |status| !status["data_dir"].is_null());
    assert_eq!(status["would_hold"], false, "{status:#}");
    assert!(etcd.lives());
    assert_eq!(etcd.get("/registry/pods/one"), "1");
}
