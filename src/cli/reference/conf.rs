//! volhold.toml(5): every key, from the one list of them.

use super::page::Page;
use crate::config::keys::{GUARD, Key, TABLES};
use roff::{bold, roman};

const DESCRIPTION: &[&str] = &[
    "One TOML file. A guard is one volume with the etcd data dir on it and the gate in front of that etcd; each `[[guard]]` \
     is one. A file without guards is valid: the agent idles. An unknown key is an error. `volhold config check` says what \
     is wrong, with line and column; `volhold config show --origin` prints what counts in the end, and where each value \
     comes from.",
    "Layers are laid over one another, key by key, a later one over an earlier one: the file; `conf.d/*.toml` beside it, \
     sorted by name; the environment, where `VOLHOLD_PATHS_STATE` is `state` of `[paths]` and `VOLHOLD_GUARD_ETCD_MAIN_MODE` \
     is `mode` of the guard `etcd-main`; the flags, `--set guard.etcd-main.mode=observe`. Guards are merged by `name`.",
    "After a change: `systemctl reload volhold`. While a gate is open, its guard keeps what the gate was opened with until \
     the next boot, and the status says so (`config-changed`). Each valid configuration is kept in the state dir; while \
     what is written cannot be used, the agent runs on that one and says so.",
];

const EXAMPLE: &str = r#"[[guard]]
name = "etcd-main"
mode = "enforce"
device = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0"
publish = "/var/lib/etcd"
data_dir = "default"
owner = "etcd:etcd""#;

pub(super) fn page() -> String {
    let mut page = Page::new("VOLHOLD.TOML", "5", "volhold.toml", "what volhold guards, and how");
    page.section("SYNOPSIS");
    page.para("`/etc/volhold/config.toml`, `/etc/volhold/conf.d/*.toml`");
    page.section("DESCRIPTION");
    for text in DESCRIPTION {
        page.para(text);
    }
    page.section("GUARDS");
    page.para("Keys of each `[[guard]]`:");
    keys(&mut page, GUARD);
    for (table, list) in TABLES {
        page.section(&table.to_ascii_uppercase());
        page.para(&format!("Keys of `[{table}]`:"));
        keys(&mut page, list);
    }
    page.section("EXAMPLE");
    page.verbatim(EXAMPLE);
    page.section("SEE ALSO");
    page.para("volhold(8), volhold-runbook(7)");
    page.finish()
}

fn keys(page: &mut Page, keys: &[Key]) {
    for key in keys {
        let needed = key.default == "needed";
        let term = if needed { vec![bold(key.name), roman(" (needed)")] } else { vec![bold(key.name)] };
        let meaning = capital(key.meaning);
        let text = match key.default {
            "needed" | "-" | "found" => format!("{meaning}."),
            default => format!("{meaning}. Default: {default}."),
        };
        page.term(term, &text);
    }
}

/// Descriptions begin in small letters, as cells of a table do; etcd always does.
fn capital(text: &str) -> String {
    if text.starts_with("etcd") {
        return text.to_owned();
    }
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_kept;
    use std::path::Path;

    #[test]
    fn the_example_is_valid() {
        let kept = format!("# source: /etc/volhold/config.toml\n{EXAMPLE}\n");
        assert_eq!(parse_kept(Path::new("t"), &kept).unwrap().config.guards.len(), 1);
    }
}
