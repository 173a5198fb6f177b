//! The part of a service manager that an agent meets: the notify socket and the descriptor store (sd_notify(3),
//! sd_pid_notify_with_fds(3), sd_listen_fds(3)).
//!
//! It must be a real one: a claim that is sent and never taken out of the socket would keep the device busy for ever.

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Default)]
struct Heard {
    /// Every message, in order.
    said: Vec<String>,
    /// Descriptors that the agent gave to keep, by name.
    store: Vec<(String, OwnedFd)>,
}

/// Listens until it is dropped.
pub struct Manager {
    socket: PathBuf,
    heard: Arc<(Mutex<Heard>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

const QUIT: &str = "X_QUIT=1";

impl Manager {
    pub fn new(socket: &Path) -> Self {
        let listening = UnixDatagram::bind(socket).expect("a notify socket");
        let heard: Arc<(Mutex<Heard>, Condvar)> = Arc::default();
        let shared = heard.clone();
        let thread = std::thread::spawn(move || {
            while let Some((text, descriptors)) = receive(&listening) {
                let (heard, bell) = &*shared;
                let mut heard = heard.lock().expect("no panic in here");
                let has = |line: &str| text.lines().any(|other| other == line);
                let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or("stored").to_owned();
                if has("FDSTORE=1") {
                    heard.store.extend(descriptors.into_iter().map(|fd| (name.clone(), fd)));
                } else if has("FDSTOREREMOVE=1") {
                    heard.store.retain(|(other, _)| *other != name);
                }
                // What came with BARRIER=1 is closed here, after all that came before it was handled.
                heard.said.push(text);
                bell.notify_all();
            }
        });
        Manager { socket: socket.to_owned(), heard, thread: Some(thread) }
    }

    pub fn said(&self) -> Vec<String> {
        self.heard.0.lock().expect("no panic in the listener").said.clone()
    }

    /// How many messages were heard so far: a place to go on listening from.
    pub fn heard(&self) -> usize {
        self.said().len()
    }

    /// Waits until something that begins so is said after the first `from` messages.
    pub fn await_said(&self, from: usize, wanted: &str, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let (heard, bell) = &*self.heard;
        let mut heard = heard.lock().expect("no panic in the listener");
        loop {
            if heard.said.iter().skip(from).any(|text| text.lines().any(|line| line.starts_with(wanted))) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            heard = bell.wait_timeout(heard, left).expect("no panic in the listener").0;
        }
    }

    /// Names of what is kept.
    pub fn stored(&self) -> Vec<String> {
        let heard = self.heard.0.lock().expect("no panic in the listener");
        heard.store.iter().map(|(name, _)| name.clone()).collect()
    }

    /// `systemctl stop` does this: what was kept is let go.
    pub fn empty_store(&self) {
        self.heard.0.lock().expect("no panic in the listener").store.clear();
    }

    /// Makes `command` a service of this manager: it is told the socket and gets what is kept for it. `command` must be a
    /// shell that sets LISTEN_PID to its own number and becomes the program.
    pub fn hand_over(&self, command: &mut Command) {
        command.env("NOTIFY_SOCKET", &self.socket);
        let heard = self.heard.0.lock().expect("no panic in the listener");
        if heard.store.is_empty() {
            return;
        }
        let names: Vec<&str> = heard.store.iter().map(|(name, _)| name.as_str()).collect();
        command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        // Copies far above the numbers that are handed over, so that no one overwrites another.
        let copies: Vec<OwnedFd> = heard
            .store
            .iter()
            .map(|(_, fd)| rustix::io::fcntl_dupfd_cloexec(fd, 200).expect("a copy of a kept descriptor"))
            .collect();
        let hand_over = move || {
            for (number, fd) in (3..).zip(&copies) {
                // SAFETY: dup2 is async-signal-safe, and both numbers are valid; it clears close-on-exec on the new one.
                if unsafe { libc::dup2(fd.as_raw_fd(), number) } < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: between fork and exec only dup2 is called, and nothing is allocated.
        unsafe { command.pre_exec(hand_over) };
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if let Ok(socket) = UnixDatagram::unbound() {
            socket.send_to(QUIT.as_bytes(), &self.socket).ok();
        }
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// One message with its descriptors; `None` when it is the last.
fn receive(socket: &UnixDatagram) -> Option<(String, Vec<OwnedFd>)> {
    let mut text = [0; 16384];
    let mut space = nix::cmsg_space!([i32; 16]);
    let mut parts = [IoSliceMut::new(&mut text)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC).ok()?;
    let mut descriptors = Vec::new();
    for control in message.cmsgs().ok()? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            // SAFETY: the kernel has just made these descriptors for us, and nobody else knows them.
            descriptors.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
        }
    }
    let length = message.bytes;
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    (text != QUIT).then_some((text, descriptors))
}
