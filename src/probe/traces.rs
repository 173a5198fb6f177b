//! What etcd leaves on a disk, recognised without a filesystem around it: pages of a bolt file and the head of a WAL segment.

use super::bytes::{array, le16, le32, le64, slice};
use crate::model::Validated;

/// bbolt's magic at byte 16 of a meta page (go.etcd.io/bbolt internal/common/types.go), little endian.
pub(crate) const BOLT_MAGIC: [u8; 4] = 0xED0C_DAED_u32.to_le_bytes();
pub(crate) const BOLT_MAGIC_AT: usize = 16;

/// A meta page of a bolt file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BoltMeta {
    pub page_size: u32,
    pub txid: u64,
    pub validated: Validated,
}

/// Reads a meta page at the front of `data`. Page header: 0 id, 8 flags (4 is a meta page), 10 count, 12 overflow; meta: 16
/// magic, 20 version 2, 24 page size, 28 flags, 32 root, 40 sequence, 48 freelist, 56 pages, 64 txid, 72 FNV-1a of 16..72.
pub(crate) fn parse_bolt_meta(data: &[u8]) -> Option<BoltMeta> {
    if array(data, BOLT_MAGIC_AT)? != BOLT_MAGIC {
        return None;
    }
    let page_size = le32(data, 24)?;
    let agree = le32(data, 20)? == 2
        && le64(data, 0)? < 2
        && le16(data, 8)? == 4
        && page_size.is_power_of_two()
        && (512..=1 << 20).contains(&page_size);
    let checksum_right = le64(data, 72)? == fnv1a(slice(data, 16, 56)?);
    let validated = match (agree, checksum_right) {
        (true, true) | (false, true) => Validated::Checksum,
        (true, false) => Validated::Structure,
        (false, false) => Validated::Magic,
    };
    Some(BoltMeta { page_size, txid: le64(data, 64)?, validated })
}

fn fnv1a(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Record types of etcd's walpb: metadata, and the CRC of what came before.
const WAL_METADATA: u64 = 1;
const WAL_CRC: u64 = 4;

/// The head of a WAL segment: a CRC record, then the metadata record, whose checksum goes on from that CRC
/// (etcd 3.5 server/storage/wal/encoder.go and decoder.go).
pub(crate) fn parse_wal_head(data: &[u8]) -> Option<Validated> {
    let (first, next) = wal_frame(data)?;
    let first = wal_record(first)?;
    if first.kind != WAL_CRC || first.data.is_some() {
        return None;
    }
    let Some(second) = data.get(next..).and_then(wal_frame).and_then(|(record, _)| wal_record(record)) else {
        return Some(Validated::Magic);
    };
    match second.data {
        Some(metadata) if second.kind == WAL_METADATA => {
            let right = crc32c::crc32c_append(first.crc, metadata) == second.crc;
            Some(if right { Validated::Checksum } else { Validated::Structure })
        }
        Some(_) | None => Some(Validated::Magic),
    }
}

/// A frame: eight bytes of length, whose top byte holds 0x80 and the padding to a multiple of eight; the record; padding.
fn wal_frame(data: &[u8]) -> Option<(&[u8], usize)> {
    let field = le64(data, 0)?;
    let len = usize::try_from(field & ((1 << 56) - 1)).ok()?;
    let padding = usize::try_from(field >> 56).ok()?;
    let expected = len.checked_next_multiple_of(8)?.checked_sub(len)?;
    let padding_right = if expected == 0 { padding == 0 } else { padding == 0x80 | expected };
    if len == 0 || !padding_right {
        return None;
    }
    let next = 8_usize.checked_add(len)?.checked_add(expected)?;
    Some((slice(data, 8, len)?, next))
}

struct WalRecord<'d> {
    kind: u64,
    crc: u32,
    data: Option<&'d [u8]>,
}

/// The protobuf message `walpb.Record`: 1 type (varint), 2 crc (varint), 3 data (bytes), in this order.
fn wal_record(mut message: &[u8]) -> Option<WalRecord<'_>> {
    let kind = field(&mut message, 0x08)?;
    let crc = u32::try_from(field(&mut message, 0x10)?).ok()?;
    if message.is_empty() {
        return Some(WalRecord { kind, crc, data: None });
    }
    let len = usize::try_from(field(&mut message, 0x1a)?).ok()?;
    (message.len() == len).then_some(WalRecord { kind, crc, data: Some(message) })
}

/// A tag of one byte, then a varint; both are taken off the front.
fn field(message: &mut &[u8], tag: u8) -> Option<u64> {
    let (first, mut rest) = message.split_first()?;
    if *first != tag {
        return None;
    }
    let mut value = 0_u64;
    for shift in (0..63).step_by(7) {
        let (byte, left) = rest.split_first()?;
        rest = left;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            *message = rest;
            return Some(value);
        }
    }
    None
}
