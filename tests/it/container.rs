//! A machine of its own for tests: a Debian root with a real systemd as process 1, in a container that boots in a second or
//! two. Loop devices of the test are handed in; what is written goes to a layer that is thrown away with it, and survives
//! [`Container::reboot`].
//!
//! It lacks udev's device links, NVMe and kernel modules: those are for a virtual machine.

/// The Debian root that all of them start from.
mod root;

pub use root::volume;

use crate::common::node::PATIENCE;
use crate::common::{Answer, Tmp};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What is run before nspawn, in a mount namespace of its own: a cgroup of its own below a cgroup2 that is where systemd looks
/// for it (whatever the host has there), and the layer over the root.
const SETUP: &str = r#"
set -e
[ -e /sys/fs/cgroup/cgroup.controllers ] || { umount -R /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; }
mkdir "/sys/fs/cgroup/$1"; echo $$ >"/sys/fs/cgroup/$1/cgroup.procs"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$3/upper,workdir=$3/work" "$3/root"
shift 3
exec "$@"
"#;

/// A booted container. Dropping it kills everything in it.
pub struct Container {
    name: String,
    tmp: Tmp,
    binds: Vec<String>,
    nspawn: Option<Child>,
    /// Its process 1, as this machine numbers it.
    init: u32,
}

impl Container {
    /// A container that is not booted yet; files are put in with [`Container::write`]. `/usr/bin/volhold` is the program under
    /// test, the units are those of `systemd/`.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("volhold-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let tmp = Tmp::new();
        for dir in ["upper", "work", "root"] {
            std::fs::create_dir(tmp.join(dir)).expect("the layer");
        }
        // The layer's top is the root: an unprivileged etcd must be able to pass it.
        set_mode(&tmp.join("upper"), 0o755);
        let binary = Path::new(env!("CARGO_BIN_EXE_volhold"));
        let folder = binary.parent().expect("a folder").display().to_string();
        let container =
            Container { name, tmp, binds: vec![format!("--bind-ro={folder}:/opt/built")], nspawn: None, init: 0 };
        container.link("/opt/built/volhold", "/usr/bin/volhold");
        // As the packages install them.
        for (from, to) in [
            ("", "/lib/systemd/system"),
            ("tmpfiles.d", "/usr/lib/tmpfiles.d"),
            ("udev", "/lib/udev/rules.d"),
            ("catalog", "/usr/lib/systemd/catalog"),
        ] {
            let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(from);
            for entry in std::fs::read_dir(from).expect("systemd/").flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let to = if name == "volhold-bypass" { "/usr/sbin" } else { to };
                if entry.path().is_file() {
                    let text = std::fs::read_to_string(entry.path()).expect("what is installed");
                    container.write(&format!("{to}/{name}"), &text);
                }
            }
        }
        container
    }

    /// A device of this machine that the container sees under the same name.
    pub fn device(&mut self, node: &Path) {
        self.binds.push(format!("--bind={}", node.display()));
    }

    /// Writes a file, before the first boot or between two. Folders are made; a script is made executable.
    pub fn write(&self, at: &str, text: &str) {
        let path = self.layer(at);
        std::fs::write(&path, text).expect("a file in the container");
        set_mode(&path, if text.starts_with("#!") { 0o755 } else { 0o644 });
    }

    /// A symbolic link, before the first boot or between two.
    pub fn link(&self, to: &str, at: &str) {
        std::os::unix::fs::symlink(to, self.layer(at)).expect("a link in the container");
    }

    /// The same where there is one already, also while it runs.
    #[track_caller]
    pub fn relink(&self, to: &str, at: &str) {
        if self.nspawn.is_some() {
            self.sh(&format!("ln -sfn {to} {at}"));
        } else {
            std::fs::remove_file(self.layer(at)).ok();
            self.link(to, at);
        }
    }

    /// Where a file of the container is written from outside. Folders that the root has keep the root's mode: only those that
    /// it lacks are made new.
    fn layer(&self, at: &str) -> PathBuf {
        let at = Path::new(at.strip_prefix('/').expect("an absolute path"));
        let (upper, mut real) = (self.tmp.join("upper"), PathBuf::new());
        for part in at.parent().into_iter().flat_map(Path::components) {
            real.push(part);
            let below = root::root().join(&real);
            // `/lib` is a link in the root: written through, not over.
            if let Ok(target) = std::fs::read_link(&below) {
                real = target;
            }
            let dir = upper.join(&real);
            if !dir.exists() {
                std::fs::create_dir_all(&dir).expect("a folder in the container");
                if let Ok(metadata) = root::root().join(&real).metadata() {
                    std::os::unix::fs::chown(&dir, Some(metadata.uid()), Some(metadata.gid())).expect("chown");
                    set_mode(&dir, metadata.mode());
                }
            }
        }
        upper.join(real).join(at.file_name().expect("a file name"))
    }

    /// Boots it. `basic.target` is reached when this returns; what is enabled may still be starting.
    #[track_caller]
    pub fn boot(&mut self) {
        assert!(self.nspawn.is_none(), "it is booted already");
        let console = std::fs::File::create(self.tmp.join("console")).expect("a file for the console");
        let again = console.try_clone().expect("the same file");
        let top = self.tmp.path().display().to_string();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", SETUP, "sh", &self.name]);
        command.arg(root::root()).arg(&top);
        // A test that is killed leaves nothing behind.
        command
            .args(["setpriv", "--pdeathsig=KILL", "systemd-nspawn", "--quiet", "--directory"])
            .arg(format!("{top}/root"));
        command.args(["--boot", "--register=no", "--keep-unit", "--link-journal=no", "--console=pipe"]);
        command.args(["--private-network", "--capability=all"]).arg(format!("--machine={}", self.name));
        command.args(&self.binds);
        command.env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1");
        // Its own filter knows no openat2 and no pidfd_getfd, which every machine has.
        command.env("SYSTEMD_SECCOMP", "0");
        command.stdin(Stdio::null()).stdout(console).stderr(again);
        self.nspawn = Some(command.spawn().expect("unshare, nspawn"));
        self.init = self.await_init();
        self.until("basic.target is reached", |container| container.state("basic.target") == "active");
    }

    /// Its process 1, once it is systemd.
    fn await_init(&mut self) -> u32 {
        let until = Instant::now() + PATIENCE;
        let mut candidates = Vec::new();
        loop {
            let nspawn = self.nspawn.as_mut().expect("just started");
            if let Some(end) = nspawn.try_wait().expect("its state") {
                panic!("the container did not boot: {end}\n{}", self.console());
            }
            candidates.clear();
            descendants(nspawn.id(), &mut candidates);
            let init = candidates.iter().find(|pid| {
                let of = |name| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
                let is_first = of("status").lines().any(|line| {
                    line.strip_prefix("NSpid:").is_some_and(|numbers| numbers.split_whitespace().last() == Some("1"))
                });
                is_first && of("comm").trim_end() == "systemd"
            });
            if let Some(init) = init {
                return *init;
            }
            assert!(Instant::now() < until, "no systemd comes up\n{}", self.console());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Shuts down as a machine does, and boots again with the same files. What is in memory is gone, `/run` too.
    #[track_caller]
    pub fn reboot(&mut self) {
        self.poweroff();
        self.boot();
    }

    /// Shuts down as a machine does, and waits for its end.
    #[track_caller]
    pub fn poweroff(&mut self) {
        self.run(&["systemctl", "poweroff"]);
        let mut nspawn = self.nspawn.take().expect("it is booted");
        let until = Instant::now() + PATIENCE;
        while nspawn.try_wait().expect("its state").is_none() {
            if Instant::now() > until {
                nspawn.kill().ok();
                nspawn.wait().ok();
                panic!("it does not shut down\n{}", self.console());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.clear_cgroup();
    }

    /// Runs a program in it and returns what it answered.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Answer {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--all", "--", "env", "--ignore-environment"]);
        command.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "timeout", "100"]).args(args).stdin(Stdio::null());
        let output = command.output().expect("nsenter");
        Answer {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a line of shell in it, which has to succeed, and returns what it printed.
    #[track_caller]
    pub fn sh(&self, line: &str) -> String {
        let answer = self.run(&["sh", "-c", line]);
        assert_eq!(answer.code, Some(0), "{line}: {answer:#?}\n{}", self.journal());
        answer.stdout.trim_end().to_owned()
    }

    /// Where a path of the running container is for this machine.
    pub fn outside(&self, at: &str) -> PathBuf {
        Path::new("/proc").join(self.init.to_string()).join("root").join(at.trim_start_matches('/'))
    }

    /// A property of a unit.
    #[track_caller]
    pub fn property(&self, unit: &str, property: &str) -> String {
        let answer = self.run(&["systemctl", "show", "--value", "--property", property, "--", unit]);
        answer.stdout.trim_end().to_owned()
    }

    /// `active`, `activating`, `failed`, …
    #[track_caller]
    pub fn state(&self, unit: &str) -> String {
        self.property(unit, "ActiveState")
    }

    /// Waits until it is so.
    #[track_caller]
    pub fn until(&self, what: &str, so: impl Fn(&Container) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !so(self) {
            assert!(Instant::now() < until, "waited in vain until {what}\n{}\n{}", self.journal(), self.console());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a unit is in this state.
    #[track_caller]
    pub fn until_state(&self, unit: &str, state: &str) {
        self.until(&format!("{unit} is {state}"), |container| container.state(unit) == state);
    }

    /// The journal's end, of this boot and the one before.
    pub fn journal(&self) -> String {
        let units = self.run(&["systemctl", "list-units", "--no-pager", "--all", "volhold*", "etcd*", "var-lib-etcd*"]);
        units.stdout + &self.run(&["journalctl", "--no-pager", "--lines=120", "--output=short-precise"]).stdout
    }

    /// What process 1 wrote to the console.
    pub fn console(&self) -> String {
        std::fs::read_to_string(self.tmp.join("console")).unwrap_or_default()
    }

    fn clear_cgroup(&self) {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for line in mounts.lines() {
            let mut words = line.split(' ');
            if let (Some(at), Some("cgroup2")) = (words.nth(1), words.next()) {
                remove_cgroup(&Path::new(at).join(&self.name));
            }
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Every process in it dies with its process 1, which outlives an nspawn that is killed. Where it never came up, what
        // nspawn has begun is what there is.
        if let Some(mut nspawn) = self.nspawn.take() {
            let mut within = Vec::new();
            descendants(nspawn.id(), &mut within);
            for pid in [self.init].into_iter().filter(|init| *init != 0).chain(within) {
                nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid.cast_signed()),
                    nix::sys::signal::Signal::SIGKILL,
                )
                .ok();
            }
            nspawn.kill().ok();
            nspawn.wait().ok();
        }
        let until = Instant::now() + Duration::from_secs(10);
        while self.init != 0 && Path::new(&format!("/proc/{}", self.init)).exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.clear_cgroup();
    }
}

fn remove_cgroup(path: &Path) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    std::fs::remove_dir(path).ok();
}

fn descendants(pid: u32, found: &mut Vec<u32>) {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_whitespace().filter_map(|word| word.parse().ok()) {
        found.push(child);
        descendants(child, found);
    }
}

fn set_mode(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("chmod");
}
