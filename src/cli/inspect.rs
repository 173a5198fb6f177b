//! `volhold inspect` and `volhold verify`: looks at a device, an image or a directory, and changes nothing.
//!
//! Reads what the agent would read, with the same reader in the same kind of child process. It claims nothing, mounts
//! nothing and locks nothing, so it is safe beside a running agent, a running etcd and a system that is about to mount.

mod device;
mod file;
mod verify;
mod volume;

pub use verify::verify;
pub(super) use verify::{add, deadline, facts};
pub(super) use volume::read;

use super::exit::Exit;
use super::output::{Context, Failure, diagnose};
use std::io::IsTerminal;
use std::path::Path;

pub fn run(context: &Context, target: &Path) -> Result<Exit, Failure> {
    // A directory is another question than a device; whatever else it is, or is not, the device room says.
    match std::fs::metadata(target) {
        Ok(metadata) if metadata.is_dir() => volume::run(context, target),
        // A file of etcd's is told as one; any other is an image of a device.
        Ok(metadata) if metadata.is_file() => match file::run(context, target)? {
            Some(exit) => Ok(exit),
            None => device::run(context, target),
        },
        Ok(_) | Err(_) => device::run(context, target),
    }
}

/// Runs a reader to its end on this thread.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(Exit::Error, "cannot start the reader").because(&e))?;
    Ok(runtime.block_on(work))
}

/// Shows on a terminal how far a reading is, and takes that away at the end.
pub(super) fn meter() -> (impl FnMut(u64, u64), impl FnOnce()) {
    let shown = std::io::stderr().is_terminal();
    let mut told = 0;
    let show = move |done: u64, total: u64| {
        let percent = u128::from(done).saturating_mul(100).checked_div(u128::from(total)).unwrap_or(0).min(100);
        if shown && percent > told {
            told = percent;
            diagnose(&format!("\rreading the backend: {percent}% "));
        }
    };
    (show, move || {
        if shown {
            diagnose("\r                              \r");
        }
    })
}
