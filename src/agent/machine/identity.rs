//! Whose device this is, by what the node remembers: settled before anything writes.

use super::Found;
use crate::decide::start::of_another_volume;
use crate::model::{
    Adoption, Claim, DeviceReading, FilesystemFacts, FormatEvidence, FormatHistory, Mode, Observed, Origin, Reason,
    ReasonCode, Records, SecondReading, Why,
};
use std::borrow::Cow;

/// Identity is settled before anything writes: fsck, journal replay and mount come after.
pub(super) fn objections_to_identity(filesystem: &FilesystemFacts, found: &Found) -> Vec<Reason> {
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
    match &found.records {
        Observed::Seen(records) => reasons.extend(against_records(records, filesystem, found)),
        Observed::Unknown(why) => reasons.push(Reason::new(
            ReasonCode::LedgerBroken,
            format!("the node's record of this volume cannot be read: {}", why.detail()),
        )),
    }
    reasons
}

/// Does the volume's own ledger have to be heard before anything is written? Where a record, or a tag, knows another
/// filesystem on this volume: it may be an old one, and the volume knows better. And where this may be a copy of another
/// volume, which the copy's ledger says. A node that remembers nothing is no doubt by itself.
pub(super) fn in_doubt(objections: &[Reason], found: &Found) -> bool {
    if !objections.is_empty() {
        return objections.iter().all(|reason| reason.code == ReasonCode::FilesystemReplaced);
    }
    let copied = match &found.origin {
        Observed::Seen(Origin::Provider { from_snapshot, .. }) => from_snapshot.is_some(),
        Observed::Seen(Origin::NoProvider) | Observed::Unknown(_) => false,
    };
    let tags_copied = found
        .witness
        .seen()
        .and_then(Option::as_ref)
        .is_some_and(|witness| witness.volume.as_ref().is_some_and(|volume| *volume != found.facts.volume_id));
    (copied || tags_copied) && !found.records.seen().is_some_and(knows)
}

/// The node has this volume in its records.
fn knows(records: &Records) -> bool {
    records.pin.is_some() || records.held_data_at.is_some() || !records.fs_uuids.is_empty() || records.answered
}

/// What stands against the filesystem when node and volume are heard together.
pub(super) fn objections_by(union: &Records, filesystem: &FilesystemFacts, found: &Found) -> Vec<Reason> {
    match of_another_volume(union, filesystem.uuid, &found.facts.volume_id) {
        Some(reason) => vec![reason],
        None => against_records(union, filesystem, found),
    }
}

/// The volume's ledger could not be heard without writing to it. A record that contradicts then stands. A mere sign of a copy
/// does not: what this volume is will be asked again when it is mounted, and whether it can be looked at without its journal
/// says nothing about it.
pub(super) fn unremembered(filesystem: &FilesystemFacts, found: &Found, why: &Why) -> Vec<Reason> {
    let mut objections = objections_to_identity(filesystem, found);
    if let Some(last) = objections.last_mut() {
        last.message.push_str(&format!("; its own ledger, which may know more, cannot be read: {}", why.detail()));
    }
    objections
}

fn against_records(records: &Records, filesystem: &FilesystemFacts, found: &Found) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let node = &found.facts.node;
    let records = remembered(records, found);
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

/// What the node remembers, and where it has nothing the tags on the volume: they are known where EC2 was asked for the volume
/// anyway. Where it was not, nothing is missing: what the node knows is enough.
fn remembered<'a>(records: &'a Records, found: &Found) -> Cow<'a, Records> {
    match &found.witness {
        Observed::Seen(Some(witness)) => Cow::Owned(records.with_witness(witness, &found.facts.volume_id)),
        Observed::Seen(None) | Observed::Unknown(_) => Cow::Borrowed(records),
    }
}

/// The attachment of the intent never ended: same boot, and where the kernel counts attachments, the same one.
fn same_attachment(found: &Found, intent: &crate::model::OpenIntent) -> bool {
    intent.boot_id == found.boot_id
        && intent.diskseq.is_some()
        && intent.diskseq == found.facts.diskseq
        && intent.devnum == found.facts.devnum
}

/// Puts the sources side by side for the format decision.
pub(super) fn format_evidence(
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
        Observed::Seen(records) => history_of(records, found),
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

fn history_of(records: &Records, found: &Found) -> Observed<FormatHistory> {
    // `--replacement` and `--new-cluster` say that starting from nothing is meant; that lifts memory and nothing else.
    let meant = match records.adoption {
        Some(Adoption::Replacement | Adoption::NewCluster) => true,
        Some(Adoption::Identity | Adoption::Restored) | None => false,
    };
    let used = |says: String| Observed::Seen(FormatHistory::Used { says });
    match &found.witness {
        // Whatever it says: volhold writes tags on volumes that it has opened.
        Observed::Seen(Some(witness)) if !meant => return used(format!("its tags say so ({})", witness.words())),
        Observed::Seen(Some(_) | None) => {}
        Observed::Unknown(why) if !meant => return Observed::Unknown(why.clone()),
        Observed::Unknown(_) => {}
    }
    if let Some(intent) = &records.open_intent {
        return Observed::Seen(FormatHistory::UnfinishedIntent {
            fs_uuid: intent.fs_uuid,
            same_attachment: same_attachment(found, intent),
        });
    }
    if meant {
        return Observed::Seen(FormatHistory::None);
    }
    if let Some(at) = records.held_data_at {
        return used(format!("the record says that it held etcd data ({at})"));
    }
    if let Some(pin) = &records.pin {
        return used(format!("the record pins cluster {} member {} to it", pin.cluster_id, pin.member_id));
    }
    if let Some(uuid) = records.fs_uuids.last() {
        return used(format!("the record names filesystem {uuid} on it"));
    }
    Observed::Seen(FormatHistory::None)
}
