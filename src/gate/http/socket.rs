//! The socket's file.
//!
//! It is made under another name and moved into place, so that no client meets it before it has its mode, and so that there
//! is no moment without it when a dead agent's is replaced. Its mode is 0666: who may read what is asked of the peer's
//! credentials, because a client that the file's mode turned away would learn nothing, and nobody would learn of it.
//!
//! What stands in its place is replaced only if it is a socket of the same user on which nobody listens: a dead agent's.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// `<run>/volhold.sock`
pub fn socket_path(run: &Path) -> PathBuf {
    run.join("volhold.sock")
}

/// The socket cannot be made. No gate depends on it.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("cannot make the socket {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is {what}: it stays, and volhold has no socket")]
    NotOurs { path: PathBuf, what: &'static str },
    #[error("somebody else listens on {path}: it stays, and volhold has no socket")]
    InUse { path: PathBuf },
}

/// A socket that this process listens on.
#[derive(Debug)]
pub(super) struct Bound {
    pub listener: UnixListener,
    path: PathBuf,
    /// Device and inode of its file.
    file: (u64, u64),
}

impl Bound {
    pub(super) fn new(run: &Path) -> Result<Self, SocketError> {
        let path = socket_path(run);
        free(&path)?;
        let failed = |source| SocketError::Io { path: path.clone(), source };
        let temporary = run.join(format!(".volhold.sock.{}", std::process::id()));
        let make = || {
            match std::fs::remove_file(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let listener = UnixListener::bind(&temporary)?;
            std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o666))?;
            let metadata = temporary.symlink_metadata()?;
            std::fs::rename(&temporary, &path)?;
            Ok((listener, (metadata.dev(), metadata.ino())))
        };
        let (listener, file) = make().map_err(failed)?;
        Ok(Bound { listener, path, file })
    }

    /// Its file has not been taken away or replaced.
    pub(super) fn is_there(&self) -> bool {
        self.path.symlink_metadata().is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.file)
    }

    /// At a clean stop: a client that finds no socket knows more than one that is refused.
    pub(super) fn remove(self) {
        if self.is_there()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(event = "http.socket", %error, "{} stays behind", self.path.display());
        }
    }
}

/// Sees to it that what stands at `path`, if anything, may be replaced.
fn free(path: &Path) -> Result<(), SocketError> {
    let failed = |source| SocketError::Io { path: path.to_owned(), source };
    let not_ours = |what| Err(SocketError::NotOurs { path: path.to_owned(), what });
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed(source)),
    };
    if !metadata.file_type().is_socket() {
        return not_ours("no socket");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return not_ours("another user's socket");
    }
    match answers(path) {
        Ok(false) => Ok(()),
        Ok(true) => Err(SocketError::InUse { path: path.to_owned() }),
        Err(source) => Err(failed(source)),
    }
}

/// Somebody listens there. Does not wait: one with a full queue listens too.
fn answers(path: &Path) -> io::Result<bool> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let probe = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match connect(probe.as_raw_fd(), &UnixAddr::new(path)?) {
        Err(Errno::ECONNREFUSED | Errno::ENOENT) => Ok(false),
        // Of another kind than a stream: alive or not, it is not ours.
        Ok(()) | Err(Errno::EAGAIN | Errno::EPROTOTYPE) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}
