//! What a guard decides on, gathered: by the agent that acts, and by `volhold plan`, which only says what it would do.

use super::clock::boot_millis;
use super::find::FoundAt;
use super::machine::Found;
use super::memory::Memory;
use super::stuck::blocking;
use super::to_run::to_run;
use super::volume_root::VolumeRoot;
use crate::cloud::{Knowledge, Provider, VolumeProvider};
use crate::config::GuardConfig;
use crate::etcd::VolumeHints;
use crate::model::{
    DeviceFacts, Fact, FilesystemFacts, FsUuid, Observed, Records, Siblings, StartEvidence, Time, VolumeAge, VolumeId,
    VolumeReading, Why, Witness,
};
use crate::worker::{self, Deadline};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Longest that a short act on a device may take (open, ioctl, claim, mount).
pub const SHORT: Duration = Duration::from_secs(60);
/// Longest that reading the data dirs may take, besides what their size asks for.
pub const LOOK: Duration = Duration::from_secs(120);
/// How long EC2 is given to say what it remembers of a volume with data that no ledger knows.
const MOMENT: Duration = Duration::from_secs(5);

/// Whose data dirs are looked at, and for whom.
pub struct Asked<'a> {
    pub config: &'a GuardConfig,
    pub run: &'a Path,
    pub memory: &'a Memory,
    pub volume_id: VolumeId,
    pub device: Option<&'a DeviceFacts>,
    pub filesystem: Option<&'a FilesystemFacts>,
    /// Facts that would stand in the node's ledger by then, and do not yet.
    pub supposed: &'a [Fact],
}

impl Asked<'_> {
    fn fs_uuid(&self) -> Option<FsUuid> {
        self.filesystem.and_then(|filesystem| filesystem.uuid)
    }

    fn hints(&self) -> VolumeHints {
        VolumeHints {
            data_dir: self.config.data_dir.clone(),
            publish: self.config.publish.sources(),
            fs_uuid: self.fs_uuid(),
            volume_id: Some(self.volume_id.clone()),
        }
    }
}

/// What the node knows of the device that was found, and the provider without being asked: existing data needs no cloud.
pub async fn known(memory: &Memory, provider: &Provider, found: FoundAt) -> Found {
    let FoundAt { facts, place, mounted: _, gate_open } = found;
    let knowledge = provider.known_already(&facts);
    Found {
        records: of_node(memory, &facts.volume_id).await,
        identity: knowledge.identity,
        origin: knowledge.origin,
        witness: knowledge.witness,
        gate_open,
        boot_id: memory.here.boot_id.clone(),
        now: Time::now(),
        now_boot: boot_millis(),
        facts,
        place,
    }
}

/// Everything that the start decision is made on. `root`: the volume's root, or why it cannot be opened. The provider is asked
/// only where there is nothing on the volume: how old it is decides then.
pub async fn start_evidence(
    asked: &Asked<'_>,
    provider: &mut Provider,
    root: Result<VolumeRoot, String>,
) -> StartEvidence {
    let volume_id = asked.volume_id.clone();
    let filesystem = match asked.filesystem {
        Some(filesystem) => Observed::Seen(filesystem.clone()),
        None => Observed::Unknown(Why::Unreadable { detail: "the superblock was not understood".to_owned() }),
    };
    let root = match root {
        Ok(root) => root,
        Err(detail) => {
            let why = Why::Unreadable { detail };
            return StartEvidence {
                volume_id: volume_id.clone(),
                filesystem,
                volume: Observed::Unknown(why.clone()),
                records: of_node(asked.memory, &volume_id).await,
                running: Observed::Unknown(why),
                age: Observed::not_run("the volume cannot be opened"),
                siblings: Observed::not_run("the volume cannot be opened"),
                witness: Observed::not_run("the volume cannot be opened"),
                to_run: Observed::not_run("the volume cannot be opened"),
            };
        }
    };
    let mut records = of_both(asked.memory, &volume_id, asked.fs_uuid(), &root, asked.supposed).await;
    if let Observed::Seen(records) = &mut records {
        super::same_allowance(records, asked.run, &asked.config.name, &asked.memory.here.boot_id, asked.fs_uuid());
    }
    let hints = asked.hints();
    let (volume, running) = match root.try_clone() {
        Ok(root) => worker::examine_volume(root, &hints, Deadline::quiet(LOOK)).await,
        Err(error) => {
            let why = Why::Unreadable { detail: error.to_string() };
            (Observed::Unknown(why.clone()), Observed::Unknown(why))
        }
    };
    let age = age(asked.device, provider, &volume).await;
    let siblings = siblings(asked.device, provider, &volume).await;
    let witness = witness(asked.device, provider, &volume, &records).await;
    let to_run = to_run(asked.config).await;
    StartEvidence { volume_id, filesystem, volume, records, running, age, siblings, witness, to_run }
}

fn holds_data(volume: &Observed<VolumeReading>) -> bool {
    volume.seen().is_some_and(|volume| volume.data_dirs.iter().any(|dir| dir.populated))
}

async fn siblings(
    device: Option<&DeviceFacts>,
    provider: &mut Provider,
    volume: &Observed<VolumeReading>,
) -> Observed<Siblings> {
    match (provider, device) {
        (Provider::Local(_), _) => Siblings::not_named(),
        (Provider::Ebs(_), None) => Observed::not_run("the device is not known"),
        (Provider::Ebs(_), Some(_)) if holds_data(volume) => {
            Observed::not_run("there is data: the age of other volumes decides nothing")
        }
        (Provider::Ebs(ebs), Some(facts)) => ebs.siblings(facts).await,
    }
}

/// Where the ledgers pin an identity, the tags were made from that pin, and nobody is asked. Where they pin nothing and there
/// is data, EC2 has a moment to contradict: data that nobody knows starts without it, too.
async fn witness(
    device: Option<&DeviceFacts>,
    provider: &mut Provider,
    volume: &Observed<VolumeReading>,
    records: &Observed<Records>,
) -> Observed<Option<Witness>> {
    match (provider, device) {
        (Provider::Local(_), _) => Observed::Seen(None),
        (Provider::Ebs(_), None) => Observed::not_run("the device is not known"),
        (Provider::Ebs(_), Some(_)) if records.seen().is_some_and(|records| records.pin.is_some()) => {
            Observed::not_run("the ledgers say whose data this is")
        }
        (Provider::Ebs(ebs), Some(facts)) if holds_data(volume) => {
            match tokio::time::timeout(MOMENT, ebs.knowledge(facts)).await {
                Ok(knowledge) => knowledge.witness,
                Err(_late) => {
                    Observed::Unknown(Why::TimedOut { detail: "EC2 did not say what tags are on it".to_owned() })
                }
            }
        }
        (Provider::Ebs(ebs), Some(facts)) => ebs.knowledge(facts).await.witness,
    }
}

async fn age(
    device: Option<&DeviceFacts>,
    provider: &mut Provider,
    volume: &Observed<VolumeReading>,
) -> Observed<VolumeAge> {
    let Some(facts) = device else { return Observed::not_run("the device is not known") };
    match provider {
        Provider::Local(local) => local.known().age,
        Provider::Ebs(_) if holds_data(volume) => {
            Knowledge::not_asked("there is data: the volume's age decides nothing").age
        }
        Provider::Ebs(ebs) => ebs.knowledge(facts).await.age,
    }
}

/// What the node alone remembers.
pub async fn of_node(memory: &Memory, volume_id: &VolumeId) -> Observed<Records> {
    let (memory, volume_id) = (memory.clone(), volume_id.clone());
    match blocking(SHORT, move || memory.of_node(&volume_id)).await {
        Ok(records) => records,
        Err(stuck) => Observed::Unknown(stuck.why("reading the node's ledger")),
    }
}

/// What node and volume remember together, as if the supposed facts had been kept too.
pub async fn of_both(
    memory: &Memory,
    volume_id: &VolumeId,
    fs_uuid: Option<FsUuid>,
    root: &VolumeRoot,
    supposed: &[Fact],
) -> Observed<Records> {
    let root = match root.try_clone() {
        Ok(root) => root,
        Err(error) => return Observed::Unknown(Why::Unreadable { detail: error.to_string() }),
    };
    let (memory, volume_id, supposed) = (memory.clone(), volume_id.clone(), supposed.to_vec());
    let folded = blocking(SHORT, move || memory.of_both_supposing(&volume_id, fs_uuid, root.as_fd(), &supposed)).await;
    match folded {
        Ok(records) => records,
        Err(stuck) => Observed::Unknown(stuck.why("reading the ledgers of node and volume")),
    }
}
