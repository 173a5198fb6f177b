//! Under which name a thing is told, and what a script gets with it.

use super::*;
use crate::model::{Adoption, PublishSource, SourceKind};

/// `default` holds data and is the one to expect; an etcd runs on `beside`.
fn runs_beside(beside: DataDirReport) -> Vec<ReasonCode> {
    let volume = reading(vec![healthy("default"), beside], selects("default", SelectedBy::Config, true));
    let mut evidence = with_records(volume, known());
    evidence.running = Observed::Seen(Some(RunningEtcd { pid: 7, data_dir: "beside".into() }));
    warned(&evidence)
}

#[test]
fn an_etcd_on_an_empty_dir_is_the_second_incident_and_one_on_other_data_is_not() {
    let empty = DataDirReport { role: DirRole::Candidate, ..bootstrapped("beside") };
    assert_eq!(runs_beside(empty).first(), Some(&ReasonCode::EmptyBesideOld));
    let data = DataDirReport { role: DirRole::Candidate, ..healthy("beside") };
    assert_eq!(runs_beside(data).first(), Some(&ReasonCode::DataDirAmbiguous));
    // One that nobody has seen is not known to be empty.
    let mut evidence = with_records(one_healthy(), known());
    evidence.running = Observed::Seen(Some(RunningEtcd { pid: 7, data_dir: "beside".into() }));
    assert_eq!(warned(&evidence).first(), Some(&ReasonCode::DataDirAmbiguous));
}

#[test]
fn an_answer_that_it_starts_empty_makes_no_directory_beside_data() {
    let answered = Records { adoption: Some(Adoption::NewCluster), answered: true, ..Records::default() };
    let source = |from: &str, kind| PublishSource { from: from.to_owned(), kind: Observed::Seen(kind) };
    let mut volume = one_healthy();
    volume.publish = vec![source("default", SourceKind::Directory), source("more", SourceKind::Missing)];
    let policy = StartPolicy { publish: vec!["default".to_owned(), "more".to_owned()], ..policy() };
    let StartVerdict::Hold { reasons } = may_start(&with_records(volume, answered), &policy) else { panic!("started") };
    assert_eq!(codes(&reasons), [ReasonCode::NotPublishable]);
}

#[test]
fn the_dirs_of_a_hold_are_there_for_a_script_too() {
    let mut bare = bootstrapped("default");
    bare.role = DirRole::Selected;
    let volume = reading(vec![bare, archive("old", OTHER, 900)], selects("default", SelectedBy::Config, true));
    let reason = holds(&first_look(volume)).remove(0);
    let text = reason.detail.expect("detail").to_string();
    for part in [r#""path":"old""#, r#""keys":900"#, r#""populated":true"#, r#""revision":200"#, r#""etcd":"3""#] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn damage_that_could_only_not_be_read_comes_before_what_is_certain_to_be_broken() {
    let mut volume = one_healthy();
    volume.data_dirs[0].defects =
        vec![defect("wal-damaged", "member/wal/0.wal"), defect("unreadable", "member/snap/db")];
    let reasons = holds(&with_records(volume, known()));
    assert_eq!(codes(&reasons), [ReasonCode::Unreadable, ReasonCode::WalDamaged]);
}

#[test]
fn a_backend_that_has_applied_nothing_is_ahead_of_no_log() {
    let without_log = |applied| {
        let mut volume = reading(vec![bootstrapped("default")], selects("default", SelectedBy::Config, true));
        let fingerprint = volume.data_dirs[0].fingerprint.as_mut().expect("a fingerprint");
        (fingerprint.raft.last_index, fingerprint.consistent_index) = (None, Some(applied));
        held_or_not(&first_look(volume)).contains(&ReasonCode::WalBehindBackend)
    };
    assert!(!without_log(0));
    assert!(without_log(1));
}

fn held_or_not(evidence: &StartEvidence) -> Vec<ReasonCode> {
    match may_start(evidence, &policy()) {
        StartVerdict::Start { .. } => Vec::new(),
        StartVerdict::Hold { reasons } => codes(&reasons),
    }
}

/// Among what is ahead of an empty dir the one to name is the one with the most live keys, then the furthest, then what nobody
/// has put away.
#[test]
fn of_several_dirs_that_hold_more_the_best_is_named_first() {
    let keyed = |path: &str, keys, revision| {
        let mut dir = archive(path, OTHER, keys);
        dir.fingerprint.as_mut().expect("a fingerprint").revision = Some(revision);
        dir
    };
    let first = |dirs: Vec<DataDirReport>| {
        let dirs = [vec![bootstrapped("default")], dirs].concat();
        let reason = holds(&first_look(reading(dirs, selects("default", SelectedBy::Config, true)))).remove(0);
        assert_eq!(reason.code, ReasonCode::EmptyBesideOld);
        let ahead = reason.detail.expect("detail")["ahead"].clone();
        ahead
            .as_array()
            .expect("dirs")
            .iter()
            .map(|dir| dir["path"].as_str().expect("a path").to_owned())
            .collect::<Vec<_>>()
    };
    let by_keys = || [keyed("few", 10, 900), keyed("many", 20, 50)];
    let by_revision = || [keyed("early", 10, 50), keyed("late", 10, 900)];
    let live = DataDirReport { role: DirRole::Candidate, ..keyed("live", 10, 50) };
    for (dirs, expected) in [
        (by_keys().to_vec(), ["many", "few"]),
        (by_keys().into_iter().rev().collect(), ["many", "few"]),
        (by_revision().to_vec(), ["late", "early"]),
        (by_revision().into_iter().rev().collect(), ["late", "early"]),
        (vec![keyed("put-away", 10, 50), live.clone()], ["live", "put-away"]),
        (vec![live, keyed("put-away", 10, 50)], ["live", "put-away"]),
    ] {
        assert_eq!(first(dirs), expected);
    }
}

#[test]
fn data_that_was_put_away_is_old_data_also_where_nothing_is_selected() {
    let held = held_or_not(&first_look(reading(vec![archive("old", OTHER, 900)], None)));
    assert!(held.contains(&ReasonCode::EmptyBesideOld), "{held:?}");
    // What could be selected is told as that, and not twice.
    let candidate = DataDirReport { role: DirRole::Candidate, ..archive("old", OTHER, 900) };
    let unclear = held_or_not(&first_look(reading(vec![candidate], None)));
    assert!(unclear.contains(&ReasonCode::DataDirAmbiguous), "{unclear:?}");
    assert!(!unclear.contains(&ReasonCode::EmptyBesideOld), "{unclear:?}");
}
