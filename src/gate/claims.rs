//! Copies of a held guard's claim, kept by the processes that wait for its gate.
//!
//! systemd's descriptor store keeps a claim over a restart of the agent, and no longer: `systemctl stop` empties it. So every
//! `volhold wait NAME` of a held guard has a keeper beside it, a child that holds the same open file description (a second
//! exclusive open would be refused) and does nothing else. The agent hands the claim over, and asks for it back:
//!
//! ```text
//! <run>/claims/NAME.PID   socket of the keeper with this process id; one message a connection
//!   hold + descriptor  ->  held
//!   give               ->  here + descriptor | none
//!   drop               ->  dropped              (closed before it is said)
//! ```
//!
//! Whoever wants to mount needs every copy closed. A keeper that does not answer within a second (stopped, frozen) is killed:
//! nothing but the claim dies with it, whereas the death of the waiting process would take etcd's queued start along. So a
//! healthy volume is never held for the sake of a stuck waiter. Keepers exist only beside guards that are *held*: an ordinary
//! boot has none.

use super::files::{self, GateError};
use crate::model::GuardName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg,
    socket_with,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// How long a keeper may take to answer, and a killed one to end.
const PATIENCE: Duration = Duration::from_secs(1);
/// No message is longer.
const LONGEST: usize = 16;
/// Connections that may wait while a keeper serves another one.
const BACKLOG: i32 = 16;

/// The guard of a keeper's socket, by its file name. A name that is still being made (it begins with a dot) is none.
pub fn guard_of(file_name: &str) -> Option<GuardName> {
    let (name, pid) = file_name.rsplit_once('.')?;
    let _is_a_number: u32 = pid.parse().ok()?;
    name.parse().ok()
}

/// Hands the claim to every keeper of the guard. Returns how many have it. What cannot be handed over is told, and costs
/// nothing: the claim itself stays with the agent.
pub fn share(run: &Path, guard: &GuardName, claim: BorrowedFd<'_>) -> usize {
    let mut kept: usize = 0;
    for keeper in keepers(run, guard) {
        match keeper.ask(b"hold", Some(claim)) {
            Ok((answer, _)) if answer == b"held" => kept = kept.saturating_add(1),
            Ok(_) => {}
            Err(errno) => keeper.tell(guard, "does not take the claim", errno),
        }
    }
    kept
}

/// Takes a copy of the claim from a keeper, for an agent that comes after one which was stopped. It is the same open file
/// description that the agent before had.
pub fn recover(run: &Path, guard: &GuardName) -> Option<OwnedFd> {
    keepers(run, guard).into_iter().find_map(|keeper| match keeper.ask(b"give", None) {
        Ok((answer, fd)) if answer == b"here" => fd,
        Ok(_) => None,
        Err(errno) => {
            keeper.tell(guard, "does not give the claim", errno);
            None
        }
    })
}

/// Makes every keeper of the guard let the claim go, and returns when they have: after a second at most for those that answer,
/// after two for one that has to be killed. `false`: one could be neither asked nor killed, so the device may still be busy.
pub fn take_back(run: &Path, guard: &GuardName) -> bool {
    let mut all = true;
    for keeper in keepers(run, guard) {
        match keeper.ask(b"drop", None) {
            Ok((answer, _)) if answer == b"dropped" => {}
            Ok(_) => all &= keeper.end(guard),
            Err(errno) => {
                keeper.tell(guard, "does not let the claim go within a second, and is killed", errno);
                all &= keeper.end(guard);
            }
        }
    }
    all
}

/// A keeper as the agent sees it: a connection that it has not answered yet.
struct Keeper {
    connection: OwnedFd,
    pid: Option<Pid>,
}

/// Every keeper of this guard that lives. The socket of one that is gone is taken away.
fn keepers(run: &Path, guard: &GuardName) -> Vec<Keeper> {
    let dir = files::claims_dir(run);
    let names = match std::fs::read_dir(&dir) {
        Ok(entries) => entries.flatten().map(|entry| entry.file_name()),
        Err(_none) => return Vec::new(),
    };
    let mut found = Vec::new();
    for name in names.filter_map(|name| name.into_string().ok()) {
        if guard_of(&name).as_ref() != Some(guard) {
            continue;
        }
        match dial(&dir, &name) {
            Ok(keeper) => found.push(keeper),
            Err(Errno::CONNREFUSED) => files::remove_claim_socket(run, &name),
            Err(errno) => {
                tracing::warn!(event = "claim.keeper", %guard, socket = name, error = %errno, "cannot be reached");
            }
        }
    }
    found
}

fn dial(dir: &Path, name: &str) -> rustix::io::Result<Keeper> {
    let connection = seqpacket()?;
    for which in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&connection, which, Some(PATIENCE))?;
    }
    let dir = open_dir(dir)?;
    connect(&connection, &address(&dir, name)?)?;
    // Of the process that listens: the keeper itself.
    let pid = socket_peercred(&connection).ok().map(|peer| peer.pid);
    Ok(Keeper { connection, pid })
}

impl Keeper {
    fn ask(&self, question: &[u8], fd: Option<BorrowedFd<'_>>) -> rustix::io::Result<(Vec<u8>, Option<OwnedFd>)> {
        say(self.connection.as_fd(), question, fd)?;
        hear(self.connection.as_fd())
    }

    /// Kills it and waits for its end. Its process id is believed only while its connection stands: then it has not ended, and
    /// nobody else can have its number.
    fn end(&self, guard: &GuardName) -> bool {
        let ended = || -> rustix::io::Result<bool> {
            let Some(pid) = self.pid else { return Ok(false) };
            let process = match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(process) => process,
                Err(Errno::SRCH) => return Ok(true),
                Err(errno) => return Err(errno),
            };
            if readable(self.connection.as_fd(), PollFlags::HUP, Duration::ZERO)? {
                return Ok(true);
            }
            match pidfd_send_signal(&process, Signal::KILL) {
                Ok(()) => {}
                Err(Errno::SRCH) => return Ok(true),
                Err(errno) => return Err(errno),
            }
            readable(process.as_fd(), PollFlags::IN, PATIENCE)
        };
        match ended() {
            Ok(ended) => ended,
            Err(errno) => {
                self.tell(guard, "cannot be killed", errno);
                false
            }
        }
    }

    fn tell(&self, guard: &GuardName, what: &str, errno: Errno) {
        let pid = self.pid.map(|pid| pid.as_raw_nonzero().get());
        tracing::warn!(event = "claim.keeper", %guard, pid, error = %errno, "the process that keeps a copy of the claim {what}");
    }
}

/// The life of a keeper: until `parent` (a pipe's end that the waiting process holds the other end of) hangs up.
pub fn keep(run: &Path, guard: &GuardName, parent: BorrowedFd<'_>) -> Result<(), GateError> {
    files::prepare(run)?;
    let dir = files::claims_dir(run);
    let name = format!("{guard}.{}", std::process::id());
    let failed = |errno: Errno| GateError::Write { path: dir.join(&name), source: errno.into() };
    let listener = open_dir(&dir).and_then(|dir| listen_at(&dir, &name)).map_err(failed)?;
    let mut claim: Option<OwnedFd> = None;
    let served = loop {
        let mut polled = [PollFd::new(&listener, PollFlags::IN), PollFd::from_borrowed_fd(parent, PollFlags::IN)];
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => break Err(errno),
        }
        let [asked, left] = polled.map(|polled| !polled.revents().is_empty());
        if left {
            break Ok(());
        }
        if asked {
            // A question that is cut off is asked again by whoever asked it.
            if let Err(errno) = serve(&listener, &mut claim) {
                tracing::debug!(event = "claim.question", error = %errno);
            }
        }
    };
    drop(claim);
    files::remove_claim_socket(run, &name);
    served.map_err(failed)
}

fn serve(listener: &OwnedFd, claim: &mut Option<OwnedFd>) -> rustix::io::Result<()> {
    let connection = accept_with(listener, SocketFlags::CLOEXEC)?;
    for which in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&connection, which, Some(PATIENCE))?;
    }
    let (question, fd) = hear(connection.as_fd())?;
    match (question.as_slice(), fd) {
        (b"hold", Some(fd)) => {
            *claim = Some(fd);
            say(connection.as_fd(), b"held", None)
        }
        (b"drop", _) => {
            *claim = None;
            say(connection.as_fd(), b"dropped", None)
        }
        (b"give", _) => match claim {
            Some(fd) => say(connection.as_fd(), b"here", Some(fd.as_fd())),
            None => say(connection.as_fd(), b"none", None),
        },
        (_, _) => say(connection.as_fd(), b"what", None),
    }
}

/// The socket gets its name when it listens, so that whoever sees the name can connect.
fn listen_at(dir: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let listener = seqpacket()?;
    let making = format!(".{name}");
    bind(&listener, &address(dir, &making)?)?;
    listen(&listener, BACKLOG)?;
    files::name_claim_socket(dir, &making, name)?;
    Ok(listener)
}

fn seqpacket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

fn open_dir(dir: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// A socket's address has room for 107 bytes, a run dir may be deeper: named by way of the opened directory.
fn address(dir: &OwnedFd, name: &str) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

fn say(connection: BorrowedFd<'_>, words: &[u8], fd: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    if !rights.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&rights)) {
        return Err(Errno::NOMEM);
    }
    sendmsg(connection, &[IoSlice::new(words)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn hear(connection: BorrowedFd<'_>) -> rustix::io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut words = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let heard = recvmsg(connection, &mut [IoSliceMut::new(&mut words)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fd = control
        .drain()
        .find_map(|message| if let RecvAncillaryMessage::ScmRights(mut fds) = message { fds.next() } else { None });
    if heard.bytes == 0 {
        return Err(Errno::CONNRESET);
    }
    words.truncate(heard.bytes);
    Ok((words, fd))
}

fn readable(fd: BorrowedFd<'_>, what: PollFlags, patience: Duration) -> rustix::io::Result<bool> {
    let timeout = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: patience.subsec_nanos().into(),
    };
    let mut polled = [PollFd::from_borrowed_fd(fd, what)];
    poll(&mut polled, Some(&timeout))?;
    let [polled] = polled;
    Ok(polled.revents().intersects(what))
}

#[cfg(test)]
mod tests;
