//! In place of `ebs` in a build without the SDK.

use crate::common::{Guard, Node, Tmp, disk};

#[test]
fn volumes_of_ec2_are_not_tested_in_a_build_without_the_sdk() {
    println!("SKIP every test of ebs.rs: built without the feature `aws`, so nothing here has spoken to an EC2");
}

#[test]
fn a_volume_that_is_not_here_waits_and_says_that_this_build_cannot_fetch_it() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let mut node = Node::new();
    let mut guard = Guard::enforce("main", disk::sparse(&tmp.join("unused"), 4096), &node.path("mnt"));
    guard.source = Some("provider = \"ebs\"\nvolume_id = \"vol-0123456789abcdef0\"".to_owned());
    node.configure(&[guard]);
    node.start();
    let status = node.await_held("main", "provider-unreachable");
    let message = status["reasons"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("built without EC2"), "{status:#}");
}
