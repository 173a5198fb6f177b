//! What a guard decides on, gathered: by the agent that acts, and by `volhold plan`, which only says what it would do.

use super::clock::boot_millis;
use super::find::FoundAt;
use super::machine::Found;
use super::memory::Memory;
use super::stuck::blocking;
use super::volume_root::VolumeRoot;
use crate::cloud::{Local, VolumeProvider};
use crate::config::GuardConfig;
use crate::etcd::VolumeHints;
use crate::model::{DeviceFacts, Fact, FilesystemFacts, FsUuid, Observed, Records, StartEvidence, Time, VolumeId, Why};
use crate::worker::{self, Deadline};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Longest that a short act on a device may take (open, ioctl, claim, mount).
pub const SHORT: Duration = Duration::from_secs(60);
/// Longest that reading the data dirs may take, besides what their size asks for.
pub const LOOK: Duration = Duration::from_secs(120);

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

/// What provider and node know of the device that was found.
pub async fn known(memory: &Memory, found: FoundAt) -> Found {
    let FoundAt { facts, place, mounted: _, gate_open } = found;
    let knowledge = Local.knowledge(&facts).await;
    Found {
        records: of_node(memory, &facts.volume_id).await,
        identity: knowledge.identity,
        origin: knowledge.origin,
        gate_open,
        boot_id: memory.here.boot_id.clone(),
        now: Time::now(),
        now_boot: boot_millis(),
        facts,
        place,
    }
}

/// Everything that the start decision is made on. `root`: the volume's root, or why it cannot be opened.
pub async fn start_evidence(asked: &Asked<'_>, root: Result<VolumeRoot, String>) -> StartEvidence {
    let volume_id = asked.volume_id.clone();
    let filesystem = match asked.filesystem {
        Some(filesystem) => Observed::Seen(filesystem.clone()),
        None => Observed::Unknown(Why::Unreadable { detail: "the superblock was not understood".to_owned() }),
    };
    let age = match asked.device {
        Some(facts) => Local.knowledge(facts).await.age,
        None => Observed::not_run("the device is not known"),
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
                age,
            };
        }
    };
    let mut records = of_both(asked.memory, &volume_id, asked.fs_uuid(), &root, asked.supposed).await;
    if let Observed::Seen(records) = &mut records {
        super::same_allowance(records, asked.run, &asked.config.name, &asked.memory.here.boot_id, asked.fs_uuid());
    }
    let hints = asked.hints();
    let (volume, running) = match (root.try_clone(), root.try_clone()) {
        (Ok(first), Ok(second)) => (
            worker::examine_volume(first, &hints, Deadline::quiet(LOOK)).await,
            worker::running(second, &hints, Deadline::quiet(LOOK)).await,
        ),
        (Err(error), _) | (_, Err(error)) => {
            let why = Why::Unreadable { detail: error.to_string() };
            (Observed::Unknown(why.clone()), Observed::Unknown(why))
        }
    };
    StartEvidence { volume_id, filesystem, volume, records, running, age }
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
