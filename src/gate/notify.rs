//! systemd's notify protocol (sd_notify(3)) and its descriptor store, which keeps the claim on a device over a restart.
//!
//! Telling systemd never fails the program and never blocks it for more than two seconds: each function logs what went
//! wrong and goes on. Without `NOTIFY_SOCKET` nothing happens.
//!
//! The store: a descriptor is kept under a name (`claim-GUARD`) and handed back, after a restart, as an inherited
//! descriptor from number 3 on (`LISTEN_FDS`, `LISTEN_FDNAMES`; sd_listen_fds(3)). It must be *that* descriptor: opening
//! the device anew would meet its own claim (EBUSY).

use crate::model::GuardName;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// How long a message may wait for room in the socket.
const PATIENCE: i64 = 2;
/// Status lines are for a terminal's width or two; systemd takes more, people do not.
const MAX_STATUS: usize = 500;
/// First inherited descriptor, `SD_LISTEN_FDS_START`.
const FIRST_INHERITED: i32 = 3;

/// Start is finished.
pub fn ready() {
    tell(&["READY=1"], &[]);
}

/// One line for `systemctl status`.
pub fn status(text: &str) {
    tell(&[&status_line(text)], &[]);
}

/// The configuration is being read again. [`ready`] ends it.
pub fn reloading() {
    if let Some(now) = log_failure("RELOADING=1", sd_notify::NotifyState::monotonic_usec_now()) {
        tell(&["RELOADING=1", &now.to_string()], &[]);
    }
}

/// The program ends.
pub fn stopping() {
    tell(&["STOPPING=1"], &[]);
}

/// Still alive.
pub fn watchdog() {
    tell(&["WATCHDOG=1"], &[]);
}

/// How often [`watchdog`] must be called: half of what systemd waits. `None`: it does not watch this process.
pub fn watchdog_interval() -> Option<Duration> {
    interval_of(std::env::var("WATCHDOG_USEC").ok()?.as_str(), std::env::var("WATCHDOG_PID").ok().as_deref())
}

fn interval_of(usec: &str, pid: Option<&str>) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(std::process::id())) {
        return None;
    }
    let usec: u64 = usec.parse().ok()?;
    (usec > 0).then(|| Duration::from_micros(usec / 2))
}

/// Gives a guard's claim to systemd to keep.
pub fn store(guard: &GuardName, claim: BorrowedFd<'_>) {
    tell(&["FDSTORE=1", &format!("FDNAME={}", store_name(guard))], &[claim]);
}

/// Makes systemd let go of a guard's claim, and waits until it has (at most a second). `false`: systemd did not answer in
/// time, so the device may still be busy.
pub fn unstore(guard: &GuardName) -> bool {
    tell(&["FDSTOREREMOVE=1", &format!("FDNAME={}", store_name(guard))], &[]);
    barrier(Duration::from_secs(1))
}

/// Waits until systemd has handled every message so far. `true` also without a systemd.
pub fn barrier(patience: Duration) -> bool {
    match Notifier::from_env() {
        Some(notifier) => log_failure("BARRIER=1", notifier.barrier(patience)).unwrap_or(false),
        None => true,
    }
}

/// The claim that systemd kept for this guard while the agent was restarted. It is handed out once. Where more than one was
/// kept under that name it is the newest, and the others end here: each would keep the device busy for as long as we live.
///
/// [`inherit`] should have been called at the start of the program; else this does it.
pub fn take_stored(guard: &GuardName) -> Option<OwnedFd> {
    let name = store_name(guard);
    let mut kept = inherited().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    newest(&mut kept, &name)
}

/// Takes all of a name out, and keeps the last one.
fn newest<T>(kept: &mut Vec<(String, T)>, name: &str) -> Option<T> {
    kept.extract_if(.., |(other, _)| other == name).last().map(|(_, claim)| claim)
}

/// Takes every descriptor that systemd handed over, before the program spawns anything (they are inherited without
/// `O_CLOEXEC`) and returns their names.
pub fn inherit() -> Vec<String> {
    let kept = inherited().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    kept.iter().map(|(name, _)| name.clone()).collect()
}

fn store_name(guard: &GuardName) -> String {
    format!("claim-{guard}")
}

fn inherited() -> &'static Mutex<Vec<(String, OwnedFd)>> {
    static INHERITED: OnceLock<Mutex<Vec<(String, OwnedFd)>>> = OnceLock::new();
    INHERITED.get_or_init(|| {
        let var = |name| std::env::var(name).ok();
        Mutex::new(take_inherited(var("LISTEN_PID"), var("LISTEN_FDS"), var("LISTEN_FDNAMES")))
    })
}

fn take_inherited(pid: Option<String>, count: Option<String>, names: Option<String>) -> Vec<(String, OwnedFd)> {
    let ours = pid.and_then(|pid| pid.parse::<u32>().ok()) == Some(std::process::id());
    let Some(count) = count.and_then(|count| count.parse::<i32>().ok()).filter(|_| ours) else { return Vec::new() };
    let names: Vec<&str> = names.as_deref().map(|names| names.split(':').collect()).unwrap_or_default();
    let mut taken = Vec::new();
    for (offset, number) in (FIRST_INHERITED..FIRST_INHERITED.saturating_add(count)).enumerate() {
        let name = names.get(offset).copied().unwrap_or("unknown").to_owned();
        match take_descriptor(number) {
            Ok(fd) => taken.push((name, fd)),
            Err(error) => {
                tracing::warn!(event = "store.lost", number, name, %error, "cannot take over a kept descriptor");
            }
        }
    }
    taken
}

/// Owns an inherited descriptor, and sets `O_CLOEXEC`. The kernel hands out a second descriptor for the same open file (so a
/// claim stays this claim); the inherited number is closed. That way nothing has to be believed about the number: a wrong
/// one is an error.
fn take_descriptor(number: i32) -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    let fd = pidfd_getfd(own, number, PidfdGetfdFlags::empty())?;
    nix::unistd::close(number)?;
    Ok(fd)
}

fn status_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_STATUS).collect();
    format!("STATUS={line}")
}

fn tell(lines: &[&str], descriptors: &[BorrowedFd<'_>]) {
    if let Some(notifier) = Notifier::from_env() {
        log_failure(lines.first().copied().unwrap_or_default(), notifier.send(lines, descriptors));
    }
}

fn log_failure<T>(what: &str, outcome: io::Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::warn!(event = "notify.failed", what, %error, "cannot tell systemd");
            None
        }
    }
}

/// The socket of a service manager.
struct Notifier {
    address: UnixAddr,
}

impl Notifier {
    fn from_env() -> Option<Self> {
        let path = std::env::var_os("NOTIFY_SOCKET")?;
        log_failure("NOTIFY_SOCKET", Notifier::at(path.as_bytes()))
    }

    /// A path, or `@name` in the abstract namespace.
    fn at(path: &[u8]) -> io::Result<Self> {
        let address = match path.split_first() {
            Some((b'@', name)) => UnixAddr::new_abstract(name)?,
            Some((b'/', _)) => UnixAddr::new(path)?,
            Some(_) | None => return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a path nor abstract")),
        };
        Ok(Notifier { address })
    }

    fn send(&self, lines: &[&str], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(PATIENCE, 0))?;
        let message = lines.join("\n");
        let numbers: Vec<i32> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control: &[ControlMessage<'_>] = if numbers.is_empty() { &[] } else { &rights };
        let iov = [IoSlice::new(message.as_bytes())];
        sendmsg(socket.as_raw_fd(), &iov, control, MsgFlags::MSG_NOSIGNAL, Some(&self.address))?;
        Ok(())
    }

    /// systemd closes the descriptor that comes with `BARRIER=1` once it has handled all messages before it.
    fn barrier(&self, patience: Duration) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let (read, write) = io::pipe()?;
        self.send(&["BARRIER=1"], &[write.as_fd()])?;
        drop(write);
        let timeout = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        let mut polled = [PollFd::new(&read, PollFlags::HUP)];
        Ok(poll(&mut polled, Some(&timeout))? > 0)
    }
}

#[cfg(test)]
mod tests;
