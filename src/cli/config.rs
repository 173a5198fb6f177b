//! `volhold config check` and `config show`: what is written, without falling back on what was valid once.

use super::args::Output;
use super::exit::Exit;
use super::output::{AS_ROOT, Context, Failure, put};
use super::text::Tone;
use crate::act::datadir;
use crate::config::{ConfigError, GuardConfig, Loaded, Place, Sources, device_words, json, load, toml};
use crate::model::{Mode, PublishDir};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Whatever is wrong ends with exit code 78; a file that may not be read, with 77.
pub fn unusable(error: &ConfigError) -> Failure {
    let exit = match error {
        ConfigError::Read { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => Exit::NoPermission,
        ConfigError::Read { .. } | ConfigError::Wrong { .. } => Exit::BadConfig,
    };
    let mut failure = Failure::new(exit, "the configuration cannot be used");
    failure.causes = error.lines();
    if exit == Exit::NoPermission { failure.advise(AS_ROOT) } else { failure }
}

/// The document of `config check -o json`.
#[derive(Debug, Serialize)]
struct Checked {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    path: PathBuf,
    guards: Vec<GuardLine>,
    /// Valid, but perhaps not meant.
    remarks: Vec<String>,
}

#[derive(Debug, Serialize)]
struct GuardLine {
    name: String,
    mode: Mode,
    device: String,
    publish: PathBuf,
    /// Every directory of the volume that is published, where not the whole of it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    publish_dirs: Vec<PublishDir>,
    #[serde(skip)]
    publish_words: String,
}

pub fn check(context: &Context, path: Option<&Path>) -> Result<Exit, Failure> {
    let sources = match path {
        Some(path) => Sources { path: path.to_owned(), ..context.sources.clone() },
        None => context.sources.clone(),
    };
    let path = &sources.path;
    let config = load(&sources).map_err(|error| unusable(&error))?.config;
    let guards = config.guards.iter().map(|g| GuardLine {
        name: g.name.to_string(),
        mode: g.mode,
        device: device_words(&g.device),
        publish: g.publish.main(g.data_dir.as_deref()).to_owned(),
        publish_dirs: if g.publish.is_whole() { Vec::new() } else { g.publish.entries().to_vec() },
        publish_words: g.publish.words(),
    });
    let document = Checked {
        api_version: "volhold/v1",
        kind: "ConfigCheck",
        path: path.clone(),
        guards: guards.collect(),
        remarks: config.remarks().into_iter().chain(config.guards.iter().filter_map(unknown_owner)).collect(),
    };
    context.print(&document, |screen| {
        screen.tone(Tone::Good, &format!("{} is right.", path.display()));
        for guard in &document.guards {
            let mode = match guard.mode {
                Mode::Observe => "observe",
                Mode::Enforce => "enforce",
            };
            let at = if guard.publish_dirs.is_empty() { "at" } else { "with" };
            let says = format!("{mode}, {} {at} {}", guard.device, guard.publish_words);
            screen.hanging(&format!("  {}", guard.name), 18, &says);
        }
        for remark in &document.remarks {
            screen.hanging("  note", 18, remark);
        }
    })?;
    Ok(Exit::Ok)
}

/// An owner that this machine does not know. Only told: an image may be built where its users are not made yet.
fn unknown_owner(guard: &GuardConfig) -> Option<String> {
    let owner = guard.owner.as_ref()?;
    let error = datadir::owner_ids(&owner.user, &owner.group).err()?;
    Some(format!(
        "guard {}: owner = \"{}:{}\", but {error}: where that stays so, a fresh etcd is held [{}]",
        guard.name,
        owner.user,
        owner.group,
        error.reason().code
    ))
}

/// The document of `config show -o json`.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    config: serde_json::Value,
    /// By key, `guard.main.device`; what is not in here is a default.
    origins: BTreeMap<String, Place>,
}

pub fn show(context: &Context, origin: bool) -> Result<Exit, Failure> {
    let Loaded { config, origins } = load(&context.sources).map_err(|error| unusable(&error))?;
    match context.output {
        // Lines as they are, however long: they are for another program to read back.
        Output::Table => put(&toml(&config, origin.then_some(&origins)))?,
        Output::Json => {
            let document = Shown { api_version: "volhold/v1", kind: "Config", config: json(&config), origins };
            context.print(&document, |_screen| {})?;
        }
    }
    Ok(Exit::Ok)
}
