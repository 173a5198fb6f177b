//! `plan repair` and `plan restore`: what they print is what works.

use crate::common::{Guard, Loop, Node, Tmp, disk, fixture, output, run};
use crate::orders::content;
use disk::MIB;
use serde_json::Value;
use std::path::Path;

/// A volume with etcd data, opened once, so that all of it is on record; then shut down.
fn known(tmp: &Tmp, node: &mut Node) -> Loop {
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let image = disk::sparse(&tmp.join("volume"), 160 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    let device = Loop::new(&image);
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.start();
    node.await_open("main");
    let marked = |status: &Value| !status["data_dir"].is_null();
    node.await_status("main", "the data dir", marked);
    node.reboot();
    device
}

fn commands(plan: &Value) -> Vec<String> {
    let list = plan["commands"].as_array().expect("commands");
    list.iter().map(|entry| entry["command"].as_str().expect("a command").to_owned()).collect()
}

#[track_caller]
fn shell(line: &str) {
    let said = output("sh", &["-c", line]);
    // e2fsck: 1 says that it has repaired.
    assert!(matches!(said.status.code(), Some(0 | 1)), "{line}: {said:?}");
}

/// Incident 1, from detection to the way back, by nothing but what volhold says to type.
#[test]
fn a_volume_whose_superblock_is_gone_is_found_explained_and_repaired_by_what_is_printed() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let mut node = Node::new();
    let device = known(&tmp, &mut node);
    let data = content(&tmp.join("tree/data"));
    disk::zero(device.node(), 0, 4096);
    node.start();
    node.await_held("main", "backup-superblock-found");
    let explained = node.volhold(&["explain", "main", "-o", "json"]).json();
    assert!(explained["choices"].to_string().contains("volhold plan repair main"), "{explained:#}");

    let before = disk::sha256(device.node());
    let answer = node.volhold(&["plan", "repair", "main", "-o", "json"]);
    assert_eq!(answer.code, Some(0), "{answer:#?}");
    let plan = answer.json();
    assert_eq!(plan["kind"], "RepairPlan");
    assert!(plan["checks"].as_array().unwrap().iter().all(|check| check["good"] == true), "{plan:#}");
    let lines = commands(&plan);
    assert!(lines.last().unwrap().ends_with("adopt main --restored"), "{lines:?}");
    let find =
        |words: &str| lines.iter().find(|l| l.starts_with(words)).unwrap_or_else(|| panic!("{words}: {lines:?}"));
    // On the copy first, where /elsewhere is a place that there is.
    let copy = tmp.join("copy.img").display().to_string();
    let on_copy = |line: &str| line.replace("/elsewhere/main.img", &copy);
    shell(&on_copy(find("dd ")));
    let repairs: Vec<&String> = lines.iter().filter(|line| line.starts_with("e2fsck -fy")).collect();
    assert_eq!(repairs.len(), 2, "{lines:?}");
    shell(&on_copy(repairs[0]));
    assert_eq!(disk::sha256(device.node()), before, "only the copy was to be changed");
    // Then on the volume, which is let go for it.
    let volume = node.guard_status("main").unwrap()["volume"].as_str().unwrap().to_owned();
    assert_eq!(node.volhold(&["release", "main", "--for", "1h", "--confirm", &volume]).code, Some(0));
    node.await_status("main", "released", |status| status.to_string().contains("released-by-operator"));
    assert!(disk::await_free(device.node()), "it was not let go");
    shell(repairs[1]);
    assert_eq!(node.volhold(&["retry", "main"]).code, Some(0));
    node.await_status("main", "open", |status| status["gate"] == "open");
    assert_eq!(content(&node.path("mnt/data")), data);
}

/// What `etcdctl snapshot save` writes: a backend with its SHA-256 behind it.
fn saved(db: &Path, into: &Path) {
    let line = r#"cp "$0" "$1" && sha256sum "$0" | cut -c1-64 | xxd -r -p >> "$1""#;
    run("sh", &["-c", line, &db.to_string_lossy(), &into.to_string_lossy()]);
}

#[test]
fn the_way_back_from_a_snapshot_names_this_member_and_how_far_it_was() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let mut node = Node::new();
    let _device = known(&tmp, &mut node);
    let snapshot = tmp.join("snapshot.db");
    saved(&tmp.join("tree/data/member/snap/db"), &snapshot);
    let from = snapshot.display().to_string();
    let answer = node.volhold(&["plan", "restore", "main", "--from", &from, "-o", "json"]);
    assert_eq!(answer.code, Some(0), "{answer:#?}");
    let plan = answer.json();
    let lines = commands(&plan);
    let line = lines.iter().find(|line| line.starts_with("etcdutl ")).expect("the line");
    let report = node.volhold(&["verify", &tmp.join("tree/data").to_string_lossy(), "-o", "json"]).json();
    let member = &report["fingerprint"]["members"][0];
    let (name, url) = (member["name"].as_str().unwrap(), member["peer_urls"][0].as_str().unwrap());
    for words in [
        format!("--name {name} "),
        format!("--initial-cluster {name}={url} "),
        format!("--initial-advertise-peer-urls {url} "),
        "--bump-revision 1".to_owned(),
        " --mark-compacted".to_owned(),
    ] {
        assert!(line.contains(&words), "{words}: {line}");
    }
    assert!(lines.last().unwrap().ends_with("adopt main --restored"), "{lines:?}");

    // One byte of it changed: its checksum says so.
    let length = std::fs::metadata(&snapshot).unwrap().len();
    disk::write_at(&snapshot, length - 1, &[disk::read_at(&snapshot, length - 1, 1)[0] ^ 1]);
    let answer = node.volhold(&["plan", "restore", "main", "--from", &from, "-o", "json"]);
    assert_eq!(answer.code, Some(4), "{answer:#?}");
    assert!(answer.json()["checks"].to_string().contains("WRONG"), "{answer:#?}");
    let other = node.volhold(&["plan", "restore", "main", "--from", &node.path("config.toml").to_string_lossy()]);
    assert_eq!(other.code, Some(5), "{other:#?}");
}
