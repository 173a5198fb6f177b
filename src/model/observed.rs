//! "I do not know" as a value.

use serde::{Deserialize, Serialize};

/// What one source said. `Unknown` is a finding of its own, never an absence: no rule may read it as "nothing there".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observed<T> {
    Seen(T),
    Unknown(Why),
}

/// Why a source said nothing usable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "why")]
pub enum Why {
    /// The read or call failed (`EIO`, a failed ioctl, a syscall error).
    Unreadable { detail: String },
    /// Fewer bytes came back than the size promised.
    Short { detail: String },
    /// No answer before the deadline. The request may still hang in the kernel.
    TimedOut { detail: String },
    /// The reader process crashed, was killed, or answered nonsense.
    ReaderFailed { detail: String },
    /// Nobody asked: an earlier finding made it needless, or the agent never got that far.
    NotRun { detail: String },
}

impl<T> Observed<T> {
    /// The value, if one was seen. Rules must look at `Unknown` as well; this is for messages.
    pub fn seen(&self) -> Option<&T> {
        match self {
            Observed::Seen(value) => Some(value),
            Observed::Unknown(_) => None,
        }
    }

    /// Nobody has asked yet.
    pub fn not_run(detail: impl Into<String>) -> Self {
        Observed::Unknown(Why::NotRun { detail: detail.into() })
    }

    /// The value as another; what is unknown stays so.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> Observed<U> {
        match self {
            Observed::Seen(value) => Observed::Seen(to(value)),
            Observed::Unknown(why) => Observed::Unknown(why),
        }
    }

    pub fn as_ref(&self) -> Observed<&T> {
        match self {
            Observed::Seen(value) => Observed::Seen(value),
            Observed::Unknown(why) => Observed::Unknown(why.clone()),
        }
    }
}

impl Why {
    /// The words for a person, without the kind.
    pub fn detail(&self) -> &str {
        match self {
            Why::Unreadable { detail }
            | Why::Short { detail }
            | Why::TimedOut { detail }
            | Why::ReaderFailed { detail }
            | Why::NotRun { detail } => detail,
        }
    }
}
