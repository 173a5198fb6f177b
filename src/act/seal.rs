//! The directory under a mount: empty, and immutable, so that whoever asks nobody finds no place to write while the volume
//! is not there.
//!
//! `FS_IMMUTABLE_FL` on a directory refuses every new entry (EPERM, also for root), lets a filesystem be mounted over it,
//! and does not touch what is mounted. What lies beneath a live mount is reached through a private copy of the parent's
//! mount (`open_tree` with `OPEN_TREE_CLONE`, without what is mounted below it).

mod error;

pub use error::SealError;

use super::Change;
use super::mount::on_top_at;
use crate::model::{DevNum, Observed, Why};
use rustix::fs::{AtFlags, CWD, Dir, FileType, IFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Names shown at most.
pub const SHOWN: usize = 20;

/// What is at a mountpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountpointState {
    Missing,
    Empty {
        sealed: bool,
    },
    /// The first [`SHOWN`] names in order, and whether there are more.
    NotEmpty {
        entries: Vec<String>,
        more: bool,
    },
    NotADirectory,
    Mounted {
        /// Of the mount on top.
        devnum: DevNum,
        /// What lies beneath all mounts at this path.
        beneath: Observed<Box<MountpointState>>,
    },
}

/// A sealed mountpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Without links: where the volume is to be published.
    pub at: PathBuf,
    pub change: Change,
    /// The directory was not there before.
    pub created: bool,
    /// A sentence for the operator: the filesystem cannot seal, or the path goes over a link.
    pub warnings: Vec<String>,
}

/// Looks at a mountpoint without changing anything.
pub fn mountpoint_state(at: &Path) -> Observed<MountpointState> {
    match resolve(at).and_then(|place| state_of(&place)) {
        Ok(state) => Observed::Seen(state),
        Err(error) => Observed::Unknown(Why::Unreadable { detail: error.chain() }),
    }
}

/// What became of an attempt to make a file in the directory under a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteTest {
    /// The kernel refused it (EPERM).
    Refused,
    /// It was made, and taken away again.
    Written,
    Missing,
    /// Not tried: the first [`SHOWN`] names of what lies there.
    NotEmpty(Vec<String>),
}

/// Tries whether the directory lets a new file in, beneath whatever is mounted there. A seal that is only read about may be
/// one that the filesystem does not keep.
pub fn test_write(at: &Path) -> Observed<WriteTest> {
    match resolve(at).and_then(|place| try_write(&place)) {
        Ok(found) => Observed::Seen(found),
        Err(error) => Observed::Unknown(Why::Unreadable { detail: error.chain() }),
    }
}

fn try_write(place: &Place) -> Result<WriteTest, SealError> {
    let parent = if top(place)?.is_some() {
        beneath(place)?
    } else {
        match open_parent(place) {
            Ok(parent) => parent,
            Err(SealError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(WriteTest::Missing);
            }
            Err(error) => return Err(error),
        }
    };
    let directory = match open_directory(parent.as_fd(), &place.name) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(WriteTest::Missing),
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(SealError::NotADirectory { at: place.at.clone() }),
        Err(errno) => return Err(place.failed("open", errno)),
    };
    let (names, _more) = entries(directory.as_fd()).map_err(|errno| place.failed("list", errno))?;
    if !names.is_empty() {
        return Ok(WriteTest::NotEmpty(names));
    }
    let name = format!(".volhold-doctor-{}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&directory, name.as_str(), flags, Mode::from_raw_mode(0o600)) {
        Err(Errno::PERM) => Ok(WriteTest::Refused),
        Err(errno) => Err(place.failed("try to write into", errno)),
        Ok(_file) => {
            rustix::fs::unlinkat(&directory, name.as_str(), AtFlags::empty())
                .map_err(|errno| place.failed("take the file of the test away from", errno))?;
            Ok(WriteTest::Written)
        }
    }
}

/// Makes the mountpoint (mode 0700, parents 0755) where it is missing, and seals it. Refuses when it holds anything: what
/// is there would be hidden by the mount, or is somebody's data. Works beneath a live mount too.
pub fn seal(at: &Path) -> Result<Sealed, SealError> {
    let place = resolve_or_make_parent(at)?;
    let mut warnings = Vec::new();
    if place.at != at {
        warnings.push(format!("{} goes over a link: the volume is published at {}", at.display(), place.at.display()));
    }
    let mounted = top(&place)?.is_some();
    let parent = if mounted { beneath(&place)? } else { open_parent(&place)? };
    let created = match rustix::fs::mkdirat(&parent, &place.name, Mode::from_raw_mode(0o700)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(place.failed("make", errno)),
    };
    let directory = match open_directory(parent.as_fd(), &place.name) {
        Ok(directory) => directory,
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(SealError::NotADirectory { at: place.at }),
        Err(errno) => return Err(place.failed("open", errno)),
    };
    must_be_empty(&place, directory.as_fd())?;
    let change = match set_immutable(directory.as_fd()) {
        Ok(Change::Already) => Change::Already,
        Ok(Change::Done) => {
            // Sealed first, looked at second: nothing can appear any more.
            if let Err(error) = must_be_empty(&place, directory.as_fd()) {
                clear_immutable(directory.as_fd()).map_err(|errno| place.failed("unseal", errno))?;
                return Err(error);
            }
            Change::Done
        }
        Err(errno @ (Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::ROFS)) => {
            let why = io::Error::from(errno);
            let what = place.at.display();
            warnings.push(format!("{what} could not be made immutable ({why}): whoever asks nobody can write into it"));
            if created { Change::Done } else { Change::Already }
        }
        Err(errno) => return Err(place.failed("seal", errno)),
    };
    Ok(Sealed { at: place.at, change, created, warnings })
}

/// What [`seal`] would come to, without making or sealing anything.
pub fn foresee(at: &Path) -> Result<MountpointState, SealError> {
    let place = resolve(at)?;
    let state = state_of(&place)?;
    let beneath = match &state {
        MountpointState::Mounted { beneath: Observed::Seen(beneath), .. } => beneath.as_ref(),
        other @ (MountpointState::Missing
        | MountpointState::Empty { .. }
        | MountpointState::NotEmpty { .. }
        | MountpointState::NotADirectory
        | MountpointState::Mounted { .. }) => other,
    };
    match beneath {
        MountpointState::NotEmpty { entries, more } => {
            Err(SealError::NotEmpty { at: place.at, entries: entries.clone(), more: *more })
        }
        MountpointState::NotADirectory => Err(SealError::NotADirectory { at: place.at }),
        MountpointState::Missing | MountpointState::Empty { .. } | MountpointState::Mounted { .. } => Ok(state),
    }
}

/// A mountpoint by its parent and name, without links.
struct Place {
    at: PathBuf,
    parent: PathBuf,
    name: std::ffi::OsString,
}

impl Place {
    fn failed(&self, operation: &'static str, errno: Errno) -> SealError {
        SealError::Io { operation, path: self.at.clone(), source: errno.into() }
    }
}

/// Links are followed once, here; from then on only the resolved path is used.
fn resolve(at: &Path) -> Result<Place, SealError> {
    let failed = |source| SealError::Io { operation: "resolve", path: at.to_owned(), source };
    let resolved = match fs::canonicalize(at) {
        Ok(resolved) => resolved,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if fs::symlink_metadata(at).is_ok() {
                return Err(SealError::NotADirectory { at: at.to_owned() });
            }
            let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
                return Err(SealError::NoParent { at: at.to_owned() });
            };
            match fs::canonicalize(parent) {
                Ok(parent) => parent.join(name),
                // Nothing is there, and nothing above it: as missing as can be.
                Err(error) if error.kind() == io::ErrorKind::NotFound => at.to_owned(),
                Err(error) => return Err(failed(error)),
            }
        }
        Err(error) => return Err(failed(error)),
    };
    let (Some(parent), Some(name)) = (resolved.parent().map(Path::to_owned), resolved.file_name().map(OsStr::to_owned))
    else {
        return Err(SealError::NoParent { at: at.to_owned() });
    };
    Ok(Place { at: resolved, parent, name })
}

fn resolve_or_make_parent(at: &Path) -> Result<Place, SealError> {
    if let Some(parent) = at.parent() {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(parent);
        made.map_err(|source| SealError::Io { operation: "make", path: parent.to_owned(), source })?;
    }
    resolve(at)
}

fn top(place: &Place) -> Result<Option<DevNum>, SealError> {
    on_top_at(&place.at).map_err(|error| SealError::Table { source: Box::new(error) })
}

fn state_of(place: &Place) -> Result<MountpointState, SealError> {
    if let Some(devnum) = top(place)? {
        let beneath = match beneath(place).and_then(|parent| look(place, parent.as_fd())) {
            Ok(state) => Observed::Seen(Box::new(state)),
            Err(error) => Observed::Unknown(Why::Unreadable { detail: error.chain() }),
        };
        return Ok(MountpointState::Mounted { devnum, beneath });
    }
    match open_parent(place) {
        Ok(parent) => look(place, parent.as_fd()),
        Err(SealError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(MountpointState::Missing),
        Err(error) => Err(error),
    }
}

fn open_parent(place: &Place) -> Result<OwnedFd, SealError> {
    open_directory(CWD, place.parent.as_os_str()).map_err(|errno| place.failed("open the parent of", errno))
}

/// The parent directory in a private copy of its mount: nothing that is mounted below it is there.
fn beneath(place: &Place) -> Result<OwnedFd, SealError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let failed = |errno| place.failed("look beneath the mount at", errno);
    let copy = rustix::mount::open_tree(CWD, place.parent.as_path(), flags).map_err(failed)?;
    Ok(copy)
}

fn look(place: &Place, parent: BorrowedFd) -> Result<MountpointState, SealError> {
    match rustix::fs::statat(parent, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => {
            return Ok(MountpointState::NotADirectory);
        }
        Ok(_) => {}
        Err(Errno::NOENT) => return Ok(MountpointState::Missing),
        Err(errno) => return Err(place.failed("stat", errno)),
    }
    let directory = open_directory(parent, &place.name).map_err(|errno| place.failed("open", errno))?;
    let (entries, more) = entries(directory.as_fd()).map_err(|errno| place.failed("list", errno))?;
    if !entries.is_empty() {
        return Ok(MountpointState::NotEmpty { entries, more });
    }
    let sealed = match rustix::fs::ioctl_getflags(&directory) {
        Ok(flags) => flags.contains(IFlags::IMMUTABLE),
        // A filesystem without flags cannot be sealed.
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => false,
        Err(errno) => return Err(place.failed("ask for the flags of", errno)),
    };
    Ok(MountpointState::Empty { sealed })
}

fn open_directory(parent: BorrowedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn must_be_empty(place: &Place, directory: BorrowedFd) -> Result<(), SealError> {
    let (entries, more) = entries(directory).map_err(|errno| place.failed("list", errno))?;
    if entries.is_empty() { Ok(()) } else { Err(SealError::NotEmpty { at: place.at.clone(), entries, more }) }
}

/// The first names in order, and whether there are more.
fn entries(directory: BorrowedFd) -> Result<(Vec<String>, bool), Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort();
    let more = names.len() > SHOWN;
    names.truncate(SHOWN);
    Ok((names, more))
}

fn set_immutable(directory: BorrowedFd) -> Result<Change, Errno> {
    let flags = rustix::fs::ioctl_getflags(directory)?;
    if flags.contains(IFlags::IMMUTABLE) {
        return Ok(Change::Already);
    }
    rustix::fs::ioctl_setflags(directory, flags | IFlags::IMMUTABLE)?;
    Ok(Change::Done)
}

fn clear_immutable(directory: BorrowedFd) -> Result<(), Errno> {
    let flags = rustix::fs::ioctl_getflags(directory)?;
    rustix::fs::ioctl_setflags(directory, flags.difference(IFlags::IMMUTABLE))
}

impl SealError {
    fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
