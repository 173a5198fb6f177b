//! A disk whose reads fail where the test wants it: a FUSE file with a loop device on top.

use super::{Loop, output};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The mounted FUSE server. Its loop device must be dropped first; [`ErrFs::disk`] does both in order.
pub struct ErrFs {
    at: PathBuf,
    server: Child,
    stalls: bool,
}

impl ErrFs {
    /// Serves `backing` below the new folder `at`. Rules: `eio:OFFSET:LENGTH`, `short:OFFSET:LENGTH`,
    /// `stall:OFFSET:LENGTH:FILE` (nothing is answered before FILE exists), `when:OFFSET:LENGTH:FILE` (reads fail once FILE
    /// exists), `after:COUNT:0` (every read after so many fails), `noise:SEED:0` (all reads as noise that takes no space, the
    /// same in every run; nothing can be written).
    #[track_caller]
    pub fn new(backing: &Path, at: &Path, rules: &[String]) -> Self {
        std::fs::create_dir_all(at).expect("a mountpoint");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/common/errfs.py");
        // Debian's own Python: another one that comes first on the path does not see Debian's python3-fuse.
        let mut server = Command::new("/usr/bin/python3")
            .arg(script)
            .arg(at)
            .arg(backing)
            .args(rules)
            .stdin(Stdio::null())
            .spawn()
            .expect("python3 with python3-fuse");
        let disk = at.join("disk");
        let until = Instant::now() + Duration::from_secs(20);
        while !disk.exists() {
            if let Some(end) = server.try_wait().expect("the server's state") {
                panic!("errfs.py ended: {end} (is python3-fuse installed?)");
            }
            assert!(Instant::now() < until, "errfs.py did not mount");
            std::thread::sleep(Duration::from_millis(20));
        }
        ErrFs { at: at.to_owned(), server, stalls: rules.iter().any(|rule| rule.starts_with("stall")) }
    }

    /// The process that answers for the file.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// The file that fails.
    pub fn file(&self) -> PathBuf {
        self.at.join("disk")
    }

    /// A loop device on it.
    pub fn disk(self) -> BadDisk {
        BadDisk { node: Loop::new(&self.file()), server: self }
    }
}

impl Drop for ErrFs {
    fn drop(&mut self) {
        if self.stalls {
            // Only its end lets those go that still wait for an answer.
            self.server.kill().ok();
        }
        if !output("umount", &[&self.at.to_string_lossy()]).status.success() {
            output("umount", &["--lazy", &self.at.to_string_lossy()]);
        }
        // It does not end by itself while any other mount namespace of this machine has a copy of the mount.
        self.server.kill().ok();
        self.server.wait().ok();
    }
}

/// A block device with read errors.
pub struct BadDisk {
    pub node: Loop,
    server: ErrFs,
}

impl BadDisk {
    /// The process that answers for the file, to be stopped or killed.
    pub fn server_pid(&self) -> u32 {
        self.server.server.id()
    }
}
