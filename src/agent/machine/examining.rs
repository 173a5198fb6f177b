//! From the device that was found to what its bytes allow: the steps until a filesystem stands, or mkfs has its permit.

use super::identity::{format_evidence, in_doubt, objections_by, objections_to_identity, unremembered};
use super::{Action, Found, Guard, Place, State, no_fsck};
use crate::decide::format::may_format;
use crate::model::{
    BootMillis, Claim, DeviceFacts, DeviceReading, DeviceUse, FilesystemFacts, FormatEvidence, FormatPolicy, Fstype,
    Mode, Observed, Reason, ReasonCode, Records, Release, SecondReading,
};

pub(super) fn on_found(guard: &mut Guard, found: Found) -> Vec<Action> {
    guard.forget_examination();
    let released = match &found.records {
        Observed::Seen(records) => {
            let stands = |release: &&Release| release.stands(found.now, &found.boot_id, found.now_boot);
            records.released.as_ref().filter(stands).map(|release| release.until)
        }
        Observed::Unknown(_) => None,
    };
    let place = found.place;
    let objections = objections_to(&found.facts);
    guard.found = Some(found);
    if guard.policy.mode == Mode::Observe {
        return match place {
            Place::Mounted | Place::Partly => {
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
        Place::Mounted | Place::Partly => {
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

pub(super) fn on_read(guard: &mut Guard, reading: DeviceReading) -> Vec<Action> {
    if guard.state != State::Examining {
        return Vec::new();
    }
    guard.reading = Some(reading.clone());
    let Some(found) = guard.found.clone() else { return Vec::new() };
    if let Some(filesystem) = standing_filesystem(&reading, guard.policy.fstype) {
        let objections = objections_to_identity(filesystem, &found);
        if guard.policy.mode == Mode::Enforce && in_doubt(&objections, &found) {
            return vec![Action::ReadLedger];
        }
        if !objections.is_empty() {
            return guard.hold(objections, Action::Secure);
        }
        if guard.policy.mode == Mode::Observe {
            // Nothing more can be learned without a mount; whoever mounts it lets us look.
            return guard.observed(Vec::new());
        }
        return stands(guard);
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

/// It is the volume that the records know, and may be written to.
fn stands(guard: &mut Guard) -> Vec<Action> {
    guard.state = State::Inspecting;
    vec![no_fsck(guard.policy.fstype).map_or(Action::Fsck, Action::NoFsck)]
}

/// The ledger on the volume, read while identity was in doubt. What the node or the tags have against the filesystem is
/// lifted where the volume's own ledger accepts it for this volume; a ledger that speaks of another volume objects.
pub(super) fn on_remembered(guard: &mut Guard, records: Observed<Records>) -> Vec<Action> {
    if guard.state != State::Examining {
        return Vec::new();
    }
    let (Some(found), Some(reading)) = (&guard.found, &guard.reading) else { return Vec::new() };
    let Some(filesystem) = standing_filesystem(reading, guard.policy.fstype) else { return Vec::new() };
    let objections = match &records {
        Observed::Seen(records) => objections_by(records, filesystem, found),
        Observed::Unknown(why) => unremembered(filesystem, found, why),
    };
    if objections.is_empty() { stands(guard) } else { guard.hold(objections, Action::Secure) }
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

pub(super) fn on_reread(guard: &mut Guard, second: Observed<SecondReading>, now: BootMillis) -> Vec<Action> {
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
