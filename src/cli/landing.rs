//! The page at `/` of the agent's HTTP server: what `status` shows and, for what is held, what `explain` says of the reason.
//!
//! For whoever comes from an alert with a phone. One document without scripts, pictures or anything else to fetch, whose
//! policy forbids a browser all of that; no button, since nothing can be changed there. It knows what the agent tells and no
//! more: the evidence is at the terminal, in `volhold explain`.

mod html;

use super::manual::{Names, Severity, page};
use super::status::{data_line, gate_word, places, progress_line, reason_line, state_word, volume_line};
use super::text::{moment, since};
use crate::gate::http::Landing;
use crate::model::{Gate, GuardStatus, Mode, Reason, StatusDocument, Time};
use html::Html;
use std::sync::Arc;

/// What a browser may do with it: apply the one style that is in it, by its hash, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'sha256-T0T7WC4v5zmzS8/2m2Sy7tb0k5uR/wTlKpq25Tu4u5I='; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Everything before the title, which is the first that is not the same everywhere.
const HEAD: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
    "<meta name=\"color-scheme\" content=\"light dark\">\n<style>",
    include_str!("landing/style.css"),
    "</style>\n"
);

/// For the server.
pub fn landing() -> Landing {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Landing { policy: POLICY, page: Arc::new(move |document| document_of(document, &host, Time::now())) }
}

fn document_of(document: &StatusDocument, host: &str, now: Time) -> String {
    let mut html = Html::new(HEAD);
    let summary = summary(document);
    html.put("title", "", &format!("{summary} · {host} · volhold"));
    // The head ends by itself where the body begins.
    html.open("body", "");
    html.open("header", "");
    html.put("h1", "", &format!("volhold on {host}"));
    html.put("p", "", &format!("{summary}."));
    let version = document.agent.version.as_deref().unwrap_or("?");
    html.put("p", "dim", &format!("As of {}, by the agent {version}. Load it again for what is so then.", moment(now)));
    html.close();
    html.open("main", "");
    agent(&mut html, document);
    // What somebody has to act on comes first.
    for worst in [true, false] {
        for guard in document.guards.iter().filter(|guard| is_bad(guard) == worst) {
            one(&mut html, guard, now);
        }
    }
    for name in &document.unreported {
        html.open("section", "warn");
        html.open("h2", "");
        html.put("span", "", name.as_str());
        html.put("span", "gate", "unknown");
        html.close();
        html.put("p", "", "The agent has not told anything about it yet.");
        html.close();
    }
    if document.guards.is_empty() && document.unreported.is_empty() {
        html.put("section", "", "No guard is configured, so volhold guards nothing here.");
    }
    html.close();
    html.open("footer", "");
    html.put("p", "", "This page only tells. Nothing can be changed here, and no gate depends on it.");
    html.open("p", "");
    html.link("v1/status", "status as JSON");
    html.link("readyz?verbose", "readiness");
    html.link("metrics", "metrics");
    html.finish()
}

fn is_bad(guard: &GuardStatus) -> bool {
    guard.gate == Gate::Held || guard.would_hold
}

/// `1 held, 2 open`.
fn summary(document: &StatusDocument) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    let order = ["HELD", "would hold", "open, doubted", "waiting", "unknown", "open"];
    let words = document.guards.iter().map(gate_word).chain(document.unreported.iter().map(|_| "unknown"));
    for word in words {
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => counts.push((word, 1)),
        }
    }
    counts.sort_by_key(|(word, _)| order.iter().position(|known| known == word));
    let bypassed = document.bypassed.len();
    let bypassed = (bypassed > 0).then(|| format!("{bypassed} BYPASSED"));
    let parts: Vec<String> =
        bypassed.into_iter().chain(counts.iter().map(|(word, count)| format!("{count} {word}"))).collect();
    if parts.is_empty() { "no guard".to_owned() } else { parts.join(", ") }
}

/// What is wrong beside the guards.
fn agent(html: &mut Html, document: &StatusDocument) {
    for bypass in &document.bypassed {
        html.open("section", "bad");
        html.open("h2", "");
        html.put("span", "", bypass.name.as_str());
        html.put("span", "gate", "BYPASSED until the next boot");
        html.close();
        html.put("p", "", &bypass.note);
        html.put("p", "", "volhold has NOT checked its volume and data. Its gate counts as open for etcd.");
        html.close();
    }
    for (title, class, list) in [
        ("The configuration cannot be used as it stands", "bad", &document.config),
        ("What the agent itself cannot do", "warn", &document.warnings),
    ] {
        if !list.is_empty() {
            html.open("section", class);
            html.put("h2", "", title);
            items(html, list.iter().map(String::as_str));
            html.close();
        }
    }
}

fn one(html: &mut Html, guard: &GuardStatus, now: Time) {
    let tone = match (is_bad(guard), guard.gate) {
        (true, Gate::Open | Gate::Waiting | Gate::Held) | (false, Gate::Held) => "bad",
        (false, Gate::Open) => "good",
        (false, Gate::Waiting) => "warn",
    };
    html.open("section", tone);
    html.open("h2", "");
    html.put("span", "", guard.name.as_str());
    html.put("span", "gate", gate_word(guard));
    let state = state_word(guard.state);
    let state = if gate_word(guard).eq_ignore_ascii_case(state) { String::new() } else { format!("{state} ") };
    html.put("span", "since", &format!("{state}since {}", since(guard.since, now)));
    html.close();
    html.open("dl", "");
    let mut fact = |name: &str, text: &str| {
        html.put("dt", "", name);
        html.put("dd", "", text);
    };
    fact("volume", &volume_line(guard));
    if let Some(waits) = &guard.waits {
        fact("waits", &waits.message);
    }
    if let Some(progress) = &guard.progress {
        fact("now", &progress_line(progress));
    }
    if let Some(dir) = &guard.data_dir {
        fact("data", &data_line(dir));
    }
    for reason in &guard.reasons {
        fact("reason", &reason_line(reason));
    }
    for warning in &guard.warnings {
        fact("warning", &reason_line(warning));
    }
    for trouble in guard.witness.iter().filter_map(|witness| witness.trouble.as_ref()) {
        fact("tags", &reason_line(trouble));
    }
    if guard.mode == Mode::Observe {
        fact("mode", "observe: nothing is claimed, mounted or held");
    }
    html.close();
    if let Some((first, others)) = guard.reasons.split_first() {
        explained(html, guard, first, others);
    }
    html.close();
}

/// What the manual says of the first reason, and where to read on.
fn explained(html: &mut Html, guard: &GuardStatus, first: &Reason, others: &[Reason]) {
    let names = names(guard);
    let page = page(first.code);
    html.put("h3", "", "What it means");
    html.put("p", "", &names.fill(page.found));
    html.put("p", "", &names.fill(page.means));
    html.put("h3", "", "Type first, it changes nothing");
    html.put("code", "type", &format!("volhold explain {}", guard.name));
    html.put("h3", "", "Then choose, safest first");
    html.open("ol", "");
    for choice in page.choices.iter().filter(|choice| names.fits(choice.command)) {
        html.open("li", "");
        html.put("code", "type", &names.fill(choice.command));
        html.open("p", "");
        let (class, word) = if choice.safe { ("safe", "Safe.") } else { ("unsafe", "NOT safe.") };
        html.put("span", class, word);
        html.text(&names.fill(choice.effect));
        html.close();
        html.close();
    }
    html.close();
    html.put("p", "dim", "Not offered: formatting. To discard a volume, create a new one and configure that.");
    html.open("details", "");
    html.put("summary", "", "What to look at before choosing");
    items(html, page.check.iter().filter(|check| names.fits(check)).map(|check| names.fill(check)));
    if page.severity > Severity::Information {
        html.put("h3", "", "What would have happened without the guard");
        html.put("p", "", &names.fill(page.without));
    }
    html.close();
    if !others.is_empty() {
        html.open("details", "");
        html.put("summary", "", "The other reasons");
        for other in others {
            html.put("p", "", &format!("{}.", super::manual::page(other.code).cause));
            html.put("code", "type", &format!("volhold explain --reason {}", other.code));
        }
        html.close();
    }
}

fn items<T: AsRef<str>>(html: &mut Html, list: impl Iterator<Item = T>) {
    html.open("ul", "");
    for text in list {
        html.put("li", "", text.as_ref());
    }
    html.close();
}

/// As far as a status tells them; what it does not stays a word in capitals.
fn names(guard: &GuardStatus) -> Names {
    let print = guard.data_dir.as_ref().and_then(|dir| dir.fingerprint.as_ref());
    Names {
        guard: Some(guard.name.to_string()),
        device: guard.device.as_ref().map(|device| device.node.clone()),
        volume: guard.volume.as_ref().map(|volume| volume.0.clone()),
        publish: Some(places(guard)),
        dir: None,
        member: print.and_then(|print| print.member_id).map(|id| id.to_string()),
    }
}

#[cfg(test)]
mod tests;
