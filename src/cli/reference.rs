//! What a package ships beside the program, made from the same definitions that the program runs on: manual pages,
//! completions for shells, the journal's catalog. A hidden verb, so that what is installed cannot differ from what was built.

mod catalog;
mod conf;
mod page;
mod runbook;
mod topics;
mod verbs;

use super::args::Cli;
use super::exit::Exit;
use super::manual::topics::TOPICS;
use super::output::{Failure, put};
use clap::{Command, CommandFactory};
use clap_complete::Shell;

/// Prints one of them, or with `pages` the names of all manual pages, one a line.
pub fn run(what: &str) -> Result<Exit, Failure> {
    match text(what) {
        Some(text) => {
            put(&text)?;
            Ok(Exit::Ok)
        }
        None => Err(Failure::new(Exit::Usage, format!("there is no `{what}` in the package"))),
    }
}

fn text(what: &str) -> Option<String> {
    Some(match what {
        "pages" => pages().iter().map(|page| format!("{page}\n")).collect(),
        "volhold.8" => verbs::page(),
        "volhold.toml.5" => conf::page(),
        "volhold-runbook.7" => runbook::page(),
        "volhold.catalog" => catalog::text(),
        "bash" => completion(Shell::Bash),
        "zsh" => completion(Shell::Zsh),
        "fish" => completion(Shell::Fish),
        other => topics::page(TOPICS.iter().find(|topic| format!("{}.7", topics::name(topic)) == other)?),
    })
}

/// The files of all manual pages.
fn pages() -> Vec<String> {
    let own = ["volhold.8", "volhold.toml.5", "volhold-runbook.7"].map(str::to_owned);
    own.into_iter().chain(TOPICS.iter().map(|topic| format!("{}.7", topics::name(topic)))).collect()
}

fn completion(shell: Shell) -> String {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut visible(), "volhold", &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The command line as people see it: generators complete hidden verbs too.
fn visible() -> Command {
    let all = Cli::command();
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("volhold")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(all.get_arguments().cloned())
        .subcommands(verbs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::manual::topics::Part;
    use crate::config::keys;
    use crate::model::ReasonCode;

    /// The page as a reader searches it: no font changes, plain dashes.
    fn plain(what: &str) -> String {
        let fonts = ["\\fB", "\\fI", "\\fR", "\\&"];
        fonts.iter().fold(text(what).expect("it is shipped"), |text, font| text.replace(font, "")).replace("\\-", "-")
    }

    fn verbs_of(command: &clap::Command, before: &str, found: &mut Vec<String>) {
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
            let name = format!("{before} {}", verb.get_name());
            if verb.has_subcommands() { verbs_of(verb, &name, found) } else { found.push(name) }
        }
    }

    #[test]
    fn the_manual_has_every_verb_every_flag_and_every_exit_code() {
        let page = plain("volhold.8");
        let mut command = Cli::command();
        command.build();
        let mut verbs = Vec::new();
        verbs_of(&command, "volhold", &mut verbs);
        assert!(verbs.len() > 10, "{verbs:?}");
        for verb in &verbs {
            assert!(page.contains(&format!(".SS \"{verb}")), "{verb}");
        }
        for flag in ["--config", "--set", "--output", "--timeout", "--for", "--restored", "--origin"] {
            assert!(page.contains(flag), "{flag}");
        }
        for exit in Exit::ALL {
            assert!(page.contains(exit.meaning()), "{exit:?}");
        }
        assert!(!page.contains("worker") && !page.contains("reference"), "hidden verbs stay hidden");
    }

    #[test]
    fn the_manual_of_the_configuration_has_every_key_and_no_other() {
        let page = plain("volhold.toml.5");
        let keys = |head: &str| -> Vec<String> {
            let section = page.split(".SH ").find(|section| section.starts_with(head)).unwrap_or_default().to_owned();
            let lines: Vec<&str> = section.lines().collect();
            lines
                .windows(2)
                .filter(|two| two.first() == Some(&".TP"))
                .map(|two| two[1].replace(" (needed)", ""))
                .collect()
        };
        let names = |keys: &[keys::Key]| keys.iter().map(|key| key.name.to_owned()).collect::<Vec<_>>();
        assert_eq!(keys("GUARDS"), names(keys::GUARD));
        for (table, list) in keys::TABLES {
            assert_eq!(keys(&table.to_ascii_uppercase()), names(list));
        }
    }

    #[test]
    fn the_manual_of_reasons_has_every_code() {
        let page = plain("volhold-runbook.7");
        for code in ReasonCode::ALL {
            assert!(page.contains(&format!(".SS {}\n", code.as_str())), "{code:?}");
        }
    }

    #[test]
    fn every_shell_is_told_the_verbs_and_none_of_the_hidden_ones() {
        for shell in ["bash", "zsh", "fish"] {
            let text = text(shell).expect("it is shipped");
            for verb in ["status", "explain", "adopt", "gate"] {
                assert!(text.contains(verb), "{shell:?} {verb}");
            }
            assert!(!text.contains("worker") && !text.contains("untrusted"), "{shell:?}");
        }
    }

    #[test]
    fn every_topic_has_a_page_of_the_manual_with_all_that_help_says() {
        let all = pages();
        assert_eq!(text("pages").expect("names").lines().collect::<Vec<_>>(), all);
        assert!(all.iter().all(|page| text(page).is_some()) && text("volhold-nothing.7").is_none());
        for topic in TOPICS {
            let page = plain(&format!("volhold-{}.7", topic.name));
            assert!(page.contains(&format!("volhold-{} - {}", topic.name, topic.about)), "{page}");
            for part in topic.parts {
                let words: Vec<String> = match part {
                    Part::Head(text) => vec![text.to_uppercase()],
                    Part::Text(text) => vec![text.replace('`', "")],
                    Part::Row(term, text) => vec![term.replace('`', ""), text.replace('`', "")],
                    Part::Type(lines) | Part::Config(lines) => lines.iter().map(|line| (*line).to_owned()).collect(),
                };
                for words in words {
                    assert!(page.contains(&words), "{}: {words}", topic.name);
                }
            }
        }
        assert!(plain("volhold.8").contains("volhold-kops(7)"));
    }
}
