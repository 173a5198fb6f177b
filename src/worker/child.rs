//! The child's side: one request, standard input as its only object, JSON lines as its only answer.

use super::confine::{Confinement, Given, confine};
use super::{Line, Request};
use crate::model::{Observed, Why};
use crate::{etcd, probe};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Answers one request about standard input and returns the process's exit code: 0 answered, 1 not.
pub fn child_main(request: &str) -> u8 {
    let request: Request = match serde_json::from_str(request) {
        Ok(request) => request,
        Err(why) => {
            eprintln!("worker: not a request: {why}");
            return 1;
        }
    };
    if let Request::EtcdVersion { program } = &request {
        eprintln!("worker: {program}: {}", super::version::become_program(program));
        return 1;
    }
    match ready(&request).and_then(|walls| {
        say(&Line::Confined(walls))?;
        answer(&request)
    }) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("worker: {why}");
            1
        }
    }
}

/// Does what takes rights, then gives them up. Nothing that anybody wrote has been read before this returns.
fn ready(request: &Request) -> std::io::Result<Confinement> {
    let stdin = std::io::stdin();
    let given = match request {
        Request::Probe(_)
        | Request::SecondReading { .. }
        | Request::File { .. }
        | Request::State
        | Request::EditState(_)
        | Request::EtcdVersion { .. } => Given::Bytes(stdin.as_fd()),
        Request::Volume(_) => {
            etcd::remember_lock_owners(stdin.as_fd());
            Given::Tree(stdin.as_fd())
        }
        Request::Mark { .. } | Request::Facts | Request::Hash(_) => Given::Tree(stdin.as_fd()),
    };
    confine(given).map_err(|why| {
        let cause = std::error::Error::source(&why).map_or_else(String::new, |cause| format!(": {cause}"));
        std::io::Error::other(format!("{why}{cause}"))
    })
}

pub(super) fn say(line: &Line) -> std::io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn answer(request: &Request) -> std::io::Result<()> {
    let stdin = std::io::stdin();
    let input = stdin.as_fd();
    match request {
        Request::Probe(request) => {
            let device = file(input)?;
            let mut broken = None;
            let mut tell = |answer| {
                if let Err(why) = say(&Line::Probe(answer)) {
                    broken = Some(why);
                }
            };
            // The answers went out one by one; what `examine` returns is their sum, which the parent makes itself.
            let _sum = probe::examine(&device, request, &mut tell);
            if let Some(why) = broken {
                return Err(why);
            }
        }
        Request::SecondReading { first_digest, size_before } => {
            let device = file(input)?;
            say(&Line::SecondReading(probe::second_reading(&device, first_digest, *size_before)))?;
        }
        Request::Volume(hints) => {
            let reading = etcd::examine_volume(input, hints);
            // Asked last: an etcd that began while the volume was read is seen.
            let running = etcd::running_on(input, &reading);
            say(&Line::Volume(Box::new(reading)))?;
            say(&Line::Running(running))?;
        }
        Request::Mark { data_dir } => say(&Line::Mark(mark(input, data_dir)))?,
        Request::Facts => {
            let facts = etcd::data_dir_facts(input, &mut pages());
            say(&Line::Facts(Box::new(facts)))?;
        }
        Request::Hash(question) => say(&Line::Hash(etcd::hash_at(input, *question, &mut pages())))?,
        Request::File { named_db } => {
            let found = etcd::read_file(&file(input)?, *named_db, &mut pages());
            let unreadable = |why: etcd::ReadError| Why::Unreadable { detail: why.to_string() };
            say(&Line::File(found.map_or_else(|why| Observed::Unknown(unreadable(why)), Observed::Seen)))?;
        }
        Request::State => {
            say(&Line::State(of_state(&file(input)?, etcd::manager_state::parse_state)))?;
        }
        // Became another program.
        Request::EtcdVersion { .. } => {}
        Request::EditState(edit) => {
            let edited = of_state(&file(input)?, |bytes| etcd::manager_state::edit_state(bytes, edit));
            say(&Line::EditedState(edited))?;
        }
    }
    say(&Line::Done)
}

/// Tells how far a reading is, four times a second at most. Who listens may be gone: then the answer will fail.
fn pages() -> impl FnMut(u64, u64) {
    let mut told = std::time::Instant::now();
    move |done, total| {
        if told.elapsed() >= std::time::Duration::from_millis(250) {
            told = std::time::Instant::now();
            drop(say(&Line::Pages { done, total }));
        }
    }
}

fn of_state<T>(file: &File, read: impl Fn(&[u8]) -> Result<T, etcd::manager_state::StateError>) -> Observed<T> {
    use etcd::ReadAt;
    let unknown = |detail: String| Observed::Unknown(Why::Unreadable { detail });
    let size = match file.size() {
        Ok(size) if size <= etcd::manager_state::MAX_BYTES => size,
        Ok(size) => return unknown(format!("{size} bytes are no state of etcd-manager")),
        Err(why) => return unknown(why.to_string()),
    };
    let bytes = match etcd::read_at::read_vec(file, 0, usize::try_from(size).unwrap_or(0)) {
        Ok(bytes) => bytes,
        Err(why) => return unknown(why.to_string()),
    };
    match read(&bytes) {
        Ok(state) => Observed::Seen(state),
        Err(why) => unknown(why.to_string()),
    }
}

fn mark(root: BorrowedFd<'_>, data_dir: &str) -> Observed<Option<crate::model::HighWater>> {
    let unreadable = |detail: String| Observed::Unknown(Why::Unreadable { detail });
    // Whoever wrote the volume may be hostile: nothing on the way may lead out of it.
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = match rustix::fs::openat2(root, data_dir, flags, Mode::empty(), beneath) {
        Ok(dir) => dir,
        // etcd makes it when it starts.
        Err(Errno::NOENT) => return Observed::Seen(None),
        Err(error) => return unreadable(format!("cannot open {data_dir}: {error}")),
    };
    match etcd::durable_mark(dir.as_fd(), data_dir) {
        Ok(mark) => Observed::Seen(mark),
        Err(error) => {
            let mut words = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                words.push_str(&format!(": {cause}"));
                source = cause.source();
            }
            unreadable(words)
        }
    }
}

/// A descriptor of its own for standard input: dropping it must not close descriptor 0.
fn file(input: BorrowedFd<'_>) -> std::io::Result<File> {
    let own: OwnedFd = input.try_clone_to_owned()?;
    Ok(File::from(own))
}
