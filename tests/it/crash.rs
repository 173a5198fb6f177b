//! The agent is killed with SIGKILL at each named point of its way (`src/fault.rs`), and the next one must come to the same
//! end: the gate open on the same filesystem with the same data. Or, where an mkfs was begun and its end is not on record,
//! to `intent-unfinished`, exactly where the attachment has ended since or where something stands that is not a whole
//! filesystem of ours.
//!
//! The points exist only in a build with the feature `fault-points`; `make test` builds that as well.

#[cfg(feature = "fault-points")]
mod directories;
#[cfg(feature = "fault-points")]
mod orders;
#[cfg(feature = "fault-points")]
mod points;

/// What would be a way to kill a production agent by its environment.
#[cfg(not(feature = "fault-points"))]
#[test]
fn a_build_that_is_not_for_these_tests_has_no_fault_points() {
    use crate::common::{Guard, Loop, Node, Tmp, disk};
    crate::needs_root!();
    let program = std::fs::read(env!("CARGO_BIN_EXE_volhold")).expect("the program");
    let says = |word: &str| program.windows(word.len()).any(|window| window == word.as_bytes());
    assert!(says("VOLHOLD_CONFIG"), "this is not how to look for a word in it");
    assert!(!says("VOLHOLD_CRASH_AT"), "this build can be told to kill itself");

    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 32 * disk::MIB));
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    node.crash_at(Some("after-find"));
    node.start();
    node.await_open("main");
}

/// No package and no default is built with them.
#[test]
fn fault_points_are_no_default() {
    let manifest: toml::Table = include_str!("../../Cargo.toml").parse().expect("the manifest");
    let features = manifest["features"].as_table().expect("features");
    let named = |feature: &str, list: &toml::Value| {
        list.as_array().is_some_and(|list| list.iter().any(|name| name.as_str() == Some(feature)))
    };
    assert!(features.contains_key("fault-points"));
    let wanting: Vec<_> = features.iter().filter(|(_, list)| named("fault-points", list)).collect();
    assert!(wanting.is_empty(), "brought along by {wanting:?}");
}
