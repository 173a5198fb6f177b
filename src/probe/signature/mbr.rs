//! The partition table of DOS in the first sector: four entries of 16 bytes from byte 446 on (0 flag, 4 type, 8 first sector,
//! 12 sectors; little endian), and 55 AA at the end.

use super::piece::Piece;
use crate::model::{Finding, Validated};
use crate::probe::bytes::{array, le32, slice};

pub(super) fn table(piece: &Piece<'_>) -> Option<Finding> {
    if piece.at != 0 || slice(piece.data, 510, 2)? != [0x55, 0xAA] {
        return None;
    }
    let (entries, _) = slice(piece.data, 446, 64)?.as_chunks::<16>();
    let mut partitions = 0_usize;
    for entry in entries {
        let ([flag], [kind]) = (array(entry, 0)?, array(entry, 4)?);
        let (first, sectors) = (u64::from(le32(entry, 8)?), u64::from(le32(entry, 12)?));
        if flag & 0x7f != 0 {
            return None;
        }
        if kind == 0 {
            continue;
        }
        let begins_inside = first.checked_mul(512).is_some_and(|at| at > 0 && at < piece.size);
        if sectors == 0 || !begins_inside {
            return None;
        }
        partitions = partitions.saturating_add(1);
    }
    let detail = format!("a partition table with {partitions} entries");
    (partitions > 0).then(|| piece.named("dos", Validated::Structure, detail))
}
