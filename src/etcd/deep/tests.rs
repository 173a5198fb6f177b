//! Trees made by hand, of every page size, each broken in one place.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]

use super::*;
use crate::etcd::bolt::NO_FREELIST;
use crate::etcd::bolt::tests::meta_page_of;

/// Root bucket on page 2, branch of `key` on page 3, its leaves on 4 and 5, nothing on 6, freelist (where wanted) on 7.
struct Db {
    bytes: Vec<u8>,
    page_size: usize,
}

fn record(main: i64, key: &str) -> (Vec<u8>, Vec<u8>) {
    let mut value = vec![0x0a, u8::try_from(key.len()).unwrap()];
    value.extend(key.bytes());
    value.extend([0x10, u8::try_from(main).unwrap(), 0x18, u8::try_from(main).unwrap(), 0x20, 1, 0x2a, 1, b'v']);
    ([&main.to_be_bytes()[..], b"_", &0_i64.to_be_bytes()].concat(), value)
}

impl Db {
    fn new(page_size: usize, freelist: Option<&[u64]>) -> Self {
        let mut db = Db { bytes: vec![0; 8 * page_size], page_size };
        let list = if freelist.is_some() { 7 } else { NO_FREELIST };
        for txid in [6_u64, 7] {
            let page = meta_page_of(u32::try_from(page_size).unwrap(), txid, 2, list, 8);
            db.put(txid % 2, &page);
        }
        let inline = [&[0; 16][..], &header(0, 2, 0)].concat();
        let key = [3_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
        db.leaf(
            2,
            &[(1, b"alarm".to_vec(), inline.clone()), (1, b"key".to_vec(), key), (1, b"lease".to_vec(), inline)],
        );
        let (first, second) = (record(2, "/registry/a/1"), record(9, "/registry/b/1"));
        db.branch(3, &[(first.0.clone(), 4), (second.0.clone(), 5)]);
        let more = record(3, "/registry/a/2");
        db.leaf(4, &[(0, first.0, first.1), (0, more.0, more.1)]);
        db.leaf(5, &[(0, second.0, second.1)]);
        if let Some(numbers) = freelist {
            let mut page = header(7, flags::FREELIST, numbers.len());
            page.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            db.put(7, &page);
        }
        db
    }

    fn put(&mut self, page: u64, bytes: &[u8]) {
        let at = usize::try_from(page).unwrap() * self.page_size;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn leaf(&mut self, id: u64, items: &[(u32, Vec<u8>, Vec<u8>)]) {
        let (mut page, mut data) = (header(id, flags::LEAF, items.len()), Vec::new());
        for (n, (kind, key, value)) in items.iter().enumerate() {
            let pos = (items.len() - n) * 16 + data.len();
            for number in [*kind, pos as u32, key.len() as u32, value.len() as u32] {
                page.extend(number.to_le_bytes());
            }
            data.extend([&key[..], value].concat());
        }
        page.extend(data);
        self.put(id, &page);
    }

    fn branch(&mut self, id: u64, items: &[(Vec<u8>, u64)]) {
        let (mut page, mut data) = (header(id, flags::BRANCH, items.len()), Vec::<u8>::new());
        for (n, (key, child)) in items.iter().enumerate() {
            let pos = (items.len() - n) * 16 + data.len();
            page.extend((pos as u32).to_le_bytes());
            page.extend((key.len() as u32).to_le_bytes());
            page.extend(child.to_le_bytes());
            data.extend(&key[..]);
        }
        page.extend(data);
        self.put(id, &page);
    }

    /// Overwrites bytes of a page.
    fn set(mut self, page: u64, at: usize, bytes: &[u8]) -> Self {
        let from = usize::try_from(page).unwrap() * self.page_size + at;
        self.bytes[from..from + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn read(&self) -> BackendDeep {
        let question = DeepQuestion { revision: None, compact: None, until: None, progress: &mut |_, _| {} };
        read_deep(&self.bytes.as_slice(), question).unwrap().1
    }

    /// The hash of the part up to a revision, and the keys of that revision.
    fn until(&self, until: i64) -> (u32, Vec<String>) {
        let mut records = Vec::new();
        let asked = Some((until, &mut records));
        let question = DeepQuestion { revision: None, compact: None, until: asked, progress: &mut |_, _| {} };
        let hash = read_deep(&self.bytes.as_slice(), question).unwrap().1.hashkv.unwrap().hash;
        (hash, records.into_iter().map(|record| record.key).collect())
    }

    fn faults(&self) -> Vec<FaultKind> {
        self.read().faults.iter().map(|fault| fault.kind).collect()
    }
}

fn header(id: u64, kind: u16, count: usize) -> Vec<u8> {
    let mut page = id.to_le_bytes().to_vec();
    page.extend(kind.to_le_bytes());
    page.extend((count as u16).to_le_bytes());
    page.extend(0_u32.to_le_bytes());
    page
}

fn db() -> Db {
    Db::new(1024, None)
}

#[test]
fn a_sound_db_of_any_page_size_has_no_fault_and_its_numbers() {
    for page_size in [1024, 4096, 16_384, 65_536] {
        for freelist in [None, Some(&[6_u64][..])] {
            let deep = Db::new(page_size, freelist).read();
            assert_eq!((deep.fault_count, deep.content_count), (0, 0), "{:?} {:?}", deep.faults, deep.contents);
            assert_eq!((deep.records, deep.keys, deep.revision), (3, Some(3), Some(9)));
            let pages = deep.pages;
            assert_eq!((pages.branch, pages.leaf, pages.inline, pages.deepest), (1, 3, 2, 2));
            assert_eq!((pages.free, pages.freelist), if freelist.is_some() { (1, 1) } else { (2, 0) });
            let prefixes: Vec<_> = deep.prefixes.iter().map(|one| (one.prefix.as_str(), one.keys)).collect();
            assert_eq!(prefixes, [("/registry/a", 2), ("/registry/b", 1)]);
            assert!(deep.hashkv.is_some() && deep.status.is_some());
        }
    }
}

#[test]
fn a_part_of_the_history_hashes_its_records_and_lists_those_of_its_last_revision() {
    let sound = db();
    let mut other = db();
    // The value of the last record of page 4, which is revision 3.
    let (_, value) = record(3, "/registry/a/2");
    let page = &other.bytes[4 * 1024..5 * 1024];
    let at = 4 * 1024 + page.windows(value.len()).position(|bytes| bytes == value).unwrap() + value.len() - 1;
    other.bytes[at] = b'w';
    assert_eq!(sound.until(2), other.until(2));
    assert_eq!(sound.until(2).1, ["/registry/a/1"]);
    for until in [3, 4, 8, 9] {
        assert_ne!(sound.until(until).0, other.until(until).0, "{until}");
    }
    assert_eq!((sound.until(3).1, sound.until(4).1), (vec!["/registry/a/2".to_owned()], vec![]));
    assert_eq!(sound.until(9).0, sound.read().hashkv.unwrap().hash, "the whole of it");
}

#[test]
fn each_break_of_the_structure_is_named_and_no_hash_is_given_over_what_is_left() {
    let child = |n: usize| 16 + n * 16 + 8;
    let cases: Vec<(&str, Db, FaultKind)> = vec![
        ("pointer to the high-water mark", db().set(3, child(0), &8_u64.to_le_bytes()), FaultKind::OutOfBounds),
        ("pointer to a meta page", db().set(3, child(0), &1_u64.to_le_bytes()), FaultKind::OutOfBounds),
        ("pointer far away", db().set(3, child(0), &(1_u64 << 52).to_le_bytes()), FaultKind::OutOfBounds),
        ("two pointers to one page", db().set(3, child(1), &4_u64.to_le_bytes()), FaultKind::Twice),
        ("loop", db().set(3, child(1), &3_u64.to_le_bytes()), FaultKind::Twice),
        ("page of a number that no page has", db().set(4, 0, &9_u64.to_le_bytes()), FaultKind::OtherIdInUse),
        ("page of the number of another", db().set(4, 0, &5_u64.to_le_bytes()), FaultKind::OtherIdInUse),
        ("page of the number of a free one", db().set(4, 0, &6_u64.to_le_bytes()), FaultKind::OtherId),
        ("page of another type", db().set(4, 8, &[0x20]), FaultKind::Type),
        ("empty branch", db().set(3, 10, &[0]), FaultKind::EmptyBranch),
        ("overflow over the end", db().set(5, 12, &[9]), FaultKind::OutOfBounds),
        ("overflow over a sibling", db().set(4, 12, &[1]), FaultKind::Twice),
        ("value out of its page", db().set(5, 16 + 12, &[0, 4]), FaultKind::Element),
        ("key within the elements", db().set(5, 16 + 4, &[4]), FaultKind::Element),
        ("more elements than fit", db().set(4, 10, &[0xff, 0xff]), FaultKind::Element),
        ("key below its parent's", db().set(5, 32 + 7, &[1]), FaultKind::Parent),
        ("keys out of order", db().set(4, 48 + 7, &[7]), FaultKind::Order),
        ("inline page with a number", db().set(2, 16 + 3 * 16 + 5 + 16, &[7]), FaultKind::Inline),
        ("inline page of another type", db().set(2, 16 + 3 * 16 + 5 + 16 + 8, &[1]), FaultKind::Inline),
        ("inline page with an element and no place", db().set(2, 64 + 5 + 16 + 10, &[1]), FaultKind::Inline),
        ("bucket in a bucket", db().set(5, 16, &[1]), FaultKind::Nested),
        ("plain key among buckets", db().set(2, 16, &[0]), FaultKind::Nested),
        ("meta page of another number", db().set(1, 0, &[3]), FaultKind::Meta),
    ];
    for (what, db, kind) in cases {
        let deep = db.read();
        assert!(deep.faults.iter().any(|fault| fault.kind == kind), "{what}: {:?}", deep.faults);
        assert_eq!(deep.status, None, "{what}");
        let of_key = deep.faults.iter().any(|fault| fault.bucket.as_deref() == Some("key"));
        assert!(!of_key || deep.hashkv.is_none(), "{what}: {:?}", deep.hashkv);
    }
}

#[test]
fn the_freelist_agrees_with_the_trees_or_the_page_is_named() {
    let faults = |numbers: &[u64]| Db::new(1024, Some(numbers)).faults();
    assert_eq!(faults(&[6]), []);
    assert_eq!(faults(&[]), [FaultKind::Lost]);
    assert_eq!(faults(&[6, 6]), [FaultKind::FreeTwice]);
    assert_eq!(faults(&[4, 6]), [FaultKind::FreeButUsed]);
    assert_eq!(faults(&[6, 8]), [FaultKind::Freelist]);
    assert_eq!(faults(&[1, 6]), [FaultKind::Freelist]);
    let list = || Db::new(1024, Some(&[6]));
    assert_eq!(list().set(7, 8, &[2]).faults(), [FaultKind::Freelist]);
    let long = Db::new(1024, Some(&[1, 6])).set(7, 10, &[0xff, 0xff]);
    assert_eq!(long.faults(), [], "the first number of a long list is its length");
    assert_eq!(list().set(7, 10, &[0xff]).faults()[0], FaultKind::Freelist, "more numbers than fit");
    assert_eq!(list().set(7, 12, &[1]).faults(), [FaultKind::Freelist], "more pages than there are");
    let mut cut = list();
    cut.bytes.truncate(8 * 1024 - 100);
    assert_eq!(cut.faults(), [FaultKind::Freelist], "its numbers are there, and its page is not whole");
}

#[test]
fn records_that_are_not_etcds_are_told() {
    let kinds = |db: Db| db.read().contents.iter().map(|one| one.kind).collect::<Vec<_>>();
    let data = 16 + 16;
    assert_eq!(kinds(db().set(5, data + 8, b"-")), [ContentKind::RevisionSeparator]);
    assert_eq!(kinds(db().set(5, data + 17, &[0x0b])), [ContentKind::Record]);
    // Field 12 instead of field 1: nothing says any more which key it is.
    assert_eq!(kinds(db().set(5, data + 17, &[0x62])), [ContentKind::Nameless]);
    let modified = data + 17 + 2 + 13 + 3;
    assert_eq!(kinds(db().set(5, modified, &[3])), [ContentKind::OtherRevision]);
    assert_eq!(kinds(db().set(5, modified + 2, &[2])), [ContentKind::OtherVersion]);
    let deep = db().set(5, modified + 2, &[2]).read();
    assert_eq!(deep.keys, Some(3), "counted though the version lies");
}

#[test]
fn a_file_that_ends_early_has_pages_beyond_it_and_is_read_to_there() {
    let mut cut = db();
    cut.bytes.truncate(5 * 1024 + 100);
    let deep = cut.read();
    assert_eq!(deep.faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(), [FaultKind::BeyondFile]);
    assert_eq!(deep.records, 2);
}

#[test]
fn branches_that_lie_side_by_side_are_not_read_ahead_again_for_each() {
    // Root bucket on page 2, top branch on 3, branches on 4 to 33, a leaf of each on 34 to 63.
    let many = 30_u64;
    let page_size = 1024;
    let mut db = Db { bytes: vec![0; (4 + 2 * many as usize) * page_size], page_size };
    for txid in [6_u64, 7] {
        db.put(txid % 2, &meta_page_of(1024, txid, 2, NO_FREELIST, 4 + 2 * many));
    }
    let key = [3_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    db.leaf(2, &[(1, b"key".to_vec(), key)]);
    let records: Vec<_> = (0..many).map(|n| record(2 + n as i64, "/registry/a/1")).collect();
    let children = |first: u64| records.iter().zip(first..).map(|(one, page)| (one.0.clone(), page));
    db.branch(3, &children(4).collect::<Vec<_>>());
    for (n, child) in children(4 + many).enumerate() {
        let leaf = child.1;
        db.branch(4 + n as u64, &[child]);
        db.leaf(leaf, &[(0, records[n].0.clone(), records[n].1.clone())]);
    }
    let deep = db.read();
    assert_eq!((deep.fault_count, deep.records), (0, many), "{:?}", deep.faults);
    // Only the first of them is read with what lies behind it.
    assert!(deep.bytes_read <= (4 + 3 * many) * 1024, "{} of {}", deep.bytes_read, db.bytes.len());
}
