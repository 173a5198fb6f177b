//! What the tests of this binary share. Every helper that changes something on the machine undoes it when dropped, also
//! when the test fails: mounts, seals, loop devices, child processes, folders.
#![allow(dead_code, unused_imports, reason = "not every helper is used at every stage of the suite")]

pub mod disk;
pub mod ec2;
pub mod errfs;
pub mod etcd;
pub mod fixture;
pub mod manager;
pub mod node;
#[cfg(test)]
mod selftest;
pub mod start;
pub mod tmp;

pub use disk::{Loop, Mounted, Swap};
pub use errfs::ErrFs;
pub use etcd::Etcd;
pub use node::{Answer, Guard, Node};
pub use tmp::Tmp;

use std::process::{Command, Output, Stdio};

/// Most tests here need loop devices and mounts. Returns `false`, after saying so, where that is not to be had.
pub fn may_run(test: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    println!("SKIP {test}: needs root for loop devices and mounts");
    assert!(std::env::var_os("CI").is_none(), "continuous integration must run these tests as root");
    false
}

/// Leaves the test at once where it cannot run.
#[macro_export]
macro_rules! needs_root {
    () => {
        if !$crate::common::may_run(module_path!()) {
            return;
        }
    };
}

/// Runs a tool that has to succeed and returns what it printed.
#[track_caller]
pub fn run(program: &str, args: &[&str]) -> String {
    let output = output(program, args);
    assert!(
        output.status.success(),
        "{program} {}: {}\n{}{}",
        args.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a tool and returns how it ended.
#[track_caller]
pub fn output(program: &str, args: &[&str]) -> Output {
    // /sbin is not on everybody's path, and losetup, mkfs and sgdisk live there.
    let path = format!("/usr/sbin:/sbin:{}", std::env::var("PATH").unwrap_or_default());
    match Command::new(program).args(args).env("PATH", path).stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => panic!("{program} could not be run: {error}"),
    }
}
