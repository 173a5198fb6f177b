//! The units, on a machine with a real systemd: a gate that etcd waits for, an agent that may come and go, a shutdown in order.
//!
//! etcd is Debian's, with Debian's own unit and the drop-in of the design. Nothing is enabled that a test does not enable.

/// When volhold itself is broken.
mod bypass;
/// A held volume is never free, whatever happens to the agent.
mod claims;
/// What the unit files say.
mod files;
/// The gate before etcd.
mod gates;
mod journal;
/// Boot and shutdown.
mod order;
/// Maintainer scripts.
mod scripts;
/// What is shipped beside the units.
mod shipped;

use crate::common::disk::{MIB, sparse};
use crate::common::{Loop, Tmp};
use crate::container::{self, Container};
use serde_json::Value;
use std::fmt::Write as _;

const AGENT: &str = "volhold.service";
const GATE: &str = "volhold-gate@etcd-main.service";
const ETCD: &str = "etcd.service";

/// What stands between etcd and its volume, as it is to be written into /etc.
const DROP_IN: &str = "[Unit]\n\
    Requires=volhold-gate@etcd-main.service\n\
    After=volhold-gate@etcd-main.service\n\
    After=var-lib-etcd.mount\n\
    [Service]\n\
    ExecStartPre=+/usr/bin/volhold gate check etcd-main\n";

/// Addresses instead of names: the container has no resolver.
const ETCD_DEFAULTS: &str = "ETCD_NAME=m1\n\
    ETCD_LISTEN_PEER_URLS=http://127.0.0.1:2380\n\
    ETCD_INITIAL_ADVERTISE_PEER_URLS=http://127.0.0.1:2380\n\
    ETCD_INITIAL_CLUSTER=m1=http://127.0.0.1:2380\n\
    ETCD_LISTEN_CLIENT_URLS=http://127.0.0.1:2379\n\
    ETCD_ADVERTISE_CLIENT_URLS=http://127.0.0.1:2379\n";

/// A master: one volume, one guard for it, etcd behind its gate.
struct Master {
    // Before the devices: what has them open must be gone first.
    machine: Container,
    volume: Loop,
    more: Vec<(String, Loop)>,
    tmp: Tmp,
}

impl Master {
    /// Its volume holds the data of an etcd that has run; not booted yet.
    fn new(expected: Expected) -> Self {
        let tmp = Tmp::new();
        container::volume(&tmp.join("main.img"));
        Master::on(tmp, expected)
    }

    /// Its volume is blank.
    fn blank() -> Self {
        let tmp = Tmp::new();
        sparse(&tmp.join("main.img"), 160 * MIB);
        Master::on(tmp, Expected::Anything)
    }

    fn on(tmp: Tmp, expected: Expected) -> Self {
        let volume = Loop::new(&tmp.join("main.img"));
        let mut machine = Container::new();
        machine.device(volume.node());
        machine.write("/etc/default/etcd", ETCD_DEFAULTS);
        machine.write("/etc/systemd/system/etcd.service.d/50-volhold.conf", DROP_IN);
        let master = Master { machine, volume, more: Vec::new(), tmp };
        master.configure(expected);
        master
    }

    /// A second volume with a guard of its own, which is held: there is something on it that nobody knows.
    fn with_a_held_one(mut self) -> Self {
        let image = sparse(&self.tmp.join("events.img"), 8 * MIB);
        crate::common::disk::write_at(&image, 5 * MIB, b"something that somebody wrote");
        let events = Loop::new(&image);
        self.machine.device(events.node());
        self.more.push(("etcd-events".to_owned(), events));
        self.configure(Expected::Anything);
        self
    }

    /// Starts at boot.
    fn enable(&self, unit: &str) {
        let at = format!("/etc/systemd/system/multi-user.target.wants/{unit}");
        self.machine.link(&format!("/lib/systemd/system/{unit}"), &at);
    }

    /// Before boot; while it runs, [`Master::reconfigure`].
    fn configure(&self, expected: Expected) {
        self.machine.write("/etc/volhold/config.toml", &self.config(expected));
    }

    fn config(&self, expected: Expected) -> String {
        let mut text = guard("etcd-main", &self.volume, "/var/lib/etcd");
        match expected {
            Expected::Anything => {}
            Expected::AnotherMember => text.push_str("member = \"somebody-else\"\n"),
        }
        for (name, volume) in &self.more {
            text.push_str(&guard(name, volume, &format!("/var/lib/{name}")));
        }
        text
    }

    #[track_caller]
    fn reconfigure(&self, expected: Expected) {
        self.machine.sh(&format!("cat >/etc/volhold/config.toml <<'END'\n{}END", self.config(expected)));
        self.machine.sh("systemctl reload volhold");
    }

    #[track_caller]
    fn boot(&mut self) {
        self.machine.boot();
    }

    /// Booted, with the agent and etcd enabled, and etcd running.
    #[track_caller]
    fn running() -> Self {
        let mut master = Master::new(Expected::Anything);
        master.enable(AGENT);
        master.enable(ETCD);
        master.boot();
        master.until_etcd_serves();
        master
    }

    #[track_caller]
    fn until_etcd_serves(&self) {
        self.machine.until_state(ETCD, "active");
    }

    /// Booted, with agent and etcd enabled, and held: the data is not that of the member in the configuration.
    #[track_caller]
    fn held() -> Self {
        let mut master = Master::new(Expected::AnotherMember);
        master.enable(AGENT);
        master.enable(ETCD);
        master.boot();
        master.until_held();
        master
    }

    #[track_caller]
    fn until_held(&self) {
        self.machine.until("the gate's unit says that it is held", |machine| {
            machine.property(GATE, "StatusText").starts_with("HELD")
        });
    }

    fn etcd_pid(&self) -> String {
        self.machine.property(ETCD, "MainPID")
    }

    fn agent_pid(&self) -> String {
        self.machine.property(AGENT, "MainPID")
    }

    #[track_caller]
    fn status(&self) -> Value {
        self.machine.run(&["volhold", "status", "-o", "json"]).json()
    }

    /// What the agent says of one guard.
    #[track_caller]
    fn guard(&self, name: &str) -> Value {
        let status = self.status();
        let guards = status["guards"].as_array().cloned().unwrap_or_default();
        guards.into_iter().find(|guard| guard["name"] == name).unwrap_or(Value::Null)
    }

    #[track_caller]
    fn put(&self, key: &str, value: &str) {
        self.machine.sh(&format!("ETCDCTL_API=3 etcdctl put {key} {value}"));
    }

    #[track_caller]
    fn get(&self, key: &str) -> String {
        self.machine.sh(&format!("ETCDCTL_API=3 etcdctl get --print-value-only {key}"))
    }
}

/// What the configuration says of the member whose data is on the volume.
#[derive(Clone, Copy)]
enum Expected {
    Anything,
    /// The guard is held, until the configuration says otherwise.
    AnotherMember,
}

fn guard(name: &str, volume: &Loop, publish: &str) -> String {
    let mut text = format!("[[guard]]\nname = \"{name}\"\nmode = \"enforce\"\ndevice = \"{}\"\n", volume.name());
    writeln!(text, "format = \"if-blank\"\nfresh = \"allow\"\npublish = \"{publish}\"").expect("a string grows");
    text + "data_dir = \"default\"\nowner = \"etcd:etcd\"\n"
}
