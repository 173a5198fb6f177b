//! A real etcd (Debian's), its keys and its death.

use super::output;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Who an etcd is and where it listens. The same for every start of one member: its id is made from its peer URL.
#[derive(Debug, Clone)]
pub struct Member {
    pub name: String,
    pub data_dir: PathBuf,
    pub client: u16,
    pub peer: u16,
    /// `--initial-cluster`; only itself unless set.
    pub initial_cluster: Option<String>,
    pub initial_state: &'static str,
    pub more: Vec<String>,
}

impl Member {
    pub fn new(name: &str, data_dir: &Path) -> Self {
        Member {
            name: name.to_owned(),
            data_dir: data_dir.to_owned(),
            client: free_port(),
            peer: free_port(),
            initial_cluster: None,
            initial_state: "new",
            more: Vec::new(),
        }
    }

    pub fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer)
    }

    pub fn client_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }

    /// As `--initial-cluster` names it.
    pub fn named_peer(&self) -> String {
        format!("{}={}", self.name, self.peer_url())
    }

    /// Starts it and waits until it serves clients.
    #[track_caller]
    pub fn start(&self) -> Etcd {
        let mut etcd = self.spawn();
        etcd.await_line("serves clients", |line| line.contains("serving client traffic insecurely"));
        etcd
    }

    /// Starts it without waiting.
    #[track_caller]
    pub fn spawn(&self) -> Etcd {
        let mut child = Command::new("etcd")
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(["--name", &self.name, "--logger", "zap", "--log-outputs", "stderr"])
            .args(["--listen-client-urls", &self.client_url(), "--advertise-client-urls", &self.client_url()])
            .args(["--listen-peer-urls", &self.peer_url(), "--initial-advertise-peer-urls", &self.peer_url()])
            .args(["--initial-cluster", &self.initial_cluster.clone().unwrap_or_else(|| self.named_peer())])
            .args(["--initial-cluster-state", self.initial_state])
            // Elections within a moment: what is tested is what etcd leaves on disk, not how patient it is.
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Debian's etcd-server");
        let stderr = child.stderr.take().expect("etcd's log");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            // Reads to the end, also when nobody listens any more: a full pipe would stop etcd.
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                send.send(line).ok();
            }
        });
        Etcd { member: self.clone(), child: Some(child), lines, log: Vec::new() }
    }
}

/// A running etcd; killed when dropped.
pub struct Etcd {
    pub member: Member,
    child: Option<Child>,
    lines: Receiver<String>,
    log: Vec<String>,
}

impl Etcd {
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Is this very process still there?
    pub fn lives(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Waits for a line of the log.
    #[track_caller]
    pub fn await_line(&mut self, what: &str, wanted: impl Fn(&str) -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = wanted(&line);
                    self.log.push(line);
                    if found {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("etcd: waited in vain for: {what}\n{}", self.tail()),
                Err(RecvTimeoutError::Disconnected) => panic!("etcd ended before: {what}\n{}", self.tail()),
            }
        }
    }

    fn tail(&self) -> String {
        self.log.iter().rev().take(15).rev().cloned().collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    pub fn ctl(&self, args: &[&str]) -> String {
        self.ctl_past(args, &TRANSIENT).unwrap_or_else(|said| panic!("etcdctl {args:?}: {said}\n{}", self.tail()))
    }

    /// Asks until the answer is another one than those that pass by themselves; `Err` is what etcdctl said then.
    fn ctl_past(&self, args: &[&str], passing: &[&str]) -> Result<String, String> {
        let endpoint = self.member.client_url();
        let mut all = vec!["ETCDCTL_API=3", "etcdctl", "--endpoints", &endpoint];
        all.extend(args);
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = output("env", &all);
            if answer.status.success() {
                return Ok(String::from_utf8_lossy(&answer.stdout).into_owned());
            }
            let said = String::from_utf8_lossy(&answer.stderr);
            if Instant::now() > until || !passing.iter().any(|text| said.contains(text)) {
                return Err(format!("{}: {said}", answer.status));
            }
        }
    }

    /// Adds a member. A cluster whose members have known each other for less than five seconds calls itself unhealthy and
    /// takes none (`HealthInterval`, etcdserver/server.go of 3.4), and has no other way to tell when it would.
    #[track_caller]
    pub fn add_member(&self, name: &str, peer_url: &str) {
        let passing: Vec<&str> = TRANSIENT.iter().copied().chain(["unhealthy cluster"]).collect();
        match self.ctl_past(&["member", "add", name, &format!("--peer-urls={peer_url}")], &passing) {
            Ok(_) => (),
            // Its answer came too late, and it was asked again.
            Err(said) if said.contains("Peer URLs already exists") => (),
            Err(said) => panic!("member add: {said}\n{}", self.tail()),
        }
    }

    #[track_caller]
    pub fn put(&self, key: &str, value: &str) {
        assert_eq!(self.ctl(&["put", key, value]).trim(), "OK");
    }

    /// The value, or an empty string where there is no such key.
    #[track_caller]
    pub fn get(&self, key: &str) -> String {
        self.ctl(&["get", key, "--print-value-only"]).trim().to_owned()
    }

    /// Writes without pause through the JSON gateway, counting what etcd acknowledged, until etcd is gone or `most` are
    /// written. What a living etcd refuses is asked again: a slow disk costs a leader its office.
    pub fn load(&self, prefix: &str, most: u64) -> std::thread::JoinHandle<u64> {
        self.load_counted(prefix, most, |_| {})
    }

    /// As [`Etcd::load`], telling each acknowledgement.
    pub fn load_counted(
        &self,
        prefix: &str,
        most: u64,
        mut told: impl FnMut(u64) + Send + 'static,
    ) -> std::thread::JoinHandle<u64> {
        let port = self.member.client;
        let prefix = prefix.to_owned();
        std::thread::spawn(move || {
            let mut done = 0;
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                stream.set_nodelay(true).ok();
                stream.set_read_timeout(Some(Duration::from_secs(20))).ok();
                let mut reader = BufReader::new(stream);
                let until = Instant::now() + Duration::from_secs(120);
                while done < most {
                    match put_once(&mut reader, &format!("{prefix}{done:08}")) {
                        Ok(true) => {
                            done += 1;
                            told(done);
                        }
                        Ok(false) if Instant::now() < until => (),
                        Ok(false) | Err(_) => break,
                    }
                }
            }
            done
        })
    }

    /// SIGKILL, and waits for the end.
    #[track_caller]
    pub fn kill(mut self) -> Member {
        let end = self.end(nix::sys::signal::Signal::SIGKILL);
        assert_eq!(end.signal(), Some(9), "etcd was to die by SIGKILL: {end}\n{}", self.tail());
        self.member.clone()
    }

    /// SIGTERM, and waits for the end.
    #[track_caller]
    pub fn stop(mut self) -> Member {
        self.end(nix::sys::signal::Signal::SIGTERM);
        self.member.clone()
    }

    #[track_caller]
    fn end(&mut self, signal: nix::sys::signal::Signal) -> std::process::ExitStatus {
        let child = self.child.as_mut().expect("etcd runs");
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            // An etcd that has only just begun to serve may lose a SIGTERM: it is sent again.
            nix::sys::signal::kill(pid, signal).expect("a signal to etcd");
            let again = Instant::now() + Duration::from_secs(5);
            while Instant::now() < again {
                if let Some(end) = child.try_wait().expect("etcd's state") {
                    return end;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            if Instant::now() > until {
                panic!("etcd does not end on {signal}\n{}", self.tail());
            }
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// What a cluster says for as long as it has no leader, or its disk is slow.
const TRANSIENT: [&str; 4] = ["request timed out", "leader changed", "no leader", "context deadline exceeded"];

/// One put over a kept connection to `/v3/kv/put`. `false`: etcd answered, and did not write.
fn put_once(reader: &mut BufReader<TcpStream>, key: &str) -> std::io::Result<bool> {
    let body = format!(r#"{{"key":"{}","value":"{}"}}"#, base64(key.as_bytes()), base64(&[b'v'; 300]));
    let request = format!("POST /v3/kv/put HTTP/1.1\r\nHost: e\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    reader.get_mut().write_all(request.as_bytes())?;
    let mut length = 0;
    let mut ok = false;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        ok |= line.starts_with("HTTP/1.1 200");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| std::io::ErrorKind::InvalidData)?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut answer = vec![0; length];
    reader.read_exact(&mut answer)?;
    Ok(ok)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, at| word << 8 | u32::from(group.get(at).copied().unwrap_or(0)));
        for digit in 0..4 {
            let shift = 18 - 6 * digit;
            text.push(if digit <= group.len() { char::from(DIGITS[(word >> shift & 63) as usize]) } else { '=' });
        }
    }
    text
}

/// A port that nobody listens on, and that nobody gets: below those that the kernel gives to connections
/// (`ip_local_port_range`), and to no other member of this process. A member that is dead for a while finds its own free.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Another test process begins elsewhere.
    let first = 12_000 + u16::try_from(std::process::id() % 40).expect("below 40") * 500;
    (0..500)
        .map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed) % 500)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port among 500")
}

/// A file's size and modification, to see that nobody touched it.
pub fn size_of(path: &Path) -> u64 {
    File::open(path).and_then(|file| file.metadata()).map_or(0, |facts| facts.len())
}
