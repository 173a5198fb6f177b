//! Incident C: data that went away, and deaths of etcd that are nobody's fault and must never be held.

use crate::common::etcd::{Etcd, Member};
use crate::common::node::{PATIENCE, await_change};
use crate::common::{Guard, Loop, Node, Tmp, disk};
use disk::MIB;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A node with one guard on a volume that begins blank.
struct Master {
    node: Node,
    _device: Loop,
    _tmp: Tmp,
}

const GUARD: &str = "main";

impl Master {
    fn new(size: u64) -> Self {
        let tmp = Tmp::new();
        let device = Loop::new(&disk::sparse(&tmp.join("volume"), size));
        let node = Node::new();
        node.configure(&[Guard::enforce(GUARD, device.node(), &node.path("mnt")).data_dir("data")]);
        Master { node, _device: device, _tmp: tmp }
    }

    /// Agent up, gate open, etcd's member described but not started.
    #[track_caller]
    fn opened(size: u64) -> (Self, Member) {
        let mut master = Master::new(size);
        master.node.start();
        master.node.await_open(GUARD);
        let member = Member::new("master-a", &master.data_dir());
        (master, member)
    }

    fn data_dir(&self) -> PathBuf {
        self.node.path("mnt/data")
    }

    #[track_caller]
    fn boot(&mut self) {
        self.node.reboot();
        self.node.start();
    }

    #[track_caller]
    fn gate_check_passes(&self) {
        let checked = self.node.gate_check(GUARD);
        assert_eq!(checked.code, Some(0), "{checked:#?}\n{}", self.node.log());
    }

    #[track_caller]
    fn gate_check_refuses(&self, reason: &str) {
        let checked = self.node.gate_check(GUARD);
        assert_eq!(checked.code, Some(3), "{checked:#?}");
        assert!(checked.stderr.contains(reason), "{checked:#?}");
    }
}

/// Ends the agent properly, so that its last reading is recorded, and etcd too.
fn shut_down(master: &mut Master, etcd: Etcd) -> Member {
    let member = etcd.stop();
    assert_eq!(master.node.stop_agent(), Some(0));
    member
}

#[test]
fn a_data_dir_wiped_between_two_boots_is_held_although_a_new_one_would_have_the_same_ids() {
    crate::needs_root!();
    let (mut master, member) = Master::opened(256 * MIB);
    let etcd = member.start();
    etcd.put("/registry/pods/one", "1");
    shut_down(&mut master, etcd);
    std::fs::remove_dir_all(master.data_dir().join("member")).unwrap();
    master.boot();
    master.node.await_held(GUARD, "data-vanished");
}

#[test]
fn a_wiped_dir_that_was_bootstrapped_again_is_held_although_its_ids_are_the_same() {
    crate::needs_root!();
    let (mut master, member) = Master::opened(256 * MIB);
    let etcd = member.start();
    etcd.load("/registry/pods/", 50).join().unwrap();
    let before = etcd.ctl(&["member", "list"]);
    let member = shut_down(&mut master, etcd);
    // Nobody guards this moment: somebody starts etcd by hand on an empty dir.
    std::fs::remove_dir_all(master.data_dir().join("member")).unwrap();
    let etcd = member.start();
    assert_eq!(before, etcd.ctl(&["member", "list"]), "the point of this test is that the ids are the same");
    etcd.stop();
    master.boot();
    let status = master.node.await_verdict(GUARD);
    assert_eq!(status["gate"], "held", "{status:#}");
    let codes = crate::common::node::codes(&status["reasons"]);
    assert!(codes.iter().any(|code| code == "data-vanished" || code == "went-backwards"), "{codes:?}");
}

#[test]
fn a_data_dir_wiped_while_etcd_was_stopped_is_refused_by_gate_check_without_a_reboot() {
    crate::needs_root!();
    let (mut master, member) = Master::opened(256 * MIB);
    let etcd = member.start();
    etcd.put("/registry/pods/one", "1");
    await_holds_data(&master, PATIENCE);
    let member = etcd.stop();
    master.gate_check_passes();
    std::fs::remove_dir_all(master.data_dir().join("member")).unwrap();
    master.gate_check_refuses("data-vanished");
    // Neither does it help that the agent is not there.
    master.node.kill_agent();
    master.gate_check_refuses("data-vanished");
    drop(member);
}

/// Waits until the node's ledger says that the dir holds data.
#[track_caller]
fn await_holds_data(master: &Master, patience: Duration) {
    let ledger = master.node.ledger(GUARD);
    // The entries are JSON inside their frames: enough to see that one of this kind is there.
    let noted = || std::fs::read(&ledger).is_ok_and(|bytes| contains(&bytes, b"holds-data"));
    await_change(&master.node.path("state"), patience, noted);
    assert!(noted(), "no record of the data after {patience:?}\n{}", master.node.log());
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[test]
fn after_a_fresh_boot_ten_seconds_are_enough_for_the_record_that_outlives_two_kills() {
    crate::needs_root!();
    let (mut master, member) = Master::opened(256 * MIB);
    let etcd = member.start();
    etcd.put("/registry/pods/one", "1");
    await_holds_data(&master, Duration::from_secs(10));
    master.node.kill_agent();
    etcd.kill();
    std::fs::remove_dir_all(master.data_dir().join("member")).unwrap();
    master.boot();
    master.node.await_held(GUARD, "data-vanished");
}

#[test]
fn a_wal_that_is_gone_while_the_backend_is_kept_is_held() {
    crate::needs_root!();
    let (mut master, member) = Master::opened(256 * MIB);
    let etcd = member.start();
    etcd.load("/registry/pods/", 50).join().unwrap();
    shut_down(&mut master, etcd);
    std::fs::remove_dir_all(master.data_dir().join("member/wal")).unwrap();
    master.gate_check_refuses("wal-behind-backend");
    master.boot();
    master.node.await_held(GUARD, "wal-behind-backend");
}

/// Kills etcd as soon as that many writes of a running load were acknowledged, in the middle of the next ones.
#[track_caller]
fn kill_under_load(etcd: Etcd, round: u32, writes: u64) -> (Member, u64) {
    let (send, acknowledged): (_, Receiver<u64>) = channel();
    let load = etcd.load_counted(&format!("/load/{round:03}/"), u64::MAX, move |done| {
        send.send(done).ok();
    });
    let until = Instant::now() + PATIENCE;
    loop {
        let done = acknowledged.recv_timeout(until.saturating_duration_since(Instant::now()));
        if done.expect("etcd acknowledges writes") >= writes {
            break;
        }
    }
    let member = etcd.kill();
    (member, load.join().unwrap())
}

#[test]
fn a_healthy_etcd_killed_a_hundred_times_under_load_is_never_held() {
    crate::needs_root!();
    let (mut master, mut member) = Master::opened(512 * MIB);
    for round in 0..100 {
        let etcd = member.start();
        // Another moment in each round: first in the middle of a boot's first writes, then later.
        let (again, written) = kill_under_load(etcd, round, u64::from(1 + round % 25));
        member = again;
        assert!(written > 0);
        match round % 10 {
            // A crash of the agent too, which leaves the gate open.
            4 => {
                master.node.kill_agent();
                master.node.start();
                master.node.await_open(GUARD);
            }
            // A power cut: the volume is examined from the beginning.
            9 => {
                master.boot();
                master.node.await_open(GUARD);
            }
            _ => {}
        }
        master.gate_check_passes();
    }
    let etcd = member.start();
    let kept = etcd.ctl(&["get", "/load/", "--prefix", "--keys-only", "--limit", "1"]);
    assert!(kept.contains("/load/"), "{kept}");
}

/// A third member joins far behind, gets the leader's snapshot, and is killed as soon as its log says `moment`.
#[track_caller]
fn killed_after_the_snapshot(moment: &str) {
    let (mut master, mut guarded) = Master::opened(512 * MIB);
    let plain = Tmp::new();
    let mut peers = [Member::new("master-b", &plain.join("b")), Member::new("master-c", &plain.join("c"))];
    let cluster = format!("{},{}", peers[0].named_peer(), peers[1].named_peer());
    for peer in &mut peers {
        peer.initial_cluster = Some(cluster.clone());
        peer.more = vec!["--snapshot-count".to_owned(), "100".to_owned()];
    }
    // Neither serves before both are there.
    let mut leader = peers[0].spawn();
    let mut other = peers[1].spawn();
    for peer in [&mut leader, &mut other] {
        peer.await_line("serves clients", |line| line.contains("serving client traffic insecurely"));
    }
    // A leader keeps 5,000 entries beyond its snapshot (etcd 3.4, `DefaultSnapshotCatchUpEntries`): only whoever is
    // further behind gets the snapshot instead of entries. One writer would wait for one fsync after the other.
    let writers: Vec<_> = (0..16).map(|writer| leader.load(&format!("/load/{writer}/"), 350)).collect();
    let written: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    assert_eq!(written, 16 * 350, "the cluster took all writes");

    leader.add_member("master-a", &guarded.peer_url());
    guarded.initial_cluster = Some(format!("{cluster},{}", guarded.named_peer()));
    guarded.initial_state = "existing";
    guarded.more = peers[0].more.clone();
    let mut etcd = guarded.spawn();
    etcd.await_line("has the leader's snapshot", |line| line.contains(moment));
    etcd.kill();

    master.gate_check_passes();
    master.boot();
    master.node.await_open(GUARD);
    master.gate_check_passes();
    // And it was right to let it start: it comes up and has the data.
    let etcd = guarded.start();
    assert_eq!(etcd.get("/load/0/00000349").len(), 300);
}

#[test]
fn a_member_killed_right_after_it_applied_the_leaders_snapshot_is_not_held() {
    crate::needs_root!();
    killed_after_the_snapshot("\"msg\":\"applied snapshot\"");
}

#[test]
fn a_member_killed_between_the_leaders_snapshot_and_its_backend_is_not_held() {
    crate::needs_root!();
    // The WAL names the snapshot already, the backend is still the old one: etcd repairs this at its start.
    killed_after_the_snapshot("applied incoming Raft snapshot");
}

#[test]
fn a_volume_that_grew_up_under_the_agent_starts_at_the_next_boot() {
    crate::needs_root!();
    let (mut master, member) = Master::opened(256 * MIB);
    let etcd = member.start();
    etcd.put("/registry/pods/one", "1");
    let member = shut_down(&mut master, etcd);
    master.boot();
    master.node.await_open(GUARD);
    let etcd = member.start();
    assert_eq!(etcd.get("/registry/pods/one"), "1");
}
