//! A chain of directories under inotify, of which the deeper ones may not exist yet, or may go and come again.
//!
//! inotify watches inodes, not names. So after every event the chain is walked anew: each level that now has another inode
//! is watched anew, watches on what is no longer in the chain are dropped. A level that is new in the chain is reported as
//! such, because things may have appeared in it before it was watched.
//!
//! Only names are watched (created, deleted, renamed), never writes inside: etcd writes a thousand times a second. No link is
//! followed. A watch does not keep a filesystem from being unmounted.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watching is not possible.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("cannot get an inotify descriptor")]
    Init(#[source] std::io::Error),
    #[error("cannot watch {path}")]
    Add {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot read inotify events")]
    Read(#[source] std::io::Error),
}

/// A directory of the chain.
#[derive(Debug)]
struct Level {
    path: PathBuf,
    /// Also report files that were closed after writing.
    writes: bool,
    watch: Option<i32>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stir {
    Appeared(PathBuf),
    Gone(PathBuf),
    Written(PathBuf),
    /// This directory is in the chain now, and was not before.
    Joined(PathBuf),
    /// Events were lost, or the filesystem was unmounted.
    Lost,
}

#[derive(Debug)]
pub(super) struct Tree {
    inotify: AsyncFd<OwnedFd>,
    levels: Vec<Level>,
}

const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

impl Tree {
    /// Watches `levels`, outermost first; each is below the one before. `true` beside a path: report writes to its files too.
    /// Must be called within a runtime.
    pub(super) fn new(levels: Vec<(PathBuf, bool)>) -> Result<Self, WatchError> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|errno| WatchError::Init(errno.into()))?;
        #[expect(deprecated, reason = "its successor is unsafe because of descriptors that are not owned; this one is")]
        let inotify = AsyncFd::with_interest(fd, Interest::READABLE).map_err(WatchError::Init)?;
        let levels = levels.into_iter().map(|(path, writes)| Level { path, writes, watch: None }).collect();
        let mut tree = Tree { inotify, levels };
        tree.arm()?;
        Ok(tree)
    }

    /// Waits until something happens, and takes all that has happened.
    pub(super) async fn next(&mut self) -> Result<BTreeSet<Stir>, WatchError> {
        loop {
            let mut ready = self.inotify.readable().await.map_err(WatchError::Read)?;
            ready.clear_ready();
            drop(ready);
            let mut stirs = self.drain()?;
            stirs.extend(self.arm()?.into_iter().map(Stir::Joined));
            if !stirs.is_empty() {
                return Ok(stirs);
            }
        }
    }

    fn drain(&mut self) -> Result<BTreeSet<Stir>, WatchError> {
        let mut stirs = BTreeSet::new();
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut events = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(stirs),
                Err(errno) => return Err(WatchError::Read(errno.into())),
            };
            let what = event.events();
            if what.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
                stirs.insert(Stir::Lost);
            }
            let Some(level) = self.levels.iter_mut().find(|level| level.watch == Some(event.wd())) else { continue };
            if what.contains(ReadFlags::IGNORED) {
                level.watch = None;
            }
            if what.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
                stirs.insert(Stir::Gone(level.path.clone()));
            }
            let Some(name) = event.file_name() else { continue };
            let path = level.path.join(OsStr::from_bytes(name.to_bytes()));
            if what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                stirs.insert(Stir::Appeared(path));
            } else if what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                stirs.insert(Stir::Gone(path));
            } else if what.contains(ReadFlags::CLOSE_WRITE) {
                stirs.insert(Stir::Written(path));
            }
        }
    }

    /// Walks the chain anew and returns the levels that are new in it.
    fn arm(&mut self) -> Result<Vec<PathBuf>, WatchError> {
        let mut joined = Vec::new();
        let mut reachable = true;
        let mut dropped = Vec::new();
        for level in &mut self.levels {
            let watch = if reachable { add(self.inotify.get_ref(), &level.path, level.writes)? } else { None };
            reachable = watch.is_some();
            if watch != level.watch {
                dropped.extend(level.watch);
                if watch.is_some() {
                    joined.push(level.path.clone());
                }
                level.watch = watch;
            }
        }
        for watch in dropped {
            let in_use = self.levels.iter().any(|level| level.watch == Some(watch));
            if !in_use {
                // It may be gone already, with its directory.
                match inotify::remove_watch(self.inotify.get_ref(), watch) {
                    Ok(()) | Err(Errno::INVAL) => {}
                    Err(errno) => return Err(WatchError::Read(errno.into())),
                }
            }
        }
        Ok(joined)
    }
}

/// `None`: not there, or not a directory (a link is none).
fn add(inotify: &OwnedFd, path: &Path, writes: bool) -> Result<Option<i32>, WatchError> {
    let mask = if writes { NAMES | WatchFlags::CLOSE_WRITE } else { NAMES };
    match inotify::add_watch(inotify, path, mask) {
        Ok(watch) => Ok(Some(watch)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(WatchError::Add { path: path.to_owned(), source: errno.into() }),
    }
}
