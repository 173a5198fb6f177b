//! Headers of XFS allocation groups: a copy of the superblock, AGF and AGI, one sector each at the start of every group.
//!
//! All big endian but the checksums, which are CRC-32C stored little endian over the sector with the field as zero.
//! Source: kernel 6.1 fs/xfs/libxfs/xfs_format.h (`struct xfs_dsb`, `xfs_agf`, `xfs_agi`).
//!
//! ```text
//! superblock: 0 "XFSB"  4 blocksize  8 dblocks  32 uuid  84 agblocks  88 agcount  100 versionnum  102 sectsize
//!             104 inodesize  108 fname[12]  126 inprogress  208 compat  212 ro_compat  216 incompat  220 log_incompat  224 crc
//! AGF:        0 "XAGF"  4 version 1  8 seqno  12 length  64 uuid (v5)   216 crc
//! AGI:        0 "XAGI"  4 version 1  8 seqno  12 length 296 uuid (v5)   312 crc
//! ```

use super::bytes::{array, be16, be32, be64, crc32c_without, le32, slice, text};
use super::features::{self, Table};
use crate::model::{FilesystemFacts, FsUuid, Validated};

pub(crate) const SB_MAGIC: [u8; 4] = *b"XFSB";
pub(crate) const AGF_MAGIC: [u8; 4] = *b"XAGF";
pub(crate) const AGI_MAGIC: [u8; 4] = *b"XAGI";

/// `versionnum` 5 has checksums.
const VERSION_MASK: u16 = 0xf;
/// Feature bits of version 5 and whether kernel 6.1 mounts a filesystem that has them (`XFS_SB_FEAT_*_ALL`, xfs_format.h),
/// with the names of later ones (xfs_format.h of 6.18). `needsrepair` is known: the kernel refuses it by that name. Unknown
/// `compat` bits stop nothing: the kernel warns and mounts.
const INCOMPAT: &Table = &[
    (0x1, "ftype", true),
    (0x2, "sparse inodes", true),
    (0x4, "meta_uuid", true),
    (0x8, "bigtime", true),
    (NEEDS_REPAIR, "needsrepair", true),
    (0x20, "nrext64", true),
    (0x40, "exchange", false),
    (0x80, "parent", false),
    (0x100, "metadir", false),
    (0x200, "zoned", false),
    (0x400, "zone gaps", false),
];
const RO_COMPAT: &Table =
    &[(0x1, "finobt", true), (0x2, "rmapbt", true), (0x4, "reflink", true), (0x8, "inobtcount", true)];
const LOG_INCOMPAT: &Table = &[(0x1, "logged extended attributes", true)];
const NEEDS_REPAIR: u32 = 0x10;

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
    pub log_incompat: u32,
    /// mkfs, or another tool that rewrites it all, did not come to its end.
    pub in_progress: bool,
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
    let (ro_compat, incompat, log_incompat) =
        if version == 5 { (be32(data, 212)?, be32(data, 216)?, be32(data, 220)?) } else { (0, 0, 0) };
    Some(XfsSuperblock {
        block_size,
        blocks,
        group_blocks,
        groups,
        uuid: uuid::Uuid::from_bytes(array(data, 32)?),
        label: text(slice(data, 108, 12)?),
        ro_compat,
        incompat,
        log_incompat,
        in_progress: array(data, 126)? != [0],
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
        let unknown_features = features::unknown(&[
            ("incompat", self.incompat, INCOMPAT),
            ("ro_compat", self.ro_compat, RO_COMPAT),
            ("log_incompat", self.log_incompat, LOG_INCOMPAT),
        ]);
        let unfinished = self.in_progress || self.incompat & NEEDS_REPAIR != 0;
        FilesystemFacts {
            fstype: String::from("xfs"),
            uuid: (!self.uuid.is_nil()).then_some(FsUuid(self.uuid)),
            label: self.label.clone(),
            made_at: None,
            last_mounted: None,
            unknown_features,
            // That it was unmounted cleanly is in the log only, which is not read here.
            clean: unfinished.then_some(false),
        }
    }

    pub(crate) fn describe(&self) -> String {
        let mut words = format!("xfs of {} blocks of {} bytes in {} groups", self.blocks, self.block_size, self.groups);
        if let Some(label) = &self.label {
            words.push_str(&format!(", label {label}"));
        }
        if self.in_progress {
            words.push_str(", its mkfs did not come to its end");
        }
        if self.incompat & NEEDS_REPAIR != 0 {
            words.push_str(", marked as in need of xfs_repair");
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
