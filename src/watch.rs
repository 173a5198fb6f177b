//! After the gate is open: hints that something changed. Hints, never facts: each one only says where to look again.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]

/// Changes in and around a data dir.
mod datadir;
/// The mount table.
mod mounts;
/// Processes by their numbers.
mod processes;
/// Requests that the CLI has put down for guards.
mod requests;
/// A chain of directories under inotify, of which the deeper ones may not exist yet.
mod tree;

pub use datadir::{Change, DataDirWatch, WatchHint};
pub use mounts::MountTable;
pub use processes::{Process, processes};
pub use requests::RequestWatch;
pub use tree::WatchError;
