//! volhold(8): every verb, from the definition that the command line is read with.

use super::super::args::Cli;
use super::super::exit::Exit;
use super::super::manual::topics::TOPICS;
use super::page::Page;
use clap::{Arg, Command, CommandFactory};
use roff::{Inline, bold, italic, roman};

const ABOUT: &str = "guard the volume under etcd";

const DESCRIPTION: &[&str] = &[
    "`volhold` finds the block device under etcd, finds out what is on it, mounts it, reads the etcd data that it carries, \
     and keeps etcd from starting until all of that is known to be right. If it is not, it holds, and says why.",
    "The agent (`volhold run`, volhold.service) looks after every guard of volhold.toml(5). In `observe` mode, the default, \
     it looks and reports and changes nothing. In `enforce` mode it claims the device, examines and mounts it, and opens \
     the gate that etcd's unit waits for. A filesystem is made only where `format` allows it and every byte proves that \
     the device is blank; no verb formats, and nothing is ever deleted.",
    "Stopping, crashing, upgrading or removing volhold never stops a running etcd, never opens a closed gate and never \
     closes an open one.",
    "First look: `volhold status`. Then: `volhold explain NAME`.",
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("VOLHOLD_CONFIG", "The configuration file, as `--config`."),
    ("VOLHOLD_PATHS_*, VOLHOLD_GUARD_NAME_*", "Single keys of the configuration, see volhold.toml(5)."),
    ("VOLHOLD_LOG", "What the agent logs: `info` unless set, `debug`, or a filter for each part of it."),
    ("NO_COLOR", "No colour, also on a terminal."),
];

const FILES: &[(&str, &str)] = &[
    ("/etc/volhold/config.toml", "The configuration; more in /etc/volhold/conf.d/*.toml."),
    ("/var/lib/volhold", "What this node remembers: records, decisions, the last valid configuration."),
    ("/run/volhold/open/NAME", "Is there while the gate of the guard is open."),
    ("/run/volhold/status.json", "What `volhold status` shows."),
];

const SIGNALS: &[(&str, &str)] = &[
    ("SIGHUP", "The agent reads the configuration again."),
    ("SIGTERM, SIGINT", "The agent ends. Gates and mounts stay as they are."),
];

pub(super) fn page() -> String {
    let mut command = Cli::command();
    command.build();
    let mut page = Page::new("VOLHOLD", "8", "volhold", ABOUT);
    page.section("SYNOPSIS");
    page.para("`volhold` [OPTIONS] VERB");
    page.section("DESCRIPTION");
    for text in DESCRIPTION {
        page.para(text);
    }
    page.section("VERBS");
    verbs(&mut page, &command, "volhold");
    page.section("OPTIONS");
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        argument(&mut page, arg);
    }
    page.section("EXIT STATUS");
    for exit in Exit::ALL {
        page.term(vec![bold(exit.code().to_string())], &format!("{}.", exit.meaning()));
    }
    for (title, list) in [("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES), ("SIGNALS", SIGNALS)] {
        page.section(title);
        for (name, text) in list {
            page.term(vec![bold(*name)], text);
        }
    }
    page.section("SEE ALSO");
    let topics: String = TOPICS.iter().map(|topic| format!("{}(7), ", super::topics::name(topic))).collect();
    page.para(&format!("volhold.toml(5), volhold-runbook(7), {topics}systemctl(1), wipefs(8), blkid(8), e2fsck(8)"));
    page.finish()
}

fn verbs(page: &mut Page, command: &Command, before: &str) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        // Our own; those of the others are clap's, and say what --help says.
        if verb.get_name() == "help" && before != "volhold" {
            continue;
        }
        let name = format!("{before} {}", verb.get_name());
        // Some do something by themselves too.
        if !verb.has_subcommands() || verb.get_positionals().next().is_some() {
            one(page, verb, &name);
        }
        if verb.has_subcommands() {
            verbs(page, verb, &name);
        }
    }
}

fn one(page: &mut Page, verb: &Command, name: &str) {
    let own =
        || verb.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_global_set() && arg.get_id() != "help");
    let positional = own().filter(|arg| arg.is_positional()).map(|arg| {
        let value = value_name(arg);
        if arg.is_required_set() { value } else { format!("[{value}]") }
    });
    let flags = own().any(|arg| !arg.is_positional()).then(|| "[OPTIONS]".to_owned());
    let words: Vec<String> = std::iter::once(name.to_owned()).chain(positional).chain(flags).collect();
    page.subsection(&words.join(" "));
    let about = verb.get_long_about().or_else(|| verb.get_about()).map(ToString::to_string).unwrap_or_default();
    for text in about.split("\n\n") {
        page.para(&sentence(text));
    }
    for arg in own().filter(|arg| arg.get_help().is_some()) {
        argument(page, arg);
    }
}

fn argument(page: &mut Page, arg: &Arg) {
    let mut term: Vec<Inline> = Vec::new();
    if let Some(short) = arg.get_short() {
        term.extend([bold(format!("-{short}")), roman(", ")]);
    }
    if let Some(long) = arg.get_long() {
        term.push(bold(format!("--{long}")));
    }
    if arg.is_positional() {
        term.push(italic(value_name(arg)));
    } else if arg.get_action().takes_values() {
        term.extend([roman(" "), italic(value_name(arg))]);
    }
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = sentence(&help);
    let values = arg.get_possible_values();
    if arg.get_action().takes_values() && !values.is_empty() {
        let names: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        text.push_str(&format!(" One of {}.", names.join(", ")));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        text.push_str(&format!(" Default: `{}`.", defaults.join(",")));
    }
    page.term(term, &text);
}

fn value_name(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.first().map_or_else(|| arg.get_id().as_str().to_ascii_uppercase(), ToString::to_string)
}

/// Help texts of clap end without a full stop.
fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', '?', '!']) { text.to_owned() } else { format!("{text}.") }
}
