//! The deliberate bugs of `tests/mutants`: each incident that volhold exists for has at least one, each names a test that is
//! there, and each fits the code of today. That the tests turn red with them is for `make mutants`, which takes an hour.

use crate::common::output;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What must never happen again, as the patches name it in their third line. A is a device that is formatted or opened though
/// something is wrong with it, B an empty etcd beside the old data, C data that went away and deaths that are nobody's fault,
/// D the guard itself in the way.
const INCIDENTS: &[&str] = &[
    "A backup-superblock-found (ext4)",
    "A backup-superblock-found (xfs)",
    "A signature-found",
    "A etcd-data-found",
    "A unknown-data (one byte in the middle)",
    "A unknown-data (a byte in the last odd sector)",
    "A unknown-data (noise)",
    "A unreadable",
    "A device-missing",
    "A no-permission",
    "A not-a-block-device (a directory)",
    "A not-a-block-device (a character device)",
    "A size-mismatch",
    "A in-use (by another mount)",
    "A in-use (by swap)",
    "A in-use (by a loop device on top)",
    "A mount-failed",
    "A filesystem-feature-unknown",
    "A filesystem-replaced",
    "B empty-beside-old",
    "B empty-beside-old (against the trashcan)",
    "B data-vanished (state names a missing dir)",
    "B unreadable (a state that nobody can read)",
    "B a finished migration starts",
    "B a migration under way starts",
    "C data-vanished",
    "C wal-behind-backend",
    "C an etcd killed under write load is never held",
    "C a member that has just received the leader's snapshot is not held",
    "C the record is true ten seconds after the first key",
    "C a dir wiped while etcd was stopped is refused without a reboot",
    "D observe: never a failed, late or read-only mount of the system's",
    "D observe: would_hold where enforce would hold (bytes)",
    "D observe: would_hold where enforce would hold (data)",
    "D the first install while etcd runs is adopted as open",
];

/// One deliberate bug.
struct Mutant {
    file: PathBuf,
    /// With `it ` in front where it is one of this program.
    test: String,
    bug: String,
    incident: Option<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn mutants() -> Vec<Mutant> {
    let entries = std::fs::read_dir(root().join("tests/mutants")).expect("tests/mutants");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|end| end == "patch")).collect();
    files.sort();
    let mutant = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).expect("a patch");
        let mut lines = text.lines();
        let mut line = |begins: &str| lines.next().and_then(|line| line.strip_prefix(begins)).map(str::to_owned);
        let test = line("# test: ").unwrap_or_default();
        let bug = line("# ").unwrap_or_default();
        let incident = line("# incident: ");
        Mutant { file, test, bug, incident }
    };
    files.into_iter().map(mutant).collect()
}

#[test]
fn every_incident_has_a_deliberate_bug_that_names_it() {
    let named: BTreeSet<String> = mutants().into_iter().filter_map(|mutant| mutant.incident).collect();
    let incidents: BTreeSet<String> = INCIDENTS.iter().map(|&incident| incident.to_owned()).collect();
    let without: Vec<_> = incidents.difference(&named).collect();
    assert!(without.is_empty(), "no patch in tests/mutants stands for {without:#?}");
    let unknown: Vec<_> = named.difference(&incidents).collect();
    assert!(unknown.is_empty(), "patches stand for what is no incident: {unknown:#?}");
}

/// Where tests need a build with fault points.
const PLACES: [&str; 3] = ["crash::points::", "crash::directories::", "watchdog::stalls::"];

#[test]
fn every_deliberate_bug_says_what_it_is_and_names_a_test_that_is_there() {
    let own = own_tests();
    let library = text_below(&root().join("src"));
    let crashes = text_below(&root().join("tests/it/crash"))
        + &std::fs::read_to_string(root().join("tests/it/watchdog.rs")).expect("source text");
    let mut missing = Vec::new();
    for mutant in mutants() {
        let name = mutant.test.rsplit("::").next().unwrap_or_default();
        let there = match mutant.test.strip_prefix("it ") {
            // Made by a macro, and only in a build with fault points.
            Some(test) if PLACES.iter().any(|place| test.starts_with(place)) => crashes.contains(name),
            Some(test) => own.contains(test),
            None => library.contains(&format!("fn {name}(")),
        };
        if name.is_empty() || mutant.bug.is_empty() || !there {
            missing.push(format!("{}: {}", mutant.file.display(), mutant.test));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_deliberate_bug_fits_the_code_of_today() {
    if !output("sh", &["-c", "command -v git"]).status.success() {
        println!("SKIP: there is no git to apply patches with");
        return;
    }
    let misfits: Vec<String> = mutants()
        .iter()
        .filter_map(|mutant| {
            let (root, file) = (root().to_string_lossy(), mutant.file.to_string_lossy());
            let applied = output("git", &["-C", &root, "apply", "--check", &file]);
            (!applied.status.success()).then(|| format!("{file}: {}", String::from_utf8_lossy(&applied.stderr)))
        })
        .collect();
    assert!(misfits.is_empty(), "{misfits:#?}");
}

/// The tests of this program, by their full names.
fn own_tests() -> BTreeSet<String> {
    let this = std::env::current_exe().expect("this program");
    let listed = output(&this.to_string_lossy(), &["--list"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names: BTreeSet<String> =
        text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    assert!(names.len() > 100, "this program lists its tests in another way: {text}");
    names
}

/// All source text below a folder.
fn text_below(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            text.push_str(&text_below(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("source text"));
        }
    }
    text
}
