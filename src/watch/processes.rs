//! What is known of a process besides its number.

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// As the kernel has it: at most 15 characters.
    pub name: String,
    /// When it began, in seconds since 1970.
    pub started: u64,
}

impl Process {
    /// Does it run an etcd? On its own, or as a part of a distribution of Kubernetes.
    pub fn is_etcd(&self) -> bool {
        ["etcd", "k3s", "rke2", "k0s"].iter().any(|begin| self.name.starts_with(begin))
    }
}

/// Those of these processes that are there now. Blocks as any look into `/proc` may.
pub fn processes(pids: impl IntoIterator<Item = u32>) -> Vec<Process> {
    let pids: Vec<Pid> = pids.into_iter().map(Pid::from_u32).collect();
    let Ok(mut system) = System::new() else { return Vec::new() };
    // Names and times only: no walk through threads, memory or disks.
    let kind = ProcessRefreshKind::nothing().without_tasks();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&pids), true, kind);
    let known = |pid: &Pid| {
        let process = system.process(*pid)?;
        Some(Process {
            pid: pid.as_u32(),
            name: process.name().to_string_lossy().into_owned(),
            started: process.start_time(),
        })
    };
    pids.iter().filter_map(known).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn this_process_is_known_and_one_that_cannot_be_is_not() {
        let found = processes([std::process::id(), u32::MAX - 1]);
        assert_eq!(found.len(), 1, "{found:?}");
        let own = found.first().unwrap();
        assert!(own.pid == std::process::id() && own.started > 0 && !own.name.is_empty() && !own.is_etcd(), "{own:?}");
    }

    #[test]
    fn an_etcd_goes_by_several_names() {
        let is = |name: &str| Process { pid: 1, name: name.to_owned(), started: 1 }.is_etcd();
        assert!(is("etcd") && is("etcd-3.4.13") && is("k3s-server") && !is("volhold") && !is("postgres"));
    }
}
