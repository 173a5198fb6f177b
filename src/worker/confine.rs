//! Gives up what a reader does not need, before it reads the first byte that somebody else wrote.
//!
//! A parser that is tricked into running foreign code has standard input, which is open for reading only, and a pipe to
//! its parent. Four walls stand around that, each useful without the others: no capabilities, limits, Landlock (no path but
//! the given ones, none for writing), seccomp (few system calls, few of their arguments). A kernel without Landlock or
//! seccomp is no failure; the parent is told and says so in its log.
//!
//! The restrictions hold for the calling thread and the threads that it starts later. Whoever calls this has one thread.

mod calls;
mod paths;
mod rights;

pub use paths::Landlock;

use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::BorrowedFd;

/// What a reader is given to read, hence what it still may do.
#[derive(Debug, Clone, Copy)]
pub enum Given<'fd> {
    /// A block device or an image, read as bytes.
    Bytes(BorrowedFd<'fd>),
    /// The root of a tree, whose owner may be anybody.
    Tree(BorrowedFd<'fd>),
}

/// Which walls stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Confinement {
    pub seccomp: bool,
    pub landlock: Landlock,
    /// Emptying it takes CAP_SETPCAP. Without it nothing is lost: a process without new privileges gains none by it.
    pub bounding_set_empty: bool,
}

impl Confinement {
    /// What this kernel, or who started this program, does not let it do; `None` where all walls stand.
    pub fn gaps(&self) -> Option<String> {
        let mut gaps = Vec::new();
        if !self.seccomp {
            gaps.push("no seccomp: the reader may make every system call");
        }
        match self.landlock {
            Landlock::Full => {}
            Landlock::Partial => gaps.push("an old Landlock: the reader is kept from some kinds of access only"),
            Landlock::None => gaps.push("no Landlock: the reader may open every path that its user may read"),
        }
        if !self.bounding_set_empty {
            gaps.push("no CAP_SETPCAP: the bounding set stays as it was");
        }
        if gaps.is_empty() { None } else { Some(gaps.join("; ")) }
    }
}

/// A wall that could have been built and was not.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error("cannot limit {what}")]
    Limit { what: &'static str, source: io::Error },
    #[error("cannot drop capabilities")]
    Capabilities { source: io::Error },
    #[error("cannot set {what}")]
    Process { what: &'static str, source: io::Error },
    #[error("cannot restrict paths with Landlock")]
    Landlock { source: landlock::RulesetError },
    #[error("cannot open {path} to allow it")]
    Path { path: String, source: io::Error },
    #[error("cannot make the filter of system calls")]
    Filter { source: seccompiler::BackendError },
    #[error("cannot set the filter of system calls")]
    Seccomp { source: seccompiler::Error },
}

/// Confines the calling thread for good. What cannot be had on this kernel is told in the answer; an error is a wall that
/// ought to stand.
pub fn confine(given: Given<'_>) -> Result<Confinement, ConfineError> {
    let process = |what| move |errno: nix::Error| ConfineError::Process { what, source: errno.into() };
    nix::sys::prctl::set_no_new_privs().map_err(process("no_new_privs"))?;
    rights::limit(given)?;
    // Opened while the rights to open them are there.
    let allowed = paths::allowed(given)?;
    let bounding_set_empty = rights::drop_capabilities(given)?;
    // Last of the credentials: changing those may forget it. The agent may die while this process reads; nobody would take
    // the answer.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
        .map_err(process("the signal at the parent's end"))?;
    let landlock = paths::restrict(allowed)?;
    let seccomp = calls::filter()?;
    Ok(Confinement { seccomp, landlock, bounding_set_empty })
}

/// As [`confine`], for a process that is to become a program: it may load and read what it likes, and change nothing. No
/// seccomp, which would have to know the program.
pub fn confine_program() -> Result<Confinement, ConfineError> {
    let process = |what| move |errno: nix::Error| ConfineError::Process { what, source: errno.into() };
    nix::sys::prctl::set_no_new_privs().map_err(process("no_new_privs"))?;
    rights::limit_program()?;
    let allowed = paths::of_program()?;
    let bounding_set_empty = rights::drop_all_capabilities()?;
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
        .map_err(process("the signal at the parent's end"))?;
    let landlock = paths::restrict(allowed)?;
    Ok(Confinement { seccomp: false, landlock, bounding_set_empty })
}

/// Does this kernel keep a thread from opening paths? Tried by one that ends thereafter.
pub fn landlock_holds() -> bool {
    let tried = std::thread::spawn(|| paths::restrict(Vec::new()));
    matches!(tried.join(), Ok(Ok(Landlock::Full | Landlock::Partial)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wall_that_is_missing_is_told_and_none_that_stands() {
        let all = Confinement { seccomp: true, landlock: Landlock::Full, bounding_set_empty: true };
        assert_eq!(all.gaps(), None);
        let told = |confinement: Confinement| confinement.gaps().unwrap_or_default();
        assert!(told(Confinement { seccomp: false, ..all.clone() }).starts_with("no seccomp"));
        assert!(told(Confinement { landlock: Landlock::None, ..all.clone() }).starts_with("no Landlock"));
        assert!(told(Confinement { landlock: Landlock::Partial, ..all.clone() }).starts_with("an old Landlock"));
        assert!(told(Confinement { bounding_set_empty: false, ..all.clone() }).starts_with("no CAP_SETPCAP"));
        let none = Confinement { seccomp: false, landlock: Landlock::None, bounding_set_empty: false };
        assert_eq!(told(none).split("; ").count(), 3);
    }
}
