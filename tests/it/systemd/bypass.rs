//! The night on which volhold itself is broken: a gate is opened by hand, and everybody is told.

use super::{AGENT, ETCD, GATE, Master};
use crate::http::client::Client;
use crate::needs_root;

impl Master {
    #[track_caller]
    fn bypass(&self) {
        self.machine.sh(&format!("volhold-bypass etcd-main {} /var/lib/etcd etcd.service", self.volume.name()));
    }

    fn times_in_history(&self, decision: &str) -> usize {
        let history = self.machine.run(&["volhold", "history", "etcd-main", "-o", "json"]).json();
        let entries = history["entries"].as_array().cloned().unwrap_or_default();
        entries.iter().filter(|entry| entry["decision"] == decision).count()
    }
}

#[test]
fn a_held_gate_is_opened_by_hand_and_everybody_says_so() {
    needs_root!();
    let master = Master::held();
    let machine = &master.machine;
    master.bypass();
    master.until_etcd_serves();
    assert_eq!(master.get("made"), "before");
    assert!(machine.property(GATE, "StatusText").contains("BYPASSED"));
    let status = master.status();
    assert_eq!(status["bypassed"][0]["name"], "etcd-main", "{status:#}");
    assert!(machine.run(&["volhold", "status"]).stdout.contains("etcd-main is BYPASSED"));
    let check = machine.run(&["volhold", "gate", "check", "etcd-main"]);
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(check.stderr.contains("BYPASSED"), "{check:?}");
    let told = machine.sh("journalctl --no-pager MESSAGE_ID=5d1f0f0b7c0e4d0c9b4f3f2a6f0d8e21");
    assert!(told.contains("opens the gate of etcd-main by hand"), "{told}");

    // The catalog explains it, with the guard's name in it.
    machine.sh("journalctl --update-catalog");
    let explained = machine.sh("journalctl --no-pager -x MESSAGE_ID=5d1f0f0b7c0e4d0c9b4f3f2a6f0d8e21");
    assert!(explained.contains("The gate of the guard etcd-main was opened by hand"), "{explained}");
    // The check before etcd's start has put it on record.
    assert_eq!(master.times_in_history("bypass"), 1);

    // volhold works again: it leaves the running etcd alone, and still says how it came to run.
    let etcd = master.etcd_pid();
    machine.sh("systemctl start volhold");
    machine.until("the agent has looked", |_| master.guard("etcd-main")["gate"] == "open");
    assert_eq!(master.etcd_pid(), etcd);
    assert_eq!(master.status()["bypassed"][0]["name"], "etcd-main");
    let over_http = Client::to(&machine.outside("/run/volhold/volhold.sock"))
        .ask("GET /v1/status HTTP/1.1\r\nHost: volhold\r\n\r\n")
        .json();
    assert_eq!(over_http["bypassed"], master.status()["bypassed"]);
    assert_eq!(master.times_in_history("bypass"), 1, "once for each time that a person did it");
}

#[test]
fn a_gate_is_opened_by_hand_where_the_program_fails_and_the_next_boot_knows_nothing_of_it() {
    needs_root!();
    let mut master = Master::new(super::Expected::Anything);
    master.enable(AGENT);
    master.enable(ETCD);
    master.machine.relink("/bin/false", "/usr/bin/volhold");
    master.boot();
    master.machine.until_state(GATE, "failed");
    assert_eq!(master.machine.state(ETCD), "inactive");
    master.bypass();
    master.until_etcd_serves();
    assert_eq!(master.get("made"), "before");

    master.machine.relink("/opt/built/volhold", "/usr/bin/volhold");
    master.machine.reboot();
    master.until_etcd_serves();
    let status = master.status();
    assert!(status["bypassed"].is_null(), "{status:#}");
    assert_eq!(master.guard("etcd-main")["gate"], "open");
    assert!(master.machine.property(GATE, "ExecStart").contains("/usr/bin/volhold"));
}

#[test]
fn what_is_not_as_the_person_says_opens_nothing() {
    needs_root!();
    let master = Master::held();
    let machine = &master.machine;
    let name = master.volume.name();
    for (line, code) in [
        ("volhold-bypass etcd-main".to_owned(), 2),
        (format!("volhold-bypass ../etcd {name} /var/lib/etcd"), 2),
        ("volhold-bypass etcd-main /dev/null /var/lib/etcd".to_owned(), 1),
        (format!("volhold-bypass etcd-main {name} /nowhere"), 1),
        // Something else is mounted there.
        (format!("volhold-bypass etcd-main {name} /run"), 1),
    ] {
        let answer = machine.run(&["sh", "-c", &line]);
        assert_eq!(answer.code, Some(code), "{line}: {answer:?}");
        assert_eq!(machine.state(GATE), "activating", "{line}");
        assert_eq!(machine.run(&["test", "-e", "/run/volhold/bypass/etcd-main"]).code, Some(1), "{line}");
    }
}
