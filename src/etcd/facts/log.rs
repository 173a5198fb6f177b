//! The log, file by file. Each is read as a reader finds it that begins with it; how they fit together is for the rules.

use super::super::bytes::printable;
use super::super::dir::{list, open_dir_str, open_file};
use super::super::entry;
use super::super::member::{MAX_NAMES, WAL_DIR};
use super::super::proto::{HardState, InternalRaftRequest, RaftEntry, V2Request, WalMetadata, WalSnapshot};
use super::super::read_at::{ReadAt, ReadError};
use super::super::wal::frame::{self, Frame, Frames};
use super::super::wal::parse_name;
use crate::model::{DataDirFacts, LogEnd, LogFile};
use prost::Message;
use std::os::fd::{AsFd, BorrowedFd};

/// Snapshot records that are remembered of one file.
const MAX_SNAPSHOTS: usize = 10_000;

pub(super) fn collect(dir: BorrowedFd<'_>, facts: &mut DataDirFacts) {
    let wal = match open_dir_str(dir, WAL_DIR) {
        Ok(fd) => fd,
        Err(error) if error.is_absent() => return,
        Err(error) => return facts.unreadable.push(error.chain()),
    };
    let entries = match list(wal.as_fd(), WAL_DIR, MAX_NAMES) {
        Ok(entries) => entries,
        Err(error) => return facts.unreadable.push(error.chain()),
    };
    for entry in &entries {
        if !entry.name.to_bytes().ends_with(b".wal") {
            continue;
        }
        facts.log.any = true;
        let Some((name, (seq, index))) = entry.text().and_then(|name| Some((name, parse_name(name)?))) else {
            continue;
        };
        let path = format!("{WAL_DIR}/{name}");
        match open_file(wal.as_fd(), name, &path) {
            Ok(file) => match read(&file, seq, index) {
                Ok(found) => facts.log.files.push(found),
                Err(error) => facts.unreadable.push(format!("{path}: {error}")),
            },
            Err(_) => facts.log.broken_name = Some(name.to_owned()),
        }
    }
    facts.log.files.sort_by_key(|file| file.seq);
}

/// Reads one file of the log.
pub(in crate::etcd) fn read(file: &dyn ReadAt, seq: u64, index: u64) -> Result<LogFile, ReadError> {
    let size = file.size().map_err(|source| ReadError::Io { offset: 0, len: 0, source })?;
    let mut frames = Frames::new(file, size);
    let mut found = LogFile {
        seq,
        index,
        size,
        carries: None,
        leaves: 0,
        records: 0,
        padded: false,
        metadata: None,
        conflict: false,
        first: None,
        last: None,
        jump: None,
        state: None,
        snapshots: Vec::new(),
        cluster_version: None,
        refused_v2: None,
        needs: Vec::new(),
        end: LogEnd::Whole,
        end_at: 0,
        more: false,
    };
    let mut crc = 0_u32;
    found.end = loop {
        found.end_at = frames.offset();
        match frames.next_frame()? {
            Frame::Record { record, padded, torn, end } => {
                found.padded |= padded;
                if record.kind == frame::CRC {
                    if found.records == 0 {
                        found.carries = Some(record.crc);
                    } else if crc != 0 && crc != record.crc {
                        break LogEnd::Chain;
                    }
                    crc = record.crc;
                    found.records = found.records.saturating_add(1);
                    continue;
                }
                let next = crc32c::crc32c_append(crc, &record.data);
                if next != record.crc {
                    break bad(torn, end.saturating_sub(found.end_at));
                }
                crc = next;
                found.records = found.records.saturating_add(1);
                if !take(&mut found, record.kind, &record.data) {
                    break LogEnd::Foreign;
                }
            }
            Frame::End if frames.offset() >= size => break LogEnd::Whole,
            Frame::End => break LogEnd::Zero,
            Frame::Cut { .. } => break LogEnd::Cut,
            Frame::Length { .. } => break LogEnd::Length,
            Frame::Undecodable { torn, len } => break bad(torn, len),
        }
    };
    found.leaves = crc;
    found.more = match found.end {
        LogEnd::Whole => false,
        LogEnd::Zero => frames.first_non_zero()?.is_some(),
        LogEnd::Cut | LogEnd::Length | LogEnd::Bad { .. } | LogEnd::Long { .. } | LogEnd::Chain | LogEnd::Foreign => {
            true
        }
    };
    Ok(found)
}

fn bad(torn: bool, len: u64) -> LogEnd {
    if len >= frame::IMPLAUSIBLE { LogEnd::Long { torn } } else { LogEnd::Bad { torn } }
}

/// `false`: etcd could not decode it.
fn take(found: &mut LogFile, kind: i64, data: &[u8]) -> bool {
    match kind {
        frame::METADATA => WalMetadata::decode(data).is_ok_and(|ids| {
            let ids = (ids.node_id, ids.cluster_id);
            found.conflict |= found.metadata.is_some_and(|known| known != ids);
            found.metadata = found.metadata.or(Some(ids));
            true
        }),
        frame::ENTRY => RaftEntry::decode(data).is_ok_and(|entry| {
            take_entry(found, &entry);
            true
        }),
        frame::STATE => HardState::decode(data).is_ok_and(|state| {
            found.state = Some((state.term, state.commit));
            true
        }),
        frame::SNAPSHOT => WalSnapshot::decode(data).is_ok_and(|snapshot| {
            if found.snapshots.len() < MAX_SNAPSHOTS {
                found.snapshots.push((snapshot.index, snapshot.term));
            }
            true
        }),
        _ => false,
    }
}

fn take_entry(found: &mut LogFile, entry: &RaftEntry) {
    if let Some((last, _)) = found.last
        && entry.index > last.saturating_add(1)
    {
        found.jump = found.jump.or(Some((last, entry.index)));
    }
    found.first = found.first.or(Some((entry.index, entry.term)));
    found.last = Some((entry.index, entry.term));
    let since = entry::told(entry).since;
    if since > 0 {
        match found.needs.iter_mut().find(|(minor, _)| *minor == since) {
            Some((_, last)) => *last = entry.index,
            None => found.needs.push((since, entry.index)),
        }
    }
    if entry.kind != 0 || entry.data.is_empty() {
        return;
    }
    // As `server.applyEntryNormal`: the message of the v3 API first, then a bare request of the v2 API.
    let (set, v2) = match InternalRaftRequest::decode(entry.data.as_slice()) {
        Ok(request) => (request.cluster_version_set.map(|set| set.version), request.v2),
        Err(_) => (None, V2Request::decode(entry.data.as_slice()).ok()),
    };
    let mut version = set;
    if let Some(request) = v2
        && request.method == b"PUT"
        && request.path == b"/0/version"
    {
        version = Some(request.value.clone());
    }
    if entry::refused_v2(entry) {
        found.refused_v2 = Some(entry.index);
    }
    if let Some(version) = version {
        found.cluster_version = Some((entry.index, printable(&version)));
    }
}
