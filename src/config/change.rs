//! What a new configuration may change for a guard whose gate is open, and what has to wait until it is closed.
//!
//! An etcd runs on what was mounted: another device, another place or another data dir would be a statement about something
//! that is not so. How the next start is judged may change at any time.

use super::GuardConfig;
use super::show::device_words;

/// `wanted` as far as an open gate allows it; what is held back keeps the value of `running`, one sentence each.
pub fn hold_back(running: &GuardConfig, wanted: &GuardConfig) -> (GuardConfig, Vec<String>) {
    // Taken apart in full: whoever adds a key decides here.
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
    } = wanted.clone();
    let mut told = Vec::new();
    let mut keep = |key: &str, old: String, new: String| {
        if old != new {
            told.push(format!(
                "`{key}` of {name} is {new} now in the configuration; {old} stays while its gate is open, so until the next boot"
            ));
        }
    };
    keep("device", device_words(&running.device), device_words(&device));
    keep("fstype", running.fstype.as_str().to_owned(), fstype.as_str().to_owned());
    keep("publish", running.publish.words(), publish.words());
    let dir = |dir: &Option<String>| dir.clone().unwrap_or_else(|| "not set".to_owned());
    keep("data_dir", dir(&running.data_dir), dir(&data_dir));
    let options = |options: &[String]| if options.is_empty() { "none".to_owned() } else { options.join(",") };
    keep("mount_options", options(&running.mount_options), options(&mount_options));
    let kept = GuardConfig {
        name,
        mode,
        device: running.device.clone(),
        fstype: running.fstype,
        format,
        publish: running.publish.clone(),
        data_dir: running.data_dir.clone(),
        owner,
        dir_mode,
        fresh,
        member,
        peer_url,
        mount_options: running.mount_options.clone(),
        witness,
        snapshot,
        grow,
        restart,
        etcd,
        at_run_time,
    };
    (kept, told)
}

/// A guard with an open gate is not in the configuration any more.
pub fn removal_held_back(running: &GuardConfig) -> String {
    format!(
        "{} is not in the configuration any more; it stays while its gate is open, so until the next boot",
        running.name
    )
}
