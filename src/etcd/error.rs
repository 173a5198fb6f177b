//! Errors of looking, as opposed to findings: what could not be opened or read, and where.

use super::read_at::ReadError;
use crate::model::{Reason, ReasonCode};
use std::io;

/// Something could not be looked at. Never means that it is not there.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    #[error("cannot open {path}")]
    Open {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot list {path}")]
    List {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot stat {path}")]
    Stat {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path} is {found}, not {wanted}")]
    Kind { path: String, found: &'static str, wanted: &'static str },
    #[error("cannot read {path}")]
    Read {
        path: String,
        #[source]
        source: ReadError,
    },
    #[error("{path} has more than {limit} entries")]
    TooMany { path: String, limit: usize },
    #[error("cannot make {path} durable")]
    Sync {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path} kept changing while it was read")]
    Unstable { path: String },
    #[error("{path} is damaged: {what}")]
    Damaged { path: String, what: String, code: ReasonCode },
}

impl EtcdError {
    /// The whole chain on one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    /// The file or directory is not there, as told by the kernel and by nothing else.
    pub fn is_absent(&self) -> bool {
        match self {
            EtcdError::Open { source, .. } | EtcdError::Stat { source, .. } => source.kind() == io::ErrorKind::NotFound,
            EtcdError::List { .. }
            | EtcdError::Kind { .. }
            | EtcdError::Read { .. }
            | EtcdError::TooMany { .. }
            | EtcdError::Sync { .. }
            | EtcdError::Unstable { .. }
            | EtcdError::Damaged { .. } => false,
        }
    }

    /// Something on the way to it is no directory.
    pub(super) fn is_not_a_directory(&self) -> bool {
        matches!(self, EtcdError::Open { source, .. } if source.kind() == io::ErrorKind::NotADirectory)
    }

    /// A symbolic link is in the way; none is followed.
    pub(super) fn is_a_link(&self) -> bool {
        matches!(self, EtcdError::Open { source, .. } if source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()))
    }

    /// For a hold: what was found, where, what was expected.
    pub fn reason(&self) -> Reason {
        let code = match self {
            EtcdError::Damaged { code, .. } => *code,
            EtcdError::Unstable { .. } => ReasonCode::ChangedUnderneath,
            EtcdError::Read { source: ReadError::Short { .. }, .. } => ReasonCode::ShortRead,
            EtcdError::Open { .. }
            | EtcdError::List { .. }
            | EtcdError::Stat { .. }
            | EtcdError::Kind { .. }
            | EtcdError::Read { source: ReadError::Io { .. }, .. }
            | EtcdError::TooMany { .. }
            | EtcdError::Sync { .. } => ReasonCode::Unreadable,
        };
        Reason::new(code, format!("the etcd data could not be read in full: {}", self.chain()))
    }
}
