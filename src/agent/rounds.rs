//! When a guard looks again: hints from the kernel and from people, and timers where nobody would hint.
//!
//! A hint is never a fact. All that it can do is make the guard look.

use super::machine::State;
use crate::model::{GuardName, Mode, Reason, ReasonCode};
use crate::watch::{DataDirWatch, WatchHint};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, sleep_until};

/// Something happened somewhere on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// This block device came, changed or went. `None`: which one was lost.
    Block(Option<String>),
    /// The mount table changed.
    Mounts,
    /// A person typed a verb for this guard.
    Request(GuardName),
    /// A person typed a verb, and which guard it is for was lost.
    SomeRequest,
    /// A process that can keep a copy of this guard's claim has come. `None`: which guard's was lost.
    Keeper(Option<GuardName>),
}

/// What the guard is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    LookAgain,
    /// Read and keep durable progress.
    Mark,
    /// Something stirred in or beside the data dir of an open gate: keep progress, and look at the whole volume.
    Stirred,
    /// Give the claim to whoever waits, too.
    Share,
}

/// How often a device is looked for that is not there, or is in somebody else's hands.
const SEEK: Duration = Duration::from_secs(15);
/// How often a device is looked for that is on its way, and after how many of these looks more rarely. The kernel's hints
/// come first; when EC2 is asked is for the provider to say.
const ARRIVES: Duration = Duration::from_secs(1);
const ARRIVES_SOON: u32 = 120;
const ARRIVES_LATE: Duration = Duration::from_secs(5);
/// How soon what could not be read is read again; doubles up to `LONGEST`.
const REREAD: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(900);
/// As long as any machine runs.
const NEVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How often progress is kept while nothing hints.
const MARK: Duration = Duration::from_secs(300);
/// How often a fresh data dir is looked at until it holds a key: a wiped dir must be told from one that never held any.
const GROW: Duration = Duration::from_secs(2);
/// Many changes at once are one change.
const TOGETHER: Duration = Duration::from_millis(200);
/// So many looks at what stirs follow each other at once; from then on each waits, until it has been quiet for `CALM`, so that
/// looking takes one part in `SHARE` of the time. Who makes files all day long makes nobody read all day long.
const BURST: u32 = 10;
const SHARE: u32 = 20;
const LONGEST_GAP: Duration = Duration::from_secs(15);
const CALM: Duration = Duration::from_secs(10);
/// Our own fsck and mkfs make udev announce a change: hints about the device count again after this.
const OWN_ECHO: Duration = Duration::from_secs(3);

/// What is watched: paths, and the directory that stood at the first of them. One that was mounted since is another.
#[derive(Debug, PartialEq, Eq)]
struct Watched {
    root: PathBuf,
    data_dir: PathBuf,
    stood: Option<(u64, u64)>,
}

/// One guard's alarm clock.
pub struct Rounds {
    name: GuardName,
    mode: Mode,
    hints: Option<broadcast::Receiver<Hint>>,
    dir: Option<(DataDirWatch, mpsc::Receiver<WatchHint>)>,
    watched: Option<Watched>,
    /// When to look at what stirs.
    stirred: Option<Instant>,
    /// No look because of that before this.
    not_before: Instant,
    /// Looks that followed each other.
    looks: u32,
    grows: bool,
    /// Kernel name of the guard's device, while it has one.
    device: Option<String>,
    entered: Instant,
    state: Option<State>,
    repeats: u32,
}

impl Rounds {
    pub fn new(name: GuardName, mode: Mode, hints: broadcast::Receiver<Hint>) -> Self {
        Rounds {
            name,
            mode,
            hints: Some(hints),
            dir: None,
            watched: None,
            stirred: None,
            not_before: Instant::now(),
            looks: 0,
            grows: false,
            device: None,
            entered: Instant::now(),
            state: None,
            repeats: 0,
        }
    }

    /// For another one who listens to the same hints; `None` once nobody sends any more.
    pub fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        self.hints.as_ref().map(broadcast::Receiver::resubscribe)
    }

    /// The gate is open: watch this data dir below `root`, what is published of the volume. `grows`: it held nothing yet.
    pub fn watch(&mut self, root: &Path, data_dir: &Path, grows: bool) {
        self.grows = grows;
        let stood = std::fs::symlink_metadata(root).ok().map(|meta| (meta.dev(), meta.ino()));
        let wanted = Watched { root: root.to_owned(), data_dir: data_dir.to_owned(), stood };
        // The old watch may have something to tell yet.
        if self.dir.is_some() && self.watched.as_ref() == Some(&wanted) {
            return;
        }
        match DataDirWatch::start(root, data_dir) {
            Ok(watch) => {
                self.dir = Some(watch);
                self.watched = Some(wanted);
            }
            Err(error) => {
                tracing::warn!(event = "watch.failed", guard = %self.name, error = %error, "only timers look after the data dir");
            }
        }
    }

    /// What stirred was looked at, and that took so long.
    pub fn looked(&mut self, took: Duration) {
        let now = Instant::now();
        let calm = now.saturating_duration_since(self.not_before).saturating_sub(took) > CALM;
        self.looks = if calm { 0 } else { self.looks.saturating_add(1) };
        let gap = if self.looks < BURST { Duration::ZERO } else { took.saturating_mul(SHARE).min(LONGEST_GAP) };
        self.not_before = now.checked_add(gap).unwrap_or(now);
    }

    /// The guard's device as the kernel calls it; `None` while it has none, when any device may be the one.
    pub fn device(&mut self, name: Option<String>) {
        self.device = name;
    }

    /// The configuration changed: what was waited for may not be what is to be waited for now.
    pub fn reconfigure(&mut self, mode: Mode) {
        self.mode = mode;
        self.device = None;
        self.state = None;
    }

    /// A mark was read.
    pub fn marked(&mut self, holds_data: bool) {
        if holds_data {
            self.grows = false;
        }
    }

    /// Waits until it is time to do something in this state.
    pub async fn next(&mut self, state: &State) -> Wake {
        self.enter(state);
        let open = matches!(state, State::Open { .. });
        let due = self.entered + self.pause(state);
        loop {
            let stirred = self.stirred;
            let wake = tokio::select! {
                () = sleep_until(due) => {
                    self.entered = Instant::now();
                    return if open { Wake::Mark } else { Wake::LookAgain };
                }
                () = at(stirred), if open => {
                    self.stirred = None;
                    self.entered = Instant::now();
                    return Wake::Stirred;
                }
                hint = heard(&mut self.hints) => self.weigh(hint, state),
                () = changed(&mut self.dir), if open => {
                    let soon = Instant::now() + TOGETHER;
                    self.stirred.get_or_insert(soon.max(self.not_before));
                    None
                }
            };
            if let Some(wake) = wake {
                return wake;
            }
        }
    }

    fn enter(&mut self, state: &State) {
        if self.state.as_ref() == Some(state) {
            if !matches!(state, State::Open { .. }) {
                self.repeats = self.repeats.saturating_add(1);
                self.entered = Instant::now();
            }
        } else {
            self.repeats = 0;
            self.entered = Instant::now();
            self.state = Some(state.clone());
        }
    }

    fn pause(&self, state: &State) -> Duration {
        match state {
            State::Open { .. } if self.grows => GROW,
            State::Open { .. } => MARK,
            State::Held { reasons } => self.pause_when_held(reasons),
            State::Observing { .. } => MARK,
            State::Attaching { .. } if self.repeats < ARRIVES_SOON => ARRIVES,
            State::Attaching { .. } => ARRIVES_LATE,
            State::Discovering | State::Examining | State::Formatting | State::Inspecting | State::Publishing => SEEK,
        }
    }

    fn pause_when_held(&self, reasons: &[Reason]) -> Duration {
        let has = |codes: &[ReasonCode]| reasons.iter().any(|reason| codes.contains(&reason.code));
        if has(&[
            ReasonCode::DeviceMissing,
            ReasonCode::InUse,
            ReasonCode::NoPermission,
            ReasonCode::NotABlockDevice,
            ReasonCode::SizeMismatch,
            ReasonCode::VolumeAmbiguous,
            ReasonCode::VolumeNotFound,
            ReasonCode::VolumeElsewhere,
            ReasonCode::AttachStuck,
            ReasonCode::AttachRefused,
            ReasonCode::MultiAttach,
            ReasonCode::ProviderUnreachable,
            ReasonCode::ReleasedByOperator,
        ]) {
            SEEK
        } else if has(&[
            ReasonCode::Unreadable,
            ReasonCode::ShortRead,
            ReasonCode::TimedOut,
            ReasonCode::ReaderFailed,
            ReasonCode::MountpointNotEmpty,
            ReasonCode::SnapshotRefused,
        ]) {
            REREAD.saturating_mul(1_u32 << self.repeats.min(4)).min(LONGEST)
        } else {
            // The device is claimed: nothing changes by itself, and a look writes (fsck, mount). A person's `retry` or an
            // event of the device itself makes it look.
            NEVER
        }
    }

    fn weigh(&self, hint: Option<Hint>, state: &State) -> Option<Wake> {
        let settled = match state {
            State::Held { .. } | State::Observing { .. } | State::Discovering | State::Attaching { .. } => true,
            State::Open { .. } | State::Examining | State::Formatting | State::Inspecting | State::Publishing => false,
        };
        match hint {
            Some(Hint::Request(name)) if name == self.name => Some(Wake::LookAgain),
            Some(Hint::Request(_)) => None,
            Some(Hint::SomeRequest) => Some(Wake::LookAgain),
            Some(Hint::Keeper(name)) => {
                let held = matches!(state, State::Held { .. });
                (held && name.is_none_or(|name| name == self.name)).then_some(Wake::Share)
            }
            Some(Hint::Block(name)) => {
                let about_another = name.is_some() && self.device.is_some() && name != self.device;
                let quiet = match state {
                    // Nothing of ours has touched it yet.
                    State::Attaching { .. } => Duration::ZERO,
                    _other => OWN_ECHO.saturating_mul(1_u32 << self.repeats.min(8)),
                };
                (settled && !about_another && self.entered.elapsed() >= quiet).then_some(Wake::LookAgain)
            }
            Some(Hint::Mounts) => {
                let waits_for_it = match state {
                    State::Observing { .. } => self.mode == Mode::Observe,
                    State::Held { reasons } => reasons.iter().any(|reason| reason.code == ReasonCode::InUse),
                    State::Open { .. }
                    | State::Discovering
                    | State::Attaching { .. }
                    | State::Examining
                    | State::Formatting
                    | State::Inspecting
                    | State::Publishing => false,
                };
                waits_for_it.then_some(Wake::LookAgain)
            }
            // Hints were lost: look.
            None => settled.then_some(Wake::LookAgain),
        }
    }
}

/// The next hint; `None` when some were lost. Waits for ever once nobody can send any more.
async fn heard(hints: &mut Option<broadcast::Receiver<Hint>>) -> Option<Hint> {
    loop {
        match hints {
            Some(receiver) => match receiver.recv().await {
                Ok(hint) => return Some(hint),
                Err(broadcast::error::RecvError::Lagged(_)) => return None,
                Err(broadcast::error::RecvError::Closed) => *hints = None,
            },
            None => std::future::pending().await,
        }
    }
}

/// Until then; for ever where that is never.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Waits for a hint about the data dir, and takes all that wait beside it; for ever where none is watched.
async fn changed(dir: &mut Option<(DataDirWatch, mpsc::Receiver<WatchHint>)>) {
    match dir {
        Some((_watch, hints)) => {
            if hints.recv().await.is_none() {
                *dir = None;
                return;
            }
            while hints.try_recv().is_ok() {}
        }
        None => std::future::pending().await,
    }
}
