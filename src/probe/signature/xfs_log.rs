//! What XFS writes besides the headers in `probe/xfs.rs`: the free list of a group, and records of the log.
//!
//! Big endian but the checksums (kernel 6.1 fs/xfs/libxfs/xfs_format.h `struct xfs_agfl`, xfs_log_format.h
//! `struct xlog_rec_header`):
//!
//! ```text
//! AGFL (version 5 only): 0 "XAFL"  4 group  8 uuid[16]  32 CRC-32C of the sector
//! log record: 0 FE ED BA BE  4 cycle  8 version  12 length  16 own place (cycle, block)  300 format  304 uuid[16]
//! ```

use super::piece::{Piece, uuid_at};
use crate::model::{Finding, FindingKind, Validated};
use crate::probe::bytes::{array, be32, crc32c_without, le32, slice};

/// A record is gathered in one buffer, of this size at most (`XLOG_MAX_RECORD_BSIZE`).
const LONGEST_RECORD: u32 = 256 << 10;

pub(super) fn free_list(piece: &Piece<'_>) -> Option<Finding> {
    let data = piece.data;
    if array(data, 0)? != *b"XAFL" {
        return None;
    }
    let stored = le32(data, 32)?;
    let right = [512, 4096, 1024, 2048]
        .into_iter()
        .any(|sector| slice(data, 0, sector).and_then(|covered| crc32c_without(covered, 32)) == Some(stored));
    let validated = if right { Validated::Checksum } else { Validated::Magic };
    let finding = piece.found(FindingKind::XfsAgHeader, validated, format!("AGFL of group {}", be32(data, 4)?));
    Some(Finding { uuid: if right { uuid_at(data, 8) } else { None }, ..finding })
}

pub(super) fn log_record(piece: &Piece<'_>) -> Option<Finding> {
    let data = piece.data;
    if array(data, 0)? != [0xFE, 0xED, 0xBA, 0xBE] {
        return None;
    }
    let (cycle, version, len) = (be32(data, 4)?, be32(data, 8)?, be32(data, 12)?);
    let agree = cycle > 0
        && be32(data, 16)? == cycle
        && (1..=2).contains(&version)
        && len <= LONGEST_RECORD
        && (1..=3).contains(&be32(data, 300)?);
    let validated = if agree { Validated::Structure } else { Validated::Magic };
    let finding = piece.found(FindingKind::XfsLog, validated, format!("a record of cycle {cycle}"));
    Some(Finding { uuid: if agree { uuid_at(data, 304) } else { None }, ..finding })
}
