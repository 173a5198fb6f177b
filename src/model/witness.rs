//! What tags on the volume itself remember of it: the one memory that outlives both the instance and the filesystem.
//!
//! It is a record like the ledgers, but may be older than they are (it is written rarely, and may not be permitted), so it
//! speaks only where they are silent: [`Records::with_witness`].

use super::{Adoption, ClusterId, FsUuid, HighWater, MemberId, Pin, Records, Time, VolumeId};
use serde::{Deserialize, Serialize};

/// What volhold's tags on one volume say. Each part may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// The volume that they were written for. Another one than the volume that has them: they were copied.
    pub volume: Option<VolumeId>,
    pub fs_uuid: Option<FsUuid>,
    /// When volhold made that filesystem, and on which instance. `None`: somebody else did, or it is not known.
    pub formatted: Option<(Time, String)>,
    pub cluster_id: Option<ClusterId>,
    pub member_id: Option<MemberId>,
    /// Relative to the volume's root.
    pub data_dir: Option<String>,
    /// Names of the cluster's members that have run (they have client URLs), as this member knew them.
    #[serde(default)]
    pub ran: Vec<String>,
    /// Durable progress when they were written. `None`: no data was seen so far.
    pub mark: Option<HighWater>,
    /// When they were last written.
    pub seen_at: Option<Time>,
    /// Who had the volume then: instance and guard. Information only; nothing is decided by it.
    pub holder: Option<String>,
    /// Tags of volhold whose value this version does not understand: `KEY=VALUE`.
    #[serde(default)]
    pub not_understood: Vec<String>,
}

impl Witness {
    /// For a sentence that begins with what the tags are.
    pub fn words(&self) -> String {
        let mut parts = Vec::new();
        if let Some(uuid) = self.fs_uuid {
            parts.push(format!("filesystem {uuid}"));
        }
        if let (Some(cluster), Some(member)) = (self.cluster_id, self.member_id) {
            parts.push(format!("cluster {cluster}, member {member}"));
        }
        if let Some(HighWater { keys: Some(keys), .. }) = &self.mark {
            parts.push(format!("{keys} keys"));
        }
        if let Some(at) = self.seen_at {
            parts.push(format!("seen at {at}"));
        }
        if let Some(volume) = &self.volume {
            parts.push(format!("written for {volume}"));
        }
        if !self.not_understood.is_empty() {
            parts.push(format!("not understood: {}", self.not_understood.join(", ")));
        }
        if parts.is_empty() { "that volhold had it before".to_owned() } else { parts.join(", ") }
    }
}

impl Records {
    /// The ledgers, and where they are silent what the witness says.
    ///
    /// A pin is newer than any tag, for tags are made from pins. So is a person's answer: it was given about what the tags
    /// remember, too; only that there was data is not forgotten by it, unless it said that this starts empty. Tags that were
    /// written for another volume came here with a copy, and say nothing of this one. Else each of filesystem, identity and
    /// data counts where the ledgers have nothing to say about it.
    pub fn with_witness(&self, witness: &Witness, of: &VolumeId) -> Records {
        let meant_empty = match self.adoption {
            Some(Adoption::NewCluster | Adoption::Replacement) => true,
            Some(Adoption::Identity | Adoption::Restored) | None => false,
        };
        let mut records = self.clone();
        let of_another = witness.volume.as_ref().is_some_and(|volume| volume != of);
        if self.pin.is_some() || meant_empty || of_another {
            return records;
        }
        let Witness {
            volume: _,
            fs_uuid,
            formatted: _,
            cluster_id,
            member_id,
            data_dir,
            ran: _,
            mark,
            seen_at,
            holder: _,
            not_understood: _,
        } = witness;
        // Without a time of its own it is still a time at which there was data.
        let at = seen_at.unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH));
        if self.answered {
            records.held_data_at = records.held_data_at.or(mark.as_ref().map(|_| at));
            return records;
        }
        if records.fs_uuids.is_empty() {
            records.fs_uuids.extend(*fs_uuid);
        }
        if let (Some(cluster_id), Some(member_id), Some(data_dir)) = (cluster_id, member_id, data_dir) {
            records.pin = Some(Pin {
                cluster_id: *cluster_id,
                member_id: *member_id,
                name: None,
                data_dir: data_dir.clone(),
                fs_uuid: *fs_uuid,
                at,
            });
        }
        if let Some(mark) = mark {
            records.held_data_at = records.held_data_at.or(Some(at));
            // Progress of another member than the one that the tags name was left behind when that one took over.
            let of_another =
                |said: Option<u64>, named: Option<u64>| said.zip(named).is_some_and(|(said, named)| said != named);
            let left_behind = of_another(mark.cluster_id.map(|id| id.0), cluster_id.map(|id| id.0))
                || of_another(mark.member_id.map(|id| id.0), member_id.map(|id| id.0));
            records.high_water = records.high_water.or_else(|| (!left_behind).then(|| mark.clone()));
        }
        records
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn volume() -> VolumeId {
        VolumeId::ebs("vol-0123456789abcdef0").unwrap()
    }

    fn witness() -> Witness {
        Witness {
            volume: Some(volume()),
            fs_uuid: Some(FsUuid(uuid::Uuid::from_u128(1))),
            cluster_id: Some(ClusterId(7)),
            member_id: Some(MemberId(8)),
            data_dir: Some("data".to_owned()),
            mark: Some(HighWater {
                data_dir: "data".to_owned(),
                cluster_id: Some(ClusterId(7)),
                member_id: Some(MemberId(8)),
                term: Some(2),
                consistent_index: Some(10),
                revision: Some(5),
                wal_last_index: Some(12),
                keys: Some(3),
            }),
            seen_at: Time::from_unix(1_800_000_000),
            ..Witness::default()
        }
    }

    #[test]
    fn where_the_ledgers_are_silent_the_witness_speaks() {
        let records = Records::default().with_witness(&witness(), &volume());
        assert_eq!(records.fs_uuids, [FsUuid(uuid::Uuid::from_u128(1))]);
        assert_eq!(records.pin.as_ref().map(|pin| (pin.cluster_id, pin.member_id)), Some((ClusterId(7), MemberId(8))));
        assert_eq!(records.held_data_at, Time::from_unix(1_800_000_000));
        assert_eq!(records.high_water.unwrap().revision, Some(5));
        // Of a witness without a time the data is no less seen.
        let timeless = Witness { seen_at: None, ..witness() };
        assert!(Records::default().with_witness(&timeless, &volume()).held_data_at.is_some());
        // What another member had got to says nothing of how far this one was, and all the same that there was data.
        let taken_over = Witness { member_id: Some(MemberId(9)), ..witness() };
        let records = Records::default().with_witness(&taken_over, &volume());
        assert_eq!((records.high_water, records.held_data_at), (None, Time::from_unix(1_800_000_000)));
    }

    #[test]
    fn a_pin_and_a_person_who_meant_an_empty_start_outweigh_it() {
        let pinned = Records {
            pin: Some(Pin {
                cluster_id: ClusterId(1),
                member_id: MemberId(1),
                name: None,
                data_dir: "x".to_owned(),
                fs_uuid: None,
                at: Time::from_unix(1).unwrap(),
            }),
            ..Records::default()
        };
        assert_eq!(pinned.with_witness(&witness(), &volume()), pinned);
        for answer in [Adoption::NewCluster, Adoption::Replacement] {
            let answered = Records { adoption: Some(answer), answered: true, ..Records::default() };
            assert_eq!(answered.with_witness(&witness(), &volume()), answered, "{answer:?}");
        }
    }

    #[test]
    fn after_a_persons_answer_only_that_there_was_data_is_left_of_it() {
        for adoption in [None, Some(Adoption::Identity), Some(Adoption::Restored)] {
            let answered = Records { adoption, answered: true, ..Records::default() };
            let united = answered.with_witness(&witness(), &volume());
            assert_eq!(united, Records { held_data_at: Time::from_unix(1_800_000_000), ..answered }, "{adoption:?}");
        }
    }

    #[test]
    fn tags_that_were_written_for_another_volume_say_nothing_of_this_one() {
        let other = VolumeId::ebs("vol-0fedcba9876543210").unwrap();
        assert_eq!(Records::default().with_witness(&witness(), &other), Records::default());
        let unnamed = Witness { volume: None, ..witness() };
        assert!(Records::default().with_witness(&unnamed, &other).pin.is_some());
    }

    #[test]
    fn a_filesystem_that_the_ledgers_accepted_stays_the_accepted_one() {
        let accepted = FsUuid(uuid::Uuid::from_u128(2));
        let records = Records { fs_uuids: vec![accepted], ..Records::default() }.with_witness(&witness(), &volume());
        assert_eq!(records.fs_uuids, [accepted]);
    }
}
