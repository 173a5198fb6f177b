//! What etcd leaves besides the heads in `probe/traces.rs`: leaf pages of its backend, snapshots, the store of etcd 2, and
//! Kubernetes' keys in whatever record holds them.

use super::piece::Piece;
use crate::etcd::bolt::{self, PAGE_HEADER};
use crate::etcd::schema::parse_revision;
use crate::model::{Finding, FindingKind, Validated};
use crate::probe::bytes::{array, le32, slice};
use crate::probe::traces;
use memchr::memmem;

/// `leafPageElement` of bbolt 1.4: flags, place of the key from here on, length of key, length of value.
const ELEMENT: usize = 16;
/// Elements whose keys are looked at.
const LOOKED_AT: usize = 8;

/// A leaf page of the bucket `key`: its keys are revisions, in ascending order.
pub(super) fn leaf(piece: &Piece<'_>) -> Option<Finding> {
    let header = bolt::parse_page_header(piece.data)?;
    if header.flags != bolt::flags::LEAF || header.count == 0 || header.id < 2 || header.id >> 40 != 0 {
        return None;
    }
    let looked_at = usize::from(header.count).min(LOOKED_AT);
    let mut revisions = Vec::with_capacity(looked_at);
    for number in 0..looked_at {
        let at = number.checked_mul(ELEMENT)?.checked_add(PAGE_HEADER)?;
        let place = at.checked_add(usize::try_from(le32(piece.data, at.checked_add(4)?)?).ok()?)?;
        let len = usize::try_from(le32(piece.data, at.checked_add(8)?)?).ok()?;
        revisions.push(parse_revision(slice(piece.data, place, len)?)?);
    }
    if !revisions.is_sorted() {
        return None;
    }
    let first = revisions.first()?;
    let detail = format!("leaf page of etcd's backend: {} keys from revision {} on", header.count, first.main);
    Some(piece.found(FindingKind::BoltLeaf, Validated::Structure, detail))
}

/// `snappb.Snapshot` (etcd v3.6.12 server/etcdserver/api/snap/snappb): 1 CRC-32C of the body, 2 the body, a `raftpb.Snapshot`.
/// Two fields of any record look like that, so only the checksum counts.
pub(super) fn snapshot(piece: &Piece<'_>) -> Option<Finding> {
    let after_tag = piece.data.strip_prefix(&[0x08])?;
    let (stored, rest) = varint(after_tag)?;
    let (len, rest) = varint(rest.strip_prefix(&[0x12])?)?;
    let body = slice(rest, 0, usize::try_from(len).ok()?)?;
    let right = stored != 0 && u64::from(crc32c::crc32c(body)) == stored && matches!(body.first(), Some(0x0a | 0x12));
    let detail = format!("raft snapshot of etcd with a body of {len} bytes");
    right.then(|| piece.found(FindingKind::EtcdSnap, Validated::Checksum, detail))
}

fn varint(data: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (at, byte) in data.iter().take(10).enumerate() {
        let shift = u32::try_from(at).ok()?.checked_mul(7)?;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((value, data.get(at.checked_add(1)?..)?));
        }
    }
    None
}

const V2_STORE: &[u8] = b"{\"Root\":{\"Path\":\"/\"";
const REGISTRY: &[u8] = b"/registry/";
/// Magic and version of a meta page.
const META: [u8; 8] = [0xED, 0xDA, 0x0C, 0xED, 2, 0, 0, 0];

/// What may begin at any byte of the first `len` bytes. Of Kubernetes' keys the first is told: there are thousands.
pub(super) fn anywhere(piece: &Piece<'_>, len: usize) -> Vec<Finding> {
    let mut found = Vec::new();
    let at = |place: usize| Piece {
        data: piece.data.get(place..).unwrap_or_default(),
        at: piece.at.saturating_add(place as u64),
        size: piece.size,
    };
    let within =
        |needle: &[u8]| piece.data.get(..len.saturating_add(needle.len()).saturating_sub(1)).unwrap_or(piece.data);
    if let Some(place) = memmem::find(within(V2_STORE), V2_STORE) {
        found.push(at(place).found(FindingKind::EtcdV2Store, Validated::Structure, "the store of etcd 2, as JSON"));
    }
    // The head of the page comes before the magic, and on a sector boundary it was seen already.
    for place in memmem::find_iter(within(&META), &META).filter_map(|magic| magic.checked_sub(PAGE_HEADER)) {
        if place % 512 != 0 {
            let page = at(place);
            found.extend(traces::bolt_meta(page.data, page.at));
        }
    }
    let keys: Vec<usize> = memmem::find_iter(within(REGISTRY), REGISTRY).take(64).collect();
    if let Some(place) = keys.iter().copied().find(|place| framed_key(piece.data, *place).is_some()) {
        let key = framed_key(piece.data, place).unwrap_or_default();
        found.push(at(place).found(
            FindingKind::EtcdKeys,
            Validated::Structure,
            format!("key {key} in a record of etcd"),
        ));
    } else if let Some(place) = keys.first() {
        found.push(at(*place).found(FindingKind::EtcdKeys, Validated::Magic, "the prefix of Kubernetes' keys"));
    }
    found
}

/// The key that begins at `place`, if it is the first field of a message, as in `mvccpb.KeyValue` and `PutRequest`: tag 0A,
/// its length, and so many printable bytes.
fn framed_key(data: &[u8], place: usize) -> Option<String> {
    let [tag, len] = array(data, place.checked_sub(2)?)?;
    let key = slice(data, place, usize::from(len))?;
    let right = tag == 0x0a && len < 0x80 && key.len() > REGISTRY.len() && key.iter().all(u8::is_ascii_graphic);
    right.then(|| String::from_utf8_lossy(key).into_owned())
}
