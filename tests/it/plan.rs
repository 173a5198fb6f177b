//! `volhold plan` says what is then done: its steps and verdict against the decision log of a real agent, over every volume of
//! the corpus; and it changes nothing.

use crate::common::{Guard, Loop, Mounted, Node, Tmp, disk, fixture, run};
use disk::MIB;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use volhold::model::Reason;

/// Guards of one agent. More at once take each other's time limits.
const BATCH: usize = 16;

/// One volume of the corpus, on its device.
struct Volume {
    name: String,
    image: PathBuf,
    device: Loop,
}

/// Every name of a kind of fixture.
fn corpus(kind: &str, suffix: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind);
    let entries = std::fs::read_dir(folder).expect("the fixtures");
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.expect("an entry").file_name().to_str()?.strip_suffix(suffix).map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// Recorded kinds of all steps, in order: what `history` would list.
fn recorded(foreseen: &Value) -> Vec<String> {
    let steps = foreseen["steps"].as_array().expect("steps");
    let words = steps.iter().flat_map(|step| step["recorded"].as_array().expect("a list"));
    words.map(|word| word.as_str().expect("a word").to_owned()).collect()
}

/// Code and message of each reason, as everybody may read them: a plan is made by root and shows bytes of the device, which the status of the agent does not.
fn told(reasons: &Value) -> Vec<(String, String)> {
    let list = reasons.as_array().map(Vec::as_slice).unwrap_or_default();
    let read = |reason: &Value| serde_json::from_value::<Reason>(reason.clone()).expect("a reason").for_everybody();
    list.iter().map(read).map(|reason| (reason.code.to_string(), reason.message)).collect()
}

fn guard_of<'a>(plan: &'a Value, name: &str) -> &'a Value {
    let guards = plan["guards"].as_array().expect("guards");
    guards.iter().find(|guard| guard["name"] == name).unwrap_or_else(|| panic!("no plan for {name}"))
}

/// Entries of `history` about one guard, from the given one on.
fn done(node: &Node, guard: &str, from: usize) -> Vec<Value> {
    let history = node.volhold(&["history", guard, "-o", "json"]).json();
    history["entries"].as_array().expect("entries").iter().skip(from).cloned().collect()
}

/// Everything below the node's state and run folders.
fn kept(node: &Node) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in std::fs::read_dir(dir).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                found.insert(path.clone(), Vec::new());
                walk(&path, found);
            } else {
                let content = std::fs::read(&path).expect("a file");
                found.insert(path, content);
            }
        }
    }
    let mut found = BTreeMap::new();
    for dir in ["state", "run"] {
        walk(&node.path(dir), &mut found);
    }
    found
}

/// When each image was last written to: a write through the loop device changes that, whatever it wrote. (Hashing them all
/// would take longer than everything else.)
fn written(volumes: &[Volume]) -> Vec<(i64, i64)> {
    let written = |volume: &Volume| {
        let metadata = std::fs::metadata(&volume.image).expect("the image");
        (metadata.mtime(), metadata.mtime_nsec())
    };
    volumes.iter().map(written).collect()
}

/// Plans all guards and makes sure that nothing was changed by that.
#[track_caller]
fn plan(node: &Node, volumes: &[Volume]) -> Value {
    let (images, files) = (written(volumes), kept(node));
    let answer = node.volhold(&["plan", "-o", "json"]);
    assert!(matches!(answer.code, Some(0 | 3 | 75)), "{answer:#?}");
    assert!(images == written(volumes), "a device was written to");
    assert!(files == kept(node), "records or run folder were written to");
    let plan = answer.json();
    assert_eq!((&plan["apiVersion"], &plan["kind"]), (&"volhold/v1".into(), &"Plan".into()));
    plan
}

/// Each decision with what it rests on: a look that was taken twice had a reason to be.
fn differs(name: &str, planned: &[String], entries: &[Value]) -> String {
    let told: Vec<String> = entries.iter().map(Value::to_string).collect();
    format!("{name}: planned {planned:?}, done\n  {}", told.join("\n  "))
}

/// Compares one look that was planned with the one that was taken. `from`: how many entries there were before.
fn compare(node: &Node, name: &str, guard: &str, foreseen: &Value, from: usize, wrong: &mut Vec<String>) {
    let entries = done(node, guard, from);
    let words: Vec<String> =
        entries.iter().map(|entry| entry["decision"].as_str().expect("a word").to_owned()).collect();
    let planned = recorded(foreseen);
    if !words.starts_with(&planned) {
        wrong.push(differs(name, &planned, &entries));
        return;
    }
    if foreseen["verdict"] == "unknown" {
        return;
    }
    // An open gate is marked on from there; a look that is taken again begins with the same.
    let last = words.get(planned.len()).map(String::as_str);
    if !matches!(last, None | Some("pin" | "progress" | "fsck")) {
        wrong.push(differs(name, &planned, &entries));
    }
    let status = node.guard_status(guard).expect("a status");
    let gate = match foreseen["verdict"].as_str() {
        Some("would-open") => "open",
        Some("would-hold") => "held",
        other => panic!("{name}: {other:?}"),
    };
    for (what, planned, done) in [
        (
            "gate",
            vec![(gate.to_owned(), String::new())],
            vec![(status["gate"].as_str().expect("a word").to_owned(), String::new())],
        ),
        ("reasons", told(&foreseen["reasons"]), told(&status["reasons"])),
        ("warnings", told(&foreseen["warnings"]), told(&status["warnings"])),
    ] {
        if planned != done {
            wrong.push(format!("{name}: {what} planned {planned:#?}\n  done {done:#?}"));
        }
    }
    let path = |dir: &Value| dir["path"].as_str().map(str::to_owned);
    if gate == "open" && path(&foreseen["data_dir"]) != path(&status["data_dir"]) {
        wrong.push(format!("{name}: data dir {} and {}", foreseen["data_dir"], status["data_dir"]));
    }
}

/// Plans, lets an agent run, compares; ends it and plans again; reboots, lets another agent run, compares with what was planned
/// for the boot. Returns the names of the volumes of which the plan came to a verdict.
fn planned_and_done(volumes: &[Volume], wrong: &mut Vec<String>) -> Vec<String> {
    let mut complete = Vec::new();
    let mut node = Node::new();
    let guard = |number: usize| format!("g{number}");
    let guards: Vec<Guard> = volumes
        .iter()
        .enumerate()
        .map(|(number, volume)| {
            let fstype = if volume.name.contains("xfs") { "xfs" } else { "ext4" };
            Guard::enforce(&guard(number), volume.device.node(), &node.path(&format!("mnt{number}"))).fstype(fstype)
        })
        .collect();
    node.configure(&guards);
    let before = plan(&node, volumes);
    node.start();
    for number in 0..volumes.len() {
        node.await_verdict(&guard(number));
    }
    for (number, volume) in volumes.iter().enumerate() {
        let foreseen = guard_of(&before, &guard(number));
        compare(&node, &volume.name, &guard(number), foreseen, 0, wrong);
        if foreseen["verdict"] != "unknown" {
            complete.push(volume.name.clone());
        }
    }
    // What a boot starts from is what the agent has left, its last marks too.
    node.stop_agent();
    let files = kept(&node);
    let left = node.volhold(&["plan", "-o", "json"]).json();
    assert!(files == kept(&node), "records or run folder were written to");
    let boots: Vec<Value> = (0..volumes.len())
        .map(|number| {
            let plan = guard_of(&left, &guard(number));
            let status = node.guard_status(&guard(number)).expect("a status");
            let as_it_is = match plan["verdict"].as_str() {
                Some("would-open") => status["gate"] == "open" && plan["next_boot"].is_object(),
                Some("would-hold") => status["gate"] == "held" && told(&plan["reasons"]) == told(&status["reasons"]),
                _ => false,
            };
            if !as_it_is {
                let reasons = &status["reasons"];
                wrong
                    .push(format!("{}: as the agent left it: {plan:#}\nits status: {reasons:#}", volumes[number].name));
            }
            if plan["next_boot"].is_object() { plan["next_boot"].clone() } else { plan.clone() }
        })
        .collect();
    let counts: Vec<usize> = (0..volumes.len()).map(|number| done(&node, &guard(number), 0).len()).collect();
    node.reboot();
    node.start();
    for (number, volume) in volumes.iter().enumerate() {
        let name = guard(number);
        node.await_verdict(&name);
        compare(&node, &format!("{} after a reboot", volume.name), &name, &boots[number], counts[number], wrong);
    }
    complete
}

fn over(names: &[String], make: impl Fn(&Tmp, &str) -> PathBuf) {
    let mut wrong = Vec::new();
    let mut complete = Vec::new();
    for batch in names.chunks(BATCH) {
        let tmp = Tmp::new();
        let volumes: Vec<Volume> = batch
            .iter()
            .map(|name| {
                let image = make(&tmp, name);
                Volume { name: name.clone(), device: Loop::new(&image), image }
            })
            .collect();
        complete.extend(planned_and_done(&volumes, &mut wrong));
    }
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong.join("\n"));
    let open: Vec<&String> = names.iter().filter(|name| !complete.contains(name)).collect();
    assert!(open.is_empty(), "the plan ends early for {open:?}");
}

#[test]
fn every_disk_of_the_corpus_is_planned_as_it_is_then_treated() {
    crate::needs_root!();
    over(&corpus("blk", ".img.zst"), |tmp, name| fixture::image(name, &tmp.join(name)));
}

/// A volume with this data, as whoever laid it out would have left it.
fn etcd_volume(tmp: &Tmp, name: &str) -> PathBuf {
    let tree = tmp.join(&format!("{name}.tree"));
    fixture::etcd_tree(name, &tree);
    let image = disk::sparse(&tmp.join(name), 256 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    std::fs::remove_dir_all(&tree).expect("the tree goes");
    image
}

#[test]
fn every_data_dir_of_the_corpus_is_planned_as_it_is_then_treated() {
    crate::needs_root!();
    over(&spread(corpus("etcd", ".tar.zst")), etcd_volume);
}

/// All volumes of kops and a fixed spread of the others, which is a matter of a minute; with `VOLHOLD_WHOLE_CORPUS` set all
/// of them.
fn spread(names: Vec<String>) -> Vec<String> {
    if std::env::var_os("VOLHOLD_WHOLE_CORPUS").is_some() {
        return names;
    }
    let taken = |(number, name): &(usize, String)| number % 9 == 0 || name.starts_with("kops-");
    names.into_iter().enumerate().filter(taken).map(|(_, name)| name).collect()
}

// --- one volume, looked at closely ---------------------------------------------------------------------------------------

/// A volume with an etcd data dir in `data`.
fn volume(tmp: &Tmp, fstype: &str) -> PathBuf {
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let image = disk::sparse(&tmp.join("volume"), 384 * MIB);
    match fstype {
        "ext4" => disk::mkfs_ext4(&image, Some(&tree)),
        _ => {
            run("mkfs.xfs", &["-q", &image.to_string_lossy()]);
            let device = Loop::new(&image);
            let mounted = Mounted::new(device.node(), &tmp.join("fill"));
            run("cp", &["-a", &tree.join("data").to_string_lossy(), &mounted.at().to_string_lossy()]);
        }
    }
    image
}

/// What the disk holds while it is mounted and was just written to: what a power cut leaves.
fn after_a_power_cut(tmp: &Tmp, image: &Path) -> PathBuf {
    let copy = tmp.join("after-a-power-cut");
    let device = Loop::new(image);
    let mounted = Mounted::new(device.node(), &tmp.join("running"));
    let file = mounted.at().join("data/written-late");
    std::fs::write(&file, b"x").expect("a file");
    run("sync", &["--file-system", &file.to_string_lossy()]);
    run("cp", &["--sparse=always", &image.to_string_lossy(), &copy.to_string_lossy()]);
    copy
}

fn one(node: &Node) -> (Option<i32>, Value) {
    let answer = node.volhold(&["plan", "main", "-o", "json"]);
    (answer.code, answer.json()["guards"][0].clone())
}

#[track_caller]
fn not_a_byte_is_changed(fstype: &'static str, cut: bool) {
    let tmp = Tmp::new();
    let image = volume(&tmp, fstype);
    let image = if cut { after_a_power_cut(&tmp, &image) } else { image };
    let device = Loop::new(&image);
    let node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).fstype(fstype).data_dir("data")]);
    let mounted = || crate::common::tmp::mount_table().iter().any(|mount| mount.source == device.name());
    let hash = || run("sha256sum", &[&image.to_string_lossy()]);
    let (before, files) = (hash(), kept(&node));
    let (code, plan) = one(&node);
    assert_eq!(before, hash(), "the device was written to");
    assert_eq!(files, kept(&node), "records or run folder were written to");
    assert!(!mounted() && !node.path("mnt").exists());
    // Free for everybody again, and no loop device is left on it.
    run("flock", &["--nonblock", &device.name(), "true"]);
    let on_top = run("losetup", &["--list", "--noheadings", "--output", "BACK-FILE"]);
    assert!(!on_top.lines().any(|file| file.trim() == device.name()), "{on_top}");
    if cut {
        assert_eq!((code, &plan["verdict"]), (Some(75), &"unknown".into()), "{plan:#}");
        let why = plan["unknown"].as_str().expect("why");
        assert!(why.contains("journal") || why.contains("log"), "{why}");
        assert_eq!(plan["reasons"], serde_json::json!([]));
    } else {
        assert_eq!((code, &plan["verdict"]), (Some(0), &"would-open".into()), "{plan:#}");
    }
}

#[test]
fn not_a_byte_of_an_ext4_is_changed() {
    crate::needs_root!();
    not_a_byte_is_changed("ext4", false);
}

#[test]
fn not_a_byte_of_an_xfs_is_changed() {
    crate::needs_root!();
    not_a_byte_is_changed("xfs", false);
}

#[test]
fn behind_the_journal_of_an_ext4_nothing_is_promised() {
    crate::needs_root!();
    not_a_byte_is_changed("ext4", true);
}

#[test]
fn behind_the_log_of_an_xfs_nothing_is_promised() {
    crate::needs_root!();
    not_a_byte_is_changed("xfs", true);
}

#[test]
fn what_is_in_the_way_of_the_mount_is_seen_beforehand() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = volume(&tmp, "ext4");
    let device = Loop::new(&image);
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    std::fs::create_dir(node.path("mnt")).expect("a folder");
    std::fs::write(node.path("mnt/somebodys"), b"x").expect("a file");
    let (code, plan) = one(&node);
    assert_eq!(code, Some(3));
    node.start();
    let status = node.await_held("main", "mountpoint-not-empty");
    assert_eq!(told(&plan["reasons"]), told(&status["reasons"]));
    // Beside the agent, whose claim is no use of the device by somebody else.
    let (code, beside) = one(&node);
    assert_eq!((code, told(&beside["reasons"])), (Some(3), told(&status["reasons"])));
}

#[test]
fn directories_are_planned_each_at_its_own_place() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    std::fs::create_dir(tree.join("more")).expect("a folder");
    let image = disk::sparse(&tmp.join("volume"), 64 * MIB);
    disk::mkfs_ext4(&image, Some(&tree));
    let device = Loop::new(&image);
    let mut node = Node::new();
    let places = [("data", node.path("at/etcd")), ("more", node.path("at/more"))];
    let guard = Guard::enforce("main", device.node(), &node.path("unused")).directories(&places).data_dir("data");
    node.configure(&[guard]);
    std::fs::create_dir(node.path("at")).expect("a folder");
    let steps = |foreseen: &Value, action: &str| -> Vec<String> {
        let all = foreseen["steps"].as_array().expect("steps");
        let of_kind = all.iter().filter(|step| step["action"] == action);
        of_kind.map(|step| step["detail"].as_str().expect("words").to_owned()).collect()
    };
    let each = |foreseen: &Value| {
        for action in ["seal", "publish"] {
            let steps = steps(foreseen, action);
            assert_eq!(steps.len(), 2, "{foreseen:#}");
            for (step, (_, at)) in steps.iter().zip(&places) {
                assert!(step.contains(&at.display().to_string()), "{step}");
            }
        }
        let open = steps(foreseen, "open").join("");
        assert!(open.ends_with(&format!("its data dir is {}", places[0].1.display())), "{open}");
    };
    let (code, before) = one(&node);
    assert_eq!((code, &before["verdict"]), (Some(0), &"would-open".into()), "{before:#}");
    each(&before);
    let mut wrong = Vec::new();
    node.start();
    node.await_verdict("main");
    compare(&node, "directories", "main", &before, 0, &mut wrong);
    let (code, beside) = one(&node);
    assert_eq!((code, &beside["verdict"]), (Some(0), &"would-open".into()), "{beside:#}");
    assert_eq!(steps(&beside, "publish"), Vec::<String>::new());
    each(&beside["next_boot"]);
    // Somebody unmounts one of them while no agent runs: that one is put back.
    node.stop_agent();
    crate::common::tmp::unmount(&places[1].1);
    let from = done(&node, "main", 0).len();
    let (code, partly) = one(&node);
    assert_eq!((code, &partly["verdict"]), (Some(0), &"would-open".into()), "{partly:#}");
    let back = steps(&partly, "publish");
    assert!(back.len() == 1 && back[0].contains("`more`"), "{back:?}");
    node.start();
    node.await_verdict("main");
    compare(&node, "one directory", "main", &partly, from, &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_observed_guard_is_planned_as_if_it_enforced() {
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = volume(&tmp, "ext4");
    let device = Loop::new(&image);
    let node = Node::new();
    node.configure(&[Guard::observe("main", device.node(), &node.path("mnt")).data_dir("elsewhere")]);
    let (code, plan) = one(&node);
    assert_eq!((code, &plan["mode"], &plan["verdict"]), (Some(3), &"observe".into(), &"would-hold".into()));
    assert_eq!(told(&plan["reasons"])[0].0, "empty-beside-old", "{plan:#}");
    let page = node.volhold(&["plan"]).stdout;
    assert!(page.starts_with("main would be HELD: "), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    assert!(page.contains("This guard observes"), "{page}");
    assert_eq!(node.volhold(&["plan", "nobody"]).code, Some(78));
}

#[test]
fn what_a_plan_looks_through_is_no_use_of_the_volume_and_no_second_one() {
    use volhold::device::{Device, Resolved, Sysfs, resolve};
    use volhold::model::{DeviceSpec, Fstype, Observed};
    crate::needs_root!();
    let tmp = Tmp::new();
    let image = volume(&tmp, "ext4");
    let device = Loop::new(&image);
    let sysfs = Sysfs::default();
    let resolved = Resolved::Block { requested: device.name(), node: device.node().to_owned() };
    let opened = Device::open(&resolved, &sysfs).expect("the device opens");
    let view = volhold::act::mount::View::of(&opened, Fstype::Ext4, &[], &sysfs).expect("a view");
    assert_eq!(opened.uses().expect("its uses"), [], "an agent would take the plan for somebody who has the volume");
    // Both carry the filesystem; only one of them is the volume.
    let uuid = run("blkid", &["--probe", "--output", "value", "--match-tag", "UUID", &device.name()]).trim().to_owned();
    let identify = |node: &Path| {
        let found = crate::common::output("blkid", &["-p", "-o", "value", "-s", "UUID", &node.to_string_lossy()]);
        Observed::Seen((Some(String::from_utf8_lossy(&found.stdout).trim().to_owned()), None))
    };
    let found = resolve(&DeviceSpec::Uuid(uuid), &sysfs, &identify).expect("one device");
    assert!(matches!(found, Resolved::Block { node, .. } if node == device.node()));
    drop(view);
}
