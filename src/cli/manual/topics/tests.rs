use super::*;
use crate::cli::args::Cli;
use crate::config::{Sources, load};
use clap::{CommandFactory, Parser};
use std::collections::BTreeSet;

/// Programs of others that the pages name as something to type.
const OTHERS: &[&str] = &[
    "systemctl",
    "kubeadm",
    "mkdir",
    "truncate",
    "mkfs.ext4",
    "dd",
    "blkid",
    "kill",
    "apt-mark",
    "make",
    "chattr",
    "rm",
];

/// Every command of a page: the lines to type, and what stands in backticks and begins as one.
fn commands(topic: &Topic) -> Vec<String> {
    let mut found = Vec::new();
    for part in topic.parts {
        match part {
            Part::Type(lines) => {
                let bare = lines.iter().map(|line| line.split("  #").next().unwrap().trim());
                found.extend(bare.map(str::to_owned));
            }
            Part::Text(text) | Part::Row(_, text) => {
                let typed = text.split('`').skip(1).step_by(2);
                let first = |text: &str| text.split(' ').next().unwrap().to_owned();
                found.extend(
                    typed.filter(|t| first(t) == "volhold" || OTHERS.contains(&first(t).as_str())).map(str::to_owned),
                );
            }
            Part::Head(_) | Part::Config(_) => {}
        }
    }
    found
}

/// As a person would complete it.
fn completed(command: &str) -> Vec<String> {
    let words = command.trim_end_matches(" &").split(' ');
    let fill = |word: &str| match word {
        "NAME" => "main".to_owned(),
        "DEVICE" | "FILE" => "/dev/nvme1n1".to_owned(),
        word => word.to_owned(),
    };
    words.map(fill).collect()
}

#[test]
fn every_command_in_the_pages_is_one_that_the_command_line_reads() {
    let mut ours = 0;
    for topic in TOPICS {
        for command in commands(topic) {
            let words = completed(&command);
            if words[0] != "volhold" {
                assert!(OTHERS.contains(&words[0].as_str()), "{}: {command}", topic.name);
                continue;
            }
            ours += 1;
            // In a sentence a verb may be meant and not what is typed.
            if let [_, verb] = &words[..]
                && Cli::command().find_subcommand(verb).is_some_and(|verb| !verb.is_hide_set())
            {
                continue;
            }
            let read = Cli::try_parse_from(&words);
            assert!(read.is_ok(), "{}: {command}: {}", topic.name, read.unwrap_err());
        }
    }
    assert!(ours > 40, "{ours} commands");
}

#[test]
fn what_is_named_in_backticks_is_typed_in_full() {
    for topic in TOPICS {
        for part in topic.parts {
            let (Part::Text(text) | Part::Row(_, text)) = part else { continue };
            assert!(text.matches('`').count().is_multiple_of(2), "{}: {text}", topic.name);
            assert!(text.ends_with(['.', ':', '?']) && !text.contains("  "), "{}: {text}", topic.name);
        }
    }
}

#[test]
fn every_configuration_in_the_pages_is_valid() {
    let mut read = 0;
    for topic in TOPICS {
        for part in topic.parts {
            let Part::Config(lines) = part else { continue };
            let tmp = tempfile::tempdir().unwrap();
            let path = tmp.path().join("config.toml");
            std::fs::write(&path, lines.join("\n")).unwrap();
            let loaded = load(&Sources::file(&path));
            let config = loaded.unwrap_or_else(|error| panic!("{}: {:?}", topic.name, error.lines())).config;
            assert!(!config.guards.is_empty(), "{}", topic.name);
            read += 1;
        }
    }
    assert!(read >= 6, "{read} configurations");
}

#[test]
fn pages_have_names_of_their_own_fit_the_screen_and_keep_to_what_is_known() {
    let names: BTreeSet<&str> = TOPICS.iter().map(|topic| topic.name).collect();
    assert_eq!(names.len(), TOPICS.len());
    for topic in TOPICS {
        assert!(topic.parts.len() > 4 && !topic.about.ends_with('.'), "{}", topic.name);
        assert_eq!(super::topic(topic.name).unwrap().about, topic.about);
        for part in topic.parts {
            if let Part::Type(lines) | Part::Config(lines) = part {
                assert!(lines.iter().all(|line| line.chars().count() <= 78), "{}: {lines:#?}", topic.name);
            }
        }
    }
    // What a master stands on was never tried on the real thing: each page that needs EC2 says so.
    let text = |name: &str| format!("{:?}", super::topic(name).unwrap());
    for name in ["etcd", "kubeadm", "kops"] {
        assert!(text(name).contains("never run on a real EC2 instance"), "{name}");
    }
    assert!(text("kops").contains("Detected, not prevented.") && text("never").contains("not prevented"));
}
