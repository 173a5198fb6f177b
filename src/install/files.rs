//! Files of ours below a root directory: `/` of this machine, or that of an image that is being built.
//!
//! Paths are followed as that system would follow them (`openat2` with `RESOLVE_IN_ROOT`): a link in an image leads to a place
//! in the image. The file itself is never followed, never written in place, and never replaced unless it is ours.
#![expect(clippy::disallowed_methods, reason = "writes and removes files that carry our mark, and nothing else")]

use super::mark::{Owner, owner};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Largest file that is read: what we write has a few kilobytes, fstab seldom more than one.
const MOST: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{operation} {path}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} was changed since volhold wrote it, and is left as it is: move it away, then try again")]
    Changed { path: PathBuf },
    #[error("{path} was not written by volhold, and is left as it is: move it away, then try again")]
    Foreign { path: PathBuf },
}

impl FileError {
    fn io(operation: &'static str, path: &Path) -> impl FnOnce(Errno) -> FileError + use<> {
        let path = path.to_owned();
        move |errno| FileError::Io { operation, path, source: errno.into() }
    }
}

/// What writing a file changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is there, word for word.
    Same,
    New,
    /// An older text of ours was there.
    Replaced,
}

/// What became of a file that was to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    NotThere,
    Gone,
    /// A person has changed it.
    LeftChanged,
    /// It was never ours.
    LeftForeign,
}

/// A root directory.
#[derive(Debug)]
pub struct Root {
    at: PathBuf,
    directory: OwnedFd,
}

impl Root {
    pub fn open(at: &Path) -> Result<Self, FileError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(at, flags, Mode::empty()).map_err(FileError::io("open", at))?;
        Ok(Root { at: at.to_owned(), directory })
    }

    /// This machine's own.
    pub fn is_host(&self) -> bool {
        self.at == Path::new("/")
    }

    /// The path as seen from here, for messages.
    pub fn outside(&self, path: &Path) -> PathBuf {
        self.at.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat2(&self.directory, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
    }

    /// The whole text of a file, links followed within the root; `None` where there is none.
    pub fn read(&self, path: &Path) -> Result<Option<String>, FileError> {
        let file = match self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(FileError::io("open", &self.outside(path))(errno)),
        };
        let failed = |source| FileError::Io { operation: "read", path: self.outside(path), source };
        let mut bytes = Vec::new();
        File::from(file).take(MOST).read_to_end(&mut bytes).map_err(failed)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Names in a directory, sorted; none where there is no such directory.
    pub fn list(&self, path: &Path) -> Result<Vec<String>, FileError> {
        let failed = |operation| FileError::io(operation, &self.outside(path));
        let directory = match self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
            Err(errno) => return Err(failed("open")(errno)),
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(directory).map_err(failed("list"))? {
            let name = entry.map_err(failed("list"))?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// What [`Root::write`] would do.
    pub fn compare(&self, path: &Path, text: &str) -> Result<Written, FileError> {
        match self.own_text(path)? {
            None => Ok(Written::New),
            Some(there) if there == text => Ok(Written::Same),
            Some(there) => match owner(&there) {
                Owner::Ours { .. } => Ok(Written::Replaced),
                Owner::Changed => Err(FileError::Changed { path: self.outside(path) }),
                Owner::Foreign => Err(FileError::Foreign { path: self.outside(path) }),
            },
        }
    }

    /// Puts a file of ours there, 0644: written beside it, made durable, renamed. Directories that are missing are made, 0755.
    pub fn write(&self, path: &Path, text: &str) -> Result<Written, FileError> {
        let written = self.compare(path, text)?;
        if written == Written::Same {
            return Ok(written);
        }
        let outside = self.outside(path);
        let failed = |operation| FileError::io(operation, &outside);
        let (parent, name) = split(path).ok_or(Errno::INVAL).map_err(failed("name"))?;
        let directory = self.make_directories(parent)?;
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(".volhold-new");
        // A crash may have left one of ours.
        match rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("write")(errno)),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&directory, &temporary, flags, Mode::from_raw_mode(0o644)).map_err(failed("write"))?;
        // Whatever the umask of whoever typed it: systemd and kubeadm have to read it, nobody else writes it.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644)).map_err(failed("write"))?;
        let mut file = File::from(file);
        let io_failed = |source| FileError::Io { operation: "write", path: outside.clone(), source };
        file.write_all(text.as_bytes()).map_err(io_failed)?;
        file.sync_all().map_err(io_failed)?;
        rustix::fs::renameat(&directory, &temporary, &directory, name).map_err(failed("write"))?;
        self.sync(parent)?;
        Ok(written)
    }

    /// Takes a file away if it is ours and unchanged.
    pub fn remove(&self, path: &Path) -> Result<Removed, FileError> {
        let removed = self.would_remove(path)?;
        if removed == Removed::Gone {
            let failed = |operation| FileError::io(operation, &self.outside(path));
            let (parent, name) = split(path).ok_or(Errno::INVAL).map_err(failed("name"))?;
            let directory =
                self.resolve(parent, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed("open the directory of"))?;
            rustix::fs::unlinkat(&directory, name, AtFlags::empty()).map_err(failed("remove"))?;
            rustix::fs::fsync(&directory).map_err(failed("remove"))?;
        }
        Ok(removed)
    }

    /// What [`Root::remove`] would do.
    pub fn would_remove(&self, path: &Path) -> Result<Removed, FileError> {
        Ok(match self.own_text(path)? {
            None => Removed::NotThere,
            Some(there) => match owner(&there) {
                Owner::Ours { .. } => Removed::Gone,
                Owner::Changed => Removed::LeftChanged,
                Owner::Foreign => Removed::LeftForeign,
            },
        })
    }

    /// The text at a place of ours, without following a link there. Anything but a regular file is somebody else's.
    fn own_text(&self, path: &Path) -> Result<Option<String>, FileError> {
        let outside = self.outside(path);
        let failed = |operation| FileError::io(operation, &outside);
        let (parent, name) = split(path).ok_or(Errno::INVAL).map_err(failed("name"))?;
        let directory = match self.resolve(parent, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed("open the directory of")(errno)),
        };
        match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {}
            Ok(_) => return Err(FileError::Foreign { path: outside }),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed("look at")(errno)),
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, name, flags, Mode::empty()).map_err(failed("open"))?;
        let mut bytes = Vec::new();
        let read = File::from(file).take(MOST).read_to_end(&mut bytes);
        read.map_err(|source| FileError::Io { operation: "read", path: outside, source })?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Opens a directory, and makes what is missing on the way.
    fn make_directories(&self, path: &Path) -> Result<OwnedFd, FileError> {
        let mut way = PathBuf::from("/");
        let mut parent =
            self.resolve(&way, OFlags::RDONLY | OFlags::DIRECTORY).map_err(FileError::io("open", &self.at))?;
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            way.push(name);
            let failed = |operation| FileError::io(operation, &self.outside(&way));
            let directory = match self.resolve(&way, OFlags::RDONLY | OFlags::DIRECTORY) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)).map_err(failed("make"))?;
                    rustix::fs::fsync(parent.as_fd()).map_err(failed("make"))?;
                    self.resolve(&way, OFlags::RDONLY | OFlags::DIRECTORY)
                }
                opened => opened,
            };
            parent = directory.map_err(failed("open"))?;
        }
        Ok(parent)
    }

    fn sync(&self, directory: &Path) -> Result<(), FileError> {
        let failed = |operation| FileError::io(operation, &self.outside(directory));
        let directory = self.resolve(directory, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed("open"))?;
        rustix::fs::fsync(&directory).map_err(failed("write"))
    }
}

fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::install::{Preset, mark::marked};
    use std::os::unix::fs::{MetadataExt, symlink};

    fn text(body: &str) -> String {
        marked(Preset::EtcdService, &"main".parse().unwrap(), body)
    }

    const PATH: &str = "/etc/systemd/system/etcd.service.d/50-volhold-main.conf";

    #[test]
    fn what_is_written_twice_is_written_once_and_goes_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let path = Path::new(PATH);
        assert_eq!(root.remove(path).unwrap(), Removed::NotThere);
        assert_eq!(root.write(path, &text("a\n")).unwrap(), Written::New);
        let inode = std::fs::metadata(root.outside(path)).unwrap();
        assert_eq!(inode.mode() & 0o7777, 0o644);
        assert_eq!(root.write(path, &text("a\n")).unwrap(), Written::Same);
        assert_eq!(std::fs::metadata(root.outside(path)).unwrap().ino(), inode.ino());
        assert_eq!(root.write(path, &text("b\n")).unwrap(), Written::Replaced);
        assert_eq!(root.read(path).unwrap().as_deref(), Some(text("b\n").as_str()));
        assert_eq!(root.list(path.parent().unwrap()).unwrap(), ["50-volhold-main.conf"], "nothing is left beside it");
        assert_eq!(root.remove(path).unwrap(), Removed::Gone);
        assert_eq!(root.read(path).unwrap(), None);
    }

    #[test]
    fn what_a_person_wrote_or_changed_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let path = Path::new(PATH);
        root.write(path, &text("a\n")).unwrap();
        std::fs::write(root.outside(path), text("a\n") + "Restart=no\n").unwrap();
        assert!(matches!(root.write(path, &text("a\n")), Err(FileError::Changed { .. })));
        assert_eq!(root.remove(path).unwrap(), Removed::LeftChanged);
        std::fs::write(root.outside(path), "[Unit]\n").unwrap();
        assert!(matches!(root.write(path, &text("a\n")), Err(FileError::Foreign { .. })));
        assert_eq!(root.remove(path).unwrap(), Removed::LeftForeign);
        assert_eq!(root.read(path).unwrap().as_deref(), Some("[Unit]\n"));
    }

    #[test]
    fn links_of_an_image_stay_in_the_image_and_a_file_that_is_one_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("usr/etc")).unwrap();
        symlink("/usr/etc", dir.path().join("etc")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let path = Path::new(PATH);
        root.write(path, &text("a\n")).unwrap();
        assert!(dir.path().join("usr").join(path.strip_prefix("/").unwrap()).exists());
        let target = outside.path().join("x");
        std::fs::write(&target, "x").unwrap();
        std::fs::remove_file(root.outside(path).canonicalize().unwrap_or(dir.path().join("usr").join(&PATH[1..]))).ok();
        symlink(&target, dir.path().join("usr").join(&PATH[1..])).unwrap();
        assert!(matches!(root.write(path, &text("a\n")), Err(FileError::Foreign { .. })));
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "x");
    }
}
