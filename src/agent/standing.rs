//! The configuration that counts right now: what is written, or the last valid one where that cannot be used; and for guards
//! whose gate is open, what it was opened with.
//!
//! The agent asks at its start and at each reload, the verbs (`wait` and `gate check` before all) whenever they run, so that
//! all follow one rule.

use crate::config::{self, Config, ConfigError, GuardConfig, Loaded, Sources};
use crate::gate::files;
use crate::model::{BootId, GuardName, Reason, ReasonCode};
use crate::record;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What to run with.
#[derive(Debug)]
pub struct Standing {
    pub config: Config,
    /// What the written configuration wants of a guard and has to wait for, as `config-changed`.
    pub held_back: BTreeMap<GuardName, Vec<Reason>>,
    pub from: From,
}

/// Where the configuration was read.
#[derive(Debug)]
pub enum From {
    Written(Loaded),
    /// What is written cannot be used.
    LastValid {
        kept: PathBuf,
        error: ConfigError,
    },
}

impl Standing {
    /// What is wrong with what is written, one line each, the last one saying what is done instead.
    pub fn problems(&self) -> Vec<String> {
        match &self.from {
            From::Written(_) => Vec::new(),
            From::LastValid { kept, error } => {
                let mut lines = error.lines();
                lines.push(format!("runs on the last valid configuration, {}", kept.display()));
                lines
            }
        }
    }
}

/// Reads everything. Fails only where what is written cannot be used and nothing valid was ever kept.
pub fn standing(sources: &Sources, boot_id: &BootId) -> Result<Standing, ConfigError> {
    let (config, from) = match config::load(sources) {
        Ok(loaded) => (loaded.config.clone(), From::Written(loaded)),
        Err(error) => match last_valid(sources) {
            Some((kept, config)) => (config, From::LastValid { kept, error }),
            None => return Err(error),
        },
    };
    let mut standing = Standing { config, held_back: BTreeMap::new(), from };
    hold_back_for_open_gates(&mut standing, boot_id);
    Ok(standing)
}

/// The last valid configuration that was made from this file. The state dir in which it lies must be its own: a text that
/// cannot be read well may name any.
fn last_valid(sources: &Sources) -> Option<(PathBuf, Config)> {
    sources.state_candidates().into_iter().find_map(|state| {
        let path = record::kept_config_path(&state);
        let text = match record::load_kept_config(&state) {
            Ok(text) => text?,
            Err(error) => {
                tracing::warn!(event = "config.kept", path = %path.display(), %error, "the last valid configuration cannot be read");
                return None;
            }
        };
        match config::parse_kept(&path, &text) {
            Ok(kept) if kept.source == sources.path && kept.config.paths.state == state => Some((path, kept.config)),
            Ok(_of_another) => None,
            Err(error) => {
                tracing::warn!(event = "config.kept", error = %super::chain(&error), "the last valid configuration cannot be used");
                None
            }
        }
    })
}

fn hold_back_for_open_gates(standing: &mut Standing, boot_id: &BootId) {
    let run = standing.config.paths.run.clone();
    let names = match files::running_guards(&run) {
        Ok(names) => names,
        Err(error) => {
            tracing::warn!(event = "config.running", error = %super::chain(&error), "what gates were opened with cannot be read");
            return;
        }
    };
    for name in names.into_iter().filter(|name| is_open(&run, name, boot_id)) {
        let Some(running) = opened_with(&run, &name) else { continue };
        let told = match standing.config.guards.iter_mut().find(|guard| guard.name == name) {
            Some(wanted) => {
                let (kept, told) = config::hold_back(&running, wanted);
                *wanted = kept;
                told
            }
            None => {
                let told = vec![config::removal_held_back(&running)];
                standing.config.guards.push(running);
                told
            }
        };
        if !told.is_empty() {
            standing.held_back.insert(name, reasons(told));
        }
    }
}

/// Held back, in the words of a status.
pub fn reasons(told: Vec<String>) -> Vec<Reason> {
    told.into_iter().map(|sentence| Reason::new(ReasonCode::ConfigChanged, sentence)).collect()
}

/// A gate of which it cannot be told counts as open: what is held back wrongly waits, what is changed wrongly breaks.
pub fn is_open(run: &Path, name: &GuardName, boot_id: &BootId) -> bool {
    match files::is_open(run, name, boot_id) {
        Ok(open) => open,
        Err(error) => {
            tracing::warn!(event = "gate.unknown", guard = %name, error = %super::chain(&error), "whether the gate is open is not known");
            true
        }
    }
}

fn opened_with(run: &Path, name: &GuardName) -> Option<GuardConfig> {
    let path = files::running_path(run, name);
    let parsed = match files::read_running(run, name) {
        Ok(text) => config::parse_running(&path, &text?).map_err(|error| super::chain(&error)),
        Err(error) => Err(super::chain(&error)),
    };
    match parsed {
        Ok(guard) if guard.name == *name => Some(guard),
        Ok(other) => {
            tracing::warn!(event = "config.running", guard = %name, "{} is about {}", path.display(), other.name);
            None
        }
        Err(error) => {
            tracing::warn!(event = "config.running", guard = %name, error, "what the gate was opened with is not known");
            None
        }
    }
}
