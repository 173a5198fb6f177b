//! Who asks, as the kernel says it (SO_PEERCRED: the credentials at the time of the connect), and who may.
//!
//! `/livez`, and `/readyz` without its reasons, are for everybody who comes as far as the socket: probes run as whoever they
//! are. The rest is for [`Readers`].

use crate::gate::readers::Readers;
use std::fmt;
use std::net::SocketAddr;
use tokio::net::UnixStream;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    User {
        uid: u32,
        gid: u32,
        /// `None`: of another PID namespace.
        pid: Option<i32>,
    },
    /// The kernel does not say. Nobody's rights.
    Unknown,
    /// On loopback: some user of this machine.
    Tcp(SocketAddr),
}

impl Peer {
    pub(super) fn of_socket(stream: &UnixStream) -> Self {
        match stream.peer_cred() {
            Ok(cred) => Peer::User { uid: cred.uid(), gid: cred.gid(), pid: cred.pid().filter(|pid| *pid > 0) },
            Err(error) => {
                tracing::warn!(event = "http.peer", %error, "the kernel does not say who asks");
                Peer::Unknown
            }
        }
    }

    /// Root, or the user that the agent runs as.
    pub(super) fn is_owner(&self) -> bool {
        match self {
            Peer::User { uid, .. } => *uid == 0 || *uid == rustix::process::geteuid().as_raw(),
            Peer::Unknown | Peer::Tcp(_) => false,
        }
    }

    pub(super) fn may_read(&self, readers: Readers) -> bool {
        match (readers, self) {
            (Readers::Everyone, _) => true,
            (Readers::Owner, _) => self.is_owner(),
            (Readers::Group(group), Peer::User { uid, gid, pid }) => {
                self.is_owner() || *gid == group || pid.is_some_and(|pid| is_in(pid, *uid, group))
            }
            (Readers::Group(_), Peer::Unknown | Peer::Tcp(_)) => false,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::User { uid, gid, pid: Some(pid) } => write!(f, "process {pid} of user {uid}, group {gid}"),
            Peer::User { uid, gid, pid: None } => write!(f, "a process of user {uid}, group {gid}"),
            Peer::Unknown => f.write_str("somebody unknown"),
            Peer::Tcp(address) => address.fmt(f),
        }
    }
}

/// The process has this supplementary group. Where it has ended, and another process has its number by now, that one must be
/// the same user's to count, and then the user has the group anyway.
fn is_in(pid: i32, uid: u32, group: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| says_member(&status, uid, group))
}

/// `Uid:` (real, effective, saved, filesystem) and `Groups:` of proc_pid_status(5).
fn says_member(status: &str, uid: u32, group: u32) -> bool {
    let numbers = |name: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()).collect()
    };
    numbers("Uid:").get(1) == Some(&uid) && numbers("Groups:").contains(&group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supplementary_group_counts_for_the_user_who_connected() {
        let status = "Name:\tcurl\nUid:\t7\t8\t8\t8\nGid:\t5\t5\t5\t5\nGroups:\t4 24 27 \nNSpid:\t9\n";
        assert!(says_member(status, 8, 24));
        assert!(!says_member(status, 7, 24), "the effective user is another");
        assert!(!says_member(status, 8, 2), "a group is a whole number");
        assert!(!says_member("", 8, 24));
        let stranger = Peer::User { uid: 4_000_000, gid: 24, pid: None };
        assert!(stranger.may_read(Readers::Group(24)) && stranger.may_read(Readers::Everyone));
        assert!(!stranger.may_read(Readers::Group(25)) && !stranger.may_read(Readers::Owner));
        assert!(!Peer::Unknown.may_read(Readers::Group(0)));
    }
}
