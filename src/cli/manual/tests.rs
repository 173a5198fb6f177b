use super::*;
use std::collections::BTreeSet;

fn pages() -> impl Iterator<Item = (ReasonCode, &'static Page)> {
    ReasonCode::ALL.iter().map(|code| (*code, page(*code)))
}

#[test]
fn every_code_has_a_page_that_says_something_in_each_part() {
    for (code, page) in pages() {
        for text in [page.cause, page.found, page.means, page.without] {
            assert!(text.len() > 15, "{code}: {text:?}");
        }
        for text in [page.found, page.means, page.without] {
            assert!(text.ends_with(['.', '?', '!']), "{code}: no sentence: {text:?}");
        }
        assert!(!page.cause.ends_with('.') && !page.check.is_empty() && !page.choices.is_empty(), "{code}");
    }
}

#[test]
fn no_page_is_a_copy_of_another() {
    for part in [
        |p: &'static Page| p.cause,
        |p: &'static Page| p.found,
        |p: &'static Page| p.means,
        |p: &'static Page| p.without,
    ] {
        let texts: BTreeSet<&str> = pages().map(|(_, page)| part(page)).collect();
        assert_eq!(texts.len(), ReasonCode::ALL.len());
    }
}

#[test]
fn safe_choices_come_first_and_nothing_offers_to_format() {
    for (code, page) in pages() {
        let safe: Vec<bool> = page.choices.iter().map(|c| c.safe).collect();
        assert!(safe.windows(2).all(|w| w[0] >= w[1]), "{code}: an unsafe choice stands before a safe one");
        for choice in page.choices {
            let all = format!("{} {}", choice.command, choice.effect);
            for word in ["mkfs", "wipefs", "blkdiscard", "rm -", "of={device}", "e2fsck -y", "force-new-cluster"] {
                assert!(!all.contains(word), "{code} offers {word}: {all}");
            }
        }
    }
}

#[test]
fn a_command_of_ours_is_one_that_this_binary_knows() {
    use clap::CommandFactory;
    let known: BTreeSet<String> =
        crate::cli::args::Cli::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
    for (code, page) in pages() {
        let texts = page.choices.iter().flat_map(|c| [c.command, c.effect]).chain(page.check.iter().copied());
        for text in texts {
            for (at, _) in text.match_indices("volhold ") {
                let mut words = text[at..].split([' ', ':', ',']).skip(1);
                let (verb, next) = (words.next().unwrap(), words.next().unwrap_or_default());
                // Elsewhere in a sentence the name means the program's maker, not a command to type.
                if at == 0 || next.starts_with('{') || next.starts_with("--") {
                    assert!(known.contains(verb), "{code}: there is no `volhold {verb}`");
                }
            }
        }
    }
}

#[test]
fn names_fill_every_placeholder_and_unknown_ones_cannot_run_by_accident() {
    let names = Names {
        guard: Some("etcd-main".into()),
        device: Some("/dev/nvme1n1".into()),
        volume: Some("vol-0a5a75bec90179bd8".into()),
        publish: Some("/var/lib/etcd".into()),
        dir: Some("/var/lib/etcd/default".into()),
        member: Some("5d4a".into()),
    };
    assert_eq!(names.fill("{copy}"), "aws ec2 create-snapshot --volume-id vol-0a5a75bec90179bd8");
    let local = Names { volume: Some("local:abc".into()), ..names.clone() };
    assert_eq!(local.fill("{copy}"), "dd if=/dev/nvme1n1 of=/elsewhere/etcd-main.img bs=1M conv=noerror,sync");
    assert!(names.fits("aws ec2 x") && !local.fits("aws ec2 x") && local.fits("volhold status"));
    assert_eq!(Names::default().fill("volhold adopt {name}"), "volhold adopt NAME");
    for (code, page) in pages() {
        let texts = page.choices.iter().flat_map(|c| [c.command, c.effect]).chain(page.check.iter().copied());
        for text in texts.chain([page.cause, page.found, page.means, page.without]) {
            assert!(!names.fill(text).contains(['{', '}']), "{code}: {text}");
        }
    }
}

#[test]
fn a_volume_that_is_none_of_ec2_is_left_with_choices_too() {
    let local = Names { volume: Some("local:abc".into()), ..Names::default() };
    for (code, page) in pages() {
        assert!(page.choices.iter().any(|c| local.fits(c.command)), "{code}");
    }
}
