//! Pages out of a file, read in large pieces where they lie together.

use super::super::read_at::{ReadAt, ReadError, read_exact, read_up_to};

/// Longest piece that is read ahead.
pub(super) const AHEAD: u64 = 256 * 1024;

/// One piece of the file in memory.
pub(super) struct Window<'a> {
    from: &'a dyn ReadAt,
    buf: Vec<u8>,
    at: u64,
    pub bytes_read: u64,
}

impl<'a> Window<'a> {
    pub fn new(from: &'a dyn ReadAt) -> Self {
        Window { from, buf: Vec::new(), at: 0, bytes_read: 0 }
    }

    fn has(&self, at: u64, len: usize) -> Option<usize> {
        let begin = usize::try_from(at.checked_sub(self.at)?).ok()?;
        (begin.checked_add(len)? <= self.buf.len()).then_some(begin)
    }

    /// `len` bytes at `at`. When they must be read, so is what follows, up to `until`: the pages asked for next. The caller has
    /// checked `at` and `len` against the file's size.
    pub fn bytes(&mut self, at: u64, len: usize, until: u64) -> Result<&[u8], ReadError> {
        if self.has(at, len).is_none() {
            let ahead = usize::try_from(until.saturating_sub(at).min(AHEAD)).unwrap_or(0);
            self.load(at, len, ahead.max(len))?;
        }
        let begin = self.has(at, len).unwrap_or(0);
        super::super::bytes::slice(&self.buf, begin, len).ok_or(ReadError::Short {
            offset: at,
            wanted: len,
            got: self.buf.len(),
        })
    }

    fn load(&mut self, at: u64, len: usize, want: usize) -> Result<(), ReadError> {
        self.at = at;
        self.buf.resize(want, 0);
        if want > len {
            match read_up_to(self.from, &mut self.buf, at) {
                Ok(got) if got >= len => {
                    self.buf.truncate(got);
                    self.count(got);
                    return Ok(());
                }
                // One bad sector ahead must not take the good page before it along.
                Ok(_) | Err(_) => self.buf.resize(len, 0),
            }
        }
        if let Err(error) = read_exact(self.from, &mut self.buf, at) {
            self.buf.clear();
            return Err(error);
        }
        // A run of one huge record is not kept for ever.
        if u64::try_from(len).unwrap_or(u64::MAX) > AHEAD {
            self.buf.shrink_to_fit();
        }
        self.count(len);
        Ok(())
    }

    fn count(&mut self, n: usize) {
        self.bytes_read = self.bytes_read.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
    }
}
