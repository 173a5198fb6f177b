//! The last decision of a guard with all that led to it, so that it can be explained without network or agent (S7).

use super::files;
use crate::model::{Decision, GuardName};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Largest decision that is read back.
const MAX_DECISION: usize = 16 * 1024 * 1024;

/// A decision cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} holds no decision that this version understands")]
    Parse {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("the decision does not encode as JSON")]
    Encode(#[source] serde_json::Error),
}

/// `<state>/guards/NAME/decision.json`.
pub fn decision_path(state: &Path, guard: &GuardName) -> PathBuf {
    state.join("guards").join(guard.as_str()).join("decision.json")
}

/// Keeps a decision as the last one: the old or the new one is there, whatever happens.
pub fn store_decision(state: &Path, decision: &Decision) -> Result<(), DecisionError> {
    let path = decision_path(state, &decision.guard);
    let write = |source| DecisionError::Write { path: path.clone(), source };
    let mut bytes = serde_json::to_vec_pretty(decision).map_err(DecisionError::Encode)?;
    bytes.push(b'\n');
    if let Some(dir) = path.parent() {
        files::create_dir_durable(dir).map_err(write)?;
    }
    files::replace_durable(&path, &bytes).map_err(write)
}

/// The last decision; `None` where none was made yet.
pub fn load_decision(state: &Path, guard: &GuardName) -> Result<Option<Decision>, DecisionError> {
    let path = decision_path(state, guard);
    match files::read_bounded(&path, MAX_DECISION) {
        Ok(None) => Ok(None),
        Ok(Some(bytes)) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|source| DecisionError::Parse { path, source })
        }
        Err(source) => Err(DecisionError::Read { path, source }),
    }
}

/// SHA-256, in hex, over the evidence of a decision as JSON: what `history` shows beside it, and what ties an entry of the
/// ledger to the `decision.json` that explains it.
pub fn evidence_digest(decision: &Decision) -> Result<String, DecisionError> {
    let bytes = serde_json::to_vec(&decision.evidence).map_err(DecisionError::Encode)?;
    Ok(super::ledger::hex(&Sha256::digest(bytes)))
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics is a test that fails"
)]
mod tests {
    use super::*;
    use crate::model::*;
    use std::os::unix::fs::PermissionsExt;

    fn decision() -> Decision {
        Decision {
            guard: "main".parse().unwrap(),
            time: Time::from_unix(1_796_000_000).unwrap(),
            boot_id: BootId("b".into()),
            version: "0.1.0".into(),
            verdict: DecisionVerdict::Held,
            reasons: vec![Reason::new(ReasonCode::DataVanished, "it held data")],
            warnings: vec![],
            evidence: DecisionEvidence::default(),
            not_done: vec!["not formatted".into()],
        }
    }

    #[test]
    fn a_decision_comes_back_as_it_was_stored_and_only_root_reads_it() {
        let state = tempfile::tempdir().unwrap();
        let kept = decision();
        assert_eq!(load_decision(state.path(), &kept.guard).unwrap(), None);
        store_decision(state.path(), &kept).unwrap();
        store_decision(state.path(), &kept).unwrap();
        assert_eq!(load_decision(state.path(), &kept.guard).unwrap(), Some(kept.clone()));
        let path = decision_path(state.path(), &kept.guard);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing temporary is left");
    }

    #[test]
    fn a_cut_decision_is_an_error_and_not_an_absent_one() {
        let state = tempfile::tempdir().unwrap();
        store_decision(state.path(), &decision()).unwrap();
        let path = decision_path(state.path(), &decision().guard);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(matches!(load_decision(state.path(), &decision().guard), Err(DecisionError::Parse { .. })));
    }

    #[test]
    fn the_digest_changes_with_the_evidence_and_with_nothing_else() {
        let one = decision();
        let later = Decision { time: Time::from_unix(1).unwrap(), verdict: DecisionVerdict::Opened, ..decision() };
        let mut other = decision();
        other.evidence.tool_output = Some("e2fsck: exit 4".into());
        assert_eq!(evidence_digest(&one).unwrap(), evidence_digest(&later).unwrap());
        assert_ne!(evidence_digest(&one).unwrap(), evidence_digest(&other).unwrap());
    }
}
