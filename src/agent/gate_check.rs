//! The verdict asked once more, in the moment before etcd starts: `ExecStartPre=volhold gate check NAME`.
//!
//! etcd is down at that moment, so its dir is at rest, and a dir that was wiped since the gate opened is caught without a
//! reboot. No agent and no network are needed: the published facts, the mount, the dir and the ledgers say it all.

use super::memory::Memory;
use super::{chain, here, publish, same_allowance, start_policy};
use crate::config::{Config, GuardConfig};
use crate::decide::start::may_start;
use crate::etcd::VolumeHints;
use crate::gate::files;
use crate::model::{
    FilesystemFacts, GuardName, Mode, Observed, Reason, ReasonCode, StartEvidence, StartVerdict, VolumeAge, Why,
};
use crate::worker::{self, Deadline};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Longest that the check may take.
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
    let at = Path::new(&published.at);
    let root = publish::open_root(at, published.devnum).map_err(|error| error.reason())?;
    let memory = Memory { state: config.paths.state.clone(), guard: guard.name.clone(), here };
    let mut records = memory.of_both(&published.volume_id, published.fs_uuid, root.as_fd());
    if let Observed::Seen(records) = &mut records {
        same_allowance(records, &config.paths.run, &guard.name, &memory.here.boot_id, published.fs_uuid);
    }
    let hints = VolumeHints {
        data_dir: guard.data_dir.clone(),
        fs_uuid: published.fs_uuid,
        volume_id: Some(published.volume_id.clone()),
    };
    let (first, second) = match (root.try_clone(), root.try_clone()) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(error), _) | (_, Err(error)) => return Err(unreadable(error.to_string())),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| unreadable(error.to_string()))?;
    let (volume, running) = runtime.block_on(async {
        (
            worker::examine_volume(first, &hints, Deadline::quiet(LIMIT)).await,
            worker::running(second, &hints, Deadline::quiet(LIMIT)).await,
        )
    });
    runtime.shutdown_background();
    let evidence = StartEvidence {
        volume_id: published.volume_id.clone(),
        filesystem: filesystem(guard, &published),
        volume,
        records,
        running,
        age: Observed::Seen(VolumeAge::NoProvider),
    };
    Ok(match may_start(&evidence, &start_policy(guard)) {
        StartVerdict::Start { .. } => GateCheck::Open,
        StartVerdict::Hold { reasons } => GateCheck::Held(reasons),
    })
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
