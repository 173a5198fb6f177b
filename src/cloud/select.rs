//! Which of the volumes with the wanted tags is this guard's? Pure: states in, one volume or the whole list with reasons out.
//!
//! There is no "the first": two that fit are a hold, which lists them. Only on kops, where the volume *is* the member, may
//! several different members be free at once, and AttachVolume decides who gets which.

use super::ec2::{AttachState, Attached, Here, InstanceId, InstanceState, Volume, VolumeState};
use super::kops::{self, Membership};
use crate::model::{Reason, ReasonCode, TagSpec};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub tags: &'a [TagSpec],
    /// The member that this node is, if configuration says.
    pub member: Option<&'a str>,
    pub here: &'a Here,
}

/// State of the instances that hold candidates, as far as it was asked for. `None`: EC2 knows no such instance any more.
pub type Holders = BTreeMap<InstanceId, Option<InstanceState>>;

/// What comes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    Take(Box<Volume>),
    /// Free members of kops, to be tried in this order.
    OneOf(Vec<Volume>),
    /// Whether these still run decides; ask, and select again.
    NeedHolders(Vec<InstanceId>),
    /// Every one that fits is still in the hands of an instance that is ending.
    Wait(Reason),
    Hold(Reason),
}

/// Selects among all that was answered; what does not have the tags is not looked at.
pub fn select(volumes: &[Volume], wanted: &Wanted<'_>, holders: &Holders) -> Selection {
    let mut fitting: Vec<&Volume> = volumes.iter().filter(|volume| has_tags(volume, wanted.tags)).collect();
    fitting.sort_by(|one, other| one.id.cmp(&other.id));
    fitting.dedup_by(|one, other| one.id == other.id);
    let mut candidates: Vec<Candidate> = fitting.into_iter().map(|volume| Candidate::new(volume, wanted)).collect();
    // Nobody else's state matters where only one can be meant: attaching says what is in the way.
    let open: Vec<&Candidate> = candidates.iter().filter(|candidate| candidate.out.is_none()).collect();
    if let [only] = open.as_slice() {
        return Selection::Take(Box::new(only.volume.clone()));
    }
    let unknown: BTreeSet<InstanceId> = open
        .iter()
        .filter_map(|candidate| candidate.elsewhere(wanted.here))
        .map(|attached| attached.instance.clone())
        .filter(|instance| !holders.contains_key(instance))
        .collect();
    if !unknown.is_empty() {
        return Selection::NeedHolders(unknown.into_iter().collect());
    }
    for candidate in &mut candidates {
        candidate.judge_holder(wanted.here, holders);
    }
    decide(&candidates, wanted)
}

fn decide(candidates: &[Candidate<'_>], wanted: &Wanted<'_>) -> Selection {
    let left: Vec<&Candidate> = candidates.iter().filter(|candidate| candidate.out.is_none()).collect();
    match left.as_slice() {
        [only] => Selection::Take(Box::new(only.volume.clone())),
        [] if candidates.is_empty() => {
            let message = format!(
                "no volume in {} has the tags {}; nothing was formatted or mounted in its place",
                wanted.here.zone,
                tags_in_words(wanted.tags)
            );
            Selection::Hold(Reason::new(ReasonCode::VolumeNotFound, message))
        }
        [] => {
            let elsewhere = candidates.iter().any(|candidate| matches!(candidate.out, Some(Out::HeldByRunning(_))));
            let code = if elsewhere { ReasonCode::VolumeElsewhere } else { ReasonCode::VolumeNotFound };
            let message = format!(
                "no volume with the tags {} in {} can be taken: {}",
                tags_in_words(wanted.tags),
                wanted.here.zone,
                listed(candidates)
            );
            Selection::Hold(Reason::new(code, message).with_detail(details(candidates)))
        }
        several => members(several, candidates, wanted),
    }
}

/// Several are left. Members of kops that are different from one another may be tried; all else is for a person.
fn members(left: &[&Candidate<'_>], candidates: &[Candidate<'_>], wanted: &Wanted<'_>) -> Selection {
    let names: BTreeSet<&str> =
        left.iter().filter_map(|candidate| candidate.member.as_ref()).map(|member| member.me.as_str()).collect();
    if names.len() != left.len() {
        let message = format!(
            "{} volumes in {} have the tags {}, and nothing tells which one is this guard's, so none was touched: {}",
            left.len(),
            wanted.here.zone,
            tags_in_words(wanted.tags),
            listed(candidates)
        );
        return Selection::Hold(Reason::new(ReasonCode::VolumeAmbiguous, message).with_detail(details(candidates)));
    }
    let mut here = left.iter().filter(|candidate| candidate.is_here(wanted.here));
    if let (Some(own), None) = (here.next(), here.next()) {
        return Selection::Take(Box::new(own.volume.clone()));
    }
    let free: Vec<Volume> = left
        .iter()
        .filter(|candidate| candidate.volume.attachments.is_empty())
        .map(|candidate| candidate.volume.clone())
        .collect();
    if free.is_empty() {
        let message = format!(
            "every volume with the tags {} in {} is still attached to an instance that is ending: {}",
            tags_in_words(wanted.tags),
            wanted.here.zone,
            listed(candidates)
        );
        return Selection::Wait(Reason::new(ReasonCode::VolumeElsewhere, message).with_detail(details(candidates)));
    }
    Selection::OneOf(free)
}

/// A volume that has the tags.
struct Candidate<'a> {
    volume: &'a Volume,
    member: Option<Membership>,
    /// Why it is not the one.
    out: Option<Out>,
}

/// Why a volume with the right tags is not taken.
enum Out {
    OtherZone,
    Gone,
    MultiAttach,
    Unreadable { tag: String },
    OtherMember { me: String },
    HeldByRunning(InstanceId),
}

impl<'a> Candidate<'a> {
    fn new(volume: &'a Volume, wanted: &Wanted<'_>) -> Self {
        let tag = wanted
            .tags
            .iter()
            .filter(|tag| tag.key.starts_with(kops::PREFIX))
            .find_map(|tag| volume.tags.get(&tag.key).map(|value| (tag.key.clone(), value)));
        let member = tag.as_ref().and_then(|(_, value)| Membership::parse(value));
        let gone = match volume.state {
            VolumeState::Deleting | VolumeState::Deleted | VolumeState::Error => true,
            VolumeState::Creating | VolumeState::Available | VolumeState::InUse | VolumeState::Other(_) => false,
        };
        let out = match (&member, &tag, wanted.member) {
            _ if volume.zone != wanted.here.zone => Some(Out::OtherZone),
            _ if gone => Some(Out::Gone),
            _ if volume.multi_attach => Some(Out::MultiAttach),
            (None, Some((tag, _)), _) => Some(Out::Unreadable { tag: tag.clone() }),
            (Some(member), _, Some(told)) if !member.is(told) => Some(Out::OtherMember { me: member.me.clone() }),
            (Some(_) | None, _, _) => None,
        };
        Candidate { volume, member, out }
    }

    fn elsewhere(&self, here: &Here) -> Option<&'a Attached> {
        self.volume.attachments.iter().find(|attached| attached.instance != here.instance)
    }

    fn is_here(&self, here: &Here) -> bool {
        self.volume.attachments.iter().any(|attached| attached.instance == here.instance)
    }

    fn judge_holder(&mut self, here: &Here, holders: &Holders) {
        let Some(attached) = self.elsewhere(here) else { return };
        let leaving = match attached.state {
            AttachState::Detaching | AttachState::Busy => true,
            AttachState::Attaching | AttachState::Attached | AttachState::Other(_) => false,
        };
        let runs = match holders.get(&attached.instance) {
            Some(Some(InstanceState::Pending | InstanceState::Running | InstanceState::Stopped)) => true,
            // Not known is not ending.
            Some(Some(InstanceState::Other(_))) => true,
            Some(Some(InstanceState::Stopping | InstanceState::ShuttingDown | InstanceState::Terminated) | None)
            | None => false,
        };
        if runs && !leaving && self.out.is_none() {
            self.out = Some(Out::HeldByRunning(attached.instance.clone()));
        }
    }

    fn why(&self) -> String {
        match &self.out {
            None => "fits".to_owned(),
            Some(Out::OtherZone) => format!("lies in {}", self.volume.zone),
            Some(Out::Gone) => format!("is {}", state_in_words(&self.volume.state)),
            Some(Out::MultiAttach) => "may be attached to several instances at once".to_owned(),
            Some(Out::Unreadable { tag }) => format!("its tag {tag} names no member"),
            Some(Out::OtherMember { me }) => format!("is that of member {me}"),
            Some(Out::HeldByRunning(instance)) => format!("is attached to {instance}"),
        }
    }
}

fn has_tags(volume: &Volume, tags: &[TagSpec]) -> bool {
    tags.iter().all(|tag| match (volume.tags.get(&tag.key), &tag.value) {
        (Some(has), Some(wanted)) => has == wanted,
        (Some(_), None) => true,
        (None, _) => false,
    })
}

fn tags_in_words(tags: &[TagSpec]) -> String {
    tags.iter().map(TagSpec::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn state_in_words(state: &VolumeState) -> &str {
    match state {
        VolumeState::Creating => "creating",
        VolumeState::Available => "available",
        VolumeState::InUse => "in-use",
        VolumeState::Deleting => "deleting",
        VolumeState::Deleted => "deleted",
        VolumeState::Error => "error",
        VolumeState::Other(word) => word,
    }
}

fn listed(candidates: &[Candidate<'_>]) -> String {
    let one = |candidate: &Candidate<'_>| {
        let created = candidate.volume.created.map_or(String::new(), |at| format!(", created {at}"));
        let member = candidate.member.as_ref().map_or(String::new(), |member| format!(", member {}", member.me));
        let state = state_in_words(&candidate.volume.state);
        format!("{} ({state}{created}{member}) {}", candidate.volume.id, candidate.why())
    };
    candidates.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn details(candidates: &[Candidate<'_>]) -> serde_json::Value {
    let one = |candidate: &Candidate<'_>| {
        let volume = candidate.volume;
        json!({
            "volume": volume.id,
            "state": state_in_words(&volume.state),
            "zone": volume.zone,
            "created": volume.created,
            "from_snapshot": volume.snapshot,
            "attached_to": volume.attachments.iter().map(|attached| attached.instance.0.as_str()).collect::<Vec<_>>(),
            "tags": volume.tags,
            "fits": candidate.out.is_none(),
            "why": candidate.why(),
        })
    };
    json!({ "candidates": candidates.iter().map(one).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests;
