//! Drives one guard: performs the actions of its state machine and turns what comes of them into events.
//!
//! Everything that may block (ioctls on a stalled disk, fsck, mount, ledgers) runs on a thread of its own with a time limit: a device
//! that hangs in the kernel costs that thread and a hold, never the agent.

/// The data dirs, the publishing and the open gate.
mod data;
/// The device as such.
mod device;
/// mkfs, fsck, the detached mount.
mod filesystem;
/// A volume that became larger.
mod growing;
/// Facts kept on node and volume.
mod keeping;
/// What a person has ordered to be done to the volume.
mod orders;
/// Something stirs on the volume of an open gate.
mod stirring;
/// Status, journal, decisions.
mod telling;
/// Who does not see the volume.
mod unseen;
/// The watch over the volume of an open gate.
mod watching;
/// What EC2 remembers of the volume.
mod witnessing;

use super::board::Board;
use super::clock::Here;
use super::evidence::{LOOK, SHORT};
use super::machine::{Action, Event, Failure, Guard, GuardPolicy, State, step};
use super::memory::Memory;
use super::rounds::{Rounds, Wake};
use super::stuck::{Stuck, blocking};
use super::timings::Timings;
use super::vitals::Sign;
use super::watching::Watcher;
use crate::act::mount::DetachedMount;
use crate::cloud::witness::writer::Writer;
use crate::cloud::{Client, Hub, Provider, Whereabouts};
use crate::config::{self, Config, GuardConfig, Http, Metrics, Paths};
use crate::device::blind::Blind;
use crate::device::{Device, UdevLock};
use crate::gate::files;
use crate::model::{
    DecisionVerdict, FilesystemFacts, FsUuid, Gate, HighWater, Progress, Publish, PublishDir, Reason, ReasonCode,
    Records, Time, VolumeId, VolumeSight,
};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

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

/// What was told last: gate, reasons, warnings, and what is waited for.
type Shown = (Gate, Vec<Reason>, Vec<Reason>, Option<Reason>);

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
    /// What of the volume is mounted where, when it was found mounted or was published.
    mounted: Vec<PublishDir>,
    progress: Option<Progress>,
    since: Time,
    shown: Option<Shown>,
    decided: Option<(DecisionVerdict, Vec<Reason>, Vec<Reason>)>,
    rounds: Rounds,
    timings: Timings,
    lives: Sign,
    provider: Provider,
    hub: Arc<Hub<Client>>,
    /// Where the provider says that the volume is, once it has said so.
    whereabouts: Option<Whereabouts>,
    provider_warnings: Vec<Reason>,
    /// The last look at the open gate's data: what is on record, and the progress seen.
    marked: Option<(Records, Option<HighWater>)>,
    /// Writes the tags, once there is something to write.
    witness: Option<Writer>,
    /// Whose data it is was put on record by this agent.
    news: bool,
    /// The volume is larger than its filesystem, and what came of that.
    enlarged: Option<Reason>,
    /// To this size it could not be grown: tried again when it is another one.
    not_grown_to: Option<u64>,
    /// What was ordered and waits to be done in this look.
    orders: orders::Pending,
    /// etcd-manager does not see the volume.
    unseen: Option<Reason>,
    /// Processes that were asked to end because of it.
    ended: Vec<Blind>,
    /// Etcds that work on files which are in no data dir any more.
    astray: Vec<Reason>,
    /// Keeps watch over the volume while the gate is open.
    watcher: Option<Watcher>,
    /// What it last saw.
    sight: VolumeSight,
    /// The gate was seen open with the right data behind it.
    was_well: bool,
    /// What runs etcd, and was halted by policy.
    halted: Vec<stirring::Halted>,
}

impl Driver {
    pub fn new(
        config: GuardConfig,
        whole: &Config,
        here: Here,
        board: Arc<Board>,
        rounds: Rounds,
        lives: Sign,
        hub: Arc<Hub<Client>>,
    ) -> Self {
        let policy = policy(&config);
        let provider = provider(&hub, &config);
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
            mounted: Vec::new(),
            progress: None,
            since: Time::now(),
            shown: None,
            decided: None,
            rounds,
            timings: Timings::default(),
            lives,
            marked: None,
            witness: None,
            news: false,
            enlarged: None,
            not_grown_to: None,
            orders: Vec::new(),
            unseen: None,
            ended: Vec::new(),
            astray: Vec::new(),
            watcher: None,
            sight: VolumeSight::default(),
            was_well: false,
            halted: Vec::new(),
            provider,
            hub,
            whereabouts: None,
            provider_warnings: Vec::new(),
            config,
        }
    }

    /// Runs until the agent is told to stop, or the guard to leave. Leaves gate, mounts and etcd as they are.
    pub async fn run(mut self, stop: watch::Receiver<bool>, orders: watch::Receiver<Order>) {
        self.drive(stop, orders).await;
        self.lives.ends();
    }

    async fn drive(&mut self, mut stop: watch::Receiver<bool>, mut orders: watch::Receiver<Order>) {
        if let Order::Run(_same, held_back) = &*orders.borrow_and_update() {
            self.held_back = held_back.clone();
        }
        self.tell_held_back();
        self.report();
        self.keep_bypass().await;
        let mut event = Some(Event::LookAgain);
        loop {
            if let Some(event) = event.take() {
                self.follow(event, &stop).await;
                if !*stop.borrow() {
                    self.attend_to_size().await;
                    self.attend_to_manager().await;
                    self.attend_to_halting(&stop).await;
                }
            }
            if *stop.borrow() {
                break;
            }
            self.keep_watch();
            self.lives.waits();
            let wake = tokio::select! {
                wake = self.rounds.next(&self.guard.state) => Some(wake),
                order = orders.changed() => match order {
                    Ok(()) => None,
                    Err(_agent_ended) => break,
                },
                sight = watching::seen(&mut self.watcher) => {
                    self.lives.works();
                    self.take_sight(sight, &stop).await;
                    continue;
                }
                () = witnessing::told(&mut self.witness) => {
                    self.report();
                    continue;
                }
                _ = stop.changed() => break,
            };
            self.lives.works();
            event = match wake {
                Some(Wake::LookAgain) => Some(Event::LookAgain),
                Some(Wake::Mark) => Some(self.mark().await),
                Some(Wake::Stirred) => {
                    self.attend_to_stir(&stop).await;
                    self.attend_to_halting(&stop).await;
                    None
                }
                Some(Wake::Share) => {
                    self.share_claim().await;
                    None
                }
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
        if config.device != self.config.device || config.member != self.config.member {
            self.provider = provider(&self.hub, &config);
            self.whereabouts = None;
            self.provider_warnings.clear();
            self.witness = None;
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
        let whole = Config {
            guards: Vec::new(),
            paths: self.paths.clone(),
            http: Http::default(),
            metrics: Metrics::default(),
        };
        let text = config::running_text(&self.config, &whole);
        if let Err(error) = files::write_running(&self.run, &self.config.name, &text) {
            tracing::error!(event = "config.unkept", guard = %self.config.name, error = %super::chain(&error), "what the gate is open with was not kept");
        }
    }

    /// Feeds one event and performs what follows from it, until nothing does.
    async fn follow(&mut self, event: Event, stop: &watch::Receiver<bool>) {
        if let Event::LookAgain = event {
            self.note_orders().await;
        }
        let mut queue = VecDeque::from(self.feed(event));
        self.report_progress(&queue);
        while let Some(action) = queue.pop_front() {
            if *stop.borrow() && !finishes(&action) {
                tracing::info!(event = "guard.stopping", guard = %self.config.name, "stops before {action:?}");
                return;
            }
            match &action {
                Action::Mkfs(_) => self.lives.formats(),
                _other => self.lives.works(),
            }
            let begun = self.timings.begin(&action);
            let event = self.perform(action).await;
            self.timings.end(begun);
            if let Some(event) = event {
                queue.extend(self.feed(event));
            }
            self.report_progress(&queue);
        }
        self.give_up_orders().await;
        self.timings.close();
        self.remember();
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
            Action::Bring => Some(self.bring().await),
            Action::Claim => Some(self.claim().await),
            Action::Probe => {
                let reading = self.probe(true).await;
                if let Some(known) = self.ask_provider(&reading).await {
                    // Nothing is to be done for it.
                    let _nothing = self.feed(known);
                }
                Some(Event::Read(Box::new(reading)))
            }
            Action::LockAndReread { digest, size } => Some(self.lock_and_reread(digest, size).await),
            Action::ReadLedger => Some(self.read_ledger().await),
            Action::Mkfs(permit) => Some(self.mkfs(*permit).await),
            Action::Fsck => Some(self.fsck().await),
            Action::NoFsck(why) => Some(self.no_fsck(why).await),
            Action::Mount => Some(self.mount().await),
            Action::Look => Some(self.look().await),
            Action::LookThroughMount => Some(self.look_through_mount().await),
            Action::Publish { facts, data_dir, create } => {
                self.note_news(&facts);
                Some(self.publish(facts, data_dir, create).await)
            }
            Action::OpenGate { facts, data_dir, how } => {
                self.note_news(&facts);
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
                self.note_news(&facts);
                self.record(&facts).await;
                None
            }
        }
    }

    fn volume_id(&self) -> VolumeId {
        match self.guard.device() {
            Some(facts) => facts.volume_id.clone(),
            None => match &self.whereabouts {
                Some(whereabouts) => whereabouts.volume.clone(),
                None => self.config.device.unseen_id(),
            },
        }
    }

    /// Where the volume is published, as far as it is known which one it is.
    fn places(&self) -> Publish {
        self.config.publish.of_volume(&self.volume_id())
    }

    fn fs_uuid(&self) -> Option<FsUuid> {
        self.filesystem.as_ref().and_then(|filesystem| filesystem.uuid)
    }
}

/// What a configuration means for the state machine.
pub(super) fn policy(config: &GuardConfig) -> GuardPolicy {
    GuardPolicy { mode: config.mode, fstype: config.fstype, format: config.format, start: super::start_policy(config) }
}

fn provider(hub: &Arc<Hub<Client>>, config: &GuardConfig) -> Provider {
    // Any number that no other machine and guard has.
    let (seed, _) = uuid::Uuid::new_v4().as_u64_pair();
    Provider::new(hub, &config.device, config.member.as_deref(), seed)
}

/// While the agent stops, what was begun with a write is brought to its record; nothing new is begun.
fn finishes(action: &Action) -> bool {
    match action {
        Action::Decide(_) | Action::Record(_) | Action::OpenGate { .. } | Action::Publish { .. } => true,
        Action::Find
        | Action::Bring
        | Action::Claim
        | Action::Probe
        | Action::LockAndReread { .. }
        | Action::ReadLedger
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

fn failure(code: ReasonCode, message: String) -> Failure {
    Failure { reason: Reason::new(code, message), tool_output: None }
}
