//! `report NAME`: what is known of a guard, in one document for a ticket: status, decision with its evidence, fingerprints,
//! what was decided and done. No byte of what was read as content goes along, so no key's value does; and volhold itself
//! never knows a credential: it leaves them to the SDK, and keeps none.

use super::exit::Exit;
use super::explain;
use super::history;
use super::output::{Context, Failure, put};
use super::text::clean_json;
use crate::config::device_words;
use crate::model::{Decision, GuardName, GuardStatus, Observed, Time};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Report {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    guard: GuardName,
    written: Time,
    version: &'static str,
    kernel: String,
    /// As the configuration counts.
    configured: Configured,
    status: Option<GuardStatus>,
    decision: Option<Decision>,
    history: Vec<history::Line>,
    left_out: &'static [&'static str],
}

#[derive(Debug, Serialize)]
struct Configured {
    mode: crate::model::Mode,
    device: String,
    fstype: crate::model::Fstype,
    format: String,
    fresh: bool,
    data_dir: Option<String>,
    member: Option<String>,
    peer_url: Option<String>,
}

const LEFT_OUT: &[&str] =
    &["the bytes of blocks that were looked at", "keys and values of etcd", "the environment of the agent"];

pub fn run(context: &Context, name: &GuardName) -> Result<Exit, Failure> {
    let config = context.config()?;
    let guard = explain::known(&config, name)?;
    let status = super::status::read(&config)?;
    let mut decision = explain::decision(&config, name)?;
    let samples = decision.as_mut().map(without_content).unwrap_or_default();
    let report = Report {
        api_version: "volhold/v1",
        kind: "Report",
        guard: name.clone(),
        written: Time::now(),
        version: env!("CARGO_PKG_VERSION"),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        configured: Configured {
            mode: guard.mode,
            device: device_words(&guard.device),
            fstype: guard.fstype,
            format: format!("{:?}", guard.format),
            fresh: guard.fresh,
            data_dir: guard.data_dir.clone(),
            member: guard.member.clone(),
            peer_url: guard.peer_url.clone(),
        },
        status: status.and_then(|status| status.guards.into_iter().find(|guard| guard.name == *name)),
        decision,
        history: history::lines(&config, guard)?,
        left_out: LEFT_OUT,
    };
    let mut text = serde_json::to_string_pretty(&report)
        .map_err(|e| Failure::new(Exit::Error, "the report cannot be written as JSON").because(&e))?;
    // Reasons say in words what stands there.
    for sample in samples {
        let escaped = serde_json::Value::from(sample).to_string();
        // Without the quotes around it, and only those.
        let bare = escaped.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&escaped);
        text = text.replace(bare, "(left out)");
    }
    put(&format!("{}\n", clean_json(&text)))?;
    Ok(Exit::Ok)
}

/// The sample of a block is for the eyes of whoever may read the device anyway: it may be anything that etcd wrote. Returns
/// what was taken out.
fn without_content(decision: &mut Decision) -> Vec<String> {
    let reading = decision.evidence.reading.as_mut().map(|reading| &mut reading.content);
    let format = decision.evidence.format.as_mut().map(|format| &mut format.content);
    let mut taken = Vec::new();
    for content in reading.into_iter().chain(format) {
        if let Observed::Seen(content) = content {
            taken.extend(content.sample.take().map(|sample| sample.hex));
        }
    }
    taken
}
