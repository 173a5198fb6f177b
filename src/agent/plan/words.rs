//! Steps in words: what would be done, and what the plan saw of it.

use super::dry::Scene;
use crate::act::mount::ViewError;
use crate::agent::machine::{Decided, Guard};
use crate::config::GuardConfig;
use crate::model::{
    ContentClass, DecisionVerdict, DeviceFacts, DeviceReading, DeviceSpec, EtcdGeneration, Fact, Fstype, Observed,
    PublishDir, SecondReading, StartEvidence, StartKind, StartVerdict, WHOLE,
};
use std::path::Path;

pub const CHECK_AT_BOOT: &str = "e2fsck; supposing that the volume is unmounted in order before";
pub const READ_LEDGER: &str = "the records are in doubt: the ledger on the volume, before anything is written to it";
pub const CHECK_CLEAN: &str = "e2fsck reads it without writing (-n): it is clean, and nothing is repaired";
pub const CHECK_WRITES: &str = "e2fsck -p replays the journal and repairs what it calls safe";
pub const UNKNOWN_CHECK: &str = "the filesystem was not unmounted in order or has errors: what e2fsck finds, and what its \
                                 journal still holds, is known only when e2fsck has run, and that writes";

pub const NOT_ATTACHED: &str = "no disk of this machine is the volume: the agent would ask EC2 for it, and what comes then is \
                                known only when it is here";

pub fn not_found(spec: &DeviceSpec) -> String {
    format!("{}: not found, or nothing that can be opened", spec.words())
}

pub fn found(facts: &DeviceFacts, scene: Scene) -> String {
    let name = if facts.requested == facts.node {
        facts.node.clone()
    } else {
        format!("{} is {}", facts.requested, facts.node)
    };
    let mounted: Vec<&str> = facts.mounted_at().collect();
    let place = match (scene, mounted.as_slice()) {
        (Scene::NextBoot, _) => "supposing that it is attached again".to_owned(),
        (Scene::Now, []) => "mounted nowhere".to_owned(),
        (Scene::Now, at) => format!("mounted at {}", at.join(", ")),
    };
    let mib = facts.size >> 20;
    let size = if mib == 0 { format!("{} bytes", facts.size) } else { format!("{mib} MiB") };
    format!("{name}, {size}, {place}")
}

pub fn claim(facts: Option<&DeviceFacts>) -> String {
    // An image file is no device yet.
    let first = match facts {
        Some(facts) if facts.devnum.major == 0 => "make the image file a loop device, and open that exclusively",
        Some(_) | None => "open it exclusively",
    };
    format!(
        "{first}: from then on nobody else can format or mount it. Whether another program has it like that is known only then"
    )
}

pub fn reading(reading: &DeviceReading) -> String {
    if let Some(filesystem) = &reading.filesystem {
        let uuid = filesystem.uuid.map_or_else(|| "no UUID".to_owned(), |uuid| format!("UUID {uuid}"));
        return format!("as bytes: {}, {uuid}", filesystem.fstype);
    }
    match &reading.content {
        Observed::Seen(content) => {
            let class = match content.class {
                ContentClass::Zero if content.complete => "every byte is zero",
                ContentClass::Zero => "zeros as far as it was read",
                ContentClass::Uniform => "looks random",
                ContentClass::Other => "it holds data, and no filesystem that can be mounted",
            };
            let found = match content.findings.len() {
                0 => String::new(),
                1 => ", 1 signature".to_owned(),
                n => format!(", {n} signatures"),
            };
            format!("as bytes: {class}{found}")
        }
        Observed::Unknown(why) => format!("as bytes: not all of it could be read ({})", why.detail()),
    }
}

pub fn read_again(second: &Observed<SecondReading>) -> String {
    let came = match second {
        Observed::Seen(SecondReading::Same) => "the same".to_owned(),
        Observed::Seen(SecondReading::Changed { detail }) => format!("it has changed ({detail})"),
        Observed::Unknown(why) => why.detail().to_owned(),
    };
    format!("the telling parts, under the device's lock (the plan did not lock it): {came}")
}

pub fn format(fstype: Fstype) -> String {
    format!("proven blank: put the intent on record, then mkfs.{fstype}, and read back what it made")
}

pub fn mount(fstype: Fstype) -> String {
    let why = match fstype {
        Fstype::Ext4 => "the superblock is written",
        Fstype::Xfs => "superblock and log are written",
    };
    format!("detached and read-only, where no other process sees it; {why}")
}

pub fn unknown_repair(output: &str) -> String {
    let said = output.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing");
    format!("e2fsck would go on to repair, and what comes of that is known only then ({said})")
}

pub fn unknown_behind(error: &ViewError, log: bool) -> String {
    let journal = if log { "log" } else { "journal" };
    match error {
        ViewError::Unreplayed => format!(
            "the {journal} of the filesystem holds what is not in it yet: what the data dirs are is known only when mounting \
             has replayed it, and that writes. Then the data dirs are read, and decide"
        ),
        ViewError::Mount(_) | ViewError::Loop(_) | ViewError::Device(_) => format!(
            "what is on the filesystem cannot be seen without mounting it ({}). Then the data dirs are read, and decide",
            crate::agent::chain(error)
        ),
    }
}

pub fn unknown_empty(error: &std::io::Error) -> String {
    format!("an empty filesystem cannot be supposed here ({error}): what is decided about it is known only then")
}

pub fn looked(seen: &StartEvidence, new: bool) -> String {
    if new {
        return "the new filesystem is empty".to_owned();
    }
    let volume = match &seen.volume {
        Observed::Seen(volume) => volume,
        Observed::Unknown(why) => return format!("the data dirs cannot be read: {}", why.detail()),
    };
    let dirs: Vec<String> = volume
        .data_dirs
        .iter()
        .map(|dir| {
            let what = match dir.etcd {
                EtcdGeneration::V2 => "etcd 2",
                EtcdGeneration::V3 => "etcd 3",
                EtcdGeneration::Empty | EtcdGeneration::None => "empty",
            };
            let keys = dir.fingerprint.as_ref().and_then(|print| print.keys);
            let keys = keys.map_or_else(String::new, |keys| format!(", {keys} keys"));
            format!("`{}` ({what}{keys})", dir.path)
        })
        .collect();
    if dirs.is_empty() { "no data dir is on it".to_owned() } else { format!("data dirs: {}", dirs.join("; ")) }
}

pub fn decided(decided: &Decided, guard: &Guard) -> String {
    let first = decided.reasons.first().map_or("", |reason| reason.message.as_str());
    match decided.verdict {
        DecisionVerdict::Held => format!("HOLD: {first}"),
        DecisionVerdict::WouldHold => format!("the gate stays open, but this would hold: {first}"),
        DecisionVerdict::Opened | DecisionVerdict::WouldOpen => match guard.start_verdict() {
            Some(StartVerdict::Start { how, data_dir, .. }) => {
                format!("open, etcd's data dir is `{data_dir}`: {}", grounds(*how))
            }
            Some(StartVerdict::Hold { .. }) | None => "open".to_owned(),
        },
    }
}

/// Why an etcd may start.
pub fn grounds(how: StartKind) -> &'static str {
    match how {
        StartKind::Continues => "it continues what is on record",
        StartKind::FirstUse => "nothing is on record, so it is trusted and will be expected from now on",
        StartKind::Fresh => "a fresh etcd, which this volume is allowed once",
        StartKind::Running => "an etcd runs on it already",
        StartKind::MigrationUnderWay => "etcd-manager's own migration or restore is under way",
        StartKind::IdentityChanged => "its identity changed while the gate was open",
        StartKind::Adopted => "a person has adopted it",
    }
}

pub fn record(facts: &[Fact], made: Option<(&str, &GuardConfig)>) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some((data_dir, config)) = made {
        let owner =
            config.owner.as_ref().map_or_else(String::new, |owner| format!(" for {}:{}", owner.user, owner.group));
        let sources = config.publish.sources();
        let mut dirs: Vec<&str> = sources.iter().map(String::as_str).collect();
        if !dirs.contains(&data_dir) {
            dirs.push(data_dir);
        }
        for dir in dirs {
            parts.push(format!("make the directory `{dir}`{owner} unless it is there"));
        }
    }
    let kept: Vec<String> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Pinned { cluster_id, member_id, .. } => {
                Some(format!("cluster {cluster_id} and member {member_id} as what to expect"))
            }
            Fact::HoldsData { .. } => Some("that it holds data".to_owned()),
            Fact::FreshAllowed { .. } => Some("that its one fresh start is used".to_owned()),
            Fact::FormatIntent { .. }
            | Fact::Formatted { .. }
            | Fact::IdentityChanged { .. }
            | Fact::Adopted { .. }
            | Fact::Released { .. }
            | Fact::Retried
            | Fact::Unpinned { .. }
            | Fact::Ordered { .. }
            | Fact::Carried { .. }
            | Fact::Enabled { .. }
            | Fact::Disabled
            | Fact::Bypassed { .. }
            | Fact::Fsck { .. }
            | Fact::NotChecked { .. }
            | Fact::Snapshot { .. }
            | Fact::Grow { .. }
            | Fact::Restarted { .. }
            | Fact::Halted { .. }
            | Fact::Published { .. }
            | Fact::Decided { .. } => None,
        })
        .collect();
    let kept = if kept.is_empty() { String::new() } else { format!(": {}", kept.join(", ")) };
    parts.push(format!("write the record on volume and node{kept}"));
    parts.join("; ")
}

pub fn seal(at: &Path, missing: bool) -> String {
    let make = if missing { "make the directory and " } else { "" };
    format!("{}: {make}see that it is empty and immutable under the mount", at.display())
}

pub fn publish(entry: &PublishDir) -> String {
    let at = entry.at.display();
    if entry.from == WHOLE {
        format!("move the mount to {at}, writable")
    } else {
        format!("move a mount of the directory `{}` to {at}, writable", entry.from)
    }
}

pub fn open(data_dir: &Path, again: bool) -> String {
    let gate = if again { "the gate is open and stays so" } else { "the gate: etcd may start" };
    format!("{gate}, its data dir is {}", data_dir.display())
}
