//! EC2 in a build without the SDK (`--no-default-features`): every call says so. What needs no call works as with it.

use super::code::{ApiError, Code};
use super::ec2::{Answer, Ask, Ec2, Here, Instance, InstanceId};
use super::fleet::{Page, Pages};
use super::permissions::{Level, Permissions};
use super::snapshot::{Snapshot, Snapshots, Which};
use crate::model::VolumeId;

/// Nobody to ask.
#[derive(Debug, Default)]
pub struct Client {}

impl Client {
    fn none<T>(action: &'static str) -> Result<T, ApiError> {
        Err(ApiError { code: Code::NotBuilt, action, said: String::new() })
    }
}

impl Ec2 for Client {
    async fn here(&self) -> Result<Here, ApiError> {
        Client::none("metadata")
    }

    async fn volumes(&self, _here: &Here, _ask: &Ask) -> Result<Answer, ApiError> {
        Client::none("DescribeVolumes")
    }

    async fn instance(&self, _here: &Here, _id: &InstanceId) -> Result<Option<Instance>, ApiError> {
        Client::none("DescribeInstances")
    }

    async fn attach(&self, _here: &Here, _volume: &VolumeId, _device: &str) -> Result<(), ApiError> {
        Client::none("AttachVolume")
    }

    async fn tag(&self, _here: &Here, _volume: &VolumeId, _tags: &[(&'static str, String)]) -> Result<(), ApiError> {
        Client::none("CreateTags")
    }
}

impl Snapshots for Client {
    async fn create_snapshot(
        &self,
        _here: &Here,
        _volume: &VolumeId,
        _description: &str,
        _tags: &[(&'static str, String)],
    ) -> Result<Snapshot, ApiError> {
        Client::none("CreateSnapshot")
    }

    async fn snapshot(&self, _here: &Here, _which: &Which) -> Result<Option<Snapshot>, ApiError> {
        Client::none("DescribeSnapshots")
    }
}

impl Permissions for Client {
    async fn may(&self, _here: &Here, _volume: &VolumeId, _level: Level) -> Result<(), ApiError> {
        Client::none("DescribeVolumes")
    }
}

impl Pages for Client {
    async fn page(&self, _: Option<&str>, _: Option<&str>, _: Option<String>) -> Result<Page, ApiError> {
        Client::none("DescribeVolumes")
    }
}
