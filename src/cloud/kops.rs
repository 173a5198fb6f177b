//! How kops marks the volumes of etcd: the tag `k8s.io/etcd/<cluster>` says which member a volume is, and who its peers are:
//! `a/a,b,c` (kops `pkg/model/master_volumes.go`, read by etcd-manager `pkg/volumes`).

use std::collections::BTreeMap;

/// Keys that begin so carry a member.
pub const PREFIX: &str = "k8s.io/etcd/";

/// The tag by which kops tells the volumes of one Kubernetes cluster from those of others in the account.
pub const CLUSTER: &str = "KubernetesCluster";

/// The etcd cluster that a volume belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// `k8s.io/etcd/main`: the same for the members of all Kubernetes clusters.
    pub key: String,
    /// `KubernetesCluster` and its value.
    pub tag: (String, String),
}

impl Cluster {
    /// `None` where the tags do not name one wholly.
    pub fn of(tags: &BTreeMap<String, String>) -> Option<Self> {
        let name = tags.get(CLUSTER).filter(|name| !name.is_empty())?;
        let (key, _) =
            tags.iter().find(|(key, value)| key.starts_with(PREFIX) && Membership::parse(value).is_some())?;
        Some(Cluster { key: key.clone(), tag: (CLUSTER.to_owned(), name.clone()) })
    }

    /// `main`, `events`, …
    pub fn etcd(&self) -> &str {
        self.key.strip_prefix(PREFIX).unwrap_or(&self.key)
    }

    /// The member whose volume has these tags, if it is of this cluster.
    pub fn member(&self, tags: &BTreeMap<String, String>) -> Option<Membership> {
        let (name, value) = &self.tag;
        let member = tags.get(&self.key).filter(|_| tags.get(name) == Some(value))?;
        Membership::parse(member)
    }
}

/// The value of such a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    pub me: String,
    pub all: Vec<String>,
}

impl Membership {
    /// `None` where the value does not name one member of its own list.
    pub fn parse(value: &str) -> Option<Self> {
        let (me, all) = value.split_once('/')?;
        let all: Vec<String> = all.split(',').map(|name| name.trim().to_owned()).collect();
        let me = me.trim().to_owned();
        (!me.is_empty() && all.contains(&me) && all.iter().all(|name| !name.is_empty()))
            .then_some(Membership { me, all })
    }

    /// Is this the member of that name? etcd-manager calls the member of the volume `a` `etcd-a`.
    pub fn is(&self, member: &str) -> bool {
        self.me == member || member.strip_prefix("etcd-") == Some(self.me.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_one_member_of_its_own_list() {
        let b = Membership::parse("b/a,b,c").expect("a membership");
        assert_eq!((b.me.as_str(), b.all.len()), ("b", 3));
        assert!(b.is("b") && b.is("etcd-b") && !b.is("a") && !b.is("etcd-a"));
        for wrong in ["", "a", "a/", "/a,b", "d/a,b,c", "a/a,,b", "a,b,c"] {
            assert_eq!(Membership::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_cluster_is_named_by_two_tags_or_not_at_all() {
        let tags = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let main = tags(&[("k8s.io/etcd/main", "a/a,b,c"), ("KubernetesCluster", "one")]);
        let cluster = Cluster::of(&main).expect("a cluster");
        assert_eq!(cluster.key, "k8s.io/etcd/main");
        assert_eq!(cluster.member(&main).map(|member| member.me).as_deref(), Some("a"));
        let two = tags(&[("k8s.io/etcd/main", "a/a,b,c"), ("KubernetesCluster", "two")]);
        assert_eq!(cluster.member(&two), None);
        for half in [
            tags(&[]),
            tags(&[("KubernetesCluster", "one")]),
            tags(&[("k8s.io/etcd/main", "a/a,b,c")]),
            tags(&[("k8s.io/etcd/main", "a/a,b,c"), ("KubernetesCluster", "")]),
            tags(&[("k8s.io/etcd/main", "nonsense"), ("KubernetesCluster", "one")]),
        ] {
            assert_eq!(Cluster::of(&half), None, "{half:?}");
            assert_eq!(cluster.member(&half), None, "{half:?}");
        }
    }
}
