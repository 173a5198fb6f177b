//! What a parser is given: bytes from one place of the device on.

use crate::model::{Finding, FindingKind, Validated};

/// Bytes that were read, from a place on a sector boundary to the end of the read: structures longer than a block are checked as far as they reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub data: &'a [u8],
    /// Byte of the device at which `data` begins.
    pub at: u64,
    /// Bytes of the device.
    pub size: u64,
}

impl Piece<'_> {
    /// A finding that begins where this piece does.
    pub(crate) fn found(&self, kind: FindingKind, validated: Validated, detail: impl Into<String>) -> Finding {
        Finding { kind, offset: self.at, validated, uuid: None, detail: Some(detail.into()) }
    }

    /// The same for a format that is called by libblkid's word for it.
    pub(crate) fn named(&self, name: &str, validated: Validated, detail: impl Into<String>) -> Finding {
        self.found(FindingKind::Named(name.to_owned()), validated, detail)
    }
}

/// A UUID field, unless nothing stands in it.
pub(crate) fn uuid_at(data: &[u8], at: usize) -> Option<String> {
    let uuid = uuid::Uuid::from_bytes(crate::probe::bytes::array(data, at)?);
    (!uuid.is_nil()).then(|| uuid.to_string())
}
