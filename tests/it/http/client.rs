//! A client that says what it likes and shows what it gets.

use crate::common::Node;
use crate::common::node::PATIENCE;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

pub fn socket(node: &Node) -> PathBuf {
    node.path("run/volhold.sock")
}

/// One GET on the node's socket.
#[track_caller]
pub fn get(node: &Node, path: &str) -> Reply {
    Client::to(&socket(node)).ask(&format!("GET {path} HTTP/1.1\r\nHost: volhold\r\n\r\n"))
}

pub enum Client {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Client {
    #[track_caller]
    pub fn to(socket: &Path) -> Self {
        Client::try_to(socket).expect("somebody listens on the socket")
    }

    pub fn try_to(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client::Unix(stream))
    }

    #[track_caller]
    pub fn to_tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("somebody listens on the port");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        Client::Tcp(stream)
    }

    /// Says something, without expecting an answer.
    pub fn say(&mut self, words: &[u8]) -> std::io::Result<()> {
        match self {
            Client::Unix(stream) => stream.write_all(words),
            Client::Tcp(stream) => stream.write_all(words),
        }
    }

    /// Says no more, but listens.
    #[track_caller]
    pub fn finish_speaking(&self) {
        match self {
            Client::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
            Client::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
        }
        .expect("half a connection");
    }

    /// All that comes until the other end is closed.
    #[track_caller]
    pub fn hear(&mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        let ended = match self {
            Client::Unix(stream) => stream.read_to_end(&mut heard),
            Client::Tcp(stream) => stream.read_to_end(&mut heard),
        };
        match ended {
            // It was closed while we were still speaking.
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}: {heard:?}"),
            Ok(_) | Err(_) => heard,
        }
    }

    #[track_caller]
    pub fn ask(mut self, words: &str) -> Reply {
        self.say(words.as_bytes()).expect("the question is heard");
        Reply::of(&self.hear())
    }

    /// A stream of lines. HTTP/1.0, which knows no chunks: lines come as they are.
    #[track_caller]
    pub fn stream(mut self, path: &str) -> Stream {
        self.say(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).expect("the question is heard");
        let Client::Unix(stream) = self else { panic!("streams are tested on the socket") };
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).expect("a head") > 0, "ended in its head: {head:?}");
        }
        let reply = Reply::of(head.as_bytes());
        Stream { status: reply.status, head: reply.head, lines }
    }
}

pub struct Stream {
    pub status: u16,
    head: Vec<(String, String)>,
    lines: BufReader<UnixStream>,
}

impl Stream {
    pub fn header(&self, name: &str) -> &str {
        header(&self.head, name)
    }

    #[track_caller]
    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("no JSON line ({error}): {line:?}"))
    }

    /// Everything until the end.
    #[track_caller]
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        match self.lines.read_to_string(&mut rest) {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}: {rest:?}"),
            Ok(_) | Err(_) => rest,
        }
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    head: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    #[track_caller]
    pub fn of(heard: &[u8]) -> Self {
        let text = String::from_utf8_lossy(heard).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|number| number.parse().ok());
        let pairs = lines.filter_map(|line| line.split_once(": "));
        let head: Vec<_> = pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let length = header(&head, "content-length");
        let whole = length.is_empty() || body.is_empty() || length == body.len().to_string();
        assert!(whole, "{length} bytes were promised: {text:?}");
        Reply { status: status.unwrap_or_else(|| panic!("no status: {text:?}")), head, body: body.to_owned() }
    }

    pub fn header(&self, name: &str) -> &str {
        header(&self.head, name)
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {self:#?}"))
    }
}

fn header<'h>(head: &'h [(String, String)], name: &str) -> &'h str {
    head.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// `/v1/status` over the agent's socket and what `other` asks meanwhile, of one moment: the agent may be at work still, and
/// tells every step of it.
pub fn status_beside<T>(node: &Node, other: impl Fn() -> T) -> (Value, T) {
    let ask = || get(node, "/v1/status").json();
    loop {
        let (before, between, after) = (ask(), other(), ask());
        if before == after {
            return (after, between);
        }
    }
}
