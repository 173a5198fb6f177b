//! The gate over the life of its agent: crashes and restarts leave open gates open and closed ones closed, a held volume
//! stays claimed, and a person's answer is noticed.

use crate::common::etcd::Member;
use crate::common::node::{PATIENCE, await_change};
use crate::common::tmp::{mount_table, unmount};
use crate::common::{Guard, Loop, Node, Tmp, disk, fixture, output, run};
use disk::MIB;

fn blank(tmp: &Tmp) -> Loop {
    Loop::new(&disk::sparse(&tmp.join("volume"), 160 * MIB))
}

fn damaged(tmp: &Tmp) -> Loop {
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let image = disk::sparse(&tmp.join("volume"), 160 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    disk::zero(&image, 0, 4096);
    Loop::new(&image)
}

#[test]
fn a_blank_volume_is_formatted_mounted_and_its_gate_opened() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.start();
    let status = node.await_open("main");
    let mount = mount_table().into_iter().find(|mount| mount.at == node.path("mnt")).expect("published");
    // The canonical node, not a descriptor's path: findmnt, systemd and etcd-manager read this.
    assert_eq!(mount.source, device.name());
    assert!(mount.options.starts_with("rw"), "{mount:?}");
    let uuid = run("blkid", &["-p", "-o", "value", "-s", "UUID", &device.name()]);
    assert_eq!(status["fs_uuid"], uuid.trim());
    assert!(node.path("mnt/.volhold/ledger").exists(), "the volume remembers");
    assert_eq!(node.volhold(&["wait", "main"]).code, Some(0));
    assert_eq!(node.volhold(&["status"]).code, Some(0));
    assert_eq!(node.manager.stored(), [""; 0], "nothing keeps a volume busy that is in use");
}

#[test]
fn a_crash_and_a_restart_of_the_agent_leave_an_open_gate_open_and_etcd_alone() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.start();
    node.await_open("main");
    let mut etcd = Member::new("master-a", &node.path("mnt/data")).start();
    etcd.put("key", "before");
    let pid = etcd.pid();
    for end in ["SIGKILL", "SIGTERM"] {
        if end == "SIGKILL" {
            node.kill_agent();
        } else {
            assert_eq!(node.stop_agent(), Some(0), "{}", node.log());
        }
        assert!(node.ready_file("main").exists(), "{end} of the agent closed the gate");
        assert_eq!(node.volhold(&["wait", "main", "--timeout", "1s"]).code, Some(0), "after {end}");
        node.start();
        node.await_open("main");
        assert!(etcd.lives() && etcd.pid() == pid, "{end} of the agent stopped etcd");
    }
    assert_eq!(etcd.get("key"), "before");
    etcd.put("key", "after");
}

#[test]
fn an_open_gate_whose_volume_is_hidden_by_another_mount_stays_open_and_is_doubted() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, mut node) = served(&tmp);
    let at = node.path("mnt");
    run("mount", &["-t", "tmpfs", "over", &at.to_string_lossy()]);
    node.start();
    // The etcd that was let start may still run on what lies below.
    let status = node.await_status("main", "open and doubted", |status| status["would_hold"] == true);
    assert_eq!(status["gate"], "open", "{status:#}");
    assert!(node.ready_file("main").exists(), "{}", node.log());
    let check = node.gate_check("main");
    assert_eq!(check.code, Some(3), "no etcd may be started on the mount above: {check:#?}");
    unmount(&at);
}

/// A node whose etcd has served on a volume that volhold made, with its gate open and etcd stopped.
fn served(tmp: &Tmp) -> (Loop, Node) {
    let device = blank(tmp);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.start();
    node.await_open("main");
    let etcd = Member::new("master-a", &node.path("mnt/data")).start();
    etcd.put("key", "value");
    drop(etcd);
    assert_eq!(node.stop_agent(), Some(0), "{}", node.log());
    (device, node)
}

#[test]
fn the_etcd_that_a_fresh_start_brought_is_shown_before_anybody_looks_again() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.start();
    let status = node.await_open("main");
    assert_ne!(status["data_dir"]["populated"], true, "{status:#}");
    let etcd = Member::new("master-a", &node.path("mnt/data")).start();
    etcd.put("key", "value");
    let status = node.await_status("main", "an etcd with keys", |status| status["data_dir"]["populated"] == true);
    let (dir, print) = (&status["data_dir"], &status["data_dir"]["fingerprint"]);
    assert_eq!((&dir["path"], &dir["etcd"], &print["keys"]), (&"data".into(), &"3".into(), &1.into()), "{status:#}");
    assert!(print["cluster_id"].is_string() && print["member_id"].is_string(), "{status:#}");
    let page = node.volhold(&["status"]).stdout;
    assert!(page.contains("data, etcd 3") && !page.contains("empty"), "{page}");
}

#[test]
fn a_healthy_master_comes_up_again_though_its_state_dir_cannot_be_written() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, mut node) = served(&tmp);
    node.reboot();
    let state = node.path("state").to_string_lossy().into_owned();
    run("mount", &["--bind", &state, &state]);
    run("mount", &["-o", "remount,bind,ro", &state]);
    node.start();
    node.await_open("main");
    let check = node.gate_check("main");
    assert_eq!(check.code, Some(0), "{check:#?}");
}

#[test]
fn a_blank_volume_is_not_formatted_while_the_state_dir_cannot_be_written() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp);
    let before = device.sha256();
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    let state = node.path("state").to_string_lossy().into_owned();
    run("mount", &["--bind", &state, &state]);
    run("mount", &["-o", "remount,bind,ro", &state]);
    node.start();
    node.await_held("main", "unreadable");
    assert_eq!(before, device.sha256());
}

#[test]
fn a_healthy_master_comes_up_again_though_its_volume_is_full() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, mut node) = served(&tmp);
    // The next entry needs a block, and there is none.
    std::fs::remove_dir_all(node.path("mnt/.volhold")).expect("an admin who tidies up");
    for block in ["1M", "4k", "1k"] {
        let fill = format!("of={}", node.path(&format!("mnt/fill-{block}")).display());
        output("dd", &["if=/dev/zero", &fill, &format!("bs={block}")]);
    }
    node.reboot();
    node.start();
    node.await_open("main");
    assert!(!node.path("mnt/.volhold/ledger").exists(), "the volume was not full");
    let check = node.gate_check("main");
    assert_eq!(check.code, Some(0), "{check:#?}");
}

#[test]
fn a_publish_path_that_goes_over_a_link_is_one_path_for_gate_check_and_a_restarted_agent() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp);
    let mut node = Node::new();
    // The last part is a link, and so is one before it.
    std::fs::create_dir_all(node.path("disk/etcd")).expect("the real place");
    std::os::unix::fs::symlink(node.path("disk"), node.path("srv")).expect("a link");
    std::os::unix::fs::symlink("etcd", node.path("disk/current")).expect("a link");
    node.configure(&[Guard::enforce("main", device.node(), &node.path("srv/current")).data_dir("data")]);
    node.start();
    node.await_open("main");
    assert!(mount_table().iter().any(|mount| mount.at == node.path("disk/etcd")), "published at the real place");
    let check = node.gate_check("main");
    assert_eq!(check.code, Some(0), "{check:#?}");
    let etcd = Member::new("master-a", &node.path("disk/etcd/data")).start();
    etcd.put("key", "value");
    assert_eq!(node.stop_agent(), Some(0), "{}", node.log());
    node.start();
    node.await_open("main");
    let check = node.gate_check("main");
    assert_eq!(check.code, Some(0), "{check:#?}");
}

#[test]
fn an_open_gate_is_shown_again_after_somebody_took_the_run_dir_away() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, mut node) = served(&tmp);
    node.start();
    node.await_open("main");
    // What the watch sees first is written into it too.
    node.await_status("main", "a first look", |status| status["watch"]["mount"]["state"] == "in-place");
    std::fs::remove_dir_all(node.run_dir()).expect("the run dir goes");
    let ready = node.ready_file("main");
    let ended = await_change(&node.path(""), PATIENCE, || ready.exists());
    assert_eq!(ended, "changed", "the gate stays shut for an etcd that starts again\n{}", node.log());
    let check = node.gate_check("main");
    assert_eq!(check.code, Some(0), "{check:#?}");
    // And a request is heard in the new one.
    std::fs::remove_file(&ready).expect("the ready file goes");
    assert_eq!(node.volhold(&["retry", "main"]).code, Some(0));
    assert_eq!(await_change(&node.path(""), PATIENCE, || ready.exists()), "changed");
}

#[test]
fn a_wait_that_began_before_the_agent_ends_when_the_gate_opens() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    let mut waiting = node.waiting("main");
    assert!(waiting.try_wait().unwrap().is_none(), "nobody has decided anything yet");
    node.start();
    node.await_open("main");
    assert_eq!(waiting.wait().unwrap().code(), Some(0));
}

#[test]
fn a_guard_that_is_not_configured_fails_at_once() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp);
    let node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    for args in [["wait", "other"].as_slice(), &["gate", "check", "other"]] {
        let answer = node.volhold(args);
        assert_eq!(answer.code, Some(78), "{answer:#?}");
    }
}

#[test]
fn nobody_can_format_or_mount_a_held_volume_until_it_is_released() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = damaged(&tmp);
    let before = device.sha256();
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    node.start();
    let status = node.await_held("main", "backup-superblock-found");
    for (tool, args) in
        [("mkfs.ext4", ["-q", "-F", "-F"].as_slice()), ("wipefs", &["--all"]), ("mkfs.xfs", &["-q", "-f"])]
    {
        let mut args = args.to_vec();
        let name = device.name();
        args.push(&name);
        assert!(!output(tool, &args).status.success(), "{tool} got at a held volume");
        assert_eq!(before, device.sha256(), "{tool} wrote to a held volume");
    }
    assert_eq!(before, device.sha256());

    let volume = status["volume"].as_str().expect("a volume id").to_owned();
    let refused = node.volhold(&["release", "main", "--for", "10m"]);
    assert_eq!(refused.code, Some(2), "released without consent: {refused:#?}");
    let released = node.volhold(&["release", "main", "--for", "10m", "--confirm", &volume]);
    assert_eq!(released.code, Some(0), "{released:#?}");
    // A person repairs it from the backup superblock, as the runbook says.
    let fixed = repair(&device);
    assert!(matches!(fixed, Some(0 | 1)), "e2fsck ended with {fixed:?}");
    let retried = node.volhold(&["retry", "main"]);
    assert_eq!(retried.code, Some(0), "{retried:#?}");
    node.await_status("main", "open after the repair", |status| status["gate"] == "open");
}

/// e2fsck from the backup superblock, trying again while the agent is letting go.
fn repair(device: &Loop) -> Option<i32> {
    let until = std::time::Instant::now() + crate::common::node::PATIENCE;
    loop {
        let fixed = output("e2fsck", &["-y", "-b", "32768", "-B", "4096", &device.name()]);
        let busy = String::from_utf8_lossy(&fixed.stderr).contains("in use")
            || String::from_utf8_lossy(&fixed.stdout).contains("in use");
        if !busy || std::time::Instant::now() > until {
            return fixed.status.code();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn a_held_volume_stays_claimed_while_its_agent_is_dead_and_the_next_one_takes_the_claim_over() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = damaged(&tmp);
    let before = device.sha256();
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    node.start();
    node.await_held("main", "backup-superblock-found");
    let format = |when: &str| {
        let made = output("mkfs.ext4", &["-q", "-F", "-F", &device.name()]);
        assert!(!made.status.success(), "mkfs got at a held volume {when}");
    };
    node.kill_agent();
    format("while its agent was dead");
    node.start();
    node.await_held("main", "backup-superblock-found");
    format("under the next agent");
    assert_eq!(node.stop_agent(), Some(0));
    format("between two agents");
    assert_eq!(before, device.sha256());
}

#[test]
fn a_blank_volume_is_held_where_formatting_is_not_allowed() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp);
    let before = device.sha256();
    let mut node = Node::new();
    let mut guard = Guard::enforce("main", device.node(), &node.path("mnt"));
    guard.format = "never";
    node.configure(&[guard]);
    node.start();
    node.await_held("main", "policy-forbids-format");
    assert_eq!(before, device.sha256());
}

#[test]
fn a_mountpoint_with_something_in_it_is_held_and_the_hold_lists_what_is_there() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp);
    let mut node = Node::new();
    std::fs::create_dir(node.path("mnt")).unwrap();
    std::fs::write(node.path("mnt/etcd-wrote-here"), "while nothing was mounted").unwrap();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    node.start();
    let status = node.await_held("main", "mountpoint-not-empty");
    assert!(status["reasons"].to_string().contains("etcd-wrote-here"), "{status:#}");
}

#[test]
fn nothing_can_be_written_below_the_mountpoint_of_a_held_volume() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = damaged(&tmp);
    let mut node = Node::new();
    std::fs::create_dir(node.path("mnt")).unwrap();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    node.start();
    node.await_held("main", "backup-superblock-found");
    let error = std::fs::create_dir(node.path("mnt/data")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "an etcd could start on the root disk: {error}");
}

#[test]
fn two_guards_do_not_wait_for_each_other() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let bad = damaged(&tmp);
    let good = Loop::new(&disk::sparse(&tmp.join("other"), 64 * MIB));
    let mut node = Node::new();
    node.configure(&[
        Guard::enforce("main", bad.node(), &node.path("mnt")),
        Guard::enforce("events", good.node(), &node.path("events")),
    ]);
    node.start();
    node.await_open("events");
    node.await_held("main", "backup-superblock-found");
    assert!(node.ready_file("events").exists());
}

#[test]
fn eight_guards_open_side_by_side_and_none_is_in_the_way_of_another() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let mut node = Node::new();
    let names: Vec<String> = (0..8).map(|number| format!("guard-{number}")).collect();
    let devices: Vec<Loop> = names.iter().map(|name| Loop::new(&disk::sparse(&tmp.join(name), 32 * MIB))).collect();
    let guards: Vec<Guard> = names
        .iter()
        .zip(&devices)
        .map(|(name, device)| Guard::enforce(name, device.node(), &node.path(&format!("at-{name}"))))
        .collect();
    node.configure(&guards);
    node.start();
    // A child that one guard starts has copies of the others' claims for the moment between fork and exec.
    for name in &names {
        node.await_open(name);
    }
}
