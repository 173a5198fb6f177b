#![allow(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "a test that panics is a test that fails"
)]

use super::*;
use std::fs::File;
use std::io::PipeWriter;
use std::thread::JoinHandle;
use std::time::Instant;

fn name() -> GuardName {
    "etcd-main".parse().unwrap()
}

/// A keeper in a thread, with the process id of this test.
fn keeper(run: &Path) -> (PipeWriter, JoinHandle<()>) {
    let (read, write) = std::io::pipe().unwrap();
    let run_dir = run.to_owned();
    let thread = std::thread::spawn(move || keep(&run_dir, &name(), read.as_fd()).unwrap());
    let socket = files::claims_dir(run).join(format!("etcd-main.{}", std::process::id()));
    let until = Instant::now() + Duration::from_secs(30);
    while !socket.exists() {
        assert!(Instant::now() < until, "the keeper never listens");
        std::thread::yield_now();
    }
    (write, thread)
}

/// Two descriptors of one open file description share its position.
fn same_description(one: &File, other: &OwnedFd) -> bool {
    use std::io::{Seek, SeekFrom};
    let mut one = one.try_clone().unwrap();
    one.seek(SeekFrom::Start(77)).unwrap();
    rustix::fs::seek(other, rustix::fs::SeekFrom::Current(0)).unwrap() == 77
}

#[test]
fn a_keeper_gives_back_the_very_description_that_it_was_given_and_forgets_it_when_told() {
    let run = tempfile::tempdir().unwrap();
    let (parent, thread) = keeper(run.path());
    let claim = tempfile::tempfile().unwrap();
    assert!(recover(run.path(), &name()).is_none());
    assert_eq!(share(run.path(), &name(), claim.as_fd()), 1);
    let back = recover(run.path(), &name()).unwrap();
    assert!(same_description(&claim, &back));
    assert!(take_back(run.path(), &name()));
    assert!(recover(run.path(), &name()).is_none());
    drop(parent);
    thread.join().unwrap();
    assert_eq!(std::fs::read_dir(files::claims_dir(run.path())).unwrap().count(), 0);
}

#[test]
fn a_keeper_of_another_guard_is_not_asked_and_the_socket_of_a_dead_one_is_swept() {
    let run = tempfile::tempdir().unwrap();
    let (parent, thread) = keeper(run.path());
    let claim = tempfile::tempfile().unwrap();
    assert_eq!(share(run.path(), &"etcd".parse().unwrap(), claim.as_fd()), 0);
    assert_eq!(share(run.path(), &"main".parse().unwrap(), claim.as_fd()), 0);
    drop(parent);
    thread.join().unwrap();
    let dir = files::claims_dir(run.path());
    drop(open_dir(&dir).and_then(|dir| listen_at(&dir, "etcd-main.1")).unwrap());
    assert!(take_back(run.path(), &name()));
    assert!(!dir.join("etcd-main.1").exists());
}

#[test]
fn only_a_name_and_a_number_is_a_keepers_socket() {
    assert_eq!(guard_of("etcd-main.12"), Some(name()));
    for other in ["etcd-main", ".etcd-main.12", "etcd-main.x", "etcd-main.-1", ".12", ""] {
        assert_eq!(guard_of(other), None, "{other}");
    }
}
