//! One function for each source of evidence: what it has against formatting. (Those that look at bytes: `bytes.rs`.)
//!
//! Each adds all its objections. None of them can take back what another one said.

use super::words::{bytes, unknown};
use crate::model::{
    Claim, DeviceFacts, DeviceUse, FormatHistory, FsUuid, Identity, Observed, Origin, Reason, ReasonCode,
    SecondReading, Why,
};

/// What matters most to the reader comes first: the wrong device, then what is there, then what could not be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Not the device that was asked for, or somebody else has it.
    Device,
    /// Something recognised stands on it.
    Found,
    /// Something unrecognised stands on it.
    Data,
    /// Memory and provider.
    History,
    /// Could not be known.
    Unread,
    /// Would have to be allowed first.
    Policy,
    /// Nobody has looked; mostly because something above made it needless.
    NotLooked,
}

/// All objections so far.
#[derive(Debug, Default)]
pub struct Objections(Vec<(Rank, Reason)>);

impl Objections {
    pub fn add(&mut self, rank: Rank, reason: Reason) {
        self.0.push((rank, reason));
    }

    /// Sorted by rank, within it in the order of asking.
    ///
    /// What nobody looked at, because something else had made it needless, is said only where it is all there is to say:
    /// beside a finding it would be noise. It refuses all the same.
    pub fn into_reasons(mut self) -> Vec<Reason> {
        self.0.sort_by_key(|(rank, _)| *rank);
        if self.0.iter().any(|(rank, _)| *rank < Rank::NotLooked) {
            self.0.retain(|(rank, _)| *rank < Rank::NotLooked);
        }
        self.0.into_iter().map(|(_, reason)| reason).collect()
    }

    pub fn unknown(&mut self, what: &str, why: &Why) {
        let rank = match why {
            Why::Unreadable { .. } | Why::Short { .. } | Why::TimedOut { .. } | Why::ReaderFailed { .. } => {
                Rank::Unread
            }
            Why::NotRun { .. } => Rank::NotLooked,
        };
        self.add(rank, unknown(what, why));
    }
}

/// What provider and memory allow the content to look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Background {
    /// The provider vouches for a fresh encrypted volume: never-written blocks decrypt to noise.
    pub noise_is_blank: bool,
    /// Our own mkfs was cut short on this very attachment; traces of a filesystem with this UUID are its traces.
    pub own_traces: Option<FsUuid>,
}

impl Background {
    pub fn of(origin: &Observed<Origin>, history: &Observed<FormatHistory>) -> Self {
        let noise_is_blank = match origin {
            Observed::Seen(Origin::Provider { encrypted, from_snapshot, young }) => {
                *encrypted && from_snapshot.is_none() && *young
            }
            Observed::Seen(Origin::NoProvider) | Observed::Unknown(_) => false,
        };
        let own_traces = match history {
            Observed::Seen(FormatHistory::UnfinishedIntent { fs_uuid, same_attachment: true }) => Some(*fs_uuid),
            Observed::Seen(
                FormatHistory::UnfinishedIntent { fs_uuid: _, same_attachment: false }
                | FormatHistory::None
                | FormatHistory::Used { .. }
                | FormatHistory::Broken { .. },
            )
            | Observed::Unknown(_) => None,
        };
        Background { noise_is_blank, own_traces }
    }
}

pub fn device(device: &Observed<DeviceFacts>, objections: &mut Objections) {
    match device {
        Observed::Seen(seen) => facts(seen, objections),
        Observed::Unknown(why) => objections.unknown("what the kernel says of the device", why),
    }
}

/// Whole, writable, of a size, and nobody else's.
pub fn facts(facts: &DeviceFacts, objections: &mut Objections) {
    let DeviceFacts {
        requested: _,
        node,
        devnum: _,
        size,
        logical_block: _,
        read_only,
        whole_disk,
        serial: _,
        diskseq: _,
        backing_file: _,
        volume_id: _,
        uses,
    } = facts;
    if *size == 0 {
        let message = format!("{node} has a size of 0 bytes: nothing is attached behind it");
        objections.add(Rank::Device, Reason::new(ReasonCode::SizeMismatch, message));
    }
    if !*whole_disk {
        let message = format!("{node} is a partition of another disk; volhold formats whole disks only");
        objections.add(Rank::Device, Reason::new(ReasonCode::Partitioned, message));
    }
    if *read_only {
        let message = format!("the kernel says that {node} is read-only");
        objections.add(Rank::Device, Reason::new(ReasonCode::NoPermission, message));
    }
    for other in uses {
        let (code, message) = match other {
            DeviceUse::Mount { at } => (ReasonCode::InUse, format!("{node} is mounted at {at}")),
            DeviceUse::Swap => (ReasonCode::InUse, format!("{node} is in use as swap")),
            DeviceUse::Holder { name } => {
                (ReasonCode::InUse, format!("{node} is held by {name}, a device on top of it"))
            }
            DeviceUse::LoopOnTop { name } => (ReasonCode::InUse, format!("{node} is the backing file of {name}")),
            DeviceUse::Partition { name } => {
                (ReasonCode::Partitioned, format!("{node} has a partition that the kernel knows, {name}"))
            }
            DeviceUse::Exclusive => (
                ReasonCode::InUse,
                format!(
                    "{node} is claimed by somebody that cannot be seen from here, such as a mount in another namespace"
                ),
            ),
        };
        objections.add(Rank::Device, Reason::new(code, message));
    }
}

pub fn claim(claim: &Observed<Claim>, objections: &mut Objections) {
    match claim {
        Observed::Seen(Claim::Ours) => {}
        Observed::Seen(Claim::Refused) => {
            let message = "the claim on the device (O_EXCL) was refused: somebody else has it";
            objections.add(Rank::Device, Reason::new(ReasonCode::InUse, message));
        }
        Observed::Unknown(why) => objections.unknown("the claim on the device", why),
    }
}

pub fn identity(identity: &Observed<Identity>, objections: &mut Objections) {
    match identity {
        Observed::Seen(Identity::Matches) => {}
        Observed::Seen(Identity::OtherSerial { asked, found }) => {
            let message = format!("volume {asked} was asked for, and the device carries the serial `{found}`");
            objections.add(Rank::Device, Reason::new(ReasonCode::IdentityMismatch, message));
        }
        Observed::Seen(Identity::OtherSize { provider, kernel }) => {
            let message = format!(
                "the provider says that the volume has {}, the kernel says {}",
                bytes(*provider),
                bytes(*kernel)
            );
            objections.add(Rank::Device, Reason::new(ReasonCode::SizeMismatch, message));
        }
        Observed::Unknown(why) => objections.unknown("the identity of the device", why),
    }
}

pub fn origin(origin: &Observed<Origin>, objections: &mut Objections) {
    match origin {
        Observed::Seen(Origin::NoProvider)
        | Observed::Seen(Origin::Provider { encrypted: _, from_snapshot: None, young: _ }) => {}
        Observed::Seen(Origin::Provider { encrypted: _, from_snapshot: Some(snapshot), young: _ }) => {
            let message = format!("the volume was made from the snapshot {snapshot}: it carries what that one held");
            objections.add(Rank::History, Reason::new(ReasonCode::MadeFromSnapshot, message));
        }
        Observed::Unknown(why) => objections.unknown("where the volume comes from", why),
    }
}

pub fn history(history: &Observed<FormatHistory>, objections: &mut Objections) {
    match history {
        Observed::Seen(FormatHistory::None) => {}
        Observed::Seen(FormatHistory::UnfinishedIntent { fs_uuid: _, same_attachment: true }) => {}
        Observed::Seen(FormatHistory::UnfinishedIntent { fs_uuid, same_attachment: false }) => {
            let message = format!(
                "an mkfs with UUID {fs_uuid} was begun on this volume and its end was never recorded, and the volume was \
                 detached or the machine restarted since: what happened in between is not known"
            );
            objections.add(Rank::History, Reason::new(ReasonCode::IntentUnfinished, message));
        }
        Observed::Seen(FormatHistory::Used { says }) => {
            let message = format!("this volume was in use before: {says}");
            objections.add(Rank::History, Reason::new(ReasonCode::HistorySaysUsed, message));
        }
        Observed::Seen(FormatHistory::Broken { detail }) => {
            let message = format!("the ledger that would say whether this volume was ever used is broken: {detail}");
            objections.add(Rank::History, Reason::new(ReasonCode::LedgerBroken, message));
        }
        Observed::Unknown(why) => objections.unknown("the memory of this volume, in ledgers and tags,", why),
    }
}

pub fn second_reading(second: &Observed<SecondReading>, objections: &mut Objections) {
    match second {
        Observed::Seen(SecondReading::Same) => {}
        Observed::Seen(SecondReading::Changed { detail }) => {
            let message = format!("the device changed while it was being examined: somebody writes to it ({detail})");
            objections.add(Rank::Device, Reason::new(ReasonCode::ChangedUnderneath, message));
        }
        Observed::Unknown(why) => objections.unknown("the second reading of the telling regions", why),
    }
}
