//! The list of free pages held against the pages that were reached (bbolt v1.4.3 `internal/freelist/shared.go`).
//!
//! A db without one (etcd 3.3 and later) has for free what no tree reaches; then nothing can be lost.

use super::super::bolt::{Meta, NO_FREELIST, PAGE_HEADER, flags, parse_page_header};
use super::super::bytes::u64_le;
use super::super::read_at::{ReadAt, read_exact, read_up_to};
use super::seen::Seen;
use super::walk::Walk;
use crate::model::FaultKind;

/// Numbers read at a time.
const PIECE: u64 = 8192;
const PIECE_BYTES: usize = 65_536;
/// `count` of a list whose real length is its first number.
const LONG: u16 = 0xffff;

pub(super) fn check(from: &dyn ReadAt, meta: Meta, size: u64, walk: &mut Walk<'_>) {
    let in_file = size.div_ceil(u64::from(meta.page_size).max(1));
    let pages = meta.high_water.min(in_file);
    if meta.freelist == NO_FREELIST {
        walk.counts.free = meta.high_water.saturating_sub(2).saturating_sub(walk.seen.count());
        return;
    }
    let Some((list, wanted)) = head(from, meta, size, walk) else { return };
    let mut free = Seen::new(pages);
    let mut done = 0_u64;
    let mut buf = vec![0; PIECE_BYTES];
    while done < wanted {
        let now = wanted.saturating_sub(done).min(PIECE);
        let len = usize::try_from(now.saturating_mul(8)).unwrap_or(0);
        let Some(part) = buf.get_mut(..len) else { return };
        if let Err(error) = read_exact(from, part, list.saturating_add(done.saturating_mul(8))) {
            return walk.fault(
                meta.freelist,
                FaultKind::Freelist,
                format!("is a freelist that cannot be read: {error}"),
            );
        }
        for n in 0..usize::try_from(now).unwrap_or(0) {
            let Some(page) = u64_le(part, n.saturating_mul(8)) else { return };
            if page < 2 || page >= meta.high_water {
                walk.fault(page, FaultKind::Freelist, "is called free, and no tree could have used it");
            } else if walk.seen.contains(page) {
                walk.fault(page, FaultKind::FreeButUsed, "is called free, and a tree reaches it");
            } else if page < pages && !free.insert(page) {
                walk.fault(page, FaultKind::FreeTwice, "is called free twice");
            }
        }
        done = done.saturating_add(now);
    }
    walk.counts.free = free.count();
    for page in 2..pages {
        if !walk.seen.contains(page) && !free.contains(page) {
            walk.fault(page, FaultKind::Lost, "is neither free nor in use");
        }
    }
}

/// Where the numbers begin, and how many there are.
fn head(from: &dyn ReadAt, meta: Meta, size: u64, walk: &mut Walk<'_>) -> Option<(u64, u64)> {
    let id = meta.freelist;
    let mut bad = |what: String| {
        walk.fault(id, FaultKind::Freelist, what);
        None
    };
    if id < 2 || id >= meta.high_water {
        return bad(format!("is named as freelist, but pages in use are 2 to {}", meta.high_water));
    }
    let at = walk_offset(id, meta);
    let mut bytes = [0; PAGE_HEADER + 8];
    let got = match read_up_to(from, &mut bytes, at) {
        Ok(got) => got,
        Err(error) => return bad(format!("is the freelist, and cannot be read: {error}")),
    };
    let Some(header) = parse_page_header(bytes.get(..got).unwrap_or(&[])) else {
        return bad("is the freelist, and lies behind the end of the file".to_owned());
    };
    if header.id != id || header.flags != flags::FREELIST {
        return bad(format!("is named as freelist, and says number {}, type bits {:#06x}", header.id, header.flags));
    }
    let run = u64::from(header.overflow).saturating_add(1);
    if id.saturating_add(run) > meta.high_water {
        return bad(format!("is a freelist of {run} pages, which do not fit below {}", meta.high_water));
    }
    if id.saturating_add(run).saturating_mul(u64::from(meta.page_size)) > size {
        return bad(format!("is a freelist of {run} pages, and the file ends at {size}"));
    }
    let room = run.saturating_mul(u64::from(meta.page_size)).saturating_sub(PAGE_HEADER as u64) / 8;
    let (skip, wanted) = match header.count {
        LONG => (8_u64, u64_le(&bytes, PAGE_HEADER).unwrap_or(0)),
        count => (0, u64::from(count)),
    };
    if wanted > room.saturating_sub(skip / 8) {
        return bad(format!("is a freelist of {wanted} numbers, and has room for {room}"));
    }
    for page in id..id.saturating_add(run) {
        if !walk.seen.insert(page) && page < meta.high_water {
            walk.fault(page, FaultKind::Twice, "belongs to the freelist, and a tree reaches it");
        }
    }
    walk.counts.freelist = run;
    Some((at.saturating_add(PAGE_HEADER as u64).saturating_add(skip), wanted))
}

fn walk_offset(page: u64, meta: Meta) -> u64 {
    page.saturating_mul(u64::from(meta.page_size))
}
