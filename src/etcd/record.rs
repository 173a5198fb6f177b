//! One record of bucket `key`: a revision and an `mvccpb.KeyValue` (etcd v3.6.12 `api/mvccpb/kv.proto`).

use super::bytes::{i64_be, slice, varint};

/// What a record says, without its value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub key: &'a [u8],
    pub create: i64,
    pub modified: i64,
    pub version: i64,
    pub lease: i64,
}

/// `None`: it is no such message. As strict as etcd's own decoder where that stops, which is fatal for etcd.
pub(super) fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    let mut record = Record::default();
    let mut at = 0_usize;
    while at < bytes.len() {
        let (tag, used) = varint(bytes, at)?;
        at = at.checked_add(used)?;
        match (tag >> 3, tag & 7) {
            (field @ (2 | 3 | 4 | 6), 0) => {
                let (value, used) = varint(bytes, at)?;
                at = at.checked_add(used)?;
                let value = value.cast_signed();
                match field {
                    2 => record.create = value,
                    3 => record.modified = value,
                    4 => record.version = value,
                    _ => record.lease = value,
                }
            }
            (field @ (1 | 5), 2) => {
                let (len, used) = varint(bytes, at)?;
                at = at.checked_add(used)?;
                let len = usize::try_from(len).ok()?;
                if field == 1 {
                    record.key = slice(bytes, at, len)?;
                }
                at = at.checked_add(len).filter(|end| *end <= bytes.len())?;
            }
            // A known field of another type is an error for etcd too.
            (0..=6, _) => return None,
            // Unknown fields are skipped, as by etcd's decoder.
            (_, 0) => at = at.checked_add(varint(bytes, at)?.1)?,
            (_, 1) => at = at.checked_add(8).filter(|end| *end <= bytes.len())?,
            (_, 5) => at = at.checked_add(4).filter(|end| *end <= bytes.len())?,
            (_, 2) => {
                let (len, used) = varint(bytes, at)?;
                at = at.checked_add(used)?.checked_add(usize::try_from(len).ok()?)?;
                if at > bytes.len() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    Some(record)
}

/// Why a key of bucket `key` is no revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadRevision {
    Length,
    Separator,
    Negative,
}

/// A revision as etcd up to 3.5 reads it (it does not look at the separator), and what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Revision {
    pub main: i64,
    pub sub: i64,
    pub tombstone: bool,
    pub bad: Option<BadRevision>,
}

/// `None`: too short to have one.
pub(super) fn revision(key: &[u8]) -> Option<Revision> {
    let (main, sub) = (i64_be(key, 0)?, i64_be(key, 9)?);
    let tombstone = key.len() == 18 && key.get(17) == Some(&b't');
    let bad = if key.len() != 17 && !tombstone {
        Some(BadRevision::Length)
    } else if key.get(8) != Some(&b'_') {
        Some(BadRevision::Separator)
    } else if main < 0 || sub < 0 {
        Some(BadRevision::Negative)
    } else {
        None
    };
    Some(Revision { main, sub, tombstone, bad })
}

impl Record<'_> {
    /// Says something, and not of which key. No etcd writes that; each serves it as the value of an empty key. The record of a
    /// restore with bumped revisions says nothing at all.
    pub(super) fn nameless(&self, bytes: &[u8]) -> bool {
        self.key.is_empty() && !bytes.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_and_nonsense_is_refused() {
        let record = parse(b"\x0a\x03abc\x10\x05\x18\x07\x20\x02\x2a\x01v\x30\x09").unwrap();
        assert_eq!(record, Record { key: b"abc", create: 5, modified: 7, version: 2, lease: 9 });
        assert_eq!(parse(b""), Some(Record::default()));
        for nonsense in [&b"\x0a\x09abc"[..], b"\x08\x05", b"\x00", b"\x2a", b"\x2f\x01", b"\x0b"] {
            assert_eq!(parse(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_field_of_a_later_etcd_is_passed_over() {
        let record = parse(b"\x0a\x03abc\x10\x05\x18\x07\x20\x02\x2a\x01v\x38\x01\x42\x01x").unwrap();
        assert_eq!(record, Record { key: b"abc", create: 5, modified: 7, version: 2, lease: 0 });
    }

    #[test]
    fn a_revision_says_what_is_wrong_with_it() {
        let good = [&7_i64.to_be_bytes()[..], b"_", &1_i64.to_be_bytes()].concat();
        assert_eq!(revision(&good), Some(Revision { main: 7, sub: 1, tombstone: false, bad: None }));
        assert!(revision(&[&good[..], b"t"].concat()).unwrap().tombstone);
        assert_eq!(revision(&[&good[..], b"x"].concat()).unwrap().bad, Some(BadRevision::Length));
        assert_eq!(revision(&good[..16]), None);
        let mut bad = good.clone();
        bad[8] = b'-';
        assert_eq!(revision(&bad).unwrap().bad, Some(BadRevision::Separator));
        bad = good;
        bad[0] = 0x80;
        assert_eq!(revision(&bad).unwrap().bad, Some(BadRevision::Negative));
    }
}
