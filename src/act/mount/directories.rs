//! Directories of a volume, each published at its own place; the rest of the volume stays unseen.
//!
//! A mount of a directory is a copy of the volume's mount that begins there. Older kernels copy only what is mounted in the
//! namespace of the one who asks: straight from a detached mount it is EINVAL on 6.1, and works on 6.18 (measured; see
//! `fs/namespace.c:open_detached_copy`). Where it is refused, a thread with a mount namespace of its own attaches the detached
//! mount there, copies each directory as a detached mount again, and ends; its namespace goes with it.

use super::{DetachedMount, MountError, stat_devnum, table};
use crate::fault::fault_point;
use crate::model::{DevNum, PublishDir};
use nix::sched::CloneFlags;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

const MOVE: MoveMountFlags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH.union(MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH);
const TARGET: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const COPY: &str = "copy a directory's mount";

/// How a directory's mount is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the detached mount where the kernel does that, else in a namespace.
    Any,
    InNamespace,
}

impl DetachedMount {
    /// Publishes these directories of the volume, all of them or none: where one cannot be moved into its place, those before
    /// it are taken back, and the error names which. The places are without links. If it fails the device is free, unless
    /// something has begun to use a directory in the moment in which it was to be seen.
    pub fn publish_directories(self, entries: &[PublishDir]) -> Result<(), MountError> {
        self.publish_directories_by(entries, Way::Any)
    }

    /// The same, copying in one way only: the kernel of a test would never be asked for the other.
    pub fn publish_directories_by(self, entries: &[PublishDir], way: Way) -> Result<(), MountError> {
        let devnum = self.devnum();
        let mut targets = Vec::new();
        for entry in entries {
            if let Some(top) = table::on_top_at(&entry.at)? {
                return Err(MountError::Occupied { at: entry.at.clone(), devnum: top });
            }
            let target = rustix::fs::open(&entry.at, TARGET, Mode::empty())
                .map_err(|errno| MountError::Publish { at: entry.at.clone(), source: errno.into() })?;
            targets.push(target);
        }
        let copies = self.copies_of(entries, way)?;
        fault_point("after-clone");
        let mut moved: Vec<(&PublishDir, OwnedFd)> = Vec::new();
        for ((entry, target), copy) in entries.iter().zip(&targets).zip(copies) {
            if !moved.is_empty() {
                fault_point("between-moves");
            }
            let done = rustix::mount::move_mount(&copy, "", target, "", MOVE)
                .map_err(|errno| MountError::Publish { at: entry.at.clone(), source: errno.into() });
            let is_moved = done.is_ok();
            let done = done.and_then(|()| on_top(entry, devnum));
            if is_moved {
                moved.push((entry, copy));
            }
            if let Err(failed) = done {
                return Err(taken_back(entry, failed, moved));
            }
        }
        Ok(())
    }

    /// A detached mount of each directory.
    fn copies_of(self, entries: &[PublishDir], way: Way) -> Result<Vec<OwnedFd>, MountError> {
        let Some(attach_at) = entries.first().map(|entry| entry.at.clone()) else { return Ok(Vec::new()) };
        let sources: Vec<String> = entries.iter().map(|entry| entry.from.clone()).collect();
        match way {
            Way::Any => match copies_from(&self, &sources) {
                Err(MountError::Copy { step: COPY, source }) if source.raw_os_error() == Some(libc::EINVAL) => {}
                done => return done,
            },
            Way::InNamespace => {}
        }
        let failed = |step: &'static str| move |source: io::Error| MountError::Copy { step, source };
        // A thread of its own, not one of a pool: it stays in its namespace until it ends.
        let copier = std::thread::Builder::new().name("publish".to_owned());
        let copier = copier.spawn(move || copies(self, &attach_at, &sources)).map_err(failed("start a thread"))?;
        match copier.join() {
            Ok(copies) => copies,
            Err(_panicked) => Err(failed("copy the mount")(io::Error::other("the thread for it died"))),
        }
    }
}

/// On a thread of its own. `attach_at`: an empty directory, in the thread's namespace only.
fn copies(mount: DetachedMount, attach_at: &Path, sources: &[String]) -> Result<Vec<OwnedFd>, MountError> {
    let failed = |step: &'static str| move |errno: Errno| MountError::Copy { step, source: errno.into() };
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|errno| MountError::Copy { step: "make a mount namespace", source: errno.into() })?;
    // Before anything is attached: under a shared root it would be seen by everybody. What others unmount meanwhile is still
    // to go here too, or it would stay busy.
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .map_err(failed("keep the namespace to itself"))?;
    let target = rustix::fs::open(attach_at, TARGET, Mode::empty()).map_err(failed("open the mountpoint"))?;
    rustix::mount::move_mount(&mount.mount, "", &target, "", MOVE).map_err(failed("attach the volume"))?;
    let copies = copies_from(&mount, sources);
    // The namespace would take it along, a moment after this thread has ended: too late for who wants the device free.
    rustix::mount::unmount(attach_at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .map_err(failed("let go of the namespace's mount"))?;
    copies
}

fn copies_from(mount: &DetachedMount, sources: &[String]) -> Result<Vec<OwnedFd>, MountError> {
    let failed = |step: &'static str| move |errno: Errno| MountError::Copy { step, source: errno.into() };
    let mut copies = Vec::new();
    for from in sources {
        let unusable =
            |errno: Errno| MountError::Source { from: from.clone(), node: mount.node.clone(), source: errno.into() };
        let within =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
        let directory =
            rustix::fs::openat2(&mount.mount, from.as_str(), TARGET, Mode::empty(), within).map_err(unusable)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let copy = rustix::mount::open_tree(&directory, "", flags).map_err(failed(COPY))?;
        let copied = stat_devnum(copy.as_fd(), "").map_err(failed("look at a directory's mount"))?;
        if copied != mount.devnum {
            return Err(MountError::WrongVolume { node: mount.node.clone(), opened: mount.devnum, mounted: copied });
        }
        copies.push(copy);
    }
    Ok(copies)
}

/// The kernel's own list must have this directory of this device on top.
fn on_top(entry: &PublishDir, devnum: DevNum) -> Result<(), MountError> {
    let at = entry.at.clone();
    let seen = stat_devnum(CWD, &entry.at).map_err(|errno| MountError::Publish { at, source: errno.into() })?;
    let listed = table::top_at(&entry.at)?;
    let right = listed.as_ref().is_some_and(|top| top.devnum == devnum && top.root == entry.mount_root());
    if seen == devnum && right {
        return Ok(());
    }
    let found = listed.map_or(seen, |top| top.devnum);
    Err(MountError::NotOnTop { at: entry.at.clone(), wanted: devnum, found })
}

/// None is to be seen where not all are. Only what was moved here is unmounted, whatever lies at the path.
fn taken_back(at: &PublishDir, failed: MountError, moved: Vec<(&PublishDir, OwnedFd)>) -> MountError {
    let (mut back, mut left) = (Vec::new(), Vec::new());
    for (entry, copy) in moved.into_iter().rev() {
        match take_back(&entry.at, copy) {
            Ok(()) => back.push(entry.at.clone()),
            Err(error) => left.push(format!("{}: {error}", entry.at.display())),
        }
    }
    MountError::NotAll { at: at.at.clone(), failed: Box::new(failed), back, left }
}

fn take_back(at: &PathBuf, copy: OwnedFd) -> io::Result<()> {
    let id = rustix::fs::statx(&copy, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id;
    // Our own descriptor would keep it busy.
    drop(copy);
    let top = table::top_at(at).map_err(io::Error::other)?;
    if top.map(|top| top.id) != Some(id) {
        return Err(io::Error::other("something else lies over it"));
    }
    match rustix::mount::unmount(at, UnmountFlags::NOFOLLOW) {
        // Whoever opened something in it meanwhile keeps that; nobody else finds it any more.
        Err(Errno::BUSY) => Ok(rustix::mount::unmount(at, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?),
        done => Ok(done?),
    }
}
