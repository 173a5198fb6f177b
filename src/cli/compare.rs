//! `volhold compare DIR DIR…`: the same cluster, the same history, and which one is ahead.
//!
//! Two members have the same history when HashKV at the highest revision that both have is the same, computed as if both had
//! been compacted to the higher of their compact revisions. Where it differs, the first record that does is looked for by
//! halving: a hash over the records up to some revision is the same in both, or it is not. The answer is exact, and no step
//! holds more than the records of one revision.

use super::exit::Exit;
use super::inspect::{add, block_on, deadline, facts, read};
use super::output::{Context, Failure, io_failure};
use super::text::Tone;
use crate::etcd::VolumeHints;
use crate::model::{
    ClusterId, DataDirFacts, DataDirReport, Fingerprint, HashAnswer, HashKv, HashQuestion, Observed, RecordAt,
};
use crate::worker;
use serde::Serialize;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A backend with more records is not halved through: each step reads all of it.
const MAX_HALVED: u64 = 2_000_000;

/// The document of `compare -o json`.
#[derive(Debug, Serialize)]
struct CompareReport {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    /// `null`: some dir does not say which cluster it belongs to.
    same_cluster: Option<bool>,
    /// `null`: some backend could not be hashed.
    same_history: Option<bool>,
    /// Number of the dir that is ahead of all others, from 0; `null`: none is, or they are not of one cluster.
    ahead: Option<usize>,
    /// By how many revisions it is ahead of the next one.
    ahead_by: Option<i64>,
    /// Where the hashes were compared.
    compared_at: Option<i64>,
    members: Vec<Compared>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_difference: Option<Difference>,
}

#[derive(Debug, Serialize)]
struct Compared {
    path: String,
    #[serde(flatten)]
    fingerprint: Option<Fingerprint>,
    hash_at_common: Option<HashKv>,
}

#[derive(Debug, Serialize)]
struct Difference {
    /// Up to the revision before, all have the same records.
    revision: i64,
    /// Key of the first record that differs; `null`: it was not found again.
    key: Option<String>,
    /// What stands there in each dir, in their order; `null`: nothing.
    records: Vec<Option<RecordAt>>,
}

pub fn run(context: &Context, dirs: &[PathBuf]) -> Result<Exit, Failure> {
    let mut members = Vec::new();
    for dir in dirs {
        let (report, facts) = look(dir)?;
        members.push((dir.as_path(), report, facts));
    }
    let ids: Vec<Option<ClusterId>> =
        members.iter().map(|(_, report, _)| report.fingerprint.as_ref().and_then(|print| print.cluster_id)).collect();
    let same_cluster = all_same(&ids);
    let revisions: Vec<i64> = members.iter().filter_map(|(_, _, facts)| facts.backend.revision).collect();
    let whole = revisions.len() == members.len();
    let common = revisions.iter().min().copied().filter(|_| whole);
    let compact =
        members.iter().filter_map(|(_, _, facts)| facts.backend.deep.as_ref()?.hashkv).map(|h| h.compact_revision);
    let compact = compact.max().unwrap_or(-1);
    let mut hashes = Vec::new();
    for (dir, _, _) in &members {
        hashes.push(match common {
            Some(revision) => hash(dir, HashQuestion { revision, compact, until: None })?.map(|answer| answer.hashkv),
            None => None,
        });
    }
    // A member that was compacted beyond the common revision has thrown away what would be compared.
    let told = common.is_some_and(|common| common >= compact);
    let same_history = all_same(&hashes.iter().map(|hash| hash.map(|h| h.hash)).collect::<Vec<_>>()).filter(|_| told);
    let ahead = ahead(&revisions).filter(|_| whole && same_cluster == Some(true) && same_history == Some(true));
    let records = members.iter().filter_map(|(_, _, facts)| facts.backend.deep.as_ref()).map(|deep| deep.records).max();
    let first_difference = match (same_history, common) {
        (Some(false), Some(common)) if records.is_some_and(|records| records <= MAX_HALVED) => {
            halve(&members, common, compact)?
        }
        (Some(_) | None, Some(_) | None) => None,
    };
    let document = CompareReport {
        api_version: "volhold/v1",
        kind: "CompareReport",
        same_cluster,
        same_history,
        ahead: ahead.map(|(number, _)| number),
        ahead_by: ahead.map(|(_, by)| by),
        compared_at: common.filter(|_| told),
        members: members
            .into_iter()
            .zip(hashes)
            .map(|((dir, report, _), hash_at_common)| Compared {
                path: dir.display().to_string(),
                fingerprint: report.fingerprint,
                hash_at_common,
            })
            .collect(),
        first_difference,
    };
    draw(context, &document)?;
    let agree = document.same_cluster == Some(true) && document.same_history == Some(true);
    Ok(if agree { Exit::Ok } else { Exit::Refused })
}

fn look(dir: &Path) -> Result<(DataDirReport, DataDirFacts), Failure> {
    let reading = read(dir, VolumeHints { data_dir: Some(".".to_owned()), ..VolumeHints::default() })?;
    let report = reading.data_dirs.into_iter().find(|report| report.path == ".");
    let Some(mut report) = report else {
        return Err(Failure::new(Exit::NoMatch, format!("{} is no data dir of etcd", dir.display()))
            .advise("a data dir is the directory that holds `member`"));
    };
    let facts = facts(dir)?;
    add(&mut report, &facts);
    Ok((report, facts))
}

fn hash(dir: &Path, question: HashQuestion) -> Result<Option<HashAnswer>, Failure> {
    let opened = File::open(dir).map_err(|e| io_failure(format!("cannot open {}", dir.display()), &e))?;
    let answer = block_on(worker::hash(opened.into(), question, deadline(), |_, _| {}))?;
    Ok(match answer {
        Observed::Seen(hash) => hash,
        Observed::Unknown(_) => None,
    })
}

/// `None`: some is not known.
fn all_same<T: PartialEq + Copy>(values: &[Option<T>]) -> Option<bool> {
    let known: Vec<T> = values.iter().copied().collect::<Option<Vec<T>>>()?;
    Some(known.windows(2).all(|two| two.first() == two.last()))
}

/// The one with the highest revision, and by how much; `None` where two are level.
fn ahead(revisions: &[i64]) -> Option<(usize, i64)> {
    let (number, most) = revisions.iter().enumerate().max_by_key(|(_, revision)| **revision)?;
    let next = revisions.iter().enumerate().filter(|(n, _)| *n != number).map(|(_, revision)| *revision).max()?;
    let by = most.saturating_sub(next);
    (by > 0).then_some((number, by))
}

/// The first record that not all have.
fn halve(
    members: &[(&Path, DataDirReport, DataDirFacts)],
    common: i64,
    compact: i64,
) -> Result<Option<Difference>, Failure> {
    let ask = |until: i64| {
        let question = HashQuestion { revision: common, compact, until: Some(until) };
        members.iter().map(|(dir, _, _)| hash(dir, question)).collect::<Result<Option<Vec<HashAnswer>>, Failure>>()
    };
    let same_in_all = |answers: &[HashAnswer]| {
        all_same(&answers.iter().map(|answer| Some(answer.hashkv.hash)).collect::<Vec<_>>()) == Some(true)
    };
    let (mut same, mut differ) = (0, common);
    let Some(mut apart) = ask(common)? else { return Ok(None) };
    // Most histories part after the compaction: what was kept of the time before is looked through only where it must be.
    let mut middle = compact;
    while differ.saturating_sub(same) > 1 {
        if middle <= same || middle >= differ {
            middle = same.saturating_add(differ.saturating_sub(same) / 2);
        }
        let Some(answers) = ask(middle)? else { return Ok(None) };
        if same_in_all(&answers) {
            same = middle;
        } else {
            (differ, apart) = (middle, answers);
        }
    }
    let lists: Vec<&[RecordAt]> = apart.iter().map(|answer| answer.records.as_slice()).collect();
    let records = first_apart(&lists).unwrap_or_default();
    let key = records.iter().flatten().next().map(|record| record.key.clone());
    Ok(Some(Difference { revision: differ, key, records }))
}

/// The first place at which lists in the order of `sub` differ, and what each has there.
fn first_apart(lists: &[&[RecordAt]]) -> Option<Vec<Option<RecordAt>>> {
    let longest = lists.iter().map(|list| list.len()).max()?;
    let heads = (0..longest).map(|n| lists.iter().map(|list| list.get(n)).collect::<Vec<_>>());
    let apart = heads.into_iter().find(|heads| heads.windows(2).any(|two| two.first() != two.last()))?;
    let first = apart.iter().flatten().map(|record| record.sub).min()?;
    Some(apart.into_iter().map(|record| record.filter(|record| record.sub == first).cloned()).collect())
}

fn draw(context: &Context, it: &CompareReport) -> Result<(), Failure> {
    context.print(it, |screen| {
        let (tone, words) = match (it.same_cluster, it.same_history) {
            (Some(true), Some(true)) => (Tone::Good, "one cluster, one history"),
            (Some(true), Some(false)) => (Tone::Bad, "one cluster id, and NOT one history"),
            (Some(false), Some(true)) => (Tone::Warn, "different clusters, with the same content"),
            (Some(false), Some(false)) => (Tone::Bad, "different clusters, different content"),
            (None, _) | (_, None) => (Tone::Bad, "not all could be compared"),
        };
        screen.tone(tone, &format!("{words}."));
        screen.blank();
        for (number, member) in it.members.iter().enumerate() {
            let or = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
            let print = member.fingerprint.clone().unwrap_or_default();
            let line = format!(
                "cluster {}, member {}, revision {}, log to {}{}",
                or(print.cluster_id.map(|id| id.to_string())),
                or(print.member_id.map(|id| id.to_string())),
                or(print.revision.map(|n| n.to_string())),
                or(print.raft.last_index.map(|n| n.to_string())),
                if it.ahead == Some(number) { "; ahead of all others" } else { "" }
            );
            screen.hanging(&format!("  {number} {}", member.path), 4, &line);
        }
        if let Some(difference) = &it.first_difference {
            screen.blank();
            let key = difference.key.as_ref().map(|key| format!(", in key {key}")).unwrap_or_default();
            screen.para(0, &format!("The first difference is at revision {}{key}.", difference.revision));
            for (number, record) in difference.records.iter().enumerate() {
                let what = match record {
                    None => "no record".to_owned(),
                    Some(record) if record.deleted => format!("{} deleted, checksum {:08x}", record.key, record.sum),
                    Some(record) => format!("{} written, checksum {:08x}", record.key, record.sum),
                };
                screen.hanging(&format!("  {number}"), 4, &what);
            }
        }
        screen.blank();
        screen.para(0, "Nothing was written. What the logs hold beyond the backends was not compared.");
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_that_is_before_all_others_is_ahead() {
        assert_eq!(ahead(&[5, 9, 7]), Some((1, 2)));
        assert_eq!(ahead(&[9, 9]), None);
        assert_eq!(ahead(&[9]), None);
    }

    #[test]
    fn the_first_record_that_not_all_have_is_found_whoever_lacks_it() {
        let record = |sub, key: &str, sum| RecordAt { sub, key: key.to_owned(), deleted: false, sum };
        let (a, b, other) = (record(0, "a", 1), record(1, "b", 2), record(1, "b", 3));
        let both = [a.clone(), b.clone()];
        assert_eq!(first_apart(&[&both, &both]), None);
        assert_eq!(first_apart(&[&both, &[a.clone(), other.clone()]]), Some(vec![Some(b.clone()), Some(other)]));
        assert_eq!(first_apart(&[&both, &both[1..]]), Some(vec![Some(a), None]));
        assert_eq!(first_apart(&[&both[..1], &both]), Some(vec![None, Some(b)]));
        assert_eq!(first_apart(&[&[], &[]]), None);
    }

    #[test]
    fn what_is_not_known_is_never_the_same() {
        assert_eq!(all_same(&[Some(1), Some(1), Some(1)]), Some(true));
        assert_eq!(all_same(&[Some(1), Some(1), Some(2)]), Some(false));
        assert_eq!(all_same(&[Some(1), None]), None);
    }
}
