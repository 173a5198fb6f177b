//! A validated configuration as text that reads back as the same: for `config show`, and for what is kept.

use super::{AtRunTime, Config, GuardConfig, Http, Metrics, Place};
use crate::model::{DeviceSpec, EbsSpec, FormatPolicy, Mode, Publish, PublishDir, TagSpec};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// One key with its value, in the order of the README's table.
enum Says {
    Text(String),
    List(Vec<String>),
    /// One line each, in its own braces.
    Tables(Vec<Vec<(&'static str, String)>>),
}

/// As TOML, every key with a value, defaults too. With `origins` each line ends with where its value comes from.
pub fn toml(config: &Config, origins: Option<&BTreeMap<String, Place>>) -> String {
    let mut text = "[paths]\n".to_owned();
    lines(&mut text, "paths", paths(config), origins);
    let http = http(config);
    if !http.is_empty() {
        text.push_str("\n[http]\n");
        lines(&mut text, "http", http, origins);
    }
    let metrics = metrics(config);
    if !metrics.is_empty() {
        text.push_str("\n[metrics]\n");
        lines(&mut text, "metrics", metrics, origins);
    }
    for guard in &config.guards {
        text.push_str("\n[[guard]]\n");
        lines(&mut text, &format!("guard.{}", guard.name), pairs(guard), origins);
    }
    text
}

/// As JSON, in the same shape.
pub fn json(config: &Config) -> Value {
    let table = |pairs: Vec<(&str, Says)>| {
        let values = pairs.into_iter().map(|(name, says)| {
            let value = match says {
                Says::Text(text) => Value::String(text),
                Says::List(list) => json!(list),
                Says::Tables(tables) => tables
                    .into_iter()
                    .map(|table| {
                        Value::Object(table.into_iter().map(|(key, text)| (key.to_owned(), json!(text))).collect())
                    })
                    .collect(),
            };
            (name.to_owned(), value)
        });
        Value::Object(values.collect::<Map<String, Value>>())
    };
    let guards: Vec<Value> = config.guards.iter().map(|guard| table(pairs(guard))).collect();
    json!({ "paths": table(paths(config)), "http": table(http(config)), "metrics": table(metrics(config)), "guard": guards })
}

fn paths(config: &Config) -> Vec<(&'static str, Says)> {
    let text = |path: &std::path::Path| Says::Text(path.display().to_string());
    vec![("state", text(&config.paths.state)), ("run", text(&config.paths.run))]
}

fn http(config: &Config) -> Vec<(&'static str, Says)> {
    let Http { listen, group } = &config.http;
    let all = [("listen", listen.map(|listen| listen.to_string())), ("group", group.clone())];
    all.into_iter().filter_map(|(name, text)| Some((name, Says::Text(text?)))).collect()
}

fn metrics(config: &Config) -> Vec<(&'static str, Says)> {
    let Metrics { textfile_dir } = &config.metrics;
    textfile_dir.iter().map(|dir| ("textfile_dir", Says::Text(dir.display().to_string()))).collect()
}

fn pairs(guard: &GuardConfig) -> Vec<(&'static str, Says)> {
    let GuardConfig {
        name,
        mode,
        device,
        fstype,
        format,
        publish,
        data_dir,
        owner,
        dir_mode,
        fresh,
        member,
        peer_url,
        mount_options,
        witness,
        snapshot,
        grow,
        restart,
        etcd,
        at_run_time,
    } = guard;
    let mode = match mode {
        Mode::Observe => "observe",
        Mode::Enforce => "enforce",
    };
    let format = match format {
        FormatPolicy::Never => "never",
        FormatPolicy::IfBlank => "if-blank",
    };
    let (provider, device_key, named) = match device {
        DeviceSpec::Path(_) | DeviceSpec::Uuid(_) | DeviceSpec::Label(_) => ("local", "device", Some(device.words())),
        DeviceSpec::Ebs(EbsSpec::Id(id)) => ("ebs", "volume_id", Some(id.to_string())),
        // A list, below.
        DeviceSpec::Ebs(EbsSpec::Tags(_)) => ("ebs", "volume_tags", None),
    };
    let all = [
        ("name", Some(name.to_string())),
        ("mode", Some(mode.to_owned())),
        ("provider", Some(provider.to_owned())),
        (device_key, named),
        ("fstype", Some(fstype.as_str().to_owned())),
        ("format", Some(format.to_owned())),
        ("data_dir", data_dir.clone()),
        ("owner", owner.as_ref().map(|owner| format!("{}:{}", owner.user, owner.group))),
        ("dir_mode", Some(format!("{dir_mode:04o}"))),
        ("fresh", Some(if *fresh { "allow" } else { "deny" }.to_owned())),
        ("member", member.clone()),
        ("peer_url", peer_url.clone()),
    ];
    let mut pairs: Vec<(&'static str, Says)> =
        all.into_iter().filter_map(|(name, text)| Some((name, Says::Text(text?)))).collect();
    let after_format =
        pairs.iter().position(|(name, _)| *name == "format").map_or(pairs.len(), |at| at.saturating_add(1));
    pairs.insert(after_format, ("publish", publish_says(publish)));
    if let DeviceSpec::Ebs(EbsSpec::Tags(tags)) = device {
        let after_provider =
            pairs.iter().position(|(name, _)| *name == "provider").map_or(pairs.len(), |at| at.saturating_add(1));
        pairs.insert(after_provider, ("volume_tags", Says::List(tags.iter().map(TagSpec::to_string).collect())));
    }
    if !mount_options.is_empty() {
        pairs.push(("mount_options", Says::List(mount_options.clone())));
    }
    let witness = if *witness { "write" } else { "read" };
    pairs.push(("witness", Says::Text(witness.to_owned())));
    pairs.push(("snapshot", Says::Text(snapshot.as_str().to_owned())));
    pairs.push(("grow", Says::Text(if *grow { "online" } else { "never" }.to_owned())));
    pairs.push(("restart", Says::Text(if *restart { "etcd-manager" } else { "never" }.to_owned())));
    pairs.extend(etcd.iter().map(|etcd| ("etcd", Says::Text(etcd.to_string()))));
    pairs.push(("at_run_time", Says::Text(at_run_time.as_str().to_owned())));
    if let AtRunTime::Stop(units) = at_run_time {
        pairs.push(("stop_units", Says::List(units.clone())));
    }
    pairs
}

fn publish_says(publish: &Publish) -> Says {
    if publish.is_whole() {
        return Says::Text(publish.main(None).display().to_string());
    }
    let entry = |entry: &PublishDir| vec![("from", entry.from.clone()), ("at", entry.at.display().to_string())];
    Says::Tables(publish.entries().iter().map(entry).collect())
}

/// The device as it stands in the configuration.
pub fn device_words(device: &DeviceSpec) -> String {
    device.words()
}

/// Where the column of origins begins, unless a value is longer.
const COLUMN: usize = 44;

fn lines(text: &mut String, table: &str, pairs: Vec<(&str, Says)>, origins: Option<&BTreeMap<String, Place>>) {
    for (name, says) in pairs {
        let value = match says {
            Says::Text(text) => quoted(&text),
            Says::List(list) => format!("[{}]", list.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(", ")),
            Says::Tables(tables) => {
                let table = |table: Vec<(&str, String)>| {
                    let pairs = table.iter().map(|(key, text)| format!("{key} = {}", quoted(text)));
                    format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
                };
                format!("[{}]", tables.into_iter().map(table).collect::<Vec<_>>().join(", "))
            }
        };
        let line = format!("{name} = {value}");
        match origins {
            Some(origins) => {
                let place = origins.get(&format!("{table}.{name}")).unwrap_or(&Place::Default);
                let place: String = place.short().chars().filter(|c| !c.is_control()).collect();
                text.push_str(&format!("{line:COLUMN$}  # {place}\n"));
            }
            None => text.push_str(&format!("{line}\n")),
        }
    }
}

/// A basic string of TOML 1.0.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
