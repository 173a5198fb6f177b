//! Starts the process that keeps a copy of a held guard's claim beside a `volhold wait` (`gate::claims` says what for).

use crate::model::GuardName;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A keeper. It ends when this value is dropped, and when the process that holds it ends, however that ends.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
}

impl Keeper {
    /// Starts one: this same binary, as `volhold keep-claim RUN NAME`, with a pipe from us as its standard input.
    #[expect(clippy::disallowed_methods, reason = "the worker room re-executes this binary; nothing else spawns here")]
    pub fn start(run: &Path, guard: &GuardName) -> std::io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("keep-claim")
            .arg(run)
            .arg(guard.as_str())
            .env_clear()
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let child = crate::children::starting(|| command.spawn())?;
        Ok(Keeper { child })
    }

    /// It runs. (One that did not answer the agent was killed by it.)
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Already dead is as good.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}
