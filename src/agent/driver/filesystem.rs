//! What writes to the device: mkfs, fsck, the detached mount; each on record before it begins.

use super::{Driver, FSCK, MKFS, SHORT, blocking, failure};
use crate::act::{fsck, mkfs, mount};
use crate::agent::clock::boot_millis;
use crate::agent::machine::{Event, Failure};
use crate::agent::snapshot::{Before, before, by_records};
use crate::fault::fault_point;
use crate::model::{Fact, FsUuid, Observed, ReasonCode, SnapshotPolicy, Why};
use std::os::fd::AsFd;

impl Driver {
    pub(super) async fn mkfs(&mut self, permit: crate::decide::format::FormatPermit) -> Event {
        let uuid = FsUuid(uuid::Uuid::new_v4());
        let facts = self.guard.device().cloned();
        let Some(facts) = facts else {
            return Event::Made(Err(failure(ReasonCode::MkfsFailed, "the device is not open".to_owned())));
        };
        let intent = Fact::FormatIntent {
            fs_uuid: uuid,
            devnum: permit.devnum(),
            diskseq: permit.diskseq(),
            evidence_digest: permit.evidence_digest().to_owned(),
        };
        fault_point("before-intent");
        if let Err(reason) = self.keep(&facts.volume_id, None, vec![intent]).await {
            return Event::Made(Err(Failure { reason, tool_output: None }));
        }
        fault_point("after-intent");
        tracing::info!(event = "format.begins", guard = %self.config.name, node = %facts.node, uuid = %uuid, "proven blank: makes a filesystem");
        self.unstore_claim().await;
        let Some(now) = boot_millis() else {
            return Event::Made(Err(failure(ReasonCode::MkfsFailed, "the kernel does not tell the time".to_owned())));
        };
        let fstype = self.config.fstype;
        let made = self
            .with_device(MKFS, move |device| {
                mkfs::make(permit, device, fstype, uuid, now, mkfs::DEFAULT_LIMIT)
                    .map(|made| made.uuid)
                    .map_err(|error| Failure { reason: error.reason(), tool_output: None })
            })
            .await;
        self.lock = None;
        self.store_claim();
        let made = match made {
            Ok(made) => made,
            Err(stuck) => Err(Failure { reason: stuck.reason("mkfs"), tool_output: None }),
        };
        if let Ok(uuid) = made {
            fault_point("after-mkfs");
            let fact = Fact::Formatted { fs_uuid: uuid };
            if let Err(reason) = self.keep(&facts.volume_id, Some(uuid), vec![fact]).await {
                return Event::Made(Err(Failure { reason, tool_output: None }));
            }
            fault_point("after-formatted");
            // Read as any filesystem is: what mkfs says of itself is not what the kernel will mount.
            let reading = self.probe(false).await;
            if reading.filesystem.as_ref().and_then(|filesystem| filesystem.uuid) != Some(uuid) {
                let message = format!("the new filesystem does not read back as {uuid}");
                return Event::Made(Err(failure(ReasonCode::MkfsFailed, message)));
            }
        }
        Event::Made(made)
    }

    pub(super) async fn fsck(&mut self) -> Event {
        let (volume_id, fs_uuid) = (self.volume_id(), self.fs_uuid());
        if let Err(failure) = self.keep_own_format().await {
            return Event::Checked(Err(failure));
        }
        fault_point("before-fsck");
        let says_clean = self.filesystem.as_ref().is_some_and(|filesystem| filesystem.clean == Some(true));
        match self.snapshot_before_repair(says_clean).await {
            Ok(()) => {}
            // Nothing was begun.
            Err(failure) => return Event::Unchecked(Err(failure)),
        }
        let begins = Fact::Fsck { exit: None, output: String::new() };
        if let Err(reason) = self.note(&volume_id, fs_uuid, begins).await {
            return Event::Checked(Err(Failure { reason, tool_output: None }));
        }
        fault_point("after-fsck-recorded");
        self.unstore_claim().await;
        let checked = self
            .with_device(FSCK, move |device| {
                fsck::ext4_check(device, says_clean, fsck::DEFAULT_LIMIT).map_err(|error| {
                    let tool_output = error.output().map(str::to_owned);
                    Failure { reason: error.reason(), tool_output }
                })
            })
            .await;
        self.store_claim();
        let checked = match checked {
            Ok(checked) => checked,
            Err(stuck) => Err(Failure { reason: stuck.reason("fsck"), tool_output: None }),
        };
        match checked {
            Ok(fsck) => {
                fault_point("after-fsck");
                let ended = Fact::Fsck { exit: Some(fsck.exit), output: fsck.output };
                match self.note(&volume_id, fs_uuid, ended).await {
                    Ok(()) => {
                        fault_point("after-fsck-ended");
                        Event::Checked(Ok(()))
                    }
                    Err(reason) => Event::Checked(Err(Failure { reason, tool_output: None })),
                }
            }
            Err(failure) => Event::Checked(Err(failure)),
        }
    }

    /// Where e2fsck would write, and the policy says so, EC2 keeps the volume as it is before that.
    async fn snapshot_before_repair(&mut self, says_clean: bool) -> Result<(), Failure> {
        match self.config.snapshot {
            SnapshotPolicy::Off => return Ok(()),
            SnapshotPolicy::BestEffort | SnapshotPolicy::Required => {}
        }
        if says_clean {
            let looked = self.with_device(FSCK, |device| fsck::ext4_foresee(device, fsck::DEFAULT_LIMIT)).await;
            match looked {
                Ok(Err(fsck::FsckError::Refused { .. })) => {}
                // Nothing to repair; or what is wrong is told by the check itself, which then writes nothing either.
                Ok(Ok(_) | Err(_)) | Err(_) => return Ok(()),
            }
        }
        let volume = self.volume_id();
        let records = self.of_node(&volume).await;
        let wanted = Before {
            guard: self.config.name.as_str(),
            volume: &volume,
            policy: self.config.snapshot,
            step: "fsck",
            holds: by_records(self.fs_uuid(), records.seen()),
        };
        let refused = |reason| Failure { reason, tool_output: None };
        if let Some(id) = before(&self.hub, wanted).await.map_err(refused)? {
            let fact = Fact::Snapshot { id, before: "fsck".to_owned() };
            self.note(&volume, self.fs_uuid(), fact).await.map_err(refused)?;
        }
        Ok(())
    }

    /// Mounting writes: that it comes next, without fsck, is on record before it does.
    pub(super) async fn no_fsck(&mut self, why: &str) -> Event {
        if let Err(failure) = self.keep_own_format().await {
            return Event::Unchecked(Err(failure));
        }
        let (volume_id, fs_uuid) = (self.volume_id(), self.fs_uuid());
        let kept = self.note(&volume_id, fs_uuid, Fact::NotChecked { why: why.to_owned() }).await;
        Event::Unchecked(kept.map_err(|reason| Failure { reason, tool_output: None }))
    }

    /// Where mkfs had finished and only its record was lost with a crash, the record is made up for.
    pub(super) async fn keep_own_format(&mut self) -> Result<(), Failure> {
        let (true, Some(uuid)) = (self.finishes_own_format().await, self.fs_uuid()) else { return Ok(()) };
        let volume_id = self.volume_id();
        let kept = self.keep(&volume_id, Some(uuid), vec![Fact::Formatted { fs_uuid: uuid }]).await;
        kept.map_err(|reason| Failure { reason, tool_output: None })
    }

    /// The record has an open intent for exactly the filesystem that stands.
    pub(super) async fn finishes_own_format(&self) -> bool {
        match self.of_node(&self.volume_id()).await {
            Observed::Seen(records) => {
                records.open_intent.as_ref().is_some_and(|intent| Some(intent.fs_uuid) == self.fs_uuid())
            }
            Observed::Unknown(_) => false,
        }
    }

    /// Node's and volume's ledger together, through a mount that writes nothing and is gone again when this returns.
    pub(super) async fn read_ledger(&mut self) -> Event {
        self.unstore_claim().await;
        let (fstype, memory, volume, fs_uuid) =
            (self.config.fstype, self.memory.clone(), self.volume_id(), self.fs_uuid());
        let read = self
            .with_device(SHORT, move |device| {
                let looked = mount::look_only(device, fstype.as_str());
                let read =
                    looked.and_then(|mount| mount.root().map(|root| memory.of_both(&volume, fs_uuid, root.as_fd())));
                // The mount has gone: the device is ours again. Whether it is, the next step finds out.
                let _ = device.reclaim();
                read
            })
            .await;
        self.store_claim();
        let records = match read {
            Ok(Ok(records)) => records,
            Ok(Err(error)) => Observed::Unknown(Why::Unreadable { detail: crate::agent::chain(&error) }),
            Err(stuck) => Observed::Unknown(stuck.why("reading the volume's ledger")),
        };
        Event::Remembered(Box::new(records))
    }

    pub(super) async fn mount(&mut self) -> Event {
        self.unstore_claim().await;
        let (fstype, options) = (self.config.fstype, self.config.mount_options.clone());
        let mounted = self
            .with_device(SHORT, move |device| {
                mount::examine(device, fstype.as_str(), &options)
                    .map_err(|error| Failure { reason: error.reason(), tool_output: None })
            })
            .await;
        match mounted {
            Ok(Ok(mount)) => {
                self.mount = Some(mount);
                fault_point("after-mount");
                Event::Mounted(Ok(()))
            }
            Ok(Err(failure)) => Event::Mounted(Err(failure)),
            Err(stuck) => Event::Mounted(Err(Failure { reason: stuck.reason("mounting"), tool_output: None })),
        }
    }

    pub(super) async fn drop_mount(&mut self) {
        if let Some(mount) = self.mount.take() {
            // Unmounting waits for the filesystem to write back; on a stalled disk that may take for ever.
            let _dropped = blocking(SHORT, move || drop(mount)).await;
        }
    }
}
