//! What is looked for on a device: bytes at the front of a device, in its midst, and at its end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volhold::probe::{filesystem, signatures};

fuzz_target!(|data: &[u8]| {
    drop(filesystem(data));
    let size = 1 << 30;
    let len = (data.len() as u64).next_multiple_of(4096);
    for offset in [0, 1 << 27, size - len.min(size)] {
        for finding in signatures(data, offset, size) {
            assert!(finding.offset >= offset, "{finding:?}");
        }
    }
});
