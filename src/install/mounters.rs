//! Whoever else would mount a guarded volume, or something in its place: lines of `/etc/fstab`, `.mount` and `.automount`
//! units. Two mounters are a boot failure: the one that comes second finds the device claimed or the path taken.
//!
//! Formats: fstab(5), systemd.mount(5), systemd.automount(5). What systemd makes of fstab (`/run/systemd/generator`) is not
//! looked at: the line says it.

use super::files::{FileError, Root};
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
    let mut seen: Vec<String> = Vec::new();
    for directory in UNIT_DIRS {
        for name in root.list(Path::new(directory))? {
            let automount = name.ends_with(".automount");
            if !(automount || name.ends_with(".mount")) || seen.contains(&name) {
                continue;
            }
            let path = Path::new(directory).join(&name);
            // A link to /dev/null is a mask: it hides the files of the same name, and reads as nothing.
            if let Some(text) = root.read(&path)? {
                found.extend(in_unit(&root.outside(&path), &name, &text, target));
            }
            seen.push(name);
        }
    }
    Ok(found)
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

/// A unit that mounts the device, or anything at the path.
fn in_unit(path: &Path, name: &str, text: &str, target: &Target) -> Option<Mounter> {
    let (mut source, mut at) = (String::new(), String::new());
    for line in text.lines().map(str::trim) {
        if let Some((key, value)) = line.split_once('=') {
            match key.trim() {
                "What" => source = value.trim().trim_matches('"').to_owned(),
                "Where" => at = value.trim().trim_matches('"').to_owned(),
                _ => {}
            }
        }
    }
    let hits = (!source.is_empty() && target.is_source(&source)) || (!at.is_empty() && target.is_place(Path::new(&at)));
    hits.then(|| Mounter {
        place: path.display().to_string(),
        text: if source.is_empty() { format!("Where={at}") } else { format!("What={source} Where={at}") },
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
}
