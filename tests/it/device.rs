//! Opening, identifying and claiming real loop devices.

use crate::common::{Loop, Mounted, Swap, Tmp, disk, output, run};
use crate::needs_root;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use volhold::device::{ClaimError, Device, DeviceError, Resolved, Sysfs, resolve};
use volhold::model::{DeviceSpec, DeviceUse, Observed, ReasonCode};

/// A device as the agent opens it: from a configured path.
#[track_caller]
pub fn open(node: &Path) -> Device {
    try_open(node).unwrap_or_else(|error| panic!("{}: {error}", node.display()))
}

fn try_open(node: &Path) -> Result<Device, DeviceError> {
    let sysfs = Sysfs::default();
    let identify = |_: &Path| Observed::not_run("a path needs no look at content");
    Device::open(&resolve(&DeviceSpec::Path(node.to_owned()), &sysfs, &identify)?, &sysfs)
}

/// A claimed device on a new image of that many bytes.
#[track_caller]
pub fn claimed(tmp: &Tmp, size: u64) -> (Loop, Device) {
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), size));
    let mut opened = open(device.node());
    opened.claim().expect("nobody else has it");
    (device, opened)
}

#[track_caller]
fn refused(result: Result<(), ClaimError>) -> Vec<DeviceUse> {
    match result {
        Err(error @ ClaimError::InUse { .. }) => {
            assert_eq!(error.reason().code, ReasonCode::InUse);
            let ClaimError::InUse { uses, .. } = error else { unreachable!() };
            uses
        }
        other => panic!("expected in-use, got {other:?}"),
    }
}

#[test]
fn facts_are_those_of_the_kernel() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), 8 * disk::MIB);
    let device = Loop::new(&image);
    let facts = open(device.node()).facts().unwrap();
    assert_eq!((facts.size, facts.logical_block, facts.read_only, facts.whole_disk), (8 * disk::MIB, 512, false, true));
    assert_eq!(facts.devnum, volhold::model::DevNum::from_dev_t(std::fs::metadata(device.node()).unwrap().rdev()));
    assert_eq!(facts.backing_file.as_deref(), image.to_str());
    assert_eq!(facts.uses, []);
    let block = format!("/sys/block/{}/diskseq", device.node().file_name().unwrap().to_str().unwrap());
    let diskseq = std::fs::read_to_string(block).ok().map(|text| text.trim().parse().unwrap());
    assert_eq!(facts.diskseq, diskseq);
}

#[test]
fn a_read_only_device_says_so() {
    needs_root!();
    let tmp = Tmp::new();
    let device = Loop::read_only(&disk::sparse(&tmp.join("disk"), disk::MIB));
    assert!(open(device.node()).facts().unwrap().read_only);
}

#[test]
fn an_image_keeps_its_name_over_attachments_and_has_the_name_of_its_file() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), disk::MIB);
    let as_file = open(&image).facts().unwrap().volume_id;
    let first = Loop::new(&image);
    let first_id = open(first.node()).facts().unwrap().volume_id;
    let second = Loop::new(&image);
    assert_ne!(first.node(), second.node());
    let second_id = open(second.node()).facts().unwrap().volume_id;
    assert_eq!(first_id.0, format!("local:{}", image.display()));
    assert_eq!((&first_id, &first_id), (&second_id, &as_file));
}

#[test]
fn a_device_of_no_bytes_is_refused() {
    needs_root!();
    // Its driver rounds down to sectors. One that nothing is bound to looks the same, but another test may bind it.
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), 511));
    let error = try_open(device.node()).unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::SizeMismatch, "{error}");
}

#[test]
fn under_the_claim_nobody_can_format_wipe_or_mount() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), 64 * disk::MIB);
    disk::mkfs_ext4(&image, None);
    let device = Loop::new(&image);
    let mut opened = open(device.node());
    opened.claim().unwrap();
    assert!(opened.claimed());
    let before = device.sha256();
    let at = tmp.join("mnt");
    std::fs::create_dir(&at).unwrap();
    let attempts: [(&str, &[&str]); 5] = [
        ("mkfs.ext4", &["-q", "-F", "-F"]),
        ("mkfs.xfs", &["-f"]),
        ("wipefs", &["--all"]),
        ("mkswap", &["-f"]),
        ("e2fsck", &["-fy"]),
    ];
    for (program, options) in attempts {
        let mut args = options.to_vec();
        let name = device.name();
        args.push(&name);
        assert!(!output(program, &args).status.success(), "{program} got through the claim");
    }
    assert!(!output("mount", &[&device.name(), at.to_str().unwrap()]).status.success(), "mount got through the claim");
    assert_eq!(device.sha256(), before);

    // The claim is what held them back: without it the same mount works.
    opened.let_go();
    let mounted = Mounted::new(device.node(), &at);
    drop(mounted);
    opened.reclaim().unwrap();
    assert!(!output("mount", &[&device.name(), at.to_str().unwrap()]).status.success());
}

#[test]
fn a_mounted_device_cannot_be_claimed_and_the_refusal_says_where_it_is_mounted() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), 64 * disk::MIB);
    disk::mkfs_ext4(&image, None);
    let device = Loop::new(&image);
    let mounted = Mounted::new(device.node(), &tmp.join("mnt"));
    let mut opened = open(device.node());
    let at = mounted.at().to_str().unwrap().to_owned();
    assert_eq!(refused(opened.claim()), [DeviceUse::Mount { at }]);
    assert!(!opened.claimed());
    drop(mounted);
    opened.reclaim().expect("free again within a second");
}

#[test]
fn a_mount_that_only_another_namespace_sees_still_refuses_the_claim() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), 64 * disk::MIB);
    disk::mkfs_ext4(&image, None);
    let device = Loop::new(&image);
    let at = tmp.join("mnt");
    std::fs::create_dir(&at).unwrap();
    let script = format!("mount {} {} && echo mounted && read line", device.name(), at.display());
    let mut child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let result = open(device.node()).claim();
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(line, "mounted\n");
    assert_eq!(refused(result), [DeviceUse::Exclusive]);
}

#[test]
fn swap_refuses_the_claim() {
    needs_root!();
    let tmp = Tmp::new();
    let image = tmp.join("disk");
    std::fs::write(&image, vec![0; 16 << 20]).unwrap();
    let device = Loop::new(&image);
    let _swap = Swap::on(device.node());
    assert_eq!(refused(open(device.node()).claim()), [DeviceUse::Swap]);
}

#[test]
fn a_loop_device_on_top_refuses_the_claim_though_the_kernel_would_allow_it() {
    needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), 8 * disk::MIB));
    let top = Loop::new(device.node());
    let name = top.node().file_name().unwrap().to_str().unwrap().to_owned();
    let mut opened = open(device.node());
    assert_eq!(refused(opened.claim()), [DeviceUse::LoopOnTop { name: name.clone() }]);
    assert!(!opened.claimed(), "nothing is kept of a refused claim");
    assert_eq!(opened.facts().unwrap().uses, [DeviceUse::LoopOnTop { name }]);
}

#[test]
fn a_loop_device_on_top_is_seen_though_the_node_it_was_made_from_is_gone() {
    needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), 8 * disk::MIB));
    let rdev = std::fs::metadata(device.node()).unwrap().rdev();
    let alias = tmp.join("alias");
    let kind = nix::sys::stat::SFlag::S_IFBLK;
    nix::sys::stat::mknod(&alias, kind, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR, rdev).unwrap();
    let top = Loop::new(&alias);
    std::fs::remove_file(&alias).unwrap();
    let name = top.node().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(refused(open(device.node()).claim()), [DeviceUse::LoopOnTop { name }]);
}

#[test]
fn another_claimant_refuses_the_claim() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, first) = claimed(&tmp, 8 * disk::MIB);
    let mut second = open(device.node());
    assert_eq!(refused(second.claim()), [DeviceUse::Exclusive]);
    drop(first);
    second.reclaim().unwrap();
}

#[test]
fn a_claimant_in_another_process_is_named_by_pid() {
    needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), 8 * disk::MIB));
    // `losetup` aside, python is the one tool here that can open exclusively and wait.
    let script = "import os,sys; os.open(sys.argv[1], os.O_RDONLY|os.O_EXCL); print(flush=True); sys.stdin.read()";
    let mut child = Command::new("/usr/bin/python3")
        .args(["-c", script, &device.name()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let result = open(device.node()).claim();
    drop(child.stdin.take());
    child.wait().unwrap();
    let message = result.unwrap_err().reason().message;
    assert!(message.contains(&format!("python3 (pid {})", child.id())), "{message}");
}

#[test]
fn an_image_file_cannot_be_claimed() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), disk::MIB);
    let error = open(&image).claim().unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::NotABlockDevice);
}

#[test]
fn a_partition_is_no_whole_disk() {
    needs_root!();
    let tmp = Tmp::new();
    let device = Loop::partitionable(&disk::sparse(&tmp.join("disk"), 16 * disk::MIB));
    run("addpart", &[&device.name(), "1", "2048", "4096"]);
    let partition = format!("{}p1", device.name());
    let name = Path::new(&partition).file_name().unwrap().to_str().unwrap().to_owned();
    let disk_uses = open(device.node()).facts().unwrap().uses;
    let mut opened = open(Path::new(&partition));
    let facts = opened.facts().unwrap();
    let claim = opened.claim();
    let while_used = {
        let _other =
            rustix::fs::open(&partition, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()).unwrap();
        open(device.node()).claim()
    };
    drop(opened);
    // The kernel takes no partition away that is open, and this process' children have copies for a moment.
    assert!(disk::await_free(Path::new(&partition)));
    run("delpart", &[&device.name(), "1"]);
    assert_eq!(disk_uses, [DeviceUse::Partition { name }]);
    assert!(!facts.whole_disk);
    assert_eq!(claim.unwrap_err().reason().code, ReasonCode::Partitioned);
    assert_eq!(refused(while_used), [DeviceUse::Exclusive], "whoever has a partition has the disk");
}

#[test]
fn another_disk_under_the_same_number_is_noticed() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), 8 * disk::MIB);
    let device = Loop::new(&image);
    let mut opened = open(device.node());
    assert!(opened.still_same().unwrap());
    File::options().write(true).open(&image).unwrap().set_len(16 * disk::MIB).unwrap();
    output("losetup", &["--set-capacity", &device.name()]);
    assert!(!opened.still_same().unwrap());
    let error = opened.claim().unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::ChangedUnderneath, "{error}");
}

#[test]
fn a_claim_survives_the_value_that_made_it_and_is_adopted_by_the_next() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, first) = claimed(&tmp, 8 * disk::MIB);
    // As systemd's descriptor store keeps it.
    let stored = first.claim_fd().unwrap().try_clone_to_owned().unwrap();
    drop(first);
    let mut second = open(device.node());
    assert_eq!(refused(second.claim()), [DeviceUse::Exclusive]);
    second.adopt_claim(stored).unwrap();
    assert!(second.claimed());
    let third = Loop::new(&disk::sparse(&tmp.join("other"), 8 * disk::MIB));
    let foreign = second.claim_fd().unwrap().try_clone_to_owned().unwrap();
    let error = open(third.node()).adopt_claim(foreign).unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::IdentityMismatch);
}

#[test]
fn a_descriptor_without_o_excl_does_not_pass_for_a_claim() {
    needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), 8 * disk::MIB));
    let mut opened = open(device.node());
    opened.adopt_claim(File::open(device.node()).unwrap().into()).unwrap();
    assert_eq!(refused(open(device.node()).claim()), [DeviceUse::Exclusive], "it really is claimed now");
}

#[test]
fn the_lock_keeps_udev_away_while_it_lives() {
    needs_root!();
    let tmp = Tmp::new();
    let (device, opened) = claimed(&tmp, 8 * disk::MIB);
    let theirs = File::open(device.node()).unwrap();
    // What udev does: a shared lock, without waiting.
    let as_udev = || rustix::fs::flock(&theirs, rustix::fs::FlockOperation::NonBlockingLockShared);
    let lock = opened.lock_for_udev().unwrap();
    assert_eq!(as_udev(), Err(rustix::io::Errno::WOULDBLOCK));
    drop(lock);
    as_udev().unwrap();
    assert_eq!(opened.lock_for_udev().unwrap_err().reason().code, ReasonCode::InUse);
}

#[test]
fn no_descriptor_of_a_device_is_inherited() {
    needs_root!();
    let tmp = Tmp::new();
    let (_device, opened) = claimed(&tmp, 8 * disk::MIB);
    let lock = opened.lock_for_udev().unwrap();
    let reader = opened.reader().unwrap();
    let node = opened.node().to_str().unwrap();
    let open_here =
        String::from_utf8(output("ls", &["-l", &format!("/proc/{}/fd", std::process::id())]).stdout).unwrap();
    let ours = open_here.lines().filter(|line| line.ends_with(&format!("-> {node}"))).count();
    assert!(ours >= 4, "device, claim, lock and reader are open here:\n{open_here}");
    let inherited = String::from_utf8(output("ls", &["-l", "/proc/self/fd"]).stdout).unwrap();
    assert!(!inherited.contains(node), "{inherited}");
    drop((lock, reader));
}

#[test]
fn a_child_reaches_the_device_as_its_standard_input() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), disk::MIB);
    disk::write_at(&image, 0, b"volume");
    let device = Loop::new(&image);
    let opened = open(device.node());
    let answer = Command::new("head")
        .args(["--bytes=6", Device::CHILD_PATH])
        .stdin(opened.child_stdin().unwrap())
        .output()
        .unwrap();
    assert_eq!(answer.stdout, b"volume");
}

#[test]
fn a_device_that_went_away_is_missing_not_empty() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), disk::MIB);
    let gone = Resolved::Block { requested: "UUID=x".into(), node: tmp.join("no-node") };
    assert_eq!(Device::open(&gone, &Sysfs::default()).unwrap_err().reason().code, ReasonCode::DeviceMissing);
    let file = Resolved::Block { requested: "x".into(), node: image };
    assert_eq!(Device::open(&file, &Sysfs::default()).unwrap_err().reason().code, ReasonCode::NotABlockDevice);
}

#[test]
fn a_user_without_rights_is_told_so() {
    needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), disk::MIB));
    let node = device.node().to_owned();
    // Credentials are a thread's own; rustix changes them for the calling thread only.
    let code = std::thread::spawn(move || {
        let nobody = rustix::fs::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        try_open(&node).unwrap_err().reason().code
    })
    .join()
    .unwrap();
    assert_eq!(code, ReasonCode::NoPermission);
}
