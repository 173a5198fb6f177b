//! The program as people and scripts meet it: what it prints, how it ends, and what it refuses to record.
//!
//! Status and decision files are written here as an agent would; no agent runs, so nothing moves meanwhile.

use crate::common::{Answer, Guard, Node, disk};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use volhold::cli::exit::Exit;
use volhold::config::keys;
use volhold::model::{
    BlkidAnswer, BootId, Content, ContentClass, DataDirReport, Decision, DecisionEvidence, DecisionVerdict, DevNum,
    DeviceFacts, DeviceReading, DirRole, EtcdGeneration, Fact, Finding, FindingKind, Fingerprint, Gate, GuardStatus,
    Mode, Observed, Reason, ReasonCode, SelectedBy, Selection, Siblings, StartEvidence, StateName, Status, Time,
    Timing, Validated, VolumeAge, VolumeId, VolumeReading,
};
use volhold::record::{NodeLedger, machine_id, store_decision};

const VOLUME: &str = "vol-0a5a75bec90179bd8";

fn node() -> Node {
    let node = Node::new();
    node.configure(&[Guard::enforce("main", "/dev/volhold-test-nothing", &node.path("mnt"))]);
    node
}

fn device() -> DeviceFacts {
    DeviceFacts {
        requested: "/dev/volhold-test-nothing".into(),
        node: "/dev/nvme1n1".into(),
        devnum: DevNum { major: 259, minor: 1 },
        size: 20 << 30,
        logical_block: 512,
        read_only: false,
        whole_disk: true,
        serial: Some(VOLUME.replace('-', "")),
        diskseq: Some(9),
        backing_file: None,
        volume_id: VolumeId(VOLUME.into()),
        uses: vec![],
    }
}

fn guard(name: &str, gate: Gate) -> GuardStatus {
    GuardStatus {
        name: name.parse().unwrap(),
        mode: Mode::Enforce,
        gate,
        would_hold: false,
        state: match gate {
            Gate::Open => StateName::Open,
            Gate::Waiting => StateName::Examining,
            Gate::Held => StateName::Held,
        },
        progress: None,
        volume: Some(VolumeId(VOLUME.into())),
        device: Some(device()),
        fs_uuid: None,
        publish: "/var/lib/etcd".into(),
        publish_dirs: vec![],
        data_dir: None,
        waits: None,
        reasons: match gate {
            Gate::Held => vec![reason(ReasonCode::BackupSuperblockFound)],
            Gate::Open | Gate::Waiting => vec![],
        },
        warnings: vec![],
        since: Time::from_unix(1_796_000_000).unwrap(),
        timings: vec![],
        figures: Default::default(),
        witness: None,
        watch: None,
    }
}

fn reason(code: ReasonCode) -> Reason {
    Reason::new(code, format!("a sentence about {code} that is long enough to be wrapped somewhere on a narrow screen"))
}

/// As an agent that has ended would leave it: no process has this number.
fn write_status(node: &Node, guards: Vec<GuardStatus>) {
    let status = Status {
        api_version: "volhold/v1".into(),
        kind: "Status".into(),
        version: "0.1.0".into(),
        written_at: Time::from_unix(1_796_000_100).unwrap(),
        pid: u32::MAX,
        guards,
        config: vec![],
        warnings: vec![],
    };
    std::fs::write(node.path("run/status.json"), serde_json::to_vec(&status).unwrap()).unwrap();
}

fn reading() -> DeviceReading {
    DeviceReading {
        libblkid: Observed::Seen(BlkidAnswer { safeprobe: 1, probe_loop: 1, named: vec![], version: "2.38.1".into() }),
        content: Observed::Seen(Content {
            class: ContentClass::Other,
            complete: false,
            bytes_read: 2 << 20,
            read_errors: 0,
            first_other: Some(4096),
            findings: vec![Finding {
                kind: FindingKind::ExtBackupSuperblock,
                offset: 134_217_728,
                validated: Validated::Checksum,
                uuid: Some("76a67086-0f6e-4f0e-9f43-1d2d3f4a5b6c".into()),
                detail: None,
            }],
            sample: None,
            telling_digest: "00".into(),
            size_before: 20 << 30,
            size_after: 20 << 30,
        }),
        filesystem: None,
    }
}

fn write_decision(node: &Node, verdict: DecisionVerdict, reasons: Vec<Reason>, start: Option<StartEvidence>) {
    let decision = Decision {
        guard: "main".parse().unwrap(),
        time: Time::from_unix(1_796_000_000).unwrap(),
        boot_id: BootId("b".into()),
        version: "0.1.0".into(),
        verdict,
        reasons,
        warnings: vec![],
        evidence: DecisionEvidence {
            device: Some(device()),
            reading: Some(reading()),
            start,
            ..DecisionEvidence::default()
        },
        not_done: vec!["the device was not formatted".into(), "it was not mounted".into()],
    };
    store_decision(&node.path("state"), &decision).unwrap();
}

/// Two data dirs, the selected one without data.
fn two_dirs(old: &str) -> StartEvidence {
    let dir = |path: &str, populated, cluster: Option<u64>| DataDirReport {
        path: path.into(),
        role: DirRole::Candidate,
        layout: "etcd".into(),
        etcd: EtcdGeneration::V3,
        populated,
        fingerprint: Some(Fingerprint {
            cluster_id: cluster.map(volhold::model::ClusterId),
            keys: Some(u64::from(populated) * 4_182_377),
            ..Fingerprint::default()
        }),
        defects: vec![],
        locked_by: None,
    };
    StartEvidence {
        volume_id: VolumeId(VOLUME.into()),
        filesystem: Observed::not_run("x"),
        volume: Observed::Seen(VolumeReading {
            data_dirs: vec![dir("new", false, None), dir(old, true, Some(0xcdf8_1819_4e3a_8c32))],
            selected: Some(Selection { path: "new".into(), by: SelectedBy::Config, exists: true }),
            manager_state: None,
            unreadable: vec![],
            beyond: vec![],
            root_entries: vec![],
            publish: vec![],
        }),
        records: Observed::not_run("x"),
        running: Observed::Seen(None),
        age: Observed::Seen(VolumeAge::NoProvider),
        siblings: Siblings::not_named(),
        witness: Observed::Seen(None),
        to_run: Observed::Seen(None),
    }
}

/// What was printed for a person: 80 columns, nothing that drives a terminal.
#[track_caller]
fn assert_fits(answer: &Answer) {
    for line in answer.stdout.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    assert_harmless(&answer.stdout);
}

#[track_caller]
fn assert_harmless(text: &str) {
    let bad = text.chars().find(|c| c.is_control() && *c != '\n' || matches!(c, '\u{202a}'..='\u{202e}'));
    assert_eq!(bad, None, "{text:?}");
}

#[track_caller]
fn assert_fields(document: &Value, kind: &str, fields: &[&str]) {
    assert_eq!((&document["apiVersion"], &document["kind"]), (&json!("volhold/v1"), &json!(kind)));
    for field in fields {
        assert!(document.get(field).is_some(), "{kind} without {field}: {document:#}");
    }
}

#[test]
fn help_names_every_verb_and_fits_the_screen() {
    let answer = Node::new().volhold(&["--help"]);
    assert_eq!(answer.code, Some(0));
    assert_fits(&answer);
    for verb in [
        "run",
        "status",
        "explain",
        "inspect",
        "verify",
        "compare",
        "fleet",
        "state",
        "wait",
        "gate",
        "adopt",
        "release",
        "retry",
        "snapshot",
        "config",
        "Exit codes",
    ] {
        assert!(answer.stdout.contains(verb), "help without {verb}: {}", answer.stdout);
    }
    assert!(!answer.stdout.contains("worker"), "the worker is no verb for people");
}

#[test]
fn wrong_usage_ends_with_2_and_says_so_on_standard_error() {
    let node = node();
    for args in [
        &["stats"][..],
        &["explain"],
        &["explain", "Main"],
        &["release", "main"],
        &["release", "main", "--for", "soon"],
        &["release", "main", "--for", "1"],
        &["release", "main", "--for", "0s"],
        &["adopt", "main", "--restored", "--new-cluster"],
        &["status", "-o", "yaml"],
        &["wait", "main", "--timeout", "1w"],
    ] {
        let answer = node.volhold(args);
        assert_eq!(answer.code, Some(2), "{args:?}: {answer:#?}");
        assert!(!answer.stderr.is_empty() && answer.stdout.is_empty(), "{args:?}: {answer:#?}");
    }
}

#[test]
fn a_wrong_configuration_ends_with_78_and_the_place_of_the_mistake() {
    let node = Node::new();
    let missing = node.volhold(&["status"]);
    assert_eq!(missing.code, Some(78), "{missing:#?}");
    std::fs::write(node.path("config.toml"), "[[guard]]\nname = \"main\"\nfromat = \"never\"\n").unwrap();
    for args in [&["config", "check"][..], &["status"], &["explain", "main"], &["retry", "main"], &["run"]] {
        let answer = node.volhold(args);
        assert_eq!(answer.code, Some(78), "{args:?}: {answer:#?}");
        assert!(answer.stderr.contains("config.toml:3:1"), "{args:?}: {answer:#?}");
    }
    node.configure(&[Guard::enforce("main", "/dev/volhold-test-nothing", &node.path("mnt"))]);
    let right = node.volhold(&["config", "check", "-o", "json"]);
    assert_eq!(right.code, Some(0), "{right:#?}");
    assert_fields(&right.json(), "ConfigCheck", &["path", "guards", "remarks"]);
}

#[test]
fn a_guard_that_nobody_configured_ends_with_78_everywhere() {
    let node = node();
    for args in [
        &["explain", "other"][..],
        &["wait", "other"],
        &["gate", "check", "other"],
        &["adopt", "other"],
        &["retry", "other"],
        &["release", "other", "--for", "1h"],
        &["plan", "other"],
        &["history", "other"],
        &["doctor", "other"],
    ] {
        let answer = node.volhold(args);
        assert_eq!(answer.code, Some(78), "{args:?}");
        // Whoever mistyped it sees what there is.
        assert!(answer.stderr.contains("configured: main"), "{args:?}: {answer:#?}");
    }
}

#[test]
fn the_exit_code_of_status_is_that_of_the_worst_gate() {
    let node = node();
    let code = |guards: Vec<GuardStatus>| {
        write_status(&node, guards);
        node.volhold(&["status"]).code
    };
    assert_eq!(node.volhold(&["status"]).code, Some(75), "nobody has decided anything yet");
    assert_eq!(code(vec![guard("main", Gate::Open)]), Some(0));
    assert_eq!(code(vec![guard("main", Gate::Waiting)]), Some(75));
    assert_eq!(code(vec![guard("main", Gate::Held)]), Some(3));
    assert_eq!(code(vec![guard("main", Gate::Waiting), guard("b", Gate::Held), guard("c", Gate::Open)]), Some(3));
    assert_eq!(code(vec![guard("b", Gate::Open)]), Some(75), "the configured guard was not reported");
    let observed = GuardStatus { mode: Mode::Observe, would_hold: true, ..guard("main", Gate::Open) };
    assert_eq!(code(vec![observed]), Some(0));
    assert!(node.volhold(&["status"]).stdout.contains("would hold"));
}

#[test]
fn status_tells_what_each_step_took_only_when_asked() {
    let node = node();
    let timing = |step: &str, us| Timing { step: step.into(), us };
    let timings = vec![timing("find the device", 1_250), timing("fsck", 41_000)];
    write_status(&node, vec![GuardStatus { timings, ..guard("main", Gate::Open) }]);
    let shown = node.volhold(&["status", "--timings"]).stdout;
    for line in ["        1.2 ms  find the device", "       41.0 ms  fsck", "       42.2 ms  in all"] {
        assert!(shown.contains(line), "{line:?} is missing:\n{shown}");
    }
    assert!(!node.volhold(&["status"]).stdout.contains("fsck"));
    let document = node.volhold(&["status", "-o", "json"]).json();
    assert_eq!(document["guards"][0]["timings"][1], json!({"step": "fsck", "us": 41_000}));
}

#[test]
fn status_says_that_the_agent_is_gone_and_what_it_said_last() {
    let node = node();
    write_status(&node, vec![guard("main", Gate::Held)]);
    let answer = node.volhold(&["status"]);
    assert_fits(&answer);
    for words in ["NOT running", "2026-11-30", "HELD", "backup-superblock-found", VOLUME, "volhold explain main"] {
        assert!(answer.stdout.contains(words), "no {words}: {}", answer.stdout);
    }
    let document = node.volhold(&["status", "-o", "json"]).json();
    assert_fields(&document, "Status", &["guards", "unreported"]);
    assert_eq!(document["agent"]["running"], false);
    for field in ["name", "mode", "gate", "would_hold", "state", "volume", "device", "data_dir", "reasons", "since"] {
        assert!(document["guards"][0].get(field).is_some(), "a guard without {field}: {document:#}");
    }
}

#[test]
fn explain_answers_without_agent_in_the_order_of_the_night() {
    let node = node();
    let reasons = vec![reason(ReasonCode::BackupSuperblockFound), reason(ReasonCode::ShortRead)];
    write_status(&node, vec![GuardStatus { reasons: reasons.clone(), ..guard("main", Gate::Held) }]);
    write_decision(&node, DecisionVerdict::Held, reasons, None);
    let answer = node.volhold(&["explain", "main"]);
    assert_eq!(answer.code, Some(4), "{answer:#?}");
    assert_fits(&answer);
    let first = answer.stdout.lines().next().unwrap();
    assert!(first.starts_with("main is HELD: "), "{first}");
    let order = [
        "main is HELD",
        "backup superblock at byte 134217728",
        "would run mkfs now",
        "What would have happened without the guard",
        "What was NOT done",
        "the device was not formatted",
        "Choose (safest first)",
        "aws ec2 create-snapshot --volume-id vol-0a5a75bec90179bd8",
        "volhold release main --for 1h",
        "Not offered: formatting",
    ];
    let flat = answer.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let places: Vec<Option<usize>> = order.iter().map(|words| flat.find(words)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}\n{}", answer.stdout);

    let document = node.volhold(&["explain", "main", "-o", "json"]).json();
    assert_fields(&document, "Explanation", &["guard", "summary", "evidence", "reasons", "not_done", "choices"]);
    let choices = document["choices"].as_array().unwrap();
    assert_eq!(choices[0]["safe"], true);
    for choice in choices {
        assert!(choice["effect"].is_string() && choice["safe"].is_boolean(), "{choice}");
        assert!(!choice["command"].as_str().unwrap().contains("mkfs"), "{choice}");
    }
}

#[test]
fn explain_needs_no_status_file_after_a_reboot() {
    let node = node();
    write_decision(&node, DecisionVerdict::Held, vec![reason(ReasonCode::DataVanished)], None);
    let answer = node.volhold(&["explain", "main"]);
    assert_eq!(answer.code, Some(4), "{answer:#?}");
    assert!(answer.stdout.contains("is gone"), "{}", answer.stdout);
    let json = node.volhold(&["explain", "main", "-o", "json"]);
    assert_eq!(json.json()["gate"], Value::Null);
    assert_eq!(json.codes(), ["data-vanished"]);
}

#[test]
fn every_data_dir_is_shown_with_who_selects_it() {
    let node = node();
    write_decision(
        &node,
        DecisionVerdict::Held,
        vec![reason(ReasonCode::EmptyBesideOld)],
        Some(two_dirs("var/etcd/data")),
    );
    let flat = node.volhold(&["explain", "main"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["new, etcd 3, 0 keys, empty <- selected by the configuration", "cdf818194e3a8c32, 4,182,377 keys"] {
        assert!(flat.contains(words), "no {words}: {flat}");
    }
}

#[test]
fn names_from_a_hostile_volume_do_not_drive_the_terminal() {
    let node = node();
    let evil = "a\u{1b}[2J\u{9b}31m\u{202e}\r\nmain is open: b\u{7}";
    write_status(
        &node,
        vec![GuardStatus {
            reasons: vec![Reason::new(ReasonCode::EmptyBesideOld, evil)],
            volume: Some(VolumeId(evil.into())),
            ..guard("main", Gate::Held)
        }],
    );
    write_decision(
        &node,
        DecisionVerdict::Held,
        vec![Reason::new(ReasonCode::EmptyBesideOld, evil)],
        Some(two_dirs(evil)),
    );
    for args in [&["status"][..], &["explain", "main"], &["adopt", "main"]] {
        for form in ["table", "json"] {
            let answer = node.volhold(&[args, &["-o", form]].concat());
            assert_harmless(&answer.stdout);
            assert_harmless(&answer.stderr);
            assert!(answer.stdout.contains(if form == "json" { "\\u001b[2J" } else { "\\x1b[2J" }), "{answer:#?}");
            assert!(!answer.stdout.lines().any(|line| line.starts_with("main is open")), "{answer:#?}");
        }
    }
    let document = node.volhold(&["status", "-o", "json"]).json();
    assert_eq!(document["guards"][0]["volume"], evil, "scripts get what is there");
}

fn ledger(node: &Node) -> Vec<Fact> {
    let state = node.path("state");
    let ledger = NodeLedger::at(&state, &"main".parse().unwrap(), &machine_id(&state).unwrap());
    ledger.read().unwrap().own.into_iter().map(|(_, entry)| entry.fact).collect()
}

/// Held for something that `adopt` can answer.
fn held_beside_old() -> Node {
    let node = node();
    let reasons = vec![reason(ReasonCode::EmptyBesideOld)];
    write_status(&node, vec![GuardStatus { reasons: reasons.clone(), ..guard("main", Gate::Held) }]);
    write_decision(&node, DecisionVerdict::Held, reasons, Some(two_dirs("old")));
    node
}

#[test]
fn without_the_typed_id_nothing_is_recorded() {
    let node = held_beside_old();
    for args in [
        &["adopt", "main"][..],
        &["adopt", "main", "--confirm", ""],
        &["adopt", "main", "--confirm", "yes"],
        &["adopt", "main", "--confirm", "vol-0a5a75bec90179bd"],
        &["adopt", "main", "--new-cluster", "--confirm", "main"],
        &["release", "main", "--for", "1h"],
        &["release", "main", "--for", "1h", "--confirm", "cdf818194e3a8c32"],
    ] {
        let answer = node.volhold(args);
        assert_eq!(answer.code, Some(2), "{args:?}: {answer:#?}");
        assert!(answer.stdout.contains("This will"), "the plan comes first: {answer:#?}");
        assert!(answer.stderr.contains(VOLUME), "it is not said what was to be typed: {answer:#?}");
        let answer = node.volhold(&[args, &["-o", "json"]].concat());
        assert_eq!(answer.code, Some(2), "{args:?}: {answer:#?}");
        let document = answer.json();
        assert_fields(&document, "Change", &["guard", "steps", "done", "recorded"]);
        assert_eq!((&document["done"], &document["recorded"]), (&json!(false), &Value::Null));
        assert!(document["steps"][0]["action"].is_string() && document["steps"][0]["writes"].is_boolean());
    }
    assert_eq!(ledger(&node), []);
    assert!(!node.path("run/requests/main").exists());
}

#[test]
fn a_typed_volume_or_cluster_id_is_consent_and_the_agent_is_asked() {
    for (id, flag, what) in
        [(VOLUME, "--new-cluster", "new-cluster"), ("cdf818194e3a8c32", "--replacement", "replacement")]
    {
        let node = held_beside_old();
        let answer = node.volhold(&["adopt", "main", flag, "--confirm", id, "-o", "json"]);
        assert_eq!(answer.code, Some(0), "{answer:#?}");
        let document = answer.json();
        assert_eq!(document["done"], true);
        assert_eq!(document["recorded"].as_str().map(str::len), Some(16), "{document:#}");
        let facts = ledger(&node);
        assert_eq!(facts.len(), 1);
        assert_eq!(serde_json::to_value(&facts[0]).unwrap(), json!({"kind": "adopted", "what": what, "confirmed": id}));
        assert!(node.path("run/requests/main").exists());
    }
}

#[test]
fn adopt_is_refused_where_it_is_no_answer() {
    let node = node();
    write_status(&node, vec![guard("main", Gate::Held)]);
    let answer = node.volhold(&["adopt", "main", "--confirm", VOLUME]);
    assert_eq!(answer.code, Some(4), "{answer:#?}");
    assert_eq!(ledger(&node), []);
}

#[test]
fn data_that_went_back_in_time_is_not_adopted_as_a_start_with_nothing() {
    let held = |codes: &[ReasonCode]| {
        let node = node();
        let reasons: Vec<Reason> = codes.iter().map(|code| reason(*code)).collect();
        write_status(&node, vec![GuardStatus { reasons: reasons.clone(), ..guard("main", Gate::Held) }]);
        let mut seen = two_dirs("old");
        if let Observed::Seen(volume) = &mut seen.volume {
            volume.selected = Some(Selection { path: "old".into(), by: SelectedBy::Config, exists: true });
        }
        write_decision(&node, DecisionVerdict::Held, reasons, Some(seen));
        node
    };
    let adopt = |node: &Node, flag: &str| node.volhold(&["adopt", "main", flag, "--confirm", VOLUME]);
    for flag in ["--replacement", "--new-cluster"] {
        let node = held(&[ReasonCode::WentBackwards]);
        let refused = adopt(&node, flag);
        assert_eq!(refused.code, Some(4), "{refused:#?}");
        assert!(refused.stderr.contains("volhold quarantine main old"), "no way out is named: {refused:#?}");
        assert_eq!(ledger(&node), []);
        // One that was added anew is behind the member before it.
        let added = held(&[ReasonCode::OtherMember, ReasonCode::WentBackwards]);
        assert_eq!(adopt(&added, flag).code, Some(0));
    }
    assert_eq!(adopt(&held(&[ReasonCode::WentBackwards]), "--restored").code, Some(0));
}

#[test]
fn a_release_ends_by_itself_and_an_open_guard_has_none() {
    let node = held_beside_old();
    let (before, booted) = (Time::now().unix(), volhold::agent::clock::boot_millis().unwrap());
    let answer = node.volhold(&["release", "main", "--for", "10m", "--confirm", VOLUME]);
    assert_eq!(answer.code, Some(0), "{answer:#?}");
    assert_fits(&answer);
    assert!(answer.stdout.contains("NOT running"), "nobody is there to let it go: {answer:#?}");
    let [Fact::Released { until, until_boot: Some(until_boot) }] = ledger(&node)[..] else {
        panic!("{:?}", ledger(&node))
    };
    assert!((before + 600..=Time::now().unix() + 600).contains(&until.unix()), "{until}");
    // By the clock that nobody can set, too.
    let clock = volhold::agent::clock::boot_millis().unwrap().0;
    assert!((booted.0 + 600_000..=clock + 600_000).contains(&until_boot.0), "{until_boot:?} at {clock}");
    write_status(&node, vec![guard("main", Gate::Open)]);
    assert_eq!(node.volhold(&["release", "main", "--for", "10m", "--confirm", VOLUME]).code, Some(4));
    assert_eq!(ledger(&node).len(), 1);
}

#[test]
fn a_retry_needs_neither_consent_nor_a_known_volume() {
    let node = node();
    let answer = node.volhold(&["retry", "main"]);
    assert_eq!(answer.code, Some(0), "{answer:#?}");
    assert_eq!(ledger(&node), [Fact::Retried]);
    assert!(node.path("run/requests/main").exists());
    assert_eq!(node.volhold(&["adopt", "main", "--confirm", "x"]).code, Some(75), "no volume is known to adopt");
}

#[test]
fn records_need_root() {
    crate::needs_root!();
    let mut node = held_beside_old();
    node.become_nobody();
    // The state folder is the nobody's now, what root wrote in it is not.
    for args in [&["explain", "main"][..], &["adopt", "main", "--confirm", VOLUME], &["retry", "main"]] {
        let answer = node.volhold(args);
        assert_eq!(answer.code, Some(77), "{args:?}: {answer:#?}");
        assert!(answer.stderr.contains("root"), "{answer:#?}");
    }
    for args in [&["plan"][..], &["doctor"], &["disable", "main"]] {
        let answer = node.volhold(args);
        assert_eq!(answer.code, Some(77), "{args:?}: {answer:#?}");
        // What is said to do fits the verb: only `gate check` stands in units.
        assert!(answer.stderr.contains("sudo") && !answer.stderr.contains("ExecStartPre"), "{answer:#?}");
    }
    let answer = node.volhold(&["gate", "check", "main"]);
    assert!(answer.code == Some(77) && answer.stderr.contains("ExecStartPre=+volhold gate check main"), "{answer:#?}");
}

/// What a verb says on a terminal, standard error included.
fn on_a_terminal(node: &Node, verb: &str) -> String {
    let line = format!("stty cols 80; exec {} {verb}", env!("CARGO_BIN_EXE_volhold"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    command.env("VOLHOLD_CONFIG", node.path("config.toml")).env("NO_COLOR", "1").env("TERM", "xterm");
    let output = command.output().expect("script runs");
    String::from_utf8(output.stdout).unwrap().replace('\r', "")
}

#[test]
fn what_is_said_while_waiting_is_wrapped_on_a_terminal_and_one_line_in_a_journal() {
    let node = node();
    write_status(&node, vec![guard("main", Gate::Held)]);
    let shown = on_a_terminal(&node, "wait main --timeout 1s");
    let long = reason(ReasonCode::BackupSuperblockFound).message;
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(!shown.contains(&long) && shown.contains("HELD"), "{shown}");
    let answer = node.volhold(&["wait", "main", "--timeout", "1s"]);
    assert!(answer.stderr.lines().any(|line| line.contains(&long)), "{answer:#?}");
}

#[test]
fn an_agent_that_died_and_was_not_buried_does_not_run() {
    let node = node();
    write_status(&node, vec![guard("main", Gate::Open)]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_volhold"))
        .args(["wait", "main"])
        .env("VOLHOLD_CONFIG", node.path("config.toml"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut status = node.status_file().unwrap();
    status["pid"] = child.id().into();
    std::fs::write(node.path("run/status.json"), serde_json::to_vec(&status).unwrap()).unwrap();
    let running = || node.volhold(&["status", "-o", "json"]).json()["agent"]["running"].clone();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    // The name is the program's from its first instant on.
    crate::common::node::await_change(&node.path(""), crate::common::node::PATIENCE, || state().contains("(volhold)"));
    assert_eq!(running(), true);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    crate::common::node::await_change(&node.path(""), crate::common::node::PATIENCE, || state().contains(") Z "));
    assert_eq!(running(), false);
    child.wait().unwrap();
}

#[test]
fn an_owner_that_this_machine_does_not_know_is_told_and_is_no_mistake() {
    let node = Node::new();
    let mut guard = Guard::enforce("main", "/dev/volhold-test-nothing", &node.path("mnt"));
    guard.more = "owner = \"nobody-of-volhold:root\"\n".to_owned();
    node.configure(&[guard]);
    let answer = node.volhold(&["config", "check"]);
    assert_eq!(answer.code, Some(0), "an image may be built elsewhere: {answer:#?}");
    assert!(answer.stdout.contains("wrong-owner"), "{answer:#?}");
    assert_fits(&answer);
    let remarks = node.volhold(&["config", "check", "-o", "json"]).json()["remarks"].clone();
    assert!(remarks[0].as_str().is_some_and(|it| it.contains("no user `nobody-of-volhold`")), "{remarks:#}");
    let mut guard = Guard::enforce("main", "/dev/volhold-test-nothing", &node.path("mnt"));
    guard.more = "owner = \"nobody:4711\"\n".to_owned();
    node.configure(&[guard]);
    let remarks = node.volhold(&["config", "check", "-o", "json"]).json()["remarks"].clone();
    assert_eq!(remarks, json!([]), "{remarks:#}");
}

#[test]
fn inspect_says_of_a_mounted_volume_that_it_is_mounted() {
    crate::needs_root!();
    let node = node();
    let image = disk::sparse(&node.path("image"), 64 << 20);
    disk::mkfs_ext4(&image, None);
    let device = crate::common::Loop::new(&image);
    let mounted = crate::common::Mounted::new(device.node(), &node.path("at"));
    let answer = node.volhold(&["inspect", &device.name()]);
    assert_eq!(answer.code, Some(4), "{answer:#?}");
    assert_fits(&answer);
    let head = answer.stdout.lines().take(3).collect::<Vec<_>>().join(" ");
    assert!(head.contains("mounted at") && !answer.stdout.contains("not cleanly"), "{answer:#?}");
    drop(mounted);
    let answer = node.volhold(&["inspect", &device.name()]);
    assert!(answer.code == Some(0) && answer.stdout.contains("healthy"), "{answer:#?}");
}

#[test]
fn inspect_proves_blankness_and_only_that() {
    let node = node();
    let image = disk::sparse(&node.path("image"), 8 << 20);
    let answer = node.volhold(&["inspect", &image.to_string_lossy(), "-o", "json"]);
    assert_eq!(answer.code, Some(0), "{answer:#?}");
    let document = answer.json();
    let fields =
        ["path", "size", "serial", "blank", "content", "format", "findings", "bytes_read", "read_errors", "libblkid"];
    assert_fields(&document, "DeviceReport", &fields);
    assert_eq!(
        (&document["blank"], &document["content"], &document["format"]["verdict"], &document["bytes_read"]),
        (&json!("proven"), &json!("zero"), &json!("format"), &json!(8 << 20))
    );
    assert!(document["libblkid"]["result"].is_string() && document["libblkid"]["version"].is_string());

    disk::write_at(&image, 5_000_000, b"x");
    let answer = node.volhold(&["inspect", &image.to_string_lossy()]);
    assert_eq!(answer.code, Some(4), "{answer:#?}");
    assert!(answer.stdout.contains("unknown-data") && answer.stdout.contains("Nothing was written"), "{answer:#?}");
    assert_harmless(&answer.stdout);
}

#[test]
fn inspect_and_verify_of_what_is_not_there_end_with_5() {
    let node = node();
    let (nothing, empty) = (node.path("nothing"), node.path("state"));
    for (args, kind) in [
        (["inspect", nothing.to_str().unwrap(), "-o", "json"], Some("DeviceReport")),
        (["inspect", empty.to_str().unwrap(), "-o", "json"], Some("VolumeReport")),
        (["verify", empty.to_str().unwrap(), "-o", "json"], Some("DataDirReport")),
        (["verify", nothing.to_str().unwrap(), "-o", "json"], None),
    ] {
        let answer = node.volhold(&args);
        assert_eq!(answer.code, Some(5), "{args:?}: {answer:#?}");
        if let Some(kind) = kind {
            assert_fields(&answer.json(), kind, &["path"]);
        }
    }
    let zero = node.volhold(&["inspect", "/dev/zero", "-o", "json"]);
    assert_eq!((zero.code, zero.codes()), (Some(4), vec!["not-a-block-device".to_owned()]));
}

#[test]
fn history_lists_what_was_recorded_in_its_order_and_fits_the_screen() {
    let node = held_beside_old();
    assert_eq!(node.volhold(&["history", "main", "-o", "json"]).json()["entries"], json!([]));
    assert_eq!(node.volhold(&["adopt", "main", "--new-cluster", "--confirm", VOLUME]).code, Some(0));
    assert_eq!(node.volhold(&["retry", "main"]).code, Some(0));
    let document = node.volhold(&["history", "-o", "json"]).json();
    assert_fields(&document, "History", &["entries"]);
    let entries = document["entries"].as_array().unwrap();
    let kinds: Vec<&str> = entries.iter().map(|entry| entry["decision"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["adopt", "retry"]);
    for field in ["id", "time", "boot_id", "guard", "verdict", "reasons", "evidence_digest", "version"] {
        assert!(entries[0].get(field).is_some(), "{field} is missing");
    }
    let screen = node.volhold(&["history", "main"]);
    assert_fits(&screen);
    assert!(screen.stdout.contains("a new cluster"), "{}", screen.stdout);
}

#[test]
fn a_page_of_the_manual_can_be_read_for_every_reason() {
    let node = Node::new();
    let mut seen = BTreeSet::new();
    for code in ReasonCode::ALL {
        let answer = node.volhold(&["explain", "--reason", code.as_str()]);
        assert_eq!(answer.code, Some(0), "{answer:#?}");
        assert_fits(&answer);
        assert!(seen.insert(answer.stdout), "{code} has the page of another");
    }
    assert_eq!(node.volhold(&["explain", "--reason", "nonsense"]).code, Some(5));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_volhold"))
        .args(["explain", "--reason", "data-vanished"])
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn the_readme_has_every_exit_code_as_the_program_means_it() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let rows: Vec<&str> = readme.lines().skip_while(|l| !l.starts_with("| exit code")).skip(2).collect();
    let rows: Vec<&str> = rows.into_iter().take_while(|l| l.starts_with('|')).collect();
    let wanted: Vec<String> = Exit::ALL.iter().map(|e| format!("| {} | {} |", e.code(), e.meaning())).collect();
    assert_eq!(rows, wanted);
}

#[test]
fn the_readme_has_every_key_of_the_configuration_as_the_manual_describes_it() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let tables = keys::TABLES.iter().map(|(table, keys)| (format!("[{table}]"), *keys));
    for (table, keys) in std::iter::once(("[[guard]]".to_owned(), keys::GUARD)).chain(tables) {
        let head = format!("| key in `{table}`");
        let rows: Vec<&str> = readme.lines().skip_while(|l| !l.starts_with(&head)).skip(2).collect();
        let rows: Vec<&str> = rows.into_iter().take_while(|l| l.starts_with('|')).collect();
        let wanted: Vec<String> = keys.iter().map(keys::Key::row).collect();
        assert_eq!(rows, wanted);
    }
}
