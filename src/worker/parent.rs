//! The agent's side: starts a child, takes its lines, and knows when to stop believing in it.

use super::confine::Confinement;
use super::{Line, Request};
use crate::etcd::VolumeHints;
use crate::model::{DeviceReading, HighWater, Observed, RunningEtcd, SecondReading, VolumeReading, Why};
use crate::probe::{self, ProbeAnswer, ProbeRequest};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout_at};

/// Longest line that a child may send. A reading of a volume full of data dirs is some hundred KiB.
const LONGEST_LINE: usize = 16 << 20;

/// How long a child may take.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    /// Without any line. A read of 4 MiB on a slow disk fits: 10 s and 2 s a MiB.
    pub silence: Duration,
    /// In all.
    pub total: Duration,
}

impl Deadline {
    /// For a device or volume of this many bytes: 18 s of silence, and the whole at 25 MB/s plus a minute.
    pub fn for_bytes(bytes: u64) -> Self {
        let whole = Duration::from_secs((bytes / 25_000_000).saturating_add(60));
        Deadline { silence: Duration::from_secs(18), total: whole }
    }

    /// For readings that say nothing while they work: silence counts as a stall only when all the time is over.
    pub fn quiet(total: Duration) -> Self {
        Deadline { silence: total, total }
    }
}

/// Examines a device as bytes. `progress` hears `(done, total)`.
pub async fn probe(
    device: OwnedFd,
    request: &ProbeRequest,
    deadline: Deadline,
    mut progress: impl FnMut(u64, u64),
) -> DeviceReading {
    let mut answers: Vec<ProbeAnswer> = Vec::new();
    let outcome = run(device, &Request::Probe(request.clone()), deadline, |line| match line {
        Line::Probe(ProbeAnswer::Progress { done, total, direct: _ }) => progress(done, total),
        Line::Probe(answer) => answers.push(answer),
        Line::Confined(_) | Line::Done => {}
        Line::SecondReading(_)
        | Line::Volume(_)
        | Line::Running(_)
        | Line::Mark(_)
        | Line::Pages { .. }
        | Line::Facts(_)
        | Line::Hash(_)
        | Line::File(_)
        | Line::State(_)
        | Line::EditedState(_) => {}
    })
    .await;
    let missing = match outcome {
        Ok(()) => Why::ReaderFailed { detail: "the reader ended without this answer".to_owned() },
        Err(why) => why,
    };
    probe::assemble(answers.into_iter(), missing)
}

/// Reads the telling regions again and compares.
pub async fn second_reading(
    device: OwnedFd,
    first_digest: String,
    size_before: u64,
    deadline: Deadline,
) -> Observed<SecondReading> {
    let mut seen = None;
    let request = Request::SecondReading { first_digest, size_before };
    let outcome = run(device, &request, deadline, |line| {
        if let Line::SecondReading(answer) = line {
            seen = Some(answer);
        }
    })
    .await;
    conclude(outcome, seen).and_then_observed()
}

/// Finds and reads every data dir below `root`, and says which etcd, if any, runs on one of them.
pub async fn examine_volume(
    root: OwnedFd,
    hints: &VolumeHints,
    deadline: Deadline,
) -> (Observed<VolumeReading>, Observed<Option<RunningEtcd>>) {
    let (mut reading, mut running) = (None, None);
    let outcome = run(root, &Request::Volume(hints.clone()), deadline, |line| match line {
        Line::Volume(answer) => reading = Some(*answer),
        Line::Running(answer) => running = Some(answer),
        Line::Confined(_)
        | Line::Probe(_)
        | Line::SecondReading(_)
        | Line::Mark(_)
        | Line::Pages { .. }
        | Line::Facts(_)
        | Line::Hash(_)
        | Line::File(_)
        | Line::State(_)
        | Line::EditedState(_)
        | Line::Done => {}
    })
    .await;
    (conclude(outcome.clone(), reading), conclude(outcome, running).and_then_observed())
}

/// Durable progress of one data dir.
pub async fn mark(root: OwnedFd, data_dir: &str, deadline: Deadline) -> Observed<Option<HighWater>> {
    let mut seen = None;
    let request = Request::Mark { data_dir: data_dir.to_owned() };
    let outcome = run(root, &request, deadline, |line| {
        if let Line::Mark(answer) = line {
            seen = Some(answer);
        }
    })
    .await;
    conclude(outcome, seen).and_then_observed()
}

pub(super) fn conclude<T>(outcome: Result<(), Why>, seen: Option<T>) -> Observed<T> {
    match (outcome, seen) {
        (Ok(()), Some(seen)) => Observed::Seen(seen),
        (Ok(()), None) => Observed::Unknown(Why::ReaderFailed { detail: "the reader ended without an answer".into() }),
        (Err(why), _) => Observed::Unknown(why),
    }
}

pub(super) trait Flatten<T> {
    fn and_then_observed(self) -> Observed<T>;
}

impl<T> Flatten<T> for Observed<Observed<T>> {
    fn and_then_observed(self) -> Observed<T> {
        match self {
            Observed::Seen(inner) => inner,
            Observed::Unknown(why) => Observed::Unknown(why),
        }
    }
}

/// Runs one child to its `Done` line. Lines heard before a failure were still heard.
pub(super) async fn run(
    input: OwnedFd,
    request: &Request,
    deadline: Deadline,
    hear: impl FnMut(Line),
) -> Result<(), Why> {
    let failed = |detail: String| Why::ReaderFailed { detail };
    let text = serde_json::to_string(request).map_err(|why| failed(format!("cannot write the request: {why}")))?;
    let child = spawn(input, &text).map_err(|why| failed(format!("cannot start the reader: {why}")))?;
    listen(child, deadline, hear).await
}

async fn listen(mut child: Child, deadline: Deadline, mut hear: impl FnMut(Line)) -> Result<(), Why> {
    let failed = |detail: String| Why::ReaderFailed { detail };
    let Some(stdout) = child.stdout.take() else {
        return Err(failed("the reader has no standard output".to_owned()));
    };
    let mut lines = BufReader::new(stdout);
    let end = Instant::now() + deadline.total;
    loop {
        let until = end.min(Instant::now() + deadline.silence);
        let line = match timeout_at(until, next_line(&mut lines)).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return Err(ended(&mut child, end).await),
            Ok(Err(why)) => {
                stop(child);
                return Err(failed(format!("the reader's answer cannot be read: {why}")));
            }
            Err(_elapsed) => {
                stop(child);
                let seconds = deadline.silence.min(deadline.total).as_secs();
                return Err(Why::TimedOut { detail: format!("the reader said nothing for {seconds} s") });
            }
        };
        match serde_json::from_slice::<Line>(&line) {
            Ok(Line::Done) => {
                // It has nothing left to do; whoever waits for its end gets it from the runtime's reaper.
                stop(child);
                return Ok(());
            }
            Ok(Line::Confined(walls)) => tell_gaps(&walls),
            Ok(line) => hear(line),
            Err(why) => {
                stop(child);
                return Err(failed(format!("the reader answered nonsense: {why}")));
            }
        }
    }
}

/// A reader works with what the kernel has. Who asks why something is missing finds it here.
fn tell_gaps(walls: &Confinement) {
    if let Some(gaps) = walls.gaps() {
        tracing::debug!(event = "reader.confined", "not all of the sandbox could be built: {gaps}");
    }
}

#[expect(clippy::disallowed_methods, reason = "the worker room re-executes this binary; nothing else spawns here")]
pub(super) fn spawn(input: OwnedFd, request: &str) -> std::io::Result<Child> {
    // /proc/self/exe and not a path: an upgrade may have replaced the file, and the answer must come from our own code.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("worker")
        .arg(request)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::from(input))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    crate::children::starting(|| command.spawn())
}

/// Reads one line without its end, at most `LONGEST_LINE` bytes. `None` at the end of the stream.
async fn next_line(lines: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let available = lines.fill_buf().await?;
        if available.is_empty() {
            return if line.is_empty() {
                Ok(None)
            } else {
                Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "it ends in the middle of a line"))
            };
        }
        let newline = available.iter().position(|byte| *byte == b'\n');
        let (taken, done) = match newline {
            Some(at) => (at, true),
            None => (available.len(), false),
        };
        line.extend(available.iter().take(taken));
        let consumed = if done { taken.saturating_add(1) } else { taken };
        lines.consume(consumed);
        if line.len() > LONGEST_LINE {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "a line is longer than 16 MiB"));
        }
        if done {
            return Ok(Some(line));
        }
    }
}

/// The stream ended before `Done`: says how the child ended and what it complained about.
async fn ended(child: &mut Child, end: Instant) -> Why {
    let mut complaint = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let reading = async { stderr.take(2048).read_to_end(&mut complaint).await };
        let _partial = timeout_at(end.min(Instant::now() + Duration::from_secs(2)), reading).await;
    }
    let status = match timeout_at(end.min(Instant::now() + Duration::from_secs(2)), child.wait()).await {
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(why)) => format!("unknown ({why})"),
        Err(_elapsed) => "still running".to_owned(),
    };
    let complaint = String::from_utf8_lossy(&complaint);
    let complaint = complaint.trim();
    let detail = if complaint.is_empty() {
        format!("the reader ended without an answer ({status})")
    } else {
        format!("the reader ended without an answer ({status}): {}", complaint.escape_debug())
    };
    Why::ReaderFailed { detail }
}

/// Kills and forgets. Dropping a `Child` with `kill_on_drop` sends the signal and lets the runtime reap it when it can:
/// one that hangs in the kernel is not waited for.
fn stop(child: Child) {
    drop(child);
}

#[cfg(test)]
mod tests;
