//! LUKS1 and LUKS2: the header, LUKS2's second header, and the JSON that stands behind either.
//!
//! Big endian (cryptsetup, LUKS2 on-disk format 1.1.3, `struct luks2_hdr_disk`): 0 magic, 6 version, 8 length of header and
//! JSON, 72 name of the hash, 168 uuid as text, 256 own offset, 448 checksum over header and JSON with this field as zero.

use super::piece::Piece;
use crate::model::{Finding, Validated};
use crate::probe::bytes::{be16, be64, slice, text};
use sha2::{Digest, Sha256};

const CHECKSUM_AT: usize = 448;
const CHECKSUM_LEN: usize = 64;

pub(super) fn header(piece: &Piece<'_>) -> Option<Finding> {
    let data = piece.data;
    let magic = slice(data, 0, 6)?;
    let secondary = magic == b"SKUL\xba\xbe";
    if !secondary && magic != b"LUKS\xba\xbe" {
        return None;
    }
    let version = be16(data, 6)?;
    let in_place = version == 1 && !secondary || version == 2 && be64(data, 256)? == piece.at;
    let uuid = text(slice(data, 168, 40)?).and_then(|text| uuid::Uuid::parse_str(&text).ok());
    let validated = match (version == 2 && checksum_right(data) == Some(true), in_place && uuid.is_some()) {
        (true, _) => Validated::Checksum,
        (false, true) => Validated::Structure,
        (false, false) => Validated::Magic,
    };
    let detail = format!("LUKS{version} {} header", if secondary { "secondary" } else { "primary" });
    Some(Finding { uuid: uuid.map(|uuid| uuid.to_string()), ..piece.named("crypto_LUKS", validated, detail) })
}

/// `None` where not all of it was read, or another hash than the usual one was chosen.
fn checksum_right(data: &[u8]) -> Option<bool> {
    if text(slice(data, 72, 32)?)? != "sha256" {
        return None;
    }
    let covered = slice(data, 0, usize::try_from(be64(data, 8)?).ok()?)?;
    let mut hash = Sha256::new();
    hash.update(slice(covered, 0, CHECKSUM_AT)?);
    hash.update([0; CHECKSUM_LEN]);
    hash.update(covered.get(CHECKSUM_AT.checked_add(CHECKSUM_LEN)?..)?);
    Some(slice(covered, CHECKSUM_AT, 32)? == hash.finalize().as_slice())
}

/// The JSON area begins with its key slots, as cryptsetup writes it.
pub(super) fn json(piece: &Piece<'_>) -> Option<Finding> {
    let begins = piece.data.starts_with(b"{\"keyslots\":{");
    begins.then(|| piece.named("crypto_LUKS", Validated::Structure, "key slots of a LUKS2 header, as JSON"))
}
