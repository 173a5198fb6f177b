//! What the driver does with each action, in this world: `agent::driver`, `agent::find`, `agent::publish` and `agent::memory`
//! told again in a few lines each, and every answer that may come of it.

use super::known::{Answer, Job, Known, Line, Provider, Told};
use super::properties::{self, Broken};
use super::readings;
use super::world::{Agent, At, Content, Data, World};
use crate::agent::machine::{Guard, State};

/// What else than the regular answer may come. Each costs one fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// It fails, and has done nothing.
    Fails,
    /// EC2 does it, and the answer is lost.
    AnswerLost,
    /// EC2 answers from an old view.
    Stale,
    /// What was asked of the provider beside it stays unknown.
    NoProvider,
}

/// How a scenario answers where the world does not say.
#[derive(Debug, Clone, Copy)]
pub struct Nature {
    /// Never-written blocks read as noise, as on an encrypted volume.
    pub encrypted: bool,
    /// Tags may be written.
    pub tags: bool,
    /// EC2 answers nothing, ever.
    pub no_ec2: bool,
    /// A free volume of any member may be taken, as on kops.
    pub any_member: bool,
}

/// What may go wrong with a job.
pub fn troubles(job: Job) -> &'static [Trouble] {
    match job {
        Job::Bring => &[Trouble::Fails, Trouble::AnswerLost, Trouble::Stale],
        Job::Probe | Job::Look => &[Trouble::Fails, Trouble::NoProvider],
        Job::Claim | Job::ReadLedger | Job::Fsck | Job::Mount | Job::LookThroughMount | Job::Publish { .. } => {
            &[Trouble::Fails]
        }
        // It is cut in the middle, which a crash shows; that it fails without one is the same state.
        Job::Mkfs { .. } => &[Trouble::Fails],
        Job::Find
        | Job::Reread
        | Job::Intent { .. }
        | Job::MkfsEnds { .. }
        | Job::Made { .. }
        | Job::PublishOnVolume { .. }
        | Job::Move
        | Job::Open { .. }
        | Job::OpenOnVolume { .. }
        | Job::OpenFile { .. }
        | Job::Record { .. }
        | Job::RecordOnVolume { .. }
        | Job::Secure
        | Job::LetGo => &[],
    }
}

/// The world, seen and changed by one master's agent.
pub struct Doing<'a> {
    pub known: &'a mut Known,
    pub world: World,
    pub m: u8,
    pub nature: Nature,
}

impl Doing<'_> {
    fn agent(&mut self) -> &mut Agent {
        self.world.agent_mut(self.m)
    }

    pub fn guard(&self) -> &Guard {
        self.known.guards.get(self.world.agent(self.m).guard)
    }

    /// Feeds an answer to the machine; what follows from it comes last.
    pub fn feed(&mut self, answer: Answer) {
        let agent = self.world.agent(self.m);
        let (guard, jobs) = self.known.step(agent.guard, answer);
        let mut queue = self.known.queues.get(agent.queue).clone();
        queue.extend(jobs);
        self.agent().guard = guard;
        self.agent().queue = self.known.queue(queue);
    }

    fn first(&mut self, jobs: &[Job]) {
        let mut queue = jobs.to_vec();
        queue.extend(self.known.queues.get(self.world.agent(self.m).queue));
        self.agent().queue = self.known.queue(queue);
    }

    /// The volume that the guard is about.
    fn subject(&self) -> u8 {
        let agent = self.world.agent(self.m);
        let of_guard = self.guard().device().map(|facts| &facts.volume_id);
        let named = self.world.all_volumes().find(|v| Some(&readings::volume_id(*v)) == of_guard);
        named.or(agent.whereabouts).unwrap_or(self.world.master(self.m).wants)
    }

    pub fn line(&mut self, volume: u8, fs: Option<u8>, told: Told) -> Line {
        let m = self.m;
        let master = self.world.master_mut(m);
        let line = Line { id: (m, master.instance, master.entries), boot: master.boot, volume, fs, told };
        master.entries += 1;
        line
    }

    pub fn keep_on_node(&mut self, lines: &[Line]) {
        let mut ledger = self.known.lines(self.world.master(self.m).ledger).to_vec();
        for line in lines {
            ledger.push(*line);
            if let Told::Holds(data) = line.told {
                self.world.volume_mut(line.volume).told = data;
            }
        }
        self.world.master_mut(self.m).ledger = self.known.ledger(ledger);
    }

    /// Onto the volume, what the node's ledger has and it lacks, oldest first: `Memory::mend`, and the entries themselves.
    fn keep_on_volume(&mut self, v: u8, fs: u8) {
        let node = self.known.lines(self.world.master(self.m).ledger).to_vec();
        let mut there = self.known.lines(self.world.volume(v).ledger).to_vec();
        let begin = match there.last() {
            None => Some(0),
            Some(last) => node.iter().position(|line| line.id == last.id).map(|at| at + 1),
        };
        let of_both = |line: &&Line| {
            line.volume == v
                && line.fs == Some(fs)
                && match line.told {
                    Told::Fresh
                    | Told::Pinned { .. }
                    | Told::Seen(_)
                    | Told::Holds(_)
                    | Told::Changed { .. }
                    | Told::Adopted(_) => true,
                    Told::Intent { .. } | Told::Formatted { .. } | Told::Released | Told::Retried | Told::Published => {
                        false
                    }
                }
        };
        match begin {
            Some(begin) => there.extend(node[begin..].iter().filter(of_both)),
            // Another node has written to it since: only what is said now is added.
            None => {
                let news = node.iter().rev().take_while(|line| !there.iter().any(|other| other.id == line.id));
                let mut news: Vec<Line> = news.filter(of_both).copied().collect();
                news.truncate(2);
                news.reverse();
                there.extend(news);
            }
        }
        self.world.volume_mut(v).ledger = self.known.ledger(there);
    }

    fn keep(&mut self, v: u8, fs: Option<u8>, facts: u16) {
        let told = self.known.told(facts).to_vec();
        let lines: Vec<Line> = told.into_iter().map(|told| self.line(v, fs, told)).collect();
        self.keep_on_node(&lines);
    }

    fn of_node(&mut self, v: u8) -> u32 {
        self.known.fold(self.world.master(self.m).ledger, 0, v, None, false)
    }

    pub fn of_both(&mut self, v: u8) -> u32 {
        let fs = self.world.agent(self.m).filesystem;
        let same_allowance = self.world.master(self.m).gate == Some(true);
        self.known.fold(self.world.master(self.m).ledger, self.world.volume(v).ledger, v, fs, same_allowance)
    }

    /// Does the first job that waits.
    pub fn work(&mut self, trouble: Option<Trouble>) -> Result<(), Broken> {
        let mut queue = self.known.queues.get(self.world.agent(self.m).queue).clone();
        let job = queue.remove(0);
        self.agent().queue = self.known.queue(queue);
        properties::may_do(self, job)?;
        let fails = trouble == Some(Trouble::Fails);
        let asks = trouble != Some(Trouble::NoProvider) && !self.nature.no_ec2;
        match job {
            Job::Find => self.find(),
            Job::Bring => self.bring(trouble),
            Job::Claim => self.claim(fails),
            Job::Probe => self.probe(fails, asks),
            Job::Reread => {
                let read = self.world.agent(self.m).read;
                let now = self.world.device(self.m).map(|v| self.world.volume(v).content);
                self.feed(Answer::Reread { same: read.is_some() && read == now });
            }
            // Through a mount that is gone again before anything else happens.
            Job::ReadLedger => match self.world.device(self.m).filter(|_| !fails) {
                Some(v) => {
                    let records = self.of_both(v);
                    self.feed(Answer::Remembered { records });
                }
                None => self.feed(Answer::NotRemembered),
            },
            Job::Intent { seq } => self.intend(seq),
            Job::Mkfs { uuid, seq } => self.mkfs(uuid, seq, fails),
            Job::MkfsEnds { uuid } => match self.world.device(self.m) {
                Some(v) => {
                    self.world.volume_mut(v).content = Content::Fs { uuid, data: Data::None, aside: Data::None };
                    self.first(&[Job::Made { uuid }]);
                }
                None => self.feed(Answer::Made(None)),
            },
            Job::Made { uuid } => {
                let v = self.subject();
                let line = self.line(v, Some(uuid), Told::Formatted { uuid });
                self.keep_on_node(&[line]);
                // Read back as any filesystem is.
                self.agent().filesystem = Some(uuid);
                let stands = self.world.device(self.m).is_some();
                self.feed(Answer::Made(stands.then_some(uuid)));
            }
            Job::Fsck => {
                self.keep_own_format();
                let there = self.world.device(self.m).is_some();
                self.feed(Answer::Checked(there && !fails));
            }
            Job::Mount => {
                let there = self.world.device(self.m).is_some() && !fails;
                self.agent().mount = there;
                self.feed(Answer::Mounted(there));
            }
            Job::Look => {
                let through = self.world.device(self.m).filter(|_| self.world.agent(self.m).mount);
                self.look(through.filter(|_| !fails), asks);
            }
            Job::LookThroughMount => {
                let through = self.world.published(self.m).filter(|v| *v == self.subject());
                if let Some(v) = through
                    && let Content::Fs { uuid, .. } = self.world.volume(v).content
                {
                    self.agent().filesystem = Some(uuid);
                }
                self.look(through.filter(|_| !fails), asks);
            }
            Job::Publish { facts } => {
                match self.world.device(self.m).filter(|_| self.world.agent(self.m).mount && !fails) {
                    Some(v) => {
                        let fs = self.world.agent(self.m).filesystem;
                        self.keep(v, fs, facts);
                        let lines = self.known.lines(self.world.master(self.m).ledger);
                        if !lines.iter().any(|line| line.volume == v && line.told == Told::Published) {
                            let line = self.line(v, fs, Told::Published);
                            self.keep_on_node(&[line]);
                        }
                        self.first(&[Job::PublishOnVolume { facts }]);
                    }
                    None => self.feed(Answer::Published(false)),
                }
            }
            Job::PublishOnVolume { .. } => {
                self.onto_volume(self.world.device(self.m));
                self.first(&[Job::Move]);
            }
            Job::Move => {
                let device = self.world.agent(self.m).device.filter(|device| self.world.live(self.m, *device));
                if device.is_some() {
                    self.world.master_mut(self.m).mounted = device;
                }
                self.agent().mount = false;
                self.feed(Answer::Published(device.is_some()));
            }
            Job::Open { facts, fresh, running } => {
                let (v, fs) = (self.subject(), self.world.agent(self.m).filesystem);
                self.keep(v, fs, facts);
                self.first(&[Job::OpenOnVolume { facts, fresh, running }]);
            }
            Job::OpenOnVolume { fresh, running, .. } => {
                self.onto_volume(self.world.published(self.m));
                self.first(&[Job::OpenFile { fresh, running }]);
            }
            Job::OpenFile { fresh, running } => {
                properties::may_open(self, running)?;
                let was = self.world.master(self.m).gate;
                self.world.master_mut(self.m).gate = Some(if running { was.unwrap_or(fresh) } else { fresh });
                self.remember();
            }
            Job::Record { facts } => {
                let (v, fs) = (self.subject(), self.world.agent(self.m).filesystem);
                self.keep(v, fs, facts);
                // Whose data it is, or that there is some: a person's answer is used up.
                self.world.volume_mut(v).consent = None;
                self.first(&[Job::RecordOnVolume { facts }]);
            }
            Job::RecordOnVolume { .. } => {
                self.onto_volume(self.world.published(self.m));
                self.remember();
            }
            Job::Secure => {
                self.agent().mount = false;
                if let Some(v) = self.world.device(self.m)
                    && !self.world.in_use(v)
                {
                    self.agent().claimed = true;
                }
            }
            Job::LetGo => {
                let agent = self.agent();
                (agent.mount, agent.device, agent.claimed) = (false, None, false);
            }
        }
        Ok(())
    }

    fn onto_volume(&mut self, v: Option<u8>) {
        if let (Some(v), Some(fs)) = (v, self.world.agent(self.m).filesystem) {
            self.keep_on_volume(v, fs);
        }
    }

    fn find(&mut self) {
        let m = self.m;
        let agent = self.world.agent(m);
        let lines = self.known.lines(self.world.master(m).ledger);
        let had = |v: &u8| {
            lines.iter().any(|line| {
                line.volume == *v
                    && matches!(
                        line.told,
                        Told::Pinned { .. }
                            | Told::Seen(_)
                            | Told::Holds(_)
                            | Told::Formatted { .. }
                            | Told::Fresh
                            | Told::Published
                    )
            })
        };
        let sought: Vec<u8> = match agent.whereabouts {
            Some(v) => vec![v],
            None => self.world.all_volumes().filter(had).collect(),
        };
        let here: Vec<u8> = sought.into_iter().filter(|v| self.world.volume(*v).at == At::Here(m)).collect();
        let agent = self.agent();
        (agent.mount, agent.filesystem, agent.looked) = (false, None, None);
        let [v] = here[..] else {
            if !agent.claimed {
                agent.device = None;
            }
            return self.feed(Answer::NotHere);
        };
        let device = (v, self.world.volume(v).seq);
        if self.world.agent(m).device != Some(device) {
            let agent = self.agent();
            (agent.device, agent.claimed) = (Some(device), false);
        }
        let mounted = self.world.master(m).mounted == Some(device);
        if !mounted {
            // Nothing is mounted there: what is left of a gate is of the past.
            let master = self.world.master_mut(m);
            (master.gate, master.mounted) = (None, None);
        }
        let master = *self.world.master(m);
        let records = self.of_node(v);
        let provider = self.world.agent(m).whereabouts.map(|_| self.provider(v));
        self.feed(Answer::Found {
            master: m,
            boot: (master.instance, master.boot),
            volume: v,
            seq: device.1,
            records,
            used: self.world.volume(v).person,
            mounted,
            gate: master.gate.is_some(),
            provider,
        });
    }

    fn provider(&self, v: u8) -> Provider {
        let volume = self.world.volume(v);
        let (tags, young, from_snapshot) = (volume.tags, volume.young, volume.from_snapshot);
        Provider { tags, encrypted: self.nature.encrypted, young, from_snapshot }
    }

    fn bring(&mut self, trouble: Option<Trouble>) {
        let m = self.m;
        let wants = self.world.master(m).wants;
        let (any, slot) = (self.nature.any_member, self.world.volume(wants).slot);
        let wanted: Vec<u8> = self
            .world
            .all_volumes()
            .filter(|v| *v == wants || (any && self.world.volume(*v).slot != slot && !self.world.volume(*v).copy))
            .collect();
        if self.nature.no_ec2 {
            return self.feed(Answer::Waits);
        }
        match trouble {
            Some(Trouble::Fails) => {
                self.agent().whereabouts = None;
                return self.feed(Answer::NotFound);
            }
            Some(Trouble::Stale) => {
                self.agent().whereabouts = Some(wants);
                return self.feed(Answer::Brought);
            }
            Some(Trouble::AnswerLost | Trouble::NoProvider) | None => {}
        }
        if let Some(v) = wanted.iter().copied().find(|v| self.world.volume(*v).at == At::Here(m)) {
            self.agent().whereabouts = Some(v);
            return self.feed(Answer::Brought);
        }
        if !wanted.iter().any(|v| self.world.volume(*v).at == At::Coming(m))
            && let Some(v) = wanted.iter().copied().find(|v| self.world.volume(*v).at == At::Nowhere)
        {
            self.world.volume_mut(v).at = At::Coming(m);
        }
        if trouble == Some(Trouble::AnswerLost) {
            self.agent().whereabouts = None;
            return self.feed(Answer::NotFound);
        }
        self.feed(Answer::Waits);
    }

    fn claim(&mut self, fails: bool) {
        let agent = self.world.agent(self.m);
        let taken = match self.world.device(self.m) {
            Some(v) => agent.claimed || (!self.world.in_use(v) && !fails),
            None => false,
        };
        self.agent().claimed = taken;
        self.feed(Answer::Claimed(taken));
    }

    fn probe(&mut self, fails: bool, asks: bool) {
        let there = self.world.device(self.m);
        let Some(v) = there.filter(|_| !fails) else {
            self.feed(Answer::NotKnown);
            return self.feed(Answer::Unread);
        };
        let volume = *self.world.volume(v);
        self.agent().read = Some(volume.content);
        let encrypted = self.nature.encrypted;
        match volume.content {
            Content::Fs { uuid, .. } => self.agent().filesystem = Some(uuid),
            Content::Blank | Content::Cut { .. } | Content::Damaged => {
                self.agent().filesystem = None;
                self.feed(if asks { Answer::Known(self.provider(v)) } else { Answer::NotKnown });
            }
        }
        self.feed(Answer::Read { content: volume.content, encrypted });
    }

    fn intend(&mut self, seq: u8) {
        let v = self.subject();
        let volume = self.world.volume_mut(v);
        volume.made += 1;
        let uuid = 16 * (v + 1) + volume.made;
        let line = self.line(v, None, Told::Intent { uuid, seq });
        self.keep_on_node(&[line]);
        self.first(&[Job::Mkfs { uuid, seq }]);
    }

    fn mkfs(&mut self, uuid: u8, seq: u8, fails: bool) {
        match self.world.device(self.m).filter(|v| self.world.volume(*v).seq == seq) {
            Some(v) => {
                let volume = self.world.volume_mut(v);
                volume.content = Content::Cut { uuid };
                volume.ledger = 0;
                if fails {
                    return self.feed(Answer::Made(None));
                }
                self.first(&[Job::MkfsEnds { uuid }]);
            }
            None => self.feed(Answer::Made(None)),
        }
    }

    /// Where mkfs had finished and only its record was lost with a crash, the record is made up for.
    fn keep_own_format(&mut self) {
        let (v, fs) = (self.subject(), self.world.agent(self.m).filesystem);
        let records = self.of_node(v);
        let intended = self.known.records.get(records).open_intent.as_ref().map(|intent| intent.fs_uuid);
        if let Some(uuid) = fs.filter(|fs| intended == Some(readings::uuid(*fs))) {
            let line = self.line(v, Some(uuid), Told::Formatted { uuid });
            self.keep_on_node(&[line]);
        }
    }

    fn look(&mut self, through: Option<u8>, asks: bool) {
        let seen = through.map(|v| (v, *self.world.volume(v)));
        let Some((v, volume)) = seen.filter(|(_, volume)| matches!(volume.content, Content::Fs { .. })) else {
            let v = self.subject();
            let records = self.of_node(v);
            return self.feed(Answer::NotLooked { volume: v, records });
        };
        let records = self.of_both(v);
        self.agent().looked = Some((v, volume.seq, volume.content));
        let older = self.world.all_volumes().any(|other| other != v && !self.world.volume(other).young);
        let running = self.world.master(self.m).etcd;
        self.feed(Answer::Looked {
            volume: v,
            content: volume.content,
            records,
            running,
            provider: asks.then_some((volume.tags, volume.young, older && volume.young)),
        });
    }

    /// Tags of an open gate without doubts.
    fn remember(&mut self) {
        let clean = matches!(&self.guard().state, State::Open { doubts, .. } if doubts.is_empty());
        let Some(v) = self.world.published(self.m).filter(|_| clean && self.nature.tags && !self.nature.no_ec2) else {
            return;
        };
        let fs = self.world.agent(self.m).filesystem;
        let records = self.of_both(v);
        self.world.volume_mut(v).tags = Some(readings::tags(self.known.records.get(records), v, fs));
    }

    /// A mark while the gate is open: what is durable by now, for it was made so.
    pub fn mark(&mut self) {
        let Some(v) = self.world.published(self.m) else { return self.feed(Answer::LookAgain) };
        let Content::Fs { data, .. } = self.world.volume(v).content else { return self.feed(Answer::LookAgain) };
        self.world.volume_mut(v).unsynced = false;
        let records = self.of_both(v);
        self.feed(Answer::Marked { data, records });
    }
}
