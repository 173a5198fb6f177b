//! The pass: every byte of the device, in order, judged block by block.
//!
//! A few threads take the next chunk each, read it, judge it and hand on a summary; the caller's thread folds the summaries
//! in order of offset, so that the answer does not depend on which read came back first. Memory is a few megabytes for
//! any size. Only a blank device pays for all of it: the first block that is not blank ends the pass, but for a bounded look
//! further that gives the thing its name.

use super::signature::{Findings, Search};
use super::source::{Buffer, ReadError, Source};
use super::telling::{Judged, judge};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::mpsc::{SyncSender, sync_channel};

/// One request. Small enough that a slow volume answers it in time, large enough that the request itself costs nothing.
const CHUNK: u64 = 1 << 20;
/// The same where bytes come out of the page cache: nothing has to be in flight there, and a chunk that stays in a core's
/// second cache is judged from it.
const CACHED_CHUNK: u64 = 256 << 10;
/// Requests in flight: while some are being judged, the device works on the others. Eight of 1 MiB measured best.
const READERS: usize = 8;
const STACK: usize = 256 << 10;
/// How far signatures are looked for behind the first block that is not blank.
const LOOK_FURTHER: u64 = 64 << 20;

/// What the pass found, up to where it went.
pub(crate) struct Pass {
    pub judged: Judged,
    pub findings: Findings,
    /// Bytes from the start that were read (or lie in holes of an image, which read as zero).
    pub covered: u64,
    /// The read that failed first, by offset.
    pub error: Option<ReadError>,
}

/// A chunk that a reader took. Numbers go up by one without gaps; offsets may jump over holes.
struct Chunk {
    number: u64,
    offset: u64,
    len: u64,
}

struct Summary {
    chunk: Chunk,
    judged: Result<(Judged, Findings), ReadError>,
}

/// Where the next chunk begins and where no more are taken.
struct Claims {
    next: u64,
    number: u64,
    end: u64,
    /// Bytes of a chunk.
    longest: u64,
}

/// Reads the device from start to end. `progress` gets the bytes covered, whenever that grew.
pub(crate) fn pass(source: &Source, search: &Search, progress: &mut dyn FnMut(u64)) -> Pass {
    let longest = if source.is_direct() { CHUNK } else { CACHED_CHUNK };
    let claims = Mutex::new(Claims { next: 0, number: 0, end: source.size(), longest });
    let (sender, receiver) = sync_channel::<Summary>(READERS);
    let mut fold = Fold {
        done: Pass { judged: Judged::default(), findings: Findings::default(), covered: 0, error: None },
        waiting: BTreeMap::new(),
        expected: 0,
        end: source.size(),
    };
    let mut not_started = None;
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            let (sender, claims) = (sender.clone(), &claims);
            let spawned = std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || read_chunks(source, search, claims, &sender));
            if let Err(source) = spawned {
                not_started = Some(source);
            }
        }
        drop(sender);
        for summary in receiver {
            let before = fold.done.covered;
            fold.take(summary);
            lock(&claims).end = fold.end;
            if fold.done.covered > before {
                progress(fold.done.covered);
            }
        }
    });
    let mut done = fold.done;
    if done.error.is_none() && fold.end == source.size() {
        let taken = lock(&claims);
        if taken.next >= source.size() && taken.number == fold.expected {
            // What lies behind the last chunk is a hole.
            done.covered = source.size();
        } else {
            let source = not_started.unwrap_or_else(|| std::io::Error::other("a reader ended early"));
            done.error = Some(ReadError::NoThread { source });
        }
    }
    done
}

/// A poisoned lock only means that another reader ended early, which is noticed by the chunk it owes.
fn lock(claims: &Mutex<Claims>) -> std::sync::MutexGuard<'_, Claims> {
    claims.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn claim(source: &Source, claims: &Mutex<Claims>) -> Option<Chunk> {
    let mut claims = lock(claims);
    if claims.next >= claims.end {
        return None;
    }
    let offset = match source.next_data(claims.next) {
        // Chunks keep their alignment behind a hole.
        Some(data) => data.saturating_sub(data.checked_rem(claims.longest).unwrap_or(0)).max(claims.next),
        None => source.size(),
    };
    claims.next = offset;
    if offset >= claims.end {
        return None;
    }
    let len = source.size().saturating_sub(offset).min(claims.longest);
    let number = claims.number;
    claims.number = number.saturating_add(1);
    claims.next = offset.saturating_add(len);
    Some(Chunk { number, offset, len })
}

fn read_chunks(source: &Source, search: &Search, claims: &Mutex<Claims>, sender: &SyncSender<Summary>) {
    let mut buffer = Buffer::new(CHUNK as usize);
    while let Some(chunk) = claim(source, claims) {
        let len = usize::try_from(chunk.len).unwrap_or(0);
        let read = source.read(chunk.offset, len, &mut buffer).map(|data| {
            let mut findings = Findings::default();
            (judge(search, data, chunk.offset, &mut findings), findings)
        });
        let judged = read.map_err(|error| source.narrow(chunk.offset, len, error, &mut buffer));
        if sender.send(Summary { chunk, judged }).is_err() {
            break;
        }
    }
}

/// Puts summaries together in order.
struct Fold {
    done: Pass,
    waiting: BTreeMap<u64, Summary>,
    expected: u64,
    /// Nothing at or behind this offset is taken in any more.
    end: u64,
}

impl Fold {
    fn take(&mut self, summary: Summary) {
        self.waiting.insert(summary.chunk.number, summary);
        while let Some(Summary { chunk, judged }) = self.waiting.remove(&self.expected) {
            self.expected = self.expected.saturating_add(1);
            if chunk.offset >= self.end {
                continue;
            }
            let chunk_end = chunk.offset.saturating_add(chunk.len);
            match judged {
                Err(error) => {
                    self.done.covered = chunk.offset;
                    self.done.error = Some(error);
                    self.end = chunk.offset;
                }
                Ok((judged, findings)) => {
                    let blank_before = self.looks_blank();
                    self.done.judged = self.done.judged.and(judged);
                    self.done.findings.extend(findings.sorted());
                    self.done.covered = chunk_end;
                    if blank_before && !self.looks_blank() {
                        self.end = self.end.min(chunk_end.saturating_add(LOOK_FURTHER));
                    }
                }
            }
        }
    }

    fn looks_blank(&self) -> bool {
        self.done.judged.first_other.is_none() && !self.done.findings.any_validated()
    }
}
