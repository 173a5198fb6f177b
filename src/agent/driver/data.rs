//! The data dirs: read through a mount, published, the gate opened over them, marked while it is open.

use super::{Driver, LOOK, SHORT, blocking, failure};
use crate::agent::evidence::{Asked, start_evidence};
use crate::agent::machine::{Event, Failure, State};
use crate::agent::publish;
use crate::agent::volume_root::{self, VolumeRoot};
use crate::config::GuardConfig;
use crate::fault::fault_point;
use crate::gate::files;
use crate::model::{Fact, Observed, Publish, PublishDir, ReasonCode, StartEvidence, StartKind, WHOLE, Why};
use crate::worker::{self, Deadline};
use std::path::Path;

impl Driver {
    pub(super) async fn look(&mut self) -> Event {
        let orders = self.carry_out_orders().await;
        let root = match (orders, &self.mount) {
            (Err(hangs), _) => Err(hangs),
            (Ok(()), Some(mount)) => mount.root().map(VolumeRoot::from).map_err(|error| crate::agent::chain(&error)),
            (Ok(()), None) => Err("the volume is not mounted".to_owned()),
        };
        let evidence = self.evidence(root).await;
        fault_point("after-look");
        Event::Looked(Box::new(evidence))
    }

    pub(super) async fn look_through_mount(&mut self) -> Event {
        if self.filesystem.is_none() {
            // The superblock tells which filesystem this is; a mounted device is read beside its mount.
            let _reading = self.probe(false).await;
        }
        Event::Looked(Box::new(self.look_at_open().await))
    }

    /// The root of the volume that is mounted, where what is mounted is the device's own and each directory the one that
    /// belongs there. To be let go soon.
    pub(super) async fn mounted_root(&self, writes: bool) -> Result<VolumeRoot, String> {
        let (entries, fstype) = (self.mounted(), self.config.fstype);
        let devnum = self.guard.device().map(|facts| facts.devnum);
        let Some(devnum) = devnum else { return Err("the device is not known".to_owned()) };
        match blocking(SHORT, move || volume_root::open(&entries, devnum, fstype, writes)).await {
            Ok(Ok(root)) => Ok(root),
            Ok(Err(error)) => Err(crate::agent::chain(&error)),
            Err(stuck) => Err(stuck.why("opening the mounted volume").detail().to_owned()),
        }
    }

    /// What of the volume is mounted where, as far as that is known.
    pub(super) fn mounted(&self) -> Vec<PublishDir> {
        if self.mounted.is_empty() { self.places().entries().to_vec() } else { self.mounted.clone() }
    }

    pub(super) async fn evidence(&mut self, root: Result<VolumeRoot, String>) -> StartEvidence {
        if root.is_ok() {
            // Seen anew, and whole: the marks of an earlier opening are old.
            self.marked = None;
        }
        let asked = Asked {
            config: &self.config,
            run: &self.run,
            memory: &self.memory,
            volume_id: self.volume_id(),
            device: self.guard.device(),
            filesystem: self.filesystem.as_ref(),
            supposed: &[],
        };
        start_evidence(&asked, &mut self.provider, root).await
    }

    /// Durable progress of the data dir in use, with the records beside it.
    pub(super) async fn mark(&mut self) -> Event {
        let State::Open { data_dir, .. } = &self.guard.state else { return Event::LookAgain };
        let data_dir = data_dir.clone();
        let open = files::is_open(&self.run, &self.config.name, &self.memory.here.boot_id);
        if matches!(open, Ok(false)) {
            // Somebody took the ready file away; etcd could not start again. The look renews it.
            return Event::LookAgain;
        }
        match self.mounted_root(false).await {
            Ok(root) => {
                let records = self.of_both(&root).await;
                let mark = match root.try_clone() {
                    Ok(reader) => worker::mark(reader, &data_dir, Deadline::quiet(LOOK)).await,
                    Err(error) => Observed::Unknown(Why::Unreadable { detail: error.to_string() }),
                };
                drop(root);
                if let Observed::Unknown(why) = &mark {
                    tracing::debug!(event = "mark.unknown", guard = %self.config.name, why = why.detail());
                }
                if let Observed::Seen(Some(seen)) = &mark {
                    self.rounds.marked(seen.keys.unwrap_or(0) > 0);
                }
                if let Observed::Seen(records) = &records {
                    self.marked = Some((records.clone(), mark.seen().cloned().flatten()));
                }
                Event::Marked { mark, records: Box::new(records) }
            }
            // Not even the root can be opened: no progress is known, and what is wrong is looked at and told.
            Err(detail) => {
                tracing::debug!(event = "mark.unknown", guard = %self.config.name, why = detail);
                Event::LookAgain
            }
        }
    }

    pub(super) async fn publish(&mut self, facts: Vec<Fact>, data_dir: String, create: bool) -> Event {
        let devnum = self.guard.device().map(|facts| facts.devnum);
        let source = match (self.mount.take(), devnum) {
            (Some(mount), _) => Some(publish::Source::Examined(mount)),
            (None, Some(devnum)) if !self.mounted.is_empty() => {
                Some(publish::Source::Partly(self.mounted.clone(), devnum))
            }
            (None, Some(_) | None) => None,
        };
        let (Some(source), Some(mut device)) = (source, self.device.take()) else {
            return Event::Published(Err(failure(ReasonCode::MountFailed, "the volume is not mounted".to_owned())));
        };
        let plan = publish::Plan {
            config: GuardConfig { publish: self.places(), ..self.config.clone() },
            memory: self.memory.clone(),
            volume_id: self.volume_id(),
            fs_uuid: self.fs_uuid(),
            facts,
            data_dir,
            create,
        };
        match blocking(SHORT, move || {
            let outcome = publish::publish(&plan, source, &mut device);
            (device, outcome)
        })
        .await
        {
            Ok((device, outcome)) => {
                self.device = Some(device);
                Event::Published(outcome.map(|entries| self.mounted = entries))
            }
            Err(stuck) => Event::Published(Err(Failure { reason: stuck.reason("publishing"), tool_output: None })),
        }
    }

    pub(super) async fn open_gate(&mut self, facts: Vec<Fact>, data_dir: String, how: StartKind) {
        fault_point("before-open-gate");
        self.mend().await;
        self.record(&facts).await;
        let Some(devnum) = self.guard.device().map(|facts| facts.devnum) else { return };
        let mounted = self.mounted();
        let Some(publish) = Publish::directories(mounted.clone()) else { return };
        // A gate that is open already stays the gate that was opened: what it was opened for is not written over.
        let how = match files::read_published(&self.run, &self.config.name) {
            Ok(Some(before)) if how == StartKind::Running && before.boot_id == self.memory.here.boot_id => before.how,
            Ok(_) | Err(_) => how,
        };
        let published = files::Published {
            at: publish.main(Some(&data_dir)).display().to_string(),
            directories: if publish.is_whole() { Vec::new() } else { mounted },
            devnum,
            fs_uuid: self.fs_uuid(),
            volume_id: self.volume_id(),
            data_dir: data_dir.clone(),
            how,
            mount_id: None,
            boot_id: self.memory.here.boot_id.clone(),
        };
        self.keep_running();
        if let Err(error) = files::open_gate(&self.run, &self.config.name, &published) {
            tracing::error!(event = "gate.unwritten", guard = %self.config.name, error = %crate::agent::chain(&error), "cannot open the gate");
        }
        self.read_records().await;
        let grows = how == StartKind::Fresh;
        // Of the volume only what is published can be watched; what appears beside that is found by the clock.
        match publish.entry_of(&data_dir).and_then(|entry| Some((entry, entry.place_of(&data_dir)?))) {
            Some((entry, place)) => {
                let below = place.strip_prefix(&entry.at).unwrap_or(&place);
                self.rounds.watch(&entry.at, below, grows);
            }
            None => self.rounds.watch(publish.main(None), Path::new(WHOLE), grows),
        }
    }
}
