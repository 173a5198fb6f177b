//! Who else uses a device: mounts, swap, holders, loop devices on top, partitions, open descriptors.

use super::error::Opener;
use super::mountinfo::{self, Mount};
use super::sysfs::{self, BlockEntry};
use super::{DeviceError, Sysfs, loops};
use crate::model::{DevNum, DeviceFacts, DeviceUse};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Openers listed in a message at most.
const MAX_OPENERS: usize = 8;

/// Everybody who uses the device or one of its partitions.
pub fn uses(sysfs: &Sysfs, entry: &BlockEntry) -> Result<Vec<DeviceUse>, DeviceError> {
    let own = sysfs.devnum(entry)?;
    let partitions = sysfs.partitions(entry)?;
    let mut numbers = vec![own];
    for partition in &partitions {
        numbers.push(sysfs.devnum(partition)?);
    }

    let mut found: Vec<DeviceUse> =
        mounted_at(sysfs, &numbers)?.into_iter().map(|at| DeviceUse::Mount { at: at.display().to_string() }).collect();
    if swapped_on(sysfs, &numbers)? {
        found.push(DeviceUse::Swap);
    }
    for each in std::iter::once(entry).chain(&partitions) {
        found.extend(sysfs.holders(each)?.into_iter().map(|name| DeviceUse::Holder { name }));
    }
    for number in &numbers {
        found.extend(loops::on_top_of(sysfs, *number)?.into_iter().map(|name| DeviceUse::LoopOnTop { name }));
    }
    found.extend(partitions.into_iter().map(|partition| DeviceUse::Partition { name: partition.name }));
    Ok(found)
}

/// Paths at which one of the devices is mounted, in our mount namespace and in that of PID 1.
pub fn mounted_at(sysfs: &Sysfs, numbers: &[DevNum]) -> Result<BTreeSet<PathBuf>, DeviceError> {
    let mut at = BTreeSet::new();
    for who in ["thread-self", "1"] {
        let mounts = mounts(&sysfs.proc.join(who).join("mountinfo"))?;
        at.extend(mounts.into_iter().filter(|mount| is_of(mount, numbers)).map(|mount| mount.at));
    }
    Ok(at)
}

/// Mounts in namespaces of other processes, which neither our own mountinfo nor that of process 1 shows. A mount there
/// makes the device as busy as any; opening it exclusively would tell, but could make the system's own mount fail.
pub fn hidden_mounts(facts: &DeviceFacts) -> Vec<DeviceUse> {
    if facts.devnum == (DevNum { major: 0, minor: 0 }) {
        return Vec::new();
    }
    let seen: BTreeSet<&str> = facts.mounted_at().collect();
    let mut namespaces = BTreeSet::new();
    let mut found = Vec::new();
    let Ok(processes) = fs::read_dir("/proc") else { return found };
    // A process that ends meanwhile, or that we may not look into, is passed over: this adds to what is known otherwise.
    for process in processes.flatten() {
        let path = process.path();
        let Ok(namespace) = fs::read_link(path.join("ns/mnt")) else { continue };
        if !namespaces.insert(namespace) {
            continue;
        }
        let Ok(text) = fs::read(path.join("mountinfo")) else { continue };
        let Ok(mounts) = mountinfo::parse(&text) else { continue };
        for mount in mounts.into_iter().filter(|mount| mount.devnum == facts.devnum) {
            let at = mount.at.display().to_string();
            if !seen.contains(at.as_str()) {
                let pid = process.file_name().display().to_string();
                found.push(DeviceUse::Mount { at: format!("{at} in the mount namespace of process {pid}") });
            }
        }
    }
    found
}

/// Every mount in the namespace of a process.
pub fn mounts(path: &Path) -> Result<Vec<Mount>, DeviceError> {
    let text = fs::read(path).map_err(|source| DeviceError::Io { operation: "read", path: path.into(), source })?;
    mountinfo::parse(&text).map_err(|problem| DeviceError::Io {
        operation: "parse",
        path: path.into(),
        source: io::Error::new(io::ErrorKind::InvalidData, problem),
    })
}

fn is_of(mount: &Mount, numbers: &[DevNum]) -> bool {
    // btrfs and others have an anonymous device number (major 0): there only the source tells.
    numbers.contains(&mount.devnum)
        || (mount.devnum.major == 0 && block_number(&mount.source).is_some_and(|number| numbers.contains(&number)))
}

fn swapped_on(sysfs: &Sysfs, numbers: &[DevNum]) -> Result<bool, DeviceError> {
    let path = sysfs.proc.join("swaps");
    let text = match fs::read(&path) {
        Ok(text) => text,
        // A kernel without swap.
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(DeviceError::Io { operation: "read", path, source }),
    };
    // First line is the heading; the first column is the path, escaped like mountinfo.
    Ok(text.split(|byte| *byte == b'\n').skip(1).any(|line| {
        let name = line.split(|byte| *byte == b' ' || *byte == b'\t').next().unwrap_or_default();
        let path = PathBuf::from(std::ffi::OsString::from_vec(mountinfo::unescape(name)));
        block_number(&path).is_some_and(|number| numbers.contains(&number))
    }))
}

fn block_number(node: &Path) -> Option<DevNum> {
    match fs::metadata(node) {
        Ok(metadata) if metadata.file_type().is_block_device() => Some(DevNum::from_dev_t(metadata.rdev())),
        Ok(_) | Err(_) => None,
    }
}

/// Other processes that have the node open, for messages: a process that we may not look into is left out.
pub fn openers(sysfs: &Sysfs, node: &Path) -> Vec<Opener> {
    let own = std::process::id();
    let mut found = Vec::new();
    for process in sysfs::list(&sysfs.proc).unwrap_or_default() {
        let pid = process.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| *pid != own) else { continue };
        let descriptors = sysfs::list(&process.join("fd")).unwrap_or_default();
        // The link is compared as text: following it could hang on a dead network filesystem.
        if descriptors.iter().any(|descriptor| fs::read_link(descriptor).is_ok_and(|target| target == node)) {
            let name = match sysfs::attribute(&process.join("comm")) {
                Ok(Some(name)) => name,
                Ok(None) | Err(_) => "a process that has ended since".to_owned(),
            };
            found.push(Opener { pid, name });
        }
        if found.len() == MAX_OPENERS {
            break;
        }
    }
    found
}
