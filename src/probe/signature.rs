//! Looks for what other programs leave on a disk, in one block of 4 KiB at a time, and says how sure it is.
//!
//! Every non-zero block that is read goes through here. Random bytes hit short magics, so a magic alone is listed only where it
//! is four bytes or longer, or stands where it is expected; what refuses is structure or a checksum.

use super::bytes::{array, slice};
use super::{ext, gpt, regions, traces, xfs};
use crate::model::{FilesystemFacts, Finding, FindingKind, Validated};

/// Most findings that are kept of each sort; a filesystem full of bolt files need not list them all.
const MOST_VALIDATED: usize = 128;
const MOST_MAGIC: usize = 64;
const SECTOR: usize = 512;

/// Findings in the order in which they were made, without doubles, bounded.
#[derive(Debug, Default, Clone)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    validated: usize,
}

impl Findings {
    pub(crate) fn add(&mut self, finding: Finding) {
        let validated = finding.validated > Validated::Magic;
        let magic = self.list.len().saturating_sub(self.validated);
        let room = if validated { self.validated < MOST_VALIDATED } else { magic < MOST_MAGIC };
        let known = self.list.iter().any(|old| old.offset == finding.offset && old.kind == finding.kind);
        if room && !known {
            self.validated = self.validated.saturating_add(usize::from(validated));
            self.list.push(finding);
        }
    }

    pub(crate) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.add(finding));
    }

    /// Something validates by structure or checksum.
    pub(crate) fn any_validated(&self) -> bool {
        self.validated > 0
    }

    /// In order of offset.
    pub(crate) fn sorted(mut self) -> Vec<Finding> {
        self.list.sort_by_key(|finding| finding.offset);
        self.list
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.list.iter()
    }
}

/// What the search has to know about the device.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    size: u64,
    ext_backups: Vec<u64>,
}

impl Search {
    pub(crate) fn new(size: u64) -> Self {
        Search { size, ext_backups: regions::ext_backups(size) }
    }

    /// Adds what begins in `block`, which was read at `offset`, a multiple of 4096.
    pub(crate) fn block(&self, block: &[u8], offset: u64, findings: &mut Findings) {
        for at in (0..block.len()).step_by(SECTOR) {
            let Some(data) = block.get(at..) else { break };
            let position = offset.saturating_add(at as u64);
            if data.len() >= 1024 && at % 1024 == 0 && ext::has_magic(data) {
                findings.extend(self.ext(data, position));
            }
            let Some(head) = array::<8>(data, 0) else { continue };
            let [a, b, c, d, ..] = head;
            let word = [a, b, c, d];
            if word == xfs::SB_MAGIC {
                findings.add(self.xfs(data, position));
            } else if word == xfs::AGF_MAGIC || word == xfs::AGI_MAGIC {
                findings.extend(xfs_group_header(data, position));
            } else if head == gpt::MAGIC {
                findings.extend(gpt_header(data, position));
            }
            findings.extend(traces::bolt_meta(data, position));
            findings.extend(traces::wal_head(data, position));
            findings.extend(luks_header(data, position));
        }
        findings.extend(btrfs_superblock(block, offset));
    }

    fn ext(&self, data: &[u8], position: u64) -> Option<Finding> {
        let expected = self.ext_backups.binary_search(&position).is_ok();
        let Some(superblock) = ext::parse(data) else {
            // Two bytes of magic are hit by chance every few hundred blocks of noise: worth a word only in their place.
            return (expected || position == ext::PRIMARY_OFFSET).then(|| Finding {
                kind: if expected { FindingKind::ExtBackupSuperblock } else { FindingKind::ExtSuperblock },
                offset: position,
                validated: Validated::Magic,
                uuid: None,
                detail: Some(String::from("the magic of ext2/3/4 stands here, the fields around it are no superblock")),
            });
        };
        let copy = superblock.group > 0 || superblock.is_place_of_a_copy(position);
        let kind = if copy { FindingKind::ExtBackupSuperblock } else { FindingKind::ExtSuperblock };
        let mut detail = superblock.describe();
        if superblock.group > 0 {
            detail.push_str(&format!(", copy of group {}", superblock.group));
        }
        match superblock.filesystem_start(position) {
            Some(0) => {}
            Some(_) if copy && superblock.group == 0 => {}
            Some(start) => detail.push_str(&format!(", of a filesystem that begins at {start}")),
            None => detail.push_str(", not where such a copy belongs"),
        }
        let bytes = superblock.blocks.saturating_mul(superblock.block_size);
        if bytes > self.size {
            detail.push_str(&format!(", larger than this device ({bytes} bytes)"));
        }
        Some(Finding {
            kind,
            offset: position,
            validated: superblock.validated(),
            uuid: Some(superblock.uuid.to_string()),
            detail: Some(detail),
        })
    }

    fn xfs(&self, data: &[u8], position: u64) -> Finding {
        let Some(superblock) = xfs::parse_superblock(data) else {
            return Finding {
                kind: FindingKind::XfsSuperblock,
                offset: position,
                validated: Validated::Magic,
                uuid: None,
                detail: Some(String::from("the magic of XFS stands here, the fields behind it are no superblock")),
            };
        };
        let mut detail = superblock.describe();
        let kind = match superblock.group_at(position) {
            Some(group) if group > 0 => {
                detail.push_str(&format!(", copy of group {group}"));
                FindingKind::XfsAgHeader
            }
            Some(_) | None => FindingKind::XfsSuperblock,
        };
        Finding {
            kind,
            offset: position,
            validated: superblock.validated(),
            uuid: Some(superblock.uuid.to_string()),
            detail: Some(detail),
        }
    }
}

fn xfs_group_header(data: &[u8], position: u64) -> Option<Finding> {
    let header = xfs::parse_group_header(data, position)?;
    Some(Finding {
        kind: FindingKind::XfsAgHeader,
        offset: position,
        validated: header.validated,
        uuid: header.uuid.map(|uuid| uuid.to_string()),
        detail: Some(format!("{} of group {} with {} blocks", header.name, header.group, header.length)),
    })
}

fn gpt_header(data: &[u8], position: u64) -> Option<Finding> {
    let header = gpt::parse(data, position)?;
    Some(Finding {
        kind: if header.backup { FindingKind::GptBackupHeader } else { FindingKind::GptHeader },
        offset: position,
        validated: header.validated,
        uuid: Some(header.disk.to_string()),
        detail: Some(format!("room for {} partitions", header.entries)),
    })
}

/// LUKS1/2 primary ("LUKS" BA BE) and LUKS2 secondary ("SKUL" BA BE) headers; in LUKS2 the header says its own offset at
/// byte 256 (cryptsetup, LUKS2 on-disk format 1.1.3, `struct luks2_hdr_disk`; big endian).
fn luks_header(data: &[u8], position: u64) -> Option<Finding> {
    let magic = slice(data, 0, 6)?;
    let secondary = magic == b"SKUL\xba\xbe";
    if !secondary && magic != b"LUKS\xba\xbe" {
        return None;
    }
    let version = super::bytes::be16(data, 6)?;
    let in_place = version == 1 && !secondary || version == 2 && super::bytes::be64(data, 256)? == position;
    let uuid = super::bytes::text(slice(data, 168, 40)?).and_then(|text| uuid::Uuid::parse_str(&text).ok());
    Some(Finding {
        kind: FindingKind::Named(String::from("crypto_LUKS")),
        offset: position,
        validated: if in_place && uuid.is_some() { Validated::Structure } else { Validated::Magic },
        uuid: uuid.map(|uuid| uuid.to_string()),
        detail: Some(format!("LUKS{version} {} header", if secondary { "secondary" } else { "primary" })),
    })
}

/// btrfs superblock and its mirrors: 0 CRC-32C of 32..4096, 32 fsid, 48 own offset, 64 magic (kernel 6.1 fs/btrfs/ctree.h).
fn btrfs_superblock(block: &[u8], position: u64) -> Option<Finding> {
    if slice(block, 64, 8)? != b"_BHRfS_M" {
        return None;
    }
    let in_place = super::bytes::le64(block, 48)? == position;
    let checksum_right = slice(block, 32, 4064).map(crc32c::crc32c) == super::bytes::le32(block, 0);
    Some(Finding {
        kind: FindingKind::Named(String::from("btrfs")),
        offset: position,
        validated: match (checksum_right, in_place) {
            (true, _) => Validated::Checksum,
            (false, true) => Validated::Structure,
            (false, false) => Validated::Magic,
        },
        uuid: array(block, 32).map(|bytes| uuid::Uuid::from_bytes(bytes).to_string()),
        detail: Some(String::from("superblock of btrfs")),
    })
}

/// The filesystem whose primary superblock stands in `head`, the first bytes of the device, and validates: no field
/// contradicts another, and its checksum is right where it has one.
pub fn filesystem(head: &[u8]) -> Option<FilesystemFacts> {
    if let Some(superblock) = head.get(1024..).and_then(ext::parse)
        && superblock.group == 0
        && superblock.checksum_right != Some(false)
    {
        return Some(superblock.facts());
    }
    let superblock = xfs::parse_superblock(head)?;
    (superblock.checksum_right != Some(false)).then(|| superblock.facts())
}

/// How large the ext filesystem is whose primary superblock stands in `head`: bytes, and those of a block.
pub fn ext_size(head: &[u8]) -> Option<(u64, u64)> {
    let superblock = head.get(1024..).and_then(ext::parse)?;
    let whole = superblock.group == 0 && superblock.checksum_right != Some(false);
    let bytes = superblock.blocks.checked_mul(superblock.block_size).filter(|_| whole)?;
    Some((bytes, superblock.block_size))
}

/// Where copies of a superblock would be by what the findings say of the size of allocation groups.
pub(crate) fn follow_up(findings: &Findings, blocks: &[(u64, Vec<u8>)]) -> Vec<u64> {
    let mut offsets = Vec::new();
    for finding in findings.iter().filter(|finding| finding.kind == FindingKind::XfsAgHeader) {
        let header = blocks
            .iter()
            .find_map(|(start, data)| {
                let at = usize::try_from(finding.offset.checked_sub(*start)?).ok()?;
                data.get(at..)
            })
            .and_then(|data| xfs::parse_group_header(data, finding.offset));
        offsets.extend(header.iter().flat_map(xfs::GroupHeader::next_group_candidates));
    }
    offsets
}
