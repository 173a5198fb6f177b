//! `volhold config check`, and reading the configuration for all other verbs.

use super::exit::Exit;
use super::output::{Context, Failure};
use super::text::Tone;
use crate::config::{Config, ConfigError};
use crate::model::{DeviceSpec, Mode};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Reads and validates. Whatever is wrong ends with exit code 78; a file that may not be read, with 77.
pub fn load(path: &Path) -> Result<Config, Failure> {
    Config::load(path).map_err(|error| {
        let exit = match &error {
            ConfigError::Read { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                Exit::NoPermission
            }
            ConfigError::Read { .. } | ConfigError::Wrong { .. } => Exit::BadConfig,
        };
        let mut failure = Failure::new(exit, "the configuration cannot be used");
        failure.causes = error.lines();
        failure
    })
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
}

pub fn check(context: &Context, path: Option<&Path>) -> Result<Exit, Failure> {
    let path = path.unwrap_or(&context.config_path);
    let config = load(path)?;
    let guards = config.guards.iter().map(|g| GuardLine {
        name: g.name.to_string(),
        mode: g.mode,
        device: device_words(&g.device),
        publish: g.publish.clone(),
    });
    let document = Checked {
        api_version: "volhold/v1",
        kind: "ConfigCheck",
        path: path.to_owned(),
        guards: guards.collect(),
        remarks: config.remarks(),
    };
    context.print(&document, |screen| {
        screen.tone(Tone::Good, &format!("{} is right.", path.display()));
        for guard in &document.guards {
            let mode = match guard.mode {
                Mode::Observe => "observe",
                Mode::Enforce => "enforce",
            };
            let says = format!("{mode}, {} at {}", guard.device, guard.publish.display());
            screen.hanging(&format!("  {}", guard.name), 18, &says);
        }
        for remark in &document.remarks {
            screen.hanging("  note", 18, remark);
        }
    })?;
    Ok(Exit::Ok)
}

/// The device as it stands in the configuration.
pub fn device_words(device: &DeviceSpec) -> String {
    match device {
        DeviceSpec::Path(path) => path.display().to_string(),
        DeviceSpec::Uuid(uuid) => format!("UUID={uuid}"),
        DeviceSpec::Label(label) => format!("LABEL={label}"),
    }
}
