//! The deep reading of every backend of the corpus, against what etcd and its own tools made of it (`deep.json`).

use super::*;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use volhold::etcd::schema::BackendError;
use volhold::etcd::{DeepQuestion, data_dir_facts, read_deep};
use volhold::model::BackendDeep;

#[derive(serde::Deserialize)]
struct DeepTruth {
    #[serde(default)]
    dirs: BTreeMap<String, ToolTruth>,
}

/// What tools said about the backend of one dir. `hashkv`: revision, compact revision, hash.
#[derive(serde::Deserialize)]
struct ToolTruth {
    records: Option<u64>,
    tombstones: Option<u64>,
    keys: Option<u64>,
    free_pages: Option<u64>,
    branch: Option<u64>,
    overflow: Option<u64>,
    scheduled: Option<i64>,
    finished: Option<i64>,
    hashkv: Option<(i64, i64, u32)>,
    live_hashkv: Option<(i64, i64, u32)>,
    /// By version of the tool: hash, revision, totalKey, totalSize.
    #[serde(default)]
    status: BTreeMap<String, (u32, i64, u64, u64)>,
    bbolt_check: Option<bool>,
    /// What etcd 3.6's own rule gives for the log.
    wal_min_version: Option<String>,
}

fn deep_truths() -> BTreeMap<String, DeepTruth> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/etcd/deep.json");
    serde_json::from_reader(File::open(path).expect("deep.json")).expect("deep.json as declared here")
}

fn deep(db: &Path) -> Result<BackendDeep, BackendError> {
    let file = File::open(db).expect("a backend");
    read_deep(&file, DeepQuestion { revision: None, compact: None, until: None, progress: &mut |_, _| {} })
        .map(|(_, deep)| deep)
}

#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn equal<T: PartialEq + std::fmt::Debug>(&mut self, place: &str, what: &str, found: T, truth: Option<T>) {
        if let Some(truth) = truth
            && found != truth
        {
            self.0.push(format!("{place}: {what} is {found:?}, the truth is {truth:?}"));
        }
    }
}

#[test]
fn every_backend_gives_the_numbers_and_hashes_that_etcd_and_its_tools_gave() {
    let mut wrong = Wrong::default();
    let (mut hashes, mut statuses, mut checks) = (0, 0, 0);
    let mut logs = BTreeMap::new();
    for (case, truth) in deep_truths() {
        if truth.dirs.is_empty() {
            continue;
        }
        let unpacked = Unpacked::new(&case);
        for (path, truth) in &truth.dirs {
            let db = unpacked.root().join(path).join("member/snap/db");
            // No bytes at all: bbolt makes a db of it.
            if !db.is_file() || db.metadata().is_ok_and(|facts| facts.len() == 0) {
                continue;
            }
            let place = format!("{case} {path}");
            if let Some(version) = &truth.wal_min_version {
                let dir = File::open(unpacked.root().join(path)).expect("a data dir");
                let facts = data_dir_facts(dir.as_fd(), &mut |_, _| {});
                *logs.entry(version.clone()).or_insert(0) += 1;
                wrong.equal(&place, "version of the log", facts.log_version(), Some(Some(version.clone())));
            }
            let deep = match deep(&db) {
                Ok(deep) => deep,
                Err(error) => {
                    if truth.bbolt_check == Some(true) {
                        wrong.0.push(format!("{place}: {error}, and bbolt says it is sound"));
                    }
                    continue;
                }
            };
            checks += 1;
            compare(&mut wrong, &place, &deep, truth);
            hashes += usize::from(truth.hashkv.is_some());
            statuses += truth.status.len();
        }
    }
    assert!(wrong.0.is_empty(), "{} of them:\n{}", wrong.0.len(), wrong.0.join("\n"));
    let least = [("3.0.0", 100), ("3.1.0", 2), ("3.5.0", 150)].map(|(version, count)| (version.to_owned(), count));
    assert!(least.iter().all(|(version, count)| logs.get(version) >= Some(count)), "{logs:?}");
    assert!(checks > 320 && hashes > 250 && statuses > 300, "{checks} backends, {hashes} hashes, {statuses} statuses");
}

fn compare(wrong: &mut Wrong, place: &str, deep: &BackendDeep, truth: &ToolTruth) {
    if truth.bbolt_check == Some(false) && deep.fault_count == 0 {
        wrong.0.push(format!("{place}: bbolt found something, and this did not"));
    }
    let sound = deep.fault_count == 0;
    if truth.bbolt_check == Some(true) && !sound && !place.contains("dmg-") {
        wrong.0.push(format!("{place}: bbolt found nothing, and this did: {:?}", deep.faults.first()));
    }
    if !sound {
        return;
    }
    wrong.equal(place, "records", deep.records, truth.records);
    wrong.equal(place, "tombstones", deep.tombstones, truth.tombstones);
    // Where a freelist is kept, the oracle took its own page for free in some cases and not in others.
    let both = [deep.pages.free, deep.pages.free + deep.pages.freelist];
    let found = truth.free_pages.filter(|pages| both.contains(pages)).unwrap_or(deep.pages.free);
    wrong.equal(place, "free pages", found, truth.free_pages);
    wrong.equal(place, "branch pages", deep.pages.branch, truth.branch);
    wrong.equal(place, "overflow pages", deep.pages.overflow, truth.overflow);
    wrong.equal(place, "scheduled", deep.compaction.scheduled, truth.scheduled.map(Some));
    wrong.equal(place, "finished", deep.compaction.finished, truth.finished.map(Some));
    wrong.equal(place, "keys", deep.keys, truth.keys.map(Some));
    let found = deep.hashkv.map(|h| (h.revision, h.compact_revision, h.hash));
    wrong.equal(place, "hashkv", found, truth.hashkv.map(Some));
    wrong.equal(place, "hashkv of the live member", found, truth.live_hashkv.map(Some));
    for (version, (hash, revision, keys, size)) in &truth.status {
        let new = version.starts_with("3.6") || version.starts_with("3.7");
        let found = deep
            .status
            .map(|s| (s.hash, s.revision, if new { s.total_key } else { Some(s.total_records) }, s.total_size));
        wrong.equal(place, &format!("status of {version}"), found, Some(Some((*hash, *revision, Some(*keys), *size))));
    }
}
