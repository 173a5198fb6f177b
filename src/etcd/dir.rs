//! Directories by descriptor. Nothing here follows a symbolic link, leaves the directory it was given, crosses into another
//! mount, or opens anything but a directory or a regular file: the tree belongs to whoever wrote the volume.

use super::bytes::printable;
use super::error::EtcdError;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// One name in a directory.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub name: CString,
    pub kind: FileType,
}

impl Entry {
    /// The name, if it is text that etcd could have chosen.
    pub fn text(&self) -> Option<&str> {
        self.name.to_str().ok()
    }

    pub fn shown(&self) -> String {
        printable(self.name.to_bytes())
    }
}

/// Opens a directory below `base`; `path` may have several components.
pub(super) fn open_dir(base: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, EtcdError> {
    rustix::fs::openat2(
        base,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
        RESOLVE,
    )
    .map_err(|e| EtcdError::Open { path: printable(path.to_bytes()), source: e.into() })
}

/// As [`open_dir`], for a path that was text.
pub(super) fn open_dir_str(base: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, EtcdError> {
    let c = CString::new(path).map_err(|e| EtcdError::Open { path: printable(path.as_bytes()), source: e.into() })?;
    open_dir(base, &c)
}

/// Opens a regular file of this directory; anything else is an error that says what it is. `shown` is the path for messages.
pub(super) fn open_file(dir: BorrowedFd<'_>, name: &str, shown: &str) -> Result<File, EtcdError> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|e| EtcdError::Stat { path: shown.to_owned(), source: e.into() })?;
    // Looked at before it is opened: opening a device node or a pipe can have effects of its own.
    regular(FileType::from_raw_mode(stat.st_mode), shown)?;
    let fd = rustix::fs::openat2(
        dir,
        name,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY,
        Mode::empty(),
        RESOLVE,
    )
    .map_err(|e| EtcdError::Open { path: shown.to_owned(), source: e.into() })?;
    let stat = rustix::fs::fstat(&fd).map_err(|e| EtcdError::Stat { path: shown.to_owned(), source: e.into() })?;
    regular(FileType::from_raw_mode(stat.st_mode), shown)?;
    Ok(File::from(fd))
}

fn regular(kind: FileType, shown: &str) -> Result<(), EtcdError> {
    if kind == FileType::RegularFile {
        return Ok(());
    }
    Err(EtcdError::Kind { path: shown.to_owned(), found: kind_name(kind), wanted: "a regular file" })
}

/// For messages.
pub(super) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device node",
        FileType::Unknown => "of unknown type",
    }
}

/// The kind of one name, `None` when it is not there.
pub(super) fn kind_of(dir: BorrowedFd<'_>, name: &str, shown: &str) -> Result<Option<FileType>, EtcdError> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(e) => Err(EtcdError::Stat { path: shown.to_owned(), source: e.into() }),
    }
}

/// All names of a directory but `.` and `..`, sorted; more than `limit` is an error.
pub(super) fn list(dir: BorrowedFd<'_>, shown: &str, limit: usize) -> Result<Vec<Entry>, EtcdError> {
    let failed = |source: io::Error| EtcdError::List { path: shown.to_owned(), source };
    let mut entries = Vec::new();
    // Opened anew: the position of a directory belongs to the open file, which the caller may share with others.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let own = rustix::fs::openat(dir, c".", flags, Mode::empty()).map_err(|e| failed(e.into()))?;
    for entry in Dir::new(own).map_err(|e| failed(e.into()))? {
        let entry = entry.map_err(|e| failed(e.into()))?;
        let name = entry.file_name().to_owned();
        if name.as_bytes() == b"." || name.as_bytes() == b".." {
            continue;
        }
        if entries.len() >= limit {
            return Err(EtcdError::TooMany { path: shown.to_owned(), limit });
        }
        let kind = match entry.file_type() {
            // Filesystems without types in their directories (old xfs) leave the question to stat.
            FileType::Unknown => match rustix::fs::statat(dir, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(rustix::io::Errno::NOENT) => continue,
                Err(e) => return Err(failed(e.into())),
            },
            known @ (FileType::RegularFile
            | FileType::Directory
            | FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice) => known,
        };
        entries.push(Entry { name, kind });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// What tells whether a directory or a file in it changed between two looks: names, sizes, times of change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stamp(Vec<(Vec<u8>, u64, u64, i64, i64)>);

impl Stamp {
    /// Adds every file of `dir`. A file that vanishes meanwhile is left out, which makes the stamp differ from the next.
    pub fn add(&mut self, dir: BorrowedFd<'_>, shown: &str, limit: usize) -> Result<(), EtcdError> {
        for entry in list(dir, shown, limit)? {
            match rustix::fs::statat(dir, &*entry.name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                    let nanos = i64::try_from(stat.st_ctime_nsec).unwrap_or(i64::MAX);
                    self.0.push((entry.name.to_bytes().to_vec(), stat.st_ino, size, stat.st_ctime, nanos));
                }
                Err(rustix::io::Errno::NOENT) => {}
                Err(e) => return Err(EtcdError::Stat { path: format!("{shown}/{}", entry.shown()), source: e.into() }),
            }
        }
        Ok(())
    }
}
