//! What is predicted, against what real etcds of twelve versions did when they were started on a copy (`starts.json`).

use super::*;
use std::collections::BTreeMap;
use volhold::decide::predict::predict;
use volhold::etcd::data_dir_facts;
use volhold::model::{DataDirFacts, EtcdVersion, Starts};

#[derive(serde::Deserialize)]
struct Start {
    case: String,
    version: String,
    outcome: String,
    message: Option<String>,
    /// Compact revision and hash, where the started etcd was asked.
    hashkv: Option<(i64, u32)>,
    revision: Option<i64>,
}

/// Starts that were predicted otherwise, each with the reason why that is borne.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    // A branch points to the freelist. This bolt ends up in it while it rebuilds its index, and neither ends nor serves.
    ("dmg-db-branch-pgid-flip-3.1.12", "3.1.12", "both are no start"),
    // The element points 16 MiB behind its page, which is still within the file: zeros are read there for a key.
    ("dmg-db-inline-bucket-bad-3.5.30", "3.5.30", "the same bytes 4 KiB on kill it, as in 3.4.23 and 3.6.12"),
    ("dmg-db-inline-bucket-bad-3.5.30", "3.5.1", "the same bytes 4 KiB on kill it, as in 3.4.23 and 3.6.12"),
    // The file ends in the middle of a page in use, behind its last record: the rest of the machine's page reads as zeros.
    ("dmg-db-truncated-mid-page-3.5.30", "3.5.30", "a cut in the middle of a record kills it, as in 3.6.12"),
    ("dmg-db-truncated-mid-page-3.5.30", "3.5.1", "a cut in the middle of a record kills it, as in 3.6.12"),
];

fn facts(data: &Path) -> DataDirFacts {
    let dir = File::open(data).expect("the data dir");
    data_dir_facts(dir.as_fd(), &mut |_, _| {})
}

#[test]
fn every_recorded_start_went_as_predicted_or_is_an_exception_with_a_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/etcd/starts.json");
    let starts: Vec<Start> = serde_json::from_reader(File::open(path).expect("starts.json")).expect("as declared here");
    assert!(starts.len() >= 534, "{} starts", starts.len());
    let mut by_case: BTreeMap<&str, Vec<&Start>> = BTreeMap::new();
    for start in &starts {
        by_case.entry(&start.case).or_default().push(start);
    }
    let mut wrong = Vec::new();
    let (mut excused, mut hashes) = (0, 0);
    for (case, starts) in by_case {
        let unpacked = Unpacked::new(case);
        let facts = facts(&unpacked.root().join("data"));
        for start in starts {
            let version: EtcdVersion = start.version.parse().expect("a version");
            let predicted = predict(&facts, version);
            let word = match predicted.starts {
                Starts::Yes => "started",
                Starts::No => "exited",
                Starts::Unhealthy => "unhealthy",
                Starts::Unknown => "unknown",
            };
            let promised = predicted.starts == Starts::Yes && !predicted.loses;
            if let Some(deep) = facts.backend.deep.as_ref().filter(|_| promised) {
                if start.revision < deep.revision && start.revision.is_some() {
                    wrong.push(format!(
                        "{case} with {version}: promised to lose nothing, and {:?} came",
                        start.revision
                    ));
                }
                // Where the log had more than the backend, more was applied.
                if let (Some((compact, hash)), true) = (start.hashkv, start.revision == deep.revision) {
                    let found = deep.hashkv.map(|h| (h.compact_revision, h.hash));
                    hashes += 1;
                    if found != Some((compact, hash)) {
                        wrong.push(format!("{case} with {version}: hash {hash} at {compact}, computed {found:?}"));
                    }
                }
            }
            let exception = EXCEPTIONS.iter().any(|(c, v, _)| *c == case && *v == start.version);
            if exception && word != start.outcome {
                excused += 1;
                // Whoever relies on a start must never hear yes where etcd does not start.
                assert_ne!(word, "started", "{case} with {version}: the exceptions err on the safe side");
                continue;
            }
            if word != start.outcome || exception {
                let said = start.message.as_deref().unwrap_or("");
                wrong.push(format!(
                    "{case} with {version}: {} {said}, predicted {word}: {}",
                    start.outcome, predicted.message
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), starts.len(), wrong.join("\n"));
    assert_eq!(excused, EXCEPTIONS.len());
    assert!(hashes > 100, "{hashes} hashes");
}
