//! What this instance may ask of EC2, tried out with `DryRun`: nothing is done, and nothing is guessed from a policy.

use super::Patient;
use crate::cli::inspect::block_on;
use crate::cloud::code::{ApiError, Code};
use crate::cloud::permissions::Level;
use crate::cloud::{Client, Hub};
use crate::config::GuardConfig;
use crate::install::doctor::Check;
use crate::model::{DeviceSpec, EbsSpec, GuardName, SnapshotPolicy, VolumeId};
use std::time::Duration;

const ID: &str = "ec2";
/// For all questions together.
const LIMIT: Duration = Duration::from_secs(30);

/// `None`: the guard's device is none of EC2's.
pub fn check(patient: &Patient<'_>, config: &GuardConfig) -> Option<Check> {
    let name = &config.name;
    let known = patient.reported(name).and_then(|status| status.volume.clone()).filter(VolumeId::is_ebs);
    let volume = match &config.device {
        DeviceSpec::Ebs(EbsSpec::Id(id)) => id.clone(),
        DeviceSpec::Ebs(EbsSpec::Tags(_)) => match known {
            Some(known) => known,
            None => {
                let message = "not tested: which volume it is is not known yet";
                return Some(Check::skip(ID, message).fix("start the agent, and look again").of(name));
            }
        },
        DeviceSpec::Path(_) | DeviceSpec::Uuid(_) | DeviceSpec::Label(_) => return None,
    };
    let asked = block_on(async { tokio::time::timeout(LIMIT, ask(&volume)).await });
    let late = || ApiError { code: Code::NoAnswer, action: "DescribeVolumes", said: String::new() };
    let found = match asked {
        Ok(Ok(found)) => found,
        Ok(Err(_)) | Err(_) => Err(late()),
    };
    Some(judge(name, config, found))
}

type Found = Vec<(Level, Result<(), ApiError>)>;

async fn ask(volume: &VolumeId) -> Result<Found, ApiError> {
    let hub = Hub::new(Client::default());
    let here = hub.here().await?;
    let mut found = Vec::new();
    for level in Level::ALL {
        found.push((level, hub.may(&here, volume, level).await));
    }
    Ok(found)
}

/// A role that may only read and attach is a healthy one: that is all that masters of kops may do.
fn judge(name: &GuardName, config: &GuardConfig, found: Result<Found, ApiError>) -> Check {
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            let message = format!("{}; what is attached and on record starts without EC2", error.what());
            return Check::warn(ID, message).fix(error.code.remedy()).of(name);
        }
    };
    let refused = |level: Level| {
        found
            .iter()
            .any(|(asked, answer)| *asked == level && matches!(answer, Err(ApiError { code: Code::Unauthorized, .. })))
    };
    let unknown = found.iter().filter_map(|(level, answer)| match answer {
        Ok(()) | Err(ApiError { code: Code::Unauthorized, .. }) => None,
        Err(error) => Some(format!("{}: not known, {}", level.action(), error.code.words())),
    });
    let missing = Level::ALL.into_iter().filter(|level| refused(*level));
    let missing: Vec<String> =
        missing.map(|level| format!("{} is not permitted ({})", level.action(), level.carries())).collect();
    let mut parts = missing.clone();
    parts.extend(unknown);
    if parts.is_empty() {
        return Check::ok(ID, "may read, attach, take snapshots and write tags").of(name);
    }
    let message = parts.join("; ");
    let needed = config.snapshot == SnapshotPolicy::Required && refused(Level::Snapshot);
    let policies = "packaging/aws has policies for IAM";
    let check = if needed {
        Check::fail(ID, format!("{message}; the guard says snapshot = \"required\"")).fix(policies)
    } else if refused(Level::Read) || refused(Level::Attach) || missing.is_empty() {
        Check::warn(ID, message).fix(policies)
    } else {
        let also = config.snapshot == SnapshotPolicy::BestEffort && refused(Level::Snapshot);
        let essential = format!("may read and attach, which is enough; {message}");
        if also { Check::warn(ID, essential).fix(policies) } else { Check::ok(ID, essential) }
    };
    check.of(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::install::doctor::Outcome;

    fn guard(snapshot: SnapshotPolicy) -> GuardConfig {
        let text =
            "[[guard]]\nname = \"main\"\nprovider = \"ebs\"\nvolume_id = \"vol-1a2b3c4d\"\npublish = \"/mnt/a\"\n";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        let loaded = crate::config::load(&crate::config::Sources::file(&path)).unwrap();
        GuardConfig { snapshot, ..loaded.config.guards.first().unwrap().clone() }
    }

    fn refusing(levels: &[Level]) -> Result<Found, ApiError> {
        let error = |action| ApiError { code: Code::Unauthorized, action, said: String::new() };
        let each = |level| (level, if levels.contains(&level) { Err(error("x")) } else { Ok(()) });
        Ok(Level::ALL.into_iter().map(each).collect())
    }

    #[test]
    fn who_may_read_and_attach_is_well_and_what_is_missing_is_named_with_what_it_costs() {
        let judge = |policy, found| judge(&"main".parse().unwrap(), &guard(policy), found);
        assert_eq!(judge(SnapshotPolicy::Off, refusing(&[])).result, Outcome::Ok);
        let kops = judge(SnapshotPolicy::Off, refusing(&[Level::Snapshot, Level::Tag]));
        assert_eq!(kops.result, Outcome::Ok);
        for word in ["ec2:CreateTags is not permitted", "ec2:CreateSnapshot is not permitted", "which is enough"] {
            assert!(kops.message.contains(word), "{}", kops.message);
        }
        assert_eq!(judge(SnapshotPolicy::BestEffort, refusing(&[Level::Snapshot])).result, Outcome::Warn);
        assert_eq!(judge(SnapshotPolicy::Required, refusing(&[Level::Snapshot])).result, Outcome::Fail);
        assert_eq!(judge(SnapshotPolicy::Required, refusing(&[Level::Tag])).result, Outcome::Ok);
        assert_eq!(judge(SnapshotPolicy::Off, refusing(&[Level::Attach])).result, Outcome::Warn);
        let late = ApiError { code: Code::NoAnswer, action: "DescribeVolumes", said: String::new() };
        assert_eq!(judge(SnapshotPolicy::Off, Err(late.clone())).result, Outcome::Warn);
        assert_eq!(judge(SnapshotPolicy::Off, Ok(vec![(Level::Tag, Err(late))])).result, Outcome::Warn);
    }
}
