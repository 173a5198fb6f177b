//! What `plan restore` and `plan repair` have in common: what was checked, and what to type.

use crate::cli::exit::Exit;
use crate::cli::output::{Context, Failure};
use crate::cli::text::Tone;
use crate::config::{Config, GuardConfig};
use crate::model::{Decision, GuardName, Records};
use crate::record::{NodeLedger, fold, machine_id};
use serde::Serialize;

/// What is on record: as it was when the data dirs were last read; where they never were (the volume does not mount), what
/// this node remembers. `None`: nothing can be told.
pub(super) fn records(config: &Config, guard: &GuardConfig, decision: Option<&Decision>) -> Option<Records> {
    let evidence = &decision?.evidence;
    if let Some(records) = evidence.start.as_ref().and_then(|start| start.records.seen()) {
        return Some(records.clone());
    }
    let machine = machine_id(&config.paths.state).ok()?;
    let reading = NodeLedger::at(&config.paths.state, &guard.name, &machine).read().ok()?;
    let volume = evidence.device.as_ref()?.volume_id.clone();
    Some(fold(&reading.own, &[], &volume, None))
}

/// The document of `plan restore` and `plan repair`, `-o json`.
#[derive(Debug, Serialize)]
pub(super) struct Way {
    #[serde(rename = "apiVersion")]
    pub api_version: &'static str,
    pub kind: &'static str,
    pub guard: GuardName,
    pub title: String,
    pub checks: Vec<Check>,
    pub commands: Vec<Command>,
}

/// Something that was looked at.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    pub what: &'static str,
    pub says: String,
    /// `false`: it speaks against going on; `null`: it is not known.
    pub good: Option<bool>,
}

impl Check {
    pub fn good(what: &'static str, says: impl Into<String>) -> Self {
        Check { what, says: says.into(), good: Some(true) }
    }

    pub fn bad(what: &'static str, says: impl Into<String>) -> Self {
        Check { what, says: says.into(), good: Some(false) }
    }

    pub fn unknown(what: &'static str, says: impl Into<String>) -> Self {
        Check { what, says: says.into(), good: None }
    }
}

/// One line to type. Nothing of it is done by volhold but what begins with its name.
#[derive(Debug, Serialize)]
pub(super) struct Command {
    pub command: String,
    pub effect: String,
    /// It changes nothing that cannot be taken back.
    pub safe: bool,
}

impl Command {
    pub fn safe(command: impl Into<String>, effect: impl Into<String>) -> Self {
        Command { command: command.into(), effect: effect.into(), safe: true }
    }

    pub fn unsafe_(command: impl Into<String>, effect: impl Into<String>) -> Self {
        Command { command: command.into(), effect: effect.into(), safe: false }
    }
}

/// Exit 4 where a check speaks against it.
pub(super) fn print(context: &Context, way: &Way) -> Result<Exit, Failure> {
    context.print(way, |screen| {
        screen.tone(Tone::Head, &way.title);
        for check in &way.checks {
            let mark = match check.good {
                Some(true) => "  ok  ",
                Some(false) => "  BAD ",
                None => "  ?   ",
            };
            screen.hanging(&format!("{mark}{}", check.what), 24, &check.says);
        }
        screen.blank();
        screen.tone(Tone::Head, "Type, one after the other, and read what each says");
        for (number, command) in (1_u32..).zip(&way.commands) {
            screen.verbatim(2, &format!("{number}  {}", command.command));
            screen.para(7, &format!("{} {}", if command.safe { "Safe." } else { "NOT safe." }, command.effect));
        }
        screen.blank();
        screen.para(0, "Nothing was changed.");
    })?;
    let bad = way.checks.iter().any(|check| check.good == Some(false));
    Ok(if bad { Exit::Refused } else { Exit::Ok })
}

/// For a shell, as one word.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | ':' | '=' | ',' | '+' | '@');
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_shell_takes_any_text_as_one_word() {
        assert_eq!(quoted("https://a:2380,b=c"), "https://a:2380,b=c");
        assert_eq!(quoted("a b;$(x)"), "'a b;$(x)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
