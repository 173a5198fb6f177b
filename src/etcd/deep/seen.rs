//! Which pages were reached: one bit a page, for as many as the file has.

/// A set of page numbers below a bound.
pub(super) struct Seen {
    bits: Vec<u64>,
    count: u64,
}

impl Seen {
    /// For pages below `pages`. The caller has bounded it by the size of the file.
    pub fn new(pages: u64) -> Self {
        let words = usize::try_from(pages.div_ceil(64)).unwrap_or(0);
        Seen { bits: vec![0; words], count: 0 }
    }

    /// Adds a page; `false`: it was there already, or lies beyond the bound.
    pub fn insert(&mut self, page: u64) -> bool {
        let word = usize::try_from(page >> 6).ok().and_then(|at| self.bits.get_mut(at));
        let Some(word) = word else { return false };
        let bit = 1_u64 << (page & 63);
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.count = self.count.saturating_add(1);
        true
    }

    pub fn contains(&self, page: u64) -> bool {
        let word = usize::try_from(page >> 6).ok().and_then(|at| self.bits.get(at));
        word.is_some_and(|word| word & (1_u64 << (page & 63)) != 0)
    }

    pub fn count(&self) -> u64 {
        self.count
    }
}
