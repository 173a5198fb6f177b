//! Where volumes come from. A provider knows what no look at the device can tell: which volume was asked for, where it
//! comes from, how old it is, and how to bring it here.
//!
//! The way of an answer: [`ec2`] has EC2 in plain types and the few calls that are made, [`code`] what EC2 says when it
//! refuses, [`select`] picks a volume by its tags, [`attach`] says what its state asks for, [`ebs_volume`] does that for one
//! guard, [`hub`] makes one call for all guards, [`witness`] reads and writes what volhold's own tags
//! remember, [`fleet`] lists the volumes of all masters. All of these are tested without the SDK, which only `ebs` (feature `aws`)
//! knows.
//!
//! The boundary: a provider never touches a device, and what it does not know is `Unknown`, never a default. It never
//! detaches, and never deletes.

/// What the state of a volume asks for.
pub mod attach;
/// How long until EC2 is asked again.
pub mod backoff;
/// EC2's refusals.
pub mod code;
/// The SDK behind [`ec2::Ec2`]: the only place that knows it.
#[cfg(feature = "aws")]
pub mod ebs;
/// One guard's volume of EC2.
pub mod ebs_volume;
/// EC2 in plain types.
pub mod ec2;
/// The volumes of all masters, and the odd ones out.
pub mod fleet;
/// One client for all guards.
pub mod hub;
/// Tags of kops.
pub mod kops;
/// Devices of this machine, about which nobody knows more than the machine does.
pub mod local;
/// Device names for AttachVolume.
pub mod names;
/// What may be done.
pub mod permissions;
/// Which volume, by its tags.
pub mod select;
/// The other members' volumes.
pub mod siblings;
/// A volume's state, kept.
pub mod snapshot;
/// In place of `ebs` in a build without the SDK.
#[cfg(not(feature = "aws"))]
pub mod unbuilt;
/// What volhold's own tags on a volume remember.
pub mod witness;

#[cfg(feature = "aws")]
pub use ebs::Client;
pub use ebs_volume::EbsVolume;
pub use hub::Hub;
pub use local::Local;
#[cfg(not(feature = "aws"))]
pub use unbuilt::Client;

use crate::model::{DeviceFacts, DeviceSpec, Identity, Observed, Origin, Reason, VolumeAge, VolumeId, Witness};
use std::future::Future;
use std::sync::Arc;

/// What is known of a volume besides its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knowledge {
    /// Does the device carry the serial and the size that were asked for?
    pub identity: Observed<Identity>,
    pub origin: Observed<Origin>,
    pub age: Observed<VolumeAge>,
    /// What volhold's tags on it say. `None`: it has none.
    pub witness: Observed<Option<Witness>>,
}

impl Knowledge {
    /// Nobody was asked.
    pub fn not_asked(why: &str) -> Self {
        Knowledge {
            identity: Observed::not_run(why),
            origin: Observed::not_run(why),
            age: Observed::not_run(why),
            witness: Observed::not_run(why),
        }
    }
}

/// May the provider change anything?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum May {
    Attach,
    /// A guard that observes.
    Look,
}

/// How far a volume is on its way here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Brought {
    /// It is attached to this machine, as far as the provider knows.
    Here(Whereabouts),
    /// Somebody will have done something in a while: look again.
    Waits(Reason),
    /// Nothing will change by itself; it is looked again all the same.
    Refused(Reason),
}

/// A volume that the provider says is attached here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whereabouts {
    pub volume: VolumeId,
    /// The device name under which EC2 attached it, and its size in bytes: all that a machine without NVMe has to go by.
    pub attached_as: Option<(String, u64)>,
    pub warnings: Vec<Reason>,
}

/// One source of volumes.
pub trait VolumeProvider {
    /// Brings the volume to this machine, if it is not here. Never takes it from another one. Comes back within a second,
    /// whatever the provider does: a device that appears meanwhile must not wait for it.
    fn bring(&mut self, may: May) -> impl Future<Output = Brought> + Send;

    /// What is known of the volume that this device claims to be. Asks the provider: seconds where that is slow.
    fn knowledge(&mut self, facts: &DeviceFacts) -> impl Future<Output = Knowledge> + Send;
}

/// The provider of one guard.
#[derive(Debug)]
pub enum Provider {
    Local(Local),
    Ebs(Box<EbsVolume<Client>>),
}

impl Provider {
    /// For a guard. `seed` keeps machines and guards apart where they would all do the same at the same time.
    pub fn new(hub: &Arc<Hub<Client>>, device: &DeviceSpec, member: Option<&str>, seed: u64) -> Self {
        match device {
            DeviceSpec::Path(_) | DeviceSpec::Uuid(_) | DeviceSpec::Label(_) => Provider::Local(Local),
            DeviceSpec::Ebs(spec) => {
                Provider::Ebs(Box::new(EbsVolume::new(hub.clone(), spec.clone(), member.map(str::to_owned), seed)))
            }
        }
    }

    /// What is known without asking anybody.
    pub fn known_already(&self, facts: &DeviceFacts) -> Knowledge {
        match self {
            Provider::Local(local) => local.known(),
            Provider::Ebs(ebs) => ebs.known_already(facts),
        }
    }
}

impl VolumeProvider for Provider {
    async fn bring(&mut self, may: May) -> Brought {
        match self {
            Provider::Local(local) => local.bring(may).await,
            Provider::Ebs(ebs) => ebs.bring(may).await,
        }
    }

    async fn knowledge(&mut self, facts: &DeviceFacts) -> Knowledge {
        match self {
            Provider::Local(local) => local.knowledge(facts).await,
            Provider::Ebs(ebs) => ebs.knowledge(facts).await,
        }
    }
}
