//! Names of units, and what `systemctl show` prints about them (systemctl(1), systemd.unit(5)).

use crate::model::GuardName;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The unit that waits for a guard's gate.
pub fn gate(guard: &GuardName) -> String {
    format!("volhold-gate@{guard}.service")
}

/// The mount unit of a path, escaped as systemd-escape(1) does with `--path`: `/var/lib/etcd` is `var-lib-etcd.mount`.
pub fn mount_unit(at: &Path) -> String {
    let mut name = String::new();
    let bytes = at.as_os_str().as_bytes();
    for part in bytes.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        if !name.is_empty() {
            name.push('-');
        }
        for byte in part {
            let plain = byte.is_ascii_alphanumeric() || b":_.".contains(byte);
            if plain && !(name.is_empty() && *byte == b'.') {
                name.push(char::from(*byte));
            } else {
                name.push_str(&format!("\\x{byte:02x}"));
            }
        }
    }
    if name.is_empty() {
        name.push('-');
    }
    name.push_str(".mount");
    name
}

/// Properties of one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<String, String>);

impl Properties {
    /// Reads `Key=value` lines.
    pub fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Properties(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// The value; empty where systemd does not know the property.
    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// Is `unit` named in a list such as `After`?
    pub fn names(&self, key: &str, unit: &str) -> bool {
        self.get(key).split_ascii_whitespace().any(|name| name == unit)
    }

    pub fn list(&self, key: &str) -> Vec<String> {
        self.get(key).split_ascii_whitespace().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_as_systemd_does() {
        for (path, unit) in [
            ("/var/lib/etcd", "var-lib-etcd.mount"),
            ("/", "-.mount"),
            ("//var//lib/", "var-lib.mount"),
            ("/mnt/master-vol-0a", "mnt-master\\x2dvol\\x2d0a.mount"),
            ("/.etcd/.x", "\\x2eetcd-.x.mount"),
            ("/a b/ü", "a\\x20b-\\xc3\\xbc.mount"),
        ] {
            assert_eq!(mount_unit(Path::new(path)), unit, "{path}");
        }
    }

    #[test]
    fn lists_are_compared_by_whole_names() {
        let shown =
            Properties::parse("After=a.service volhold-gate@x.service\nRequires=\nExecStart={ path=/x ; a=b }\n");
        assert!(shown.names("After", "volhold-gate@x.service"));
        assert!(!shown.names("After", "gate@x.service"));
        assert!(!shown.names("Requires", "a.service"));
        assert_eq!(shown.get("ExecStart"), "{ path=/x ; a=b }");
        assert_eq!(shown.list("Wants"), [""; 0]);
    }
}
