//! A folder of a test's own on a real disk, and its thorough removal.

use super::output;
use std::path::{Path, PathBuf};

/// A folder that goes away with everything in it: mounts below it are taken off, seals (`chattr +i`) lifted.
pub struct Tmp(PathBuf);

impl Tmp {
    /// On `/var/tmp`, not `/tmp`: that may be a tmpfs, which knows no immutable directories and would eat the memory.
    pub fn new() -> Self {
        let base = std::env::var_os("VOLHOLD_TEST_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let dir = tempfile::Builder::new().prefix("volhold-it.").tempdir_in(base).expect("a folder for the test");
        Tmp(dir.keep())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `name` below this folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Tmp {
    fn drop(&mut self) {
        clear(&self.0);
    }
}

/// Unmounts, unseals and removes a folder. Public to the demo of failure: what it cannot remove it prints.
pub fn clear(dir: &Path) {
    // Latest mount first: a mount may stand on another.
    for at in mounts_below(dir).iter().rev() {
        let at = at.to_string_lossy().into_owned();
        if !output("umount", &[&at]).status.success() {
            output("umount", &["--lazy", &at]);
        }
    }
    output("chattr", &["-R", "-f", "-i", &dir.to_string_lossy()]);
    if let Err(error) = std::fs::remove_dir_all(dir) {
        eprintln!("{} could not be removed: {error}", dir.display());
    }
}

/// Mountpoints at or below a folder, in order of mounting.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    mount_table().into_iter().map(|mount| mount.at).filter(|at| at.starts_with(dir)).collect()
}

/// One line of `/proc/self/mountinfo`.
#[derive(Debug)]
pub struct MountLine {
    pub at: PathBuf,
    pub source: String,
    pub devnum: String,
    pub options: String,
    pub super_options: String,
}

/// The mount table of the test's own namespace.
pub fn mount_table() -> Vec<MountLine> {
    let text = std::fs::read_to_string("/proc/thread-self/mountinfo").expect("mountinfo");
    text.lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let left: Vec<&str> = left.split(' ').collect();
            let right: Vec<&str> = right.split(' ').collect();
            Some(MountLine {
                at: PathBuf::from(left.get(4)?.replace("\\040", " ")),
                devnum: (*left.get(2)?).to_owned(),
                options: (*left.get(5)?).to_owned(),
                source: (*right.get(1)?).to_owned(),
                super_options: (*right.get(2)?).to_owned(),
            })
        })
        .collect()
}
