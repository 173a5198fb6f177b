//! btrfs: the superblock with its mirrors, and the nodes of its trees.
//!
//! Little endian (kernel 6.1 fs/btrfs/ctree.h `struct btrfs_super_block`, `struct btrfs_header`). Both begin with 32 bytes of
//! checksum, of which CRC-32C uses four, and cover all that follows:
//!
//! ```text
//! superblock: 32 fsid  48 own offset  64 "_BHRfS_M"               node: 32 fsid  48 own place  88 tree  96 items  100 level
//! ```

use super::piece::{Piece, uuid_at};
use crate::model::{Finding, Validated};
use crate::probe::bytes::{array, le32, le64, slice};

const MAGIC: &[u8] = b"_BHRfS_M";
/// Levels of a tree (`BTRFS_MAX_LEVEL`).
const LEVELS: u8 = 8;

pub(super) fn superblock(piece: &Piece<'_>) -> Option<Finding> {
    let data = piece.data;
    if slice(data, 64, 8)? != MAGIC {
        return None;
    }
    let in_place = le64(data, 48)? == piece.at;
    let checksum_right = slice(data, 32, 4064).map(crc32c::crc32c) == le32(data, 0);
    let validated = match (checksum_right, in_place) {
        (true, _) => Validated::Checksum,
        (false, true) => Validated::Structure,
        (false, false) => Validated::Magic,
    };
    Some(Finding { uuid: uuid_at(data, 32), ..piece.named("btrfs", validated, "superblock of btrfs") })
}

/// A node has no magic: it is known by its checksum alone, which is computed only where all else could be one.
pub(super) fn node(piece: &Piece<'_>) -> Option<Finding> {
    let data = piece.data;
    let [level] = array(data, 100)?;
    let (stored, items) = (le32(data, 0)?, le32(data, 96)?);
    let could_be =
        piece.at.is_multiple_of(4096) && stored != 0 && array(data, 4)? == [0_u8; 28] && level < LEVELS && items < 4096;
    let uuid = uuid_at(data, 32)?;
    // The superblock passes for a node of its length, but for its magic.
    if !could_be || slice(data, 64, 8)? == MAGIC {
        return None;
    }
    [16384_usize, 4096, 8192, 32768, 65536]
        .into_iter()
        .find(|len| len.checked_sub(32).and_then(|rest| slice(data, 32, rest)).map(crc32c::crc32c) == Some(stored))?;
    let detail = format!("node of btrfs' tree {}, level {level}, {items} items", le64(data, 88)?);
    Some(Finding { uuid: Some(uuid), ..piece.named("btrfs", Validated::Checksum, detail) })
}
