//! The opened device: facts, claim, lock, and how others get at it.

use super::error::Opener;
use super::sysfs::BlockEntry;
use super::{ClaimError, DeviceError, Resolved, Sysfs, ioctl, loops, nvme, uses};
use crate::children;
use crate::model::{DevNum, DeviceFacts, DeviceUse, VolumeId};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// For how long a device is waited for that is busy only in passing: the kernel tears a superblock down asynchronously, a child
/// that is just being started has copies of all descriptors, udev probes. On a machine that boots each of them waits for a
/// processor; a second was not always enough on one with ten runnable processes for each.
const RECLAIM_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks at whether the device has become free. The kernel has no event for it.
const RECLAIM_EVERY: Duration = Duration::from_millis(10);

/// A device (or an image file), opened once. The descriptor is what it is; the node is only what it is called.
///
/// Every descriptor in here is close-on-exec: a child gets a device only as its standard input ([`Device::child_stdin`]).
#[derive(Debug)]
pub struct Device {
    requested: String,
    node: PathBuf,
    sysfs: Sysfs,
    file: File,
    kind: Kind,
    /// `O_RDONLY|O_EXCL`, on a descriptor of its own so that it can be let go.
    claim: Option<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Block(Identity),
    Image { size: u64 },
}

/// What must stay the same for the device to be the one that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    devnum: DevNum,
    size: u64,
    diskseq: Option<u64>,
}

impl Device {
    /// Opens what a name led to, read-only and without claim.
    pub fn open(resolved: &Resolved, sysfs: &Sysfs) -> Result<Self, DeviceError> {
        match resolved {
            Resolved::Block { requested, node } => Self::open_block(requested, node, sysfs),
            Resolved::Image { path } => Self::open_image(path, sysfs),
        }
    }

    fn open_block(requested: &str, node: &Path, sysfs: &Sysfs) -> Result<Self, DeviceError> {
        let failed = |source| DeviceError::from_open(requested, node.to_owned(), source);
        let file = File::open(node).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.file_type().is_block_device() {
            let what = "no block device any more";
            return Err(DeviceError::NotABlockDevice { requested: requested.into(), path: node.into(), what });
        }
        let size = ioctl::size(&file).map_err(failed)?;
        if size == 0 {
            return Err(DeviceError::SizeZero { requested: requested.into(), node: node.into() });
        }
        let devnum = DevNum::from_dev_t(metadata.rdev());
        let diskseq = sysfs.diskseq(&sysfs.block(requested, devnum)?)?;
        let kind = Kind::Block(Identity { devnum, size, diskseq });
        Ok(Device { requested: requested.into(), node: node.into(), sysfs: sysfs.clone(), file, kind, claim: None })
    }

    fn open_image(path: &Path, sysfs: &Sysfs) -> Result<Self, DeviceError> {
        let requested = path.display().to_string();
        let failed = |source| DeviceError::from_open(&requested, path.to_owned(), source);
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        if size == 0 {
            return Err(DeviceError::SizeZero { requested, node: path.into() });
        }
        let kind = Kind::Image { size };
        Ok(Device { requested, node: path.into(), sysfs: sysfs.clone(), file, kind, claim: None })
    }

    /// The configured name.
    pub fn requested(&self) -> &str {
        &self.requested
    }

    /// The canonical node, for mount and for messages.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// The device number; `None` for an image file.
    pub fn devnum(&self) -> Option<DevNum> {
        match self.kind {
            Kind::Block(identity) => Some(identity.devnum),
            Kind::Image { .. } => None,
        }
    }

    /// Size in bytes when it was opened.
    pub fn size(&self) -> u64 {
        match self.kind {
            Kind::Block(identity) => identity.size,
            Kind::Image { size } => size,
        }
    }

    /// Everything the kernel says about it now. For an image file the device number is 0:0 and a loop device that shows
    /// it counts as on top.
    pub fn facts(&self) -> Result<DeviceFacts, DeviceError> {
        let failed = |operation| move |source| DeviceError::Io { operation, path: self.node.clone(), source };
        let Kind::Block(identity) = self.kind else {
            let metadata = self.file.metadata().map_err(failed("stat"))?;
            let on_top =
                loops::showing(&self.sysfs, &self.node)?.map(|bound| DeviceUse::LoopOnTop { name: bound.name });
            return Ok(DeviceFacts {
                requested: self.requested.clone(),
                node: self.node.display().to_string(),
                devnum: DevNum { major: 0, minor: 0 },
                size: metadata.len(),
                logical_block: 512,
                read_only: metadata.permissions().readonly(),
                whole_disk: true,
                serial: None,
                diskseq: None,
                backing_file: None,
                volume_id: local_id(&self.node),
                uses: on_top.into_iter().collect(),
            });
        };
        let entry = self.entry(identity.devnum)?;
        let serial = self.sysfs.serial(&entry)?;
        let backing_file = self.sysfs.backing_file(&entry)?;
        // A loop device is known by its file: attached anew under another number it is the same volume.
        let volume_id = match (&serial, &backing_file) {
            // An EBS volume is called by its id, whoever found it.
            (Some(serial), _) => VolumeId::of_serial(serial).unwrap_or_else(|| VolumeId(format!("local:{serial}"))),
            (None, Some(file)) => local_id(Path::new(file)),
            (None, None) => VolumeId(format!("local:{}", self.requested)),
        };
        Ok(DeviceFacts {
            requested: self.requested.clone(),
            node: self.node.display().to_string(),
            devnum: identity.devnum,
            size: ioctl::size(&self.file).map_err(failed("ask for the size of"))?,
            logical_block: rustix::fs::ioctl_blksszget(&self.file)
                .map_err(|errno| failed("ask for the block size of")(errno.into()))?,
            read_only: ioctl::read_only(&self.file).map_err(failed("ask whether read-only:"))?,
            whole_disk: entry.whole_disk(),
            serial,
            diskseq: self.sysfs.diskseq(&entry)?,
            backing_file,
            volume_id,
            uses: uses::uses(&self.sysfs, &entry)?,
        })
    }

    /// Is the opened device the disk of this EBS volume? By the serial that sysfs has under its device number, and by what
    /// an NVMe controller itself answers on this descriptor, where it may be asked.
    pub fn confirm_volume(&self, volume: &VolumeId) -> Result<(), DeviceError> {
        let not_it = |detail: String| {
            Err(DeviceError::NotTheVolume { requested: volume.to_string(), node: self.node.clone(), detail })
        };
        let Some(devnum) = self.devnum() else { return not_it("it is an image file".to_owned()) };
        let entry = self.entry(devnum)?;
        if let Some(serial) = self.sysfs.serial(&entry)?
            && VolumeId::of_serial(&serial).as_ref() != Some(volume)
        {
            return not_it(format!("its serial is {serial}"));
        }
        if !entry.name.starts_with("nvme") {
            return Ok(());
        }
        match nvme::identify(&self.file) {
            Ok(said) if VolumeId::of_serial(&said.serial).as_ref() == Some(volume) => Ok(()),
            Ok(said) => not_it(format!("its controller answers with the serial {} ({})", said.serial, said.model)),
            // Not permitted, or another kernel: the serial in sysfs is the same answer, asked earlier.
            Err(error) => {
                tracing::debug!(event = "nvme.unasked", node = %self.node.display(), %error, "the controller was not asked");
                Ok(())
            }
        }
    }

    /// Takes the device: from now on no other process can mount it, format it or claim it (EBUSY), until the claim is let
    /// go or this value is dropped. Already claimed by us is no error.
    pub fn claim(&mut self) -> Result<(), ClaimError> {
        if self.claim.is_some() {
            return Ok(());
        }
        let identity = self.identity()?;
        let entry = self.entry(identity.devnum).map_err(|source| self.unasked(source))?;
        if !entry.whole_disk() {
            return Err(ClaimError::NotWholeDisk { node: self.node.clone() });
        }
        let claim = match self.open_exclusive() {
            Ok(claim) => claim,
            Err(rustix::io::Errno::BUSY) => return Err(self.in_use(&entry)),
            Err(errno) => return Err(ClaimError::Io { node: self.node.clone(), source: errno.into() }),
        };
        self.check_same(claim.as_fd(), identity)?;
        // The kernel lets a loop device sit on a claimed disk; its writes would go past the claim.
        let mut on_top = uses::uses(&self.sysfs, &entry).map_err(|source| self.unasked(source))?;
        on_top.retain(|used| match used {
            DeviceUse::LoopOnTop { .. } => true,
            // Impossible under O_EXCL, or (a partition that nobody has open) no use by anybody.
            DeviceUse::Mount { .. }
            | DeviceUse::Swap
            | DeviceUse::Holder { .. }
            | DeviceUse::Partition { .. }
            | DeviceUse::Exclusive => false,
        });
        if !on_top.is_empty() {
            return Err(ClaimError::InUse { node: self.node.clone(), uses: on_top, openers: Vec::new() });
        }
        self.claim = Some(claim);
        Ok(())
    }

    /// Lets the claim go, for the moment in which mkfs, fsck or mount needs the device. Copies of the descriptor (in
    /// systemd's store, in a waiting `volhold wait`) keep the claim alive: they must be let go as well.
    ///
    /// No child of ours that is just being started has a copy (`children`); for others busy is waited out for at most five
    /// seconds. A device that somebody else has taken by then is for the tool to find out.
    pub fn let_go(&mut self) {
        if let Some(claim) = self.claim.take() {
            children::while_none_starts(|| drop(claim));
            self.wait_while_busy();
        }
    }

    fn wait_while_busy(&self) {
        let until = Instant::now().checked_add(RECLAIM_WITHIN);
        // The question itself holds the device for an instant.
        let busy = || children::while_none_starts(|| self.open_exclusive().map(drop));
        while busy().is_err_and(|errno| errno == rustix::io::Errno::BUSY)
            && until.is_some_and(|until| Instant::now() < until)
        {
            thread::sleep(RECLAIM_EVERY);
        }
    }

    /// Takes the claim again after it was let go: busy is asked again for at most five seconds.
    pub fn reclaim(&mut self) -> Result<(), ClaimError> {
        if self.claim.is_none() {
            self.wait_while_busy();
        }
        self.claim()?;
        // ext4 corrects counters in its cached superblock also when it may not write; that must not be read as a change of
        // the device.
        self.drop_cache().map_err(|source| ClaimError::Io { node: self.node.clone(), source })
    }

    pub fn claimed(&self) -> bool {
        self.claim.is_some()
    }

    /// The claim's descriptor, to be put into systemd's store or handed to a waiting process.
    pub fn claim_fd(&self) -> Option<BorrowedFd<'_>> {
        self.claim.as_ref().map(AsFd::as_fd)
    }

    /// Takes over a claim that an earlier process left in systemd's store. It is proven to be one: another exclusive open
    /// must be refused.
    pub fn adopt_claim(&mut self, claim: OwnedFd) -> Result<(), ClaimError> {
        let identity = self.identity()?;
        let io = |errno: rustix::io::Errno| ClaimError::Io { node: self.node.clone(), source: errno.into() };
        rustix::io::fcntl_setfd(&claim, rustix::io::FdFlags::CLOEXEC).map_err(io)?;
        let stat = rustix::fs::fstat(&claim).map_err(io)?;
        let is_block = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::BlockDevice;
        if !is_block || DevNum::from_dev_t(stat.st_rdev) != identity.devnum {
            let detail =
                format!("expected block device {}, found {}", identity.devnum, DevNum::from_dev_t(stat.st_rdev));
            return Err(ClaimError::Foreign { node: self.node.clone(), detail });
        }
        self.check_same(claim.as_fd(), identity)?;
        self.claim = Some(match self.open_exclusive() {
            Err(rustix::io::Errno::BUSY) => claim,
            // It was no exclusive descriptor: now there is one.
            Ok(exclusive) => exclusive,
            Err(errno) => return Err(io(errno)),
        });
        Ok(())
    }

    /// Keeps udev (and whoever honours its lock) from probing the disk while the value lives. udev gives up on a disk that
    /// is locked for more than three minutes. Waits at most five seconds for udev to end a probe that it has begun.
    pub fn lock_for_udev(&self) -> Result<UdevLock, ClaimError> {
        let failed = |source| ClaimError::Io { node: self.node.clone(), source };
        // A file description of its own: the lock ends with it, and the device stays free to be borrowed.
        let file = self.reader().map_err(failed)?;
        let until = Instant::now().checked_add(RECLAIM_WITHIN);
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(UdevLock { _file: file }),
                Err(rustix::io::Errno::WOULDBLOCK) if until.is_some_and(|until| Instant::now() < until) => {
                    thread::sleep(RECLAIM_EVERY);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(ClaimError::InUse {
                        node: self.node.clone(),
                        uses: vec![DeviceUse::Exclusive],
                        openers: self.openers(),
                    });
                }
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }

    /// A new descriptor of the same device, without claim: for a reader.
    pub fn reader(&self) -> io::Result<File> {
        File::open(self.proc_path())
    }

    /// The opened device as a path, for this process. A child that has it as standard input says [`CHILD_PATH`].
    ///
    /// [`CHILD_PATH`]: Self::CHILD_PATH
    pub fn proc_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// What a child that was started with [`Device::child_stdin`] calls the device.
    pub const CHILD_PATH: &'static str = "/proc/self/fd/0";

    /// The device as a child's standard input: the only descriptor that a child inherits.
    pub fn child_stdin(&self) -> io::Result<Stdio> {
        self.reader().map(Stdio::from)
    }

    /// Drops the kernel's clean cached pages, so that the next buffered read asks the medium.
    pub fn drop_cache(&self) -> io::Result<()> {
        match self.kind {
            Kind::Block(_) => ioctl::drop_cache(&self.file),
            Kind::Image { .. } => Ok(()),
        }
    }

    /// Size and attachment are those of when it was opened.
    pub fn still_same(&self) -> Result<bool, DeviceError> {
        let failed = |source| DeviceError::Io { operation: "ask for the size of", path: self.node.clone(), source };
        match self.kind {
            Kind::Block(identity) => {
                let now = Identity {
                    devnum: identity.devnum,
                    size: ioctl::size(&self.file).map_err(failed)?,
                    diskseq: self.sysfs.diskseq(&self.entry(identity.devnum)?)?,
                };
                Ok(now == identity)
            }
            Kind::Image { size } => Ok(self.file.metadata().map_err(failed)?.len() == size),
        }
    }

    /// Who else has it, as far as the kernel tells.
    pub fn uses(&self) -> Result<Vec<DeviceUse>, DeviceError> {
        self.facts().map(|facts| facts.uses)
    }

    /// Other processes that have the node open.
    pub fn openers(&self) -> Vec<Opener> {
        uses::openers(&self.sysfs, &self.node)
    }

    fn entry(&self, devnum: DevNum) -> Result<BlockEntry, DeviceError> {
        self.sysfs.block(&self.requested, devnum)
    }

    fn identity(&self) -> Result<Identity, ClaimError> {
        match self.kind {
            Kind::Block(identity) => Ok(identity),
            Kind::Image { .. } => Err(ClaimError::Image { path: self.node.clone() }),
        }
    }

    fn unasked(&self, source: DeviceError) -> ClaimError {
        ClaimError::Device { node: self.node.clone(), source }
    }

    /// Through the held descriptor's own path: whatever has happened to the name, this is the device that was opened.
    fn open_exclusive(&self) -> rustix::io::Result<OwnedFd> {
        rustix::fs::open(self.proc_path(), OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty())
    }

    /// Neither another disk under the same number nor another size, and the node still leads here (mount goes by it).
    fn check_same(&self, claim: BorrowedFd, opened: Identity) -> Result<(), ClaimError> {
        let changed = |detail: String| ClaimError::Changed { node: self.node.clone(), detail };
        let io = |source| ClaimError::Io { node: self.node.clone(), source };
        let entry = self.entry(opened.devnum).map_err(|source| self.unasked(source))?;
        let now = Identity {
            devnum: opened.devnum,
            size: ioctl::size(claim).map_err(io)?,
            diskseq: self.sysfs.diskseq(&entry).map_err(|source| self.unasked(source))?,
        };
        if now != opened {
            return Err(changed(format!(
                "it was {} bytes, attachment {:?}; it is {} bytes, attachment {:?}",
                opened.size, opened.diskseq, now.size, now.diskseq
            )));
        }
        let named = fs::metadata(&self.node).map_err(io)?;
        if !named.file_type().is_block_device() || DevNum::from_dev_t(named.rdev()) != opened.devnum {
            return Err(changed(format!("the name now leads to another device than {}", opened.devnum)));
        }
        Ok(())
    }

    fn in_use(&self, entry: &BlockEntry) -> ClaimError {
        let mut uses = match uses::uses(&self.sysfs, entry) {
            Ok(uses) => uses,
            Err(source) => return self.unasked(source),
        };
        uses.retain(|used| match used {
            // Its mere existence makes nothing busy.
            DeviceUse::Partition { .. } => false,
            DeviceUse::Mount { .. }
            | DeviceUse::Swap
            | DeviceUse::Holder { .. }
            | DeviceUse::LoopOnTop { .. }
            | DeviceUse::Exclusive => true,
        });
        let explained = uses.iter().any(|used| match used {
            DeviceUse::Mount { .. } | DeviceUse::Swap | DeviceUse::Holder { .. } => true,
            // O_EXCL does not notice it, so something else is busy too.
            DeviceUse::LoopOnTop { .. } | DeviceUse::Partition { .. } | DeviceUse::Exclusive => false,
        });
        if !explained {
            uses.push(DeviceUse::Exclusive);
        }
        ClaimError::InUse { node: self.node.clone(), uses, openers: self.openers() }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The disk is locked against udev while this lives.
#[derive(Debug)]
pub struct UdevLock {
    _file: File,
}

/// A volume without serial is called by the canonical path of its file.
fn local_id(path: &Path) -> VolumeId {
    let canonical = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    VolumeId(format!("local:{}", canonical.display()))
}
