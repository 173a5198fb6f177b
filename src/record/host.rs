//! Who writes: the machine and its boot.
//!
//! A ledger baked into an image names another machine and is no memory of this one; a crash between two steps may be
//! repaired only within the boot in which it happened. Both need a name that a copied disk does not carry along.

use super::files;
use crate::model::BootId;
use std::path::{Path, PathBuf};

/// An identity of this host cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} holds no id: `{text}`")]
    NoId { path: PathBuf, text: String },
    #[error("cannot keep a machine id of our own in {path}")]
    Keep {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// This machine's id: `/etc/machine-id` (machine-id(5): 32 hex digits), or, where there is none, one made once and kept in
/// the state dir.
pub fn machine_id(state: &Path) -> Result<String, HostError> {
    machine_id_from(Path::new("/etc/machine-id"), state)
}

/// As [`machine_id`], with the system's file named. A file that is missing, empty or says `uninitialized` (an image before
/// its first boot) is no id; a file with anything else in it is an error, because guessing would forget the ledger.
pub fn machine_id_from(system: &Path, state: &Path) -> Result<String, HostError> {
    if let Some(id) = read_id(system)? {
        return Ok(id);
    }
    let own = state.join("machine-id");
    if let Some(id) = read_id(&own)? {
        return Ok(id);
    }
    let keep = |source| HostError::Keep { path: own.clone(), source };
    files::create_dir_durable(state).map_err(keep)?;
    let id = uuid::Uuid::new_v4().simple().to_string();
    files::replace_durable(&own, format!("{id}\n").as_bytes()).map_err(keep)?;
    // Two processes may have come here at once: what stands in the file now is the id.
    read_id(&own)?.ok_or_else(|| HostError::NoId { path: own.clone(), text: String::new() })
}

/// As [`machine_id`], without making one: `None` where there is none yet, and so no memory of this machine.
pub fn known_machine_id(state: &Path) -> Result<Option<String>, HostError> {
    Ok(match read_id(Path::new("/etc/machine-id"))? {
        Some(id) => Some(id),
        None => read_id(&state.join("machine-id"))?,
    })
}

/// This boot's id, `/proc/sys/kernel/random/boot_id`.
pub fn boot_id() -> Result<BootId, HostError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).map_err(|source| HostError::Read { path: path.to_owned(), source })?;
    let text = text.trim();
    match text.parse::<uuid::Uuid>() {
        Ok(_) => Ok(BootId(text.to_owned())),
        Err(_) => Err(HostError::NoId { path: path.to_owned(), text: text.to_owned() }),
    }
}

/// The id in a file; `None` where there is no file, or one that waits for its first boot.
fn read_id(path: &Path) -> Result<Option<String>, HostError> {
    // A link is followed: some images link /etc/machine-id elsewhere.
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(HostError::Read { path: path.to_owned(), source }),
    };
    let text = text.trim();
    if text.is_empty() || text == "uninitialized" {
        return Ok(None);
    }
    if text.len() == 32 && text.chars().all(|c| c.is_ascii_hexdigit()) {
        Ok(Some(text.to_ascii_lowercase()))
    } else {
        Err(HostError::NoId { path: path.to_owned(), text: text.chars().take(80).collect() })
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics is a test that fails"
)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn the_systems_machine_id_is_taken_and_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let system = dir.path().join("etc-machine-id");
        std::fs::write(&system, format!("{ID}\n")).unwrap();
        let state = dir.path().join("state");
        assert_eq!(machine_id_from(&system, &state).unwrap(), ID);
        assert!(!state.exists());
    }

    #[test]
    fn without_a_machine_id_one_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        for content in [None, Some(""), Some("uninitialized\n")] {
            let system = dir.path().join("etc-machine-id");
            if let Some(content) = content {
                std::fs::write(&system, content).unwrap();
            }
            let state = dir.path().join(format!("state{}", content.map_or(0, str::len)));
            let made = machine_id_from(&system, &state).unwrap();
            assert_eq!(made.len(), 32);
            assert_eq!(machine_id_from(&system, &state).unwrap(), made);
        }
    }

    #[test]
    fn a_machine_id_that_is_none_is_an_error_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let system = dir.path().join("etc-machine-id");
        std::fs::write(&system, "localhost").unwrap();
        assert!(matches!(machine_id_from(&system, dir.path()), Err(HostError::NoId { .. })));
    }

    #[test]
    fn the_boot_id_is_the_kernels() {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(boot_id().unwrap().0, kernel.trim());
    }
}
