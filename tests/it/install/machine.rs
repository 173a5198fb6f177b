//! On a machine with a real systemd and Debian's own etcd: from a master that nobody guards to one that waits, and back; and
//! every sabotage, found.

use crate::common::{Answer, Loop, Tmp, run};
use crate::container::{self, Container};
use crate::needs_root;
use serde_json::Value;

const GATE: &str = "volhold-gate@etcd-main.service";
const FIRST_BOOT: &str = "volhold-first-boot@etcd-main.service";
const ETCD: &str = "etcd.service";
const DROP_IN: &str = "/etc/systemd/system/etcd.service.d/50-volhold-etcd-main.conf";

/// Addresses instead of names: the container has no resolver.
const ETCD_DEFAULTS: &str = "ETCD_NAME=m1\n\
    ETCD_LISTEN_PEER_URLS=http://127.0.0.1:2380\n\
    ETCD_INITIAL_ADVERTISE_PEER_URLS=http://127.0.0.1:2380\n\
    ETCD_INITIAL_CLUSTER=m1=http://127.0.0.1:2380\n\
    ETCD_LISTEN_CLIENT_URLS=http://127.0.0.1:2379\n\
    ETCD_ADVERTISE_CLIENT_URLS=http://127.0.0.1:2379\n";

/// A master whose volume holds the data of an etcd that has run. The agent observes; etcd is enabled, as Debian has it.
struct Master {
    // Before the device: what has it open must be gone first.
    machine: Container,
    volume: Loop,
    _tmp: Tmp,
}

impl Master {
    #[track_caller]
    fn booted(more: &str) -> Self {
        let mut master = Master::new(more);
        master.machine.boot();
        master.machine.until_state("volhold.service", "active");
        master
    }

    fn new(more: &str) -> Self {
        let tmp = Tmp::new();
        container::volume(&tmp.join("main.img"));
        let volume = Loop::new(&tmp.join("main.img"));
        let mut machine = Container::new();
        machine.device(volume.node());
        machine.write("/etc/default/etcd", ETCD_DEFAULTS);
        for unit in ["volhold.service", ETCD] {
            let wants = format!("/etc/systemd/system/multi-user.target.wants/{unit}");
            machine.link(&format!("/lib/systemd/system/{unit}"), &wants);
        }
        machine.write("/etc/fstab", "");
        machine.write("/etc/volhold/conf.d/10-metrics.toml", "[metrics]\ntextfile_dir = \"/srv/metrics\"\n");
        machine.write("/srv/metrics/other.prom", "");
        let master = Master { machine, volume, _tmp: tmp };
        master.machine.write("/etc/volhold/config.toml", &master.config(more));
        master
    }

    fn config(&self, more: &str) -> String {
        format!(
            "[[guard]]\nname = \"etcd-main\"\ndevice = \"{}\"\npublish = \"/var/lib/etcd\"\ndata_dir = \"default\"\n\
             owner = \"etcd:etcd\"\n{more}",
            self.volume.name()
        )
    }

    /// Somebody mounts the volume by hand and starts etcd, as on a master that nobody guards.
    #[track_caller]
    fn run_unguarded(&self) {
        self.machine.sh(&format!("systemctl stop etcd; mkdir -p /var/lib/etcd && rm -rf /var/lib/etcd/* && mount {} /var/lib/etcd && systemctl reset-failed etcd; systemctl start etcd", self.volume.name()));
        self.machine.until_state(ETCD, "active");
    }

    fn enable(&self) -> Answer {
        self.machine.run(&["volhold", "enable", "--preset", "etcd-service", "etcd-main", "-o", "json"])
    }

    fn doctor(&self) -> Answer {
        self.machine.run(&["volhold", "doctor", "etcd-main", "-o", "json"])
    }

    fn guard(&self) -> Value {
        self.machine.run(&["volhold", "status", "-o", "json"]).json()["guards"][0].clone()
    }

    fn times_in_history(&self, decision: &str) -> usize {
        let history = self.machine.run(&["volhold", "history", "etcd-main", "-o", "json"]).json();
        let entries = history["entries"].as_array().cloned().unwrap_or_default();
        entries.iter().filter(|entry| entry["decision"] == decision).count()
    }

    #[track_caller]
    fn until_observed(&self) {
        self.machine.until("the agent has read the data", |_| {
            let guard = self.guard();
            guard["state"] == "observing" && !guard["data_dir"].is_null()
        });
    }

    #[track_caller]
    fn until_serves(&self) {
        self.machine.until_state(ETCD, "active");
        assert_eq!(self.machine.sh("ETCDCTL_API=3 etcdctl get --print-value-only made"), "before");
    }

    /// Guarded, booted anew, and serving.
    #[track_caller]
    fn guarded() -> Self {
        let mut master = Master::booted("");
        master.run_unguarded();
        master.until_observed();
        let enabled = master.enable();
        assert_eq!(enabled.code, Some(0), "{enabled:#?}");
        master.machine.reboot();
        master.until_serves();
        master
    }
}

/// Checks that failed, by id.
fn failed(answer: &Answer) -> Vec<String> {
    let document = answer.json();
    let checks = document["checks"].as_array().cloned().unwrap_or_default();
    checks
        .iter()
        .filter(|check| check["result"] == "fail")
        .filter_map(|check| check["id"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn a_running_master_is_refused_until_nothing_speaks_against_it_and_then_waits_at_every_boot() {
    needs_root!();
    let mut master = Master::booted("member = \"somebody-else\"\n");
    master.run_unguarded();
    let machine = &master.machine;
    master.until_observed();
    // A running etcd is nobody's doubt, but the next boot would be held.
    let refused = master.enable();
    assert_eq!((refused.code, failed(&refused)), (Some(4), vec!["identity".to_owned()]), "{refused:#?}");
    machine.sh("systemctl stop etcd && volhold retry etcd-main");
    machine.until("the agent would hold", |_| master.guard()["would_hold"] == true);
    let refused = master.enable();
    assert_eq!((refused.code, refused.codes()), (Some(4), vec!["other-member".to_owned()]), "{refused:#?}");
    machine.sh("systemctl start etcd");
    let pid = machine.property(ETCD, "MainPID");

    machine.sh(&format!("cat >/etc/volhold/config.toml <<'END'\n{}END", master.config("")));
    machine.sh("systemctl reload volhold");
    machine.until("nothing speaks against it", |_| {
        master.guard()["would_hold"] == false && master.guard()["state"] == "observing"
    });
    let line = format!("{} /var/lib/etcd ext4 defaults,nofail,noauto 0 2", master.volume.name());
    machine.sh(&format!("echo '{line}' >/etc/fstab"));
    let refused = master.enable();
    assert_eq!((refused.code, failed(&refused)), (Some(4), vec!["other-mounter".to_owned()]), "{refused:#?}");
    assert!(refused.stdout.contains(&format!("/etc/fstab:1: {line}")), "{}", refused.stdout);
    assert_eq!(machine.run(&["test", "-e", DROP_IN]).code, Some(1), "nothing is left of a refusal");

    machine.sh("echo >/etc/fstab");
    let enabled = master.enable();
    assert_eq!(enabled.code, Some(0), "{enabled:#?}");
    machine.until("it enforces", |_| master.guard()["mode"] == "enforce" && master.guard()["gate"] == "open");
    assert_eq!(machine.property(ETCD, "MainPID"), pid, "the running etcd does not notice");
    assert_eq!((master.times_in_history("enable"), enabled.json()["recorded"].is_string()), (1, true), "{enabled:#?}");
    let again = master.enable();
    let changes: Vec<Value> =
        again.json()["files"].as_array().unwrap().iter().map(|file| file["change"].clone()).collect();
    assert_eq!((again.code, changes), (Some(0), vec!["same".into(), "same".into()]), "{again:#?}");
    let said = machine.run(&["systemd-analyze", "verify", "--man=no", ETCD, GATE]);
    assert!(!said.stderr.contains("volhold"), "{said:#?}");

    master.machine.reboot();
    let machine = &master.machine;
    master.until_serves();
    assert_eq!(machine.state(GATE), "active");
    let well = master.doctor();
    assert_eq!((well.code, failed(&well)), (Some(0), Vec::new()), "{well:#?}");
    assert!(well.stdout.contains("apt-mark hold etcd-server"), "Debian's purge is told: {}", well.stdout);

    let pid = machine.property(ETCD, "MainPID");
    let gone = machine.run(&["volhold", "disable", "etcd-main"]);
    assert_eq!(gone.code, Some(0), "{gone:#?}");
    assert!(gone.stdout.contains("chattr -i /var/lib/etcd"), "{}", gone.stdout);
    assert!(!machine.property(ETCD, "Requires").contains(GATE));
    assert_eq!((master.times_in_history("enable"), master.times_in_history("disable")), (1, 1));
    assert_eq!((machine.property(ETCD, "MainPID"), machine.state(ETCD).as_str()), (pid, "active"));
}

/// What is done, what `doctor` has to fail with, and how it is undone.
const SABOTAGES: &[(&str, &[&str], &str)] = &[
    (
        "rm DROP_IN; systemctl daemon-reload",
        &["gate-order", "drop-in"],
        "volhold enable --preset etcd-service etcd-main",
    ),
    (
        "ln -s /dev/null /etc/systemd/system/volhold-gate@etcd-main.service; systemctl daemon-reload",
        &["gate-unit"],
        "rm /etc/systemd/system/volhold-gate@etcd-main.service; systemctl daemon-reload",
    ),
    (
        "mkdir -p /tmp/beneath; mount --bind /var/lib /tmp/beneath; chattr -i /tmp/beneath/etcd",
        &["seal"],
        "chattr +i /tmp/beneath/etcd; umount /tmp/beneath",
    ),
    ("mount -t tmpfs shadow /var/lib/etcd", &["mount-visible"], "umount /var/lib/etcd"),
    ("chown root:root /var/lib/etcd/default", &["owner"], "chown etcd:etcd /var/lib/etcd/default"),
    (
        "mkdir -p /etc/systemd/system/volhold.service.d; printf '[Service]\\nPrivateTmp=yes\\n' \
         >/etc/systemd/system/volhold.service.d/x.conf; systemctl daemon-reload; systemctl restart volhold",
        &["agent-namespace"],
        "rm /etc/systemd/system/volhold.service.d/x.conf; systemctl daemon-reload; systemctl restart volhold",
    ),
    ("systemctl stop volhold", &["agent"], "systemctl start volhold"),
    ("echo '/dev/x /var/lib/etcd ext4' >/etc/fstab", &["other-mounter"], "echo >/etc/fstab"),
    (
        "mkdir -p /etc/systemd/system/srv-x.mount.d; printf '[Mount]\\nWhat=VOLUME\\nWhere=/srv/x\\n' \
         >/etc/systemd/system/srv-x.mount.d/what.conf",
        &["other-mounter"],
        "rm -r /etc/systemd/system/srv-x.mount.d",
    ),
    ("chmod 0700 /var/lib/etcd", &["owner"], "chmod 0755 /var/lib/etcd"),
    ("chattr +i /srv/metrics", &["textfile"], "chattr -i /srv/metrics"),
    ("rm -r /srv/metrics; touch /srv/metrics", &["textfile"], "rm /srv/metrics; mkdir /srv/metrics"),
    ("mount -t tmpfs -o ro none /srv/metrics", &["textfile"], "umount /srv/metrics"),
];

#[test]
fn every_sabotage_is_found_and_its_end_too() {
    needs_root!();
    let master = Master::guarded();
    let machine = &master.machine;
    let well = |when: &str| {
        machine.until("the agent reports the guard", |_| {
            master.guard()["mode"] == "enforce" && machine.state("volhold.service") == "active"
        });
        let doctor = master.doctor();
        assert_eq!((doctor.code, failed(&doctor)), (Some(0), Vec::new()), "{when}: {doctor:#?}");
    };
    well("at first");
    for (sabotage, ids, undo) in SABOTAGES {
        machine.sh(&sabotage.replace("DROP_IN", DROP_IN).replace("VOLUME", &master.volume.name()));
        if !ids.contains(&"agent") {
            machine.until("the agent reports the guard", |_| master.guard()["mode"] == "enforce");
        }
        let doctor = master.doctor();
        assert_eq!(doctor.code, Some(4), "{sabotage}: {doctor:#?}");
        let found = failed(&doctor);
        assert_eq!(found, *ids, "{sabotage}: {doctor:#?}");
        machine.sh(undo);
        well(undo);
    }
    assert_eq!(machine.state(ETCD), "active");
}

/// kubelet is stood in for by a process that only runs: what is asked here is systemd's order, the seal, and the files.
#[test]
fn a_kubelet_waits_at_every_boot_and_the_patch_for_its_pod_lies_where_kubeadm_is_told_to_look() {
    needs_root!();
    let kubelet = "kubelet.service";
    let mut master = Master::new("");
    master.machine.write(&format!("/etc/systemd/system/{kubelet}"), "[Service]\nExecStart=/bin/sleep infinity\n");
    let wanted = format!("/etc/systemd/system/multi-user.target.wants/{kubelet}");
    master.machine.link(&format!("/etc/systemd/system/{kubelet}"), &wanted);
    master.machine.relink("/dev/null", &format!("/etc/systemd/system/{ETCD}"));
    master.machine.boot();
    let machine = &master.machine;
    machine.sh(&format!("mount {} /var/lib/etcd", master.volume.name()));
    master.until_observed();
    let pid = machine.property(kubelet, "MainPID");
    let enabled = machine.run(&["volhold", "enable", "--preset", "kubeadm", "etcd-main", "-o", "json"]);
    assert_eq!(enabled.code, Some(0), "{enabled:#?}");
    assert_eq!((machine.property(kubelet, "MainPID"), machine.state(kubelet).as_str()), (pid, "active"));
    let patch = machine.sh("cat /etc/volhold/kubeadm/etcd50-etcd-main+strategic.yaml");
    assert!(patch.contains("/run/volhold/open/etcd-main"), "{patch}");

    machine.until("it enforces", |_| master.guard()["gate"] == "open");
    let before = master.doctor();
    assert_eq!((before.code, failed(&before)), (Some(0), Vec::new()), "kubeadm may come later: {before:#?}");
    // A manifest from before the patch, and one with it.
    machine.sh("mkdir -p /etc/kubernetes/manifests && echo 'kind: Pod' >/etc/kubernetes/manifests/etcd.yaml");
    let without = master.doctor();
    assert_eq!((without.code, failed(&without)), (Some(4), vec!["pod-gate".to_owned()]), "{without:#?}");
    machine.sh("cp /etc/volhold/kubeadm/etcd50-etcd-main+strategic.yaml /etc/kubernetes/manifests/etcd.yaml");
    let with = master.doctor();
    assert_eq!((with.code, failed(&with)), (Some(0), Vec::new()), "{with:#?}");

    master.machine.reboot();
    master.machine.until_state(kubelet, "active");
    assert_eq!(master.machine.state(GATE), "active");
    assert!(master.machine.sh("ls -A /var/lib/etcd").contains("default"), "the volume is there when kubelet starts");

    let config = master.config("member = \"somebody-else\"\n");
    master.machine.sh(&format!("cat >/etc/volhold/config.toml <<'END'\n{config}END"));
    master.machine.reboot();
    let machine = &master.machine;
    machine.until("the gate is held", |machine| machine.property(GATE, "StatusText").starts_with("HELD"));
    assert_eq!(machine.state(kubelet), "inactive");
    // As kubelet makes a hostPath, if somebody starts it in spite of all that.
    assert_ne!(machine.run(&["mkdir", "-p", "/var/lib/etcd/member"]).code, Some(0));
}

/// Two directories of the volume are published, each at its own place: every one is tried, not only that of the data.
#[test]
fn of_several_published_places_each_is_tested() {
    needs_root!();
    let mut master = Master::new("");
    run("debugfs", &["-w", "-R", "mkdir backup", &master.volume.name()]);
    let published = "publish = [{ from = \"default\", at = \"/var/lib/etcd/default\" }, { from = \"backup\", at = \"/srv/backup\" }]";
    let config = master.config("mode = \"enforce\"\n").replace("publish = \"/var/lib/etcd\"", published);
    master.machine.write("/etc/volhold/config.toml", &config);
    let waits = format!("[Unit]\nRequires={GATE}\nAfter={GATE}\n");
    master.machine.write("/etc/systemd/system/etcd.service.d/50-by-hand.conf", &waits);
    master.machine.boot();
    let machine = &master.machine;
    master.until_serves();
    let well = |when: &str| {
        let doctor = master.doctor();
        assert_eq!((doctor.code, failed(&doctor)), (Some(0), Vec::new()), "{when}: {doctor:#?}");
    };
    well("at first");
    for (sabotage, id, place, undo) in [
        ("chattr -i /tmp/srv/backup", "seal", "/srv/backup", "chattr +i /tmp/srv/backup"),
        ("chattr -i /tmp/etcd/default", "seal", "/var/lib/etcd/default", "chattr +i /tmp/etcd/default"),
        ("mount -t tmpfs shadow /srv/backup", "mount-visible", "/srv/backup", "umount /srv/backup"),
        (
            "mount -t tmpfs shadow /var/lib/etcd/default",
            "mount-visible",
            "/var/lib/etcd/default",
            "umount /var/lib/etcd/default",
        ),
        ("echo '/dev/x /srv/backup ext4' >/etc/fstab", "other-mounter", "/srv/backup", "echo >/etc/fstab"),
    ] {
        // What lies beneath the mounts is reached from beside.
        let beneath = "mkdir -p /tmp/srv /tmp/etcd; mount --bind /srv /tmp/srv; mount --bind /var/lib/etcd /tmp/etcd;";
        let away = "umount /tmp/srv /tmp/etcd";
        machine.sh(&format!("{beneath} {sabotage}; {away}"));
        let doctor = master.doctor();
        assert_eq!((doctor.code, failed(&doctor)), (Some(4), vec![id.to_owned()]), "{sabotage}: {doctor:#?}");
        let checks = doctor.json()["checks"].as_array().cloned().unwrap_or_default();
        let told = checks.iter().find(|check| check["result"] == "fail").expect("the one that failed");
        assert!(told["message"].as_str().is_some_and(|message| message.contains(place)), "{told:#}");
        machine.sh(&format!("{beneath} {undo}; {away}"));
        well(undo);
    }
}

#[test]
fn an_image_enforces_once_every_layer_held_at_its_first_boot_and_is_not_tested_again() {
    needs_root!();
    let mut master = Master::booted("");
    master.machine.sh("systemctl stop etcd; rm -rf /var/lib/etcd/*");
    let written = master.machine.run(&["volhold", "enable", "--preset", "etcd-service", "--image", "etcd-main"]);
    assert_eq!(written.code, Some(0), "{written:#?}");
    // Somebody's provisioning adds this later.
    let line = format!("{} /var/lib/etcd ext4 noauto", master.volume.name());
    master.machine.sh(&format!("echo '{line}' >/etc/fstab"));

    master.machine.reboot();
    let machine = &master.machine;
    machine.until("the first boot says what speaks against it", |machine| {
        machine.property(FIRST_BOOT, "StatusText").contains("/etc/fstab:1")
    });
    assert_eq!((machine.state(ETCD).as_str(), machine.state(GATE).as_str()), ("inactive", "inactive"));
    assert_eq!(master.guard()["mode"], "observe");
    assert_eq!(machine.sh("ls -A /var/lib/etcd"), "", "nothing has started on the root disk");

    // Killed, it is followed by another, and what is queued behind it stays queued.
    let killed = machine.property(FIRST_BOOT, "MainPID");
    machine.sh(&format!("systemctl kill --signal=KILL {FIRST_BOOT}"));
    machine.until("another one tests", |machine| {
        !["0", &killed].contains(&machine.property(FIRST_BOOT, "MainPID").as_str())
    });
    assert_eq!((machine.state(ETCD).as_str(), machine.state(GATE).as_str()), ("inactive", "inactive"));

    machine.sh("echo >/etc/fstab");
    master.until_serves();
    assert_eq!(master.guard()["mode"], "enforce");
    let well = master.doctor();
    assert_eq!((well.code, failed(&well)), (Some(0), Vec::new()), "{well:#?}");

    // A node that was guarded once is not held by a test of its installation.
    machine.sh(&format!("echo '{line}' >/etc/fstab"));
    master.machine.reboot();
    master.until_serves();
    assert_eq!(failed(&master.doctor()), ["other-mounter"]);
}

#[test]
fn who_disables_an_image_at_its_first_boot_lets_etcd_go_on() {
    needs_root!();
    let mut master = Master::booted("");
    let written = master.machine.run(&["volhold", "enable", "--preset", "etcd-service", "--image", "etcd-main"]);
    assert_eq!(written.code, Some(0), "{written:#?}");
    master.machine.sh("echo 'tmpfs /var/lib/etcd tmpfs noauto' >/etc/fstab");
    master.machine.reboot();
    let machine = &master.machine;
    machine
        .until("the first boot waits", |machine| machine.property(FIRST_BOOT, "StatusText").contains("/etc/fstab:1"));
    assert_ne!(machine.run(&["systemctl", "stop", FIRST_BOOT]).code, Some(0), "stopping it would stop what waits");
    let disabled = machine.run(&["volhold", "disable", "etcd-main"]);
    assert_eq!(disabled.code, Some(0), "{disabled:#?}");
    machine.until_state(ETCD, "active");
}

#[test]
fn what_lies_under_a_live_mount_is_looked_at_before_it_is_sealed() {
    needs_root!();
    let master = Master::booted("");
    let machine = &master.machine;
    machine.sh("systemctl stop etcd; rm -rf /var/lib/etcd/*; mkdir -p /var/lib/etcd/member");
    machine.sh(&format!(
        "mount {} /var/lib/etcd && systemctl reset-failed etcd; systemctl start etcd",
        master.volume.name()
    ));
    master.until_observed();
    let refused = master.enable();
    assert_eq!((refused.code, failed(&refused)), (Some(4), vec!["seal".to_owned()]), "{refused:#?}");
    assert!(refused.stdout.contains("member"), "{}", refused.stdout);
}
