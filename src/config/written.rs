//! The file as written: each value with its place, types and names of keys checked, meanings not yet.

use super::place::{Problem, nearest};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) type Text = Spanned<String>;

/// The whole file.
pub(super) struct Written {
    pub state: Option<Text>,
    pub run: Option<Text>,
    pub guards: Vec<WrittenGuard>,
}

/// One `[[guard]]`.
pub(super) struct WrittenGuard {
    /// `guard[0]`
    pub key: String,
    /// Of the header, for what is missing.
    pub span: Range<usize>,
    pub name: Option<Text>,
    pub mode: Option<Text>,
    pub provider: Option<Text>,
    pub device: Option<Text>,
    pub fstype: Option<Text>,
    pub format: Option<Text>,
    pub publish: Option<Text>,
    pub data_dir: Option<Text>,
    pub owner: Option<Text>,
    pub dir_mode: Option<Text>,
    pub fresh: Option<Text>,
    pub member: Option<Text>,
    pub peer_url: Option<Text>,
    pub mount_options: Vec<Text>,
}

const GUARD_KEYS: &[&str] = &[
    "name",
    "mode",
    "provider",
    "device",
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
];

/// Collects mistakes.
pub(super) struct Reader<'t> {
    pub text: &'t str,
    pub problems: Vec<Problem>,
}

impl Reader<'_> {
    pub(super) fn wrong(&mut self, span: Range<usize>, key: &str, message: impl Into<String>) {
        self.problems.push(Problem::at(self.text, span, key, message));
    }

    /// Reads the whole text; `None` when it is no TOML.
    pub(super) fn read(&mut self) -> Option<Written> {
        let text = self.text;
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            self.wrong(error.span().unwrap_or(0..0), "", message);
        }
        if !errors.is_empty() {
            return None;
        }
        let root = document.get_ref();
        self.only(root, "", &["paths", "guard"]);
        let mut written = Written { state: None, run: None, guards: Vec::new() };
        match root.get("paths").map(|value| (value.span(), value.get_ref())) {
            Some((_, DeValue::Table(paths))) => {
                self.only(paths, "paths", &["state", "run"]);
                written.state = self.text(paths, "paths", "state");
                written.run = self.text(paths, "paths", "run");
            }
            Some((span, other)) => self.wrong(span, "paths", format!("is {}, wanted a table `[paths]`", kind(other))),
            None => {}
        }
        match root.get("guard").map(|value| (value.span(), value.get_ref())) {
            Some((_, DeValue::Array(guards))) => {
                for (index, guard) in guards.iter().enumerate() {
                    let key = format!("guard[{index}]");
                    match guard.get_ref() {
                        DeValue::Table(table) => written.guards.push(self.written_guard(table, key, guard.span())),
                        other => {
                            self.wrong(guard.span(), &key, format!("is {}, wanted a table `[[guard]]`", kind(other)))
                        }
                    }
                }
            }
            Some((span, other)) => {
                self.wrong(span, "guard", format!("is {}, wanted `[[guard]]` with two brackets", kind(other)));
            }
            None => {}
        }
        Some(written)
    }

    fn written_guard(&mut self, table: &DeTable<'_>, key: String, span: Range<usize>) -> WrittenGuard {
        self.only(table, &key, GUARD_KEYS);
        let mut text = |name| self.text(table, &key, name);
        WrittenGuard {
            name: text("name"),
            mode: text("mode"),
            provider: text("provider"),
            device: text("device"),
            fstype: text("fstype"),
            format: text("format"),
            publish: text("publish"),
            data_dir: text("data_dir"),
            owner: text("owner"),
            dir_mode: text("dir_mode"),
            fresh: text("fresh"),
            member: text("member"),
            peer_url: text("peer_url"),
            mount_options: self.texts(table, &key, "mount_options"),
            key,
            span,
        }
    }

    /// Every key that is not known is a mistake, with the one that was perhaps meant.
    fn only(&mut self, table: &DeTable<'_>, path: &str, known: &[&str]) {
        for (key, _) in table.iter() {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let hint = match nearest(name, known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", known.join(", ")),
            };
            self.wrong(key.span(), &join(path, name), format!("unknown key; {hint}"));
        }
    }

    fn text(&mut self, table: &DeTable<'_>, path: &str, name: &str) -> Option<Text> {
        let value = table.get(name)?;
        self.string(value, &join(path, name))
    }

    /// One text with commas, or a list of texts.
    fn texts(&mut self, table: &DeTable<'_>, path: &str, name: &str) -> Vec<Text> {
        let key = join(path, name);
        let Some(value) = table.get(name) else { return Vec::new() };
        if let DeValue::Array(list) = value.get_ref() {
            return list.iter().filter_map(|value| self.string(value, &key)).collect();
        }
        let Some(text) = self.string(value, &key) else { return Vec::new() };
        if text.get_ref().is_empty() {
            return Vec::new();
        }
        let span = text.span();
        text.get_ref().split(',').map(|part| Spanned::new(span.clone(), part.trim().to_owned())).collect()
    }

    fn string(&mut self, value: &Spanned<DeValue<'_>>, key: &str) -> Option<Text> {
        match value.get_ref() {
            DeValue::String(text) => Some(Spanned::new(value.span(), text.clone().into_owned())),
            other => {
                self.wrong(value.span(), key, format!("is {}, wanted a text in quotes", kind(other)));
                None
            }
        }
    }
}

fn join(path: &str, name: &str) -> String {
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
