//! The first reading: the telling regions, what they hold, and a digest by which a second reading is compared with it; where
//! they say nothing, samples spread over the device, and what is behind a block that is not blank and has no name.
//!
//! They are read on also after one that fails or says "not blank": a few megabytes on any device, and the message is the
//! better for it.

use super::classify::{Class, classify, is_zero};
use super::regions::{self, BLOCK, Region};
use super::signature::{Findings, Search, filesystem, follow_up};
use super::source::{ALIGN, Buffer, ReadError, Source};
use crate::model::{FilesystemFacts, Observed, SecondReading};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reads in flight. The regions are small and far apart, so what counts is how many the device is asked for at once.
const READERS: usize = 8;
const STACK: usize = 256 << 10;
const LONGEST: usize = 1 << 20;

/// What the telling regions say.
pub(crate) struct FirstReading {
    pub regions: Vec<Region>,
    pub findings: Findings,
    pub filesystem: Option<FilesystemFacts>,
    pub judged: Judged,
    pub digest: String,
    pub errors: Vec<ReadError>,
}

/// How blocks were judged so far, in order of offset.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judged {
    pub first_other: Option<u64>,
    pub first_uniform: Option<u64>,
}

impl Judged {
    /// Takes the earlier of what both saw.
    pub(crate) fn and(self, later: Judged) -> Judged {
        let earlier = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Judged {
            first_other: earlier(self.first_other, later.first_other),
            first_uniform: earlier(self.first_uniform, later.first_uniform),
        }
    }
}

/// Judges `data`, read at `offset`, block by block. After the first other block only signatures are looked for: one is enough.
pub(crate) fn judge(search: &Search, data: &[u8], offset: u64, findings: &mut Findings) -> Judged {
    const STRETCH: usize = 64 << 10;
    let mut judged = Judged::default();
    for (stretch, stretch_at) in data.chunks(STRETCH).zip((offset..).step_by(STRETCH)) {
        if is_zero(stretch) {
            continue;
        }
        for (block, at) in stretch.chunks(BLOCK as usize).zip((stretch_at..).step_by(BLOCK as usize)) {
            if is_zero(block) {
                continue;
            }
            if judged.first_other.is_none() {
                match classify(block) {
                    Class::Zero => {}
                    Class::Uniform => judged.first_uniform = judged.first_uniform.or(Some(at)),
                    Class::Other => judged.first_other = Some(at),
                }
            }
            if judged.first_other.is_some() {
                let from = at.checked_sub(offset).and_then(|place| usize::try_from(place).ok());
                search.written(from.and_then(|place| data.get(place..)).unwrap_or(block), at, findings);
            }
            search.block(block, at, findings);
        }
    }
    judged
}

/// Reads and judges the telling regions. `progress` gets the number of bytes read so far, whenever a region is done.
///
/// Where head and tail can be read and a filesystem stands there, the rest is left out: the volume is not blank, and a
/// healthy boot does not wait for a hundred reads that could only say so again.
pub(crate) fn first_reading(source: &Source, search: &Search, progress: &mut dyn FnMut(u64)) -> FirstReading {
    let mut regions = regions::ends(source.size());
    let (mut blocks, mut errors) = read_all(source, &regions, progress);
    let filesystem = blocks.first().filter(|(offset, _)| *offset == 0).and_then(|(_, head)| filesystem(head));
    if filesystem.is_none() || !errors.is_empty() {
        let ends: u64 = blocks.iter().map(|(_, data)| data.len() as u64).sum();
        let between = regions::between(source.size());
        let (more, more_errors) = read_all(source, &between, &mut |done| progress(ends.saturating_add(done)));
        errors.extend(more_errors);
        blocks.extend(more);
        blocks.sort_by_key(|(offset, _)| *offset);
        regions.extend(between);
    }
    let digest = digest(&blocks);
    let mut findings = Findings::default();
    let mut judged = Judged::default();
    for (offset, data) in &blocks {
        judged = judged.and(judge(search, data, *offset, &mut findings));
    }

    let covered = |offset: u64| {
        blocks.iter().any(|(start, data)| (*start..start.saturating_add(data.len() as u64)).contains(&offset))
    };
    let further: Vec<Region> = follow_up(&findings, &blocks)
        .into_iter()
        .filter(|offset| offset % BLOCK == 0 && offset.saturating_add(BLOCK) <= source.size() && !covered(*offset))
        .map(|offset| Region { offset, len: ALIGN })
        .collect();
    let (more, more_errors) = read_all(source, &further, &mut |_| {});
    errors.extend(more_errors);
    for (offset, data) in &more {
        judged = judged.and(judge(search, data, *offset, &mut findings));
    }
    if filesystem.is_none() && errors.is_empty() && !findings.any_validated() {
        // The seed is part of the digest, which is kept with the evidence: the same bytes are always looked at alike.
        let seed = digest.get(..16).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
        let mut look = |regions: Vec<Region>, judged: &mut Judged, findings: &mut Findings| {
            let (blocks, failed) = read_all(source, &regions, &mut |_| {});
            for (offset, data) in &blocks {
                *judged = judged.and(judge(search, data, *offset, findings));
            }
            errors.extend(failed);
            blocks.into_iter().map(|(offset, data)| Region { offset, len: data.len() }).collect::<Vec<Region>>()
        };
        regions.extend(look(regions::samples(source.size(), seed), &mut judged, &mut findings));
        if let Some(first) = judged.first_other {
            regions.extend(look(regions::behind(first, source.size()), &mut judged, &mut findings));
        }
    }
    FirstReading { regions, findings, filesystem, judged, digest, errors }
}

/// Reads the telling regions once more and compares their digest, and the size, with those of the first reading. To be done
/// under the device's lock; catches a writer that no claim stops.
pub fn second_reading(file: &File, first_digest: &str, size_before: u64) -> Observed<SecondReading> {
    let changed = |detail: String| Observed::Seen(SecondReading::Changed { detail });
    let source = match Source::open(file, true) {
        Ok(source) => source,
        Err(error) => return Observed::Unknown(error.why()),
    };
    if source.size() != size_before {
        return changed(format!("the size was {size_before} bytes and is now {}", source.size()));
    }
    let (blocks, errors) = read_all(&source, &regions::telling(source.size()), &mut |_| {});
    if let Some(error) = errors.first() {
        return Observed::Unknown(error.why());
    }
    let digest = digest(&blocks);
    if digest != first_digest {
        return changed(format!("the telling regions had the digest {first_digest} and now have {digest}"));
    }
    match source.size_now() {
        Ok(size) if size == size_before => Observed::Seen(SecondReading::Same),
        Ok(size) => changed(format!("the size was {size_before} bytes and is now {size}")),
        Err(error) => Observed::Unknown(error.why()),
    }
}

/// SHA-256 over offset and bytes of each 4 KiB block. What could not be read is not in it, so that the digest never equals
/// that of a whole reading.
fn digest(blocks: &[(u64, Vec<u8>)]) -> String {
    let mut hash = Sha256::new();
    for (offset, data) in blocks {
        for (block, at) in data.chunks(BLOCK as usize).zip((*offset..).step_by(BLOCK as usize)) {
            hash.update(at.to_le_bytes());
            hash.update(block);
        }
    }
    format!("{:x}", hash.finalize())
}

type Blocks = Vec<(u64, Vec<u8>)>;

/// Reads regions, several at a time; what was read and what failed, both in order of offset.
fn read_all(source: &Source, regions: &[Region], progress: &mut dyn FnMut(u64)) -> (Blocks, Vec<ReadError>) {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = std::sync::mpsc::sync_channel::<(usize, Result<Vec<u8>, ReadError>)>(READERS);
    let work = |sender: std::sync::mpsc::SyncSender<(usize, Result<Vec<u8>, ReadError>)>| {
        let mut buffer = Buffer::new(LONGEST);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(region) = regions.get(index) else { break };
            let read = match source.read(region.offset, region.len, &mut buffer) {
                Ok(data) => Ok(data.to_vec()),
                Err(error) => Err(source.narrow(region.offset, region.len, error, &mut buffer)),
            };
            if sender.send((index, read)).is_err() {
                break;
            }
        }
    };
    let mut results: Vec<Option<Result<Vec<u8>, ReadError>>> = regions.iter().map(|_| None).collect();
    let mut not_started = None;
    std::thread::scope(|scope| {
        for _ in 0..READERS.min(regions.len()) {
            let (sender, work) = (sender.clone(), &work);
            let spawned = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || work(sender));
            if let Err(source) = spawned {
                not_started = Some(source);
            }
        }
        drop(sender);
        let mut done = 0_u64;
        for (index, read) in receiver {
            done = done.saturating_add(read.as_ref().map_or(0, |data| data.len() as u64));
            if let Some(slot) = results.get_mut(index) {
                *slot = Some(read);
            }
            progress(done);
        }
    });
    let (mut blocks, mut errors) = (Vec::new(), Vec::new());
    for (region, result) in regions.iter().zip(results) {
        match result {
            Some(Ok(data)) => blocks.push((region.offset, data)),
            Some(Err(error)) => errors.push(error),
            None => {
                let source = not_started.take().unwrap_or_else(|| std::io::Error::other("a reader ended early"));
                errors.push(ReadError::NoThread { source });
            }
        }
    }
    (blocks, errors)
}
