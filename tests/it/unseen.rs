//! An etcd-manager whose container was started before the volume was mounted. What stands for it here is a script in a mount
//! namespace of its own, which a fake `/proc` calls by that name (the real one is every test's); and there is no kubelet, so that
//! one which is ended stays ended.

use crate::common::ec2::{self, Ec2};
use crate::common::node::codes;
use crate::common::{Loop, Node, Tmp, disk, fixture};
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, Command, Stdio};

/// Ends with the test.
struct Manager(Child);

impl Manager {
    fn start(tmp: &Tmp, tag: &str) -> Self {
        let script = tmp.join("stand-in");
        if !script.exists() {
            // It reads from a pipe into which nobody writes: it ends with the test's process, and on SIGTERM.
            std::fs::write(&script, "#!/bin/sh\necho up\nread -r never\n").expect("a script");
            std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("chmod");
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]).arg(&script).arg(format!("--volume-tag={tag}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare");
        let mut up = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut up).expect("it is up");
        let (pid, real) = (child.id(), std::path::Path::new("/proc").join(child.id().to_string()));
        let fake = tmp.join("proc").join(pid.to_string());
        std::fs::create_dir_all(&fake).expect("the fake process");
        std::fs::write(fake.join("comm"), "etcd-manager\n").expect("its name");
        for name in ["cmdline", "mountinfo", "stat"] {
            symlink(real.join(name), fake.join(name)).expect("a link to the real one");
        }
        Manager(child)
    }

    /// Nobody has waited for it: one that ended is a zombie.
    fn runs(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, after)| !after.trim_start().starts_with('Z'))
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn is_told(status: &Value) -> bool {
    codes(&status["warnings"]).contains(&"mount-unseen".to_owned())
}

#[test]
fn an_etcd_manager_from_before_the_mount_is_told_and_ended_only_where_the_configuration_says_so() {
    crate::needs_root!();
    let (ec2, tmp) = (Ec2::start(), Tmp::new());
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let image = disk::sparse(&tmp.join("volume"), 1 << 30);
    disk::mkfs_ext4(&image, Some(&tree));
    let device = Loop::new(&image);
    let own = ec2.instance();
    let volume = ec2.volume(&json!({ "tags": { "KubernetesCluster": "c", "k8s.io/etcd/main": "a/a" } }));
    ec2.disk(&volume, &device);
    let mut node = Node::new();
    ec2.is_machine(&mut node, &own);
    node.agent_env("VOLHOLD_FAKE_PROC", Some(&tmp.join("proc").to_string_lossy()));
    let tags = "volume_tags = [\"KubernetesCluster=c\", \"k8s.io/etcd/main\"]";
    let guard = |node: &Node| ec2::guard("main", tags, &device, &node.path("mnt")).data_dir("data");
    node.configure(&[guard(&node)]);

    let (before, events) = (Manager::start(&tmp, "k8s.io/etcd/main"), Manager::start(&tmp, "k8s.io/etcd/events"));
    node.start();
    let status = node.await_status("main", "a manager that does not see it", is_told);
    let message = status["warnings"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains(&format!("process {}", before.0.id())), "{status:#}");
    assert_eq!((&status["gate"], &status["would_hold"]), (&json!("open"), &json!(false)), "{status:#}");
    assert!(before.runs(), "ended though nobody said so");

    let mut restarts = guard(&node);
    restarts.more = "restart = \"etcd-manager\"\n".to_owned();
    node.configure(&[restarts]);
    assert_eq!(node.stop_agent(), Some(0));
    node.start();
    node.await_status("main", "a manager that was ended", |_| !before.runs());
    // Who is started after the mount has it.
    let after = Manager::start(&tmp, "k8s.io/etcd/main");
    assert_eq!(node.stop_agent(), Some(0));
    node.start();
    let status = node.await_open("main");
    assert!(!is_told(&status), "{status:#}");
    assert!(after.runs() && events.runs(), "ended though it sees the volume, or is another etcd's");
    let history = node.volhold(&["history", "main", "-o", "json"]).json();
    let ended = history["entries"].as_array().expect("entries").iter().filter(|entry| entry["decision"] == "restart");
    assert_eq!(ended.count(), 1, "{history:#}");
}
