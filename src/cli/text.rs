//! Text for a person: 80 columns, no control characters from disk, colour only where a terminal shows it.
//!
//! Everything that a verb prints as a table or page goes through [`Screen`], which cleans each piece of text itself, so
//! that no verb can forget it: names on a damaged or hostile volume must not drive somebody's terminal.

use crate::model::Time;
pub use crate::model::harmless::{clean, clean_json};

/// Columns of a screen.
pub const WIDTH: usize = 80;

/// How a piece of text is emphasised. Never the only carrier of a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Bad,
    Good,
    Warn,
    Head,
}

/// A page that is being written.
#[derive(Debug)]
pub struct Screen {
    out: String,
    colour: bool,
    width: usize,
}

impl Screen {
    pub fn new(colour: bool) -> Self {
        Screen { out: String::new(), colour, width: WIDTH }
    }

    /// For whoever reads line by line: nothing is wrapped from here on.
    pub fn unwrapped(self) -> Self {
        Screen { width: usize::MAX, ..self }
    }

    /// The finished page.
    pub fn finish(self) -> String {
        self.out
    }

    pub fn blank(&mut self) {
        self.out.push('\n');
    }

    /// Text wrapped to the width, all lines indented alike.
    pub fn para(&mut self, indent: usize, text: &str) {
        self.hanging(&" ".repeat(indent), indent, text);
    }

    /// A paragraph in one tone.
    pub fn tone(&mut self, tone: Tone, text: &str) {
        for line in wrap(&clean(text), self.width) {
            let line = self.painted(tone, &line);
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    /// Text whose first line is indented by `first` and all further ones by `indent`.
    pub fn hanging_words(&mut self, first: usize, indent: usize, text: &str) {
        let text = clean(text);
        let mut lines =
            wrap_from(&text, self.width.saturating_sub(indent), self.width.saturating_sub(first)).into_iter();
        let begin = lines.next().unwrap_or_default();
        self.push_line(&format!("{}{begin}", " ".repeat(first)));
        lines.for_each(|line| self.push_line(&format!("{}{line}", " ".repeat(indent))));
    }

    /// `lead` on the first line, further lines indented by `indent`.
    pub fn hanging(&mut self, lead: &str, indent: usize, text: &str) {
        let lead = clean(lead);
        let lead = lead.trim_end();
        let pad = " ".repeat(indent);
        let text = clean(text);
        let mut lines = wrap(&text, self.width.saturating_sub(indent).max(20)).into_iter();
        if lead.chars().count() >= indent && !lead.is_empty() {
            self.push_line(lead);
            lines.next().into_iter().chain(lines).for_each(|line| self.push_line(&format!("{pad}{line}")));
            return;
        }
        let first = lines.next().unwrap_or_default();
        self.push_line(&format!("{lead:indent$}{first}"));
        for line in lines {
            self.push_line(&format!("{pad}{line}"));
        }
    }

    /// One line as it is (cleaned, never wrapped): a command that a person copies.
    pub fn verbatim(&mut self, indent: usize, text: &str) {
        let line = format!("{}{}", " ".repeat(indent), clean(text));
        self.push_line(&line);
    }

    /// A line of cells with least widths, the last without padding. A cell that is too long pushes the rest.
    pub fn cells(&mut self, tone: Option<Tone>, cells: &[(usize, &str)]) {
        let mut line = String::new();
        for (width, text) in cells {
            let text = clean(text);
            line.push_str(&format!("{text:width$}", width = *width));
            if *width > 0 && text.chars().count() >= *width {
                line.push(' ');
            }
        }
        let line = line.trim_end();
        let line = tone.map_or_else(|| line.to_owned(), |tone| self.painted(tone, line));
        self.out.push_str(&line);
        self.out.push('\n');
    }

    fn push_line(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    fn painted(&self, tone: Tone, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Bad => "1;31",
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Head => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Longest word that is left whole on a line too narrow for it: a path, a device's name, a digest, which nobody could copy in
/// pieces. Whatever is longer comes from a hostile volume.
const UNBROKEN: usize = 255;

/// Breaks at spaces; a word longer than the width has its line for itself, and one without end is cut. Runs of spaces inside
/// a line are kept, so that columns stay.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    wrap_from(text, width, width)
}

/// The same, with another width for the first line.
fn wrap_from(text: &str, others: usize, first: usize) -> Vec<String> {
    let mut width = first;
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0_usize;
    for piece in text.split_inclusive(' ') {
        let word = piece.trim_end_matches(' ');
        if used > 0 && used.saturating_add(word.chars().count()) > width {
            lines.push(line.trim_end().to_owned());
            line.clear();
            (used, width) = (0, others);
        }
        let whole = word.chars().count() <= UNBROKEN;
        for c in piece.chars() {
            if used >= width && c != ' ' && !whole {
                lines.push(line.trim_end().to_owned());
                line.clear();
                (used, width) = (0, others);
            }
            if used < width || (whole && c != ' ') {
                line.push(c);
                used = used.saturating_add(1);
            }
        }
    }
    if !line.trim_end().is_empty() || lines.is_empty() {
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// Bytes as an operator reads them: `20 GiB`, `1.5 MiB`, `512 B`.
pub fn bytes(n: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, size) in UNITS {
        if n >= size {
            let tenths = u128::from(n) * 10 / u128::from(size);
            return if tenths % 10 == 0 || tenths >= 1000 {
                format!("{} {unit}", tenths / 10)
            } else {
                format!("{}.{} {unit}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{n} B")
}

/// A span in seconds, the two largest units: `6m 04s`, `2h 10m`, `3d 4h`.
pub fn span(seconds: i64) -> String {
    let s = seconds.max(0);
    let (days, hours, minutes, rest) = (s / 86_400, s % 86_400 / 3_600, s % 3_600 / 60, s % 60);
    if days > 0 {
        format!("{days}d {hours}h")
    } else if hours > 0 {
        format!("{hours}h {minutes:02}m")
    } else if minutes > 0 {
        format!("{minutes}m {rest:02}s")
    } else {
        format!("{rest}s")
    }
}

/// `2026-11-30 03:12:41Z (6m 04s)`.
pub fn since(then: Time, now: Time) -> String {
    format!("{} ({})", moment(then), span(now.unix().saturating_sub(then.unix())))
}

/// `2026-11-30 03:12:41Z`.
pub fn moment(time: Time) -> String {
    time.to_string().replacen('T', " ", 1)
}

/// A count in groups of thousands: `4,182,377`.
pub fn count(n: impl std::fmt::Display) -> String {
    let digits = n.to_string();
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
    let mut out = String::from(sign);
    let len = digits.len();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (len - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wrapped_line_is_wider_than_asked_and_no_letter_is_lost() {
        let text = format!("short words and then one {} that nobody can break, twice", "x".repeat(1900));
        let lines = wrap(&text, 33);
        assert!(lines.iter().all(|l| l.chars().count() <= 33), "{lines:?}");
        let squeeze = |s: &str| s.chars().filter(|c| *c != ' ').collect::<String>();
        assert_eq!(squeeze(&lines.concat()), squeeze(&text));
        assert_eq!(wrap("", 10), [""]);
    }

    #[test]
    fn a_path_that_somebody_has_to_copy_is_not_cut() {
        let path = format!("/dev/disk/by-id/{}", "x".repeat(60));
        let lines = wrap(&format!("the device {path} is not there"), 40);
        assert_eq!(lines, ["the device", path.as_str(), "is not there"]);
    }

    #[test]
    fn what_is_told_line_by_line_is_not_wrapped() {
        let text = "many short words ".repeat(20);
        let mut page = Screen::new(false);
        page.hanging_words(2, 4, &text);
        let lines: Vec<String> = page.finish().lines().map(str::to_owned).collect();
        assert!(lines.len() > 4 && lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        assert!(lines[0].starts_with("  many") && lines[1..].iter().all(|line| line.starts_with("    ")), "{lines:#?}");
        let mut page = Screen::new(false).unwrapped();
        page.hanging_words(2, 4, &text);
        assert_eq!(page.finish(), format!("  {}\n", text.trim_end()));
    }

    #[test]
    fn numbers_read_as_operators_say_them() {
        assert_eq!([bytes(512), bytes(1 << 30), bytes(20 << 30)], ["512 B", "1 GiB", "20 GiB"]);
        assert_eq!([bytes(1536 << 10), bytes(u64::MAX)], ["1.5 MiB", "16777215 TiB"]);
        assert_eq!([span(364), span(0), span(7800), span(-5)], ["6m 04s", "0s", "2h 10m", "0s"]);
        assert_eq!([count(4_182_377), count(-1234), count(999)], ["4,182,377", "-1,234", "999"]);
    }

    #[test]
    fn a_screen_without_colour_has_no_escape() {
        let mut page = Screen::new(false);
        page.tone(Tone::Bad, "held\x1b[31m");
        page.cells(Some(Tone::Head), &[(10, "a"), (0, "b")]);
        assert!(!page.finish().contains('\x1b'));
        let mut page = Screen::new(true);
        page.tone(Tone::Bad, "held");
        assert_eq!(page.finish(), "\x1b[1;31mheld\x1b[0m\n");
    }
}
