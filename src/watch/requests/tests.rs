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
use std::time::Duration;

async fn next(asked: &mut mpsc::Receiver<Option<GuardName>>) -> Option<String> {
    let guard = tokio::time::timeout(Duration::from_secs(10), asked.recv()).await.expect("a request").expect("a watch");
    guard.map(|guard| guard.to_string())
}

#[tokio::test]
async fn each_request_names_its_guard() {
    let run = tempfile::tempdir().unwrap();
    let dir = run.path().join("requests");
    std::fs::create_dir(&dir).unwrap();
    let (_watch, mut asked) = RequestWatch::start(&dir).unwrap();
    std::fs::write(dir.join(".main.77"), "").unwrap();
    std::fs::rename(dir.join(".main.77"), dir.join("main")).unwrap();
    assert_eq!(next(&mut asked).await.as_deref(), Some("main"));
    std::fs::remove_file(dir.join("main")).unwrap();
    std::fs::rename(run.path().join("requests"), run.path().join("gone")).unwrap();
    std::fs::create_dir(&dir).unwrap();
    assert_eq!(next(&mut asked).await, None, "a new directory may hold requests already");
    std::fs::File::create(dir.join("events")).unwrap();
    // That the old directory went may have been told apart from that the new one came.
    let named = loop {
        if let Some(named) = next(&mut asked).await {
            break named;
        }
    };
    assert_eq!(named, "events");
}

#[tokio::test]
async fn requests_are_seen_after_the_run_dir_itself_went_and_came_again() {
    let base = tempfile::tempdir().unwrap();
    let dir = base.path().join("run/requests");
    std::fs::create_dir_all(&dir).unwrap();
    let (_watch, mut asked) = RequestWatch::start(&dir).unwrap();
    std::fs::remove_dir_all(base.path().join("run")).unwrap();
    assert_eq!(next(&mut asked).await, None, "what lay beside the requests is gone too");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("main"), "").unwrap();
    // Either the request is named, or the directory that holds it is told as new.
    let named = next(&mut asked).await;
    assert!(named.is_none() || named.as_deref() == Some("main"), "{named:?}");
}

#[tokio::test]
async fn requests_are_seen_when_their_directory_comes_later() {
    let run = tempfile::tempdir().unwrap();
    let dir = run.path().join("requests");
    let (_watch, mut asked) = RequestWatch::start(&dir).unwrap();
    std::fs::create_dir(&dir).unwrap();
    assert_eq!(next(&mut asked).await, None);
    std::fs::rename(run.path().join("requests"), run.path().join("requests")).unwrap();
    std::fs::write(dir.join("main"), "").unwrap();
    assert_eq!(next(&mut asked).await.as_deref(), Some("main"));
}
