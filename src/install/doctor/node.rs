//! What all guards of a machine share.

use super::{Check, seen};
use crate::model::{GuardName, Observed};
use std::path::Path;

/// The least kernel: what is mounted is mounted with calls of 5.10.
const LEAST_KERNEL: (u32, u32) = (5, 10);

/// Features that are used where they are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Paths that a reader may open (5.13).
    pub landlock: bool,
    /// System calls that a reader may make.
    pub seccomp: bool,
    /// A number that no two disks share, however often their names are used again (5.15).
    pub diskseq: bool,
}

pub fn kernel(release: &Observed<String>, features: Features) -> Check {
    seen("kernel", "the kernel's version", release, |release| {
        let Some(version) = version(release) else {
            return Check::fail("kernel", format!("the kernel calls itself `{release}`, which is no version"));
        };
        let (major, minor) = LEAST_KERNEL;
        if version < LEAST_KERNEL {
            return Check::fail(
                "kernel",
                format!("Linux {release} is older than {major}.{minor}, the least that is needed"),
            )
            .fix("install a newer kernel");
        }
        let word = |there: bool| if there { "yes" } else { "no" };
        let says = format!(
            "Linux {release}; Landlock {}, seccomp {}, diskseq {}, mount_setattr {}",
            word(features.landlock),
            word(features.seccomp),
            word(features.diskseq),
            word(version >= (5, 12))
        );
        if features.seccomp {
            Check::ok("kernel", says)
        } else {
            Check::warn("kernel", says).fix("without seccomp the readers of a volume are confined less")
        }
    })
}

/// `6.1.0-13-cloud-amd64` is (6, 1).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A program that guards need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    pub name: &'static str,
    /// The Debian and RPM package that has it.
    pub package: &'static str,
    /// Guards that cannot do without it.
    pub needed_by: Vec<GuardName>,
    /// Its version; `None`: not installed.
    pub found: Observed<Option<String>>,
}

pub fn tools(tools: &[Tool]) -> Check {
    let mut there = Vec::new();
    let mut missing = Vec::new();
    let mut packages: Vec<&str> = Vec::new();
    for tool in tools {
        match &tool.found {
            Observed::Seen(Some(version)) => there.push(version.clone()),
            Observed::Seen(None) if tool.needed_by.is_empty() => {}
            Observed::Seen(None) => {
                let names: Vec<&str> = tool.needed_by.iter().map(GuardName::as_str).collect();
                missing.push(format!("{} is not installed, and {} needs it", tool.name, names.join(", ")));
                if !packages.contains(&tool.package) {
                    packages.push(tool.package);
                }
            }
            Observed::Unknown(why) => missing.push(format!("{} does not run: {}", tool.name, why.detail())),
        }
    }
    if missing.is_empty() {
        return Check::ok("tools", there.join("; "));
    }
    let check = Check::fail("tools", missing.join("; "));
    if packages.is_empty() { check } else { check.fix(format!("install the package {}", packages.join(", "))) }
}

/// The agent, as the status file and the process table have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// `None`: no agent has run since this machine started.
    pub pid: Option<u32>,
    pub running: bool,
}

pub fn agent(agent: &Agent) -> Check {
    let start = "systemctl start volhold.service; journalctl -u volhold.service says why it ended";
    match (agent.running, agent.pid) {
        (true, Some(pid)) => Check::ok("agent", format!("the agent runs (process {pid})")),
        (_, Some(_)) => {
            Check::fail("agent", "the agent does not run: what was open stays open, nothing else opens").fix(start)
        }
        (_, None) => Check::fail("agent", "the agent has not run since this machine started: no gate opens").fix(start),
    }
}

/// Mount namespaces by their names in `/proc/PID/ns/mnt`: of the agent, and of PID 1.
pub fn namespace(agent: Option<&Observed<(String, String)>>) -> Check {
    let Some(agent) = agent else {
        return Check::skip("agent-namespace", "not tested: no agent runs");
    };
    seen("agent-namespace", "the agent's mount namespace", agent, |(agent, host)| {
        if agent == host {
            return Check::ok("agent-namespace", "the agent mounts where the whole machine sees it");
        }
        Check::fail("agent-namespace", "the agent has a mount namespace of its own: what it mounts, nobody else sees").fix(
            "take out of its unit and drop-ins what makes one (PrivateMounts=, PrivateTmp=, ProtectSystem=, ProtectHome=, \
             ReadWritePaths=, …): systemctl cat volhold.service",
        )
    })
}

/// What is written, against what the agent runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Configuration {
    Same,
    /// The agent has not read what is written: the keys that differ, or whole guards.
    Differs(Vec<String>),
    /// It cannot be used.
    Unusable(Vec<String>),
    /// No agent has kept a configuration.
    NothingKept,
}

pub fn configuration(path: &Path, found: &Observed<Configuration>) -> Check {
    let id = "config";
    seen(id, "what the agent runs on", found, |found| match found {
        Configuration::Same => Check::ok(id, format!("the agent runs on {} as it is written", path.display())),
        Configuration::Differs(keys) => {
            Check::warn(id, format!("written, and not what the agent runs on: {}", keys.join(", ")))
                .fix("systemctl reload volhold.service (variables and --set of the agent's unit count for it too)")
        }
        Configuration::Unusable(lines) => {
            Check::fail(id, format!("what is written cannot be used: {}", lines.join("; "))).fix("volhold config check")
        }
        Configuration::NothingKept => Check::warn(id, "no agent has read a configuration on this machine yet")
            .fix("systemctl start volhold.service"),
    })
}

/// Does a claim keep others out on this kernel? `None`: a second exclusive open was refused.
pub fn claim(found: &Observed<Option<String>>) -> Check {
    match found {
        Observed::Seen(None) => {
            Check::ok("claim", "a claimed device refuses a second exclusive open (tried on a device made for it)")
        }
        Observed::Seen(Some(got)) => {
            Check::fail("claim", format!("a claimed device let a second exclusive open through: {got}"))
                .fix("on this kernel a held volume is not safe from mkfs and mount: use another")
        }
        Observed::Unknown(why) => Check::skip("claim", format!("not tested: {}", why.detail())),
    }
}

/// Units that start after `multi-user.target`, as systemd names them.
pub fn boot_order(before: Option<&Observed<Vec<String>>>) -> Check {
    let id = "boot-order";
    let Some(before) = before else { return Check::skip(id, "not tested: no systemd") };
    seen(id, "what starts after multi-user.target", before, |before| {
        let ours = |name: &&String| {
            let of_systemd = name.starts_with("systemd-") || name.ends_with(".target");
            name.ends_with(".service") && !of_systemd
        };
        let behind: Vec<&str> = before.iter().filter(ours).map(String::as_str).collect();
        if behind.is_empty() {
            return Check::ok(id, "nothing but the end of the boot waits for multi-user.target");
        }
        Check::warn(id, format!("waits for multi-user.target, and so for every gate before it: {}", behind.join(", ")))
            .fix("deliver what opens a gate (configuration, keys) by image, write_files or a unit, never by these")
    })
}

/// Debian's etcd-server, if it is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebianEtcd {
    /// Its postrm removes `/var/lib/etcd` at purge.
    pub deletes: bool,
    /// `apt-mark hold` keeps it from being removed or purged by accident.
    pub held: bool,
}

pub fn debian_etcd(package: Option<&Observed<DebianEtcd>>, guards: &[GuardName]) -> Check {
    let id = "debian-etcd";
    let Some(package) = package else { return Check::skip(id, "Debian's etcd-server is not installed") };
    seen(id, "what Debian's etcd-server does when it is purged", package, |package| {
        if !package.deletes || guards.is_empty() {
            return Check::ok(id, "purging etcd-server deletes nothing of a guarded volume");
        }
        let names: Vec<&str> = guards.iter().map(GuardName::as_str).collect();
        let volumes = names.join(", ");
        if package.held {
            return Check::ok(
                id,
                format!("etcd-server is on hold; a purge would delete what is mounted for {volumes}"),
            );
        }
        Check::warn(
            id,
            format!("purging etcd-server runs rm -rf /var/lib/etcd: the data of {volumes}, if mounted then"),
        )
        .fix("apt-mark hold etcd-server; before a purge unmount the volume")
    })
}

/// node_exporter's textfile directory, where one is configured: what came of asking whether it can be written to.
pub fn textfile(found: Option<(&Path, &Observed<()>)>) -> Check {
    let id = "textfile";
    match found {
        None => Check::skip(id, "no textfile directory is configured"),
        Some((dir, Observed::Seen(()))) => Check::ok(id, format!("metrics can be written to {}", dir.display())),
        Some((dir, Observed::Unknown(why))) => {
            Check::fail(id, format!("no metrics can be written to {}: {}", dir.display(), why.detail()))
                .fix("make the directory, or take what keeps root from writing there (a read-only mount, chattr +i)")
        }
    }
}

#[cfg(test)]
pub(super) mod for_tests {
    pub fn version(release: &str) -> Option<(u32, u32)> {
        super::version(release)
    }
}
