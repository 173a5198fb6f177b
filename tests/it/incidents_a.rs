//! Incident A: a tool could not read or mount a volume, took that for "blank", and ran mkfs on it.
//!
//! Each test breaks a real device in one way and lets the agent run on it with the most dangerous configuration there is
//! (`format = "if-blank"`, `fresh = "allow"`). Whatever is wrong: held for the right reason, told to everybody who asks, not
//! one byte written.

use crate::common::etcd::Member;
use crate::common::node::codes;
use crate::common::{ErrFs, Guard, Loop, Mounted, Node, Swap, Tmp, disk, fixture, run};
use disk::MIB;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A clean ext4 of 160 MiB (so that it has a backup superblock at 128 MiB) with an etcd data dir in `data`.
fn etcd_volume(tmp: &Tmp) -> PathBuf {
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let image = disk::sparse(&tmp.join("volume"), 160 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    image
}

/// Lets an agent run on `device` until it holds, and checks all that the incident demands. `content` is what must not
/// change: the device itself, or the file under one that cannot be read.
#[track_caller]
fn held(device: &Path, content: &Path, reason: &str, inspect: i32) {
    held_as(device, content, reason, inspect, |guard| guard);
}

#[track_caller]
fn held_as(device: &Path, content: &Path, reason: &str, inspect: i32, shape: impl FnOnce(Guard) -> Guard) {
    let mut node = Node::new();
    let guard = shape(Guard::enforce("main", device, &node.path("mnt")).data_dir("data"));
    node.configure(&[guard]);
    held_on(&mut node, device, content, reason, inspect);
}

#[track_caller]
fn held_on(node: &mut Node, device: &Path, content: &Path, reason: &str, inspect: i32) {
    let before = content.exists().then(|| disk::sha256(content));
    let unchanged = |when: &str| {
        if let Some(before) = &before {
            assert_eq!(before, &disk::sha256(content), "the volume was written to, {when}");
        }
    };
    node.start();
    node.await_held("main", reason);
    unchanged("while it was held");
    inspected(node, device, inspect);
    // A hold outlives its agent: neither the crash nor the next one may try again with another result.
    node.kill_agent();
    node.assert_closed("main");
    node.start();
    node.await_held("main", reason);
    node.stop_agent();
    unchanged("by the second agent");
}

/// `inspect` ends with that code, and whatever it found, it would not format.
#[track_caller]
fn inspected(node: &Node, device: &Path, code: i32) {
    let looked = node.volhold(&["inspect", &device.to_string_lossy(), "-o", "json"]);
    assert_eq!(looked.code, Some(code), "{looked:#?}");
    if code == 4 {
        let report = looked.json();
        assert_eq!(report["kind"], "DeviceReport");
        assert_ne!(report["blank"], "proven", "{report:#}");
        assert_eq!(report["format"]["verdict"], "refuse", "{report:#}");
        assert!(!codes(&report["format"]["reasons"]).is_empty(), "refused without a reason: {report:#}");
    }
}

// --- a filesystem that has lost its beginning -------------------------------------------------------------------------

#[track_caller]
fn ext4_without(offset: u64, length: u64) {
    let tmp = Tmp::new();
    let image = etcd_volume(&tmp);
    disk::zero(&image, offset, length);
    let device = Loop::new(&image);
    held(device.node(), device.node(), "backup-superblock-found", 4);
}

#[test]
fn ext4_whose_primary_superblock_is_zero_is_held() {
    crate::needs_root!();
    ext4_without(1024, 1024);
}

#[test]
fn ext4_whose_first_4_kib_are_zero_is_held() {
    crate::needs_root!();
    ext4_without(0, 4096);
}

#[test]
fn ext4_whose_first_mib_is_zero_is_held() {
    crate::needs_root!();
    ext4_without(0, MIB);
}

#[track_caller]
fn xfs_whose_first_allocation_group_is(overwrite: impl Fn(&Path, u64)) {
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("volume"), 320 * MIB);
    run("mkfs.xfs", &["-q", "-d", "agcount=4", &image.to_string_lossy()]);
    overwrite(&image, 80 * MIB);
    let device = Loop::new(&image);
    held(device.node(), device.node(), "backup-superblock-found", 4);
}

#[test]
fn xfs_whose_first_allocation_group_is_zero_is_held() {
    crate::needs_root!();
    xfs_whose_first_allocation_group_is(|image, length| disk::zero(image, 0, length));
}

#[test]
fn xfs_whose_first_allocation_group_is_noise_is_held() {
    crate::needs_root!();
    xfs_whose_first_allocation_group_is(|image, length| disk::noise(image, 0, length, 11));
}

#[test]
fn a_partition_table_of_which_only_the_backup_is_left_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("volume"), 64 * MIB);
    run("sgdisk", &["--new=1:0:0", &image.to_string_lossy()]);
    disk::zero(&image, 0, 34 * 512);
    let device = Loop::new(&image);
    held(device.node(), device.node(), "signature-found", 4);
}

// --- data without a filesystem ------------------------------------------------------------------------------------------

#[test]
fn a_bolt_file_at_a_raw_offset_is_held_as_etcd_data() {
    crate::needs_root!();
    let tmp = Tmp::new();
    fixture::etcd_tree("v3.4.23-basic", &tmp.join("tree"));
    let backend = std::fs::read(tmp.join("tree/data/member/snap/db")).unwrap();
    let image = disk::sparse(&tmp.join("volume"), 64 * MIB);
    disk::write_at(&image, 8 * MIB, &backend);
    let device = Loop::new(&image);
    held(device.node(), device.node(), "etcd-data-found", 4);
}

#[test]
fn one_byte_in_the_middle_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("volume"), 64 * MIB);
    disk::write_at(&image, 32_506_633, &[1]);
    let device = Loop::new(&image);
    held(device.node(), device.node(), "unknown-data", 4);
}

#[test]
fn one_byte_in_the_last_odd_sector_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let size = 64 * MIB + 512;
    let image = disk::sparse(&tmp.join("volume"), size);
    disk::write_at(&image, size - 1, &[1]);
    let device = Loop::new(&image);
    held(device.node(), device.node(), "unknown-data", 4);
}

#[test]
fn a_gigabyte_of_noise_is_held_where_no_provider_speaks_for_it() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("volume"), 1024 * MIB);
    let device = ErrFs::new(&image, &tmp.join("fuse"), &["noise:20261130:0".to_owned()]).disk();
    held(device.node.node(), device.node.node(), "unknown-data", 4);
}

#[test]
fn a_little_noise_that_could_be_overwritten_is_held_too() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("volume"), 16 * MIB);
    disk::noise(&image, 0, 16 * MIB, 20_261_130);
    let device = Loop::new(&image);
    held(device.node(), device.node(), "unknown-data", 4);
}

// --- disks that cannot be read --------------------------------------------------------------------------------------------

#[track_caller]
fn unreadable(tmp: &Tmp, image: &Path, rule: String) {
    let bad = ErrFs::new(image, &tmp.join("fuse"), &[rule]).disk();
    held(bad.node.node(), image, "unreadable", 4);
}

#[test]
fn a_volume_of_which_every_read_fails_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = etcd_volume(&tmp);
    unreadable(&tmp, &image, format!("eio:0:{}", 160 * MIB));
}

#[test]
fn a_blank_volume_with_one_bad_sector_in_the_middle_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("volume"), 64 * MIB);
    unreadable(&tmp, &image, format!("eio:{}:512", 32 * MIB + 512));
}

#[test]
fn a_blank_volume_with_a_bad_sector_in_its_last_64_kib_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("volume"), 64 * MIB);
    unreadable(&tmp, &image, format!("eio:{}:512", 64 * MIB - 32 * 1024));
}

#[test]
fn a_filesystem_whose_superblock_cannot_be_read_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = etcd_volume(&tmp);
    unreadable(&tmp, &image, "eio:0:4096".to_owned());
}

// --- devices that are none ------------------------------------------------------------------------------------------------

#[test]
fn a_node_that_is_missing_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = tmp.join("nothing");
    held(&device, &device, "device-missing", 5);
}

#[test]
fn a_device_that_may_not_be_opened_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 16 * MIB));
    let mut node = Node::new();
    node.become_nobody();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    held_on(&mut node, device.node(), device.node(), "no-permission", 77);
}

#[test]
fn a_directory_in_the_place_of_a_device_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", tmp.path(), &node.path("mnt"))]);
    node.start();
    node.await_held("main", "not-a-block-device");
    // `inspect DIR` is another question: which data dirs are in it? There is none.
    let looked = node.volhold(&["inspect", &tmp.path().to_string_lossy(), "-o", "json"]);
    assert_eq!(looked.json()["kind"], "VolumeReport");
    assert_ne!(looked.code, Some(0), "{looked:#?}");
}

#[test]
fn a_character_device_is_held() {
    crate::needs_root!();
    let zero = Path::new("/dev/zero");
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", zero, &node.path("mnt"))]);
    node.start();
    node.await_held("main", "not-a-block-device");
    let looked = node.volhold(&["inspect", "/dev/zero", "-o", "json"]);
    assert_eq!(looked.code, Some(4), "{looked:#?}");
}

/// A loop device without a file. Opening a node makes the device; afterwards it is removed, for `losetup` would use it.
struct Unbound(u32);

impl Unbound {
    fn new(node: &Path) -> Self {
        // Far above the numbers that losetup hands out, and another one in each process.
        let minor = 2000 + std::process::id() % 100_000;
        run("mknod", &[&node.to_string_lossy(), "b", "7", &minor.to_string()]);
        Unbound(minor)
    }
}

impl Drop for Unbound {
    fn drop(&mut self) {
        const LOOP_CTL_REMOVE: libc::Ioctl = 0x4C81;
        if let Ok(control) = std::fs::File::open("/dev/loop-control") {
            // SAFETY: the argument is a number, no pointer (linux/loop.h); a device in use is refused.
            unsafe {
                libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&control), LOOP_CTL_REMOVE, libc::c_ulong::from(self.0))
            };
        }
    }
}

#[test]
fn a_loop_device_that_nothing_is_bound_to_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = tmp.join("loop");
    let _unbound = Unbound::new(&device);
    held(&device, &device, "size-mismatch", 4);
}

// --- devices that somebody has ----------------------------------------------------------------------------------------------

#[test]
fn a_volume_that_is_mounted_elsewhere_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = etcd_volume(&tmp);
    let device = Loop::read_only(&image);
    let _mounted = Mounted::new(device.node(), &tmp.join("elsewhere"));
    held(device.node(), device.node(), "in-use", 4);
}

/// A mount in a mount namespace that nobody else sees.
struct HiddenMount(Child);

impl HiddenMount {
    fn new(node: &Path, at: &Path) -> Self {
        std::fs::create_dir(at).unwrap();
        let script = r#"mount -o ro,noload "$0" "$1" && touch "$1.mounted" && exec sleep 600"#;
        let child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .args([node, at])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let told = at.with_extension("mounted");
        crate::common::node::await_change(at.parent().unwrap(), crate::common::node::PATIENCE, || told.exists());
        assert!(told.exists(), "the hidden mount did not come about");
        HiddenMount(child)
    }
}

impl Drop for HiddenMount {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_volume_that_is_mounted_in_a_namespace_that_nobody_sees_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = etcd_volume(&tmp);
    let device = Loop::new(&image);
    let _mounted = HiddenMount::new(device.node(), &tmp.join("elsewhere"));
    held(device.node(), device.node(), "in-use", 4);
}

#[test]
fn a_volume_that_is_swapped_to_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 16 * MIB));
    let _swap = Swap::on(device.node());
    held(device.node(), device.node(), "in-use", 4);
}

#[test]
fn a_blank_volume_with_a_loop_device_on_top_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 16 * MIB));
    let _on_top = Loop::new(device.node());
    held(device.node(), device.node(), "in-use", 4);
}

// --- a mount that fails, a filesystem that is not the one -----------------------------------------------------------------

#[test]
fn a_healthy_filesystem_with_a_mount_option_that_the_kernel_does_not_know_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&etcd_volume(&tmp));
    // What stands on the device is healthy, and that is all that `inspect` is asked.
    held_as(device.node(), device.node(), "mount-failed", 0, |guard| guard.mount_options("nonsense"));
}

#[test]
fn a_healthy_filesystem_with_a_mount_option_that_this_device_cannot_do_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&etcd_volume(&tmp));
    // Refused by the filesystem itself and not by the parser of options: another way through the kernel.
    held_as(device.node(), device.node(), "mount-failed", 0, |guard| guard.mount_options("dax=always"));
}

/// Sets bits in one of the superblock's three feature words and makes its checksum right again.
fn set_feature(image: &Path, word: usize, bits: u32) {
    let mut superblock = disk::read_at(image, 1024, 1024);
    let old = u32::from_le_bytes(superblock[word..word + 4].try_into().unwrap());
    superblock[word..word + 4].copy_from_slice(&(old | bits).to_le_bytes());
    // ext4 leaves out the final inversion of CRC-32C.
    let sum = !crc32c::crc32c(&superblock[..1020]);
    superblock[1020..].copy_from_slice(&sum.to_le_bytes());
    disk::write_at(image, 1024, &superblock);
}

/// Offsets of `s_feature_compat`, `s_feature_incompat`, `s_feature_ro_compat` (kernel, fs/ext4/ext4.h).
const COMPAT: usize = 0x5c;
const INCOMPAT: usize = 0x60;
const RO_COMPAT: usize = 0x64;

#[track_caller]
fn unknown_feature(word: usize) {
    let tmp = Tmp::new();
    let image = etcd_volume(&tmp);
    set_feature(&image, word, 0x4000_0000);
    let device = Loop::new(&image);
    held(device.node(), device.node(), "filesystem-feature-unknown", 4);
}

#[test]
fn an_ext4_with_a_feature_that_nobody_knows_is_held() {
    crate::needs_root!();
    unknown_feature(INCOMPAT);
}

#[test]
fn an_ext4_with_a_feature_for_writers_that_nobody_knows_is_held() {
    crate::needs_root!();
    unknown_feature(RO_COMPAT);
}

#[test]
fn an_ext4_with_a_feature_that_only_fsck_minds_is_held() {
    crate::needs_root!();
    unknown_feature(COMPAT);
}

#[test]
fn a_checksum_made_by_this_file_is_the_one_that_ext4_wants() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = etcd_volume(&tmp);
    let before = disk::read_at(&image, 1024, 1024);
    set_feature(&image, COMPAT, 0);
    assert_eq!(before, disk::read_at(&image, 1024, 1024));
}

#[test]
fn a_volume_that_was_made_anew_by_hand_is_held() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 160 * MIB));
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    node.start();
    node.await_open("main");
    node.reboot();
    run("mkfs.ext4", &["-q", "-F", &device.name()]);
    held_on(&mut node, device.node(), device.node(), "filesystem-replaced", 0);
}

/// A node that has had the volume, with a filesystem that is no longer on it.
fn node_of_old(device: &Loop) -> Node {
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt"))]);
    node.start();
    node.await_open("main");
    node.reboot();
    run("blkdiscard", &["--force", &device.name()]);
    node
}

#[test]
fn a_node_that_was_away_when_its_volume_got_a_new_filesystem_believes_the_volumes_own_ledger() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 160 * MIB));
    let mut away = node_of_old(&device);
    // Another node, which knows nothing of the first, made it anew.
    let mut other = Node::new();
    other.configure(&[Guard::enforce("main", device.node(), &other.path("mnt"))]);
    other.start();
    other.await_open("main");
    let etcd = Member::new("master-a", &other.path("mnt/data")).start();
    etcd.put("key", "kept");
    etcd.stop();
    other.reboot();

    let before = device.sha256();
    let plan = away.volhold(&["plan", "main"]);
    assert!(plan.stdout.contains("read ledger") && plan.stdout.contains("open"), "{plan:#?}");
    assert_eq!(device.sha256(), before, "a plan wrote");
    away.start();
    away.await_open("main");
}

#[test]
fn another_volume_in_its_place_is_named_and_not_touched() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 160 * MIB));
    let mut node = node_of_old(&device);
    let strange = Loop::new(&disk::sparse(&tmp.join("strange"), 160 * MIB));
    let mut other = Node::new();
    other.configure(&[Guard::enforce("main", strange.node(), &other.path("mnt"))]);
    other.start();
    other.await_open("main");
    other.reboot();
    run(
        "dd",
        &[
            &format!("if={}", strange.name()),
            &format!("of={}", device.name()),
            "bs=1M",
            "conv=sparse,fsync",
            "status=none",
        ],
    );
    held_on(&mut node, device.node(), device.node(), "wrong-volume", 0);
}
