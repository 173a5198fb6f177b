//! What stands against starting, in the order of telling, and which answer of a person lifts it.

use crate::model::{Adoption, Reason};

/// What an objection is about. The order is the order of telling: what is certain and explains the rest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// This is another volume, or a copy of one.
    OtherVolume,
    /// The filesystem is not the one that records name.
    OtherFilesystem,
    /// Something could not be read, or the ledger cannot be trusted.
    Unread,
    /// etcd would not start on it, or would lose something.
    Damage,
    /// The data that a record speaks of is not there.
    Vanished,
    /// Nothing, or far less, where another dir holds more.
    BesideOld,
    /// Another cluster than the pinned one.
    OtherCluster,
    /// Another member than the pinned one.
    OtherMember,
    /// Two ledgers pin different identities.
    PinsContradict,
    /// Older than what was noted.
    Backwards,
    /// The etcd that is to run cannot open it, or not yet.
    Version,
    /// Contradicts the configuration, which a person can change.
    Configured,
    /// Somebody else has it, or nothing says which dir is meant.
    Unclear,
    /// Nothing is there, and nothing says that this is right.
    NotFresh,
}

impl Kind {
    /// Does this answer lift the objection? `populated`: the selected dir holds data.
    fn lifted_by(self, answer: Adoption, populated: bool) -> bool {
        match answer {
            // "What is there now is right": there must be something.
            Adoption::Identity => match self {
                Kind::OtherFilesystem
                | Kind::BesideOld
                | Kind::OtherCluster
                | Kind::OtherMember
                | Kind::PinsContradict
                | Kind::Backwards
                | Kind::Version => populated,
                Kind::OtherVolume
                | Kind::Unread
                | Kind::Damage
                | Kind::Vanished
                | Kind::Configured
                | Kind::Unclear
                | Kind::NotFresh => false,
            },
            // "This is a restored copy": under another volume's id, of an earlier time.
            Adoption::Restored => match self {
                Kind::OtherVolume | Kind::OtherFilesystem | Kind::Backwards => populated,
                Kind::Unread
                | Kind::Damage
                | Kind::Vanished
                | Kind::BesideOld
                | Kind::OtherCluster
                | Kind::OtherMember
                | Kind::PinsContradict
                | Kind::Version
                | Kind::Configured
                | Kind::Unclear
                | Kind::NotFresh => false,
            },
            // "A new cluster starts here, beside or instead of the old."
            Adoption::NewCluster => match self {
                Kind::OtherFilesystem
                | Kind::Vanished
                | Kind::BesideOld
                | Kind::OtherCluster
                | Kind::OtherMember
                | Kind::PinsContradict
                | Kind::NotFresh => true,
                Kind::OtherVolume
                | Kind::Unread
                | Kind::Damage
                | Kind::Backwards
                | Kind::Version
                | Kind::Configured
                | Kind::Unclear => false,
            },
            // "This member starts empty and rejoins": the same cluster.
            Adoption::Replacement => match self {
                Kind::OtherFilesystem | Kind::Vanished | Kind::BesideOld | Kind::OtherMember | Kind::NotFresh => true,
                Kind::OtherVolume
                | Kind::Unread
                | Kind::Damage
                | Kind::OtherCluster
                | Kind::PinsContradict
                | Kind::Backwards
                | Kind::Version
                | Kind::Configured
                | Kind::Unclear => false,
            },
        }
    }

    /// Does etcd-manager's own migration, which only it can end, account for this?
    fn explained_by_migration(self) -> bool {
        match self {
            Kind::Vanished | Kind::BesideOld | Kind::OtherCluster | Kind::OtherMember | Kind::NotFresh => true,
            Kind::OtherVolume
            | Kind::OtherFilesystem
            | Kind::Unread
            | Kind::Damage
            | Kind::PinsContradict
            | Kind::Backwards
            | Kind::Version
            | Kind::Configured
            | Kind::Unclear => false,
        }
    }

    /// Worth telling while an etcd runs on the dir? What is read beside a writer is no proof of damage, and its lock is its
    /// own.
    fn told_beside_a_running_etcd(self) -> bool {
        match self {
            Kind::OtherVolume
            | Kind::OtherFilesystem
            | Kind::Vanished
            | Kind::BesideOld
            | Kind::OtherCluster
            | Kind::OtherMember
            | Kind::PinsContradict
            | Kind::Configured => true,
            Kind::Unread | Kind::Damage | Kind::Backwards | Kind::Version | Kind::Unclear | Kind::NotFresh => false,
        }
    }
}

/// One objection.
#[derive(Debug)]
pub struct Objection {
    pub kind: Kind,
    pub reason: Reason,
}

/// All objections so far.
#[derive(Debug, Default)]
pub struct Objections(Vec<Objection>);

impl Objections {
    pub fn add(&mut self, kind: Kind, reason: Reason) {
        self.0.push(Objection { kind, reason });
    }

    pub fn has(&self, kind: Kind) -> bool {
        self.0.iter().any(|objection| objection.kind == kind)
    }

    /// Takes out what a person's answer speaks of.
    pub fn lift(&mut self, answer: Option<Adoption>, populated: bool) {
        if let Some(answer) = answer {
            self.0.retain(|objection| !objection.kind.lifted_by(answer, populated));
        }
    }

    /// Takes out, and returns, what a migration under way accounts for.
    pub fn explain_by_migration(&mut self) -> Vec<Objection> {
        let (explained, left) =
            std::mem::take(&mut self.0).into_iter().partition(|objection| objection.kind.explained_by_migration());
        self.0 = left;
        explained
    }

    pub fn told_beside_a_running_etcd(self) -> Vec<Reason> {
        let mut told = self;
        told.0.retain(|objection| objection.kind.told_beside_a_running_etcd());
        told.into_reasons()
    }

    /// Sorted by kind, within it in the order of asking.
    pub fn into_reasons(mut self) -> Vec<Reason> {
        self.0.sort_by_key(|objection| objection.kind);
        self.0.into_iter().map(|objection| objection.reason).collect()
    }
}
