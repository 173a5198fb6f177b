//! The document of `enable` and `disable`, and how it prints.

use crate::cli::args::{EnableArgs, Output};
use crate::cli::change::Step;
use crate::cli::doctor;
use crate::cli::exit::Exit;
use crate::cli::output::{Context, Failure, put};
use crate::cli::status::reason_line;
use crate::cli::text::{Screen, Tone};
use crate::config::GuardConfig;
use crate::install::Preset;
use crate::install::doctor::{Check, Outcome};
use crate::install::drop_in::{KUBEADM_PATCHES, Planned};
use crate::install::files::Written;
use crate::model::{EntryId, GuardName, Reason};
use serde::Serialize;
use std::path::PathBuf;

/// The document of `enable` and `disable`, `-o json`.
#[derive(Debug, Serialize)]
pub struct Change {
    #[serde(rename = "apiVersion")]
    pub api_version: &'static str,
    pub kind: &'static str,
    pub guard: GuardName,
    pub guards: Vec<GuardName>,
    pub steps: Vec<Step>,
    pub done: bool,
    /// The entry of the first guard in this node's ledger; `null` where nothing was done, or in an image.
    pub recorded: Option<EntryId>,
    /// What speaks against it.
    pub reasons: Vec<Reason>,
    pub checks: Vec<Check>,
    pub files: Vec<FileLine>,
}

#[derive(Debug, Serialize)]
pub struct FileLine {
    pub path: PathBuf,
    /// `new`, `replaced`, `same`; for `disable` `gone`, `changed`, `foreign`.
    pub change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

fn word(written: Written) -> &'static str {
    match written {
        Written::Same => "same",
        Written::New => "new",
        Written::Replaced => "replaced",
    }
}

pub(super) fn document(
    args: &EnableArgs,
    guards: &[&GuardConfig],
    files: &[Planned],
    written: &[Written],
) -> Result<Change, Failure> {
    let Some(first) = guards.first() else { return Err(Failure::new(Exit::Usage, "name a guard")) };
    let lines = files.iter().zip(written).map(|(file, written)| FileLine {
        path: file.path.clone(),
        change: word(*written),
        text: args.dry_run.then(|| file.text.clone()),
    });
    let steps = files.iter().zip(written).filter(|(_, written)| **written != Written::Same);
    Ok(Change {
        api_version: "volhold/v1",
        kind: "Change",
        guard: first.name.clone(),
        guards: guards.iter().map(|guard| guard.name.clone()).collect(),
        steps: steps
            .map(|(file, _)| Step::new("write", true, format!("write {}: {}", file.path.display(), file.purpose)))
            .collect(),
        done: false,
        recorded: None,
        reasons: Vec::new(),
        checks: Vec::new(),
        files: lines.collect(),
    })
}

pub(super) fn refused(document: &Change) -> bool {
    !document.reasons.is_empty() || document.checks.iter().any(|check| check.result == Outcome::Fail)
}

pub(super) fn refuse(context: &Context, document: &Change) -> Result<Exit, Failure> {
    context.print(document, |screen| {
        screen.tone(Tone::Bad, "Not enabled, and nothing is left of what was written:");
        let failed: Vec<Check> =
            document.checks.iter().filter(|check| check.result == Outcome::Fail).cloned().collect();
        doctor::draw(screen, &failed);
        for reason in &document.reasons {
            screen.hanging("  would hold", 13, &reason_line(reason));
        }
        if !document.reasons.is_empty() {
            screen.verbatim(2, &format!("volhold explain {}", document.guard));
        }
    })?;
    Ok(Exit::Refused)
}

pub(super) fn draw(screen: &mut Screen, args: &EnableArgs, document: &Change, files: &[Planned]) {
    let title = match (args.dry_run, args.image) {
        (true, _) => "Would write",
        (false, true) => "Written into the image",
        (false, false) => "Written",
    };
    screen.tone(Tone::Head, title);
    for (line, file) in document.files.iter().zip(files) {
        screen.cells(None, &[(2, ""), (10, line.change), (0, &line.path.display().to_string())]);
        if let Some(text) = &line.text {
            for row in text.lines() {
                screen.verbatim(4, row);
            }
        } else {
            screen.para(12, file.purpose);
        }
    }
    let told: Vec<Check> = document.checks.iter().filter(|check| check.result == Outcome::Warn).cloned().collect();
    doctor::draw(screen, &told);
    match args.preset {
        Preset::Kubeadm => {
            screen.para(0, "The etcd pod waits once its manifest was made with the patch; with your own --config:");
            screen.verbatim(2, &format!("kubeadm init phase etcd local --patches {KUBEADM_PATCHES}"));
            screen.para(0, "Give the same --patches to kubeadm init, join and upgrade.");
        }
        Preset::EtcdService | Preset::Kops | Preset::K3s | Preset::Rke2 | Preset::KubeAws => {}
    }
}

/// A text that is for a table only.
pub fn tell(context: &Context, text: &str) -> Result<(), Failure> {
    match context.output {
        Output::Table => put(text),
        Output::Json => Ok(()),
    }
}
