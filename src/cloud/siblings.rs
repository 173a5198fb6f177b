//! The other members' volumes: what of an answer of EC2's bears on whether a volume is new together with them. Pure.

use super::ec2::{Volume, VolumeState};
use super::kops::Cluster;
use crate::model::{Observed, Sibling, Siblings, Why};

/// Of all that was answered, those of the same cluster besides `own`. A volume that is gone, or going, says nothing.
pub fn siblings(own: &Volume, cluster: &Cluster, answered: &[Volume]) -> Observed<Siblings> {
    let Some(created) = own.created else {
        let detail = format!("EC2 does not say when {} was created", own.id);
        return Observed::Unknown(Why::Unreadable { detail });
    };
    let mut of: Vec<Sibling> = answered
        .iter()
        .filter(|volume| volume.id != own.id && !is_gone(&volume.state))
        .filter_map(|volume| {
            let member = cluster.member(&volume.tags)?;
            let attached = volume.attachments.iter().filter_map(|attached| attached.since).min();
            let ran = super::witness::of_tags(&volume.tags).map(|witness| witness.ran).unwrap_or_default();
            Some(Sibling { volume: volume.id.clone(), member: member.me, created: volume.created, attached, ran })
        })
        .collect();
    of.sort_by(|one, other| one.volume.cmp(&other.volume));
    let me = cluster.member(&own.tags).map(|member| member.me);
    Observed::Seen(Siblings::Listed { created, me, of })
}

fn is_gone(state: &VolumeState) -> bool {
    match state {
        VolumeState::Deleting | VolumeState::Deleted | VolumeState::Error => true,
        VolumeState::Creating | VolumeState::Available | VolumeState::InUse | VolumeState::Other(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::ec2::{AttachState, Attached, InstanceId};
    use super::*;
    use crate::model::{Time, VolumeId};

    fn volume(id: &str, kubernetes: &str, member: &str) -> Volume {
        let tags = [("KubernetesCluster", kubernetes), ("k8s.io/etcd/main", member)];
        Volume { state: VolumeState::InUse, ..Volume::free(id, tags) }
    }

    #[test]
    fn of_an_answer_those_of_the_same_cluster_count_and_no_others() {
        let own = volume("vol-1", "one", "a/a,b,c");
        let cluster = Cluster::of(&own.tags).unwrap();
        let mut attached = volume("vol-2", "one", "b/a,b,c");
        attached.tags.insert("volhold/ran".to_owned(), "etcd-a etcd-b".to_owned());
        attached.attachments.push(Attached {
            instance: InstanceId("i-2".to_owned()),
            device: None,
            state: AttachState::Attached,
            since: Time::from_unix(1_800_000_100),
            delete_on_termination: false,
        });
        let events = Volume { tags: [("k8s.io/etcd/events".to_owned(), "b/a,b,c".to_owned())].into(), ..own.clone() };
        let answered = [
            volume("vol-7", "one", "c/a,b,c"),
            own.clone(),
            attached,
            volume("vol-3", "two", "b/a,b,c"),
            Volume { id: VolumeId("vol-4".to_owned()), ..events },
            Volume { state: VolumeState::Deleting, ..volume("vol-5", "one", "b/a,b,c") },
            volume("vol-6", "one", "nonsense"),
        ];
        let Observed::Seen(Siblings::Listed { created, me, of }) = siblings(&own, &cluster, &answered) else {
            unreachable!("they are listed")
        };
        assert_eq!((Some(created), me.as_deref()), (own.created, Some("a")));
        let told: Vec<(&str, &str, Option<Time>)> =
            of.iter().map(|sibling| (sibling.volume.0.as_str(), sibling.member.as_str(), sibling.attached)).collect();
        assert_eq!(of[0].ran, ["etcd-a", "etcd-b"]);
        assert_eq!(told, [("vol-2", "b", Time::from_unix(1_800_000_100)), ("vol-7", "c", None)]);
    }

    #[test]
    fn without_its_own_age_nothing_is_said() {
        let own = Volume { created: None, ..volume("vol-1", "one", "a/a") };
        let cluster = Cluster::of(&own.tags).unwrap();
        assert!(siblings(&own, &cluster, &[]).seen().is_none());
    }
}
