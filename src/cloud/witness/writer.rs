//! Writes the witness, in a task of its own: whatever EC2 does, nobody waits for it, and what fails costs the witness and
//! nothing else.
//!
//! What changes who the data is (filesystem, cluster, member) is written soon, progress at most every few minutes, and what
//! is the same as before not at all.

use super::super::backoff::{Backoff, Pace};
use super::super::code::{ApiError, Code};
use super::super::ec2::Ec2;
use super::super::hub::Hub;
use super::tags;
use crate::model::{Reason, ReasonCode, Time, VolumeId, Witness, WitnessStatus};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Between two writes, at least.
const SOON: Duration = Duration::from_secs(30);
/// Between two writes of progress, at least.
const EVERY: Duration = Duration::from_secs(300);
/// Until what was refused is tried again: a permission may be given, but nobody waits for it.
const REFUSED: Duration = Duration::from_secs(3600);
/// After a start, until what is likely to stand there already is written again. Longer than masters take that boot together,
/// and each at a moment of its own.
const AGAIN: Duration = Duration::from_secs(120);

/// What a guard wants remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub volume: VolumeId,
    pub witness: Witness,
    /// It became so just now, before the eyes of this agent.
    pub news: bool,
    /// Name of the guard.
    pub guard: String,
}

impl Wanted {
    /// Does this say of somebody else's data what that says? Times and progress aside.
    fn same_identity(&self, other: &Wanted) -> bool {
        let identity = |wanted: &Wanted| {
            let Witness { fs_uuid, formatted, cluster_id, member_id, data_dir, .. } = wanted.witness.clone();
            (wanted.volume.clone(), fs_uuid, formatted.map(|(at, _)| at), cluster_id, member_id, data_dir)
        };
        identity(self) == identity(other)
    }
}

/// One guard's writer. Its task ends with it.
#[derive(Debug)]
pub struct Writer {
    wanted: watch::Sender<Option<Wanted>>,
    status: watch::Receiver<WitnessStatus>,
}

impl Writer {
    /// `seed` keeps machines apart.
    pub fn start<A: Ec2>(hub: Arc<Hub<A>>, seed: u64) -> Self {
        let (wanted, asked) = watch::channel(None);
        let (told, status) = watch::channel(WitnessStatus::default());
        tokio::spawn(run(hub, seed, asked, told));
        Writer { wanted, status }
    }

    /// Never waits.
    pub fn want(&self, wanted: Wanted) {
        self.wanted.send_if_modified(|current| {
            let differs = current.as_ref() != Some(&wanted);
            if differs {
                *current = Some(wanted);
            }
            differs
        });
    }

    /// How it stands with the tags.
    pub fn status(&self) -> WitnessStatus {
        self.status.borrow().clone()
    }

    /// Until that changes.
    pub async fn news(&mut self) {
        if self.status.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// When what is wanted is written. Times are those since the task began.
#[derive(Debug)]
struct Schedule {
    backoff: Backoff,
    /// The first write of what is no news.
    first: Duration,
    last: Option<(Duration, Wanted)>,
    not_before: Duration,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        // A moment of this machine's own in the second half of `AGAIN`.
        let own = Duration::from_secs(seed.checked_rem(60).unwrap_or_default());
        Schedule {
            backoff: Backoff::new(seed),
            first: AGAIN.saturating_sub(own),
            last: None,
            not_before: Duration::ZERO,
        }
    }

    /// `None`: it stands there already.
    fn due(&self, wanted: &Wanted) -> Option<Duration> {
        let due = match &self.last {
            None if wanted.news => Duration::ZERO,
            None => self.first,
            Some((at, written)) if !wanted.same_identity(written) => at.saturating_add(SOON),
            Some((_, written)) if wanted.witness.mark == written.witness.mark => return None,
            Some((at, _)) => at.saturating_add(EVERY),
        };
        Some(due.max(self.not_before))
    }

    fn written(&mut self, now: Duration, wanted: Wanted) {
        self.backoff.reset();
        self.last = Some((now, wanted));
    }

    fn failed(&mut self, now: Duration, code: Code) {
        let pause = match code {
            Code::Throttled | Code::NoAnswer | Code::Unavailable => self.backoff.pause(Pace::Throttled).max(SOON),
            code if code.passes_by_itself() => EVERY,
            _refused => REFUSED,
        };
        self.not_before = now.saturating_add(pause);
    }
}

async fn run<A: Ec2>(
    hub: Arc<Hub<A>>,
    seed: u64,
    mut asked: watch::Receiver<Option<Wanted>>,
    told: watch::Sender<WitnessStatus>,
) {
    let began = Instant::now();
    let mut schedule = Schedule::new(seed);
    loop {
        let wanted = asked.borrow_and_update().clone();
        let due = wanted.and_then(|wanted| Some((schedule.due(&wanted)?, wanted)));
        let Some((due, wanted)) = due else {
            if asked.changed().await.is_err() {
                return;
            }
            continue;
        };
        if due > began.elapsed() {
            tokio::select! {
                () = tokio::time::sleep_until(began + due) => {}
                // Whatever is wanted by then is written.
                changed = asked.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    continue;
                }
            }
        }
        match write(&hub, &wanted).await {
            Ok(at) => {
                schedule.written(began.elapsed(), wanted);
                told.send_replace(WitnessStatus { written_at: Some(at), trouble: None });
            }
            Err(error) => {
                schedule.failed(began.elapsed(), error.code);
                tell(&told, &wanted, &error);
            }
        }
    }
}

async fn write<A: Ec2>(hub: &Arc<Hub<A>>, wanted: &Wanted) -> Result<Time, ApiError> {
    let here = hub.here().await?;
    let at = Time::now();
    let mut witness = wanted.witness.clone();
    witness.volume = Some(wanted.volume.clone());
    witness.seen_at = Some(at);
    witness.holder = Some(format!("{} {}", here.instance, wanted.guard));
    if let Some((_, by)) = &mut witness.formatted {
        *by = here.instance.to_string();
    }
    hub.tag(&here, &wanted.volume, &tags(&witness)).await?;
    Ok(at)
}

/// Once, until it is something else.
fn tell(told: &watch::Sender<WitnessStatus>, wanted: &Wanted, error: &ApiError) {
    let what = error.what();
    let message = format!(
        "no witness is written to the tags of {}, for {what}; everything else works without it ({})",
        wanted.volume,
        error.code.remedy()
    );
    let trouble = Reason::new(ReasonCode::WitnessUnreachable, message);
    let new = told.send_if_modified(|status| {
        let new = status.trouble.as_ref() != Some(&trouble);
        status.trouble = Some(trouble.clone());
        new
    });
    if new {
        tracing::warn!(event = "witness.unwritten", guard = wanted.guard, said = error.said, "{}", trouble.message);
    }
}

#[cfg(test)]
mod tests;
