//! `volhold fleet`: the etcd volumes of all masters of an account and region, and which one stands out. Asks EC2 only, from
//! any machine that may read there; needs neither agent nor configuration.

use super::exit::Exit;
use super::inspect::block_on;
use super::output::{Context, Failure, tell};
use super::text::{Screen, Tone, moment};
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
        for words in ["production.example.com main", "! over an hour younger", "2 members, 1 of which stand out."] {
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
