//! Devices of this machine: disks, loop devices, image files. Nothing is attached, and nobody knows a volume's history.

use super::{Brought, Knowledge, May, VolumeProvider};
use crate::model::{DeviceFacts, Identity, Observed, Origin, Reason, ReasonCode, VolumeAge};

/// The provider `local`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Local;

impl Local {
    /// The configuration names the device and nothing else, so the device that its name led to is the one meant.
    pub fn known(self) -> Knowledge {
        Knowledge {
            identity: Observed::Seen(Identity::Matches),
            origin: Observed::Seen(Origin::NoProvider),
            age: Observed::Seen(VolumeAge::NoProvider),
            witness: Observed::Seen(None),
        }
    }
}

impl VolumeProvider for Local {
    async fn bring(&mut self, _may: May) -> Brought {
        Brought::Refused(Reason::new(ReasonCode::DeviceMissing, "nobody brings a device of this machine"))
    }

    async fn knowledge(&mut self, _facts: &DeviceFacts) -> Knowledge {
        self.known()
    }
}
