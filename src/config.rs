//! The configuration file: as written, and validated.

use crate::model::{DeviceSpec, FormatPolicy, GuardName, Mode};
use std::path::PathBuf;

/// A validated configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub guards: Vec<GuardConfig>,
    pub paths: Paths,
}

/// Where volhold keeps what it writes. Defaults: `/var/lib/volhold`, `/run/volhold`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Survives reboots, dies with the instance: ledgers, decisions.
    pub state: PathBuf,
    /// Dies with the boot: ready files, status, requests.
    pub run: PathBuf,
}

/// One configured volume with its data dir and gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardConfig {
    pub name: GuardName,
    pub mode: Mode,
    pub device: DeviceSpec,
    /// Only `ext4` for now.
    pub fstype: String,
    pub format: FormatPolicy,
    /// Where the whole volume is published.
    pub publish: PathBuf,
    /// Data dir relative to the volume's root; `None`: found, or selected by etcd-manager's `state`.
    pub data_dir: Option<String>,
    /// Owner and mode of a directory that volhold creates for etcd.
    pub owner: Option<Owner>,
    pub dir_mode: u32,
    /// May an etcd start on nothing?
    pub fresh: bool,
    /// Who this node is.
    pub member: Option<String>,
    pub peer_url: Option<String>,
    /// Comma-separated mount options, as for mount(8).
    pub mount_options: Vec<String>,
}

/// User and group that etcd runs as, by name or number, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub user: String,
    pub group: String,
}
