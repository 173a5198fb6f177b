//! Every state of volume and attachment, and what follows from it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::model::{Time, VolumeId};

fn here() -> Here {
    Here { instance: InstanceId("i-here".into()), zone: "eu-west-1a".into(), region: "eu-west-1".into() }
}

fn free() -> Volume {
    Volume::free("vol-00000001", [])
}

fn in_state(state: VolumeState) -> Volume {
    Volume { state, ..free() }
}

fn at(instance: &str, state: AttachState) -> Volume {
    let attached = Attached {
        instance: InstanceId(instance.into()),
        device: Some("/dev/sdf".into()),
        state,
        since: Time::from_unix(1_800_000_000),
        delete_on_termination: false,
    };
    Volume { state: VolumeState::InUse, attachments: vec![attached], ..free() }
}

fn instance(id: &str, state: InstanceState, devices: &[&str]) -> Instance {
    Instance { id: InstanceId(id.into()), state, devices: devices.iter().map(|name| (*name).to_owned()).collect() }
}

/// A look at `seconds`, with everything known that can be asked for.
fn look(attempts: &mut Attempts, volume: &Volume, holder: Option<InstanceState>, seconds: u64) -> Next {
    attempts.turn_to(&volume.id);
    let here = here();
    let holder = holder.map(|state| instance("i-other", state, &[]));
    let own = instance("i-here", InstanceState::Running, &["/dev/sda1", "/dev/sdf"]);
    attempts.next(&Look {
        volume,
        here: &here,
        holder: Some(holder.as_ref()),
        own: Some(&own),
        start: 0,
        now: Duration::from_secs(seconds),
    })
}

fn once(volume: &Volume, holder: Option<InstanceState>) -> Next {
    look(&mut Attempts::default(), volume, holder, 0)
}

#[track_caller]
fn held(next: &Next) -> (ReasonCode, &str) {
    match next {
        Next::Hold(reason) => (reason.code, &reason.message),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn waits(next: &Next) -> &str {
    match next {
        Next::Wait(reason) => &reason.message,
        other => panic!("{other:?}"),
    }
}

fn error(code: Code) -> ApiError {
    ApiError { code, action: "AttachVolume", said: String::new() }
}

#[test]
fn a_free_volume_is_attached_under_a_name_that_nobody_has() {
    assert_eq!(once(&free(), None), Next::Attach { device: "/dev/sdg".into() });
}

#[test]
fn what_is_not_known_is_asked_for_before_anything_is_done() {
    let here = here();
    let mut attempts = Attempts::default();
    let volume = free();
    let mut bare = Look { volume: &volume, here: &here, holder: None, own: None, start: 0, now: Duration::ZERO };
    assert_eq!(attempts.next(&bare), Next::NeedOwn);
    let elsewhere = at("i-other", AttachState::Attached);
    bare.volume = &elsewhere;
    assert_eq!(attempts.next(&bare), Next::NeedHolder(InstanceId("i-other".into())));
}

#[test]
fn attached_here_is_here_and_a_deletion_with_the_instance_is_told() {
    let mut volume = at("i-here", AttachState::Attached);
    assert_eq!(once(&volume, None), Next::Here { device: Some("/dev/sdf".into()), warnings: Vec::new() });
    volume.attachments[0].delete_on_termination = true;
    let Next::Here { warnings, .. } = once(&volume, None) else { panic!("not here") };
    assert_eq!(warnings[0].code, ReasonCode::DeletedWithInstance);
}

#[test]
fn each_way_that_does_not_come_to_its_end_waits_and_has_a_name_of_its_own_after_90_seconds() {
    for (volume, holder) in [
        (in_state(VolumeState::Creating), None),
        (at("i-here", AttachState::Attaching), None),
        (at("i-here", AttachState::Busy), None),
        (at("i-here", AttachState::Detaching), None),
        (at("i-here", AttachState::Other("new".into())), None),
        (at("i-other", AttachState::Detaching), Some(InstanceState::Running)),
        (at("i-other", AttachState::Busy), Some(InstanceState::Running)),
        (at("i-other", AttachState::Attached), Some(InstanceState::ShuttingDown)),
        (at("i-other", AttachState::Attached), Some(InstanceState::Stopping)),
        (at("i-other", AttachState::Attached), Some(InstanceState::Terminated)),
        (at("i-other", AttachState::Attached), None),
    ] {
        let mut attempts = Attempts::default();
        for second in [0, 1, 60, 89] {
            waits(&look(&mut attempts, &volume, holder.clone(), second));
        }
        let stuck = look(&mut attempts, &volume, holder.clone(), 90);
        assert_eq!(held(&stuck).0, ReasonCode::AttachStuck, "{volume:?}");
        // Something moves: the clock begins anew.
        look(&mut attempts, &in_state(VolumeState::InUse), None, 91);
    }
}

#[test]
fn who_has_it_and_since_when_is_said() {
    let volume = at("i-other", AttachState::Attached);
    for state in
        [InstanceState::Running, InstanceState::Pending, InstanceState::Stopped, InstanceState::Other("x".into())]
    {
        let next = once(&volume, Some(state));
        let (code, message) = held(&next);
        assert_eq!(code, ReasonCode::VolumeElsewhere);
        assert!(message.contains("i-other") && message.contains("since 2027-01-15"), "{message}");
    }
    let next = once(&volume, Some(InstanceState::ShuttingDown));
    assert!(waits(&next).contains("i-other") && waits(&next).contains("shutting-down"), "{}", waits(&next));
}

#[test]
fn what_can_never_be_attached_is_held_without_asking_for_it() {
    let mut shared = free();
    shared.multi_attach = true;
    assert_eq!(held(&once(&shared, None)).0, ReasonCode::MultiAttach);
    let mut twice = at("i-here", AttachState::Attached);
    twice.attachments.push(twice.attachments[0].clone());
    assert_eq!(held(&once(&twice, None)).0, ReasonCode::MultiAttach, "also when one of the two is this instance");
    let mut far = free();
    far.zone = "eu-west-1b".into();
    assert_eq!(held(&once(&far, None)).0, ReasonCode::AttachRefused);
    assert_eq!(held(&once(&in_state(VolumeState::Error), None)).0, ReasonCode::AttachRefused);
    assert_eq!(held(&once(&in_state(VolumeState::Other("x".into())), None)).0, ReasonCode::AttachRefused);
    for state in [VolumeState::Deleting, VolumeState::Deleted] {
        assert_eq!(held(&once(&in_state(state), None)).0, ReasonCode::VolumeNotFound);
    }
    assert!(waits(&once(&in_state(VolumeState::InUse), None)).contains("by whom"));
}

#[test]
fn after_a_lost_answer_it_is_looked_and_not_asked_again() {
    for code in [Code::NoAnswer, Code::Unavailable] {
        let mut attempts = Attempts::default();
        let volume = free();
        attempts.turn_to(&volume.id);
        assert_eq!(attempts.asked(&volume, "/dev/sdg".into(), Err(&error(code)), Duration::ZERO), None);
        waits(&look(&mut attempts, &volume, None, 3));
        // It was done after all.
        waits(&look(&mut attempts, &at("i-here", AttachState::Attaching), None, 5));
        assert!(matches!(look(&mut attempts, &at("i-here", AttachState::Attached), None, 6), Next::Here { .. }));
    }
}

#[test]
fn a_question_that_came_to_nothing_is_put_again_under_another_name() {
    let mut attempts = Attempts::default();
    let volume = free();
    attempts.turn_to(&volume.id);
    assert_eq!(attempts.asked(&volume, "/dev/sdg".into(), Ok(()), Duration::ZERO), None);
    waits(&look(&mut attempts, &volume, None, 9));
    assert_eq!(look(&mut attempts, &volume, None, 10), Next::Attach { device: "/dev/sdh".into() });
}

#[test]
fn no_name_that_failed_is_ever_asked_for_again_until_there_is_none() {
    let mut attempts = Attempts::default();
    let volume = free();
    let mut asked = BTreeSet::new();
    for second in 0..20 {
        match look(&mut attempts, &volume, None, second) {
            Next::Attach { device } => {
                assert!(asked.insert(device.clone()), "{device} twice");
                let refused = error(Code::InvalidParameter);
                assert_eq!(attempts.asked(&volume, device, Err(&refused), Duration::from_secs(second)), None);
            }
            stuck => {
                assert_eq!(held(&stuck).0, ReasonCode::AttachStuck);
                // Eleven names, of which /dev/sdf is in use.
                assert_eq!(asked.len(), 10);
                return;
            }
        }
    }
    panic!("the names never come to their end");
}

#[test]
fn each_error_is_looked_after_waited_out_or_held_for() {
    for code in Code::ALL {
        let mut attempts = Attempts::default();
        let volume = free();
        attempts.turn_to(&volume.id);
        let next = attempts.asked(&volume, "/dev/sdg".into(), Err(&error(code)), Duration::ZERO);
        match next {
            None => assert!(
                matches!(
                    code,
                    Code::NoAnswer
                        | Code::Unavailable
                        | Code::VolumeInUse
                        | Code::IncorrectState
                        | Code::InvalidParameter
                ),
                "{code:?}"
            ),
            Some(Next::Wait(_)) => {
                assert!(matches!(code, Code::Throttled | Code::NoCredentials | Code::NoMetadata), "{code:?}");
            }
            Some(Next::Hold(reason)) => {
                assert!(!code.passes_by_itself(), "{code:?}");
                assert_eq!(reason.code, code.reason_code());
                assert!(reason.message.contains(code.remedy()), "{}", reason.message);
            }
            Some(other) => panic!("{code:?}: {other:?}"),
        }
    }
}

#[test]
fn attached_without_a_device_waits_and_then_says_so() {
    let mut attempts = Attempts::default();
    attempts.turn_to(&VolumeId("vol-00000001".into()));
    waits(&attempts.no_device("vol-00000001", Duration::ZERO));
    // Every look in between says that it is attached.
    look(&mut attempts, &at("i-here", AttachState::Attached), None, 50);
    waits(&attempts.no_device("vol-00000001", Duration::from_secs(89)));
    assert_eq!(held(&attempts.no_device("vol-00000001", Duration::from_secs(90))).0, ReasonCode::AttachStuck);
}
