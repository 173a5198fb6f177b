//! The manifest of a static pod that runs etcd: which image, which flags, and which directory of the host is its data dir.

use crate::model::{EtcdFlags, EtcdVersion};
use std::path::{Path, PathBuf};
use yaml_rust2::{Yaml, YamlLoader};

/// What a manifest says of etcd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// `None`: the image's tag is no version.
    pub version: Option<EtcdVersion>,
    pub flags: EtcdFlags,
    /// etcd's data dir as the host has it.
    pub data_dir: Option<PathBuf>,
}

/// `None`: no container of etcd is in it.
pub fn parse(text: &str) -> Result<Option<Manifest>, String> {
    // An alias makes a copy of what it stands for; nobody writes manifests with them.
    if text.contains('*') && text.lines().any(|line| line.trim_start().trim_start_matches("- ").starts_with('*')) {
        return Err("aliases are not read".to_owned());
    }
    if nests_too_deep(text) {
        return Err("it nests deeper than any manifest does".to_owned());
    }
    let documents = YamlLoader::load_from_str(text).map_err(|error| error.to_string())?;
    let pods = documents.iter().filter(|document| document["kind"].as_str() == Some("Pod"));
    Ok(pods.filter_map(of_pod).next())
}

/// Brackets that open, wherever they stand. What closes is not counted: within quotes it closes nothing.
const MOST_BRACKETS: usize = 400;
/// Columns before a line's first word. Each level of a block needs one, be it of indentation or a `-` before another.
const DEEPEST_COLUMN: usize = 128;

/// The reader calls itself for each level, and would end the agent at the end of its stack.
fn nests_too_deep(text: &str) -> bool {
    let indented = |line: &str| line.chars().take_while(|c| matches!(c, ' ' | '\t' | '-' | '?' | ':')).count();
    text.matches(['[', '{']).count() > MOST_BRACKETS || text.lines().any(|line| indented(line) > DEEPEST_COLUMN)
}

fn of_pod(pod: &Yaml) -> Option<Manifest> {
    let spec = &pod["spec"];
    let container = spec["containers"].as_vec()?.iter().find(|container| is_etcd(container))?;
    let words = words(container);
    let value = |name: &str| flag(&words, name).or_else(|| variable(container, name));
    let flags = EtcdFlags {
        name: value("name"),
        peer_urls: value("initial-advertise-peer-urls").map(|urls| split(&urls)).unwrap_or_default(),
        quota: value("quota-backend-bytes").and_then(|bytes| bytes.parse().ok()),
        wal_dir: value("wal-dir"),
    };
    let data_dir = value("data-dir").and_then(|dir| on_host(spec, container, Path::new(&dir)));
    Some(Manifest { version: container["image"].as_str().and_then(tag), flags, data_dir })
}

/// etcd itself, and not one of its keepers (etcd-manager runs many versions).
fn is_etcd(container: &Yaml) -> bool {
    let image = container["image"].as_str().unwrap_or_default();
    let image = image.split('@').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let image = image.split(':').next().unwrap_or_default();
    ["etcd", "etcd-amd64", "etcd-arm64", "hardened-etcd"].contains(&image)
        || container["command"]
            .as_vec()
            .and_then(|command| command.first()?.as_str())
            .is_some_and(|program| Path::new(program).file_name().is_some_and(|name| name == "etcd"))
}

/// `command` and `args`; of a shell's line (`/bin/sh -c "exec etcd --name=a"`), its words.
fn words(container: &Yaml) -> Vec<String> {
    let lists = ["command", "args"].into_iter().filter_map(|key| container[key].as_vec());
    let words = lists.flatten().filter_map(Yaml::as_str);
    words.flat_map(|word| word.split_whitespace().map(str::to_owned)).collect()
}

/// `--name=a`, `--name a`, `-name a`.
fn flag(words: &[String], name: &str) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| {
        let rest = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?.strip_prefix(name)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value.to_owned()),
            None if rest.is_empty() => words.get(at.checked_add(1)?).cloned(),
            None => None,
        }
    })
}

/// `ETCD_DATA_DIR` for `data-dir`.
fn variable(container: &Yaml, flag: &str) -> Option<String> {
    let wanted = format!("ETCD_{}", flag.replace('-', "_").to_uppercase());
    let variables = container["env"].as_vec()?;
    let found = variables.iter().find(|variable| variable["name"].as_str() == Some(&wanted))?;
    found["value"].as_str().map(str::to_owned)
}

fn split(urls: &str) -> Vec<String> {
    urls.split(',').map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()).collect()
}

/// A path in the container, by the longest of its mounts that leads there, as a path of the host.
fn on_host(spec: &Yaml, container: &Yaml, path: &Path) -> Option<PathBuf> {
    let mounts = container["volumeMounts"].as_vec()?.iter();
    let leading = mounts.filter_map(|mount| {
        let at = Path::new(mount["mountPath"].as_str()?);
        Some((at, path.strip_prefix(at).ok()?, mount["name"].as_str()?))
    });
    let (_, below, name) = leading.max_by_key(|(at, _, _)| at.components().count())?;
    let volume = spec["volumes"].as_vec()?.iter().find(|volume| volume["name"].as_str() == Some(name))?;
    let host = Path::new(volume["hostPath"]["path"].as_str()?);
    Some(if below.as_os_str().is_empty() { host.to_owned() } else { host.join(below) })
}

/// `registry.k8s.io/etcd:3.5.16-0@sha256:…`, `quay.io/coreos/etcd:v3.4.13`, `hardened-etcd:v3.5.13-k3s1-build20240910`.
fn tag(image: &str) -> Option<EtcdVersion> {
    let named = image.split('@').next()?;
    let (_, tag) = named.rsplit('/').next()?.split_once(':')?;
    tag.split(['-', '+', '_']).next()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// As kubeadm 1.31 writes it, shortened.
    const KUBEADM: &str = r"
apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/etcd.advertise-client-urls: https://10.0.2.17:2379
  name: etcd
  namespace: kube-system
spec:
  containers:
  - command:
    - etcd
    - --advertise-client-urls=https://10.0.2.17:2379
    - --data-dir=/var/lib/etcd
    - --initial-advertise-peer-urls=https://10.0.2.17:2380
    - --initial-cluster=ip-10-0-2-17=https://10.0.2.17:2380
    - --name=ip-10-0-2-17
    - --quota-backend-bytes=8589934592
    - --snapshot-count=10000
    image: registry.k8s.io/etcd:3.5.15-0
    name: etcd
    volumeMounts:
    - mountPath: /var/lib/etcd
      name: etcd-data
    - mountPath: /etc/kubernetes/pki/etcd
      name: etcd-certs
  hostNetwork: true
  volumes:
  - hostPath:
      path: /etc/kubernetes/pki/etcd
      type: DirectoryOrCreate
    name: etcd-certs
  - hostPath:
      path: /srv/etcd/data
      type: DirectoryOrCreate
    name: etcd-data
status: {}
";

    #[test]
    fn what_kubeadm_writes_is_read_with_its_flags_and_its_place_on_the_host() {
        let manifest = parse(KUBEADM).unwrap().unwrap();
        let flags = EtcdFlags {
            name: Some("ip-10-0-2-17".into()),
            peer_urls: vec!["https://10.0.2.17:2380".into()],
            quota: Some(8 << 30),
            wal_dir: None,
        };
        let data_dir = Some("/srv/etcd/data".into());
        assert_eq!(manifest, Manifest { version: Some(EtcdVersion::new(3, 5, 15)), flags, data_dir });
    }

    #[test]
    fn the_legacy_manifest_of_kops_runs_etcd_in_a_shell_and_is_json() {
        let text = r#"{"kind":"Pod","spec":{"containers":[{"name":"etcd-container","image":"k8s.gcr.io/etcd:2.2.1",
            "command":["/bin/sh","-c","/usr/local/bin/etcd --wal-dir /wal 2>&1 | /bin/tee /var/log/etcd.log"],
            "env":[{"name":"ETCD_NAME","value":"etcd-a"},{"name":"ETCD_DATA_DIR","value":"/var/etcd/data"}],
            "volumeMounts":[{"mountPath":"/var/etcd/data","name":"varetcdata"}]}],
            "volumes":[{"name":"varetcdata","hostPath":{"path":"/mnt/master-vol-1/var/etcd/data"}}]}}"#;
        let manifest = parse(text).unwrap().unwrap();
        assert_eq!(manifest.version, Some(EtcdVersion::new(2, 2, 1)));
        assert_eq!(manifest.flags.name.as_deref(), Some("etcd-a"));
        assert_eq!(manifest.flags.wal_dir.as_deref(), Some("/wal"));
        assert_eq!(manifest.data_dir, Some("/mnt/master-vol-1/var/etcd/data".into()));
    }

    #[test]
    fn an_image_says_a_version_by_its_tag_or_none() {
        let of = |image: &str| tag(image).map(|version| version.to_string());
        assert_eq!(of("quay.io/coreos/etcd:v3.4.13").as_deref(), Some("3.4.13"));
        assert_eq!(of("registry:5000/etcd:3.5.16-0@sha256:ab12").as_deref(), Some("3.5.16"));
        assert_eq!(of("index.docker.io/rancher/hardened-etcd:v3.5.13-k3s1-build20240910").as_deref(), Some("3.5.13"));
        for image in ["registry:5000/etcd", "etcd", "etcd:latest", "etcd@sha256:ab12"] {
            assert_eq!(of(image), None, "{image}");
        }
    }

    #[test]
    fn what_runs_no_etcd_is_none_and_what_is_no_yaml_is_an_error() {
        assert_eq!(
            parse("kind: Pod\nspec: {containers: [{image: 'kops/etcd-manager:3.0', command: [/etcd-manager]}]}"),
            Ok(None)
        );
        assert_eq!(parse("kind: ConfigMap\n"), Ok(None));
        assert_eq!(parse(""), Ok(None));
        assert!(parse("kind: [Pod\n").is_err());
        assert!(parse("a: &a [x, x]\nb:\n- *a\n").is_err());
    }

    #[test]
    fn what_nests_deeper_than_any_manifest_is_an_error_and_not_the_end_of_the_stack() {
        let deep = 50_000;
        let block: String = (0..600).map(|depth| " ".repeat(depth) + "a:\n").collect();
        for text in ["[".repeat(deep), "{a: ".repeat(deep), "- ".repeat(deep), "? ".repeat(deep), block] {
            let shown: String = text.chars().take(20).collect();
            assert!(parse(&text).is_err(), "{shown}");
        }
        assert_eq!(parse(&format!("kind: ConfigMap\ndata: {{a: \"{}\"}}\n", "[{".repeat(10))), Ok(None));
    }
}
