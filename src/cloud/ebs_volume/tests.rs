//! One guard's volume against an EC2 of a few lines, by a clock that is put forward. The SDK and a strict
//! EC2 are in `tests/it/ebs.rs`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod rush;

use super::super::ec2::{AttachState, Attached, InstanceId, InstanceState, VolumeState};
use super::*;
use crate::model::DevNum;
use std::sync::Mutex;

/// EC2 in one mutex.
#[derive(Default)]
struct World {
    volumes: Vec<Volume>,
    /// What the next calls of an action come to, instead of what they should.
    faults: Vec<(&'static str, Code)>,
    /// The attach is done, and then fails.
    lost: bool,
    calls: Vec<String>,
    /// Never answers.
    silent: bool,
}

struct Fake(Mutex<World>);

impl Fake {
    fn call(&self, action: &'static str, about: String) -> Result<std::sync::MutexGuard<'_, World>, ApiError> {
        let mut world = self.0.lock().unwrap();
        world.calls.push(format!("{action} {about}"));
        let fault = world.faults.iter().position(|(what, _)| *what == action);
        match fault {
            Some(at) => {
                let (_, code) = world.faults.remove(at);
                Err(ApiError { code, action, said: String::new() })
            }
            None => Ok(world),
        }
    }
}

impl Ec2 for Fake {
    async fn here(&self) -> Result<Here, ApiError> {
        if self.0.lock().unwrap().silent {
            std::future::pending::<()>().await;
        }
        Ok(Here { instance: InstanceId("i-here".into()), zone: "z".into(), region: "r".into() })
    }

    async fn volumes(&self, _here: &Here, ask: &Ask) -> Result<Answer, ApiError> {
        let world = self.call("DescribeVolumes", format!("{ask:?}"))?;
        Ok(Answer { volumes: world.volumes.clone(), at: Time::from_unix(1_800_100_000) })
    }

    async fn instance(&self, _here: &Here, id: &InstanceId) -> Result<Option<Instance>, ApiError> {
        drop(self.call("DescribeInstances", id.to_string())?);
        Ok(Some(Instance { id: id.clone(), state: InstanceState::Running, devices: Vec::new() }))
    }

    async fn attach(&self, here: &Here, volume: &VolumeId, device: &str) -> Result<(), ApiError> {
        let mut world = self.call("AttachVolume", format!("{volume} {device}"))?;
        let lost = world.lost;
        let found = world.volumes.iter_mut().find(|known| known.id == *volume).unwrap();
        if !found.attachments.is_empty() {
            return Err(ApiError { code: Code::VolumeInUse, action: "AttachVolume", said: String::new() });
        }
        found.attachments.push(attached(&here.instance.0, AttachState::Attached));
        if lost { Err(ApiError { code: Code::NoAnswer, action: "AttachVolume", said: String::new() }) } else { Ok(()) }
    }

    async fn tag(&self, _here: &Here, volume: &VolumeId, _tags: &[(&'static str, String)]) -> Result<(), ApiError> {
        self.call("CreateTags", volume.to_string()).map(drop)
    }
}

fn attached(instance: &str, state: AttachState) -> Attached {
    Attached {
        instance: InstanceId(instance.into()),
        device: Some("/dev/sdf".into()),
        state,
        since: None,
        delete_on_termination: false,
    }
}

fn volume(n: u8, me: &str) -> Volume {
    Volume { zone: "z".into(), ..Volume::free(&format!("vol-0000000{n}"), [("k8s.io/etcd/main", me)]) }
}

fn hub(world: World) -> Arc<Hub<Fake>> {
    Arc::new(Hub::new(Fake(Mutex::new(world))))
}

fn by_id(hub: &Arc<Hub<Fake>>, n: u8) -> EbsVolume<Fake> {
    EbsVolume::new(hub.clone(), EbsSpec::Id(VolumeId(format!("vol-0000000{n}"))), None, 0)
}

fn by_tag(hub: &Arc<Hub<Fake>>) -> EbsVolume<Fake> {
    let tags = vec![TagSpec { key: "k8s.io/etcd/main".into(), value: None }];
    EbsVolume::new(hub.clone(), EbsSpec::Tags(tags), None, 0)
}

fn world(hub: &Hub<Fake>) -> std::sync::MutexGuard<'_, World> {
    hub.api().0.lock().unwrap()
}

fn actions(hub: &Hub<Fake>) -> Vec<String> {
    world(hub).calls.iter().filter_map(|call| call.split(' ').next().map(str::to_owned)).collect()
}

/// Asks every second until something else than waiting comes of it.
async fn until_news(volume: &mut EbsVolume<Fake>) -> Brought {
    for _ in 0..600 {
        match volume.bring(May::Attach).await {
            Brought::Waits(_) => volume.skew += Duration::from_secs(1),
            news => return news,
        }
    }
    panic!("waits for ever");
}

fn facts(volume: &VolumeId, size: u64) -> DeviceFacts {
    DeviceFacts {
        requested: String::new(),
        node: String::new(),
        devnum: DevNum { major: 7, minor: 1 },
        size,
        logical_block: 512,
        read_only: false,
        whole_disk: true,
        serial: None,
        diskseq: None,
        backing_file: None,
        volume_id: volume.clone(),
        uses: Vec::new(),
    }
}

#[tokio::test]
async fn a_free_volume_takes_three_calls_and_one_look_afterwards() {
    let hub = hub(World { volumes: vec![volume(1, "a/a")], ..World::default() });
    let mut own = by_id(&hub, 1);
    assert!(matches!(own.bring(May::Attach).await, Brought::Waits(_)));
    assert_eq!(actions(&hub), ["DescribeVolumes", "DescribeInstances", "AttachVolume"]);
    let Brought::Here(whereabouts) = until_news(&mut own).await else { panic!("not here") };
    assert_eq!(whereabouts.volume.0, "vol-00000001");
    assert_eq!(whereabouts.attached_as, Some(("/dev/sdf".into(), 1 << 30)));
    assert_eq!(actions(&hub).len(), 4);
}

#[tokio::test]
async fn what_ec2_said_before_it_attached_a_volume_is_known_when_the_kernel_shows_it() {
    let mut tagged = volume(1, "a/a");
    tagged.tags.insert("volhold/volume".into(), tagged.id.to_string());
    let facts = facts(&tagged.id, tagged.size);
    let hub = hub(World { volumes: vec![tagged], ..World::default() });
    let mut own = by_id(&hub, 1);
    assert!(own.known_already(&facts).witness.seen().is_none(), "nobody was asked yet");
    assert!(matches!(own.bring(May::Attach).await, Brought::Waits(_)));
    let known = own.known_already(&facts);
    assert!(matches!(known.witness, Observed::Seen(Some(_))), "{known:?}");
    assert_eq!(known.identity, Observed::Seen(Identity::Matches));
    // Nor is it asked for again.
    assert_eq!(own.knowledge(&facts).await, known);
    assert_eq!(actions(&hub).len(), 3);
}

#[tokio::test]
async fn looking_every_second_asks_ec2_ever_more_rarely() {
    let hub =
        hub(World { volumes: vec![Volume { state: VolumeState::Creating, ..volume(1, "a/a") }], ..World::default() });
    let mut own = by_id(&hub, 1);
    for _ in 0..80 {
        assert!(matches!(own.bring(May::Attach).await, Brought::Waits(_)));
        own.skew += Duration::from_secs(1);
    }
    let asked = actions(&hub).len();
    assert!((4..=12).contains(&asked), "{asked} questions in 80 seconds");
}

#[tokio::test]
async fn an_ec2_that_never_answers_keeps_nobody_waiting() {
    let hub = hub(World { silent: true, ..World::default() });
    let mut own = by_id(&hub, 1);
    for _ in 0..3 {
        // Without that it would never come back.
        assert!(matches!(own.bring(May::Attach).await, Brought::Waits(_)));
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_is_looked_after_and_asked_for_once() {
    let hub = hub(World { volumes: vec![volume(1, "a/a")], lost: true, ..World::default() });
    assert!(matches!(until_news(&mut by_id(&hub, 1)).await, Brought::Here(_)));
    assert_eq!(actions(&hub).iter().filter(|action| *action == "AttachVolume").count(), 1);
}

#[tokio::test]
async fn a_throttled_account_is_left_alone_for_a_while_and_loses_no_guard() {
    let faults = vec![("DescribeVolumes", Code::Throttled), ("AttachVolume", Code::Throttled)];
    let hub = hub(World { volumes: vec![volume(1, "a/a")], faults, ..World::default() });
    let mut own = by_id(&hub, 1);
    let Brought::Waits(reason) = own.bring(May::Attach).await else { panic!("not waiting") };
    assert_eq!(reason.code, ReasonCode::Throttled);
    assert!(matches!(until_news(&mut own).await, Brought::Here(_)));
    assert!(own.skew >= Duration::from_secs(8), "{:?}", own.skew);
    assert_eq!(hub.throttled(), 2);
}

#[tokio::test]
async fn a_missing_permission_is_a_hold_that_names_it_and_ends_when_it_is_given() {
    let faults = vec![("AttachVolume", Code::Unauthorized)];
    let hub = hub(World { volumes: vec![volume(1, "a/a")], faults, ..World::default() });
    let mut own = by_id(&hub, 1);
    let Brought::Refused(reason) = until_news(&mut own).await else { panic!("not refused") };
    assert_eq!(reason.code, ReasonCode::NoPermission);
    assert!(reason.message.contains("ec2:AttachVolume"), "{}", reason.message);
    // Asked again at once, it says the same and asks nobody.
    let calls = actions(&hub).len();
    assert_eq!(own.bring(May::Attach).await, Brought::Refused(reason));
    assert_eq!(actions(&hub).len(), calls);
    for _ in 0..120 {
        own.skew += Duration::from_secs(1);
        if matches!(own.bring(May::Attach).await, Brought::Here(_)) {
            return;
        }
    }
    panic!("stays held");
}

#[tokio::test]
async fn who_observes_attaches_nothing() {
    let hub = hub(World { volumes: vec![volume(1, "a/a")], ..World::default() });
    let mut own = by_id(&hub, 1);
    let Brought::Refused(reason) = own.bring(May::Look).await else { panic!("not refused") };
    assert_eq!(reason.code, ReasonCode::DeviceMissing);
    assert!(!actions(&hub).contains(&"AttachVolume".to_owned()));
}

#[tokio::test]
async fn the_guards_of_a_machine_ask_together() {
    let hub = hub(World { volumes: vec![volume(1, "a/a"), volume(2, "b/b")], ..World::default() });
    let (mut one, mut two) = (by_id(&hub, 1), by_id(&hub, 2));
    tokio::join!(one.bring(May::Attach), two.bring(May::Attach));
    assert_eq!(actions(&hub).iter().filter(|action| *action == "DescribeVolumes").count(), 1, "{:?}", actions(&hub));
}

#[tokio::test]
async fn masters_that_boot_together_each_get_a_member_and_no_two_the_same() {
    // Three machines on one account: each fake instance calls itself `i-here`, so each has a world of its own view, and what
    // is taken between look and AttachVolume is played by the fault.
    let faults = vec![("AttachVolume", Code::VolumeInUse)];
    let hub = hub(World { volumes: vec![volume(1, "a/a,b"), volume(2, "b/a,b")], faults, ..World::default() });
    let mut own = by_tag(&hub);
    let Brought::Here(whereabouts) = until_news(&mut own).await else { panic!("not here") };
    assert_eq!(whereabouts.volume.0, "vol-00000002", "the first was taken by a faster one");
    let attached: Vec<String> =
        world(&hub).calls.iter().filter(|call| call.starts_with("AttachVolume")).cloned().collect();
    assert!(attached[0].contains("vol-00000001") && attached[1].contains("vol-00000002"), "{attached:?}");
}

#[tokio::test]
async fn a_volume_that_is_attached_without_a_device_is_told_once_then_waited_for_then_stuck() {
    let here = Volume { attachments: vec![attached("i-here", AttachState::Attached)], ..volume(1, "a/a") };
    let hub = hub(World { volumes: vec![here], ..World::default() });
    let mut own = by_id(&hub, 1);
    assert!(matches!(own.bring(May::Attach).await, Brought::Here(_)));
    let Brought::Waits(reason) = own.bring(May::Attach).await else { panic!("not waiting") };
    assert!(reason.message.contains("has not appeared"), "{}", reason.message);
    for _ in 0..150 {
        own.skew += Duration::from_secs(1);
        if let Brought::Refused(reason) = own.bring(May::Attach).await {
            assert_eq!(reason.code, ReasonCode::AttachStuck);
            return;
        }
    }
    panic!("waits for ever");
}

#[tokio::test]
async fn what_ec2_knows_of_a_volume_is_compared_with_the_device() {
    let hub = hub(World {
        volumes: vec![Volume { snapshot: Some("snap-1".into()), ..volume(1, "a/a") }],
        ..World::default()
    });
    let mut own = by_id(&hub, 1);
    let id = VolumeId("vol-00000001".into());
    let known = own.known_already(&facts(&id, 1 << 30));
    assert!(known.identity.seen().is_none(), "nobody was asked: {known:?}");
    let known = own.knowledge(&facts(&id, 1 << 30)).await;
    assert_eq!(known.identity, Observed::Seen(Identity::Matches));
    // 100,000 seconds are more than a day.
    let snapshot = Some("snap-1".to_owned());
    assert_eq!(
        known.origin,
        Observed::Seen(Origin::Provider { encrypted: true, from_snapshot: snapshot, young: false })
    );
    assert_eq!(known.age, Observed::Seen(VolumeAge::Old));
    let known = own.knowledge(&facts(&id, 1 << 20)).await;
    assert_eq!(known.identity, Observed::Seen(Identity::OtherSize { provider: 1 << 30, kernel: 1 << 20 }));
    assert_eq!(actions(&hub).len(), 1, "an answer is good for a minute");
    world(&hub).volumes.clear();
    own.skew += Duration::from_secs(61);
    let gone = own.knowledge(&facts(&id, 1 << 30)).await;
    assert!(gone.identity.seen().is_none() && gone.age.seen().is_none(), "{gone:?}");
}

#[tokio::test]
async fn the_other_members_volumes_are_asked_for_where_the_tags_name_a_cluster() {
    let in_cluster = |n, me: &str| {
        let mut volume = volume(n, me);
        volume.tags.insert("KubernetesCluster".to_owned(), "one".to_owned());
        volume
    };
    let hub = hub(World {
        volumes: vec![in_cluster(1, "a/a,b"), in_cluster(2, "b/a,b"), volume(3, "a/a")],
        ..World::default()
    });
    let mut own = by_id(&hub, 1);
    let Observed::Seen(Siblings::Listed { of, .. }) = own.siblings(&facts(&VolumeId("vol-00000001".into()), 1)).await
    else {
        panic!("not listed")
    };
    assert_eq!(of.iter().map(|sibling| sibling.volume.0.as_str()).collect::<Vec<_>>(), ["vol-00000002"]);
    assert!(world(&hub).calls.iter().any(|call| call.contains("Cluster") && call.contains("KubernetesCluster")));

    let mut alone = by_id(&hub, 3);
    let id = VolumeId("vol-00000003".into());
    assert_eq!(alone.siblings(&facts(&id, 1)).await, Siblings::not_named());

    // Who does not answer has not said that there are none.
    world(&hub).faults = vec![("DescribeVolumes", Code::Throttled)];
    own.skew += Duration::from_secs(30);
    assert!(own.siblings(&facts(&VolumeId("vol-00000001".into()), 1)).await.seen().is_none());
}
