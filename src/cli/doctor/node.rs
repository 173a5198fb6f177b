//! What is found out about the machine.

use super::Patient;
use crate::act::{ask, claim_test};
use crate::cli::status::agent_of;
use crate::config::{self, GuardConfig, json, parse_kept};
use crate::device::Sysfs;
use crate::install::doctor::Check;
use crate::install::doctor::node::{self, Agent, Configuration, DebianEtcd, Features, Tool};
use crate::model::{Fstype, GuardName, Observed, Why};
use crate::record;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

pub fn checks(patient: &Patient<'_>, guards: &[&GuardConfig]) -> Vec<Check> {
    let mut checks = layers(patient, guards);
    checks.push(node::configuration(&patient.sources.path, &configuration(patient)));
    let textfile = textfile_dir(&json(patient.config)).map(|dir| (writable(&dir), dir));
    checks.push(node::textfile(textfile.as_ref().map(|(writable, dir)| (dir.as_path(), writable))));
    checks.push(node::boot_order(boot_order(patient).as_ref()));
    let below: Vec<GuardName> =
        guards.iter().filter(|guard| lies_below_debians(guard)).map(|g| g.name.clone()).collect();
    checks.push(node::debian_etcd(debian_etcd().as_ref(), &below));
    checks
}

/// Those without which no guard can enforce.
pub fn layers(patient: &Patient<'_>, guards: &[&GuardConfig]) -> Vec<Check> {
    let agent = agent_of(patient.status.as_ref());
    let running = agent.pid.filter(|_| agent.running);
    vec![
        node::kernel(&kernel(), features()),
        node::tools(&tools(guards)),
        node::agent(&Agent { pid: agent.pid, running: agent.running }),
        node::namespace(running.map(namespaces).as_ref()),
        node::claim(&claim_test::second_exclusive_open(&Sysfs::at(Path::new("/")))),
    ]
}

fn unreadable(what: &str, error: &io::Error) -> Why {
    Why::Unreadable { detail: format!("{what}: {error}") }
}

fn read(path: &str) -> Observed<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Observed::Seen(text.trim().to_owned()),
        Err(error) => Observed::Unknown(unreadable(path, &error)),
    }
}

fn kernel() -> Observed<String> {
    read("/proc/sys/kernel/osrelease")
}

fn features() -> Features {
    let disks = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    Features {
        landlock: crate::worker::landlock_holds(),
        seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
        diskseq: disks.into_iter().any(|disk| disk.path().join("diskseq").exists()),
    }
}

fn tools(guards: &[&GuardConfig]) -> Vec<Tool> {
    let of = |fstype: Fstype| -> Vec<GuardName> {
        guards.iter().filter(|guard| guard.fstype == fstype).map(|guard| guard.name.clone()).collect()
    };
    let tool =
        |name, package, flag, fstype| Tool { name, package, needed_by: of(fstype), found: ask::version(name, flag) };
    vec![
        tool("mkfs.ext4", "e2fsprogs", "-V", Fstype::Ext4),
        tool("e2fsck", "e2fsprogs", "-V", Fstype::Ext4),
        tool("mkfs.xfs", "xfsprogs", "-V", Fstype::Xfs),
    ]
}

/// Of the agent, and of PID 1.
fn namespaces(agent: u32) -> Observed<(String, String)> {
    let name = |pid: u32| {
        let path = format!("/proc/{pid}/ns/mnt");
        std::fs::read_link(&path).map(|name| name.display().to_string()).map_err(|error| unreadable(&path, &error))
    };
    match (name(agent), name(1)) {
        (Ok(agent), Ok(host)) => Observed::Seen((agent, host)),
        (Err(why), _) | (_, Err(why)) => Observed::Unknown(why),
    }
}

fn configuration(patient: &Patient<'_>) -> Observed<Configuration> {
    let written = match config::load(patient.sources) {
        Ok(loaded) => loaded.config,
        Err(error) => return Observed::Seen(Configuration::Unusable(error.lines())),
    };
    let state = &patient.config.paths.state;
    let kept = match record::load_kept_config(state) {
        Ok(Some(text)) => text,
        Ok(None) => return Observed::Seen(Configuration::NothingKept),
        Err(error) => return Observed::Unknown(unreadable("the configuration that the agent keeps", &error)),
    };
    let kept = match parse_kept(&record::kept_config_path(state), &kept) {
        Ok(kept) => kept.config,
        Err(error) => return Observed::Unknown(Why::Unreadable { detail: error.to_string() }),
    };
    let differ = differences(&json(&written), &json(&kept));
    Observed::Seen(if differ.is_empty() { Configuration::Same } else { Configuration::Differs(differ) })
}

/// Keys with different values, in the words of the configuration: `guard.main.mode`, `paths.state`.
fn differences(written: &Value, kept: &Value) -> Vec<String> {
    let (written, kept) = (keys(written), keys(kept));
    let names: BTreeSet<&str> = written.symmetric_difference(&kept).map(|(key, _)| key.as_str()).collect();
    names.into_iter().map(str::to_owned).collect()
}

fn keys(config: &Value) -> BTreeSet<(String, String)> {
    let mut keys = BTreeSet::new();
    let mut table = |name: &str, table: &Value| {
        for (key, value) in table.as_object().into_iter().flatten() {
            keys.insert((format!("{name}.{key}"), value.to_string()));
        }
    };
    for (name, value) in config.as_object().into_iter().flatten() {
        match value {
            Value::Array(guards) => {
                for guard in guards {
                    let called = guard.get("name").and_then(Value::as_str).unwrap_or_default();
                    table(&format!("{name}.{called}"), guard);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => table(name, value),
        }
    }
    keys
}

/// `[metrics] textfile_dir`, by its key: it is read like any script reads `config show`.
fn textfile_dir(config: &Value) -> Option<PathBuf> {
    config.get("metrics")?.get("textfile_dir")?.as_str().map(PathBuf::from)
}

/// The kernel's word for whether root may make a file there: immutable and read-only directories refuse it too.
fn writable(dir: &Path) -> Observed<()> {
    use rustix::fs::Access;
    match rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if dir.is_dir() => Observed::Seen(()),
        Ok(()) => Observed::Unknown(Why::Unreadable { detail: "it is no directory".to_owned() }),
        Err(errno) => Observed::Unknown(Why::Unreadable { detail: io::Error::from(errno).to_string() }),
    }
}

fn boot_order(patient: &Patient<'_>) -> Option<Observed<Vec<String>>> {
    Some(match patient.show("multi-user.target", "Before")? {
        Observed::Seen(shown) => Observed::Seen(shown.list("Before")),
        Observed::Unknown(why) => Observed::Unknown(why),
    })
}

const DEBIANS: &str = "/var/lib/etcd";

fn lies_below_debians(guard: &GuardConfig) -> bool {
    super::published_at(guard).iter().any(|at| at.starts_with(DEBIANS))
}

/// Debian's etcd-server, where dpkg has it.
fn debian_etcd() -> Option<Observed<DebianEtcd>> {
    let script = match std::fs::read_to_string("/var/lib/dpkg/info/etcd-server.postrm") {
        Ok(script) => script,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Observed::Unknown(unreadable("etcd-server.postrm", &error))),
    };
    let status = match std::fs::read_to_string("/var/lib/dpkg/status") {
        Ok(status) => status,
        Err(error) => return Some(Observed::Unknown(unreadable("/var/lib/dpkg/status", &error))),
    };
    let package = status.split("\n\n").find(|package| package.lines().any(|line| line == "Package: etcd-server"));
    let held = package.is_some_and(|package| package.lines().any(|line| line.starts_with("Status: hold ")));
    let deletes = script.lines().any(|line| line.contains("rm -rf") && line.contains(DEBIANS));
    Some(Observed::Seen(DebianEtcd { deletes, held }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_key_that_differs_is_named_once() {
        let config =
            |mode: &str, guards: Value| json!({ "paths": { "state": "/s" }, "guard": guards, "x": { "y": mode } });
        let one = config("a", json!([{ "name": "main", "mode": "observe" }]));
        assert!(differences(&one, &one).is_empty());
        let two = config("b", json!([{ "name": "main", "mode": "enforce" }, { "name": "events" }]));
        assert_eq!(differences(&one, &two), ["guard.events.name", "guard.main.mode", "x.y"]);
    }

    #[test]
    fn a_textfile_directory_that_is_missing_or_a_file_cannot_be_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = |path: &Path| textfile_dir(&json!({ "metrics": { "textfile_dir": path } }));
        assert_eq!(path(dir.path()).as_deref(), Some(dir.path()));
        assert_eq!(textfile_dir(&json!({ "paths": {} })), None);
        assert_eq!(writable(dir.path()), Observed::Seen(()));
        assert!(writable(&dir.path().join("none")).seen().is_none());
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(writable(&dir.path().join("file")).seen().is_none());
    }
}
