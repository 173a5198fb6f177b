//! Pages about making, checking and mounting a filesystem, and about volhold's own records.

use super::{ADOPT, COPY, Choice, Page, RELEASE, RETRY, Severity};

pub const MKFS_FAILED: Page = Page {
    severity: Severity::Trouble,
    cause: "the volume was proven blank, but making a filesystem on it failed",
    found: "mkfs ended with an error, or what it wrote did not read back with the UUID that was chosen for it.",
    means: "The device takes no writes (read-only, failing, full pool below it), or mkfs is missing or too old.",
    without: "A script that ignores mkfs's answer mounts whatever is there, or goes on with an empty directory.",
    check: &["dmesg | tail -50", "blockdev --getro {device}", "mkfs.ext4 -V"],
    choices: &[
        RETRY,
        Choice { command: "volhold inspect {device}", effect: "What stands there now.", safe: true },
        RELEASE,
    ],
};

pub const MOUNT_FAILED: Page = Page {
    severity: Severity::Critical,
    cause: "the filesystem on the volume does not mount; a failed mount is never a reason to format",
    found: "The kernel refused to mount a filesystem that is there and has a name.",
    means: "Mount options that it does not know, a journal that cannot be replayed, a damaged structure, or a device that \
            is busy. The data is very probably untouched.",
    without: "This is the first incident that volhold was made for: \"mount failed, so it must be new\", and mkfs.",
    check: &[
        "dmesg | tail -50     the kernel's own words",
        "volhold config check     are the mount options right for this kernel?",
        "dumpe2fs -h {device}",
    ],
    choices: &[
        COPY,
        RETRY,
        Choice {
            command: "e2fsck -fn /elsewhere/{name}.img",
            effect: "On the copy, changing nothing: what is wrong with the filesystem?",
            safe: true,
        },
        Choice {
            command: "xfs_repair -n /elsewhere/{name}.img",
            effect: "The same for an xfs. Its log is not replayed by this: what it reports may be in the log only.",
            safe: true,
        },
        RELEASE,
    ],
};

pub const FSCK_FAILED: Page = Page {
    severity: Severity::Critical,
    cause: "the filesystem has errors that may only be repaired by a person's decision",
    found: "e2fsck -p repaired nothing and asks for a manual run, or failed itself.",
    means: "A repair can move or drop files. Which ones, it says only in a dry run.",
    without: "Tools run fsck -a or -y at boot: files of etcd land in lost+found, and etcd starts on what is left.",
    check: &["volhold explain {name}     what e2fsck said", "dmesg | grep -i ext4"],
    choices: &[
        COPY,
        Choice {
            command: "e2fsck -fn /elsewhere/{name}.img",
            effect: "On the copy, a dry run: which files would a repair touch?",
            safe: true,
        },
        Choice {
            command: "volhold release {name} --for 1h",
            effect: "Then e2fsck -f {device} by hand, answering each question, and volhold retry {name}. While it is let go, \
                     anything else on this machine can take it too.",
            safe: false,
        },
    ],
};

pub const NOT_PUBLISHABLE: Page = Page {
    severity: Severity::Trouble,
    cause: "a directory of the volume that is to be published cannot be",
    found: "What `publish` names with `from` is not on the volume, is a symbolic link or no directory; or the data dir lies in \
            none of the directories that are published.",
    means: "The configuration does not fit what is on this volume. volhold makes such a directory on a new volume only: on one \
            that is in use, a missing one may be a lost one.",
    without: "An empty directory would take the place of the one that was meant, and etcd would start on nothing.",
    check: &["volhold explain {name}     what stands where, and which data dirs were found", "volhold config show"],
    choices: &[
        Choice {
            command: "volhold config show --origin",
            effect: "Compare `from` and `data_dir` with the data dirs that explain lists; correct the wrong one and reload.",
            safe: true,
        },
        RETRY,
        Choice {
            command: "volhold release {name} --for 1h",
            effect: "Then mount {device}, make or move the directory by hand, unmount, and volhold retry {name}. While it is \
                     let go, anything else on this machine can take it too.",
            safe: false,
        },
    ],
};

pub const MOUNTPOINT_NOT_EMPTY: Page = Page {
    severity: Severity::Trouble,
    cause: "files lie in the directory over which the volume would be mounted",
    found: "The mountpoint on the root disk is not empty. Mounting over it would hide what is there.",
    means: "etcd or another program ran here without the volume and wrote to the root disk. That may be newer data than the \
            volume's.",
    without: "The mount hides it, and the machine swings between two data sets depending on what starts first.",
    check: &["ls -la {publish}", "volhold inspect {publish}     is it etcd data, and how far did it get?"],
    choices: &[
        Choice {
            command: "volhold inspect {publish}",
            effect: "Compare cluster id and revision with the volume's before you decide which is the right one.",
            safe: true,
        },
        Choice {
            command: "mv {publish} {publish}.found-$(date +%F) && mkdir {publish}",
            effect: "Puts the directory aside on the root disk, whole. Then: volhold retry {name}.",
            safe: true,
        },
        RETRY,
    ],
};

pub const WRONG_VOLUME: Page = Page {
    severity: Severity::Critical,
    cause: "another volume is mounted where this one belongs",
    found: "The mounted device's number is not that of the guarded device.",
    means: "Somebody mounted another device at this path, or device names moved after a reboot (nvme1n1 became nvme2n1).",
    without: "\"Something is mounted there\" passes for \"our volume is mounted there\", and etcd starts on another's data.",
    check: &["findmnt {publish}", "lsblk -o NAME,SERIAL,SIZE,MOUNTPOINTS", "grep -n {publish} /etc/fstab"],
    choices: &[
        Choice {
            command: "findmnt -o SOURCE,TARGET,OPTIONS {publish}",
            effect: "Which device it is. volhold unmounts nothing that it did not mount.",
            safe: true,
        },
        RETRY,
        Choice {
            command: "umount {publish}",
            effect: "Only when nothing runs on it. Take the entry out of fstab or the mount unit too, then volhold retry \
                     {name}.",
            safe: false,
        },
    ],
};

pub const FILESYSTEM_FEATURE_UNKNOWN: Page = Page {
    severity: Severity::Trouble,
    cause: "the filesystem uses a feature that this machine's tools or kernel do not know",
    found: "A feature bit in the superblock that e2fsck or the kernel has no name for.",
    means: "A newer e2fsprogs made or changed this filesystem, or a bit of the superblock has flipped.",
    without: "The mount fails with a word about \"unsupported features\", and the next script takes that for unformatted.",
    check: &["dumpe2fs -h {device} | grep -i features", "e2fsck -V", "uname -r"],
    choices: &[
        Choice {
            command: "dumpe2fs -h {device}",
            effect: "Names the features. On a machine with newer e2fsprogs it names the unknown one too.",
            safe: true,
        },
        COPY,
        RETRY,
    ],
};

pub const FILESYSTEM_REPLACED: Page = Page {
    severity: Severity::Critical,
    cause: "the volume carries another filesystem than the one on record, so somebody has run mkfs on it",
    found: "The superblock's UUID is not the one that records name for this volume; the superblock says when mkfs ran.",
    means: "The old filesystem, and the etcd data in it, was overwritten. volhold has not written to the new one.",
    without: "An empty etcd starts on it, healthy to every monitor.",
    check: &[
        "dumpe2fs -h {device} | grep -i -e uuid -e created",
        "journalctl --since=-2d | grep -i mkfs     who ran it",
        "aws ec2 describe-snapshots --filters Name=volume-id,Values={volume}",
    ],
    choices: &[
        COPY,
        Choice {
            command: "aws ec2 create-volume --snapshot-id SNAPSHOT --availability-zone ZONE",
            effect: "Restores the newest snapshot to a new volume. Configure that one, then: volhold adopt {name} --restored.",
            safe: true,
        },
        Choice {
            command: "volhold adopt {name} --replacement",
            effect: "The other members keep the data and this one rejoins empty on the new filesystem. On a healthy peer \
                     first: etcdctl member remove {member}, then member add.",
            safe: false,
        },
        ADOPT,
    ],
};

pub const NO_SPACE: Page = Page {
    severity: Severity::Trouble,
    cause: "the filesystem is full, so neither etcd nor the records can be written safely",
    found: "No blocks or inodes are left, or fewer than etcd needs to open its log.",
    means: "Snapshots, old data dirs or somebody's files fill the volume. etcd fails while it starts, or right after.",
    without: "etcd starts, fails at its first segment, and restarts in a loop while its log is cut in the middle.",
    check: &["df -h {publish}; df -i {publish}", "du -xh --max-depth=2 {publish} | sort -h | tail"],
    choices: &[
        Choice {
            command: "aws ec2 modify-volume --volume-id {volume} --size GIB",
            effect: "Grows the volume; resize2fs {device} afterwards. Nothing is lost.",
            safe: true,
        },
        Choice {
            command: "du -xh --max-depth=2 {publish}",
            effect: "Finds what can be moved elsewhere. Move, do not delete, until etcd has been well for a day.",
            safe: true,
        },
        RETRY,
    ],
};

pub const WRONG_OWNER: Page = Page {
    severity: Severity::Trouble,
    cause: "etcd's user cannot write to its data dir",
    found: "The data dir, or a directory above it, belongs to another user or lacks permissions.",
    means: "The volume was used by an etcd with another user id, or somebody copied the data as root.",
    without: "etcd ends with \"permission denied\" at each start, and the next hand is tempted to make a new directory.",
    check: &["ls -lan {publish}", "id etcd", "volhold config check     owner and mode of this guard"],
    choices: &[
        Choice { command: "ls -lanR {publish}", effect: "Whose files are they? Changes nothing.", safe: true },
        Choice {
            command: "chown -R etcd:etcd {dir}",
            effect: "Gives the data dir to etcd's user. The contents stay as they are.",
            safe: true,
        },
        RETRY,
    ],
};

pub const FILESYSTEM_DUPLICATE: Page = Page {
    severity: Severity::Critical,
    cause: "the volume is a copy of one that is mounted on this machine",
    found: "The kernel refused to mount an XFS whose UUID is mounted from another device already.",
    means: "A volume made from a snapshot, or a clone, is attached beside its original. One of the two is not the one that \
            etcd is meant to have.",
    without: "Tools add nouuid and mount both: an etcd on the copy joins its cluster with the identity of the original, and \
              an older state.",
    check: &[
        "findmnt -t xfs -o SOURCE,UUID,TARGET     which device has it, and where",
        "lsblk -o NAME,SERIAL,SIZE,FSTYPE,UUID,MOUNTPOINTS",
        "volhold status     is the other one guarded here?",
    ],
    choices: &[
        Choice {
            command: "volhold explain {name}",
            effect: "Which device has the other one. If the configuration names the wrong volume, correct `device` there.",
            safe: true,
        },
        COPY,
        Choice {
            command: "volhold retry {name}",
            effect: "After the copy that is not wanted was unmounted or detached.",
            safe: true,
        },
        RELEASE,
    ],
};

pub const LEDGER_BROKEN: Page = Page {
    severity: Severity::Critical,
    cause: "volhold's own record is damaged, so nobody can say what this volume should hold",
    found: "An entry in the middle of a ledger fails its checksum, or two ledgers pin different identities.",
    means: "The disk under the ledger is failing, the file was edited, or two machines wrote to one volume.",
    without: "A record that is silently taken for empty is the same as no memory: everything counts as new.",
    check: &[
        "volhold explain {name} -o json     which ledger, and what it says",
        "dmesg | grep -i 'I/O error'",
        "Is the volume attached to two machines?",
    ],
    choices: &[
        COPY,
        Choice {
            command: "volhold inspect {device}",
            effect: "Is the volume itself readable and healthy?",
            safe: true,
        },
        ADOPT,
    ],
};

pub const INTENT_UNFINISHED: Page = Page {
    severity: Severity::Critical,
    cause: "an mkfs was begun on this volume, and its end is not on record",
    found: "A recorded intent to format, without the fact; the attachment has ended since, or half of a filesystem \
            stands there.",
    means: "The machine went down during mkfs, or the volume was somewhere else in between. What stands there now may be \
            half a filesystem, or somebody's data.",
    without: "mkfs again: harmless if the volume was here all the time, and fatal if somebody used it in between.",
    check: &["volhold inspect {device}", "aws ec2 describe-volumes --volume-ids {volume}     AttachTime"],
    choices: &[
        Choice {
            command: "volhold inspect {device}",
            effect: "Is there anything besides the filesystem that was intended?",
            safe: true,
        },
        COPY,
        Choice {
            command: "aws ec2 create-volume --size GIB --availability-zone ZONE",
            effect: "The simple way out: a new volume instead of this one. Nothing of yours can be on a volume that volhold \
                     was about to format, unless somebody used it since.",
            safe: true,
        },
        Choice {
            command: "volhold adopt {name}",
            effect: "Where the intended filesystem stands there, whole: says that it is right.",
            safe: false,
        },
        Choice {
            command: "volhold release {name} --for 1h",
            effect: "Where half of one stands: lets you make it yourself. Then volhold adopt {name} --new-cluster, or \
                     --replacement for a member that rejoins.",
            safe: false,
        },
    ],
};
