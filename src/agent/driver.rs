//! Drives one guard: performs the actions of its state machine and turns what comes of them into events.
//!
//! Everything that may block (ioctls on a stalled disk, fsck, mount, ledgers) runs on a thread of its own with a time limit: a device
//! that hangs in the kernel costs that thread and a hold, never the agent.

use super::board::Board;
use super::clock::{Here, boot_millis};
use super::find::{self, Sought};
use super::machine::{Action, Decided, Event, Failure, Found, Guard, GuardPolicy, State, step};
use super::memory::Memory;
use super::publish;
use super::rounds::{Rounds, Wake};
use crate::act::{fsck, mkfs, mount, mount::DetachedMount, seal};
use crate::cloud::{Local, VolumeProvider};
use crate::config::{self, Config, GuardConfig, Paths};
use crate::device::{Device, UdevLock};
use crate::etcd::VolumeHints;
use crate::fault::fault_point;
use crate::gate::{files, notify};
use crate::model::{
    BootMillis, Decision, DecisionVerdict, DeviceReading, Fact, FilesystemFacts, FsUuid, Gate, GuardStatus, Mode,
    Observed, Progress, Reason, ReasonCode, Records, StartEvidence, StartKind, Time, VolumeId, Why,
};
use crate::probe::ProbeRequest;
use crate::worker::{self, Deadline};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Longest that a short act on a device may take (open, ioctl, claim, mount).
const SHORT: Duration = Duration::from_secs(60);
/// Longest that reading the data dirs may take, besides what their size asks for.
const LOOK: Duration = Duration::from_secs(120);
/// fsck replays a journal or checks it all; its own limit is 30 minutes.
const FSCK: Duration = Duration::from_secs(31 * 60);
/// mkfs without lazy initialisation writes inode tables: 20 GiB take seconds, 16 TiB minutes. Its own limit is 30 minutes:
/// waiting must not end before the tool does, or the device would be looked at while mkfs still writes.
const MKFS: Duration = Duration::from_secs(31 * 60);

/// What the agent wants of a guard, as the configuration has it now.
#[derive(Debug, Clone)]
pub enum Order {
    /// With what was held back of it already.
    Run(Box<GuardConfig>, Vec<Reason>),
    /// It is not configured any more.
    Leave,
}

/// One guard and everything it holds.
pub struct Driver {
    config: GuardConfig,
    /// What the configuration wants and an open gate holds back.
    held_back: Vec<Reason>,
    paths: Paths,
    run: PathBuf,
    memory: Memory,
    board: Arc<Board>,
    guard: Guard,
    device: Option<Device>,
    mount: Option<DetachedMount>,
    lock: Option<UdevLock>,
    filesystem: Option<FilesystemFacts>,
    /// Where the volume is mounted, when it was found mounted or was published.
    mounted_at: Option<PathBuf>,
    progress: Option<Progress>,
    since: Time,
    shown: Option<(Gate, Vec<Reason>, Vec<Reason>)>,
    decided: Option<(DecisionVerdict, Vec<Reason>, Vec<Reason>)>,
    rounds: Rounds,
}

impl Driver {
    pub fn new(config: GuardConfig, whole: &Config, here: Here, board: Arc<Board>, rounds: Rounds) -> Self {
        let policy = policy(&config);
        let memory = Memory { state: whole.paths.state.clone(), guard: config.name.clone(), here };
        Driver {
            held_back: Vec::new(),
            paths: whole.paths.clone(),
            run: whole.paths.run.clone(),
            memory,
            board,
            guard: Guard::new(policy),
            device: None,
            mount: None,
            lock: None,
            filesystem: None,
            mounted_at: None,
            progress: None,
            since: Time::now(),
            shown: None,
            decided: None,
            rounds,
            config,
        }
    }

    /// Runs until the agent is told to stop, or the guard to leave. Leaves gate, mounts and etcd as they are.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>, mut orders: watch::Receiver<Order>) {
        if let Order::Run(_same, held_back) = &*orders.borrow_and_update() {
            self.held_back = held_back.clone();
        }
        self.tell_held_back();
        self.report();
        let mut event = Some(Event::LookAgain);
        loop {
            if let Some(event) = event.take() {
                self.follow(event, &stop).await;
            }
            if *stop.borrow() {
                break;
            }
            let wake = tokio::select! {
                wake = self.rounds.next(&self.guard.state) => Some(wake),
                order = orders.changed() => match order {
                    Ok(()) => None,
                    Err(_agent_ended) => break,
                },
                _ = stop.changed() => break,
            };
            event = match wake {
                Some(Wake::LookAgain) => Some(Event::LookAgain),
                Some(Wake::Mark) => Some(self.mark().await),
                None => {
                    let order = orders.borrow_and_update().clone();
                    match (self.obey(order).await, orders.has_changed()) {
                        (true, _) => Some(Event::LookAgain),
                        // Configured again meanwhile: the next order says how.
                        (false, Ok(true)) => None,
                        (false, Ok(false) | Err(_)) => return,
                    }
                }
            };
        }
        // Whatever progress is durable by now is kept, in the time that a stop leaves.
        if let State::Open { .. } = self.guard.state {
            let last = tokio::time::timeout(Duration::from_secs(5), self.mark()).await;
            if let Ok(event) = last {
                self.follow(event, &stop).await;
            }
        }
    }

    /// Takes a new configuration, as far as an open gate allows it. `false`: the guard has let everything go, and ends.
    async fn obey(&mut self, order: Order) -> bool {
        let open = super::standing::is_open(&self.run, &self.config.name, &self.memory.here.boot_id);
        let (config, held_back) = match order {
            Order::Run(wanted, held_back) if open => {
                let (config, told) = config::hold_back(&self.config, &wanted);
                let told = super::standing::reasons(told);
                // The agent has compared with the same running configuration, unless the gate opened since.
                (config, if told.is_empty() { held_back } else { told })
            }
            Order::Run(wanted, _) => (*wanted, Vec::new()),
            Order::Leave if open => {
                let told = config::removal_held_back(&self.config);
                (self.config.clone(), super::standing::reasons(vec![told]))
            }
            Order::Leave => {
                tracing::warn!(event = "guard.removed", guard = %self.config.name, "not configured any more: lets its device go");
                self.let_go().await;
                self.board.remove(&self.config.name);
                return false;
            }
        };
        let elsewhere = config.device != self.config.device || config.mode != self.config.mode;
        if elsewhere && !open {
            // A claim on what is not this guard's any more must not stay, with us or with systemd.
            self.let_go().await;
        }
        if config != self.config {
            tracing::info!(event = "guard.reconfigured", guard = %config.name, "takes its new configuration");
            // The same verdict about something else is another decision.
            self.decided = None;
        }
        self.guard.policy = policy(&config);
        self.rounds.reconfigure(config.mode);
        self.config = config;
        self.held_back = held_back;
        self.tell_held_back();
        if open {
            self.keep_running();
        }
        true
    }

    fn tell_held_back(&self) {
        for reason in &self.held_back {
            tracing::warn!(event = "config.held-back", guard = %self.config.name, "{}", reason.message);
        }
    }

    /// Keeps what the gate is open with, for the agent's next start in this boot and for `gate check`.
    fn keep_running(&self) {
        let whole = Config { guards: Vec::new(), paths: self.paths.clone() };
        let text = config::running_text(&self.config, &whole);
        if let Err(error) = files::write_running(&self.run, &self.config.name, &text) {
            tracing::error!(event = "config.unkept", guard = %self.config.name, error = %super::chain(&error), "what the gate is open with was not kept");
        }
    }

    /// Feeds one event and performs what follows from it, until nothing does.
    async fn follow(&mut self, event: Event, stop: &watch::Receiver<bool>) {
        let mut queue = VecDeque::from(self.feed(event));
        self.report_progress(&queue);
        while let Some(action) = queue.pop_front() {
            if *stop.borrow() && !finishes(&action) {
                tracing::info!(event = "guard.stopping", guard = %self.config.name, "stops before {action:?}");
                return;
            }
            if let Some(event) = self.perform(action).await {
                queue.extend(self.feed(event));
            }
            self.report_progress(&queue);
        }
    }

    /// A verdict is told when what makes it true is done: the ready file of an open gate, the claim and the kept decision of
    /// a held one. Whoever acts on the status must not come too early.
    fn report_progress(&mut self, queue: &VecDeque<Action>) {
        let verdict = match self.guard.gate() {
            Gate::Open | Gate::Held => true,
            Gate::Waiting => false,
        };
        if !verdict || queue.is_empty() {
            self.report();
        }
    }

    fn feed(&mut self, event: Event) -> Vec<Action> {
        let (guard, actions) = step(self.guard.clone(), event);
        self.guard = guard;
        actions
    }

    async fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Find => Some(self.find().await),
            Action::Claim => Some(self.claim().await),
            Action::Probe => Some(Event::Read(Box::new(self.probe(true).await))),
            Action::LockAndReread { digest, size } => Some(self.lock_and_reread(digest, size).await),
            Action::Mkfs(permit) => Some(self.mkfs(*permit).await),
            Action::Fsck => Some(self.fsck().await),
            Action::NoFsck(why) => Some(self.no_fsck(why).await),
            Action::Mount => Some(self.mount().await),
            Action::Look => Some(self.look().await),
            Action::LookThroughMount => Some(self.look_through_mount().await),
            Action::Publish { facts, data_dir, create } => Some(self.publish(facts, data_dir, create).await),
            Action::OpenGate { facts, data_dir, how } => {
                self.open_gate(facts, data_dir, how).await;
                None
            }
            Action::Secure => {
                self.secure().await;
                None
            }
            Action::LetGo => {
                self.let_go().await;
                None
            }
            Action::Decide(decided) => {
                self.decide(*decided).await;
                None
            }
            Action::Record(facts) => {
                self.record(&facts).await;
                None
            }
        }
    }

    fn volume_id(&self) -> VolumeId {
        match self.guard.device() {
            Some(facts) => facts.volume_id.clone(),
            None => VolumeId(format!("local:{}", find::spec_words(&self.config.device))),
        }
    }

    fn fs_uuid(&self) -> Option<FsUuid> {
        self.filesystem.as_ref().and_then(|filesystem| filesystem.uuid)
    }

    fn hints(&self) -> VolumeHints {
        VolumeHints {
            data_dir: self.config.data_dir.clone(),
            fs_uuid: self.fs_uuid(),
            volume_id: Some(self.volume_id()),
        }
    }

    // ---- finding and claiming

    async fn find(&mut self) -> Event {
        self.drop_mount().await;
        self.filesystem = None;
        self.seal_early().await;
        let sought = Sought {
            spec: self.config.device.clone(),
            mode: self.config.mode,
            publish: self.config.publish.clone(),
            run: self.run.clone(),
            guard: self.config.name.clone(),
            memory: self.memory.clone(),
        };
        let device = self.device.take();
        match blocking(SHORT, move || find::find(&sought, device)).await {
            Ok((device, outcome)) => {
                self.device = device;
                match outcome {
                    Ok(found) => {
                        fault_point("after-find");
                        self.mounted_at = found.mounted_at.clone();
                        let node = std::path::Path::new(&found.facts.node);
                        self.rounds.device(node.file_name().map(|name| name.to_string_lossy().into_owned()));
                        Event::Found(Box::new(self.known(found).await))
                    }
                    Err(reason) => {
                        self.rounds.device(None);
                        Event::NotFound(reason)
                    }
                }
            }
            Err(stuck) => Event::NotFound(stuck.reason("looking for the device")),
        }
    }

    /// From the first look on nothing can be written where the volume will be mounted: a static pod asks no gate and would
    /// start an etcd on the root disk, also while the volume is held or missing. Publishing seals again and insists.
    async fn seal_early(&self) {
        if self.config.mode == Mode::Observe {
            return;
        }
        let at = self.config.publish.clone();
        match blocking(SHORT, move || seal::seal(&at)).await {
            Ok(Ok(_sealed)) => {}
            Ok(Err(error)) => {
                tracing::debug!(event = "seal.early", guard = %self.config.name, error = %super::chain(&error), "not sealed yet");
            }
            Err(stuck) => {
                tracing::warn!(event = "seal.stuck", guard = %self.config.name, "{}", stuck.why("sealing").detail());
            }
        }
    }

    /// What provider and node know of the device that was found.
    async fn known(&self, found: find::FoundAt) -> Found {
        let find::FoundAt { facts, place, mounted_at: _, gate_open } = found;
        let knowledge = Local.knowledge(&facts).await;
        Found {
            records: self.of_node(&facts.volume_id).await,
            identity: knowledge.identity,
            origin: knowledge.origin,
            gate_open,
            boot_id: self.memory.here.boot_id.clone(),
            now: Time::now(),
            facts,
            place,
        }
    }

    async fn claim(&mut self) -> Event {
        let outcome = self
            .with_device(SHORT, |device| {
                if device.claimed() {
                    return Ok(());
                }
                device.claim().map_err(|error| error.reason())
            })
            .await;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(stuck) => Err(stuck.reason("claiming the device")),
        };
        if outcome.is_ok() {
            self.store_claim();
            fault_point("after-claim");
        }
        Event::Claimed(outcome)
    }

    /// Lets systemd keep the claim while the agent is restarted.
    fn store_claim(&self) {
        if let Some(fd) = self.device.as_ref().and_then(Device::claim_fd) {
            notify::store(&self.config.name, fd);
        }
    }

    /// The copy in systemd's store is a claim too: whoever needs the device needs it gone.
    async fn unstore_claim(&self) {
        let name = self.config.name.clone();
        let _gone = blocking(Duration::from_secs(5), move || notify::unstore(&name)).await;
    }

    // ---- reading bytes

    async fn probe(&mut self, full_scan: bool) -> DeviceReading {
        let missing = |detail: String| DeviceReading {
            libblkid: Observed::Unknown(Why::Unreadable { detail: detail.clone() }),
            content: Observed::Unknown(Why::Unreadable { detail }),
            filesystem: None,
        };
        let reader = match self.reader() {
            Ok(reader) => reader,
            Err(detail) => return missing(detail),
        };
        let size = self.guard.device().map_or(0, |facts| facts.size);
        let request = ProbeRequest { full_scan, direct: true };
        let started = Instant::now();
        let (board, template) = (self.board.clone(), self.status());
        let mut last = Instant::now();
        let reading = worker::probe(reader, &request, Deadline::for_bytes(size), |done, total| {
            if last.elapsed() >= Duration::from_secs(1) {
                last = Instant::now();
                let progress = reading_progress(done, total, started.elapsed());
                board.report(GuardStatus { progress: Some(progress), ..template.clone() });
            }
        })
        .await;
        self.filesystem = reading.filesystem.clone();
        fault_point("after-probe");
        reading
    }

    fn reader(&self) -> Result<OwnedFd, String> {
        match &self.device {
            Some(device) => device.reader().map(OwnedFd::from).map_err(|error| error.to_string()),
            None => Err("the device is not open".to_owned()),
        }
    }

    async fn lock_and_reread(&mut self, digest: String, size: u64) -> Event {
        let now = boot_millis().unwrap_or(BootMillis(0));
        let locked = self.with_device(SHORT, |device| device.lock_for_udev().map_err(|error| error.to_string())).await;
        let second = match locked {
            Ok(Ok(lock)) => {
                self.lock = Some(lock);
                fault_point("after-lock");
                match self.reader() {
                    Ok(reader) => worker::second_reading(reader, digest, size, Deadline::quiet(LOOK)).await,
                    Err(detail) => Observed::Unknown(Why::Unreadable { detail }),
                }
            }
            Ok(Err(detail)) => {
                Observed::Unknown(Why::NotRun { detail: format!("the device's lock was not to be had: {detail}") })
            }
            Err(stuck) => Observed::Unknown(stuck.why("locking the device")),
        };
        fault_point("after-second-reading");
        Event::Reread { second, now }
    }

    // ---- acting on the device

    async fn mkfs(&mut self, permit: crate::decide::format::FormatPermit) -> Event {
        let uuid = FsUuid(uuid::Uuid::new_v4());
        let facts = self.guard.device().cloned();
        let Some(facts) = facts else {
            return Event::Made(Err(failure(ReasonCode::MkfsFailed, "the device is not open".to_owned())));
        };
        let intent = Fact::FormatIntent {
            fs_uuid: uuid,
            devnum: permit.devnum(),
            diskseq: permit.diskseq(),
            evidence_digest: permit.evidence_digest().to_owned(),
        };
        fault_point("before-intent");
        if let Err(reason) = self.keep(&facts.volume_id, None, vec![intent]).await {
            return Event::Made(Err(Failure { reason, tool_output: None }));
        }
        fault_point("after-intent");
        tracing::info!(event = "format.begins", guard = %self.config.name, node = %facts.node, uuid = %uuid, "proven blank: makes a filesystem");
        self.unstore_claim().await;
        let Some(now) = boot_millis() else {
            return Event::Made(Err(failure(ReasonCode::MkfsFailed, "the kernel does not tell the time".to_owned())));
        };
        let fstype = self.config.fstype;
        let made = self
            .with_device(MKFS, move |device| {
                mkfs::make(permit, device, fstype, uuid, now, mkfs::DEFAULT_LIMIT)
                    .map(|made| made.uuid)
                    .map_err(|error| Failure { reason: error.reason(), tool_output: None })
            })
            .await;
        self.lock = None;
        self.store_claim();
        let made = match made {
            Ok(made) => made,
            Err(stuck) => Err(Failure { reason: stuck.reason("mkfs"), tool_output: None }),
        };
        if let Ok(uuid) = made {
            fault_point("after-mkfs");
            let fact = Fact::Formatted { fs_uuid: uuid };
            if let Err(reason) = self.keep(&facts.volume_id, Some(uuid), vec![fact]).await {
                return Event::Made(Err(Failure { reason, tool_output: None }));
            }
            fault_point("after-formatted");
            // Read as any filesystem is: what mkfs says of itself is not what the kernel will mount.
            let reading = self.probe(false).await;
            if reading.filesystem.as_ref().and_then(|filesystem| filesystem.uuid) != Some(uuid) {
                let message = format!("the new filesystem does not read back as {uuid}");
                return Event::Made(Err(failure(ReasonCode::MkfsFailed, message)));
            }
        }
        Event::Made(made)
    }

    async fn fsck(&mut self) -> Event {
        let (volume_id, fs_uuid) = (self.volume_id(), self.fs_uuid());
        if let Err(failure) = self.keep_own_format().await {
            return Event::Checked(Err(failure));
        }
        fault_point("before-fsck");
        let begins = Fact::Fsck { exit: None, output: String::new() };
        if let Err(reason) = self.note(&volume_id, fs_uuid, begins).await {
            return Event::Checked(Err(Failure { reason, tool_output: None }));
        }
        fault_point("after-fsck-recorded");
        self.unstore_claim().await;
        let says_clean = self.filesystem.as_ref().is_some_and(|filesystem| filesystem.clean == Some(true));
        let checked = self
            .with_device(FSCK, move |device| {
                fsck::ext4_check(device, says_clean, fsck::DEFAULT_LIMIT).map_err(|error| {
                    let tool_output = error.output().map(str::to_owned);
                    Failure { reason: error.reason(), tool_output }
                })
            })
            .await;
        self.store_claim();
        let checked = match checked {
            Ok(checked) => checked,
            Err(stuck) => Err(Failure { reason: stuck.reason("fsck"), tool_output: None }),
        };
        match checked {
            Ok(fsck) => {
                fault_point("after-fsck");
                let ended = Fact::Fsck { exit: Some(fsck.exit), output: fsck.output };
                match self.note(&volume_id, fs_uuid, ended).await {
                    Ok(()) => {
                        fault_point("after-fsck-ended");
                        Event::Checked(Ok(()))
                    }
                    Err(reason) => Event::Checked(Err(Failure { reason, tool_output: None })),
                }
            }
            Err(failure) => Event::Checked(Err(failure)),
        }
    }

    /// Mounting writes: that it comes next, without fsck, is on record before it does.
    async fn no_fsck(&mut self, why: &str) -> Event {
        if let Err(failure) = self.keep_own_format().await {
            return Event::Unchecked(Err(failure));
        }
        let (volume_id, fs_uuid) = (self.volume_id(), self.fs_uuid());
        let kept = self.note(&volume_id, fs_uuid, Fact::NotChecked { why: why.to_owned() }).await;
        Event::Unchecked(kept.map_err(|reason| Failure { reason, tool_output: None }))
    }

    /// Where mkfs had finished and only its record was lost with a crash, the record is made up for.
    async fn keep_own_format(&mut self) -> Result<(), Failure> {
        let (true, Some(uuid)) = (self.finishes_own_format().await, self.fs_uuid()) else { return Ok(()) };
        let volume_id = self.volume_id();
        let kept = self.keep(&volume_id, Some(uuid), vec![Fact::Formatted { fs_uuid: uuid }]).await;
        kept.map_err(|reason| Failure { reason, tool_output: None })
    }

    /// The record has an open intent for exactly the filesystem that stands.
    async fn finishes_own_format(&self) -> bool {
        match self.of_node(&self.volume_id()).await {
            Observed::Seen(records) => {
                records.open_intent.as_ref().is_some_and(|intent| Some(intent.fs_uuid) == self.fs_uuid())
            }
            Observed::Unknown(_) => false,
        }
    }

    async fn mount(&mut self) -> Event {
        self.unstore_claim().await;
        let (fstype, options) = (self.config.fstype, self.config.mount_options.clone());
        let mounted = self
            .with_device(SHORT, move |device| {
                mount::examine(device, fstype.as_str(), &options)
                    .map_err(|error| Failure { reason: error.reason(), tool_output: None })
            })
            .await;
        match mounted {
            Ok(Ok(mount)) => {
                self.mount = Some(mount);
                fault_point("after-mount");
                Event::Mounted(Ok(()))
            }
            Ok(Err(failure)) => Event::Mounted(Err(failure)),
            Err(stuck) => Event::Mounted(Err(Failure { reason: stuck.reason("mounting"), tool_output: None })),
        }
    }

    // ---- reading data dirs

    async fn look(&mut self) -> Event {
        let root = match &self.mount {
            Some(mount) => mount.root().map_err(|error| super::chain(&error)),
            None => Err("the volume is not mounted".to_owned()),
        };
        let evidence = self.evidence(root).await;
        fault_point("after-look");
        Event::Looked(Box::new(evidence))
    }

    async fn look_through_mount(&mut self) -> Event {
        if self.filesystem.is_none() {
            // The superblock tells which filesystem this is; a mounted device is read beside its mount.
            let _reading = self.probe(false).await;
        }
        let root = self.mounted_root().await;
        Event::Looked(Box::new(self.evidence(root).await))
    }

    /// The root of the mount that is there, which must be the device's own.
    async fn mounted_root(&self) -> Result<OwnedFd, String> {
        let at = self.mounted_at.clone().unwrap_or_else(|| self.config.publish.clone());
        let devnum = self.guard.device().map(|facts| facts.devnum);
        let Some(devnum) = devnum else { return Err("the device is not known".to_owned()) };
        match blocking(SHORT, move || publish::open_root(&at, devnum)).await {
            Ok(Ok(root)) => Ok(root),
            Ok(Err(error)) => Err(super::chain(&error)),
            Err(stuck) => Err(stuck.why("opening the mounted volume").detail().to_owned()),
        }
    }

    async fn evidence(&self, root: Result<OwnedFd, String>) -> StartEvidence {
        let volume_id = self.volume_id();
        let filesystem = match &self.filesystem {
            Some(filesystem) => Observed::Seen(filesystem.clone()),
            None => Observed::Unknown(Why::Unreadable { detail: "the superblock was not understood".to_owned() }),
        };
        let age = match self.guard.device() {
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
                    records: self.of_node(&volume_id).await,
                    running: Observed::Unknown(why),
                    age,
                };
            }
        };
        let mut records = self.of_both(&root).await;
        if let Observed::Seen(records) = &mut records {
            super::same_allowance(records, &self.run, &self.config.name, &self.memory.here.boot_id, self.fs_uuid());
        }
        let hints = self.hints();
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

    /// Durable progress of the data dir in use, with the records beside it.
    async fn mark(&mut self) -> Event {
        let State::Open { data_dir, .. } = &self.guard.state else { return Event::LookAgain };
        let data_dir = data_dir.clone();
        let open = files::is_open(&self.run, &self.config.name, &self.memory.here.boot_id);
        if matches!(open, Ok(false)) {
            // Somebody took the ready file away; etcd could not start again. The look renews it.
            return Event::LookAgain;
        }
        match self.mounted_root().await {
            Ok(root) => {
                let records = self.of_both(&root).await;
                let mark = worker::mark(root, &data_dir, Deadline::quiet(LOOK)).await;
                if let Observed::Unknown(why) = &mark {
                    tracing::debug!(event = "mark.unknown", guard = %self.config.name, why = why.detail());
                }
                if let Observed::Seen(Some(seen)) = &mark {
                    self.rounds.marked(seen.keys.unwrap_or(0) > 0);
                }
                Event::Marked { mark, records: Box::new(records) }
            }
            // Not even the root can be opened: no progress is known, and what is wrong is looked at and told.
            Err(detail) => {
                tracing::debug!(event = "mark.unknown", guard = %self.config.name, why = detail);
                Event::LookAgain
            }
        }
    }

    // ---- letting etcd have it

    async fn publish(&mut self, facts: Vec<Fact>, data_dir: String, create: bool) -> Event {
        let (Some(mount), Some(mut device)) = (self.mount.take(), self.device.take()) else {
            return Event::Published(Err(failure(ReasonCode::MountFailed, "the volume is not mounted".to_owned())));
        };
        let plan = publish::Plan {
            config: self.config.clone(),
            memory: self.memory.clone(),
            volume_id: self.volume_id(),
            fs_uuid: self.fs_uuid(),
            facts,
            data_dir,
            create,
        };
        match blocking(SHORT, move || {
            let outcome = publish::publish(&plan, mount, &mut device);
            (device, outcome)
        })
        .await
        {
            Ok((device, outcome)) => {
                self.device = Some(device);
                Event::Published(outcome.map(|at| self.mounted_at = Some(at)))
            }
            Err(stuck) => Event::Published(Err(Failure { reason: stuck.reason("publishing"), tool_output: None })),
        }
    }

    async fn open_gate(&mut self, facts: Vec<Fact>, data_dir: String, how: StartKind) {
        fault_point("before-open-gate");
        self.record(&facts).await;
        let Some(devnum) = self.guard.device().map(|facts| facts.devnum) else { return };
        let at = self.mounted_at.clone().unwrap_or_else(|| self.config.publish.clone());
        // A gate that is open already stays the gate that was opened: what it was opened for is not written over.
        let how = match files::read_published(&self.run, &self.config.name) {
            Ok(Some(before)) if how == StartKind::Running && before.boot_id == self.memory.here.boot_id => before.how,
            Ok(_) | Err(_) => how,
        };
        let published = files::Published {
            at: at.display().to_string(),
            devnum,
            fs_uuid: self.fs_uuid(),
            volume_id: self.volume_id(),
            data_dir: data_dir.clone(),
            how,
            mount_id: None,
            boot_id: self.memory.here.boot_id.clone(),
        };
        self.keep_running();
        if let Err(error) = files::open_gate(&self.run, &self.config.name, &published) {
            tracing::error!(event = "gate.unwritten", guard = %self.config.name, error = %super::chain(&error), "cannot open the gate");
        }
        let root = at;
        let grows = how == StartKind::Fresh;
        self.rounds.watch(&root, &data_dir, grows);
    }

    async fn record(&mut self, facts: &[Fact]) {
        if facts.is_empty() {
            return;
        }
        let (volume_id, fs_uuid) = (self.volume_id(), self.fs_uuid());
        let kept = if self.config.mode == Mode::Observe {
            self.keep(&volume_id, fs_uuid, facts.to_vec()).await
        } else {
            match self.mounted_root().await {
                Ok(root) => self.keep_on_both(root, facts.to_vec()).await,
                Err(_not_mounted) => self.keep(&volume_id, fs_uuid, facts.to_vec()).await,
            }
        };
        if let Err(reason) = kept {
            tracing::error!(event = "record.failed", guard = %self.config.name, "a fact was not kept: {}", reason.message);
        }
    }

    // ---- memory: the node's disk and the volume may hang as any disk may

    async fn keep(&self, volume_id: &VolumeId, fs_uuid: Option<FsUuid>, facts: Vec<Fact>) -> Result<(), Reason> {
        let (memory, volume_id) = (self.memory.clone(), volume_id.clone());
        match blocking(SHORT, move || memory.keep(&volume_id, fs_uuid, &facts)).await {
            Ok(kept) => kept.map_err(|error| error.reason()),
            Err(stuck) => Err(stuck.reason("writing the node's ledger")),
        }
    }

    /// Keeps what is about to be done to a filesystem whose identity is settled. On a full or read-only disk only the journal
    /// tells it: the ledger is still read, so whose data this is stays known, and a healthy master must not be held because its
    /// root disk ran full. What mkfs needs on record is kept, never noted.
    async fn note(&self, volume_id: &VolumeId, fs_uuid: Option<FsUuid>, fact: Fact) -> Result<(), Reason> {
        let (memory, volume_id) = (self.memory.clone(), volume_id.clone());
        let words = format!("{fact:?}");
        match blocking(SHORT, move || memory.keep(&volume_id, fs_uuid, &[fact])).await {
            Ok(Err(error)) if error.no_room() => {
                tracing::warn!(event = "record.told", guard = %self.config.name, fact = words, error = %super::chain(&error), "not in the ledger, only here");
                Ok(())
            }
            Ok(kept) => kept.map_err(|error| error.reason()),
            Err(stuck) => Err(stuck.reason("writing the node's ledger")),
        }
    }

    async fn keep_on_both(&self, root: OwnedFd, facts: Vec<Fact>) -> Result<(), Reason> {
        let (memory, volume_id, fs_uuid) = (self.memory.clone(), self.volume_id(), self.fs_uuid());
        match blocking(SHORT, move || memory.keep_on_both(&volume_id, fs_uuid, &facts, root.as_fd())).await {
            Ok(kept) => kept.map_err(|error| error.reason()),
            Err(stuck) => Err(stuck.reason("writing the ledgers of node and volume")),
        }
    }

    async fn of_node(&self, volume_id: &VolumeId) -> Observed<Records> {
        let (memory, volume_id) = (self.memory.clone(), volume_id.clone());
        match blocking(SHORT, move || memory.of_node(&volume_id)).await {
            Ok(records) => records,
            Err(stuck) => Observed::Unknown(stuck.why("reading the node's ledger")),
        }
    }

    async fn of_both(&self, root: &OwnedFd) -> Observed<Records> {
        let root = match root.try_clone() {
            Ok(root) => root,
            Err(error) => return Observed::Unknown(Why::Unreadable { detail: error.to_string() }),
        };
        let (memory, volume_id, fs_uuid) = (self.memory.clone(), self.volume_id(), self.fs_uuid());
        match blocking(SHORT, move || memory.of_both(&volume_id, fs_uuid, root.as_fd())).await {
            Ok(records) => records,
            Err(stuck) => Observed::Unknown(stuck.why("reading the ledgers of node and volume")),
        }
    }

    // ---- holding and letting go

    async fn drop_mount(&mut self) {
        if let Some(mount) = self.mount.take() {
            // Unmounting waits for the filesystem to write back; on a stalled disk that may take for ever.
            let _dropped = blocking(SHORT, move || drop(mount)).await;
        }
    }

    /// Nobody else shall have the device while it is held.
    async fn secure(&mut self) {
        self.drop_mount().await;
        self.lock = None;
        if self.config.mode == Mode::Observe || self.device.is_none() {
            return;
        }
        let claimed = self
            .with_device(SHORT, |device| {
                if device.claimed() { Ok(()) } else { device.reclaim().map_err(|error| error.reason()) }
            })
            .await;
        match claimed {
            Ok(Ok(())) => self.store_claim(),
            // Held because somebody else has it: no news.
            Ok(Err(_)) if self.guard.reasons().iter().any(|reason| reason.code == ReasonCode::InUse) => {}
            Ok(Err(reason)) => {
                tracing::warn!(event = "claim.refused", guard = %self.config.name, "{}", reason.message);
            }
            Err(stuck) => {
                tracing::warn!(event = "claim.stuck", guard = %self.config.name, "{}", stuck.why("claiming").detail());
            }
        }
    }

    async fn let_go(&mut self) {
        self.drop_mount().await;
        self.lock = None;
        self.unstore_claim().await;
        self.device = None;
    }

    // ---- telling

    async fn decide(&mut self, decided: Decided) {
        let Decided { verdict, reasons, warnings, evidence, not_done } = decided;
        // A device that is looked for every few seconds is not decided about every few seconds.
        let now = (verdict, reasons.clone(), warnings.clone());
        if self.decided.as_ref() == Some(&now) {
            return;
        }
        self.decided = Some(now);
        let decision = Decision {
            guard: self.config.name.clone(),
            time: Time::now(),
            boot_id: self.memory.here.boot_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            verdict,
            reasons,
            warnings,
            evidence,
            not_done,
        };
        let codes = decision.reasons.iter().map(|reason| reason.code.as_str().to_owned()).collect();
        let state = self.memory.state.clone();
        let stored = blocking(SHORT, move || {
            crate::record::decision::store_decision(&state, &decision)?;
            fault_point("after-decision");
            crate::record::decision::evidence_digest(&decision)
        });
        let stored = match stored.await {
            Ok(Ok(digest)) => Ok(digest),
            Ok(Err(error)) => Err(super::chain(&error)),
            Err(stuck) => Err(stuck.why("writing the decision").detail().to_owned()),
        };
        let digest = match stored {
            Ok(digest) => digest,
            Err(error) => {
                tracing::error!(event = "decision.unwritten", guard = %self.config.name, error, "the decision was not kept");
                return;
            }
        };
        let words = match verdict {
            DecisionVerdict::Opened => "opened",
            DecisionVerdict::Held => "held",
            DecisionVerdict::WouldHold => "would-hold",
            DecisionVerdict::WouldOpen => "would-open",
        };
        let fact =
            Fact::Decided { decision: "start".to_owned(), verdict: words.to_owned(), codes, evidence_digest: digest };
        if let Err(reason) = self.keep(&self.volume_id(), self.fs_uuid(), vec![fact]).await {
            tracing::error!(event = "record.failed", guard = %self.config.name, "the decision is not in the ledger: {}", reason.message);
        }
    }

    fn status(&self) -> GuardStatus {
        let data_dir = self.guard.start_evidence().and_then(|evidence| {
            let volume = evidence.volume.seen()?;
            let path = match &self.guard.state {
                State::Open { data_dir, .. } => data_dir.clone(),
                State::Discovering
                | State::Examining
                | State::Formatting
                | State::Inspecting
                | State::Publishing
                | State::Held { .. }
                | State::Observing { .. } => volume.selected.as_ref()?.path.clone(),
            };
            volume.data_dirs.iter().find(|dir| dir.path == path).cloned()
        });
        GuardStatus {
            name: self.config.name.clone(),
            mode: self.config.mode,
            gate: self.guard.gate(),
            would_hold: self.guard.would_hold(),
            state: self.guard.state_name(),
            progress: self.progress.clone(),
            volume: Some(self.volume_id()),
            device: self.guard.device().cloned(),
            fs_uuid: self.fs_uuid(),
            publish: self.config.publish.display().to_string(),
            data_dir,
            reasons: self.guard.reasons().to_vec(),
            warnings: self.warnings(),
            since: self.since,
        }
    }

    fn warnings(&self) -> Vec<Reason> {
        self.guard.warnings.iter().chain(&self.held_back).cloned().collect()
    }

    fn report(&mut self) {
        let now = (self.guard.gate(), self.guard.reasons().to_vec(), self.warnings());
        if self.shown.as_ref() != Some(&now) {
            self.since = Time::now();
            let name = &self.config.name;
            match &self.guard.state {
                State::Held { reasons } => {
                    let first = reasons.first().map_or("", |reason| reason.message.as_str());
                    tracing::error!(event = "guard.held", guard = %name, codes = ?codes(reasons), "held: {first}");
                }
                State::Open { data_dir, doubts } if doubts.is_empty() => {
                    tracing::info!(event = "guard.open", guard = %name, data_dir, "the gate is open");
                }
                State::Open { doubts, .. } | State::Observing { doubts } => {
                    let first = doubts.first().map_or("nothing to hold for", |reason| reason.message.as_str());
                    tracing::warn!(event = "guard.doubt", guard = %name, codes = ?codes(doubts), "{first}");
                }
                State::Discovering | State::Examining | State::Formatting | State::Inspecting | State::Publishing => {
                    tracing::debug!(event = "guard.state", guard = %name, state = ?self.guard.state_name());
                }
            }
            self.shown = Some(now);
        }
        self.board.report(self.status());
    }

    /// Runs work on the device on a thread of its own. A device that hangs stays with that thread: it is lost to us until
    /// the kernel answers, and nothing more is done to it.
    async fn with_device<T: Send + 'static>(
        &mut self,
        limit: Duration,
        work: impl FnOnce(&mut Device) -> T + Send + 'static,
    ) -> Result<T, Stuck> {
        let Some(mut device) = self.device.take() else { return Err(Stuck::NotOpen) };
        let (device, outcome) = blocking(limit, move || {
            let outcome = work(&mut device);
            (device, outcome)
        })
        .await?;
        self.device = Some(device);
        Ok(outcome)
    }
}

/// What a configuration means for the state machine.
fn policy(config: &GuardConfig) -> GuardPolicy {
    GuardPolicy { mode: config.mode, fstype: config.fstype, format: config.format, start: super::start_policy(config) }
}

/// While the agent stops, what was begun with a write is brought to its record; nothing new is begun.
fn finishes(action: &Action) -> bool {
    match action {
        Action::Decide(_) | Action::Record(_) | Action::OpenGate { .. } | Action::Publish { .. } => true,
        Action::Find
        | Action::Claim
        | Action::Probe
        | Action::LockAndReread { .. }
        | Action::Mkfs(_)
        | Action::Fsck
        | Action::NoFsck(_)
        | Action::Mount
        | Action::Look
        | Action::LookThroughMount
        | Action::Secure
        | Action::LetGo => false,
    }
}

fn codes(reasons: &[Reason]) -> Vec<&'static str> {
    reasons.iter().map(|reason| reason.code.as_str()).collect()
}

fn failure(code: ReasonCode, message: String) -> Failure {
    Failure { reason: Reason::new(code, message), tool_output: None }
}

fn reading_progress(done: u64, total: u64, elapsed: Duration) -> Progress {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let remaining_s = total
        .saturating_sub(done)
        .checked_mul(millis)
        .and_then(|product| product.checked_div(done))
        .and_then(|millis| millis.checked_div(1000));
    Progress { what: "reading every byte of the device".to_owned(), done, total, remaining_s }
}

/// Work that did not come back.
#[derive(Debug)]
pub enum Stuck {
    /// Not within its time.
    Late(Duration),
    /// It panicked: a bug of ours, and no reason to go on.
    Died(String),
    NotOpen,
}

impl Stuck {
    fn why(&self, doing: &str) -> Why {
        match self {
            Stuck::Late(limit) => Why::TimedOut { detail: format!("{doing} took more than {} s", limit.as_secs()) },
            Stuck::Died(detail) => Why::ReaderFailed { detail: format!("{doing} died: {detail}") },
            Stuck::NotOpen => Why::NotRun { detail: format!("{doing}: the device is not open") },
        }
    }

    pub fn words(&self, doing: &str) -> String {
        self.why(doing).detail().to_owned()
    }

    fn reason(&self, doing: &str) -> Reason {
        let why = self.why(doing);
        let code = match &why {
            Why::TimedOut { .. } => ReasonCode::TimedOut,
            Why::ReaderFailed { .. } => ReasonCode::ReaderFailed,
            Why::Unreadable { .. } | Why::Short { .. } | Why::NotRun { .. } => ReasonCode::Unreadable,
        };
        Reason::new(code, why.detail().to_owned())
    }
}

/// Runs what may block on a thread of its own, and stops waiting when the time is over.
pub async fn blocking<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Stuck> {
    match tokio::time::timeout(limit, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(died)) => Err(Stuck::Died(died.to_string())),
        Err(_elapsed) => Err(Stuck::Late(limit)),
    }
}
