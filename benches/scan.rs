//! How fast a blank device is proven blank, beside `dd iflag=direct bs=4M` on the same device and beside `dd` and `cmp` on
//! cached data; how soon a volume with data is refused, beside `blkid -p` and `wipefs -n`; and what it takes of memory. Run as
//! root: `cargo bench --bench scan`.
//!
//! Needs loop devices with direct I/O and `VOLHOLD_BENCH_GIB` (default 4) GiB of free disk below `VOLHOLD_BENCH_DIR` (default
//! `/var/tmp`). Both programs take turns on the same device, so that a noisy machine is noisy for both.
#![allow(clippy::disallowed_methods, reason = "a benchmark makes what it measures")]

mod common;

use common::{Loop, Ramdisk, VOLHOLD, asked_for, drop_caches, folder, median, run};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use volhold::model::Blank;
use volhold::probe::{ProbeRequest, blank, examine};

const TURNS: usize = 5;

fn main() {
    if !asked_for() {
        return;
    }
    let gib: u64 = std::env::var("VOLHOLD_BENCH_GIB").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let dir = folder();

    memory(&dir.path().join("memory"));

    cached(dir.path());

    let dense = dir.path().join("dense");
    fill(&dense, gib);
    compare("dense, zero", &Loop::new(&dense), gib, Blank::Proven);
    std::fs::remove_file(&dense).expect("removed");

    // Memory as the disk: no device that gives only so much.
    let memory = Ramdisk::new(dir.path());
    let within = memory.0.join("dense");
    fill(&within, 2);
    compare("dense, zero, in memory", &Loop::new(&within), 2, Blank::Proven);
    drop(memory);

    let noisy = dir.path().join("noise");
    fill_noise(&noisy, gib.min(2));
    compare("dense, noise", &Loop::new(&noisy), gib.min(2), Blank::Unknown);
    std::fs::remove_file(&noisy).expect("removed");

    let sparse = dir.path().join("sparse");
    File::create(&sparse).and_then(|file| file.set_len(gib << 30)).expect("a sparse file");
    compare("sparse, zero", &Loop::new(&sparse), gib, Blank::Proven);

    let large = dir.path().join("large");
    File::create(&large).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=1", &large.to_string_lossy()]);
    let disk = Loop::new(&large);
    refused("ext4 on 1 TiB, through a loop device", Path::new(&disk.0));
    refused("ext4 on 1 TiB, the image itself", &large);
    beside_others("ext4 on 1 TiB", &disk);
    let zeroes = vec![0; 1 << 20];
    let file = File::options().write(true).open(&large).expect("opens");
    std::os::unix::fs::FileExt::write_all_at(&file, &zeroes, 0).expect("zeroed");
    refused("the same, first MiB zeroed", Path::new(&disk.0));

    let usual = dir.path().join("usual");
    File::create(&usual).and_then(|file| file.set_len(20 << 30)).expect("a sparse file");
    run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=1", &usual.to_string_lossy()]);
    let disk = Loop::new(&usual);
    refused("ext4 on 20 GiB, through a loop device", Path::new(&disk.0));
    beside_others("ext4 on 20 GiB", &disk);
}

/// The most that one reader of a whole device takes: the worker is a process of its own, so its peak can be asked for.
fn memory(image: &Path) {
    fill(image, 1);
    let disk = Loop::new(image);
    let status = Command::new(VOLHOLD).args(["inspect", &disk.0]).stdout(Stdio::null()).status().expect("it runs");
    assert!(status.success(), "zeroes are proven blank");
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN).expect("usage");
    println!("peak memory of the largest process of `volhold inspect` on 1 GiB: {} KiB", usage.max_rss());
    drop(disk);
    std::fs::remove_file(image).expect("removed");
}

/// Data in the page cache and one core: what the scan costs beside what `dd` and `cmp` do with the same bytes.
fn cached(dir: &Path) {
    let all = sched_getaffinity(Pid::from_raw(0)).expect("affinity");
    let mut one = CpuSet::new();
    one.set(0).expect("core 0");
    sched_setaffinity(Pid::from_raw(0), &one).expect("one core");
    let (zero, noise) = (dir.join("cached-zero"), dir.join("cached-noise"));
    fill(&zero, 1);
    fill_noise(&noise, 1);
    let bytes = (1_u64 << 30) as f64;
    let rate = |started: Instant| bytes / started.elapsed().as_secs_f64() / 1e9;
    let (mut by_dd, mut by_cmp, mut by_scan, mut by_noise) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (zero_path, noise_path) = (zero.to_string_lossy().into_owned(), noise.to_string_lossy().into_owned());
    for path in [&zero_path, &noise_path] {
        run("dd", &[&format!("if={path}"), "of=/dev/null", "bs=4M", "status=none"]);
    }
    for _ in 0..TURNS {
        let started = Instant::now();
        run("dd", &[&format!("if={zero_path}"), "of=/dev/null", "bs=4M", "status=none"]);
        by_dd.push(rate(started));
        let started = Instant::now();
        run("cmp", &["-n", &(1_u64 << 30).to_string(), &zero_path, "/dev/zero"]);
        by_cmp.push(rate(started));
        for (path, expected, rates) in [(&zero, Blank::Proven, &mut by_scan), (&noise, Blank::Unknown, &mut by_noise)] {
            let file = File::open(path).expect("the image opens");
            let started = Instant::now();
            let reading = examine(&file, &ProbeRequest { full_scan: true, direct: false }, &mut |_| {});
            rates.push(rate(started));
            assert_eq!(blank(&reading), expected);
        }
    }
    let (dd, cmp, scan, uniform) =
        (median(&mut by_dd), median(&mut by_cmp), median(&mut by_scan), median(&mut by_noise));
    println!(
        "page cache, one core, 1 GiB: dd {dd:.2} GB/s, cmp with /dev/zero {cmp:.2}, scan {scan:.2} ({:.2} of dd, {:.2} of \
         cmp), scan of uniform content {uniform:.2} ({:.2} of the zero rate)",
        scan / dd,
        scan / cmp,
        uniform / scan
    );
    sched_setaffinity(Pid::from_raw(0), &all).expect("all cores");
    for path in [zero, noise] {
        std::fs::remove_file(path).expect("removed");
    }
}

/// Whole processes in turns: what a person would ask instead.
fn beside_others(what: &str, disk: &Loop) {
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        let commands: [(&str, &[&str]); 3] =
            [(VOLHOLD, &["inspect", &disk.0]), ("blkid", &["-p", &disk.0]), ("wipefs", &["-n", &disk.0])];
        for ((program, args), times) in commands.into_iter().zip(&mut times) {
            drop_caches();
            let started = Instant::now();
            let status = Command::new(program).args(args).stdout(Stdio::null()).status().expect("it runs");
            times.push(started.elapsed().as_secs_f64() * 1e3);
            assert!(status.success(), "{program} {args:?}: {status}");
        }
    }
    let [mut volhold, mut blkid, mut wipefs] = times;
    println!(
        "{what}, whole processes, cold: volhold inspect {:.1} ms, blkid -p {:.1} ms, wipefs -n {:.1} ms",
        median(&mut volhold),
        median(&mut blkid),
        median(&mut wipefs)
    );
}

/// dd, two of them side by side (what the device gives at all), and the scan in turns; rates in GB/s.
fn compare(what: &str, disk: &Loop, gib: u64, expected: Blank) {
    let bytes = (gib << 30) as f64;
    let rate = |started: Instant| bytes / started.elapsed().as_secs_f64() / 1e9;
    let (mut by_dd, mut by_two, mut by_scan) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        drop_caches();
        let started = Instant::now();
        direct_dd(disk, 0, gib << 8).wait().expect("dd ends");
        by_dd.push(rate(started));
        drop_caches();
        let started = Instant::now();
        for mut half in [direct_dd(disk, 0, gib << 7), direct_dd(disk, gib << 7, gib << 7)] {
            half.wait().expect("dd ends");
        }
        by_two.push(rate(started));
        drop_caches();
        by_scan.push(bytes / scan(Path::new(&disk.0), expected).as_secs_f64() / 1e9);
    }
    let (dd, two, scan) = (median(&mut by_dd), median(&mut by_two), median(&mut by_scan));
    println!(
        "{what}, {gib} GiB: dd {dd:.2} GB/s {by_dd:.2?}, two dd at once {two:.2}, scan {scan:.2} GB/s {by_scan:.2?}; scan is \
         {:.2} of dd, {:.2} of two",
        scan / dd,
        scan / two
    );
}

/// Reads so many pieces of 4 MiB past the page cache.
fn direct_dd(disk: &Loop, skip: u64, count: u64) -> Child {
    Command::new("dd")
        .args([&format!("if={}", disk.0), "of=/dev/null", "bs=4M", "iflag=direct", "status=none"])
        .args([format!("skip={skip}"), format!("count={count}")])
        .spawn()
        .expect("dd runs")
}

fn refused(what: &str, path: &Path) {
    let mut times: Vec<f64> = (0..TURNS)
        .map(|_| {
            drop_caches();
            scan(path, Blank::No).as_secs_f64() * 1e3
        })
        .collect();
    println!("{what}: refused after {:.1} ms {times:.1?}", median(&mut times));
}

fn scan(path: &Path, expected: Blank) -> Duration {
    let file = File::open(path).expect("the device opens");
    let started = Instant::now();
    let reading = examine(&file, &ProbeRequest { full_scan: true, direct: true }, &mut |_| {});
    let elapsed = started.elapsed();
    assert_eq!(blank(&reading), expected, "{reading:?}");
    elapsed
}

/// Zeroes that are really on the disk.
fn fill(path: &Path, gib: u64) {
    write_all(path, gib, |_| vec![0; 1 << 20]);
}

fn fill_noise(path: &Path, gib: u64) {
    write_all(path, gib, |mib| {
        let mut state = mib;
        (0..(1 << 17))
            .flat_map(|_| {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut word = state;
                word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                (word ^ (word >> 31)).to_le_bytes()
            })
            .collect()
    });
}

fn write_all(path: &Path, gib: u64, make: impl Fn(u64) -> Vec<u8>) {
    let mut file = File::create(path).expect("created");
    for mib in 0..gib << 10 {
        file.write_all(&make(mib)).expect("written");
    }
    file.sync_all().expect("synced");
}
