#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "a test that panics is a test that fails"
)]

use super::*;
use crate::model::{Adoption, BootId, ClusterId, FsUuid, HighWater, MemberId, Time, VolumeId};
use crate::record::fold;
use proptest::prelude::*;

const VOLUME: &str = "vol-0123456789abcdef0";

pub(crate) fn entry(seconds: i64, fact: Fact) -> Entry {
    Entry {
        time: Time::from_unix(seconds).unwrap(),
        boot_id: BootId("11111111-2222-3333-4444-555555555555".into()),
        machine_id: "m".into(),
        guard: "main".parse().unwrap(),
        volume_id: VolumeId(VOLUME.into()),
        fs_uuid: Some(FsUuid(uuid::Uuid::from_u128(7))),
        version: "0.1.0".into(),
        fact,
    }
}

pub(crate) fn mark(cluster: u64, index: u64) -> Fact {
    Fact::HoldsData {
        mark: HighWater {
            data_dir: ".".into(),
            cluster_id: Some(ClusterId(cluster)),
            member_id: Some(MemberId(1)),
            term: Some(2),
            consistent_index: Some(index),
            revision: Some(3),
            wal_last_index: Some(index + 1),
            keys: Some(4),
        },
    }
}

fn pinned(cluster: u64) -> Fact {
    Fact::Pinned {
        cluster_id: ClusterId(cluster),
        member_id: MemberId(1),
        name: None,
        data_dir: ".".into(),
        because: "first-use".into(),
    }
}

fn ledger(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        let plan = plan_append(&bytes, entry).unwrap();
        bytes.truncate(plan.cut_to as usize);
        bytes.extend(plan.bytes);
    }
    bytes
}

fn entries_of(parsed: &Parsed) -> Vec<Entry> {
    parsed.entries.iter().map(|(_, entry)| entry.clone()).collect()
}

fn raw(last: &Hash, flags: u8, payload: &[u8]) -> Frame {
    encode(last, flags, payload).unwrap()
}

#[test]
fn what_was_appended_is_read_back_in_order() {
    let written = [entry(3, pinned(1)), entry(1, mark(1, 9)), entry(2, Fact::Retried)];
    let parsed = parse(&ledger(&written)).unwrap();
    assert_eq!(entries_of(&parsed), written);
    assert_eq!(parsed.torn, None);
}

#[test]
fn an_empty_ledger_is_a_ledger() {
    let parsed = parse(&[]).unwrap();
    assert_eq!((parsed.entries.len(), parsed.last_hash, parsed.valid_len, parsed.torn), (0, NO_HASH, 0, None));
}

#[test]
fn the_layout_on_disk_is_the_one_that_is_drawn() {
    let bytes = ledger(&[entry(1, pinned(1))]);
    assert_eq!(&bytes[..8], b"\x89vhL\r\n\x1a\x01");
    assert_eq!(&bytes[8..12], [1, 0, 0, 0], "a pin must be understood");
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    assert_eq!(bytes.len(), 48 + length + 4);
    assert_eq!(&bytes[16..48], [0; 32]);
    let json: serde_json::Value = serde_json::from_slice(&bytes[48..48 + length]).unwrap();
    assert_eq!(json["fact"]["kind"], "pinned");
}

#[test]
fn one_entry_has_one_id_in_every_ledger() {
    let here = parse(&ledger(&[entry(1, pinned(1)), entry(2, mark(1, 5))])).unwrap();
    let there = parse(&ledger(&[entry(9, Fact::Retried), entry(2, mark(1, 5))])).unwrap();
    assert_eq!(here.entries[1].0, there.entries[1].0);
    assert_ne!(here.entries[0].0, here.entries[1].0);
    assert_eq!(here.entries[0].0.0.len(), 16);
}

#[test]
fn a_kind_from_the_future_is_skipped_unless_it_must_be_understood() {
    let first = ledger(&[entry(1, pinned(1))]);
    let last = parse(&first).unwrap().last_hash;
    let mut value = serde_json::to_value(entry(2, Fact::Retried)).unwrap();
    value["fact"]["kind"] = "sealed-by-moonlight".into();
    let payload = serde_json::to_vec(&value).unwrap();

    let optional = raw(&last, 0, &payload);
    let mut skips = [first.clone(), optional.bytes].concat();
    skips.extend(raw(&optional.hash, 1, &serde_json::to_vec(&entry(3, mark(1, 5))).unwrap()).bytes);
    let parsed = parse(&skips).unwrap();
    assert_eq!(entries_of(&parsed), [entry(1, pinned(1)), entry(3, mark(1, 5))]);
    assert_eq!(parsed.skipped_unknown, 1);

    let needed = [first.clone(), raw(&last, 1, &payload).bytes].concat();
    let broken = parse(&needed).unwrap_err();
    assert_eq!(broken, LedgerBroken::MustUnderstand { offset: first.len(), kind: "sealed-by-moonlight".into() });
    let reason = broken.reason("/x/ledger");
    assert_eq!(reason.code, ReasonCode::LedgerBroken);
    assert!(reason.message.contains("sealed-by-moonlight") && reason.message.contains("/x/ledger"), "{reason:?}");
}

#[test]
fn fields_from_the_future_are_no_obstacle() {
    let mut value = serde_json::to_value(entry(2, mark(1, 5))).unwrap();
    value["weather"] = "rain".into();
    value["fact"]["mark"]["hash"] = 5.into();
    let bytes = raw(&NO_HASH, 1, &serde_json::to_vec(&value).unwrap()).bytes;
    assert_eq!(entries_of(&parse(&bytes).unwrap()), [entry(2, mark(1, 5))]);
}

#[test]
fn an_intact_frame_that_is_no_json_is_broken() {
    assert_eq!(parse(&raw(&NO_HASH, 0, b"\xff").bytes), Err(LedgerBroken::NotJson { offset: 0 }));
}

#[test]
fn a_frame_that_was_cut_out_breaks_the_chain() {
    let all = [entry(1, pinned(1)), entry(2, mark(1, 5)), entry(3, Fact::Retried)];
    let (one, two, three) = (ledger(&all[..1]).len(), ledger(&all[..2]).len(), ledger(&all));
    let without_the_second = [&three[..one], &three[two..]].concat();
    assert_eq!(parse(&without_the_second), Err(LedgerBroken::Chain { offset: one }));
    assert_eq!(parse(&three[one..]), Err(LedgerBroken::Chain { offset: 0 }));
}

#[test]
fn a_ledger_behind_a_ledger_is_broken() {
    let bytes = ledger(&[entry(1, pinned(1))]);
    assert_eq!(parse(&[bytes.clone(), bytes.clone()].concat()), Err(LedgerBroken::Chain { offset: bytes.len() }));
}

#[test]
fn zeros_behind_the_last_frame_are_a_torn_append() {
    let good = ledger(&[entry(1, pinned(1))]);
    for zeros in [1, 47, 512, 4096, MAX_TORN] {
        let parsed = parse(&[good.clone(), vec![0; zeros]].concat()).unwrap();
        assert_eq!(parsed.torn, Some(TornAt { offset: good.len(), len: zeros }));
        assert_eq!(parsed.valid_len, good.len());
    }
}

#[test]
fn a_tail_longer_than_one_append_is_no_torn_append() {
    let good = ledger(&[entry(1, pinned(1))]);
    let emptied = [good.clone(), vec![0; MAX_TORN + 1]].concat();
    assert_eq!(parse(&emptied), Err(LedgerBroken::LongTail { offset: good.len(), len: MAX_TORN + 1 }));
    assert!(matches!(parse(&vec![0xa5; 1 << 20]), Err(LedgerBroken::LongTail { offset: 0, .. })));
}

#[test]
fn a_ledger_full_of_magics_is_refused_without_reading_it_over_and_over() {
    let bytes: Vec<u8> = MAGIC.iter().copied().cycle().take(8 << 20).collect();
    assert!(matches!(parse(&bytes), Err(LedgerBroken::LongTail { .. })));
}

#[test]
fn a_payload_that_is_too_long_is_refused_and_a_tools_output_is_clipped() {
    let long = "ä".repeat(MAX_PAYLOAD);
    let told = Fact::Fsck { exit: Some(4), output: long.clone() };
    let parsed = parse(&ledger(&[entry(1, told)])).unwrap();
    let Fact::Fsck { output, .. } = &parsed.entries[0].1.fact else { panic!("no fsck entry") };
    assert!(output.len() < MAX_TOOL_OUTPUT + 8 && output.ends_with("ä…"), "{}", output.len());
    let dir = Fact::FreshAllowed { data_dir: long };
    assert!(matches!(frame(&NO_HASH, &entry(1, dir)), Err(EncodeError::TooLarge { .. })));
}

fn any_fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        5 => (1..3_u64, 0..200_u64).prop_map(|(cluster, index)| mark(cluster, index)),
        2 => (1..3_u64).prop_map(pinned),
        1 => (0..4_u128).prop_map(|uuid| Fact::Formatted { fs_uuid: FsUuid(uuid::Uuid::from_u128(uuid)) }),
        1 => prop_oneof![
            Just(Adoption::Identity), Just(Adoption::Restored), Just(Adoption::NewCluster), Just(Adoption::Replacement)
        ].prop_map(|what| Fact::Adopted { what, confirmed: "x".into() }),
        1 => Just(Fact::Retried),
        1 => (0..9_i64).prop_map(|at| Fact::Released {
            until: Time::from_unix(at).unwrap(),
            until_boot: None,
        }),
        1 => "[ -~]{0,40}".prop_map(|output| Fact::Fsck { exit: None, output }),
    ]
}

fn any_ledger(most: usize) -> impl Strategy<Value = Vec<Entry>> {
    prop::collection::vec((0..1_000_000_i64, any_fact()).prop_map(|(at, fact)| entry(at, fact)), 1..most)
}

/// Is `short` what `long` begins with?
fn begins(long: &[Entry], short: &[Entry]) -> bool {
    long.get(..short.len()) == Some(short)
}

proptest! {
    #[test]
    fn cut_anywhere_a_ledger_is_shorter_and_never_wrong(entries in any_ledger(5), at in any::<prop::sample::Index>()) {
        let bytes = ledger(&entries);
        let cut = at.index(bytes.len());
        let parsed = parse(&bytes[..cut]).unwrap();
        prop_assert!(begins(&entries, &entries_of(&parsed)));
        prop_assert!(parsed.entries.len() < entries.len());
        prop_assert_eq!(parsed.torn.map(|torn| torn.offset + torn.len), (parsed.valid_len < cut).then_some(cut));
        let appended = plan_append(&bytes[..cut], &entry(5, Fact::Retried)).unwrap();
        let whole = [&bytes[..appended.cut_to as usize], &appended.bytes].concat();
        prop_assert_eq!(parse(&whole).unwrap().torn, None);
    }

    #[test]
    fn a_changed_byte_is_never_taken_for_another_ledger(
        entries in any_ledger(5),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let mut bytes = ledger(&entries);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let last = ledger(&entries[..entries.len() - 1]).len();
        match parse(&bytes) {
            Ok(parsed) => {
                prop_assert!(at >= last, "a change before the last frame was taken for a torn append");
                prop_assert_eq!(entries_of(&parsed), &entries[..entries.len() - 1]);
                prop_assert!(parsed.torn.is_some());
            }
            Err(broken) => prop_assert!(broken.offset() <= at),
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        magics in prop::collection::vec(0..400_usize, 0..4),
    ) {
        for at in magics {
            let end = bytes.len().min(at + MAGIC.len());
            if at < end {
                let n = end - at;
                bytes[at..end].copy_from_slice(&MAGIC[..n]);
            }
        }
        let parsed = parse(&bytes);
        prop_assert!(parsed.is_err() || parsed.unwrap().entries.is_empty());
    }

    #[test]
    fn a_rewritten_ledger_says_the_same(entries in any_ledger(60)) {
        let before = ledger(&entries);
        let after = compact(&before).unwrap();
        prop_assert!(after.len() <= before.len());
        let (before, after) = (parse(&before).unwrap(), parse(&after).unwrap());
        prop_assert_eq!(after.torn, None);
        let volume = VolumeId(VOLUME.into());
        let uuid = Some(FsUuid(uuid::Uuid::from_u128(7)));
        prop_assert_eq!(
            fold(&before.entries, &[], &volume, uuid),
            fold(&after.entries, &[], &volume, uuid)
        );
        // Also beside a ledger that holds only the first half.
        let half = &before.entries[..before.entries.len() / 2];
        let with = fold(&before.entries, half, &volume, uuid);
        prop_assert_eq!(with.pin, fold(&after.entries, half, &volume, uuid).pin);
    }
}

#[test]
fn a_year_of_marks_is_rewritten_to_a_few_frames_and_keeps_their_ids() {
    let mut entries = vec![entry(0, pinned(1))];
    entries.extend((0..2000).map(|n| entry(n, mark(1, n as u64))));
    entries.push(entry(
        5000,
        Fact::Decided {
            decision: "start".into(),
            verdict: "opened".into(),
            codes: vec![],
            evidence_digest: "d".into(),
        },
    ));
    let mut bytes = Vec::new();
    let mut last = NO_HASH;
    for entry in &entries {
        let frame = frame(&last, entry).unwrap();
        bytes.extend(frame.bytes);
        last = frame.hash;
    }
    let after = compact(&bytes).unwrap();
    let (long, short) = (parse(&bytes).unwrap(), parse(&after).unwrap());
    assert_eq!(short.entries.len(), 3);
    assert!(short.entries.iter().all(|entry| long.entries.contains(entry)));
}

#[test]
fn rewriting_keeps_what_this_version_does_not_know() {
    let mut value = serde_json::to_value(entry(2, Fact::Retried)).unwrap();
    value["fact"]["kind"] = "unheard-of".into();
    let payload = serde_json::to_vec(&value).unwrap();
    let bytes = raw(&NO_HASH, 0, &payload).bytes;
    assert_eq!(compact(&bytes).unwrap(), bytes);
}

#[test]
fn of_entries_that_only_tell_the_newest_quarter_mebibyte_is_kept() {
    let output = "x".repeat(8000);
    let entries: Vec<Entry> =
        (0..100).map(|n| entry(n, Fact::Fsck { exit: Some(0), output: output.clone() })).collect();
    let short = parse(&compact(&ledger(&entries)).unwrap()).unwrap();
    assert_eq!(short.entries.last().unwrap().1, entries[99]);
    assert_eq!(short.entries.len(), 256 * 1024 / ledger(&entries[..1]).len());
}
