//! Blocks of the journal of ext3, ext4 and ocfs2.
//!
//! Big endian (kernel 6.1 include/linux/jbd2.h `journal_header_t`, `struct journal_superblock_s`):
//!
//! ```text
//! 0 magic C0 3B 39 98   4 type (1 descriptor, 2 commit, 3 and 4 superblock, 5 revocation)   8 sequence
//! superblock: 12 block size  16 blocks  20 first block of the log  48 uuid[16]  80 checksum type (4: CRC-32C)  252 checksum
//! ```

use super::piece::{Piece, uuid_at};
use crate::model::{Finding, FindingKind, Validated};
use crate::probe::bytes::{array, be32, crc32c_without, slice};

const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];
const SUPERBLOCK_LEN: usize = 1024;
const CHECKSUM_AT: usize = 252;
const CHECKSUM_IS_CRC32C: u8 = 4;

pub(super) fn block(piece: &Piece<'_>) -> Option<Finding> {
    let data = piece.data;
    if array(data, 0)? != MAGIC {
        return None;
    }
    let name = match be32(data, 4)? {
        1 => "descriptor",
        2 => "commit block",
        3 | 4 => return superblock(piece),
        5 => "revocation block",
        _ => return None,
    };
    let detail = format!("{name} of transaction {}", be32(data, 8)?);
    Some(piece.found(FindingKind::ExtJournal, Validated::Magic, detail))
}

fn superblock(piece: &Piece<'_>) -> Option<Finding> {
    let data = slice(piece.data, 0, SUPERBLOCK_LEN)?;
    let (block_size, blocks, first) = (be32(data, 12)?, be32(data, 16)?, be32(data, 20)?);
    let agree = block_size.is_power_of_two() && (1024..=65536).contains(&block_size) && first < blocks;
    let checksum_right = array(data, 80)? == [CHECKSUM_IS_CRC32C]
        && crc32c_without(data, CHECKSUM_AT).map(|crc| !crc) == be32(data, CHECKSUM_AT);
    let validated = match (agree, checksum_right) {
        (true, true) => Validated::Checksum,
        (true, false) => Validated::Structure,
        (false, _) => Validated::Magic,
    };
    let detail = format!("superblock of a journal of {blocks} blocks of {block_size} bytes");
    Some(Finding { uuid: uuid_at(data, 48), ..piece.found(FindingKind::ExtJournal, validated, detail) })
}
