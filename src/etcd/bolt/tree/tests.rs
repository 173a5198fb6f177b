#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
use super::*;

const PS: usize = 1024;

fn meta(root: u64, high_water: u64) -> Meta {
    Meta { page_size: 1024, root, freelist: crate::etcd::bolt::NO_FREELIST, high_water, txid: 1 }
}

fn header(id: u64, kind: u16, count: usize) -> Vec<u8> {
    let mut page = id.to_le_bytes().to_vec();
    page.extend(kind.to_le_bytes());
    page.extend((count as u16).to_le_bytes());
    page.extend(0u32.to_le_bytes());
    page
}

fn leaf(id: u64, items: &[(&str, &str)]) -> Vec<u8> {
    let mut page = header(id, flags::LEAF, items.len());
    let mut data = Vec::new();
    for (i, (k, v)) in items.iter().enumerate() {
        let pos = (items.len() - i) * ELEMENT + data.len();
        for n in [0, pos as u32, k.len() as u32, v.len() as u32] {
            page.extend(n.to_le_bytes());
        }
        data.extend(k.bytes().chain(v.bytes()));
    }
    page.extend(data);
    page.resize(PS, 0);
    page
}

fn branch(id: u64, children: &[(&str, u64)]) -> Vec<u8> {
    let mut page = header(id, flags::BRANCH, children.len());
    let mut data = Vec::new();
    for (i, (k, child)) in children.iter().enumerate() {
        let pos = (children.len() - i) * ELEMENT + data.len();
        page.extend((pos as u32).to_le_bytes());
        page.extend((k.len() as u32).to_le_bytes());
        page.extend(child.to_le_bytes());
        data.extend(k.bytes());
    }
    page.extend(data);
    page.resize(PS, 0);
    page
}

/// Two metas' worth of nothing, then the pages.
fn file(pages: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; 2 * PS];
    for page in pages {
        bytes.extend(page);
    }
    bytes
}

fn keys(bytes: &[u8], root: u64, direction: Direction) -> Result<Vec<String>, TreeError> {
    let trees = Trees::new(&bytes, meta(root, (bytes.len() / PS) as u64), bytes.len() as u64);
    let mut keys = Vec::new();
    trees.walk(&trees.root(), direction, &mut Budget::mib(1), &mut |_, item| {
        keys.push(String::from_utf8(item.key.to_vec()).unwrap());
        Ok(Flow::On)
    })?;
    Ok(keys)
}

fn defect(bytes: &[u8], root: u64) -> PageDefect {
    match keys(bytes, root, Direction::Forward) {
        Err(TreeError::Page { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

fn good() -> Vec<Vec<u8>> {
    vec![branch(2, &[("a", 3), ("m", 4)]), leaf(3, &[("a", "1"), ("b", "2")]), leaf(4, &[("m", "3"), ("z", "4")])]
}

#[test]
fn a_tree_is_walked_both_ways() {
    assert_eq!(keys(&file(&good()), 2, Direction::Forward).unwrap(), ["a", "b", "m", "z"]);
    assert_eq!(keys(&file(&good()), 2, Direction::Backward).unwrap(), ["z", "m", "b", "a"]);
}

#[test]
fn a_cycle_ends_the_walk() {
    let mut pages = good();
    pages[0] = branch(2, &[("a", 3), ("m", 2)]);
    assert_eq!(defect(&file(&pages), 2), PageDefect::Twice);
}

#[test]
fn a_child_beyond_the_high_water_mark_is_not_read() {
    let mut pages = good();
    pages[0] = branch(2, &[("a", 3), ("m", 1 << 40)]);
    assert_eq!(defect(&file(&pages), 2), PageDefect::OutOfBounds { high_water: 5 });
    pages[0] = branch(2, &[("a", 1), ("m", 4)]);
    assert_eq!(defect(&file(&pages), 2), PageDefect::OutOfBounds { high_water: 5 });
}

#[test]
fn a_page_that_says_it_is_another_or_of_another_type_is_told() {
    let mut pages = good();
    pages[2][0] = 9;
    assert_eq!(defect(&file(&pages), 2), PageDefect::OtherId { found: 9 });
    let mut pages = good();
    pages[2][8] = 0x20;
    assert_eq!(defect(&file(&pages), 2), PageDefect::Type { found: 0x20, wanted: "branch or leaf" });
}

#[test]
fn elements_outside_of_their_page_are_told() {
    let mut pages = good();
    pages[1][PAGE_HEADER + 8..PAGE_HEADER + 12].copy_from_slice(&0x7fff_fff0u32.to_le_bytes());
    assert_eq!(defect(&file(&pages), 2), PageDefect::Element { index: 0, count: 2 });
    let mut pages = good();
    pages[1][10..12].copy_from_slice(&u16::MAX.to_le_bytes());
    assert!(matches!(defect(&file(&pages), 2), PageDefect::Element { .. } | PageDefect::Order { .. }));
}

#[test]
fn keys_out_of_order_or_below_the_wrong_parent_are_told() {
    let mut pages = good();
    pages[1] = leaf(3, &[("b", "2"), ("a", "1")]);
    assert_eq!(defect(&file(&pages), 2), PageDefect::Order { index: 1 });
    let mut pages = good();
    pages[1] = leaf(3, &[("a", "1"), ("n", "2")]);
    assert_eq!(defect(&file(&pages), 2), PageDefect::Parent);
    let mut pages = good();
    pages[2] = leaf(4, &[("c", "1"), ("n", "2")]);
    assert_eq!(defect(&file(&pages), 2), PageDefect::Parent);
}

#[test]
fn a_file_cut_below_a_used_page_is_told() {
    let whole = file(&good());
    let bytes = &whole[..whole.len() - 1];
    let trees = Trees::new(&bytes, meta(2, 5), bytes.len() as u64);
    let ended = trees.walk(&trees.root(), Direction::Forward, &mut Budget::mib(1), &mut |_, _| Ok(Flow::On));
    assert!(matches!(ended, Err(TreeError::Page { page: 4, what: PageDefect::BeyondFile { .. }, .. })), "{ended:?}");
}

#[test]
fn a_budget_ends_the_walk_and_says_so() {
    let bytes = file(&good());
    let trees = Trees::new(&bytes.as_slice(), meta(2, 5), bytes.len() as u64).walk(
        &Bucket::Page(2),
        Direction::Forward,
        &mut Budget { bytes: 2048, pages: 9 },
        &mut |_, _| Ok(Flow::On),
    );
    assert_eq!(trees.unwrap(), Ended::Budget);
}

/// Notes what it is told of, and what is read.
struct Noting<'a> {
    bytes: &'a [u8],
    asked: std::cell::RefCell<Vec<u64>>,
    /// Pages that were read without having been asked for.
    waited_for: std::cell::RefCell<Vec<u64>>,
}

impl<'a> Noting<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Noting { bytes, asked: std::cell::RefCell::default(), waited_for: std::cell::RefCell::default() }
    }
}

impl ReadAt for Noting<'_> {
    fn size(&self) -> std::io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let page = offset / PS as u64;
        if !self.asked.borrow().contains(&page) {
            self.waited_for.borrow_mut().push(page);
        }
        self.bytes.read_at(buf, offset)
    }

    fn will_need(&self, offset: u64, len: u64) {
        assert!(offset + len <= self.bytes.len() as u64, "{len} bytes at {offset} are not in the file");
        self.asked.borrow_mut().extend(offset / PS as u64..(offset + len) / PS as u64);
    }
}

/// A branch with 40 leaves that lie in no order, with pages between them that are no part of the tree.
fn scattered() -> Vec<u8> {
    let names: Vec<String> = (0..40).map(|n| format!("k{n:02}")).collect();
    let place = |n: u64| 3 + (n * 7 % 40) * 12;
    let children: Vec<(&str, u64)> = names.iter().zip(0..).map(|(name, n)| (name.as_str(), place(n))).collect();
    let mut pages = vec![branch(2, &children)];
    pages.resize(40 * 12 + 1, vec![0; PS]);
    for (name, at) in &children {
        pages[*at as usize - 2] = leaf(*at, &[(*name, "v")]);
    }
    file(&pages)
}

#[test]
fn the_disk_is_asked_for_the_pages_that_a_walk_will_come_to_and_for_no_others() {
    let bytes = scattered();
    for direction in [Direction::Forward, Direction::Backward] {
        let source = Noting::new(&bytes);
        let trees = Trees::new(&source, meta(2, (bytes.len() / PS) as u64), bytes.len() as u64);
        let mut count = 0;
        let walked = trees.walk(&trees.root(), direction, &mut Budget::mib(1), &mut |_, _| {
            count += 1;
            Ok(Flow::On)
        });
        assert_eq!((walked.unwrap(), count), (Ended::Complete, 40));
        // The root, and two leaves before it is clear that more is wanted.
        assert_eq!(source.waited_for.borrow().len(), 3, "{direction:?}: {:?}", source.waited_for);
        assert_eq!(source.asked.borrow().len(), 38, "{direction:?}: each of the others once");
    }
}

#[test]
fn a_walk_that_wants_the_newest_record_or_has_little_to_spend_asks_for_no_more_than_it_may_read() {
    let bytes = scattered();
    let source = Noting::new(&bytes);
    let trees = Trees::new(&source, meta(2, (bytes.len() / PS) as u64), bytes.len() as u64);
    let newest = trees.walk(&trees.root(), Direction::Backward, &mut Budget::mib(1), &mut |_, _| Ok(Flow::Stop));
    assert_eq!(newest.unwrap(), Ended::Stopped);
    assert_eq!(*source.asked.borrow(), [] as [u64; 0]);
    let mut little = Budget { bytes: 6 * PS as u64, pages: u64::MAX };
    let ended = trees.walk(&trees.root(), Direction::Forward, &mut little, &mut |_, _| Ok(Flow::On));
    assert_eq!(ended.unwrap(), Ended::Budget);
    assert_eq!(source.asked.borrow().len(), 3, "the root and two leaves of six were read before");
}
