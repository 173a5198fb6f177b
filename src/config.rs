//! The configuration, in three forms: as written (`written`: one layer, every value with its place), merged (`merge`: the
//! layers over one another) and validated ([`Config`], by `check`).
//!
//! The layers, later over earlier: the file; `conf.d/*.toml` beside it, sorted by name; `VOLHOLD_PATHS_*` and
//! `VOLHOLD_GUARD_NAME_KEY` in the environment; `--set KEY=VALUE`. Guards are merged by `name`: a later layer sets single keys
//! of a guard, or adds guards.
//!
//! Whatever is wrong is told at once, each mistake with file, line, column and the key's path. An unknown key is a mistake: a
//! misspelled `format = "never"` must not silently be something else.
//!
//! ```toml
//! [[guard]]
//! name = "main"
//! device = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"
//! publish = "/var/lib/etcd"
//! ```
//!
//! An empty file is valid: an agent without guards idles, which is what a package does between install and the first
//! guard. `config check` says so ([`Config::remarks`]).

mod change;
mod check;
mod kept;
pub mod keys;
mod merge;
mod outside;
mod place;
mod show;
mod written;

pub use change::{hold_back, removal_held_back};
pub use check::RUN as DEFAULT_RUN;
pub use kept::{Kept, KeptError, kept_text, parse_kept, parse_running, running_text};
pub use place::{Place, Problem};
pub use show::{device_words, json, toml};

use crate::model::{DeviceSpec, EtcdSource, FormatPolicy, Fstype, GuardName, Mode, Publish, SnapshotPolicy};
use merge::Merged;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use written::Written;

/// A validated configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[[guard]]`, one for each volume; names, devices and publish paths are distinct, no publish path lies in another.
    pub guards: Vec<GuardConfig>,
    /// `[paths]`
    pub paths: Paths,
    /// `[http]`
    pub http: Http,
    /// `[metrics]`
    pub metrics: Metrics,
}

/// `[paths]`: where volhold keeps what it writes. Absolute, neither in the other, neither in a guarded volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `state`, default `/var/lib/volhold`. Survives reboots, dies with the instance: ledgers, decisions.
    pub state: PathBuf,
    /// `run`, default `/run/volhold`. Dies with the boot: ready files, status, requests.
    pub run: PathBuf,
}

/// `[http]`: who may ask the agent over HTTP. The socket `<run>/volhold.sock` is always there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Http {
    /// `listen = "127.0.0.1:9441"`: a TCP address besides the socket. On loopback only: whoever reaches it reads everything,
    /// and nobody can be asked who he is. Not given: no TCP.
    pub listen: Option<SocketAddr>,
    /// `group`, by name or number: only root, the agent's own user and this group read the status. Not given: every user of
    /// this machine, as far as the run dir can be entered. Not together with `listen`, which would be a way around it.
    pub group: Option<String>,
}

/// `[metrics]`: for Prometheus, besides `/metrics` over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// `textfile_dir`: node_exporter's textfile directory, in which `volhold.prom` is kept. Absolute, on no guarded volume.
    /// Not given: no file.
    pub textfile_dir: Option<PathBuf>,
}

/// `[[guard]]`: one configured volume with its data dir and gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardConfig {
    /// `name`, needed. Names the gate: `volhold-gate@NAME.service`, `<run>/open/NAME`.
    pub name: GuardName,
    /// `mode = "observe" | "enforce"`, default `observe`: looks and reports, touches nothing.
    pub mode: Mode,
    /// With `provider = "local"`, the default: `device`, needed, an absolute path (a node, a link to one, or an image file),
    /// `UUID=…` or `LABEL=…`. With `provider = "ebs"`: `volume_id`, or `volume_tags`.
    pub device: DeviceSpec,
    /// `fstype = "ext4" | "xfs"`, default `ext4`: what `format` makes, and the only filesystem that is mounted.
    pub fstype: Fstype,
    /// `format = "never" | "if-blank"`, default `never`. `if-blank` needs a device named by path: one named by what is
    /// written on it can never be blank.
    pub format: FormatPolicy,
    /// `publish`, needed: where the whole volume is mounted, or a list of `{ from, at }`: which directories of it, and where.
    /// `at` is absolute and not `/`, `from` relative to the volume's root; none lies in another.
    pub publish: Publish,
    /// `data_dir`, relative to the volume's root (`.` is the root), within a published directory. Not given: the one that
    /// etcd-manager's `state` names, or the only one that is found.
    pub data_dir: Option<String>,
    /// `owner = "user:group"`, by name or number: owner of a directory that volhold creates for etcd. Not given: root.
    pub owner: Option<Owner>,
    /// `dir_mode = "0700"`, the default: mode of such a directory, octal. (`mode` is the guard's.)
    pub dir_mode: u32,
    /// `fresh = "allow" | "deny"`, default `deny`: may an etcd start on nothing?
    ///
    /// `deny`, because an empty etcd is the outage that volhold is there to prevent, and a person who sets up a new cluster is
    /// at hand to write one word, while one who comes to a wiped volume at night is not.
    pub fresh: bool,
    /// `member`: the name of this node's etcd member. Data of another is held.
    pub member: Option<String>,
    /// `peer_url`: the peer URL of this node's member, as the member list has it. Data without it is held.
    pub peer_url: Option<String>,
    /// `mount_options`: as for mount(8), one text with commas or a list of texts.
    pub mount_options: Vec<String>,
    /// `witness = "write" | "read"`, default `write`: with `ebs`, keep in tags of the volume what it held. They are read
    /// in any case.
    pub witness: bool,
    /// `snapshot = "off" | "best-effort" | "required"`, default `off`: with `ebs`, take a snapshot before a step that cannot
    /// be taken back.
    pub snapshot: SnapshotPolicy,
    /// `grow = "never" | "online"`, default `never`: let the filesystem have all of a volume that has become larger, while it
    /// is in use.
    pub grow: bool,
    /// `restart = "never" | "etcd-manager"`, default `never`: let kubelet start etcd-manager's container anew where it does not
    /// see the volume.
    pub restart: bool,
    /// `etcd`: the etcd that will open the data, by version, program or manifest. Not given: what is found.
    pub etcd: Option<EtcdSource>,
    /// `at_run_time = "tell" | "freeze" | "stop"`, default `tell`, and with `stop` the list `stop_units`: what is done when the
    /// data goes away, or becomes another's, under an open gate.
    pub at_run_time: AtRunTime,
}

/// What is done when the data goes away, or becomes another's, under an open gate. Nothing on disk is touched in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtRunTime {
    Tell,
    /// The cgroup of whatever has the data open: of a pod, its container's.
    Freeze,
    /// These units of systemd.
    Stop(Vec<String>),
}

impl AtRunTime {
    pub fn as_str(&self) -> &'static str {
        match self {
            AtRunTime::Tell => "tell",
            AtRunTime::Freeze => "freeze",
            AtRunTime::Stop(_) => "stop",
        }
    }
}

/// User and group that etcd runs as, by name or number, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub user: String,
    pub group: String,
}

/// The configuration cannot be used (exit code 78).
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The problems are in the order of the text, and not in the text of this error: [`ConfigError::lines`] prints them.
    #[error("{} in {path}", count(problems.len()))]
    Wrong { path: PathBuf, problems: Vec<Problem> },
}

fn count(mistakes: usize) -> String {
    if mistakes == 1 { "one mistake".to_owned() } else { format!("{mistakes} mistakes") }
}

impl ConfigError {
    /// One line for each mistake, `FILE:LINE:COLUMN: KEY: what is wrong`.
    pub fn lines(&self) -> Vec<String> {
        match self {
            ConfigError::Read { path, source } => vec![format!("{}: cannot be read: {source}", path.display())],
            ConfigError::Wrong { path: _, problems } => problems.iter().map(Problem::to_string).collect(),
        }
    }
}

/// Everything that a configuration is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// The file; `conf.d` lies beside it.
    pub path: PathBuf,
    /// Variables, of which those that begin with `VOLHOLD_` count.
    pub environment: Vec<(String, OsString)>,
    /// `KEY=VALUE` of each `--set`.
    pub set: Vec<String>,
}

/// A validated configuration, with where each value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    pub config: Config,
    /// By key: `paths.state`, `guard.main.device`. What is not in here is a default.
    pub origins: BTreeMap<String, Place>,
}

impl Sources {
    /// The file and its `conf.d`, nothing else.
    pub fn file(path: &Path) -> Self {
        Sources { path: path.to_owned(), environment: Vec::new(), set: Vec::new() }
    }

    /// With this process's environment and flags.
    pub fn of_process(path: &Path, set: &[String]) -> Self {
        let vars = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let environment = vars.filter(|(name, _)| name.starts_with("VOLHOLD_")).collect();
        Sources { path: path.to_owned(), environment, set: set.to_vec() }
    }

    /// The file, then `conf.d/*.toml` beside it, sorted by name. Names that begin with a dot are not meant to be seen.
    fn files(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let mut files = vec![self.path.clone()];
        let dir = self.path.with_file_name("conf.d");
        let failed = |source| ConfigError::Read { path: dir.clone(), source };
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
            Err(error) => return Err(failed(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let bytes = name.as_encoded_bytes();
            if bytes.ends_with(b".toml") && !bytes.starts_with(b".") {
                names.push(name);
            }
        }
        names.sort();
        files.extend(names.iter().map(|name| dir.join(name)));
        Ok(files)
    }

    /// Where the state dir may be while the configuration cannot be used: as far as the layers can be read, the last first;
    /// then the default.
    pub fn state_candidates(&self) -> Vec<PathBuf> {
        let files = self.files().unwrap_or_else(|_unreadable| vec![self.path.clone()]);
        let mut ignored = Vec::new();
        let texts = files.iter().filter_map(|path| Some((path, std::fs::read_to_string(path).ok()?)));
        let mut layers: Vec<Written> = texts.map(|(path, text)| written::read(path, &text, &mut ignored)).collect();
        layers.push(outside::environment(&self.environment, &[], &mut ignored));
        layers.push(outside::flags(&self.set, &mut ignored));
        let named = layers.iter().rev().filter_map(|layer| layer.tables.get("paths")?.get("state"));
        let mut candidates: Vec<PathBuf> = named
            .map(|state| Path::new(state.text()).components().collect::<PathBuf>())
            .filter(|state| state.is_absolute())
            .collect();
        candidates.push(check::STATE.into());
        candidates
    }
}

/// Reads, merges and validates. Besides the texts it looks where links lead, to tell whether two names are one device. All
/// mistakes are told, in the order of layers and texts.
pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let mut texts = Vec::new();
    for path in sources.files()? {
        match std::fs::read_to_string(&path) {
            Ok(text) => texts.push((path, text)),
            Err(source) => return Err(ConfigError::Read { path, source }),
        }
    }
    merged(&texts, sources).map_err(|problems| ConfigError::Wrong { path: sources.path.clone(), problems })
}

fn merged(texts: &[(PathBuf, String)], sources: &Sources) -> Result<Loaded, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut merged = Merged::default();
    let mut number = 0_usize;
    for (path, text) in texts {
        merged.lay(written::read(path, text, &mut problems), number, &mut problems);
        number = number.saturating_add(1);
    }
    // What an unreadable text would have said is not known: that others contradict or lack it is no mistake of theirs.
    let readable = problems.iter().all(|problem| !problem.key.is_empty());
    let from_environment = outside::environment(&sources.environment, &merged.names(), &mut problems);
    merged.lay(from_environment, number, &mut problems);
    merged.lay(outside::flags(&sources.set, &mut problems), number.saturating_add(1), &mut problems);
    let config = if readable { check::check(&merged, &mut problems) } else { None };
    let order = |place: &Place| match place {
        Place::File { path, line, column } => {
            (texts.iter().position(|(known, _)| known == path).unwrap_or(texts.len()), *line, *column)
        }
        Place::Environment { .. } | Place::Flag { .. } | Place::Default => (texts.len(), 0, 0),
    };
    problems.sort_by_key(|problem| order(&problem.place));
    match config {
        Some(config) if problems.is_empty() => Ok(Loaded { config, origins: origins(&merged) }),
        Some(_) | None => Err(problems),
    }
}

fn origins(merged: &Merged) -> BTreeMap<String, Place> {
    let mut origins = BTreeMap::new();
    for (table, values) in &merged.tables {
        for (name, value) in values {
            origins.insert(format!("{table}.{name}"), value.place.clone());
        }
    }
    for guard in &merged.guards {
        let Some(called) = guard.name() else { continue };
        for (name, value) in &guard.values {
            origins.insert(format!("guard.{}.{name}", called.text()), value.place.clone());
        }
    }
    origins
}

impl Config {
    /// The guard of this name.
    pub fn guard(&self, name: &GuardName) -> Option<&GuardConfig> {
        self.guards.iter().find(|guard| guard.name == *name)
    }

    /// What is valid but perhaps not meant, one sentence each, for `config check`.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.guards.is_empty() {
            remarks.push("no guard is configured: nothing is guarded".to_owned());
        }
        for guard in &self.guards {
            let name = &guard.name;
            if guard.mode == Mode::Observe && guard.format == FormatPolicy::IfBlank {
                remarks.push(format!("guard {name} only observes: `format` takes effect with mode = \"enforce\""));
            }
            if let DeviceSpec::Path(path) = &guard.device
                && moves_at_boot(path)
            {
                remarks.push(format!(
                    "guard {name}: {} may be another disk after the next boot; a name below /dev/disk/by-id stays",
                    path.display()
                ));
            }
            if guard.format == FormatPolicy::IfBlank && !guard.fresh {
                remarks.push(format!(
                    "guard {name} may be formatted, but no etcd may start on the empty filesystem: fresh = \"deny\""
                ));
            }
        }
        remarks
    }
}

/// `/dev/sdb`, `/dev/nvme1n1`, `/dev/xvdf`: named in the order in which the kernel met them.
fn moves_at_boot(path: &Path) -> bool {
    let name = path.strip_prefix("/dev").ok().and_then(Path::to_str).unwrap_or_default();
    ["sd", "nvme", "xvd", "vd", "loop"].iter().any(|kind| name.starts_with(kind)) && !name.contains('/')
}

#[cfg(test)]
mod tests;
