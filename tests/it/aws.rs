//! What the IAM policies in `packaging/aws` permit is what the code asks for: no action is missing, none is too many, and
//! what changes anything is bound to tags.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Each kind of master, and the tags that its policies name.
const KINDS: [(&str, &[&str]); 2] = [
    ("kops", &["aws:ResourceTag/KubernetesCluster", "aws:ResourceTag/k8s.io/role/master"]),
    ("kubeadm", &["aws:ResourceTag/kubernetes.io/cluster/CLUSTER", "aws:ResourceTag/volhold"]),
];

const VOLUMES: &str = "arn:aws:ec2:*:*:volume/*";
const SNAPSHOTS: &str = "arn:aws:ec2:*::snapshot/*";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn policy(name: &str) -> Value {
    let path = root().join("packaging/aws").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn statements(policy: &Value) -> &[Value] {
    policy["Statement"].as_array().expect("a list of statements")
}

fn actions(statements: &[Value]) -> BTreeSet<String> {
    let actions = statements.iter().flat_map(|statement| statement["Action"].as_array().expect("a list of actions"));
    actions.map(|action| action.as_str().expect("an action").to_owned()).collect()
}

/// `describe_volumes` of the SDK's client is `ec2:DescribeVolumes`.
fn action(method: &str) -> String {
    let word = |word: &str| word.chars().next().map(|first| first.to_uppercase().to_string() + &word[1..]);
    format!("ec2:{}", method.split('_').filter_map(word).collect::<String>())
}

/// The operations that this source calls on a client of the SDK: `client.NAME()`, whatever stands between the two.
fn called(source: &str) -> BTreeSet<String> {
    let mut called = BTreeSet::new();
    for (at, _) in source.match_indices("client") {
        let rest = source[at + "client".len()..].trim_start();
        let Some(rest) = rest.strip_prefix('.') else { continue };
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
        if rest[end..].starts_with("()") {
            called.insert(action(&rest[..end]));
        }
    }
    called
}

/// Those of everything in `src/cloud`: the one room that may name the SDK.
fn called_by_the_code() -> BTreeSet<String> {
    fn read(dir: &Path, called: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).expect("a folder of the source") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                read(&path, called);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                called.extend(self::called(&std::fs::read_to_string(&path).expect("a source")));
            }
        }
    }
    let mut called = BTreeSet::new();
    read(&root().join("src/cloud"), &mut called);
    called
}

#[test]
fn calls_are_found_in_a_source() {
    let source = "client.attach_volume().volume_id(x); let r = client\n    .describe_volumes()\n; client.get(path); http_client(x)";
    assert_eq!(called(source), ["ec2:AttachVolume", "ec2:DescribeVolumes"].map(str::to_owned).into());
}

#[test]
fn the_full_policies_permit_each_action_that_is_called_and_no_other() {
    let called = called_by_the_code();
    assert!(called.len() >= 3, "the calls are not found any more: {called:?}");
    for (kind, _) in KINDS {
        let policy = policy(&format!("{kind}-full.json"));
        assert_eq!(actions(statements(&policy)), called, "{kind}");
    }
}

#[test]
fn the_minimal_policies_only_read_and_are_part_of_the_full_ones() {
    for (kind, _) in KINDS {
        let (minimal, full) = (policy(&format!("{kind}-minimal.json")), policy(&format!("{kind}-full.json")));
        let reads = actions(statements(&minimal));
        assert!(
            !reads.is_empty() && reads.iter().all(|action| action.starts_with("ec2:Describe")),
            "{kind}: {reads:?}"
        );
        assert!(statements(&minimal).iter().all(|statement| statements(&full).contains(statement)), "{kind}");
    }
}

#[test]
fn every_file_is_a_policy_that_iam_takes_and_what_changes_anything_is_bound_to_tags() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("packaging/aws")).expect("the folder") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        let (_, tags) = KINDS.iter().find(|(kind, _)| name.starts_with(kind)).expect("a kind of master");
        let policy = policy(&name);
        seen += 1;
        // The grammar of IAM's policies: these keys, this version, a Sid of letters and digits.
        let keys: Vec<&String> = policy.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["Statement", "Version"], "{name}");
        assert_eq!(policy["Version"], "2012-10-17", "{name}");
        for statement in statements(&policy) {
            let keys = statement.as_object().expect("an object").keys();
            let known = ["Sid", "Effect", "Action", "Resource", "Condition"];
            assert!(keys.clone().all(|key| known.contains(&key.as_str())), "{name}: {statement}");
            assert_eq!(statement["Effect"], "Allow", "{name}");
            assert!(statement["Sid"].as_str().is_some_and(|sid| sid.chars().all(char::is_alphanumeric)), "{name}");
            if actions(std::slice::from_ref(statement)).iter().all(|action| action.starts_with("ec2:Describe")) {
                // EC2 takes no resource for these.
                assert_eq!(statement["Resource"], "*", "{name}");
                continue;
            }
            assert_eq!(statement["Action"].as_array().map(Vec::len), Some(1), "{name}");
            let (action, on) = (statement["Action"][0].as_str().expect("an action"), &statement["Resource"]);
            let condition = &statement["Condition"];
            let bound: BTreeSet<&str> =
                condition["StringEquals"].as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
            match (action, on[0].as_str().expect("a resource")) {
                // A snapshot has no tags yet when it is made: those that it is made with count.
                ("ec2:CreateSnapshot", SNAPSHOTS) => {
                    assert_eq!(condition["StringLike"]["aws:RequestTag/volhold/guard"], "*", "{name}");
                    continue;
                }
                ("ec2:CreateTags", SNAPSHOTS) => {
                    assert_eq!(condition["StringEquals"]["ec2:CreateAction"], "CreateSnapshot", "{name}");
                    continue;
                }
                // AttachVolume is judged for the volume and for the instance.
                ("ec2:AttachVolume", _) => {
                    assert_eq!(*on, serde_json::json!(["arn:aws:ec2:*:*:instance/*", VOLUMES]), "{name}");
                }
                ("ec2:CreateSnapshot", _) => assert_eq!(*on, serde_json::json!([VOLUMES]), "{name}"),
                // Tags of a volume: volhold's own, and no others.
                ("ec2:CreateTags", _) => {
                    assert_eq!(*on, serde_json::json!([VOLUMES]), "{name}");
                    let keys = &condition["ForAllValues:StringLike"]["aws:TagKeys"];
                    assert_eq!(*keys, serde_json::json!(["volhold/*"]), "{name}");
                }
                other => panic!("{name}: {other:?}"),
            }
            assert_eq!(bound, tags.iter().copied().collect(), "{name}");
        }
    }
    assert_eq!(seen, 2 * KINDS.len());
}
