//! Reasons in a few words that alerts can name, so that a new reason finds its alert by itself.

use crate::model::ReasonCode;

/// A group of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Open, and nothing speaks against it.
    Ok,
    /// No verdict yet.
    Wait,
    /// The volume is not here, or which one is meant cannot be told.
    WaitAttach,
    /// It does not mount or carries no filesystem that is known, and is not proven blank.
    RefuseFormat,
    /// Another volume, filesystem, cluster or member than expected.
    IdentityMismatch,
    /// Several data dirs, and nobody says which.
    AmbiguousDirs,
    /// Data that must be there is not, or less of it.
    DataMissing,
    /// etcd would not start on the data, or would lose some.
    DataDamaged,
    /// The etcd that is about to run does not fit the data.
    Version,
    /// Filesystem, mount or mountpoint.
    Filesystem,
    /// Somebody else has it.
    InUse,
    /// Reading failed or took too long.
    IoError,
    NoPermission,
    /// A person has asked for it.
    Operator,
    /// What is told and holds nothing.
    Notice,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: &'static [Verdict] = &[
        Verdict::Ok,
        Verdict::Wait,
        Verdict::WaitAttach,
        Verdict::RefuseFormat,
        Verdict::IdentityMismatch,
        Verdict::AmbiguousDirs,
        Verdict::DataMissing,
        Verdict::DataDamaged,
        Verdict::Version,
        Verdict::Filesystem,
        Verdict::InUse,
        Verdict::IoError,
        Verdict::NoPermission,
        Verdict::Operator,
        Verdict::Notice,
    ];

    /// The value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Wait => "wait",
            Verdict::WaitAttach => "wait_attach",
            Verdict::RefuseFormat => "refuse_format",
            Verdict::IdentityMismatch => "identity_mismatch",
            Verdict::AmbiguousDirs => "ambiguous_dirs",
            Verdict::DataMissing => "data_missing",
            Verdict::DataDamaged => "data_damaged",
            Verdict::Version => "version",
            Verdict::Filesystem => "filesystem",
            Verdict::InUse => "in_use",
            Verdict::IoError => "io_error",
            Verdict::NoPermission => "no_permission",
            Verdict::Operator => "operator",
            Verdict::Notice => "notice",
        }
    }

    /// The group of a reason. Without a catch-all: whoever adds a reason decides here which alert it raises.
    pub fn of(code: ReasonCode) -> Self {
        use ReasonCode as Code;
        match code {
            Code::BackupSuperblockFound
            | Code::SignatureFound
            | Code::EtcdDataFound
            | Code::UnknownData
            | Code::ChangedUnderneath
            | Code::HistorySaysUsed
            | Code::MadeFromSnapshot
            | Code::PolicyForbidsFormat
            | Code::Partitioned
            | Code::IntentUnfinished => Verdict::RefuseFormat,
            Code::Unreadable
            | Code::ShortRead
            | Code::TimedOut
            | Code::ReaderFailed
            | Code::DeviceLost
            | Code::WriteFailed
            | Code::WriteStalled => Verdict::IoError,
            Code::InUse | Code::DirInUse => Verdict::InUse,
            Code::IdentityMismatch
            | Code::SizeMismatch
            | Code::WrongVolume
            | Code::OtherCluster
            | Code::OtherMember
            | Code::RestoredVolume
            | Code::FilesystemReplaced
            | Code::FilesystemDuplicate => Verdict::IdentityMismatch,
            Code::DataDirAmbiguous | Code::SecondDataDir => Verdict::AmbiguousDirs,
            Code::EmptyBesideOld
            | Code::DataVanished
            | Code::DataReplaced
            | Code::WentBackwards
            | Code::BlankReplacement
            | Code::FreshForbidden => Verdict::DataMissing,
            Code::WalBehindBackend
            | Code::BackendDamaged
            | Code::WalDamaged
            | Code::SnapshotDamaged
            | Code::AlarmSet
            | Code::LedgerBroken => Verdict::DataDamaged,
            Code::VersionSkip | Code::VersionDowngrade | Code::V2DataOnly | Code::KnownBadVersion => Verdict::Version,
            Code::MkfsFailed
            | Code::MountFailed
            | Code::FsckFailed
            | Code::MountpointNotEmpty
            | Code::NoSpace
            | Code::WrongOwner
            | Code::NotPublishable
            | Code::SnapshotRefused
            | Code::MountLost
            | Code::FilesystemReadOnly
            | Code::FilesystemFeatureUnknown => Verdict::Filesystem,
            Code::VolumeNotFound
            | Code::VolumeAmbiguous
            | Code::VolumeElsewhere
            | Code::AttachStuck
            | Code::Throttled
            | Code::DeviceMissing
            | Code::AttachRefused
            | Code::MultiAttach
            | Code::ProviderUnreachable
            | Code::NotABlockDevice => Verdict::WaitAttach,
            Code::NoPermission => Verdict::NoPermission,
            Code::ReleasedByOperator => Verdict::Operator,
            Code::WitnessUnreachable
            | Code::IdentityChanged
            | Code::MigrationUnderWay
            | Code::ConfigChanged
            | Code::VolumeEnlarged
            | Code::MountUnseen
            | Code::EtcdFrozen
            | Code::FilesystemErrors
            | Code::DeletedWithInstance => Verdict::Notice,
        }
    }
}
