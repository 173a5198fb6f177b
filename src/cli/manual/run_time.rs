//! Pages about what happens to a volume after its gate has opened.

use super::{ADOPT, COPY, Choice, Page, RETRY, Severity};

const ASIDE: Choice = Choice {
    command: "volhold quarantine {name} DATA-DIR",
    effect: "Renames the dir that should not be there out of the way, on the same volume. It deletes nothing.",
    safe: false,
};

pub const SECOND_DATA_DIR: Page = Page {
    severity: Severity::Critical,
    cause: "a second data dir has appeared on the volume while the gate was open",
    found: "A directory with an etcd member that was not there when the gate opened, beside one that holds data.",
    means: "Somebody started an etcd with another --data-dir, or a token or version in etcd-manager's configuration has changed \
            and it made a new dir. A restore that a person prepares looks the same.",
    without: "A new, empty etcd serves beside the old data, healthy to every monitor. It would be found when the objects are \
              missed, or at the next boot of all masters at once.",
    check: &[
        "volhold explain {name}     all data dirs, with cluster and revision",
        "ps -o pid,lstart,args -C etcd     which --data-dir does the running etcd have?",
        "etcdctl endpoint status --cluster     on another member: is this one still in the old cluster?",
    ],
    choices: &[
        COPY,
        Choice {
            command: "volhold status",
            effect: "If a person prepares a restore there, nothing has to be done: the answer follows once the dir is in use or \
                     gone.",
            safe: true,
        },
        RETRY,
        ADOPT,
        ASIDE,
    ],
};

pub const DATA_REPLACED: Page = Page {
    severity: Severity::Critical,
    cause: "the running etcd works on files that are not in the data dir any more",
    found: "A process holds its lock on a file of this volume that no data dir on it has: the dir, or a file in it, was removed, \
            renamed or put in place by another one while etcd ran.",
    means: "What etcd writes now lands in files that nobody will find at its next start; where they were removed, they are gone \
            for good when it ends.",
    without: "etcd goes on for hours and looks healthy. Its next start finds an older state, or none, and everything that was \
              acknowledged since is lost.",
    check: &[
        "ls -l /proc/PID/fd | grep member     which files does it have open? (deleted) says that they are gone",
        "volhold explain {name}     the data dirs that are there",
        "etcdctl endpoint status --cluster     are the other members healthy, and at which revision?",
    ],
    choices: &[
        Choice {
            command: "etcdctl snapshot save /elsewhere/{name}.db",
            effect: "While that etcd still runs it can still be asked for all that it has. Do this before anything stops it.",
            safe: true,
        },
        Choice {
            command: "volhold status",
            effect: "After the dir was renamed back: the doubt ends by itself once etcd's files are in its dir again.",
            safe: true,
        },
        RETRY,
    ],
};

pub const ETCD_FROZEN: Page = Page {
    severity: Severity::Critical,
    cause: "what runs etcd was frozen or stopped, as the configuration wants it in this case",
    found: "The data went away, or became another's, under an open gate, and `at_run_time` of this guard says `freeze` or `stop`.",
    means: "No write is taken here until a person has looked. A frozen etcd keeps its memory and its open files, so nothing that \
            it has is lost. Nothing on disk was touched.",
    without: "etcd would go on, on data that is not the right one.",
    check: &[
        "volhold explain {name}     what was found, and what was frozen or stopped",
        "etcdctl endpoint status --cluster     on another member: does the cluster have its majority without this one?",
    ],
    choices: &[
        COPY,
        Choice {
            command: "echo 0 > /sys/fs/cgroup/CGROUP/cgroup.freeze",
            effect: "Lets it run again; the message names the file and the word for this machine. Only after what was found is \
                     known to be right, or was put right.",
            safe: false,
        },
        ADOPT,
    ],
};
