//! Does this kernel keep a second exclusive opener out? Tried on a loop device that is made for it and goes with its last
//! descriptor; no disk is touched.

use crate::device::{Sysfs, ioctl};
use crate::model::{Observed, Why};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Bytes of the device.
const SIZE: u64 = 1024 * 1024;
/// Somebody else can take the free device between finding and binding it.
const TRIES: u32 = 8;

/// `Seen(None)`: the second exclusive open was refused, as a claim needs it. `Seen(Some)`: what happened instead.
pub fn second_exclusive_open(sysfs: &Sysfs) -> Observed<Option<String>> {
    match try_it(sysfs) {
        Ok(found) => Observed::Seen(found),
        Err(error) => Observed::Unknown(Why::NotRun { detail: format!("no loop device is to be had: {error}") }),
    }
}

fn try_it(sysfs: &Sysfs) -> io::Result<Option<String>> {
    let backing = File::from(rustix::fs::memfd_create("volhold-claim", MemfdFlags::CLOEXEC)?);
    backing.set_len(SIZE)?;
    let control = OpenOptions::new().read(true).write(true).open(sysfs.dev.join("loop-control"))?;
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    for _ in 0..TRIES {
        let node = sysfs.dev.join(format!("loop{}", ioctl::loop_free(&control)?));
        let device = OpenOptions::new().read(true).write(true).open(&node)?;
        match ioctl::loop_bind(&device, &backing, ioctl::LOOP_AUTOCLEAR, "") {
            Ok(()) => return twice(&node),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn twice(node: &Path) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let _claim = rustix::fs::open(node, flags, Mode::empty())?;
    Ok(match rustix::fs::open(node, flags, Mode::empty()) {
        Err(Errno::BUSY) => None,
        Err(errno) => Some(format!("it failed with {}", io::Error::from(errno))),
        Ok(_second) => Some("it succeeded".to_owned()),
    })
}
