//! The etcd volumes of all clusters of an account and region beside each other, and which of them is the odd one out. Pure:
//! pages of volumes in, rows out.
//!
//! Volumes are told by the tags of kops. Of a page nothing is kept but some hundred bytes for each volume of etcd, so an
//! account with tens of thousands of volumes takes no more memory than its largest page and its masters.

use super::backoff::{Backoff, Pace};
use super::code::{ApiError, Code};
use super::ec2::{AttachState, Attached, Volume, VolumeState};
use super::kops::Cluster;
use super::select::state_in_words;
use super::witness;
use crate::model::{ClusterId, FsUuid, MemberId, Time, VolumeId, Witness};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

/// How often one page is asked for before the listing is given up.
const MOST_TRIES: usize = 8;
/// More pages than any account has; a listing that goes in circles ends there.
const MOST_PAGES: usize = 10_000;

/// A page, and what leads to the next one. `None`: it was the last.
pub type Page = (Vec<Volume>, Option<String>);

/// DescribeVolumes page by page, over all zones of a region, for volumes with tags of kops.
pub trait Pages {
    /// `region`: `None` is that of the environment, or of this machine. `cluster`: only those of this `KubernetesCluster`.
    fn page(
        &self,
        region: Option<&str>,
        cluster: Option<&str>,
        after: Option<String>,
    ) -> impl Future<Output = Result<Page, ApiError>>;
}

/// The whole fleet. `pause` waits: a page that did not come because the account makes too many requests, or EC2 did not
/// answer, is asked for again. A listing that does not come to its end is an error, never half a fleet.
pub async fn listed(
    api: &impl Pages,
    region: Option<&str>,
    cluster: Option<&str>,
    seed: u64,
    pause: impl AsyncFn(Duration),
) -> Result<Fleet, ApiError> {
    let mut fleet = Fleet::new(cluster.map(str::to_owned));
    let mut after = None;
    let mut backoff = Backoff::new(seed);
    for _ in 0..MOST_PAGES {
        let mut tries = 0_usize;
        let (volumes, next) = loop {
            match api.page(region, cluster, after.clone()).await {
                Ok(page) => break page,
                Err(error) => {
                    tries = tries.saturating_add(1);
                    let passes = matches!(error.code, Code::Throttled | Code::Unavailable | Code::NoAnswer);
                    if !passes || tries >= MOST_TRIES {
                        return Err(error);
                    }
                    pause(backoff.pause(Pace::Throttled)).await;
                }
            }
        };
        backoff.reset();
        fleet.add(&volumes);
        match next {
            Some(token) => after = Some(token),
            None => return Ok(fleet),
        }
    }
    Err(ApiError { code: Code::Unknown, action: "DescribeVolumes", said: format!("more than {MOST_PAGES} pages") })
}

/// How much younger than the oldest one of its cluster a volume may be, in seconds: the rule by which a blank one is held.
pub const TOGETHER: i64 = 3600;

/// How much older than the newest ones of their cluster tags may be, in seconds, before their progress counts as behind. They
/// are written every few minutes while there is progress.
pub const BEHIND: i64 = 3600;

/// Why a volume stands out from the others of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Odd {
    /// The others name this member as theirs, and it has no volume.
    Missing,
    /// Another volume is tagged for the same member.
    Twice,
    /// Several instances have it, or may have it.
    Shared,
    /// One instance has the volumes of two members of one cluster.
    TwoOnOne,
    /// It is being deleted or detached, or is in error.
    Going,
    /// Nobody has it, while somebody has another one of the cluster.
    Unattached,
    /// Made more than an hour after the oldest one.
    Younger,
    /// Made from a snapshot, and not all of the others are.
    FromSnapshot,
    /// Names other peers than most of the others.
    OtherPeers,
    /// Larger or smaller than most of the others.
    OtherSize,
    /// Encrypted or not, unlike most of the others.
    OtherEncryption,
    /// EC2 deletes it together with its instance.
    DeletedWithInstance,
    /// Its tags were written for another volume.
    CopiedTags,
    /// Another volume of its cluster has the same filesystem, by the tags of both: one is a copy.
    SameFilesystem,
    /// Another volume of its cluster has the same member id.
    SameMember,
    /// By its tags it holds another cluster than most of the others.
    OtherCluster,
    /// Most of the others have held data, by their tags, and it has not.
    NoData,
    /// Its progress stands behind, and was noted over an hour before the newest of its cluster.
    Behind,
    /// Its tags say something that this version does not understand.
    Garbled,
}

impl Odd {
    pub const ALL: [Odd; 19] = [
        Odd::Missing,
        Odd::Twice,
        Odd::Shared,
        Odd::TwoOnOne,
        Odd::Going,
        Odd::Unattached,
        Odd::Younger,
        Odd::FromSnapshot,
        Odd::OtherPeers,
        Odd::OtherSize,
        Odd::OtherEncryption,
        Odd::DeletedWithInstance,
        Odd::CopiedTags,
        Odd::SameFilesystem,
        Odd::SameMember,
        Odd::OtherCluster,
        Odd::NoData,
        Odd::Behind,
        Odd::Garbled,
    ];

    /// As a table says it.
    pub fn words(self) -> &'static str {
        match self {
            Odd::Missing => "has no volume",
            Odd::Twice => "a second volume of this member",
            Odd::Shared => "may be attached to several instances",
            Odd::TwoOnOne => "on one instance with another member",
            Odd::Going => "being deleted or detached",
            Odd::Unattached => "attached to nobody",
            Odd::Younger => "over an hour younger than the oldest",
            Odd::FromSnapshot => "made from a snapshot",
            Odd::OtherPeers => "names other peers",
            Odd::OtherSize => "another size than most",
            Odd::OtherEncryption => "encrypted unlike most",
            Odd::DeletedWithInstance => "deleted with its instance",
            Odd::CopiedTags => "its tags are another volume's",
            Odd::SameFilesystem => "the same filesystem as another",
            Odd::SameMember => "the same member id as another",
            Odd::OtherCluster => "another cluster than most",
            Odd::NoData => "held no data, unlike most",
            Odd::Behind => "behind, and not seen for an hour",
            Odd::Garbled => "tags that are not understood",
        }
    }
}

/// One member, or one volume too many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// `KubernetesCluster`.
    pub cluster: String,
    /// `main`, `events`, …
    pub etcd: String,
    pub member: String,
    /// `None`: the member has none.
    pub volume: Option<VolumeId>,
    pub zone: Option<String>,
    pub state: Option<String>,
    /// The instances that have it.
    pub attached: Vec<String>,
    pub created: Option<Time>,
    pub odd: Vec<Odd>,
    /// The same as `volume`, and as `attached`.
    pub volume_id: Option<VolumeId>,
    pub attached_to: Vec<String>,
    /// What follows is by the volume's own tags.
    pub fs_uuid: Option<FsUuid>,
    pub cluster_id: Option<ClusterId>,
    pub member_id: Option<MemberId>,
    pub progress: Option<Progress>,
    /// When they were last written. How old that is depends on when it is read.
    pub seen_at: Option<Time>,
}

/// How far a member had got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Progress {
    pub keys: Option<u64>,
    pub revision: Option<i64>,
    pub index: Option<u64>,
    pub term: Option<u64>,
}

/// What is kept of a volume.
#[derive(Debug)]
struct Kept {
    member: String,
    peers: BTreeSet<String>,
    id: VolumeId,
    zone: String,
    state: String,
    going: bool,
    attached: Vec<String>,
    deleted_with_instance: bool,
    multi_attach: bool,
    created: Option<Time>,
    size: u64,
    encrypted: bool,
    from_snapshot: bool,
    witness: Option<Witness>,
}

/// All that was seen so far.
#[derive(Debug, Default)]
pub struct Fleet {
    /// Only this `KubernetesCluster`.
    only: Option<String>,
    /// By cluster, and etcd within it.
    clusters: BTreeMap<(String, String), Vec<Kept>>,
}

impl Fleet {
    pub fn new(only: Option<String>) -> Self {
        Fleet { only, clusters: BTreeMap::new() }
    }

    /// Everything that comes, page by page: the next one is asked for when nothing of the last one is left.
    pub fn of<P: AsRef<[Volume]>, E>(
        only: Option<String>,
        pages: impl Iterator<Item = Result<P, E>>,
    ) -> Result<Self, E> {
        let mut fleet = Fleet::new(only);
        for page in pages {
            fleet.add(page?.as_ref());
        }
        Ok(fleet)
    }

    /// Takes in one page. Volumes of other people are passed over.
    pub fn add(&mut self, page: &[Volume]) {
        for volume in page {
            let Some(cluster) = Cluster::of(&volume.tags) else { continue };
            let Some(membership) = cluster.member(&volume.tags) else { continue };
            let gone = match volume.state {
                VolumeState::Deleted => true,
                VolumeState::Creating
                | VolumeState::Available
                | VolumeState::InUse
                | VolumeState::Deleting
                | VolumeState::Error
                | VolumeState::Other(_) => false,
            };
            let (_, name) = &cluster.tag;
            if gone || self.only.as_ref().is_some_and(|only| only != name) {
                continue;
            }
            let kept = Kept {
                member: membership.me,
                peers: membership.all.into_iter().collect(),
                id: volume.id.clone(),
                zone: volume.zone.clone(),
                state: state_in_words(&volume.state).to_owned(),
                going: is_going(volume),
                attached: volume.attachments.iter().map(|attached| attached.instance.to_string()).collect(),
                deleted_with_instance: volume.attachments.iter().any(|attached| attached.delete_on_termination),
                multi_attach: volume.multi_attach,
                created: volume.created,
                size: volume.size,
                encrypted: volume.encrypted,
                from_snapshot: volume.snapshot.is_some(),
                witness: witness::of_tags(&volume.tags),
            };
            self.clusters.entry((name.clone(), cluster.etcd().to_owned())).or_default().push(kept);
        }
    }

    /// The table, by cluster, etcd, member and volume.
    pub fn rows(self) -> impl Iterator<Item = Row> {
        self.clusters.into_iter().flat_map(|((cluster, etcd), volumes)| of_one(&cluster, &etcd, volumes))
    }
}

fn is_going(volume: &Volume) -> bool {
    let state = match volume.state {
        VolumeState::Deleting | VolumeState::Deleted | VolumeState::Error => true,
        VolumeState::Creating | VolumeState::Available | VolumeState::InUse | VolumeState::Other(_) => false,
    };
    let leaves = |attached: &Attached| match attached.state {
        AttachState::Busy | AttachState::Detaching => true,
        AttachState::Attaching | AttachState::Attached | AttachState::Other(_) => false,
    };
    state || volume.attachments.iter().any(leaves)
}

/// What most have; `None` where no value has more than half of them.
fn most<T: Ord>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    let mut all = 0_usize;
    for value in values {
        let count = counts.entry(value).or_default();
        *count = count.saturating_add(1);
        all = all.saturating_add(1);
    }
    counts.into_iter().find(|(_, count)| count.saturating_mul(2) > all).map(|(value, _)| value)
}

impl Kept {
    fn told<T: Copy>(&self, what: impl Fn(&Witness) -> Option<T>) -> Option<T> {
        self.witness.as_ref().and_then(what)
    }

    fn progress(&self) -> Option<Progress> {
        let mark = self.witness.as_ref()?.mark.as_ref()?;
        Some(Progress { keys: mark.keys, revision: mark.revision, index: mark.consistent_index, term: mark.term })
    }
}

/// By what the tags remember: what is odd about each volume, in their order.
fn by_tags(volumes: &[Kept]) -> Vec<Vec<Odd>> {
    let count = |same: &dyn Fn(&Kept) -> bool| volumes.iter().filter(|volume| same(volume)).count();
    let cluster = most(volumes.iter().filter_map(|volume| volume.told(|witness| witness.cluster_id)));
    let held = count(&|volume| volume.progress().is_some());
    let most_held = held.saturating_mul(2) > volumes.len();
    let newest = volumes.iter().filter_map(|volume| volume.told(|witness| witness.seen_at)).max();
    let furthest = volumes.iter().filter_map(|volume| volume.progress()?.index).max();
    let odd = |volume: &Kept| {
        let fs_uuid = volume.told(|witness| witness.fs_uuid);
        let member = volume.told(|witness| witness.member_id);
        let of_other = |other: ClusterId| cluster.is_some_and(|most| most != other);
        let late = volume
            .told(|witness| witness.seen_at)
            .zip(newest)
            .is_some_and(|(seen, newest)| newest.unix().saturating_sub(seen.unix()) > BEHIND);
        let behind = volume.progress().and_then(|progress| progress.index) < furthest && volume.progress().is_some();
        let copied = volume
            .witness
            .as_ref()
            .and_then(|witness| witness.volume.as_ref())
            .is_some_and(|written_for| *written_for != volume.id);
        let garbled = volume.witness.as_ref().is_some_and(|witness| !witness.not_understood.is_empty());
        let rules = [
            (Odd::CopiedTags, copied),
            (
                Odd::SameFilesystem,
                fs_uuid.is_some() && count(&|other| other.told(|witness| witness.fs_uuid) == fs_uuid) > 1,
            ),
            (
                Odd::SameMember,
                member.is_some() && count(&|other| other.told(|witness| witness.member_id) == member) > 1,
            ),
            (Odd::OtherCluster, volume.told(|witness| witness.cluster_id).is_some_and(of_other)),
            (Odd::NoData, most_held && volume.progress().is_none()),
            (Odd::Behind, late && behind),
            (Odd::Garbled, garbled),
        ];
        rules.into_iter().filter_map(|(odd, is)| is.then_some(odd)).collect()
    };
    volumes.iter().map(odd).collect()
}

/// The rows of one etcd cluster.
fn of_one(cluster: &str, etcd: &str, mut volumes: Vec<Kept>) -> Vec<Row> {
    volumes.sort_by(|one, other| (&one.member, &one.id).cmp(&(&other.member, &other.id)));
    // A page may come twice where volumes are made while they are listed.
    volumes.dedup_by(|one, other| one.id == other.id);
    let oldest = volumes.iter().filter_map(|volume| volume.created).min();
    let peers = most(volumes.iter().map(|volume| &volume.peers)).cloned();
    let size = most(volumes.iter().map(|volume| volume.size));
    let encrypted = most(volumes.iter().map(|volume| volume.encrypted));
    let all_from_snapshots = volumes.iter().all(|volume| volume.from_snapshot);
    let somebody = volumes.iter().any(|volume| !volume.attached.is_empty());
    let mut of_member: BTreeMap<&str, usize> = BTreeMap::new();
    let mut on_instance: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for volume in &volumes {
        let count = of_member.entry(&volume.member).or_default();
        *count = count.saturating_add(1);
        for instance in &volume.attached {
            on_instance.entry(instance).or_default().insert(&volume.member);
        }
    }
    let odd = |volume: &Kept| {
        let younger = match (volume.created, oldest) {
            (Some(created), Some(oldest)) => created.unix().saturating_sub(oldest.unix()) > TOGETHER,
            (None, _) | (_, None) => false,
        };
        let two_on_one =
            |instance: &String| on_instance.get(instance.as_str()).is_some_and(|members| members.len() > 1);
        let rules = [
            (Odd::Twice, of_member.get(volume.member.as_str()).is_some_and(|count| *count > 1)),
            (Odd::Shared, volume.multi_attach || volume.attached.len() > 1),
            (Odd::TwoOnOne, volume.attached.iter().any(two_on_one)),
            (Odd::Going, volume.going),
            (Odd::Unattached, somebody && volume.attached.is_empty()),
            (Odd::Younger, younger),
            (Odd::FromSnapshot, volume.from_snapshot && !all_from_snapshots),
            (Odd::OtherPeers, peers.as_ref().is_some_and(|most| *most != volume.peers)),
            (Odd::OtherSize, size.is_some_and(|most| most != volume.size)),
            (Odd::OtherEncryption, encrypted.is_some_and(|most| most != volume.encrypted)),
            (Odd::DeletedWithInstance, volume.deleted_with_instance),
        ];
        rules.into_iter().filter_map(|(odd, is)| is.then_some(odd)).collect::<Vec<_>>()
    };
    let named: BTreeSet<&String> = volumes.iter().flat_map(|volume| &volume.peers).collect();
    let missing = named.into_iter().filter(|name| !of_member.contains_key(name.as_str())).map(|name| Row {
        cluster: cluster.to_owned(),
        etcd: etcd.to_owned(),
        member: name.clone(),
        volume: None,
        zone: None,
        state: None,
        attached: Vec::new(),
        created: None,
        odd: vec![Odd::Missing],
        volume_id: None,
        attached_to: Vec::new(),
        fs_uuid: None,
        cluster_id: None,
        member_id: None,
        progress: None,
        seen_at: None,
    });
    let remembered = by_tags(&volumes);
    let there = volumes.iter().zip(remembered).map(|(volume, remembered)| Row {
        cluster: cluster.to_owned(),
        etcd: etcd.to_owned(),
        member: volume.member.clone(),
        volume: Some(volume.id.clone()),
        zone: Some(volume.zone.clone()),
        state: Some(volume.state.clone()),
        attached: volume.attached.clone(),
        created: volume.created,
        odd: odd(volume).into_iter().chain(remembered).collect(),
        volume_id: Some(volume.id.clone()),
        attached_to: volume.attached.clone(),
        fs_uuid: volume.told(|witness| witness.fs_uuid),
        cluster_id: volume.told(|witness| witness.cluster_id),
        member_id: volume.told(|witness| witness.member_id),
        progress: volume.progress(),
        seen_at: volume.told(|witness| witness.seen_at),
    });
    let mut rows: Vec<Row> = there.chain(missing).collect();
    rows.sort_by(|one, other| (&one.member, &one.volume).cmp(&(&other.member, &other.volume)));
    rows
}

#[cfg(test)]
mod tests;
