//! Whoever else would mount a guarded volume, or something in its place: lines of `/etc/fstab`, `.mount` and `.automount`
//! units. Two mounters are a boot failure: the one that comes second finds the device claimed or the path taken.
//!
//! Formats: fstab(5), systemd.mount(5), systemd.automount(5), drop-ins as systemd.unit(5) has them. What systemd makes of fstab
//! (`/run/systemd/generator`) is not looked at: the line says it. autofs's maps are not looked at either.

use super::files::{FileError, Root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Directories of unit files, first over later (systemd.unit(5)). Transient and generated units come from elsewhere.
const UNIT_DIRS: &[&str] = &[
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The volume and its place, by every name that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// Where it is published, with links and without.
    pub publish: Vec<PathBuf>,
    /// The node and all links to it.
    pub nodes: Vec<PathBuf>,
    /// Of the filesystem.
    pub uuids: Vec<String>,
    pub labels: Vec<String>,
}

/// One that would mount it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounter {
    /// `/etc/fstab:7`, or the unit's file.
    pub place: String,
    /// The line, or what the unit mounts where.
    pub text: String,
    /// What a person has to do.
    pub remedy: String,
}

impl Target {
    fn is_source(&self, spec: &str) -> bool {
        let (tag, value) = match spec.split_once('=') {
            Some((tag, value)) if !spec.starts_with('/') => (tag, value.trim_matches(['"', '\''])),
            Some(_) | None => return self.is_node(Path::new(spec)),
        };
        let known = |names: &[String]| names.iter().any(|name| name.eq_ignore_ascii_case(value));
        match tag.to_ascii_uppercase().as_str() {
            "UUID" => known(&self.uuids) || self.is_node(&Path::new("/dev/disk/by-uuid").join(value)),
            "LABEL" => self.labels.iter().any(|label| label == value),
            "PARTUUID" => self.is_node(&Path::new("/dev/disk/by-partuuid").join(value)),
            "PARTLABEL" => self.is_node(&Path::new("/dev/disk/by-partlabel").join(value)),
            "ID" => self.is_node(&Path::new("/dev/disk/by-id").join(value)),
            _ => false,
        }
    }

    fn is_node(&self, path: &Path) -> bool {
        let path = tidy(path);
        self.nodes.iter().any(|node| tidy(node) == path)
    }

    fn is_place(&self, path: &Path) -> bool {
        let path = tidy(path);
        self.publish.iter().any(|publish| tidy(publish) == path)
    }
}

/// Without double slashes, dots, and a slash at the end.
fn tidy(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Everybody who would mount the target, on the system below this root.
pub fn find(root: &Root, target: &Target) -> Result<Vec<Mounter>, FileError> {
    let mut found = Vec::new();
    let fstab = Path::new("/etc/fstab");
    if let Some(text) = root.read(fstab)? {
        found.extend(in_fstab(&root.outside(fstab), &text, target));
    }
    for name in unit_names(root)? {
        found.extend(in_unit(&name, &texts_of(root, &name)?, target));
    }
    Ok(found)
}

/// Every mount and automount unit of which a file says something, in the order of the directories.
fn unit_names(root: &Root) -> Result<Vec<String>, FileError> {
    let mut names: Vec<String> = Vec::new();
    for directory in UNIT_DIRS {
        for name in root.list(Path::new(directory))? {
            let unit = name.strip_suffix(".d").unwrap_or(&name);
            let (stem, kind) = unit.rsplit_once('.').unwrap_or_default();
            // `srv-.mount.d` holds drop-ins for every unit whose name begins so, and is no unit's.
            let is_unit = ["mount", "automount"].contains(&kind) && !stem.ends_with('-');
            if is_unit && !names.iter().any(|known| known == unit) {
                names.push(unit.to_owned());
            }
        }
    }
    Ok(names)
}

/// The unit's file and its drop-ins as systemd reads them, a later one over an earlier one. Nothing where the unit is masked: by
/// a link to /dev/null, or an empty file. Without a file of its own a unit may come from fstab, and have drop-ins all the same.
fn texts_of(root: &Root, name: &str) -> Result<Vec<(PathBuf, String)>, FileError> {
    let mut texts = Vec::new();
    for directory in UNIT_DIRS {
        if !root.list(Path::new(directory))?.iter().any(|other| other == name) {
            continue;
        }
        let path = Path::new(directory).join(name);
        match root.read(&path)?.filter(|text| !text.is_empty()) {
            Some(text) => texts.push((root.outside(&path), text)),
            None => return Ok(Vec::new()),
        }
        break;
    }
    // Of several with the same name the first directory's counts; they are read in the order of their names (systemd.unit(5)).
    let mut drop_ins: BTreeMap<String, PathBuf> = BTreeMap::new();
    for of in drop_in_dirs(name) {
        for directory in UNIT_DIRS {
            let directory = Path::new(directory).join(&of);
            for file in root.list(&directory)?.into_iter().filter(|file| file.ends_with(".conf")) {
                drop_ins.entry(file.clone()).or_insert_with(|| directory.join(file));
            }
        }
    }
    for path in drop_ins.into_values() {
        if let Some(text) = root.read(&path)? {
            texts.push((root.outside(&path), text));
        }
    }
    Ok(texts)
}

/// `var-lib-etcd.mount.d`, `var-lib-.mount.d`, `var-.mount.d`, `mount.d`.
fn drop_in_dirs(name: &str) -> Vec<String> {
    let (stem, kind) = name.rsplit_once('.').unwrap_or((name, ""));
    let mut dirs = vec![format!("{name}.d")];
    let dashes = stem.char_indices().rev().filter(|(at, letter)| *letter == '-' && *at > 0);
    dirs.extend(dashes.filter_map(|(at, _)| stem.get(..=at)).map(|prefix| format!("{prefix}.{kind}.d")));
    dirs.push(format!("{kind}.d"));
    dirs
}

/// Lines that name the device or the path.
pub fn in_fstab(path: &Path, text: &str, target: &Target) -> Vec<Mounter> {
    let mut found = Vec::new();
    for (number, line) in (1_usize..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut fields = line.split_ascii_whitespace().map(unescape);
        let (Some(source), Some(at)) = (fields.next(), fields.next()) else { continue };
        if target.is_source(&source) || target.is_place(Path::new(&at)) {
            found.push(Mounter {
                place: format!("{}:{number}", path.display()),
                text: line.to_owned(),
                remedy: format!("remove line {number} of {}, then: systemctl daemon-reload", path.display()),
            });
        }
    }
    found
}

/// What a key is set to, and by which file.
type Said<'a> = (&'a Path, String);

/// A unit that mounts the device, or anything at the path.
fn in_unit(name: &str, texts: &[(PathBuf, String)], target: &Target) -> Option<Mounter> {
    let (mut source, mut at): (Option<Said<'_>>, Option<Said<'_>>) = (None, None);
    for (path, text) in texts {
        for line in text.lines().map(str::trim) {
            if let Some((key, value)) = line.split_once('=') {
                let value = (path.as_path(), value.trim().trim_matches('"').to_owned());
                match key.trim() {
                    "What" => source = Some(value),
                    "Where" => at = Some(value),
                    _ => {}
                }
            }
        }
    }
    let by_source = source.as_ref().filter(|(_, what)| !what.is_empty() && target.is_source(what));
    let by_place = at.as_ref().filter(|(_, place)| !place.is_empty() && target.is_place(Path::new(place)));
    let (path, _) = by_source.or(by_place)?;
    let said = |key: &str, value: &Option<Said<'_>>| {
        value.as_ref().filter(|(_, value)| !value.is_empty()).map(|(_, value)| format!("{key}={value}"))
    };
    let said: Vec<String> = [said("What", &source), said("Where", &at)].into_iter().flatten().collect();
    Some(Mounter {
        place: path.display().to_string(),
        text: said.join(" "),
        // Stopping it would unmount a volume that is in use; a mask takes effect at the next boot.
        remedy: format!("systemctl mask {name} (or remove {}, then systemctl daemon-reload)", path.display()),
    })
}

/// Blanks and backslashes are written in octal (fstab(5)).
fn unescape(field: &str) -> String {
    String::from_utf8_lossy(&crate::device::mountinfo::unescape(field.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn target() -> Target {
        Target {
            publish: vec!["/var/lib/etcd".into()],
            nodes: vec!["/dev/nvme1n1".into(), "/dev/disk/by-id/nvme-x".into(), "/dev/disk/by-partuuid/7".into()],
            uuids: vec!["aaaaaaaa-0000-0000-0000-000000000001".into()],
            labels: vec!["etcd-data".into()],
        }
    }

    fn hits(line: &str) -> bool {
        !in_fstab(Path::new("/etc/fstab"), line, &target()).is_empty()
    }

    #[test]
    fn a_line_is_found_by_device_uuid_label_and_path() {
        for line in [
            "/dev/nvme1n1 /mnt/x ext4 defaults 0 2",
            "/dev//nvme1n1\t/mnt/x ext4 noauto",
            "/dev/disk/by-id/nvme-x /mnt/x ext4",
            "UUID=AAAAAAAA-0000-0000-0000-000000000001 /mnt/x ext4",
            "UUID=\"aaaaaaaa-0000-0000-0000-000000000001\" /mnt/x ext4",
            "LABEL=etcd-data /mnt/x ext4",
            "PARTUUID=7 /mnt/x ext4",
            "  tmpfs /var/lib/etcd tmpfs",
            "tmpfs /var/lib/etcd/ tmpfs",
            "/dev/nvme1n1 none swap sw",
        ] {
            assert!(hits(line), "{line}");
        }
    }

    #[test]
    fn what_mounts_something_else_elsewhere_is_none_of_ours() {
        for line in [
            "",
            "# /dev/nvme1n1 /var/lib/etcd ext4",
            "/dev/nvme0n1p1 / ext4 defaults 0 1",
            "LABEL=ETCD-DATA /mnt/x ext4",
            "UUID=bbbbbbbb-0000-0000-0000-000000000001 /var/lib/etcd2 ext4",
            "tmpfs /var/lib tmpfs",
            "/var/lib/etcd",
        ] {
            assert!(!hits(line), "{line}");
        }
    }

    #[test]
    fn the_line_is_named_and_a_path_with_blanks_is_understood() {
        let target = Target { publish: vec!["/mnt/a b".into()], ..Target::default() };
        let text = "# x\n\n/dev/sdz /mnt/a\\040b ext4 defaults 0 0\n";
        let found = in_fstab(Path::new("/etc/fstab"), text, &target);
        assert_eq!((found.len(), found[0].place.as_str()), (1, "/etc/fstab:3"));
        assert_eq!(found[0].text, "/dev/sdz /mnt/a\\040b ext4 defaults 0 0");
        assert!(found[0].remedy.starts_with("remove line 3 of /etc/fstab"));
    }

    #[test]
    fn mount_and_automount_units_are_found_and_a_mask_hides_them() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("usr/lib/systemd/system/var-lib-etcd.mount", "[Mount]\nWhat=/dev/xvdf\nWhere=/var/lib/etcd\n");
        put("usr/lib/systemd/system/mnt-x.mount", "[Mount]\nWhat = /dev/nvme1n1\nWhere=/mnt/x\n");
        put("etc/systemd/system/var-lib-etcd.automount", "[Automount]\nWhere=/var/lib/etcd\n");
        put("etc/systemd/system/mnt-y.mount", "[Mount]\nWhat=/dev/sdy\nWhere=/mnt/y\n");
        let root = Root::open(dir.path()).unwrap();
        let names =
            |found: Vec<Mounter>| found.into_iter().map(|m| m.remedy[15..].split(' ').next().unwrap().to_owned());
        let found: Vec<String> = names(find(&root, &target()).unwrap()).collect();
        assert_eq!(found, ["var-lib-etcd.automount", "mnt-x.mount", "var-lib-etcd.mount"]);
        std::os::unix::fs::symlink("/dev/null", dir.path().join("etc/systemd/system/var-lib-etcd.mount")).unwrap();
        let found: Vec<String> = names(find(&root, &target()).unwrap()).collect();
        assert_eq!(found, ["var-lib-etcd.automount", "mnt-x.mount"]);
    }
    #[test]
    fn a_drop_in_of_a_mount_unit_counts_as_systemd_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = Root::open(dir.path()).unwrap();
        let places = || -> Vec<String> {
            let found = find(&root, &target()).unwrap();
            found.into_iter().map(|m| m.place.replace(&dir.path().display().to_string(), "")).collect()
        };
        put("usr/lib/systemd/system/mnt-x.mount", "[Mount]\nWhat=/dev/sdx\nWhere=/mnt/x\n");
        assert_eq!(places(), [""; 0]);
        // It turns another unit to the volume.
        put("etc/systemd/system/mnt-x.mount.d/what.conf", "[Mount]\nWhat=/dev/nvme1n1\n");
        assert_eq!(places(), ["/etc/systemd/system/mnt-x.mount.d/what.conf"]);
        let found = find(&root, &target()).unwrap();
        assert_eq!(found[0].text, "What=/dev/nvme1n1 Where=/mnt/x");
        assert!(found[0].remedy.starts_with("systemctl mask mnt-x.mount (or remove "), "{}", found[0].remedy);
        // A later name counts over it; a file of the same name nearer to the administrator hides one.
        put("run/systemd/system/mnt-x.mount.d/zz.conf", "[Mount]\nWhat=/dev/sdy\n");
        assert_eq!(places(), [""; 0]);
        put("etc/systemd/system/mnt-x.mount.d/zz.conf", "");
        assert_eq!(places(), ["/etc/systemd/system/mnt-x.mount.d/what.conf"]);
        put("etc/systemd/system/mnt-x.mount.d/zz", "[Mount]\nWhat=/dev/sdy\n");
        assert_eq!(places(), ["/etc/systemd/system/mnt-x.mount.d/what.conf"]);
        // Nothing of a masked unit is read.
        std::os::unix::fs::symlink("/dev/null", dir.path().join("etc/systemd/system/mnt-x.mount")).unwrap();
        assert_eq!(places(), [""; 0]);
        // The unit itself comes from fstab; its line names another disk.
        put("etc/systemd/system/mnt-f.mount.d/x.conf", "[Mount]\nWhat=/dev/disk/by-id/nvme-x\n");
        put("usr/lib/systemd/system/srv-.automount.d/y.conf", "[Automount]\nWhere=/var/lib/etcd\n");
        put("usr/lib/systemd/system/srv-a-b.automount", "[Automount]\n");
        let by_prefix = "/usr/lib/systemd/system/srv-.automount.d/y.conf";
        let found = places();
        assert!(found.contains(&"/etc/systemd/system/mnt-f.mount.d/x.conf".to_owned()), "{found:?}");
        assert!(found.contains(&by_prefix.to_owned()), "{found:?}");
    }
}
