//! A node of the test's own: configuration, state and run folders, the agent on them, and what its verbs answer.
//!
//! Agent and test share one mount namespace; every node publishes below its own folder, so tests do not meet.

use super::manager::Manager;
use super::{Tmp, disk, tmp};
use notify::{RecursiveMode, Watcher};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before a test calls it stuck. Far above what is needed on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// One guard of a configuration.
#[derive(Debug, Clone)]
pub struct Guard {
    pub name: String,
    pub mode: &'static str,
    pub device: String,
    /// Lines of TOML that name the volume, in place of a device of this machine.
    pub source: Option<String>,
    pub fstype: &'static str,
    pub format: &'static str,
    pub fresh: &'static str,
    pub publish: PathBuf,
    /// Directories of the volume with their places, instead of all of it at `publish`.
    pub directories: Vec<(String, PathBuf)>,
    pub data_dir: Option<String>,
    pub mount_options: Option<String>,
    /// Lines of TOML as they are.
    pub more: String,
}

impl Guard {
    pub fn enforce(name: &str, device: impl AsRef<Path>, publish: &Path) -> Self {
        Guard {
            name: name.to_owned(),
            mode: "enforce",
            device: device.as_ref().to_string_lossy().into_owned(),
            source: None,
            fstype: "ext4",
            // The most dangerous policy: what is to be held must be held although formatting and fresh starts are allowed.
            format: "if-blank",
            fresh: "allow",
            publish: publish.to_owned(),
            directories: Vec::new(),
            data_dir: None,
            mount_options: None,
            more: String::new(),
        }
    }

    pub fn observe(name: &str, device: impl AsRef<Path>, publish: &Path) -> Self {
        Guard { mode: "observe", ..Guard::enforce(name, device, publish) }
    }

    pub fn fstype(mut self, fstype: &'static str) -> Self {
        self.fstype = fstype;
        self
    }

    pub fn directories(mut self, directories: &[(&str, PathBuf)]) -> Self {
        self.directories = directories.iter().map(|(from, at)| ((*from).to_owned(), at.clone())).collect();
        self
    }

    pub fn data_dir(mut self, dir: &str) -> Self {
        self.data_dir = Some(dir.to_owned());
        self
    }

    pub fn mount_options(mut self, options: &str) -> Self {
        self.mount_options = Some(options.to_owned());
        self
    }

    fn publish_toml(&self) -> String {
        if self.directories.is_empty() {
            return format!("\"{}\"", self.publish.display());
        }
        let entry = |(from, at): &(String, PathBuf)| format!("{{ from = \"{from}\", at = \"{}\" }}", at.display());
        format!("[{}]", self.directories.iter().map(entry).collect::<Vec<_>>().join(", "))
    }

    fn toml(&self) -> String {
        let local = || format!("provider = \"local\"\ndevice = \"{}\"", self.device);
        let mut text = format!(
            "[[guard]]\nname = \"{}\"\nmode = \"{}\"\n{}\nfstype = \"{}\"\n\
             format = \"{}\"\nfresh = \"{}\"\npublish = {}\n",
            self.name,
            self.mode,
            self.source.clone().unwrap_or_else(local),
            self.fstype,
            self.format,
            self.fresh,
            self.publish_toml()
        );
        if let Some(dir) = &self.data_dir {
            writeln!(text, "data_dir = \"{dir}\"").expect("a string grows");
        }
        if let Some(options) = &self.mount_options {
            writeln!(text, "mount_options = \"{options}\"").expect("a string grows");
        }
        text + &self.more
    }
}

/// What a verb answered.
#[derive(Debug)]
pub struct Answer {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("not one JSON document ({error}): {self:#?}"))
    }

    /// Reason codes at the top of the document.
    #[track_caller]
    pub fn codes(&self) -> Vec<String> {
        codes(&self.json()["reasons"])
    }
}

/// The `code` of each entry of a `reasons` list.
pub fn codes(reasons: &Value) -> Vec<String> {
    let list = reasons.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|reason| reason["code"].as_str()).map(str::to_owned).collect()
}

/// A node. Dropping it kills the agent and removes everything, seals and mounts too.
pub struct Node {
    // Before `tmp`: the agent must be gone when the folder is cleared.
    agent: Option<Child>,
    /// What systemd is to the agent. Outlives it: it keeps its claims.
    pub manager: Manager,
    /// Messages that earlier agents have sent.
    heard: usize,
    tmp: Tmp,
    /// Runs the agent and the verbs as this user instead of root.
    uid: Option<u32>,
    /// Where the next agent kills itself (only a build with fault points does).
    crash_at: Option<String>,
    /// What else the next agent has in its environment.
    agent_env: Vec<(&'static str, String)>,
}

impl Node {
    pub fn new() -> Self {
        let tmp = Tmp::new();
        for dir in ["state", "run"] {
            std::fs::create_dir(tmp.join(dir)).expect("the node's folders");
        }
        let manager = Manager::new(&tmp.join("notify"));
        Node { agent: None, manager, heard: 0, tmp, uid: None, crash_at: None, agent_env: Vec::new() }
    }

    /// From now on agent and verbs run as an unprivileged user, who owns this node's folders.
    pub fn become_nobody(&mut self) {
        const NOBODY: u32 = 65534;
        self.uid = Some(NOBODY);
        for name in ["", "state", "run", "notify"] {
            std::os::unix::fs::chown(self.path(name), Some(NOBODY), Some(NOBODY)).expect("chown");
        }
    }

    /// The agents that are started from now on kill themselves at this point; `None`: nowhere.
    pub fn crash_at(&mut self, point: Option<&str>) {
        self.crash_at = point.map(str::to_owned);
    }

    /// Sets a variable for the agents that are started from now on, or takes it away.
    pub fn agent_env(&mut self, name: &'static str, value: Option<&str>) {
        self.agent_env.retain(|(other, _)| *other != name);
        self.agent_env.extend(value.map(|value| (name, value.to_owned())));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.tmp.path().to_owned() } else { self.tmp.join(name) }
    }

    pub fn run_dir(&self) -> PathBuf {
        self.path("run")
    }

    pub fn ledger(&self, guard: &str) -> PathBuf {
        self.path("state/guards").join(guard).join("ledger")
    }

    pub fn ready_file(&self, guard: &str) -> PathBuf {
        self.path("run/open").join(guard)
    }

    /// Writes the configuration.
    pub fn configure(&self, guards: &[Guard]) {
        self.configure_with("", guards);
    }

    /// The same, with tables of TOML between the paths and the guards.
    pub fn configure_with(&self, tables: &str, guards: &[Guard]) {
        let mut text = format!(
            "[paths]\nstate = \"{}\"\nrun = \"{}\"\n\n",
            self.path("state").display(),
            self.path("run").display()
        );
        text.push_str(tables);
        text.push('\n');
        for guard in guards {
            text.push_str(&guard.toml());
            text.push('\n');
        }
        std::fs::write(self.path("config.toml"), text).expect("the configuration");
    }

    /// `before` is put in front of the program, such as a shell that becomes it.
    fn command(&self, before: &[&str]) -> Command {
        let mut binary = PathBuf::from(env!("CARGO_BIN_EXE_volhold"));
        let mut words: Vec<String> = before.iter().map(|&word| word.to_owned()).collect();
        if let Some(uid) = self.uid {
            // The build's folder may be closed to others: the unprivileged user gets a copy.
            let copy = self.path("volhold");
            if !copy.exists() {
                std::fs::copy(&binary, &copy).expect("a copy of the program");
            }
            binary = copy;
            words.extend(["setpriv".to_owned(), format!("--reuid={uid}"), format!("--regid={uid}")]);
            words.push("--clear-groups".to_owned());
        }
        words.push(binary.to_string_lossy().into_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("VOLHOLD_CONFIG", self.path("config.toml"));
        for variable in ["WATCHDOG_USEC", "WATCHDOG_PID", "NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"]
        {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs a verb to its end.
    #[track_caller]
    pub fn volhold(&self, args: &[&str]) -> Answer {
        self.volhold_with(args, &[])
    }

    /// The same with more in its environment.
    #[track_caller]
    pub fn volhold_with(&self, args: &[&str], env: &[(&str, &str)]) -> Answer {
        let output = self.command(&[]).args(args).envs(env.iter().copied()).output().expect("volhold runs");
        Answer {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// A `volhold wait` in the background, as a unit of etcd has it.
    #[track_caller]
    pub fn waiting(&self, guard: &str) -> Child {
        self.command(&[]).args(["wait", guard, "--timeout", "120s"]).spawn().expect("volhold wait")
    }

    /// A verb that goes on by itself, what it says in pipes.
    #[track_caller]
    pub fn in_background(&self, args: &[&str]) -> Child {
        let mut command = self.command(&[]);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("volhold runs")
    }

    /// Starts the agent and waits for its READY=1.
    #[track_caller]
    pub fn start(&mut self) {
        self.spawn();
        self.await_ready();
    }

    /// Starts the agent without waiting for anything.
    #[track_caller]
    pub fn spawn(&mut self) {
        assert!(self.agent.is_none(), "the agent runs already");
        self.heard = self.manager.heard();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("agent.log"))
            .expect("a file for the agent's log");
        let again = log.try_clone().expect("the same file");
        // The shell knows its own number before it becomes the agent, as sd_listen_fds(3) wants it.
        let mut command = self.command(&["sh", "-c", r#"export LISTEN_PID=$$; exec "$0" "$@""#]);
        command.arg("run").stdout(log).stderr(again);
        if let Some(point) = &self.crash_at {
            command.env("VOLHOLD_CRASH_AT", point);
        }
        command.envs(self.agent_env.iter().map(|(name, value)| (name, value)));
        self.manager.hand_over(&mut command);
        self.agent = Some(command.spawn().expect("volhold run"));
    }

    /// Starts another agent on the same folders beside the running one, and waits for its end. `None`: it did not end but took
    /// the node over (and was killed).
    #[track_caller]
    pub fn second_agent(&self) -> Option<Answer> {
        let read = |name: &str| std::fs::read_to_string(self.path(name)).unwrap_or_default();
        let file = |name: &str| std::fs::File::create(self.path(name)).expect("a file for the second agent's words");
        let mut command = self.command(&[]);
        command.arg("run").stdout(file("second.out")).stderr(file("second.err"));
        let mut agent = command.spawn().expect("volhold run");
        let mut end = None;
        await_change(&self.path(""), PATIENCE, || {
            end = agent.try_wait().expect("the second agent's state");
            end.is_some() || self.status_file().is_some_and(|status| status["pid"] == agent.id())
        });
        if end.is_none() {
            agent.kill().ok();
            agent.wait().ok();
        }
        end.map(|end| Answer { code: end.code(), stdout: read("second.out"), stderr: read("second.err") })
    }

    #[track_caller]
    pub fn await_ready(&mut self) {
        self.await_said("READY=1");
    }

    /// Waits until the agent tells its service manager something.
    #[track_caller]
    pub fn await_said(&mut self, wanted: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.manager.await_said(self.heard, wanted, Duration::from_millis(250)) {
            self.assert_agent_lives();
            let said = self.manager.said();
            assert!(Instant::now() < until, "the agent never said {wanted}: {said:?}\n{}", self.log());
        }
    }

    /// The same, of what it says from now on.
    #[track_caller]
    pub fn await_next_said(&mut self, wanted: &str) {
        self.heard = self.manager.heard();
        self.await_said(wanted);
    }

    /// `systemctl reload`: SIGHUP, and waits until the agent says that it has read its configuration.
    #[track_caller]
    pub fn reload(&mut self) {
        self.heard = self.manager.heard();
        let pid = nix::unistd::Pid::from_raw(self.agent_pid().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).expect("SIGHUP");
        self.await_said("RELOADING=1");
        self.await_said("READY=1");
    }

    #[track_caller]
    fn assert_agent_lives(&mut self) {
        let log = self.path("agent.log");
        if let Some(agent) = &mut self.agent
            && let Some(end) = agent.try_wait().expect("the agent's state")
        {
            panic!("the agent ended: {end}\n{}", std::fs::read_to_string(log).unwrap_or_default());
        }
    }

    /// The agent's log so far, its end at least.
    pub fn log(&self) -> String {
        let text = std::fs::read_to_string(self.path("agent.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Every file below the state and run folders, with what is in it as far as it is text.
    pub fn kept_files(&self) -> Vec<(String, String)> {
        let mut folders = vec![self.path("state"), self.path("run")];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(path),
                    Ok(kind) if kind.is_file() => {
                        let bytes = std::fs::read(&path).unwrap_or_default();
                        files.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
                    }
                    _other => {}
                }
            }
        }
        files
    }

    pub fn agent_pid(&self) -> u32 {
        self.agent.as_ref().map_or(0, Child::id)
    }

    /// SIGKILL to the agent, and waits for its end.
    #[track_caller]
    pub fn kill_agent(&mut self) {
        let mut agent = self.agent.take().expect("the agent runs");
        agent.kill().expect("SIGKILL");
        agent.wait().expect("the agent's end");
    }

    /// What a service manager does to an agent that has fallen silent: SIGABRT, and waits for its end.
    #[track_caller]
    pub fn abort_agent(&mut self) {
        let mut agent = self.agent.take().expect("the agent runs");
        let pid = nix::unistd::Pid::from_raw(agent.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGABRT).expect("SIGABRT");
        // One that was stopped takes it when it goes on.
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).expect("SIGCONT");
        agent.wait().expect("the agent's end");
    }

    /// Waits until the agent has died of SIGKILL, by its own hand.
    #[track_caller]
    pub fn await_killed(&mut self) {
        self.await_killed_nudged(|| {});
    }

    /// The same, nudging it once a second until then.
    #[track_caller]
    pub fn await_killed_nudged(&mut self, mut nudge: impl FnMut()) {
        let mut agent = self.agent.take().expect("the agent runs");
        let until = Instant::now() + PATIENCE;
        let mut nudged: Option<Instant> = None;
        let end = loop {
            if let Some(end) = agent.try_wait().expect("the agent's state") {
                break end;
            }
            if Instant::now() > until {
                agent.kill().ok();
                agent.wait().ok();
                panic!("the agent never came to {:?}\n{}", self.crash_at, self.log());
            }
            if nudged.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
                nudge();
                nudged = Some(Instant::now());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let signal = std::os::unix::process::ExitStatusExt::signal(&end);
        assert_eq!(signal, Some(libc::SIGKILL), "at {:?}: {end}\n{}", self.crash_at, self.log());
    }

    /// SIGTERM to the agent, as `systemctl restart` sends it; its exit code. What systemd keeps for it is kept.
    #[track_caller]
    pub fn stop_agent(&mut self) -> Option<i32> {
        let mut agent = self.agent.take().expect("the agent runs");
        let pid = nix::unistd::Pid::from_raw(agent.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("SIGTERM");
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(end) = agent.try_wait().expect("the agent's state") {
                return end.code();
            }
            if Instant::now() > until {
                agent.kill().ok();
                agent.wait().ok();
                panic!("the agent did not end on SIGTERM\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// As a reboot of the node does: agent gone, what it published unmounted, the run folder empty.
    #[track_caller]
    pub fn reboot(&mut self) {
        if self.agent.is_some() {
            self.kill_agent();
        }
        self.manager.empty_store();
        for at in tmp::mounts_below(self.tmp.path()).iter().rev() {
            tmp::unmount(at);
        }
        std::fs::remove_dir_all(self.run_dir()).expect("the run folder goes");
        std::fs::create_dir(self.run_dir()).expect("the run folder comes");
        self.await_let_go();
    }

    /// A container that another test starts in this moment has a copy of every mount for an instant, and keeps a device busy
    /// that was unmounted here. A machine that boots has none. That a copy is gone is no event that can be awaited.
    fn await_let_go(&self) {
        let Ok(config) = std::fs::read_to_string(self.path("config.toml")) else { return };
        let devices = config.lines().filter_map(|line| {
            // A guard of EC2 has its device in a comment.
            let line = line.strip_prefix("# ").unwrap_or(line);
            line.strip_prefix("device = \"/dev/")?.strip_suffix('"')
        });
        for device in devices {
            let node = Path::new("/dev").join(device);
            // One that is gone is nobody's; one that stays busy is for the test to find out.
            if node.exists() {
                disk::await_free(&node);
            }
        }
    }

    /// The status file as it is now, where there is one.
    pub fn status_file(&self) -> Option<Value> {
        let text = std::fs::read_to_string(self.path("run/status.json")).ok()?;
        // Written by rename: half a file would be a defect of its own.
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("status.json is broken ({error}): {text}")))
    }

    /// One guard of the status file.
    pub fn guard_status(&self, guard: &str) -> Option<Value> {
        let status = self.status_file()?;
        status["guards"].as_array()?.iter().find(|entry| entry["name"] == guard).cloned()
    }

    /// Waits until a guard's status is as wanted, awakened by every change of the run folder.
    #[track_caller]
    pub fn await_status(&mut self, guard: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let pid = self.agent_pid();
        let this_agent = |node: &Node| {
            let status = node.status_file()?;
            // What an earlier agent left behind is no answer of this one.
            if status["pid"].as_u64() != Some(u64::from(pid)) { None } else { node.guard_status(guard) }
        };
        let node = &*self;
        let mut found = None;
        let ended = await_change(&self.run_dir(), PATIENCE, || {
            found = this_agent(node).filter(|status| wanted(status));
            found.is_some() || !Path::new(&format!("/proc/{pid}")).exists()
        });
        if let Some(status) = found {
            return status;
        }
        self.assert_agent_lives();
        panic!(
            "guard {guard}: waited in vain for: {what} ({ended})\nstatus: {:#}\nlog:\n{}",
            self.guard_status(guard).unwrap_or_default(),
            self.log()
        );
    }

    /// Waits for a verdict of any kind.
    #[track_caller]
    pub fn await_verdict(&mut self, guard: &str) -> Value {
        self.await_status(guard, "a verdict", |status| status["gate"] == "open" || status["gate"] == "held")
    }

    #[track_caller]
    pub fn await_open(&mut self, guard: &str) -> Value {
        let status = self.await_verdict(guard);
        assert_eq!(status["gate"], "open", "{status:#}\n{}", self.log());
        // What is told comes after what is done.
        assert!(self.ready_file(guard).exists(), "open without a ready file");
        status
    }

    /// Waits for the hold, and checks all that a hold promises to the outside: the reason, the exit codes, no ready file.
    #[track_caller]
    pub fn await_held(&mut self, guard: &str, code: &str) -> Value {
        let status = self.await_verdict(guard);
        assert_eq!(status["gate"], "held", "{status:#}\n{}", self.log());
        let codes = codes(&status["reasons"]);
        assert!(codes.iter().any(|found| found == code), "held by {codes:?} instead of {code}: {status:#}");
        self.assert_closed(guard);
        let told = self.volhold(&["status", "-o", "json"]);
        assert_eq!(told.code, Some(3), "{told:#?}");
        let explained = self.volhold(&["explain", guard, "-o", "json"]);
        assert!(explained.codes().iter().any(|found| found == code), "explain does not name {code}: {explained:#?}");
        status
    }

    /// Neither a wait nor the ready file lets an etcd through.
    #[track_caller]
    pub fn assert_closed(&self, guard: &str) {
        let wait = self.volhold(&["wait", guard, "--timeout", "1s"]);
        assert!(matches!(wait.code, Some(3 | 75)), "a closed gate was passed: {wait:#?}");
        assert!(!self.ready_file(guard).exists(), "there is a ready file for a closed gate");
    }

    #[track_caller]
    pub fn gate_check(&self, guard: &str) -> Answer {
        self.volhold(&["gate", "check", guard])
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().ok();
            agent.wait().ok();
        }
        if std::thread::panicking() {
            eprintln!("--- the agent's log\n{}\n---", self.log());
        }
    }
}

/// Asks again after every change below `dir`, until yes or until patience ends.
pub fn await_change(dir: &Path, patience: Duration, mut yes: impl FnMut() -> bool) -> &'static str {
    let (send, changes) = std::sync::mpsc::channel();
    // What `yes` reads below the folder is an event too, and would make it ask for ever without a pause.
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if !event.is_ok_and(|event| event.kind.is_access()) {
            send.send(()).ok();
        }
    })
    .expect("inotify");
    watcher.watch(dir, RecursiveMode::Recursive).expect("the folder can be watched");
    let until = Instant::now() + patience;
    loop {
        if yes() {
            return "changed";
        }
        if Instant::now() > until {
            return "time out";
        }
        // Also without a change now and then: the end of a process is none in a folder.
        changes.recv_timeout(Duration::from_millis(200)).ok();
        while changes.try_recv().is_ok() {}
    }
}
