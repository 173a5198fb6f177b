//! The readers' sandbox: what a reader that runs foreign code cannot do, and what becomes of one that is lost.

mod lost;

use crate::common::etcd::Member;
use crate::common::{Loop, Tmp, disk, fixture, run};
use disk::MIB;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use volhold::worker::confine::{Given, Landlock, confine};

const PROBE: &str = r#"{"probe":{"full_scan":true,"direct":true}}"#;
const VOLUME: &str = r#"{"volume":{"data_dir":null,"fs_uuid":null,"volume_id":null}}"#;

// --- a process of the test's own, confined as a reader is ------------------------------------------------------------

/// Runs one case of [`attempt`] on `stdin` and returns how it ended and what it said.
#[track_caller]
fn attempted(case: &str, stdin: impl Into<Stdio>) -> (ExitStatus, String) {
    let test = std::env::current_exe().expect("this program");
    let output = Command::new(test)
        .args(["--ignored", "--exact", "sandbox::attempt", "--nocapture", "--test-threads=1"])
        .env("VOLHOLD_TEST_ATTEMPT", case)
        .stdin(stdin)
        .output()
        .expect("this program again");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status, said)
}

/// The case ran to its end, so that all that it demands was so.
#[track_caller]
fn passes(case: &str, stdin: impl Into<Stdio>) {
    let (status, said) = attempted(case, stdin);
    assert_eq!(status.code(), Some(0), "{status} {said}");
    assert!(said.contains("attempt over"), "{said}");
}

/// The kernel ended it for what it tried.
#[track_caller]
fn dies(case: &str, stdin: impl Into<Stdio>) {
    let (status, said) = attempted(case, stdin);
    assert_eq!(status.signal(), Some(libc::SIGSYS), "{status} {said}");
    assert!(said.contains("confined"), "{said}");
}

/// How a call was refused, or that it was not.
#[track_caller]
fn refused<T, E: Into<std::io::Error>>(outcome: Result<T, E>) -> Option<i32> {
    match outcome {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.into().raw_os_error(),
    }
}

#[test]
#[ignore = "a part of the other tests, run by them in a process of its own"]
fn attempt() {
    let case = std::env::var("VOLHOLD_TEST_ATTEMPT").expect("a case");
    let parent = rustix::process::getppid().expect("a parent");
    let stdin = std::io::stdin();
    let given = if case.starts_with("bytes") { Given::Bytes(stdin.as_fd()) } else { Given::Tree(stdin.as_fd()) };
    let walls = confine(given).expect("a sandbox");
    println!("confined: {walls:?}");
    assert!(walls.seccomp && walls.landlock != Landlock::None, "this kernel has all walls: {walls:?}");
    let (eperm, eacces) = (Some(libc::EPERM), Some(libc::EACCES));
    let here = stdin.as_fd();
    match case.as_str() {
        "bytes: write" => {
            // Standard input is open for writing here, as it never is for a reader.
            assert_eq!(refused(rustix::io::pwrite(here, b"x", 0)), eperm);
            assert_eq!(refused(rustix::io::write(here, b"x")), eperm);
            assert_eq!(refused(rustix::fs::ftruncate(here, 0)), eperm);
            // By way of its path, once as the filter of calls can see it and once as only Landlock can.
            let device = "/proc/self/fd/0";
            assert_eq!(refused(File::options().write(true).open(device)), eperm);
            let plain = ResolveFlags::empty();
            for flags in [OFlags::WRONLY, OFlags::RDWR] {
                assert_eq!(refused(rustix::fs::openat2(rustix::fs::CWD, device, flags, Mode::empty(), plain)), eacces);
            }
            // Nothing else can become standard output.
            assert_eq!(refused(nix::unistd::dup2_stdout(here)), eperm);
        }
        "bytes: ask" => {
            // What it is for: reading it, also past the page cache.
            let mut first = [0; 512];
            rustix::io::pread(here, &mut first, 0).expect("it can be read");
            let direct = OFlags::RDONLY | OFlags::DIRECT;
            rustix::fs::open("/proc/self/fd/0", direct, Mode::empty()).expect("it can be opened again");
            rustix::fs::ioctl_blksszget(here).expect("it says how long its sectors are");
            assert_eq!(refused(rustix::io::ioctl_fionread(here)), eperm);
            std::thread::spawn(|| ()).join().expect("threads can be started");
        }
        "bytes: read" | "tree: read" => {
            for path in
                ["/etc/shadow", "/etc/passwd", "/proc/self/root/etc/shadow", "/dev/null", "/proc/1/environ", "/"]
            {
                assert_eq!(refused(File::open(path)), eacces, "{path}");
                let flags = (OFlags::RDONLY, Mode::empty(), ResolveFlags::empty());
                assert_eq!(refused(rustix::fs::openat2(rustix::fs::CWD, path, flags.0, flags.1, flags.2)), eacces);
            }
        }
        "tree: write" => {
            let create = OFlags::WRONLY | OFlags::CREATE;
            let plain = ResolveFlags::empty();
            assert_eq!(refused(rustix::fs::openat(here, "new", create, Mode::RWXU)), eperm);
            assert_eq!(refused(rustix::fs::openat2(here, "new", create, Mode::RWXU, plain)), eacces);
            assert_eq!(refused(rustix::fs::openat2(here, "file", OFlags::RDWR, Mode::empty(), plain)), eacces);
            assert_eq!(refused(rustix::fs::mkdirat(here, "new", Mode::RWXU)), eperm);
            assert_eq!(refused(rustix::fs::unlinkat(here, "file", AtFlags::empty())), eperm);
            assert_eq!(refused(rustix::fs::renameat(here, "file", here, "other")), eperm);
            assert_eq!(refused(rustix::fs::linkat(here, "file", here, "other", AtFlags::empty())), eperm);
            assert_eq!(refused(rustix::fs::chmodat(here, "file", Mode::RWXU, AtFlags::empty())), eperm);
            // What it is for, though everything belongs to somebody else.
            let closed =
                rustix::fs::openat(here, "closed/file", OFlags::RDONLY, Mode::empty()).expect("it can be read");
            let mut text = String::new();
            File::from(closed).read_to_string(&mut text).expect("it can be read");
            assert_eq!(text, "content");
        }
        "tree: limits" => {
            use nix::sys::resource::{Resource, setrlimit};
            assert_eq!(refused(setrlimit(Resource::RLIMIT_AS, u64::MAX, u64::MAX)), eperm);
            assert_eq!(refused(setrlimit(Resource::RLIMIT_CORE, 1 << 20, 1 << 20)), eperm);
            let mut held: Vec<OwnedFd> = Vec::new();
            let full = loop {
                match rustix::fs::openat(here, "file", OFlags::RDONLY, Mode::empty()) {
                    Ok(fd) => held.push(fd),
                    Err(errno) => break errno,
                }
                assert!(held.len() < 1000, "descriptors without end");
            };
            assert_eq!(full, rustix::io::Errno::MFILE);
        }
        "tree: socket" => drop(std::net::UdpSocket::bind("127.0.0.1:0")),
        "tree: unix socket" => drop(std::os::unix::net::UnixDatagram::unbound()),
        "tree: process" => drop(Command::new("/bin/true").spawn()),
        "tree: program" => drop(Command::new("/bin/true").exec()),
        "tree: kill" => {
            rustix::process::kill_process(parent, rustix::process::Signal::TERM).ok();
        }
        // A crash must stay a crash: its signal tells what happened.
        "tree: abort" => std::process::abort(),
        other => panic!("no case {other}"),
    }
    println!("attempt over");
    std::process::exit(0);
}

/// A tree with a file for everybody and a folder that belongs to another user and is closed to all others.
fn tree(tmp: &Tmp) -> File {
    let root = tmp.join("tree");
    std::fs::create_dir_all(root.join("closed")).expect("folders");
    for path in ["file", "closed/file"] {
        std::fs::write(root.join(path), "content").expect("a file");
    }
    run("chown", &["-R", "65534:65534", &root.join("closed").to_string_lossy()]);
    run("chmod", &["-R", "u=rwX,go=", &root.join("closed").to_string_lossy()]);
    File::open(root).expect("the tree")
}

/// A folder's names and what its files hold.
fn listing(at: &Path) -> String {
    run("find", &[&at.to_string_lossy(), "-printf", "%P %m %s %T@\n"])
}

#[test]
fn a_reader_cannot_write_to_the_device_that_it_was_given() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), MIB));
    let before = device.sha256();
    let writable = File::options().read(true).write(true).open(device.node()).expect("the device");
    passes("bytes: write", writable);
    assert_eq!(before, device.sha256());
}

#[test]
fn a_reader_can_read_its_device_and_ask_it_for_sizes_and_for_nothing_else() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), MIB));
    passes("bytes: ask", File::open(device.node()).expect("the device"));
}

#[test]
fn a_reader_cannot_write_to_the_tree_that_it_was_given_and_can_read_all_of_it() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let root = tree(&tmp);
    let before = listing(tmp.path());
    passes("tree: write", root);
    assert_eq!(before, listing(tmp.path()));
}

#[test]
fn a_reader_cannot_open_a_path_that_it_was_not_given() {
    crate::needs_root!();
    let tmp = Tmp::new();
    passes("tree: read", tree(&tmp));
    passes("bytes: read", File::open(disk::sparse(&tmp.join("disk"), MIB)).expect("the image"));
}

#[test]
fn a_reader_cannot_get_more_of_anything_than_its_limits() {
    crate::needs_root!();
    let tmp = Tmp::new();
    passes("tree: limits", tree(&tmp));
}

#[test]
fn a_reader_that_wants_a_socket_a_process_or_a_program_dies() {
    crate::needs_root!();
    let tmp = Tmp::new();
    for case in ["socket", "unix socket", "process", "program", "kill"] {
        dies(&format!("tree: {case}"), tree(&tmp));
    }
}

#[test]
fn a_reader_that_aborts_is_seen_to_have_aborted() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (status, said) = attempted("tree: abort", tree(&tmp));
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{status} {said}");
}

// --- the real reader ---------------------------------------------------------------------------------------------------

/// `volhold worker` on this standard input.
fn worker(request: &str, stdin: impl Into<Stdio>) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_volhold"));
    command.args(["worker", request]).stdin(stdin).stdout(Stdio::piped()).spawn().expect("a worker")
}

/// All lines of a reader, and what the kernel says of the process, which is dead by then and not yet buried.
fn answers(request: &str, stdin: impl Into<Stdio>) -> (Vec<Value>, String) {
    let mut worker = worker(request, stdin);
    let lines = BufReader::new(worker.stdout.take().expect("a pipe")).lines();
    let lines = lines.map(|line| serde_json::from_str(&line.expect("a line")).expect("JSON")).collect();
    let about = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", worker.id())).expect("a process");
    let told = about("status") + &about("limits");
    worker.wait().expect("its end");
    (lines, told)
}

#[track_caller]
fn told<'a>(about: &'a str, what: &str) -> &'a str {
    let line = about.lines().find_map(|line| line.strip_prefix(what));
    line.unwrap_or_else(|| panic!("no {what} in {about}")).trim()
}

#[test]
fn every_reader_is_confined_before_its_first_answer() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), 4 * MIB));
    let mark = r#"{"mark":{"data_dir":"data"}}"#;
    let second = r#"{"second-reading":{"first_digest":"","size_before":4194304}}"#;
    for (request, is_tree) in [(PROBE, false), (second, false), (VOLUME, true), (mark, true)] {
        let stdin = if is_tree { tree(&tmp) } else { File::open(device.node()).expect("the device") };
        let (lines, about) = answers(request, stdin);
        let walls = &lines.first().expect("a line")["confined"];
        assert_eq!(walls["seccomp"], true, "{request}: {lines:?}");
        assert_ne!(walls["landlock"], "none", "{request}: {lines:?}");
        assert_eq!(lines.last().expect("a line"), "done", "{request}: {lines:?}");
        for set in ["CapInh:", "CapBnd:", "CapAmb:"] {
            assert_eq!(told(&about, set), "0000000000000000", "{request}: {set}");
        }
        // etcd's files are closed to everybody else; this is CAP_DAC_READ_SEARCH alone.
        let kept = if is_tree { "0000000000000004" } else { "0000000000000000" };
        for set in ["CapPrm:", "CapEff:"] {
            assert_eq!(told(&about, set), kept, "{request}: {set}");
        }
        assert_eq!(told(&about, "NoNewPrivs:"), "1");
        assert_eq!(told(&about, "Seccomp:"), "2");
        assert!(told(&about, "Max core file size").starts_with("0 "), "{about}");
        assert!(told(&about, "Max address space").starts_with("1073741824 "), "{about}");
        assert!(told(&about, "Max cpu time").starts_with("60"), "{about}");
        assert!(told(&about, "Max open files").starts_with("128 "), "{about}");
        assert!(told(&about, "Max file size").starts_with("0 "), "{about}");
    }
}

#[test]
fn libblkid_finds_within_the_sandbox_what_it_looks_for_on_whole_disks_only() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), 4 * MIB);
    // Firmware RAID of Intel, in the sector before the last; libblkid asks sysfs first whether the disk is whole.
    disk::write_at(&image, 4 * MIB - 1024, b"Intel Raid ISM Cfg Sig. 1.0.00\0");
    let device = Loop::new(&image);
    let (lines, _) = answers(PROBE, File::open(device.node()).expect("the device"));
    let said = lines.iter().find_map(|line| line["probe"].get("libblkid")).expect("libblkid's answer");
    assert_eq!(said["seen"]["named"][0]["kind"], "isw_raid_member", "{said:#}");
}

#[test]
fn a_reader_reads_past_the_page_cache_within_the_sandbox() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("disk"), 4 * MIB));
    let (lines, _) = answers(PROBE, File::open(device.node()).expect("the device"));
    let progress = lines.iter().find_map(|line| line["probe"].get("progress")).expect("a progress");
    assert_eq!(progress["direct"], true, "{lines:#?}");
}

#[test]
fn the_owner_of_a_lock_without_a_name_is_found_though_a_reader_may_not_look_at_others() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let root = tmp.join("volume");
    fixture::etcd_tree("v3.4.23-basic", &root);
    let wal =
        std::fs::read_dir(root.join("data/member/wal")).expect("the log").flatten().next().expect("a file").path();
    let log = File::options().read(true).write(true).open(wal).expect("the log opens");
    let range = libc::flock { l_type: libc::F_WRLCK as i16, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    nix::fcntl::fcntl(&log, nix::fcntl::FcntlArg::F_OFD_SETLK(&range)).expect("the lock of an etcd 3");
    let running = || {
        let (lines, _) = answers(VOLUME, File::open(&root).expect("the volume"));
        lines.iter().find_map(|line| line.get("running").cloned()).expect("an answer")
    };
    assert_eq!(running()["seen"]["pid"], std::process::id());
    drop(log);
    assert_eq!(running(), serde_json::json!({ "seen": null }));
}

#[test]
fn a_running_etcd_is_seen_from_within_the_sandbox() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let etcd = Member::new("seen", &tmp.join("volume/data")).start();
    let (lines, _) = answers(VOLUME, File::open(tmp.join("volume")).expect("the volume"));
    let answer = lines.iter().find_map(|line| line.get("running")).expect("an answer");
    assert_eq!(answer["seen"]["pid"], etcd.pid(), "{lines:#?}");
}
