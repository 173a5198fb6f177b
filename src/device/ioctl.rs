//! The kernel calls on block and loop devices, and on mounted filesystems, that no library wraps: the only unsafe code outside of libblkid's binding.
//!
//! Numbers and structures are those of `include/uapi/linux/fs.h`, `include/uapi/linux/loop.h`,
//! `include/uapi/linux/nvme_ioctl.h`, `fs/ext4/ext4.h` and `fs/xfs/libxfs/xfs_fs.h` (Linux 5.10, unchanged since).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `LO_FLAGS_READ_ONLY`.
pub const LOOP_READ_ONLY: u32 = 1;
/// `LO_FLAGS_AUTOCLEAR`: the kernel takes the device apart when its last descriptor closes.
pub const LOOP_AUTOCLEAR: u32 = 4;
/// `LO_FLAGS_DIRECT_IO`: bypass the page cache of the backing file. Ignored by the kernel where the file cannot do it.
pub const LOOP_DIRECT_IO: u32 = 16;

mod raw {
    use super::{LoopConfig, LoopInfo64, NvmeCommand, XfsGrow, XfsOldGeometry};

    nix::ioctl_read!(blkgetsize64, 0x12, 114, u64);
    // Declared with `size_t` in the header, but the kernel writes a u64 on every architecture we build for.
    nix::ioctl_read_bad!(blkroget, 0x125e, libc::c_int);
    nix::ioctl_none_bad!(blkflsbuf, 0x1261);
    nix::ioctl_read_bad!(loop_get_status64, 0x4C05, LoopInfo64);
    nix::ioctl_write_ptr_bad!(loop_configure, 0x4C0A, LoopConfig);
    nix::ioctl_none_bad!(loop_ctl_get_free, 0x4C82);
    nix::ioctl_readwrite!(nvme_admin_cmd, b'N', 0x41, NvmeCommand);
    nix::ioctl_write_ptr!(ext4_resize_fs, b'f', 16, u64);
    nix::ioctl_read!(xfs_fsgeometry_v1, b'X', 100, XfsOldGeometry);
    nix::ioctl_write_ptr!(xfs_growfsdata, b'X', 110, XfsGrow);
}

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` (kernel 5.8).
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct NvmeCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_length: u32,
    data_length: u32,
    words_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// `struct xfs_fsop_geom_v1`: the form that every kernel answers.
#[repr(C)]
#[derive(Default)]
struct XfsOldGeometry {
    block_size: u32,
    /// Realtime extents, groups, log, sectors and inodes.
    layout: [u32; 6],
    inode_percent: u32,
    data_blocks: u64,
    realtime: [u64; 2],
    log_start: u64,
    uuid: [u8; 16],
    more: [u32; 7],
}

/// `struct xfs_growfs_data`.
#[repr(C)]
struct XfsGrow {
    blocks: u64,
    inode_percent: u32,
}

const NO_INFO: LoopInfo64 = LoopInfo64 {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    sizelimit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    encrypt_key: [0; 32],
    init: [0; 2],
};

/// What a bound loop device has under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopBacking {
    /// `st_dev` of the backing file.
    pub device: u64,
    /// `st_ino` of the backing file.
    pub inode: u64,
    /// `st_rdev` of the backing file, 0 unless it is itself a device.
    pub rdevice: u64,
    /// Bytes skipped at the start of the backing file.
    pub offset: u64,
    /// Bytes shown at most, 0 for all.
    pub size_limit: u64,
    /// `LO_FLAGS_…`.
    pub flags: u32,
    /// `lo_file_name`: what whoever bound it called it; the kernel does not read it.
    pub name: [u8; 64],
}

/// Size of a block device in bytes (`BLKGETSIZE64`).
pub fn size(device: impl AsFd) -> io::Result<u64> {
    let mut bytes = 0u64;
    // SAFETY: the call writes one u64, and `bytes` lives until it returns.
    unsafe { raw::blkgetsize64(device.as_fd().as_raw_fd(), &mut bytes)? };
    Ok(bytes)
}

/// Is the whole device set read-only (`BLKROGET`)?
pub fn read_only(device: impl AsFd) -> io::Result<bool> {
    let mut flag: libc::c_int = 0;
    // SAFETY: the call writes one int, and `flag` lives until it returns.
    unsafe { raw::blkroget(device.as_fd().as_raw_fd(), &mut flag)? };
    Ok(flag != 0)
}

/// Identify Controller (opcode 06h, CNS 01h) on an NVMe disk: its 4096 bytes. ENOTTY: no NVMe disk. Reads, and changes
/// nothing.
pub fn nvme_identify(device: impl AsFd) -> io::Result<Vec<u8>> {
    let mut answer = vec![0_u8; super::nvme::LENGTH];
    let mut command = NvmeCommand {
        opcode: 0x06,
        address: answer.as_mut_ptr() as u64,
        data_length: u32::try_from(answer.len()).map_err(io::Error::other)?,
        words_10_15: [1, 0, 0, 0, 0, 0],
        timeout_ms: 5000,
        ..NvmeCommand::default()
    };
    // SAFETY: the call reads one `nvme_passthru_cmd`, which `command` has the layout of, writes its result, and writes at most
    // `data_length` bytes at `address`: that is `answer`, which lives until it returns.
    let status = unsafe { raw::nvme_admin_cmd(device.as_fd().as_raw_fd(), &mut command)? };
    match status {
        0 => Ok(answer),
        status => Err(io::Error::other(format!("the controller answers with status {status:#x}"))),
    }
}

/// Drops the clean pages of the device's cache, so that the next buffered read asks the medium (`BLKFLSBUF`).
pub fn drop_cache(device: impl AsFd) -> io::Result<()> {
    // SAFETY: takes no argument.
    unsafe { raw::blkflsbuf(device.as_fd().as_raw_fd())? };
    Ok(())
}

/// What is under a loop device; `None` when nothing is.
pub fn loop_backing(device: impl AsFd) -> io::Result<Option<LoopBacking>> {
    let mut info = NO_INFO;
    // SAFETY: the call writes one `loop_info64`, which `info` has the layout of.
    match unsafe { raw::loop_get_status64(device.as_fd().as_raw_fd(), &mut info) } {
        Ok(_) => Ok(Some(LoopBacking {
            device: info.device,
            inode: info.inode,
            rdevice: info.rdevice,
            offset: info.offset,
            size_limit: info.sizelimit,
            flags: info.flags,
            name: info.file_name,
        })),
        Err(nix::errno::Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Number of a loop device that nothing is bound to; made when there is none (`LOOP_CTL_GET_FREE` on `/dev/loop-control`).
pub fn loop_free(control: impl AsFd) -> io::Result<u32> {
    // SAFETY: takes no argument.
    let number = unsafe { raw::loop_ctl_get_free(control.as_fd().as_raw_fd())? };
    u32::try_from(number).map_err(|_| io::Error::other(format!("kernel named loop device {number}")))
}

/// Binds `file` to the loop device in one step (`LOOP_CONFIGURE`). `name`: what it is called in `lo_file_name`, at most 63
/// bytes of it. EBUSY: somebody was faster.
pub fn loop_bind(device: impl AsFd, file: impl AsFd, flags: u32, name: &str) -> io::Result<()> {
    let fd = u32::try_from(file.as_fd().as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    let mut file_name = [0; 64];
    // The last byte stays zero.
    for (to, from) in file_name.iter_mut().take(63).zip(name.bytes()) {
        *to = from;
    }
    let config = LoopConfig { fd, block_size: 0, info: LoopInfo64 { flags, file_name, ..NO_INFO }, reserved: [0; 8] };
    // SAFETY: the call reads one `loop_config`, which `config` has the layout of; the kernel takes its own reference to
    // the file, so that the descriptor may be closed afterwards.
    unsafe { raw::loop_configure(device.as_fd().as_raw_fd(), &config)? };
    Ok(())
}

/// How large an XFS is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XfsGeometry {
    /// Bytes.
    pub block_size: u32,
    pub data_blocks: u64,
    /// How much of it inodes may take at most.
    pub inode_percent: u32,
}

/// Lets the ext4 of which `root` is a directory have so many blocks (`EXT4_IOC_RESIZE_FS`).
pub fn ext4_resize(root: impl AsFd, blocks: u64) -> io::Result<()> {
    // SAFETY: the call reads one u64, and `blocks` lives until it returns.
    unsafe { raw::ext4_resize_fs(root.as_fd().as_raw_fd(), &blocks)? };
    Ok(())
}

/// How large the XFS of which `root` is a directory is (`XFS_IOC_FSGEOMETRY_V1`). ENOTTY: it is no XFS.
pub fn xfs_geometry(root: impl AsFd) -> io::Result<XfsGeometry> {
    let mut geometry = XfsOldGeometry::default();
    // SAFETY: the call writes one `xfs_fsop_geom_v1`, which `geometry` has the layout of.
    unsafe { raw::xfs_fsgeometry_v1(root.as_fd().as_raw_fd(), &mut geometry)? };
    let XfsOldGeometry { block_size, data_blocks, inode_percent, .. } = geometry;
    Ok(XfsGeometry { block_size, data_blocks, inode_percent })
}

/// Lets that XFS have so many blocks (`XFS_IOC_FSGROWFSDATA`).
pub fn xfs_grow(root: impl AsFd, blocks: u64, inode_percent: u32) -> io::Result<()> {
    let wanted = XfsGrow { blocks, inode_percent };
    // SAFETY: the call reads one `xfs_growfs_data`, which `wanted` has the layout of.
    unsafe { raw::xfs_growfsdata(root.as_fd().as_raw_fd(), &wanted)? };
    Ok(())
}

// The kernel copies by these sizes; a wrong layout must not compile.
const _: () =
    assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304 && size_of::<NvmeCommand>() == 72);
const _: () = assert!(size_of::<XfsOldGeometry>() == 112 && size_of::<XfsGrow>() == 16);
