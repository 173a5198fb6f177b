//! From a configured name to an opened, identified, claimed device.
//!
//! The order of things: [`resolve`] follows a configured name to a node; [`Device::open`] opens that node once, read-only;
//! [`Device::facts`] says what the kernel knows of the opened device, by its device number and never by its name;
//! [`Device::claim`] takes it so that nobody else can format or mount it. All later work happens through the descriptor
//! that was opened first: names move, descriptors do not.
//!
//! The boundary: nothing here reads a byte of the device's content and nothing here writes. Whoever needs to know what a
//! filesystem calls itself hands in a closure (`UUID=` and `LABEL=` in [`resolve`]).
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]

/// Who does not see a mount.
pub mod blind;
/// From an EBS volume's id to a node.
pub mod ebs;
/// What can go wrong before a device is ours, and how to say it.
pub mod error;
/// The kernel calls that no library wraps.
pub mod ioctl;
/// Loop devices: which one has which file.
pub mod loops;
/// `/proc/*/mountinfo`, parsed.
pub mod mountinfo;
/// What an NVMe controller says of itself.
pub mod nvme;
/// The opened device: facts, claim, lock.
pub mod opened;
/// From a configured name to a node.
pub mod resolve;
/// What sysfs says about a block device, by its device number.
pub mod sysfs;
/// Kernel uevents of block devices, as hints.
pub mod uevents;
/// Who else uses a device.
pub mod uses;

pub use error::{ClaimError, DeviceError};
pub use opened::{Device, UdevLock};
pub use resolve::{Identify, Resolved, resolve};
pub use sysfs::Sysfs;
