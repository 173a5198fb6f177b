//! Memory: what volhold remembers about a volume, and how it stays true over power cuts, crashes and set-back clocks.
//!
//! A fact is written in two places that die for different reasons: the ledger on the node (dies with the instance) and
//! the ledger on the volume (dies with mkfs). [`ledger`] is their common form, [`node`] keeps the one on the node,
//! [`fold`](mod@fold) says what both together mean, [`decision`] keeps the last verdict with its evidence.
//!
//! What is not done here: writing to the volume (only `act` writes there: it gets the bytes from [`ledger::plan_append`]),
//! and judging (that is `decide`'s).
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]
#![expect(clippy::disallowed_methods, reason = "writes below the state folder, and nowhere else")]

/// The last decision of a guard, with its evidence.
pub mod decision;
/// What the union of the ledgers says about one volume. Pure.
pub mod fold;
/// Who writes: machine id and boot id.
pub mod host;
/// The last valid configuration, as a text.
pub mod kept;
/// The form of a ledger: frames, torn tails, broken chains. Pure.
pub mod ledger;
/// The ledger on the node.
pub mod node;

mod files;

pub use decision::{DecisionError, evidence_digest, load_decision, store_decision};
pub use fold::fold;
pub use host::{HostError, boot_id, known_machine_id, machine_id};
pub use kept::{kept_config_path, load_kept_config, store_kept_config};
pub use ledger::{LedgerBroken, Parsed, TornAt};
pub use node::{NodeLedger, NodeLedgerError, NodeReading};
