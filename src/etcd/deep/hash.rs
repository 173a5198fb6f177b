//! The two hashes that etcd computes over a backend.
//!
//! `snapshot status`: CRC-32C over every bucket's name and every key and value, in order (etcd v3.6.12
//! `etcdutl/snapshot/v3_snapshot.go`).
//!
//! `HashKV` at revision R: CRC-32C over `key` and over the records of that bucket up to R, without those that a compaction up
//! to C has made superfluous, wherever they still lie in the file: of the records up to C only a key's newest up to R counts,
//! and none that is a deletion. Where nothing is kept, nothing is left out. Since 3.4.34 and 3.5.16 a deletion at exactly C is
//! left out always (`server/storage/mvcc/hash.go`).

use crc32c::crc32c_append;

/// A running checksum over pieces of one page, joined where they touch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Running {
    crc: u32,
    begin: usize,
    end: usize,
}

impl Running {
    pub fn named(name: &[u8]) -> Self {
        Running { crc: crc32c_append(0, name), begin: 0, end: 0 }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.crc = crc32c_append(self.crc, bytes);
    }

    /// Bytes `begin` to `end` of `page`.
    pub fn take(&mut self, page: &[u8], begin: usize, end: usize) {
        if begin != self.end || self.begin == self.end {
            self.flush(page);
            self.begin = begin;
        }
        self.end = end;
    }

    /// The page is over, or something is left out.
    pub fn flush(&mut self, page: &[u8]) {
        if let Some(piece) = page.get(self.begin..self.end).filter(|piece| !piece.is_empty()) {
            self.crc = crc32c_append(self.crc, piece);
        }
        (self.begin, self.end) = (0, 0);
    }

    pub fn value(&self) -> u32 {
        self.crc
    }

    /// The checksum of what `first` has seen and then the `len` bytes that `second` has.
    pub fn joined(first: &Running, second: &Running, len: usize) -> Self {
        Running { crc: crc32c::crc32c_combine(first.crc, second.crc, len), begin: 0, end: 0 }
    }
}

/// A checksum that is the same as another one until the first record that only one of them takes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Variant {
    own: Option<Running>,
    closed: Option<u32>,
}

impl Variant {
    /// Takes or leaves a record. `all` has not seen it yet.
    pub fn record(&mut self, all: &mut Running, taken: bool, page: &[u8], begin: usize, end: usize) {
        match (&mut self.own, taken) {
            (None, true) => {}
            (None, false) => {
                all.flush(page);
                self.own = Some(*all);
            }
            (Some(own), true) => own.take(page, begin, end),
            (Some(_), false) => {}
        }
    }

    pub fn flush(&mut self, page: &[u8]) {
        if let Some(own) = &mut self.own {
            own.flush(page);
        }
    }

    /// Nothing more belongs to it.
    pub fn close(&mut self, all: &mut Running, page: &[u8]) {
        if self.closed.is_none() {
            all.flush(page);
            self.flush(page);
            self.closed = Some(self.own.unwrap_or(*all).value());
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    pub fn value(&self, all: &Running) -> u32 {
        self.closed.unwrap_or(self.own.as_ref().unwrap_or(all).value())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_touch_and_pieces_that_do_not_give_what_their_bytes_give() {
        let page: Vec<u8> = (0..200_u8).collect();
        let mut running = Running::named(b"key");
        for (begin, end) in [(10, 20), (20, 35), (40, 50), (50, 50), (50, 60), (0, 5)] {
            running.take(&page, begin, end);
        }
        running.flush(&page);
        let bytes = [&b"key"[..], &page[10..35], &page[40..60], &page[0..5]].concat();
        assert_eq!(running.value(), crc32c::crc32c(&bytes));
    }

    #[test]
    fn a_variant_leaves_out_what_it_leaves_and_shares_the_rest() {
        let page: Vec<u8> = (0..100_u8).collect();
        let (mut all, mut variant) = (Running::named(b"key"), Variant::default());
        for (n, begin) in (0..100).step_by(10).enumerate() {
            variant.record(&mut all, n != 3 && n != 4, &page, begin, begin + 10);
            all.take(&page, begin, begin + 10);
        }
        all.flush(&page);
        variant.flush(&page);
        assert_eq!(all.value(), crc32c::crc32c(&[&b"key"[..], &page].concat()));
        let left = [&b"key"[..], &page[..30], &page[50..]].concat();
        assert_eq!(variant.value(&all), crc32c::crc32c(&left));
    }
}
