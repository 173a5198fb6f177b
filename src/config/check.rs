//! From the merged layers to a validated configuration: defaults, meanings, and what no two guards may share.

use super::merge::{Merged, MergedGuard};
use super::place::{Place, Problem, nearest};
use super::written::{PUBLISH_KEYS, Table, Value};
use super::{AtRunTime, Config, GuardConfig, Http, Metrics, Owner, Paths};
use crate::model::{
    DeviceSpec, EbsSpec, EtcdSource, EtcdVersion, FormatPolicy, Fstype, GuardName, Mode, Publish, PublishDir,
    SnapshotPolicy, TagSpec, VolumeId, names_no_place,
};
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};

pub(super) const STATE: &str = "/var/lib/volhold";
/// `paths.run` unless configured otherwise.
pub const RUN: &str = "/run/volhold";
const DIR_MODE: u32 = 0o700;
/// Options that would undo what volhold relies on, with the reason.
const FORBIDDEN_OPTIONS: &[(&str, &str)] = &[
    ("ro", "etcd has to write"),
    ("noload", "the journal must be replayed before anything is written"),
    ("norecovery", "the journal must be replayed before anything is written"),
    ("nouuid", "a copy of a filesystem that is mounted already must be told, not mounted beside it"),
    ("remount", "the volume is mounted anew"),
    ("bind", "the volume itself is mounted"),
    ("noauto", "this is no fstab"),
];
/// Longest label of an ext4 filesystem (`s_volume_name`).
const LONGEST_LABEL: usize = 16;

/// Validates what the layers say together. `None` only after a mistake was told.
pub(super) fn check(merged: &Merged, problems: &mut Vec<Problem>) -> Option<Config> {
    let told = problems.len();
    let mut check = Check { problems };
    let (state, run) = (merged.value("paths", "state"), merged.value("paths", "run"));
    let paths = Paths {
        state: check.path(state).unwrap_or_else(|| STATE.into()),
        run: check.path(run).unwrap_or_else(|| RUN.into()),
    };
    if overlap(&paths.state, &paths.run) {
        let place = run.or(state).map_or(Place::Default, |path| path.place.clone());
        check.wrong(place, "paths", "state and run must not lie in one another: run dies with the boot");
    }
    let http = check.http(merged);
    let names = merged.names();
    let guards: Vec<Checked> = merged.guards.iter().filter_map(|guard| check.guard(guard, &paths, &names)).collect();
    check.shared(&guards);
    let textfile_dir = check.textfile_dir(merged.value("metrics", "textfile_dir"), &guards);
    let metrics = Metrics { textfile_dir };
    if problems.len() > told {
        return None;
    }
    Some(Config { guards: guards.into_iter().map(|checked| checked.config).collect(), paths, http, metrics })
}

/// A guard with what may collide with another's, as written.
struct Checked<'m> {
    config: GuardConfig,
    device: &'m Value,
    publish: &'m Value,
}

/// `provider`
#[derive(Clone, Copy)]
enum Source {
    Local,
    Ebs,
}

/// Collects mistakes.
struct Check<'p> {
    problems: &'p mut Vec<Problem>,
}

impl Check<'_> {
    fn wrong(&mut self, place: Place, key: &str, message: impl Into<String>) {
        self.problems.push(Problem { place, key: key.to_owned(), message: message.into() });
    }

    fn wrong_value(&mut self, value: &Value, message: impl Into<String>) {
        self.wrong(value.place.clone(), &value.key, message);
    }

    fn http(&mut self, merged: &Merged) -> Http {
        let (listen, group) = (merged.value("http", "listen"), merged.value("http", "group"));
        if let (Some(listen), Some(_group)) = (listen, group) {
            let why = "cannot be used together with `group`: over TCP every user of this machine reads the status";
            self.wrong_value(listen, why);
        }
        Http { listen: listen.and_then(|listen| self.listen(listen)), group: group.and_then(|group| self.group(group)) }
    }

    /// Numbers only: a name means what some resolver says when the agent starts.
    fn listen(&mut self, value: &Value) -> Option<SocketAddr> {
        let wrong = match value.text().parse::<SocketAddr>() {
            Ok(address) if !address.ip().is_loopback() => {
                "must be on loopback (127.0.0.1 or [::1]): anybody who reaches it reads the status"
            }
            Ok(address) if address.port() == 0 => "needs a port that others can know",
            Ok(address) => return Some(address),
            Err(_) => "must be an address and a port in numbers, such as `127.0.0.1:9441`",
        };
        self.wrong_value(value, wrong);
        None
    }

    /// Not where a volume is published: below a mountpoint it would be in the way of the mount, on the volume among the data.
    fn textfile_dir(&mut self, value: Option<&Value>, guards: &[Checked<'_>]) -> Option<PathBuf> {
        let path = self.path(value)?;
        for guard in guards.iter().filter(|guard| {
            guard.config.publish.entries().iter().any(|dir| real(&path).starts_with(real(Path::new(&dir.at))))
        }) {
            if let Some(value) = value {
                self.wrong_value(value, format!("must not lie on the volume of guard `{}`", guard.config.name));
            }
        }
        Some(path)
    }

    fn group(&mut self, value: &Value) -> Option<String> {
        if !is_account(value.text()) {
            self.wrong_value(value, "must be the name or number of a group");
            return None;
        }
        Some(value.text().to_owned())
    }

    /// `None` only after a mistake was told.
    fn guard<'m>(&mut self, guard: &'m MergedGuard, paths: &Paths, names: &[String]) -> Option<Checked<'m>> {
        let value = |name: &str| guard.values.get(name);
        let name = self
            .needed(guard, "name", names)
            .and_then(|name| name.text().parse::<GuardName>().map_err(|wrong| self.wrong_value(name, wrong)).ok());
        let provider = match value("provider") {
            None => Some(Source::Local),
            written => self.one_of(written, &[("local", Source::Local), ("ebs", Source::Ebs)]),
        };
        let modes = [("observe", Mode::Observe), ("enforce", Mode::Enforce)];
        let mode = match value("mode") {
            Some(mode) if mode.text().starts_with('0') => {
                self.wrong_value(mode, "is `observe` or `enforce`; the mode of a directory is `dir_mode`");
                Mode::Observe
            }
            mode => self.one_of(mode, &modes).unwrap_or(Mode::Observe),
        };
        let fstypes = [Fstype::Ext4, Fstype::Xfs].map(|fstype| (fstype.as_str(), fstype));
        let fstype = self.one_of(value("fstype"), &fstypes).unwrap_or(Fstype::Ext4);
        let formats = [("never", FormatPolicy::Never), ("if-blank", FormatPolicy::IfBlank)];
        let format = self.one_of(value("format"), &formats).unwrap_or(FormatPolicy::Never);
        let fresh = self.one_of(value("fresh"), &[("allow", true), ("deny", false)]).unwrap_or(false);
        let policies = [SnapshotPolicy::Off, SnapshotPolicy::BestEffort, SnapshotPolicy::Required];
        let snapshot = self.one_of(value("snapshot"), &policies.map(|policy| (policy.as_str(), policy)));
        let snapshot = snapshot.unwrap_or(SnapshotPolicy::Off);
        if let (Some(Source::Local), SnapshotPolicy::BestEffort | SnapshotPolicy::Required, Some(written)) =
            (&provider, snapshot, value("snapshot"))
        {
            self.wrong_value(
                written,
                "needs `provider = \"ebs\"`: nobody takes a snapshot of a device of this machine",
            );
        }
        let grow = self.one_of(value("grow"), &[("never", false), ("online", true)]).unwrap_or(false);
        let restart = self.one_of(value("restart"), &[("never", false), ("etcd-manager", true)]).unwrap_or(false);
        let at_run_time = self.at_run_time(value("at_run_time"), value("stop_units"));
        let witness = self.one_of(value("witness"), &[("write", true), ("read", false)]).unwrap_or(true);
        let (written_device, device) = match provider {
            Some(Source::Local) => self.local_device(guard, names),
            Some(Source::Ebs) => self.ebs_volume(guard),
            None => (None, None),
        };
        if let (FormatPolicy::IfBlank, Some(DeviceSpec::Uuid(_) | DeviceSpec::Label(_)), Some(written)) =
            (format, &device, value("format"))
        {
            let why = "cannot be `if-blank` for a device named by what is written on it: name it by path";
            self.wrong_value(written, why);
        }
        let written_publish = self.needed(guard, "publish", names);
        let publish = written_publish.and_then(|publish| self.publish(publish, paths));
        if let (Some(publish), Some(written)) = (&publish, written_publish)
            && !matches!(device, Some(DeviceSpec::Ebs(_)))
            && publish.paths().any(names_no_place)
        {
            self.wrong_value(written, "can hold `{volume}` only with `provider = \"ebs\"`");
        }
        let data_dir = value("data_dir").and_then(|dir| self.data_dir(dir));
        if let (Some(publish), Some(dir), Some(written)) = (&publish, &data_dir, value("data_dir"))
            && publish.entry_of(dir).is_none()
        {
            let published = publish.sources().join(", ");
            self.wrong_value(written, format!("must lie in a directory that is published: {published}"));
        }
        let owner = value("owner").and_then(|owner| self.owner(owner));
        let dir_mode = value("dir_mode").and_then(|mode| self.dir_mode(mode)).unwrap_or(DIR_MODE);
        let member = value("member").and_then(|member| self.member(member));
        let peer_url = value("peer_url").and_then(|url| self.peer_url(url));
        let etcd = value("etcd").and_then(|etcd| self.etcd(etcd));
        let mount_options = value("mount_options").map(|options| self.options(options)).unwrap_or_default();
        Some(Checked {
            config: GuardConfig {
                name: name?,
                mode,
                device: device?,
                fstype,
                format,
                publish: publish?,
                data_dir,
                owner,
                dir_mode,
                fresh,
                member,
                peer_url,
                mount_options,
                witness,
                snapshot,
                grow,
                restart,
                etcd,
                at_run_time,
            },
            device: written_device?,
            publish: written_publish?,
        })
    }

    /// A version, or an absolute path: of a manifest where it ends as one, else of a program.
    fn etcd(&mut self, value: &Value) -> Option<EtcdSource> {
        if !value.text().contains('/') {
            return match value.text().parse::<EtcdVersion>() {
                Ok(version) => Some(EtcdSource::Version(version)),
                Err(wrong) => {
                    self.wrong_value(value, format!("{wrong}; or give the absolute path of a program or a manifest"));
                    None
                }
            };
        }
        let path = self.path(Some(value))?;
        let manifest = path.extension().is_some_and(|ending| {
            ["yaml", "yml", "json", "manifest"].iter().any(|known| ending.eq_ignore_ascii_case(known))
        });
        Some(if manifest { EtcdSource::Manifest(path) } else { EtcdSource::Binary(path) })
    }

    fn needed<'m>(&mut self, guard: &'m MergedGuard, name: &str, names: &[String]) -> Option<&'m Value> {
        let value = guard.values.get(name);
        let reported = || format!("{}.{name}", guard.key);
        if value.is_none() && !self.problems.iter().any(|problem| problem.key == reported()) {
            // A later layer that misspells a guard's name adds a guard, of which nearly everything is missing.
            let others: Vec<&str> = names
                .iter()
                .map(String::as_str)
                .filter(|other| Some(*other) != guard.name().map(Value::text))
                .collect();
            let meant = guard.name().and_then(|own| nearest(own.text(), &others));
            let hint = meant.map_or_else(String::new, |other| format!("; did you mean guard `{other}`?"));
            self.wrong(guard.place.clone(), &guard.key, format!("`{name}` is missing{hint}"));
        }
        value
    }

    fn one_of<T: Copy>(&mut self, value: Option<&Value>, known: &[(&str, T)]) -> Option<T> {
        let value = value?;
        if let Some((_, meaning)) = known.iter().find(|(word, _)| *word == value.text()) {
            return Some(*meaning);
        }
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        let hint = match nearest(value.text(), &words) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("this version knows {}", words.join(", ")),
        };
        self.wrong_value(value, format!("`{}` is not known here; {hint}", value.text()));
        None
    }

    /// An absolute path without `..`, cleaned of `.` and double slashes.
    fn path(&mut self, value: Option<&Value>) -> Option<PathBuf> {
        let value = value?;
        let path: PathBuf = Path::new(value.text()).components().collect();
        let wrong = if !path.is_absolute() {
            "must be an absolute path"
        } else if path.components().any(|part| matches!(part, Component::ParentDir)) {
            "must not hold `..`"
        } else if path.parent().is_none() {
            "cannot be the root directory"
        } else if value.text().chars().any(char::is_control) {
            "holds a control character"
        } else {
            return Some(path);
        };
        self.wrong_value(value, wrong);
        None
    }

    /// One path for the whole volume, or a list of directories.
    fn publish(&mut self, value: &Value, paths: &Paths) -> Option<Publish> {
        let Some(tables) = &value.tables else { return self.publish_path(value, paths).map(Publish::whole) };
        if tables.is_empty() {
            // What is in it instead of tables was told.
            if !self.problems.iter().any(|problem| problem.key.starts_with(&value.key)) {
                self.wrong_value(value, "must name at least one directory, or be the path for the whole volume");
            }
            return None;
        }
        let told = self.problems.len();
        let mut read: Vec<(&Table, PublishDir)> = Vec::new();
        for table in tables {
            for missing in PUBLISH_KEYS.iter().filter(|key| !table.values.contains_key(*key)) {
                // One of the wrong kind was told, and is not missing.
                let key = format!("{}.{missing}", table.key);
                if !self.problems.iter().any(|problem| problem.key == key) {
                    self.wrong(table.place.clone(), &table.key, format!("`{missing}` is missing"));
                }
            }
            let from = table.values.get("from").and_then(|from| self.publish_from(from));
            let at = table.values.get("at").and_then(|at| self.publish_path(at, paths));
            let (Some(from), Some(at)) = (from, at) else { continue };
            for (_, other) in &read {
                let nested = |one: &str, other: &str| Path::new(one).starts_with(other);
                if nested(&from, &other.from) || nested(&other.from, &from) {
                    let message = format!("and `{}` must not lie in one another: each is published once", other.from);
                    self.wrong_at(table, "from", message);
                }
                if overlap(&at, &other.at) {
                    let message = format!("and {}, of the same guard, must not lie in one another", other.at.display());
                    self.wrong_at(table, "at", message);
                }
            }
            read.push((table, PublishDir { from, at }));
        }
        if self.problems.len() > told {
            return None;
        }
        Publish::directories(read.into_iter().map(|(_, entry)| entry).collect())
    }

    fn wrong_at(&mut self, table: &Table, key: &str, message: String) {
        if let Some(value) = table.values.get(key) {
            self.wrong_value(value, message);
        }
    }

    /// A directory below the volume's root, never the root itself: `.volhold` stays outside of what is published.
    fn publish_from(&mut self, value: &Value) -> Option<String> {
        let path = Path::new(value.text());
        let inside = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let clean: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let wrong = if path.is_absolute() || !inside {
            "must be a path below the volume's root, without a leading `/` and without `..`"
        } else if clean.as_os_str().is_empty() {
            "must be a directory below the volume's root; for the whole volume write `publish = \"/path\"`"
        } else if value.text().chars().any(char::is_control) {
            "holds a control character"
        } else if clean.starts_with(".volhold") || clean.starts_with("lost+found") {
            "cannot be a directory that is not etcd's"
        } else {
            return Some(clean.display().to_string());
        };
        self.wrong_value(value, wrong);
        None
    }

    fn publish_path(&mut self, value: &Value, paths: &Paths) -> Option<PathBuf> {
        let path = self.path(Some(value))?;
        for (own, name) in [(&paths.state, "state"), (&paths.run, "run")] {
            if overlap(&path, own) {
                let where_ = own.display();
                self.wrong_value(value, format!("and volhold's {name} dir {where_} must not lie in one another"));
            }
        }
        Some(path)
    }

    fn local_device<'m>(
        &mut self,
        guard: &'m MergedGuard,
        names: &[String],
    ) -> (Option<&'m Value>, Option<DeviceSpec>) {
        for foreign in ["volume_id", "volume_tags"].iter().filter_map(|key| guard.values.get(*key)) {
            self.wrong_value(foreign, "names a volume of EC2: that needs `provider = \"ebs\"`");
        }
        let written = self.needed(guard, "device", names);
        (written, written.and_then(|device| self.device(device)))
    }

    /// By id or by tags, never by both: which one would count?
    fn ebs_volume<'m>(&mut self, guard: &'m MergedGuard) -> (Option<&'m Value>, Option<DeviceSpec>) {
        if let Some(device) = guard.values.get("device") {
            self.wrong_value(
                device,
                "is for `provider = \"local\"`; a volume of EC2 is named by `volume_id` or `volume_tags`",
            );
        }
        let (id, tags) = (guard.values.get("volume_id"), guard.values.get("volume_tags"));
        match (id, tags) {
            (Some(id), None) => {
                let read = VolumeId::ebs(id.text());
                if read.is_none() {
                    self.wrong_value(id, "must be the id of an EBS volume, such as `vol-0123456789abcdef0`");
                }
                (Some(id), read.map(|id| DeviceSpec::Ebs(EbsSpec::Id(id))))
            }
            (None, Some(tags)) => (Some(tags), self.volume_tags(tags)),
            (Some(_), Some(tags)) => {
                self.wrong_value(tags, "cannot be given together with `volume_id`, which names the volume already");
                (None, None)
            }
            (None, None) => {
                let wanted = "`volume_id` or `volume_tags` is missing, of which `provider = \"ebs\"` needs one";
                self.wrong(guard.place.clone(), &guard.key, wanted);
                (None, None)
            }
        }
    }

    fn volume_tags(&mut self, value: &Value) -> Option<DeviceSpec> {
        let mut tags: Vec<TagSpec> = Vec::new();
        if value.texts.is_empty() {
            self.wrong_value(value, "must name at least one tag, as `KEY` or `KEY=VALUE`");
        }
        for (text, place) in &value.texts {
            let (key, wanted) = match text.split_once('=') {
                Some((key, wanted)) => (key, Some(wanted.to_owned())),
                None => (text.as_str(), None),
            };
            // Limits of EC2: 127 and 255 characters.
            let fits = |text: &str, most: usize| text.chars().count() <= most && !text.chars().any(char::is_control);
            if key.is_empty() || !fits(key, 127) || !wanted.as_deref().is_none_or(|wanted| fits(wanted, 255)) {
                self.wrong(place.clone(), &value.key, "must be tags, each `KEY` or `KEY=VALUE`, as EC2 has them");
                continue;
            }
            if tags.iter().any(|other| other.key == key) {
                self.wrong(place.clone(), &value.key, format!("names the tag `{key}` twice"));
                continue;
            }
            tags.push(TagSpec { key: key.to_owned(), value: wanted });
        }
        tags.sort();
        (!tags.is_empty()).then_some(DeviceSpec::Ebs(EbsSpec::Tags(tags)))
    }

    fn device(&mut self, value: &Value) -> Option<DeviceSpec> {
        let text = value.text();
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
                return self.path(Some(value)).map(DeviceSpec::Path);
            }
            Some(_) | None => "must be an absolute path, `UUID=…` or `LABEL=…`",
        };
        self.wrong_value(value, wrong);
        None
    }

    fn data_dir(&mut self, value: &Value) -> Option<String> {
        let path = Path::new(value.text());
        let inside = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if value.text().is_empty() || !inside {
            let wanted = "must be a path below the volume's root, without a leading `/` and without `..`";
            self.wrong_value(value, wanted);
            return None;
        }
        let clean: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        if clean.starts_with(".volhold") || clean.starts_with("lost+found") {
            self.wrong_value(value, "cannot be a directory that is not etcd's");
            return None;
        }
        if clean.file_name().is_some_and(|name| name == "member") {
            let hint = "is the directory that holds `member`, which is what etcd's --data-dir names";
            self.wrong_value(value, hint);
            return None;
        }
        Some(if clean.as_os_str().is_empty() { ".".to_owned() } else { clean.display().to_string() })
    }

    fn owner(&mut self, value: &Value) -> Option<Owner> {
        match value.text().split_once(':') {
            Some((user, group)) if is_account(user) && is_account(group) => {
                Some(Owner { user: user.to_owned(), group: group.to_owned() })
            }
            Some(_) | None => {
                self.wrong_value(value, "must be `user:group`, by name or number, such as `etcd:etcd`");
                None
            }
        }
    }

    fn dir_mode(&mut self, value: &Value) -> Option<u32> {
        match u32::from_str_radix(value.text(), 8) {
            Ok(mode) if mode <= 0o777 && mode & 0o700 == 0o700 => Some(mode),
            Ok(_) | Err(_) => {
                self.wrong_value(value, "must be octal, such as `0700`, and leave the owner all rights");
                None
            }
        }
    }

    fn member(&mut self, value: &Value) -> Option<String> {
        if value.text().is_empty() || value.text().chars().any(char::is_control) {
            self.wrong_value(value, "must be the name of this node's etcd member");
            return None;
        }
        Some(value.text().to_owned())
    }

    fn peer_url(&mut self, value: &Value) -> Option<String> {
        let url = value.text();
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        let fits = rest.is_some_and(|rest| {
            !rest.is_empty() && !rest.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',')
        });
        if !fits {
            self.wrong_value(value, "must be one URL such as `https://10.0.1.7:2380`");
            return None;
        }
        Some(url.trim_end_matches('/').to_owned())
    }

    fn at_run_time(&mut self, policy: Option<&Value>, units: Option<&Value>) -> AtRunTime {
        let known = [AtRunTime::Tell, AtRunTime::Freeze, AtRunTime::Stop(Vec::new())];
        let words: Vec<(&str, usize)> = known.iter().map(AtRunTime::as_str).zip(0..).collect();
        let which = self.one_of(policy, &words).and_then(|index| known.get(index).cloned()).unwrap_or(AtRunTime::Tell);
        match (which, policy, units) {
            (AtRunTime::Stop(_), _, Some(units)) if !units.texts.is_empty() => {
                for (unit, place) in &units.texts {
                    // systemd.unit(5); a word that begins with a dash would be an option of systemctl.
                    let fits = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
                    if unit.starts_with('-') || !unit.contains('.') || !unit.chars().all(fits) {
                        self.wrong(place.clone(), &units.key, "must be names of units, such as `etcd.service`");
                    }
                }
                AtRunTime::Stop(units.texts.iter().map(|(unit, _)| unit.clone()).collect())
            }
            (AtRunTime::Stop(units), Some(policy), _) => {
                self.wrong_value(policy, "needs `stop_units`: which units of systemd are to be stopped");
                AtRunTime::Stop(units)
            }
            (which, _, Some(units)) => {
                self.wrong_value(units, "counts with `at_run_time = \"stop\"` only");
                which
            }
            (which, _, None) => which,
        }
    }

    fn options(&mut self, value: &Value) -> Vec<String> {
        for (option, place) in &value.texts {
            let option = option.as_str();
            if option.is_empty() || option.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',') {
                self.wrong(place.clone(), &value.key, "must be words with commas between them, as for mount(8)");
            }
            if let Some((_, why)) = FORBIDDEN_OPTIONS.iter().find(|(forbidden, _)| *forbidden == option) {
                self.wrong(place.clone(), &value.key, format!("must not hold `{option}`: {why}"));
            }
        }
        value.texts.iter().map(|(option, _)| option.clone()).collect()
    }

    /// No two guards may have one device, or places in the tree of which one lies in the other.
    fn shared(&mut self, guards: &[Checked<'_>]) {
        for (index, one) in guards.iter().enumerate() {
            for other in guards.iter().take(index) {
                let theirs = &other.config.name;
                if node(&one.config.device) == node(&other.config.device) {
                    self.wrong_value(one.device, format!("is the device of guard `{theirs}` already"));
                }
                // One place for every volume is another one for each.
                let met = |at: &Path| {
                    other
                        .config
                        .publish
                        .paths()
                        .any(|theirs| overlap(at, theirs) && !(at == theirs && names_no_place(at)))
                };
                for (index, _) in one.config.publish.paths().enumerate().filter(|(_, at)| met(at)) {
                    let tables = one.publish.tables.iter().flatten();
                    let value = tables.filter_map(|table| table.values.get("at")).nth(index).unwrap_or(one.publish);
                    let message = format!("and that of guard `{theirs}` must not lie in one another");
                    self.wrong_value(value, message);
                }
            }
        }
    }
}

/// May be the name or number of a user or group.
fn is_account(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$'))
}

/// Where a device's name leads, by the links that udev makes for what is written on it.
fn node(device: &DeviceSpec) -> PathBuf {
    match device {
        DeviceSpec::Path(path) => real(path),
        DeviceSpec::Uuid(uuid) => real(&Path::new("/dev/disk/by-uuid").join(uuid)),
        DeviceSpec::Label(label) => real(&Path::new("/dev/disk/by-label").join(label)),
        DeviceSpec::Ebs(_) => PathBuf::from(device.words()),
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
