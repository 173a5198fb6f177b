//! The ledger on the node, `<state>/guards/NAME/ledger`.
//!
//! Agent and CLI both append. A lock file beside the ledger orders them (not the ledger itself: it is replaced when it is
//! rewritten, and a lock on the replaced file would lock nothing). Whoever appends reads the whole ledger under the lock
//! first, so that the chain continues from what is really there, and cuts the rest of an interrupted append; the cut bytes
//! stay beside it. A reader repairs nothing.
//!
//! Entries of another machine (baked into an image, or brought along by a copied disk) are information only: they are
//! handed out apart.

use super::files;
use super::ledger::{self, EncodeError, LedgerBroken, TornAt, compact::CompactError};
use crate::model::{Entry, EntryId, GuardName, Reason, ReasonCode, Time};
use nix::fcntl::{Flock, FlockArg, OFlag};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long agent or CLI wait for each other: each holds the lock for one append.
const OTHER_WRITER: Duration = Duration::from_secs(10);
/// Between two tries to get the lock.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How many cut-off tails are kept beside the ledger.
const KEEP_TORN: usize = 32;

/// The node's ledger cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NodeLedgerError {
    #[error("cannot {what} {path}")]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is broken")]
    Broken {
        path: PathBuf,
        #[source]
        source: LedgerBroken,
    },
    #[error("an entry for {path} cannot be encoded")]
    Encode {
        path: PathBuf,
        #[source]
        source: EncodeError,
    },
    #[error("{path} cannot be rewritten shorter")]
    Compact {
        path: PathBuf,
        #[source]
        source: CompactError,
    },
}

impl NodeLedgerError {
    /// The reason to hold: memory that cannot be read is not an empty memory.
    pub fn reason(&self) -> Reason {
        match self {
            NodeLedgerError::Broken { path, source } => source.reason(&path.display().to_string()),
            NodeLedgerError::Io { what, path, source } => Reason::new(
                ReasonCode::Unreadable,
                format!(
                    "cannot {what} this node's ledger {}: {source}; what it remembers is not known",
                    path.display()
                ),
            ),
            NodeLedgerError::Encode { path, source } => Reason::new(
                ReasonCode::LedgerBroken,
                format!("cannot write what was found into this node's ledger {}: {source}", path.display()),
            ),
            NodeLedgerError::Compact { path, source } => Reason::new(
                ReasonCode::LedgerBroken,
                format!("cannot rewrite this node's ledger {}: {source}", path.display()),
            ),
        }
    }
}

/// What the node remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeReading {
    /// There is a ledger at all.
    pub present: bool,
    /// Entries that this machine wrote, oldest first.
    pub own: Vec<(EntryId, Entry)>,
    /// Entries that another machine wrote: information, no memory of this node.
    pub foreign: Vec<(EntryId, Entry)>,
    /// The rest of an interrupted append, which the next append will cut. To be told.
    pub torn: Option<TornAt>,
    /// Intact entries of kinds that this version does not know.
    pub skipped_unknown: usize,
}

/// The ledger of one guard on this node.
#[derive(Debug, Clone)]
pub struct NodeLedger {
    dir: PathBuf,
    machine_id: String,
    /// How long another one's lock is waited for.
    patience: Duration,
}

impl NodeLedger {
    /// Names the ledger of a guard; touches nothing.
    pub fn at(state: &Path, guard: &GuardName, machine_id: &str) -> Self {
        NodeLedger {
            dir: state.join("guards").join(guard.as_str()),
            machine_id: machine_id.to_owned(),
            patience: OTHER_WRITER,
        }
    }

    /// Creates the guard's directory (0700) where it is missing and cuts the rest of an interrupted append.
    pub fn open(state: &Path, guard: &GuardName, machine_id: &str) -> Result<Self, NodeLedgerError> {
        let ledger = NodeLedger::at(state, guard, machine_id);
        let _lock = ledger.lock_to_write()?;
        ledger.read_repaired()?;
        Ok(ledger)
    }

    /// The ledger's path, for messages.
    pub fn path(&self) -> PathBuf {
        self.dir.join("ledger")
    }

    /// Reads the ledger as it is. Repairs nothing and creates nothing; a missing one is not an error.
    pub fn read(&self) -> Result<NodeReading, NodeLedgerError> {
        let _lock = self.lock_to_read()?;
        let path = self.path();
        let bytes = files::read_bounded(&path, ledger::MAX_LEDGER).map_err(|source| self.io("read", source))?;
        let Some(bytes) = bytes else { return Ok(NodeReading::default()) };
        let parsed = ledger::parse(&bytes).map_err(|source| NodeLedgerError::Broken { path, source })?;
        let (own, foreign) = parsed.entries.into_iter().partition(|(_, entry)| entry.machine_id == self.machine_id);
        Ok(NodeReading { present: true, own, foreign, torn: parsed.torn, skipped_unknown: parsed.skipped_unknown })
    }

    /// Appends one entry. When this returns, it survives a power cut.
    pub fn append(&self, entry: &Entry) -> Result<EntryId, NodeLedgerError> {
        let _lock = self.lock_to_write()?;
        let mut bytes = self.read_repaired()?;
        let shorter =
            ledger::plan_rewrite(&bytes).map_err(|source| NodeLedgerError::Compact { path: self.path(), source })?;
        if let Some(shorter) = shorter {
            bytes = self.rewrite(&bytes, shorter)?;
        }
        let path = self.path();
        let parsed = ledger::parse(&bytes).map_err(|source| NodeLedgerError::Broken { path: path.clone(), source })?;
        let frame = ledger::frame(&parsed.last_hash, entry)
            .map_err(|source| NodeLedgerError::Encode { path: path.clone(), source })?;
        let created = bytes.is_empty();
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)
            .map_err(|source| self.io("open", source))?;
        if let Err(source) = file.write_all(&frame.bytes) {
            // A full disk leaves a part of the frame. Cut it now, so that it does not look like a crash later; when that
            // fails too, the next append cuts it.
            if let Err(error) = file.set_len(bytes.len() as u64) {
                tracing::warn!(path = %path.display(), %error, "cannot cut a half-written ledger entry");
            }
            return Err(self.io("append to", source));
        }
        file.sync_all().map_err(|source| self.io("make durable", source))?;
        if created {
            files::sync_dir(&self.dir).map_err(|source| self.io("make durable", source))?;
        }
        Ok(frame.id)
    }

    /// Puts a broken ledger aside under a dated name, for a person who has decided to go on without it. Nothing is lost; the
    /// next append starts a new ledger.
    pub fn set_aside(&self) -> Result<PathBuf, NodeLedgerError> {
        let _lock = self.lock_to_write()?;
        let aside = self.free_name("ledger.broken")?;
        std::fs::rename(self.path(), &aside).map_err(|source| self.io("rename", source))?;
        files::sync_dir(&self.dir).map_err(|source| self.io("make durable", source))?;
        Ok(aside)
    }

    /// The good part of the ledger, under the writer's lock; what lies behind it is kept beside and cut.
    fn read_repaired(&self) -> Result<Vec<u8>, NodeLedgerError> {
        let path = self.path();
        let bytes = files::read_bounded(&path, ledger::MAX_LEDGER).map_err(|source| self.io("read", source))?;
        let mut bytes = bytes.unwrap_or_else(Vec::new);
        let parsed = ledger::parse(&bytes).map_err(|source| NodeLedgerError::Broken { path: path.clone(), source })?;
        let Some(torn) = parsed.torn else { return Ok(bytes) };
        let tail = bytes.split_off(parsed.valid_len);
        self.keep_tail(&tail)?;
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)
            .map_err(|source| self.io("open", source))?;
        file.set_len(parsed.valid_len as u64).map_err(|source| self.io("cut", source))?;
        file.sync_all().map_err(|source| self.io("make durable", source))?;
        tracing::warn!(
            path = %path.display(),
            offset = torn.offset,
            len = torn.len,
            "the last append to the ledger was interrupted: its rest was cut and kept beside it"
        );
        Ok(bytes)
    }

    fn keep_tail(&self, tail: &[u8]) -> Result<(), NodeLedgerError> {
        let names = std::fs::read_dir(&self.dir).map_err(|source| self.io("list the directory of", source))?;
        let kept = names
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("ledger.torn-"))
            .count();
        if kept >= KEEP_TORN || tail.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let path = self.free_name("ledger.torn")?;
        files::replace_durable(&path, tail).map_err(|source| NodeLedgerError::Io { what: "write", path, source })
    }

    /// A name that is not taken: `PREFIX-20261130T121812Z`, with a number where that is taken.
    fn free_name(&self, prefix: &str) -> Result<PathBuf, NodeLedgerError> {
        let stamp = Time::now().to_string().replace(['-', ':'], "");
        let first = self.dir.join(format!("{prefix}-{stamp}"));
        let numbered = (1..100).map(|n| self.dir.join(format!("{prefix}-{stamp}.{n}")));
        std::iter::once(first)
            .chain(numbered)
            .find(|path| path.symlink_metadata().is_err())
            .ok_or_else(|| self.io("find a free name beside", io::Error::from(io::ErrorKind::AlreadyExists)))
    }

    /// Puts the shorter ledger in the place of this one, which stays as `ledger.before`.
    fn rewrite(&self, bytes: &[u8], shorter: Vec<u8>) -> Result<Vec<u8>, NodeLedgerError> {
        files::replace_durable(&self.dir.join("ledger.before"), bytes)
            .map_err(|source| self.io("keep a copy of", source))?;
        files::replace_durable(&self.path(), &shorter).map_err(|source| self.io("rewrite", source))?;
        Ok(shorter)
    }

    fn lock_path(&self) -> PathBuf {
        self.dir.join("lock")
    }

    fn lock_to_write(&self) -> Result<Flock<File>, NodeLedgerError> {
        files::create_dir_durable(&self.dir).map_err(|source| self.io("create the directory of", source))?;
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(self.lock_path())
            .map_err(|source| self.io("open the lock of", source))?;
        self.flock(file, FlockArg::LockExclusiveNonblock)
    }

    /// `None` where nobody has written yet.
    fn lock_to_read(&self) -> Result<Option<Flock<File>>, NodeLedgerError> {
        match OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(self.lock_path()) {
            Ok(file) => self.flock(file, FlockArg::LockSharedNonblock).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(self.io("open the lock of", source)),
        }
    }

    /// Whoever holds the lock for longer than `OTHER_WRITER` hangs on the disk, and so would we.
    fn flock(&self, mut file: File, how: FlockArg) -> Result<Flock<File>, NodeLedgerError> {
        let until = Instant::now().checked_add(self.patience);
        loop {
            file = match Flock::lock(file, how) {
                Ok(locked) => return Ok(locked),
                Err((file, nix::errno::Errno::EINTR)) => file,
                Err((file, nix::errno::Errno::EWOULDBLOCK)) if until.is_some_and(|until| Instant::now() < until) => {
                    std::thread::sleep(LOOK_AGAIN);
                    file
                }
                Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                    let problem = format!("another process has had its lock for {} s", self.patience.as_secs());
                    return Err(self.io("lock", io::Error::new(io::ErrorKind::TimedOut, problem)));
                }
                Err((_, errno)) => return Err(self.io("lock", errno.into())),
            }
        }
    }

    fn io(&self, what: &'static str, source: io::Error) -> NodeLedgerError {
        NodeLedgerError::Io { what, path: self.path(), source }
    }
}

#[cfg(test)]
mod tests;
