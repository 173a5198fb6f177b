//! Random bytes of good data dirs are broken, and a real etcd is started on what is called clean: none may fail to start.
//!
//! About a minute in the suite; `VOLHOLD_FLIPS=SECONDS` goes on for longer, `VOLHOLD_FLIPS_SEED=N` repeats a run.

use super::*;
use crate::common::etcd::Member;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use volhold::decide::predict::predict;
use volhold::etcd::data_dir_facts;
use volhold::model::{EtcdVersion, Starts};

/// Debian's.
const VERSION: EtcdVersion = EtcdVersion::new(3, 4, 23);

/// xorshift64*: the same numbers for the same seed, everywhere.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

/// A dir of a member, small enough to be copied many times: its files without what was allocated ahead.
fn originals() -> Vec<(&'static str, Unpacked)> {
    ["v3.4.23-basic", "v3.4.23-sigkill", "v3.4.23-restored", "v3.4.23-empty"]
        .into_iter()
        .map(|name| (name, Unpacked::new(name)))
        .collect()
}

#[test]
fn no_broken_dir_that_is_called_clean_keeps_a_real_etcd_from_starting() {
    let seconds = std::env::var("VOLHOLD_FLIPS").ok().and_then(|text| text.parse().ok()).unwrap_or(45_u64);
    let seed = std::env::var("VOLHOLD_FLIPS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x7e57_u64);
    let mut numbers = Numbers(seed | 1);
    let version = output_of("etcd", &["--version"]);
    if !version.contains("3.4.") {
        println!("SKIP: needs an etcd 3.4, this is {version}");
        return;
    }
    let originals = originals();
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut clean, mut broken, mut lossy) = (0_u64, 0_u64, 0_u64);
    while Instant::now() < until {
        let which = usize::try_from(numbers.below(originals.len() as u64)).expect("small");
        let (name, original) = &originals[which];
        let copy = Tmp::new();
        let data = copy.join("data");
        copy_dir(&original.root().join("data"), &data);
        let told = break_something(&data, &mut numbers);
        let dir = File::open(&data).expect("the copy");
        let facts = data_dir_facts(dir.as_fd(), &mut |_, _| {});
        let predicted = predict(&facts, VERSION);
        match (predicted.starts, predicted.loses) {
            (Starts::Yes, false) => clean += 1,
            (Starts::Yes, true) => {
                lossy += 1;
                continue;
            }
            (Starts::No | Starts::Unhealthy | Starts::Unknown, _) => {
                broken += 1;
                continue;
            }
        }
        if let Err(said) = starts(&data) {
            panic!("seed {seed}: {name} with {told} is called clean, and etcd does not start:\n{said}");
        }
    }
    println!("{clean} clean and started, {broken} called broken, {lossy} called lossy");
    assert!(clean > 0 && broken > 0, "{clean} clean, {broken} broken: nothing was tried");
}

/// Found by a long run: a length that reaches over the whole log makes the first record a torn one, and etcd cuts off all
/// that follows. It runs then, and has no leader for ever.
#[test]
fn a_log_that_would_be_cut_off_to_its_head_is_not_called_clean() {
    use std::os::unix::fs::FileExt;
    let original = Unpacked::new("v3.4.23-empty");
    let data = original.root().join("data");
    let predicted = || {
        let dir = File::open(&data).expect("the dir");
        predict(&data_dir_facts(dir.as_fd(), &mut |_, _| {}), VERSION).starts
    };
    assert_eq!(predicted(), Starts::Yes);
    let log = data.join("member/wal/0000000000000000-0000000000000000.wal");
    let file = File::options().write(true).open(log).expect("the log");
    file.write_all_at(&[0x40], 57).expect("written");
    assert_eq!(predicted(), Starts::Unhealthy);
    file.write_all_at(&[0], 57).expect("written");
    // 10 MiB and more, within the file: 3.3 to 3.5.5 refuse before they look whether it is a torn record.
    file.write_all_at(&[0xa9], 506).expect("written");
    let with = |version| {
        let dir = File::open(&data).expect("the dir");
        let facts = data_dir_facts(dir.as_fd(), &mut |_, _| {});
        predict(&facts, version).starts
    };
    assert_eq!((with(VERSION), with(EtcdVersion::new(3, 5, 16))), (Starts::No, Starts::Yes));
}

fn output_of(program: &str, args: &[&str]) -> String {
    String::from_utf8_lossy(&crate::common::output(program, args).stdout).into_owned()
}

fn copy_dir(from: &Path, to: &Path) {
    let (from, to) = (from.display().to_string(), to.display().to_string());
    crate::common::run("cp", &["-a", "--sparse=always", &from, &to]);
}

/// Breaks one to four bytes of one file, within what is not zero, and says which.
fn break_something(data: &Path, numbers: &mut Numbers) -> String {
    let mut files = Vec::new();
    for below in ["member/snap", "member/wal"] {
        let entries = std::fs::read_dir(data.join(below)).expect("a member's folder");
        files.extend(entries.map(|entry| entry.expect("a file").path()).filter(|path| path.is_file()));
    }
    files.sort();
    // The backend has the most structure: every second time.
    let db = data.join("member/snap/db");
    let path = match numbers.below(2) {
        0 if db.is_file() => db,
        _ => files[usize::try_from(numbers.below(files.len() as u64)).expect("small")].clone(),
    };
    use std::os::unix::fs::FileExt;
    let file = File::options().read(true).write(true).open(&path).expect("the file");
    let size = file.metadata().expect("its size").len();
    let mut bytes = vec![0; usize::try_from(size.min(1 << 20)).expect("small")];
    file.read_exact_at(&mut bytes, 0).expect("its bytes");
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 64).min(bytes.len().max(1));
    let mut told = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    for _ in 0..=numbers.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = usize::try_from(numbers.below(used as u64)).expect("small");
        let to = match numbers.below(3) {
            0 => 0,
            1 => bytes[at] ^ 1 << numbers.below(8),
            _ => u8::try_from(numbers.below(256)).expect("a byte"),
        };
        told.push_str(&format!(" [{at}]: {:#04x} to {to:#04x}", bytes[at]));
        bytes[at] = to;
        file.write_all_at(&[to], at as u64).expect("written");
    }
    told
}

/// Starts etcd on it as it was started before, as far as its identity goes, and waits until it serves.
fn starts(data: &Path) -> Result<(), String> {
    let member = Member::new("flipped", data);
    let log = data.join("../log");
    let mut child = Command::new("etcd")
        .arg("--data-dir")
        .arg(data)
        .args(["--name", "flipped", "--listen-client-urls", &member.client_url()])
        .args(["--advertise-client-urls", &member.client_url(), "--listen-peer-urls", &member.peer_url()])
        .args(["--initial-advertise-peer-urls", &member.peer_url()])
        .args(["--initial-cluster", &member.named_peer()])
        .args(["--heartbeat-interval", "20", "--election-timeout", "200", "--logger", "zap", "--log-outputs", "stderr"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).expect("a log"))
        .spawn()
        .expect("etcd");
    let until = Instant::now() + Duration::from_secs(60);
    let ended = loop {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        if said.contains("serving client traffic insecurely") || said.contains("ready to serve client requests") {
            break Ok(());
        }
        if let Ok(Some(status)) = child.try_wait() {
            break Err(format!("{status}\n{}", said.lines().rev().take(12).collect::<Vec<_>>().join("\n")));
        }
        if Instant::now() > until {
            break Err(format!("not within a minute\n{}", said.lines().rev().take(12).collect::<Vec<_>>().join("\n")));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    child.kill().ok();
    child.wait().ok();
    ended
}
