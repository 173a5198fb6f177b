//! The clocks and names of this boot and machine.

use crate::model::{BootId, BootMillis};
use nix::time::{ClockId, clock_gettime};

/// `CLOCK_BOOTTIME` in milliseconds. `None` where the kernel does not answer: then nothing that expires is good.
pub fn boot_millis() -> Option<BootMillis> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
    let seconds = u64::try_from(now.tv_sec()).ok()?;
    let millis = u64::try_from(now.tv_nsec()).ok()?.checked_div(1_000_000)?;
    Some(BootMillis(seconds.checked_mul(1000)?.checked_add(millis)?))
}

/// Who writes records: this boot of this machine.
#[derive(Debug, Clone)]
pub struct Here {
    pub boot_id: BootId,
    pub machine_id: String,
}
