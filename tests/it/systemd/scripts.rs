//! The packages' own scripts, run by dpkg, and those of the rpm as rpm runs them: etcd, gate and mount do not notice.
//!
//! The package here holds nothing but the scripts and what they call; `tests/installed` installs the real ones.

use super::{AGENT, ETCD, Expected, GATE, Master};
use crate::common::Answer;
use crate::needs_root;
use std::path::Path;

fn shipped(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(path)).expect("a script")
}

impl Master {
    /// With `/root/VERSION.deb` for two versions.
    fn packaged(mut self) -> Self {
        for version in ["1", "2"] {
            let at = format!("/root/{version}");
            let control = format!(
                "Package: volhold\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@example.com>\nDescription: x\n"
            );
            self.machine.write(&format!("{at}/DEBIAN/control"), &control);
            for script in ["postinst", "prerm", "postrm"] {
                self.machine.write(&format!("{at}/DEBIAN/{script}"), &shipped(&format!("deb/{script}")));
            }
            self.machine.write(&format!("{at}/usr/libexec/volhold/removal"), &shipped("common/removal"));
        }
        for script in ["post", "preun", "postun"] {
            self.machine.write(&format!("/root/rpm/{script}"), &shipped(&format!("rpm/{script}")));
        }
        self.enable(AGENT);
        self.enable(ETCD);
        self.boot();
        self.machine.sh("for v in 1 2; do dpkg-deb --build --root-owner-group /root/$v /root/$v.deb; done");
        self
    }

    /// What no package may change.
    fn guarded(&self) -> Vec<String> {
        let machine = &self.machine;
        let mut seen: Vec<String> = ["MainPID", "ActiveState", "ActiveEnterTimestampMonotonic"]
            .iter()
            .flat_map(|property| [machine.property(GATE, property), machine.property(ETCD, property)])
            .collect();
        seen.push(machine.run(&["findmnt", "-n", "-o", "ID,SOURCE,OPTIONS", "/var/lib/etcd"]).stdout);
        seen.push(machine.run(&["ls", "-A", "/var/lib/etcd", "/run/volhold/open"]).stdout);
        seen
    }

    #[track_caller]
    fn dpkg(&self, args: &[&str]) -> Answer {
        self.machine.run(&[&["dpkg"], args].concat())
    }
}

#[test]
fn no_script_of_a_package_touches_a_gate_a_mount_or_etcd() {
    needs_root!();
    let master = Master::new(Expected::Anything).packaged();
    let machine = &master.machine;
    master.until_etcd_serves();
    let before = master.guarded();
    for step in
        [["-i", "/root/1.deb"], ["-i", "/root/2.deb"], ["-r", "volhold"], ["-P", "volhold"], ["-i", "/root/2.deb"]]
    {
        let done = master.dpkg(&step);
        assert_eq!(done.code, Some(0), "{step:?}: {done:#?}");
        assert_eq!(master.guarded(), before, "dpkg {step:?}\n{}", machine.journal());
    }
    assert_eq!(machine.run(&["ls", "/usr/libexec/volhold/removal"]).code, Some(0));
    // As rpm calls them: how many versions stay.
    for step in ["post 1", "post 2", "preun 1", "postun 1", "preun 0", "postun 0"] {
        machine.sh(&format!("sh /root/rpm/{step}"));
        assert_eq!(master.guarded(), before, "{step}\n{}", machine.journal());
    }
    assert_eq!(machine.state(AGENT), "inactive", "the agent alone is stopped, by the last removal");
    master.put("still", "here");
}

#[test]
fn no_script_of_a_package_touches_a_gate_that_waits_and_none_takes_volhold_from_a_held_guard() {
    needs_root!();
    let master = Master::new(Expected::AnotherMember).packaged();
    let machine = &master.machine;
    master.until_held();
    let before = master.guarded();
    for step in [["-i", "/root/1.deb"], ["-i", "/root/2.deb"]] {
        let done = master.dpkg(&step);
        assert_eq!(done.code, Some(0), "{step:?}: {done:#?}");
        machine.until("the agent holds it", |_| {
            machine.state(AGENT) == "active" && master.guard("etcd-main")["gate"] == "held"
        });
        assert_eq!(master.guarded(), before, "dpkg {step:?}\n{}", machine.journal());
    }
    let refused = master.dpkg(&["-r", "volhold"]);
    assert_ne!(refused.code, Some(0), "{refused:#?}");
    assert!(refused.stderr.contains("a guard is held (etcd-main)"), "{refused:#?}");
    assert_eq!(machine.run(&["sh", "/root/rpm/preun", "0"]).code, Some(1));
    assert_eq!((machine.state(AGENT).as_str(), master.guarded()), ("active", before));
}
