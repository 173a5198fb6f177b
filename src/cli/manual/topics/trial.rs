//! `volhold help trial`. A test runs what stands here, with another folder in the place of /srv/trial.

use super::Part::{Config, Head, Text, Type};
use super::Topic;

pub const TRIAL: Topic = Topic {
    name: "trial",
    about: "how to try volhold safely",
    parts: &[
        Text(
            "Three steps, each of which can be the last. The first two touch nothing of the machine but a folder that you make; \
             the third only looks.",
        ),
        Head("1. A file instead of a volume"),
        Text(
            "An ext4 that has lost its first block. blkid finds nothing on it and ends with 2, for which most tools format:",
        ),
        Type(&[
            "mkdir -p /srv/trial",
            "truncate -s 256M /srv/trial/volume.img",
            "mkfs.ext4 -q /srv/trial/volume.img",
            "dd if=/dev/zero of=/srv/trial/volume.img bs=4096 count=1 conv=notrunc",
            "blkid -p /srv/trial/volume.img  # ends with 2",
            "volhold inspect /srv/trial/volume.img  # ends with 4: not blank, not healthy",
        ]),
        Head("2. An agent beside everything"),
        Text("As root, in the same folder, with a configuration of its own in /srv/trial/config.toml. It observes:"),
        Config(&[
            "[paths]",
            "state = \"/srv/trial/state\"",
            "run = \"/srv/trial/run\"",
            "",
            "[[guard]]",
            "name = \"trial\"",
            "device = \"/srv/trial/volume.img\"",
            "publish = \"/srv/trial/mnt\"",
        ]),
        Type(&[
            "volhold --config /srv/trial/config.toml config check",
            "volhold --config /srv/trial/config.toml run &",
            "volhold --config /srv/trial/config.toml status",
            "volhold --config /srv/trial/config.toml explain trial",
            "volhold --config /srv/trial/config.toml plan trial  # ends with 3: held",
            "kill %1  # the agent ends, and nothing stays but the folder",
        ]),
        Head("3. A master, observed"),
        Text(
            "Install the package, write a guard for the volume into /etc/volhold/config.toml and leave out `mode`. The agent claims, \
             mounts and writes nothing. Leave it so over a reboot or two; `would hold` in the status is what enforce would have \
             done. Of a volume that nobody has mounted only the bytes are read.",
        ),
        Type(&[
            "volhold config check",
            "systemctl reload volhold",
            "volhold status",
            "volhold plan  # what the next boot would do, step by step",
            "volhold doctor  # which layers would hold, tried out",
            "volhold enable --preset etcd-service etcd-main --dry-run  # writes nothing",
        ]),
        Head("And back"),
        Text(
            "`volhold disable NAME` takes away what `volhold enable` wrote; the removal of the package takes away the rest, and says \
             what is not protected any more. The directory under the mount stays immutable until `chattr -i`.",
        ),
        Type(&["volhold disable etcd-main --dry-run"]),
        Head("The whole story in half a minute"),
        Text(
            "`make demo` in the source, as root: a volume from blank to an open gate, then both incidents that volhold exists for, on \
             loop devices, with a real etcd.",
        ),
    ],
};
