//! `verify --deep`, `inspect` and `compare` beside a real etcd that has its backend locked and writes to it.

use super::verbs::ask;
use super::*;
use crate::common::etcd::{Etcd, Member};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use volhold::etcd::lock_holder;
use volhold::model::Observed;

/// What the live member answers: (hash, compact revision). Debian's 3.4.23 is older than 3.4.34: it keeps a deletion at exactly
/// the compaction.
fn hash_of(etcd: &Etcd, revision: i64) -> (u64, i64) {
    let revision = format!("--rev={revision}");
    let said = etcd.ctl(&["endpoint", "hashkv", &revision, "-w", "json"]);
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("no JSON: {said}"));
    let hash = &said[0]["HashKV"];
    (hash["hash"].as_u64().expect("a hash"), hash["compact_revision"].as_i64().unwrap_or(-1))
}

/// The hash that was read, as the old version computes it: (revision, hash, compact revision).
fn read_hash(deep: &Value) -> Option<(i64, u64, i64)> {
    let read = &deep["hashkv"];
    let hash = deep["hashkv_before_3_4_34"].as_u64().or(read["hash"].as_u64())?;
    Some((read["revision"].as_i64()?, hash, read["compact_revision"].as_i64()?))
}

/// Each reading gives what etcd gives for that revision, or says that it is unstable; never damage.
fn check(etcd: &Etcd, deep: &Value, message: &str, whole: &Value) -> bool {
    match read_hash(deep) {
        Some((revision, hash, compact)) => {
            assert_eq!((hash, compact), hash_of(etcd, revision), "at revision {revision}: {whole}");
            true
        }
        None => {
            assert!(message.contains("unstable"), "neither a hash nor unstable: {whole}");
            false
        }
    }
}

#[test]
fn what_is_read_beside_a_writing_etcd_is_what_that_etcd_says_or_is_called_unstable() {
    let tmp = Tmp::new();
    let data_dir = tmp.join("etcd");
    let mut member = Member::new("in-use", &data_dir);
    // Snapshots and files of the log come and go under the reader's eyes.
    member.more = ["--snapshot-count", "200"].map(String::from).to_vec();
    let etcd = member.start();
    let handle = File::open(&data_dir).expect("the data dir");
    let dir = data_dir.display().to_string();
    let db = data_dir.join("member/snap/db").display().to_string();

    let (tell, told) = channel();
    let (go_on, wanted) = channel::<()>();
    let pause = Arc::new(AtomicBool::new(false));
    let seen = pause.clone();
    let writer = etcd.load_counted("/load/", 1_000_000, move |_| {
        if seen.load(Ordering::Relaxed) {
            tell.send(()).ok();
            // Nobody wants any more: writes on until etcd is gone.
            wanted.recv().ok();
        }
    });
    let mut given = 0;
    for round in 0..4 {
        let (code, it) = ask(&["verify", &dir, "--deep"]);
        let message = it["prediction"]["message"].as_str().unwrap_or_default();
        let stable = check(&etcd, &it["deep"], message, &it);
        let defects = it["defects"].as_array().map_or(&[][..], Vec::as_slice);
        // The quick look of the same command may have met a dir that never stood still, and says that.
        let moved = defects.iter().any(|defect| defect["code"] == "changed-while-read");
        let bad: Vec<&Value> = defects.iter().filter(|d| d["severity"] == "damage").collect();
        assert!(bad.iter().all(|defect| defect["code"] == "changed-while-read"), "round {round}: {it}");
        assert_eq!(code, Some(if stable && !moved { 0 } else { 4 }), "round {round}: {it}");
        let (code, it) = ask(&["inspect", &db]);
        let unstable = if it["backend"]["unstable"] == true { "unstable" } else { "" };
        let stable = check(&etcd, &it["backend"]["deep"], unstable, &it);
        assert_eq!(code, Some(if stable { 0 } else { 4 }), "round {round}: {it}");
        given += u32::from(stable);
        assert_eq!(lock_holder(handle.as_fd()), Observed::Seen(Some(etcd.pid())), "round {round}");
    }
    println!("{given} of 4 readings of the file came to an end while etcd wrote");

    // Paused: all is given, and it is the newest. Deletions and a compaction in between.
    pause.store(true, Ordering::Relaxed);
    told.recv_timeout(Duration::from_secs(60)).expect("the writer pauses");
    for key in ["/load/00000003", "/load/00000007"] {
        etcd.ctl(&["del", key]);
    }
    let newest = revision(&etcd);
    etcd.ctl(&["compact", &newest.to_string(), "--physical"]);
    etcd.put("/after", "compaction");
    let (newest, until) = (revision(&etcd), Instant::now() + Duration::from_secs(60));
    let it = loop {
        // Within etcd's batch of 100 ms it is in memory alone.
        let (code, it) = ask(&["verify", &dir, "--deep"]);
        if it["deep"]["revision"].as_i64() == Some(newest) && it["deep"]["compaction"]["interrupted"] == false {
            assert_eq!((code, it["prediction"]["starts"].as_str()), (Some(0), Some("yes")), "{it}");
            break it;
        }
        assert!(Instant::now() < until, "revision {newest} was never read: {it}");
    };
    assert!(check(&etcd, &it["deep"], "", &it), "{it}");
    let (read, _, compact) = read_hash(&it["deep"]).expect("a hash");
    assert_eq!((read, compact), (newest, newest - 1), "{it}");
    let (code, it) = ask(&["inspect", &db]);
    assert!(code == Some(0) && check(&etcd, &it["backend"]["deep"], "", &it), "{it}");
    let (code, it) = ask(&["compare", &dir, &dir]);
    assert_eq!((code, it["compared_at"].as_i64()), (Some(0), Some(newest)), "{it}");
    assert_eq!(lock_holder(handle.as_fd()), Observed::Seen(Some(etcd.pid())));
    etcd.stop();
    drop(go_on);
    writer.join().expect("the writer");
}

fn revision(etcd: &Etcd) -> i64 {
    let said: Value = serde_json::from_str(&etcd.ctl(&["endpoint", "status", "-w", "json"])).expect("JSON");
    said[0]["Status"]["header"]["revision"].as_i64().expect("a revision")
}
