//! Frames of a WAL segment (etcd v3.6.12 `server/storage/wal/{encoder,decoder}.go`).
//!
//! ```text
//! length u64 LE | record (walpb.Record) | padding        length: low 56 bits bytes of the record;
//!                                                        bit 63 set: bits 56..59 bytes of padding (since 3.0)
//! ```
//!
//! A length of 0, or the end of the file, ends the segment. etcd 2 writes no padding, so its frames are unaligned.

use crate::etcd::bytes::{slice, u64_le};
use crate::etcd::proto::{WalMetadata, WalRecord};
use crate::etcd::read_at::{ReadAt, ReadError, read_exact};
use prost::Message;

/// `walpb` record types.
pub const METADATA: i64 = 1;
pub const ENTRY: i64 = 2;
pub const STATE: i64 = 3;
pub const CRC: i64 = 4;
pub const SNAPSHOT: i64 = 5;

const LENGTH: u64 = 8;
/// Smallest unit that a disk writes whole (`minSectorSize`).
const SECTOR: usize = 512;
/// Longest record that is looked at. etcd 3.3 to 3.5.5 refuse 10 MiB already; requests are 1.5 MiB by default.
const MAX_RECORD: u64 = 64 << 20;
/// From here on a length is garbage to 3.3 to 3.5.5 (`maxWALEntrySizeLimit`), whether the record would fit into the file or not.
pub const IMPLAUSIBLE: u64 = 10 << 20;
const BUFFER: usize = 256 * 1024;
static ZEROS: [u8; BUFFER] = [0; BUFFER];

/// What stands at a place in a segment.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// A record that decodes; its checksum is not looked at here.
    Record { record: WalRecord, padded: bool, torn: bool, end: u64 },
    /// Zero length, or the end of the file.
    End,
    /// The file ends inside of a frame that looks sound so far.
    Cut { what: &'static str },
    /// The length is none that etcd wrote.
    Length { found: u64 },
    /// The record does not decode. `torn`: some sector of it holds only zeros, which is what etcd takes for a torn write.
    Undecodable { torn: bool, len: u64 },
}

/// Splits a length field into bytes of record and of padding.
fn split_length(field: u64) -> (u64, u64) {
    let padding = if field >> 63 == 1 { (field >> 56) & 7 } else { 0 };
    (field & 0x00ff_ffff_ffff_ffff, padding)
}

/// Reads frames of one segment one after the other.
pub struct Frames<'a> {
    from: &'a dyn ReadAt,
    size: u64,
    at: u64,
    buf: Vec<u8>,
    buf_at: u64,
}

impl<'a> Frames<'a> {
    pub fn new(from: &'a dyn ReadAt, size: u64) -> Self {
        Frames { from, size, at: 0, buf: Vec::new(), buf_at: 0 }
    }

    /// Offset of the next frame, or of the place at which there was none.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// The frame at the current place. Moves on only over a [`Frame::Record`].
    pub fn next_frame(&mut self) -> Result<Frame, ReadError> {
        let left = self.size.saturating_sub(self.at);
        if left == 0 {
            return Ok(Frame::End);
        }
        if left < LENGTH {
            return Ok(Frame::Cut { what: "a length field" });
        }
        let field = u64_le(self.bytes(self.at, LENGTH)?, 0).unwrap_or(0);
        if field == 0 {
            return Ok(Frame::End);
        }
        let (record, padding) = split_length(field);
        let total = record.saturating_add(padding);
        if total > left.saturating_sub(LENGTH) {
            if record >= IMPLAUSIBLE {
                return Ok(Frame::Length { found: record });
            }
            return Ok(Frame::Cut { what: "a record" });
        }
        if total > MAX_RECORD {
            return Ok(Frame::Length { found: record });
        }
        let start = self.at.saturating_add(LENGTH);
        let end = start.saturating_add(total);
        let data = self.bytes(start, total)?;
        let torn = is_torn(data, start);
        let body = usize::try_from(record).ok().and_then(|record| data.get(..record)).unwrap_or(&[]);
        match WalRecord::decode(body) {
            Ok(decoded) => {
                self.at = end;
                Ok(Frame::Record { record: decoded, padded: field >> 63 == 1, torn, end })
            }
            Err(_) => Ok(Frame::Undecodable { torn, len: record }),
        }
    }

    /// First byte that is not zero, from the current place to the end of the file. What etcd allocated ahead (64 MiB) is not
    /// read where the filesystem knows that nothing was written there.
    pub fn first_non_zero(&mut self) -> Result<Option<u64>, ReadError> {
        let mut at = self.at;
        loop {
            at = self.from.next_data(at);
            if at >= self.size {
                return Ok(None);
            }
            let len = self.size.saturating_sub(at).min(BUFFER as u64);
            let bytes = self.bytes(at, len)?;
            // Most of it was allocated ahead: compared as a whole before it is searched.
            if ZEROS.get(..bytes.len()).is_none_or(|zeros| zeros != bytes)
                && let Some(n) = bytes.iter().position(|byte| *byte != 0)
            {
                return Ok(Some(at.saturating_add(n as u64)));
            }
            at = at.saturating_add(len);
        }
    }

    /// `len` bytes at `at`, through the buffer. The caller has checked both against the file's size.
    fn bytes(&mut self, at: u64, len: u64) -> Result<&[u8], ReadError> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let inside = |buf: &[u8], buf_at: u64| {
            at.checked_sub(buf_at)
                .and_then(|n| usize::try_from(n).ok())
                .filter(|n| n.checked_add(len).is_some_and(|end| end <= buf.len()))
        };
        if inside(&self.buf, self.buf_at).is_none() {
            let want = len.max(BUFFER).min(usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX));
            self.buf.resize(want, 0);
            if want > BUFFER {
                self.buf.shrink_to(want);
            }
            self.buf_at = at;
            if let Err(error) = read_exact(self.from, &mut self.buf, at) {
                self.buf.clear();
                return Err(error);
            }
        }
        let begin = inside(&self.buf, self.buf_at).unwrap_or(0);
        slice(&self.buf, begin, len).ok_or(ReadError::Short { offset: at, wanted: len, got: self.buf.len() })
    }
}

/// etcd's rule (`decoder.isTornEntry`): a sector's part of the record holds only zeros.
fn is_torn(data: &[u8], file_offset: u64) -> bool {
    let into = usize::try_from(file_offset.checked_rem(SECTOR as u64).unwrap_or(0)).unwrap_or(0);
    let first = SECTOR.saturating_sub(into).min(data.len());
    let (head, rest) = data.split_at_checked(first).unwrap_or((data, &[]));
    let zero = |chunk: &[u8]| !chunk.is_empty() && chunk.iter().all(|byte| *byte == 0);
    zero(head) || rest.chunks(SECTOR).any(zero)
}

/// The first two records of a segment, proven by the second one's checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHead {
    /// Checksum that the files before carry over; 0 in the first file.
    pub crc: u32,
    pub node_id: u64,
    pub cluster_id: u64,
}

/// Does a WAL segment of etcd (2 or 3) begin here? Some hundred bytes are enough.
pub fn looks_like_segment(bytes: &[u8]) -> Option<SegmentHead> {
    let size = u64::try_from(bytes.len()).ok()?;
    let mut frames = Frames::new(&bytes, size);
    let mut next = || match frames.next_frame().ok()? {
        Frame::Record { record, .. } => Some(record),
        Frame::End | Frame::Cut { .. } | Frame::Length { .. } | Frame::Undecodable { .. } => None,
    };
    let first = next()?;
    if first.kind != CRC || !first.data.is_empty() {
        return None;
    }
    let second = next()?;
    if second.kind != METADATA || crc32c::crc32c_append(first.crc, &second.data) != second.crc {
        return None;
    }
    let metadata = WalMetadata::decode(second.data.as_slice()).ok()?;
    Some(SegmentHead { crc: first.crc, node_id: metadata.node_id, cluster_id: metadata.cluster_id })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
pub(in crate::etcd) mod tests {
    use super::*;

    /// A frame as etcd 3 (`pad`) or etcd 2 writes it.
    pub(in crate::etcd) fn frame(kind: i64, crc: u32, data: &[u8], pad: bool) -> Vec<u8> {
        let record = WalRecord { kind, crc, data: data.to_vec() }.encode_to_vec();
        let padding = if pad { (8 - record.len() % 8) % 8 } else { 0 };
        let mut field = record.len() as u64;
        if padding > 0 {
            field |= (0x80 | padding as u64) << 56;
        }
        let mut bytes = field.to_le_bytes().to_vec();
        bytes.extend(record);
        bytes.resize(bytes.len() + padding, 0);
        bytes
    }

    fn all(bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Frames::new(&bytes, bytes.len() as u64);
        let mut found = Vec::new();
        loop {
            let frame = frames.next_frame().unwrap();
            let on = matches!(frame, Frame::Record { .. });
            found.push(frame);
            if !on {
                return found;
            }
        }
    }

    #[test]
    fn frames_of_both_generations_are_read_one_after_the_other() {
        let bytes = [frame(2, 7, b"abcde", false), frame(2, 8, b"abcdefg", true), vec![0; 16]].concat();
        let found = all(&bytes);
        assert!(matches!(&found[0], Frame::Record { record, padded: false, .. } if record.data == b"abcde"));
        assert!(matches!(&found[1], Frame::Record { record, .. } if record.data == b"abcdefg"));
        assert_eq!(found[2], Frame::End);
    }

    #[test]
    fn a_length_that_no_etcd_writes_is_told_from_a_cut_file() {
        let good = frame(2, 7, b"abc", true);
        let mut bytes = good.clone();
        bytes.extend(&frame(2, 8, b"abcdefgh", true)[..12]);
        assert_eq!(all(&bytes).last(), Some(&Frame::Cut { what: "a record" }));
        let mut bytes = good.clone();
        bytes.extend([1, 2, 3]);
        assert_eq!(all(&bytes).last(), Some(&Frame::Cut { what: "a length field" }));
        let mut bytes = good;
        bytes.extend(0x0f_ffff_ffff_u64.to_le_bytes());
        bytes.extend([0; 64]);
        assert_eq!(all(&bytes).last(), Some(&Frame::Length { found: 0x0f_ffff_ffff }));
    }

    #[test]
    fn a_record_is_torn_only_when_a_whole_sector_of_it_is_zero() {
        let mut data = vec![1; 2048];
        assert!(!is_torn(&data, 100));
        data[512 - 100..1024 - 100].fill(0);
        assert!(is_torn(&data, 100), "one sector is zero");
        assert!(!is_torn(&data, 0), "no whole sector is zero");
        assert!(is_torn(&[1, 2, 0, 0], 510), "the rest in the next sector is zero");
        assert!(!is_torn(&[1, 2, 0, 0], 512), "zeros within a sector are no torn write");
    }

    #[test]
    fn a_segments_head_is_proven_by_its_checksum() {
        let metadata = WalMetadata { node_id: 0x1f, cluster_id: 0x2e }.encode_to_vec();
        let crc = crc32c::crc32c_append(99, &metadata);
        let bytes = [frame(CRC, 99, &[], true), frame(METADATA, crc, &metadata, true)].concat();
        assert_eq!(looks_like_segment(&bytes), Some(SegmentHead { crc: 99, node_id: 0x1f, cluster_id: 0x2e }));
        for byte in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[byte] ^= 0x10;
            // Padding is not covered by any checksum, nor is the length of the empty padding.
            if let Some(head) = looks_like_segment(&bad) {
                assert_eq!((head.node_id, head.cluster_id), (0x1f, 0x2e), "byte {byte}");
            }
        }
        assert_eq!(looks_like_segment(&[0; 512]), None);
        assert_eq!(looks_like_segment(&bytes[..20]), None);
    }
}
