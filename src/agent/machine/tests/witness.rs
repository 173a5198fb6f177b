//! Tags on the volume, before anything is written to it.

use super::*;
use crate::model::{Adoption, Witness};

fn on(witness: Observed<Option<Witness>>, records: Records) -> Found {
    Found { witness, ..found(Place::Free, Observed::Seen(records), false) }
}

/// What follows from this reading.
fn read(found: Found, reading: DeviceReading) -> (Guard, Vec<Action>) {
    let guard = Guard::new(policy(Mode::Enforce, FormatPolicy::IfBlank, Fstype::Ext4));
    let (guard, _) = step(guard, Event::LookAgain);
    let (guard, _) = step(guard, Event::Found(Box::new(found)));
    let (guard, _) = step(guard, Event::Claimed(Ok(())));
    let (guard, actions) = step(guard, Event::Read(Box::new(reading)));
    if !matches!(actions.as_slice(), [Action::LockAndReread { .. }]) {
        return (guard, actions);
    }
    step(guard, Event::Reread { second: Observed::Seen(SecondReading::Same), now: BootMillis(5) })
}

fn formats(found: Found) -> bool {
    let (guard, actions) = read(found, blank());
    match actions.as_slice() {
        [Action::Mkfs(_)] => true,
        _held => {
            assert!(matches!(guard.state, State::Held { .. }), "{actions:?}");
            false
        }
    }
}

#[test]
fn a_volume_that_looks_blank_is_never_formatted_where_a_tag_says_that_volhold_had_it() {
    assert!(formats(on(Observed::Seen(None), Records::default())));
    let each = [
        Witness { fs_uuid: Some(uuid(1)), ..Witness::default() },
        Witness { seen_at: Time::from_unix(NOW), ..Witness::default() },
        Witness { not_understood: vec!["volhold/progress=?".to_owned()], ..Witness::default() },
        // Copied from another volume, for which this one then stands in.
        Witness { volume: Some(VolumeId("vol-1a2b3c4d".into())), ..Witness::default() },
    ];
    for witness in each {
        let found = on(Observed::Seen(Some(witness.clone())), Records::default());
        assert!(!formats(found.clone()), "{witness:?}");
        let (guard, _) = read(found, blank());
        assert_eq!(guard.reasons()[0].code, ReasonCode::HistorySaysUsed, "{:?}", guard.reasons());
        // Nor where our own mkfs was cut short: then no tag was written yet.
        let intent = crate::model::OpenIntent {
            fs_uuid: uuid(1),
            boot_id: BootId("boot".into()),
            diskseq: Some(3),
            devnum: DevNum { major: 7, minor: 0 },
        };
        let records = Records { open_intent: Some(intent), ..Records::default() };
        assert!(!formats(on(Observed::Seen(Some(witness.clone())), records)), "{witness:?}");
        for meant in [Adoption::NewCluster, Adoption::Replacement] {
            let records = Records { adoption: Some(meant), ..Records::default() };
            assert!(formats(on(Observed::Seen(Some(witness.clone())), records)), "{witness:?}");
        }
    }
    assert!(!formats(on(unknown(), Records::default())), "formatted without knowing the tags");
}

/// The reading brought a doubt, and this is what the ledgers then say together.
fn remembered(found: Found, union: Observed<Records>) -> (Guard, Vec<Action>) {
    let (guard, actions) = read(found, standing(Fstype::Ext4));
    assert!(matches!(actions[..], [Action::ReadLedger]), "{actions:?}");
    step(guard, Event::Remembered(Box::new(union)))
}

fn held(answer: (Guard, Vec<Action>)) -> ReasonCode {
    let (guard, actions) = answer;
    assert!(matches!(actions[..], [Action::Secure, Action::Decide(_)]), "{actions:?}");
    guard.reasons()[0].code
}

#[test]
fn a_filesystem_that_the_tags_do_not_name_is_neither_checked_nor_mounted() {
    let other = Witness { fs_uuid: Some(uuid(9)), ..Witness::default() };
    let found = || on(Observed::Seen(Some(other.clone())), Records::default());
    assert_eq!(held(remembered(found(), Observed::Seen(Records::default()))), ReasonCode::FilesystemReplaced);
    assert_eq!(held(remembered(found(), unknown())), ReasonCode::FilesystemReplaced);
    // Nor one that a ledger which is not this volume's own accepts.
    let copy = Records { names_other_volume: Some(VolumeId("vol-1a2b3c4d".into())), ..Records::default() };
    assert_eq!(held(remembered(found(), Observed::Seen(copy))), ReasonCode::RestoredVolume);
}

#[test]
fn what_is_said_of_another_filesystem_gives_way_to_the_volumes_own_ledger() {
    // Tags that could not be written when the volume got a new filesystem, or a node that was away then.
    let stale = Witness { fs_uuid: Some(uuid(9)), ..Witness::default() };
    let away = Records { fs_uuids: vec![uuid(9)], ..Records::default() };
    for found in [on(Observed::Seen(Some(stale)), Records::default()), on(Observed::Seen(None), away)] {
        let union = Records { fs_uuids: vec![uuid(9), uuid(1)], ..Records::default() };
        let (_, actions) = remembered(found, Observed::Seen(union));
        assert!(matches!(actions[..], [Action::Fsck]), "{actions:?}");
    }
}

#[test]
fn another_volume_in_its_place_is_told_as_that_before_it_is_touched() {
    let known = Records { fs_uuids: vec![uuid(9)], ..Records::default() };
    let found = on(Observed::Seen(None), known.clone());
    let union = Records { names_other_volume: Some(VolumeId("vol-1a2b3c4d".into())), ..known };
    assert_eq!(held(remembered(found, Observed::Seen(union))), ReasonCode::WrongVolume);
}

#[test]
fn what_may_be_a_copy_is_asked_before_it_is_touched() {
    let from_snapshot = Origin::Provider { encrypted: true, from_snapshot: Some("snap-1".into()), young: false };
    let tags = Witness { volume: Some(VolumeId("vol-1a2b3c4d".into())), ..Witness::default() };
    let copy = Records { names_other_volume: Some(VolumeId("vol-1a2b3c4d".into())), ..Records::default() };
    let made = Found { origin: Observed::Seen(from_snapshot), ..on(Observed::Seen(None), Records::default()) };
    for found in [made, on(Observed::Seen(Some(tags)), Records::default())] {
        assert_eq!(held(remembered(found.clone(), Observed::Seen(copy.clone()))), ReasonCode::RestoredVolume);
        // A ledger that says nothing, or cannot be read without its journal, leaves it to the look through the mount.
        for union in [Observed::Seen(Records::default()), unknown()] {
            let (_, actions) = remembered(found.clone(), union);
            assert!(matches!(actions[..], [Action::Fsck]), "{actions:?}");
        }
        // A node that has it in its records has no doubt.
        let known = Records { fs_uuids: vec![uuid(1)], ..Records::default() };
        let (_, actions) = read(Found { records: Observed::Seen(known), ..found }, standing(Fstype::Ext4));
        assert!(matches!(actions[..], [Action::Fsck]), "{actions:?}");
    }
}

#[test]
fn a_healthy_filesystem_needs_no_tags() {
    let same = Witness { fs_uuid: Some(uuid(1)), ..Witness::default() };
    let known = Records { fs_uuids: vec![uuid(1)], ..Records::default() };
    let stale = Witness { fs_uuid: Some(uuid(9)), ..Witness::default() };
    for found in [
        on(Observed::Seen(Some(same)), Records::default()),
        on(unknown(), Records::default()),
        on(Observed::Seen(Some(stale)), known),
    ] {
        let (_, actions) = read(found, standing(Fstype::Ext4));
        assert!(matches!(actions[..], [Action::Fsck]), "{actions:?}");
    }
}
