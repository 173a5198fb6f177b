//! Loop devices: which one has which file under it, and which one sits on top of a device.
//!
//! The kernel is asked by device and inode number (`LOOP_GET_STATUS64`), since the path in sysfs is only what the file was
//! called when it was bound, in the mount namespace of whoever bound it.

use super::ioctl::{self, LoopBacking};
use super::{DeviceError, Sysfs, sysfs};
use crate::model::DevNum;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long one loop device may take to say what is under it. Its answer comes from memory, unless the file lies on a
/// filesystem that hangs: a healthy device must not wait for somebody else's.
const PATIENCE: Duration = Duration::from_secs(2);

/// A loop device that has something under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// `loop3`
    pub name: String,
    /// `/dev/loop3`
    pub node: PathBuf,
    /// The path as sysfs has it.
    pub backing_file: String,
}

/// Every bound loop device.
pub fn bound(sysfs: &Sysfs) -> Result<Vec<Bound>, DeviceError> {
    let mut found = Vec::new();
    for dir in sysfs::list(&sysfs.sys.join("block"))? {
        let Some(name) = dir.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
        if !name.starts_with("loop") {
            continue;
        }
        if let Some(backing_file) = sysfs::attribute(&dir.join("loop/backing_file"))? {
            found.push(Bound { node: sysfs.dev.join(&name), name, backing_file });
        }
    }
    Ok(found)
}

/// The loop device that shows this whole file, if one does already. One that does not answer shows another file: this one
/// has just been asked for, and answered.
pub fn showing(sysfs: &Sysfs, file: &Path) -> Result<Option<Bound>, DeviceError> {
    let unseen = |source| DeviceError::from_open(&file.display().to_string(), file.into(), source);
    let wanted = fs::metadata(file).map_err(unseen)?;
    for bound in bound(sysfs)? {
        let whole = |backing: &LoopBacking| backing.offset == 0 && backing.size_limit == 0 && !only_shows(backing);
        let asked = bound.clone();
        if let Some(Some(backing)) = in_time(&bound, move || backing(&asked))?
            && (backing.device, backing.inode) == (wanted.dev(), wanted.ino())
            && whole(&backing)
        {
            return Ok(Some(bound));
        }
    }
    Ok(None)
}

/// What a loop device is called (`lo_file_name`) that only shows a device to somebody who looks: see [`is_view`].
pub const VIEW: &str = "volhold-view";

/// A loop device that `volhold plan` has made for a moment: it cannot write, so it is no use of what it shows, and no volume
/// of its own. An agent that looks in this moment must not take it for one. One that does not answer is none.
pub fn is_view(sysfs: &Sysfs, name: &str) -> bool {
    if !name.starts_with("loop") {
        return false;
    }
    let bound = Bound { node: sysfs.dev.join(name), name: name.to_owned(), backing_file: String::new() };
    let asked = bound.clone();
    let answer = in_time(&bound, move || backing(&asked));
    matches!(answer, Ok(Some(Some(backing))) if only_shows(&backing))
}

fn only_shows(backing: &LoopBacking) -> bool {
    let called = backing.name.iter().take_while(|byte| **byte != 0);
    backing.flags & ioctl::LOOP_READ_ONLY != 0 && called.eq(VIEW.as_bytes())
}

/// Loop devices whose backing file is the block device `devnum` (`O_EXCL` does not notice these). One that does not answer
/// is none of them: the node of a block device is an inode in memory, and asking for it never hangs.
pub fn on_top_of(sysfs: &Sysfs, devnum: DevNum) -> Result<Vec<String>, DeviceError> {
    let mut found = Vec::new();
    for bound in bound(sysfs)? {
        let asked = bound.clone();
        if in_time(&bound, move || is_on_top(&asked, devnum))?.unwrap_or(false) {
            found.push(bound.name);
        }
    }
    Ok(found)
}

fn is_on_top(bound: &Bound, devnum: DevNum) -> Result<bool, DeviceError> {
    Ok(shows_device(bound, devnum)? && !backing(bound)?.is_some_and(|backing| only_shows(&backing)))
}

fn shows_device(bound: &Bound, devnum: DevNum) -> Result<bool, DeviceError> {
    match fs::metadata(&bound.backing_file) {
        Ok(metadata) if metadata.file_type().is_block_device() => Ok(DevNum::from_dev_t(metadata.rdev()) == devnum),
        Ok(_) => Ok(false),
        // The node was removed, or belongs to another mount namespace: ask the loop device itself.
        Err(_) => Ok(backing(bound)?
            .is_some_and(|backing| backing.rdevice != 0 && DevNum::from_dev_t(backing.rdevice) == devnum)),
    }
}

/// Loop devices that were asked and have not answered yet. They are not asked again, so that a device which hangs for days
/// costs one thread and not one for each look.
static ASKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// What `ask` answers about a loop device, or `None` when it takes too long.
fn in_time<T: Send + 'static>(
    bound: &Bound,
    ask: impl FnOnce() -> Result<T, DeviceError> + Send + 'static,
) -> Result<Option<T>, DeviceError> {
    let asked = || ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let name = bound.name.clone();
    let begun = Instant::now();
    // One question at a time for each device; a second asker waits as long as the first one may take.
    while !asked().insert(name.clone()) {
        if begun.elapsed() >= PATIENCE {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
    let (tell, told) = mpsc::channel();
    let own_name = name.clone();
    let asking = thread::Builder::new().name("loop".to_owned()).spawn(move || {
        let answer = ask();
        ASKED.lock().unwrap_or_else(PoisonError::into_inner).remove(&own_name);
        // The asker may have gone on.
        let _heard = tell.send(answer);
    });
    if let Err(source) = asking {
        asked().remove(&name);
        return Err(DeviceError::Io { operation: "start a thread to ask", path: bound.node.clone(), source });
    }
    match told.recv_timeout(PATIENCE) {
        Ok(answer) => answer.map(Some),
        Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(DeviceError::Io {
            operation: "ask",
            path: bound.node.clone(),
            source: io::Error::other("the thread that asked died"),
        }),
    }
}

fn backing(bound: &Bound) -> Result<Option<LoopBacking>, DeviceError> {
    let failed = |operation, source| DeviceError::Io { operation, path: bound.node.clone(), source };
    let device = match File::open(&bound.node) {
        Ok(device) => device,
        // Unbound and removed since it was listed.
        Err(source) if matches!(source.kind(), io::ErrorKind::NotFound) => return Ok(None),
        Err(source) if source.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
        Err(source) => return Err(failed("open", source)),
    };
    // What the kernel cannot tell is what a filesystem below would have to say: a FUSE server that died, a stale NFS handle.
    // The node of a block device is an inode in memory, about which nothing can fail; so this file is none.
    match ioctl::loop_backing(&device) {
        Ok(backing) => Ok(backing),
        Err(source) => {
            tracing::debug!(event = "loop.mute", node = %bound.node.display(), error = %source, "cannot say what is under it");
            Ok(None)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_device_that_hangs_is_passed_over_and_asked_again_when_it_has_answered() {
        let bound = Bound { name: "loop-that-hangs".into(), node: "/dev/null".into(), backing_file: String::new() };
        let (answer_now, hangs) = mpsc::channel::<()>();
        let (woken, awake) = mpsc::channel::<()>();
        let first = in_time(&bound, move || {
            hangs.recv().unwrap();
            woken.send(()).unwrap();
            Ok(1)
        });
        assert_eq!(first.unwrap(), None);
        assert_eq!(in_time(&bound, || Ok(2)).unwrap(), None, "asked while the first question hangs");
        answer_now.send(()).unwrap();
        awake.recv().unwrap();
        assert_eq!(in_time(&bound, || Ok(3)).unwrap(), Some(3));
    }
}
