//! Opening the backend: what bbolt refuses, and what only later does harm.

use super::{Answer, Step};
use crate::model::{BackendDeep, BackendFile, EtcdVersion, FaultKind, MetaState, ReasonCode, Thing};

const CODE: ReasonCode = ReasonCode::BackendDamaged;

/// bbolt 1.3.7 and later: strict checksums, page numbers and order of keys (etcd CHANGELOG-3.5 v3.5.8, CHANGELOG-3.6). Which
/// 3.4 was the first is not known here; 3.4.23 has 1.3.6, and of later ones the stricter is said.
fn strict(version: EtcdVersion) -> bool {
    version.at_least(3, 5, 8) || (version.at_least(3, 4, 24) && version.minor == 4)
}

/// Walks over all pages at open, because the free ones are written nowhere (`NoFreelistSync`).
fn walks(file: &BackendFile, version: EtcdVersion) -> bool {
    version.at_least(3, 3, 0) && !file.freelist
}

pub(super) fn open(file: &BackendFile, version: EtcdVersion, answer: &mut Answer) -> Step {
    match file.file {
        Thing::Absent => return Ok(()),
        Thing::Odd => {
            let source = "etcd v3.5.30 server/mvcc/backend/backend.go newBackend";
            return answer.stop("failed to open database: it is no file", CODE, source);
        }
        Thing::There if file.empty => return Ok(()),
        Thing::There => {}
    }
    metas(file, version, answer)?;
    let Some(deep) = &file.deep else {
        return answer.stop("failed to open database", CODE, "bbolt v1.4.3 db.go Open");
    };
    if !version.at_least(3, 3, 0) && !file.freelist {
        let source = "boltdb v1.3.1 freelist.go read";
        return answer.stop("invalid freelist page (this bolt needs one, and none is kept)", CODE, source);
    }
    structure(file, deep, version, answer)
}

fn metas(file: &BackendFile, version: EtcdVersion, answer: &mut Answer) -> Step {
    let source = "bbolt v1.4.3 internal/common/meta.go Validate, db.go getPageSize";
    let takes = |meta: MetaState| match meta {
        MetaState::Valid => true,
        MetaState::ZeroChecksum => !strict(version),
        MetaState::Absent | MetaState::Magic | MetaState::Version | MetaState::Checksum | MetaState::PageSize => false,
    };
    let [first, second] = file.metas;
    if !takes(first) && !takes(second) {
        let says = match first {
            MetaState::Version => "version mismatch",
            MetaState::Checksum | MetaState::ZeroChecksum => "checksum error",
            MetaState::Absent | MetaState::Valid | MetaState::Magic | MetaState::PageSize => "invalid database",
        };
        return answer.stop(format!("failed to open database: {says}"), CODE, source);
    }
    if !takes(first) && !strict(version) && file.page_size.is_some_and(|size| size != 4096) {
        // Without a valid first meta page old bbolt takes the page size of the machine that it runs on.
        return answer.stop("failed to open database: invalid database", CODE, "bbolt v1.3.6 db.go getPageSize");
    }
    if !takes(first) || !takes(second) {
        answer.hit("one meta page is bad: the other one, a transaction older or newer, counts", None, source);
    }
    Ok(())
}

fn structure(file: &BackendFile, deep: &BackendDeep, version: EtcdVersion, answer: &mut Answer) -> Step {
    let strict = strict(version);
    let check = "bbolt v1.4.3 db.go freepages, tx_check.go; v1.3.6 db.go, tx.go checkBucket";
    for fault in &deep.faults {
        let said = &fault.message;
        match fault.kind {
            FaultKind::Unreadable => {
                return answer.stop(format!("input/output error: {said}"), ReasonCode::Unreadable, "mmap(2): SIGBUS");
            }
            FaultKind::OutOfBounds
            | FaultKind::BeyondFile
            | FaultKind::Type
            | FaultKind::Run
            | FaultKind::EmptyBranch
            | FaultKind::Twice
            | FaultKind::Depth
            | FaultKind::BucketValue
            | FaultKind::Inline
            | FaultKind::Nested
            | FaultKind::Element
            | FaultKind::OtherIdInUse => {
                return answer.stop(format!("failed to get all reachable pages ({said})"), CODE, check);
            }
            FaultKind::OtherId | FaultKind::Order | FaultKind::Parent if strict && walks(file, version) => {
                return answer.stop(format!("failed to get all reachable pages ({said})"), CODE, check);
            }
            FaultKind::OtherId | FaultKind::Order | FaultKind::Parent => {
                answer.lose("the tree is out of order; this bbolt does not look, and finds keys or not", CODE, check);
            }
            FaultKind::Freelist => {
                let source = "bbolt v1.4.3 internal/freelist/shared.go Read";
                return answer.stop(format!("invalid freelist page ({said})"), CODE, source);
            }
            FaultKind::FreeTwice | FaultKind::FreeButUsed => {
                let source = "boltdb v1.3.1 freelist.go: read at open, never held against the trees";
                answer.lose("pages in use are called free: later writes will overwrite them", CODE, source);
            }
            FaultKind::Lost | FaultKind::Meta => answer.hit(said, None, check),
        }
    }
    Ok(())
}
