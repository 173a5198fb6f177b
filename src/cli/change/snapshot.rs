//! `snapshot NAME`: keeps the volume as it is now. And the same before `adopt`, where the policy says so.

use super::{Step, Subject};
use crate::agent::snapshot::{Before, before, by_fingerprint, taken, words};
use crate::cli::exit::Exit;
use crate::cli::inspect::block_on;
use crate::cli::output::{Context, Failure, tell};
use crate::cli::text::Tone;
use crate::cloud::snapshot::{About, SnapshotState, Which};
use crate::cloud::{Client, Hub};
use crate::model::{DeviceSpec, Fact, GuardName, SnapshotPolicy, VolumeId, Witness};
use std::time::Duration;

/// How often it is asked how far a copy is: it takes minutes.
const EVERY: Duration = Duration::from_secs(5);
/// So often in a row EC2 may fail to say.
const MOST_FAILURES: u32 = 10;

pub fn run(context: &Context, name: &GuardName, wait: bool) -> Result<Exit, Failure> {
    let config = context.config()?;
    let subject = Subject::of(&config, name)?;
    let volume = volume(&subject)?;
    let hub = Hub::new(Client::default());
    let about = About { guard: name.to_string(), reason: "asked for", holds: holds(&subject) };
    let id = block_on(taken(&hub, &volume, &about))?
        .map_err(|why| Failure::new(Exit::Error, format!("no snapshot of {volume} was taken: {}", words(&why))))?;
    // Taken is taken, whatever becomes of the record.
    let fact = Fact::Snapshot { id: id.clone(), before: about.reason.to_owned() };
    let recorded = subject.append(volume.clone(), fact);
    if wait {
        block_on(complete(&hub, &id))??;
    }
    let mut change = subject.change(
        vec![
            Step::new("snapshot", true, format!("take a snapshot of {volume}")),
            Step::new("record", true, "record its id in this node's ledger"),
        ],
        None,
    );
    change.done = true;
    change.snapshot = Some(id.clone());
    let lost = match recorded {
        Ok(entry) => {
            change.recorded = Some(entry);
            None
        }
        Err(failure) => Some(failure),
    };
    context.print(&change, |screen| {
        let how = if wait { "is complete" } else { "is taken; EC2 goes on copying" };
        screen.tone(Tone::Good, &format!("{id} of {volume} {how}."));
    })?;
    match lost {
        None => Ok(Exit::Ok),
        Some(failure) => Err(failure),
    }
}

fn volume(subject: &Subject<'_>) -> Result<VolumeId, Failure> {
    match &subject.guard.device {
        DeviceSpec::Ebs(_) => subject.volume_needed(),
        DeviceSpec::Path(_) | DeviceSpec::Uuid(_) | DeviceSpec::Label(_) => Err(Failure::new(
            Exit::Usage,
            format!("{} is a device of this machine, of which nobody takes snapshots", subject.guard.name),
        )),
    }
}

fn holds(subject: &Subject<'_>) -> Witness {
    let dir = subject.status.as_ref().and_then(|status| status.data_dir.as_ref());
    let print = dir.and_then(|dir| Some((dir.path.as_str(), dir.fingerprint.as_ref()?)));
    by_fingerprint(subject.fs_uuid(), print)
}

/// Waits until the copy is complete.
async fn complete(hub: &Hub<Client>, id: &str) -> Result<(), Failure> {
    let which = Which::Id(id.to_owned());
    let mut failures = 0_u32;
    loop {
        let found = match hub.here().await {
            Ok(here) => hub.snapshot(&here, &which).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(Some(snapshot)) => {
                failures = 0;
                match snapshot.state {
                    SnapshotState::Completed => return Ok(()),
                    SnapshotState::Pending => {}
                    SnapshotState::Failed(said) => {
                        return Err(Failure::new(Exit::Error, format!("{id} came to nothing: {said}")));
                    }
                }
            }
            // EC2 may not show yet what it has just made.
            Ok(None) => failures = failures.saturating_add(1),
            Err(error) if error.code.passes_by_itself() => failures = failures.saturating_add(1),
            Err(error) => return Err(lost(id, &error.what())),
        }
        if failures >= MOST_FAILURES {
            return Err(lost(id, "EC2 does not say any more"));
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn lost(id: &str, why: &str) -> Failure {
    Failure::new(Exit::TryLater, format!("{id} is taken, but how far its copy is, is not known: {why}"))
}

/// What `adopt` will do first.
pub(super) fn step(subject: &Subject<'_>, volume: &VolumeId) -> Option<Step> {
    let policy = subject.guard.snapshot;
    let else_what = match policy {
        SnapshotPolicy::Off => return None,
        SnapshotPolicy::BestEffort => "go on without where it cannot be had",
        SnapshotPolicy::Required => "record nothing where it cannot be had",
    };
    Some(Step::new("snapshot", true, format!("take a snapshot of {volume}; {else_what}")))
}

/// Before `adopt`. An answer changes what the agent does next: with the policy `required` never without a way back.
pub(super) fn before_adopt(subject: &Subject<'_>, volume: &VolumeId) -> Result<(), Failure> {
    let wanted = Before {
        guard: subject.guard.name.as_str(),
        volume,
        policy: subject.guard.snapshot,
        step: "adopt",
        holds: holds(subject),
    };
    let hub = Hub::new(Client::default());
    match block_on(before(&hub, wanted))? {
        Ok(Some(id)) => {
            subject.append(volume.clone(), Fact::Snapshot { id, before: "adopt".to_owned() })?;
        }
        Ok(None) => match subject.guard.snapshot {
            SnapshotPolicy::Off => {}
            SnapshotPolicy::BestEffort | SnapshotPolicy::Required => {
                tell("volhold: no snapshot was to be had; goes on without", [""; 0]);
            }
        },
        Err(reason) => {
            return Err(Failure::new(Exit::Refused, format!("nothing was recorded: {}", reason.message))
                .advise("volhold doctor says what is permitted; snapshot = \"best-effort\" goes on without"));
        }
    }
    Ok(())
}
