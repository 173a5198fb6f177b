//! Pages about finding, attaching and owning a volume, and about what is only told.

use super::{COPY, Choice, Page, RETRY, Severity};

const CONFIG: Choice = Choice {
    command: "volhold config check",
    effect: "After correcting the configuration. The agent reads it on `systemctl reload volhold`.",
    safe: true,
};

pub const IN_USE: Page = Page {
    severity: Severity::Trouble,
    cause: "somebody else uses the device, so it is left alone",
    found: "A mount, a swap area, a mapper or RAID device, a loop device or an exclusive open stands on it.",
    means: "An fstab entry, a mount unit, etcd-manager or a person got there first, or it is the wrong device.",
    without: "mkfs with force under a live mount, or two mounters that race at each boot.",
    check: &[
        "lsblk -o NAME,SERIAL,SIZE,FSTYPE,MOUNTPOINTS {device}",
        "findmnt --source {device}",
        "fuser -vm {device}",
        "swapon --show; losetup -l",
    ],
    choices: &[
        Choice {
            command: "fuser -vm {device}",
            effect: "Names who has it. End that use the way it was begun.",
            safe: true,
        },
        CONFIG,
        RETRY,
    ],
};

pub const IDENTITY_MISMATCH: Page = Page {
    severity: Severity::Critical,
    cause: "the device is not the volume that was asked for",
    found: "The serial of the device is not the volume id.",
    means: "Device names moved, or a link points to another disk than it did.",
    without: "Everything that follows would have been done to somebody else's disk.",
    check: &["lsblk -o NAME,SERIAL,SIZE,MOUNTPOINTS", "ls -l /dev/disk/by-id/", "volhold config check"],
    choices: &[CONFIG, RETRY],
};

pub const SIZE_MISMATCH: Page = Page {
    severity: Severity::Trouble,
    cause: "the device does not have the size that it should have",
    found: "The kernel's size differs from the provider's, is zero, or changed while it was read.",
    means: "The volume is being modified, the attachment is half done, or a loop device has no file.",
    without: "A proof over the first half of a volume would have passed for the whole.",
    check: &[
        "blockdev --getsize64 {device}",
        "aws ec2 describe-volumes-modifications --volume-ids {volume}",
        "losetup -l",
    ],
    choices: &[
        RETRY,
        Choice {
            command: "lsblk -b -o NAME,SERIAL,SIZE {device}",
            effect: "Size and serial as the kernel has them now.",
            safe: true,
        },
    ],
};

pub const VOLUME_NOT_FOUND: Page = Page {
    severity: Severity::Trouble,
    cause: "no volume matches what the configuration asks for",
    found: "The provider knows no such volume, or none with these tags in this zone.",
    means: "It was deleted, has other tags, or lies in another zone or account.",
    without: "etcd would have started on the root disk, empty.",
    check: &["aws ec2 describe-volumes --volume-ids {volume}", "volhold config check"],
    choices: &[
        CONFIG,
        RETRY,
        Choice {
            command: "aws ec2 create-volume --snapshot-id SNAPSHOT --availability-zone ZONE",
            effect: "If it is really gone: from the newest snapshot. Then: volhold adopt {name} --restored.",
            safe: true,
        },
    ],
};

pub const VOLUME_AMBIGUOUS: Page = Page {
    severity: Severity::Critical,
    cause: "several volumes or devices match what the configuration asks for",
    found: "More than one candidate, and nothing that tells which one is this member's.",
    means: "A restored copy with the same tags, label or UUID is attached beside the original.",
    without: "The first that answers wins. Which one that is changes from boot to boot.",
    check: &[
        "lsblk -o NAME,SERIAL,SIZE,FSTYPE,UUID,LABEL",
        "aws ec2 describe-volumes --filters Name=tag:Name,Values=NAME",
    ],
    choices: &[
        Choice {
            command: "volhold inspect DEVICE",
            effect: "Once for each candidate: which one holds the data?",
            safe: true,
        },
        CONFIG,
        RETRY,
    ],
};

pub const VOLUME_ELSEWHERE: Page = Page {
    severity: Severity::Trouble,
    cause: "the volume is attached to another machine",
    found: "The provider says that another instance has it.",
    means: "The old master still runs, or it ended and the volume is not let go yet.",
    without: "A forced detach under a running etcd tears its last writes off.",
    check: &["aws ec2 describe-volumes --volume-ids {volume}     which instance", "Is that instance still a master?"],
    choices: &[
        RETRY,
        Choice {
            command: "aws ec2 stop-instances --instance-ids OTHER-INSTANCE",
            effect: "If the other one is no longer wanted: stopped cleanly, it lets the volume go. volhold never detaches.",
            safe: false,
        },
    ],
};

pub const ATTACH_STUCK: Page = Page {
    severity: Severity::Trouble,
    cause: "the volume is being attached, and the device does not appear",
    found: "The provider reports the attachment for longer than it should take, or reports it done without a device here.",
    means: "A known trouble of EC2: a device name that is still in use, or a hypervisor that lags.",
    without: "Endless waiting without a word, or a script that goes on without the volume.",
    check: &[
        "aws ec2 describe-volumes --volume-ids {volume}     state of the attachment",
        "lsblk -o NAME,SERIAL",
        "dmesg | tail",
    ],
    choices: &[
        RETRY,
        Choice {
            command: "aws ec2 reboot-instances --instance-ids THIS-INSTANCE",
            effect: "Often ends it. The volume and its data are not touched by that.",
            safe: true,
        },
    ],
};

pub const NO_PERMISSION: Page = Page {
    severity: Severity::Trouble,
    cause: "volhold is not permitted to do what the guard needs",
    found: "The operating system or the provider refused: not root, a missing capability, a missing IAM permission.",
    means: "The unit's sandbox or the instance profile is narrower than the configuration needs.",
    without: "Silence: a tool without permission to read sees nothing, and nothing looks like blank.",
    check: &["id -u", "ls -l {device}", "systemctl show volhold -p CapabilityBoundingSet,DeviceAllow"],
    choices: &[
        Choice {
            command: "journalctl -u volhold -b -p warning",
            effect: "Names the call that was refused.",
            safe: true,
        },
        RETRY,
    ],
};

pub const THROTTLED: Page = Page {
    severity: Severity::Information,
    cause: "the provider limits the rate of requests, so this takes longer",
    found: "Requests were refused with a rate limit. They are repeated with growing pauses.",
    means: "Something else in this account asks much. It ends by itself.",
    without: "All masters of a rolling update give up together and end without volumes.",
    check: &["volhold status", "Which automation makes so many EC2 requests in this account?"],
    choices: &[
        Choice { command: "volhold wait {name}", effect: "Wait. Nothing is wrong with the data.", safe: true },
        RETRY,
    ],
};

pub const DEVICE_MISSING: Page = Page {
    severity: Severity::Trouble,
    cause: "the device is not there",
    found: "The configured path, link, UUID or label leads to nothing.",
    means: "The volume is not attached yet, udev has made no link yet, or the name is wrong.",
    without: "etcd would have started on the empty directory below the mountpoint, on the root disk.",
    check: &["lsblk -o NAME,SERIAL,SIZE,UUID,LABEL", "ls -l /dev/disk/by-id/ /dev/disk/by-uuid/", "dmesg | tail"],
    choices: &[
        Choice {
            command: "aws ec2 describe-volumes --volume-ids {volume}",
            effect: "Is it attached to this instance?",
            safe: true,
        },
        CONFIG,
        RETRY,
    ],
};

pub const NOT_A_BLOCK_DEVICE: Page = Page {
    severity: Severity::Trouble,
    cause: "what the configuration names is not a block device",
    found: "A directory, a character device, a socket or the like stands at that path.",
    means: "A typing error, or a program that wrote a plain file to /dev while the device was away.",
    without: "\"dd of=/dev/nvme1n1\" without the device makes a file there, and mkfs formats that.",
    check: &["stat {device}", "volhold config check"],
    choices: &[CONFIG, RETRY],
};

pub const RESTORED_VOLUME: Page = Page {
    severity: Severity::Critical,
    cause: "the volume is a restored copy, and nobody has said yet that it shall be used",
    found: "Its records name another volume id, or it was made from a snapshot and this machine has never seen it.",
    means: "Somebody restored a snapshot: perhaps for this machine, perhaps only to look at it.",
    without: "An old state of this member joins again, while its peers remember a newer one.",
    check: &[
        "volhold explain {name}     of which volume, from when, which revision",
        "Do the peers still run? Then an old copy of one member must not join them.",
    ],
    choices: &[
        COPY,
        Choice {
            command: "volhold config check",
            effect: "If the peers are healthy: make a new, blank volume, name it as `device` of this guard, and let the member \
                     rejoin on that. On a peer first: etcdctl member remove {member}, then member add.",
            safe: true,
        },
        Choice {
            command: "volhold adopt {name} --restored",
            effect: "Uses the copy and pins it. Only if all members are restored from the same moment, or this is the only one.",
            safe: false,
        },
    ],
};

pub const RELEASED_BY_OPERATOR: Page = Page {
    severity: Severity::Trouble,
    cause: "a person let the device go, and the time for that is not over",
    found: "A `release` of this guard is on record.",
    means: "Somebody repairs or copies something. Until then volhold neither claims nor examines it.",
    without: "Two hands at once on one filesystem.",
    check: &["volhold explain {name}     until when", "who; fuser -v {device}"],
    choices: &[Choice {
        command: "volhold retry {name}",
        effect: "Ends the release now, claims the device again and examines it. Ask first who is at work.",
        safe: true,
    }],
};

pub const WITNESS_UNREACHABLE: Page = Page {
    severity: Severity::Information,
    cause: "what the volume holds cannot be kept in its tags",
    found: "The tags volhold/… of the volume were not written: no permission (ec2:CreateTags), no network, or 50 tags already.",
    means: "Nothing is held for it. The records on the node and on the volume are kept as ever.",
    without: "One record fewer between a mistake and the data.",
    check: &["volhold status", "aws ec2 describe-tags --filters Name=resource-id,Values={volume}"],
    choices: &[RETRY],
};

pub const CONFIG_CHANGED: Page = Page {
    severity: Severity::Information,
    cause: "the configuration on disk is not the one that the agent runs with",
    found: "A key was changed that an open gate cannot follow: device, fstype, publish, data_dir, mount_options; or the guard was removed.",
    means: "This guard keeps the old value until its gate is closed, which is at the next boot. All else applies already.",
    without: "A change that nobody tested meets its first test at the next boot, on all masters at once.",
    check: &["volhold config check", "volhold config show --origin"],
    choices: &[
        CONFIG,
        Choice {
            command: "systemctl reload volhold",
            effect: "After the old value was put back: reads the configuration again. Open gates stay open, etcd is not touched.",
            safe: true,
        },
    ],
};
