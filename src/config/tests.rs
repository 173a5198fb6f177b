use super::*;
use crate::model::{EbsSpec, SnapshotPolicy, TagSpec, VolumeId};

impl Problem {
    fn at(&self) -> (usize, usize) {
        match self.place {
            Place::File { line, column, .. } => (line, column),
            Place::Environment { .. } | Place::Flag { .. } | Place::Default => (0, 0),
        }
    }
}

/// One file and nothing else.
fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    let path = PathBuf::from("t.toml");
    merged(&[(path.clone(), text.to_owned())], &Sources::file(&path)).map(|loaded| loaded.config)
}

const LEAST: &str = r#"
[[guard]]
name = "main"
device = "/dev/disk/by-id/x"
publish = "/var/lib/etcd"
"#;

fn problems(text: &str) -> Vec<Problem> {
    parse(text).expect_err("a mistake")
}

/// The one mistake in `LEAST` with these lines added.
#[track_caller]
fn mistake(lines: &str) -> Problem {
    let mut all = problems(&format!("{LEAST}{lines}\n"));
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn three_keys_are_enough_and_the_rest_is_cautious() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.paths, Paths { state: "/var/lib/volhold".into(), run: "/run/volhold".into() });
    assert_eq!(
        config.guards,
        [GuardConfig {
            name: "main".parse().unwrap(),
            mode: Mode::Observe,
            device: DeviceSpec::Path("/dev/disk/by-id/x".into()),
            fstype: Fstype::Ext4,
            format: FormatPolicy::Never,
            publish: "/var/lib/etcd".into(),
            data_dir: None,
            owner: None,
            dir_mode: 0o700,
            fresh: false,
            member: None,
            peer_url: None,
            mount_options: vec![],
            witness: true,
            snapshot: SnapshotPolicy::Off,
            grow: false,
            restart: false,
            etcd: None,
            at_run_time: AtRunTime::Tell,
        }]
    );
}

#[test]
fn every_key_is_taken_as_written() {
    let config = parse(
        r#"
        paths = { state = "/srv/state/", run = "/srv/run" }
        [[guard]]
        name = "events"
        mode = "enforce"
        provider = "local"
        device = "/dev/vdb"
        fstype = "xfs"
        format = "if-blank"
        publish = "/mnt//events/."
        data_dir = "./data/x/"
        owner = "etcd:2379"
        dir_mode = "0750"
        fresh = "allow"
        member = "etcd-a"
        peer_url = "https://10.0.1.7:2380/"
        mount_options = "noatime, discard"
        [[guard]]
        name = "main"
        device = "UUID=AAAAAAAA-0000-0000-0000-000000000001"
        publish = "/mnt/main"
        data_dir = "."
        mount_options = ["noatime"]
        "#,
    )
    .unwrap();
    let guard = &config.guards[0];
    assert_eq!(config.paths.state, PathBuf::from("/srv/state"));
    assert_eq!((guard.mode, guard.format, guard.fresh), (Mode::Enforce, FormatPolicy::IfBlank, true));
    assert_eq!(guard.publish, "/mnt/events".into());
    assert_eq!(guard.data_dir.as_deref(), Some("data/x"));
    assert_eq!(guard.owner, Some(Owner { user: "etcd".into(), group: "2379".into() }));
    assert_eq!(guard.dir_mode, 0o750);
    assert_eq!(guard.peer_url.as_deref(), Some("https://10.0.1.7:2380"));
    assert_eq!(guard.mount_options, ["noatime", "discard"]);
    let other = &config.guards[1];
    assert_eq!(other.device, DeviceSpec::Uuid("aaaaaaaa-0000-0000-0000-000000000001".into()));
    assert_eq!(other.data_dir.as_deref(), Some("."));
}

#[test]
fn what_is_done_at_run_time_needs_its_units_and_no_other_word() {
    let with = |lines: &str| parse(&format!("{LEAST}{lines}\n")).unwrap().guards.remove(0).at_run_time;
    assert_eq!(with("at_run_time = \"freeze\""), AtRunTime::Freeze);
    let stop = AtRunTime::Stop(vec!["etcd.service".into(), "kubelet.service".into()]);
    assert_eq!(with("at_run_time = \"stop\"\nstop_units = \"etcd.service, kubelet.service\""), stop);
    assert!(mistake("at_run_time = \"stop\"").message.contains("`stop_units`"));
    assert!(mistake("stop_units = [\"etcd.service\"]").message.contains("at_run_time"));
    for unit in ["etcd", "--now.service", "a b.service", "/etc/x.service"] {
        let wrong = mistake(&format!("at_run_time = \"stop\"\nstop_units = [\"{unit}\"]"));
        assert!(wrong.message.contains("names of units"), "{unit}: {}", wrong.message);
    }
}

#[test]
fn an_empty_file_is_valid_and_remarked_upon() {
    let config = parse("").unwrap();
    assert_eq!(config.guards, []);
    assert!(config.remarks()[0].contains("nothing is guarded"));
}

#[test]
fn an_unknown_key_is_told_with_its_place_and_the_one_that_was_meant() {
    let wrong = mistake("formt = \"never\"");
    assert_eq!((wrong.at(), wrong.key.as_str()), ((6, 1), "guard[0].formt"));
    assert!(wrong.message.contains("did you mean `format`?"), "{}", wrong.message);
    assert!(mistake("data-dir = \"x\"").message.contains("`data_dir`"));
    assert!(mistake("weather = \"x\"").message.contains("known here: name, mode"));
    let top = problems("[[guards]]\nname = \"a\"");
    assert_eq!((top[0].key.as_str(), top.len()), ("guards", 1));
    assert!(top[0].message.contains("`guard`"));
    assert!(problems("[paths]\nstat = \"/x\"")[0].message.contains("`state`"));
}

#[test]
fn all_mistakes_are_told_in_the_order_of_the_text() {
    let all = problems(
        "[paths]\nrun = \"run\"\n[[guard]]\nname = \"Main\"\nmode = \"enforced\"\ndevice = 7\n  publish = \"/\"\nfresh = true\n",
    );
    let places: Vec<(usize, usize, &str)> = all.iter().map(|p| (p.at().0, p.at().1, p.key.as_str())).collect();
    assert_eq!(
        places,
        [
            (2, 7, "paths.run"),
            (4, 8, "guard[0].name"),
            (5, 8, "guard[0].mode"),
            (6, 10, "guard[0].device"),
            (7, 13, "guard[0].publish"),
            (8, 9, "guard[0].fresh"),
        ]
    );
    assert!(all[2].message.contains("did you mean `enforce`?"), "{}", all[2].message);
}

#[test]
fn a_text_that_is_no_toml_is_told_with_its_place() {
    let all = problems("[[guard]]\nname = main\n");
    assert_eq!((all[0].at().0, all[0].key.as_str()), (2, ""));
    assert_eq!(problems("[[guard]]\nname = \"a\"\nname = \"b\"\n")[0].at().0, 3);
}

#[test]
fn what_is_missing_is_told_at_the_guards_header() {
    let all = problems("\n[[guard]]\nname = \"a\"\n");
    let told: Vec<(usize, &str)> = all.iter().map(|p| (p.at().0, p.message.as_str())).collect();
    assert_eq!(told, [(2, "`device` is missing"), (2, "`publish` is missing")]);
}

#[test]
fn values_that_cannot_be_are_refused() {
    for (line, key, says) in [
        ("fstype = \"btrfs\"", "fstype", "ext4, xfs"),
        ("provider = \"gce\"", "provider", "local, ebs"),
        ("volume_id = \"vol-1a2b3c4d\"", "volume_id", "provider = \"ebs\""),
        ("volume_tags = [\"a=b\"]", "volume_tags", "provider = \"ebs\""),
        ("data_dir = \"/abs\"", "data_dir", "below the volume's root"),
        ("data_dir = \"a/../..\"", "data_dir", "without `..`"),
        ("data_dir = \"\"", "data_dir", "below the volume's root"),
        ("data_dir = \".volhold\"", "data_dir", "not etcd's"),
        ("data_dir = \"default/member\"", "data_dir", "holds `member`"),
        ("owner = \"etcd\"", "owner", "user:group"),
        ("owner = \"a b:c\"", "owner", "user:group"),
        ("dir_mode = \"0999\"", "dir_mode", "octal"),
        ("dir_mode = \"0077\"", "dir_mode", "octal"),
        ("dir_mode = \"4700\"", "dir_mode", "octal"),
        ("mode = \"0700\"", "mode", "dir_mode"),
        ("member = \"\"", "member", "etcd member"),
        ("peer_url = \"10.0.0.1:2380\"", "peer_url", "URL"),
        ("peer_url = \"http://a:1,http://b:1\"", "peer_url", "URL"),
        ("mount_options = \"noatime,ro\"", "mount_options", "etcd has to write"),
        ("mount_options = [\"noload\"]", "mount_options", "journal"),
        ("mount_options = \"nouuid\"", "mount_options", "a copy of a filesystem"),
        ("mount_options = \"noatime,,x\"", "mount_options", "commas"),
        ("mount_options = 5", "mount_options", "a number"),
    ] {
        let wrong = mistake(line);
        assert_eq!(wrong.key, format!("guard[0].{key}"), "{line}");
        assert!(wrong.message.contains(says), "{line}: {}", wrong.message);
        assert_eq!(wrong.at().0, 6, "{line}");
    }
}

fn guard_with(device: &str, publish: &str, rest: &str) -> String {
    format!("[[guard]]\nname = \"a\"\ndevice = \"{device}\"\npublish = \"{publish}\"\n{rest}\n")
}

#[test]
fn devices_and_publish_paths_that_cannot_be_are_refused() {
    for device in ["vdb", "UUID=x", "UUID=", "LABEL=", "LABEL=much-too-long-a-label", "PARTUUID=1", "/", "/dev/../x"] {
        let all = problems(&guard_with(device, "/mnt/a", ""));
        assert_eq!((all.len(), all[0].key.as_str()), (1, "guard[0].device"), "{device}");
    }
    for publish in ["mnt/a", "/", "//", "/mnt/../etc", "/run/volhold/x", "/var/lib", "/var/lib/volhold", ""] {
        let all = problems(&guard_with("/dev/vdb", publish, ""));
        assert_eq!(all[0].key, "guard[0].publish", "{publish}");
    }
}

#[test]
fn a_device_named_by_what_is_written_on_it_can_never_be_blank() {
    let blank = "format = \"if-blank\"";
    let uuid = "UUID=aaaaaaaa-0000-0000-0000-000000000001";
    assert!(parse(&guard_with("/dev/vdb", "/mnt/a", blank)).is_ok());
    for device in [uuid, "LABEL=etcd"] {
        let all = problems(&guard_with(device, "/mnt/a", blank));
        assert_eq!((all.len(), all[0].key.as_str(), all[0].at().0), (1, "guard[0].format", 5));
    }
}

fn two(devices: [&str; 2], publish: [&str; 2], names: [&str; 2]) -> Result<Config, Vec<Problem>> {
    let guard = |n: usize| {
        format!("[[guard]]\nname = \"{}\"\ndevice = \"{}\"\npublish = \"{}\"\n", names[n], devices[n], publish[n])
    };
    parse(&format!("{}{}", guard(0), guard(1)))
}

#[test]
fn two_guards_share_no_name_no_device_and_no_place() {
    let devices = ["/dev/vdb", "/dev/vdc"];
    let apart = ["/mnt/a", "/mnt/b"];
    let names = ["a", "b"];
    assert!(two(devices, apart, names).is_ok());
    let key = |result: Result<Config, Vec<Problem>>| {
        let all = result.expect_err("a collision");
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].key.clone()
    };
    assert_eq!(key(two(devices, apart, ["a", "a"])), "guard[1].name");
    assert_eq!(key(two(["/dev/vdb", "/dev/./vdb"], apart, names)), "guard[1].device");
    assert_eq!(key(two(["LABEL=x", "LABEL=x"], apart, names)), "guard[1].device");
    for nested in [["/mnt/a", "/mnt/a"], ["/mnt/a", "/mnt/a/b"], ["/mnt/a/b", "/mnt/a"]] {
        assert_eq!(key(two(devices, nested, names)), "guard[1].publish");
    }
    assert!(two(devices, ["/mnt/a", "/mnt/ab"], names).is_ok());
}

#[test]
fn two_names_for_one_device_or_place_are_seen_through() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("disk"), "").unwrap();
    std::fs::create_dir(path("mnt")).unwrap();
    std::os::unix::fs::symlink(path("disk"), path("link")).unwrap();
    std::os::unix::fs::symlink(path("mnt"), path("way")).unwrap();
    let devices = two([&path("disk"), &path("link")], ["/mnt/a", "/mnt/b"], ["a", "b"]).unwrap_err();
    assert_eq!(devices[0].key, "guard[1].device");
    let places = two(["/dev/vdb", "/dev/vdc"], [&path("mnt/a"), &path("way/a/b")], ["a", "b"]).unwrap_err();
    assert_eq!(places[0].key, "guard[1].publish");
}

#[test]
fn state_and_run_do_not_lie_in_one_another() {
    let wrong = problems("[paths]\nstate = \"/run/volhold/state\"\n");
    assert_eq!((wrong.len(), wrong[0].key.as_str()), (1, "paths"));
}

#[test]
fn a_file_is_loaded_and_its_mistakes_carry_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volhold.toml");
    assert!(matches!(load(&Sources::file(&path)), Err(ConfigError::Read { .. })));
    std::fs::write(&path, LEAST).unwrap();
    let config = load(&Sources::file(&path)).unwrap().config;
    assert!(config.guard(&"main".parse().unwrap()).is_some());
    std::fs::write(&path, format!("{LEAST}fresh = \"alow\"\n")).unwrap();
    let error = load(&Sources::file(&path)).unwrap_err();
    assert_eq!(error.to_string(), format!("one mistake in {}", path.display()));
    assert_eq!(
        error.lines(),
        [format!("{}:6:9: guard[0].fresh: `alow` is not known here; did you mean `allow`?", path.display())]
    );
}

#[test]
fn what_may_not_be_meant_is_remarked_upon() {
    let text = guard_with("/dev/nvme1n1", "/mnt/a", "format = \"if-blank\"");
    let remarks = parse(&text).unwrap().remarks();
    assert_eq!(remarks.len(), 3, "{remarks:?}");
    assert_eq!(parse(LEAST).unwrap().remarks(), [""; 0]);
}

mod layers;
mod publish;

const EBS: &str = r#"
[[guard]]
name = "main"
provider = "ebs"
publish = "/var/lib/etcd"
"#;

#[test]
fn a_volume_of_ec2_is_named_by_its_id_or_by_tags() {
    let id = parse(&format!("{EBS}volume_id = \"vol-0123456789abcdef0\"\nformat = \"if-blank\"\n")).unwrap();
    assert_eq!(id.guards[0].device, DeviceSpec::Ebs(EbsSpec::Id(VolumeId("vol-0123456789abcdef0".into()))));
    let tags = parse(&format!("{EBS}volume_tags = [\"k8s.io/etcd/main=a/a,b,c\", \"KubernetesCluster\"]\n")).unwrap();
    let tag = |key: &str, value: Option<&str>| TagSpec { key: key.into(), value: value.map(str::to_owned) };
    let wanted = vec![tag("KubernetesCluster", None), tag("k8s.io/etcd/main", Some("a/a,b,c"))];
    assert_eq!(tags.guards[0].device, DeviceSpec::Ebs(EbsSpec::Tags(wanted)));
    // Shown, and read back as the same, commas and all.
    for config in [id, tags] {
        assert_eq!(parse(&toml(&config, None)).unwrap(), config);
    }
}

#[test]
fn a_volume_of_ec2_is_named_once_and_as_ec2_names_it() {
    for (line, key, says) in [
        ("", "guard[0]", "`volume_id` or `volume_tags` is missing"),
        ("volume_id = \"vol-xyz\"", "volume_id", "the id of an EBS volume"),
        ("volume_id = \"vol-1a2b3c4d\"\nvolume_tags = [\"a\"]", "volume_tags", "together with `volume_id`"),
        ("volume_id = \"vol-1a2b3c4d\"\ndevice = \"/dev/x\"", "device", "`provider = \"local\"`"),
        ("volume_tags = []", "volume_tags", "at least one tag"),
        ("volume_tags = [\"=b\"]", "volume_tags", "`KEY=VALUE`"),
        ("volume_tags = [\"a=b\", \"a=c\"]", "volume_tags", "twice"),
    ] {
        let all = problems(&format!("{EBS}{line}\n"));
        assert_eq!(all.len(), 1, "{line}: {all:?}");
        assert!(all[0].key.ends_with(key), "{line}: {all:?}");
        assert!(all[0].message.contains(says), "{line}: {all:?}");
    }
}

#[test]
fn two_guards_cannot_have_one_volume_of_ec2() {
    let guard = |name: &str| {
        format!(
            "[[guard]]\nname = \"{name}\"\nprovider = \"ebs\"\npublish = \"/mnt/{name}\"\nvolume_id = \"vol-1a2b3c4d\"\n"
        )
    };
    let all = problems(&format!("{}{}", guard("a"), guard("b")));
    assert!(all.iter().any(|problem| problem.message.contains("is the device of guard `a` already")), "{all:?}");
}
