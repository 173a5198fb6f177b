//! `/v1/events`: the state of each guard now, then each change, for as long as the client stays.
//!
//! One JSON object a line (`application/x-ndjson`), each with `type` and `number`. Lines, and not server-sent events: what
//! follows a stream on a node is a shell, jq or a small program, which read lines already, and there is no browser here to
//! reconnect by itself. Nothing is lost by reconnecting: a stream begins with what is so now. A gap in `number` is no loss.
//!
//! With `?follow=false` it ends after the state of each guard.
//!
//! A client that falls behind by more than [`QUEUE`](crate::gate::feed::QUEUE) changes is told so in a last line of the type
//! `lost`, and let go.

use crate::gate::feed::{Change, Listener, Snapshot, What};
use crate::model::Time;
use crate::model::harmless::clean_json;
use hyper::body::Bytes;
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

/// A document with what every document of volhold begins with.
#[derive(Debug, Serialize)]
pub(super) struct Documented<'d, T> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    what: &'d T,
}

impl<'d, T> Documented<'d, T> {
    pub(super) fn new(kind: &'static str, what: &'d T) -> Self {
        Documented { api_version: "volhold/v1", kind, what }
    }
}

/// The last line of a client that was too slow.
#[derive(Debug, Serialize)]
struct Lost {
    r#type: &'static str,
    number: u64,
    time: Time,
    changes: u64,
    message: &'static str,
}

/// The lines for one client. Their sender ends when the receiver is dropped.
pub(super) fn lines(listener: &Listener, follow: bool) -> mpsc::Receiver<Bytes> {
    // One line ahead: the queue is the ring that all share.
    let (send, receive) = mpsc::channel(1);
    tokio::spawn(tell(listener.clone(), send, follow));
    receive
}

async fn tell(listener: Listener, client: mpsc::Sender<Bytes>, follow: bool) {
    let Some((now, mut changes)) = listener.follow() else { return };
    for change in as_changes(&now) {
        if client.send(line(&change)).await.is_err() {
            return;
        }
    }
    if !follow {
        return;
    }
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = client.closed() => return,
        };
        let line = match change {
            Ok(change) if change.number <= now.number => continue,
            Ok(change) => line(&*change),
            Err(RecvError::Lagged(lost)) => {
                let message = "this client reads too slowly; connect again for what is so now";
                let now: Arc<Snapshot> = listener.now();
                let lost = Lost { r#type: "lost", number: now.number, time: Time::now(), changes: lost, message };
                // Whether it hears that or not, it has to go.
                let _heard = client.send(self::line(&lost)).await;
                return;
            }
            Err(RecvError::Closed) => return,
        };
        if client.send(line).await.is_err() {
            return;
        }
    }
}

fn as_changes(now: &Snapshot) -> impl Iterator<Item = Change> {
    let (number, time) = (now.number, now.status.written_at);
    let agent = What::Agent { config: now.status.config.clone(), warnings: now.status.warnings.clone() };
    let guards = now.status.guards.iter().map(|guard| What::Guard { guard: Box::new(guard.clone()) });
    std::iter::once(agent).chain(guards).map(move |what| Change { number, time, what })
}

fn line<T: Serialize>(what: &T) -> Bytes {
    match serde_json::to_string(&Documented::new("Event", what)) {
        Ok(text) => Bytes::from(clean_json(&text) + "\n"),
        // Nothing in these types can fail to encode; a line that is missing shows as nothing.
        Err(error) => {
            tracing::error!(event = "http.event", %error, "an event is no JSON");
            Bytes::new()
        }
    }
}
