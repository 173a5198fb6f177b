//! Mounts that nobody sees until they are published.
//!
//! A filesystem is mounted detached (`fsopen`, `fsconfig`, `fsmount`): it has no path, in no namespace. It is examined
//! through its descriptor, and only a verdict moves it into place. Dropping a [`DetachedMount`] unmounts it and frees the
//! device.
//!
//! Two ways in. [`examine`] has a writable superblock under a read-only mount, so that the same superblock can be mounted
//! writable afterwards (a read-only one kept alive makes that EBUSY); the journal is replayed. [`look_only`] writes nothing
//! at all, for a volume whose identity is in doubt. Measured on kernels 6.1 and 6.18; the least kernel is 5.10.
//!
//! No way leads from here to mkfs: a mount that fails is a reason to hold.

mod directories;
mod error;
mod join;
mod table;
mod twin;
mod view;

pub use directories::Way;
pub use error::{MountError, Tried};
pub use join::join;
pub use table::{on_top_at, sources_at, top_at};
pub use twin::Twin;
pub use view::{View, ViewError, empty};

use super::kernel_log::Mark;
use super::options::{self, FsOption, MountOptions};
use crate::device::{Device, Sysfs, uses};
use crate::model::{DevNum, Fstype};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Messages read from a filesystem context at most.
const CONTEXT_MESSAGES: usize = 32;

/// A mounted filesystem without a path.
#[derive(Debug)]
pub struct DetachedMount {
    /// From fsmount: opened with `O_PATH`. The mount lives as long as it.
    mount: OwnedFd,
    devnum: DevNum,
    node: PathBuf,
    fstype: String,
    access: Access,
}

/// What may be written through a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Superblock and mount read-only, journal not replayed.
    LookOnly,
    /// The superblock is writable, the mount is not.
    Examine,
    /// The mount is read-only; the superblock is the one of a mount that is there already.
    Beside,
    Writable,
}

/// A mount in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    pub at: PathBuf,
    pub devnum: DevNum,
}

/// Mounts with a writable superblock and a read-only mount, to be examined and then made writable. Replays the journal.
///
/// The claim is let go just before, since the filesystem takes its own; if mounting fails it is ours again
/// ([`Device::claimed`] says whether that succeeded).
pub fn examine(device: &mut Device, fstype: &str, options: &[String]) -> Result<DetachedMount, MountError> {
    let options = options::parse(options).map_err(MountError::Option)?;
    handing_over(device, |device| mount(device, fstype, &options, Access::Examine))
}

/// Mounts without writing a byte: superblock read-only, journal not replayed. What is seen may be older than what a mount
/// with replay would show.
pub fn look_only(device: &mut Device, fstype: &str) -> Result<DetachedMount, MountError> {
    let options = options::look_only(fstype).ok_or_else(|| MountError::NoLook { fstype: fstype.to_owned() })?;
    handing_over(device, |device| mount(device, fstype, &options, Access::LookOnly))
}

impl DetachedMount {
    /// The root of the filesystem, for reading: an open directory.
    pub fn root(&self) -> Result<OwnedFd, MountError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.mount, ".", flags, Mode::empty())
            .map_err(|errno| MountError::Root { node: self.node.clone(), source: errno.into() })
    }

    pub fn devnum(&self) -> DevNum {
        self.devnum
    }

    pub fn access(&self) -> Access {
        self.access
    }

    /// The same superblock, mounted once more without the read-only attribute; the first mount goes. Descriptors of its
    /// root that are still open keep it alive, read-only: close them first.
    ///
    /// If it fails both mounts are gone, and the device is claimed again ([`Device::claimed`]).
    pub fn make_writable(self, device: &mut Device, options: &[String]) -> Result<DetachedMount, MountError> {
        let options = options::parse(options).map_err(MountError::Option);
        // `self` lives until the second mount exists: the superblock is never without one, the device never free.
        let result = options.and_then(|options| mount(device, &self.fstype, &options, Access::Writable));
        drop(self);
        if result.is_err() {
            // As in `handing_over`.
            let _ = device.reclaim();
        }
        result
    }

    /// Moves the mount to a directory, over which it then lies. Refuses where something is mounted already; afterwards the
    /// kernel's own list must name this device on top. If it fails the mount is gone, and the device free: the caller
    /// claims it again.
    pub fn publish(self, at: &Path) -> Result<Published, MountError> {
        if let Some(top) = table::on_top_at(at)? {
            return Err(MountError::Occupied { at: at.to_owned(), devnum: top });
        }
        let failed = |errno: Errno| MountError::Publish { at: at.to_owned(), source: errno.into() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::open(at, flags, Mode::empty()).map_err(failed)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(&self.mount, "", &target, "", flags).map_err(failed)?;
        let seen = stat_devnum(CWD, at).map_err(failed)?;
        let listed = table::on_top_at(at)?;
        if seen != self.devnum || listed != Some(self.devnum) {
            return Err(MountError::NotOnTop { at: at.to_owned(), wanted: self.devnum, found: listed.unwrap_or(seen) });
        }
        Ok(Published { at: at.to_owned(), devnum: self.devnum })
    }
}

fn handing_over(
    device: &mut Device,
    mount: impl FnOnce(&Device) -> Result<DetachedMount, MountError>,
) -> Result<DetachedMount, MountError> {
    let was_claimed = device.claimed();
    device.let_go();
    let result = mount(device);
    if result.is_err() && was_claimed {
        // The failure of the mount is the news; `claimed()` tells whether this worked.
        let _ = device.reclaim();
    }
    result
}

fn mount(device: &Device, fstype: &str, options: &MountOptions, access: Access) -> Result<DetachedMount, MountError> {
    let Some(devnum) = device.devnum() else { return Err(MountError::Image { path: device.node().to_owned() }) };
    mount_node(device.node(), devnum, fstype, options, access)
}

fn mount_node(
    node: &Path,
    devnum: DevNum,
    fstype: &str,
    options: &MountOptions,
    access: Access,
) -> Result<DetachedMount, MountError> {
    let attempt = Attempt { node, fstype, options, access, log: Mark::now() };

    let context = match rustix::mount::fsopen(fstype, FsOpenFlags::FSOPEN_CLOEXEC) {
        Ok(context) => context,
        Err(errno) => return Err(attempt.failed("fsopen", errno, None)),
    };
    if let Err(errno) = rustix::mount::fsconfig_set_string(&context, "source", node) {
        return Err(attempt.failed("source", errno, Some(context.as_fd())));
    }
    for option in &options.filesystem {
        let set = match option {
            FsOption::Flag(key) => rustix::mount::fsconfig_set_flag(&context, key.as_str()),
            FsOption::Value(key, value) => rustix::mount::fsconfig_set_string(&context, key.as_str(), value.as_str()),
        };
        if let Err(errno) = set {
            return Err(attempt.failed(&format!("option `{option}`"), errno, Some(context.as_fd())));
        }
    }
    let created = match access {
        // A superblock that somebody else has mounted in the meantime must not be joined silently (kernel 6.6; older ones
        // say EOPNOTSUPP before they do anything).
        Access::LookOnly | Access::Examine => match rustix::mount::fsconfig_create_exclusive(&context) {
            Err(Errno::OPNOTSUPP) => rustix::mount::fsconfig_create(&context),
            result => result,
        },
        Access::Beside | Access::Writable => rustix::mount::fsconfig_create(&context),
    };
    if let Err(errno) = created {
        return Err(attempt.failed("create", errno, Some(context.as_fd())));
    }
    let read_only = match access {
        Access::LookOnly | Access::Examine | Access::Beside => MountAttrFlags::MOUNT_ATTR_RDONLY,
        Access::Writable => MountAttrFlags::empty(),
    };
    let attributes = options.attributes | read_only;
    let mount = match rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes) {
        Ok(mount) => mount,
        Err(errno) => return Err(attempt.failed("fsmount", errno, Some(context.as_fd()))),
    };
    // The mount went by name. Before anything is read: is it the device that was opened?
    let mounted = stat_devnum(mount.as_fd(), "").map_err(|errno| attempt.failed("stat", errno, None))?;
    if mounted != devnum {
        return Err(MountError::WrongVolume { node: node.to_owned(), opened: devnum, mounted });
    }
    // Kernels before 6.6 cannot be asked for a superblock of our own, so what they gave us is looked at.
    if matches!(access, Access::LookOnly | Access::Examine) {
        let mounted = uses::mounted_at(&Sysfs::default(), &[devnum]).map_err(MountError::Table)?;
        if let Some(at) = mounted.into_iter().next() {
            return Err(MountError::Joined { node: node.to_owned(), at });
        }
    }
    Ok(DetachedMount { mount, devnum, node: node.to_owned(), fstype: fstype.to_owned(), access })
}

fn stat_devnum(dir: BorrowedFd, path: impl rustix::path::Arg) -> Result<DevNum, Errno> {
    rustix::fs::statat(dir, path, AtFlags::EMPTY_PATH).map(|stat| DevNum::from_dev_t(stat.st_dev))
}

/// One try, for the message about its failure.
struct Attempt<'a> {
    node: &'a Path,
    fstype: &'a str,
    options: &'a MountOptions,
    access: Access,
    log: Mark,
}

impl Attempt<'_> {
    fn failed(self, step: &str, errno: Errno, context: Option<BorrowedFd>) -> MountError {
        let options: Vec<_> = self.options.filesystem.iter().map(FsOption::to_string).collect();
        let mut kernel = context.map(context_messages).unwrap_or_default();
        kernel.extend(self.log.lines_about(self.node));
        let twin = (self.fstype == Fstype::Xfs.as_str() && errno == Errno::INVAL)
            .then(|| twin::mounted_elsewhere(self.node))
            .flatten();
        MountError::Failed(Box::new(Tried {
            node: self.node.to_owned(),
            fstype: self.fstype.to_owned(),
            access: self.access,
            options,
            step: step.to_owned(),
            errno: errno.raw_os_error(),
            kernel,
            twin,
        }))
    }
}

/// What the kernel says about a filesystem context: one message for each read, `e ext4: Unknown parameter 'bogus'`.
fn context_messages(context: BorrowedFd) -> Vec<String> {
    let mut messages = Vec::new();
    let mut buffer = [0u8; 1024];
    while messages.len() < CONTEXT_MESSAGES {
        match rustix::io::read(context, &mut buffer) {
            Ok(length) if length > 0 => {
                let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).trim().to_owned();
                // The letter is the level: error, warning, info.
                messages.push(text.get(2..).map_or(text.clone(), str::to_owned));
            }
            // ENODATA: no more.
            Ok(_) | Err(_) => break,
        }
    }
    messages
}
