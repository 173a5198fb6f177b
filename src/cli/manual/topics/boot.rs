//! `volhold help boot`.

use super::Part::{Config, Head, Row, Text, Type};
use super::Topic;

pub const BOOT: Topic = Topic {
    name: "boot",
    about: "what volhold does at boot, second by second",
    parts: &[
        Text(
            "An enforced guard on a healthy master: from the start of the agent to the open gate 67 ms pass, measured on a machine \
             of two cores with a local disk, e2fsck not counted. What follows is that way, and where it can take longer.",
        ),
        Head("The way"),
        Row(
            "0 s",
            "systemd has mounted what stands in fstab and starts volhold.service. It waits neither for the network nor for the \
             clock. The agent reads its configuration and is ready after some milliseconds. At the same time \
             `volhold-gate@NAME.service` begins to wait, and etcd or kubelet behind it.",
        ),
        Row(
            "the device",
            "It is looked for by serial, path, UUID or label. One that is there is used without asking anybody. Only an EBS volume \
             that is not attached costs calls to EC2: three, where nobody is in the way. If another instance still has it, volhold \
             waits and says which; it never detaches.",
        ),
        Row(
            "the claim",
            "The device is opened once, exclusively. From here on no mkfs, no wipefs and no other mount succeeds on it.",
        ),
        Row(
            "the bytes",
            "The places that tell most are read first: superblocks and their copies, tables, the tails. A volume with data is \
             known as such after some ten milliseconds, whatever its size.",
        ),
        Row(
            "a blank one",
            "Only a device that still looks blank, where `format` allows it, is read to its last byte: 20 GiB at 125 MB/s take \
             172 s, once in the volume's life. `volhold status` shows how far it is and how long it will take.",
        ),
        Row(
            "the record",
            "Serial, size and the UUID of the filesystem are compared with what node and volume remember, before anything \
             writes, fsck included.",
        ),
        Row(
            "fsck",
            "`e2fsck -p`, as long as that takes: tenths of a second for a clean filesystem, more after a crash. XFS replays its \
             log when it is mounted. What neither mends is held.",
        ),
        Row(
            "the data",
            "The volume is mounted where no other process can see it. Every etcd data dir on it is read: log, backend, \
             snapshots; of the backend at most 64 MiB or 10,000 keys, so a large one costs no more than a middling one.",
        ),
        Row(
            "the verdict",
            "Same cluster, same member, not older than what is on record, not emptied, not beside a better one, nothing damaged: \
             the mount moves into its place and the gate opens. etcd's unit asks once more (`volhold gate check NAME`) and starts.",
        ),
        Head("Where it does not open"),
        Text(
            "The guard is held, and etcd or kubelet goes on waiting: no time-out ends that, since a person may answer hours later. \
             The rest of the boot goes on, but what is ordered after multi-user.target waits too. The volume stays claimed. The \
             reason stands in the journal, in `systemctl status volhold-gate@NAME` and here:",
        ),
        Type(&["volhold status", "volhold explain NAME", "volhold status --watch"]),
        Head("How long it took here"),
        Text("Step by step, as measured on your machine at its last look:"),
        Type(&["volhold status --timings", "volhold history NAME"]),
        Head("A guard that observes"),
        Text(
            "It does none of this to the device. It waits until somebody mounts the volume, reads through that mount, and says \
             what it would have held. Nothing waits for it. That is the default:",
        ),
        Config(&["[[guard]]", "name = \"etcd-main\"", "device = \"LABEL=etcd-main\"", "publish = \"/var/lib/etcd\""]),
        Head("Not measured"),
        Text(
            "No boot was ever timed on a real EC2 instance. How long EC2 takes to attach a volume is up to EC2; how volhold waits \
             for it was tried against a simulator that refuses, throttles and forgets as EC2 does.",
        ),
    ],
};
