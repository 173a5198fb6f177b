//! A volume that was made larger (ModifyVolume) while it is in use: its filesystem is told, or grown where the configuration
//! says so.

use super::{Driver, SHORT, blocking};
use crate::act::grow::{self, Room};
use crate::agent::machine::State;
use crate::agent::snapshot::{Before, before, by_records};
use crate::device::ioctl;
use crate::fault::fault_point;
use crate::model::{Fact, Fstype, Mode, Reason, ReasonCode};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Longest that growing may take: a few writes for each new group of blocks.
const GROW: Duration = Duration::from_secs(600);
/// Enough for the superblock of an ext4.
const HEAD: usize = 4096;

/// Why it was not grown.
struct NotGrown {
    why: String,
    /// Or only what has to be done before.
    begun: bool,
}

impl Driver {
    /// Looks whether the device is larger than its filesystem, and does what the configuration says.
    pub(super) async fn attend_to_size(&mut self) {
        let before = self.enlarged.clone();
        self.look_at_size().await;
        if self.enlarged != before {
            self.report();
        }
    }

    async fn look_at_size(&mut self) {
        match (&self.guard.state, self.config.mode) {
            (State::Open { doubts, .. }, Mode::Enforce) if doubts.is_empty() => {}
            (_, Mode::Enforce | Mode::Observe) => {
                self.enlarged = None;
                return;
            }
        }
        // What cannot be found out is no news, and holds nothing.
        let Some(room) = self.room().await else { return };
        let Some(wanted) = room.larger() else {
            self.enlarged = None;
            return;
        };
        let (volume, mib) = (self.volume_id(), |bytes: u64| bytes >> 20);
        let size = format!("{volume} has {} MiB and its filesystem {} MiB", mib(room.device), mib(room.filesystem));
        let told = |what: &str| Some(Reason::new(ReasonCode::VolumeEnlarged, format!("{size}: {what}")));
        if !self.config.grow {
            self.enlarged = told("`grow = \"online\"` lets volhold grow it, while it is in use");
            return;
        }
        if self.not_grown_to == Some(wanted) {
            return;
        }
        let grown = self.grow(&room).await;
        let failed = grown.err();
        // What was tried and failed is not tried again at the same size. What had to come first may come later.
        self.not_grown_to = failed.as_ref().filter(|failed| failed.begun).map(|_| wanted);
        self.enlarged = failed.and_then(|NotGrown { why, .. }| told(&format!("it was not grown, for {why}")));
        match &self.enlarged {
            Some(reason) => {
                tracing::error!(event = "grow.failed", guard = %self.config.name, "{}", reason.message);
            }
            None => {
                tracing::info!(event = "grow.done", guard = %self.config.name, %volume, from = room.filesystem, to = wanted, "the filesystem has grown");
            }
        }
    }

    async fn room(&self) -> Option<Room> {
        let device = self.device.as_ref()?.reader().ok()?;
        let fstype = self.config.fstype;
        let root = match fstype {
            Fstype::Ext4 => None,
            Fstype::Xfs => Some(self.mounted_root(false).await.ok()?),
        };
        let asked = blocking(SHORT, move || {
            let size = ioctl::size(&device).ok()?;
            let (filesystem, block) = match &root {
                None => {
                    let mut head = vec![0_u8; HEAD];
                    device.read_exact_at(&mut head, 0).ok()?;
                    crate::probe::ext_size(&head)?
                }
                Some(root) => grow::xfs_size(root.as_fd()).ok()?,
            };
            Some(Room { device: size, filesystem, block })
        });
        asked.await.ok().flatten()
    }

    /// On record before it happens, and after.
    async fn grow(&mut self, room: &Room) -> Result<(), NotGrown> {
        let (volume, fs_uuid) = (self.volume_id(), self.fs_uuid());
        let records = self.of_node(&volume).await;
        let wanted = Before {
            guard: self.config.name.as_str(),
            volume: &volume,
            policy: self.config.snapshot,
            step: "grow",
            holds: by_records(fs_uuid, records.seen()),
        };
        let snapshot = before(&self.hub, wanted).await;
        let snapshot = snapshot.map_err(|reason| NotGrown { why: reason.message, begun: false })?;
        self.grow_after(room, snapshot).await.map_err(|why| NotGrown { why, begun: true })
    }

    async fn grow_after(&mut self, room: &Room, snapshot: Option<String>) -> Result<(), String> {
        let (volume, fs_uuid) = (self.volume_id(), self.fs_uuid());
        let (from, to) = (room.filesystem, room.larger().unwrap_or(room.filesystem));
        let mut facts: Vec<Fact> =
            snapshot.map(|id| Fact::Snapshot { id, before: "grow".to_owned() }).into_iter().collect();
        facts.push(Fact::Grow { from, to, done: false });
        self.keep(&volume, fs_uuid, facts).await.map_err(|reason| reason.message)?;
        fault_point("before-grow");
        let root = self.mounted_root(true).await?;
        let (fstype, asked) = (self.config.fstype, *room);
        let grown = match blocking(GROW, move || grow::grow(root.as_fd(), fstype, &asked)).await {
            Ok(grown) => grown.map_err(|error| crate::agent::chain(&error)),
            Err(stuck) => Err(stuck.words("growing the filesystem")),
        };
        fault_point("after-grow");
        grown?;
        // That it is larger is to be seen on it, not only to be heard.
        match self.room().await {
            Some(now) if now.larger().is_none() => {}
            Some(now) => return Err(format!("it still has {} bytes", now.filesystem)),
            None => return Err("its size cannot be read any more".to_owned()),
        }
        let done = Fact::Grow { from, to, done: true };
        self.keep(&volume, fs_uuid, vec![done]).await.map_err(|reason| reason.message)
    }
}
