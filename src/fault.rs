//! Named points of the way at which a test lets the agent die, to see what the next one makes of what is left.
//!
//! Only with the feature `fault-points`, which no package is built with: without it the functions are empty and nothing of
//! this is in the program. With it, `VOLHOLD_CRASH_AT=NAME` makes the process kill itself with SIGKILL the first time it
//! comes to the point `NAME`, `NAME:3` the third time. There is no unwinding, no destructor and no flush: what a crash of
//! the program leaves is left. (What a power cut leaves is another matter: here the kernel keeps what was written.)
//!
//! `VOLHOLD_STALL_AT=NAME` lets whoever comes to the point stand still there, as in a syscall that does not come back;
//! `VOLHOLD_PANIC_AT=NAME` lets it panic.

#[cfg(feature = "fault-points")]
pub use armed::{fault_point, fault_point_in_child};

/// The agent may die here.
#[cfg(not(feature = "fault-points"))]
#[inline(always)]
pub fn fault_point(_name: &'static str) {}

/// The agent may die here, and a tool that it has just started with it, as a whole service does.
#[cfg(not(feature = "fault-points"))]
#[inline(always)]
pub fn fault_point_in_child(_program: &std::path::Path, _pid: u32) {}

#[cfg(feature = "fault-points")]
mod armed {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    const CRASH: &str = "VOLHOLD_CRASH_AT";
    const STALL: &str = "VOLHOLD_STALL_AT";
    const PANIC: &str = "VOLHOLD_PANIC_AT";
    static SEEN: AtomicU64 = AtomicU64::new(0);

    /// The number behind the name, where this is the point that was asked for.
    fn asked(variable: &str, name: &str) -> Option<u64> {
        let wanted = std::env::var(variable).ok()?;
        let (wanted, number) = wanted.split_once(':').unwrap_or((&wanted, "1"));
        (wanted == name).then(|| number.parse().unwrap_or(1))
    }

    pub fn fault_point(name: &'static str) {
        if asked(STALL, name).is_some() {
            loop {
                std::thread::park();
            }
        }
        assert!(asked(PANIC, name).is_none(), "a test asked for it");
        if let Some(number) = asked(CRASH, name)
            && SEEN.fetch_add(1, Ordering::SeqCst).saturating_add(1) == number
        {
            die();
        }
    }

    /// The point is `during-PROGRAM`; its number is how many bytes the program must have written by then.
    pub fn fault_point_in_child(program: &Path, pid: u32) {
        let name = program.file_name().map(|name| format!("during-{}", name.display())).unwrap_or_default();
        let Some(bytes) = asked(CRASH, &name) else { return };
        while written(pid).is_some_and(|written| written < bytes) {
            std::thread::yield_now();
        }
        if let Ok(pid) = i32::try_from(pid) {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        die();
    }

    /// `None`: it has ended.
    fn written(pid: u32) -> Option<u64> {
        // One that has ended and was not waited for still has its numbers, but no program any more.
        std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        io.lines().find_map(|line| line.strip_prefix("wchar: "))?.trim().parse().ok()
    }

    fn die() {
        let _ = kill(Pid::this(), Signal::SIGKILL);
        loop {
            // The signal is on its way.
            std::thread::park();
        }
    }
}
