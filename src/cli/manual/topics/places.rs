//! `volhold help etcd`, `kubeadm`, `kops`, `without-aws`: where a master's etcd lives, and how it is made to wait there.

use super::Part::{Config, Head, Row, Text, Type};
use super::Topic;

/// What all of them say of EC2.
const NEVER_ON_EC2: &str = "EC2, IAM and metadata themselves: volhold speaks to them through Amazon's own SDK, and that was tried \
     against a strict simulator only. It was never run on a real EC2 instance.";

pub const ETCD: Topic = Topic {
    name: "etcd",
    about: "volhold on a master with plain etcd, as a unit of systemd",
    parts: &[
        Text(
            "etcd.service is made to require the gate, and to ask once more right before each start. etcd's data dir must be \
             `publish` and `data_dir` put together.",
        ),
        Config(&[
            "[[guard]]",
            "name = \"etcd-main\"",
            "device = \"LABEL=etcd-main\"",
            "publish = \"/var/lib/etcd\"",
            "data_dir = \"default\"",
            "owner = \"etcd:etcd\"",
        ]),
        Type(&[
            "volhold config check",
            "systemctl reload volhold",
            "volhold status  # until nothing is doubted",
            "volhold enable --preset etcd-service etcd-main --dry-run",
            "volhold enable --preset etcd-service etcd-main",
            "volhold doctor etcd-main",
        ]),
        Text(
            "A running etcd does not notice. `k3s`, `rke2` and `kube-aws` are further presets, for the units of those.",
        ),
        Head("Traps"),
        Row(
            "fstab",
            "A line for the volume, a mount unit or an automount unit is a second mounter: `volhold enable` refuses and names it. \
             With `nofail` such a line is how an empty etcd starts on the root disk.",
        ),
        Row(
            "Debian's etcd-server",
            "Its installation starts etcd at once, and its purge removes /var/lib/etcd with all that is mounted there. Stop it \
             before, `apt-mark hold etcd-server` afterwards, and unmount before you purge.",
        ),
        Row(
            "Restart=",
            "A start that failed because of a dependency is not tried again by systemd. The gate therefore waits and does not fail.",
        ),
        Head("What was tried"),
        Text(
            "This, from the refusals to the reboot, with Debian 12's unit, a real systemd and a real etcd, and each broken layer that \
             `volhold doctor` has to find. Of k3s, rke2 and kube-aws only the units' text was checked, by systemd-analyze.",
        ),
        Head("What was not"),
        Text(NEVER_ON_EC2),
    ],
};

pub const KUBEADM: Topic = Topic {
    name: "kubeadm",
    about: "volhold on a master of kubeadm with a stacked etcd",
    parts: &[
        Text(
            "A static pod asks no unit. So there are three layers: kubelet waits for the gate; the patched manifest wants the ready file \
             and an existing directory; and the directory under the mount is immutable, so that nothing can be written there \
             while the volume is not mounted. Each suffices.",
        ),
        Config(&[
            "[[guard]]",
            "name = \"etcd-main\"",
            "device = \"LABEL=etcd-main\"",
            "publish = [{ from = \"etcd\", at = \"/var/lib/etcd\" }]",
            "data_dir = \"etcd\"",
        ]),
        Text(
            "Published like this, kubeadm finds /var/lib/etcd empty on a new master, without lost+found, and nobody needs the \
             `rm -rf` that recipes put before it.",
        ),
        Type(&[
            "volhold enable --preset kubeadm etcd-main",
            "kubeadm init --patches /etc/volhold/kubeadm  # join and upgrade likewise",
            "volhold doctor etcd-main",
        ]),
        Text(
            "On a master that runs already, `kubeadm init phase etcd local --patches /etc/volhold/kubeadm` writes the manifest anew, \
             which restarts etcd once.",
        ),
        Head("Traps"),
        Row(
            "an upgrade without --patches",
            "kubeadm then writes its own manifest, whose directory is made where it is missing. kubelet still waits at boot, and the \
             seal still holds; `volhold doctor` says what is gone.",
        ),
        Row(
            "patience",
            "kubelet tries a pod whose volume is not there again after up to two minutes: so long etcd may start after the gate.",
        ),
        Row("a running container", "To stop kubelet does not stop etcd. Under an open gate `at_run_time` is what can."),
        Head("What was tried"),
        Text("The start order, with a real systemd and a stand-in for kubelet; the patch as text."),
        Head("What was not"),
        Text("A real kubelet and a real kubeadm."),
        Text(NEVER_ON_EC2),
    ],
};

pub const KOPS: Topic = Topic {
    name: "kops",
    about: "volhold on a master of kops, beside etcd-manager",
    parts: &[
        Text(
            "etcd-manager attaches and mounts by itself, and formats what it takes for blank. volhold comes before it: it brings the \
             volume, looks at it and mounts it at /mnt/master-VOLUME before kubelet starts. etcd-manager then finds its volume \
             mounted and neither attaches nor formats one. kubelet waits until every guard is decided, not until it is open: \
             a held volume stays claimed, so that etcd-manager cannot mount or format it.",
        ),
        Config(&[
            "[[guard]]",
            "name = \"etcd-main\"",
            "provider = \"ebs\"",
            "volume_tags = [\"k8s.io/etcd/main\", \"KubernetesCluster=example.k8s.local\"]",
            "publish = \"/mnt/master-{volume}\"",
            "restart = \"etcd-manager\"",
            "",
            "[[guard]]",
            "name = \"etcd-events\"",
            "provider = \"ebs\"",
            "volume_tags = [\"k8s.io/etcd/events\", \"KubernetesCluster=example.k8s.local\"]",
            "publish = \"/mnt/master-{volume}\"",
            "restart = \"etcd-manager\"",
        ]),
        Type(&[
            "volhold fleet --cluster example.k8s.local  # which volume stands out",
            "volhold enable --preset kops etcd-main etcd-events",
            "volhold doctor",
        ]),
        Text(
            "Package and configuration come by AMI or `fileAssets` of each master's instance group. A hook of kops with \
             `before: [kubelet.service]` does not hold kubelet when it fails; the drop-in that `volhold enable` writes does.",
        ),
        Head("Its limits, plainly"),
        Row(
            "a volume that cannot be read is formatted (the first incident)",
            "Prevented: etcd-manager is never asked about a volume that volhold has mounted, and cannot open one that it holds.",
        ),
        Row(
            "a new empty etcd beside the old data (the second)",
            "Detected, not prevented. Which dir etcd uses is decided inside of etcd-manager after the mount, from its `state`. What \
             lies on the volume at boot is judged, and held where an empty dir is selected beside a full one. What etcd-manager \
             does under the open gate is told: in the status, by an alert, in the journal. `at_run_time = \"freeze\"` stops the \
             process that has the new dir open; that is your choice and not the default.",
        ),
        Row(
            "etcd-manager started first",
            "If a guard opens only after kubelet has started, etcd-manager does not see the mount. The status says `mount-unseen`; \
             restart that container, or let `restart = \"etcd-manager\"` do it.",
        ),
        Row(
            "permissions",
            "A kops master may describe and attach, and neither tag nor snapshot. Nothing else is missing without; \
             `volhold doctor` tries out what is permitted.",
        ),
        Row(
            "its own migration and restore",
            "While its `state` says that one is under way, the old data lies complete in data-trashcan and etcd starts: only \
             etcd-manager can end that.",
        ),
        Head("After an empty start beside old data"),
        Type(&["volhold explain etcd-main", "volhold rollback etcd-main --to data-trashcan/OLD-TOKEN"]),
        Head("What was tried"),
        Text(
            "The layout of the volume, `state`, trashcan and token, with data of real etcds; the start order with a stand-in for \
             kubelet; the choice of the volume and its attachment against a simulator of EC2.",
        ),
        Head("What was not"),
        Text("kops, nodeup and etcd-manager themselves."),
        Text(NEVER_ON_EC2),
    ],
};

pub const WITHOUT_AWS: Topic = Topic {
    name: "without-aws",
    about: "volhold without AWS: any block device, and image files",
    parts: &[
        Text(
            "Nothing in the judgement needs a cloud. A guard of the provider `local`, which is the default, takes a path, a UUID, a \
             label or an image file, and asks nobody.",
        ),
        Config(&[
            "[[guard]]",
            "name = \"etcd-main\"",
            "device = \"UUID=11111111-2222-4333-8444-5555555555aa\"",
            "publish = \"/var/lib/etcd\"",
            "data_dir = \"default\"",
        ]),
        Head("What is the same"),
        Text(
            "The claim, the reading, the proof of blankness, fsck, the data dirs, the ledgers, the gate, the status, the alerts.",
        ),
        Head("What is less"),
        Row(
            "noise is never blank",
            "A fresh encrypted volume reads as noise. On EBS its age and origin say that nothing was ever written to it; without a \
             provider nobody can say so, and it is refused as `unknown-data`. Write zeroes to it yourself, if you are sure.",
        ),
        Row(
            "no witness outside",
            "What the volume held is on record on the volume and on the node. If both are new, nobody remembers: a wiped disk in \
             a new machine looks like a new one.",
        ),
        Row(
            "a new volume is not told by its age",
            "An empty start is allowed once on a filesystem that volhold itself has made, where `fresh` says so.",
        ),
        Row(
            "a label or a UUID is no identity to format by",
            "`format = \"if-blank\"` wants a path: what is written on a device cannot name a blank one.",
        ),
        Row("snapshots", "There are none: `volhold explain` offers a copy with dd where it would offer one."),
        Head("Elsewhere"),
        Text(
            "Disks of other clouds, of a hypervisor or of a rack are block devices like any other. Network filesystems are not: etcd \
             should not live there, and volhold mounts ext4 and XFS only.",
        ),
        Type(&["volhold inspect DEVICE", "volhold enable --preset etcd-service etcd-main", "volhold doctor etcd-main"]),
        Head("What was tried"),
        Text(
            "All tests that are not about EC2 run so, on loop devices and image files, with real mkfs, e2fsck, systemd and etcd.",
        ),
    ],
};
