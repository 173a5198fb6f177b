//! The state of all guards, handed from the agent to whoever tells about it: the latest whole, and each change.
//!
//! The agent never waits here, however many listen and however slow they are. The whole is one shared value that is replaced;
//! changes go into a ring of fixed size that all listeners share, and a listener that falls behind it learns that it did.

use crate::model::{GuardName, GuardStatus, Status, Time};
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::{broadcast, watch};

/// Changes that a listener may be behind.
pub const QUEUE: usize = 64;

/// Everything at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Of the last change that is in it.
    pub number: u64,
    pub status: Status,
    /// Guards that the configuration names, also those of which nothing was reported yet.
    pub configured: Vec<GuardName>,
}

/// One change.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// Counts from the agent's start.
    pub number: u64,
    pub time: Time,
    #[serde(flatten)]
    pub what: What,
}

/// What is another than before.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum What {
    /// A guard's state, or how far its work has come.
    Guard { guard: Box<GuardStatus> },
    /// A guard is not configured any more.
    Removed { name: GuardName },
    /// What is wrong with the configuration, or what the agent itself cannot do.
    Agent { config: Vec<String>, warnings: Vec<String> },
}

/// The agent's end.
#[derive(Debug)]
pub struct Feed {
    snapshots: watch::Sender<Arc<Snapshot>>,
    changes: broadcast::Sender<Arc<Change>>,
}

impl Feed {
    pub fn new(first: Snapshot) -> Self {
        Feed { snapshots: watch::Sender::new(Arc::new(first)), changes: broadcast::Sender::new(QUEUE) }
    }

    /// Replaces the whole, and tells what has changed in it. Callers see to it that numbers only grow.
    pub fn tell(&self, snapshot: Snapshot, what: Option<What>) {
        let change = what.map(|what| Change { number: snapshot.number, time: snapshot.status.written_at, what });
        self.snapshots.send_replace(Arc::new(snapshot));
        if let Some(change) = change {
            // Nobody listens most of the time.
            let _listeners = self.changes.send(Arc::new(change));
        }
    }

    pub fn listener(&self) -> Listener {
        Listener { snapshots: self.snapshots.subscribe(), changes: self.changes.downgrade() }
    }
}

/// The other end. It ends with the [`Feed`].
#[derive(Debug, Clone)]
pub struct Listener {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    changes: broadcast::WeakSender<Arc<Change>>,
}

impl Listener {
    pub fn now(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// Returns when there is another whole than at the last call. `false`: the agent has ended.
    pub async fn changed(&mut self) -> bool {
        self.snapshots.changed().await.is_ok()
    }

    /// The whole, and all changes after it; among them may be some that are in it, which their number tells. `None`: the agent
    /// has ended.
    pub fn follow(&self) -> Option<(Arc<Snapshot>, broadcast::Receiver<Arc<Change>>)> {
        // In this order: what changes in between is told twice, not never.
        let changes = self.changes.upgrade()?.subscribe();
        Some((self.now(), changes))
    }
}
