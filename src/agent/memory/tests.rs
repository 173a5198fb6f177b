#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that panics is a test that fails")]

use super::*;
use crate::model::{BootId, HighWater};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

fn memory(state: &Path) -> Memory {
    let here = Here { boot_id: BootId("boot".into()), machine_id: "machine".into() };
    Memory { state: state.to_owned(), guard: "main".parse().unwrap(), here }
}

fn mark(n: u64) -> Fact {
    Fact::HoldsData {
        mark: HighWater {
            data_dir: "data".into(),
            cluster_id: None,
            member_id: None,
            term: Some(2),
            consistent_index: Some(n),
            revision: None,
            wal_last_index: Some(n),
            keys: Some(1),
        },
    }
}

/// What two years of marks leave on a volume, in bytes.
fn grown(memory: &Memory, volume: &VolumeId, beyond: usize) -> (Vec<u8>, u64) {
    let formatted = memory.entry(volume, None, Fact::Formatted { fs_uuid: FsUuid(uuid::Uuid::nil()) });
    let first = ledger::frame(&ledger::NO_HASH, &formatted).unwrap();
    let (mut bytes, mut last, mut n) = (first.bytes, first.hash, 0);
    while bytes.len() <= beyond {
        n += 1;
        let frame = ledger::frame(&last, &memory.entry(volume, None, mark(n))).unwrap();
        bytes.extend(frame.bytes);
        last = frame.hash;
    }
    (bytes, n)
}

#[test]
fn the_ledger_of_a_volume_does_not_grow_for_ever_and_forgets_nothing_that_counts() {
    let (state, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (memory, id) = (memory(state.path()), VolumeId("vol-1".into()));
    let root = File::open(volume.path()).unwrap();
    let path = volume.path().join(".volhold/ledger");
    let (bytes, n) = grown(&memory, &id, ledger::compact::REWRITE_ABOVE);
    fs::create_dir(volume.path().join(".volhold")).unwrap();
    // The rest of an interrupted append goes as well.
    fs::write(&path, [bytes.as_slice(), &bytes[..100]].concat()).unwrap();

    memory.keep_on_both(&id, None, &[mark(n + 1), Fact::Retried], root.as_fd()).unwrap();

    assert!(fs::metadata(&path).unwrap().len() < 4096, "it was only appended to");
    let facts: Vec<Fact> =
        ledger::parse(&fs::read(&path).unwrap()).unwrap().entries.into_iter().map(|(_, entry)| entry.fact).collect();
    let made = Fact::Formatted { fs_uuid: FsUuid(uuid::Uuid::nil()) };
    assert_eq!(facts, [made, mark(n), mark(n + 1), Fact::Retried]);
    let Observed::Seen(records) = memory.of_both(&id, None, root.as_fd()) else { panic!("the memory is unreadable") };
    assert_eq!(records.high_water.unwrap().consistent_index, Some(n + 1));
    assert_eq!(records.formatted, [FsUuid(uuid::Uuid::nil())]);
}

#[test]
fn a_rewrite_that_fails_costs_space_and_no_fact() {
    let (state, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (memory, id) = (memory(state.path()), VolumeId("vol-1".into()));
    let root = File::open(volume.path()).unwrap();
    let path = volume.path().join(".volhold/ledger");
    let (bytes, n) = grown(&memory, &id, ledger::compact::REWRITE_ABOVE);
    fs::create_dir(volume.path().join(".volhold")).unwrap();
    fs::write(&path, &bytes).unwrap();
    // What stands in the way of the new file cannot be unlinked.
    fs::create_dir_all(volume.path().join(".volhold/.ledger.new/full")).unwrap();

    memory.keep_on_both(&id, None, &[mark(n + 1)], root.as_fd()).unwrap();

    let after = fs::read(&path).unwrap();
    assert_eq!(after.get(..bytes.len()), Some(bytes.as_slice()));
    let last = ledger::parse(&after).unwrap().entries.pop().unwrap();
    assert_eq!(last.1.fact, mark(n + 1));
}

#[test]
fn writers_on_one_volume_make_one_chain() {
    let volume = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let volume = &volume;
            // Each with a node of its own, so that nothing but the volume's lock puts them in order.
            scope.spawn(move || {
                let state = tempfile::tempdir().unwrap();
                let (memory, id) = (memory(state.path()), VolumeId("vol-1".into()));
                let root = File::open(volume.path()).unwrap();
                for n in 0..20 {
                    memory.keep_on_both(&id, None, &[mark(writer * 20 + n)], root.as_fd()).unwrap();
                }
            });
        }
    });
    let bytes = fs::read(volume.path().join(".volhold/ledger")).unwrap();
    assert_eq!(ledger::parse(&bytes).unwrap().entries.len(), 160);
}

fn uuid(n: u128) -> FsUuid {
    FsUuid(uuid::Uuid::from_u128(n))
}

fn pinned(n: u64) -> Fact {
    Fact::Pinned {
        cluster_id: crate::model::ClusterId(n),
        member_id: crate::model::MemberId(n),
        name: None,
        data_dir: "data".into(),
        because: "first-use".into(),
    }
}

fn on_volume(root: &File) -> Vec<Fact> {
    let bytes = volume_ledger::read(root.as_fd()).unwrap().unwrap_or_default();
    ledger::parse(&bytes).unwrap().entries.into_iter().map(|(_, entry)| entry.fact).collect()
}

#[test]
fn what_a_crash_left_on_the_node_only_is_copied_in_order_and_once() {
    let (state, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (memory, id, fs) = (memory(state.path()), VolumeId("vol-1".into()), Some(uuid(1)));
    let root = File::open(volume.path()).unwrap();
    memory.keep_on_both(&id, fs, &[pinned(1)], root.as_fd()).unwrap();
    // The crash came after these; some of them are the node's alone, or another filesystem's or volume's.
    memory.keep(&id, fs, &[Fact::Retried, mark(7), Fact::Formatted { fs_uuid: uuid(1) }]).unwrap();
    memory.keep(&id, Some(uuid(2)), &[mark(8)]).unwrap();
    memory.keep(&VolumeId("vol-2".into()), fs, &[mark(9)]).unwrap();
    memory.keep(&id, fs, &[mark(10)]).unwrap();
    let before = memory.of_both(&id, fs, root.as_fd());

    assert_eq!(memory.mend(&id, fs, root.as_fd()).unwrap(), 2);
    assert_eq!(on_volume(&root), [pinned(1), mark(7), mark(10)]);
    assert_eq!(memory.of_both(&id, fs, root.as_fd()), before, "a copy changed what the union says");
    assert_eq!(memory.mend(&id, fs, root.as_fd()).unwrap(), 0, "nothing is copied twice");
}

#[test]
fn a_volume_without_a_ledger_gets_what_is_known_of_its_filesystem() {
    let (state, volume) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (memory, id, fs) = (memory(state.path()), VolumeId("vol-1".into()), Some(uuid(1)));
    let root = File::open(volume.path()).unwrap();
    memory.keep(&id, Some(uuid(2)), &[pinned(2)]).unwrap();
    memory.keep(&id, fs, &[Fact::FreshAllowed { data_dir: "data".into() }, pinned(1)]).unwrap();
    assert_eq!(memory.mend(&id, None, root.as_fd()).unwrap(), 0, "of which filesystem?");
    assert_eq!(memory.mend(&id, fs, root.as_fd()).unwrap(), 2);
    assert_eq!(on_volume(&root), [Fact::FreshAllowed { data_dir: "data".into() }, pinned(1)]);
}

/// The order of entries counts: an old answer behind what another node has written would look like a new one.
#[test]
fn a_volume_that_another_node_wrote_to_is_left_as_it_is() {
    let (state, other, volume) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (ours, theirs) = (memory(state.path()), memory(other.path()));
    let (id, fs) = (VolumeId("vol-1".into()), Some(uuid(1)));
    let root = File::open(volume.path()).unwrap();
    ours.keep_on_both(&id, fs, &[pinned(1)], root.as_fd()).unwrap();
    ours.keep(&id, fs, &[Fact::Adopted { what: crate::model::Adoption::NewCluster, confirmed: "x".into() }]).unwrap();
    theirs.keep_on_both(&id, fs, &[mark(20)], root.as_fd()).unwrap();
    let before = ours.of_both(&id, fs, root.as_fd());
    assert_eq!(ours.mend(&id, fs, root.as_fd()).unwrap(), 0);
    assert_eq!(on_volume(&root), [pinned(1), mark(20)]);
    assert_eq!(ours.of_both(&id, fs, root.as_fd()), before);
}
