#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::super::super::ec2::{Answer, Ask, Here, Instance, InstanceId};
use super::super::of_tags;
use super::*;
use crate::model::{ClusterId, FsUuid, HighWater, MemberId};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// EC2 that only takes tags, and refuses the first of them.
#[derive(Default)]
struct Fake {
    taken: Mutex<Vec<BTreeMap<String, String>>>,
    refuses: Mutex<Vec<Code>>,
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

    async fn tag(&self, _: &Here, _: &VolumeId, tags: &[(&'static str, String)]) -> Result<(), ApiError> {
        if let Some(code) = self.refuses.lock().unwrap().pop() {
            return Err(ApiError { code, action: "CreateTags", said: String::new() });
        }
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        self.taken.lock().unwrap().push(tags);
        Ok(())
    }
}

fn wanted(fs: u128, revision: i64, news: bool) -> Wanted {
    let (cluster_id, member_id) = (Some(ClusterId(1)), Some(MemberId(2)));
    let mark = HighWater {
        data_dir: "data".into(),
        cluster_id,
        member_id,
        term: Some(1),
        consistent_index: Some(1),
        revision: Some(revision),
        wal_last_index: Some(1),
        keys: Some(1),
    };
    let witness = Witness {
        fs_uuid: Some(FsUuid(uuid::Uuid::from_u128(fs))),
        cluster_id,
        member_id,
        data_dir: Some("data".into()),
        mark: Some(mark),
        ..Witness::default()
    };
    Wanted { volume: VolumeId("vol-1a2b3c4d".into()), witness, news, guard: "main".into() }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The moments of a day at which something is written, while it is wanted as this says; what each attempt comes to.
fn day(wants: impl Fn(u64) -> Wanted, comes_to: impl Fn(usize) -> Option<Code>) -> Vec<u64> {
    let mut schedule = Schedule::new(7);
    let mut attempts = Vec::new();
    for now in 0..86_400 {
        let wanted = wants(now);
        if schedule.due(&wanted).is_some_and(|due| due <= at(now)) {
            match comes_to(attempts.len()) {
                None => schedule.written(at(now), wanted),
                Some(code) => schedule.failed(at(now), code),
            }
            attempts.push(now);
        }
    }
    attempts
}

#[test]
fn progress_is_written_every_few_minutes_and_what_stands_there_never_again() {
    let grows = day(|now| wanted(1, i64::try_from(now).unwrap(), true), |_| None);
    assert_eq!(grows[..3], [0, 300, 600]);
    assert_eq!(grows.len(), 288);
    assert_eq!(day(|_| wanted(1, 1, true), |_| None), [0]);
}

#[test]
fn whose_data_it_is_is_written_soon_and_never_twice_in_a_breath() {
    let turns = day(|now| wanted(u128::from(now / 10 % 2), 1, true), |_| None);
    assert_eq!(turns[0], 0);
    assert!(turns.len() > 100 && turns.windows(2).all(|pair| pair[1] - pair[0] >= 30), "{turns:?}");
}

#[test]
fn after_a_start_each_machine_writes_at_its_own_moment_what_stands_there_already() {
    assert_eq!(day(|_| wanted(1, 1, false), |_| None), [113]);
    let firsts: std::collections::BTreeSet<Duration> = (0..60).map(|seed| Schedule::new(seed).first).collect();
    assert_eq!(firsts.len(), 60);
}

#[test]
fn what_is_refused_is_tried_hourly_and_what_passes_after_ever_longer_pauses() {
    let refused = day(|now| wanted(1, i64::try_from(now).unwrap(), true), |_| Some(Code::Unauthorized));
    assert_eq!(refused.len(), 24);
    let passes = day(|_| wanted(1, 1, true), |attempt| (attempt < 3).then_some(Code::Throttled));
    assert_eq!(passes.len(), 4);
    assert!(passes.windows(2).all(|pair| pair[1] - pair[0] >= 30), "{passes:?}");
}

#[tokio::test]
async fn what_is_wanted_is_written_by_itself_and_a_refusal_is_told_by_the_name_of_the_action() {
    let hub = Arc::new(Hub::new(Fake::default()));
    let mut writer = Writer::start(hub.clone(), 7);
    writer.want(wanted(1, 10, true));
    writer.news().await;
    assert!(writer.status().written_at.is_some() && writer.status().trouble.is_none());
    let witness = of_tags(hub.api().taken.lock().unwrap().last().unwrap()).unwrap();
    assert_eq!(witness.holder.as_deref(), Some("i-here main"));
    assert_eq!(witness.volume, Some(VolumeId("vol-1a2b3c4d".into())));
    assert_eq!(witness.mark.unwrap().revision, Some(10));

    let hub = Arc::new(Hub::new(Fake { refuses: Mutex::new(vec![Code::Unauthorized]), ..Fake::default() }));
    let mut writer = Writer::start(hub.clone(), 7);
    writer.want(wanted(1, 10, true));
    writer.news().await;
    let trouble = writer.status().trouble.unwrap();
    assert_eq!(trouble.code, ReasonCode::WitnessUnreachable);
    assert!(trouble.message.contains("ec2:CreateTags is not permitted"), "{}", trouble.message);
    assert!(hub.api().taken.lock().unwrap().is_empty());
}

#[test]
fn the_same_trouble_is_told_once() {
    let (told, mut status) = watch::channel(WitnessStatus::default());
    let error = ApiError { code: Code::Unauthorized, action: "CreateTags", said: String::new() };
    tell(&told, &wanted(1, 1, true), &error);
    assert!(status.has_changed().unwrap());
    status.mark_unchanged();
    tell(&told, &wanted(1, 2, true), &error);
    assert!(!status.has_changed().unwrap(), "the same trouble was told twice");
    tell(&told, &wanted(1, 2, true), &ApiError { code: Code::TagLimit, ..error });
    assert!(status.has_changed().unwrap());
}
