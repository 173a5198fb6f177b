//! Where volumes come from. A provider knows what no look at the device can tell: which volume was asked for, where it
//! comes from, how old it is, and how to bring it here.
//!
//! The boundary: a provider never touches a device, and what it does not know is `Unknown`, never a default.

/// Devices of this machine, about which nobody knows more than the machine does.
pub mod local;

pub use local::Local;

use crate::model::{DeviceFacts, Identity, Observed, Origin, Reason, VolumeAge};
use std::future::Future;

/// What is known of a volume besides its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knowledge {
    /// Does the device carry the serial and the size that were asked for?
    pub identity: Observed<Identity>,
    pub origin: Observed<Origin>,
    pub age: Observed<VolumeAge>,
}

/// What attaching did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    Already,
    Attached,
}

/// One source of volumes: `local` here, EBS later.
pub trait VolumeProvider {
    /// Brings the volume to this machine, if it is not here. Never takes it from another one.
    fn attach(&self) -> impl Future<Output = Result<Attachment, Reason>> + Send;

    /// What is known of the volume that this device claims to be.
    fn knowledge(&self, facts: &DeviceFacts) -> impl Future<Output = Knowledge> + Send;
}
