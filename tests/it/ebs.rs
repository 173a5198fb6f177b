//! Volumes of EC2, from nowhere to an open gate: the real agent and the real SDK, against `tests/ec2/sim.py`.
//!
//! What each state and each error of EC2 means is decided in `cloud`, and tested there without the SDK. Here the two are put
//! together, with a real device, a real filesystem and real data.

use crate::common::ec2::{self, Ec2, Instance};
use crate::common::node::codes;
use crate::common::{Loop, Node, Tmp, disk, fixture, run};
use serde_json::{Value, json};

/// Bytes of a volume of 1 GiB, which is the least that EC2 has.
const GIB: u64 = 1 << 30;

/// A member's volume in EC2, with a filesystem and data, attached nowhere, and the machine that is to have it.
struct World {
    ec2: Ec2,
    node: Node,
    own: Instance,
    volume: String,
    device: Loop,
    _tmp: Tmp,
}

impl World {
    #[track_caller]
    fn new() -> Self {
        World::with(&json!({ "tags": { "KubernetesCluster": "c", "k8s.io/etcd/main": "a/a,b,c" } }))
    }

    #[track_caller]
    fn with(about: &Value) -> Self {
        World::on(about, etcd_volume)
    }

    /// With nothing on the volume, as EC2 hands it out.
    #[track_caller]
    fn blank(about: &Value) -> Self {
        World::on(about, |tmp| disk::sparse(&tmp.join("volume"), GIB))
    }

    #[track_caller]
    fn on(about: &Value, image: impl FnOnce(&Tmp) -> std::path::PathBuf) -> Self {
        let ec2 = Ec2::start();
        let tmp = Tmp::new();
        let device = Loop::new(&image(&tmp));
        let own = ec2.instance();
        let volume = ec2.volume(about);
        ec2.disk(&volume, &device);
        let mut node = Node::new();
        ec2.is_machine(&mut node, &own);
        World { ec2, node, own, volume, device, _tmp: tmp }
    }

    fn by_id(&self) -> String {
        format!("volume_id = \"{}\"", self.volume)
    }

    #[track_caller]
    fn configure(&self, named: &str) {
        let guard = ec2::guard("main", named, &self.device, &self.node.path("mnt")).data_dir("data");
        self.node.configure(&[guard]);
    }

    /// What it is remembered by stands in the volume's tags.
    #[track_caller]
    fn await_written(&mut self) -> Value {
        self.node.await_status("main", "a witness", |status| !status["witness"]["written_at"].is_null());
        self.ec2.rig("tags", &json!({ "volume": self.volume }))
    }

    /// The instance ends, and another one that has nothing on its own disks takes its place, and its volume.
    #[track_caller]
    fn replace(&mut self) {
        self.node.reboot();
        std::fs::remove_dir_all(self.node.path("state/guards")).expect("what the old instance remembered");
        self.ec2.rig("instance-state", &json!({ "instance": self.own.id, "state": "terminated" }));
        self.ec2.rig("detach", &json!({ "volume": self.volume }));
        self.own = self.ec2.instance();
        self.ec2.is_machine(&mut self.node, &self.own);
    }

    #[track_caller]
    fn await_waiting(&mut self, for_what: &str) -> Value {
        let status = self.node.await_status("main", for_what, |status| {
            status["waits"]["message"].as_str().is_some_and(|message| message.contains(for_what))
        });
        assert_eq!(status["gate"], "waiting", "{status:#}");
        assert_eq!(status["state"], "attaching", "{status:#}");
        self.node.assert_closed("main");
        status
    }
}

/// An ext4 of 1 GiB with an etcd data dir in `data`.
fn etcd_volume(tmp: &Tmp) -> std::path::PathBuf {
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let image = disk::sparse(&tmp.join("volume"), GIB);
    disk::mkfs_ext4(&image, Some(&tree));
    image
}

#[test]
fn a_volume_is_attached_found_by_its_serial_and_opened_and_opens_again_without_any_cloud() {
    crate::needs_root!();
    let mut world = World::new();
    world.configure(&world.by_id());
    world.ec2.rig("delay", &json!({ "attach": 1.0 }));
    world.node.start();
    let status = world.node.await_open("main");
    assert_eq!(status["volume"], world.volume, "{status:#}");
    assert_eq!(status["device"]["volume_id"], world.volume, "{status:#}");
    assert_eq!(world.node.gate_check("main").code, Some(0));
    assert_eq!(world.ec2.count("AttachVolume"), 1);
    // What is remembered in tags comes afterwards, and nothing waits for it.
    world.await_written();
    let calls = world.ec2.calls();
    assert!(calls.len() <= 4, "one look, one for the names, one to attach, one for the tags: {calls:?}");

    // The volume stays attached over a reboot, and is on record here: nobody is asked.
    world.node.reboot();
    world.ec2.rig("off", &json!({ "off": true }));
    world.ec2.rig("metadata", &json!({ "instance": world.own.id, "off": true }));
    world.node.start();
    world.node.await_open("main");
    assert_eq!(world.ec2.calls().len(), calls.len(), "EC2 was asked for what needs no cloud");
}

#[test]
fn one_configuration_publishes_each_masters_volume_where_its_etcd_manager_looks() {
    crate::needs_root!();
    let mut world = World::new();
    let named = "volume_tags = [\"KubernetesCluster=c\", \"k8s.io/etcd/main\"]";
    let guard = |node: &Node, device| ec2::guard("main", named, device, &node.path("master-{volume}")).data_dir("data");
    world.node.configure(&[guard(&world.node, &world.device)]);
    let at = world.node.path(&format!("master-{}", world.volume));
    world.node.start();
    let status = world.node.await_open("main");
    assert_eq!(status["publish"], json!(at), "{status:#}");
    assert!(at.join("data/member").is_dir(), "the volume is not where etcd-manager looks");
    // An agent that comes again finds it there, with and without a reboot, and the place sealed beneath.
    assert_eq!(world.node.stop_agent(), Some(0));
    world.node.start();
    world.node.await_open("main");
    world.node.reboot();
    assert!(run_fails("touch", &at.join("x")), "the place is not sealed");
    world.node.start();
    let status = world.node.await_open("main");
    assert_eq!(status["publish"], json!(at), "{status:#}");
    assert!(!world.node.path("master-{volume}").exists(), "a place was made that is none");
    assert_eq!(world.node.volhold(&["gate", "check", "main"]).code, Some(0));
}

fn run_fails(program: &str, path: &std::path::Path) -> bool {
    !crate::common::output(program, &[&path.to_string_lossy()]).status.success()
}

#[test]
fn a_volume_named_by_tags_is_found_and_after_a_reboot_known_without_any_cloud() {
    crate::needs_root!();
    let mut world = World::new();
    // The other members' volumes, and one of another cluster.
    world
        .ec2
        .volume(&json!({ "zone": "eu-west-1b", "tags": { "KubernetesCluster": "c", "k8s.io/etcd/main": "b/a,b,c" } }));
    world.ec2.volume(&json!({ "tags": { "KubernetesCluster": "other", "k8s.io/etcd/main": "a/a" } }));
    world.configure("volume_tags = [\"KubernetesCluster=c\", \"k8s.io/etcd/main\"]");
    world.node.start();
    let status = world.node.await_open("main");
    assert_eq!(status["volume"], world.volume, "{status:#}");
    world.await_written();
    let calls = world.ec2.calls().len();

    world.node.reboot();
    world.ec2.rig("off", &json!({ "off": true }));
    world.ec2.rig("metadata", &json!({ "instance": world.own.id, "off": true }));
    world.node.start();
    let status = world.node.await_open("main");
    assert_eq!(status["volume"], world.volume, "{status:#}");
    assert_eq!(world.ec2.calls().len(), calls, "EC2 was asked for what needs no cloud");
}

#[test]
fn a_volume_that_a_dying_master_has_is_waited_for_by_name_and_its_identity_goes_on() {
    crate::needs_root!();
    let mut world = World::new();
    let old = world.ec2.instance();
    world.ec2.rig("attach", &json!({ "volume": world.volume, "instance": old.id }));
    world.ec2.rig("instance-state", &json!({ "instance": old.id, "state": "shutting-down" }));
    world.configure("volume_tags = [\"KubernetesCluster=c\", \"k8s.io/etcd/main\"]");
    world.node.start();
    world.await_waiting(&old.id);
    assert_eq!(world.ec2.count("AttachVolume"), 0);
    world.ec2.rig("instance-state", &json!({ "instance": old.id, "state": "terminated" }));
    world.ec2.rig("detach", &json!({ "volume": world.volume }));
    let status = world.node.await_open("main");
    assert_eq!(status["volume"], world.volume, "{status:#}");
    assert_eq!(status["data_dir"]["path"], "data", "{status:#}");
}

#[test]
fn a_volume_that_a_running_master_has_is_held_and_never_taken() {
    crate::needs_root!();
    let mut world = World::new();
    let other = world.ec2.instance();
    world.ec2.rig("attach", &json!({ "volume": world.volume, "instance": other.id }));
    world.configure(&world.by_id());
    world.node.start();
    let status = world.node.await_held("main", "volume-elsewhere");
    let message = status["reasons"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains(&other.id) && message.contains("since"), "{status:#}");
    assert_eq!(world.ec2.count("AttachVolume"), 0);
    // It is let go: nobody has to say anything.
    world.ec2.rig("detach", &json!({ "volume": world.volume }));
    world.node.await_status("main", "an open gate", |status| status["gate"] == "open");
}

#[test]
fn a_copy_with_the_same_tags_is_a_hold_that_lists_both_and_touches_neither() {
    crate::needs_root!();
    let mut world = World::new();
    let copy = world.ec2.volume(&json!({
        "tags": { "KubernetesCluster": "c", "k8s.io/etcd/main": "a/a,b,c" }, "snapshot": true, "hours": 1
    }));
    world.configure("volume_tags = [\"KubernetesCluster=c\", \"k8s.io/etcd/main\"]");
    world.node.start();
    let status = world.node.await_held("main", "volume-ambiguous");
    let message = status["reasons"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains(&world.volume) && message.contains(&copy), "{status:#}");
    assert_eq!(world.ec2.count("AttachVolume"), 0);
}

#[test]
fn a_volume_of_another_zone_and_one_that_may_be_shared_are_held_without_asking_for_them() {
    crate::needs_root!();
    for (about, code) in
        [(json!({ "zone": "eu-west-1b" }), "attach-refused"), (json!({ "multi_attach": true }), "multi-attach")]
    {
        let mut world = World::with(&about);
        world.configure(&world.by_id());
        world.node.start();
        world.node.await_held("main", code);
        assert_eq!(world.ec2.count("AttachVolume"), 0);
    }
}

#[test]
fn an_answer_that_is_lost_is_looked_after_and_throttling_is_waited_out() {
    crate::needs_root!();
    let mut world = World::new();
    world.ec2.rig("fault", &json!({ "action": "DescribeVolumes", "code": "RequestLimitExceeded", "status": 503 }));
    world.ec2.rig("fault", &json!({ "action": "AttachVolume", "done": true }));
    world.configure(&world.by_id());
    world.node.start();
    let status = world.await_waiting("too many requests");
    assert_eq!(status["waits"]["code"], "throttled", "{status:#}");
    world.node.await_open("main");
    assert_eq!(world.ec2.count("AttachVolume"), 1, "{:?}", world.ec2.calls());
}

#[test]
fn a_permission_that_is_missing_is_named() {
    crate::needs_root!();
    let mut world = World::new();
    world.ec2.rig(
        "fault",
        &json!({ "action": "AttachVolume", "code": "UnauthorizedOperation", "status": 403, "times": 1000,
                 "message": "You are not authorized. Encoded authorization failure message: abcdef" }),
    );
    world.configure(&world.by_id());
    world.node.start();
    let status = world.node.await_held("main", "no-permission");
    let message = status["reasons"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("ec2:AttachVolume"), "{status:#}");
    assert!(!status.to_string().contains("abcdef"), "what changes with each answer is no part of a reason: {status:#}");
}

#[test]
fn no_credential_gets_into_the_log_whatever_it_is_asked_to_tell() {
    crate::needs_root!();
    let mut world = World::new();
    let secret = "canary0f5a9c71e2";
    world.ec2.rig("metadata", &json!({ "instance": world.own.id, "secret": secret }));
    world.node.agent_env("VOLHOLD_LOG", Some("trace"));
    world.configure(&world.by_id());
    world.node.start();
    world.node.await_open("main");
    assert_eq!(world.node.stop_agent(), Some(0));
    let log = std::fs::read_to_string(world.node.path("agent.log")).expect("the log");
    assert!(log.contains("DEBUG") || log.contains("TRACE"), "the log tells no more than usual:\n{log}");
    // The secret itself, the session token made from it, and the key's name.
    for word in [secret, "ASIARIG"] {
        assert!(!log.contains(word), "the log holds {word}");
    }
    for (name, content) in world.node.kept_files() {
        assert!(!content.contains(secret), "{name} holds a credential");
    }
}

#[test]
fn a_new_volume_is_formatted_on_the_word_of_ec2_and_not_without_it() {
    crate::needs_root!();
    for spoken in [true, false] {
        let mut world = World::blank(&json!({ "hours": 1 }));
        if !spoken {
            // It is attached and known by its serial, so it is found; but nobody says how large it is and where it comes from.
            world.ec2.rig("attach", &json!({ "volume": world.volume, "instance": world.own.id }));
            world.ec2.rig("off", &json!({ "off": true }));
        }
        world.configure(&world.by_id());
        let before = world.device.sha256();
        world.node.start();
        let status = world.node.await_verdict("main");
        if spoken {
            assert_eq!(status["gate"], "open", "{status:#}");
            assert!(!status["fs_uuid"].is_null(), "{status:#}");
        } else {
            assert_eq!(status["gate"], "held", "{status:#}");
            assert_eq!(world.device.sha256(), before, "formatted without EC2's word: {:?}", codes(&status["reasons"]));
        }
    }
}

/// Tags of kops for a member of a cluster of two.
fn tags(member: &str) -> Value {
    json!({ "KubernetesCluster": "c", "k8s.io/etcd/main": format!("{member}/a,b") })
}

#[test]
fn a_blank_volume_beside_the_older_one_of_another_member_is_a_replacement_and_not_a_new_cluster() {
    crate::needs_root!();
    for (age_of_the_other, opens) in [(100, false), (1, true)] {
        let mut world = World::blank(&json!({ "hours": 1, "tags": tags("a") }));
        world.ec2.volume(&json!({ "hours": age_of_the_other, "tags": tags("b") }));
        world.configure(&world.by_id());
        world.node.start();
        let status = world.node.await_verdict("main");
        if opens {
            assert_eq!(status["gate"], "open", "{status:#}");
        } else {
            assert_eq!(status["gate"], "held", "{status:#}");
            assert!(codes(&status["reasons"]).contains(&"blank-replacement".to_owned()), "{status:#}");
        }
    }
}

#[test]
fn the_fleet_is_read_page_by_page_by_anybody_and_shows_who_stands_out() {
    let ec2 = Ec2::start();
    let machine = ec2.instance();
    let (a, b) = (ec2.volume(&json!({ "tags": tags("a") })), ec2.volume(&json!({ "tags": tags("b"), "hours": 1 })));
    ec2.volume(&json!({ "tags": { "Name": "somebody else's" } }));
    ec2.volume(&json!({ "tags": { "KubernetesCluster": "other", "k8s.io/etcd/main": "x/x" } }));
    ec2.rig("attach", &json!({ "volume": a, "instance": machine.id }));
    ec2.rig("off", &json!({ "page": 1 }));
    let fleet = |more: &[&str]| {
        let asked = std::process::Command::new(env!("CARGO_BIN_EXE_volhold"))
            .args(["fleet", "-o", "json"])
            .args(more)
            .env("AWS_ENDPOINT_URL", ec2.url())
            .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &machine.metadata)
            .env("AWS_CONFIG_FILE", "/nonexistent")
            .env("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
            .output()
            .expect("volhold");
        let text = String::from_utf8_lossy(&asked.stdout);
        let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {asked:?}"));
        (asked.status.code(), document)
    };
    let (code, all) = fleet(&[]);
    assert_eq!((code, all["members"].as_array().map(Vec::len)), (Some(4), Some(3)), "{all:#}");
    assert!(ec2.count("DescribeVolumes") >= 3, "one volume a page: {:?}", ec2.calls());
    let (code, one) = fleet(&["--cluster", "c"]);
    assert_eq!(code, Some(4), "{one:#}");
    let members = one["members"].as_array().expect("members");
    let of = |member: &str| members.iter().find(|row| row["member"] == member).expect("a row");
    assert_eq!((members.len(), &of("a")["volume"], &of("b")["volume"]), (2, &json!(a), &json!(b)), "{one:#}");
    assert_eq!(of("a")["odd"], json!([]), "{one:#}");
    assert_eq!(of("b")["odd"], json!(["unattached", "younger"]), "{one:#}");
    assert_eq!((&of("a")["volume_id"], &of("a")["attached_to"]), (&json!(a), &json!([machine.id])), "{one:#}");
    assert!(of("a")["seen_at"].is_null() && of("a")["progress"].is_null(), "{one:#}");
    assert_eq!(fleet(&["--cluster", "nobody's"]).0, Some(5), "no such cluster");
}

#[test]
fn whose_data_it_was_is_remembered_in_tags_and_goes_on_with_them_on_the_next_instance() {
    crate::needs_root!();
    let mut world = World::new();
    world.configure(&world.by_id());
    world.node.start();
    let status = world.node.await_open("main");
    let tags = world.await_written();
    let print = &status["data_dir"]["fingerprint"];
    assert_eq!(tags["volhold/fs-uuid"], status["fs_uuid"], "{tags:#}");
    assert_eq!(tags["volhold/cluster-id"], print["cluster_id"], "{tags:#}");
    assert_eq!(tags["volhold/member-id"], print["member_id"], "{tags:#}");
    assert_eq!(tags["volhold/volume"], world.volume, "{tags:#}");
    assert_eq!(tags["volhold/holder"], format!("{} main", world.own.id), "{tags:#}");
    assert!(tags["volhold/progress"].as_str().is_some_and(|progress| progress.contains("keys=")), "{tags:#}");
    assert!(tags["volhold/formatted"].is_null(), "volhold did not make it: {tags:#}");
    assert_eq!(tags["k8s.io/etcd/main"], "a/a,b,c", "{tags:#}");

    // The instance ends, and another one with nothing on its disks has the volume.
    world.replace();
    world.node.start();
    let status = world.node.await_open("main");
    assert_eq!(&status["data_dir"]["fingerprint"]["cluster_id"], &tags["volhold/cluster-id"], "{status:#}");
}

#[test]
fn a_volume_whose_bytes_are_gone_is_not_formatted_for_its_tags_remember_it() {
    crate::needs_root!();
    let mut world = World::with(&json!({ "hours": 1 }));
    world.configure(&world.by_id());
    world.node.start();
    world.node.await_open("main");
    world.await_written();
    world.replace();
    // Every byte is zero, as on a new volume, and it is as young as one.
    run("blkdiscard", &["--force", &world.device.name()]);
    let before = world.device.sha256();
    world.node.start();
    let status = world.node.await_held("main", "history-says-used");
    let message = status["reasons"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("its tags say so"), "{status:#}");
    assert_eq!(world.device.sha256(), before, "it was written to");
}

#[test]
fn another_filesystem_than_the_tags_name_is_neither_checked_nor_mounted() {
    crate::needs_root!();
    let mut world = World::with(&json!({ "hours": 1 }));
    world.configure(&world.by_id());
    world.node.start();
    world.node.await_open("main");
    world.await_written();
    world.replace();
    disk::mkfs_ext4(world.device.node(), None);
    let before = world.device.sha256();
    world.node.start();
    world.node.await_held("main", "filesystem-replaced");
    assert_eq!(world.device.sha256(), before, "it was written to");
}

#[test]
fn tags_that_may_not_be_written_are_told_once_and_cost_nothing_else() {
    crate::needs_root!();
    let mut world = World::new();
    world.ec2.rig(
        "fault",
        &json!({ "action": "CreateTags", "code": "UnauthorizedOperation", "status": 403, "times": 1000 }),
    );
    world.configure(&world.by_id());
    world.node.start();
    world.node.await_open("main");
    let status = world.node.await_status("main", "the trouble", |status| !status["witness"]["trouble"].is_null());
    assert_eq!(status["witness"]["trouble"]["code"], "witness-unreachable", "{status:#}");
    let message = status["witness"]["trouble"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("ec2:CreateTags is not permitted"), "{status:#}");
    assert_eq!((&status["gate"], &status["would_hold"]), (&json!("open"), &json!(false)), "{status:#}");
    assert_eq!(status["warnings"], json!([]), "{status:#}");
    world.node.stop_agent();
    let log = std::fs::read_to_string(world.node.path("agent.log")).expect("the log");
    assert_eq!(log.matches("ec2:CreateTags is not permitted").count(), 1, "{log}");
}

#[test]
fn who_does_not_want_tags_gets_none() {
    crate::needs_root!();
    let mut world = World::new();
    world.configure(&format!("{}\nwitness = \"read\"", world.by_id()));
    world.node.start();
    let status = world.node.await_open("main");
    assert!(status["witness"].is_null(), "{status:#}");
    assert_eq!(world.node.stop_agent(), Some(0));
    assert_eq!(world.ec2.count("CreateTags"), 0);
}

/// What the snapshots of the account are tagged with.
fn snapshots(ec2: &Ec2) -> Vec<Value> {
    ec2.rig("snapshots", &json!({})).as_array().expect("a list").clone()
}

/// A volume that was not unmounted, so that e2fsck has to write.
fn unclean(world: &World) {
    let at = world.node.path("elsewhere");
    let mounted = disk::Mounted::new(world.device.node(), &at);
    std::fs::write(at.join("half-written"), [7; 4096]).expect("a file");
    run("sync", &["-f", &at.to_string_lossy()]);
    // As a power cut leaves it: the image, not the filesystem, is what comes back.
    let bytes = disk::read_at(world.device.node(), 1024, 1024);
    drop(mounted);
    disk::write_at(world.device.node(), 1024, &bytes);
}

#[test]
fn before_a_repair_that_writes_a_snapshot_is_taken_or_the_guard_is_held_before_it() {
    crate::needs_root!();
    for (policy, permitted, opens) in
        [("off", true, true), ("required", true, true), ("required", false, false), ("best-effort", false, true)]
    {
        let mut world = World::new();
        unclean(&world);
        if !permitted {
            world.ec2.rig(
                "fault",
                &json!({ "action": "CreateSnapshot", "code": "UnauthorizedOperation", "status": 403, "times": 1000 }),
            );
        }
        world.configure(&format!("{}\nsnapshot = \"{policy}\"", world.by_id()));
        let before = world.device.sha256();
        world.node.start();
        let status = world.node.await_verdict("main");
        let taken = snapshots(&world.ec2);
        if opens {
            assert_eq!(status["gate"], "open", "{policy} {permitted}: {status:#}");
        } else {
            assert_eq!(codes(&status["reasons"]), ["snapshot-refused"], "{status:#}");
            let message = status["reasons"][0]["message"].as_str().unwrap_or_default();
            assert!(message.contains("ec2:CreateSnapshot is not permitted"), "{status:#}");
            assert_eq!(world.device.sha256(), before, "{policy}: repaired without the snapshot that is required");
        }
        assert_eq!(taken.len(), usize::from(policy == "required" && permitted), "{policy} {permitted}: {taken:#?}");
        if let Some(tags) = taken.first() {
            assert_eq!((&tags["volhold/guard"], &tags["volhold/reason"]), (&json!("main"), &json!("fsck")), "{tags:#}");
            assert_eq!(tags["volhold/volume"], world.volume, "{tags:#}");
            assert_eq!(tags["volhold/fs-uuid"], status["fs_uuid"], "{tags:#}");
            let history = world.node.volhold(&["history", "main", "-o", "json"]).json();
            let kinds: Vec<&str> = history["entries"]
                .as_array()
                .expect("entries")
                .iter()
                .filter_map(|entry| entry["decision"].as_str())
                .filter(|kind| matches!(*kind, "snapshot" | "fsck"))
                .collect();
            assert_eq!(kinds.first(), Some(&"snapshot"), "{history:#}");
        }
    }
}

#[test]
fn a_clean_filesystem_needs_no_snapshot_and_a_person_gets_one_any_time() {
    crate::needs_root!();
    let mut world = World::new();
    world.configure(&format!("{}\nsnapshot = \"required\"", world.by_id()));
    world.node.start();
    let status = world.node.await_open("main");
    assert_eq!(snapshots(&world.ec2).len(), 0, "nothing was to be repaired");
    // The answer is lost, and nothing is taken twice.
    world.ec2.rig("fault", &json!({ "action": "CreateSnapshot", "done": true }));
    let (url, metadata) = (world.ec2.url().to_owned(), world.own.metadata.clone());
    let aws = [
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.as_str()),
        ("AWS_CONFIG_FILE", "/nonexistent"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"),
    ];
    let answer = world.node.volhold_with(&["snapshot", "main", "--wait", "-o", "json"], &aws);
    assert_eq!(answer.code, Some(0), "{answer:#?}");
    let change = answer.json();
    assert!(change["snapshot"].as_str().is_some_and(|id| id.starts_with("snap-")), "{change:#}");
    assert_eq!(change["done"], true, "{change:#}");
    let taken = snapshots(&world.ec2);
    assert_eq!(taken.len(), 1, "{taken:#?}");
    let print = &status["data_dir"]["fingerprint"];
    assert_eq!(taken[0]["volhold/cluster-id"], print["cluster_id"], "{taken:#?}");
    let history = world.node.volhold(&["history", "main", "-o", "json"]).json();
    assert!(history.to_string().contains(change["snapshot"].as_str().expect("an id")), "{history:#}");

    world.ec2.rig(
        "fault",
        &json!({ "action": "CreateSnapshot", "code": "UnauthorizedOperation", "status": 403, "times": 1000 }),
    );
    let refused = world.node.volhold_with(&["snapshot", "main"], &aws);
    assert_eq!(refused.code, Some(1), "{refused:#?}");
    assert!(refused.stderr.contains("ec2:CreateSnapshot is not permitted"), "{refused:#?}");

    // doctor asks without doing, and says what is missing.
    let calls = world.ec2.count("AttachVolume");
    let doctor = world.node.volhold_with(&["doctor", "main", "-o", "json"], &aws).json();
    let check = doctor["checks"].as_array().expect("checks").iter().find(|check| check["id"] == "ec2");
    let check = check.unwrap_or_else(|| panic!("{doctor:#}"));
    assert_eq!(check["result"], "fail", "{check:#}");
    assert!(check["message"].as_str().is_some_and(|message| message.contains("ec2:CreateSnapshot")), "{check:#}");
    assert_eq!(world.ec2.count("AttachVolume"), calls + 1, "asked with DryRun");
    assert_eq!(snapshots(&world.ec2).len(), 1);
}

#[test]
fn adopt_takes_the_snapshot_that_the_policy_requires_or_records_nothing() {
    crate::needs_root!();
    let mut world = World::with(&json!({ "hours": 1 }));
    world.configure(&format!("{}\nsnapshot = \"required\"", world.by_id()));
    world.node.start();
    world.node.await_open("main");
    world.await_written();
    world.node.reboot();
    disk::mkfs_ext4(world.device.node(), None);
    world.node.start();
    world.node.await_held("main", "filesystem-replaced");
    let (url, metadata) = (world.ec2.url().to_owned(), world.own.metadata.clone());
    let aws = [
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.as_str()),
        ("AWS_CONFIG_FILE", "/nonexistent"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"),
    ];
    let adopt = ["adopt", "main", "--new-cluster", "--confirm", &world.volume];
    world.ec2.rig("fault", &json!({ "action": "CreateSnapshot", "code": "UnauthorizedOperation", "status": 403 }));
    let refused = world.node.volhold_with(&adopt, &aws);
    assert_eq!(refused.code, Some(4), "{refused:#?}");
    assert!(refused.stderr.contains("nothing was recorded"), "{refused:#?}");
    let history = world.node.volhold(&["history", "main", "-o", "json"]).json();
    assert!(!history.to_string().contains("\"adopt\""), "{history:#}");
    let adopted = world.node.volhold_with(&adopt, &aws);
    assert_eq!(adopted.code, Some(0), "{adopted:#?}");
    assert_eq!(snapshots(&world.ec2)[0]["volhold/reason"], "adopt");
    world.node.await_status("main", "an open gate", |status| status["gate"] == "open");
}

#[test]
fn slow_metadata_delays_a_first_boot_and_no_other_and_without_an_answer_it_is_waited_for_by_name() {
    crate::needs_root!();
    let mut world = World::new();
    world.ec2.rig("metadata", &json!({ "instance": world.own.id, "delay": 30.0 }));
    world.configure(&world.by_id());
    world.node.start();
    let status = world.await_waiting("metadata");
    assert_eq!(status["waits"]["code"], "provider-unreachable", "{status:#}");
    assert_eq!(world.ec2.count("AttachVolume"), 0);
    // Slow, but within what is waited for.
    world.ec2.rig("metadata", &json!({ "instance": world.own.id, "delay": 0.4 }));
    world.node.await_status("main", "an open gate", |status| status["gate"] == "open");
    world.node.reboot();
    world.ec2.rig("metadata", &json!({ "instance": world.own.id, "delay": 30.0 }));
    world.node.start();
    let status = world.node.await_open("main");
    assert_eq!(status["volume"], world.volume, "{status:#}");
}

#[test]
fn what_ec2_does_not_show_yet_is_not_asked_for_twice() {
    crate::needs_root!();
    let mut world = World::new();
    world.ec2.rig("delay", &json!({ "attach": 1.0, "lag": 3.0 }));
    world.configure(&world.by_id());
    world.node.start();
    world.node.await_open("main");
    assert_eq!(world.ec2.count("AttachVolume"), 1, "{:?}", world.ec2.calls());
}

#[test]
fn a_volume_is_found_by_its_tags_on_whichever_page_it_is() {
    crate::needs_root!();
    let mut world = World::new();
    for n in 0..4 {
        world.ec2.volume(&json!({ "tags": { "KubernetesCluster": format!("other-{n}"), "k8s.io/etcd/main": "a/a" } }));
    }
    world.ec2.rig("off", &json!({ "page": 1 }));
    world.configure("volume_tags = [\"KubernetesCluster=c\", \"k8s.io/etcd/main\"]");
    world.node.start();
    let status = world.node.await_open("main");
    assert_eq!(status["volume"], world.volume, "{status:#}");
    assert!(world.ec2.count("DescribeVolumes") >= 5, "one volume a page: {:?}", world.ec2.calls());
}

#[test]
fn volumes_that_were_swapped_between_members_are_held_by_what_is_on_them() {
    crate::needs_root!();
    // The tag says b, and what lies on it is the data of a member of another name.
    let mut world = World::with(&json!({ "tags": { "KubernetesCluster": "c", "k8s.io/etcd/main": "b/a,b,c" } }));
    world.configure("volume_tags = [\"KubernetesCluster=c\", \"k8s.io/etcd/main\"]\nmember = \"etcd-b\"");
    world.node.start();
    let status = world.node.await_held("main", "other-member");
    let message = status["reasons"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("etcd-b"), "{status:#}");
    assert!(status["witness"].is_null(), "a held volume is not written about: {status:#}");
    assert_eq!(world.ec2.count("CreateTags"), 0);
}

/// One of three masters of a new cluster.
struct Master {
    node: Node,
    own: Instance,
    device: Loop,
    volume: String,
}

#[test]
fn three_masters_of_a_new_cluster_open_in_any_order() {
    crate::needs_root!();
    for order in [[0, 1, 2], [2, 0, 1]] {
        let ec2 = Ec2::start();
        let tmp = Tmp::new();
        let mut masters: Vec<Master> = ["a", "b", "c"]
            .into_iter()
            .map(|member| {
                let device = Loop::new(&disk::sparse(&tmp.join(member), GIB));
                let tags = json!({ "KubernetesCluster": "c", "k8s.io/etcd/main": format!("{member}/a,b,c") });
                let volume = ec2.volume(&json!({ "hours": 0, "encrypted": true, "tags": tags }));
                ec2.disk(&volume, &device);
                Master { node: Node::new(), own: ec2.instance(), device, volume }
            })
            .collect();
        for n in order {
            let Master { node, own, device, volume } = &mut masters[n];
            // The simulator's disks are those of one machine at a time.
            ec2.is_machine(node, own);
            let named = format!("volume_id = \"{volume}\"");
            let guard = ec2::guard("main", &named, device, &node.path("mnt")).data_dir("data");
            node.configure(&[guard]);
            node.start();
            let status = node.await_verdict("main");
            assert_eq!(status["gate"], "open", "{order:?} {n}: {status:#}");
            // A master that is up has told its tags before the next one comes: that is no reason to hold that one.
            node.await_status("main", "a witness", |status| !status["witness"]["written_at"].is_null());
            let tags = ec2.rig("tags", &json!({ "volume": volume }));
            assert_eq!(tags["volhold/fs-uuid"], status["fs_uuid"], "{tags:#}");
            assert!(tags["volhold/formatted"].as_str().is_some_and(|by| by.ends_with(&own.id)), "{tags:#}");
        }
    }
}
