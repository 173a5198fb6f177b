//! What tags on the volume bear on a start: they speak where the ledgers are silent, and are missed only where nothing is there.

use super::*;
use crate::model::{Adoption, Witness};
use ReasonCode::*;

/// What a guard that was open with the healthy dir has written.
fn witness() -> Witness {
    Witness {
        fs_uuid: Some(uuid(1)),
        cluster_id: Some(OURS),
        member_id: Some(ME),
        data_dir: Some("default".into()),
        mark: Some(mark()),
        seen_at: Some(time()),
        ..Witness::default()
    }
}

fn told(evidence: StartEvidence, witness: Witness) -> StartEvidence {
    StartEvidence { witness: Observed::Seen(Some(witness)), ..evidence }
}

/// An empty filesystem on a volume that the provider calls young, made by volhold or not.
fn nothing(made_here: bool) -> StartEvidence {
    let formatted = if made_here { vec![uuid(1)] } else { vec![] };
    let records = Records { formatted, ..Records::default() };
    let evidence = with_records(reading(vec![], None), records);
    StartEvidence { age: Observed::Seen(VolumeAge::Young), ..evidence }
}

#[test]
fn data_that_only_the_tags_remember_has_vanished_where_there_is_nothing() {
    for made_here in [true, false] {
        assert_eq!(starts(&nothing(made_here)), StartKind::Fresh);
        let held = holds(&told(nothing(made_here), witness()));
        assert_eq!(codes(&held), [DataVanished], "{held:#?}");
        // Progress or a pin alone is enough.
        let pinned = Witness { mark: None, ..witness() };
        let marked = Witness { data_dir: None, ..witness() };
        for part in [pinned, marked] {
            assert_eq!(held_as(&told(nothing(made_here), part)), [DataVanished]);
        }
    }
}

#[test]
fn another_filesystem_than_the_tags_name_is_a_replaced_one() {
    let other = Witness { fs_uuid: Some(uuid(2)), ..witness() };
    assert_eq!(held_as(&told(first_look(one_healthy()), other.clone())), [FilesystemReplaced]);
    assert_eq!(held_as(&told(nothing(false), other))[0], FilesystemReplaced);
    // What the ledgers accepted is the accepted one, however old the tags are.
    let accepted = Records { fs_uuids: vec![uuid(1)], ..Records::default() };
    let stale = Witness { fs_uuid: Some(uuid(2)), cluster_id: None, mark: None, ..witness() };
    assert_eq!(starts(&told(with_records(one_healthy(), accepted), stale)), StartKind::FirstUse);
}

#[test]
fn data_goes_on_as_the_tags_remember_it_or_is_somebody_elses_or_older() {
    assert_eq!(starts(&told(first_look(one_healthy()), witness())), StartKind::Continues);
    let of_other = Witness { cluster_id: Some(OTHER), mark: None, ..witness() };
    assert_eq!(held_as(&told(first_look(one_healthy()), of_other)), [OtherCluster]);
    let further = Witness { mark: Some(HighWater { consistent_index: Some(10_000), ..mark() }), ..witness() };
    assert_eq!(held_as(&told(first_look(one_healthy()), further)), [WentBackwards]);
}

#[test]
fn a_pin_in_the_ledgers_outweighs_older_tags() {
    let stale = Witness { fs_uuid: Some(uuid(9)), cluster_id: Some(OTHER), member_id: Some(HIM), ..witness() };
    assert_eq!(starts(&told(with_records(one_healthy(), known()), stale)), StartKind::Continues);
}

#[test]
fn a_person_who_meant_an_empty_start_meant_the_tags_too() {
    for answer in [Adoption::NewCluster, Adoption::Replacement] {
        let records = Records { adoption: Some(answer), ..Records::default() };
        let evidence = StartEvidence { records: Observed::Seen(records), ..nothing(true) };
        let garbled = Witness { not_understood: vec!["volhold/progress=?".into()], ..witness() };
        assert_eq!(starts(&told(evidence, garbled)), StartKind::Adopted);
    }
}

#[test]
fn tags_that_nobody_understands_or_could_ask_for_keep_nothing_from_starting_but_a_fresh_etcd() {
    let garbled = || Witness { not_understood: vec!["volhold/fs-uuid=garbage".into()], ..Witness::default() };
    let held = holds(&told(nothing(true), garbled()));
    assert_eq!(codes(&held), [BlankReplacement]);
    says(&held[0], &["volhold/fs-uuid=garbage"]);
    assert_eq!(starts(&told(first_look(one_healthy()), garbled())), StartKind::FirstUse);
    for why in [eio(), Why::NotRun { detail: "EC2 was not asked".into() }] {
        let unknown = |evidence| StartEvidence { witness: Observed::Unknown(why.clone()), ..evidence };
        assert!(!holds(&unknown(nothing(true))).is_empty());
        assert_eq!(starts(&unknown(first_look(one_healthy()))), StartKind::FirstUse);
        assert_eq!(starts(&unknown(with_records(one_healthy(), known()))), StartKind::Continues);
    }
}

#[test]
fn what_volhold_made_and_wrote_down_a_moment_ago_is_no_objection_to_the_first_start() {
    let formatted = Some((time(), "i-1".to_owned()));
    let own = Witness { fs_uuid: Some(uuid(1)), formatted, seen_at: Some(time()), ..Witness::default() };
    assert_eq!(starts(&told(nothing(true), own)), StartKind::Fresh);
}
