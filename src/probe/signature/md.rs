//! Members of Linux software RAID, metadata 0.90 and 1.0 to 1.2.
//!
//! Kernel 6.1 include/uapi/linux/raid/md_p.h, drivers/md/md.c `calc_sb_csum`, `calc_sb_1_csum`: the checksum is the sum of
//! all 32-bit words but itself, folded to 32 bits.
//!
//! ```text
//! 0.90: 0 magic A92B4EFC  4 major 0  8 minor 90  20 and 52 uuid  152 checksum over 4096 bytes, in the byte order of its host
//! 1.x:  0 magic  4 major 1  16 uuid[16]  32 name[32]  144 own sector  216 checksum over 256 bytes and 2 a device  220 devices
//! ```

use super::piece::{Piece, uuid_at};
use crate::model::{Finding, Validated};
use crate::probe::bytes::{array, le16, le32, le64, slice, text};

const MAGIC: u32 = 0xa92b_4efc;
const OLD_LEN: usize = 4096;
const NEW_LEN: usize = 256;
const MOST_DEVICES: usize = 1920;

pub(super) fn member(piece: &Piece<'_>) -> Option<Finding> {
    let magic: [u8; 4] = array(piece.data, 0)?;
    if magic == MAGIC.to_be_bytes() {
        return old(piece, u32::from_be_bytes);
    }
    if magic != MAGIC.to_le_bytes() {
        return None;
    }
    if le32(piece.data, 4)? == 1 { new(piece) } else { old(piece, u32::from_le_bytes) }
}

fn old(piece: &Piece<'_>, order: fn([u8; 4]) -> u32) -> Option<Finding> {
    let data = slice(piece.data, 0, OLD_LEN)?;
    let word = |at: usize| array(data, at).map(order);
    // The last whole 64 KiB but one of the device.
    let place = (piece.size & !0xffff).checked_sub(0x10000);
    let version_right = word(4)? == 0 && word(8)? == 90;
    let sum: u64 = data.as_chunks::<4>().0.iter().map(|bytes| u64::from(order(*bytes))).sum();
    let checksum_right = fold(sum.checked_sub(u64::from(word(152)?))?) == word(152)?;
    let validated = match (version_right && checksum_right, version_right && place == Some(piece.at)) {
        (true, _) => Validated::Checksum,
        (false, true) => Validated::Structure,
        (false, false) => Validated::Magic,
    };
    let mut uuid = [0; 16];
    for (to, at) in uuid.as_chunks_mut::<4>().0.iter_mut().zip([20, 52, 56, 60]) {
        *to = word(at)?.to_be_bytes();
    }
    let uuid = Some(uuid::Uuid::from_bytes(uuid).to_string());
    Some(Finding { uuid, ..piece.named("linux_raid_member", validated, "superblock of md, version 0.90") })
}

fn new(piece: &Piece<'_>) -> Option<Finding> {
    let data = piece.data;
    let devices = usize::try_from(le32(data, 220)?).ok()?;
    let in_place = le64(data, 144)?.checked_mul(512) == Some(piece.at);
    let covered = devices.checked_mul(2).and_then(|more| more.checked_add(NEW_LEN));
    let checksum_right = devices <= MOST_DEVICES
        && covered.and_then(|len| slice(data, 0, len)).and_then(|covered| sum_of(covered, 216)) == le32(data, 216);
    let validated = match (checksum_right, in_place) {
        (true, _) => Validated::Checksum,
        (false, true) => Validated::Structure,
        (false, false) => Validated::Magic,
    };
    let mut detail = String::from("superblock of md, version 1");
    if let Some(name) = text(slice(data, 32, 32)?) {
        detail.push_str(&format!(", name {name}"));
    }
    Some(Finding { uuid: uuid_at(data, 16), ..piece.named("linux_raid_member", validated, detail) })
}

/// The folded sum of little-endian words, two odd bytes at the end as one, without the word at `hole`.
fn sum_of(data: &[u8], hole: usize) -> Option<u32> {
    let (words, rest) = data.as_chunks::<4>();
    let sum: u64 = words.iter().map(|bytes| u64::from(u32::from_le_bytes(*bytes))).sum();
    let odd = u64::from(le16(rest, 0).unwrap_or(0));
    Some(fold(sum.checked_add(odd)?.checked_sub(u64::from(le32(data, hole)?))?))
}

fn fold(sum: u64) -> u32 {
    let folded = (sum & 0xffff_ffff).saturating_add(sum >> 32);
    // As the kernel does it: what is carried beyond 32 bits a second time is cut off.
    u32::try_from(folded & 0xffff_ffff).unwrap_or(0)
}
