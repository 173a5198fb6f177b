//! Tells the kernel which pages a walk will come to.
//!
//! The pages of a bucket lie scattered, and a walk waits for each of them: on a network disk half a millisecond or more. A
//! branch names its children long before they are wanted, so the disk is asked for many at once.

use super::{Budget, Direction, Level, Trees, branch_element, nth};

/// A walk that wants only the first page or two (the newest record) reads nothing besides.
const SHY: usize = 2;
/// How many children are asked for at once. Asked again when half of them is used up, so that the disk never idles.
const BATCH: usize = 64;
/// Pages that lie between two wanted ones and are read along: a seek costs more.
const GAP: u64 = 8;

impl Trees<'_> {
    /// Before the child after `level.taken` others is read: asks for those that follow it.
    pub(super) fn look_ahead(&self, level: &mut Level, direction: Direction, budget: Budget) {
        let page_size = u64::from(self.meta.page_size);
        if level.taken < SHY || level.told > level.taken.saturating_add(BATCH / 2) {
            return;
        }
        let affordable = usize::try_from(budget.bytes.checked_div(page_size).unwrap_or(0).min(budget.pages));
        let count = usize::from(level.page.header.count);
        let from = level.told.max(level.taken);
        let to = level.taken.saturating_add(BATCH.min(affordable.unwrap_or(usize::MAX))).min(count);
        let wanted = (from..to).filter_map(|taken| branch_element(&level.page, nth(direction, taken, count)));
        // Where a pointer leads nowhere, the walk will say so when it comes there.
        let mut pages: Vec<u64> =
            wanted.map(|(_, child)| child).filter(|child| (2..self.meta.high_water).contains(child)).collect();
        pages.sort_unstable();
        for run in pages.chunk_by(|one, next| next.saturating_sub(*one) <= GAP) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                let len = last.saturating_sub(*first).saturating_add(1).saturating_mul(page_size);
                self.from.will_need(self.offset(*first), len);
            }
        }
        level.told = level.told.max(to);
    }
}
