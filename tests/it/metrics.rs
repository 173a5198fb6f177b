//! What Prometheus is told: a real scrape of a real agent, node_exporter's textfile directory, and the alert rules, by
//! promtool.

use crate::common::etcd::Member;
use crate::common::node::{PATIENCE, await_change};
use crate::common::{Guard, Loop, Node, Tmp, disk, run};
use crate::http::client::{get, socket, status_beside};
use disk::MIB;
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use volhold::metrics::table;
use volhold::model::ReasonCode;

/// The value of one sample. Labels in the order of their names, as the text has them.
fn value(text: &str, sample: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}

#[track_caller]
fn scrape(node: &Node) -> String {
    let reply = get(node, "/metrics");
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/plain; version=0.0.4; charset=utf-8"));
    reply.body
}

/// Scrapes until a value is as wanted: what is measured follows a change a moment later.
#[track_caller]
fn await_value(node: &Node, sample: &str, wanted: impl Fn(f64) -> bool) -> String {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        let text = scrape(node);
        if value(&text, sample).is_some_and(&wanted) {
            return text;
        }
        assert!(std::time::Instant::now() < until, "{sample} never came to that:\n{text}\n{}", node.log());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// `promtool check metrics` has nothing to say.
#[track_caller]
fn lint(text: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool (Debian package prometheus)");
    promtool.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}\n{text}");
}

fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus")
}

/// A blank device, and one whose filesystem has lost its beginning.
pub fn good_and_bad(tmp: &Tmp) -> (Loop, Loop) {
    let good = Loop::new(&disk::sparse(&tmp.join("good"), 160 * MIB));
    let image = disk::sparse(&tmp.join("bad"), 160 * MIB);
    disk::mkfs_ext4(&image, None);
    disk::zero(&image, 0, 4096);
    (good, Loop::new(&image))
}

#[test]
fn a_scrape_of_an_open_and_a_held_guard_says_what_is_so() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (good, bad) = good_and_bad(&tmp);
    let mut node = Node::new();
    node.configure(&[
        Guard::enforce("main", good.node(), &node.path("main")).data_dir("data"),
        Guard::enforce("events", bad.node(), &node.path("events")),
    ]);
    node.start();
    node.await_open("main");
    node.await_held("events", "backup-superblock-found");
    let etcd = Member::new("master-a", &node.path("main/data")).start();
    etcd.put("key", "value");
    // The agent sees the new identity and pins it.
    let text = await_value(&node, r#"volhold_data_dir_revision{guard="main"}"#, |revision| revision >= 1.0);
    lint(&text);
    for (sample, wanted) in [
        (r#"volhold_gate_open{guard="main"}"#, 1.0),
        (r#"volhold_gate_open{guard="events"}"#, 0.0),
        (r#"volhold_guard_verdict{guard="main",reason="",verdict="ok"}"#, 1.0),
        (r#"volhold_guard_verdict{guard="main",reason="",verdict="refuse_format"}"#, 0.0),
        (r#"volhold_guard_verdict{guard="events",reason="backup-superblock-found",verdict="refuse_format"}"#, 1.0),
        (r#"volhold_guard_would_hold{guard="events"}"#, 1.0),
        (r#"volhold_gate_bypassed{guard="events"}"#, 0.0),
        (r#"volhold_volume_attached{guard="events"}"#, 1.0),
        (r#"volhold_volume_mounted{guard="main"}"#, 1.0),
        (r#"volhold_volume_mounted{guard="events"}"#, 0.0),
        (r#"volhold_volume_published{guard="main"}"#, 1.0),
        (r#"volhold_volume_published{guard="events"}"#, 0.0),
        (r#"volhold_volume_size_bytes{guard="main"}"#, (160 * MIB) as f64),
        (r#"volhold_format_refusals_total{guard="events",reason="backup-superblock-found"}"#, 1.0),
        (r#"volhold_format_refusals_total{guard="main",reason="backup-superblock-found"}"#, 0.0),
        (r#"volhold_probe_errors_total{guard="main"}"#, 0.0),
        ("volhold_agent_warnings", 0.0),
    ] {
        assert_eq!(value(&text, sample), Some(wanted), "{sample}\n{text}");
    }
    let made = value(&text, r#"volhold_volume_format_timestamp_seconds{guard="main"}"#).expect("made here");
    let now = value(&text, "volhold_last_update_timestamp_seconds").expect("a time");
    assert!(made > 0.0 && made <= now, "{made} {now}");
    assert_eq!(value(&text, r#"volhold_volume_format_timestamp_seconds{guard="events"}"#), None);
    let filesystem = value(&text, r#"volhold_filesystem_size_bytes{guard="main"}"#).expect("mounted");
    assert!(filesystem > (80 * MIB) as f64 && filesystem <= (160 * MIB) as f64, "{filesystem}");
    assert!(value(&text, r#"volhold_hold_seconds_total{guard="events"}"#).expect("counted") > 0.0);
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(lines < 160, "{lines} series for two guards:\n{text}");
    let available = value(&text, r#"volhold_filesystem_available_bytes{guard="main"}"#).expect("mounted");
    assert!(available > 0.0 && available < filesystem, "{available} of {filesystem}");
    let inodes = |what: &str| value(&text, &format!(r#"volhold_filesystem_{what}{{guard="main"}}"#)).expect("ext4");
    assert!(inodes("files_free") > 0.0 && inodes("files_free") < inodes("files"), "{text}");
    assert!(value(&text, r#"volhold_step_duration_seconds{guard="main",step="mkfs"}"#).expect("done") > 0.0, "{text}");

    // A gate that a person has opened by hand is told, here and in the status.
    std::fs::write(node.path("run/bypass/events"), "the night of the test").expect("what volhold-bypass leaves");
    assert_eq!(node.volhold(&["retry", "events"]).code, Some(0));
    let text = await_value(&node, r#"volhold_gate_bypassed{guard="events"}"#, |bypassed| bypassed == 1.0);
    assert_eq!(value(&text, r#"volhold_gate_open{guard="events"}"#), Some(0.0), "volhold has not opened it");
    let (status, shown) = status_beside(&node, || node.volhold(&["status", "-o", "json"]).json());
    assert_eq!(status["bypassed"][0]["note"], "the night of the test");
    assert_eq!(status, shown);

    // What is gone from the configuration is gone from the scrape.
    drop(etcd);
    node.configure(&[Guard::enforce("main", good.node(), &node.path("main")).data_dir("data")]);
    node.reload();
    let until = std::time::Instant::now() + PATIENCE;
    while scrape(&node).contains("events") {
        assert!(std::time::Instant::now() < until, "{}", scrape(&node));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_volume_that_was_published_and_is_not_mounted_any_more_is_seen() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 32 * MIB));
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.start();
    node.await_open("main");
    await_value(&node, r#"volhold_volume_mounted{guard="main"}"#, |mounted| mounted == 1.0);
    // Somebody has a file open, so that the agent cannot mount it anew.
    let _busy = std::fs::File::create(node.path("mnt/data/busy")).expect("a file");
    run("umount", &["--lazy", node.path("mnt").to_str().expect("a path")]);
    let text = await_value(&node, r#"volhold_volume_mounted{guard="main"}"#, |mounted| mounted == 0.0);
    assert_eq!(value(&text, r#"volhold_volume_published{guard="main"}"#), Some(1.0), "{text}");
}

#[test]
fn the_textfile_directory_gets_the_same_and_is_never_a_reason_to_hold() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 32 * MIB));
    let mut node = Node::new();
    let dir = tmp.join("textfile");
    let file = dir.join("volhold.prom");
    let tables = format!("[metrics]\ntextfile_dir = \"{}\"\n", dir.display());
    let main = Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data");
    node.configure_with(&tables, std::slice::from_ref(&main));

    // No such directory: a warning, and an open gate.
    node.start();
    node.await_open("main");
    let run_dir = node.run_dir();
    let warned = await_change(&run_dir, PATIENCE, || {
        let status = node.volhold(&["status"]);
        assert_eq!(status.code, Some(0), "{status:#?}");
        status.stdout.contains("no metrics in the textfile directory")
    });
    assert_eq!(warned, "changed", "{}", node.log());
    assert_eq!(value(&scrape(&node), "volhold_agent_warnings"), Some(1.0));
    assert!(!dir.exists(), "it is not made");
    assert_eq!(node.stop_agent(), Some(0));

    // Written whole, for everybody to read, and by rename: nothing else is left there.
    std::fs::create_dir(&dir).expect("the directory");
    node.start();
    node.await_open("main");
    let written = await_change(&dir, PATIENCE, || {
        std::fs::read_to_string(&file).is_ok_and(|text| value(&text, r#"volhold_gate_open{guard="main"}"#) == Some(1.0))
    });
    assert_eq!(written, "changed", "{}", node.log());
    let text = std::fs::read_to_string(&file).expect("the file");
    lint(&text);
    assert!(text.ends_with('\n') && value(&text, r#"volhold_volume_mounted{guard="main"}"#) == Some(1.0), "{text}");
    assert_eq!(file.metadata().expect("the file").permissions().mode() & 0o777, 0o644);
    assert_eq!(node.volhold(&["status"]).stdout.matches("warning").count(), 0);
    assert_eq!(node.stop_agent(), Some(0));
    let names: Vec<_> =
        std::fs::read_dir(&dir).expect("the directory").map(|entry| entry.expect("it").file_name()).collect();
    assert_eq!(names, ["volhold.prom"]);
    assert!(!socket(&node).exists());

    // Below a mountpoint it would be in the way.
    let inside = format!("metrics.textfile_dir={}", node.path("mnt/prom").display());
    let check = node.volhold(&["--set", &inside, "config", "check"]);
    assert!(check.code == Some(78) && check.stderr.contains("on the volume of guard `main`"), "{check:#?}");
}

/// The forms in which the rules are delivered, beside the file itself.
#[track_caller]
fn jsonnet(expression: &str) -> String {
    let dir = rules();
    run("jsonnet", &["--jpath", dir.to_str().expect("a path"), "--exec", expression])
}

/// The tests of the rules, with these rules.
#[track_caller]
fn rules_pass(rules_text: &str) {
    let tmp = Tmp::new();
    let tests = std::fs::read_to_string(rules().join("volhold.rules.test.yml")).expect("the tests");
    let (rules, tests_at) = (tmp.join("volhold.rules.yml"), tmp.join("volhold.rules.test.yml"));
    std::fs::write(&rules, rules_text).expect("the rules");
    std::fs::write(&tests_at, tests).expect("the tests");
    run("promtool", &["check", "rules", "--lint=all", "--lint-fatal", rules.to_str().expect("a path")]);
    run("promtool", &["test", "rules", tests_at.to_str().expect("a path")]);
}

#[test]
fn the_alert_rules_fire_when_they_must_and_only_then() {
    let dir = rules();
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    run("promtool", &["check", "rules", "--lint=all", "--lint-fatal", &path("volhold.rules.yml")]);
    run("promtool", &["test", "rules", &path("volhold.rules.test.yml")]);
}

const OPERATOR_FORM: &str = "\
# Made of volhold.rules.yml, for the Prometheus operator: VOLHOLD_WRITE_PAGES=1 cargo test --test it metrics::the_operator
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: volhold
  labels:
    app.kubernetes.io/name: volhold
spec:
";

#[test]
fn the_operators_form_and_the_mixin_are_the_same_rules() {
    let plain = std::fs::read_to_string(rules().join("volhold.rules.yml")).expect("the rules");
    let groups = &plain[plain.find("groups:\n").expect("groups")..];
    let spec: Vec<String> =
        groups.lines().map(|line| if line.is_empty() { String::new() } else { format!("  {line}") }).collect();
    let wanted = format!("{OPERATOR_FORM}{}\n", spec.join("\n"));
    let path = rules().join("volhold.prometheusrule.yml");
    if std::env::var_os("VOLHOLD_WRITE_PAGES").is_some() {
        std::fs::write(&path, &wanted).expect("the page");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, wanted, "write it anew: VOLHOLD_WRITE_PAGES=1 cargo test --test it metrics::the_operator");
    // Whatever indentation does to a text in YAML: what the operator hands to Prometheus passes the same tests.
    let document = format!("std.parseYaml(importstr {:?})", path.to_str().expect("a path"));
    let operator: Value = serde_json::from_str(&jsonnet(&document)).expect("a document");
    assert_eq!([&operator["apiVersion"], &operator["kind"]], ["monitoring.coreos.com/v1", "PrometheusRule"]);
    rules_pass(&operator["spec"].to_string());

    let mixin = jsonnet("(import 'mixin.libsonnet').prometheusAlerts");
    rules_pass(&mixin);
    let mixin: Value = serde_json::from_str(&mixin).expect("groups");
    assert_eq!(mixin, operator["spec"]);
    let own = jsonnet(
        "((import 'mixin.libsonnet') + { _config+:: { runbookURL: 'wiki#%s', severities: { critical: 'page' },
        labels: { team: 'x' } } }).prometheusAlerts",
    );
    let own: Value = serde_json::from_str(&own).expect("groups");
    let first = &own["groups"][0]["rules"][0];
    assert_eq!(first["labels"], serde_json::json!({ "severity": "page", "team": "x" }));
    assert_eq!(first["annotations"]["runbook_url"], "wiki#volholdetcdheld");
}

#[test]
fn the_alerts_ask_for_metrics_that_there_are_and_each_is_tested_and_explained() {
    let read = |name: &str| std::fs::read_to_string(rules().join(name)).expect("the file");
    let (rules, tests) = (read("volhold.rules.yml"), read("volhold.rules.test.yml"));
    for word in metrics_in(&rules).iter().chain(&metrics_in(&tests)) {
        assert!(table::ALL.iter().any(|metric| metric.name == word), "{word} is no metric");
    }
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(alerts.len(), 21);
    for alert in &alerts {
        let asked = format!("alertname: {alert}\n");
        let cases: Vec<&str> = tests.split(&asked).skip(1).collect();
        let silent = |case: &&&str| case.trim_start().starts_with("exp_alerts: []");
        assert!(cases.iter().any(|case| silent(&case)), "{alert}: nothing shows that it stays silent");
        assert!(cases.iter().any(|case| !silent(&case)), "{alert}: nothing shows that it fires");
    }
    for needed in ["summary: ", "description: ", "command: ", "severity: "] {
        assert_eq!(rules.matches(needed).count(), alerts.len(), "{needed}");
    }
    // What a reason is asked for is a reason.
    for part in rules.split("reason=").skip(1) {
        let codes = part.trim_start_matches('~').split('"').nth(1).expect("a quoted word");
        for code in codes.split('|') {
            assert!(ReasonCode::ALL.iter().any(|known| known.as_str() == code), "{code} is no reason");
        }
    }
    // Each link leads to a section of the page that is delivered, and no section is about nothing.
    let page = read("ALERTS.md");
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(sections, alerts);
    for alert in &alerts {
        let link = format!(
            "runbook_url: '{}/packaging/prometheus/ALERTS.md#{}'",
            env!("CARGO_PKG_REPOSITORY"),
            alert.to_lowercase()
        );
        assert_eq!(rules.matches(&link).count(), 1, "{link}");
    }
    for part in page.split("\n## ").skip(1) {
        for needed in ["**Meaning.**", "**Impact.**", "**Diagnosis.**", "**Mitigation.**"] {
            assert_eq!(part.matches(needed).count(), 1, "{needed} in {part}");
        }
    }
}

/// Every word in a text that is the name of a metric of this product.
fn metrics_in(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    parts.filter(|word| word.starts_with("volhold_")).map(str::to_owned).collect()
}

#[test]
fn what_monitoring_needs_is_in_both_packages() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).expect("it");
    for entry in std::fs::read_dir(rules()).expect("the directory") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        let (deb, rpm) = (
            format!(r#"["packaging/prometheus/{name}", "usr/share/volhold/prometheus/", "644"]"#),
            format!(
                r#"{{ source = "packaging/prometheus/{name}", dest = "/usr/share/volhold/prometheus/{name}", mode = "644" }}"#
            ),
        );
        assert!(manifest.contains(&deb) && manifest.contains(&rpm), "{name} is not in both");
    }
}

#[test]
fn the_page_about_metrics_is_made_of_the_table() {
    let path = rules().join("METRICS.md");
    if std::env::var_os("VOLHOLD_WRITE_PAGES").is_some() {
        std::fs::write(&path, table::page()).expect("the page");
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(page, table::page(), "write it anew: VOLHOLD_WRITE_PAGES=1 cargo test --test it metrics::the_page");
}
