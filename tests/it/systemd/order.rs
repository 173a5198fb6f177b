//! Boot and shutdown, in the order that the units ask for.

use super::{AGENT, ETCD, Expected, GATE, Master};
use crate::needs_root;

#[test]
fn a_healthy_volume_is_open_again_after_a_reboot() {
    needs_root!();
    let mut master = Master::running();
    master.put("before", "reboot");
    master.machine.reboot();
    master.until_etcd_serves();
    assert_eq!(master.get("before"), "reboot");
    assert_eq!(master.guard("etcd-main")["gate"], "open");
}

#[test]
fn at_shutdown_etcd_stops_then_the_agent_then_the_volume_goes() {
    needs_root!();
    let mut master = Master::running();
    master.put("a", "b");
    // Debug: when which unit has stopped.
    master.machine.sh("mkdir -p /var/log/journal && systemctl restart systemd-journald && journalctl --flush");
    master.machine.reboot();
    let said = master.machine.sh("journalctl --no-pager --boot=-1 --output=cat _PID=1");
    let place = |wanted: &str| {
        let found = said.lines().collect::<Vec<_>>().iter().rposition(|line| line.contains(wanted));
        found.unwrap_or_else(|| panic!("never said: {wanted}\n{said}"))
    };
    let etcd = place("Stopped etcd.service");
    let gate = place("Stopped volhold-gate@etcd-main.service");
    let agent = place("Stopped volhold.service");
    let mount = place("Unmounted var-lib-etcd.mount");
    assert!(etcd < gate && gate < agent && agent < mount, "{etcd} {gate} {agent} {mount}\n{said}");
    // The last mark was read in between: nothing is missing from the record.
    master.until_etcd_serves();
}

#[test]
fn the_agent_mounts_where_everybody_sees_it() {
    needs_root!();
    let master = Master::running();
    let machine = &master.machine;
    assert_eq!(
        machine.sh(&format!("readlink /proc/{}/ns/mnt", master.agent_pid())),
        machine.sh("readlink /proc/1/ns/mnt")
    );
    // Process 1 reads the mount table when it comes to it.
    machine.until_state("var-lib-etcd.mount", "active");
    assert_eq!(machine.state(GATE), "active");
}

/// As cloud-init does it: configuration is written by an early unit, and a late one waits for the end of the boot.
#[test]
fn configuration_that_an_early_unit_writes_counts_and_a_late_unit_waits_for_a_held_gate() {
    needs_root!();
    let mut master = Master::new(Expected::AnotherMember);
    let machine = &master.machine;
    machine.write("/etc/volhold/config.toml", "");
    machine.write("/srv/config.toml", &master.config(Expected::AnotherMember));
    machine.write(
        "/etc/systemd/system/early.service",
        "[Unit]\nDefaultDependencies=no\nAfter=local-fs.target\nBefore=sysinit.target\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/cp /srv/config.toml /etc/volhold/config.toml\n",
    );
    machine.link("/etc/systemd/system/early.service", "/etc/systemd/system/sysinit.target.wants/early.service");
    machine.write(
        "/etc/systemd/system/late.service",
        "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n",
    );
    machine.link("/etc/systemd/system/late.service", "/etc/systemd/system/default.target.wants/late.service");
    master.enable(AGENT);
    master.enable(ETCD);
    master.boot();
    master.until_held();
    assert_eq!(master.machine.state("late.service"), "inactive");
    master.reconfigure(Expected::Anything);
    master.machine.until_state("late.service", "active");
    assert_eq!(master.machine.state(ETCD), "active");
}
