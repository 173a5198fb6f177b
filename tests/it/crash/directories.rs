//! The points of the way on which directories of a volume are published: whatever the crash leaves, the next agent shows all
//! of them, and no gate was open before all were to be seen.

use crate::common::tmp::mount_table;
use crate::common::{Guard, Loop, Node, Tmp, disk, fixture};
use disk::MIB;
use std::path::Path;
use volhold::record::ledger;

const PLACES: [(&str, &str); 3] = [("etcd", "at/etcd"), ("srv/more", "at/more"), ("third", "at/third")];

fn blank(tmp: &Tmp) -> Loop {
    Loop::new(&disk::sparse(&tmp.join("volume"), 32 * MIB))
}

fn with_data(tmp: &Tmp) -> Loop {
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    std::fs::rename(tree.join("data"), tree.join("etcd")).expect("the data dir");
    std::fs::create_dir_all(tree.join("srv/more")).expect("a directory");
    std::fs::create_dir(tree.join("third")).expect("a directory");
    let image = disk::sparse(&tmp.join("volume"), 64 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    Loop::new(&image)
}

/// How many of the places show something of the volume.
fn visible(node: &Node) -> usize {
    let table = mount_table();
    PLACES.iter().filter(|(_, at)| table.iter().any(|mount| mount.at == node.path(at))).count()
}

#[track_caller]
fn opened(node: &mut Node, device: &Loop) {
    node.start();
    let status = node.await_open("main");
    assert_eq!(status["reasons"].as_array().map(Vec::len), Some(0), "{status:#}");
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo").expect("mountinfo");
    for (from, at) in PLACES {
        let at = node.path(at);
        let roots: Vec<&str> = table
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .filter(|fields| Path::new(fields[4]) == at)
            .map(|fields| fields[3])
            .collect();
        assert_eq!(roots, [format!("/{from}")], "each directory once, at its place");
    }
    let whole = Tmp::new();
    let mounted = crate::common::Mounted::new(device.node(), &whole.join("whole"));
    let bytes = std::fs::read(mounted.at().join(".volhold/ledger")).expect("the volume's ledger");
    assert_eq!(ledger::parse(&bytes).expect("a whole ledger on the volume").torn, None);
    drop(mounted);
    let check = node.gate_check("main");
    assert_eq!(check.code, Some(0), "{check:#?}");
}

#[track_caller]
fn crash(make: fn(&Tmp) -> Loop, point: &str, seen: usize) {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = make(&tmp);
    let mut node = Node::new();
    let places = PLACES.map(|(from, at)| (from, node.path(at)));
    node.configure(&[Guard::enforce("main", device.node(), &node.path("unused"))
        .directories(&places)
        .data_dir("etcd")]);
    node.crash_at(Some(point));
    node.spawn();
    node.await_killed();
    node.crash_at(None);
    assert_eq!(visible(&node), seen, "{point} is not where this test thinks");
    assert_eq!(node.ready_file("main").exists(), point == "after-ready-file", "the gate at {point}");
    opened(&mut node, &device);
    assert!(!node.path("at/etcd/.volhold").exists() && !node.path("at/etcd/lost+found").exists());
}

macro_rules! points {
    ($make:ident { $($name:ident: $point:literal, $seen:literal;)* }) => {
        mod $make {
            $(#[test] fn $name() { super::crash(super::$make, $point, $seen) })*
        }
    };
}

points! { blank {
    before_seal: "before-seal", 0;
    after_the_first_directory: "after-directory", 0;
    after_the_second_directory: "after-directory:2", 0;
    after_data_dir: "after-data-dir", 0;
    between_ledgers: "between-ledgers", 0;
    before_the_copies: "before-move-mount", 0;
    after_the_copies: "after-clone", 0;
    after_the_first_move: "between-moves", 1;
    after_the_second_move: "between-moves:2", 2;
    after_all_moves: "after-move-mount", 3;
    before_ready_file: "before-ready-file", 3;
    after_ready_file: "after-ready-file", 3;
}}

points! { with_data {
    after_seal: "after-seal", 0;
    between_ledgers: "between-ledgers", 0;
    before_the_copies: "before-move-mount", 0;
    after_the_copies: "after-clone", 0;
    after_the_first_move: "between-moves", 1;
    after_the_second_move: "between-moves:2", 2;
    after_all_moves: "after-move-mount", 3;
    after_ready_file: "after-ready-file", 3;
}}
