//! Evidence as lines for a person: which source, what it said, and what that is worth.

use crate::cli::status::data_line;
use crate::cli::text::{Screen, bytes, count, moment};
use crate::model::{
    BlkidAnswer, Claim, Content, ContentClass, DataDirReport, DecisionEvidence, DeviceFacts, DeviceReading, DeviceUse,
    DirRole, FilesystemFacts, Finding, FindingKind, FormatHistory, Identity, Observed, Origin, PublishSource, Records,
    SecondReading, SelectedBy, Severity, Siblings, SourceKind, StartEvidence, Validated, VolumeAge, VolumeReading, Why,
};
use serde::Serialize;

/// What a line is worth, as the first column says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// As it should be, or plain information.
    Fine,
    /// Something stands there.
    Found,
    /// Speaks against going on.
    Bad,
    /// The source said nothing usable.
    Unknown,
}

impl Mark {
    fn word(self) -> &'static str {
        match self {
            Mark::Fine => "",
            Mark::Found => "FOUND",
            Mark::Bad => "BAD",
            Mark::Unknown => "UNKNOWN",
        }
    }
}

/// One source and what it said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EvidenceLine {
    pub source: &'static str,
    pub says: String,
    pub mark: Mark,
}

impl EvidenceLine {
    fn new(source: &'static str, mark: Mark, says: impl Into<String>) -> Self {
        EvidenceLine { source, says: says.into(), mark }
    }

    /// Prints it as one (wrapped) row.
    pub fn draw(&self, screen: &mut Screen) {
        screen.hanging(&format!("  {:8}{:13}", self.mark.word(), self.source), 23, &self.says);
    }
}

/// A source that said nothing usable, for a person.
pub fn why_line(why: &Why) -> String {
    let kind = match why {
        Why::Unreadable { .. } => "could not be read",
        Why::Short { .. } => "gave too few bytes",
        Why::TimedOut { .. } => "did not answer in time",
        Why::ReaderFailed { .. } => "its reader failed",
        Why::NotRun { .. } => "was not asked",
    };
    if why.detail().is_empty() { kind.to_owned() } else { format!("{kind}: {}", why.detail()) }
}

/// Nobody asked is worth less of a word than asked in vain.
fn unknown(source: &'static str, why: &Why) -> EvidenceLine {
    let mark = match why {
        Why::NotRun { .. } => Mark::Fine,
        Why::Unreadable { .. } | Why::Short { .. } | Why::TimedOut { .. } | Why::ReaderFailed { .. } => Mark::Unknown,
    };
    EvidenceLine::new(source, mark, why_line(why))
}

/// Everything that a decision saw.
pub fn lines(evidence: &DecisionEvidence) -> Vec<EvidenceLine> {
    let DecisionEvidence { device, reading, format, start, start_verdict: _, tool_output } = evidence;
    let mut lines = Vec::new();
    if let Some(device) = device {
        lines.extend(device_lines(device));
    }
    if let Some(reading) = reading {
        lines.extend(reading_lines(reading, device.as_ref()));
    }
    if let Some(format) = format {
        if reading.is_none() {
            lines.push(blkid_line(&format.libblkid, &format.content));
            lines.extend(content_lines(&format.content));
        }
        lines.push(claim_line(&format.claim));
        lines.extend(identity_line(&format.identity));
        lines.extend(origin_line(&format.origin));
        lines.push(history_line(&format.history));
        lines.extend(second_line(&format.second_reading));
    }
    if let Some(start) = start {
        lines.extend(start_lines(start, reading.as_ref().is_some_and(|r| r.filesystem.is_some())));
    }
    if let Some(output) = tool_output {
        let all: Vec<&str> = output.lines().filter(|l| !l.trim().is_empty()).collect();
        let from = all.len().saturating_sub(12);
        lines.extend(all.iter().skip(from).map(|l| EvidenceLine::new("tool", Mark::Bad, *l)));
    }
    lines
}

/// What the kernel says.
pub fn device_lines(device: &DeviceFacts) -> Vec<EvidenceLine> {
    let mut says = vec![format!("{} {}", device.node, device.devnum), bytes(device.size)];
    says.push(device.serial.as_ref().map_or_else(|| "no serial".to_owned(), |s| format!("serial {s}")));
    if let Some(file) = &device.backing_file {
        says.push(format!("loop over {file}"));
    }
    if device.read_only {
        says.push("read-only".to_owned());
    }
    if !device.whole_disk {
        says.push("a partition".to_owned());
    }
    let mark = if device.size == 0 || !device.whole_disk { Mark::Bad } else { Mark::Fine };
    let mut lines = vec![EvidenceLine::new("kernel", mark, says.join(", "))];
    lines.extend(device.uses.iter().map(|other| EvidenceLine::new("kernel", Mark::Found, use_words(other))));
    lines
}

fn use_words(other: &DeviceUse) -> String {
    match other {
        DeviceUse::Mount { at } => format!("mounted at {at}"),
        DeviceUse::Swap => "in use as swap".to_owned(),
        DeviceUse::Holder { name } => format!("{name} stands on it"),
        DeviceUse::LoopOnTop { name } => format!("{name} is a loop device over it"),
        DeviceUse::Partition { name } => format!("has a partition, {name}"),
        DeviceUse::Exclusive => "claimed by somebody that cannot be seen from here".to_owned(),
    }
}

/// What the bytes are.
pub fn reading_lines(reading: &DeviceReading, device: Option<&DeviceFacts>) -> Vec<EvidenceLine> {
    let DeviceReading { libblkid, content, filesystem } = reading;
    let mut lines = Vec::new();
    if let Some(facts) = filesystem {
        let uses = device.map(|device| device.uses.as_slice()).unwrap_or_default();
        let in_use = uses.iter().any(|other| match other {
            DeviceUse::Mount { .. } | DeviceUse::Holder { .. } | DeviceUse::LoopOnTop { .. } => true,
            DeviceUse::Swap | DeviceUse::Partition { .. } | DeviceUse::Exclusive => false,
        });
        lines.push(filesystem_line(facts, in_use));
    }
    lines.extend(content_lines(content));
    lines.push(blkid_line(libblkid, content));
    lines
}

fn filesystem_line(facts: &FilesystemFacts, in_use: bool) -> EvidenceLine {
    let mut says = vec![facts.fstype.clone()];
    says.push(facts.uuid.map_or_else(|| "no UUID".to_owned(), |u| format!("UUID {u}")));
    if let Some(label) = &facts.label {
        says.push(format!("label {label}"));
    }
    if let Some(at) = facts.made_at {
        says.push(format!("made {}", moment(at)));
    }
    if let Some(at) = &facts.last_mounted {
        says.push(format!("last mounted at {at}"));
    }
    match facts.clean {
        Some(true) => says.push("clean".to_owned()),
        // What is mounted is marked so on the disk; a clean end comes with the unmount.
        Some(false) if in_use => says.push("not marked clean, as long as it is in use".to_owned()),
        Some(false) => says.push("not cleanly unmounted, unfinished, or with errors".to_owned()),
        None => {}
    }
    for feature in &facts.unknown_features {
        says.push(format!("unknown feature {feature}"));
    }
    let mark = if facts.unknown_features.is_empty() { Mark::Found } else { Mark::Bad };
    EvidenceLine::new("superblock", mark, says.join(", "))
}

fn blkid_line(answer: &Observed<BlkidAnswer>, content: &Observed<Content>) -> EvidenceLine {
    let blank = content.seen().is_some_and(|c| c.class == ContentClass::Zero && c.complete && c.findings.is_empty());
    match answer {
        Observed::Unknown(why) => unknown("libblkid", why),
        Observed::Seen(answer) if answer.says_nothing() => {
            let says =
                if blank { "nothing" } else { "nothing  <- a tool that asks only blkid or wipefs would run mkfs now" };
            EvidenceLine::new("libblkid", Mark::Fine, says)
        }
        Observed::Seen(answer) => {
            let named: Vec<String> = answer
                .named
                .iter()
                .map(|n| {
                    let uuid = n.uuid.as_ref().map_or_else(String::new, |u| format!(" UUID {u}"));
                    format!("{}{uuid}{}", n.kind, if n.bad_checksum { " (its checksum is wrong)" } else { "" })
                })
                .collect();
            let codes = format!("(codes {} and {})", answer.safeprobe, answer.probe_loop);
            if named.is_empty() {
                EvidenceLine::new("libblkid", Mark::Unknown, format!("no clear answer {codes}"))
            } else {
                EvidenceLine::new("libblkid", Mark::Found, format!("{} {codes}", named.join(", ")))
            }
        }
    }
}

fn content_lines(content: &Observed<Content>) -> Vec<EvidenceLine> {
    let content = match content {
        Observed::Unknown(why) => return vec![unknown("content", why)],
        Observed::Seen(content) => content,
    };
    let mut lines: Vec<EvidenceLine> = content.findings.iter().take(8).map(finding_line).collect();
    let more = content.findings.len().saturating_sub(8);
    if more > 0 {
        lines.push(EvidenceLine::new("content", Mark::Found, format!("and {more} more signatures")));
    }
    let class = match content.class {
        ContentClass::Zero => "all zero".to_owned(),
        ContentClass::Uniform => "looks random: a never-written encrypted volume, or encrypted data".to_owned(),
        ContentClass::Other => "holds data".to_owned(),
    };
    let mut says = vec![class];
    if let Some(at) = content.first_other {
        says.push(format!("first at byte {at}"));
    }
    says.push(format!("{} of {} read", bytes(content.bytes_read), bytes(content.size_before)));
    if content.read_errors > 0 {
        says.push(format!("{} reads failed", content.read_errors));
    }
    if content.size_before != content.size_after {
        says.push(format!("the size changed to {} meanwhile", bytes(content.size_after)));
    }
    let mark = if content.read_errors > 0 || content.size_before != content.size_after {
        Mark::Unknown
    } else if content.class == ContentClass::Other {
        Mark::Found
    } else {
        Mark::Fine
    };
    lines.push(EvidenceLine::new("content", mark, says.join(", ")));
    lines
}

/// What and where, without how sure it is.
pub fn finding_title(finding: &Finding) -> String {
    let kind = match &finding.kind {
        FindingKind::ExtSuperblock => "ext2/3/4 superblock",
        FindingKind::ExtBackupSuperblock => "ext2/3/4 backup superblock",
        FindingKind::XfsSuperblock => "XFS superblock",
        FindingKind::XfsAgHeader => "XFS allocation-group header",
        FindingKind::GptHeader => "GPT header",
        FindingKind::GptBackupHeader => "GPT backup header",
        FindingKind::BoltMeta => "etcd backend (bolt meta page)",
        FindingKind::EtcdWal => "etcd write-ahead log",
        FindingKind::ExtJournal => "ext3/4 journal",
        FindingKind::ExtDirectory => "ext2/3/4 directory",
        FindingKind::XfsLog => "XFS log record",
        FindingKind::EtcdDirectory => "directory of etcd",
        FindingKind::BoltLeaf => "etcd backend (leaf page)",
        FindingKind::EtcdSnap => "etcd raft snapshot",
        FindingKind::EtcdV2Store => "etcd 2 store",
        FindingKind::EtcdKeys => "Kubernetes key",
        FindingKind::Named(name) => name,
    };
    format!("{kind} at byte {}", finding.offset)
}

fn finding_words(finding: &Finding) -> String {
    let sure = match finding.validated {
        Validated::Magic => "by its magic only",
        Validated::Structure => "its fields agree",
        Validated::Checksum => "its checksum is right",
    };
    let uuid = finding.uuid.as_ref().map_or_else(String::new, |u| format!(", UUID {u}"));
    let detail = finding.detail.as_ref().map_or_else(String::new, |d| format!(", {d}"));
    format!("{}, {sure}{uuid}{detail}", finding_title(finding))
}

fn finding_line(finding: &Finding) -> EvidenceLine {
    EvidenceLine::new("signature", Mark::Found, finding_words(finding))
}

fn claim_line(claim: &Observed<Claim>) -> EvidenceLine {
    match claim {
        Observed::Seen(Claim::Ours) => EvidenceLine::new("claim", Mark::Fine, "held by volhold"),
        Observed::Seen(Claim::Refused) => {
            EvidenceLine::new("claim", Mark::Bad, "refused: somebody else has the device")
        }
        Observed::Unknown(why) => unknown("claim", why),
    }
}

fn identity_line(identity: &Observed<Identity>) -> Option<EvidenceLine> {
    match identity {
        Observed::Seen(Identity::Matches) => {
            Some(EvidenceLine::new("identity", Mark::Fine, "the device that was asked for"))
        }
        Observed::Seen(Identity::OtherSerial { asked, found }) => {
            Some(EvidenceLine::new("identity", Mark::Bad, format!("asked for {asked}, the serial is {found}")))
        }
        Observed::Seen(Identity::OtherSize { provider, kernel }) => Some(EvidenceLine::new(
            "identity",
            Mark::Bad,
            format!("{} for the provider, {} for the kernel", bytes(*provider), bytes(*kernel)),
        )),
        Observed::Unknown(why) => Some(unknown("identity", why)),
    }
}

fn origin_line(origin: &Observed<Origin>) -> Option<EvidenceLine> {
    match origin {
        Observed::Seen(Origin::NoProvider) => None,
        Observed::Seen(Origin::Provider { encrypted, from_snapshot, young }) => {
            let from = from_snapshot.as_ref().map_or_else(
                || "not made from a snapshot".to_owned(),
                |snapshot| format!("made from snapshot {snapshot}"),
            );
            let crypt = if *encrypted { "encrypted" } else { "not encrypted" };
            let age = if *young { "new" } else { "not new" };
            Some(EvidenceLine::new("provider", Mark::Fine, format!("{age}, {crypt}, {from}")))
        }
        Observed::Unknown(why) => Some(unknown("provider", why)),
    }
}

fn history_line(history: &Observed<FormatHistory>) -> EvidenceLine {
    match history {
        Observed::Seen(FormatHistory::None) => {
            EvidenceLine::new("records", Mark::Fine, "no record names this volume with data")
        }
        Observed::Seen(FormatHistory::Used { says }) => EvidenceLine::new("records", Mark::Bad, says.clone()),
        Observed::Seen(FormatHistory::UnfinishedIntent { fs_uuid, same_attachment }) => {
            let since = if *same_attachment { "attached ever since" } else { "detached since" };
            let says = format!("an mkfs with UUID {fs_uuid} was begun, its end is not on record; {since}");
            EvidenceLine::new("records", Mark::Bad, says)
        }
        Observed::Seen(FormatHistory::Broken { detail }) => {
            EvidenceLine::new("records", Mark::Unknown, format!("cannot be trusted: {detail}"))
        }
        Observed::Unknown(why) => unknown("records", why),
    }
}

fn second_line(second: &Observed<SecondReading>) -> Option<EvidenceLine> {
    match second {
        Observed::Seen(SecondReading::Same) => {
            Some(EvidenceLine::new("again", Mark::Fine, "a second reading found the same"))
        }
        Observed::Seen(SecondReading::Changed { detail }) => {
            Some(EvidenceLine::new("again", Mark::Bad, format!("a second reading found a change: {detail}")))
        }
        Observed::Unknown(Why::NotRun { .. }) => None,
        Observed::Unknown(why) => Some(unknown("again", why)),
    }
}

fn start_lines(start: &StartEvidence, superblock_shown: bool) -> Vec<EvidenceLine> {
    let StartEvidence { volume_id: _, filesystem, volume, records, running, age, siblings, witness, to_run } = start;
    let mut lines = Vec::new();
    match filesystem {
        // Seen through a mount, not as bytes.
        Observed::Seen(facts) if !superblock_shown => lines.push(filesystem_line(facts, true)),
        Observed::Seen(_) => {}
        Observed::Unknown(why) => lines.push(unknown("superblock", why)),
    }
    match volume {
        Observed::Seen(reading) => lines.extend(dir_lines(reading)),
        Observed::Unknown(why) => lines.push(unknown("data dirs", why)),
    }
    match to_run {
        Observed::Seen(Some(etcd)) => lines.push(EvidenceLine::new("to run", Mark::Fine, etcd.in_words())),
        Observed::Seen(None) => {
            let manager = volume.seen().is_some_and(|reading| reading.manager_state.is_some());
            // There its `state` says, which has a line of its own.
            if !manager {
                let says = "nothing names the etcd that will open it (`etcd` of the guard): its version is held against nothing";
                lines.push(EvidenceLine::new("to run", Mark::Unknown, says));
            }
        }
        Observed::Unknown(Why::NotRun { .. }) => {}
        Observed::Unknown(why) => lines.push(unknown("to run", why)),
    }
    match records {
        Observed::Seen(records) => lines.extend(record_lines(records)),
        Observed::Unknown(why) => lines.push(unknown("records", why)),
    }
    match running {
        Observed::Seen(Some(etcd)) => {
            let says = format!("etcd runs on {} (pid {})", etcd.data_dir, etcd.pid);
            lines.push(EvidenceLine::new("processes", Mark::Found, says));
        }
        Observed::Seen(None) => {}
        Observed::Unknown(why) => lines.push(unknown("processes", why)),
    }
    match age {
        Observed::Seen(VolumeAge::Young) => lines.push(EvidenceLine::new("provider", Mark::Fine, "the volume is new")),
        Observed::Seen(VolumeAge::Old) => {
            lines.push(EvidenceLine::new("provider", Mark::Fine, "the volume is not new"))
        }
        Observed::Seen(VolumeAge::NoProvider) => {}
        Observed::Unknown(why) => lines.push(unknown("provider", why)),
    }
    match siblings {
        Observed::Seen(Siblings::NotNamed) | Observed::Unknown(Why::NotRun { .. }) => {}
        Observed::Seen(Siblings::Listed { created, me: _, of }) => {
            let says = match of.iter().filter_map(|sibling| sibling.created).min() {
                None => format!("made at {created}; no other volume of its cluster is known"),
                Some(oldest) => {
                    format!("made at {created}; the oldest of {} others of its cluster at {oldest}", of.len())
                }
            };
            lines.push(EvidenceLine::new("cluster", Mark::Fine, says));
        }
        Observed::Unknown(why) => lines.push(unknown("cluster", why)),
    }
    match witness {
        Observed::Seen(Some(witness)) => lines.push(EvidenceLine::new("tags", Mark::Found, witness.words())),
        Observed::Seen(None) | Observed::Unknown(Why::NotRun { .. }) => {}
        Observed::Unknown(why) => lines.push(unknown("tags", why)),
    }
    lines
}

fn source_line(source: &PublishSource) -> EvidenceLine {
    let (mark, says) = match &source.kind {
        Observed::Seen(SourceKind::Directory) => (Mark::Fine, "is there"),
        Observed::Seen(SourceKind::Missing) => (Mark::Found, "is not there"),
        Observed::Seen(SourceKind::Link) => (Mark::Bad, "is a symbolic link"),
        Observed::Seen(SourceKind::NotADirectory) => (Mark::Bad, "is no directory"),
        Observed::Unknown(why) => return unknown("published", why),
    };
    EvidenceLine::new("published", mark, format!("{} {says}", source.from))
}

/// Every data dir on a volume, and who selects which.
pub fn dir_lines(reading: &VolumeReading) -> Vec<EvidenceLine> {
    let VolumeReading { data_dirs, selected, manager_state, unreadable, beyond, root_entries, publish } = reading;
    let mut lines = Vec::new();
    for dir in data_dirs {
        let chosen = selected.as_ref().filter(|s| s.path == dir.path);
        lines.push(dir_line(dir, chosen.map(|s| s.by)));
        for defect in dir.defects.iter().filter(|d| d.severity > Severity::Info).take(6) {
            let mark = if defect.severity == Severity::Damage { Mark::Bad } else { Mark::Found };
            let at = defect.offset.map_or_else(String::new, |o| format!(" at byte {o}"));
            let says = format!("{}/{}{at}: {} [{}]", dir.path, defect.file, defect.message, defect.code);
            lines.push(EvidenceLine::new("defect", mark, says));
        }
    }
    if let Some(chosen) = selected
        && !data_dirs.iter().any(|d| d.path == chosen.path)
    {
        let there = if chosen.exists { "holds no etcd data" } else { "is not there" };
        let says = format!("{} {there}  <- selected by {}", chosen.path, selected_words(chosen.by));
        // On a new volume there is none yet; beside others it is the one that was meant.
        let mark = if data_dirs.is_empty() { Mark::Fine } else { Mark::Bad };
        lines.push(EvidenceLine::new("data dir", mark, says));
    }
    if data_dirs.is_empty() {
        let says = if root_entries.is_empty() {
            "none; the filesystem is empty".to_owned()
        } else {
            format!("none; at the root: {}", root_entries.join(", "))
        };
        lines.push(EvidenceLine::new("data dirs", Mark::Fine, says));
    }
    match manager_state {
        Some(Observed::Seen(state)) => {
            let says = if state.empty {
                "empty: etcd-manager was told to stop this etcd".to_owned()
            } else {
                let token = state.cluster_token.as_deref().unwrap_or("none");
                let version = state.etcd_version.as_deref().unwrap_or("unknown");
                format!(
                    "token {token}, version {version}, new_cluster {}, quarantined {}",
                    state.new_cluster, state.quarantined
                )
            };
            lines.push(EvidenceLine::new("etcd-manager", Mark::Fine, says));
        }
        Some(Observed::Unknown(why)) => lines.push(unknown("etcd-manager", why)),
        None => {}
    }
    lines.extend(publish.iter().map(source_line));
    let unseen = unreadable.iter().map(|path| EvidenceLine::new("unreadable", Mark::Unknown, path.clone()));
    lines.extend(unseen.chain(beyond.iter().map(|path| EvidenceLine::new("not read", Mark::Unknown, path.clone()))));
    lines
}

fn selected_words(by: SelectedBy) -> &'static str {
    match by {
        SelectedBy::Config => "the configuration",
        SelectedBy::State => "etcd-manager's state",
        SelectedBy::OnlyOne => "being the only one",
    }
}

fn dir_line(dir: &DataDirReport, by: Option<SelectedBy>) -> EvidenceLine {
    let role = match dir.role {
        DirRole::Selected | DirRole::Candidate => "",
        DirRole::Archive => ", put away (archive)",
        DirRole::Legacy => ", of an earlier layout",
    };
    let by = by.map_or_else(String::new, |by| format!("  <- selected by {}", selected_words(by)));
    let locked = dir.locked_by.map_or_else(String::new, |pid| format!(", locked by process {pid}"));
    let mark = if dir.populated { Mark::Found } else { Mark::Fine };
    EvidenceLine::new("data dir", mark, format!("{}{role}{locked}{by}", data_line(dir)))
}

fn record_lines(records: &Records) -> Vec<EvidenceLine> {
    let mut lines = Vec::new();
    let mut add = |mark, says: String| lines.push(EvidenceLine::new("records", mark, says));
    if let Some(pin) = &records.pin {
        let name = pin.name.as_ref().map_or_else(String::new, |n| format!(" {n}"));
        add(
            Mark::Fine,
            format!(
                "pinned: cluster {}, member{name} {}, in {}, since {}",
                pin.cluster_id,
                pin.member_id,
                pin.data_dir,
                moment(pin.at)
            ),
        );
    } else {
        add(Mark::Fine, "no identity is pinned".to_owned());
    }
    if let Some(mark) = &records.high_water {
        let mut says = Vec::new();
        says.extend(mark.revision.map(|r| format!("revision {}", count(r))));
        says.extend(mark.wal_last_index.map(|i| format!("log index {}", count(i))));
        says.extend(mark.term.map(|t| format!("term {}", count(t))));
        says.extend(mark.keys.map(|k| format!("{} keys", count(k))));
        add(Mark::Fine, format!("last seen in {}: {}", mark.data_dir, says.join(", ")));
    }
    if let Some(at) = records.held_data_at {
        add(Mark::Fine, format!("held data on {}", moment(at)));
    }
    if let Some(uuid) = records.fs_uuids.last() {
        add(Mark::Fine, format!("filesystem UUID {uuid}"));
    }
    if let Some(other) = &records.names_other_volume {
        add(Mark::Bad, format!("the volume's own record speaks of another volume, {other}"));
    }
    if records.pins_contradict {
        add(Mark::Bad, "two records pin different identities".to_owned());
    }
    if let Some((cluster, member)) = &records.identity_changed {
        add(Mark::Found, format!("ids changed to cluster {cluster}, member {member} while the gate was open"));
    }
    if let Some(release) = &records.released {
        add(Mark::Found, format!("let go by a person until {}", moment(release.until)));
    }
    lines
}
