//! `volhold status --watch`: the same screen, drawn again whenever something changes.
//!
//! It follows the status file and not the agent's event stream: the agent writes the file anew, by rename, at every change
//! that the stream tells, so inotify hears of the same things, and the screen needs neither a socket nor a place at it, and
//! stands on while the agent is gone. That it goes is told by a descriptor of its process, that it is back by its first
//! status. Every [`LOOK_EVERY`] it looks anyway.

use super::{document, draw, exit, gate_failure, read};
use crate::cli::args::Output;
use crate::cli::exit::Exit;
use crate::cli::output::{Context, Failure, put_unless_gone};
use crate::cli::text::{Screen, clean_json, moment};
use crate::cli::vigil::{Vigil, Woken};
use crate::gate::bell::{Bell, LOOK_EVERY};
use crate::model::{Status, StatusDocument, Time};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::IsTerminal;
use std::os::fd::{AsFd, OwnedFd};

/// What a terminal is asked to do (ECMA-48, and xterm's alternate screen): a page is drawn over the last one, without the
/// blink of an empty screen in between, and what stood there before comes back in the end.
const TO_OTHER_SCREEN: &str = "\x1b[?1049h";
const BACK: &str = "\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_REST_OF_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

/// Ends with the exit code of what was shown last.
pub fn run(context: &Context, timings: bool) -> Result<Exit, Failure> {
    let mut config = context.config()?;
    let run = config.paths.run.clone();
    let vigil = Vigil::begin()?;
    let bell = Bell::new(&run).map_err(|error| gate_failure("cannot watch", &error))?;
    let mut display = Display::new(context, timings);
    loop {
        // Watch first, then look: what changes in between rings.
        bell.arm(&run).map_err(|error| gate_failure("cannot watch", &error))?;
        bell.swallow().map_err(|error| gate_failure("cannot watch", &error))?;
        // Guards come and go with a reload; what is wrong with what is written stands in the status.
        if let Ok(standing) = context.standing()
            && standing.config.paths.run == run
        {
            config = standing.config;
        }
        let status = read(&config)?;
        // Before it is asked whether it lives: if it ends in between, its end is told.
        let process = status.as_ref().and_then(process_of);
        let shown = document(&config, status);
        if !display.show(&shown)? {
            return Ok(exit(&shown));
        }
        let agent = process.as_ref().filter(|_| shown.agent.running).map(AsFd::as_fd);
        let calls: Vec<_> = std::iter::once(bell.as_fd()).chain(agent).collect();
        match vigil.wait(&calls, LOOK_EVERY)? {
            Woken::Call | Woken::Silence => {}
            Woken::End => {
                display.leave(&shown)?;
                return Ok(exit(&shown));
            }
        }
    }
}

/// A descriptor that becomes readable when the agent ends. `None`: there is no such process, or an old kernel (before 5.3).
fn process_of(status: &Status) -> Option<OwnedFd> {
    let pid = i32::try_from(status.pid).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Where it is shown.
struct Display<'c> {
    context: &'c Context,
    timings: bool,
    /// A terminal that knows how to be drawn over.
    terminal: bool,
    /// The terminal is on its other screen.
    away: bool,
    /// What was told last, without the time that has passed since.
    told: Option<String>,
}

impl<'c> Display<'c> {
    fn new(context: &'c Context, timings: bool) -> Self {
        let knows = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        let terminal = context.output == Output::Table && std::io::stdout().is_terminal() && knows;
        Display { context, timings, terminal, away: false, told: None }
    }

    /// `false`: nobody reads it any more. Elsewhere than on a terminal only what is new is shown: one document a line, or
    /// one page after the other with an empty line between.
    fn show(&mut self, document: &StatusDocument) -> Result<bool, Failure> {
        let line = serde_json::to_string(document)
            .map_err(|e| Failure::new(Exit::Error, "the answer cannot be written as JSON").because(&e))?;
        if self.terminal {
            let enter = if self.away { "" } else { TO_OTHER_SCREEN };
            self.away = true;
            return put_unless_gone(&format!("{enter}{}", frame(&self.page(document), size())));
        }
        if self.told.as_ref() == Some(&line) {
            return Ok(true);
        }
        let text = match self.context.output {
            Output::Json => format!("{}\n", clean_json(&line)),
            Output::Table if self.told.is_none() => self.page(document),
            Output::Table => format!("\n{}", self.page(document)),
        };
        self.told = Some(line);
        put_unless_gone(&text)
    }

    fn page(&self, document: &StatusDocument) -> String {
        let mut screen = self.context.screen();
        let now = Time::now();
        screen.para(0, &format!("As of {}.{}", moment(now), if self.terminal { " Ctrl-C ends this." } else { "" }));
        draw(&mut screen, document, self.timings, now);
        screen.finish()
    }

    /// Leaves the last page behind, where there was a screen that goes away.
    fn leave(&mut self, document: &StatusDocument) -> Result<(), Failure> {
        if std::mem::take(&mut self.away) {
            let mut screen: Screen = self.context.screen();
            draw(&mut screen, document, self.timings, Time::now());
            put_unless_gone(&format!("{BACK}{}", screen.finish()))?;
        }
        Ok(())
    }
}

impl Drop for Display<'_> {
    /// Also where it ends with an error.
    fn drop(&mut self) {
        if self.away {
            let _gone = put_unless_gone(BACK);
        }
    }
}

/// Rows and columns of the terminal; of one that does not say, those of a VT100.
fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_row > 1 && size.ws_col > 1 => (size.ws_row.into(), size.ws_col.into()),
        Ok(_) | Err(_) => (24, 80),
    }
}

/// The page as it is drawn over the last one. What does not fit is counted, not scrolled.
fn frame(page: &str, (rows, columns): (usize, usize)) -> String {
    let mut left = rows.saturating_sub(1);
    let lines: Vec<&str> = page.lines().collect();
    let mut out = HOME.to_owned();
    for (at, line) in lines.iter().enumerate() {
        let needs = width(line).div_ceil(columns.max(1)).max(1);
        let more = lines.len().saturating_sub(at);
        // The last row is for what is not shown.
        if needs > left || (needs == left && more > 1) {
            out.push_str(&format!("… {more} more lines, without --watch{CLEAR_REST_OF_LINE}\n"));
            break;
        }
        left = left.saturating_sub(needs);
        out.push_str(line);
        out.push_str(CLEAR_REST_OF_LINE);
        out.push('\n');
    }
    out.push_str(CLEAR_REST);
    out
}

/// Columns of a line, without the colours of [`Screen`], which are all of the form `ESC [ … m`.
fn width(line: &str) -> usize {
    let mut pieces = line.split('\x1b');
    let first = pieces.next().map_or(0, |piece| piece.chars().count());
    pieces.fold(first, |sum, piece| {
        let seen = piece.split_once('m').map_or(piece, |(_colour, seen)| seen);
        sum.saturating_add(seen.chars().count())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_too_long_for_the_terminal_is_cut_and_says_so() {
        let page = "one\ntwo\nthree\nfour\n";
        assert_eq!(frame(page, (24, 80)), "\x1b[Hone\x1b[K\ntwo\x1b[K\nthree\x1b[K\nfour\x1b[K\n\x1b[J");
        assert_eq!(frame(page, (5, 80)), frame(page, (24, 80)), "it just fits");
        assert_eq!(frame(page, (4, 80)), "\x1b[Hone\x1b[K\ntwo\x1b[K\n… 2 more lines, without --watch\x1b[K\n\x1b[J");
        // A line that the terminal breaks takes two rows; one that only a colour makes longer takes one.
        let wide = "\x1b[1;31m12345678\x1b[0m\n123456789\nx\n";
        assert_eq!(
            frame(wide, (4, 8)),
            "\x1b[H\x1b[1;31m12345678\x1b[0m\x1b[K\n… 2 more lines, without --watch\x1b[K\n\x1b[J"
        );
        for rows in 0..6 {
            let drawn = frame(page, (rows, 80)).matches('\n').count();
            assert!(drawn <= rows.saturating_sub(1).max(1), "{rows}: {drawn}");
        }
    }
}
