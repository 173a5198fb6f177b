//! Files of ours are marked, so that `volhold disable` takes away what `volhold enable` wrote, and nothing else.
//!
//! ```text
//! # Written by `volhold enable --preset etcd-service etcd-main`.        who wrote it, and for whom
//! # volhold-mark: 8d0a…  `volhold disable etcd-main` removes it while it is unchanged.
//! ```
//!
//! The mark is the SHA-256 of everything else in the file. A file whose mark does not fit was changed by a person, who may
//! want what it says: it is named and left. Comments begin with `#` in everything that is written (units, TOML, YAML).

use super::Preset;
use crate::model::GuardName;
use sha2::{Digest, Sha256};

const WRITTEN: &str = "# Written by `volhold enable --preset ";
const MARK: &str = "# volhold-mark: ";

/// Whose file it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    Ours {
        preset: Preset,
        guard: GuardName,
    },
    /// It was ours, and says something else now.
    Changed,
    Foreign,
}

/// The text with its two lines at the head.
pub fn marked(preset: Preset, guard: &GuardName, body: &str) -> String {
    let written = format!("{WRITTEN}{preset} {guard}`.\n");
    let digest = digest(&written, guard, body);
    format!("{written}{MARK}{digest}  {}\n{body}", removes(guard))
}

fn removes(guard: &GuardName) -> String {
    format!("`volhold disable {guard}` removes it while it is unchanged.")
}

fn digest(written: &str, guard: &GuardName, body: &str) -> String {
    let whole = Sha256::new().chain_update(written).chain_update(removes(guard)).chain_update(body).finalize();
    whole.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whose text it is.
pub fn owner(text: &str) -> Owner {
    let mut lines = text.split_inclusive('\n');
    let (Some(first), Some(second)) = (lines.next(), lines.next()) else { return Owner::Foreign };
    let named = first.strip_prefix(WRITTEN).and_then(|rest| rest.trim_end().strip_suffix("`."));
    let Some((preset, guard)) = named.and_then(|named| named.split_once(' ')) else { return Owner::Foreign };
    if !second.starts_with(MARK) {
        return Owner::Changed;
    }
    let (Ok(preset), Ok(guard)) = (preset.parse::<Preset>(), guard.parse::<GuardName>()) else { return Owner::Changed };
    let body: String = lines.collect();
    if marked(preset, &guard, &body) == text { Owner::Ours { preset, guard } } else { Owner::Changed }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn guard(name: &str) -> GuardName {
        name.parse().unwrap()
    }

    #[test]
    fn what_was_written_is_known_again() {
        for body in ["", "[Unit]\n", "no end of line", "a\n\nb\n"] {
            let text = marked(Preset::EtcdService, &guard("etcd-main"), body);
            assert_eq!(
                owner(&text),
                Owner::Ours { preset: Preset::EtcdService, guard: guard("etcd-main") },
                "{body:?}"
            );
        }
    }

    #[test]
    fn any_change_of_it_is_seen() {
        let text = marked(Preset::K3s, &guard("a"), "[Unit]\nAfter=x\n");
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'z' { b'y' } else { b'z' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(!matches!(owner(&changed), Owner::Ours { .. }), "byte {at}: {changed}");
        }
        assert_eq!(owner(&format!("{text}# mine\n")), Owner::Changed);
        assert_eq!(owner(text.trim_end()), Owner::Changed);
    }

    #[test]
    fn what_was_never_ours_is_foreign() {
        for text in ["", "\n", "[Unit]\n", "# Written by hand\n[Unit]\n", MARK] {
            assert_eq!(owner(text), Owner::Foreign, "{text:?}");
        }
    }
}
