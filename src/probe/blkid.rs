//! What libblkid says, with its codes as they came: one more reason to refuse and a name for what is there, never the
//! reason to format.
//!
//! It is asked twice. `blkid_do_safeprobe` finds ambivalence; a `blkid_do_probe` loop finds what a safeprobe keeps to itself
//! (from 2.42 a LUKS2 volume whose primary header is lost). The flags matter: without `BADCSUM` a superblock with a stale
//! checksum is "nothing", without `FORCE_GPT` so is a GPT that lost its protective MBR.

mod sys;

use crate::model::{BlkidAnswer, BlkidName, Observed, Why};
use std::fs::File;
use std::os::fd::AsFd;

const SUPERBLOCKS: i32 = sys::SUBLKS_LABEL
    | sys::SUBLKS_UUID
    | sys::SUBLKS_TYPE
    | sys::SUBLKS_USAGE
    | sys::SUBLKS_VERSION
    | sys::SUBLKS_MAGIC
    | sys::SUBLKS_BADCSUM;
const PARTITIONS: i32 = sys::PARTS_FORCE_GPT | sys::PARTS_MAGIC;

/// More results than any device has: there are some eighty probers. Ends a loop that would not end by itself.
const MOST_RESULTS: usize = 128;

/// Code reported where the loop was ended by [`MOST_RESULTS`]; like every code but 1 it refuses.
const LOOP_DID_NOT_END: i32 = i32::MIN;

/// Asks libblkid about the device or image behind `file`, whose reads must not need alignment (no `O_DIRECT`).
pub(crate) fn ask(file: &File) -> Observed<BlkidAnswer> {
    let failed = |detail: String| Observed::Unknown(Why::Unreadable { detail });
    let probe = match sys::Probe::new(file.as_fd()) {
        Ok(probe) => probe,
        Err(code) => {
            return failed(format!("libblkid could not take the device: blkid_probe_set_device returned {code}"));
        }
    };
    let code = probe.enable(SUPERBLOCKS, PARTITIONS);
    if code != 0 {
        return failed(format!("libblkid would not look for superblocks and partitions: code {code}"));
    }

    fetch_ahead(file);
    let mut named = Vec::new();
    let safeprobe = probe.safeprobe();
    if safeprobe == 0 {
        collect(&probe, &mut named);
    }

    probe.reset();
    let mut probe_loop = LOOP_DID_NOT_END;
    for _ in 0..MOST_RESULTS {
        let code = probe.next();
        if code != 0 {
            probe_loop = code;
            break;
        }
        collect(&probe, &mut named);
    }
    Observed::Seen(BlkidAnswer { safeprobe, probe_loop, named, version: sys::version() })
}

/// Begins to read where libblkid will look. It goes from place to place and waits for the disk at each, some fifty times;
/// on a network disk that is most of what it costs. Nothing depends on it: what fails here fails again when it is read.
fn fetch_ahead(file: &File) {
    const END: u64 = 512 << 10;
    const PAGE: u64 = 4096;
    let Ok(size) = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0)) else { return };
    let tail = size.saturating_sub(END);
    for (offset, len) in [(0, END), (1 << 20, PAGE), (2 << 20, PAGE), (4 << 20, PAGE), (tail, END)] {
        let len = std::num::NonZeroU64::new(len);
        let _told = rustix::fs::fadvise(file, offset, len, rustix::fs::Advice::WillNeed);
    }
}

/// Adds what the last result names, unless it is named already.
fn collect(probe: &sys::Probe<'_>, named: &mut Vec<BlkidName>) {
    for name in names(&probe.values()) {
        if !named.contains(&name) {
            named.push(name);
        }
    }
}

/// A result is a superblock (`TYPE`), a partition table (`PTTYPE`), or for a safeprobe both. One that is neither still is
/// something found.
fn names(values: &[(String, Vec<u8>)]) -> Vec<BlkidName> {
    let value = |key: &str| values.iter().find(|(name, _)| name == key).map(|(_, data)| escaped(data));
    let offset = |key: &str| value(key).and_then(|text| text.trim().parse::<u64>().ok());
    let mut found = Vec::new();
    let bad_checksum = value("SBBADCSUM").is_some();
    if let Some(kind) = value("TYPE") {
        found.push(BlkidName {
            kind,
            usage: value("USAGE"),
            uuid: value("UUID"),
            label: value("LABEL"),
            offset: offset("SBMAGIC_OFFSET"),
            bad_checksum,
        });
    }
    if let Some(kind) = value("PTTYPE") {
        found.push(BlkidName {
            kind,
            usage: Some(String::from("partition table")),
            uuid: value("PTUUID"),
            label: None,
            offset: offset("PTMAGIC_OFFSET"),
            bad_checksum: false,
        });
    }
    if found.is_empty() {
        let keys: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
        found.push(BlkidName {
            kind: format!("without a type ({})", keys.join(", ")),
            usage: value("USAGE"),
            uuid: value("UUID"),
            label: value("LABEL"),
            offset: offset("SBMAGIC_OFFSET").or_else(|| offset("PTMAGIC_OFFSET")),
            bad_checksum,
        });
    }
    found
}

/// libblkid's values end with a NUL that the length counts; labels may be any bytes.
fn escaped(data: &[u8]) -> String {
    let data = data.strip_suffix(&[0]).unwrap_or(data);
    String::from_utf8_lossy(data).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
