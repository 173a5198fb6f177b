//! Text that came from anywhere, made harmless for terminals and logs. Names on a volume are written by whoever wrote the
//! volume.

/// Characters that act on a terminal or on the reading order instead of being read.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Text from anywhere, made harmless: control characters, direction marks and invisible ones become `\xNN` or `\u{…}`.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !acts(c) {
            out.push(c);
        } else if (c as u32) < 0x100 {
            out.push_str(&format!("\\x{:02x}", c as u32));
        } else {
            out.push_str(&format!("\\u{{{:x}}}", c as u32));
        }
    }
    out
}

/// A JSON document, made harmless likewise. Between the strings of a document only line feeds and spaces stand, so each
/// other such character is inside a string, where JSON allows the escape.
pub fn clean_json(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for c in document.chars() {
        if c == '\n' || !acts(c) {
            out.push(c);
        } else {
            out.push_str(&format!("\\u{:04x}", c as u32));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drives_a_terminal_is_spelled_out() {
        assert_eq!(clean("a\x1b[2Jb\u{9b}31m\u{202e}c\u{7f}\n"), "a\\x1b[2Jb\\x9b31m\\u{202e}c\\x7f\\x0a");
        assert_eq!(clean("Größe ●"), "Größe ●");
    }

    #[test]
    fn a_cleaned_document_is_the_same_document() {
        let value = serde_json::json!({"name": "a\u{9b}31m\u{7f}\u{202e}\u{1b}x", "list": [1, 2]});
        let text = clean_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(text.chars().all(|c| c == '\n' || !acts(c)), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
