//! `inspect DEVICE-OR-IMAGE`: what stands there as bytes, and whether it could be formatted if one wanted to.

use super::block_on;
use crate::cli::exit::Exit;
use crate::cli::explain::{device_lines, finding_title, reading_lines};
use crate::cli::output::{Context, Failure, diagnose, io_failure};
use crate::cli::status::reason_line;
use crate::cli::text::{Screen, Tone, bytes};
use crate::config::Config;
use crate::decide::format::objections_to_reading;
use crate::device::{Device, DeviceError, Sysfs, resolve, uses};
use crate::model::{
    Blank, ContentClass, DeviceFacts, DeviceReading, DeviceSpec, DeviceUse, FilesystemFacts, Finding, Fstype, Observed,
    Reason, ReasonCode, Status,
};
use crate::probe::{LibblkidReport, ProbeRequest, report};
use crate::worker::{self, Deadline};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::Path;

/// The document of `inspect DEVICE -o json`.
#[derive(Debug, Serialize)]
struct DeviceReport {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    path: String,
    size: Option<u64>,
    serial: Option<String>,
    blank: Blank,
    content: Option<ContentClass>,
    /// As if the policy were `if-blank` and no record existed.
    format: Verdict,
    findings: Vec<Finding>,
    bytes_read: u64,
    read_errors: u64,
    libblkid: LibblkidReport,
    filesystem: Option<FilesystemFacts>,
    /// A filesystem that stands and validates, and nothing that contradicts.
    healthy: bool,
    device: Option<DeviceFacts>,
    reading: Option<DeviceReading>,
    reasons: Vec<Reason>,
}

#[derive(Debug, Serialize)]
struct Verdict {
    verdict: &'static str,
    reasons: Vec<Reason>,
}

pub fn run(context: &Context, target: &Path) -> Result<Exit, Failure> {
    let sysfs = Sysfs::default();
    let spec = DeviceSpec::Path(target.to_owned());
    let not_asked = |_: &Path| Observed::not_run("named by path");
    let opened = resolve(&spec, &sysfs, &not_asked).and_then(|resolved| Device::open(&resolved, &sysfs));
    let device = match opened {
        Ok(device) => device,
        Err(error) => return not_opened(context, target, &error),
    };
    let mut facts = match device.facts() {
        Ok(facts) => facts,
        Err(error) => return not_opened(context, target, &error),
    };
    facts.uses.extend(uses::hidden_mounts(&facts));
    let reader = device.reader().map_err(|e| io_failure(format!("cannot open {} for the reader", facts.node), &e))?;
    let request = ProbeRequest { full_scan: true, direct: true };
    let show = std::io::stderr().is_terminal();
    let mut told = 0;
    let reading = block_on(worker::probe(reader.into(), &request, Deadline::for_bytes(facts.size), |done, total| {
        let percent = u128::from(done).saturating_mul(100).checked_div(u128::from(total)).unwrap_or(0);
        if show && percent > told {
            told = percent;
            diagnose(&format!("\rreading {}: {percent}% ", bytes(total)));
        }
    }))?;
    if told > 0 {
        diagnose("\r                                        \r");
    }
    let document = judge(target, facts, reading, &surroundings(context));
    let exit = if document.blank == Blank::Proven || document.healthy { Exit::Ok } else { Exit::Refused };
    context.print(&document, |screen| draw(screen, &document))?;
    Ok(exit)
}

/// The configuration and the agent's status, where they are to be had: they only explain whose a use is.
struct Surroundings {
    config: Option<Config>,
    status: Option<Status>,
}

fn surroundings(context: &Context) -> Surroundings {
    let config = context.standing().ok().map(|standing| standing.config);
    let status = config.as_ref().and_then(|config| crate::cli::status::read(config).ok().flatten());
    Surroundings { config, status }
}

impl Surroundings {
    /// A use by volhold itself, or by what it has published, is no objection to the health of the content.
    fn ours(&self, device: &DeviceFacts, other: &DeviceUse) -> bool {
        let guards = self.status.iter().flat_map(|s| &s.guards);
        match other {
            DeviceUse::Mount { at } => self
                .config
                .iter()
                .flat_map(|c| &c.guards)
                .any(|guard| guard.publish.paths().any(|own| own == Path::new(at))),
            DeviceUse::LoopOnTop { name } => guards.filter_map(|g| g.device.as_ref()).any(|used| {
                used.node == format!("/dev/{name}") && used.backing_file.as_deref() == Some(device.node.as_str())
            }),
            DeviceUse::Swap | DeviceUse::Holder { .. } | DeviceUse::Partition { .. } | DeviceUse::Exclusive => false,
        }
    }
}

fn judge(target: &Path, facts: DeviceFacts, reading: DeviceReading, around: &Surroundings) -> DeviceReport {
    let probe = report(&reading);
    // What volhold itself does with the device is no objection to it.
    let mut others = facts.clone();
    others.uses.retain(|other| !around.ours(&facts, other));
    let foreign = !others.uses.is_empty();
    let objections = objections_to_reading(&reading, Some(&others));
    // Where somebody else has the device, what was read may be something else by now: no proof of blankness.
    let blank = if foreign && probe.blank == Blank::Proven { Blank::Unknown } else { probe.blank };
    let healthy = !foreign && facts.whole_disk && healthy(&reading);
    DeviceReport {
        api_version: "volhold/v1",
        kind: "DeviceReport",
        path: target.display().to_string(),
        size: Some(facts.size),
        serial: facts.serial.clone(),
        blank,
        content: probe.content,
        format: Verdict {
            verdict: if objections.is_empty() { "format" } else { "refuse" },
            reasons: objections.clone(),
        },
        findings: probe.findings,
        bytes_read: probe.bytes_read,
        read_errors: probe.read_errors,
        libblkid: probe.libblkid,
        filesystem: probe.filesystem,
        healthy,
        device: Some(facts),
        reading: Some(reading),
        reasons: objections,
    }
}

/// A filesystem stands there, known in all its features; libblkid sees the same and nothing else; all that was looked at
/// could be read.
fn healthy(reading: &DeviceReading) -> bool {
    let DeviceReading { libblkid, content, filesystem } = reading;
    let Some(facts) = filesystem else { return false };
    let named = match libblkid {
        Observed::Seen(answer) => {
            answer.safeprobe == 0
                && !answer.named.is_empty()
                && answer.named.iter().all(|n| n.kind == facts.fstype && !n.bad_checksum)
        }
        Observed::Unknown(_) => false,
    };
    let read = content.seen().is_some_and(|c| c.read_errors == 0 && c.size_before == c.size_after);
    // An ext4 that needs its journal replayed is well; an XFS says so only of a mkfs or repair that did not finish.
    let finished = facts.fstype != Fstype::Xfs.as_str() || facts.clean != Some(false);
    named && read && finished && facts.unknown_features.is_empty()
}

/// Nothing could be looked at: the report says so, and the exit code says why.
fn not_opened(context: &Context, target: &Path, error: &DeviceError) -> Result<Exit, Failure> {
    let exit = match error {
        DeviceError::Missing { .. } => Exit::NoMatch,
        DeviceError::NotPermitted { .. } => Exit::NoPermission,
        DeviceError::NotABlockDevice { .. }
        | DeviceError::Ambiguous { .. }
        | DeviceError::SizeZero { .. }
        | DeviceError::NotTheVolume { .. }
        | DeviceError::Io { .. } => Exit::Refused,
    };
    let reason = error.reason();
    let document = DeviceReport {
        api_version: "volhold/v1",
        kind: "DeviceReport",
        path: target.display().to_string(),
        size: None,
        serial: None,
        blank: Blank::Unknown,
        content: None,
        format: Verdict { verdict: "refuse", reasons: vec![reason.clone()] },
        findings: Vec::new(),
        bytes_read: 0,
        read_errors: 0,
        libblkid: LibblkidReport { result: "not asked".to_owned(), version: None, safeprobe: None, probe_loop: None },
        filesystem: None,
        healthy: false,
        device: None,
        reading: None,
        reasons: vec![reason.clone()],
    };
    context.print(&document, |screen| {
        let cause = crate::cli::manual::page(reason.code).cause;
        screen.tone(Tone::Bad, &format!("{}: {cause}.", target.display()));
        screen.hanging("  -", 4, &reason_line(&reason));
        screen.blank();
        screen.para(0, "Nothing was read, and nothing was written.");
    })?;
    Ok(exit)
}

fn headline(it: &DeviceReport) -> (Tone, String) {
    let in_use = it.reasons.iter().any(|r| r.code == ReasonCode::InUse);
    let what = match (&it.filesystem, it.findings.first(), it.libblkid.safeprobe) {
        (Some(facts), _, _) => format!("a filesystem ({})", facts.fstype),
        (None, Some(finding), _) => finding_title(finding),
        (None, None, Some(0)) => it.libblkid.result.clone(),
        (None, None, _) => "data that nobody recognises".to_owned(),
    };
    let mounts: Vec<&str> = it.device.iter().flat_map(DeviceFacts::mounted_at).collect();
    match (it.blank, it.healthy) {
        (Blank::Proven, _) => (Tone::Good, "proven blank: every byte was read, and all are zero".to_owned()),
        (Blank::No | Blank::Unknown, true) => (Tone::Good, format!("healthy: {what}")),
        (Blank::No, false) if !mounts.is_empty() => (Tone::Warn, format!("mounted at {}: {what}", mounts.join(", "))),
        (Blank::No, false) if in_use => (Tone::Warn, format!("in use by somebody: {what}")),
        (Blank::No, false) if it.filesystem.is_some() => (Tone::Bad, format!("NOT blank, and not all is well: {what}")),
        (Blank::No, false) => (Tone::Bad, format!("NOT blank, and nothing that volhold mounts: {what}")),
        (Blank::Unknown, false) if in_use => (Tone::Bad, "in use by somebody, so nothing is proven".to_owned()),
        (Blank::Unknown, false) if it.read_errors > 0 || it.content.is_none() => {
            (Tone::Bad, "NOT known: not all of it could be read".to_owned())
        }
        (Blank::Unknown, false) => (Tone::Bad, "NOT known to be blank".to_owned()),
    }
}

fn draw(screen: &mut Screen, it: &DeviceReport) {
    let (tone, words) = headline(it);
    screen.tone(tone, &format!("{}: {words}.", it.path));
    screen.blank();
    screen.tone(Tone::Head, "What was found");
    for line in it
        .device
        .iter()
        .flat_map(device_lines)
        .chain(it.reading.iter().flat_map(|reading| reading_lines(reading, it.device.as_ref())))
    {
        line.draw(screen);
    }
    screen.blank();
    match it.format.reasons.as_slice() {
        [] => screen.tone(Tone::Head, "It could be formatted: no source has anything against it."),
        _ if it.healthy => screen.tone(Tone::Head, "It would never be formatted."),
        reasons => {
            screen.tone(Tone::Head, "It would NOT be formatted, even where the policy allows it, because");
            for reason in reasons {
                screen.hanging("  -", 4, &reason_line(reason));
            }
        }
    }
    screen.blank();
    screen.para(0, "Nothing was written. Records and the provider were not asked.");
    // What was not read, or may not be written, matters less than what was found.
    let beside = |code| matches!(code, ReasonCode::NoPermission | ReasonCode::ShortRead);
    let main = it.reasons.iter().find(|r| !beside(r.code)).or_else(|| it.reasons.first());
    if let Some(reason) = main.filter(|_| !it.healthy) {
        screen.verbatim(0, &format!("More: volhold explain --reason {}", reason.code));
    }
}
