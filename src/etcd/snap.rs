//! Raft snapshots (`member/snap/%016x-%016x.snap` = term, index; and `%016x.snap.db` = index).
//!
//! ```text
//! snappb.Snapshot  { 1 crc u32 = CRC-32C(data), 2 data }          etcd v3.6.12 server/etcdserver/api/snap/snapshotter.go
//! data = raftpb.Snapshot { 1 data = v2 store as JSON, 2 metadata { 1 conf_state, 2 index, 3 term } }
//! ```
//!
//! Read as a stream: the store of an etcd 2 can be hundreds of MiB. etcd renames a bad file to `.snap.broken`; nothing here
//! does.

use super::bytes::varint;
use super::proto::SnapshotMetadata;
use super::read_at::{ReadAt, ReadError, Stream, read_up_to, read_vec};
use super::v2store::{self, V2Store, V2StoreError};
use prost::Message;

/// Longest metadata (the ids of a cluster's members) that is read.
const MAX_METADATA: u64 = 1 << 20;
/// Fields of a message that are looked at before it is called nonsense.
const MAX_FIELDS: usize = 64;

/// Term and index out of `%016x-%016x.snap`.
pub fn parse_name(name: &str) -> Option<(u64, u64)> {
    let (term, index) = name.strip_suffix(".snap")?.split_once('-')?;
    Some((hex(term)?, hex(index)?))
}

/// Index out of `%016x.snap.db`: a backend received from the leader.
pub fn parse_db_name(name: &str) -> Option<u64> {
    hex(name.strip_suffix(".snap.db")?)
}

fn hex(text: &str) -> Option<u64> {
    let fits = (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then(|| u64::from_str_radix(text, 16).ok())?
}

/// A good snapshot file.
#[derive(Debug)]
pub struct SnapReading {
    pub index: u64,
    pub term: u64,
    pub voters: Vec<u64>,
    pub learners: Vec<u64>,
    pub store: Result<V2Store, V2StoreError>,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapError {
    #[error("it cannot be read")]
    Read(#[source] ReadError),
    #[error("it has no bytes")]
    Empty,
    #[error("it is no snapshot: {0}")]
    Format(&'static str),
    #[error("its checksum is {stored:#010x}, its content gives {computed:#010x}")]
    Crc { stored: u32, computed: u32 },
}

/// Reads a snapshot file: checksum, raft metadata, and the v2 store.
pub fn read_snap(from: &dyn ReadAt) -> Result<SnapReading, SnapError> {
    let size = from.size().map_err(|source| SnapError::Read(ReadError::Io { offset: 0, len: 0, source }))?;
    if size == 0 {
        return Err(SnapError::Empty);
    }
    let mut stored = 0_u32;
    let mut data = None;
    for field in fields(from, 0, size)? {
        match field {
            Field { number: 1, varint: Some(value), .. } => stored = u32::try_from(value).unwrap_or(0),
            Field { number: 2, varint: None, at, len } => data = Some((at, at.saturating_add(len))),
            Field { .. } => {}
        }
    }
    let (begin, end) = data.filter(|(begin, end)| end > begin).ok_or(SnapError::Empty)?;
    let computed = checksum(from, begin, end)?;
    // etcd takes a checksum of 0 for "empty snapshot".
    if stored != computed || stored == 0 {
        return Err(SnapError::Crc { stored, computed });
    }
    let mut store = None;
    let mut metadata = None;
    for field in fields(from, begin, end)? {
        match field {
            Field { number: 1, varint: None, at, len } => store = Some((at, at.saturating_add(len))),
            Field { number: 2, varint: None, at, len } if len <= MAX_METADATA => {
                let len = usize::try_from(len).unwrap_or(0);
                let bytes = read_vec(from, at, len).map_err(SnapError::Read)?;
                metadata = SnapshotMetadata::decode(bytes.as_slice()).ok();
            }
            Field { .. } => {}
        }
    }
    let metadata = metadata.ok_or(SnapError::Format("no raft metadata in it"))?;
    let conf = metadata.conf_state.unwrap_or_default();
    let (at, end) = store.unwrap_or((0, 0));
    let store = v2store::read(Stream::new(from, at, end));
    Ok(SnapReading { index: metadata.index, term: metadata.term, voters: conf.voters, learners: conf.learners, store })
}

fn checksum(from: &dyn ReadAt, begin: u64, end: u64) -> Result<u32, SnapError> {
    let mut stream = Stream::new(from, begin, end);
    let mut crc = 0;
    loop {
        let piece = stream.fill().map_err(SnapError::Read)?;
        if piece.is_empty() {
            return Ok(crc);
        }
        crc = crc32c::crc32c_append(crc, piece);
        let used = piece.len();
        stream.consume(used);
    }
}

/// One field of a message in the file: a number, or a place.
struct Field {
    number: u64,
    varint: Option<u64>,
    at: u64,
    len: u64,
}

/// The fields of the message that lies in `[begin, end)`, without reading what is in them.
fn fields(from: &dyn ReadAt, begin: u64, end: u64) -> Result<Vec<Field>, SnapError> {
    let mut found = Vec::new();
    let mut at = begin;
    while at < end {
        if found.len() >= MAX_FIELDS {
            return Err(SnapError::Format("too many fields"));
        }
        let mut head = [0; 20];
        let want = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(head.len());
        let got = read_up_to(from, head.get_mut(..want).unwrap_or(&mut []), at).map_err(SnapError::Read)?;
        let head = head.get(..got).unwrap_or(&[]);
        let cut = SnapError::Format("a field that is cut");
        let (tag, used) = varint(head, 0).ok_or(SnapError::Format("a tag that is cut"))?;
        let (value, more) = varint(head, used).ok_or(cut)?;
        at = at.saturating_add(used.saturating_add(more) as u64);
        match tag & 7 {
            0 => found.push(Field { number: tag >> 3, varint: Some(value), at, len: 0 }),
            2 => {
                if value > end.saturating_sub(at) {
                    return Err(SnapError::Format("a field longer than the file"));
                }
                found.push(Field { number: tag >> 3, varint: None, at, len: value });
                at = at.saturating_add(value);
            }
            _ => return Err(SnapError::Format("a field of a type that no snapshot has")),
        }
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;

    fn snapshot_file() -> Vec<u8> {
        let json = br#"{"Root":{"Path":"/","Children":{"1":{"Path":"/1","Children":{"a":{"Path":"/1/a","Value":"v","Children":null}}}}}}"#;
        let mut inner = vec![0x0a, u8::try_from(json.len()).unwrap()];
        inner.extend(json);
        inner.extend([0x12, 0x08, 0x0a, 0x02, 0x08, 0x1f, 0x10, 0x2a, 0x18, 0x02]);
        let mut file = vec![0x08];
        prost::encoding::encode_varint(u64::from(crc32c::crc32c(&inner)), &mut file);
        file.push(0x12);
        prost::encoding::encode_varint(inner.len() as u64, &mut file);
        file.extend(inner);
        file
    }

    #[test]
    fn a_snapshot_is_read_and_every_bit_of_it_is_guarded() {
        let file = snapshot_file();
        let snap = read_snap(&file.as_slice()).unwrap();
        assert_eq!((snap.index, snap.term, snap.voters), (0x2a, 2, vec![0x1f]));
        assert_eq!(snap.store.unwrap().user_keys, 1);
        for bit in 0..file.len() * 8 {
            let mut bad = file.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read_snap(&bad.as_slice()).is_err(), "bit {bit}");
        }
        for len in 0..file.len() {
            assert!(read_snap(&&file[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn names_are_term_and_index() {
        assert_eq!(parse_name("0000000000000002-000000000000000b.snap"), Some((2, 11)));
        assert_eq!(parse_name("0000000000000002-000000000000000b.snap.broken"), None);
        assert_eq!(parse_name("x-1.snap"), None);
        assert_eq!(parse_db_name("000000000000004d.snap.db"), Some(0x4d));
    }
}
