//! Runs readers of untrusted bytes in a child process with a deadline.
//!
//! libblkid, bolt, WAL and `state` parsers see bytes that anybody may have written, on disks that may stall for ever. They
//! run in a child: the same binary, re-executed as `volhold worker REQUEST`, with the device or directory as standard input
//! (so that nothing is opened by name again) and one JSON value a line on standard output. The parent owns the deadline.
//! The child is confined ([`confine`]). A crash, a kill, silence or nonsense is evidence (`reader-failed`, `timed-out`), hence a reason to hold.
//!
//! A reader that hangs in the kernel (state D) cannot be killed: the parent sends the signal, stops waiting, and goes on.

mod blocking;
mod child;
pub mod confine;
mod etcd_files;
mod keeper;
mod parent;
mod version;

pub use blocking::probe_blocking;
pub use child::child_main;
pub use confine::landlock_holds;
pub use etcd_files::{edited_state, etcd_file, facts, hash, state};
pub use keeper::Keeper;
pub use parent::{Deadline, examine_volume, mark, probe, second_reading};
pub use version::etcd_version;

use crate::etcd::VolumeHints;
use crate::model::{
    DataDirFacts, EtcdFile, EtcdManagerState, HashAnswer, HashQuestion, HighWater, Observed, RunningEtcd,
    SecondReading, StateEdit, VolumeReading,
};
use crate::probe::{ProbeAnswer, ProbeRequest};
use confine::Confinement;
use serde::{Deserialize, Serialize};

/// What a child is asked to do with its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Standard input is a block device or an image.
    Probe(ProbeRequest),
    /// Standard input is a block device: read the telling regions again.
    SecondReading { first_digest: String, size_before: u64 },
    /// Standard input is the root directory of a volume: its data dirs, and which etcd runs on them.
    Volume(VolumeHints),
    /// Standard input is the root directory of a volume: durable progress of this data dir.
    Mark { data_dir: String },
    /// Standard input is a data dir: all of it.
    Facts,
    /// Standard input is a data dir: HashKV at a revision.
    Hash(HashQuestion),
    /// Standard input is a file, maybe one of etcd's.
    File { named_db: bool },
    /// Standard input is etcd-manager's `state`.
    State,
    /// The same: its bytes with an edit made.
    EditState(StateEdit),
    /// The child becomes this program, asked for its version, and does not answer in lines.
    EtcdVersion { program: String },
}

/// One line from a child.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Line {
    /// The first line: the reader has given up what it does not need. Nothing was read yet.
    Confined(Confinement),
    Probe(ProbeAnswer),
    SecondReading(Observed<SecondReading>),
    Volume(Box<VolumeReading>),
    Running(Observed<Option<RunningEtcd>>),
    Mark(Observed<Option<HighWater>>),
    /// How much of a backend was read.
    Pages {
        done: u64,
        total: u64,
    },
    Facts(Box<DataDirFacts>),
    Hash(Option<HashAnswer>),
    File(Observed<Option<EtcdFile>>),
    State(Observed<EtcdManagerState>),
    EditedState(Observed<Vec<u8>>),
    /// The last line: everything asked for was answered.
    Done,
}
