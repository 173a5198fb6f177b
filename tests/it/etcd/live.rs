//! A running etcd: what is read while it writes, and what it leaves when it is killed.

use super::*;
use crate::common::etcd::{Etcd, Member};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use volhold::etcd::{durable_mark, lock_holder, quick, running_on};
use volhold::model::{Observed, RunningEtcd};

/// Puts without pause, and how many of them etcd has acknowledged.
struct Load {
    told: Receiver<u64>,
    acknowledged: u64,
    writer: JoinHandle<u64>,
}

impl Load {
    fn on(etcd: &Etcd, prefix: &str) -> Self {
        let (tell, told) = channel();
        let writer = etcd.load_counted(prefix, 1_000_000, move |n| {
            tell.send(n).ok();
        });
        Load { told, acknowledged: 0, writer }
    }

    /// Bursts of `puts`, each when the sender says so. What is read meanwhile moves, and comes to rest after the burst however
    /// slow the reader is: etcd commits ten times a second while it is written to, and a look on a busy machine takes longer.
    fn in_bursts(etcd: &Etcd, prefix: &str, puts: u64) -> (Self, Sender<()>) {
        let (tell, told) = channel();
        let (next_burst, wanted) = channel();
        let writer = etcd.load_counted(prefix, 1_000_000, move |n| {
            tell.send(n).ok();
            if n % puts == 0 {
                // Nobody wants any more: writes on until etcd is gone.
                wanted.recv().ok();
            }
        });
        (Load { told, acknowledged: 0, writer }, next_burst)
    }

    fn await_acknowledged(&mut self, many: u64) {
        while self.acknowledged < many {
            self.acknowledged = self.told.recv_timeout(Duration::from_secs(60)).expect("etcd acknowledges nothing");
        }
    }

    fn acknowledged_now(&mut self) -> u64 {
        self.acknowledged = self.told.try_iter().last().unwrap_or(self.acknowledged);
        self.acknowledged
    }

    /// After etcd's end: all that it ever acknowledged.
    fn in_all(self) -> u64 {
        self.writer.join().expect("the load")
    }
}

#[test]
fn a_dir_that_is_written_to_is_read_stably_and_its_marks_only_rise() {
    let tmp = Tmp::new();
    let data_dir = tmp.join("volume/etcd");
    std::fs::create_dir_all(tmp.join("volume")).expect("a dir");
    let mut member = Member::new("live", &data_dir);
    // Snapshots now and then, so that they are made under the reader's eyes.
    member.more = ["--snapshot-count", "200"].map(String::from).to_vec();
    let etcd = member.start();
    const BURST: u64 = 20;
    let (mut load, next_burst) = Load::in_bursts(&etcd, "/load/", BURST);
    let handle = File::open(&data_dir).expect("the data dir");
    let mut before = None;
    for round in 1..=30 {
        load.await_acknowledged(BURST * round);
        next_burst.send(()).expect("the writer");
        let report = quick(handle.as_fd(), "etcd", &VolumeHints::default());
        assert!(damage(&report).is_empty(), "round {round}: {:?}", report.defects);
        assert_eq!(report.locked_by, Some(etcd.pid()), "round {round}");
        let print = report.fingerprint.as_ref().expect("a fingerprint");
        let read = load.acknowledged_now();
        let mark = durable_mark(handle.as_fd(), "etcd").unwrap_or_else(|e| panic!("round {round}: {}", e.chain()));
        let mark = mark.expect("a member is there");
        // What was acknowledged before the mark was taken is in the log that it speaks of.
        assert!(mark.wal_last_index > Some(read), "round {round}: {mark:?} after {read} puts");
        assert!(mark.consistent_index <= mark.wal_last_index, "{mark:?}");
        assert!(mark.revision >= print.revision && mark.cluster_id == print.cluster_id, "{mark:?} after {print:?}");
        let now = (mark.term, mark.consistent_index, mark.revision, mark.wal_last_index);
        assert!(before.is_none_or(|before| before <= now), "round {round}: {before:?} then {now:?}");
        before = Some(now);
    }
    load.await_acknowledged(BURST * 31);

    let root = File::open(tmp.join("volume")).expect("the volume");
    let reading = examine_volume(root.as_fd(), &VolumeHints::default());
    let expected = RunningEtcd { pid: etcd.pid(), data_dir: "etcd".into() };
    assert_eq!(running_on(root.as_fd(), &reading), Observed::Seen(Some(expected)));
    drop(next_burst);
    etcd.stop();
    load.in_all();
    assert_eq!(running_on(root.as_fd(), &reading), Observed::Seen(None));
    assert_eq!(lock_holder(handle.as_fd()), Observed::Seen(None));
}

#[test]
fn an_etcd_killed_at_any_moment_leaves_no_damage_and_nothing_that_it_acknowledged_is_missing() {
    let tmp = Tmp::new();
    let data_dir = tmp.join("etcd");
    let mut member = Member::new("killed", &data_dir);
    member.more = ["--snapshot-count", "50"].map(String::from).to_vec();
    let mut written = 0;
    for round in 0..12_u64 {
        let etcd = member.start();
        let mut load = Load::on(&etcd, &format!("/{round}/"));
        load.await_acknowledged(1 + round * 29 % 170);
        etcd.kill();
        written += load.in_all();
        let handle = File::open(&data_dir).expect("the data dir");
        let report = quick(handle.as_fd(), "etcd", &VolumeHints::default());
        assert!(damage(&report).is_empty(), "round {round}: {:?}", report.defects);
        assert!(report.populated, "round {round}");
        assert_eq!(report.locked_by, None);
        let print = report.fingerprint.expect("a fingerprint");
        let revision = u64::try_from(print.revision.expect("a revision")).expect("not negative");
        let waiting = print.unapplied.expect("a consistent index").entries;
        assert!(
            revision + waiting > written,
            "round {round}: revision {revision} and {waiting} entries, {written} written"
        );
    }
}

#[test]
fn the_first_key_counts_though_it_is_only_in_the_log() {
    let tmp = Tmp::new();
    let mut etcd = None;
    // Killed within etcd's batch of 100 ms, most rounds leave the key in the log alone.
    for round in 0..20 {
        let member = Member::new("first", &tmp.join(&format!("{round}")));
        let running = member.start();
        let handle = File::open(&member.data_dir).expect("the data dir");
        let fresh = quick(handle.as_fd(), "etcd", &VolumeHints::default());
        assert!(!fresh.populated, "round {round}: nothing was written yet: {fresh:?}");
        let load = running.load("/k", 1);
        assert_eq!(load.join().expect("the load"), 1);
        running.kill();
        let report = quick(handle.as_fd(), "etcd", &VolumeHints::default());
        assert!(damage(&report).is_empty(), "round {round}: {:?}", report.defects);
        assert!(report.populated, "round {round}: {report:?}");
        if report.fingerprint.as_ref().is_some_and(|print| print.keys == Some(0)) {
            etcd = Some(round);
            break;
        }
    }
    assert!(etcd.is_some(), "the key was in the backend every time: this test saw nothing");
}

#[test]
fn there_is_no_mark_before_there_is_a_member() {
    let tmp = Tmp::new();
    let handle = File::open(tmp.path()).expect("the dir");
    assert_eq!(durable_mark(handle.as_fd(), "etcd").expect("readable"), None);
    std::fs::create_dir_all(tmp.join("member/snap")).expect("a dir");
    assert_eq!(durable_mark(handle.as_fd(), "etcd").expect("readable"), None);
}
