//! Mount options as people write them for mount(8): which go to the mount, which to the filesystem, which are refused.

use rustix::mount::MountAttrFlags;
use thiserror::Error;

/// Options, sorted by who gets them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// Of the mount.
    pub attributes: MountAttrFlags,
    /// Of the filesystem, in order.
    pub filesystem: Vec<FsOption>,
}

/// One option that the filesystem gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FsOption {
    Flag(String),
    Value(String, String),
}

impl std::fmt::Display for FsOption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FsOption::Flag(key) => f.write_str(key),
            FsOption::Value(key, value) => write!(f, "{key}={value}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OptionError {
    #[error(
        "mount option `{0}` is not for volhold: etcd needs a writable volume, and whether it gets one is decided here"
    )]
    Refused(String),
    /// It would let a copy of a filesystem be mounted beside the original, which the kernel refuses for a reason.
    #[error("mount option `nouuid` is not for volhold: a copy of a filesystem that is mounted already has to be told")]
    Copy,
    #[error("mount option `{0}` cannot be understood")]
    Malformed(String),
}

/// Sorts options. `rw` and `defaults` say nothing new; what only fstab's readers act on (`nofail`, `_netdev`, `x-…`) is
/// left out; what would take the decision about writing away from us (`ro`, `remount`, `bind`, …) is refused.
pub fn parse(options: &[String]) -> Result<MountOptions, OptionError> {
    let mut parsed = MountOptions { attributes: MountAttrFlags::empty(), filesystem: Vec::new() };
    let mut atime = MountAttrFlags::MOUNT_ATTR_RELATIME;
    for option in options.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|option| !option.is_empty()) {
        match option {
            "rw" | "defaults" | "dev" | "suid" | "exec" | "atime" | "diratime" | "async" => {}
            "nofail" | "_netdev" | "auto" | "noauto" | "nouser" => {}
            _ if option.starts_with("x-") || option.starts_with("X-") || option.starts_with("comment=") => {}
            "ro" | "remount" | "bind" | "rbind" | "move" | "loop" | "user" | "users" | "owner" | "group" | "noload"
            | "norecovery" => return Err(OptionError::Refused(option.to_owned())),
            "nouuid" => return Err(OptionError::Copy),
            "nodev" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_NODEV,
            "nosuid" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_NOSUID,
            "noexec" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_NOEXEC,
            "nodiratime" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_NODIRATIME,
            "nosymfollow" => parsed.attributes |= MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW,
            "noatime" => atime = MountAttrFlags::MOUNT_ATTR_NOATIME,
            "strictatime" => atime = MountAttrFlags::MOUNT_ATTR_STRICTATIME,
            "relatime" => atime = MountAttrFlags::MOUNT_ATTR_RELATIME,
            _ => parsed.filesystem.push(match option.split_once('=') {
                Some(("source" | "", _)) => return Err(OptionError::Malformed(option.to_owned())),
                Some((key, value)) => FsOption::Value(key.to_owned(), value.to_owned()),
                None => FsOption::Flag(option.to_owned()),
            }),
        }
    }
    // The three are values of one field, not flags of their own.
    parsed.attributes |= atime;
    Ok(parsed)
}

/// With these a mount writes nothing, and replays no journal. `None`: no way is known for this filesystem.
pub fn look_only(fstype: &str) -> Option<MountOptions> {
    let options: &[&str] = match fstype {
        "ext2" | "ext3" | "ext4" => &["ro", "noload"],
        // A copy of a filesystem that is mounted elsewhere may be looked at; it is never published.
        "xfs" => &["ro", "norecovery", "nouuid"],
        _ => return None,
    };
    Some(MountOptions {
        attributes: MountAttrFlags::empty(),
        filesystem: options.iter().map(|&option| FsOption::Flag(option.to_owned())).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(text: &str) -> Result<MountOptions, OptionError> {
        parse(&[text.to_owned()])
    }

    #[test]
    fn flags_go_to_the_mount_and_the_rest_to_the_filesystem_in_order() {
        let options = parsed("noatime,nodev,nosuid,errors=remount-ro,nobarrier,x-systemd.device-timeout=5").unwrap();
        assert_eq!(
            options.attributes,
            MountAttrFlags::MOUNT_ATTR_NOATIME | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID
        );
        assert_eq!(
            options.filesystem,
            [FsOption::Value("errors".into(), "remount-ro".into()), FsOption::Flag("nobarrier".into())]
        );
    }

    #[test]
    fn a_read_only_volume_is_refused_wherever_it_is_asked_for() {
        for option in ["ro", "noatime,ro", "remount", "noload", "norecovery", "bind"] {
            assert!(matches!(parsed(option), Err(OptionError::Refused(_))), "{option}");
        }
    }

    #[test]
    fn a_copy_cannot_be_mounted_beside_its_original() {
        assert_eq!(parsed("noatime,nouuid"), Err(OptionError::Copy));
    }

    #[test]
    fn the_source_is_never_an_option() {
        assert!(matches!(parsed("source=/dev/sda"), Err(OptionError::Malformed(_))));
    }
}
