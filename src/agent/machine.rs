//! The state machine of one guard: pure, so that every path of it can be walked by a test.
//!
//! `step` takes what is known of a guard and one event, and returns what is known then and what is to be done. It does no
//! I/O and has no clock; it calls the two decisions and carries their answers on. The driver (`agent::driver`) performs the
//! actions in order, one at a time, and turns each result into the next event.
//!
//! ```text
//! Discovering → [Attaching] → Examining → [Formatting] → Inspecting → Publishing → Open
//!      any of them → Held(reasons) → back, when the evidence changes or a person decides
//! ```

/// What changes while the gate is open.
mod beside;
#[cfg(test)]
mod checker;
/// The steps until a filesystem stands or may be made.
mod examining;
/// Whose device it is.
mod identity;
/// What the watch over an open gate sees of the volume.
pub mod sight;
/// The steps from the data dirs to the open gate.
mod starting;
#[cfg(test)]
mod tests;

use crate::cloud::Knowledge;
use crate::decide::format::FormatPermit;
use crate::model::{
    BootMillis, DecisionEvidence, DecisionVerdict, DeviceFacts, DeviceReading, Fact, FormatEvidence, FormatPolicy,
    FsUuid, Fstype, Gate, HighWater, Identity, Mode, Observed, Origin, Reason, Records, SecondReading, StartEvidence,
    StartKind, StartPolicy, StartVerdict, StateName, Time, Witness,
};
pub use beside::is_hard;
use examining::{on_found, on_read, on_remembered, on_reread};
use starting::{on_looked, on_marked, on_published, on_unpublished, on_watched};

/// What configuration wants of one guard, in the words of the decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardPolicy {
    pub mode: Mode,
    pub fstype: Fstype,
    pub format: FormatPolicy,
    pub start: StartPolicy,
}

/// Where a guard stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Looking for the device.
    Discovering,
    /// The volume is on its way to this machine, and what that waits for. Not held: EC2 or the kernel ends it.
    Attaching { waits: Option<Reason> },
    /// Reading it as bytes.
    Examining,
    /// Proving blankness a second time, or running mkfs.
    Formatting,
    /// fsck, the detached mount, the data dirs.
    Inspecting,
    /// Writing the record, sealing and moving the mount into place.
    Publishing,
    /// The gate is open. `doubts`: what would hold now; an open gate is never closed.
    Open { data_dir: String, doubts: Vec<Reason> },
    /// A verdict against.
    Held { reasons: Vec<Reason> },
    /// Observe mode has looked; `doubts` is what enforce would hold for.
    Observing { doubts: Vec<Reason> },
}

/// Where the volume is seen when it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Mounted nowhere.
    Free,
    /// Some of the directories that the guard publishes are at their places, and some are not.
    Partly,
    /// Everything is mounted at the guard's places (observe: the whole of it anywhere), with the device's own number.
    Mounted,
}

/// What the search for the device brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub facts: DeviceFacts,
    pub place: Place,
    /// What the node's ledger says of this volume.
    pub records: Observed<Records>,
    pub identity: Observed<Identity>,
    pub origin: Observed<Origin>,
    /// What volhold's tags on the volume say, where the provider was asked already.
    pub witness: Observed<Option<Witness>>,
    /// The gate was opened in this boot already, by us or by an agent before us.
    pub gate_open: bool,
    /// This boot, to tell a format intent of an attachment that never ended.
    pub boot_id: crate::model::BootId,
    pub now: Time,
    /// The clock of this boot; `None` where it could not be read.
    pub now_boot: Option<crate::model::BootMillis>,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The agent starts, or something says that the evidence may have changed.
    LookAgain,
    Found(Box<Found>),
    /// The volume has no device here, and the provider may bring it.
    NotHere,
    /// The provider says that the volume is attached to this machine.
    Brought,
    /// It is on its way.
    Waits(Reason),
    /// What the provider knows of the volume; it comes before the reading that it is needed for.
    Known(Box<Knowledge>),
    /// No device, or not one that can be examined.
    NotFound(Reason),
    Claimed(Result<(), Reason>),
    Read(Box<DeviceReading>),
    /// What node and volume remember together, before anything is written; or why the volume's ledger cannot be read so.
    Remembered(Box<Observed<Records>>),
    /// The telling regions, read again under the device's lock.
    Reread {
        second: Observed<SecondReading>,
        now: BootMillis,
    },
    Made(Result<FsUuid, Failure>),
    Checked(Result<(), Failure>),
    /// It is on record that no fsck runs before the mount; or one that should was not begun.
    Unchecked(Result<(), Failure>),
    Mounted(Result<(), Failure>),
    /// The data dirs, through the detached or the published mount.
    Looked(Box<StartEvidence>),
    /// What the watch over an open gate sees now, besides what is read of the data.
    Watched(Vec<Reason>),
    Published(Result<(), Failure>),
    /// A mark of progress while open, with the records as they are now.
    Marked {
        mark: Observed<Option<HighWater>>,
        records: Box<Observed<Records>>,
    },
}

/// An act that failed, with the words of the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    pub tool_output: Option<String>,
}

/// What is to be done. In order, one at a time.
#[derive(Debug)]
pub enum Action {
    Find,
    /// Asks the provider to bring the volume.
    Bring,
    Claim,
    Probe,
    LockAndReread {
        digest: String,
        size: u64,
    },
    /// Reads the ledger on the volume without writing a byte to it: identity is in doubt.
    ReadLedger,
    /// Records the intent, runs mkfs, reads back, records the fact.
    Mkfs(Box<FormatPermit>),
    /// Records that fsck runs, runs it, records how it ended.
    Fsck,
    /// Records that no fsck runs, and that mounting writes.
    NoFsck(&'static str),
    /// Mounts detached, read-only attribute, writable superblock.
    Mount,
    /// Reads the data dirs through the detached mount.
    Look,
    /// Reads the data dirs through the mount that is there.
    LookThroughMount,
    /// Keeps these facts on node and volume, creates the data dir of a fresh etcd, seals, moves the mount into place.
    Publish {
        facts: Vec<Fact>,
        data_dir: String,
        create: bool,
    },
    /// Lets the world know, and starts to watch. `facts` are kept first.
    OpenGate {
        facts: Vec<Fact>,
        data_dir: String,
        how: StartKind,
    },
    /// Drops the detached mount and the lock, and claims the device again.
    Secure,
    /// A person wants the device: let everything go.
    LetGo,
    /// Keeps the decision where `explain` finds it.
    Decide(Box<Decided>),
    /// Keeps facts on node and volume while the gate is open.
    Record(Vec<Fact>),
}

/// A decision before the driver adds time, boot and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub verdict: DecisionVerdict,
    pub reasons: Vec<Reason>,
    pub warnings: Vec<Reason>,
    pub evidence: DecisionEvidence,
    pub not_done: Vec<String>,
}

/// All that is known of one guard.
#[derive(Debug, Clone)]
pub struct Guard {
    pub policy: GuardPolicy,
    pub state: State,
    pub warnings: Vec<Reason>,
    /// The last verdict against, while the device is examined anew: held until another verdict says otherwise.
    held_for: Option<Vec<Reason>>,
    found: Option<Found>,
    reading: Option<DeviceReading>,
    format: Option<FormatEvidence>,
    start: Option<StartEvidence>,
    verdict: Option<StartVerdict>,
    tool_output: Option<String>,
    did: Did,
    /// What the watch over the open gate saw last.
    watched: Vec<Reason>,
    known: Option<beside::Known>,
}

/// What volhold itself has done to the device since it was found: the honest part of "nothing was written".
#[derive(Debug, Clone, Default)]
struct Did {
    formatted: bool,
    fsck: bool,
    /// Why the filesystem was let to the mount without fsck.
    no_fsck: Option<&'static str>,
    mounted: bool,
}

/// The filesystems that are never repaired at boot, and why.
fn no_fsck(fstype: Fstype) -> Option<&'static str> {
    match fstype {
        Fstype::Ext4 => None,
        Fstype::Xfs => Some(
            "no fsck was run: mounting an xfs replays its log, and what that does not mend is for xfs_repair in a person's \
             hands",
        ),
    }
}

impl Guard {
    pub fn new(policy: GuardPolicy) -> Self {
        Guard {
            policy,
            state: State::Discovering,
            warnings: Vec::new(),
            held_for: None,
            found: None,
            reading: None,
            format: None,
            start: None,
            verdict: None,
            tool_output: None,
            did: Did::default(),
            watched: Vec::new(),
            known: None,
        }
    }

    pub fn state_name(&self) -> StateName {
        match &self.state {
            State::Discovering => StateName::Discovering,
            State::Attaching { .. } => StateName::Attaching,
            State::Examining => StateName::Examining,
            State::Formatting => StateName::Formatting,
            State::Inspecting => StateName::Inspecting,
            State::Publishing => StateName::Publishing,
            State::Open { doubts, .. } if doubts.is_empty() => StateName::Open,
            State::Open { .. } => StateName::Degraded,
            State::Held { .. } => StateName::Held,
            State::Observing { .. } => StateName::Observing,
        }
    }

    /// What the gate shows. Observe mode guards nothing: its gate is open from the start.
    pub fn gate(&self) -> Gate {
        match (&self.policy.mode, &self.state) {
            (Mode::Observe, _) => Gate::Open,
            (Mode::Enforce, State::Open { .. }) => Gate::Open,
            (Mode::Enforce, State::Held { .. }) => Gate::Held,
            (
                Mode::Enforce,
                State::Discovering
                | State::Attaching { .. }
                | State::Examining
                | State::Formatting
                | State::Inspecting
                | State::Publishing
                | State::Observing { .. },
            ) => {
                if self.gate_was_open() {
                    Gate::Open
                } else if self.held_for.is_some() {
                    Gate::Held
                } else {
                    Gate::Waiting
                }
            }
        }
    }

    /// Why it is held, or would be.
    pub fn reasons(&self) -> &[Reason] {
        match &self.state {
            State::Held { reasons } => reasons,
            State::Open { doubts, .. } | State::Observing { doubts } => doubts,
            State::Discovering
            | State::Attaching { .. }
            | State::Examining
            | State::Formatting
            | State::Inspecting
            | State::Publishing => self.held_for.as_deref().unwrap_or(&[]),
        }
    }

    /// What a volume on its way waits for.
    pub fn waits(&self) -> Option<&Reason> {
        match &self.state {
            State::Attaching { waits } => waits.as_ref(),
            State::Discovering
            | State::Examining
            | State::Formatting
            | State::Inspecting
            | State::Publishing
            | State::Open { .. }
            | State::Held { .. }
            | State::Observing { .. } => None,
        }
    }

    pub fn would_hold(&self) -> bool {
        !self.reasons().is_empty()
    }

    pub fn device(&self) -> Option<&DeviceFacts> {
        self.found.as_ref().map(|found| &found.facts)
    }

    pub fn reading(&self) -> Option<&DeviceReading> {
        self.reading.as_ref()
    }

    pub fn start_evidence(&self) -> Option<&StartEvidence> {
        self.start.as_ref()
    }

    pub fn start_verdict(&self) -> Option<&StartVerdict> {
        self.verdict.as_ref()
    }

    /// The gate was open in this boot before the guard was looked at.
    pub fn gate_was_open(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.gate_open)
    }

    fn evidence(&self) -> DecisionEvidence {
        DecisionEvidence {
            device: self.device().cloned(),
            reading: self.reading.clone(),
            format: self.format.clone(),
            start: self.start.clone(),
            start_verdict: self.verdict.clone(),
            tool_output: self.tool_output.clone(),
        }
    }

    fn forget_examination(&mut self) {
        self.reading = None;
        self.format = None;
        self.start = None;
        self.verdict = None;
        self.tool_output = None;
        self.warnings.clear();
        self.did = Did::default();
    }

    /// Held: the reasons are kept, the device is secured, nothing else happens until something changes.
    fn hold(&mut self, reasons: Vec<Reason>, secure: Action) -> Vec<Action> {
        if self.policy.mode == Mode::Observe {
            return self.observed(reasons);
        }
        let mut not_done = Vec::new();
        if !self.did.formatted {
            not_done.push("the device was not formatted".to_owned());
        }
        not_done.extend(self.did.no_fsck.map(str::to_owned));
        // The mount that is tried without fsck may replay a log before it fails.
        if !self.did.fsck && !self.did.mounted && !self.did.formatted && self.did.no_fsck.is_none() {
            not_done.push("nothing was written to it".to_owned());
        }
        if !self.did.mounted {
            not_done.push("it was not mounted".to_owned());
        } else {
            not_done.push("it was mounted where nobody else can see it, and let go again".to_owned());
        }
        not_done.push("etcd was not allowed to start".to_owned());
        let decided = Decided {
            verdict: DecisionVerdict::Held,
            reasons: reasons.clone(),
            warnings: self.warnings.clone(),
            evidence: self.evidence(),
            not_done,
        };
        self.held_for = Some(reasons.clone());
        self.state = State::Held { reasons };
        vec![secure, Action::Decide(Box::new(decided))]
    }

    /// Observe mode: the same verdict, told and nothing else.
    fn observed(&mut self, doubts: Vec<Reason>) -> Vec<Action> {
        let verdict = if doubts.is_empty() { DecisionVerdict::WouldOpen } else { DecisionVerdict::WouldHold };
        let decided = Decided {
            verdict,
            reasons: doubts.clone(),
            warnings: self.warnings.clone(),
            evidence: self.evidence(),
            not_done: vec!["this guard observes: it claims, mounts, writes and holds nothing".to_owned()],
        };
        self.state = State::Observing { doubts };
        vec![Action::Decide(Box::new(decided))]
    }

    fn fail(&mut self, failure: Failure) -> Vec<Action> {
        self.tool_output = failure.tool_output;
        self.hold(vec![failure.reason], Action::Secure)
    }
}

/// One step. Events that do not belong to the state change nothing: an answer that comes late is no answer.
pub fn step(mut guard: Guard, event: Event) -> (Guard, Vec<Action>) {
    let actions = match event {
        Event::LookAgain => look_again(&mut guard),
        Event::NotFound(reason) => not_found(&mut guard, reason),
        Event::Found(found) => on_found(&mut guard, *found),
        Event::NotHere => not_here(&mut guard),
        Event::Brought => brought(&mut guard),
        Event::Waits(reason) => waits(&mut guard, reason),
        Event::Known(knowledge) => known(&mut guard, *knowledge),
        Event::Claimed(Ok(())) => {
            guard.state = State::Examining;
            vec![Action::Probe]
        }
        Event::Claimed(Err(reason)) => guard.hold(vec![reason], Action::Secure),
        Event::Read(reading) => on_read(&mut guard, *reading),
        Event::Remembered(records) => on_remembered(&mut guard, *records),
        Event::Reread { second, now } => on_reread(&mut guard, second, now),
        Event::Made(Ok(_uuid)) => {
            guard.did.formatted = true;
            guard.state = State::Inspecting;
            vec![Action::Mount]
        }
        Event::Made(Err(failure)) => {
            // mkfs may have written before it failed: the device counts as touched.
            guard.did.formatted = true;
            guard.fail(failure)
        }
        Event::Checked(Ok(())) => {
            guard.did.fsck = true;
            vec![Action::Mount]
        }
        Event::Checked(Err(failure)) => {
            guard.did.fsck = true;
            guard.fail(failure)
        }
        Event::Unchecked(Ok(())) => {
            guard.did.no_fsck = no_fsck(guard.policy.fstype);
            vec![Action::Mount]
        }
        Event::Unchecked(Err(failure)) => guard.fail(failure),
        Event::Mounted(Ok(())) => {
            guard.did.mounted = true;
            vec![Action::Look]
        }
        Event::Mounted(Err(failure)) => guard.fail(failure),
        Event::Looked(evidence) => on_looked(&mut guard, *evidence),
        Event::Watched(seen) => on_watched(&mut guard, seen),
        Event::Published(Ok(())) => on_published(&mut guard),
        Event::Published(Err(failure)) => on_unpublished(&mut guard, failure),
        Event::Marked { mark, records } => on_marked(&mut guard, mark, *records),
    };
    match &guard.state {
        State::Open { .. } | State::Observing { .. } => guard.held_for = None,
        State::Discovering
        | State::Attaching { .. }
        | State::Examining
        | State::Formatting
        | State::Inspecting
        | State::Publishing
        | State::Held { .. } => {}
    }
    (guard, actions)
}

fn look_again(guard: &mut Guard) -> Vec<Action> {
    match guard.state {
        // The gate is open: look through the published mount, leave everything else as it is.
        State::Open { .. } => vec![Action::LookThroughMount],
        // What it waits for stays said, until something else is known.
        State::Attaching { .. } => vec![Action::Find],
        State::Discovering | State::Held { .. } | State::Observing { .. } => {
            guard.state = State::Discovering;
            vec![Action::Find]
        }
        // Work is under way; it will see what changed.
        State::Examining | State::Formatting | State::Inspecting | State::Publishing => Vec::new(),
    }
}

/// No device of this machine is the volume. Whatever is known of one that was is about the past.
fn not_here(guard: &mut Guard) -> Vec<Action> {
    match guard.state {
        State::Discovering => guard.state = State::Attaching { waits: None },
        State::Attaching { .. } => {}
        State::Examining
        | State::Formatting
        | State::Inspecting
        | State::Publishing
        | State::Open { .. }
        | State::Held { .. }
        | State::Observing { .. } => return Vec::new(),
    }
    guard.forget_examination();
    guard.found = None;
    vec![Action::Bring]
}

fn brought(guard: &mut Guard) -> Vec<Action> {
    match guard.state {
        State::Attaching { .. } => vec![Action::Find],
        State::Discovering
        | State::Examining
        | State::Formatting
        | State::Inspecting
        | State::Publishing
        | State::Open { .. }
        | State::Held { .. }
        | State::Observing { .. } => Vec::new(),
    }
}

fn waits(guard: &mut Guard, reason: Reason) -> Vec<Action> {
    if let State::Attaching { waits } = &mut guard.state {
        *waits = Some(reason);
    }
    Vec::new()
}

fn known(guard: &mut Guard, knowledge: Knowledge) -> Vec<Action> {
    let Knowledge { identity, origin, age: _, witness } = knowledge;
    if let Some(found) = &mut guard.found {
        found.identity = identity;
        found.origin = origin;
        found.witness = witness;
    }
    Vec::new()
}

fn not_found(guard: &mut Guard, reason: Reason) -> Vec<Action> {
    guard.forget_examination();
    guard.found = None;
    guard.hold(vec![reason], Action::Secure)
}
