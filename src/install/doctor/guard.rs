//! What one guard needs.

use super::{Check, seen};
use crate::install::files::Written;
use crate::install::mounters::Mounter;
use crate::install::preset::WaitsFor;
use crate::install::units::Properties;
use crate::install::{Preset, drop_in, units};
use crate::model::{DevNum, Fingerprint, GuardName, Mode, Observed};
use std::path::{Path, PathBuf};

/// Configured and running mode. `running`: `None` where no agent has reported the guard.
pub fn mode(guard: &GuardName, configured: Mode, running: Option<Mode>) -> Check {
    let id = "mode";
    match (configured, running) {
        (Mode::Observe, _) => {
            Check::warn(id, "observes: it holds nothing back").fix(format!("volhold enable --preset … {guard}"))
        }
        (Mode::Enforce, Some(Mode::Enforce)) => Check::ok(id, "enforces"),
        (Mode::Enforce, Some(Mode::Observe)) => {
            Check::fail(id, "is to enforce, and the agent still observes").fix("systemctl reload volhold.service")
        }
        (Mode::Enforce, None) => Check::fail(id, "is to enforce, and no agent has reported it: its gate stays closed")
            .fix("systemctl start volhold.service"),
    }
    .of(guard)
}

/// The unit that waits for the gate, as systemd has it.
pub fn gate_unit(guard: &GuardName, shown: &Observed<Properties>) -> Check {
    let id = "gate-unit";
    let unit = units::gate(guard);
    seen(id, &format!("{unit} in systemd"), shown, |shown| match shown.get("LoadState") {
        "loaded" => {
            let waits = shown.get("Type") == "oneshot"
                && shown.get("RemainAfterExit") == "yes"
                && shown.get("TimeoutStartUSec") == "infinity";
            if !waits {
                return Check::fail(
                    id,
                    format!(
                        "{unit} is not the unit of the package: it has to be oneshot, to remain, and to wait for ever"
                    ),
                )
                .fix(format!("systemctl cat {unit} shows which drop-in changes it"));
            }
            match shown.get("ActiveState") {
                "failed" => Check::warn(id, format!("{unit} failed; its next start waits again"))
                    .fix(format!("systemctl status {unit} says why; systemctl reset-failed {unit}")),
                state => Check::ok(id, format!("{unit} is there ({state})")),
            }
        }
        "masked" => Check::fail(id, format!("{unit} is masked: what requires it cannot start, or starts without it"))
            .fix(format!("systemctl unmask {unit}")),
        "not-found" => Check::fail(id, format!("{unit} is not installed")).fix("install the package again"),
        other => Check::fail(id, format!("{unit} cannot be loaded ({other})")).fix(format!("systemctl status {unit}")),
    })
    .of(guard)
}

/// Who waits, as systemd has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// The unit that `enable` was told of, with its properties.
    Unit { preset: Preset, shown: Properties },
    /// Nothing is on record; units that require the gate and come after it.
    Unknown { behind: Vec<String> },
}

pub fn order(guard: &GuardName, mode: Mode, found: &Observed<Order>) -> Check {
    let id = "gate-order";
    let gate = units::gate(guard);
    seen(id, &format!("what waits for {gate}"), found, |found| match found {
        Order::Unit { preset, shown } => {
            let unit = preset.unit();
            let behind = match preset.waits_for() {
                WaitsFor::OpenGate => gate.clone(),
                WaitsFor::Decision => drop_in::decided(guard),
            };
            let again =
                format!("systemctl daemon-reload; if that does not help: volhold enable --preset {preset} {guard}");
            if shown.get("LoadState") != "loaded" {
                let state = shown.get("LoadState");
                return Check::fail(id, format!("{unit} is not there for systemd ({state})"))
                    .fix(format!("install what brings {unit}, or enable another preset"));
            }
            let requires = shown.names("Requires", &behind) || shown.names("BindsTo", &behind);
            match (requires, shown.names("After", &behind)) {
                (true, true) if shown.get("NeedDaemonReload") == "yes" => Check::warn(
                    id,
                    format!("{unit} waits for {behind}, and its files have changed since systemd read them"),
                )
                .fix("systemctl daemon-reload"),
                (true, true) => Check::ok(id, format!("{unit} requires {behind} and starts after it")),
                (false, true) => {
                    Check::fail(id, format!("{unit} does not require {behind}: it starts without it")).fix(again)
                }
                (true, false) => Check::fail(id, format!("{unit} starts beside {behind}, not after it")).fix(again),
                (false, false) => Check::fail(id, format!("{unit} does not wait for {behind}")).fix(again),
            }
        }
        Order::Unknown { behind } if !behind.is_empty() => {
            Check::ok(id, format!("requires {gate} and starts after it: {}", behind.join(", ")))
        }
        Order::Unknown { .. } => match mode {
            Mode::Observe => Check::skip(id, "observes: nothing has to wait"),
            Mode::Enforce => Check::fail(id, format!("enforces, and no unit waits for {gate}"))
                .fix(format!("volhold enable --preset … {guard}")),
        },
    })
    .of(guard)
}

/// What the configuration expects of the member, against the data that was found. An etcd that runs on the volume is adopted
/// without this question, and the next boot would ask it.
pub fn identity(guard: &GuardName, config: Expected<'_>, found: Option<&Fingerprint>) -> Check {
    let id = "identity";
    let Some(found) = found else { return Check::skip(id, "not tested: no data dir was read").of(guard) };
    let plain = |url: &str| url.trim_end_matches('/').to_owned();
    let mut wrong = Vec::new();
    if let (Some(expected), Some(name)) = (config.member, found.name.as_deref())
        && !name.is_empty()
        && name != expected
    {
        wrong.push(format!("the data belongs to the member `{name}`, and the configuration says `{expected}`"));
    }
    if let Some(expected) = config.peer_url
        && !found.peer_urls.is_empty()
        && found.peer_urls.iter().all(|url| plain(url) != plain(expected))
    {
        let urls = found.peer_urls.join(" and ");
        wrong.push(format!(
            "the data belongs to a member with the peer URL {urls}, and the configuration says {expected}"
        ));
    }
    let check = if wrong.is_empty() {
        Check::ok(id, "the data is that of the configured member, as far as the configuration says")
    } else {
        Check::fail(id, format!("{}: the next boot would be held", wrong.join("; ")))
            .fix("put `member` and `peer_url` right in the configuration, or look whose volume this is")
    };
    check.of(guard)
}

/// `member` and `peer_url` of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub member: Option<&'a str>,
    pub peer_url: Option<&'a str>,
}

/// A file that `enable` would write, and what is there instead.
pub type Compared = (PathBuf, Result<Written, String>);

/// The files that `enable` wrote, compared with what it would write. `None`: nothing says that it was used.
pub fn drop_ins(guard: &GuardName, mode: Mode, files: Option<(Preset, Vec<Compared>)>) -> Check {
    let id = "drop-in";
    let Some((preset, files)) = files else {
        return match mode {
            Mode::Observe => Check::skip(id, "observes, and was not enabled"),
            Mode::Enforce => {
                Check::warn(id, "enforces by a hand-written configuration: only gate-order says what waits")
                    .fix(format!("volhold enable --preset … {guard}"))
            }
        }
        .of(guard);
    };
    let mut wrong = Vec::new();
    for (path, written) in &files {
        match written {
            Ok(Written::Same) => {}
            Ok(Written::New) => wrong.push(format!("{} is gone", path.display())),
            Ok(Written::Replaced) => wrong.push(format!("{} is of another version or configuration", path.display())),
            Err(error) => wrong.push(error.clone()),
        }
    }
    let check = if wrong.is_empty() {
        Check::ok(id, format!("what `enable --preset {preset}` wrote is there, unchanged ({} files)", files.len()))
    } else {
        Check::fail(id, wrong.join("; ")).fix(format!("volhold enable --preset {preset} {guard}"))
    };
    check.of(guard)
}

/// kubeadm's static pod. `manifest`: `None` where there is none.
pub fn pod(guard: &GuardName, ready: &Path, manifest: &Observed<Option<String>>) -> Check {
    let id = "pod-gate";
    let patches = drop_in::KUBEADM_PATCHES;
    seen(id, "kubeadm's etcd manifest", manifest, |manifest| {
        let Some(text) = manifest else {
            return Check::warn(id, "there is no /etc/kubernetes/manifests/etcd.yaml yet")
                .fix(format!("give kubeadm --patches {patches} with init, join and upgrade"));
        };
        let path = ready.display().to_string();
        let says = |key: &str| {
            text.lines().any(|line| {
                let line = line.trim().trim_start_matches("- ");
                let value = line.strip_prefix(key).and_then(|rest| rest.strip_prefix(':'));
                value.is_some_and(|value| value.trim().trim_matches(['"', '\'']) == path)
            })
        };
        match (says("path"), says("mountPath")) {
            (true, true) => Check::ok(id, format!("the etcd pod waits for {path}")),
            (true, false) => Check::fail(id, format!("no container mounts {path}, so kubelet does not look at it"))
                .fix(format!("kubeadm init phase etcd local --patches {patches} (with your --config)")),
            (false, _) => Check::fail(id, format!("the etcd pod does not wait for {path}"))
                .fix(format!("kubeadm init phase etcd local --patches {patches} (with your --config)")),
        }
    })
    .of(guard)
}

/// Who else would mount the volume.
pub fn other_mounters(guard: &GuardName, found: &Observed<Vec<Mounter>>) -> Check {
    let id = "other-mounter";
    seen(id, "who else mounts the volume", found, |found| match found.split_first() {
        None => Check::ok(id, "no fstab line, mount unit or automount unit names the volume or its place"),
        Some((first, more)) => {
            let all: Vec<String> = found.iter().map(|each| format!("{}: {}", each.place, each.text)).collect();
            let remedies = std::iter::once(first).chain(more).map(|each| each.remedy.clone()).collect::<Vec<_>>();
            Check::fail(id, format!("would mount it too: {}", all.join("; "))).fix(remedies.join("; "))
        }
    })
    .of(guard)
}

/// What became of an attempt to write into the directory under the mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SealFound {
    /// The kernel refused.
    Refused,
    /// A file could be made there (and was taken away again).
    Written,
    Missing,
    /// Something lies there that the mount hides.
    NotEmpty(Vec<String>),
}

pub fn seal(guard: &GuardName, mode: Mode, at: &Path, found: &Observed<SealFound>) -> Check {
    let id = "seal";
    let place = at.display();
    seen(id, &format!("what lies under {place}"), found, |found| match (mode, found) {
        (_, SealFound::NotEmpty(names)) => {
            Check::fail(id, format!("the directory under the mount at {place} holds {}", names.join(", ")))
                .fix("look at it (mount --bind its parent elsewhere), move it away, then: volhold retry NAME")
        }
        (_, SealFound::Refused) => {
            Check::ok(id, format!("while nothing is mounted at {place}, nothing can be written there (tried)"))
        }
        (Mode::Observe, SealFound::Written | SealFound::Missing) => {
            Check::skip(id, format!("observes: {place} is not sealed"))
        }
        (Mode::Enforce, SealFound::Written) => Check::fail(
            id,
            format!("while nothing is mounted at {place}, anybody who asks nobody writes to the root disk there"),
        )
        .fix(format!(
            "volhold retry {guard}; if that does not help, its filesystem cannot seal (chattr +i): use ext4 or xfs"
        )),
        (Mode::Enforce, SealFound::Missing) => {
            Check::fail(id, format!("{place} is missing: whoever asks nobody makes it"))
                .fix("systemctl restart volhold.service")
        }
    })
    .of(guard)
}

/// The device at a path, as somebody sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// "PID 1", "etcd (process 812)".
    pub who: String,
    /// Where it looks: a published place, or the data dir below one.
    pub at: PathBuf,
    /// `st_dev` of the path in that process's eyes.
    pub device: Observed<DevNum>,
    /// What the mount table has on top there, for the message.
    pub on_top: Option<String>,
}

/// Is what was published still what is seen? `published`: the device that the gate was opened for; `None`: it is not open.
pub fn visible(guard: &GuardName, at: &Path, published: Option<DevNum>, sights: &[Sight]) -> Check {
    let id = "mount-visible";
    let place = at.display();
    let Some(published) = published else { return Check::skip(id, "not tested: the gate is not open").of(guard) };
    let mut wrong = Vec::new();
    for Sight { who, at, device, on_top } in sights {
        let place = at.display();
        match device {
            Observed::Seen(device) if *device == published => {}
            Observed::Seen(device) => {
                let on_top = on_top.as_ref().map_or_else(String::new, |what| format!(", {what}"));
                wrong.push(format!("{who} sees device {device} at {place}{on_top}, not the volume ({published})"));
            }
            Observed::Unknown(why) => wrong.push(format!("what {who} sees at {place} is unknown: {}", why.detail())),
        }
    }
    let check = if wrong.is_empty() {
        let who: Vec<String> =
            sights.iter().map(|sight| format!("at {} by {}", sight.at.display(), sight.who)).collect();
        Check::ok(id, format!("the volume is what is seen {}", who.join(", ")))
    } else {
        Check::fail(id, wrong.join("; "))
            .fix(format!("findmnt {place} shows what lies there; do not restart etcd before that is clear"))
    };
    check.of(guard)
}

/// A directory on the way to the data, as stat(2) has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    pub path: PathBuf,
    pub uid: u32,
    pub gid: u32,
    /// The nine bits.
    pub mode: u32,
}

/// The user that etcd runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    /// Of its primary group and the others.
    pub gids: Vec<u32>,
}

/// May that user get to its data dir, and write in it? `way` ends with the data dir. `None`: not known which dir or user.
pub fn owner(guard: &GuardName, user: Option<&Observed<User>>, way: Option<&Observed<Vec<Owned>>>) -> Check {
    let id = "owner";
    let (Some(user), Some(way)) = (user, way) else {
        return Check::skip(id, "not tested: no data dir is published, or etcd is no unit of its own").of(guard);
    };
    seen(id, "the user that etcd runs as", user, |user| {
        seen(id, "who owns the data dir", way, |way| {
            let needs = |index: usize| if index.saturating_add(1) == way.len() { 0o7 } else { 0o1 };
            let barred = way.iter().enumerate().find(|(index, dir)| !user.may(dir, needs(*index)));
            let Some((index, dir)) = barred else {
                return Check::ok(
                    id,
                    format!(
                        "{} may write to {}",
                        user.name,
                        way.last().map_or_else(String::new, |dir| dir.path.display().to_string())
                    ),
                );
            };
            let path = dir.path.display();
            let is = format!("{path} belongs to {}:{}, mode {:04o}", dir.uid, dir.gid, dir.mode);
            if needs(index) == 0o7 {
                Check::fail(id, format!("{} cannot write to its data dir: {is}", user.name))
                    .fix(format!("chown {} {path}", user.name))
            } else {
                Check::fail(id, format!("{} cannot pass to its data dir: {is}", user.name))
                    .fix(format!("chmod o+x {path}"))
            }
        })
    })
    .of(guard)
}

impl User {
    /// Classic permission bits; root passes.
    fn may(&self, dir: &Owned, needs: u32) -> bool {
        let bits = if self.uid == 0 {
            0o7
        } else if self.uid == dir.uid {
            dir.mode >> 6
        } else if self.gids.contains(&dir.gid) {
            dir.mode >> 3
        } else {
            dir.mode
        };
        bits & needs == needs
    }
}

/// The label of the data dir. `None`: SELinux is not enabled.
pub fn selinux(guard: &GuardName, context: Option<&Observed<String>>) -> Check {
    let id = "selinux";
    let Some(context) = context else { return Check::skip(id, "SELinux is not enabled").of(guard) };
    seen(id, "the SELinux label of the data dir", context, |context| {
        let kind = context.split(':').nth(2).unwrap_or_default();
        if matches!(kind, "unlabeled_t" | "default_t" | "mnt_t" | "") {
            return Check::warn(
                id,
                format!("the data dir is labelled `{context}`, which a confined etcd may not touch"),
            )
            .fix("restorecon -R on the mounted data dir, or context= in mount_options");
        }
        Check::ok(id, format!("the data dir is labelled {context}"))
    })
    .of(guard)
}
