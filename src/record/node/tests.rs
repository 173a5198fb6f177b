#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "a test that panics is a test that fails"
)]

use super::ledger::tests::{entry, mark};
use super::*;
use crate::model::Fact;
use std::os::unix::fs::PermissionsExt;

const GUARD: &str = "main";

fn at(state: &Path) -> NodeLedger {
    NodeLedger::at(state, &GUARD.parse().unwrap(), "m")
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

fn facts(reading: &NodeReading) -> Vec<Fact> {
    reading.own.iter().map(|(_, entry)| entry.fact.clone()).collect()
}

fn names(dir: &Path, prefix: &str) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
}

#[test]
fn a_ledger_that_was_never_written_reads_as_absent_and_stays_absent() {
    let state = tempfile::tempdir().unwrap();
    let reading = at(&state.path().join("nowhere")).read().unwrap();
    assert_eq!(reading, NodeReading::default());
    assert!(!state.path().join("nowhere").exists());
}

#[test]
fn what_is_appended_is_there_and_only_root_can_read_it() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path().join("var");
    let ledger = at(&state);
    let first = ledger.append(&entry(2, Fact::Retried)).unwrap();
    let second = ledger.append(&entry(1, mark(1, 5))).unwrap();
    let reading = ledger.read().unwrap();
    assert_eq!(reading.own, [(first, entry(2, Fact::Retried)), (second, entry(1, mark(1, 5)))]);
    assert!(reading.present);
    assert_eq!(mode(&ledger.path()), 0o600);
    for dir in [&state, &state.join("guards"), &state.join("guards/main")] {
        assert_eq!(mode(dir), 0o700, "{}", dir.display());
    }
}

#[test]
fn entries_of_another_machine_are_no_memory_of_this_one() {
    let state = tempfile::tempdir().unwrap();
    let ledger = at(state.path());
    let foreign = Entry { machine_id: "image-builder".into(), ..entry(1, mark(1, 5)) };
    ledger.append(&foreign).unwrap();
    ledger.append(&entry(2, Fact::Retried)).unwrap();
    let reading = ledger.read().unwrap();
    assert_eq!(facts(&reading), [Fact::Retried]);
    assert_eq!(reading.foreign.len(), 1);
    assert_eq!(reading.foreign[0].1, foreign);
}

#[test]
fn an_interrupted_append_is_told_by_the_reader_and_cut_by_the_next_writer() {
    let state = tempfile::tempdir().unwrap();
    let ledger = at(state.path());
    ledger.append(&entry(1, mark(1, 5))).unwrap();
    ledger.append(&entry(2, mark(1, 6))).unwrap();
    let bytes = std::fs::read(ledger.path()).unwrap();
    let cut = bytes.len() - 3;
    std::fs::write(ledger.path(), &bytes[..cut]).unwrap();

    let reading = ledger.read().unwrap();
    let torn = reading.torn.unwrap();
    assert_eq!(facts(&reading), [mark(1, 5)]);
    assert_eq!(std::fs::read(ledger.path()).unwrap().len(), cut, "a reader repairs nothing");

    ledger.append(&entry(3, Fact::Retried)).unwrap();
    let reading = ledger.read().unwrap();
    assert_eq!(facts(&reading), [mark(1, 5), Fact::Retried]);
    assert_eq!(reading.torn, None);
    let kept = names(&state.path().join("guards/main"), "ledger.torn-");
    assert_eq!(kept.len(), 1);
    assert_eq!(std::fs::read(state.path().join("guards/main").join(&kept[0])).unwrap(), bytes[torn.offset..cut]);
}

#[test]
fn a_damaged_ledger_is_not_appended_to_until_a_person_puts_it_aside() {
    let state = tempfile::tempdir().unwrap();
    let ledger = at(state.path());
    ledger.append(&entry(1, mark(1, 5))).unwrap();
    ledger.append(&entry(2, mark(1, 6))).unwrap();
    let mut bytes = std::fs::read(ledger.path()).unwrap();
    bytes[60] ^= 1;
    std::fs::write(ledger.path(), &bytes).unwrap();

    let error = ledger.append(&entry(3, Fact::Retried)).unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::LedgerBroken);
    assert!(matches!(ledger.read(), Err(NodeLedgerError::Broken { .. })));
    assert_eq!(std::fs::read(ledger.path()).unwrap(), bytes);

    let aside = ledger.set_aside().unwrap();
    assert_eq!(std::fs::read(aside).unwrap(), bytes);
    ledger.append(&entry(3, Fact::Retried)).unwrap();
    assert_eq!(facts(&ledger.read().unwrap()), [Fact::Retried]);
}

#[test]
fn a_link_in_the_ledgers_place_is_not_followed() {
    let state = tempfile::tempdir().unwrap();
    let ledger = at(state.path());
    std::fs::create_dir_all(state.path().join("guards/main")).unwrap();
    let elsewhere = state.path().join("elsewhere");
    std::fs::write(&elsewhere, b"").unwrap();
    std::os::unix::fs::symlink(&elsewhere, ledger.path()).unwrap();
    assert!(ledger.append(&entry(1, Fact::Retried)).is_err());
    assert_eq!(ledger.read().unwrap_err().reason().code, ReasonCode::Unreadable);
    assert_eq!(std::fs::read(&elsewhere).unwrap(), b"");
}

#[test]
fn two_writers_make_one_chain() {
    let state = tempfile::tempdir().unwrap();
    let dir = state.path().to_owned();
    let start = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for writer in 0..4_u64 {
            let (dir, start) = (dir.clone(), &start);
            scope.spawn(move || {
                let ledger = at(&dir);
                start.wait();
                for n in 0..50 {
                    ledger.append(&entry(n, mark(writer, n as u64))).unwrap();
                }
            });
        }
    });
    let reading = at(&dir).read().unwrap();
    assert_eq!(reading.own.len(), 200);
    for writer in 0..4_u64 {
        let theirs: Vec<Fact> = facts(&reading)
            .into_iter()
            .filter(|fact| matches!(fact, Fact::HoldsData { mark } if mark.cluster_id.unwrap().0 == writer))
            .collect();
        assert_eq!(theirs, (0..50).map(|n| mark(writer, n)).collect::<Vec<_>>());
    }
}

#[test]
fn a_ledger_beyond_a_mebibyte_is_rewritten_shorter_and_says_the_same() {
    let state = tempfile::tempdir().unwrap();
    let ledger = at(state.path());
    ledger.append(&entry(0, Fact::Retried)).unwrap();
    let mut bytes = std::fs::read(ledger.path()).unwrap();
    let mut last = ledger::parse(&bytes).unwrap().last_hash;
    let mut n = 0;
    while bytes.len() <= ledger::compact::REWRITE_ABOVE {
        let frame = ledger::frame(&last, &entry(n, mark(1, n as u64))).unwrap();
        bytes.extend(frame.bytes);
        last = frame.hash;
        n += 1;
    }
    std::fs::write(ledger.path(), &bytes).unwrap();
    let before = ledger.read().unwrap();
    ledger.append(&entry(1, mark(1, 1))).unwrap();
    let after = ledger.read().unwrap();
    assert_eq!(facts(&after), [Fact::Retried, mark(1, n as u64 - 1), mark(1, 1)]);
    assert_eq!(after.own[1], *before.own.last().unwrap());
    assert!(std::fs::metadata(ledger.path()).unwrap().len() < 4096);
    assert_eq!(mode(&ledger.path()), 0o600);
    assert_eq!(std::fs::read(state.path().join("guards/main/ledger.before")).unwrap(), bytes);
}

#[test]
fn opening_cuts_what_a_power_cut_left() {
    let state = tempfile::tempdir().unwrap();
    let ledger = at(state.path());
    ledger.append(&entry(1, mark(1, 5))).unwrap();
    let bytes = std::fs::read(ledger.path()).unwrap();
    std::fs::write(ledger.path(), [bytes.clone(), vec![0; 512]].concat()).unwrap();
    NodeLedger::open(state.path(), &GUARD.parse().unwrap(), "m").unwrap();
    assert_eq!(std::fs::read(ledger.path()).unwrap(), bytes);
}

#[test]
fn a_writer_that_hangs_with_the_lock_is_waited_for_but_not_for_ever() {
    let state = tempfile::tempdir().unwrap();
    let ledger = NodeLedger { patience: Duration::from_millis(20), ..at(state.path()) };
    ledger.append(&entry(0, Fact::Retried)).unwrap();
    let hangs = ledger.lock_to_write().unwrap();
    let late = |error: NodeLedgerError| match error {
        NodeLedgerError::Io { what, source, .. } => (what, source.kind()),
        other => panic!("{other:?}"),
    };
    assert_eq!(late(ledger.append(&entry(1, Fact::Retried)).unwrap_err()), ("lock", io::ErrorKind::TimedOut));
    assert_eq!(late(ledger.read().unwrap_err()), ("lock", io::ErrorKind::TimedOut));
    drop(hangs);
    ledger.append(&entry(1, Fact::Retried)).unwrap();
    assert_eq!(ledger.read().unwrap().own.len(), 2);
}
