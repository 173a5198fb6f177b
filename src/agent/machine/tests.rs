//! Walks every path of the machine through a small world whose answers may be good, bad or missing, and asserts on each
//! what must hold on all.

mod witness;

use super::*;
use crate::model::{
    BlkidAnswer, BlkidName, BootId, ClusterId, Content, ContentClass, DataDirReport, DevNum, DeviceUse, DirRole,
    EtcdGeneration, FilesystemFacts, Fingerprint, Fstype, MemberId, RaftProgress, ReasonCode, Release, SelectedBy,
    Selection, VolumeAge, VolumeId, VolumeReading, Why,
};

const SIZE: u64 = 1 << 30;

fn uuid(n: u128) -> FsUuid {
    FsUuid(uuid::Uuid::from_u128(n))
}

fn unknown<T>() -> Observed<T> {
    Observed::Unknown(Why::TimedOut { detail: "test".into() })
}

fn policy(mode: Mode, format: FormatPolicy, fstype: Fstype) -> GuardPolicy {
    GuardPolicy {
        mode,
        fstype,
        format,
        start: StartPolicy {
            fresh: true,
            data_dir: Some("default".into()),
            publish: Vec::new(),
            member: None,
            peer_url: None,
            min_keys_percent: 50,
            far_behind_percent: 50,
            runs_as: None,
        },
    }
}

fn facts() -> DeviceFacts {
    DeviceFacts {
        requested: "/dev/x".into(),
        node: "/dev/x".into(),
        devnum: DevNum { major: 7, minor: 0 },
        size: SIZE,
        logical_block: 512,
        read_only: false,
        whole_disk: true,
        serial: None,
        diskseq: Some(3),
        backing_file: None,
        volume_id: VolumeId("local:/dev/x".into()),
        uses: Vec::new(),
    }
}

/// What the two clocks say.
const NOW: i64 = 1_800_000_000;
const NOW_BOOT: u64 = 90_000_000;

fn found(place: Place, records: Observed<Records>, gate_open: bool) -> Found {
    Found {
        facts: facts(),
        place,
        records,
        identity: Observed::Seen(Identity::Matches),
        origin: Observed::Seen(Origin::NoProvider),
        witness: Observed::Seen(None),
        gate_open,
        boot_id: BootId("boot".into()),
        now: Time::from_unix(NOW).expect("a time"),
        now_boot: Some(BootMillis(NOW_BOOT)),
    }
}

fn blkid(named: &[&str]) -> Observed<BlkidAnswer> {
    Observed::Seen(BlkidAnswer {
        safeprobe: if named.is_empty() { 1 } else { 0 },
        probe_loop: 1,
        named: named
            .iter()
            .map(|kind| BlkidName {
                kind: (*kind).to_owned(),
                usage: None,
                uuid: None,
                label: None,
                offset: Some(0x438),
                bad_checksum: false,
            })
            .collect(),
        version: "2.38.1".into(),
    })
}

fn content(class: ContentClass, complete: bool) -> Observed<Content> {
    Observed::Seen(Content {
        class,
        complete,
        bytes_read: SIZE,
        read_errors: 0,
        first_other: (class == ContentClass::Other).then_some(4096),
        findings: Vec::new(),
        sample: None,
        telling_digest: "00".into(),
        size_before: SIZE,
        size_after: SIZE,
    })
}

fn filesystem(fstype: Fstype, fs: FsUuid) -> FilesystemFacts {
    FilesystemFacts {
        fstype: fstype.as_str().into(),
        uuid: Some(fs),
        label: None,
        made_at: None,
        last_mounted: None,
        unknown_features: Vec::new(),
        clean: Some(true),
    }
}

fn blank() -> DeviceReading {
    DeviceReading { libblkid: blkid(&[]), content: content(ContentClass::Zero, true), filesystem: None }
}

fn standing(fstype: Fstype) -> DeviceReading {
    DeviceReading {
        libblkid: blkid(&[fstype.as_str()]),
        content: content(ContentClass::Other, false),
        filesystem: Some(filesystem(fstype, uuid(1))),
    }
}

/// Everything that a reading can be, and whether it is a proof of blankness.
fn readings(fstype: Fstype) -> Vec<(DeviceReading, bool)> {
    let other = match fstype {
        Fstype::Ext4 => Fstype::Xfs,
        Fstype::Xfs => Fstype::Ext4,
    };
    vec![
        (blank(), true),
        (standing(fstype), false),
        (standing(other), false),
        (DeviceReading { libblkid: blkid(&[]), content: content(ContentClass::Other, false), filesystem: None }, false),
        (DeviceReading { libblkid: blkid(&[]), content: content(ContentClass::Zero, false), filesystem: None }, false),
        (DeviceReading { libblkid: unknown(), content: content(ContentClass::Zero, true), filesystem: None }, false),
        (DeviceReading { libblkid: blkid(&[]), content: unknown(), filesystem: None }, false),
        (DeviceReading { libblkid: blkid(&[fstype.as_str()]), ..blank() }, false),
        (DeviceReading { libblkid: unknown(), ..standing(fstype) }, false),
        (DeviceReading { libblkid: blkid(&[other.as_str()]), ..standing(fstype) }, false),
    ]
}

fn dir(keys: u64) -> DataDirReport {
    DataDirReport {
        path: "default".into(),
        role: DirRole::Selected,
        layout: "etcd".into(),
        etcd: EtcdGeneration::V3,
        populated: keys > 0,
        fingerprint: Some(Fingerprint {
            cluster_id: Some(ClusterId(1)),
            member_id: Some(MemberId(2)),
            raft: RaftProgress {
                term: Some(2),
                commit: Some(9),
                first_index: Some(1),
                last_index: Some(9),
                snapshot_index: None,
            },
            consistent_index: Some(9),
            revision: Some(4),
            keys: Some(keys),
            ..Fingerprint::default()
        }),
        defects: Vec::new(),
        locked_by: None,
    }
}

fn evidence(volume: Observed<VolumeReading>, records: Observed<Records>) -> StartEvidence {
    StartEvidence {
        volume_id: VolumeId("local:/dev/x".into()),
        filesystem: Observed::Seen(filesystem(Fstype::Ext4, uuid(1))),
        volume,
        records,
        running: Observed::Seen(None),
        age: Observed::Seen(VolumeAge::NoProvider),
        siblings: crate::model::Siblings::not_named(),
        witness: Observed::Seen(None),
        to_run: Observed::Seen(None),
    }
}

fn volume(dirs: Vec<DataDirReport>) -> Observed<VolumeReading> {
    Observed::Seen(VolumeReading {
        selected: Some(Selection { path: "default".into(), by: SelectedBy::Config, exists: !dirs.is_empty() }),
        data_dirs: dirs,
        manager_state: None,
        unreadable: Vec::new(),
        beyond: Vec::new(),
        root_entries: Vec::new(),
        publish: Vec::new(),
    })
}

fn reason() -> Reason {
    Reason::new(ReasonCode::MountFailed, "test")
}

fn failure() -> Failure {
    Failure { reason: reason(), tool_output: None }
}

/// What has happened on one path so far, as the world saw it.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// The provider has said that the volume is here.
    brought: bool,
    claimed: bool,
    proven_blank: bool,
    reread_same: bool,
    formatted: u32,
    standing: bool,
    checked: bool,
    noted: bool,
    mounted: bool,
    looked: bool,
    published: bool,
    found_mounted: bool,
    found_partly: bool,
    open: bool,
    trail: Vec<String>,
}

/// Every answer that the world may give to an action.
fn answers(action: &Action, seen: &Seen, fstype: Fstype) -> Vec<(Event, Seen)> {
    let with = |change: &dyn Fn(&mut Seen)| {
        let mut next = seen.clone();
        change(&mut next);
        next
    };
    let used = Records { held_data_at: Time::from_unix(1_700_000_000), ..Records::default() };
    match action {
        Action::Find => {
            let free = |records| Event::Found(Box::new(found(Place::Free, records, false)));
            let mounted =
                |open| Event::Found(Box::new(found(Place::Mounted, Observed::Seen(Records::default()), open)));
            let partly = |open| Event::Found(Box::new(found(Place::Partly, Observed::Seen(Records::default()), open)));
            let mut busy = found(Place::Free, Observed::Seen(Records::default()), false);
            busy.facts.uses.push(DeviceUse::Swap);
            let start = with(&|next| {
                *next = Seen { open: next.open, brought: next.brought, trail: next.trail.clone(), ..Seen::default() }
            });
            let at = Seen { found_mounted: true, ..start.clone() };
            vec![
                (free(Observed::Seen(Records::default())), start.clone()),
                (free(Observed::Seen(used)), start.clone()),
                (free(unknown()), start.clone()),
                (Event::Found(Box::new(busy)), start.clone()),
                (mounted(false), at.clone()),
                (mounted(true), Seen { open: true, ..at }),
                (partly(false), Seen { found_partly: true, ..start.clone() }),
                (partly(true), Seen { found_partly: true, open: true, ..start.clone() }),
                (Event::NotHere, start.clone()),
                (Event::NotFound(reason()), start),
            ]
        }
        Action::Bring => {
            let mut answers = vec![(Event::Waits(reason()), seen.clone()), (Event::NotFound(reason()), seen.clone())];
            // A provider says only once that the volume is here: no device after that is waiting.
            if !seen.brought {
                answers.push((Event::Brought, with(&|next| next.brought = true)));
            }
            answers
        }
        Action::Claim => vec![
            (Event::Claimed(Ok(())), with(&|next| next.claimed = true)),
            (Event::Claimed(Err(reason())), seen.clone()),
        ],
        Action::Probe => readings(fstype)
            .into_iter()
            .map(|(reading, proves)| {
                let stands = reading == standing(fstype);
                let next = with(&|next| {
                    next.proven_blank = proves;
                    next.standing = stands;
                });
                (Event::Read(Box::new(reading)), next)
            })
            .collect(),
        Action::LockAndReread { .. } => {
            let now = BootMillis(5);
            vec![
                (
                    Event::Reread { second: Observed::Seen(SecondReading::Same), now },
                    with(&|next| next.reread_same = true),
                ),
                (
                    Event::Reread { second: Observed::Seen(SecondReading::Changed { detail: "x".into() }), now },
                    seen.clone(),
                ),
                (Event::Reread { second: unknown(), now }, seen.clone()),
            ]
        }
        Action::ReadLedger => {
            let accepts = Records { fs_uuids: vec![uuid(1)], ..Records::default() };
            let other = Records { names_other_volume: Some(VolumeId("vol-1a2b3c4d".into())), ..Records::default() };
            [Observed::Seen(accepts), Observed::Seen(other), unknown()]
                .into_iter()
                .map(|records| (Event::Remembered(Box::new(records)), seen.clone()))
                .collect()
        }
        Action::Mkfs(_) => vec![
            (Event::Made(Ok(uuid(1))), with(&|next| next.standing = true)),
            (Event::Made(Err(failure())), seen.clone()),
        ],
        Action::Fsck => vec![
            (Event::Checked(Ok(())), with(&|next| next.checked = true)),
            (Event::Checked(Err(failure())), seen.clone()),
        ],
        Action::NoFsck(_) => vec![
            (Event::Unchecked(Ok(())), with(&|next| next.noted = true)),
            (Event::Unchecked(Err(failure())), seen.clone()),
        ],
        Action::Mount => vec![
            (Event::Mounted(Ok(())), with(&|next| next.mounted = true)),
            (Event::Mounted(Err(failure())), seen.clone()),
        ],
        Action::Look | Action::LookThroughMount => {
            let looked = with(&|next| next.looked = true);
            let none = || Observed::Seen(Records::default());
            let used = Observed::Seen(used);
            [
                evidence(volume(vec![dir(7)]), none()),
                evidence(volume(Vec::new()), none()),
                evidence(volume(vec![dir(0)]), used.clone()),
                evidence(volume(Vec::new()), used),
                evidence(unknown(), none()),
                evidence(volume(vec![dir(7)]), unknown()),
            ]
            .into_iter()
            .map(|evidence| (Event::Looked(Box::new(evidence)), looked.clone()))
            .collect()
        }
        Action::Publish { .. } => vec![
            (Event::Published(Ok(())), with(&|next| next.published = true)),
            (Event::Published(Err(failure())), seen.clone()),
        ],
        Action::OpenGate { .. } | Action::Secure | Action::LetGo | Action::Decide(_) | Action::Record(_) => Vec::new(),
    }
}

/// What must hold whenever an action is asked for.
fn check(action: &Action, guard: &Guard, seen: &Seen) {
    let trail = || seen.trail.join(" > ");
    let observes = guard.policy.mode == Mode::Observe;
    match action {
        Action::Mkfs(_) => {
            assert!(!observes, "observe mode formats: {}", trail());
            assert!(seen.claimed && seen.proven_blank && seen.reread_same, "mkfs without proof: {}", trail());
            assert_eq!(seen.formatted, 0, "mkfs twice: {}", trail());
            assert!(!seen.mounted, "mkfs after a mount: {}", trail());
            assert_eq!(guard.policy.format, FormatPolicy::IfBlank, "mkfs against the policy: {}", trail());
        }
        Action::Fsck => {
            assert_eq!(guard.policy.fstype, Fstype::Ext4, "a repair of xfs: {}", trail());
            assert!(!observes && seen.claimed && seen.standing, "fsck of what does not stand: {}", trail());
        }
        Action::NoFsck(_) => {
            assert_eq!(guard.policy.fstype, Fstype::Xfs, "ext4 without fsck: {}", trail());
            assert!(!observes && seen.claimed && seen.standing, "mount of what does not stand: {}", trail());
        }
        Action::Mount => {
            assert!(!observes && seen.claimed, "mount of what is not claimed: {}", trail());
            let noted = seen.noted && guard.policy.fstype == Fstype::Xfs;
            assert!(seen.checked || noted || seen.formatted == 1, "mount before fsck: {}", trail());
        }
        Action::Publish { .. } => {
            let by_whom = seen.mounted || seen.found_partly;
            assert!(!observes && by_whom && seen.looked, "published unseen: {}", trail());
        }
        Action::OpenGate { .. } => {
            assert!(!observes, "observe mode opens a gate: {}", trail());
            assert!(seen.looked, "a gate opened unseen: {}", trail());
            assert!(seen.published || seen.found_mounted || seen.open, "a gate opened unpublished: {}", trail());
        }
        Action::ReadLedger => {
            assert!(!observes && seen.claimed && seen.standing, "a look at what does not stand: {}", trail());
            assert!(!seen.checked && !seen.noted && !seen.mounted, "a doubt after a write: {}", trail());
        }
        Action::Claim | Action::LockAndReread { .. } | Action::Look => {
            assert!(!observes, "observe mode touches the device: {}", trail());
        }
        Action::Bring => {
            assert!(!seen.claimed && !seen.mounted, "a volume is fetched that is here: {}", trail());
            assert!(guard.device().is_none(), "the device of another look is still known: {}", trail());
        }
        Action::Find
        | Action::Probe
        | Action::LookThroughMount
        | Action::Secure
        | Action::LetGo
        | Action::Decide(_)
        | Action::Record(_) => {}
    }
}

/// Walks on from here, and counts the ends: states in which nothing more is to be done.
fn walk(guard: &Guard, actions: Vec<Action>, seen: &Seen, ends: &mut Vec<(Guard, Seen)>) {
    let mut seen = seen.clone();
    let mut rest = actions.into_iter();
    while let Some(action) = rest.next() {
        check(&action, guard, &seen);
        seen.trail.push(format!("{action:?}").chars().take(24).collect());
        assert!(seen.trail.len() < 60, "no end: {}", seen.trail.join(" > "));
        if let Action::OpenGate { .. } = action {
            seen.open = true;
        }
        if let Action::Mkfs(_) = action {
            seen.formatted += 1;
        }
        let answers = answers(&action, &seen, guard.policy.fstype);
        if answers.is_empty() {
            continue;
        }
        assert!(rest.next().is_none(), "an action that is answered comes last: {}", seen.trail.join(" > "));
        for (event, next_seen) in answers {
            let (next, actions) = step(guard.clone(), event);
            walk(&next, actions, &next_seen, ends);
        }
        return;
    }
    ends.push((guard.clone(), seen));
}

fn all_ends(mode: Mode, format: FormatPolicy, fstype: Fstype) -> Vec<(Guard, Seen)> {
    let mut ends = Vec::new();
    let (guard, actions) = step(Guard::new(policy(mode, format, fstype)), Event::LookAgain);
    walk(&guard, actions, &Seen::default(), &mut ends);
    ends
}

fn all_policies() -> impl Iterator<Item = (FormatPolicy, Fstype)> {
    [FormatPolicy::Never, FormatPolicy::IfBlank]
        .into_iter()
        .flat_map(|format| [(format, Fstype::Ext4), (format, Fstype::Xfs)])
}

#[test]
fn every_path_in_enforce_ends_open_or_held_and_keeps_the_order_of_things() {
    for (format, fstype) in all_policies() {
        let ends = all_ends(Mode::Enforce, format, fstype);
        let mut open = 0;
        for (guard, seen) in &ends {
            match &guard.state {
                State::Open { .. } => {
                    open += 1;
                    assert!(seen.open, "open without a gate: {}", seen.trail.join(" > "));
                    assert_eq!(guard.gate(), Gate::Open);
                }
                State::Held { reasons } => {
                    assert!(!reasons.is_empty(), "held for nothing: {}", seen.trail.join(" > "));
                    assert!(!seen.open, "a gate that was open is held: {}", seen.trail.join(" > "));
                    assert_eq!(guard.gate(), Gate::Held);
                }
                // On its way: not held, and not open.
                State::Attaching { waits } => {
                    assert!(waits.is_some(), "waits for nothing: {}", seen.trail.join(" > "));
                    assert_eq!(guard.gate(), Gate::Waiting);
                    assert!(!seen.looked && seen.formatted == 0, "waits after a look: {}", seen.trail.join(" > "));
                }
                other => panic!("ends in {other:?}: {}", seen.trail.join(" > ")),
            }
        }
        assert!(open > 0 && open < ends.len(), "{open} of {} ends are open", ends.len());
        let formatted = ends.iter().filter(|(_, seen)| seen.formatted > 0).count();
        assert_eq!(formatted > 0, format == FormatPolicy::IfBlank);
    }
}

#[test]
fn every_path_in_observe_ends_observing_with_an_open_gate() {
    for (format, fstype) in all_policies() {
        let ends = all_ends(Mode::Observe, format, fstype);
        assert!(ends.iter().any(|(guard, _)| guard.would_hold()));
        assert!(ends.iter().any(|(guard, _)| !guard.would_hold()));
        for (guard, seen) in &ends {
            let looked = matches!(guard.state, State::Observing { .. } | State::Attaching { waits: Some(_) });
            assert!(looked, "{:?}: {}", guard.state, seen.trail.join(" > "));
            assert_eq!(guard.gate(), Gate::Open);
        }
    }
}

#[test]
fn from_every_end_a_new_look_keeps_the_order_of_things() {
    let mut looks = 0;
    for (guard, seen) in all_ends(Mode::Enforce, FormatPolicy::IfBlank, Fstype::Xfs) {
        let (next, actions) = step(guard, Event::LookAgain);
        let mut ends = Vec::new();
        walk(&next, actions, &Seen { formatted: 0, ..seen.clone() }, &mut ends);
        for (after, _) in &ends {
            looks += 1;
            if seen.open {
                assert_eq!(after.gate(), Gate::Open, "an open gate was closed: {:?}", after.state);
            }
        }
    }
    assert!(looks > 100, "only {looks} ends");
}

/// Said an hour ago, for two.
fn release() -> Release {
    Release {
        until: Time::from_unix(NOW + 3600).expect("a time"),
        until_boot: Some(BootMillis(NOW_BOOT + 3_600_000)),
        said_at: Time::from_unix(NOW - 3600).expect("a time"),
        boot_id: BootId("boot".into()),
    }
}

/// Is the device still somebody else's when both clocks have gone on (or the wall clock back) by so many seconds?
fn still_released(release: &Release, boot: &str, wall: i64, real: u64) -> bool {
    let released = Observed::Seen(Records { released: Some(release.clone()), ..Records::default() });
    let found = Found {
        boot_id: BootId(boot.into()),
        now: Time::from_unix(NOW + wall).expect("a time"),
        now_boot: Some(BootMillis(NOW_BOOT + 1000 * real)),
        ..found(Place::Free, released, false)
    };
    let guard = Guard::new(policy(Mode::Enforce, FormatPolicy::Never, Fstype::Ext4));
    let (guard, _) = step(guard, Event::LookAgain);
    let (guard, actions) = step(guard, Event::Found(Box::new(found)));
    let let_go = guard.reasons().iter().any(|reason| reason.code == ReasonCode::ReleasedByOperator);
    assert_eq!(let_go, matches!(actions.as_slice(), [Action::LetGo, ..]), "{actions:?}");
    let_go
}

#[test]
fn a_clock_that_is_set_makes_no_release_longer_or_shorter() {
    let day = 86_400;
    for wall in [-3650 * day, -day, 0, day] {
        assert!(still_released(&release(), "boot", wall, 3599), "the wall clock went on by {wall}");
        assert!(!still_released(&release(), "boot", wall, 3600), "the wall clock went on by {wall}");
    }
}

#[test]
fn after_a_reboot_a_clock_that_was_set_back_ends_a_release() {
    // The new boot's own clock says nothing of it.
    for (wall, stands) in [(0, true), (3599, true), (3600, false), (-3600, true), (-3601, false), (-86_400, false)] {
        assert_eq!(still_released(&release(), "another boot", wall, 0), stands, "{wall}");
        // An earlier version noted the wall clock only.
        let old = Release { until_boot: None, ..release() };
        assert_eq!(still_released(&old, "boot", wall, 0), stands, "{wall}");
    }
}

#[test]
fn a_held_guard_stays_held_while_its_volume_is_on_its_way() {
    let guard = Guard::new(policy(Mode::Enforce, FormatPolicy::Never, Fstype::Ext4));
    let (guard, _) = step(guard, Event::LookAgain);
    let (guard, _) = step(guard, Event::NotFound(reason()));
    assert_eq!(guard.gate(), Gate::Held);
    let (guard, actions) = step(guard, Event::LookAgain);
    assert!(matches!(actions.as_slice(), [Action::Find]));
    let (guard, actions) = step(guard, Event::NotHere);
    assert!(matches!(actions.as_slice(), [Action::Bring]));
    let (guard, actions) = step(guard, Event::Waits(reason()));
    assert!(actions.is_empty());
    assert_eq!((guard.gate(), guard.state_name()), (Gate::Held, StateName::Attaching));
    assert_eq!(guard.reasons(), [reason()]);
    assert_eq!(guard.waits(), Some(&reason()));
    // Each look finds out anew, and what it waits for stays said meanwhile.
    let (guard, actions) = step(guard, Event::LookAgain);
    assert!(matches!(actions.as_slice(), [Action::Find]));
    assert_eq!(guard.waits(), Some(&reason()));
    let (guard, actions) = step(guard, Event::NotHere);
    assert!(matches!(actions.as_slice(), [Action::Bring]));
    let (_, actions) = step(guard, Event::Brought);
    assert!(matches!(actions.as_slice(), [Action::Find]));
}

#[test]
fn what_the_provider_knows_goes_into_the_decision_about_formatting() {
    let mut without = found(Place::Free, Observed::Seen(Records::default()), false);
    without.identity = unknown();
    without.origin = unknown();
    without.witness = unknown();
    let (zero, _) = readings(Fstype::Ext4).into_iter().find(|(_, proves)| *proves).expect("a blank one");
    let knowledge = Knowledge {
        identity: Observed::Seen(Identity::Matches),
        origin: Observed::Seen(Origin::Provider { encrypted: false, from_snapshot: None, young: true }),
        age: Observed::Seen(VolumeAge::Young),
        witness: Observed::Seen(None),
    };
    for (known, formats) in [(None, false), (Some(knowledge), true)] {
        let guard = Guard::new(policy(Mode::Enforce, FormatPolicy::IfBlank, Fstype::Ext4));
        let (guard, _) = step(guard, Event::LookAgain);
        let (guard, _) = step(guard, Event::Found(Box::new(without.clone())));
        let (mut guard, _) = step(guard, Event::Claimed(Ok(())));
        if let Some(known) = known {
            let (next, actions) = step(guard, Event::Known(Box::new(known)));
            assert!(actions.is_empty());
            guard = next;
        }
        let (guard, _) = step(guard, Event::Read(Box::new(zero.clone())));
        let same = Observed::Seen(SecondReading::Same);
        let (_, actions) = step(guard, Event::Reread { second: same, now: BootMillis(5) });
        assert_eq!(matches!(actions.as_slice(), [Action::Mkfs(_)]), formats, "{actions:?}");
    }
}

#[test]
fn a_release_lets_go_of_what_is_held_and_leaves_an_open_gate_alone() {
    for gate_open in [false, true] {
        let released = Observed::Seen(Records { released: Some(release()), ..Records::default() });
        let guard = Guard::new(policy(Mode::Enforce, FormatPolicy::Never, Fstype::Ext4));
        let (guard, _) = step(guard, Event::LookAgain);
        let (guard, actions) = step(guard, Event::Found(Box::new(found(Place::Mounted, released, gate_open))));
        let looks = matches!(actions.as_slice(), [Action::LookThroughMount]);
        assert_eq!((guard.gate(), looks), if gate_open { (Gate::Open, true) } else { (Gate::Held, false) });
    }
}

#[test]
fn an_etcd_that_runs_on_an_empty_dir_beside_the_old_data_is_doubted_and_not_stopped() {
    let mut fresh = dir(0);
    fresh.path = "new".into();
    let mut seen = evidence(volume(vec![dir(7), fresh]), Observed::Seen(Records::default()));
    seen.running = Observed::Seen(Some(crate::model::RunningEtcd { pid: 9, data_dir: "new".into() }));
    for gate_open in [false, true] {
        let guard = Guard::new(policy(Mode::Enforce, FormatPolicy::Never, Fstype::Ext4));
        let (guard, _) = step(guard, Event::LookAgain);
        let records = Observed::Seen(Records::default());
        let (guard, _) = step(guard, Event::Found(Box::new(found(Place::Mounted, records, gate_open))));
        let (guard, actions) = step(guard, Event::Looked(Box::new(seen.clone())));
        assert_eq!((guard.gate(), guard.would_hold()), (Gate::Open, true));
        assert_eq!(guard.reasons()[0].code, ReasonCode::EmptyBesideOld);
        assert!(matches!(&actions[..], [Action::Decide(decided), Action::OpenGate { .. }]
            if decided.verdict == DecisionVerdict::WouldHold));
    }
}

#[test]
fn a_fresh_start_is_allowed_once_and_not_at_every_look() {
    let looked = || Event::Looked(Box::new(evidence(volume(Vec::new()), Observed::Seen(Records::default()))));
    let told = |actions: &[Action]| {
        let facts = actions.iter().filter_map(|action| match action {
            Action::OpenGate { facts, .. } | Action::Publish { facts, .. } => Some(facts),
            _other => None,
        });
        facts.flatten().filter(|fact| matches!(fact, Fact::FreshAllowed { .. })).count()
    };
    for gate_open in [false, true] {
        let guard = Guard::new(policy(Mode::Enforce, FormatPolicy::Never, Fstype::Ext4));
        let (guard, _) = step(guard, Event::LookAgain);
        let records = Observed::Seen(Records::default());
        let (guard, _) = step(guard, Event::Found(Box::new(found(Place::Mounted, records, gate_open))));
        let (guard, actions) = step(guard, looked());
        // An agent that is started anew finds the gate open, and the allowance on record.
        assert_eq!(told(&actions), usize::from(!gate_open), "{actions:?}");
        for _look in 0..3 {
            let (guard, _) = step(guard.clone(), Event::LookAgain);
            let (guard, actions) = step(guard, looked());
            assert_eq!((guard.gate(), told(&actions)), (Gate::Open, 0), "{actions:?}");
        }
    }
}

#[test]
fn answers_that_come_late_change_nothing() {
    let held =
        step(Guard::new(policy(Mode::Enforce, FormatPolicy::IfBlank, Fstype::Ext4)), Event::NotFound(reason())).0;
    for event in [
        Event::Read(Box::new(blank())),
        Event::Reread { second: Observed::Seen(SecondReading::Same), now: BootMillis(1) },
        Event::Published(Ok(())),
    ] {
        let (after, actions) = step(held.clone(), event);
        assert_eq!(after.state, held.state);
        assert!(actions.is_empty(), "{actions:?}");
    }
}

#[test]
fn an_identity_that_changes_while_open_is_told_once_and_closes_nothing() {
    let pin = crate::model::Pin {
        cluster_id: ClusterId(1),
        member_id: MemberId(2),
        name: None,
        data_dir: "default".into(),
        fs_uuid: Some(uuid(1)),
        at: Time::from_unix(1_700_000_000).expect("a time"),
    };
    let mut guard = Guard::new(policy(Mode::Enforce, FormatPolicy::Never, Fstype::Ext4));
    guard.state = State::Open { data_dir: "default".into(), doubts: Vec::new() };
    let mark = HighWater {
        data_dir: "default".into(),
        cluster_id: Some(ClusterId(9)),
        member_id: Some(MemberId(2)),
        term: Some(3),
        consistent_index: Some(4),
        revision: Some(2),
        wal_last_index: Some(5),
        keys: Some(1),
    };
    let records = Records { pin: Some(pin), ..Records::default() };
    let marked = |records| Event::Marked {
        mark: Observed::Seen(Some(mark.clone())),
        records: Box::new(Observed::Seen(records)),
    };
    let (guard, actions) = step(guard, marked(records.clone()));
    assert!(matches!(&actions[..], [Action::Record(facts), Action::Decide(_)]
        if matches!(facts[..], [Fact::IdentityChanged { .. }])));
    assert!(guard.would_hold());
    assert_eq!(guard.gate(), Gate::Open);
    let known = Records { identity_changed: Some((ClusterId(9), MemberId(2))), ..records };
    let (guard, actions) = step(guard, marked(known));
    assert!(actions.is_empty(), "told twice: {actions:?}");
    assert!(guard.would_hold());
}

#[test]
fn a_first_key_is_kept_as_progress_and_the_same_progress_is_not_kept_again() {
    let mut guard = Guard::new(policy(Mode::Enforce, FormatPolicy::Never, Fstype::Ext4));
    guard.state = State::Open { data_dir: "default".into(), doubts: Vec::new() };
    let mark = HighWater {
        data_dir: "default".into(),
        cluster_id: Some(ClusterId(1)),
        member_id: Some(MemberId(2)),
        term: Some(2),
        consistent_index: Some(9),
        revision: Some(2),
        wal_last_index: Some(9),
        keys: Some(1),
    };
    let marked = |records| Event::Marked {
        mark: Observed::Seen(Some(mark.clone())),
        records: Box::new(Observed::Seen(records)),
    };
    let (guard, actions) = step(guard, marked(Records::default()));
    let Some(Action::Record(facts)) = actions.first() else { panic!("{actions:?}") };
    assert!(matches!(facts[..], [Fact::Pinned { .. }, Fact::HoldsData { .. }]), "{facts:?}");
    let pin = crate::model::Pin {
        cluster_id: ClusterId(1),
        member_id: MemberId(2),
        name: None,
        data_dir: "default".into(),
        fs_uuid: None,
        at: Time::from_unix(1_700_000_000).expect("a time"),
    };
    let records = Records { pin: Some(pin), high_water: Some(mark.clone()), ..Records::default() };
    let (_, actions) = step(guard, marked(records));
    assert!(actions.is_empty(), "{actions:?}");
}

#[test]
fn xfs_goes_to_its_mount_unrepaired_and_the_decision_says_so() {
    let guard = Guard::new(policy(Mode::Enforce, FormatPolicy::Never, Fstype::Xfs));
    let (guard, _) = step(guard, Event::LookAgain);
    let (guard, _) = step(guard, Event::Found(Box::new(found(Place::Free, Observed::Seen(Records::default()), false))));
    let (guard, _) = step(guard, Event::Claimed(Ok(())));
    let (guard, actions) = step(guard, Event::Read(Box::new(standing(Fstype::Xfs))));
    let [Action::NoFsck(why)] = &actions[..] else { panic!("{actions:?}") };
    let why = (*why).to_owned();
    assert!(why.contains("replays its log"), "{why}");
    let (guard, actions) = step(guard, Event::Unchecked(Ok(())));
    assert!(matches!(actions[..], [Action::Mount]), "{actions:?}");
    let (held, actions) = step(guard.clone(), Event::Mounted(Err(failure())));
    let Some(Action::Decide(decided)) = actions.get(1) else { panic!("{actions:?}") };
    assert!(decided.not_done.contains(&why), "{:?}", decided.not_done);
    // The mount may have replayed the log before it failed.
    assert!(!decided.not_done.iter().any(|text| text.contains("nothing was written")), "{:?}", decided.not_done);
    assert_eq!(held.gate(), Gate::Held);
    let (guard, _) = step(guard, Event::Mounted(Ok(())));
    let seen = StartEvidence {
        filesystem: Observed::Seen(filesystem(Fstype::Xfs, uuid(1))),
        ..evidence(volume(vec![dir(7)]), Observed::Seen(Records::default()))
    };
    let (_, actions) = step(guard, Event::Looked(Box::new(seen)));
    let Some(Action::Decide(decided)) = actions.first() else { panic!("{actions:?}") };
    assert_eq!((decided.verdict, &decided.not_done[..]), (DecisionVerdict::Opened, &[why][..]));
}

/// What a guard of this type says first of a volume with that reading.
#[track_caller]
fn first_objection(fstype: Fstype, reading: DeviceReading, records: Records) -> Reason {
    let guard = Guard::new(policy(Mode::Enforce, FormatPolicy::IfBlank, fstype));
    let (guard, _) = step(guard, Event::LookAgain);
    let (guard, _) = step(guard, Event::Found(Box::new(found(Place::Free, Observed::Seen(records), false))));
    let (guard, _) = step(guard, Event::Claimed(Ok(())));
    let (guard, actions) = step(guard, Event::Read(Box::new(reading)));
    assert!(matches!(actions[..], [Action::Secure, Action::Decide(_)]), "{actions:?}");
    guard.reasons()[0].clone()
}

#[test]
fn a_filesystem_of_another_type_is_named_beside_the_configured_one() {
    for (configured, there) in [(Fstype::Ext4, Fstype::Xfs), (Fstype::Xfs, Fstype::Ext4)] {
        let reason = first_objection(configured, standing(there), Records::default());
        assert_eq!(reason.code, ReasonCode::SignatureFound);
        let said = format!("carries an {there} with UUID {}, and the configuration of this guard says", uuid(1));
        assert!(reason.message.contains(&said), "{}", reason.message);
        assert!(reason.message.contains(&format!("fstype = \"{configured}\"")), "{}", reason.message);
    }
}

#[test]
fn a_filesystem_that_our_own_mkfs_did_not_finish_goes_nowhere() {
    let mut reading = standing(Fstype::Xfs);
    reading.filesystem = Some(FilesystemFacts { clean: Some(false), ..filesystem(Fstype::Xfs, uuid(1)) });
    let intent = crate::model::OpenIntent {
        fs_uuid: uuid(1),
        boot_id: BootId("boot".into()),
        diskseq: Some(3),
        devnum: DevNum { major: 7, minor: 0 },
    };
    let reason = first_objection(Fstype::Xfs, reading, Records { open_intent: Some(intent), ..Records::default() });
    assert_eq!(reason.code, ReasonCode::IntentUnfinished);
    assert!(reason.message.contains("did not come to its end"), "{}", reason.message);
}
