//! Every data dir on a volume, and which of them would be started.
//!
//! The whole tree is looked through, not only the known places: what matters most is the old dir that nobody names any
//! more. Bounded in depth and in entries; where a bound is met, or something cannot be read, the reading says so, and that
//! is a reason to hold. A data dir is a directory that has a `member`.

use super::bytes::printable;
use super::dir::{Entry, kind_of, list, open_dir, open_dir_str, open_file};
use super::error::EtcdError;
use super::lookalike::is_lookalike;
use super::manager_state::{MAX_BYTES, parse_state};
use super::quick::quick;
use super::read_at::read_vec;
use crate::model::{
    DataDirReport, DirRole, EtcdGeneration, EtcdManagerState, FsUuid, Observed, PublishSource, SelectedBy, Selection,
    SourceKind, VolumeId, VolumeReading, Why,
};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// The deepest known place of a data dir is eight levels down (a snap of canonical k8s).
const MAX_DEPTH: usize = 20;
/// Entries of all directories together. An etcd volume has some hundred.
const MAX_ENTRIES: usize = 500_000;
const MAX_DATA_DIRS: usize = 1_000;
const MAX_UNREADABLE: usize = 50;
const MAX_ROOT_ENTRIES: usize = 20;
/// etcd-manager's file at the root of a kops volume.
const STATE: &str = "state";

/// What is known about the volume besides its content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeHints {
    /// Data dir that configuration names, relative to the volume's root.
    pub data_dir: Option<String>,
    /// Directories that are to be published, relative to the volume's root; none where the whole volume is.
    #[serde(default)]
    pub publish: Vec<String>,
    pub fs_uuid: Option<FsUuid>,
    pub volume_id: Option<VolumeId>,
}

/// Reads the volume whose root directory `root` is.
pub fn examine_volume(root: BorrowedFd<'_>, hints: &VolumeHints) -> VolumeReading {
    examine_volume_reporting(root, hints, &mut |_| {})
}

/// As [`examine_volume`]; `progress` is told what is looked at next, so that a reader that hangs can be told from a slow one.
pub fn examine_volume_reporting(
    root: BorrowedFd<'_>,
    hints: &VolumeHints,
    progress: &mut dyn FnMut(&str),
) -> VolumeReading {
    let mut search = Search::default();
    search.run(root, progress);
    let manager_state = read_state(root);
    let (selection, by_name) = select(root, hints, manager_state.as_ref(), &mut search);

    let mut paths: Vec<Vec<u8>> = std::mem::take(&mut search.found);
    if let Some(name) = &by_name
        && selection.as_ref().is_some_and(|selection| selection.exists)
        && !paths.contains(name)
    {
        paths.push(name.clone());
    }
    paths.sort();
    let kops = manager_state.is_some();
    let mut data_dirs = Vec::new();
    let mut lookalikes = Vec::new();
    for raw in &paths {
        let shown = printable(raw);
        progress(&shown);
        let dir = CString::new(raw.as_slice()).map_err(|e| e.to_string());
        let dir = dir.and_then(|raw| open_dir(root, &raw).map_err(|e| e.chain()));
        match dir {
            Ok(dir) => {
                let mut report = quick(dir.as_fd(), &shown, hints);
                report.role = role(raw);
                report.layout = layout(raw, kops).to_owned();
                if by_name.as_ref() != Some(raw) && is_lookalike(dir.as_fd()) {
                    lookalikes.push(report.path.clone());
                }
                data_dirs.push(report);
            }
            Err(why) => search.unreadable(&why),
        }
    }
    // Where there is a real one. Alone, such a name is all that is left of something, and is told.
    let real = |report: &DataDirReport| matches!(report.etcd, EtcdGeneration::V2 | EtcdGeneration::V3);
    if data_dirs.iter().any(real) {
        data_dirs.retain(|report| !lookalikes.contains(&report.path));
    }
    let selection = selection.or_else(|| only_one(&data_dirs, kops));
    if let Some(selection) = &selection
        && let Some(report) = data_dirs.iter_mut().find(|report| report.path == selection.path)
    {
        report.role = DirRole::Selected;
    }
    VolumeReading {
        data_dirs,
        selected: selection,
        manager_state,
        unreadable: search.unreadable,
        beyond: search.beyond,
        root_entries: search.root_entries,
        publish: hints.publish.iter().map(|from| publish_source(root, from)).collect(),
    }
}

/// What stands where a directory that is to be published should be.
fn publish_source(root: BorrowedFd<'_>, from: &str) -> PublishSource {
    let kind = match open_dir_str(root, from) {
        Ok(_) => Observed::Seen(SourceKind::Directory),
        Err(error) if error.is_absent() => Observed::Seen(SourceKind::Missing),
        Err(error) if error.is_a_link() => Observed::Seen(SourceKind::Link),
        // A link in the last place is refused as no directory, before it is refused as a link.
        Err(error) if error.is_not_a_directory() => match kind_of(root, from, from) {
            Ok(Some(FileType::Symlink)) => Observed::Seen(SourceKind::Link),
            Ok(_) | Err(_) => Observed::Seen(SourceKind::NotADirectory),
        },
        Err(error) => Observed::Unknown(Why::Unreadable { detail: error.chain() }),
    };
    PublishSource { from: from.to_owned(), kind }
}

/// Walks the tree, breadth first, without recursion.
#[derive(Default)]
struct Search {
    found: Vec<Vec<u8>>,
    unreadable: Vec<String>,
    beyond: Vec<String>,
    root_entries: Vec<String>,
    entries: usize,
}

impl Search {
    fn unreadable(&mut self, what: &str) {
        if self.unreadable.len() < MAX_UNREADABLE {
            self.unreadable.push(what.to_owned());
        }
    }

    fn beyond(&mut self, what: String) {
        if self.beyond.len() < MAX_UNREADABLE {
            self.beyond.push(what);
        }
    }

    fn run(&mut self, root: BorrowedFd<'_>, progress: &mut dyn FnMut(&str)) {
        let mut level: Vec<Vec<u8>> = vec![b".".to_vec()];
        for depth in 0..=MAX_DEPTH {
            let mut below = Vec::new();
            for path in std::mem::take(&mut level) {
                progress(&printable(&path));
                if depth == MAX_DEPTH {
                    let what = format!("{}: deeper than {MAX_DEPTH} levels, not looked into", printable(&path));
                    self.beyond(what);
                    continue;
                }
                if !self.directory(root, &path, &mut below) {
                    return;
                }
            }
            level = below;
        }
    }

    /// `false`: a bound was met, and nothing more is looked at.
    fn directory(&mut self, root: BorrowedFd<'_>, path: &[u8], below: &mut Vec<Vec<u8>>) -> bool {
        let shown = printable(path);
        let room = MAX_ENTRIES.saturating_sub(self.entries);
        let listed =
            CString::new(path).map_err(|source| EtcdError::Open { path: shown.clone(), source: source.into() });
        let listed = listed.and_then(|path| open_dir(root, &path)).and_then(|dir| list(dir.as_fd(), &shown, room));
        let entries = match listed {
            Ok(entries) => entries,
            // Gone since its parent was listed: nothing that a reader could hold against the volume.
            Err(error) if error.is_absent() && path != b"." => return true,
            Err(EtcdError::TooMany { .. }) => {
                self.beyond(format!(
                    "{shown}: more than {MAX_ENTRIES} entries on the volume, the rest was not looked at"
                ));
                return false;
            }
            Err(error) => {
                self.unreadable(&error.chain());
                return true;
            }
        };
        self.entries = self.entries.saturating_add(entries.len());
        if path == b"." {
            self.root_entries = root_entries(&entries);
        }
        let data_dir = entries.iter().any(|entry| entry.name.to_bytes() == b"member");
        if data_dir {
            if self.found.len() >= MAX_DATA_DIRS {
                self.beyond(format!("{shown}: more than {MAX_DATA_DIRS} data dirs, the rest was not looked at"));
                return false;
            }
            self.found.push(path.to_vec());
        }
        for entry in entries.iter().filter(|entry| entry.kind == FileType::Directory) {
            let name = entry.name.to_bytes();
            let at_root = path == b".";
            let skipped = match name {
                b"member" => true,
                // e2fsck's own; what it put there has lost its names.
                b"lost+found" => at_root,
                _ => false,
            };
            if skipped {
                continue;
            }
            // Our own records are no data; what was put into quarantine is.
            if at_root && name == b".volhold" {
                below.push(b".volhold/quarantine".to_vec());
                continue;
            }
            let mut child = if at_root { Vec::new() } else { [path, b"/"].concat() };
            child.extend(name);
            below.push(child);
        }
        true
    }
}

fn root_entries(entries: &[Entry]) -> Vec<String> {
    let shown = entries.iter().filter(|entry| !matches!(entry.name.to_bytes(), b"lost+found" | b".volhold"));
    shown.take(MAX_ROOT_ENTRIES).map(Entry::shown).collect()
}

/// Put away under a name that says so; laid out by a tool of earlier days; or neither.
fn role(path: &[u8]) -> DirRole {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let archive = path.starts_with(b".volhold/quarantine")
        || parts.iter().any(|part| {
            *part == b"data-trashcan"
                || *part == b"etcd-backup"
                || part.starts_with(b"etcd-old")
                || part.ends_with(b".bak")
        });
    if archive {
        return DirRole::Archive;
    }
    match parts.as_slice() {
        [b"var", b"etcd", name, ..] if name.starts_with(b"data") => DirRole::Legacy,
        _ => DirRole::Candidate,
    }
}

fn layout(path: &[u8], kops: bool) -> &'static str {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let has = |name: &[u8]| parts.contains(&name);
    match parts.as_slice() {
        [b"data" | b"data-trashcan", _] if kops => "kops-etcd-manager",
        [b"var", b"etcd", name, ..] if name.starts_with(b"data") => "kops-legacy",
        _ if has(b"k3s") => "k3s",
        _ if has(b"rke2") => "rke2",
        _ if has(b"k0s") => "k0s",
        _ if has(b"minikube") => "minikube",
        _ => "etcd",
    }
}

/// What configuration or `state` names. The second value is its path as found, for a dir that has no `member`.
fn select(
    root: BorrowedFd<'_>,
    hints: &VolumeHints,
    state: Option<&Observed<EtcdManagerState>>,
    search: &mut Search,
) -> (Option<Selection>, Option<Vec<u8>>) {
    let token = match state {
        Some(Observed::Seen(state)) => state.cluster_token.as_deref(),
        Some(Observed::Unknown(_)) | None => None,
    };
    let (path, by) = match (&hints.data_dir, token) {
        (Some(configured), _) => (normal(configured), SelectedBy::Config),
        (None, Some(token)) => (format!("data/{token}"), SelectedBy::State),
        (None, None) => return (None, None),
    };
    let exists = match open_dir_str(root, &path) {
        Ok(_) => true,
        Err(error) if error.is_absent() => false,
        Err(error) => {
            search.unreadable(&error.chain());
            false
        }
    };
    let raw = Path::new(&path).as_os_str().as_bytes().to_vec();
    (Some(Selection { path: printable(&raw), by, exists }), Some(raw))
}

/// `./a//b/` as `a/b`; the root as `.`. What leads out of the volume is left as it is, and cannot be opened.
fn normal(path: &str) -> String {
    let parts: Vec<&str> = Path::new(path)
        .components()
        .filter(|part| !matches!(part, Component::CurDir))
        .filter_map(|part| part.as_os_str().to_str())
        .collect();
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

/// Nobody names a dir, and there is only one that is not put away. Where etcd-manager has its `state`, that alone selects.
fn only_one(data_dirs: &[DataDirReport], kops: bool) -> Option<Selection> {
    if kops {
        return None;
    }
    let mut open = data_dirs.iter().filter(|report| match report.role {
        DirRole::Selected | DirRole::Candidate | DirRole::Legacy => true,
        DirRole::Archive => false,
    });
    let first = open.next()?;
    if open.next().is_some() {
        return None;
    }
    Some(Selection { path: first.path.clone(), by: SelectedBy::OnlyOne, exists: true })
}

/// etcd-manager's `state` at the root; `None`: the volume has none.
fn read_state(root: BorrowedFd<'_>) -> Option<Observed<EtcdManagerState>> {
    let unreadable = |detail: String| Some(Observed::Unknown(Why::Unreadable { detail }));
    match kind_of(root, STATE, STATE) {
        Ok(None) => return None,
        // A directory of this name is somebody else's.
        Ok(Some(FileType::Directory)) => return None,
        Ok(Some(_)) => {}
        Err(error) => return unreadable(error.chain()),
    }
    let file = match open_file(root, STATE, STATE) {
        Ok(file) => file,
        Err(error) => return unreadable(error.chain()),
    };
    let size = match super::read_at::ReadAt::size(&file) {
        Ok(size) if size <= MAX_BYTES => usize::try_from(size).unwrap_or(0),
        Ok(size) => return unreadable(format!("{STATE} has {size} bytes, far more than etcd-manager writes")),
        Err(error) => return unreadable(format!("{STATE}: {error}")),
    };
    match read_vec(&file, 0, size) {
        Ok(bytes) => match parse_state(&bytes) {
            Ok(state) => Some(Observed::Seen(state)),
            Err(error) => unreadable(format!("the file `{STATE}` at the volume's root: {error}")),
        },
        Err(source) => unreadable(EtcdError::Read { path: STATE.to_owned(), source }.chain()),
    }
}
