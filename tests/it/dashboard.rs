//! The Grafana dashboard, panel by panel: what it asks for is a metric that there is, and a real Prometheus that scrapes a
//! real agent has an answer.

use crate::common::etcd::{Member, free_port};
use crate::common::node::PATIENCE;
use crate::common::{Guard, Node, Tmp, output};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use volhold::metrics::table;

fn monitoring() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus")
}

fn dashboard() -> Value {
    let text = std::fs::read_to_string(monitoring().join("dashboard.json")).expect("the dashboard");
    serde_json::from_str(&text).expect("JSON")
}

/// Every question of every panel and annotation, with the name of where it stands.
fn questions(dashboard: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut ask = |place: &Value, expr: &Value| {
        found.push((place.as_str().expect("a name").to_owned(), expr.as_str().expect("a question").to_owned()));
    };
    for panel in dashboard["panels"].as_array().expect("panels") {
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{}", panel["title"]);
        targets.iter().for_each(|target| ask(&panel["title"], &target["expr"]));
    }
    for annotation in dashboard["annotations"]["list"].as_array().expect("annotations") {
        ask(&annotation["name"], &annotation["expr"]);
    }
    found
}

#[test]
fn every_panel_asks_for_metrics_that_there_are_with_their_labels() {
    let dashboard = dashboard();
    assert_eq!(dashboard["uid"], "volhold", "links to it do not break");
    let variables: Vec<&Value> =
        dashboard["templating"]["list"].as_array().expect("variables").iter().map(|one| &one["name"]).collect();
    assert_eq!(variables, ["datasource", "cluster"]);
    let known: BTreeSet<&str> = table::ALL.iter().flat_map(|metric| metric.labels.iter().copied()).collect();
    for (place, expr) in questions(&dashboard) {
        let words: Vec<&str> = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        let metrics: BTreeSet<&str> = words.iter().copied().filter(|word| word.starts_with("volhold_")).collect();
        assert!(!metrics.is_empty(), "{place}: {expr}");
        for metric in metrics {
            assert!(table::ALL.iter().any(|one| one.name == metric), "{place} asks for {metric}, which is no metric");
            let filtered = expr.matches(&format!("{metric}{{cluster=~\"$cluster\"")).count();
            let asked = words.iter().filter(|word| **word == metric).count();
            assert_eq!(filtered, asked, "{place} asks for other clusters' too: {expr}");
        }
        // What is grouped by is a label of ours, or of the scrape.
        let lists = ["by (", "on (", "group_left ("].into_iter().flat_map(|before| expr.split(before).skip(1));
        for list in lists {
            let labels = list.split(')').next().unwrap_or_default();
            for label in labels.split(", ").filter(|label| !label.is_empty()) {
                assert!(
                    known.contains(label) || ["cluster", "instance"].contains(&label),
                    "{place}: {label} in {expr}"
                );
            }
        }
    }
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{} has another panel's id", panel["title"]);
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        let at = |what: &str| panel["gridPos"][what].as_u64().expect("a place");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && taken.insert((x, y)), "{} lies on another panel", panel["title"]);
            }
        }
    }
}

/// A Prometheus of the test's own.
struct Prometheus {
    child: Child,
    url: String,
    log: PathBuf,
}

impl Prometheus {
    fn start(tmp: &Tmp, scraped: u16) -> Self {
        let (config, log, port) = (tmp.join("prometheus.yml"), tmp.join("prometheus.log"), free_port());
        let rules = monitoring().join("volhold.rules.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{}']\nscrape_configs:\n\
             - {{ job_name: volhold, static_configs: [{{ targets: ['127.0.0.1:{scraped}'], labels: {{ cluster: test }} }}] }}\n",
            rules.display()
        );
        std::fs::write(&config, text).expect("its configuration");
        let said = std::fs::File::create(&log).expect("its log");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", tmp.join("tsdb").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("prometheus (Debian package prometheus)");
        Prometheus { child, url: format!("http://127.0.0.1:{port}"), log }
    }

    /// The series that answer; `None`: it does not answer.
    fn ask(&self, expr: &str) -> Option<Vec<String>> {
        let answer = output("promtool", &["query", "instant", &self.url, expr]);
        let said = String::from_utf8_lossy(&answer.stdout).into_owned();
        answer.status.success().then(|| said.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// Asks until something answers.
    #[track_caller]
    fn await_series(&self, place: &str, expr: &str) -> Vec<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(expr);
            if let Some(series) = answer.as_ref().filter(|series| !series.is_empty()) {
                return series.clone();
            }
            let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
            assert!(Instant::now() < until, "{place} shows nothing ({answer:?}) for {expr}\n{}", log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_prometheus_that_scrapes_an_agent_answers_every_panel_and_fires() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (good, bad) = crate::metrics::good_and_bad(&tmp);
    let (mut node, listen) = (Node::new(), free_port());
    let guards = [
        Guard::enforce("main", good.node(), &node.path("main")).data_dir("data"),
        Guard::enforce("events", bad.node(), &node.path("events")),
    ];
    node.configure_with(&format!("[http]\nlisten = \"127.0.0.1:{listen}\"\n"), &guards);
    node.start();
    node.await_open("main");
    node.await_held("events", "backup-superblock-found");
    let etcd = Member::new("master-a", &node.path("main/data")).start();
    etcd.put("key", "value");
    // An agent that finds data has examined it as a whole.
    assert_eq!(node.stop_agent(), Some(0));
    node.start();
    node.await_open("main");
    node.await_held("events", "backup-superblock-found");
    let prometheus = Prometheus::start(&tmp, listen);

    // Of this agent nothing is remarked, and no gate has opened or closed since it is watched.
    let silent = ["Remarks", "Gate opened or closed"];
    for (place, expr) in questions(&dashboard()) {
        let expr = expr.replace("$cluster", ".*").replace("$__rate_interval", "1m");
        if silent.contains(&place.as_str()) {
            assert!(prometheus.ask(&expr).is_some(), "{place}: {expr}");
        } else {
            prometheus.await_series(&place, &expr);
        }
    }
    // From the agent to the alert.
    let refused = r#"ALERTS{alertname="VolholdFormatRefused",alertstate="firing"}"#;
    let series = prometheus.await_series("the alert", refused);
    assert!(series.len() == 1 && series[0].contains(r#"guard="events""#), "{series:?}");
    assert!(series[0].contains(r#"cluster="test""#) && series[0].contains("backup-superblock-found"), "{series:?}");
}
