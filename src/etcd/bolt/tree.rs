//! Walks over the B+trees of a bolt file, without trusting any of them.
//!
//! ```text
//! leaf page:    header | count × (flags u32 | pos u32 | ksize u32 | vsize u32) | keys and values
//! branch page:  header | count × (pos u32 | ksize u32 | child pgid u64)        | keys
//! bucket value: root pgid u64 | sequence u64 [| a whole leaf page, when root is 0: an inline bucket]
//! ```
//!
//! `pos` counts from the element's own address. A leaf element with flag 1 is a bucket (bbolt v1.4.3
//! `internal/common/{page,inode,bucket}.go`).
//!
//! Every page that is visited must be the page that was asked for, lie below the high-water mark and inside the file, be a
//! branch or a leaf, hold what it counts, in ascending order and within the keys of its parent, and be visited once. The
//! walk keeps its own stack (no recursion), and ends when its [`Budget`] does.

mod ahead;

use super::super::bytes::{slice, u32_le, u64_le};
use super::super::read_at::{ReadAt, ReadError, read_exact};
use super::{Meta, PAGE_HEADER, PageHeader, flags, parse_page_header};
use std::collections::HashSet;

/// Bytes of one element of a branch or leaf page.
const ELEMENT: usize = 16;
/// Deeper than any tree that fits into 2^64 pages of two children.
const MAX_DEPTH: usize = 64;
/// Longest run of pages that belongs together. etcd refuses requests far below that (`--max-request-bytes`, 1.5 MiB).
const MAX_RUN: u64 = 64 << 20;

/// What a walk may still read.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub bytes: u64,
    pub pages: u64,
}

impl Budget {
    /// So many MiB, in however many pages.
    pub fn mib(mib: u64) -> Self {
        Budget { bytes: mib.saturating_mul(1 << 20), pages: mib.saturating_mul(1024) }
    }
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Everything was visited.
    Complete,
    /// The visitor had enough.
    Stopped,
    /// The budget is used up.
    Budget,
}

/// What a visitor wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    On,
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// One key with its value; `bucket`: the value is a bucket.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub bucket: bool,
}

/// Where a bucket's tree begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bucket {
    Page(u64),
    /// The page image inside the bucket's value.
    Inline(Vec<u8>),
}

/// A page that is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("page {page} cannot be read")]
    Read {
        page: u64,
        #[source]
        source: ReadError,
    },
    #[error("page {page} {what}")]
    Page { page: u64, offset: u64, what: PageDefect },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageDefect {
    #[error("is named by a pointer but lies beyond the high-water mark {high_water}")]
    OutOfBounds { high_water: u64 },
    #[error("reaches to byte {end}, the file ends at {size}")]
    BeyondFile { end: u64, size: u64 },
    #[error("says that it is page {found}")]
    OtherId { found: u64 },
    #[error("has type bits {found:#06x}, a {wanted} page was expected")]
    Type { found: u16, wanted: &'static str },
    #[error("says that {overflow} further pages belong to it")]
    Run { overflow: u32 },
    #[error("has no elements though it is a branch")]
    EmptyBranch,
    #[error("has an element (number {index} of {count}) that lies outside of it")]
    Element { index: usize, count: u16 },
    #[error("has keys out of order at element {index}")]
    Order { index: usize },
    #[error("holds keys that do not belong below its parent")]
    Parent,
    #[error("is reached twice")]
    Twice,
    #[error("lies more than {MAX_DEPTH} levels deep")]
    Depth,
    #[error("holds a bucket whose value is cut")]
    BucketValue,
    #[error("holds an inline bucket with page number {id}, type bits {flags:#06x}")]
    Inline { id: u64, flags: u16 },
}

/// The trees of one state of the file, as one meta page names them.
pub struct Trees<'a> {
    from: &'a dyn ReadAt,
    meta: Meta,
    file_size: u64,
}

/// A page in memory, with its elements checked.
struct Page {
    bytes: Vec<u8>,
    header: PageHeader,
}

/// One level of the walk's stack.
struct Level {
    page: Page,
    id: u64,
    /// How many elements were taken from the end that the walk began with.
    taken: usize,
    /// How many of them the kernel was told of before.
    told: usize,
    /// Keys below must be at least this…
    lower: Option<Vec<u8>>,
    /// …and less than that.
    upper: Option<Vec<u8>>,
}

impl<'a> Trees<'a> {
    pub fn new(from: &'a dyn ReadAt, meta: Meta, file_size: u64) -> Self {
        Trees { from, meta, file_size }
    }

    /// The root bucket, which holds the others.
    pub fn root(&self) -> Bucket {
        Bucket::Page(self.meta.root)
    }

    /// Byte offset of a page.
    pub fn offset(&self, page: u64) -> u64 {
        page.saturating_mul(u64::from(self.meta.page_size))
    }

    /// The freelist page, where the db keeps one, must be one: bbolt panics at open otherwise.
    pub fn check_freelist(&self) -> Result<(), TreeError> {
        if self.meta.freelist == super::NO_FREELIST {
            return Ok(());
        }
        let id = self.meta.freelist;
        self.check_bounds(id, 0)?;
        let header = self.header(id)?;
        if header.flags != flags::FREELIST {
            return Err(self.bad(id, PageDefect::Type { found: header.flags, wanted: "freelist" }));
        }
        self.check_bounds(id, header.overflow)
    }

    /// Reads a bucket's value as found in a leaf.
    pub fn bucket(&self, page: u64, value: &[u8]) -> Result<Bucket, TreeError> {
        let root = u64_le(value, 0).ok_or_else(|| self.bad(page, PageDefect::BucketValue))?;
        if root != 0 {
            return Ok(Bucket::Page(root));
        }
        let image = value.get(PAGE_HEADER..).filter(|image| image.len() >= PAGE_HEADER);
        Ok(Bucket::Inline(image.ok_or_else(|| self.bad(page, PageDefect::BucketValue))?.to_vec()))
    }

    /// Hands every item of a bucket to `visit`, in order of key or against it. `page` is told with every item for messages.
    pub fn walk(
        &self,
        bucket: &Bucket,
        direction: Direction,
        budget: &mut Budget,
        visit: &mut dyn FnMut(u64, Item<'_>) -> Result<Flow, TreeError>,
    ) -> Result<Ended, TreeError> {
        let root = match bucket {
            Bucket::Inline(image) => {
                let page = self.inline(image)?;
                return self.visit_leaf(&page, 0, direction, visit);
            }
            Bucket::Page(root) => *root,
        };
        let mut seen = HashSet::new();
        let mut stack: Vec<Level> = Vec::new();
        let mut next = Some((root, None, None));
        loop {
            if let Some((id, lower, upper)) = next.take() {
                if stack.len() >= MAX_DEPTH {
                    return Err(self.bad(id, PageDefect::Depth));
                }
                if !seen.insert(id) {
                    return Err(self.bad(id, PageDefect::Twice));
                }
                let Some(page) = self.load(id, budget)? else { return Ok(Ended::Budget) };
                self.check_elements(id, &page, lower.as_deref(), upper.as_deref())?;
                if page.header.flags == flags::LEAF {
                    match self.visit_leaf(&page, id, direction, visit)? {
                        Ended::Complete => {}
                        ended @ (Ended::Stopped | Ended::Budget) => return Ok(ended),
                    }
                } else {
                    stack.push(Level { page, id, taken: 0, told: 0, lower, upper });
                }
            }
            let Some(level) = stack.last_mut() else { return Ok(Ended::Complete) };
            let count = usize::from(level.page.header.count);
            if level.taken >= count {
                stack.pop();
                continue;
            }
            self.look_ahead(level, direction, *budget);
            let index = nth(direction, level.taken, count);
            level.taken = level.taken.saturating_add(1);
            let (key, child) = match branch_element(&level.page, index) {
                Some((key, child)) => (key.to_vec(), child),
                None => {
                    let what = PageDefect::Element { index, count: level.page.header.count };
                    return Err(self.bad(level.id, what));
                }
            };
            let upper = match branch_element(&level.page, index.saturating_add(1)) {
                Some((key, _)) => Some(key.to_vec()),
                None => level.upper.clone(),
            };
            // The first child may hold keys below its own separator only where nothing bounds the parent from below.
            let lower = if index == 0 { level.lower.clone() } else { Some(key) };
            next = Some((child, lower, upper));
        }
    }

    fn visit_leaf(
        &self,
        page: &Page,
        id: u64,
        direction: Direction,
        visit: &mut dyn FnMut(u64, Item<'_>) -> Result<Flow, TreeError>,
    ) -> Result<Ended, TreeError> {
        let count = usize::from(page.header.count);
        for step in 0..count {
            let index = nth(direction, step, count);
            let item = leaf_element(page, index)
                .ok_or_else(|| self.bad(id, PageDefect::Element { index, count: page.header.count }))?;
            if visit(id, item)? == Flow::Stop {
                return Ok(Ended::Stopped);
            }
        }
        Ok(Ended::Complete)
    }

    fn inline(&self, image: &[u8]) -> Result<Page, TreeError> {
        let bytes = image.to_vec();
        let header = parse_page_header(&bytes).ok_or_else(|| self.bad(0, PageDefect::BucketValue))?;
        if header.id != 0 || header.flags != flags::LEAF {
            return Err(self.bad(0, PageDefect::Inline { id: header.id, flags: header.flags }));
        }
        let page = Page { bytes, header };
        self.check_elements(0, &page, None, None)?;
        Ok(page)
    }

    /// `None`: the budget does not cover it.
    fn load(&self, id: u64, budget: &mut Budget) -> Result<Option<Page>, TreeError> {
        self.check_bounds(id, 0)?;
        // The page at once, and not its head first: each read of a page that is not in memory yet waits for the disk.
        let mut bytes = vec![0; usize::try_from(self.meta.page_size).unwrap_or(PAGE_HEADER)];
        let unreadable = |source| TreeError::Read { page: id, source };
        read_exact(self.from, &mut bytes, self.offset(id)).map_err(unreadable)?;
        let header = self.head(id, &bytes)?;
        if header.flags != flags::LEAF && header.flags != flags::BRANCH {
            return Err(self.bad(id, PageDefect::Type { found: header.flags, wanted: "branch or leaf" }));
        }
        if header.flags == flags::BRANCH && header.count == 0 {
            return Err(self.bad(id, PageDefect::EmptyBranch));
        }
        self.check_bounds(id, header.overflow)?;
        let pages = u64::from(header.overflow).saturating_add(1);
        let run = pages.saturating_mul(u64::from(self.meta.page_size));
        let len = match usize::try_from(run) {
            Ok(len) if run <= MAX_RUN => len,
            Ok(_) | Err(_) => return Err(self.bad(id, PageDefect::Run { overflow: header.overflow })),
        };
        if budget.bytes < run || budget.pages < 1 {
            return Ok(None);
        }
        budget.bytes = budget.bytes.saturating_sub(run);
        budget.pages = budget.pages.saturating_sub(1);
        let first = bytes.len();
        bytes.resize(len, 0);
        if let Some(rest) = bytes.get_mut(first..) {
            let at = self.offset(id.saturating_add(1));
            read_exact(self.from, rest, at).map_err(unreadable)?;
        }
        Ok(Some(Page { bytes, header }))
    }

    fn header(&self, id: u64) -> Result<PageHeader, TreeError> {
        let mut bytes = [0; PAGE_HEADER];
        read_exact(self.from, &mut bytes, self.offset(id)).map_err(|source| TreeError::Read { page: id, source })?;
        self.head(id, &bytes)
    }

    fn head(&self, id: u64, bytes: &[u8]) -> Result<PageHeader, TreeError> {
        let header = parse_page_header(bytes).ok_or_else(|| self.bad(id, PageDefect::BucketValue))?;
        if header.id != id {
            return Err(self.bad(id, PageDefect::OtherId { found: header.id }));
        }
        Ok(header)
    }

    fn check_bounds(&self, id: u64, overflow: u32) -> Result<(), TreeError> {
        let past = id.checked_add(u64::from(overflow)).and_then(|last| last.checked_add(1));
        let past = past.filter(|past| id >= 2 && *past <= self.meta.high_water);
        let Some(past) = past else {
            return Err(self.bad(id, PageDefect::OutOfBounds { high_water: self.meta.high_water }));
        };
        let end = past.checked_mul(u64::from(self.meta.page_size));
        match end {
            Some(end) if end <= self.file_size => Ok(()),
            Some(_) | None => {
                let end = end.unwrap_or(u64::MAX);
                Err(self.bad(id, PageDefect::BeyondFile { end, size: self.file_size }))
            }
        }
    }

    fn check_elements(
        &self,
        id: u64,
        page: &Page,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<(), TreeError> {
        let mut before: Option<&[u8]> = None;
        for index in 0..usize::from(page.header.count) {
            let key = if page.header.flags == flags::BRANCH {
                branch_element(page, index).map(|(key, _)| key)
            } else {
                leaf_element(page, index).map(|item| item.key)
            };
            let key = key.ok_or_else(|| self.bad(id, PageDefect::Element { index, count: page.header.count }))?;
            if before.is_some_and(|before| before >= key) {
                return Err(self.bad(id, PageDefect::Order { index }));
            }
            if lower.is_some_and(|lower| key < lower) || upper.is_some_and(|upper| key >= upper) {
                return Err(self.bad(id, PageDefect::Parent));
            }
            before = Some(key);
        }
        Ok(())
    }

    /// A defect of this page.
    pub fn bad(&self, page: u64, what: PageDefect) -> TreeError {
        TreeError::Page { page, offset: self.offset(page), what }
    }
}

/// The index of the element that is taken after `taken` others.
fn nth(direction: Direction, taken: usize, count: usize) -> usize {
    match direction {
        Direction::Forward => taken,
        Direction::Backward => count.saturating_sub(taken).saturating_sub(1),
    }
}

fn leaf_element(page: &Page, index: usize) -> Option<Item<'_>> {
    let at = element_at(page, index)?;
    let bytes = &page.bytes;
    let kind = u32_le(bytes, at)?;
    let pos = usize::try_from(u32_le(bytes, at.checked_add(4)?)?).ok()?;
    let ksize = usize::try_from(u32_le(bytes, at.checked_add(8)?)?).ok()?;
    let vsize = usize::try_from(u32_le(bytes, at.checked_add(12)?)?).ok()?;
    let key_at = at.checked_add(pos)?;
    let key = slice(bytes, key_at, ksize)?;
    let value = slice(bytes, key_at.checked_add(ksize)?, vsize)?;
    Some(Item { key, value, bucket: kind & 1 != 0 })
}

fn branch_element(page: &Page, index: usize) -> Option<(&[u8], u64)> {
    let at = element_at(page, index)?;
    let bytes = &page.bytes;
    let pos = usize::try_from(u32_le(bytes, at)?).ok()?;
    let ksize = usize::try_from(u32_le(bytes, at.checked_add(4)?)?).ok()?;
    let child = u64_le(bytes, at.checked_add(8)?)?;
    Some((slice(bytes, at.checked_add(pos)?, ksize)?, child))
}

fn element_at(page: &Page, index: usize) -> Option<usize> {
    if index >= usize::from(page.header.count) {
        return None;
    }
    PAGE_HEADER.checked_add(index.checked_mul(ELEMENT)?)
}

#[cfg(test)]
#[path = "tree/tests.rs"]
mod tests;
