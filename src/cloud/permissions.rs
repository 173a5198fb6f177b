//! What the role of this instance may do, found out without doing it: EC2 answers a request with `DryRun` as it would without,
//! and does nothing.

use super::code::ApiError;
use super::ec2::Here;
use crate::model::VolumeId;
use std::future::Future;

/// What volhold asks for, from what it needs to what it can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// To find a volume by its tags, to format a new one, to know the witness.
    Read,
    /// To bring a volume here.
    Attach,
    /// To keep a volume's state before something risky.
    Snapshot,
    /// To write the witness.
    Tag,
}

impl Level {
    pub const ALL: [Level; 4] = [Level::Read, Level::Attach, Level::Snapshot, Level::Tag];

    /// As IAM calls it; of several actions the one that is probed.
    pub fn action(self) -> &'static str {
        match self {
            Level::Read => "ec2:DescribeVolumes",
            Level::Attach => "ec2:AttachVolume",
            Level::Snapshot => "ec2:CreateSnapshot",
            Level::Tag => "ec2:CreateTags",
        }
    }

    /// What is lost without it.
    pub fn carries(self) -> &'static str {
        match self {
            Level::Read => "finding volumes by tags, formatting new ones, reading what their tags remember",
            Level::Attach => "attaching the volume",
            Level::Snapshot => "snapshots before risky steps",
            Level::Tag => "keeping in tags what the volume held",
        }
    }
}

/// Asks with `DryRun`.
pub trait Permissions {
    /// `Ok`: it is permitted. `Code::Unauthorized`: it is not. Anything else: nobody knows.
    fn may(&self, here: &Here, volume: &VolumeId, level: Level) -> impl Future<Output = Result<(), ApiError>> + Send;
}
