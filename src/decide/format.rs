//! May this device be formatted?
//!
//! mkfs is the one thing that volhold can do and never undo. [`may_format`] is the only maker of a [`FormatPermit`], and
//! `act::mkfs` the only consumer. The function is total, reads nothing and returns nowhere early: each source of
//! [`FormatEvidence`] is asked for all its objections (`format/sources.rs`, `format/bytes.rs`), and a permit exists only where
//! none objects. It takes the evidence apart without `..`: a new source breaks the build until somebody has decided about it.

mod bytes;
mod sources;
#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
mod tests;

use super::words;
use crate::model::{
    Blank, BootMillis, ContentClass, DevNum, DeviceFacts, DeviceReading, FormatEvidence, FormatPolicy, Observed,
    Origin, Reason, ReasonCode,
};
use sha2::{Digest, Sha256};
use sources::{Background, Objections};

/// How long a permit is good for, in milliseconds of the boot clock. mkfs begins at once or evidence is gathered anew;
/// udev gives up on a disk that is locked for more than three minutes.
pub const PERMIT_LASTS_MS: u64 = 60_000;

/// Leave to run mkfs once, on one device, now. Only [`may_format`] makes one; it cannot be copied.
///
/// ```compile_fail
/// # use volhold::{decide::format::FormatPermit, model::{BootMillis, DevNum}};
/// let forged = FormatPermit {
///     devnum: DevNum { major: 7, minor: 0 }, diskseq: None, size: 1, evidence_digest: String::new(), expires: BootMillis(1),
/// };
/// ```
///
/// ```compile_fail
/// # use volhold::decide::format::FormatPermit;
/// fn twice(permit: &FormatPermit) -> FormatPermit { permit.clone() }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit that nobody uses means that evidence was gathered for nothing"]
pub struct FormatPermit {
    devnum: DevNum,
    diskseq: Option<u64>,
    size: u64,
    evidence_digest: String,
    expires: BootMillis,
}

impl FormatPermit {
    /// The device that may be formatted; `st_rdev` of the descriptor must equal it.
    pub fn devnum(&self) -> DevNum {
        self.devnum
    }

    /// Its attachment, where the kernel numbers them.
    pub fn diskseq(&self) -> Option<u64> {
        self.diskseq
    }

    /// Its size in bytes when the evidence was gathered.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// SHA-256, in hex, of the evidence as JSON: what the intent in the ledger points at.
    pub fn evidence_digest(&self) -> &str {
        &self.evidence_digest
    }

    /// Boot-clock time from which the permit is good for nothing.
    pub fn expires(&self) -> BootMillis {
        self.expires
    }

    /// Still good at this moment of the boot clock?
    pub fn is_valid_at(&self, now: BootMillis) -> bool {
        now < self.expires
    }
}

/// No permit, and every objection, the most telling first. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reasons: Vec<Reason>,
}

/// May this device be formatted? Everything must be positively known to be right; design in `format/sources.rs`, rule by
/// rule. `now` is the boot clock at which the evidence was complete.
pub fn may_format(policy: FormatPolicy, evidence: &FormatEvidence, now: BootMillis) -> Result<FormatPermit, Refusal> {
    let FormatEvidence { device, claim, identity, libblkid, content, origin, history, second_reading } = evidence;
    let background = Background::of(origin, history);
    let mut objections = Objections::default();

    sources::device(device, &mut objections);
    sources::claim(claim, &mut objections);
    sources::identity(identity, &mut objections);
    bytes::libblkid(libblkid, content, &background, &mut objections);
    bytes::content(content, device.seen().map(|facts| facts.size), &background, &mut objections);
    sources::origin(origin, &mut objections);
    sources::history(history, &mut objections);
    sources::second_reading(second_reading, &mut objections);
    bytes::policy(policy, content, libblkid, &mut objections);

    let reasons = objections.into_reasons();
    match (device, reasons.is_empty()) {
        (Observed::Seen(facts), true) => permit(facts, evidence, now),
        (Observed::Seen(_) | Observed::Unknown(_), true | false) => Err(Refusal { reasons }),
    }
}

fn permit(facts: &DeviceFacts, evidence: &FormatEvidence, now: BootMillis) -> Result<FormatPermit, Refusal> {
    match serde_json::to_vec(evidence) {
        Ok(json) => Ok(FormatPermit {
            devnum: facts.devnum,
            diskseq: facts.diskseq,
            size: facts.size,
            // Fields in the order of the struct, so that the same evidence always gives the same digest.
            evidence_digest: Sha256::digest(&json).iter().map(|byte| format!("{byte:02x}")).collect(),
            expires: BootMillis(now.0.saturating_add(PERMIT_LASTS_MS)),
        }),
        Err(error) => {
            let message =
                format!("the evidence cannot be written down, so it could not be explained afterwards: {error}");
            Err(Refusal { reasons: vec![Reason::new(ReasonCode::ReaderFailed, message)] })
        }
    }
}

/// What the bytes alone say against formatting, as `inspect` shows it: as if the policy were `if-blank`, no record existed,
/// and the provider knew nothing. Empty: a device that reads like this could be formatted.
pub fn objections_to_reading(reading: &DeviceReading, facts: Option<&DeviceFacts>) -> Vec<Reason> {
    let DeviceReading { libblkid, content, filesystem } = reading;
    let background =
        Background::of(&Observed::Seen(Origin::NoProvider), &Observed::Seen(crate::model::FormatHistory::None));
    let mut objections = Objections::default();
    if let Some(facts) = facts {
        sources::facts(facts, &mut objections);
    }
    bytes::libblkid(libblkid, content, &background, &mut objections);
    bytes::content(content, facts.map(|facts| facts.size), &background, &mut objections);
    if let Some(filesystem) = filesystem {
        bytes::filesystem(filesystem, &mut objections);
    }
    objections.into_reasons()
}

/// Is the device blank, by its bytes alone? *Proven* only where nothing objects; *no* only where something was seen. Noise
/// alone is *unknown*: a fresh encrypted volume reads so, and a LUKS volume whose header lies elsewhere.
pub fn blank(reading: &DeviceReading) -> Blank {
    let reasons = objections_to_reading(reading, None);
    if reasons.is_empty() {
        Blank::Proven
    } else if reading.filesystem.is_some()
        || reasons.iter().any(|reason| bytes::proves_data(reason.code))
        || reading.content.seen().is_some_and(|content| content.class == ContentClass::Other)
    {
        Blank::No
    } else {
        Blank::Unknown
    }
}
