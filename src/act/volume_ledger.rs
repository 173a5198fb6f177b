//! `.volhold/ledger` at the root of the guarded volume: bytes in, bytes out. What they mean is `record`'s.
//!
//! The volume is not trusted: no link is followed, no mount is crossed, nothing above the root is reached, and a length is
//! checked before it is allocated.
//!
//! A writer reads, plans and writes under [`lock`]: one that hung in the kernel and comes back late must not write behind
//! what another one has appended meanwhile.

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The directory at the volume's root.
pub const DIRECTORY: &str = ".volhold";
/// The ledger in it.
pub const LEDGER: &str = "ledger";
/// What stands in for the ledger until it is whole and durable. A fixed name: a crash leaves at most one.
const UNFINISHED: &str = ".ledger.new";
/// Larger than any ledger that volhold writes in decades; a file beyond it is not one.
pub const LIMIT: u64 = 64 << 20;
/// Between two tries to get the lock.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The whole ledger; `None` where there is none.
pub fn read(root: BorrowedFd) -> io::Result<Option<Vec<u8>>> {
    let Some(directory) = absent(open_directory(root)).map_err(in_words("open .volhold"))? else { return Ok(None) };
    let Some(file) =
        absent(open_ledger(directory.as_fd(), OFlags::RDONLY)).map_err(in_words("open .volhold/ledger"))?
    else {
        return Ok(None);
    };
    let length = regular_length(&file)?;
    if length > LIMIT {
        let problem = format!("the volume's ledger has {length} bytes, more than the {LIMIT} that it can have");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read, but not beyond the limit.
    File::from(file).take(LIMIT).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// One writer at a time, until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it lets the next writer in"]
pub struct Lock {
    _directory: OwnedFd,
}

/// Waits at most `patience` for other writers. Makes `.volhold` where it is missing.
pub fn lock(root: BorrowedFd, patience: Duration) -> io::Result<Lock> {
    let directory = make_directory(root)?;
    let until = Instant::now().checked_add(patience);
    loop {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock { _directory: directory }),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if until.is_some_and(|until| Instant::now() < until) => {
                std::thread::sleep(LOOK_AGAIN)
            }
            Err(Errno::WOULDBLOCK) => {
                let problem = format!("another writer has had the volume's ledger for {} s", patience.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            Err(errno) => return Err(in_words("lock .volhold")(errno)),
        }
    }
}

/// Appends to the ledger and makes it durable, file and directories; makes both where they are missing. A write that fails
/// halfway is cut off again.
pub fn append(root: BorrowedFd, bytes: &[u8]) -> io::Result<()> {
    let directory = make_directory(root)?;
    // What cannot be taken away costs space and nothing else.
    let _ = clear_unfinished(directory.as_fd());
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let ledger = open_ledger(directory.as_fd(), flags).map_err(in_words("open .volhold/ledger"))?;
    let before = regular_length(&ledger)?;
    let mut file = File::from(ledger);
    if let Err(error) = file.write_all(bytes).and_then(|()| file.sync_all()) {
        // The first failure is the news.
        let _ = file.set_len(before);
        return Err(error);
    }
    rustix::fs::fsync(&directory).map_err(in_words("make .volhold durable"))?;
    rustix::fs::fsync(root).map_err(in_words("make the volume's root durable"))
}

/// Puts `bytes` in the place of the ledger that is there: whoever reads, also after a power cut, finds the old one or the
/// new one, never a part. What an interrupted replace left behind is taken away here and by the next [`append`].
pub fn replace(root: BorrowedFd, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() as u64 > LIMIT {
        let problem = format!("a ledger of {} bytes would not be read again", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let directory = open_directory(root).map_err(in_words("open .volhold"))?;
    let current = open_ledger(directory.as_fd(), OFlags::RDONLY).map_err(in_words("open .volhold/ledger"))?;
    let _regular = regular_length(&current)?;
    clear_unfinished(directory.as_fd())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let new = open(directory.as_fd(), UNFINISHED, flags).map_err(in_words("make .volhold/.ledger.new"))?;
    let mut file = File::from(new);
    let replaced = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| {
        crate::fault::fault_point("before-ledger-rename");
        rustix::fs::renameat(&directory, UNFINISHED, &directory, LEDGER)
            .map_err(in_words("rename .volhold/.ledger.new"))
    });
    if let Err(error) = replaced {
        // The first failure is the news; on a full volume the half of a ledger must not keep the space.
        let _ = clear_unfinished(directory.as_fd());
        return Err(error);
    }
    rustix::fs::fsync(&directory).map_err(in_words("make .volhold durable"))
}

/// Our own half-written file, never the ledger itself. Whatever has its name is unlinked and not followed.
fn clear_unfinished(directory: BorrowedFd) -> io::Result<()> {
    match rustix::fs::unlinkat(directory, UNFINISHED, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(in_words("take away .volhold/.ledger.new")(errno)),
    }
}

/// Cuts a torn last frame: everything after the first `valid_len` bytes, which must be there.
pub fn truncate_torn(root: BorrowedFd, valid_len: u64) -> io::Result<()> {
    let directory = open_directory(root).map_err(in_words("open .volhold"))?;
    let ledger = open_ledger(directory.as_fd(), OFlags::WRONLY).map_err(in_words("open .volhold/ledger"))?;
    let length = regular_length(&ledger)?;
    if valid_len > length {
        let problem = format!("the volume's ledger has {length} bytes and cannot be cut to {valid_len}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let file = File::from(ledger);
    file.set_len(valid_len)?;
    file.sync_all()
}

pub(super) fn make_directory(root: BorrowedFd) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(root, DIRECTORY, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(in_words("make .volhold")(errno)),
    }
    open_directory(root).map_err(in_words("open .volhold"))
}

pub(super) fn open_directory(root: BorrowedFd) -> Result<OwnedFd, Errno> {
    open(root, DIRECTORY, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// `O_NONBLOCK`: a pipe in its place must not hang us before it is recognised.
fn open_ledger(directory: BorrowedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    open(directory, LEDGER, flags | OFlags::NONBLOCK)
}

pub(super) fn open(parent: BorrowedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let within =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    // openat2 refuses a mode where nothing can be created.
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o600) } else { Mode::empty() };
    rustix::fs::openat2(parent, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode, within)
}

fn absent(opened: Result<OwnedFd, Errno>) -> Result<Option<OwnedFd>, Errno> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn regular_length(file: &OwnedFd) -> io::Result<u64> {
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the volume's .volhold/ledger is no regular file"));
    }
    u64::try_from(stat.st_size).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a file of negative size"))
}

fn in_words(operation: &'static str) -> impl Fn(Errno) -> io::Error {
    move |errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("{operation} on the volume: {error}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn volume() -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().unwrap();
        let root = File::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn what_is_appended_is_read_back_in_order_and_nobody_else_may_read_it() {
        let (dir, root) = volume();
        assert_eq!(read(root.as_fd()).unwrap(), None);
        append(root.as_fd(), b"one").unwrap();
        append(root.as_fd(), b"two").unwrap();
        assert_eq!(read(root.as_fd()).unwrap().unwrap(), b"onetwo");
        let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(".volhold"), mode(".volhold/ledger")), (0o700, 0o600));
    }

    #[test]
    fn a_torn_tail_is_cut_and_never_lengthened() {
        let (_dir, root) = volume();
        append(root.as_fd(), b"onetw").unwrap();
        truncate_torn(root.as_fd(), 3).unwrap();
        assert_eq!(read(root.as_fd()).unwrap().unwrap(), b"one");
        assert!(truncate_torn(root.as_fd(), 4).is_err());
        append(root.as_fd(), b"two").unwrap();
        assert_eq!(read(root.as_fd()).unwrap().unwrap(), b"onetwo");
    }

    #[test]
    fn a_replaced_ledger_is_the_new_one_and_nobody_else_may_read_it() {
        let (dir, root) = volume();
        assert!(replace(root.as_fd(), b"x").is_err(), "there was none to replace");
        append(root.as_fd(), b"a long ledger").unwrap();
        let reader = File::open(dir.path().join(".volhold/ledger")).unwrap();
        replace(root.as_fd(), b"short").unwrap();
        assert_eq!(read(root.as_fd()).unwrap().unwrap(), b"short");
        assert_eq!(io::read_to_string(reader).unwrap(), "a long ledger", "the old one was changed and not replaced");
        let ledger = dir.path().join(".volhold/ledger");
        assert_eq!(fs::metadata(&ledger).unwrap().permissions().mode() & 0o7777, 0o600);
        append(root.as_fd(), b"er").unwrap();
        assert_eq!(read(root.as_fd()).unwrap().unwrap(), b"shorter");
    }

    #[test]
    fn what_an_interrupted_replace_left_is_cleared_by_the_next_writer() {
        for replaces in [true, false] {
            let (dir, root) = volume();
            append(root.as_fd(), b"one").unwrap();
            let left = dir.path().join(".volhold/.ledger.new");
            fs::write(&left, "half of").unwrap();
            if replaces {
                replace(root.as_fd(), b"onetwo").unwrap();
            } else {
                append(root.as_fd(), b"two").unwrap();
            }
            assert_eq!(read(root.as_fd()).unwrap().unwrap(), b"onetwo");
            assert!(!left.exists());
        }
    }

    #[test]
    fn a_link_in_the_place_of_either_file_is_not_written_through() {
        let elsewhere = tempfile::tempdir().unwrap();
        let theirs = elsewhere.path().join("theirs");
        fs::write(&theirs, "theirs").unwrap();
        let (dir, root) = volume();
        append(root.as_fd(), b"one").unwrap();
        symlink(&theirs, dir.path().join(".volhold/.ledger.new")).unwrap();
        replace(root.as_fd(), b"two").unwrap();
        assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
        assert_eq!(read(root.as_fd()).unwrap().unwrap(), b"two");

        fs::remove_file(dir.path().join(".volhold/ledger")).unwrap();
        symlink(&theirs, dir.path().join(".volhold/ledger")).unwrap();
        assert!(replace(root.as_fd(), b"three").is_err());
        assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
    }

    #[test]
    fn a_second_writer_waits_its_patience_and_no_longer() {
        let (_dir, root) = volume();
        let first = lock(root.as_fd(), Duration::ZERO).unwrap();
        let late = lock(root.as_fd(), Duration::from_millis(30)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        drop(first);
        drop(lock(root.as_fd(), Duration::ZERO).unwrap());
    }

    #[test]
    fn no_link_leads_out_of_the_volume() {
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("ledger"), "theirs").unwrap();
        let (dir, root) = volume();
        symlink(elsewhere.path(), dir.path().join(".volhold")).unwrap();
        assert!(read(root.as_fd()).is_err());
        assert!(append(root.as_fd(), b"x").is_err());

        let (dir, root) = volume();
        fs::create_dir(dir.path().join(".volhold")).unwrap();
        symlink(elsewhere.path().join("ledger"), dir.path().join(".volhold/ledger")).unwrap();
        assert!(read(root.as_fd()).is_err());
        assert!(append(root.as_fd(), b"x").is_err());
        assert_eq!(fs::read(elsewhere.path().join("ledger")).unwrap(), b"theirs");
    }

    #[test]
    fn a_pipe_a_directory_and_a_monster_in_its_place_are_errors() {
        let (dir, root) = volume();
        fs::create_dir_all(dir.path().join(".volhold/ledger")).unwrap();
        assert!(read(root.as_fd()).is_err());

        let (dir, root) = volume();
        fs::create_dir(dir.path().join(".volhold")).unwrap();
        nix::unistd::mkfifo(&dir.path().join(".volhold/ledger"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read(root.as_fd()).is_err());
        assert!(append(root.as_fd(), b"x").is_err());

        let (dir, root) = volume();
        append(root.as_fd(), b"one").unwrap();
        File::options().write(true).open(dir.path().join(".volhold/ledger")).unwrap().set_len(LIMIT + 1).unwrap();
        assert_eq!(read(root.as_fd()).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
