//! `enable --image --root DIR`: what is written, what is refused, what is taken away again. Needs no root, no systemd.

use crate::common::{Answer, Tmp, output};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DROP_IN: &str = "etc/systemd/system/etcd.service.d/50-volhold-etcd-main.conf";
const FIRST_BOOT: &str = "etc/systemd/system/volhold-first-boot@etcd-main.service";
const GATE: &str = "etc/systemd/system/volhold-gate@etcd-main.service.d/50-volhold-first-boot.conf";
const UUID: &str = "11111111-2222-4333-8444-5555555555aa";

/// The root directory of an image, with a guard for its etcd.
struct Image {
    tmp: Tmp,
}

impl Image {
    fn new(more: &str) -> Self {
        let image = Image { tmp: Tmp::new() };
        let guard = format!(
            "[[guard]]\nname = \"etcd-main\"\ndevice = \"UUID={UUID}\"\npublish = \"/var/lib/etcd\"\ndata_dir = \"default\"\n{more}"
        );
        image.put("etc/volhold/config.toml", &guard);
        image
    }

    fn at(&self, path: &str) -> PathBuf {
        self.tmp.join("root").join(path)
    }

    fn put(&self, path: &str, text: &str) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).unwrap_or_default()
    }

    fn volhold(&self, args: &[&str]) -> Answer {
        let mut command = Command::new(env!("CARGO_BIN_EXE_volhold"));
        command.args(args).arg("--root").arg(self.tmp.join("root")).env_remove("VOLHOLD_CONFIG").stdin(Stdio::null());
        let output = command.output().expect("volhold runs");
        Answer {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn enable(&self, more: &[&str]) -> Answer {
        let mut args = vec!["enable", "--preset", "etcd-service", "--image", "etcd-main", "-o", "json"];
        args.extend(more);
        self.volhold(&args)
    }

    /// Every file below the root, relative to it.
    fn files(&self) -> Vec<String> {
        fn walk(dir: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    walk(&entry.path(), root, found);
                } else {
                    found.push(entry.path().strip_prefix(root).unwrap().display().to_string());
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.at(""), &self.at(""), &mut found);
        found.sort();
        found
    }
}

fn changes(answer: &Answer) -> Vec<String> {
    let document = answer.json();
    let files = document["files"].as_array().cloned().unwrap_or_default();
    files.iter().map(|file| file["change"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn an_image_gets_the_waiting_and_the_test_of_the_first_boot_but_does_not_enforce_yet() {
    let image = Image::new("");
    let first = image.enable(&[]);
    assert_eq!(first.code, Some(0), "{first:#?}");
    assert_eq!((first.json()["done"].as_bool(), first.json()["kind"].as_str()), (Some(true), Some("Change")));
    assert_eq!(image.files(), [DROP_IN, FIRST_BOOT, GATE, "etc/volhold/config.toml"]);
    assert!(image.read(GATE).contains("Requires=volhold-first-boot@etcd-main.service"));
    let again = image.enable(&[]);
    assert_eq!((again.code, changes(&again)), (Some(0), vec!["same".to_owned(); 3]), "{again:#?}");

    let gone = image.volhold(&["disable", "etcd-main"]);
    assert_eq!(gone.code, Some(0), "{gone:#?}");
    assert!(gone.stdout.contains("etcd starts without waiting"), "{}", gone.stdout);
    assert_eq!(image.files(), ["etc/volhold/config.toml"]);
}

#[test]
fn a_dry_run_shows_every_file_and_writes_none() {
    let image = Image::new("");
    let shown = image.enable(&["--dry-run"]);
    assert_eq!(shown.code, Some(0), "{shown:#?}");
    let document = shown.json();
    assert_eq!(document["done"], false);
    assert!(document["files"][0]["text"].as_str().unwrap().contains("Requires=volhold-gate@etcd-main.service"));
    assert_eq!(image.files(), ["etc/volhold/config.toml"]);
}

#[test]
fn another_mounter_is_refused_with_its_line_or_unit_and_nothing_is_written() {
    for (path, text, told) in [
        ("etc/fstab", format!("# root\nUUID={UUID} /srv ext4 defaults,nofail 0 2\n"), "etc/fstab:2"),
        ("etc/fstab", "tmpfs /var/lib/etcd tmpfs\n".to_owned(), "etc/fstab:1"),
        (
            "usr/lib/systemd/system/var-lib-etcd.mount",
            "[Mount]\nWhat=/dev/xvdf\nWhere=/var/lib/etcd\n".to_owned(),
            "var-lib-etcd.mount",
        ),
        ("etc/systemd/system/var-lib-etcd.automount", "[Automount]\nWhere=/var/lib/etcd\n".to_owned(), ".automount"),
    ] {
        let image = Image::new("");
        image.put(path, &text);
        let before = image.files();
        let refused = image.enable(&[]);
        assert_eq!(refused.code, Some(4), "{path}: {refused:#?}");
        let checks = refused.json()["checks"].to_string();
        assert!(checks.contains(told) && checks.contains("other-mounter"), "{path}: {checks}");
        assert_eq!(image.files(), before, "{path}");
    }
}

#[test]
fn what_a_person_changed_or_wrote_is_named_and_left() {
    let image = Image::new("");
    assert_eq!(image.enable(&[]).code, Some(0));
    let changed = image.read(DROP_IN) + "\n[Service]\nNice=-5\n";
    image.put(DROP_IN, &changed);
    let refused = image.enable(&[]);
    assert_eq!(refused.code, Some(4), "{refused:#?}");
    assert!(refused.stderr.contains("50-volhold-etcd-main.conf was changed"), "{}", refused.stderr);
    let left = image.volhold(&["disable", "etcd-main"]);
    assert_eq!(left.code, Some(4), "{left:#?}");
    assert!(left.stdout.contains("50-volhold-etcd-main.conf"), "{}", left.stdout);
    assert_eq!(image.files(), [DROP_IN, "etc/volhold/config.toml"]);
    assert_eq!(image.read(DROP_IN), changed);

    image.put(DROP_IN, "[Service]\nNice=-5\n");
    assert_eq!(image.enable(&[]).code, Some(4));
    assert_eq!(image.volhold(&["disable", "etcd-main"]).code, Some(4));
    assert_eq!(image.read(DROP_IN), "[Service]\nNice=-5\n");
}

#[test]
fn what_cannot_be_guarded_is_refused() {
    let image = Image::new("");
    let enable =
        |preset: &str, name: &str| image.volhold(&["enable", "--preset", preset, "--image", name, "-o", "json"]);
    let nobody = enable("etcd-service", "nobody");
    assert_eq!(nobody.code, Some(78), "{nobody:#?}");
    assert!(nobody.stderr.contains("configured: etcd-main"), "{}", nobody.stderr);
    assert_eq!(enable("docker", "etcd-main").code, Some(2));
    let elsewhere = enable("kops", "etcd-main");
    assert_eq!(elsewhere.code, Some(4), "{elsewhere:#?}");
    assert!(elsewhere.stdout.contains("/mnt/master-vol-"), "{}", elsewhere.stdout);
    let by_directory = Image::new("");
    let config = by_directory
        .read("etc/volhold/config.toml")
        .replace("\"/var/lib/etcd\"", "[{ from = \"default\", at = \"/mnt/master-vol-0a1b\" }]");
    by_directory.put("etc/volhold/config.toml", &config);
    let refused = by_directory.volhold(&["enable", "--preset", "kops", "--image", "etcd-main", "-o", "json"]);
    assert_eq!(refused.code, Some(4), "etcd-manager would not find the volume in a directory of it: {refused:#?}");
    let enforces = Image::new("mode = \"enforce\"\n").enable(&[]);
    assert_eq!(enforces.code, Some(4), "nothing would be tested: {enforces:#?}");
    assert_eq!(image.files(), ["etc/volhold/config.toml"]);
}

/// Lines that the README shows for etcd's unit are in what `enable` writes, in this order.
#[test]
fn the_readme_shows_the_drop_in_that_enable_writes() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let shown =
        readme.split("# /etc/systemd/system/etcd.service.d/…\n").nth(1).and_then(|rest| rest.split("```").next());
    let shown: Vec<&str> = shown.expect("the drop-in").lines().collect();
    let image = Image::new("");
    assert_eq!(image.enable(&[]).code, Some(0));
    let written = image.read(DROP_IN);
    let mut written = written.lines();
    for line in &shown {
        assert!(written.any(|other| other == *line), "{line}");
    }
    assert_eq!(shown.len(), 5, "{shown:?}");
}

/// What the packages bring as a beginning: a configuration that is right, and the command in its comment.
#[test]
fn every_example_of_the_packages_is_a_configuration_and_its_command_works() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/common/examples");
    let mut commands = 0;
    for example in std::fs::read_dir(examples).unwrap().flatten() {
        let text = std::fs::read_to_string(example.path()).unwrap();
        // Lines that a person may take in, too.
        let choices = text.replace("\n#: ", "\n");
        for text in [&text, &choices] {
            let image = Image::new("");
            image.put("etc/volhold/config.toml", text);
            let config = image.at("etc/volhold/config.toml").display().to_string();
            let checked = output(env!("CARGO_BIN_EXE_volhold"), &["--config", &config, "config", "check"]);
            assert!(checked.status.success(), "{:?}: {checked:#?}", example.path());
            let Some(command) = text.split("volhold enable").nth(1).and_then(|rest| rest.lines().next()) else {
                continue;
            };
            let args: Vec<&str> = command.split_whitespace().collect();
            let enabled = image.volhold(&[&["enable", "--image"], args.as_slice()].concat());
            assert_eq!(enabled.code, Some(0), "{:?}: {enabled:#?}", example.path());
            commands += 1;
        }
    }
    assert!(commands >= 4, "{commands}");
}

#[test]
fn every_preset_writes_units_that_systemd_understands() {
    if output("systemd-analyze", &["--version"]).status.code() != Some(0) {
        println!("SKIP: no systemd-analyze");
        return;
    }
    for (preset, unit) in [
        ("etcd-service", "etcd.service"),
        ("kubeadm", "kubelet.service"),
        ("kops", "kubelet.service"),
        ("k3s", "k3s.service"),
        ("rke2", "rke2-server.service"),
        ("kube-aws", "etcd-member.service"),
    ] {
        let image = Image::new("");
        if preset == "kops" {
            let config = image.read("etc/volhold/config.toml").replace("/var/lib/etcd", "/mnt/master-vol-0a1b");
            image.put("etc/volhold/config.toml", &config);
        }
        let enabled = image.volhold(&["enable", "--preset", preset, "--image", "etcd-main"]);
        assert_eq!(enabled.code, Some(0), "{preset}: {enabled:#?}");
        // The unit that is somebody else's, the gate of the package, and programs that are there.
        image.put(&format!("usr/lib/systemd/system/{unit}"), "[Service]\nExecStart=/usr/bin/volhold\n");
        let gate = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/volhold wait %i\n";
        image.put("usr/lib/systemd/system/volhold-gate@.service", gate);
        image.put("usr/lib/systemd/system/volhold.service", "[Service]\nExecStart=/usr/bin/volhold run\n");
        image.put("usr/bin/volhold", "#!/bin/true\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(image.at("usr/bin/volhold"), mode).unwrap();
        for target in ["sysinit", "basic", "shutdown", "local-fs", "umount"] {
            image.put(&format!("usr/lib/systemd/system/{target}.target"), "[Unit]\nDescription=x\n");
        }
        let root = format!("--root={}", image.at("").display());
        let mut args = vec!["verify", "--man=no", &root, unit, "volhold-gate@etcd-main.service"];
        let more: Vec<String> = image
            .files()
            .iter()
            .filter_map(|file| file.strip_prefix("etc/systemd/system/").map(str::to_owned))
            .collect();
        args.extend(more.iter().filter(|file| file.ends_with(".service")).map(String::as_str));
        let verified = output("systemd-analyze", &args);
        // It exits 0 on much that it complains about.
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(verified.status.success() && said.trim().is_empty(), "{preset}: {said}");
    }
}
