//! The rules: may this device be formatted, may etcd start on this volume.
//!
//! Pure functions over the plain values of [`crate::model`]: no I/O, no clock, no configuration parsing, no logging. What
//! is not known arrives as [`crate::model::Observed::Unknown`] and is an objection, never an absence. Every rule reports
//! all its objections, the most telling first, each as a sentence that stands alone.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]

/// May this device be formatted? The permit that mkfs consumes.
pub mod format;
/// What an etcd of some version would do with a data dir.
pub mod predict;
/// May etcd start on this volume?
pub mod start;
/// Words and numbers as people read them.
mod words;
