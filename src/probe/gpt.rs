//! The header of a GUID partition table, which stands in the second and in the last sector of a disk.
//!
//! Little endian (UEFI 2.10, table 5.5): 0 "EFI PART", 8 revision, 12 header size, 16 CRC-32 of the header with this field as
//! zero, 24 my LBA, 32 alternate LBA, 56 disk GUID (first three parts little endian), 80 number of entries.

use super::bytes::{array, crc32, le32, le64, slice};
use crate::model::Validated;

pub(crate) const MAGIC: [u8; 8] = *b"EFI PART";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GptHeader {
    /// It is the one in the last sector.
    pub backup: bool,
    pub disk: uuid::Uuid,
    pub entries: u32,
    pub validated: Validated,
}

/// Reads a header at the front of `data`, which was found at `offset`.
pub(crate) fn parse(data: &[u8], offset: u64) -> Option<GptHeader> {
    if array(data, 0)? != MAGIC {
        return None;
    }
    let header_len = usize::try_from(le32(data, 12)?).ok()?;
    let (my_lba, other_lba) = (le64(data, 24)?, le64(data, 32)?);
    let in_place = [512_u64, 4096].into_iter().any(|sector| my_lba.checked_mul(sector) == Some(offset));
    let checksum_right = (92..=4096).contains(&header_len)
        && slice(data, 0, header_len).is_some_and(|covered| crc32_without(covered, 16) == le32(data, 16));
    let validated = match (in_place, checksum_right) {
        (true, true) | (false, true) => Validated::Checksum,
        (true, false) => Validated::Structure,
        (false, false) => Validated::Magic,
    };
    Some(GptHeader {
        backup: my_lba > other_lba,
        disk: uuid::Uuid::from_bytes_le(array(data, 56)?),
        entries: le32(data, 80)?,
        validated,
    })
}

/// CRC-32 with the four bytes at `hole` read as zero.
fn crc32_without(data: &[u8], hole: usize) -> Option<u32> {
    let after = hole.checked_add(4)?;
    let crc = crc32(crc32(u32::MAX, data.get(..hole)?), &[0; 4]);
    Some(!crc32(crc, data.get(after..)?))
}
