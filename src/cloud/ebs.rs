//! EC2 and the instance metadata service through the AWS SDK: the only file that knows it. It translates, and decides
//! nothing.
//!
//! Region, zone and instance come from metadata version 2 (the SDK's client knows no other; a hop limit of 1 is enough),
//! credentials from the SDK's standard chain. `AWS_ENDPOINT_URL` and `AWS_EC2_METADATA_SERVICE_ENDPOINT` lead elsewhere in
//! tests; the unit takes them away.
//!
//! The SDK does not retry here: [`backoff`](super::backoff) is the one place that says when EC2 is asked again.
//!
//! Errors are told by EC2's code and message, or by the `Display` of each cause: the `Debug` of an SDK error holds whole
//! requests and answers.

use super::code::{ApiError, Code};
use super::ec2::{
    Answer, Ask, AttachState, Attached, Ec2, Here, Instance, InstanceId, InstanceState, Volume, VolumeState,
};
use super::fleet::{Page, Pages};
use super::kops;
use super::permissions::{Level, Permissions};
use super::snapshot::{ATTEMPT, Snapshot, SnapshotState, Snapshots, Which};
use crate::model::{Time, VolumeId};
use aws_config::imds;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_ec2::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::{BoxError, ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::types::{self, Filter};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::OnceCell;

/// Per call of EC2.
const CONNECT: Duration = Duration::from_secs(3);
const CALL: Duration = Duration::from_secs(10);
/// The metadata service is on the machine itself.
const METADATA: Duration = Duration::from_secs(1);
const METADATA_TRIES: u32 = 3;
/// A page of DescribeVolumes, and how many of them at most: a zone with more matching volumes is no answer.
const PAGE: i32 = 500;
const MOST_PAGES: usize = 200;
/// Longest part of EC2's own words that is kept.
const MOST_SAID: usize = 300;
const GIB: u64 = 1 << 30;

/// The SDK's clients, made when they are first needed.
#[derive(Debug, Default)]
pub struct Client {
    ec2: OnceCell<aws_sdk_ec2::Client>,
    date: Date,
}

/// Unix seconds of the last answer's `Date`; 0 while there was none.
#[derive(Debug, Clone, Default)]
struct Date(Arc<AtomicI64>);

impl Intercept for Date {
    fn name(&self) -> &'static str {
        "Date"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let parsed = date.and_then(|date| jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok());
        self.0.store(parsed.map_or(0, |date| date.as_second()), Ordering::Relaxed);
        Ok(())
    }
}

impl Date {
    fn last(&self) -> Option<Time> {
        Some(self.0.load(Ordering::Relaxed)).filter(|seconds| *seconds > 0).and_then(Time::from_unix)
    }
}

impl Client {
    async fn ec2(&self, here: &Here) -> &aws_sdk_ec2::Client {
        self.ec2_of(Some(&here.region)).await
    }

    /// `region`: `None` is that of the SDK's own chain: environment, profile, metadata.
    async fn ec2_of(&self, region: Option<&str>) -> &aws_sdk_ec2::Client {
        self.ec2
            .get_or_init(|| async {
                let timeouts = TimeoutConfig::builder()
                    .connect_timeout(CONNECT)
                    .operation_attempt_timeout(CALL)
                    .operation_timeout(CALL)
                    .build();
                let mut chain = aws_config::defaults(BehaviorVersion::v2026_01_12())
                    .timeout_config(timeouts)
                    .retry_config(RetryConfig::disabled());
                if let Some(region) = region {
                    chain = chain.region(Region::new(region.to_owned()));
                }
                let config = chain.load().await;
                let config = aws_sdk_ec2::config::Builder::from(&config).interceptor(self.date.clone()).build();
                aws_sdk_ec2::Client::from_conf(config)
            })
            .await
    }
}

impl Ec2 for Client {
    async fn here(&self) -> Result<Here, ApiError> {
        let client = imds::Client::builder()
            .max_attempts(METADATA_TRIES)
            .connect_timeout(METADATA)
            .read_timeout(METADATA)
            .build();
        let get = async |path: &str| {
            let answer = client.get(path).await;
            answer.map(|text| text.as_ref().to_owned()).map_err(|error| ApiError {
                code: Code::NoMetadata,
                action: "metadata",
                said: chain(&error),
            })
        };
        Ok(Here {
            instance: InstanceId(get("/latest/meta-data/instance-id").await?),
            zone: get("/latest/meta-data/placement/availability-zone").await?,
            region: get("/latest/meta-data/placement/region").await?,
        })
    }

    async fn volumes(&self, here: &Here, ask: &Ask) -> Result<Answer, ApiError> {
        let filter = |name: &str, values: Vec<String>| Filter::builder().name(name).set_values(Some(values)).build();
        let filters = match ask {
            // A filter, not VolumeIds: one that does not exist must not cost the answer about the others.
            Ask::Ids(ids) => vec![filter("volume-id", ids.iter().map(|id| id.0.clone()).collect())],
            Ask::TagKeys { zone, keys } => {
                vec![filter("availability-zone", vec![zone.clone()]), filter("tag-key", keys.iter().cloned().collect())]
            }
            Ask::Cluster { key, tag: (name, value) } => {
                vec![filter("tag-key", vec![key.clone()]), filter(&format!("tag:{name}"), vec![value.clone()])]
            }
        };
        let client = self.ec2(here).await;
        let request = client.describe_volumes().set_filters(Some(filters)).max_results(PAGE);
        let mut pages = request.into_paginator().send();
        let mut volumes = Vec::new();
        for _ in 0..MOST_PAGES {
            match pages.next().await {
                Some(Ok(page)) => volumes.extend(page.volumes().iter().filter_map(volume)),
                Some(Err(error)) => return Err(failed("DescribeVolumes", &error)),
                None => return Ok(Answer { volumes, at: self.date.last() }),
            }
        }
        let said = format!("more than {MOST_PAGES} pages");
        Err(ApiError { code: Code::Unknown, action: "DescribeVolumes", said })
    }

    async fn instance(&self, here: &Here, id: &InstanceId) -> Result<Option<Instance>, ApiError> {
        let client = self.ec2(here).await;
        match client.describe_instances().instance_ids(&id.0).send().await {
            Ok(answer) => {
                let mut all = answer.reservations().iter().flat_map(|reservation| reservation.instances());
                Ok(all.find(|instance| instance.instance_id() == Some(&id.0)).map(|found| instance(id, found)))
            }
            Err(error) => match failed("DescribeInstances", &error) {
                ApiError { code: Code::InstanceNotFound, .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    async fn attach(&self, here: &Here, volume: &VolumeId, device: &str) -> Result<(), ApiError> {
        let client = self.ec2(here).await;
        let request = client.attach_volume().volume_id(&volume.0).instance_id(&here.instance.0).device(device);
        request.send().await.map(|_answer| ()).map_err(|error| failed("AttachVolume", &error))
    }

    async fn tag(&self, here: &Here, volume: &VolumeId, tags: &[(&'static str, String)]) -> Result<(), ApiError> {
        let client = self.ec2(here).await;
        let tag = |(key, value): &(&'static str, String)| types::Tag::builder().key(*key).value(value).build();
        let request = client.create_tags().resources(&volume.0).set_tags(Some(tags.iter().map(tag).collect()));
        request.send().await.map(|_answer| ()).map_err(|error| failed("CreateTags", &error))
    }
}

impl Snapshots for Client {
    async fn create_snapshot(
        &self,
        here: &Here,
        volume: &VolumeId,
        description: &str,
        tags: &[(&'static str, String)],
    ) -> Result<Snapshot, ApiError> {
        let client = self.ec2(here).await;
        let tag = |(key, value): &(&'static str, String)| types::Tag::builder().key(*key).value(value).build();
        let tags = types::TagSpecification::builder()
            .resource_type(types::ResourceType::Snapshot)
            .set_tags(Some(tags.iter().map(tag).collect()))
            .build();
        let request = client.create_snapshot().volume_id(&volume.0).description(description).tag_specifications(tags);
        let taken = request.send().await.map_err(|error| failed("CreateSnapshot", &error))?;
        snapshot(taken.snapshot_id(), taken.state(), taken.state_message(), taken.progress()).ok_or_else(|| ApiError {
            code: Code::NoAnswer,
            action: "CreateSnapshot",
            said: "an answer without an id".to_owned(),
        })
    }

    async fn snapshot(&self, here: &Here, which: &Which) -> Result<Option<Snapshot>, ApiError> {
        let (name, value) = match which {
            Which::Id(id) => ("snapshot-id".to_owned(), id),
            Which::Attempt(attempt) => (format!("tag:{ATTEMPT}"), attempt),
        };
        let filter = Filter::builder().name(name).values(value).build();
        let client = self.ec2(here).await;
        let request = client.describe_snapshots().owner_ids("self").filters(filter);
        let answer = request.send().await.map_err(|error| failed("DescribeSnapshots", &error))?;
        let found = answer.snapshots().first();
        Ok(found
            .and_then(|found| snapshot(found.snapshot_id(), found.state(), found.state_message(), found.progress())))
    }
}

fn snapshot(
    id: Option<&str>,
    state: Option<&types::SnapshotState>,
    said: Option<&str>,
    progress: Option<&str>,
) -> Option<Snapshot> {
    let state = match state {
        Some(types::SnapshotState::Completed) => SnapshotState::Completed,
        Some(types::SnapshotState::Pending) => SnapshotState::Pending,
        Some(other) => SnapshotState::Failed(format!("{} {}", other.as_str(), said.unwrap_or_default())),
        None => SnapshotState::Failed("a snapshot without a state".to_owned()),
    };
    Some(Snapshot { id: id?.to_owned(), state, progress: progress.map(str::to_owned) })
}

impl Permissions for Client {
    async fn may(&self, here: &Here, volume: &VolumeId, level: Level) -> Result<(), ApiError> {
        let client = self.ec2(here).await;
        match level {
            Level::Read => {
                let request = client.describe_volumes().dry_run(true);
                would("DescribeVolumes", request.send().await)
            }
            Level::Attach => {
                let (instance, device) = (&here.instance.0, "/dev/sdp");
                let request = client.attach_volume().volume_id(&volume.0).instance_id(instance).device(device);
                would("AttachVolume", request.dry_run(true).send().await)
            }
            Level::Snapshot => {
                // Tagged as a real one is: a role may be permitted the one and not the other.
                let tag = types::Tag::builder().key(ATTEMPT).value("dry-run").build();
                let tags =
                    types::TagSpecification::builder().resource_type(types::ResourceType::Snapshot).tags(tag).build();
                let request = client.create_snapshot().volume_id(&volume.0).tag_specifications(tags);
                would("CreateSnapshot", request.dry_run(true).send().await)
            }
            Level::Tag => {
                let tag = types::Tag::builder().key(super::witness::HOLDER).value("dry-run").build();
                let request = client.create_tags().resources(&volume.0).tags(tag);
                would("CreateTags", request.dry_run(true).send().await)
            }
        }
    }
}

/// What a dry run came to. It never succeeds: the refusal says what would have been.
fn would<T, E, R>(action: &'static str, answer: Result<T, SdkError<E, R>>) -> Result<(), ApiError>
where
    E: ProvideErrorMetadata + Error + 'static,
    R: std::fmt::Debug + 'static,
{
    match answer {
        Ok(_unexpected) => Ok(()),
        Err(SdkError::ServiceError(context)) if context.err().code() == Some("DryRunOperation") => Ok(()),
        Err(error) => Err(failed(action, &error)),
    }
}

impl Pages for Client {
    async fn page(&self, region: Option<&str>, cluster: Option<&str>, after: Option<String>) -> Result<Page, ApiError> {
        let filter = |name: String, value: String| Filter::builder().name(name).values(value).build();
        let mut filters = vec![filter("tag-key".to_owned(), format!("{}*", kops::PREFIX))];
        filters.extend(cluster.map(|name| filter(format!("tag:{}", kops::CLUSTER), name.to_owned())));
        let client = self.ec2_of(region).await;
        let request = client.describe_volumes().set_filters(Some(filters)).max_results(PAGE).set_next_token(after);
        let answer = request.send().await.map_err(|error| failed("DescribeVolumes", &error))?;
        let next = answer.next_token().filter(|token| !token.is_empty()).map(str::to_owned);
        Ok((answer.volumes().iter().filter_map(volume).collect(), next))
    }
}

/// One without an id, zone or size is nothing that anything could be decided about.
fn volume(found: &types::Volume) -> Option<Volume> {
    Some(Volume {
        id: VolumeId::ebs(found.volume_id()?)?,
        state: match found.state()? {
            types::VolumeState::Creating => VolumeState::Creating,
            types::VolumeState::Available => VolumeState::Available,
            types::VolumeState::InUse => VolumeState::InUse,
            types::VolumeState::Deleting => VolumeState::Deleting,
            types::VolumeState::Deleted => VolumeState::Deleted,
            types::VolumeState::Error => VolumeState::Error,
            other => VolumeState::Other(other.as_str().to_owned()),
        },
        zone: found.availability_zone()?.to_owned(),
        size: u64::try_from(found.size()?).ok()?.checked_mul(GIB)?,
        // What is not said is what forbids more.
        encrypted: found.encrypted().unwrap_or(false),
        snapshot: found.snapshot_id().filter(|id| !id.is_empty()).map(str::to_owned),
        created: found.create_time().and_then(time),
        multi_attach: found.multi_attach_enabled().unwrap_or(false),
        attachments: found.attachments().iter().filter_map(attached).collect(),
        tags: found
            .tags()
            .iter()
            .filter_map(|tag| Some((tag.key()?.to_owned(), tag.value().unwrap_or_default().to_owned())))
            .collect(),
    })
}

fn attached(found: &types::VolumeAttachment) -> Option<Attached> {
    let state = match found.state() {
        Some(types::VolumeAttachmentState::Detached) => return None,
        Some(types::VolumeAttachmentState::Attaching) => AttachState::Attaching,
        Some(types::VolumeAttachmentState::Attached) => AttachState::Attached,
        Some(types::VolumeAttachmentState::Busy) => AttachState::Busy,
        Some(types::VolumeAttachmentState::Detaching) => AttachState::Detaching,
        Some(other) => AttachState::Other(other.as_str().to_owned()),
        None => AttachState::Other("without a state".to_owned()),
    };
    Some(Attached {
        // A volume may be attached to what is no instance of this account (Fargate): somebody has it all the same.
        instance: InstanceId(found.instance_id().unwrap_or("an instance without a name").to_owned()),
        device: found.device().map(str::to_owned),
        state,
        since: found.attach_time().and_then(time),
        delete_on_termination: found.delete_on_termination().unwrap_or(false),
    })
}

fn instance(id: &InstanceId, found: &types::Instance) -> Instance {
    let state = match found.state().and_then(types::InstanceState::name) {
        Some(types::InstanceStateName::Pending) => InstanceState::Pending,
        Some(types::InstanceStateName::Running) => InstanceState::Running,
        Some(types::InstanceStateName::Stopping) => InstanceState::Stopping,
        Some(types::InstanceStateName::Stopped) => InstanceState::Stopped,
        Some(types::InstanceStateName::ShuttingDown) => InstanceState::ShuttingDown,
        Some(types::InstanceStateName::Terminated) => InstanceState::Terminated,
        Some(other) => InstanceState::Other(other.as_str().to_owned()),
        None => InstanceState::Other("without a state".to_owned()),
    };
    let mapping = found.block_device_mappings().iter();
    let mut devices: Vec<String> = mapping.filter_map(|mapped| mapped.device_name().map(str::to_owned)).collect();
    devices.extend(found.root_device_name().map(str::to_owned));
    Instance { id: id.clone(), state, devices }
}

fn time(at: &aws_sdk_ec2::primitives::DateTime) -> Option<Time> {
    Time::from_unix(at.secs())
}

fn failed<E, R>(action: &'static str, error: &SdkError<E, R>) -> ApiError
where
    E: ProvideErrorMetadata + Error + 'static,
    R: std::fmt::Debug + 'static,
{
    let (code, said) = match error {
        SdkError::ServiceError(context) => {
            let error = context.err();
            // Without a code it is not EC2 that answered, but something on the way (a gateway's 502): done or not, nobody knows.
            let Some(said) = error.code() else {
                return ApiError { code: Code::NoAnswer, action, said: "an answer without a code".to_owned() };
            };
            // What follows is different in every answer, and for a person with the right to decode it.
            let message = error.message().unwrap_or_default().split("Encoded authorization").next().unwrap_or_default();
            (Code::of(said), format!("{said}: {}", message.trim()))
        }
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => {
            let said = chain(error);
            let credentials = said.to_ascii_lowercase().contains("credentials");
            (if credentials { Code::NoCredentials } else { Code::NoAnswer }, said)
        }
        SdkError::ConstructionFailure(_) => {
            let said = chain(error);
            let credentials = said.to_ascii_lowercase().contains("credentials");
            (if credentials { Code::NoCredentials } else { Code::Unknown }, said)
        }
        _new => (Code::NoAnswer, chain(error)),
    };
    ApiError { code, action, said: said.chars().take(MOST_SAID).collect() }
}

/// Each cause as it shows itself to people, never as it is built.
fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        source = cause.source();
    }
    words
}
