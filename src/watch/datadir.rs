//! Changes in and around a data dir: `member` comes or goes, backend or WAL come or go, something new lies beside.
//!
//! On kops etcd-manager makes the dir after the gate has opened; an empty etcd beside old data is to be seen then and not
//! at the next boot. So the nearest directory that exists is watched, from the volume's root downwards.

use super::tree::{Stir, Tree, WatchError};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How many hints wait for the reader. When more happens, the reader is told to look at everything.
const QUEUE: usize = 32;
/// After what was heard nothing is heard for so long, and the kernel keeps it: a thousand new files a second wake nobody up a
/// thousand times.
const PACE: Duration = Duration::from_millis(50);

/// Something may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WatchHint {
    /// `member` of the data dir.
    Member(Change),
    /// `member/snap/db`.
    Backend(Change),
    /// `member/wal`.
    Wal(Change),
    /// The data dir itself, or a directory above it.
    DataDir(Change),
    /// An entry of the volume's root, or of a directory between it and the data dir: another data dir, etcd-manager's `state`.
    Beside(Change),
    /// Events were lost: look at everything.
    Everything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    Appeared,
    Gone,
    /// A file was closed after writing (only at the volume's root).
    Written,
}

/// Watches one data dir until it is dropped.
#[derive(Debug)]
pub struct DataDirWatch {
    task: JoinHandle<()>,
}

impl Drop for DataDirWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl DataDirWatch {
    /// Watches the data dir `data_dir` (relative; `.` is the root itself) of the volume mounted at `root`. Hints of one moment
    /// are put together. The channel ends when watching is no longer possible; the reader then has to look by the clock.
    ///
    /// Must be called within a runtime.
    pub fn start(root: &Path, data_dir: &Path) -> Result<(Self, mpsc::Receiver<WatchHint>), WatchError> {
        let places = Places::of(root, data_dir);
        let tree = Tree::new(places.levels())?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let task = tokio::spawn(follow(tree, places, sender));
        Ok((DataDirWatch { task }, receiver))
    }
}

async fn follow(mut tree: Tree, places: Places, sender: mpsc::Sender<WatchHint>) {
    loop {
        let stirs = match tree.next().await {
            Ok(stirs) => stirs,
            Err(error) => {
                tracing::warn!(event = "watch.ended", root = %places.root.display(), %error, "cannot watch any longer");
                return;
            }
        };
        let hints: BTreeSet<WatchHint> = stirs.iter().filter_map(|stir| places.hint(stir)).collect();
        for hint in hints {
            match sender.try_send(hint) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Closed(_)) => return,
                // The rest of this batch is in it. Waiting here is no harm: the kernel keeps the next events, and says so when
                // it had to drop some.
                Err(mpsc::error::TrySendError::Full(_)) => match sender.send(WatchHint::Everything).await {
                    Ok(()) => break,
                    Err(_) => return,
                },
            }
        }
        tokio::time::sleep(PACE).await;
    }
}

/// The paths that mean something.
#[derive(Debug)]
struct Places {
    root: PathBuf,
    /// Between the root and the data dir, outermost first, the data dir last; empty when it is the root.
    below: Vec<PathBuf>,
    member: PathBuf,
    wal: PathBuf,
    snap: PathBuf,
    backend: PathBuf,
}

impl Places {
    fn of(root: &Path, data_dir: &Path) -> Self {
        let mut at = root.to_owned();
        let mut below = Vec::new();
        for part in data_dir.components() {
            if let Component::Normal(name) = part {
                at.push(name);
                below.push(at.clone());
            }
        }
        let member = at.join("member");
        Places {
            root: root.to_owned(),
            below,
            wal: member.join("wal"),
            snap: member.join("snap"),
            backend: member.join("snap").join("db"),
            member,
        }
    }

    fn levels(&self) -> Vec<(PathBuf, bool)> {
        let mut levels = vec![(self.root.clone(), true)];
        levels.extend(self.below.iter().map(|path| (path.clone(), false)));
        levels.push((self.member.clone(), false));
        levels.push((self.snap.clone(), false));
        levels
    }

    fn hint(&self, stir: &Stir) -> Option<WatchHint> {
        let (path, change) = match stir {
            Stir::Lost => return Some(WatchHint::Everything),
            Stir::Joined(path) | Stir::Appeared(path) => (path, Change::Appeared),
            Stir::Gone(path) => (path, Change::Gone),
            Stir::Written(path) => (path, Change::Written),
        };
        if *path == self.member {
            Some(WatchHint::Member(change))
        } else if *path == self.backend || *path == self.snap {
            Some(WatchHint::Backend(change))
        } else if *path == self.wal {
            Some(WatchHint::Wal(change))
        } else if *path == self.root || self.below.contains(path) {
            Some(WatchHint::DataDir(change))
        } else {
            let data_dir = self.below.last().unwrap_or(&self.root);
            let dir = path.parent()?;
            let name = path.file_name()?;
            // Our own writes, and what etcd touches in its dir, are no news.
            let ours = name == ".volhold" || name == "lost+found";
            let beside = dir == self.root || (dir != data_dir && self.below.iter().any(|level| level == dir));
            let etcds_own = name == ".touch";
            (beside && !ours && !etcds_own).then_some(WatchHint::Beside(change))
        }
    }
}

#[cfg(test)]
mod tests;
