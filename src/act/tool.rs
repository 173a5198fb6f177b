//! Other people's programs (mkfs.ext4, e2fsck), run with a fixed environment, the device as standard input, and a deadline.
//!
//! Standard input is the only descriptor that a child gets besides its output: everything else of ours is close-on-exec.
//! Without a terminal no program can ask a question.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Where distributions keep them. Never `PATH`: it belongs to whoever started us.
const DIRECTORIES: &[&str] = &["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// Output kept; the rest is read and dropped, so that the program does not block on a full pipe.
const OUTPUT_LIMIT: usize = 64 * 1024;
/// Between two looks at whether a program has ended whose output is at its end.
const WAIT_EVERY: Duration = Duration::from_millis(5);
/// How long a killed program is waited for. One that hangs in the kernel cannot be reaped.
const REAP_WITHIN: Duration = Duration::from_secs(5);

/// A program that ended by itself.
#[derive(Debug)]
pub(super) struct Ended {
    /// `None`: ended by a signal.
    pub exit: Option<i32>,
    /// Standard output and error together, as they came.
    pub output: String,
}

#[derive(Debug, Error)]
pub enum ToolError {
    #[error("{name} is not installed (looked in {})", DIRECTORIES.join(", "))]
    NotFound { name: &'static str },
    #[error("run {program}")]
    Run {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{program} did not end within {} s{}", .limit.as_secs(), if *.killed { " and was stopped" } else { " and cannot be stopped: it hangs in the kernel" })]
    TimedOut { program: PathBuf, limit: Duration, killed: bool, output: String },
}

/// The absolute path of a program.
pub(super) fn find(name: &'static str) -> Result<PathBuf, ToolError> {
    DIRECTORIES
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file())
        .ok_or(ToolError::NotFound { name })
}

/// Runs a program to its end or to the deadline, whichever comes first.
pub(super) fn run(program: &Path, arguments: &[&str], stdin: Stdio, limit: Duration) -> Result<Ended, ToolError> {
    let failed = |source| ToolError::Run { program: program.to_owned(), source };
    let until = Instant::now().checked_add(limit);
    let (mut reader, writer) = io::pipe().map_err(failed)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(stdin)
        .stdout(writer.try_clone().map_err(failed)?)
        .stderr(writer);
    let mut child = crate::children::starting(|| command.spawn()).map_err(failed)?;
    // Our copies of the pipe's writing end must go, or its end is never seen.
    drop(command);
    crate::fault::fault_point_in_child(program, child.id());

    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        let mut chunk = [0u8; 4096];
        loop {
            match reader.read(&mut chunk) {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    let room = OUTPUT_LIMIT.saturating_sub(kept.len());
                    kept.extend(chunk.iter().take(count.min(room)));
                }
            }
        }
        // The receiver is gone when the program was given up on.
        let _ = send.send(String::from_utf8_lossy(&kept).into_owned());
    });

    let left = || until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
    let output = receive.recv_timeout(left());
    let status = match &output {
        Ok(_) => wait_until(&mut child, left()).map_err(failed)?,
        Err(_) => None,
    };
    match (status, output) {
        (Some(status), Ok(output)) => Ok(Ended { exit: status.code(), output }),
        (_, output) => {
            child.kill().map_err(failed)?;
            let killed = wait_until(&mut child, REAP_WITHIN).map_err(failed)?.is_some();
            let output = output.or_else(|_| receive.recv_timeout(REAP_WITHIN)).unwrap_or_else(|_| String::new());
            Err(ToolError::TimedOut { program: program.to_owned(), limit, killed, output })
        }
    }
}

fn wait_until(child: &mut Child, within: Duration) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now().checked_add(within);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if until.is_none_or(|until| Instant::now() >= until) {
            return Ok(None);
        }
        thread::sleep(WAIT_EVERY);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::wildcard_enum_match_arm)]
    use super::*;

    #[test]
    fn a_program_inherits_its_standard_descriptors_and_nothing_else() {
        let held = tempfile::NamedTempFile::new().unwrap();
        let ls = find("ls").unwrap();
        let ended = run(&ls, &["-l", "/proc/self/fd"], Stdio::null(), Duration::from_secs(60)).unwrap();
        assert!(ended.output.contains("0 -> /dev/null"), "{}", ended.output);
        let name = held.path().to_str().unwrap();
        assert!(!ended.output.contains(name), "the child has our file open:\n{}", ended.output);
    }

    #[test]
    fn the_environment_of_whoever_started_us_is_not_passed_on() {
        let ended = run(&find("env").unwrap(), &[], Stdio::null(), Duration::from_secs(60)).unwrap();
        let mut lines: Vec<_> = ended.output.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
    }

    #[test]
    fn a_program_that_does_not_end_is_stopped_at_its_deadline() {
        let error = run(&find("sleep").unwrap(), &["600"], Stdio::null(), Duration::from_millis(50)).unwrap_err();
        match error {
            ToolError::TimedOut { killed, .. } => assert!(killed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        assert!(find("no-such-tool").unwrap_err().to_string().contains("no-such-tool"));
    }

    #[test]
    fn more_output_than_is_kept_does_not_block_the_program() {
        let ended = run(&find("seq").unwrap(), &["1", "100000"], Stdio::null(), Duration::from_secs(60)).unwrap();
        assert_eq!((ended.exit, ended.output.len()), (Some(0), OUTPUT_LIMIT));
    }
}
