//! Directory blocks of ext2, ext3 and ext4: they outlive every superblock, and say by their names whether etcd lived there.
//!
//! A chain of entries that ends exactly with the block (kernel 6.1 fs/ext4/ext4.h `struct ext4_dir_entry_2`, little endian):
//! 0 inode, 4 length of the entry (a multiple of 4), 6 length of the name, 7 type of file, 8 name. With checksums the last
//! entry is one of 12 bytes without a name, of type DE hex.

use super::piece::Piece;
use crate::model::{Finding, FindingKind, Validated};
use crate::probe::bytes::{array, le16, le32, slice};

const ENTRY_HEAD: usize = 8;
const TAIL_TYPE: u8 = 0xDE;
/// Types of files that there are: unknown, file, directory, two devices, pipe, socket, link.
const TYPES: std::ops::RangeInclusive<u8> = 0..=7;
/// Names that are told; a directory of thousands is known by its first ones.
const MOST_NAMES: usize = 12;

pub(super) fn block(piece: &Piece<'_>) -> Option<Finding> {
    // Most blocks end here: no entry is that short or that long.
    let first = usize::from(le16(piece.data, 4)?);
    if first < 12 || first % 4 != 0 || le32(piece.data, 0)? == 0 || !piece.at.is_multiple_of(1024) {
        return None;
    }
    let (names, first_block) = [1024, 2048, 4096].into_iter().find_map(|len| chain(slice(piece.data, 0, len)?))?;
    let etcd = of_etcd(&names);
    let told: Vec<String> = names.iter().take(MOST_NAMES).map(|name| name.escape_debug().collect()).collect();
    let mut detail = format!("a directory{} with ", if first_block { "" } else { "'s further block" });
    detail.push_str(&if told.is_empty() { String::from("nothing in it") } else { told.join(", ") });
    if names.len() > MOST_NAMES {
        detail.push_str(", and more");
    }
    let kind = if etcd { FindingKind::EtcdDirectory } else { FindingKind::ExtDirectory };
    Some(piece.found(kind, Validated::Structure, detail))
}

/// The names in a block but `.` and `..`, and whether these two come first; `None` where it is no chain of entries.
fn chain(block: &[u8]) -> Option<(Vec<String>, bool)> {
    let (mut names, mut at, mut live) = (Vec::new(), 0_usize, 0_usize);
    let mut dots = 0;
    while at < block.len() {
        let (inode, len) = (le32(block, at)?, usize::from(le16(block, at.checked_add(4)?)?));
        let [name_len, kind] = array(block, at.checked_add(6)?)?;
        let needed = usize::from(name_len).checked_add(ENTRY_HEAD)?.checked_next_multiple_of(4)?;
        let end = at.checked_add(len)?;
        let tail = inode == 0 && len == 12 && name_len == 0 && kind == TAIL_TYPE && end == block.len();
        if len % 4 != 0 || len < needed.max(12) || end > block.len() || !(TYPES.contains(&kind) || tail) {
            return None;
        }
        if inode != 0 {
            let name = slice(block, at.checked_add(ENTRY_HEAD)?, usize::from(name_len))?;
            if name.is_empty() || name.iter().any(|byte| *byte == 0 || *byte == b'/') {
                return None;
            }
            live = live.checked_add(1)?;
            match (name, live) {
                (b".", 1) | (b"..", 2) => dots = live,
                _ => names.push(String::from_utf8_lossy(name).into_owned()),
            }
        }
        at = end;
    }
    (live >= 2).then_some((names, dots == 2))
}

/// Names that etcd gives: its directories and files, of which one alone may be anybody's.
fn of_etcd(names: &[String]) -> bool {
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    let file = |name: &String| {
        crate::etcd::wal::parse_name(name).is_some_and(|_| name.len() == 37)
            || crate::etcd::snap::parse_name(name).is_some_and(|_| name.len() == 38)
    };
    has("member") || has("snap") && has("wal") || names.iter().any(file)
}
