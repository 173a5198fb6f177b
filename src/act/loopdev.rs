//! Image files become loop devices: for the demonstration, and for tests of everything else.

use super::Change;
use crate::device::{Device, DeviceError, Sysfs, ioctl, loops};
use crate::model::{Reason, ReasonCode};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Somebody else can take the free device between finding and binding it; the kernel names another one each time.
const TRIES: u32 = 32;

/// A loop device that shows an image file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub node: PathBuf,
    /// `Already`: it was attached before, and this one is used.
    pub change: Change,
}

#[derive(Debug, Error)]
pub enum LoopError {
    #[error("look for a loop device that has {path}")]
    Look {
        path: PathBuf,
        #[source]
        source: DeviceError,
    },
    #[error("{operation} {path}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("no loop device could be had for {path}: others were faster {TRIES} times")]
    Contended { path: PathBuf },
}

impl LoopError {
    /// The reason that a guard is held for.
    pub fn reason(&self) -> Reason {
        match self {
            LoopError::Look { source, .. } => source.reason(),
            LoopError::Io { operation, path, source } => {
                let code = match source.raw_os_error() {
                    Some(libc::EACCES | libc::EPERM) => ReasonCode::NoPermission,
                    Some(libc::ENOENT) => ReasonCode::DeviceMissing,
                    Some(_) | None => ReasonCode::Unreadable,
                };
                Reason::new(
                    code,
                    format!("the image cannot become a loop device: {operation} {}: {source}", path.display()),
                )
            }
            LoopError::Contended { .. } => Reason::new(ReasonCode::DeviceMissing, self.to_string()),
        }
    }
}

/// Makes the image a loop device, with direct I/O where its filesystem can; one that shows the file already is used again.
/// An image that cannot be opened for writing becomes a read-only device.
pub fn attach(image: &Path, sysfs: &Sysfs) -> Result<Attached, LoopError> {
    let existing = loops::showing(sysfs, image).map_err(|source| LoopError::Look { path: image.to_owned(), source })?;
    if let Some(bound) = existing {
        return Ok(Attached { node: bound.node, change: Change::Already });
    }
    let failed = |operation, path: &Path| {
        let path = path.to_owned();
        move |source| LoopError::Io { operation, path, source }
    };
    let (file, flags) = match OpenOptions::new().read(true).write(true).open(image) {
        Ok(file) => (file, ioctl::LOOP_DIRECT_IO),
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            let file = File::open(image).map_err(failed("open", image))?;
            (file, ioctl::LOOP_DIRECT_IO | ioctl::LOOP_READ_ONLY)
        }
        Err(error) => return Err(failed("open", image)(error)),
    };
    bind(image, &file, flags, "", sysfs).map(|(_, node)| Attached { node, change: Change::Done })
}

/// Shows a device (or an image) through a loop device that the kernel lets nobody write to. It lasts as long as somebody has
/// it open or mounted; the returned file does. udev is kept from it (flock): no link shall lead here.
pub fn show(device: &Device, sysfs: &Sysfs) -> Result<(File, PathBuf), LoopError> {
    let node = device.node();
    let file = device.reader().map_err(|source| LoopError::Io { operation: "open", path: node.to_owned(), source })?;
    bind(node, &file, ioctl::LOOP_READ_ONLY | ioctl::LOOP_AUTOCLEAR, loops::VIEW, sysfs)
}

/// Binds the file to a free loop device.
fn bind(image: &Path, file: &File, flags: u32, name: &str, sysfs: &Sysfs) -> Result<(File, PathBuf), LoopError> {
    let failed = |operation, path: &Path| {
        let path = path.to_owned();
        move |source| LoopError::Io { operation, path, source }
    };
    let control_path = sysfs.dev.join("loop-control");
    let control =
        OpenOptions::new().read(true).write(true).open(&control_path).map_err(failed("open", &control_path))?;
    for _ in 0..TRIES {
        let number = ioctl::loop_free(&control).map_err(failed("ask for a free loop device from", &control_path))?;
        let node = sysfs.dev.join(format!("loop{number}"));
        let device = OpenOptions::new()
            .read(true)
            .write(flags & ioctl::LOOP_READ_ONLY == 0)
            .open(&node)
            .map_err(failed("open", &node))?;
        if name == loops::VIEW {
            // Best effort: udev waits for it to end, and then nothing is there any more.
            let _locked = rustix::fs::flock(&device, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        }
        match ioctl::loop_bind(&device, file, flags, name) {
            Ok(()) => return Ok((device, node)),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(failed("bind", &node)(error)),
        }
    }
    Err(LoopError::Contended { path: image.to_owned() })
}
