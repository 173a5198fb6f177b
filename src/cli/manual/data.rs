//! Pages about the etcd data on a mounted volume: whether it is there, whose it is, and whether etcd would keep it.

use super::{ADOPT, ASIDE, COPY, Choice, NEW_CLUSTER, Page, REJOIN, RETRY, Severity};

const VERIFY: Choice = Choice {
    command: "volhold verify {dir}",
    effect: "Reads the data dir file by file and says what is wrong. Changes nothing. (Give the path under which you mounted \
             the volume or the copy.)",
    safe: true,
};
const RESTORE: Choice = Choice {
    command: "etcdutl snapshot restore SNAPSHOT --data-dir NEW-DIR",
    effect: "From a backup, into a new directory, never over the old one. Then volhold adopt {name}.",
    safe: false,
};

pub const EMPTY_BESIDE_OLD: Page = Page {
    severity: Severity::Critical,
    cause: "there are several data dirs, and the one that etcd would use is the empty one",
    found: "The selected data dir has no data, or far less than another one on the same volume.",
    means: "A path, a cluster token or a version in somebody's configuration has changed, and a new dir was made beside the \
            old one. The old data is still there.",
    without: "This is the second incident that volhold was made for: a new, empty cluster starts, healthy to every monitor, \
              and the API server comes up with no objects.",
    check: &[
        "volhold explain {name}     the table of data dirs, and who selected which",
        "What do the peers say? etcdctl endpoint status --cluster",
    ],
    choices: &[
        COPY,
        Choice {
            command: "volhold rollback {name} --to OLD-DIR",
            effect: "Puts the empty dir aside, gives the old one its place, sets etcd-manager's state back, looks, and opens. \
                     Prints its plan first; not one byte of the old dir is written.",
            safe: true,
        },
        Choice {
            command: "volhold config check",
            effect: "After naming the old dir as `data_dir` of this guard, and in etcd's own configuration.",
            safe: true,
        },
        REJOIN,
        NEW_CLUSTER,
    ],
};

pub const DATA_VANISHED: Page = Page {
    severity: Severity::Critical,
    cause: "records say that etcd data was here, and it is gone",
    found: "The volume is the right one and mounts, but the data dir that records name is missing or empty.",
    means: "Somebody removed or moved it (an install script with rm -rf, a wrong restore), or another volume's copy of the \
            filesystem is mounted.",
    without: "etcd makes a new dir. A bootstrap member comes back even with the same ids, so that nobody sees a difference \
              until the objects are missed.",
    check: &[
        "volhold explain {name}     when it was last seen, with which revision",
        "journalctl --since=-2d | grep -e 'rm -rf' -e kubeadm -e etcd",
        "etcdctl endpoint status --cluster     on a peer: do the others have the data?",
    ],
    choices: &[COPY, REJOIN, RESTORE, NEW_CLUSTER],
};

pub const WENT_BACKWARDS: Page = Page {
    severity: Severity::Critical,
    cause: "the data is older than what this member is known to have had",
    found: "Term, index or revision, with all that the log still holds, are below the recorded high-water mark.",
    means: "An old snapshot or copy lies where the newer data was. As a member of a running cluster it has already \
            promised more than it now knows.",
    without: "It votes again in terms in which it has voted, and acknowledged writes can be lost without any error.",
    check: &["volhold explain {name}     recorded and found", "Was the volume restored, rolled back or copied?"],
    choices: &[
        COPY,
        ASIDE,
        Choice {
            command: "volhold adopt {name} --restored",
            effect: "If going back was the purpose and every member is restored from the same moment.",
            safe: false,
        },
    ],
};

pub const OTHER_CLUSTER: Page = Page {
    severity: Severity::Critical,
    cause: "the data belongs to another cluster than the one expected here",
    found: "The cluster id in the data dir is not the pinned one.",
    means: "A volume of another cluster is attached, or a new cluster was bootstrapped in this dir while nobody watched.",
    without: "etcd starts as a member of the wrong cluster: peers refuse it, or, if all its peers are swapped too, \
              Kubernetes runs on somebody else's objects.",
    check: &["volhold explain {name}     both ids", "etcdctl endpoint status --cluster -w json | grep -o cluster_id.*"],
    choices: &[
        COPY,
        Choice { command: "volhold config check", effect: "Does the guard name the right volume?", safe: true },
        ADOPT,
    ],
};

pub const OTHER_MEMBER: Page = Page {
    severity: Severity::Critical,
    cause: "the data belongs to another member than the one that this machine should run",
    found: "Member id, name or peer URL in the data dir are not those of the record or the configuration.",
    means: "Volumes were swapped between masters, or `member` and `peer_url` of the guard are wrong.",
    without: "Two machines run with each other's identity, or one identity runs twice. Quorum then counts one vote double.",
    check: &[
        "volhold explain {name}     both identities",
        "etcdctl member list",
        "On the other masters: volhold status",
    ],
    choices: &[
        Choice {
            command: "volhold config check",
            effect: "After correcting `member` or `peer_url`, if they are what is wrong.",
            safe: true,
        },
        COPY,
        ADOPT,
    ],
};

pub const WAL_BEHIND_BACKEND: Page = Page {
    severity: Severity::Critical,
    cause: "the log ends before the state of the backend, so acknowledged writes would be lost",
    found: "The last index in member/wal is below the index up to which the backend file is consistent.",
    means: "member/wal is missing, was emptied, or comes from another moment than member/snap. A healthy etcd never leaves \
            this behind, not even after a power cut.",
    without: "etcd starts, looks healthy, and silently drops each new write until its index has caught up.",
    check: &["volhold explain {name}     both indexes", "ls -la {publish}     when were the files last written?"],
    choices: &[COPY, VERIFY, ASIDE, RESTORE],
};

pub const BACKEND_DAMAGED: Page = Page {
    severity: Severity::Critical,
    cause: "the backend file of etcd is damaged",
    found: "member/snap/db fails a check of its own structure: a meta page, a page that is referenced, a key that cannot be.",
    means: "Pages were lost or overwritten. etcd may crash on it at once, or only when it reads that page.",
    without: "etcd panics in a loop, or serves wrong data until somebody compares hashes.",
    check: &["volhold explain {name}     where in the file", "dmesg | grep -i -e 'I/O error' -e ext4"],
    choices: &[COPY, VERIFY, ASIDE, RESTORE],
};

pub const WAL_DAMAGED: Page = Page {
    severity: Severity::Critical,
    cause: "the write-ahead log of etcd is damaged before its end",
    found: "A record in member/wal fails its checksum and valid ones follow, or a segment is missing from the row.",
    means: "This is not the torn tail that a power cut leaves, which etcd repairs by itself. Something in the middle is lost.",
    without: "etcd stops with a checksum error. The usual advice found by a search, to delete the log, loses acknowledged \
              writes.",
    check: &["volhold explain {name}     segment and offset", "dmesg | grep -i 'I/O error'"],
    choices: &[COPY, VERIFY, ASIDE],
};

pub const SNAPSHOT_DAMAGED: Page = Page {
    severity: Severity::Critical,
    cause: "the raft snapshot that the log builds on is damaged or has no backend beside it",
    found: "A .snap file fails its checksum, or the newest one that the log names has no matching backend.",
    means: "The start of the log's story is missing: what follows cannot be applied to anything.",
    without: "etcd ends with \"snapshot not found\", or falls back to an older snapshot and stops later.",
    check: &["ls -la {dir}/member/snap", "volhold explain {name}"],
    choices: &[VERIFY, COPY, ASIDE, RESTORE],
};

pub const VERSION_SKIP: Page = Page {
    severity: Severity::Trouble,
    cause: "the etcd that would start is too new for its data",
    found: "The etcd that is to open this dir is more than one minor version above what served it last, or its next step needs \
            something that was not done: requests of the v2 API in the log, or a promoted learner that the backend does not \
            know as one, before 3.6.",
    means: "etcd supports one minor version at a time; skipped ones leave migrations undone.",
    without: "It may start, and fail or lose fields later, when the way back is gone. 3.6 ends at once with \"detected disallowed \
              v2 WAL\", or takes a voter for a learner.",
    check: &[
        "etcd --version",
        "volhold explain {name}     what served the data last, what is to run, and the versions between",
        "Which version do the peers run? etcdctl endpoint status --cluster",
    ],
    choices: &[
        Choice {
            command: "etcd --version",
            effect: "Install the next minor version above the data's, start it once until it is healthy, then the next.",
            safe: true,
        },
        COPY,
        RETRY,
        Choice {
            command: "volhold adopt {name}",
            effect: "Take the step at once: you know that this version can. Once it has written, the way back is a backup.",
            safe: false,
        },
    ],
};

pub const VERSION_DOWNGRADE: Page = Page {
    severity: Severity::Trouble,
    cause: "the etcd that would start is older than its data",
    found: "The data carries the storage or cluster version of a newer etcd than the one that is to run; or a downgrade to \
            another version is enabled.",
    means: "A package was downgraded, or an old image was booted with the current volume.",
    without: "It ends with \"invalid downgrade\" or \"cluster cannot be downgraded\" at each start.",
    check: &[
        "etcd --version",
        "volhold explain {name}     what served the data last, and what is to run",
        "Which version do the peers run? etcdctl endpoint status --cluster",
    ],
    choices: &[
        Choice {
            command: "etcd --version",
            effect: "Install the version that served the data last, or the next newer one.",
            safe: true,
        },
        Choice {
            command: "etcdctl downgrade cancel",
            effect: "On 3.6, where a downgrade was enabled that is not wanted. `etcdctl downgrade enable` is the way to \
                     3.5 from 3.6, with the 3.6 still running.",
            safe: true,
        },
        COPY,
        RETRY,
    ],
};

pub const V2_DATA_ONLY: Page = Page {
    severity: Severity::Critical,
    cause: "the data is in the format of etcd 2, and the etcd that would start shows nothing of it",
    found: "Keys of the v2 API, in a dir without a v3 store or beside one that holds far less, and an etcd from 3.4 on that is \
            to open it.",
    means: "The cluster was never migrated, or its migrated data lies elsewhere.",
    without: "etcd 3.4 and later start with an empty v3 store on top of it: every key is gone for its clients, and the files \
              still look full. 3.6 refuses to start.",
    check: &["volhold explain {name}     all data dirs", "Was this cluster migrated, and to which directory?"],
    choices: &[
        COPY,
        Choice { command: "volhold inspect {publish}", effect: "Is there a migrated dir beside it?", safe: true },
        Choice {
            command: "etcdctl migrate --data-dir COPY-OF-THE-DIR",
            effect: "With etcdctl of 3.0 to 3.4, on a copy of the directory: brings the v2 keys into the v3 store.",
            safe: true,
        },
        Choice {
            command: "volhold adopt {name}",
            effect: "What lies in the v2 store is not needed any more: start without it.",
            safe: false,
        },
    ],
};

pub const KNOWN_BAD_VERSION: Page = Page {
    severity: Severity::Trouble,
    cause: "the etcd that is to run is of a release that can lose data",
    found: "The etcd that is to open this dir is 3.5.0, 3.5.1 or 3.5.2.",
    means: "After a crash these may apply entries of their log twice or not at all, and then serve other data than the other \
            members (etcd issue 13766). etcd's maintainers say not to use them.",
    without: "Nothing shows it until two members answer the same question differently.",
    check: &["etcd --version", "etcdctl endpoint hashkv --cluster     the same hash of every member?"],
    choices: &[Choice {
        command: "etcd --version",
        effect: "Install the newest 3.5 on one member after the other. Nothing of the data changes.",
        safe: true,
    }],
};

pub const BLANK_REPLACEMENT: Page = Page {
    severity: Severity::Critical,
    cause: "the volume is empty, but this member is not new",
    found: "An empty filesystem, or a blank volume, without any record, that is older than a fresh one may be; or one that was \
            made more than an hour after another member's volume of the same cluster.",
    means: "Automation replaced the volume of a member that had data, or the right volume was not attached.",
    without: "The member comes up empty. If that happens to half of the masters on one night, the cluster is gone.",
    check: &[
        "aws ec2 describe-volumes --filters Name=status,Values=available     does the old volume lie around unattached?",
        "etcdctl member list     on a peer: is this member known, and has it run?",
    ],
    choices: &[
        Choice {
            command: "aws ec2 describe-volumes --filters Name=availability-zone,Values=ZONE",
            effect: "Find the volume with the data, attach it, configure it.",
            safe: true,
        },
        RETRY,
        REJOIN,
        NEW_CLUSTER,
    ],
};

pub const FRESH_FORBIDDEN: Page = Page {
    severity: Severity::Trouble,
    cause: "the volume is empty, and the configuration forbids that etcd starts on nothing",
    found: "No etcd data on the volume, no record that there was any, and fresh = \"deny\" for this guard.",
    means: "Either this is the first start of a new member and nobody has said so, or it is not the right volume.",
    without: "etcd bootstraps whatever its flags say: on a machine that should have had data, an empty cluster.",
    check: &["volhold inspect {device}", "Is this member meant to be new? Ask whoever manages the cluster."],
    choices: &[
        Choice {
            command: "volhold config check",
            effect: "After writing fresh = \"allow\" into this guard: an empty start is then allowed once.",
            safe: true,
        },
        REJOIN,
        NEW_CLUSTER,
    ],
};

pub const DIR_IN_USE: Page = Page {
    severity: Severity::Trouble,
    cause: "a process holds the lock of the data dir, and it is not the etcd of this guard",
    found: "/proc/locks names a process that has the backend or the log open.",
    means: "An etcd was started past the gate, by hand or by another unit, or an etcdutl is at work.",
    without: "A second etcd on the same dir waits for the lock for ever, or, on a copied dir, runs twice.",
    check: &["fuser -v {dir}/member/snap/db", "ps -ef | grep etcd"],
    choices: &[
        Choice {
            command: "fuser -v {dir}/member/snap/db",
            effect: "Names the process. Stop it the way it was started.",
            safe: true,
        },
        RETRY,
    ],
};

pub const ALARM_SET: Page = Page {
    severity: Severity::Trouble,
    cause: "etcd has an alarm set in its data: it starts, but refuses writes",
    found: "NOSPACE or CORRUPT stands in the alarm bucket of the backend.",
    means: "The quota was reached, or members found that their data differs. The alarm stays until somebody disarms it.",
    without: "A member that is up and answers reads, while each write fails.",
    check: &["etcdctl alarm list", "etcdctl endpoint status --cluster -w table     size against the quota"],
    choices: &[
        Choice {
            command: "etcdctl alarm list",
            effect: "Which alarm, of which member. For CORRUPT: compare etcdctl endpoint hashkv --cluster before all else.",
            safe: true,
        },
        Choice {
            command: "etcdctl defrag",
            effect: "For NOSPACE, after etcdctl compact: gives space back, one member at a time. Then etcdctl alarm disarm.",
            safe: false,
        },
    ],
};

pub const DATA_DIR_AMBIGUOUS: Page = Page {
    severity: Severity::Critical,
    cause: "there are several data dirs with data, and nothing says which one is meant",
    found: "More than one populated data dir, and neither the configuration nor etcd-manager's state selects one.",
    means: "Old and new setups, or two etcds of one node, share this volume.",
    without: "etcd takes the one its flags name today. Another tool takes the other one tomorrow.",
    check: &["volhold explain {name}     all data dirs, with cluster and revision", "Which --data-dir does etcd get?"],
    choices: &[
        Choice {
            command: "volhold config check",
            effect: "After writing the right one as `data_dir` into this guard.",
            safe: true,
        },
        COPY,
        RETRY,
    ],
};

pub const IDENTITY_CHANGED: Page = Page {
    severity: Severity::Information,
    cause: "cluster or member id changed while the gate was open, and etcd has served with the new ones since",
    found: "Other ids in the data dir than those that are pinned, in a dir that kept its content.",
    means: "The cluster was restored or re-made on purpose, by a tool that volhold does not know. It is not held, but the \
            pin is out of date.",
    without: "Nobody would know that the cluster is not the one it was.",
    check: &["volhold explain {name}     both ids, and when", "etcdctl member list"],
    choices: &[
        Choice {
            command: "etcdctl endpoint status --cluster",
            effect: "Do all members agree on the new ids?",
            safe: true,
        },
        ADOPT,
    ],
};

pub const MIGRATION_UNDER_WAY: Page = Page {
    severity: Severity::Information,
    cause: "etcd-manager is in the middle of a migration or restore, which only it can end",
    found: "Its state is empty, new or quarantined, while the old data lies complete in data-trashcan; or its state runs another \
            version than the configuration says that it is meant to reach.",
    means: "An empty dir is expected for some minutes. If it stays empty, the migration has failed.",
    without: "A failed migration looks like a finished one: an empty cluster that is healthy.",
    check: &["volhold status     again in half an hour", "journalctl -b | grep -i etcd-manager"],
    choices: &[
        Choice { command: "volhold status", effect: "Is it still fresh? Then look at etcd-manager's log.", safe: true },
        COPY,
    ],
};
