//! Wall-clock times as people and scripts read them: RFC 3339 in UTC.

use serde::{Deserialize, Serialize};

/// A moment, printed as RFC 3339 in UTC with whole seconds or finer. Never used to order indexes or revisions: clocks go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub jiff::Timestamp);

impl Time {
    pub fn now() -> Self {
        Time(jiff::Timestamp::now())
    }

    /// From seconds since 1970; `None` where that is outside of what a timestamp can hold.
    pub fn from_unix(seconds: i64) -> Option<Self> {
        jiff::Timestamp::from_second(seconds).ok().map(Time)
    }

    pub fn unix(self) -> i64 {
        self.0.as_second()
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = jiff::Timestamp::from_second(self.0.as_second()).unwrap_or(self.0);
        write!(f, "{seconds}")
    }
}

/// Milliseconds of `CLOCK_BOOTTIME`: never goes back, counts while suspended, starts anew with each boot. What expires
/// expires by this clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootMillis(pub u64);
