//! What etcd leaves on a disk, recognised without a filesystem around it: meta pages of a bolt file and heads of WAL segments.
//! The formats themselves are the business of the `etcd` room; here is only the quick look before its parsers are asked.

use super::bytes::{array, slice};
use crate::etcd::bolt::{self, MetaDefect, PAGE_HEADER};
use crate::etcd::wal::looks_like_segment;
use crate::model::{ClusterId, Finding, FindingKind, MemberId, Validated};

/// A meta page of a bolt file at the front of `data`.
pub(crate) fn bolt_meta(data: &[u8], position: u64) -> Option<Finding> {
    if array(data, PAGE_HEADER)? != bolt::MAGIC.to_le_bytes() {
        return None;
    }
    let header = bolt::parse_page_header(data)?;
    let is_meta_page = header.id < 2 && header.flags == bolt::flags::META;
    let (validated, detail) = match bolt::parse_meta(data) {
        Ok(meta) => {
            let detail =
                format!("meta page of a bolt file, pages of {} bytes, transaction {}", meta.page_size, meta.txid);
            (Validated::Checksum, detail)
        }
        // The page header and the version before the checksum are right: a meta page that was cut or damaged.
        Err(defect @ (MetaDefect::Checksum { .. } | MetaDefect::PageSize { .. })) if is_meta_page => {
            (Validated::Structure, format!("meta page of a bolt file, damaged: {defect}"))
        }
        Err(
            defect @ (MetaDefect::Short { .. }
            | MetaDefect::Magic { .. }
            | MetaDefect::Version { .. }
            | MetaDefect::Checksum { .. }
            | MetaDefect::PageSize { .. }),
        ) => (Validated::Magic, format!("the magic of a bolt file stands here, but {defect}")),
    };
    Some(Finding { kind: FindingKind::BoltMeta, offset: position, validated, uuid: None, detail: Some(detail) })
}

/// The record that every WAL segment begins with, behind its length of eight bytes: type 4 (a checksum), then that checksum.
const WAL_HEAD: [u8; 3] = [0x08, 0x04, 0x10];

/// The head of a segment of etcd's write-ahead log at the front of `data`.
pub(crate) fn wal_head(data: &[u8], position: u64) -> Option<Finding> {
    // Length of a record of at most 16 bytes; its top byte holds the padding.
    let [first, middle @ .., _padding] = array::<8>(data, 0)?;
    if slice(data, 8, 3)? != WAL_HEAD || middle != [0; 6] || !(4..=16).contains(&first) {
        return None;
    }
    let (validated, detail) = match looks_like_segment(data) {
        Some(head) => {
            let (cluster, member) = (ClusterId(head.cluster_id), MemberId(head.node_id));
            (Validated::Checksum, format!("segment of etcd's log, cluster {cluster}, member {member}"))
        }
        None => (Validated::Magic, String::from("begins like a segment of etcd's log, and does not go on like one")),
    };
    Some(Finding { kind: FindingKind::EtcdWal, offset: position, validated, uuid: None, detail: Some(detail) })
}
