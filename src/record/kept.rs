//! The last valid configuration, kept on the node as a text: what is run on while the configuration cannot be used.
//!
//! What stands in it is `config`'s business.

use super::files;
use std::io;
use std::path::{Path, PathBuf};

/// Largest configuration that is read back.
const MAX_CONFIG: usize = 4 * 1024 * 1024;

/// `<state>/config.valid.toml`
pub fn kept_config_path(state: &Path) -> PathBuf {
    state.join("config.valid.toml")
}

/// Replaces the last valid configuration: the old or the new one is there, whatever happens.
pub fn store_kept_config(state: &Path, text: &str) -> io::Result<()> {
    files::create_dir_durable(state)?;
    files::replace_durable(&kept_config_path(state), text.as_bytes())
}

/// The last valid configuration; `None` where none was kept.
pub fn load_kept_config(state: &Path) -> io::Result<Option<String>> {
    let Some(bytes) = files::read_bounded(&kept_config_path(state), MAX_CONFIG)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_stored_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        assert_eq!(load_kept_config(&state).unwrap(), None);
        store_kept_config(&state, "one").unwrap();
        store_kept_config(&state, "two").unwrap();
        assert_eq!(load_kept_config(&state).unwrap().as_deref(), Some("two"));
    }
}
