//! What one entry of the log asks for, and which version of etcd is the least that understands it.
//!
//! Both are read from the encoded message, field by field, so that nothing has to be declared that is not asked about.
//! Which field came with which version is what etcd's own messages say of themselves (the options `etcd_version_msg`,
//! `_field` and `_enum_value` of etcd v3.6.12 `api/etcdserverpb/*.proto`, `api/membershippb/membership.proto`; the rule is
//! `server/storage/wal/version.go`). etcd 3.6 does not lower the version of its storage while the log holds anything newer.

use super::bytes::{slice, varint};
use super::proto::{InternalRaftRequest, RaftEntry, V2Request};
use crate::model::EntryKind;
use prost::Message;

/// A field that tells something, or leads to one that does. All others came with 3.0.
struct Field {
    number: u64,
    /// Minor version of etcd 3 that brought it.
    since: u8,
    inner: Inner,
}

enum Inner {
    Plain,
    Message(&'static [Field]),
    /// Values of an enumeration that are younger than it.
    Values(&'static [(u64, u8)]),
}

const fn since(number: u64, since: u8) -> Field {
    Field { number, since, inner: Inner::Plain }
}

const fn message(number: u64, fields: &'static [Field]) -> Field {
    Field { number, since: 0, inner: Inner::Message(fields) }
}

/// `InternalRaftRequest`: what a normal entry carries.
static REQUEST: [Field; 14] = [
    message(3, &RANGE),
    message(4, &PUT),
    message(5, &DELETE_RANGE),
    message(6, &TXN),
    message(10, &ALARM),
    since(11, 4),
    message(100, &[since(3, 1)]),
    since(1013, 5),
    message(1100, &[since(3, 4), since(4, 5)]),
    message(1103, &[since(3, 5)]),
    since(1300, 5),
    since(1301, 5),
    since(1302, 5),
    since(9900, 6),
];
/// Bounds by revision.
static RANGE: [Field; 4] = [since(10, 1), since(11, 1), since(12, 1), since(13, 1)];
/// `prev_kv`, `ignore_value`, `ignore_lease`.
static PUT: [Field; 3] = [since(4, 1), since(5, 2), since(6, 2)];
/// `prev_kv`.
static DELETE_RANGE: [Field; 1] = [since(3, 1)];
static TXN: [Field; 3] = [message(1, &COMPARE), message(2, &OPERATION), message(3, &OPERATION)];
/// `NOT_EQUAL`, `LEASE`, and the lease and `range_end` compared with.
static COMPARE: [Field; 4] = [
    Field { number: 1, since: 0, inner: Inner::Values(&[(3, 1)]) },
    Field { number: 2, since: 0, inner: Inner::Values(&[(4, 3)]) },
    since(8, 3),
    since(64, 3),
];
static OPERATION: [Field; 4] = [
    message(1, &RANGE),
    message(2, &PUT),
    message(3, &DELETE_RANGE),
    Field { number: 4, since: 3, inner: Inner::Message(&TXN) },
];
/// `CORRUPT`.
static ALARM: [Field; 1] = [Field { number: 3, since: 0, inner: Inner::Values(&[(2, 3)]) }];

/// A transaction in a transaction in a transaction … is not looked into further; etcd takes no request of that depth.
const DEEPEST: usize = 64;
/// `InternalRaftRequest.v2`; and `Request.Method` of the bare request of the v2 API that 2.x wrote instead of one.
const V2: u64 = 2;

/// What is known of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub kind: EntryKind,
    /// Minor version of etcd 3 that it takes at least.
    pub since: u8,
}

/// Reads an entry whose checksum was right.
pub(super) fn told(entry: &RaftEntry) -> Told {
    match entry.kind {
        0 if entry.data.is_empty() => Told { kind: EntryKind::Empty, since: 0 },
        0 => normal(&entry.data),
        1 => Told { kind: EntryKind::Membership, since: 0 },
        // `ConfChangeV2`; etcd itself has never written one.
        2 => Told { kind: EntryKind::Membership, since: 4 },
        _ => Told { kind: EntryKind::Unknown, since: 0 },
    }
}

/// A request of the v2 API that etcd 3.6 does not start on: any but a member's attributes and the cluster version (etcd
/// v3.6.12 `server/etcdserver/apply_v2.go`, `v2ToV3Request`).
pub(super) fn refused_v2(entry: &RaftEntry) -> bool {
    if entry.kind != 0 || !fields(&entry.data).is_some_and(|parts| parts.iter().any(|part| part.number == V2)) {
        return false;
    }
    // As `server.applyEntryNormal`: the message of the v3 API first, then a bare request of the v2 API.
    let request = match InternalRaftRequest::decode(entry.data.as_slice()) {
        Ok(request) => request.v2,
        Err(_) => V2Request::decode(entry.data.as_slice()).ok(),
    };
    request.is_some_and(|request| {
        !(request.method == b"PUT" && (request.path == b"/0/version" || is_attributes(&request.path)))
    })
}

/// `/0/members/ID/attributes`
fn is_attributes(path: &[u8]) -> bool {
    path.strip_prefix(b"/0/members/").is_some_and(|rest| rest.ends_with(b"/attributes"))
}

/// The message of the v3 API, or, as 2.x wrote it, a bare request of the v2 API (`server.applyEntryNormal`).
fn normal(data: &[u8]) -> Told {
    let Some(parts) = fields(data) else { return Told { kind: EntryKind::Unknown, since: 0 } };
    if is_bare(&parts) {
        return Told { kind: EntryKind::V2, since: 0 };
    }
    let kind = parts.iter().find_map(|part| kind_of(part.number)).unwrap_or(EntryKind::Unknown);
    Told { kind, since: youngest(data) }
}

fn kind_of(field: u64) -> Option<EntryKind> {
    Some(match field {
        V2 => EntryKind::V2,
        3 => EntryKind::Range,
        4 => EntryKind::Put,
        5 => EntryKind::DeleteRange,
        6 => EntryKind::Txn,
        7 => EntryKind::Compaction,
        8 | 9 | 11 => EntryKind::Lease,
        10 => EntryKind::Alarm,
        1000..=1299 => EntryKind::Auth,
        1300 => EntryKind::ClusterVersion,
        1301 => EntryKind::Membership,
        1302 | 9900 => EntryKind::Downgrade,
        _ => return None,
    })
}

/// Its method is one of the words that the v2 API has; a message in that place never begins like one.
fn is_bare(parts: &[Part<'_>]) -> bool {
    let method = parts.iter().find(|part| part.number == V2).and_then(|part| part.bytes);
    method.is_some_and(|method| matches!(method, b"PUT" | b"POST" | b"DELETE" | b"QGET" | b"SYNC" | b"GET"))
}

/// One field as encoded: its bytes where it has a length, else its number.
struct Part<'a> {
    number: u64,
    bytes: Option<&'a [u8]>,
    value: u64,
}

/// Takes a message apart; `None`: it is none.
fn fields(data: &[u8]) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    let mut at = 0_usize;
    while at < data.len() {
        let (tag, used) = varint(data, at)?;
        at = at.checked_add(used)?;
        let (number, mut bytes, mut value) = (tag >> 3, None, 0);
        match tag & 7 {
            0 => {
                let (found, used) = varint(data, at)?;
                value = found;
                at = at.checked_add(used)?;
            }
            1 => at = at.checked_add(8)?,
            5 => at = at.checked_add(4)?,
            2 => {
                let (len, used) = varint(data, at)?;
                at = at.checked_add(used)?;
                let len = usize::try_from(len).ok()?;
                bytes = Some(slice(data, at, len)?);
                at = at.checked_add(len)?;
            }
            _ => return None,
        }
        if at > data.len() || number == 0 {
            return None;
        }
        parts.push(Part { number, bytes, value });
    }
    Some(parts)
}

/// The youngest field or value in the request. The stack holds what is still to be looked into: no recursion on what the
/// disk says.
fn youngest(data: &[u8]) -> u8 {
    let mut since = 0;
    let mut stack: Vec<(&[u8], &'static [Field], usize)> = vec![(data, &REQUEST, 0)];
    while let Some((bytes, known, depth)) = stack.pop() {
        for part in fields(bytes).unwrap_or_default() {
            let Some(field) = known.iter().find(|field| field.number == part.number) else { continue };
            since = since.max(field.since);
            match &field.inner {
                Inner::Plain => {}
                Inner::Message(inner) => {
                    if let Some(bytes) = part.bytes
                        && depth < DEEPEST
                    {
                        stack.push((bytes, inner, depth.saturating_add(1)));
                    }
                }
                Inner::Values(values) => {
                    let young = values.iter().find(|(value, _)| *value == part.value).map_or(0, |(_, since)| *since);
                    since = since.max(young);
                }
            }
        }
    }
    since
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;

    /// One field with a length.
    fn part(number: u64, content: &[u8]) -> Vec<u8> {
        let mut out = prefix(number << 3 | 2);
        out.extend(prefix(content.len() as u64));
        out.extend(content);
        out
    }

    fn number(number: u64, value: u64) -> Vec<u8> {
        [prefix(number << 3), prefix(value)].concat()
    }

    fn prefix(mut value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    }

    fn read(data: &[u8]) -> (&'static str, u8) {
        let told = told(&RaftEntry { kind: 0, term: 1, index: 1, data: data.to_vec() });
        (told.kind.as_str(), told.since)
    }

    #[test]
    fn each_request_is_told_by_its_field_whatever_header_comes_before() {
        let header = part(100, &number(1, 7));
        let with = |field: u64| read(&[&header[..], &part(field, b"")].concat());
        let requests = [
            (2, "v2", 0),
            (3, "range", 0),
            (4, "put", 0),
            (5, "delete-range", 0),
            (6, "txn", 0),
            (7, "compaction", 0),
            (8, "lease", 0),
            (10, "alarm", 0),
            (11, "lease", 4),
            (1013, "auth", 5),
            (1201, "auth", 0),
            (1300, "cluster-version", 5),
            (1301, "membership", 5),
            (1302, "downgrade", 5),
            (9900, "downgrade", 6),
        ];
        for (field, kind, since) in requests {
            assert_eq!(with(field), (kind, since), "field {field}");
        }
        assert_eq!(with(77), ("unknown", 0));
        assert_eq!(read(b""), ("empty", 0));
        assert_eq!(read(&[0xff; 5]), ("unknown", 0));
        let change = |kind| told(&RaftEntry { kind, term: 1, index: 1, data: vec![8, 1] });
        assert_eq!(change(1), Told { kind: EntryKind::Membership, since: 0 });
        assert_eq!(change(2), Told { kind: EntryKind::Membership, since: 4 });
        assert_eq!(change(9), Told { kind: EntryKind::Unknown, since: 0 });
    }

    #[test]
    fn a_bare_request_of_the_v2_api_is_one_though_its_path_stands_where_a_range_would() {
        let bare = [number(1, 5), part(2, b"PUT"), part(3, b"/1/registry/pods/a"), part(4, b"{}")].concat();
        assert_eq!(read(&bare), ("v2", 0));
        assert_eq!(read(&part(2, &bare)), ("v2", 0), "and wrapped in a message of the v3 API");
    }

    #[test]
    fn the_youngest_field_or_value_counts_however_deep_it_lies() {
        assert_eq!(read(&[part(100, &number(3, 2)), part(4, b"")].concat()), ("put", 1), "auth_revision");
        assert_eq!(read(&part(4, &number(5, 1))), ("put", 2), "ignore_value");
        assert_eq!(read(&part(4, &number(3, 1))), ("put", 0), "a lease");
        assert_eq!(read(&part(10, &number(3, 1))), ("alarm", 0), "NOSPACE");
        assert_eq!(read(&part(10, &number(3, 2))), ("alarm", 3), "CORRUPT");
        let compare = |inner: Vec<u8>| read(&part(6, &part(1, &inner)));
        assert_eq!(compare(number(1, 3)), ("txn", 1), "NOT_EQUAL");
        assert_eq!(compare(number(2, 4)), ("txn", 3), "LEASE");
        assert_eq!(compare([number(1, 2), number(2, 2)].concat()), ("txn", 0));
        let put = part(2, &part(2, &number(6, 1)));
        assert_eq!(read(&part(6, &put)), ("txn", 2), "ignore_lease in a transaction");
        assert_eq!(read(&part(6, &part(2, &part(4, &put)))), ("txn", 3), "a transaction in it");
    }

    #[test]
    fn a_request_that_nests_without_end_is_read_to_a_depth_and_no_further() {
        let mut data = part(1, b"");
        for _ in 0..5000 {
            data = part(3, &part(4, &data));
        }
        assert_eq!(read(&part(6, &data)), ("txn", 3));
    }
}
