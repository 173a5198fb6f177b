//! What Prometheus is told: every metric with its help, labels and stability in one table ([`table`]), and one text made of a
//! status, of what was measured beside it, and of what was counted.
//!
//! State is told as gauges, and alerts are about those: a refusal at boot happens before the first scrape, and a counter that
//! was never seen at 0 shows no increase. Gauges are made anew for each text, so that nothing stays behind of a guard or a
//! reason that is gone. Labels are guards and closed enums; ids stand in `volhold_guard_info` alone.
//!
//! Nothing here looks at anything, and nothing decides by it.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]

/// From a status to samples.
mod samples;
/// Every metric.
pub mod table;
/// What is counted over the agent's life.
mod tally;
/// Reasons in a few words that alerts can name.
mod verdict;

pub use tally::Tally;
pub use verdict::Verdict;

use crate::model::{GuardName, Status, Time};
use prometheus::{CounterVec, GaugeVec, Opts, Registry, TextEncoder};
use std::collections::BTreeMap;
use std::time::Instant;
use table::{Kind, Metric};

/// What the machine says of a guard's volume, beside its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// The volume, or each directory of it that is to be published, is mounted where the agent sees it. `None`: nobody could tell.
    pub mounted: Option<bool>,
    /// Its gate was opened in this boot.
    pub published: bool,
    /// A person has opened its gate by hand.
    pub bypassed: bool,
    /// Bytes of the mounted filesystem.
    pub filesystem_size: Option<u64>,
    /// Bytes of it that processes which are not root's can still write.
    pub filesystem_available: Option<u64>,
    /// Its inodes. `None` also for a filesystem that makes them as they are needed and names no number.
    pub files: Option<u64>,
    /// Those that are left.
    pub files_free: Option<u64>,
}

/// All that a text is made of.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'s> {
    pub status: &'s Status,
    /// Guards that the configuration names, also those of which nothing was reported yet.
    pub configured: &'s [GuardName],
    pub measured: &'s BTreeMap<GuardName, Measured>,
    pub tally: &'s Tally,
    pub now: Time,
    /// The same moment, for what is counted.
    pub instant: Instant,
}

/// One value of one metric; labels in the order of the table.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    metric: &'static Metric,
    labels: Vec<String>,
    value: f64,
}

/// The metrics cannot be told: a mistake in the table.
#[derive(Debug, thiserror::Error)]
#[error("the metrics cannot be written")]
pub struct MetricsError(#[from] prometheus::Error);

/// The text of a scrape (text format 0.0.4).
pub fn text(sources: &Sources<'_>) -> Result<String, MetricsError> {
    let samples = samples::samples(sources);
    let registry = Registry::new();
    for metric in table::ALL.iter().copied() {
        let opts = Opts::new(metric.name, metric.help);
        let own = samples.iter().filter(|sample| sample.metric.name == metric.name);
        match metric.kind {
            Kind::Gauge => {
                let gauge = GaugeVec::new(opts, metric.labels)?;
                for Sample { labels, value, .. } in own {
                    gauge.get_metric_with_label_values(labels)?.set(*value);
                }
                registry.register(Box::new(gauge))?;
            }
            Kind::Counter => {
                let counter = CounterVec::new(opts, metric.labels)?;
                for Sample { labels, value, .. } in own {
                    counter.get_metric_with_label_values(labels)?.inc_by(*value);
                }
                registry.register(Box::new(counter))?;
            }
        }
    }
    Ok(TextEncoder::new().encode_to_string(&registry.gather())?)
}

#[cfg(test)]
mod tests;
