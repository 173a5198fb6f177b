//! Is this the volume, and the filesystem, that the records speak of?

use super::words::unknown;
use super::{Kind, Objections};
use crate::model::{FilesystemFacts, FsUuid, Observed, OpenIntent, Reason, ReasonCode, Records, VolumeId};
use serde_json::json;

/// The filesystem must be known, and one of those that were accepted on this volume id.
pub fn filesystem(
    filesystem: &Observed<FilesystemFacts>,
    records: Option<&Records>,
    volume_id: &VolumeId,
    objections: &mut Objections,
) {
    let facts = match filesystem {
        Observed::Seen(facts) => facts,
        Observed::Unknown(why) => return objections.add(Kind::Unread, unknown("the filesystem on the volume", why)),
    };
    let Some(records) = records else { return };
    if let Some(last) = records.fs_uuids.last()
        && !facts.uuid.is_some_and(|uuid| records.fs_uuids.contains(&uuid))
    {
        let (found, made) = in_words(facts);
        let message = format!(
            "{volume_id} held a filesystem with UUID {last} and now holds {found}{made}: it was formatted anew, or this is \
             another volume"
        );
        let detail = json!({ "recorded": records.fs_uuids, "found": facts.uuid, "made_at": facts.made_at });
        objections.add(Kind::OtherFilesystem, Reason::new(ReasonCode::FilesystemReplaced, message).with_detail(detail));
    }
    if let Some(OpenIntent { fs_uuid, boot_id: _, diskseq: _, devnum: _ }) = &records.open_intent
        && facts.uuid != Some(*fs_uuid)
    {
        let (found, made) = in_words(facts);
        let message = format!(
            "an mkfs with UUID {fs_uuid} was begun on {volume_id} and its end was never recorded, and now it holds {found}{made}"
        );
        objections.add(Kind::OtherFilesystem, Reason::new(ReasonCode::IntentUnfinished, message));
    }
}

fn in_words(facts: &FilesystemFacts) -> (String, String) {
    let found = match facts.uuid {
        Some(uuid) => format!("an {} filesystem with UUID {uuid}", facts.fstype),
        None => format!("an {} filesystem without a UUID", facts.fstype),
    };
    (found, facts.made_at.map_or_else(String::new, |made_at| format!(", made at {made_at}")))
}

/// The ledger on the volume must speak of this volume, and the ledgers must not contradict each other.
pub fn memory(records: &Records, facts: Option<&FilesystemFacts>, volume_id: &VolumeId, objections: &mut Objections) {
    if let Some(reason) = of_another_volume(records, facts.and_then(|facts| facts.uuid), volume_id) {
        objections.add(Kind::OtherVolume, reason);
    }
    if records.pins_contradict {
        let pinned = records.pin.as_ref().map_or_else(String::new, |pin| {
            format!(" (one of them: cluster {}, member {})", pin.cluster_id, pin.member_id)
        });
        let message = format!(
            "the ledger on the node and the one on the volume expect different members on {volume_id}{pinned}, and neither \
             is known to be the newer one"
        );
        objections.add(Kind::PinsContradict, Reason::new(ReasonCode::LedgerBroken, message));
    }
}

/// The ledger on the volume was written on another one. `uuid` is the filesystem that is there.
pub fn of_another_volume(records: &Records, uuid: Option<FsUuid>, volume_id: &VolumeId) -> Option<Reason> {
    let other = records.names_other_volume.as_ref()?;
    let known_otherwise = !records.fs_uuids.is_empty() && !uuid.is_some_and(|uuid| records.fs_uuids.contains(&uuid));
    let (code, message) = if known_otherwise {
        (
            ReasonCode::WrongVolume,
            format!(
                "the ledger on this volume speaks of {other}, not of {volume_id}, and this node knows {volume_id} with \
                 another filesystem: another volume stands in its place"
            ),
        )
    } else {
        (
            ReasonCode::RestoredVolume,
            format!(
                "the ledger on this volume speaks of {other}, not of {volume_id}: it is a copy, made from a snapshot of \
                 {other} or by hand"
            ),
        )
    };
    Some(Reason::new(code, message).with_detail(json!({ "ledger_names": other, "volume_id": volume_id })))
}

/// Did volhold make the filesystem that is there? An intent whose filesystem stands counts: the primary superblock is what
/// mkfs writes last.
pub fn made_here(records: &Records, uuid: FsUuid) -> bool {
    records.formatted.contains(&uuid) || records.open_intent.as_ref().is_some_and(|intent| intent.fs_uuid == uuid)
}
