//! Is the kernel new enough?
//!
//! Mounts are made detached (`fsopen`, `open_tree`, `move_mount`: Linux 5.2) and paths opened with `openat2` (5.6). 5.10 is
//! the first long-lived kernel that has all of it, and what Debian 11 came with. What newer kernels add (Landlock from
//! 5.13, `diskseq` from 5.15) is used where it is there.

use std::fmt;

/// The oldest kernel that the agent runs on: major and minor number.
pub const LEAST: (u32, u32) = (5, 10);

/// What a kernel's release says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kernel {
    NewEnough,
    /// The agent must not run: it would fail later, in the middle of its work.
    TooOld {
        release: String,
    },
    /// No number can be read. That is a doubt about a text, not about the kernel: the agent runs, and says so.
    Unreadable {
        release: String,
    },
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = LEAST;
        match self {
            Kernel::NewEnough => write!(f, "the kernel is Linux {major}.{minor} or newer"),
            Kernel::TooOld { release } => {
                write!(f, "this kernel is Linux {release}; volhold needs {major}.{minor} or newer")
            }
            Kernel::Unreadable { release } => {
                write!(f, "`{release}` is no kernel release that can be read; volhold needs {major}.{minor} or newer")
            }
        }
    }
}

/// The kernel that runs, by uname(2).
pub fn running() -> Kernel {
    judge(&rustix::system::uname().release().to_string_lossy())
}

/// By the release of uname(2): two numbers with a dot between them, then anything (`5.10.0-28-cloud-amd64`, `6.1.119-1.amzn2023`).
pub fn judge(release: &str) -> Kernel {
    let mut parts = release.split('.');
    let major = parts.next().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())).and_then(number);
    let minor = parts.next().and_then(number);
    match major.zip(minor) {
        Some(found) if found >= LEAST => Kernel::NewEnough,
        Some(_) => Kernel::TooOld { release: release.to_owned() },
        None => Kernel::Unreadable { release: release.to_owned() },
    }
}

/// The number that a text begins with: releases go on with `-rc1`, `+` or a distribution's own words.
fn number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_from_5_10_on_are_new_enough() {
        for release in [
            "5.10.0-28-cloud-amd64",
            "5.10",
            "5.10-rc1",
            "5.14.0-427.13.1.el9_4.x86_64",
            "5.15.0-1051-aws",
            "6.1.119-129.201.amzn2023.x86_64",
            "6.18.2",
            "7.0+",
            "10.0.1",
        ] {
            assert_eq!(judge(release), Kernel::NewEnough, "{release}");
        }
    }

    #[test]
    fn older_kernels_are_too_old_also_where_text_would_sort_otherwise() {
        for release in [
            "5.9.16",
            "5.4.0-1103-aws",
            "5.1",
            "4.18.0-553.el8_10.x86_64",
            "4.99.0",
            "3.10.0-1160.el7.x86_64",
            "5.9-rc8",
        ] {
            assert_eq!(judge(release), Kernel::TooOld { release: release.to_owned() }, "{release}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_and_does_not_refuse() {
        for release in ["", ".", "5", "linux", "v6.1", "6.x", "-5.10", "99999999999.1", "5.99999999999", "6 .1"] {
            assert_eq!(judge(release), Kernel::Unreadable { release: release.to_owned() }, "{release:?}");
        }
    }

    #[test]
    fn the_message_names_both_versions() {
        let told = judge("4.18.0-553.el8").to_string();
        assert_eq!(told, "this kernel is Linux 4.18.0-553.el8; volhold needs 5.10 or newer");
    }

    #[test]
    fn the_kernel_under_this_test_is_read() {
        assert_eq!(running(), Kernel::NewEnough);
    }
}
