//! What the benches share: loop devices that are let go, tools that must succeed, a volhold of this build.
#![allow(dead_code, reason = "each bench takes what it needs")]

use std::path::Path;
use std::process::{Command, Stdio};

pub struct Loop(pub String);

impl Loop {
    pub fn new(file: &Path) -> Self {
        let node = run("losetup", &["--find", "--show", "--direct-io=on", &file.to_string_lossy()]);
        Loop(node.trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0]);
    }
}

/// A filesystem in memory.
pub struct Ramdisk(pub std::path::PathBuf);

impl Ramdisk {
    pub fn new(below: &Path) -> Self {
        let at = below.join("memory-disk");
        std::fs::create_dir(&at).expect("a folder");
        run("mount", &["-t", "tmpfs", "-o", "size=4g", "volhold-bench", &at.to_string_lossy()]);
        Ramdisk(at)
    }
}

impl Drop for Ramdisk {
    fn drop(&mut self) {
        run("umount", &[&self.0.to_string_lossy()]);
        std::fs::remove_dir(&self.0).expect("removed");
    }
}

pub fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().expect("the tool runs");
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub fn drop_caches() {
    std::fs::write("/proc/sys/vm/drop_caches", "1").expect("root may drop caches");
}

/// A folder on a disk, for images of gigabytes.
pub fn folder() -> tempfile::TempDir {
    let base = std::env::var_os("VOLHOLD_BENCH_DIR").unwrap_or_else(|| "/var/tmp".into());
    tempfile::Builder::new().prefix("volhold-bench.").tempdir_in(base).expect("a folder")
}

/// `cargo test --all-targets` runs the benches too, without the flag.
pub fn asked_for() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

pub const VOLHOLD: &str = env!("CARGO_BIN_EXE_volhold");
