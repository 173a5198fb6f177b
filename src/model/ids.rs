//! Identities. One type each, printed the way operators know them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The name of a guard: a configured volume with its data dir and gate. Lower-case letters, digits and dashes, at most 63
/// characters, starting with a letter: it becomes a systemd instance name and a file name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct GuardName(String);

impl GuardName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GuardName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = text.len() <= 63
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if fits {
            Ok(GuardName(text.to_owned()))
        } else {
            Err(format!(
                "`{text}` is no guard name: lower-case letters, digits and dashes, starting with a letter, at most 63"
            ))
        }
    }
}

impl<'de> Deserialize<'de> for GuardName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for GuardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What names a volume for ever: an EBS volume id (`vol-0123456789abcdef0`), or for the local provider `local:` and the
/// device's serial, else `local:` and the configured path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolumeId(pub String);

impl VolumeId {
    /// Of an EBS volume: `vol-` and 8 or 17 lower-case hex digits. Old ids are the short ones.
    pub fn ebs(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("vol-")?;
        let hex = digits.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
        (hex && matches!(digits.len(), 8 | 17)).then(|| VolumeId(text.to_owned()))
    }

    /// The EBS volume that a disk's serial names. NVMe disks of EC2 carry the id, without its dash (the serial has room for
    /// 20 characters, which a long id with the dash exceeds).
    pub fn of_serial(serial: &str) -> Option<Self> {
        let digits = serial.strip_prefix("vol")?;
        VolumeId::ebs(&format!("vol-{}", digits.strip_prefix('-').unwrap_or(digits)))
    }

    /// Names an EBS volume?
    pub fn is_ebs(&self) -> bool {
        VolumeId::ebs(&self.0).is_some()
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A filesystem's UUID as its superblock holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FsUuid(pub uuid::Uuid);

impl fmt::Display for FsUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Kernel device number (`st_rdev`, `st_dev`): the only name of a device that a stale link cannot fake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DevNum {
    pub major: u32,
    pub minor: u32,
}

impl DevNum {
    /// Splits a `dev_t` as stat(2) returns it.
    pub fn from_dev_t(dev: u64) -> Self {
        let major = libc::major(dev);
        let minor = libc::minor(dev);
        DevNum { major, minor }
    }
}

impl fmt::Display for DevNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// `/proc/sys/kernel/random/boot_id`: tells one boot of a machine from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

macro_rules! etcd_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                u64::from_str_radix(text, 16).map($name).map_err(|_| format!("`{text}` is no id in hex"))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

etcd_id!(
    /// etcd cluster id, printed in unpadded lower-case hex as etcd does.
    ClusterId
);
etcd_id!(
    /// etcd member id, printed in unpadded lower-case hex as etcd does.
    MemberId
);

#[cfg(test)]
mod tests {
    use super::VolumeId;

    #[test]
    fn a_serial_names_a_volume_with_and_without_its_dash_and_nothing_else_does() {
        let long = VolumeId("vol-0123456789abcdef0".to_owned());
        assert_eq!(VolumeId::of_serial("vol0123456789abcdef0"), Some(long.clone()));
        assert_eq!(VolumeId::of_serial("vol-0123456789abcdef0"), Some(long));
        assert_eq!(VolumeId::of_serial("vol1a2b3c4d"), Some(VolumeId("vol-1a2b3c4d".to_owned())));
        for other in ["", "vol", "vol-", "AWS1A2B3C4D5E6F70809", "vol0123456789ABCDEF0", "vol0123", "vol--1a2b3c4d"] {
            assert_eq!(VolumeId::of_serial(other), None, "{other}");
        }
    }
}
