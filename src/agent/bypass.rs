//! A gate that a person opened by hand (`volhold-bypass`). volhold was broken then, so whoever comes by first once it works
//! puts it on record: the agent at its start, or the check before etcd's.

use super::memory::{Forgotten, Memory};
use super::{chain, here};
use crate::config::Config;
use crate::model::{Bypass, Fact, VolumeId};
use crate::record::NodeLedger;
use std::sync::mpsc;
use std::time::Duration;

/// Longest that etcd's start waits for the record: the disk under it may hang, and a person wants etcd to run.
const BEFORE_ETCD: Duration = Duration::from_secs(5);

/// Puts it on record, once for each time that a person did it.
pub fn keep(memory: &Memory, volume_id: &VolumeId, bypass: &Bypass) -> Result<(), Forgotten> {
    let fact = Fact::Bypassed { note: bypass.note.clone() };
    let ledger = NodeLedger::at(&memory.state, &memory.guard, &memory.here.machine_id);
    let known = ledger.read().map_err(Forgotten::Node)?;
    if known.own.iter().any(|(_, entry)| entry.boot_id == memory.here.boot_id && entry.fact == fact) {
        return Ok(());
    }
    memory.keep(volume_id, None, &[fact])
}

/// The same from a verb. What fails is told: nobody may be kept waiting for it, or be refused.
pub fn keep_from_verb(config: &Config, bypass: &Bypass) -> Result<(), String> {
    let Some(guard) = config.guard(&bypass.name) else { return Ok(()) };
    let here = here(&config.paths.state).map_err(|error| chain(&error))?;
    let memory = Memory { state: config.paths.state.clone(), guard: guard.name.clone(), here };
    let volume_id = guard.device.unseen_id();
    let bypass = bypass.clone();
    let (say, heard) = mpsc::channel();
    // A thread that hangs in the kernel ends with this process.
    std::thread::spawn(move || say.send(keep(&memory, &volume_id, &bypass)));
    match heard.recv_timeout(BEFORE_ETCD) {
        Ok(kept) => kept.map_err(|error| chain(&error)),
        Err(_no_answer) => Err(format!("the node's ledger did not answer within {} s", BEFORE_ETCD.as_secs())),
    }
}
