//! From a configured name to a node.

use super::{DeviceError, Sysfs, ebs, loops};
use crate::model::{DeviceSpec, EbsSpec, Observed};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// What a name led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// A block device node.
    Block {
        /// As configured.
        requested: String,
        /// Canonical: no links in it.
        node: PathBuf,
    },
    /// A regular file, to be attached to a loop device before it can be claimed or mounted.
    Image {
        /// Canonical.
        path: PathBuf,
    },
}

/// Says what the filesystem on a node calls itself: UUID and label. Reading content is not this room's business.
pub type Identify<'a> = dyn Fn(&Path) -> Observed<(Option<String>, Option<String>)> + 'a;

/// Follows a configured name. `UUID=` and `LABEL=` take udev's link where it is there and does not lie (links go stale),
/// else look through all block devices; a name that fits several of them is `Ambiguous`.
pub fn resolve(spec: &DeviceSpec, sysfs: &Sysfs, identify: &Identify) -> Result<Resolved, DeviceError> {
    match spec {
        DeviceSpec::Path(path) => by_path(&path.display().to_string(), path),
        DeviceSpec::Uuid(uuid) => by_content(&Wanted::Uuid(uuid), sysfs, identify),
        DeviceSpec::Label(label) => by_content(&Wanted::Label(label), sysfs, identify),
        DeviceSpec::Ebs(EbsSpec::Id(id)) => {
            let located = ebs::locate(sysfs, &id.0, std::slice::from_ref(id), None)?;
            Ok(Resolved::Block { requested: id.to_string(), node: located.node })
        }
        DeviceSpec::Ebs(EbsSpec::Tags(_)) => {
            let detail = "which volume its tags lead to is known to EC2 only".to_owned();
            Err(DeviceError::Missing { requested: spec.words(), detail })
        }
    }
}

fn by_path(requested: &str, path: &Path) -> Result<Resolved, DeviceError> {
    let node = fs::canonicalize(path).map_err(|source| {
        if source.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_ok() {
            DeviceError::Missing { requested: requested.into(), detail: "the link leads nowhere".into() }
        } else {
            DeviceError::from_open(requested, path.into(), source)
        }
    })?;
    let kind =
        fs::metadata(&node).map_err(|source| DeviceError::from_open(requested, node.clone(), source))?.file_type();
    let what = if kind.is_block_device() {
        return Ok(Resolved::Block { requested: requested.into(), node });
    } else if kind.is_file() {
        return Ok(Resolved::Image { path: node });
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "no file of a known kind"
    };
    Err(DeviceError::NotABlockDevice { requested: requested.into(), path: node, what })
}

enum Wanted<'a> {
    Uuid(&'a str),
    Label(&'a str),
}

impl Wanted<'_> {
    fn requested(&self) -> String {
        match self {
            Wanted::Uuid(uuid) => format!("UUID={uuid}"),
            Wanted::Label(label) => format!("LABEL={label}"),
        }
    }

    fn link(&self) -> PathBuf {
        match self {
            Wanted::Uuid(uuid) => Path::new("disk/by-uuid").join(link_name(uuid)),
            Wanted::Label(label) => Path::new("disk/by-label").join(link_name(label)),
        }
    }

    fn fits(&self, uuid: Option<&str>, label: Option<&str>) -> bool {
        match self {
            Wanted::Uuid(wanted) => uuid.is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted)),
            Wanted::Label(wanted) => label == Some(*wanted),
        }
    }
}

fn by_content(wanted: &Wanted, sysfs: &Sysfs, identify: &Identify) -> Result<Resolved, DeviceError> {
    let requested = wanted.requested();
    let fits = |node: &Path| match identify(node) {
        Observed::Seen((uuid, label)) => Some(wanted.fits(uuid.as_deref(), label.as_deref())),
        Observed::Unknown(_) => None,
    };

    if let Ok(node) = fs::canonicalize(sysfs.dev.join(wanted.link()))
        // What cannot be read now is left to the examination that follows; a link that is known to lie is not followed.
        && fits(&node) != Some(false)
    {
        return by_path(&requested, &node);
    }

    let mut nodes = Vec::new();
    let mut unread = Vec::new();
    for entry in sysfs.all()? {
        let node = sysfs.dev.join(&entry.name);
        match fits(&node) {
            // It shows what another device carries, for a moment.
            Some(true) if loops::is_view(sysfs, &entry.name) => {}
            Some(true) => nodes.push(node),
            Some(false) => {}
            None => unread.push(node.display().to_string()),
        }
    }
    match nodes.as_slice() {
        [node] => by_path(&requested, node),
        [] if unread.is_empty() => {
            Err(DeviceError::Missing { requested, detail: "no block device carries that name".into() })
        }
        [] => {
            let detail =
                format!("no block device that could be read carries that name; unreadable: {}", unread.join(", "));
            Err(DeviceError::Missing { requested, detail })
        }
        [_, _, ..] => Err(DeviceError::Ambiguous { requested, nodes }),
    }
}

/// udev's spelling of a value in a link name: what is not plainly printable becomes `\xNN`
/// (systemd `src/shared/device-nodes.c:encode_devnode_name`).
fn link_name(value: &str) -> String {
    let mut name = String::with_capacity(value.len());
    for c in value.chars() {
        if c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c) || !c.is_ascii() {
            name.push(c);
        } else {
            name.push_str(&format!("\\x{:02x}", u32::from(c)));
        }
    }
    name
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::model::{ReasonCode, Why};

    fn nobody(_: &Path) -> Observed<(Option<String>, Option<String>)> {
        panic!("a path needs no look at content")
    }

    fn code(spec: &str) -> ReasonCode {
        let result = resolve(&DeviceSpec::Path(spec.into()), &Sysfs::default(), &nobody);
        result.unwrap_err().reason().code
    }

    #[test]
    fn each_wrong_path_has_its_own_reason() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("by-id");
        std::os::unix::fs::symlink("/dev/no-such-node", &link).unwrap();
        assert_eq!(code("/dev/no-such-node"), ReasonCode::DeviceMissing);
        assert_eq!(code(link.to_str().unwrap()), ReasonCode::DeviceMissing);
        assert_eq!(code(dir.path().to_str().unwrap()), ReasonCode::NotABlockDevice);
        assert_eq!(code("/dev/null"), ReasonCode::NotABlockDevice);
    }

    #[test]
    fn a_regular_file_is_an_image_under_its_canonical_path() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("disk.img");
        fs::write(&file, b"x").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let resolved = resolve(&DeviceSpec::Path(link), &Sysfs::default(), &nobody).unwrap();
        assert_eq!(resolved, Resolved::Image { path: fs::canonicalize(&file).unwrap() });
    }

    /// A sysfs with the given disks, whose nodes are plain files.
    fn fake(disks: &[&str]) -> (tempfile::TempDir, Sysfs) {
        let dir = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::at(dir.path());
        fs::create_dir_all(sysfs.sys.join("class/block")).unwrap();
        fs::create_dir_all(sysfs.dev.join("disk/by-label")).unwrap();
        fs::create_dir_all(sysfs.dev.join("disk/by-uuid")).unwrap();
        for disk in disks {
            let entry = sysfs.sys.join("devices").join(disk);
            fs::create_dir_all(&entry).unwrap();
            fs::write(entry.join("size"), "2048\n").unwrap();
            std::os::unix::fs::symlink(&entry, sysfs.sys.join("class/block").join(disk)).unwrap();
            fs::write(sysfs.dev.join(disk), disk).unwrap();
        }
        (dir, sysfs)
    }

    fn labels(
        pairs: &'static [(&'static str, &'static str)],
    ) -> impl Fn(&Path) -> Observed<(Option<String>, Option<String>)> {
        move |node| {
            let name = node.file_name().unwrap().to_str().unwrap().to_owned();
            match pairs.iter().find(|(disk, _)| *disk == name) {
                Some((_, "?")) => Observed::Unknown(Why::Unreadable { detail: "EIO".into() }),
                Some((_, label)) => Observed::Seen((None, Some((*label).to_owned()))),
                None => Observed::Seen((None, None)),
            }
        }
    }

    fn find(sysfs: &Sysfs, pairs: &'static [(&'static str, &'static str)]) -> Result<String, DeviceError> {
        match resolve(&DeviceSpec::Label("etcd data".into()), sysfs, &labels(pairs))? {
            Resolved::Image { path } => Ok(path.file_name().unwrap().to_str().unwrap().to_owned()),
            other @ Resolved::Block { .. } => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_label_without_link_is_looked_for_on_every_device() {
        let (_dir, sysfs) = fake(&["sda", "sdb", "sdc"]);
        assert_eq!(find(&sysfs, &[("sda", "other"), ("sdb", "etcd data")]).unwrap(), "sdb");
    }

    #[test]
    fn a_label_that_fits_two_devices_is_ambiguous_and_names_both() {
        let (_dir, sysfs) = fake(&["sda", "sdb", "sdc"]);
        let error = find(&sysfs, &[("sda", "etcd data"), ("sdc", "etcd data")]).unwrap_err();
        assert_eq!(error.reason().code, ReasonCode::VolumeAmbiguous);
        assert!(error.reason().message.contains("sda") && error.reason().message.contains("sdc"), "{error}");
    }

    #[test]
    fn a_device_that_cannot_be_read_is_named_when_nothing_else_fits() {
        let (_dir, sysfs) = fake(&["sda", "sdb"]);
        let error = find(&sysfs, &[("sda", "?")]).unwrap_err();
        assert_eq!(error.reason().code, ReasonCode::DeviceMissing);
        assert!(error.to_string().contains("sda"), "{error}");
    }

    #[test]
    fn a_link_is_followed_unless_the_content_contradicts_it() {
        let (_dir, sysfs) = fake(&["sda", "sdb"]);
        let link = sysfs.dev.join("disk/by-label/etcd\\x20data");
        std::os::unix::fs::symlink("../../sda", &link).unwrap();
        assert_eq!(find(&sysfs, &[("sda", "etcd data")]).unwrap(), "sda");
        assert_eq!(find(&sysfs, &[("sda", "?"), ("sdb", "etcd data")]).unwrap(), "sda");
        assert_eq!(find(&sysfs, &[("sda", "stale"), ("sdb", "etcd data")]).unwrap(), "sdb");
    }
}
