//! `volhold fleet`: the etcd volumes of all masters of an account and region, and which one stands out. Asks EC2 only, from
//! any machine that may read there; needs neither agent nor configuration.

use super::exit::Exit;
use super::inspect::block_on;
use super::output::{Context, Failure, tell};
use super::text::{Screen, Tone, count, moment, since};
use crate::cloud::Client;
use crate::cloud::code::{ApiError, Code};
use crate::cloud::fleet::{Odd, Row, listed};
use crate::model::Time;
use serde::Serialize;
use std::time::Duration;

/// The document of `fleet -o json`.
#[derive(Debug, Serialize)]
struct FleetReport {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    time: Time,
    members: Vec<Row>,
    /// Members that stand out.
    odd: usize,
}

pub fn run(context: &Context, cluster: Option<&str>, region: Option<&str>) -> Result<Exit, Failure> {
    let client = Client::default();
    let pause = async |pause: Duration| {
        tell("volhold: EC2 does not answer, or the account makes too many requests; asks again in a moment", [""; 0]);
        tokio::time::sleep(pause).await;
    };
    let seed = u64::from(std::process::id());
    let fleet = block_on(listed(&client, region, cluster, seed, pause))?.map_err(|error| failure(&error))?;
    let members: Vec<Row> = fleet.rows().collect();
    let odd = members.iter().filter(|row| !row.odd.is_empty()).count();
    let document = FleetReport { api_version: "volhold/v1", kind: "Fleet", time: Time::now(), members, odd };
    context.print(&document, |screen| draw(screen, &document))?;
    Ok(match (document.members.is_empty(), odd) {
        (true, _) => Exit::NoMatch,
        (false, 0) => Exit::Ok,
        (false, _) => Exit::Refused,
    })
}

/// What the volume's own tags say of it, and how old that is.
fn remembers(row: &Row, now: Time) -> Option<String> {
    let seen = row.seen_at.map(|at| since(at, now));
    let progress = row.progress.as_ref();
    let parts = [
        row.cluster_id.map(|id| format!("cluster {id}")),
        row.member_id.map(|id| format!("member {id}")),
        progress.and_then(|progress| progress.keys).map(|keys| format!("{} keys", count(keys))),
        progress.and_then(|progress| progress.index).map(|index| format!("index {}", count(index))),
        seen.map(|seen| format!("seen {seen}")),
    ];
    let said: Vec<String> = parts.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(", "))
}

fn failure(error: &ApiError) -> Failure {
    let exit = match error.code {
        Code::Unauthorized | Code::Credentials | Code::NoCredentials => Exit::NoPermission,
        _other => Exit::Error,
    };
    Failure::new(exit, error.reason("the volumes of the account").message)
}

fn draw(screen: &mut Screen, document: &FleetReport) {
    if document.members.is_empty() {
        screen.para(0, "No volume here has the tags of an etcd member of kops.");
        return;
    }
    let mut last = None;
    for row in &document.members {
        let cluster = (&row.cluster, &row.etcd);
        if last.replace(cluster) != Some(cluster) {
            if row != document.members.first().unwrap_or(row) {
                screen.blank();
            }
            screen.tone(Tone::Head, &format!("{} {}", row.cluster, row.etcd));
        }
        let attached = if row.attached.is_empty() { "-".to_owned() } else { row.attached.join(",") };
        let volume = row.volume.as_ref().map_or("-", |volume| volume.0.as_str());
        let zone = row.zone.as_deref().unwrap_or("-");
        let state = row.state.as_deref().unwrap_or("-");
        let tone = (!row.odd.is_empty()).then_some(Tone::Bad);
        screen.cells(tone, &[(2, ""), (6, &row.member), (22, volume), (12, zone), (10, state), (0, &attached)]);
        if let Some(remembers) = remembers(row, document.time) {
            screen.hanging_words(8, 8, &remembers);
        }
        let why: Vec<&str> = row.odd.iter().copied().map(Odd::words).collect();
        if !why.is_empty() {
            let created = row.created.map_or_else(String::new, |at| format!(" (made {})", moment(at)));
            screen.hanging_words(8, 8, &format!("! {}{created}", why.join("; ")));
        }
    }
    screen.blank();
    let all = document.members.len();
    screen.para(0, &format!("{all} members, {} of which stand out.", document.odd));
}

#[cfg(test)]
mod tests {
    use super::super::text::WIDTH;
    use super::*;
    use crate::model::VolumeId;

    fn row(member: &str, odd: Vec<Odd>) -> Row {
        Row {
            cluster: "production.example.com".to_owned(),
            etcd: "main".to_owned(),
            member: member.to_owned(),
            volume: Some(VolumeId("vol-0123456789abcdef0".to_owned())),
            zone: Some("eu-west-1a".to_owned()),
            state: Some("in-use".to_owned()),
            attached: vec!["i-0123456789abcdef0".to_owned()],
            created: Time::from_unix(1_800_000_000),
            odd,
            volume_id: None,
            attached_to: Vec::new(),
            fs_uuid: Some(crate::model::FsUuid(uuid::Uuid::from_u128(u128::MAX))),
            cluster_id: Some(crate::model::ClusterId(u64::MAX)),
            member_id: Some(crate::model::MemberId(u64::MAX)),
            progress: Some(crate::cloud::fleet::Progress {
                keys: Some(1_234_567),
                revision: Some(i64::MAX),
                index: Some(u64::MAX),
                term: Some(9),
            }),
            seen_at: Time::from_unix(1_700_000_000),
        }
    }

    #[test]
    fn the_table_fits_the_screen_and_says_who_stands_out_and_why() {
        let members = vec![row("a", vec![]), row("b", vec![Odd::Younger, Odd::FromSnapshot, Odd::OtherSize])];
        let document = FleetReport { api_version: "volhold/v1", kind: "Fleet", time: Time::now(), members, odd: 1 };
        let mut screen = Screen::new(false);
        draw(&mut screen, &document);
        let text = screen.finish();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        for words in [
            "cluster ffffffffffffffff",
            "1,234,567 keys",
            "production.example.com main",
            "! over an hour younger",
            "2 members, 1 of which stand out.",
        ] {
            assert!(text.contains(words), "{words} is not in\n{text}");
        }
    }

    #[test]
    fn who_may_not_read_is_told_so_by_the_exit_code() {
        let error = |code| ApiError { code, action: "DescribeVolumes", said: String::new() };
        assert_eq!(failure(&error(Code::Unauthorized)).exit, Exit::NoPermission);
        assert_eq!(failure(&error(Code::NotBuilt)).exit, Exit::Error);
    }
}
