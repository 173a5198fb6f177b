//! Edits a `state` on the level of the wire format: the fields that are to change are written anew, and every other byte,
//! also of fields that nobody here knows, stays what it was and where it was.
//!
//! Written by hand and not by way of the decoder: prost drops what it does not know, and would write the rest in another
//! order. So the decoder can be asked afterwards whether the result says what it should.

use super::{StateError, parse_state};
use crate::model::{EtcdManagerState, StateEdit};

/// Field numbers of `etcd.EtcdState` and `etcd.EtcdCluster` (etcd-manager 17729ad9 `pkg/etcd/etcdserver.go`).
const NEW_CLUSTER: u64 = 1;
const CLUSTER: u64 = 2;
const ETCD_VERSION: u64 = 3;
const QUARANTINED: u64 = 4;
const CLUSTER_TOKEN: u64 = 5;

/// Wire types (protobuf's encoding).
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const BYTES: u8 = 2;
const FIXED_32: u8 = 5;

/// The file's content with the edit made. What says so already is returned byte for byte.
///
/// # Errors
/// What is no state, before or after; a state without nodes, with which etcd-manager could start no member.
pub fn edit_state(bytes: &[u8], edit: &StateEdit) -> Result<Vec<u8>, StateError> {
    let before = parse_state(bytes)?;
    if before.nodes.is_empty() {
        return Err(StateError::Edit { what: "it names no node, so etcd-manager could start no member with it" });
    }
    let StateEdit { token, version, new_cluster, quarantined } = edit;
    let mut edited = bytes.to_vec();
    if let Some(value) = new_cluster.filter(|value| *value != before.new_cluster) {
        edited = set(&edited, NEW_CLUSTER, flag(NEW_CLUSTER, value))?;
    }
    if let Some(token) = token.as_ref().filter(|token| before.cluster_token.as_ref() != Some(token)) {
        edited = set_token(&edited, token)?;
    }
    if let Some(version) = version.as_ref().filter(|version| before.etcd_version.as_ref() != Some(version)) {
        edited = set(&edited, ETCD_VERSION, text(ETCD_VERSION, version.as_bytes()))?;
    }
    if let Some(value) = quarantined.filter(|value| *value != before.quarantined) {
        edited = set(&edited, QUARANTINED, flag(QUARANTINED, value))?;
    }
    let wanted = EtcdManagerState {
        new_cluster: new_cluster.unwrap_or(before.new_cluster),
        cluster_token: token.clone().or_else(|| before.cluster_token.clone()),
        etcd_version: version.clone().or_else(|| before.etcd_version.clone()),
        quarantined: quarantined.unwrap_or(before.quarantined),
        ..before
    };
    if parse_state(&edited)? == wanted {
        Ok(edited)
    } else {
        Err(StateError::Edit { what: "read back, the edited one does not say what it should" })
    }
}

/// One field as it stands in the message.
struct Field<'a> {
    number: u64,
    kind: u8,
    /// Key and value.
    raw: &'a [u8],
    /// The value alone; of a string or message without its length.
    value: &'a [u8],
}

fn fields(mut rest: &[u8]) -> Result<Vec<Field<'_>>, StateError> {
    const CUT: StateError = StateError::Edit { what: "a field is cut" };
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let (key, after_key) = varint(rest).ok_or(CUT)?;
        let kind = u8::try_from(key & 7).unwrap_or(u8::MAX);
        let (value, after) = match kind {
            VARINT => {
                let (_, after) = varint(after_key).ok_or(CUT)?;
                (before(after_key, after), after)
            }
            FIXED_64 => after_key.split_at_checked(8).ok_or(CUT)?,
            BYTES => {
                let (length, after) = varint(after_key).ok_or(CUT)?;
                let length = usize::try_from(length).map_err(|_| CUT)?;
                after.split_at_checked(length).ok_or(CUT)?
            }
            FIXED_32 => after_key.split_at_checked(4).ok_or(CUT)?,
            // Groups are of earlier days.
            _other => return Err(StateError::Edit { what: "a field is encoded in a way that is not known" }),
        };
        fields.push(Field { number: key >> 3, kind, raw: before(rest, after), value });
        rest = after;
    }
    Ok(fields)
}

/// What of `whole` stands before its tail `rest`.
fn before<'a>(whole: &'a [u8], rest: &[u8]) -> &'a [u8] {
    whole.get(..whole.len().saturating_sub(rest.len())).unwrap_or_default()
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        let shift = u32::try_from(at).ok()?.checked_mul(7)?;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at.checked_add(1)?..)?));
        }
    }
    None
}

/// Puts `field` (an encoded one, or nothing, where the value is the default) in the place of the last one of that number;
/// earlier ones, which it overrules, go.
fn set(message: &[u8], number: u64, field: Vec<u8>) -> Result<Vec<u8>, StateError> {
    let fields = fields(message)?;
    let last = fields.iter().rposition(|field| field.number == number);
    let mut written = Vec::new();
    for (at, old) in fields.iter().enumerate() {
        if Some(at) == last {
            written.extend_from_slice(&field);
        } else if old.number != number {
            written.extend_from_slice(old.raw);
        }
    }
    if last.is_none() {
        written.extend_from_slice(&field);
    }
    Ok(written)
}

/// The token stands in the message `cluster`. Of several of those a decoder makes one: the last token counts.
fn set_token(message: &[u8], token: &str) -> Result<Vec<u8>, StateError> {
    let fields = fields(message)?;
    let last = fields.iter().rposition(|field| field.number == CLUSTER && field.kind == BYTES);
    let mut written = Vec::new();
    for (at, old) in fields.iter().enumerate() {
        if Some(at) == last {
            let cluster = set(old.value, CLUSTER_TOKEN, text(CLUSTER_TOKEN, token.as_bytes()))?;
            written.extend(text(CLUSTER, &cluster));
        } else {
            written.extend_from_slice(old.raw);
        }
    }
    if last.is_none() {
        return Err(StateError::Edit { what: "it has no cluster" });
    }
    Ok(written)
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    to.push(u8::try_from(value).unwrap_or(0));
}

/// A string or message. An empty one is the default, which is not written.
fn text(number: u64, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    if !value.is_empty() {
        put_varint(&mut field, number << 3 | u64::from(BYTES));
        put_varint(&mut field, value.len() as u64);
        field.extend_from_slice(value);
    }
    field
}

/// A bool. `false` is the default.
fn flag(number: u64, value: bool) -> Vec<u8> {
    let mut field = Vec::new();
    if value {
        put_varint(&mut field, number << 3 | u64::from(VARINT));
        field.push(1);
    }
    field
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;
    use crate::etcd::proto::{ManagerCluster, ManagerNode, ManagerState};
    use prost::Message;

    fn node() -> ManagerNode {
        ManagerNode {
            name: "etcd-a".into(),
            peer_urls: vec!["https://etcd-a.internal.x:2380".into()],
            client_urls: vec!["https://0.0.0.0:4001".into()],
            quarantined_client_urls: vec!["https://0.0.0.0:3994".into()],
            tls_enabled: true,
        }
    }

    fn state() -> ManagerState {
        ManagerState {
            new_cluster: true,
            cluster: Some(ManagerCluster {
                desired_cluster_size: 3,
                cluster_token: "ckDjqRPhIBJGj0dtx6qVlw".into(),
                nodes: vec![node()],
            }),
            etcd_version: "3.1.12".into(),
            quarantined: true,
        }
    }

    /// Back to the old cluster.
    fn back() -> StateEdit {
        StateEdit {
            token: Some("etcd-cluster-token-etcd".into()),
            version: Some("2.2.1".into()),
            new_cluster: Some(false),
            quarantined: Some(false),
        }
    }

    #[test]
    fn another_decoder_reads_what_was_set_and_all_else_as_it_was() {
        let edited = edit_state(&state().encode_to_vec(), &back()).unwrap();
        let read = ManagerState::decode(edited.as_slice()).unwrap();
        let mut wanted = state();
        wanted.new_cluster = false;
        wanted.quarantined = false;
        wanted.etcd_version = "2.2.1".into();
        wanted.cluster.as_mut().unwrap().cluster_token = "etcd-cluster-token-etcd".into();
        assert_eq!(read, wanted);
        // And there again: the same bytes, since what etcd-manager writes is in order of field numbers.
        let forth = StateEdit {
            token: Some("ckDjqRPhIBJGj0dtx6qVlw".into()),
            version: Some("3.1.12".into()),
            ..StateEdit::default()
        };
        let kept = StateEdit { token: back().token, version: back().version, ..StateEdit::default() };
        let once = edit_state(&state().encode_to_vec(), &kept).unwrap();
        assert_eq!(edit_state(&once, &forth).unwrap(), state().encode_to_vec());
    }

    #[test]
    fn what_nobody_knows_stays_byte_for_byte_and_where_it_was() {
        // Fields 20 (text), 21 (a number of ten bytes), 22 and 23 (fixed), in the state; 40 in its cluster, behind the token.
        let text_20 = [&[0xa2, 0x01, 0x03][..], b"abc"].concat();
        let number_21 = [0xa8, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01].to_vec();
        let fixed_22 = [0xb1, 0x01, 1, 2, 3, 4, 5, 6, 7, 8].to_vec();
        let fixed_23 = [0xbd, 0x01, 9, 8, 7, 6].to_vec();
        let text_40 = [&[0xc2, 0x02, 0x02][..], b"zz"].concat();
        let cluster = [state().cluster.unwrap().encode_to_vec(), text_40.clone()].concat();
        let build = |new: &[u8], cluster: &[u8], version: &str| {
            let cluster = text(CLUSTER, cluster);
            [&text_20[..], new, &number_21, &cluster, &fixed_22, &text(ETCD_VERSION, version.as_bytes()), &fixed_23]
                .concat()
        };
        let before = build(&[0x08, 0x01], &cluster, "3.1.12");
        let edit = StateEdit { quarantined: None, ..back() };
        let after = edit_state(&before, &edit).unwrap();
        let mut moved = state().cluster.unwrap();
        moved.cluster_token = "etcd-cluster-token-etcd".into();
        assert_eq!(after, build(&[], &[moved.encode_to_vec(), text_40].concat(), "2.2.1"));
        assert_eq!(edit_state(&after, &edit).unwrap(), after, "an edit that is made already changes a byte");
        assert_eq!(edit_state(&before, &StateEdit::default()).unwrap(), before);
    }

    #[test]
    fn of_a_field_that_stands_there_twice_the_last_one_counts_and_is_set() {
        let twice = [state().encode_to_vec(), text(ETCD_VERSION, b"3.4.3")].concat();
        let edit = StateEdit { version: Some("2.2.1".into()), ..StateEdit::default() };
        let after = edit_state(&twice, &edit).unwrap();
        assert_eq!(ManagerState::decode(after.as_slice()).unwrap().etcd_version, "2.2.1");
    }

    #[test]
    fn what_would_lead_nowhere_is_refused() {
        let stopped = edit_state(b"", &back()).unwrap_err();
        assert!(matches!(stopped, StateError::Edit { .. }), "{stopped}");
        for token in ["..", "a/b", "a\nb"] {
            let edit = StateEdit { token: Some(token.into()), ..StateEdit::default() };
            assert!(edit_state(&state().encode_to_vec(), &edit).is_err(), "{token:?}");
        }
        let good = state().encode_to_vec();
        for cut in 1..good.len() {
            // Whatever the answer is, it must come back; and where there is one, it must say what was asked for.
            if let Ok(edited) = edit_state(&good[..cut], &back()) {
                assert_eq!(parse_state(&edited).unwrap().cluster_token, back().token, "cut at {cut}");
            }
        }
    }
}
