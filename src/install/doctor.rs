//! What `volhold doctor` says: one line for each layer, from what was tried out, with what to do where it does not hold.
//!
//! [`node`] judges what all guards share, [`guard`] what one guard needs. Pure: what was found is handed in. What could not be
//! found out is never good; where a layer cannot be there (no systemd, a guard that only observes) it is skipped, and that is said.

/// Layers of one guard.
pub mod guard;
/// Layers of the machine.
pub mod node;

use crate::model::{GuardName, Observed};
use serde::Serialize;

/// How a layer fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Ok,
    /// Not tested, because it cannot be or need not be there.
    Skip,
    /// The layer holds; something about it will surprise somebody.
    Warn,
    /// The layer does not hold, or it could not be found out whether it does.
    Fail,
}

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Skip => "skip",
            Outcome::Warn => "warn",
            Outcome::Fail => "FAIL",
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable, for scripts.
    pub id: &'static str,
    /// `null`: it is about the machine.
    pub guard: Option<GuardName>,
    pub result: Outcome,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Check {
    fn new(id: &'static str, result: Outcome, message: impl Into<String>) -> Self {
        Check { id, guard: None, result, message: message.into(), fix: None }
    }

    pub fn ok(id: &'static str, message: impl Into<String>) -> Self {
        Check::new(id, Outcome::Ok, message)
    }

    pub fn skip(id: &'static str, message: impl Into<String>) -> Self {
        Check::new(id, Outcome::Skip, message)
    }

    pub fn warn(id: &'static str, message: impl Into<String>) -> Self {
        Check::new(id, Outcome::Warn, message)
    }

    pub fn fail(id: &'static str, message: impl Into<String>) -> Self {
        Check::new(id, Outcome::Fail, message)
    }

    /// What to do about it.
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    pub fn of(mut self, guard: &GuardName) -> Self {
        self.guard = Some(guard.clone());
        self
    }
}

/// Judges what was seen; what is unknown fails, and says why.
fn seen<T>(id: &'static str, what: &str, found: &Observed<T>, judge: impl FnOnce(&T) -> Check) -> Check {
    match found {
        Observed::Seen(value) => judge(value),
        Observed::Unknown(why) => Check::fail(id, format!("{what} could not be found out: {}", why.detail())),
    }
}

#[cfg(test)]
mod tests;
