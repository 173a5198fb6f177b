//! The etcd that is to be started on the data, as far as anything on this node names it.

use super::EtcdVersion;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where the guard's configuration says to look (`etcd`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdSource {
    /// The version itself.
    Version(EtcdVersion),
    /// A program, asked with `--version`.
    Binary(PathBuf),
    /// A static pod's manifest: the tag of its image, and what it passes to etcd.
    Manifest(PathBuf),
}

impl std::fmt::Display for EtcdSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EtcdSource::Version(version) => version.fmt(f),
            EtcdSource::Binary(path) | EtcdSource::Manifest(path) => path.display().fmt(f),
        }
    }
}

/// The etcd that is to be started, and who says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdToRun {
    /// `None`: something says how etcd is started, and not which (an image without a tag that is a version).
    pub version: Option<EtcdVersion>,
    pub by: NamedBy,
    /// The file that said so; `None` with the configuration itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// What a manifest passes to etcd. `None`: nobody was asked, or nothing is passed by flags that are understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags: Option<EtcdFlags>,
}

/// Who names the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamedBy {
    /// `etcd` of the guard's configuration.
    Config,
    /// A program's own answer.
    Binary,
    /// The image of a static pod.
    Manifest,
    /// etcd-manager's `state`.
    State,
}

/// Flags of etcd that bear on a start. Of each, `None`: not passed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdFlags {
    /// `--name`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `--initial-advertise-peer-urls`
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer_urls: Vec<String>,
    /// `--quota-backend-bytes`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// `--wal-dir`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_dir: Option<String>,
}

impl EtcdToRun {
    /// "etcd 3.5.16 (/usr/bin/etcd)"
    pub fn in_words(&self) -> String {
        let version = self.version.map_or_else(|| "of unknown version".to_owned(), |version| version.to_string());
        let by = match (self.by, &self.at) {
            (NamedBy::Config, _) => "the configuration".to_owned(),
            (NamedBy::State, _) => "etcd-manager's `state`".to_owned(),
            (NamedBy::Binary, Some(at)) => format!("{at} --version"),
            (NamedBy::Manifest, Some(at)) => format!("the image in {at}"),
            (NamedBy::Binary, None) => "its program".to_owned(),
            (NamedBy::Manifest, None) => "its manifest".to_owned(),
        };
        format!("etcd {version} (says {by})")
    }
}
