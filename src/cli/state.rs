//! `volhold state show FILE`: etcd-manager's `state`, readable.

use super::exit::Exit;
use super::explain::why_line;
use super::inspect::block_on;
use super::output::{Context, Failure, io_failure};
use crate::model::{EtcdManagerState, Observed};
use crate::worker::{self, Deadline};
use serde::Serialize;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// The document of `state show FILE -o json`.
#[derive(Debug, Serialize)]
struct Document {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    path: String,
    #[serde(flatten)]
    state: EtcdManagerState,
}

pub fn show(context: &Context, path: &Path) -> Result<Exit, Failure> {
    let file = File::open(path).map_err(|e| io_failure(format!("cannot open {}", path.display()), &e))?;
    let state = match block_on(worker::state(file.into(), Deadline::quiet(Duration::from_secs(30))))? {
        Observed::Seen(state) => state,
        Observed::Unknown(why) => {
            return Err(Failure::new(Exit::Refused, format!("{}: {}", path.display(), why_line(&why))));
        }
    };
    let path = path.display().to_string();
    let document = Document { api_version: "volhold/v1", kind: "EtcdManagerState", path, state };
    context.print(&document, |screen| {
        let state = &document.state;
        if state.empty {
            screen.para(0, "No bytes, which is valid: etcd-manager was told to stop the etcd of this node.");
            return;
        }
        let none = || "none".to_owned();
        screen.hanging("cluster token", 16, &state.cluster_token.clone().unwrap_or_else(none));
        screen.hanging("etcd version", 16, &state.etcd_version.clone().unwrap_or_else(none));
        screen.hanging("new cluster", 16, if state.new_cluster { "yes" } else { "no" });
        screen.hanging("quarantined", 16, if state.quarantined { "yes" } else { "no" });
        for node in &state.nodes {
            let urls = format!("peers {}; clients {}", node.peer_urls.join(" "), node.client_urls.join(" "));
            screen.hanging("node", 16, &format!("{}: {urls}", node.name));
        }
    })?;
    Ok(Exit::Ok)
}
