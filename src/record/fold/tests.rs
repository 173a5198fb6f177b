#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "a test that panics is a test that fails"
)]

use super::*;
use crate::model::{BootId, BootMillis, DevNum};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const HERE: &str = "vol-here";
const OTHER: &str = "vol-other";
const FS: u128 = 7;

/// A ledger in short words: each entry gets the id of its content, unless one is given.
struct Book(Vec<(EntryId, Entry)>);

fn uuid(n: u128) -> FsUuid {
    FsUuid(uuid::Uuid::from_u128(n))
}

fn on(volume: &str, fs: Option<u128>, fact: Fact) -> Entry {
    Entry {
        time: Time::from_unix(1000).unwrap(),
        boot_id: BootId("boot".into()),
        machine_id: "m".into(),
        guard: "main".parse().unwrap(),
        volume_id: VolumeId(volume.into()),
        fs_uuid: fs.map(uuid),
        version: "0.1.0".into(),
        fact,
    }
}

fn here(fact: Fact) -> Entry {
    on(HERE, Some(FS), fact)
}

impl Book {
    /// Entries that the other ledger does not have: `who` makes their ids differ.
    fn alone(who: &str, entries: &[Entry]) -> Self {
        let id = |n: usize| EntryId(format!("{who}-{n}"));
        Book(entries.iter().enumerate().map(|(n, entry)| (id(n), entry.clone())).collect())
    }

    fn of(entries: &[(&str, Entry)]) -> Self {
        Book(entries.iter().map(|(id, entry)| (EntryId((*id).into()), entry.clone())).collect())
    }
}

fn folded(node: &Book, volume: &Book) -> Records {
    fold(&node.0, &volume.0, &VolumeId(HERE.into()), Some(uuid(FS)))
}

fn node_only(entries: &[Entry]) -> Records {
    folded(&Book::alone("n", entries), &Book(vec![]))
}

fn volume_only(entries: &[Entry]) -> Records {
    folded(&Book(vec![]), &Book::alone("v", entries))
}

fn pin(cluster: u64) -> Fact {
    Fact::Pinned {
        cluster_id: ClusterId(cluster),
        member_id: MemberId(1),
        name: Some("a".into()),
        data_dir: ".".into(),
        because: "first-use".into(),
    }
}

fn mark(cluster: u64, index: u64) -> HighWater {
    HighWater {
        data_dir: ".".into(),
        cluster_id: Some(ClusterId(cluster)),
        member_id: Some(MemberId(1)),
        term: Some(2),
        consistent_index: Some(index),
        revision: Some(index as i64),
        wal_last_index: Some(index),
        keys: Some(index),
    }
}

fn data(cluster: u64, index: u64) -> Fact {
    Fact::HoldsData { mark: mark(cluster, index) }
}

fn adopted(what: Adoption) -> Fact {
    Fact::Adopted { what, confirmed: "c".into() }
}

fn changed(to: u64) -> Fact {
    Fact::IdentityChanged {
        from_cluster: ClusterId(1),
        from_member: MemberId(1),
        to_cluster: ClusterId(to),
        to_member: MemberId(to),
    }
}

fn intent(fs: u128) -> Fact {
    Fact::FormatIntent {
        fs_uuid: uuid(fs),
        devnum: DevNum { major: 259, minor: 1 },
        diskseq: Some(9),
        evidence_digest: "e".into(),
    }
}

fn formatted(fs: u128) -> Fact {
    Fact::Formatted { fs_uuid: uuid(fs) }
}

fn pinned_cluster(records: &Records) -> Option<u64> {
    records.pin.as_ref().map(|pin| pin.cluster_id.0)
}

fn index(records: &Records) -> Option<u64> {
    records.high_water.as_ref().and_then(|mark| mark.consistent_index)
}

#[test]
fn no_entries_say_nothing() {
    assert_eq!(node_only(&[]), Records::default());
}

#[test]
fn an_entry_on_either_ledger_is_remembered() {
    for records in [node_only(&[here(pin(1)), here(data(1, 5))]), volume_only(&[here(pin(1)), here(data(1, 5))])] {
        assert_eq!(pinned_cluster(&records), Some(1));
        assert_eq!(records.high_water, Some(mark(1, 5)));
        assert_eq!(records.held_data_at, Time::from_unix(1000));
        assert_eq!(records.fs_uuids, [uuid(FS)]);
        assert!(!records.pins_contradict);
        assert_eq!(records.adoption, None);
    }
    assert!(node_only(&[here(pin(1))]).node_ledger_present);
    assert!(!volume_only(&[here(pin(1))]).node_ledger_present);
}

#[test]
fn entries_about_another_volume_and_filesystem_do_not_count() {
    let records = node_only(&[on(OTHER, Some(8), pin(2)), on(OTHER, None, data(2, 9)), on(OTHER, Some(8), intent(3))]);
    assert_eq!(records, Records { node_ledger_present: true, ..Records::default() });
}

#[test]
fn a_copied_filesystem_brings_its_memory_under_the_new_volume_id() {
    let records = node_only(&[on(OTHER, Some(FS), pin(2)), on(OTHER, Some(FS), data(2, 9))]);
    assert_eq!((pinned_cluster(&records), index(&records)), (Some(2), Some(9)));
    assert!(records.held_data_at.is_some());
    assert_eq!(records.fs_uuids, [], "that is about the other volume");
}

#[test]
fn the_last_pin_of_a_ledger_stands() {
    let records = node_only(&[here(pin(1)), here(data(1, 90)), here(pin(2)), here(data(2, 4))]);
    assert_eq!((pinned_cluster(&records), index(&records)), (Some(2), Some(4)));
}

#[test]
fn progress_is_the_highest_since_the_pin_and_keys_are_the_newest() {
    let mut high = mark(1, 50);
    high.term = Some(9);
    let later = HighWater { keys: Some(3), consistent_index: Some(40), ..mark(1, 40) };
    let records = node_only(&[
        here(pin(1)),
        here(Fact::HoldsData { mark: high }),
        here(pin(1)),
        here(Fact::HoldsData { mark: later }),
        here(data(2, 1000)),
    ]);
    let best = records.high_water.unwrap();
    assert_eq!((best.term, best.consistent_index, best.revision, best.keys), (Some(9), Some(50), Some(50), Some(3)));
}

#[test]
fn across_ledgers_the_higher_progress_counts() {
    let node = Book::alone("n", &[here(pin(1)), here(data(1, 5))]);
    let volume = Book::alone("v", &[here(pin(1)), here(data(1, 8))]);
    for (one, two) in [(&node, &volume), (&volume, &node)] {
        let records = folded(one, two);
        assert_eq!(records.high_water, Some(mark(1, 8)));
        assert!(!records.pins_contradict);
    }
}

#[test]
fn marks_without_a_pin_are_remembered_for_the_identity_noted_last() {
    let records = node_only(&[here(data(1, 90)), here(data(2, 4)), here(data(2, 3))]);
    let best = records.high_water.unwrap();
    assert_eq!((best.cluster_id, best.consistent_index), (Some(ClusterId(2)), Some(4)));
}

#[test]
fn two_ledgers_that_pin_different_clusters_contradict() {
    let node = Book::alone("n", &[here(pin(1)), here(data(1, 5))]);
    let volume = Book::alone("v", &[here(pin(2)), here(data(2, 8))]);
    for (one, two) in [(&node, &volume), (&volume, &node)] {
        let records = folded(one, two);
        assert!(records.pins_contradict);
        assert_eq!(pinned_cluster(&records), Some(2), "shown is the one with more progress");
    }
}

#[test]
fn a_pin_that_only_one_ledger_got_is_no_contradiction_when_the_older_one_is_in_both() {
    let node = Book::of(&[("p1", here(pin(1))), ("p2", here(pin(2)))]);
    let volume = Book::of(&[("p1", here(pin(1)))]);
    for (one, two) in [(&node, &volume), (&volume, &node)] {
        let records = folded(one, two);
        assert_eq!((pinned_cluster(&records), records.pins_contradict), (Some(2), false));
    }
}

#[test]
fn an_answer_stands_until_a_pin_or_data_follows_it() {
    for what in [Adoption::Identity, Adoption::Restored, Adoption::NewCluster, Adoption::Replacement] {
        let before = [here(pin(1)), here(data(1, 5)), here(changed(2)), here(adopted(what))];
        let records = node_only(&before);
        assert_eq!(records.adoption, Some(what));
        assert_eq!((records.pin.clone(), records.high_water.clone()), (None, None));
        assert_eq!(records.identity_changed, None);

        let told = [before.to_vec(), vec![here(Fact::Retried)]].concat();
        assert_eq!(node_only(&told).adoption, Some(what));
        for consumes in [pin(2), data(2, 1)] {
            let after = [before.to_vec(), vec![here(consumes)]].concat();
            assert_eq!(node_only(&after).adoption, None);
        }
    }
}

#[test]
fn while_it_is_to_start_empty_the_member_before_is_remembered() {
    let emptied = |facts: &[Entry]| node_only(facts).emptied.and_then(|mark| mark.consistent_index);
    for (what, kept) in [
        (Adoption::Replacement, Some(5)),
        (Adoption::NewCluster, None),
        (Adoption::Restored, None),
        (Adoption::Identity, None),
    ] {
        assert_eq!(emptied(&[here(pin(1)), here(data(1, 5)), here(adopted(what))]), kept, "{what:?}");
    }
    let answer = [here(pin(1)), here(data(1, 5)), here(adopted(Adoption::Replacement))];
    for consumes in [pin(2), data(2, 1)] {
        assert_eq!(emptied(&[answer.to_vec(), vec![here(consumes)]].concat()), None);
    }
    // The node's disk took the answer, and the volume's ledger is the one that knows of the data.
    let node = Book::alone("n", &[here(adopted(Adoption::Replacement))]);
    let volume = Book::alone("v", &[here(pin(1)), here(data(1, 500))]);
    assert_eq!(folded(&node, &volume).emptied.and_then(|mark| mark.consistent_index), Some(500));
}

#[test]
fn only_an_answer_that_it_starts_empty_forgets_that_there_was_data() {
    for (what, forgets) in [
        (Adoption::Identity, false),
        (Adoption::Restored, false),
        (Adoption::NewCluster, true),
        (Adoption::Replacement, true),
    ] {
        let records = node_only(&[here(data(1, 5)), here(adopted(what))]);
        assert_eq!(records.held_data_at.is_none(), forgets, "{what:?}");
        assert_eq!(records.fs_uuids, [uuid(FS)], "which filesystems there were is never forgotten");
    }
}

#[test]
fn an_answer_on_the_node_supersedes_a_volume_ledger_that_could_not_be_written() {
    let node = Book::alone("n", &[here(adopted(Adoption::Identity))]);
    let volume = Book::alone("v", &[here(pin(1)), here(data(1, 500))]);
    for (one, two) in [(&node, &volume), (&volume, &node)] {
        let records = folded(one, two);
        assert_eq!((records.pin, records.high_water), (None, None));
        assert_eq!(records.adoption, Some(Adoption::Identity));
        assert!(records.held_data_at.is_some());
    }
}

#[test]
fn after_the_answer_was_pinned_the_older_pin_of_the_other_ledger_does_not_contradict() {
    let node = Book::of(&[("a", here(adopted(Adoption::Restored))), ("p2", here(pin(2))), ("d2", here(data(2, 4)))]);
    let crashed_between = Book::of(&[("p1", here(pin(1))), ("d1", here(data(1, 500)))]);
    let written =
        Book::of(&[("p1", here(pin(1))), ("d1", here(data(1, 500))), ("p2", here(pin(2))), ("d3", here(data(2, 6)))]);
    for (volume, best) in [(&crashed_between, 4), (&written, 6)] {
        let records = folded(&node, volume);
        assert_eq!((pinned_cluster(&records), records.pins_contradict), (Some(2), false));
        assert_eq!((index(&records), records.adoption), (Some(best), None));
    }
}

#[test]
fn an_answer_that_both_ledgers_hold_is_consumed_by_either() {
    let answer = ("a", here(adopted(Adoption::NewCluster)));
    let node = Book::of(&[("p1", here(pin(1))), answer.clone()]);
    let volume = Book::of(&[("x", here(Fact::Retried)), answer, ("p2", here(pin(2)))]);
    let records = folded(&node, &volume);
    assert_eq!((pinned_cluster(&records), records.adoption), (Some(2), None));
}

#[test]
fn a_newer_answer_on_the_volume_supersedes_what_the_node_pinned_before() {
    // The volume was on another node meanwhile, where a person answered, and came back.
    let node = Book::of(&[("a1", here(adopted(Adoption::Identity))), ("p1", here(pin(1)))]);
    let volume = Book::of(&[
        ("a1", here(adopted(Adoption::Identity))),
        ("p1", here(pin(1))),
        ("a2", here(adopted(Adoption::NewCluster))),
        ("p2", here(pin(2))),
    ]);
    for (one, two) in [(&node, &volume), (&volume, &node)] {
        let records = folded(one, two);
        assert_eq!((pinned_cluster(&records), records.pins_contradict, records.adoption), (Some(2), false, None));
    }
}

#[test]
fn two_answers_that_do_not_know_of_each_other_do_not_hide_a_contradiction() {
    let node = Book::alone("n", &[here(adopted(Adoption::Identity)), here(pin(1))]);
    let volume = Book::alone("v", &[here(adopted(Adoption::Identity)), here(pin(2))]);
    assert!(folded(&node, &volume).pins_contradict);
}

#[test]
fn filesystems_are_listed_newest_last_and_what_only_the_volume_names_is_newest() {
    let node = Book::alone("n", &[on(HERE, Some(1), pin(1)), on(HERE, Some(2), pin(1)), on(HERE, Some(1), data(1, 1))]);
    let volume = Book::alone("v", &[on(HERE, Some(2), pin(1)), on(HERE, Some(FS), pin(1))]);
    assert_eq!(folded(&node, &volume).fs_uuids, [uuid(2), uuid(1), uuid(FS)]);
}

#[test]
fn what_a_held_guard_notes_about_a_filesystem_does_not_make_it_known() {
    let decided = Fact::Decided {
        decision: "start".into(),
        verdict: "held".into(),
        codes: vec!["filesystem-replaced".into()],
        evidence_digest: "d".into(),
    };
    let fsck = Fact::Fsck { exit: Some(0), output: String::new() };
    let published = Fact::Published { at: "/x".into(), devnum: DevNum { major: 1, minor: 1 } };
    let not_checked = Fact::NotChecked { why: "w".into() };
    let (enabled, bypassed) = (Fact::Enabled { preset: "p".into() }, Fact::Bypassed { note: "n".into() });
    for told in [decided, fsck, not_checked, published, Fact::Retried, enabled, Fact::Disabled, bypassed, intent(8)] {
        let records = node_only(&[on(HERE, Some(1), pin(1)), on(HERE, Some(FS), told)]);
        assert_eq!(records.fs_uuids, [uuid(1)]);
    }
    let answered = node_only(&[on(HERE, Some(1), pin(1)), on(HERE, Some(FS), adopted(Adoption::Identity))]);
    assert_eq!(answered.fs_uuids, [uuid(1), uuid(FS)]);
}

#[test]
fn an_intent_is_open_until_its_filesystem_is_there() {
    let open = node_only(&[here(intent(8))]).open_intent.unwrap();
    assert_eq!((open.fs_uuid, open.diskseq, open.boot_id), (uuid(8), Some(9), BootId("boot".into())));
    assert_eq!(node_only(&[here(intent(8)), here(formatted(8))]).open_intent, None);
    assert_eq!(node_only(&[here(intent(8)), here(formatted(8))]).formatted, [uuid(8)]);
    assert_eq!(node_only(&[here(intent(8)), here(data(1, 1))]).open_intent, None);
    assert!(node_only(&[here(formatted(8)), here(intent(9))]).open_intent.is_some());
    assert!(node_only(&[here(intent(8)), here(adopted(Adoption::Identity))]).open_intent.is_some());
    let node = Book::alone("n", &[here(intent(8))]);
    assert_eq!(folded(&node, &Book::alone("v", &[here(formatted(8))])).open_intent, None);
    assert_eq!(folded(&node, &Book::alone("v", &[on(HERE, Some(8), pin(1))])).open_intent, None);
    assert!(folded(&node, &Book::alone("v", &[here(formatted(5))])).open_intent.is_some());
}

#[test]
fn a_fresh_start_is_remembered_for_its_filesystem() {
    let fresh = |fs| on(HERE, Some(fs), Fact::FreshAllowed { data_dir: ".".into() });
    assert_eq!(node_only(&[fresh(3), fresh(4), fresh(3)]).fresh_allowed, [uuid(3), uuid(4)]);
}

#[test]
fn the_last_change_of_identity_is_remembered_until_it_is_pinned() {
    assert_eq!(node_only(&[here(changed(2)), here(changed(3))]).identity_changed, Some((ClusterId(3), MemberId(3))));
    assert_eq!(node_only(&[here(pin(1)), here(changed(2)), here(pin(2))]).identity_changed, None);
    let node = Book::of(&[("c", here(changed(2)))]);
    let volume = Book::of(&[("c", here(changed(2))), ("p", here(pin(2)))]);
    assert_eq!(folded(&node, &volume).identity_changed, None);
    let volume = Book::of(&[("c", here(changed(2))), ("d", here(changed(3)))]);
    assert_eq!(folded(&node, &volume).identity_changed, Some((ClusterId(3), MemberId(3))));
}

#[test]
fn a_ledger_on_the_volume_that_speaks_of_another_volume_is_told_until_a_person_answers() {
    let theirs = on(OTHER, Some(FS), data(1, 5));
    let other = Some(VolumeId(OTHER.into()));
    let answer = here(adopted(Adoption::Restored));
    let foreign = Book::alone("v", std::slice::from_ref(&theirs));
    let answered = Book::alone("n", std::slice::from_ref(&answer));
    assert_eq!(volume_only(std::slice::from_ref(&theirs)).names_other_volume, other);
    assert_eq!(volume_only(&[here(data(1, 1)), theirs.clone()]).names_other_volume, other);
    assert_eq!(volume_only(&[theirs.clone(), here(Fact::Retried)]).names_other_volume, other);
    assert_eq!(volume_only(&[theirs.clone(), here(adopted(Adoption::Identity))]).names_other_volume, other);
    assert_eq!(folded(&Book::alone("n", &[here(data(1, 1))]), &foreign).names_other_volume, other);

    assert_eq!(folded(&answered, &foreign).names_other_volume, None);
    assert_eq!(volume_only(&[theirs.clone(), answer.clone()]).names_other_volume, None);
    assert_eq!(volume_only(&[theirs.clone(), here(pin(1))]).names_other_volume, None);
    assert_eq!(node_only(&[theirs]).names_other_volume, None, "the node may know many volumes");
}

#[test]
fn an_answer_of_old_does_not_cover_another_filesystem_that_came_since() {
    let foreign = Book::alone("v", &[on(OTHER, Some(FS), data(1, 5))]);
    let old = [on(HERE, Some(1), adopted(Adoption::Restored)), on(HERE, Some(1), pin(1))];
    assert_eq!(folded(&Book::alone("n", &old), &foreign).names_other_volume, Some(VolumeId(OTHER.into())));
    let same = [here(adopted(Adoption::Restored)), here(pin(1))];
    assert_eq!(folded(&Book::alone("n", &same), &foreign).names_other_volume, None);
}

#[test]
fn a_release_is_the_nodes_and_ends_with_a_retry() {
    let until = Time::from_unix(5000).unwrap();
    let fact = Fact::Released { until, until_boot: Some(BootMillis(7)) };
    let release = on(OTHER, None, fact.clone());
    let expected = Release {
        until,
        until_boot: Some(BootMillis(7)),
        said_at: Time::from_unix(1000).unwrap(),
        boot_id: BootId("boot".into()),
    };
    assert_eq!(node_only(std::slice::from_ref(&release)).released, Some(expected));
    assert_eq!(node_only(&[release.clone(), here(Fact::Retried)]).released, None);
    assert_eq!(volume_only(&[here(fact)]).released, None);
}

fn any_fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        (1..3_u64).prop_map(pin),
        (1..3_u64, 0..50_u64).prop_map(|(cluster, index)| data(cluster, index)),
        Just(adopted(Adoption::Identity)),
        Just(adopted(Adoption::NewCluster)),
        (1..4_u64).prop_map(changed),
        (1..4_u128).prop_map(intent),
        (1..4_u128).prop_map(formatted),
        Just(Fact::FreshAllowed { data_dir: ".".into() }),
        Just(Fact::Retried),
    ]
}

type Kept = Vec<(EntryId, Entry)>;

/// One history, of which each ledger misses some entries: what crashes between two writes make of it.
fn any_history() -> impl Strategy<Value = (Kept, Kept)> {
    prop::collection::vec((any_fact(), any::<bool>(), any::<bool>()), 0..12).prop_map(|history| {
        let mut books = (Vec::new(), Vec::new());
        for (n, (fact, on_node, on_volume)) in history.into_iter().enumerate() {
            let entry = (EntryId(format!("{n}")), here(fact));
            if on_node {
                books.0.push(entry.clone());
            }
            if on_volume {
                books.1.push(entry);
            }
        }
        books
    })
}

fn without_times(mut records: Records) -> Records {
    let then = Time::from_unix(0).unwrap();
    records.held_data_at = records.held_data_at.map(|_| then);
    records.formatted_at = records.formatted_at.map(|_| then);
    if let Some(pin) = &mut records.pin {
        pin.at = then;
    }
    records
}

proptest! {
    // What was found once is tried again each time.
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("src/record/fold/regressions.txt"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn clocks_change_nothing_but_what_is_shown(
        (node, volume) in any_history(),
        years in prop::collection::vec(-10..10_i64, 24),
    ) {
        let set_back = |entries: &[(EntryId, Entry)], offset: usize| -> Vec<(EntryId, Entry)> {
            entries.iter().enumerate().map(|(n, (id, entry))| {
                let seconds = 1_700_000_000 + years[(n + offset) % years.len()] * 31_557_600;
                (id.clone(), Entry { time: Time::from_unix(seconds).unwrap(), ..entry.clone() })
            }).collect()
        };
        let volume_id = VolumeId(HERE.into());
        let straight = fold(&node, &volume, &volume_id, Some(uuid(FS)));
        let crooked = fold(&set_back(&node, 0), &set_back(&volume, 5), &volume_id, Some(uuid(FS)));
        prop_assert_eq!(without_times(straight), without_times(crooked));
    }

    #[test]
    fn two_whole_copies_say_what_one_says((node, _) in any_history()) {
        let volume_id = VolumeId(HERE.into());
        let one = fold(&node, &[], &volume_id, Some(uuid(FS)));
        let two = fold(&node, &node, &volume_id, Some(uuid(FS)));
        prop_assert_eq!(one, two);
    }

    #[test]
    fn data_that_any_ledger_knows_of_is_known_until_it_starts_empty((node, volume) in any_history()) {
        let is_data = |entries: &[(EntryId, Entry)]| {
            entries.iter().any(|(_, entry)| matches!(entry.fact, Fact::HoldsData { .. }))
        };
        let starts_empty = node.iter().chain(&volume).any(|(_, entry)| {
            matches!(entry.fact, Fact::Adopted { what: Adoption::NewCluster, .. })
        });
        let records = fold(&node, &volume, &VolumeId(HERE.into()), Some(uuid(FS)));
        if !starts_empty {
            prop_assert_eq!(records.held_data_at.is_some(), is_data(&node) || is_data(&volume));
        }
        if is_data(&node) || is_data(&volume) {
            prop_assert!(records.fs_uuids.contains(&uuid(FS)));
        }
    }

    #[test]
    fn one_history_never_contradicts_itself_while_the_ledgers_share_their_pins((node, volume) in any_history()) {
        let pins = |entries: &[(EntryId, Entry)]| -> Vec<EntryId> {
            entries.iter().filter(|(_, entry)| matches!(entry.fact, Fact::Pinned { .. } | Fact::Adopted { .. }))
                .map(|(id, _)| id.clone()).collect()
        };
        let records = fold(&node, &volume, &VolumeId(HERE.into()), Some(uuid(FS)));
        let (on_node, on_volume) = (pins(&node), pins(&volume));
        if on_node.starts_with(&on_volume) || on_volume.starts_with(&on_node) {
            prop_assert!(!records.pins_contradict);
        }
    }
}

#[test]
fn what_a_person_unpinned_does_not_count_and_that_there_was_data_stays_known() {
    let pin = Fact::Pinned {
        cluster_id: ClusterId(1),
        member_id: MemberId(2),
        name: None,
        data_dir: "data".into(),
        because: "first-use".into(),
    };
    let mark = HighWater {
        data_dir: "data".into(),
        cluster_id: Some(ClusterId(1)),
        member_id: Some(MemberId(2)),
        term: Some(3),
        consistent_index: Some(4),
        revision: Some(5),
        wal_last_index: Some(6),
        keys: Some(7),
    };
    let before = [here(pin.clone()), here(Fact::HoldsData { mark })];
    assert!(node_only(&before).pin.is_some());
    let after = [&before[..], &[here(Fact::Unpinned { confirmed: HERE.into() })]].concat();
    let records = node_only(&after);
    assert_eq!((records.pin, records.high_water, records.adoption), (None, None, None));
    assert!(records.held_data_at.is_some(), "an empty dir would be let start");
    assert!(!records.fs_uuids.is_empty());
    // The volume's copy of the pin does not bring it back, and a new one counts.
    let records = folded(&Book::alone("n", &after), &Book::alone("v", &before));
    assert_eq!(records.pin, None);
    let again = [&after[..], &[here(pin)]].concat();
    assert!(node_only(&again).pin.is_some());
}
