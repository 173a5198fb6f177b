//! Configurations that volhold keeps for itself, as texts that a person can read and copy back.
//!
//! `<state>/config.valid.toml` is the last valid configuration: what is run on while the layers cannot be used.
//! `<run>/published/NAME.toml` is what a gate was opened with. This module knows their form; `record` and `gate` write them.

use super::check::check;
use super::merge::Merged;
use super::{Config, GuardConfig, Http, Loaded, Metrics, Problem, show, written};
use std::path::{Path, PathBuf};

const SOURCE: &str = "# source: ";

/// The last valid configuration, read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The file that it was made from.
    pub source: PathBuf,
    pub config: Config,
}

/// A kept text does not read back.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    #[error("{path} does not say which configuration it was made from")]
    NoSource { path: PathBuf },
    #[error("{} in {path}, first: {}", super::count(problems.len()), problems.first().map(Problem::to_string).unwrap_or_default())]
    Wrong { path: PathBuf, problems: Vec<Problem> },
    #[error("{path} holds {found} guards, wanted one")]
    NotOne { path: PathBuf, found: usize },
}

/// What is kept of a configuration made from `source`.
pub fn kept_text(loaded: &Loaded, source: &Path) -> String {
    format!(
        "# The last valid configuration; volhold runs on it while its source cannot be used.\n{SOURCE}{}\n\n{}",
        source.display(),
        show::toml(&loaded.config, Some(&loaded.origins))
    )
}

/// Reads [`kept_text`] back.
pub fn parse_kept(path: &Path, text: &str) -> Result<Kept, KeptError> {
    let source = text.lines().find_map(|line| line.strip_prefix(SOURCE));
    let source = source.ok_or_else(|| KeptError::NoSource { path: path.to_owned() })?;
    Ok(Kept { source: source.into(), config: parse(path, text)? })
}

/// What is kept of a guard whose gate is open.
pub fn running_text(guard: &GuardConfig, whole: &Config) -> String {
    show::toml(
        &Config {
            guards: vec![guard.clone()],
            paths: whole.paths.clone(),
            http: Http::default(),
            metrics: Metrics::default(),
        },
        None,
    )
}

/// Reads [`running_text`] back.
pub fn parse_running(path: &Path, text: &str) -> Result<GuardConfig, KeptError> {
    let mut guards = parse(path, text)?.guards;
    match (guards.pop(), guards.len()) {
        (Some(guard), 0) => Ok(guard),
        (guard, more) => {
            let found = more.saturating_add(usize::from(guard.is_some()));
            Err(KeptError::NotOne { path: path.to_owned(), found })
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<Config, KeptError> {
    let mut problems = Vec::new();
    let mut merged = Merged::default();
    merged.lay(written::read(path, text, &mut problems), 0, &mut problems);
    let config = check(&merged, &mut problems);
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        Some(_) | None => Err(KeptError::Wrong { path: path.to_owned(), problems }),
    }
}
