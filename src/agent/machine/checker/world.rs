//! The abstract world: masters, volumes, EC2 and people, small enough that every state of it can be visited.
//!
//! Everything here is `Copy` and small. What grows (ledgers, the guards themselves) is kept once in `Known` and named here by
//! its number.

use crate::model::Adoption;

/// The most volumes and masters that a scenario may have.
pub const MOST: usize = 3;

/// What stands in the data dir that etcd would open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Data {
    None,
    /// Of this member of the one cluster. `progress` 0: bootstrapped, no live key. The ids of a member that starts anew are
    /// those that it had, as they are with etcd.
    Member {
        member: u8,
        progress: u8,
    },
}

impl Data {
    pub fn lives(self) -> bool {
        matches!(self, Data::Member { progress: 1.., .. })
    }
}

/// The bytes of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Content {
    Blank,
    /// An mkfs that was cut short.
    Cut {
        uuid: u8,
    },
    Fs {
        uuid: u8,
        data: Data,
        /// Data that somebody put beside the dir that is configured.
        aside: Data,
    },
    /// The superblock does not read; the data is all there.
    Damaged,
}

/// Where EC2 has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum At {
    Nowhere,
    Coming(u8),
    Here(u8),
}

/// What the tags on a volume say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tags {
    pub volume: u8,
    pub fs: Option<u8>,
    pub pin: Option<u8>,
    /// With `true`: how far it got, too.
    pub mark: Option<(Data, bool)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Volume {
    pub content: Content,
    /// `.volhold` on it: a number of `Known::ledgers`. Dies with its filesystem.
    pub ledger: u32,
    pub at: At,
    /// Counts attachments, as `diskseq` does.
    pub seq: u8,
    /// How many filesystems were made on it: gives the next one its UUID.
    pub made: u8,
    pub tags: Option<Tags>,
    pub young: bool,
    pub from_snapshot: bool,
    /// Whose member it is for EC2's tags.
    pub slot: u8,
    /// A person, or a tool of theirs, has the device on its node.
    pub person: bool,
    /// Progress that the page cache has and the disk has not.
    pub unsynced: bool,
    /// For the properties only: it ever held data.
    pub held: bool,
    /// For the properties only: the furthest data of it that any ledger was told of.
    pub told: Data,
    /// For the properties only: a person has answered while there was data beside.
    pub beside: bool,
    /// For the properties only: it is a copy of another volume, and no person has said so to a guard.
    pub copy: bool,
    /// For the properties only: the last answer that a person gave about it, until a gate opened on it.
    pub consent: Option<Adoption>,
}

/// What the agent has in its hands, besides its guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Agent {
    /// A number of `Known::guards`.
    pub guard: u32,
    /// What is to be done: a number of `Known::queues`.
    pub queue: u32,
    pub whereabouts: Option<u8>,
    /// The open descriptor: volume and attachment.
    pub device: Option<(u8, u8)>,
    pub claimed: bool,
    pub mount: bool,
    pub filesystem: Option<u8>,
    /// What the first reading saw, for the second one to compare.
    pub read: Option<Content>,
    /// For the properties only: what was looked at last through a mount of this very attachment.
    pub looked: Option<(u8, u8, Content)>,
}

/// An instance, its disk and its agent. One that dies is replaced by another with an empty disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Master {
    /// Which one in this place; ledgers of another one are not its own.
    pub instance: u8,
    pub boot: u8,
    /// A number of `Known::ledgers`.
    pub ledger: u32,
    /// Entries that this instance has made: gives the next one its id.
    pub entries: u8,
    /// The volume that EC2's tags give to it.
    pub wants: u8,
    pub agent: Option<Agent>,
    /// Published, with the attachment that was mounted.
    pub mounted: Option<(u8, u8)>,
    /// The ready file of this boot; `true`: of a fresh start.
    pub gate: Option<bool>,
    pub etcd: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct World {
    pub volumes: [Option<Volume>; MOST],
    pub masters: [Option<Master>; MOST],
    /// How much may still go wrong.
    pub faults: u8,
}

impl World {
    pub fn volume(&self, v: u8) -> &Volume {
        self.volumes[usize::from(v)].as_ref().expect("a volume of the scenario")
    }

    pub fn volume_mut(&mut self, v: u8) -> &mut Volume {
        self.volumes[usize::from(v)].as_mut().expect("a volume of the scenario")
    }

    pub fn master(&self, m: u8) -> &Master {
        self.masters[usize::from(m)].as_ref().expect("a master of the scenario")
    }

    pub fn master_mut(&mut self, m: u8) -> &mut Master {
        self.masters[usize::from(m)].as_mut().expect("a master of the scenario")
    }

    pub fn agent(&self, m: u8) -> Agent {
        self.master(m).agent.expect("a running agent")
    }

    pub fn agent_mut(&mut self, m: u8) -> &mut Agent {
        self.master_mut(m).agent.as_mut().expect("a running agent")
    }

    pub fn all_volumes(&self) -> impl Iterator<Item = u8> + use<> {
        let there = self.volumes.map(|volume| volume.is_some());
        (0..).zip(there).filter(|(_, there)| *there).map(|(v, _)| v)
    }

    pub fn all_masters(&self) -> impl Iterator<Item = u8> + use<> {
        let there = self.masters.map(|master| master.is_some());
        (0..).zip(there).filter(|(_, there)| *there).map(|(m, _)| m)
    }

    /// The attachment that was opened is still the one that is there.
    pub fn live(&self, m: u8, device: (u8, u8)) -> bool {
        let volume = self.volume(device.0);
        volume.at == At::Here(m) && volume.seq == device.1
    }

    /// The device that the agent has open, if it is still there.
    pub fn device(&self, m: u8) -> Option<u8> {
        self.agent(m).device.filter(|device| self.live(m, *device)).map(|(v, _)| v)
    }

    /// The volume that is published, if its device is still there.
    pub fn published(&self, m: u8) -> Option<u8> {
        self.master(m).mounted.filter(|device| self.live(m, *device)).map(|(v, _)| v)
    }

    /// Somebody on a node uses the device: a mount, a claim, a person.
    pub fn in_use(&self, v: u8) -> bool {
        self.volume(v).person
            || self.all_masters().any(|m| {
                self.published(m) == Some(v)
                    || self.master(m).agent.is_some_and(|agent| agent.claimed && self.device(m) == Some(v))
            })
    }

    /// It leaves the node that it is at; whatever used it there has nothing any more.
    pub fn detach(&mut self, v: u8) {
        let volume = self.volume_mut(v);
        volume.at = At::Nowhere;
        volume.person = false;
        for m in self.all_masters() {
            if self.master(m).mounted.is_some_and(|(mounted, _)| mounted == v) {
                self.master_mut(m).etcd = false;
            }
        }
        self.lose_unsynced(v);
    }

    /// What the page cache had of it is gone.
    pub fn lose_unsynced(&mut self, v: u8) {
        let volume = self.volume_mut(v);
        if !std::mem::take(&mut volume.unsynced) {
            return;
        }
        if let Content::Fs { data: Data::Member { progress, .. }, .. } = &mut volume.content {
            *progress -= 1;
            // Nobody was told that it was there: etcd has acknowledged nothing of it.
            volume.held = *progress > 0 || volume.told != Data::None;
        }
    }

    pub fn attached(&mut self, v: u8, m: u8) {
        let volume = self.volume_mut(v);
        volume.at = At::Here(m);
        volume.seq += 1;
    }
}
