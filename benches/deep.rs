//! How long a whole reading of a backend takes, as a process: `volhold inspect DB`, beside `cat` and beside
//! `etcdctl snapshot status` on the same file, in the page cache, in turns. And that it grows as the pages in use do.
//! `cargo bench --bench deep`.
//!
//! The backends are made here, page by page as bbolt lays them out: `VOLHOLD_BENCH_GIB` (default 2) GiB at most, below
//! `VOLHOLD_BENCH_DIR` (default `/var/tmp`), with values of 880 bytes. `bbolt check` is measured beside it where
//! `VOLHOLD_BENCH_BBOLT` names a program that takes `check FILE`.
#![allow(clippy::disallowed_methods, reason = "a benchmark makes what it measures")]

mod common;

use common::{VOLHOLD, asked_for, folder, median};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const TURNS: usize = 5;
const PAGE: usize = 4096;
const VALUE: usize = 880;

fn main() {
    if !asked_for() {
        return;
    }
    let gib: f64 = std::env::var("VOLHOLD_BENCH_GIB").ok().and_then(|text| text.parse().ok()).unwrap_or(2.0);
    nix::sys::prctl::set_child_subreaper(true).expect("children of children come here");
    let dir = folder();
    println!("load {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    let mut size = 0.5;
    while size <= gib {
        let db = dir.path().join("db");
        let keys = make(&db, size);
        println!("{size} GiB, {keys} keys of {VALUE} bytes");
        let path = db.to_string_lossy().into_owned();
        let mut peers: Vec<(&str, Vec<String>)> = vec![
            ("cat", vec!["cat".into(), path.clone()]),
            ("volhold inspect", vec![VOLHOLD.into(), "inspect".into(), path.clone(), "-o".into(), "json".into()]),
        ];
        if Command::new("etcdctl").arg("version").output().is_ok() {
            let words = ["env", "ETCDCTL_API=3", "etcdctl", "snapshot", "status", &path, "-w", "json"];
            peers.push(("etcdctl snapshot status", words.map(str::to_owned).to_vec()));
        }
        if let Ok(bbolt) = std::env::var("VOLHOLD_BENCH_BBOLT") {
            peers.push(("bbolt check", vec![bbolt, "check".into(), path.clone()]));
        }
        let mut walls = vec![Vec::new(); peers.len()];
        let mut seconds = vec![Vec::new(); peers.len()];
        for _ in 0..TURNS {
            for (n, (name, words)) in peers.iter().enumerate() {
                let (wall, cpu) = measure(name, words);
                walls[n].push(wall);
                seconds[n].push(cpu);
            }
        }
        for (n, (name, _)) in peers.iter().enumerate() {
            println!("  {name:<24} wall {:6.2} s   processor {:6.2} s", median(&mut walls[n]), median(&mut seconds[n]));
        }
        size *= 2.0;
    }
}

/// Wall and processor seconds of a process and of all that it started: what it left behind is this process's child then
/// (`main`), and waited for.
fn measure(name: &str, words: &[String]) -> (f64, f64) {
    let before = spent();
    let begin = Instant::now();
    let mut command = Command::new(&words[0]);
    let status = command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it runs");
    let wall = begin.elapsed().as_secs_f64();
    assert!(status.success(), "{name}: {status}");
    while nix::sys::wait::wait().is_ok() {}
    (wall, spent() - before)
}

fn spent() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN).expect("usage");
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// Writes a backend of about so many GiB and returns how many keys it has.
fn make(path: &Path, gib: f64) -> u64 {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).expect("a file"));
    let leaves = (gib * (1_u64 << 30) as f64) as u64 / PAGE as u64;
    let per_leaf = 4_u64;
    // Metas and the root bucket come last, when the number of pages is known: their place is left free.
    let first = 3_u64;
    out.write_all(&vec![0; PAGE * 3]).expect("written");
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let mut level: Vec<(Vec<u8>, u64)> = Vec::new();
    for leaf in 0..leaves {
        let mut items = Vec::new();
        for n in 0..per_leaf {
            let main = (leaf * per_leaf + n) as i64 + 2;
            let key = revision(main);
            items.push((key, record(main, &mut noise)));
        }
        level.push((items[0].0.clone(), first + leaf));
        let flat: Vec<(u32, &[u8], &[u8])> = items.iter().map(|(k, v)| (0, k.as_slice(), v.as_slice())).collect();
        out.write_all(&leaf_page(first + leaf, &flat)).expect("written");
    }
    let mut next = first + leaves;
    while level.len() > 1 {
        let mut above = Vec::new();
        for children in level.chunks(100) {
            above.push((children[0].0.clone(), next));
            out.write_all(&branch_page(next, children)).expect("written");
            next += 1;
        }
        level = above;
    }
    let root = level[0].1;
    let bucket = [root.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    let file = out.into_inner().expect("flushed");
    let put = |page: u64, bytes: &[u8]| {
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, page * PAGE as u64).expect("written");
    };
    put(2, &leaf_page(2, &[(1, b"key", &bucket)]));
    for txid in [2_u64, 3] {
        put(txid % 2, &meta_page(txid, next));
    }
    leaves * per_leaf
}

fn revision(main: i64) -> Vec<u8> {
    [&main.to_be_bytes()[..], b"_", &0_i64.to_be_bytes()].concat()
}

fn varint(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn record(main: i64, noise: &mut u64) -> Vec<u8> {
    let key = format!("/registry/pods/namespace-{:03}/pod-{main:010}", main % 100);
    let mut value = vec![0x0a];
    varint(key.len() as u64, &mut value);
    value.extend(key.bytes());
    for tag in [0x10, 0x18] {
        value.push(tag);
        varint(main as u64, &mut value);
    }
    value.extend([0x20, 1, 0x2a]);
    varint(VALUE as u64, &mut value);
    while value.len() < VALUE + 64 + 17 {
        *noise ^= *noise << 13;
        *noise ^= *noise >> 7;
        *noise ^= *noise << 17;
        value.extend(noise.to_le_bytes());
    }
    // Exactly as long as the length before it says.
    let head = 1 + 1 + key.len() + 2 * (1 + varint_len(main as u64)) + 2 + 1 + varint_len(VALUE as u64);
    value.truncate(head + VALUE);
    value
}

fn varint_len(value: u64) -> usize {
    let mut bytes = Vec::new();
    varint(value, &mut bytes);
    bytes.len()
}

fn header(id: u64, kind: u16, count: usize) -> Vec<u8> {
    let mut page = id.to_le_bytes().to_vec();
    page.extend(kind.to_le_bytes());
    page.extend((count as u16).to_le_bytes());
    page.extend(0_u32.to_le_bytes());
    page
}

fn leaf_page(id: u64, items: &[(u32, &[u8], &[u8])]) -> Vec<u8> {
    let (mut page, mut data) = (header(id, 2, items.len()), Vec::new());
    for (n, (kind, key, value)) in items.iter().enumerate() {
        let pos = (items.len() - n) * 16 + data.len();
        for number in [*kind, pos as u32, key.len() as u32, value.len() as u32] {
            page.extend(number.to_le_bytes());
        }
        data.extend([*key, *value].concat());
    }
    page.extend(data);
    assert!(page.len() <= PAGE, "{} bytes", page.len());
    page.resize(PAGE, 0);
    page
}

fn branch_page(id: u64, children: &[(Vec<u8>, u64)]) -> Vec<u8> {
    let (mut page, mut data) = (header(id, 1, children.len()), Vec::<u8>::new());
    for (n, (key, child)) in children.iter().enumerate() {
        let pos = (children.len() - n) * 16 + data.len();
        page.extend((pos as u32).to_le_bytes());
        page.extend((key.len() as u32).to_le_bytes());
        page.extend(child.to_le_bytes());
        data.extend(&key[..]);
    }
    page.extend(data);
    page.resize(PAGE, 0);
    page
}

fn meta_page(txid: u64, high_water: u64) -> Vec<u8> {
    let mut page = header(txid % 2, 4, 0);
    page.extend(0xED0C_DAED_u32.to_le_bytes());
    for number in [2, PAGE as u32, 0] {
        page.extend(number.to_le_bytes());
    }
    for number in [2, 0, u64::MAX, high_water, txid] {
        page.extend(number.to_le_bytes());
    }
    let sum = page[16..72]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    page.extend(sum.to_le_bytes());
    page.resize(PAGE, 0);
    page
}
