//! The thirteen functions of libblkid that volhold calls, declared by hand.
//!
//! All have symbol versions up to `BLKID_2.23` (libblkid/src/libblkid.sym of util-linux), so that one binary runs with
//! libblkid 2.32 to 2.42, needs no libclang to build, and sees the raw return codes, whose meaning changed in 2.39.
//! This is the only file of the room with `unsafe` in it; [`Probe`] is what the rest sees.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// `BLKID_SUBLKS_*` and `BLKID_PARTS_*` of blkid.h.
pub(super) const SUBLKS_LABEL: c_int = 1 << 1;
pub(super) const SUBLKS_UUID: c_int = 1 << 3;
pub(super) const SUBLKS_TYPE: c_int = 1 << 5;
pub(super) const SUBLKS_USAGE: c_int = 1 << 7;
pub(super) const SUBLKS_VERSION: c_int = 1 << 8;
pub(super) const SUBLKS_MAGIC: c_int = 1 << 9;
pub(super) const SUBLKS_BADCSUM: c_int = 1 << 10;
pub(super) const PARTS_FORCE_GPT: c_int = 1 << 1;
pub(super) const PARTS_MAGIC: c_int = 1 << 3;

#[link(name = "blkid")]
unsafe extern "C" {
    fn blkid_new_probe() -> *mut c_void;
    fn blkid_free_probe(probe: *mut c_void);
    fn blkid_probe_set_device(probe: *mut c_void, fd: c_int, offset: c_longlong, size: c_longlong) -> c_int;
    fn blkid_probe_enable_superblocks(probe: *mut c_void, enable: c_int) -> c_int;
    fn blkid_probe_set_superblocks_flags(probe: *mut c_void, flags: c_int) -> c_int;
    fn blkid_probe_enable_partitions(probe: *mut c_void, enable: c_int) -> c_int;
    fn blkid_probe_set_partitions_flags(probe: *mut c_void, flags: c_int) -> c_int;
    fn blkid_reset_probe(probe: *mut c_void);
    fn blkid_do_safeprobe(probe: *mut c_void) -> c_int;
    fn blkid_do_probe(probe: *mut c_void) -> c_int;
    fn blkid_probe_numof_values(probe: *mut c_void) -> c_int;
    fn blkid_probe_get_value(
        probe: *mut c_void,
        num: c_int,
        name: *mut *const c_char,
        data: *mut *const c_char,
        len: *mut usize,
    ) -> c_int;
    fn blkid_get_library_version(version: *mut *const c_char, date: *mut *const c_char) -> c_int;
}

/// A libblkid prober on a borrowed descriptor, which it can therefore not outlive.
pub(super) struct Probe<'fd> {
    raw: NonNull<c_void>,
    _fd: BorrowedFd<'fd>,
}

impl<'fd> Probe<'fd> {
    /// A prober over the whole device behind `fd`; the error is the negative code of `blkid_probe_set_device`, or 0
    /// where libblkid had no memory.
    pub(super) fn new(fd: BorrowedFd<'fd>) -> Result<Self, c_int> {
        // SAFETY: takes nothing, returns null or a prober that is ours to free.
        let raw = NonNull::new(unsafe { blkid_new_probe() }).ok_or(0)?;
        let probe = Probe { raw, _fd: fd };
        // SAFETY: `raw` is a live prober; the descriptor is open as long as `probe` lives. Offset 0 and size 0 mean all of it.
        let code = unsafe { blkid_probe_set_device(raw.as_ptr(), fd.as_raw_fd(), 0, 0) };
        if code == 0 { Ok(probe) } else { Err(code) }
    }

    /// Switches both chains on with the given flags; 0 when libblkid took all of them.
    pub(super) fn enable(&self, superblocks: c_int, partitions: c_int) -> c_int {
        let raw = self.raw.as_ptr();
        // SAFETY: `raw` is a live prober, the rest are plain integers.
        let codes = unsafe {
            [
                blkid_probe_enable_superblocks(raw, 1),
                blkid_probe_set_superblocks_flags(raw, superblocks),
                blkid_probe_enable_partitions(raw, 1),
                blkid_probe_set_partitions_flags(raw, partitions),
            ]
        };
        codes.into_iter().find(|code| *code != 0).unwrap_or(0)
    }

    /// `blkid_do_safeprobe`.
    pub(super) fn safeprobe(&self) -> c_int {
        // SAFETY: `raw` is a live prober.
        unsafe { blkid_do_safeprobe(self.raw.as_ptr()) }
    }

    /// `blkid_do_probe`: the next thing found.
    pub(super) fn next(&self) -> c_int {
        // SAFETY: `raw` is a live prober.
        unsafe { blkid_do_probe(self.raw.as_ptr()) }
    }

    /// `blkid_reset_probe`: forgets results, so that a loop starts from the front.
    pub(super) fn reset(&self) {
        // SAFETY: `raw` is a live prober.
        unsafe { blkid_reset_probe(self.raw.as_ptr()) }
    }

    /// The values of the last result, copied: name, bytes.
    pub(super) fn values(&self) -> Vec<(String, Vec<u8>)> {
        let raw = self.raw.as_ptr();
        // SAFETY: `raw` is a live prober.
        let count = unsafe { blkid_probe_numof_values(raw) };
        let mut values = Vec::new();
        for num in 0..count {
            let mut name: *const c_char = std::ptr::null();
            let mut data: *const c_char = std::ptr::null();
            let mut len: usize = 0;
            // SAFETY: `raw` is a live prober and the three places are ours; libblkid fills them on success.
            let code = unsafe { blkid_probe_get_value(raw, num, &mut name, &mut data, &mut len) };
            if code != 0 || name.is_null() || data.is_null() {
                continue;
            }
            // SAFETY: on success `name` is a NUL-terminated string and `data` points to `len` bytes, both owned by the
            // prober until its next call; they are copied before that.
            let (name, data) =
                unsafe { (CStr::from_ptr(name), std::slice::from_raw_parts(data.cast::<u8>(), len.min(4096))) };
            values.push((name.to_string_lossy().into_owned(), data.to_vec()));
        }
        values
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        // SAFETY: `raw` came from blkid_new_probe and is freed only here.
        unsafe { blkid_free_probe(self.raw.as_ptr()) }
    }
}

/// `blkid_get_library_version`, e.g. `2.38.1`.
pub(super) fn version() -> String {
    let mut version: *const c_char = std::ptr::null();
    // SAFETY: libblkid stores a pointer to a static string; the date is not asked for.
    unsafe { blkid_get_library_version(&mut version, std::ptr::null_mut()) };
    if version.is_null() {
        return String::from("unknown");
    }
    // SAFETY: not null, so a static NUL-terminated string.
    unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned()
}
