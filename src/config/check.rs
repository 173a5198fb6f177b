//! From the file as written to a validated configuration: defaults, meanings, and what no two guards may share.

use super::place::{Problem, nearest};
use super::written::{Reader, Text, WrittenGuard};
use super::{Config, GuardConfig, Owner, Paths};
use crate::model::{DeviceSpec, FormatPolicy, GuardName, Mode};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

const STATE: &str = "/var/lib/volhold";
const RUN: &str = "/run/volhold";
const DIR_MODE: u32 = 0o700;
/// Options that would undo what volhold relies on, with the reason.
const FORBIDDEN_OPTIONS: &[(&str, &str)] = &[
    ("ro", "etcd has to write"),
    ("noload", "the journal must be replayed before anything is written"),
    ("norecovery", "the journal must be replayed before anything is written"),
    ("remount", "the volume is mounted anew"),
    ("bind", "the volume itself is mounted"),
    ("noauto", "this is no fstab"),
];
/// Longest label of an ext4 filesystem (`s_volume_name`).
const LONGEST_LABEL: usize = 16;

/// Reads the text of a configuration. All mistakes are told, in the order of the text; a text that is no TOML is told as
/// that only.
pub fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    let mut check = Reader { text, problems: Vec::new() };
    let config = check.read().map(|written| {
        let paths = Paths {
            state: check.path(written.state.as_ref(), "paths.state").unwrap_or_else(|| STATE.into()),
            run: check.path(written.run.as_ref(), "paths.run").unwrap_or_else(|| RUN.into()),
        };
        if overlap(&paths.state, &paths.run) {
            let span = written.run.as_ref().or(written.state.as_ref()).map_or(0..0, |path| path.span());
            check.wrong(span, "paths", "state and run must not lie in one another: run dies with the boot");
        }
        let guards: Vec<Checked> = written.guards.iter().filter_map(|guard| check.guard(guard, &paths)).collect();
        check.shared(&guards);
        Config { guards: guards.into_iter().map(|checked| checked.config).collect(), paths }
    });
    check.problems.sort_by_key(|problem| (problem.line, problem.column));
    match config {
        Some(config) if check.problems.is_empty() => Ok(config),
        Some(_) | None => Err(check.problems),
    }
}

/// A guard with the places of what may collide with another's.
struct Checked {
    config: GuardConfig,
    key: String,
    name: Range<usize>,
    device: Range<usize>,
    publish: Range<usize>,
}

impl Reader<'_> {
    /// `None` only after a mistake was told.
    fn guard(&mut self, guard: &WrittenGuard, paths: &Paths) -> Option<Checked> {
        let at = |name: &str| format!("{}.{name}", guard.key);
        let name = self.needed(guard, guard.name.as_ref(), "name").and_then(|name| {
            name.get_ref().parse::<GuardName>().map_err(|wrong| self.wrong(name.span(), &at("name"), wrong)).ok()
        });
        self.one_of(guard.provider.as_ref(), &at("provider"), &[("local", ())]);
        self.one_of(guard.fstype.as_ref(), &at("fstype"), &[("ext4", ())]);
        let modes = [("observe", Mode::Observe), ("enforce", Mode::Enforce)];
        let mode = match &guard.mode {
            Some(mode) if mode.get_ref().starts_with('0') => {
                let hint = "is `observe` or `enforce`; the mode of a directory is `dir_mode`";
                self.wrong(mode.span(), &at("mode"), hint);
                Mode::Observe
            }
            mode => self.one_of(mode.as_ref(), &at("mode"), &modes).unwrap_or(Mode::Observe),
        };
        let formats = [("never", FormatPolicy::Never), ("if-blank", FormatPolicy::IfBlank)];
        let format = self.one_of(guard.format.as_ref(), &at("format"), &formats).unwrap_or(FormatPolicy::Never);
        let fresh =
            self.one_of(guard.fresh.as_ref(), &at("fresh"), &[("allow", true), ("deny", false)]).unwrap_or(false);
        let written_device = self.needed(guard, guard.device.as_ref(), "device");
        let device = written_device.and_then(|device| self.device(device, &at("device")));
        if let (FormatPolicy::IfBlank, Some(DeviceSpec::Uuid(_) | DeviceSpec::Label(_)), Some(written)) =
            (format, &device, &guard.format)
        {
            let why = "cannot be `if-blank` for a device named by what is written on it: name it by path";
            self.wrong(written.span(), &at("format"), why);
        }
        let written_publish = self.needed(guard, guard.publish.as_ref(), "publish");
        let publish = written_publish.and_then(|path| self.publish(path, &at("publish"), paths));
        let data_dir = guard.data_dir.as_ref().and_then(|dir| self.data_dir(dir, &at("data_dir")));
        let owner = guard.owner.as_ref().and_then(|owner| self.owner(owner, &at("owner")));
        let dir_mode =
            guard.dir_mode.as_ref().and_then(|mode| self.dir_mode(mode, &at("dir_mode"))).unwrap_or(DIR_MODE);
        let member = guard.member.as_ref().and_then(|member| self.member(member, &at("member")));
        let peer_url = guard.peer_url.as_ref().and_then(|url| self.peer_url(url, &at("peer_url")));
        let mount_options = self.options(&guard.mount_options, &at("mount_options"));
        Some(Checked {
            config: GuardConfig {
                name: name?,
                mode,
                device: device?,
                fstype: "ext4".to_owned(),
                format,
                publish: publish?,
                data_dir,
                owner,
                dir_mode,
                fresh,
                member,
                peer_url,
                mount_options,
            },
            key: guard.key.clone(),
            name: guard.name.as_ref()?.span(),
            device: written_device?.span(),
            publish: written_publish?.span(),
        })
    }

    fn needed<'g>(&mut self, guard: &WrittenGuard, value: Option<&'g Text>, name: &str) -> Option<&'g Text> {
        let reported = || format!("{}.{name}", guard.key);
        if value.is_none() && !self.problems.iter().any(|problem| problem.key == reported()) {
            self.wrong(guard.span.clone(), &guard.key, format!("`{name}` is missing"));
        }
        value
    }

    fn one_of<T: Copy>(&mut self, value: Option<&Text>, key: &str, known: &[(&str, T)]) -> Option<T> {
        let value = value?;
        if let Some((_, meaning)) = known.iter().find(|(word, _)| word == value.get_ref()) {
            return Some(*meaning);
        }
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        let hint = match nearest(value.get_ref(), &words) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("this version knows {}", words.join(", ")),
        };
        self.wrong(value.span(), key, format!("`{}` is not known here; {hint}", value.get_ref()));
        None
    }

    /// An absolute path without `..`, cleaned of `.` and double slashes.
    fn path(&mut self, value: Option<&Text>, key: &str) -> Option<PathBuf> {
        let value = value?;
        let path: PathBuf = Path::new(value.get_ref()).components().collect();
        let wrong = if !path.is_absolute() {
            "must be an absolute path"
        } else if path.components().any(|part| matches!(part, Component::ParentDir)) {
            "must not hold `..`"
        } else if path.parent().is_none() {
            "cannot be the root directory"
        } else if value.get_ref().chars().any(char::is_control) {
            "holds a control character"
        } else {
            return Some(path);
        };
        self.wrong(value.span(), key, wrong);
        None
    }

    fn publish(&mut self, value: &Text, key: &str, paths: &Paths) -> Option<PathBuf> {
        let path = self.path(Some(value), key)?;
        for (own, name) in [(&paths.state, "state"), (&paths.run, "run")] {
            if overlap(&path, own) {
                let where_ = own.display();
                self.wrong(value.span(), key, format!("and volhold's {name} dir {where_} must not lie in one another"));
            }
        }
        Some(path)
    }

    fn device(&mut self, value: &Text, key: &str) -> Option<DeviceSpec> {
        let text = value.get_ref();
        let wrong = match text.split_once('=') {
            Some(("UUID", uuid)) if uuid.parse::<uuid::Uuid>().is_ok() => {
                return Some(DeviceSpec::Uuid(uuid.to_ascii_lowercase()));
            }
            Some(("UUID", _)) => "after `UUID=` there must be the UUID of a filesystem",
            Some(("LABEL", label)) if !label.is_empty() && label.len() <= LONGEST_LABEL && !label.contains('/') => {
                return Some(DeviceSpec::Label(label.to_owned()));
            }
            Some(("LABEL", _)) => "after `LABEL=` there must be the label of a filesystem, at most 16 bytes",
            Some(("PARTUUID" | "PARTLABEL" | "ID", _)) => {
                "must be a whole disk: an absolute path, `UUID=…` or `LABEL=…`"
            }
            Some(_) | None if text.starts_with('/') => {
                return self.path(Some(value), key).map(DeviceSpec::Path);
            }
            Some(_) | None => "must be an absolute path, `UUID=…` or `LABEL=…`",
        };
        self.wrong(value.span(), key, wrong);
        None
    }

    fn data_dir(&mut self, value: &Text, key: &str) -> Option<String> {
        let path = Path::new(value.get_ref());
        let inside = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if value.get_ref().is_empty() || !inside {
            let wanted = "must be a path below the volume's root, without a leading `/` and without `..`";
            self.wrong(value.span(), key, wanted);
            return None;
        }
        let clean: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        if clean.starts_with(".volhold") || clean.starts_with("lost+found") {
            self.wrong(value.span(), key, "cannot be a directory that is not etcd's");
            return None;
        }
        if clean.file_name().is_some_and(|name| name == "member") {
            let hint = "is the directory that holds `member`, which is what etcd's --data-dir names";
            self.wrong(value.span(), key, hint);
            return None;
        }
        Some(if clean.as_os_str().is_empty() { ".".to_owned() } else { clean.display().to_string() })
    }

    fn owner(&mut self, value: &Text, key: &str) -> Option<Owner> {
        let fits = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$'))
        };
        match value.get_ref().split_once(':') {
            Some((user, group)) if fits(user) && fits(group) => {
                Some(Owner { user: user.to_owned(), group: group.to_owned() })
            }
            Some(_) | None => {
                self.wrong(value.span(), key, "must be `user:group`, by name or number, such as `etcd:etcd`");
                None
            }
        }
    }

    fn dir_mode(&mut self, value: &Text, key: &str) -> Option<u32> {
        match u32::from_str_radix(value.get_ref(), 8) {
            Ok(mode) if mode <= 0o777 && mode & 0o700 == 0o700 => Some(mode),
            Ok(_) | Err(_) => {
                self.wrong(value.span(), key, "must be octal, such as `0700`, and leave the owner all rights");
                None
            }
        }
    }

    fn member(&mut self, value: &Text, key: &str) -> Option<String> {
        if value.get_ref().is_empty() || value.get_ref().chars().any(char::is_control) {
            self.wrong(value.span(), key, "must be the name of this node's etcd member");
            return None;
        }
        Some(value.get_ref().clone())
    }

    fn peer_url(&mut self, value: &Text, key: &str) -> Option<String> {
        let url = value.get_ref();
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        let fits = rest.is_some_and(|rest| {
            !rest.is_empty() && !rest.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',')
        });
        if !fits {
            self.wrong(value.span(), key, "must be one URL such as `https://10.0.1.7:2380`");
            return None;
        }
        Some(url.trim_end_matches('/').to_owned())
    }

    fn options(&mut self, values: &[Text], key: &str) -> Vec<String> {
        for value in values {
            let option = value.get_ref().as_str();
            if option.is_empty() || option.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',') {
                self.wrong(value.span(), key, "must be words with commas between them, as for mount(8)");
            }
            if let Some((_, why)) = FORBIDDEN_OPTIONS.iter().find(|(forbidden, _)| *forbidden == option) {
                self.wrong(value.span(), key, format!("must not hold `{option}`: {why}"));
            }
        }
        values.iter().map(|value| value.get_ref().clone()).collect()
    }

    /// No two guards may have one name, one device, or places in the tree of which one lies in the other.
    fn shared(&mut self, guards: &[Checked]) {
        for (index, one) in guards.iter().enumerate() {
            let at = |name: &str| format!("{}.{name}", one.key);
            for other in guards.iter().take(index) {
                let theirs = &other.config.name;
                if one.config.name == *theirs {
                    self.wrong(one.name.clone(), &at("name"), format!("there is a guard `{theirs}` already"));
                }
                if node(&one.config.device) == node(&other.config.device) {
                    self.wrong(one.device.clone(), &at("device"), format!("is the device of guard `{theirs}` already"));
                }
                if overlap(&one.config.publish, &other.config.publish) {
                    let message = format!("and that of guard `{theirs}` must not lie in one another");
                    self.wrong(one.publish.clone(), &at("publish"), message);
                }
            }
        }
    }
}

/// Where a device's name leads, by the links that udev makes for what is written on it.
fn node(device: &DeviceSpec) -> PathBuf {
    match device {
        DeviceSpec::Path(path) => real(path),
        DeviceSpec::Uuid(uuid) => real(&Path::new("/dev/disk/by-uuid").join(uuid)),
        DeviceSpec::Label(label) => real(&Path::new("/dev/disk/by-label").join(label)),
    }
}

/// One of the two is, or lies in, the other, as written or with links followed.
fn overlap(one: &Path, other: &Path) -> bool {
    let nested = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
    nested(one, other) || nested(&real(one), &real(other))
}

/// The path with its links followed, as far down as it exists.
fn real(path: &Path) -> PathBuf {
    for known in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (known.canonicalize(), path.strip_prefix(known)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}
