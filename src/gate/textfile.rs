//! Metrics as a file in node_exporter's textfile directory, for machines on which nobody may scrape the agent.
//!
//! The one file that volhold writes outside of its own folders, because the person who configured it said where. node_exporter
//! reads `*.prom` there and runs as a user of its own: the file is made under a hidden name, readable for everybody, and moved
//! into place. The directory is not made: one that is missing means that no node_exporter reads it.

use super::files::{GateError, replace};
use std::path::{Path, PathBuf};

/// `<dir>/volhold.prom`
pub fn textfile_path(dir: &Path) -> PathBuf {
    dir.join("volhold.prom")
}

/// Replaces it.
pub fn write_textfile(dir: &Path, text: &str) -> Result<(), GateError> {
    replace(&textfile_path(dir), text.as_bytes(), 0o644)
}
