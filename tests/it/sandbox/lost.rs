//! A reader that crashes, hangs, is killed or talks nonsense: each is a reason to hold and never an answer. The disk under
//! the reader answers nothing until the test lets it, so that each blow lands while it reads.

use super::*;
use crate::common::node::{PATIENCE, await_change, codes};
use crate::common::{ErrFs, Guard, Node, errfs::BadDisk};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A blank disk that answers no read before [`Stalled::release`].
struct Stalled {
    disk: BadDisk,
    release: PathBuf,
    _tmp: Tmp,
}

impl Stalled {
    fn new() -> Self {
        let tmp = Tmp::new();
        let image = disk::sparse(&tmp.join("disk"), 64 * MIB);
        let release = tmp.join("release");
        let rule = format!("stall:0:{}:{}", 64 * MIB, release.display());
        let disk = ErrFs::new(&image, &tmp.join("fuse"), &[rule]).disk();
        Stalled { disk, release, _tmp: tmp }
    }

    fn node(&self) -> &Path {
        self.disk.node.node()
    }

    fn release(&self) {
        File::create(&self.release).expect("the file that lets it go");
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        // Its loop device waits for what is under way, and keeps others waiting meanwhile.
        self.release();
    }
}

/// The reader that `parent` has started, once it reads.
#[track_caller]
fn reader_of(parent: u32) -> u32 {
    // Less than the disk's own patience.
    let until = Instant::now() + Duration::from_secs(40);
    loop {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        for child in children.split_whitespace() {
            let command = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            // It waits for the disk, beyond the reach of signals.
            if command.split(|byte| *byte == 0).nth(1) == Some(b"worker") && state.contains(") D ") {
                return child.parse().expect("a number");
            }
        }
        assert!(Instant::now() < until, "no reader of {parent} waits for the disk: {children:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), signal).expect("the reader is there");
}

/// `inspect` of a disk that stalls; `blow` gets the number of its reader. Returns the report.
#[track_caller]
fn inspected(blow: impl FnOnce(u32, &Stalled)) -> Value {
    let disk = Stalled::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_volhold"));
    command.args(["inspect", "-o", "json"]).arg(disk.node()).stdin(Stdio::null()).stdout(Stdio::piped());
    let inspect = command.spawn().expect("volhold inspect");
    blow(reader_of(inspect.id()), &disk);
    let output = inspect.wait_with_output().expect("its end");
    disk.release();
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(output.status.code(), Some(4), "{report:#}");
    assert_ne!(report["blank"], "proven", "{report:#}");
    assert_eq!(report["format"]["verdict"], "refuse", "{report:#}");
    report
}

#[track_caller]
fn refused_as(report: &Value, code: &str, says: &str) {
    let reasons = &report["format"]["reasons"];
    assert!(codes(reasons).iter().any(|found| found == code), "no {code}: {reasons:#}");
    assert!(reasons.to_string().contains(says), "nothing of {says:?}: {reasons:#}");
}

#[test]
fn a_reader_that_crashes_is_a_failed_reader() {
    crate::needs_root!();
    use nix::sys::signal::Signal;
    // Not SIGSEGV: the runtime's handler takes one that is sent, and dies of the real ones only.
    for (blow, says) in [(Signal::SIGILL, "SIGILL"), (Signal::SIGABRT, "SIGABRT"), (Signal::SIGKILL, "SIGKILL")] {
        let report = inspected(|reader, disk| {
            signal(reader, blow);
            disk.release();
        });
        refused_as(&report, "reader-failed", says);
    }
}

#[test]
fn a_reader_without_memory_is_a_failed_reader() {
    crate::needs_root!();
    let report = inspected(|reader, disk| {
        // As much as it has: the scan still has to ask for its buffers.
        run("prlimit", &["--pid", &reader.to_string(), "--as=8388608"]);
        disk.release();
    });
    assert!(codes(&report["format"]["reasons"]).contains(&"reader-failed".to_owned()), "{report:#}");
}

#[test]
fn nonsense_in_the_pipe_of_a_reader_is_a_failed_reader() {
    crate::needs_root!();
    let report = inspected(|reader, disk| {
        let mut pipe = File::options().write(true).open(format!("/proc/{reader}/fd/1")).expect("its pipe");
        pipe.write_all(b"\x00\xff{]\n").expect("the pipe takes it");
        disk.release();
    });
    refused_as(&report, "reader-failed", "nonsense");
}

#[test]
fn an_answer_without_end_is_a_failed_reader() {
    crate::needs_root!();
    let report = inspected(|reader, _disk| {
        let mut pipe = File::options().write(true).open(format!("/proc/{reader}/fd/1")).expect("its pipe");
        let mut sent = 0;
        // Until the parent has had enough and closes its end.
        while pipe.write_all(&[b'a'; 65536]).is_ok() {
            sent += 65536;
            assert!(sent < 64 * MIB, "the parent swallows an answer without end");
            if !Path::new(&format!("/proc/{reader}")).exists() {
                break;
            }
        }
    });
    refused_as(&report, "reader-failed", "longer than 16 MiB");
}

#[test]
fn a_disk_that_hangs_is_a_hold_and_the_agent_goes_on_beside_it() {
    crate::needs_root!();
    let stuck = Stalled::new();
    let tmp = Tmp::new();
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let image = disk::sparse(&tmp.join("volume"), 160 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    let superblock = disk::read_at(&image, 0, 4096);
    disk::zero(&image, 0, 4096);
    let healthy = Loop::new(&image);
    let mut node = Node::new();
    node.configure(&[
        Guard::enforce("stuck", stuck.node(), &node.path("stuck")).data_dir("data"),
        Guard::enforce("main", healthy.node(), &node.path("main")).data_dir("data"),
    ]);
    node.start();
    let reader = reader_of(node.agent_pid());
    node.await_status("main", "a hold", |status| status["gate"] == "held");
    // The reader of the one guard still hangs in the kernel; the other is repaired, asked again, and opens.
    File::options()
        .write(true)
        .open(healthy.node())
        .and_then(|device| device.write_all_at(&superblock, 0).and_then(|()| device.sync_all()))
        .expect("the superblock comes back");
    let retried = node.volhold(&["retry", "main"]);
    assert_eq!(retried.code, Some(0), "{retried:#?}");
    node.await_status("main", "an open gate", |status| status["gate"] == "open");
    // Unless its time is over by now, and it was given up.
    let state = std::fs::read_to_string(format!("/proc/{reader}/stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") D "), "the disk answered, and this test saw nothing: {state}");
    // Silence is told as such; an answer would be another hold.
    let status = node.await_status("stuck", "a hold", |status| status["gate"] == "held");
    assert!(codes(&status["reasons"]).contains(&"timed-out".to_owned()), "{status:#}");
    node.assert_closed("stuck");
    assert_eq!(node.volhold(&["wait", "main", "--timeout", "1s"]).code, Some(0));
    stuck.release();
}

#[test]
fn a_reader_that_crashes_under_the_agent_is_a_hold() {
    crate::needs_root!();
    let stuck = Stalled::new();
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", stuck.node(), &node.path("mnt"))]);
    node.start();
    let reader = reader_of(node.agent_pid());
    signal(reader, nix::sys::signal::Signal::SIGILL);
    stuck.release();
    node.await_held("main", "reader-failed");
}

#[test]
fn a_reader_does_not_outlive_its_parent() {
    crate::needs_root!();
    let stuck = Stalled::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_volhold"));
    let mut inspect = command.arg("inspect").arg(stuck.node()).stdout(Stdio::null()).spawn().expect("volhold inspect");
    let reader = reader_of(inspect.id());
    inspect.kill().expect("SIGKILL");
    inspect.wait().expect("its end");
    stuck.release();
    let gone = await_change(stuck._tmp.path(), PATIENCE, || {
        let state = std::fs::read_to_string(format!("/proc/{reader}/stat"));
        state.is_err() || state.is_ok_and(|state| state.contains(") Z "))
    });
    assert_eq!(gone, "changed");
}
