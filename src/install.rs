//! How a guard is built into a machine that somebody else set up, and how it is shown that it took.
//!
//! [`preset`] knows where etcd lives on which kind of master; [`drop_in`] writes the texts; [`mark`] tells files of ours from
//! those of others and from ours that a person has changed; [`files`] puts them below a root directory and takes them away;
//! [`mounters`] finds whoever else would mount the volume; [`doctor`] judges what was tested.
//!
//! The boundary: nothing here starts a process, mounts, seals or touches a volume. What has to be tried out is tried by
//! `act` and handed in; what is written are files that carry our mark, below `/etc`.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]

/// What is found, and what to do about it.
pub mod doctor;
/// The texts of units, drop-ins, patches.
pub mod drop_in;
/// Writing and removing below a root directory.
pub mod files;
/// Ours, ours but changed, or somebody else's.
pub mod mark;
/// fstab lines, mount units and automount units.
pub mod mounters;
/// Where etcd lives.
pub mod preset;
/// What `systemctl show` prints.
pub mod units;

pub use preset::Preset;
