//! What a reading of a data dir names: every defect, and every field of the fingerprint and of a deep reading.

/// Each defect's code, and what it means.
pub const DEFECTS: &[(&str, &str)] = &[
    (
        "wal-behind-backend",
        "The log ends before what the backend has applied, or is not there. etcd 3.4 and 3.5 start, answer reads, and lose every \
         write until their index has caught up; 3.6 never serves.",
    ),
    ("wal-behind-snapshot", "Data of etcd 2: the newest snapshot is newer than the log."),
    ("wal-gap", "A file or entries are missing in the middle or at the beginning of the log."),
    ("wal-crc", "A checksum is wrong and the record is no torn write. etcd refuses."),
    (
        "wal-length",
        "A length that no etcd wrote. Versions before 3.5.6 refuse it; later ones drop all that follows, silently.",
    ),
    ("wal-record", "A record that cannot be decoded, or that has no business there."),
    ("wal-conflicting-metadata", "Files of different members or clusters lie in one log."),
    ("wal-empty", "A log file without a record, or no file with a name that etcd reads."),
    ("wal-of-other-member", "The log belongs to a member that backend and snapshot do not know."),
    ("wal-torn-tail", "The last record was torn by a power cut. etcd cuts it off; nothing acknowledged was in it."),
    ("wal-beyond-end", "Bytes lie behind the end of the log; etcd zeroes them."),
    ("backend-missing", "No backend, though log or snapshots are those of etcd 3."),
    ("backend-unreadable", "Neither meta page is valid: nothing leads into the file. etcd refuses."),
    (
        "backend-page",
        "A page is not what the tree above it promises: out of bounds, of another number or type, reached twice, with keys out of \
         order or elements that reach out of it, or the list of free pages contradicts. etcd 3.3 and later walk over all pages \
         at start and stop at most of these.",
    ),
    (
        "backend-content",
        "The page is sound, what it holds is not what etcd wrote: a key that is no revision, a value that is no record, a \
         record that contradicts its key. Where etcd does not look, it serves that.",
    ),
    ("backend-of-other-cluster", "Backend and snapshots have no member in common."),
    (
        "backend-one-meta",
        "One meta page is bad. The other counts; what the last transaction did comes from the log again.",
    ),
    (
        "snapshot-without-backend",
        "The newest snapshot is newer than the backend, and the backend that came with it is not there.",
    ),
    ("snapshot-missing", "The log begins after the newest usable snapshot."),
    ("snapshot-bad", "A snapshot file is bad; an older one or the log makes up for it."),
    ("member-is-file", "`member` is no directory."),
    ("proxy-and-member", "Both `proxy` and `member` are there: etcd refuses to choose."),
    ("unreadable", "Something could not be looked at. What is there is not known."),
    ("changed-while-read", "The dir changed faster than it could be read."),
    ("leftover", "A file that an interrupted operation left, or that etcd ignores."),
];

/// Each field of a fingerprint, and of what `verify --deep` adds.
pub const FIELDS: &[(&str, &str)] = &[
    (
        "cluster_id",
        "From the log's metadata. Two restores with the same token and URLs have the same one: it proves no common history.",
    ),
    ("member_id", "From the log's metadata."),
    ("name", "As the membership has it."),
    ("peer_urls", "Of this member."),
    ("members", "From the backend, up to 3.5 from the v2 store where that is newer. `learner`: it does not vote."),
    ("removed_members", "Ids that can never come back."),
    (
        "raft",
        "`term`; `commit` of the last hard state, which may lag; `first_index` and `last_index` of the log; `snapshot_index`, the newest that the log mentions.",
    ),
    ("consistent_index", "The last entry that the backend has applied."),
    ("revision", "Newest revision of the backend file. A member that was killed gets more of it out of the log."),
    ("compact_revision", "Up to here old versions are gone; -1 where nothing was ever compacted."),
    ("keys", "Keys that live. `keys_capped`: at least so many; a deep reading counts all."),
    ("leases", "Leases in the backend."),
    ("alarms", "NOSPACE or CORRUPT: the cluster takes no writes, or trusts a member no more."),
    ("auth_enabled", "Users and roles are asked for."),
    (
        "hashkv",
        "What the member itself answers to `etcdctl endpoint hashkv`. Comparable between members of any version from 3.3 on, where `revision` and `compact_revision` are the same.",
    ),
    ("storage_version", "Since 3.6. Absent in a young one, and while a downgrade is enabled."),
    ("cluster_version", "The version that all members have at least."),
    ("downgrade", "Target of a downgrade that is enabled."),
    (
        "backend",
        "`page_size`; `size`, which etcd calls dbSize and which is not the file's length; `size_in_use` (deep), at most what etcd says; `txid`.",
    ),
    ("v2", "Keys of the v2 API."),
    (
        "unapplied",
        "Entries of the log beyond `consistent_index`: applied at the next start. `kinds` counts what they ask for: `put`, \
         `delete-range`, `txn`, `compaction`, `lease`, `membership`, `auth` and so on.",
    ),
    (
        "log_version",
        "Of a deep reading: the least version of etcd that understands every entry of the log behind the newest snapshot. \
         etcd 3.6 does not take its storage below that at a downgrade.",
    ),
    (
        "v2_request",
        "Index of the last entry behind the newest snapshot that is a request of the v2 API: etcd 3.6 does not start on it.",
    ),
    ("promoted", "Members that the backend calls learners and the v2 store voters: etcd 3.5.1 to 3.5.19 left them so."),
    (
        "place",
        "Where it lies: filesystem, volume, inode, birth; `owners` of its files; what is `free` on the filesystem.",
    ),
    ("deep.pages", "Pages by kind. `free`: no tree reaches them."),
    (
        "deep.records",
        "Records of bucket `key`, old versions and `tombstones` (deletions) included, with `record_bytes`.",
    ),
    ("deep.compaction", "`interrupted`: one was begun and not finished; the next etcd goes on with it."),
    ("deep.hashkv_before_3_4_34", "Given where etcd before 3.4.34 and 3.5.16 answers another hash than later ones."),
    (
        "deep.status",
        "What `etcdctl snapshot status` prints: `hash`; `total_records` is totalKey up to 3.5, `total_key` that of 3.6.",
    ),
    (
        "deep.prefixes",
        "Where the keys are: the first two parts of their paths, those with the most bytes first; `keys` live, `bytes` with old versions. About right only while a compaction is interrupted.",
    ),
    ("deep.unknown_leases", "Leases that keys name and that do not exist: those keys never expire."),
    (
        "deep.faults",
        "Pages that are wrong, each with what was expected; at most 100 are listed, `fault_count` has all.",
    ),
    ("deep.contents", "Records that are not etcd's, likewise."),
    ("deep.bytes_read", "What it cost."),
    (
        "prediction",
        "`starts`: yes, no, unhealthy (the process runs and never serves), unknown. `loses`: it would start, and acknowledged writes would be gone or later ones hang. `rules`: what led there, with the file of etcd's source that does it.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BackendDeep, Fingerprint};

    #[test]
    fn every_defect_has_a_text_and_no_other() {
        let told: Vec<&str> = DEFECTS.iter().map(|(code, _)| *code).collect();
        assert_eq!(told, crate::etcd::defect_codes());
    }

    #[test]
    fn every_field_has_a_text() {
        let told =
            |name: &str| FIELDS.iter().any(|(field, text)| *field == name || text.contains(&format!("`{name}`")));
        let keys = |value: serde_json::Value| match value {
            serde_json::Value::Object(map) => map.into_iter().map(|(key, _)| key).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        for field in keys(serde_json::to_value(Fingerprint::default()).unwrap_or_default()) {
            assert!(told(&field), "{field}");
        }
        // Those two stand under the same name in the fingerprint, this one is the count of a list.
        for field in keys(serde_json::to_value(BackendDeep::default()).unwrap_or_default()) {
            assert!(told(&format!("deep.{field}")) || told(&field) || field == "content_count", "{field}");
        }
    }
}
