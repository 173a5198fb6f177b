//! The state machine of a guard and its driver; the only place that wires modules.
//!
//! [`machine`] is pure and says what is to be done; [`driver`] does it, one guard a task, so that no guard waits for
//! another. [`rounds`] says when a guard looks again. [`gate_check`] is the same verdict asked once more, without agent or
//! network, in the moment before etcd starts.

/// The status of all guards in one place.
mod board;
/// What a person opened by hand.
pub mod bypass;
/// The clocks and names of this boot and machine.
pub mod clock;
/// Performs a guard's actions.
mod driver;
/// What a guard decides on.
mod evidence;
/// What monitoring is told.
mod figures;
/// From the configured name to the opened device.
mod find;
/// All guards of one agent.
mod fleet;
/// The quick verdict of `volhold gate check`.
pub mod gate_check;
/// Whether the kernel is new enough.
pub mod kernel;
/// The pure state machine.
pub mod machine;
/// One guard's ledgers.
pub mod memory;
/// What would be done, without doing it.
pub mod plan;
/// Record, seal, move the mount into place.
mod publish;
/// When a guard looks again.
mod rounds;
/// A way back before a risky step.
pub mod snapshot;
/// The configuration that counts right now.
pub mod standing;
/// Work that may never come back.
mod stuck;
/// How long each step took.
mod timings;
mod to_run;
/// Signs of life, for the service manager's watchdog.
mod vitals;
/// The root of a volume that is published.
mod volume_root;
/// Keeps watch over the volume of an open gate.
mod watching;

pub use gate_check::{GateCheck, gate_check};

use crate::config::{Config, GuardConfig, Http, Sources};
use crate::device::uevents::Uevents;
use crate::gate::feed::Snapshot;
use crate::gate::http::{Landing, Limits, Options, Server};
use crate::gate::readers::Readers;
use crate::gate::{claims, files, notify};
use crate::model::{BootId, FsUuid, GuardName, Records, StartKind, StartPolicy};
use crate::record;
use crate::watch::{MountTable, RequestWatch};
use board::Board;
use clock::Here;
use figures::Figures;
use fleet::Fleet;
use rounds::Hint;
use standing::Standing;
use std::path::Path;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast;
use vitals::{Sign, Vitals};

/// Why the agent could not run at all. A guard's own troubles are holds, not errors.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot start the runtime")]
    Runtime(#[source] std::io::Error),
    #[error("cannot take the run directory")]
    RunDir(#[source] crate::gate::GateError),
    #[error("cannot tell which machine or boot this is")]
    Host(#[source] record::HostError),
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
}

/// Runs all guards until SIGTERM or SIGINT. Stopping closes no gate, unmounts nothing and stops no etcd. SIGHUP makes it read
/// the configuration again. `landing`: the page that the HTTP server begins with.
pub fn run(sources: Sources, standing: Standing, landing: Landing) -> Result<(), AgentError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AgentError::Runtime)?;
    let outcome = runtime.block_on(serve(sources, &standing, landing));
    // A thread that hangs in the kernel would keep the agent from ending.
    runtime.shutdown_background();
    outcome
}

async fn serve(sources: Sources, standing: &Standing, landing: Landing) -> Result<(), AgentError> {
    notify::inherit();
    let paths = &standing.config.paths;
    files::prepare(&paths.run).map_err(AgentError::RunDir)?;
    // Held as long as this process lives.
    let _only_one = files::only_agent(&paths.run).map_err(AgentError::RunDir)?;
    let here = here(&paths.state)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(AgentError::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(AgentError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(AgentError::Signals)?;
    let (hints, _) = broadcast::channel(64);
    let (readers, unknown_group) = readers(&standing.config.http);
    let board = Arc::new(Board::new(paths.run.clone(), readers));
    board.warn("the group of [http]", unknown_group);
    let vitals = Vitals::default();
    let mut fleet = Fleet::start(sources, standing, here.clone(), board.clone(), hints.clone(), vitals.clone());
    // Every guard has shown its first state by the first time all of them wait.
    tokio::task::yield_now().await;
    board.show();
    let figures = Arc::new(Figures::new(paths.run.clone(), here.boot_id.clone(), board.clone()));
    let server = tell_over_http(&standing.config, readers, landing, &board, &figures);
    let textfile_dir = standing.config.metrics.textfile_dir.clone();
    let keeping = tokio::spawn(figures.keep(textfile_dir, board.listener(), hints.subscribe()));
    notify::ready();
    let listening =
        tokio::spawn(listen(hints, paths.run.clone(), vitals.part("what listens to the kernel".to_owned())));
    let telling = tokio::spawn(vitals::tell(vitals.clone()));
    let own = vitals.part("the agent's main loop".to_owned());
    loop {
        own.waits();
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => {
                own.works();
                fleet.reload().await;
            }
        }
    }
    notify::stopping();
    telling.abort();
    listening.abort();
    keeping.abort();
    fleet.end().await;
    drop(server);
    own.ends();
    Ok(())
}

/// Who may read the status, and why that is not as configured.
fn readers(http: &Http) -> (Readers, Option<String>) {
    match Readers::of(http.group.as_deref()) {
        Ok(readers) => (readers, None),
        Err(unknown) => {
            tracing::warn!(event = "http.group", "{unknown}");
            (Readers::Owner, Some(unknown))
        }
    }
}

/// Whatever fails here is told and holds nothing: no gate depends on it.
fn tell_over_http(
    config: &Config,
    readers: Readers,
    landing: Landing,
    board: &Arc<Board>,
    figures: &Arc<Figures>,
) -> Option<Server> {
    let figures = figures.clone();
    let options = Options {
        run: config.paths.run.clone(),
        listen: config.http.listen,
        readers,
        limits: Limits::default(),
        metrics: Arc::new(move |now: &Snapshot| figures.text(now).map_err(|error| chain(&error))),
        landing,
    };
    let told = board.clone();
    let complain = move |problem| {
        let _news = told.warn("http", problem);
    };
    match Server::start(options, board.listener(), Box::new(complain)) {
        Ok(server) => Some(server),
        Err(error) => {
            tracing::warn!(event = "http.closed", %error, "the HTTP server cannot start");
            board.warn("http", Some(format!("the HTTP server cannot start: {error}")));
            None
        }
    }
}

/// Turns what the kernel and people say into hints for the guards. Where a source is not to be had, timers remain.
async fn listen(hints: broadcast::Sender<Hint>, run: std::path::PathBuf, _lives: Sign) {
    let mut uevents = heard("uevents", Uevents::open());
    let mut mounts = heard("the mount table", MountTable::open());
    let (_watching, mut requests) = match heard("requests", RequestWatch::start(&files::requests_dir(&run))) {
        Some((watching, requests)) => (Some(watching), Some(requests)),
        None => (None, None),
    };
    let keepers = RequestWatch::start_named(&files::claims_dir(&run), claims::guard_of);
    let (_watching_too, mut keepers) = match heard("keepers of claims", keepers) {
        Some((watching, keepers)) => (Some(watching), Some(keepers)),
        None => (None, None),
    };
    loop {
        let hint = tokio::select! {
            event = async { match &mut uevents { Some(uevents) => uevents.next().await, None => std::future::pending().await } } => {
                match event {
                    Some(uevent) => Hint::Block(uevent.map(|uevent| uevent.name)),
                    None => {
                        uevents = None;
                        continue;
                    }
                }
            }
            changed = async { match &mut mounts { Some(mounts) => mounts.changed().await, None => std::future::pending().await } } => {
                match changed {
                    Some(()) => Hint::Mounts,
                    None => {
                        mounts = None;
                        continue;
                    }
                }
            }
            name = async { match &mut requests { Some(requests) => requests.recv().await, None => std::future::pending().await } } => {
                match name {
                    Some(Some(name)) => Hint::Request(name),
                    Some(None) => Hint::SomeRequest,
                    None => {
                        requests = None;
                        continue;
                    }
                }
            }
            name = async { match &mut keepers { Some(keepers) => keepers.recv().await, None => std::future::pending().await } } => {
                match name {
                    Some(name) => Hint::Keeper(name),
                    None => {
                        keepers = None;
                        continue;
                    }
                }
            }
        };
        // Nobody listens while every guard has ended.
        let _heard_by = hints.send(hint);
    }
}

fn heard<T, E: std::fmt::Display>(what: &str, source: Result<T, E>) -> Option<T> {
    match source {
        Ok(source) => Some(source),
        Err(error) => {
            tracing::warn!(event = "watch.failed", error = %error, "{what} cannot be watched; timers look instead");
            None
        }
    }
}

fn here(state: &Path) -> Result<Here, AgentError> {
    Ok(Here {
        boot_id: record::boot_id().map_err(AgentError::Host)?,
        machine_id: record::machine_id(state).map_err(AgentError::Host)?,
    })
}

/// What a guard's configuration means for the start decision.
fn start_policy(guard: &GuardConfig) -> StartPolicy {
    StartPolicy {
        fresh: guard.fresh,
        data_dir: guard.data_dir.clone(),
        publish: guard.publish.sources(),
        member: guard.member.clone(),
        peer_url: guard.peer_url.clone(),
        min_keys_percent: 50,
        far_behind_percent: 50,
        // A name that cannot be looked up says nothing of the dir.
        runs_as: guard
            .owner
            .as_ref()
            .and_then(|owner| crate::act::datadir::owner_ids(&owner.user, &owner.group).ok())
            .map(|ids| (ids.uid, ids.gid)),
    }
}

/// A fresh start was allowed in this boot, on this filesystem, and the gate is open for it: asking again is the same
/// allowance, not a second one.
fn same_allowance(records: &mut Records, run: &Path, guard: &GuardName, boot_id: &BootId, fs_uuid: Option<FsUuid>) {
    let Ok(Some(published)) = files::read_published(run, guard) else { return };
    let same = published.boot_id == *boot_id && published.fs_uuid == fs_uuid && published.how == StartKind::Fresh;
    if same {
        records.fresh_allowed.retain(|uuid| Some(*uuid) != fs_uuid);
    }
}

/// An error with all that caused it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words.push_str(": ");
        words.push_str(&cause.to_string());
        source = cause.source();
    }
    words
}
