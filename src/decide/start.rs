//! May etcd start on this volume?
//!
//! [`may_start`] is total, reads nothing and returns nowhere early. Each rule (`start/*.rs`) adds all its objections; each
//! objection says which answer of a person lifts it ([`objections::Kind`]). What is left holds.
//!
//! Three principles decide what the rows of the design leave open:
//!
//! * **A record that is continued outweighs what lies beside it.** The pinned ids, and progress that is not behind the
//!   noted one, prove that this is the dir which etcd served last; an archive with more keys is then history, not doubt. A
//!   healthy node is not held.
//! * **Absence is claimed only where everything could be read.** `data-vanished` and `empty-beside-old` are never said of a
//!   dir that is damaged or of a tree that could not be walked; that is held as what it is.
//! * **A person's answer lifts what it speaks of.** `adopt` speaks of data that is there, `--new-cluster` and
//!   `--replacement` of nothing being there. None of them lifts damage or anything unknown.

mod describe;
mod dirs;
mod fresh;
mod identity;
mod keys;
mod objections;
mod place;
mod published;
mod room;
mod situation;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
mod tests;
mod version;

use super::words;
use crate::model::{
    Adoption, Observed, Reason, ReasonCode, Records, RunningEtcd, StartEvidence, StartKind, StartPolicy, StartVerdict,
    VolumeReading,
};
use objections::{Kind, Objections};
pub use place::of_another_volume;
pub use room::{LEAST_BYTES, LEAST_INODES};
use situation::Situation;

/// May etcd start on this volume, and on what grounds?
///
/// An etcd that runs on the volume already is ours whatever else is known: closing a gate under it would be an outage. What
/// would have held it is told as warnings.
pub fn may_start(evidence: &StartEvidence, policy: &StartPolicy) -> StartVerdict {
    let StartEvidence { volume_id, filesystem, volume, records, running, age, siblings, witness, to_run } = evidence;
    let mut objections = Objections::default();
    let mut warnings = Vec::new();
    let mut grounds = Grounds { data_dir: situation::unselected(policy), kind: StartKind::FirstUse };

    let running = running_etcd(running, &mut objections);
    let ledgers = known_records(records, &mut objections);
    let united = ledgers
        .zip(witness.seen())
        .and_then(|(ledgers, witness)| Some(ledgers.with_witness(witness.as_ref()?, volume_id)));
    let known_records = united.as_ref().or(ledgers);
    place::filesystem(filesystem, known_records, volume_id, &mut objections);
    if let Some(records) = known_records {
        place::memory(records, filesystem.seen(), volume_id, &mut objections);
    }
    match volume {
        Observed::Unknown(why) => {
            objections.add(Kind::Unread, words::unknown("the tree of the volume", why));
        }
        Observed::Seen(reading) => {
            let seen =
                Seen { reading, records: known_records, filesystem: filesystem.seen(), age, siblings, witness, to_run };
            grounds = judge(&seen, policy, running.is_some(), &mut objections, &mut warnings);
        }
    }

    if let Some(etcd) = running {
        if grounds.data_dir != etcd.data_dir && volume.seen().is_some() {
            let message = format!(
                "an etcd (process {}) runs on `{}`, and the one to expect is on `{}`",
                etcd.pid, etcd.data_dir, grounds.data_dir
            );
            warnings.push(Reason::new(elsewhere(volume.seen(), &etcd.data_dir), message));
        }
        warnings.extend(objections.told_beside_a_running_etcd());
        return StartVerdict::Start { how: StartKind::Running, data_dir: etcd.data_dir.clone(), warnings };
    }
    let reasons = objections.into_reasons();
    if reasons.is_empty() {
        StartVerdict::Start { how: grounds.kind, data_dir: grounds.data_dir, warnings }
    } else {
        StartVerdict::Hold { reasons }
    }
}

/// What it is called that an etcd runs on another dir than the one to expect: the second incident, where that dir is empty.
fn elsewhere(reading: Option<&VolumeReading>, data_dir: &str) -> ReasonCode {
    let dir = reading.and_then(|reading| reading.data_dirs.iter().find(|dir| dir.path == data_dir));
    if dir.is_some_and(|dir| !dir.populated) { ReasonCode::EmptyBesideOld } else { ReasonCode::DataDirAmbiguous }
}

/// What could be seen, as the rules on data dirs need it.
struct Seen<'a> {
    reading: &'a VolumeReading,
    /// `None`: not known, and objected to already. Rules on records are silent then; nothing may start anyway.
    records: Option<&'a Records>,
    filesystem: Option<&'a crate::model::FilesystemFacts>,
    age: &'a Observed<crate::model::VolumeAge>,
    siblings: &'a Observed<crate::model::Siblings>,
    witness: &'a Observed<Option<crate::model::Witness>>,
    to_run: &'a Observed<Option<crate::model::EtcdToRun>>,
}

/// On what grounds etcd would start where nothing objects.
struct Grounds {
    data_dir: String,
    kind: StartKind,
}

/// The rules on data dirs, in the order of the design's table.
fn judge(
    seen: &Seen<'_>,
    policy: &StartPolicy,
    running: bool,
    objections: &mut Objections,
    warnings: &mut Vec<Reason>,
) -> Grounds {
    let nothing = Records::default();
    let records = seen.records.unwrap_or(&nothing);
    let situation = Situation::of(seen.reading, records);

    dirs::unreadable(seen.reading, objections);
    dirs::damage(&situation, objections, warnings);
    if !running {
        dirs::in_use(&situation, objections);
    }
    let standing = identity::against_record(&situation, records, policy, objections, warnings);
    dirs::beyond(seen.reading, standing, objections, warnings);
    identity::against_configuration(&situation, policy, objections);
    identity::against_manifest(&situation, seen.to_run, policy, objections);
    room::access(&situation, policy, objections);
    room::log(&situation, seen.to_run, objections);
    room::space(&situation, seen.to_run, warnings);
    version::rules(&situation, seen.to_run, policy, objections, warnings);
    dirs::selection(&situation, objections);
    dirs::beside(&situation, standing, records, policy, objections);
    let fresh = match seen.records {
        Some(records) => fresh::rules(&situation, standing, records, seen.filesystem, seen.age, policy, objections),
        None => false,
    };
    if fresh {
        fresh::among_siblings(&situation, seen.siblings, objections);
        fresh::by_witness(&situation, records, seen.witness, objections);
    }

    let adopted = records.adoption;
    let answered_empty = matches!(adopted, Some(Adoption::NewCluster | Adoption::Replacement));
    let makes = fresh || (answered_empty && !situation.populated());
    published::rules(&situation, records, policy, makes, objections);

    let migration = dirs::migration(&situation, records, objections, warnings);
    objections.lift(adopted, situation.populated());
    let kind = if migration {
        StartKind::MigrationUnderWay
    } else if adopted.is_some() && (situation.populated() || answered_empty) {
        StartKind::Adopted
    } else if standing == identity::Standing::ChangedWhileOpen {
        StartKind::IdentityChanged
    } else if standing.continues() {
        StartKind::Continues
    } else if fresh {
        StartKind::Fresh
    } else {
        StartKind::FirstUse
    };
    Grounds { data_dir: situation.data_dir(policy), kind }
}

fn running_etcd<'a>(
    running: &'a Observed<Option<RunningEtcd>>,
    objections: &mut Objections,
) -> Option<&'a RunningEtcd> {
    match running {
        Observed::Seen(running) => running.as_ref(),
        Observed::Unknown(why) => {
            objections.add(Kind::Unread, words::unknown("whether an etcd runs on the volume", why));
            None
        }
    }
}

fn known_records<'a>(records: &'a Observed<Records>, objections: &mut Objections) -> Option<&'a Records> {
    match records {
        Observed::Seen(records) => Some(records),
        Observed::Unknown(why) => {
            let message = words::unknown("the ledger of this volume", why).message;
            objections.add(Kind::Unread, Reason::new(ReasonCode::LedgerBroken, message));
            None
        }
    }
}
