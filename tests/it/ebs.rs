//! Volumes of EC2, from nowhere to an open gate: the real agent and the real SDK, against `tests/ec2/sim.py`.
//!
//! What each state and each error of EC2 means is decided in `cloud`, and tested there without the SDK. Here the two are put
//! together, with a real device, a real filesystem and real data.

use crate::common::ec2::{self, Ec2, Instance, ZONE};
use crate::common::node::codes;
use crate::common::{Loop, Node, Tmp, disk, fixture};
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
        let ec2 = Ec2::start();
        let tmp = Tmp::new();
        let device = Loop::new(&etcd_volume(&tmp));
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
    let calls = world.ec2.calls();
    assert!(calls.len() <= 4, "one look, one for the names, one to attach, at most one more: {calls:?}");

    // The volume stays attached over a reboot, and is on record here: nobody is asked.
    world.node.reboot();
    world.ec2.rig("off", &json!({ "off": true }));
    world.ec2.rig("metadata", &json!({ "instance": world.own.id, "off": true }));
    world.node.start();
    world.node.await_open("main");
    assert_eq!(world.ec2.calls().len(), calls.len(), "EC2 was asked for what needs no cloud");
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
    let calls = world.ec2.calls().len();

    world.node.reboot();
    world.ec2.rig("off", &json!({ "off": true }));
    world.ec2.rig("metadata", &json!({ "instance": world.own.id, "off": true }));
    world.node.start();
    let status = world.node.await_open("main");
    assert_eq!(status["volume"], world.volume, "{status:#}");
    assert_eq!(world.ec2.calls().len(), calls, "EC2 was asked for what needs no cloud");
}
