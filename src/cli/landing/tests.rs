use super::*;
use crate::model::{AgentFacts, DataDirReport, GuardName, ReasonCode, Status, VolumeId};
use sha2::{Digest, Sha256};

/// What a disk, a tag or a configuration may say.
const HOSTILE: &str = "\"></p><script>alert(1)</script><img src=x onerror='alert(2)'>&amp;\u{202e}\0\x1b[2J";

fn guard(name: &str, gate: Gate, codes: &[ReasonCode], words: &str) -> GuardStatus {
    let document = serde_json::json!({
        "name": name, "mode": "enforce", "gate": gate, "would_hold": false,
        "state": match gate { Gate::Open => "open", Gate::Held => "held", Gate::Waiting => "examining" },
        "volume": null, "device": null, "fs_uuid": null, "publish": words, "data_dir": null,
        "reasons": [], "since": "2026-11-30T03:12:41Z",
    });
    let mut guard: GuardStatus = serde_json::from_value(document).unwrap();
    guard.reasons = codes.iter().map(|code| Reason::new(*code, words.to_owned())).collect();
    guard.warnings = vec![Reason::new(ReasonCode::AlarmSet, words.to_owned())];
    guard.volume = Some(VolumeId(words.to_owned()));
    guard
}

fn document(guards: Vec<GuardStatus>, words: &str) -> StatusDocument {
    let status = Status {
        api_version: words.into(),
        kind: words.into(),
        version: words.into(),
        written_at: Time::now(),
        pid: 1,
        guards,
        config: vec![words.into()],
        warnings: vec![words.into()],
    };
    let late: GuardName = "late".parse().unwrap();
    let agent = AgentFacts::new(Some(&status), true);
    let document = StatusDocument::new(agent, Some(status), std::slice::from_ref(&late));
    let bypassed = vec![crate::model::Bypass { name: late, note: words.into() }];
    StatusDocument { bypassed, ..document }
}

fn shown(document: &StatusDocument, host: &str) -> String {
    document_of(document, host, Time::now())
}

/// Every element that is opened, by its name; and that all of them are closed in order is asserted.
fn elements(html: &str) -> Vec<String> {
    const ALONE: &[&str] = &["meta"];
    let body = html.strip_prefix("<!doctype html>").expect("a document");
    let (mut open, mut all) = (Vec::new(), Vec::new());
    for piece in body.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').expect("a tag ends");
        let name = tag.split(' ').next().unwrap();
        match name.strip_prefix('/') {
            Some("html" | "head") => {}
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name), "{html}"),
            None => {
                all.push(name.to_owned());
                if !ALONE.contains(&name) && !["html", "head"].contains(&name) {
                    open.push(name.to_owned());
                }
            }
        }
    }
    assert!(open.is_empty(), "{open:?} stay open");
    all
}

#[test]
fn nothing_that_comes_from_a_disk_a_tag_or_a_configuration_is_markup() {
    let mut hostile = guard("main", Gate::Held, ReasonCode::ALL, HOSTILE);
    let dir = serde_json::json!({
        "path": HOSTILE, "layout": "v3", "etcd": "3", "role": "selected", "populated": true, "fingerprint": null, "defects": []
    });
    hostile.data_dir = serde_json::from_value::<DataDirReport>(dir).ok();
    let html = shown(&document(vec![hostile], HOSTILE), HOSTILE);
    let tame = shown(&document(vec![guard("main", Gate::Held, ReasonCode::ALL, "x")], "x"), "x");
    let mut known = elements(&tame);
    known.sort();
    known.dedup();
    assert!(elements(&html).iter().all(|element| known.contains(element)), "{:?}", elements(&html));
    for word in ["<script", "<img", "\u{202e}", "\0", "\x1b"] {
        assert!(!html.contains(word), "{word:?}");
    }
    assert!(html.matches("&lt;script&gt;alert(1)&lt;/script&gt;").count() > 8, "it is shown as what it is");
    // No attribute but those that are written here.
    for tag in html.split('<').skip(1).filter_map(|piece| piece.split_once('>')).map(|(tag, _)| tag) {
        for attribute in tag.split(' ').skip(1).filter_map(|word| word.split_once('=')).map(|(name, _)| name) {
            let written = ["class", "href", "lang", "charset", "name", "content", "initial-scale"];
            assert!(written.contains(&attribute.trim_start_matches("width")), "{tag}");
        }
    }
}

#[test]
fn each_hold_has_its_explanation_and_what_to_type() {
    for code in ReasonCode::ALL {
        let html = shown(&document(vec![guard("main", Gate::Held, &[*code], "a sentence")], "x"), "node-1");
        let text = |words: &str| {
            let mut html = Html::new("");
            html.text(&names(&guard("main", Gate::Held, &[], "a sentence")).fill(words));
            html.finish()
        };
        let page = page(*code);
        let choices = page.choices.iter().filter(|c| !c.command.starts_with("aws "));
        for words in [page.found, page.means].into_iter().chain(choices.flat_map(|c| [c.command, c.effect])) {
            assert!(html.contains(&text(words)), "{code}: {words}");
        }
        assert!(html.contains("<code class=\"type\">volhold explain main</code>"), "{code}");
        assert!(html.split("<code class=\"type\">").skip(1).all(|command| !command.starts_with("mkfs")), "{code}");
    }
    let many = [ReasonCode::DataVanished, ReasonCode::InUse];
    let html = shown(&document(vec![guard("main", Gate::Held, &many, "a sentence")], "x"), "node-1");
    assert!(html.contains("<code class=\"type\">volhold explain --reason in-use</code>"));
}

#[test]
fn what_somebody_has_to_act_on_comes_first_and_stands_in_the_title() {
    let guards = vec![
        guard("calm", Gate::Open, &[], "x"),
        guard("slow", Gate::Waiting, &[], "x"),
        guard("sick", Gate::Held, &[ReasonCode::InUse], "x"),
    ];
    let html = shown(&document(guards, "x"), "node-1");
    let title = "<title>1 BYPASSED, 1 HELD, 1 waiting, 1 unknown, 1 open · node-1 · volhold</title>";
    assert!(html.contains(title), "{html}");
    let place = |name: &str| html.find(&format!("<span>{name}</span>")).unwrap();
    assert!(place("sick") < place("calm") && place("calm") < place("slow"));
    assert!(!html.contains("What it means</h3>\n<p></p>"));
    assert!(html.matches("What it means").count() == 1, "what is open needs no explanation");
    let none = StatusDocument { bypassed: vec![], ..document(vec![], "x") };
    let nobody = StatusDocument { unreported: vec![], ..none };
    assert!(
        shown(&nobody, "n").contains("volhold guards nothing here") && shown(&nobody, "n").contains("no guard · n")
    );
}

#[test]
fn nothing_is_fetched_and_the_policy_allows_the_style_that_is_there_and_nothing_else() {
    let html = shown(&document(vec![guard("main", Gate::Held, ReasonCode::ALL, "x")], "x"), "n");
    for word in ["http:", "https:", "//", "src=", "url(", "@import", "<script", "<form", "<iframe", "style="] {
        assert!(!html.contains(word), "{word}");
    }
    let links: Vec<&str> = html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(links, ["v1/status", "readyz?verbose", "metrics"]);
    let (_, rest) = html.split_once("<style>").unwrap();
    let (style, _) = rest.split_once("</style>").unwrap();
    let hash = base64(&Sha256::digest(style.as_bytes()));
    let wanted = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    assert_eq!(landing().policy, wanted, "the style has changed, and with it its hash");
    assert!(style.contains("prefers-color-scheme:dark") && style.contains("max-width:34rem"));
}

/// RFC 4648, as a policy wants it.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let at = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let letter = char::from(LETTERS[(bits >> (18 - 6 * i) & 63) as usize]);
            out.push(if i <= three.len() { letter } else { '=' });
        }
    }
    out
}
