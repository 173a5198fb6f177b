//! Snapshots of a volume, taken before something that cannot be taken back. EC2 keeps the volume's state of the moment in which
//! it answers, so nobody waits until the copy is complete. volhold never deletes one.
//!
//! CreateSnapshot is not idempotent and its answer can be lost. Each attempt therefore carries a tag of its own, and is looked
//! for by it before it counts as failed.

use super::code::{ApiError, Code};
use super::ec2::{Ec2, Here};
use super::hub::Hub;
use super::witness;
use crate::model::{VolumeId, Witness};
use std::future::Future;
use std::time::Duration;

/// Tags besides those of the witness.
const GUARD: &str = "volhold/guard";
const REASON: &str = "volhold/reason";
/// The tag that no other attempt has.
pub const ATTEMPT: &str = "volhold/attempt";

/// One snapshot, as far as anybody cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// `snap-…`
    pub id: String,
    pub state: SnapshotState,
    /// `87%`
    pub progress: Option<String>,
}

/// `Snapshot.State`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotState {
    /// Being copied: what it will hold is settled.
    Pending,
    Completed,
    /// It came to nothing, in EC2's words.
    Failed(String),
}

/// Which one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    Id(String),
    Attempt(String),
}

/// The two calls.
pub trait Snapshots: Send + Sync + 'static {
    fn create_snapshot(
        &self,
        here: &Here,
        volume: &VolumeId,
        description: &str,
        tags: &[(&'static str, String)],
    ) -> impl Future<Output = Result<Snapshot, ApiError>> + Send;

    /// DescribeSnapshots. `None`: there is none such, or none such yet.
    fn snapshot(&self, here: &Here, which: &Which) -> impl Future<Output = Result<Option<Snapshot>, ApiError>> + Send;
}

/// What a snapshot is told by later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    pub guard: String,
    /// Why it was taken: `fsck`, `adopt`, `asked for`.
    pub reason: &'static str,
    /// What the volume holds, as far as that is known.
    pub holds: Witness,
}

impl About {
    fn tags(&self, volume: &VolumeId, attempt: &str) -> Vec<(&'static str, String)> {
        let holds = Witness { volume: Some(volume.clone()), ..self.holds.clone() };
        let mut tags = witness::tags(&holds);
        tags.push((GUARD, self.guard.clone()));
        tags.push((REASON, self.reason.to_owned()));
        tags.push((ATTEMPT, attempt.to_owned()));
        tags
    }
}

/// Takes one. It is safe to go on with whatever it was taken for once this has answered. `patience` is for each of the requests
/// by itself: one that is not answered in time may have been done, and is looked after like any lost answer.
pub async fn take<A: Ec2 + Snapshots>(
    hub: &Hub<A>,
    volume: &VolumeId,
    about: &About,
    patience: Duration,
) -> Result<Snapshot, ApiError> {
    let here = in_time(patience, "the metadata service", hub.here()).await?;
    let attempt = uuid::Uuid::new_v4().to_string();
    let description = format!("volhold, guard {}, before: {}", about.guard, about.reason);
    let tags = about.tags(volume, &attempt);
    let create = hub.create_snapshot(&here, volume, &description, &tags);
    let taken = match in_time(patience, "CreateSnapshot", create).await {
        Err(error) if matches!(error.code, Code::NoAnswer | Code::Unavailable) => {
            // Done or not: a look tells.
            let which = Which::Attempt(attempt);
            match in_time(patience, "DescribeSnapshots", hub.snapshot(&here, &which)).await {
                Ok(Some(found)) => found,
                Ok(None) | Err(_) => return Err(error),
            }
        }
        taken => taken?,
    };
    match &taken.state {
        SnapshotState::Pending | SnapshotState::Completed => Ok(taken),
        SnapshotState::Failed(said) => {
            let said = format!("{} failed: {said}", taken.id);
            Err(ApiError { code: Code::Unknown, action: "CreateSnapshot", said })
        }
    }
}

async fn in_time<T>(
    patience: Duration,
    action: &'static str,
    asked: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    tokio::time::timeout(patience, asked).await.unwrap_or_else(|_late| {
        let said = format!("no answer within {} s", patience.as_secs());
        Err(ApiError { code: Code::NoAnswer, action, said })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::ec2::{Answer, Ask, Instance, InstanceId};
    use super::*;
    use crate::model::FsUuid;
    use std::sync::{Arc, Mutex};

    /// EC2 with snapshots, by the tag of their attempt.
    #[derive(Default)]
    struct Fake {
        taken: Mutex<Vec<Vec<(&'static str, String)>>>,
        /// What the answer to CreateSnapshot is instead, and whether it was done all the same.
        fault: Option<(Code, bool)>,
        fails: bool,
        /// CreateSnapshot is done, and never answered.
        hangs: bool,
    }

    impl Ec2 for Fake {
        async fn here(&self) -> Result<Here, ApiError> {
            Ok(Here { instance: InstanceId("i-here".into()), zone: "z".into(), region: "r".into() })
        }

        async fn volumes(&self, _: &Here, _: &Ask) -> Result<Answer, ApiError> {
            unreachable!("nobody asks")
        }

        async fn instance(&self, _: &Here, _: &InstanceId) -> Result<Option<Instance>, ApiError> {
            unreachable!("nobody asks")
        }

        async fn attach(&self, _: &Here, _: &VolumeId, _: &str) -> Result<(), ApiError> {
            unreachable!("nobody asks")
        }

        async fn tag(&self, _: &Here, _: &VolumeId, _: &[(&'static str, String)]) -> Result<(), ApiError> {
            unreachable!("nobody asks")
        }
    }

    impl Fake {
        fn told(&self) -> Snapshot {
            let state = if self.fails { SnapshotState::Failed("no key".to_owned()) } else { SnapshotState::Pending };
            Snapshot { id: "snap-1".to_owned(), state, progress: None }
        }
    }

    impl Snapshots for Fake {
        async fn create_snapshot(
            &self,
            _: &Here,
            _: &VolumeId,
            _: &str,
            tags: &[(&'static str, String)],
        ) -> Result<Snapshot, ApiError> {
            if self.fault.is_none_or(|(_, done)| done) {
                self.taken.lock().unwrap().push(tags.to_vec());
            }
            if self.hangs {
                std::future::pending::<()>().await;
            }
            match self.fault {
                Some((code, _)) => Err(ApiError { code, action: "CreateSnapshot", said: String::new() }),
                None => Ok(self.told()),
            }
        }

        async fn snapshot(&self, _: &Here, which: &Which) -> Result<Option<Snapshot>, ApiError> {
            let Which::Attempt(attempt) = which else { unreachable!("nobody asks") };
            let taken = self.taken.lock().unwrap();
            let own = taken.iter().any(|tags| tags.contains(&(ATTEMPT, attempt.clone())));
            Ok(own.then(|| self.told()))
        }
    }

    fn about() -> About {
        let holds = Witness { fs_uuid: Some(FsUuid(uuid::Uuid::from_u128(1))), ..Witness::default() };
        About { guard: "main".to_owned(), reason: "fsck", holds }
    }

    async fn taken(fake: Fake) -> (Result<Snapshot, ApiError>, Vec<Vec<(&'static str, String)>>) {
        let patience = if fake.hangs { Duration::from_millis(1) } else { Duration::from_secs(60) };
        let hub = Arc::new(Hub::new(fake));
        let outcome = take(&hub, &VolumeId("vol-1a2b3c4d".into()), &about(), patience).await;
        let tags = hub.api().taken.lock().unwrap().clone();
        (outcome, tags)
    }

    #[tokio::test]
    async fn it_says_of_what_and_why_it_is_and_is_good_before_it_is_complete() {
        let (outcome, tags) = taken(Fake::default()).await;
        assert_eq!(outcome.unwrap().id, "snap-1");
        for tag in [(GUARD, "main"), (REASON, "fsck"), ("volhold/volume", "vol-1a2b3c4d")] {
            assert!(tags.iter().flatten().any(|(key, value)| (*key, value.as_str()) == tag), "{tag:?}: {tags:?}");
        }
        assert!(tags.iter().flatten().any(|(key, _)| *key == "volhold/fs-uuid"), "{tags:?}");
    }

    #[tokio::test]
    async fn a_lost_answer_is_looked_after_and_nothing_else_counts_as_done() {
        for (code, done, good) in [
            (Code::NoAnswer, true, true),
            (Code::Unavailable, true, true),
            (Code::NoAnswer, false, false),
            (Code::Unauthorized, false, false),
            (Code::Throttled, false, false),
        ] {
            let (outcome, tags) = taken(Fake { fault: Some((code, done)), ..Fake::default() }).await;
            assert_eq!(outcome.is_ok(), good, "{code:?}");
            assert!(tags.len() <= 1, "{code:?}: asked for twice");
        }
        let (outcome, tags) = taken(Fake { hangs: true, ..Fake::default() }).await;
        assert_eq!((outcome.unwrap().id.as_str(), tags.len()), ("snap-1", 1), "done, and the answer came too late");
        let (outcome, _) = taken(Fake { fails: true, ..Fake::default() }).await;
        assert!(outcome.unwrap_err().said.contains("no key"));
    }
}
