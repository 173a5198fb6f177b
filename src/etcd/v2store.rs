//! The v2 store inside a `.snap` file: one JSON document, read as a stream.
//!
//! `{"Root": node, "WatcherHub": {…}, "CurrentIndex": n, …}` with node = `{"Path", "Value", "Children": {name: node} | null,
//! …}` (etcd v2.3.8 `store/{store,node}.go`; 3.x writes the same). `/1/…` are the user's keys, `/0/…` the cluster's own.
//! The document can be hundreds of MiB and as deep as somebody's keys, so nothing of it is kept but counts and members, and
//! nothing recurses.

use super::read_at::{ReadAt, ReadError, Stream};
use crate::model::{Member, MemberId};
use std::collections::BTreeMap;

/// Longest text that is kept to be looked at; members' attributes are far shorter.
const KEEP: usize = 16 * 1024;
/// Deepest nesting that is followed; a key of a kilobyte has at most a thousand levels of two each.
const MAX_DEPTH: usize = 20_000;
const MAX_MEMBERS: usize = 10_000;

/// What the store says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct V2Store {
    /// Keys of users: nodes below `/1` that are no directories.
    pub user_keys: u64,
    pub members: Vec<Member>,
    pub removed: Vec<MemberId>,
    /// `/0/version`
    pub cluster_version: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum V2StoreError {
    #[error("the store cannot be read")]
    Read(#[source] ReadError),
    #[error("the store is no JSON of a v2 store: {what} at byte {at}")]
    Json { what: &'static str, at: u64 },
}

/// What a value means, by where it stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Document,
    Node,
    Children,
    Other,
}

struct Frame {
    object: bool,
    role: Role,
    /// The key whose value comes next (objects only).
    key: Vec<u8>,
    path: Vec<u8>,
    value: Vec<u8>,
    leaf: bool,
}

impl Frame {
    fn new(object: bool, role: Role) -> Self {
        Frame { object, role, key: Vec::new(), path: Vec::new(), value: Vec::new(), leaf: false }
    }
}

/// Reads a store that is all there is in `from`.
pub fn read_v2_store(from: &dyn ReadAt) -> Result<V2Store, V2StoreError> {
    let failed = |source| V2StoreError::Read(ReadError::Io { offset: 0, len: 0, source });
    read(Stream::new(from, 0, from.size().map_err(failed)?))
}

/// Reads the store from `stream`, to its end.
pub fn read(stream: Stream<'_>) -> Result<V2Store, V2StoreError> {
    let mut scanner = Scanner { stream, at: 0, ahead: None };
    let mut store = Collected::default();
    let mut stack: Vec<Frame> = Vec::new();
    let mut done = false;
    while let Some(byte) = scanner.token()? {
        if done {
            return Err(scanner.bad("something after the document"));
        }
        match byte {
            b'{' | b'[' => {
                if stack.len() >= MAX_DEPTH {
                    return Err(scanner.bad("too many levels"));
                }
                let object = byte == b'{';
                let role = match stack.last() {
                    None if object => Role::Document,
                    Some(parent) if object => match (parent.role, parent.key.as_slice()) {
                        (Role::Document, b"Root") => Role::Node,
                        (Role::Node, b"Children") => Role::Children,
                        (Role::Children, _) => Role::Node,
                        (Role::Document | Role::Node | Role::Other, _) => Role::Other,
                    },
                    None | Some(_) => Role::Other,
                };
                stack.push(Frame::new(object, role));
                if object {
                    scanner.key_or_end(&mut stack)?;
                }
                continue;
            }
            b'}' | b']' => {
                let Some(frame) = stack.pop() else { return Err(scanner.bad("an end without a begin")) };
                if frame.object != (byte == b'}') {
                    return Err(scanner.bad("an end of another kind"));
                }
                if frame.role == Role::Node && frame.leaf {
                    store.leaf(&frame.path, &frame.value);
                }
            }
            b'"' => {
                let text = scanner.text()?;
                if let Some(frame) = stack.last_mut()
                    && frame.role == Role::Node
                {
                    match frame.key.as_slice() {
                        b"Path" => frame.path = text,
                        b"Value" => frame.value = text,
                        _ => {}
                    }
                }
            }
            b't' | b'f' | b'n' | b'-' | b'0'..=b'9' => {
                let word = scanner.word(byte)?;
                if let Some(frame) = stack.last_mut()
                    && frame.role == Role::Node
                    && frame.key == b"Children"
                    && word == b"null"
                {
                    frame.leaf = true;
                }
            }
            _ => return Err(scanner.bad("an unexpected byte")),
        }
        // A value has ended: a comma, or the end of what holds it.
        match stack.last() {
            None => done = true,
            Some(frame) => {
                let object = frame.object;
                match scanner.token()? {
                    Some(b',') if object => scanner.key(&mut stack)?,
                    Some(b',') => {}
                    Some(end @ (b'}' | b']')) => scanner.ahead = Some(end),
                    Some(_) | None => return Err(scanner.bad("neither a comma nor an end")),
                }
            }
        }
    }
    if !done {
        return Err(scanner.bad("the document is cut"));
    }
    Ok(store.finish())
}

#[derive(Default)]
struct Collected {
    store: V2Store,
    members: BTreeMap<MemberId, Member>,
}

#[derive(serde::Deserialize)]
struct RaftAttributes {
    #[serde(default, rename = "peerURLs")]
    peer_urls: Option<Vec<String>>,
    #[serde(default, rename = "isLearner")]
    learner: bool,
}

#[derive(serde::Deserialize)]
struct Attributes {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "clientURLs")]
    client_urls: Option<Vec<String>>,
}

impl Collected {
    /// A node that is no directory. Both texts are still as JSON writes them.
    fn leaf(&mut self, path: &[u8], value: &[u8]) {
        if path.starts_with(b"/1/") {
            self.store.user_keys = self.store.user_keys.saturating_add(1);
            return;
        }
        let Ok(path) = std::str::from_utf8(path) else { return };
        let text = |raw: &[u8]| serde_json::from_slice::<String>(&[b"\"", raw, b"\""].concat()).ok();
        if path == "/0/version" {
            self.store.cluster_version = text(value);
        } else if let Some(id) = path.strip_prefix("/0/removed_members/") {
            if let Ok(id) = id.parse()
                && self.store.removed.len() < MAX_MEMBERS
            {
                self.store.removed.push(id);
            }
        } else if let Some((id, what)) = path.strip_prefix("/0/members/").and_then(|rest| rest.split_once('/'))
            && let Ok(id) = id.parse::<MemberId>()
            && (self.members.len() < MAX_MEMBERS || self.members.contains_key(&id))
        {
            let blank =
                Member { id, name: String::new(), peer_urls: Vec::new(), client_urls: Vec::new(), learner: false };
            let member = self.members.entry(id).or_insert(blank);
            let json = text(value).unwrap_or_default();
            if what == "raftAttributes" {
                if let Ok(found) = serde_json::from_str::<RaftAttributes>(&json) {
                    member.peer_urls = found.peer_urls.unwrap_or_default();
                    member.learner = found.learner;
                }
            } else if what == "attributes"
                && let Ok(found) = serde_json::from_str::<Attributes>(&json)
            {
                member.name = found.name;
                member.client_urls = found.client_urls.unwrap_or_default();
            }
        }
    }

    fn finish(mut self) -> V2Store {
        self.store.members = self.members.into_values().collect();
        self.store
    }
}

struct Scanner<'a> {
    stream: Stream<'a>,
    at: u64,
    ahead: Option<u8>,
}

impl Scanner<'_> {
    fn bad(&self, what: &'static str) -> V2StoreError {
        V2StoreError::Json { what, at: self.at }
    }

    fn byte(&mut self) -> Result<Option<u8>, V2StoreError> {
        if let Some(byte) = self.ahead.take() {
            return Ok(Some(byte));
        }
        self.at = self.at.saturating_add(1);
        self.stream.next_byte().map_err(V2StoreError::Read)
    }

    /// The next byte that is no white space.
    fn token(&mut self) -> Result<Option<u8>, V2StoreError> {
        loop {
            match self.byte()? {
                Some(b' ' | b'\t' | b'\r' | b'\n') => {}
                other => return Ok(other),
            }
        }
    }

    /// The rest of a string, as written, at most [`KEEP`] bytes of it.
    fn text(&mut self) -> Result<Vec<u8>, V2StoreError> {
        let mut kept = Vec::new();
        let mut escaped = false;
        loop {
            let Some(byte) = self.byte()? else { return Err(self.bad("a string that is cut")) };
            if byte == b'"' && !escaped {
                return Ok(kept);
            }
            escaped = byte == b'\\' && !escaped;
            if kept.len() < KEEP {
                kept.push(byte);
            }
        }
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self, first: u8) -> Result<Vec<u8>, V2StoreError> {
        let mut word = vec![first];
        loop {
            match self.byte()? {
                Some(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-') => {
                    if word.len() > 64 {
                        return Err(self.bad("a word without end"));
                    }
                    word.push(byte);
                }
                Some(byte) => {
                    self.ahead = Some(byte);
                    return Ok(word);
                }
                None => return Ok(word),
            }
        }
    }

    fn key_or_end(&mut self, stack: &mut [Frame]) -> Result<(), V2StoreError> {
        match self.token()? {
            Some(b'}') => {
                self.ahead = Some(b'}');
                Ok(())
            }
            Some(b'"') => self.rest_of_key(stack),
            Some(_) | None => Err(self.bad("no key where one belongs")),
        }
    }

    fn key(&mut self, stack: &mut [Frame]) -> Result<(), V2StoreError> {
        match self.token()? {
            Some(b'"') => self.rest_of_key(stack),
            Some(_) | None => Err(self.bad("no key where one belongs")),
        }
    }

    fn rest_of_key(&mut self, stack: &mut [Frame]) -> Result<(), V2StoreError> {
        let key = self.text()?;
        if self.token()? != Some(b':') {
            return Err(self.bad("no colon after a key"));
        }
        if let Some(frame) = stack.last_mut() {
            frame.key = key;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;

    fn read_text(json: &str) -> Result<V2Store, V2StoreError> {
        let bytes = json.as_bytes();
        read(Stream::new(&bytes, 0, bytes.len() as u64))
    }

    const STORE: &str = r#"{"Root":{"Path":"/","Value":"","Children":{
        "0":{"Path":"/0","Children":{
            "version":{"Path":"/0/version","Value":"2.2.0","Children":null},
            "members":{"Path":"/0/members","Children":{"1f":{"Path":"/0/members/1f","Children":{
                "attributes":{"Path":"/0/members/1f/attributes","Value":"{\"name\":\"etcd-a\",\"clientURLs\":[\"http://c\"]}","Children":null},
                "raftAttributes":{"Path":"/0/members/1f/raftAttributes","Value":"{\"peerURLs\":[\"http://p\"]}","Children":null}}}}},
            "removed_members":{"Path":"/0/removed_members","Children":{"2e":{"Path":"/0/removed_members/2e","Value":"removed","Children":null}}}}},
        "1":{"Path":"/1","Children":{
            "a":{"Path":"/1/a","Value":"x\"}{","Children":null},
            "dir":{"Path":"/1/dir","Children":{"b":{"Path":"/1/dir/b","Value":"","Children":null}}},
            "empty":{"Path":"/1/empty","Children":{}}}}}},
        "WatcherHub":{"Path":"/1/ghost","Children":null,"EventHistory":{"Queue":{"Events":[{"node":{"Path":"/1/ghost","Children":null}}]}}},"CurrentIndex":9}"#;

    #[test]
    fn user_keys_and_members_are_found_and_history_is_not_counted() {
        let store = read_text(STORE).unwrap();
        assert_eq!(store.user_keys, 2);
        assert_eq!(store.cluster_version.as_deref(), Some("2.2.0"));
        assert_eq!(store.removed, [MemberId(0x2e)]);
        let member = store.members.first().unwrap();
        assert_eq!((member.id, member.name.as_str()), (MemberId(0x1f), "etcd-a"));
        assert_eq!(
            (member.peer_urls.as_slice(), member.client_urls.as_slice()),
            (&["http://p".to_owned()][..], &["http://c".to_owned()][..])
        );
    }

    #[test]
    fn a_document_cut_anywhere_is_an_error() {
        for end in 0..STORE.len() {
            if STORE.is_char_boundary(end) {
                assert!(read_text(&STORE[..end]).is_err(), "cut at {end}");
            }
        }
    }

    #[test]
    fn nesting_without_end_is_an_error_and_not_an_overflow() {
        assert!(read_text(&"[".repeat(1 << 20)).is_err());
        assert!(read_text(&r#"{"Root":"#.repeat(100_000)).is_err());
    }
}
