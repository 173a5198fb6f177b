//! Where in the text a mistake is, and which name was perhaps meant.

use std::fmt;
use std::ops::Range;
use std::path::Path;

/// One mistake with its place. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub line: usize,
    pub column: usize,
    /// Path of the key, `guard[0].format`; empty where the text is no TOML.
    pub key: String,
    /// What is wrong and what is wanted.
    pub message: String,
}

impl Problem {
    pub(super) fn at(text: &str, span: Range<usize>, key: &str, message: impl Into<String>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count().saturating_add(1);
        let column = before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()).saturating_add(1);
        Problem { line, column, key: key.to_owned(), message: message.into() }
    }

    pub(super) fn line_for(&self, path: &Path) -> String {
        let Problem { line, column, .. } = self;
        format!("{}:{line}:{column}: {}", path.display(), self.sentence())
    }

    fn sentence(&self) -> String {
        if self.key.is_empty() { self.message.clone() } else { format!("{}: {}", self.key, self.message) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.sentence())
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
