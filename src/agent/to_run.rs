//! Which etcd will be started on a guard's data: asked of what the configuration names, or of the manifest that kubeadm
//! writes. Nothing here holds: what cannot be found out is told as that.

mod manifest;

use super::stuck::blocking;
use crate::config::GuardConfig;
use crate::model::{EtcdSource, EtcdToRun, NamedBy, Observed, Publish, Why};
use crate::worker;
use manifest::Manifest;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest that a program may take to say its version.
const VERSION: Duration = Duration::from_secs(10);
/// Longest that reading a manifest may take.
const MANIFEST: Duration = Duration::from_secs(10);
/// A manifest has two KiB.
const LARGEST: u64 = 1 << 20;
/// Where kubeadm and rke2 write the manifest of their etcd.
const KNOWN: &[&str] = &["/etc/kubernetes/manifests/etcd.yaml", "/var/lib/rancher/rke2/agent/pod-manifests/etcd.yaml"];

/// The etcd that is to run; `None`: nothing names it.
pub async fn to_run(guard: &GuardConfig) -> Observed<Option<EtcdToRun>> {
    let named = |version, by, at: &Path, flags| {
        Observed::Seen(Some(EtcdToRun { version, by, at: Some(at.display().to_string()), flags }))
    };
    match &guard.etcd {
        Some(EtcdSource::Version(version)) => {
            Observed::Seen(Some(EtcdToRun { version: Some(*version), by: NamedBy::Config, at: None, flags: None }))
        }
        Some(EtcdSource::Binary(program)) => match worker::etcd_version(program, VERSION).await {
            Observed::Seen(version) => named(Some(version), NamedBy::Binary, program, None),
            Observed::Unknown(why) => Observed::Unknown(why),
        },
        Some(EtcdSource::Manifest(path)) => match read(path.clone()).await {
            Ok(Some(manifest)) => named(manifest.version, NamedBy::Manifest, path, Some(manifest.flags)),
            Ok(None) => unreadable(format!("{} names no container of etcd", path.display())),
            Err(why) => Observed::Unknown(why),
        },
        None => {
            for path in KNOWN.iter().map(Path::new) {
                // What nobody configured is believed only where it speaks of this guard's own directory.
                if let Ok(Some(manifest)) = read(path.to_owned()).await
                    && mounts(&manifest, &guard.publish)
                {
                    return named(manifest.version, NamedBy::Manifest, path, Some(manifest.flags));
                }
            }
            Observed::Seen(None)
        }
    }
}

/// Does the pod get what the guard publishes, and as its data dir?
fn mounts(manifest: &Manifest, publish: &Publish) -> bool {
    let published = |path: &PathBuf| publish.entries().iter().any(|dir| path.starts_with(&dir.at));
    manifest.data_dir.as_ref().is_some_and(published)
}

fn unreadable<T>(detail: String) -> Observed<T> {
    Observed::Unknown(Why::Unreadable { detail })
}

async fn read(path: PathBuf) -> Result<Option<Manifest>, Why> {
    let shown = path.display().to_string();
    let unreadable = move |what: String| Why::Unreadable { detail: format!("{shown}: {what}") };
    let text = match blocking(MANIFEST, move || text_of(&path)).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(unreadable(error.to_string())),
        Err(stuck) => return Err(stuck.why("reading a manifest")),
    };
    manifest::parse(&text).map_err(unreadable)
}

fn text_of(path: &Path) -> std::io::Result<String> {
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("is no file"));
    }
    let mut text = String::new();
    // One byte more: half a manifest would be another one.
    file.take(LARGEST.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(std::io::Error::other(format!("is larger than {LARGEST} bytes, and no manifest")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_that_nobody_configured_speaks_of_its_own_directory_only() {
        let of = |dir: Option<&str>| Manifest { data_dir: dir.map(PathBuf::from), ..Manifest::default() };
        let publish = Publish::whole("/var/lib/etcd");
        assert!(mounts(&of(Some("/var/lib/etcd")), &publish));
        assert!(mounts(&of(Some("/var/lib/etcd/data")), &publish));
        for other in [Some("/var/lib/etcd-events"), Some("/srv/etcd"), Some("/var/lib"), None] {
            assert!(!mounts(&of(other), &publish), "{other:?}");
        }
    }
}
