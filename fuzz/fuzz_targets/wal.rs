//! A file of the log, read alone and as two files of which the second follows the first.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volhold::etcd::read_file;
use volhold::etcd::wal::{Segment, WalQuestion, looks_like_segment, read_wal};

fuzz_target!(|data: &[u8]| {
    looks_like_segment(data);
    drop(read_file(&data, false, &mut |_, _| {}));
    let (first, second) = data.split_at(data.len() / 2);
    let segment = |bytes: &[u8], seq| Segment {
        path: "wal".to_owned(),
        seq,
        index: seq,
        source: Box::new(Owned(bytes.to_vec())),
    };
    let question = WalQuestion { v3_after: 1, v2_after: 1, budget: u64::MAX };
    drop(read_wal(&[segment(data, 0)], question));
    drop(read_wal(&[segment(first, 0), segment(second, 1)], question));
});

struct Owned(Vec<u8>);

impl volhold::etcd::ReadAt for Owned {
    fn size(&self) -> std::io::Result<u64> {
        self.0.as_slice().size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.0.as_slice().read_at(buf, offset)
    }
}
