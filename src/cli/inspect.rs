//! `volhold inspect` and `volhold verify`: looks at a device, an image or a directory, and changes nothing.
//!
//! Reads what the agent would read, with the same reader in the same kind of child process. It claims nothing, mounts
//! nothing and locks nothing, so it is safe beside a running agent, a running etcd and a system that is about to mount.

mod device;
mod volume;

pub use volume::verify;

use super::exit::Exit;
use super::output::{Context, Failure};
use std::path::Path;

pub fn run(context: &Context, target: &Path) -> Result<Exit, Failure> {
    // A directory is another question than a device; whatever else it is, or is not, the device room says.
    match std::fs::metadata(target) {
        Ok(metadata) if metadata.is_dir() => volume::run(context, target),
        Ok(_) | Err(_) => device::run(context, target),
    }
}

/// Runs a reader to its end on this thread.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::new(Exit::Error, "cannot start the reader").because(&e))?;
    Ok(runtime.block_on(work))
}
