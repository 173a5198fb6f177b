//! What the kernel says about a block device.

use super::{DevNum, VolumeId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// How the device is named in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSpec {
    /// A node or a link to one, or a regular file (an image, attached to a loop device in enforce mode).
    Path(PathBuf),
    Uuid(String),
    Label(String),
    /// Provider `ebs`: a volume of EC2, wherever it is.
    Ebs(EbsSpec),
}

/// How a volume of EC2 is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EbsSpec {
    /// `volume_id`
    Id(VolumeId),
    /// `volume_tags`: the one volume of this zone that has all of them. Never empty.
    Tags(Vec<TagSpec>),
}

/// A tag that a volume must have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TagSpec {
    pub key: String,
    /// `None`: with any value.
    pub value: Option<String>,
}

impl fmt::Display for TagSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.key),
            None => f.write_str(&self.key),
        }
    }
}

impl DeviceSpec {
    /// The name in words, as far as it is one: for messages.
    pub fn words(&self) -> String {
        match self {
            DeviceSpec::Path(path) => path.display().to_string(),
            DeviceSpec::Uuid(uuid) => format!("UUID={uuid}"),
            DeviceSpec::Label(label) => format!("LABEL={label}"),
            DeviceSpec::Ebs(EbsSpec::Id(id)) => id.to_string(),
            DeviceSpec::Ebs(EbsSpec::Tags(tags)) => {
                let tags: Vec<String> = tags.iter().map(TagSpec::to_string).collect();
                format!("the volume with {}", tags.join(" and "))
            }
        }
    }

    /// What a volume is called in records as long as nothing was seen of it but this name.
    pub fn unseen_id(&self) -> VolumeId {
        match self {
            DeviceSpec::Ebs(EbsSpec::Id(id)) => id.clone(),
            DeviceSpec::Ebs(EbsSpec::Tags(_)) => VolumeId("ebs:not-selected-yet".to_owned()),
            DeviceSpec::Path(_) | DeviceSpec::Uuid(_) | DeviceSpec::Label(_) => {
                VolumeId(format!("local:{}", self.words()))
            }
        }
    }
}

/// The facts of one opened device, read from the opened descriptor and from sysfs by its device number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The configured name (path, link, `UUID=`…) that led here.
    pub requested: String,
    /// The canonical node, `/dev/nvme1n1`.
    pub node: String,
    pub devnum: DevNum,
    /// Bytes, by `BLKGETSIZE64`.
    pub size: u64,
    /// Bytes, by `BLKSSZGET`.
    pub logical_block: u32,
    /// `BLKROGET`.
    pub read_only: bool,
    /// Not a partition of another disk.
    pub whole_disk: bool,
    /// Serial as sysfs has it, trimmed; EBS: `vol0123456789abcdef0`.
    pub serial: Option<String>,
    /// Monotonic number of this attachment, `/sys/block/X/diskseq` (kernel 5.15).
    pub diskseq: Option<u64>,
    /// For a loop device, the file under it.
    pub backing_file: Option<String>,
    /// What this volume is called in every record.
    pub volume_id: VolumeId,
    /// Who else has it.
    pub uses: Vec<DeviceUse>,
}

impl DeviceFacts {
    /// Where it is mounted, as its uses say.
    pub fn mounted_at(&self) -> impl Iterator<Item = &str> {
        self.uses.iter().filter_map(|device_use| match device_use {
            DeviceUse::Mount { at } => Some(at.as_str()),
            DeviceUse::Swap
            | DeviceUse::Holder { .. }
            | DeviceUse::LoopOnTop { .. }
            | DeviceUse::Partition { .. }
            | DeviceUse::Exclusive => None,
        })
    }
}

/// Something that uses a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "use")]
pub enum DeviceUse {
    /// Mounted in our or in PID 1's mount namespace.
    Mount {
        at: String,
    },
    Swap,
    /// dm, md, bcache: `/sys/block/X/holders`.
    Holder {
        name: String,
    },
    /// A loop device whose backing file is this device.
    LoopOnTop {
        name: String,
    },
    /// A partition of it exists, `/sys/block/X/X*`.
    Partition {
        name: String,
    },
    /// `O_EXCL` says busy and nothing of the above explains it (another mount namespace, another claim).
    Exclusive,
}
