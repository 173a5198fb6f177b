//! Where the keys are: the first two parts of their paths (`/registry/pods`), by number and bytes.

use super::super::bytes::printable;
use crate::model::PrefixUse;
use std::collections::HashMap;

/// Prefixes that are told apart. A Kubernetes cluster has some hundred.
const MAX: usize = 4096;
/// Longest prefix that is kept.
const MAX_BYTES: usize = 200;
/// Prefixes that are told.
const SHOWN: usize = 20;

#[derive(Debug, Clone, Copy, Default)]
struct Use {
    keys: i64,
    records: u64,
    bytes: u64,
}

/// Counts by prefix.
pub(super) struct Prefixes {
    numbers: HashMap<Vec<u8>, usize>,
    uses: Vec<Use>,
    last: (Vec<u8>, usize),
}

impl Prefixes {
    pub fn new() -> Self {
        // Number 0 is for all beyond the bound.
        Prefixes { numbers: HashMap::new(), uses: vec![Use::default()], last: (Vec::new(), 0) }
    }

    /// The number of this key's prefix.
    pub fn number(&mut self, key: &[u8]) -> usize {
        let prefix = prefix(key);
        if self.last.1 > 0 && self.last.0 == prefix {
            return self.last.1;
        }
        let number = match self.numbers.get(prefix) {
            Some(number) => *number,
            None if self.uses.len() < MAX => {
                let number = self.uses.len();
                self.uses.push(Use::default());
                self.numbers.insert(prefix.to_vec(), number);
                number
            }
            None => 0,
        };
        if number > 0 {
            self.last.0.clear();
            self.last.0.extend_from_slice(prefix);
            self.last.1 = number;
        }
        number
    }

    pub fn record(&mut self, number: usize, bytes: u64) {
        if let Some(one) = self.uses.get_mut(number) {
            one.records = one.records.saturating_add(1);
            one.bytes = one.bytes.saturating_add(bytes);
        }
    }

    /// A key came to life (`1`) or died (`-1`).
    pub fn keys(&mut self, number: usize, more: i64) {
        if let Some(one) = self.uses.get_mut(number) {
            one.keys = one.keys.saturating_add(more);
        }
    }

    /// Those with the most bytes first; what does not fit is summed up under `…`.
    pub fn shown(self) -> Vec<PrefixUse> {
        let mut named: Vec<(String, Use)> = self
            .numbers
            .iter()
            .filter_map(|(prefix, number)| Some((printable(prefix), *self.uses.get(*number)?)))
            .collect();
        named.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
        let mut rest = self.uses.first().copied().unwrap_or_default();
        for (_, one) in named.iter().skip(SHOWN) {
            rest.keys = rest.keys.saturating_add(one.keys);
            rest.records = rest.records.saturating_add(one.records);
            rest.bytes = rest.bytes.saturating_add(one.bytes);
        }
        named.truncate(SHOWN);
        if rest.records > 0 {
            named.push(("…".to_owned(), rest));
        }
        let shown = |(prefix, one): (String, Use)| PrefixUse {
            prefix,
            keys: u64::try_from(one.keys).unwrap_or(0),
            records: one.records,
            bytes: one.bytes,
        };
        named.into_iter().map(shown).collect()
    }
}

/// Up to the third slash, or the first where the key does not begin with one.
fn prefix(key: &[u8]) -> &[u8] {
    let wanted = if key.first() == Some(&b'/') { 2 } else { 0 };
    let mut slashes = key.iter().take(MAX_BYTES).enumerate().filter(|(_, byte)| **byte == b'/');
    if let Some((at, _)) = slashes.nth(wanted) {
        return key.get(..at).unwrap_or(key);
    }
    // A key without such a path is one of many alike: its folder is told, not its name.
    let end = key.iter().take(MAX_BYTES).rposition(|byte| *byte == b'/').unwrap_or(0);
    key.get(..end).unwrap_or(&[])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_parts_of_a_path_count() {
        for (key, wanted) in [
            ("/registry/pods/kube-system/a", "/registry/pods"),
            ("/registry/ranges", "/registry"),
            ("foo/bar/baz", "foo"),
            ("foo", ""),
            ("", ""),
            ("//a/b", "//a"),
        ] {
            assert_eq!(prefix(key.as_bytes()), wanted.as_bytes(), "{key}");
        }
    }

    #[test]
    fn beyond_the_bound_nothing_is_lost() {
        let mut prefixes = Prefixes::new();
        for n in 0..10_000 {
            let number = prefixes.number(format!("/{n}/x/y").as_bytes());
            prefixes.record(number, 2);
            prefixes.keys(number, 1);
        }
        let shown = prefixes.shown();
        assert_eq!(shown.iter().map(|one| one.records).sum::<u64>(), 10_000);
        assert_eq!(shown.iter().map(|one| one.keys).sum::<u64>(), 10_000);
        assert_eq!(shown.last().unwrap().prefix, "…");
    }
}
