//! Directories that are to be published: what stands in their places, over every ground for a start.

use super::*;
use crate::model::{PublishSource, SourceKind};

/// What the reading may say of one directory; `None`: nothing.
fn kinds() -> Vec<Option<Observed<SourceKind>>> {
    let seen = [SourceKind::Directory, SourceKind::Missing, SourceKind::Link, SourceKind::NotADirectory];
    let mut all: Vec<Option<Observed<SourceKind>>> = seen.into_iter().map(|kind| Some(Observed::Seen(kind))).collect();
    all.extend([Some(Observed::Unknown(eio())), None]);
    all
}

fn publishing(froms: &[&str]) -> StartPolicy {
    StartPolicy { publish: froms.iter().map(|&from| from.to_owned()).collect(), ..policy() }
}

fn volume(mut reading: VolumeReading, kinds: &[(&str, Option<Observed<SourceKind>>)]) -> VolumeReading {
    let known = kinds.iter().filter_map(|(from, kind)| Some((from, kind.clone()?)));
    reading.publish = known.map(|(from, kind)| PublishSource { from: (*from).to_owned(), kind }).collect();
    reading
}

/// Each ground for a start, with the codes that a directory missing beside the data dir brings.
fn grounds() -> Vec<(&'static str, StartEvidence, Vec<ReasonCode>)> {
    let empty = || reading(vec![], selects("default", SelectedBy::Config, false));
    let made = Records { formatted: vec![uuid(1)], ..Records::default() };
    let answered = Records { adoption: Some(crate::model::Adoption::NewCluster), ..known() };
    vec![
        ("continues", with_records(one_healthy(), known()), vec![ReasonCode::DataVanished]),
        ("first use", first_look(one_healthy()), vec![ReasonCode::NotPublishable]),
        ("fresh", with_records(empty(), made), vec![]),
        ("a new cluster on nothing", with_records(empty(), answered), vec![]),
    ]
}

fn seen_in(evidence: &StartEvidence, kinds: &[(&str, Option<Observed<SourceKind>>)]) -> StartEvidence {
    let reading = evidence.volume.seen().unwrap().clone();
    StartEvidence { volume: Observed::Seen(volume(reading, kinds)), ..evidence.clone() }
}

fn verdict(evidence: &StartEvidence, froms: &[&str]) -> Vec<ReasonCode> {
    match may_start(evidence, &publishing(froms)) {
        StartVerdict::Start { .. } => Vec::new(),
        StartVerdict::Hold { reasons } => codes(&reasons),
    }
}

#[test]
fn only_a_directory_is_published_and_only_a_new_volume_gets_one() {
    for (name, evidence, missing) in grounds() {
        for kind in kinds() {
            let evidence =
                seen_in(&evidence, &[("default", Some(Observed::Seen(SourceKind::Directory))), ("more", kind.clone())]);
            let expected = match &kind {
                Some(Observed::Seen(SourceKind::Directory)) => vec![],
                Some(Observed::Seen(SourceKind::Missing)) => missing.clone(),
                Some(Observed::Seen(SourceKind::Link | SourceKind::NotADirectory)) => vec![ReasonCode::NotPublishable],
                Some(Observed::Unknown(_)) | None => vec![ReasonCode::Unreadable],
            };
            let found = verdict(&evidence, &["default", "more"]);
            match &kind {
                // Not looked at is not the same as not readable, and no start either.
                None => assert_eq!(found.len(), 1, "{name}: {found:?}"),
                Some(_) => assert_eq!(found, expected, "{name} {kind:?}"),
            }
            // Where the whole volume is published, nobody asks.
            assert_eq!(verdict(&evidence, &[]), [], "{name} {kind:?}");
        }
    }
}

#[test]
fn the_data_dir_must_be_seen_through_what_is_published() {
    let there = Some(Observed::Seen(SourceKind::Directory));
    for (name, evidence, _) in grounds() {
        let evidence = seen_in(&evidence, &[("more", there.clone()), ("def", there.clone())]);
        assert_eq!(verdict(&evidence, &["more", "def"]), [ReasonCode::NotPublishable], "{name}");
    }
}

#[test]
fn a_new_volume_that_nobody_names_a_dir_for_starts_in_the_first_directory() {
    let missing = Some(Observed::Seen(SourceKind::Missing));
    let made = Records { formatted: vec![uuid(1)], ..Records::default() };
    let empty = volume(reading(vec![], None), &[("etcd", missing.clone()), ("more", missing)]);
    match may_start(&with_records(empty, made), &publishing(&["etcd", "more"])) {
        StartVerdict::Start { how: StartKind::Fresh, data_dir, .. } => assert_eq!(data_dir, "etcd"),
        other @ (StartVerdict::Start { .. } | StartVerdict::Hold { .. }) => panic!("{other:#?}"),
    }
}

#[test]
fn an_etcd_that_runs_is_not_stopped_for_what_is_not_published() {
    let evidence = with_records(volume(one_healthy(), &[("more", Some(Observed::Seen(SourceKind::Missing)))]), known());
    let running = crate::model::RunningEtcd { pid: 1, data_dir: "default".into() };
    let evidence = StartEvidence { running: Observed::Seen(Some(running)), ..evidence };
    match may_start(&evidence, &publishing(&["more"])) {
        StartVerdict::Start { how: StartKind::Running, warnings, .. } => {
            assert_eq!(codes(&warnings), [ReasonCode::DataVanished, ReasonCode::NotPublishable]);
        }
        other @ (StartVerdict::Start { .. } | StartVerdict::Hold { .. }) => panic!("{other:#?}"),
    }
}
