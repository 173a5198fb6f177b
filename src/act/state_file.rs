//! etcd-manager's file `state` at the root of a volume: bytes in, bytes out. What they mean is `etcd`'s.
//!
//! etcd-manager writes it in place; a power cut can leave half of one. Here the old one is kept under a dated name first,
//! and the new one gets the name when it is whole and durable: whoever reads finds the one or the other.

use super::Change;
use crate::fault::fault_point;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};

/// The file at the volume's root.
pub const STATE: &str = "state";
/// What stands in for a file until it is whole. Fixed names: a crash leaves at most one of each.
const UNFINISHED: &str = ".state.volhold-new";
const UNFINISHED_COPY: &str = ".state.volhold-old";
/// A few hundred bytes a node; a file beyond this is none.
const LIMIT: u64 = 1 << 20;

/// Opens it for a reader.
pub fn open(root: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let file = within(root, STATE, OFlags::RDONLY | OFlags::NONBLOCK).map_err(words("open the file state"))?;
    regular(&file)?;
    Ok(file)
}

/// Puts `bytes` in its place, and keeps what was there under the name `keep`. Who finds that done already changes nothing.
pub fn replace(root: BorrowedFd<'_>, bytes: &[u8], keep: &str) -> io::Result<Change> {
    if !keep.strip_prefix("state.").is_some_and(|date| !date.is_empty() && !date.contains('/')) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{keep}` is no name for an old state")));
    }
    let current = open(root)?;
    let stat = rustix::fs::fstat(&current)?;
    let before = all_of(current)?;
    if before == bytes {
        return Ok(Change::Already);
    }
    let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid), Mode::from_raw_mode(stat.st_mode));
    match within(root, keep, OFlags::RDONLY | OFlags::NONBLOCK) {
        // Of an attempt that was interrupted.
        Ok(kept) => {
            regular(&kept)?;
            if all_of(kept)? != before {
                let problem = format!("{keep} is there already, and is another one than the file state is now");
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
            }
        }
        Err(Errno::NOENT) => {
            write(root, UNFINISHED_COPY, &before, owner)?;
            fault_point("before-state-kept");
            rustix::fs::renameat_with(root, UNFINISHED_COPY, root, keep, RenameFlags::NOREPLACE)
                .map_err(words("keep the old file state"))?;
            rustix::fs::fsync(root).map_err(words("make the volume's root durable"))?;
        }
        Err(errno) => return Err(words("look for an old file state")(errno)),
    }
    fault_point("after-state-kept");
    write(root, UNFINISHED, bytes, owner)?;
    fault_point("before-state-rename");
    rustix::fs::renameat(root, UNFINISHED, root, STATE).map_err(words("name the new file state"))?;
    rustix::fs::fsync(root).map_err(words("make the volume's root durable"))?;
    fault_point("after-state-rename");
    Ok(Change::Done)
}

fn write(root: BorrowedFd<'_>, name: &str, bytes: &[u8], owner: (Uid, Gid, Mode)) -> io::Result<()> {
    // Our own half of one. Whatever has its name is unlinked and not followed.
    match rustix::fs::unlinkat(root, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(words("take away an unfinished file state")(errno)),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let file = within(root, name, flags).map_err(words("make a new file state"))?;
    let (uid, gid, mode) = owner;
    rustix::fs::fchown(&file, Some(uid), Some(gid)).map_err(words("give away a new file state"))?;
    rustix::fs::fchmod(&file, mode).map_err(words("set the mode of a new file state"))?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    file.sync_all()
}

fn within(root: BorrowedFd<'_>, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o600) } else { Mode::empty() };
    rustix::fs::openat2(root, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode, stay)
}

fn regular(file: &OwnedFd) -> io::Result<()> {
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no regular file"));
    }
    Ok(())
}

fn all_of(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::from(file).take(LIMIT.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMIT {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is far larger than any state of etcd-manager"));
    }
    Ok(bytes)
}

fn words(operation: &'static str) -> impl Fn(Errno) -> io::Error {
    move |errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("cannot {operation} on the volume: {error}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn volume(state: &[u8]) -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(STATE), state).unwrap();
        fs::set_permissions(dir.path().join(STATE), fs::Permissions::from_mode(0o755)).unwrap();
        let root = File::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn the_old_one_is_kept_and_the_new_one_has_its_mode() {
        let (dir, root) = volume(b"old");
        assert_eq!(replace(root.as_fd(), b"new", "state.1").unwrap(), Change::Done);
        assert_eq!(fs::read(dir.path().join(STATE)).unwrap(), b"new");
        assert_eq!(fs::read(dir.path().join("state.1")).unwrap(), b"old");
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(STATE), mode("state.1")), (0o755, 0o755));
        assert_eq!(replace(root.as_fd(), b"new", "state.1").unwrap(), Change::Already);
        assert_eq!(fs::read(dir.path().join("state.1")).unwrap(), b"old", "done twice, and the old one is lost");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "something is left behind");
    }

    #[test]
    fn no_old_one_is_ever_written_over_and_no_link_is_followed() {
        let (dir, root) = volume(b"old");
        fs::write(dir.path().join("state.1"), "precious").unwrap();
        assert!(replace(root.as_fd(), b"new", "state.1").is_err());
        assert_eq!(fs::read(dir.path().join("state.1")).unwrap(), b"precious");
        assert_eq!(fs::read(dir.path().join(STATE)).unwrap(), b"old");
        for name in ["state", "state.", "state.a/b", "other"] {
            assert!(replace(root.as_fd(), b"new", name).is_err(), "{name}");
        }
        fs::rename(dir.path().join(STATE), dir.path().join("real")).unwrap();
        symlink("real", dir.path().join(STATE)).unwrap();
        assert!(replace(root.as_fd(), b"new", "state.2").is_err());
        assert_eq!(fs::read(dir.path().join("real")).unwrap(), b"old");
    }

    #[test]
    fn an_attempt_that_was_interrupted_is_finished() {
        let (dir, root) = volume(b"old");
        fs::write(dir.path().join("state.1"), "old").unwrap();
        fs::write(dir.path().join(UNFINISHED), "ne").unwrap();
        fs::write(dir.path().join(UNFINISHED_COPY), "o").unwrap();
        assert_eq!(replace(root.as_fd(), b"new", "state.1").unwrap(), Change::Done);
        assert_eq!(fs::read(dir.path().join(STATE)).unwrap(), b"new");
        assert_eq!(fs::read(dir.path().join("state.1")).unwrap(), b"old");
    }
}
