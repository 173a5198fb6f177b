//! The other end of `/v1/events`: one request on the agent's socket, and the lines of its answer. It never waits: who reads
//! it waits for its descriptor.
//!
//! HTTP/1.0, whose answers come as they are, without chunks.

use crate::gate::http::socket_path;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Bytes of an answer's head. The agent's has some hundred.
const HEAD: usize = 16 * 1024;
/// Bytes of a line: far more than a guard's state can have, and few enough to hold.
const LINE: usize = 16 << 20;

/// A request that has been sent.
#[derive(Debug)]
pub struct Stream {
    socket: UnixStream,
    /// Heard and not told yet.
    heard: Vec<u8>,
    /// Up to here there is no line feed in it.
    searched: usize,
    answered: bool,
    ended: bool,
}

/// What there is to hear now.
#[derive(Debug)]
pub enum Heard {
    Line(String),
    NothingYet,
    End,
    Refused(Refused),
}

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("does not answer")]
    Silent(#[source] io::Error),
    #[error("takes too long to answer")]
    TooSlow,
    #[error("tells this to root and one group only")]
    Denied,
    #[error("has too many listeners")]
    Busy,
    #[error("gives an odd answer: {0}")]
    Odd(String),
}

impl Stream {
    /// Asks for the state of each guard, and with `follow` for what changes.
    pub fn open(run: &Path, follow: bool) -> io::Result<Self> {
        // A full queue of one that never accepts is an error, not a wait.
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(fd.as_raw_fd(), &UnixAddr::new(&socket_path(run))?)?;
        let mut socket = UnixStream::from(fd);
        let query = if follow { "" } else { "?follow=false" };
        socket.write_all(format!("GET /v1/events{query} HTTP/1.0\r\n\r\n").as_bytes())?;
        Ok(Stream { socket, heard: Vec::new(), searched: 0, answered: false, ended: false })
    }

    /// The head of the answer has come.
    pub fn answered(&self) -> bool {
        self.answered
    }

    /// The next line, as far as it has come.
    pub fn hear(&mut self) -> Heard {
        loop {
            if let Some(told) = self.told() {
                return told;
            }
            if self.ended {
                return if self.answered {
                    Heard::End
                } else {
                    Heard::Refused(Refused::Odd("it ended at once".into()))
                };
            }
            let mut piece = [0; 16 * 1024];
            match self.socket.read(&mut piece) {
                Ok(0) => self.ended = true,
                Ok(length) => self.heard.extend_from_slice(piece.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::NothingYet,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It was cut off.
                Err(_) => self.ended = true,
            }
        }
    }

    /// What is whole of what was heard.
    fn told(&mut self) -> Option<Heard> {
        if !self.answered {
            let Some(head) = self.take(b"\r\n\r\n") else {
                return (self.heard.len() > HEAD).then(|| Heard::Refused(Refused::Odd("an endless head".into())));
            };
            let first = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
            match first.split(' ').nth(1) {
                Some("200") => self.answered = true,
                Some("403") => return Some(Heard::Refused(Refused::Denied)),
                Some("503") => return Some(Heard::Refused(Refused::Busy)),
                _ => return Some(Heard::Refused(Refused::Odd(first))),
            }
        }
        match self.take(b"\n") {
            Some(line) => Some(Heard::Line(String::from_utf8_lossy(&line).into_owned())),
            None if self.heard.len() > LINE => Some(Heard::Refused(Refused::Odd("an endless line".into()))),
            None => None,
        }
    }

    /// What stands before the next `end`, which goes with it.
    fn take(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let from = self.searched.saturating_sub(end.len());
        let found = memchr::memmem::find(self.heard.get(from..)?, end).map(|at| at.saturating_add(from));
        let Some(at) = found else {
            self.searched = self.heard.len();
            return None;
        };
        let rest = self.heard.split_off(at.saturating_add(end.len()).min(self.heard.len()));
        let mut taken = std::mem::replace(&mut self.heard, rest);
        taken.truncate(at);
        self.searched = 0;
        Some(taken)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn answered(pieces: &[&[u8]]) -> (Stream, UnixStream) {
        let tmp = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(socket_path(tmp.path())).unwrap();
        let stream = Stream::open(tmp.path(), true).unwrap();
        let (mut agent, _) = listener.accept().unwrap();
        for piece in pieces {
            agent.write_all(piece).unwrap();
        }
        (stream, agent)
    }

    #[test]
    fn lines_are_told_whole_however_they_come() {
        let (mut stream, mut agent) = answered(&[b"HTTP/1.0 200 OK\r\nx: y\r", b"\n\r\n{\"a\":1}\n{\"b\"", b":2}\n{"]);
        let mut lines = Vec::new();
        while let Heard::Line(line) = stream.hear() {
            lines.push(line);
        }
        assert_eq!(lines, ["{\"a\":1}", "{\"b\":2}"]);
        assert!(matches!(stream.hear(), Heard::NothingYet) && stream.answered());
        agent.write_all(b"}\n").unwrap();
        assert!(matches!(stream.hear(), Heard::Line(line) if line == "{}"));
        drop(agent);
        assert!(matches!(stream.hear(), Heard::End));
    }

    #[test]
    fn what_is_no_stream_is_told_apart() {
        let refused = |said: &[u8]| {
            let (mut stream, agent) = answered(&[said]);
            drop(agent);
            match stream.hear() {
                Heard::Refused(refused) => refused,
                other => panic!("{other:?}"),
            }
        };
        assert!(matches!(refused(b"HTTP/1.1 403 Forbidden\r\n\r\n"), Refused::Denied));
        assert!(matches!(refused(b"HTTP/1.1 503 Service Unavailable\r\n\r\n"), Refused::Busy));
        assert!(matches!(refused(b"HTTP/1.1 404 Not Found\r\n\r\n"), Refused::Odd(_)));
        assert!(matches!(refused(b""), Refused::Odd(_)));
        assert!(matches!(refused(&[b'x'; HEAD + 1]), Refused::Odd(_)));
        assert!(Stream::open(Path::new("/nowhere"), true).is_err());
    }

    #[test]
    fn a_line_without_end_is_not_kept_for_ever() {
        let (mut stream, mut agent) = answered(&[b"HTTP/1.0 200 OK\r\n\r\n"]);
        let flood = std::thread::spawn(move || {
            let block = [b'x'; 64 * 1024];
            let mut said = 0_usize;
            while said < 4 * LINE && agent.write_all(&block).is_ok() {
                said += block.len();
            }
            said
        });
        let odd = loop {
            match stream.hear() {
                Heard::NothingYet => std::thread::yield_now(),
                other => break other,
            }
        };
        assert!(matches!(odd, Heard::Refused(Refused::Odd(_))), "{odd:?}");
        assert!(stream.heard.len() < 2 * LINE);
        drop(stream);
        assert!(flood.join().unwrap() < 4 * LINE);
    }
}
