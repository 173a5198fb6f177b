//! What a person orders to be done to a guarded volume. The agent does it, through the mount that nobody else sees, and says
//! what became of it.

use super::{Entry, EntryId, Fact};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// Done from the first change to the last, or, where one cannot be done, taken back from there to the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub changes: Vec<VolumeChange>,
    /// What is there afterwards is right, in that person's word: it is pinned as `adopt` pins it.
    pub adopt: bool,
    /// What was typed.
    pub confirmed: String,
}

/// One change. Each can be found half done, by whoever comes after a crash, and finished. Paths are relative to the volume's
/// root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum VolumeChange {
    /// Renames `path` to `.volhold/quarantine/NAME/content`, with a manifest beside it.
    Quarantine { path: String, name: String },
    /// Renames that content to `to`.
    GiveBack { name: String, to: String },
    /// Renames one directory, where nothing has the new name.
    Move { from: String, to: String },
    /// Edits etcd-manager's `state`; the old one stays under the name `keep`.
    SetState { edit: StateEdit, keep: String },
}

/// Fields of etcd-manager's `state` that are given another value; `None` leaves one as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateEdit {
    pub token: Option<String>,
    pub version: Option<String>,
    pub new_cluster: Option<bool>,
    pub quarantined: Option<bool>,
}

impl StateEdit {
    /// It changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == StateEdit::default()
    }
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    Done,
    /// Nothing was changed, or all that was is as it was before; or, where even that failed, what `why` says.
    NotDone {
        why: String,
    },
}

impl Display for VolumeChange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            VolumeChange::Quarantine { path, name } => {
                write!(f, "rename {path} to .volhold/quarantine/{name}/content, with a manifest beside it")
            }
            VolumeChange::GiveBack { name, to } => write!(f, "rename .volhold/quarantine/{name}/content to {to}"),
            VolumeChange::Move { from, to } => write!(f, "rename {from} to {to}"),
            VolumeChange::SetState { edit, keep } => write!(f, "keep the file state as {keep}, and set in it {edit}"),
        }
    }
}

impl Display for StateEdit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let StateEdit { token, version, new_cluster, quarantined } = self;
        let mut parts = Vec::new();
        parts.extend(token.as_ref().map(|token| format!("cluster token {token}")));
        parts.extend(version.as_ref().map(|version| format!("etcd version {version}")));
        parts.extend(new_cluster.map(|new| format!("new cluster {}", yes(new))));
        parts.extend(quarantined.map(|quarantined| format!("quarantined {}", yes(quarantined))));
        f.write_str(&parts.join(", "))
    }
}

fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done => f.write_str("done"),
            Outcome::NotDone { why } => write!(f, "NOT done: {why}"),
        }
    }
}

/// Orders among a node's own entries of which it is not on record what became of them, oldest first.
pub fn pending_orders(own: &[(EntryId, Entry)]) -> Vec<(EntryId, Entry, Order)> {
    let carried = |id: &EntryId| {
        own.iter().any(|(_, entry)| match &entry.fact {
            Fact::Carried { order, .. } => order == id,
            _other => false,
        })
    };
    let orders = own.iter().filter_map(|(id, entry)| match &entry.fact {
        Fact::Ordered { order } => Some((id.clone(), entry.clone(), order.clone())),
        _other => None,
    });
    orders.filter(|(id, _, _)| !carried(id)).collect()
}

/// What became of the order, where that is on record.
pub fn outcome_of<'a>(own: &'a [(EntryId, Entry)], id: &EntryId) -> Option<&'a Outcome> {
    own.iter().rev().find_map(|(_, entry)| match &entry.fact {
        Fact::Carried { order, outcome } if order == id => Some(outcome),
        _other => None,
    })
}
