//! Pages about volhold as a whole, for whoever wants to know before anything is held: `volhold help TOPIC`, and a manual page
//! of section 7 each.
//!
//! They say what was never tried as plainly as what was. Tests hold them against the program: every command of ours in them is
//! read by its own command line, every configuration by its own reader, and those of `trial` are run.

mod boot;
mod compared;
mod never;
mod places;
mod trial;

use serde::Serialize;

/// One page.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Topic {
    /// What is typed after `volhold help`; the manual page is `volhold-NAME`.
    pub name: &'static str,
    /// One line, without a full stop.
    pub about: &'static str,
    pub parts: &'static [Part],
}

/// A piece of a page. What is to be typed stands in backticks.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    Head(&'static str),
    Text(&'static str),
    /// A term, and what is to be said of it.
    Row(&'static str, &'static str),
    /// Commands, one a line; what follows a `#` after two spaces says what happens.
    Type(&'static [&'static str]),
    /// Lines of volhold's configuration.
    Config(&'static [&'static str]),
}

/// All of them, in the order in which they are read.
pub const TOPICS: &[&Topic] = &[
    &boot::BOOT,
    &never::NEVER,
    &trial::TRIAL,
    &places::ETCD,
    &places::KUBEADM,
    &places::KOPS,
    &places::WITHOUT_AWS,
    &compared::COMPARED,
];

/// The page of this name.
pub fn topic(name: &str) -> Option<&'static Topic> {
    TOPICS.iter().copied().find(|topic| topic.name == name)
}

#[cfg(test)]
mod tests;
