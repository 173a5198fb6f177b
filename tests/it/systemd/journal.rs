//! What the agent tells, read back from a real journal.

use super::Master;
use crate::needs_root;
use volhold::cli::manual::message_id;
use volhold::model::ReasonCode;

#[test]
fn a_hold_stands_in_the_journal_by_its_reason_and_is_explained_there() {
    needs_root!();
    let master = Master::held();
    let machine = &master.machine;
    let code = master.guard("etcd-main")["reasons"][0]["code"].as_str().expect("a code").to_owned();
    let known = ReasonCode::ALL.iter().find(|known| known.as_str() == code).expect("a reason");
    let id = message_id(*known);

    let told = machine.sh(&format!("journalctl --no-pager --output=json --unit=volhold MESSAGE_ID={id}"));
    let entries: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let held = entries.iter().find(|entry| entry["VOLHOLD_EVENT"] == "guard.held").expect("the hold");
    assert_eq!(held["VOLHOLD_GUARD"], "etcd-main", "{held:#}");
    assert_eq!(held["VOLHOLD_REASON"], code.as_str(), "{held:#}");
    assert_eq!(held["PRIORITY"], "3", "{held:#}");
    assert_eq!(held["SYSLOG_IDENTIFIER"], "volhold", "{held:#}");
    assert!(held["MESSAGE"].as_str().is_some_and(|text| text.starts_with("etcd-main: held: ")), "{held:#}");
    assert_eq!(entries.len(), 1, "a state is told when it comes, and once: {told}");

    machine.sh("journalctl --update-catalog");
    let explained = machine.sh(&format!("journalctl --no-pager -x --unit=volhold MESSAGE_ID={id}"));
    assert!(explained.contains(&format!("Guard etcd-main, {code}: ")), "{explained}");
    assert!(explained.contains("volhold explain etcd-main"), "{explained}");
}
