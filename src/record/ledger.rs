//! The form of a ledger, on the node and on the volume alike. Pure: bytes in, facts out, and the other way round.
//!
//! A ledger is a row of frames, one for each entry, only ever appended to:
//!
//! ```text
//! offset  size
//!      0     8  magic  89 'v' 'h' 'L' 0d 0a 1a 01   (the last byte is the version of this layout)
//!      8     1  flags  bit 0: must understand
//!      9     3  zero, room for later (covered by CRC and hash, not looked at)
//!     12     4  length of the payload, little endian, 1 to 64 KiB
//!     16    32  hash of the frame before; zeros in the first frame
//!     48     n  payload: the entry as JSON
//!   48+n     4  CRC32C over everything before it, little endian
//! ```
//!
//! * Each frame has a magic of its own, so that a good frame *after* a bad one is found: that is the difference between a
//!   torn append (nothing follows: the writer died) and a ledger that somebody damaged. The magic cannot stand inside a
//!   payload: JSON escapes control characters.
//! * The hash of a frame is SHA-256 over all of it but the CRC. It chains frames; a frame that was cut out, put in or
//!   moved breaks the chain.
//! * An [`EntryId`] is taken from the *payload's* hash alone. So the same entry, written to both ledgers, has one id, and
//!   keeps it when a ledger is rewritten ([`compact`]). [`fold`](mod@crate::record::fold) builds on that.
//! * A kind that this version does not know is skipped, unless its frame says that it must be understood.
//! * A torn append can never be longer than one frame. A longer unreadable tail is a ledger that lost its content, and
//!   is told as broken. (A tail of zeros is what a power cut leaves where the size was written and the data was not.)

use crate::model::{Entry, EntryId, Fact, Reason, ReasonCode};
use sha2::{Digest, Sha256};

pub mod compact;

pub use compact::{compact, plan_rewrite};

/// First bytes of every frame.
pub const MAGIC: [u8; 8] = [0x89, b'v', b'h', b'L', b'\r', b'\n', 0x1a, 0x01];
/// Largest payload. Every entry is far smaller; a length field beyond this is damage.
pub const MAX_PAYLOAD: usize = 64 * 1024;
/// Largest ledger that is looked at. Ledgers are rewritten at 1 MiB.
pub const MAX_LEDGER: usize = 64 * 1024 * 1024;
/// The longest unreadable tail that one interrupted append can leave: a frame, and the rest of its last page in zeros.
pub const MAX_TORN: usize = HEADER + MAX_PAYLOAD + TRAILER + 4096;

const HEADER: usize = 48;
const TRAILER: usize = 4;
const MUST_UNDERSTAND: u8 = 1;
/// How many places that look like a frame are tried after a bad one; more of them than this is no torn append.
const MAX_CANDIDATES: usize = 4096;
/// fsck may say a lot; the first part names the cause.
const MAX_TOOL_OUTPUT: usize = 8 * 1024;

/// The hash that a frame carries of the one before it.
pub type Hash = [u8; 32];

/// What stands before the first frame.
pub const NO_HASH: Hash = [0; 32];

/// A ledger as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// Every entry that this version understands, oldest first.
    pub entries: Vec<(EntryId, Entry)>,
    /// Hash of the last good frame: what the next one must carry.
    pub last_hash: Hash,
    /// Length of the good part. An append starts here.
    pub valid_len: usize,
    /// What an interrupted append left behind the good part.
    pub torn: Option<TornAt>,
    /// Intact frames of kinds that this version does not know.
    pub skipped_unknown: usize,
}

/// The rest of an append that was interrupted: to be cut, and told; no reason to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TornAt {
    pub offset: usize,
    pub len: usize,
}

/// The ledger cannot be trusted: something was changed in it, not only cut off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerBroken {
    #[error("bad frame at offset {bad} although a good one follows at {good}")]
    BadBeforeGood { bad: usize, good: usize },
    #[error("the frame at offset {offset} does not continue the one before it")]
    Chain { offset: usize },
    #[error(
        "no readable frame in the last {len} bytes, from offset {offset}: more than one interrupted write can leave"
    )]
    LongTail { offset: usize, len: usize },
    #[error("the entry at offset {offset} is of the kind `{kind}`, which this version does not understand but must")]
    MustUnderstand { offset: usize, kind: String },
    #[error("the frame at offset {offset} is intact but its payload is no JSON")]
    NotJson { offset: usize },
    #[error("the ledger has {len} bytes, more than volhold ever writes")]
    TooLarge { len: usize },
}

impl LedgerBroken {
    /// Where in the ledger it breaks.
    pub fn offset(&self) -> usize {
        match self {
            LedgerBroken::BadBeforeGood { bad, .. } => *bad,
            LedgerBroken::Chain { offset }
            | LedgerBroken::LongTail { offset, .. }
            | LedgerBroken::MustUnderstand { offset, .. }
            | LedgerBroken::NotJson { offset } => *offset,
            LedgerBroken::TooLarge { .. } => 0,
        }
    }

    /// The reason to hold. `place` is the ledger's path, or "on the volume".
    pub fn reason(&self, place: &str) -> Reason {
        let message = match self {
            LedgerBroken::MustUnderstand { kind, .. } => format!(
                "the ledger {place} holds an entry (`{kind}`, at byte {}) that a newer volhold wrote and this one must not ignore: install the newer version again",
                self.offset()
            ),
            LedgerBroken::BadBeforeGood { .. }
            | LedgerBroken::Chain { .. }
            | LedgerBroken::LongTail { .. }
            | LedgerBroken::NotJson { .. }
            | LedgerBroken::TooLarge { .. } => format!(
                "the ledger {place} was damaged at byte {}: {self}; what it remembered about this volume cannot be trusted",
                self.offset()
            ),
        };
        Reason::new(ReasonCode::LedgerBroken, message)
            .with_detail(serde_json::json!({ "place": place, "offset": self.offset() }))
    }
}

/// One encoded entry, ready to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub bytes: Vec<u8>,
    pub id: EntryId,
    /// What the frame after this one must carry.
    pub hash: Hash,
}

/// An entry cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("the entry has {len} bytes, more than a ledger frame may hold ({MAX_PAYLOAD})")]
    TooLarge { len: usize },
    #[error("the entry does not encode as JSON")]
    Json(#[source] serde_json::Error),
}

/// An append cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("the ledger is broken")]
    Broken(#[source] LedgerBroken),
    #[error("the entry cannot be written")]
    Encode(#[source] EncodeError),
}

/// What to do to the bytes of a ledger so that it holds one entry more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendPlan {
    /// Cut the file to this length first, when it is longer: what lies beyond is the rest of an interrupted append.
    pub cut_to: u64,
    /// Then append these, in one write.
    pub bytes: Vec<u8>,
    pub id: EntryId,
}

/// The id of an entry: first 16 hex digits of the SHA-256 of its payload.
fn entry_id(payload: &[u8]) -> EntryId {
    let digest = Sha256::digest(payload);
    EntryId(hex(digest.get(..8).unwrap_or(&digest)))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Which facts a version that does not know them must not step over: those whose absence could let an etcd start or a
/// volume be formatted.
fn must_understand(fact: &Fact) -> bool {
    match fact {
        Fact::FormatIntent { .. }
        | Fact::Formatted { .. }
        | Fact::FreshAllowed { .. }
        | Fact::Pinned { .. }
        | Fact::HoldsData { .. }
        | Fact::IdentityChanged { .. }
        | Fact::Adopted { .. } => true,
        Fact::Released { .. }
        | Fact::Retried
        | Fact::Unpinned { .. }
        | Fact::Ordered { .. }
        | Fact::Carried { .. }
        | Fact::Enabled { .. }
        | Fact::Disabled
        | Fact::Bypassed { .. }
        | Fact::Fsck { .. }
        | Fact::NotChecked { .. }
        | Fact::Snapshot { .. }
        | Fact::Grow { .. }
        | Fact::Restarted { .. }
        | Fact::Halted { .. }
        | Fact::Published { .. }
        | Fact::Decided { .. } => false,
    }
}

/// Encodes one entry as the frame that follows the one with `last_hash`. A tool's output is clipped to its first 8 KiB.
pub fn frame(last_hash: &Hash, entry: &Entry) -> Result<Frame, EncodeError> {
    let clipped;
    let entry = match &entry.fact {
        Fact::Fsck { exit, output } if output.len() > MAX_TOOL_OUTPUT => {
            let end = output.floor_char_boundary(MAX_TOOL_OUTPUT);
            let output = format!("{}…", output.get(..end).unwrap_or_default());
            clipped = Entry { fact: Fact::Fsck { exit: *exit, output }, ..entry.clone() };
            &clipped
        }
        Fact::Fsck { .. }
        | Fact::FormatIntent { .. }
        | Fact::Formatted { .. }
        | Fact::FreshAllowed { .. }
        | Fact::Pinned { .. }
        | Fact::HoldsData { .. }
        | Fact::IdentityChanged { .. }
        | Fact::Adopted { .. }
        | Fact::Released { .. }
        | Fact::Retried
        | Fact::Unpinned { .. }
        | Fact::Ordered { .. }
        | Fact::Carried { .. }
        | Fact::Enabled { .. }
        | Fact::Disabled
        | Fact::Bypassed { .. }
        | Fact::NotChecked { .. }
        | Fact::Snapshot { .. }
        | Fact::Grow { .. }
        | Fact::Restarted { .. }
        | Fact::Halted { .. }
        | Fact::Published { .. }
        | Fact::Decided { .. } => entry,
    };
    let payload = serde_json::to_vec(entry).map_err(EncodeError::Json)?;
    let flags = if must_understand(&entry.fact) { MUST_UNDERSTAND } else { 0 };
    encode(last_hash, flags, &payload)
}

fn encode(last_hash: &Hash, flags: u8, payload: &[u8]) -> Result<Frame, EncodeError> {
    let too_large = EncodeError::TooLarge { len: payload.len() };
    if payload.len() > MAX_PAYLOAD {
        return Err(too_large);
    }
    let Ok(length) = u32::try_from(payload.len()) else { return Err(too_large) };
    let mut bytes = Vec::with_capacity(HEADER.saturating_add(payload.len()).saturating_add(TRAILER));
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&[flags, 0, 0, 0]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(last_hash);
    bytes.extend_from_slice(payload);
    let hash = Sha256::digest(&bytes).into();
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    Ok(Frame { bytes, id: entry_id(payload), hash })
}

/// Plans to append `entry` to a ledger that now holds `current`. For the writer of the volume's ledger, which may not know
/// this format.
pub fn plan_append(current: &[u8], entry: &Entry) -> Result<AppendPlan, PlanError> {
    let parsed = parse(current).map_err(PlanError::Broken)?;
    let frame = frame(&parsed.last_hash, entry).map_err(PlanError::Encode)?;
    Ok(AppendPlan { cut_to: parsed.valid_len as u64, bytes: frame.bytes, id: frame.id })
}

/// Reads a whole ledger.
pub fn parse(bytes: &[u8]) -> Result<Parsed, LedgerBroken> {
    let walked = walk(bytes)?;
    let mut entries = Vec::new();
    let mut skipped_unknown = 0_usize;
    for raw in &walked.frames {
        match raw.entry()? {
            Some(entry) => entries.push((raw.id(), entry)),
            None => skipped_unknown = skipped_unknown.saturating_add(1),
        }
    }
    Ok(Parsed { entries, last_hash: walked.last_hash, valid_len: walked.valid_len, torn: walked.torn, skipped_unknown })
}

/// One intact frame.
struct RawFrame<'a> {
    offset: usize,
    flags: u8,
    previous: &'a [u8],
    payload: &'a [u8],
    hash: Hash,
    len: usize,
}

impl RawFrame<'_> {
    fn id(&self) -> EntryId {
        entry_id(self.payload)
    }

    /// The entry; `None` for a kind that this version does not know and need not.
    fn entry(&self) -> Result<Option<Entry>, LedgerBroken> {
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(self.payload) else {
            return Err(LedgerBroken::NotJson { offset: self.offset });
        };
        let kind = value.pointer("/fact/kind").and_then(|kind| kind.as_str()).unwrap_or("?").to_owned();
        match serde_json::from_value::<Entry>(value) {
            Ok(entry) => Ok(Some(entry)),
            Err(_) if self.flags & MUST_UNDERSTAND != 0 => {
                Err(LedgerBroken::MustUnderstand { offset: self.offset, kind })
            }
            Err(_) => Ok(None),
        }
    }
}

struct Walked<'a> {
    frames: Vec<RawFrame<'a>>,
    last_hash: Hash,
    valid_len: usize,
    torn: Option<TornAt>,
}

fn walk(bytes: &[u8]) -> Result<Walked<'_>, LedgerBroken> {
    if bytes.len() > MAX_LEDGER {
        return Err(LedgerBroken::TooLarge { len: bytes.len() });
    }
    let mut walked = Walked { frames: Vec::new(), last_hash: NO_HASH, valid_len: 0, torn: None };
    while walked.valid_len < bytes.len() {
        let offset = walked.valid_len;
        let Some(raw) = frame_at(bytes, offset) else {
            walked.torn = Some(judge_tail(bytes, offset)?);
            break;
        };
        if raw.previous != walked.last_hash {
            return Err(LedgerBroken::Chain { offset });
        }
        walked.last_hash = raw.hash;
        walked.valid_len = offset.saturating_add(raw.len);
        walked.frames.push(raw);
    }
    Ok(walked)
}

/// The frame at `offset`, if an intact one is there. In order: magic, length against the bound and against what is there,
/// CRC; only then is anything made of it.
fn frame_at(bytes: &[u8], offset: usize) -> Option<RawFrame<'_>> {
    let rest = bytes.get(offset..)?;
    let header = rest.get(..HEADER)?;
    if header.get(..8)? != MAGIC {
        return None;
    }
    let length = usize::try_from(u32::from_le_bytes(header.get(12..16)?.try_into().ok()?)).ok()?;
    if length == 0 || length > MAX_PAYLOAD {
        return None;
    }
    let end = HEADER.checked_add(length)?;
    let body = rest.get(..end)?;
    let len = end.checked_add(TRAILER)?;
    let crc = u32::from_le_bytes(rest.get(end..len)?.try_into().ok()?);
    if crc32c::crc32c(body) != crc {
        return None;
    }
    Some(RawFrame {
        offset,
        flags: *header.get(8)?,
        previous: header.get(16..48)?,
        payload: body.get(HEADER..)?,
        hash: Sha256::digest(body).into(),
        len,
    })
}

/// No good frame at `offset`: is that the rest of an interrupted append, or damage?
fn judge_tail(bytes: &[u8], offset: usize) -> Result<TornAt, LedgerBroken> {
    let tail = bytes.get(offset..).unwrap_or_default();
    let len = tail.len();
    let candidates = tail.windows(MAGIC.len()).enumerate().skip(1).filter(|(_, window)| *window == MAGIC);
    for (tried, (at, _)) in candidates.enumerate() {
        let good = offset.saturating_add(at);
        if frame_at(bytes, good).is_some() {
            return Err(LedgerBroken::BadBeforeGood { bad: offset, good });
        }
        if tried >= MAX_CANDIDATES {
            return Err(LedgerBroken::LongTail { offset, len });
        }
    }
    if len > MAX_TORN {
        return Err(LedgerBroken::LongTail { offset, len });
    }
    Ok(TornAt { offset, len })
}

#[cfg(test)]
pub(super) mod tests;
