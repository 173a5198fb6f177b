//! The verbs and how they print.
//!
//! Nothing here decides: verbs read what the agent left, ask the same rules that the agent asks, or put a person's answer
//! on record. Tables are for people and may change; `-o json` and the exit codes are for scripts and may not.

mod agent;
pub mod args;
mod change;
mod compare;
mod config;
mod disable;
mod doctor;
mod enable;
mod events;
pub mod exit;
mod explain;
mod fleet;
mod help;
mod history;
mod inspect;
mod journal;
mod landing;
pub mod manual;
mod output;
mod plan;
mod reference;
mod report;
mod state;
mod status;
pub mod text;
mod vigil;
mod wait;

use crate::config::Sources;
use args::{Cli, ConfigVerb, GateVerb, PlanVerb, StateVerb, Verb};
use clap::Parser;
use exit::Exit;
use output::{Context, Failure};
use std::process::ExitCode;

/// Reads the command line, does what it says, and returns how it ended. Usage errors end in clap, with exit code 2.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    if let Verb::Worker { request } = &cli.verb {
        return ExitCode::from(crate::worker::child_main(request));
    }
    if let Verb::KeepClaim { run, name } = &cli.verb {
        return wait::keep_claim(run, name).into();
    }
    let context = Context { sources: Sources::of_process(&cli.config, &cli.set), output: cli.output };
    let exit = match dispatch(&context, cli.verb) {
        Ok(exit) => exit,
        Err(failure) => failure.report(),
    };
    exit.into()
}

fn dispatch(context: &Context, verb: Verb) -> Result<Exit, Failure> {
    match verb {
        Verb::Run => agent::run(context),
        Verb::Gate { verb: GateVerb::Check { name } } => agent::gate_check(context, &name),
        Verb::History { name } => history::run(context, name.as_ref()),
        Verb::Status { held: true, .. } => status::held(context),
        Verb::Status { watch: true, timings, .. } => status::watch::run(context, timings),
        Verb::Status { held: false, timings, watch: false } => status::run(context, timings),
        Verb::Events { name, follow } => events::run(context, name.as_ref(), follow),
        Verb::Plan { way: None, name } => plan::run(context, name.as_ref()),
        Verb::Plan { way: Some(PlanVerb::Restore { name, from }), .. } => plan::restore::run(context, &name, &from),
        Verb::Plan { way: Some(PlanVerb::Repair { name }), .. } => plan::repair::run(context, &name),
        Verb::Report { name } => report::run(context, &name),
        Verb::Explain(args) => explain::run(context, &args),
        // Answered before: it prints and ends in its own way.
        Verb::Worker { .. } | Verb::KeepClaim { .. } => Ok(Exit::Error),
        Verb::Reference { what } => reference::run(&what),
        Verb::Help { topic } => help::run(context, topic.as_deref()),
        Verb::Config { verb: ConfigVerb::Check { path } } => config::check(context, path.as_deref()),
        Verb::Config { verb: ConfigVerb::Show { origin } } => config::show(context, origin),
        Verb::Inspect { target } => inspect::run(context, &target),
        Verb::Verify { dir, deep, for_version } => inspect::verify(context, &dir, deep, for_version),
        Verb::Fleet { cluster, region } => fleet::run(context, cluster.as_deref(), region.as_deref()),
        Verb::Compare { dirs } => compare::run(context, &dirs),
        Verb::State { verb: StateVerb::Show { file } } => state::show(context, &file),
        Verb::State { verb: StateVerb::Set(args) } => change::state::set(context, &args),
        Verb::Wait { name, timeout, decided } => wait::run(context, &name, timeout, decided),
        Verb::Enable(args) => enable::run(context, &args),
        Verb::Disable { name, root, dry_run } => disable::run(context, &name, root.as_deref(), dry_run),
        Verb::Doctor { name } => doctor::run(context, name.as_ref()),
        Verb::Adopt(args) => change::adopt::run(context, &args),
        Verb::Release { name, for_, confirm } => change::release::run(context, &name, for_, confirm.as_deref()),
        Verb::Unpin { name, confirm } => change::unpin::run(context, &name, confirm.as_deref()),
        Verb::Quarantine(args) => change::quarantine::run(context, &args),
        Verb::Rollback(args) => change::rollback::run(context, &args),
        Verb::Retry { name } => change::retry(context, &name),
        Verb::Snapshot { name, wait } => change::snapshot::run(context, &name, wait),
    }
}
