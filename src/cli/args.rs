//! What can be typed. Types only; the help texts are the product's words.

use crate::install::Preset;
use crate::model::{EtcdVersion, GuardName};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Where the configuration is unless said otherwise.
pub const DEFAULT_CONFIG: &str = "/etc/volhold/config.toml";

#[derive(Debug, Parser)]
#[command(
    name = "volhold",
    version,
    about = "Guards the volume under etcd: examines it, mounts it, and keeps etcd from starting until all of it is right",
    after_help = "Exit codes: 0 ok, 1 error, 2 usage, 3 held, 4 refused, 5 nothing matches, 75 try later, \
                  77 no permission, 78 bad configuration.\nFirst look: volhold status. Then: volhold explain NAME. More: volhold help.",
    max_term_width = 80,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// The configuration file
    #[arg(long, global = true, env = "VOLHOLD_CONFIG", default_value = DEFAULT_CONFIG, value_name = "PATH")]
    pub config: PathBuf,

    /// Set one key of the configuration, such as guard.main.mode=observe
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// How to print
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table, value_name = "FORM")]
    pub output: Output,

    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For a person
    Table,
    /// One JSON document, stable for scripts
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show every guard: is its gate open, and if not, why
    Status {
        /// Show how long each step of the last way from the device to the verdict took
        #[arg(long)]
        timings: bool,
        /// Only the names of held guards, one a line. Exit code 3 where there is one, 0 where there is none, whatever else
        /// waits: asked before volhold is removed, which would let held volumes go
        #[arg(long, conflicts_with = "timings")]
        held: bool,
        /// Stay, and show it again whenever something changes, until Ctrl-C. Exit code: that of what was shown last
        #[arg(long, conflicts_with = "held")]
        watch: bool,
    },
    /// Show what the agent tells: the state of every guard, and with -f each change, one a line
    ///
    /// With -f it goes on until Ctrl-C, also while the agent is gone: it says so on standard error, and goes on when the agent
    /// is back. `-o json` prints the lines of /v1/events. What was decided before is in `volhold history`. Exit code 0; 75
    /// where no agent answers and -f is not given; 78 where no such guard is configured.
    Events {
        /// Only this guard
        name: Option<GuardName>,
        /// Go on with each change
        #[arg(short, long)]
        follow: bool,
    },
    /// Print all that is known of a guard as one JSON document, for a ticket. Changes nothing
    ///
    /// Status, decision with its evidence, fingerprints, history. No bytes of the volume's content, no key, no value and no
    /// credential go along.
    Report { name: GuardName },
    /// Explain the last decision about a guard: what was found, what was not done, what to choose
    Explain(ExplainArgs),
    /// Say step by step what the next look at a guard would do, and what it would come to. Changes nothing
    ///
    /// What only looks is really done, with the agent's own rules; what writes is listed. Where only doing it would tell, the
    /// plan ends and says so. A guard that observes is planned as if it enforced; an open one also for the next boot. Exit
    /// code 0: it would open; 3: it would be held; 75: that is not known before it is done.
    #[command(args_conflicts_with_subcommands = true)]
    Plan {
        #[command(subcommand)]
        way: Option<PlanVerb>,
        /// Only this guard
        name: Option<GuardName>,
    },
    /// Look at a device or image as bytes, at every etcd data dir below a directory, or at a file of etcd. Changes nothing
    ///
    /// A backend (`db`), a saved snapshot, a file of the log or a raft snapshot is read in full, and told as what it is.
    Inspect {
        /// A block device, an image file, a directory, or a file of etcd
        #[arg(value_name = "DEVICE-OR-IMAGE-OR-DIR")]
        target: PathBuf,
    },
    /// Read one etcd data dir: would etcd start on it, and lose nothing? Changes nothing
    ///
    /// Exit code 0 only where etcd would start and lose nothing. Works as any user who may read the files, and beside an etcd
    /// that runs: no lock is taken.
    Verify {
        /// The data dir: the directory that holds `member`
        dir: PathBuf,
        /// Read every page, record and file, and compute the hashes that etcd itself would answer
        #[arg(long)]
        deep: bool,
        /// What would an etcd of this version do? Such as 3.5.16, or 3.5 for the newest of its line. Reads everything
        #[arg(long, value_name = "VERSION")]
        for_version: Option<EtcdVersion>,
    },
    /// Compare data dirs: the same cluster, the same history, which one is ahead. Changes nothing
    ///
    /// Exit code 0 where all are of one cluster and say the same at the highest revision that all have, 4 where not.
    Compare {
        /// Two data dirs or more
        #[arg(required = true, num_args = 2.., value_name = "DIR")]
        dirs: Vec<PathBuf>,
    },
    /// Show the etcd volumes of all masters of an account and region, and which one stands out. Asks EC2, changes nothing
    ///
    /// Told by the tags of kops. Needs ec2:DescribeVolumes, from any machine. Exit code 0 where none stands out, 4 where one
    /// does, 5 where there is none at all.
    Fleet {
        /// Only this cluster: the value of the tag KubernetesCluster
        #[arg(long, value_name = "NAME")]
        cluster: Option<String>,
        /// The region; else that of the environment, or this machine's
        #[arg(long, value_name = "REGION")]
        region: Option<String>,
    },
    /// Look at etcd-manager's state file, or set what it says
    State {
        #[command(subcommand)]
        verb: StateVerb,
    },
    /// List what was decided and done on this node, oldest first
    History {
        /// Only this guard
        name: Option<GuardName>,
    },
    /// Wait until a gate is open
    ///
    /// While the guard is held it goes on waiting: a person may answer the hold. Exit code 0 open; after the given time 3
    /// held, 75 not decided; 78 at once where no such guard is configured.
    Wait {
        name: GuardName,
        /// At most so long, such as 90s or 10m; without it, for ever
        #[arg(long, value_name = "TIME", value_parser = duration)]
        timeout: Option<Duration>,
        /// Until it is decided: open or held, exit code 0 either way
        #[arg(long)]
        decided: bool,
    },
    /// Build the gate into this machine, and let the guard enforce
    ///
    /// Writes the drop-ins that make etcd wait, after every layer was tested. Refuses while the guard would hold, and while
    /// anything else mounts the volume. Writing again what is there changes nothing.
    Enable(EnableArgs),
    /// Take away what enable wrote, and say what is not protected any more
    Disable {
        name: GuardName,
        /// In the image below this directory; nothing is done to this machine
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
    },
    /// Test every layer, instead of reading about it: one line each, with what to do
    Doctor {
        /// Only this guard, and the machine
        name: Option<GuardName>,
    },
    /// Accept what is there, after looking: the answer to a hold that doubts an identity
    Adopt(AdoptArgs),
    /// Let go of a held device for a while, so that your own tools can open it
    Release {
        name: GuardName,
        /// For how long, such as 30m or 1h
        #[arg(long = "for", value_name = "TIME", value_parser = with_unit)]
        for_: Duration,
        /// The volume id, typed again: consent without a terminal
        #[arg(long, value_name = "ID")]
        confirm: Option<String>,
    },
    /// Put something on a held volume out of the way, without deleting it; list what was, or give it back
    ///
    /// Renames it into .volhold/quarantine on the same volume, under a dated name and with a manifest.
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Quarantine(QuarantineArgs),
    /// Go back to the old data dir, where a new one was started beside it
    ///
    /// On a held volume. The dir that is selected now goes into quarantine, the old one gets its place (or, with etcd-manager,
    /// that of its cluster token), and etcd-manager's state names it again. Then the agent looks, and opens if it is healthy.
    /// The old dir is renamed at most; not one byte in it is written.
    Rollback(RollbackArgs),
    /// No longer stand by the identity that is pinned: the next healthy look pins what it finds
    Unpin {
        name: GuardName,
        /// The volume id or the pinned cluster id, typed again: consent without a terminal
        #[arg(long, value_name = "ID")]
        confirm: Option<String>,
    },
    /// Ask for a new look at a guard, now
    Retry { name: GuardName },
    /// Take a snapshot of a guard's volume of EC2
    ///
    /// It keeps the volume as it is in the moment in which EC2 answers; the copying goes on without anybody waiting. Tagged with
    /// guard and fingerprint. volhold never deletes one. Needs ec2:CreateSnapshot, and ec2:CreateTags for it.
    Snapshot {
        name: GuardName,
        /// Wait until the copy is complete
        #[arg(long)]
        wait: bool,
    },
    /// Print a page about volhold as a whole: boot, never, trial, etcd, kubeadm, kops, without-aws, compared
    ///
    /// Without a name it lists them. Of a verb it prints what `--help` does.
    Help {
        #[arg(value_name = "TOPIC-OR-VERB")]
        topic: Option<String>,
    },
    /// Run the agent, in the foreground; systemd starts it
    Run,
    /// Ask about a gate
    Gate {
        #[command(subcommand)]
        verb: GateVerb,
    },
    /// One reader of untrusted bytes; the agent starts it
    #[command(hide = true)]
    Worker { request: String },
    /// Print what a package ships: manual pages and completions
    #[command(hide = true)]
    Reference { what: String },
    /// Keeps a copy of a held guard's claim; `wait` starts it
    #[command(hide = true)]
    KeepClaim { run: PathBuf, name: GuardName },
    /// Read the configuration
    Config {
        #[command(subcommand)]
        verb: ConfigVerb,
    },
}

#[derive(Debug, Args)]
pub struct EnableArgs {
    /// Where etcd lives: etcd-service, kubeadm, kops, k3s, rke2, kube-aws
    #[arg(long, value_name = "PRESET")]
    pub preset: Preset,
    #[arg(required = true)]
    pub names: Vec<GuardName>,
    /// Write the files only, as for a machine image; the layers are tested at its first boot
    #[arg(long)]
    pub image: bool,
    /// With --image: below this directory
    #[arg(long, value_name = "DIR", requires = "image")]
    pub root: Option<PathBuf>,
    /// Show the files, write none
    #[arg(long)]
    pub dry_run: bool,
    /// The unit of a first boot does this: waits until every layer holds, then lets the guard enforce
    #[arg(long, hide = true, conflicts_with_all = ["image", "dry_run"])]
    pub first_boot: bool,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The guard
    #[arg(required_unless_present = "reason")]
    pub name: Option<GuardName>,
    /// Print the manual's page about one reason code instead
    #[arg(long, value_name = "CODE", conflicts_with = "name")]
    pub reason: Option<String>,
}

#[derive(Debug, Args)]
pub struct AdoptArgs {
    pub name: GuardName,
    /// The volume was restored from a snapshot, on purpose
    #[arg(long, group = "what")]
    pub restored: bool,
    /// A new cluster is meant to start here, instead of the old one
    #[arg(long, group = "what")]
    pub new_cluster: bool,
    /// This member is meant to start empty and rejoin its cluster
    #[arg(long, group = "what")]
    pub replacement: bool,
    /// The volume id or the cluster id, typed again: consent without a terminal
    #[arg(long, value_name = "ID")]
    pub confirm: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum PlanVerb {
    /// Print the way from a saved snapshot to an open gate, for exactly this member. Changes nothing
    ///
    /// Reads the whole snapshot: checksum, pages, revision, and how far that is behind the record. Exit code 4 where it is
    /// damaged.
    Restore {
        name: GuardName,
        /// What `etcdctl snapshot save` wrote
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
    },
    /// Print the way from a damaged filesystem to an open gate, by the copy of its superblock that was found. Changes nothing
    Repair { name: GuardName },
}

#[derive(Debug, Args)]
pub struct RollbackArgs {
    pub name: GuardName,
    /// The old data dir, relative to the volume's root, as explain shows it
    #[arg(long, value_name = "DIR")]
    pub to: String,
    /// The etcd that etcd-manager is to run on it; where the state names one of the same minor already, that
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// The volume id or the old dir's cluster id, typed again: consent without a terminal
    #[arg(long, value_name = "ID")]
    pub confirm: Option<String>,
}

#[derive(Debug, Args)]
pub struct QuarantineArgs {
    #[command(subcommand)]
    pub verb: Option<QuarantineVerb>,
    /// The guard
    #[arg(required = true)]
    pub name: Option<GuardName>,
    /// What to put aside, relative to the volume's root
    #[arg(required = true)]
    pub path: Option<String>,
    /// Do it
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Subcommand)]
pub enum QuarantineVerb {
    /// List what this node has put into quarantine
    List { name: GuardName },
    /// Rename it back to where it was
    Restore {
        name: GuardName,
        /// Its name in the quarantine, as list shows it
        entry: String,
        /// To another place, relative to the volume's root
        #[arg(long, value_name = "PATH")]
        to: Option<String>,
        /// Do it
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub struct StateSetArgs {
    pub name: GuardName,
    /// The cluster token: the live data dir is data/TOKEN
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// The etcd that etcd-manager runs
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// Is etcd to be started as a new cluster?
    #[arg(long, value_name = "true|false")]
    pub new_cluster: Option<bool>,
    /// Is etcd to listen where no client looks?
    #[arg(long, value_name = "true|false")]
    pub quarantined: Option<bool>,
    /// Do it
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Subcommand)]
pub enum GateVerb {
    /// May etcd start on this guard's volume now? Needs no agent and no network
    Check { name: GuardName },
}

#[derive(Debug, Subcommand)]
pub enum StateVerb {
    /// Print what it says: which data dir is the live one, and which nodes belong to the cluster
    Show {
        /// The file `state` at the root of a volume of kops
        file: PathBuf,
    },
    /// Set fields of it on a held volume. The old file stays beside it as state.DATE
    ///
    /// Every other field, also one that volhold does not know, stays byte for byte. The agent writes it, through a mount that
    /// nobody else sees, and looks at the volume again.
    Set(StateSetArgs),
}

#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Say whether the configuration is right, and if not, where
    Check {
        /// Instead of the file that --config names
        path: Option<PathBuf>,
    },
    /// Print the configuration as it counts, all layers merged and defaults filled in
    Show {
        /// Say behind each value where it comes from: a file's line, a variable, a flag, a default
        #[arg(long)]
        origin: bool,
    },
}

/// `90`, `90s`, `30m`, `1h`, `2d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" | "s" => 1_u64,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        other => return Err(format!("`{other}` is no unit of time: s, m, h or d")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no time: write 90s, 30m, 1h or 2d"))?;
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(|| format!("`{text}` is too long"))
}

/// The same, and the unit is said: whoever lets a device go for `--for 1` means hours, or minutes.
pub fn with_unit(text: &str) -> Result<Duration, String> {
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("no unit of time: write {text}m or {text}h"));
    }
    duration(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        let seconds = |text| duration(text).map(|d| d.as_secs());
        assert_eq!(
            [seconds("90"), seconds("5m"), seconds("1h"), seconds("2d")],
            [Ok(90), Ok(300), Ok(3600), Ok(172_800)]
        );
        for wrong in ["", "h", "1w", "-1s", "1.5h", "99999999999999999999s", "9999999999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(with_unit("90s"), Ok(Duration::from_secs(90)));
        for wrong in ["1", "90", "", "h"] {
            assert!(with_unit(wrong).is_err(), "{wrong}");
        }
    }
}
