//! Verbs that change a held volume, from the command line by way of the agent to the disk and back.

use crate::common::node::{Answer, PATIENCE, await_change, codes};
use crate::common::{Guard, Loop, Node, Tmp, disk, fixture, output, run};
use disk::MIB;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The dir that `state` selects on the volume of incident 2, the one with the old data, and what it is called afterwards.
pub const NEW: &str = "data/NMfO49sfJAXCvq4-VQE8Ug";
pub const OLD: &str = "var/etcd/data";
pub const BACK: &str = "data/etcd-cluster-token-etcd";

/// A volume as incident 2 left it, and the tree that it was made from.
pub struct Incident {
    pub tmp: Tmp,
    pub device: Loop,
    pub old: BTreeMap<PathBuf, String>,
    pub new: BTreeMap<PathBuf, String>,
}

impl Incident {
    pub fn new() -> Self {
        Incident::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&Path)) -> Self {
        let tmp = Tmp::new();
        let tree = tmp.join("tree");
        fixture::etcd_tree("kops-volume", &tree);
        change(&tree);
        let image = disk::sparse(&tmp.join("volume"), 160 * MIB);
        disk::mkfs_ext4(&image, Some(&tree));
        let (old, new) = (content(&tree.join(OLD)), content(&tree.join(NEW)));
        assert!(!old.is_empty());
        Incident { device: Loop::new(&image), tmp, old, new }
    }

    /// Without volhold: the agent is killed, its claim let go, and the volume mounted. Unmounted with the incident.
    #[track_caller]
    fn mounted_by_hand(&self, node: &mut Node) -> PathBuf {
        node.kill_agent();
        node.manager.empty_store();
        disk::await_free(self.device.node());
        let at = self.tmp.join("by-hand");
        std::fs::create_dir(&at).unwrap();
        run("mount", &[&self.device.name(), &at.to_string_lossy()]);
        at
    }

    pub fn node(&self) -> Node {
        let node = Node::new();
        node.configure(&[Guard::enforce("etcd-main", self.device.node(), &node.path("mnt"))]);
        node
    }
}

/// Every file below a folder, by its bytes.
pub fn content(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(dir).expect("below").to_owned(), disk::sha256(&path));
            }
        }
    }
    found
}

/// The only entry of the quarantine below a mounted volume.
#[track_caller]
pub fn quarantined(root: &Path) -> PathBuf {
    let entries: Vec<PathBuf> =
        std::fs::read_dir(root.join(".volhold/quarantine")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries[0].clone()
}

/// What is on record, in one line.
fn history(node: &Node, guard: &str) -> String {
    node.volhold(&["history", guard]).stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The end of an order is on record right after the verdict is told.
#[track_caller]
fn await_history(node: &Node, guard: &str, wanted: &str) {
    let seen = await_change(&node.path("state"), PATIENCE, || history(node, guard).contains(wanted));
    assert!(history(node, guard).contains(wanted), "{seen}: {}", history(node, guard));
}

#[track_caller]
fn done(answer: &Answer) -> Value {
    assert_eq!(answer.code, Some(0), "{answer:#?}");
    let change = answer.json();
    assert_eq!((&change["kind"], &change["done"]), (&"Change".into(), &true.into()), "{change:#}");
    change
}

/// `explain` as data: the table of data dirs.
#[track_caller]
pub fn cluster_of(node: &Node, dir: &str) -> String {
    let decision = std::fs::read_to_string(node.path("state/guards/etcd-main/decision.json")).expect("the decision");
    let decision: Value = serde_json::from_str(&decision).expect("JSON");
    fn find<'a>(value: &'a Value, dir: &str) -> Option<&'a Value> {
        match value {
            Value::Object(map) if map.get("path").is_some_and(|p| p == dir) && map.contains_key("fingerprint") => {
                Some(value)
            }
            Value::Object(map) => map.values().find_map(|v| find(v, dir)),
            Value::Array(list) => list.iter().find_map(|v| find(v, dir)),
            _other => None,
        }
    }
    let report = find(&decision, dir).unwrap_or_else(|| panic!("no {dir} in {decision:#}"));
    report["fingerprint"]["cluster_id"].as_str().expect("a cluster id").to_owned()
}

/// Incident 2, from detection to the way back.
#[test]
fn an_empty_etcd_beside_the_old_data_is_found_explained_and_rolled_back() {
    crate::needs_root!();
    let incident = Incident::new();
    let mut node = incident.node();
    node.start();
    node.await_held("etcd-main", "empty-beside-old");
    let explained = node.volhold(&["explain", "etcd-main", "-o", "json"]);
    let choices = explained.json()["choices"].to_string();
    assert!(choices.contains("volhold rollback etcd-main --to"), "{choices}");
    let cluster = cluster_of(&node, OLD);

    // The plan comes first, and without consent nothing follows.
    let before = disk::sha256(incident.device.node());
    let planned = node.volhold(&["rollback", "etcd-main", "--to", OLD]);
    assert_eq!(planned.code, Some(2), "{planned:#?}");
    assert!(planned.stdout.contains(NEW) && planned.stdout.contains(BACK), "{planned:#?}");
    assert!(planned.stderr.contains(&cluster), "{planned:#?}");
    let wrong = node.volhold(&["rollback", "etcd-main", "--to", OLD, "--confirm", "yes"]);
    assert_eq!(wrong.code, Some(2), "{wrong:#?}");
    assert_eq!(disk::sha256(incident.device.node()), before, "the volume was written to without consent");

    let change = done(&node.volhold(&["rollback", "etcd-main", "--to", OLD, "--confirm", &cluster, "-o", "json"]));
    assert_eq!(change["outcome"]["outcome"], "done", "{change:#}");
    let status = node.await_status("etcd-main", "open on the old data", |status| status["gate"] == "open");
    assert_eq!(status["data_dir"]["path"], BACK, "{status:#}");
    let mnt = node.path("mnt");
    assert_eq!(content(&mnt.join(BACK)), incident.old, "the old data dir is not what it was");
    let entry = quarantined(&mnt);
    assert_eq!(content(&entry.join("content")), incident.new);
    let manifest: Value = serde_json::from_slice(&std::fs::read(entry.join("manifest.json")).unwrap()).unwrap();
    assert_eq!((&manifest["from"], &manifest["order"]), (&NEW.into(), &change["recorded"]), "{manifest:#}");
    let state = node.volhold(&["state", "show", &mnt.join("state").to_string_lossy(), "-o", "json"]).json();
    assert_eq!(state["cluster_token"], "etcd-cluster-token-etcd", "{state:#}");
    assert_eq!((&state["etcd_version"], &state["new_cluster"]), (&"2.2.1".into(), &false.into()), "{state:#}");
    let verified = node.volhold(&["verify", &mnt.join(BACK).to_string_lossy(), "--for-version", "2.2.1"]);
    assert_eq!(verified.code, Some(0), "{verified:#?}");

    // On record before and after, and no second time by itself.
    await_history(&node, "etcd-main", "ordered: rename");
    await_history(&node, "etcd-main", ": done");
    node.reboot();
    node.start();
    node.await_open("etcd-main");
    assert_eq!(content(&node.path("mnt").join(BACK)), incident.old);
}

#[test]
fn what_is_put_aside_is_listed_and_comes_back() {
    crate::needs_root!();
    let incident = Incident::new();
    let mut node = incident.node();
    node.start();
    node.await_held("etcd-main", "empty-beside-old");
    let planned = node.volhold(&["quarantine", "etcd-main", NEW]);
    assert_eq!(planned.code, Some(2), "{planned:#?}");
    assert!(planned.stderr.contains("--yes"), "{planned:#?}");
    done(&node.volhold(&["quarantine", "etcd-main", NEW, "--yes", "-o", "json"]));
    node.await_status("etcd-main", "held for what state names", |status| {
        codes(&status["reasons"]).contains(&"data-vanished".to_owned())
    });
    let listed = node.volhold(&["quarantine", "list", "etcd-main", "-o", "json"]).json();
    assert_eq!(listed["entries"][0]["from"], NEW, "{listed:#}");
    let name = listed["entries"][0]["name"].as_str().unwrap().to_owned();
    done(&node.volhold(&["quarantine", "restore", "etcd-main", &name, "--yes", "-o", "json"]));
    let listed = node.volhold(&["quarantine", "list", "etcd-main", "-o", "json"]).json();
    assert_eq!(listed["entries"].as_array().map(Vec::len), Some(0), "{listed:#}");
    // What is not there, or must not be moved, is refused by the agent and said so.
    for (path, why) in [("no/such", "there is no"), (".volhold/ledger", "volhold's own"), ("../x", "upwards")] {
        let answer = node.volhold(&["quarantine", "etcd-main", path, "--yes"]);
        assert_eq!(answer.code, Some(4), "{answer:#?}");
        assert!(answer.stdout.contains(why), "{answer:#?}");
    }
}

#[test]
fn state_is_set_and_the_old_one_stays_beside_it() {
    crate::needs_root!();
    let incident = Incident::new();
    let state = std::fs::read(incident.tmp.join("tree/state")).unwrap();
    let mut node = incident.node();
    node.start();
    node.await_held("etcd-main", "empty-beside-old");
    let none = node.volhold(&["state", "set", "etcd-main", "--yes"]);
    assert_eq!(none.code, Some(2), "{none:#?}");
    let set = ["state", "set", "etcd-main", "--quarantined", "true", "--yes", "-o", "json"];
    done(&node.volhold(&set));
    // Two fields later the volume is as the way back wants it, and is looked at by somebody else.
    node.await_status("etcd-main", "held again", |status| status["gate"] == "held");
    let mnt = incident.mounted_by_hand(&mut node);
    let now = std::fs::read(mnt.join("state")).unwrap();
    let kept = std::fs::read_dir(&mnt).unwrap().map(|e| e.unwrap().path());
    let kept: Vec<_> = kept.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("state.")).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(std::fs::read(&kept[0]).unwrap(), state, "the old state is not what it was");
    // An independent decoder, where this machine has one.
    if output("sh", &["-c", "command -v protoc"]).status.success() {
        let line = r#"protoc --decode_raw < "$0""#;
        let said = output("sh", &["-c", line, &mnt.join("state").to_string_lossy()]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.lines().any(|line| line == "4: 1"), "{said}");
    }
    // The flag is the only difference: field 4, a bool.
    assert!(now.windows(2).any(|two| two == [0x20, 1]), "{now:02x?}");
}

#[test]
fn nothing_is_ordered_for_an_open_gate_or_one_that_observes() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let image = disk::sparse(&tmp.join("volume"), 64 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    let device = Loop::new(&image);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.start();
    node.await_open("main");
    for verb in [
        &["quarantine", "main", "data", "--yes"][..],
        &["state", "set", "main", "--quarantined", "true", "--yes"],
        &["rollback", "main", "--to", "data", "--confirm", "x"],
    ] {
        let answer = node.volhold(verb);
        assert_eq!(answer.code, Some(4), "{answer:#?}");
        assert!(answer.stderr.contains("open"), "{answer:#?}");
    }
    assert!(node.path("mnt/data/member").exists());
}

/// The place that the old dir has to go to is taken by something that is no data dir: that is found when the first of two
/// renames is done.
#[test]
fn an_order_that_cannot_be_finished_is_taken_back() {
    crate::needs_root!();
    let incident = Incident::with(|tree| std::fs::write(tree.join(BACK), "in the way").unwrap());
    let mut node = incident.node();
    node.start();
    node.await_held("etcd-main", "empty-beside-old");
    let cluster = cluster_of(&node, OLD);
    let answer = node.volhold(&["rollback", "etcd-main", "--to", OLD, "--confirm", &cluster, "-o", "json"]);
    assert_eq!(answer.code, Some(4), "{answer:#?}");
    let change = answer.json();
    assert_eq!((&change["done"], &change["outcome"]["outcome"]), (&false.into(), &"not-done".into()), "{change:#}");
    assert!(change["outcome"]["why"].as_str().unwrap().contains("taken"), "{change:#}");
    node.await_held("etcd-main", "empty-beside-old");
    let root = incident.mounted_by_hand(&mut node);
    assert_eq!(content(&root.join(NEW)), incident.new);
    assert_eq!(content(&root.join(OLD)), incident.old);
}

/// Ordered while no agent ran; by the time that one comes, another filesystem is there.
#[test]
fn an_order_is_for_the_filesystem_that_it_was_given_for() {
    crate::needs_root!();
    let incident = Incident::new();
    let mut node = incident.node();
    node.start();
    node.await_held("etcd-main", "empty-beside-old");
    node.kill_agent();
    let answer = node.volhold(&["quarantine", "etcd-main", NEW, "--yes"]);
    assert_eq!(answer.code, Some(75), "{answer:#?}");
    let second = node.volhold(&["quarantine", "etcd-main", OLD, "--yes"]);
    assert_eq!(second.code, Some(75), "one order at a time: {second:#?}");
    node.manager.empty_store();
    disk::await_free(incident.device.node());
    let device = incident.device.node().to_string_lossy().into_owned();
    run("e2fsck", &["-fy", &device]);
    run("tune2fs", &["-U", "random", &device]);
    node.start();
    node.await_verdict("etcd-main");
    await_history(&node, "etcd-main", "NOT done: it was ordered for filesystem");
    let root = incident.mounted_by_hand(&mut node);
    assert_eq!(content(&root.join(NEW)), incident.new, "another filesystem was changed");
}

/// A hold that comes before the mount: what was ordered tonight must not happen next week.
#[test]
fn an_order_that_its_look_does_not_come_to_is_given_up() {
    crate::needs_root!();
    let incident = Incident::new();
    let mut node = incident.node();
    node.start();
    node.await_held("etcd-main", "empty-beside-old");
    node.kill_agent();
    let answer = node.volhold(&["quarantine", "etcd-main", NEW, "--yes"]);
    assert_eq!(answer.code, Some(75), "{answer:#?}");
    node.manager.empty_store();
    disk::await_free(incident.device.node());
    let superblock = disk::read_at(incident.device.node(), 0, 4096);
    disk::zero(incident.device.node(), 0, 4096);
    node.start();
    node.await_held("etcd-main", "backup-superblock-found");
    await_history(&node, "etcd-main", "NOT done: the volume is held before");
    node.kill_agent();
    node.manager.empty_store();
    disk::await_free(incident.device.node());
    disk::write_at(incident.device.node(), 0, &superblock);
    node.start();
    node.await_held("etcd-main", "empty-beside-old");
    let root = incident.mounted_by_hand(&mut node);
    assert_eq!(content(&root.join(NEW)), incident.new, "an order of the past was carried out");
}

#[test]
fn unpin_forgets_whose_data_it_was_and_not_that_there_was_some() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let image = disk::sparse(&tmp.join("volume"), 64 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    let device = Loop::new(&image);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.start();
    let status = node.await_open("main");
    let volume = status["volume"].as_str().unwrap().to_owned();
    assert_eq!(node.volhold(&["unpin", "main"]).code, Some(2), "without consent");
    let answer = node.volhold(&["unpin", "main", "--confirm", &volume, "-o", "json"]);
    assert_eq!(answer.code, Some(0), "{answer:#?}");
    await_history(&node, "main", "does not count any more");
    // The running dir is pinned again, by the look that was asked for.
    node.kill_agent();
    node.start();
    node.await_open("main");
    let pins = history(&node, "main").matches(" pin cluster ").count();
    assert_eq!(pins, 2, "{}", history(&node, "main"));
}

/// A device on which something is written that only root may see.
fn with_a_secret(tmp: &Tmp) -> Loop {
    let image = disk::sparse(&tmp.join("volume"), 32 * MIB);
    disk::write_at(&image, 20 * MIB, b"hunter2-hunter2-hunter2");
    Loop::new(&image)
}

/// The sample of a block, which `explain` shows to whoever may read the device, may be the value of a key.
#[test]
fn a_report_tells_all_but_what_stands_on_the_volume() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_a_secret(&tmp);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    node.agent_env("AWS_SECRET_ACCESS_KEY", Some("wJalrXUtnFEMI"));
    node.start();
    node.await_held("main", "unknown-data");
    let hex = "6875 6e74 6572 322d";
    let decision = std::fs::read_to_string(node.path("state/guards/main/decision.json")).unwrap();
    assert!(decision.contains(hex), "there is nothing to leave out: {decision}");
    let answer = node.volhold(&["report", "main"]);
    assert_eq!(answer.code, Some(0), "{answer:#?}");
    let report = answer.json();
    assert_eq!(report["kind"], "Report");
    assert_eq!(codes(&report["status"]["reasons"]), ["unknown-data"], "{report:#}");
    assert_eq!(report["decision"]["evidence"]["device"]["node"], device.name(), "{report:#}");
    assert!(!report["history"].as_array().unwrap().is_empty());
    for secret in [hex, "hunter2", "wJalrXUtnFEMI"] {
        assert!(!answer.stdout.contains(secret), "{secret} in {}", answer.stdout);
    }
}

/// The status is for everybody, as its file is; what stands on a volume is for whoever may read the volume.
#[test]
fn what_stands_on_the_volume_is_shown_to_root_and_not_in_the_status() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = with_a_secret(&tmp);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    node.start();
    let status = node.await_held("main", "unknown-data").to_string();
    let hex = "6875 6e74 6572 322d";
    assert!(!status.contains(hex), "{status}");
    assert!(status.contains("bits of entropy in a byte, 01400000: shown to root by `volhold explain`"), "{status}");
    assert!(!node.log().contains(hex), "{}", node.log());
    let told = node.volhold(&["explain", "main"]);
    let words: Vec<&str> = told.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains(hex), "{told:#?}");
}
