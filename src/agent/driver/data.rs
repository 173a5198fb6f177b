//! The data dirs: read through a mount, published, the gate opened over them, marked while it is open.

use super::{Driver, LOOK, SHORT, blocking, failure};
use crate::agent::machine::{Event, Failure, State};
use crate::agent::publish;
use crate::cloud::{Local, VolumeProvider};
use crate::fault::fault_point;
use crate::gate::files;
use crate::model::{Fact, Observed, ReasonCode, StartEvidence, StartKind, Why};
use crate::worker::{self, Deadline};
use std::os::fd::OwnedFd;

impl Driver {
    pub(super) async fn look(&mut self) -> Event {
        let root = match &self.mount {
            Some(mount) => mount.root().map_err(|error| crate::agent::chain(&error)),
            None => Err("the volume is not mounted".to_owned()),
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
        let root = self.mounted_root().await;
        Event::Looked(Box::new(self.evidence(root).await))
    }

    /// The root of the mount that is there, which must be the device's own.
    pub(super) async fn mounted_root(&self) -> Result<OwnedFd, String> {
        let at = self.mounted_at.clone().unwrap_or_else(|| self.config.publish.clone());
        let devnum = self.guard.device().map(|facts| facts.devnum);
        let Some(devnum) = devnum else { return Err("the device is not known".to_owned()) };
        match blocking(SHORT, move || publish::open_root(&at, devnum)).await {
            Ok(Ok(root)) => Ok(root),
            Ok(Err(error)) => Err(crate::agent::chain(&error)),
            Err(stuck) => Err(stuck.why("opening the mounted volume").detail().to_owned()),
        }
    }

    pub(super) async fn evidence(&self, root: Result<OwnedFd, String>) -> StartEvidence {
        let volume_id = self.volume_id();
        let filesystem = match &self.filesystem {
            Some(filesystem) => Observed::Seen(filesystem.clone()),
            None => Observed::Unknown(Why::Unreadable { detail: "the superblock was not understood".to_owned() }),
        };
        let age = match self.guard.device() {
            Some(facts) => Local.knowledge(facts).await.age,
            None => Observed::not_run("the device is not known"),
        };
        let root = match root {
            Ok(root) => root,
            Err(detail) => {
                let why = Why::Unreadable { detail };
                return StartEvidence {
                    volume_id: volume_id.clone(),
                    filesystem,
                    volume: Observed::Unknown(why.clone()),
                    records: self.of_node(&volume_id).await,
                    running: Observed::Unknown(why),
                    age,
                };
            }
        };
        let mut records = self.of_both(&root).await;
        if let Observed::Seen(records) = &mut records {
            crate::agent::same_allowance(
                records,
                &self.run,
                &self.config.name,
                &self.memory.here.boot_id,
                self.fs_uuid(),
            );
        }
        let hints = self.hints();
        let (volume, running) = match (root.try_clone(), root.try_clone()) {
            (Ok(first), Ok(second)) => (
                worker::examine_volume(first, &hints, Deadline::quiet(LOOK)).await,
                worker::running(second, &hints, Deadline::quiet(LOOK)).await,
            ),
            (Err(error), _) | (_, Err(error)) => {
                let why = Why::Unreadable { detail: error.to_string() };
                (Observed::Unknown(why.clone()), Observed::Unknown(why))
            }
        };
        StartEvidence { volume_id, filesystem, volume, records, running, age }
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
        match self.mounted_root().await {
            Ok(root) => {
                let records = self.of_both(&root).await;
                let mark = worker::mark(root, &data_dir, Deadline::quiet(LOOK)).await;
                if let Observed::Unknown(why) = &mark {
                    tracing::debug!(event = "mark.unknown", guard = %self.config.name, why = why.detail());
                }
                if let Observed::Seen(Some(seen)) = &mark {
                    self.rounds.marked(seen.keys.unwrap_or(0) > 0);
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
        let (Some(mount), Some(mut device)) = (self.mount.take(), self.device.take()) else {
            return Event::Published(Err(failure(ReasonCode::MountFailed, "the volume is not mounted".to_owned())));
        };
        let plan = publish::Plan {
            config: self.config.clone(),
            memory: self.memory.clone(),
            volume_id: self.volume_id(),
            fs_uuid: self.fs_uuid(),
            facts,
            data_dir,
            create,
        };
        match blocking(SHORT, move || {
            let outcome = publish::publish(&plan, mount, &mut device);
            (device, outcome)
        })
        .await
        {
            Ok((device, outcome)) => {
                self.device = Some(device);
                Event::Published(outcome.map(|at| self.mounted_at = Some(at)))
            }
            Err(stuck) => Event::Published(Err(Failure { reason: stuck.reason("publishing"), tool_output: None })),
        }
    }

    pub(super) async fn open_gate(&mut self, facts: Vec<Fact>, data_dir: String, how: StartKind) {
        fault_point("before-open-gate");
        self.record(&facts).await;
        let Some(devnum) = self.guard.device().map(|facts| facts.devnum) else { return };
        let at = self.mounted_at.clone().unwrap_or_else(|| self.config.publish.clone());
        // A gate that is open already stays the gate that was opened: what it was opened for is not written over.
        let how = match files::read_published(&self.run, &self.config.name) {
            Ok(Some(before)) if how == StartKind::Running && before.boot_id == self.memory.here.boot_id => before.how,
            Ok(_) | Err(_) => how,
        };
        let published = files::Published {
            at: at.display().to_string(),
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
        let root = at;
        let grows = how == StartKind::Fresh;
        self.rounds.watch(&root, &data_dir, grows);
    }
}
