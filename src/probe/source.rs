//! The device as bytes: its size, and reads that either bring every byte asked for or say which one they could not bring.
//!
//! Reads go past the page cache (`O_DIRECT`) where the descriptor can be opened so, for two reasons: they hit the medium,
//! and a pass over hundreds of gigabytes leaves the cache to others. Nothing here can write: the descriptor is read-only.

use crate::model::Why;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

/// What reads are aligned to: no device or filesystem asks for more than this in `O_DIRECT`.
pub(crate) const ALIGN: usize = 4096;

/// Smaller things are no volume, and libblkid does not look at them at all: reading zeroes there proves nothing.
const LEAST_SIZE: u64 = 4096;

/// A read or a question about the size that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("reading {len} bytes at offset {offset} failed: {source}")]
    Failed { offset: u64, len: usize, source: std::io::Error },
    #[error("reading {len} bytes at offset {offset} brought only {got}, though the size is {size}")]
    Short { offset: u64, len: usize, got: usize, size: u64 },
    #[error("the size could not be asked for: {source}")]
    Size { source: std::io::Error },
    #[error("the size is {size} bytes, which is no volume: reading it proves nothing")]
    TooSmall { size: u64 },
    #[error("it is neither a block device nor a regular file")]
    NotReadable,
    #[error("no thread could be started for reading: {source}")]
    NoThread { source: std::io::Error },
}

impl ReadError {
    /// The same as a finding.
    pub(crate) fn why(&self) -> Why {
        let detail = self.to_string();
        match self {
            ReadError::Failed { .. } | ReadError::Size { .. } | ReadError::NotReadable => Why::Unreadable { detail },
            ReadError::Short { .. } | ReadError::TooSmall { .. } => Why::Short { detail },
            ReadError::NoThread { .. } => Why::ReaderFailed { detail },
        }
    }
}

/// A device or image opened for reading.
pub(crate) struct Source {
    file: File,
    size: u64,
    direct: bool,
    /// Regular files can say where their holes are; block devices never.
    knows_holes: bool,
}

impl Source {
    /// Opens what is behind `given` anew, with `O_DIRECT` if `direct` and possible, else reads through `given` itself.
    pub(crate) fn open(given: &File, direct: bool) -> Result<Source, ReadError> {
        let stat = rustix::fs::fstat(given).map_err(|errno| ReadError::Size { source: errno.into() })?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::BlockDevice && kind != FileType::RegularFile {
            return Err(ReadError::NotReadable);
        }
        let size = size_of(given)?;
        if size < LEAST_SIZE {
            return Err(ReadError::TooSmall { size });
        }
        let reopened = if direct { reopen(given, OFlags::DIRECT).filter(takes_direct_reads) } else { None };
        let direct = reopened.is_some();
        let file = match reopened {
            Some(file) => file,
            None => plain(given).map_err(|source| ReadError::Size { source })?,
        };
        Ok(Source { file, size, direct, knows_holes: kind == FileType::RegularFile })
    }

    /// The size when it was opened.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Reads go past the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// The size as it is now.
    pub(crate) fn size_now(&self) -> Result<u64, ReadError> {
        size_of(&self.file)
    }

    /// Where the next bytes at or after `from` are that are not in a hole; `None` when a hole goes on to the end. A file
    /// that cannot tell has none. Moves the descriptor's position, which nothing else here uses.
    pub(crate) fn next_data(&self, from: u64) -> Option<u64> {
        if !self.knows_holes {
            return Some(from);
        }
        match rustix::fs::seek(&self.file, SeekFrom::Data(from)) {
            Ok(data) => Some(data.max(from)),
            Err(Errno::NXIO) => None,
            Err(_) => Some(from),
        }
    }

    /// Reads exactly `len` bytes at `offset` (a multiple of [`ALIGN`]) into the front of `buffer`.
    pub(crate) fn read<'b>(&self, offset: u64, len: usize, buffer: &'b mut Buffer) -> Result<&'b [u8], ReadError> {
        let size = self.size;
        let short = |got: usize| ReadError::Short { offset, len, got, size };
        let space = buffer.aligned();
        let mut got = 0;
        while got < len {
            // After a short read the next one starts at an aligned place again, which may repeat some bytes.
            let from = got.saturating_sub(got % ALIGN);
            let until = len.checked_next_multiple_of(ALIGN).ok_or_else(|| short(got))?;
            let part = space.get_mut(from..until).ok_or_else(|| short(got))?;
            let at = offset.saturating_add(from as u64);
            let count = match self.file.read_at(part, at) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(ReadError::Failed { offset: at, len: part.len().min(len), source }),
            };
            let now = from.saturating_add(count);
            if now <= got {
                return Err(short(got));
            }
            got = now;
        }
        space.get(..len).ok_or_else(|| short(got))
    }

    /// One block for a second look, and where it begins; `None` where it cannot be read any more.
    pub(crate) fn block(&self, offset: u64) -> Option<(Vec<u8>, u64)> {
        let at = offset & !(ALIGN as u64).saturating_sub(1);
        let len = self.size.saturating_sub(at).min(ALIGN as u64);
        let mut buffer = Buffer::new(ALIGN);
        let read = self.read(at, usize::try_from(len).ok()?, &mut buffer);
        read.ok().map(|block| (block.to_vec(), at))
    }

    /// After a read of several blocks failed: the first block of it that cannot be read, found by halving. The answer is
    /// the error of that block, or the one given where the device has thought better of it.
    pub(crate) fn narrow(&self, offset: u64, len: usize, error: ReadError, buffer: &mut Buffer) -> ReadError {
        let (mut offset, mut len, mut error) = (offset, len, error);
        while len > ALIGN && matches!(error, ReadError::Failed { .. }) {
            let half = (len / 2).next_multiple_of(ALIGN).min(len);
            match self.read(offset, half, buffer) {
                Err(found) => (len, error) = (half, found),
                Ok(_) => {
                    let rest = len.saturating_sub(half);
                    let second = offset.saturating_add(half as u64);
                    match self.read(second, rest, buffer) {
                        Err(found) => (offset, len, error) = (second, rest, found),
                        Ok(_) => return error,
                    }
                }
            }
        }
        error
    }
}

/// A descriptor that libblkid can read from: it reads what it likes, unaligned.
pub(crate) fn plain(given: &File) -> std::io::Result<File> {
    let flags = rustix::fs::fcntl_getfl(given)?;
    if !flags.contains(OFlags::DIRECT) {
        return given.try_clone();
    }
    reopen(given, OFlags::empty())
        .ok_or_else(|| std::io::Error::other("the descriptor reads past the page cache and cannot be opened anew"))
}

/// Opens what is behind `given` once more, read-only; `None` where that fails or leads to something else.
fn reopen(given: &File, flags: OFlags) -> Option<File> {
    let path = format!("/proc/self/fd/{}", given.as_raw_fd());
    let fresh = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty()).ok()?;
    let (was, is) = (rustix::fs::fstat(given).ok()?, rustix::fs::fstat(fresh.as_fd()).ok()?);
    let same = was.st_rdev == is.st_rdev && was.st_dev == is.st_dev && was.st_ino == is.st_ino;
    same.then(|| File::from(fresh))
}

/// Some filesystems open files with `O_DIRECT` and then refuse to read them so.
fn takes_direct_reads(file: &File) -> bool {
    let mut buffer = Buffer::new(ALIGN);
    match file.read_at(buffer.aligned(), 0) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() != Some(Errno::INVAL.raw_os_error()),
    }
}

/// Size in bytes: the end, for files and block devices alike.
fn size_of(file: &File) -> Result<u64, ReadError> {
    rustix::fs::seek(file, SeekFrom::End(0)).map_err(|errno| ReadError::Size { source: errno.into() })
}

/// Memory for aligned reads, without `unsafe`: a vector with room to spare, used from its first aligned byte on.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Room for `len` bytes, rounded up to [`ALIGN`].
    pub(crate) fn new(len: usize) -> Self {
        let len = len.next_multiple_of(ALIGN);
        let memory = vec![0; len.saturating_add(ALIGN)];
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Buffer { memory, start, len }
    }

    fn aligned(&mut self) -> &mut [u8] {
        let end = self.start.saturating_add(self.len);
        self.memory.get_mut(self.start..end).unwrap_or_default()
    }
}
