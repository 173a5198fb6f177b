//! A manual page in man(7)'s language, with what the texts of this crate use for emphasis: backticks.

use roff::{Inline, Roff, bold, roman};

/// A page that is being written.
pub(super) struct Page {
    roff: Roff,
    /// A heading was the last thing: what follows it needs no break.
    headed: bool,
}

impl Page {
    /// `title` in capitals, `section` of the manual, and the line of NAME.
    pub(super) fn new(title: &str, section: &str, name: &str, about: &str) -> Self {
        let mut page = Page { roff: Roff::new(), headed: false };
        let (date, source) = (date(), format!("volhold {}", env!("CARGO_PKG_VERSION")));
        page.roff.control("TH", [title, section, date.as_str(), source.as_str(), "volhold"]);
        page.section("NAME");
        page.roff.text([roman(format!("{name} - {about}"))]);
        page
    }

    pub(super) fn section(&mut self, title: &str) {
        self.roff.control("SH", [title]);
        self.headed = true;
    }

    pub(super) fn subsection(&mut self, title: &str) {
        self.roff.control("SS", [title]);
        self.headed = true;
    }

    /// A paragraph; what stands in backticks becomes bold.
    pub(super) fn para(&mut self, text: &str) {
        if !self.headed {
            self.roff.control("PP", []);
        }
        self.line(text);
    }

    /// A term with its explanation.
    pub(super) fn term(&mut self, term: Vec<Inline>, text: &str) {
        self.roff.control("TP", []);
        self.roff.text(term);
        self.line(text);
    }

    /// Lines to be shown as they are.
    pub(super) fn verbatim(&mut self, text: &str) {
        self.roff.control("RS", ["4"]).control("nf", []);
        for line in text.lines() {
            self.roff.text([roman(line)]);
        }
        self.roff.control("fi", []).control("RE", []);
        self.headed = false;
    }

    pub(super) fn finish(self) -> String {
        self.roff.to_roff()
    }

    fn line(&mut self, text: &str) {
        // One sentence a line would be better roff; one line a paragraph reads the same.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        self.roff.text(marked(&text));
        self.headed = false;
    }
}

/// The day in the page's foot: that of the source where a build names it (`SOURCE_DATE_EPOCH`, seconds), so that two builds
/// give the same page; else today.
fn date() -> String {
    let named = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let day = named.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok()).unwrap_or_else(jiff::Timestamp::now);
    day.strftime("%Y-%m-%d").to_string()
}

/// Every second piece between backticks is to be typed.
pub(super) fn marked(text: &str) -> Vec<Inline> {
    let pieces = text.split('`').enumerate();
    pieces.map(|(at, piece)| if at % 2 == 1 { bold(piece) } else { roman(piece) }).collect()
}
