//! What a crash between the two ledgers left on the node only is copied to the volume.
//!
//! The verdict is over the union, so this decides nothing; it is for the day on which the volume comes to a node without that
//! memory. It must therefore never change what the union says, and the order of entries does (`record::fold`): only what
//! stands behind the volume's own last entry is copied, and only where the node's ledger has that entry too. A volume that
//! another node wrote to since, or a ledger that lost one in the middle, is left as it is.

use super::{Forgotten, Memory};
use crate::act::volume_ledger;
use crate::model::{Entry, EntryId, Fact, FsUuid, VolumeId};
use crate::record::{NodeLedger, ledger};
use std::os::fd::BorrowedFd;

/// Is this among what is kept on both? What else the node keeps is about the node, or about how the filesystem was made.
fn of_both(fact: &Fact) -> bool {
    match fact {
        Fact::FreshAllowed { .. }
        | Fact::Pinned { .. }
        | Fact::HoldsData { .. }
        | Fact::IdentityChanged { .. }
        | Fact::Adopted { .. }
        | Fact::Unpinned { .. }
        | Fact::Published { .. } => true,
        Fact::FormatIntent { .. }
        | Fact::Formatted { .. }
        | Fact::Released { .. }
        | Fact::Retried
        | Fact::Ordered { .. }
        | Fact::Carried { .. }
        | Fact::Enabled { .. }
        | Fact::Disabled
        | Fact::Bypassed { .. }
        | Fact::Fsck { .. }
        | Fact::NotChecked { .. }
        | Fact::Snapshot { .. }
        | Fact::Grow { .. }
        | Fact::Restarted { .. }
        | Fact::Halted { .. }
        | Fact::Decided { .. } => false,
    }
}

/// The entries that the volume lacks, oldest first.
pub(super) fn missing(
    node: &[(EntryId, Entry)],
    volume: &[(EntryId, Entry)],
    volume_id: &VolumeId,
    fs_uuid: FsUuid,
) -> Vec<Entry> {
    let begin = match volume.last() {
        None => Some(0),
        Some((last, _)) => node.iter().position(|(id, _)| id == last).map(|at| at.saturating_add(1)),
    };
    let Some(behind) = begin.and_then(|begin| node.get(begin..)) else { return Vec::new() };
    let ours = |entry: &Entry| entry.volume_id == *volume_id && entry.fs_uuid == Some(fs_uuid) && of_both(&entry.fact);
    behind.iter().map(|(_, entry)| entry).filter(|entry| ours(entry)).cloned().collect()
}

impl Memory {
    /// Copies to the volume (`root`, writable) what it lacks. Returns how many entries that were.
    pub fn mend(
        &self,
        volume_id: &VolumeId,
        fs_uuid: Option<FsUuid>,
        root: BorrowedFd<'_>,
    ) -> Result<usize, Forgotten> {
        let Some(fs_uuid) = fs_uuid else { return Ok(0) };
        let node = NodeLedger::at(&self.state, &self.guard, &self.here.machine_id).read().map_err(Forgotten::Node)?;
        let bytes = volume_ledger::read(root).map_err(Forgotten::Volume)?.unwrap_or_default();
        // A ledger that is broken is no place to write to, and is told by whoever reads it for a verdict.
        let Ok(volume) = ledger::parse(&bytes) else { return Ok(0) };
        let missing = missing(&node.own, &volume.entries, volume_id, fs_uuid);
        if !missing.is_empty() {
            self.keep_on_volume(&missing, root)?;
            tracing::info!(event = "record.mended", guard = %self.guard, entries = missing.len(), "copied to the volume's ledger what a crash had left on the node only");
        }
        Ok(missing.len())
    }
}
