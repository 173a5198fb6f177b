#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "a test that panics is a test that fails"
)]

use super::*;
use crate::model::{Figures, Gate, GuardStatus, Mode, Reason, ReasonCode, StateName, Timing, WitnessStatus};
use std::time::Duration;

fn guard(name: &str, gate: Gate, codes: &[ReasonCode]) -> GuardStatus {
    GuardStatus {
        name: name.parse().unwrap(),
        mode: Mode::Enforce,
        gate,
        would_hold: !codes.is_empty(),
        state: StateName::Held,
        progress: None,
        volume: None,
        device: None,
        fs_uuid: None,
        publish: "/mnt\\x\n\"y\"".to_owned(),
        publish_dirs: vec![],
        data_dir: None,
        reasons: codes.iter().map(|code| Reason::new(*code, "why")).collect(),
        waits: None,
        warnings: vec![],
        since: Time::now(),
        timings: vec![],
        figures: Figures::default(),
        witness: None,
        watch: None,
    }
}

fn status(guards: Vec<GuardStatus>) -> Status {
    Status {
        api_version: "volhold/v1".into(),
        kind: "Status".into(),
        version: "1.2.3".into(),
        written_at: Time::now(),
        pid: 1,
        guards,
        config: vec![],
        warnings: vec!["the socket".into()],
    }
}

fn told(status: &Status, configured: &[GuardName], tally: &Tally, instant: Instant) -> Vec<String> {
    let measured = BTreeMap::new();
    let now = Time::from_unix(1_700_000_000).unwrap();
    let sources = Sources { status, configured, measured: &measured, tally, now, instant };
    text(&sources).unwrap().lines().map(str::to_owned).collect()
}

#[track_caller]
fn has(lines: &[String], wanted: &str) {
    assert!(lines.iter().any(|line| line == wanted), "{wanted} is not in\n{}", lines.join("\n"));
}

#[test]
fn a_held_guard_shows_each_reason_under_its_verdict_and_all_others_at_zero() {
    let codes = [ReasonCode::BackupSuperblockFound, ReasonCode::SignatureFound, ReasonCode::TimedOut];
    let lines = told(&status(vec![guard("main", Gate::Held, &codes)]), &[], &Tally::default(), Instant::now());
    has(&lines, r#"volhold_gate_open{guard="main"} 0"#);
    for (verdict, reason, value) in [
        ("refuse_format", "backup-superblock-found", 1),
        ("refuse_format", "signature-found", 1),
        ("io_error", "timed-out", 1),
        ("ok", "", 0),
        ("wait", "", 0),
        ("data_missing", "", 0),
    ] {
        has(&lines, &format!(r#"volhold_guard_verdict{{guard="main",reason="{reason}",verdict="{verdict}"}} {value}"#));
    }
    let rows = lines.iter().filter(|line| line.starts_with("volhold_guard_verdict{")).count();
    assert_eq!(rows, Verdict::ALL.len() + 1, "one row for each verdict, and one more for a second reason");
    // What came from a configuration cannot break the text.
    assert!(lines.iter().any(|line| line.contains(r#"mountpoint="/mnt\\x\n\"y\"""#)), "{}", lines.join("\n"));
    has(&lines, r#"volhold_build_info{revision="unknown",version="1.2.3"} 1"#);
    has(&lines, "volhold_last_update_timestamp_seconds 1700000000");
    has(&lines, "volhold_agent_warnings 1");
}

#[test]
fn a_guard_of_which_nothing_was_told_is_not_open() {
    let lines = told(&status(vec![]), &["main".parse().unwrap()], &Tally::default(), Instant::now());
    has(&lines, r#"volhold_gate_open{guard="main"} 0"#);
    has(&lines, r#"volhold_guard_verdict{guard="main",reason="",verdict="wait"} 1"#);
    assert!(!lines.iter().any(|line| line.starts_with("volhold_data_dir_identity_match{")), "nobody knows");
}

#[test]
fn what_is_counted_begins_at_zero_and_counts_what_begins_not_what_stays() {
    let mut tally = Tally::default();
    let begun = Instant::now();
    let at = |seconds| begun + Duration::from_secs(seconds);
    let refused = guard("main", Gate::Held, &[ReasonCode::SignatureFound]);
    let waiting = guard("main", Gate::Waiting, &[]);
    let open = guard("main", Gate::Open, &[]);
    let lines = |tally: &Tally, seconds| told(&status(vec![open.clone()]), &[], tally, at(seconds));
    has(&lines(&tally, 0), r#"volhold_format_refusals_total{guard="main",reason="signature-found"} 0"#);
    has(&lines(&tally, 0), r#"volhold_hold_seconds_total{guard="main"} 0"#);
    tally.see(&waiting, at(0));
    tally.see(&refused, at(10));
    tally.see(&refused, at(20));
    has(&lines(&tally, 25), r#"volhold_hold_seconds_total{guard="main"} 25"#);
    tally.see(&open, at(30));
    has(&lines(&tally, 100), r#"volhold_hold_seconds_total{guard="main"} 30"#);
    has(&lines(&tally, 100), r#"volhold_format_refusals_total{guard="main",reason="signature-found"} 1"#);
    tally.see(&guard("main", Gate::Held, &[ReasonCode::SignatureFound, ReasonCode::Unreadable]), at(100));
    has(&lines(&tally, 101), r#"volhold_format_refusals_total{guard="main",reason="signature-found"} 2"#);
    has(&lines(&tally, 101), r#"volhold_probe_errors_total{guard="main"} 1"#);
    has(&lines(&tally, 101), r#"volhold_hold_seconds_total{guard="main"} 31"#);
    let watched = GuardStatus { mode: Mode::Observe, ..refused };
    tally.see(&watched, at(101));
    has(&lines(&tally, 500), r#"volhold_hold_seconds_total{guard="main"} 31"#);
}

#[test]
fn an_identity_is_another_one_as_soon_as_a_reason_or_a_warning_says_so() {
    let value = |guard: GuardStatus| {
        let lines = told(&status(vec![guard]), &[], &Tally::default(), Instant::now());
        let line = lines.iter().find(|line| line.starts_with("volhold_data_dir_identity_match{")).cloned();
        line.map(|line| line.ends_with(" 1"))
    };
    for code in [ReasonCode::OtherCluster, ReasonCode::OtherMember] {
        assert_eq!(value(guard("main", Gate::Held, &[code])), Some(false), "{code}");
    }
    let warned = vec![Reason::new(ReasonCode::IdentityChanged, "why")];
    assert_eq!(value(GuardStatus { warnings: warned, ..guard("main", Gate::Open, &[]) }), Some(false));
    assert_eq!(value(guard("main", Gate::Open, &[])), None, "nothing was read");
}

#[test]
fn remarks_are_told_once_each_by_their_code_and_steps_by_their_sum() {
    let reason = |code| Reason::new(code, "why");
    let timing = |us| Timing { step: "fsck".to_owned(), us };
    let remarked = GuardStatus {
        warnings: vec![reason(ReasonCode::DeletedWithInstance), reason(ReasonCode::Throttled)],
        waits: Some(reason(ReasonCode::Throttled)),
        witness: Some(WitnessStatus {
            written_at: Time::from_unix(1_600_000_000),
            trouble: Some(reason(ReasonCode::WitnessUnreachable)),
        }),
        timings: vec![timing(1_500_000), timing(250_000)],
        ..guard("main", Gate::Waiting, &[])
    };
    let lines = told(&status(vec![remarked]), &[], &Tally::default(), Instant::now());
    for code in ["deleted-with-instance", "throttled", "witness-unreachable"] {
        has(&lines, &format!(r#"volhold_guard_warning{{guard="main",reason="{code}"}} 1"#));
    }
    assert_eq!(lines.iter().filter(|line| line.starts_with("volhold_guard_warning{")).count(), 3);
    has(&lines, r#"volhold_step_duration_seconds{guard="main",step="fsck"} 1.75"#);
    has(&lines, r#"volhold_witness_written_timestamp_seconds{guard="main"} 1600000000"#);
}

#[test]
fn every_name_says_what_it_is() {
    for metric in table::ALL {
        let name = metric.name;
        assert!(name.starts_with("volhold_") && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
        assert!(metric.help.ends_with('.'), "{name}");
        let ids = metric.labels.iter().any(|label| label.ends_with("_id"));
        assert_eq!(ids, name == "volhold_guard_info", "ids stand in one metric: {name}");
    }
}
