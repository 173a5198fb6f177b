//! The bolt file under etcd 3 (`member/snap/db`): its two meta pages and its page headers.
//!
//! Layout (bbolt v1.4.3 `internal/common/{page,meta}.go`; integers in the byte order of the machine, little-endian on
//! every machine that volhold runs on):
//!
//! ```text
//! page N at N * page_size:  id u64 | flags u16 | count u16 | overflow u32 | …
//! meta, pages 0 and 1, at +16:  magic u32 | version u32 | page_size u32 | flags u32 | root pgid u64 | root sequence u64 |
//!                               freelist u64 | high-water pgid u64 | txid u64 | checksum u64 (FNV-1a 64 of what precedes)
//! ```
//!
//! Transaction N writes meta page N % 2; the valid one with the higher txid counts (`DB.meta`). bbolt before 1.3.7 also
//! takes a checksum of 0; no bolt has ever written one, so here it is a defect.
//!
//! Left out: dbs of big-endian machines (their magic is reversed: reported as a bad magic).

pub mod tree;

use super::bytes::{slice, u16_le, u32_le, u64_le};
use super::read_at::{ReadAt, ReadError, read_up_to};

/// `magic` of a meta page.
pub const MAGIC: u32 = 0xED0C_DAED;
/// The only version there ever was.
pub const VERSION: u32 = 2;
/// Bytes of a page header.
pub const PAGE_HEADER: usize = 16;
/// Bytes from the start of a meta page that [`parse_meta`] needs.
pub const META_BYTES: usize = 80;
/// Page sizes that a machine running etcd can have had.
pub const PAGE_SIZES: std::ops::RangeInclusive<u32> = 1024..=65_536;
/// `meta.freelist` of a db that keeps none (etcd 3.3 and later).
pub const NO_FREELIST: u64 = u64::MAX;

/// Page flags; exactly one is set.
pub mod flags {
    pub const BRANCH: u16 = 0x01;
    pub const LEAF: u16 = 0x02;
    pub const META: u16 = 0x04;
    pub const FREELIST: u16 = 0x10;
}

/// A valid meta page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    pub page_size: u32,
    /// Page of the root bucket.
    pub root: u64,
    /// Page of the freelist, or [`NO_FREELIST`].
    pub freelist: u64,
    /// High-water mark: the first page never used.
    pub high_water: u64,
    pub txid: u64,
}

impl Meta {
    /// What etcd calls dbSize: not the length of the file, which etcd allocates ahead.
    pub fn size(&self) -> u64 {
        self.high_water.saturating_mul(u64::from(self.page_size))
    }
}

/// Why a page is no meta page, in the order in which bbolt looks (`Meta.Validate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MetaDefect {
    #[error("only {got} bytes")]
    Short { got: usize },
    #[error("magic is {found:#010x}, not {MAGIC:#010x}")]
    Magic { found: u32 },
    #[error("version is {found}, not {VERSION}")]
    Version { found: u32 },
    #[error("checksum is {stored:#018x}, its content gives {computed:#018x}")]
    Checksum { stored: u64, computed: u64 },
    #[error("page size {found} is none that a machine has")]
    PageSize { found: u32 },
}

/// Reads one meta page; `page` starts at the page's first byte and may be cut after [`META_BYTES`].
pub fn parse_meta(page: &[u8]) -> Result<Meta, MetaDefect> {
    let short = MetaDefect::Short { got: page.len() };
    let body = slice(page, PAGE_HEADER, 64).ok_or(short)?;
    let magic = u32_le(body, 0).ok_or(short)?;
    if magic != MAGIC {
        return Err(MetaDefect::Magic { found: magic });
    }
    let version = u32_le(body, 4).ok_or(short)?;
    if version != VERSION {
        return Err(MetaDefect::Version { found: version });
    }
    let stored = u64_le(body, 56).ok_or(short)?;
    let computed = fnv1a64(slice(body, 0, 56).ok_or(short)?);
    if stored != computed {
        return Err(MetaDefect::Checksum { stored, computed });
    }
    let page_size = u32_le(body, 8).ok_or(short)?;
    if !PAGE_SIZES.contains(&page_size) || !page_size.is_power_of_two() {
        return Err(MetaDefect::PageSize { found: page_size });
    }
    Ok(Meta {
        page_size,
        root: u64_le(body, 16).ok_or(short)?,
        freelist: u64_le(body, 32).ok_or(short)?,
        high_water: u64_le(body, 40).ok_or(short)?,
        txid: u64_le(body, 48).ok_or(short)?,
    })
}

/// FNV-1a, 64 bit.
fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The 16 bytes before every page's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageHeader {
    pub id: u64,
    pub flags: u16,
    pub count: u16,
    /// Further pages that belong to this one and have no header of their own.
    pub overflow: u32,
}

/// `None` when the slice is shorter than a header.
pub fn parse_page_header(bytes: &[u8]) -> Option<PageHeader> {
    Some(PageHeader {
        id: u64_le(bytes, 0)?,
        flags: u16_le(bytes, 8)?,
        count: u16_le(bytes, 10)?,
        overflow: u32_le(bytes, 12)?,
    })
}

/// Both meta pages of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metas {
    pub first: Result<Meta, MetaDefect>,
    pub second: Result<Meta, MetaDefect>,
}

impl Metas {
    /// The one that bbolt takes: the higher txid of the valid ones.
    pub fn newest(&self) -> Option<Meta> {
        match (self.first, self.second) {
            (Ok(a), Ok(b)) => Some(if b.txid > a.txid { b } else { a }),
            (Ok(meta), Err(_)) | (Err(_), Ok(meta)) => Some(meta),
            (Err(_), Err(_)) => None,
        }
    }
}

/// Reads both metas. The second one's place follows from the page size: the first meta's, or, when that is bad, the place
/// at which a meta stands that names this very distance (bbolt `DB.getPageSize`).
pub fn read_metas(from: &dyn ReadAt) -> Result<Metas, ReadError> {
    let first = read_meta_at(from, 0)?;
    if let Ok(meta) = first {
        return Ok(Metas { first, second: read_meta_at(from, u64::from(meta.page_size))? });
    }
    let mut second = None;
    let mut page_size = *PAGE_SIZES.start();
    while PAGE_SIZES.contains(&page_size) {
        let found = read_meta_at(from, u64::from(page_size))?;
        // Where none is valid, the defect at the usual page size is the telling one.
        if found.is_ok_and(|meta| meta.page_size == page_size) {
            return Ok(Metas { first, second: found });
        }
        if page_size == 4096 {
            second = Some(found);
        }
        page_size = page_size.saturating_mul(2);
    }
    let second = match second {
        // A meta that names another page size than the one it stands at belongs to no db of ours.
        Some(Ok(meta)) => Err(MetaDefect::PageSize { found: meta.page_size }),
        Some(Err(defect)) => Err(defect),
        None => Err(MetaDefect::Short { got: 0 }),
    };
    Ok(Metas { first, second })
}

fn read_meta_at(from: &dyn ReadAt, offset: u64) -> Result<Result<Meta, MetaDefect>, ReadError> {
    let mut page = [0; META_BYTES];
    let got = read_up_to(from, &mut page, offset)?;
    Ok(parse_meta(page.get(..got).unwrap_or(&[])))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
pub(super) mod tests {
    use super::*;

    /// A meta page made by hand from the layout above.
    pub(crate) fn meta_page(page_size: u32, txid: u64) -> Vec<u8> {
        meta_page_of(page_size, txid, 3, u64::MAX, 9)
    }

    pub(crate) fn meta_page_of(page_size: u32, txid: u64, root: u64, freelist: u64, high_water: u64) -> Vec<u8> {
        let mut page = vec![0; 80];
        page[0] = u8::try_from(txid % 2).unwrap();
        page[8] = 4;
        page[16..20].copy_from_slice(&MAGIC.to_le_bytes());
        page[20..24].copy_from_slice(&VERSION.to_le_bytes());
        page[24..28].copy_from_slice(&page_size.to_le_bytes());
        page[32..40].copy_from_slice(&root.to_le_bytes());
        page[48..56].copy_from_slice(&freelist.to_le_bytes());
        page[56..64].copy_from_slice(&high_water.to_le_bytes());
        page[64..72].copy_from_slice(&txid.to_le_bytes());
        let sum = fnv1a64(&page[16..72]);
        page[72..80].copy_from_slice(&sum.to_le_bytes());
        page
    }

    #[test]
    fn a_meta_page_is_read_and_every_bit_of_it_is_guarded() {
        let page = meta_page(4096, 7);
        let meta = parse_meta(&page).unwrap();
        assert_eq!((meta.page_size, meta.root, meta.high_water, meta.txid), (4096, 3, 9, 7));
        assert_eq!(meta.size(), 9 * 4096);
        for bit in 16 * 8..80 * 8 {
            let mut bad = page.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(parse_meta(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_cut_meta_page_is_short() {
        assert_eq!(parse_meta(&meta_page(4096, 7)[..79]), Err(MetaDefect::Short { got: 79 }));
    }

    #[test]
    fn a_checksum_of_zero_is_a_defect_though_old_bolt_took_it() {
        let mut page = meta_page(4096, 7);
        page[72..80].fill(0);
        assert!(matches!(parse_meta(&page), Err(MetaDefect::Checksum { stored: 0, .. })));
    }

    #[test]
    fn page_sizes_that_no_machine_has_are_refused() {
        for size in [0, 512, 1000, 12_288, 131_072] {
            assert_eq!(parse_meta(&meta_page(size, 1)), Err(MetaDefect::PageSize { found: size }));
        }
    }

    #[test]
    fn the_higher_transaction_wins_and_a_bad_one_never_does() {
        for page_size in [1024_u32, 4096, 16_384, 65_536] {
            let mut file = meta_page(page_size, 8);
            file.resize(page_size as usize, 0);
            file.extend(meta_page(page_size, 9));
            assert_eq!(read_metas(&file.as_slice()).unwrap().newest().unwrap().txid, 9);
            file[page_size as usize + 70] ^= 1;
            assert_eq!(read_metas(&file.as_slice()).unwrap().newest().unwrap().txid, 8);
            file[page_size as usize + 70] ^= 1;
            file[70] ^= 1;
            assert_eq!(read_metas(&file.as_slice()).unwrap().newest().unwrap().txid, 9, "page size {page_size}");
            file[page_size as usize + 70] ^= 1;
            assert_eq!(read_metas(&file.as_slice()).unwrap().newest(), None);
        }
    }
}
