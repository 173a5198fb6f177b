//! Every metric. `packaging/prometheus/METRICS.md` is made of this table, and a test compares the two.

/// How a value behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    Counter,
}

/// What may be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// Neither renamed nor given another meaning; labels may be added.
    Stable,
    /// May change with a line in the changelog.
    Alpha,
}

/// One metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub stability: Stability,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

macro_rules! metrics {
    ($($constant:ident = $kind:ident $stability:ident $name:literal { $($label:literal),* } $help:literal;)*) => {
        $(pub static $constant: Metric = Metric {
            name: $name,
            kind: Kind::$kind,
            stability: Stability::$stability,
            labels: &[$($label),*],
            help: $help,
        };)*

        /// Every metric, in the order of the manual.
        pub static ALL: &[&Metric] = &[$(&$constant),*];
    };
}

metrics! {
    GATE_OPEN = Gauge Stable "volhold_gate_open" { "guard" }
        "1 when volhold lets etcd start. A guard that observes keeps nothing back, so its gate is always open.";
    GATE_BYPASSED = Gauge Stable "volhold_gate_bypassed" { "guard" }
        "1 when a person has opened the gate by hand until the next boot: etcd may start, and volhold has not looked.";
    GUARD_VERDICT = Gauge Stable "volhold_guard_verdict" { "guard", "verdict", "reason" }
        "1 for each reason for which the guard is held or would be, grouped by verdict; verdicts that are not the case are 0 with an empty reason.";
    WOULD_HOLD = Gauge Stable "volhold_guard_would_hold" { "guard" }
        "1 when there are reasons to hold: held, or open and doubted, or observed and in doubt.";
    GUARD_WARNING = Gauge Stable "volhold_guard_warning" { "guard", "reason" }
        "1 for each remark that holds nothing: warnings, what a volume on its way is waited for, why its tags are not written. Gone when it is over.";
    GUARD_INFO = Gauge Stable "volhold_guard_info"
        { "guard", "mode", "volume_id", "fs_uuid", "cluster_id", "member_id", "mountpoint" }
        "Always 1; ids to join by guard. Empty where not known.";
    VOLUME_ATTACHED = Gauge Stable "volhold_volume_attached" { "guard" }
        "1 when the guard's device is found on this machine.";
    VOLUME_MOUNTED = Gauge Stable "volhold_volume_mounted" { "guard" }
        "1 when the volume, or each directory of it that is to be published, is mounted where the agent sees it.";
    VOLUME_PUBLISHED = Gauge Stable "volhold_volume_published" { "guard" }
        "1 when the gate was opened in this boot, so that the volume has to be mounted.";
    MOUNT_IN_PLACE = Gauge Stable "volhold_mount_in_place" { "guard" }
        "1 when what is seen where the volume is published is the volume, down to the data dir; 0 when it was unmounted, hidden or replaced by another mount. Only while the gate is open and where it can be told.";
    DEVICE_PRESENT = Gauge Stable "volhold_device_present" { "guard" }
        "1 while the device under an open gate is the one for which it was opened; 0 when it is gone, without size, or another one.";
    READ_ONLY = Gauge Stable "volhold_filesystem_read_only" { "guard" }
        "1 when the filesystem under an open gate takes no writes: the kernel lists it as read-only, or refused the last test write with EROFS.";
    FILESYSTEM_ERRORS = Gauge Stable "volhold_filesystem_errors" { "guard" }
        "Errors that the ext4 under an open gate has met since it was last checked, by its superblock. Not there for other filesystems.";
    WRITE_TEST = Gauge Stable "volhold_write_test_success" { "guard" }
        "1 when the last test write with fsync on the volume of an open gate was done; 0 when it failed or has not come back. Made every 15 seconds.";
    ETCD_RUNNING = Gauge Stable "volhold_etcd_running" { "guard" }
        "1 when an etcd holds its lock on the data dir of the open gate, 0 when none does, or only on another dir of the volume. Looked at every 15 seconds.";
    VOLUME_SIZE = Gauge Stable "volhold_volume_size_bytes" { "guard" }
        "Size of the guard's device.";
    FILESYSTEM_SIZE = Gauge Stable "volhold_filesystem_size_bytes" { "guard" }
        "Size of the mounted filesystem, without what it needs for itself.";
    FILESYSTEM_AVAILABLE = Gauge Stable "volhold_filesystem_available_bytes" { "guard" }
        "What is left on the mounted filesystem for processes that are not root's.";
    FILESYSTEM_FILES = Gauge Stable "volhold_filesystem_files" { "guard" }
        "Inodes of the mounted filesystem.";
    FILESYSTEM_FILES_FREE = Gauge Stable "volhold_filesystem_files_free" { "guard" }
        "Inodes that are left.";
    FORMAT_TIME = Gauge Stable "volhold_volume_format_timestamp_seconds" { "guard" }
        "When volhold last made a filesystem on this volume. Not there where it never did.";
    PINNED_TIME = Gauge Stable "volhold_cluster_pinned_timestamp_seconds" { "guard" }
        "Since when this cluster and member are the ones to expect on this volume.";
    DATA_DIRS = Gauge Stable "volhold_data_dirs" { "guard", "state" }
        "etcd data dirs on the volume when it was last looked at: populated, empty, foreign (populated, of another cluster than the selected one), archived (put away by name).";
    IDENTITY_MATCH = Gauge Stable "volhold_data_dir_identity_match" { "guard" }
        "0 when the data carries another cluster or member id than the expected ones, 1 when it carries those.";
    REVISION = Gauge Stable "volhold_data_dir_revision" { "guard" }
        "Revision of the selected data dir as last read from its backend file.";
    MEMBERS = Gauge Stable "volhold_data_dir_members" { "guard" }
        "Members of the cluster by the selected data dir, learners too.";
    BACKEND_SIZE = Gauge Stable "volhold_data_dir_backend_bytes" { "guard" }
        "Size of the selected data dir's backend file when it was last examined as a whole.";
    STEP_DURATION = Gauge Alpha "volhold_step_duration_seconds" { "guard", "step" }
        "What each step of the last way from looking for the device to a verdict took; a step that was taken twice counts with its sum.";
    WITNESS_TIME = Gauge Stable "volhold_witness_written_timestamp_seconds" { "guard" }
        "When this agent last wrote the tags in which EC2 remembers the volume. Not there where it has not.";
    HOLD_SECONDS = Counter Stable "volhold_hold_seconds_total" { "guard" }
        "Time in which this agent kept etcd back, waiting or held.";
    FORMAT_REFUSALS = Counter Stable "volhold_format_refusals_total" { "guard", "reason" }
        "How often a reason against formatting came up. For alerts use volhold_guard_verdict: it is there at the first scrape.";
    PROBE_ERRORS = Counter Stable "volhold_probe_errors_total" { "guard" }
        "How often the device or the data could not be read, or not in time.";
    LAST_UPDATE = Gauge Stable "volhold_last_update_timestamp_seconds" {}
        "When these values were written: an old one in the textfile directory means that the agent is gone.";
    BUILD_INFO = Gauge Stable "volhold_build_info" { "version", "revision" }
        "Always 1.";
    AGENT_WARNINGS = Gauge Alpha "volhold_agent_warnings" {}
        "What the agent itself cannot do (a socket, the textfile directory) or what is wrong with its configuration, by number of lines in its status.";
}

/// The page about all metrics, in Markdown.
pub fn page() -> String {
    let mut page = "# Metrics\n\n\
        Made of `src/metrics/table.rs`. On `/metrics` of the agent's socket and loopback address, and as `volhold.prom` in\n\
        node_exporter's textfile directory where `[metrics] textfile_dir` names it. *stable*: neither renamed nor given\n\
        another meaning. Labels hold guards and words of closed lists; ids stand in `volhold_guard_info` alone.\n\n\
        | metric | type | labels | stability | meaning |\n|---|---|---|---|---|\n"
        .to_owned();
    for metric in ALL {
        let kind = match metric.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        let stability = match metric.stability {
            Stability::Stable => "stable",
            Stability::Alpha => "alpha",
        };
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        page.push_str(&format!(
            "| `{}` | {kind} | {} | {stability} | {} |\n",
            metric.name,
            labels.join(", "),
            metric.help
        ));
    }
    page.push_str("\nVerdicts of `volhold_guard_verdict`, with the reasons that are grouped under each:\n\n| verdict | reasons |\n|---|---|\n");
    for verdict in super::Verdict::ALL {
        let codes: Vec<String> = crate::model::ReasonCode::ALL
            .iter()
            .filter(|code| super::Verdict::of(**code) == *verdict)
            .map(|code| format!("`{code}`"))
            .collect();
        let codes = if codes.is_empty() { "-".to_owned() } else { codes.join(", ") };
        page.push_str(&format!("| `{}` | {codes} |\n", verdict.as_str()));
    }
    page
}
