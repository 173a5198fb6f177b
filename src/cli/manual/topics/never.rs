//! `volhold help never`.

use super::Part::{Head, Row, Text, Type};
use super::Topic;

pub const NEVER: Topic = Topic {
    name: "never",
    about: "what volhold never does, and what it cannot prevent",
    parts: &[
        Head("Never"),
        Row(
            "format what is not proven blank",
            "mkfs runs where `format` allows it and every byte was read and found empty, and never because something could not be \
             read, mounted or recognised. There is no verb that formats, and no flag that makes it.",
        ),
        Row(
            "delete anything",
            "What has to go out of the way is renamed, on the same volume, with a note of where it was: `volhold quarantine list \
             NAME`. Snapshots that it takes are never removed by it.",
        ),
        Row("detach a volume", "Nor terminate, stop or change an instance."),
        Row(
            "stop etcd because of itself",
            "A stop, a crash, an upgrade or the removal of volhold touches no running etcd, closes no open gate and opens no closed \
             one. `at_run_time` may stop or freeze an etcd whose data has gone away under it; the default only tells.",
        ),
        Row(
            "take unknown for fine",
            "A read error, a time-out, a reader that died, two sources that disagree: each is a reason to hold, by its own name.",
        ),
        Row(
            "hold for want of a network",
            "Data that agrees with the node's own record starts without EC2, without metadata, without DNS.",
        ),
        Row(
            "write before it knows",
            "fsck, the replay of a journal, the ledger: none of it before it is settled that this is the volume on record, and \
             each is written down before it happens.",
        ),
        Row(
            "send anything",
            "It calls EC2 where a guard names an EBS volume, and nobody else. What it tells is read on this machine: a socket, \
             files, a loopback port where one is configured.",
        ),
        Head("What it cannot prevent"),
        Row(
            "root",
            "Who writes to the raw device (`dd of=`, `blkdiscard -f`) succeeds under every claim. A second reading notices it \
             (`changed-underneath`); before a format nothing else can.",
        ),
        Row(
            "what happens under an open gate",
            "Data that is deleted or replaced while etcd runs is noticed and told, or answered by `at_run_time`. It is not undone.",
        ),
        Row(
            "an etcd that starts beside the old data by itself",
            "Where something inside of the pod chooses the data dir, as etcd-manager does on kops, an empty etcd beside the old \
             data is detected and told, not prevented. See `volhold help kops`.",
        ),
        Row(
            "loss that no copy survives",
            "It is no backup. A disk that is broken stays broken; it makes sure that nobody writes over what is left of it.",
        ),
        Row(
            "a majority that is gone",
            "It looks at one member. That two others are empty is told by the alerts, and by the fleet:",
        ),
        Type(&["volhold fleet --cluster NAME"]),
        Head("The way out"),
        Text(
            "Whoever has to start etcd on a night on which volhold itself is broken does not need it: `volhold-bypass` mounts and \
             opens by hand until the next boot, and everything says so. See volhold-bypass(8).",
        ),
    ],
};
