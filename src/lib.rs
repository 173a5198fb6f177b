//! volhold: guards the EBS volume under etcd on Kubernetes masters.
//!
//! The way of the data, which is also the order to read the modules in:
//!
//! volume → device → evidence → format verdict → (mkfs) → fsck → detached mount → data dirs → fingerprint →
//! start verdict → published mount → open gate → watch
//!
//! Every arrow is a plain value of [`model`]. [`agent`] drives it, one state machine for each guard. Who may use whom is
//! asserted by `tests/it/architecture.rs`.
#![deny(unsafe_code)]
// What changes the machine may stand in few rooms (clippy.toml); tests make and break what they like.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

/// The only module that changes anything: mkfs, fsck, mount, publish, seal, the volume's ledger.
pub mod act;
/// The state machine of a guard and its driver; the only place that wires modules.
pub mod agent;
/// The moment in which a child starts, and the claims that must not be let go in it.
pub mod children;
/// Verbs and how they print.
pub mod cli;
/// Where volumes come from: the provider trait, `local`, and (feature `aws`) `ebs`.
pub mod cloud;
/// The configuration file: as written, and validated.
pub mod config;
/// Pure rules: may this be formatted? may etcd start? No I/O, no clock.
pub mod decide;
/// From a configured name to an opened, identified, claimed device.
pub mod device;
/// Readers for what etcd leaves on disk. Never panic, never trust a length.
pub mod etcd;
/// Points at which a test lets the agent die; empty in every build that is not for tests.
pub mod fault;
/// How the world learns the verdict: sd_notify, ready files, the status file, waiting.
pub mod gate;
/// How a guard is built into a machine: presets, drop-ins, and what `doctor` says of each layer.
pub mod install;
/// What Prometheus is told: one table of metrics, and their text.
pub mod metrics;
/// Plain types that all others speak; uses nothing of ours.
pub mod model;
/// Looks at block devices as bytes: libblkid, content scan, signatures. Never writes.
pub mod probe;
/// Memory: ledgers and what their union says; the last decision.
pub mod record;
/// After the gate is open: hints that something changed.
pub mod watch;
/// Runs readers of untrusted bytes in a child process with a deadline.
pub mod worker;
