//! Work that may never come back (ioctls on a stalled disk, fsck, mount, ledgers) on threads of its own.

use crate::model::{Reason, ReasonCode, Why};
use std::time::Duration;

/// Work that did not come back.
#[derive(Debug)]
pub enum Stuck {
    /// Not within its time.
    Late(Duration),
    /// It panicked: a bug of ours, and no reason to go on.
    Died(String),
    NotOpen,
}

impl Stuck {
    pub fn why(&self, doing: &str) -> Why {
        match self {
            Stuck::Late(limit) => Why::TimedOut { detail: format!("{doing} took more than {} s", limit.as_secs()) },
            Stuck::Died(detail) => Why::ReaderFailed { detail: format!("{doing} died: {detail}") },
            Stuck::NotOpen => Why::NotRun { detail: format!("{doing}: the device is not open") },
        }
    }

    pub fn words(&self, doing: &str) -> String {
        self.why(doing).detail().to_owned()
    }

    pub fn reason(&self, doing: &str) -> Reason {
        let why = self.why(doing);
        let code = match &why {
            Why::TimedOut { .. } => ReasonCode::TimedOut,
            Why::ReaderFailed { .. } => ReasonCode::ReaderFailed,
            Why::Unreadable { .. } | Why::Short { .. } | Why::NotRun { .. } => ReasonCode::Unreadable,
        };
        Reason::new(code, why.detail().to_owned())
    }
}

/// Runs what may block on a thread of its own, and stops waiting when the time is over.
pub async fn blocking<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Stuck> {
    match tokio::time::timeout(limit, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(died)) => Err(Stuck::Died(died.to_string())),
        Err(_elapsed) => Err(Stuck::Late(limit)),
    }
}
