//! The directory that a fresh etcd is going to fill. etcd as user `etcd` cannot use a directory of root's (exit 1,
//! `permission denied`: measured), so owner and mode come from the configuration.

use super::Change;
use crate::model::{Reason, ReasonCode};
use rustix::fs::{Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};
use thiserror::Error;

/// Numbers of the user and group that etcd runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerIds {
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Error)]
pub enum DataDirError {
    #[error("`{path}` is no path within the volume")]
    BadPath { path: String },
    #[error("{operation} `{path}` on the volume")]
    Io {
        operation: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("there is no {kind} `{name}` on this machine")]
    NoSuchOwner { kind: &'static str, name: String },
    #[error("look up {kind} `{name}`")]
    LookUp {
        kind: &'static str,
        name: String,
        #[source]
        source: io::Error,
    },
}

impl DataDirError {
    /// The reason that a guard is held for.
    pub fn reason(&self) -> Reason {
        match self {
            DataDirError::NoSuchOwner { .. } => Reason::new(
                ReasonCode::WrongOwner,
                format!("the data dir was not made: {self}, and etcd could not use a directory of anybody else's"),
            ),
            DataDirError::LookUp { source, .. } => {
                Reason::new(ReasonCode::WrongOwner, format!("the data dir was not made: {self}: {source}"))
            }
            DataDirError::BadPath { .. } => Reason::new(ReasonCode::MountFailed, format!("no data dir: {self}")),
            DataDirError::Io { source, .. } => {
                let code = match source.raw_os_error() {
                    Some(libc::ENOSPC | libc::EDQUOT) => ReasonCode::NoSpace,
                    Some(_) | None => ReasonCode::Unreadable,
                };
                Reason::new(code, format!("the data dir was not made: {self}: {source}"))
            }
        }
    }
}

/// Numbers for a user and a group given by name or number.
pub fn owner_ids(user: &str, group: &str) -> Result<OwnerIds, DataDirError> {
    let looked_up = |kind: &'static str, name: &str, found: nix::Result<Option<u32>>| match found {
        Ok(Some(id)) => Ok(id),
        Ok(None) => Err(DataDirError::NoSuchOwner { kind, name: name.to_owned() }),
        Err(errno) => Err(DataDirError::LookUp { kind, name: name.to_owned(), source: errno.into() }),
    };
    let uid = match user.parse() {
        Ok(uid) => uid,
        Err(_) => {
            let found = nix::unistd::User::from_name(user);
            looked_up("user", user, found.map(|user| user.map(|user| user.uid.as_raw())))?
        }
    };
    let gid = match group.parse() {
        Ok(gid) => gid,
        Err(_) => {
            let found = nix::unistd::Group::from_name(group);
            looked_up("group", group, found.map(|group| group.map(|group| group.gid.as_raw())))?
        }
    };
    Ok(OwnerIds { uid, gid })
}

/// Makes the directory, with its owner and mode from the first moment that it has its name. Directories above it that are
/// missing are root's, mode 0755. One that is there is never changed, whoever owns it.
///
/// `root` is the volume's root, and nothing outside of the volume is reached: no link, no other mount, no `..`.
pub fn create(root: BorrowedFd, path: &str, owner: Option<OwnerIds>, mode: u32) -> Result<Change, DataDirError> {
    let bad = || DataDirError::BadPath { path: path.to_owned() };
    let names = Path::new(path)
        .components()
        .filter(|component| *component != Component::CurDir)
        .map(|component| match component {
            Component::Normal(name) => name.to_str().ok_or_else(bad),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => Err(bad()),
        })
        .collect::<Result<Vec<_>, _>>()?;
    // The root itself is the data dir: it is there.
    let Some((last, above)) = names.split_last() else { return Ok(Change::Already) };
    let failed =
        |operation| move |errno: Errno| DataDirError::Io { operation, path: path.into(), source: errno.into() };

    let mut parent = open(root, ".").map_err(failed("open the root above"))?;
    for name in above {
        match rustix::fs::mkdirat(&parent, *name, Mode::from_raw_mode(0o755)) {
            Ok(()) => rustix::fs::fsync(&parent).map_err(failed("make durable what is above"))?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("make what is above")(errno)),
        }
        parent = open(parent.as_fd(), name).map_err(failed("open what is above"))?;
    }
    match open(parent.as_fd(), last) {
        Ok(_) => return Ok(Change::Already),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed("look at")(errno)),
    }

    // Under another name until it is as it should be: a crash in between leaves no directory of the wrong owner.
    let unfinished = format!(".{last}.volhold-new");
    match rustix::fs::mkdirat(&parent, unfinished.as_str(), Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed("make")(errno)),
    }
    let made = open(parent.as_fd(), &unfinished).map_err(failed("open"))?;
    if let Some(OwnerIds { uid, gid }) = owner {
        rustix::fs::fchown(&made, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).map_err(failed("give away"))?;
    }
    rustix::fs::fchmod(&made, Mode::from_raw_mode(mode)).map_err(failed("set the mode of"))?;
    rustix::fs::fsync(&made).map_err(failed("make durable"))?;
    match rustix::fs::renameat_with(&parent, unfinished.as_str(), &parent, *last, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        // Somebody was faster: theirs stays as it is.
        Err(Errno::EXIST) => return Ok(Change::Already),
        Err(errno) => return Err(failed("name")(errno)),
    }
    rustix::fs::fsync(&parent).map_err(failed("make durable what is above"))?;
    Ok(Change::Done)
}

fn open(parent: BorrowedFd, name: &str) -> Result<OwnedFd, Errno> {
    let within =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(parent, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), within)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn volume() -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().unwrap();
        let root = File::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn the_directory_has_its_mode_and_an_existing_one_is_left_alone() {
        let (dir, root) = volume();
        assert_eq!(create(root.as_fd(), "var/etcd/data", None, 0o750).unwrap(), Change::Done);
        let made = dir.path().join("var/etcd/data");
        assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o7777, 0o750);
        assert_eq!(create(root.as_fd(), "./var/etcd/data/", None, 0o700).unwrap(), Change::Already);
        assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o7777, 0o750);
        let left: Vec<_> =
            fs::read_dir(made.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["data"], "nothing unfinished is left behind");
    }

    #[test]
    fn the_directory_belongs_to_the_configured_owner() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (dir, root) = volume();
        let owner = Some(OwnerIds { uid: 4242, gid: 4343 });
        create(root.as_fd(), "data", owner, 0o700).unwrap();
        let made = fs::metadata(dir.path().join("data")).unwrap();
        assert_eq!((made.uid(), made.gid()), (4242, 4343));
    }

    #[test]
    fn a_crash_between_making_and_naming_is_finished_the_next_time() {
        let (dir, root) = volume();
        fs::create_dir(dir.path().join(".data.volhold-new")).unwrap();
        assert_eq!(create(root.as_fd(), "data", None, 0o700).unwrap(), Change::Done);
        assert!(!dir.path().join(".data.volhold-new").exists());
    }

    #[test]
    fn no_path_leads_out_of_the_volume() {
        let elsewhere = tempfile::tempdir().unwrap();
        let (dir, root) = volume();
        symlink(elsewhere.path(), dir.path().join("link")).unwrap();
        for path in ["../x", "/x", "a/../../x", "link/x", "link"] {
            assert!(create(root.as_fd(), path, None, 0o700).is_err(), "{path}");
        }
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn owners_are_known_by_name_and_by_number() {
        assert_eq!(owner_ids("root", "0").unwrap(), OwnerIds { uid: 0, gid: 0 });
        assert_eq!(owner_ids("no-such-user", "0").unwrap_err().reason().code, ReasonCode::WrongOwner);
    }
}
