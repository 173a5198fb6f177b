//! What the world names by number, and the bridge to the real code: `record::fold` and `step` are called here, once for
//! each different question.

use super::readings;
use super::world::{Content, Data, MOST, Tags};
use crate::agent::machine::{Action, Guard, GuardPolicy, step};
use crate::decide::format::FormatPermit;
use crate::model::{Adoption, Entry, EntryId, Fact, Records};
use std::collections::HashMap;
use std::hash::Hash;

/// Gives equal things the same number.
#[derive(Debug)]
pub struct Numbers<K, V> {
    by_key: HashMap<K, u32>,
    values: Vec<V>,
}

impl<K: Eq + Hash, V> Numbers<K, V> {
    fn new() -> Self {
        Numbers { by_key: HashMap::new(), values: Vec::new() }
    }

    fn number(&mut self, key: K, value: V) -> u32 {
        let next = u32::try_from(self.values.len()).expect("few enough");
        *self.by_key.entry(key).or_insert_with(|| {
            self.values.push(value);
            next
        })
    }

    pub fn get(&self, number: u32) -> &V {
        &self.values[number as usize]
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }
}

/// A fact as far as the fold looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Told {
    Intent {
        uuid: u8,
        seq: u8,
    },
    Formatted {
        uuid: u8,
    },
    Fresh,
    Pinned {
        member: u8,
        adopted: bool,
    },
    /// Seen when the gate was to open; how far it got is not durable then, and not told.
    Seen(Data),
    /// A mark: read, made durable, noted.
    Holds(Data),
    Changed {
        from: u8,
        to: u8,
    },
    Adopted(Adoption),
    Released,
    Retried,
    /// Kept once: the fold does not look at it, only `Memory::volumes` does.
    Published,
}

/// An entry of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Line {
    /// Place, instance and number of the entry.
    pub id: (u8, u8, u8),
    pub boot: u8,
    pub volume: u8,
    pub fs: Option<u8>,
    pub told: Told,
}

/// What the driver does, one piece at a time: between any two of them it may be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Job {
    Find,
    Bring,
    Claim,
    Probe,
    Reread,
    ReadLedger,
    /// The intent is kept; then mkfs runs in two halves; then the fact is kept.
    Intent {
        seq: u8,
    },
    Mkfs {
        uuid: u8,
        seq: u8,
    },
    MkfsEnds {
        uuid: u8,
    },
    Made {
        uuid: u8,
    },
    Fsck,
    Mount,
    Look,
    LookThroughMount,
    /// The facts are kept on the node, then on the volume, then the mount is moved.
    Publish {
        facts: u16,
    },
    PublishOnVolume {
        facts: u16,
    },
    Move,
    Open {
        facts: u16,
        fresh: bool,
        running: bool,
    },
    OpenOnVolume {
        facts: u16,
        fresh: bool,
        running: bool,
    },
    OpenFile {
        fresh: bool,
        running: bool,
    },
    Record {
        facts: u16,
    },
    RecordOnVolume {
        facts: u16,
    },
    Secure,
    LetGo,
}

/// What an action brought, in full: from it alone the real event is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    LookAgain,
    Found {
        master: u8,
        boot: (u8, u8),
        volume: u8,
        seq: u8,
        records: u32,
        used: bool,
        mounted: bool,
        gate: bool,
        /// What EC2 said of it when it was asked where it is.
        provider: Option<Provider>,
    },
    NotHere,
    NotFound,
    Brought,
    Waits,
    Known(Provider),
    /// EC2 did not say.
    NotKnown,
    Claimed(bool),
    Read {
        content: Content,
        encrypted: bool,
    },
    Unread,
    Reread {
        same: bool,
    },
    Remembered {
        records: u32,
    },
    NotRemembered,
    Made(Option<u8>),
    Checked(bool),
    Mounted(bool),
    Looked {
        volume: u8,
        content: Content,
        records: u32,
        running: bool,
        /// What EC2 says: tags, young, an older sibling. `None`: nothing.
        provider: Option<(Option<Tags>, bool, bool)>,
    },
    /// The root of the volume could not be opened.
    NotLooked {
        volume: u8,
        records: u32,
    },
    Published(bool),
    Marked {
        data: Data,
        records: u32,
    },
}

/// What EC2 knows of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Provider {
    pub tags: Option<Tags>,
    pub encrypted: bool,
    pub young: bool,
    pub from_snapshot: bool,
}

/// Everything that has a number.
pub struct Known {
    pub ledgers: Numbers<Vec<Line>, Vec<Line>>,
    pub facts: Numbers<Vec<Told>, Vec<Told>>,
    pub queues: Numbers<Vec<Job>, Vec<Job>>,
    pub guards: Numbers<String, Guard>,
    pub records: Numbers<String, Records>,
    folded: HashMap<(u32, u32, u8, Option<u8>, bool), u32>,
    stepped: HashMap<(u32, Answer), (u32, u32)>,
    pub policy: GuardPolicy,
}

impl Known {
    pub fn new(policy: GuardPolicy) -> Self {
        let mut known = Known {
            ledgers: Numbers::new(),
            facts: Numbers::new(),
            queues: Numbers::new(),
            guards: Numbers::new(),
            records: Numbers::new(),
            folded: HashMap::new(),
            stepped: HashMap::new(),
            policy,
        };
        assert_eq!((known.ledger(Vec::new()), known.queue(Vec::new())), (0, 0));
        known
    }

    pub fn ledger(&mut self, lines: Vec<Line>) -> u32 {
        self.ledgers.number(lines.clone(), lines)
    }

    pub fn lines(&self, ledger: u32) -> &[Line] {
        self.ledgers.get(ledger)
    }

    pub fn queue(&mut self, jobs: Vec<Job>) -> u32 {
        self.queues.number(jobs.clone(), jobs)
    }

    pub fn told(&self, facts: u16) -> &[Told] {
        self.facts.get(facts.into())
    }

    pub fn guard(&mut self, guard: Guard) -> u32 {
        self.guards.number(format!("{guard:?}"), guard)
    }

    /// What node and volume say of this volume, by the real fold.
    pub fn fold(&mut self, node: u32, on_volume: u32, volume: u8, fs: Option<u8>, same_allowance: bool) -> u32 {
        let key = (node, on_volume, volume, fs, same_allowance);
        if let Some(records) = self.folded.get(&key) {
            return *records;
        }
        let entries =
            |ledger: u32| -> Vec<(EntryId, Entry)> { self.lines(ledger).iter().map(readings::entry).collect() };
        let uuid = fs.map(readings::uuid);
        let mut records = crate::record::fold(&entries(node), &entries(on_volume), &readings::volume_id(volume), uuid);
        if same_allowance {
            // `agent::same_allowance`: this boot's own gate is open on it.
            records.fresh_allowed.retain(|allowed| Some(*allowed) != uuid);
        }
        let number = self.records.number(format!("{records:?}"), records);
        self.folded.insert(key, number);
        number
    }

    /// One step of the real machine.
    pub fn step(&mut self, guard: u32, answer: Answer) -> (u32, Vec<Job>) {
        if let Some((next, queue)) = self.stepped.get(&(guard, answer)) {
            return (*next, self.queues.get(*queue).clone());
        }
        let event = readings::event(self, &answer);
        let (next, actions) = step(self.guards.get(guard).clone(), event);
        let next = self.guard(next);
        let jobs: Vec<Job> = actions.into_iter().filter_map(|action| self.job(action)).collect();
        let queue = self.queue(jobs.clone());
        self.stepped.insert((guard, answer), (next, queue));
        (next, jobs)
    }

    fn kept(&mut self, facts: &[Fact]) -> u16 {
        let told: Vec<Told> = facts.iter().filter_map(readings::told).collect();
        u16::try_from(self.facts.number(told.clone(), told)).expect("few facts")
    }

    fn job(&mut self, action: Action) -> Option<Job> {
        Some(match action {
            Action::Find => Job::Find,
            Action::Bring => Job::Bring,
            Action::Claim => Job::Claim,
            Action::Probe => Job::Probe,
            Action::LockAndReread { .. } => Job::Reread,
            Action::ReadLedger => Job::ReadLedger,
            Action::Mkfs(permit) => Job::Intent { seq: seq_of(&permit) },
            Action::Fsck => Job::Fsck,
            Action::NoFsck(_) => unreachable!("ext4 only"),
            Action::Mount => Job::Mount,
            Action::Look => Job::Look,
            Action::LookThroughMount => Job::LookThroughMount,
            Action::Publish { facts, .. } => Job::Publish { facts: self.kept(&facts) },
            Action::OpenGate { facts, how, .. } => Job::Open {
                facts: self.kept(&facts),
                fresh: how == crate::model::StartKind::Fresh,
                running: how == crate::model::StartKind::Running,
            },
            Action::Secure => Job::Secure,
            Action::LetGo => Job::LetGo,
            // For people: changes nothing in this world.
            Action::Decide(_) => return None,
            Action::Record(facts) => Job::Record { facts: self.kept(&facts) },
        })
    }
}

fn seq_of(permit: &FormatPermit) -> u8 {
    permit.diskseq().and_then(|seq| u8::try_from(seq).ok()).expect("a small number")
}

const _: () = assert!(MOST < 10);
