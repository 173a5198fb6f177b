//! Every reason code is complete: a page that `explain` prints and volhold-runbook(7) holds, a label of the metrics, and a
//! test that provokes it. Asked of the built program, its documents, and the sources of the tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use volhold::model::ReasonCode;

const VOLHOLD: &str = env!("CARGO_BIN_EXE_volhold");

/// Where reasons come up. Tests of how they are printed name codes too, and provoke none.
const PROVOKE: &[&str] = &["tests/it", "src/act", "src/agent", "src/cloud", "src/decide", "src/probe", "src/record"];
/// Names codes for another purpose than to provoke them.
const ONLY_NAME: &[&str] =
    &["tests/it/reasons.rs", "tests/it/mutants.rs", "tests/it/metrics.rs", "tests/it/dashboard.rs"];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// What of a file is test: all of it, or what lies in its `mod tests`. Without comments, which provoke nothing.
fn test_code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let name = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().to_string_lossy().into_owned();
    let whole = name.starts_with("tests/") || name.contains("/tests") || name.ends_with("_test.rs");
    let part = match text.split_once("mod tests {") {
        _ if whole => text.as_str(),
        Some((_, tests)) => tests,
        None => "",
    };
    part.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_'))).collect()
}

#[test]
fn every_code_is_provoked_by_a_test() {
    let mut files = Vec::new();
    for dir in PROVOKE {
        sources(&here(dir), &mut files);
    }
    files.retain(|path| !ONLY_NAME.iter().any(|other| *path == here(other)));
    let texts: Vec<String> = files.iter().map(|path| test_code(path)).collect();
    let named: BTreeSet<&str> = texts.iter().flat_map(|text| words(text)).collect();
    let missing: Vec<&str> = ReasonCode::ALL
        .iter()
        .filter(|code| !named.contains(code.as_str()) && !named.contains(format!("{code:?}").as_str()))
        .map(|code| code.as_str())
        .collect();
    assert!(missing.is_empty(), "no test provokes {missing:?}");
}

#[test]
fn every_code_is_explained_offline_and_in_the_manual() {
    let manual = Command::new(VOLHOLD).args(["reference", "volhold-runbook.7"]).output().unwrap();
    let manual = String::from_utf8(manual.stdout).unwrap().replace("\\-", "-");
    for code in ReasonCode::ALL {
        let page = Command::new(VOLHOLD).args(["explain", "--reason", code.as_str()]).output().unwrap();
        let text = String::from_utf8(page.stdout).unwrap();
        assert!(page.status.success() && text.contains(code.as_str()) && text.lines().count() > 5, "{code}: {text}");
        assert!(manual.contains(&format!(".SS {code}\n")), "{code} is not in volhold-runbook(7)");
    }
}

#[test]
fn every_code_is_a_label_of_the_metrics_once() {
    let table = volhold::metrics::table::page();
    let verdicts = table.split("| verdict | reasons |").nth(1).unwrap();
    for code in ReasonCode::ALL {
        let times = verdicts.matches(&format!("`{code}`")).count();
        assert_eq!(times, 1, "{code} stands under {times} verdicts of volhold_guard_verdict");
    }
}
