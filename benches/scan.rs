//! How fast a blank device is proven blank, beside `dd iflag=direct bs=4M` on the same device, and how soon a volume with
//! data is refused. Run as root: `cargo bench --bench scan`.
//!
//! Needs loop devices with direct I/O and `VOLHOLD_BENCH_GIB` (default 4) GiB of free disk below `VOLHOLD_BENCH_DIR` (default
//! `/var/tmp`). Both programs take turns on the same device, so that a noisy machine is noisy for both.
#![allow(clippy::disallowed_methods, reason = "a benchmark makes what it measures")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use volhold::model::Blank;
use volhold::probe::{ProbeRequest, blank, examine};

const TURNS: usize = 5;

fn main() {
    // `cargo test --all-targets` runs this too, without the flag.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let gib: u64 = std::env::var("VOLHOLD_BENCH_GIB").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let base = std::env::var_os("VOLHOLD_BENCH_DIR").unwrap_or_else(|| "/var/tmp".into());
    let dir = tempfile::Builder::new().prefix("volhold-bench.").tempdir_in(base).expect("a folder");

    let dense = dir.path().join("dense");
    fill(&dense, gib);
    compare("dense, zero", &Loop::new(&dense), gib, Blank::Proven);
    std::fs::remove_file(&dense).expect("removed");

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
    let zeroes = vec![0; 1 << 20];
    let file = File::options().write(true).open(&large).expect("opens");
    std::os::unix::fs::FileExt::write_all_at(&file, &zeroes, 0).expect("zeroed");
    refused("the same, first MiB zeroed", Path::new(&disk.0));
}

/// dd and the scan in turns; rates in GB/s.
fn compare(what: &str, disk: &Loop, gib: u64, expected: Blank) {
    let bytes = (gib << 30) as f64;
    let (mut by_dd, mut by_scan) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        drop_caches();
        let started = Instant::now();
        run("dd", &[&format!("if={}", disk.0), "of=/dev/null", "bs=4M", "iflag=direct", "status=none"]);
        by_dd.push(bytes / started.elapsed().as_secs_f64() / 1e9);
        drop_caches();
        by_scan.push(bytes / scan(Path::new(&disk.0), expected).as_secs_f64() / 1e9);
    }
    let (dd, scan) = (median(&mut by_dd), median(&mut by_scan));
    println!(
        "{what}, {gib} GiB: dd {dd:.2} GB/s {by_dd:.2?}, scan {scan:.2} GB/s {by_scan:.2?}, ratio {:.2}",
        scan / dd
    );
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

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Self {
        let node = run("losetup", &["--find", "--show", "--direct-io=on", &file.to_string_lossy()]);
        Loop(node.trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", &self.0]);
    }
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().expect("the tool runs");
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn drop_caches() {
    std::fs::write("/proc/sys/vm/drop_caches", "1").expect("root may drop caches");
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
