//! What would an etcd of this version do with this data dir?
//!
//! The rules follow etcd's own way through a start: data dir, backend, log, snapshot, log from that snapshot, raft, apply.
//! The first that stops it decides; what only loses something is added up. Each rule names the source that it was read from
//! (file and version); they are held against several hundred recorded starts of real etcds of twelve versions
//! (`tests/it/etcd/predict.rs`).
//!
//! What etcd does with bytes that it does not check (a pointer out of its page) depends on what happens to lie there. Then
//! the answer is that it does not start: whoever relies on a start must not hear yes.

mod backend;
mod log;
mod version;

use crate::model::{ContentKind, DataDirFacts, EtcdVersion, Prediction, ReasonCode, RuleHit, Starts, Thing};

/// The answer as it grows.
struct Answer {
    starts: Starts,
    loses: bool,
    message: Option<String>,
    because: Vec<ReasonCode>,
    rules: Vec<RuleHit>,
}

/// A rule's end: etcd stops here.
struct Stops;

type Step = Result<(), Stops>;

impl Answer {
    fn hit(&mut self, what: &str, code: Option<ReasonCode>, source: &str) {
        self.because.extend(code);
        self.rules.push(RuleHit { what: what.to_owned(), source: source.to_owned() });
    }

    /// etcd ends, saying `message`.
    fn stop(&mut self, message: impl Into<String>, code: ReasonCode, source: &str) -> Step {
        let message = message.into();
        self.hit(&message, Some(code), source);
        self.starts = Starts::No;
        self.message = Some(message);
        Err(Stops)
    }

    /// The process runs, and never serves.
    fn hang(&mut self, message: &str, code: ReasonCode, source: &str) -> Step {
        self.hit(message, Some(code), source);
        self.starts = Starts::Unhealthy;
        self.message = Some(message.to_owned());
        Err(Stops)
    }

    /// It starts, and something acknowledged is gone or will be.
    fn lose(&mut self, message: &str, code: ReasonCode, source: &str) {
        self.hit(message, Some(code), source);
        self.loses = true;
        self.message.get_or_insert_with(|| message.to_owned());
    }
}

/// What `version` would do. Total: whatever the facts say, there is an answer.
pub fn predict(facts: &DataDirFacts, version: EtcdVersion) -> Prediction {
    let mut answer =
        Answer { starts: Starts::Yes, loses: false, message: None, because: Vec::new(), rules: Vec::new() };
    if facts.backend.unstable {
        answer.starts = Starts::Unknown;
        answer.message =
            Some("unstable: an etcd writes to it, and the backend changed each time while it was read".to_owned());
        answer.because.push(ReasonCode::Unreadable);
    } else if run(facts, version, &mut answer).is_ok() && !facts.unreadable.is_empty() {
        answer.starts = Starts::Unknown;
        answer.message = Some(format!("not all could be read: {}", facts.unreadable.join("; ")));
        answer.because.push(ReasonCode::Unreadable);
    }
    answer.because.sort();
    answer.because.dedup();
    let message = answer.message.unwrap_or_else(|| "it starts, and loses nothing".to_owned());
    Prediction {
        version: Some(version.to_string()),
        starts: answer.starts,
        loses: answer.loses,
        message,
        because: answer.because,
        rules: answer.rules,
    }
}

fn run(facts: &DataDirFacts, version: EtcdVersion, answer: &mut Answer) -> Step {
    directories(facts, version, answer)?;
    if facts.member == Thing::Absent {
        return Ok(());
    }
    if version.at_least(3, 0, 0) {
        backend::open(&facts.backend, version, answer)?;
    } else if facts.backend.file != Thing::Absent {
        // etcdserver/server.go of 2.3: a db means that the demo of the v3 API was on.
        let message = "experimental-v3demo cannot be disabled once it is enabled";
        answer.stop(message, ReasonCode::VersionDowngrade, "etcd v2.3.8 etcdserver/server.go NewServer")?;
    }
    let way = log::way(facts, version, answer)?;
    version::check(facts, &way, version, answer)?;
    contents(facts, version, answer)?;
    log::reach(facts, &way, version, answer)
}

fn directories(facts: &DataDirFacts, version: EtcdVersion, answer: &mut Answer) -> Step {
    match facts.member {
        Thing::Odd => {
            let source = "etcd v3.5.30 server/etcdserver/server.go NewServer (TouchDirAll)";
            answer.stop("member: not a directory", ReasonCode::Unreadable, source)
        }
        Thing::There if facts.proxy => {
            let source = "etcd v3.5.30 server/etcdmain/etcd.go identifyDataDirOrDie";
            answer.stop("invalid datadir; both member and proxy directories exist", ReasonCode::Unreadable, source)
        }
        Thing::Absent if facts.proxy => {
            let source = "etcd v3.6.12 server/etcdmain/etcd.go startEtcdOrProxyV2";
            if version.at_least(3, 6, 0) {
                let message = "v2 http proxy has already been deprecated in 3.6";
                return answer.stop(message, ReasonCode::V2DataOnly, source);
            }
            answer.hang("it runs as a proxy of the v2 API, and holds nothing", ReasonCode::V2DataOnly, source)
        }
        Thing::There | Thing::Absent => Ok(()),
    }
}

/// Records that etcd reads while it builds its index, or takes for true.
fn contents(facts: &DataDirFacts, version: EtcdVersion, answer: &mut Answer) -> Step {
    if !version.at_least(3, 0, 0) || facts.backend.deep.is_none() {
        return Ok(());
    }
    let kvstore = "etcd v3.5.30 server/mvcc/kvstore.go restoreIntoIndex";
    let code = ReasonCode::BackendDamaged;
    if facts.has_content(ContentKind::Record) {
        answer.stop("failed to unmarshal mvccpb.KeyValue", code, kvstore)?;
    }
    if facts.has_content(ContentKind::RevisionLength) {
        answer.stop("slice bounds out of range (a key that is no revision)", code, kvstore)?;
    }
    if facts.has_content(ContentKind::Backwards) {
        let source = "etcd v3.5.30 server/mvcc/key_index.go put";
        answer.stop("'put' with an unexpected smaller revision", code, source)?;
    }
    let strict = version.at_least(3, 6, 0);
    let revision = "etcd v3.6.12 server/storage/mvcc/revision.go BytesToBucketKey";
    if strict && facts.has_content(ContentKind::RevisionSeparator) {
        answer.stop("invalid separator in bucket key: '-'", code, revision)?;
    }
    if strict && facts.has_content(ContentKind::RevisionNegative) {
        answer.stop("negative revision in bucket key", code, revision)?;
    }
    if facts.has_content(ContentKind::Value) {
        let source = "etcd v3.6.12 server/storage/schema/membership.go, cindex.go, auth.go, alarm.go";
        answer.stop("a value that etcd reads at start is none that it wrote", code, source)?;
    }
    for (kind, message) in [
        (ContentKind::RevisionSeparator, "revisions are not what etcd wrote; it does not look"),
        (ContentKind::RevisionNegative, "revisions are not what etcd wrote; it does not look"),
        (ContentKind::Nameless, "records name no key; etcd does not look, and their keys are not served"),
        (ContentKind::OtherRevision, "records contradict their keys; etcd does not look, and serves them"),
        (ContentKind::OtherVersion, "records contradict themselves; etcd does not look, and serves them"),
    ] {
        if facts.has_content(kind) {
            answer.lose(message, code, kvstore);
        }
    }
    Ok(())
}
