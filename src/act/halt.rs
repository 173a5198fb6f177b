//! Halts what runs an etcd whose data went away under it: freezes its cgroup, or has systemd stop units. Nothing on disk is
//! touched.
//!
//! Formats: cgroups(7) for `/proc/PID/cgroup`; `cgroup.freeze` and `cgroup.events` of version 2 and `freezer.state` of version 1
//! by Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/freezer-subsystem.rst (Linux 6.1).
//!
//! The agent records that this is about to happen before it calls.
#![expect(
    clippy::disallowed_methods,
    reason = "writes to files of the cgroup filesystem, which are there already, and to nothing else"
)]

use super::tool::{self, ToolError};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use thiserror::Error;

/// systemd waits for a unit to end, which may take its `TimeoutStopSec`; that it is told to is enough.
const SYSTEMCTL: Duration = Duration::from_secs(10);
/// All processes of a cgroup are frozen when each comes back from the kernel; one that waits for a disk does not.
const FREEZES_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A file of the kernel's that is longer is none of those that are read here.
const LONGEST: u64 = 1 << 20;

#[derive(Debug, Error)]
pub enum HaltError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("process {pid} is in no cgroup of its own that could be frozen")]
    NoCgroup { pid: u32 },
    #[error("{cgroup} is not frozen: {why} is in it too")]
    Shared { cgroup: PathBuf, why: String },
    #[error("{cgroup} did not freeze within {} s; it will as soon as its processes come back from the kernel", FREEZES_WITHIN.as_secs())]
    Late { cgroup: PathBuf },
    #[error("systemctl could not be run")]
    Systemctl(#[source] ToolError),
    #[error("systemctl stop {unit} ended with {exit:?}: {output}")]
    NotStopped { unit: String, exit: Option<i32>, output: String },
}

/// A cgroup that can be frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Its directory.
    pub at: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Cgroup {
    /// The cgroup of a process: the one of version 2 where that can be frozen, else the one of the freezer of version 1.
    ///
    /// A slice is no container, and neither is the cgroup that all of a machine without containers is in: there is none then.
    pub fn of_process(pid: u32) -> Result<Self, HaltError> {
        let memberships = read(&PathBuf::from(format!("/proc/{pid}/cgroup")))?;
        let mounts = read(Path::new("/proc/self/mountinfo"))?;
        candidates(&memberships, &mounts)
            .into_iter()
            .find(|cgroup| cgroup.knob().exists())
            .ok_or(HaltError::NoCgroup { pid })
    }

    /// The file that freezes it.
    pub fn knob(&self) -> PathBuf {
        self.at.join(match self.version {
            Version::One => "freezer.state",
            Version::Two => "cgroup.freeze",
        })
    }

    /// The command by which a person lets it run again.
    pub fn thaw_command(&self) -> String {
        let word = match self.version {
            Version::One => "THAWED",
            Version::Two => "0",
        };
        format!("echo {word} > {}", self.knob().display())
    }

    /// Are all of its processes frozen?
    pub fn is_frozen(&self) -> Result<bool, HaltError> {
        Ok(match self.version {
            Version::One => read(&self.knob())?.trim() == "FROZEN",
            Version::Two => read(&self.at.join("cgroup.events"))?.lines().any(|line| line == "frozen 1"),
        })
    }

    /// Freezes it, and waits until it is. Refuses where this process, or the first one of the machine, is in it.
    pub fn freeze(&self) -> Result<(), HaltError> {
        let procs = self.at.join("cgroup.procs");
        for line in read(&procs)?.lines() {
            if line == "1" || line == std::process::id().to_string() {
                return Err(HaltError::Shared { cgroup: self.at.clone(), why: format!("process {line}") });
            }
        }
        let word = match self.version {
            Version::One => "FROZEN",
            Version::Two => "1",
        };
        let knob = self.knob();
        let failed = |source| HaltError::Write { path: knob.clone(), source };
        OpenOptions::new().write(true).open(&knob).map_err(failed)?.write_all(word.as_bytes()).map_err(failed)?;
        let began = Instant::now();
        while !self.is_frozen()? {
            if began.elapsed() > FREEZES_WITHIN {
                return Err(HaltError::Late { cgroup: self.at.clone() });
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

/// Version 2 first. Paths are joined to the mount that shows the whole hierarchy.
fn candidates(memberships: &str, mountinfo: &str) -> Vec<Cgroup> {
    let mut found = Vec::new();
    for line in memberships.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let version = match controllers {
            "" => Version::Two,
            some if some.split(',').any(|controller| controller == "freezer") => Version::One,
            _others => continue,
        };
        let below = path.trim_start_matches('/');
        let outside = Path::new(below).components().any(|part| matches!(part, std::path::Component::ParentDir));
        if below.is_empty() || outside || below.ends_with(".slice") {
            continue;
        }
        if let Some(root) = mountinfo.lines().find_map(|line| hierarchy(line, version)) {
            found.push(Cgroup { at: root.join(below), version });
        }
    }
    found.sort_by_key(|cgroup| match cgroup.version {
        Version::Two => 0,
        Version::One => 1,
    });
    found
}

/// Where this line of mountinfo shows the whole of that hierarchy, if it does.
fn hierarchy(line: &str, version: Version) -> Option<PathBuf> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, at) = (mount.next()?, mount.next()?);
    let mut filesystem = filesystem.split(' ');
    let (kind, options) = (filesystem.next()?, filesystem.nth(1).unwrap_or_default());
    let fits = match version {
        Version::Two => kind == "cgroup2",
        Version::One => kind == "cgroup" && options.split(',').any(|option| option == "freezer"),
    };
    (fits && root == "/").then(|| PathBuf::from(at))
}

/// Has systemd stop this unit, without waiting for its end.
pub fn stop_unit(unit: &str) -> Result<(), HaltError> {
    let systemctl = tool::find("systemctl").map_err(HaltError::Systemctl)?;
    let arguments = ["--no-block", "--no-ask-password", "stop", "--", unit];
    let ended = tool::run(&systemctl, &arguments, Stdio::null(), SYSTEMCTL).map_err(HaltError::Systemctl)?;
    if ended.exit == Some(0) {
        return Ok(());
    }
    let output = ended.output.trim().to_owned();
    Err(HaltError::NotStopped { unit: unit.to_owned(), exit: ended.exit, output })
}

fn read(path: &Path) -> Result<String, HaltError> {
    let failed = |source| HaltError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    File::open(path).map_err(failed)?.take(LONGEST).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n\
        40 31 0:40 /kubepods /var/other rw - cgroup2 cgroup2 rw\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";

    fn paths(memberships: &str) -> Vec<String> {
        candidates(memberships, MOUNTS).iter().map(|cgroup| cgroup.knob().display().to_string()).collect()
    }

    #[test]
    fn the_container_is_found_in_both_hierarchies_and_the_newer_one_comes_first() {
        let pod = "kubepods.slice/kubepods-pod1.slice/cri-containerd-abc.scope";
        assert_eq!(
            paths(&format!("9:name=systemd:/{pod}\n6:freezer:/{pod}\n4:memory:/m\n0::/{pod}\n")),
            [
                format!("/sys/fs/cgroup/unified/{pod}/cgroup.freeze"),
                format!("/sys/fs/cgroup/freezer/{pod}/freezer.state"),
            ]
        );
    }

    #[test]
    fn neither_the_root_nor_a_slice_nor_what_is_outside_is_a_container() {
        let nothing: [&str; 0] = [];
        for memberships in
            ["0::/\n", "0::/system.slice\n", "0::/../other\n", "6:freezer:/\n", "4:memory:/x\n", "nonsense\n"]
        {
            assert_eq!(paths(memberships), nothing, "{memberships}");
        }
    }

    #[test]
    fn the_cgroup_of_this_very_process_is_not_frozen() {
        // Whatever it is: where there is none that could be, that is the answer too.
        if let Ok(cgroup) = Cgroup::of_process(std::process::id()) {
            assert!(matches!(cgroup.freeze().unwrap_err(), HaltError::Shared { .. }));
        }
    }
}
