//! Copies and traces of other filesystems that libblkid does not look for, or that its older versions do not know.

use super::piece::{Piece, uuid_at};
use crate::model::{Finding, Validated};
use crate::probe::bytes::{array, crc32, le16, le32, le64, slice};

/// What stands at the front of the piece, if it is one of these.
pub(super) fn any(piece: &Piece<'_>) -> Option<Finding> {
    [boot_sector, jfs, f2fs, f2fs_checkpoint, bcachefs, scoutfs, bsd_label, tar].iter().find_map(|parse| parse(piece))
}

/// exFAT's boot sector, whose copy is sector 12, and FAT32's, whose copy is sector 6: jump, name, 55 AA at the end.
fn boot_sector(piece: &Piece<'_>) -> Option<Finding> {
    let data = piece.data;
    let [jump] = array(data, 0)?;
    if jump != 0xEB || slice(data, 510, 2)? != [0x55, 0xAA] {
        return None;
    }
    if slice(data, 3, 8)? == b"EXFAT   " {
        return Some(piece.named("exfat", Validated::Structure, "boot sector"));
    }
    (slice(data, 82, 8)? == b"FAT32   ").then(|| piece.named("vfat", Validated::Structure, "boot sector of FAT32"))
}

/// Kernel 6.1 fs/jfs/jfs_superblock.h: 0 "JFS1", 4 version, 16 block size, 20 its logarithm (u16), 136 uuid; at 32 and 60 KiB.
fn jfs(piece: &Piece<'_>) -> Option<Finding> {
    let data = piece.data;
    if array(data, 0)? != *b"JFS1" {
        return None;
    }
    let agree = (1..=2).contains(&le32(data, 4)?)
        && Some(le32(data, 16)?) == 1_u32.checked_shl(u32::from(le16(data, 20)?))
        && (512..=4096).contains(&le32(data, 16)?);
    let validated = if agree { Validated::Structure } else { Validated::Magic };
    Some(Finding { uuid: uuid_at(data, 136), ..piece.named("jfs", validated, "superblock") })
}

const F2FS_MAGIC: u32 = 0xF2F5_2010;

/// Kernel 6.1 include/linux/f2fs_fs.h `struct f2fs_super_block`: 0 magic, 8 and 16 logarithms of sector and block size,
/// 108 uuid; at 1 KiB of the first two blocks.
fn f2fs(piece: &Piece<'_>) -> Option<Finding> {
    let data = piece.data;
    if le32(data, 0)? != F2FS_MAGIC {
        return None;
    }
    let agree = (9..=12).contains(&le32(data, 8)?) && (12..=16).contains(&le32(data, 16)?);
    let validated = if agree { Validated::Structure } else { Validated::Magic };
    Some(Finding { uuid: uuid_at(data, 108), ..piece.named("f2fs", validated, "superblock") })
}

/// A checkpoint of f2fs has no magic, but a checksum that begins with it (`f2fs_crc32`), at the place that byte 164 says.
fn f2fs_checkpoint(piece: &Piece<'_>) -> Option<Finding> {
    const PLACE: usize = 4092;
    if !piece.at.is_multiple_of(4096) || le32(piece.data, 164)? != 4092 {
        return None;
    }
    let right = slice(piece.data, 0, PLACE).map(|covered| crc32(F2FS_MAGIC, covered)) == le32(piece.data, PLACE);
    right.then(|| piece.named("f2fs", Validated::Checksum, "checkpoint"))
}

/// bcachefs-tools, bcachefs_format.h `struct bch_sb`: 24 magic, 56 uuid, 104 own sector; and the layout in sector 7, which
/// begins with the magic.
fn bcachefs(piece: &Piece<'_>) -> Option<Finding> {
    const MAGICS: [u128; 2] = [0xc685_73f6_4e1a_45ca_8265_f57f_48ba_6d81, 0xc685_73f6_66ce_90a9_d96a_60cf_803d_f7ef];
    let is_magic = |at: usize| array(piece.data, at).is_some_and(|bytes| MAGICS.contains(&u128::from_be_bytes(bytes)));
    if is_magic(0) {
        return Some(piece.named("bcachefs", Validated::Magic, "layout of the superblocks"));
    }
    if !is_magic(24) {
        return None;
    }
    let in_place = le64(piece.data, 104)?.checked_mul(512) == Some(piece.at);
    let validated = if in_place { Validated::Structure } else { Validated::Magic };
    Some(Finding { uuid: uuid_at(piece.data, 56), ..piece.named("bcachefs", validated, "superblock") })
}

/// scoutfs format.h `struct scoutfs_super_block`: 4 magic, 24 number of this block of 4096 bytes, 56 uuid.
fn scoutfs(piece: &Piece<'_>) -> Option<Finding> {
    let data = piece.data;
    let right = le32(data, 4)? == 0x103c_428b && le64(data, 24)?.checked_mul(4096) == Some(piece.at);
    right.then(|| Finding { uuid: uuid_at(data, 56), ..piece.named("scoutfs", Validated::Structure, "superblock") })
}

/// A BSD disk label: the same magic twice, 132 bytes apart.
fn bsd_label(piece: &Piece<'_>) -> Option<Finding> {
    const MAGIC: u32 = 0x8256_4557;
    let right = le32(piece.data, 0)? == MAGIC && le32(piece.data, 132)? == MAGIC;
    right.then(|| piece.named("bsd", Validated::Structure, "disk label"))
}

/// The header of a tar entry: "ustar" at 257, and at 148 in octal the sum of its bytes with that field as spaces.
fn tar(piece: &Piece<'_>) -> Option<Finding> {
    let header = slice(piece.data, 0, 512)?;
    if slice(header, 257, 5)? != b"ustar" {
        return None;
    }
    let digits = slice(header, 148, 6)?;
    let stored = u32::from_str_radix(std::str::from_utf8(digits).ok()?.trim(), 8).ok()?;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let field: u32 = slice(header, 148, 8)?.iter().map(|byte| u32::from(*byte)).sum();
    let right = sum.checked_sub(field)?.checked_add(8 * 32)? == stored;
    right.then(|| piece.named("tar", Validated::Checksum, "header of an archive's entry"))
}
