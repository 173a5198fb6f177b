//! Layers over one another: which value counts, where it comes from, and what a layer may not do.

use super::*;

/// `(file name, text)`, in the order in which they are laid.
fn lay(texts: &[(&str, &str)], environment: &[(&str, &str)], set: &[&str]) -> Result<Loaded, Vec<Problem>> {
    let texts: Vec<(PathBuf, String)> = texts.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
    let sources = Sources {
        path: "config.toml".into(),
        environment: environment.iter().map(|(name, text)| ((*name).to_owned(), text.into())).collect(),
        set: set.iter().map(|&text| text.to_owned()).collect(),
    };
    merged(&texts, &sources)
}

fn origin(loaded: &Loaded, key: &str) -> String {
    loaded.origins.get(key).unwrap_or(&Place::Default).short()
}

/// The messages, with their places.
fn told(result: Result<Loaded, Vec<Problem>>) -> Vec<String> {
    result.expect_err("a mistake").iter().map(Problem::to_string).collect()
}

const MAIN: &str =
    "[[guard]]\nname = \"main\"\ndevice = \"/dev/a\"\npublish = \"/mnt/a\"\nfresh = \"allow\"\nmember = \"a\"\n";

#[test]
fn each_layer_sets_single_keys_over_the_ones_before() {
    let loaded = lay(
        &[
            ("config.toml", MAIN),
            ("10.toml", "[[guard]]\nname = \"main\"\nmode = \"enforce\"\nmember = \"b\"\nowner = \"a:a\"\n"),
            ("20.toml", "[[guard]]\nname = \"main\"\nowner = \"b:b\"\n"),
        ],
        &[("VOLHOLD_GUARD_MAIN_MEMBER", "c"), ("VOLHOLD_GUARD_MAIN_DATA_DIR", "d"), ("VOLHOLD_PATHS_RUN", "/r")],
        &["guard.main.data_dir=e", "paths.state=/s"],
    )
    .unwrap();
    let [guard] = loaded.config.guards.as_slice() else { panic!("{:?}", loaded.config) };
    assert_eq!((guard.mode, guard.fresh, guard.member.as_deref()), (Mode::Enforce, true, Some("c")));
    assert_eq!((guard.owner.as_ref().map(|o| o.user.as_str()), guard.data_dir.as_deref()), (Some("b"), Some("e")));
    assert_eq!(loaded.config.paths, Paths { state: "/s".into(), run: "/r".into() });
    for (key, from) in [
        ("guard.main.device", "config.toml:3"),
        ("guard.main.name", "config.toml:2"),
        ("guard.main.mode", "10.toml:3"),
        ("guard.main.owner", "20.toml:3"),
        ("guard.main.member", "environment VOLHOLD_GUARD_MAIN_MEMBER"),
        ("guard.main.data_dir", "--set guard.main.data_dir"),
        ("guard.main.format", "default"),
        ("paths.state", "--set paths.state"),
        ("paths.run", "environment VOLHOLD_PATHS_RUN"),
    ] {
        assert_eq!(origin(&loaded, key), from, "{key}");
    }
}

#[test]
fn a_later_layer_adds_guards_and_one_layer_names_a_guard_once() {
    let other = "[[guard]]\nname = \"other\"\ndevice = \"/dev/b\"\npublish = \"/mnt/b\"\n";
    let loaded = lay(&[("config.toml", MAIN), ("10.toml", other)], &[], &[]).unwrap();
    let names: Vec<&str> = loaded.config.guards.iter().map(|guard| guard.name.as_str()).collect();
    assert_eq!(names, ["main", "other"]);
    let twice = format!("{other}{other}");
    assert_eq!(
        told(lay(&[("config.toml", MAIN), ("10.toml", &twice)], &[], &[])),
        ["10.toml:6:8: guard[1].name: there is a guard `other` already"]
    );
}

#[test]
fn a_misspelled_name_is_not_a_new_guard_in_silence() {
    let slip = "[[guard]]\nname = \"maim\"\nmode = \"enforce\"\n";
    assert_eq!(
        told(lay(&[("config.toml", MAIN), ("10.toml", slip)], &[], &[])),
        [
            "10.toml:1:1: guard[0]: `device` is missing; did you mean guard `main`?",
            "10.toml:1:1: guard[0]: `publish` is missing; did you mean guard `main`?",
        ]
    );
}

#[test]
fn mistakes_are_told_where_they_are_written_and_in_the_order_of_the_layers() {
    let all = told(lay(
        &[("config.toml", MAIN), ("10.toml", "[[guard]]\nname = \"main\"\nmode = \"enforced\"\nformt = \"never\"\n")],
        &[("VOLHOLD_GUARD_MAIN_FRESH", "alow")],
        &["guard.main.dir_mode=9"],
    ));
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(all[0].starts_with("10.toml:3:8: guard[0].mode: `enforced`"), "{all:#?}");
    assert!(all[1].starts_with("10.toml:4:1: guard[0].formt: unknown key; did you mean `format`?"), "{all:#?}");
    assert!(all.iter().any(|line| line.starts_with("--set guard.main.dir_mode: guard.main.dir_mode: must be octal")));
    assert!(all.iter().any(|line| line.starts_with("environment VOLHOLD_GUARD_MAIN_FRESH: guard.main.fresh: `alow`")));
}

#[test]
fn a_text_that_is_no_toml_hides_the_mistakes_that_follow_from_it() {
    let part = "[[guard]]\nname = \"main\"\nmode = \"observe\"\n";
    let all = told(lay(&[("config.toml", "[[guard]\n"), ("10.toml", part)], &[], &[]));
    assert!(all.iter().all(|line| line.starts_with("config.toml:1:")), "{all:#?}");
}

#[test]
fn a_guards_name_in_the_environment_has_low_lines_for_dashes() {
    let text = MAIN.replace("main", "etcd-main");
    let loaded = lay(&[("config.toml", &text)], &[("VOLHOLD_GUARD_ETCD_MAIN_DIR_MODE", "0750")], &[]).unwrap();
    assert_eq!(loaded.config.guards[0].dir_mode, 0o750);
    let both = format!("{}{}", MAIN.replace("main", "x"), MAIN.replace("main", "x-dir").replace("/a\"", "/b\""));
    let unclear = told(lay(&[("config.toml", &both)], &[("VOLHOLD_GUARD_X_DIR_MODE", "0750")], &[]));
    assert!(unclear[0].contains("`dir_mode` of guard `x` or `mode` of guard `x-dir`"), "{unclear:?}");
    let only = MAIN.replace("main", "x-dir");
    let loaded = lay(&[("config.toml", &only)], &[("VOLHOLD_GUARD_X_DIR_MODE", "enforce")], &[]).unwrap();
    assert_eq!(loaded.config.guards[0].mode, Mode::Enforce);
    let made =
        lay(&[], &[("VOLHOLD_GUARD_A_B_DEVICE", "/dev/a"), ("VOLHOLD_GUARD_A_B_PUBLISH", "/mnt/a")], &[]).unwrap();
    assert_eq!(made.config.guards[0].name.as_str(), "a-b");
}

#[test]
fn a_misspelled_variable_or_flag_is_a_mistake_and_a_foreign_variable_is_not() {
    for (variable, hint) in [
        ("VOLHOLD_GUARD_MAIN_FORMT", "VOLHOLD_GUARD_MAIN_FORMAT"),
        ("VOLHOLD_GUARDS_MAIN_FORMAT", "VOLHOLD_GUARD_MAIN_FORMAT"),
        ("VOLHOLD_PATHS_STAT", "VOLHOLD_PATHS_STATE"),
        ("VOLHOLD_PATH_STATE", "VOLHOLD_PATHS_STATE"),
        ("VOLHOLD_GUARD_MAIN_NAME", "there may be MODE"),
    ] {
        let all = told(lay(&[("config.toml", MAIN)], &[(variable, "x")], &[]));
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].starts_with(&format!("environment {variable}: ")) && all[0].contains(hint), "{all:?}");
    }
    for (flag, hint) in [
        ("guard.main.formt=never", "did you mean `format`?"),
        ("guard.main.fresh", "KEY=VALUE"),
        ("paths.stat=/x", "`state`"),
        ("mode=observe", "guard.NAME.KEY"),
        ("guard.main.name=x", "unknown key"),
    ] {
        let all = told(lay(&[("config.toml", MAIN)], &[], &[flag]));
        assert!(all.len() == 1 && all[0].contains(hint), "{flag}: {all:?}");
    }
    let foreign =
        [("VOLHOLD_CONFIG", "/x"), ("VOLHOLD_LOG", "debug"), ("VOLHOLD_TEST_DIR", "/y"), ("PATHS_STATE", "z")];
    assert!(lay(&[("config.toml", MAIN)], &foreign, &[]).is_ok());
}

#[test]
fn files_beside_are_read_in_the_order_of_their_names_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    std::fs::create_dir(dir.path().join("conf.d")).unwrap();
    write("config.toml", MAIN);
    write("conf.d/20-late.toml", "[[guard]]\nname = \"main\"\nmember = \"late\"\n");
    write("conf.d/10-early.toml", "[[guard]]\nname = \"main\"\nmember = \"early\"\nowner = \"a:a\"\n");
    for other in ["conf.d/99.toml~", "conf.d/99.bak", "conf.d/.99.toml"] {
        write(other, "no TOML at all [");
    }
    let sources = Sources::file(&dir.path().join("config.toml"));
    let loaded = load(&sources).unwrap();
    assert_eq!(loaded.config.guards[0].member.as_deref(), Some("late"));
    assert!(loaded.config.guards[0].owner.is_some());
    write("conf.d/30.toml", "x = 1\n");
    let lines = load(&sources).unwrap_err().lines();
    assert!(lines.len() == 1 && lines[0].contains("conf.d/30.toml:1:1: x: unknown key"), "{lines:?}");
}

#[test]
fn what_is_shown_reads_back_as_the_same() {
    let text = "[paths]\nstate = \"/s\"\n[[guard]]\nname = \"main\"\nmode = \"enforce\"\ndevice = \"/dev/q\\\"\\\\ä\"\npublish = \"/mnt//a\"\n\
        format = \"if-blank\"\ndata_dir = \"a b\"\nowner = \"etcd:1\"\ndir_mode = \"0750\"\nfresh = \"allow\"\nmember = \"m\"\n\
        peer_url = \"https://h:1/\"\nmount_options = \"noatime,discard\"\n[[guard]]\nname = \"by-label\"\ndevice = \"LABEL=x#y\"\npublish = \"/mnt/b\"\n";
    let loaded = lay(&[("config.toml", text)], &[], &[]).unwrap();
    for shown in [toml(&loaded.config, None), toml(&loaded.config, Some(&loaded.origins))] {
        let again = parse(&shown).unwrap_or_else(|all| panic!("{all:?}\n{shown}"));
        assert_eq!(again, loaded.config, "{shown}");
    }
    let kept = parse_kept(Path::new("k"), &kept_text(&loaded, Path::new("/etc/x.toml"))).unwrap();
    assert_eq!(kept, Kept { source: "/etc/x.toml".into(), config: loaded.config.clone() });
    let running = running_text(&loaded.config.guards[0], &loaded.config);
    assert_eq!(parse_running(Path::new("r"), &running).unwrap(), loaded.config.guards[0]);
    let shown = toml(&loaded.config, Some(&loaded.origins));
    let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
    assert!(line("state").ends_with("# config.toml:2") && line("run").ends_with("# default"), "{shown}");
}

#[test]
fn an_open_gate_keeps_where_its_data_is_and_takes_how_it_is_judged() {
    let running = parse(MAIN).unwrap().guards.remove(0);
    let text = "[[guard]]\nname = \"main\"\ndevice = \"/dev/b\"\npublish = \"/mnt/b\"\nmode = \"enforce\"\ndata_dir = \"d\"\n\
        owner = \"b:b\"\ndir_mode = \"0711\"\nfresh = \"deny\"\nmember = \"b\"\npeer_url = \"http://b:1\"\nformat = \"if-blank\"\n\
        mount_options = \"noatime\"\n";
    let wanted = parse(text).unwrap().guards.remove(0);
    let (kept, told) = hold_back(&running, &wanted);
    let expected = GuardConfig {
        device: running.device.clone(),
        publish: running.publish.clone(),
        data_dir: None,
        mount_options: vec![],
        ..wanted.clone()
    };
    assert_eq!(kept, expected);
    let keys: Vec<&str> = told.iter().filter_map(|sentence| sentence.split('`').nth(1)).collect();
    assert_eq!(keys, ["device", "publish", "data_dir", "mount_options"]);
    assert!(told[0].contains("/dev/b now") && told[0].contains("/dev/a stays"), "{told:?}");
    assert_eq!(hold_back(&running, &running), (running.clone(), vec![]));
}

#[test]
fn a_broken_text_still_tells_where_the_state_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    std::fs::write(&path, "[paths]\nstate = \"/srv/state/\"\n[[guard]\n").unwrap();
    let mut sources = Sources::file(&path);
    assert_eq!(sources.state_candidates(), [PathBuf::from("/srv/state"), "/var/lib/volhold".into()]);
    sources.set.push("paths.state=/other".to_owned());
    assert_eq!(sources.state_candidates()[0], PathBuf::from("/other"));
}

#[test]
fn tables_are_laid_key_by_key_like_guards_and_read_back() {
    let lay_http = |text: &str, environment, set| lay(&[("config.toml", MAIN), ("10.toml", text)], environment, set);
    let loaded = lay_http(
        "[http]\nlisten = \"127.0.0.1:1\"\n",
        &[("VOLHOLD_HTTP_LISTEN", "127.0.0.1:2")],
        &["http.listen=[::1]:3"],
    )
    .unwrap();
    assert_eq!(loaded.config.http.listen, Some("[::1]:3".parse().unwrap()));
    assert_eq!(origin(&loaded, "http.listen"), "--set http.listen");
    let shown = toml(&loaded.config, None);
    let again = lay(&[("shown.toml", &shown)], &[], &[]).unwrap();
    assert_eq!((again.config, shown.contains("[http]")), (loaded.config, true));

    let nothing: &[(&str, &str)] = &[];
    assert_eq!(
        told(lay_http("[http]\nlisen = \"127.0.0.1:1\"\n", nothing, &[])),
        ["10.toml:2:1: http.lisen: unknown key; did you mean `listen`?"]
    );
    assert_eq!(told(lay_http("http = 1\n", nothing, &[])), ["10.toml:1:8: http: is a number, wanted a table `[http]`"]);
    assert_eq!(
        told(lay_http("", &[("VOLHOLD_HTTP_GROUPS", "x")], &[])),
        ["environment VOLHOLD_HTTP_GROUPS: unknown variable; did you mean `VOLHOLD_HTTP_GROUP`?"]
    );
}
