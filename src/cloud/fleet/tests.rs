//! Each rule by which a volume is the odd one out, and an account with tens of thousands of volumes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::super::ec2::InstanceId;
use super::*;
use std::cell::Cell;
use std::convert::Infallible;

const MADE: i64 = 1_800_000_000;

fn volume(n: usize, cluster: &str, member: &str) -> Volume {
    let member_of = format!("{member}/a,b,c");
    Volume {
        state: VolumeState::InUse,
        zone: format!("eu-west-1{member}"),
        size: 20 << 30,
        created: Time::from_unix(MADE + n as i64),
        attachments: vec![attached(&format!("i-{n:08x}"), AttachState::Attached)],
        ..Volume::free(&format!("vol-{n:08x}"), [("KubernetesCluster", cluster), ("k8s.io/etcd/main", &member_of)])
    }
}

fn attached(instance: &str, state: AttachState) -> Attached {
    Attached {
        instance: InstanceId(instance.to_owned()),
        device: None,
        state,
        since: None,
        delete_on_termination: false,
    }
}

/// Three healthy masters.
fn three() -> Vec<Volume> {
    vec![volume(1, "one", "a"), volume(2, "one", "b"), volume(3, "one", "c")]
}

fn rows(volumes: Vec<Volume>) -> Vec<Row> {
    Fleet::of(None, std::iter::once(Ok::<_, Infallible>(volumes))).unwrap().rows().collect()
}

/// The members that stand out, and why.
fn odd(volumes: Vec<Volume>) -> Vec<(String, Vec<Odd>)> {
    rows(volumes).into_iter().filter(|row| !row.odd.is_empty()).map(|row| (row.member, row.odd)).collect()
}

fn changed(n: usize, change: impl FnOnce(&mut Volume)) -> Vec<Volume> {
    let mut volumes = three();
    change(&mut volumes[n]);
    volumes
}

#[test]
fn three_healthy_masters_are_three_rows_of_which_none_stands_out() {
    let rows = rows(three());
    assert_eq!(rows.iter().map(|row| row.member.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(rows.iter().all(|row| row.odd.is_empty()), "{rows:?}");
    assert_eq!((rows[0].cluster.as_str(), rows[0].etcd.as_str()), ("one", "main"));
    assert_eq!(
        (rows[1].attached.as_slice(), rows[1].state.as_deref()),
        (&["i-00000002".to_owned()][..], Some("in-use"))
    );
}

#[test]
fn each_rule_marks_the_one_that_it_is_about_and_no_other() {
    let b = |change: fn(&mut Volume)| odd(changed(1, change));
    for (found, rule) in [
        (b(|volume| volume.multi_attach = true), Odd::Shared),
        (b(|volume| volume.attachments.push(attached("i-9", AttachState::Attached))), Odd::Shared),
        (b(|volume| volume.attachments[0].state = AttachState::Detaching), Odd::Going),
        (b(|volume| volume.state = VolumeState::Error), Odd::Going),
        (b(|volume| volume.attachments.clear()), Odd::Unattached),
        (b(|volume| volume.created = Time::from_unix(MADE + 1 + TOGETHER + 1)), Odd::Younger),
        (b(|volume| volume.snapshot = Some("snap-1".to_owned())), Odd::FromSnapshot),
        (b(|volume| volume.size = 30 << 30), Odd::OtherSize),
        (b(|volume| volume.encrypted = false), Odd::OtherEncryption),
        (b(|volume| volume.attachments[0].delete_on_termination = true), Odd::DeletedWithInstance),
    ] {
        assert_eq!(found, [("b".to_owned(), vec![rule])]);
    }
    assert_eq!(b(|volume| volume.created = Time::from_unix(MADE + 1 + TOGETHER)), [], "an hour is not over an hour");
}

/// What the tags of a healthy member say.
fn remembered(volume: &mut Volume, n: u64) {
    for (key, value) in [
        ("volhold/volume", volume.id.to_string()),
        ("volhold/fs-uuid", uuid::Uuid::from_u128(u128::from(n)).to_string()),
        ("volhold/cluster-id", "c1".to_owned()),
        ("volhold/member-id", format!("a{n}")),
        ("volhold/data-dir", "data".to_owned()),
        ("volhold/progress", format!("keys=5 revision=7 index={} term=2", 1000 + n)),
        ("volhold/seen", Time::from_unix(MADE + 10_000 + n as i64).unwrap().to_string()),
    ] {
        volume.tags.insert(key.to_owned(), value);
    }
}

fn three_remembered(change: impl FnOnce(&mut BTreeMap<String, String>)) -> Vec<Volume> {
    let mut volumes = three();
    volumes.iter_mut().zip(1..).for_each(|(volume, n)| remembered(volume, n));
    change(&mut volumes[1].tags);
    volumes
}

#[test]
fn what_the_tags_remember_is_in_the_rows_and_marks_the_one_that_it_is_odd_about() {
    let healthy = rows(three_remembered(|_| {}));
    assert!(healthy.iter().all(|row| row.odd.is_empty()), "{healthy:?}");
    assert_eq!(healthy[0].cluster_id, Some(ClusterId(0xc1)));
    assert_eq!(healthy[0].fs_uuid, Some(FsUuid(uuid::Uuid::from_u128(1))));
    assert_eq!(healthy[0].progress.and_then(|progress| progress.index), Some(1001));
    assert_eq!(healthy[0].seen_at, Time::from_unix(MADE + 10_001));
    assert_eq!((&healthy[0].volume_id, &healthy[0].attached_to), (&healthy[0].volume, &healthy[0].attached));
    let set = |key: &'static str, value: &str| {
        let value = value.to_owned();
        odd(three_remembered(move |tags| {
            tags.insert(key.to_owned(), value);
        }))
    };
    let seen = |before_newest: i64| Time::from_unix(MADE + 10_003 - before_newest).unwrap().to_string();
    for (found, rule) in [
        (set("volhold/volume", "vol-0000dead"), Odd::CopiedTags),
        (set("volhold/cluster-id", "c2"), Odd::OtherCluster),
        (set("volhold/seen", &seen(BEHIND + 1)), Odd::Behind),
        (set("volhold/fs-uuid", "?"), Odd::Garbled),
        (odd(three_remembered(|tags| drop(tags.remove("volhold/progress")))), Odd::NoData),
        (odd(three_remembered(|tags| tags.retain(|key, _| !key.starts_with("volhold/")))), Odd::NoData),
    ] {
        assert_eq!(found, [("b".to_owned(), vec![rule])]);
    }
    assert_eq!(set("volhold/seen", &seen(BEHIND)), [], "an hour is not over an hour");
    let same = |rule| vec![("a".to_owned(), vec![rule]), ("b".to_owned(), vec![rule])];
    assert_eq!(set("volhold/fs-uuid", &uuid::Uuid::from_u128(1).to_string()), same(Odd::SameFilesystem));
    assert_eq!(set("volhold/member-id", "a1"), same(Odd::SameMember));
}

#[test]
fn a_member_that_is_late_but_has_got_as_far_is_not_behind_and_a_cluster_without_tags_is_not_odd() {
    let mut volumes = three_remembered(|_| {});
    // Nothing has been written to any of them since, so nothing was written about them.
    for volume in &mut volumes {
        volume.tags.insert("volhold/progress".to_owned(), "keys=5 index=1000".to_owned());
    }
    let seen = Time::from_unix(MADE).unwrap().to_string();
    volumes[1].tags.insert("volhold/seen".to_owned(), seen);
    assert_eq!(odd(volumes), []);
    let mut one = three();
    remembered(&mut one[0], 1);
    assert_eq!(odd(one), [], "one of three is not most");
}

#[test]
fn a_member_without_a_volume_one_with_two_and_two_on_one_instance_stand_out() {
    let mut lost = three();
    lost.remove(2);
    assert_eq!(odd(lost), [("c".to_owned(), vec![Odd::Missing])]);

    let mut copied = three();
    copied.push(volume(9, "one", "b"));
    let twice = |member: &str| (member.to_owned(), vec![Odd::Twice]);
    assert_eq!(odd(copied), [twice("b"), twice("b")]);

    let together = changed(1, |volume| volume.attachments = vec![attached("i-00000001", AttachState::Attached)]);
    let two = |member: &str| (member.to_owned(), vec![Odd::TwoOnOne]);
    assert_eq!(odd(together), [two("a"), two("b")]);

    let other = changed(1, |volume| {
        volume.tags.insert("k8s.io/etcd/main".to_owned(), "b/a,b".to_owned());
    });
    assert_eq!(odd(other), [("b".to_owned(), vec![Odd::OtherPeers])]);
}

#[test]
fn what_all_have_in_common_is_not_odd_and_two_that_differ_are_not_outvoted() {
    let all = |change: fn(&mut Volume)| {
        let mut volumes = three();
        volumes.iter_mut().for_each(change);
        odd(volumes)
    };
    assert_eq!(all(|volume| volume.attachments.clear()), [], "a cluster that is switched off");
    assert_eq!(all(|volume| volume.snapshot = Some("snap-1".to_owned())), [], "a restored cluster");
    let mut two = vec![volume(1, "one", "a"), volume(2, "one", "b")];
    for (n, volume) in two.iter_mut().enumerate() {
        volume.tags.insert("k8s.io/etcd/main".to_owned(), format!("{}/a,b", ["a", "b"][n]));
    }
    two[1].size = 30 << 30;
    assert_eq!(odd(two), []);
}

#[test]
fn other_clusters_other_etcds_and_other_peoples_volumes_do_not_mix() {
    let mut volumes = three();
    volumes.extend([volume(11, "two", "a"), volume(12, "two", "b"), volume(13, "two", "c")]);
    volumes[5].size = 30 << 30;
    for n in 21..24 {
        let mut events = volume(n, "one", ["a", "b", "c"][n - 21]);
        let member = events.tags.remove("k8s.io/etcd/main").unwrap();
        events.tags.insert("k8s.io/etcd/events".to_owned(), member);
        // On the same three masters.
        events.attachments = vec![attached(&format!("i-{:08x}", n - 20), AttachState::Attached)];
        volumes.push(events);
    }
    volumes.push(Volume { tags: BTreeMap::new(), ..volume(31, "one", "a") });
    volumes.push(Volume { state: VolumeState::Deleted, ..volume(32, "one", "a") });
    // The same volume on two pages.
    volumes.push(volume(2, "one", "b"));
    let all = rows(volumes.clone());
    assert_eq!(all.len(), 9, "{all:?}");
    assert_eq!(odd(volumes.clone()), [("c".to_owned(), vec![Odd::OtherSize])]);

    let pages = std::iter::once(Ok::<_, Infallible>(volumes));
    let one: Vec<Row> = Fleet::of(Some("two".to_owned()), pages).unwrap().rows().collect();
    assert_eq!(one.iter().map(|row| row.cluster.as_str()).collect::<Vec<_>>(), ["two"; 3]);
}

/// A page that knows how many of its kind there are.
struct Counted<'a>(Vec<Volume>, &'a Cell<usize>);

impl AsRef<[Volume]> for Counted<'_> {
    fn as_ref(&self) -> &[Volume] {
        &self.0
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.1.set(self.1.get() - 1);
    }
}

#[test]
fn thirty_thousand_volumes_are_read_with_one_page_in_memory_and_a_page_that_fails_is_no_end() {
    let pages = Cell::new(0);
    let page = |number: usize| {
        assert_eq!(pages.replace(pages.get() + 1), 0, "the last page is still there");
        let of_etcd = |n: usize| volume(n, &format!("cluster-{}", n / 3), ["a", "b", "c"][n % 3]);
        let first = number * 500;
        let each = (first..first + 500).map(|n| match n % 10 {
            // A tenth are etcd's, those of one cluster far apart.
            0 => of_etcd((n / 10 * 1009) % 3000),
            _ => Volume { tags: BTreeMap::new(), ..volume(n, "", "a") },
        });
        Counted(each.collect(), &pages)
    };
    let fleet = Fleet::of(None, (0..60).map(|number| Ok::<_, Infallible>(page(number)))).unwrap();
    let rows: Vec<Row> = fleet.rows().collect();
    assert_eq!(rows.len(), 3000);
    assert!(rows.iter().all(|row| row.odd.is_empty()), "{:?}", rows.iter().find(|row| !row.odd.is_empty()));

    let failing = (0..60).map(|number| if number == 7 { Err("throttled") } else { Ok(page(number)) });
    assert_eq!(Fleet::of(None, failing).err(), Some("throttled"), "half of a fleet is not shown as if it were all");
}

#[test]
fn every_mark_has_words_of_its_own() {
    let words: BTreeSet<&str> = Odd::ALL.iter().map(|odd| odd.words()).collect();
    assert_eq!(words.len(), Odd::ALL.len());
}

/// What the pages come to, in this order; the token of each is its number.
struct Script(std::cell::RefCell<Vec<Result<Vec<Volume>, Code>>>, std::cell::RefCell<Vec<Option<String>>>);

impl Pages for Script {
    async fn page(&self, _: Option<&str>, _: Option<&str>, after: Option<String>) -> Result<Page, ApiError> {
        self.1.borrow_mut().push(after);
        let mut left = self.0.borrow_mut();
        match left.remove(0) {
            Ok(volumes) => Ok((volumes, (!left.is_empty()).then(|| left.len().to_string()))),
            Err(code) => Err(ApiError { code, action: "DescribeVolumes", said: String::new() }),
        }
    }
}

async fn list(script: Vec<Result<Vec<Volume>, Code>>) -> (Result<Vec<Row>, Code>, Vec<Option<String>>, usize) {
    let script = Script(script.into(), Vec::new().into());
    let pauses = Cell::new(0);
    let fleet = listed(&script, None, None, 1, async |pause: Duration| {
        assert!(pause >= Duration::from_secs(4), "{pause:?}");
        pauses.set(pauses.get() + 1);
    });
    let rows = fleet.await.map(|fleet| fleet.rows().collect()).map_err(|error| error.code);
    (rows, script.1.into_inner(), pauses.get())
}

#[tokio::test]
async fn pages_follow_one_another_and_one_that_is_throttled_is_asked_for_again() {
    let each = || three().into_iter().map(|volume| Ok(vec![volume]));
    let mut script: Vec<_> = each().collect();
    script.insert(1, Err(Code::Throttled));
    script.insert(1, Err(Code::NoAnswer));
    let (rows, asked, pauses) = list(script).await;
    assert_eq!(rows.unwrap(), super::tests::rows(three()));
    let token = |token: &str| Some(token.to_owned());
    assert_eq!(asked, [None, token("4"), token("4"), token("4"), token("1")]);
    assert_eq!(pauses, 2);
}

#[tokio::test]
async fn a_listing_that_does_not_come_to_its_end_is_no_fleet() {
    let (rows, _, pauses) = list(vec![Ok(three()), Err(Code::Unauthorized)]).await;
    assert_eq!((rows, pauses), (Err(Code::Unauthorized), 0));
    let mut script = vec![Ok(three())];
    script.extend((0..MOST_TRIES).map(|_| Err(Code::Throttled)));
    let (rows, asked, pauses) = list(script).await;
    assert_eq!((rows, asked.len(), pauses), (Err(Code::Throttled), 1 + MOST_TRIES, MOST_TRIES - 1));
}
