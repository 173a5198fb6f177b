//! A verb that goes on until it is told to end: by Ctrl-C, by the service manager, or because nobody reads it any more.
//!
//! The signals come as a descriptor, so that such a verb waits in one place for all that may happen and ends in the ordinary
//! way, with its exit code and with the terminal as it was. The reader is watched too: `| head -1` shall not leave a process
//! behind that notices at the next change, which may be next week.

use super::exit::Exit;
use super::output::{Failure, io_failure};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Takes the signals that end a process; they end nothing by themselves from here on. Made in a process of one thread.
#[derive(Debug)]
pub struct Vigil {
    signals: SignalFd,
}

/// Why a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Asked to end, or nobody reads.
    End,
    /// One of the descriptors has something to say, or the terminal has another size.
    Call,
    /// Nothing has happened for as long as was said.
    Silence,
}

impl Vigil {
    pub fn begin() -> Result<Self, Failure> {
        let failed = |errno: nix::Error| Failure::new(Exit::Error, "cannot wait for signals").because(&errno);
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGWINCH] {
            set.add(signal);
        }
        set.thread_block().map_err(failed)?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed)?;
        Ok(Vigil { signals })
    }

    /// Waits for at most so long.
    pub fn wait(&self, others: &[BorrowedFd<'_>], patience: Duration) -> Result<Woken, Failure> {
        let timeout = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        let out = std::io::stdout();
        // Nothing is asked of the output: that it is broken is told unasked.
        let mut all =
            vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::from_borrowed_fd(out.as_fd(), PollFlags::empty())];
        all.extend(others.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        match poll(&mut all, Some(&timeout)) {
            Ok(0) => return Ok(Woken::Silence),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(io_failure("cannot wait", &errno.into())),
        }
        let broken = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        if all.get(1).is_some_and(|out| out.revents().intersects(broken)) {
            return Ok(Woken::End);
        }
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if u32::try_from(Signal::SIGWINCH as i32).ok() != Some(signal.ssi_signo) {
                return Ok(Woken::End);
            }
        }
        Ok(Woken::Call)
    }
}
