//! Questions to programs of the system: `systemctl`, versions. Each with a fixed environment, an absolute path and a deadline;
//! a systemd that hangs is an answer of its own. The few orders to systemd that `enable` and `disable` give go the same way.

use super::tool;
use crate::model::{Observed, Why};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Longest that systemctl may take. `daemon-reload` on a busy machine takes seconds.
const SYSTEMD: Duration = Duration::from_secs(20);
/// Longest that a program may take to print its version.
const VERSION: Duration = Duration::from_secs(10);

/// Is this machine's PID 1 systemd (sd_booted(3))?
pub fn systemd_runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// What systemctl printed. An exit code other than 0 is an answer too, and told with what it printed.
pub fn systemctl(arguments: &[&str]) -> Observed<String> {
    let program = match tool::find("systemctl") {
        Ok(program) => program,
        Err(error) => return Observed::not_run(error.to_string()),
    };
    let mut all = vec!["--no-pager", "--no-ask-password"];
    all.extend(arguments);
    match tool::run(&program, &all, Stdio::null(), SYSTEMD) {
        Ok(ended) if ended.exit == Some(0) => Observed::Seen(ended.output),
        Ok(ended) => {
            let detail = format!("systemctl {}: {}", arguments.join(" "), ended.output.trim());
            Observed::Unknown(Why::Unreadable { detail })
        }
        Err(error @ tool::ToolError::TimedOut { .. }) => Observed::Unknown(Why::TimedOut { detail: error.to_string() }),
        Err(error) => Observed::Unknown(Why::Unreadable { detail: error.to_string() }),
    }
}

/// The first line that a program prints about its version; `None`: it is not installed.
pub fn version(name: &'static str, flag: &str) -> Observed<Option<String>> {
    let Ok(program) = tool::find(name) else { return Observed::Seen(None) };
    match tool::run(&program, &[flag], Stdio::null(), VERSION) {
        Ok(ended) => {
            let line = ended.output.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            if line.is_empty() || ended.exit.is_none() {
                return Observed::Unknown(Why::Unreadable { detail: format!("{name} {flag} printed nothing") });
            }
            let line = line.trim();
            // e2fsck prints `e2fsck 1.47.0 (5-Feb-2023)`, mkfs.xfs `mkfs.xfs version 6.1.0`.
            Observed::Seen(Some(if line.starts_with(name) { line.to_owned() } else { format!("{name}: {line}") }))
        }
        Err(error) => Observed::Unknown(Why::Unreadable { detail: error.to_string() }),
    }
}
