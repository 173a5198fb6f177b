//! The unit files themselves: what systemd's own checks say of them, and what must never stand in them.

use crate::common::{Tmp, output};
use std::path::{Path, PathBuf};

/// Everything that gives a service a mount namespace of its own (measured with systemd 252, one by one): mounts made in it
/// are seen by nobody else.
const OWN_NAMESPACE: &[&str] = &[
    "BindPaths",
    "BindReadOnlyPaths",
    "DynamicUser",
    "ExecPaths",
    "InaccessiblePaths",
    "LogNamespace",
    "MountAPIVFS",
    "MountFlags",
    "MountImages",
    "NoExecPaths",
    "PrivateDevices",
    "PrivateIPC",
    "PrivateMounts",
    "PrivateTmp",
    "PrivateUsers",
    "ProcSubset",
    "ProtectControlGroups",
    "ProtectHome",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectProc",
    "ProtectSystem",
    "ReadOnlyPaths",
    "ReadWritePaths",
    "RootDirectory",
    "RootImage",
    "TemporaryFileSystem",
];

fn units() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd")
}

fn unit(name: &str) -> String {
    std::fs::read_to_string(units().join(name)).expect("a unit")
}

fn keys(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(key, _)| key)
        .collect()
}

#[test]
fn the_agent_has_no_mount_namespace_of_its_own() {
    let text = unit("volhold.service");
    let found: Vec<&str> = keys(&text).into_iter().filter(|key| OWN_NAMESPACE.contains(key)).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_gate_is_a_oneshot_that_stays_and_no_one_stops() {
    let text = unit("volhold-gate@.service");
    for line in [
        "Type=oneshot",
        "RemainAfterExit=yes",
        "TimeoutStartSec=infinity",
        "NotifyAccess=all",
        "RefuseManualStop=yes",
        "ExecStart=/usr/bin/volhold wait %i",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}");
    }
    for key in ["Requires", "BindsTo", "PartOf", "Requisite", "Restart"] {
        assert!(!keys(&text).contains(&key), "{key}");
    }
}

/// A wait that is killed is followed by another; what ends the last one ends the gate.
#[test]
fn only_a_wait_that_ends_well_by_itself_opens_a_gate() {
    let text = unit("volhold-gate@.service");
    let waits: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("ExecStart=")).collect();
    let (last, before) = waits.split_last().expect("a wait");
    assert_eq!(*last, "/usr/bin/volhold wait %i");
    assert!(!before.is_empty());
    assert!(before.iter().all(|wait| wait.strip_prefix('-') == Some(last)), "{waits:?}");
}

/// What hardens other services and breaks these: see the comments in the units.
#[test]
fn no_hardening_stands_in_the_way() {
    for (name, harmful) in [
        ("volhold.service", vec!["RestrictSUIDSGID"]),
        ("volhold-gate@.service", vec!["ProtectProc", "ProtectKernelTunables", "ProtectControlGroups"]),
    ] {
        let text = unit(name);
        let found: Vec<&str> = keys(&text).into_iter().filter(|key| harmful.contains(key)).collect();
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

#[test]
fn neither_agent_nor_gate_is_ever_given_up() {
    for name in ["volhold.service", "volhold-gate@.service"] {
        assert!(unit(name).lines().any(|line| line == "StartLimitIntervalSec=0"), "{name}");
    }
}

/// Wherever a unit says when, it says why.
#[test]
fn every_line_of_order_has_its_reason_above_it() {
    for name in ["volhold.service", "volhold-gate@.service", "volhold-ready.target"] {
        let text = unit(name);
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let orders = ["After=", "Before=", "Wants=", "Requires=", "BindsTo=", "PartOf=", "Conflicts="];
            if orders.iter().any(|order| line.starts_with(order)) {
                // A run of such lines may share one.
                let above = lines[..at].iter().rev().find(|line| !orders.iter().any(|order| line.starts_with(order)));
                assert!(above.is_some_and(|line| line.starts_with('#')), "{name}: {line}");
            }
        }
    }
}

/// `systemd-analyze verify` ends with 0 whatever it finds: what it prints is the finding.
#[test]
fn systemd_finds_no_fault_in_the_units() {
    let tmp = Tmp::new();
    for entry in std::fs::read_dir(units()).expect("systemd/").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".service") && !name.ends_with(".target") {
            continue;
        }
        // The program is not installed where the tests run, nor are the manual's pages.
        let text = std::fs::read_to_string(entry.path()).expect("a unit").replace("/usr/bin/volhold", "/bin/true");
        let text: String =
            text.lines().filter(|line| !line.starts_with("Documentation=")).map(|line| format!("{line}\n")).collect();
        std::fs::write(tmp.join(&name.replace("@.", "@etcd-main.")), text).expect("a copy");
    }
    let files: Vec<String> = std::fs::read_dir(tmp.path())
        .expect("copies")
        .flatten()
        .map(|entry| entry.path().display().to_string())
        .collect();
    let mut args = vec!["verify"];
    args.extend(files.iter().map(String::as_str));
    let said = output("systemd-analyze", &args);
    // Of units that this machine has besides, it speaks as well.
    let folder = tmp.path().display().to_string();
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    let faults: Vec<&str> = text.lines().filter(|line| line.starts_with("volhold") || line.contains(&folder)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(said.status.success());
}

/// Numbers of `systemd-analyze security`, times ten. The agent's is what is left when nothing may give it a mount namespace: SECURITY.md
/// has what that costs, line by line.
#[test]
fn the_units_are_no_more_exposed_than_they_must_be() {
    for (name, ceiling) in [("volhold.service", 52), ("volhold-gate@.service", 14)] {
        let path = units().join(name).display().to_string();
        let threshold = format!("--threshold={ceiling}");
        let said = output("systemd-analyze", &["security", "--offline=yes", "--no-pager", &threshold, &path]);
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success(), "{name}: {}", text.lines().last().unwrap_or_default());
    }
}
