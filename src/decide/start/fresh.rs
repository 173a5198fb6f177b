//! May an etcd start on nothing?

use super::identity::{Standing, is_recorded, remembered};
use super::place::made_here;
use super::situation::{Selected, Situation};
use super::words::unknown;
use super::{Kind, Objections};
use crate::model::{
    FilesystemFacts, Observed, Reason, ReasonCode, Records, Sibling, Siblings, StartPolicy, Time, VolumeAge, Why,
    Witness,
};
use serde_json::json;

/// Names that etcd-manager and volhold's own work leave on a volume that holds no data yet.
const EXPLAINED: [&str; 5] = ["data", "data-trashcan", "myid", "pki", "state"];

/// How much earlier another member's volume may have been made, in seconds, for both to belong to one new cluster.
const TOGETHER: i64 = 3600;

/// Objects where the selected place holds nothing and something says that it should, or nothing says that it may. Returns
/// whether this would be a fresh start.
pub fn rules(
    situation: &Situation<'_>,
    standing: Standing,
    records: &Records,
    filesystem: Option<&FilesystemFacts>,
    age: &Observed<VolumeAge>,
    policy: &StartPolicy,
    objections: &mut Objections,
) -> bool {
    // A dir that continues its record is not fresh, though every key may have been deleted. What could not be read, or is
    // damaged, is not nothing.
    let ambiguous = match situation.selected {
        Selected::Nothing => {
            situation.reading.data_dirs.iter().any(|dir| dir.populated && !super::situation::is_archive(dir))
        }
        Selected::Dir(_) | Selected::Bare { .. } => false,
    };
    if situation.populated() || ambiguous || !situation.all_read() {
        return false;
    }
    match standing {
        Standing::Continues => return false,
        Standing::SameIds if records.held_data_at.is_none() => return false,
        Standing::SameIds | Standing::NotPinned | Standing::ChangedWhileOpen | Standing::Otherwise => {}
    }

    // Data that lies elsewhere on the volume is not gone: then another dir is selected, and that is what is said.
    let elsewhere = objections.has(Kind::BesideOld) && situation.others.iter().any(|other| is_recorded(other, records));
    if !elsewhere && (records.held_data_at.is_some() || records.pin.is_some() || records.high_water.is_some()) {
        let at = match (records.held_data_at, &records.pin) {
            (Some(at), Some(_) | None) => format!(", noted at {at}"),
            (None, Some(pin)) => format!(", pinned at {}", pin.at),
            (None, None) => String::new(),
        };
        let message = format!(
            "the record says that this volume held {}{at}, and there is nothing in {}",
            remembered(records),
            situation.selected_in_words()
        );
        let detail = json!({ "recorded": records.high_water, "held_data_at": records.held_data_at });
        objections.add(Kind::Vanished, Reason::new(ReasonCode::DataVanished, message).with_detail(detail));
    }
    if !policy.fresh {
        let message = format!(
            "there is nothing in {}, and the configuration says `fresh = \"deny\"`",
            situation.selected_in_words()
        );
        objections.add(Kind::NotFresh, Reason::new(ReasonCode::FreshForbidden, message));
    }
    volume_is_new(situation, records, filesystem, age, policy, objections);
    true
}

/// volhold made this filesystem, or the provider says that the volume is young, or it is the one time that nobody can say.
fn volume_is_new(
    situation: &Situation<'_>,
    records: &Records,
    filesystem: Option<&FilesystemFacts>,
    age: &Observed<VolumeAge>,
    policy: &StartPolicy,
    objections: &mut Objections,
) {
    let uuid = filesystem.and_then(|facts| facts.uuid);
    let made_here = uuid.is_some_and(|uuid| made_here(records, uuid));
    let allowed_before = uuid.is_some_and(|uuid| records.fresh_allowed.contains(&uuid));
    // A member that was let start here and has no key yet (it waits for its peers, say) has used that one time itself.
    let grown_from_it = situation.fingerprint().is_some_and(|fingerprint| fingerprint.cluster_id.is_some());
    match age {
        // All that is on the volume is volhold's own. Whether it replaces one that held data, or is that one, wiped, its filesystem
        // does not tell where the volume was old when it was made: unless a start was allowed then, that is asked first.
        Observed::Seen(VolumeAge::Young | VolumeAge::NoProvider) | Observed::Unknown(_) if made_here => {}
        Observed::Seen(VolumeAge::Old) if made_here && (allowed_before || grown_from_it) => {}
        Observed::Seen(VolumeAge::Young) => {}
        Observed::Seen(VolumeAge::Old) => {
            let used =
                if objections.has(Kind::Vanished) { "" } else { ", no record says that the volume was ever used" };
            let message = format!(
                "there is nothing in {}{used}, and the provider says that the volume is not new: it may stand in for one that \
                 held data",
                situation.selected_in_words()
            );
            objections.add(Kind::NotFresh, Reason::new(ReasonCode::BlankReplacement, message));
        }
        Observed::Seen(VolumeAge::NoProvider) if allowed_before && grown_from_it => {}
        Observed::Seen(VolumeAge::NoProvider) if allowed_before => {
            let message = format!(
                "there is nothing in {}, and a fresh start on this filesystem was allowed once already",
                situation.selected_in_words()
            );
            objections.add(Kind::NotFresh, Reason::new(ReasonCode::FreshForbidden, message));
        }
        Observed::Seen(VolumeAge::NoProvider) => nothing_unexplained(situation, policy, objections),
        Observed::Unknown(why) => {
            let mut reason = unknown("the age of the volume, which decides whether an etcd may start on nothing,", why);
            reason.message.push_str("; nothing on it says that volhold made its filesystem");
            objections.add(Kind::NotFresh, reason);
        }
    }
}

/// A filesystem that somebody else made and filled, with no data dir in sight: data may lie where nobody looks for it.
fn nothing_unexplained(situation: &Situation<'_>, policy: &StartPolicy, objections: &mut Objections) {
    let selected_first = match situation.selected {
        Selected::Dir(dir) => Some(dir.path.as_str()),
        Selected::Bare { path, .. } => Some(path),
        Selected::Nothing => None,
    }
    .and_then(|path| path.split('/').next());
    // A data dir at the root owns what is at the root.
    let root_is_the_dir = selected_first == Some(".") && situation.dir().is_some();
    let dirs_at = |name: &str| situation.reading.data_dirs.iter().any(|dir| dir.path.split('/').next() == Some(name));
    // The configuration names it: somebody made room for it.
    let published = |name: &str| policy.publish.iter().any(|from| from.split('/').next() == Some(name));
    let unexplained: Vec<&String> = situation
        .reading
        .root_entries
        .iter()
        .filter(|name| {
            !EXPLAINED.contains(&name.as_str())
                && selected_first != Some(name.as_str())
                && !published(name)
                && !dirs_at(name)
                && !root_is_the_dir
        })
        .collect();
    if unexplained.is_empty() {
        return;
    }
    let list: Vec<&str> = unexplained.iter().map(|name| name.as_str()).collect();
    let message = format!(
        "there is nothing in {}, but the volume is not empty: {} lie at its root, and no record says what they are",
        situation.selected_in_words(),
        list.join(", ")
    );
    let detail = json!({ "root_entries": unexplained });
    objections.add(Kind::NotFresh, Reason::new(ReasonCode::UnknownData, message).with_detail(detail));
}

/// Tags that speak of an earlier use without saying which; and tags that nobody could ask for. What they do say counts as
/// any record does.
pub fn by_witness(
    situation: &Situation<'_>,
    records: &Records,
    witness: &Observed<Option<Witness>>,
    objections: &mut Objections,
) {
    match witness {
        Observed::Seen(Some(witness)) if !witness.not_understood.is_empty() => {
            let message = format!(
                "there is nothing in {}, and tags on the volume speak of an earlier use in words that this version does not \
                 understand: {}",
                situation.selected_in_words(),
                witness.not_understood.join(", ")
            );
            let detail = json!({ "witness": witness });
            objections.add(Kind::NotFresh, Reason::new(ReasonCode::BlankReplacement, message).with_detail(detail));
        }
        Observed::Seen(Some(_) | None) => {}
        // The ledgers say it already.
        Observed::Unknown(_) if records.pin.is_some() => {}
        Observed::Unknown(why) => {
            let what = "what volhold's tags on the volume say of an earlier use";
            objections.add(Kind::NotFresh, unknown(what, why));
        }
    }
}

/// A volume on which it stands that this member has run, and under which name. kops names the volumes `a`, `b`, and
/// the etcds on them `etcd-a`, `etcd-events-a`.
fn remembers<'s>(of: &'s [Sibling], me: &str) -> Option<(&'s Sibling, &'s str)> {
    let mine = |name: &str| name.strip_suffix(me).is_some_and(|rest| rest.is_empty() || rest.ends_with('-'));
    of.iter().find_map(|sibling| {
        let name = sibling.ran.iter().find(|name| mine(name))?;
        Some((sibling, name.as_str()))
    })
}

/// A new cluster's volumes are made together. One that is empty while another member's was there long before stands in for
/// one that held data, also where volhold itself has just made the filesystem on it.
pub fn among_siblings(situation: &Situation<'_>, siblings: &Observed<Siblings>, objections: &mut Objections) {
    let what = "when the other members' volumes were made, which tells a new cluster from a replaced volume,";
    let (created, me, of) = match siblings {
        Observed::Seen(Siblings::NotNamed) => return,
        Observed::Seen(Siblings::Listed { created, me, of }) => (*created, me, of),
        Observed::Unknown(why) => return objections.add(Kind::NotFresh, unknown(what, why)),
    };
    if let Some((sibling, name)) = me.as_deref().and_then(|me| remembers(of, me)) {
        let message = format!(
            "there is nothing in {}, and tags on {} of member {} of the same cluster say that the member `{name}` has run: this \
             volume stands in for the one that held its data",
            situation.selected_in_words(),
            sibling.volume,
            sibling.member
        );
        let detail = json!({ "created": created, "sibling": sibling });
        return objections.add(Kind::NotFresh, Reason::new(ReasonCode::BlankReplacement, message).with_detail(detail));
    }
    let earlier = |at: Option<Time>| at.is_some_and(|at| created.unix().saturating_sub(at.unix()) > TOGETHER);
    let older: Vec<&Sibling> =
        of.iter().filter(|sibling| earlier(sibling.created) || earlier(sibling.attached)).collect();
    if let Some(first) = older.iter().min_by_key(|sibling| (sibling.created.or(sibling.attached), &sibling.volume)) {
        let since = first.created.or(first.attached).map_or(String::new(), |at| format!(" since {at}"));
        let others = match older.len() {
            1 => String::new(),
            several => format!(", and {} more are older than an hour before it", several.saturating_sub(1)),
        };
        let message = format!(
            "there is nothing in {}, and the volume is of {created}, but {} of member {} of the same cluster is there{since}{others}: \
             this one stands in for a volume that held data",
            situation.selected_in_words(),
            first.volume,
            first.member
        );
        let detail = json!({ "created": created, "older": older });
        return objections.add(Kind::NotFresh, Reason::new(ReasonCode::BlankReplacement, message).with_detail(detail));
    }
    if let Some(ageless) = of.iter().find(|sibling| sibling.created.is_none()) {
        let detail = format!("the provider does not say when {} was created", ageless.volume);
        objections.add(Kind::NotFresh, unknown(what, &Why::Unreadable { detail }));
    }
}
