//! How a mount fails, and how to say it.

use super::{Access, Twin};
use crate::act::options::OptionError;
use crate::device::DeviceError;
use crate::model::{DevNum, Reason, ReasonCode};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum MountError {
    #[error(transparent)]
    Option(OptionError),
    #[error("{0}")]
    Failed(Box<Tried>),
    /// What was mounted is not what was opened: a name moved in between.
    #[error("{node} was opened as device {opened}, but mounting it gave device {mounted}")]
    WrongVolume { node: PathBuf, opened: DevNum, mounted: DevNum },
    /// Somebody mounted the device in the moment in which the claim was let go.
    #[error("{node} is mounted at {at} by somebody else")]
    Joined { node: PathBuf, at: PathBuf },
    #[error("{path} is an image file, which has to become a loop device before it can be mounted")]
    Image { path: PathBuf },
    #[error("there is no way to look at {fstype} without writing")]
    NoLook { fstype: String },
    #[error("open the root of the filesystem on {node}")]
    Root {
        node: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("device {devnum} is mounted at {at} already")]
    Occupied { at: PathBuf, devnum: DevNum },
    #[error("publish at {at}")]
    Publish {
        at: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Moved into place, and somebody else lies over it.
    #[error("published device {wanted} at {at}, but device {found} is on top there")]
    NotOnTop { at: PathBuf, wanted: DevNum, found: DevNum },
    #[error("ask what is mounted")]
    Table(#[source] DeviceError),
    /// A directory of the volume that is to be published cannot be opened as one.
    #[error("open the directory `{from}` of {node}")]
    Source {
        from: String,
        node: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("publish directories of a volume: {step}")]
    Copy {
        step: &'static str,
        #[source]
        source: io::Error,
    },
    /// Of several directories one could not be published, and the others were taken back.
    #[error("{at} could not be published: {failed}")]
    NotAll {
        at: PathBuf,
        failed: Box<MountError>,
        /// Published before it, and unmounted again.
        back: Vec<PathBuf>,
        /// What could not be unmounted, and why.
        left: Vec<String>,
    },
}

/// A mount that the kernel refused: what was tried, and what it said.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Tried {
    pub node: PathBuf,
    pub fstype: String,
    #[serde(skip)]
    pub access: Access,
    /// Options that the filesystem got.
    pub options: Vec<String>,
    /// Which step failed.
    pub step: String,
    pub errno: i32,
    /// The kernel's words: of the mount itself, and lines of its log that name the device.
    pub kernel: Vec<String>,
    /// Another device that has this filesystem mounted, where that was looked for.
    #[serde(skip)]
    pub twin: Option<Twin>,
}

impl std::fmt::Display for Tried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mounting {} as {}", self.node.display(), self.fstype)?;
        if !self.options.is_empty() {
            write!(f, " with {}", self.options.join(","))?;
        }
        let errno = nix::errno::Errno::from_raw(self.errno);
        write!(f, " failed at {}: {} ({errno:?})", self.step, errno.desc())?;
        if !self.kernel.is_empty() {
            write!(f, "; the kernel says: {}", self.kernel.join("; "))?;
        }
        Ok(())
    }
}

impl Tried {
    /// The kernel refused because a filesystem with this UUID is mounted already. Its log says so where it can be read.
    fn duplicate(&self) -> bool {
        self.twin.is_some() || self.kernel.iter().any(|line| line.contains("duplicate UUID"))
    }

    /// The kernel is older than the filesystem: `fs/ext4/super.c:ext4_feature_set_ok`, `fs/xfs/libxfs/xfs_sb.c`.
    fn feature_unknown(&self) -> bool {
        self.kernel.iter().any(|line| {
            line.contains("unsupported optional features")
                || (line.contains("unknown") && line.contains("features") && line.contains("Superblock has"))
        })
    }
}

impl MountError {
    /// The reason that a guard is held for.
    pub fn reason(&self) -> Reason {
        match self {
            MountError::Failed(tried) if tried.feature_unknown() => Reason::new(
                ReasonCode::FilesystemFeatureUnknown,
                format!("{tried}: the filesystem was made by a newer system; nothing was changed"),
            ),
            MountError::Failed(tried) if tried.duplicate() => {
                let other = match &tried.twin {
                    Some(twin) => format!("{} has filesystem {} mounted already", twin.node.display(), twin.uuid),
                    None => "another device has this filesystem mounted already".to_owned(),
                };
                Reason::new(
                    ReasonCode::FilesystemDuplicate,
                    format!(
                        "{} carries a copy of a mounted filesystem: {other}, and the kernel mounts a UUID only once; nothing \
                         was written",
                        tried.node.display()
                    ),
                )
            }
            MountError::Failed(tried) if tried.errno == libc::EBUSY => {
                Reason::new(ReasonCode::InUse, format!("{tried}: somebody else took the device"))
            }
            MountError::Failed(tried) => {
                Reason::new(ReasonCode::MountFailed, format!("{tried}; nothing was formatted"))
            }
            MountError::Joined { .. } => Reason::new(
                ReasonCode::InUse,
                format!("nothing was examined: {self}, while volhold let go to mount it"),
            ),
            MountError::WrongVolume { .. } => Reason::new(ReasonCode::WrongVolume, self.to_string()),
            MountError::Option(_) | MountError::NoLook { .. } => Reason::new(ReasonCode::MountFailed, self.to_string()),
            MountError::Image { .. } => Reason::new(ReasonCode::NotABlockDevice, self.to_string()),
            MountError::Occupied { .. } => {
                Reason::new(ReasonCode::MountFailed, format!("nothing was published: {self}"))
            }
            MountError::NotOnTop { .. } => Reason::new(ReasonCode::WrongVolume, self.to_string()),
            MountError::Root { source, .. } | MountError::Publish { source, .. } => {
                Reason::new(ReasonCode::MountFailed, format!("{self}: {source}"))
            }
            MountError::Table(source) => source.reason(),
            MountError::Source { source, .. } => {
                let code = match source.raw_os_error() {
                    Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EXDEV) => ReasonCode::NotPublishable,
                    Some(_) | None => ReasonCode::Unreadable,
                };
                Reason::new(code, format!("nothing was published: {self}: {source}"))
            }
            MountError::Copy { source, .. } => {
                Reason::new(ReasonCode::MountFailed, format!("nothing was published: {self}: {source}"))
            }
            MountError::NotAll { at, failed, back, left } => not_all(at, failed, back, left),
        }
        .with_detail_of(self)
    }
}

fn not_all(at: &Path, failed: &MountError, back: &[PathBuf], left: &[String]) -> Reason {
    let Reason { code, message, detail: _ } = failed.reason();
    let paths = |paths: &[PathBuf]| paths.iter().map(|at| at.display().to_string()).collect::<Vec<_>>().join(", ");
    let mut sentence = format!("{} could not be published: {message}", at.display());
    if !back.is_empty() {
        sentence.push_str(&format!("; {} was taken back", paths(back)));
    }
    if !left.is_empty() {
        sentence.push_str(&format!("; what could not be taken back: {}", left.join(", ")));
    }
    let detail = serde_json::json!({ "at": at, "taken_back": back, "left": left });
    Reason::new(code, sentence).with_detail(detail)
}

trait WithDetail {
    fn with_detail_of(self, error: &MountError) -> Self;
}

impl WithDetail for Reason {
    fn with_detail_of(self, error: &MountError) -> Self {
        match error {
            MountError::Failed(tried) => self.with_detail(serde_json::json!({ "tried": tried })),
            MountError::WrongVolume { .. }
            | MountError::Joined { .. }
            | MountError::Option(_)
            | MountError::NoLook { .. }
            | MountError::Image { .. }
            | MountError::Occupied { .. }
            | MountError::NotOnTop { .. }
            | MountError::Root { .. }
            | MountError::Publish { .. }
            | MountError::Table(_)
            | MountError::Source { .. }
            | MountError::Copy { .. }
            | MountError::NotAll { .. } => self,
        }
    }
}
