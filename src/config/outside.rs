//! The layers that are no file: `VOLHOLD_*` in the environment and `--set KEY=VALUE`.
//!
//! ```text
//! VOLHOLD_PATHS_STATE=/srv/state        --set paths.state=/srv/state
//! VOLHOLD_GUARD_ETCD_MAIN_MODE=observe  --set guard.etcd-main.mode=observe
//! ```
//!
//! A guard's name is written in capitals, with `_` for `-`. A misspelled variable is a mistake, as a misspelled key is.

use super::place::{Place, Problem, nearest};
use super::written::{GUARD_KEYS, TABLES, Values, Written, WrittenGuard, unknown, value_of};
use std::ffi::OsString;

const PREFIX: &str = "VOLHOLD_";

/// What the environment sets. `guards`: names that the files configure.
pub(super) fn environment(vars: &[(String, OsString)], guards: &[String], problems: &mut Vec<Problem>) -> Written {
    let mut layer = Written::default();
    for (variable, text) in vars {
        let Some(rest) = variable.strip_prefix(PREFIX) else { continue };
        let place = Place::Environment { variable: variable.clone() };
        let key = match key_of(rest, guards) {
            Ok(Some(key)) => key,
            Ok(None) => continue,
            Err(message) => {
                problems.push(Problem { place, key: String::new(), message });
                continue;
            }
        };
        match text.to_str() {
            Some(text) => set(&mut layer, key, text, place),
            None => problems.push(Problem { place, key: key.path(), message: "is not UTF-8".to_owned() }),
        }
    }
    layer
}

/// What the flags set; the last of several for one key counts.
pub(super) fn flags(flags: &[String], problems: &mut Vec<Problem>) -> Written {
    let mut layer = Written::default();
    for flag in flags {
        let (key, text) = flag.split_once('=').unwrap_or((flag, ""));
        let place = Place::Flag { flag: format!("--set {key}") };
        match dotted(key) {
            Ok(key) if flag.contains('=') => set(&mut layer, key, text, place),
            Ok(key) => problems.push(Problem { place, key: key.path(), message: "wanted KEY=VALUE".to_owned() }),
            Err(message) => problems.push(Problem { place, key: key.to_owned(), message }),
        }
    }
    layer
}

/// A key without a file around it.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    Table { table: &'static str, name: &'static str },
    Guard { guard: String, name: &'static str },
}

impl Key {
    fn path(&self) -> String {
        match self {
            Key::Table { table, name } => format!("{table}.{name}"),
            Key::Guard { guard, name } => format!("guard.{guard}.{name}"),
        }
    }
}

fn set(layer: &mut Written, key: Key, text: &str, place: Place) {
    let path = key.path();
    match key {
        Key::Table { table, name } => {
            layer.tables.entry(table).or_default().insert(name, value_of(name, path, text, place));
        }
        Key::Guard { guard, name } => {
            let at = layer.guards.iter().position(|known| known.key == format!("guard.{guard}")).unwrap_or_else(|| {
                let called = value_of("name", format!("guard.{guard}.name"), &guard, place.clone());
                layer.guards.push(WrittenGuard {
                    key: format!("guard.{guard}"),
                    place: place.clone(),
                    values: Values::from([("name", called)]),
                });
                layer.guards.len().saturating_sub(1)
            });
            if let Some(guard) = layer.guards.get_mut(at) {
                guard.values.insert(name, value_of(name, path, text, place));
            }
        }
    }
}

/// `PATHS_STATE`, `GUARD_MAIN_MODE`; `None` for a variable that is not about the configuration.
fn key_of(rest: &str, guards: &[String]) -> Result<Option<Key>, String> {
    let (first, after) = rest.split_once('_').unwrap_or((rest, ""));
    if let Some((table, keys)) = TABLES.iter().find(|(table, _)| table.to_ascii_uppercase() == first) {
        return match keys.iter().find(|name| name.to_ascii_uppercase() == after) {
            Some(name) => Ok(Some(Key::Table { table, name })),
            None => Err(unknown_variable(&format!("{first}_"), after, keys)),
        };
    }
    match first {
        "GUARD" => guard_key(after, guards).map(Some),
        // VOLHOLD_CONFIG, VOLHOLD_LOG and what others may call so are no keys; a slip of the finger is not one of those.
        other => {
            let tables = TABLES.iter().map(|(table, _)| *table).chain(["guard"]).collect::<Vec<_>>();
            match nearest(other, &tables) {
                Some(near) => {
                    let near = near.to_ascii_uppercase();
                    Err(format!("unknown variable; did you mean `{PREFIX}{near}_{after}`?"))
                }
                None => Ok(None),
            }
        }
    }
}

/// `MAIN_DATA_DIR`: a name, `_`, a key. Where two ways to cut are possible (`X_DIR_MODE`: `dir_mode` of `x`, `mode` of `x-dir`),
/// the guard that the files know counts; else the longer key.
fn guard_key(text: &str, guards: &[String]) -> Result<Key, String> {
    let known: Vec<&'static str> = GUARD_KEYS.iter().copied().filter(|name| *name != "name").collect();
    let mut cuts: Vec<(String, &'static str)> = known
        .iter()
        .filter_map(|name| {
            let guard = text.strip_suffix(&name.to_ascii_uppercase())?.strip_suffix('_')?;
            Some((guard.to_ascii_lowercase().replace('_', "-"), *name)).filter(|(guard, _)| !guard.is_empty())
        })
        .collect();
    cuts.sort_by_key(|(_, name)| std::cmp::Reverse(name.len()));
    let of_files: Vec<&(String, &'static str)> = cuts.iter().filter(|(guard, _)| guards.contains(guard)).collect();
    match (of_files.as_slice(), cuts.first()) {
        ([], Some((guard, name))) | ([(guard, name)], _) => Ok(Key::Guard { guard: guard.clone(), name }),
        ([(one, first), (other, second), ..], _) => {
            Err(format!("may be `{first}` of guard `{one}` or `{second}` of guard `{other}`; write it into a file"))
        }
        ([], None) => {
            let prefix = guards.iter().find_map(|guard| {
                let prefix = guard.to_ascii_uppercase().replace('-', "_");
                let key = text.strip_prefix(&prefix)?.strip_prefix('_')?;
                Some((format!("GUARD_{prefix}_"), key))
            });
            let (prefix, key) = match &prefix {
                Some((prefix, key)) => (prefix.clone(), *key),
                None => {
                    let (guard, key) = text.split_once('_').unwrap_or((text, ""));
                    (format!("GUARD_{guard}_"), key)
                }
            };
            Err(unknown_variable(&prefix, key, &known))
        }
    }
}

fn unknown_variable(prefix: &str, key: &str, known: &[&str]) -> String {
    match nearest(key, known) {
        Some(near) => format!("unknown variable; did you mean `{PREFIX}{prefix}{}`?", near.to_ascii_uppercase()),
        None => {
            format!("unknown variable; after `{PREFIX}{prefix}` there may be {}", known.join(", ").to_ascii_uppercase())
        }
    }
}

const WANTED: &str = "unknown key; wanted `paths.KEY`, `http.KEY` or `guard.NAME.KEY`";

/// `paths.state`, `guard.main.mode`.
fn dotted(key: &str) -> Result<Key, String> {
    let parts: Vec<&str> = key.split('.').collect();
    match parts.as_slice() {
        ["guard", guard, name] => match GUARD_KEYS.iter().find(|known| *known == name && **known != "name") {
            Some(name) => Ok(Key::Guard { guard: (*guard).to_owned(), name }),
            None => Err(unknown(name, GUARD_KEYS)),
        },
        [table, name] => match TABLES.iter().find(|(known, _)| known == table) {
            Some((table, keys)) => match keys.iter().find(|known| *known == name) {
                Some(name) => Ok(Key::Table { table, name }),
                None => Err(unknown(name, keys)),
            },
            None => Err(WANTED.to_owned()),
        },
        _ => Err(WANTED.to_owned()),
    }
}
