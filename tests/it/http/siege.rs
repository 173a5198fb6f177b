//! All that a client can do wrong at once, against a real agent that has decisions to make meanwhile: a thousand connections,
//! clients that never read, oversized and malformed requests without a pause, scrapes without one. What that costs is
//! bounded, and no verdict is another or waits for its end.

use super::client::{Client, Reply, get, socket};
use super::damaged;
use crate::common::node::PATIENCE;
use crate::common::{Guard, Loop, Node, Tmp, disk};
use disk::MIB;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Anonymous memory of a process, in KiB.
fn anonymous(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the agent's memory");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a line for it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count()
}

/// What is no request, or no decent one.
fn bad_requests() -> Vec<Vec<u8>> {
    let huge = "x".repeat(1 << 20);
    [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nno colon\r\n\r\n".to_owned(),
        format!("GET /{huge} HTTP/1.1\r\n\r\n"),
        format!("GET /metrics HTTP/1.1\r\nX: {huge}\r\n\r\n"),
        format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(50_000)),
        "POST /v1/status HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551615\r\n\r\nx".to_owned(),
        "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx".to_owned(),
        "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n".to_owned(),
        format!("{}\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(10_000)),
    ]
    .map(String::into_bytes)
    .to_vec()
}

/// Sends them in turn, reading of each answer as much as comes at once, until told to stop. How many were sent.
fn flood(socket: &Path, address: SocketAddr, stop: &AtomicBool, sent: &AtomicUsize) {
    let requests = bad_requests();
    for request in requests.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (unix, tcp) = (UnixStream::connect(socket), TcpStream::connect(address));
        let mut piece = [0; 512];
        // Whether it is heard is the agent's affair: most are cut off in the middle.
        if let Ok(mut stream) = unix {
            stream.set_write_timeout(Some(PATIENCE)).ok();
            stream.set_read_timeout(Some(PATIENCE)).ok();
            stream.write_all(request).and_then(|()| stream.read(&mut piece)).ok();
        }
        if let Ok(mut stream) = tcp {
            stream.set_write_timeout(Some(PATIENCE)).ok();
            stream.set_read_timeout(Some(PATIENCE)).ok();
            stream.write_all(request).and_then(|()| stream.read(&mut piece)).ok();
        }
        sent.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_siege_changes_no_decision_and_costs_a_bounded_sum() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (bad, good) = (damaged(&tmp, "bad"), Loop::new(&disk::sparse(&tmp.join("good"), 32 * MIB)));
    let late = Loop::new(&disk::sparse(&tmp.join("late"), 32 * MIB));
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number");
    let http = format!("[http]\nlisten = \"{free}\"\n");
    let mut node = Node::new();
    let mut guards = vec![
        Guard::enforce("bad", bad.node(), &node.path("bad")),
        Guard::enforce("good", good.node(), &node.path("good")).data_dir("data"),
    ];
    node.configure_with(&http, &guards);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(8192).min(hard), hard).expect("more descriptors");
    node.start();
    node.await_open("good");
    node.await_held("bad", "backup-superblock-found");
    for path in ["/", "/metrics", "/v1/status"] {
        assert_eq!(get(&node, path).status, 200);
    }
    let pid = node.agent_pid();
    let (before, files_before) = (anonymous(pid), open_files(pid));

    let (stop, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let path = socket(&node);
    std::thread::scope(|threads| {
        let _stops = StopAtEnd(&stop);
        for _ in 0..3 {
            threads.spawn(|| flood(&path, free, &stop, &sent));
        }
        // None of these reads a byte.
        let asked =
            ["/v1/events", "/metrics", "/", "/v1/status"].map(|path| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let mut deaf: Vec<Client> = (0..64).map(|_| Client::to(&path)).collect();
        let mut crowd: Vec<TcpStream> = (0..1000).filter_map(|_| TcpStream::connect(free).ok()).collect();
        for (client, words) in deaf.iter_mut().zip(asked.iter().cycle()) {
            client.say(words.as_bytes()).ok();
        }
        for (client, words) in crowd.iter_mut().zip(asked.iter().cycle()) {
            client.write_all(words.as_bytes()).ok();
        }
        assert!(crowd.len() > 900, "{} connections", crowd.len());

        // Decisions meanwhile: one that is made again, one that is new, one that a gate asks for.
        let decided = |node: &Node| node.guard_status("bad").expect("its status")["since"].clone();
        let since = decided(&node);
        assert_eq!(node.volhold(&["retry", "bad"]).code, Some(0));
        guards.push(Guard::enforce("late", late.node(), &node.path("late")).data_dir("data"));
        node.configure_with(&http, &guards);
        node.reload();
        node.await_open("late");
        node.await_held("bad", "backup-superblock-found");
        assert!(decided(&node).as_str() >= since.as_str());
        assert_eq!(node.volhold(&["wait", "late", "--timeout", "60s"]).code, Some(0));
        assert_eq!(node.volhold(&["gate", "check", "good"]).code, Some(0));
        assert_eq!(node.volhold(&["wait", "bad", "--timeout", "1s"]).code, Some(3));
        let files = open_files(pid);
        assert!(files < files_before + 64 + 32 + 64, "{files} descriptors, {files_before} before");
        let cost = anonymous(pid).saturating_sub(before);
        assert!(cost < 8 * 1024, "{cost} KiB more than {before} KiB while it lasts");
        drop((deaf, crowd));

        // Scrapes without a pause, and the flood goes on; some find no place, none finds anything but an answer.
        let mut told = 0;
        let until = std::time::Instant::now() + PATIENCE;
        while told < 200 {
            assert!(std::time::Instant::now() < until, "{told} scrapes");
            let mut scraper = Client::to_tcp(free);
            scraper.say(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("heard");
            let reply = Reply::of(&scraper.hear());
            match reply.status {
                200 => {
                    told += 1;
                    assert!(reply.body.contains("volhold_build_info") && reply.body.ends_with('\n'));
                }
                other => assert_eq!(other, 503),
            }
        }
    });
    assert!(sent.load(Ordering::Relaxed) > 20, "there was a flood");
    assert_eq!(node.agent_pid(), pid);
    let cost = anonymous(pid).saturating_sub(before);
    assert!(cost < 8 * 1024, "{cost} KiB more than {before} KiB afterwards");
    assert_eq!(get(&node, "/livez").status, 200);
    eprintln!("{} bad requests; {before} KiB before, {cost} KiB more after", sent.load(Ordering::Relaxed));
    let complaints = node.log().lines().filter(|line| line.contains("too many connections")).count();
    assert!(complaints <= 4, "{complaints} lines about it: {}", node.log());
}

/// A test that fails stops its threads too.
struct StopAtEnd<'s>(&'s AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
