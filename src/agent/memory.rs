//! One guard's memory: the node's ledger and the volume's, folded into what the rules need.
//!
//! The node's ledger is written by `record`, the volume's by `act`, always in that order: what is on the volume is on the
//! node as well, and after a crash between the two an entry stands on the node only.
//!
//! Everything here reads and writes disks that may hang: the agent calls it on a thread of its own.

use super::clock::Here;
use crate::act::volume_ledger;
use crate::fault::fault_point;
use crate::model::{Entry, EntryId, Fact, FsUuid, GuardName, Observed, Reason, ReasonCode, Records, VolumeId, Why};
use crate::record::{self, NodeLedger, NodeLedgerError, ledger};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

/// How long another writer of the volume's ledger is waited for: only one of our own that hangs in the kernel takes longer.
const OTHER_WRITER: Duration = Duration::from_secs(10);

/// Where one guard's facts are kept and under which names.
#[derive(Debug, Clone)]
pub struct Memory {
    pub state: PathBuf,
    pub guard: GuardName,
    pub here: Here,
}

/// A fact that could not be kept. What was about to happen must then not happen.
#[derive(Debug, thiserror::Error)]
pub enum Forgotten {
    #[error("the node's ledger cannot be written")]
    Node(#[source] NodeLedgerError),
    #[error("the volume's ledger .volhold/ledger cannot be read or written")]
    Volume(#[source] std::io::Error),
    #[error("an entry for the volume's ledger cannot be made")]
    Plan(#[source] ledger::PlanError),
}

impl Forgotten {
    /// The disk under the ledger is full or read-only. It can still be read, and what stands in it counts.
    pub fn no_room(&self) -> bool {
        let source = match self {
            Forgotten::Node(NodeLedgerError::Io { source, .. }) | Forgotten::Volume(source) => source,
            Forgotten::Node(
                NodeLedgerError::Broken { .. } | NodeLedgerError::Encode { .. } | NodeLedgerError::Compact { .. },
            )
            | Forgotten::Plan(_) => return false,
        };
        matches!(
            source.kind(),
            std::io::ErrorKind::StorageFull
                | std::io::ErrorKind::QuotaExceeded
                | std::io::ErrorKind::ReadOnlyFilesystem
        )
    }

    pub fn reason(&self) -> Reason {
        match self {
            Forgotten::Node(error) => error.reason(),
            Forgotten::Volume(_) => Reason::new(ReasonCode::Unreadable, super::chain(self)),
            Forgotten::Plan(_) => Reason::new(ReasonCode::LedgerBroken, super::chain(self)),
        }
    }
}

impl Memory {
    fn entry(&self, volume_id: &VolumeId, fs_uuid: Option<FsUuid>, fact: Fact) -> Entry {
        Entry {
            time: crate::model::Time::now(),
            boot_id: self.here.boot_id.clone(),
            machine_id: self.here.machine_id.clone(),
            guard: self.guard.clone(),
            volume_id: volume_id.clone(),
            fs_uuid,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            fact,
        }
    }

    /// EBS volumes that this node has had for the guard, the latest last. An unreadable ledger names none: whoever needs it is
    /// told then.
    pub fn volumes(&self) -> Vec<VolumeId> {
        let read = NodeLedger::at(&self.state, &self.guard, &self.here.machine_id).read();
        let own = read.map(|node| node.own).unwrap_or_default();
        let mut volumes: Vec<VolumeId> = Vec::new();
        for (_, entry) in own {
            let had = match entry.fact {
                Fact::Pinned { .. }
                | Fact::HoldsData { .. }
                | Fact::Formatted { .. }
                | Fact::FreshAllowed { .. }
                | Fact::Published { .. } => entry.volume_id.is_ebs(),
                Fact::FormatIntent { .. }
                | Fact::IdentityChanged { .. }
                | Fact::Adopted { .. }
                | Fact::Released { .. }
                | Fact::Retried
                | Fact::Unpinned { .. }
                | Fact::Ordered { .. }
                | Fact::Carried { .. }
                | Fact::Fsck { .. }
                | Fact::NotChecked { .. }
                | Fact::Snapshot { .. }
                | Fact::Grow { .. }
                | Fact::Restarted { .. }
                | Fact::Halted { .. }
                | Fact::Enabled { .. }
                | Fact::Disabled
                | Fact::Bypassed { .. }
                | Fact::Decided { .. } => false,
            };
            if had {
                volumes.retain(|known| *known != entry.volume_id);
                volumes.push(entry.volume_id);
            }
        }
        volumes
    }

    /// What the node alone remembers of this volume.
    pub fn of_node(&self, volume_id: &VolumeId) -> Observed<Records> {
        self.fold(volume_id, None, Vec::new(), &[])
    }

    /// What node and volume remember together. `root` is the root of the mounted volume.
    pub fn of_both(&self, volume_id: &VolumeId, fs_uuid: Option<FsUuid>, root: BorrowedFd<'_>) -> Observed<Records> {
        self.of_both_supposing(volume_id, fs_uuid, root, &[])
    }

    /// The same, as if these facts had been kept on the node as well.
    pub fn of_both_supposing(
        &self,
        volume_id: &VolumeId,
        fs_uuid: Option<FsUuid>,
        root: BorrowedFd<'_>,
        supposed: &[Fact],
    ) -> Observed<Records> {
        let unreadable = |detail: String| Observed::Unknown(Why::Unreadable { detail });
        let bytes = match volume_ledger::read(root) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => Vec::new(),
            Err(error) => return unreadable(format!("the volume's ledger .volhold/ledger: {error}")),
        };
        match ledger::parse(&bytes) {
            Ok(parsed) => self.fold(volume_id, fs_uuid, parsed.entries, supposed),
            Err(broken) => unreadable(format!("the volume's ledger .volhold/ledger: {broken}")),
        }
    }

    fn fold(
        &self,
        volume_id: &VolumeId,
        fs_uuid: Option<FsUuid>,
        volume: Vec<(EntryId, Entry)>,
        supposed: &[Fact],
    ) -> Observed<Records> {
        let unreadable = |detail: String| Observed::Unknown(Why::Unreadable { detail });
        match NodeLedger::at(&self.state, &self.guard, &self.here.machine_id).read() {
            Ok(node) => {
                let mut own = node.own;
                let supposed = self.entries(volume_id, fs_uuid, supposed).into_iter().enumerate();
                own.extend(supposed.map(|(number, entry)| (EntryId(format!("supposed-{number}")), entry)));
                let mut records = record::fold(&own, &volume, volume_id, fs_uuid);
                records.node_ledger_present = node.present;
                Observed::Seen(records)
            }
            Err(error) => unreadable(format!("the node's ledger: {}", super::chain(&error))),
        }
    }

    /// Keeps facts on the node.
    pub fn keep(&self, volume_id: &VolumeId, fs_uuid: Option<FsUuid>, facts: &[Fact]) -> Result<(), Forgotten> {
        let entries = self.entries(volume_id, fs_uuid, facts);
        self.keep_on_node(&entries)
    }

    /// Keeps facts on the node, then on the volume whose root this is (writable): the same entries, so that the fold knows
    /// them for one.
    ///
    /// A full or read-only disk under one of the two costs that copy and nothing else: the verdict is over the union of both.
    /// A healthy master whose root disk ran full, or whose volume did, must come up again.
    pub fn keep_on_both(
        &self,
        volume_id: &VolumeId,
        fs_uuid: Option<FsUuid>,
        facts: &[Fact],
        root: BorrowedFd<'_>,
    ) -> Result<(), Forgotten> {
        let entries = self.entries(volume_id, fs_uuid, facts);
        let on_node = match self.keep_on_node(&entries) {
            Err(error) if !error.no_room() => return Err(error),
            kept => kept,
        };
        match (on_node, self.keep_on_volume(&entries, root)) {
            (Ok(()), Ok(())) => Ok(()),
            (Ok(()), Err(lost)) | (Err(lost), Ok(())) if lost.no_room() => {
                tracing::warn!(event = "record.half", guard = %self.guard, error = %super::chain(&lost), "kept in one ledger only");
                Ok(())
            }
            (Ok(()) | Err(_), Err(error)) | (Err(error), Ok(())) => Err(error),
        }
    }

    fn keep_on_volume(&self, entries: &[Entry], root: BorrowedFd<'_>) -> Result<(), Forgotten> {
        if entries.is_empty() {
            return Ok(());
        }
        fault_point("between-ledgers");
        let _lock = volume_ledger::lock(root, OTHER_WRITER).map_err(Forgotten::Volume)?;
        for entry in entries {
            let current = self.volume_ledger_shortened(root)?;
            let plan = ledger::plan_append(&current, entry).map_err(Forgotten::Plan)?;
            if plan.cut_to < current.len() as u64 {
                volume_ledger::truncate_torn(root, plan.cut_to).map_err(Forgotten::Volume)?;
            }
            volume_ledger::append(root, &plan.bytes).map_err(Forgotten::Volume)?;
            fault_point("after-volume-entry");
        }
        fault_point("after-volume-ledger");
        Ok(())
    }

    /// The volume's ledger, rewritten when it has grown: marks come for years. A rewrite that fails (a full volume) costs
    /// space and is tried again with the next entry; the facts are kept behind the long one.
    fn volume_ledger_shortened(&self, root: BorrowedFd<'_>) -> Result<Vec<u8>, Forgotten> {
        let read = || Ok(volume_ledger::read(root).map_err(Forgotten::Volume)?.unwrap_or_default());
        let current = read()?;
        match ledger::plan_rewrite(&current) {
            Ok(None) => return Ok(current),
            Ok(Some(shorter)) => {
                if let Err(error) = volume_ledger::replace(root, &shorter) {
                    tracing::warn!(event = "ledger.long", guard = %self.guard, %error, "the volume's ledger was not rewritten shorter");
                }
            }
            // What cannot be read is for the append to refuse.
            Err(error) => {
                tracing::warn!(event = "ledger.long", guard = %self.guard, error = %super::chain(&error), "the volume's ledger cannot be rewritten shorter");
            }
        }
        read()
    }

    fn entries(&self, volume_id: &VolumeId, fs_uuid: Option<FsUuid>, facts: &[Fact]) -> Vec<Entry> {
        facts.iter().map(|fact| self.entry(volume_id, fs_uuid, fact.clone())).collect()
    }

    fn keep_on_node(&self, entries: &[Entry]) -> Result<(), Forgotten> {
        if entries.is_empty() {
            return Ok(());
        }
        let ledger = NodeLedger::open(&self.state, &self.guard, &self.here.machine_id).map_err(Forgotten::Node)?;
        for entry in entries {
            ledger.append(entry).map_err(Forgotten::Node)?;
        }
        Ok(())
    }
}

/// What the volume's ledger lacks.
mod mend;
#[cfg(test)]
mod tests;
