//! One guard's volume of EC2: asks, decides by [`select`](super::select) and [`attach`](super::attach), and does the one thing
//! that may be done, AttachVolume.
//!
//! The asking runs in a task of its own, so that a guard looks for its device while EC2 does not answer: what is attached
//! already needs nobody's leave.

use super::attach::{Attempts, Look, Next};
use super::backoff::{Backoff, Pace};
use super::code::{ApiError, Code};
use super::ec2::{Answer, Ask, Ec2, Here, Instance, Volume};
use super::hub::Hub;
use super::kops;
use super::select::{Holders, Selection, Wanted, select};
use super::{Brought, Knowledge, May, VolumeProvider, Whereabouts, siblings, witness};
use crate::model::{
    DeviceFacts, EbsSpec, Identity, Observed, Origin, Reason, ReasonCode, Siblings, TagSpec, Time, VolumeAge, VolumeId,
    Why,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long a caller waits for an answer of EC2 that may come at once.
const AT_ONCE: Duration = Duration::from_millis(500);
/// A volume is new for this long after its creation (design: `fresh_within`).
pub const FRESH_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// Longest that a question about a volume that is here may take.
const QUESTION: Duration = Duration::from_secs(20);
/// For how long an answer of EC2 is good enough to be used again.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// More turns than any way of one volume has: look, ask for holder or own names, attach.
const MOST_TURNS: usize = 8;

/// One guard's volume.
#[derive(Debug)]
pub struct EbsVolume<A> {
    hub: Arc<Hub<A>>,
    spec: EbsSpec,
    member: Option<String>,
    seed: u64,
    backoff: Backoff,
    /// `None` while a task has it.
    way: Option<Way>,
    task: Option<JoinHandle<(Way, Step)>>,
    last: Option<Brought>,
    due: Instant,
    /// EC2 said once that it is here.
    told_here: bool,
    known: Option<Known>,
    /// In tests the clock stands still, and is put forward by this.
    #[cfg(test)]
    skew: Duration,
    #[cfg(test)]
    made: Instant,
}

/// What EC2 said of a volume, and when.
#[derive(Debug, Clone)]
struct Known {
    volume: Volume,
    /// By EC2's clock.
    at: Option<Time>,
    asked: Instant,
}

/// What is remembered of a volume on its way.
#[derive(Debug, Clone)]
struct Way {
    begun: Instant,
    attempts: Attempts,
    /// The volume that the tags led to.
    chosen: Option<VolumeId>,
}

/// What came of one round of questions.
#[derive(Debug)]
enum Step {
    Here {
        known: Box<Known>,
        device: Option<String>,
        warnings: Vec<Reason>,
    },
    Wait {
        reason: Reason,
        pace: Pace,
    },
    /// Something was done: look soon.
    Soon {
        reason: Reason,
    },
    /// EC2 has taken an AttachVolume of what it described a moment before.
    Arriving {
        known: Box<Known>,
        reason: Reason,
    },
    Hold {
        reason: Reason,
    },
}

impl<A: Ec2> EbsVolume<A> {
    pub fn new(hub: Arc<Hub<A>>, spec: EbsSpec, member: Option<String>, seed: u64) -> Self {
        let now = Instant::now();
        EbsVolume {
            hub,
            spec,
            member,
            seed,
            backoff: Backoff::new(seed),
            way: Some(Way { begun: now, attempts: Attempts::default(), chosen: None }),
            task: None,
            last: None,
            due: now,
            told_here: false,
            known: None,
            #[cfg(test)]
            skew: Duration::ZERO,
            #[cfg(test)]
            made: now,
        }
    }

    fn now(&self) -> Instant {
        #[cfg(test)]
        return self.made + self.skew;
        #[cfg(not(test))]
        Instant::now()
    }

    /// What EC2 said within the last minute.
    pub fn known_already(&self, facts: &DeviceFacts) -> Knowledge {
        match self.known.as_ref().filter(|known| known.volume.id == facts.volume_id && known.is_fresh(self.now())) {
            Some(known) => known.knowledge(facts),
            None => Knowledge::not_asked("EC2 was not asked: what is known here needs no cloud"),
        }
    }

    /// The tag of kops that the volume has, as far as EC2 was asked: `k8s.io/etcd/main`.
    pub fn etcd_key(&self) -> Option<&str> {
        let tags = &self.known.as_ref()?.volume.tags;
        tags.keys().map(String::as_str).find(|key| key.starts_with(kops::PREFIX))
    }

    fn start(&mut self, may: May) {
        let Some(mut way) = self.way.take() else { return };
        let now = self.now();
        let (hub, spec, member, seed) = (self.hub.clone(), self.spec.clone(), self.member.clone(), self.seed);
        self.task = Some(tokio::spawn(async move {
            let step = way.round(&hub, &spec, member.as_deref(), may, seed, now).await;
            (way, step)
        }));
    }

    fn take(&mut self, step: Step) -> Brought {
        let now = self.now();
        let (brought, pause) = match step {
            Step::Here { known, device, warnings } => {
                let volume = known.volume.id.clone();
                let attached_as = device.map(|device| (device, known.volume.size));
                self.known = Some(*known);
                let pause = self.backoff.pause(Pace::Watching);
                if !self.told_here {
                    self.told_here = true;
                    self.due = now + pause;
                    // Asked again, it is because no device was found.
                    self.last = Some(self.no_device(&volume));
                    return Brought::Here(Whereabouts { volume, attached_as, warnings });
                }
                (self.no_device(&volume), pause)
            }
            Step::Wait { reason, pace } => (Brought::Waits(reason), self.backoff.pause(pace)),
            Step::Soon { reason } => {
                self.backoff.reset();
                (Brought::Waits(reason), self.backoff.pause(Pace::Watching))
            }
            Step::Arriving { known, reason } => {
                // The kernel shows the device before EC2 is asked again, and what it is does not change by attaching it.
                self.known = Some(*known);
                self.backoff.reset();
                (Brought::Waits(reason), self.backoff.pause(Pace::Arriving))
            }
            Step::Hold { reason } => (Brought::Refused(reason), self.backoff.pause(Pace::Throttled)),
        };
        if !matches!(&brought, Brought::Waits(reason) if reason.code == ReasonCode::AttachStuck) {
            self.told_here = false;
        }
        self.due = now + pause;
        self.last = Some(brought.clone());
        brought
    }

    fn no_device(&mut self, volume: &VolumeId) -> Brought {
        let now = self.now();
        let Some(way) = self.way.as_mut() else { return asking(&self.spec) };
        let now = now.duration_since(way.begun);
        match way.attempts.no_device(&volume.0, now) {
            Next::Hold(reason) => Brought::Refused(reason),
            Next::Wait(reason) => Brought::Waits(reason),
            Next::Here { .. } | Next::NeedHolder(_) | Next::NeedOwn | Next::Attach { .. } => asking(&self.spec),
        }
    }

    /// The volumes of the other members of the cluster that this volume's tags name. Asks EC2.
    pub async fn siblings(&mut self, facts: &DeviceFacts) -> Observed<Siblings> {
        let own = match self.ask_about(&facts.volume_id).await {
            Ok(known) => known.volume,
            Err(why) => return Observed::Unknown(why),
        };
        let Some(cluster) = kops::Cluster::of(&own.tags) else { return Siblings::not_named() };
        let ask = Ask::Cluster { key: cluster.key.clone(), tag: cluster.tag.clone() };
        match self.answer(ask, &format!("the volumes of {}", cluster.tag.1)).await {
            Ok(answer) => siblings::siblings(&own, &cluster, &answer.volumes),
            Err(why) => Observed::Unknown(why),
        }
    }

    /// An answer in reasonable time, or why there is none.
    async fn answer(&self, ask: Ask, about: &str) -> Result<Answer, Why> {
        match tokio::time::timeout(QUESTION, self.hub.volumes(ask)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Why::Unreadable { detail: format!("EC2 was asked about {about}: {error}") }),
            Err(_late) => {
                Err(Why::TimedOut { detail: format!("EC2 did not answer about {about} in {} s", QUESTION.as_secs()) })
            }
        }
    }

    async fn ask_about(&mut self, id: &VolumeId) -> Result<Known, Why> {
        let now = self.now();
        if let Some(known) = self.known.as_ref().filter(|known| known.volume.id == *id && known.is_fresh(now)) {
            return Ok(known.clone());
        }
        let answer = self.answer(Ask::Ids(BTreeSet::from([id.clone()])), &id.0).await?;
        let at = answer.at;
        let volume = answer.volumes.into_iter().find(|volume| volume.id == *id);
        let volume = volume.ok_or_else(|| Why::Unreadable {
            detail: format!("EC2 knows no volume {id} in this account and region"),
        })?;
        let known = Known { volume, at, asked: now };
        self.known = Some(known.clone());
        Ok(known)
    }
}

fn asking(spec: &EbsSpec) -> Brought {
    let message = format!("{} is not attached to this machine as far as the kernel shows; EC2 is asked", about(spec));
    Brought::Waits(Reason::new(ReasonCode::ProviderUnreachable, message))
}

fn about(spec: &EbsSpec) -> String {
    match spec {
        EbsSpec::Id(id) => id.to_string(),
        EbsSpec::Tags(tags) => {
            let tags: Vec<String> = tags.iter().map(TagSpec::to_string).collect();
            format!("the volume with {}", tags.join(" and "))
        }
    }
}

impl<A: Ec2> VolumeProvider for EbsVolume<A> {
    async fn bring(&mut self, may: May) -> Brought {
        if self.task.is_none() {
            if let Some(last) = self.last.clone().filter(|_| self.now() < self.due) {
                return last;
            }
            self.start(may);
        }
        let Some(task) = self.task.as_mut() else { return asking(&self.spec) };
        match tokio::time::timeout(AT_ONCE, task).await {
            Err(_not_yet) => self.last.clone().unwrap_or_else(|| asking(&self.spec)),
            Ok(Ok((way, step))) => {
                self.task = None;
                self.way = Some(way);
                self.take(step)
            }
            Ok(Err(died)) => {
                // A bug of ours costs what was remembered, and is told.
                self.task = None;
                self.way = Some(Way { begun: self.now(), attempts: Attempts::default(), chosen: None });
                let said = format!("asking EC2 died: {died}");
                let error = ApiError { code: Code::NoAnswer, action: "DescribeVolumes", said };
                self.take(Step::Wait { reason: error.reason(&about(&self.spec)), pace: Pace::Throttled })
            }
        }
    }

    async fn knowledge(&mut self, facts: &DeviceFacts) -> Knowledge {
        match self.ask_about(&facts.volume_id).await {
            Ok(known) => known.knowledge(facts),
            Err(why) => Knowledge {
                identity: Observed::Unknown(why.clone()),
                origin: Observed::Unknown(why.clone()),
                age: Observed::Unknown(why.clone()),
                witness: Observed::Unknown(why),
            },
        }
    }
}

impl Known {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.asked) < GOOD_FOR
    }

    fn knowledge(&self, facts: &DeviceFacts) -> Knowledge {
        let volume = &self.volume;
        let identity = if facts.volume_id != volume.id {
            Identity::OtherSerial { asked: volume.id.clone(), found: facts.volume_id.to_string() }
        } else if facts.size != volume.size {
            Identity::OtherSize { provider: volume.size, kernel: facts.size }
        } else {
            Identity::Matches
        };
        let young = match (volume.created, self.at) {
            // Only EC2's own two times are compared: this machine's clock may be anything.
            (Some(created), Some(at)) => {
                let age = at.unix().saturating_sub(created.unix());
                let limit = i64::try_from(FRESH_WITHIN.as_secs()).unwrap_or(i64::MAX);
                Observed::Seen(age <= limit)
            }
            (None, _) => Observed::Unknown(Why::Unreadable {
                detail: format!("EC2 does not say when {} was created", volume.id),
            }),
            (_, None) => Observed::Unknown(Why::Unreadable { detail: "EC2's answer carries no date".to_owned() }),
        };
        let (origin, age) = match young {
            Observed::Seen(young) => (
                Observed::Seen(Origin::Provider {
                    encrypted: volume.encrypted,
                    from_snapshot: volume.snapshot.clone(),
                    young,
                }),
                Observed::Seen(if young { VolumeAge::Young } else { VolumeAge::Old }),
            ),
            Observed::Unknown(why) => (Observed::Unknown(why.clone()), Observed::Unknown(why)),
        };
        let witness = Observed::Seen(witness::of_tags(&volume.tags));
        Knowledge { identity: Observed::Seen(identity), origin, age, witness }
    }
}

impl Way {
    async fn round<A: Ec2>(
        &mut self,
        hub: &Arc<Hub<A>>,
        spec: &EbsSpec,
        member: Option<&str>,
        may: May,
        seed: u64,
        now: Instant,
    ) -> Step {
        let about = about(spec);
        match self.try_round(hub, spec, member, may, seed, now).await {
            Ok(step) => step,
            Err(error) => {
                let reason = error.reason(&about);
                tracing::debug!(event = "ec2.failed", %error, said = %error.said, "{about}");
                match error.code {
                    Code::Throttled | Code::NoAnswer | Code::Unavailable => {
                        Step::Wait { reason, pace: Pace::Throttled }
                    }
                    code if code.passes_by_itself() => Step::Wait { reason, pace: Pace::Watching },
                    _no => Step::Hold { reason },
                }
            }
        }
    }

    async fn try_round<A: Ec2>(
        &mut self,
        hub: &Arc<Hub<A>>,
        spec: &EbsSpec,
        member: Option<&str>,
        may: May,
        seed: u64,
        now: Instant,
    ) -> Result<Step, ApiError> {
        let here = hub.here().await?;
        let start = usize::try_from(seed & 0xff).unwrap_or(0);
        let known = match spec {
            EbsSpec::Id(id) => vec![self.by_id(hub, id, now).await?],
            EbsSpec::Tags(tags) => match self.chosen.clone() {
                Some(id) => vec![self.by_id(hub, &id, now).await?],
                None => match self.by_tags(hub, &here, tags, member, now).await? {
                    Ok(several) => several.into_iter().map(Some).collect(),
                    Err(step) => return Ok(step),
                },
            },
        };
        let several = known.len() > 1;
        let mut last = None;
        for known in known {
            let Some(known) = known else {
                let message = format!(
                    "EC2 knows no volume {} in this account and region; nothing was formatted or mounted in its place",
                    about(spec)
                );
                self.chosen = None;
                return Ok(Step::Hold { reason: Reason::new(ReasonCode::VolumeNotFound, message) });
            };
            match self.one(hub, &here, &known, may, start, now).await? {
                // Another master was faster: the next one.
                Turn::Lost(reason) if several => last = Some(Step::Soon { reason }),
                Turn::Lost(reason) => {
                    self.chosen = None;
                    return Ok(Step::Soon { reason });
                }
                Turn::Step(step) => {
                    if matches!(&step, Step::Hold { .. }) {
                        // Another look at the tags may lead elsewhere.
                        self.chosen = None;
                    }
                    return Ok(step);
                }
            }
        }
        let nothing = || Reason::new(ReasonCode::VolumeNotFound, format!("{} is nowhere", about(spec)));
        Ok(last.unwrap_or_else(|| Step::Hold { reason: nothing() }))
    }

    async fn by_id<A: Ec2>(&self, hub: &Arc<Hub<A>>, id: &VolumeId, now: Instant) -> Result<Option<Known>, ApiError> {
        let answer = hub.volumes(Ask::Ids(BTreeSet::from([id.clone()]))).await?;
        let (at, asked) = (answer.at, now);
        Ok(answer.volumes.into_iter().find(|volume| volume.id == *id).map(|volume| Known { volume, at, asked }))
    }

    async fn by_tags<A: Ec2>(
        &self,
        hub: &Arc<Hub<A>>,
        here: &Here,
        tags: &[TagSpec],
        member: Option<&str>,
        now: Instant,
    ) -> Result<Result<Vec<Known>, Step>, ApiError> {
        // The key that fewest other volumes have: a member's, or the first.
        let key = tags.iter().find(|tag| tag.key.starts_with(kops::PREFIX)).or(tags.first());
        let keys = key.map(|tag| tag.key.clone()).into_iter().collect();
        let answer = hub.volumes(Ask::TagKeys { zone: here.zone.clone(), keys }).await?;
        let (at, asked) = (answer.at, now);
        let known = |volume: Volume| Known { volume, at, asked };
        let wanted = Wanted { tags, member, here };
        let mut holders = Holders::new();
        for _ in 0..MOST_TURNS {
            return Ok(match select(&answer.volumes, &wanted, &holders) {
                Selection::Take(volume) => Ok(vec![known(*volume)]),
                Selection::OneOf(volumes) => Ok(volumes.into_iter().map(known).collect()),
                Selection::Wait(reason) => Err(Step::Wait { reason, pace: Pace::Watching }),
                Selection::Hold(reason) => Err(Step::Hold { reason }),
                Selection::NeedHolders(ids) => {
                    for id in ids {
                        let instance = hub.instance(here, &id).await?;
                        holders.insert(id, instance.map(|instance| instance.state));
                    }
                    continue;
                }
            });
        }
        let reason =
            Reason::new(ReasonCode::VolumeAmbiguous, "which volume is meant does not come to an end".to_owned());
        Ok(Err(Step::Hold { reason }))
    }

    async fn one<A: Ec2>(
        &mut self,
        hub: &Arc<Hub<A>>,
        here: &Here,
        known: &Known,
        may: May,
        start: usize,
        now: Instant,
    ) -> Result<Turn, ApiError> {
        let volume = &known.volume;
        self.attempts.turn_to(&volume.id);
        let mut holder: Option<Option<Instance>> = None;
        let mut own: Option<Instance> = None;
        for _ in 0..MOST_TURNS {
            let look = Look {
                volume,
                here,
                holder: holder.as_ref().map(Option::as_ref),
                own: own.as_ref(),
                start,
                now: now.duration_since(self.begun),
            };
            let step = match self.attempts.next(&look) {
                Next::Here { device, warnings } => {
                    self.chosen = Some(volume.id.clone());
                    Step::Here { known: Box::new(known.clone()), device, warnings }
                }
                Next::NeedHolder(id) => {
                    holder = Some(hub.instance(here, &id).await?);
                    continue;
                }
                Next::NeedOwn => {
                    let missing = || ApiError {
                        code: Code::InstanceNotFound,
                        action: "DescribeInstances",
                        said: here.instance.to_string(),
                    };
                    own = Some(hub.instance(here, &here.instance).await?.ok_or_else(missing)?);
                    continue;
                }
                Next::Attach { .. } if may == May::Look => {
                    let message = format!(
                        "{} is attached to no instance, and this guard observes: it attaches nothing",
                        volume.id
                    );
                    Step::Hold { reason: Reason::new(ReasonCode::DeviceMissing, message) }
                }
                Next::Attach { device } => return self.attach(hub, here, known, device, now).await,
                Next::Wait(reason) => Step::Wait { reason, pace: Pace::Watching },
                Next::Hold(reason) => Step::Hold { reason },
            };
            return Ok(Turn::Step(step));
        }
        let reason = Reason::new(ReasonCode::AttachStuck, format!("the way of {} does not come to an end", volume.id));
        Ok(Turn::Step(Step::Hold { reason }))
    }

    async fn attach<A: Ec2>(
        &mut self,
        hub: &Arc<Hub<A>>,
        here: &Here,
        known: &Known,
        device: String,
        now: Instant,
    ) -> Result<Turn, ApiError> {
        let volume = &known.volume;
        tracing::info!(event = "ec2.attach", volume = %volume.id, instance = %here.instance, device, "asks EC2 to attach the volume");
        let answer = hub.attach(here, &volume.id, &device).await;
        if let Err(error) = &answer {
            tracing::warn!(event = "ec2.attach-answer", volume = %volume.id, %error, "looks what came of it");
        }
        let now = now.duration_since(self.begun);
        let taken = matches!(&answer, Err(error) if matches!(error.code, Code::VolumeInUse | Code::IncorrectState));
        let next = self.attempts.asked(volume, device, answer.as_ref().map(|_| ()), now);
        let reason = match &answer {
            Ok(()) => Reason::new(ReasonCode::AttachStuck, format!("{} is being attached", volume.id)),
            Err(error) => error.reason(&volume.id.0),
        };
        if taken {
            return Ok(Turn::Lost(reason));
        }
        self.chosen = Some(volume.id.clone());
        Ok(Turn::Step(match next {
            None if answer.is_ok() => Step::Arriving { known: Box::new(known.clone()), reason },
            None => Step::Soon { reason },
            Some(Next::Hold(reason)) => Step::Hold { reason },
            Some(Next::Wait(reason)) => Step::Wait { reason, pace: Pace::Throttled },
            Some(Next::Here { .. } | Next::NeedHolder(_) | Next::NeedOwn | Next::Attach { .. }) => {
                Step::Soon { reason }
            }
        }))
    }
}

/// What came of one volume among several.
enum Turn {
    Step(Step),
    /// Somebody else took it between look and AttachVolume.
    Lost(Reason),
}

#[cfg(test)]
mod tests;
