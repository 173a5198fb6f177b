#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "a test that panics is a test that fails"
)]

use super::Change::*;
use super::*;
use std::fs;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

async fn next(hints: &mut Receiver<WatchHint>) -> WatchHint {
    tokio::time::timeout(Duration::from_secs(10), hints.recv()).await.expect("a hint").expect("a watch")
}

/// Reads hints until this one comes.
async fn until(hints: &mut Receiver<WatchHint>, wanted: WatchHint) {
    while next(hints).await != wanted {}
}

fn start(root: &Path, data_dir: &str) -> (DataDirWatch, Receiver<WatchHint>) {
    DataDirWatch::start(root, Path::new(data_dir)).unwrap()
}

#[tokio::test]
async fn a_dir_that_etcd_makes_step_by_step_is_followed_down_to_its_backend() {
    let root = tempfile::tempdir().unwrap();
    let (_watch, mut hints) = start(root.path(), "data/token");
    let dir = root.path().join("data/token");
    fs::create_dir(root.path().join("data")).unwrap();
    until(&mut hints, WatchHint::DataDir(Appeared)).await;
    fs::create_dir(&dir).unwrap();
    until(&mut hints, WatchHint::DataDir(Appeared)).await;
    fs::create_dir(dir.join("member")).unwrap();
    until(&mut hints, WatchHint::Member(Appeared)).await;
    fs::create_dir(dir.join("member/wal")).unwrap();
    until(&mut hints, WatchHint::Wal(Appeared)).await;
    fs::create_dir(dir.join("member/snap")).unwrap();
    until(&mut hints, WatchHint::Backend(Appeared)).await;
    fs::write(dir.join("member/snap/db"), "x").unwrap();
    until(&mut hints, WatchHint::Backend(Appeared)).await;
}

#[tokio::test]
async fn a_whole_dir_that_is_moved_in_is_seen() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("aside/member/snap")).unwrap();
    let (_watch, mut hints) = start(root.path(), "data");
    fs::rename(root.path().join("aside"), root.path().join("data")).unwrap();
    until(&mut hints, WatchHint::Member(Appeared)).await;
    fs::remove_dir_all(root.path().join("data/member")).unwrap();
    until(&mut hints, WatchHint::Member(Gone)).await;
}

#[tokio::test]
async fn a_member_that_is_wiped_and_made_anew_is_seen_twice() {
    let root = tempfile::tempdir().unwrap();
    let member = root.path().join("member");
    fs::create_dir_all(member.join("snap")).unwrap();
    fs::write(member.join("snap/db"), "x").unwrap();
    let (_watch, mut hints) = start(root.path(), ".");
    fs::remove_dir_all(&member).unwrap();
    until(&mut hints, WatchHint::Member(Gone)).await;
    fs::create_dir_all(member.join("snap")).unwrap();
    until(&mut hints, WatchHint::Member(Appeared)).await;
    until(&mut hints, WatchHint::Backend(Appeared)).await;
    fs::write(member.join("snap/db"), "x").unwrap();
    until(&mut hints, WatchHint::Backend(Appeared)).await;
}

#[tokio::test]
async fn a_member_that_is_renamed_away_is_no_longer_watched() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("data/member/snap")).unwrap();
    let (_watch, mut hints) = start(root.path(), "data");
    fs::rename(root.path().join("data/member"), root.path().join("data/old")).unwrap();
    until(&mut hints, WatchHint::Member(Gone)).await;
    fs::write(root.path().join("data/old/snap/db"), "x").unwrap();
    fs::create_dir(root.path().join("other")).unwrap();
    loop {
        match next(&mut hints).await {
            WatchHint::Backend(Appeared) => panic!("the renamed dir is still watched"),
            WatchHint::Beside(Appeared) => break,
            _ => {}
        }
    }
}

#[tokio::test]
async fn what_lies_down_beside_and_what_is_rewritten_at_the_root_is_seen() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("data/token")).unwrap();
    fs::write(root.path().join("state"), "").unwrap();
    let (_watch, mut hints) = start(root.path(), "data/token");
    fs::create_dir(root.path().join("data-trashcan")).unwrap();
    assert_eq!(next(&mut hints).await, WatchHint::Beside(Appeared));
    fs::create_dir(root.path().join("data/token2")).unwrap();
    assert_eq!(next(&mut hints).await, WatchHint::Beside(Appeared));
    fs::write(root.path().join("state"), "new").unwrap();
    assert_eq!(next(&mut hints).await, WatchHint::Beside(Written));
    fs::remove_dir(root.path().join("data-trashcan")).unwrap();
    assert_eq!(next(&mut hints).await, WatchHint::Beside(Gone));
}

#[tokio::test]
async fn our_own_ledger_and_what_etcd_touches_are_no_news() {
    let root = tempfile::tempdir().unwrap();
    let (_watch, mut hints) = start(root.path(), ".");
    fs::create_dir(root.path().join(".volhold")).unwrap();
    fs::write(root.path().join(".touch"), "").unwrap();
    fs::create_dir(root.path().join("member")).unwrap();
    until(&mut hints, WatchHint::Member(Appeared)).await;
    fs::create_dir(root.path().join("member/wal")).unwrap();
    loop {
        match next(&mut hints).await {
            WatchHint::Wal(Appeared) => break,
            hint => assert!(!matches!(hint, WatchHint::Beside(_)), "{hint:?}"),
        }
    }
}

#[tokio::test]
async fn a_link_on_the_way_is_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), root.path().join("data")).unwrap();
    let (_watch, mut hints) = start(root.path(), "data");
    fs::create_dir(elsewhere.path().join("member")).unwrap();
    fs::create_dir(root.path().join("other")).unwrap();
    assert_eq!(next(&mut hints).await, WatchHint::Beside(Appeared));
}

#[tokio::test]
async fn a_reader_that_does_not_keep_up_is_told_to_look_at_everything() {
    let root = tempfile::tempdir().unwrap();
    let (sender, mut hints) = mpsc::channel(1);
    let places = Places::of(root.path(), Path::new("data"));
    let tree = Tree::new(places.levels()).unwrap();
    let task = tokio::spawn(follow(tree, places, sender));
    fs::create_dir_all(root.path().join("data/member/wal")).unwrap();
    fs::create_dir(root.path().join("other")).unwrap();
    until(&mut hints, WatchHint::Everything).await;
    // And it goes on after that.
    fs::remove_dir_all(root.path().join("data")).unwrap();
    loop {
        if matches!(next(&mut hints).await, WatchHint::DataDir(Gone) | WatchHint::Member(Gone) | WatchHint::Everything)
        {
            break;
        }
    }
    task.abort();
}

#[tokio::test]
async fn etcds_writes_make_no_hints() {
    let root = tempfile::tempdir().unwrap();
    let wal = root.path().join("member/wal/0.wal");
    fs::create_dir_all(root.path().join("member/snap")).unwrap();
    fs::create_dir_all(wal.parent().unwrap()).unwrap();
    fs::write(root.path().join("member/snap/db"), "x").unwrap();
    let (_watch, mut hints) = start(root.path(), ".");
    for _ in 0..100 {
        fs::write(&wal, "entry").unwrap();
        fs::write(root.path().join("member/snap/db"), "page").unwrap();
    }
    fs::create_dir(root.path().join("other")).unwrap();
    assert_eq!(next(&mut hints).await, WatchHint::Beside(Appeared));
}

#[tokio::test]
async fn a_root_that_is_gone_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    fs::create_dir(&root).unwrap();
    let (_watch, mut hints) = start(&root, ".");
    fs::remove_dir(&root).unwrap();
    assert_eq!(next(&mut hints).await, WatchHint::DataDir(Gone));
}
