//! The configuration file, in three forms: text, as written (`written`: every value with its place), and validated
//! ([`Config`], by `check`).
//!
//! Whatever is wrong is told at once, each mistake with file, line, column and the key's path. An unknown key is a mistake: a
//! misspelled `format = "never"` must not silently be something else.
//!
//! ```toml
//! [[guard]]
//! name = "main"
//! device = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"
//! publish = "/var/lib/etcd"
//! ```
//!
//! An empty file is valid: an agent without guards idles, which is what a package does between install and the first
//! guard. `config check` says so ([`Config::remarks`]).

mod check;
mod place;
mod written;

pub use check::parse;
pub use place::Problem;

use crate::model::{DeviceSpec, FormatPolicy, GuardName, Mode};
use std::path::{Path, PathBuf};

/// A validated configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[[guard]]`, one for each volume; names, devices and publish paths are distinct, no publish path lies in another.
    pub guards: Vec<GuardConfig>,
    /// `[paths]`
    pub paths: Paths,
}

/// `[paths]`: where volhold keeps what it writes. Absolute, neither in the other, neither in a guarded volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `state`, default `/var/lib/volhold`. Survives reboots, dies with the instance: ledgers, decisions.
    pub state: PathBuf,
    /// `run`, default `/run/volhold`. Dies with the boot: ready files, status, requests.
    pub run: PathBuf,
}

/// `[[guard]]`: one configured volume with its data dir and gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardConfig {
    /// `name`, needed. Names the gate: `volhold-gate@NAME.service`, `<run>/open/NAME`.
    pub name: GuardName,
    /// `mode = "observe" | "enforce"`, default `observe`: looks and reports, touches nothing.
    pub mode: Mode,
    /// `device`, needed: an absolute path (a node, a link to one, or an image file), `UUID=…` or `LABEL=…`. With
    /// `provider = "local"`, the default and so far the only one.
    pub device: DeviceSpec,
    /// `fstype`, default and so far only `ext4`.
    pub fstype: String,
    /// `format = "never" | "if-blank"`, default `never`. `if-blank` needs a device named by path: one named by what is
    /// written on it can never be blank.
    pub format: FormatPolicy,
    /// `publish`, needed: where the whole volume is mounted. Absolute, not `/`.
    pub publish: PathBuf,
    /// `data_dir`, relative to the volume's root (`.` is the root). Not given: the one that etcd-manager's `state` names, or
    /// the only one that is found.
    pub data_dir: Option<String>,
    /// `owner = "user:group"`, by name or number: owner of a directory that volhold creates for etcd. Not given: root.
    pub owner: Option<Owner>,
    /// `dir_mode = "0700"`, the default: mode of such a directory, octal. (`mode` is the guard's.)
    pub dir_mode: u32,
    /// `fresh = "allow" | "deny"`, default `deny`: may an etcd start on nothing?
    ///
    /// `deny`, because an empty etcd is the outage that volhold is there to prevent, and a person who sets up a new cluster is
    /// at hand to write one word, while one who comes to a wiped volume at night is not.
    pub fresh: bool,
    /// `member`: the name of this node's etcd member. Data of another is held.
    pub member: Option<String>,
    /// `peer_url`: the peer URL of this node's member, as the member list has it. Data without it is held.
    pub peer_url: Option<String>,
    /// `mount_options`: as for mount(8), one text with commas or a list of texts.
    pub mount_options: Vec<String>,
}

/// User and group that etcd runs as, by name or number, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub user: String,
    pub group: String,
}

/// The configuration cannot be used (exit code 78).
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The problems are in the order of the text, and not in the text of this error: [`ConfigError::lines`] prints them.
    #[error("{} in {path}", count(problems.len()))]
    Wrong { path: PathBuf, problems: Vec<Problem> },
}

fn count(mistakes: usize) -> String {
    if mistakes == 1 { "one mistake".to_owned() } else { format!("{mistakes} mistakes") }
}

impl ConfigError {
    /// One line for each mistake, `FILE:LINE:COLUMN: KEY: what is wrong`.
    pub fn lines(&self) -> Vec<String> {
        match self {
            ConfigError::Read { path, source } => vec![format!("{}: cannot be read: {source}", path.display())],
            ConfigError::Wrong { path, problems } => problems.iter().map(|problem| problem.line_for(path)).collect(),
        }
    }
}

/// Reads and validates a configuration file. Besides the text it looks where links lead, to tell whether two names are one
/// device.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    parse(&text).map_err(|problems| ConfigError::Wrong { path: path.to_owned(), problems })
}

impl Config {
    /// [`load`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        load(path)
    }

    /// The guard of this name.
    pub fn guard(&self, name: &GuardName) -> Option<&GuardConfig> {
        self.guards.iter().find(|guard| guard.name == *name)
    }

    /// What is valid but perhaps not meant, one sentence each, for `config check`.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.guards.is_empty() {
            remarks.push("no guard is configured: nothing is guarded".to_owned());
        }
        for guard in &self.guards {
            let name = &guard.name;
            if guard.mode == Mode::Observe && guard.format == FormatPolicy::IfBlank {
                remarks.push(format!("guard {name} only observes: `format` takes effect with mode = \"enforce\""));
            }
            if let DeviceSpec::Path(path) = &guard.device
                && moves_at_boot(path)
            {
                remarks.push(format!(
                    "guard {name}: {} may be another disk after the next boot; a name below /dev/disk/by-id stays",
                    path.display()
                ));
            }
            if guard.format == FormatPolicy::IfBlank && !guard.fresh {
                remarks.push(format!(
                    "guard {name} may be formatted, but no etcd may start on the empty filesystem: fresh = \"deny\""
                ));
            }
        }
        remarks
    }
}

/// `/dev/sdb`, `/dev/nvme1n1`, `/dev/xvdf`: named in the order in which the kernel met them.
fn moves_at_boot(path: &Path) -> bool {
    let name = path.strip_prefix("/dev").ok().and_then(Path::to_str).unwrap_or_default();
    ["sd", "nvme", "xvd", "vd", "loop"].iter().any(|kind| name.starts_with(kind)) && !name.contains('/')
}

#[cfg(test)]
mod tests;
