//! Where bytes come from: a file, a slice, a device at an offset.
//!
//! Positioned reads only. A read that the kernel refuses ([`ReadError::Io`]) and one that ends early
//! ([`ReadError::Short`]) stay apart: the first says nothing about the data, the second says that it is cut.

use super::bytes::slice;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};

/// A source of bytes with a size.
pub trait ReadAt {
    /// Bytes in all.
    fn size(&self) -> io::Result<u64>;
    /// As pread(2): may return fewer bytes than asked for, and 0 at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The first place from `offset` on that may hold something else than zeros, as far as it can be had without reading;
    /// [`ReadAt::size`] or more where only zeros follow. A source that knows nothing of holes says `offset`.
    fn next_data(&self, offset: u64) -> u64 {
        offset
    }
    /// `len` bytes at `offset` will be read soon. A source that can fetches them meanwhile; nothing depends on it.
    fn will_need(&self, _offset: u64, _len: u64) {}
}

impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        let meta = self.metadata()?;
        if meta.file_type().is_block_device() {
            // A block device's inode has no length; the end of the file does. pread does not care about the position.
            return Ok(rustix::fs::seek(self, rustix::fs::SeekFrom::End(0))?);
        }
        Ok(meta.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buf, offset)
    }

    /// lseek(2), `SEEK_DATA`: a hole is never written, and what was allocated ahead reads as zeros until it is; both ext4 and
    /// xfs tell them apart from data, in the page cache too. Whoever cannot says that all of it is data.
    fn next_data(&self, offset: u64) -> u64 {
        match rustix::fs::seek(self, rustix::fs::SeekFrom::Data(offset)) {
            // Never backwards, whatever a filesystem says.
            Ok(at) => at.max(offset),
            Err(rustix::io::Errno::NXIO) => u64::MAX,
            // It will be read, and that will say what is wrong with it.
            Err(_) => offset,
        }
    }

    /// posix_fadvise(2), `POSIX_FADV_WILLNEED`: the kernel begins to read and does not wait. A filesystem that cannot, and a
    /// disk that fails, are met by the read that follows.
    fn will_need(&self, offset: u64, len: u64) {
        let Some(len) = std::num::NonZeroU64::new(len) else { return };
        let _told = rustix::fs::fadvise(self, offset, Some(len), rustix::fs::Advice::WillNeed);
    }
}

impl ReadAt for [u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.len()).unwrap_or(u64::MAX))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        match (buf.get_mut(..n), rest.get(..n)) {
            (Some(to), Some(from)) => to.copy_from_slice(from),
            (None, _) | (_, None) => return Ok(0),
        }
        Ok(n)
    }
}

impl ReadAt for &[u8] {
    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(buf, offset)
    }
}

/// `len` bytes of another source from `start` on: a file inside a device.
pub struct Window<'a> {
    inner: &'a dyn ReadAt,
    start: u64,
    len: u64,
}

impl<'a> Window<'a> {
    pub fn new(inner: &'a dyn ReadAt, start: u64, len: u64) -> Self {
        Window { inner, start, len }
    }
}

impl ReadAt for Window<'_> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len.min(self.inner.size()?.saturating_sub(self.start)))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let n = buf.len().min(left);
        let Some(at) = self.start.checked_add(offset) else { return Ok(0) };
        match buf.get_mut(..n) {
            Some(part) => self.inner.read_at(part, at),
            None => Ok(0),
        }
    }

    fn will_need(&self, offset: u64, len: u64) {
        let len = len.min(self.len.saturating_sub(offset));
        if let Some(at) = self.start.checked_add(offset) {
            self.inner.will_need(at, len);
        }
    }
}

/// Why bytes could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("read of {len} bytes at offset {offset} failed")]
    Io {
        offset: u64,
        len: usize,
        #[source]
        source: io::Error,
    },
    #[error("{wanted} bytes at offset {offset}, only {got} are there")]
    Short { offset: u64, wanted: usize, got: usize },
}

/// Reads as much of `buf` as there is; fewer bytes only at the end.
pub fn read_up_to(from: &dyn ReadAt, buf: &mut [u8], offset: u64) -> Result<usize, ReadError> {
    let len = buf.len();
    let mut got = 0_usize;
    while let Some(rest) = buf.get_mut(got..)
        && !rest.is_empty()
    {
        let at = offset.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
        match from.read_at(rest, at) {
            Ok(0) => break,
            Ok(n) => got = got.saturating_add(n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(ReadError::Io { offset: at, len: len.saturating_sub(got), source }),
        }
    }
    Ok(got)
}

/// Fills `buf` or says how much was missing.
pub fn read_exact(from: &dyn ReadAt, buf: &mut [u8], offset: u64) -> Result<(), ReadError> {
    let got = read_up_to(from, buf, offset)?;
    if got == buf.len() { Ok(()) } else { Err(ReadError::Short { offset, wanted: buf.len(), got }) }
}

/// `len` bytes as a vector. The caller has checked `len` against a bound of its own.
pub fn read_vec(from: &dyn ReadAt, offset: u64, len: usize) -> Result<Vec<u8>, ReadError> {
    let mut buf = vec![0; len];
    read_exact(from, &mut buf, offset)?;
    Ok(buf)
}

/// A forward reader over a part of a source: hands out bytes in pieces of at most 64 KiB.
pub struct Stream<'a> {
    from: &'a dyn ReadAt,
    at: u64,
    end: u64,
    buf: Vec<u8>,
    used: usize,
}

impl<'a> Stream<'a> {
    const PIECE: usize = 64 * 1024;

    /// Bytes `[start, end)` of `from`.
    pub fn new(from: &'a dyn ReadAt, start: u64, end: u64) -> Self {
        Stream { from, at: start, end, buf: Vec::new(), used: 0 }
    }

    /// What is left of the current piece, or the next one; empty at the end.
    pub fn fill(&mut self) -> Result<&[u8], ReadError> {
        if self.used >= self.buf.len() {
            let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX).min(Self::PIECE);
            self.buf.resize(left, 0);
            self.used = 0;
            if left > 0 {
                let got = read_up_to(self.from, &mut self.buf, self.at)?;
                if got < left {
                    return Err(ReadError::Short { offset: self.at, wanted: left, got });
                }
                self.at = self.at.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
            }
        }
        Ok(slice(&self.buf, self.used, self.buf.len().saturating_sub(self.used)).unwrap_or(&[]))
    }

    /// Marks `n` bytes of the current piece as used.
    pub fn consume(&mut self, n: usize) {
        self.used = self.used.saturating_add(n).min(self.buf.len());
    }

    /// The next byte; `None` at the end.
    pub fn next_byte(&mut self) -> Result<Option<u8>, ReadError> {
        let byte = self.fill()?.first().copied();
        self.consume(1);
        Ok(byte)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn a_short_source_is_short_and_not_an_io_error() {
        let mut buf = [0; 8];
        let error = read_exact(&&b"12345"[..], &mut buf, 0).unwrap_err();
        assert!(matches!(error, ReadError::Short { offset: 0, wanted: 8, got: 5 }), "{error:?}");
    }

    #[test]
    fn a_failing_source_is_an_io_error_and_not_short() {
        let directory = File::open("/").unwrap();
        let error = read_exact(&directory, &mut [0; 8], 0).unwrap_err();
        assert!(matches!(error, ReadError::Io { .. }), "{error:?}");
    }

    #[test]
    fn a_window_shows_its_part_and_nothing_beyond() {
        let bytes = &b"0123456789"[..];
        let window = Window::new(&bytes, 3, 4);
        assert_eq!(window.size().unwrap(), 4);
        assert_eq!(read_vec(&window, 0, 4).unwrap(), b"3456");
        let mut buf = [0; 9];
        assert_eq!(read_up_to(&window, &mut buf, 2).unwrap(), 2);
        assert_eq!(&buf[..2], b"56");
        assert_eq!(Window::new(&bytes, 8, 40).size().unwrap(), 2);
    }

    #[test]
    fn holes_are_passed_over_and_bytes_are_not() {
        const MIB: u64 = 1 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * MIB).unwrap();
        FileExt::write_all_at(&file, b"x", 5 * MIB).unwrap();
        let found = file.next_data(0);
        assert!((1..=5 * MIB).contains(&found), "{found}");
        assert_eq!(file.next_data(5 * MIB), 5 * MIB);
        assert!(file.next_data(7 * MIB) >= 8 * MIB);
    }

    #[test]
    fn what_knows_nothing_of_holes_is_data() {
        assert_eq!(File::open("/proc/self/status").unwrap().next_data(7), 7);
        assert_eq!(b"0000"[..].next_data(2), 2);
    }
}
