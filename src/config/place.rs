//! Where a value comes from, what is wrong with it, and which name was perhaps meant.

use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Where a value comes from. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "from")]
pub enum Place {
    File {
        path: PathBuf,
        line: usize,
        column: usize,
    },
    Environment {
        variable: String,
    },
    /// `--set KEY=VALUE`
    Flag {
        flag: String,
    },
    Default,
}

impl Place {
    pub(super) fn in_file(path: &Path, text: &str, span: Range<usize>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count().saturating_add(1);
        let column = before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()).saturating_add(1);
        Place::File { path: path.to_owned(), line, column }
    }

    /// Without the column: what `config show --origin` prints.
    pub fn short(&self) -> String {
        match self {
            Place::File { path, line, .. } => format!("{}:{line}", path.display()),
            Place::Environment { .. } | Place::Flag { .. } | Place::Default => self.to_string(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Place::Environment { variable } => write!(f, "environment {variable}"),
            Place::Flag { flag } => f.write_str(flag),
            Place::Default => f.write_str("default"),
        }
    }
}

/// One mistake with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub place: Place,
    /// Path of the key, `guard[0].format`; empty where a text is no TOML.
    pub key: String,
    /// What is wrong and what is wanted.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// The one of `known` that `word` was perhaps meant to be: few letters away, or the same but for separators.
pub(super) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let plain = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let word = plain(word);
    let most = (word.len() / 3).max(1);
    let scored = known.iter().map(|name| (distance(&word, &plain(name)), *name));
    scored.filter(|(away, _)| *away <= most).min_by_key(|(away, _)| *away).map(|(_, name)| name)
}

/// How many letters must be put in, left out or changed.
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = at;
        let mut left = at.saturating_add(1);
        let mut next = vec![left];
        for (other, above) in two.iter().zip(row.iter().skip(1)) {
            let changed = diagonal.saturating_add(usize::from(letter != *other));
            left = changed.min(above.saturating_add(1)).min(left.saturating_add(1));
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}
