//! Pages about what only EC2 says of a volume.

use super::{Choice, Page, RETRY, Severity};

const LOOK: &str = "aws ec2 describe-volumes --volume-ids {volume}";

pub const ATTACH_REFUSED: Page = Page {
    severity: Severity::Trouble,
    cause: "EC2 refuses to attach the volume, and waiting does not change that",
    found: "Another zone, no attachment left on this instance, a key that cannot be used, or a state that allows none.",
    means: "The instance was started in the wrong zone, is too small, or something about volume or key was changed.",
    without: "An agent that asks for ever, or another volume that happens to fit.",
    check: &[LOOK, "aws ec2 describe-instances --instance-ids ID     zone, block device mapping"],
    choices: &[
        RETRY,
        Choice {
            command: "aws ec2 create-snapshot --volume-id {volume}",
            effect: "If the zone is lost: a volume in another zone is made from a snapshot. Then: volhold adopt {name} --restored.",
            safe: true,
        },
    ],
};

pub const MULTI_ATTACH: Page = Page {
    severity: Severity::Critical,
    cause: "the volume may be attached to several instances at once",
    found: "EC2 says that multi-attach is on, or names more than one attachment.",
    means: "Two kernels may write to one ext4 or XFS, of which neither knows about the other.",
    without: "Both mount it, and within minutes the filesystem is destroyed.",
    check: &[LOOK],
    choices: &[
        Choice {
            command: "aws ec2 modify-volume --volume-id {volume} --no-multi-attach-enabled",
            effect: "Switches it off, while at most one instance has the volume.",
            safe: true,
        },
        RETRY,
    ],
};

pub const SNAPSHOT_REFUSED: Page = Page {
    severity: Severity::Trouble,
    cause: "the snapshot that has to come before a risky step cannot be had",
    found: "The guard says snapshot = \"required\", the next step would write to the filesystem, and EC2 does not take a snapshot.",
    means: "No permission (ec2:CreateSnapshot, and ec2:CreateTags for it), no network, or too many requests.",
    without: "A repair that goes wrong, on the only copy.",
    check: &["volhold doctor {name}", LOOK],
    choices: &[
        RETRY,
        Choice {
            command: "aws ec2 create-snapshot --volume-id {volume}",
            effect: "Takes it by hand, from where it is permitted. Then: snapshot = \"best-effort\", systemctl reload volhold.",
            safe: true,
        },
    ],
};

pub const VOLUME_ENLARGED: Page = Page {
    severity: Severity::Information,
    cause: "the volume is larger than the filesystem on it",
    found: "The kernel shows a larger device than the filesystem has room for, by 16 MiB or more.",
    means: "The volume was made larger (ModifyVolume), and the new room is not used.",
    without: "A volume that was paid for and still runs full.",
    check: &["lsblk -b {device}", "df -h"],
    choices: &[
        Choice {
            command: "resize2fs {device}",
            effect: "Grows an ext4 in use, now; an XFS with xfs_growfs and its mountpoint. Or: grow = \"online\" in the configuration.",
            safe: true,
        },
        RETRY,
    ],
};

pub const MOUNT_UNSEEN: Page = Page {
    severity: Severity::Trouble,
    cause: "etcd-manager was started before the volume was mounted, and does not see it",
    found: "In the mount namespace of its process there is no mount of the volume.",
    means: "The guard opened late, after kubelet had started the container; its host path is not propagated.",
    without: "etcd-manager that waits for a volume which is there, and a person who looks for it in EC2.",
    check: &["pgrep -a etcd-manager", "grep {volume} /proc/PID/mountinfo"],
    choices: &[
        Choice {
            command: "crictl stop $(crictl ps -q --name etcd-manager)",
            effect: "kubelet starts that container anew, and it sees the volume. Or: restart = \"etcd-manager\" in the configuration.",
            safe: true,
        },
        RETRY,
    ],
};

pub const PROVIDER_UNREACHABLE: Page = Page {
    severity: Severity::Trouble,
    cause: "the volume is not attached to this machine, and EC2 cannot be asked for it",
    found: "EC2 or the instance metadata service does not answer, or there are no credentials.",
    means: "No network yet, no route to EC2's endpoint, no instance profile, or the metadata service is switched off.",
    without: "A tool that takes what it can see for all there is.",
    check: &[
        "curl -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token",
        "journalctl -u volhold | grep ec2",
    ],
    choices: &[
        RETRY,
        Choice {
            command: "aws ec2 attach-volume --volume-id {volume} --instance-id ID --device /dev/sdf",
            effect: "From another machine: attached by hand, the volume is found by its serial, without EC2.",
            safe: true,
        },
    ],
};

pub const DELETED_WITH_INSTANCE: Page = Page {
    severity: Severity::Information,
    cause: "EC2 deletes the volume together with this instance",
    found: "DeleteOnTermination is on for this attachment.",
    means: "It was attached by a launch template or by hand. When the instance ends, so does the data of this member.",
    without: "The first replacement of this master finds no volume.",
    check: &[LOOK],
    choices: &[
        Choice {
            command: "aws ec2 modify-instance-attribute --cli-input-json file://keep.json",
            effect: "Switches it off: keep.json names InstanceId and, in BlockDeviceMappings, the device with DeleteOnTermination false.",
            safe: true,
        },
        RETRY,
    ],
};
