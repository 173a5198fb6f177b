//! `volhold help [TOPIC]`: pages about volhold as a whole, and the help of a verb where it is asked for in this way.

use super::args::{Cli, Output};
use super::exit::Exit;
use super::manual::topics::{Part, TOPICS, Topic, topic};
use super::output::{Context, Failure, put};
use super::text::{Screen, Tone};
use clap::CommandFactory;
use serde::Serialize;

/// The document of `help TOPIC -o json`.
#[derive(Debug, Serialize)]
struct Page<'t> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    topic: &'t Topic,
}

/// The document of `help -o json`.
#[derive(Debug, Serialize)]
struct Contents {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    topics: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    about: &'static str,
}

pub fn run(context: &Context, name: Option<&str>) -> Result<Exit, Failure> {
    let Some(name) = name else { return contents(context) };
    if let Some(topic) = topic(name) {
        let page = Page { api_version: "volhold/v1", kind: "HelpPage", topic };
        context.print(&page, |screen| draw(screen, topic))?;
        return Ok(Exit::Ok);
    }
    let mut command = Cli::command();
    command.build();
    match command.find_subcommand_mut(name).filter(|verb| !verb.is_hide_set()) {
        Some(verb) if context.output == Output::Table => {
            put(&verb.render_long_help().to_string())?;
            Ok(Exit::Ok)
        }
        Some(_) | None => {
            let names: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
            Err(Failure::new(Exit::NoMatch, format!("there is no page about `{name}`"))
                .advise(format!("there are: {}", names.join(", "))))
        }
    }
}

fn contents(context: &Context) -> Result<Exit, Failure> {
    let topics = TOPICS.iter().map(|topic| Entry { name: topic.name, about: topic.about }).collect();
    let document = Contents { api_version: "volhold/v1", kind: "HelpContents", topics };
    context.print(&document, |screen| {
        screen.para(0, "Pages about volhold, each also as a manual page, volhold-TOPIC(7):");
        screen.blank();
        for entry in &document.topics {
            screen.hanging(&format!("  volhold help {}", entry.name), 30, entry.about);
        }
        screen.blank();
        screen.para(
            0,
            "Of a verb: volhold help VERB, or volhold VERB --help. Of a reason: volhold explain --reason CODE.",
        );
    })?;
    Ok(Exit::Ok)
}

fn draw(screen: &mut Screen, topic: &Topic) {
    screen.tone(Tone::Head, &format!("{}.", topic.about));
    let mut before = None;
    for part in topic.parts {
        // Commands belong to what stands before them, and rows to each other.
        let closely = matches!((before, part), (Some(Part::Row(..)), Part::Row(..)) | (Some(Part::Head(_)), _));
        if !closely {
            screen.blank();
        }
        match part {
            Part::Head(text) => screen.tone(Tone::Head, text),
            Part::Text(text) => screen.para(2, text),
            Part::Row(term, text) => {
                screen.para(2, term);
                screen.para(6, text);
            }
            Part::Type(lines) | Part::Config(lines) => lines.iter().for_each(|line| screen.verbatim(2, line)),
        }
        before = Some(*part);
    }
}
