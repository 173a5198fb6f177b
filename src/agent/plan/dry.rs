//! Answers the machine's actions: what only looks is done, what acts is listed.

use super::words;
use crate::act::fsck::{self, FsckError};
use crate::act::mount::{self, View, ViewError};
use crate::agent::clock::boot_millis;
use crate::agent::evidence::{self, Asked, LOOK, SHORT, known, start_evidence};
use crate::agent::find::{self, FoundAt, Sought};
use crate::agent::machine::{Action, Event, Failure, Found, Guard, Place};
use crate::agent::memory::Memory;
use crate::agent::publish;
use crate::agent::stuck::{Stuck, blocking};
use crate::agent::volume_root::{self, VolumeRoot};
use crate::cloud::{Client, Hub, Local, Provider, VolumeProvider};
use crate::config::GuardConfig;
use crate::decide::format::FormatPermit;
use crate::device::{ClaimError, Device, Sysfs, uses};
use crate::model::{
    BootId, BootMillis, DeviceFacts, DeviceReading, DeviceSpec, DeviceUse, Fact, FilesystemFacts, FsUuid, Fstype, Mode,
    Observed, PlanStep, Publish, PublishDir, Reason, ReasonCode, SnapshotPolicy, StartEvidence, StepAction, VolumeId,
    Why,
};
use crate::probe::ProbeRequest;
use crate::worker::{self, Deadline};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What came of an action.
pub enum Answer {
    Event(Event),
    Events(Vec<Event>),
    /// Nothing follows from it.
    Done,
    /// What follows can only be known by doing it.
    Unknown(String),
}

/// When the look happens that is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    Now,
    /// After an orderly reboot: nothing is mounted, no etcd runs, the gate has not opened yet.
    NextBoot,
}

/// A driver that does nothing.
pub struct Dry<'a> {
    pub scene: Scene,
    config: &'a GuardConfig,
    run: &'a Path,
    memory: Memory,
    progress: &'a mut dyn FnMut(u64, u64),
    device: Option<Arc<Device>>,
    facts: Option<DeviceFacts>,
    filesystem: Option<FilesystemFacts>,
    /// What of the volume is published where, without links.
    mounted: Vec<PublishDir>,
    view: Option<View>,
    /// The filesystem is one that mkfs would make.
    new: bool,
    /// Kept on the node by then.
    supposed: Vec<Fact>,
    steps: Vec<PlanStep>,
    provider: Provider,
}

impl<'a> Dry<'a> {
    pub fn new(config: &'a GuardConfig, run: &'a Path, memory: Memory, progress: &'a mut dyn FnMut(u64, u64)) -> Self {
        let hub = Arc::new(Hub::new(Client::default()));
        Dry {
            scene: Scene::Now,
            config,
            run,
            memory,
            progress,
            device: None,
            facts: None,
            filesystem: None,
            mounted: Vec::new(),
            view: None,
            new: false,
            supposed: Vec::new(),
            steps: Vec::new(),
            provider: Provider::new(&hub, &config.device, config.member.as_deref(), 0),
        }
    }

    /// Forgets what an earlier look supposed.
    pub fn begin(&mut self) {
        self.view = None;
        self.new = false;
        self.supposed.clear();
        self.filesystem = None;
    }

    pub fn device_facts(&self) -> Option<DeviceFacts> {
        self.facts.clone()
    }

    /// The volume, or some directory of it, is mounted where the guard publishes it.
    pub fn mounted(&self) -> bool {
        !self.mounted.is_empty()
    }

    pub fn take_steps(&mut self) -> Vec<PlanStep> {
        std::mem::take(&mut self.steps)
    }

    pub async fn answer(&mut self, action: Action, guard: &Guard) -> Answer {
        match action {
            Action::Find => self.find().await,
            // Whoever only looks has nothing attached, and cannot know what would come.
            Action::Bring => Answer::Unknown(words::NOT_ATTACHED.to_owned()),
            Action::Claim => self.claim().await,
            Action::Probe => {
                let reading = self.probe().await;
                // Reading what EC2 knows changes nothing, and decides about a device without a filesystem.
                if let (Provider::Ebs(ebs), None, Some(facts)) = (&mut self.provider, &reading.filesystem, &self.facts)
                {
                    let known = ebs.knowledge(facts).await;
                    return Answer::Events(vec![Event::Known(Box::new(known)), Event::Read(Box::new(reading))]);
                }
                Answer::Event(Event::Read(Box::new(reading)))
            }
            Action::LockAndReread { digest, size } => self.read_again(digest, size).await,
            Action::ReadLedger => self.read_ledger().await,
            Action::Mkfs(permit) => self.format(&permit),
            Action::Fsck => self.check().await,
            Action::NoFsck(why) => {
                let recorded = and(self.finish_own_format().await, "fsck");
                self.add(StepAction::Check, why, false, true, recorded);
                Answer::Event(Event::Unchecked(Ok(())))
            }
            Action::Mount => self.mount().await,
            Action::Look => self.look().await,
            Action::LookThroughMount => self.look_through_mount().await,
            Action::Publish { facts, data_dir, create } => self.publish(&facts, &data_dir, create).await,
            Action::OpenGate { facts, data_dir, how: _ } => {
                self.record(&facts);
                let again = guard.gate_was_open();
                let at = self.place_of(&data_dir);
                self.add(StepAction::Open, words::open(&at, again), false, false, Vec::new());
                Answer::Done
            }
            // A held device is claimed, or stays claimed: nothing else happens to it.
            Action::Secure => Answer::Done,
            Action::LetGo => {
                self.add(StepAction::LetGo, "nothing is claimed until then".to_owned(), false, false, Vec::new());
                Answer::Done
            }
            Action::Decide(decided) => {
                let recorded = vec!["start".to_owned()];
                self.add(StepAction::Decide, words::decided(&decided, guard), false, true, recorded);
                Answer::Done
            }
            Action::Record(facts) => {
                self.record(&facts);
                Answer::Done
            }
        }
    }

    fn add(&mut self, action: StepAction, detail: impl Into<String>, writes: bool, seen: bool, recorded: Vec<String>) {
        self.steps.push(PlanStep { action, detail: detail.into(), writes, seen, recorded });
    }

    async fn find(&mut self) -> Answer {
        let found = match self.scene {
            Scene::Now => self.find_now().await,
            Scene::NextBoot => match self.facts.clone() {
                Some(facts) => Ok(FoundAt { facts, place: Place::Free, mounted: Vec::new(), gate_open: false }),
                None => Err(Reason::new(ReasonCode::DeviceMissing, "the device is not known")),
            },
        };
        let mut found = match found {
            Ok(found) => found,
            Err(reason) => {
                self.add(StepAction::Find, words::not_found(&self.config.device), false, true, Vec::new());
                return Answer::Event(match (&self.config.device, reason.code) {
                    (DeviceSpec::Ebs(_), ReasonCode::DeviceMissing) => Event::NotHere,
                    (_, _) => Event::NotFound(reason),
                });
            }
        };
        self.add(StepAction::Find, words::found(&found.facts, self.scene), false, true, Vec::new());
        match self.scene {
            Scene::Now => {
                self.facts = Some(found.facts.clone());
                self.mounted = found.mounted.clone();
            }
            Scene::NextBoot => found.facts.uses.retain(|other| !matches!(other, DeviceUse::Mount { .. })),
        }
        let mut found: Found = known(&self.memory, &self.provider, found).await;
        if self.scene == Scene::NextBoot {
            found.boot_id = BootId("the next boot".to_owned());
        }
        Answer::Event(Event::Found(Box::new(found)))
    }

    async fn find_now(&mut self) -> Result<FoundAt, Reason> {
        let sought = Sought {
            spec: self.config.device.clone(),
            volumes: find::volumes_of(&self.config.device, &self.memory),
            attached_as: None,
            // What enforce would find, also for a guard that observes.
            mode: Mode::Enforce,
            publish: self.config.publish.clone(),
            run: self.run.to_owned(),
            guard: self.config.name.clone(),
            memory: self.memory.clone(),
        };
        let (device, found) = match blocking(SHORT, move || find::look(&sought)).await {
            Ok(looked) => looked?,
            Err(stuck) => return Err(stuck.reason("looking for the device")),
        };
        self.device = Some(Arc::new(device));
        Ok(found)
    }

    /// Claiming, even for a moment, would make the system's own mount fail. So what can be seen of other users is looked at.
    async fn claim(&mut self) -> Answer {
        let facts = self.facts.clone();
        let hidden = match (self.scene, &self.device, facts) {
            (Scene::Now, Some(device), Some(facts)) => {
                let device = device.clone();
                let looked = blocking(SHORT, move || {
                    let hidden = uses::hidden_mounts(&facts);
                    if hidden.is_empty() {
                        return None;
                    }
                    let openers = device.openers();
                    Some(ClaimError::InUse { node: device.node().to_owned(), uses: hidden, openers })
                });
                match looked.await {
                    Ok(hidden) => hidden.map(|error| error.reason()),
                    Err(stuck) => Some(stuck.reason("claiming the device")),
                }
            }
            (Scene::NextBoot, _, _) | (Scene::Now, _, _) => None,
        };
        self.add(StepAction::Claim, words::claim(self.facts.as_ref()), false, hidden.is_some(), Vec::new());
        Answer::Event(Event::Claimed(hidden.map_or(Ok(()), Err)))
    }

    async fn probe(&mut self) -> DeviceReading {
        let reading = self.read(true).await;
        self.add(StepAction::Read, words::reading(&reading), false, true, Vec::new());
        reading
    }

    async fn read(&mut self, full_scan: bool) -> DeviceReading {
        let reader = self.reader();
        let reading = match reader {
            Ok(reader) => {
                let size = self.facts.as_ref().map_or(0, |facts| facts.size);
                let request = ProbeRequest { full_scan, direct: true };
                worker::probe(reader, &request, Deadline::for_bytes(size), &mut *self.progress).await
            }
            Err(detail) => DeviceReading {
                libblkid: Observed::Unknown(Why::Unreadable { detail: detail.clone() }),
                content: Observed::Unknown(Why::Unreadable { detail }),
                filesystem: None,
            },
        };
        self.filesystem = reading.filesystem.clone();
        reading
    }

    fn reader(&self) -> Result<OwnedFd, String> {
        match &self.device {
            Some(device) => device.reader().map(OwnedFd::from).map_err(|error| error.to_string()),
            None => Err("the device is not open".to_owned()),
        }
    }

    async fn read_again(&mut self, digest: String, size: u64) -> Answer {
        let second = match self.reader() {
            Ok(reader) => worker::second_reading(reader, digest, size, Deadline::quiet(LOOK)).await,
            Err(detail) => Observed::Unknown(Why::Unreadable { detail }),
        };
        self.add(StepAction::ReadAgain, words::read_again(&second), false, true, Vec::new());
        Answer::Event(Event::Reread { second, now: boot_millis().unwrap_or(BootMillis(0)) })
    }

    fn format(&mut self, permit: &FormatPermit) -> Answer {
        let uuid = FsUuid(uuid::Uuid::new_v4());
        let facts = vec![
            Fact::FormatIntent {
                fs_uuid: uuid,
                devnum: permit.devnum(),
                diskseq: permit.diskseq(),
                evidence_digest: permit.evidence_digest().to_owned(),
            },
            Fact::Formatted { fs_uuid: uuid },
        ];
        let recorded = kinds(&facts);
        self.supposed.extend(facts);
        self.new = true;
        self.filesystem = Some(FilesystemFacts {
            fstype: self.config.fstype.as_str().to_owned(),
            uuid: Some(uuid),
            label: None,
            made_at: None,
            last_mounted: None,
            unknown_features: Vec::new(),
            clean: Some(true),
        });
        self.add(StepAction::Format, words::format(self.config.fstype), true, false, recorded);
        Answer::Event(Event::Made(Ok(uuid)))
    }

    /// What stands here was made by volhold, and only the record of its end is missing: then that is made up for.
    async fn finish_own_format(&mut self) -> Vec<String> {
        let Some(uuid) = self.filesystem.as_ref().and_then(|filesystem| filesystem.uuid) else { return Vec::new() };
        let records = evidence::of_node(&self.memory, &self.volume_id()).await;
        let begun = match &records {
            Observed::Seen(records) => records.open_intent.as_ref().is_some_and(|intent| intent.fs_uuid == uuid),
            Observed::Unknown(_) => false,
        };
        if !begun {
            return Vec::new();
        }
        self.supposed.push(Fact::Formatted { fs_uuid: uuid });
        vec!["format".to_owned()]
    }

    async fn check(&mut self) -> Answer {
        let before = self.finish_own_format().await;
        if self.scene == Scene::NextBoot {
            let recorded = and(and(before, "fsck"), "fsck");
            self.add(StepAction::Check, words::CHECK_AT_BOOT, true, false, recorded);
            return Answer::Event(Event::Checked(Ok(())));
        }
        let clean = self.filesystem.as_ref().is_some_and(|filesystem| filesystem.clean == Some(true));
        if !clean {
            self.snapshot();
            self.add(StepAction::Check, words::CHECK_WRITES, true, false, and(before, "fsck"));
            return Answer::Unknown(words::UNKNOWN_CHECK.to_owned());
        }
        match self.with_device(|device| fsck::ext4_foresee(device, fsck::DEFAULT_LIMIT)).await {
            Ok(Ok(_clean)) => {
                let recorded = and(and(before, "fsck"), "fsck");
                self.add(StepAction::Check, words::CHECK_CLEAN, false, true, recorded);
                Answer::Event(Event::Checked(Ok(())))
            }
            Ok(Err(FsckError::Refused { output, .. })) => {
                self.snapshot();
                self.add(StepAction::Check, words::CHECK_WRITES, true, false, and(before, "fsck"));
                Answer::Unknown(words::unknown_repair(&output))
            }
            Ok(Err(error)) => {
                self.add(StepAction::Check, words::CHECK_WRITES, true, true, and(before, "fsck"));
                let tool_output = error.output().map(str::to_owned);
                Answer::Event(Event::Checked(Err(Failure { reason: error.reason(), tool_output })))
            }
            Err(stuck) => {
                Answer::Event(Event::Checked(Err(Failure { reason: stuck.reason("fsck"), tool_output: None })))
            }
        }
    }

    /// What comes before a repair that writes.
    fn snapshot(&mut self) {
        let recorded = vec!["snapshot".to_owned()];
        match self.config.snapshot {
            SnapshotPolicy::Off => {}
            SnapshotPolicy::BestEffort => {
                self.add(
                    StepAction::Snapshot,
                    "take a snapshot of the volume, where that can be had",
                    false,
                    false,
                    recorded,
                );
            }
            SnapshotPolicy::Required => {
                self.add(StepAction::Snapshot, "take a snapshot of the volume, or hold", false, false, recorded);
            }
        }
    }

    async fn read_ledger(&mut self) -> Answer {
        let uuid = self.filesystem.as_ref().and_then(|filesystem| filesystem.uuid);
        let records = if self.scene == Scene::NextBoot {
            match self.mounted_root().await {
                Ok(root) => evidence::of_both(&self.memory, &self.volume_id(), uuid, &root, &self.supposed).await,
                Err(detail) => Observed::Unknown(Why::Unreadable { detail }),
            }
        } else {
            let (fstype, memory, volume) = (self.config.fstype, self.memory.clone(), self.volume_id());
            let read = self.with_device(move |device| {
                let view =
                    View::unreplayed(device, fstype, &Sysfs::default()).map_err(|error| crate::agent::chain(&error))?;
                let root = view.root().map_err(|error| crate::agent::chain(&error))?;
                Ok(memory.of_both(&volume, uuid, root.as_fd()))
            });
            match read.await {
                Ok(Ok(records)) => records,
                Ok(Err(detail)) => Observed::Unknown(Why::Unreadable { detail }),
                Err(stuck) => Observed::Unknown(stuck.why("reading the volume's ledger")),
            }
        };
        self.add(StepAction::ReadLedger, words::READ_LEDGER, false, true, Vec::new());
        Answer::Event(Event::Remembered(Box::new(records)))
    }

    async fn mount(&mut self) -> Answer {
        let replays = self.config.fstype == Fstype::Xfs;
        if self.new || self.scene == Scene::NextBoot {
            self.add(StepAction::Mount, words::mount(self.config.fstype), true, false, Vec::new());
            return Answer::Event(Event::Mounted(Ok(())));
        }
        let (fstype, options) = (self.config.fstype, self.config.mount_options.clone());
        let viewed = self.with_device(move |device| View::of(device, fstype, &options, &Sysfs::default())).await;
        match viewed {
            Ok(Ok(view)) => {
                self.add(StepAction::Mount, words::mount(fstype), true, false, Vec::new());
                self.view = Some(view);
                Answer::Event(Event::Mounted(Ok(())))
            }
            Ok(Err(ViewError::Mount(error))) => {
                self.add(StepAction::Mount, words::mount(fstype), true, true, Vec::new());
                Answer::Event(Event::Mounted(Err(Failure { reason: error.reason(), tool_output: None })))
            }
            Ok(Err(error @ (ViewError::Unreplayed | ViewError::Loop(_) | ViewError::Device(_)))) => {
                self.add(StepAction::Mount, words::mount(fstype), true, false, Vec::new());
                Answer::Unknown(words::unknown_behind(&error, replays))
            }
            Err(stuck) => {
                Answer::Event(Event::Mounted(Err(Failure { reason: stuck.reason("mounting"), tool_output: None })))
            }
        }
    }

    async fn look(&mut self) -> Answer {
        if self.scene == Scene::NextBoot {
            return self.look_as_at_boot().await;
        }
        let root = match (&self.view, self.new) {
            (_, true) => match blocking(SHORT, mount::empty).await {
                Ok(Ok(root)) => Ok(VolumeRoot::from(root)),
                Ok(Err(error)) => return Answer::Unknown(words::unknown_empty(&error)),
                Err(stuck) => Err(stuck.words("looking at the new filesystem")),
            },
            (Some(view), false) => view.root().map(VolumeRoot::from).map_err(|error| crate::agent::chain(&error)),
            (None, false) => Err("the volume is not mounted".to_owned()),
        };
        let seen = self.evidence(root).await;
        self.add(StepAction::Look, words::looked(&seen, self.new), false, true, Vec::new());
        Answer::Event(Event::Looked(Box::new(seen)))
    }

    /// The data is seen through the mount that is there, and an etcd that runs on it now will not run then.
    async fn look_as_at_boot(&mut self) -> Answer {
        let root = self.mounted_root().await;
        let mut seen = self.evidence(root).await;
        seen.records = match self.mounted_root().await {
            // A fresh start that this boot has used is not to be had again in another one.
            Ok(root) => {
                let uuid = self.filesystem.as_ref().and_then(|filesystem| filesystem.uuid);
                evidence::of_both(&self.memory, &self.volume_id(), uuid, &root, &self.supposed).await
            }
            Err(detail) => Observed::Unknown(Why::Unreadable { detail }),
        };
        if let Observed::Seen(running) = &mut seen.running {
            *running = None;
        }
        if let Observed::Seen(volume) = &mut seen.volume {
            volume.data_dirs.iter_mut().for_each(|dir| dir.locked_by = None);
        }
        self.add(StepAction::Look, words::looked(&seen, false), false, true, Vec::new());
        Answer::Event(Event::Looked(Box::new(seen)))
    }

    async fn look_through_mount(&mut self) -> Answer {
        if self.filesystem.is_none() {
            let _reading = self.read(false).await;
        }
        let root = self.mounted_root().await;
        let seen = self.evidence(root).await;
        self.add(StepAction::Look, words::looked(&seen, false), false, true, Vec::new());
        Answer::Event(Event::Looked(Box::new(seen)))
    }

    /// Where only directories are published, the whole volume is mounted beside them for as long as it is read: detached and
    /// read-only, over the superblock that is there.
    async fn mounted_root(&self) -> Result<VolumeRoot, String> {
        let fstype = self.config.fstype;
        let entries = if self.mounted.is_empty() { self.places().entries().to_vec() } else { self.mounted.clone() };
        let Some(devnum) = self.facts.as_ref().map(|facts| facts.devnum) else {
            return Err("the device is not known".to_owned());
        };
        match blocking(SHORT, move || volume_root::open(&entries, devnum, fstype, false)).await {
            Ok(Ok(root)) => Ok(root),
            Ok(Err(error)) => Err(crate::agent::chain(&error)),
            Err(stuck) => Err(stuck.words("opening the mounted volume")),
        }
    }

    async fn evidence(&mut self, root: Result<VolumeRoot, String>) -> StartEvidence {
        let mut provider = std::mem::replace(&mut self.provider, Provider::Local(Local));
        let seen = start_evidence(&self.asked(), &mut provider, root).await;
        self.provider = provider;
        seen
    }

    fn asked(&self) -> Asked<'_> {
        Asked {
            config: self.config,
            run: self.run,
            memory: &self.memory,
            volume_id: self.volume_id(),
            device: self.facts.as_ref(),
            filesystem: self.filesystem.as_ref(),
            supposed: &self.supposed,
        }
    }

    fn volume_id(&self) -> VolumeId {
        match &self.facts {
            Some(facts) => facts.volume_id.clone(),
            None => self.config.device.unseen_id(),
        }
    }

    fn places(&self) -> Publish {
        self.config.publish.of_volume(&self.volume_id())
    }

    async fn publish(&mut self, facts: &[Fact], data_dir: &str, create: bool) -> Answer {
        let places = self.places();
        let config = GuardConfig { publish: places.clone(), ..self.config.clone() };
        let foreseen = match self.scene {
            // At the next boot nothing is mounted there.
            Scene::NextBoot => Ok(Ok(config.publish.entries().iter().map(|entry| (entry.clone(), false)).collect())),
            Scene::Now => {
                let present = self.mounted.clone();
                blocking(SHORT, move || publish::foresee(&config, &present, create)).await
            }
        };
        let moved: Vec<(PublishDir, bool)> = match foreseen {
            Ok(Ok(moved)) => moved,
            Ok(Err(failure)) => {
                for at in places.paths() {
                    self.add(StepAction::Seal, words::seal(at, false), false, true, Vec::new());
                }
                return Answer::Event(Event::Published(Err(failure)));
            }
            Err(stuck) => {
                let reason = stuck.reason("publishing");
                return Answer::Event(Event::Published(Err(Failure { reason, tool_output: None })));
            }
        };
        for (entry, missing) in &moved {
            self.add(StepAction::Seal, words::seal(&entry.at, *missing), false, false, Vec::new());
        }
        let mut recorded = kinds(facts);
        recorded.extend(moved.iter().map(|_| "publish".to_owned()));
        let made = create.then_some((data_dir, self.config));
        self.add(StepAction::Record, words::record(facts, made), true, false, recorded);
        for (entry, _) in &moved {
            self.add(StepAction::Publish, words::publish(entry), false, false, Vec::new());
        }
        Answer::Event(Event::Published(Ok(())))
    }

    /// Where etcd finds its data dir.
    fn place_of(&self, data_dir: &str) -> PathBuf {
        let places = self.places();
        let published = self.mounted.iter().chain(places.entries());
        let mut seen = published.filter_map(|entry| entry.place_of(data_dir));
        seen.next().unwrap_or_else(|| places.main(None).join(data_dir))
    }

    fn record(&mut self, facts: &[Fact]) {
        if !facts.is_empty() {
            self.add(StepAction::Record, words::record(facts, None), true, false, kinds(facts));
        }
    }

    /// Runs work on the device on a thread of its own.
    async fn with_device<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Device) -> T + Send + 'static,
    ) -> Result<T, Stuck> {
        let Some(device) = self.device.clone() else { return Err(Stuck::NotOpen) };
        blocking(fsck::DEFAULT_LIMIT.saturating_add(SHORT), move || work(&device)).await
    }
}

fn kinds(facts: &[Fact]) -> Vec<String> {
    facts.iter().map(|fact| fact.word().to_owned()).collect()
}

/// The words, and one more.
fn and(mut words: Vec<String>, word: &str) -> Vec<String> {
    words.push(word.to_owned());
    words
}
