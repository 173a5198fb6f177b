//! Each point, on a blank device and on one with etcd data, on the same attachment and on another one.

use crate::common::node::codes;
use crate::common::tmp::{mount_table, unmount};
use crate::common::{Guard, Loop, Node, Tmp, disk, fixture, output, run};
use disk::MIB;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use volhold::model::{Entry, Fact};
use volhold::record::{NodeLedger, ledger, machine_id};

const SMALL: u64 = 32 * MIB;
/// Room for a backup superblock, at 128 MiB.
const WITH_BACKUP: u64 = 160 * MIB;

/// A device behind a name that stays when it is attached anew under another number.
struct Volume {
    device: Option<Loop>,
    image: PathBuf,
    name: PathBuf,
    tmp: Tmp,
}

impl Volume {
    fn on(tmp: Tmp, image: PathBuf) -> Self {
        let name = tmp.join("device");
        let mut volume = Volume { device: None, image, name, tmp };
        volume.attach();
        volume
    }

    fn blank(size: u64) -> Self {
        let tmp = Tmp::new();
        let image = disk::sparse(&tmp.join("volume"), size);
        Volume::on(tmp, image)
    }

    fn with_data() -> Self {
        let tmp = Tmp::new();
        let tree = tmp.join("tree");
        fixture::etcd_tree("v3.4.23-basic", &tree);
        let image = disk::sparse(&tmp.join("volume"), 64 * MIB);
        disk::mkfs_ext4(&image, Some(&tree));
        Volume::on(tmp, image)
    }

    fn attach(&mut self) {
        let device = Loop::new(&self.image);
        std::fs::remove_file(&self.name).ok();
        symlink(device.node(), &self.name).expect("a name for the device");
        self.device = Some(device);
    }

    fn node(&self) -> &Path {
        self.device.as_ref().expect("attached").node()
    }

    /// Detached and attached again, nothing of it left in the page cache.
    fn attach_anew(&mut self, node: &Node) {
        let before = diskseq(self.node());
        node.manager.empty_store();
        for mount in mount_table().into_iter().rev().filter(|mount| mount.at.starts_with(node.path(""))) {
            unmount(&mount.at);
        }
        self.device = None;
        let image = std::fs::File::open(&self.image).expect("the image");
        image.sync_all().expect("the image reaches the disk");
        rustix::fs::fadvise(&image, 0, None, rustix::fs::Advice::DontNeed).expect("the cache is dropped");
        self.attach();
        assert_ne!(before, diskseq(self.node()), "the same attachment as before");
    }

    fn sha256(&self) -> String {
        disk::sha256(self.node())
    }

    /// UUID of the filesystem that stands on it, by somebody else's word.
    fn fs_uuid(&self) -> Option<String> {
        let said = output("blkid", &["-p", "-o", "value", "-s", "UUID", &self.node().to_string_lossy()]);
        let uuid = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        (!uuid.is_empty()).then_some(uuid)
    }
}

fn diskseq(node: &Path) -> String {
    let name = node.file_name().expect("a name").to_string_lossy();
    std::fs::read_to_string(format!("/sys/block/{name}/diskseq")).expect("this kernel counts attachments")
}

fn configured(volume: &Volume) -> Node {
    let node = Node::new();
    node.configure(&[Guard::enforce("main", &volume.name, &node.path("mnt")).data_dir("data")]);
    node
}

/// What the node remembers. The ledger must be whole after every crash.
#[track_caller]
fn memory(node: &Node) -> Vec<Entry> {
    let state = node.path("state");
    let ledger = NodeLedger::at(&state, &"main".parse().unwrap(), &machine_id(&state).unwrap());
    ledger.read().unwrap().own.into_iter().map(|(_, entry)| entry).collect()
}

fn intents(memory: &[Entry]) -> Vec<String> {
    let uuid = |entry: &Entry| match &entry.fact {
        Fact::FormatIntent { fs_uuid, .. } => Some(fs_uuid.to_string()),
        _ => None,
    };
    memory.iter().filter_map(uuid).collect()
}

fn formatted(memory: &[Entry]) -> Vec<String> {
    let uuid = |entry: &Entry| match &entry.fact {
        Fact::Formatted { fs_uuid } => Some(fs_uuid.to_string()),
        _ => None,
    };
    memory.iter().filter_map(uuid).collect()
}

/// Every file below a folder, by its bytes.
fn content(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(dir).expect("below").to_owned(), disk::sha256(&path));
            }
        }
    }
    found
}

/// Runs an agent until it kills itself at the point.
#[track_caller]
fn crash(node: &mut Node, point: &str) {
    node.crash_at(Some(point));
    node.spawn();
    node.await_killed();
    node.crash_at(None);
}

/// What is kept on node and volume.
fn belongs_on_both(fact: &Fact) -> bool {
    matches!(fact, Fact::FreshAllowed { .. } | Fact::Pinned { .. } | Fact::HoldsData { .. } | Fact::Published { .. })
}

/// Open, as it would have been without the crash: the right filesystem, mounted once, both ledgers whole.
#[track_caller]
fn opened(node: &mut Node, volume: &Volume) -> Value {
    node.start();
    let status = node.await_open("main");
    assert_eq!(status["reasons"].as_array().map(Vec::len), Some(0), "{status:#}");
    assert_eq!(status["fs_uuid"].as_str().map(str::to_owned), volume.fs_uuid(), "{status:#}");
    let mounts: Vec<_> = mount_table().into_iter().filter(|mount| mount.at == node.path("mnt")).collect();
    assert_eq!(mounts.len(), 1, "{mounts:#?}");
    assert!(mounts[0].options.starts_with("rw"), "{mounts:#?}");
    assert_eq!(Path::new(&mounts[0].source), volume.node());
    let bytes = std::fs::read(node.path("mnt/.volhold/ledger")).expect("the volume's ledger");
    let on_volume = ledger::parse(&bytes).expect("a whole ledger on the volume");
    assert_eq!(on_volume.torn, None);
    assert!(!on_volume.entries.is_empty());
    let state = node.path("state");
    let ledger = NodeLedger::at(&state, &"main".parse().unwrap(), &machine_id(&state).unwrap());
    for (id, entry) in ledger.read().unwrap().own.into_iter().filter(|(_, entry)| belongs_on_both(&entry.fact)) {
        let there = on_volume.entries.iter().any(|(other, _)| *other == id);
        assert!(there, "the crash left it on the node only: {entry:#?}");
    }
    assert_eq!(node.volhold(&["wait", "main", "--timeout", "1s"]).code, Some(0));
    status
}

/// Held for the unfinished intent first of all, and not one byte written since.
#[track_caller]
fn held(node: &mut Node, volume: &Volume) -> Value {
    let (before, begun) = (volume.sha256(), intents(&memory(node)));
    node.start();
    let status = node.await_held("main", "intent-unfinished");
    assert_eq!(codes(&status["reasons"])[0], "intent-unfinished", "{status:#}");
    assert_eq!(volume.sha256(), before, "the volume was written to");
    assert_eq!(intents(&memory(node)), begun, "an mkfs was begun");
    status
}

/// How far mkfs is at the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mkfs {
    NotBegun,
    /// The intent is on record and the fact is not.
    Unfinished,
    OnRecord,
}

#[track_caller]
fn blank(point: &str, mkfs: Mkfs, anew: bool) {
    crate::needs_root!();
    let mut volume = Volume::blank(SMALL);
    let zeroes = volume.sha256();
    let mut node = configured(&volume);
    crash(&mut node, point);
    let at_crash = memory(&node);
    let (begun, done) = (intents(&at_crash), formatted(&at_crash));
    let expected = match mkfs {
        Mkfs::NotBegun => (0, 0),
        Mkfs::Unfinished => (1, 0),
        Mkfs::OnRecord => (1, 1),
    };
    assert_eq!((begun.len(), done.len()), expected, "{point} is not where this test thinks");
    let (stood, untouched) = (volume.fs_uuid(), volume.sha256() == zeroes);
    if mkfs == Mkfs::NotBegun {
        assert!(untouched, "written to before the intent was on record");
    }
    if anew {
        volume.attach_anew(&node);
        assert_eq!(volume.fs_uuid(), stood);
    }
    let whole = stood.is_some();
    if mkfs == Mkfs::Unfinished && (anew || !(whole || untouched)) {
        held(&mut node, &volume);
        return;
    }
    opened(&mut node, &volume);
    let memory = memory(&node);
    if whole {
        assert_eq!(volume.fs_uuid(), stood, "another filesystem than before the crash");
        assert_eq!(intents(&memory), begun, "an mkfs was begun on a whole filesystem");
    } else {
        assert_eq!(intents(&memory).len(), begun.len() + 1);
    }
    assert_eq!(formatted(&memory), [volume.fs_uuid().expect("a filesystem")], "what mkfs made is on record once");
}

#[track_caller]
fn with_data(point: &str, anew: bool) {
    crate::needs_root!();
    let mut volume = Volume::with_data();
    let data = content(&volume.tmp.join("tree/data"));
    let stood = volume.fs_uuid();
    let mut node = configured(&volume);
    node.crash_at(Some(point));
    node.spawn();
    if point == "between-ledgers:2" {
        // The second time is the first mark; something new beside the data dir asks for one. What comes before the dir is
        // watched is not noticed.
        node.await_open("main");
        let (beside, mut number) = (node.path("mnt"), 0);
        node.await_killed_nudged(|| {
            number += 1;
            std::fs::create_dir(beside.join(format!("beside-{number}"))).expect("a folder on the volume");
        });
    } else {
        node.await_killed();
    }
    node.crash_at(None);
    if anew {
        volume.attach_anew(&node);
    }
    opened(&mut node, &volume);
    assert_eq!(volume.fs_uuid(), stood);
    assert_eq!(content(&node.path("mnt/data")), data, "data was lost or changed");
    let memory = memory(&node);
    assert_eq!((intents(&memory).len(), formatted(&memory).len()), (0, 0), "mkfs on data");
}

macro_rules! on_a_blank_device {
    ($anew:literal $module:ident { $($name:ident: $point:literal, $mkfs:ident;)* }) => {
        mod $module {
            $(#[test] fn $name() { super::blank($point, super::Mkfs::$mkfs, $anew) })*
        }
    };
}

on_a_blank_device! { false on_a_blank_device {
    after_find: "after-find", NotBegun;
    after_claim: "after-claim", NotBegun;
    after_probe: "after-probe", NotBegun;
    after_lock: "after-lock", NotBegun;
    after_second_reading: "after-second-reading", NotBegun;
    before_intent: "before-intent", NotBegun;
    after_intent: "after-intent", Unfinished;
    as_mkfs_begins: "during-mkfs.ext4:0", Unfinished;
    while_mkfs_writes: "during-mkfs.ext4:1000000", Unfinished;
    after_mkfs: "after-mkfs", Unfinished;
    after_formatted: "after-formatted", OnRecord;
    after_reading_back: "after-probe:2", OnRecord;
    after_mount: "after-mount", OnRecord;
    after_look: "after-look", OnRecord;
    after_decision: "after-decision", OnRecord;
    before_seal: "before-seal", OnRecord;
    after_seal: "after-seal", OnRecord;
    after_second_mount: "after-second-mount", OnRecord;
    after_data_dir: "after-data-dir", OnRecord;
    between_ledgers: "between-ledgers", OnRecord;
    between_entries: "after-volume-entry", OnRecord;
    after_volume_ledger: "after-volume-ledger", OnRecord;
    before_move_mount: "before-move-mount", OnRecord;
    after_move_mount: "after-move-mount", OnRecord;
    before_open_gate: "before-open-gate", OnRecord;
    before_ready_file: "before-ready-file", OnRecord;
    after_ready_file: "after-ready-file", OnRecord;
}}

on_a_blank_device! { true on_a_blank_device_that_is_attached_anew {
    after_second_reading: "after-second-reading", NotBegun;
    after_intent: "after-intent", Unfinished;
    while_mkfs_writes: "during-mkfs.ext4:1000000", Unfinished;
    after_mkfs: "after-mkfs", Unfinished;
    after_formatted: "after-formatted", OnRecord;
    between_ledgers: "between-ledgers", OnRecord;
    after_move_mount: "after-move-mount", OnRecord;
    after_ready_file: "after-ready-file", OnRecord;
}}

macro_rules! on_a_device_with_data {
    ($anew:literal $module:ident { $($name:ident: $point:literal;)* }) => {
        mod $module {
            $(#[test] fn $name() { super::with_data($point, $anew) })*
        }
    };
}

on_a_device_with_data! { false on_a_device_with_data {
    after_find: "after-find";
    after_claim: "after-claim";
    after_probe: "after-probe";
    before_fsck_is_recorded: "before-fsck";
    after_fsck_is_recorded: "after-fsck-recorded";
    during_fsck: "during-e2fsck:0";
    after_fsck: "after-fsck";
    after_the_end_of_fsck_is_recorded: "after-fsck-ended";
    after_mount: "after-mount";
    after_look: "after-look";
    after_decision: "after-decision";
    before_seal: "before-seal";
    after_seal: "after-seal";
    after_second_mount: "after-second-mount";
    between_ledgers: "between-ledgers";
    between_entries: "after-volume-entry";
    after_volume_ledger: "after-volume-ledger";
    before_move_mount: "before-move-mount";
    after_move_mount: "after-move-mount";
    before_open_gate: "before-open-gate";
    before_ready_file: "before-ready-file";
    after_ready_file: "after-ready-file";
    between_ledgers_at_a_mark: "between-ledgers:2";
}}

on_a_device_with_data! { true on_a_device_with_data_that_is_attached_anew {
    after_claim: "after-claim";
    during_fsck: "during-e2fsck:0";
    after_second_mount: "after-second-mount";
    between_ledgers: "between-ledgers";
    after_move_mount: "after-move-mount";
    after_ready_file: "after-ready-file";
}}

// --- what mkfs leaves when it is killed, and who else may have been there -----------------------------------------------

/// libext2fs writes the primary superblock last: a killed mkfs leaves everything but that.
#[track_caller]
fn half_a_filesystem(volume: &Volume, uuid: &str) {
    let whole = disk::sparse(&volume.tmp.join("whole"), WITH_BACKUP);
    run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-U", uuid, &whole.to_string_lossy()]);
    disk::zero(&whole, 0, 4096);
    run(
        "dd",
        &[
            &format!("if={}", whole.display()),
            &format!("of={}", volume.node().display()),
            "bs=1M",
            "conv=notrunc,fsync",
            "status=none",
        ],
    );
}

#[track_caller]
fn consent(node: &Node, verb: &[&str], status: &Value) {
    let volume = status["volume"].as_str().expect("a volume id");
    let answer = node.volhold(&[verb, &["--confirm", volume]].concat());
    assert_eq!(answer.code, Some(0), "{answer:#?}");
}

/// mkfs was killed half-way and the attachment never ended. That nothing validates under another UUID would not be enough
/// to let it run again: the tables that it left cannot be told from what somebody wrote while nobody claimed the device
/// (the next test writes one byte). So it is held, as what it is, and the person has an easy way out: the volume was blank
/// when mkfs began. A second mkfs would save that person a minute, and could cost data. Only where nothing was written yet,
/// or all of it, does the agent go on by itself.
#[test]
fn half_a_filesystem_is_never_made_anew_and_a_person_has_a_way_out() {
    crate::needs_root!();
    let volume = Volume::blank(WITH_BACKUP);
    let mut node = configured(&volume);
    crash(&mut node, "after-intent");
    let begun = intents(&memory(&node));
    half_a_filesystem(&volume, &begun[0]);
    let status = held(&mut node, &volume);
    let message = status["reasons"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains(&begun[0]) && message.contains("interrupted"), "{message}");

    consent(&node, &["release", "main", "--for", "10m"], &status);
    let until = std::time::Instant::now() + crate::common::node::PATIENCE;
    while !output("mkfs.ext4", &["-q", "-F", &volume.node().to_string_lossy()]).status.success() {
        assert!(std::time::Instant::now() < until, "the device was not let go");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let made = volume.fs_uuid().expect("a filesystem");
    assert_eq!(node.volhold(&["retry", "main"]).code, Some(0));
    // By another hand than ours: that is for a person to say.
    let told = |status: &Value| {
        let message = status["reasons"][0]["message"].as_str().unwrap_or_default();
        codes(&status["reasons"]).first().is_some_and(|code| code == "intent-unfinished") && message.contains(&made)
    };
    let status = node.await_status("main", "the new filesystem is told", told);
    assert_eq!(status["gate"], "held");
    consent(&node, &["adopt", "main", "--new-cluster"], &status);
    let status = node.await_status("main", "open after the answer", |status| status["gate"] == "open");
    assert_eq!(status["fs_uuid"], made.as_str());
    assert_eq!(intents(&memory(&node)), begun, "only the person has formatted");
    // The intent has come to an end: the next agent knows the volume.
    node.kill_agent();
    opened(&mut node, &volume);
}

#[test]
fn a_whole_filesystem_of_an_attachment_that_has_ended_is_opened_when_a_person_says_so() {
    crate::needs_root!();
    let mut volume = Volume::blank(SMALL);
    let mut node = configured(&volume);
    crash(&mut node, "after-mkfs");
    let begun = intents(&memory(&node));
    assert_eq!(volume.fs_uuid().as_ref(), begun.first());
    volume.attach_anew(&node);
    let status = held(&mut node, &volume);
    consent(&node, &["adopt", "main"], &status);
    let status = node.await_status("main", "open after the answer", |status| status["gate"] == "open");
    assert_eq!(status["fs_uuid"], begun[0].as_str());
    assert_eq!(intents(&memory(&node)), begun);
}

#[test]
fn one_byte_that_was_written_after_the_crash_keeps_mkfs_from_running_again() {
    crate::needs_root!();
    let volume = Volume::blank(SMALL);
    let mut node = configured(&volume);
    crash(&mut node, "after-intent");
    disk::write_at(volume.node(), 16_253_317, &[1]);
    held(&mut node, &volume);
}

#[test]
fn a_filesystem_that_somebody_made_after_the_crash_is_kept() {
    crate::needs_root!();
    let volume = Volume::blank(SMALL);
    let mut node = configured(&volume);
    crash(&mut node, "after-intent");
    // While systemd keeps the claim of the dead agent nobody can; somebody has stopped the service.
    let name = volume.node().to_string_lossy().into_owned();
    assert!(!output("mkfs.ext4", &["-q", "-F", "-F", &name]).status.success(), "the claim died with the agent");
    node.manager.empty_store();
    run("mkfs.ext4", &["-q", "-F", &volume.node().to_string_lossy()]);
    held(&mut node, &volume);
}
