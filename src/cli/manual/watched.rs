//! Pages about the volume under an open gate: its mount, its device, whether it takes writes.

use super::{COPY, Choice, Page, RETRY, Severity};

const OTHERS_FIRST: Choice = Choice {
    command: "etcdctl endpoint status --cluster",
    effect: "On another member: only while the others have their majority may this one be stopped.",
    safe: true,
};

pub const MOUNT_LOST: Page = Page {
    severity: Severity::Critical,
    cause: "what is seen where the volume is published is not the volume any more",
    found: "The gate is open, and the mount at this place was taken away, or another one lies over it or over the data dir.",
    means: "Somebody unmounted it (a lazy unmount also works while etcd runs), or mounted something else there. An etcd that \
            runs goes on with the files that it has open; whatever is started now sees the wrong directory.",
    without: "The next start of etcd, or a backup, would work on an empty or foreign directory and call it healthy.",
    check: &[
        "findmnt --all | grep {publish}     what is mounted there, and on top of it?",
        "ls -l /proc/$(pidof etcd)/fd | grep member     which files does etcd have open?",
        "journalctl -b | grep -i mount     who did it, and when?",
    ],
    choices: &[
        OTHERS_FIRST,
        Choice {
            command: "umount {publish}",
            effect: "Takes away what lies over the volume, where something does: look with findmnt first which of the two is on top. \
                     The doubt ends by itself.",
            safe: false,
        },
        Choice {
            command: "mount {device} {publish}",
            effect: "Where nothing is mounted there any more, and {device} is still this volume. The doubt ends by itself; or reboot \
                     this master while the others are healthy, and volhold examines the volume before etcd starts.",
            safe: false,
        },
    ],
};

pub const DEVICE_LOST: Page = Page {
    severity: Severity::Critical,
    cause: "the device of an open gate is gone",
    found: "The kernel does not list the volume's device any more, lists it without a size, or has another disk under its number.",
    means: "The volume was detached or pulled while it was mounted. The mount table still lists it, names are still shown from \
            memory, and no write reaches it.",
    without: "etcd would fail at its next write with an error that speaks of a read-only filesystem, and nobody would look at the \
              volume.",
    check: &[
        "lsblk; dmesg | tail -n 50     when did the disk go, and what did the kernel say?",
        "aws ec2 describe-volumes --volume-ids {volume}     who has it now?",
    ],
    choices: &[
        OTHERS_FIRST,
        Choice {
            command: "volhold status",
            effect: "After etcd was stopped, the old mount unmounted and the volume attached again: a reboot of this master is the \
                     plain way, and volhold examines the volume before etcd starts.",
            safe: true,
        },
    ],
};

pub const FILESYSTEM_READ_ONLY: Page = Page {
    severity: Severity::Critical,
    cause: "the filesystem under an open gate takes no writes",
    found: "The mount, or its filesystem, is read-only: the kernel says so, or it refused a test write in `.volhold` (EROFS).",
    means: "Somebody remounted it, or ext4 met an error and stopped writing. After such an error the mount table of most kernels \
            goes on to say `rw`.",
    without: "etcd would end with a message about its log, be started again, and end again.",
    check: &[
        "dmesg | grep -i -e ext4 -e xfs     was there an error, and on which block?",
        "grep . /sys/fs/ext4/*/errors_count     how many errors has ext4 met?",
        "findmnt --output TARGET,OPTIONS,FS-OPTIONS {publish}     is it `ro` by somebody's hand?",
    ],
    choices: &[
        COPY,
        OTHERS_FIRST,
        Choice {
            command: "mount -o remount,rw {publish}",
            effect: "Only where somebody made it read-only by hand and the kernel speaks of no error.",
            safe: false,
        },
    ],
};

pub const FILESYSTEM_ERRORS: Page = Page {
    severity: Severity::Trouble,
    cause: "ext4 has met errors on this volume since it was last checked",
    found: "The superblock's count of errors is not zero. It stays until e2fsck clears it.",
    means: "Something in the filesystem's own structures was wrong when the kernel read it: a damaged block, or a disk that \
            answered wrongly. What etcd can still read and write is not known from this.",
    without: "The damage would be met again by chance, perhaps on several masters at once.",
    check: &[
        "grep . /sys/fs/ext4/*/*error*     how many, in which function of ext4, first and last when?",
        "dmesg | grep -i ext4     the kernel's own words",
    ],
    choices: &[
        COPY,
        Choice {
            command: "volhold status",
            effect: "While the other members are healthy, reboot this master: volhold lets e2fsck check the volume before etcd starts.",
            safe: true,
        },
    ],
};

pub const WRITE_FAILED: Page = Page {
    severity: Severity::Critical,
    cause: "a test write on the volume of an open gate failed",
    found: "Every fifteen seconds volhold writes a few bytes in `.volhold` and waits until they are on the disk. The kernel \
            answered with an error.",
    means: "The disk fails, or the filesystem has shut itself down, as XFS does after an error in its log. The mount table \
            shows nothing of it.",
    without: "It would be found when etcd ends; until then it looks healthy while nothing that it does not write is asked of it.",
    check: &[
        "dmesg | tail -n 50     an I/O error, or `Filesystem has been shut down`?",
        "volhold explain {name}     what was found",
        "journalctl -u etcd -n 50     does etcd have the same trouble?",
    ],
    choices: &[OTHERS_FIRST, COPY, RETRY],
};

pub const WRITE_STALLED: Page = Page {
    severity: Severity::Critical,
    cause: "a test write on the volume of an open gate does not come back",
    found: "A write of a few bytes with fsync has been under way for more than ten seconds. No other one is begun before it ends.",
    means: "The volume stalls: an impaired EBS volume, credits or throughput used up, or a path that hangs. Linux waits for EBS \
            without end, so it answers with no error.",
    without: "etcd would lose its leadership and time out, and the cause would be sought in the network.",
    check: &[
        "aws ec2 describe-volume-status --volume-ids {volume}     does EC2 call it impaired?",
        "cat /proc/pressure/io     is everything that uses disks waiting?",
        "iostat -x 1 3     requests in flight and none done?",
    ],
    choices: &[
        OTHERS_FIRST,
        Choice {
            command: "volhold status",
            effect: "The doubt ends by itself when the write has come back. A stall that stays is one for the provider.",
            safe: true,
        },
    ],
};
