//! Requests that the CLI has put down for guards: files in `<run>/requests`, named like the guard; and the sockets of
//! processes that can keep a claim, in `<run>/claims`.

use super::tree::{Stir, Tree, WatchError};
use crate::model::GuardName;
use std::path::Path;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const QUEUE: usize = 64;

/// Watches the directory of requests until it is dropped.
#[derive(Debug)]
pub struct RequestWatch {
    task: JoinHandle<()>,
}

impl Drop for RequestWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RequestWatch {
    /// Watches `dir` and reports the guard of each request. `None`: events were lost, or the directory is new: look at every
    /// guard. A request that lies there already is not reported: look once after this returns.
    ///
    /// Must be called within a runtime.
    pub fn start(dir: &Path) -> Result<(Self, mpsc::Receiver<Option<GuardName>>), WatchError> {
        Self::start_named(dir, |name| name.parse().ok())
    }

    /// The same for files that are named in another way: `guard_of` says for which guard one is, if for any.
    pub fn start_named(
        dir: &Path,
        guard_of: fn(&str) -> Option<GuardName>,
    ) -> Result<(Self, mpsc::Receiver<Option<GuardName>>), WatchError> {
        let parent = dir.parent().unwrap_or(dir).to_owned();
        // From above the run dir on, which may be taken away and come again.
        let above = parent.parent().unwrap_or(&parent).to_owned();
        let tree = Tree::new(vec![(above, false), (parent, false), (dir.to_owned(), true)])?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let task = tokio::spawn(follow(tree, dir.to_owned(), guard_of, sender));
        Ok((RequestWatch { task }, receiver))
    }
}

async fn follow(
    mut tree: Tree,
    dir: std::path::PathBuf,
    guard_of: fn(&str) -> Option<GuardName>,
    sender: mpsc::Sender<Option<GuardName>>,
) {
    loop {
        let stirs = match tree.next().await {
            Ok(stirs) => stirs,
            Err(error) => {
                tracing::warn!(event = "watch.ended", dir = %dir.display(), %error, "cannot watch requests any longer");
                return;
            }
        };
        for stir in stirs {
            let asked = match stir {
                Stir::Lost => None,
                // Gone with all that lay beside it: every guard has to look whether its gate is still shown as open.
                Stir::Joined(path) | Stir::Gone(path) if path == dir => None,
                Stir::Appeared(path) | Stir::Written(path) if path.parent() == Some(&dir) => {
                    // What is being written has a name that no guard can have.
                    match path.file_name().and_then(|name| name.to_str()).and_then(guard_of) {
                        Some(guard) => Some(guard),
                        None => continue,
                    }
                }
                Stir::Joined(_) | Stir::Appeared(_) | Stir::Written(_) | Stir::Gone(_) => continue,
            };
            // Waiting for the reader is no harm: the kernel keeps events, and says so when it had to drop some.
            if sender.send(asked).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
