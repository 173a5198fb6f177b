#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
use super::frame::tests::frame;
use super::*;

/// Writes a log as etcd does: a running checksum over everything but the crc records.
struct Writer {
    files: Vec<(u64, u64, Vec<u8>)>,
    crc: u32,
    pad: bool,
}

impl Writer {
    fn new(pad: bool) -> Self {
        let mut writer = Writer { files: Vec::new(), crc: 0, pad };
        writer.cut(0, 0);
        writer
    }

    fn cut(&mut self, seq: u64, index: u64) {
        let head = frame(frame::CRC, self.crc, &[], self.pad);
        self.files.push((seq, index, head));
        self.write(frame::METADATA, &WalMetadata { node_id: 0x1f, cluster_id: 0x2e }.encode_to_vec());
    }

    fn write(&mut self, kind: i64, data: &[u8]) {
        self.crc = crc32c::crc32c_append(self.crc, data);
        let bytes = frame(kind, self.crc, data, self.pad);
        self.files.last_mut().unwrap().2.extend(bytes);
    }

    fn entry(&mut self, index: u64, term: u64, data: &[u8]) {
        self.write(frame::ENTRY, &RaftEntry { kind: 0, term, index, data: data.to_vec() }.encode_to_vec());
    }

    fn snapshot(&mut self, index: u64, term: u64) {
        self.write(frame::SNAPSHOT, &WalSnapshot { index, term }.encode_to_vec());
    }

    fn read(&self) -> WalReading {
        self.read_with(WalQuestion { budget: u64::MAX, ..Default::default() })
    }

    fn read_with(&self, question: WalQuestion) -> WalReading {
        let segments: Vec<Segment> = self
            .files
            .iter()
            .map(|(seq, index, bytes)| Segment {
                path: format!("{seq}"),
                seq: *seq,
                index: *index,
                source: Box::new(Owned(bytes.clone())),
            })
            .collect();
        read_wal(&segments, question).unwrap()
    }
}

struct Owned(Vec<u8>);

impl ReadAt for Owned {
    fn size(&self) -> std::io::Result<u64> {
        self.0.as_slice().size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.0.as_slice().read_at(buf, offset)
    }
}

fn three_files() -> Writer {
    let mut writer = Writer::new(true);
    writer.snapshot(0, 0);
    for index in 1..=3 {
        writer.entry(index, 1, b"x");
    }
    writer.cut(1, 4);
    for index in 4..=6 {
        writer.entry(index, 2, b"x");
    }
    writer.cut(2, 7);
    writer.entry(7, 2, b"x");
    writer.write(frame::STATE, &HardState { term: 2, vote: 1, commit: 7 }.encode_to_vec());
    writer
}

fn codes(reading: &WalReading) -> Vec<&str> {
    reading.defects.iter().map(|defect| defect.code.as_str()).collect()
}

#[test]
fn a_log_of_three_files_is_followed_to_its_end() {
    let reading = three_files().read();
    assert_eq!(codes(&reading), [] as [&str; 0]);
    assert_eq!((reading.node_id, reading.cluster_id), (Some(0x1f), Some(0x2e)));
    assert_eq!((reading.first_index, reading.last_index(), reading.term()), (Some(1), Some(7), Some(2)));
    assert!(reading.whole && reading.written_by_v3);
}

#[test]
fn a_missing_middle_file_is_a_gap_and_its_checksum_does_not_fit() {
    let mut writer = three_files();
    writer.files.remove(1);
    let reading = writer.read();
    assert!(codes(&reading).contains(&"wal-gap"), "{:?}", reading.defects);
    assert!(codes(&reading).contains(&"wal-crc"), "{:?}", reading.defects);
    let only_last = writer.read_with(WalQuestion::default());
    assert_eq!(codes(&only_last), ["wal-gap"], "a quick reading of the last file sees the gap too");
}

#[test]
fn a_file_that_was_just_begun_ends_where_its_name_says() {
    let mut writer = three_files();
    writer.cut(3, 8);
    let reading = writer.read_with(WalQuestion::default());
    assert_eq!((reading.last_index(), reading.last_entry), (Some(7), None));
    assert_eq!(codes(&reading), [] as [&str; 0]);
    assert_eq!(writer.read().last_index(), Some(7));
}

#[test]
fn entries_that_the_backend_lacks_are_read_beyond_the_budget() {
    let writer = three_files();
    let reading = writer.read_with(WalQuestion { v3_after: 4, v2_after: 0, budget: 0 });
    assert_eq!(reading.base, 3, "the file with entry 5 is read too");
    let reading = writer.read_with(WalQuestion { v3_after: 6, v2_after: 0, budget: 0 });
    assert_eq!(reading.base, 6);
}

#[test]
fn entries_that_are_written_again_take_the_place_of_later_ones() {
    let mut writer = Writer::new(true);
    for (index, term) in [(1, 1), (2, 1), (3, 1), (2, 5)] {
        writer.entry(index, term, b"x");
    }
    let reading = writer.read();
    assert_eq!((reading.last_index(), reading.term()), (Some(2), Some(5)));
    assert_eq!(codes(&reading), [] as [&str; 0]);
}

#[test]
fn a_jump_of_indexes_needs_a_snapshot_that_fills_it() {
    let mut writer = Writer::new(true);
    writer.entry(1, 1, b"x");
    writer.entry(9, 1, b"x");
    assert_eq!(codes(&writer.read()), ["wal-gap"]);
    writer.snapshot(8, 1);
    assert_eq!(codes(&writer.read()), [] as [&str; 0]);
}

#[test]
fn a_received_snapshot_is_progress_though_no_entry_follows() {
    let mut writer = Writer::new(true);
    writer.entry(1, 1, b"x");
    writer.snapshot(500, 3);
    let reading = writer.read();
    assert_eq!((reading.last_index(), reading.term(), reading.snapshot_index()), (Some(500), Some(3), Some(500)));
}

#[test]
fn files_of_two_members_are_told() {
    let mut writer = three_files();
    let mut other = Writer::new(true);
    other.files[0].2.clear();
    other.crc = 0;
    let metadata = WalMetadata { node_id: 0x77, cluster_id: 0x2e }.encode_to_vec();
    let (crc, pad) = (crc32c::crc32c(&metadata), true);
    let head = [frame(frame::CRC, 0, &[], pad), frame(frame::METADATA, crc, &metadata, pad)].concat();
    writer.files[0].2 = head;
    let only_last = writer.read_with(WalQuestion::default());
    assert!(codes(&only_last).contains(&"wal-conflicting-metadata"), "{:?}", only_last.defects);
}

#[test]
fn zeros_end_the_log_and_bytes_behind_them_are_told() {
    let mut writer = three_files();
    let end = writer.files[2].2.len();
    writer.files[2].2.resize(end + 4096, 0);
    assert_eq!(codes(&writer.read()), [] as [&str; 0]);
    writer.files[2].2[end + 100] = 1;
    let reading = writer.read();
    assert_eq!(codes(&reading), ["wal-beyond-end"]);
    assert_eq!(reading.defects[0].offset, Some(end as u64 + 100));
}

#[test]
fn a_file_without_a_record_is_told_wherever_it_stands() {
    for n in 0..3 {
        for bytes in [Vec::new(), vec![0; 8192]] {
            let mut writer = three_files();
            writer.files[n].2 = bytes;
            let reading = writer.read();
            assert!(codes(&reading).contains(&"wal-empty"), "file {n}: {:?}", reading.defects);
            assert!(!reading.whole);
        }
    }
}

#[test]
fn a_flipped_bit_is_damage_and_a_zeroed_sector_at_the_end_is_torn() {
    let mut writer = three_files();
    writer.entry(8, 2, &[7; 3000]);
    let end = writer.files[2].2.len();
    let mut flipped = writer.files[2].2.clone();
    flipped[end - 500] ^= 1;
    let torn = {
        let mut bytes = writer.files[2].2.clone();
        let sector = (end - 600) / 512 * 512;
        bytes[sector..].fill(0);
        bytes
    };
    writer.files[2].2 = flipped;
    let reading = writer.read();
    assert_eq!(codes(&reading), ["wal-crc"]);
    assert_eq!(reading.defects[0].severity, crate::model::Severity::Damage);
    writer.files[2].2 = torn;
    let reading = writer.read();
    assert_eq!(codes(&reading), ["wal-torn-tail"]);
    assert_eq!(reading.last_index(), Some(7));
    assert!(reading.whole);
}

#[test]
fn a_torn_record_before_the_last_file_is_damage() {
    let mut writer = three_files();
    let len = writer.files[1].2.len();
    writer.files[1].2.truncate(len - 3);
    assert_eq!(codes(&writer.read()), ["wal-crc"]);
}

#[test]
fn writes_that_make_keys_are_seen_only_beyond_what_is_applied() {
    // InternalRaftRequest { 1 ID, 4 put { 1 key } } and a v2 Request { 2 method, 3 path }.
    let put = b"\x08\x05\x22\x03\x0a\x01k";
    let v2 = b"\x08\x07\x12\x03PUT\x1a\x04/1/a";
    let cluster = b"\x08\x07\x12\x03PUT\x1a\x0a/0/version";
    let mut writer = Writer::new(false);
    writer.entry(1, 1, put);
    writer.entry(2, 1, v2);
    writer.entry(3, 1, cluster);
    let seen = |v3_after, v2_after| {
        let reading = writer.read_with(WalQuestion { v3_after, v2_after, budget: 0 });
        (reading.unapplied_put, reading.unapplied_v2_put)
    };
    assert_eq!(seen(0, 0), (true, true));
    assert_eq!(seen(1, 2), (false, false));
    assert_eq!(seen(1, 1), (false, true));
}

#[test]
fn what_is_not_applied_is_told_by_its_kind_and_what_was_replaced_is_forgotten() {
    let put = b"\x08\x05\x22\x03\x0a\x01k";
    let delete = b"\x08\x06\x2a\x03\x0a\x01k";
    let mut writer = Writer::new(false);
    writer.entry(1, 1, b"");
    for index in 2..=5 {
        writer.entry(index, 1, put);
    }
    // A new leader had other entries from 4 on.
    writer.entry(4, 2, b"");
    writer.entry(5, 2, delete);
    let kinds = |v3_after| {
        let reading = writer.read_with(WalQuestion { v3_after, v2_after: 0, budget: 0 });
        reading.unapplied.iter().map(|kind| kind.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(2), ["put", "empty", "delete-range"]);
    assert_eq!(kinds(4), ["delete-range"]);
    assert_eq!(kinds(5), [] as [&str; 0]);
}

#[test]
fn names_are_sequence_and_index() {
    assert_eq!(parse_name("0000000000000003-00000000000000d2.wal"), Some((3, 0xd2)));
    assert_eq!(parse_name("3-d2.wal"), Some((3, 0xd2)));
    assert_eq!(parse_name("zz.wal"), None);
    assert_eq!(parse_name("0000000000000003-00000000000000d2.wal.broken"), None);
    assert_eq!(parse_name("00000000000000003-00000000000000d2.wal"), None);
}
