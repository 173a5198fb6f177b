//! Real files, broken anywhere: no reader may panic, hang, ask for more than the file has, or read it over and over.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::OnceLock;
use volhold::etcd::bolt::tree::Budget;
use volhold::etcd::read_at::ReadAt;
use volhold::etcd::wal::{Segment, WalQuestion, looks_like_segment, read_wal};
use volhold::etcd::{DeepQuestion, bolt, manager_state, read_deep, schema, snap};

/// A file in memory that notes what is asked of it.
#[derive(Clone)]
struct Watched {
    bytes: Vec<u8>,
    longest: Rc<Cell<usize>>,
    total: Rc<Cell<usize>>,
    calls: Rc<Cell<usize>>,
}

impl Watched {
    fn new(bytes: Vec<u8>) -> Self {
        Watched { bytes, longest: Rc::default(), total: Rc::default(), calls: Rc::default() }
    }

    /// No single request is longer than the file (or one of the readers' buffers), and all of them together are a small
    /// multiple of it.
    fn assert_modest(&self) {
        let size = self.bytes.len();
        assert!(self.longest.get() <= size.max(256 * 1024), "{} bytes asked of {size}", self.longest.get());
        assert!(self.total.get() <= 40 * size + (1 << 20), "{} bytes read of {size}", self.total.get());
        assert!(self.calls.get() <= 2_000 + size / 8, "{} reads of {size} bytes", self.calls.get());
    }
}

impl ReadAt for Watched {
    fn size(&self) -> io::Result<u64> {
        self.bytes.as_slice().size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.longest.set(self.longest.get().max(buf.len()));
        self.calls.set(self.calls.get() + 1);
        let got = self.bytes.as_slice().read_at(buf, offset)?;
        self.total.set(self.total.get() + got);
        Ok(got)
    }
}

/// Backend (without what is allocated ahead), log (with some of it), newest snapshot, and etcd-manager's state.
fn originals() -> &'static [(&'static str, Vec<u8>)] {
    static FILES: OnceLock<Vec<(&'static str, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let unpacked = Unpacked::new("v3.4.23-basic");
        let member = unpacked.root().join("data/member");
        let db = std::fs::read(member.join("snap/db")).expect("db");
        let meta = bolt::read_metas(&db.as_slice()).expect("metas").newest().expect("a valid one");
        let log = std::fs::read(member.join("wal/0000000000000000-0000000000000000.wal")).expect("log");
        let end = log.iter().rposition(|byte| *byte != 0).expect("not empty") + 4096;
        let snaps = std::fs::read_dir(member.join("snap")).expect("snap").map(|e| e.expect("entry").path());
        let newest = snaps.filter(|path| path.extension().is_some_and(|e| e == "snap")).max().expect("a snapshot");
        let kops = Unpacked::new("kops-volume");
        vec![
            ("db", db[..usize::try_from(meta.size()).expect("small")].to_vec()),
            ("wal", log[..end].to_vec()),
            ("snap", std::fs::read(newest).expect("snapshot")),
            ("state", std::fs::read(kops.root().join("state")).expect("state")),
        ]
    })
}

/// Reads with the reader of that kind; `true`: it found nothing wrong.
fn read(kind: &str, bytes: Vec<u8>) -> bool {
    let watched = Watched::new(bytes);
    let sound = match kind {
        "db" => {
            let quick =
                schema::read_backend(&watched, Budget::mib(64)).is_ok_and(|reading| reading.problems.is_empty());
            let deep = Watched::new(watched.bytes.clone());
            let question = DeepQuestion { revision: None, compact: None, until: None, progress: &mut |_, _| {} };
            let found = read_deep(&deep, question).map(|(_, deep)| deep);
            deep.assert_modest();
            let sound = found.is_ok_and(|deep| deep.fault_count == 0 && deep.content_count == 0);
            assert!(quick || !sound, "the quick reading finds something that the deep one does not");
            sound
        }
        "wal" => {
            looks_like_segment(&watched.bytes[..watched.bytes.len().min(512)]);
            let source = Box::new(watched.clone());
            let segment = Segment { path: "wal".into(), seq: 0, index: 0, source };
            read_wal(&[segment], WalQuestion { budget: u64::MAX, ..Default::default() })
                .is_ok_and(|r| r.defects.is_empty())
        }
        "snap" => snap::read_snap(&watched).is_ok(),
        "state" => manager_state::parse_state(&watched.bytes).is_ok(),
        other => panic!("no reader for {other}"),
    };
    watched.assert_modest();
    sound
}

#[test]
fn the_originals_are_sound() {
    for (kind, bytes) in originals() {
        assert!(read(kind, bytes.clone()), "{kind}");
    }
}

#[test]
fn files_cut_at_any_length_are_borne() {
    for (kind, bytes) in originals() {
        // Every length near an edge of the format, every 61st elsewhere.
        for len in (0..bytes.len()).filter(|len| len % 61 == 0 || len % 4096 < 90 || *len < 200) {
            read(kind, bytes[..len].to_vec());
        }
    }
}

#[test]
fn what_the_quick_reading_finds_the_deep_one_finds() {
    let (kind, db) = &originals()[0];
    assert_eq!(*kind, "db");
    // A tag of a message becomes that of a field that nobody knows.
    for at in (0..db.len()).step_by(5) {
        let mut bad = db.clone();
        bad[at] ^= 0x68;
        read(kind, bad);
    }
}

#[test]
fn every_bit_of_log_and_snapshot_is_guarded() {
    for (kind, bytes) in originals().iter().filter(|(kind, _)| *kind == "snap") {
        for bit in (0..bytes.len() * 8).step_by(7) {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!read(kind, bad), "{kind}: bit {bit} flipped and nothing said");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes_and_foreign_pieces_are_borne(
        which in 0usize..4,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        piece in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1usize..5_000)),
        numbers in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>()), 0..3),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (kind, original) = &originals()[which];
        let mut bytes = original.clone();
        for (at, xor) in &flips {
            let at = at.index(bytes.len());
            bytes[at] ^= xor;
        }
        // A number where a length, count, page or offset may stand.
        for (at, number) in &numbers {
            let at = at.index(bytes.len().saturating_sub(8).max(1)) / 8 * 8;
            if let Some(place) = bytes.get_mut(at..at + 8) {
                place.copy_from_slice(&number.to_le_bytes());
            }
        }
        if let Some((from, to, len)) = piece {
            let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
            let len = len.min(bytes.len() - from).min(bytes.len() - to);
            let copy = bytes[from..from + len].to_vec();
            bytes[to..to + len].copy_from_slice(&copy);
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        read(kind, bytes);
    }

    #[test]
    fn random_bytes_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..10_000)) {
        for (kind, _) in originals() {
            let sound = read(kind, bytes.clone());
            prop_assert!(!sound || (*kind == "state" && bytes.len() < 40), "{} bytes are a sound {}", bytes.len(), kind);
        }
    }
}
