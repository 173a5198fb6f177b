//! EC2 for a test: `tests/ec2/sim.py` as a process of its own, and a fake `/sys` in which a loop device is an EBS volume's disk
//! for as long as EC2 says that it is attached.

use super::{Guard, Loop, Node, Tmp, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const ZONE: &str = "eu-west-1a";

/// One account's EC2. It ends with the value, and with the test's process.
pub struct Ec2 {
    process: Child,
    url: String,
    sys: Tmp,
}

/// An instance, and where it reads its metadata.
#[derive(Debug, Clone)]
pub struct Instance {
    pub id: String,
    pub metadata: String,
}

impl Ec2 {
    #[track_caller]
    pub fn start() -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ec2");
        let python = run(&tests.join("install.sh").to_string_lossy(), &[]);
        let sys = Tmp::new();
        for folder in ["class/block", "dev/block", "devices", "volumes"] {
            std::fs::create_dir_all(sys.join(folder)).expect("the fake /sys");
        }
        let log = std::fs::File::create(sys.join("log")).expect("a file for the simulator's log");
        let mut process = Command::new(python.trim())
            .arg(tests.join("sim.py"))
            .arg("--sys")
            .arg(sys.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("python runs");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("the simulator's address");
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            panic!("the simulator did not start: {}", std::fs::read_to_string(sys.join("log")).unwrap_or_default())
        });
        Ec2 { process, url: told["url"].as_str().expect("an address").to_owned(), sys }
    }

    /// Where it answers, as `AWS_ENDPOINT_URL` wants it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// One order to the simulator, as `sim.py` lists them.
    #[track_caller]
    pub fn rig(&self, what: &str, order: &Value) -> Value {
        let address = self.url.trim_start_matches("http://");
        let body = order.to_string();
        let mut stream = TcpStream::connect(address).expect("the simulator listens");
        write!(
            stream,
            "POST /rig/{what} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("the order is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the answer");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        assert!(head.contains(" 200 "), "{what} {order}: {answer}\n{}", self.log());
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{what}: {answer}"))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.sys.join("log")).unwrap_or_default()
    }

    #[track_caller]
    pub fn instance(&self) -> Instance {
        self.instance_in(ZONE)
    }

    #[track_caller]
    pub fn instance_in(&self, zone: &str) -> Instance {
        let told = self.rig("instance", &json!({ "zone": zone }));
        let text = |key: &str| told[key].as_str().expect(key).to_owned();
        Instance { id: text("id"), metadata: text("metadata") }
    }

    /// A volume; `about` as `/rig/volume` takes it, on top of a zone and a size of 1 GiB.
    #[track_caller]
    pub fn volume(&self, about: &Value) -> String {
        let mut order = json!({ "zone": ZONE, "size": 1, "hours": 100 });
        for (key, value) in about.as_object().into_iter().flatten() {
            order[key] = value.clone();
        }
        self.rig("volume", &order)["id"].as_str().expect("an id").to_owned()
    }

    /// From now on this loop device is the volume's disk wherever it is attached to the test's machine.
    #[track_caller]
    pub fn disk(&self, volume: &str, device: &Loop) {
        let name = device.node().file_name().expect("a name").to_string_lossy().into_owned();
        let real = Path::new("/sys/block").join(&name);
        let fake = self.sys.join("devices").join(&name);
        std::fs::create_dir_all(fake.join("device")).expect("the fake device");
        for entry in std::fs::read_dir(&real).expect("/sys/block").flatten() {
            symlink(entry.path(), fake.join(entry.file_name())).expect("a link to the real attribute");
        }
        let serial = volume.replacen("vol-", "vol", 1);
        // Padded with spaces, as the kernel shows it.
        std::fs::write(fake.join("device/serial"), format!("{serial}\n")).expect("the serial");
        std::fs::write(fake.join("device/model"), "Amazon Elastic Block Store              \n").expect("the model");
        let about = self.sys.join("volumes").join(volume);
        std::fs::create_dir_all(&about).expect("the volume's folder");
        std::fs::write(about.join("name"), &name).expect("its device's name");
        let number = std::fs::read_to_string(real.join("dev")).expect("the device number");
        std::fs::write(about.join("number"), number).expect("its device's number");
    }

    /// Makes the node this instance: its metadata, its EC2, its disks.
    #[track_caller]
    pub fn is_machine(&self, node: &mut Node, instance: &Instance) {
        self.rig("machine", &json!({ "instance": instance.id }));
        let sys = self.sys.path().to_string_lossy().into_owned();
        node.agent_env("VOLHOLD_FAKE_SYS", Some(&sys));
        node.agent_env("AWS_ENDPOINT_URL", Some(&self.url));
        node.agent_env("AWS_EC2_METADATA_SERVICE_ENDPOINT", Some(&instance.metadata));
        // Nothing of the person who runs the tests.
        node.agent_env("AWS_CONFIG_FILE", Some("/nonexistent"));
        node.agent_env("AWS_SHARED_CREDENTIALS_FILE", Some("/nonexistent"));
    }

    /// What was asked of EC2 so far.
    #[track_caller]
    pub fn calls(&self) -> Vec<String> {
        let calls = self.rig("calls", &json!({}));
        calls.as_array().expect("a list").iter().filter_map(|call| call.as_str()).map(str::to_owned).collect()
    }

    #[track_caller]
    pub fn count(&self, action: &str) -> usize {
        self.calls().iter().filter(|call| *call == action).count()
    }

    pub fn sys(&self) -> PathBuf {
        self.sys.path().to_owned()
    }
}

impl Drop for Ec2 {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- the simulator's log\n{}\n---", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
    }
}

/// A guard of a volume of EC2. `named`: lines of TOML, such as `volume_id = "vol-…"`.
pub fn guard(name: &str, named: &str, device: &Loop, publish: &Path) -> Guard {
    let mut guard = Guard::enforce(name, device.node(), publish);
    guard.source = Some(format!("provider = \"ebs\"\n{named}\n# device = \"{}\"", device.name()));
    guard
}
