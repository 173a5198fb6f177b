//! Which volume is taken, and why the others are not.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::model::Time;

const HERE: &str = "i-here";

fn here() -> Here {
    Here { instance: InstanceId(HERE.into()), zone: "eu-west-1a".into(), region: "eu-west-1".into() }
}

fn volume(n: u8, tags: &[(&str, &str)]) -> Volume {
    Volume::free(&format!("vol-0000000{n}"), tags.iter().copied())
}

fn at(mut volume: Volume, instance: &str) -> Volume {
    volume.state = VolumeState::InUse;
    volume.attachments.push(Attached {
        instance: InstanceId(instance.into()),
        device: Some("/dev/sdf".into()),
        state: AttachState::Attached,
        since: Time::from_unix(1_800_000_000),
        delete_on_termination: false,
    });
    volume
}

const CLUSTER: (&str, &str) = ("KubernetesCluster", "c");

fn member(n: u8, me: &str) -> Volume {
    volume(n, &[CLUSTER, ("k8s.io/etcd/main", me)])
}

fn tag(text: &str) -> TagSpec {
    match text.split_once('=') {
        Some((key, value)) => TagSpec { key: key.into(), value: Some(value.into()) },
        None => TagSpec { key: text.into(), value: None },
    }
}

fn run(
    volumes: &[Volume],
    tags: &[&str],
    member: Option<&str>,
    holders: &[(&str, Option<InstanceState>)],
) -> Selection {
    let tags: Vec<TagSpec> = tags.iter().map(|text| tag(text)).collect();
    let here = here();
    let holders = holders.iter().map(|(instance, state)| (InstanceId((*instance).to_owned()), state.clone())).collect();
    select(volumes, &Wanted { tags: &tags, member, here: &here }, &holders)
}

const KOPS: &[&str] = &["KubernetesCluster=c", "k8s.io/etcd/main"];

#[track_caller]
fn taken(selection: Selection) -> String {
    match selection {
        Selection::Take(volume) => volume.id.0,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn held(selection: Selection) -> (ReasonCode, String) {
    match selection {
        Selection::Hold(reason) => (reason.code, reason.message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_only_one_with_every_tag_is_taken_whoever_has_it() {
    let others = [volume(2, &[CLUSTER]), volume(3, &[("KubernetesCluster", "d"), ("k8s.io/etcd/main", "a/a")])];
    let mut volumes = vec![member(1, "a/a,b,c")];
    volumes.extend(others);
    assert_eq!(taken(run(&volumes, KOPS, None, &[])), "vol-00000001");
    volumes[0] = at(member(1, "a/a,b,c"), "i-other");
    assert_eq!(taken(run(&volumes, KOPS, None, &[])), "vol-00000001", "attaching says who has it");
}

#[test]
fn none_is_a_hold_that_says_what_was_looked_for_and_where() {
    let (code, message) = held(run(&[volume(1, &[CLUSTER])], KOPS, None, &[]));
    assert_eq!(code, ReasonCode::VolumeNotFound);
    assert!(message.contains("eu-west-1a") && message.contains("k8s.io/etcd/main"), "{message}");
}

#[test]
fn two_that_fit_are_a_hold_that_lists_both_and_never_the_first() {
    let tags = [CLUSTER, ("Name", "etcd")];
    let volumes = [volume(1, &tags), volume(2, &tags)];
    let (code, message) = held(run(&volumes, &["KubernetesCluster=c", "Name=etcd"], None, &[]));
    assert_eq!(code, ReasonCode::VolumeAmbiguous);
    assert!(message.contains("vol-00000001") && message.contains("vol-00000002"), "{message}");
}

#[test]
fn a_copy_of_a_member_is_ambiguous_on_kops_too_also_beside_one_that_is_here() {
    let volumes = [member(1, "a/a,b,c"), member(2, "a/a,b,c")];
    assert_eq!(held(run(&volumes, KOPS, None, &[])).0, ReasonCode::VolumeAmbiguous);
    let volumes = [at(member(1, "a/a,b,c"), HERE), member(2, "a/a,b,c")];
    assert_eq!(held(run(&volumes, KOPS, None, &[])).0, ReasonCode::VolumeAmbiguous);
}

#[test]
fn one_that_a_running_instance_has_falls_out_first() {
    let volumes = [at(member(1, "a/a,b"), "i-other"), member(2, "b/a,b")];
    let Selection::NeedHolders(asked) = run(&volumes, KOPS, None, &[]) else { panic!("decided without asking") };
    assert_eq!(asked, [InstanceId("i-other".into())]);
    for state in [InstanceState::Running, InstanceState::Pending, InstanceState::Stopped] {
        assert_eq!(taken(run(&volumes, KOPS, None, &[("i-other", Some(state))])), "vol-00000002");
    }
    // Every one is in use: elsewhere, and by whom.
    let volumes = [at(member(1, "a/a,b"), "i-other"), at(member(2, "b/a,b"), "i-third")];
    let running = Some(InstanceState::Running);
    let (code, message) = held(run(&volumes, KOPS, None, &[("i-other", running.clone()), ("i-third", running)]));
    assert_eq!(code, ReasonCode::VolumeElsewhere);
    assert!(message.contains("i-other") && message.contains("i-third"), "{message}");
}

#[test]
fn free_members_of_kops_are_tried_in_the_order_of_their_ids_before_one_whose_master_is_ending() {
    let volumes = [member(3, "c/a,b,c"), at(member(1, "a/a,b,c"), "i-ending"), member(2, "b/a,b,c")];
    let ending = Some(InstanceState::ShuttingDown);
    let Selection::OneOf(tried) = run(&volumes, KOPS, None, &[("i-ending", ending.clone())]) else {
        panic!("no choice")
    };
    assert_eq!(tried.iter().map(|volume| volume.id.0.as_str()).collect::<Vec<_>>(), ["vol-00000002", "vol-00000003"]);
    let volumes = [at(member(1, "a/a,b"), "i-ending"), at(member(2, "b/a,b"), "i-gone")];
    let waits = run(&volumes, KOPS, None, &[("i-ending", ending), ("i-gone", None)]);
    assert!(matches!(waits, Selection::Wait(ref reason) if reason.code == ReasonCode::VolumeElsewhere), "{waits:?}");
}

#[test]
fn the_member_that_is_here_already_is_the_one() {
    let volumes = [member(1, "a/a,b"), at(member(2, "b/a,b"), HERE)];
    assert_eq!(taken(run(&volumes, KOPS, None, &[])), "vol-00000002");
}

#[test]
fn the_member_that_configuration_tells_decides() {
    let volumes = [member(1, "a/a,b"), member(2, "b/a,b")];
    assert_eq!(taken(run(&volumes, KOPS, Some("b"), &[])), "vol-00000002");
    assert_eq!(taken(run(&volumes, KOPS, Some("etcd-a"), &[])), "vol-00000001");
    let (code, message) = held(run(&volumes, KOPS, Some("c"), &[]));
    assert_eq!(code, ReasonCode::VolumeNotFound);
    assert!(message.contains("is that of member a") && message.contains("is that of member b"), "{message}");
}

#[test]
fn what_cannot_be_attached_or_understood_falls_out_with_its_reason() {
    let mut gone = member(1, "a/a");
    gone.state = VolumeState::Deleting;
    let mut shared = member(2, "b/b");
    shared.multi_attach = true;
    let mut far = member(3, "c/c");
    far.zone = "eu-west-1b".into();
    let unreadable = member(4, "nobody");
    let (code, message) = held(run(&[gone, shared, far, unreadable], KOPS, None, &[]));
    assert_eq!(code, ReasonCode::VolumeNotFound);
    for why in ["is deleting", "several instances at once", "lies in eu-west-1b", "names no member"] {
        assert!(message.contains(why), "{why}: {message}");
    }
}
