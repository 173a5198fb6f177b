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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::{BlkidAnswer, BlkidName, FindingKind, Why};

    fn blank_reading() -> DeviceReading {
        DeviceReading { libblkid: Observed::Seen(answer(1, 1)), content: Observed::Seen(zero()), filesystem: None }
    }

    fn answer(safeprobe: i32, probe_loop: i32) -> BlkidAnswer {
        BlkidAnswer { safeprobe, probe_loop, named: Vec::new(), version: String::from("2.38.1") }
    }

    fn zero() -> Content {
        Content {
            class: ContentClass::Zero,
            complete: true,
            bytes_read: 8192,
            read_errors: 0,
            first_other: None,
            findings: Vec::new(),
            sample: None,
            telling_digest: String::new(),
            size_before: 8192,
            size_after: 8192,
        }
    }

    fn with_content(content: Content) -> Blank {
        blank(&DeviceReading { content: Observed::Seen(content), ..blank_reading() })
    }

    #[test]
    fn all_zero_and_nothing_said_against_it_is_proven() {
        assert_eq!(blank(&blank_reading()), Blank::Proven);
    }

    #[test]
    fn only_exactly_nothing_from_both_ways_of_asking_libblkid_proves() {
        for (safeprobe, probe_loop) in [(-5, 1), (-2, 1), (-1, 1), (1, -5), (0, 1), (1, i32::MIN), (2, 1)] {
            let libblkid = Observed::Seen(answer(safeprobe, probe_loop));
            assert_ne!(
                blank(&DeviceReading { libblkid, ..blank_reading() }),
                Blank::Proven,
                "{safeprobe} {probe_loop}"
            );
        }
        let libblkid = Observed::Unknown(Why::TimedOut { detail: String::from("silence") });
        assert_eq!(blank(&DeviceReading { libblkid, ..blank_reading() }), Blank::Unknown);
        let mut named = answer(1, 1);
        named.named.push(BlkidName {
            kind: String::from("crypto_LUKS"),
            usage: None,
            uuid: None,
            label: None,
            offset: None,
            bad_checksum: false,
        });
        assert_eq!(blank(&DeviceReading { libblkid: Observed::Seen(named), ..blank_reading() }), Blank::No);
    }

    #[test]
    fn whatever_was_not_read_is_not_proven() {
        assert_eq!(with_content(Content { complete: false, ..zero() }), Blank::Unknown);
        assert_eq!(with_content(Content { read_errors: 1, ..zero() }), Blank::Unknown);
        assert_eq!(with_content(Content { bytes_read: 8191, ..zero() }), Blank::Unknown);
        assert_eq!(with_content(Content { size_after: 4096, ..zero() }), Blank::Unknown);
        assert_eq!(with_content(Content { size_before: 0, size_after: 0, bytes_read: 0, ..zero() }), Blank::Unknown);
        let content = Observed::Unknown(Why::Unreadable { detail: String::from("EIO") });
        assert_eq!(blank(&DeviceReading { content, ..blank_reading() }), Blank::Unknown);
    }

    #[test]
    fn noise_is_unknown_and_what_validates_in_it_is_not_blank() {
        let noise = Content { class: ContentClass::Uniform, ..zero() };
        assert_eq!(with_content(noise.clone()), Blank::Unknown);
        let finding =
            |validated| Finding { kind: FindingKind::BoltMeta, offset: 0, validated, uuid: None, detail: None };
        let by_magic = Content { findings: vec![finding(Validated::Magic)], ..noise.clone() };
        assert_eq!(with_content(by_magic), Blank::Unknown);
        for validated in [Validated::Structure, Validated::Checksum] {
            let content = Content { findings: vec![finding(validated)], ..noise.clone() };
            assert_eq!(with_content(content), Blank::No);
        }
        assert_eq!(with_content(Content { class: ContentClass::Other, ..zero() }), Blank::No);
    }

    #[test]
    fn the_report_says_in_words_what_libblkid_could_not_do() {
        let libblkid = Observed::Seen(answer(-5, -5));
        let report = report(&DeviceReading { libblkid, ..blank_reading() });
        assert_eq!(report.libblkid.result, "failed or ambivalent (codes -5 and -5)");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((json.get("blank"), json.get("content")), (Some(&"unknown".into()), Some(&"zero".into())));
        assert_eq!(super::report(&blank_reading()).libblkid.result, "nothing");
    }
}
