#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "a test that panics is a test that fails"
)]

use super::*;
use crate::gate::files::{Published, open_gate, ready_path, write_status};
use crate::gate::readers::Readers;
use crate::model::{DevNum, Mode, ReasonCode, StartKind, StateName, Status, Time, VolumeId};
use std::sync::mpsc;

fn name() -> GuardName {
    "main".parse().unwrap()
}

fn boot() -> BootId {
    BootId("this".into())
}

fn open(run: &Path) {
    let published = Published {
        directories: Vec::new(),
        at: "/x".into(),
        devnum: DevNum { major: 1, minor: 2 },
        fs_uuid: None,
        volume_id: VolumeId("v".into()),
        data_dir: ".".into(),
        how: StartKind::Continues,
        mount_id: None,
        boot_id: boot(),
    };
    open_gate(run, &name(), &published).unwrap();
}

fn say(run: &Path, gate: Gate, reasons: &[ReasonCode]) {
    let guard = GuardStatus {
        name: name(),
        mode: Mode::Enforce,
        gate,
        would_hold: false,
        state: if gate == Gate::Held { StateName::Held } else { StateName::Examining },
        progress: None,
        volume: None,
        device: None,
        fs_uuid: None,
        publish: "/x".into(),
        publish_dirs: Vec::new(),
        data_dir: None,
        reasons: reasons.iter().map(|code| Reason::new(*code, "it is so")).collect(),
        waits: None,
        warnings: vec![],
        since: Time::from_unix(0).unwrap(),
        timings: vec![],
        figures: Default::default(),
        witness: None,
        watch: None,
    };
    let status = Status {
        api_version: "volhold/v1".into(),
        kind: "Status".into(),
        version: "0".into(),
        written_at: Time::now(),
        pid: 1,
        guards: vec![guard],
        config: vec![],
        warnings: vec![],
    };
    write_status(run, &status, Readers::Everyone).unwrap();
}

fn at_once(run: &Path) -> WaitOutcome {
    wait(run, &name(), &boot(), Until::Open, Some(Duration::ZERO), &mut |_| ()).unwrap()
}

#[test]
fn an_open_gate_is_found_open_at_once() {
    let run = tempfile::tempdir().unwrap();
    open(run.path());
    assert_eq!(at_once(run.path()), WaitOutcome::Open);
}

#[test]
fn a_status_that_says_open_opens_nothing() {
    let run = tempfile::tempdir().unwrap();
    say(run.path(), Gate::Open, &[]);
    assert!(matches!(at_once(run.path()), WaitOutcome::TimedOut(Some(_))));
}

#[test]
fn when_time_is_over_a_held_guard_says_why() {
    let run = tempfile::tempdir().unwrap();
    say(run.path(), Gate::Held, &[ReasonCode::DataVanished, ReasonCode::OtherCluster]);
    let WaitOutcome::Held(reasons) = at_once(run.path()) else { panic!("not held") };
    assert_eq!(reasons.len(), 2);
    say(run.path(), Gate::Waiting, &[]);
    assert!(matches!(at_once(run.path()), WaitOutcome::TimedOut(Some(_))));
}

#[test]
fn without_an_agent_there_is_nothing_to_say_but_that_time_is_over() {
    let run = tempfile::tempdir().unwrap();
    assert_eq!(at_once(&run.path().join("not/there")), WaitOutcome::TimedOut(None));
}

#[test]
fn each_step_from_a_missing_run_dir_to_the_ready_file_rings() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run/volhold");
    let bell = Bell::new(&run).unwrap();
    let steps: [&dyn Fn(); 5] = [
        &|| std::fs::create_dir(dir.path().join("run")).unwrap(),
        &|| std::fs::create_dir(&run).unwrap(),
        &|| std::fs::create_dir(run.join("open")).unwrap(),
        &|| say(&run, Gate::Waiting, &[]),
        &|| open(&run),
    ];
    for (at, step) in steps.iter().enumerate() {
        bell.arm(&run).unwrap();
        step();
        assert!(bell.ring(Duration::from_secs(10)).unwrap(), "step {at} did not ring");
    }
    bell.arm(&run).unwrap();
    assert!(!bell.ring(Duration::ZERO).unwrap(), "what rang is swallowed");
}

#[test]
fn a_held_guard_keeps_waiting_tells_each_change_and_opens_when_a_person_has_answered() {
    let run = tempfile::tempdir().unwrap();
    say(run.path(), Gate::Held, &[ReasonCode::DataVanished]);
    let (sender, heard) = mpsc::channel();
    let outcome = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let sender = sender;
            wait(
                run.path(),
                &name(),
                &boot(),
                Until::Open,
                Some(Duration::from_secs(60)),
                &mut |status: &GuardStatus| {
                    sender.send((status.gate, status.reasons.len())).unwrap();
                },
            )
        });
        let next = || heard.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(next(), (Gate::Held, 1));
        say(run.path(), Gate::Held, &[ReasonCode::DataVanished]);
        say(run.path(), Gate::Waiting, &[]);
        assert_eq!(next(), (Gate::Waiting, 0), "the same state again is not told again");
        assert!(!waiting.is_finished());
        open(run.path());
        waiting.join().unwrap().unwrap()
    });
    assert_eq!(outcome, WaitOutcome::Open);
}

#[test]
fn a_ready_file_of_another_boot_is_waited_past() {
    let run = tempfile::tempdir().unwrap();
    open(run.path());
    let outcome =
        wait(run.path(), &name(), &BootId("next".into()), Until::Open, Some(Duration::ZERO), &mut |_| ()).unwrap();
    assert_eq!(outcome, WaitOutcome::TimedOut(None));
    assert!(ready_path(run.path(), &name()).exists(), "a reader removes nothing");
}

#[test]
fn the_sentence_for_systemd_begins_with_the_verdict_and_names_the_code() {
    let run = tempfile::tempdir().unwrap();
    say(run.path(), Gate::Held, &[ReasonCode::DataVanished]);
    let WaitOutcome::Held(_) = at_once(run.path()) else { panic!("not held") };
    let status = look(run.path(), &name()).unwrap();
    assert_eq!(sentence(&status), "HELD: it is so (data-vanished)");
}
