//! Whatever a guard may be held for has a page, an entry in the journal's catalog, a place in the metrics, and a test that names
//! it.

use std::path::{Path, PathBuf};
use volhold::cli::manual::message_id;
use volhold::model::ReasonCode;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

fn rust_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of the tree").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            rust_below(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

/// All of the tests: files of their own, and what stands behind `mod tests {` in a file of the program.
fn tests() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_below(&root.join("src"), &mut files);
    rust_below(&root.join("tests/it"), &mut files);
    let own = |path: &Path| path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs");
    files.iter().filter(|path| !path.ends_with("tests/it/reasons.rs")).fold(String::new(), |all, path| {
        let text = std::fs::read_to_string(path).expect("a file of the tree");
        let relative = path.strip_prefix(root).expect("below the tree");
        let part =
            if own(relative) { Some(text.as_str()) } else { text.split_once("mod tests {").map(|(_, tests)| tests) };
        all + part.unwrap_or_default()
    })
}

/// `word` as a word of its own.
fn names(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let behind = text[at + word.len()..].chars().next();
        !before.is_some_and(part) && !behind.is_some_and(part)
    })
}

#[test]
fn every_reason_is_explained_told_counted_and_tested() {
    let (catalog, metrics, tests) =
        (read("systemd/catalog/volhold.catalog"), read("packaging/prometheus/METRICS.md"), tests());
    assert!(tests.len() > 100_000, "the tests are elsewhere");
    for code in ReasonCode::ALL {
        assert!(
            catalog.contains(&format!("\n-- {}\nSubject: Guard @VOLHOLD_GUARD@, {code}: ", message_id(*code))),
            "{code}"
        );
        assert!(metrics.contains(&format!("`{code}`")), "{code} is grouped under no verdict");
        assert!(names(&tests, &format!("{code:?}")) || names(&tests, code.as_str()), "no test names {code}");
    }
    assert!(!names(&tests, "NoSuch".to_owned().as_str()) && names(&tests, "DataVanished"), "words are found as words");
}
