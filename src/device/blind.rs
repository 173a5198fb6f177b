//! Processes that do not see a device that is mounted: their mount namespace is a copy from before the mount, such as that of
//! a container whose host path is not propagated.
//!
//! Format of `/proc/PID/stat`, `comm`, `cmdline` and `mountinfo`: proc_pid_stat(5) and its siblings (Linux man-pages 6.7).

use super::mountinfo;
use crate::model::DevNum;
use std::io;
use std::path::{Path, PathBuf};

/// One process. Its number may be another's by the time that it is used; the two together are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blind {
    pub pid: u32,
    /// When it began, in clock ticks since the boot.
    pub started: u64,
}

/// The kernel's own. In a build for tests, which no package is, `VOLHOLD_FAKE_PROC` names another folder, in which a process has
/// another name.
pub fn proc_of_process() -> PathBuf {
    #[cfg(debug_assertions)]
    if let Some(proc) = std::env::var_os("VOLHOLD_FAKE_PROC") {
        return proc.into();
    }
    PathBuf::from("/proc")
}

/// The processes called `name`, with `word` in their command line (as an argument, or as the value of one), in whose mount
/// namespace no mount of this device is. One that ends meanwhile, or cannot be looked at, is none.
pub fn to(proc: &Path, name: &str, word: &str, devnum: DevNum) -> io::Result<Vec<Blind>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(proc)? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let path = entry.path();
        if is_called(&path, name, word)
            && let Some(false) = sees(&path, devnum)
            && let Some(started) = started(&path)
        {
            found.push(Blind { pid, started });
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// When the process in this folder of `/proc` began; `None`: there is none.
pub fn started(process: &Path) -> Option<u64> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    // The name, in brackets, may hold anything. What follows it are fields 3 and on; the start is field 22.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn is_called(process: &Path, name: &str, word: &str) -> bool {
    let Ok(comm) = std::fs::read_to_string(process.join("comm")) else { return false };
    if comm.trim_end() != name {
        return false;
    }
    let Ok(command) = std::fs::read(process.join("cmdline")) else { return false };
    command.split(|byte| matches!(byte, 0 | b'=' | b',')).any(|part| part == word.as_bytes())
}

/// `None`: it could not be found out.
fn sees(process: &Path, devnum: DevNum) -> Option<bool> {
    let text = std::fs::read(process.join("mountinfo")).ok()?;
    let mounts = mountinfo::parse(&text).ok()?;
    Some(mounts.iter().any(|mount| mount.devnum == devnum))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const OURS: DevNum = DevNum { major: 259, minor: 3 };

    fn process(proc: &Path, pid: &str, comm: &str, command: &str, mounts: &str) {
        let dir = proc.join(pid);
        std::fs::create_dir(&dir).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        write("comm", &format!("{comm}\n"));
        write("cmdline", &command.replace(' ', "\0"));
        write("mountinfo", mounts);
        let zeros = "0 ".repeat(18);
        write("stat", &format!("{pid} ({comm}) x) S {zeros}{pid}77 0 0\n"));
    }

    #[test]
    fn only_who_is_meant_and_does_not_see_the_device_is_found() {
        let proc = tempfile::tempdir().unwrap();
        let root = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n";
        let ours = format!("{root}36 22 259:3 / /rootfs/mnt/master-vol-1 rw - ext4 /dev/nvme1n1 rw\n");
        process(proc.path(), "10", "etcd-manager", "/etcd-manager --volume-tag=k8s.io/etcd/main", root);
        process(proc.path(), "11", "etcd-manager", "/etcd-manager --volume-tag=k8s.io/etcd/events", root);
        process(proc.path(), "12", "etcd-manager", "/etcd-manager --volume-tag=k8s.io/etcd/main", &ours);
        process(proc.path(), "13", "etcd", "/etcd k8s.io/etcd/main", root);
        process(proc.path(), "self", "etcd-manager", "k8s.io/etcd/main", root);
        process(proc.path(), "14", "etcd-manager", "k8s.io/etcd/main", "nonsense\n");
        process(proc.path(), "15", "etcd-manager", "/etcd-manager --volume-tag=k8s.io/etcd/main-2", root);
        let found = |word: &str| to(proc.path(), "etcd-manager", word, OURS).unwrap();
        assert_eq!(found("k8s.io/etcd/main"), [Blind { pid: 10, started: 1077 }]);
        assert_eq!(found("k8s.io/etcd/events"), [Blind { pid: 11, started: 1177 }]);
        assert_eq!(found("k8s.io/etcd/cilium"), []);
        assert_eq!(started(&proc.path().join("12")), Some(1277));
        assert_eq!(started(&proc.path().join("99")), None);
    }
}
