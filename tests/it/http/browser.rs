//! The page at `/`: as HTTP, and in a real browser where this machine has one.
//!
//! What the HTML is made of is tested in `cli::landing`; here, what a browser makes of it: whether it applies the style that
//! the policy allows and complains of nothing, and whether the page fits a phone, whatever stands in it.

use super::client::{Client, Reply, get, socket};
use super::damaged;
use crate::common::{Guard, Node, Tmp, output};
use std::path::{Path, PathBuf};

/// A node with a held guard whose every name is as long and as hostile as a configuration allows.
fn held(tmp: &Tmp, tables: &str) -> (crate::common::Loop, Node) {
    let device = damaged(tmp, "bad");
    let mut node = Node::new();
    let long = format!("mnt<b onclick=x>&amp;'{}", "x".repeat(180));
    node.configure_with(
        tables,
        &[
            Guard::enforce("main", device.node(), &node.path(&long)),
            Guard { format: "never", ..Guard::enforce(&"long".repeat(15), "LABEL=<img src=x>", &node.path("other")) },
            Guard::observe("seen", node.path("<script>alert(1)</script>"), &node.path("third")),
        ],
    );
    node.start();
    node.await_held("main", "backup-superblock-found");
    node.await_status("seen", "looked for", |guard| guard["would_hold"] == true);
    (device, node)
}

#[test]
fn the_landing_page_is_one_document_with_a_strict_policy() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let (_device, node) = held(&tmp, "");
    let page = get(&node, "/");
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(
        [page.header("x-content-type-options"), page.header("referrer-policy"), page.header("cache-control")],
        ["nosniff", "no-referrer", "no-store"]
    );
    assert!(page.body.starts_with("<!doctype html>") && page.body.ends_with("</body>\n"), "{}", page.body);
    assert!(page.body.contains("<code class=\"type\">volhold explain main</code>"), "{}", page.body);
    assert!(page.body.contains("&lt;b onclick=x&gt;&amp;amp;&#39;"), "{}", page.body);
    for markup in ["<b onclick", "<img", "<script"] {
        assert!(!page.body.contains(markup), "{markup}: {}", page.body);
    }
    let head = Client::to(&socket(&node)).ask("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((head.status, head.body.as_str(), head.header("content-security-policy")), (200, "", policy));
    assert_eq!(get(&node, "/?x=1").status, 200);
    let post = Client::to(&socket(&node)).ask("POST / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((post.status, post.header("allow")), (405, "GET, HEAD"));
    for path in ["//", "/index.html", "/style.css"] {
        let missing = get(&node, path);
        assert_eq!((missing.status, &missing.json()["kind"]), (404, &"Error".into()), "{path}");
        assert_eq!(missing.header("content-security-policy"), "");
    }
}

/// Runs the browser once; `None`: there is none here.
fn browser(tmp: &Tmp, args: &[&str]) -> Option<(String, String)> {
    let found = ["chromium", "chromium-browser", "google-chrome"].iter().find(|name| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
    })?;
    let profile = format!("--user-data-dir={}", tmp.join("profile").display());
    let mut all = vec!["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"];
    all.extend(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"]);
    all.extend(["--enable-logging=stderr", "--virtual-time-budget=2000", &profile]);
    all.extend(args);
    let ended = output(found, &all);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(&ended.stdout), text(&ended.stderr)))
}

/// Where the screenshots go, for whoever wants to look at them.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("VOLHOLD_SCREENSHOTS").map(PathBuf::from)
}

#[test]
fn a_browser_takes_the_page_without_complaint_and_it_fits_a_phone() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number");
    let (_device, _node) = held(&tmp, &format!("[http]\nlisten = \"{free}\"\n"));
    let url = format!("http://{free}/");
    let Some((dom, complaints)) = browser(&tmp, &["--dump-dom", &url]) else {
        eprintln!("not run: there is no chromium on this machine");
        return;
    };
    assert!(dom.contains("backup-superblock-found") && dom.contains("volhold explain main"), "{dom}\n{complaints}");
    let console: Vec<&str> = complaints.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:#?}");

    let page: Reply = Client::to_tcp(free).ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    for width in [320, 390, 1280] {
        let (wide, ground) = measured(&tmp, &page.body, width);
        assert!(wide <= width, "the page is {wide} wide where the window has {width}");
        assert_eq!(ground, "rgb(244, 245, 247)");
    }
    for (dir, (name, size, scheme)) in pictures().iter().flat_map(|dir| {
        let dark = "--blink-settings=preferredColorScheme=0";
        let light = "--blink-settings=preferredColorScheme=1";
        let all = [
            ("phone-light", "500,1600", light),
            ("phone-dark", "500,1600", dark),
            ("desktop-light", "1280,800", light),
            ("desktop-dark", "1280,800", dark),
        ];
        all.map(|picture| (dir, picture))
    }) {
        let file = format!("--screenshot={}", dir.join(format!("{name}.png")).display());
        browser(&tmp, &[&file, &format!("--window-size={size}"), scheme, &url]).expect("the same browser");
    }
}

/// How wide the page becomes in a frame of this width, and its ground. A browser's window has a least width, a frame has none;
/// and only a copy of the page may be asked, since its policy lets nobody frame it and no script run.
fn measured(tmp: &Tmp, page: &str, width: u32) -> (u32, String) {
    let ask = "<script>parent.postMessage([document.documentElement.scrollWidth, \
               getComputedStyle(document.body).backgroundColor].join(';'), '*')</script>";
    let write = |name: &str, text: &str| {
        let path = tmp.join(name);
        std::fs::write(&path, text).expect("a file for the browser");
        path
    };
    write("page.html", &format!("{page}{ask}"));
    let frame = format!(
        "<!doctype html><p id=told>nothing</p><script>onmessage = e => told.textContent = 'told ' + e.data + ' end'</script>\
         <iframe src=page.html width={width} height=800 style='border:0'></iframe>"
    );
    let frame = write("frame.html", &frame);
    let (dom, complaints) = browser(tmp, &["--dump-dom", &url_of(&frame)]).expect("the same browser");
    let told = dom.split("told ").nth(1).and_then(|rest| rest.split(" end").next());
    let (wide, ground) = told.and_then(|told| told.split_once(';')).unwrap_or_else(|| panic!("{dom}\n{complaints}"));
    (wide.parse().expect("a number"), ground.to_owned())
}

fn url_of(path: &Path) -> String {
    format!("file://{}", path.display())
}
