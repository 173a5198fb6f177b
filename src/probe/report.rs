//! What an examination says about blankness, and its part of the `inspect` document of the contract.

use crate::model::{Blank, Content, ContentClass, DeviceReading, FilesystemFacts, Finding, Observed, Validated};
use serde::{Deserialize, Serialize};

/// Is it blank, by the bytes alone? `Proven`: all of it was read and is zero, and libblkid says exactly "nothing". `No`:
/// somebody wrote something. Everything else is `Unknown`, uniform content included, which only a provider can vouch for.
pub fn blank(reading: &DeviceReading) -> Blank {
    let DeviceReading { libblkid, content, filesystem } = reading;
    let Observed::Seen(content) = content else {
        return if filesystem.is_some() { Blank::No } else { Blank::Unknown };
    };
    let validates = content.findings.iter().any(|finding| finding.validated > Validated::Magic);
    if content.class == ContentClass::Other || validates || filesystem.is_some() {
        return Blank::No;
    }
    let Observed::Seen(libblkid) = libblkid else {
        return Blank::Unknown;
    };
    match content.class {
        ContentClass::Other => Blank::No,
        ContentClass::Uniform => Blank::Unknown,
        ContentClass::Zero if !libblkid.named.is_empty() => Blank::No,
        ContentClass::Zero if libblkid.says_nothing() && read_whole(content) => Blank::Proven,
        ContentClass::Zero => Blank::Unknown,
    }
}

fn read_whole(content: &Content) -> bool {
    content.complete
        && content.read_errors == 0
        && content.size_before > 0
        && content.size_before == content.size_after
        && content.bytes_read == content.size_before
}

/// The fields of `DeviceReport` (contract) that come from the bytes; path, serial and the format verdict are added by the
/// verb that prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Bytes; `None` where even the size is unknown.
    pub size: Option<u64>,
    pub blank: Blank,
    pub content: Option<ContentClass>,
    /// Why the content is not known, in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub content_unknown: Option<String>,
    /// First block that is not blank.
    pub first_other: Option<u64>,
    /// Every byte was read.
    pub complete: bool,
    pub findings: Vec<Finding>,
    pub bytes_read: u64,
    pub read_errors: u64,
    pub libblkid: LibblkidReport,
    pub filesystem: Option<FilesystemFacts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibblkidReport {
    /// What it named, `nothing`, or what went wrong.
    pub result: String,
    pub version: Option<String>,
    pub safeprobe: Option<i32>,
    pub probe_loop: Option<i32>,
}

/// The report about one reading.
pub fn report(reading: &DeviceReading) -> DeviceReport {
    let blank = blank(reading);
    let DeviceReading { libblkid, content, filesystem } = reading;
    let libblkid = match libblkid {
        Observed::Unknown(why) => {
            LibblkidReport { result: why.detail().to_owned(), version: None, safeprobe: None, probe_loop: None }
        }
        Observed::Seen(answer) => {
            let mut words: Vec<String> = answer
                .named
                .iter()
                .map(|name| if name.bad_checksum { format!("{} (bad checksum)", name.kind) } else { name.kind.clone() })
                .collect();
            if !matches!(answer.safeprobe, 0 | 1) || answer.probe_loop != 1 {
                words.push(format!("failed or ambivalent (codes {} and {})", answer.safeprobe, answer.probe_loop));
            }
            LibblkidReport {
                result: if words.is_empty() { String::from("nothing") } else { words.join(", ") },
                version: Some(answer.version.clone()),
                safeprobe: Some(answer.safeprobe),
                probe_loop: Some(answer.probe_loop),
            }
        }
    };
    match content {
        Observed::Seen(content) => DeviceReport {
            size: Some(content.size_before),
            blank,
            content: Some(content.class),
            content_unknown: None,
            first_other: content.first_other,
            complete: content.complete,
            findings: content.findings.clone(),
            bytes_read: content.bytes_read,
            read_errors: content.read_errors,
            libblkid,
            filesystem: filesystem.clone(),
        },
        Observed::Unknown(why) => DeviceReport {
            size: None,
            blank,
            content: None,
            content_unknown: Some(why.detail().to_owned()),
            first_other: None,
            complete: false,
            findings: Vec::new(),
            bytes_read: 0,
            read_errors: 1,
            libblkid,
            filesystem: filesystem.clone(),
        },
    }
}
