//! HTTP on the agent's socket and on loopback: what is answered to whom, and what becomes of the socket over the agent's
//! life. Real agents, real sockets. (`hostile`: clients that mean no good.)

/// The page at `/`, and what a browser makes of it.
mod browser;
/// A client that says what it likes and shows what it gets.
pub mod client;
/// Clients that never read, never finish, or come by the thousand.
mod hostile;
/// All of it at once, beside decisions.
mod siege;

use crate::common::node::codes;
use crate::common::{Guard, Loop, Node, Tmp, disk, run};
use client::{Client, Reply, get, socket, status_beside};
use disk::MIB;
use serde_json::Value;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use volhold::gate::http::socket_path;

fn blank(tmp: &Tmp, name: &str) -> Loop {
    Loop::new(&disk::sparse(&tmp.join(name), 32 * MIB))
}

fn damaged(tmp: &Tmp, name: &str) -> Loop {
    let image = disk::sparse(&tmp.join(name), 160 * MIB);
    disk::mkfs_ext4(&image, None);
    disk::zero(&image, 0, 4096);
    Loop::new(&image)
}

/// A node with one open guard, `main`.
fn open(tmp: &Tmp, tables: &str) -> (Loop, Node) {
    let device = blank(tmp, "volume");
    let mut node = Node::new();
    let guard = Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data");
    node.configure_with(tables, &[guard]);
    node.start();
    node.await_open("main");
    (device, node)
}

#[test]
fn probes_and_status_are_answered_on_the_socket() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, node) = open(&tmp, "");
    let file = socket(&node).symlink_metadata().expect("the socket is there when the agent is ready");
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o666, "who may read is asked of the peer, not of the mode");

    let live = get(&node, "/livez");
    assert_eq!(
        (live.status, live.body.as_str(), live.header("content-type")),
        (200, "ok", "text/plain; charset=utf-8")
    );
    assert_eq!(get(&node, "/livez?verbose").body, "[+]ping ok\nlivez check passed\n");
    assert_eq!((get(&node, "/readyz").status, get(&node, "/readyz").body.as_str()), (200, "ok"));
    for path in ["/readyz?verbose", "/readyz?verbose=true", "/readyz?x=1&verbose"] {
        assert_eq!(get(&node, path).body, "[+]guard/main ok\nreadyz check passed\n", "{path}");
    }

    // The same document as the verb's, but for nothing.
    let status = get(&node, "/v1/status");
    assert_eq!((status.status, status.header("content-type")), (200, "application/json"));
    let (served, shown) = status_beside(&node, || node.volhold(&["status", "-o", "json"]).json());
    assert_eq!(served, shown);
    let guard = get(&node, "/v1/guards/main").json();
    assert_eq!((&guard["apiVersion"], &guard["kind"]), (&Value::from("volhold/v1"), &Value::from("GuardStatus")));
    assert_eq!(guard["fs_uuid"], status.json()["guards"][0]["fs_uuid"]);

    for path in ["/v1/guards/other", "/v1/guards/", "/v1/guards/main/", "//", "/v2", "/livez/", "/v1/guards/../status"]
    {
        let reply = get(&node, path);
        assert_eq!((reply.status, &reply.json()["kind"], &reply.json()["status"]), (404, &"Error".into(), &404.into()));
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let reply = Client::to(&socket(&node)).ask(&format!("{method} /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!((reply.status, reply.header("allow")), (405, "GET, HEAD"), "{method}");
        assert_eq!(reply.json()["kind"], "Error");
    }
    for path in ["/livez", "/v1/status", "/v1/events", "/nowhere"] {
        let head = Client::to(&socket(&node)).ask(&format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!((head.status, head.body.as_str()), (if path == "/nowhere" { 404 } else { 200 }, ""), "{path}");
    }
}

#[test]
fn a_held_guard_is_not_ready_and_says_why() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (good, bad) = (blank(&tmp, "good"), damaged(&tmp, "bad"));
    let mut node = Node::new();
    node.configure(&[
        Guard::enforce("main", good.node(), &node.path("main")).data_dir("data"),
        Guard::enforce("events", bad.node(), &node.path("events")),
    ]);
    node.start();
    node.await_open("main");
    node.await_held("events", "backup-superblock-found");
    let reply = get(&node, "/readyz");
    assert_eq!((reply.status, reply.header("content-type")), (503, "text/plain; charset=utf-8"));
    let lines: Vec<&str> = reply.body.lines().collect();
    assert!(lines[0].starts_with("[-]guard/events failed: held, backup-superblock-found: "), "{lines:#?}");
    assert_eq!(lines[1..], ["[+]guard/main ok", "readyz check failed"]);
    assert_eq!(get(&node, "/livez").status, 200, "a hold is no fault of the agent's");
}

#[test]
fn events_begin_with_what_is_so_and_go_on_with_what_changes() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let bad = damaged(&tmp, "volume");
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", bad.node(), &node.path("mnt"))]);
    node.start();
    node.await_held("main", "backup-superblock-found");
    let mut stream = Client::to(&socket(&node)).stream("/v1/events");
    assert_eq!((stream.status, stream.header("content-type")), (200, "application/x-ndjson"));
    let first = stream.line();
    assert_eq!([&first["kind"], &first["type"], &first["apiVersion"]], ["Event", "agent", "volhold/v1"]);
    let second = stream.line();
    assert_eq!([&second["type"], &second["guard"]["name"], &second["guard"]["gate"]], ["guard", "main", "held"]);

    assert_eq!(codes(&second["guard"]["reasons"])[0], "backup-superblock-found");

    let mut number = second["number"].as_u64().expect("a number");
    // Until the wanted one comes; the ones before it may be any.
    let mut await_event = |wanted: &dyn Fn(&Value) -> bool| {
        loop {
            let event = stream.line();
            assert!(event["number"].as_u64() > Some(number), "{event}");
            number = event["number"].as_u64().expect("a number");
            if wanted(&event) {
                return;
            }
        }
    };
    let main = Guard::enforce("main", bad.node(), &node.path("mnt"));
    node.configure(&[main.clone(), Guard::enforce("late", node.path("absent"), &node.path("late"))]);
    node.reload();
    await_event(&|event| event["guard"]["name"] == "late" && event["guard"]["state"] == "discovering");
    node.configure(std::slice::from_ref(&main));
    node.reload();
    await_event(&|event| event["type"] == "removed" && event["name"] == "late");
    node.configure_with("[paths]\n", &[main]);
    node.reload();
    await_event(&|event| {
        event["type"] == "agent" && event["config"][0].as_str().is_some_and(|it| it.contains("config.toml"))
    });
    node.kill_agent();
    assert_eq!(stream.rest(), "", "the stream ends with the agent");
}

#[test]
fn the_socket_of_a_dead_agent_is_taken_over_and_goes_at_a_clean_stop() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, mut node) = open(&tmp, "");
    node.kill_agent();
    let stale = socket(&node).symlink_metadata().expect("it stays behind").ino();
    let agents_voice = Client::try_to(&socket(&node));
    assert!(agents_voice.is_err(), "nobody listens");
    node.start();
    assert_ne!(socket(&node).symlink_metadata().expect("a new one").ino(), stale);
    assert_eq!(get(&node, "/livez").status, 200);
    assert_eq!(node.stop_agent(), Some(0), "{}", node.log());
    assert!(!socket(&node).exists());
    assert!(node.ready_file("main").exists(), "the gate does not depend on it");
}

#[test]
fn what_is_somebody_elses_stays_where_the_socket_would_be() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp, "volume");
    let mut node = Node::new();
    let path = socket(&node);
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);

    std::fs::write(&path, "precious").expect("a file");
    node.start();
    node.await_open("main");
    assert_eq!(std::fs::read_to_string(&path).expect("still a file"), "precious");
    let status = node.volhold(&["status"]);
    assert_eq!(status.code, Some(0), "it holds nothing");
    assert!(status.stdout.contains("warning") && status.stdout.contains("is no socket: it stays"), "{status:#?}");
    assert_eq!(node.stop_agent(), Some(0));
    assert!(path.exists(), "nor is it taken away at the end");

    std::fs::remove_file(&path).expect("the file goes");
    let other = UnixListener::bind(&path).expect("another program listens");
    let inode = path.symlink_metadata().expect("its socket").ino();
    node.start();
    node.await_open("main");
    assert_eq!(path.symlink_metadata().expect("its socket").ino(), inode);
    assert!(node.volhold(&["status"]).stdout.contains("somebody else listens"));
    assert_eq!(node.stop_agent(), Some(0));
    assert_eq!(path.symlink_metadata().expect("its socket").ino(), inode);
    drop(other);
}

#[test]
fn loopback_answers_only_where_it_is_configured() {
    crate::needs_root!();
    let tmp = Tmp::new();
    // Free at this moment; taken by somebody else before the agent comes to it, the test says so.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number");
    let (_device, mut node) = open(&tmp, &format!("[http]\nlisten = \"{free}\"\n"));
    let reply = Client::to_tcp(free).ask("GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((reply.status, reply.body.as_str()), (200, "[+]guard/main ok\nreadyz check passed\n"), "{}", node.log());
    let (by_socket, by_port) =
        status_beside(&node, || Client::to_tcp(free).ask("GET /v1/status HTTP/1.0\r\n\r\n").json());
    assert_eq!(by_port, by_socket);
    let listening = run("ss", &["-Hltn", &format!("sport = :{}", free.port())]);
    assert_eq!(listening.lines().count(), 1, "{listening}");

    // A port that is taken is a warning, and no gate's business.
    assert_eq!(node.stop_agent(), Some(0));
    let _taken = std::net::TcpListener::bind(free).expect("the port is free again");
    node.start();
    node.await_open("main");
    assert_eq!(get(&node, "/readyz").status, 200);
    let warnings = get(&node, "/v1/status").json()["warnings"].to_string();
    assert!(warnings.contains(&format!("cannot listen on {free}")), "{warnings}");
    assert_eq!(node.stop_agent(), Some(0));
    node.configure(&[]);
    for wrong in ["0.0.0.0:9441", "[::]:9441", "10.0.0.1:9441", "localhost:9441", "127.0.0.1", "127.0.0.1:0"] {
        let check = node.volhold(&["--set", &format!("http.listen={wrong}"), "config", "check"]);
        assert_eq!(check.code, Some(78), "{wrong}: {check:#?}");
        assert!(check.stderr.contains("http.listen: "), "{wrong}: {check:#?}");
    }
    for right in ["127.0.0.1:9441", "127.8.0.1:1", "[::1]:65535"] {
        let check = node.volhold(&["--set", &format!("http.listen={right}"), "config", "check"]);
        assert_eq!(check.code, Some(0), "{right}: {check:#?}");
    }
}

/// Runs a small client as somebody else, and returns what it was answered.
fn as_user(node: &Node, user: &[&str], path: &str) -> Reply {
    const CLIENT: &str = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        s.sendall(('GET ' + sys.argv[2] + ' HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n').encode())\n\
        while True:\n  b = s.recv(65536)\n  if not b: break\n  sys.stdout.buffer.write(b)\n";
    let socket = socket(node);
    let mut words = user.to_vec();
    words.extend(["/usr/bin/python3", "-c", CLIENT, socket.to_str().expect("a path"), path]);
    Reply::of(run("setpriv", &words).as_bytes())
}

#[test]
fn with_a_group_only_root_and_its_members_read_more_than_yes_or_no() {
    crate::needs_root!();
    const GROUP: &str = "4711";
    let nobody: &[&str] = &["--reuid=65534", "--regid=65534", "--clear-groups"];
    let member: &[&str] = &["--reuid=65534", "--regid=65534", "--groups=12,4711"];
    let by_first_group: &[&str] = &["--reuid=65534", "--regid=4711", "--clear-groups"];
    let tmp = Tmp::new();
    let bad = damaged(&tmp, "volume");
    let mut node = Node::new();
    std::fs::set_permissions(node.path(""), std::fs::Permissions::from_mode(0o755)).expect("others come in");
    let guards = [Guard::enforce("main", bad.node(), &node.path("mnt"))];
    node.configure_with(&format!("[http]\ngroup = \"{GROUP}\"\n"), &guards);
    node.start();
    node.await_held("main", "backup-superblock-found");

    for path in ["/", "/v1/status", "/v1/guards/main", "/v1/guards/none", "/v1/events"] {
        let reply = as_user(&node, nobody, path);
        assert_eq!((reply.status, &reply.json()["kind"]), (403, &"Error".into()), "{path}");
    }
    let log = node.log();
    let denied = log.lines().filter(|line| line.contains("may not read the status")).collect::<Vec<_>>();
    assert!(denied.len() == 1 && denied[0].contains("of user 65534"), "once, not at every try: {log}");
    assert_eq!(as_user(&node, nobody, "/livez").status, 200);
    let ready = as_user(&node, nobody, "/readyz");
    assert_eq!(ready.body, "[-]guard/main failed: reason withheld\nreadyz check failed\n");
    for member in [member, by_first_group] {
        assert_eq!(as_user(&node, member, "/v1/status").status, 200, "{member:?}");
        assert!(as_user(&node, member, "/readyz").body.contains("backup-superblock-found"));
    }
    assert_eq!(get(&node, "/v1/status").status, 200, "root");
    let file = node.path("run/status.json").metadata().expect("the status file");
    assert_eq!((file.permissions().mode() & 0o777, file.gid()), (0o640, 4711), "the file is for the same readers");

    // Without a group everybody reads, as everybody reads the file.
    assert_eq!(node.stop_agent(), Some(0));
    node.configure(&guards);
    node.start();
    assert_eq!(as_user(&node, nobody, "/v1/status").status, 200);
    assert_eq!(node.path("run/status.json").metadata().expect("the file").permissions().mode() & 0o777, 0o644);

    // A group that is not there lets nobody in but root, and holds nothing.
    assert_eq!(node.stop_agent(), Some(0));
    node.configure_with("[http]\ngroup = \"no-such-group\"\n", &guards);
    node.start();
    assert_eq!(as_user(&node, member, "/v1/status").status, 403);
    assert!(node.volhold(&["status"]).stdout.contains("there is no group `no-such-group`"));
    let both = node.volhold(&["--set", "http.listen=127.0.0.1:9441", "config", "check"]);
    assert!(both.code == Some(78) && both.stderr.contains("together with `group`"), "{both:#?}");
    assert_eq!(socket_path(&node.run_dir()), socket(&node));
}
