//! Who may read the status: from the status file, and over the socket.
//!
//! The rule is one for both. By default every user of this machine may: there is no secret in a status, and monitoring runs
//! as users of its own. With `[http] group` only root, the agent's own user and that group may.

use std::path::Path;

/// Who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    Everyone,
    /// Root, the agent's own user, and the group of this number.
    Group(u32),
    /// Root and the agent's own user: a group is configured that this machine does not know.
    Owner,
}

impl Readers {
    /// For the configured group, by name or number. `Err`: there is none of this name, so [`Readers::Owner`] is left.
    ///
    /// Names are looked up in `/etc/group` alone: a directory service that does not answer would keep the agent, and so every
    /// guard, from starting.
    pub fn of(group: Option<&str>) -> Result<Self, String> {
        let Some(group) = group else { return Ok(Readers::Everyone) };
        if let Ok(gid) = group.parse() {
            return Ok(Readers::Group(gid));
        }
        let path = Path::new("/etc/group");
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        number_of(&text, group)
            .map(Readers::Group)
            .ok_or_else(|| format!("there is no group `{group}` in {}; only root reads the status", path.display()))
    }

    /// Mode and group of a file that these may read.
    pub(super) fn file_mode(self) -> (u32, Option<u32>) {
        match self {
            Readers::Everyone => (0o644, None),
            Readers::Group(gid) => (0o640, Some(gid)),
            Readers::Owner => (0o600, None),
        }
    }
}

/// `NAME:x:GID:members`, group(5).
fn number_of(text: &str, group: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix(group)?.strip_prefix(':'))?;
    line.split(':').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_known_by_its_whole_name_or_by_number() {
        let text = "root:x:0:\nadmins:x:7:a,b\nadmin:x:8:\nbroken\nworse:x:many:\n";
        assert_eq!(number_of(text, "admin"), Some(8));
        for unknown in ["adm", "broken", "worse", ""] {
            assert_eq!(number_of(text, unknown), None, "{unknown}");
        }
        assert_eq!(Readers::of(None), Ok(Readers::Everyone));
        assert_eq!(Readers::of(Some("12")), Ok(Readers::Group(12)));
        assert!(Readers::of(Some("no such group")).is_err());
    }
}
