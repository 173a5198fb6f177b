//! The volume under an open gate goes wrong: its mount, its device, its writes. Told by status, metrics and journal; never a gate
//! closed for it.

use crate::common::errfs::ErrFs;
use crate::common::etcd::Member;
use crate::common::node::codes;
use crate::common::{Guard, Loop, Node, Tmp, disk, output, run};
use crate::http::client::get;
use disk::MIB;
use serde_json::Value;
use std::path::{Path, PathBuf};

const GUARD: &str = "main";

/// A gate that is open over a new volume.
struct Opened {
    node: Node,
    device: PathBuf,
}

impl Opened {
    #[track_caller]
    fn on(device: &Path) -> Self {
        let mut node = Node::new();
        node.configure(&[Guard::enforce(GUARD, device, &node.path("mnt")).data_dir("data")]);
        node.start();
        node.await_open(GUARD);
        let mut opened = Opened { node, device: device.to_owned() };
        let status = opened.await_sight("a first look", |watch| watch["mount"]["state"] == "in-place");
        let watch = &status["watch"];
        assert_eq!((&watch["device"]["state"], &watch["access"]["state"]), (&"present".into(), &"writable".into()));
        assert_eq!((&status["would_hold"], &status["warnings"]), (&false.into(), &Value::Array(Vec::new())));
        opened
    }

    fn mnt(&self) -> String {
        self.node.path("mnt").to_string_lossy().into_owned()
    }

    #[track_caller]
    fn await_sight(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.node.await_status(GUARD, what, |status| wanted(&status["watch"]))
    }

    /// Waits until the open gate is doubted for this reason, and looks for it everywhere that a person would.
    #[track_caller]
    fn doubted(&mut self, code: &str, metric: &str) -> Value {
        let status =
            self.node.await_status(GUARD, code, |status| codes(&status["reasons"]).iter().any(|it| it == code));
        assert_eq!((&status["gate"], &status["would_hold"]), (&"open".into(), &true.into()), "{status:#}");
        assert!(self.node.ready_file(GUARD).exists(), "an open gate was closed");
        let metrics = get(&self.node, "/metrics").body;
        assert!(metrics.contains(&format!("{metric}\n")), "{metric}: {metrics}");
        assert!(metrics.contains(&format!("reason=\"{code}\"")), "{metrics}");
        let log = self.log();
        assert_eq!(log.lines().filter(|line| found(line, code)).count(), 1, "told once: {log}");
        let told = self.node.volhold(&["explain", GUARD, "-o", "json"]);
        assert!(told.codes().iter().any(|it| it == code), "explain does not name {code}: {told:#?}");
        status
    }

    #[track_caller]
    fn at_ease(&mut self, code: &str) {
        let status = self.node.await_status(GUARD, "no doubt", |status| status["would_hold"] == false);
        assert_eq!(status["gate"], "open", "{status:#}");
        let log = self.log();
        assert!(log.lines().any(|line| line.contains("watch.over") && line.contains(code)), "{log}");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.node.path("agent.log")).expect("the log")
    }
}

fn found(line: &str, code: &str) -> bool {
    line.contains("watch.found") && line.contains(code)
}

/// A new volume; the file under the device is `volume` in the folder.
fn volume() -> (Tmp, Loop) {
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 160 * MIB));
    (tmp, device)
}

#[test]
fn a_mount_that_is_taken_away_is_told_until_it_is_back() {
    crate::needs_root!();
    let (_tmp, device) = volume();
    let mut opened = Opened::on(device.node());
    run("umount", &["--lazy", &opened.mnt()]);
    let status = opened.doubted("mount-lost", "volhold_mount_in_place{guard=\"main\"} 0");
    assert_eq!(status["watch"]["mount"]["state"], "gone", "{status:#}");
    run("mount", &[&opened.device.to_string_lossy(), &opened.mnt()]);
    opened.at_ease("mount-lost");
    run("umount", &["--lazy", &opened.mnt()]);
}

#[test]
fn a_mount_over_the_volume_or_over_its_data_dir_is_told() {
    crate::needs_root!();
    let (_tmp, device) = volume();
    let mut opened = Opened::on(device.node());
    std::fs::create_dir_all(opened.node.path("mnt/data")).expect("the data dir");
    for at in [opened.mnt(), format!("{}/data", opened.mnt())] {
        run("mount", &["-t", "tmpfs", "somebodys", &at]);
        let status =
            opened.node.await_status(GUARD, "a shadow", |status| status["watch"]["mount"]["state"] == "shadowed");
        assert!(codes(&status["reasons"]).contains(&"mount-lost".to_owned()), "{status:#}");
        assert_eq!((&status["watch"]["mount"]["at"], &status["gate"]), (&at.clone().into(), &"open".into()));
        let message = status["reasons"].to_string();
        assert!(message.contains("tmpfs (somebodys)") && message.contains(&at), "{message}");
        run("umount", &[&at]);
        opened.at_ease("mount-lost");
    }
}

#[test]
fn a_volume_that_is_remounted_read_only_is_told_until_it_is_writable_again() {
    crate::needs_root!();
    let (_tmp, device) = volume();
    let mut opened = Opened::on(device.node());
    run("mount", &["-o", "remount,ro", &opened.mnt()]);
    opened.doubted("filesystem-read-only", "volhold_filesystem_read_only{guard=\"main\"} 1");
    run("mount", &["-o", "remount,rw", &opened.mnt()]);
    opened.at_ease("filesystem-read-only");
}

/// The mount table of most kernels says `rw` after it.
#[test]
fn an_error_that_ext4_meets_is_counted_and_told_as_a_warning() {
    crate::needs_root!();
    let (_tmp, device) = volume();
    let mut opened = Opened::on(device.node());
    let name = opened.device.file_name().expect("a name").to_owned();
    let trigger = Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error");
    std::fs::write(&trigger, "the test\n").expect("an error of ext4");
    let status = opened.await_sight("an error", |watch| watch["filesystem_errors"] == 1);
    assert!(codes(&status["warnings"]).contains(&"filesystem-errors".to_owned()), "{status:#}");
    let metrics = get(&opened.node, "/metrics").body;
    assert!(metrics.contains("volhold_filesystem_errors{guard=\"main\"} 1\n"), "{metrics}");
    assert!(metrics.contains("volhold_guard_warning{guard=\"main\",reason=\"filesystem-errors\"} 1\n"), "{metrics}");
    let log = opened.log();
    assert_eq!(log.lines().filter(|line| found(line, "filesystem-errors")).count(), 1, "{log}");
}

/// As an EBS volume that is detached by force: it is listed, and every write fails.
#[test]
fn a_disk_that_loses_its_size_is_told_and_so_are_the_writes_that_fail() {
    crate::needs_root!();
    let (tmp, device) = volume();
    let mut opened = Opened::on(device.node());
    let file = std::fs::OpenOptions::new().write(true).open(tmp.join("volume")).expect("the file under it");
    file.set_len(0).expect("it is cut off");
    run("losetup", &["--set-capacity", &opened.device.to_string_lossy()]);
    let status = opened.doubted("device-lost", "volhold_device_present{guard=\"main\"} 0");
    assert_eq!(status["watch"]["device"]["state"], "empty", "{status:#}");
    let status = opened.await_sight("a test write", |watch| !watch["write"].is_null());
    let told = codes(&status["reasons"]);
    assert!(told.iter().any(|code| ["write-failed", "filesystem-read-only"].contains(&code.as_str())), "{status:#}");
    assert_ne!(status["watch"]["write"]["state"], "done", "{status:#}");
    assert!(opened.node.ready_file(GUARD).exists(), "an open gate was closed");
}

/// Lets a stopped process go on, also when the test fails: whoever waits for it cannot be killed.
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Self {
        run("kill", &["-STOP", &pid.to_string()]);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        run("kill", &["-CONT", &self.0.to_string()]);
    }
}

#[test]
fn a_disk_that_stalls_is_told_and_the_agent_goes_on() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let bad = ErrFs::new(&disk::sparse(&tmp.join("volume"), 160 * MIB), &tmp.join("fuse"), &[]).disk();
    let mut opened = Opened::on(bad.node.node());
    opened.await_sight("a test write", |watch| watch["write"]["state"] == "done");
    let stopped = Stopped::new(bad.server_pid());
    opened.doubted("write-stalled", "volhold_write_test_success{guard=\"main\"} 0");
    // A second guard's hints are heard meanwhile, and so are a person's questions.
    assert_eq!(opened.node.volhold(&["status", "-o", "json"]).code, Some(0));
    drop(stopped);
    opened.await_sight("the write", |watch| watch["write"]["state"] == "done");
    opened.at_ease("write-stalled");
}

#[test]
fn a_filesystem_that_runs_full_is_told_and_so_is_the_etcd_on_it() {
    crate::needs_root!();
    let (_tmp, device) = volume();
    let mut opened = Opened::on(device.node());
    let etcd = Member::new("master-a", &opened.node.path("mnt/data")).start();
    let pid = etcd.pid();
    opened.await_sight("an etcd", |watch| {
        watch["etcd"]["state"] == "running" && watch["etcd"]["pids"] == serde_json::json!([pid])
    });
    let metrics = get(&opened.node, "/metrics").body;
    assert!(metrics.contains("volhold_etcd_running{guard=\"main\"} 1\n"), "{metrics}");
    etcd.stop();
    let filler = opened.node.path("mnt/somebodys");
    // dd ends when nothing is left.
    output("dd", &["if=/dev/zero", &format!("of={}", filler.display()), "bs=1M"]);
    let status = opened.await_sight("a full filesystem", |watch| watch["space"]["state"] == "full");
    assert!(codes(&status["warnings"]).contains(&"no-space".to_owned()), "{status:#}");
    assert_eq!((&status["gate"], &status["watch"]["write"]["state"]), (&"open".into(), &"done".into()), "{status:#}");
    opened.await_sight("no etcd", |watch| watch["etcd"]["state"] == "not-running");
    std::fs::remove_file(&filler).expect("the file goes");
    let status = opened.await_sight("room", |watch| watch["space"]["state"] == "enough");
    assert!(!codes(&status["warnings"]).contains(&"no-space".to_owned()), "{status:#}");
}
