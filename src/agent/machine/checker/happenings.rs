//! What may happen next in a world, and what is then.

use super::doing::{Doing, Nature, Trouble, troubles};
use super::known::{Answer, Known, Line, Told};
use super::properties::{self, Broken};
use super::world::{Agent, At, Content, Data, Master, World};
use crate::agent::machine::{Guard, State};
use crate::model::Adoption;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// systemd starts the agent.
    Starts(u8),
    /// The agent does what is next.
    Works(u8, Option<Trouble>),
    /// A timer or a hint makes an idle agent look.
    Wakes(u8),
    Marks(u8),
    /// EC2 has attached it.
    Arrives(u8),
    EtcdStarts(u8),
    EtcdWrites(u8),
    /// A person lets the device go.
    PersonEnds(u8),
    ReleaseEnds(u8),
    /// Faults from here on.
    Crashes(u8),
    LosesPower(u8),
    /// The instance ends, and another takes its place.
    Dies(u8),
    Breaks(u8),
    Moves(u8, u8),
    Uses(u8),
    Wipes(u8),
    Formats(u8),
    PutsAside(u8),
    Deletes(u8),
    RollsBack(u8),
    Scribbles(u8),
    /// This volume becomes a copy of that one, and the master is given it.
    Restores(u8, u8),
    /// The master is given another volume.
    Replaces(u8, u8),
    Adopts(u8, Adoption),
    Releases(u8),
}

/// Sorts of faults, for a scenario to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Agent,
    Power,
    Death,
    Ec2,
    Disk,
    Person,
}

impl Step {
    /// What it costs, and whom.
    pub fn fault(self) -> Option<Sort> {
        match self {
            Step::Starts(_)
            | Step::Works(_, None)
            | Step::Wakes(_)
            | Step::Marks(_)
            | Step::Arrives(_)
            | Step::EtcdStarts(_)
            | Step::EtcdWrites(_)
            | Step::PersonEnds(_)
            | Step::ReleaseEnds(_) => None,
            Step::Works(_, Some(Trouble::Fails)) => Some(Sort::Disk),
            Step::Works(_, Some(Trouble::AnswerLost | Trouble::Stale | Trouble::NoProvider)) => Some(Sort::Ec2),
            Step::Crashes(_) => Some(Sort::Agent),
            Step::LosesPower(_) => Some(Sort::Power),
            Step::Dies(_) => Some(Sort::Death),
            Step::Breaks(_) => Some(Sort::Disk),
            Step::Moves(..)
            | Step::Uses(_)
            | Step::Wipes(_)
            | Step::Formats(_)
            | Step::PutsAside(_)
            | Step::Deletes(_)
            | Step::RollsBack(_)
            | Step::Scribbles(_)
            | Step::Restores(..)
            | Step::Replaces(..)
            | Step::Adopts(..)
            | Step::Releases(_) => Some(Sort::Person),
        }
    }
}

fn of_agent(known: &Known, m: u8, master: &Master, steps: &mut Vec<Step>) {
    if properties::released(known, master).is_some() {
        steps.push(Step::ReleaseEnds(m));
    }
    let Some(agent) = master.agent else { return steps.push(Step::Starts(m)) };
    steps.push(Step::Crashes(m));
    if let Some(job) = known.queues.get(agent.queue).first() {
        steps.push(Step::Works(m, None));
        steps.extend(troubles(*job).iter().map(|trouble| Step::Works(m, Some(*trouble))));
        return;
    }
    steps.push(Step::Wakes(m));
    match &known.guards.get(agent.guard).state {
        State::Open { .. } => steps.push(Step::Marks(m)),
        State::Held { .. } => {
            if agent.device.is_some() {
                for answer in [Adoption::Identity, Adoption::Restored, Adoption::NewCluster, Adoption::Replacement] {
                    steps.push(Step::Adopts(m, answer));
                }
                steps.push(Step::Releases(m));
            }
        }
        State::Discovering
        | State::Attaching { .. }
        | State::Examining
        | State::Formatting
        | State::Inspecting
        | State::Publishing
        | State::Observing { .. } => {}
    }
}

fn of_volume(known: &Known, world: &World, v: u8, steps: &mut Vec<Step>) {
    let volume = world.volume(v);
    match volume.at {
        At::Coming(_) => steps.push(Step::Arrives(v)),
        At::Here(_) => {
            if volume.person {
                steps.push(Step::PersonEnds(v));
            } else if !world.in_use(v) {
                steps.push(Step::Uses(v));
            }
            // What a person does with a device that nobody else has.
            if volume.person || !world.in_use(v) {
                steps.extend([Step::Wipes(v), Step::Formats(v)]);
                match volume.content {
                    Content::Fs { data: Data::Member { progress: progress @ 1.., .. }, aside: Data::None, .. } => {
                        steps.extend([Step::PutsAside(v), Step::Deletes(v)]);
                        if progress == 2 {
                            steps.push(Step::RollsBack(v));
                        }
                    }
                    Content::Fs { .. } | Content::Blank | Content::Cut { .. } | Content::Damaged => {}
                }
            }
        }
        At::Nowhere => {}
    }
    if matches!(volume.content, Content::Fs { .. }) && volume.held {
        steps.push(Step::Breaks(v));
    }
    for m in world.all_masters() {
        if volume.at != At::Coming(m) {
            steps.push(Step::Moves(v, m));
        }
        let wants = world.master(m).wants;
        if wants != v && !world.all_masters().any(|other| world.master(other).wants == v) {
            steps.push(Step::Replaces(m, v));
            let of = world.volume(wants);
            let named = known.lines(of.ledger).iter().any(|line| line.volume == wants);
            if volume.content == Content::Blank && volume.at == At::Nowhere && of.held && named {
                steps.push(Step::Restores(m, v));
            }
        }
        // A raw write, while the device is being proven blank.
        let proving = world.master(m).agent.filter(|agent| {
            use super::known::Job;
            let queue = known.queues.get(agent.queue);
            matches!(known.guards.get(agent.guard).state, State::Examining | State::Formatting)
                && !queue.iter().any(|job| {
                    matches!(job, Job::Intent { .. } | Job::Mkfs { .. } | Job::MkfsEnds { .. } | Job::Made { .. })
                })
        });
        if proving.is_some() && world.device(m) == Some(v) && volume.content == Content::Blank {
            steps.push(Step::Scribbles(v));
        }
    }
}

/// All that may happen next.
pub fn steps(known: &Known, world: &World, sorts: &[Sort]) -> Vec<Step> {
    let mut steps = Vec::new();
    for m in world.all_masters() {
        let master = *world.master(m);
        of_agent(known, m, &master, &mut steps);
        steps.extend([Step::LosesPower(m), Step::Dies(m)]);
        if let Some(v) = world.published(m) {
            if master.gate.is_some() && !master.etcd {
                steps.push(Step::EtcdStarts(m));
            }
            let writes = match world.volume(v).content {
                Content::Fs { data: Data::Member { progress, .. }, .. } => progress < 2,
                Content::Fs { data: Data::None, .. } | Content::Blank | Content::Cut { .. } | Content::Damaged => false,
            };
            if master.etcd && writes {
                steps.push(Step::EtcdWrites(m));
            }
        }
    }
    for v in world.all_volumes() {
        of_volume(known, world, v, &mut steps);
    }
    steps.retain(|step| match step.fault() {
        None => true,
        Some(sort) => world.faults > 0 && sorts.contains(&sort),
    });
    steps
}

fn foreign(world: &mut World, v: u8) -> Content {
    let volume = world.volume_mut(v);
    volume.made += 1;
    (volume.ledger, volume.copy) = (0, false);
    Content::Fs { uuid: 16 * (v + 1) + volume.made, data: Data::None, aside: Data::None }
}

fn restarted(world: &mut World, m: u8) {
    let master = world.master_mut(m);
    (master.agent, master.mounted, master.gate, master.etcd) = (None, None, None, false);
}

/// What is after that step.
#[expect(clippy::too_many_lines, reason = "one arm for each step")]
pub fn after(known: &mut Known, world: &World, step: Step, nature: Nature) -> Result<World, Broken> {
    let mut world = *world;
    if step.fault().is_some() {
        world.faults -= 1;
    }
    match step {
        Step::Starts(m) => {
            let guard = known.guard(Guard::new(known.policy.clone()));
            let queue = known.queue(Vec::new());
            world.master_mut(m).agent = Some(Agent {
                guard,
                queue,
                whereabouts: None,
                device: None,
                claimed: false,
                mount: false,
                filesystem: None,
                read: None,
                looked: None,
            });
            let mut doing = Doing { known, world, m, nature };
            doing.feed(Answer::LookAgain);
            world = doing.world;
        }
        Step::Works(m, trouble) => {
            let before = world;
            let mut doing = Doing { known, world, m, nature };
            doing.work(trouble)?;
            world = doing.world;
            properties::from_to(&before, &world, m)?;
        }
        Step::Wakes(m) => {
            let mut doing = Doing { known, world, m, nature };
            doing.feed(Answer::LookAgain);
            world = doing.world;
        }
        Step::Marks(m) => {
            let mut doing = Doing { known, world, m, nature };
            doing.mark();
            world = doing.world;
        }
        Step::Arrives(v) => {
            if let At::Coming(m) = world.volume(v).at {
                world.attached(v, m);
            }
        }
        Step::EtcdStarts(m) => {
            world.master_mut(m).etcd = true;
            if let Some(v) = world.published(m) {
                let volume = world.volume_mut(v);
                let member = volume.slot;
                if let Content::Fs { data: data @ Data::None, .. } = &mut volume.content {
                    *data = Data::Member { member, progress: 0 };
                }
            }
        }
        Step::EtcdWrites(m) => {
            if let Some(v) = world.published(m) {
                let volume = world.volume_mut(v);
                if let Content::Fs { data: Data::Member { progress, .. }, .. } = &mut volume.content {
                    *progress += 1;
                    // What was written before is on the disk by now.
                    volume.unsynced = true;
                    volume.held = true;
                }
            }
        }
        Step::PersonEnds(v) => world.volume_mut(v).person = false,
        Step::ReleaseEnds(m) => {
            let of = properties::released(known, world.master(m));
            say(known, &mut world, m, nature, of, Told::Retried);
        }
        Step::Releases(m) => {
            let of = world.device(m);
            say(known, &mut world, m, nature, of, Told::Released);
        }
        Step::Adopts(m, answer) => {
            let of = world.device(m);
            say(known, &mut world, m, nature, of, Told::Adopted(answer));
        }
        Step::Crashes(m) => world.master_mut(m).agent = None,
        Step::LosesPower(m) => {
            restarted(&mut world, m);
            world.master_mut(m).boot += 1;
            for v in world.all_volumes().filter(|v| world.volume(*v).at == At::Here(m)).collect::<Vec<_>>() {
                world.lose_unsynced(v);
                let volume = world.volume_mut(v);
                // The kernel counts from the beginning.
                (volume.seq, volume.person) = (1, false);
            }
        }
        Step::Dies(m) => {
            restarted(&mut world, m);
            let master = world.master_mut(m);
            (master.ledger, master.boot, master.entries) = (0, 0, 0);
            master.instance += 1;
            for v in world
                .all_volumes()
                .filter(|v| matches!(world.volume(*v).at, At::Here(at) | At::Coming(at) if at == m))
                .collect::<Vec<_>>()
            {
                world.detach(v);
                world.volume_mut(v).seq = 0;
            }
            // What only that instance had noted, nobody knows any more.
            for v in world.all_volumes() {
                let ledgers = world.all_masters().map(|m| world.master(m).ledger).chain([world.volume(v).ledger]);
                let noted = |line: &Line| match line.told {
                    Told::Holds(data) if line.volume == v => Some(data),
                    _other => None,
                };
                let ledgers = ledgers.filter_map(|ledger| known.lines(ledger).iter().filter_map(noted).next_back());
                let tags = world
                    .volume(v)
                    .tags
                    .and_then(|tags| tags.mark)
                    .filter(|(_, durable)| *durable)
                    .map(|(data, _)| data);
                world.volume_mut(v).told = ledgers.chain(tags).max().unwrap_or(Data::None);
            }
        }
        Step::Breaks(v) | Step::Scribbles(v) => {
            let volume = world.volume_mut(v);
            volume.content = Content::Damaged;
            volume.held = true;
            for m in world.all_masters() {
                if world.published(m) == Some(v) {
                    world.master_mut(m).etcd = false;
                }
            }
        }
        Step::Moves(v, m) => {
            world.detach(v);
            world.attached(v, m);
        }
        Step::Uses(v) => world.volume_mut(v).person = true,
        Step::Wipes(v) => {
            let volume = world.volume_mut(v);
            (volume.content, volume.ledger, volume.copy) = (Content::Blank, 0, false);
        }
        Step::Formats(v) => world.volume_mut(v).content = foreign(&mut world, v),
        Step::PutsAside(v) => {
            if let Content::Fs { data, aside, .. } = &mut world.volume_mut(v).content {
                *aside = std::mem::replace(data, Data::None);
            }
            world.volume_mut(v).beside = false;
        }
        Step::Deletes(v) => {
            if let Content::Fs { data, .. } = &mut world.volume_mut(v).content {
                *data = Data::None;
            }
        }
        Step::RollsBack(v) => {
            if let Content::Fs { data: Data::Member { progress, .. }, .. } = &mut world.volume_mut(v).content {
                *progress = 1;
            }
        }
        Step::Restores(m, v) => {
            let from = world.master(m).wants;
            let of = *world.volume(from);
            let volume = world.volume_mut(v);
            (volume.content, volume.ledger, volume.slot) = (of.content, of.ledger, of.slot);
            (volume.held, volume.told, volume.from_snapshot, volume.copy) = (true, of.told, true, true);
            give(&mut world, m, v);
        }
        Step::Replaces(m, v) => {
            let slot = world.volume(world.master(m).wants).slot;
            world.volume_mut(v).slot = slot;
            give(&mut world, m, v);
        }
    }
    properties::always(known, &world)?;
    Ok(world)
}

/// EC2's tags give this volume to the master; the one before it is taken away.
fn give(world: &mut World, m: u8, v: u8) {
    let before = world.master(m).wants;
    world.detach(before);
    world.master_mut(m).wants = v;
}

/// A person says something to a guard; the agent sees it when it looks again.
fn say(known: &mut Known, world: &mut World, m: u8, nature: Nature, of: Option<u8>, told: Told) {
    let Some(v) = of else { return };
    let fs = match world.volume(v).content {
        Content::Fs { uuid, .. } => Some(uuid),
        Content::Blank | Content::Cut { .. } | Content::Damaged => None,
    };
    let mut doing = Doing { known, world: *world, m, nature };
    let line: Line = doing.line(v, fs, told);
    doing.keep_on_node(&[line]);
    *world = doing.world;
    if let Told::Adopted(answer) = told {
        let volume = world.volume_mut(v);
        volume.consent = Some(answer);
        volume.copy &= answer != Adoption::Restored;
    }
}
