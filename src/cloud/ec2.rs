//! EC2 in plain types: what volumes, attachments and instances are there, and what can be asked. The SDK stays behind
//! [`Ec2`]; everything that decides works on these.
//!
//! States are those of the EC2 API reference (`Volume`, `VolumeAttachment`, `InstanceState`). A word that is not known here
//! is kept as such: it is never taken for one that is.

use super::code::ApiError;
use crate::model::{Time, VolumeId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;

/// `i-0123456789abcdef0`
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub String);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which instance this is, by its own metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    pub instance: InstanceId,
    /// `eu-west-1a`
    pub zone: String,
    /// `eu-west-1`
    pub region: String,
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub id: VolumeId,
    pub state: VolumeState,
    pub zone: String,
    /// Bytes.
    pub size: u64,
    pub encrypted: bool,
    /// The snapshot that it was made from.
    pub snapshot: Option<String>,
    pub created: Option<Time>,
    /// May be attached to several instances at once (io1, io2).
    pub multi_attach: bool,
    /// Those that are over (`detached`) are left out.
    pub attachments: Vec<Attached>,
    pub tags: BTreeMap<String, String>,
}

#[cfg(test)]
impl Volume {
    /// One of 1 GiB that nobody has, with nothing special about it: what the tests start from.
    pub fn free<'a>(id: &str, tags: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Volume {
            id: VolumeId(id.to_owned()),
            state: VolumeState::Available,
            zone: "eu-west-1a".to_owned(),
            size: 1 << 30,
            encrypted: true,
            snapshot: None,
            created: Time::from_unix(1_800_000_000),
            multi_attach: false,
            attachments: Vec::new(),
            tags: tags.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        }
    }
}

/// `Volume.State`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeState {
    Creating,
    Available,
    InUse,
    Deleting,
    Deleted,
    Error,
    Other(String),
}

/// One attachment of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub instance: InstanceId,
    /// The name that was asked for, `/dev/sdf`. NVMe instances ignore it.
    pub device: Option<String>,
    pub state: AttachState,
    /// When it began, by EC2's clock.
    pub since: Option<Time>,
    pub delete_on_termination: bool,
}

/// `VolumeAttachment.State`, without `detached`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachState {
    Attaching,
    Attached,
    /// A detach was asked for, and the instance still uses the device.
    Busy,
    Detaching,
    Other(String),
}

impl fmt::Display for AttachState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttachState::Attaching => "attaching",
            AttachState::Attached => "attached",
            AttachState::Busy => "busy",
            AttachState::Detaching => "detaching",
            AttachState::Other(word) => word,
        })
    }
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    pub state: InstanceState,
    /// Device names of its block device mapping.
    pub devices: Vec<String>,
}

/// `InstanceState.Name`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceState {
    Pending,
    Running,
    Stopping,
    Stopped,
    ShuttingDown,
    Terminated,
    Other(String),
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InstanceState::Pending => "pending",
            InstanceState::Running => "running",
            InstanceState::Stopping => "stopping",
            InstanceState::Stopped => "stopped",
            InstanceState::ShuttingDown => "shutting-down",
            InstanceState::Terminated => "terminated",
            InstanceState::Other(word) => word,
        })
    }
}

/// Volumes that are asked for. Answers may hold more than was asked for, and are picked from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// By id, in any zone. One that does not exist is left out, and no error.
    Ids(BTreeSet<VolumeId>),
    /// Those of one zone that have one of these tag keys.
    TagKeys { zone: String, keys: BTreeSet<String> },
    /// Those of every zone that have this tag key, and this tag (name, value).
    Cluster { key: String, tag: (String, String) },
}

/// What was answered, and when by EC2's own clock (the `Date` of its answer).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub volumes: Vec<Volume>,
    pub at: Option<Time>,
}

/// The calls that are made: two that look, two that act. Detaching and deleting are not among them, nor is taking a tag away.
pub trait Ec2: Send + Sync + 'static {
    /// Instance metadata, version 2 only.
    fn here(&self) -> impl Future<Output = Result<Here, ApiError>> + Send;

    /// DescribeVolumes, all pages.
    fn volumes(&self, here: &Here, ask: &Ask) -> impl Future<Output = Result<Answer, ApiError>> + Send;

    /// DescribeInstances of one. `None`: EC2 knows no such instance (any more).
    fn instance(&self, here: &Here, id: &InstanceId)
    -> impl Future<Output = Result<Option<Instance>, ApiError>> + Send;

    /// AttachVolume to this instance. It is not idempotent, and its answer may be lost although it was done: whatever comes
    /// back, only a look says what is so.
    fn attach(&self, here: &Here, volume: &VolumeId, device: &str)
    -> impl Future<Output = Result<(), ApiError>> + Send;

    /// CreateTags on a volume: each is added, or gets this value. Idempotent.
    fn tag(
        &self,
        here: &Here,
        volume: &VolumeId,
        tags: &[(&'static str, String)],
    ) -> impl Future<Output = Result<(), ApiError>> + Send;
}
