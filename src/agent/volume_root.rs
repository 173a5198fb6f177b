//! The root of a volume that is published, for a moment: to read its data dirs, or to read and write its ledger.
//!
//! Where the whole volume is published that is the mountpoint. Where directories of it are, the root is nowhere to be seen;
//! it is then mounted once more, detached, and let go when the [`VolumeRoot`] is dropped.

use crate::act::kernel_log::shutdown_of;
use crate::act::mount::{self, Access, DetachedMount, MountError};
use crate::device::{DeviceError, uses};
use crate::model::{DevNum, Fstype, PublishDir, Reason, ReasonCode, WHOLE};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The open root directory.
#[derive(Debug)]
pub struct VolumeRoot {
    // Before the mount that it lies in.
    root: OwnedFd,
    brief: Option<DetachedMount>,
}

impl AsFd for VolumeRoot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

impl VolumeRoot {
    /// A descriptor for a reader.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.root.try_clone()
    }

    /// The mount that was made for it; `None` where the whole volume is published.
    pub fn into_mount(self) -> Option<DetachedMount> {
        self.brief
    }
}

impl From<OwnedFd> for VolumeRoot {
    /// Of a mount that somebody else keeps.
    fn from(root: OwnedFd) -> Self {
        VolumeRoot { root, brief: None }
    }
}

/// Why the mount that should be at a path is not.
#[derive(Debug, thiserror::Error)]
pub enum NotThere {
    #[error("cannot open {at}")]
    Open {
        at: PathBuf,
        #[source]
        source: Errno,
    },
    /// Not even the root can be opened: so an XFS answers that has shut down, and a disk that fails.
    #[error("{at} cannot be read: {}", .said.as_deref().map_or_else(
        || "its filesystem has shut down or its disk fails (EIO)".to_owned(),
        |said| format!("its filesystem has shut down and stays so until it is unmounted (the kernel says: {said})")))]
    Io { at: PathBuf, said: Option<String> },
    #[error("{at} is on device {found}, and the volume is device {expected}")]
    OtherDevice { at: PathBuf, found: DevNum, expected: DevNum },
    #[error("{at} shows {} of the volume, and {} belongs there", found.display(), expected.display())]
    OtherDirectory { at: PathBuf, found: PathBuf, expected: PathBuf },
    #[error("what is mounted at {at} cannot be told")]
    Table {
        at: PathBuf,
        #[source]
        source: DeviceError,
    },
    #[error("the kernel's list of mounts does not name the one at {at}")]
    NotListed { at: PathBuf },
    #[error("the whole of the volume cannot be looked at")]
    Brief(#[source] MountError),
    #[error("nothing of the volume is published")]
    Nothing,
}

impl NotThere {
    /// The reason that a guard is held for.
    pub fn reason(&self) -> Reason {
        let code = match self {
            NotThere::Io { .. } | NotThere::Table { .. } | NotThere::NotListed { .. } | NotThere::Brief(_) => {
                ReasonCode::Unreadable
            }
            NotThere::Open { .. }
            | NotThere::OtherDevice { .. }
            | NotThere::OtherDirectory { .. }
            | NotThere::Nothing => ReasonCode::WrongVolume,
        };
        Reason::new(code, super::chain(self))
    }
}

/// Makes sure that each of `entries` is mounted as it should be, and opens the volume's root, for reading or (`writes`) for
/// writing too.
pub fn open(entries: &[PublishDir], expected: DevNum, fstype: Fstype, writes: bool) -> Result<VolumeRoot, NotThere> {
    let mut opened = Vec::new();
    for entry in entries {
        opened.push(open_entry(entry, expected)?);
    }
    let first = opened.into_iter().next().ok_or(NotThere::Nothing)?;
    if entries.iter().any(|entry| entry.from == WHOLE) {
        return Ok(VolumeRoot { root: first, brief: None });
    }
    let access = if writes { Access::Writable } else { Access::Beside };
    let brief = mount::join(first.as_fd(), fstype.as_str(), access).map_err(NotThere::Brief)?;
    let root = brief.root().map_err(NotThere::Brief)?;
    Ok(VolumeRoot { root, brief: Some(brief) })
}

/// Opens a published directory and makes sure that it is this device's, and the one that belongs there.
fn open_entry(entry: &PublishDir, expected: DevNum) -> Result<OwnedFd, NotThere> {
    let at = &entry.at;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let failed = |source| match source {
        Errno::IO => NotThere::Io { at: at.clone(), said: name_of(expected).and_then(|node| shutdown_of(&node)) },
        source => NotThere::Open { at: at.clone(), source },
    };
    let root = rustix::fs::open(at, flags, Mode::empty()).map_err(failed)?;
    let found = DevNum::from_dev_t(rustix::fs::fstat(&root).map_err(failed)?.st_dev);
    if found != expected {
        return Err(NotThere::OtherDevice { at: at.clone(), found, expected });
    }
    // By the number of the mount that was opened, and not by its path: something may have been laid over it since.
    let id = rustix::fs::statx(&root, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).map_err(failed)?.stx_mnt_id;
    let mounts = uses::mounts(Path::new("/proc/thread-self/mountinfo"))
        .map_err(|source| NotThere::Table { at: at.clone(), source })?;
    let Some(mount) = mounts.into_iter().find(|mount| mount.id == id) else {
        return Err(NotThere::NotListed { at: at.clone() });
    };
    let expected = entry.mount_root();
    if mount.root != expected {
        return Err(NotThere::OtherDirectory { at: at.clone(), found: mount.root, expected });
    }
    Ok(root)
}

/// What the kernel calls a block device in its log. Without sysfs the log is not understood, and says nothing.
fn name_of(devnum: DevNum) -> Option<PathBuf> {
    std::fs::read_link(format!("/sys/dev/block/{devnum}")).ok()
}
