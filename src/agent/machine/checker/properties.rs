//! What must hold, said of the world as it truly is, not as the guards see it.

use super::doing::{Doing, Nature};
use super::known::{Job, Known, Told};
use super::world::{At, Content, Data, Master, Volume, World};
use crate::model::Adoption;

/// A property that does not hold, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

fn broken(words: impl Into<String>) -> Result<(), Broken> {
    Err(Broken(words.into()))
}

/// Some memory that this master can reach says that the volume held data: its own ledger, or the tags.
fn remembered(known: &Known, world: &World, m: u8, v: u8) -> bool {
    let told = known
        .lines(world.master(m).ledger)
        .iter()
        .any(|line| line.volume == v && matches!(line.told, Told::Pinned { .. } | Told::Seen(_) | Told::Holds(_)));
    told || world.volume(v).tags.is_some_and(|tags| tags.pin.is_some() || tags.mark.is_some())
}

/// The volume that a person has let go for a while.
pub fn released(known: &Known, master: &Master) -> Option<u8> {
    let said = |told| matches!(told, Told::Released | Told::Retried);
    let last = known.lines(master.ledger).iter().rev().find(|line| said(line.told))?;
    (last.told == Told::Released).then_some(last.volume)
}

fn meant_empty(volume: &Volume) -> bool {
    matches!(volume.consent, Some(Adoption::NewCluster | Adoption::Replacement))
}

/// Before a job is done.
pub fn may_do(doing: &Doing<'_>, job: Job) -> Result<(), Broken> {
    let (world, m) = (&doing.world, doing.m);
    let Some(v) = world.device(m) else { return Ok(()) };
    let volume = world.volume(v);
    if job == Job::Claim && released(doing.known, world.master(m)).is_some() {
        return broken(format!("master {m} claims volume {v}, which a person has let go"));
    }
    match job {
        Job::Mkfs { .. } => {
            if volume.content != Content::Blank {
                return broken(format!("volume {v} is formatted over {:?}", volume.content));
            }
            let told = volume.tags.is_some() || remembered(doing.known, world, m, v);
            if volume.held && told && !meant_empty(volume) {
                return broken(format!("volume {v}, which held data and is remembered, is formatted"));
            }
        }
        Job::ReadLedger | Job::Fsck | Job::Mount | Job::Publish { .. } | Job::MkfsEnds { .. } => {}
        Job::Find
        | Job::Bring
        | Job::Claim
        | Job::Probe
        | Job::Reread
        | Job::Intent { .. }
        | Job::Made { .. }
        | Job::Look
        | Job::LookThroughMount
        | Job::PublishOnVolume { .. }
        | Job::Move
        | Job::Open { .. }
        | Job::OpenOnVolume { .. }
        | Job::OpenFile { .. }
        | Job::Record { .. }
        | Job::RecordOnVolume { .. }
        | Job::Secure
        | Job::LetGo => return Ok(()),
    }
    if !world.agent(m).claimed || volume.person {
        return broken(format!("master {m} acts ({job:?}) on volume {v}, which it has not claimed"));
    }
    Ok(())
}

/// Before the ready file of a closed gate is written.
pub fn may_open(doing: &mut Doing<'_>, running: bool) -> Result<(), Broken> {
    let m = doing.m;
    if doing.world.master(m).gate.is_some() || running {
        return Ok(());
    }
    let looked = doing.world.agent(m).looked;
    let Some((v, seq, content)) = looked.filter(|(v, seq, _)| doing.world.master(m).mounted == Some((*v, *seq))) else {
        return broken(format!("master {m} opens its gate over a volume that was not looked at"));
    };
    let _ = seq;
    let volume = *doing.world.volume(v);
    let Content::Fs { data, aside, .. } = content else {
        return broken(format!("master {m} opens its gate over {content:?}"));
    };
    let older = doing.world.all_volumes().any(|other| other != v && !doing.world.volume(other).young);
    if volume.copy {
        return broken(format!("master {m} opens its gate over volume {v}, a copy that nobody has spoken for"));
    }
    if data.lives() {
        let answered = matches!(volume.consent, Some(Adoption::Identity | Adoption::Restored | Adoption::NewCluster));
        let as_told = match (volume.told, data) {
            (Data::None, _) => true,
            (Data::Member { member, progress }, Data::Member { member: now, progress: reached }) => {
                member == now && reached >= progress
            }
            (Data::Member { .. }, Data::None) => false,
        };
        if !as_told && !answered {
            return broken(format!("master {m} opens its gate over {data:?}, and {:?} was noted", volume.told));
        }
    } else if !meant_empty(&volume) {
        if aside.lives() && !volume.beside {
            return broken(format!("master {m} starts an empty etcd beside {aside:?}"));
        }
        let on_volume =
            doing.known.lines(volume.ledger).iter().any(|line| matches!(line.told, Told::Seen(_) | Told::Holds(_)));
        if volume.held && (on_volume || remembered(doing.known, &doing.world, m, v)) {
            return broken(format!("master {m} starts an empty etcd on volume {v}, which held data"));
        }
        // Wiped, and nobody is left who remembers it: only EC2 knows that it is not new.
        if volume.held && !volume.young {
            return broken(format!(
                "master {m} starts an empty etcd on volume {v}, which is old and of which nobody knows"
            ));
        }
        // One that was allowed to start with nothing, is pinned, and has got nothing yet.
        let begun = |line: &super::known::Line| match (line.told, data) {
            (Told::Pinned { member, .. }, Data::Member { member: now, .. }) => line.volume == v && member == now,
            _ => false,
        };
        if older && volume.young && !doing.known.lines(volume.ledger).iter().any(begun) {
            return broken(format!("master {m} starts an empty etcd on volume {v}, made long after the others"));
        }
    }
    let volume = doing.world.volume_mut(v);
    (volume.copy, volume.beside) = (false, aside.lives());
    if data.lives() {
        (volume.consent, volume.told) = (None, glimpsed(volume.told, data));
    } else {
        // What was there is not what starts, as somebody has said; and that stands until there is data again.
        (volume.held, volume.told) = (false, Data::None);
    }
    Ok(())
}

/// More entries than any way within the faults of a scenario needs.
const MANY: usize = 16;

/// In every state.
pub fn always(known: &Known, world: &World) -> Result<(), Broken> {
    for m in world.all_masters() {
        if known.lines(world.master(m).ledger).len() > MANY {
            return broken(format!("the ledger of master {m} grows for ever"));
        }
        let held = world.master(m).agent.is_some_and(|agent| {
            matches!(known.guards.get(agent.guard).state, crate::agent::machine::State::Held { .. })
        });
        if held && world.master(m).gate.is_some() && world.published(m).is_some() {
            return broken(format!("master {m} holds what is open"));
        }
    }
    for v in world.all_volumes() {
        let users = world.all_masters().filter(|m| {
            world.published(*m) == Some(v)
                || world.master(*m).agent.is_some_and(|agent| agent.claimed && world.device(*m) == Some(v))
        });
        if users.count() > 1 {
            return broken(format!("two nodes have volume {v}"));
        }
    }
    Ok(())
}

/// From one state to the next, whatever happened: an agent closes no gate over a mount that is there.
pub fn from_to(before: &World, after: &World, m: u8) -> Result<(), Broken> {
    if before.master(m).gate.is_some() && after.master(m).gate.is_none() && before.published(m).is_some() {
        return broken(format!("master {m} closes its open gate"));
    }
    Ok(())
}

/// The gate of this master is open.
pub fn is_open(world: &World, m: u8) -> bool {
    world.master(m).gate.is_some()
}

/// Nothing is wrong with what this master wants, so it must be opened some time: given that every answer which may come
/// comes in the end.
pub fn is_healthy(known: &Known, world: &World, m: u8, nature: Nature) -> bool {
    let master = world.master(m);
    let v = master.wants;
    let volume = world.volume(v);
    let reachable = match volume.at {
        At::Here(at) | At::Coming(at) => at == m,
        At::Nowhere => !nature.no_ec2,
    };
    // A node that has two volumes, and is to find out which one it is given now, may need a person.
    let alone_here = world.all_volumes().all(|other| other == v || world.volume(other).at != At::Here(m));
    if !reachable || volume.copy || !alone_here {
        return false;
    }
    let of_node: Vec<_> = known.lines(master.ledger).iter().filter(|line| line.volume == v).collect();
    let on_volume = known.lines(volume.ledger);
    let alone = |line: &super::known::Line, uuid: u8| match line.told {
        Told::Intent { uuid: meant, .. } => meant == uuid,
        Told::Pinned { .. }
        | Told::Seen(_)
        | Told::Holds(_)
        | Told::Formatted { .. }
        | Told::Fresh
        | Told::Changed { .. } => line.fs == Some(uuid),
        Told::Adopted(_) => false,
        Told::Released | Told::Retried | Told::Published => true,
    };
    let older = world.all_volumes().any(|other| other != v && !world.volume(other).young);
    let new = volume.young && !volume.held && !volume.from_snapshot && !older && !nature.no_ec2;
    match volume.content {
        Content::Fs { uuid, data, aside } => {
            if aside != Data::None
                || !of_node.iter().all(|line| alone(line, uuid))
                || !on_volume.iter().all(|line| line.volume == v && alone(line, uuid))
                || volume.tags.is_some_and(|tags| tags.fs != Some(uuid))
            {
                return false;
            }
            let formatted = of_node.iter().any(|line| line.told == Told::Formatted { uuid });
            match (data, volume.told) {
                (Data::Member { progress: 1.., .. }, Data::None) => !nature.no_ec2 || !of_node.is_empty(),
                (Data::Member { member, progress }, Data::Member { member: told, progress: reached }) => {
                    progress > 0 && member == told && progress >= reached && (!nature.no_ec2 || !of_node.is_empty())
                }
                (Data::None | Data::Member { .. }, _) => new && formatted,
            }
        }
        // What is decided already of an attachment that has ended since is on record before mkfs finds out.
        Content::Blank if master.agent.is_some_and(|agent| agent.device.is_some() && world.device(m).is_none()) => {
            false
        }
        Content::Blank => new && of_node.is_empty() && volume.tags.is_none(),
        Content::Cut { .. } | Content::Damaged => false,
    }
}

/// What is noted of data when a gate opens over it: whose it is. How far it got is noted by a mark only, when it is durable, so
/// what was noted before stands unless there is less.
fn glimpsed(noted: Data, data: Data) -> Data {
    match (noted, data) {
        (Data::Member { member, progress }, Data::Member { member: now, progress: reached }) if member == now => {
            Data::Member { member, progress: progress.min(reached) }
        }
        (Data::Member { .. } | Data::None, Data::Member { member, .. }) => Data::Member { member, progress: 0 },
        (Data::Member { .. } | Data::None, Data::None) => Data::None,
    }
}
