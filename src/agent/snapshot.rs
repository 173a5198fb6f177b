//! A snapshot before a step that cannot be taken back, as the guard's policy wants it.

use crate::cloud::code::ApiError;
use crate::cloud::ec2::Ec2;
use crate::cloud::snapshot::{About, Snapshots, take};
use crate::cloud::{Client, Hub};
use crate::model::{Fingerprint, FsUuid, HighWater, Reason, ReasonCode, Records, SnapshotPolicy, VolumeId, Witness};
use serde_json::json;
use std::time::Duration;

/// How long EC2 is given to answer where there has to be one, or a person waits for it. That it was begun is enough.
const PATIENCE: Duration = Duration::from_secs(30);
/// And where a boot goes on without.
const BEST_EFFORT: Duration = Duration::from_secs(5);

/// Whose snapshot, and before what.
pub struct Before<'a> {
    pub guard: &'a str,
    pub volume: &'a VolumeId,
    pub policy: SnapshotPolicy,
    /// `fsck`, `adopt`
    pub step: &'static str,
    pub holds: Witness,
}

/// The snapshot's id; `None` where the policy wants none, or can do without the one that was not to be had.
///
/// # Errors
/// Why the step must not be taken: the policy requires a snapshot, and there is none.
pub async fn before(hub: &Hub<Client>, wanted: Before<'_>) -> Result<Option<String>, Reason> {
    let Before { guard, volume, policy, step, holds } = wanted;
    let patience = match policy {
        SnapshotPolicy::Off => return Ok(None),
        SnapshotPolicy::BestEffort => BEST_EFFORT,
        SnapshotPolicy::Required => PATIENCE,
    };
    let about = About { guard: guard.to_owned(), reason: step, holds };
    let outcome = take(hub, volume, &about, patience).await.map(|snapshot| snapshot.id);
    match judge(policy, volume, step, outcome) {
        Judged::Taken(id) => {
            tracing::info!(event = "snapshot.taken", guard, %volume, snapshot = id, "before: {step}");
            Ok(Some(id))
        }
        Judged::Without(reason) => {
            tracing::warn!(event = "snapshot.refused", guard, "{}; goes on without", reason.message);
            Ok(None)
        }
        Judged::Never(reason) => Err(reason),
    }
}

/// What the policy makes of it.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Taken(String),
    Without(Reason),
    Never(Reason),
}

fn judge(policy: SnapshotPolicy, volume: &VolumeId, step: &str, outcome: Result<String, ApiError>) -> Judged {
    let why = match outcome {
        Ok(id) => return Judged::Taken(id),
        Err(why) => why,
    };
    let message = format!("no snapshot of {volume} can be had before: {step}, for {}", words(&why));
    let reason = Reason::new(ReasonCode::SnapshotRefused, message).with_detail(json!({ "said": why.said }));
    match policy {
        SnapshotPolicy::Required => Judged::Never(reason),
        SnapshotPolicy::BestEffort | SnapshotPolicy::Off => Judged::Without(reason),
    }
}

/// Why there is none, and what to do about it.
pub fn words(error: &ApiError) -> String {
    format!("{} ({})", error.what(), error.code.remedy())
}

/// One that a person has asked for.
pub async fn taken<A: Ec2 + Snapshots>(hub: &Hub<A>, volume: &VolumeId, about: &About) -> Result<String, ApiError> {
    Ok(take(hub, volume, about, PATIENCE).await?.id)
}

/// What the volume holds, by the records.
pub fn by_records(fs_uuid: Option<FsUuid>, records: Option<&Records>) -> Witness {
    let pin = records.and_then(|records| records.pin.as_ref());
    Witness {
        fs_uuid,
        cluster_id: pin.map(|pin| pin.cluster_id),
        member_id: pin.map(|pin| pin.member_id),
        data_dir: pin.map(|pin| pin.data_dir.clone()),
        mark: records.and_then(|records| records.high_water.clone()),
        ..Witness::default()
    }
}

/// The same, by the data dir as it was last read.
pub fn by_fingerprint(fs_uuid: Option<FsUuid>, dir: Option<(&str, &Fingerprint)>) -> Witness {
    Witness {
        fs_uuid,
        cluster_id: dir.and_then(|(_, print)| print.cluster_id),
        member_id: dir.and_then(|(_, print)| print.member_id),
        data_dir: dir.map(|(path, _)| path.to_owned()),
        mark: dir.map(|(path, print)| HighWater::of(path, print)),
        ..Witness::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::code::Code;

    #[test]
    fn without_a_snapshot_that_is_required_the_step_is_never_taken() {
        let volume = VolumeId("vol-1a2b3c4d".into());
        let refused = |code| ApiError { code, action: "CreateSnapshot", said: "x".to_owned() };
        let late = |policy| judge(policy, &volume, "fsck", Err(refused(Code::NoAnswer)));
        assert!(matches!(late(SnapshotPolicy::Required), Judged::Never(_)));
        assert!(matches!(late(SnapshotPolicy::BestEffort), Judged::Without(_)));
        for code in Code::ALL {
            let judged = judge(SnapshotPolicy::Required, &volume, "fsck", Err(refused(code)));
            let Judged::Never(reason) = judged else { unreachable!("{code:?} goes on without") };
            assert_eq!(reason.code, ReasonCode::SnapshotRefused);
            assert!(reason.message.contains("before: fsck"), "{}", reason.message);
        }
        let taken = judge(SnapshotPolicy::Required, &volume, "fsck", Ok("snap-1".to_owned()));
        assert_eq!(taken, Judged::Taken("snap-1".to_owned()));
    }
}
