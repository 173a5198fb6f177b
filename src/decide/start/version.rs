//! Which etcd will open the selected dir, and may it?
//!
//! Two sorts of objections. etcd itself refuses to start (a version below the data's, a downgrade that is enabled, what 3.6
//! does not take): then a hold says it before, with the way out, instead of a pod that ends again and again. Or it starts,
//! and skips what the versions in between would have done, or shows nothing of what lies in the v2 store.
//!
//! What is not known holds nothing: neither an etcd that nobody names nor data that names no version.

use super::keys::{Keys, at_least};
use super::situation::Situation;
use super::{Kind, Objections};
use crate::model::{
    DataDirReport, EtcdGeneration, EtcdToRun, EtcdVersion, Fingerprint, NamedBy, Observed, Reason, ReasonCode,
    StartPolicy,
};
use serde_json::json;

/// A line of releases: major and minor.
type Line = (u64, u64);

/// The etcd that will open the selected dir. Where etcd-manager's `state` selects it, that says with which version it was
/// started last, and etcd-manager starts no other on it before it has changed `state`.
pub fn opens(situation: &Situation<'_>, to_run: &Observed<Option<EtcdToRun>>) -> Option<EtcdToRun> {
    if situation.reading.manager_state.is_none() {
        return to_run.seen().cloned().flatten();
    }
    let state = situation.manager_state()?;
    let version = state.etcd_version.as_deref()?.parse().ok()?;
    let path = format!("data/{}", state.cluster_token.as_deref()?);
    let own = situation.dir().is_some_and(|dir| dir.path == path);
    own.then_some(EtcdToRun { version: Some(version), by: NamedBy::State, at: None, flags: None })
}

/// Adds what stands between the etcd that is to run and the data that it would open.
pub fn rules(
    situation: &Situation<'_>,
    to_run: &Observed<Option<EtcdToRun>>,
    policy: &StartPolicy,
    objections: &mut Objections,
    warnings: &mut Vec<Reason>,
) {
    if let Observed::Unknown(why) = to_run {
        let message = format!(
            "which etcd will open the data is not known: {}; nothing was held against its version",
            why.detail()
        );
        warnings.push(Reason::new(ReasonCode::Unreadable, message));
    }
    let Some(etcd) = opens(situation, to_run) else { return };
    announced(&etcd, to_run, warnings);
    let Some(version) = etcd.version else { return };
    if version.at_least(3, 5, 0) && !version.at_least(3, 5, 3) {
        let message = format!(
            "{} is one of 3.5.0 to 3.5.2, which can lose writes in a crash and then serve other data than the other members",
            etcd.in_words()
        );
        warnings.push(Reason::new(ReasonCode::KnownBadVersion, message));
    }
    let Some(dir) = situation.dir().filter(|dir| dir.populated && !situation.damaged()) else { return };
    let Some(fingerprint) = &dir.fingerprint else { return };
    let asked = Asked { dir, fingerprint, etcd: &etcd, version, own: (version.major, version.minor) };
    let refused = asked.refused();
    if refused.is_empty() {
        asked.skipped(objections, warnings);
        asked.invisible(policy, objections, warnings);
    }
    for (code, message) in refused {
        objections.add(Kind::Version, asked.reason(code, message));
    }
}

/// What etcd-manager is configured to bring the data to, where that is not what it runs now.
fn announced(etcd: &EtcdToRun, to_run: &Observed<Option<EtcdToRun>>, warnings: &mut Vec<Reason>) {
    let target = to_run.seen().and_then(|target| target.as_ref()?.version);
    let (NamedBy::State, Some(now), Some(target)) = (etcd.by, etcd.version, target) else { return };
    let lines = ((now.major, now.minor), (target.major, target.minor));
    if lines.0 == lines.1 {
        return;
    }
    // `etcdversions.UpgradeInPlaceSupported` of etcd-manager: within 3, to the next minor.
    let in_place = lines.0.0 == 3 && lines.1.0 == 3 && lines.0.1.checked_add(1) == Some(lines.1.1);
    let how = if in_place { "it upgrades in place" } else { "it makes a backup and restores that into a new dir" };
    let message = format!(
        "etcd-manager will open the dir with etcd {now}, as its `state` says, and is meant to bring it to {target}: {how}"
    );
    warnings.push(Reason::new(ReasonCode::MigrationUnderWay, message));
}

struct Asked<'a> {
    dir: &'a DataDirReport,
    fingerprint: &'a Fingerprint,
    etcd: &'a EtcdToRun,
    version: EtcdVersion,
    own: Line,
}

impl Asked<'_> {
    /// What etcd itself ends with.
    fn refused(&self) -> Vec<(ReasonCode, String)> {
        let mut refused = Vec::new();
        let (path, etcd) = (&self.dir.path, self.etcd.in_words());
        // From 3.6 on the backend has a version of its own; those before do not look at it.
        let storage = self.fingerprint.storage_version.as_deref().filter(|_| self.version.at_least(3, 6, 0));
        let above = [storage, self.fingerprint.cluster_version.as_deref()];
        let above = above.into_iter().flatten().filter_map(|text| Some((text, line(text)?)));
        if let Some((text, needed)) = above.filter(|(_, line)| *line > self.own).max_by_key(|(_, line)| *line) {
            let way = match self.fingerprint.downgrade.as_deref() {
                Some(target) => format!("; a downgrade to {target} was enabled, and is not done"),
                None => String::new(),
            };
            let message = format!(
                "`{path}` belongs to a cluster of version {text}, and {etcd} is to open it, which refuses: install {}.{} \
                 or later{way}",
                needed.0, needed.1
            );
            refused.push((ReasonCode::VersionDowngrade, message));
        } else if let Some(target) = self.fingerprint.downgrade.as_deref()
            && self.own == (3, 5)
            && line(target).is_some_and(|target| target != self.own)
        {
            let message = format!(
                "a downgrade to {target} is enabled in `{path}`, and then {etcd} does not start: start the version that it \
                 is for, or 3.6, and there `etcdctl downgrade cancel`"
            );
            refused.push((ReasonCode::VersionDowngrade, message));
        }
        if self.own == (3, 6) {
            self.refused_by_3_6(&mut refused);
        }
        refused
    }

    fn refused_by_3_6(&self, refused: &mut Vec<(ReasonCode, String)>) {
        let (path, etcd) = (&self.dir.path, self.etcd.in_words());
        let v2 = self.v2_keys();
        if v2 > 0 && self.dir.etcd == EtcdGeneration::V3 {
            let message = format!(
                "`{path}` holds {v2} keys of the v2 API in its newest snapshot, and {etcd} is to open it, which refuses \
                 those: start 3.5 with `--enable-v2`, save what is needed, remove them"
            );
            refused.push((ReasonCode::V2DataOnly, message));
        }
        if let Some(index) = self.fingerprint.v2_request {
            let message = format!(
                "entry {index} of the log of `{path}`, behind its newest snapshot, is a request of the v2 API (a health \
                 check of 3.4 or earlier is enough), and {etcd} is to open it, which refuses those: run 3.5 on it until \
                 it has made a snapshot (`--snapshot-count`)"
            );
            refused.push((ReasonCode::VersionSkip, message));
        }
        if !self.fingerprint.promoted.is_empty() && !self.version.at_least(3, 6, 12) {
            let ids: Vec<String> = self.fingerprint.promoted.iter().map(ToString::to_string).collect();
            let message = format!(
                "the backend of `{path}` calls {} a learner that was promoted long ago (etcd 3.5.1 to 3.5.19 kept that in \
                 the v2 store only), and {etcd} is to open it, which believes the backend: start 3.5.24 or later on every \
                 member first",
                ids.join(" and ")
            );
            refused.push((ReasonCode::VersionSkip, message));
        }
    }

    /// It starts, and what the versions in between would have done is not done.
    fn skipped(&self, objections: &mut Objections, warnings: &mut Vec<Reason>) {
        let Some((text, data)) = self.data() else { return };
        let hops = hops(data, self.own);
        if hops.len() < 3 {
            return;
        }
        let way: Vec<String> = hops.iter().map(|(major, minor)| format!("{major}.{minor}")).collect();
        let v2_only = self.dir.etcd == EtcdGeneration::V2 && self.version.at_least(3, 4, 0);
        let blind = if v2_only { ", which shows nothing of its v2 store" } else { "" };
        let message = format!(
            "`{}` was last served by {text}, and {} is to open it{blind}: the way is {}, each started until it is healthy",
            self.dir.path,
            self.etcd.in_words(),
            way.join(", then ")
        );
        // A cluster of several members says 3.0 until all of them have met, however new they are (etcd v3.5.30
        // `server/etcdserver/server.go` monitorVersions, `version.MinClusterVersion`).
        if data == (3, 0) {
            let message = format!("{message}; a cluster that was just made says 3.0, too");
            warnings.push(self.reason(ReasonCode::VersionSkip, message));
            return;
        }
        let code = if v2_only { ReasonCode::V2DataOnly } else { ReasonCode::VersionSkip };
        let mut reason = self.reason(code, message);
        if let Some(detail) = &mut reason.detail {
            detail["hops"] = json!(way);
        }
        objections.add(Kind::Version, reason);
    }

    /// From 3.4 on nothing serves the v2 store unless it is asked to. Who lived with that already is not asked again.
    fn invisible(&self, policy: &StartPolicy, objections: &mut Objections, warnings: &mut Vec<Reason>) {
        let v2 = self.v2_keys();
        let crosses = self.data().is_some_and(|(_, data)| data < (3, 4)) && self.version.at_least(3, 4, 0);
        if v2 == 0 || !crosses || self.dir.etcd != EtcdGeneration::V3 {
            return;
        }
        let v3 = self.fingerprint.keys;
        let counts = Keys::of(self.dir).in_words();
        let message = format!(
            "`{}` holds {counts}, and {} is to open it, which shows nothing of the v2 store unless it is started with \
             `--enable-v2`",
            self.dir.path,
            self.etcd.in_words()
        );
        let reason = self.reason(ReasonCode::V2DataOnly, message);
        // Where they were migrated, the v3 store has as many, and what is left in the v2 store is a remainder.
        if v3.is_some_and(|v3| at_least(v3, v2, policy.far_behind_percent)) {
            warnings.push(reason);
        } else {
            objections.add(Kind::Version, reason);
        }
    }

    fn v2_keys(&self) -> u64 {
        self.fingerprint.v2.as_ref().and_then(|v2| v2.keys).unwrap_or(0)
    }

    /// Which release served the data last, as far as it says: in words, and its line.
    fn data(&self) -> Option<(String, Line)> {
        let said = [self.fingerprint.storage_version.as_deref(), self.fingerprint.cluster_version.as_deref()];
        let said = said.into_iter().flatten().filter_map(line).max();
        match (said, self.dir.etcd) {
            (Some(line), _) => Some((format!("etcd {}.{}", line.0, line.1), line)),
            // Without a snapshot a dir of etcd 2 names no version; none after 2.3 leaves one without a backend.
            (None, EtcdGeneration::V2) => Some(("etcd 2".to_owned(), (2, 3))),
            (None, EtcdGeneration::V3 | EtcdGeneration::Empty | EtcdGeneration::None) => None,
        }
    }

    fn reason(&self, code: ReasonCode, message: String) -> Reason {
        Reason::new(code, message).with_detail(json!({
            "data_dir": self.dir.path,
            "to_run": self.version,
            "named_by": self.etcd.by,
            "cluster_version": self.fingerprint.cluster_version,
            "storage_version": self.fingerprint.storage_version,
            "v2_keys": self.fingerprint.v2.as_ref().and_then(|v2| v2.keys),
            "downgrade": self.fingerprint.downgrade,
        }))
    }
}

/// Major and minor of a version's text.
fn line(text: &str) -> Option<Line> {
    let mut parts = text.split('.').map(|part| part.parse::<u64>().ok());
    Some((parts.next()??, parts.next()??))
}

/// Every line from the one to the other, both included; 3.0 comes after 2.3. Nothing where the second is not the newer one,
/// or one of them is of a major version that is not known.
fn hops(from: Line, to: Line) -> Vec<Line> {
    let known = |line: Line| matches!(line, (2, 0..=3) | (3, 0..=99));
    let mut hops = Vec::new();
    let mut at = from;
    while known(at) && known(to) && at <= to {
        hops.push(at);
        at = if at == (2, 3) { (3, 0) } else { (at.0, at.1.saturating_add(1)) };
    }
    hops
}
