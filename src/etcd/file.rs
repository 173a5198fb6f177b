//! One file by itself: a backend, a saved snapshot of one, a file of the log, a raft snapshot.

use super::bolt::{MetaDefect, read_metas};
use super::facts::{backend_facts, log};
use super::read_at::{ReadAt, ReadError, Stream, Window, read_up_to, read_vec};
use super::snap::read_snap;
use super::wal::looks_like_segment;
use crate::model::{EtcdFile, LogFile, MemberId};
use sha2::{Digest, Sha256};

/// Bytes of SHA-256 that `etcdctl snapshot save` puts behind the backend (etcd v3.5.30 `client/v3/snapshot/v3_snapshot.go`).
const SUM: u64 = 32;
/// Times that a log which looks torn, and is another each time, is read.
const LOG_READS: u32 = 20;

/// Says what the file is and reads all of it. `None`: it is no file of etcd. `named_db`: its name says that it is a backend,
/// so that a broken first meta page is no reason to take it for something else.
pub fn read_file(
    file: &dyn ReadAt,
    named_db: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Option<EtcdFile>, ReadError> {
    let size = file.size().map_err(|source| ReadError::Io { offset: 0, len: 0, source })?;
    let mut head = [0; 512];
    let got = read_up_to(file, &mut head, 0)?;
    let head = head.get(..got).unwrap_or(&[]);
    let metas = read_metas(file)?;
    let bolt = match metas.first {
        Ok(_) | Err(MetaDefect::Checksum { .. }) => true,
        Err(_) => named_db && size > 0,
    };
    if bolt {
        // A backend is a multiple of its page size; 512 divides all of those.
        let summed = size.checked_rem(512) == Some(SUM);
        let content = size.saturating_sub(SUM);
        // One without a checksum may be in use, and grow: it is read as long as it is then.
        let (backend, sha256) = if summed {
            (backend_facts(&Window::new(file, 0, content), progress), Some(sum_is_right(file, content)?))
        } else {
            (backend_facts(file, progress), None)
        };
        let backend = Box::new(backend);
        return Ok(Some(EtcdFile::Backend { sha256, backend }));
    }
    if looks_like_segment(head).is_some() {
        return Ok(Some(EtcdFile::Wal { log: Box::new(log_file(file)?) }));
    }
    match read_snap(file) {
        Ok(snap) => {
            let store = snap.store.as_ref().ok();
            Ok(Some(EtcdFile::Snap {
                index: snap.index,
                term: snap.term,
                voters: snap.voters.iter().copied().map(MemberId).collect(),
                cluster_version: store.and_then(|store| store.cluster_version.clone()),
                v2_keys: store.map(|store| store.user_keys),
            }))
        }
        Err(_) => Ok(None),
    }
}

/// An etcd may be writing its last record: what looks torn is read again, until it stays as it is.
fn log_file(file: &dyn ReadAt) -> Result<LogFile, ReadError> {
    let mut log = log::read(file, 0, 0)?;
    for _ in 0..LOG_READS {
        if log.is_whole() {
            break;
        }
        let again = log::read(file, 0, 0)?;
        if again == log {
            break;
        }
        log = again;
    }
    Ok(log)
}

fn sum_is_right(file: &dyn ReadAt, content: u64) -> Result<bool, ReadError> {
    let stored = read_vec(file, content, 32)?;
    let mut stream = Stream::new(file, 0, content);
    let mut sum = Sha256::new();
    loop {
        let piece = stream.fill()?;
        if piece.is_empty() {
            return Ok(sum.finalize().as_slice() == stored.as_slice());
        }
        sum.update(piece);
        let used = piece.len();
        stream.consume(used);
    }
}
