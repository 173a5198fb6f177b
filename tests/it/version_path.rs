//! Which etcd may open which dir: the rules over real data dirs, against what real etcds of twelve versions did when they
//! were started on a copy (`starts.json`), and what is to run, asked of programs and manifests.

use crate::common::{Guard, Loop, Node, Tmp, disk, fixture, start};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use volhold::decide::start::may_start;
use volhold::etcd::{VolumeHints, examine_volume};
use volhold::model::{
    EtcdToRun, EtcdVersion, NamedBy, Observed, Reason, ReasonCode, Records, StartEvidence, StartVerdict, VolumeReading,
};

/// The verdict on a volume that nobody knows anything of, were this etcd to open it. Empty: it starts.
fn held(volume: &VolumeReading, version: EtcdVersion) -> Vec<Reason> {
    let etcd = EtcdToRun { version: Some(version), by: NamedBy::Config, at: None, flags: None };
    let evidence = start::evidence(volume.clone(), Records::default());
    match may_start(&StartEvidence { to_run: Observed::Seen(Some(etcd)), ..evidence }, &start::policy()) {
        StartVerdict::Start { .. } => Vec::new(),
        StartVerdict::Hold { reasons } => reasons,
    }
}

fn about_versions(reasons: &[Reason]) -> Vec<ReasonCode> {
    use ReasonCode::{V2DataOnly, VersionDowngrade, VersionSkip};
    let codes = reasons.iter().map(|reason| reason.code);
    codes.filter(|code| [V2DataOnly, VersionDowngrade, VersionSkip].contains(code)).collect()
}

#[derive(serde::Deserialize)]
struct Start {
    case: String,
    version: String,
    outcome: String,
    message: Option<String>,
}

/// Messages with which an etcd ends for its version, or for what an older one left.
const REFUSALS: &[&str] = &[
    "cannot be downgraded",
    "invalid downgrade",
    "is not supported",
    "detected disallowed",
    "failed to recover v3 backend from snapshot",
];

/// How many lines of releases lie between, 3.0 following 2.3.
fn steps(from: EtcdVersion, to: EtcdVersion) -> i64 {
    let place = |version: EtcdVersion| match version.major {
        2 => i64::try_from(version.minor).expect("a minor"),
        _ => i64::try_from(version.minor).expect("a minor") + 4,
    };
    place(to) - place(from)
}

#[test]
fn what_an_etcd_refused_is_held_and_what_is_held_was_refused_or_skips_a_version() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/etcd/starts.json");
    let starts: Vec<Start> = serde_json::from_reader(File::open(path).expect("starts.json")).expect("as declared here");
    let mut by_case: BTreeMap<&str, Vec<&Start>> = BTreeMap::new();
    for start in starts.iter().filter(|start| start.case.starts_with('v') && !start.case.contains("sigkill")) {
        by_case.entry(&start.case).or_default().push(start);
    }
    let (mut wrong, mut refused, mut skipped, mut started) = (Vec::new(), 0, 0, 0);
    for (case, starts) in by_case {
        let tmp = Tmp::new();
        let root = tmp.join(case);
        fixture::etcd_tree(case, &root);
        let dir = File::open(&root).expect("the folder can be opened");
        let volume = examine_volume(dir.as_fd(), &VolumeHints::default());
        let populated = volume.data_dirs.iter().any(|dir| dir.populated);
        let own: EtcdVersion = case[1..].split('-').next().expect("a version").parse().expect("a version");
        for start in starts {
            let version: EtcdVersion = start.version.parse().expect("a version");
            let message = start.message.as_deref().unwrap_or_default();
            let codes = about_versions(&held(&volume, version));
            let refusal = start.outcome == "exited" && REFUSALS.iter().any(|text| message.contains(text));
            if refusal && populated {
                refused += 1;
                if codes.is_empty() {
                    wrong.push(format!("{case} with {version} starts; it ends with: {message}"));
                }
            } else if start.outcome == "started" {
                let skips = steps(own, version) > 1;
                match (skips, codes.is_empty()) {
                    (true, false) => skipped += 1,
                    (_, true) => started += 1,
                    (false, false) => wrong.push(format!("{case} with {version} is held ({codes:?}); it starts")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused >= 20 && started >= 40 && skipped >= 10, "{refused} {started} {skipped}");
}

/// A folder of a fixture as a device.
fn device_of(tmp: &Tmp, case: &str) -> Loop {
    let tree = tmp.join(&format!("{case}.tree"));
    fixture::etcd_tree(case, &tree);
    let image = disk::sparse(&tmp.join(&format!("{case}.img")), 256 << 20);
    disk::mkfs_ext4(&image, Some(&tree));
    Loop::new(&image)
}

/// What `plan` says of the guard "main", configured with this besides the device.
fn planned(device: &Loop, more: &str) -> serde_json::Value {
    let node = Node::new();
    let mut guard = Guard::enforce("main", device.node(), &node.path("mnt"));
    guard.more = more.to_owned();
    node.configure(&[guard]);
    let plan = node.volhold(&["plan", "-o", "json"]).json();
    plan["guards"][0].clone()
}

fn codes(plan: &serde_json::Value, of: &str) -> Vec<String> {
    let reasons = plan[of].as_array().map(Vec::as_slice).unwrap_or_default();
    reasons.iter().filter_map(|reason| Some(reason["code"].as_str()?.to_owned())).collect()
}

#[test]
fn the_program_is_asked_the_manifest_is_read_and_what_does_not_answer_holds_nothing() {
    let tmp = Tmp::new();
    let device = device_of(&tmp, "v3.1.12-basic");
    let file = |name: &str, text: &str, mode: u32| {
        let path = tmp.join(name);
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("its mode");
        format!("etcd = {:?}\n", path.display().to_string())
    };
    // Debian's etcd, 3.4, on data of 3.1.
    let plan = planned(&device, "etcd = \"/usr/bin/etcd\"\n");
    assert_eq!(codes(&plan, "reasons"), ["version-skip"], "{plan:#}");
    let message = plan["reasons"][0]["message"].as_str().expect("a message");
    for words in ["etcd 3.1,", "/usr/bin/etcd --version", "3.1, then 3.2, then 3.3, then 3.4"] {
        assert!(message.contains(words), "{message}");
    }
    let pod = |image: &str| {
        format!("kind: Pod\nspec:\n  containers:\n  - name: etcd\n    image: {image}\n    command: [etcd, --name=a]\n")
    };
    let next = file("next.yaml", &pod("registry.k8s.io/etcd:3.2.26-0"), 0o600);
    assert_eq!(planned(&device, &next)["verdict"], "would-open");
    let older = file("older.yaml", &pod("quay.io/coreos/etcd:v3.0.17"), 0o600);
    assert_eq!(codes(&planned(&device, &older), "reasons"), ["version-downgrade"]);
    let latest = planned(&device, &file("latest.yaml", &pod("etcd:latest"), 0o600));
    assert_eq!((&latest["verdict"], codes(&latest, "warnings")), (&"would-open".into(), vec![]), "{latest:#}");
    assert_eq!(codes(&planned(&device, "etcd = \"3.3\"\n"), "reasons"), ["version-skip"]);

    // Whatever a program does instead of answering is told, and starts.
    let hangs = file("hangs", "#!/bin/sh\nexec sleep 600\n", 0o755);
    let writes = tmp.join("written");
    let writer = format!("#!/bin/sh\necho x > {}\necho 'etcd Version: 3.2.26'\n", writes.display());
    let broken = [
        hangs.clone(),
        file("lies", "#!/bin/sh\necho etcdctl version: 3.4.23\n", 0o755),
        file("fails", "#!/bin/sh\necho 'etcd Version: 3.5.1'\nexit 3\n", 0o755),
        file("floods", "#!/bin/sh\nexec yes etcd\n", 0o755),
        file("no-program", "", 0o644),
        file("broken.yaml", "kind: [Pod\n", 0o644),
        "etcd = \"/nowhere/etcd\"\n".to_owned(),
    ];
    for more in broken {
        let plan = planned(&device, &more);
        assert_eq!(
            (&plan["verdict"], codes(&plan, "warnings")),
            (&"would-open".into(), vec!["unreadable".into()]),
            "{more}: {plan:#}"
        );
    }
    // What it does has no effect, where the kernel has Landlock; and no file ever gets a byte.
    let plan = planned(&device, &file("writes", &writer, 0o755));
    assert_eq!(plan["verdict"], "would-open", "{plan:#}");
    assert!(std::fs::metadata(&writes).map_or(true, |written| written.len() == 0), "it wrote");
}

#[test]
fn an_agent_holds_what_the_etcd_cannot_open_and_opens_once_the_right_one_is_named_or_a_person_says_so() {
    let tmp = Tmp::new();
    let device = device_of(&tmp, "v3.2.26-basic");
    let mut node = Node::new();
    let guard = |node: &Node, version: &str| {
        let mut guard = Guard::enforce("main", device.node(), &node.path("mnt"));
        guard.more = format!("etcd = \"{version}\"\n");
        guard
    };
    node.configure(&[guard(&node, "3.1.12")]);
    node.start();
    let status = node.await_held("main", "version-downgrade");
    assert!(status["reasons"][0]["message"].as_str().is_some_and(|text| text.contains("3.1.12")), "{status:#}");
    let explained = node.volhold(&["explain", "main"]).stdout;
    assert!(explained.contains("to run") && explained.contains("etcd 3.1.12 (says the configuration)"), "{explained}");
    node.configure(&[guard(&node, "3.4.23")]);
    node.reload();
    assert_eq!(node.volhold(&["retry", "main"]).code, Some(0));
    node.await_status("main", "held for the versions between", |status| codes(status, "reasons") == ["version-skip"]);
    // The next one: read again, and open.
    node.configure(&[guard(&node, "3.3.25")]);
    node.reload();
    assert_eq!(node.volhold(&["retry", "main"]).code, Some(0));
    node.await_status("main", "an open gate", |status| status["gate"] == "open");
    // An open gate stays what it is, whatever is named later; the next boot asks again.
    node.configure(&[guard(&node, "3.4.23")]);
    assert_eq!(node.stop_agent(), Some(0));
    node.reboot();
    node.start();
    node.await_held("main", "version-skip");
    let volume = node.guard_status("main").expect("a status")["volume"].as_str().expect("an id").to_owned();
    let answer = node.volhold(&["adopt", "main", "--confirm", &volume]);
    assert_eq!(answer.code, Some(0), "{answer:#?}");
    node.await_status("main", "an open gate", |status| status["gate"] == "open");
}
