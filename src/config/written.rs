//! One layer as written: each value with its place, types and names of keys checked, meanings not yet.

use super::place::{Place, Problem, nearest};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// A value as written.
#[derive(Debug, Clone)]
pub(super) struct Value {
    pub place: Place,
    /// As its layer names it: `guard[0].format`, `guard.main.format`.
    pub key: String,
    /// One text; several where the key takes a list.
    pub texts: Vec<(String, Place)>,
    /// Where the key takes a list of tables and has one; then there is no text.
    pub tables: Option<Vec<Table>>,
}

/// One table of a list.
#[derive(Debug, Clone)]
pub(super) struct Table {
    /// `guard[0].publish[1]`
    pub key: String,
    pub place: Place,
    pub values: Values,
}

impl Value {
    pub(super) fn one(key: String, text: &str, place: Place) -> Self {
        Value { texts: vec![(text.to_owned(), place.clone())], tables: None, place, key }
    }

    pub(super) fn text(&self) -> &str {
        self.texts.first().map_or("", |(text, _)| text)
    }
}

pub(super) type Values = BTreeMap<&'static str, Value>;

/// The tables of [`TABLES`], by name.
pub(super) type Tables = BTreeMap<&'static str, Values>;

/// One layer: a file, the environment, the flags.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub tables: Tables,
    pub guards: Vec<WrittenGuard>,
}

/// One `[[guard]]`.
#[derive(Debug, Clone)]
pub(super) struct WrittenGuard {
    /// `guard[0]`
    pub key: String,
    /// Of the header, for what is missing.
    pub place: Place,
    pub values: Values,
}

/// Tables that are there once, with their keys. `[[guard]]` is there once for each guard.
pub(super) const TABLES: &[(&str, &[&str])] =
    &[("paths", &["state", "run"]), ("http", &["listen", "group"]), ("metrics", &["textfile_dir"])];
pub(super) const GUARD_KEYS: &[&str] = &[
    "name",
    "mode",
    "provider",
    "device",
    "volume_id",
    "volume_tags",
    "fstype",
    "format",
    "publish",
    "data_dir",
    "owner",
    "dir_mode",
    "fresh",
    "member",
    "peer_url",
    "mount_options",
    "witness",
    "snapshot",
    "grow",
    "restart",
    "etcd",
    "at_run_time",
    "stop_units",
];
pub(super) const PUBLISH_KEYS: &[&str] = &["from", "at"];
/// Keys that take a list, or one text (with commas, unless it is in `UNCUT`).
const LISTS: &[&str] = &["mount_options", "volume_tags", "stop_units"];
/// Lists of which one text is one part, commas and all: values of tags have commas.
const UNCUT: &[&str] = &["volume_tags"];
/// Keys that take a list of tables with these keys, or one text.
const LISTS_OF_TABLES: &[(&str, &[&str])] = &[("publish", PUBLISH_KEYS)];

/// What a text without commas becomes for a key: its parts for a list, itself for all others.
pub(super) fn value_of(name: &str, key: String, text: &str, place: Place) -> Value {
    if !LISTS.contains(&name) || UNCUT.contains(&name) {
        return Value::one(key, text, place);
    }
    let parts = text.split(',').filter(|_| !text.is_empty());
    Value { texts: parts.map(|part| (part.trim().to_owned(), place.clone())).collect(), tables: None, place, key }
}

/// The hint for a name that is not known.
pub(super) fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!("unknown key; did you mean `{near}`?"),
        None => format!("unknown key; known here: {}", known.join(", ")),
    }
}

/// Reads one file.
struct Reader<'t> {
    path: &'t Path,
    text: &'t str,
    problems: &'t mut Vec<Problem>,
}

/// Reads a text; what is no TOML is told as that only, and read as far as it can be.
pub(super) fn read(path: &Path, text: &str, problems: &mut Vec<Problem>) -> Written {
    Reader { path, text, problems }.read()
}

impl Reader<'_> {
    fn place(&self, span: Range<usize>) -> Place {
        Place::in_file(self.path, self.text, span)
    }

    fn wrong(&mut self, span: Range<usize>, key: &str, message: impl Into<String>) {
        let place = self.place(span);
        self.problems.push(Problem { place, key: key.to_owned(), message: message.into() });
    }

    fn read(&mut self) -> Written {
        let (document, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            self.wrong(error.span().unwrap_or(0..0), "", message);
        }
        let before = self.problems.len();
        let written = self.tables(document.get_ref());
        if !errors.is_empty() {
            // What was made of a broken text is guesswork, and so are mistakes in it.
            self.problems.truncate(before);
        }
        written
    }

    fn tables(&mut self, root: &DeTable<'_>) -> Written {
        let mut names: Vec<&str> = TABLES.iter().map(|(table, _)| *table).collect();
        names.push("guard");
        self.only(root, "", &names);
        let mut written = Written::default();
        for (name, keys) in TABLES.iter().copied() {
            match root.get(name).map(|value| (value.span(), value.get_ref())) {
                Some((_, DeValue::Table(table))) => {
                    written.tables.insert(name, self.values(table, name, keys));
                }
                Some((span, other)) => {
                    self.wrong(span, name, format!("is {}, wanted a table `[{name}]`", kind(other)));
                }
                None => {}
            }
        }
        match root.get("guard").map(|value| (value.span(), value.get_ref())) {
            Some((_, DeValue::Array(guards))) => {
                for (index, guard) in guards.iter().enumerate() {
                    let key = format!("guard[{index}]");
                    match guard.get_ref() {
                        DeValue::Table(table) => {
                            let values = self.values(table, &key, GUARD_KEYS);
                            let place = self.place(guard.span());
                            written.guards.push(WrittenGuard { key, place, values });
                        }
                        other => {
                            self.wrong(guard.span(), &key, format!("is {}, wanted a table `[[guard]]`", kind(other)));
                        }
                    }
                }
            }
            Some((span, other)) => {
                self.wrong(span, "guard", format!("is {}, wanted `[[guard]]` with two brackets", kind(other)));
            }
            None => {}
        }
        written
    }

    fn values(&mut self, table: &DeTable<'_>, path: &str, known: &[&'static str]) -> Values {
        self.only(table, path, known);
        let mut values = Values::new();
        for name in known {
            let Some(value) = table.get(*name) else { continue };
            let key = join(path, name);
            if let Some(value) = self.value(value, name, key) {
                values.insert(name, value);
            }
        }
        values
    }

    /// Every key that is not known is a mistake, with the one that was perhaps meant.
    fn only(&mut self, table: &DeTable<'_>, path: &str, known: &[&str]) {
        for (key, _) in table.iter() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                self.wrong(key.span(), &join(path, name), unknown(name, known));
            }
        }
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, name: &str, key: String) -> Option<Value> {
        if let (DeValue::Array(list), true) = (value.get_ref(), LISTS.contains(&name)) {
            let place = self.place(value.span());
            let texts = list.iter().filter_map(|value| Some((self.string(value, &key)?, self.place(value.span()))));
            let texts = texts.collect();
            return Some(Value { place, key, texts, tables: None });
        }
        if let (DeValue::Array(list), Some((_, known))) =
            (value.get_ref(), LISTS_OF_TABLES.iter().find(|(key, _)| *key == name))
        {
            let place = self.place(value.span());
            let tables = self.list_of_tables(list, &key, known);
            return Some(Value { place, key, texts: Vec::new(), tables: Some(tables) });
        }
        let text = self.string(value, &key)?;
        let place = self.place(value.span());
        Some(value_of(name, key, &text, place))
    }

    fn list_of_tables(&mut self, list: &DeArray<'_>, key: &str, known: &[&'static str]) -> Vec<Table> {
        let mut tables = Vec::new();
        for (index, value) in list.iter().enumerate() {
            let key = format!("{key}[{index}]");
            match value.get_ref() {
                DeValue::Table(table) => {
                    let values = self.values(table, &key, known);
                    tables.push(Table { place: self.place(value.span()), key, values });
                }
                other => {
                    let wanted = format!("is {}, wanted a table with {}", kind(other), known.join(" and "));
                    self.wrong(value.span(), &key, wanted);
                }
            }
        }
        tables
    }

    fn string(&mut self, value: &Spanned<DeValue<'_>>, key: &str) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.clone().into_owned()),
            other => {
                self.wrong(value.span(), key, format!("is {}, wanted a text in quotes", kind(other)));
                None
            }
        }
    }
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
