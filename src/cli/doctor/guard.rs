//! What is found out about one guard.

use super::{Patient, published_at};
use crate::act::seal::{self, WriteTest};
use crate::config::{self, GuardConfig};
use crate::device::{self, uses};
use crate::gate::files::{self as ready, Published};
use crate::install::doctor::guard::{self, Compared, Expected, Order, Owned, SealFound, Sight, User};
use crate::install::doctor::{Check, Outcome};
use crate::install::drop_in::{self, Wanted};
use crate::install::files::Root;
use crate::install::mark::{Owner, owner};
use crate::install::mounters::{self, Mounter, Target};
use crate::install::{Preset, units};
use crate::model::{DevNum, DeviceSpec, EbsSpec, GuardName, Mode, Observed, Publish, PublishDir, Why, names_no_place};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const GATE: &str = "LoadState,ActiveState,Type,RemainAfterExit,TimeoutStartUSec,RequiredBy,Before";
const UNIT: &str = "LoadState,Requires,BindsTo,After,NeedDaemonReload,MainPID,User";

pub fn checks(patient: &Patient<'_>, config: &GuardConfig) -> Vec<Check> {
    let name = &config.name;
    let root = Root::open(Path::new("/"));
    let enabled = root.as_ref().ok().and_then(|root| enabled(root, name));
    let open = published(patient, name);
    let mut checks = vec![guard::mode(name, config.mode, patient.reported(name).map(|status| status.mode))];
    let systemd = patient.show(&units::gate(name), GATE);
    let unit = enabled.and_then(|preset| patient.show(preset.unit(), UNIT));
    match &systemd {
        None => {
            for id in ["gate-unit", "gate-order"] {
                checks.push(Check::skip(id, "not tested: no systemd").of(name));
            }
        }
        Some(gate) => {
            checks.push(guard::gate_unit(name, gate));
            let order = match (enabled, &unit) {
                (Some(preset), Some(shown)) => shown.as_ref().map(|shown| Order::Unit { preset, shown: shown.clone() }),
                (_, _) => gate.as_ref().map(|gate| {
                    let behind =
                        gate.list("RequiredBy").into_iter().filter(|unit| gate.names("Before", unit)).collect();
                    Order::Unknown { behind }
                }),
            };
            checks.push(guard::order(name, config.mode, &order));
        }
    }
    let files =
        enabled.and_then(|preset| root.as_ref().ok().map(|root| (preset, compared(root, preset, config, patient))));
    checks.push(guard::drop_ins(name, config.mode, files));
    if enabled == Some(Preset::Kubeadm) {
        let ready = ready::ready_path(&patient.config.paths.run, name);
        checks.push(guard::pod(name, &ready, &manifest(root.as_ref().ok())));
    }
    checks.push(identity(patient, config));
    checks.push(other_mounters(patient, config));
    let reported = patient.reported(&config.name).and_then(|status| status.volume.as_ref());
    let places = reported.map_or_else(|| config.publish.clone(), |volume| config.publish.of_volume(volume));
    checks.push(seal_of(config, &places));
    let main = unit.as_ref().and_then(|shown| shown.seen()).and_then(|shown| shown.get("MainPID").parse::<u32>().ok());
    let main = main.filter(|pid| *pid != 0 && enabled.is_some_and(Preset::is_etcd_itself));
    let data_dir = open.as_ref().map(|open| open.place_of_data());
    let at = open
        .as_ref()
        .map_or_else(|| places.main(config.data_dir.as_deref()).to_owned(), |open| PathBuf::from(&open.at));
    let sights = match (&open, &data_dir) {
        (Some(open), Some(data_dir)) => sights(&open.entries(), data_dir, main),
        (_, _) => Vec::new(),
    };
    checks.push(guard::visible(name, &at, open.as_ref().map(|open| open.devnum), &sights));
    let user = enabled.filter(|preset| preset.is_etcd_itself()).and(unit.as_ref()).map(|shown| match shown {
        Observed::Seen(shown) => user(shown.get("User")),
        Observed::Unknown(why) => Observed::Unknown(why.clone()),
    });
    // What shadows the volume is not the data dir.
    let seen = open.as_ref().is_some_and(|open| {
        std::fs::metadata(&at).is_ok_and(|metadata| DevNum::from_dev_t(metadata.dev()) == open.devnum)
    });
    let way = data_dir.as_ref().filter(|_| seen).map(|dir| way(&at, dir));
    checks.push(guard::owner(name, user.as_ref(), way.as_ref()));
    checks.push(guard::selinux(name, context(data_dir.as_deref().unwrap_or(&at)).as_ref()));
    checks
}

/// The preset that the guard was enabled with, by the layer that `enable` wrote.
pub fn enabled(root: &Root, name: &GuardName) -> Option<Preset> {
    let text = root.read(&drop_in::enforce_path(name)).ok()??;
    match owner(&text) {
        Owner::Ours { preset, .. } => Some(preset),
        Owner::Changed | Owner::Foreign => None,
    }
}

/// What the gate was opened for in this boot; `None`: it is closed.
fn published(patient: &Patient<'_>, name: &GuardName) -> Option<Published> {
    let boot = crate::record::boot_id().ok()?;
    let run = &patient.config.paths.run;
    ready::is_open(run, name, &boot).ok()?.then_some(())?;
    ready::read_published(run, name).ok()?
}

fn compared(root: &Root, preset: Preset, config: &GuardConfig, patient: &Patient<'_>) -> Vec<Compared> {
    let publish = published_at(config);
    let ready = ready::ready_path(&patient.config.paths.run, &config.name);
    let wanted = Wanted { preset, guard: &config.name, publish: &publish, ready: &ready };
    let files = wanted.waiting().into_iter().chain([wanted.enforcing()]);
    files
        .map(|file| (file.path.clone(), root.compare(&file.path, &file.text).map_err(|error| error.to_string())))
        .collect()
}

fn manifest(root: Option<&Root>) -> Observed<Option<String>> {
    let Some(root) = root else { return Observed::not_run("/ cannot be opened") };
    match root.read(Path::new("/etc/kubernetes/manifests/etcd.yaml")) {
        Ok(text) => Observed::Seen(text),
        Err(error) => Observed::Unknown(Why::Unreadable { detail: crate::agent::chain(&error) }),
    }
}

/// Whose data the agent has found.
pub fn identity(patient: &Patient<'_>, config: &GuardConfig) -> Check {
    let expected = Expected { member: config.member.as_deref(), peer_url: config.peer_url.as_deref() };
    let dir = patient.reported(&config.name).and_then(|status| status.data_dir.as_ref());
    guard::identity(&config.name, expected, dir.and_then(|dir| dir.fingerprint.as_ref()))
}

/// Who else would mount the guard's volume on this machine.
pub fn other_mounters(patient: &Patient<'_>, config: &GuardConfig) -> Check {
    let found = Root::open(Path::new("/")).and_then(|root| mounters::find(&root, &target(patient, config)));
    let found: Observed<Vec<Mounter>> = match found {
        Ok(found) => Observed::Seen(found),
        Err(error) => Observed::Unknown(Why::Unreadable { detail: crate::agent::chain(&error) }),
    };
    guard::other_mounters(&config.name, &found)
}

/// The volume by every name that it has here.
fn target(patient: &Patient<'_>, config: &GuardConfig) -> Target {
    let mut target = target_in_image(config);
    for at in published_at(config) {
        target.publish.extend(at.canonicalize());
    }
    let reported = patient.reported(&config.name);
    target.uuids.extend(reported.and_then(|status| status.fs_uuid).map(|uuid| uuid.to_string()));
    // An image file is mounted by its name or by that of its loop device.
    let mut nodes: Vec<PathBuf> =
        reported.and_then(|status| status.device.as_ref()).map(|d| PathBuf::from(&d.node)).into_iter().collect();
    nodes.extend(target.nodes.iter().filter_map(|node| node.canonicalize().ok()));
    let number = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        metadata.file_type().is_block_device().then(|| metadata.rdev())
    };
    let numbers: Vec<u64> = nodes.iter().filter_map(|node| number(node)).collect();
    for names in std::fs::read_dir("/dev/disk").into_iter().flatten().flatten() {
        for link in std::fs::read_dir(names.path()).into_iter().flatten().flatten() {
            let path = link.path();
            if number(&path).is_some_and(|number| numbers.contains(&number)) {
                if names.file_name() == "by-label" {
                    target.labels.push(link.file_name().to_string_lossy().into_owned());
                }
                nodes.push(path);
            }
        }
    }
    target.nodes.extend(nodes);
    target
}

/// By the names that the configuration has for it.
pub fn target_in_image(config: &GuardConfig) -> Target {
    let mut target = Target { publish: published_at(config), ..Target::default() };
    match &config.device {
        DeviceSpec::Path(path) => target.nodes.push(path.clone()),
        DeviceSpec::Uuid(uuid) => target.uuids.push(uuid.to_string()),
        DeviceSpec::Label(label) => target.labels.push(label.to_string()),
        DeviceSpec::Ebs(EbsSpec::Id(id)) => target.nodes.extend(device::ebs::links(id)),
        // Which volume that is, and so what it is called here, is known only by its device: `reported`.
        DeviceSpec::Ebs(EbsSpec::Tags(_)) => {}
    }
    target
}

/// Tries to write under each mount. The first that is not well, else the last.
pub fn seal_of(config: &GuardConfig, places: &Publish) -> Check {
    let mut checks = places.paths().map(|at| seal_at(config, at));
    let first = checks.next().unwrap_or_else(|| Check::skip("seal", "nothing is published").of(&config.name));
    checks.fold(first, |told, next| if told.result == Outcome::Ok { next } else { told })
}

fn seal_at(config: &GuardConfig, at: &Path) -> Check {
    if names_no_place(at) {
        let why = format!("which volume it is, and so what {} is, is not known yet", at.display());
        return Check::skip("seal", why).of(&config.name);
    }
    let found = match seal::test_write(at) {
        Observed::Seen(WriteTest::Refused) => Observed::Seen(SealFound::Refused),
        Observed::Seen(WriteTest::Written) => Observed::Seen(SealFound::Written),
        Observed::Seen(WriteTest::Missing) => Observed::Seen(SealFound::Missing),
        Observed::Seen(WriteTest::NotEmpty(names)) => Observed::Seen(SealFound::NotEmpty(names)),
        Observed::Unknown(why) => Observed::Unknown(why),
    };
    // In observe an unmounted data dir on the root disk is what is used: nothing is beneath it.
    if config.mode == Mode::Observe && !is_mountpoint(at) {
        return Check::skip("seal", format!("observes, and nothing is mounted at {}", at.display())).of(&config.name);
    }
    guard::seal(&config.name, config.mode, at, &found)
}

fn is_mountpoint(at: &Path) -> bool {
    let at = at.canonicalize().unwrap_or_else(|_| at.to_owned());
    uses::mounts(Path::new("/proc/1/mountinfo")).is_ok_and(|mounts| mounts.iter().any(|mount| mount.at == at))
}

/// What PID 1 sees at every published place, and every etcd at its data dir.
fn sights(published: &[PublishDir], data_dir: &Path, main: Option<u32>) -> Vec<Sight> {
    let mut sights: Vec<Sight> = published.iter().map(|entry| sight("PID 1".to_owned(), 1, &entry.at)).collect();
    for (pid, name) in etcds(main) {
        let uses = data_dir_of(pid);
        // An etcd of another guard looks elsewhere; the unit's own main process may not.
        let Some(dir) = uses.or_else(|| (main == Some(pid)).then(|| data_dir.to_owned())) else { continue };
        if dir == data_dir || main == Some(pid) {
            sights.push(sight(format!("{name} (process {pid})"), pid, &dir));
        }
    }
    sights
}

fn sight(who: String, pid: u32, at: &Path) -> Sight {
    let inside = Path::new("/proc").join(pid.to_string()).join("root").join(at.strip_prefix("/").unwrap_or(at));
    let device = match std::fs::metadata(&inside) {
        Ok(metadata) => Observed::Seen(DevNum::from_dev_t(metadata.dev())),
        Err(error) => Observed::Unknown(Why::Unreadable { detail: format!("{}: {error}", inside.display()) }),
    };
    Sight { who, at: at.to_owned(), device, on_top: on_top(pid, at) }
}

/// What covers a path in a process's mount namespace, for the message.
fn on_top(pid: u32, at: &Path) -> Option<String> {
    let mounts = uses::mounts(&Path::new("/proc").join(pid.to_string()).join("mountinfo")).ok()?;
    let place = mounts
        .iter()
        .map(|mount| &mount.at)
        .filter(|place| at.starts_with(place))
        .max_by_key(|p| p.components().count())?;
    let stack: Vec<_> = mounts.iter().filter(|mount| mount.at == *place).collect();
    // On top of a path is the mount that is nobody's parent there.
    let deepest = stack.iter().find(|mount| stack.iter().all(|other| other.parent != mount.id))?;
    Some(format!("{} of {} at {}", deepest.fstype, deepest.source.display(), deepest.at.display()))
}

/// Processes that are etcd, by their name, and the unit's main process.
fn etcds(main: Option<u32>) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(name) = std::fs::read_to_string(process.path().join("comm")) else { continue };
        let name = name.trim_end().to_owned();
        if name == "etcd" || main == Some(pid) {
            found.push((pid, name));
        }
    }
    found
}

/// The data dir that an etcd was started with: `--data-dir`, or `ETCD_DATA_DIR` (etcd v3.5 server/etcdmain/config.go: flags
/// count over variables).
fn data_dir_of(pid: u32) -> Option<PathBuf> {
    let process = Path::new("/proc").join(pid.to_string());
    let words = std::fs::read(process.join("cmdline")).ok()?;
    let words: Vec<String> =
        words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let flag = words.iter().enumerate().find_map(|(at, word)| {
        let rest = word.strip_prefix("--data-dir").or_else(|| word.strip_prefix("-data-dir"))?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value.to_owned()),
            None if rest.is_empty() => words.get(at.checked_add(1)?).cloned(),
            None => None,
        }
    });
    let variable = || {
        let environment = std::fs::read(process.join("environ")).ok()?;
        environment
            .split(|byte| *byte == 0)
            .find_map(|pair| String::from_utf8_lossy(pair).strip_prefix("ETCD_DATA_DIR=").map(str::to_owned))
    };
    flag.or_else(variable).map(|dir| Path::new(&dir).components().collect())
}

/// The unit's user; nothing is root.
fn user(name: &str) -> Observed<User> {
    if name.is_empty() || name == "root" || name == "0" {
        return Observed::Seen(User { name: "root".to_owned(), uid: 0, gids: vec![0] });
    }
    let unknown = |detail: String| Observed::Unknown(Why::Unreadable { detail });
    let found = match name.parse::<u32>() {
        Ok(uid) => nix::unistd::User::from_uid(uid.into()),
        Err(_) => nix::unistd::User::from_name(name),
    };
    match found {
        Ok(Some(user)) => {
            let gids = std::ffi::CString::new(user.name.clone())
                .map_err(|_| nix::errno::Errno::EINVAL)
                .and_then(|name| nix::unistd::getgrouplist(&name, user.gid));
            let gids =
                gids.map_or_else(|_| vec![user.gid.as_raw()], |gids| gids.iter().map(|gid| gid.as_raw()).collect());
            Observed::Seen(User { name: user.name, uid: user.uid.as_raw(), gids })
        }
        Ok(None) => unknown(format!("there is no user {name}")),
        Err(errno) => unknown(format!("user {name}: {errno}")),
    }
}

/// Every directory from the mount's root to the data dir.
fn way(at: &Path, data_dir: &Path) -> Observed<Vec<Owned>> {
    let mut way: Vec<&Path> = data_dir.ancestors().take_while(|dir| dir.starts_with(at)).collect();
    way.reverse();
    let owned = way.into_iter().map(|path| {
        let metadata = std::fs::symlink_metadata(path)?;
        let mode = metadata.mode() & 0o777;
        Ok(Owned { path: path.to_owned(), uid: metadata.uid(), gid: metadata.gid(), mode })
    });
    match owned.collect::<io::Result<Vec<Owned>>>() {
        Ok(owned) => Observed::Seen(owned),
        Err(error) => Observed::Unknown(Why::Unreadable { detail: format!("{}: {error}", data_dir.display()) }),
    }
}

/// The SELinux label; `None` where SELinux is not enabled (`/sys/fs/selinux` is not mounted, selinux(8)).
fn context(path: &Path) -> Option<Observed<String>> {
    if !Path::new("/sys/fs/selinux/enforce").exists() {
        return None;
    }
    let mut value = [0_u8; 512];
    Some(match rustix::fs::lgetxattr(path, "security.selinux", &mut value) {
        Ok(length) => {
            let label = value.get(..length).unwrap_or_default();
            Observed::Seen(String::from_utf8_lossy(label).trim_end_matches('\0').to_owned())
        }
        Err(errno) => {
            Observed::Unknown(Why::Unreadable { detail: format!("{}: {}", path.display(), io::Error::from(errno)) })
        }
    })
}

/// `mode` as the layers merge to; `None` where they cannot be used.
pub fn configured_mode(sources: &config::Sources, name: &GuardName) -> Option<Mode> {
    config::load(sources).ok()?.config.guard(name).map(|guard| guard.mode)
}
