//! Headers of XFS allocation groups: a copy of the superblock, AGF and AGI, one sector each at the start of every group.
//!
//! All big endian but the checksums, which are CRC-32C stored little endian over the sector with the field as zero.
//! Source: kernel 6.1 fs/xfs/libxfs/xfs_format.h (`struct xfs_dsb`, `xfs_agf`, `xfs_agi`).
//!
//! ```text
//! superblock: 0 "XFSB"  4 blocksize  8 dblocks  32 uuid  84 agblocks  88 agcount  100 versionnum  102 sectsize
//!             104 inodesize  108 fname[12]  212 features_ro_compat... 208 compat 212 ro_compat 216 incompat 224 crc
//! AGF:        0 "XAGF"  4 version 1  8 seqno  12 length  64 uuid (v5)   216 crc
//! AGI:        0 "XAGI"  4 version 1  8 seqno  12 length 296 uuid (v5)   312 crc
//! ```

use super::bytes::{array, be16, be32, be64, crc32c_without, le32, slice, text};
use crate::model::{FilesystemFacts, FsUuid, Validated};

pub(crate) const SB_MAGIC: [u8; 4] = *b"XFSB";
pub(crate) const AGF_MAGIC: [u8; 4] = *b"XAGF";
pub(crate) const AGI_MAGIC: [u8; 4] = *b"XAGI";

/// `versionnum` 5 has checksums.
const VERSION_MASK: u16 = 0xf;
/// Feature bits of version 5 that kernel 6.1 knows: ftype, spinodes, meta_uuid, bigtime, needsrepair, nrext64; finobt,
/// rmapbt, reflink, inobtcount.
const KNOWN_INCOMPAT: u32 = 0x3f;
const KNOWN_RO_COMPAT: u32 = 0xf;

/// A superblock whose fields agree with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct XfsSuperblock {
    pub block_size: u64,
    pub blocks: u64,
    pub group_blocks: u64,
    pub groups: u64,
    pub uuid: uuid::Uuid,
    pub label: Option<String>,
    pub ro_compat: u32,
    pub incompat: u32,
    /// `None` for version 4, which has none.
    pub checksum_right: Option<bool>,
}

/// Reads a superblock at the front of `data`.
pub(crate) fn parse_superblock(data: &[u8]) -> Option<XfsSuperblock> {
    if array(data, 0)? != SB_MAGIC {
        return None;
    }
    let block_size = u64::from(be32(data, 4)?);
    let blocks = be64(data, 8)?;
    let group_blocks = u64::from(be32(data, 84)?);
    let groups = u64::from(be32(data, 88)?);
    let version = be16(data, 100)? & VERSION_MASK;
    let sector = u64::from(be16(data, 102)?);
    let inode = u64::from(be16(data, 104)?);
    // Every group but the last is full, the last is not empty.
    let full = groups.checked_sub(1)?.checked_mul(group_blocks)?;
    let agree = block_size.is_power_of_two()
        && (512..=65536).contains(&block_size)
        && sector.is_power_of_two()
        && (512..=32768).contains(&sector)
        && inode.is_power_of_two()
        && (256..=2048).contains(&inode)
        && (1..=5).contains(&version)
        && groups > 0
        && full < blocks
        && blocks <= full.checked_add(group_blocks)?;
    if !agree {
        return None;
    }
    let checksum_right =
        if version == 5 { Some(checksum_at(data, 224, &[usize::try_from(sector).ok()?])) } else { None };
    let (ro_compat, incompat) = if version == 5 { (be32(data, 212)?, be32(data, 216)?) } else { (0, 0) };
    Some(XfsSuperblock {
        block_size,
        blocks,
        group_blocks,
        groups,
        uuid: uuid::Uuid::from_bytes(array(data, 32)?),
        label: text(slice(data, 108, 12)?),
        ro_compat,
        incompat,
        checksum_right,
    })
}

impl XfsSuperblock {
    /// The group whose superblock this is in a filesystem that begins at byte 0 of the device.
    pub(crate) fn group_at(&self, offset: u64) -> Option<u64> {
        let group_bytes = self.group_blocks.checked_mul(self.block_size)?;
        let group = offset.checked_div(group_bytes)?;
        (offset.checked_rem(group_bytes)? == 0 && group < self.groups).then_some(group)
    }

    pub(crate) fn validated(&self) -> Validated {
        match self.checksum_right {
            Some(true) => Validated::Checksum,
            Some(false) | None => Validated::Structure,
        }
    }

    pub(crate) fn facts(&self) -> FilesystemFacts {
        let mut unknown_features = Vec::new();
        for (word, set) in
            [("incompat", self.incompat & !KNOWN_INCOMPAT), ("ro_compat", self.ro_compat & !KNOWN_RO_COMPAT)]
        {
            for bit in (0..32).map(|shift| 1_u32 << shift).filter(|bit| set & bit != 0) {
                unknown_features.push(format!("{word} {bit:#x}"));
            }
        }
        FilesystemFacts {
            fstype: String::from("xfs"),
            uuid: (!self.uuid.is_nil()).then_some(FsUuid(self.uuid)),
            label: self.label.clone(),
            made_at: None,
            last_mounted: None,
            unknown_features,
            // The superblock of XFS does not say: only the log does, which is not read here.
            clean: false,
        }
    }

    pub(crate) fn describe(&self) -> String {
        let mut words = format!("xfs of {} blocks of {} bytes in {} groups", self.blocks, self.block_size, self.groups);
        if let Some(label) = &self.label {
            words.push_str(&format!(", label {label}"));
        }
        if self.checksum_right == Some(false) {
            words.push_str(", its checksum is wrong");
        }
        words
    }
}

/// An AGF or AGI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    pub name: &'static str,
    pub group: u64,
    /// Blocks of the group; all groups but the last have the same.
    pub length: u64,
    /// Version 5 only, where a checksum stands for it.
    pub uuid: Option<uuid::Uuid>,
    pub validated: Validated,
}

/// Reads an AGF or AGI at the front of `data`, which was found at `offset`.
pub(crate) fn parse_group_header(data: &[u8], offset: u64) -> Option<GroupHeader> {
    let (name, uuid_at, crc_at, sector_index) = match array::<4>(data, 0)? {
        AGF_MAGIC => ("AGF", 64, 216, 1_u64),
        AGI_MAGIC => ("AGI", 296, 312, 2),
        [_, _, _, _] => return None,
    };
    let group = u64::from(be32(data, 8)?);
    let length = u64::from(be32(data, 12)?);
    let version_right = be32(data, 4)? == 1;
    let checksum_right = checksum_at(data, crc_at, &[512, 4096, 1024, 2048]);
    // In group n of a filesystem at byte 0, the header is the second or third sector behind n times the length.
    let in_place = [512_u64, 4096].into_iter().any(|sector| {
        let start = sector.checked_mul(sector_index).and_then(|ahead| offset.checked_sub(ahead));
        [4096_u64, 2048, 1024, 512, 65536].into_iter().any(|block| {
            length
                .checked_mul(block)
                .and_then(|bytes| bytes.checked_mul(group))
                .is_some_and(|expected| start == Some(expected))
        })
    });
    let validated = match (version_right && length > 0, checksum_right, in_place) {
        (true, true, _) => Validated::Checksum,
        (true, false, true) => Validated::Structure,
        (true, false, false) | (false, _, _) => Validated::Magic,
    };
    let uuid = if checksum_right { array(data, uuid_at).map(uuid::Uuid::from_bytes) } else { None };
    Some(GroupHeader { name, group, length, uuid, validated })
}

impl GroupHeader {
    /// Where the next group would begin if this is a header of group 0 of a filesystem at byte 0: one candidate for each
    /// block size. The copy of the superblock there has the UUID and the label.
    pub(crate) fn next_group_candidates(&self) -> Vec<u64> {
        if self.group != 0 || self.validated == Validated::Magic {
            return Vec::new();
        }
        [4096_u64, 1024, 2048, 512, 65536].into_iter().filter_map(|block| self.length.checked_mul(block)).collect()
    }
}

/// The checksum at `at` is right for one of the sector sizes.
fn checksum_at(data: &[u8], at: usize, sectors: &[usize]) -> bool {
    let Some(stored) = le32(data, at) else { return false };
    sectors.iter().any(|sector| slice(data, 0, *sector).and_then(|covered| crc32c_without(covered, at)) == Some(stored))
}
