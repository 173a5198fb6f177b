//! How the world learns the verdict: files below the run dir, systemd's notify socket, HTTP, and `volhold wait`.
//!
//! A gate is a file: it is open while `<run>/open/NAME` is there. Everything else here tells *about* gates. Nothing in this
//! room decides; and nothing closes an open gate because volhold stops, crashes, is upgraded or has changed its mind: an
//! etcd may be running behind it (see [`files::Closing`] for what may).
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]
#![expect(
    clippy::disallowed_methods,
    reason = "writes below the run folder, and one file where the configuration says"
)]

/// Rings when something changes in the run dir.
pub mod bell;
/// Copies of a held guard's claim in the processes that wait for its gate.
pub mod claims;
/// The state of all guards, from the agent to whoever tells about it.
pub mod feed;
/// Ready files, published facts, the status file, requests.
pub mod files;
/// HTTP on a Unix socket, and on loopback where configured.
pub mod http;
/// systemd's notify protocol and its descriptor store.
pub mod notify;
/// Who may read the status.
pub mod readers;
/// Metrics in node_exporter's textfile directory.
pub mod textfile;
/// Waiting for a gate to open.
mod waiting;

pub use files::{Closing, GateError, Published};
pub use waiting::{Until, WaitOutcome, wait};
