//! Who may use whom, and which dangerous words may stand where.
//!
//! Reads the source as text: every path that begins with `crate::` (also in groups, also by way of `super::`), in code that
//! is not for tests. The table is the architecture; a change to it is a decision.

use std::collections::BTreeSet;
use std::path::Path;

/// A room and the rooms that it may use. What is not listed may be used by nobody else.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("decide", &["model"]),
    ("etcd", &["model"]),
    ("probe", &["model", "etcd"]),
    ("device", &["model", "children"]),
    ("cloud", &["model"]),
    ("act", &["model", "device", "children", "decide::format::FormatPermit"]),
    ("record", &["model", "cloud"]),
    ("worker", &["model", "probe", "etcd", "children"]),
    ("gate", &["model"]),
    ("watch", &["model"]),
    ("config", &["model"]),
    // Writes files of its own below /etc; what it judges is tried out by others and handed in.
    ("install", &["model", "device"]),
    ("metrics", &["model"]),
    // Empty functions, called from wherever the agent may be killed.
    ("fault", &[]),
    // A lock between whoever starts children and whoever lets a claim go.
    ("children", &[]),
    ("agent", ALL),
    ("cli", ALL),
    ("lib", ALL),
    ("main", ALL),
];
const ALL: &[&str] = &[
    "model", "decide", "etcd", "probe", "device", "cloud", "act", "record", "worker", "gate", "watch", "config",
    "agent", "cli", "install", "metrics",
];

/// Words that may stand in these files or folders only.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("process::Command", &["act", "worker"]),
    ("unsafe", &["probe/blkid/sys.rs", "device/ioctl.rs"]),
    ("aws_sdk_ec2", &["cloud/ebs.rs", "cloud/ebs"]),
];

/// Rooms that decide: they look at nothing and know no time.
const PURE: &[&str] = &["model", "decide"];
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::thread",
    "Instant",
    "SystemTime",
    "tracing",
    "tokio",
    "nix::",
    "rustix",
];
/// One source file: its path below `src` and its text.
struct Source {
    path: String,
    text: String,
}

#[test]
fn every_room_uses_only_the_rooms_it_may_use() {
    let sources = own_sources();
    assert!(sources.len() > 20, "the sources are not where this test looks for them: {} files", sources.len());
    let found = violations(&sources);
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn every_room_of_the_crate_is_in_the_table() {
    let rooms: BTreeSet<String> = own_sources().iter().map(|source| room_of(&source.path)).collect();
    let table: BTreeSet<String> = ARROWS.iter().map(|(room, _)| (*room).to_owned()).collect();
    assert!(rooms.is_subset(&table), "not in the table: {:?}", rooms.difference(&table).collect::<Vec<_>>());
}

#[test]
fn a_forbidden_use_is_found_however_it_is_written() {
    let found = |path: &str, text: &str| violations(&[Source { path: path.into(), text: text.into() }]);
    for text in [
        "use crate::act::mkfs;",
        "use crate::{model::Reason, act};",
        "use crate::{\n    model::{Reason, Time},\n    act::{mount::Mounted, seal},\n};",
        "fn f() { crate::act::mkfs::run() }",
        "use super::super::act;",
        "fn f() { super::super::act::mkfs::run() }",
        "pub(crate) use crate :: act;",
    ] {
        assert_eq!(found("decide/format.rs", text), ["decide/format.rs uses act"], "{text}");
    }
    assert_eq!(found("etcd/wal.rs", "use crate::cloud::X;"), ["etcd/wal.rs uses cloud"]);
    assert_eq!(found("gate.rs", "use super::act;"), ["gate.rs uses act"]);
    assert_eq!(
        found("act/mkfs.rs", "use crate::decide::format::may_format;"),
        ["act/mkfs.rs uses decide::format::may_format"]
    );
    assert_eq!(
        found("act/mkfs.rs", "use crate::decide::format::{FormatPermit, may_format};"),
        ["act/mkfs.rs uses decide::format::may_format"]
    );
    for (path, text) in
        [("gate.rs", "std::process::Command::new(x)"), ("gate/notify.rs", "use tokio::process::Command;")]
    {
        assert_eq!(found(path, text), [format!("{path} says `process::Command`")]);
    }
    assert_eq!(found("device/sysfs.rs", "unsafe { x() }"), ["device/sysfs.rs says `unsafe`"]);
    assert_eq!(found("cloud.rs", "use aws_sdk_ec2::Client;"), ["cloud.rs says `aws_sdk_ec2`"]);
    assert_eq!(found("decide/start.rs", "std::fs::read(x)"), ["decide/start.rs is pure and says `std::fs`"]);
}

#[test]
fn what_is_allowed_is_not_complained_of() {
    let found = |path: &str, text: &str| violations(&[Source { path: path.into(), text: text.into() }]);
    let nothing: [&str; 0] = [];
    for (path, text) in [
        (
            "act/mkfs.rs",
            "use crate::decide::format::FormatPermit;\nuse crate::{model::Reason, device::Opened, act::seal};",
        ),
        ("act/mkfs.rs", "std::process::Command::new(x)"),
        (
            "decide/format.rs",
            "use crate::model::{self, Reason}; use super::words; // crate::act is not used\n/* crate::act */",
        ),
        (
            "decide/format.rs",
            "/// Consumed by [`crate::act::mkfs`]; says \"crate::act\".\nconst X: &str = \"crate::act::mkfs unsafe\";",
        ),
        ("decide/format.rs", "use crate::model::Reason;\n#[cfg(test)]\nmod tests {\n    use crate::act;\n}"),
        ("decide/format/tests.rs", "use crate::act;"),
        ("decide/start/tests/rows.rs", "use crate::act;"),
        ("device/ioctl.rs", "unsafe { x() }"),
        ("agent.rs", "use crate::{act, decide};"),
        ("device.rs", "#![deny(unsafe_code)]"),
    ] {
        assert_eq!(found(path, text), nothing, "{path}: {text}");
    }
}

fn own_sources() -> Vec<Source> {
    fn walk(folder: &Path, root: &Path, sources: &mut Vec<Source>) {
        for entry in std::fs::read_dir(folder).expect("the folder is readable") {
            let path = entry.expect("the entry is readable").path();
            if path.is_dir() {
                walk(&path, root, sources);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("the file is readable");
                let path = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
                sources.push(Source { path, text });
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Vec::new();
    walk(&root, &root, &mut sources);
    sources.sort_by(|one, two| one.path.cmp(&two.path));
    sources
}

fn violations(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for Source { path, text } in sources.iter().filter(|source| !is_for_tests(&source.path)) {
        let room = room_of(path);
        let code = code_of(text);
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == room) else {
            found.push(format!("{path} is in no room of the table"));
            continue;
        };
        let used: BTreeSet<String> = paths_in(path, &code).into_iter().collect();
        for used in used {
            let its_room = used.split("::").next().unwrap_or_default();
            let fits = its_room == room
                || !ALL.contains(&its_room)
                || allowed.iter().any(|allowed| used == *allowed || used.starts_with(&format!("{allowed}::")));
            if !fits {
                let what = if allowed.iter().any(|allowed| allowed.starts_with(&format!("{its_room}::"))) {
                    &used
                } else {
                    its_room
                };
                found.push(format!("{path} uses {what}"));
            }
        }
        for (word, places) in ONLY_IN {
            let here = places
                .iter()
                .any(|place| path == place || path.starts_with(&format!("{place}/")) || *path == format!("{place}.rs"));
            if !here && says(&code, word) {
                found.push(format!("{path} says `{word}`"));
            }
        }
        if PURE.contains(&room.as_str()) {
            for word in IMPURE.iter().filter(|word| says(&code, word)) {
                found.push(format!("{path} is pure and says `{word}`"));
            }
        }
    }
    found.dedup();
    found
}

/// The word as such, not as a part of a longer one.
fn says(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back().is_some_and(part);
        let after = !word.ends_with(':') && code[at + word.len()..].chars().next().is_some_and(part);
        !before && !after
    })
}

fn is_for_tests(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path == "tests.rs"
}

/// `decide/format/bytes.rs` and `decide.rs` are of the room `decide`.
fn room_of(path: &str) -> String {
    path.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned()
}

/// The text without comments, without the insides of string literals, and without what is for tests at its end.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if rest.starts_with("/*") {
            rest = rest.find("*/").map_or("", |end| &rest[end + 2..]);
        } else if rest.starts_with("r\"") || rest.starts_with("r#\"") {
            let (open, close) = if rest.starts_with("r\"") { (2, "\"") } else { (3, "\"#") };
            rest = rest[open..].find(close).map_or("", |end| &rest[open + end + close.len()..]);
            code.push_str("\"\"");
        } else if first == '"' {
            let mut end = 1;
            let bytes = rest.as_bytes();
            while end < bytes.len() && bytes[end] != b'"' {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            rest = rest.get(end + 1..).unwrap_or_default();
            code.push_str("\"\"");
        } else if rest.starts_with("'\"'") || rest.starts_with("b'\"'") {
            let skip = if first == 'b' { 4 } else { 3 };
            rest = &rest[skip..];
            code.push_str("' '");
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    // An inline test module is the last thing of a file; one that lies in a file of its own is left out by its name.
    let end = code.match_indices("#[cfg(test)]").map(|(at, _)| at).find(|at| {
        let after = code[*at..].split_once("mod tests").map(|(_, after)| after.trim_start());
        after.is_some_and(|after| after.starts_with('{'))
    });
    code.truncate(end.unwrap_or(code.len()));
    code
}

/// Every path from the root of the crate, written with `crate::` or with enough `super::`.
fn paths_in(file: &str, code: &str) -> Vec<String> {
    let code: String = code.split_whitespace().collect::<Vec<_>>().join(" ").replace(" :: ", "::").replace(":: ", "::");
    let depth = file.split('/').count();
    let mut paths = Vec::new();
    let to_root = "super::".repeat(depth);
    for (at, start) in code.match_indices("crate::").chain(code.match_indices(to_root.as_str())) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
            continue;
        }
        tree(&code[at + start.len()..], "", &mut paths);
    }
    paths
}

/// Flattens `a::{b, c::d}` into `a::b` and `a::c::d`. Returns what follows.
fn tree<'a>(text: &'a str, prefix: &str, paths: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = tree(rest, prefix, paths).trim_start();
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '*')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return rest;
    }
    let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}::{name}") };
    if let Some(more) = rest.strip_prefix("::") {
        return tree(more, &path, paths);
    }
    // `a as b`
    paths.push(path);
    match rest.trim_start().strip_prefix("as ") {
        Some(renamed) => &renamed[renamed.find([',', '}', ';']).unwrap_or(renamed.len())..],
        None => rest,
    }
}
