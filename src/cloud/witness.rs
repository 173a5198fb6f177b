//! The witness as tags on the volume: `volhold/…`. Pure; who writes them is [`writer`].
//!
//! A volume may have 50 tags, most of them other people's, with keys of 128 characters and values of 256; letters, digits,
//! spaces and `+ - = . _ : / @` are what every service of AWS takes (EC2 user guide, "Tag restrictions"). What does not fit is
//! left out: half a value would be another one.
//!
//! A key that is not known here is of a later version, and passed over. A known key with a value that cannot be read is kept
//! as such: it says that volhold had the volume, whatever else it says.

pub mod writer;

use crate::model::{ClusterId, FsUuid, HighWater, MemberId, Time, VolumeId, Witness};
use std::collections::BTreeMap;

/// All keys begin so. Policies of IAM name it, too.
pub const PREFIX: &str = "volhold/";
const VOLUME: &str = "volhold/volume";
const FILESYSTEM: &str = "volhold/fs-uuid";
const FORMATTED: &str = "volhold/formatted";
const CLUSTER: &str = "volhold/cluster-id";
const MEMBER: &str = "volhold/member-id";
const DATA_DIR: &str = "volhold/data-dir";
const RAN: &str = "volhold/ran";
const PROGRESS: &str = "volhold/progress";
const SEEN: &str = "volhold/seen";
/// Who had the volume.
pub const HOLDER: &str = "volhold/holder";

/// Longest value of a tag, in characters.
const LONGEST: usize = 256;

/// What the tags of a volume say. `None`: there is none of volhold's.
pub fn of_tags(tags: &BTreeMap<String, String>) -> Option<Witness> {
    let ours = tags.range(PREFIX.to_owned()..).take_while(|(key, _)| key.starts_with(PREFIX));
    let mut witness = Witness::default();
    let mut known = false;
    for (key, value) in ours {
        let understood = match key.as_str() {
            VOLUME => set(&mut witness.volume, VolumeId::ebs(value)),
            FILESYSTEM => set(&mut witness.fs_uuid, value.parse().ok().map(FsUuid)),
            FORMATTED => set(&mut witness.formatted, formatted(value)),
            CLUSTER => set(&mut witness.cluster_id, value.parse::<ClusterId>().ok()),
            MEMBER => set(&mut witness.member_id, value.parse::<MemberId>().ok()),
            DATA_DIR => set(&mut witness.data_dir, Some(value.clone()).filter(|dir| !dir.is_empty())),
            RAN => {
                witness.ran = value.split(' ').filter(|name| !name.is_empty()).map(str::to_owned).collect();
                true
            }
            PROGRESS => set(&mut witness.mark, progress(value)),
            SEEN => set(&mut witness.seen_at, time(value)),
            HOLDER => set(&mut witness.holder, Some(value.clone())),
            _later_version => continue,
        };
        known = true;
        if !understood {
            witness.not_understood.push(format!("{key}={value}"));
        }
    }
    if let Some(mark) = &mut witness.mark {
        mark.cluster_id = mark.cluster_id.or(witness.cluster_id);
        mark.member_id = mark.member_id.or(witness.member_id);
        mark.data_dir = witness.data_dir.clone().unwrap_or_default();
    }
    known.then_some(witness)
}

fn set<T>(place: &mut Option<T>, value: Option<T>) -> bool {
    *place = value;
    place.is_some()
}

/// The tags that say it. What has no value stays as it was written before, by whoever knew.
pub fn tags(witness: &Witness) -> Vec<(&'static str, String)> {
    let Witness {
        volume,
        fs_uuid,
        formatted,
        cluster_id,
        member_id,
        data_dir,
        ran,
        mark,
        seen_at,
        holder,
        not_understood: _,
    } = witness;
    // A name with a space in it would be two.
    let ran = ran.iter().all(|name| !name.contains(' ')).then(|| ran.join(" "));
    let all = [
        (VOLUME, volume.as_ref().map(ToString::to_string)),
        (FILESYSTEM, fs_uuid.map(|uuid| uuid.to_string())),
        (FORMATTED, formatted.as_ref().map(|(at, by)| format!("{at} {by}"))),
        (CLUSTER, cluster_id.map(|id| id.to_string())),
        (MEMBER, member_id.map(|id| id.to_string())),
        (DATA_DIR, data_dir.clone()),
        (RAN, ran),
        (PROGRESS, mark.as_ref().map(in_words)),
        (SEEN, seen_at.map(|at| at.to_string())),
        (HOLDER, holder.clone()),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key, value.filter(|value| fits(value))?))).collect()
}

fn fits(value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || " +-=._:/@".contains(c);
    !value.is_empty() && value.len() <= LONGEST && value.chars().all(plain)
}

fn time(text: &str) -> Option<Time> {
    text.parse().ok().map(Time)
}

/// `TIME INSTANCE`
fn formatted(text: &str) -> Option<(Time, String)> {
    let (at, by) = text.split_once(' ')?;
    Some((time(at)?, by.to_owned()))
}

/// `keys=5 revision=7 index=10 term=2 wal=12 cluster=2f member=31`, what is not known left out. It names its member: the tags of
/// a member that has not got as far as any progress stand beside what is left of the one before.
fn in_words(mark: &HighWater) -> String {
    let HighWater { data_dir: _, cluster_id, member_id, term, consistent_index, revision, wal_last_index, keys } = mark;
    let all = [
        ("keys", keys.map(|n| n.to_string())),
        ("revision", revision.map(|n| n.to_string())),
        ("index", consistent_index.map(|n| n.to_string())),
        ("term", term.map(|n| n.to_string())),
        ("wal", wal_last_index.map(|n| n.to_string())),
        ("cluster", cluster_id.map(|id| id.to_string())),
        ("member", member_id.map(|id| id.to_string())),
    ];
    let parts: Vec<String> = all.into_iter().filter_map(|(name, n)| Some(format!("{name}={}", n?))).collect();
    parts.join(" ")
}

/// `None` where a word is no `NAME=NUMBER`, or none is known; names of a later version are passed over.
fn progress(text: &str) -> Option<HighWater> {
    let mut mark = HighWater {
        data_dir: String::new(),
        cluster_id: None,
        member_id: None,
        term: None,
        consistent_index: None,
        revision: None,
        wal_last_index: None,
        keys: None,
    };
    let mut known = false;
    for word in text.split(' ') {
        let (name, number) = word.split_once('=')?;
        known |= matches!(name, "keys" | "revision" | "index" | "term" | "wal");
        match name {
            "keys" => mark.keys = Some(number.parse().ok()?),
            "revision" => mark.revision = Some(number.parse().ok()?),
            "index" => mark.consistent_index = Some(number.parse().ok()?),
            "term" => mark.term = Some(number.parse().ok()?),
            "wal" => mark.wal_last_index = Some(number.parse().ok()?),
            "cluster" => mark.cluster_id = Some(number.parse().ok()?),
            "member" => mark.member_id = Some(number.parse().ok()?),
            _later_version => {}
        }
    }
    known.then_some(mark)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    fn whole() -> Witness {
        let mark = HighWater {
            data_dir: "data/x".to_owned(),
            cluster_id: Some(ClusterId(0xcdf8_1819_4e3a_8c32)),
            member_id: Some(MemberId(u64::MAX)),
            term: Some(u64::MAX),
            consistent_index: Some(u64::MAX),
            revision: Some(i64::MAX),
            wal_last_index: Some(u64::MAX),
            keys: Some(u64::MAX),
        };
        Witness {
            volume: VolumeId::ebs("vol-0123456789abcdef0"),
            fs_uuid: Some(FsUuid(uuid::Uuid::from_u128(u128::MAX))),
            formatted: Some((Time::from_unix(1_800_000_000).unwrap(), "i-0123456789abcdef0".to_owned())),
            cluster_id: mark.cluster_id,
            member_id: mark.member_id,
            data_dir: Some(mark.data_dir.clone()),
            ran: vec!["etcd-a".to_owned(), "etcd-b".to_owned()],
            mark: Some(mark),
            seen_at: Time::from_unix(1_800_000_300),
            holder: Some("i-0123456789abcdef0 main".to_owned()),
            not_understood: Vec::new(),
        }
    }

    fn as_map(tags: Vec<(&'static str, String)>) -> BTreeMap<String, String> {
        tags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    #[test]
    fn what_is_written_reads_back_and_keeps_to_what_every_service_takes() {
        let written = tags(&whole());
        assert!(written.len() <= 10, "other people have tags, too: {written:?}");
        for (key, value) in &written {
            assert!(key.starts_with(PREFIX) && key.len() <= 128 && fits(value), "{key} {value}");
        }
        assert_eq!(of_tags(&as_map(written)), Some(whole()));
    }

    #[test]
    fn progress_that_another_member_left_behind_is_not_taken_for_this_ones() {
        let before = as_map(tags(&whole()));
        let fresh = Witness { member_id: Some(MemberId(5)), mark: None, ..whole() };
        let after: BTreeMap<String, String> = before.into_iter().chain(as_map(tags(&fresh))).collect();
        let witness = of_tags(&after).unwrap();
        assert_eq!(witness.member_id, Some(MemberId(5)));
        assert_eq!(witness.mark.unwrap().member_id, Some(MemberId(u64::MAX)));
        // Earlier versions did not say whose it is.
        let of = |progress: &str| {
            BTreeMap::from([(PROGRESS.to_owned(), progress.to_owned()), (MEMBER.to_owned(), "5".to_owned())])
        };
        assert_eq!(of_tags(&of("keys=3")).unwrap().mark.unwrap().member_id, Some(MemberId(5)));
    }

    #[test]
    fn a_value_that_does_not_fit_is_left_out_and_not_cut() {
        for dir in ["ä", "a\nb", &"x".repeat(257), ""] {
            let witness = Witness { data_dir: Some((*dir).to_owned()), ..whole() };
            assert!(tags(&witness).iter().all(|(key, _)| *key != DATA_DIR), "{dir}");
        }
    }

    #[test]
    fn other_peoples_tags_are_no_witness_and_a_garbled_one_is() {
        let of = |pairs: &[(&str, &str)]| {
            of_tags(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        };
        for others in [&[][..], &[("Name", "x"), ("volhold", "etcd"), ("volholds/x", "y")], &[("volhold/later", "1")]] {
            assert_eq!(of(others), None, "{others:?}");
        }
        for (key, value) in [
            (FILESYSTEM, "garbage"),
            (CLUSTER, "xyz"),
            (PROGRESS, "keys=many"),
            (PROGRESS, ""),
            (SEEN, "yesterday"),
            (FORMATTED, "2027"),
            (VOLUME, "vol-x"),
        ] {
            let witness = of(&[(key, value)]).unwrap();
            assert_eq!(witness.not_understood, [format!("{key}={value}")]);
        }
        assert_eq!(of(&[(PROGRESS, "keys=3 later=x")]).unwrap().mark.unwrap().keys, Some(3));
    }

    proptest! {
        #[test]
        fn no_tags_however_odd_do_any_harm(
            pairs in proptest::collection::btree_map("(volhold/)?[a-z-]{0,12}", ".{0,40}", 0..8),
            key in proptest::sample::select(vec![VOLUME, FILESYSTEM, FORMATTED, CLUSTER, MEMBER, PROGRESS, SEEN]),
            value in ".{0,60}",
        ) {
            let mut tags = pairs;
            tags.insert(key.to_owned(), value);
            let witness = of_tags(&tags).unwrap();
            // Whatever was understood says the same again.
            let again = of_tags(&as_map(super::tags(&Witness { not_understood: Vec::new(), ..witness.clone() })));
            if witness.not_understood.is_empty() && witness.data_dir.is_none() && witness.holder.is_none() && witness.formatted.is_none() {
                prop_assert_eq!(again.map(|again| (again.fs_uuid, again.cluster_id, again.mark)), Some((witness.fs_uuid, witness.cluster_id, witness.mark)));
            }
        }
    }
}
