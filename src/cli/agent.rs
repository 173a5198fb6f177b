//! `volhold run` and `volhold gate check`: the agent itself, and the verdict asked once more before etcd starts.

use super::exit::Exit;
use super::explain;
use super::journal::Journal;
use super::output::{AS_ROOT, Context, Failure, tell};
use super::wait::{default_run, shout, tell_held};
use crate::agent::kernel::{self, Kernel};
use crate::agent::{self, GateCheck};
use crate::model::GuardName;
use std::io::IsTerminal;
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Runs the agent until it is told to stop.
pub fn run(context: &Context) -> Result<Exit, Failure> {
    log();
    match kernel::running() {
        Kernel::NewEnough => {}
        too_old @ Kernel::TooOld { .. } => {
            return Err(Failure::new(Exit::BadConfig, too_old.to_string())
                .advise("nothing was looked at, and gates stay as they are; boot a newer kernel"));
        }
        unreadable @ Kernel::Unreadable { .. } => tracing::warn!(event = "kernel.unreadable", "{unreadable}"),
    }
    let standing = context.standing()?;
    agent::run(context.sources.clone(), standing, super::landing::landing())
        .map_err(|e| Failure::new(Exit::Error, "the agent cannot run").because(&e))?;
    Ok(Exit::Ok)
}

/// State changes only. Under systemd each is a message of the journal with fields (`cli::journal`); elsewhere a line on standard
/// error. `VOLHOLD_LOG` says more.
fn log() {
    let filter = EnvFilter::try_from_env("VOLHOLD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let shown = filter_fn(|line| shown(line.target(), *line.level()));
    let all = tracing_subscriber::registry().with(filter).with(shown);
    // A second call would find the first one's subscriber in place, which is as good.
    let _installed = match Journal::of_this_unit() {
        Some(journal) => all.with(journal).try_init(),
        None => {
            let ansi = std::io::stderr().is_terminal();
            let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(ansi);
            // The journal, where it takes nothing but lines, adds the time.
            if std::env::var_os("JOURNAL_STREAM").is_some() {
                all.with(lines.without_time()).try_init()
            } else {
                all.with(lines).try_init()
            }
        }
    };
}

/// Whoever signs and sends requests may tell of them, credentials and all, to those who want to know everything. No word of
/// `VOLHOLD_LOG` makes them: of other crates only warnings are shown.
fn shown(target: &str, level: Level) -> bool {
    let own = target == "volhold" || target.starts_with("volhold::");
    own || level <= Level::WARN
}

/// Refuses anybody but root.
pub fn needs_root(what: &str) -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::new(Exit::NoPermission, format!("only root may {what}")).advise(AS_ROOT))
}

/// May etcd start on this guard's volume, now?
pub fn gate_check(context: &Context, name: &GuardName) -> Result<Exit, Failure> {
    needs_root("ask about a gate").map_err(|failure| {
        failure.advise(format!("in a unit that runs as another user: ExecStartPre=+volhold gate check {name}"))
    })?;
    let config = context.config();
    let run = config.as_ref().map_or_else(|_unusable| default_run(), |config| config.paths.run.clone());
    if let Some(bypass) = crate::gate::files::bypass(&run, name) {
        let kept = config.map_or(Ok(()), |config| agent::bypass::keep_from_verb(&config, &bypass));
        if let Err(error) = kept {
            tell(&format!("volhold: the bypass is not on record: {error}"), [""; 0]);
        }
        return Ok(shout(&bypass));
    }
    let config = config?;
    Ok(match agent::gate_check(&config, name) {
        GateCheck::Open | GateCheck::Observes => Exit::Ok,
        GateCheck::NotYet => {
            tell(
                &format!("volhold: the gate of {name} has not opened in this boot"),
                ["volhold status", &format!("volhold explain {name}")],
            );
            Exit::Held
        }
        GateCheck::Held(reasons) => {
            // The agent, if there is one, shall see it too, so that `explain` says the same.
            if let Err(error) = crate::gate::files::post_request(&config.paths.run, name) {
                tell(&format!("volhold: the agent is not told: {error}"), [""; 0]);
            }
            tell_held(name, &reasons);
            Exit::Held
        }
        GateCheck::NotConfigured => {
            return Err(explain::not_configured(&config, name));
        }
    })
}
