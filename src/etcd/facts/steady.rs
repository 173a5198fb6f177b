//! Reading a backend that an etcd writes to, without its lock.
//!
//! bbolt never writes into a page that the newest committed tree reaches: what transaction N + 1 writes goes to pages that
//! are free in N, and its meta page comes last (bbolt v1.4.3 `tx.go` Commit, `db.go` freePages). So what was read is one state of
//! the database if the same meta pages stand there before and after.

use std::time::Duration;

/// Times that it is read before it is called unstable.
const ATTEMPTS: u32 = 8;
/// etcd commits every 100 ms while it is written to. So long a commit is waited for …
const LOOKS: u32 = 75;
/// … looking that often.
const LOOK: Duration = Duration::from_millis(2);

/// Looks until `state` is the same before and after, and the look says something. `None`: it never was.
pub(super) fn steady<S: PartialEq, T>(state: impl Fn() -> S, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut before = state();
    for _ in 0..ATTEMPTS {
        let seen = look();
        let after = state();
        if before == after && seen.is_some() {
            return seen;
        }
        // Right after a commit there is the most time until the next.
        before = after;
        for _ in 0..LOOKS {
            std::thread::sleep(LOOK);
            let now = state();
            if now != before {
                before = now;
                break;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_moved_while_it_was_read_is_read_again_and_never_given() {
        let (state, looks) = (Cell::new(0), Cell::new(0));
        let seen = steady(
            || state.get(),
            || {
                looks.set(looks.get() + 1);
                // Moves under the first two looks.
                state.set(state.get() + i32::from(looks.get() < 3));
                Some(looks.get())
            },
        );
        assert_eq!(seen, Some(3));
        let seen = steady(
            || state.get(),
            || {
                state.set(state.get() + 1);
                Some(())
            },
        );
        assert_eq!(seen, None);
    }

    #[test]
    fn a_look_that_says_nothing_is_taken_again() {
        let looks = Cell::new(0);
        let seen = steady(
            || (),
            || {
                looks.set(looks.get() + 1);
                (looks.get() == 2).then_some(())
            },
        );
        assert_eq!((seen, looks.get()), (Some(()), 2));
    }
}
