//! The sources that look at the bytes: libblkid and the content scan, and what a superblock that stands says.

use super::sources::{Background, Objections, Rank};
use super::words::{bytes, counted};
use crate::model::{
    BlkidAnswer, BlkidName, BlockSample, Content, ContentClass, FilesystemFacts, Finding, FindingKind, FormatPolicy,
    Observed, Reason, ReasonCode, Validated,
};
use serde_json::json;

/// libblkid's probers that fire on two bytes of magic or on plausible numbers alone. Noise hits them.
const WEAK_PROBERS: [&str; 3] = ["atari", "hfs", "hfsplus"];

fn is_weak(name: &BlkidName) -> bool {
    let BlkidName { kind, usage: _, uuid: _, label: _, offset: _, bad_checksum } = name;
    WEAK_PROBERS.contains(&kind.as_str()) && !*bad_checksum
}

/// What libblkid calls a superblock of ext2/3/4 by its two bytes of magic and whatever feature bits stand beside them.
const EXT_PROBERS: [&str; 5] = ["ext2", "ext3", "ext4", "ext4dev", "jbd"];
/// Where the superblock stands, and its magic within the device (`include/ext2_fs.h`: `s_magic` at 0x38).
const EXT_SUPERBLOCK: u64 = 1024;
const EXT_MAGIC: u64 = 1080;

/// Two bytes of noise that read 0xEF53: libblkid names an ext2/3/4 or its journal there, while the scan, which asks for a
/// superblock whose fields agree, has found no more than the magic, and noise all around it.
fn is_ext_by_chance(answer: &BlkidAnswer, content: &Content) -> bool {
    let named = |name: &BlkidName| {
        let BlkidName { kind, usage: _, uuid: _, label: _, offset, bad_checksum } = name;
        EXT_PROBERS.contains(&kind.as_str()) && *offset == Some(EXT_MAGIC) && !*bad_checksum
    };
    let mut there = content
        .findings
        .iter()
        .filter(|finding| finding.kind == FindingKind::ExtSuperblock && finding.offset == EXT_SUPERBLOCK)
        .peekable();
    content.class == ContentClass::Uniform
        && content.complete
        && answer.safeprobe == 0
        && answer.probe_loop == 1
        && !answer.named.is_empty()
        && answer.named.iter().all(named)
        && there.peek().is_some()
        && there.all(|finding| finding.validated == Validated::Magic)
}

/// Exactly "nothing" from both ways of asking; anything else refuses, whatever the code means in this version of libblkid.
///
/// The one exception is as narrow as the accident it is for: on content that is all noise, on a volume that the provider
/// vouches for, a name by one of the weak probers, or of an ext2/3/4 by its magic alone, found in the regular way (code 0,
/// then 1), is only listed.
pub fn libblkid(
    libblkid: &Observed<BlkidAnswer>,
    content: &Observed<Content>,
    background: &Background,
    objections: &mut Objections,
) {
    let answer = match libblkid {
        Observed::Seen(answer) => answer,
        Observed::Unknown(why) => return objections.unknown("libblkid's look at the device", why),
    };
    if background.noise_is_blank && content.seen().is_some_and(|content| is_ext_by_chance(answer, content)) {
        return;
    }
    let noise = background.noise_is_blank
        && content.seen().is_some_and(|content| content.class == ContentClass::Uniform && content.complete);
    let weak_only = (0..=1).contains(&answer.safeprobe)
        && answer.probe_loop == 1
        && !answer.named.is_empty()
        && answer.named.iter().all(is_weak);
    if answer.says_nothing() || (noise && weak_only) {
        return;
    }
    let BlkidAnswer { safeprobe, probe_loop, named, version } = answer;
    let codes = format!("libblkid {version}, codes {safeprobe} and {probe_loop}");
    if let Some(first) = named.first() {
        let BlkidName { kind, usage: _, uuid, label, offset, bad_checksum } = first;
        let mut message = format!("libblkid sees {kind} on the device");
        if let Some(offset) = offset {
            message.push_str(&format!(" at byte {offset}"));
        }
        if let Some(uuid) = uuid {
            message.push_str(&format!(", UUID {uuid}"));
        }
        if let Some(label) = label {
            message.push_str(&format!(", label `{label}`"));
        }
        if *bad_checksum {
            message.push_str(", with a checksum that is off");
        }
        let others: Vec<&str> = named.iter().skip(1).map(|name| name.kind.as_str()).collect();
        if !others.is_empty() {
            message.push_str(&format!(", and also {}", others.join(", ")));
        }
        message.push_str(&format!(" ({codes})"));
        objections.add(Rank::Found, Reason::new(ReasonCode::SignatureFound, message));
    } else if *safeprobe < 0 || *probe_loop < 0 {
        let message = format!("libblkid could not tell what is on the device ({codes}): an error is no \"nothing\"");
        objections.add(Rank::Unread, Reason::new(ReasonCode::Unreadable, message));
    } else {
        let message = format!("libblkid sees something on the device and does not name it ({codes})");
        objections.add(Rank::Found, Reason::new(ReasonCode::SignatureFound, message));
    }
}

fn code_of(kind: &FindingKind) -> ReasonCode {
    match kind {
        FindingKind::ExtBackupSuperblock | FindingKind::XfsAgHeader => ReasonCode::BackupSuperblockFound,
        FindingKind::ExtSuperblock
        | FindingKind::XfsSuperblock
        | FindingKind::GptHeader
        | FindingKind::GptBackupHeader
        | FindingKind::ExtJournal
        | FindingKind::ExtDirectory
        | FindingKind::XfsLog
        | FindingKind::Named(_) => ReasonCode::SignatureFound,
        FindingKind::BoltMeta
        | FindingKind::EtcdWal
        | FindingKind::EtcdDirectory
        | FindingKind::BoltLeaf
        | FindingKind::EtcdSnap
        | FindingKind::EtcdV2Store
        | FindingKind::EtcdKeys => ReasonCode::EtcdDataFound,
    }
}

fn name_of(kind: &FindingKind) -> String {
    match kind {
        FindingKind::ExtSuperblock => "an ext2/3/4 superblock".to_owned(),
        FindingKind::ExtBackupSuperblock => "a backup superblock of an ext2/3/4 filesystem".to_owned(),
        FindingKind::XfsSuperblock => "an XFS superblock".to_owned(),
        FindingKind::XfsAgHeader => "an allocation-group header of an XFS filesystem".to_owned(),
        FindingKind::GptHeader => "a GPT partition table".to_owned(),
        FindingKind::GptBackupHeader => "the backup of a GPT partition table".to_owned(),
        FindingKind::BoltMeta => "a meta page of a bolt file, as etcd keeps its data in,".to_owned(),
        FindingKind::EtcdWal => "the head of an etcd WAL file".to_owned(),
        FindingKind::ExtJournal => "a block of the journal of an ext3/4 filesystem".to_owned(),
        FindingKind::ExtDirectory => "a directory of an ext2/3/4 filesystem".to_owned(),
        FindingKind::XfsLog => "a record of the log of an XFS filesystem".to_owned(),
        FindingKind::EtcdDirectory => "a directory of etcd".to_owned(),
        FindingKind::BoltLeaf => "a page of etcd's backend".to_owned(),
        FindingKind::EtcdSnap => "a raft snapshot of etcd".to_owned(),
        FindingKind::EtcdV2Store => "the store of an etcd 2".to_owned(),
        FindingKind::EtcdKeys => "a key of Kubernetes".to_owned(),
        FindingKind::Named(name) => format!("a signature of {name}"),
    }
}

/// A backup superblock or journal with the UUID that our own cut mkfs had chosen, and the directories that every mkfs makes: part of
/// that one hold, and no finding beside it. A journal inside of its filesystem need not carry any UUID. libext2fs writes the primary superblock last, so a primary one means that mkfs had come to its end.
fn is_own_trace(finding: &Finding, background: &Background) -> bool {
    let Some(intended) = background.own_traces else { return false };
    let same_uuid = finding.uuid.as_deref().and_then(|text| uuid::Uuid::try_parse(text).ok()) == Some(intended.0);
    match &finding.kind {
        FindingKind::ExtBackupSuperblock => same_uuid,
        FindingKind::ExtJournal => same_uuid || finding.uuid.is_none(),
        FindingKind::ExtDirectory => true,
        FindingKind::ExtSuperblock
        | FindingKind::XfsSuperblock
        | FindingKind::XfsAgHeader
        | FindingKind::GptHeader
        | FindingKind::GptBackupHeader
        | FindingKind::BoltMeta
        | FindingKind::EtcdWal
        | FindingKind::XfsLog
        | FindingKind::EtcdDirectory
        | FindingKind::BoltLeaf
        | FindingKind::EtcdSnap
        | FindingKind::EtcdV2Store
        | FindingKind::EtcdKeys
        | FindingKind::Named(_) => false,
    }
}

/// Does this finding forbid formatting by itself?
fn objects(finding: &Finding, class: ContentClass, background: &Background) -> bool {
    match finding.validated {
        Validated::Structure | Validated::Checksum => {
            class != ContentClass::Other || !is_own_trace(finding, background)
        }
        // A few bytes of magic: on noise they are chance, in other content they are named beside `unknown-data`. On a
        // device that is said to be all zero they contradict the scan.
        Validated::Magic => class == ContentClass::Zero,
    }
}

/// Every byte read without error, all of it zero, or all of it noise that the provider vouches for.
pub fn content(
    content: &Observed<Content>,
    device_size: Option<u64>,
    background: &Background,
    objections: &mut Objections,
) {
    let seen = match content {
        Observed::Seen(seen) => seen,
        Observed::Unknown(why) => return objections.unknown("the content scan", why),
    };
    let Content {
        class,
        complete,
        bytes_read,
        read_errors,
        first_other,
        sample,
        findings,
        telling_digest: _,
        size_before,
        size_after,
    } = seen;

    let telling: Vec<&Finding> = findings.iter().filter(|finding| objects(finding, *class, background)).collect();
    by_code(&telling, objections);
    match class {
        ContentClass::Zero => {}
        ContentClass::Uniform => {
            if !background.noise_is_blank {
                let message = format!(
                    "the device holds noise{}: a fresh encrypted volume reads so, and so does a LUKS volume whose header \
                     lies elsewhere; no provider vouches for an encrypted volume that is new and not made from a snapshot{}",
                    from(*first_other),
                    shown(sample.as_ref())
                );
                objections.add(Rank::Data, unknown_data(message, *first_other, sample.as_ref(), findings));
            }
        }
        ContentClass::Other => {
            if let Some(intended) = background.own_traces {
                let message = format!(
                    "volhold's own mkfs with UUID {intended} was interrupted on this attachment, and something stands{}: half of \
                     that filesystem, or what somebody wrote since; the bytes cannot tell which, so it is not made anew",
                    at(*first_other)
                );
                let reason = Reason::new(ReasonCode::IntentUnfinished, message);
                objections
                    .add(Rank::History, reason.with_detail(json!({ "offset": first_other, "intended": intended })));
            }
            // Where something recognised stands, "unknown data" adds nothing, nor beside a cut mkfs of ours.
            if telling.is_empty() && background.own_traces.is_none() {
                let message = format!(
                    "the device is not blank: something was written{}, and {}{}",
                    at(*first_other),
                    guess(findings),
                    shown(sample.as_ref())
                );
                objections.add(Rank::Data, unknown_data(message, *first_other, sample.as_ref(), findings));
            }
        }
    }
    if *read_errors > 0 {
        let message = format!(
            "{} of the device failed or came short, after {}: what stands there is not known",
            counted(*read_errors, "read"),
            bytes(*bytes_read)
        );
        objections.add(Rank::Unread, Reason::new(ReasonCode::Unreadable, message));
    }
    let read_to_the_end = *complete && bytes_read >= size_before;
    let stopped_for_cause = !telling.is_empty() || *class == ContentClass::Other;
    if !read_to_the_end && *read_errors == 0 {
        let message = format!(
            "only {} of {} were read: blankness needs every one of them",
            bytes(*bytes_read),
            bytes(*size_before)
        );
        let rank = if stopped_for_cause { Rank::NotLooked } else { Rank::Unread };
        objections.add(rank, Reason::new(ReasonCode::ShortRead, message));
    }
    if size_before != size_after || device_size.is_some_and(|size| size != *size_before) {
        let message = format!(
            "the size of the device is not one number: {} before the scan, {} after it{}",
            bytes(*size_before),
            bytes(*size_after),
            device_size.map_or_else(String::new, |size| format!(", {} when it was opened", bytes(size)))
        );
        objections.add(Rank::Device, Reason::new(ReasonCode::SizeMismatch, message));
    }
    if *size_before == 0 && device_size.is_none() {
        let message = "the device has a size of 0 bytes: nothing is attached behind it";
        objections.add(Rank::Device, Reason::new(ReasonCode::SizeMismatch, message));
    }
}

fn at(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at byte {offset}"))
}

fn from(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" from byte {offset} on"))
}

/// What may be there by a magic alone, which is worth a word and no more.
fn guess(findings: &[Finding]) -> String {
    match findings.iter().find(|finding| finding.validated == Validated::Magic) {
        None => String::from("nothing says what it is"),
        Some(finding) => {
            let name = name_of(&finding.kind);
            format!("it may be {} at byte {}, by its magic alone", name.trim_end_matches(','), finding.offset)
        }
    }
}

fn shown(sample: Option<&BlockSample>) -> String {
    sample.map_or_else(String::new, |sample| format!(" ({sample})"))
}

fn unknown_data(
    message: String,
    first_other: Option<u64>,
    sample: Option<&BlockSample>,
    findings: &[Finding],
) -> Reason {
    let magic_only: Vec<&Finding> = findings.iter().filter(|finding| finding.validated == Validated::Magic).collect();
    Reason::new(ReasonCode::UnknownData, message)
        .with_detail(json!({ "offset": first_other, "sample": sample, "magic_only": magic_only }))
}

/// So many findings of another sort than the first are told in words too.
const OTHERS_TOLD: usize = 2;

/// What makes a finding worth a word of its own. Of what libblkid has one name for, the parts differ by their detail.
fn sort_of(finding: &Finding) -> (&FindingKind, Option<&str>) {
    match &finding.kind {
        FindingKind::Named(_) => (&finding.kind, finding.detail.as_deref()),
        FindingKind::ExtSuperblock
        | FindingKind::ExtBackupSuperblock
        | FindingKind::XfsSuperblock
        | FindingKind::XfsAgHeader
        | FindingKind::GptHeader
        | FindingKind::GptBackupHeader
        | FindingKind::BoltMeta
        | FindingKind::EtcdWal
        | FindingKind::ExtJournal
        | FindingKind::ExtDirectory
        | FindingKind::XfsLog
        | FindingKind::EtcdDirectory
        | FindingKind::BoltLeaf
        | FindingKind::EtcdSnap
        | FindingKind::EtcdV2Store
        | FindingKind::EtcdKeys => (&finding.kind, None),
    }
}

fn described(finding: &Finding) -> String {
    let mut words = format!("at byte {}", finding.offset);
    if let Some(uuid) = &finding.uuid {
        words.push_str(&format!(", UUID {uuid}"));
    }
    if let Some(detail) = &finding.detail {
        words.push_str(&format!(" ({detail})"));
    }
    words
}

/// One objection for each code: the first finding in words, the number of the others, all of them as detail.
fn by_code(telling: &[&Finding], objections: &mut Objections) {
    for code in [ReasonCode::BackupSuperblockFound, ReasonCode::EtcdDataFound, ReasonCode::SignatureFound] {
        let of_code: Vec<&Finding> = telling.iter().copied().filter(|finding| code_of(&finding.kind) == code).collect();
        let Some(first) = of_code.first() else { continue };
        let mut message = format!("{} stands {}", name_of(&first.kind), described(first));
        message.push_str(match first.validated {
            Validated::Magic => ", by its magic alone",
            Validated::Structure => ", its fields agree with each other",
            Validated::Checksum => ", its checksum is right",
        });
        let others = of_code.len().saturating_sub(1);
        if others > 0 {
            message.push_str(&format!(", and {others} more like it"));
        }
        let mut told = vec![sort_of(first)];
        for other in of_code.iter().skip(1) {
            if told.len() <= OTHERS_TOLD && !told.contains(&sort_of(other)) {
                told.push(sort_of(other));
                message.push_str(&format!(
                    "; also {} {}",
                    name_of(&other.kind).trim_end_matches(','),
                    described(other)
                ));
            }
        }
        objections.add(Rank::Found, Reason::new(code, message).with_detail(json!({ "findings": of_code })));
    }
}

/// Was something recognised, rather than something not known?
pub fn proves_data(code: ReasonCode) -> bool {
    [ReasonCode::BackupSuperblockFound, ReasonCode::EtcdDataFound, ReasonCode::SignatureFound, ReasonCode::Partitioned]
        .contains(&code)
}

/// The policy comes after what is there, and says it.
pub fn policy(
    policy: FormatPolicy,
    content: &Observed<Content>,
    libblkid: &Observed<BlkidAnswer>,
    objections: &mut Objections,
) {
    match policy {
        FormatPolicy::IfBlank => {}
        FormatPolicy::Never => {
            let there = what_is_there(content, libblkid);
            let message = format!("the configuration says `format = \"never\"` for this volume, and {there}");
            objections.add(Rank::Policy, Reason::new(ReasonCode::PolicyForbidsFormat, message));
        }
    }
}

fn what_is_there(content: &Observed<Content>, libblkid: &Observed<BlkidAnswer>) -> String {
    let content = match content {
        Observed::Seen(content) => content,
        Observed::Unknown(why) => return format!("what is on it is not known ({})", why.detail()),
    };
    if let Some(name) = libblkid.seen().and_then(|answer| answer.named.first()) {
        return format!("it holds {}", name.kind);
    }
    if let Some(finding) = content.findings.iter().find(|finding| finding.validated > Validated::Magic) {
        return format!("it holds {} at byte {}", name_of(&finding.kind).trim_end_matches(','), finding.offset);
    }
    if content.read_errors > 0 {
        return "parts of it cannot be read".to_owned();
    }
    match (content.class, content.complete) {
        (ContentClass::Zero, true) => format!("all of its {} are zero", bytes(content.size_before)),
        (ContentClass::Zero | ContentClass::Uniform, false) => "it was not read to its end".to_owned(),
        (ContentClass::Uniform, true) => "it holds noise, as a fresh encrypted volume does".to_owned(),
        (ContentClass::Other, _) => "it holds data of an unknown kind".to_owned(),
    }
}

/// A filesystem whose primary superblock stands. The scan and libblkid say so too; this is for the case that they do not.
pub fn filesystem(filesystem: &FilesystemFacts, objections: &mut Objections) {
    let mut message = format!("an {} filesystem stands on the device", filesystem.fstype);
    if let Some(uuid) = filesystem.uuid {
        message.push_str(&format!(", UUID {uuid}"));
    }
    if let Some(made_at) = filesystem.made_at {
        message.push_str(&format!(", made at {made_at}"));
    }
    objections.add(Rank::Found, Reason::new(ReasonCode::SignatureFound, message));
}
