//! The Debian (or Ubuntu) root that containers start from: built once with debootstrap, of the release that the tests run
//! on, and kept in the user's cache folder.

use crate::common::disk::{MIB, mkfs_ext4, sparse};
use crate::common::etcd::Member;
use crate::common::{Tmp, output, run};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

/// What is in the root besides the least that debootstrap makes. Another list is another root.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,udev,e2fsprogs,xfsprogs,mount,procps,libblkid1,libgcc-s1,kmod,\
                        etcd-server,etcd-client";
/// Counts up when what is done to the root below changes.
const EDITION: u32 = 2;

/// The root, built now if this machine has none. Never written to: each container puts a layer of its own over it.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(found_or_built)
}

/// An image of a volume with the data of an etcd that has run, made once; a sparse copy of it is put at `into`. The member is
/// called `m1`, the key `made` says `before`, everything belongs to the root's user `etcd`.
pub fn volume(into: &Path) {
    let root = root();
    let image = root.with_extension("img");
    let _lock = lock(image.parent().expect("a folder"));
    if !image.exists() {
        let tmp = Tmp::new();
        let dir = tmp.join("tree/default");
        std::fs::create_dir_all(&dir).expect("a data dir");
        let member = Member::new("m1", &dir);
        let etcd = member.start();
        etcd.ctl(&["put", "made", "before"]);
        etcd.stop();
        let passwd = std::fs::read_to_string(root.join("etc/passwd")).expect("the root's users");
        let owner = passwd.lines().find_map(|line| line.strip_prefix("etcd:x:")).expect("a user called etcd");
        let owner: String = owner.split(':').take(2).collect::<Vec<_>>().join(":");
        run("chown", &["-R", &owner, &dir.to_string_lossy()]);
        let new = tmp.join("new.img");
        mkfs_ext4(&sparse(&new, 160 * MIB), Some(&tmp.join("tree")));
        run("cp", &["--sparse=always", &new.to_string_lossy(), &image.with_extension("new").to_string_lossy()]);
        std::fs::rename(image.with_extension("new"), &image).expect("the image takes its place");
    }
    run("cp", &["--sparse=always", &image.to_string_lossy(), &into.to_string_lossy()]);
}

fn lock(roots: &Path) -> File {
    let lock = File::create(roots.join(".lock")).expect("the lock of the roots");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("the lock of the roots");
    lock
}

fn found_or_built() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache"));
    let roots = cache.join("volhold/roots");
    std::fs::create_dir_all(&roots).expect("a folder for the root");
    let _lock = lock(&roots);
    let (uri, suite) = archive();
    let root = roots.join(format!("{suite}-{EDITION}"));
    if !root.exists() {
        build(&roots, &root, &uri, &suite);
    }
    root
}

/// Where this machine gets its own packages, and which release it is.
fn archive() -> (String, String) {
    let release = std::fs::read_to_string("/etc/os-release").expect("/etc/os-release");
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).expect("a release with a name");
    let format = "$(REPO_URI) $(CODENAME) $(COMPONENT)";
    let targets = run("apt-get", &["indextargets", "--format", format, "Created-By: Packages"]);
    let uri = targets.lines().find_map(|line| line.strip_suffix(&format!(" {suite} main")));
    (uri.expect("an archive of this release in apt's sources").to_owned(), suite.to_owned())
}

fn build(roots: &Path, root: &Path, uri: &str, suite: &str) {
    let began = Instant::now();
    println!("builds the containers' root in {}: takes a few minutes, once", root.display());
    let new = roots.join(".new");
    // Of a run that was interrupted.
    if new.exists() {
        crate::common::tmp::clear(&new);
    }
    let at = new.to_string_lossy().into_owned();
    let include = format!("--include={}", PACKAGES.replace(' ', ""));
    let mut args = vec!["--variant=minbase", &include];
    if suite != "bookworm" {
        // Ubuntu keeps etcd elsewhere.
        args.push("--components=main,universe");
    }
    args.extend([suite, &at, uri]);
    let built = output("debootstrap", &args);
    assert!(
        built.status.success(),
        "debootstrap: {}\n{}\n{}",
        built.status,
        String::from_utf8_lossy(&built.stdout),
        String::from_utf8_lossy(&built.stderr)
    );
    tidy(&new);
    std::fs::rename(&new, root).expect("the root takes its place");
    println!("the containers' root was built in {:?}", began.elapsed());
}

/// Takes away what a test machine does not need, and what would start by itself.
fn tidy(root: &Path) {
    for link in
        ["multi-user.target.wants/etcd.service", "multi-user.target.wants/e2scrub_reap.service", "etcd2.service"]
    {
        std::fs::remove_file(root.join("etc/systemd/system").join(link)).ok();
    }
    for unit in [
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
        "e2scrub_all.timer",
        "fstrim.timer",
        "systemd-networkd.service",
        "systemd-resolved.service",
        "systemd-timesyncd.service",
        "systemd-logind.service",
        "console-getty.service",
        "systemd-firstboot.service",
    ] {
        let link = root.join("etc/systemd/system").join(unit);
        if !link.exists() {
            std::os::unix::fs::symlink("/dev/null", link).expect("a masked unit");
        }
    }
    std::fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n").expect("/etc/hosts");
    // Each boot of each container has an id of its own.
    std::fs::write(root.join("etc/machine-id"), "").expect("/etc/machine-id");
    std::fs::create_dir_all(root.join("var/log/journal")).expect("a journal that is kept");
    for entry in std::fs::read_dir(root.join("var/cache/apt/archives")).into_iter().flatten().flatten() {
        std::fs::remove_file(entry.path()).ok();
    }
}
