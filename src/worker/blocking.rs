//! The same questions for callers without a runtime: the verbs of the command line.

use super::{Deadline, parent};
use crate::model::{DeviceReading, Why};
use crate::probe::ProbeRequest;
use std::io;
use std::os::fd::OwnedFd;

fn wait<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(answer)
}

/// [`parent::probe`], waited for. `progress` hears `(done, total)`.
pub fn probe_blocking(
    device: OwnedFd,
    request: &ProbeRequest,
    deadline: Deadline,
    progress: impl FnMut(u64, u64),
) -> DeviceReading {
    match wait(parent::probe(device, request, deadline, progress)) {
        Ok(reading) => reading,
        Err(error) => {
            crate::probe::assemble(std::iter::empty(), Why::ReaderFailed { detail: format!("no runtime: {error}") })
        }
    }
}
