//! A thousand masters boot within a minute in one account, by a clock that is only counted: the real back-off, selection and
//! way of a volume, each machine with a hub of its own, against EC2's token buckets.
//!
//! Buckets are per account, region and action, and hold what the EC2 developer guide ("Request throttling") gives: 100
//! requests and 20 more a second for those that look, 50 and 5 for those that change. A refused request costs no token. So
//! nobody can bring a thousand volumes in less than 190 s, and that is what a result is measured by.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

use super::super::super::ec2::{AttachState, Attached, InstanceId, InstanceState, VolumeState};
use super::super::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Mutex, MutexGuard};

const MASTERS: usize = 1000;
/// Masters after these are members of kops clusters of three, whose volumes are told by their tags, all in one zone.
const BY_ID: usize = 700;
const MINUTE: u64 = 60_000;
/// How long after an AttachVolume the kernel shows the device, at most. Milliseconds, as all times here.
const LATEST_DEVICE: u64 = 3_500;
/// The guard looks again once a second while it waits.
const LOOKS: u64 = 1000;
/// When the last of a thousand volumes can be attached at the earliest: 50 at once, then 5 a second.
const EARLIEST: u64 = 190_000;

#[derive(Debug, Clone)]
struct Bucket {
    holds: u64,
    a_second: u64,
    /// Thousandths of a token.
    tokens: u64,
    at: u64,
}

impl Bucket {
    fn new(holds: u64, a_second: u64) -> Self {
        Bucket { holds, a_second, tokens: holds * 1000, at: 0 }
    }

    fn take(&mut self, now: u64) -> bool {
        self.tokens = (self.tokens + (now - self.at) * self.a_second).min(self.holds * 1000);
        self.at = now;
        let enough = self.tokens >= 1000;
        self.tokens -= if enough { 1000 } else { 0 };
        enough
    }
}

struct Account {
    now: u64,
    buckets: BTreeMap<&'static str, Bucket>,
    volumes: BTreeMap<VolumeId, Volume>,
    /// By instance: when its volume was attached.
    attached: BTreeMap<InstanceId, u64>,
    calls: BTreeMap<InstanceId, Vec<&'static str>>,
    refused: u64,
}

/// One machine's view of the account.
struct Seat {
    account: Arc<Mutex<Account>>,
    here: Here,
}

impl Seat {
    fn call(&self, action: &'static str) -> Result<MutexGuard<'_, Account>, ApiError> {
        let mut account = self.account.lock().unwrap();
        account.calls.entry(self.here.instance.clone()).or_default().push(action);
        let now = account.now;
        if account.buckets.get_mut(action).is_none_or(|bucket| bucket.take(now)) {
            return Ok(account);
        }
        account.refused += 1;
        Err(ApiError { code: Code::Throttled, action, said: String::new() })
    }
}

impl Ec2 for Seat {
    async fn here(&self) -> Result<Here, ApiError> {
        Ok(self.here.clone())
    }

    async fn volumes(&self, _here: &Here, ask: &Ask) -> Result<Answer, ApiError> {
        let account = self.call("DescribeVolumes")?;
        let volumes = match ask {
            Ask::Ids(ids) => ids.iter().filter_map(|id| account.volumes.get(id)).cloned().collect(),
            Ask::TagKeys { zone, keys } => {
                let asked =
                    |volume: &&Volume| volume.zone == *zone && keys.iter().any(|key| volume.tags.contains_key(key));
                account.volumes.values().filter(asked).cloned().collect()
            }
            Ask::Cluster { .. } => panic!("nobody asks for others' volumes on the way of one's own"),
        };
        Ok(Answer { volumes, at: Time::from_unix(1_800_000_000) })
    }

    async fn instance(&self, _here: &Here, id: &InstanceId) -> Result<Option<Instance>, ApiError> {
        drop(self.call("DescribeInstances")?);
        Ok(Some(Instance { id: id.clone(), state: InstanceState::Running, devices: vec!["/dev/xvda".to_owned()] }))
    }

    async fn attach(&self, here: &Here, volume: &VolumeId, device: &str) -> Result<(), ApiError> {
        let mut account = self.call("AttachVolume")?;
        let now = account.now;
        let found = account.volumes.get_mut(volume).expect("a volume of this account");
        if !found.attachments.is_empty() {
            return Err(ApiError { code: Code::VolumeInUse, action: "AttachVolume", said: String::new() });
        }
        found.state = VolumeState::InUse;
        found.attachments.push(Attached {
            instance: here.instance.clone(),
            device: Some(device.to_owned()),
            state: AttachState::Attached,
            since: None,
            delete_on_termination: false,
        });
        assert_eq!(account.attached.insert(here.instance.clone(), now), None, "{} took two volumes", here.instance);
        Ok(())
    }

    async fn tag(&self, _here: &Here, _volume: &VolumeId, _tags: &[(&'static str, String)]) -> Result<(), ApiError> {
        unreachable!("nothing is open here")
    }
}

/// A master that boots.
struct Master {
    volume: EbsVolume<Seat>,
    instance: InstanceId,
    boots: u64,
    /// How long after the attach its kernel shows the device.
    device_takes: u64,
    open: Option<u64>,
}

/// What the masters of one account do.
struct Rush {
    account: Arc<Mutex<Account>>,
    masters: Vec<Master>,
}

/// The same seed gives the same numbers, and they are spread evenly.
fn random(seed: u64, what: u64) -> u64 {
    let digest = <sha2::Sha256 as sha2::Digest>::digest([seed.to_le_bytes(), what.to_le_bytes()].concat());
    u64::from_le_bytes(digest[..8].try_into().unwrap())
}

impl Rush {
    fn new(seed: u64, masters: usize, by_id: usize, buckets: &[(&'static str, Bucket)], jitter: bool) -> Self {
        let account = Arc::new(Mutex::new(Account {
            now: 0,
            buckets: buckets.iter().cloned().collect(),
            volumes: BTreeMap::new(),
            attached: BTreeMap::new(),
            calls: BTreeMap::new(),
            refused: 0,
        }));
        let masters = (0..masters).map(|n| Master::new(&account, seed, n, by_id, jitter)).collect();
        Rush { account, masters }
    }

    /// Until all are open, or for an hour.
    async fn run(mut self) -> Outcome {
        let mut next: BinaryHeap<Reverse<(u64, usize)>> =
            self.masters.iter().enumerate().map(|(n, master)| Reverse((master.boots, n))).collect();
        while let Some(Reverse((now, n))) = next.pop() {
            if now > 60 * MINUTE {
                break;
            }
            self.account.lock().unwrap().now = now;
            let attached = self.account.lock().unwrap().attached.get(&self.masters[n].instance).copied();
            let master = &mut self.masters[n];
            if attached.is_some_and(|at| at + master.device_takes <= now) {
                // The kernel's hint.
                master.open = Some(now);
                continue;
            }
            master.volume.skew = Duration::from_millis(now - master.boots);
            loop {
                master.volume.bring(May::Attach).await;
                // On a machine that is slow enough it comes back before its answer is there.
                if master.volume.task.is_none() {
                    break;
                }
            }
            // The looks before the provider would ask again come to what the last one came to.
            let due = master.volume.due.duration_since(master.volume.now()).as_millis() as u64;
            let attached = self.account.lock().unwrap().attached.get(&master.instance).copied();
            let shown = attached.map_or(u64::MAX, |at| at + master.device_takes);
            next.push(Reverse(((now + due.div_ceil(LOOKS).max(1) * LOOKS).min(shown.max(now)), n)));
        }
        self.outcome()
    }

    fn outcome(self) -> Outcome {
        let account = self.account.lock().unwrap();
        let mut took: Vec<u64> =
            self.masters.iter().filter_map(|master| master.open.map(|at| at - master.boots)).collect();
        took.sort_unstable();
        let calls = |master: &Master| account.calls.get(&master.instance).map_or(0, Vec::len);
        let holders: BTreeSet<&InstanceId> = account
            .volumes
            .values()
            .flat_map(|volume| &volume.attachments)
            .map(|attached| &attached.instance)
            .collect();
        Outcome {
            open: took.len(),
            holders: holders.len(),
            last: self.masters.iter().filter_map(|master| master.open).max().unwrap_or(0),
            median: took.get(took.len() / 2).copied().unwrap_or(0),
            longest: took.last().copied().unwrap_or(0),
            calls: self.masters.iter().map(calls).sum(),
            most_calls: self.masters.iter().map(calls).max().unwrap_or(0),
            refused: account.refused,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    open: usize,
    /// Different instances that have a volume.
    holders: usize,
    /// When the last one opened.
    last: u64,
    /// From a master's own boot until it is open.
    median: u64,
    longest: u64,
    calls: usize,
    most_calls: usize,
    refused: u64,
}

impl Master {
    fn new(account: &Arc<Mutex<Account>>, seed: u64, n: usize, by_id: usize, jitter: bool) -> Self {
        // Each cluster has a zone to itself, so that the answer to a question by tag is as small as one of a small account.
        let cluster = n.saturating_sub(by_id) / 3;
        let zone = if n < by_id { "z".to_owned() } else { format!("z{cluster}") };
        let id = VolumeId(format!("vol-{n:08x}"));
        let member = ["a", "b", "c"][n.saturating_sub(by_id) % 3];
        let me = format!("{member}/a,b,c");
        let tags = [("k8s.io/etcd/main", me.as_str())];
        let volume = Volume { zone: zone.clone(), ..Volume::free(&id.0, tags) };
        account.lock().unwrap().volumes.insert(id.clone(), volume);
        let instance = InstanceId(format!("i-{n:08x}"));
        let spec = if n < by_id {
            EbsSpec::Id(id)
        } else {
            EbsSpec::Tags(vec![TagSpec { key: "k8s.io/etcd/main".to_owned(), value: None }])
        };
        let here = Here { instance: instance.clone(), zone, region: "r".to_owned() };
        let numbered = |what: u64| random(seed, what * MASTERS as u64 + n as u64);
        let hub = Arc::new(Hub::without_gathering(Seat { account: account.clone(), here }));
        let mut volume = EbsVolume::new(hub, spec, None, numbered(0));
        if !jitter {
            volume.backoff = Backoff::without_jitter();
        }
        let device_takes = 1000 + numbered(2) % (LATEST_DEVICE - 1000);
        Master { volume, instance, boots: numbered(1) % MINUTE, device_takes, open: None }
    }
}

fn buckets() -> [(&'static str, Bucket); 3] {
    [
        ("DescribeVolumes", Bucket::new(100, 20)),
        ("DescribeInstances", Bucket::new(100, 20)),
        ("AttachVolume", Bucket::new(50, 5)),
    ]
}

/// The figures are printed with `--nocapture`; `benches/README.md` has them.
#[tokio::test]
async fn a_thousand_masters_that_boot_within_a_minute_all_open_and_nobody_starves() {
    for (jitter, seed) in [(true, 1), (true, 2), (false, 1)] {
        let outcome = Rush::new(seed, MASTERS, BY_ID, &buckets(), jitter).run().await;
        println!("jitter {jitter}, seed {seed}: {outcome:?}");
        assert_eq!((outcome.open, outcome.holders), (MASTERS, MASTERS), "{outcome:?}");
        assert!(outcome.last < 2 * EARLIEST && outcome.longest < 2 * EARLIEST, "somebody starves: {outcome:?}");
        // What is refused is asked for again, and must not be what keeps the account throttled.
        assert!(outcome.calls < 15 * MASTERS && outcome.most_calls < 50, "{outcome:?}");
    }
}

#[tokio::test]
async fn the_same_seed_gives_the_same_rush_and_another_one_another() {
    let run = async |seed| {
        Rush::new(seed, 90, 30, &buckets().map(|(action, _)| (action, Bucket::new(5, 1))), true).run().await
    };
    let one = run(1).await;
    assert!(one.refused > 0 && one.open == 90, "{one:?}");
    assert_eq!(one, run(1).await);
    assert_ne!(one, run(2).await);
}

#[tokio::test]
async fn a_boot_that_nobody_disturbs_takes_three_calls_by_id_and_by_tags() {
    for (masters, by_id) in [(200, 200), (1, 0)] {
        let rush = Rush::new(3, masters, by_id, &[], true);
        let outcome = rush.run().await;
        assert_eq!((outcome.open, outcome.refused), (masters, 0), "{outcome:?}");
        assert_eq!(outcome.most_calls, 3, "one look, one for the device names, one to attach: {outcome:?}");
    }
}
