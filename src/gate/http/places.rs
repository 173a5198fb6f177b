//! How many clients there may be at once. A place is given back when it is dropped.

use super::Limits;
use super::peer::Peer;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All places.
#[derive(Debug, Clone)]
pub(super) struct Places {
    limits: Limits,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    by_owner: usize,
    /// By user; users without a place are not in it.
    by_others: BTreeMap<Option<u32>, usize>,
    by_tcp: usize,
}

/// One client's.
#[derive(Debug)]
pub(super) struct Place {
    of: Of,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Clone, Copy)]
enum Of {
    Owner,
    /// `None`: nobody knows whom.
    Other(Option<u32>),
    Tcp,
}

impl Places {
    pub(super) fn new(limits: &Limits) -> Self {
        Places { limits: limits.clone(), taken: Arc::default() }
    }

    /// `None`: there is none left for this client.
    pub(super) fn take(&self, peer: &Peer) -> Option<Place> {
        let of = match peer {
            Peer::Tcp(_) => Of::Tcp,
            Peer::User { .. } if peer.is_owner() => Of::Owner,
            Peer::User { uid, .. } => Of::Other(Some(*uid)),
            Peer::Unknown => Of::Other(None),
        };
        let mut taken = lock(&self.taken);
        let others: usize = taken.by_others.values().sum();
        let all = others.saturating_add(taken.by_owner);
        let limits = &self.limits;
        let fits = match of {
            Of::Owner => all < limits.connections,
            Of::Other(user) => {
                let own = taken.by_others.get(&user).copied().unwrap_or(0);
                own < limits.one_user && others < limits.others && all < limits.connections
            }
            Of::Tcp => taken.by_tcp < limits.tcp,
        };
        if !fits {
            return None;
        }
        let count = taken.count(of);
        *count = count.saturating_add(1);
        Some(Place { of, taken: self.taken.clone() })
    }
}

impl Taken {
    fn count(&mut self, of: Of) -> &mut usize {
        match of {
            Of::Owner => &mut self.by_owner,
            Of::Other(user) => self.by_others.entry(user).or_default(),
            Of::Tcp => &mut self.by_tcp,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        let count = taken.count(self.of);
        *count = count.saturating_sub(1);
        taken.by_others.retain(|_, count| *count > 0);
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    // Numbers stay right whoever panicked.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
    use super::*;

    fn user(uid: u32) -> Peer {
        Peer::User { uid, gid: uid, pid: None }
    }

    #[test]
    fn no_user_takes_anothers_place_and_all_together_none_of_roots() {
        let limits = Limits { connections: 6, others: 4, one_user: 3, tcp: 1, ..Limits::default() };
        let places = Places::new(&limits);
        let mut held: Vec<Place> = (0..3).map(|_| places.take(&user(4_000_001)).unwrap()).collect();
        assert!(places.take(&user(4_000_001)).is_none(), "one user has no more than three");
        held.push(places.take(&user(4_000_002)).unwrap());
        assert!(places.take(&user(4_000_003)).is_none(), "others have no more than four");
        assert!(places.take(&Peer::Unknown).is_none());
        let tcp = Peer::Tcp("127.0.0.1:1".parse().unwrap());
        let _tcp = places.take(&tcp).unwrap();
        assert!(places.take(&tcp).is_none());
        let roots = [places.take(&user(0)).unwrap(), places.take(&user(0)).unwrap()];
        assert!(places.take(&user(0)).is_none());
        held.pop();
        drop(roots);
        assert!(places.take(&user(4_000_003)).is_some(), "a place comes back");
        drop(held);
        assert!(lock(&places.taken).by_others.is_empty(), "users who are gone leave nothing behind");
    }
}
