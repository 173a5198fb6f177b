//! Everything that bears on the question "may this device be formatted?", one field for each independent source.

use super::{DeviceFacts, FsUuid, Observed, VolumeId};
use serde::{Deserialize, Serialize};

/// The whole input of `decide::format::may_format` besides the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatEvidence {
    /// The opened device: whole, writable, claimed by us, with nothing on top.
    pub device: Observed<DeviceFacts>,
    /// The claim (`O_RDONLY|O_EXCL`) is ours at this moment.
    pub claim: Observed<Claim>,
    /// Does it carry the serial and the size that the provider named?
    pub identity: Observed<Identity>,
    /// libblkid, safeprobe and do_probe loop, partitions on.
    pub libblkid: Observed<BlkidAnswer>,
    /// The full content scan.
    pub content: Observed<Content>,
    /// Where the provider says the volume comes from.
    pub origin: Observed<Origin>,
    /// What ledger, witness and pins remember of this volume id.
    pub history: Observed<FormatHistory>,
    /// The telling regions, read again under the device's lock.
    pub second_reading: Observed<SecondReading>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    Ours,
    Refused,
}

/// The device against what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "identity")]
pub enum Identity {
    /// Serial and size agree with the provider, or (`local`) the configured path led to exactly this device.
    Matches,
    OtherSerial {
        asked: VolumeId,
        found: String,
    },
    OtherSize {
        provider: u64,
        kernel: u64,
    },
}

/// What libblkid's low-level probe answered, codes unfolded: which code means what changed in 2.39.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlkidAnswer {
    /// `blkid_do_safeprobe`: 0 found, 1 nothing, anything else is a refusal.
    pub safeprobe: i32,
    /// First code that ended the `blkid_do_probe` loop: 1 nothing (more), negative an error.
    pub probe_loop: i32,
    /// What either named.
    pub named: Vec<BlkidName>,
    /// `blkid_get_library_version`.
    pub version: String,
}

impl BlkidAnswer {
    /// Exactly "nothing", from both ways of asking.
    pub fn says_nothing(&self) -> bool {
        self.safeprobe == 1 && self.probe_loop == 1 && self.named.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlkidName {
    /// `TYPE` or `PTTYPE`.
    pub kind: String,
    pub usage: Option<String>,
    pub uuid: Option<String>,
    pub label: Option<String>,
    pub offset: Option<u64>,
    /// `SBBADCSUM`: the superblock's checksum is off.
    pub bad_checksum: bool,
}

/// What the bytes are, over the whole device or (`complete == false`) up to where the scan could stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    pub class: ContentClass,
    /// Every byte of `[0, size)` was read without error.
    pub complete: bool,
    pub bytes_read: u64,
    /// Reads that failed, came short or timed out.
    pub read_errors: u64,
    /// First block that is neither zero nor uniform (or, in `uniform` content, first non-zero one).
    pub first_other: Option<u64>,
    /// What stands in that block.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sample: Option<BlockSample>,
    /// Signatures found, in order of offset; at most some hundred.
    pub findings: Vec<Finding>,
    /// SHA-256 over the telling regions of the first reading, hex.
    pub telling_digest: String,
    pub size_before: u64,
    pub size_after: u64,
}

/// A look at one block for the eyes of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSample {
    /// Byte of the device at which the line begins: that of the first byte that is not zero, rounded down to 16.
    pub offset: u64,
    /// Shannon entropy of the block in thousandths of a bit for each byte: 0 for one value only, 8000 at most.
    pub entropy: u32,
    /// Sixteen bytes, as `xxd` shows them.
    pub hex: String,
}

impl std::fmt::Display for BlockSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bits = f64::from(self.entropy) / 1000.0;
        write!(f, "{bits:.1} bits of entropy in a byte, {:08x}: {}", self.offset, self.hex)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContentClass {
    /// Every 4 KiB block is zero.
    Zero,
    /// Every block is zero or indistinguishable from random, and at least one is random: a fresh encrypted volume reads so.
    Uniform,
    /// Something was written.
    Other,
}

/// One signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub kind: FindingKind,
    pub offset: u64,
    pub validated: Validated,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
}

/// What a finding is. `Named` carries libblkid's word for the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    ExtSuperblock,
    ExtBackupSuperblock,
    XfsSuperblock,
    XfsAgHeader,
    GptHeader,
    GptBackupHeader,
    BoltMeta,
    EtcdWal,
    /// A block of the journal of ext3, ext4 or ocfs2.
    ExtJournal,
    /// A block of a directory of ext2, ext3 or ext4, with names that say nothing of etcd.
    ExtDirectory,
    /// A record of XFS' log.
    XfsLog,
    /// A directory that etcd filled.
    EtcdDirectory,
    /// A leaf page of a bolt file whose keys are revisions.
    BoltLeaf,
    EtcdSnap,
    EtcdV2Store,
    /// A key of Kubernetes.
    EtcdKeys,
    Named(String),
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Validated {
    /// A few bytes only: random data hits these.
    Magic,
    /// Several fields agree with each other and with the offset.
    Structure,
    Checksum,
}

/// Where the provider says the volume comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "origin")]
pub enum Origin {
    /// The local provider knows nothing: zero content is blank, uniform content is not.
    NoProvider,
    Provider {
        encrypted: bool,
        from_snapshot: Option<String>,
        /// Created within the policy's `fresh_within`, by the provider's clock.
        young: bool,
    },
}

/// What memory says about this volume id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "history")]
pub enum FormatHistory {
    /// No ledger, no witness, no pin names it.
    None,
    /// Somebody remembers a filesystem or data on it.
    Used { says: String },
    /// An mkfs was begun and its end was not recorded. `same_attachment`: boot id and diskseq are those of the intent.
    UnfinishedIntent { fs_uuid: FsUuid, same_attachment: bool },
    /// The ledger itself cannot be trusted.
    Broken { detail: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "second")]
pub enum SecondReading {
    Same,
    Changed { detail: String },
}

/// What a device report says about blankness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blank {
    Proven,
    No,
    Unknown,
}

/// The policy of the format decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FormatPolicy {
    Never,
    IfBlank,
}

/// Is a snapshot taken before a risky step?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotPolicy {
    Off,
    /// Where it can be had.
    BestEffort,
    /// Else the step is not taken.
    Required,
}

impl SnapshotPolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            SnapshotPolicy::Off => "off",
            SnapshotPolicy::BestEffort => "best-effort",
            SnapshotPolicy::Required => "required",
        }
    }
}

/// The filesystems that volhold makes, mounts and publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fstype {
    Ext4,
    Xfs,
}

impl Fstype {
    /// As the kernel, libblkid and configurations call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Fstype::Ext4 => "ext4",
            Fstype::Xfs => "xfs",
        }
    }
}

impl std::fmt::Display for Fstype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A filesystem as its own primary superblock describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemFacts {
    /// `ext4`, `xfs`, …
    pub fstype: String,
    pub uuid: Option<FsUuid>,
    pub label: Option<String>,
    /// When mkfs ran, where the superblock says (ext4 `s_mkfs_time`).
    pub made_at: Option<super::Time>,
    /// Where it was last mounted (ext4 `s_last_mounted`).
    pub last_mounted: Option<String>,
    /// Feature bits that this version of volhold has no name for, e.g. `incompat 0x40000000`.
    pub unknown_features: Vec<String>,
    /// Unmounted cleanly and without errors, as far as the superblock says. `None`: it does not say (XFS: only the log
    /// knows, which a mount replays); a wrong answer is never guessed.
    pub clean: Option<bool>,
}

/// All that one examination of a device, as bytes, yields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReading {
    pub libblkid: Observed<BlkidAnswer>,
    pub content: Observed<Content>,
    /// A filesystem whose primary superblock stands and validates.
    pub filesystem: Option<FilesystemFacts>,
}
