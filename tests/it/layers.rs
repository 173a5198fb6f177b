//! The configuration over the life of an agent: layers, reload, what an open gate holds back, and running on the last valid
//! one while what is written cannot be used.

use crate::common::etcd::Member;
use crate::common::node::codes;
use crate::common::tmp::mount_table;
use crate::common::{Guard, Loop, Node, Tmp, disk};
use disk::MIB;
use serde_json::Value;
use std::process::Command;

fn blank(tmp: &Tmp, name: &str) -> Loop {
    Loop::new(&disk::sparse(&tmp.join(name), 160 * MIB))
}

/// A volume that is held: its superblock is gone.
fn damaged(tmp: &Tmp, name: &str) -> Loop {
    let image = disk::sparse(&tmp.join(name), 160 * MIB);
    disk::mkfs_ext4(&image, None);
    disk::zero(&image, 0, 4096);
    Loop::new(&image)
}

/// Puts a mistake behind what is configured.
fn break_config(node: &Node, line: &str) {
    let path = node.path("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}{line}\n")).unwrap();
}

fn warnings(status: &Value) -> String {
    let told = codes(&status["warnings"]);
    assert!(told.iter().all(|code| code == "config-changed"), "{status:#}");
    status["warnings"].to_string()
}

fn problems(node: &Node) -> String {
    node.status_file().expect("a status")["config"].to_string()
}

#[test]
fn the_layers_are_merged_and_each_value_says_where_it_comes_from() {
    let node = Node::new();
    node.configure(&[Guard::observe("etcd-main", "/dev/volhold-none", &node.path("mnt"))]);
    std::fs::create_dir(node.path("conf.d")).unwrap();
    std::fs::write(node.path("conf.d/10-fresh.toml"), "[[guard]]\nname = \"etcd-main\"\nfresh = \"deny\"\n").unwrap();
    let show = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_volhold"));
        command.args(["config", "show"]).args(args).arg("--config").arg(node.path("config.toml"));
        let output = command.env("VOLHOLD_GUARD_ETCD_MAIN_MEMBER", "a").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = show(&["--origin", "--set", "guard.etcd-main.mode=enforce"]);
    for (line, origin) in [
        ("mode = \"enforce\"", "# --set guard.etcd-main.mode"),
        ("fresh = \"deny\"", &format!("# {}:3", node.path("conf.d/10-fresh.toml").display())),
        ("member = \"a\"", "# environment VOLHOLD_GUARD_ETCD_MAIN_MEMBER"),
        ("dir_mode = \"0700\"", "# default"),
    ] {
        let found = shown.lines().find(|shown| shown.starts_with(line)).unwrap_or_else(|| panic!("{line}\n{shown}"));
        assert!(found.ends_with(origin), "{found}");
    }
    // What is shown is a configuration, and the same one.
    let again = node.path("again.toml");
    std::fs::write(&again, show(&[])).unwrap();
    let checked = node.volhold(&["config", "check", again.to_str().unwrap()]);
    assert_eq!(checked.code, Some(0), "{checked:#?}");
    let document: Value = serde_json::from_str(&show(&["-o", "json"])).unwrap();
    assert_eq!(document["kind"], "Config");
    assert_eq!(document["config"]["guard"][0]["fresh"], "deny");
    assert_eq!(document["origins"]["guard.etcd-main.fresh"]["line"], 3);
    assert_eq!(document["origins"]["guard.etcd-main.dir_mode"], Value::Null);
}

#[test]
fn without_any_valid_configuration_everything_ends_with_78() {
    let node = Node::new();
    node.configure(&[Guard::observe("main", "/dev/volhold-none", &node.path("mnt"))]);
    break_config(&node, "formt = \"never\"");
    for args in [&["run"][..], &["wait", "main"], &["gate", "check", "main"], &["status"], &["config", "show"]] {
        let answer = node.volhold(args);
        assert_eq!(answer.code, Some(78), "{args:?}: {answer:#?}");
        assert!(answer.stderr.contains("guard[0].formt: unknown key; did you mean `format`?"), "{answer:#?}");
    }
}

#[test]
fn a_reload_with_an_open_gate_leaves_etcd_alone_and_says_what_has_to_wait() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (device, other) = (blank(&tmp, "volume"), blank(&tmp, "other"));
    let mut node = Node::new();
    let elsewhere = node.path("elsewhere");
    let events = node.path("events");
    let mnt = node.path("mnt");
    let data_dir = node.path("mnt/data");
    let main = || Guard::enforce("main", device.node(), &mnt).data_dir("data");
    node.configure(&[main()]);
    node.start();
    node.await_open("main");
    let mut etcd = Member::new("master-a", &data_dir).start();
    etcd.put("key", "before");
    let pid = etcd.pid();

    // All that cannot be followed at once, something that can, and a new guard.
    let mut moved = Guard::enforce("main", "/dev/volhold-none", &elsewhere).data_dir("new");
    moved.fresh = "deny";
    node.configure(&[moved, Guard::enforce("events", other.node(), &events)]);
    node.reload();
    let status = node.await_status("main", "the warning", |status| status["warnings"].to_string().contains("publish"));
    let told = warnings(&status);
    for key in ["`device`", "`publish`", "`data_dir`"] {
        assert!(told.contains(key), "{key}: {told}");
    }
    assert!(node.log().contains("config.held-back"), "{}", node.log());
    assert_eq!(status["gate"], "open", "{status:#}");
    assert_eq!(status["publish"], mnt.to_str().unwrap());
    node.await_status("events", "the new guard's gate", |status| status["gate"] == "open");

    let still_open = |node: &Node, etcd: &mut crate::common::etcd::Etcd| {
        assert!(etcd.lives() && etcd.pid() == pid);
        assert!(node.ready_file("main").exists());
        assert!(mount_table().iter().any(|mount| mount.at == mnt));
        let wait = node.volhold(&["wait", "main", "--timeout", "1s"]);
        assert_eq!(wait.code, Some(0), "{wait:#?}");
        let check = node.gate_check("main");
        assert_eq!(check.code, Some(0), "{check:#?}");
    };
    still_open(&node, &mut etcd);

    // Another agent in the same boot knows what the gate was opened with.
    node.kill_agent();
    node.start();
    let status = node.await_open("main");
    assert!(warnings(&status).contains("`device`"), "{status:#}");
    still_open(&node, &mut etcd);

    // A guard whose gate is open is not taken away either.
    node.configure(&[]);
    node.reload();
    let status = node.await_status("main", "the warning", |status| status["warnings"].to_string().contains("any more"));
    assert_eq!(status["gate"], "open", "{status:#}");
    still_open(&node, &mut etcd);
    node.kill_agent();
    node.start();
    let status = node.await_open("main");
    assert!(warnings(&status).contains("any more"), "{status:#}");
    still_open(&node, &mut etcd);

    // The old text again: nothing is held back.
    node.configure(&[main()]);
    node.reload();
    node.await_status("main", "no warning", |status| status["warnings"] == serde_json::json!([]));
    assert_eq!(etcd.get("key"), "before");

    // The next boot takes what is written then.
    node.configure(&[]);
    drop(etcd);
    node.reboot();
    node.start();
    assert_eq!(node.guard_status("main"), None);
    assert_eq!(node.volhold(&["wait", "main"]).code, Some(78));
}

#[test]
fn what_cannot_be_used_is_told_and_the_last_valid_configuration_goes_on() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp, "volume");
    let mut node = Node::new();
    let mnt = node.path("mnt");
    let main = Guard::enforce("main", device.node(), &mnt);
    node.configure(std::slice::from_ref(&main));
    node.start();
    node.await_open("main");
    for (mistake, says) in [("[[guard]", "config.toml:"), ("formt = \"never\"", "did you mean `format`?")] {
        node.configure(std::slice::from_ref(&main));
        break_config(&node, mistake);
        node.reload();
        assert!(problems(&node).contains(says), "{}", problems(&node));
        assert!(node.log().contains("config.unusable"), "{}", node.log());
        assert_eq!(node.guard_status("main").unwrap()["gate"], "open");
        let wait = node.volhold(&["wait", "main", "--timeout", "1s"]);
        assert_eq!(wait.code, Some(0), "{wait:#?}");
        assert!(wait.stderr.contains(says) && wait.stderr.contains("config.valid.toml"), "{wait:#?}");
        assert_eq!(node.gate_check("main").code, Some(0));
        let screen = node.volhold(&["status"]);
        assert!(screen.stdout.contains("The configuration cannot be used"), "{screen:#?}");
        assert_eq!(node.volhold(&["config", "check"]).code, Some(78));

        // Also over a boot.
        node.reboot();
        node.start();
        node.await_open("main");
        assert!(problems(&node).contains("runs on the last valid configuration"), "{}", problems(&node));
    }
    // A file that was never valid does not live on what another left behind.
    let other = node.path("other.toml");
    std::fs::write(&other, std::fs::read_to_string(node.path("config.toml")).unwrap()).unwrap();
    let foreign = node.volhold(&["wait", "main", "--timeout", "1s", "--config", other.to_str().unwrap()]);
    assert_eq!(foreign.code, Some(78), "{foreign:#?}");
    node.configure(&[main]);
    node.reload();
    assert_eq!(problems(&node), "null");
    assert_eq!(node.guard_status("main").unwrap()["gate"], "open");
}

#[test]
fn a_held_guard_takes_another_device_and_lets_the_first_one_go() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (first, second) = (damaged(&tmp, "volume"), damaged(&tmp, "other"));
    let mut node = Node::new();
    let mnt = node.path("mnt");
    let guard = |device: &Loop| Guard::enforce("main", device.node(), &mnt);
    node.configure(&[guard(&first)]);
    node.start();
    node.await_held("main", "backup-superblock-found");
    assert!(first.claimed());
    node.configure(&[guard(&second)]);
    node.reload();
    let name = second.name();
    node.await_status("main", "the other device held", |status| {
        status["gate"] == "held" && status["device"]["node"] == name.as_str()
    });
    assert!(second.claimed());
    first.await_free();
    // Observing and not configured any more: nothing is claimed.
    node.configure(&[Guard::observe("main", second.node(), &mnt)]);
    node.reload();
    node.await_status("main", "observing", |status| status["mode"] == "observe" && status["state"] == "observing");
    second.await_free();
    node.configure(&[guard(&second)]);
    node.reload();
    node.await_status("main", "held again", |status| status["gate"] == "held" && status["mode"] == "enforce");
    assert!(second.claimed());
    node.configure(&[]);
    node.reload();
    let gone = crate::common::node::await_change(&node.run_dir(), crate::common::node::PATIENCE, || {
        node.guard_status("main").is_none()
    });
    assert_eq!(gone, "changed", "{}", node.log());
    second.await_free();
    assert_eq!(node.manager.stored(), [""; 0]);
}

#[test]
fn what_is_changed_while_no_agent_runs_moves_no_open_gate() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = blank(&tmp, "volume");
    let mut node = Node::new();
    let elsewhere = node.path("elsewhere");
    let mnt = node.path("mnt");
    node.configure(&[Guard::enforce("main", device.node(), &mnt)]);
    node.start();
    node.await_open("main");
    node.kill_agent();
    node.configure(&[Guard::enforce("main", device.node(), &elsewhere)]);
    assert_eq!(node.volhold(&["wait", "main", "--timeout", "1s"]).code, Some(0));
    assert_eq!(node.gate_check("main").code, Some(0));
    node.start();
    let status = node.await_open("main");
    assert!(warnings(&status).contains("`publish`"), "{status:#}");
    assert!(mount_table().iter().any(|mount| mount.at == mnt));
    assert!(!mount_table().iter().any(|mount| mount.at == elsewhere));
    // After a boot it is where the new text wants it.
    node.reboot();
    node.start();
    let status = node.await_open("main");
    assert_eq!(warnings(&status), "[]");
    assert!(mount_table().iter().any(|mount| mount.at == elsewhere));
}
