//! The node's ledger under SIGKILL, and on a disk that hangs.

use crate::common::{Guard, Loop, Node, Tmp, disk, run};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use volhold::model::{BootId, Entry, Fact, GuardName, HighWater, Time, VolumeId};
use volhold::record::{NodeLedger, ledger};

const STATE: &str = "VOLHOLD_TEST_STATE";
const FIRST: &str = "VOLHOLD_TEST_FIRST";

fn guard() -> GuardName {
    "main".parse().expect("a name")
}

fn mark(n: u64) -> Entry {
    let mark = HighWater {
        data_dir: ".".into(),
        cluster_id: None,
        member_id: None,
        term: Some(1),
        consistent_index: Some(n),
        revision: None,
        wal_last_index: Some(n),
        keys: None,
    };
    Entry {
        time: Time::now(),
        boot_id: BootId("b".into()),
        machine_id: "m".into(),
        guard: guard(),
        volume_id: VolumeId("vol-1".into()),
        fs_uuid: None,
        version: "0".into(),
        fact: Fact::HoldsData { mark },
    }
}

/// The child of the test below: appends and says so, until it is killed.
#[test]
#[ignore = "is run by sigkill_during_appends_loses_nothing_that_was_acknowledged"]
fn appends_until_it_is_killed() {
    let Some(state) = std::env::var_os(STATE) else { return };
    let first: u64 = std::env::var(FIRST).expect("a number").parse().expect("a number");
    let ledger = NodeLedger::open(state.as_ref(), &guard(), "m").expect("the ledger");
    for n in first.. {
        ledger.append(&mark(n)).expect("an append");
        println!("appended {n}");
    }
}

/// Kills the child also when the test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().expect("SIGKILL");
        self.0.wait().expect("the child's end");
    }
}

/// Lengthens the ledger so that the next append rewrites it.
fn pad(ledger: &NodeLedger, first: &mut u64) {
    let mut bytes = std::fs::read(ledger.path()).expect("the ledger");
    let parsed = ledger::parse(&bytes).expect("a sound ledger");
    bytes.truncate(parsed.valid_len);
    let mut last = parsed.last_hash;
    while bytes.len() <= 1024 * 1024 {
        let frame = ledger::frame(&last, &mark(*first)).expect("a frame");
        bytes.extend(frame.bytes);
        last = frame.hash;
        *first += 1;
    }
    std::fs::write(ledger.path(), bytes).expect("the ledger");
}

fn highest(ledger: &NodeLedger) -> Option<u64> {
    let reading = ledger.read().expect("a ledger with at most a torn tail");
    reading
        .own
        .iter()
        .filter_map(|(_, entry)| match &entry.fact {
            Fact::HoldsData { mark } => mark.consistent_index,
            _ => None,
        })
        .max()
}

#[test]
fn sigkill_during_appends_loses_nothing_that_was_acknowledged() {
    let state = tempfile::tempdir().expect("a directory");
    let ledger = NodeLedger::at(state.path(), &guard(), "m");
    let mut first = 0;
    for round in 0..50_u64 {
        if round % 5 == 4 {
            pad(&ledger, &mut first);
        }
        let mut child = Killed(
            Command::new(std::env::current_exe().expect("this program"))
                .args(["record::appends_until_it_is_killed", "--exact", "--ignored", "--nocapture"])
                .env(STATE, state.path())
                .env(FIRST, first.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("a child"),
        );
        let mut said = BufReader::new(child.0.stdout.take().expect("its output")).lines();
        let mut acknowledged = None;
        // After a number of appends that differs from round to round; where in the next one the signal falls is chance.
        for _ in 0..=(round * 7 % 13) {
            let line = said.by_ref().map(|line| line.expect("a line")).find(|line| line.contains("appended "));
            let line = line.expect("the child appends until it is killed");
            acknowledged = line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
        }
        drop(child);
        let highest = highest(&ledger);
        assert!(highest >= acknowledged, "round {round}: acknowledged {acknowledged:?}, kept {highest:?}");
        first = highest.map_or(0, |n| n + 1);
    }
}

#[test]
fn a_guard_whose_memory_hangs_keeps_no_other_guard_from_opening() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = |name: &str| Loop::new(&disk::sparse(&tmp.join(name), 32 * disk::MIB));
    let (stalled, healthy) = (device("stalled"), device("healthy"));
    let mut node = Node::new();
    node.configure(&[
        Guard::enforce("stalled", stalled.node(), &node.path("mnt-stalled")),
        Guard::enforce("healthy", healthy.node(), &node.path("mnt-healthy")),
    ]);
    // Opening a pipe that nobody writes to waits for ever, as the lock does on a disk that does not answer.
    let memory = node.ledger("stalled").with_file_name("lock");
    std::fs::create_dir_all(memory.parent().expect("a folder")).expect("the guard's folder");
    run("mkfifo", &[&memory.to_string_lossy()]);
    node.start();
    node.await_open("healthy");
    assert!(!node.ready_file("stalled").exists());
}
