//! Looks for what other programs leave on a disk, in one block of 4 KiB at a time, and says how sure it is.
//!
//! Every non-zero block that is read goes through [`Search::block`], which knows what may stand in the midst of noise, and what
//! is neither zero nor noise through [`Search::written`] as well, which knows far more: a blank device never pays for that.
//! Random bytes hit short magics, so a magic alone is listed only where it is four bytes or longer, or stands where it is
//! expected; what refuses is structure or a checksum.

mod btrfs;
mod directory;
mod etcd;
mod journal;
mod luks;
mod lvm;
mod mbr;
mod md;
mod other;
mod piece;
mod xfs_log;

use super::bytes::array;
use super::{ext, gpt, regions, traces, xfs};
use crate::model::{FilesystemFacts, Finding, FindingKind, Validated};
use piece::Piece;

/// Most findings that are kept of each sort; a filesystem full of bolt files need not list them all.
const MOST_VALIDATED: usize = 128;
const MOST_MAGIC: usize = 64;
/// Most of one kind and sureness: a thousand directories say no more than these.
const MOST_OF_A_KIND: usize = 32;
const SECTOR: usize = 512;
const BLOCK: usize = 4096;

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
        let alike =
            self.list.iter().filter(|old| old.kind == finding.kind && old.validated == finding.validated).count();
        if room && !known && alike < MOST_OF_A_KIND {
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

/// Parsers of what begins on a sector boundary. Each looks at a magic first, or at what little else rules most sectors out.
const IN_ANY_SECTOR: &[fn(&Piece<'_>) -> Option<Finding>] = &[
    mbr::table,
    journal::block,
    directory::block,
    xfs_log::free_list,
    xfs_log::log_record,
    luks::header,
    luks::json,
    lvm::any,
    md::member,
    etcd::leaf,
    etcd::snapshot,
    other::any,
];

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
            findings.extend(luks::header(&self.piece(data, position)));
        }
        findings.extend(btrfs::superblock(&self.piece(block, offset)));
    }

    /// Adds what begins in the first block of `data`, which was read at `offset`, a multiple of 4096, and is no noise. The bytes
    /// behind the block are for structures that are longer.
    pub(crate) fn written(&self, data: &[u8], offset: u64, findings: &mut Findings) {
        let len = data.len().min(BLOCK);
        for at in (0..len).step_by(SECTOR) {
            let piece = self.piece(data.get(at..).unwrap_or_default(), offset.saturating_add(at as u64));
            findings.extend(IN_ANY_SECTOR.iter().filter_map(|parse| parse(&piece)));
        }
        let whole = self.piece(data, offset);
        findings.extend(btrfs::node(&whole));
        findings.extend(etcd::anywhere(&whole, len));
    }

    fn piece<'d>(&self, data: &'d [u8], at: u64) -> Piece<'d> {
        Piece { data, at, size: self.size }
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

/// Everything that is known by its bytes in `data`, which stands at `offset` of a device of `size` bytes, noise or not: for
/// fuzzing, and for whoever wants to know what a few bytes are.
pub fn signatures(data: &[u8], offset: u64, size: u64) -> Vec<Finding> {
    let search = Search::new(size);
    let mut findings = Findings::default();
    for at in (0..data.len()).step_by(BLOCK) {
        let rest = data.get(at..).unwrap_or_default();
        let position = offset.saturating_add(at as u64);
        search.written(rest, position, &mut findings);
        search.block(rest.get(..BLOCK).unwrap_or(rest), position, &mut findings);
    }
    findings.sorted()
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
