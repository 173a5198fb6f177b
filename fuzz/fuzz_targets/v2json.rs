//! The JSON of a v2 store.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volhold::etcd::read_v2_store;

fuzz_target!(|data: &[u8]| {
    drop(read_v2_store(&data));
});
