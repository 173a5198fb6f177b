//! A raft snapshot with the v2 store in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volhold::etcd::snap::{parse_db_name, parse_name, read_snap};

fuzz_target!(|data: &[u8]| {
    drop(read_snap(&data));
    // The same bytes with the checksum that they ask for: field 1 the checksum, field 2 the data.
    let mut sealed = vec![0x08];
    varint(u64::from(crc(data)), &mut sealed);
    sealed.push(0x12);
    varint(data.len() as u64, &mut sealed);
    sealed.extend_from_slice(data);
    drop(read_snap(&sealed.as_slice()));
    if let Ok(text) = std::str::from_utf8(data) {
        parse_name(text);
        parse_db_name(text);
    }
});

fn varint(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}
