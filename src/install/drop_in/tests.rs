#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::install::mark::{Owner, owner};

fn name(text: &str) -> GuardName {
    text.parse().unwrap()
}

fn texts(preset: Preset, guard: &str, publish: &str) -> Vec<Planned> {
    let guard = name(guard);
    let publish = [PathBuf::from(publish)];
    let ready = Path::new(READY).join(guard.as_str());
    let wanted = Wanted { preset, guard: &guard, publish: &publish, ready: &ready };
    let mut files = wanted.waiting();
    files.extend(wanted.first_boot());
    files.push(wanted.enforcing());
    files
}

#[test]
fn etcds_unit_requires_the_gate_and_comes_after_it() {
    for (preset, unit) in [
        (Preset::EtcdService, "etcd.service"),
        (Preset::K3s, "k3s.service"),
        (Preset::Rke2, "rke2-server.service"),
        (Preset::KubeAws, "etcd-member.service"),
    ] {
        let files = texts(preset, "etcd-main", "/var/lib/etcd");
        let path = format!("/etc/systemd/system/{unit}.d/50-volhold-etcd-main.conf");
        assert_eq!(files[0].path, Path::new(&path));
        let lines: Vec<&str> = files[0].text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "[Unit]",
                "Requires=volhold-gate@etcd-main.service",
                "After=volhold-gate@etcd-main.service",
                "After=var-lib-etcd.mount",
                "",
                "[Service]",
                "ExecStartPre=+/usr/bin/volhold gate check etcd-main",
            ]
        );
        assert!(!files[0].text.contains("volhold.service"), "never a dependency on the agent");
    }
}

#[test]
fn kubelet_waits_without_reading_the_data_of_an_etcd_that_may_run() {
    for preset in [Preset::Kubeadm, Preset::Kops] {
        let files = texts(preset, "main", "/var/lib/etcd");
        assert_eq!(files[0].path, Path::new("/etc/systemd/system/kubelet.service.d/50-volhold-main.conf"));
        assert!(!files[0].text.contains("[Service]"), "{}", files[0].text);
    }
}

#[test]
fn kops_waits_for_the_decision_and_not_for_the_gate() {
    let files = texts(Preset::Kops, "etcd-main", "/mnt/master-vol-0a");
    let drop_in = &files[0].text;
    assert!(
        drop_in.contains("\nRequires=volhold-decided@etcd-main.service\nAfter=volhold-decided@etcd-main.service\n")
    );
    assert!(!drop_in.contains("volhold-gate@"), "{drop_in}");
    assert!(drop_in.contains("\nAfter=mnt-master\\x2dvol\\x2d0a.mount\n"), "{drop_in}");
    assert_eq!(files[1].path, Path::new("/etc/systemd/system/volhold-decided@etcd-main.service"));
    assert!(files[1].text.contains("\nExecStart=/usr/bin/volhold wait --decided etcd-main\n"));
}

/// What waits for them is queued: a kill must not take that away, and must not let it go on either.
#[test]
fn a_unit_that_something_waits_for_ends_well_only_by_its_last_line() {
    let files = texts(Preset::Kops, "etcd-main", "/mnt/master-vol-0a");
    for unit in ["volhold-decided@etcd-main.service", "volhold-first-boot@etcd-main.service"] {
        let text = &files.iter().find(|file| file.path.ends_with(unit)).unwrap().text;
        let starts: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("ExecStart=")).collect();
        let (last, before) = starts.split_last().unwrap();
        assert!(last.starts_with("/usr/bin/volhold "), "{starts:?}");
        assert!(!before.is_empty() && before.iter().all(|line| line.strip_prefix('-') == Some(last)), "{starts:?}");
    }
}

#[test]
fn the_pod_mounts_the_ready_file_and_no_directory_is_made_for_it() {
    let files = texts(Preset::Kubeadm, "etcd-main", "/var/lib/etcd");
    assert_eq!(files[1].path, Path::new("/etc/volhold/kubeadm/etcd50-etcd-main+strategic.yaml"));
    let text = &files[1].text;
    assert!(text.contains("mountPath: \"/run/volhold/open/etcd-main\"\n"), "{text}");
    assert!(text.contains("        path: \"/run/volhold/open/etcd-main\"\n        type: File\n"), "{text}");
    assert!(text.contains("    - name: etcd-data\n      hostPath:\n        type: Directory\n"), "{text}");
    assert!(!text.contains('\t') && !text.contains("\n---"), "one document: {text}");
}

#[test]
fn a_long_name_stays_a_dns_label() {
    let long = format!("a{}", "-b".repeat(31));
    let text = &texts(Preset::Kubeadm, &long, "/x")[1].text;
    let volume = text.split("- name: \"").nth(1).unwrap().split('"').next().unwrap();
    assert!(volume.len() <= 63 && !volume.ends_with('-'), "{volume}");
}

#[test]
fn a_per_cent_sign_is_no_specifier() {
    // systemd escapes it as a byte; the backslash stays.
    let text = &texts(Preset::EtcdService, "a", "/mnt/100%n")[0].text;
    assert!(text.contains("After=mnt-100\\x25n.mount\n"), "{text}");
}

#[test]
fn every_file_is_marked_and_disable_knows_where_it_is() {
    for preset in Preset::ALL {
        for file in texts(*preset, "etcd-main", "/var/lib/etcd") {
            assert_eq!(owner(&file.text), Owner::Ours { preset: *preset, guard: name("etcd-main") });
            assert!(places(&name("etcd-main")).contains(&file.path), "{}", file.path.display());
        }
    }
}

#[test]
fn the_enforcing_layer_sets_the_mode_of_this_guard_and_nothing_else() {
    let file = texts(Preset::EtcdService, "etcd-main", "/var/lib/etcd").pop().unwrap();
    assert_eq!(file.path, Path::new("/etc/volhold/conf.d/50-enable-etcd-main.toml"));
    let lines: Vec<&str> = file.text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["[[guard]]", "name = \"etcd-main\"", "mode = \"enforce\""]);
}

#[test]
fn the_gate_waits_for_the_test_of_the_first_boot_which_is_done_once() {
    let guard = name("etcd-main");
    let files = texts(Preset::EtcdService, "etcd-main", "/var/lib/etcd");
    let unit = files.iter().find(|file| file.path.ends_with("volhold-first-boot@etcd-main.service")).unwrap();
    let condition = format!("\nConditionPathExists=!{}\n", enforce_path(&guard).display());
    assert!(unit.text.contains(&condition), "{}", unit.text);
    assert!(unit.text.contains("enable --preset etcd-service --first-boot etcd-main\n"));
    assert!(unit.text.contains("\nRefuseManualStop=yes\n"), "stopping it would stop etcd");
    let gate = files.iter().find(|file| file.path.ends_with("50-volhold-first-boot.conf")).unwrap();
    assert!(gate.text.contains("\nRequires=volhold-first-boot@etcd-main.service\nAfter=volhold-first-boot@"));
}
