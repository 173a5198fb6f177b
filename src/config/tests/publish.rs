//! `publish` as a list of directories.

use super::*;

fn with(publish: &str, more: &str) -> String {
    format!("[[guard]]\nname = \"main\"\ndevice = \"/dev/a\"\npublish = {publish}\n{more}\n")
}

#[track_caller]
fn wrong(publish: &str, more: &str) -> (String, (usize, usize), String) {
    let all = problems(&with(publish, more));
    assert_eq!(all.len(), 1, "{all:?}");
    (all[0].key.clone(), all[0].at(), all[0].message.clone())
}

#[test]
fn directories_are_taken_cleaned_and_read_back_as_they_were_shown() {
    let text = with("[{ from = \"./etcd/\", at = \"/var/lib//etcd\" }, { from = \"a/b\", at = \"/srv/b\" }]", "");
    let config = parse(&text).unwrap();
    let entries = config.guards[0].publish.entries().to_vec();
    let shown: Vec<(&str, &Path)> = entries.iter().map(|entry| (entry.from.as_str(), entry.at.as_path())).collect();
    assert_eq!(shown, [("etcd", Path::new("/var/lib/etcd")), ("a/b", Path::new("/srv/b"))]);
    assert_eq!(parse(&toml(&config, None)).unwrap(), config);
    let json = json(&config);
    assert_eq!(json["guard"][0]["publish"][1]["at"], "/srv/b");
    // As a list of tables over several lines, too.
    let longer = "[[guard]]\nname = \"main\"\ndevice = \"/dev/a\"\n[[guard.publish]]\nfrom = \"etcd\"\nat = \"/var/lib/etcd\"\n\
                  [[guard.publish]]\nfrom = \"a/b\"\nat = \"/srv/b\"\n";
    assert_eq!(parse(longer).unwrap(), config);
}

#[test]
fn a_directory_that_cannot_be_published_is_told_with_its_place() {
    for (from, says) in [
        ("/etcd", "without a leading `/`"),
        ("../etcd", "without `..`"),
        ("etcd/..", "without `..`"),
        (".", "for the whole volume"),
        ("", "for the whole volume"),
        (".volhold", "not etcd's"),
        (".volhold/quarantine", "not etcd's"),
        ("lost+found", "not etcd's"),
    ] {
        let (key, at, message) = wrong(&format!("[{{ from = \"{from}\", at = \"/srv/a\" }}]"), "");
        assert_eq!((key.as_str(), at), ("guard[0].publish[0].from", (4, 21)), "{from}");
        assert!(message.contains(says), "{from}: {message}");
    }
    for at in ["srv/a", "/", "/srv/../a", "/run/volhold/x", "/var/lib"] {
        let (key, place, _) = wrong(&format!("[{{ from = \"etcd\", at = \"{at}\" }}]"), "");
        assert_eq!((key.as_str(), place), ("guard[0].publish[0].at", (4, 34)), "{at}");
    }
}

#[test]
fn directories_and_places_do_not_lie_in_one_another() {
    let two = |one: [&str; 2], other: [&str; 2]| {
        let entry = |[from, at]: [&str; 2]| format!("{{ from = \"{from}\", at = \"{at}\" }}");
        wrong(&format!("[{}, {}]", entry(one), entry(other)), "")
    };
    for (one, other) in [("etcd", "etcd"), ("etcd", "etcd/wal"), ("a/b", "a")] {
        let (key, _, message) = two([one, "/srv/a"], [other, "/srv/b"]);
        assert_eq!(key, "guard[0].publish[1].from", "{message}");
        assert!(message.contains(one), "{message}");
    }
    for (one, other) in [("/srv/a", "/srv/a"), ("/srv/a", "/srv/a/b"), ("/srv/a/b", "/srv/a")] {
        let (key, _, message) = two(["etcd", one], ["other", other]);
        assert_eq!(key, "guard[0].publish[1].at", "{message}");
    }
    // Neighbours whose names begin alike are none.
    let text = with("[{ from = \"etcd\", at = \"/srv/a\" }, { from = \"etcd-old\", at = \"/srv/ab\" }]", "");
    parse(&text).unwrap();
}

#[test]
fn no_two_guards_share_a_place() {
    let mine = with("[{ from = \"etcd\", at = \"/srv/a\" }, { from = \"more\", at = \"/srv/b\" }]", "");
    for (theirs, key) in [
        ("\"/srv/b\"", "guard[1].publish"),
        ("\"/srv\"", "guard[1].publish"),
        ("[{ from = \"x\", at = \"/srv/c\" }, { from = \"y\", at = \"/srv/b/c\" }]", "guard[1].publish[1].at"),
    ] {
        let other = format!("[[guard]]\nname = \"other\"\ndevice = \"/dev/b\"\npublish = {theirs}\n");
        let all = problems(&format!("{mine}{other}"));
        assert!(!all.is_empty() && all.iter().all(|problem| problem.key == key), "{theirs}: {all:?}");
        assert!(all[0].message.contains("guard `main`"), "{all:?}");
    }
}

#[test]
fn the_data_dir_lies_in_a_directory_that_is_published() {
    let publish = "[{ from = \"etcd\", at = \"/srv/a\" }]";
    for inside in ["etcd", "etcd/default", "./etcd"] {
        parse(&with(publish, &format!("data_dir = \"{inside}\""))).unwrap();
    }
    for outside in ["default", "etcd2", "."] {
        let (key, at, message) = wrong(publish, &format!("data_dir = \"{outside}\""));
        assert_eq!((key.as_str(), at.0), ("guard[0].data_dir", 5));
        assert!(message.contains("etcd"), "{message}");
    }
}

#[test]
fn a_list_of_something_else_is_told_as_that() {
    for (publish, key, says) in [
        ("[]", "guard[0].publish", "at least one"),
        ("[\"/srv/a\"]", "guard[0].publish[0]", "a table with from and at"),
        ("[{ from = \"etcd\" }]", "guard[0].publish[0]", "`at` is missing"),
        ("[{ at = \"/srv/a\" }]", "guard[0].publish[0]", "`from` is missing"),
        ("[{ from = 1, at = \"/srv/a\" }]", "guard[0].publish[0].from", "a number"),
        ("[{ form = \"etcd\", from = \"etcd\", at = \"/srv/a\" }]", "guard[0].publish[0].form", "known here: from, at"),
    ] {
        let (wrong_key, at, message) = wrong(publish, "");
        assert_eq!((wrong_key.as_str(), at.0), (key, 4), "{message}");
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn an_open_gate_keeps_what_it_publishes() {
    let guard = |publish: &str| parse(&with(publish, "")).unwrap().guards.remove(0);
    let running = guard("[{ from = \"etcd\", at = \"/srv/a\" }]");
    for wanted in ["\"/srv/a\"", "[{ from = \"other\", at = \"/srv/a\" }]", "[{ from = \"etcd\", at = \"/srv/b\" }]"] {
        let (kept, told) = hold_back(&running, &guard(wanted));
        assert_eq!(kept, running);
        assert!(told.len() == 1 && told[0].contains("`publish`") && told[0].contains("etcd at /srv/a"), "{told:?}");
    }
}

#[test]
fn a_place_may_wait_for_the_volumes_id_where_ec2_has_to_say_which_one_it_is() {
    let guard = |name: &str, publish: &str| {
        format!(
            "[[guard]]\nname = \"{name}\"\nprovider = \"ebs\"\nvolume_tags = [\"c=x\", \"k8s.io/etcd/{name}\"]\npublish = \
             \"{publish}\"\n"
        )
    };
    let kops = |name| guard(name, "/mnt/master-{volume}");
    // Two guards never have one volume.
    let config = parse(&(kops("main") + &kops("events"))).unwrap();
    assert_eq!(parse(&toml(&config, None)).unwrap(), config);
    let below = problems(&(kops("main") + &guard("events", "/mnt/master-{volume}/x")));
    assert!(below.iter().any(|problem| problem.message.contains("lie in one another")), "{below:?}");
    for publish in ["\"/mnt/{volume}\"", "[{ from = \"etcd\", at = \"/srv/{volume}\" }]"] {
        let (key, _, message) = wrong(publish, "");
        assert!(key.starts_with("guard[0].publish") && message.contains("provider = \"ebs\""), "{key}: {message}");
    }
}
