//! Ends one process, so that whoever keeps its container running starts it anew: kubelet does that for a static pod.

use crate::device::blind::{Blind, started};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::path::Path;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum EndError {
    #[error("process {pid} has ended")]
    Gone { pid: u32 },
    #[error("process {pid} cannot be asked to end")]
    Refused {
        pid: u32,
        #[source]
        source: rustix::io::Errno,
    },
}

/// SIGTERM to exactly this process: its number may have become another's, so it is held by a descriptor before it is looked at
/// once more.
///
/// The agent records that this is about to happen before it calls.
pub fn end(process: Blind) -> Result<(), EndError> {
    let Blind { pid, started: began } = process;
    let gone = || EndError::Gone { pid };
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
    let held = match pidfd_open(number, PidfdFlags::empty()) {
        Ok(held) => held,
        Err(rustix::io::Errno::SRCH) => return Err(gone()),
        Err(source) => return Err(EndError::Refused { pid, source }),
    };
    if started(&Path::new("/proc").join(pid.to_string())) != Some(began) {
        return Err(gone());
    }
    match pidfd_send_signal(&held, Signal::TERM) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::SRCH) => Err(gone()),
        Err(source) => Err(EndError::Refused { pid, source }),
    }
}
