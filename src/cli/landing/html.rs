//! A document of HTML in which nothing but this crate's own words can be markup.
//!
//! Elements, classes and links are `&'static str`: what was read from a disk, a tag or a configuration has no other way in
//! than [`Html::text`], which spells out what would act on a browser, as `Screen` does for terminals.

use crate::cli::text::clean;

/// A document that is being written.
#[derive(Debug, Default)]
pub struct Html {
    out: String,
    /// What is open, the innermost last.
    open: Vec<&'static str>,
}

impl Html {
    /// `head`: markup that stands before everything, as it is.
    pub fn new(head: &'static str) -> Self {
        Html { out: head.to_owned(), open: Vec::new() }
    }

    /// Opens an element; no class where that is empty.
    pub fn open(&mut self, element: &'static str, class: &'static str) {
        self.out.push('<');
        self.out.push_str(element);
        if !class.is_empty() {
            self.out.push_str(" class=\"");
            self.out.push_str(class);
            self.out.push('"');
        }
        self.out.push('>');
        self.open.push(element);
    }

    /// Closes the innermost one that is open.
    pub fn close(&mut self) {
        if let Some(element) = self.open.pop() {
            self.out.push_str("</");
            self.out.push_str(element);
            self.out.push_str(">\n");
        }
    }

    /// Text from anywhere.
    pub fn text(&mut self, text: &str) {
        for c in clean(text).chars() {
            match c {
                '&' => self.out.push_str("&amp;"),
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '"' => self.out.push_str("&quot;"),
                '\'' => self.out.push_str("&#39;"),
                c => self.out.push(c),
            }
        }
    }

    /// An element with nothing but text in it.
    pub fn put(&mut self, element: &'static str, class: &'static str, text: &str) {
        self.open(element, class);
        self.text(text);
        self.close();
    }

    /// A link to another page of this server.
    pub fn link(&mut self, to: &'static str, text: &'static str) {
        self.out.push_str("<a href=\"");
        self.out.push_str(to);
        self.out.push_str("\">");
        self.text(text);
        self.out.push_str("</a>\n");
    }

    /// The finished document; what is open is closed.
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_a_disk_is_never_markup() {
        let mut html = Html::new("");
        html.put("p", "x", "</p><script>alert(\"1\")</script>&lt;'\u{202e}\0\n\x1b[2J");
        assert_eq!(
            html.finish(),
            "<p class=\"x\">&lt;/p&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;lt;&#39;\\u{202e}\\x00\\x0a\\x1b[2J</p>\n"
        );
    }

    #[test]
    fn what_is_open_is_closed_in_order() {
        let mut html = Html::new("<!doctype html>");
        html.open("main", "");
        html.open("p", "");
        html.text("a");
        assert_eq!(html.finish(), "<!doctype html><main><p>a</p>\n</main>\n");
        let mut html = Html::new("");
        html.close();
        html.link("v1/status", "status");
        assert_eq!(html.finish(), "<a href=\"v1/status\">status</a>\n");
    }
}
