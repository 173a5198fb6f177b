//! What a refusal says in words: a person reads it at night and decides by it.

use super::*;
use crate::model::BlockSample;

fn refusal(evidence: &FormatEvidence) -> Refusal {
    may_format(FormatPolicy::IfBlank, evidence, NOW).expect_err("refused")
}

fn on(content: Content) -> FormatEvidence {
    FormatEvidence { content: Observed::Seen(content), ..blank() }
}

#[track_caller]
fn says(evidence: &FormatEvidence, words: &[&str]) -> String {
    let message = refusal(evidence).reasons[0].message.clone();
    for word in words {
        assert!(message.contains(word), "`{word}` is missing: {message}");
    }
    message
}

fn sample() -> BlockSample {
    BlockSample { offset: 4096, entropy: 7_950, hex: "65 74 63 64".to_owned() }
}

#[test]
fn noise_is_shown_by_where_it_begins_and_by_a_line_of_it() {
    let noise = Content { sample: Some(sample()), ..content_of(ContentClass::Uniform, vec![]) };
    says(
        &on(noise.clone()),
        &["holds noise from byte 4096 on:", "(8.0 bits of entropy in a byte, 00001000: 65 74 63 64)"],
    );
    let nowhere = says(&on(Content { sample: None, first_other: None, ..noise }), &["holds noise: a fresh"]);
    assert!(nowhere.ends_with("not made from a snapshot"), "{nowhere}");
}

#[test]
fn what_is_not_known_is_guessed_by_its_magic_or_said_to_be_nameless_and_shown() {
    let data = Content { sample: Some(sample()), ..content_of(ContentClass::Other, vec![]) };
    says(&on(data.clone()), &["written at byte 4096, and nothing says what it is (8.0 bits"]);

    // A copy of our own superblock is no guess.
    let magic = finding(FindingKind::BoltMeta, Validated::Magic, None);
    let guessed = Content { findings: vec![magic.clone()], ..data.clone() };
    says(
        &on(guessed),
        &["and it may be a meta page of a bolt file, as etcd keeps its data in at byte 4096, by its magic alone"],
    );
    let own = finding(FindingKind::ExtBackupSuperblock, Validated::Structure, Some(INTENDED));
    let own_beside = FormatEvidence {
        history: Observed::Seen(FormatHistory::UnfinishedIntent { fs_uuid: INTENDED, same_attachment: true }),
        ..on(Content { findings: vec![own, magic], ..data })
    };
    says(&own_beside, &["was interrupted on this attachment, and something stands at byte 4096"]);
}

#[test]
fn a_scan_that_stopped_for_what_it_found_is_not_said_to_be_short() {
    let cut = |class, findings| Content { complete: false, bytes_read: 4096, ..content_of(class, findings) };
    let data = refusal(&on(cut(ContentClass::Other, vec![])));
    assert_eq!(codes(&data), [ReasonCode::UnknownData]);
    let bolt = finding(FindingKind::BoltMeta, Validated::Checksum, None);
    let found = refusal(&on(cut(ContentClass::Zero, vec![bolt])));
    assert_eq!(codes(&found), [ReasonCode::EtcdDataFound]);
    // Cut for no cause: that is what could not be known, beside whatever else there is.
    let noise = refusal(&on(cut(ContentClass::Uniform, vec![])));
    assert_eq!(codes(&noise), [ReasonCode::UnknownData, ReasonCode::ShortRead]);
    assert!(
        noise.reasons[1].message.contains("only 4096 bytes (4 KiB) of 1073741824 bytes (1 GiB) were read"),
        "{}",
        noise.reasons[1].message
    );
}

#[test]
fn one_finding_stands_alone_and_of_many_the_first_sorts_are_named() {
    let copy = |detail: &str, offset| Finding {
        offset,
        detail: Some(detail.to_owned()),
        ..finding(FindingKind::Named("LVM2_member".into()), Validated::Checksum, None)
    };
    let of = |findings| on(content_of(ContentClass::Zero, findings));
    let one = says(
        &of(vec![copy("label", 512)]),
        &["a signature of LVM2_member stands at byte 512 (label), its checksum is right"],
    );
    assert!(!one.contains("more like it") && !one.contains("; also"), "{one}");

    // The second of a sort is counted and not told again; of other sorts two are told, the fourth sort is one too many.
    let many = says(
        &of(vec![
            copy("label", 512),
            copy("label", 1024),
            copy("text", 2048),
            copy("text", 3072),
            copy("ring", 4096),
            copy("tail", 8192),
        ]),
        &[
            "and 5 more like it",
            "; also a signature of LVM2_member at byte 2048 (text); also a signature of LVM2_member at byte 4096 (ring)",
        ],
    );
    assert_eq!(many.matches("; also").count(), 2, "{many}");
    for offset in ["1024", "3072", "8192"] {
        assert!(!many.contains(offset), "{offset}: {many}");
    }
}

#[test]
fn libblkid_without_a_name_is_an_error_by_a_negative_code_alone() {
    let of = |safeprobe, probe_loop| {
        refusal(&FormatEvidence { libblkid: Observed::Seen(answer(safeprobe, probe_loop, &[])), ..blank() })
    };
    for (safeprobe, probe_loop, code) in [
        (1, 0, ReasonCode::SignatureFound),
        (0, 1, ReasonCode::SignatureFound),
        (1, -1, ReasonCode::Unreadable),
        (-1, 1, ReasonCode::Unreadable),
    ] {
        assert_eq!(codes(&of(safeprobe, probe_loop)), [code], "{safeprobe} {probe_loop}");
    }
}

#[test]
fn never_by_policy_tells_of_unreadable_parts_only_where_there_are_some() {
    let said = |read_errors| {
        let content = Content { read_errors, ..content_of(ContentClass::Zero, vec![]) };
        let refusal = may_format(FormatPolicy::Never, &on(content), NOW).expect_err("refused");
        refusal
            .reasons
            .into_iter()
            .find(|reason| reason.code == ReasonCode::PolicyForbidsFormat)
            .expect("the policy")
            .message
    };
    assert!(said(0).ends_with("all of its 1073741824 bytes (1 GiB) are zero"), "{}", said(0));
    assert!(said(1).ends_with("parts of it cannot be read"), "{}", said(1));
    // Magic alone is no content that one could name.
    let magic = content_of(ContentClass::Uniform, vec![finding(FindingKind::BoltMeta, Validated::Magic, None)]);
    let refusal = may_format(FormatPolicy::Never, &on(magic), NOW).expect_err("refused");
    let told =
        refusal.reasons.iter().find(|reason| reason.code == ReasonCode::PolicyForbidsFormat).expect("the policy");
    assert!(told.message.ends_with("it holds noise, as a fresh encrypted volume does"), "{}", told.message);
}
