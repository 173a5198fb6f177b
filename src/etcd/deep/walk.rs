//! The walk over every page that the newest meta page reaches.
//!
//! What bbolt's own check looks at (bbolt v1.4.3 `tx_check.go`: bounds, double references, types, order of keys, agreement
//! with the freelist), and what it leaves out: page numbers, bounds of every element, what is in inline buckets. A fault
//! does not end the walk: the page is left out, its siblings are visited.
//!
//! The stack is a vector, and everything on it is bounded: a loop or a tree that is too deep ends as a fault.

use super::super::bolt::{Meta, PAGE_HEADER, PageHeader, flags, parse_page_header};
use super::super::bytes::u64_le;
use super::super::read_at::{ReadAt, ReadError};
use super::elements::{branch, branch_element, leaf};
use super::seen::Seen;
use super::window::{AHEAD, Window};
use crate::model::{FaultKind, PageCounts, PageFault};

const MAX_DEPTH: usize = 64;
/// Longest run of pages that belongs together. etcd refuses requests far below that (`--max-request-bytes`, 1.5 MiB).
const MAX_RUN: u64 = 64 << 20;
/// Bytes of branch pages on the stack at one time; a sound one has some ten KiB.
const MAX_STACK: usize = 16 << 20;
/// etcd has about a dozen buckets.
const MAX_BUCKETS: usize = 256;
/// Longest value of a bucket: an inline page, which is at most a quarter of a page of 64 KiB.
const MAX_BUCKET_VALUE: usize = 64 << 10;
/// Faults that are listed. All are counted.
const MAX_FAULTS: usize = 100;
/// Gap between two siblings that is read over rather than leapt.
const GAP: u64 = 8;

/// What is done with the items.
pub(super) trait Visitor {
    fn begin(&mut self, bucket: &[u8]);
    /// One item: `page` has the bytes of the page, `key` and `value` lie next to each other in it.
    fn item(&mut self, place: Place, page: &[u8], item: Span);
    /// The items of a page are over.
    fn end_page(&mut self, page: &[u8]);
    /// Something of this bucket was left out.
    fn broken(&mut self);
    fn end(&mut self);
    /// Items that are buckets belong here: true of the root bucket alone.
    fn holds_buckets(&self) -> bool {
        false
    }
    /// From time to time: how many pages were read.
    fn progress(&mut self, _pages: u64) {}
}

/// Where an item stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub page: u64,
    pub offset: u64,
}

/// An item within its page: key from `key` to `value`, value from `value` to `end`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub key: usize,
    pub value: usize,
    pub end: usize,
    pub bucket: bool,
}

/// One branch page on the stack.
struct Level {
    bytes: Vec<u8>,
    count: usize,
    next: usize,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    /// Its children are branches too: what lies behind one is not what is visited next.
    above: bool,
}

/// A page that is to be visited.
struct Visit {
    id: u64,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    /// Byte up to which its siblings lie close together.
    until: u64,
}

pub(super) struct Walk<'a> {
    window: Window<'a>,
    meta: Meta,
    file_size: u64,
    pub seen: Seen,
    pub counts: PageCounts,
    pub faults: Vec<PageFault>,
    pub fault_count: u64,
    /// Faults of pages that claim to be others, and which.
    claimed: Vec<(usize, u64)>,
    bucket: Option<String>,
    pages: u64,
}

impl<'a> Walk<'a> {
    pub fn new(from: &'a dyn ReadAt, meta: Meta, file_size: u64) -> Self {
        let in_file = file_size.div_ceil(u64::from(meta.page_size).max(1));
        Walk {
            window: Window::new(from),
            meta,
            file_size,
            seen: Seen::new(meta.high_water.min(in_file)),
            counts: PageCounts::default(),
            faults: Vec::new(),
            fault_count: 0,
            claimed: Vec::new(),
            bucket: None,
            pages: 0,
        }
    }

    pub fn bytes_read(&self) -> u64 {
        self.window.bytes_read
    }

    /// Visits the root bucket and then every bucket in it, in order of name.
    pub fn everything(&mut self, visitor: &mut dyn Visitor) {
        let mut names = Names::default();
        self.tree(self.meta.root, &mut names);
        for fault in std::mem::take(&mut names.faults) {
            self.fault(fault.0, fault.1, fault.2);
        }
        for (name, value, page) in std::mem::take(&mut names.found) {
            self.bucket = Some(super::super::bytes::printable(&name));
            visitor.begin(&name);
            self.one(&value, page, visitor);
            visitor.end();
        }
        self.bucket = None;
        for (fault, claimed) in std::mem::take(&mut self.claimed) {
            let free = claimed < self.meta.high_water && !self.seen.contains(claimed);
            if let Some(fault) = self.faults.get_mut(fault).filter(|_| !free) {
                fault.kind = FaultKind::OtherIdInUse;
            }
        }
    }

    fn one(&mut self, value: &[u8], page: u64, visitor: &mut dyn Visitor) {
        let Some(root) = u64_le(value, 0).filter(|_| value.len() >= PAGE_HEADER) else {
            visitor.broken();
            return self.fault(page, FaultKind::BucketValue, "holds a bucket whose value is cut");
        };
        if root != 0 {
            return self.tree(root, visitor);
        }
        self.counts.inline = self.counts.inline.saturating_add(1);
        let image = value.get(PAGE_HEADER..).unwrap_or(&[]);
        let Some(header) = parse_page_header(image) else {
            visitor.broken();
            return self.fault(page, FaultKind::Inline, "holds an inline bucket without a page in it");
        };
        if header.id != 0 || header.flags != flags::LEAF {
            let what =
                format!("holds an inline bucket whose page says number {}, type bits {:#06x}", header.id, header.flags);
            visitor.broken();
            return self.fault(page, FaultKind::Inline, what);
        }
        if let Err((kind, what)) = leaf(image, header, page, self.offset(page), None, None, visitor) {
            visitor.broken();
            // An element of an inline page is told from one of a page, for bbolt treats them differently.
            let kind = if kind == FaultKind::Element { FaultKind::Inline } else { kind };
            self.fault(page, kind, format!("holds an inline bucket that {what}"));
        }
        visitor.end_page(image);
    }

    fn tree(&mut self, root: u64, visitor: &mut dyn Visitor) {
        let mut stack: Vec<Level> = Vec::new();
        let mut held = 0_usize;
        let mut next = Some(Visit { id: root, lower: None, upper: None, until: 0 });
        loop {
            if let Some(visit) = next.take() {
                if stack.len() >= MAX_DEPTH {
                    visitor.broken();
                    self.fault(visit.id, FaultKind::Depth, format!("lies more than {MAX_DEPTH} levels deep"));
                } else {
                    let depth = u64::try_from(stack.len()).unwrap_or(0).saturating_add(1);
                    self.counts.deepest = self.counts.deepest.max(depth);
                    if let Some(level) = self.page(visit, MAX_STACK.saturating_sub(held), visitor) {
                        held = held.saturating_add(level.bytes.len());
                        if let Some(parent) = stack.last_mut() {
                            parent.above = true;
                        }
                        stack.push(level);
                    }
                }
            }
            let Some(level) = stack.last_mut() else { return };
            if level.next >= level.count {
                held = held.saturating_sub(level.bytes.len());
                stack.pop();
                continue;
            }
            let mut visit = child(level, u64::from(self.meta.page_size));
            visit.until = visit.until.min(self.file_size);
            next = Some(visit);
        }
    }

    /// Visits one page. A branch is returned, to be put on the stack.
    fn page(&mut self, visit: Visit, room: usize, visitor: &mut dyn Visitor) -> Option<Level> {
        let (header, len) = match self.header(visit.id, visit.until) {
            Ok(found) => found,
            Err((kind, what)) => {
                visitor.broken();
                self.fault(visit.id, kind, what);
                return None;
            }
        };
        self.pages = self.pages.saturating_add(1);
        if self.pages & 0x3fff == 0 {
            visitor.progress(self.pages);
        }
        let offset = self.offset(visit.id);
        let read = self.window.bytes(offset, len, visit.until);
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => {
                visitor.broken();
                let (kind, what) = unreadable(&error);
                self.fault(visit.id, kind, what);
                return None;
            }
        };
        let (lower, upper) = (visit.lower.as_deref(), visit.upper.as_deref());
        let further = u64::from(header.overflow);
        self.counts.overflow = self.counts.overflow.saturating_add(further);
        if header.flags == flags::LEAF {
            self.counts.leaf = self.counts.leaf.saturating_add(1);
            let found = leaf(bytes, header, visit.id, offset, lower, upper, visitor);
            visitor.end_page(bytes);
            if let Err((kind, what)) = found {
                visitor.broken();
                self.fault(visit.id, kind, what);
            }
            return None;
        }
        self.counts.branch = self.counts.branch.saturating_add(1);
        let whole = if header.count == 0 {
            Err((FaultKind::EmptyBranch, "has no elements though it is a branch".to_owned()))
        } else if len > room {
            Err((FaultKind::Run, format!("is a branch of {len} bytes")))
        } else {
            branch(bytes, header, lower, upper)
        };
        match whole {
            Ok(()) => {}
            // The order is wrong, the pointers are not: what is below belongs to the tree all the same.
            Err((kind @ (FaultKind::Order | FaultKind::Parent), what)) => {
                let bytes = bytes.to_vec();
                visitor.broken();
                self.fault(visit.id, kind, what);
                let count = usize::from(header.count);
                return Some(Level { bytes, count, next: 0, lower: None, upper: None, above: false });
            }
            Err((kind, what)) => {
                visitor.broken();
                self.fault(visit.id, kind, what);
                return None;
            }
        }
        let (bytes, count) = (bytes.to_vec(), usize::from(header.count));
        Some(Level { bytes, count, next: 0, lower: visit.lower, upper: visit.upper, above: false })
    }

    /// Checks what stands before a page's content, and how far it reaches; marks its pages as reached.
    fn header(&mut self, id: u64, until: u64) -> Result<(PageHeader, usize), (FaultKind, String)> {
        self.bounds(id, 0)?;
        let offset = self.offset(id);
        // One page at least lies in the file, see above.
        let page = usize::try_from(self.meta.page_size).unwrap_or(0);
        let read = self.window.bytes(offset, page, until);
        let header = read.map_err(|error| unreadable(&error)).map(parse_page_header)?;
        let header = header.ok_or((FaultKind::Type, "is shorter than a page's head".to_owned()))?;
        if !self.seen.insert(id) {
            return Err((FaultKind::Twice, "is reached twice".to_owned()));
        }
        if header.flags != flags::LEAF && header.flags != flags::BRANCH {
            let what = format!("has type bits {:#06x}, a branch or leaf page was expected", header.flags);
            return Err((FaultKind::Type, what));
        }
        if header.id != id {
            self.claimed.push((self.faults.len(), header.id));
            return Err((FaultKind::OtherId, format!("says that it is page {}", header.id)));
        }
        self.bounds(id, header.overflow)?;
        let pages = u64::from(header.overflow).saturating_add(1);
        let run = pages.saturating_mul(u64::from(self.meta.page_size));
        let len = usize::try_from(run).ok().filter(|_| run <= MAX_RUN);
        let len = len.ok_or_else(|| (FaultKind::Run, format!("says that {} pages belong to it", header.overflow)))?;
        for more in 1..pages {
            let page = id.saturating_add(more);
            if !self.seen.insert(page) {
                return Err((FaultKind::Twice, format!("goes on to page {page}, which is reached twice")));
            }
        }
        Ok((header, len))
    }

    fn bounds(&self, id: u64, overflow: u32) -> Result<(), (FaultKind, String)> {
        let past = id.checked_add(u64::from(overflow)).and_then(|last| last.checked_add(1));
        let Some(past) = past.filter(|past| id >= 2 && *past <= self.meta.high_water) else {
            let what = format!("is named by a pointer, but pages in use are 2 to {}", self.meta.high_water);
            return Err((FaultKind::OutOfBounds, what));
        };
        match past.checked_mul(u64::from(self.meta.page_size)) {
            Some(end) if end <= self.file_size => Ok(()),
            Some(_) | None => {
                Err((FaultKind::BeyondFile, format!("lies behind the end of the file, at {}", self.file_size)))
            }
        }
    }

    pub fn offset(&self, page: u64) -> u64 {
        page.saturating_mul(u64::from(self.meta.page_size))
    }

    pub fn fault(&mut self, page: u64, kind: FaultKind, what: impl Into<String>) {
        self.fault_count = self.fault_count.saturating_add(1);
        if self.faults.len() < MAX_FAULTS {
            let message = format!("page {page} {}", what.into());
            let (bucket, offset) = (self.bucket.clone(), self.offset(page));
            self.faults.push(PageFault { bucket, page, offset, kind, message });
        }
    }
}

fn unreadable(error: &ReadError) -> (FaultKind, String) {
    match error {
        ReadError::Io { source, .. } => (FaultKind::Unreadable, format!("cannot be read: {error}: {source}")),
        ReadError::Short { .. } => (FaultKind::BeyondFile, format!("is cut: {error}")),
    }
}

/// The next child of a branch, with the keys that it may hold.
fn child(level: &mut Level, page_size: u64) -> Visit {
    let index = level.next;
    level.next = index.saturating_add(1);
    let at = |index: usize| if index < level.count { branch_element(&level.bytes, index) } else { None };
    // Elements were checked when the page came.
    let (key, id) = at(index).unwrap_or((&[], 0));
    let upper = match at(level.next) {
        Some((key, _)) => Some(key.to_vec()),
        None => level.upper.clone(),
    };
    let lower = Some(key.to_vec()).max(level.lower.clone());
    let mut last = id;
    let mut further = level.next;
    while !level.above
        && let Some((_, sibling)) = at(further)
        && sibling > last
        && sibling.saturating_sub(last) <= GAP
        && sibling.saturating_sub(id).saturating_mul(page_size) < AHEAD
    {
        last = sibling;
        further = further.saturating_add(1);
    }
    Visit { id, lower, upper, until: last.saturating_add(1).saturating_mul(page_size) }
}

/// Collects the buckets out of the root bucket.
#[derive(Default)]
struct Names {
    found: Vec<(Vec<u8>, Vec<u8>, u64)>,
    faults: Vec<(u64, FaultKind, String)>,
}

impl Visitor for Names {
    fn holds_buckets(&self) -> bool {
        true
    }

    fn begin(&mut self, _bucket: &[u8]) {}

    fn item(&mut self, place: Place, page: &[u8], item: Span) {
        let (Some(key), Some(value)) = (page.get(item.key..item.value), page.get(item.value..item.end)) else { return };
        // A value that is no inline page is 16 bytes; an inline one at most a quarter of a page.
        if !item.bucket {
            let what = "holds a plain key among the buckets, which etcd never makes".to_owned();
            self.faults.push((place.page, FaultKind::Nested, what));
        } else if value.len() > MAX_BUCKET_VALUE {
            let what = format!("holds a bucket whose value has {} bytes", value.len());
            self.faults.push((place.page, FaultKind::BucketValue, what));
        } else if self.found.len() < MAX_BUCKETS {
            self.found.push((key.to_vec(), value.to_vec(), place.page));
        } else if self.found.len() == MAX_BUCKETS && self.faults.len() < MAX_BUCKETS {
            let what = format!("holds more than {MAX_BUCKETS} buckets; etcd has a dozen");
            self.faults.push((place.page, FaultKind::Nested, what));
        }
    }

    fn end_page(&mut self, _page: &[u8]) {}
    fn broken(&mut self) {}
    fn end(&mut self) {}
}
