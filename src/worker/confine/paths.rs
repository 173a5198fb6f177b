//! Landlock: which paths may still be opened, all of them for reading.

use super::{ConfineError, Given};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What Landlock (Linux 5.13, and only where it is switched on) could do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Landlock {
    /// All that is asked for: files, devices, TCP ports, signals, abstract sockets. Linux 6.12.
    Full,
    /// The kernel knows some of it.
    Partial,
    None,
}

/// Linux 6.12; older ones enforce what they know.
const ASKED: ABI = ABI::V6;

/// A path that stays open to the reader.
#[derive(Debug)]
pub(super) struct Allowed {
    at: OwnedFd,
    access: BitFlags<AccessFs>,
}

/// Standard input, this process's own folder in /proc, and what the kernel says of locks or of the device.
pub(super) fn allowed(given: Given<'_>) -> Result<Vec<Allowed>, ConfineError> {
    let below: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    // Descriptors are opened anew by way of /proc/self/fd; mountinfo is in there too.
    let mut allowed = vec![Allowed { at: open("/proc/self")?, access: below }];
    match given {
        Given::Tree(root) => {
            allowed.push(Allowed { at: own(root)?, access: below });
            allowed.push(Allowed { at: open("/proc/locks")?, access: AccessFs::ReadFile.into() });
        }
        Given::Bytes(fd) => {
            // It is opened again, to read past the page cache, and asked for sizes.
            allowed.push(Allowed { at: own(fd)?, access: AccessFs::ReadFile | AccessFs::IoctlDev });
            allowed.extend(device_in_sysfs(fd)?.into_iter().map(|at| Allowed { at, access: below }));
        }
    }
    Ok(allowed)
}

/// Every path, for reading and for running; none for writing.
pub(super) fn of_program() -> Result<Vec<Allowed>, ConfineError> {
    let access = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    Ok(vec![Allowed { at: open("/")?, access }])
}

/// Where sysfs tells libblkid whether this is a whole disk. Without that answer it would not look for the signatures of
/// firmware RAID at all, and *less found* is the one thing that a reader must never come to by being confined.
fn device_in_sysfs(fd: BorrowedFd<'_>) -> Result<Vec<OwnedFd>, ConfineError> {
    let failed =
        |errno: rustix::io::Errno| ConfineError::Path { path: "standard input".to_owned(), source: errno.into() };
    let stat = rustix::fs::fstat(fd).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Ok(Vec::new());
    }
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let path = format!("/sys/dev/block/{major}:{minor}");
    let mut found = Vec::new();
    match open(&path) {
        Ok(device) => found.push(device),
        // No sysfs, as in some containers: then libblkid never had it.
        Err(ConfineError::Path { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    }
    // A partition's folder lies in its disk's.
    match open(&format!("{path}/partition")) {
        Ok(_partition) => found.push(open(&format!("{path}/.."))?),
        Err(ConfineError::Path { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(found)
}

fn open(path: &str) -> Result<OwnedFd, ConfineError> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| ConfineError::Path { path: path.to_owned(), source: errno.into() })
}

fn own(fd: BorrowedFd<'_>) -> Result<OwnedFd, ConfineError> {
    fd.try_clone_to_owned().map_err(|source| ConfineError::Path { path: "standard input".to_owned(), source })
}

/// Closes every path but those.
pub(super) fn restrict(allowed: Vec<Allowed>) -> Result<Landlock, ConfineError> {
    let landlock = enforce(&allowed).map_err(|source| ConfineError::Landlock { source })?;
    // Rules are about the kernel's inodes, and procfs makes new ones for names that nobody has open.
    std::mem::forget(allowed);
    Ok(landlock)
}

fn enforce(allowed: &[Allowed]) -> Result<Landlock, RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(ASKED))?
        .handle_access(AccessNet::from_all(ASKED))?
        .scope(Scope::from_all(ASKED))?
        .create()?;
    for Allowed { at, access } in allowed {
        rules = rules.add_rule(PathBeneath::new(at.as_fd(), *access))?;
    }
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Landlock::Full,
        RulesetStatus::PartiallyEnforced => Landlock::Partial,
        RulesetStatus::NotEnforced => Landlock::None,
    })
}
