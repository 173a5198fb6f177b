//! What `journalctl -x` adds to messages of volhold: the page of each reason, by its `MESSAGE_ID`. Of systemd's format
//! (<https://systemd.io/CATALOG/>): a header, subject and remarks, the text; `@FIELD@` is a field of the message.

use super::super::manual::{self, Names};
use super::super::text::wrap;
use crate::model::ReasonCode;

const WIDTH: usize = 78;

/// What `systemd/volhold-bypass` writes, a script that works where this program does not.
const BYPASSED: &str = "\
-- 5d1f0f0b7c0e4d0c9b4f3f2a6f0d8e21
Subject: The gate of the guard @VOLHOLD_GUARD@ was opened by hand
Defined-By: volhold
Support: https://example.com/volhold

A person ran volhold-bypass: the volume was mounted by hand and the gate opened,
without volhold having looked at the volume or at the data on it.

Until the next boot `volhold gate check` and `volhold wait` let this guard pass,
and `volhold status` says so. Once volhold works again:

    systemctl start volhold
    volhold explain @VOLHOLD_GUARD@

and, when it finds no fault, `rm /run/volhold/bypass/@VOLHOLD_GUARD@`.
";

pub(super) fn text() -> String {
    let mut catalog = String::from(
        "# What `journalctl -x` adds to messages of volhold. Of systemd's format: a header, subject and remarks, the text.\n\n",
    );
    catalog.push_str(BYPASSED);
    for code in ReasonCode::ALL {
        catalog.push('\n');
        catalog.push_str(&entry(*code));
    }
    catalog
}

fn entry(code: ReasonCode) -> String {
    let page = manual::page(code);
    let names = Names { guard: Some("@VOLHOLD_GUARD@".to_owned()), ..Names::default() };
    let mut lines = vec![
        format!("-- {}", manual::message_id(code)),
        format!("Subject: Guard @VOLHOLD_GUARD@, {code}: {}", page.cause),
        "Defined-By: volhold".to_owned(),
        "Support: https://example.com/volhold".to_owned(),
        "Documentation: man:volhold-runbook(7)".to_owned(),
    ];
    for text in [page.found, page.means, page.without] {
        lines.push(String::new());
        lines.extend(wrap(&names.fill(text), WIDTH));
    }
    lines.extend([String::new(), "To look at:".to_owned()]);
    lines.extend(page.check.iter().flat_map(|check| hanging(&names.fill(check))));
    lines.extend([String::new(), "To choose from, safest first:".to_owned()]);
    for choice in page.choices {
        lines.push(format!("  * {}", names.fill(choice.command)));
        lines.extend(
            wrap(&names.fill(choice.effect), WIDTH.saturating_sub(6)).iter().map(|line| format!("      {line}")),
        );
    }
    lines.extend([String::new(), "`volhold explain @VOLHOLD_GUARD@` says it with this guard's own names.".to_owned()]);
    lines.join("\n") + "\n"
}

fn hanging(text: &str) -> Vec<String> {
    let wrapped = wrap(text, WIDTH.saturating_sub(4));
    wrapped.iter().enumerate().map(|(at, line)| format!("{}{line}", if at == 0 { "  - " } else { "    " })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn the_catalog_that_is_shipped_is_made_of_the_manual() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/catalog/volhold.catalog");
        let shipped = std::fs::read_to_string(&path).unwrap();
        assert!(shipped == text(), "make it anew: volhold reference volhold.catalog >systemd/catalog/volhold.catalog");
    }

    #[test]
    fn every_reason_has_an_entry_and_an_id_of_its_own() {
        let ids: BTreeSet<String> = ReasonCode::ALL.iter().map(|code| manual::message_id(*code)).collect();
        assert_eq!(ids.len(), ReasonCode::ALL.len());
        let catalog = text();
        for code in ReasonCode::ALL {
            let id = manual::message_id(*code);
            assert!(
                id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)),
                "{id}"
            );
            let entry = catalog.split("\n-- ").find(|entry| entry.starts_with(&id)).expect("an entry");
            assert!(entry.contains(&format!(", {code}: ")) && entry.contains("safest first"), "{entry}");
        }
    }

    /// Scripts that watch for a message know it by this number.
    #[test]
    fn an_id_never_changes() {
        assert_eq!(manual::message_id(ReasonCode::DataVanished), "52726ae609f9f67da40a55259d22d5eb");
    }

    #[test]
    fn nothing_in_a_page_is_taken_for_a_field_or_for_the_next_entry() {
        for line in text().lines() {
            let fields: Vec<&str> = line.split('@').skip(1).step_by(2).collect();
            assert!(fields.iter().all(|field| *field == "VOLHOLD_GUARD"), "{line}");
            let begins = line.starts_with("-- ");
            assert!(!begins || line.len() == 35, "{line}");
        }
    }
}
