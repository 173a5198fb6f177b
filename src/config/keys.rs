//! Every key of the configuration in words, once: volhold.toml(5) is made from this, and tests hold the README's tables and
//! the reader's own lists ([`super::written`]) against it.

/// One key. Texts are plain sentences; what is to be typed stands in backticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub name: &'static str,
    /// What counts where the key is not given: a value in backticks, `needed`, `-` for nothing, or a word.
    pub default: &'static str,
    pub meaning: &'static str,
}

impl Key {
    /// The key's row of the README.
    pub fn row(&self) -> String {
        format!("| `{}` | {} | {} |", self.name, self.default, self.meaning)
    }
}

/// `[[guard]]`
pub const GUARD: &[Key] = &[
    Key { name: "name", default: "needed", meaning: "lower-case letters, digits, dashes: names the gate" },
    Key {
        name: "mode",
        default: "`observe`",
        meaning: "`observe` looks and reports; `enforce` claims, examines, mounts, holds",
    },
    Key {
        name: "provider",
        default: "`local`",
        meaning: "where volumes come from: `local`, devices of this machine; `ebs`, volumes of EC2, attached where needed",
    },
    Key {
        name: "device",
        default: "needed",
        meaning: "with `local`: absolute path, `UUID=…`, `LABEL=…`, or an image file",
    },
    Key { name: "volume_id", default: "-", meaning: "with `ebs`, this or `volume_tags`: `vol-…`" },
    Key {
        name: "volume_tags",
        default: "-",
        meaning: "with `ebs`: a list of `KEY=VALUE` or `KEY`; the one volume of this zone that has them all, never the first of several",
    },
    Key {
        name: "fstype",
        default: "`ext4`",
        meaning: "`ext4` or `xfs`: what `format` makes, and the only filesystem that is mounted",
    },
    Key {
        name: "format",
        default: "`never`",
        meaning: "`if-blank`: make a filesystem on a device that is proven blank",
    },
    Key {
        name: "publish",
        default: "needed",
        meaning: "where the whole volume is mounted; or a list of `{ from, at }`: directories of it, each at its own place; `{volume}` in a place is the id of the EBS volume",
    },
    Key {
        name: "data_dir",
        default: "found",
        meaning: "etcd's data dir, relative to the volume's root, within what is published; else the one that etcd-manager's `state` names, or the only one; the dir that is on record outweighs them",
    },
    Key { name: "owner", default: "root", meaning: "`user:group` of a directory that volhold creates for etcd" },
    Key { name: "dir_mode", default: "`0700`", meaning: "octal mode of such a directory" },
    Key {
        name: "fresh",
        default: "`deny`",
        meaning: "`allow`: an etcd may start on a volume that volhold itself made, once",
    },
    Key { name: "member", default: "-", meaning: "name of this node's etcd member; data of another is held" },
    Key { name: "peer_url", default: "-", meaning: "peer URL of this node's member; data without it is held" },
    Key {
        name: "mount_options",
        default: "-",
        meaning: "as for mount(8), commas between them; what would hide damage or a copy (`ro`, `noload`, `norecovery`, `nouuid`) is refused",
    },
    Key {
        name: "witness",
        default: "`write`",
        meaning: "with `ebs`: keep in tags of the volume (`volhold/…`) which filesystem, cluster and progress it held; `read`: only read them",
    },
    Key {
        name: "snapshot",
        default: "`off`",
        meaning: "with `ebs`: `best-effort` takes a snapshot before a repair that writes and before `adopt`; `required` does neither without one",
    },
    Key {
        name: "grow",
        default: "`never`",
        meaning: "`online`: let the filesystem have all of a volume that has become larger, while it is in use; else that is only told",
    },
    Key {
        name: "restart",
        default: "`never`",
        meaning: "`etcd-manager`: end the process of kops' etcd-manager for this volume where it was started before the mount and does not see it, so that kubelet starts it anew; else that is only told",
    },
    Key {
        name: "etcd",
        default: "found",
        meaning: "the etcd that will open the data: its version (`3.5.16`), the absolute path of its program (asked with `--version`), or of its static pod's manifest (the image's tag); else kubeadm's manifest, where that mounts what this guard publishes, or etcd-manager's `state`. What it cannot open, or only over versions in between, is held; where nothing names it, no version is held against it",
    },
    Key {
        name: "at_run_time",
        default: "`tell`",
        meaning: "when the data goes away, or becomes another's, under an open gate: only `tell`; `freeze` the cgroup of whatever has the data open (of a pod, its container's); or `stop` the `stop_units`. Nothing on disk is touched",
    },
    Key { name: "stop_units", default: "-", meaning: "with `at_run_time = \"stop\"`: a list of units of systemd" },
];

/// The tables that are there once: `[paths]` and so on.
pub const TABLES: &[(&str, &[Key])] = &[
    (
        "paths",
        &[
            Key { name: "state", default: "`/var/lib/volhold`", meaning: "ledgers and decisions: survive reboots" },
            Key {
                name: "run",
                default: "`/run/volhold`",
                meaning: "ready files (`open/NAME`), status, requests: die with the boot",
            },
        ],
    ),
    (
        "http",
        &[
            Key {
                name: "listen",
                default: "-",
                meaning: "TCP address besides the socket, such as `127.0.0.1:9441`; loopback only, since every user of the machine then reads the status",
            },
            Key {
                name: "group",
                default: "-",
                meaning: "only root, the agent's own user and this group (a name in `/etc/group`, or a number) read the status, over the socket and in `status.json`; not together with `listen`",
            },
        ],
    ),
    (
        "metrics",
        &[Key {
            name: "textfile_dir",
            default: "-",
            meaning: "node_exporter's textfile directory, which must be there; not below a `publish` path",
        }],
    ),
];

#[cfg(test)]
mod tests {
    use super::super::written;
    use super::*;

    #[test]
    fn every_key_that_is_read_is_described_and_no_other() {
        let names = |keys: &[Key]| keys.iter().map(|key| key.name).collect::<Vec<_>>();
        assert_eq!(names(GUARD), written::GUARD_KEYS);
        let tables: Vec<_> = TABLES.iter().map(|(table, keys)| (*table, names(keys))).collect();
        let read: Vec<_> = written::TABLES.iter().map(|(table, keys)| (*table, keys.to_vec())).collect();
        assert_eq!(tables, read);
    }

    #[test]
    fn a_description_is_one_line_with_its_backticks_closed() {
        for key in TABLES.iter().flat_map(|(_, keys)| *keys).chain(GUARD) {
            for text in [key.default, key.meaning] {
                assert!(!text.is_empty() && !text.contains(['\n', '|']), "{}: {text}", key.name);
                assert_eq!(text.matches('`').count() % 2, 0, "{}: {text}", key.name);
            }
        }
    }
}
