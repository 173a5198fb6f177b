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
        unmount_somehow(at);
    }
    output("chattr", &["-R", "-f", "-i", &dir.to_string_lossy()]);
    if let Err(error) = std::fs::remove_dir_all(dir) {
        eprintln!("{} could not be removed: {error}", dir.display());
    }
}

/// Unmounts, waiting a few seconds for whoever still has something open: readers that die with their killed parent, and
/// children that another test is just starting, which have copies of this process' descriptors until they become their
/// programs. Says who is in the way if they stay.
#[track_caller]
pub fn unmount(at: &Path) {
    if let Err(said) = try_unmount(at) {
        panic!("{said}\nin the way: {:#?}", open_below(at));
    }
}

/// As [`unmount`]; what stays busy goes when the last one lets it go.
pub fn unmount_somehow(at: &Path) {
    if try_unmount(at).is_err() {
        output("umount", &["--lazy", &at.to_string_lossy()]);
    }
}

fn try_unmount(at: &Path) -> Result<(), String> {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let unmounted = output("umount", &[&at.to_string_lossy()]);
        if unmounted.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&unmounted.stderr);
        if !said.contains("busy") || std::time::Instant::now() > until {
            return Err(said.into_owned());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Processes with something open below a path: number, command line, path.
pub fn open_below(at: &Path) -> Vec<(String, String, PathBuf)> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let pid = process.file_name().to_string_lossy().into_owned();
        let descriptors = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let links =
            descriptors.map(|entry| entry.path()).chain([process.path().join("cwd"), process.path().join("root")]);
        for target in links.filter_map(|link| std::fs::read_link(link).ok()).filter(|target| target.starts_with(at)) {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            found.push((pid.clone(), String::from_utf8_lossy(&command).replace('\0', " "), target));
        }
    }
    found
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
