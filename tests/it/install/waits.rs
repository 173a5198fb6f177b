//! What `volhold wait` waits for: a configured guard, and only where it holds something back.

use crate::common::{Guard, Loop, Node, Tmp, disk};
use crate::needs_root;
use disk::MIB;

#[test]
fn a_guard_that_nobody_configured_fails_at_once_and_one_that_observes_holds_nothing() {
    let node = Node::new();
    node.configure(&[Guard::observe("etcd-main", "/dev/volhold-none", &node.path("mnt"))]);
    let nobody = node.volhold(&["wait", "nobody", "--timeout", "20s"]);
    assert_eq!(nobody.code, Some(78), "{nobody:#?}");
    let observes = node.volhold(&["wait", "etcd-main", "--timeout", "20s"]);
    assert_eq!(observes.code, Some(0), "{observes:#?}");
    assert!(observes.stderr.contains("observes"), "{}", observes.stderr);
}

#[test]
fn a_hold_is_a_decision_and_no_open_gate() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("held.img"), 8 * MIB);
    disk::write_at(&image, 5 * MIB, b"something that somebody wrote");
    let volume = Loop::new(&image);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("etcd-main", volume.node(), &node.path("mnt"))]);
    let undecided = node.volhold(&["wait", "--decided", "etcd-main", "--timeout", "0s"]);
    assert_eq!(undecided.code, Some(75), "no agent has said anything: {undecided:#?}");
    node.start();
    node.await_held("etcd-main", "unknown-data");
    let decided = node.volhold(&["wait", "--decided", "etcd-main", "--timeout", "60s"]);
    assert_eq!(decided.code, Some(0), "{decided:#?}");
    assert!(decided.stderr.contains("HELD"), "{}", decided.stderr);
    assert_eq!(node.volhold(&["wait", "etcd-main", "--timeout", "0s"]).code, Some(3));
}
