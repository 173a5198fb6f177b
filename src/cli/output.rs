//! Getting a page or a document out, and ending with one exit code.
//!
//! Results go to standard output, everything else to standard error. A reader that goes away (`| head -1`) ends the
//! printing and is no error.

use super::args::Output;
use super::exit::Exit;
use super::text::{Screen, clean_json};
use crate::agent::standing::{Standing, standing};
use crate::config::{Config, Sources};
use crate::record::boot_id;
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// What to do where the system has refused.
pub const AS_ROOT: &str = "this needs root: run it again with sudo";

/// What every verb is given.
#[derive(Debug)]
pub struct Context {
    pub sources: Sources,
    pub output: Output,
}

/// Why a verb could not do its work: how it ends, what happened, and what to do now.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    /// One line for each cause below.
    pub causes: Vec<String>,
    pub advice: Option<String>,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure { exit, message: message.into(), causes: Vec::new(), advice: None }
    }

    pub fn because(mut self, error: &dyn std::error::Error) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            self.causes.push(error.to_string());
            next = error.source();
        }
        self
    }

    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Prints it to standard error.
    pub fn report(&self) -> Exit {
        tell(&format!("volhold: {}", self.message), self.causes.iter().chain(&self.advice));
        self.exit
    }
}

/// An error of the operating system, with the exit code that it asks for.
pub fn io_failure(what: impl Into<String>, error: &std::io::Error) -> Failure {
    let exit = match error.kind() {
        std::io::ErrorKind::PermissionDenied => Exit::NoPermission,
        std::io::ErrorKind::NotFound => Exit::NoMatch,
        _ => Exit::Error,
    };
    let failure = Failure::new(exit, what).because(error);
    if exit == Exit::NoPermission { failure.advise(AS_ROOT) } else { failure }
}

impl Context {
    /// The configuration that counts. Where what is written cannot be used, that is said on standard error.
    pub fn config(&self) -> Result<Config, Failure> {
        let standing = self.standing()?;
        let problems = standing.problems();
        if !problems.is_empty() {
            tell("volhold: the configuration cannot be used", &problems);
        }
        Ok(standing.config)
    }

    /// The same, with where it was read, and without a word.
    pub fn standing(&self) -> Result<Standing, Failure> {
        let boot_id = boot_id().map_err(|e| Failure::new(Exit::Error, "cannot tell which boot this is").because(&e))?;
        standing(&self.sources, &boot_id).map_err(|error| super::config::unusable(&error))
    }

    /// A page for standard output, in colour where a terminal will show it.
    pub fn screen(&self) -> Screen {
        Screen::new(colour(std::io::stdout().is_terminal()))
    }

    /// Prints a document, or the page that `draw` makes of it.
    pub fn print<T: Serialize>(&self, document: &T, draw: impl FnOnce(&mut Screen)) -> Result<(), Failure> {
        match self.output {
            Output::Json => {
                let text = serde_json::to_string_pretty(document)
                    .map_err(|e| Failure::new(Exit::Error, "the answer cannot be written as JSON").because(&e))?;
                put(&format!("{}\n", clean_json(&text)))
            }
            Output::Table => {
                let mut screen = self.screen();
                draw(&mut screen);
                put(&screen.finish())
            }
        }
    }
}

/// Writes to standard output.
pub fn put(text: &str) -> Result<(), Failure> {
    put_unless_gone(text).map(|_read| ())
}

/// The same. `false`: nobody reads it any more, which ends what goes on writing.
pub fn put_unless_gone(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(io_failure("cannot write the answer", &e)),
    }
}

/// Says something on standard error: a sentence, and what belongs to it, indented below. On a terminal it is wrapped; in a
/// journal or a pipe each stays one line, which is what is searched.
pub fn tell<T: AsRef<str>>(first: &str, more: impl IntoIterator<Item = T>) {
    let mut screen = Screen::new(false);
    if !std::io::stderr().is_terminal() {
        screen = screen.unwrapped();
    }
    // What does not fit goes on below, further in than what follows.
    screen.hanging_words(0, 4, first);
    for text in more {
        screen.hanging_words(2, 4, text.as_ref());
    }
    diagnose(&screen.finish());
}

/// Writes to standard error. Where that is gone, nobody is left to be told.
pub fn diagnose(text: &str) {
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
}

/// Colour only on a terminal that can, and never where `NO_COLOR` is set (https://no-color.org).
fn colour(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_some_and(|t| t != "dumb")
}
