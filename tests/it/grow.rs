//! A volume that becomes larger while etcd's data is on it: as ModifyVolume does it, told or grown, ext4 and XFS.

use crate::common::node::codes;
use crate::common::{Guard, Loop, Mounted, Node, Tmp, disk, fixture, run};
use disk::MIB;
use serde_json::{Value, json};
use std::path::Path;

const BEFORE: u64 = 320 * MIB;
const AFTER: u64 = 640 * MIB;

/// A filesystem with an etcd data dir in `data`, on a device that is as large as it.
fn volume(tmp: &Tmp, fstype: &str) -> Loop {
    let image = disk::sparse(&tmp.join("volume"), BEFORE);
    run(&format!("mkfs.{fstype}"), &["-q", &image.to_string_lossy()]);
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let device = Loop::new(&image);
    let mounted = Mounted::new(device.node(), &tmp.join("filled"));
    run("cp", &["-a", &tree.join("data").to_string_lossy(), &mounted.at().to_string_lossy()]);
    drop(mounted);
    device.await_free();
    device
}

/// What EC2 does to a volume that is attached: the kernel shows another size.
fn enlarge(tmp: &Tmp, device: &Loop) {
    let file = std::fs::File::options().write(true).open(tmp.join("volume")).expect("the image");
    file.set_len(AFTER).expect("a larger image");
    run("losetup", &["--set-capacity", &device.name()]);
}

/// Bytes that a filesystem has room for, as everybody sees it.
fn room(at: &Path) -> u64 {
    let said = nix::sys::statvfs::statvfs(at).expect("statvfs");
    said.blocks() * said.fragment_size()
}

/// Makes the agent look at the size: the next mark would.
fn nudge(node: &mut Node) {
    assert_eq!(node.stop_agent(), Some(0));
    node.start();
}

fn history(node: &Node) -> Vec<String> {
    let history = node.volhold(&["history", "main", "-o", "json"]).json();
    let entries = history["entries"].as_array().expect("entries").clone();
    let of_growing = entries.iter().filter(|entry| entry["decision"] == "grow");
    of_growing.map(|entry| entry["verdict"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The kernel lets an ext4 grow in use for whoever has this; a container's root may not have it.
fn may_grow_ext4() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("capabilities");
    let effective = u64::from_str_radix(effective.trim(), 16).expect("hex");
    effective >> CAP_SYS_RESOURCE & 1 == 1
}

fn is_told(status: &Value) -> bool {
    codes(&status["warnings"]).contains(&"volume-enlarged".to_owned())
}

#[test]
fn a_volume_that_became_larger_is_told_and_grown_only_where_the_configuration_says_so() {
    crate::needs_root!();
    for fstype in ["ext4", "xfs"] {
        let tmp = Tmp::new();
        let device = volume(&tmp, fstype);
        let mut node = Node::new();
        let at = node.path("mnt");
        let fstype = if fstype == "xfs" { "xfs" } else { "ext4" };
        let guard = || Guard::enforce("main", device.node(), &at).fstype(fstype).data_dir("data");
        node.configure(&[guard()]);
        node.start();
        let status = node.await_open("main");
        assert!(!is_told(&status), "{fstype}: {status:#}");
        let before = room(&at);
        let data = std::fs::read(at.join("data/member/snap/db")).expect("the backend");

        enlarge(&tmp, &device);
        nudge(&mut node);
        let status = node.await_status("main", "the larger volume", is_told);
        assert_eq!(status["gate"], "open", "{fstype}: {status:#}");
        let message = status["warnings"][0]["message"].as_str().unwrap_or_default();
        assert!(message.contains("640 MiB") && message.contains("320 MiB"), "{fstype}: {status:#}");
        assert_eq!((room(&at), history(&node)), (before, Vec::new()), "{fstype}: grown without being told to");

        let mut grows = guard();
        grows.more = "grow = \"online\"\n".to_owned();
        node.configure(&[grows]);
        nudge(&mut node);
        if fstype == "ext4" && !may_grow_ext4() {
            // Not here: then it is told what was in the way, and everything is as it was.
            let status = node.await_status("main", "what was in the way", |status| {
                status["warnings"].to_string().contains("CAP_SYS_RESOURCE")
            });
            assert_eq!((&status["gate"], room(&at)), (&json!("open"), before), "{status:#}");
            assert_eq!(history(&node).len(), 1, "on record before it was tried");
            println!("ext4 was not grown: this machine's root has no CAP_SYS_RESOURCE");
            continue;
        }
        let status = node.await_status("main", "a volume that has grown", |status| {
            status["gate"] == "open" && !is_told(status) && room(&at) > before + 256 * MIB
        });
        assert_eq!(status["would_hold"], false, "{fstype}: {status:#}");
        let told = history(&node);
        assert_eq!(told.len(), 2, "{fstype}: on record before and after: {told:?}");
        assert!(told[0].starts_with("grows from") && told[1].starts_with("grew from"), "{fstype}: {told:?}");
        assert_eq!(std::fs::read(at.join("data/member/snap/db")).expect("the backend"), data, "{fstype}");

        // Nothing more is to be done, also after a reboot, and the filesystem is sound.
        node.reboot();
        node.start();
        let status = node.await_open("main");
        assert!(!is_told(&status), "{fstype}: {status:#}");
        assert_eq!(history(&node).len(), 2, "{fstype}");
        node.reboot();
        match fstype {
            "xfs" => drop(run("xfs_repair", &["-n", &device.name()])),
            _ext4 => drop(run("e2fsck", &["-f", "-n", &device.name()])),
        }
    }
}
