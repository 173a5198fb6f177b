//! The verdict asked once more, in the moment before etcd starts: `ExecStartPre=volhold gate check NAME`.
//!
//! etcd is down at that moment, so its dir is at rest, and a dir that was wiped since the gate opened is caught without a
//! reboot. No agent and no network are needed: the published facts, the mount, the dir and the ledgers say it all.

use super::memory::Memory;
use super::stuck::blocking;
use super::to_run::to_run;
use super::{chain, here, same_allowance, start_policy, volume_root};
use crate::config::{Config, GuardConfig};
use crate::decide::start::may_start;
use crate::etcd::VolumeHints;
use crate::fault::fault_point;
use crate::gate::files;
use crate::model::{
    FilesystemFacts, GuardName, Mode, Observed, Reason, ReasonCode, Records, RunningEtcd, Siblings, StartEvidence,
    StartVerdict, VolumeAge, VolumeReading, Why,
};
use crate::worker::{self, Deadline};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Longest that opening the volume and reading the ledgers may take: etcd waits for this.
const LEDGERS: Duration = Duration::from_secs(20);
/// Longest that reading the data dirs may take.
const LIMIT: Duration = Duration::from_secs(60);

/// May etcd start now?
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateCheck {
    /// The mount and the data are what the gate was opened for.
    Open,
    /// The guard observes: it holds nothing.
    Observes,
    /// The gate has not opened in this boot.
    NotYet,
    Held(Vec<Reason>),
    NotConfigured,
}

/// Asks for one guard.
pub fn gate_check(config: &Config, name: &GuardName) -> GateCheck {
    let Some(guard) = config.guards.iter().find(|guard| guard.name == *name) else { return GateCheck::NotConfigured };
    match guard.mode {
        Mode::Observe => GateCheck::Observes,
        Mode::Enforce => match check(config, guard) {
            Ok(outcome) => outcome,
            Err(reason) => GateCheck::Held(vec![reason]),
        },
    }
}

fn check(config: &Config, guard: &GuardConfig) -> Result<GateCheck, Reason> {
    let unreadable = |message: String| Reason::new(ReasonCode::Unreadable, message);
    let here = here(&config.paths.state).map_err(|error| unreadable(chain(&error)))?;
    let published = files::read_published(&config.paths.run, &guard.name).map_err(|error| unreadable(chain(&error)))?;
    let open =
        files::is_open(&config.paths.run, &guard.name, &here.boot_id).map_err(|error| unreadable(chain(&error)))?;
    let published = match published {
        Some(published) if published.boot_id == here.boot_id && open => published,
        Some(_) | None => return Ok(GateCheck::NotYet),
    };
    let memory = Memory { state: config.paths.state.clone(), guard: guard.name.clone(), here };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| unreadable(error.to_string()))?;
    let (looked, to_run) = runtime.block_on(async { (look(guard, &published, &memory).await, to_run(guard).await) });
    // A thread that hangs in the kernel is not waited for.
    runtime.shutdown_background();
    let Looked { volume, running, mut records } = looked?;
    if let Observed::Seen(records) = &mut records {
        same_allowance(records, &config.paths.run, &guard.name, &memory.here.boot_id, published.fs_uuid);
    }
    let evidence = StartEvidence {
        volume_id: published.volume_id.clone(),
        filesystem: filesystem(guard, &published),
        volume,
        records,
        running,
        age: Observed::Seen(VolumeAge::NoProvider),
        siblings: Siblings::not_named(),
        witness: Observed::Seen(None),
        to_run,
    };
    Ok(match may_start(&evidence, &start_policy(guard)) {
        StartVerdict::Start { .. } => GateCheck::Open,
        StartVerdict::Hold { reasons } => GateCheck::Held(reasons),
    })
}

/// What is seen of the volume. The volume, and the node's disk, may hang as any disk may.
struct Looked {
    volume: Observed<VolumeReading>,
    running: Observed<Option<RunningEtcd>>,
    records: Observed<Records>,
}

async fn look(guard: &GuardConfig, published: &files::Published, memory: &Memory) -> Result<Looked, Reason> {
    let (entries, devnum, fstype) = (published.entries(), published.devnum, guard.fstype);
    let root = match blocking(LEDGERS, move || volume_root::open(&entries, devnum, fstype, false)).await {
        Ok(Ok(root)) => Arc::new(root),
        Ok(Err(error)) => return Err(error.reason()),
        Err(stuck) => return Err(stuck.reason("opening the mounted volume")),
    };
    let (own, volume_id, fs_uuid, through) =
        (memory.clone(), published.volume_id.clone(), published.fs_uuid, root.clone());
    let read = blocking(LEDGERS, move || {
        fault_point("before-ledgers-are-read");
        own.of_both(&volume_id, fs_uuid, through.as_fd())
    });
    let records = match read.await {
        Ok(records) => records,
        Err(stuck) => return Err(stuck.reason("reading the ledgers of node and volume")),
    };
    let hints = VolumeHints {
        data_dir: guard.data_dir.clone(),
        publish: guard.publish.sources(),
        fs_uuid: published.fs_uuid,
        volume_id: Some(published.volume_id.clone()),
    };
    let unreadable = |error: std::io::Error| Reason::new(ReasonCode::Unreadable, error.to_string());
    let root = root.try_clone().map_err(unreadable)?;
    let (volume, running) = worker::examine_volume(root, &hints, Deadline::quiet(LIMIT)).await;
    Ok(Looked { volume, running, records })
}

/// The filesystem as it was examined when it was published; the mount of the same device number still stands.
fn filesystem(guard: &GuardConfig, published: &files::Published) -> Observed<FilesystemFacts> {
    match published.fs_uuid {
        Some(uuid) => Observed::Seen(FilesystemFacts {
            fstype: guard.fstype.as_str().to_owned(),
            uuid: Some(uuid),
            label: None,
            made_at: None,
            last_mounted: None,
            unknown_features: Vec::new(),
            clean: None,
        }),
        None => {
            Observed::Unknown(Why::NotRun { detail: "the filesystem had no UUID when it was published".to_owned() })
        }
    }
}
