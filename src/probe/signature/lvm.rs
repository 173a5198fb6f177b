//! LVM2: the label in one of the first four sectors, the header of a metadata area, and metadata as text.
//!
//! Little endian (lvm2 2.03, lib/label/label.h `struct label_header`, lib/format_text/layout.h `struct mda_header`). The
//! checksums are CRC-32 from F597A6CF hex on, not inverted:
//!
//! ```text
//! label: 0 "LABELONE"  8 own sector  16 checksum of what follows in the sector  24 "LVM2 001"  32 id of the volume, 32 letters
//! area:  0 checksum of the sector  4 " LVM2 x[5A%r0N*>"  20 version 1  24 own offset
//! text:  NAME {\nid = "6-4-4-4-4-4-6 letters"
//! ```

use super::piece::Piece;
use crate::model::{Finding, Validated};
use crate::probe::bytes::{crc32, le32, le64, slice, text};

const CRC_FROM: u32 = 0xf597_a6cf;
const SECTOR: usize = 512;
const AREA_MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
/// `lvmvolumegroup` names (lvm2 lib/misc/lvm-string.c): at most 127 of these letters.
const LONGEST_NAME: usize = 127;

/// What stands at the front of the piece, if LVM wrote it.
pub(super) fn any(piece: &Piece<'_>) -> Option<Finding> {
    label(piece).or_else(|| area(piece)).or_else(|| metadata(piece))
}

fn label(piece: &Piece<'_>) -> Option<Finding> {
    let data = slice(piece.data, 0, SECTOR)?;
    if !data.starts_with(b"LABELONE") {
        return None;
    }
    let checksum_right = data.get(20..).map(|covered| crc32(CRC_FROM, covered)) == le32(data, 16);
    let is_lvm2 = slice(data, 24, 8)? == b"LVM2 001";
    let in_place = le64(data, 8)?.checked_mul(512) == Some(piece.at);
    let validated = match (is_lvm2 && checksum_right, is_lvm2 && in_place) {
        (true, _) => Validated::Checksum,
        (false, true) => Validated::Structure,
        (false, false) => Validated::Magic,
    };
    let id = text(slice(data, 32, 32)?).filter(|id| id.len() == 32 && id.bytes().all(|c| c.is_ascii_alphanumeric()));
    let words = if checksum_right { "" } else { ", its checksum is wrong" };
    Some(Finding { uuid: id, ..piece.named("LVM2_member", validated, format!("label of a physical volume{words}")) })
}

fn area(piece: &Piece<'_>) -> Option<Finding> {
    let data = slice(piece.data, 0, SECTOR)?;
    if slice(data, 4, AREA_MAGIC.len())? != AREA_MAGIC {
        return None;
    }
    let checksum_right = data.get(4..).map(|covered| crc32(CRC_FROM, covered)) == le32(data, 0);
    let in_place = le32(data, 20)? == 1 && le64(data, 24)? == piece.at;
    let validated = match (checksum_right, in_place) {
        (true, _) => Validated::Checksum,
        (false, true) => Validated::Structure,
        (false, false) => Validated::Magic,
    };
    Some(piece.named("LVM2_member", validated, "header of a metadata area"))
}

fn metadata(piece: &Piece<'_>) -> Option<Finding> {
    let head = piece.data.get(..SECTOR).unwrap_or(piece.data);
    let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+_.-".contains(byte);
    let len = head.iter().take_while(|byte| letter(byte)).count();
    let name = head.get(..len).filter(|name| (1..=LONGEST_NAME).contains(&name.len()))?;
    let rest = head.get(len..)?.strip_prefix(b" {\nid = \"")?;
    let id = rest.get(..38)?;
    let groups: Vec<usize> = id.split(|byte| *byte == b'-').map(<[u8]>::len).collect();
    if groups != [6, 4, 4, 4, 4, 4, 6] {
        return None;
    }
    let detail = format!("metadata of the volume group {}", String::from_utf8_lossy(name));
    let uuid = Some(String::from_utf8_lossy(id).into_owned());
    Some(Finding { uuid, ..piece.named("LVM2_member", Validated::Structure, detail) })
}
