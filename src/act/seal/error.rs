//! Why a mountpoint could not be sealed.

use crate::act::mount::MountError;
use crate::model::{Reason, ReasonCode};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SealError {
    #[error("{at} is not empty: {}{}", .entries.join(", "), if *.more { ", …" } else { "" })]
    NotEmpty { at: PathBuf, entries: Vec<String>, more: bool },
    #[error("{at} is not a directory")]
    NotADirectory { at: PathBuf },
    #[error("{at} cannot be a mountpoint: it has no parent")]
    NoParent { at: PathBuf },
    #[error("{operation} {path}")]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("ask what is mounted")]
    Table {
        #[source]
        source: Box<MountError>,
    },
}

impl SealError {
    /// The reason that a guard is held for.
    pub fn reason(&self) -> Reason {
        match self {
            SealError::NotEmpty { at, entries, more } => Reason::new(
                ReasonCode::MountpointNotEmpty,
                format!(
                    "the mountpoint {} is not empty: it holds {}{}; a mount would hide that, and nothing was moved or deleted",
                    at.display(),
                    entries.join(", "),
                    if *more { " and more" } else { "" }
                ),
            )
            .with_detail(serde_json::json!({ "at": at, "entries": entries, "more": more })),
            SealError::NotADirectory { .. } | SealError::NoParent { .. } => {
                Reason::new(ReasonCode::MountFailed, format!("nothing can be published: {self}"))
            }
            SealError::Io { source, .. } => {
                let code = match source.raw_os_error() {
                    Some(libc::EACCES | libc::EPERM) => ReasonCode::NoPermission,
                    Some(_) | None => ReasonCode::MountFailed,
                };
                Reason::new(code, format!("the mountpoint could not be sealed: {self}: {source}"))
            }
            SealError::Table { source } => source.reason(),
        }
    }
}
