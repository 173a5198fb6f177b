//! From the configured name to the opened device, with what the node and the kernel know of it.

use super::machine::Place;
use super::memory::Memory;
use crate::act::mount::{sources_at, top_at};
use crate::device::ebs::{self, Located};
use crate::device::{self, Device, DeviceError, Resolved, Sysfs};
use crate::gate::{claims, files, notify};
use crate::model::{
    DeviceFacts, DeviceSpec, DeviceUse, EbsSpec, GuardName, Mode, Observed, Publish, PublishDir, Reason, ReasonCode,
    VolumeId, WHOLE, Why,
};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What is looked for, and for whom.
pub struct Sought {
    pub spec: DeviceSpec,
    /// Provider `ebs`: the volumes of which one is meant, and how EC2 says it is attached here.
    pub volumes: Vec<VolumeId>,
    pub attached_as: Option<(String, u64)>,
    pub mode: Mode,
    pub publish: Publish,
    pub run: PathBuf,
    pub guard: GuardName,
    pub memory: Memory,
}

/// What was found, and where it is mounted if it is.
pub struct FoundAt {
    pub facts: DeviceFacts,
    pub place: Place,
    /// What of it, and where, without links.
    pub mounted: Vec<PublishDir>,
    /// The gate was opened in this boot already.
    pub gate_open: bool,
}

/// The volumes of EC2 that may be looked for without asking EC2: the one that the configuration names, or those that this node
/// has on record for the guard.
pub fn volumes_of(spec: &DeviceSpec, memory: &Memory) -> Vec<VolumeId> {
    match spec {
        DeviceSpec::Path(_) | DeviceSpec::Uuid(_) | DeviceSpec::Label(_) => Vec::new(),
        DeviceSpec::Ebs(EbsSpec::Id(id)) => vec![id.clone()],
        DeviceSpec::Ebs(EbsSpec::Tags(_)) => memory.volumes(),
    }
}

/// Finds and opens the device. `held` is the one that this guard has open from before: if the name still leads to it, and
/// it is the same attachment, it is kept with its claim, so that a held device is not free for a moment.
pub fn find(sought: &Sought, held: Option<Device>) -> (Option<Device>, Result<FoundAt, Reason>) {
    let sysfs = Sysfs::of_process();
    let (resolved, volume) = match resolve(sought, Images::Attach, &sysfs) {
        Ok(resolved) => resolved,
        Err(reason) => return (keep_if_claimed(held), Err(reason)),
    };
    let mut device = match held.filter(|held| same(held, &resolved)) {
        Some(held) => held,
        // A descriptor of something else is let go before the new one is opened.
        None => match Device::open(&resolved, &sysfs) {
            Ok(device) => device,
            Err(error) => return (None, Err(error.reason())),
        },
    };
    if let Err(error) = confirm(&device, volume.as_ref()) {
        return (None, Err(error.reason()));
    }
    if let Some(stored) = kept_claim(sought, &device)
        && let Err(error) = device.adopt_claim(stored)
    {
        // It is the claim on another device, or on an earlier attachment: of no use, and let go.
        tracing::warn!(event = "claim.stale", guard = %sought.guard, "the claim that was kept does not fit: {}", error.reason().message);
        claims::take_back(&sought.run, &sought.guard);
    }
    let mut facts = match device.facts() {
        Ok(facts) => facts,
        Err(error) => return (Some(device), Err(error.reason())),
    };
    if let Some(located) = volume {
        facts.volume_id = located.volume;
    }
    if device.claimed() {
        // Our own claim is no use by others.
        facts.uses.retain(|device_use| *device_use != DeviceUse::Exclusive);
    }
    let (place, mounted) = match mounted(&facts, sought) {
        Ok(mounted) => mounted,
        Err(reason) => return (Some(device), Err(reason)),
    };
    if sought.mode == Mode::Enforce && place == Place::Free {
        // Nothing is mounted there, so no etcd can be running on it: what is left of a gate is of the past.
        if let Err(error) = files::close_gate(&sought.run, &sought.guard, &files::Closing::VolumeGone) {
            let message = format!("the ready file of an earlier mount cannot be taken away: {}", super::chain(&error));
            return (Some(device), Err(Reason::new(ReasonCode::Unreadable, message)));
        }
    }
    let gate_open = match files::is_open(&sought.run, &sought.guard, &sought.memory.here.boot_id) {
        Ok(open) => open,
        Err(error) => {
            let message = format!("whether the gate is open already is not known: {}", super::chain(&error));
            return (Some(device), Err(Reason::new(ReasonCode::Unreadable, message)));
        }
    };
    (Some(device), Ok(FoundAt { facts, place, mounted, gate_open }))
}

/// The claim that an agent before this one had: systemd keeps it over a restart, whoever waits for a held guard over a stop.
/// One that observes takes none, and lets none be kept.
fn kept_claim(sought: &Sought, device: &Device) -> Option<OwnedFd> {
    let stored = notify::take_stored(&sought.guard);
    match sought.mode {
        Mode::Enforce if device.claimed() => None,
        Mode::Enforce => stored.or_else(|| claims::recover(&sought.run, &sought.guard)),
        Mode::Observe => {
            claims::take_back(&sought.run, &sought.guard);
            stored
        }
    }
}

/// As [`find`], for somebody who only looks: no claim is taken over, no ready file is taken away, and an image file that no
/// loop device shows yet stays a file. What `find` would take away counts as gone.
pub fn look(sought: &Sought) -> Result<(Device, FoundAt), Reason> {
    let sysfs = Sysfs::of_process();
    let (resolved, volume) = resolve(sought, Images::Leave, &sysfs)?;
    let device = Device::open(&resolved, &sysfs).map_err(|error| error.reason())?;
    confirm(&device, volume.as_ref()).map_err(|error| error.reason())?;
    let mut facts = device.facts().map_err(|error| error.reason())?;
    if let Some(located) = volume {
        facts.volume_id = located.volume;
    }
    let (place, mounted) = mounted(&facts, sought)?;
    let gate_open = files::is_open(&sought.run, &sought.guard, &sought.memory.here.boot_id).map_err(|error| {
        let message = format!("whether the gate is open already is not known: {}", super::chain(&error));
        Reason::new(ReasonCode::Unreadable, message)
    })?;
    let gate_open = gate_open && (sought.mode == Mode::Observe || place != Place::Free);
    Ok((device, FoundAt { facts, place, mounted, gate_open }))
}

/// The opened device is the one that the name leads to now, and its attachment never ended.
fn same(held: &Device, resolved: &Resolved) -> bool {
    let node = match resolved {
        Resolved::Block { node, .. } => node,
        Resolved::Image { path } => path,
    };
    held.node() == node && matches!(held.still_same(), Ok(true))
}

/// While the name leads nowhere, a claim that we have is kept: the device may have lost its link and nothing else.
fn keep_if_claimed(held: Option<Device>) -> Option<Device> {
    held.filter(Device::claimed)
}

/// What becomes of an image file that no loop device shows.
#[derive(Clone, Copy)]
enum Images {
    /// Enforce makes it one.
    Attach,
    Leave,
}

/// The opened device is the volume that its serial said before it was opened. One that has no serial was found by EC2's name
/// and size, and has nothing to be asked for.
fn confirm(device: &Device, volume: Option<&Located>) -> Result<(), DeviceError> {
    match volume {
        Some(Located { volume, by_serial: true, .. }) => device.confirm_volume(volume),
        Some(Located { by_serial: false, .. }) | None => Ok(()),
    }
}

fn resolve(sought: &Sought, images: Images, sysfs: &Sysfs) -> Result<(Resolved, Option<Located>), Reason> {
    match &sought.spec {
        DeviceSpec::Ebs(_) => {
            let words = sought.spec.words();
            let located = ebs::locate(sysfs, &words, &sought.volumes, sought.attached_as.as_ref());
            let located = located.map_err(|error| error.reason())?;
            let resolved = Resolved::Block { requested: located.volume.to_string(), node: located.node.clone() };
            Ok((resolved, Some(located)))
        }
        DeviceSpec::Path(_) | DeviceSpec::Uuid(_) | DeviceSpec::Label(_) => {
            resolve_local(sought, images, sysfs).map(|resolved| (resolved, None))
        }
    }
}

fn resolve_local(sought: &Sought, images: Images, sysfs: &Sysfs) -> Result<Resolved, Reason> {
    let identify = |path: &Path| names_of(path);
    let resolved = device::resolve(&sought.spec, sysfs, &identify).map_err(|error| error.reason())?;
    let attach = match (images, sought.mode) {
        (Images::Attach, Mode::Enforce) => true,
        (Images::Attach, Mode::Observe) | (Images::Leave, _) => false,
    };
    match (&resolved, attach) {
        (Resolved::Image { path }, true) => {
            let attached = crate::act::loopdev::attach(path, sysfs).map_err(|error| error.reason())?;
            device::resolve(&DeviceSpec::Path(attached.node), sysfs, &identify).map_err(|error| error.reason())
        }
        // Somebody else may show the image through a loop device, and mount that.
        (Resolved::Image { path }, false) => {
            match device::loops::showing(sysfs, path).map_err(|error| error.reason())? {
                Some(bound) => {
                    let node = sysfs.dev.join(&bound.name);
                    device::resolve(&DeviceSpec::Path(node), sysfs, &identify).map_err(|error| error.reason())
                }
                None => Ok(resolved),
            }
        }
        (Resolved::Block { .. }, _) => Ok(resolved),
    }
}

/// Enough of a device's head for the superblocks of ext and XFS.
const HEAD: usize = 8192;

/// UUID and label of the filesystem whose superblock stands on a node. A node that cannot be read is unknown: it might be
/// the one that is looked for.
fn names_of(path: &Path) -> Observed<(Option<String>, Option<String>)> {
    let unreadable =
        |error: std::io::Error| Observed::Unknown(Why::Unreadable { detail: format!("{}: {error}", path.display()) });
    let mut head = vec![0_u8; HEAD];
    let read = File::open(path).and_then(|file| file.read_at(&mut head, 0));
    match read {
        Ok(length) => {
            head.truncate(length);
            let filesystem = crate::probe::filesystem(&head);
            let uuid = filesystem.as_ref().and_then(|filesystem| filesystem.uuid).map(|uuid| uuid.to_string());
            Observed::Seen((uuid, filesystem.and_then(|filesystem| filesystem.label)))
        }
        Err(error) => unreadable(error),
    }
}

/// The publish path as the kernel's mount table has it: links that configuration goes over are followed.
fn without_links(publish: &Path) -> PathBuf {
    // What is not there (yet) is nobody's mountpoint under any name.
    publish.canonicalize().unwrap_or_else(|_| publish.to_owned())
}

/// What of this device is mounted as far as it is the guard's business: at its own places, each with the directory that
/// belongs there; in observe mode the whole of it, anywhere.
fn mounted(facts: &DeviceFacts, sought: &Sought) -> Result<(Place, Vec<PublishDir>), Reason> {
    let publish = sought.publish.of_volume(&facts.volume_id);
    match sought.mode {
        Mode::Enforce => {
            let mut mounted = Vec::new();
            for entry in publish.entries() {
                let at = without_links(&entry.at);
                // Also below something that was mounted over it since: an etcd may run on it, and reading says what is wrong.
                let there = sources_at(&at).map_err(|error| error.reason())?;
                if there.iter().any(|mount| mount.devnum == facts.devnum && mount.root == entry.mount_root()) {
                    mounted.push(PublishDir { from: entry.from.clone(), at });
                }
            }
            let place = match mounted.len() {
                0 => Place::Free,
                some if some < publish.entries().len() => Place::Partly,
                _all => Place::Mounted,
            };
            Ok((place, mounted))
        }
        Mode::Observe => observed(facts, &publish),
    }
}

/// Whoever observes mounts nothing, so the whole volume has to be mounted somewhere to be looked at; directories of it may
/// be at their places as well.
fn observed(facts: &DeviceFacts, publish: &Publish) -> Result<(Place, Vec<PublishDir>), Reason> {
    let mounts = facts.mounted_at().map(PathBuf::from);
    let own: Vec<PathBuf> = publish.paths().map(without_links).collect();
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    for at in mounts {
        match top_at(&at).map_err(|error| error.reason())? {
            Some(top) if top.devnum == facts.devnum && top.root != Path::new("/") => {
                parts.push(format!("{} at {}", top.root.display(), at.display()));
            }
            // Also one in the namespace of process 1 only: then opening it says what is wrong.
            Some(_) | None => whole.push(at),
        }
    }
    match whole.iter().find(|at| own.contains(at)).or_else(|| whole.first()) {
        Some(at) => Ok((Place::Mounted, vec![PublishDir { from: WHOLE.to_owned(), at: at.clone() }])),
        None if parts.is_empty() => Ok((Place::Free, Vec::new())),
        None => {
            let message = format!(
                "only directories of the volume are mounted ({}), and observe mode mounts nothing: the whole of it cannot be \
                 looked at",
                parts.join(", ")
            );
            Err(Reason::new(ReasonCode::Unreadable, message))
        }
    }
}
