//! What else is on the machine when the agent works: a second agent, an etcd that somebody else started, people who ask without
//! being root, loop devices of others that hang.

use crate::common::errfs::BadDisk;
use crate::common::etcd::Member;
use crate::common::node::{PATIENCE, await_change, codes};
use crate::common::{ErrFs, Guard, Loop, Mounted, Node, Tmp, disk, fixture};
use disk::MIB;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

/// A node with an open gate over a volume that volhold made, and its agent running.
fn opened(tmp: &Tmp) -> (Loop, Node) {
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 256 * MIB));
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.start();
    node.await_open("main");
    (device, node)
}

#[test]
fn a_second_agent_is_refused_and_the_first_one_and_its_gate_stay() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, mut node) = opened(&tmp);
    let refused = node.second_agent().expect("a second agent works beside the first one");
    assert_eq!(refused.code, Some(1), "{refused:#?}");
    let told = refused.stdout + &refused.stderr;
    assert!(told.contains(&format!("process {}", node.agent_pid())), "it does not say who the first one is: {told}");
    node.await_open("main");
    assert_eq!(node.volhold(&["wait", "main", "--timeout", "1s"]).code, Some(0));
    // Whatever becomes of the first one, its place is free for the next.
    node.kill_agent();
    node.start();
    node.await_open("main");
}

/// The second incident while it happens: an etcd was started by hand on a new dir beside the old data.
#[test]
fn an_etcd_that_runs_on_an_empty_dir_beside_the_old_data_is_doubted_and_runs_on() {
    crate::needs_root!();
    let tmp = Tmp::new();
    fixture::etcd_tree("v3.4.23-basic", &tmp.join("tree"));
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 256 * MIB));
    disk::mkfs_ext4(device.node(), Some(&tmp.join("tree")));
    let mut node = Node::new();
    let at = node.path("mnt");
    let _mounted = Mounted::new(device.node(), &at);
    let mut etcd = Member::new("master-a", &at.join("new")).start();
    let pid = etcd.pid();

    node.configure(&[Guard::enforce("main", device.node(), &at).data_dir("data")]);
    node.start();
    let status = node.await_open("main");
    assert_eq!((&status["would_hold"], &status["state"]), (&true.into(), &"degraded".into()), "{status:#}");
    assert!(codes(&status["reasons"]).contains(&"empty-beside-old".to_owned()), "{status:#}");
    let explained = node.volhold(&["explain", "main"]);
    assert!(explained.stdout.starts_with("main is OPEN, and would be held"), "{explained:#?}");
    // It says so and does nothing about it.
    assert!(etcd.lives() && etcd.pid() == pid);
    etcd.put("key", "value");
}

#[test]
fn adopt_is_refused_where_the_gate_is_open_and_nothing_speaks_against_it() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, node) = opened(&tmp);
    let volume = node.guard_status("main").expect("a status")["volume"].as_str().expect("a volume id").to_owned();
    let refused = node.volhold(&["adopt", "main", "--new-cluster", "--confirm", &volume]);
    assert_eq!(refused.code, Some(4), "{refused:#?}");
    let ledger = std::fs::read(node.ledger("main")).expect("the ledger");
    let adopted = ledger.windows(8).any(|word| word == b"\"adopted");
    assert!(!adopted, "an answer to no question is on record, and would answer one of later");
}

#[test]
fn who_is_not_root_is_told_so_by_gate_check_and_not_that_etcd_may_not_start() {
    crate::needs_root!();
    let mut node = Node::new();
    node.become_nobody();
    node.configure(&[Guard::enforce("main", "/dev/volhold-test-nothing", &node.path("mnt"))]);
    let checked = node.gate_check("main");
    assert_eq!(checked.code, Some(77), "{checked:#?}");
    assert!(checked.stderr.contains("ExecStartPre=+"), "it does not say how a unit asks as root: {checked:#?}");
}

#[test]
fn a_gate_check_that_refuses_asks_the_agent_to_look_too() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, mut node) = opened(&tmp);
    let etcd = Member::new("master-a", &node.path("mnt/data")).start();
    etcd.put("key", "value");
    etcd.stop();
    assert_eq!(node.stop_agent(), Some(0), "{}", node.log());
    assert_eq!(node.gate_check("main").code, Some(0));
    let request = node.run_dir().join("requests/main");
    assert!(!request.exists(), "a check that lets etcd start asks for nothing");
    std::fs::remove_dir_all(node.path("mnt/data/member")).expect("somebody wipes the dir");
    assert_eq!(node.gate_check("main").code, Some(3));
    assert!(request.exists(), "nobody asks the agent to look");
    node.start();
    let status = node.await_status("main", "what gate check says", |status| status["would_hold"] == true);
    assert!(codes(&status["reasons"]).contains(&"data-vanished".to_owned()), "{status:#}");
}

#[test]
fn a_gate_that_opened_fresh_stays_so_over_a_restart_and_its_first_key_is_on_record_at_once() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, mut node) = opened(&tmp);
    let etcd = Member::new("master-a", &node.path("mnt/data")).start();
    assert_eq!(node.stop_agent(), Some(0), "{}", node.log());
    node.start();
    node.await_open("main");
    // By itself a running etcd gives no sign of its first key: only who knows that the dir held none yet looks for it.
    etcd.put("key", "value");
    let ledger = node.ledger("main");
    let noted = || std::fs::read(&ledger).is_ok_and(|bytes| bytes.windows(10).any(|word| word == b"holds-data"));
    // Ten seconds are promised; timers that look only at every open gate take five minutes.
    await_change(&node.path("state"), Duration::from_secs(60), noted);
    assert!(noted(), "nothing says that the dir holds data\n{}", node.log());
}

/// The server of a FUSE file stops answering, and goes on when this is dropped.
struct Frozen(Pid);

impl Frozen {
    fn new(disk: &BadDisk) -> Self {
        let server = Pid::from_raw(disk.server_pid().cast_signed());
        kill(server, Signal::SIGSTOP).expect("SIGSTOP to the FUSE server");
        Frozen(server)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGCONT).ok();
    }
}

/// Opens a healthy volume beside a loop device of somebody else.
#[track_caller]
fn opens_beside(trouble: &str) {
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 32 * MIB));
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    node.start();
    let status = node.await_verdict("main");
    assert_eq!(status["gate"], "open", "{trouble}: {status:#}\n{}", node.log());
}

#[test]
fn a_loop_device_of_somebody_else_that_hangs_holds_no_healthy_volume() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let others = ErrFs::new(&disk::sparse(&tmp.join("other"), 16 * MIB), &tmp.join("fuse"), &[]).disk();
    let _frozen = Frozen::new(&others);
    // What the kernel remembers of the file is good for a second: only then is the server asked.
    let until = std::time::Instant::now() + PATIENCE;
    while hears_of(&tmp.join("fuse/disk")) && std::time::Instant::now() < until {}
    opens_beside("the loop device of somebody else hangs");
}

/// Does anybody answer for this path within half a second?
fn hears_of(path: &std::path::Path) -> bool {
    let asked =
        crate::common::output("timeout", &["--signal=KILL", "0.5", "stat", "--cached=never", &path.to_string_lossy()]);
    asked.status.success()
}

#[test]
fn a_loop_device_of_somebody_else_that_cannot_say_what_is_under_it_holds_no_healthy_volume() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let others = ErrFs::new(&disk::sparse(&tmp.join("other"), 16 * MIB), &tmp.join("fuse"), &[]).disk();
    kill(Pid::from_raw(others.server_pid().cast_signed()), Signal::SIGKILL).expect("SIGKILL to the FUSE server");
    let until = std::time::Instant::now() + PATIENCE;
    while tmp.join("fuse/disk").metadata().is_ok() && std::time::Instant::now() < until {}
    assert!(tmp.join("fuse/disk").metadata().is_err(), "the FUSE server is still there");
    opens_beside("the loop device of somebody else is mute");
}
