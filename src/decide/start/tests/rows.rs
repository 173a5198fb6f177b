//! One test for each row of the design, with the sentence that a person gets to read.

use super::*;
use ReasonCode::*;

#[test]
fn data_that_continues_its_record_starts() {
    assert_eq!(starts(&with_records(one_healthy(), known())), StartKind::Continues);
}

#[test]
fn healthy_data_without_any_record_is_trusted_on_first_use() {
    let evidence = first_look(one_healthy());
    assert_eq!(starts(&evidence), StartKind::FirstUse);
    match may_start(&evidence, &policy()) {
        StartVerdict::Start { data_dir, warnings, .. } => {
            assert_eq!((data_dir.as_str(), warnings), ("default", vec![]))
        }
        StartVerdict::Hold { reasons } => panic!("{reasons:?}"),
    }
}

#[test]
fn a_running_etcd_is_never_held_and_what_would_have_held_is_told() {
    let mut evidence = with_records(reading(vec![], None), Records { fs_uuids: vec![uuid(9)], ..known() });
    evidence.running = Observed::Seen(Some(RunningEtcd { pid: 7, data_dir: "default".into() }));
    assert_eq!(starts(&evidence), StartKind::Running);
    assert_eq!(warned(&evidence), [DataDirAmbiguous, FilesystemReplaced, DataVanished]);
    evidence.volume = Observed::Unknown(eio());
    evidence.records = Observed::Unknown(eio());
    evidence.filesystem = Observed::Unknown(eio());
    assert_eq!(starts(&evidence), StartKind::Running);
    assert_eq!(warned(&evidence), []);
}

#[test]
fn whether_an_etcd_runs_must_be_known() {
    let evidence = StartEvidence { running: Observed::Unknown(eio()), ..with_records(one_healthy(), known()) };
    assert_eq!(held_as(&evidence), [Unreadable]);
}

#[test]
fn a_dir_whose_keys_were_all_deleted_continues_its_record() {
    let mut volume = one_healthy();
    fingerprint_of(&mut volume).keys = Some(0);
    volume.data_dirs[0].populated = false;
    assert_eq!(starts(&with_records(volume, known())), StartKind::Continues);
}

#[test]
fn a_wiped_member_has_vanished_though_a_bootstrap_gave_it_the_same_ids() {
    let volume = reading(vec![bootstrapped("default")], selects("default", SelectedBy::Config, true));
    let reasons = holds(&with_records(volume, known()));
    assert_eq!(codes(&reasons), [DataVanished]);
    says(&reasons[0], &["`default` of cluster c1 with 100 live keys at revision 195", "noted at 2023-11-14T22:13:20Z"]);

    let gone = reading(vec![], selects("default", SelectedBy::Config, false));
    assert_eq!(held_as(&with_records(gone, known())), [DataVanished]);
    let nothing = reading(vec![], None);
    assert_eq!(held_as(&with_records(nothing.clone(), known())), [DataVanished]);
    let held_only = Records { held_data_at: Some(time()), ..Records::default() };
    assert_eq!(held_as(&with_records(nothing.clone(), held_only)), [DataVanished]);
    let marked_only = Records { high_water: Some(mark()), ..Records::default() };
    assert_eq!(held_as(&with_records(nothing.clone(), marked_only)), [DataVanished]);
    let pinned_only = Records { pin: Some(pin(OURS, ME)), ..Records::default() };
    assert_eq!(held_as(&with_records(nothing, pinned_only)), [DataVanished]);
}

/// The record's `default`, while configuration names another dir.
fn elsewhere(recorded: Option<DataDirReport>) -> StartEvidence {
    let dirs = recorded.into_iter().map(|dir| DataDirReport { role: DirRole::Candidate, ..dir }).collect();
    with_records(reading(dirs, selects("new", SelectedBy::Config, false)), known())
}

#[test]
fn data_on_record_that_lies_elsewhere_on_the_volume_has_not_vanished_and_what_to_set_is_named() {
    let reasons = holds(&elsewhere(Some(healthy("default"))));
    assert_eq!(codes(&reasons), [EmptyBesideOld]);
    says(&reasons[0], &["which holds nothing", "`default`", "that is the data on record", "data_dir = \"default\""]);
    // A larger dir is not the one to name.
    let mut evidence = elsewhere(Some(healthy("default")));
    let Observed::Seen(volume) = &mut evidence.volume else { panic!() };
    volume.data_dirs.push(archive("larger", OTHER, 5_000));
    let reasons = holds(&evidence);
    assert_eq!(codes(&reasons), [EmptyBesideOld]);
    says(&reasons[0], &["data_dir = \"default\"", "and 1 more"]);
}

#[test]
fn what_is_gone_or_fell_behind_has_vanished_whatever_lies_elsewhere() {
    let mut behind = healthy("default");
    let found = behind.fingerprint.as_mut().unwrap();
    (found.raft.last_index, found.consistent_index) = (Some(280), Some(280));
    let not_ours = DataDirReport { fingerprint: Some(fingerprint(OTHER, HIM, 100)), ..healthy("default") };
    for (what, recorded) in [
        ("gone", None),
        ("behind", Some(behind)),
        ("another's", Some(not_ours)),
        ("wiped", Some(bootstrapped("default"))),
    ] {
        let codes = held_as(&elsewhere(recorded));
        assert!(codes.contains(&DataVanished), "{what}: {codes:?}");
    }
}

#[test]
fn a_member_that_was_pinned_before_it_had_a_key_continues() {
    let volume = reading(vec![bootstrapped("default")], selects("default", SelectedBy::Config, true));
    let records = Records { pin: Some(pin(OURS, ME)), fs_uuids: vec![uuid(1)], ..Records::default() };
    assert_eq!(starts(&with_records(volume, records)), StartKind::Continues);
}

#[test]
fn an_empty_filesystem_that_volhold_made_may_start_fresh_until_it_held_data() {
    let made = Records { formatted: vec![uuid(1)], fs_uuids: vec![uuid(1)], ..Records::default() };
    let evidence = with_records(reading(vec![], None), made.clone());
    assert_eq!(starts(&evidence), StartKind::Fresh);
    let again = Records { fresh_allowed: vec![uuid(1)], ..made.clone() };
    assert_eq!(starts(&with_records(reading(vec![], None), again)), StartKind::Fresh);
    let held = Records { held_data_at: Some(time()), ..made };
    assert_eq!(held_as(&with_records(reading(vec![], None), held)), [DataVanished]);
}

#[test]
fn a_filesystem_that_volhold_made_on_an_old_volume_is_asked_for_once() {
    // A wiped volume reads as blank, and where nobody is left who remembers it, only its age tells it from a new one.
    let made = Records { formatted: vec![uuid(1)], fs_uuids: vec![uuid(1)], ..Records::default() };
    let old = |volume, records: &Records| StartEvidence {
        age: Observed::Seen(VolumeAge::Old),
        ..with_records(volume, records.clone())
    };
    assert_eq!(held_as(&old(reading(vec![], None), &made)), [BlankReplacement]);
    // A start was allowed when it was young, or there is what that etcd has made: still the same start.
    let allowed = Records { fresh_allowed: vec![uuid(1)], ..made.clone() };
    assert_eq!(starts(&old(reading(vec![], None), &allowed)), StartKind::Fresh);
    let begun = || reading(vec![bootstrapped("default")], selects("default", SelectedBy::Config, true));
    assert_eq!(starts(&old(begun(), &made)), StartKind::Fresh);
    let answered = Records { adoption: Some(Adoption::Replacement), answered: true, ..made };
    assert_eq!(starts(&old(reading(vec![], None), &answered)), StartKind::Adopted);
}

#[test]
fn an_mkfs_of_ours_whose_end_was_not_recorded_counts_as_made_here() {
    let intent = |number| crate::model::OpenIntent {
        fs_uuid: uuid(number),
        boot_id: crate::model::BootId("b".into()),
        diskseq: None,
        devnum: crate::model::DevNum { major: 7, minor: 0 },
    };
    let records = |number| Records { open_intent: Some(intent(number)), ..Records::default() };
    let mut evidence = with_records(reading(vec![], None), records(1));
    evidence.age = Observed::Unknown(eio());
    assert_eq!(starts(&evidence), StartKind::Fresh);
    assert_eq!(held_as(&with_records(reading(vec![], None), records(2))), [IntentUnfinished]);
}

#[test]
fn a_filesystem_that_somebody_else_made_may_start_fresh_once() {
    let empty = || reading(vec![], None);
    assert_eq!(starts(&first_look(empty())), StartKind::Fresh);
    let used = Records { fresh_allowed: vec![uuid(1)], fs_uuids: vec![uuid(1)], ..Records::default() };
    assert_eq!(held_as(&with_records(empty(), used.clone())), [FreshForbidden]);
    // The member that was let start here waits for its peers: it is no second fresh start.
    let waiting = reading(vec![bootstrapped("default")], selects("default", SelectedBy::Config, true));
    assert_eq!(starts(&with_records(waiting, used)), StartKind::Fresh);
}

#[test]
fn an_old_volume_without_a_record_is_no_fresh_one() {
    let of = |age| StartEvidence { age, ..first_look(reading(vec![], None)) };
    assert_eq!(starts(&of(Observed::Seen(VolumeAge::Young))), StartKind::Fresh);
    assert_eq!(held_as(&of(Observed::Seen(VolumeAge::Old))), [BlankReplacement]);
    assert_eq!(held_as(&of(Observed::Unknown(Why::TimedOut { detail: "EC2".into() }))), [TimedOut]);
}

const HOUR: i64 = 3600;

/// A volume of another member, that many seconds before ours; attached, if it is, that many seconds before ours was made.
fn sibling(n: u8, created: Option<i64>, attached: Option<i64>) -> Sibling {
    let before = |seconds: i64| Time::from_unix(time().unix() - seconds).unwrap();
    Sibling {
        volume: VolumeId(format!("vol-{n}")),
        member: format!("m{n}"),
        created: created.map(before),
        attached: attached.map(before),
        ran: Vec::new(),
    }
}

fn among(of: Vec<Sibling>) -> Observed<Siblings> {
    Observed::Seen(Siblings::Listed { created: time(), me: Some("a".into()), of })
}

/// Nothing on a young volume, with these others in its cluster.
fn nothing_among(siblings: Observed<Siblings>) -> StartEvidence {
    StartEvidence { age: Observed::Seen(VolumeAge::Young), siblings, ..first_look(reading(vec![], None)) }
}

#[test]
fn volumes_that_were_made_within_an_hour_are_a_new_cluster_whichever_came_first() {
    let each = [
        among(vec![]),
        among(vec![sibling(2, Some(0), None), sibling(3, Some(20), Some(-60))]),
        among(vec![sibling(2, Some(HOUR), None)]),
        // The first of the three waits for its peers: the others came later.
        among(vec![sibling(2, Some(-1800), Some(-1900)), sibling(3, Some(-5 * HOUR), None)]),
    ];
    for siblings in each {
        assert_eq!(starts(&nothing_among(siblings.clone())), StartKind::Fresh, "{siblings:?}");
    }
}

#[test]
fn a_blank_volume_among_older_ones_is_a_replacement_also_where_its_filesystem_is_ours() {
    let made = Records { formatted: vec![uuid(1)], fs_uuids: vec![uuid(1)], ..Records::default() };
    let each = [
        vec![sibling(2, Some(HOUR + 1), None)],
        vec![sibling(2, Some(0), None), sibling(3, Some(400 * HOUR), Some(2 * HOUR))],
        // Its creation may have been forgotten; that somebody had it before tells enough.
        vec![sibling(2, None, Some(HOUR + 1))],
    ];
    for of in each {
        let evidence = nothing_among(among(of));
        assert_eq!(held_as(&evidence), [BlankReplacement], "{evidence:?}");
        let ours = StartEvidence { records: Observed::Seen(made.clone()), ..evidence };
        assert_eq!(held_as(&ours), [BlankReplacement], "{ours:?}");
    }
    let held = holds(&nothing_among(among(vec![sibling(2, Some(2 * HOUR), None), sibling(3, Some(9 * HOUR), None)])));
    says(&held[0], &["vol-3 of member m3", "1 more", "stands in for a volume that held data"]);
}

#[test]
fn an_answer_to_a_replacement_lifts_it() {
    for adoption in [Adoption::Replacement, Adoption::NewCluster] {
        let records = Records { adoption: Some(adoption), ..Records::default() };
        let evidence = nothing_among(among(vec![sibling(2, Some(9 * HOUR), None)]));
        let answered = StartEvidence { records: Observed::Seen(records), ..evidence };
        assert_eq!(starts(&answered), StartKind::Adopted);
    }
}

#[test]
fn what_nobody_says_of_the_other_volumes_keeps_nothing_from_starting_but_a_fresh_etcd() {
    let unknown = || Observed::Unknown(Why::TimedOut { detail: "EC2".into() });
    assert_eq!(held_as(&nothing_among(unknown())), [TimedOut]);
    assert_eq!(held_as(&nothing_among(among(vec![sibling(2, None, Some(0))]))), [Unreadable]);
    for siblings in [unknown(), among(vec![sibling(2, Some(9 * HOUR), None)])] {
        let known = StartEvidence { siblings: siblings.clone(), ..with_records(one_healthy(), known()) };
        assert_eq!(starts(&known), StartKind::Continues);
        let first = StartEvidence { siblings, ..first_look(one_healthy()) };
        assert_eq!(starts(&first), StartKind::FirstUse);
    }
}

#[test]
fn existing_data_starts_without_anybody_knowing_its_age() {
    let of = |records| StartEvidence { age: Observed::Unknown(eio()), ..with_records(one_healthy(), records) };
    assert_eq!(starts(&of(known())), StartKind::Continues);
    assert_eq!(starts(&of(Records::default())), StartKind::FirstUse);
}

#[test]
fn the_policy_can_forbid_a_fresh_start() {
    let denied = StartPolicy { fresh: false, ..policy() };
    let evidence = first_look(reading(vec![], selects("default", SelectedBy::Config, false)));
    match may_start(&evidence, &denied) {
        StartVerdict::Hold { reasons } => {
            assert_eq!(codes(&reasons), [FreshForbidden]);
            says(&reasons[0], &["`default` (which does not exist)", "fresh = \"deny\""]);
        }
        StartVerdict::Start { .. } => panic!("started"),
    }
    assert!(matches!(may_start(&first_look(one_healthy()), &denied), StartVerdict::Start { .. }));
}

#[test]
fn unexplained_files_on_a_filesystem_of_somebody_else_are_not_nothing() {
    let with = |entries: &[&str]| {
        let selected = selects("var/etcd", SelectedBy::Config, false);
        let root_entries = entries.iter().map(|entry| (*entry).to_owned()).collect();
        VolumeReading { root_entries, ..reading(vec![], selected) }
    };
    let reasons = holds(&first_look(with(&["postgres", "myid"])));
    assert_eq!(codes(&reasons), [UnknownData]);
    says(&reasons[0], &["postgres"]);
    assert!(!reasons[0].message.contains("myid"), "{}", reasons[0].message);

    assert_eq!(starts(&first_look(with(&["myid", "pki", "state", "data", "var"]))), StartKind::Fresh);
    let made = Records { formatted: vec![uuid(1)], ..Records::default() };
    assert_eq!(starts(&with_records(with(&["postgres"]), made)), StartKind::Fresh);
    let at_root = VolumeReading {
        root_entries: vec!["member".into()],
        ..reading(vec![bootstrapped(".")], selects(".", SelectedBy::OnlyOne, true))
    };
    assert_eq!(starts(&first_look(at_root)), StartKind::Fresh);
}

#[test]
fn a_filesystem_made_anew_is_named_with_the_time_of_its_mkfs() {
    let other = Records { fs_uuids: vec![uuid(2)], ..known() };
    let reasons = holds(&with_records(reading(vec![], None), other.clone()));
    assert_eq!(codes(&reasons), [FilesystemReplaced, DataVanished]);
    says(&reasons[0], &[&uuid(2).to_string(), &uuid(1).to_string(), "made at 2023-11-14T22:13:20Z"]);
    assert_eq!(held_as(&with_records(one_healthy(), other)), [FilesystemReplaced]);

    let without = StartEvidence { filesystem: Observed::Seen(facts(None)), ..with_records(one_healthy(), known()) };
    assert_eq!(held_as(&without), [FilesystemReplaced]);
    let unknown = StartEvidence { filesystem: Observed::Unknown(eio()), ..with_records(one_healthy(), known()) };
    assert_eq!(held_as(&unknown), [Unreadable]);
}

#[test]
fn an_empty_dir_beside_old_data_is_held_and_both_are_named() {
    for role in [DirRole::Archive, DirRole::Candidate, DirRole::Legacy] {
        let old = DataDirReport { role, ..archive("etcd-old", OTHER, 1_200) };
        let volume = reading(vec![bootstrapped("default"), old], selects("default", SelectedBy::Config, true));
        let reasons = holds(&first_look(volume));
        assert_eq!(codes(&reasons), [EmptyBesideOld]);
        says(
            &reasons[0],
            &[
                "`default` (etcd 3, cluster c1, 0 live keys, revision 1)",
                "`etcd-old` (etcd 3, cluster c2, 1,200 live keys, revision 200)",
            ],
        );
    }
    let gone = reading(vec![archive("etcd-old", OTHER, 10)], selects("default", SelectedBy::Config, false));
    assert_eq!(held_as(&first_look(gone)), [EmptyBesideOld]);
    let only_an_archive = reading(vec![archive("etcd-old", OTHER, 10)], None);
    assert_eq!(held_as(&first_look(only_an_archive)), [EmptyBesideOld]);
}

#[test]
fn far_behind_is_less_than_half_of_the_keys_or_a_revision_that_the_wal_cannot_reach() {
    let beside = |other: DataDirReport| {
        first_look(reading(vec![healthy("default"), other], selects("default", SelectedBy::Config, true)))
    };
    assert_eq!(starts(&beside(archive("old", OTHER, 200))), StartKind::FirstUse);
    assert_eq!(held_as(&beside(archive("old", OTHER, 201))), [EmptyBesideOld]);

    let at_revision = |cluster, revision| {
        let mut other = archive("old", cluster, 100);
        other.fingerprint.as_mut().unwrap().revision = Some(revision);
        beside(other)
    };
    // 200, and five entries that the WAL still holds.
    assert_eq!(starts(&at_revision(OURS, 205)), StartKind::FirstUse);
    assert_eq!(held_as(&at_revision(OURS, 206)), [EmptyBesideOld]);
    assert_eq!(starts(&at_revision(OTHER, 9_999)), StartKind::FirstUse);
}

#[test]
fn a_capped_count_is_no_number_to_take_a_share_of() {
    let beside = |mine: (u64, bool), theirs: (u64, bool)| {
        let mut selected = healthy("default");
        let mut other = archive("old", OTHER, theirs.0);
        let own = selected.fingerprint.as_mut().unwrap();
        (own.keys, own.keys_capped) = (Some(mine.0), mine.1);
        other.fingerprint.as_mut().unwrap().keys_capped = theirs.1;
        first_look(reading(vec![selected, other], selects("default", SelectedBy::Config, true)))
    };
    assert_eq!(held_as(&beside((9_000, false), (10_000, true))), [EmptyBesideOld]);
    assert_eq!(starts(&beside((10_000, true), (10_000, true))), StartKind::FirstUse);
    assert_eq!(starts(&beside((10_000, true), (9_000, false))), StartKind::FirstUse);
    assert_eq!(starts(&beside((9_000, false), (10_000, false))), StartKind::FirstUse);
}

#[test]
fn keys_of_the_v3_store_are_compared_with_the_v3_store() {
    let counted = |path: &str, v3: Option<u64>, v2: Option<u64>| {
        let mut report = dir(path, Some(fingerprint(if path == "old" { OTHER } else { OURS }, ME, 0)));
        let fingerprint = report.fingerprint.as_mut().unwrap();
        (fingerprint.keys, fingerprint.v2) = (v3, Some(V2Facts { keys: v2 }));
        DataDirReport { populated: true, ..report }
    };
    let far_behind = |mine, theirs| {
        let volume = reading(vec![mine, theirs], selects("default", SelectedBy::Config, true));
        match may_start(&first_look(volume), &policy()) {
            StartVerdict::Start { .. } => false,
            StartVerdict::Hold { reasons } => codes(&reasons) == [EmptyBesideOld],
        }
    };
    let mine = |v3, v2| counted("default", v3, v2);
    let theirs = |v3, v2| counted("old", v3, v2);
    assert!(far_behind(mine(Some(0), Some(500)), theirs(Some(10), Some(0))), "a v2 store makes up for no v3 keys");
    assert!(!far_behind(mine(Some(500), Some(0)), theirs(Some(0), Some(500))), "v2 keys may have been migrated");
    assert!(far_behind(mine(Some(100), Some(100)), theirs(Some(0), Some(500))));
    assert!(!far_behind(mine(Some(100), Some(200)), theirs(Some(0), Some(500))));
    assert!(far_behind(mine(None, Some(0)), theirs(Some(10), Some(0))));
    assert!(far_behind(mine(None, Some(0)), theirs(Some(0), Some(10))));
    assert!(!far_behind(mine(None, Some(0)), theirs(Some(0), Some(0))));
    // Not counted, and no archive by its name.
    assert!(far_behind(mine(Some(10), Some(0)), theirs(None, Some(0))));
    assert!(far_behind(mine(Some(10), Some(0)), theirs(Some(0), None)));
    assert!(!far_behind(mine(Some(10), Some(0)), DataDirReport { role: DirRole::Archive, ..theirs(None, None) }));
    let words = |dir: DataDirReport| describe::dir(&dir);
    assert!(words(mine(Some(3), Some(4))).contains("3 live keys and 4 v2 keys"));
    assert!(words(mine(Some(0), Some(4))).contains(", 4 v2 keys,"));
    assert!(words(mine(None, Some(0))).contains("live keys not counted,"));
    assert!(words(mine(Some(0), None)).contains(", v2 keys not counted,"));
}

#[test]
fn a_selected_directory_that_could_not_be_listed_is_not_an_empty_one() {
    let unlisted = DataDirReport {
        etcd: EtcdGeneration::None,
        fingerprint: None,
        defects: vec![defect("unreadable", "member")],
        ..bootstrapped("default")
    };
    let volume = reading(vec![unlisted], selects("default", SelectedBy::Config, true));
    assert_eq!(held_as(&first_look(volume.clone())), [Unreadable]);
    assert_eq!(held_as(&with_records(volume, known())), [Unreadable]);
    let empty = DataDirReport { etcd: EtcdGeneration::None, fingerprint: None, ..bootstrapped("default") };
    assert_eq!(
        starts(&first_look(reading(vec![empty], selects("default", SelectedBy::Config, true)))),
        StartKind::Fresh
    );
}

#[test]
fn a_record_that_is_continued_outweighs_a_larger_archive() {
    let volume = || {
        reading(vec![healthy("default"), archive("old", OTHER, 5_000)], selects("default", SelectedBy::Config, true))
    };
    assert_eq!(held_as(&first_look(volume())), [EmptyBesideOld]);
    assert_eq!(starts(&with_records(volume(), known())), StartKind::Continues);
}

#[test]
fn an_etcd_2_dir_beside_the_selected_one_is_a_doubt_unless_it_is_put_away() {
    let beside =
        |other| first_look(reading(vec![healthy("data/x"), other], selects("data/x", SelectedBy::State, true)));
    assert_eq!(starts(&beside(v2("data-trashcan/old", DirRole::Archive))), StartKind::FirstUse);
    assert_eq!(held_as(&beside(v2("var/etcd/data", DirRole::Legacy))), [EmptyBesideOld]);
    // The same history, not ahead by its raft index.
    let mut copy = v2("var/etcd/data", DirRole::Legacy);
    copy.fingerprint.as_mut().unwrap().cluster_id = Some(OURS);
    assert_eq!(starts(&beside(copy.clone())), StartKind::FirstUse);
    copy.fingerprint.as_mut().unwrap().raft.last_index = Some(306);
    assert_eq!(held_as(&beside(copy)), [EmptyBesideOld]);
    // An etcd 2 dir that is selected starts, for its own etcd 2; beside data of etcd 3 it does not.
    let selected = || DataDirReport { role: DirRole::Selected, ..v2("data/x", DirRole::Selected) };
    let alone = reading(vec![selected()], selects("data/x", SelectedBy::State, true));
    assert_eq!(starts(&first_look(alone)), StartKind::FirstUse);
    let beside_3 = reading(vec![selected(), archive("old", OURS, 3)], selects("data/x", SelectedBy::State, true));
    assert_eq!(held_as(&first_look(beside_3)), [EmptyBesideOld]);
}

#[test]
fn several_dirs_of_which_nothing_selects_one_are_ambiguous() {
    let two = || reading(vec![healthy("a"), healthy("b")], None);
    let reasons = holds(&first_look(two()));
    assert_eq!(codes(&reasons), [DataDirAmbiguous]);
    says(&reasons[0], &["`a` (etcd 3", "`b` (etcd 3", "data_dir"]);
    let one_is_empty = reading(vec![healthy("a"), bootstrapped("b")], None);
    assert_eq!(held_as(&first_look(one_is_empty)), [DataDirAmbiguous]);
    let selected = VolumeReading { selected: selects("a", SelectedBy::Config, true), ..two() };
    assert_eq!(starts(&first_look(selected)), StartKind::FirstUse);
    let both_empty = reading(vec![bootstrapped("a"), bootstrapped("b")], None);
    assert_eq!(starts(&first_look(both_empty)), StartKind::Fresh);
    // The record knows which one it was.
    let pinned = Records { pin: Some(Pin { data_dir: "b".into(), ..pin(OURS, ME) }), ..known() };
    let evidence = with_records(two(), pinned);
    assert_eq!(starts(&evidence), StartKind::Continues);
    assert!(matches!(may_start(&evidence, &policy()), StartVerdict::Start { data_dir, .. } if data_dir == "b"));
}

fn manager(state: EtcdManagerState, volume: VolumeReading) -> VolumeReading {
    VolumeReading { manager_state: Some(Observed::Seen(state)), ..volume }
}

#[test]
fn a_state_that_names_a_missing_dir_is_data_vanished() {
    let missing = || {
        reading(vec![dir("data/old", Some(fingerprint(OURS, ME, 9)))], selects("data/new", SelectedBy::State, false))
    };
    let reasons = holds(&first_look(manager(EtcdManagerState::default(), missing())));
    assert_eq!(codes(&reasons), [DataVanished, EmptyBesideOld]);
    says(&reasons[0], &["`data/new`", "`data/old` (etcd 3, cluster c1, 9 live keys"]);
    let alone = reading(vec![], selects("data/new", SelectedBy::State, false));
    assert_eq!(held_as(&first_look(manager(EtcdManagerState::default(), alone.clone()))), [DataVanished]);
    let announced = EtcdManagerState { new_cluster: true, ..EtcdManagerState::default() };
    assert_eq!(starts(&first_look(manager(announced, alone))), StartKind::Fresh);
}

#[test]
fn a_state_that_cannot_be_read_is_unreadable_and_nothing_else_is_claimed() {
    for dirs in [vec![], vec![healthy("data/x"), healthy("data/y")], vec![archive("data-trashcan/x", OURS, 5)]] {
        let volume = VolumeReading { manager_state: Some(Observed::Unknown(eio())), ..reading(dirs, None) };
        assert_eq!(held_as(&first_look(volume)), [Unreadable]);
    }
}

#[test]
fn a_migration_of_etcd_manager_under_way_starts_and_is_told() {
    let states = [
        EtcdManagerState { empty: true, ..EtcdManagerState::default() },
        EtcdManagerState { new_cluster: true, ..EtcdManagerState::default() },
        EtcdManagerState { quarantined: true, ..EtcdManagerState::default() },
    ];
    let old = || archive("data-trashcan/old", OTHER, 500);
    let selected = || selects("data/new", SelectedBy::State, true);
    for state in states {
        let nothing = manager(state.clone(), reading(vec![old()], None));
        assert_eq!(starts(&first_look(nothing.clone())), StartKind::MigrationUnderWay);
        assert_eq!(warned(&first_look(nothing.clone())), [MigrationUnderWay]);
        let begun = manager(state.clone(), reading(vec![bootstrapped("data/new"), old()], selected()));
        assert_eq!(starts(&first_look(begun)), StartKind::MigrationUnderWay);
        let half = manager(state.clone(), reading(vec![healthy("data/new"), old()], selected()));
        assert_eq!(starts(&first_look(half)), StartKind::MigrationUnderWay);

        // The record knows the old cluster: there it lies. Another record than that is none of this migration.
        let of_old = Records { pin: Some(pin(OTHER, HIM)), ..known() };
        assert_eq!(starts(&with_records(nothing.clone(), of_old)), StartKind::MigrationUnderWay);
        assert_eq!(held_as(&with_records(nothing, known())), [DataVanished, EmptyBesideOld]);

        let damaged = DataDirReport { defects: vec![defect("backend-damaged", "member/snap/db")], ..old() };
        let incomplete = manager(state.clone(), reading(vec![damaged], None));
        assert_eq!(held_as(&first_look(incomplete)), [EmptyBesideOld]);
        let elsewhere = manager(state.clone(), reading(vec![archive("etcd-old", OTHER, 500)], None));
        assert_eq!(held_as(&first_look(elsewhere)), [EmptyBesideOld]);
        let also_elsewhere = manager(state, reading(vec![old(), v2("var/etcd/data", DirRole::Legacy)], selected()));
        assert_eq!(held_as(&first_look(also_elsewhere)), [EmptyBesideOld]);
    }
    let finished = manager(EtcdManagerState::default(), reading(vec![bootstrapped("data/new"), old()], selected()));
    assert_eq!(held_as(&first_look(finished)), [EmptyBesideOld]);
}

#[test]
fn an_identity_that_changed_while_open_starts_with_a_warning() {
    let changed = |keys: Option<u64>| Records {
        pin: Some(pin(OTHER, HIM)),
        high_water: Some(HighWater { cluster_id: Some(OTHER), keys, ..mark() }),
        identity_changed: Some((OURS, ME)),
        ..known()
    };
    let evidence = |keys| with_records(one_healthy(), changed(keys));
    assert_eq!(starts(&evidence(Some(200))), StartKind::IdentityChanged);
    assert_eq!(warned(&evidence(Some(200))), [IdentityChanged]);
    // Less than half of the keys, or nobody knows.
    assert_eq!(held_as(&evidence(Some(201))), [OtherCluster]);
    assert_eq!(held_as(&evidence(None)), [OtherCluster]);
    let events = StartPolicy { min_keys_percent: 0, ..policy() };
    assert!(matches!(may_start(&evidence(None), &events), StartVerdict::Start { how: StartKind::IdentityChanged, .. }));
    // Another dir is ahead.
    let volume =
        reading(vec![healthy("default"), archive("old", OTHER, 300)], selects("default", SelectedBy::Config, true));
    assert_eq!(held_as(&with_records(volume, changed(Some(150)))), [EmptyBesideOld, OtherCluster]);
    // The record saw another change than this one.
    let other_change = Records { identity_changed: Some((OTHER, ME)), ..changed(Some(100)) };
    assert_eq!(held_as(&with_records(one_healthy(), other_change)), [OtherCluster]);
}

#[test]
fn other_ids_than_the_pinned_ones_are_held_and_both_are_named() {
    let cluster = holds(&with_records(one_healthy(), Records { pin: Some(pin(OTHER, ME)), ..known() }));
    assert_eq!(codes(&cluster), [OtherCluster]);
    says(&cluster[0], &["`default`", "cluster c1, member a1", "cluster c2, member a1, `etcd-a`"]);
    let member = holds(&with_records(one_healthy(), Records { pin: Some(pin(OURS, HIM)), ..known() }));
    assert_eq!(codes(&member), [OtherMember]);
    says(&member[0], &["member a1", "member a2"]);
}

#[test]
fn the_configured_member_and_peer_url_are_compared_with_the_own_entry() {
    let with = |member: Option<&str>, peer_url: Option<&str>, name: &str| {
        let mut volume = one_healthy();
        let fingerprint = fingerprint_of(&mut volume);
        fingerprint.members[0].name = name.into();
        fingerprint.members.push(Member {
            id: HIM,
            name: "etcd-b".into(),
            peer_urls: vec!["https://b:2380".into()],
            client_urls: vec![],
            learner: false,
        });
        let policy =
            StartPolicy { member: member.map(str::to_owned), peer_url: peer_url.map(str::to_owned), ..policy() };
        match may_start(&with_records(volume, known()), &policy) {
            StartVerdict::Start { .. } => vec![],
            StartVerdict::Hold { reasons } => codes(&reasons),
        }
    };
    assert_eq!(with(Some("etcd-a"), Some("https://a:2380"), "etcd-a"), []);
    assert_eq!(with(Some("etcd-a"), Some("https://a:2380/"), "etcd-a"), []);
    assert_eq!(with(Some("etcd-b"), None, "etcd-a"), [OtherMember]);
    assert_eq!(with(None, Some("https://b:2380"), "etcd-a"), [OtherMember]);
    assert_eq!(with(Some("etcd-b"), None, ""), [], "a member without a name has never run");
}

#[test]
fn each_of_the_three_comparisons_finds_a_dir_that_went_back() {
    let with = |change: &dyn Fn(&mut Fingerprint)| {
        let mut volume = one_healthy();
        change(fingerprint_of(&mut volume));
        match may_start(&with_records(volume, known()), &policy()) {
            StartVerdict::Start { .. } => vec![],
            StartVerdict::Hold { reasons } => codes(&reasons),
        }
    };
    // The mark says: index 290 applied, term 7, revision 195, WAL until 400.
    assert_eq!(
        with(&|it| (it.raft.last_index, it.consistent_index) = (Some(290), Some(290))),
        [],
        "the tail that the mark saw was never committed"
    );
    assert_eq!(with(&|it| (it.raft.last_index, it.consistent_index) = (Some(289), Some(289))), [WentBackwards]);
    assert_eq!(with(&|it| it.raft.term = Some(6)), [WentBackwards]);
    assert_eq!(with(&|it| it.revision = Some(190)), [], "five entries in the WAL reach 195");
    assert_eq!(with(&|it| it.revision = Some(189)), [WentBackwards]);
    assert_eq!(with(&|it| (it.revision, it.consistent_index) = (Some(100), Some(200))), [], "105 entries reach 205");
    assert_eq!(with(&|it| (it.raft.last_index, it.consistent_index) = (None, None)), [Unreadable]);
    assert_eq!(with(&|it| it.raft.term = None), [Unreadable]);
    assert_eq!(with(&|it| it.revision = None), [Unreadable]);
}

#[test]
fn progress_is_compared_within_one_cluster_id_only() {
    let mut volume = one_healthy();
    fingerprint_of(&mut volume).raft.term = Some(1);
    let other = Records { high_water: Some(HighWater { cluster_id: Some(OTHER), ..mark() }), ..known() };
    assert_eq!(starts(&with_records(volume.clone(), other)), StartKind::Continues);
    let without_ids = Records { high_water: Some(HighWater { cluster_id: None, ..mark() }), ..known() };
    assert_eq!(held_as(&with_records(volume.clone(), without_ids)), [WentBackwards]);
    let unpinned = Records { pin: None, ..known() };
    assert_eq!(held_as(&with_records(volume, unpinned)), [WentBackwards]);
}

#[test]
fn damage_of_the_selected_dir_holds_under_its_own_name() {
    let with = |defect: Defect| {
        let mut volume = one_healthy();
        volume.data_dirs[0].defects = vec![defect];
        volume
    };
    let cases = [
        ("wal-behind-backend", "member/wal", WalBehindBackend),
        ("wal-damaged", "member/wal/0.wal", WalDamaged),
        ("wal-gap", "member/wal", WalDamaged),
        ("backend-damaged", "member/snap/db", BackendDamaged),
        ("backend-missing", "member/wal", BackendDamaged),
        ("snapshot-damaged", "member/snap/1.snap", SnapshotDamaged),
        ("snapshot-missing", "member/snap", SnapshotDamaged),
        ("unreadable", "member/snap/db", Unreadable),
        ("member-is-file", "member", Unreadable),
        ("from-the-future", "member/wal/0.wal", Unreadable),
    ];
    for (code, file, expected) in cases {
        let reasons = holds(&with_records(with(defect(code, file)), known()));
        assert_eq!(codes(&reasons), [expected], "{code} in {file}");
        says(&reasons[0], &["`default`", "it is broken", file, "at byte 4096"]);
    }
    let told = Defect { severity: Severity::Warning, ..defect("no-space", "member") };
    assert_eq!(warned(&with_records(with(told), known())), [NoSpace]);
    let finer = Defect { severity: Severity::Warning, ..defect("torn-tail", "member/wal/0.wal") };
    assert_eq!(warned(&with_records(with(finer), known())), []);
    let info = Defect { severity: Severity::Info, ..defect("wal-damaged", "member/wal/0.wal") };
    assert_eq!(warned(&with_records(with(info), known())), []);
}

#[test]
fn a_wal_that_ends_before_the_backend_holds_once_whoever_notices() {
    let with = |change: &dyn Fn(&mut VolumeReading)| {
        let mut volume = one_healthy();
        change(&mut volume);
        match may_start(&first_look(volume), &policy()) {
            StartVerdict::Start { .. } => vec![],
            StartVerdict::Hold { reasons } => reasons,
        }
    };
    assert_eq!(with(&|volume| fingerprint_of(volume).raft.last_index = Some(300)), []);
    let behind = with(&|volume| fingerprint_of(volume).raft.last_index = Some(299));
    assert_eq!(codes(&behind), [WalBehindBackend]);
    says(&behind[0], &["`default`", "299", "300"]);
    let gone = with(&|volume| fingerprint_of(volume).raft.last_index = None);
    assert_eq!(codes(&gone), [WalBehindBackend]);
    let told = with(&|volume| {
        fingerprint_of(volume).raft.last_index = Some(4);
        volume.data_dirs[0].defects = vec![defect("wal-behind-backend", "member/wal")];
    });
    assert_eq!(codes(&told), [WalBehindBackend]);
}

#[test]
fn a_damaged_dir_is_told_as_damaged_and_not_as_vanished() {
    let mut broken = bootstrapped("default");
    broken.fingerprint = None;
    broken.defects = vec![defect("backend-damaged", "member/snap/db")];
    let volume = reading(vec![broken, archive("old", OURS, 9)], selects("default", SelectedBy::Config, true));
    assert_eq!(held_as(&with_records(volume, known())), [BackendDamaged]);
}

#[test]
fn damage_elsewhere_does_not_hold_a_dir_that_continues_its_record() {
    let other =
        DataDirReport { defects: vec![defect("backend-damaged", "member/snap/db")], ..archive("old", OTHER, 9) };
    let volume = reading(vec![healthy("default"), other], selects("default", SelectedBy::Config, true));
    assert_eq!(starts(&with_records(volume, known())), StartKind::Continues);
}

#[test]
fn what_could_not_be_looked_at_holds_and_is_not_taken_for_absent() {
    let volume = VolumeReading { unreadable: vec!["var/etcd: EIO".into()], ..reading(vec![], None) };
    let reasons = holds(&with_records(volume, known()));
    assert_eq!(codes(&reasons), [Unreadable]);
    says(&reasons[0], &["var/etcd: EIO"]);
    let unknown = StartEvidence { volume: Observed::Unknown(eio()), ..with_records(one_healthy(), known()) };
    assert_eq!(held_as(&unknown), [Unreadable]);
    let mut no_ids = one_healthy();
    fingerprint_of(&mut no_ids).member_id = None;
    assert_eq!(held_as(&first_look(no_ids)), [Unreadable]);
    let mut no_fingerprint = one_healthy();
    no_fingerprint.data_dirs[0].fingerprint = None;
    assert_eq!(held_as(&first_look(no_fingerprint)), [Unreadable]);
}

#[test]
fn what_lies_beyond_a_bound_of_the_search_is_told_of_a_dir_that_continues_its_record_and_holds_any_other() {
    let far = || vec!["d/d/d: deeper than 20 levels, not looked into".to_owned()];
    let volume = || VolumeReading { beyond: far(), ..one_healthy() };
    let StartVerdict::Start { how, warnings, .. } = may_start(&with_records(volume(), known()), &policy()) else {
        panic!("a healthy master is held for what lies beside it");
    };
    assert_eq!((how, codes(&warnings)), (StartKind::Continues, vec![Unreadable]));
    assert_eq!(held_as(&first_look(volume())), [Unreadable]);
    let empty = VolumeReading { beyond: far(), ..reading(vec![], None) };
    assert_eq!(held_as(&with_records(empty, Records::default())), [Unreadable], "nothing is not known to be there");
}

#[test]
fn a_dir_that_another_process_has_locked_is_in_use() {
    let mut volume = one_healthy();
    volume.data_dirs[0].locked_by = Some(4711);
    let reasons = holds(&with_records(volume, known()));
    assert_eq!(codes(&reasons), [DirInUse]);
    says(&reasons[0], &["4711", "`default`"]);
}

#[test]
fn a_ledger_that_cannot_be_trusted_holds() {
    let unknown = StartEvidence { records: Observed::Unknown(eio()), ..first_look(one_healthy()) };
    assert_eq!(held_as(&unknown), [LedgerBroken]);
    let empty = StartEvidence { records: Observed::Unknown(eio()), ..first_look(reading(vec![], None)) };
    assert_eq!(held_as(&empty), [LedgerBroken], "what the record says of nothing is not known");
    let contradict = Records { pins_contradict: true, ..known() };
    assert_eq!(held_as(&with_records(one_healthy(), contradict)), [LedgerBroken]);
}

#[test]
fn a_ledger_of_another_volume_is_a_copy_or_the_wrong_volume() {
    let other = || Some(VolumeId("vol-2".into()));
    let copy = Records { names_other_volume: other(), ..Records::default() };
    let reasons = holds(&with_records(one_healthy(), copy));
    assert_eq!(codes(&reasons), [RestoredVolume]);
    says(&reasons[0], &["vol-2", "vol-1"]);
    let wrong = Records { names_other_volume: other(), fs_uuids: vec![uuid(2)], ..Records::default() };
    assert_eq!(held_as(&with_records(one_healthy(), wrong)), [WrongVolume, FilesystemReplaced]);
}

#[test]
fn alarms_and_a_moved_dir_are_told() {
    let mut volume = one_healthy();
    fingerprint_of(&mut volume).alarms = vec!["NOSPACE".into()];
    let moved = Records { pin: Some(Pin { data_dir: "old-place".into(), ..pin(OURS, ME) }), ..known() };
    assert_eq!(warned(&with_records(volume, moved)), [AlarmSet, ConfigChanged]);
}

#[test]
fn each_answer_lifts_what_it_speaks_of() {
    let answered = |volume: VolumeReading, records: Records, answer| {
        let evidence = with_records(volume, Records { adoption: Some(answer), ..records });
        match may_start(&evidence, &policy()) {
            StartVerdict::Start { how, .. } => {
                assert_eq!(how, StartKind::Adopted);
                true
            }
            StartVerdict::Hold { .. } => false,
        }
    };
    let lifted_by = |volume: &VolumeReading, records: &Records| {
        [Adoption::Identity, Adoption::Restored, Adoption::NewCluster, Adoption::Replacement]
            .map(|answer| answered(volume.clone(), records.clone(), answer))
    };
    let (no, yes) = (false, true);
    let healthy_one = one_healthy();
    let nothing = reading(vec![], None);
    let beside =
        reading(vec![healthy("default"), archive("old", OTHER, 900)], selects("default", SelectedBy::Config, true));
    let empty_beside = reading(
        vec![bootstrapped("default"), archive("old", OTHER, 900)],
        selects("default", SelectedBy::Config, true),
    );
    let mut back = one_healthy();
    fingerprint_of(&mut back).raft.term = Some(1);
    let mut damaged = one_healthy();
    damaged.data_dirs[0].defects = vec![defect("wal-damaged", "member/wal/0.wal")];

    let other_cluster = Records { pin: Some(pin(OTHER, ME)), high_water: None, ..known() };
    let other_member = Records { pin: Some(pin(OURS, HIM)), high_water: None, ..known() };
    let other_filesystem = Records { fs_uuids: vec![uuid(2)], ..Records::default() };
    let other_volume = Records { names_other_volume: Some(VolumeId("vol-2".into())), ..Records::default() };
    let contradict = Records { pins_contradict: true, ..Records::default() };
    let none = Records::default();

    //                                                          identity restored new-cluster replacement
    assert_eq!(lifted_by(&healthy_one, &other_cluster), [yes, no, yes, no]);
    assert_eq!(lifted_by(&healthy_one, &other_member), [yes, no, yes, yes]);
    assert_eq!(lifted_by(&healthy_one, &contradict), [yes, no, yes, no]);
    assert_eq!(lifted_by(&healthy_one, &other_filesystem), [yes, yes, yes, yes]);
    assert_eq!(lifted_by(&healthy_one, &other_volume), [no, yes, no, no]);
    assert_eq!(lifted_by(&back, &known()), [yes, yes, no, no]);
    assert_eq!(lifted_by(&beside, &none), [yes, no, yes, yes]);
    assert_eq!(lifted_by(&empty_beside, &none), [no, no, yes, yes]);
    assert_eq!(lifted_by(&nothing, &known()), [no, no, yes, yes]);
    assert_eq!(lifted_by(&nothing, &other_filesystem), [no, no, yes, yes]);
    assert_eq!(lifted_by(&damaged, &known()), [no, no, no, no]);
    let unread = VolumeReading { unreadable: vec!["x".into()], ..one_healthy() };
    assert_eq!(lifted_by(&unread, &known()), [no, no, no, no]);
    assert_eq!(lifted_by(&reading(vec![healthy("a"), healthy("b")], None), &none), [no, no, no, no]);
}

#[test]
fn an_adoption_without_anything_to_adopt_is_a_fresh_start() {
    let adopted = Records { adoption: Some(Adoption::Identity), ..Records::default() };
    assert_eq!(starts(&with_records(reading(vec![], None), adopted)), StartKind::Fresh);
}

#[test]
fn an_empty_volume_of_a_member_that_others_remember_stands_in_for_another() {
    // Made together with the others, and yet not the first of its member.
    let with = |ran: &[&str]| {
        let ran = ran.iter().map(|name| (*name).to_owned()).collect();
        nothing_among(among(vec![Sibling { ran, ..sibling(2, Some(0), None) }]))
    };
    for ran in [&["etcd-a"][..], &["a"], &["etcd-b", "etcd-events-a"]] {
        assert_eq!(held_as(&with(ran)), [BlankReplacement], "{ran:?}");
    }
    for ran in [&[][..], &["etcd-b"], &["etcd-aa", "ba", "a-b"]] {
        assert_eq!(starts(&with(ran)), StartKind::Fresh, "{ran:?}");
    }
}
