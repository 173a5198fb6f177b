//! What a person has ordered to be done to the volume: done through the detached mount, before the data dirs are read, while
//! nobody else can have the volume. On record before it begins (by the verb) and when it has ended (here).
//!
//! An order is for the look that it was given for. Where that look ends without having come to it, it is given up and said
//! so: what a person wanted tonight must not happen by itself next week. Only a volume that is on its way keeps it waiting,
//! and a crash: then the next agent finishes what was begun.

use super::{Driver, LOOK, SHORT, blocking};
use crate::act::{aside, mount, state_file};
use crate::agent::machine::State;
use crate::fault::fault_point;
use crate::model::{
    Adoption, Entry, EntryId, Fact, FsUuid, Mode, Observed, Order, Outcome, StateEdit, VolumeChange, pending_orders,
};
use crate::record::NodeLedger;
use crate::worker::{self, Deadline};
use std::os::fd::{AsFd, OwnedFd};

/// Orders whose end is not on record.
pub(super) type Pending = Vec<(EntryId, Entry, Order)>;

/// A writable root for a moment; the mount goes with it.
struct Writable {
    // Before the mount that it lies in.
    root: OwnedFd,
    _mount: mount::DetachedMount,
}

/// Why a change was not made.
enum Failed {
    /// It was refused, and nothing of it is under way.
    Said(String),
    /// Whoever makes it hangs in the kernel, and may yet make it.
    Hangs(String),
}

impl Driver {
    /// What waits to be done when a look begins.
    pub(super) async fn note_orders(&mut self) {
        if self.config.mode == Mode::Observe {
            self.orders.clear();
            return;
        }
        let memory = self.memory.clone();
        let read = blocking(SHORT, move || {
            NodeLedger::at(&memory.state, &memory.guard, &memory.here.machine_id).read().map(|read| read.own)
        });
        // A ledger that cannot be read is a hold of its own.
        self.orders = match read.await {
            Ok(Ok(own)) => pending_orders(&own),
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
    }

    /// Carries out what was ordered for exactly this volume and filesystem. An error: something hangs, and may still be done
    /// when that ends. Nothing must be decided on this volume then; the order stays, and the next look finishes it.
    pub(super) async fn carry_out_orders(&mut self) -> Result<(), String> {
        for (id, entry, order) in std::mem::take(&mut self.orders) {
            let (volume_id, fs_uuid) = (self.volume_id(), self.fs_uuid());
            let outcome = if entry.volume_id != volume_id || entry.fs_uuid.is_none() || entry.fs_uuid != fs_uuid {
                not_done(format!(
                    "it was ordered for filesystem {} on {}, and {} on {volume_id} is here",
                    shown(entry.fs_uuid),
                    entry.volume_id,
                    shown(fs_uuid)
                ))
            } else if entry.boot_id != self.memory.here.boot_id && !self.begun(&order).await? {
                not_done(
                    "the machine was started anew since it was ordered, and nothing of it had been begun".to_owned(),
                )
            } else {
                tracing::warn!(event = "order.begins", guard = %self.config.name, order = id.0, "carries out what a person ordered");
                self.carry_out(&id, &entry, &order).await?
            };
            let mut facts = Vec::new();
            if order.adopt && outcome == Outcome::Done {
                facts.push(Fact::Adopted { what: Adoption::Identity, confirmed: order.confirmed.clone() });
            }
            fault_point("before-order-ended");
            facts.push(Fact::Carried { order: id, outcome });
            self.end_order(facts).await;
            fault_point("after-order-ended");
        }
        Ok(())
    }

    async fn begun(&self, order: &Order) -> Result<bool, String> {
        let Some(first) = order.changes.first().cloned() else { return Ok(false) };
        let Some(mount) = &self.mount else { return Err("the volume is not mounted".to_owned()) };
        let root = mount.root().map_err(|error| crate::agent::chain(&error))?;
        match blocking(SHORT, move || aside::begun(root.as_fd(), &first)).await {
            Ok(begun) => begun.map_err(|error| crate::agent::chain(&error)),
            Err(stuck) => Err(stuck.words("looking how far an order has come")),
        }
    }

    /// The look has ended, and came to a verdict before it came to these.
    pub(super) async fn give_up_orders(&mut self) {
        let why = match &self.guard.state {
            State::Held { reasons } => {
                let first = reasons.first();
                let (code, message) = first.map_or(("held", ""), |r| (r.code.as_str(), r.message.as_str()));
                format!("the volume is held before anything on it may be changed ({code}: {message})")
            }
            State::Open { .. } => "the gate is open: an etcd may be writing, and nothing is moved under it".to_owned(),
            // It is on its way.
            State::Discovering
            | State::Attaching { .. }
            | State::Examining
            | State::Formatting
            | State::Inspecting
            | State::Publishing
            | State::Observing { .. } => return,
        };
        for (id, _, _) in std::mem::take(&mut self.orders) {
            self.end_order(vec![Fact::Carried { order: id, outcome: not_done(why.clone()) }]).await;
        }
    }

    async fn end_order(&self, facts: Vec<Fact>) {
        for fact in &facts {
            if let Fact::Carried { order, outcome } = fact {
                tracing::warn!(event = "order.ended", guard = %self.config.name, order = order.0, "{outcome}");
            }
        }
        let (volume_id, fs_uuid) = (self.volume_id(), self.fs_uuid());
        if let Err(reason) = self.keep(&volume_id, fs_uuid, facts).await {
            tracing::error!(event = "record.failed", guard = %self.config.name, "how an order ended was not kept: {}", reason.message);
        }
    }

    async fn carry_out(&self, id: &EntryId, entry: &Entry, order: &Order) -> Result<Outcome, String> {
        let mut done: Vec<&VolumeChange> = Vec::new();
        for (at, change) in order.changes.iter().enumerate() {
            fault_point("before-change");
            let later = order.changes.get(at.saturating_add(1)..).unwrap_or_default();
            match self.change(id, entry, change, later).await {
                Ok(()) => done.push(change),
                Err(Failed::Hangs(why)) => return Err(why),
                Err(Failed::Said(mut why)) => {
                    for change in done.into_iter().rev() {
                        let Some(back) = taken_back(change) else { continue };
                        match self.change(id, entry, &back, &[]).await {
                            Ok(()) => {}
                            Err(Failed::Hangs(why)) => return Err(why),
                            Err(Failed::Said(error)) => {
                                why.push_str(&format!("; and it could not be taken back ({back}): {error}"));
                            }
                        }
                    }
                    return Ok(not_done(why));
                }
            }
        }
        Ok(Outcome::Done)
    }

    /// `later`: what the same order does behind it.
    async fn change(
        &self,
        id: &EntryId,
        entry: &Entry,
        change: &VolumeChange,
        later: &[VolumeChange],
    ) -> Result<(), Failed> {
        let root = self.writable().await?;
        let manifest = manifest(id, entry, change);
        let bytes = match change {
            VolumeChange::SetState { edit, .. } => Some(edited(&root, edit).await?),
            VolumeChange::Quarantine { .. } | VolumeChange::GiveBack { .. } | VolumeChange::Move { .. } => None,
        };
        let refilled = match change {
            VolumeChange::Quarantine { path, .. } => later.iter().find_map(|change| match change {
                VolumeChange::Move { from, to } if to == path => Some(from.clone()),
                VolumeChange::Move { .. }
                | VolumeChange::Quarantine { .. }
                | VolumeChange::GiveBack { .. }
                | VolumeChange::SetState { .. } => None,
            }),
            VolumeChange::GiveBack { .. } | VolumeChange::Move { .. } | VolumeChange::SetState { .. } => None,
        };
        let change = change.clone();
        let done = blocking(SHORT, move || {
            let root = root;
            let at = root.root.as_fd();
            match (&change, bytes) {
                (VolumeChange::Quarantine { path, name }, _) => {
                    aside::quarantine(at, path, name, manifest.as_bytes(), refilled.as_deref())
                        .map_err(|e| crate::agent::chain(&e))
                }
                (VolumeChange::GiveBack { name, to }, _) => {
                    aside::give_back(at, name, to).map_err(|e| crate::agent::chain(&e))
                }
                (VolumeChange::Move { from, to }, _) => {
                    aside::move_to(at, from, to).map_err(|e| crate::agent::chain(&e))
                }
                (VolumeChange::SetState { keep, .. }, Some(bytes)) => {
                    state_file::replace(at, &bytes, keep).map_err(|e| e.to_string())
                }
                (VolumeChange::SetState { .. }, None) => Err("the file state was not read".to_owned()),
            }
        });
        match done.await {
            Ok(done) => done.map(|_change| ()).map_err(Failed::Said),
            Err(stuck) => Err(Failed::Hangs(stuck.words("changing the volume"))),
        }
    }

    /// The superblock is writable; the mount that is looked through is not. Another one is made for the moment.
    async fn writable(&self) -> Result<Writable, Failed> {
        let Some(mount) = &self.mount else { return Err(Failed::Said("the volume is not mounted".to_owned())) };
        let within = mount.root().map_err(|error| Failed::Said(crate::agent::chain(&error)))?;
        let fstype = self.config.fstype;
        let made = blocking(SHORT, move || {
            let mount = mount::join(within.as_fd(), fstype.as_str(), mount::Access::Writable)?;
            let root = mount.root()?;
            Ok(Writable { root, _mount: mount })
        });
        match made.await {
            Ok(made) => made.map_err(|error: mount::MountError| Failed::Said(crate::agent::chain(&error))),
            Err(stuck) => Err(Failed::Hangs(stuck.words("mounting the volume to change it"))),
        }
    }
}

/// What etcd-manager wrote is read apart from us, as all that others have written.
async fn edited(root: &Writable, edit: &StateEdit) -> Result<Vec<u8>, Failed> {
    let root = root.root.try_clone().map_err(|error| Failed::Said(error.to_string()))?;
    let file = match blocking(SHORT, move || state_file::open(root.as_fd())).await {
        Ok(file) => file.map_err(|error| Failed::Said(error.to_string()))?,
        Err(stuck) => return Err(Failed::Hangs(stuck.words("opening the file state"))),
    };
    match worker::edited_state(file, edit, Deadline::quiet(LOOK)).await {
        Observed::Seen(bytes) => Ok(bytes),
        Observed::Unknown(why) => Err(Failed::Said(format!("the file state: {}", why.detail()))),
    }
}

/// The change that undoes this one. A `state` is the last thing to be set, and stays beside as it was.
fn taken_back(change: &VolumeChange) -> Option<VolumeChange> {
    match change {
        VolumeChange::Quarantine { path, name } => {
            Some(VolumeChange::GiveBack { name: name.clone(), to: path.clone() })
        }
        VolumeChange::GiveBack { name, to } => Some(VolumeChange::Quarantine { path: to.clone(), name: name.clone() }),
        VolumeChange::Move { from, to } => Some(VolumeChange::Move { from: to.clone(), to: from.clone() }),
        VolumeChange::SetState { .. } => None,
    }
}

/// Says beside what was moved what it is.
fn manifest(id: &EntryId, entry: &Entry, change: &VolumeChange) -> String {
    let (from, name) = match change {
        VolumeChange::Quarantine { path, name } => (path, name),
        VolumeChange::GiveBack { name, to } => (to, name),
        VolumeChange::Move { .. } | VolumeChange::SetState { .. } => return String::new(),
    };
    let text = serde_json::json!({
        "apiVersion": "volhold/v1",
        "kind": "Quarantined",
        "name": name,
        "from": from,
        "guard": entry.guard,
        "volume": entry.volume_id,
        "filesystem": entry.fs_uuid,
        "ordered": entry.time,
        "order": id,
    });
    format!("{text:#}\n")
}

fn not_done(why: String) -> Outcome {
    Outcome::NotDone { why }
}

fn shown(uuid: Option<FsUuid>) -> String {
    uuid.map_or_else(|| "unknown".to_owned(), |uuid| uuid.to_string())
}
