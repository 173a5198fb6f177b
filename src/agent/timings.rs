//! How long each step of a guard's way took, for `volhold status --timings`: a boot that was slow is asked about afterwards.

use super::machine::Action;
use crate::model::Timing;
use std::time::Instant;

/// The steps of one way: from looking for the device until nothing more is to be done.
#[derive(Debug, Default)]
pub struct Timings {
    steps: Vec<Timing>,
    /// What is done while the gate is open is another way, and not counted.
    closed: bool,
}

impl Timings {
    /// A step begins. Looking for the device begins a new way.
    pub fn begin(&mut self, action: &Action) -> Option<(&'static str, Instant)> {
        if matches!(action, Action::Find) {
            *self = Timings::default();
        }
        if self.closed { None } else { Some((step_name(action), Instant::now())) }
    }

    pub fn end(&mut self, begun: Option<(&'static str, Instant)>) {
        if let Some((step, started)) = begun {
            let us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.steps.push(Timing { step: step.to_owned(), us });
        }
    }

    /// The way has come to its end.
    pub fn close(&mut self) {
        self.closed = true;
    }

    pub fn told(&self) -> Vec<Timing> {
        self.steps.clone()
    }
}

fn step_name(action: &Action) -> &'static str {
    match action {
        Action::Find => "find the device",
        Action::Bring => "ask for the volume",
        Action::Claim => "claim it",
        Action::Probe => "read it as bytes",
        Action::LockAndReread { .. } => "read it a second time",
        Action::ReadLedger => "read the volume's ledger",
        Action::Mkfs(_) => "mkfs",
        Action::Fsck => "fsck",
        Action::NoFsck(_) => "record that no fsck runs",
        Action::Mount => "mount it detached",
        Action::Look | Action::LookThroughMount => "read the data dirs",
        Action::Publish { .. } => "publish",
        Action::OpenGate { .. } => "open the gate",
        Action::Secure => "secure the device",
        Action::LetGo => "let the device go",
        Action::Decide(_) => "keep the decision",
        Action::Record(_) => "keep facts",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(timings: &Timings) -> Vec<String> {
        timings.told().into_iter().map(|timing| timing.step).collect()
    }

    #[test]
    fn a_way_is_kept_until_the_next_begins() {
        let mut timings = Timings::default();
        for action in [Action::Find, Action::Claim] {
            let begun = timings.begin(&action);
            timings.end(begun);
        }
        timings.close();
        let begun = timings.begin(&Action::LookThroughMount);
        timings.end(begun);
        assert_eq!(
            steps(&timings),
            ["find the device", "claim it"],
            "a look while the gate is open is no part of the way"
        );
        let begun = timings.begin(&Action::Find);
        timings.end(begun);
        assert_eq!(steps(&timings), ["find the device"]);
    }
}
