//! The files below the run dir. All of them die with the boot (the run dir is a tmpfs), so nothing is made durable; all of
//! them are replaced by rename, so that no reader sees half of one.
//!
//! ```text
//! <run>/open/NAME            ready file: the gate is open. For people, ExecStartPre, and hostPath `type: File`
//! <run>/published/NAME.json  what the gate was opened for: device numbers, mount, data dir
//! <run>/published/NAME.toml  the configuration that the gate was opened with
//! <run>/status.json          the state of every guard
//! <run>/volhold.sock         HTTP, while an agent runs (`http`)
//! <run>/requests/NAME        somebody asked this guard to look again
//! <run>/claims/NAME.PID      socket of a process that keeps a copy of a held guard's claim ([`super::claims`])
//! <run>/bypass/NAME          a person has opened the gate by hand; until the next boot nothing is asked of volhold
//! ```

use super::readers::Readers;
use crate::model::{BootId, Bypass, DevNum, FsUuid, GuardName, PublishDir, StartKind, Status, Time, VolumeId, WHOLE};
use nix::fcntl::OFlag;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Largest file that is read back.
const MAX_READ: u64 = 16 * 1024 * 1024;
/// Most of a bypass's note that is shown.
const MAX_NOTE: u64 = 1024;

/// A file below the run dir cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not what volhold writes")]
    Parse {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("{what} does not encode as JSON")]
    Encode {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("cannot watch {path} for changes")]
    Watch {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} was opened in this boot and for a volume that is still there: it stays")]
    NotStale { path: PathBuf },
    #[error("another volhold runs already (process {pid}): it holds {path}")]
    Taken { path: PathBuf, pid: String },
}

/// What a gate was opened for: what `gate check` compares the machine with, without agent or network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Where the volume is mounted; of several directories the one that the data dir lies in.
    pub at: String,
    /// Every directory that is published, where not the whole volume is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<PublishDir>,
    pub devnum: DevNum,
    pub fs_uuid: Option<FsUuid>,
    pub volume_id: VolumeId,
    /// Relative to the volume's root.
    pub data_dir: String,
    pub how: StartKind,
    /// The kernel's number of the mount (first field of mountinfo), where it is known.
    #[serde(default)]
    pub mount_id: Option<u64>,
    pub boot_id: BootId,
}

impl Published {
    /// What is published, of either form.
    pub fn entries(&self) -> Vec<PublishDir> {
        if self.directories.is_empty() {
            return vec![PublishDir { from: WHOLE.to_owned(), at: PathBuf::from(&self.at) }];
        }
        self.directories.clone()
    }

    /// Where etcd finds its data.
    pub fn place_of_data(&self) -> PathBuf {
        let entries = self.entries();
        let seen = entries.iter().find_map(|entry| entry.place_of(&self.data_dir));
        seen.unwrap_or_else(|| Path::new(&self.at).join(&self.data_dir))
    }
}

/// The content of a ready file, one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    pub time: Time,
    /// Where etcd finds its data: the published path with the data dir.
    pub data_dir: String,
    pub devnum: DevNum,
    pub boot_id: BootId,
}

/// Why a ready file may be removed. There is no other way to close a gate: a verdict, a crash or a stop of volhold is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closing {
    /// It was written in another boot than this one (a run dir that is no tmpfs). Checked against its content.
    EarlierBoot { this: BootId },
    /// The published mount is gone, so no etcd can be running on it. The caller has seen that in mountinfo.
    VolumeGone,
}

/// `<run>/open/NAME`
pub fn ready_path(run: &Path, guard: &GuardName) -> PathBuf {
    run.join("open").join(guard.as_str())
}

/// `<run>/published/NAME.json`
pub fn published_path(run: &Path, guard: &GuardName) -> PathBuf {
    run.join("published").join(format!("{guard}.json"))
}

/// `<run>/published/NAME.toml`
pub fn running_path(run: &Path, guard: &GuardName) -> PathBuf {
    run.join("published").join(format!("{guard}.toml"))
}

/// `<run>/status.json`
pub fn status_path(run: &Path) -> PathBuf {
    run.join("status.json")
}

/// `<run>/requests`
pub fn requests_dir(run: &Path) -> PathBuf {
    run.join("requests")
}

/// `<run>/claims`
pub fn claims_dir(run: &Path) -> PathBuf {
    run.join("claims")
}

/// `<run>/bypass/NAME`
pub fn bypass_path(run: &Path, guard: &GuardName) -> PathBuf {
    run.join("bypass").join(guard.as_str())
}

/// Gives a keeper's socket the name under which it is found.
pub(super) fn name_claim_socket(dir: &impl AsFd, making: &str, name: &str) -> rustix::io::Result<()> {
    rustix::fs::renameat(dir, making, dir, name)
}

/// Takes away the socket of a keeper that is gone.
pub(super) fn remove_claim_socket(run: &Path, name: &str) {
    if let Err(error) = remove(&claims_dir(run).join(name)) {
        tracing::debug!(event = "claim.socket", %error, "a socket that nobody listens at stays");
    }
}

/// Creates the run dir and what lies in it, with the modes that they must have.
pub fn prepare(run: &Path) -> Result<(), GateError> {
    for (dir, mode) in [
        (run.to_owned(), 0o755),
        (run.join("open"), 0o755),
        (run.join("published"), 0o755),
        (run.join("bypass"), 0o755),
        (requests_dir(run), 0o700),
        (claims_dir(run), 0o700),
    ] {
        ensure_dir(&dir, mode).map_err(|source| GateError::Write { path: dir, source })?;
    }
    Ok(())
}

/// Makes sure that one agent alone works on this run dir, for as long as the returned file is open: two would take each
/// other's claims and mounts for somebody else's. The kernel lets go when the process ends, however it ends.
pub fn only_agent(run: &Path) -> Result<File, GateError> {
    let path = run.join("agent.lock");
    let failed = |source| GateError::Write { path: path.clone(), source };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits());
    let mut file = options.open(&path).map_err(failed)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let pid = match (&file).take(16).read_to_string(&mut pid) {
                Ok(_) if !pid.trim().is_empty() => pid.trim().to_owned(),
                Ok(_) | Err(_) => "unknown".to_owned(),
            };
            return Err(GateError::Taken { path, pid });
        }
        Err(errno) => return Err(failed(errno.into())),
    }
    file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes())).map_err(failed)?;
    Ok(file)
}

/// Opens the gate: first what it is opened for, then the ready file. Opening an open gate renews both.
pub fn open_gate(run: &Path, guard: &GuardName, published: &Published) -> Result<(), GateError> {
    prepare(run)?;
    write_published(run, guard, published)?;
    crate::fault::fault_point("before-ready-file");
    let ready = Ready {
        time: Time::now(),
        data_dir: published.place_of_data().display().to_string(),
        devnum: published.devnum,
        boot_id: published.boot_id.clone(),
    };
    let mut line = serde_json::to_vec(&ready).map_err(|source| GateError::Encode { what: "the ready file", source })?;
    line.push(b'\n');
    replace(&ready_path(run, guard), &line, 0o644)?;
    crate::fault::fault_point("after-ready-file");
    Ok(())
}

/// Notes what a gate is open for, without touching the ready file.
pub fn write_published(run: &Path, guard: &GuardName, published: &Published) -> Result<(), GateError> {
    prepare(run)?;
    let mut text = serde_json::to_vec_pretty(published)
        .map_err(|source| GateError::Encode { what: "what was published", source })?;
    text.push(b'\n');
    replace(&published_path(run, guard), &text, 0o644)
}

/// What the gate was opened for; `None` where it never was.
pub fn read_published(run: &Path, guard: &GuardName) -> Result<Option<Published>, GateError> {
    read_json(&published_path(run, guard))
}

/// Keeps the configuration that a gate is open with. What stands in it is `config`'s business.
pub fn write_running(run: &Path, guard: &GuardName, text: &str) -> Result<(), GateError> {
    prepare(run)?;
    replace(&running_path(run, guard), text.as_bytes(), 0o644)
}

/// The configuration that a gate was opened with; `None` where it never was.
pub fn read_running(run: &Path, guard: &GuardName) -> Result<Option<String>, GateError> {
    let path = running_path(run, guard);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(source) => Err(GateError::Read { path, source }),
    }
}

/// Guards of which such a configuration is kept, sorted.
pub fn running_guards(run: &Path) -> Result<Vec<GuardName>, GateError> {
    let path = run.join("published");
    let failed = |source| GateError::Read { path: path.clone(), source };
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let guard = name.to_str().and_then(|name| name.strip_suffix(".toml")).and_then(|name| name.parse().ok());
        names.extend(guard);
    }
    names.sort();
    Ok(names)
}

/// The gate is open: the ready file is there, a regular file, and does not say that it is from another boot than `this`.
///
/// A ready file that volhold did not write (an empty one, made by hand on the night on which volhold itself is broken) opens
/// the gate as well.
pub fn is_open(run: &Path, guard: &GuardName, this: &BootId) -> Result<bool, GateError> {
    let path = ready_path(run, guard);
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Ok(false),
        Err(error) if is_absent(&error) => return Ok(false),
        Err(source) => return Err(GateError::Read { path, source }),
    }
    match read_json::<Ready>(&path) {
        Ok(Some(ready)) => Ok(ready.boot_id == *this),
        Ok(None) => Ok(false),
        Err(GateError::Parse { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The bypass of this guard in this boot ([`bypass_path`]), if there is one. A marker that cannot be read counts: who put it there needs etcd now.
pub fn bypass(run: &Path, guard: &GuardName) -> Option<Bypass> {
    let path = bypass_path(run, guard);
    path.symlink_metadata().ok().filter(|metadata| metadata.is_file())?;
    let options =
        OpenOptions::new().read(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()).open(&path);
    let mut note = Vec::new();
    // Words are all that can be missing.
    let _read = options.and_then(|file| file.take(MAX_NOTE).read_to_end(&mut note));
    Some(Bypass { name: guard.clone(), note: String::from_utf8_lossy(&note).trim().to_owned() })
}

/// Every bypass in this boot, by name.
pub fn bypasses(run: &Path) -> Vec<Bypass> {
    let names = std::fs::read_dir(run.join("bypass")).into_iter().flatten().flatten();
    let mut found: Vec<Bypass> =
        names.filter_map(|entry| bypass(run, &entry.file_name().to_str()?.parse().ok()?)).collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// Removes a ready file, for the reasons that allow it. `false`: there was none.
pub fn close_gate(run: &Path, guard: &GuardName, why: &Closing) -> Result<bool, GateError> {
    let path = ready_path(run, guard);
    match why {
        Closing::EarlierBoot { this } => match read_json::<Ready>(&path) {
            Ok(None) => return Ok(false),
            Ok(Some(ready)) if ready.boot_id != *this => {}
            Ok(Some(_)) | Err(GateError::Parse { .. }) => return Err(GateError::NotStale { path }),
            Err(error) => return Err(error),
        },
        Closing::VolumeGone => {}
    }
    remove(&path)
}

/// Writes the status of all guards for these to read.
pub fn write_status(run: &Path, status: &Status, readers: Readers) -> Result<(), GateError> {
    prepare(run)?;
    let mut text =
        serde_json::to_vec_pretty(status).map_err(|source| GateError::Encode { what: "the status", source })?;
    text.push(b'\n');
    let (mode, group) = readers.file_mode();
    replace_for(&status_path(run), &text, mode, group)
}

/// The status of all guards as last written; `None` where no agent has run since this machine started.
pub fn read_status(run: &Path) -> Result<Option<Status>, GateError> {
    read_json(&status_path(run))
}

/// Asks a guard to look again, after the ledger entry that says why was written.
pub fn post_request(run: &Path, guard: &GuardName) -> Result<(), GateError> {
    prepare(run)?;
    let line = format!("{}\n", Time::now());
    replace(&requests_dir(run).join(guard.as_str()), line.as_bytes(), 0o600)
}

/// Takes a request away. `true`: there was one. To be called before what was asked for is done, so that a request which
/// comes meanwhile is not lost.
pub fn take_request(run: &Path, guard: &GuardName) -> Result<bool, GateError> {
    remove(&requests_dir(run).join(guard.as_str()))
}

fn remove(path: &Path) -> Result<bool, GateError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(source) => Err(GateError::Write { path: path.to_owned(), source }),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound)
}

/// A directory with exactly this mode, whatever the umask; an existing one is left as it is.
fn ensure_dir(dir: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(dir) {
        Ok(()) => std::fs::set_permissions(dir, Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if dir.symlink_metadata()?.is_dir() {
                Ok(())
            } else {
                Err(io::ErrorKind::NotADirectory.into())
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = dir.parent().ok_or(error)?;
            DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
            DirBuilder::new().mode(mode).create(dir)?;
            std::fs::set_permissions(dir, Permissions::from_mode(mode))
        }
        Err(error) => Err(error),
    }
}

pub(super) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), GateError> {
    replace_for(path, bytes, mode, None)
}

/// `group`: the file's group; `None` leaves the agent's own.
fn replace_for(path: &Path, bytes: &[u8], mode: u32, group: Option<u32>) -> Result<(), GateError> {
    let failed = |source| GateError::Write { path: path.to_owned(), source };
    let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            // Whoever may not read it in the end may not either before it has its group.
            .mode(mode & 0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&temporary)?;
        if let Some(gid) = group {
            rustix::fs::fchown(&file, None, Some(rustix::fs::Gid::from_raw(gid)))?;
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(failed)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, GateError> {
    let failed = |source| GateError::Read { path: path.to_owned(), source };
    let open = OpenOptions::new().read(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()).open(path);
    let file = match open {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_READ).read_to_end(&mut bytes).map_err(failed)?;
    serde_json::from_slice(&bytes).map(Some).map_err(|source| GateError::Parse { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
