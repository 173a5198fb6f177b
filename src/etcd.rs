//! Readers for what etcd leaves on disk.
//!
//! Why it exists: whether an etcd may start depends on what its data dir really holds, and etcd itself can only tell by
//! starting. These readers answer without starting anything, without taking a lock, and without writing: directories are
//! opened by descriptor, files are read with `pread` (never mapped: a page that cannot be read must be an error, not a
//! signal), and every number that comes from the disk is checked before it is used.
//!
//! The order to read it in:
//!
//! [`read_at`] (bytes in) → [`bolt`] (pages, trees) → [`schema`] (what etcd's buckets mean) → [`wal`], [`snap`] (the other
//! two thirds of a member) → [`quick`] (one data dir) → [`find`] (every data dir of a volume). Beside them
//! [`manager_state`] (etcd-manager's `state`), [`lock`] (who runs on it) and [`mark`] (progress that survives a power cut).
//!
//! Boundary: it knows nothing of devices, mounts, records or verdicts. It says what is there and what is wrong with it;
//! `decide` says what follows. An error of reading is never an absence.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]

pub mod bolt;
mod bytes;
pub mod deep;
mod defects;
mod dir;
mod entry;
mod error;
pub mod facts;
mod file;
pub mod find;
pub mod lock;
mod lookalike;
pub mod manager_state;
pub mod mark;
mod member;
pub mod proto;
pub mod quick;
pub mod read_at;
mod record;
pub mod schema;
pub mod snap;
mod v2store;
pub mod wal;

pub use deep::{DeepQuestion, read_deep};
pub use defects::{defect_codes, defect_reason_code};
pub use error::EtcdError;
pub use facts::{backend_facts, data_dir_facts, hash_at};
pub use file::read_file;
pub use find::{VolumeHints, examine_volume, examine_volume_reporting};
pub use lock::{lock_holder, lockers, remember_lock_owners, running_on, strays};
pub use mark::durable_mark;
pub use quick::quick;
pub use read_at::{ReadAt, ReadError, Window};
pub use v2store::{V2Store, read_v2_store};
