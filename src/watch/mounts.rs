//! The mount table changed: a hint that something was mounted, moved or unmounted.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use tokio::sync::mpsc;

/// Hears changes of this process's mount table: poll(2) on `/proc/self/mountinfo` answers POLLPRI and POLLERR once for each
/// change (proc(5); `fs/proc_namespace.c`, mounts_poll). A thread of its own sleeps in the kernel.
pub struct MountTable {
    changes: mpsc::Receiver<()>,
}

impl MountTable {
    pub fn open() -> io::Result<Self> {
        let file = File::open("/proc/self/mountinfo")?;
        // One change that waits to be heard stands for all that follow it.
        let (tell, changes) = mpsc::channel(1);
        std::thread::Builder::new().name("mounts".to_owned()).spawn(move || listen(&file, &tell))?;
        Ok(MountTable { changes })
    }

    /// Returns when the table has changed since the last call (or since `open`). `None`: it is not watched any more.
    pub async fn changed(&mut self) -> Option<()> {
        self.changes.recv().await
    }
}

fn listen(file: &File, tell: &mpsc::Sender<()>) {
    loop {
        let mut polled = [PollFd::new(file, PollFlags::PRI)];
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => {
                tracing::warn!(event = "watch.failed", error = %error, "the mount table is not watched any more");
                return;
            }
        }
        match tell.try_send(()) {
            Ok(()) | Err(mpsc::error::TrySendError::Full(())) => {}
            Err(mpsc::error::TrySendError::Closed(())) => return,
        }
    }
}
