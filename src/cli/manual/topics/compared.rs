//! `volhold help compared`.

use super::Part::{Head, Row, Text};
use super::Topic;

pub const COMPARED: Topic = Topic {
    name: "compared",
    about: "how volhold compares with what people use now",
    parts: &[
        Text(
            "Most of these were not made to guard data. They do what they are for; the question here is only what they do with a \
             volume that holds something and does not look like it.",
        ),
        Head("Before the mount"),
        Row(
            "a boot script: blkid || mkfs",
            "blkid ends with 2 for a blank device, for a missing one, for a read error and for an ext4 without its first block: \
             measured with util-linux 2.38. All four are formatted. `volhold help trial` shows it in a minute.",
        ),
        Row(
            "the mount library of Kubernetes (kubelet, CSI drivers, etcd-manager, nodeup)",
            "Asks blkid the same question and runs mkfs with -F where the answer is 2. Good for a new volume of a pod; the same \
             code stands before the etcd of kops.",
        ),
        Row(
            "x-systemd.makefs in fstab",
            "Refuses where libblkid finds a signature, and formats where it finds none. It knows no copies of superblocks, no \
             records, and no etcd.",
        ),
        Row("kube-aws' format unit", "Looked for the word ext4. An XFS was formatted: measured."),
        Row(
            "fstab with nofail",
            "Formats nothing. The volume is missing, the boot goes on, and etcd starts empty on the root disk.",
        ),
        Row(
            "volhold",
            "Formats where every byte was read and is empty, no record says otherwise, and `format` allows it. Else it holds and \
             says what it found. The price: reading a blank volume once, and a person where it is in doubt.",
        ),
        Text("What blkid, wipefs, lsblk and file say of volumes that hold something is a table in volhold-runbook(7)."),
        Head("After the mount"),
        Row(
            "RequiresMountsFor=, BindsTo= on a mount unit",
            "Make etcd wait for a mount. Whether it is the right volume with the right data in it is not their question; use them \
             as well where there is a mount unit.",
        ),
        Row(
            "etcd's own checks",
            "etcd notices a damaged log, a torn backend and, with its corruption checks, that members differ. An empty dir is \
             no damage to it: it starts a new cluster there, or waits to be let in.",
        ),
        Row(
            "health checks and dashboards",
            "A new empty etcd is healthy. volhold's alerts compare members: cluster ids, revisions, how many are new.",
        ),
        Head("Beside it"),
        Row(
            "backups: etcdctl snapshot save, etcd-manager's, EBS snapshots",
            "Needed as before. volhold makes restoring rarer; `volhold plan restore NAME --from FILE` prints the way, after it \
             has read the whole of it.",
        ),
        Row(
            "operators that delete a lost member and add it again",
            "They look from inside of the cluster and need a majority. volhold looks at one node, before etcd runs, and needs nobody.",
        ),
        Head("When you do not need it"),
        Text(
            "Where a lost member is replaced by machinery that is tested and a majority never shares a fate (one script, one image, \
             one upgrade), or where the whole cluster is made anew from a repository, a volume that is formatted by mistake costs \
             little. volhold is for those whose etcd is not so.",
        ),
    ],
};
