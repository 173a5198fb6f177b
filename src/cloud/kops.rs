//! How kops marks the volumes of etcd: the tag `k8s.io/etcd/<cluster>` says which member a volume is, and who its peers are:
//! `a/a,b,c` (kops `pkg/model/master_volumes.go`, read by etcd-manager `pkg/volumes`).

/// Keys that begin so carry a member.
pub const PREFIX: &str = "k8s.io/etcd/";

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
}
