//! Why something is held, refused or worth a warning: stable codes, each with one page in the manual.

use serde::{Deserialize, Serialize};

macro_rules! reason_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The stable codes of `contract.md`. Codes are added, never renamed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum ReasonCode {
            $($(#[$doc])* #[serde(rename = $text)] $name,)*
        }

        impl ReasonCode {
            /// Every code, in the order of the manual.
            pub const ALL: &'static [ReasonCode] = &[$(ReasonCode::$name,)*];

            /// The code as scripts and people write it.
            pub fn as_str(self) -> &'static str {
                match self { $(ReasonCode::$name => $text,)* }
            }
        }
    };
}

reason_codes! {
    BackupSuperblockFound = "backup-superblock-found",
    SignatureFound = "signature-found",
    EtcdDataFound = "etcd-data-found",
    UnknownData = "unknown-data",
    Unreadable = "unreadable",
    ShortRead = "short-read",
    TimedOut = "timed-out",
    ReaderFailed = "reader-failed",
    InUse = "in-use",
    IdentityMismatch = "identity-mismatch",
    SizeMismatch = "size-mismatch",
    ChangedUnderneath = "changed-underneath",
    HistorySaysUsed = "history-says-used",
    MadeFromSnapshot = "made-from-snapshot",
    PolicyForbidsFormat = "policy-forbids-format",
    MkfsFailed = "mkfs-failed",
    MountFailed = "mount-failed",
    FsckFailed = "fsck-failed",
    /// A directory that is to be published is not there, is none, or does not hold the data dir.
    NotPublishable = "not-publishable",
    MountpointNotEmpty = "mountpoint-not-empty",
    WrongVolume = "wrong-volume",
    EmptyBesideOld = "empty-beside-old",
    DataVanished = "data-vanished",
    WentBackwards = "went-backwards",
    OtherCluster = "other-cluster",
    OtherMember = "other-member",
    WalBehindBackend = "wal-behind-backend",
    BackendDamaged = "backend-damaged",
    WalDamaged = "wal-damaged",
    SnapshotDamaged = "snapshot-damaged",
    VersionSkip = "version-skip",
    VersionDowngrade = "version-downgrade",
    V2DataOnly = "v2-data-only",
    BlankReplacement = "blank-replacement",
    FreshForbidden = "fresh-forbidden",
    DirInUse = "dir-in-use",
    AlarmSet = "alarm-set",
    NoSpace = "no-space",
    VolumeNotFound = "volume-not-found",
    VolumeAmbiguous = "volume-ambiguous",
    VolumeElsewhere = "volume-elsewhere",
    AttachStuck = "attach-stuck",
    NoPermission = "no-permission",
    Throttled = "throttled",
    DeviceMissing = "device-missing",
    NotABlockDevice = "not-a-block-device",
    Partitioned = "partitioned",
    LedgerBroken = "ledger-broken",
    IntentUnfinished = "intent-unfinished",
    RestoredVolume = "restored-volume",
    WrongOwner = "wrong-owner",
    FilesystemFeatureUnknown = "filesystem-feature-unknown",
    DataDirAmbiguous = "data-dir-ambiguous",
    FilesystemReplaced = "filesystem-replaced",
    /// The same filesystem is mounted from another device: a copy, such as a volume made from a snapshot of it.
    FilesystemDuplicate = "filesystem-duplicate",
    /// A person let the claim go with `release`; the guard waits until the time is over or `retry` is typed.
    ReleasedByOperator = "released-by-operator",
    WitnessUnreachable = "witness-unreachable",
    IdentityChanged = "identity-changed",
    MigrationUnderWay = "migration-under-way",
    ConfigChanged = "config-changed",
    /// EC2 refuses to attach the volume, for a reason that does not pass by itself.
    AttachRefused = "attach-refused",
    /// The volume may be attached to several instances at once, or is.
    MultiAttach = "multi-attach",
    /// The provider, or the instance's metadata, does not answer.
    ProviderUnreachable = "provider-unreachable",
    /// The configuration requires a snapshot before a risky step, and it cannot be had.
    SnapshotRefused = "snapshot-refused",
    /// The volume is larger than its filesystem.
    VolumeEnlarged = "volume-enlarged",
    /// A container that needs the volume was started before it was mounted, and does not see it.
    MountUnseen = "mount-unseen",
    /// The etcd that is to run is of a release that loses data.
    KnownBadVersion = "known-bad-version",
    /// The provider deletes the volume together with this instance.
    DeletedWithInstance = "deleted-with-instance",
    /// A data dir that was not there when the gate opened, beside the one that was.
    SecondDataDir = "second-data-dir",
    /// An etcd works on files that are not in the data dir any more.
    DataReplaced = "data-replaced",
    /// By policy, what runs etcd was frozen or stopped.
    EtcdFrozen = "etcd-frozen",
    /// The volume of an open gate is unmounted, hidden by another mount, or replaced by one.
    MountLost = "mount-lost",
    /// The device of an open gate is gone.
    DeviceLost = "device-lost",
    /// The filesystem of an open gate takes no writes.
    FilesystemReadOnly = "filesystem-read-only",
    /// ext4 has met errors since it was last checked.
    FilesystemErrors = "filesystem-errors",
    /// A test write on the volume of an open gate failed.
    WriteFailed = "write-failed",
    /// A test write on the volume of an open gate does not come back.
    WriteStalled = "write-stalled",
}

impl std::fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One objection or remark: a stable code, one sentence for a person, and facts for a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub code: ReasonCode,
    /// What was found and where, in one sentence that stands alone.
    pub message: String,
    /// The facts behind the sentence: offsets, ids, paths.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<serde_json::Value>,
}

impl Reason {
    pub fn new(code: ReasonCode, message: impl Into<String>) -> Self {
        Reason { code, message: message.into(), detail: None }
    }

    pub fn with_detail(mut self, detail: serde_json::Value) -> Self {
        self.detail = Some(detail);
        self
    }

    /// The same, without the bytes of the device that a person with root is shown: what stands on a volume is nobody else's.
    pub fn for_everybody(&self) -> Reason {
        let mut reason = self.clone();
        let sample = reason.detail.as_mut().and_then(|detail| detail.get_mut("sample")?.as_object_mut());
        if let Some(serde_json::Value::String(hex)) = sample.and_then(|sample| sample.remove("hex"))
            && !hex.is_empty()
        {
            reason.message = reason.message.replace(&hex, "shown to root by `volhold explain`");
        }
        reason
    }
}
