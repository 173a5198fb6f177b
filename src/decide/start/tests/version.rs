//! Which etcd may open which data.

use super::*;
use crate::model::{EtcdFlags, EtcdToRun, EtcdVersion, NamedBy};
use ReasonCode::*;

/// A dir that a cluster of this version left, and the etcd that is to open it.
fn from_to(cluster: &str, to_run: &str) -> StartEvidence {
    let mut evidence = with_records(one_healthy(), known());
    print(&mut evidence).cluster_version = Some(cluster.into());
    evidence.to_run = named(to_run);
    evidence
}

fn print(evidence: &mut StartEvidence) -> &mut Fingerprint {
    match &mut evidence.volume {
        Observed::Seen(reading) => reading.data_dirs[0].fingerprint.as_mut().unwrap(),
        Observed::Unknown(_) => panic!("it was read"),
    }
}

fn named(version: &str) -> Observed<Option<EtcdToRun>> {
    let version: EtcdVersion = version.parse().unwrap();
    Observed::Seen(Some(EtcdToRun { version: Some(version), by: NamedBy::Config, at: None, flags: None }))
}

#[test]
fn the_same_minor_and_the_next_start_and_nothing_is_said() {
    for (cluster, to_run) in [
        ("3.5.0", "3.5.16"),
        ("3.4.0", "3.5.16"),
        ("3.3.0", "3.4.23"),
        ("2.2.0", "2.3.8"),
        ("2.3.0", "3.0.17"),
        ("3.6.0", "3.7.1"),
    ] {
        let evidence = from_to(cluster, to_run);
        assert_eq!(starts(&evidence), StartKind::Continues, "{cluster} to {to_run}");
        assert_eq!(warned(&evidence), [], "{cluster} to {to_run}");
    }
}

#[test]
fn a_version_that_nobody_names_or_that_cannot_be_asked_for_holds_nothing() {
    let mut evidence = from_to("3.3.0", "3.6.12");
    evidence.to_run = Observed::Seen(None);
    assert_eq!(warned(&evidence), []);
    evidence.to_run = Observed::Unknown(eio());
    assert_eq!(warned(&evidence), [Unreadable], "said, and no more");
    let image = EtcdToRun { version: None, by: NamedBy::Manifest, at: Some("/etc/x.yaml".into()), flags: None };
    evidence.to_run = Observed::Seen(Some(image));
    assert_eq!(warned(&evidence), [], "an image without a tag");
    // Nor does data that says no version, or one of a line that nobody knows yet.
    let mut evidence = from_to("3.3.0", "3.6.12");
    print(&mut evidence).cluster_version = None;
    assert_eq!(warned(&evidence), []);
    assert_eq!(warned(&from_to("3.6.0", "4.1.0")), []);
}

#[test]
fn more_than_one_minor_up_is_held_with_the_versions_between() {
    let reasons = holds(&from_to("3.3.0", "3.5.16"));
    assert_eq!(codes(&reasons), [VersionSkip]);
    says(&reasons[0], &["`default`", "etcd 3.3", "etcd 3.5.16", "3.3, then 3.4, then 3.5", "the configuration"]);
    assert_eq!(reasons[0].detail.as_ref().unwrap()["hops"], serde_json::json!(["3.3", "3.4", "3.5"]));
    let reasons = holds(&from_to("2.2.0", "3.1.12"));
    assert_eq!(codes(&reasons), [VersionSkip]);
    says(&reasons[0], &["2.2, then 2.3, then 3.0, then 3.1"]);
}

#[test]
fn a_cluster_of_several_that_was_just_made_says_3_0_and_is_not_held_for_it() {
    let evidence = from_to("3.0.0", "3.6.12");
    assert_eq!(starts(&evidence), StartKind::Continues);
    assert_eq!(warned(&evidence), [VersionSkip]);
}

#[test]
fn an_older_etcd_than_the_data_is_held() {
    let reasons = holds(&from_to("3.5.0", "3.4.23"));
    assert_eq!(codes(&reasons), [VersionDowngrade]);
    says(&reasons[0], &["version 3.5.0", "etcd 3.4.23", "install 3.5 or later"]);
    // From 3.6 on the backend has a version of its own, which 3.5 does not look at.
    let mut evidence = from_to("3.6.0", "3.6.12");
    print(&mut evidence).storage_version = Some("3.7.0".into());
    assert_eq!(held_as(&evidence), [VersionDowngrade]);
    let mut evidence = from_to("3.5.0", "3.5.30");
    print(&mut evidence).storage_version = Some("3.6.0".into());
    assert_eq!(warned(&evidence), []);
}

#[test]
fn a_downgrade_that_is_enabled_holds_the_3_5_that_it_is_not_for() {
    let of = |cluster, to_run, target: &str| {
        let mut evidence = from_to(cluster, to_run);
        print(&mut evidence).downgrade = Some(target.into());
        may_start(&evidence, &policy())
    };
    let held = |verdict| match verdict {
        StartVerdict::Hold { reasons } => codes(&reasons),
        StartVerdict::Start { .. } => vec![],
    };
    assert_eq!(held(of("3.5.0", "3.5.30", "3.4.0")), [VersionDowngrade], "no longer 3.5");
    assert_eq!(held(of("3.5.0", "3.4.23", "3.4.0")), [VersionDowngrade], "nor 3.4 yet");
    assert_eq!(held(of("3.5.0", "3.6.12", "3.4.0")), [], "the way out");
    assert_eq!(held(of("3.5.0", "3.5.30", "3.5.0")), [], "what it is for");
}

#[test]
fn what_3_6_refuses_of_the_v2_api_is_held_before_it_and_nowhere_else() {
    let mut evidence = from_to("3.5.0", "3.6.12");
    print(&mut evidence).v2_request = Some(42);
    let reasons = holds(&evidence);
    assert_eq!(codes(&reasons), [VersionSkip]);
    says(&reasons[0], &["entry 42", "request of the v2 API", "snapshot"]);
    for to_run in ["3.5.30", "3.4.23"] {
        let mut evidence = from_to("3.4.0", to_run);
        print(&mut evidence).v2_request = Some(42);
        assert_eq!(warned(&evidence), [], "{to_run}");
    }
    let mut evidence = from_to("3.5.0", "3.6.12");
    print(&mut evidence).v2 = Some(V2Facts { keys: Some(33) });
    let reasons = holds(&evidence);
    assert_eq!(codes(&reasons), [V2DataOnly]);
    says(&reasons[0], &["33 keys"]);
}

#[test]
fn keys_of_the_v2_store_that_would_be_seen_no_more_are_counted_and_held() {
    let of = |cluster, to_run, v2| {
        let mut evidence = from_to(cluster, to_run);
        print(&mut evidence).v2 = Some(V2Facts { keys: Some(v2) });
        evidence
    };
    let reasons = holds(&of("3.3.0", "3.4.23", 500));
    assert_eq!(codes(&reasons), [V2DataOnly]);
    says(&reasons[0], &["100 live keys and 500 v2 keys", "--enable-v2"]);
    assert_eq!(warned(&of("3.3.0", "3.4.23", 90)), [V2DataOnly], "migrated: what is left is a remainder");
    assert_eq!(warned(&of("3.4.0", "3.4.23", 500)), [], "it has lived with that");
    assert_eq!(warned(&of("3.2.0", "3.3.25", 500)), [], "3.3 serves them");
    // A dir of etcd 2 has nothing else.
    let mut evidence =
        first_look(reading(vec![v2("default", DirRole::Selected)], selects("default", SelectedBy::Config, true)));
    evidence.to_run = named("3.4.23");
    assert_eq!(held_as(&evidence), [V2DataOnly]);
    evidence.to_run = named("3.1.12");
    assert_eq!(held_as(&evidence), [VersionSkip]);
    evidence.to_run = named("2.3.8");
    assert_eq!(warned(&evidence), []);
}

#[test]
fn a_promoted_learner_that_the_backend_does_not_know_as_one_is_held_before_3_6() {
    let of = |to_run| {
        let mut evidence = from_to("3.5.0", to_run);
        print(&mut evidence).promoted = vec![HIM];
        evidence
    };
    let reasons = holds(&of("3.6.4"));
    assert_eq!(codes(&reasons), [VersionSkip]);
    says(&reasons[0], &["a2", "learner", "3.5.24"]);
    assert_eq!(warned(&of("3.6.12")), [], "it writes the promotion down itself");
    assert_eq!(warned(&of("3.5.30")), []);
    // One that is a learner still is nothing to wonder at.
    let mut evidence = from_to("3.5.0", "3.6.4");
    print(&mut evidence).members[0].learner = true;
    assert_eq!(warned(&evidence), []);
}

#[test]
fn releases_that_lose_data_are_warned_of_and_start() {
    for (to_run, expected) in [
        ("3.5.0", vec![KnownBadVersion]),
        ("3.5.2", vec![KnownBadVersion]),
        ("3.5.3", vec![]),
        ("3.5", vec![]),
        ("3.4.23", vec![]),
    ] {
        assert_eq!(warned(&from_to("3.4.0", to_run)), expected, "{to_run}");
    }
}

#[test]
fn etcd_manager_opens_the_old_dir_with_its_own_version_and_the_step_is_announced() {
    let managed = |dir: DataDirReport, runs: &str| {
        let selected = selects("data/token", SelectedBy::State, true);
        let mut volume = reading(vec![DataDirReport { path: "data/token".into(), ..dir }], selected);
        volume.manager_state = Some(Observed::Seen(EtcdManagerState {
            cluster_token: Some("token".into()),
            etcd_version: Some(runs.into()),
            ..EtcdManagerState::default()
        }));
        first_look(volume)
    };
    let mut evidence = managed(v2("x", DirRole::Selected), "v2.2.1");
    assert_eq!(warned(&evidence), []);
    evidence.to_run = named("3.1.12");
    let warnings = match may_start(&evidence, &policy()) {
        StartVerdict::Start { warnings, .. } => warnings,
        StartVerdict::Hold { reasons } => panic!("{reasons:#?}"),
    };
    assert_eq!(codes(&warnings), [MigrationUnderWay]);
    says(&warnings[0], &["2.2.1", "3.1.12", "a new dir"]);
    // What `state` names is what is held, whoever wrote it.
    let mut dir = healthy("x");
    dir.fingerprint.as_mut().unwrap().cluster_version = Some("3.4.0".into());
    assert_eq!(warned(&managed(dir.clone(), "3.5.16")), []);
    assert_eq!(held_as(&managed(dir.clone(), "3.1.12")), [VersionDowngrade]);
    let mut next = managed(dir.clone(), "3.4.23");
    next.to_run = named("3.5.16");
    assert_eq!(warned(&next), [MigrationUnderWay], "in place");
    next.to_run = named("3.4.30");
    assert_eq!(warned(&next), []);
    // It names none: then it is not known what will run.
    let mut silent = managed(dir, "x");
    silent.to_run = named("3.1.12");
    assert_eq!(warned(&silent), []);
}

#[test]
fn a_person_may_take_the_step_and_a_running_etcd_has_taken_it() {
    let mut evidence = from_to("3.3.0", "3.5.16");
    evidence.records = Observed::Seen(Records { adoption: Some(Adoption::Identity), ..known() });
    assert_eq!(starts(&evidence), StartKind::Adopted);
    for other in [Adoption::Restored, Adoption::Replacement, Adoption::NewCluster] {
        evidence.records = Observed::Seen(Records { adoption: Some(other), ..known() });
        assert_eq!(held_as(&evidence), [VersionSkip], "{other:?} speaks of something else");
    }
    evidence.running = Observed::Seen(Some(RunningEtcd { pid: 7, data_dir: "default".into() }));
    assert_eq!(warned(&evidence), []);
}

#[test]
fn a_dir_that_holds_nothing_or_is_damaged_is_not_asked_for_its_version() {
    let mut evidence = first_look(reading(vec![bootstrapped("default")], selects("default", SelectedBy::Config, true)));
    print(&mut evidence).cluster_version = Some("3.3.0".into());
    evidence.to_run = named("3.6.12");
    if let StartVerdict::Hold { reasons } = may_start(&evidence, &policy()) {
        assert!(!codes(&reasons).contains(&VersionSkip), "{reasons:#?}");
    }
    let mut evidence = from_to("3.3.0", "3.6.12");
    if let Observed::Seen(reading) = &mut evidence.volume {
        reading.data_dirs[0].defects.push(Defect {
            code: "wal-damaged".into(),
            severity: Severity::Damage,
            file: "member/wal".into(),
            offset: None,
            message: "damaged".into(),
        });
    }
    assert_eq!(held_as(&evidence), [WalDamaged]);
}

#[test]
fn a_manifest_that_starts_another_member_is_held_and_a_new_name_or_url_alone_is_not() {
    let with = |name: &str, url: &str| {
        let mut evidence = with_records(one_healthy(), known());
        let flags = EtcdFlags { name: Some(name.into()), peer_urls: vec![url.into()], ..EtcdFlags::default() };
        let at = Some("/etc/kubernetes/manifests/etcd.yaml".into());
        let etcd = EtcdToRun { version: None, by: NamedBy::Manifest, at, flags: Some(flags) };
        evidence.to_run = Observed::Seen(Some(etcd));
        evidence
    };
    let reasons = holds(&with("etcd-b", "https://b:2380"));
    assert_eq!(codes(&reasons), [OtherMember]);
    says(&reasons[0], &["`etcd-a`", "https://a:2380", "`etcd-b`", "https://b:2380", "etcd.yaml"]);
    for (name, url) in [("etcd-a", "https://a:2380/"), ("etcd-b", "https://a:2380"), ("etcd-a", "https://b:2380")] {
        assert_eq!(warned(&with(name, url)), [], "{name} {url}");
    }
    // What a person configured outweighs it, and a member that never ran has no name.
    let configured = StartPolicy { member: Some("etcd-a".into()), ..policy() };
    assert!(matches!(may_start(&with("etcd-b", "https://b:2380"), &configured), StartVerdict::Start { .. }));
    let mut added = with("etcd-b", "https://b:2380");
    print(&mut added).members[0].name = String::new();
    assert_eq!(warned(&added), []);
}

#[test]
fn a_dir_that_was_restored_and_never_run_is_told_as_that() {
    let mut evidence = with_records(one_healthy(), Records { pin: Some(pin(OTHER, HIM)), ..known() });
    assert!(!holds(&evidence)[0].message.contains("snapshot restore"));
    print(&mut evidence).raft =
        RaftProgress { term: Some(1), last_index: Some(3), snapshot_index: Some(3), ..RaftProgress::default() };
    print(&mut evidence).consistent_index = Some(3);
    says(&holds(&evidence)[0], &["snapshot restore", "no etcd has run on it yet"]);
    let mut evidence = with_records(one_healthy(), known());
    print(&mut evidence).raft =
        RaftProgress { term: Some(1), last_index: Some(3), snapshot_index: Some(3), ..RaftProgress::default() };
    print(&mut evidence).consistent_index = Some(3);
    let reasons = holds(&evidence);
    assert_eq!(codes(&reasons), [WentBackwards]);
    says(&reasons[0], &["snapshot restore"]);
}
