//! What the agent tells, as the journal's own messages: with the guard, the event and the reason as fields, and with one
//! `MESSAGE_ID` for each reason, by which `journalctl -x` prints its page of the manual.
//!
//! The protocol is systemd's (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>): one datagram a message, and in it a name, a
//! length and a value for each field.

use super::manual;
use crate::model::ReasonCode;
use std::fmt::Write as _;
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Where journald listens (systemd v252 `src/journal/journald-native.c`).
const SOCKET: &str = "/run/systemd/journal/socket";

/// A datagram takes more; a line that is longer helps nobody.
const LONGEST: usize = 32 << 10;

/// Sends events to journald.
pub struct Journal {
    socket: UnixDatagram,
}

impl Journal {
    /// `None`: standard error does not end in the journal, or nobody listens there. Then lines go to standard error.
    pub fn of_this_unit() -> Option<Self> {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let stderr = std::fs::metadata("/proc/self/fd/2").ok()?;
        is_stream(&stream, stderr.st_dev(), stderr.st_ino()).then(|| Self::at(Path::new(SOCKET)))?
    }

    fn at(path: &Path) -> Option<Self> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(path).ok()?;
        // A journald that does not read must not make a guard wait.
        socket.set_nonblocking(true).ok()?;
        Some(Journal { socket })
    }
}

/// `JOURNAL_STREAM` is inherited by children whose output went elsewhere: device and inode tell (systemd.exec(5)).
fn is_stream(said: &str, dev: u64, inode: u64) -> bool {
    said.split_once(':').is_some_and(|(d, i)| d.parse() == Ok(dev) && i.parse() == Ok(inode))
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut told = Told::default();
        event.record(&mut told);
        let datagram = told.datagram(*event.metadata().level(), event.metadata().target());
        if self.socket.send(&datagram).is_err() {
            // It ends in the journal as well, without fields, or waits there as any program does.
            eprintln!("{}", told.line());
        }
    }
}

/// The fields of one event.
#[derive(Default)]
struct Told {
    message: String,
    guard: Option<String>,
    code: Option<String>,
    /// In the order of the event; without what has a place of its own.
    others: Vec<(&'static str, String)>,
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.add(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value.to_owned());
    }
}

impl Told {
    fn add(&mut self, name: &'static str, value: String) {
        match name {
            "message" => self.message = value,
            "guard" => self.guard = Some(value),
            "code" => self.code = Some(value),
            _ => self.others.push((name, value)),
        }
    }

    /// For who reads the journal without fields: the guard first, and behind the message what an error said.
    fn line(&self) -> String {
        let mut line = self.guard.as_ref().map_or_else(String::new, |guard| format!("{guard}: "));
        line.push_str(&self.message);
        for (name, value) in self.others.iter().filter(|(name, _)| !matches!(*name, "event" | "codes")) {
            let _written = write!(line, ", {name}: {value}");
        }
        printable(&line)
    }

    fn datagram(&self, level: Level, target: &str) -> Vec<u8> {
        let mut datagram = Vec::new();
        put(&mut datagram, "MESSAGE", &self.line());
        put(&mut datagram, "PRIORITY", priority(level));
        put(&mut datagram, "SYSLOG_IDENTIFIER", "volhold");
        put(&mut datagram, "VOLHOLD_TARGET", target);
        if let Some(guard) = &self.guard {
            put(&mut datagram, "VOLHOLD_GUARD", guard);
        }
        if let Some(code) = &self.code {
            put(&mut datagram, "VOLHOLD_REASON", code);
            if let Some(code) = ReasonCode::ALL.iter().find(|known| known.as_str() == code) {
                put(&mut datagram, "MESSAGE_ID", &manual::message_id(*code));
            }
        }
        for (name, value) in &self.others {
            put(&mut datagram, &format!("VOLHOLD_{}", name.replace('.', "_").to_ascii_uppercase()), value);
        }
        datagram
    }
}

/// As syslog(3) counts.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

/// One line without control characters: of a message that holds any, `journalctl` shows the length alone. They may come from a
/// volume.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() >= LONGEST {
            out.push('…');
            break;
        }
        match c {
            '\n' => out.push(' '),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// With its length in front, as the protocol asks for where a value may hold a line's end.
fn put(datagram: &mut Vec<u8>, name: &str, value: &str) {
    let value = printable(value);
    datagram.extend_from_slice(name.as_bytes());
    datagram.push(b'\n');
    datagram.extend_from_slice(&(value.len() as u64).to_le_bytes());
    datagram.extend_from_slice(value.as_bytes());
    datagram.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt;

    /// What journald gets of what `tell` tells.
    fn fields(tell: impl FnOnce()) -> Vec<(String, String)> {
        let dir = tempfile::tempdir().unwrap();
        let journald = UnixDatagram::bind(dir.path().join("socket")).unwrap();
        let journal = Journal::at(&dir.path().join("socket")).expect("somebody listens");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(journal), tell);
        journald.set_nonblocking(true).unwrap();
        let mut buffer = vec![0; 1 << 20];
        let length = journald.recv(&mut buffer).expect("a datagram");
        let mut rest = &buffer[..length];
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n').expect("a name ends");
            let name = String::from_utf8(rest[..end].to_vec()).unwrap();
            let size = u64::from_le_bytes(rest[end + 1..end + 9].try_into().unwrap()) as usize;
            let value = String::from_utf8(rest[end + 9..end + 9 + size].to_vec()).unwrap();
            assert_eq!(rest[end + 9 + size], b'\n');
            rest = &rest[end + 10 + size..];
            fields.push((name, value));
        }
        fields
    }

    fn of<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let mut values = fields.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "{name} twice");
        value
    }

    #[test]
    fn a_hold_is_sent_with_its_guard_its_reason_and_the_id_of_its_page() {
        let code = ReasonCode::DataVanished;
        let told = fields(|| {
            tracing::error!(event = "guard.held", guard = %"main", code = code.as_str(), codes = ?["data-vanished"], "held: gone");
        });
        assert_eq!(of(&told, "MESSAGE"), Some("main: held: gone"));
        assert_eq!(of(&told, "PRIORITY"), Some("3"));
        assert_eq!(of(&told, "SYSLOG_IDENTIFIER"), Some("volhold"));
        assert_eq!(of(&told, "VOLHOLD_GUARD"), Some("main"));
        assert_eq!(of(&told, "VOLHOLD_EVENT"), Some("guard.held"));
        assert_eq!(of(&told, "VOLHOLD_REASON"), Some("data-vanished"));
        assert_eq!(of(&told, "VOLHOLD_CODES"), Some("[\"data-vanished\"]"));
        assert_eq!(of(&told, "MESSAGE_ID"), Some(manual::message_id(code).as_str()));
    }

    #[test]
    fn what_has_no_reason_has_no_id_and_what_an_error_said_is_in_its_line() {
        let told = fields(|| tracing::warn!(event = "x", error = "no space", "it was not kept"));
        assert_eq!(of(&told, "MESSAGE"), Some("it was not kept, error: no space"));
        assert_eq!(
            (of(&told, "MESSAGE_ID"), of(&told, "VOLHOLD_GUARD"), of(&told, "PRIORITY")),
            (None, None, Some("4"))
        );
        let unknown = fields(|| tracing::info!(code = "of-tomorrow", "new"));
        assert_eq!((of(&unknown, "MESSAGE_ID"), of(&unknown, "VOLHOLD_REASON")), (None, Some("of-tomorrow")));
    }

    #[test]
    fn a_hostile_name_ends_no_field_and_hides_no_message() {
        let name = "x\nMESSAGE_ID=1\u{7}\u{1b}[2J";
        let told = fields(|| tracing::error!(guard = %"main", file = name, "`{name}` is odd"));
        let message = of(&told, "MESSAGE").unwrap();
        assert!(message.starts_with("main: `x MESSAGE_ID=1\\u{7}\\u{1b}[2J` is odd"), "{message}");
        assert_eq!(of(&told, "MESSAGE_ID"), None);
        let long = "é".repeat(1 << 20);
        let told = fields(|| tracing::error!("{long}"));
        assert!(of(&told, "MESSAGE").unwrap().len() < LONGEST + 8);
    }

    #[test]
    fn only_a_standard_error_that_is_the_journals_own_is_replaced_by_it() {
        assert!(is_stream("9:4711", 9, 4711));
        for (said, dev, inode) in
            [("9:4711", 9, 4712), ("9:4711", 8, 4711), ("9", 9, 9), ("", 0, 0), ("9:4711:1", 9, 4711)]
        {
            assert!(!is_stream(said, dev, inode), "{said}");
        }
    }
}
