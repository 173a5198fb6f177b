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

fn name() -> GuardName {
    "main".parse().unwrap()
}

fn boot(id: &str) -> BootId {
    BootId(id.into())
}

fn published() -> Published {
    Published {
        directories: Vec::new(),
        at: "/var/lib/etcd".into(),
        devnum: DevNum { major: 259, minor: 3 },
        fs_uuid: None,
        volume_id: VolumeId("vol-1".into()),
        data_dir: "default".into(),
        how: StartKind::Continues,
        mount_id: Some(77),
        boot_id: boot("this"),
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

fn status() -> Status {
    Status {
        api_version: "volhold/v1".into(),
        kind: "Status".into(),
        version: "0".into(),
        written_at: Time::from_unix(5).unwrap(),
        pid: 1,
        guards: vec![],
        config: vec![],
        warnings: vec![],
    }
}

#[test]
fn a_gate_is_closed_until_it_is_opened_and_says_what_for() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("deep/run");
    assert!(!is_open(&run, &name(), &boot("this")).unwrap());
    assert_eq!(read_published(&run, &name()).unwrap(), None);
    open_gate(&run, &name(), &published()).unwrap();
    assert!(is_open(&run, &name(), &boot("this")).unwrap());
    assert_eq!(read_published(&run, &name()).unwrap(), Some(published()));
    let text = std::fs::read_to_string(ready_path(&run, &name())).unwrap();
    assert_eq!(text.lines().count(), 1);
    let ready: Ready = serde_json::from_str(&text).unwrap();
    assert_eq!((ready.data_dir.as_str(), ready.devnum), ("/var/lib/etcd/default", published().devnum));
}

#[test]
fn everybody_may_read_the_verdict_and_only_root_may_ask() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    open_gate(&run, &name(), &published()).unwrap();
    write_status(&run, &status(), Readers::Everyone).unwrap();
    post_request(&run, &name()).unwrap();
    for (path, expected) in [
        (run.clone(), 0o755),
        (run.join("open"), 0o755),
        (run.join("published"), 0o755),
        (run.join("requests"), 0o700),
        (ready_path(&run, &name()), 0o644),
        (published_path(&run, &name()), 0o644),
        (status_path(&run), 0o644),
        (run.join("requests/main"), 0o600),
    ] {
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
    assert_eq!(std::fs::read_dir(run.join("open")).unwrap().count(), 1, "nothing temporary is left");
}

#[test]
fn a_ready_file_of_another_boot_opens_nothing_and_may_be_removed() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path();
    open_gate(run, &name(), &published()).unwrap();
    assert!(!is_open(run, &name(), &boot("next")).unwrap());
    let stale = Closing::EarlierBoot { this: boot("next") };
    assert!(close_gate(run, &name(), &stale).unwrap());
    assert!(!ready_path(run, &name()).exists());
    assert!(!close_gate(run, &name(), &stale).unwrap());
}

#[test]
fn a_ready_file_of_this_boot_is_not_stale() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path();
    open_gate(run, &name(), &published()).unwrap();
    let this = Closing::EarlierBoot { this: boot("this") };
    assert!(matches!(close_gate(run, &name(), &this), Err(GateError::NotStale { .. })));
    assert!(is_open(run, &name(), &boot("this")).unwrap());
    assert!(close_gate(run, &name(), &Closing::VolumeGone).unwrap());
}

#[test]
fn a_gate_that_a_person_opened_by_hand_is_open() {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path()).unwrap();
    std::fs::write(ready_path(dir.path(), &name()), "").unwrap();
    assert!(is_open(dir.path(), &name(), &boot("this")).unwrap());
    let stale = Closing::EarlierBoot { this: boot("this") };
    assert!(matches!(close_gate(dir.path(), &name(), &stale), Err(GateError::NotStale { .. })));
}

#[test]
fn a_directory_or_a_link_in_the_ready_files_place_opens_nothing() {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path()).unwrap();
    let ready = ready_path(dir.path(), &name());
    std::fs::create_dir(&ready).unwrap();
    assert!(!is_open(dir.path(), &name(), &boot("this")).unwrap());
    std::fs::remove_dir(&ready).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &ready).unwrap();
    assert!(!is_open(dir.path(), &name(), &boot("this")).unwrap());
}

#[test]
fn a_status_comes_back_as_it_was_written_and_a_broken_one_is_no_absent_one() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(read_status(dir.path()).unwrap(), None);
    write_status(dir.path(), &status(), Readers::Everyone).unwrap();
    assert_eq!(read_status(dir.path()).unwrap(), Some(status()));
    std::fs::write(status_path(dir.path()), "{").unwrap();
    assert!(matches!(read_status(dir.path()), Err(GateError::Parse { .. })));
}

#[test]
fn a_request_is_taken_once() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!take_request(dir.path(), &name()).unwrap());
    post_request(dir.path(), &name()).unwrap();
    assert!(take_request(dir.path(), &name()).unwrap());
    assert!(!take_request(dir.path(), &name()).unwrap());
}

#[test]
fn nothing_is_written_or_read_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let elsewhere = dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::create_dir(&run).unwrap();
    std::os::unix::fs::symlink(&elsewhere, run.join("open")).unwrap();
    assert!(open_gate(&run, &name(), &published()).is_err());
    std::fs::create_dir(run.join("published")).unwrap();
    std::fs::write(elsewhere.join("facts"), serde_json::to_vec(&published()).unwrap()).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("facts"), published_path(&run, &name())).unwrap();
    assert!(matches!(read_published(&run, &name()), Err(GateError::Read { .. })), "nor read");
    std::fs::remove_file(elsewhere.join("facts")).unwrap();
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn what_gates_were_opened_with_is_listed_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let name = |name: &str| name.parse::<GuardName>().unwrap();
    assert_eq!(running_guards(&run).unwrap(), []);
    assert_eq!(read_running(&run, &name("main")).unwrap(), None);
    for guard in ["main", "events"] {
        write_running(&run, &name(guard), guard).unwrap();
    }
    // What lies beside it, and what is no guard's name.
    for other in ["main.json", "Not A Name.toml", ".main.toml.1"] {
        std::fs::write(run.join("published").join(other), "").unwrap();
    }
    assert_eq!(running_guards(&run).unwrap(), [name("events"), name("main")]);
    assert_eq!(read_running(&run, &name("main")).unwrap().as_deref(), Some("main"));
}

#[test]
fn a_second_agent_on_the_same_run_dir_is_refused_and_told_who_is_first() {
    let run = tempfile::tempdir().unwrap();
    let first = only_agent(run.path()).unwrap();
    match only_agent(run.path()) {
        Err(GateError::Taken { pid, .. }) => assert_eq!(pid, std::process::id().to_string()),
        other => panic!("{other:?}"),
    }
    drop(first);
    only_agent(run.path()).unwrap();
}
