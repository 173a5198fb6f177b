//! `verify --deep`, `--for-version`, `compare`, `state show` and `inspect` of single files, as a person calls them.

use super::*;
use crate::common::{Answer, Node};
use serde_json::Value;

pub(super) fn ask(args: &[&str]) -> (Option<i32>, Value) {
    let mut all = args.to_vec();
    all.extend(["-o", "json"]);
    let Answer { code, stdout, stderr, .. } = Node::new().volhold(&all);
    let document = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{all:?}: no JSON: {stdout} {stderr}"));
    (code, document)
}

fn path(unpacked: &Unpacked, below: &str) -> String {
    unpacked.root().join(below).display().to_string()
}

#[test]
fn verify_deep_gives_the_hash_of_the_live_member_and_ends_well() {
    let unpacked = Unpacked::new("v3.5.30-basic");
    let (code, it) = ask(&["verify", &path(&unpacked, "data"), "--deep"]);
    assert_eq!((code, it["depth"].as_str()), (Some(0), Some("deep")), "{it}");
    let hash = &it["fingerprint"]["hashkv"];
    assert_eq!((hash["revision"].as_i64(), hash["compact_revision"].as_i64()), (Some(70), Some(54)));
    assert_eq!(hash["hash"].as_u64(), Some(3_497_019_643));
    assert_eq!(it["fingerprint"]["keys"].as_u64(), Some(44));
    assert_eq!(it["prediction"]["starts"].as_str(), Some("yes"));
    let (_, quick) = ask(&["verify", &path(&unpacked, "data")]);
    assert!(quick["fingerprint"].get("hashkv").is_none() && quick.get("deep").is_none(), "{quick}");
}

#[test]
fn verify_for_a_version_ends_with_0_only_where_that_etcd_starts_and_loses_nothing() {
    let sound = Unpacked::new("v3.5.30-basic");
    for (version, code, starts) in [("3.6.12", 0, "yes"), ("3.4.23", 4, "no"), ("v3.5", 0, "yes")] {
        let (ended, it) = ask(&["verify", &path(&sound, "data"), "--for-version", version]);
        assert_eq!((ended, it["prediction"]["starts"].as_str()), (Some(code), Some(starts)), "{version}: {it}");
    }
    let (_, it) = ask(&["verify", &path(&sound, "data"), "--for-version", "3.4.23"]);
    assert_eq!(it["prediction"]["because"][0].as_str(), Some("version-downgrade"));
    assert!(it["prediction"]["rules"][0]["source"].as_str().is_some_and(|source| source.starts_with("etcd v")));
    // It starts, and serves what somebody wrote into the file.
    let flipped = Unpacked::new("dmg-db-leaf-sep-flip-3.5.30");
    let (code, it) = ask(&["verify", &path(&flipped, "data"), "--for-version", "3.5.30"]);
    assert_eq!((code, it["prediction"]["loses"].as_bool()), (Some(4), Some(true)), "{it}");
    let usage = Node::new().volhold(&["verify", &path(&sound, "data"), "--for-version", "new"]);
    assert_eq!(usage.code, Some(2), "{}", usage.stderr);
}

#[test]
fn compare_tells_one_history_from_another_and_who_is_ahead() {
    let cluster = Unpacked::new("v3.5.30-3member");
    let dirs: Vec<String> = ["m1", "m2", "m3"].iter().map(|name| path(&cluster, name)).collect();
    let (code, it) = ask(&["compare", &dirs[0], &dirs[1], &dirs[2]]);
    let same = (it["same_cluster"].as_bool(), it["same_history"].as_bool());
    assert_eq!((code, same), (Some(0), (Some(true), Some(true))), "{it}");
    let other = Unpacked::new("v3.4.23-basic");
    let (code, it) = ask(&["compare", &dirs[0], &path(&other, "data")]);
    assert_eq!((code, it["same_cluster"].as_bool()), (Some(4), Some(false)), "{it}");
    assert_eq!(it["ahead"], Value::Null, "nobody is ahead of another cluster");
    // One byte of one value: the same ids, another history.
    let (sound, flipped) = (Unpacked::new("v3.5.30-basic"), Unpacked::new("dmg-db-leaf-userval-flip-3.5.30"));
    let (code, it) = ask(&["compare", &path(&sound, "data"), &path(&flipped, "data")]);
    let same = (it["same_cluster"].as_bool(), it["same_history"].as_bool());
    assert_eq!((code, same), (Some(4), (Some(true), Some(false))), "{it}");
    let first = &it["first_difference"];
    let records = [&first["records"][0], &first["records"][1]];
    assert!(first["revision"].as_i64().is_some_and(|revision| revision <= 70), "{it}");
    assert!(first["key"].as_str().is_some_and(|key| key.starts_with("/registry/")), "{it}");
    assert!(records.iter().all(|record| record["key"] == first["key"]), "{it}");
    assert_ne!(records[0]["sum"], records[1]["sum"], "{it}");
    assert_eq!(Node::new().volhold(&["compare", &dirs[0]]).code, Some(2));
}

#[test]
fn state_show_reads_what_etcd_manager_wrote_and_refuses_the_rest() {
    let kops = Unpacked::new("kops-volume");
    let (code, it) = ask(&["state", "show", &path(&kops, "state")]);
    assert_eq!((code, it["kind"].as_str()), (Some(0), Some("EtcdManagerState")));
    assert!(it["cluster_token"].as_str().is_some_and(|token| !token.is_empty()), "{it}");
    assert!(it["nodes"][0]["peer_urls"][0].as_str().is_some(), "{it}");
    let garbage = Unpacked::new("kops-state-garbage");
    assert_eq!(Node::new().volhold(&["state", "show", &path(&garbage, "state")]).code, Some(4));
    assert_eq!(Node::new().volhold(&["state", "show", "/nonexistent"]).code, Some(5));
}

#[test]
fn inspect_says_of_a_file_of_etcd_what_it_is() {
    let dir = Unpacked::new("v3.5.30-basic");
    let (code, it) = ask(&["inspect", &path(&dir, "data/member/snap/db")]);
    assert_eq!((code, it["file"].as_str(), it["sound"].as_bool()), (Some(0), Some("backend"), Some(true)), "{it}");
    assert_eq!(it["backend"]["deep"]["status"]["hash"].as_u64(), Some(2_465_996_620));
    let log = path(&dir, "data/member/wal/0000000000000000-0000000000000000.wal");
    let (code, it) = ask(&["inspect", &log]);
    assert_eq!((code, it["file"].as_str(), it["log"]["last"][0].as_u64()), (Some(0), Some("wal"), Some(79)), "{it}");
    let (code, it) = ask(&["inspect", &path(&dir, "data/member/snap/0000000000000002-000000000000004d.snap")]);
    assert_eq!((code, it["file"].as_str(), it["index"].as_u64()), (Some(0), Some("snap"), Some(77)), "{it}");
    let saved = Unpacked::new("v3.5.30-snapshotfile");
    let file = saved.root().join("snapshot.db");
    let (code, it) = ask(&["inspect", &file.display().to_string()]);
    assert_eq!((code, it["sha256"].as_bool()), (Some(0), Some(true)), "{it}");
    assert_eq!(it["backend"]["deep"]["status"]["hash"].as_u64(), Some(839_035_260));
    // One bit of a value: the trees are sound, the checksum is not.
    let mut bytes = std::fs::read(&file).expect("the snapshot");
    let end = bytes.len();
    bytes[end - 1] ^= 1;
    std::fs::write(&file, bytes).expect("the snapshot, broken");
    let (code, it) = ask(&["inspect", &file.display().to_string()]);
    assert_eq!((code, it["sha256"].as_bool()), (Some(4), Some(false)), "{it}");
}
