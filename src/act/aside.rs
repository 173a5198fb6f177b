//! Renames on a guarded volume: into the quarantine, back from it, and from one place to another.
//!
//! Nothing is deleted, nothing is copied, nothing gets a name that is taken, and nothing crosses a filesystem: a rename
//! either has happened or has not. Each function can find its work half done, after a crash, and finishes it.

use super::Change;
use super::volume_ledger::DIRECTORY;
use crate::fault::fault_point;
use crate::model::VolumeChange;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};
use thiserror::Error;

/// Below `.volhold`.
const QUARANTINE: &str = "quarantine";
/// What was moved, and what is said about it.
const CONTENT: &str = "content";
const MANIFEST: &str = "manifest.json";
const UNFINISHED: &str = ".manifest.new";
/// Which move was begun last.
const MOVING: &str = "moving.json";

#[derive(Debug, Error)]
pub enum AsideError {
    #[error("`{path}` is nothing on the volume that may be moved: {why}")]
    BadPath { path: String, why: &'static str },
    #[error("there is no `{path}` on the volume")]
    Missing { path: String },
    #[error("`{path}` is taken on the volume")]
    Taken { path: String },
    #[error("cannot {operation} `{path}` on the volume")]
    Io {
        operation: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
}

/// Renames `path` to `.volhold/quarantine/NAME/content`; `manifest` is written beside it before that. `refilled`: where a later
/// change of the same order moves something to `path` from. Once that is gone from there, what has the name is that.
pub fn quarantine(
    root: BorrowedFd<'_>,
    path: &str,
    name: &str,
    manifest: &[u8],
    refilled: Option<&str>,
) -> Result<Change, AsideError> {
    let place = Place::of(path)?;
    let entry = open_entry(root, name, true)?;
    let parent = place.parent(root)?;
    if exists(entry.as_fd(), CONTENT, path)? {
        let moved_in = match refilled {
            Some(from) => !there(root, from)?,
            None => false,
        };
        // Whatever has the old name now came there since.
        return if exists(parent.as_fd(), &place.last, path)? && !moved_in {
            Err(AsideError::Taken { path: format!("{DIRECTORY}/{QUARANTINE}/{name}/{CONTENT}") })
        } else {
            sync(&[entry.as_fd(), parent.as_fd()], path)?;
            Ok(Change::Already)
        };
    }
    if !exists(parent.as_fd(), &place.last, path)? {
        return Err(AsideError::Missing { path: path.to_owned() });
    }
    if !exists(entry.as_fd(), MANIFEST, name)? {
        write_manifest(entry.as_fd(), name, manifest)?;
    }
    fault_point("after-manifest");
    rename(parent.as_fd(), &place.last, entry.as_fd(), CONTENT, path)?;
    fault_point("after-quarantine-rename");
    sync(&[entry.as_fd(), parent.as_fd()], path)?;
    Ok(Change::Done)
}

/// Renames the content of a quarantine's entry to `to`. The manifest stays.
pub fn give_back(root: BorrowedFd<'_>, name: &str, to: &str) -> Result<Change, AsideError> {
    let place = Place::of(to)?;
    let entry = open_entry(root, name, false)?;
    let kept = format!("{DIRECTORY}/{QUARANTINE}/{name}/{CONTENT}");
    let parent = place.parent_made(root)?;
    match (exists(entry.as_fd(), CONTENT, name)?, exists(parent.as_fd(), &place.last, to)?) {
        (true, true) => return Err(AsideError::Taken { path: to.to_owned() }),
        (false, true) if noted(root, parent.as_fd(), &place.last, &kept, to)? => {
            sync(&[entry.as_fd(), parent.as_fd()], to)?;
            return Ok(Change::Already);
        }
        // What has the name is something else, and did not come from here.
        (false, true | false) => {
            return Err(AsideError::Missing { path: kept });
        }
        (true, false) => {}
    }
    note(root, entry.as_fd(), CONTENT, &kept, to)?;
    fault_point("after-move-noted");
    rename(entry.as_fd(), CONTENT, parent.as_fd(), &place.last, to)?;
    fault_point("after-give-back-rename");
    sync(&[entry.as_fd(), parent.as_fd()], to)?;
    Ok(Change::Done)
}

/// Renames `from` to `to`. Directories above `to` that are missing are made, root's, mode 0755.
pub fn move_to(root: BorrowedFd<'_>, from: &str, to: &str) -> Result<Change, AsideError> {
    let (source, target) = (Place::of(from)?, Place::of(to)?);
    if Path::new(to).starts_with(from) {
        return Err(AsideError::BadPath { path: to.to_owned(), why: "it lies in what is to be moved" });
    }
    let parent = target.parent_made(root)?;
    let old = match source.parent(root) {
        Ok(old) => Some(old).filter(|old| exists(old.as_fd(), &source.last, from).unwrap_or(true)),
        Err(AsideError::Missing { .. }) => None,
        Err(error) => return Err(error),
    };
    match (old, exists(parent.as_fd(), &target.last, to)?) {
        (Some(_), true) => Err(AsideError::Taken { path: to.to_owned() }),
        (None, true) if noted(root, parent.as_fd(), &target.last, from, to)? => {
            sync(&[parent.as_fd()], to)?;
            Ok(Change::Already)
        }
        (None, true | false) => Err(AsideError::Missing { path: from.to_owned() }),
        (Some(old), false) => {
            note(root, old.as_fd(), &source.last, from, to)?;
            fault_point("after-move-noted");
            rename(old.as_fd(), &source.last, parent.as_fd(), &target.last, from)?;
            fault_point("after-move-rename");
            sync(&[parent.as_fd(), old.as_fd()], to)?;
            Ok(Change::Done)
        }
    }
}

/// Has this change been begun? Then, and only then, an order of an earlier boot is still finished.
pub fn begun(root: BorrowedFd<'_>, change: &VolumeChange) -> Result<bool, AsideError> {
    match change {
        VolumeChange::Quarantine { name, .. } => match open_entry(root, name, false) {
            Ok(_entry) => Ok(true),
            Err(AsideError::Missing { .. }) => Ok(false),
            Err(error) => Err(error),
        },
        VolumeChange::GiveBack { name, .. } => {
            let entry = open_entry(root, name, false)?;
            Ok(!exists(entry.as_fd(), CONTENT, name)?)
        }
        VolumeChange::Move { from, .. } => Ok(!there(root, from)?),
        VolumeChange::SetState { keep, .. } => exists(root, keep, keep),
    }
}

fn there(root: BorrowedFd<'_>, path: &str) -> Result<bool, AsideError> {
    let place = Place::of(path)?;
    match place.parent(root) {
        Ok(parent) => exists(parent.as_fd(), &place.last, path),
        Err(AsideError::Missing { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A path within the volume, taken apart.
struct Place {
    shown: String,
    above: Vec<String>,
    last: String,
}

impl Place {
    fn of(path: &str) -> Result<Self, AsideError> {
        let bad = |why| AsideError::BadPath { path: path.to_owned(), why };
        let mut names = Vec::new();
        for component in Path::new(path).components() {
            match component {
                Component::Normal(name) => {
                    names.push(name.to_str().ok_or_else(|| bad("its name is no text"))?.to_owned());
                }
                Component::CurDir => {}
                Component::Prefix(_) | Component::RootDir => return Err(bad("give it relative to the volume's root")),
                Component::ParentDir => return Err(bad("it leads upwards")),
            }
        }
        match names.first().map(String::as_str) {
            None => return Err(bad("it is the volume's root")),
            Some(DIRECTORY) => return Err(bad("it is volhold's own")),
            Some("lost+found") => return Err(bad("it is the filesystem's own")),
            Some(_) => {}
        }
        let last = names.pop().ok_or_else(|| bad("it is the volume's root"))?;
        Ok(Place { shown: path.to_owned(), above: names, last })
    }

    fn parent(&self, root: BorrowedFd<'_>) -> Result<OwnedFd, AsideError> {
        let mut parent = open(root, ".").map_err(io_error("open the root above", &self.shown))?;
        for name in &self.above {
            parent = match open(parent.as_fd(), name) {
                Ok(dir) => dir,
                Err(Errno::NOENT) => return Err(AsideError::Missing { path: self.shown.clone() }),
                Err(errno) => return Err(io_error("open what is above", &self.shown)(errno)),
            };
        }
        Ok(parent)
    }

    fn parent_made(&self, root: BorrowedFd<'_>) -> Result<OwnedFd, AsideError> {
        let mut parent = open(root, ".").map_err(io_error("open the root above", &self.shown))?;
        for name in &self.above {
            parent = make(parent.as_fd(), name, 0o755, &self.shown)?;
        }
        Ok(parent)
    }
}

fn open_entry(root: BorrowedFd<'_>, name: &str, makes: bool) -> Result<OwnedFd, AsideError> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(AsideError::BadPath { path: name.to_owned(), why: "it is no name in a quarantine" });
    }
    let mut dir = open(root, ".").map_err(io_error("open the root above", name))?;
    for part in [DIRECTORY, QUARANTINE, name] {
        dir = if makes {
            make(dir.as_fd(), part, 0o700, name)?
        } else {
            match open(dir.as_fd(), part) {
                Ok(dir) => dir,
                Err(Errno::NOENT) => {
                    return Err(AsideError::Missing { path: format!("{DIRECTORY}/{QUARANTINE}/{name}") });
                }
                Err(errno) => return Err(io_error("open in the quarantine", name)(errno)),
            }
        };
    }
    Ok(dir)
}

fn make(parent: BorrowedFd<'_>, name: &str, mode: u32, shown: &str) -> Result<OwnedFd, AsideError> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => rustix::fs::fsync(parent).map_err(io_error("make durable what is above", shown))?,
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(io_error("make what is above", shown)(errno)),
    }
    open(parent, name).map_err(io_error("open what is above", shown))
}

/// What is moved next, and where to: durable before the rename, so that whoever finds it done knows that it was this move, and
/// not something else that has got the name meanwhile.
fn note(root: BorrowedFd<'_>, parent: BorrowedFd<'_>, last: &str, from: &str, to: &str) -> Result<(), AsideError> {
    let own = make(root, DIRECTORY, 0o700, from)?;
    let text = noting(parent, last, from, to)?;
    write_file(own.as_fd(), MOVING, text.as_bytes(), "note the move of", from)
}

/// Is `last` what the last noted move brought here?
fn noted(root: BorrowedFd<'_>, parent: BorrowedFd<'_>, last: &str, from: &str, to: &str) -> Result<bool, AsideError> {
    let failed = io_error("read which move was noted of", from);
    let wanted = noting(parent, last, from, to)?;
    let own = match open(root, DIRECTORY) {
        Ok(own) => own,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(failed(errno)),
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(own.as_fd(), MOVING, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(failed(errno)),
    };
    // One byte more than is wanted shows a longer one.
    let most = u64::try_from(wanted.len()).unwrap_or(u64::MAX).saturating_add(1);
    let mut found = Vec::new();
    file.take(most).read_to_end(&mut found).map_err(|source| AsideError::Io {
        operation: "read which move was noted of",
        path: from.to_owned(),
        source,
    })?;
    Ok(found == wanted.as_bytes())
}

fn noting(parent: BorrowedFd<'_>, last: &str, from: &str, to: &str) -> Result<String, AsideError> {
    let what = rustix::fs::statat(parent, last, AtFlags::SYMLINK_NOFOLLOW).map_err(io_error("look at", from))?;
    let text = serde_json::json!({ "inode": what.st_ino, "from": from, "to": to });
    Ok(format!("{text}\n"))
}

fn write_manifest(entry: BorrowedFd<'_>, name: &str, manifest: &[u8]) -> Result<(), AsideError> {
    write_file(entry, MANIFEST, manifest, "write the manifest of", name)
}

/// By rename, so that it is whole or as it was.
fn write_file(
    entry: BorrowedFd<'_>,
    named: &str,
    bytes: &[u8],
    operation: &'static str,
    shown: &str,
) -> Result<(), AsideError> {
    let failed = |source| AsideError::Io { operation, path: shown.to_owned(), source };
    match rustix::fs::unlinkat(entry, UNFINISHED, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed(errno.into())),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat(entry, UNFINISHED, flags, Mode::from_raw_mode(0o600)).map_err(|e| failed(e.into()))?;
    let mut file = File::from(file);
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    rustix::fs::renameat(entry, UNFINISHED, entry, named).map_err(|errno| failed(errno.into()))?;
    rustix::fs::fsync(entry).map_err(|errno| failed(errno.into()))
}

fn rename(from: BorrowedFd<'_>, old: &str, to: BorrowedFd<'_>, new: &str, shown: &str) -> Result<(), AsideError> {
    match rustix::fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(AsideError::Taken { path: new.to_owned() }),
        Err(errno) => Err(io_error("rename", shown)(errno)),
    }
}

fn sync(dirs: &[BorrowedFd<'_>], shown: &str) -> Result<(), AsideError> {
    dirs.iter().try_for_each(|dir| rustix::fs::fsync(dir).map_err(io_error("make durable", shown)))
}

fn exists(dir: BorrowedFd<'_>, name: &str, shown: &str) -> Result<bool, AsideError> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(io_error("look at", shown)(errno)),
    }
}

fn open(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let within =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(parent, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), within)
}

fn io_error(operation: &'static str, path: &str) -> impl Fn(Errno) -> AsideError {
    let path = path.to_owned();
    move |errno| AsideError::Io { operation, path: path.clone(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn volume() -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("data/new/member")).unwrap();
        fs::write(dir.path().join("data/new/member/x"), "bytes").unwrap();
        let root = File::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn what_goes_aside_comes_back_with_every_byte_and_twice_is_once() {
        let (dir, root) = volume();
        assert_eq!(quarantine(root.as_fd(), "data/new", "1-new", b"{}", None).unwrap(), Change::Done);
        let entry = dir.path().join(".volhold/quarantine/1-new");
        assert_eq!(fs::read(entry.join("content/member/x")).unwrap(), b"bytes");
        assert_eq!(fs::read(entry.join("manifest.json")).unwrap(), b"{}");
        assert!(!dir.path().join("data/new").exists());
        assert_eq!(quarantine(root.as_fd(), "data/new", "1-new", b"{}", None).unwrap(), Change::Already);

        assert_eq!(give_back(root.as_fd(), "1-new", "data/new").unwrap(), Change::Done);
        assert_eq!(fs::read(dir.path().join("data/new/member/x")).unwrap(), b"bytes");
        assert_eq!(give_back(root.as_fd(), "1-new", "data/new").unwrap(), Change::Already);
        assert!(entry.join("manifest.json").exists());
        // Given back long ago, it cannot be given back to where something else lies.
        fs::create_dir(dir.path().join("data/other")).unwrap();
        let other = give_back(root.as_fd(), "1-new", "data/other").unwrap_err();
        assert!(matches!(other, AsideError::Missing { .. }), "{other}");
    }

    #[test]
    fn what_was_moved_in_since_is_no_rival_of_what_went_aside() {
        let (dir, root) = volume();
        fs::create_dir_all(dir.path().join("data/old/member")).unwrap();
        let aside = || quarantine(root.as_fd(), "data/new", "1-new", b"{}", Some("data/old"));
        let change = VolumeChange::Quarantine { path: "data/new".to_owned(), name: "1-new".to_owned() };
        let moving = VolumeChange::Move { from: "data/old".to_owned(), to: "data/new".to_owned() };
        assert!(!begun(root.as_fd(), &change).unwrap() && !begun(root.as_fd(), &moving).unwrap());
        assert_eq!(aside().unwrap(), Change::Done);
        assert!(begun(root.as_fd(), &change).unwrap());
        assert_eq!(move_to(root.as_fd(), "data/old", "data/new").unwrap(), Change::Done);
        assert!(begun(root.as_fd(), &moving).unwrap());
        // Killed here, the order is gone through from its beginning.
        assert_eq!(aside().unwrap(), Change::Already);
        assert_eq!(move_to(root.as_fd(), "data/old", "data/new").unwrap(), Change::Already);
        // But where what was to be moved in is still there, the name was taken by something else.
        fs::create_dir(dir.path().join("data/old")).unwrap();
        assert!(matches!(aside(), Err(AsideError::Taken { .. })));
    }

    #[test]
    fn nothing_is_put_over_anything() {
        let (dir, root) = volume();
        quarantine(root.as_fd(), "data/new", "1-new", b"{}", None).unwrap();
        fs::create_dir(dir.path().join("data/new")).unwrap();
        let again = quarantine(root.as_fd(), "data/new", "1-new", b"{}", None).unwrap_err();
        assert!(matches!(again, AsideError::Taken { .. }), "{again}");
        let back = give_back(root.as_fd(), "1-new", "data/new").unwrap_err();
        assert!(matches!(back, AsideError::Taken { .. }), "{back}");
        fs::create_dir(dir.path().join("other")).unwrap();
        let moved = move_to(root.as_fd(), "other", "data/new").unwrap_err();
        assert!(matches!(moved, AsideError::Taken { .. }), "{moved}");
    }

    #[test]
    fn a_move_makes_what_is_above_and_is_found_done() {
        let (dir, root) = volume();
        assert_eq!(move_to(root.as_fd(), "data/new", "a/b/c").unwrap(), Change::Done);
        assert_eq!(fs::read(dir.path().join("a/b/c/member/x")).unwrap(), b"bytes");
        assert_eq!(move_to(root.as_fd(), "data/new", "a/b/c").unwrap(), Change::Already);
        assert!(matches!(move_to(root.as_fd(), "no", "where"), Err(AsideError::Missing { .. })));
        // Something else got the name: nothing was moved there, and that is no move that was done before.
        fs::rename(dir.path().join("a/b/c"), dir.path().join("elsewhere")).unwrap();
        fs::create_dir(dir.path().join("a/b/c")).unwrap();
        let other = move_to(root.as_fd(), "data/new", "a/b/c").unwrap_err();
        assert!(matches!(other, AsideError::Missing { .. }), "{other}");
        let never = move_to(root.as_fd(), "no", "elsewhere").unwrap_err();
        assert!(matches!(never, AsideError::Missing { .. }), "{never}");
        assert!(matches!(move_to(root.as_fd(), "a", "a/b/d"), Err(AsideError::BadPath { .. })));
    }

    #[test]
    fn the_root_our_own_and_what_leads_out_are_not_moved() {
        let (dir, root) = volume();
        for path in ["", ".", "/data", "../x", "data/../..", ".volhold", ".volhold/ledger", "lost+found"] {
            let error = quarantine(root.as_fd(), path, "1", b"{}", None).unwrap_err();
            assert!(matches!(error, AsideError::BadPath { .. }), "{path}: {error}");
        }
        let elsewhere = tempfile::tempdir().unwrap();
        fs::create_dir(elsewhere.path().join("theirs")).unwrap();
        symlink(elsewhere.path(), dir.path().join("link")).unwrap();
        assert!(quarantine(root.as_fd(), "link/theirs", "1", b"{}", None).is_err());
        assert!(elsewhere.path().join("theirs").exists());
        for name in ["", "..", "a/b", ".x"] {
            assert!(quarantine(root.as_fd(), "data/new", name, b"{}", None).is_err(), "{name}");
        }
        assert!(matches!(quarantine(root.as_fd(), "data/no", "1", b"{}", None), Err(AsideError::Missing { .. })));
    }
}
