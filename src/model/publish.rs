//! What of a volume is shown, and where.

use super::VolumeId;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The whole volume, as the one that is published there.
pub const WHOLE: &str = ".";

/// Stands in a place for the id of the volume, where EC2 or the node's ledger has to say first which one it is.
pub const VOLUME: &str = "{volume}";

/// Does the place depend on which volume it will be?
pub fn names_no_place(at: &Path) -> bool {
    at.as_os_str().as_encoded_bytes().windows(VOLUME.len()).any(|part| part == VOLUME.as_bytes())
}

/// One directory of the volume and its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishDir {
    /// Relative to the volume's root, cleaned; [`WHOLE`] for the root itself.
    pub from: String,
    /// Absolute.
    pub at: PathBuf,
}

impl PublishDir {
    /// The directory of the filesystem as the kernel's mount table names it (mountinfo's field 4): `/` or `/etcd`.
    pub fn mount_root(&self) -> PathBuf {
        if self.from == WHOLE { PathBuf::from("/") } else { Path::new("/").join(&self.from) }
    }

    /// Where a directory of the volume is seen through this one; `None` where it is not.
    pub fn place_of(&self, dir: &str) -> Option<PathBuf> {
        let below = below(&self.from, dir)?;
        Some(if below == Path::new(WHOLE) { self.at.clone() } else { self.at.join(below) })
    }
}

/// `dir` as seen from `from`, both relative to the volume's root; `None` when it does not lie in it.
fn below<'d>(from: &str, dir: &'d str) -> Option<&'d Path> {
    let dir = Path::new(dir.strip_prefix("./").unwrap_or(dir));
    if from == WHOLE {
        return Some(dir);
    }
    let rest = dir.strip_prefix(from).ok()?;
    Some(if rest.as_os_str().is_empty() { Path::new(WHOLE) } else { rest })
}

/// Everything that one guard publishes: the whole volume at one place, or directories of it each at its own. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publish(Vec<PublishDir>);

impl Publish {
    pub fn whole(at: impl Into<PathBuf>) -> Self {
        Publish(vec![PublishDir { from: WHOLE.to_owned(), at: at.into() }])
    }

    /// `None` for no directory at all.
    pub fn directories(directories: Vec<PublishDir>) -> Option<Self> {
        (!directories.is_empty()).then_some(Publish(directories))
    }

    /// With the places that this volume has. Only an EBS volume's id is a name for a directory; any other stays out of paths.
    pub fn of_volume(&self, volume: &VolumeId) -> Publish {
        if !volume.is_ebs() {
            return self.clone();
        }
        let place = |entry: &PublishDir| match entry.at.to_str() {
            Some(at) => PublishDir { from: entry.from.clone(), at: at.replace(VOLUME, &volume.0).into() },
            None => entry.clone(),
        };
        Publish(self.0.iter().map(place).collect())
    }

    pub fn entries(&self) -> &[PublishDir] {
        &self.0
    }

    pub fn is_whole(&self) -> bool {
        self.0.iter().any(|entry| entry.from == WHOLE)
    }

    /// The directories that have to be on the volume; none where the whole volume is published.
    pub fn sources(&self) -> Vec<String> {
        self.0.iter().filter(|entry| entry.from != WHOLE).map(|entry| entry.from.clone()).collect()
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|entry| entry.at.as_path())
    }

    /// The entry through which a directory of the volume is seen.
    pub fn entry_of(&self, dir: &str) -> Option<&PublishDir> {
        self.0.iter().find(|entry| below(&entry.from, dir).is_some())
    }

    /// The one path to name where there is room for one: that through which the data dir is seen, else the first.
    pub fn main(&self, data_dir: Option<&str>) -> &Path {
        let entry = data_dir.and_then(|dir| self.entry_of(dir)).or_else(|| self.0.first());
        entry.map_or(Path::new("/"), |entry| entry.at.as_path())
    }

    /// `/var/lib/etcd`, or `etcd at /var/lib/etcd, backup at /srv/backup`.
    pub fn words(&self) -> String {
        if self.is_whole() {
            return self.main(None).display().to_string();
        }
        let entries = self.0.iter().map(|entry| format!("{} at {}", entry.from, entry.at.display()));
        entries.collect::<Vec<_>>().join(", ")
    }
}

impl<P: Into<PathBuf>> From<P> for Publish {
    fn from(at: P) -> Self {
        Publish::whole(at)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn two() -> Publish {
        let entry = |from: &str, at: &str| PublishDir { from: from.into(), at: at.into() };
        Publish::directories(vec![entry("etcd", "/var/lib/etcd"), entry("a/b", "/srv/b")]).unwrap()
    }

    #[test]
    fn a_place_that_the_volume_names_is_known_with_the_volume() {
        let publish = Publish::whole("/mnt/master-{volume}");
        let ebs = VolumeId::ebs("vol-0123456789abcdef0").unwrap();
        assert!(publish.paths().all(names_no_place));
        assert_eq!(publish.of_volume(&ebs), Publish::whole("/mnt/master-vol-0123456789abcdef0"));
        assert!(!publish.of_volume(&ebs).paths().any(names_no_place));
        // A local device's id is a path: it would lead somewhere else.
        assert_eq!(publish.of_volume(&VolumeId("local:/dev/../etc".into())), publish);
        assert_eq!(two().of_volume(&ebs), two());
    }

    #[test]
    fn a_directory_is_seen_through_the_entry_that_it_lies_in() {
        let place = |publish: &Publish, dir: &str| publish.entry_of(dir).and_then(|entry| entry.place_of(dir));
        assert_eq!(place(&two(), "etcd"), Some("/var/lib/etcd".into()));
        assert_eq!(place(&two(), "etcd/default"), Some("/var/lib/etcd/default".into()));
        assert_eq!(place(&two(), "a/b/c"), Some("/srv/b/c".into()));
        for outside in ["etcd2", "a", ".", "etcd-old/etcd"] {
            assert_eq!(place(&two(), outside), None, "{outside}");
        }
        let whole = Publish::whole("/mnt/x");
        assert_eq!(place(&whole, "."), Some("/mnt/x".into()));
        assert_eq!(place(&whole, "./data"), Some("/mnt/x/data".into()));
    }

    #[test]
    fn the_mount_table_names_directories_from_the_filesystems_root() {
        let roots = |publish: &Publish| publish.entries().iter().map(PublishDir::mount_root).collect::<Vec<_>>();
        assert_eq!(roots(&two()), [PathBuf::from("/etcd"), PathBuf::from("/a/b")]);
        assert_eq!(roots(&Publish::whole("/x")), [PathBuf::from("/")]);
    }
}
