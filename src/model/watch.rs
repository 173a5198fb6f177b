//! What the watch over an open gate sees of a volume, apart from the data on it.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// All that was last seen. `None`: it could not be told, or was not looked at yet; never that all is well.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSight {
    pub mount: Option<MountSight>,
    pub device: Option<DeviceSight>,
    pub access: Option<AccessSight>,
    /// ext4's count of the errors that it has met (`/sys/fs/ext4/NAME/errors_count`), kept in the superblock until e2fsck
    /// clears it. Other filesystems keep none.
    pub filesystem_errors: Option<u64>,
    pub write: Option<WriteSight>,
    pub space: Option<SpaceSight>,
    pub etcd: Option<EtcdSight>,
}

/// What is seen at the places where the volume is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum MountSight {
    /// The volume, at each of them, down to the data dir.
    InPlace,
    /// Nothing of it at this one.
    Gone { at: PathBuf },
    /// It is mounted, and something else lies over it, or over the data dir on it.
    Shadowed { at: PathBuf, by: String },
    /// Something else is mounted in its place.
    Replaced { at: PathBuf, by: String },
}

/// The block device under the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum DeviceSight {
    Present,
    /// The kernel has no such device any more.
    Gone,
    /// It is listed and has no size: pulled, or cut off by whoever provides it.
    Empty,
    /// Another device has its number by now.
    Another,
}

/// Whether the kernel would let anybody write, by what it says itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum AccessSight {
    Writable,
    /// `says`: the option in the mount table that says so.
    ReadOnly {
        says: String,
    },
}

/// What came of the last test write with fsync in `.volhold`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum WriteSight {
    Done,
    /// Refused because the filesystem is read-only (EROFS), whatever the mount table says.
    ReadOnly,
    /// No room for it (ENOSPC, EDQUOT).
    NoRoom,
    Failed {
        error: String,
    },
    /// It has not come back; no other one is begun before it has.
    Stalled,
}

/// Has the filesystem room for etcd's next file?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum SpaceSight {
    Enough,
    /// Bytes have run out.
    Full,
    /// Bytes are left, and no inodes.
    NoInodes,
}

/// The etcds that hold a lock on files of this volume, as a running etcd does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum EtcdSight {
    NotRunning,
    /// On the data dir of the open gate.
    Running {
        pids: Vec<u32>,
    },
    /// On another dir of this volume, and none on the gate's.
    Elsewhere {
        pids: Vec<u32>,
    },
}
