//! Looks at a block device or an image as bytes: what libblkid says, what the bytes are, which signatures stand where.
//!
//! Exists because "nothing found" is what every tool says that could not read. Here every byte is either read or named as
//! unread, and blank is what was read completely and is zero. Nothing in this room writes, claims, locks or mounts, and
//! nothing decides: it answers with the evidence types of `model`, which `decide` judges.
//!
//! The order of work, which is also the order of [`ProbeAnswer`]s: libblkid; the telling regions ([`telling`]: superblocks,
//! their backups, tails); where those say nothing, samples spread over the device and what lies behind a block that is not
//! blank and has no name; and only where all of that is blank the pass over every byte ([`scan`]).
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm
)]

mod blkid;
mod bytes;
mod classify;
mod ext;
mod features;
mod gpt;
mod regions;
mod report;
mod scan;
mod signature;
mod source;
mod telling;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests;
mod traces;
mod xfs;

pub use report::{DeviceReport, LibblkidReport, blank, report};
pub use signature::{ext_size, filesystem, signatures};
pub use telling::second_reading;

use crate::model::{
    BlkidAnswer, Content, ContentClass, DeviceReading, FilesystemFacts, Finding, Observed, Validated, Why,
};
use scan::Pass;
use serde::{Deserialize, Serialize};
use source::Source;
use std::fs::File;
use std::time::{Duration, Instant};
use telling::FirstReading;

/// What is asked of an examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeRequest {
    /// Read every byte where the telling regions are blank. Without it the content is never complete, hence never proof.
    pub full_scan: bool,
    /// Read past the page cache where that is possible.
    pub direct: bool,
}

/// What comes out while an examination goes on, in this order, so that whoever loses the reader still has what it said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeAnswer {
    Libblkid(Observed<BlkidAnswer>),
    /// What the telling regions hold.
    Telling {
        findings: Vec<Finding>,
        filesystem: Option<FilesystemFacts>,
    },
    /// Bytes read of those to be read. Comes only when something was read since the last one.
    Progress {
        done: u64,
        total: u64,
        /// Reads go past the page cache. False also where that was asked for and cannot be.
        direct: bool,
    },
    Content(Observed<Content>),
}

/// Progress is told when so many bytes or so much time have gone by since the last time.
const PROGRESS_BYTES: u64 = 64 << 20;
const PROGRESS_TIME: Duration = Duration::from_secs(1);

/// Examines the device or image behind `file`, whose position may move. Blocks as long as the device does: the deadline is
/// the caller's, who runs this in a process that can be given up.
pub fn examine(file: &File, request: &ProbeRequest, answer: &mut dyn FnMut(ProbeAnswer)) -> DeviceReading {
    let libblkid = match source::plain(file) {
        Ok(plain) => blkid::ask(&plain),
        Err(error) => Observed::Unknown(Why::Unreadable {
            detail: format!("libblkid was not asked: the descriptor cannot be used for it: {error}"),
        }),
    };
    answer(ProbeAnswer::Libblkid(libblkid.clone()));

    let (content, filesystem) = match Source::open(file, request.direct) {
        Err(error) => (Observed::Unknown(error.why()), None),
        Ok(source) => read(&source, request.full_scan, answer),
    };
    answer(ProbeAnswer::Content(content.clone()));
    DeviceReading { libblkid, content, filesystem }
}

fn read(
    source: &Source,
    full_scan: bool,
    answer: &mut dyn FnMut(ProbeAnswer),
) -> (Observed<Content>, Option<FilesystemFacts>) {
    let (direct, total) = (source.is_direct(), source.size());
    let search = signature::Search::new(total);
    let mut meter = Meter { told_at: Instant::now(), told: 0 };

    let first = telling::first_reading(source, &search, &mut |done| {
        if meter.is_time(done) {
            answer(ProbeAnswer::Progress { done, total, direct });
        }
    });
    answer(ProbeAnswer::Telling { findings: first.findings.clone().sorted(), filesystem: first.filesystem.clone() });

    let blank_so_far = first.errors.is_empty() && first.judged.first_other.is_none() && !first.findings.any_validated();
    let pass = (full_scan && blank_so_far).then(|| {
        meter.told = 0;
        scan::pass(source, &search, &mut |done| {
            if done == total || meter.is_time(done) {
                answer(ProbeAnswer::Progress { done, total, direct });
            }
        })
    });
    let filesystem = first.filesystem.clone();
    (conclude(source, first, pass), filesystem)
}

struct Meter {
    told_at: Instant,
    told: u64,
}

impl Meter {
    fn is_time(&mut self, done: u64) -> bool {
        let due = done.saturating_sub(self.told) >= PROGRESS_BYTES || self.told_at.elapsed() >= PROGRESS_TIME;
        if due {
            (self.told_at, self.told) = (Instant::now(), done);
        }
        due
    }
}

/// Puts first reading and pass together. A read that failed makes the content unknown, unless something was found that
/// refuses by itself: then both are told.
fn conclude(source: &Source, first: FirstReading, pass: Option<Pass>) -> Observed<Content> {
    let size = source.size();
    let size_after = match source.size_now() {
        Ok(size_after) => size_after,
        Err(error) => return Observed::Unknown(error.why()),
    };
    let (mut judged, mut findings, mut errors) = (first.judged, first.findings, first.errors);
    let mut covered = 0;
    let ran = pass.is_some();
    if let Some(pass) = pass {
        judged = judged.and(pass.judged);
        findings.extend(pass.findings.sorted());
        errors.extend(pass.error);
        covered = pass.covered;
    }
    let refuses = judged.first_other.is_some() || findings.any_validated();
    if let (false, Some(error)) = (refuses, errors.first()) {
        return Observed::Unknown(error.why());
    }
    let beyond = regions::joined(&first.regions).into_iter().map(|region| {
        let end = region.offset.saturating_add(region.len as u64);
        end.saturating_sub(region.offset.max(covered))
    });
    let (class, first_other) = match judged {
        telling::Judged { first_other: Some(offset), .. } => (ContentClass::Other, Some(offset)),
        telling::Judged { first_other: None, first_uniform: Some(offset) } => (ContentClass::Uniform, Some(offset)),
        telling::Judged { first_other: None, first_uniform: None } => (ContentClass::Zero, None),
    };
    Observed::Seen(Content {
        class,
        complete: ran && covered == size && size_after == size && errors.is_empty(),
        bytes_read: beyond.fold(covered, u64::saturating_add).min(size),
        read_errors: errors.len() as u64,
        first_other,
        sample: first_other
            .and_then(|offset| source.block(offset))
            .and_then(|(block, at)| classify::sample(&block, at)),
        findings: findings.sorted(),
        telling_digest: first.digest,
        size_before: size,
        size_after,
    })
}

/// What is known when the reader was lost: its answers so far, and `missing` for the rest. A finding that refuses by itself
/// is kept, with the lost reader counted as a failed read.
pub fn assemble(answers: impl Iterator<Item = ProbeAnswer>, missing: Why) -> DeviceReading {
    let mut reading = DeviceReading {
        libblkid: Observed::Unknown(missing.clone()),
        content: Observed::Unknown(missing),
        filesystem: None,
    };
    let mut size = 0;
    let mut bytes_read = 0;
    let mut findings = Vec::new();
    let mut concluded = false;
    for answer in answers {
        match answer {
            ProbeAnswer::Libblkid(said) => reading.libblkid = said,
            ProbeAnswer::Telling { findings: found, filesystem } => {
                (findings, reading.filesystem) = (found, filesystem)
            }
            ProbeAnswer::Progress { done, total, direct: _ } => (bytes_read, size) = (done, total),
            ProbeAnswer::Content(content) => (reading.content, concluded) = (content, true),
        }
    }
    if !concluded && findings.iter().any(|finding| finding.validated > Validated::Magic) {
        reading.content = Observed::Seen(Content {
            class: ContentClass::Other,
            complete: false,
            bytes_read,
            read_errors: 1,
            first_other: None,
            sample: None,
            findings,
            telling_digest: String::new(),
            size_before: size,
            size_after: size,
        });
    }
    reading
}
