//! `volhold disable NAME`: takes away what `enable` wrote, as far as nobody has changed it, and says what protection is lost.
//!
//! Nothing is unmounted, unsealed, stopped or started: a running etcd does not notice.

use super::doctor::published_at;
use super::enable::{Change, FileLine, file_failure, not_recorded, open_root, tell};
use super::exit::Exit;
use super::output::{Context, Failure};
use super::text::Tone;
use crate::act::ask;
use crate::config::{Sources, load};
use crate::install::drop_in::places;
use crate::install::files::Removed;
use crate::model::{Fact, GuardName, Mode, Observed};
use std::path::Path;

pub fn run(context: &Context, name: &GuardName, root: Option<&Path>, dry_run: bool) -> Result<Exit, Failure> {
    if !dry_run && root.is_none() {
        super::agent::needs_root("take a gate away")?;
    }
    let opened = open_root(root)?;
    let mut files = Vec::new();
    let mut steps = Vec::new();
    for path in places(name) {
        let removed = if dry_run { opened.would_remove(&path) } else { opened.remove(&path) };
        let removed = removed.map_err(|error| file_failure(&error).advise("what came before it is gone; try again"))?;
        let change = match removed {
            Removed::NotThere => continue,
            Removed::Gone => "gone",
            Removed::LeftChanged => "changed",
            Removed::LeftForeign => "foreign",
        };
        if removed == Removed::Gone {
            steps.push(super::change::Step::new("remove", true, format!("remove {}", path.display())));
        }
        files.push(FileLine { path, change, text: None });
    }
    let left = files.iter().filter(|file| file.change != "gone").count();
    let mut trouble = Vec::new();
    if !dry_run && opened.is_host() && ask::systemd_runs() && !steps.is_empty() {
        for order in [&["daemon-reload"][..], &["reload", "volhold.service"]] {
            if let Observed::Unknown(why) = ask::systemctl(order) {
                trouble.push(why.detail().to_owned());
            }
        }
    }
    let mut recorded = None;
    if !dry_run && opened.is_host() && !steps.is_empty() {
        // Without a configuration it is not known where the history is.
        let told = load(&context.sources).ok().filter(|loaded| loaded.config.guard(name).is_some());
        match told.map(|loaded| super::change::told(&loaded.config, name, Fact::Disabled)) {
            Some(Ok(id)) => recorded = Some(id),
            Some(Err(failure)) => trouble.push(not_recorded(&failure)),
            None => {}
        }
    }
    let document = Change {
        api_version: "volhold/v1",
        kind: "Change",
        guard: name.clone(),
        guards: vec![name.clone()],
        done: !dry_run && !steps.is_empty(),
        steps,
        recorded,
        reasons: Vec::new(),
        checks: Vec::new(),
        files,
    };
    context.print(&document, |screen| {
        if document.files.is_empty() {
            screen.para(0, &format!("Nothing that `volhold enable` writes is there for {name}."));
            return;
        }
        screen.tone(Tone::Head, if dry_run { "Would take away" } else { "Taken away" });
        for file in document.files.iter().filter(|file| file.change == "gone") {
            screen.verbatim(2, &file.path.display().to_string());
        }
        if left > 0 {
            screen.tone(Tone::Warn, "Left, because somebody has changed it or it was never written by volhold:");
            for file in document.files.iter().filter(|file| file.change != "gone") {
                screen.verbatim(2, &file.path.display().to_string());
            }
        }
        for words in &trouble {
            screen.hanging("  note", 8, words);
        }
    })?;
    if !document.steps.is_empty() {
        lost(context, name, root)?;
    }
    Ok(if left == 0 { Exit::Ok } else { Exit::Refused })
}

/// What nobody does any more, and what stays.
fn lost(context: &Context, name: &GuardName, root: Option<&Path>) -> Result<(), Failure> {
    let path = context.sources.path.clone();
    let path = root.map_or(path.clone(), |root| root.join(path.strip_prefix("/").unwrap_or(&path)));
    let loaded = load(&Sources { path, ..context.sources.clone() }).ok();
    let guard = loaded.as_ref().and_then(|loaded| loaded.config.guard(name));
    let mut screen = context.screen();
    screen.tone(Tone::Warn, "Lost");
    for words in [
        "etcd starts without waiting: on an empty directory, a damaged volume or the wrong one as well",
        "nobody mounts the volume at the next boot, unless you say who does",
        "nothing keeps mkfs or a mount of others from a volume that would be held",
    ] {
        screen.hanging("  -", 4, words);
    }
    if guard.is_some_and(|guard| guard.mode == Mode::Enforce) {
        screen.para(0, "The configuration itself still says `enforce`: volhold config show --origin");
    }
    for at in guard.into_iter().flat_map(published_at) {
        screen.para(0, "What is mounted stays mounted. The directory under it stays sealed; once it is unmounted:");
        screen.verbatim(2, &format!("chattr -i {}", at.display()));
    }
    tell(context, &screen.finish())
}
