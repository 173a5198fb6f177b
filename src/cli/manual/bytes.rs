//! Pages about what stands on a device as bytes, and why it may not be formatted.

use super::{COPY, Choice, Page, RELEASE, RETRY, Severity};

pub const BACKUP_SUPERBLOCK_FOUND: Page = Page {
    severity: Severity::Critical,
    cause: "the volume does not mount, and it is not blank, so it will not be formatted",
    found: "The place of the primary superblock holds nothing usable, but copies of it that only a filesystem writes stand \
            further in (ext4 keeps them in some block groups, XFS in each allocation group).",
    means: "This is a damaged filesystem. Its contents are very probably still there.",
    without: "A tool that asks only blkid or wipefs is told \"nothing\" and runs mkfs. This member would start empty: its \
              peers reject it, or, where a second member meets the same, the cluster restarts empty.",
    check: &[
        "volhold inspect {device}",
        "dmesg | grep -i -e nvme -e ext4 -e xfs     what the kernel said about the device",
        "Did anybody run dd, wipefs or mkfs on this machine, or attach the volume to another one?",
    ],
    choices: &[
        COPY,
        Choice {
            command: "volhold plan repair {name}",
            effect: "Prints, for exactly this volume, each step from a copy to an open gate, with the superblock that was found.",
            safe: true,
        },
        Choice {
            command: "e2fsck -fn -b 32768 -B 4096 /elsewhere/{name}.img",
            effect: "On the copy, changing nothing: does the filesystem hold together from a backup superblock? For XFS: \
                     xfs_repair -n.",
            safe: true,
        },
        Choice {
            command: "volhold release {name} --for 1h",
            effect: "Then repair {device} as you did the copy (e2fsck -b 32768 -B 4096), and end with: volhold retry \
                     {name}. While it is let go, anything else on this machine can take it too.",
            safe: false,
        },
    ],
};

pub const SIGNATURE_FOUND: Page = Page {
    severity: Severity::Critical,
    cause: "something else than the expected filesystem stands on the volume, so it will not be formatted",
    found: "A signature of a filesystem, a partition table, a RAID or LVM member, a swap area or an encrypted container.",
    means: "Somebody uses this volume for something, or used it before. It may be the wrong volume.",
    without: "mkfs.ext4 without a terminal asks nobody: it writes over an XFS, a LUKS header or a partition table, and ends \
              with success.",
    check: &[
        "volhold inspect {device}",
        "lsblk -o NAME,SERIAL,SIZE,FSTYPE,MOUNTPOINTS {device}",
        "Is this the volume that the configuration means? Compare the serial with the volume id.",
    ],
    choices: &[
        COPY,
        Choice {
            command: "volhold config check",
            effect: "Does the guard name the right device? If not, correct it; the agent reads it on `systemctl reload volhold`.",
            safe: true,
        },
        RETRY,
    ],
};

pub const ETCD_DATA_FOUND: Page = Page {
    severity: Severity::Critical,
    cause: "etcd data stands on the volume, though no filesystem is left around it, so it will not be formatted",
    found: "Pages of an etcd backend (bolt meta pages) or records of its write-ahead log, at raw offsets.",
    means: "A filesystem with an etcd data dir was here. Its own structures are gone, the data is at least partly not.",
    without: "The volume would have counted as blank, and mkfs would have written over what can still be carved out.",
    check: &[
        "volhold inspect {device}     the offsets of what was found",
        "What do the peers say? etcdctl endpoint status --cluster: with a majority alive this copy is not needed.",
    ],
    choices: &[
        COPY,
        Choice {
            command: "volhold inspect /elsewhere/{name}.img",
            effect: "The same look at the copy, to be sure that the copy is whole.",
            safe: true,
        },
        Choice {
            command: "etcdctl member remove {member}",
            effect: "On a healthy peer, if you decide to give this copy up: then add the member again on a new volume. Keep \
                     this volume until the cluster has been well for days.",
            safe: false,
        },
    ],
};

pub const UNKNOWN_DATA: Page = Page {
    severity: Severity::Critical,
    cause: "the volume holds bytes that nobody recognises, and unknown is not blank",
    found: "No known signature, but at least one block that is neither zero nor what a never-written encrypted volume reads \
            as; or random-looking content without a provider that says the volume is new.",
    means: "Something was written here: a filesystem unknown to this version, an encrypted container whose header lies \
            elsewhere, a database on the raw device, or the rest of something.",
    without: "Every usual tool calls such a device unformatted, and the next one formats it.",
    check: &[
        "volhold inspect {device}     the first offset that holds something, its entropy and its bytes",
        "xxd -s OFFSET -l 512 {device}",
        "Who made this volume, and was it ever attached to anything else?",
    ],
    choices: &[
        COPY,
        Choice {
            command: "file -s {device}",
            effect: "A second opinion about the first bytes. It changes nothing.",
            safe: true,
        },
        Choice {
            command: "aws ec2 create-volume --size GIB --availability-zone ZONE",
            effect: "If the volume is of no use: volhold has no verb that formats it. Make a new one, configure that one, and keep this \
                     one until you are sure.",
            safe: true,
        },
    ],
};

pub const UNREADABLE: Page = Page {
    severity: Severity::Critical,
    cause: "a part of the volume cannot be read, and what cannot be read is neither blank nor healthy",
    found: "Reads failed with an error of the device or of a file on it.",
    means: "The volume, its attachment or the filesystem is failing. What is under the unreadable part is not known.",
    without: "blkid answers a failed read with the same code as a blank device. The volume would have been formatted, or \
              etcd started on a part of its data.",
    check: &[
        "dmesg | grep -i -e 'I/O error' -e nvme     which sectors, since when",
        "aws ec2 describe-volume-status --volume-ids {volume}",
        "volhold inspect {device}",
    ],
    choices: &[
        COPY,
        RETRY,
        Choice {
            command: "volhold verify {dir}",
            effect: "If only one file is unreadable: what the data dir looks like without it.",
            safe: true,
        },
    ],
};

pub const SHORT_READ: Page = Page {
    severity: Severity::Critical,
    cause: "the volume gave fewer bytes than its size promises, so it is not known what it holds",
    found: "A read ended early, before the size that the kernel reports.",
    means: "The device is going away, was resized under the reader, or is an image file that was cut.",
    without: "Library calls report a short read as \"nothing found\". That answer would have been taken for blank.",
    check: &["blockdev --getsize64 {device}", "lsblk -o NAME,SERIAL,SIZE {device}", "dmesg | tail -50"],
    choices: &[
        RETRY,
        COPY,
        Choice {
            command: "losetup -l",
            effect: "For a loop device: is its backing file as large as it was?",
            safe: true,
        },
    ],
};

pub const TIMED_OUT: Page = Page {
    severity: Severity::Trouble,
    cause: "the volume does not answer in time, so it is not known what it holds",
    found: "A read was asked for and nothing came back before the deadline. The request may still hang in the kernel.",
    means: "A stalled EBS volume hangs instead of failing. It may come back by itself.",
    without: "Boot scripts would have waited without a word, or given up and gone on without the volume.",
    check: &[
        "aws ec2 describe-volume-status --volume-ids {volume}     is I/O impaired?",
        "ps -eo pid,stat,wchan,args | grep ' D'     what hangs in the kernel",
        "cat /proc/pressure/io",
    ],
    choices: &[
        RETRY,
        Choice {
            command: "aws ec2 describe-volumes --volume-ids {volume}",
            effect: "Its state and attachment. Do not detach by force while a process hangs on it.",
            safe: true,
        },
        COPY,
    ],
};

pub const READER_FAILED: Page = Page {
    severity: Severity::Trouble,
    cause: "the reader that examines the volume crashed or gave no usable answer",
    found: "The child process that reads untrusted bytes ended early, was killed, or answered nonsense.",
    means: "Either the bytes are such that they break a reader (a bug of ours, please report it), or the machine ran out \
            of memory.",
    without: "A crash in a library would have taken the whole agent down, at every boot again.",
    check: &["dmesg | grep -i -e oom -e segfault", "journalctl -u volhold -b", "volhold inspect {device}"],
    choices: &[
        RETRY,
        COPY,
        Choice {
            command: "journalctl -u volhold -b -o export",
            effect: "What a report of this bug needs, together with the output of volhold explain {name} -o json.",
            safe: true,
        },
    ],
};

pub const CHANGED_UNDERNEATH: Page = Page {
    severity: Severity::Critical,
    cause: "the volume changed between two readings, so somebody else writes to it",
    found: "The telling regions, read again under the device's lock, were no longer what they were minutes before.",
    means: "Another program writes to the raw device, or the volume is attached to a second machine.",
    without: "Whoever wrote first would have lost: two programs on one device end with neither's data.",
    check: &[
        "lsof {device}",
        "aws ec2 describe-volumes --volume-ids {volume}     more than one attachment?",
        "journalctl -b | grep -i -e mkfs -e wipefs -e parted -e cloud-init",
    ],
    choices: &[
        Choice {
            command: "fuser -v {device}",
            effect: "Names the processes that have it open. Stop the writer first.",
            safe: true,
        },
        COPY,
        RETRY,
    ],
};

pub const HISTORY_SAYS_USED: Page = Page {
    severity: Severity::Critical,
    cause: "the volume reads as blank, but records say that it held something",
    found: "A ledger names this volume id with a filesystem or with etcd data.",
    means: "It was erased, or the device under this name is another one than it was.",
    without: "It would have been formatted as a new volume, and with it the last chance to restore what was there.",
    check: &[
        "volhold explain {name} -o json     what the records say, and since when",
        "aws ec2 describe-snapshots --filters Name=volume-id,Values={volume}",
        "Was the volume discarded (blkdiscard, fstrim on the wrong device) or made anew under the old name?",
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
            effect: "If this member shall start empty and rejoin. On a healthy peer first: etcdctl member remove {member}, \
                     then member add.",
            safe: false,
        },
    ],
};

pub const MADE_FROM_SNAPSHOT: Page = Page {
    severity: Severity::Critical,
    cause: "the volume was made from a snapshot, so it is not blank whatever it reads as",
    found: "The provider names a snapshot as the origin of this volume.",
    means: "Somebody restored something. Blocks that were not fetched yet, or a snapshot of the wrong volume, can read as \
            nothing.",
    without: "The restored data would have been formatted away, on the night on which it was needed.",
    check: &[
        "aws ec2 describe-volumes --volume-ids {volume}     SnapshotId",
        "aws ec2 describe-snapshots --snapshot-ids SNAPSHOT     of which volume, from when",
    ],
    choices: &[
        RETRY,
        Choice { command: "volhold inspect {device}", effect: "What really stands on it.", safe: true },
        Choice {
            command: "aws ec2 create-volume --snapshot-id OTHER-SNAPSHOT --availability-zone ZONE",
            effect: "If it was the wrong snapshot: a new volume from the right one. Keep this one.",
            safe: true,
        },
    ],
};

pub const POLICY_FORBIDS_FORMAT: Page = Page {
    severity: Severity::Trouble,
    cause: "the volume holds no filesystem, and the configuration forbids making one",
    found: "Nothing that could be mounted, and format = \"never\" for this guard (the default).",
    means: "A new volume needs a person's word once. Or this is not the volume that you think it is.",
    without: "A tool with less patience would have made a filesystem on whatever device answers to that name.",
    check: &["volhold inspect {device}     is it proven blank?", "lsblk -o NAME,SERIAL,SIZE,FSTYPE {device}"],
    choices: &[
        Choice {
            command: "volhold inspect {device}",
            effect: "Shows everything that speaks for and against it. Changes nothing.",
            safe: true,
        },
        Choice {
            command: "volhold config check",
            effect: "After writing format = \"if-blank\" into this guard: then a volume that is proven blank gets a \
                     filesystem after `systemctl reload volhold`. Anything else still does not.",
            safe: true,
        },
        RETRY,
    ],
};

pub const PARTITIONED: Page = Page {
    severity: Severity::Trouble,
    cause: "the device has partitions, and volhold guards whole disks only",
    found: "The kernel shows partitions of this device, or the configured device is itself a partition.",
    means: "The configuration names the wrong device (a root disk?), or the volume was set up by other tools.",
    without: "A filesystem over the whole disk destroys the partition table and everything behind it.",
    check: &["lsblk -o NAME,SERIAL,SIZE,FSTYPE,MOUNTPOINTS", "volhold inspect {device}"],
    choices: &[
        Choice {
            command: "volhold config check",
            effect: "After correcting `device` of this guard. A by-id link with the volume id cannot mean another disk.",
            safe: true,
        },
        COPY,
        RELEASE,
    ],
};
