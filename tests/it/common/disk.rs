//! Loop devices, filesystems and swap on them, and the hash that shows that nothing was written.

use super::tmp::unmount_somehow;
use super::{output, run};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;

/// Asked by a process of its own: what this one opens is copied into every child that another test is just starting, and stays
/// there until the child becomes its program.
#[track_caller]
fn claimed(node: &Path) -> bool {
    let script = "import errno,os,sys\n\
        try: os.open(sys.argv[1], os.O_RDONLY|os.O_EXCL)\n\
        except OSError as e: sys.exit(16 if e.errno == errno.EBUSY else 1)";
    let asked = output("python3", &["-c", script, &node.to_string_lossy()]);
    match asked.status.code() {
        Some(0) => false,
        Some(16) => true,
        _ => panic!("{}: {}", node.display(), String::from_utf8_lossy(&asked.stderr)),
    }
}

/// Waits until nobody has a device to themselves, at most ten seconds: a claim that this process held, for itself or as an
/// agent's manager, lives on in such copies. That the last one is gone is no event that can be awaited.
#[track_caller]
pub fn await_free(node: &Path) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while claimed(node) {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A loop device on a file. The kernel detaches it when the last descriptor closes, so even a test binary that was killed
/// leaves none behind.
pub struct Loop {
    node: PathBuf,
    _open: File,
}

impl Loop {
    #[track_caller]
    pub fn new(file: &Path) -> Self {
        Self::with(file, &[])
    }

    #[track_caller]
    pub fn read_only(file: &Path) -> Self {
        Self::with(file, &["--read-only"])
    }

    /// One that can have partitions (`addpart`); most kernels here know no partition tables.
    #[track_caller]
    pub fn partitionable(file: &Path) -> Self {
        Self::with(file, &["--partscan"])
    }

    #[track_caller]
    fn with(file: &Path, options: &[&str]) -> Self {
        let mut args = vec!["--find", "--show"];
        args.extend(options);
        let file = file.to_string_lossy();
        args.push(&file);
        let node = PathBuf::from(run("losetup", &args).trim());
        let open = File::open(&node).expect("the new loop device opens");
        // Detaching a device that is open only marks it for its last close.
        run("losetup", &["--detach", &node.to_string_lossy()]);
        Loop { node, _open: open }
    }

    pub fn node(&self) -> &Path {
        &self.node
    }

    pub fn name(&self) -> String {
        self.node.to_string_lossy().into_owned()
    }

    /// Whether somebody has the device to themselves.
    #[track_caller]
    pub fn claimed(&self) -> bool {
        claimed(&self.node)
    }

    /// Waits until nobody has the device to themselves.
    #[track_caller]
    pub fn await_free(&self) {
        assert!(await_free(&self.node), "{} is still claimed by somebody", self.node.display());
    }

    /// Hash over the device's content as any reader sees it.
    #[track_caller]
    pub fn sha256(&self) -> String {
        sha256(&self.node)
    }
}

/// SHA-256 over a file or device, as hex.
#[track_caller]
pub fn sha256(path: &Path) -> String {
    let mut file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut hash = Sha256::new();
    let mut block = vec![0; MIB as usize];
    loop {
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(read) => hash.update(&block[..read]),
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A sparse file of that many bytes.
pub fn sparse(path: &Path, size: u64) -> PathBuf {
    File::create(path).and_then(|file| file.set_len(size)).expect("an image file");
    path.to_owned()
}

/// Overwrites a range of an image with zeroes, really writing them.
pub fn zero(path: &Path, offset: u64, length: u64) {
    write_at(path, offset, &vec![0; length as usize]);
}

pub fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).expect("the image opens");
    file.write_all_at(bytes, offset).expect("the image can be written");
    file.sync_all().expect("the image reaches the disk");
}

pub fn read_at(path: &Path, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    File::open(path).and_then(|file| file.read_exact_at(&mut bytes, offset)).expect("the image can be read");
    bytes
}

/// Fills a range with bytes that look random and are the same in every run (splitmix64).
pub fn noise(path: &Path, offset: u64, length: u64, seed: u64) {
    let mut file = File::options().write(true).open(path).expect("the image opens");
    file.seek(SeekFrom::Start(offset)).expect("seek");
    let mut state = seed;
    let mut block = Vec::with_capacity(MIB as usize);
    let mut left = length;
    while left > 0 {
        block.clear();
        while block.len() < (MIB.min(left)) as usize {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            block.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
        }
        block.truncate((MIB.min(left)) as usize);
        file.write_all(&block).expect("the image can be written");
        left -= block.len() as u64;
    }
    file.sync_all().expect("the image reaches the disk");
}

/// mkfs.ext4 with 4 KiB blocks over a file, filled with the tree below `content`. Never mounted, so its journal is clean.
#[track_caller]
pub fn mkfs_ext4(image: &Path, content: Option<&Path>) {
    let image = image.to_string_lossy();
    let mut args = vec!["-q", "-F", "-b", "4096"];
    let content = content.map(|dir| dir.to_string_lossy().into_owned());
    if let Some(dir) = &content {
        args.extend(["-d", dir]);
    }
    args.push(&image);
    run("mkfs.ext4", &args);
}

/// A filesystem that the test itself mounted, as the system would.
pub struct Mounted {
    at: PathBuf,
}

impl Mounted {
    #[track_caller]
    pub fn new(node: &Path, at: &Path) -> Self {
        std::fs::create_dir_all(at).expect("a mountpoint");
        run("mount", &[&node.to_string_lossy(), &at.to_string_lossy()]);
        Mounted { at: at.to_owned() }
    }

    pub fn at(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount_somehow(&self.at);
    }
}

/// Swap on a device.
pub struct Swap(String);

impl Swap {
    #[track_caller]
    pub fn on(node: &Path) -> Self {
        let node = node.to_string_lossy().into_owned();
        run("mkswap", &[&node]);
        run("swapon", &[&node]);
        Swap(node)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        output("swapoff", &[&self.0]);
    }
}
