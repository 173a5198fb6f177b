//! What sysfs says about a block device, found by its device number: names move, `/sys/dev/block/MAJOR:MINOR` does not.

use super::DeviceError;
use crate::model::DevNum;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel's views are mounted. Another root than `/` is for tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysfs {
    pub sys: PathBuf,
    pub proc: PathBuf,
    pub dev: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Sysfs { sys: "/sys".into(), proc: "/proc".into(), dev: "/dev".into() }
    }
}

/// One block device in sysfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockEntry {
    /// Its own directory.
    pub dir: PathBuf,
    /// The kernel's name, `nvme1n1`.
    pub name: String,
    /// The whole disk's directory when this is a partition.
    pub disk: Option<PathBuf>,
}

impl BlockEntry {
    pub fn whole_disk(&self) -> bool {
        self.disk.is_none()
    }

    fn disk_dir(&self) -> &Path {
        self.disk.as_deref().unwrap_or(&self.dir)
    }
}

impl Sysfs {
    /// The kernel's own. In a build for tests, which no package is, `VOLHOLD_FAKE_SYS` names another `/sys`, in which a loop
    /// device has the serial that an EBS volume has.
    pub fn of_process() -> Self {
        let sysfs = Sysfs::default();
        #[cfg(debug_assertions)]
        if let Some(sys) = std::env::var_os("VOLHOLD_FAKE_SYS") {
            return Sysfs { sys: sys.into(), ..sysfs };
        }
        sysfs
    }

    /// A tree with `sys`, `proc` and `dev` below `root`.
    pub fn at(root: &Path) -> Self {
        Sysfs { sys: root.join("sys"), proc: root.join("proc"), dev: root.join("dev") }
    }

    /// The entry of a device number. `Missing` when the kernel no longer has such a device.
    pub fn block(&self, requested: &str, devnum: DevNum) -> Result<BlockEntry, DeviceError> {
        let link = self.sys.join("dev/block").join(devnum.to_string());
        let dir = fs::canonicalize(&link).map_err(|source| {
            if source.kind() == io::ErrorKind::NotFound {
                let detail = format!("the kernel has no device {devnum} any more");
                DeviceError::Missing { requested: requested.to_owned(), detail }
            } else {
                DeviceError::Io { operation: "resolve", path: link.clone(), source }
            }
        })?;
        entry(dir)
    }

    /// Every block device that has a size, whole disks and partitions.
    pub fn all(&self) -> Result<Vec<BlockEntry>, DeviceError> {
        let mut found = Vec::new();
        for link in list(&self.sys.join("class/block"))? {
            match fs::canonicalize(&link) {
                Ok(dir) => found.push(entry(dir)?),
                // It went away between listing and looking.
                Err(source) if source.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(DeviceError::Io { operation: "resolve", path: link, source }),
            }
        }
        let mut with_size = Vec::new();
        for entry in found {
            if attribute(&entry.dir.join("size"))?.is_some_and(|size| size != "0") {
                with_size.push(entry);
            }
        }
        Ok(with_size)
    }

    /// The serial of the disk, trimmed. NVMe and SCSI keep it beside the device, virtio in the block directory.
    pub fn serial(&self, entry: &BlockEntry) -> Result<Option<String>, DeviceError> {
        for place in ["serial", "device/serial"] {
            if let Some(serial) = attribute(&entry.disk_dir().join(place))?
                && !serial.is_empty()
            {
                return Ok(Some(serial));
            }
        }
        Ok(None)
    }

    /// Number of this attachment since boot (kernel 5.15), `None` on older kernels.
    pub fn diskseq(&self, entry: &BlockEntry) -> Result<Option<u64>, DeviceError> {
        let path = entry.disk_dir().join("diskseq");
        attribute(&path)?
            .map(|text| {
                text.parse().map_err(|_| DeviceError::Io {
                    operation: "parse",
                    path: path.clone(),
                    source: io::Error::new(io::ErrorKind::InvalidData, format!("`{text}` is no number")),
                })
            })
            .transpose()
    }

    /// Bytes. `None`: it does not say.
    pub fn size(&self, entry: &BlockEntry) -> Result<Option<u64>, DeviceError> {
        // In units of 512 bytes, whatever the device's own are.
        let sectors = attribute(&entry.dir.join("size"))?.and_then(|text| text.parse::<u64>().ok());
        Ok(sectors.map(|sectors| sectors.saturating_mul(512)))
    }

    /// How many errors the ext4 on this device has met, by its superblock. `None`: no ext4 is mounted from it.
    pub fn ext4_errors(&self, entry: &BlockEntry) -> Result<Option<u64>, DeviceError> {
        let path = self.sys.join("fs/ext4").join(&entry.name).join("errors_count");
        Ok(attribute(&path)?.and_then(|text| text.parse().ok()))
    }

    /// The file under a loop device.
    pub fn backing_file(&self, entry: &BlockEntry) -> Result<Option<String>, DeviceError> {
        attribute(&entry.disk_dir().join("loop/backing_file"))
    }

    /// dm, md and bcache devices that hold this one.
    pub fn holders(&self, entry: &BlockEntry) -> Result<Vec<String>, DeviceError> {
        names(&entry.dir.join("holders"))
    }

    /// Partitions of a whole disk.
    pub fn partitions(&self, disk: &BlockEntry) -> Result<Vec<BlockEntry>, DeviceError> {
        if !disk.whole_disk() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for dir in list(&disk.dir)? {
            if attribute(&dir.join("partition"))?.is_some() {
                found.push(entry(dir)?);
            }
        }
        Ok(found)
    }

    /// The device number of an entry.
    pub fn devnum(&self, entry: &BlockEntry) -> Result<DevNum, DeviceError> {
        let path = entry.dir.join("dev");
        let bad = |what: String| DeviceError::Io {
            operation: "parse",
            path: path.clone(),
            source: io::Error::new(io::ErrorKind::InvalidData, what),
        };
        let text = attribute(&path)?.ok_or_else(|| bad("no device number".into()))?;
        let (major, minor) = text.split_once(':').ok_or_else(|| bad(format!("`{text}` is no device number")))?;
        match (major.parse(), minor.parse()) {
            (Ok(major), Ok(minor)) => Ok(DevNum { major, minor }),
            (_, _) => Err(bad(format!("`{text}` is no device number"))),
        }
    }
}

fn entry(dir: PathBuf) -> Result<BlockEntry, DeviceError> {
    let name = match dir.file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => {
            let source = io::Error::new(io::ErrorKind::InvalidData, "a block device without a name");
            return Err(DeviceError::Io { operation: "resolve", path: dir, source });
        }
    };
    let disk = match attribute(&dir.join("partition"))? {
        Some(_) => dir.parent().map(Path::to_owned),
        None => None,
    };
    Ok(BlockEntry { dir, name, disk })
}

/// A one-line attribute, trimmed (sysfs pads serials); `None` when it is not there, an error when it cannot be read.
pub(super) fn attribute(path: &Path) -> Result<Option<String>, DeviceError> {
    match fs::read(path) {
        Ok(bytes) => {
            Ok(Some(String::from_utf8_lossy(&bytes).trim_matches(|c: char| c.is_whitespace() || c == '\0').into()))
        }
        Err(source) => match source.raw_os_error() {
            // ENODEV and ENXIO: the attribute's device went away while it was read.
            Some(libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ENXIO) => Ok(None),
            // A directory of that name is another thing than the attribute.
            Some(libc::EISDIR) => Ok(None),
            Some(_) | None => Err(DeviceError::Io { operation: "read", path: path.to_owned(), source }),
        },
    }
}

/// The paths in a directory, sorted; none when it is not there.
pub(super) fn list(dir: &Path) -> Result<Vec<PathBuf>, DeviceError> {
    let failed = |source| DeviceError::Io { operation: "list", path: dir.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed(source)),
    };
    let mut found =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    found.sort();
    Ok(found)
}

fn names(dir: &Path) -> Result<Vec<String>, DeviceError> {
    Ok(list(dir)?.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned()).collect())
}
