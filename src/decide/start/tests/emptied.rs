//! After *this member starts empty* the old data of that very member comes back instead.

use super::*;
use crate::model::Adoption;

fn emptied(volume: VolumeReading) -> StartEvidence {
    let records =
        Records { adoption: Some(Adoption::Replacement), answered: true, emptied: Some(mark()), ..Records::default() };
    with_records(volume, records)
}

#[test]
fn the_old_member_in_an_older_state_is_held_though_it_was_to_start_empty() {
    let mut older = one_healthy();
    fingerprint_of(&mut older).raft.term = Some(6);
    assert_eq!(held_as(&emptied(older)), [ReasonCode::WentBackwards]);
    let mut short = one_healthy();
    (fingerprint_of(&mut short).raft.last_index, fingerprint_of(&mut short).consistent_index) = (Some(2), Some(2));
    assert_eq!(held_as(&emptied(short)), [ReasonCode::WentBackwards]);
}

#[test]
fn an_empty_dir_another_member_and_the_old_one_as_far_as_it_was_start() {
    assert_eq!(starts(&emptied(reading(vec![], None))), StartKind::Adopted);
    assert_eq!(starts(&emptied(one_healthy())), StartKind::Adopted);
    // `member add` gives another id; what that one has got so far is its own.
    let mut rejoined = one_healthy();
    let fingerprint = fingerprint_of(&mut rejoined);
    (fingerprint.member_id, fingerprint.raft.term, fingerprint.raft.last_index) = (Some(HIM), Some(1), Some(3));
    (fingerprint.consistent_index, fingerprint.revision) = (Some(3), Some(1));
    assert_eq!(starts(&emptied(rejoined)), StartKind::Adopted);
}
