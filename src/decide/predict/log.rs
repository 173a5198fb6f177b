//! The log: which snapshot a start begins from, whether the log can be read from there, and how far it reaches.

use super::{Answer, Step, Stops};
use crate::model::{DataDirFacts, EtcdVersion, GoodSnapshot, LogEnd, LogFile, ReasonCode, Thing};

const CODE: ReasonCode = ReasonCode::WalDamaged;
const WAL: &str = "etcd v3.5.30 server/wal/wal.go ReadAll, decoder.go; v2.2.1 wal/wal.go";

/// How a start goes through the log.
#[derive(Debug, Default)]
pub(super) struct Way<'f> {
    /// There is a log: the member has run.
    pub ran: bool,
    /// The snapshot that it begins from.
    pub snapshot: Option<&'f GoodSnapshot>,
    pub start: u64,
    /// Number of the first file that is read.
    pub from: usize,
    /// Index of the last entry that is read.
    pub last: u64,
    /// Node that the log belongs to.
    pub node: Option<u64>,
}

/// What a broken end of a file means to a version.
#[derive(PartialEq, Eq)]
enum Meaning {
    /// The file ends here.
    End,
    /// Torn by a crash: cut off if it is the last file.
    Torn,
    Fatal(&'static str),
}

fn meaning(file: &LogFile, last_file: bool, version: EtcdVersion) -> Meaning {
    let lenient = version.at_least(3, 5, 6);
    let limited = version.at_least(3, 3, 0) && !lenient;
    if file.padded && !version.at_least(3, 0, 0) {
        return Meaning::Fatal("runtime error: makeslice: len out of range (a record with padding)");
    }
    match file.end {
        LogEnd::Whole => Meaning::End,
        LogEnd::Zero if version.at_least(3, 0, 0) => Meaning::End,
        LogEnd::Zero => Meaning::Fatal("unexpected block type 0"),
        LogEnd::Cut => Meaning::Torn,
        LogEnd::Length if lenient => Meaning::Torn,
        LogEnd::Length | LogEnd::Long { .. } if limited => Meaning::Fatal("wal: max entry size limit exceeded"),
        LogEnd::Length => Meaning::Fatal("runtime: out of memory"),
        // decoder.go isTornEntry, since 3.1.
        LogEnd::Bad { torn: true } | LogEnd::Long { torn: true } if last_file && version.at_least(3, 1, 0) => {
            Meaning::Torn
        }
        LogEnd::Bad { .. } | LogEnd::Long { .. } => Meaning::Fatal("walpb: crc mismatch"),
        LogEnd::Chain => Meaning::Fatal("wal: crc mismatch"),
        LogEnd::Foreign => Meaning::Fatal("unexpected block type"),
    }
}

/// Finds the way, or where it ends.
pub(super) fn way<'f>(facts: &'f DataDirFacts, version: EtcdVersion, answer: &mut Answer) -> Result<Way<'f>, Stops> {
    let files = &facts.log.files;
    let mut way = Way { ran: facts.log.any, ..Way::default() };
    if !way.ran {
        return Ok(way);
    }
    if let Some(name) = &facts.log.broken_name {
        answer.stop(format!("open member/wal/{name}: it is no file"), CODE, WAL)?;
    }
    if files.is_empty() {
        answer.stop(
            "wal: file not found (no file has a name that etcd reads)",
            CODE,
            "etcd v3.5.30 server/wal/util.go",
        )?;
    }
    let valid = valid_snapshots(files, version, answer)?;
    way.snapshot = start_snapshot(facts, valid.as_deref(), version);
    way.start = way.snapshot.map_or(0, |snapshot| snapshot.index);
    if version.at_least(3, 7, 0) {
        // bootstrap.go of 3.7 does not read `.snap` files: the newest record in the log that is committed counts.
        way.start = valid.iter().flatten().map(|(index, _)| *index).max().unwrap_or(0);
    }
    backend_fits(facts, &way, version, answer)?;
    from_snapshot(files, &mut way, version, answer)?;
    Ok(way)
}

/// `ValidSnapshotEntries` (3.4.8 and 3.3.21): reads the whole log from its first file for the snapshots that it mentions.
/// `None` in versions that take any good snapshot.
fn valid_snapshots(
    files: &[LogFile],
    version: EtcdVersion,
    answer: &mut Answer,
) -> Result<Option<Vec<(u64, u64)>>, Stops> {
    let asks = version.at_least(3, 4, 8) || (version.minor == 3 && version.at_least(3, 3, 21));
    if !asks {
        return Ok(None);
    }
    let source = "etcd v3.5.30 server/wal/wal.go ValidSnapshotEntries";
    let mut found = vec![(0, 0)];
    let mut commit = 0;
    let mut crc: Option<u32> = None;
    let mut metadata = None;
    for (n, file) in files.iter().enumerate() {
        if file.records > 0 {
            chain(crc, file, answer, source)?;
            if metadata.is_some_and(|known| file.metadata.is_some_and(|own| own != known)) || file.conflict {
                answer.stop("wal: conflicting metadata found", CODE, source)?;
            }
            metadata = metadata.or(file.metadata);
            crc = Some(file.leaves);
        }
        found.extend(&file.snapshots);
        commit = file.state.map_or(commit, |(_, commit)| commit);
        match meaning(file, n.saturating_add(1) == files.len(), version) {
            Meaning::End => {}
            Meaning::Torn => break,
            Meaning::Fatal(says) => {
                answer.stop(says, CODE, source)?;
            }
        }
    }
    found.retain(|(index, _)| *index <= commit || *index == 0);
    Ok(Some(found))
}

fn chain(before: Option<u32>, file: &LogFile, answer: &mut Answer, source: &str) -> Step {
    match (before, file.carries) {
        (Some(before), Some(carries)) if before != 0 && before != carries => {
            answer.stop("walpb: crc mismatch (a file does not follow the one before it)", CODE, source)
        }
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

/// The newest snapshot file that is good and, where it asks, that the log mentions.
fn start_snapshot<'f>(
    facts: &'f DataDirFacts,
    valid: Option<&[(u64, u64)]>,
    version: EtcdVersion,
) -> Option<&'f GoodSnapshot> {
    if version.at_least(3, 7, 0) {
        return None;
    }
    let good = facts.snapshots.iter().filter_map(|file| file.good.as_ref());
    good.into_iter().find(|good| valid.is_none_or(|valid| valid.contains(&(good.index, good.term))))
}

/// The backend must have what the snapshot has, or a backend must have come with it.
fn backend_fits(facts: &DataDirFacts, way: &Way<'_>, version: EtcdVersion, answer: &mut Answer) -> Step {
    let applied = facts.backend.consistent_index.unwrap_or(0);
    let code = ReasonCode::SnapshotDamaged;
    let source = "etcd v3.5.30 server/storage/backend.go RecoverSnapshotBackend; v3.6.12 server/storage/backend.go";
    if version.at_least(3, 2, 0) && way.start > applied {
        if !facts.snapshot_backends.contains(&way.start) {
            let message = "failed to recover v3 backend from snapshot: failed to find database snapshot file (snap: snapshot file doesn't exist)";
            return answer.stop(message, code, source);
        }
        if version.minor == 5 && !version.at_least(3, 5, 2) {
            let source = "etcd v3.5.1 server/etcdserver/backend.go recoverSnapshotBackend (fixed later)";
            return answer.stop("assertion failed: tx closed", code, source);
        }
        answer.hit("the backend that came with the snapshot takes the place of the older one", None, source);
    }
    let v3 = way.snapshot.and_then(|snapshot| snapshot.cluster_version.as_deref());
    let v3 = v3.is_some_and(|version| version.starts_with("3."));
    if version.at_least(3, 0, 0) && facts.backend.file == Thing::Absent && v3 {
        let source = "etcd v3.1.12 etcdserver/server.go NewServer";
        let message = "database file (member/snap/db) of the backend is missing";
        return answer.stop(message, ReasonCode::BackendDamaged, source);
    }
    if facts.backend.empty && way.start > 0 {
        answer.lose("the backend has no bytes: a new one is made", ReasonCode::BackendDamaged, source);
    }
    Ok(())
}

/// `wal.Open` at the snapshot and `ReadAll`, with one `Repair` where the end is torn.
fn from_snapshot(files: &[LogFile], way: &mut Way<'_>, version: EtcdVersion, answer: &mut Answer) -> Step {
    let from = files.iter().rposition(|file| file.index <= way.start);
    let Some(from) = from.filter(|from| follows(files.get(*from..).unwrap_or(&[]))) else {
        return answer.stop("wal: file not found", CODE, "etcd v3.5.30 server/wal/wal.go selectWALFiles");
    };
    way.from = from;
    let mut crc = None;
    let mut matched = way.start == 0;
    let mut last = way.start;
    let mut metadata = None;
    let read = files.get(from..).unwrap_or(&[]);
    for (n, file) in read.iter().enumerate() {
        let last_file = n.saturating_add(1) == read.len();
        if file.records > 0 {
            chain(crc, file, answer, WAL)?;
            crc = Some(file.leaves);
        }
        if file.conflict || metadata.is_some_and(|known| file.metadata.is_some_and(|own| own != known)) {
            return answer.stop("wal: conflicting metadata found", CODE, WAL);
        }
        metadata = metadata.or(file.metadata);
        for (index, term) in &file.snapshots {
            let expected = way.snapshot.map(|snapshot| snapshot.term);
            if *index == way.start {
                if expected.is_some_and(|expected| expected != *term) {
                    return answer.stop("wal: snapshot mismatch", CODE, WAL);
                }
                matched = true;
            }
        }
        if let (Some((first, _)), Some((end, _))) = (file.first, file.last) {
            let gap = first > last.saturating_add(1).max(way.start.saturating_add(1));
            let jump = file.jump.is_some_and(|(_, to)| to > way.start.saturating_add(1));
            if gap || jump {
                let message = "wal: slice bounds out of range (entries are missing)";
                return answer.stop(message, CODE, WAL);
            }
            last = end.max(way.start);
        }
        match meaning(file, last_file, version) {
            Meaning::End => {}
            Meaning::Torn if last_file => {
                answer.hit("the last record is torn: it is cut off", None, "etcd v3.5.30 server/wal/repair.go Repair");
                if file.end == LogEnd::Length {
                    let message = "a length in the log is none: everything from there on is cut off";
                    answer.lose(message, CODE, "etcd v3.5.30 server/wal/decoder.go decodeRecord");
                }
            }
            Meaning::Torn => return answer.stop("failed to read WAL, cannot be repaired: unexpected EOF", CODE, WAL),
            Meaning::Fatal(says) => return answer.stop(says, CODE, WAL),
        }
        if file.end == LogEnd::Zero && file.more {
            answer.lose("records lie behind a hole of zeros; etcd zeroes them", CODE, WAL);
        }
    }
    let Some((node, _)) = metadata.filter(|(node, _)| *node != 0) else {
        return answer.stop(
            "cannot use none as id (no record says whose log this is)",
            CODE,
            "etcd v3.5.30 raft/raft.go",
        );
    };
    if !matched {
        return answer.stop("wal: snapshot not found", CODE, WAL);
    }
    way.node = Some(node);
    way.last = last;
    Ok(())
}

/// `isValidSeq`, whose check begins only after a file whose number is not 0.
fn follows(files: &[LogFile]) -> bool {
    files.iter().zip(files.iter().skip(1)).all(|(a, b)| a.seq == 0 || a.seq.checked_add(1) == Some(b.seq))
}

/// How far the log reaches, against what the backend has applied.
pub(super) fn reach(facts: &DataDirFacts, way: &Way<'_>, version: EtcdVersion, answer: &mut Answer) -> Step {
    let applied = facts.backend.consistent_index.unwrap_or(0);
    let v2 = facts.snapshots.iter().filter_map(|file| file.good.as_ref()).map(|good| good.index).max().unwrap_or(0);
    let code = ReasonCode::WalBehindBackend;
    let source = "etcd v3.5.30 server/etcdserver/server.go applyEntryNormal; v3.6.12 server/etcdserver/bootstrap.go";
    if !way.ran {
        if applied == 0 && v2 == 0 && facts.backend.revision.unwrap_or(1) <= 1 {
            return Ok(());
        }
        if version.at_least(3, 6, 0) && applied > 0 {
            return answer.hang(
                "no log: it begins a new one, and waits for ever for what the backend has",
                code,
                source,
            );
        }
        answer.lose(
            "no log: it begins a new one with the same ids, and new writes are lost until it has caught up",
            code,
            source,
        );
        return Ok(());
    }
    if way.last == 0 && way.start == 0 {
        // Of a new cluster that died before its first write, of a member that joins and was sent nothing yet, or all of it
        // was cut off. Without an entry or a snapshot raft knows no member, not even itself.
        let message = "the log has no entry and no snapshot: it serves only after a leader has sent it everything";
        return answer.hang(
            message,
            CODE,
            "raft v3.6.0 raft.go promotable; etcd v3.4.23 etcdserver/raft.go restartNode",
        );
    }
    if version.at_least(3, 6, 0)
        && let Some(node) = way.node
        && !facts.backend.members.is_empty()
        && !facts.backend.members.contains(&node)
    {
        let source = "etcd v3.6.12 server/etcdserver/api/membership/cluster.go UpdateAttributes";
        return answer.stop("failed to update; member unknown", ReasonCode::OtherMember, source);
    }
    if way.last < applied && version.at_least(3, 0, 0) {
        let message = "the log ends before what the backend has applied";
        // The entry that begins the next term fills a gap of one.
        if version.at_least(3, 6, 0) && way.last.saturating_add(1) < applied {
            return answer.hang(message, code, source);
        }
        answer.lose(message, code, source);
    }
    if way.last < v2 && applied == 0 {
        answer.lose("the log ends before the newest snapshot", ReasonCode::WalDamaged, source);
    }
    if !facts.backend.members.is_empty() && way.node.is_some_and(|node| !facts.backend.members.contains(&node)) {
        answer.lose("the log belongs to a member that the backend does not know", ReasonCode::WalDamaged, source);
    }
    Ok(())
}
