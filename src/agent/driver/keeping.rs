//! The guard's memory on node and volume: both may hang as any disk may.

use super::{Driver, SHORT, blocking};
use crate::agent::volume_root::VolumeRoot;
use crate::agent::{bypass, evidence};
use crate::cloud::Provider;
use crate::model::{Fact, FsUuid, Mode, Observed, Reason, Records, VolumeId};
use std::os::fd::AsFd;

impl Driver {
    pub(super) async fn record(&mut self, facts: &[Fact]) {
        if facts.is_empty() {
            return;
        }
        let (volume_id, fs_uuid) = (self.volume_id(), self.fs_uuid());
        let kept = if self.config.mode == Mode::Observe {
            self.keep(&volume_id, fs_uuid, facts.to_vec()).await
        } else {
            match self.mounted_root(true).await {
                Ok(root) => self.keep_on_both(root, facts.to_vec()).await,
                Err(_not_mounted) => self.keep(&volume_id, fs_uuid, facts.to_vec()).await,
            }
        };
        if let Err(reason) = kept {
            tracing::error!(event = "record.failed", guard = %self.config.name, "a fact was not kept: {}", reason.message);
        }
    }

    /// Copies to the volume what a crash has left on the node only. The verdict is over both: what fails here is told, and
    /// tried again when the gate opens the next time.
    pub(super) async fn mend(&self) {
        let root = match self.mounted_root(true).await {
            Ok(root) => root,
            Err(detail) => {
                tracing::debug!(event = "record.unmended", guard = %self.config.name, "{detail}");
                return;
            }
        };
        let (memory, volume_id, fs_uuid) = (self.memory.clone(), self.volume_id(), self.fs_uuid());
        let failed = match blocking(SHORT, move || memory.mend(&volume_id, fs_uuid, root.as_fd())).await {
            Ok(Ok(_copied)) => return,
            Ok(Err(error)) => crate::agent::chain(&error),
            Err(stuck) => stuck.words("writing the volume's ledger"),
        };
        tracing::warn!(event = "record.unmended", guard = %self.config.name, error = failed, "the volume's ledger lacks what the node's has");
    }

    /// A person may have opened the gate by hand while no agent worked. What cannot be recorded holds nothing back.
    pub(super) async fn keep_bypass(&self) {
        let Some(opened) = crate::gate::files::bypass(&self.run, &self.config.name) else { return };
        let (memory, volume_id) = (self.memory.clone(), self.volume_id());
        let failed = match blocking(SHORT, move || bypass::keep(&memory, &volume_id, &opened)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => crate::agent::chain(&error),
            Err(stuck) => stuck.words("writing the node's ledger"),
        };
        tracing::error!(event = "record.failed", guard = %self.config.name, error = failed, "a bypass was not recorded");
    }

    pub(super) async fn keep(
        &self,
        volume_id: &VolumeId,
        fs_uuid: Option<FsUuid>,
        facts: Vec<Fact>,
    ) -> Result<(), Reason> {
        let (memory, volume_id) = (self.memory.clone(), volume_id.clone());
        match blocking(SHORT, move || memory.keep(&volume_id, fs_uuid, &facts)).await {
            Ok(kept) => kept.map_err(|error| error.reason()),
            Err(stuck) => Err(stuck.reason("writing the node's ledger")),
        }
    }

    /// Keeps what is about to be done to a filesystem whose identity is settled. On a full or read-only disk only the journal
    /// tells it: the ledger is still read, so whose data this is stays known, and a healthy master must not be held because its
    /// root disk ran full. What mkfs needs on record is kept, never noted.
    pub(super) async fn note(&self, volume_id: &VolumeId, fs_uuid: Option<FsUuid>, fact: Fact) -> Result<(), Reason> {
        let (memory, volume_id) = (self.memory.clone(), volume_id.clone());
        let words = format!("{fact:?}");
        match blocking(SHORT, move || memory.keep(&volume_id, fs_uuid, &[fact])).await {
            Ok(Err(error)) if error.no_room() => {
                tracing::warn!(event = "record.told", guard = %self.config.name, fact = words, error = %crate::agent::chain(&error), "not in the ledger, only here");
                Ok(())
            }
            Ok(kept) => kept.map_err(|error| error.reason()),
            Err(stuck) => Err(stuck.reason("writing the node's ledger")),
        }
    }

    pub(super) async fn keep_on_both(&self, root: VolumeRoot, facts: Vec<Fact>) -> Result<(), Reason> {
        let (memory, volume_id, fs_uuid) = (self.memory.clone(), self.volume_id(), self.fs_uuid());
        match blocking(SHORT, move || memory.keep_on_both(&volume_id, fs_uuid, &facts, root.as_fd())).await {
            Ok(kept) => kept.map_err(|error| error.reason()),
            Err(stuck) => Err(stuck.reason("writing the ledgers of node and volume")),
        }
    }

    /// What stands on record now that the gate is open, for whoever tells it on.
    pub(super) async fn read_records(&mut self) {
        match self.provider {
            Provider::Ebs(_) => {}
            Provider::Local(_) => return,
        }
        let Ok(root) = self.mounted_root(false).await else { return };
        if let Observed::Seen(records) = self.of_both(&root).await {
            self.marked = Some((records, None));
        }
    }

    pub(super) async fn of_node(&self, volume_id: &VolumeId) -> Observed<Records> {
        evidence::of_node(&self.memory, volume_id).await
    }

    pub(super) async fn of_both(&self, root: &VolumeRoot) -> Observed<Records> {
        evidence::of_both(&self.memory, &self.volume_id(), self.fs_uuid(), root, &[]).await
    }
}
