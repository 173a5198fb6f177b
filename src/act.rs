//! The only room that changes anything: mkfs, fsck, mount, publish, seal, the volume's ledger, loop devices.
//!
//! Every function takes its permit or its opened device and says what it changed; none decides whether it should. Nothing
//! here is called but by the agent and the command line. No way leads from a mount that failed to mkfs: the one needs a
//! [`FormatPermit`](crate::decide::format::FormatPermit), which only proof of blankness can give, the other never makes one.
//!
//! These functions block (a mkfs for minutes): the agent calls them on a thread of their own.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]
#![expect(clippy::disallowed_methods, reason = "the one room that changes guarded volumes, mounts, and runs tools")]

/// Renaming out of the way, and back.
pub mod aside;
/// Questions to systemctl and other programs.
pub mod ask;
/// Does a claim hold on this kernel?
pub mod claim_test;
/// The directory that a fresh etcd is going to fill.
pub mod datadir;
/// `e2fsck -p`, and no other repair.
pub mod fsck;
/// A filesystem gets all of a device that has become larger.
pub mod grow;
/// What runs an etcd is frozen, or its units are stopped.
pub mod halt;
/// What the kernel says in its log while a mount fails, or of a filesystem that has shut down.
pub mod kernel_log;
/// Image files become loop devices.
pub mod loopdev;
/// `mkfs.ext4` and `mkfs.xfs`, with a permit.
pub mod mkfs;
/// Mounts that nobody sees until they are published.
pub mod mount;
/// Mount options: which go to the mount, which to the filesystem.
pub mod options;
/// One container is started anew.
pub mod restart;
/// The directory under a mount: empty, and unchangeable while nothing is mounted on it.
pub mod seal;
/// etcd-manager's `state`, put in its place whole.
pub mod state_file;
/// Other people's programs, run with a deadline.
mod tool;
/// `.volhold/ledger` on the guarded volume.
pub mod volume_ledger;
/// Does the volume still take writes?
mod write_test;

pub use write_test::write_test;

/// What a function did to reach the state that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was so before.
    Already,
    /// It was made so now.
    Done,
}
