//! Device names for AttachVolume: `/dev/sdf` to `/dev/sdp`, as the EC2 user guide recommends. They are apart from those that
//! etcd-manager (`/dev/xvdu` on) and the CSI driver use.
//!
//! On NVMe instances the name means nothing to the kernel, but EC2 still refuses one that is in use.

use std::collections::BTreeSet;

const LETTERS: &[char] = &['f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p'];

/// The letter of a name: EC2 holds `/dev/sdf`, `/dev/xvdf` and `xvdf` for the same. `None` for all others, such as
/// `/dev/xvdba`, `/dev/sda1`.
fn letter(name: &str) -> Option<char> {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let rest = name.strip_prefix("xvd").or_else(|| name.strip_prefix("sd"))?;
    let mut letters = rest.chars();
    letters.next().filter(|_| letters.next().is_none())
}

/// The first name that is neither in use nor among those that failed before. `start`: where to begin, so that the guards of
/// one machine do not all ask for the same.
pub fn free(in_use: &[String], failed: &BTreeSet<String>, start: usize) -> Option<String> {
    let taken: BTreeSet<char> = in_use.iter().chain(failed).filter_map(|name| letter(name)).collect();
    let start = start.checked_rem(LETTERS.len()).unwrap_or(0);
    let (before, after) = LETTERS.split_at_checked(start).unwrap_or((&[], LETTERS));
    after.iter().chain(before).find(|letter| !taken.contains(letter)).map(|letter| format!("/dev/sd{letter}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_is_in_use_under_any_spelling_and_what_failed_is_never_asked_for() {
        let in_use = ["/dev/xvda", "/dev/sda1", "xvdf", "/dev/sdg", "/dev/xvdba"].map(str::to_owned);
        assert_eq!(free(&in_use, &set(&[]), 0).as_deref(), Some("/dev/sdh"));
        assert_eq!(free(&in_use, &set(&["/dev/sdh", "/dev/sdi"]), 0).as_deref(), Some("/dev/sdj"));
        assert_eq!(free(&in_use, &set(&[]), 10).as_deref(), Some("/dev/sdp"));
        assert_eq!(free(&in_use, &set(&["/dev/sdp"]), 10).as_deref(), Some("/dev/sdh"));
    }

    #[test]
    fn eleven_names_are_all_there_are() {
        let mut failed = BTreeSet::new();
        while let Some(name) = free(&[], &failed, 4) {
            assert!(failed.insert(name.clone()), "{name} twice");
        }
        assert_eq!(failed.len(), 11);
        assert!(failed.contains("/dev/sdf") && failed.contains("/dev/sdp"));
    }
}
