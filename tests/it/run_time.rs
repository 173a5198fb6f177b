//! What happens on the volume after the gate has opened: told within a moment, and halted where the configuration says so. With
//! real etcds, and with cgroups of both versions as this machine has them.

use crate::common::etcd::{Etcd, Member};
use crate::common::node::codes;
use crate::common::{Guard, Loop, Node, Tmp, disk, fixture, run};
use crate::http::client::get;
use disk::MIB;
use serde_json::Value;
use std::path::{Path, PathBuf};

const GUARD: &str = "main";

/// A guard with an open gate over a real etcd that has one key.
struct Opened {
    etcd: Option<Etcd>,
    node: Node,
    _device: Loop,
    _tmp: Tmp,
}

impl Opened {
    #[track_caller]
    fn new(more: &str) -> Self {
        Self::with(more, &[])
    }

    #[track_caller]
    fn with(more: &str, etcd_flags: &[&str]) -> Self {
        let tmp = Tmp::new();
        let device = Loop::new(&disk::sparse(&tmp.join("volume"), 640 * MIB));
        let mut node = Node::new();
        let mut guard = Guard::enforce(GUARD, device.node(), &node.path("mnt")).data_dir("data");
        guard.more = more.to_owned();
        node.configure(&[guard]);
        node.start();
        node.await_open(GUARD);
        let mut member = Member::new("master-a", &node.path("mnt/data"));
        member.more = etcd_flags.iter().map(|&flag| flag.to_owned()).collect();
        let etcd = member.start();
        etcd.put("/registry/pods/one", "1");
        let mut opened = Opened { etcd: Some(etcd), node, _device: device, _tmp: tmp };
        // What is gone can be missed once it is on record.
        opened.await_recorded();
        opened
    }

    #[track_caller]
    fn await_recorded(&mut self) {
        let ledger = self.node.ledger(GUARD);
        let noted = || std::fs::read(&ledger).is_ok_and(|bytes| bytes.windows(10).any(|word| word == b"holds-data"));
        crate::common::node::await_change(&self.node.path("state"), crate::common::node::PATIENCE, noted);
        assert!(noted(), "{}", self.node.log());
    }

    fn data(&self) -> PathBuf {
        self.node.path("mnt/data")
    }

    fn etcd(&mut self) -> &mut Etcd {
        self.etcd.as_mut().expect("etcd")
    }

    /// Waits until the open gate is doubted for this reason.
    #[track_caller]
    fn doubted(&mut self, code: &str) -> Value {
        let status =
            self.node.await_status(GUARD, code, |status| codes(&status["reasons"]).iter().any(|it| it == code));
        assert_eq!((&status["gate"], &status["would_hold"]), (&"open".into(), &true.into()), "{status:#}");
        assert!(self.node.ready_file(GUARD).exists(), "an open gate was closed");
        let told = self.node.volhold(&["explain", GUARD, "-o", "json"]);
        assert!(told.codes().iter().any(|it| it == code), "explain does not name {code}: {told:#?}");
        let metrics = get(&self.node, "/metrics").body;
        assert!(metrics.contains("volhold_guard_would_hold{guard=\"main\"} 1"), "{metrics}");
        assert!(metrics.contains(&format!("reason=\"{code}\"")), "{metrics}");
        status
    }

    #[track_caller]
    fn at_ease(&mut self) -> Value {
        self.node.await_status(GUARD, "no doubt", |status| status["would_hold"] == false)
    }
}

#[test]
fn a_second_data_dir_that_appears_is_doubted_until_it_is_gone() {
    crate::needs_root!();
    let mut opened = Opened::new("");
    let second = Member::new("master-b", &opened.node.path("mnt/new")).start();
    let status = opened.doubted("second-data-dir");
    assert_eq!(status["reasons"][0]["detail"]["fresh"], true, "{status:#}");
    assert_eq!(status["data_dir"]["path"], "data", "{status:#}");
    second.stop();
    assert!(opened.etcd().lives(), "nothing was to be stopped");
    std::fs::remove_dir_all(opened.node.path("mnt/new")).expect("the second dir goes");
    opened.at_ease();
}

#[test]
fn what_was_put_away_beside_the_data_is_no_second_data_dir() {
    crate::needs_root!();
    let mut opened = Opened::new("");
    fixture::etcd_tree("v3.4.23-basic", &opened.node.path("tree"));
    let from = opened.node.path("tree/data");
    let copy = |to: PathBuf| {
        std::fs::create_dir_all(to.parent().expect("a parent")).expect("folders");
        run("cp", &["-a", &from.to_string_lossy(), &to.to_string_lossy()]);
    };
    for name in ["mnt/data-trashcan/one", "mnt/etcd-old-2026", "mnt/etcd-backup", "mnt/data.bak"] {
        copy(opened.node.path(name));
    }
    // The next one is looked at after them, and is none of these.
    copy(opened.node.path("mnt/copy"));
    let status = opened.doubted("second-data-dir");
    let told = status["reasons"].as_array().expect("reasons");
    assert!(told.len() == 1 && told[0]["detail"]["data_dir"] == "copy", "{status:#}");
    assert_eq!(told[0]["detail"]["fresh"], false, "{status:#}");
}

#[test]
fn a_data_dir_that_is_renamed_under_its_etcd_is_doubted_until_it_is_back() {
    crate::needs_root!();
    let mut opened = Opened::new("");
    let (data, away) = (opened.data(), opened.node.path("mnt/away"));
    std::fs::rename(&data, &away).expect("somebody renames it");
    let status = opened.doubted("data-vanished");
    assert_eq!(status["gate"], "open", "{status:#}");
    std::fs::rename(&away, &data).expect("and back");
    opened.at_ease();
    assert!(opened.etcd().lives());
}

#[test]
fn a_member_that_is_removed_under_its_etcd_is_vanished_and_etcd_astray() {
    crate::needs_root!();
    let mut opened = Opened::new("");
    std::fs::remove_dir_all(opened.data().join("member")).expect("somebody removes it");
    opened.doubted("data-vanished");
    opened.doubted("data-replaced");
}

#[test]
fn a_data_dir_that_is_replaced_by_its_own_copy_leaves_etcd_astray() {
    crate::needs_root!();
    let mut opened = Opened::new("");
    let (data, copy) = (opened.data(), opened.node.path("copy"));
    run("cp", &["-a", &data.to_string_lossy(), &copy.to_string_lossy()]);
    std::fs::create_dir(opened.node.path("mnt/old")).expect("a folder");
    std::fs::rename(data.join("member"), opened.node.path("mnt/old/once-member")).expect("the member goes");
    run("cp", &["-a", &copy.join("member").to_string_lossy(), &data.join("member").to_string_lossy()]);
    opened.doubted("data-replaced");
}

#[test]
fn a_dir_that_is_wiped_and_made_anew_by_another_cluster_is_doubted_as_changed() {
    crate::needs_root!();
    let mut opened = Opened::new("");
    let member = opened.etcd.take().expect("etcd").stop();
    std::fs::remove_dir_all(opened.data().join("member")).expect("somebody wipes it");
    let mut other = Member::new("somebody", &member.data_dir);
    other.more = vec!["--initial-cluster-token".to_owned(), "another".to_owned()];
    let etcd = other.start();
    etcd.put("/other", "1");
    let status = opened.node.await_status(GUARD, "another identity", |status| {
        codes(&status["reasons"]).iter().any(|code| ["identity-changed", "other-cluster"].contains(&code.as_str()))
    });
    assert_eq!((&status["gate"], &status["would_hold"]), (&"open".into(), &true.into()), "{status:#}");
}

/// etcd-manager's `state` names the data dir. The fixture is a volume of a real one.
#[test]
fn a_state_that_names_another_token_is_doubted_and_the_old_one_ends_that() {
    crate::needs_root!();
    let tmp = Tmp::new();
    fixture::etcd_tree("kops-running-3.4", &tmp.join("tree"));
    let image = disk::sparse(&tmp.join("volume"), 160 * MIB);
    disk::mkfs_ext4(&image, Some(&tmp.join("tree")));
    let device = Loop::new(&image);
    let mut node = Node::new();
    node.configure(&[Guard::enforce(GUARD, device.node(), &node.path("mnt"))]);
    node.start();
    let status = node.await_open(GUARD);
    assert_eq!(status["would_hold"], false, "{status:#}");
    let state = node.path("mnt/state");
    let old = std::fs::read(&state).expect("the state");
    let (token, other) = (b"4ZcTqJnZ2wb2SMAclzoh0g", b"anothertokenoftheserun");
    let at = old.windows(token.len()).position(|word| word == token).expect("its token");
    let mut new = old.clone();
    new[at..at + other.len()].copy_from_slice(other);
    // As etcd-manager writes it: in place.
    std::fs::write(&state, new).expect("another state");
    let status = node.await_status(GUARD, "a doubt", |status| status["would_hold"] == true);
    assert!(codes(&status["reasons"]).contains(&"data-vanished".to_owned()), "{status:#}");
    std::fs::create_dir_all(node.path("mnt/data/anothertokenoftheserun/member/snap")).expect("it makes its dir");
    node.await_status(GUARD, "the second incident", |status| {
        codes(&status["reasons"]).contains(&"empty-beside-old".to_owned())
    });
    std::fs::write(&state, old).expect("the old state");
    std::fs::remove_dir_all(node.path("mnt/data/anothertokenoftheserun")).expect("its dir goes");
    node.await_status(GUARD, "no doubt", |status| status["would_hold"] == false);
}

#[test]
fn a_healthy_etcd_that_defragments_compacts_snapshots_and_rotates_raises_nothing() {
    crate::needs_root!();
    let mut opened = Opened::with("at_run_time = \"freeze\"\n", &["--snapshot-count", "50", "--max-snapshots", "2"]);
    let snapshot = opened.node.path("mnt/backup.db");
    for round in 0..6 {
        let etcd = opened.etcd();
        let written = etcd.load(&format!("/load/{round}/"), 120).join().expect("a load");
        assert_eq!(written, 120);
        let revision = 100 * (round + 1);
        etcd.ctl(&["compact", &revision.to_string()]);
        etcd.ctl(&["defrag"]);
        etcd.ctl(&["snapshot", "save", &snapshot.to_string_lossy()]);
    }
    // A look that comes after all of that, which a person asks for.
    let before = opened.node.guard_status(GUARD).expect("a status");
    assert_eq!(before["would_hold"], false, "{before:#}\n{}", opened.node.log());
    let member = opened.etcd.take().expect("etcd").stop();
    opened.etcd = Some(member.start());
    opened.etcd().put("/after", "1");
    let log = std::fs::read_to_string(opened.node.path("agent.log")).expect("the log");
    for word in ["guard.doubt", "etcd.halted", "etcd.unhalted", "would-hold"] {
        assert!(!log.contains(word), "{log}");
    }
    let history = opened.node.volhold(&["history", GUARD]);
    assert!(!history.stdout.contains("would-hold"), "{history:#?}");
}

/// A cgroup of the test's own; what is in it goes back to where it was.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(hierarchy: &str) -> Self {
        let name = format!("volhold-test-{}-{hierarchy}", std::process::id());
        let at = Path::new("/sys/fs/cgroup").join(hierarchy).join(name);
        std::fs::create_dir(&at).expect("a cgroup");
        Cgroup(at)
    }

    fn take(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("a process joins");
    }

    fn frozen(&self) -> bool {
        let read = |name: &str| std::fs::read_to_string(self.0.join(name)).unwrap_or_default();
        read("cgroup.events").contains("frozen 1") || read("freezer.state").trim() == "FROZEN"
    }

    fn thaw(&self) {
        for (name, word) in [("cgroup.freeze", "0"), ("freezer.state", "THAWED")] {
            let knob = self.0.join(name);
            if knob.exists() {
                std::fs::write(knob, word).expect("it thaws");
            }
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.thaw();
        let procs = std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let above = self.0.parent().expect("a hierarchy").join("cgroup.procs");
        for pid in procs.lines() {
            std::fs::write(&above, pid).ok();
        }
        std::fs::remove_dir(&self.0).ok();
    }
}

fn is_halted(status: &Value) -> bool {
    codes(&status["warnings"]).iter().any(|code| code == "etcd-frozen")
}

#[track_caller]
fn frozen_in(hierarchy: &str) {
    let mut opened = Opened::new("at_run_time = \"freeze\"\n");
    let cgroup = Cgroup::new(hierarchy);
    let pid = opened.etcd().pid();
    cgroup.take(pid);
    // Whatever cannot be read, and whatever holds data, freezes nothing.
    fixture::etcd_tree("v3.4.23-basic", &opened.node.path("tree"));
    run(
        "cp",
        &["-a", &opened.node.path("tree/data").to_string_lossy(), &opened.node.path("mnt/copy").to_string_lossy()],
    );
    let status = opened.doubted("second-data-dir");
    assert!(!is_halted(&status) && !cgroup.frozen(), "{status:#}");

    std::fs::remove_dir_all(opened.data().join("member")).expect("somebody removes it");
    let status = opened.node.await_status(GUARD, "a halted etcd", is_halted);
    assert!(cgroup.frozen(), "{status:#}\n{}", opened.node.log());
    let told = status["warnings"].to_string();
    assert!(told.contains(&cgroup.0.display().to_string()) && told.contains("echo "), "{told}");
    assert!(opened.etcd().lives());
    let history = opened.node.volhold(&["history", GUARD]);
    assert!(history.stdout.contains("halts the cgroup"), "{history:#?}");
    // A person lets it run again, and it is not frozen a second time.
    cgroup.thaw();
    assert_eq!(opened.node.volhold(&["retry", GUARD]).code, Some(0));
    opened.node.await_status(GUARD, "no word of a frozen etcd", |status| !is_halted(status));
    assert!(!cgroup.frozen());
}

#[test]
fn by_policy_the_container_is_frozen_by_cgroup_v2() {
    crate::needs_root!();
    frozen_in("unified");
}

#[test]
fn by_policy_the_container_is_frozen_by_the_freezer_of_cgroup_v1() {
    crate::needs_root!();
    frozen_in("freezer");
}

#[test]
fn without_a_policy_nothing_is_frozen() {
    crate::needs_root!();
    let mut opened = Opened::new("");
    let cgroup = Cgroup::new("freezer");
    let pid = opened.etcd().pid();
    cgroup.take(pid);
    std::fs::remove_dir_all(opened.data().join("member")).expect("somebody removes it");
    opened.doubted("data-vanished");
    opened.doubted("data-replaced");
    assert!(!cgroup.frozen());
}
