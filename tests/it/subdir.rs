//! A guard that publishes directories of its volume, each at its own place: the rest of the volume stays unseen, all of them
//! become visible or none, and everything that holds for a whole volume holds for them.

use crate::common::etcd::Member;
use crate::common::node::codes;
use crate::common::tmp::{mount_table, mounts_below, unmount};
use crate::common::{Guard, Loop, Mounted, Node, Tmp, disk, fixture, output, run};
use disk::MIB;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use volhold::model::{Entry, Fact};
use volhold::record::ledger;

/// A volume on which an etcd may start once. Of xfs, which is not made below 300 MiB, one that somebody has made already:
/// reading every byte of so much takes a while.
fn fresh(tmp: &Tmp, fstype: &str) -> Loop {
    let image = match fstype {
        "xfs" => {
            let image = disk::sparse(&tmp.join("volume"), 320 * MIB);
            run("mkfs.xfs", &["-q", "-d", "agcount=4", &image.to_string_lossy()]);
            image
        }
        _ => disk::sparse(&tmp.join("volume"), 160 * MIB),
    };
    Loop::new(&image)
}

/// An ext4 with an etcd data dir in `etcd`, and what else `more` puts beside it.
fn with_data(tmp: &Tmp, more: impl FnOnce(&Path)) -> Loop {
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    std::fs::rename(tree.join("data"), tree.join("etcd")).expect("the data dir");
    more(&tree);
    let image = disk::sparse(&tmp.join("volume"), 64 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    Loop::new(&image)
}

fn guard(node: &Node, device: &Loop) -> Guard {
    Guard::enforce("main", device.node(), &node.path("unused"))
        .directories(&[("etcd", node.path("at/etcd"))])
        .data_dir("etcd")
}

fn two(node: &Node, device: &Loop) -> Guard {
    let directories = [("etcd", node.path("at/etcd")), ("srv/more", node.path("at/more"))];
    guard(node, device).directories(&directories)
}

/// The directory of the filesystem that is mounted at a path (mountinfo's field 4), where something is.
fn root_at(at: &Path) -> Option<String> {
    let text = std::fs::read_to_string("/proc/thread-self/mountinfo").expect("mountinfo");
    let mut fields = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields.find(|fields| Path::new(fields[4]) == at).map(|fields| fields[3].to_owned())
}

fn sealed(dir: &Path) -> bool {
    run("lsattr", &["-d", &dir.to_string_lossy()]).split(' ').next().unwrap_or_default().contains('i')
}

/// Looks at the whole volume from outside, while directories of it are published.
fn through_own_mount<T>(device: &Loop, look: impl FnOnce(&Path) -> T) -> T {
    let tmp = Tmp::new();
    let mounted = Mounted::new(device.node(), &tmp.join("whole"));
    look(mounted.at())
}

fn volume_ledger(device: &Loop) -> Vec<Entry> {
    let bytes = through_own_mount(device, |root| std::fs::read(root.join(".volhold/ledger")).expect("the ledger"));
    ledger::parse(&bytes).expect("a whole ledger").entries.into_iter().map(|(_, entry)| entry).collect()
}

#[track_caller]
fn held_and_unseen(node: &mut Node, code: &str) -> String {
    let status = node.await_held("main", code);
    assert_eq!(mounts_below(&node.path("")), Vec::<PathBuf>::new(), "something is visible of a held volume");
    status["reasons"][0]["message"].as_str().expect("a message").to_owned()
}

#[track_caller]
fn a_fresh_volume(fstype: &'static str) {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = fresh(&tmp, fstype);
    let mut node = Node::new();
    let mut fresh = two(&node, &device).fstype(fstype);
    fresh.more = "owner = \"4242:4343\"\ndir_mode = \"0750\"\n".to_owned();
    node.configure(&[fresh]);
    node.start();
    let status = node.await_open("main");
    for (at, from) in [("at/etcd", "/etcd"), ("at/more", "/srv/more")] {
        let at = node.path(at);
        // What kubeadm's preflight asks for: nothing in it, no `lost+found` and no `.volhold`.
        assert_eq!(std::fs::read_dir(&at).unwrap().count(), 0, "{}", at.display());
        let made = std::fs::metadata(&at).unwrap();
        assert_eq!((made.uid(), made.gid(), made.permissions().mode() & 0o7777), (4242, 4343, 0o750));
        assert_eq!(root_at(&at).as_deref(), Some(from));
        let mount = mount_table().into_iter().find(|mount| mount.at == at).expect("published");
        assert_eq!(mount.source, device.name(), "the canonical node");
        assert!(mount.options.starts_with("rw"), "{mount:?}");
        assert_eq!(status["publish_dirs"][usize::from(from != "/etcd")]["at"], at.to_string_lossy().as_ref());
    }
    assert_eq!(status["publish"], node.path("at/etcd").to_string_lossy().as_ref());
    let ready = std::fs::read_to_string(node.ready_file("main")).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["data_dir"], node.path("at/etcd").to_string_lossy().as_ref());
    assert_eq!(node.gate_check("main").code, Some(0), "{}", node.log());
    through_own_mount(&device, |root| assert!(root.join(".volhold/ledger").exists(), "the volume remembers"));

    // The agent runs on, and keeps nothing of the volume: who unmounts it has a free device.
    for at in ["at/etcd", "at/more"] {
        unmount(&node.path(at));
        assert!(sealed(&node.path(at)), "{at} was not sealed beneath");
    }
    device.await_free();
}

#[test]
fn a_fresh_ext4_gives_empty_directories_and_stays_out_of_the_way() {
    a_fresh_volume("ext4");
}

#[test]
fn a_fresh_xfs_gives_empty_directories_and_stays_out_of_the_way() {
    a_fresh_volume("xfs");
}

#[track_caller]
fn a_life(fstype: &'static str) {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = fresh(&tmp, fstype);
    let mut node = Node::new();
    node.configure(&[two(&node, &device).fstype(fstype)]);
    node.start();
    node.await_open("main");
    let mut etcd = Member::new("master-a", &node.path("at/etcd")).start();
    etcd.put("key", "before");
    let pid = etcd.pid();
    for end in ["SIGKILL", "SIGTERM"] {
        if end == "SIGKILL" {
            node.kill_agent();
        } else {
            assert_eq!(node.stop_agent(), Some(0), "{}", node.log());
        }
        assert_eq!(node.volhold(&["wait", "main", "--timeout", "1s"]).code, Some(0), "after {end}");
        node.start();
        node.await_open("main");
        assert!(etcd.lives() && etcd.pid() == pid, "{end} of the agent stopped etcd");
    }
    // The last thing that an agent does is to keep progress, on the volume as well.
    assert_eq!(node.stop_agent(), Some(0), "{}", node.log());
    let entries = volume_ledger(&device);
    assert!(entries.iter().any(|entry| matches!(entry.fact, Fact::HoldsData { .. })), "{entries:#?}");
    drop(etcd);
    assert_eq!(node.gate_check("main").code, Some(0));

    // Wiped while etcd is down. The node has forgotten: only the volume's own ledger, which nobody sees, can tell.
    std::fs::remove_file(node.ledger("main")).expect("the node's ledger");
    std::fs::remove_dir_all(node.path("at/etcd/member")).expect("the member");
    let check = node.gate_check("main");
    assert_eq!(check.code, Some(3), "{check:#?}");
    assert!(check.stderr.contains("data-vanished"), "{check:#?}");
}

#[test]
fn an_etcd_on_a_directory_of_ext4_is_left_alone_and_its_progress_kept() {
    a_life("ext4");
}

#[test]
fn an_etcd_on_a_directory_of_xfs_is_left_alone_and_its_progress_kept() {
    a_life("xfs");
}

#[test]
fn existing_data_is_published_and_comes_back_after_a_reboot() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_data(&tmp, |root| std::fs::create_dir_all(root.join("srv/more")).unwrap());
    let mut node = Node::new();
    node.configure(&[two(&node, &device)]);
    for boot in ["first", "second"] {
        node.start();
        node.await_open("main");
        assert!(node.path("at/etcd/member/snap/db").exists(), "{boot} boot");
        assert_eq!(node.gate_check("main").code, Some(0), "{boot} boot");
        node.reboot();
    }
}

#[test]
fn what_is_no_directory_of_the_volume_is_held_and_nothing_shown() {
    crate::needs_root!();
    type Put = fn(&Path);
    let cases: [(Put, &str); 4] = [
        (|root| symlink("/etc", root.join("srv")).unwrap(), "symbolic link"),
        (|root| symlink("etcd", root.join("srv")).unwrap(), "symbolic link"),
        (|root| std::fs::write(root.join("srv"), "x").unwrap(), "not a directory"),
        (|_| {}, "not there"),
    ];
    for (put, words) in cases {
        let tmp = Tmp::new();
        let device = with_data(&tmp, put);
        let mut node = Node::new();
        let directories = [("etcd", node.path("at/etcd")), ("srv", node.path("at/srv"))];
        node.configure(&[guard(&node, &device).directories(&directories)]);
        node.start();
        let message = held_and_unseen(&mut node, "not-publishable");
        assert!(message.contains(words) && message.contains("`srv`"), "{message}");
        assert_eq!(node.stop_agent(), Some(0));
        node.manager.empty_store();
        through_own_mount(&device, |root| {
            assert!(!root.join("srv").is_dir() || root.join("srv").is_symlink(), "made on a volume that was in use");
        });
    }
}

#[test]
fn a_directory_that_is_gone_from_a_volume_on_record_is_data_that_vanished() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_data(&tmp, |root| std::fs::create_dir_all(root.join("srv/more")).unwrap());
    let mut node = Node::new();
    node.configure(&[two(&node, &device)]);
    node.start();
    node.await_open("main");
    node.reboot();
    through_own_mount(&device, |root| std::fs::remove_dir_all(root.join("srv")).unwrap());
    node.start();
    let message = held_and_unseen(&mut node, "data-vanished");
    assert!(message.contains("`srv/more`"), "{message}");
}

#[test]
fn a_data_dir_outside_of_what_is_published_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_data(&tmp, |root| std::fs::create_dir(root.join("other")).unwrap());
    let mut node = Node::new();
    let mut outside = guard(&node, &device).directories(&[("other", node.path("at/other"))]);
    outside.data_dir = None;
    node.configure(&[outside]);
    node.start();
    let message = held_and_unseen(&mut node, "not-publishable");
    assert!(message.contains("`etcd`") && message.contains("other"), "{message}");
}

#[test]
fn where_one_place_is_taken_none_is_shown_and_the_hold_says_which() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = fresh(&tmp, "ext4");
    let mut node = Node::new();
    node.configure(&[two(&node, &device)]);
    let taken = node.path("at/more");
    std::fs::create_dir_all(&taken).unwrap();
    run("mount", &["-t", "tmpfs", "somebody", &taken.to_string_lossy()]);
    node.start();
    let status = node.await_held("main", "mount-failed");
    let message = status["reasons"][0]["message"].as_str().unwrap();
    assert!(message.contains(&*taken.to_string_lossy()), "{message}");
    assert_eq!(root_at(&node.path("at/etcd")), None, "one is visible and the other is not");
}

#[test]
fn another_directory_of_the_volume_at_the_place_is_noticed() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_data(&tmp, |root| std::fs::create_dir(root.join("other")).unwrap());
    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    node.start();
    node.await_open("main");
    let whole = Mounted::new(device.node(), &node.path("whole"));
    let at = node.path("at/etcd");
    unmount(&at);
    run("mount", &["--bind", &whole.at().join("other").to_string_lossy(), &at.to_string_lossy()]);
    let check = node.gate_check("main");
    assert_eq!(check.code, Some(3), "{check:#?}");
    assert!(check.stderr.contains("wrong-volume") && check.stderr.contains("/other"), "{check:#?}");
    // Nor does an agent that starts take it for its own.
    node.kill_agent();
    node.start();
    let status = node.await_verdict("main");
    assert_eq!(status["gate"], "held", "{status:#}");
}

#[test]
fn the_whole_volume_at_the_place_of_a_directory_is_not_taken_for_it() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_data(&tmp, |_| {});
    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    let by_others = Mounted::new(device.node(), &node.path("at/etcd"));
    node.start();
    node.await_held("main", "in-use");
    drop(by_others);
}

#[test]
fn one_that_somebody_unmounted_is_put_back_by_the_next_agent() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_data(&tmp, |root| std::fs::create_dir_all(root.join("srv/more")).unwrap());
    let mut node = Node::new();
    node.configure(&[two(&node, &device)]);
    node.start();
    node.await_open("main");
    assert_eq!(node.stop_agent(), Some(0));
    unmount(&node.path("at/more"));
    assert_eq!(node.gate_check("main").code, Some(3), "a directory is missing");
    node.start();
    node.await_open("main");
    assert_eq!(root_at(&node.path("at/more")).as_deref(), Some("/srv/more"));
    assert_eq!(node.gate_check("main").code, Some(0), "{}", node.log());
}

#[test]
fn an_open_gate_keeps_its_directories_whatever_the_configuration_says_then() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_data(&tmp, |_| {});
    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    node.start();
    node.await_open("main");
    let plain = Guard::enforce("main", device.node(), &node.path("whole")).data_dir("etcd");
    node.configure(&[plain]);
    node.reload();
    let status = node.await_status("main", "the warning", |status| {
        codes(&status["warnings"]).contains(&"config-changed".to_owned())
    });
    let told = status["warnings"][0]["message"].as_str().unwrap();
    assert!(told.contains("`publish`") && told.contains("etcd at "), "{told}");
    assert_eq!(node.stop_agent(), Some(0));
    node.start();
    node.await_open("main");
    assert_eq!(node.gate_check("main").code, Some(0), "{}", node.log());
    assert_eq!(root_at(&node.path("at/etcd")).as_deref(), Some("/etcd"));
    assert_eq!(root_at(&node.path("whole")), None);
}

#[test]
fn observe_mode_looks_through_the_mount_of_the_whole_volume_and_changes_nothing() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_data(&tmp, |_| {});
    let mut node = Node::new();
    let mut observe = guard(&node, &device);
    observe.mode = "observe";
    node.configure(&[observe]);
    // As a fstab with a bind mount has it.
    let whole = Mounted::new(device.node(), &node.path("whole"));
    let at = node.path("at/etcd");
    std::fs::create_dir_all(&at).unwrap();
    run("mount", &["--bind", &whole.at().join("etcd").to_string_lossy(), &at.to_string_lossy()]);
    node.start();
    let status = node.await_status("main", "a look", |status| status["state"] == "observing");
    assert_eq!((&status["would_hold"], &status["data_dir"]["path"]), (&false.into(), &"etcd".into()), "{status:#}");
    assert!(!whole.at().join(".volhold").exists());
    // And where only the directory is left, it says that it cannot see the rest.
    drop(whole);
    node.await_status("main", "the doubt", |status| {
        status["reasons"][0]["message"].as_str().is_some_and(|message| message.contains("/etcd at "))
    });
}

#[test]
fn what_is_read_and_written_for_a_moment_leaves_a_read_only_filesystem_as_it_is() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_data(&tmp, |_| {});
    let mut node = Node::new();
    node.configure(&[guard(&node, &device)]);
    node.start();
    node.await_open("main");
    // As ext4 does after an error with `errors=remount-ro`.
    run("mount", &["-o", "remount,ro", &node.path("at/etcd").to_string_lossy()]);
    let check = node.gate_check("main");
    assert_eq!(check.code, Some(0), "{check:#?}");
    let mounted = mount_table().into_iter().find(|mount| mount.at == node.path("at/etcd")).expect("published");
    assert!(mounted.super_options.starts_with("ro"), "a look made it writable: {mounted:?}");
}

/// On kernels that copy straight from a detached mount nobody asks for the other way: the parts on their own.
#[test]
fn directories_are_published_in_a_namespace_as_they_are_without() {
    use volhold::act::mount::{self, Way};
    use volhold::model::PublishDir;
    crate::needs_root!();
    for way in [Way::Any, Way::InNamespace] {
        let tmp = Tmp::new();
        let device = with_data(&tmp, |root| {
            std::fs::create_dir_all(root.join("other/inner")).unwrap();
            symlink("other", root.join("link")).unwrap();
        });
        let places: Vec<PathBuf> = ["one", "two"].map(|name| tmp.join(name)).to_vec();
        for place in &places {
            std::fs::create_dir(place).unwrap();
        }
        let publish = |froms: [&str; 2]| {
            let entries = froms.iter().zip(&places);
            let entries: Vec<PublishDir> =
                entries.map(|(from, at)| PublishDir { from: (*from).to_owned(), at: at.clone() }).collect();
            let mut opened = crate::device::open(device.node());
            // Another test's mount namespace may hold a copy of the last mount for an instant.
            let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while opened.claim().is_err() && std::time::Instant::now() < until {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            assert!(opened.claimed(), "nobody else has the device");
            let writable = mount::examine(&mut opened, "ext4", &[]).unwrap().make_writable(&mut opened, &[]).unwrap();
            let published = writable.publish_directories_by(&entries, way);
            // Nothing of it is left to keep the device busy.
            if published.is_err() {
                opened.reclaim().expect("the device is free");
            }
            published
        };
        for bad in ["missing", "link", "link/inner", "../etcd", "other/../other/../..", "/etcd"] {
            let reason = publish(["etcd", bad]).unwrap_err().reason();
            assert_eq!(reason.code.as_str(), "not-publishable", "{way:?} {bad}: {reason:?}");
            assert_eq!(mounts_below(tmp.path()), Vec::<PathBuf>::new(), "{way:?} {bad}");
        }
        publish(["etcd", "other"]).unwrap();
        assert_eq!(places.iter().map(|at| root_at(at).unwrap()).collect::<Vec<_>>(), ["/etcd", "/other"], "{way:?}");
        assert_eq!(mounts_below(tmp.path()).len(), 2, "{way:?}: something else was left mounted");
        assert!(places[0].join("member").exists(), "{way:?}");
        std::fs::write(places[1].join("new"), "x").expect("writable");
    }
}

/// The parts on their own: the second cannot be moved, because its place is in no namespace.
#[test]
fn where_the_second_cannot_be_moved_the_first_is_taken_back() {
    use volhold::act::mount;
    use volhold::model::PublishDir;
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_data(&tmp, |root| std::fs::create_dir(root.join("other")).unwrap());
    let mut opened = crate::device::open(device.node());
    opened.claim().unwrap();
    let examined = mount::examine(&mut opened, "ext4", &[]).unwrap();
    let writable = examined.make_writable(&mut opened, &[]).unwrap();
    let (first, lost) = (tmp.join("first"), tmp.join("lost"));
    std::fs::create_dir(&first).unwrap();
    std::fs::create_dir(&lost).unwrap();
    run("mount", &["-t", "tmpfs", "lost", &lost.to_string_lossy()]);
    std::fs::create_dir(lost.join("second")).unwrap();
    let held = std::fs::File::open(lost.join("second")).unwrap();
    run("umount", &["--lazy", &lost.to_string_lossy()]);
    let second = PathBuf::from(format!("/proc/self/fd/{}/.", std::os::fd::AsRawFd::as_raw_fd(&held.as_fd())));
    let entry = |from: &str, at: &Path| PublishDir { from: from.into(), at: at.into() };
    let failed = writable.publish_directories(&[entry("etcd", &first), entry("other", &second)]).unwrap_err();
    let reason = failed.reason();
    assert!(reason.message.contains(&*second.to_string_lossy()), "{reason:?}");
    assert!(reason.message.contains(&format!("{} was taken back", first.display())), "{reason:?}");
    assert_eq!(root_at(&first), None, "the first is still visible");
    opened.reclaim().expect("the device is free");
}

#[test]
fn each_place_is_sealed_before_the_volume_is_found() {
    crate::needs_root!();
    let mut node = Node::new();
    let nowhere = node.path("no-such-device");
    let directories = [("etcd", node.path("at/etcd")), ("more", node.path("at/more"))];
    node.configure(&[Guard::enforce("main", &nowhere, &node.path("unused")).directories(&directories)]);
    node.start();
    node.await_held("main", "device-missing");
    for at in ["at/etcd", "at/more"] {
        assert!(sealed(&node.path(at)), "{at}");
        assert!(!output("touch", &[&node.path(at).join("x").to_string_lossy()]).status.success(), "{at}");
    }
}
