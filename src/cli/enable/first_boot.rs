//! The first boot of an image: every layer is tested where it is, and the guard enforces from then on.
//!
//! While a layer does not hold, this waits and says which, and etcd waits behind it: a master that was never guarded is not
//! started without its guard. Later boots do not come here: the file that lets the guard enforce is there, and a node that was
//! guarded once is never held by a test of its installation.

use super::{Planned, known, obstacles, planned, published_at, reloaded, waits};
use crate::act::{ask, seal};
use crate::cli::args::EnableArgs;
use crate::cli::config::unusable;
use crate::cli::doctor::Patient;
use crate::cli::exit::Exit;
use crate::cli::output::{Context, Failure, diagnose};
use crate::config::{Sources, load};
use crate::gate::notify;
use crate::install::doctor::{Check, Outcome};
use crate::install::drop_in::{enforce_path, first_boot_path};
use crate::install::files::Root;
use crate::model::{Fact, Observed};
use std::path::Path;
use std::time::Duration;

/// Between two tests. What a person repairs (a line of fstab, a mask) rings no bell.
const TEST_EVERY: Duration = Duration::from_secs(5);

pub fn run(context: &Context, args: &EnableArgs) -> Result<Exit, Failure> {
    let sources = super::in_root(&context.sources, None)?;
    let mut told = String::new();
    loop {
        if disabled(args)? {
            diagnose("volhold: disabled meanwhile; nothing is guarded\n");
            return Ok(Exit::Ok);
        }
        if enforces(args)? {
            tell_the_agent();
            break;
        }
        let words = match attempt(&sources, args)? {
            None => break,
            Some(check) => {
                let fix = check.fix.map_or_else(String::new, |fix| format!(" ({fix})"));
                format!("{}: {}{fix}", check.id, check.message)
            }
        };
        if words != told {
            notify::status(&format!("not guarded yet: {words}"));
            diagnose(&format!("volhold: not guarded yet, and etcd waits: {}\n", crate::cli::text::clean(&words)));
            told = words;
        }
        std::thread::sleep(TEST_EVERY);
    }
    notify::status("every layer holds; the guard enforces");
    Ok(Exit::Ok)
}

/// `volhold disable` has taken the unit away that this runs in: what waits behind it is to go on.
fn disabled(args: &EnableArgs) -> Result<bool, Failure> {
    let root = super::open_root(None)?;
    let there = |name| root.read(&first_boot_path(name)).map(|text| text.is_some());
    let there: Result<Vec<bool>, _> = args.names.iter().map(there).collect();
    let there = there.map_err(|error| super::file_failure(&error))?;
    Ok(!there.contains(&true))
}

/// A test before this one, which was killed afterwards, has let them enforce: nothing is tested again.
fn enforces(args: &EnableArgs) -> Result<bool, Failure> {
    let root = super::open_root(None)?;
    let there = |name| root.read(&enforce_path(name)).map(|text| text.is_some());
    let there: Result<Vec<bool>, _> = args.names.iter().map(there).collect();
    let there = there.map_err(|error| super::file_failure(&error))?;
    Ok(!there.contains(&false))
}

/// The first layer that does not hold; `None`: the guard enforces.
fn attempt(sources: &Sources, args: &EnableArgs) -> Result<Option<Check>, Failure> {
    let config = load(sources).map_err(|error| unusable(&error))?.config;
    let guards = known(&config, &args.names)?;
    let patient = Patient::of(sources, &config)?;
    let failed = obstacles(&patient, args.preset, &guards).into_iter().find(|check| check.result == Outcome::Fail);
    if failed.is_some() {
        return Ok(failed);
    }
    let root = match Root::open(Path::new("/")) {
        Ok(root) => root,
        Err(error) => return Ok(Some(Check::fail("root", crate::agent::chain(&error)))),
    };
    for guard in &guards {
        if let Err(check) = waits(args.preset, guard) {
            return Ok(Some(check));
        }
        for at in published_at(guard) {
            if let Err(error) = seal::seal(&at) {
                return Ok(Some(Check::fail("seal", error.reason().message).of(&guard.name)));
            }
        }
    }
    let files: Vec<Planned> =
        guards.iter().flat_map(|guard| planned(args.preset, guard, &config.paths.run, false)).collect();
    for file in files.iter().filter(|file| guards.iter().any(|guard| file.path == enforce_path(&guard.name))) {
        if let Err(error) = root.write(&file.path, &file.text) {
            return Ok(Some(Check::fail("drop-in", crate::agent::chain(&error))));
        }
    }
    for guard in &guards {
        let fact = Fact::Enabled { preset: args.preset.to_string() };
        if let Err(failure) = crate::cli::change::told(&config, &guard.name, fact) {
            diagnose(&format!("volhold: {}\n", super::not_recorded(&failure)));
        }
    }
    tell_the_agent();
    Ok(None)
}

/// The gate reads the configuration by itself; the agent has to be told.
fn tell_the_agent() {
    if let Observed::Unknown(why) = ask::systemctl(&["reload", "volhold.service"]) {
        diagnose(&format!("volhold: {}\n", why.detail()));
        drop(reloaded());
    }
}
