//! What a boot waits for: from the start of the agent to the open gate, on a healthy volume with real etcd data, and what an
//! idle agent takes afterwards. Run as root: `cargo bench --bench boot`.
//!
//! e2fsck is a part of the way that is not ours; its share is told apart by the agent's own timings.
#![allow(clippy::disallowed_methods, reason = "a benchmark makes what it measures")]

mod common;

use common::{Loop, VOLHOLD, asked_for, folder, median, run};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TURNS: usize = 15;

fn main() {
    if !asked_for() {
        return;
    }
    let dir = folder();
    let disks = [volume(dir.path(), "main"), volume(dir.path(), "events")];
    opens(&Node::new(dir.path(), &disks[..1]), "one guard");
    let node = Node::new(dir.path(), &disks);
    opens(&node, "two guards at once");

    let agent = node.agent();
    for guard in ["main", "events"] {
        assert!(node.volhold(&["wait", guard]).status().expect("it runs").success(), "{guard} opens");
    }
    print!("{}", run(VOLHOLD, &["--config", &node.config, "status", "--timings"]));
    idle(&agent);
    end(agent);
    node.reboot();

    let binary = std::fs::metadata(VOLHOLD).expect("the binary").len();
    println!("binary: {:.1} MiB", binary as f64 / f64::from(1 << 20));
}

/// From the start of the agent to the open gate of `main`, again and again.
fn opens(node: &Node, what: &str) {
    let (mut whole, mut ours, mut fsck) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        node.reboot();
        let started = Instant::now();
        let agent = node.agent();
        let waited = node.volhold(&["wait", "main"]).status().expect("it runs");
        let elapsed = started.elapsed().as_secs_f64() * 1e3;
        assert!(waited.success(), "a healthy volume opens");
        let steps = node.steps();
        let checked = steps.iter().filter(|(step, _)| step == "fsck").map(|(_, ms)| ms).sum::<f64>();
        whole.push(elapsed);
        fsck.push(checked);
        ours.push(elapsed - checked);
        end(agent);
    }
    println!(
        "agent started to `volhold wait` returned, {what}: {:.1} ms, of them fsck {:.1} ms, besides {:.1} ms",
        median(&mut whole),
        median(&mut fsck),
        median(&mut ours)
    );
    node.reboot();
}

/// Anonymous memory, and how often the agent's threads gave up the processor of their own in a quiet half minute.
fn idle(agent: &Child) {
    let before = wake_ups(agent.id());
    // There is no event for "nothing happened".
    std::thread::sleep(Duration::from_secs(30));
    // A thread that ended meanwhile is not counted, one that began is counted whole.
    let of_thread = |(tid, count): (&String, &u64)| count.saturating_sub(before.get(tid).copied().unwrap_or(0));
    let woken: u64 = wake_ups(agent.id()).iter().map(of_thread).sum();
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.id())).expect("its status");
    let anonymous = status.lines().find(|line| line.starts_with("RssAnon")).unwrap_or_default().to_owned();
    println!("agent idle with two guards: {anonymous}, {woken} wake-ups in 30 s ({:.2} a second)", woken as f64 / 30.0);
}

/// Voluntary switches of each thread.
fn wake_ups(pid: u32) -> BTreeMap<String, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let of_task = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        Some((task.file_name().to_string_lossy().into_owned(), line.split_whitespace().last()?.parse().ok()?))
    };
    tasks.flatten().filter_map(of_task).collect()
}

/// A volume with a data dir that a real etcd wrote.
fn volume(dir: &Path, name: &str) -> Loop {
    let image = dir.join(format!("{name}.img"));
    File::create(&image).and_then(|file| file.set_len(2 << 30)).expect("an image");
    let content = dir.join(format!("{name}.content"));
    let data = content.join("data").to_string_lossy().into_owned();
    std::fs::create_dir(&content).expect("a folder");
    let peer = format!("http://127.0.0.1:{}", if name == "main" { 23801 } else { 23803 });
    let client = format!("http://127.0.0.1:{}", if name == "main" { 23802 } else { 23804 });
    let mut etcd = Command::new("etcd")
        .args(["--name", name, "--data-dir", &data, "--listen-peer-urls", &peer, "--listen-client-urls", &client])
        .args(["--advertise-client-urls", &client, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("{name}={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd runs");
    for key in 0..1000 {
        let put = || {
            Command::new("etcdctl")
                .env("ETCDCTL_API", "3")
                .args(["--endpoints", &client, "put", &format!("/registry/pods/{key}"), &"x".repeat(1000)])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
        };
        // Until it serves; then each has to succeed.
        while !put().expect("etcdctl runs").success() {
            assert!(key == 0 && etcd.try_wait().expect("etcd").is_none(), "etcd serves");
        }
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(etcd.id() as i32), nix::sys::signal::Signal::SIGTERM)
        .expect("asked");
    etcd.wait().expect("etcd ends");
    run("mkfs.ext4", &["-q", "-d", &content.to_string_lossy(), &image.to_string_lossy()]);
    Loop::new(&image)
}

struct Node {
    config: String,
    dir: std::path::PathBuf,
}

impl Node {
    /// `main`, and `events` where there is a second disk.
    fn new(dir: &Path, disks: &[Loop]) -> Self {
        let at = dir.display();
        let mut text = format!("[paths]\nstate = \"{at}/state\"\nrun = \"{at}/run\"\n");
        for (name, disk) in ["main", "events"].into_iter().zip(disks) {
            text += &format!(
                "[[guard]]\nname = \"{name}\"\nmode = \"enforce\"\nprovider = \"local\"\ndevice = \"{}\"\n\
                 publish = \"{at}/at-{name}\"\ndata_dir = \"data\"\n",
                disk.0
            );
        }
        let config = dir.join("config.toml");
        std::fs::write(&config, text).expect("written");
        let state = dir.join("state");
        if !state.exists() {
            std::fs::create_dir(state).expect("a folder");
        }
        Node { config: config.to_string_lossy().into_owned(), dir: dir.to_owned() }
    }

    /// What a reboot leaves: the state dir and the volumes.
    fn reboot(&self) {
        let table = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        for guard in ["main", "events"] {
            let at = self.dir.join(format!("at-{guard}"));
            if table.lines().any(|line| line.split(' ').nth(1) == at.to_str()) {
                run("umount", &[&at.to_string_lossy()]);
            }
            if at.exists() {
                run("chattr", &["-i", &at.to_string_lossy()]);
                std::fs::remove_dir(&at).expect("the mountpoint is empty");
            }
        }
        let _ = std::fs::remove_dir_all(self.dir.join("run"));
        std::fs::create_dir(self.dir.join("run")).expect("a folder");
    }

    fn volhold(&self, args: &[&str]) -> Command {
        let mut command = Command::new(VOLHOLD);
        command.args(["--config", &self.config]).args(args).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn agent(&self) -> Child {
        self.volhold(&["run"]).env_remove("NOTIFY_SOCKET").spawn().expect("the agent runs")
    }

    /// The steps of `main` and what each took, in milliseconds.
    fn steps(&self) -> Vec<(String, f64)> {
        // Its exit code speaks of both guards; the other one may still be on its way.
        let mut status = self.volhold(&["status", "-o", "json"]);
        let text = status.stdout(Stdio::piped()).output().expect("it runs").stdout;
        let status: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let guards = status["guards"].as_array().expect("guards");
        let main = guards.iter().find(|guard| guard["name"] == "main").expect("main");
        let steps = main["timings"].as_array().expect("timings");
        let of =
            |step: &serde_json::Value| Some((step["step"].as_str()?.to_owned(), step["us"].as_u64()? as f64 / 1e3));
        steps.iter().filter_map(of).collect()
    }
}

fn end(mut agent: Child) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(agent.id() as i32), nix::sys::signal::Signal::SIGTERM)
        .expect("asked");
    agent.wait().expect("the agent ends");
}
