//! What is answered to what. Nothing here waits for anybody.

use super::Landing;
use super::connection::Body;
use super::events::Documented;
use crate::gate::feed::Snapshot;
use crate::model::harmless::{clean, clean_json};
use crate::model::{AgentFacts, Bypass, Gate, GuardName, GuardStatus, StateName, StatusDocument};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;

/// A request, as far as it matters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'q> {
    pub method: &'q Method,
    pub path: &'q str,
    pub query: Option<&'q str>,
    /// May be told more than whether all is well.
    pub permitted: bool,
}

/// What is said.
#[derive(Debug)]
pub(super) enum Answer {
    Text(StatusCode, String),
    Json(StatusCode, String),
    /// The text of a scrape.
    Metrics(String),
    Html {
        policy: &'static str,
        page: String,
    },
    /// The stream of `/v1/events`.
    Events,
    /// Refused for who asks; to be noted.
    Denied,
}

/// The document of an error.
#[derive(Debug, Serialize)]
struct ErrorDocument<'e> {
    status: u16,
    message: &'e str,
}

/// What is asked for only where an answer needs it.
#[derive(Clone, Copy)]
pub(super) struct Beside<'b> {
    pub metrics: &'b dyn Fn(&Snapshot) -> Result<String, String>,
    pub landing: &'b Landing,
    /// Gates that a person has opened by hand, which the agent need not know of.
    pub bypassed: &'b dyn Fn() -> Vec<Bypass>,
}

/// Answers.
pub(super) fn answer(question: Question<'_>, now: &Snapshot, beside: Beside<'_>) -> Answer {
    if question.method != Method::GET && question.method != Method::HEAD {
        return error(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD: nothing can be changed here");
    }
    match (question.path, question.permitted) {
        ("/livez", _) => livez(question.query),
        ("/readyz", permitted) => readyz(now, question.query, permitted),
        ("/" | "/metrics" | "/v1/status" | "/v1/events", false) => Answer::Denied,
        (path, false) if path.starts_with("/v1/guards/") => Answer::Denied,
        ("/metrics", true) => match (beside.metrics)(now) {
            Ok(text) => Answer::Metrics(text),
            Err(why) => error(StatusCode::INTERNAL_SERVER_ERROR, &why),
        },
        ("/", true) => Answer::Html {
            policy: beside.landing.policy,
            page: (beside.landing.page)(&document(now, (beside.bypassed)())),
        },
        ("/v1/status", true) => status(now, (beside.bypassed)()),
        ("/v1/events", true) => Answer::Events,
        (path, _) => match path.strip_prefix("/v1/guards/") {
            Some(name) => guard(now, name),
            None => error(
                StatusCode::NOT_FOUND,
                "there are /, /livez, /readyz, /readyz?verbose, /metrics, /v1/status, /v1/guards/NAME and /v1/events",
            ),
        },
    }
}

/// In the words of an error document.
pub(super) fn error(status: StatusCode, message: &str) -> Answer {
    json(status, "Error", &ErrorDocument { status: status.as_u16(), message })
}

/// To a client for which there is no place.
pub(super) fn too_many() -> Answer {
    error(StatusCode::SERVICE_UNAVAILABLE, "too many connections")
}

fn livez(query: Option<&str>) -> Answer {
    // That this is answered is all there is to it: a guard that waits or hangs is no fault of the agent's.
    Answer::Text(StatusCode::OK, if verbose(query) { "[+]ping ok\nlivez check passed\n" } else { "ok" }.to_owned())
}

/// As kubelet and the API server print it: `ok`, or with `verbose`, or where something is not, a line for each.
fn readyz(now: &Snapshot, query: Option<&str>, permitted: bool) -> Answer {
    let mut names: Vec<&GuardName> = now.status.guards.iter().map(|guard| &guard.name).chain(&now.configured).collect();
    names.sort();
    names.dedup();
    let mut text = String::new();
    let mut ready = true;
    for name in names {
        let guard = now.status.guards.iter().find(|guard| guard.name == *name);
        match obstacle(guard) {
            None => text.push_str(&format!("[+]guard/{name} ok\n")),
            Some(reason) => {
                ready = false;
                let reason = if permitted { clean(&reason) } else { "reason withheld".to_owned() };
                text.push_str(&format!("[-]guard/{name} failed: {reason}\n"));
            }
        }
    }
    if !ready {
        text.push_str("readyz check failed\n");
        return Answer::Text(StatusCode::SERVICE_UNAVAILABLE, text);
    }
    text.push_str("readyz check passed\n");
    Answer::Text(StatusCode::OK, if verbose(query) { text } else { "ok".to_owned() })
}

/// Why etcd may not start; `None`: it may.
fn obstacle(guard: Option<&GuardStatus>) -> Option<String> {
    let Some(guard) = guard else { return Some("not looked at yet".to_owned()) };
    match guard.gate {
        Gate::Open => None,
        Gate::Waiting => Some(format!("waiting, {}", word(guard.state))),
        Gate::Held => Some(match guard.reasons.first() {
            Some(reason) => format!("held, {}: {}", reason.code, reason.message),
            None => "held".to_owned(),
        }),
    }
}

fn word(state: StateName) -> &'static str {
    match state {
        StateName::Discovering => "discovering",
        StateName::Attaching => "attaching",
        StateName::Settling => "settling",
        StateName::Examining => "examining",
        StateName::Formatting => "formatting",
        StateName::Inspecting => "inspecting",
        StateName::Publishing => "publishing",
        StateName::Open => "open",
        StateName::Degraded => "degraded",
        StateName::Held => "held",
        StateName::Observing => "observing",
    }
}

/// `?verbose`, with any value or none, among others.
fn verbose(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|part| part.split('=').next() == Some("verbose"))
}

fn document(now: &Snapshot, bypassed: Vec<Bypass>) -> StatusDocument {
    let agent = AgentFacts::new(Some(&now.status), true);
    let document = StatusDocument::new(agent, Some(now.status.clone()), &now.configured);
    StatusDocument { bypassed, ..document }
}

fn status(now: &Snapshot, bypassed: Vec<Bypass>) -> Answer {
    match serde_json::to_string_pretty(&document(now, bypassed)) {
        Ok(text) => Answer::Json(StatusCode::OK, clean_json(&text)),
        Err(_) => unwritable(),
    }
}

fn guard(now: &Snapshot, name: &str) -> Answer {
    if let Some(guard) = now.status.guards.iter().find(|guard| guard.name.as_str() == name) {
        return json(StatusCode::OK, "GuardStatus", guard);
    }
    if now.configured.iter().any(|known| known.as_str() == name) {
        return error(StatusCode::SERVICE_UNAVAILABLE, "this guard has not been looked at yet");
    }
    error(StatusCode::NOT_FOUND, "no guard is called so")
}

fn json<T: Serialize>(status: StatusCode, kind: &'static str, what: &T) -> Answer {
    match serde_json::to_string_pretty(&Documented::new(kind, what)) {
        Ok(text) => Answer::Json(status, clean_json(&text)),
        Err(_) => unwritable(),
    }
}

fn unwritable() -> Answer {
    let text = r#"{"apiVersion":"volhold/v1","kind":"Error","status":500,"message":"the answer is no JSON"}"#;
    Answer::Json(StatusCode::INTERNAL_SERVER_ERROR, text.to_owned())
}

impl Answer {
    /// `lines`: the body of a stream.
    pub(super) fn into_response(self, lines: impl FnOnce() -> Body) -> Response<Body> {
        let text = "text/plain; charset=utf-8";
        let policy = match &self {
            Answer::Html { policy, .. } => Some(*policy),
            Answer::Text(..) | Answer::Json(..) | Answer::Metrics(_) | Answer::Events | Answer::Denied => None,
        };
        let (status, kind, body) = match self {
            Answer::Text(status, words) => (status, text, Body::whole(words)),
            Answer::Json(status, document) => (status, "application/json", Body::whole(document + "\n")),
            Answer::Metrics(text) => (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", Body::whole(text)),
            Answer::Html { policy: _, page } => (StatusCode::OK, "text/html; charset=utf-8", Body::whole(page)),
            Answer::Events => (StatusCode::OK, "application/x-ndjson", lines()),
            Answer::Denied => {
                let why = "the status is for root and for the group that the configuration names";
                return error(StatusCode::FORBIDDEN, why).into_response(lines);
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let mut set = |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
        set(CONTENT_TYPE, kind);
        set(X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(CACHE_CONTROL, "no-store");
        if let Some(policy) = policy {
            set(CONTENT_SECURITY_POLICY, policy);
            set(REFERRER_POLICY, "no-referrer");
        }
        if status == StatusCode::METHOD_NOT_ALLOWED {
            set(ALLOW, "GET, HEAD");
        }
        response
    }

    /// The whole of a response, for a client to which hyper does not speak.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Answer::Json(status, document) => {
                let length = document.len().saturating_add(1);
                format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\
                     content-length: {length}\r\n\r\n{document}\n"
                )
                .into_bytes()
            }
            Answer::Text(..) | Answer::Metrics(_) | Answer::Html { .. } | Answer::Events | Answer::Denied => Vec::new(),
        }
    }
}
