//! The state machine of one guard: pure, so that every path of it can be walked by a test.
//!
//! `step` takes what is known of a guard and one event, and returns what is known then and what is to be done. It does no
//! I/O and has no clock; it calls the two decisions and carries their answers on. The driver (`agent::driver`) performs the
//! actions in order, one at a time, and turns each result into the next event.
//!
//! ```text
//! Discovering → Examining → [Formatting] → Inspecting → Publishing → Open
//!      any of them → Held(reasons) → back, when the evidence changes or a person decides
//! ```

#[cfg(test)]
mod tests;

use crate::decide::format::{FormatPermit, may_format};
use crate::decide::start::may_start;
use crate::model::{
    Adoption, BootMillis, Claim, DecisionEvidence, DecisionVerdict, DeviceFacts, DeviceReading, DeviceUse, Fact,
    FilesystemFacts, FormatEvidence, FormatHistory, FormatPolicy, FsUuid, Fstype, Gate, HighWater, Identity, Mode,
    Observed, Origin, Reason, ReasonCode, Records, SecondReading, StartEvidence, StartKind, StartPolicy, StartVerdict,
    StateName, Time,
};

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
    /// Mounted at the guard's publish path (observe: anywhere), with the device's own number.
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
    /// The gate was opened in this boot already, by us or by an agent before us.
    pub gate_open: bool,
    /// This boot, to tell a format intent of an attachment that never ended.
    pub boot_id: crate::model::BootId,
    pub now: Time,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The agent starts, or something says that the evidence may have changed.
    LookAgain,
    Found(Box<Found>),
    /// No device, or not one that can be examined.
    NotFound(Reason),
    Claimed(Result<(), Reason>),
    Read(Box<DeviceReading>),
    /// The telling regions, read again under the device's lock.
    Reread {
        second: Observed<SecondReading>,
        now: BootMillis,
    },
    Made(Result<FsUuid, Failure>),
    Checked(Result<(), Failure>),
    /// It is on record that no fsck runs before the mount.
    Unchecked(Result<(), Failure>),
    Mounted(Result<(), Failure>),
    /// The data dirs, through the detached or the published mount.
    Looked(Box<StartEvidence>),
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
    Claim,
    Probe,
    LockAndReread {
        digest: String,
        size: u64,
    },
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
        }
    }

    pub fn state_name(&self) -> StateName {
        match &self.state {
            State::Discovering => StateName::Discovering,
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
            State::Discovering | State::Examining | State::Formatting | State::Inspecting | State::Publishing => {
                self.held_for.as_deref().unwrap_or(&[])
            }
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

    fn gate_was_open(&self) -> bool {
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
        Event::Claimed(Ok(())) => {
            guard.state = State::Examining;
            vec![Action::Probe]
        }
        Event::Claimed(Err(reason)) => guard.hold(vec![reason], Action::Secure),
        Event::Read(reading) => on_read(&mut guard, *reading),
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
        Event::Published(Ok(())) => on_published(&mut guard),
        Event::Published(Err(failure)) => guard.fail(failure),
        Event::Marked { mark, records } => on_marked(&mut guard, mark, *records),
    };
    match &guard.state {
        State::Open { .. } | State::Observing { .. } => guard.held_for = None,
        State::Discovering
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
        State::Discovering | State::Held { .. } | State::Observing { .. } => {
            guard.state = State::Discovering;
            vec![Action::Find]
        }
        // Work is under way; it will see what changed.
        State::Examining | State::Formatting | State::Inspecting | State::Publishing => Vec::new(),
    }
}

fn not_found(guard: &mut Guard, reason: Reason) -> Vec<Action> {
    guard.forget_examination();
    guard.found = None;
    guard.hold(vec![reason], Action::Secure)
}

fn on_found(guard: &mut Guard, found: Found) -> Vec<Action> {
    guard.forget_examination();
    let released = match &found.records {
        Observed::Seen(records) => records.released_until.filter(|until| *until > found.now),
        Observed::Unknown(_) => None,
    };
    let place = found.place;
    let objections = objections_to(&found.facts);
    guard.found = Some(found);
    if guard.policy.mode == Mode::Observe {
        return match place {
            Place::Mounted => {
                guard.state = State::Inspecting;
                vec![Action::LookThroughMount]
            }
            Place::Free => {
                guard.state = State::Examining;
                vec![Action::Probe]
            }
        };
    }
    // An open gate is left as it is: who released its volume has an etcd to stop first, not a gate to close.
    if let Some(until) = released.filter(|_| !guard.gate_was_open()) {
        let reason = Reason::new(
            ReasonCode::ReleasedByOperator,
            format!("a person let the device go until {until}; volhold claims and examines it again then"),
        );
        return guard.hold(vec![reason], Action::LetGo);
    }
    match place {
        Place::Mounted => {
            guard.state = State::Inspecting;
            vec![Action::LookThroughMount]
        }
        Place::Free if objections.is_empty() => vec![Action::Claim],
        Place::Free => guard.hold(objections, Action::Secure),
    }
}

/// What stands against examining a device at all, besides the claim.
fn objections_to(facts: &DeviceFacts) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let node = &facts.node;
    let in_use = |what: String| Reason::new(ReasonCode::InUse, format!("{node} is in use: {what}"));
    for device_use in &facts.uses {
        reasons.push(match device_use {
            DeviceUse::Mount { at } => in_use(format!("mounted at {at}")),
            DeviceUse::Swap => in_use("it is swap space".to_owned()),
            DeviceUse::Holder { name } => in_use(format!("{name} is built on it")),
            DeviceUse::LoopOnTop { name } => in_use(format!("the loop device {name} lies on it")),
            DeviceUse::Exclusive => in_use("another process holds it exclusively".to_owned()),
            DeviceUse::Partition { name } => Reason::new(
                ReasonCode::Partitioned,
                format!("{node} has the partition {name}; volhold guards whole disks only"),
            ),
        });
    }
    if !facts.whole_disk {
        reasons.push(Reason::new(
            ReasonCode::Partitioned,
            format!("{node} is a partition; volhold guards whole disks only"),
        ));
    }
    if facts.size == 0 {
        reasons.push(Reason::new(ReasonCode::SizeMismatch, format!("{node} has a size of 0 bytes")));
    }
    if facts.read_only {
        reasons.push(Reason::new(
            ReasonCode::MountFailed,
            format!("{node} is read-only in the kernel: etcd could not write to it"),
        ));
    }
    reasons
}

fn on_read(guard: &mut Guard, reading: DeviceReading) -> Vec<Action> {
    if guard.state != State::Examining {
        return Vec::new();
    }
    guard.reading = Some(reading.clone());
    let Some(found) = guard.found.clone() else { return Vec::new() };
    if let Some(filesystem) = standing_filesystem(&reading, guard.policy.fstype) {
        let objections = objections_to_identity(filesystem, &found);
        if !objections.is_empty() {
            return guard.hold(objections, Action::Secure);
        }
        if guard.policy.mode == Mode::Observe {
            // Nothing more can be learned without a mount; whoever mounts it lets us look.
            return guard.observed(Vec::new());
        }
        guard.state = State::Inspecting;
        return vec![no_fsck(guard.policy.fstype).map_or(Action::Fsck, Action::NoFsck)];
    }
    let evidence = format_evidence(&found, &reading, guard.policy.mode, Observed::not_run("not needed so far"));
    guard.format = Some(evidence.clone());
    let worth_a_second_look = match &reading.content {
        Observed::Seen(content) => {
            content.complete
                && match content.class {
                    crate::model::ContentClass::Zero | crate::model::ContentClass::Uniform => true,
                    crate::model::ContentClass::Other => false,
                }
        }
        Observed::Unknown(_) => false,
    };
    if guard.policy.mode == Mode::Enforce
        && guard.policy.format == FormatPolicy::IfBlank
        && worth_a_second_look
        && let Observed::Seen(content) = &reading.content
    {
        guard.state = State::Formatting;
        let digest = content.telling_digest.clone();
        return vec![Action::LockAndReread { digest, size: content.size_before }];
    }
    if guard.policy.mode == Mode::Observe {
        let apart = told_apart(&reading, guard.policy.fstype, &found);
        return observe_unformatted(guard, evidence, apart);
    }
    match may_format(guard.policy.format, &evidence, BootMillis(0)) {
        // Without a second reading no permit exists; should a rule ever give one here, it is not used.
        Ok(_permit) => {
            let reason = Reason::new(ReasonCode::ChangedUnderneath, "a permit without a second reading is not used");
            guard.hold(vec![reason], Action::Secure)
        }
        Err(refusal) => {
            let reasons =
                told_apart(&reading, guard.policy.fstype, &found).into_iter().chain(refusal.reasons).collect();
            guard.hold(reasons, Action::Secure)
        }
    }
}

/// A filesystem of another type than the configured one stands there: likely the configuration's mistake, so it is said
/// first, by name.
fn told_apart(reading: &DeviceReading, fstype: Fstype, found: &Found) -> Option<Reason> {
    let filesystem = reading.filesystem.as_ref().filter(|filesystem| filesystem.fstype != fstype.as_str())?;
    let node = &found.facts.node;
    let uuid = filesystem.uuid.map_or(String::new(), |uuid| format!(" with UUID {uuid}"));
    let message = format!(
        "{node} carries an {}{uuid}, and the configuration of this guard says fstype = \"{fstype}\": either it is the wrong \
         volume, or the configuration is wrong",
        filesystem.fstype
    );
    Some(Reason::new(ReasonCode::SignatureFound, message))
}

/// Observe mode asks the rule as if the claim and the second reading had gone well: both need what observe does not do.
fn observe_unformatted(guard: &mut Guard, evidence: FormatEvidence, apart: Option<Reason>) -> Vec<Action> {
    let supposed = FormatEvidence {
        claim: Observed::Seen(Claim::Ours),
        second_reading: Observed::Seen(SecondReading::Same),
        ..evidence
    };
    let doubts = match may_format(guard.policy.format, &supposed, BootMillis(0)) {
        Ok(_unused) => Vec::new(),
        Err(refusal) => apart.into_iter().chain(refusal.reasons).collect(),
    };
    guard.observed(doubts)
}

/// The filesystem that may go on to fsck and mount: the configured type, its primary superblock standing, and libblkid
/// naming the same and nothing ambivalent.
fn standing_filesystem(reading: &DeviceReading, fstype: Fstype) -> Option<&FilesystemFacts> {
    let fstype = fstype.as_str();
    let filesystem = reading.filesystem.as_ref()?;
    if filesystem.fstype != fstype {
        return None;
    }
    match &reading.libblkid {
        Observed::Seen(answer) => {
            let agrees =
                answer.safeprobe == 0 && answer.named.iter().any(|name| name.kind == fstype && !name.bad_checksum);
            agrees.then_some(filesystem)
        }
        Observed::Unknown(_) => None,
    }
}

/// Identity is settled before anything writes: fsck, journal replay and mount come after.
fn objections_to_identity(filesystem: &FilesystemFacts, found: &Found) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let node = &found.facts.node;
    if !filesystem.unknown_features.is_empty() {
        reasons.push(Reason::new(
            ReasonCode::FilesystemFeatureUnknown,
            format!(
                "the {} on {node} uses features that this volhold does not know: {}",
                filesystem.fstype,
                filesystem.unknown_features.join(", ")
            ),
        ));
    }
    let records = match &found.records {
        Observed::Seen(records) => records,
        Observed::Unknown(why) => {
            reasons.push(Reason::new(
                ReasonCode::LedgerBroken,
                format!("the node's record of this volume cannot be read: {}", why.detail()),
            ));
            return reasons;
        }
    };
    match filesystem.uuid {
        None => {
            reasons.push(Reason::new(ReasonCode::IdentityMismatch, format!("the superblock on {node} carries no UUID")))
        }
        Some(uuid) => {
            // A person who has looked may say that what stands there is right.
            if let Some(intent) = records.open_intent.as_ref().filter(|_| records.adoption.is_none()) {
                if intent.fs_uuid != uuid {
                    reasons.push(Reason::new(
                        ReasonCode::IntentUnfinished,
                        format!(
                            "volhold began to make filesystem {} on {node} and did not finish; now {uuid} is there",
                            intent.fs_uuid
                        ),
                    ));
                } else if filesystem.clean == Some(false) {
                    reasons.push(Reason::new(
                        ReasonCode::IntentUnfinished,
                        format!(
                            "volhold began to make filesystem {uuid} on {node}, and its superblock says that mkfs did not \
                             come to its end"
                        ),
                    ));
                } else if !same_attachment(found, intent) {
                    reasons.push(Reason::new(
                        ReasonCode::IntentUnfinished,
                        format!(
                            "volhold began to make filesystem {uuid} on {node} and did not finish, and the device was \
                             detached since or the machine rebooted"
                        ),
                    ));
                }
            }
            let known = records.fs_uuids.contains(&uuid)
                || records.open_intent.as_ref().is_some_and(|intent| intent.fs_uuid == uuid);
            if !known
                && records.adoption.is_none()
                && let Some(expected) = records.fs_uuids.last()
            {
                let made = match filesystem.made_at {
                    Some(made) => format!(", made {made}"),
                    None => String::new(),
                };
                reasons.push(Reason::new(
                    ReasonCode::FilesystemReplaced,
                    format!("{node} carries filesystem {uuid}{made}; the record expects {expected}"),
                ));
            }
        }
    }
    reasons
}

/// The attachment of the intent never ended: same boot, and where the kernel counts attachments, the same one.
fn same_attachment(found: &Found, intent: &crate::model::OpenIntent) -> bool {
    intent.boot_id == found.boot_id
        && intent.diskseq.is_some()
        && intent.diskseq == found.facts.diskseq
        && intent.devnum == found.facts.devnum
}

/// Puts the sources side by side for the format decision.
fn format_evidence(
    found: &Found,
    reading: &DeviceReading,
    mode: Mode,
    second_reading: Observed<SecondReading>,
) -> FormatEvidence {
    let claim = match mode {
        Mode::Enforce => Observed::Seen(Claim::Ours),
        Mode::Observe => Observed::not_run("observe mode claims nothing"),
    };
    let history = match &found.records {
        Observed::Unknown(why) => Observed::Seen(FormatHistory::Broken { detail: why.detail().to_owned() }),
        Observed::Seen(records) => Observed::Seen(history_of(records, found)),
    };
    FormatEvidence {
        device: Observed::Seen(found.facts.clone()),
        claim,
        identity: found.identity.clone(),
        libblkid: reading.libblkid.clone(),
        content: reading.content.clone(),
        origin: found.origin.clone(),
        history,
        second_reading,
    }
}

fn history_of(records: &Records, found: &Found) -> FormatHistory {
    // `--replacement` and `--new-cluster` say that starting from nothing is meant; that lifts memory and nothing else.
    let meant = match records.adoption {
        Some(Adoption::Replacement | Adoption::NewCluster) => true,
        Some(Adoption::Identity | Adoption::Restored) | None => false,
    };
    if let Some(intent) = &records.open_intent {
        return FormatHistory::UnfinishedIntent {
            fs_uuid: intent.fs_uuid,
            same_attachment: same_attachment(found, intent),
        };
    }
    if meant {
        return FormatHistory::None;
    }
    if let Some(at) = records.held_data_at {
        return FormatHistory::Used { says: format!("the record says that it held etcd data ({at})") };
    }
    if let Some(pin) = &records.pin {
        return FormatHistory::Used {
            says: format!("the record pins cluster {} member {} to it", pin.cluster_id, pin.member_id),
        };
    }
    if let Some(uuid) = records.fs_uuids.last() {
        return FormatHistory::Used { says: format!("the record names filesystem {uuid} on it") };
    }
    FormatHistory::None
}

fn on_reread(guard: &mut Guard, second: Observed<SecondReading>, now: BootMillis) -> Vec<Action> {
    if guard.state != State::Formatting {
        return Vec::new();
    }
    let (Some(found), Some(reading)) = (&guard.found, &guard.reading) else { return Vec::new() };
    let evidence = format_evidence(found, reading, guard.policy.mode, second);
    guard.format = Some(evidence.clone());
    match may_format(guard.policy.format, &evidence, now) {
        Ok(permit) => vec![Action::Mkfs(Box::new(permit))],
        Err(refusal) => guard.hold(refusal.reasons, Action::Secure),
    }
}

fn on_looked(guard: &mut Guard, evidence: StartEvidence) -> Vec<Action> {
    let verdict = may_start(&evidence, &guard.policy.start);
    guard.start = Some(evidence.clone());
    guard.verdict = Some(verdict.clone());
    let mounted_already = guard.found.as_ref().is_some_and(|found| found.place == Place::Mounted);
    match (guard.policy.mode, verdict) {
        (Mode::Observe, StartVerdict::Hold { reasons }) => guard.observed(reasons),
        (Mode::Observe, StartVerdict::Start { warnings, how, data_dir }) => {
            guard.warnings = warnings;
            let facts = facts_of(how, &data_dir, &evidence);
            let mut actions = vec![Action::Record(facts)];
            actions.extend(guard.observed(Vec::new()));
            actions
        }
        (Mode::Enforce, StartVerdict::Start { how, data_dir, warnings }) => {
            guard.warnings = warnings;
            let facts = facts_of(how, &data_dir, &evidence);
            let was_open = match &guard.state {
                State::Open { .. } => true,
                State::Discovering
                | State::Examining
                | State::Formatting
                | State::Inspecting
                | State::Publishing
                | State::Held { .. }
                | State::Observing { .. } => false,
            };
            let doubts = doubts_about(how, &guard.warnings);
            let decision = |guard: &Guard| if guard.would_hold() { doubted(guard) } else { opened(guard) };
            if was_open {
                guard.state = State::Open { data_dir: data_dir.clone(), doubts };
                // Renewed: the ready file may have gone with the run dir.
                vec![decision(guard), Action::OpenGate { facts, data_dir, how }]
            } else if mounted_already {
                guard.state = State::Open { data_dir: data_dir.clone(), doubts };
                vec![decision(guard), Action::OpenGate { facts, data_dir, how }]
            } else {
                guard.state = State::Publishing;
                // An adopted empty place is a fresh start too; a dir that is there stays as it is.
                let create = matches!(how, StartKind::Fresh | StartKind::Adopted);
                vec![opened(guard), Action::Publish { facts, data_dir, create }]
            }
        }
        (Mode::Enforce, StartVerdict::Hold { reasons }) => {
            let open_dir = match &guard.state {
                State::Open { data_dir, .. } => Some(data_dir.clone()),
                State::Discovering
                | State::Examining
                | State::Formatting
                | State::Inspecting
                | State::Publishing
                | State::Held { .. }
                | State::Observing { .. } => {
                    let selected = evidence.volume.seen().and_then(|volume| volume.selected.as_ref());
                    let dir = selected.map(|selection| selection.path.clone());
                    let dir = dir.or_else(|| guard.policy.start.data_dir.clone()).unwrap_or_else(|| ".".to_owned());
                    guard.gate_was_open().then_some(dir)
                }
            };
            match open_dir {
                // The gate was opened before: told loudly, never closed.
                Some(data_dir) => {
                    guard.state = State::Open { data_dir: data_dir.clone(), doubts: reasons };
                    vec![doubted(guard), Action::OpenGate { facts: Vec::new(), data_dir, how: StartKind::Running }]
                }
                None => guard.hold(reasons, Action::Secure),
            }
        }
    }
}

fn on_published(guard: &mut Guard) -> Vec<Action> {
    if guard.state != State::Publishing {
        return Vec::new();
    }
    match &guard.verdict {
        Some(StartVerdict::Start { how, data_dir, .. }) => {
            let (how, data_dir) = (*how, data_dir.clone());
            guard.state = State::Open { data_dir: data_dir.clone(), doubts: Vec::new() };
            vec![Action::OpenGate { facts: Vec::new(), data_dir, how }]
        }
        Some(StartVerdict::Hold { .. }) | None => Vec::new(),
    }
}

/// The decision to open, kept before the gate opens.
fn opened(guard: &Guard) -> Action {
    Action::Decide(Box::new(Decided {
        verdict: DecisionVerdict::Opened,
        reasons: Vec::new(),
        warnings: guard.warnings.clone(),
        evidence: guard.evidence(),
        not_done: guard.did.no_fsck.map(str::to_owned).into_iter().collect(),
    }))
}

fn doubted(guard: &Guard) -> Action {
    Action::Decide(Box::new(Decided {
        verdict: DecisionVerdict::WouldHold,
        reasons: guard.reasons().to_vec(),
        warnings: guard.warnings.clone(),
        evidence: guard.evidence(),
        not_done: vec!["the gate was open already: it was not closed, and etcd was not stopped".to_owned()],
    }))
}

/// An etcd that runs is never stopped, but what would have held it is a doubt and no remark: an empty etcd that was started
/// beside the old data is to be seen now.
fn doubts_about(how: StartKind, warnings: &[Reason]) -> Vec<Reason> {
    const HOLD: &[ReasonCode] = &[
        ReasonCode::WrongVolume,
        ReasonCode::RestoredVolume,
        ReasonCode::FilesystemReplaced,
        ReasonCode::DataVanished,
        ReasonCode::EmptyBesideOld,
        ReasonCode::DataDirAmbiguous,
        ReasonCode::OtherCluster,
        ReasonCode::OtherMember,
    ];
    if how != StartKind::Running {
        return Vec::new();
    }
    warnings.iter().filter(|warning| HOLD.contains(&warning.code)).cloned().collect()
}

/// What a start is to be remembered by: whose data it is, and that there is data. How far it got follows as marks, once
/// that is durable.
fn facts_of(how: StartKind, data_dir: &str, evidence: &StartEvidence) -> Vec<Fact> {
    let records = match &evidence.records {
        Observed::Seen(records) => records,
        Observed::Unknown(_) => return Vec::new(),
    };
    let because = match how {
        StartKind::Fresh => return vec![Fact::FreshAllowed { data_dir: data_dir.to_owned() }],
        // Only a person or etcd-manager can end these; the pin stays as it is.
        StartKind::MigrationUnderWay | StartKind::IdentityChanged => return Vec::new(),
        StartKind::Adopted => "adopted",
        StartKind::FirstUse | StartKind::Running => "first-use",
        StartKind::Continues => "grown-here",
    };
    let report = match &evidence.volume {
        Observed::Seen(volume) => volume.data_dirs.iter().find(|dir| dir.path == data_dir),
        Observed::Unknown(_) => None,
    };
    let fingerprint = report.and_then(|report| report.fingerprint.as_ref());
    let ids = fingerprint.and_then(|print| Some((print.cluster_id?, print.member_id?)));
    let mut facts = Vec::new();
    if records.pin.is_none() || how == StartKind::Adopted {
        match ids {
            Some((cluster_id, member_id)) => facts.push(Fact::Pinned {
                cluster_id,
                member_id,
                name: fingerprint.and_then(|print| print.name.clone()),
                data_dir: data_dir.to_owned(),
                because: because.to_owned(),
            }),
            // An adopted dir without ids is an allowed fresh start.
            None if how == StartKind::Adopted => facts.push(Fact::FreshAllowed { data_dir: data_dir.to_owned() }),
            None => {}
        }
    }
    let populated = report.is_some_and(|report| report.populated);
    if populated && (records.held_data_at.is_none() || how == StartKind::Adopted) {
        facts.push(Fact::HoldsData {
            mark: HighWater {
                data_dir: data_dir.to_owned(),
                cluster_id: ids.map(|(cluster_id, _)| cluster_id),
                member_id: ids.map(|(_, member_id)| member_id),
                term: None,
                consistent_index: None,
                revision: None,
                wal_last_index: None,
                keys: fingerprint.and_then(|print| print.keys),
            },
        });
    }
    facts
}

/// The data dir is empty while the gate is open, and a record says that it held data: told now, not at the next boot.
fn vanished(guard: &mut Guard, data_dir: &str, records: &Records) -> Vec<Action> {
    let Some(at) = records.held_data_at else { return Vec::new() };
    let message = format!("`{data_dir}` held data at {at} and is empty now, while its gate is open");
    let doubts = vec![Reason::new(ReasonCode::DataVanished, message)];
    if guard.reasons() == doubts {
        return Vec::new();
    }
    guard.state = State::Open { data_dir: data_dir.to_owned(), doubts };
    vec![doubted(guard)]
}

/// A mark while the gate is open: identity at once, progress as a high-water mark.
fn on_marked(guard: &mut Guard, mark: Observed<Option<HighWater>>, records: Observed<Records>) -> Vec<Action> {
    let State::Open { data_dir, .. } = &guard.state else { return Vec::new() };
    let data_dir = data_dir.clone();
    // What is unknown while the gate is open is no progress, and closes nothing.
    let (Observed::Seen(mark), Observed::Seen(records)) = (mark, records) else { return Vec::new() };
    let Some(mark) = mark else { return vanished(guard, &data_dir, &records) };
    let (Some(cluster_id), Some(member_id)) = (mark.cluster_id, mark.member_id) else { return Vec::new() };
    let mut facts = Vec::new();
    match &records.pin {
        None => facts.push(Fact::Pinned {
            cluster_id,
            member_id,
            name: None,
            data_dir: data_dir.clone(),
            because: "grown-here".to_owned(),
        }),
        Some(pin) if (pin.cluster_id, pin.member_id) != (cluster_id, member_id) => {
            let message = format!(
                "the identity changed while the gate was open: cluster {} member {} became cluster {cluster_id} member \
                 {member_id}",
                pin.cluster_id, pin.member_id
            );
            let known = records.identity_changed == Some((cluster_id, member_id));
            guard.state = State::Open { data_dir, doubts: vec![Reason::new(ReasonCode::IdentityChanged, message)] };
            if known {
                return Vec::new();
            }
            let fact = Fact::IdentityChanged {
                from_cluster: pin.cluster_id,
                from_member: pin.member_id,
                to_cluster: cluster_id,
                to_member: member_id,
            };
            return vec![Action::Record(vec![fact]), doubted(guard)];
        }
        Some(_same) => {}
    }
    let holds = mark.keys.unwrap_or(0) > 0;
    let further = match &records.high_water {
        None => true,
        Some(last) => {
            mark.consistent_index > last.consistent_index
                || mark.term > last.term
                || mark.revision > last.revision
                || mark.wal_last_index > last.wal_last_index
        }
    };
    if holds && further {
        facts.push(Fact::HoldsData { mark });
    }
    if facts.is_empty() { Vec::new() } else { vec![Action::Record(facts)] }
}
