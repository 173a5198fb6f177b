//! `mkfs.ext4`, with a permit.
//!
//! mkfs itself protects nothing: without a terminal and without `-F` it overwrites a healthy ext4 and ends with 0
//! (measured). What protects is the permit, which is taken by value here and was made by proof of blankness only, and the
//! checks below that it is for this very device. No force flag is ever passed, so that mkfs's own refusals (mounted, in
//! use, xfs in the way for mkfs.xfs) stay in force.

use super::tool::{self, ToolError};
use crate::decide::format::FormatPermit;
use crate::device::{ClaimError, Device, DeviceError};
use crate::model::{BootMillis, FsUuid, Reason, ReasonCode};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// How long mkfs.ext4 may take unless configured otherwise.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The whole feature set, from `none` upwards: mke2fs.conf differs between distributions and releases. Everything here is
/// known to e2fsck 1.43 (2016) and kernel 4.x. Left out on purpose, though e2fsprogs 1.47 enables them:
/// `metadata_csum_seed` and `orphan_file`, which an e2fsck of 1.46 refuses.
const FEATURES: &str = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,\
                        large_file,huge_file,dir_nlink,extra_isize,metadata_csum";

/// `nodiscard`: a discard proves nothing and may take minutes. Tables and journal are written now, not lazily: a fresh
/// encrypted volume is full of noise, which nobody should find in an inode table when group flags are damaged; and the
/// kernel does not write in the background while the volume is examined.
const EXTENDED: &str = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";

/// Percent kept for root. Enough for volhold to write its ledger on a volume that etcd has filled.
const RESERVED_PERCENT: &str = "1";

/// Start of the primary superblock (`fs/ext4/ext4.h`), and what is looked at in it.
const SUPERBLOCK: u64 = 1024;
const MAGIC_AT: usize = 0x38;
const MAGIC: [u8; 2] = [0x53, 0xef];
const UUID_AT: usize = 0x68;

/// A filesystem that was made and read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub uuid: FsUuid,
    /// What mkfs said; normally nothing.
    pub output: String,
}

#[derive(Debug, Error)]
pub enum MkfsError {
    /// Nothing was run.
    #[error("the permit is not for {node}: {detail}")]
    PermitForAnother { node: PathBuf, detail: String },
    /// Nothing was run.
    #[error("the permit to format {node} has run out")]
    PermitExpired { node: PathBuf },
    /// Nothing was run: without the claim somebody else may be at work.
    #[error("{node} is not claimed")]
    NotClaimed { node: PathBuf },
    /// Nothing was run.
    #[error("ask about {node} before mkfs")]
    Device {
        node: PathBuf,
        #[source]
        source: DeviceError,
    },
    #[error("make a filesystem on {node}")]
    Tool {
        node: PathBuf,
        #[source]
        source: ToolError,
    },
    #[error("mkfs.ext4 on {node} ended with {exit:?}")]
    Failed { node: PathBuf, exit: Option<i32>, output: String },
    #[error("claim again after mkfs.ext4")]
    Claim(#[source] ClaimError),
    #[error("{operation} {node}")]
    Io {
        operation: &'static str,
        node: PathBuf,
        #[source]
        source: io::Error,
    },
    /// mkfs ended well, but what stands on the device is something else.
    #[error("after mkfs.ext4, {node} does not carry the filesystem that was asked for: {detail}")]
    ReadBack { node: PathBuf, detail: String },
}

impl MkfsError {
    /// The reason that a guard is held for.
    pub fn reason(&self) -> Reason {
        match self {
            MkfsError::PermitForAnother { node, detail } => Reason::new(
                ReasonCode::IdentityMismatch,
                format!("{} was not formatted: what was examined is not what is opened ({detail})", node.display()),
            ),
            MkfsError::PermitExpired { node } => Reason::new(
                ReasonCode::MkfsFailed,
                format!("{} was not formatted: the evidence of its blankness is too old by now", node.display()),
            ),
            MkfsError::NotClaimed { node } => Reason::new(
                ReasonCode::InUse,
                format!("{} was not formatted: volhold does not hold its claim", node.display()),
            ),
            MkfsError::Device { source, .. } => source.reason(),
            MkfsError::Claim(source) => source.reason(),
            MkfsError::Failed { node, exit, output } => {
                let ended = exit.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
                Reason::new(
                    ReasonCode::MkfsFailed,
                    format!("mkfs.ext4 on {} ended with {ended}: {}", node.display(), output.trim()),
                )
                .with_detail(serde_json::json!({ "exit": exit, "output": output }))
            }
            MkfsError::Tool { node, source } => {
                Reason::new(ReasonCode::MkfsFailed, format!("no filesystem was made on {}: {source}", node.display()))
            }
            MkfsError::Io { operation, node, source } => {
                Reason::new(ReasonCode::MkfsFailed, format!("{operation} {}: {source}", node.display()))
            }
            MkfsError::ReadBack { node, detail } => Reason::new(
                ReasonCode::MkfsFailed,
                format!("mkfs.ext4 on {} ended well, but what was read back is wrong: {detail}", node.display()),
            ),
        }
    }
}

/// Makes an ext4 with this UUID on the device that the permit is for, and reads it back. `now` is the boot clock.
///
/// The caller has recorded the intent with this UUID and holds the claim and the udev lock. The claim is let go only while
/// mkfs runs (it takes its own) and is ours again afterwards, also when mkfs failed.
pub fn ext4(
    permit: FormatPermit,
    device: &mut Device,
    uuid: FsUuid,
    now: BootMillis,
    limit: Duration,
) -> Result<Made, MkfsError> {
    let node = device.node().to_owned();
    check_permit(&permit, device, now)?;
    let in_tool = |source| MkfsError::Tool { node: node.clone(), source };
    let program = tool::find("mkfs.ext4").map_err(in_tool)?;
    let stdin = device.child_stdin().map_err(|source| MkfsError::Io {
        operation: "hand to mkfs.ext4",
        node: node.clone(),
        source,
    })?;
    let uuid_text = uuid.to_string();
    let arguments = [
        "-q",
        "-t",
        "ext4",
        "-b",
        "4096",
        "-I",
        "256",
        "-m",
        RESERVED_PERCENT,
        "-O",
        FEATURES,
        "-E",
        EXTENDED,
        "-U",
        &uuid_text,
        Device::CHILD_PATH,
    ];
    device.let_go();
    let ended = tool::run(&program, &arguments, stdin, limit);
    device.reclaim().map_err(MkfsError::Claim)?;
    let ended = ended.map_err(in_tool)?;
    let output = ended.output.replace(Device::CHILD_PATH, &node.display().to_string());
    if ended.exit != Some(0) {
        return Err(MkfsError::Failed { node, exit: ended.exit, output });
    }
    read_back(device, &node, uuid)?;
    Ok(Made { uuid, output })
}

/// The permit is for this device in this attachment and size, still good, and the device is ours.
fn check_permit(permit: &FormatPermit, device: &Device, now: BootMillis) -> Result<(), MkfsError> {
    let node = device.node().to_owned();
    if !permit.is_valid_at(now) {
        return Err(MkfsError::PermitExpired { node });
    }
    let facts = device.facts().map_err(|source| MkfsError::Device { node: node.clone(), source })?;
    let permitted = (permit.devnum(), permit.diskseq(), permit.size());
    let opened = (facts.devnum, facts.diskseq, facts.size);
    if permitted != opened || device.devnum() != Some(permit.devnum()) {
        let words = |(devnum, diskseq, size): (crate::model::DevNum, Option<u64>, u64)| {
            let attachment = diskseq.map_or(String::new(), |number| format!(", attachment {number}"));
            format!("device {devnum} of {size} bytes{attachment}")
        };
        let detail = format!("permitted: {}; opened: {}", words(permitted), words(opened));
        return Err(MkfsError::PermitForAnother { node, detail });
    }
    if !device.claimed() {
        return Err(MkfsError::NotClaimed { node });
    }
    Ok(())
}

fn read_back(device: &Device, node: &Path, uuid: FsUuid) -> Result<(), MkfsError> {
    let failed = |operation| move |source| MkfsError::Io { operation, node: node.to_owned(), source };
    // From the medium, not from what mkfs left in the cache.
    device.drop_cache().map_err(failed("drop the cache of"))?;
    let mut superblock = [0u8; 1024];
    let reader = device.reader().map_err(failed("open to read back"))?;
    reader.read_exact_at(&mut superblock, SUPERBLOCK).map_err(failed("read back the superblock of"))?;
    let field = |at: usize, length: usize| superblock.get(at..).and_then(|rest| rest.get(..length)).unwrap_or_default();
    let wrong = |detail: String| Err(MkfsError::ReadBack { node: node.to_owned(), detail });
    if field(MAGIC_AT, MAGIC.len()) != MAGIC {
        return wrong(format!("no ext superblock at offset {SUPERBLOCK}"));
    }
    match uuid::Uuid::from_slice(field(UUID_AT, 16)) {
        Ok(found) if found == uuid.0 => Ok(()),
        Ok(found) => wrong(format!("UUID {found}, expected {uuid}")),
        Err(error) => wrong(error.to_string()),
    }
}
