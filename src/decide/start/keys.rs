//! How many live keys a data dir holds, and whether that is far less than another one holds.

use super::words::{counted, grouped};
use crate::model::{DataDirReport, EtcdGeneration};

/// Live keys of both stores. `None`: nobody could count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    v3: Option<u64>,
    /// The count stopped there: "at least".
    v3_capped: bool,
    /// Keys of the v2 store, which a dir of etcd 3 may have besides.
    v2: Option<u64>,
}

impl Keys {
    pub fn of(dir: &DataDirReport) -> Self {
        let nothing = Keys { v3: Some(0), v3_capped: false, v2: Some(0) };
        let Some(fingerprint) = &dir.fingerprint else {
            return if dir.populated { Keys { v3: None, v3_capped: false, v2: None } } else { nothing };
        };
        let v2 = match &fingerprint.v2 {
            Some(facts) => facts.keys,
            None => Some(0),
        };
        match dir.etcd {
            EtcdGeneration::V2 => Keys { v2, ..nothing },
            EtcdGeneration::V3 => Keys { v3: fingerprint.keys, v3_capped: fingerprint.keys_capped, v2 },
            EtcdGeneration::Empty | EtcdGeneration::None => nothing,
        }
    }

    /// Both stores together.
    pub fn all(&self) -> Option<u64> {
        self.v3.zip(self.v2).map(|(v3, v2)| v3.saturating_add(v2))
    }

    /// Are these fewer than `percent` of the others? `None`: the others cannot be counted.
    ///
    /// What the others hold in the v3 store is compared with the v3 store alone, since the v2 store that a migration leaves
    /// behind makes up for nothing; what they hold in the v2 store may have moved to the v3 store meanwhile.
    pub fn are_far_behind(&self, others: &Keys, percent: u8) -> Option<bool> {
        let theirs = others.v3?;
        if theirs > 0 {
            let Some(mine) = self.v3 else { return Some(true) };
            // "At least 10,000" against a number: what the share is cannot be known, only that it is less.
            let capped = others.v3_capped && !self.v3_capped && mine < theirs;
            return Some(capped || !at_least(mine, theirs, percent));
        }
        let theirs = others.v2?;
        match self.all() {
            Some(mine) => Some(!at_least(mine, theirs, percent)),
            None => Some(theirs > 0),
        }
    }

    /// "12 live keys", "at least 10,000 live keys", "30 v2 keys".
    pub fn in_words(&self) -> String {
        let v3 = match (self.v3, self.v3_capped) {
            (Some(keys), true) => format!("at least {} live keys", grouped(keys)),
            (Some(keys), false) => counted(keys, "live key"),
            (None, true | false) => "live keys not counted".to_owned(),
        };
        match (self.v3, self.v2) {
            (Some(_) | None, Some(0)) => v3,
            (Some(0), Some(v2)) => counted(v2, "v2 key"),
            (Some(_) | None, Some(v2)) => format!("{v3} and {}", counted(v2, "v2 key")),
            (Some(0), None) => "v2 keys not counted".to_owned(),
            (Some(_) | None, None) => format!("{v3}, v2 keys not counted"),
        }
    }
}

/// Is `part` at least `percent` of `whole`?
pub fn at_least(part: u64, whole: u64, percent: u8) -> bool {
    u128::from(part).saturating_mul(100) >= u128::from(whole).saturating_mul(u128::from(percent))
}
