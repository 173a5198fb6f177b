//! A backend: the quick reading, the whole one, and what is predicted from it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volhold::decide::predict::predict;
use volhold::etcd::bolt::tree::Budget;
use volhold::etcd::{backend_facts, schema};
use volhold::model::{DataDirFacts, EtcdVersion, Thing};

/// Gives both meta pages the checksum that their content asks for: random bytes never would.
fn seal(bytes: &mut [u8]) {
    for at in [0_usize, 1024, 4096] {
        let Some(page) = bytes.get_mut(at..at + 80) else { continue };
        let sum = page[16..72]
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        page[72..80].copy_from_slice(&sum.to_le_bytes());
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    seal(&mut bytes);
    let file = bytes.as_slice();
    let quick = schema::read_backend(&file, Budget::mib(16));
    let backend = backend_facts(&file, &mut |_, _| {});
    if let (Ok(quick), Some(deep)) = (&quick, &backend.deep) {
        let sound = deep.fault_count == 0 && deep.content_count == 0;
        assert!(!sound || quick.problems.is_empty(), "the quick reading finds what the whole one does not");
    }
    let facts = DataDirFacts { member: Thing::There, backend, ..DataDirFacts::default() };
    for (minor, patch) in [(1, 12), (4, 23), (5, 30), (6, 12), (7, 1)] {
        predict(&facts, EtcdVersion::new(3, minor, patch));
    }
});
