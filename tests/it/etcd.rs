//! The readers of what etcd leaves on disk, against dirs that real etcds of twelve versions left (`tests/fixtures/etcd`, with
//! what those etcds said about themselves in `truth.json`), against the same dirs damaged, and against a running etcd.

mod broken_bytes;
mod corpus;
mod deep;
mod flips;
mod in_use;
mod live;
mod predict;
mod tree;
mod verbs;

use crate::common::{Tmp, fixture};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use volhold::etcd::{VolumeHints, examine_volume};
use volhold::model::{DataDirReport, Defect, Severity, VolumeReading};

/// What is known of one fixture.
#[derive(serde::Deserialize)]
struct Truth {
    /// What an etcd of the version that wrote the dir did with a copy: `started`, `exited`, `running-but-not-healthy`.
    start: Option<String>,
    /// What was broken, for the damaged ones.
    damage: Option<String>,
    #[serde(default)]
    dirs: BTreeMap<String, DirTruth>,
}

/// Asked of etcd's own tools on a copy, and (`live`) of the running etcd just before it was stopped.
#[derive(serde::Deserialize)]
struct DirTruth {
    cluster_id: Option<String>,
    member_id: Option<String>,
    revision: Option<i64>,
    keys: Option<u64>,
    compact_revision: Option<i64>,
    consistent_index: Option<u64>,
    last_index: Option<u64>,
    commit: Option<u64>,
    term: Option<u64>,
    page_size: Option<u32>,
    db_size: Option<u64>,
    leases: Option<u64>,
    cluster_version: Option<String>,
    storage_version: Option<String>,
    db_members: Option<Vec<String>>,
    v2_keys_in_snapshot: Option<u64>,
    live: Option<LiveTruth>,
}

#[derive(serde::Deserialize)]
struct LiveTruth {
    cluster_id: String,
    member_id: String,
    revision: Option<i64>,
    raft_index: Option<u64>,
    keys: Option<u64>,
}

fn truths() -> BTreeMap<String, Truth> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/etcd/truth.json");
    serde_json::from_reader(File::open(path).expect("truth.json")).expect("truth.json as declared here")
}

/// A fixture, unpacked for as long as this lives.
struct Unpacked(Tmp);

impl Unpacked {
    fn new(name: &str) -> Self {
        let tmp = Tmp::new();
        fixture::etcd_tree(name, &tmp.join("volume"));
        Unpacked(tmp)
    }

    fn root(&self) -> PathBuf {
        self.0.join("volume")
    }

    fn examine(&self) -> VolumeReading {
        examine(&self.root(), &VolumeHints::default())
    }
}

fn examine(root: &Path, hints: &VolumeHints) -> VolumeReading {
    let root = File::open(root).expect("the volume's root");
    examine_volume(root.as_fd(), hints)
}

fn damage(report: &DataDirReport) -> Vec<&Defect> {
    report.defects.iter().filter(|defect| defect.severity == Severity::Damage).collect()
}

fn dir<'a>(reading: &'a VolumeReading, path: &str) -> &'a DataDirReport {
    let found = reading.data_dirs.iter().find(|report| report.path == path);
    found.unwrap_or_else(|| panic!("no data dir {path} in {:?}", paths(reading)))
}

fn paths(reading: &VolumeReading) -> Vec<&str> {
    reading.data_dirs.iter().map(|report| report.path.as_str()).collect()
}
