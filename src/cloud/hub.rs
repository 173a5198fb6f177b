//! One client for all guards of this machine, and one DescribeVolumes for all who ask at the same time.
//!
//! EC2 counts requests per account: three guards on each of a thousand masters must not be three thousand requests.

use super::code::{ApiError, Code};
use super::ec2::{Answer, Ask, Ec2, Here, Instance, InstanceId};
use super::permissions::{Level, Permissions};
use super::snapshot::{Snapshot, Snapshots, Which};
use crate::model::VolumeId;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OnceCell, oneshot};

/// For how long others may join a DescribeVolumes that is about to be made: guards start and wake together.
const GATHER: Duration = Duration::from_millis(50);

/// The one client.
#[derive(Debug)]
pub struct Hub<A> {
    api: A,
    /// An instance keeps its id and zone as long as this process lives.
    here: OnceCell<Here>,
    waiting: Mutex<Waiting>,
    throttled: AtomicU64,
    gather: Duration,
}

type Reply = oneshot::Sender<Result<Answer, ApiError>>;

#[derive(Debug, Default)]
struct Waiting {
    asks: Vec<(Ask, Reply)>,
    /// Somebody is about to ask, or asks, for all.
    led: bool,
}

impl<A: Ec2> Hub<A> {
    pub fn new(api: A) -> Self {
        Hub {
            api,
            here: OnceCell::new(),
            waiting: Mutex::new(Waiting::default()),
            throttled: AtomicU64::new(0),
            gather: GATHER,
        }
    }

    /// For a machine with one guard, whose time is only counted.
    #[cfg(test)]
    pub(super) fn without_gathering(api: A) -> Self {
        Hub { gather: Duration::ZERO, ..Hub::new(api) }
    }

    #[cfg(test)]
    pub(in crate::cloud) fn api(&self) -> &A {
        &self.api
    }

    /// How many requests were refused because the account makes too many.
    pub fn throttled(&self) -> u64 {
        self.throttled.load(Ordering::Relaxed)
    }

    /// Which instance this is. Asked until it is known.
    pub async fn here(&self) -> Result<Here, ApiError> {
        self.here.get_or_try_init(|| self.api.here()).await.cloned()
    }

    /// Volumes, together with what others ask for. The answer holds theirs as well.
    pub async fn volumes(self: &Arc<Self>, ask: Ask) -> Result<Answer, ApiError> {
        let (reply, answer) = oneshot::channel();
        let lead = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.asks.push((ask, reply));
            !std::mem::replace(&mut waiting.led, true)
        };
        if lead {
            // A task of its own: whoever asked may stop waiting.
            tokio::spawn(self.clone().lead());
        }
        answer.await.unwrap_or_else(|_gone| {
            let said = "the request was given up".to_owned();
            Err(ApiError { code: Code::NoAnswer, action: "DescribeVolumes", said })
        })
    }

    async fn lead(self: Arc<Self>) {
        loop {
            if !self.gather.is_zero() {
                tokio::time::sleep(self.gather).await;
            }
            let asks = {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if waiting.asks.is_empty() {
                    waiting.led = false;
                    return;
                }
                std::mem::take(&mut waiting.asks)
            };
            let here = self.here().await;
            for (ask, replies) in together(asks) {
                let answer = match &here {
                    Ok(here) => self.counted(self.api.volumes(here, &ask).await),
                    Err(error) => Err(error.clone()),
                };
                for reply in replies {
                    // Whoever does not listen any more will ask again.
                    let _heard = reply.send(answer.clone());
                }
            }
        }
    }

    /// One instance.
    pub async fn instance(&self, here: &Here, id: &InstanceId) -> Result<Option<Instance>, ApiError> {
        self.counted(self.api.instance(here, id).await)
    }

    /// AttachVolume to this instance.
    pub async fn attach(&self, here: &Here, volume: &VolumeId, device: &str) -> Result<(), ApiError> {
        self.counted(self.api.attach(here, volume, device).await)
    }

    /// CreateTags on one volume.
    pub async fn tag(&self, here: &Here, volume: &VolumeId, tags: &[(&'static str, String)]) -> Result<(), ApiError> {
        self.counted(self.api.tag(here, volume, tags).await)
    }

    fn counted<T>(&self, answer: Result<T, ApiError>) -> Result<T, ApiError> {
        if let Err(ApiError { code: Code::Throttled, .. }) = &answer {
            let total = self.throttled.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            tracing::warn!(event = "ec2.throttled", total, "EC2 refuses requests because the account makes too many");
        }
        answer
    }
}

impl<A: Ec2 + Snapshots> Hub<A> {
    /// CreateSnapshot of one volume.
    pub async fn create_snapshot(
        &self,
        here: &Here,
        volume: &VolumeId,
        description: &str,
        tags: &[(&'static str, String)],
    ) -> Result<Snapshot, ApiError> {
        self.counted(self.api.create_snapshot(here, volume, description, tags).await)
    }

    /// DescribeSnapshots of one.
    pub async fn snapshot(&self, here: &Here, which: &Which) -> Result<Option<Snapshot>, ApiError> {
        self.counted(self.api.snapshot(here, which).await)
    }
}

impl<A: Ec2 + Permissions> Hub<A> {
    /// Whether this would be permitted.
    pub async fn may(&self, here: &Here, volume: &VolumeId, level: Level) -> Result<(), ApiError> {
        self.counted(self.api.may(here, volume, level).await)
    }
}

/// As few questions as there can be: one for all ids, one for each zone's tag keys, one for each cluster.
fn together(asks: Vec<(Ask, Reply)>) -> Vec<(Ask, Vec<Reply>)> {
    let mut questions: Vec<(Ask, Vec<Reply>)> = Vec::new();
    for (ask, reply) in asks {
        let joined = questions.iter_mut().find_map(|(known, replies)| join(known, &ask).then_some(replies));
        match joined {
            Some(replies) => replies.push(reply),
            None => questions.push((ask, vec![reply])),
        }
    }
    questions
}

/// Takes `other` into `known`, where one call can answer both.
fn join(known: &mut Ask, other: &Ask) -> bool {
    let add = |known: &mut BTreeSet<_>, other: &BTreeSet<_>| known.extend(other.iter().cloned());
    match (known, other) {
        (Ask::Ids(known), Ask::Ids(other)) => {
            known.extend(other.iter().cloned());
            true
        }
        (Ask::TagKeys { zone, keys }, Ask::TagKeys { zone: theirs, keys: other }) if zone == theirs => {
            add(keys, other);
            true
        }
        (Ask::Cluster { key, tag }, Ask::Cluster { key: other, tag: theirs }) => key == other && tag == theirs,
        (
            Ask::Ids(_) | Ask::TagKeys { .. } | Ask::Cluster { .. },
            Ask::Ids(_) | Ask::TagKeys { .. } | Ask::Cluster { .. },
        ) => false,
    }
}
