//! volhold-runbook(7): the page of every reason code, as `volhold explain` prints it.

use super::super::manual::{self, Names};
use super::page::Page;
use crate::model::ReasonCode;
use roff::{bold, roman};

pub(super) fn page() -> String {
    let mut page = Page::new("VOLHOLD-RUNBOOK", "7", "volhold-runbook", "why volhold holds, and what to do then");
    page.section("DESCRIPTION");
    page.para(
        "Every hold, refusal and warning has a reason code. `volhold explain NAME` prints the page of what holds a guard with \
         its own names filled in; `volhold explain --reason CODE` prints any. Choices are listed safest first.",
    );
    page.section("REASONS");
    let names = Names::default();
    for code in ReasonCode::ALL {
        let entry = manual::page(*code);
        page.subsection(code.as_str());
        page.para(&format!("({})", entry.severity.word()));
        for text in [entry.found, entry.means, entry.without] {
            page.para(&typed(&names.fill(text)));
        }
        for check in entry.check {
            page.para(&format!("Look: {}", typed(&names.fill(check))));
        }
        for choice in entry.choices {
            let safe = if choice.safe { "Safe. " } else { "" };
            page.term(
                vec![roman("Choose: "), bold(names.fill(choice.command))],
                &typed(&format!("{safe}{}", names.fill(choice.effect))),
            );
        }
    }
    page.section("DEFECTS");
    page.para("What `volhold verify` and `volhold inspect` name in a data dir of etcd.");
    for (code, text) in manual::etcd::DEFECTS {
        page.term(vec![bold(*code)], &typed(text));
    }
    page.section("FIELDS");
    page.para("What the JSON of a data dir says. `deep` is there with `volhold verify --deep` alone.");
    for (field, text) in manual::etcd::FIELDS {
        page.term(vec![bold(*field)], &typed(text));
    }
    page.section("WHAT OTHER TOOLS SAY");
    page.para(
        "Volumes that hold something, and what is said of them. Where `blkid -p` exits with 2 (nothing), most tools format. From \
         libblkid 2.39 on it also exits so where two signatures are found, or one whose checksum is off; `lsblk` shows nothing \
         at all where udev did not look. A read error ends in 2 too. The last line of each is part of volhold's refusal.",
    );
    page.verbatim(&manual::blind_spots::table());
    page.section("HEALTHY LIVES");
    page.para(
        "What a master goes through in its life, and whether volhold holds etcd on the way. Each of these is walked through the \
         rules by a test, from data that real versions of etcd left. NAME is the guard.",
    );
    page.verbatim(&manual::lives::table());
    page.section("SEE ALSO");
    page.para("volhold(8), volhold.toml(5)");
    page.finish()
}

/// These texts are written for a terminal: a lone backtick would set the rest in bold.
fn typed(text: &str) -> String {
    if text.matches('`').count().is_multiple_of(2) { text.to_owned() } else { text.replace('`', "") }
}
