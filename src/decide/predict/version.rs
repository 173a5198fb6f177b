//! Versions: what is older than the data refuses, and 3.6 refuses some of what 3.4 and earlier left.

use super::log::Way;
use super::{Answer, Step};
use crate::model::{DataDirFacts, EtcdVersion, ReasonCode};

/// Major and minor of a version's text.
fn minor(text: &str) -> Option<(u64, u64)> {
    let mut parts = text.split('.').map(|part| part.parse::<u64>().ok());
    Some((parts.next()??, parts.next()??))
}

pub(super) fn check(facts: &DataDirFacts, way: &Way<'_>, version: EtcdVersion, answer: &mut Answer) -> Step {
    let own = (version.major, version.minor);
    if version.at_least(3, 6, 0) {
        let source = "etcd v3.6.12 server/storage/schema/schema.go Validate";
        if let Some(storage) = &facts.backend.storage_version
            && minor(storage).is_some_and(|storage| storage > own)
        {
            return answer.stop(
                format!("version \"{storage}\" is not supported"),
                ReasonCode::VersionDowngrade,
                source,
            );
        }
    }
    refused_v2(facts, way, version, answer)?;
    cluster(facts, way, version, answer)
}

/// 3.6 takes nothing of the v2 API any more, in snapshot or log.
fn refused_v2(facts: &DataDirFacts, way: &Way<'_>, version: EtcdVersion, answer: &mut Answer) -> Step {
    if !(version.at_least(3, 6, 0) && version.minor == 6) {
        return Ok(());
    }
    let code = ReasonCode::V2DataOnly;
    if way.snapshot.is_some_and(|snapshot| snapshot.custom_v2) {
        let source = "etcd v3.6.12 server/etcdserver/bootstrap.go recoverSnapshot (assertv2deprecation)";
        let message = "detected disallowed custom content in v2store for stage --v2-deprecation=write-only";
        return answer.stop(message, code, source);
    }
    let read = facts.log.files.get(way.from..).unwrap_or(&[]);
    if read.iter().any(|file| file.refused_v2.is_some_and(|index| index > way.start)) {
        let source = "etcd v3.6.12 server/etcdserver/apply_v2.go";
        let message = "detected disallowed v2 WAL for stage --v2-deprecation=write-only";
        return answer.stop(message, ReasonCode::VersionSkip, source);
    }
    Ok(())
}

fn cluster(facts: &DataDirFacts, way: &Way<'_>, version: EtcdVersion, answer: &mut Answer) -> Step {
    let own = (version.major, version.minor);
    let read = facts.log.files.get(way.from..).unwrap_or(&[]);
    let logged =
        read.iter().rev().find_map(|file| file.cluster_version.as_ref()).filter(|(index, _)| *index > way.start);
    let snapshot = way.snapshot.and_then(|snapshot| snapshot.cluster_version.as_deref());
    let backend = facts.backend.cluster_version.as_deref();
    // Up to 3.5 the v2 store rules, from 3.6 on the backend.
    let of_store = logged.map(|(_, version)| version.as_str()).or(snapshot);
    let text = if version.at_least(3, 6, 0) { backend.or(of_store) } else { of_store.or(backend) };
    let determined = text.and_then(minor);
    let source = "etcd v3.5.30 server/etcdserver/api/membership/downgrade.go mustDetectDowngrade; v3.1.12 cluster.go";
    if determined.is_some_and(|determined| determined > own) {
        let message = if version.at_least(3, 4, 0) {
            "invalid downgrade; server version is lower than determined cluster version".to_owned()
        } else {
            format!(
                "cluster cannot be downgraded (current version: {version} is lower than determined cluster version: {})",
                text.unwrap_or_default()
            )
        };
        return answer.stop(message, ReasonCode::VersionDowngrade, source);
    }
    let target = facts.backend.downgrade.as_deref().and_then(minor);
    if (version.major, version.minor) == (3, 5) && target.is_some_and(|target| target != own) {
        let message = "invalid downgrade; server version is not allowed to join when downgrade is enabled";
        return answer.stop(message, ReasonCode::VersionDowngrade, source);
    }
    Ok(())
}
