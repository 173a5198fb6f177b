//! A data dir in words, the same everywhere: path, generation, cluster, keys, revision.

use super::keys::Keys;
use super::words::counted;
use crate::model::{DataDirReport, EtcdGeneration, HighWater};
use serde_json::{Value, json};

/// "`data/x` (etcd 3, cluster 1f, 12 live keys, revision 40)".
pub fn dir(report: &DataDirReport) -> String {
    let mut parts = Vec::new();
    match report.etcd {
        EtcdGeneration::V2 => parts.push("etcd 2".to_owned()),
        EtcdGeneration::V3 => parts.push("etcd 3".to_owned()),
        EtcdGeneration::Empty => parts.push("an empty data dir".to_owned()),
        EtcdGeneration::None => parts.push("no data dir".to_owned()),
    }
    if let Some(fingerprint) = &report.fingerprint {
        if let Some(cluster) = fingerprint.cluster_id {
            parts.push(format!("cluster {cluster}"));
        }
        parts.push(Keys::of(report).in_words());
        if let Some(revision) = fingerprint.revision {
            parts.push(format!("revision {revision}"));
        }
    }
    format!("`{}` ({})", report.path, parts.join(", "))
}

/// What a record noted: "`data/x` with 12 live keys at revision 40".
pub fn mark(mark: &HighWater) -> String {
    let HighWater {
        data_dir,
        cluster_id,
        member_id: _,
        term: _,
        consistent_index: _,
        revision,
        wal_last_index: _,
        keys,
    } = mark;
    let mut text = format!("`{data_dir}`");
    if let Some(cluster) = cluster_id {
        text.push_str(&format!(" of cluster {cluster}"));
    }
    if let Some(keys) = keys {
        text.push_str(&format!(" with {}", counted(*keys, "live key")));
    }
    if let Some(revision) = revision {
        text.push_str(&format!(" at revision {revision}"));
    }
    text
}

/// The same for a script.
pub fn as_detail(report: &DataDirReport) -> Value {
    let fingerprint = report.fingerprint.as_ref();
    json!({
        "path": report.path,
        "role": report.role,
        "etcd": report.etcd,
        "populated": report.populated,
        "cluster_id": fingerprint.and_then(|it| it.cluster_id),
        "member_id": fingerprint.and_then(|it| it.member_id),
        "keys": Keys::of(report).all(),
        "keys_capped": fingerprint.is_some_and(|it| it.keys_capped),
        "revision": fingerprint.and_then(|it| it.revision),
    })
}
