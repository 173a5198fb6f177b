//! What is to be published must be there, and must hold the data dir: an etcd whose data dir lies outside of what is shown
//! would start on the sealed mountpoint, or on nothing.

use super::situation::Situation;
use super::words::unknown;
use super::{Kind, Objections};
use crate::model::{Observed, Reason, ReasonCode, Records, SourceKind, StartPolicy};

/// `makes`: this start may make directories that are missing, because nothing says that the volume held any.
pub fn rules(
    situation: &Situation<'_>,
    records: &Records,
    policy: &StartPolicy,
    makes: bool,
    objections: &mut Objections,
) {
    if policy.publish.is_empty() {
        return;
    }
    let data_dir = situation.data_dir(policy);
    let holds = |from: &str| std::path::Path::new(&data_dir).starts_with(from);
    if !policy.publish.iter().any(|from| holds(from)) {
        let message = format!(
            "the data dir `{data_dir}` lies in no directory that is published ({}): etcd would not find it",
            policy.publish.join(", ")
        );
        objections.add(Kind::Configured, Reason::new(ReasonCode::NotPublishable, message));
    }
    for from in &policy.publish {
        let seen = situation.reading.publish.iter().find(|source| source.from == *from);
        let not_looked = Observed::not_run("it was not looked at");
        let what = format!("`{from}`, a directory of the volume that is to be published,");
        match seen.map_or(&not_looked, |source| &source.kind) {
            Observed::Seen(SourceKind::Directory) => {}
            Observed::Seen(SourceKind::Missing) if makes => {}
            Observed::Seen(SourceKind::Missing) => {
                // Where the data dir lies in it, its absence is told already.
                if objections.has(Kind::Vanished) && holds(from) {
                    continue;
                }
                match records.held_data_at {
                    Some(at) => {
                        let message = format!(
                            "{what} is not there, and the record says that this volume held data, noted at {at}"
                        );
                        objections.add(Kind::Vanished, Reason::new(ReasonCode::DataVanished, message));
                    }
                    None => {
                        let message = format!("{what} is not there, and the volume is not new");
                        objections.add(Kind::Configured, Reason::new(ReasonCode::NotPublishable, message));
                    }
                }
            }
            Observed::Seen(SourceKind::Link) => {
                let message =
                    format!("{what} is a symbolic link, or goes over one: links on a volume are not followed");
                objections.add(Kind::Configured, Reason::new(ReasonCode::NotPublishable, message));
            }
            Observed::Seen(SourceKind::NotADirectory) => {
                let message = format!("{what} is not a directory, or lies below something that is none");
                objections.add(Kind::Configured, Reason::new(ReasonCode::NotPublishable, message));
            }
            Observed::Unknown(why) => objections.add(Kind::Unread, unknown(what.trim_end_matches(','), why)),
        }
    }
}
