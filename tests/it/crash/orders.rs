//! The agent is killed at each step of an order, and the next one finishes it; or nothing had begun, and it does it all.

use crate::common::node::{Answer, codes};
use crate::common::{Mounted, disk};
use crate::orders::{BACK, Incident, NEW, OLD, cluster_of, content, quarantined};
use serde_json::Value;
use std::path::Path;

/// What the volume must hold after any crash and before the next agent: both dirs, whole, wherever they are by now, and a
/// `state` that is one of the two.
#[track_caller]
fn nothing_is_lost(incident: &Incident, root: &Path) {
    let at = |places: &[&str]| {
        let there: Vec<_> = places.iter().map(|place| root.join(place)).filter(|place| place.exists()).collect();
        assert_eq!(there.len(), 1, "{there:?} of {places:?}");
        content(&there[0])
    };
    assert_eq!(at(&[OLD, BACK]), incident.old);
    let new = if root.join(NEW).exists() { root.join(NEW) } else { quarantined(root).join("content") };
    assert_eq!(content(&new), incident.new);
    let state = std::fs::read(root.join("state")).unwrap();
    assert!(!state.is_empty());
}

#[track_caller]
fn rolled_back(point: &str) {
    crate::needs_root!();
    let incident = Incident::new();
    let mut node = incident.node();
    node.crash_at(Some(point));
    node.start();
    node.await_held("etcd-main", "empty-beside-old");
    let cluster = cluster_of(&node, OLD);
    let verb = ["rollback", "etcd-main", "--to", OLD, "--confirm", &cluster, "-o", "json"];
    let answer: Answer = node.volhold(&verb);
    node.await_killed();
    node.crash_at(None);
    // Whoever waits at the terminal is told that it is not known.
    let known = point == "after-order-ended";
    assert!(answer.code == Some(75) || (known && answer.code == Some(0)), "{answer:#?}");

    // As a power cut leaves it, but for what the kernel still has.
    node.manager.empty_store();
    disk::await_free(incident.device.node());
    let by_hand = incident.tmp.join("by-hand");
    std::fs::create_dir(&by_hand).unwrap();
    let mounted = Mounted::new(incident.device.node(), &by_hand);
    nothing_is_lost(&incident, &by_hand);
    drop(mounted);

    node.start();
    let status = node.await_status("etcd-main", "open on the old data", |status| status["gate"] == "open");
    assert_eq!(status["data_dir"]["path"], BACK, "{status:#}");
    let mnt = node.path("mnt");
    nothing_is_lost(&incident, &mnt);
    assert_eq!(content(&mnt.join(BACK)), incident.old);
    let state: Value = node.volhold(&["state", "show", &mnt.join("state").to_string_lossy(), "-o", "json"]).json();
    assert_eq!(state["cluster_token"], "etcd-cluster-token-etcd", "{state:#}");
    let kept = std::fs::read_dir(&mnt)
        .unwrap()
        .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("state.")));
    assert_eq!(kept.count(), 1, "the old state is kept once");
    let history = node.volhold(&["history", "etcd-main"]).stdout;
    assert_eq!(history.matches(": done").count(), 1, "{history}");
}

macro_rules! at_each_step {
    ($($name:ident: $point:literal;)*) => { $(#[test] fn $name() { rolled_back($point) })* };
}

at_each_step! {
    before_the_first_change: "before-change";
    after_the_manifest: "after-manifest";
    after_the_quarantine: "after-quarantine-rename";
    between_quarantine_and_move: "before-change:2";
    after_the_move_is_noted: "after-move-noted";
    after_the_move: "after-move-rename";
    between_move_and_state: "before-change:3";
    before_the_old_state_is_kept: "before-state-kept";
    after_the_old_state_is_kept: "after-state-kept";
    before_the_new_state_has_its_name: "before-state-rename";
    after_the_new_state_has_its_name: "after-state-rename";
    before_the_end_is_on_record: "before-order-ended";
    after_the_end_is_on_record: "after-order-ended";
}

#[test]
fn what_is_given_back_is_given_back_once() {
    crate::needs_root!();
    let incident = Incident::new();
    let mut node = incident.node();
    node.start();
    node.await_held("etcd-main", "empty-beside-old");
    assert_eq!(node.volhold(&["quarantine", "etcd-main", NEW, "--yes"]).code, Some(0));
    // The look that it belongs to has ended: no child of the agent outlives it.
    node.await_status("etcd-main", "held for what state names", |status| {
        codes(&status["reasons"]).contains(&"data-vanished".to_owned())
    });
    let listed = node.volhold(&["quarantine", "list", "etcd-main", "-o", "json"]).json();
    let name = listed["entries"][0]["name"].as_str().unwrap().to_owned();
    node.kill_agent();
    node.crash_at(Some("after-give-back-rename"));
    node.start();
    node.await_verdict("etcd-main");
    let answer = node.volhold(&["quarantine", "restore", "etcd-main", &name, "--yes"]);
    assert_eq!(answer.code, Some(75), "{answer:#?}");
    node.await_killed();
    node.crash_at(None);
    node.start();
    node.await_held("etcd-main", "empty-beside-old");
    let listed = node.volhold(&["quarantine", "list", "etcd-main", "-o", "json"]).json();
    assert_eq!(listed["entries"].as_array().map(Vec::len), Some(0), "{listed:#}");
}
