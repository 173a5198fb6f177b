//! Capabilities and limits.

use super::{ConfineError, Given};
use nix::sys::resource::{Resource, setrlimit};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Address space. The scan's buffers and libblkid fit many times over; a length field that was believed does not.
const ADDRESS_SPACE: u64 = 1 << 30;
/// Descriptors. A tree is read with one for each level and some files; the scan has three.
const DESCRIPTORS: u64 = 128;
/// Processor seconds for whatever has little to compute. All threads of the scan count, so this is no wall time.
const SECONDS: u64 = 600;
/// Bytes a second of processor time, far below what the slowest build does.
const SLOWEST: u64 = 4_000_000;

fn set(what: &'static str, resource: Resource, value: u64) -> Result<(), ConfineError> {
    setrlimit(resource, value, value).map_err(|errno| ConfineError::Limit { what, source: errno.into() })
}

/// For a program that prints its version. The runtime of Go reserves more address space than it uses: that is not bounded.
pub(super) fn limit_program() -> Result<(), ConfineError> {
    set("the processor time", Resource::RLIMIT_CPU, 10)?;
    set("descriptors", Resource::RLIMIT_NOFILE, DESCRIPTORS)?;
    set("the size of files", Resource::RLIMIT_FSIZE, 0)?;
    set("core dumps", Resource::RLIMIT_CORE, 0)
}

pub(super) fn limit(given: Given<'_>) -> Result<(), ConfineError> {
    set("the processor time", Resource::RLIMIT_CPU, processor_seconds(given))?;
    set("memory", Resource::RLIMIT_AS, ADDRESS_SPACE)?;
    set("descriptors", Resource::RLIMIT_NOFILE, DESCRIPTORS)?;
    // Nothing is written but the answer, which goes into a pipe.
    set("the size of files", Resource::RLIMIT_FSIZE, 0)?;
    // The memory of a reader holds what somebody keeps in etcd.
    set("core dumps", Resource::RLIMIT_CORE, 0)
}

fn processor_seconds(given: Given<'_>) -> u64 {
    let bytes = match given {
        // A size that cannot be asked for is told by whoever reads.
        Given::Bytes(fd) => rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0)).unwrap_or(0),
        Given::Tree(_) => 0,
    };
    SECONDS.saturating_add(bytes / SLOWEST)
}

/// Empties every set, and says whether the bounding set could be emptied too.
///
/// A tree keeps CAP_DAC_READ_SEARCH, where it was there: etcd's files belong to etcd's user and are closed to everybody
/// else. Where it can lead to is bounded by Landlock; what it means besides (open_by_handle_at) is no allowed call.
pub(super) fn drop_capabilities(given: Given<'_>) -> Result<bool, ConfineError> {
    let kept = match given {
        Given::Bytes(_) => CapabilitySet::empty(),
        Given::Tree(_) => CapabilitySet::DAC_READ_SEARCH,
    };
    drop_but(kept)
}

/// The same, with nothing kept.
pub(super) fn drop_all_capabilities() -> Result<bool, ConfineError> {
    drop_but(CapabilitySet::empty())
}

fn drop_but(kept: CapabilitySet) -> Result<bool, ConfineError> {
    let failed = |errno: Errno| ConfineError::Capabilities { source: errno.into() };
    let had = capabilities(None).map_err(failed)?;
    rustix::thread::clear_ambient_capability_set().map_err(failed)?;
    // Before the others: it takes CAP_SETPCAP.
    let emptied = had.effective.contains(CapabilitySet::SETPCAP);
    if emptied {
        for number in 0..u64::BITS {
            match rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
                Ok(()) => {}
                // The kernel knows no more.
                Err(Errno::INVAL) => break,
                Err(errno) => return Err(failed(errno)),
            }
        }
    }
    let kept = kept & had.permitted;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed)?;
    Ok(emptied)
}
