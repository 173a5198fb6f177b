//! The verbs that stay and tell: `events -f` and `status --watch`, beside real agents that come, change their mind, die and
//! come back.

use crate::common::node::{PATIENCE, await_change};
use crate::common::{Guard, Loop, Node, Tmp, disk};
use disk::MIB;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A verb that goes on, and what it has said so far.
struct Teller {
    child: Child,
    /// Lines of standard output and of standard error, told apart.
    said: Receiver<(bool, String)>,
    all: Vec<(bool, String)>,
    /// Up to here its output and its errors were waited for.
    read: [usize; 2],
}

impl Teller {
    fn start(node: &Node, args: &[&str]) -> Self {
        let mut child = node.in_background(args);
        let (send, said) = channel();
        let out: Box<dyn Read + Send> = Box::new(child.stdout.take().expect("a pipe"));
        let err: Box<dyn Read + Send> = Box::new(child.stderr.take().expect("a pipe"));
        for (is_error, pipe) in [(false, out), (true, err)] {
            let send = send.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    send.send((is_error, line)).ok();
                }
            });
        }
        Teller { child, said, all: Vec::new(), read: [0; 2] }
    }

    /// Waits for a line that is wanted; what the same pipe brings before it may be any. Nothing tells how the lines of the two
    /// pipes lie to each other.
    #[track_caller]
    fn await_line(&mut self, error: bool, wanted: impl Fn(&str) -> bool) -> String {
        let from = self.read[usize::from(error)];
        loop {
            let news = self.all.iter().enumerate().skip(from);
            if let Some((at, (_, line))) = news.filter(|(_, (of, _))| *of == error).find(|(_, (_, line))| wanted(line))
            {
                self.read[usize::from(error)] = at + 1;
                return line.clone();
            }
            let Ok(line) = self.said.recv_timeout(PATIENCE) else { panic!("never: {:#?}", self.all) };
            self.all.push(line);
        }
    }

    #[track_caller]
    fn await_out(&mut self, part: &str) -> String {
        self.await_line(false, |line| line.contains(part))
    }

    #[track_caller]
    fn await_err(&mut self, part: &str) -> String {
        self.await_line(true, |line| line.contains(part))
    }

    /// Ctrl-C, and its exit code.
    #[track_caller]
    fn interrupt(&mut self) -> Option<i32> {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT).expect("SIGINT");
        self.child.wait().expect("its end").code()
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn damaged(tmp: &Tmp) -> Loop {
    let image = disk::sparse(&tmp.join("bad"), 160 * MIB);
    disk::mkfs_ext4(&image, None);
    disk::zero(&image, 0, 4096);
    Loop::new(&image)
}

/// A node with one held guard, `main`.
fn held(tmp: &Tmp) -> (Loop, Node, Guard) {
    let device = damaged(tmp);
    let mut node = Node::new();
    let guard = Guard::enforce("main", device.node(), &node.path("mnt"));
    node.configure(std::slice::from_ref(&guard));
    node.start();
    node.await_held("main", "backup-superblock-found");
    (device, node, guard)
}

#[test]
fn events_tell_what_is_so_and_end_or_go_on_with_what_changes() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, mut node, main) = held(&tmp);
    let once = node.volhold(&["events"]);
    let lines: Vec<&str> = once.stdout.lines().collect();
    assert_eq!((once.code, lines.len(), once.stderr.as_str()), (Some(0), 1, ""), "{once:#?}");
    assert!(lines[0].contains("Z  main: HELD; ") && lines[0].ends_with("[backup-superblock-found]"), "{lines:#?}");
    let documents = node.volhold(&["events", "-o", "json"]);
    let kinds: Vec<Value> =
        documents.stdout.lines().map(|line| serde_json::from_str(line).expect("a document a line")).collect();
    assert_eq!((kinds.len(), &kinds[0]["type"], &kinds[1]["guard"]["gate"]), (2, &"agent".into(), &"held".into()));
    assert!(kinds.iter().all(|document| document["kind"] == "Event" && document["apiVersion"] == "volhold/v1"));

    let mut all = Teller::start(&node, &["events", "-f"]);
    let mut one = Teller::start(&node, &["events", "--follow", "main", "-o", "json"]);
    all.await_out("main: HELD");
    one.await_out("\"main\"");
    node.configure(&[main.clone(), Guard::enforce("late", node.path("absent"), &node.path("late"))]);
    node.reload();
    all.await_out("late: waiting (discovering)");
    node.configure(std::slice::from_ref(&main));
    node.reload();
    all.await_out("late: is not configured any more");

    // It stays while the agent is gone, and says so once.
    node.kill_agent();
    all.await_err("volhold: the agent has ended the stream; waiting until it answers");
    node.configure(&[main, Guard::enforce("later", node.path("absent"), &node.path("late"))]);
    node.start();
    all.await_err("volhold: the agent answers again");
    all.await_out("later: waiting (discovering)");
    assert_eq!(all.interrupt(), Some(0));
    one.await_err("the agent answers again");
    one.await_out("\"main\"");
    assert_eq!(one.interrupt(), Some(0));
    let others: Vec<_> = one.all.iter().filter(|(error, line)| !error && !line.contains("main")).collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn events_without_an_agent_or_a_guard_of_that_name_say_what_is_missing() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = damaged(&tmp);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    let answer = node.volhold(&["events"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(75), ""), "{answer:#?}");
    assert!(answer.stderr.contains("does not answer") && answer.stderr.contains("volhold status"), "{answer:#?}");
    assert_eq!(node.volhold(&["events", "nobody"]).code, Some(78));
    // One that was there first hears of the agent that comes.
    let mut early = Teller::start(&node, &["events", "-f", "main"]);
    early.await_err("the agent does not answer; waiting until it answers");
    node.start();
    early.await_out("main: HELD");
    assert_eq!(node.stop_agent(), Some(0));
    early.await_err("the agent has ended the stream");
    assert_eq!(early.interrupt(), Some(0));
}

#[test]
fn a_reader_that_goes_away_ends_what_tells_although_nothing_happens() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, node, _) = held(&tmp);
    for args in [&["events", "-f"][..], &["status", "--watch"], &["status", "--watch", "-o", "json"]] {
        let mut child = node.in_background(args);
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        assert!(!line.is_empty(), "{args:?}");
        drop(out);
        let end = await_change(&node.path(""), PATIENCE, || child.try_wait().expect("its state").is_some());
        child.kill().expect("it may have ended");
        assert_eq!(end, "changed", "{args:?} waits for the next change");
        let ended = child.wait_with_output().expect("it ends");
        let wanted = if args[0] == "events" { 0 } else { 3 };
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), said.as_ref()), (Some(wanted), ""), "{args:?}");
    }
}

#[test]
fn a_watched_status_is_shown_again_at_every_change_and_outlives_the_agent() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, mut node, main) = held(&tmp);
    let mut pages = Teller::start(&node, &["status", "--watch"]);
    let mut documents = Teller::start(&node, &["status", "--watch", "-o", "json"]);
    pages.await_out("Next: volhold explain main");
    let first: Value = serde_json::from_str(&documents.await_out("main")).expect("a document a line");
    assert_eq!([&first["kind"], &first["agent"]["running"]], [&Value::from("Status"), &true.into()]);

    node.configure(&[main.clone(), Guard::enforce("late", node.path("absent"), &node.path("late"))]);
    node.reload();
    pages.await_line(false, |line| line.contains("late") && line.contains("discovering"));
    documents.await_out("late");
    node.kill_agent();
    pages.await_out("The agent is NOT running.");
    documents.await_out("\"running\":false");
    node.start();
    pages.await_out("agent running");
    let back: Value = serde_json::from_str(&documents.await_out("\"running\":true")).expect("a document a line");
    assert_eq!(back["agent"]["pid"], node.agent_pid());

    node.await_held("main", "backup-superblock-found");
    pages.await_out("Next: volhold explain main");
    for teller in [&mut pages, &mut documents] {
        assert_eq!(teller.interrupt(), Some(3), "as status ends");
    }
    for (_, line) in &pages.all {
        assert!(!line.contains('\x1b') && line.chars().count() <= 80, "{line:?}");
    }
}

#[test]
fn on_a_terminal_a_watched_status_is_drawn_over_and_the_terminal_given_back() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, mut node, main) = held(&tmp);
    let pid = node.path("pid");
    let line = format!(
        "stty cols 80 rows 40; echo $$ >{}; exec {} status --watch",
        pid.display(),
        env!("CARGO_BIN_EXE_volhold")
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    command.env("VOLHOLD_CONFIG", node.path("config.toml")).env("TERM", "xterm").env_remove("NO_COLOR");
    let mut script = command.stdout(Stdio::piped()).spawn().expect("script runs");
    let mut out = BufReader::new(script.stdout.take().expect("a pipe"));
    let mut drawn = String::new();
    let mut until = |wanted: &str| {
        let from = drawn.len();
        while !drawn[from..].contains(wanted) {
            assert!(out.read_line(&mut drawn).expect("text") > 0, "ended: {drawn:?}");
        }
    };
    until("Next: volhold explain main");
    node.configure(&[main, Guard::enforce("late", node.path("absent"), &node.path("late"))]);
    node.reload();
    until("late");
    let number = std::fs::read_to_string(&pid).expect("its number").trim().parse().expect("a number");
    kill(Pid::from_raw(number), Signal::SIGINT).expect("SIGINT");
    out.read_to_string(&mut drawn).expect("the rest");
    assert_eq!(script.wait().expect("its end").code(), Some(3));

    let pages: Vec<&str> = drawn.split("\x1b[H").collect();
    assert!(pages.len() >= 3 && pages[0] == "\x1b[?1049h", "{drawn:?}");
    assert!(pages[1].contains("Ctrl-C ends this.") && pages[1].contains("\x1b[1;31m"), "{drawn:?}");
    let (_, after) = drawn.rsplit_once("\x1b[?1049l").expect("the terminal's own screen comes back");
    assert!(after.contains("late") && after.contains("Next: volhold explain main"), "the last page stays: {after:?}");
    assert_eq!(drawn.matches("\x1b[?1049h").count(), 1);
    let plain = [
        "\x1b[K",
        "\x1b[J",
        "\x1b[1;31m",
        "\x1b[32m",
        "\x1b[33m",
        "\x1b[1m",
        "\x1b[0m",
        "\x1b[?1049h",
        "\x1b[?1049l",
        "\x1b[H",
        "\r",
    ]
    .iter()
    .fold(drawn.clone(), |text, code| text.replace(code, ""));
    assert!(plain.lines().all(|line| line.chars().count() <= 80 && !line.contains('\x1b')), "{plain:?}");
}
