//! What the pages of `volhold help` say to type, typed.

use crate::common::node::{PATIENCE, await_change};
use crate::common::{Node, Tmp};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use volhold::cli::manual::topics::{Part, TOPICS, topic};

/// Ends the agent of the page also when the test fails.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// In a shell, as a person: the exit code and what was said.
fn typed(line: &str) -> (Option<i32>, String) {
    let binary = Path::new(env!("CARGO_BIN_EXE_volhold")).parent().expect("its folder").display().to_string();
    let path = format!("{binary}:{}", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("sh").args(["-c", line]).env("PATH", path).stdin(Stdio::null()).output().expect("sh");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn the_trial_can_be_followed_to_the_letter_and_ends_as_it_says() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let place = tmp.join("trial").display().to_string();
    let here = |text: &str| text.replace("/srv/trial", &place);
    let page = topic("trial").expect("the page");
    // Its third step is about a master that is there.
    let own = page.parts.iter().take_while(|part| !matches!(part, Part::Head(text) if text.starts_with("3.")));
    let (mut agent, mut ran) = (None, 0);
    for part in own {
        match part {
            Part::Config(lines) => {
                std::fs::write(here("/srv/trial/config.toml"), here(&lines.join("\n"))).expect("a file")
            }
            Part::Type(lines) => {
                for line in *lines {
                    let (command, says) = line.split_once("  #").unwrap_or((line, ""));
                    let command = here(command);
                    if let Some(command) = command.strip_suffix(" &") {
                        let words: Vec<&str> = command.split(' ').skip(1).collect();
                        let mut run = Command::new(env!("CARGO_BIN_EXE_volhold"));
                        let child = run.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                        agent = Some(Agent(child.spawn().expect("the agent")));
                        // A person is not that quick.
                        let status = here("/srv/trial/run/status.json");
                        await_change(Path::new(&place), PATIENCE, || {
                            let text = std::fs::read(&status).unwrap_or_default();
                            let status: Value = serde_json::from_slice(&text).unwrap_or_default();
                            status["guards"][0]["would_hold"] == true
                        });
                    } else if command.starts_with("kill") {
                        let mut ended = agent.take().expect("it runs");
                        let pid = nix::unistd::Pid::from_raw(ended.0.id().cast_signed());
                        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("SIGTERM");
                        assert_eq!(ended.0.wait().expect("its end").code(), Some(0));
                    } else {
                        let (code, said) = typed(&command);
                        let wanted = says.split("ends with ").nth(1).and_then(|rest| rest.chars().next());
                        let wanted = wanted.and_then(|digit| digit.to_digit(10)).map_or(0, u32::cast_signed);
                        assert_eq!(code, Some(wanted), "{command}: {said}");
                        if command.ends_with(" status") || command.ends_with("explain trial") {
                            assert!(said.contains("would"), "{command}: {said}");
                        }
                    }
                    ran += 1;
                }
            }
            Part::Head(_) | Part::Text(_) | Part::Row(..) => {}
        }
    }
    assert!(ran >= 12 && agent.is_none(), "{ran} commands");
    let left = crate::common::run("losetup", &["-a"]);
    assert!(!left.contains(&place), "nothing stays but the folder: {left}");
}

#[test]
fn help_lists_its_pages_prints_each_and_knows_the_verbs_too() {
    let node = Node::new();
    let contents = node.volhold(&["help"]);
    assert_eq!(contents.code, Some(0));
    assert!(contents.stdout.lines().all(|line| line.chars().count() <= 80), "{contents:#?}");
    assert_eq!(node.volhold(&["help", "-o", "json"]).json()["topics"].as_array().map(Vec::len), Some(TOPICS.len()));
    for topic in TOPICS {
        assert!(contents.stdout.contains(&format!("volhold help {} ", topic.name)), "{contents:#?}");
        let page = node.volhold(&["help", topic.name]);
        assert_eq!(page.code, Some(0));
        assert!(page.stdout.starts_with(topic.about) && page.stdout.lines().count() > 20, "{page:#?}");
        assert!(page.stdout.lines().all(|line| line.chars().count() <= 80), "{page:#?}");
        let document = node.volhold(&["help", topic.name, "-o", "json"]).json();
        assert_eq!([&document["kind"], &document["name"]], [&Value::from("HelpPage"), &topic.name.into()]);
    }
    let verb = node.volhold(&["help", "wait"]);
    assert!(verb.code == Some(0) && verb.stdout.contains("--timeout"), "{verb:#?}");
    for unknown in ["nothing", "worker", ""] {
        let answer = node.volhold(&["help", unknown]);
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(5), ""), "{answer:#?}");
        assert!(answer.stderr.contains("kubeadm"), "{answer:#?}");
    }
}

#[test]
fn every_manual_page_is_in_both_packages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect("a file of the source");
    let (cargo, build) = (read("Cargo.toml"), read("packaging/build.sh"));
    assert!(build.contains("for page in $(\"$binary\" reference pages); do"), "{build}");
    let pages = Node::new().volhold(&["reference", "pages"]);
    assert_eq!(pages.stdout.lines().count(), 3 + TOPICS.len(), "{pages:#?}");
    for page in pages.stdout.lines() {
        let section = page.rsplit('.').next().expect("a section");
        let named = [format!("stage/{page}.gz\""), format!("stage/*.{section}.gz\"")];
        let listed = cargo.lines().filter(|line| named.iter().any(|name| line.contains(name))).count();
        assert_eq!(listed, 2, "{page} is listed {listed} times, and not once for the deb and once for the rpm");
    }
}
