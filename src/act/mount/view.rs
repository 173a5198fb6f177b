//! What lies behind a mount, for somebody who must not write a byte: `volhold plan`.
//!
//! The device is shown through a loop device that the kernel itself lets nobody write to, and that is mounted read-only,
//! detached. No claim is taken and none is in the way: a loop device does not ask for one of what it shows. The journal is
//! *not* left out (`noload`): a filesystem that would have to be replayed refuses to be mounted (EROFS), so that what is
//! seen is what a real mount will show, or nothing.
//!
//! Everything goes by itself when the value is dropped or the process ends, however it ends.

use super::{Access, DetachedMount, MountError, mount};
use crate::act::loopdev::{self, LoopError};
use crate::act::options;
use crate::device::{Device, DeviceError, Resolved, Sysfs};
use crate::model::Fstype;
use rustix::fs::OFlags;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// A filesystem as a mount would show it.
#[derive(Debug)]
pub struct View {
    // Before the loop device: it goes when its last user has gone.
    mount: DetachedMount,
    _shown: File,
}

/// Why nothing could be seen.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The journal holds what a mount would write to the filesystem first.
    #[error("its journal has to be replayed first, which writes")]
    Unreplayed,
    /// The mount itself would fail so.
    #[error(transparent)]
    Mount(MountError),
    #[error("it cannot be shown without being mounted")]
    Loop(#[source] LoopError),
    #[error("it cannot be shown without being mounted")]
    Device(#[source] DeviceError),
}

impl View {
    /// Shows what a mount of this device with these options would show.
    pub fn of(device: &Device, fstype: Fstype, options: &[String], sysfs: &Sysfs) -> Result<Self, ViewError> {
        let mut options = options::parse(options).map_err(|error| ViewError::Mount(MountError::Option(error)))?;
        let meant: Vec<String> = options.filesystem.iter().map(ToString::to_string).collect();
        options.filesystem.push(options::FsOption::Flag("ro".to_owned()));
        if fstype == Fstype::Xfs {
            // It has the UUID of what it shows, which must stay free for the real mount.
            options.filesystem.push(options::FsOption::Flag("nouuid".to_owned()));
        }
        let (shown, view) = show(device, sysfs)?;
        match mount(&view, fstype.as_str(), &options, Access::LookOnly) {
            Ok(mount) => Ok(View { mount, _shown: shown }),
            Err(MountError::Failed(tried)) if tried.errno == libc::EROFS => Err(ViewError::Unreplayed),
            Err(MountError::Failed(mut tried)) => {
                // Told as the mount that is meant would tell it: its device, its options.
                let own = last_part(view.node());
                let name = last_part(device.node());
                tried.node = device.node().to_owned();
                tried.options = meant;
                tried.kernel.iter_mut().for_each(|line| *line = line.replace(&own, &name));
                Err(ViewError::Mount(MountError::Failed(tried)))
            }
            Err(error) => Err(ViewError::Mount(error)),
        }
    }

    /// Shows what [`look_only`](super::look_only) would show: the journal is left out, and what it still holds is not seen.
    pub fn unreplayed(device: &Device, fstype: Fstype, sysfs: &Sysfs) -> Result<Self, ViewError> {
        let options = options::look_only(fstype.as_str())
            .ok_or_else(|| ViewError::Mount(MountError::NoLook { fstype: fstype.as_str().to_owned() }))?;
        let (shown, view) = show(device, sysfs)?;
        let mount = mount(&view, fstype.as_str(), &options, Access::LookOnly).map_err(ViewError::Mount)?;
        Ok(View { mount, _shown: shown })
    }

    /// The root of the filesystem, for reading.
    pub fn root(&self) -> Result<OwnedFd, MountError> {
        self.mount.root()
    }
}

/// The device behind a loop device that lets nobody write.
fn show(device: &Device, sysfs: &Sysfs) -> Result<(File, Device), ViewError> {
    let (shown, node) = loopdev::show(device, sysfs).map_err(ViewError::Loop)?;
    let requested = device.requested().to_owned();
    let view = Device::open(&Resolved::Block { requested, node }, sysfs).map_err(ViewError::Device)?;
    Ok((shown, view))
}

/// How the kernel names a device in its log.
fn last_part(node: &std::path::Path) -> String {
    node.file_name().map_or_else(|| node.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// The root of a filesystem with nothing in it, in memory, that nobody else sees: what a new one will be like.
pub fn empty() -> Result<OwnedFd, std::io::Error> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(mount.as_fd(), ".", flags, rustix::fs::Mode::empty())?)
}
