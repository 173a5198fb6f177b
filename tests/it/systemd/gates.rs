//! etcd waits for its gate, and for nothing else of volhold.

use super::{AGENT, ETCD, Expected, GATE, Master};
use crate::needs_root;

#[test]
fn etcd_waits_its_gate_says_why_and_it_starts_when_the_gate_opens() {
    needs_root!();
    let master = Master::held();
    let machine = &master.machine;
    assert_eq!(machine.state(GATE), "activating");
    assert_eq!(machine.state(ETCD), "inactive");
    let jobs = machine.sh("systemctl list-jobs --no-legend");
    assert!(jobs.lines().any(|job| job.contains("etcd.service") && job.contains("waiting")), "{jobs}");
    let shown = machine.run(&["systemctl", "status", "--no-pager", GATE]).stdout;
    assert!(shown.contains("Status: \"HELD: "), "{shown}");

    master.reconfigure(Expected::Anything);
    master.until_etcd_serves();
    assert_eq!(machine.state(GATE), "active");
    assert_eq!(machine.property(GATE, "SubState"), "exited");
    assert_eq!(master.get("made"), "before");
}

#[test]
fn an_etcd_that_is_not_root_starts_on_a_fresh_volume() {
    needs_root!();
    let mut master = Master::blank();
    master.enable(AGENT);
    master.enable(ETCD);
    master.boot();
    master.until_etcd_serves();
    let owners = master.machine.sh("stat -c %U /var/lib/etcd/default /var/lib/etcd/default/member");
    assert_eq!(owners, "etcd\netcd");
    master.put("who", "etcd");
    assert_eq!(master.get("who"), "etcd");
}

#[test]
fn nothing_that_happens_to_the_agent_or_the_gate_touches_a_running_etcd() {
    needs_root!();
    let master = Master::running();
    let machine = &master.machine;
    let (etcd, first_agent) = (master.etcd_pid(), master.agent_pid());
    let unharmed = |after: &str| {
        assert_eq!(master.etcd_pid(), etcd, "{after}\n{}", machine.journal());
        assert_eq!(machine.state(ETCD), "active", "{after}");
        assert_eq!(machine.state(GATE), "active", "{after}");
    };

    machine.sh("systemctl kill --signal=KILL volhold");
    machine.until("another agent runs", |_| {
        machine.state(AGENT) == "active" && master.agent_pid() != first_agent && master.agent_pid() != "0"
    });
    unharmed("kill -9");
    machine.sh("systemctl restart volhold");
    unharmed("restart");
    machine.sh("systemctl daemon-reload && systemctl try-restart volhold");
    unharmed("upgrade");
    machine.sh("systemctl daemon-reexec");
    unharmed("systemd's own upgrade");
    machine.sh("systemctl stop volhold");
    unharmed("stop");
    for verb in ["stop", "restart", "try-restart"] {
        let refused = machine.run(&["systemctl", verb, GATE]);
        assert_ne!(refused.code, Some(0), "{verb}: {refused:?}");
        unharmed(verb);
    }
    // There is nothing left of it to be killed.
    machine.run(&["systemctl", "kill", "--signal=KILL", GATE]);
    unharmed("kill -9 of the gate");
    machine.sh("rm /usr/bin/volhold /lib/systemd/system/volhold* && systemctl daemon-reload");
    unharmed("removal");
    master.put("still", "here");
}

#[test]
fn an_agent_that_dies_opens_no_closed_gate_and_etcd_starts_when_another_one_opens_it() {
    needs_root!();
    let master = Master::held();
    let machine = &master.machine;
    machine.sh("systemctl kill --signal=KILL volhold");
    let before = master.agent_pid();
    machine.until("another agent holds it", |_| {
        master.agent_pid() != before && master.guard("etcd-main")["gate"] == "held" && machine.state(AGENT) == "active"
    });
    machine.sh("systemctl stop volhold");
    assert_eq!(machine.state(GATE), "activating");
    assert_eq!(machine.state(ETCD), "inactive");
    assert_ne!(machine.sh("systemctl list-jobs --no-legend"), "");
    machine.sh(&format!("cat >/etc/volhold/config.toml <<'END'\n{}END", master.config(Expected::Anything)));
    machine.sh("systemctl start volhold");
    master.until_etcd_serves();
}

impl Master {
    /// Kills everything in the gate's unit, as the memory killer or a tired person does.
    #[track_caller]
    fn kill_the_wait(&self) {
        self.machine.sh(&format!("systemctl kill --signal=KILL {GATE}"));
    }

    fn waiting_pid(&self) -> String {
        self.machine.property(GATE, "MainPID")
    }
}

#[test]
fn a_wait_that_is_killed_is_followed_by_another_and_etcds_queued_start_survives() {
    needs_root!();
    let master = Master::held();
    let machine = &master.machine;
    let before = master.waiting_pid();
    assert_ne!(before, "0");
    master.kill_the_wait();
    machine.until("another one waits", |_| !["0", &before].contains(&master.waiting_pid().as_str()));
    master.until_held();
    assert_eq!((machine.state(GATE).as_str(), machine.state(ETCD).as_str()), ("activating", "inactive"));
    let jobs = machine.sh("systemctl list-jobs --no-legend");
    assert!(jobs.lines().any(|job| job.contains("etcd.service") && job.contains("waiting")), "{jobs}");
    // The claim is kept by more than the agent again, too.
    master.until_kept();
    machine.sh("systemctl stop volhold");
    master.nobody_else_gets_it("killed, and then the agent is stopped");
    machine.sh("systemctl start volhold");
    machine.until("the agent holds it", |_| master.guard("etcd-main")["gate"] == "held");
    master.reconfigure(Expected::Anything);
    master.until_etcd_serves();
}

#[test]
fn a_wait_that_is_killed_again_and_again_opens_nothing() {
    needs_root!();
    let master = Master::held();
    let machine = &master.machine;
    let mut before = String::from("0");
    while machine.state(GATE) == "activating" {
        let pid = master.waiting_pid();
        if pid != "0" && pid != before {
            master.kill_the_wait();
            before = pid;
        }
    }
    machine.until_state(GATE, "failed");
    assert_eq!(machine.state(ETCD), "inactive");
    assert_eq!(machine.sh("ls -A /var/lib/etcd"), "");
    // By hand it waits anew.
    machine.sh("systemctl start --no-block etcd");
    machine.until_state(GATE, "activating");
    master.reconfigure(Expected::Anything);
    master.until_etcd_serves();
}

#[test]
fn a_guard_that_is_held_holds_no_other_one() {
    needs_root!();
    let mut master = Master::new(Expected::Anything).with_a_held_one();
    master.enable(AGENT);
    master.enable(ETCD);
    master.boot();
    master.until_etcd_serves();
    master.machine.until("the other one is held", |_| master.guard("etcd-events")["gate"] == "held");
    let waits = master.machine.run(&["volhold", "wait", "etcd-events", "--timeout", "0s"]);
    assert_eq!(waits.code, Some(3), "{waits:?}");
    assert!(waits.stderr.contains("unknown-data"), "{waits:?}");
}

#[test]
fn a_gate_that_nobody_configured_fails_at_once() {
    needs_root!();
    let mut master = Master::new(Expected::Anything);
    master.boot();
    let started = master.machine.run(&["systemctl", "start", "volhold-gate@nobody.service"]);
    assert_ne!(started.code, Some(0), "{started:?}");
    assert_eq!(master.machine.property("volhold-gate@nobody.service", "ExecMainStatus"), "78");
}

#[test]
fn an_etcd_whose_mount_has_gone_is_not_started_again() {
    needs_root!();
    let master = Master::running();
    let machine = &master.machine;
    // Without an agent that could close the gate: the check alone has to notice.
    machine.sh("systemctl stop volhold");
    machine.sh("umount --lazy /var/lib/etcd && systemctl kill --signal=KILL etcd");
    master.machine.until_state(ETCD, "failed");
    let said = machine.sh("journalctl --no-pager -u etcd");
    assert!(said.contains("volhold: etcd-main is HELD"), "{said}");
    assert_eq!(machine.sh("ls -A /var/lib/etcd"), "");
}

#[test]
fn what_asks_nobody_cannot_write_below_a_closed_gate() {
    needs_root!();
    let master = Master::held();
    // As kubelet does for a hostPath of the type DirectoryOrCreate.
    let made = master.machine.run(&["mkdir", "-p", "/var/lib/etcd/default/member"]);
    assert_ne!(made.code, Some(0), "{made:?}");
    assert!(made.stderr.contains("Operation not permitted"), "{made:?}");
    let run_by_hand = "setpriv --reuid=etcd --regid=etcd --clear-groups env ETCD_DATA_DIR=/var/lib/etcd/default etcd";
    assert_ne!(master.machine.run(&["sh", "-c", run_by_hand]).code, Some(0));
    assert_eq!(master.machine.sh("ls -A /var/lib/etcd"), "");
}
