//! Healthy lives of a master, and where one of them is held on the way: each hold has one answer.
//!
//! `tests/it/lives.rs` walks every one of them through the start rules, from dirs that real etcds left.

/// One life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pub what: &'static str,
    /// Reason code of the hold on its way, and what answers it; `None`: it is never held.
    pub held: Option<(&'static str, &'static str)>,
    /// Why it is held, or why not.
    pub because: &'static str,
}

const fn free(what: &'static str, because: &'static str) -> Life {
    Life { what, held: None, because }
}

const fn held(what: &'static str, code: &'static str, answer: &'static str, because: &'static str) -> Life {
    Life { what, held: Some((code, answer)), because }
}

/// All of them.
pub const LIVES: &[Life] = &[
    free(
        "first boot of a cluster, its members in any order",
        "young volumes, fresh = \"allow\"; a member that died in its first minute names cluster version 3.0, which is no \
         skipped version",
    ),
    free("stop and start of an instance", "the ledger on the volume continues, an empty one on the node is no doubt"),
    free("replaced instance, same volume", "the volume brings its record along"),
    held(
        "replaced volume of a member that ran (member remove, member add)",
        "blank-replacement",
        "volhold adopt NAME --replacement",
        "an empty volume in the place of one with data looks like the loss of it",
    ),
    held(
        "data dir wiped on purpose, to join again",
        "data-vanished",
        "volhold adopt NAME --replacement",
        "nothing tells a wipe on purpose from one by mistake",
    ),
    free("minor upgrade, as kubeadm does it, one after the other", "each step is one minor version"),
    free("kops upgrade within etcd 3", "etcd-manager's state names what will run, one minor version up"),
    held(
        "upgrade over several minor versions at once",
        "version-skip",
        "volhold adopt NAME, or the versions between",
        "etcd is made for one minor version at a time; what it does not finish shows later",
    ),
    held(
        "etcd's package goes back below its data",
        "version-downgrade",
        "install the version that is named",
        "that etcd would refuse to start",
    ),
    free("downgrade from 3.6 to 3.5 by `etcdctl downgrade enable`", "the data says that 3.5 may have it"),
    free(
        "etcd-manager's own migration from etcd 2 to 3",
        "its state says so, and the old data lies complete in data-trashcan",
    ),
    free("an etcd-manager that restores, quarantined", "only it can end that; the data is there"),
    held(
        "volume made from a snapshot",
        "restored-volume",
        "volhold adopt NAME --restored",
        "a copy beside its original would be the same member twice",
    ),
    held(
        "dir made by `etcdctl snapshot restore`, as a new cluster",
        "other-cluster",
        "volhold adopt NAME",
        "its ids are new, and its history begins anew",
    ),
    held(
        "older state of the same member put in its place",
        "went-backwards",
        "volhold adopt NAME --restored",
        "acknowledged writes are missing, and the peers may have them",
    ),
    free("compaction and defragmentation", "neither lowers revision, index or term"),
    free("NOSPACE alarm, set or disarmed", "etcd starts and answers reads: that is told"),
    free("`etcd --force-new-cluster`", "ids stay, and term and index only grow"),
    free(
        "kill or power cut in the middle of writing",
        "what was recorded was durable; a torn tail is cut by etcd itself",
    ),
    free("clock set back by ten years", "no time is compared with data"),
];

/// For a page: the life; whether it is held, and what answers that; why.
pub fn table() -> String {
    let mut text = String::new();
    for Life { what, held, because } in LIVES {
        let held = match held {
            None => "starts".to_owned(),
            Some((code, answer)) => format!("held: {code}; answer: {answer}"),
        };
        text.push_str(&format!("{what}\n    {held}\n"));
        let mut line = String::from("   ");
        for word in because.split_whitespace() {
            if line.len().saturating_add(word.len()) > 78 {
                text.push_str(&line);
                text.push('\n');
                line = String::from("   ");
            }
            line.push(' ');
            line.push_str(word);
        }
        text.push_str(&line);
        text.push_str("\n\n");
    }
    text
}
