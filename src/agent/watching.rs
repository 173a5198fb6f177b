//! Keeps watch over the volume of an open gate: the mounts through which it is seen, its device, whether it takes writes.
//!
//! A task of its own, which decides nothing: it sends what it sees when that has changed. It looks when the kernel hints at the
//! mount table or at the device, and every fifteen seconds, when it also makes a test write. What may hang is done on threads,
//! and not begun again before it has come back.

use super::rounds::Hint;
use super::volume_root;
use crate::act::write_test;
use crate::decide::start::{LEAST_BYTES, LEAST_INODES};
use crate::device::mountinfo::Mount;
use crate::device::sysfs::Sysfs;
use crate::device::{DeviceError, uses};
use crate::etcd::{lockers, strays};
use crate::model::{
    AccessSight, DevNum, DeviceSight, EtcdSight, Fstype, MountSight, PublishDir, SpaceSight, VolumeSight, WriteSight,
};
use crate::watch::{Process, processes};
use rustix::fs::{Mode, OFlags, StatVfs};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Between two test writes, and between two looks while nothing hints.
const EVERY: Duration = Duration::from_secs(15);
/// Longest that a test write may take before the disk is said to stall. An etcd has lost its leadership long before.
const STALLS: Duration = Duration::from_secs(10);
/// Longest that is waited for a look, which reads what the kernel has in memory.
const LOOKS: Duration = Duration::from_secs(10);
/// Many hints at once are one, and no look follows another one sooner: who mounts all day long makes nobody look all day long.
const TOGETHER: Duration = Duration::from_millis(200);
const GAP: Duration = Duration::from_secs(1);

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// What of the volume is published where.
    pub entries: Vec<PublishDir>,
    /// Relative to the volume's root.
    pub data_dir: String,
    pub devnum: DevNum,
    pub diskseq: Option<u64>,
    /// What the device is called to a person.
    pub node: String,
    pub fstype: Fstype,
}

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    target: Target,
    task: JoinHandle<()>,
    seen: watch::Receiver<VolumeSight>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watcher {
    /// Must be called within a runtime.
    pub fn start(target: Target, hints: broadcast::Receiver<Hint>) -> Self {
        let (tell, seen) = watch::channel(VolumeSight::default());
        let task = tokio::spawn(keep(target.clone(), hints, tell));
        Watcher { target, task, seen }
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns when something else is seen than before.
    pub async fn news(&mut self) -> VolumeSight {
        match self.seen.changed().await {
            Ok(()) => self.seen.borrow_and_update().clone(),
            // The task has died, and with it the sight.
            Err(_ended) => std::future::pending().await,
        }
    }
}

async fn keep(target: Target, mut hints: broadcast::Receiver<Hint>, tell: watch::Sender<VolumeSight>) {
    let mut looking = None;
    let mut writing: Option<JoinHandle<Tried>> = None;
    let mut write_by = Instant::now() + EVERY;
    let mut stalls_at: Option<Instant> = None;
    let mut listens = true;
    loop {
        let seen = look(&mut looking, &target).await;
        tell.send_if_modified(|told| {
            let now = VolumeSight { write: told.write.clone(), space: told.space, etcd: told.etcd.clone(), ..seen };
            changes(told, now)
        });
        let looked = Instant::now();
        loop {
            tokio::select! {
                () = sleep_until(write_by), if writing.is_none() => {
                    let target = target.clone();
                    writing = Some(tokio::task::spawn_blocking(move || write(&target)));
                    let now = Instant::now();
                    (write_by, stalls_at) = (now + EVERY, Some(now + STALLS));
                    // The clock's look comes with it.
                    break;
                }
                done = ended(&mut writing) => {
                    writing = None;
                    stalls_at = None;
                    // Not done is not well: what is not known of it is not known.
                    let Tried { write, space, etcd } = done;
                    tell.send_if_modified(|told| changes(told, VolumeSight { write, space, etcd, ..told.clone() }));
                }
                () = at(stalls_at) => {
                    stalls_at = None;
                    let stalled = Some(WriteSight::Stalled);
                    tell.send_if_modified(|told| changes(told, VolumeSight { write: stalled.clone(), ..told.clone() }));
                }
                () = sleep_until(looked + EVERY), if writing.is_some() => break,
                heard = hinted(&mut hints), if listens => {
                    listens = heard;
                    sleep(TOGETHER).await;
                    sleep_until(looked + GAP).await;
                    break;
                }
            }
        }
    }
}

fn changes(told: &mut VolumeSight, now: VolumeSight) -> bool {
    let news = *told != now;
    *told = now;
    news
}

/// Returns when the mount table or a device may have changed; `false`: nobody hints any more.
async fn hinted(hints: &mut broadcast::Receiver<Hint>) -> bool {
    loop {
        match hints.recv().await {
            Ok(Hint::Mounts | Hint::Block(_)) | Err(RecvError::Lagged(_)) => return true,
            Ok(Hint::Request(_) | Hint::SomeRequest | Hint::Keeper(_)) => {}
            Err(RecvError::Closed) => return false,
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The test write that is under way has ended.
async fn ended(writing: &mut Option<JoinHandle<Tried>>) -> Tried {
    match writing {
        Some(task) => match task.await {
            Ok(done) => done,
            Err(died) => Tried { write: Some(WriteSight::Failed { error: died.to_string() }), ..Tried::default() },
        },
        None => std::future::pending().await,
    }
}

/// One look, on a thread. One that hangs is waited for again the next time; until then nothing is known.
async fn look(looking: &mut Option<JoinHandle<VolumeSight>>, target: &Target) -> VolumeSight {
    let target = target.clone();
    let task = looking.get_or_insert_with(|| tokio::task::spawn_blocking(move || sight(&target, &Sysfs::of_process())));
    match timeout(LOOKS, &mut *task).await {
        Ok(done) => {
            *looking = None;
            done.unwrap_or_default()
        }
        Err(_late) => VolumeSight::default(),
    }
}

/// What is asked of the filesystem itself, which may hang.
#[derive(Debug, Default)]
struct Tried {
    write: Option<WriteSight>,
    space: Option<SpaceSight>,
    etcd: Option<EtcdSight>,
}

fn write(target: &Target) -> Tried {
    // What is not there cannot be written to; that it is not is told by its mount.
    let root = match volume_root::open(&target.entries, target.devnum, target.fstype, true) {
        Ok(root) => root,
        Err(volume_root::NotThere::Io { at, said: _ }) => {
            let error = format!("{} cannot even be opened (EIO)", at.display());
            return Tried { write: Some(WriteSight::Failed { error }), ..Tried::default() };
        }
        Err(_not_there) => return Tried::default(),
    };
    let write = match write_test(root.as_fd()) {
        Ok(()) => WriteSight::Done,
        Err(Errno::ROFS) => WriteSight::ReadOnly,
        Err(Errno::NOSPC | Errno::DQUOT) => WriteSight::NoRoom,
        Err(errno) => WriteSight::Failed { error: errno.to_string() },
    };
    let space = rustix::fs::fstatvfs(root.as_fd()).ok().map(|stat| space_sight(&stat));
    Tried { write: Some(write), space, etcd: etcd_sight(root.as_fd(), &target.data_dir) }
}

fn space_sight(stat: &StatVfs) -> SpaceSight {
    if stat.f_bavail.saturating_mul(stat.f_frsize) < LEAST_BYTES {
        SpaceSight::Full
    // One that makes inodes as they are needed names no number.
    } else if stat.f_files > 0 && stat.f_favail < LEAST_INODES {
        SpaceSight::NoInodes
    } else {
        SpaceSight::Enough
    }
}

/// `None`: it cannot be told.
fn etcd_sight(root: BorrowedFd<'_>, data_dir: &str) -> Option<EtcdSight> {
    let holders = lockers(root).ok()?;
    let elsewhere = strays(root, &holders, &[data_dir.to_owned()]).ok()?;
    let etcds: Vec<u32> =
        processes(holders.into_keys()).into_iter().filter(Process::is_etcd).map(|process| process.pid).collect();
    let (lost, own): (Vec<u32>, Vec<u32>) = etcds.into_iter().partition(|pid| elsewhere.contains(pid));
    Some(match (own.is_empty(), lost.is_empty()) {
        (false, _) => EtcdSight::Running { pids: own },
        (true, false) => EtcdSight::Elsewhere { pids: lost },
        (true, true) => EtcdSight::NotRunning,
    })
}

fn sight(target: &Target, sysfs: &Sysfs) -> VolumeSight {
    let table = uses::mounts(Path::new("/proc/thread-self/mountinfo")).ok();
    let entry = sysfs.block(&target.node, target.devnum);
    let errors = entry.as_ref().ok().and_then(|entry| sysfs.ext4_errors(entry).ok().flatten());
    VolumeSight {
        mount: table.as_deref().and_then(|table| mount_sight(target, table, &seen_at)),
        device: device_sight(target, sysfs, entry),
        access: table.as_deref().and_then(|table| access_sight(target, table)),
        filesystem_errors: errors,
        ..VolumeSight::default()
    }
}

fn device_sight(
    target: &Target,
    sysfs: &Sysfs,
    entry: Result<crate::device::sysfs::BlockEntry, DeviceError>,
) -> Option<DeviceSight> {
    let entry = match entry {
        Ok(entry) => entry,
        Err(DeviceError::Missing { .. }) => return Some(DeviceSight::Gone),
        Err(_unknown) => return None,
    };
    let another = match (target.diskseq, sysfs.diskseq(&entry)) {
        (Some(then), Ok(Some(now))) => then != now,
        // Kernels before 5.15 number nothing.
        (Some(_) | None, _) => false,
    };
    match (another, sysfs.size(&entry)) {
        (true, _) => Some(DeviceSight::Another),
        (false, Ok(Some(0))) => Some(DeviceSight::Empty),
        (false, Ok(Some(_))) => Some(DeviceSight::Present),
        (false, Ok(None) | Err(_)) => None,
    }
}

/// What is seen at a path: the number of the mount, `None` where there is nothing. Only the kernel's own memory is asked, so
/// that a filesystem which has shut down answers too.
type SeenAt = dyn Fn(&Path) -> Result<Option<u64>, Errno>;

fn seen_at(path: &Path) -> Result<Option<u64>, Errno> {
    let file = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let about = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", file.as_fd().as_raw_fd()))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.map(Some).ok_or(Errno::IO)
}

/// `None`: it cannot be told.
fn mount_sight(target: &Target, table: &[Mount], seen_at: &SeenAt) -> Option<MountSight> {
    for entry in &target.entries {
        let ours = |mount: &Mount, root: &Path| mount.devnum == target.devnum && mount.root == root;
        let root = entry.mount_root();
        let listed = table.iter().any(|mount| mount.at == entry.at && ours(mount, &root));
        let seen = seen_at(&entry.at).ok()?;
        let top = match seen {
            // A mount that came since the table was read: the next look, for which it hints, has it.
            Some(id) => Some(table.iter().find(|mount| mount.id == id)?),
            None => None,
        };
        match top {
            Some(top) if ours(top, &root) => {}
            Some(top) if listed => return Some(MountSight::Shadowed { at: top.at.clone(), by: called(top) }),
            Some(top) if top.at == entry.at => {
                return Some(MountSight::Replaced { at: entry.at.clone(), by: called(top) });
            }
            Some(_) | None => return Some(MountSight::Gone { at: entry.at.clone() }),
        }
        let Some(place) = entry.place_of(&target.data_dir) else { continue };
        for (below, path) in [(PathBuf::new(), place.clone()), (PathBuf::from("member"), place.join("member"))] {
            // That a dir is gone is for those to tell who read it.
            let Ok(Some(id)) = seen_at(&path) else { continue };
            let Some(over) = table.iter().find(|mount| mount.id == id) else { continue };
            let rest = over.at.strip_prefix(&entry.at).map(|rest| root.join(rest)).unwrap_or_else(|_| below.clone());
            let nested = target.entries.iter().any(|other| other.at == over.at);
            if !nested && !ours(over, &rest) && !ours(over, &root) {
                return Some(MountSight::Shadowed { at: over.at.clone(), by: called(over) });
            }
        }
    }
    Some(MountSight::InPlace)
}

fn called(mount: &Mount) -> String {
    format!("{} ({})", mount.fstype, mount.source.display())
}

/// By the options of the mounts through which the volume is published, and of its filesystem.
fn access_sight(target: &Target, table: &[Mount]) -> Option<AccessSight> {
    let own = |mount: &&Mount| mount.devnum == target.devnum && target.entries.iter().any(|entry| entry.at == mount.at);
    let mounts: Vec<&Mount> = table.iter().filter(own).collect();
    for mount in &mounts {
        for option in mount.options.split(',').chain(mount.super_options.split(',')) {
            // `emergency_ro`: ext4 since 6.14, after an error; `shutdown`: after that ioctl.
            if ["ro", "emergency_ro", "shutdown"].contains(&option) {
                return Some(AccessSight::ReadOnly { says: option.to_owned() });
            }
        }
    }
    (!mounts.is_empty()).then_some(AccessSight::Writable)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::device::mountinfo;
    use crate::model::WHOLE;

    fn target() -> Target {
        Target {
            entries: vec![PublishDir { from: WHOLE.to_owned(), at: "/mnt".into() }],
            data_dir: "data".to_owned(),
            devnum: DevNum { major: 7, minor: 1 },
            diskseq: None,
            node: "/dev/loop1".to_owned(),
            fstype: Fstype::Ext4,
        }
    }

    const ROOT: &str = "20 1 8:1 / / rw - ext4 /dev/sda rw\n";

    /// `seen`: which mount is seen at which path.
    fn seen(table: &str, seen: &'static [(&'static str, u64)]) -> Option<MountSight> {
        let table = mountinfo::parse(format!("{ROOT}{table}").as_bytes()).unwrap();
        let seen_at = move |path: &Path| Ok(seen.iter().find(|(at, _)| Path::new(at) == path).map(|(_, id)| *id));
        mount_sight(&target(), &table, &seen_at)
    }

    #[test]
    fn the_mount_is_what_is_seen_and_not_what_is_listed() {
        let ours = "30 20 7:1 / /mnt rw - ext4 /dev/loop1 rw\n";
        let over = "31 30 0:40 / /mnt rw - tmpfs none rw\n";
        let in_place = Some(MountSight::InPlace);
        assert_eq!(seen(ours, &[("/mnt", 30), ("/mnt/data", 30)]), in_place);
        let by = "tmpfs (none)".to_owned();
        let shadowed = |at: &str| Some(MountSight::Shadowed { at: at.into(), by: by.clone() });
        assert_eq!(seen(&format!("{ours}{over}"), &[("/mnt", 31)]), shadowed("/mnt"));
        assert_eq!(seen("", &[("/mnt", 20)]), Some(MountSight::Gone { at: "/mnt".into() }));
        assert_eq!(seen("", &[]), Some(MountSight::Gone { at: "/mnt".into() }));
        assert_eq!(seen(over, &[("/mnt", 31)]), Some(MountSight::Replaced { at: "/mnt".into(), by: by.clone() }));
        let below = format!("{ours}32 30 0:41 / /mnt/data rw - tmpfs none rw\n");
        assert_eq!(seen(&below, &[("/mnt", 30), ("/mnt/data", 32)]), shadowed("/mnt/data"));
        let member = format!("{ours}32 30 0:41 / /mnt/data/member rw - tmpfs none rw\n");
        assert_eq!(
            seen(&member, &[("/mnt", 30), ("/mnt/data", 30), ("/mnt/data/member", 32)]),
            shadowed("/mnt/data/member")
        );
        let itself = format!("{ours}32 30 7:1 /data /mnt/data rw - ext4 /dev/loop1 rw\n");
        assert_eq!(seen(&itself, &[("/mnt", 30), ("/mnt/data", 32)]), in_place, "the same directory once more");
        assert_eq!(seen(ours, &[("/mnt", 99)]), None, "a mount that the table does not know yet");
    }

    #[test]
    fn read_only_is_said_by_the_mount_or_by_its_filesystem() {
        let of = |options: &str, super_options: &str| {
            let line = format!("30 20 7:1 / /mnt {options} - ext4 /dev/loop1 {super_options}\n");
            access_sight(&target(), &mountinfo::parse(line.as_bytes()).unwrap())
        };
        let says = |says: &str| Some(AccessSight::ReadOnly { says: says.to_owned() });
        assert_eq!(of("rw,noatime", "rw,errors=remount-ro"), Some(AccessSight::Writable));
        assert_eq!(of("ro", "rw"), says("ro"));
        assert_eq!(of("rw", "ro"), says("ro"));
        assert_eq!(of("rw", "rw,emergency_ro"), says("emergency_ro"));
        assert_eq!(of("rw", "rw,shutdown"), says("shutdown"));
        assert_eq!(access_sight(&target(), &[]), None, "what is not mounted says nothing");
    }

    #[test]
    fn what_is_seen_at_a_path_is_a_mount_of_the_kernels_list() {
        let dir = tempfile::tempdir().unwrap();
        let id = seen_at(dir.path()).unwrap().unwrap();
        let table = uses::mounts(Path::new("/proc/thread-self/mountinfo")).unwrap();
        assert!(table.iter().any(|mount| mount.id == id));
        assert_eq!(seen_at(&dir.path().join("none")), Ok(None));
    }
}
