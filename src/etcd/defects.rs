//! What can be wrong in a data dir: every code, how grave it is, and which reason it gives for a hold.

use crate::model::{Defect, ReasonCode, Severity};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $severity:ident, $reason:ident;)*) => {
        /// A defect's code. Codes are stable: added, never renamed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(Code::$name => Severity::$severity,)* }
            }
        }

        /// The reason that a defect of severity `damage` gives for holding. A code that this version does not know (from
        /// another version's record) is `unreadable`: unknown is never healthy.
        pub fn defect_reason_code(code: &str) -> ReasonCode {
            match code {
                $($text => ReasonCode::$reason,)*
                _ => ReasonCode::Unreadable,
            }
        }

        /// Every code there is.
        pub fn defect_codes() -> Vec<&'static str> {
            ALL.iter().map(|code| code.as_str()).collect()
        }

        const ALL: &[Code] = &[$(Code::$name,)*];
    };
}

codes! {
    /// The log ends before what the backend has applied, or is not there: etcd would start and lose every write until its
    /// index has caught up (3.4, 3.5), or never become healthy (3.6).
    WalBehindBackend = "wal-behind-backend", Damage, WalBehindBackend;
    /// v2: the newest snapshot is newer than the log.
    WalBehindSnapshot = "wal-behind-snapshot", Damage, WalDamaged;
    /// A file or entries are missing in the middle or at the beginning.
    WalGap = "wal-gap", Damage, WalDamaged;
    /// A checksum is wrong and the record is not a torn write.
    WalCrc = "wal-crc", Damage, WalDamaged;
    /// A length field that no etcd wrote: older versions refuse it, newer ones drop what follows.
    WalLength = "wal-length", Damage, WalDamaged;
    /// A record that cannot be decoded or has no business there.
    WalRecord = "wal-record", Damage, WalDamaged;
    /// Files of different members or clusters in one log.
    WalConflictingMetadata = "wal-conflicting-metadata", Damage, WalDamaged;
    /// A log file without a record, or no file with a name that etcd reads.
    WalEmpty = "wal-empty", Damage, WalDamaged;
    /// The log belongs to a member that backend and snapshot do not know.
    WalOfOtherMember = "wal-of-other-member", Damage, WalDamaged;
    /// The last record was torn by a power cut; etcd cuts it off.
    WalTornTail = "wal-torn-tail", Warning, WalDamaged;
    /// Bytes behind the end of the log; etcd zeroes them.
    WalBeyondEnd = "wal-beyond-end", Warning, WalDamaged;
    /// No backend though log or snapshots are those of etcd 3.
    BackendMissing = "backend-missing", Damage, BackendDamaged;
    /// Neither meta page is valid.
    BackendUnreadable = "backend-unreadable", Damage, BackendDamaged;
    /// A page on the way is wrong.
    BackendPage = "backend-page", Damage, BackendDamaged;
    /// Pages are sound, what they hold is not etcd's.
    BackendContent = "backend-content", Damage, BackendDamaged;
    /// Backend and snapshots have no member in common.
    BackendOfOtherCluster = "backend-of-other-cluster", Damage, BackendDamaged;
    /// One meta page is bad: the last commit is lost, the log replays it.
    BackendOneMeta = "backend-one-meta", Warning, BackendDamaged;
    /// The newest snapshot is newer than the backend, and the backend that came with it is not there.
    SnapshotWithoutBackend = "snapshot-without-backend", Damage, SnapshotDamaged;
    /// The log begins after the newest usable snapshot.
    SnapshotMissing = "snapshot-missing", Damage, SnapshotDamaged;
    /// A snapshot file is bad; an older one or the log makes up for it.
    SnapshotBad = "snapshot-bad", Warning, SnapshotDamaged;
    /// `member` is no directory.
    MemberIsFile = "member-is-file", Damage, Unreadable;
    /// Both `proxy` and `member`: etcd 2 to 3.5 refuse.
    ProxyAndMember = "proxy-and-member", Damage, Unreadable;
    /// Something could not be looked at.
    Unreadable = "unreadable", Damage, Unreadable;
    /// The dir changed faster than it could be read.
    ChangedWhileRead = "changed-while-read", Damage, Unreadable;
    /// A file that an interrupted operation left, or that etcd ignores.
    Leftover = "leftover", Info, Unreadable;
}

impl Code {
    /// A defect with this code. `file` is relative to the data dir.
    pub fn at(self, file: &str, offset: Option<u64>, message: impl Into<String>) -> Defect {
        Defect {
            code: self.as_str().to_owned(),
            severity: self.severity(),
            file: file.to_owned(),
            offset,
            message: message.into(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_unique_and_leads_to_a_reason_of_its_room() {
        for (n, code) in ALL.iter().enumerate() {
            assert!(ALL.iter().skip(n + 1).all(|other| other.as_str() != code.as_str()), "{code:?} twice");
            let reason = defect_reason_code(code.as_str());
            let fits = match code.as_str().split('-').next() {
                Some("wal") => matches!(reason, ReasonCode::WalDamaged | ReasonCode::WalBehindBackend),
                Some("backend") => reason == ReasonCode::BackendDamaged,
                Some("snapshot") => reason == ReasonCode::SnapshotDamaged,
                _ => reason == ReasonCode::Unreadable,
            };
            assert!(fits, "{code:?} gives {reason:?}");
        }
    }

    #[test]
    fn a_code_from_another_version_is_unreadable() {
        assert_eq!(defect_reason_code("from-the-future"), ReasonCode::Unreadable);
    }
}
