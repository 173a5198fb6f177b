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
