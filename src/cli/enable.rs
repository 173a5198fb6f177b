//! `volhold enable`: builds the gate into this machine and lets guards enforce, once every layer was seen to hold.
//!
//! In this order: everything that speaks against it is gathered and told at once; what lies under the mount is sealed; the files
//! that make etcd wait are written; systemd is asked whether it waits now; only then is the guard switched to enforce. What was
//! written is taken back where systemd does not agree.
//!
//! With `--image` only files are written, and the guard stays in observe: [`first_boot`] tests the layers where they are.

mod first_boot;
mod tell;

pub use tell::{Change, FileLine, tell};

use super::args::EnableArgs;
use super::config::unusable;
use super::doctor::{self, Patient, published_at, show};
use super::exit::Exit;
use super::explain;
use super::output::{Context, Failure};
use super::text::Tone;
use crate::act::{ask, seal};
use crate::config::{Config, GuardConfig, Sources, load};
use crate::gate::files::ready_path;
use crate::install::doctor::guard::Order;
use crate::install::doctor::{self as judge, Check, Outcome};
use crate::install::drop_in::{self, Planned, Wanted};
use crate::install::files::{FileError, Root, Written};
use crate::install::mounters;
use crate::install::{Preset, units};
use crate::model::{Fact, GuardName, Mode, Observed, StateName};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tell::{document, draw, refuse, refused};

/// Units read this one, and no other.
const CONFIG: &str = super::args::DEFAULT_CONFIG;
/// Longest that the agent may take to show that it has read the new mode, after systemctl has returned.
const AGENT_WITHIN: Duration = Duration::from_secs(20);
/// Between two looks at what it shows.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub fn run(context: &Context, args: &EnableArgs) -> Result<Exit, Failure> {
    if !args.dry_run && args.root.is_none() {
        super::agent::needs_root("build in a gate")?;
    }
    if args.first_boot {
        return first_boot::run(context, args);
    }
    let root = open_root(args.root.as_deref())?;
    let sources = in_root(&context.sources, args.root.as_deref())?;
    let config = load(&sources).map_err(|error| unusable(&error))?.config;
    let guards = known(&config, &args.names)?;
    if args.image {
        image(context, args, &root, &sources, &guards)
    } else {
        here(context, args, &root, &config, &guards)
    }
}

pub fn open_root(at: Option<&Path>) -> Result<Root, Failure> {
    let at = at.unwrap_or(Path::new("/"));
    Root::open(at).map_err(|error| Failure::new(Exit::NoMatch, "the root directory cannot be used").because(&error))
}

/// The configuration of that system. Units and drop-ins name no other file than the usual one.
fn in_root(sources: &Sources, root: Option<&Path>) -> Result<Sources, Failure> {
    if sources.path != Path::new(CONFIG) || !sources.set.is_empty() {
        return Err(Failure::new(Exit::Usage, format!("the units that are written read {CONFIG} and nothing else"))
            .advise("leave --config, VOLHOLD_CONFIG and --set away"));
    }
    let path = root.map_or_else(|| sources.path.clone(), |root| root.join("etc/volhold/config.toml"));
    Ok(Sources { path, environment: Vec::new(), set: Vec::new() })
}

fn known<'a>(config: &'a Config, names: &[GuardName]) -> Result<Vec<&'a GuardConfig>, Failure> {
    names.iter().map(|name| explain::known(config, name)).collect()
}

/// What is to be written for one guard.
fn planned(preset: Preset, guard: &GuardConfig, run: &Path, image: bool) -> Vec<Planned> {
    let publish = published_at(guard);
    let ready = ready_path(run, &guard.name);
    let wanted = Wanted { preset, guard: &guard.name, publish: &publish, ready: &ready };
    let mut files = wanted.waiting();
    if image {
        files.extend(wanted.first_boot());
    } else {
        files.push(wanted.enforcing());
    }
    files
}

/// Where etcd-manager looks for a volume.
fn is_etcd_managers(at: &Path) -> bool {
    let at = at.to_string_lossy();
    at.starts_with("/mnt/master-vol-") || at == "/mnt/master-{volume}"
}

/// What a preset asks of a guard's configuration.
fn fits(preset: Preset, guard: &GuardConfig) -> Check {
    let at = guard.publish.words();
    let managers = guard.publish.is_whole() && is_etcd_managers(guard.publish.main(None));
    let check = match preset {
        // etcd-manager looks for /mnt/master-VOLUME (etcdadm etcd-manager pkg/volumes: `/mnt/master-` and the volume's id).
        Preset::Kops if !managers => Check::fail(
            "preset",
            format!("published at {at}; etcd-manager looks for /mnt/master-vol-…, and would mount by itself"),
        )
        .fix("publish = \"/mnt/master-{volume}\" in the configuration"),
        Preset::EtcdService | Preset::Kubeadm | Preset::Kops | Preset::K3s | Preset::Rke2 | Preset::KubeAws => {
            Check::ok("preset", format!("{preset}: {} waits", preset.unit()))
        }
    };
    check.of(&guard.name)
}

/// Compares everything first: a file that is in the way is told before the first one is written.
fn compare(root: &Root, files: &[Planned]) -> Result<Vec<Written>, Failure> {
    let compared: Result<Vec<Written>, FileError> =
        files.iter().map(|file| root.compare(&file.path, &file.text)).collect();
    compared.map_err(|error| file_failure(&error).advise("nothing was written"))
}

pub fn file_failure(error: &FileError) -> Failure {
    let exit = match error {
        FileError::Changed { .. } | FileError::Foreign { .. } => Exit::Refused,
        FileError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => Exit::NoPermission,
        FileError::Io { .. } => Exit::Error,
    };
    Failure::new(exit, "a file is in the way, or cannot be written").because(error)
}

/// Writes them, and says which are new, so that they can be taken back.
fn write(root: &Root, files: &[Planned]) -> Result<Vec<PathBuf>, Failure> {
    let mut new = Vec::new();
    for file in files {
        match root.write(&file.path, &file.text) {
            Ok(Written::New) => new.push(file.path.clone()),
            Ok(Written::Same | Written::Replaced) => {}
            Err(error) => {
                take_back(root, &new);
                return Err(file_failure(&error).advise("what was written before it was taken back"));
            }
        }
    }
    Ok(new)
}

/// Best effort: what stays is found by `doctor`, and taken away by `disable`.
fn take_back(root: &Root, files: &[PathBuf]) {
    for path in files {
        if let Err(error) = root.remove(path) {
            super::output::diagnose(&format!("volhold: {}\n", crate::agent::chain(&error)));
        }
    }
}

/// Files only, for an image; what can be seen in it is looked at.
fn image(
    context: &Context,
    args: &EnableArgs,
    root: &Root,
    sources: &Sources,
    guards: &[&GuardConfig],
) -> Result<Exit, Failure> {
    let config = load(sources).map_err(|error| unusable(&error))?.config;
    let files: Vec<Planned> =
        guards.iter().flat_map(|guard| planned(args.preset, guard, &config.paths.run, true)).collect();
    let mut checks: Vec<Check> = Vec::new();
    for guard in guards {
        checks.push(fits(args.preset, guard));
        let found = mounters::find(root, &doctor::guard::target_in_image(guard));
        let found = match found {
            Ok(found) => Observed::Seen(found),
            Err(error) => Observed::not_run(crate::agent::chain(&error)),
        };
        checks.push(judge::guard::other_mounters(&guard.name, &found));
        if guard.mode == Mode::Enforce {
            let message = "enforces already by the configuration: nothing would be tested at the first boot";
            checks.push(
                Check::fail("mode", message)
                    .fix("take `mode` out of the configuration; the first boot switches it")
                    .of(&guard.name),
            );
        }
    }
    let written = compare(root, &files)?;
    let mut document = document(args, guards, &files, &written)?;
    document.checks = checks;
    if refused(&document) {
        return refuse(context, &document);
    }
    if !args.dry_run {
        write(root, &files)?;
        document.done = true;
    }
    context.print(&document, |screen| {
        draw(screen, args, &document, &files);
        if document.done {
            screen
                .para(0, "At its first boot the image tests every layer, and only then enforces; etcd waits for that.");
            screen.para(
                0,
                "volhold.service has to be enabled in the image, and the etcd of the image has to be stopped.",
            );
        }
    })?;
    Ok(Exit::Ok)
}

/// On this machine.
fn here(
    context: &Context,
    args: &EnableArgs,
    root: &Root,
    config: &Config,
    guards: &[&GuardConfig],
) -> Result<Exit, Failure> {
    let sources = Sources { environment: Vec::new(), ..context.sources.clone() };
    let patient = Patient::of(&sources, config)?;
    let files: Vec<Planned> =
        guards.iter().flat_map(|guard| planned(args.preset, guard, &config.paths.run, false)).collect();
    let written = compare(root, &files)?;
    let mut document = document(args, guards, &files, &written)?;
    document.checks = obstacles(&patient, args.preset, guards);
    for guard in guards {
        match patient.reported(&guard.name) {
            Some(status) if status.would_hold || !status.reasons.is_empty() => {
                document.reasons.extend(status.reasons.clone())
            }
            Some(status) if status.state == StateName::Discovering || status.state == StateName::Examining => {
                return Err(Failure::new(
                    Exit::TryLater,
                    format!("the agent has not finished looking at {}", guard.name),
                )
                .advise("volhold status; then again"));
            }
            Some(_) => {}
            None if patient.status.is_some() => {
                return Err(Failure::new(
                    Exit::TryLater,
                    format!("the agent has said nothing about {} yet", guard.name),
                )
                .advise("systemctl reload volhold.service; then again"));
            }
            None => {}
        }
    }
    if refused(&document) {
        return refuse(context, &document);
    }
    if args.dry_run {
        context.print(&document, |screen| draw(screen, args, &document, &files))?;
        return Ok(Exit::Ok);
    }
    for (guard, at) in guards.iter().flat_map(|guard| published_at(guard).into_iter().map(move |at| (guard, at))) {
        match seal::seal(&at) {
            Ok(sealed) => document
                .checks
                .extend(sealed.warnings.into_iter().map(|told| Check::warn("seal", told).of(&guard.name))),
            Err(error) => {
                document.reasons.push(error.reason());
                return refuse(context, &document);
            }
        }
    }
    // The guard enforces only once systemd has agreed that etcd waits.
    let (waiting, enforcing): (Vec<Planned>, Vec<Planned>) = files
        .iter()
        .cloned()
        .partition(|file| guards.iter().all(|guard| file.path != drop_in::enforce_path(&guard.name)));
    let mut new = write(root, &waiting)?;
    let mut ordered = reloaded();
    if ordered.is_ok() {
        ordered = guards.iter().try_for_each(|guard| waits(args.preset, guard));
    }
    if let Err(check) = ordered {
        take_back(root, &new);
        // systemd forgets what was taken back.
        drop(reloaded());
        document.checks.push(check);
        return refuse(context, &document);
    }
    new.extend(write(root, &enforcing)?);
    for guard in guards {
        if doctor::guard::configured_mode(&sources, &guard.name) != Some(Mode::Enforce) {
            take_back(root, &new);
            drop(reloaded());
            let message = "a later layer of the configuration sets `mode`, or it cannot be used any more";
            let fix = "volhold config show --origin says which; everything that was written was taken back";
            document.checks.push(Check::fail("mode", message).fix(fix).of(&guard.name));
            return refuse(context, &document);
        }
    }
    document.done = true;
    if let Observed::Unknown(why) = ask::systemctl(&["reload", "volhold.service"]) {
        document.checks.push(Check::warn("agent", why.detail().to_owned()).fix("systemctl restart volhold.service"));
    }
    // Asked for once more, nothing has changed.
    if !document.steps.is_empty() {
        for guard in guards {
            record(config, args.preset, &guard.name, &mut document);
        }
    }
    let shown: Vec<(GuardName, Option<String>)> =
        guards.iter().map(|guard| (guard.name.clone(), taken(config, &guard.name))).collect();
    context.print(&document, |screen| {
        draw(screen, args, &document, &files);
        for (name, state) in &shown {
            match state {
                Some(state) => screen.tone(Tone::Good, &format!("{name} enforces; its gate: {state}.")),
                None => screen.tone(Tone::Warn, &format!("The agent has not taken {name} up yet: volhold status")),
            }
        }
    })?;
    Ok(Exit::Ok)
}

/// Every layer that can be tested before anything is written.
fn obstacles(patient: &Patient<'_>, preset: Preset, guards: &[&GuardConfig]) -> Vec<Check> {
    let mut checks = doctor::node::layers(patient, guards);
    if !patient.systemd {
        checks.push(
            Check::fail("systemd", "PID 1 is not systemd: nothing would wait").fix("for an image: --image --root DIR"),
        );
        return checks;
    }
    for guard in guards {
        let name = &guard.name;
        checks.push(fits(preset, guard));
        let gate = show(&units::gate(name), "LoadState,ActiveState,Type,RemainAfterExit,TimeoutStartUSec");
        checks.push(judge::guard::gate_unit(name, &gate));
        checks.push(doctor::guard::other_mounters(patient, guard));
        checks.push(unit_is_there(preset, name));
        checks.push(doctor::guard::identity(patient, guard));
        // What it would hide, or what somebody left under a live mount; nothing is sealed yet.
        checks.push(doctor::guard::seal_of(&GuardConfig { mode: Mode::Observe, ..(*guard).clone() }, &guard.publish));
    }
    checks
}

fn unit_is_there(preset: Preset, name: &GuardName) -> Check {
    let id = "unit";
    let unit = preset.unit();
    let check = match show(unit, "LoadState") {
        Observed::Seen(shown) if shown.get("LoadState") == "loaded" => Check::ok(id, format!("{unit} is there")),
        Observed::Seen(shown) => {
            Check::fail(id, format!("{unit} is not there for systemd ({})", shown.get("LoadState")))
                .fix("install what brings it, or choose another --preset")
        }
        Observed::Unknown(why) => Check::fail(id, format!("{unit} could not be found out: {}", why.detail())),
    };
    check.of(name)
}

fn reloaded() -> Result<(), Check> {
    match ask::systemctl(&["daemon-reload"]) {
        Observed::Seen(_) => Ok(()),
        Observed::Unknown(why) => {
            Err(Check::fail("systemd", format!("systemd did not read the units again: {}", why.detail())))
        }
    }
}

/// Does systemd order the unit behind the gate, now that it has read the files?
fn waits(preset: Preset, guard: &GuardConfig) -> Result<(), Check> {
    let shown = show(preset.unit(), "LoadState,Requires,BindsTo,After,NeedDaemonReload");
    let check = judge::guard::order(&guard.name, Mode::Enforce, &shown.map(|shown| Order::Unit { preset, shown }));
    if check.result == Outcome::Fail { Err(check) } else { Ok(()) }
}

/// Puts on record that a person has enabled the guard. The first guard's entry is the document's.
fn record(config: &Config, preset: Preset, name: &GuardName, document: &mut Change) {
    match super::change::told(config, name, Fact::Enabled { preset: preset.to_string() }) {
        Ok(id) => document.recorded = document.recorded.take().or(Some(id)),
        Err(failure) => document.checks.push(Check::warn("history", not_recorded(&failure)).of(name)),
    }
}

/// It is done all the same: the files say it.
pub fn not_recorded(failure: &Failure) -> String {
    format!("it is done, and not in the history: {}", failure.causes.join(": "))
}

/// The gate, as soon as the agent shows that it enforces.
fn taken(config: &Config, name: &GuardName) -> Option<String> {
    let until = Instant::now().checked_add(AGENT_WITHIN)?;
    loop {
        let status = super::status::read(config).ok()?;
        let guard = status.and_then(|status| status.guards.into_iter().find(|guard| guard.name == *name));
        if let Some(guard) = guard.filter(|guard| guard.mode == Mode::Enforce) {
            return Some(super::status::gate_word(&guard).to_owned());
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
