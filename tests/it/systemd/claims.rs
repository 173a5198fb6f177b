//! A held volume is never free for another's mkfs: not while the agent is killed, restarted, stopped, upgraded or crash-looping.

use super::{AGENT, Expected, GATE, Master};
use crate::needs_root;

impl Master {
    /// What a person or a boot script might do; it must fail.
    #[track_caller]
    pub(super) fn nobody_else_gets_it(&self, when: &str) {
        let mkfs = self.machine.run(&["mkfs.ext4", "-q", "-F", "-F", &self.volume.name()]);
        assert_ne!(mkfs.code, Some(0), "{when}: mkfs took the held volume\n{}", self.machine.journal());
        assert!(mkfs.stderr.contains("is apparently in use by the system"), "{when}: {mkfs:?}");
    }

    /// Tries it all the time from another process until `meanwhile` is done.
    #[track_caller]
    fn nobody_else_gets_it_while(&self, when: &str, meanwhile: impl FnOnce()) {
        // Opening it exclusively is what every mkfs and mount does first; a loop of it has no gap to miss.
        let tries = format!(
            "while [ ! -e /tmp/stop ]; do dd if={} of=/dev/null bs=512 count=1 iflag=excl 2>/dev/null && touch /tmp/taken; done; true",
            self.volume.name()
        );
        self.machine.sh("rm -f /tmp/stop /tmp/taken");
        self.machine.sh(&format!("systemd-run --quiet --collect --unit=tries sh -c '{tries}'"));
        meanwhile();
        self.machine.sh("touch /tmp/stop");
        self.machine.until("the tries have ended", |machine| machine.state("tries.service") != "active");
        let taken = self.machine.run(&["test", "-e", "/tmp/taken"]).code == Some(0);
        assert!(!taken, "{when}: the held volume was free for a moment\n{}", self.machine.journal());
        self.nobody_else_gets_it(when);
    }

    /// Waits until the process beside the waiting one keeps the claim.
    #[track_caller]
    pub(super) fn until_kept(&self) {
        let held = format!(
            "for fd in /proc/$(pgrep -f '^/proc/self/exe keep-claim ')/fd/*; do readlink $fd; done | grep -x {}",
            self.volume.name()
        );
        self.machine
            .until("the waiting process keeps the claim", |machine| machine.run(&["sh", "-c", &held]).code == Some(0));
    }

    #[track_caller]
    fn until_another_agent(&self, before: &str) {
        self.machine.until("another agent holds it", |machine| {
            let now = self.agent_pid();
            machine.state(AGENT) == "active"
                && now != before
                && self.status()["agent"]["pid"].as_u64() == now.parse().ok()
                && self.guard("etcd-main")["state"] == "held"
        });
    }
}

#[test]
fn a_held_volume_stays_claimed_whatever_happens_to_the_agent() {
    needs_root!();
    let master = Master::held();
    let machine = &master.machine;
    master.until_kept();
    master.nobody_else_gets_it("held");
    master.nobody_else_gets_it_while("kill -9", || {
        let before = master.agent_pid();
        machine.sh("systemctl kill --signal=KILL volhold");
        master.until_another_agent(&before);
    });
    for verb in ["restart", "try-restart"] {
        master.nobody_else_gets_it_while(verb, || {
            let before = master.agent_pid();
            machine.sh(&format!("systemctl daemon-reload && systemctl {verb} volhold"));
            master.until_another_agent(&before);
        });
    }
    master.nobody_else_gets_it_while("stop and start", || {
        let before = master.agent_pid();
        machine.sh("systemctl stop volhold");
        assert_eq!(machine.state(GATE), "activating");
        master.nobody_else_gets_it("stopped");
        machine.sh("systemctl start volhold");
        master.until_another_agent(&before);
    });
    // The claim of before the stop is the agent's again, and its verdict is about the data: it is not in its own way.
    let reasons = master.guard("etcd-main")["reasons"].to_string();
    assert!(reasons.contains("other-member") && !reasons.contains("in-use"), "{reasons}");
    master.reconfigure(Expected::Anything);
    master.until_etcd_serves();
    assert_eq!(
        machine.run(&["pgrep", "-f", "^/proc/self/exe keep-claim "]).code,
        Some(1),
        "nobody keeps what is not held"
    );
}

#[test]
fn a_held_volume_stays_claimed_while_the_agent_crashes_at_every_start() {
    needs_root!();
    let master = Master::held();
    let machine = &master.machine;
    // A slow machine never comes to the limit.
    assert_eq!(machine.property(AGENT, "StartLimitIntervalUSec"), "0");
    master.nobody_else_gets_it_while("crash loop", || {
        machine.sh("rm /usr/bin/volhold && ln -s /bin/false /usr/bin/volhold");
        machine.sh("systemctl kill --signal=KILL volhold");
        // systemd's default would have given up after five.
        machine.until("it has crashed more often than that", |machine| {
            machine.property(AGENT, "NRestarts").parse::<u32>().is_ok_and(|restarts| restarts >= 6)
        });
    });
    machine.sh("rm /usr/bin/volhold && ln -s /opt/built/volhold /usr/bin/volhold");
    master.reconfigure_when_it_runs();
    master.until_etcd_serves();
}

/// A waiting process that is stopped cannot answer. It costs a second, never a healthy volume.
#[test]
fn a_keeper_that_is_stuck_holds_no_volume_that_is_found_healthy() {
    needs_root!();
    let master = Master::held();
    master.until_kept();
    master.machine.sh("pkill -STOP -f '^/proc/self/exe keep-claim '");
    master.reconfigure(Expected::Anything);
    master.until_etcd_serves();
    let said = master.machine.sh("journalctl --no-pager -u volhold");
    assert!(said.contains("does not let the claim go within a second"), "{said}");
}

/// The question of a package's removal, before it takes the program away.
#[test]
fn whoever_would_remove_volhold_is_told_what_is_held() {
    needs_root!();
    let master = Master::held();
    let held = master.machine.run(&["volhold", "status", "--held"]);
    assert_eq!((held.code, held.stdout.as_str()), (Some(3), "etcd-main\n"));
    master.machine.sh("systemctl stop volhold");
    let held = master.machine.run(&["volhold", "status", "--held"]);
    assert_eq!(held.code, Some(3), "the agent's end changes nothing: {held:?}");
    // Forced: the program is gone, what waits for the gate keeps the claim.
    master.machine.sh("rm /usr/bin/volhold");
    master.nobody_else_gets_it("removed");
    master.machine.sh("ln -s /opt/built/volhold /usr/bin/volhold && systemctl start volhold");
    master.reconfigure_when_it_runs();
    master.until_etcd_serves();
    let held = master.machine.run(&["volhold", "status", "--held"]);
    assert_eq!((held.code, held.stdout.as_str()), (Some(0), ""));
}

impl Master {
    #[track_caller]
    fn reconfigure_when_it_runs(&self) {
        self.machine.until_state(AGENT, "active");
        self.reconfigure(Expected::Anything);
    }
}
