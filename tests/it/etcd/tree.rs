//! Trees that somebody laid out to mislead, and the choice of the dir.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use volhold::model::{DirRole, EtcdGeneration, Observed, SelectedBy};

fn member(root: &Path, path: &str) {
    for part in ["member/snap", "member/wal"] {
        std::fs::create_dir_all(root.join(path).join(part)).expect("a member");
    }
}

#[test]
fn every_place_that_has_a_member_is_found_and_archives_are_known_by_name() {
    let tmp = Tmp::new();
    let cases = [
        (".", DirRole::Candidate),
        (".volhold/quarantine/2026-01-01/etcd", DirRole::Archive),
        ("a/b/c/d/e/f/g/h/i", DirRole::Candidate),
        ("data-trashcan/token", DirRole::Archive),
        ("default.bak", DirRole::Archive),
        ("etcd-backup/x", DirRole::Archive),
        ("etcd-old-1700000000", DirRole::Archive),
        ("var/etcd/data", DirRole::Legacy),
        ("var/etcd/data-events", DirRole::Legacy),
    ];
    for (path, _) in cases {
        member(tmp.path(), path);
    }
    member(tmp.path(), "lost+found/x");
    member(tmp.path(), ".volhold/ledger.d");
    let reading = examine(tmp.path(), &VolumeHints::default());
    let found: Vec<_> = reading.data_dirs.iter().map(|report| (report.path.as_str(), report.role)).collect();
    assert_eq!(found, cases);
    assert_eq!(reading.unreadable, [] as [String; 0]);
    assert!(reading.data_dirs.iter().all(|report| report.etcd == EtcdGeneration::Empty && !report.populated));
    assert_eq!(reading.selected, None, "two candidates, and nobody chooses");
    assert!(!reading.root_entries.iter().any(|name| name == "lost+found" || name == ".volhold"));
}

#[test]
fn configuration_chooses_before_all_and_a_single_dir_chooses_itself() {
    let tmp = Tmp::new();
    member(tmp.path(), "default");
    let hints = |dir: &str| VolumeHints { data_dir: Some(dir.to_owned()), ..VolumeHints::default() };
    let chosen = |reading: &VolumeReading| reading.selected.clone().map(|s| (s.path, s.by, s.exists));
    let reading = examine(tmp.path(), &VolumeHints::default());
    assert_eq!(chosen(&reading), Some(("default".into(), SelectedBy::OnlyOne, true)));
    let reading = examine(tmp.path(), &hints("./default/"));
    assert_eq!(chosen(&reading), Some(("default".into(), SelectedBy::Config, true)));
    assert_eq!(dir(&reading, "default").role, DirRole::Selected);
    let reading = examine(tmp.path(), &hints("other"));
    assert_eq!(chosen(&reading), Some(("other".into(), SelectedBy::Config, false)));
    assert_eq!(dir(&reading, "default").role, DirRole::Candidate);
    std::fs::create_dir(tmp.join("other")).expect("a dir");
    let reading = examine(tmp.path(), &hints("other"));
    assert_eq!(chosen(&reading), Some(("other".into(), SelectedBy::Config, true)));
    assert_eq!(dir(&reading, "other").etcd, EtcdGeneration::None);
}

#[test]
fn a_file_or_an_empty_directory_called_member_is_no_rival_of_a_data_dir() {
    let unpacked = Unpacked::new("v3.4.23-basic");
    let root = &unpacked.root();
    std::fs::create_dir_all(root.join("notes")).expect("a dir");
    std::fs::write(root.join("notes/member"), b"of the club").expect("a file");
    std::fs::create_dir_all(root.join("tree/member")).expect("a dir");
    let reading = examine(root, &VolumeHints::default());
    assert_eq!(paths(&reading), ["data"]);
    assert_eq!(reading.selected.map(|selected| selected.by), Some(SelectedBy::OnlyOne));
    // Named, it is looked at: etcd would be started on it.
    let named = VolumeHints { data_dir: Some("notes".to_owned()), ..VolumeHints::default() };
    let reading = examine(root, &named);
    assert_eq!(damage(dir(&reading, "notes"))[0].code, "member-is-file");
    // What etcd had begun, what is a link, and what cannot be looked at may be data.
    std::fs::create_dir(root.join("tree/member/snap")).expect("a dir");
    std::fs::create_dir(root.join("linked")).expect("a dir");
    symlink("../data/member", root.join("linked/member")).expect("a link");
    let reading = examine(root, &VolumeHints::default());
    assert_eq!(paths(&reading), ["data", "linked", "tree"]);
    assert_eq!(reading.selected, None);
}

#[test]
fn a_configured_dir_that_leads_out_of_the_volume_is_not_followed() {
    let tmp = Tmp::new();
    member(tmp.path(), "outside");
    std::fs::create_dir(tmp.join("volume")).expect("a dir");
    symlink(tmp.join("outside"), tmp.join("volume/link")).expect("a link");
    for path in ["../outside", "link"] {
        let hints = VolumeHints { data_dir: Some(path.to_owned()), ..VolumeHints::default() };
        let reading = examine(&tmp.join("volume"), &hints);
        assert!(reading.data_dirs.is_empty(), "{path}: {:?}", paths(&reading));
        assert!(!reading.unreadable.is_empty(), "{path}: that it could not be opened must be told");
    }
    let reading = examine(&tmp.join("volume"), &VolumeHints::default());
    assert!(reading.data_dirs.is_empty(), "a link is not followed");
}

#[test]
fn what_is_no_file_is_told_and_never_opened() {
    for (name, make) in [
        ("member/snap/db", "pipe"),
        ("member/wal/0000000000000000-0000000000000000.wal", "pipe"),
        ("member/snap/db", "link"),
        ("member/wal/0000000000000000-0000000000000000.wal", "link"),
        ("member/snap/0000000000000002-0000000000000002.snap", "pipe"),
        ("state", "pipe"),
    ] {
        let tmp = Tmp::new();
        member(tmp.path(), ".");
        let at = tmp.join(name);
        match make {
            "pipe" => nix::unistd::mkfifo(&at, nix::sys::stat::Mode::S_IRWXU).expect("a pipe"),
            _ => symlink("/etc/hostname", &at).expect("a link"),
        }
        let reading = examine(tmp.path(), &VolumeHints::default());
        if name == "state" {
            assert!(matches!(reading.manager_state, Some(Observed::Unknown(_))), "{:?}", reading.manager_state);
            continue;
        }
        let report = dir(&reading, ".");
        let found = damage(report);
        assert!(
            found.iter().any(|d| d.code == "unreadable" && d.file == name),
            "{name} as {make}: {:?}",
            report.defects
        );
    }
}

#[test]
fn hostile_names_are_escaped_wherever_they_are_shown() {
    let tmp = Tmp::new();
    let name = "evil\n\u{1b}[2Jname";
    std::fs::create_dir_all(tmp.join(name)).expect("a dir");
    std::fs::write(tmp.join(name).join("member"), b"").expect("a file");
    let reading = examine(tmp.path(), &VolumeHints::default());
    let text = serde_json::to_string(&reading).expect("JSON");
    // In JSON a control character would be an escape of its own; ours are text, with a backslash that is escaped itself.
    let escapes = text.replace("\\\\", "");
    assert!(!escapes.contains("\\n") && !escapes.contains("\\u"), "{text}");
    assert_eq!(paths(&reading), ["evil\\n\\u{1b}[2Jname"]);
    assert_eq!(damage(&reading.data_dirs[0])[0].code, "member-is-file");
}

#[test]
fn a_directory_that_cannot_be_listed_is_unreadable_and_not_empty() {
    // Root may list everything, so somebody else looks.
    let tmp = Tmp::new();
    member(tmp.path(), "secret");
    std::fs::set_permissions(tmp.path(), PermissionsExt::from_mode(0o755)).expect("to open the root");
    std::fs::set_permissions(tmp.join("secret"), PermissionsExt::from_mode(0o000)).expect("to close the dir");
    if rustix::process::geteuid().is_root() {
        let root = tmp.path().to_owned();
        // The credentials of one thread: the others of this test binary stay who they are.
        let reading = std::thread::spawn(move || {
            use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
            let (uid, gid) = (rustix::process::Uid::from_raw(65_534), rustix::process::Gid::from_raw(65_534));
            set_thread_res_gid(gid, gid, gid).expect("setresgid");
            set_thread_res_uid(uid, uid, uid).expect("setresuid");
            examine(&root, &VolumeHints::default())
        });
        let reading = reading.join().expect("the look");
        assert_eq!(reading.unreadable.len(), 1, "{reading:?}");
        assert!(reading.unreadable[0].contains("secret"), "{:?}", reading.unreadable);
    } else {
        assert_eq!(examine(tmp.path(), &VolumeHints::default()).unreadable.len(), 1);
    }
    std::fs::set_permissions(tmp.join("secret"), PermissionsExt::from_mode(0o700)).expect("to open it again");
}
