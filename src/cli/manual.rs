//! The manual: one page for each reason code, for a tired person at night.
//!
//! A page says what was found, what that means, what would have happened without the guard, what to look at, and what can
//! be chosen, safest first. Formatting is never among the choices: who wants to discard a volume creates a new one.
//! `explain` prints the page of what holds a guard; `explain --reason CODE` prints any.

/// What other tools do not see.
pub mod blind_spots;
mod bytes;
mod data;
/// What only EC2 says.
mod ebs;
pub mod etcd;
mod filesystem;
/// Healthy lives, and the holds on their way.
pub mod lives;
mod run_time;
/// About volhold as a whole.
pub mod topics;
mod volume;
/// What is seen of the volume under an open gate.
mod watched;

use crate::model::ReasonCode;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Told without holding.
    Information,
    /// Held or delayed, and no data is in danger.
    Trouble,
    /// Data is in danger, or would have been.
    Critical,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Severity::Information => "information",
            Severity::Trouble => "trouble",
            Severity::Critical => "critical: data is at stake",
        }
    }
}

/// The page of one reason code. Texts may hold placeholders, see [`Names`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub severity: Severity,
    /// Completes the sentence "NAME is HELD: …".
    pub cause: &'static str,
    /// What was found.
    pub found: &'static str,
    /// What it means.
    pub means: &'static str,
    /// What would have happened without the guard.
    pub without: &'static str,
    /// What to look at before choosing.
    pub check: &'static [&'static str],
    /// What can be done, safest first.
    pub choices: &'static [Choice],
}

/// One thing that a person can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Exactly what to type.
    pub command: &'static str,
    pub effect: &'static str,
    /// It changes nothing that cannot be taken back.
    pub safe: bool,
}

/// What the placeholders of a page stand for. Unknown ones stay as a word in capitals, so that a command that cannot be
/// completed does not run by accident.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// `{name}`: the guard.
    pub guard: Option<String>,
    /// `{device}`: its canonical node.
    pub device: Option<String>,
    /// `{volume}`: the volume id, also what `{copy}` is made of.
    pub volume: Option<String>,
    /// `{publish}`: where the volume is or would be mounted.
    pub publish: Option<String>,
    /// `{dir}`: the data dir that etcd would use, below `publish`.
    pub dir: Option<String>,
    /// `{member}`: the etcd member id that records or data name.
    pub member: Option<String>,
}

impl Names {
    /// A text with its placeholders filled in.
    pub fn fill(&self, text: &str) -> String {
        let or = |value: &Option<String>, word: &str| value.clone().unwrap_or_else(|| word.to_owned());
        text.replace("{copy}", &self.copy_command())
            .replace("{name}", &or(&self.guard, "NAME"))
            .replace("{device}", &or(&self.device, "DEVICE"))
            .replace("{volume}", &or(&self.volume, "VOLUME"))
            .replace("{publish}", &or(&self.publish, "MOUNTPOINT"))
            .replace("{dir}", &or(&self.dir, "DATA-DIR"))
            .replace("{member}", &or(&self.member, "MEMBER-ID"))
    }

    /// A command for EC2 is of no use for a volume that is none of EC2's.
    pub fn fits(&self, command: &str) -> bool {
        let ebs = self.volume.as_ref().is_none_or(|id| id.starts_with("vol-"));
        ebs || !command.starts_with("aws ")
    }

    /// How to get a copy of the whole volume: a snapshot where it is an EBS volume, a file elsewhere.
    fn copy_command(&self) -> String {
        match &self.volume {
            Some(id) if id.starts_with("vol-") => "aws ec2 create-snapshot --volume-id {volume}".to_owned(),
            Some(_) | None => "dd if={device} of=/elsewhere/{name}.img bs=1M conv=noerror,sync".to_owned(),
        }
    }
}

/// By which the journal knows a message about this code: 128 bits in hexadecimal, as sd-id128(3) has them, and the same for
/// ever. Made of the code's name, so that no list of numbers has to be kept.
pub fn message_id(code: ReasonCode) -> String {
    let digest = Sha256::digest(format!("volhold reason {code}"));
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The page of a code. Exhaustive, so that a new code does not build without one.
pub fn page(code: ReasonCode) -> &'static Page {
    match code {
        ReasonCode::BackupSuperblockFound => &bytes::BACKUP_SUPERBLOCK_FOUND,
        ReasonCode::SignatureFound => &bytes::SIGNATURE_FOUND,
        ReasonCode::EtcdDataFound => &bytes::ETCD_DATA_FOUND,
        ReasonCode::UnknownData => &bytes::UNKNOWN_DATA,
        ReasonCode::Unreadable => &bytes::UNREADABLE,
        ReasonCode::ShortRead => &bytes::SHORT_READ,
        ReasonCode::TimedOut => &bytes::TIMED_OUT,
        ReasonCode::ReaderFailed => &bytes::READER_FAILED,
        ReasonCode::ChangedUnderneath => &bytes::CHANGED_UNDERNEATH,
        ReasonCode::HistorySaysUsed => &bytes::HISTORY_SAYS_USED,
        ReasonCode::MadeFromSnapshot => &bytes::MADE_FROM_SNAPSHOT,
        ReasonCode::PolicyForbidsFormat => &bytes::POLICY_FORBIDS_FORMAT,
        ReasonCode::Partitioned => &bytes::PARTITIONED,
        ReasonCode::MkfsFailed => &filesystem::MKFS_FAILED,
        ReasonCode::MountFailed => &filesystem::MOUNT_FAILED,
        ReasonCode::FsckFailed => &filesystem::FSCK_FAILED,
        ReasonCode::NotPublishable => &filesystem::NOT_PUBLISHABLE,
        ReasonCode::MountpointNotEmpty => &filesystem::MOUNTPOINT_NOT_EMPTY,
        ReasonCode::WrongVolume => &filesystem::WRONG_VOLUME,
        ReasonCode::FilesystemFeatureUnknown => &filesystem::FILESYSTEM_FEATURE_UNKNOWN,
        ReasonCode::FilesystemReplaced => &filesystem::FILESYSTEM_REPLACED,
        ReasonCode::NoSpace => &filesystem::NO_SPACE,
        ReasonCode::WrongOwner => &filesystem::WRONG_OWNER,
        ReasonCode::LedgerBroken => &filesystem::LEDGER_BROKEN,
        ReasonCode::IntentUnfinished => &filesystem::INTENT_UNFINISHED,
        ReasonCode::EmptyBesideOld => &data::EMPTY_BESIDE_OLD,
        ReasonCode::DataVanished => &data::DATA_VANISHED,
        ReasonCode::WentBackwards => &data::WENT_BACKWARDS,
        ReasonCode::OtherCluster => &data::OTHER_CLUSTER,
        ReasonCode::OtherMember => &data::OTHER_MEMBER,
        ReasonCode::WalBehindBackend => &data::WAL_BEHIND_BACKEND,
        ReasonCode::BackendDamaged => &data::BACKEND_DAMAGED,
        ReasonCode::WalDamaged => &data::WAL_DAMAGED,
        ReasonCode::SnapshotDamaged => &data::SNAPSHOT_DAMAGED,
        ReasonCode::VersionSkip => &data::VERSION_SKIP,
        ReasonCode::VersionDowngrade => &data::VERSION_DOWNGRADE,
        ReasonCode::V2DataOnly => &data::V2_DATA_ONLY,
        ReasonCode::KnownBadVersion => &data::KNOWN_BAD_VERSION,
        ReasonCode::BlankReplacement => &data::BLANK_REPLACEMENT,
        ReasonCode::FreshForbidden => &data::FRESH_FORBIDDEN,
        ReasonCode::DirInUse => &data::DIR_IN_USE,
        ReasonCode::AlarmSet => &data::ALARM_SET,
        ReasonCode::FilesystemDuplicate => &filesystem::FILESYSTEM_DUPLICATE,
        ReasonCode::DataDirAmbiguous => &data::DATA_DIR_AMBIGUOUS,
        ReasonCode::IdentityChanged => &data::IDENTITY_CHANGED,
        ReasonCode::MigrationUnderWay => &data::MIGRATION_UNDER_WAY,
        ReasonCode::InUse => &volume::IN_USE,
        ReasonCode::IdentityMismatch => &volume::IDENTITY_MISMATCH,
        ReasonCode::SizeMismatch => &volume::SIZE_MISMATCH,
        ReasonCode::VolumeNotFound => &volume::VOLUME_NOT_FOUND,
        ReasonCode::VolumeAmbiguous => &volume::VOLUME_AMBIGUOUS,
        ReasonCode::VolumeElsewhere => &volume::VOLUME_ELSEWHERE,
        ReasonCode::AttachStuck => &volume::ATTACH_STUCK,
        ReasonCode::NoPermission => &volume::NO_PERMISSION,
        ReasonCode::Throttled => &volume::THROTTLED,
        ReasonCode::DeviceMissing => &volume::DEVICE_MISSING,
        ReasonCode::NotABlockDevice => &volume::NOT_A_BLOCK_DEVICE,
        ReasonCode::RestoredVolume => &volume::RESTORED_VOLUME,
        ReasonCode::ReleasedByOperator => &volume::RELEASED_BY_OPERATOR,
        ReasonCode::WitnessUnreachable => &volume::WITNESS_UNREACHABLE,
        ReasonCode::ConfigChanged => &volume::CONFIG_CHANGED,
        ReasonCode::AttachRefused => &ebs::ATTACH_REFUSED,
        ReasonCode::MultiAttach => &ebs::MULTI_ATTACH,
        ReasonCode::ProviderUnreachable => &ebs::PROVIDER_UNREACHABLE,
        ReasonCode::SnapshotRefused => &ebs::SNAPSHOT_REFUSED,
        ReasonCode::VolumeEnlarged => &ebs::VOLUME_ENLARGED,
        ReasonCode::MountUnseen => &ebs::MOUNT_UNSEEN,
        ReasonCode::DeletedWithInstance => &ebs::DELETED_WITH_INSTANCE,
        ReasonCode::SecondDataDir => &run_time::SECOND_DATA_DIR,
        ReasonCode::DataReplaced => &run_time::DATA_REPLACED,
        ReasonCode::EtcdFrozen => &run_time::ETCD_FROZEN,
        ReasonCode::MountLost => &watched::MOUNT_LOST,
        ReasonCode::DeviceLost => &watched::DEVICE_LOST,
        ReasonCode::FilesystemReadOnly => &watched::FILESYSTEM_READ_ONLY,
        ReasonCode::FilesystemErrors => &watched::FILESYSTEM_ERRORS,
        ReasonCode::WriteFailed => &watched::WRITE_FAILED,
        ReasonCode::WriteStalled => &watched::WRITE_STALLED,
    }
}

/// Is `adopt` an answer to a hold for this reason? Where it is none, its page does not name it.
pub fn adopt_answers(code: ReasonCode) -> bool {
    page(code).choices.iter().any(|c| c.command.contains("volhold adopt") || c.effect.contains("volhold adopt"))
}

/// Choices that many pages share, word for word.
const COPY: Choice = Choice {
    command: "{copy}",
    effect: "A copy of the volume as it is now. Do this first: nothing below can then lose anything.",
    safe: true,
};
const RETRY: Choice = Choice {
    command: "volhold retry {name}",
    effect: "Examines the volume again, after you have changed what was wrong.",
    safe: true,
};
const RELEASE: Choice = Choice {
    command: "volhold release {name} --for 1h",
    effect: "Lets your own tools open {device}. While it is let go, anything else on this machine can take it too.",
    safe: false,
};
const ADOPT: Choice = Choice {
    command: "volhold adopt {name}",
    effect: "Says that what is there now is right, and pins it. Only after you know why it differs.",
    safe: false,
};
const REJOIN: Choice = Choice {
    command: "volhold adopt {name} --replacement",
    effect: "This member starts empty and rejoins. First, on a healthy peer: etcdctl member remove {member}, then member \
             add. Only while a majority of the other members is healthy.",
    safe: false,
};
/// For a dir that is damaged or too old: it has to go out of the way first, and what is out of the way is kept.
const ASIDE: Choice = Choice {
    command: "volhold quarantine {name} DATA-DIR",
    effect: "To rejoin empty: renames the data dir (as `explain` names it) out of the way, on the same volume, and deletes \
             nothing; then volhold adopt {name} --replacement. On a healthy peer first: etcdctl member remove {member}, then \
             member add.",
    safe: false,
};
const NEW_CLUSTER: Choice = Choice {
    command: "volhold adopt {name} --new-cluster",
    effect: "A new, empty cluster starts here. Everything that the old one knew is gone for whoever uses this etcd.",
    safe: false,
};

#[cfg(test)]
mod tests;
