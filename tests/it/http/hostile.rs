//! Clients that never read, never finish, send what is no request, or come by the thousand. What they cost is bounded, and no
//! guard waits for them.
//!
//! Where a limit is a time, the server runs in the test with a smaller one; nothing asserts how long anything takes.

use super::client::{Client, Reply, get, socket};
use crate::common::node::PATIENCE;
use crate::common::{Guard, Loop, Node, Tmp, disk};
use disk::MIB;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use volhold::gate::feed::{Feed, QUEUE, Snapshot, What};
use volhold::gate::http::{Landing, Limits, Options, Server, socket_path};
use volhold::gate::readers::Readers;
use volhold::model::{Status, Time};

/// A server of the test's own, fed by hand.
struct Own {
    _server: Server,
    feed: Feed,
    told: u64,
    socket: PathBuf,
    _tmp: Tmp,
}

const SHORT: Duration = Duration::from_millis(200);

impl Own {
    fn new(limits: Limits) -> Self {
        let tmp = Tmp::new();
        let feed = Feed::new(snapshot(0, vec![]));
        let run = tmp.path().to_owned();
        let socket = socket_path(&run);
        let landing = Landing { policy: "default-src 'none'", page: Arc::new(|document| format!("{document:?}")) };
        let metrics = Arc::new(|_: &Snapshot| Ok(String::new()));
        let options = Options { run, listen: None, readers: Readers::Everyone, limits, metrics, landing };
        let complain = Box::new(|problem: Option<String>| assert_eq!(problem, None));
        let server = Server::start(options, feed.listener(), complain).expect("a server");
        Own { _server: server, feed, told: 0, socket, _tmp: tmp }
    }

    /// One change of `size` bytes.
    fn tell(&mut self, size: usize) {
        self.told += 1;
        let warnings = vec!["x".repeat(size)];
        let what = What::Agent { config: vec![], warnings: warnings.clone() };
        self.feed.tell(snapshot(self.told, warnings), Some(what));
    }

    fn client(&self) -> Client {
        Client::to(&self.socket)
    }

    fn get(&self, path: &str) -> Reply {
        self.client().ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    /// Until there is a place for another client.
    #[track_caller]
    fn await_place(&self) {
        await_answer(|| self.get("/livez").status == 200);
    }
}

fn snapshot(number: u64, warnings: Vec<String>) -> Snapshot {
    let status = Status {
        api_version: "volhold/v1".into(),
        kind: "Status".into(),
        version: "0".into(),
        written_at: Time::now(),
        pid: std::process::id(),
        guards: vec![],
        config: vec![],
        warnings,
    };
    Snapshot { number, status, configured: vec![] }
}

/// Nothing can be awaited for that a server has let a client go, so it is asked again.
#[track_caller]
fn await_answer(mut yes: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !yes() {
        assert!(Instant::now() < until, "never");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_no_request_is_told_so_in_json() {
    let own = Own::new(Limits::default());
    for garbage in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET /livez HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /\u{7f} HTTP/1.1\r\n\r\n",
    ] {
        let reply = own.client().ask(garbage);
        assert_eq!((reply.status, &reply.json()["kind"]), (400, &"Error".into()), "{garbage:?}");
    }
    // Those that say nothing, or leave in the middle, are not worth an answer.
    for (words, answer) in [("", ""), ("GET /liv", "")] {
        let mut client = own.client();
        client.say(words.as_bytes()).expect("heard");
        client.finish_speaking();
        assert_eq!(String::from_utf8_lossy(&client.hear()), answer, "{words:?}");
    }
    // One that has asked and speaks no more still hears the answer.
    let mut client = own.client();
    client.say(b"GET /livez HTTP/1.0\r\n\r\n").expect("heard");
    client.finish_speaking();
    assert_eq!(Reply::of(&client.hear()).body, "ok");
    // A body is not read, and a second request on the same connection neither.
    let body = own.client().ask("GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nxxxx");
    assert_eq!((body.status, body.header("connection")), (200, "close"));
    let two = own.client().ask("GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(two.body, "ok");
}

#[test]
fn a_head_of_a_gigabyte_is_not_listened_to() {
    let own = Own::new(Limits::default());
    for first in ["GET /livez HTTP/1.1\r\nX: ", "GET /"] {
        let mut client = own.client();
        client.say(first.as_bytes()).expect("the beginning is heard");
        let block = vec![b'x'; 64 * 1024];
        let mut said = 0_usize;
        while said < 1 << 30 && client.say(&block).is_ok() {
            said += block.len();
        }
        // What the kernel takes for a server that does not read, and no more.
        assert!(said < 16 << 20, "{said} bytes were taken");
        let reply = Reply::of(&client.hear());
        assert_eq!((reply.status, &reply.json()["status"]), (431, &431.into()), "{first:?}");
    }
    let many = format!("GET /livez HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1_000));
    assert_eq!(own.client().ask(&many).status, 431);
}

#[test]
fn a_client_that_sends_a_byte_now_and_then_loses_its_place() {
    let limits = Limits { connections: 1, head_time: SHORT, ..Limits::default() };
    let own = Own::new(limits);
    let mut slow = own.client();
    let begun = "GET /livez HTTP/1.1\r\nX-Slow: ";
    slow.say(begun.as_bytes()).expect("heard");
    let turned_away = own.client().hear();
    let turned_away = Reply::of(&turned_away);
    assert_eq!((turned_away.status, &turned_away.json()["kind"]), (503, &"Error".into()), "there is one place");
    // It goes on for as long as it is listened to.
    await_answer(|| slow.say(b"x").is_err());
    assert_eq!(Reply::of(&slow.hear()).status, 408);
    own.await_place();
}

#[test]
fn a_client_that_never_reads_its_answer_loses_its_place() {
    let limits = Limits { connections: 2, stall: SHORT, time: 100 * PATIENCE, ..Limits::default() };
    let mut own = Own::new(limits);
    // More than any socket's buffer.
    own.tell(16 << 20);
    let mut deaf: Vec<Client> = (0..2).map(|_| own.client()).collect();
    for (client, path) in deaf.iter_mut().zip(["/v1/status", "/v1/events"]) {
        client.say(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("heard");
    }
    own.await_place();
    let mut reader = own.client();
    reader.say(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n").expect("heard");
    assert!(Reply::of(&reader.hear()).body.len() > 16 << 20, "one that reads hears it all");
}

#[test]
fn a_client_that_falls_behind_the_events_is_told_and_let_go() {
    let mut own = Own::new(Limits::default());
    let mut slow = Client::to(&own.socket).stream("/v1/events");
    assert_eq!(slow.line()["type"], "agent");
    // The teller is not held up by one who does not read: these calls return.
    let many = 4 * QUEUE as u64;
    for _ in 0..many {
        own.tell(64 * 1024);
    }
    let rest = slow.rest();
    let lines: Vec<serde_json::Value> =
        rest.lines().map(|line| serde_json::from_str(line).expect("whole lines, also the last one")).collect();
    let (last, before) = lines.split_last().expect("lines");
    assert_eq!([&last["type"], &last["kind"]], ["lost", "Event"], "{last}");
    let heard = before.len() as u64;
    assert!(heard < many && last["changes"].as_u64().expect("how many") >= 1, "{heard} of {many}, {last}");
    assert!(before.iter().all(|line| line["type"] == "agent"));
    own.await_place();
}

#[test]
fn a_thousand_clients_keep_no_gate_from_opening() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 32 * MIB));
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    let (soft, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).expect("a limit");
    let enough = soft.max(4096).min(hard);
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, enough, hard).expect("more descriptors");
    node.start();
    let mut crowd: Vec<Client> = (0..1000).map(|_| Client::to(&socket(&node))).collect();
    for (client, words) in
        crowd.iter_mut().zip(["GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n", "G", "\0"].iter().cycle())
    {
        // Most are turned away already.
        client.say(words.as_bytes()).ok();
    }
    node.await_open("main");
    let open_files = std::fs::read_dir(format!("/proc/{}/fd", node.agent_pid())).expect("its descriptors").count();
    assert!(open_files < 200, "{open_files} descriptors");
    assert_eq!(node.volhold(&["status"]).code, Some(0));
    assert_eq!(node.volhold(&["retry", "main"]).code, Some(0));
    drop(crowd);
    await_answer(|| get(&node, "/readyz").status == 200);
    let complaints = node.log().lines().filter(|line| line.contains("too many connections")).count();
    assert_eq!(complaints, 1, "once a minute, not a thousand times: {}", node.log());
}
