//! The superblock of ext2, ext3 and ext4.
//!
//! 1024 bytes, little endian, at byte 1024 of the filesystem; copies at the start of some block groups. Fields used
//! (kernel 6.1 fs/ext4/ext4.h `struct ext4_super_block`):
//!
//! ```text
//!    0 inodes_count      4 blocks_count_lo   20 first_data_block  24 log_block_size   32 blocks_per_group
//!   36 clusters_per_group 40 inodes_per_group 56 magic 0xEF53     58 state            76 rev_level
//!   88 inode_size (u16)  90 block_group_nr   92 compat  96 incompat  100 ro_compat   104 uuid[16]
//!  120 volume_name[16]  136 last_mounted[64] 264 mkfs_time       336 blocks_count_hi
//!  630 mkfs_time_hi (u8)                    1020 checksum: crc32c(~0, bytes 0..1020), not inverted at the end
//! ```

mod features;

use super::bytes::{array, le16, le32, slice, text};
use crate::model::{FilesystemFacts, FsUuid, Time, Validated};

pub(crate) const SUPERBLOCK_LEN: usize = 1024;
/// Offset of the primary one in its filesystem.
pub(crate) const PRIMARY_OFFSET: u64 = 1024;
const MAGIC: u16 = 0xEF53;
const MAGIC_AT: usize = 56;
/// `s_state`: unmounted cleanly; errors were seen.
const STATE_VALID: u16 = 1;
const STATE_ERRORS: u16 = 2;

/// Fields of a superblock that agree with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtSuperblock {
    pub block_size: u64,
    pub blocks: u64,
    pub blocks_per_group: u64,
    pub first_data_block: u64,
    /// The group whose copy this is; 0 for the primary.
    pub group: u64,
    pub state: u16,
    pub compat: u32,
    pub incompat: u32,
    pub ro_compat: u32,
    pub uuid: uuid::Uuid,
    pub label: Option<String>,
    pub last_mounted: Option<String>,
    pub made_at: u64,
    /// `None` where the filesystem has no superblock checksum.
    pub checksum_right: Option<bool>,
}

/// The two magic bytes stand at their place in `superblock`.
pub(crate) fn has_magic(superblock: &[u8]) -> bool {
    le16(superblock, MAGIC_AT) == Some(MAGIC)
}

/// Reads a superblock at the front of `data`; `None` unless its fields agree with each other as e2fsck demands it.
pub(crate) fn parse(data: &[u8]) -> Option<ExtSuperblock> {
    let data = slice(data, 0, SUPERBLOCK_LEN)?;
    if !has_magic(data) {
        return None;
    }
    let log_block_size = le32(data, 24)?;
    let rev_level = le32(data, 76)?;
    if log_block_size > 6 || rev_level > 1 {
        return None;
    }
    let block_size = 1024_u64 << log_block_size;
    let (compat, incompat, ro_compat) =
        if rev_level == 0 { (0, 0, 0) } else { (le32(data, 92)?, le32(data, 96)?, le32(data, 100)?) };
    let blocks_hi = if incompat & features::INCOMPAT_64BIT != 0 { le32(data, 336)? } else { 0 };
    let blocks = u64::from(blocks_hi) << 32 | u64::from(le32(data, 4)?);
    let first_data_block = u64::from(le32(data, 20)?);
    let blocks_per_group = u64::from(le32(data, 32)?);
    let clusters_per_group = u64::from(le32(data, 36)?);
    let inodes_per_group = u64::from(le32(data, 40)?);
    let inodes = u64::from(le32(data, 0)?);
    let group = if rev_level == 0 { 0 } else { u64::from(le16(data, 90)?) };
    let inode_size = if rev_level == 0 { 128 } else { u64::from(le16(data, 88)?) };

    // A bitmap is one block: it maps so many bits and no more.
    let bits = block_size.checked_mul(8)?;
    let mapped = if ro_compat & features::RO_COMPAT_BIGALLOC != 0 { clusters_per_group } else { blocks_per_group };
    let groups = blocks
        .checked_sub(first_data_block)?
        .checked_add(blocks_per_group)?
        .checked_sub(1)?
        .checked_div(blocks_per_group)?;
    let agree = groups > 0
        && (1..=bits).contains(&mapped)
        && (1..=bits).contains(&inodes_per_group)
        && first_data_block <= 1
        && inode_size.is_power_of_two()
        && (128..=block_size).contains(&inode_size)
        && groups.checked_mul(inodes_per_group)? == inodes
        && group < groups;
    // The journal on a device of its own has a superblock, but no groups.
    let journal_device = incompat & features::INCOMPAT_JOURNAL_DEV != 0 && blocks > 0;
    if !agree && !journal_device {
        return None;
    }

    let checksum_right = if ro_compat & features::RO_COMPAT_METADATA_CSUM != 0 {
        Some(!crc32c::crc32c(slice(data, 0, 1020)?) == le32(data, 1020)?)
    } else {
        None
    };
    let made_at_hi = array::<1>(data, 630)?;
    Some(ExtSuperblock {
        block_size,
        blocks,
        blocks_per_group,
        first_data_block,
        group,
        state: le16(data, 58)?,
        compat,
        incompat,
        ro_compat,
        uuid: uuid::Uuid::from_bytes(array(data, 104)?),
        label: text(slice(data, 120, 16)?),
        last_mounted: text(slice(data, 136, 64)?),
        made_at: u64::from(u8::from_le_bytes(made_at_hi)) << 32 | u64::from(le32(data, 264)?),
        checksum_right,
    })
}

impl ExtSuperblock {
    /// Where the filesystem begins whose superblock this is, when it was found at `offset`; `None` if it cannot belong there.
    pub(crate) fn filesystem_start(&self, offset: u64) -> Option<u64> {
        if self.group == 0 {
            return offset.checked_sub(PRIMARY_OFFSET);
        }
        let block = self.group.checked_mul(self.blocks_per_group)?.checked_add(self.first_data_block)?;
        offset.checked_sub(block.checked_mul(self.block_size)?)
    }

    /// A copy of a filesystem at byte 0 belongs at `offset`. Very old tools did not write into a copy whose it is.
    pub(crate) fn is_place_of_a_copy(&self, offset: u64) -> bool {
        let first = self.first_data_block.saturating_mul(self.block_size);
        let group = self.blocks_per_group.saturating_mul(self.block_size);
        offset.checked_sub(first).is_some_and(|ahead| ahead >= group && ahead.checked_rem(group) == Some(0))
    }

    pub(crate) fn validated(&self) -> Validated {
        match self.checksum_right {
            Some(true) => Validated::Checksum,
            Some(false) | None => Validated::Structure,
        }
    }

    /// `ext2`, `ext3`, `ext4` or `jbd`, as libblkid tells them apart.
    pub(crate) fn fstype(&self) -> &'static str {
        if self.incompat & features::INCOMPAT_JOURNAL_DEV != 0 {
            "jbd"
        } else if self.incompat & !features::EXT3_INCOMPAT != 0 || self.ro_compat & !features::EXT3_RO_COMPAT != 0 {
            "ext4"
        } else if self.compat & features::COMPAT_HAS_JOURNAL != 0 {
            "ext3"
        } else {
            "ext2"
        }
    }

    /// Everything about the filesystem that its primary superblock tells.
    pub(crate) fn facts(&self) -> FilesystemFacts {
        let needs_recovery = self.incompat & features::INCOMPAT_RECOVER != 0;
        FilesystemFacts {
            fstype: self.fstype().to_owned(),
            uuid: (!self.uuid.is_nil()).then_some(FsUuid(self.uuid)),
            label: self.label.clone(),
            made_at: i64::try_from(self.made_at).ok().filter(|seconds| *seconds != 0).and_then(Time::from_unix),
            last_mounted: self.last_mounted.clone(),
            unknown_features: features::unknown(self.compat, self.incompat, self.ro_compat),
            clean: Some(self.state & STATE_VALID != 0 && self.state & STATE_ERRORS == 0 && !needs_recovery),
        }
    }

    /// For a person: what it is a superblock of.
    pub(crate) fn describe(&self) -> String {
        let mut words = format!("{} of {} blocks of {} bytes", self.fstype(), self.blocks, self.block_size);
        if let Some(label) = &self.label {
            words.push_str(&format!(", label {label}"));
        }
        if self.checksum_right == Some(false) {
            words.push_str(", its checksum is wrong");
        }
        words
    }
}
