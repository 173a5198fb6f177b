//! `volhold events [-f] [NAME]`: what the agent tells, as lines.
//!
//! For a person one line for each change of what a person would be told: gate, state, reasons, what is waited for or worked
//! on. For scripts (`-o json`) the lines of `/v1/events` as they come, progress too. Where the agent goes away, `-f` stays
//! and says so; what is so when it is back is told anew, since a stream begins with that.

mod stream;

use super::args::Output;
use super::exit::Exit;
use super::explain;
use super::output::{self, AS_ROOT, Context, Failure, io_failure, put_unless_gone};
use super::status::{gate_failure, gate_word, reason_line, state_word};
use super::text::{Screen, moment};
use super::vigil::{Vigil, Woken};
use crate::gate::bell::{Bell, LOOK_EVERY};
use crate::model::{GuardName, GuardStatus, Time};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;
use stream::{Heard, Refused, Stream};

/// Time in which an agent that has taken a connection has to answer. Its own limit for a request is 30 seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// One line of the stream, as far as it is read here.
#[derive(Debug, Deserialize)]
struct Event {
    time: Time,
    #[serde(flatten)]
    what: What,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
enum What {
    Guard {
        guard: Box<GuardStatus>,
    },
    Removed {
        name: GuardName,
    },
    Agent {
        config: Vec<String>,
        warnings: Vec<String>,
    },
    Lost {
        changes: u64,
    },
    /// Of a newer agent.
    #[serde(other)]
    Other,
}

/// How a stream ended.
enum End {
    /// Asked to, or nobody reads.
    Asked,
    /// The agent has ended it.
    Over,
    Refused(Refused),
}

pub fn run(context: &Context, name: Option<&GuardName>, follow: bool) -> Result<Exit, Failure> {
    let config = context.config()?;
    if let Some(name) = name {
        explain::known(&config, name)?;
    }
    let run = &config.paths.run;
    let vigil = Vigil::begin()?;
    let bell = Bell::new(run).map_err(|error| gate_failure("cannot watch", &error))?;
    let mut lines = Lines { output: context.output, name, told: BTreeMap::new() };
    let mut missing = false;
    loop {
        // Watch first, then ask: an agent that comes in between rings.
        bell.arm(run).map_err(|error| gate_failure("cannot watch", &error))?;
        bell.swallow().map_err(|error| gate_failure("cannot watch", &error))?;
        let end = match Stream::open(run, follow) {
            Ok(mut stream) => one(&vigil, &mut stream, follow, &mut lines, &mut missing)?,
            Err(error) => End::Refused(Refused::Silent(error)),
        };
        let refused = match (end, follow) {
            (End::Asked, _) | (End::Over, false) => return Ok(Exit::Ok),
            (End::Refused(Refused::Denied), _) => return Err(denied()),
            (End::Refused(refused), false) => return Err(unanswered(run, &refused)),
            (End::Refused(refused), true) => Some(refused),
            (End::Over, true) => None,
        };
        if !std::mem::replace(&mut missing, true) {
            let why = refused.map_or_else(|| "has ended the stream".to_owned(), |refused| refused.to_string());
            output::tell::<&str>(&format!("volhold: the agent {why}; waiting until it answers"), []);
        }
        if vigil.wait(&[bell.as_fd()], LOOK_EVERY)? == Woken::End {
            return Ok(Exit::Ok);
        }
    }
}

/// Follows one stream to its end.
fn one(
    vigil: &Vigil,
    stream: &mut Stream,
    follow: bool,
    lines: &mut Lines<'_>,
    missing: &mut bool,
) -> Result<End, Failure> {
    loop {
        match stream.hear() {
            Heard::Line(line) => {
                if std::mem::take(missing) {
                    output::tell::<&str>("volhold: the agent answers again", []);
                }
                let text = lines.of(&line)?;
                if !text.is_empty() && !put_unless_gone(&text)? {
                    return Ok(End::Asked);
                }
                continue;
            }
            Heard::End => return Ok(End::Over),
            Heard::Refused(refused) => return Ok(End::Refused(refused)),
            Heard::NothingYet => {}
        }
        let patience = if stream.answered() { LOOK_EVERY } else { ANSWER_WITHIN };
        match vigil.wait(&[stream.as_fd()], patience)? {
            Woken::End => return Ok(End::Asked),
            Woken::Silence if !stream.answered() => return Ok(End::Refused(Refused::TooSlow)),
            // An agent from before an upgrade, which does not know that it was to end.
            Woken::Silence if !follow => return Ok(End::Over),
            Woken::Call | Woken::Silence => {}
        }
    }
}

fn denied() -> Failure {
    Failure::new(Exit::NoPermission, "what the agent tells is for root and for the group that the configuration names")
        .advise(AS_ROOT)
}

fn unanswered(run: &Path, refused: &Refused) -> Failure {
    let socket = crate::gate::http::socket_path(run);
    let failure = Failure::new(Exit::TryLater, format!("the agent {refused}, at {}", socket.display()));
    let failure = match refused {
        Refused::Silent(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return io_failure(format!("the agent's socket {} is closed to you", socket.display()), error);
        }
        Refused::Silent(error) => failure.because(error),
        Refused::Denied | Refused::TooSlow | Refused::Busy | Refused::Odd(_) => failure,
    };
    failure.advise("volhold status shows what it told last; systemctl status volhold shows whether it runs")
}

/// What becomes of what the agent tells.
struct Lines<'n> {
    output: Output,
    name: Option<&'n GuardName>,
    /// The last line about each guard and about the agent, without its time: what a person has read already.
    told: BTreeMap<String, String>,
}

impl Lines<'_> {
    /// What is printed for one line of the stream; nothing where it is not asked for, or no news.
    fn of(&mut self, line: &str) -> Result<String, Failure> {
        let event: Event = serde_json::from_str(line).map_err(|error| {
            Failure::new(Exit::Error, "the agent tells what this volhold cannot read").because(&error)
        })?;
        let about = match &event.what {
            What::Guard { guard } => Some(&guard.name),
            What::Removed { name } => Some(name),
            What::Agent { .. } | What::Lost { .. } | What::Other => None,
        };
        if self.name.is_some() && about != self.name {
            return Ok(String::new());
        }
        if self.output == Output::Json {
            return Ok(format!("{line}\n"));
        }
        let told = match &event.what {
            What::Guard { guard } => vec![(guard.name.to_string(), sentence(guard))],
            What::Removed { name } => vec![(name.to_string(), "is not configured any more".to_owned())],
            What::Agent { config, warnings } => vec![
                ("agent: configuration".to_owned(), or_fine(config)),
                ("agent: warning".to_owned(), or_fine(warnings)),
            ],
            What::Lost { changes } => {
                vec![("agent: lost".to_owned(), format!("{changes} changes were not read in time"))]
            }
            What::Other => vec![],
        };
        let mut screen = Screen::new(false).unwrapped();
        for (about, text) in told {
            let before = self.told.insert(about.clone(), text.clone());
            // That nothing is wrong with the agent is news only where something was.
            let news =
                if text.is_empty() { before.is_some_and(|b| !b.is_empty()) } else { before.as_ref() != Some(&text) };
            if news {
                let text = if text.is_empty() { "no more" } else { &text };
                screen.verbatim(0, &format!("{}  {about}: {text}", moment(event.time)));
            }
        }
        Ok(screen.finish())
    }
}

fn or_fine(problems: &[String]) -> String {
    problems.join("; ")
}

/// A guard's state in one line.
fn sentence(guard: &GuardStatus) -> String {
    let (gate, state) = (gate_word(guard), state_word(guard.state));
    let mut text = if gate.eq_ignore_ascii_case(state) { gate.to_owned() } else { format!("{gate} ({state})") };
    let reasons = guard.reasons.iter().chain(&guard.waits).map(reason_line);
    let progress = guard.progress.iter().map(|progress| progress.what.clone());
    let warnings = guard.warnings.iter().map(|warning| format!("warning: {}", reason_line(warning)));
    for more in reasons.chain(progress).chain(warnings) {
        text.push_str("; ");
        text.push_str(&more);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(name: Option<&GuardName>, output: Output) -> Lines<'_> {
        Lines { output, name, told: BTreeMap::new() }
    }

    fn event(number: u64, gate: &str, done: u64) -> String {
        format!(
            r#"{{"apiVersion":"volhold/v1","kind":"Event","number":{number},"time":"2026-11-30T03:12:4{number}Z","type":"guard","guard":
            {{"name":"main","mode":"enforce","gate":"{gate}","would_hold":false,"state":"examining","volume":null,"device":null,
            "progress":{{"what":"reading the device","done":{done},"total":9,"remaining_s":null}},
            "fs_uuid":null,"publish":"/x","data_dir":null,"reasons":[],"since":"2026-11-30T03:12:41Z"}}}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn a_person_is_told_a_change_once_and_no_progress() {
        let mut lines = lines(None, Output::Table);
        let mut of = |line: String| lines.of(&line).unwrap();
        assert_eq!(of(event(1, "waiting", 1)), "2026-11-30 03:12:41Z  main: waiting (examining); reading the device\n");
        assert_eq!(of(event(2, "waiting", 5)), "");
        assert!(of(event(3, "held", 5)).starts_with("2026-11-30 03:12:43Z  main: HELD (examining)"));
        let agent = |what: &str| {
            format!(r#"{{"time":"2026-11-30T03:12:41Z","number":4,"type":"agent","config":[],"warnings":[{what}]}}"#)
        };
        assert_eq!(of(agent("")), "", "nothing is wrong with it");
        assert_eq!(of(agent("\"a\\u001b[2Jb\"")), "2026-11-30 03:12:41Z  agent: warning: a\\x1b[2Jb\n");
        assert_eq!(of(agent("")), "2026-11-30 03:12:41Z  agent: warning: no more\n");
        assert_eq!(of(r#"{"time":"2026-11-30T03:12:41Z","number":5,"type":"of-tomorrow","x":1}"#.to_owned()), "");
    }

    #[test]
    fn a_script_is_told_all_of_it_as_it_came_but_only_of_the_guard_it_asks_for() {
        let (main, other): (GuardName, GuardName) = ("main".parse().unwrap(), "other".parse().unwrap());
        let said = event(1, "waiting", 1);
        for (name, heard) in [(None, true), (Some(&main), true), (Some(&other), false)] {
            let mut lines = lines(name, Output::Json);
            for _again in 0..2 {
                let text = lines.of(&said).unwrap();
                assert_eq!(text, if heard { format!("{said}\n") } else { String::new() });
            }
        }
        assert_eq!(lines(None, Output::Json).of("{}").unwrap_err().exit, Exit::Error);
    }
}
