//! Loop devices: which one has which file under it, and which one sits on top of a device.
//!
//! The kernel is asked by device and inode number (`LOOP_GET_STATUS64`), since the path in sysfs is only what the file was
//! called when it was bound, in the mount namespace of whoever bound it.

use super::ioctl::{self, LoopBacking};
use super::{DeviceError, Sysfs, sysfs};
use crate::model::DevNum;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A loop device that has something under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// `loop3`
    pub name: String,
    /// `/dev/loop3`
    pub node: PathBuf,
    /// The path as sysfs has it.
    pub backing_file: String,
}

/// Every bound loop device.
pub fn bound(sysfs: &Sysfs) -> Result<Vec<Bound>, DeviceError> {
    let mut found = Vec::new();
    for dir in sysfs::list(&sysfs.sys.join("block"))? {
        let Some(name) = dir.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
        if !name.starts_with("loop") {
            continue;
        }
        if let Some(backing_file) = sysfs::attribute(&dir.join("loop/backing_file"))? {
            found.push(Bound { node: sysfs.dev.join(&name), name, backing_file });
        }
    }
    Ok(found)
}

/// The loop device that shows this whole file, if one does already.
pub fn showing(sysfs: &Sysfs, file: &Path) -> Result<Option<Bound>, DeviceError> {
    let unseen = |source| DeviceError::from_open(&file.display().to_string(), file.into(), source);
    let wanted = fs::metadata(file).map_err(unseen)?;
    for bound in bound(sysfs)? {
        let whole = |backing: &LoopBacking| backing.offset == 0 && backing.size_limit == 0;
        if let Some(backing) = backing(&bound)?
            && (backing.device, backing.inode) == (wanted.dev(), wanted.ino())
            && whole(&backing)
        {
            return Ok(Some(bound));
        }
    }
    Ok(None)
}

/// Loop devices whose backing file is the block device `devnum` (`O_EXCL` does not notice these).
pub fn on_top_of(sysfs: &Sysfs, devnum: DevNum) -> Result<Vec<String>, DeviceError> {
    let mut found = Vec::new();
    for bound in bound(sysfs)? {
        let on_top = match fs::metadata(&bound.backing_file) {
            Ok(metadata) if metadata.file_type().is_block_device() => DevNum::from_dev_t(metadata.rdev()) == devnum,
            Ok(_) => false,
            // The node was removed, or belongs to another mount namespace: ask the loop device itself.
            Err(_) => backing(&bound)?
                .is_some_and(|backing| backing.rdevice != 0 && DevNum::from_dev_t(backing.rdevice) == devnum),
        };
        if on_top {
            found.push(bound.name);
        }
    }
    Ok(found)
}

fn backing(bound: &Bound) -> Result<Option<LoopBacking>, DeviceError> {
    let failed = |operation, source| DeviceError::Io { operation, path: bound.node.clone(), source };
    let device = match File::open(&bound.node) {
        Ok(device) => device,
        // Unbound and removed since it was listed.
        Err(source) if matches!(source.kind(), io::ErrorKind::NotFound) => return Ok(None),
        Err(source) if source.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
        Err(source) => return Err(failed("open", source)),
    };
    ioctl::loop_backing(&device).map_err(|source| failed("ask for the backing file of", source))
}
