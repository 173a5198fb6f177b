//! Rings when something changes in the run dir: a gate opens, a status is written, an agent makes its socket.
//!
//! inotify. Events may be lost (a full queue, a directory that is made anew), so whoever waits for it looks every
//! [`LOOK_EVERY`] anyway: a lost one costs seconds and not the night.

use super::files::GateError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Longest time between two looks.
pub const LOOK_EVERY: Duration = Duration::from_secs(15);

/// A watch on one run dir.
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
}

impl Bell {
    /// `run`: for what an error says.
    pub fn new(run: &Path) -> Result<Self, GateError> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|errno| GateError::Watch { path: run.to_owned(), source: errno.into() })?;
        Ok(Bell { fd })
    }

    /// Watches the run dir, the ready files and the bypasses, or, where they are missing, the nearest directory above that exists. Watching
    /// what is watched already changes nothing.
    pub fn arm(&self, run: &Path) -> Result<(), GateError> {
        let mask = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        let watch = |path: &Path| match inotify::add_watch(&self.fd, path, mask | WatchFlags::ONLYDIR) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(GateError::Watch { path: path.to_owned(), source: errno.into() }),
        };
        watch(&run.join("open"))?;
        watch(&run.join("bypass"))?;
        for dir in run.ancestors() {
            if watch(dir)? {
                break;
            }
        }
        Ok(())
    }

    /// Waits for a ring, at most this long, and swallows all that has rung. `false`: nothing did.
    pub fn ring(&self, patience: Duration) -> Result<bool, GateError> {
        let timeout = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        let rang = match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => ready > 0,
            Err(Errno::INTR) => false,
            Err(errno) => return Err(failed(errno)),
        };
        self.swallow()?;
        Ok(rang)
    }

    /// Forgets all that has rung. Never waits.
    pub fn swallow(&self) -> Result<(), GateError> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.fd, &mut buffer);
        loop {
            match events.next() {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(failed(errno)),
            }
        }
    }
}

impl AsFd for Bell {
    /// Readable when it has rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn failed(errno: Errno) -> GateError {
    GateError::Watch { path: "inotify".into(), source: errno.into() }
}
