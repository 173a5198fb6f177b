//! Children that are just being started. Until such a child becomes its program it has a copy of every descriptor of this
//! process, a claim's among them; who lets a device go in that moment leaves it busy, and a mount is refused.

use std::sync::{PoisonError, RwLock};

static STARTING: RwLock<()> = RwLock::new(());

/// Starts a child. `start` must return only when it has become its program, as `spawn` of std and tokio does.
pub fn starting<T>(start: impl FnOnce() -> T) -> T {
    let _starting = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    start()
}

/// Closes a descriptor of which no copy may be left: while no child is being started.
pub fn while_none_starts<T>(close: impl FnOnce() -> T) -> T {
    let _none = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    close()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Other tests of this process take the lock as well: only what holds whoever else does is asked.
    #[test]
    fn nothing_is_closed_while_a_child_is_being_started_and_none_is_started_while_something_is_closed() {
        assert!(starting(|| STARTING.try_write().is_err()));
        assert!(while_none_starts(|| STARTING.try_read().is_err()));
    }
}
