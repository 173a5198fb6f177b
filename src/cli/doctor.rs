//! `volhold doctor`: every layer tried out, one line each. Nothing is changed but a file that the test of a seal could make, and
//! takes away again.
//!
//! What was found is gathered here, by [`node`] and [`guard`]; [`install::doctor`](crate::install::doctor) judges it.

pub mod ec2;
pub mod guard;
pub mod node;

use super::exit::Exit;
use super::explain;
use super::output::{Context, Failure};
use super::text::{Screen, Tone};
use crate::act::ask;
use crate::config::{Config, GuardConfig, Sources};
use crate::install::doctor::{Check, Outcome};
use crate::install::units::Properties;
use crate::model::{GuardName, GuardStatus, Observed, Status, names_no_place};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The document of `doctor -o json`.
#[derive(Debug, Serialize)]
struct Doctor {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    checks: Vec<Check>,
}

/// What all tests of one run are about.
pub struct Patient<'a> {
    pub sources: &'a Sources,
    pub config: &'a Config,
    pub status: Option<Status>,
    /// PID 1 is systemd.
    pub systemd: bool,
}

impl<'a> Patient<'a> {
    pub fn of(sources: &'a Sources, config: &'a Config) -> Result<Self, Failure> {
        let status = super::status::read(config)?;
        Ok(Patient { sources, config, status, systemd: ask::systemd_runs() })
    }

    /// What the agent reports of a guard.
    pub fn reported(&self, name: &GuardName) -> Option<&GuardStatus> {
        self.status.as_ref()?.guards.iter().find(|guard| guard.name == *name)
    }

    /// Properties of a unit. `None`: there is no systemd.
    fn show(&self, unit: &str, properties: &str) -> Option<Observed<Properties>> {
        self.systemd.then(|| show(unit, properties))
    }
}

/// Properties of a unit, as systemd has them now.
pub fn show(unit: &str, properties: &str) -> Observed<Properties> {
    match ask::systemctl(&["show", "--property", properties, "--", unit]) {
        Observed::Seen(text) => Observed::Seen(Properties::parse(&text)),
        Observed::Unknown(why) => Observed::Unknown(why),
    }
}

/// Where volumes of a guard are mounted, as far as that is known before it is known which volume it is.
pub fn published_at(guard: &GuardConfig) -> Vec<PathBuf> {
    guard.publish.paths().filter(|at| !names_no_place(at)).map(Path::to_owned).collect()
}

pub fn run(context: &Context, name: Option<&GuardName>) -> Result<Exit, Failure> {
    super::agent::needs_root("test the layers")?;
    let config = context.config()?;
    let guards: Vec<&GuardConfig> = match name {
        Some(name) => vec![explain::known(&config, name)?],
        None => config.guards.iter().collect(),
    };
    let patient = Patient::of(&context.sources, &config)?;
    let mut checks = node::checks(&patient, &guards);
    for guard in &guards {
        checks.extend(guard::checks(&patient, guard));
        checks.extend(ec2::check(&patient, guard));
    }
    let document = Doctor { api_version: "volhold/v1", kind: "Doctor", checks };
    context.print(&document, |screen| draw(screen, &document.checks))?;
    Ok(if document.checks.iter().any(|check| check.result == Outcome::Fail) { Exit::Refused } else { Exit::Ok })
}

/// One line each, and what to do below it.
pub fn draw(screen: &mut Screen, checks: &[Check]) {
    for check in checks {
        let tone = match check.result {
            Outcome::Ok => Tone::Good,
            Outcome::Skip => Tone::Head,
            Outcome::Warn => Tone::Warn,
            Outcome::Fail => Tone::Bad,
        };
        let about = check.guard.as_ref().map_or_else(|| check.id.to_owned(), |guard| format!("{} {guard}", check.id));
        screen.cells(Some(tone), &[(6, check.result.as_str()), (0, &about)]);
        screen.para(6, &check.message);
        if let Some(fix) = &check.fix {
            screen.hanging("      ->", 9, fix);
        }
    }
}
