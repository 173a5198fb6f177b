#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::guard::{self, Expected, Order, Owned, SealFound, Sight, User};
use super::node::{self, Agent, Configuration, DebianEtcd, Features, Tool};
use super::*;
use crate::install::Preset;
use crate::install::files::Written;
use crate::install::mounters::Mounter;
use crate::install::units::Properties;
use crate::model::{DevNum, Fingerprint, Mode, Why};
use std::path::{Path, PathBuf};

fn name() -> GuardName {
    "etcd-main".parse().unwrap()
}

fn unknown<T>() -> Observed<T> {
    Observed::Unknown(Why::TimedOut { detail: "systemctl did not answer".into() })
}

#[track_caller]
fn is(check: &Check, result: Outcome) {
    assert_eq!(check.result, result, "{check:?}");
    if result == Outcome::Fail && !check.message.contains("could not be found out") {
        assert!(check.fix.is_some(), "a failure without advice: {check:?}");
    }
}

const ALL_FEATURES: Features = Features { landlock: true, seccomp: true, diskseq: true };

#[test]
fn the_least_kernel_is_five_ten() {
    for (release, result) in [
        ("5.10.0", Outcome::Ok),
        ("5.9.16", Outcome::Fail),
        ("4.18.0-553.el8", Outcome::Fail),
        ("6.1.0-13-cloud-amd64", Outcome::Ok),
        ("10.0", Outcome::Ok),
    ] {
        is(&node::kernel(&Observed::Seen(release.into()), ALL_FEATURES), result);
    }
    assert_eq!(node::for_tests::version("6.18-rc1"), Some((6, 18)));
    assert_eq!(node::kernel(&Observed::Seen("x".into()), ALL_FEATURES).result, Outcome::Fail);
    is(&node::kernel(&unknown(), ALL_FEATURES), Outcome::Fail);
}

#[test]
fn a_tool_that_nobody_needs_may_be_missing() {
    let tool = |needed: bool, found| Tool {
        name: "mkfs.xfs",
        package: "xfsprogs",
        needed_by: if needed { vec![name()] } else { Vec::new() },
        found,
    };
    is(&node::tools(&[tool(false, Observed::Seen(None))]), Outcome::Ok);
    let missing = node::tools(&[tool(true, Observed::Seen(None))]);
    is(&missing, Outcome::Fail);
    assert!(missing.fix.unwrap().contains("xfsprogs"));
    assert_eq!(node::tools(&[tool(false, unknown())]).result, Outcome::Fail);
    is(&node::tools(&[tool(true, Observed::Seen(Some("mkfs.xfs version 6.1".into())))]), Outcome::Ok);
}

#[test]
fn an_agent_that_is_gone_or_shut_in_is_found() {
    is(&node::agent(&Agent { pid: Some(7), running: true }), Outcome::Ok);
    is(&node::agent(&Agent { pid: Some(7), running: false }), Outcome::Fail);
    is(&node::agent(&Agent { pid: None, running: false }), Outcome::Fail);
    let names = |agent: &str| Observed::Seen((agent.to_owned(), "mnt:[1]".to_owned()));
    is(&node::namespace(Some(&names("mnt:[1]"))), Outcome::Ok);
    is(&node::namespace(Some(&names("mnt:[2]"))), Outcome::Fail);
    is(&node::namespace(Some(&unknown())), Outcome::Fail);
    is(&node::namespace(None), Outcome::Skip);
}

#[test]
fn a_configuration_that_nobody_has_read_is_told() {
    let path = Path::new("/etc/volhold/config.toml");
    let judged = |found| node::configuration(path, &Observed::Seen(found)).result;
    assert_eq!(judged(Configuration::Same), Outcome::Ok);
    assert_eq!(judged(Configuration::Differs(vec!["guard.a.mode".into()])), Outcome::Warn);
    assert_eq!(judged(Configuration::Unusable(vec!["x".into()])), Outcome::Fail);
    assert_eq!(judged(Configuration::NothingKept), Outcome::Warn);
}

#[test]
fn a_claim_that_does_not_hold_fails_and_one_that_cannot_be_tried_is_skipped() {
    is(&node::claim(&Observed::Seen(None)), Outcome::Ok);
    is(&node::claim(&Observed::Seen(Some("opened".into()))), Outcome::Fail);
    is(&node::claim(&unknown()), Outcome::Skip);
}

#[test]
fn cloud_final_behind_the_gates_is_told() {
    let before = |names: &[&str]| Observed::Seen(names.iter().map(|&name| name.to_owned()).collect());
    let bare = ["shutdown.target", "graphical.target", "systemd-update-utmp-runlevel.service"];
    is(&node::boot_order(Some(&before(&bare))), Outcome::Ok);
    let found = node::boot_order(Some(&before(&["shutdown.target", "cloud-final.service"])));
    is(&found, Outcome::Warn);
    assert!(found.message.contains("cloud-final.service"));
    is(&node::boot_order(None), Outcome::Skip);
}

#[test]
fn a_textfile_directory_that_cannot_be_written_to_fails() {
    let dir = Path::new("/var/lib/node_exporter");
    is(&node::textfile(None), Outcome::Skip);
    is(&node::textfile(Some((dir, &Observed::Seen(())))), Outcome::Ok);
    is(&node::textfile(Some((dir, &unknown()))), Outcome::Fail);
}

#[test]
fn debians_purge_is_told_until_the_package_is_on_hold() {
    let package = |held| Observed::Seen(DebianEtcd { deletes: true, held });
    is(&node::debian_etcd(Some(&package(false)), &[name()]), Outcome::Warn);
    is(&node::debian_etcd(Some(&package(true)), &[name()]), Outcome::Ok);
    is(&node::debian_etcd(Some(&package(false)), &[]), Outcome::Ok);
    is(&node::debian_etcd(None, &[name()]), Outcome::Skip);
}

#[test]
fn a_guard_that_enforces_on_paper_only_fails() {
    is(&guard::mode(&name(), Mode::Enforce, Some(Mode::Enforce)), Outcome::Ok);
    is(&guard::mode(&name(), Mode::Enforce, Some(Mode::Observe)), Outcome::Fail);
    is(&guard::mode(&name(), Mode::Enforce, None), Outcome::Fail);
    is(&guard::mode(&name(), Mode::Observe, Some(Mode::Observe)), Outcome::Warn);
}

fn shown(text: &str) -> Properties {
    Properties::parse(text)
}

#[test]
fn a_gate_that_is_masked_missing_or_of_another_kind_fails() {
    let gate =
        "LoadState=loaded\nType=oneshot\nRemainAfterExit=yes\nTimeoutStartUSec=infinity\nActiveState=activating\n";
    let judged = |text: &str| guard::gate_unit(&name(), &Observed::Seen(shown(text)));
    is(&judged(gate), Outcome::Ok);
    is(&judged(&gate.replace("activating", "failed")), Outcome::Warn);
    for (from, to) in [
        ("loaded", "masked"),
        ("loaded", "not-found"),
        ("loaded", "bad-setting"),
        ("oneshot", "notify"),
        ("Exit=yes", "Exit=no"),
        ("infinity", "1min 30s"),
    ] {
        is(&judged(&gate.replace(from, to)), Outcome::Fail);
    }
    is(&guard::gate_unit(&name(), &unknown()), Outcome::Fail);
    assert!(judged(&gate.replace("loaded", "masked")).fix.unwrap().contains("unmask"));
}

#[test]
fn both_requirement_and_order_are_needed() {
    let gate = "volhold-gate@etcd-main.service";
    let judged = |preset, text: &str| {
        guard::order(&name(), Mode::Enforce, &Observed::Seen(Order::Unit { preset, shown: shown(text) }))
    };
    let good =
        format!("LoadState=loaded\nRequires=sysinit.target {gate}\nAfter={gate} network.target\nNeedDaemonReload=no\n");
    is(&judged(Preset::EtcdService, &good), Outcome::Ok);
    is(&judged(Preset::EtcdService, &good.replace("Reload=no", "Reload=yes")), Outcome::Warn);
    is(&judged(Preset::EtcdService, &good.replace(&format!("After={gate}"), "After=")), Outcome::Fail);
    is(&judged(Preset::EtcdService, &good.replace(&format!("target {gate}"), "target")), Outcome::Fail);
    is(&judged(Preset::EtcdService, &good.replace("loaded", "not-found")), Outcome::Fail);
    // kubelet of kops waits for the decision: the gate alone is not what was written for it.
    is(&judged(Preset::Kops, &good), Outcome::Fail);
    is(&judged(Preset::Kops, &good.replace(gate, "volhold-decided@etcd-main.service")), Outcome::Ok);
}

#[test]
fn a_gate_that_nobody_waits_for_fails_only_where_the_guard_enforces() {
    let found = |behind: &[&str]| {
        Observed::Seen(Order::Unknown { behind: behind.iter().map(|&unit| unit.to_owned()).collect() })
    };
    is(&guard::order(&name(), Mode::Enforce, &found(&[])), Outcome::Fail);
    is(&guard::order(&name(), Mode::Observe, &found(&[])), Outcome::Skip);
    is(&guard::order(&name(), Mode::Enforce, &found(&["etcd.service"])), Outcome::Ok);
    is(&guard::order(&name(), Mode::Enforce, &unknown()), Outcome::Fail);
}

#[test]
fn data_of_another_member_than_the_configured_one_is_told_before_the_next_boot() {
    let found = Fingerprint {
        name: Some("m1".into()),
        peer_urls: vec!["http://10.0.0.1:2380".into()],
        ..Fingerprint::default()
    };
    let judged = |member, peer_url| guard::identity(&name(), Expected { member, peer_url }, Some(&found));
    is(&judged(None, None), Outcome::Ok);
    is(&judged(Some("m1"), Some("http://10.0.0.1:2380/")), Outcome::Ok);
    is(&judged(Some("m2"), None), Outcome::Fail);
    is(&judged(None, Some("http://10.0.0.2:2380")), Outcome::Fail);
    is(&guard::identity(&name(), Expected { member: Some("m1"), peer_url: None }, None), Outcome::Skip);
}

#[test]
fn a_drop_in_that_is_gone_or_changed_fails() {
    let path = PathBuf::from("/etc/x.conf");
    let judged =
        |written| guard::drop_ins(&name(), Mode::Enforce, Some((Preset::EtcdService, vec![(path.clone(), written)])));
    is(&judged(Ok(Written::Same)), Outcome::Ok);
    is(&judged(Ok(Written::New)), Outcome::Fail);
    is(&judged(Ok(Written::Replaced)), Outcome::Fail);
    is(&judged(Err("/etc/x.conf was changed".into())), Outcome::Fail);
    is(&guard::drop_ins(&name(), Mode::Observe, None), Outcome::Skip);
    is(&guard::drop_ins(&name(), Mode::Enforce, None), Outcome::Warn);
}

#[test]
fn a_pod_that_does_not_mount_the_ready_file_does_not_wait() {
    let ready = Path::new("/run/volhold/open/etcd-main");
    let judged = |text: &str| guard::pod(&name(), ready, &Observed::Seen(Some(text.to_owned())));
    let mount = "    - mountPath: /run/volhold/open/etcd-main\n      name: g\n";
    let volume = "  - hostPath:\n      path: \"/run/volhold/open/etcd-main\"\n      type: File\n";
    is(&judged(&format!("{mount}{volume}")), Outcome::Ok);
    is(&judged(volume), Outcome::Fail);
    is(&judged(mount), Outcome::Fail);
    is(&judged(&format!("# path: /run/volhold/open/etcd-main\n{mount}")), Outcome::Fail);
    is(&judged(&format!("{mount}{volume}").replace("main", "main2")), Outcome::Fail);
    is(&guard::pod(&name(), ready, &Observed::Seen(None)), Outcome::Warn);
}

#[test]
fn another_mounter_is_named_with_what_to_do() {
    is(&guard::other_mounters(&name(), &Observed::Seen(Vec::new())), Outcome::Ok);
    let line = Mounter {
        place: "/etc/fstab:7".into(),
        text: "UUID=x /var/lib/etcd ext4".into(),
        remedy: "remove line 7".into(),
    };
    let found = guard::other_mounters(&name(), &Observed::Seen(vec![line]));
    is(&found, Outcome::Fail);
    assert!(found.message.contains("/etc/fstab:7: UUID=x /var/lib/etcd ext4"), "{}", found.message);
    is(&guard::other_mounters(&name(), &unknown()), Outcome::Fail);
}

#[test]
fn a_seal_that_lets_a_write_through_fails() {
    let at = Path::new("/var/lib/etcd");
    let judged = |mode, found| guard::seal(&name(), mode, at, &Observed::Seen(found));
    is(&judged(Mode::Enforce, SealFound::Refused), Outcome::Ok);
    is(&judged(Mode::Enforce, SealFound::Written), Outcome::Fail);
    is(&judged(Mode::Enforce, SealFound::Missing), Outcome::Fail);
    is(&judged(Mode::Observe, SealFound::Written), Outcome::Skip);
    is(&judged(Mode::Observe, SealFound::NotEmpty(vec!["member".into()])), Outcome::Fail);
    is(&guard::seal(&name(), Mode::Enforce, at, &unknown()), Outcome::Fail);
}

#[test]
fn a_mount_that_anybody_sees_otherwise_is_shadowed() {
    let volume = DevNum { major: 259, minor: 1 };
    let other = DevNum { major: 0, minor: 42 };
    let sight =
        |who: &str, device| Sight { who: who.into(), at: "/var/lib/etcd".into(), device, on_top: Some("tmpfs".into()) };
    let judged = |sights: &[Sight]| guard::visible(&name(), Path::new("/var/lib/etcd"), Some(volume), sights);
    is(&judged(&[sight("PID 1", Observed::Seen(volume))]), Outcome::Ok);
    let shadowed = judged(&[sight("PID 1", Observed::Seen(volume)), sight("etcd", Observed::Seen(other))]);
    is(&shadowed, Outcome::Fail);
    assert!(shadowed.message.contains("etcd sees device 0:42"), "{}", shadowed.message);
    is(&judged(&[sight("PID 1", unknown())]), Outcome::Fail);
    is(&guard::visible(&name(), Path::new("/x"), None, &[]), Outcome::Skip);
}

#[test]
fn a_user_who_cannot_reach_or_write_the_data_dir_is_told() {
    let etcd = Observed::Seen(User { name: "etcd".into(), uid: 110, gids: vec![115] });
    let dir = |path: &str, uid, gid, mode| Owned { path: path.into(), uid, gid, mode };
    let judged = |way: Vec<Owned>| guard::owner(&name(), Some(&etcd), Some(&Observed::Seen(way)));
    let top = || dir("/var/lib/etcd", 0, 0, 0o755);
    is(&judged(vec![top(), dir("/var/lib/etcd/default", 110, 115, 0o700)]), Outcome::Ok);
    is(&judged(vec![top(), dir("/var/lib/etcd/default", 0, 0, 0o700)]), Outcome::Fail);
    is(&judged(vec![top(), dir("/var/lib/etcd/default", 0, 115, 0o770)]), Outcome::Ok);
    is(&judged(vec![top(), dir("/var/lib/etcd/default", 110, 115, 0o500)]), Outcome::Fail);
    let closed = judged(vec![dir("/var/lib/etcd", 0, 0, 0o700), dir("/var/lib/etcd/default", 110, 115, 0o700)]);
    is(&closed, Outcome::Fail);
    assert!(closed.message.contains("cannot pass"), "{}", closed.message);
    let root = Observed::Seen(User { name: "root".into(), uid: 0, gids: vec![0] });
    is(&guard::owner(&name(), Some(&root), Some(&Observed::Seen(vec![dir("/x", 110, 115, 0o700)]))), Outcome::Ok);
    is(&guard::owner(&name(), None, None), Outcome::Skip);
    is(&guard::owner(&name(), Some(&unknown()), Some(&Observed::Seen(Vec::new()))), Outcome::Fail);
}

#[test]
fn an_unlabelled_data_dir_is_told_where_selinux_is_on() {
    let judged = |context: &str| guard::selinux(&name(), Some(&Observed::Seen(context.into()))).result;
    assert_eq!(judged("system_u:object_r:etcd_var_lib_t:s0"), Outcome::Ok);
    assert_eq!(judged("system_u:object_r:unlabeled_t:s0"), Outcome::Warn);
    assert_eq!(guard::selinux(&name(), None).result, Outcome::Skip);
}
