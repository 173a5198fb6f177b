//! volhold-TOPIC(7): what `volhold help TOPIC` prints.

use super::super::manual::topics::{Part, TOPICS, Topic};
use super::page::{Page, marked};

/// The name of its file, without the section.
pub(super) fn name(topic: &Topic) -> String {
    format!("volhold-{}", topic.name)
}

pub(super) fn page(topic: &Topic) -> String {
    let name = name(topic);
    let mut page = Page::new(&name.to_ascii_uppercase(), "7", &name, topic.about);
    // A heading is a section of its own; what stands before the first has this one.
    if !matches!(topic.parts.first(), Some(Part::Head(_))) {
        page.section("DESCRIPTION");
    }
    for part in topic.parts {
        match part {
            Part::Head(text) => page.section(&text.to_uppercase()),
            Part::Text(text) => page.para(text),
            Part::Row(term, text) => page.term(marked(term), text),
            Part::Type(lines) | Part::Config(lines) => page.verbatim(&lines.join("\n")),
        }
    }
    page.section("SEE ALSO");
    let others =
        TOPICS.iter().filter(|other| other.name != topic.name).map(|other| format!("{}(7)", self::name(other)));
    let own = ["volhold(8)", "volhold.toml(5)", "volhold-runbook(7)"].map(str::to_owned);
    page.para(&own.into_iter().chain(others).collect::<Vec<_>>().join(", "));
    page.finish()
}
