//! Which version a program of etcd says it is.
//!
//! The program is run, so what it may do is bounded first: the child confines itself as far as a program that has to be
//! loaded still starts, then becomes it. Its answer is read as text; it speaks none of our lines.

use super::confine::confine_program;
use super::parent::spawn;
use super::{Line, Request};
use crate::model::{EtcdVersion, Observed, Why};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of an answer; etcd's has a hundred.
const LONGEST: u64 = 16 * 1024;

/// Asks `program` with `--version`. Not answered within `limit`, ended badly, or not answered as an etcd answers: unknown.
pub async fn etcd_version(program: &Path, limit: Duration) -> Observed<EtcdVersion> {
    let shown = program.display().to_string();
    let unreadable = |detail: String| Observed::Unknown(Why::Unreadable { detail });
    let Some(path) = program.to_str() else { return unreadable(format!("{shown} --version: its path is no text")) };
    let request = serde_json::to_string(&Request::EtcdVersion { program: path.to_owned() });
    let started = request.map_err(std::io::Error::from).and_then(|request| {
        let input = File::open("/dev/null")?;
        spawn(input.into(), &request)
    });
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return unreadable(format!("{shown} --version: {error}")),
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let answered = tokio::time::timeout(limit, async {
        let (out, err) = tokio::join!(text(out), text(err));
        (out, err, child.wait().await)
    });
    // Dropping the child kills it.
    match answered.await {
        Err(_late) => {
            let detail = format!("{shown} --version did not end within {} s", limit.as_secs());
            Observed::Unknown(Why::TimedOut { detail })
        }
        Ok((out, _, Ok(status))) if status.success() => match version_in(&out) {
            Some(version) => Observed::Seen(version),
            None => unreadable(format!("{shown} --version names no version of etcd")),
        },
        Ok((_, err, status)) => {
            let said = err.lines().last().unwrap_or_default().trim().to_owned();
            let ended = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            unreadable(format!("{shown} --version failed ({ended}): {said}"))
        }
    }
}

async fn text(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // What could be read before an error is the answer; one that is cut names no version.
        let _read = pipe.take(LONGEST).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `etcd Version: 3.5.16`, in every version since 2.0.
fn version_in(answer: &str) -> Option<EtcdVersion> {
    let line = answer.lines().find_map(|line| line.trim().strip_prefix("etcd Version:"))?;
    // `3.6.0-rc.0`, `3.4.0+git`: the numbers are what counts.
    let numbers = line.trim().split(['-', '+']).next()?;
    numbers.parse().ok()
}

/// The child's side: confined, it becomes the program. Returns only when it cannot.
#[expect(clippy::disallowed_methods, reason = "the confined worker becomes the program; it starts none")]
pub(super) fn become_program(program: &str) -> std::io::Error {
    let confined = match confine_program() {
        Ok(confined) => confined,
        Err(error) => return std::io::Error::other(error),
    };
    if let Err(error) = super::child::say(&Line::Confined(confined)) {
        return error;
    }
    Command::new(program).arg("--version").env_clear().env("LC_ALL", "C").current_dir("/").stdin(Stdio::null()).exec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_every_etcd_is_understood_and_another_programs_is_not() {
        let of = |text: &str| version_in(text).map(|version| version.to_string());
        let answer = "{\"confined\":{}}\netcd Version: 3.4.23\nGit SHA: Not provided\nGo Version: go1.19.8\n";
        assert_eq!(of(answer).as_deref(), Some("3.4.23"));
        assert_eq!(of("etcd Version: 2.2.1\nGit SHA: 75f8282\n").as_deref(), Some("2.2.1"));
        assert_eq!(of("etcd Version: 3.6.0-rc.1\n").as_deref(), Some("3.6.0"));
        for other in ["etcdctl version: 3.4.23\nAPI version: 3.4\n", "etcd Version: \n", "etcd Version: x.y", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
