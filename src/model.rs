//! The plain types that all other rooms speak.
//!
//! Everything the agent learns or decides is one of these values: printable as JSON, comparable, without behaviour
//! beyond its own invariants. This module uses nothing of ours, so that no fact can depend on how it was learned.

pub mod datadir;
pub mod decision;
pub mod deep;
pub mod device;
pub mod evidence;
pub mod facts;
pub mod harmless;
pub mod ids;
pub mod observed;
pub mod order;
pub mod plan;
pub mod publish;
pub mod reason;
pub mod record;
pub mod start;
pub mod status;
pub mod time;
pub mod to_run;
pub mod watch;
pub mod witness;

pub use datadir::*;
pub use decision::*;
pub use deep::*;
pub use device::*;
pub use evidence::*;
pub use facts::*;
pub use ids::*;
pub use observed::{Observed, Why};
pub use order::*;
pub use plan::*;
pub use publish::{Publish, PublishDir, WHOLE, names_no_place};
pub use reason::{Reason, ReasonCode};
pub use record::*;
pub use start::*;
pub use status::*;
pub use time::{BootMillis, Time};
pub use to_run::*;
pub use watch::*;
pub use witness::Witness;
