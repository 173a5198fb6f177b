//! What monitoring is told: measured beside the guards, made into a text for whoever scrapes, and kept as a file where a
//! textfile directory is configured.
//!
//! A task of its own, so that no guard waits for it. What may hang (a mounted volume's size, a directory on a dying disk) runs
//! on a thread, and is not begun again before it has ended.

use super::board::Board;
use super::rounds::Hint;
use super::stuck::blocking;
use crate::device::mountinfo::Mount;
use crate::device::uses::mounts;
use crate::gate::feed::{Listener, Snapshot};
use crate::gate::files::{Published, bypass, read_published};
use crate::gate::textfile::write_textfile;
use crate::metrics::{Measured, MetricsError, Sources, text};
use crate::model::{BootId, DevNum, GuardName, GuardStatus, Time};
use rustix::fs::StatVfs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// How often it is measured and written while nothing changes: node_exporter is scraped about as often.
const EVERY: Duration = Duration::from_secs(15);
/// Many changes that come at once are one.
const TOGETHER: Duration = Duration::from_millis(200);
/// Longest that one measuring, or one writing, may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The figures, for the task that keeps them and for those who ask.
pub struct Figures {
    run: PathBuf,
    boot_id: BootId,
    board: Arc<Board>,
    measured: Mutex<BTreeMap<GuardName, Measured>>,
}

impl Figures {
    pub fn new(run: PathBuf, boot_id: BootId, board: Arc<Board>) -> Self {
        Figures { run, boot_id, board, measured: Mutex::default() }
    }

    /// The text of a scrape.
    pub fn text(&self, now: &Snapshot) -> Result<String, MetricsError> {
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner).clone();
        text(&Sources {
            status: &now.status,
            configured: &now.configured,
            measured: &measured,
            tally: &self.board.tally(),
            now: Time::now(),
            instant: Instant::now(),
        })
    }

    /// Measures and writes until the agent ends.
    pub async fn keep(
        self: Arc<Self>,
        textfile_dir: Option<PathBuf>,
        mut listener: Listener,
        mut hints: broadcast::Receiver<Hint>,
    ) {
        let mut measuring = Slow::default();
        let mut writing = Slow::default();
        loop {
            let now = listener.now();
            let figures = self.clone();
            let status = now.clone();
            let measured = measuring.run(move || measure(&figures.run, &figures.boot_id, &status.status.guards)).await;
            if let Some(measured) = measured {
                *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = measured;
            }
            if let Some(dir) = &textfile_dir {
                self.write(dir, &now, &mut writing).await;
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                changed = listener.changed() => if !changed { return },
                () = mounts_changed(&mut hints) => {}
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// What cannot be written is a warning in the status, and nothing else.
    async fn write(&self, dir: &Path, now: &Snapshot, writing: &mut Slow) {
        let text = match self.text(now) {
            Ok(text) => text,
            Err(error) => return self.warn(Some(super::chain(&error))),
        };
        let path = dir.to_owned();
        match writing.run(move || write_textfile(&path, &text)).await {
            Some(Ok(())) => self.warn(None),
            Some(Err(error)) => {
                self.warn(Some(format!("no metrics in the textfile directory: {}", super::chain(&error))))
            }
            None => self.warn(Some(format!("no metrics in the textfile directory: {} does not answer", dir.display()))),
        }
    }

    fn warn(&self, problem: Option<String>) {
        if self.board.warn("metrics", problem.clone())
            && let Some(problem) = problem
        {
            tracing::warn!(event = "metrics.unwritten", "{problem}");
        }
    }
}

/// Returns when the mount table may have changed.
async fn mounts_changed(hints: &mut broadcast::Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Mounts) | Err(RecvError::Lagged(_)) => return,
            Ok(Hint::Block(_) | Hint::Request(_) | Hint::SomeRequest | Hint::Keeper(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Work that may hang, one at a time.
#[derive(Default)]
struct Slow {
    /// Held by the work that has not come back.
    begun: Arc<tokio::sync::Mutex<()>>,
}

impl Slow {
    /// `None`: it has not ended in time, or an earlier one has not yet.
    async fn run<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let begun = self.begun.clone().try_lock_owned().ok()?;
        let done = blocking(LIMIT, move || {
            let done = work();
            drop(begun);
            done
        });
        done.await.ok()
    }
}

fn measure(run: &Path, boot_id: &BootId, guards: &[GuardStatus]) -> BTreeMap<GuardName, Measured> {
    let table = mounts(Path::new("/proc/self/mountinfo")).ok();
    let one = |guard: &GuardStatus| {
        let published = read_published(run, &guard.name).ok().flatten().filter(|was| was.boot_id == *boot_id);
        let devnum = devnum(guard, published.as_ref());
        let own: Option<Vec<&Mount>> =
            table.as_ref().map(|table| table.iter().filter(|mount| Some(mount.devnum) == devnum).collect());
        // One for each directory that is published; how they are spelt is not compared.
        let wanted = guard.publish_dirs.len().max(1);
        let space = own.iter().flatten().next().and_then(|mount| filesystem_space(&mount.at, mount.devnum));
        let inodes = space.as_ref().filter(|space| space.f_files > 0);
        let measured = Measured {
            mounted: own.map(|own| own.len() >= wanted),
            published: published.is_some(),
            bypassed: bypass(run, &guard.name).is_some(),
            filesystem_size: space.as_ref().map(|space| space.f_blocks.saturating_mul(space.f_frsize)),
            filesystem_available: space.as_ref().map(|space| space.f_bavail.saturating_mul(space.f_frsize)),
            files: inodes.map(|space| space.f_files),
            files_free: inodes.map(|space| space.f_ffree),
        };
        (guard.name.clone(), measured)
    };
    guards.iter().map(one).collect()
}

/// The volume that was published stays the one to look for also when its device is gone.
fn devnum(guard: &GuardStatus, published: Option<&Published>) -> Option<DevNum> {
    published.map(|published| published.devnum).or_else(|| guard.device.as_ref().map(|device| device.devnum))
}

/// `None`: another filesystem has been mounted over it, or it does not say.
fn filesystem_space(at: &Path, devnum: DevNum) -> Option<StatVfs> {
    let root = std::fs::File::open(at).ok()?;
    let stat = rustix::fs::fstat(&root).ok()?;
    let space = rustix::fs::fstatvfs(&root).ok()?;
    (DevNum::from_dev_t(stat.st_dev) == devnum).then_some(space)
}
