//! Who runs on a data dir, told from the kernel's list of locks and never by taking one: a lock taken, even for a moment,
//! could keep an etcd from starting.
//!
//! bbolt takes a flock on `member/snap/db`, etcd 2 one on its log files; etcd 3 takes open-file-description locks on the log,
//! which `/proc/locks` shows without a process. The list names files by device and inode, `08:01:1234`, the device being
//! the superblock's: on filesystems that show every file another `st_dev` (btrfs) that is the one of mountinfo.

use super::dir::{list, open_dir_str, open_file};
use super::error::EtcdError;
use super::member::{DB, MAX_NAMES, SNAP_DIR, WAL_DIR};
use super::wal;
use crate::model::{DevNum, Observed, RunningEtcd, VolumeReading, Why};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// A file as `/proc/locks` names it.
type LockId = (DevNum, u64);

/// The process that holds a lock on the backend or the log of this data dir; `Seen(None)`: nobody.
pub fn lock_holder(dir: BorrowedFd<'_>) -> Observed<Option<u32>> {
    match locked_files(dir) {
        Ok(files) => holder_of(&files),
        Err(error) => Observed::Unknown(Why::Unreadable { detail: error.chain() }),
    }
}

/// The etcd that runs on any data dir of this volume.
pub fn running_on(root: BorrowedFd<'_>, reading: &VolumeReading) -> Observed<Option<RunningEtcd>> {
    let mut unknown = None;
    for report in &reading.data_dirs {
        let holder = match open_dir_str(root, &report.path) {
            Ok(dir) => lock_holder(dir.as_fd()),
            // Moved away meanwhile, or of a name that is only shown escaped: what the reading saw is the best there is.
            Err(error) if error.is_absent() => Observed::Seen(report.locked_by),
            Err(error) => Observed::Unknown(Why::Unreadable { detail: error.chain() }),
        };
        match holder {
            Observed::Seen(Some(pid)) => {
                return Observed::Seen(Some(RunningEtcd { pid, data_dir: report.path.clone() }));
            }
            Observed::Seen(None) => {}
            Observed::Unknown(why) => unknown = Some(why),
        }
    }
    unknown.map_or(Observed::Seen(None), Observed::Unknown)
}

fn locked_files(dir: BorrowedFd<'_>) -> Result<BTreeSet<LockId>, EtcdError> {
    let mut files = BTreeSet::new();
    match open_dir_str(dir, SNAP_DIR) {
        Ok(snap) => match open_file(snap.as_fd(), "db", DB) {
            Ok(file) => add(&file, DB, &mut files)?,
            Err(error) if error.is_absent() => {}
            // Whatever lies there instead of a file, no etcd has it open.
            Err(EtcdError::Kind { .. }) => {}
            Err(error) => return Err(error),
        },
        // Where `member` is no directory, no file of a member can be open.
        Err(error) if error.is_absent() || error.is_not_a_directory() => {}
        Err(error) => return Err(error),
    }
    match open_dir_str(dir, WAL_DIR) {
        Ok(log) => {
            for entry in list(log.as_fd(), WAL_DIR, MAX_NAMES)? {
                let Some(name) = entry.text().filter(|name| wal::parse_name(name).is_some()) else { continue };
                let path = format!("{WAL_DIR}/{name}");
                match open_file(log.as_fd(), name, &path) {
                    Ok(file) => add(&file, &path, &mut files)?,
                    Err(error) if error.is_absent() => {}
                    Err(EtcdError::Kind { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Err(error) if error.is_absent() || error.is_not_a_directory() => {}
        Err(error) => return Err(error),
    }
    Ok(files)
}

fn add(file: &File, path: &str, files: &mut BTreeSet<LockId>) -> Result<(), EtcdError> {
    let meta = file.metadata().map_err(|source| EtcdError::Stat { path: path.to_owned(), source })?;
    files.insert((DevNum::from_dev_t(meta.dev()), meta.ino()));
    // A mount that is detached has no line in mountinfo; there st_dev is all there is.
    if let Some(device) = superblock_device(file) {
        files.insert((device, meta.ino()));
    }
    Ok(())
}

/// Device number of the superblock, from the mountinfo line of the mount that the file was opened through.
fn superblock_device(file: impl AsFd) -> Option<DevNum> {
    use rustix::fs::{AtFlags, StatxFlags};
    let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let id = found.stx_mnt_id.to_string();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&id))?;
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    Some(DevNum { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Who holds the lock of one line of `/proc/locks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Pid(u32),
    /// An open-file-description lock, or one of a process that this namespace cannot see.
    Nameless,
}

fn holder_of(files: &BTreeSet<LockId>) -> Observed<Option<u32>> {
    let text = match std::fs::read_to_string("/proc/locks") {
        Ok(text) => text,
        Err(error) => return Observed::Unknown(Why::Unreadable { detail: format!("/proc/locks: {error}") }),
    };
    let mut nameless = false;
    for holder in text.lines().filter_map(|line| parse_lock(line, files)) {
        match holder {
            Holder::Pid(pid) => return Observed::Seen(Some(pid)),
            Holder::Nameless => nameless = true,
        }
    }
    if !nameless {
        return Observed::Seen(None);
    }
    match owner_of(files) {
        Some(pid) => Observed::Seen(Some(pid)),
        None => {
            let detail = "a lock is held on the log by a process that could not be found".to_owned();
            Observed::Unknown(Why::Unreadable { detail })
        }
    }
}

/// `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`; lines of waiters have `->` after the number.
fn lock_line(line: &str) -> Option<(Holder, LockId)> {
    let mut words = line.split_whitespace().skip(1);
    let kind = words.next()?;
    // A waiter holds nothing; leases and delegations are not what etcd takes.
    if !matches!(kind, "FLOCK" | "OFDLCK" | "POSIX") {
        return None;
    }
    let pid = words.nth(2)?;
    let mut place = words.next()?.split(':');
    let major = u32::from_str_radix(place.next()?, 16).ok()?;
    let minor = u32::from_str_radix(place.next()?, 16).ok()?;
    let inode = place.next()?.parse().ok()?;
    let holder = pid.parse::<u32>().ok().filter(|pid| *pid > 0).map_or(Holder::Nameless, Holder::Pid);
    Some((holder, (DevNum { major, minor }, inode)))
}

/// The holder, where the line is of one of these files.
fn parse_lock(line: &str, files: &BTreeSet<LockId>) -> Option<Holder> {
    lock_line(line).filter(|(_, lock)| files.contains(lock)).map(|(holder, _)| holder)
}

/// Whose the nameless locks are, found while this process could still look at others.
static OWNERS: OnceLock<BTreeMap<LockId, u32>> = OnceLock::new();

/// For a process that is about to give up the right to look at others (`/proc/PID/fdinfo` takes that of a debugger): finds
/// the owners of the nameless locks on the volume of `root` now. Whether they still hold their locks is asked later, and
/// the owner of one that is taken in between is unknown.
pub fn remember_lock_owners(root: BorrowedFd<'_>) {
    let mut owners = BTreeMap::new();
    let (nameless, named) = locks_on(root);
    if !nameless.is_empty() {
        // An etcd of today holds a lock with a name beside each nameless one: few processes have to be looked at.
        let mut seen = BTreeSet::new();
        for pid in named.into_iter().chain(processes()) {
            if nameless.iter().all(|lock| owners.contains_key(lock)) {
                break;
            }
            if seen.insert(pid) {
                owners.extend(locks_of(pid).into_iter().filter(|lock| nameless.contains(lock)).map(|lock| (lock, pid)));
            }
        }
    }
    // Whoever remembered first was as near to the truth.
    let _remembered = OWNERS.set(owners);
}

/// The locks on files of the superblock of `root`: the nameless ones, and the processes that have others. Nothing where the
/// list cannot be read, which whoever reads it for an answer will say.
fn locks_on(root: BorrowedFd<'_>) -> (BTreeSet<LockId>, BTreeSet<u32>) {
    let (mut nameless, mut named) = (BTreeSet::new(), BTreeSet::new());
    let mut devices: Vec<DevNum> = superblock_device(root).into_iter().collect();
    if let Ok(stat) = rustix::fs::fstat(root) {
        devices.push(DevNum::from_dev_t(stat.st_dev));
    }
    let text = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    for (holder, lock) in text.lines().filter_map(lock_line).filter(|(_, lock)| devices.contains(&lock.0)) {
        match holder {
            Holder::Pid(pid) => named.insert(pid),
            Holder::Nameless => nameless.insert(lock),
        };
    }
    (nameless, named)
}

/// The processes that hold a named lock on a file of this volume, with the inodes. A running etcd of any version from 3.0 on
/// holds one on its backend.
pub fn lockers(root: BorrowedFd<'_>) -> Result<BTreeMap<u32, BTreeSet<u64>>, EtcdError> {
    let path = "/proc/locks";
    let text = std::fs::read_to_string(path).map_err(|source| EtcdError::Open { path: path.to_owned(), source })?;
    let stat =
        rustix::fs::fstat(root).map_err(|errno| EtcdError::Stat { path: ".".to_owned(), source: errno.into() })?;
    let mut devices = BTreeSet::from([DevNum::from_dev_t(stat.st_dev)]);
    devices.extend(superblock_device(root));
    let mut found: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for (holder, (device, inode)) in text.lines().filter_map(lock_line) {
        if let Holder::Pid(pid) = holder
            && devices.contains(&device)
        {
            found.entry(pid).or_default().insert(inode);
        }
    }
    Ok(found)
}

/// Those of `lockers` that hold no lock on any file of these data dirs: what they write goes elsewhere.
///
/// For the moment in which etcd changes its backend for another one (a defragmentation) that may look so: what is said here
/// is true once it is said twice.
pub fn strays(
    root: BorrowedFd<'_>,
    lockers: &BTreeMap<u32, BTreeSet<u64>>,
    data_dirs: &[String],
) -> Result<BTreeSet<u32>, EtcdError> {
    let mut own = BTreeSet::new();
    for path in data_dirs {
        match open_dir_str(root, path) {
            Ok(dir) => own.extend(locked_files(dir.as_fd())?.into_iter().map(|(_device, inode)| inode)),
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(lockers.iter().filter(|(_, inodes)| inodes.is_disjoint(&own)).map(|(pid, _)| *pid).collect())
}

fn processes() -> impl Iterator<Item = u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| process.file_name().to_str().and_then(|name| name.parse().ok()))
}

/// The files that this process has locked through any of its descriptors: `fdinfo` repeats the lines of `/proc/locks`.
fn locks_of(pid: u32) -> BTreeSet<LockId> {
    // A process that ends meanwhile holds no lock any more.
    let infos = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = infos.filter_map(|info| std::fs::read_to_string(info.path()).ok());
    let mut locks = BTreeSet::new();
    for text in texts {
        let lines = text.lines().filter_map(|line| line.strip_prefix("lock:"));
        locks.extend(lines.filter_map(|line| lock_line(line.trim_start())).map(|(_, lock)| lock));
    }
    locks
}

/// The process one of whose descriptors carries the lock.
fn owner_of(files: &BTreeSet<LockId>) -> Option<u32> {
    if let Some(owners) = OWNERS.get() {
        return files.iter().find_map(|file| owners.get(file)).copied();
    }
    processes().find(|pid| !locks_of(*pid).is_disjoint(files))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn data_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for path in ["member/snap", "member/wal"] {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        std::fs::write(dir.path().join("member/snap/db"), b"x").unwrap();
        std::fs::write(dir.path().join("member/wal/0000000000000000-0000000000000000.wal"), b"x").unwrap();
        dir
    }

    #[test]
    fn a_flock_on_the_backend_names_its_holder_and_is_gone_with_it() {
        let dir = data_dir();
        let root = File::open(dir.path()).unwrap();
        assert_eq!(lock_holder(root.as_fd()), Observed::Seen(None));
        let db = File::open(dir.path().join("member/snap/db")).unwrap();
        rustix::fs::flock(&db, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(lock_holder(root.as_fd()), Observed::Seen(Some(std::process::id())));
        drop(db);
        assert_eq!(lock_holder(root.as_fd()), Observed::Seen(None));
    }

    #[test]
    fn asking_takes_no_lock() {
        let dir = data_dir();
        let root = File::open(dir.path()).unwrap();
        let db = File::open(dir.path().join("member/snap/db")).unwrap();
        rustix::fs::flock(&db, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        let other = File::open(dir.path().join("member/snap/db")).unwrap();
        assert!(rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockShared).is_err());
        assert!(matches!(lock_holder(root.as_fd()), Observed::Seen(Some(_))));
        drop(db);
        rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    }

    #[test]
    fn lines_of_waiters_and_of_other_files_are_no_holders() {
        let files = BTreeSet::from([(DevNum { major: 8, minor: 0x1a }, 77)]);
        let parse = |line| parse_lock(line, &files);
        assert_eq!(parse("1: FLOCK  ADVISORY  WRITE 42 08:1a:77 0 EOF"), Some(Holder::Pid(42)));
        assert_eq!(parse("2: OFDLCK ADVISORY  WRITE -1 08:1a:77 0 EOF"), Some(Holder::Nameless));
        assert_eq!(parse("1: -> FLOCK  ADVISORY  WRITE 42 08:1a:77 0 EOF"), None);
        assert_eq!(parse("1: FLOCK  ADVISORY  WRITE 42 08:1a:78 0 EOF"), None);
        assert_eq!(parse("nonsense"), None);
    }
}
