//! All combinations of what the rules look at, by representatives, against an oracle that knows labels only; and the
//! properties that must hold whatever the rows say.

use super::*;

/// What etcd would open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sel {
    Healthy,
    Damaged,
    Locked,
    /// Ids, and no key.
    Bootstrapped,
    /// A directory without anything.
    EmptyDir,
    /// Configuration names a path that is not there.
    NotThere,
    /// `state` names a path that is not there.
    NotThereByState,
    /// Nothing selects, and there is nothing to select.
    Nothing,
}
const SELS: [Sel; 8] = [
    Sel::Healthy,
    Sel::Damaged,
    Sel::Locked,
    Sel::Bootstrapped,
    Sel::EmptyDir,
    Sel::NotThere,
    Sel::NotThereByState,
    Sel::Nothing,
];

/// What lies beside it. All of it belongs to the other cluster but `Newer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    None,
    Smaller,
    BiggerArchive,
    BiggerTrash,
    /// The same cluster, at a revision that the selected dir cannot reach.
    Newer,
    V2Trash,
    V2Legacy,
}
const BESIDES: [Beside; 7] = [
    Beside::None,
    Beside::Smaller,
    Beside::BiggerArchive,
    Beside::BiggerTrash,
    Beside::Newer,
    Beside::V2Trash,
    Beside::V2Legacy,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    None,
    Normal,
    Empty,
    NewCluster,
    Quarantined,
    Unknown,
}
const STATES: [State; 6] =
    [State::None, State::Normal, State::Empty, State::NewCluster, State::Quarantined, State::Unknown];

fn volume(sel: Sel, beside: Beside, state: State) -> VolumeReading {
    let mut dirs = vec![];
    let path = "data/live";
    match sel {
        Sel::Healthy => dirs.push(healthy(path)),
        Sel::Damaged => dirs.push(DataDirReport {
            defects: vec![Defect {
                code: "wal-damaged".into(),
                severity: Severity::Damage,
                file: "member/wal".into(),
                offset: None,
                message: "a gap".into(),
            }],
            ..healthy(path)
        }),
        Sel::Locked => dirs.push(DataDirReport { locked_by: Some(1), ..healthy(path) }),
        Sel::Bootstrapped => dirs.push(bootstrapped(path)),
        Sel::EmptyDir | Sel::NotThere | Sel::NotThereByState | Sel::Nothing => {}
    }
    match beside {
        Beside::None => {}
        Beside::Smaller => dirs.push(archive("etcd-old", OTHER, 10)),
        Beside::BiggerArchive => dirs.push(archive("etcd-old", OTHER, 1_000)),
        Beside::BiggerTrash => dirs.push(archive("data-trashcan/t", OTHER, 1_000)),
        Beside::Newer => {
            let mut newer = archive("etcd-old", OURS, 50);
            newer.fingerprint.as_mut().unwrap().revision = Some(5_000);
            dirs.push(newer);
        }
        Beside::V2Trash => dirs.push(v2("data-trashcan/t", DirRole::Archive)),
        Beside::V2Legacy => dirs.push(v2("var/etcd/data", DirRole::Legacy)),
    }
    let selected = match sel {
        Sel::Healthy | Sel::Damaged | Sel::Locked | Sel::Bootstrapped | Sel::EmptyDir => {
            selects(path, SelectedBy::Config, true)
        }
        Sel::NotThere => selects(path, SelectedBy::Config, false),
        Sel::NotThereByState => selects(path, SelectedBy::State, false),
        Sel::Nothing => None,
    };
    let of = |change: fn(&mut EtcdManagerState)| {
        let mut state = EtcdManagerState::default();
        change(&mut state);
        Some(Observed::Seen(state))
    };
    let manager_state = match state {
        State::None => None,
        State::Normal => of(|_| {}),
        State::Empty => of(|it| it.empty = true),
        State::NewCluster => of(|it| it.new_cluster = true),
        State::Quarantined => of(|it| it.quarantined = true),
        State::Unknown => Some(Observed::Unknown(eio())),
    };
    VolumeReading { manager_state, ..reading(dirs, selected) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pinned {
    No,
    Ours,
    OtherCluster,
    OtherMember,
}

/// What was noted of the pinned identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noted {
    Nothing,
    /// Not ahead of the healthy dir.
    Reached,
    /// Ahead of it by one of the three comparisons.
    Index,
    Term,
    Revision,
}

/// What the records say, as labels.
#[derive(Debug, Clone, Copy)]
struct Memory {
    pinned: Pinned,
    noted: Noted,
    /// The record saw the healthy dir's ids appear while the gate was open, and it keeps enough keys.
    changed: bool,
    held: bool,
    made_here: bool,
    allowed: bool,
    other_volume: bool,
    contradict: bool,
    /// Records name another filesystem than the one with UUID 1.
    other_filesystem: bool,
}

const NO_MEMORY: Memory = Memory {
    pinned: Pinned::No,
    noted: Noted::Nothing,
    changed: false,
    held: false,
    made_here: false,
    allowed: false,
    other_volume: false,
    contradict: false,
    other_filesystem: false,
};

fn memories() -> Vec<Memory> {
    let mut all = vec![
        NO_MEMORY,
        Memory { made_here: true, ..NO_MEMORY },
        Memory { allowed: true, ..NO_MEMORY },
        Memory { allowed: true, made_here: true, ..NO_MEMORY },
        Memory { held: true, ..NO_MEMORY },
        Memory { held: true, made_here: true, ..NO_MEMORY },
        Memory { other_volume: true, ..NO_MEMORY },
        Memory { contradict: true, ..NO_MEMORY },
        Memory { other_filesystem: true, ..NO_MEMORY },
        Memory { other_filesystem: true, other_volume: true, ..NO_MEMORY },
        // Noted, and no pin stands.
        Memory { noted: Noted::Term, held: true, ..NO_MEMORY },
    ];
    for pinned in [Pinned::Ours, Pinned::OtherCluster, Pinned::OtherMember] {
        all.push(Memory { pinned, ..NO_MEMORY });
        all.push(Memory { pinned, noted: Noted::Reached, held: true, ..NO_MEMORY });
        all.push(Memory { pinned, noted: Noted::Reached, held: true, changed: true, ..NO_MEMORY });
        all.push(Memory { pinned, noted: Noted::Reached, held: true, other_filesystem: true, ..NO_MEMORY });
        all.push(Memory { pinned, noted: Noted::Reached, held: true, other_volume: true, ..NO_MEMORY });
    }
    for noted in [Noted::Index, Noted::Term, Noted::Revision] {
        all.push(Memory { pinned: Pinned::Ours, noted, held: true, made_here: true, ..NO_MEMORY });
    }
    all
}

fn records_of(memory: &Memory) -> Records {
    let Memory { pinned, noted, changed, held, made_here, allowed, other_volume, contradict, other_filesystem } =
        *memory;
    let cluster = match pinned {
        Pinned::No | Pinned::Ours | Pinned::OtherMember => OURS,
        Pinned::OtherCluster => OTHER,
    };
    let member = match pinned {
        Pinned::No | Pinned::Ours => ME,
        Pinned::OtherCluster | Pinned::OtherMember => HIM,
    };
    let reached = HighWater { cluster_id: Some(cluster), member_id: Some(member), ..mark() };
    let high_water = match noted {
        Noted::Nothing => None,
        Noted::Reached => Some(reached),
        Noted::Index => Some(HighWater { consistent_index: Some(306), ..reached }),
        Noted::Term => Some(HighWater { term: Some(8), ..reached }),
        Noted::Revision => Some(HighWater { revision: Some(206), ..reached }),
    };
    Records {
        pin: (pinned != Pinned::No).then(|| Pin { data_dir: "data/live".into(), ..pin(cluster, member) }),
        high_water,
        held_data_at: held.then(time),
        fs_uuids: if other_filesystem { vec![uuid(2)] } else { vec![] },
        formatted: if made_here { vec![uuid(1)] } else { vec![] },
        fresh_allowed: if allowed { vec![uuid(1)] } else { vec![] },
        identity_changed: changed.then_some((OURS, ME)),
        names_other_volume: other_volume.then(|| VolumeId("vol-2".into())),
        pins_contradict: contradict,
        ..Records::default()
    }
}

const ANSWERS: [Option<Adoption>; 5] =
    [None, Some(Adoption::Identity), Some(Adoption::Restored), Some(Adoption::NewCluster), Some(Adoption::Replacement)];

/// One state of the abstract space.
#[derive(Debug, Clone, Copy)]
struct Case {
    sel: Sel,
    beside: Beside,
    state: State,
    memory: Memory,
    answer: Option<Adoption>,
    /// `None`: not known.
    age: Option<VolumeAge>,
    fresh: bool,
}

impl Case {
    fn populated(&self) -> bool {
        [Sel::Healthy, Sel::Damaged, Sel::Locked].contains(&self.sel)
    }
    fn starts_empty(&self) -> bool {
        [Some(Adoption::NewCluster), Some(Adoption::Replacement)].contains(&self.answer)
    }
    fn adopts_data(&self) -> bool {
        self.answer == Some(Adoption::Identity) && self.populated()
    }
    fn restored(&self) -> bool {
        self.answer == Some(Adoption::Restored) && self.populated()
    }
    /// The pinned ids, and not behind.
    fn continues(&self) -> bool {
        self.memory.pinned == Pinned::Ours
            && match self.sel {
                Sel::Healthy | Sel::Damaged | Sel::Locked => {
                    self.memory.noted == Noted::Reached || self.memory.noted == Noted::Nothing
                }
                Sel::Bootstrapped => self.memory.noted == Noted::Nothing && !self.memory.held,
                Sel::EmptyDir | Sel::NotThere | Sel::NotThereByState | Sel::Nothing => false,
            }
    }
    fn beside_is_ahead(&self) -> bool {
        match self.beside {
            Beside::None => false,
            Beside::Smaller | Beside::V2Trash => !self.populated(),
            Beside::BiggerArchive | Beside::BiggerTrash | Beside::Newer | Beside::V2Legacy => true,
        }
    }
    fn migrates(&self) -> bool {
        let says = [State::Empty, State::NewCluster, State::Quarantined].contains(&self.state);
        let put_away = [Beside::BiggerTrash, Beside::V2Trash].contains(&self.beside);
        // What lies in the trashcan is the other cluster's.
        let pinned_is_there = [Pinned::No, Pinned::OtherCluster].contains(&self.memory.pinned);
        // A populated dir that nothing is ahead of is no half-done migration.
        let undone = self.beside_is_ahead();
        says && put_away && pinned_is_there && undone
    }
}

/// May it start, by labels alone?
fn oracle(case: &Case) -> bool {
    let memory = &case.memory;
    if case.state == State::Unknown || case.sel == Sel::Damaged || case.sel == Sel::Locked {
        return false;
    }
    if memory.other_volume && !case.restored() {
        return false;
    }
    if memory.other_filesystem && !(case.starts_empty() || case.adopts_data() || case.restored()) {
        return false;
    }
    if memory.contradict && !(case.adopts_data() || case.answer == Some(Adoption::NewCluster)) {
        return false;
    }
    // Nothing says which dir, and one that is no archive holds data.
    if case.sel == Sel::Nothing && case.beside == Beside::V2Legacy {
        return false;
    }
    if case.continues() {
        return true;
    }
    let migrates = case.migrates();
    let has_ids = [Sel::Healthy, Sel::Bootstrapped].contains(&case.sel);
    if has_ids {
        let excused = |by: &[Adoption]| {
            migrates
                || case.adopts_data()
                || case.answer.is_some_and(|answer| by.contains(&answer))
                || (memory.changed && case.populated() && !case.beside_is_ahead())
        };
        let right = match memory.pinned {
            Pinned::No | Pinned::Ours => true,
            Pinned::OtherCluster => excused(&[Adoption::NewCluster]),
            Pinned::OtherMember => excused(&[Adoption::NewCluster, Adoption::Replacement]),
        };
        if !right {
            return false;
        }
    }
    let behind = [Noted::Index, Noted::Term, Noted::Revision].contains(&memory.noted);
    if case.populated() && behind && !(case.adopts_data() || case.restored()) {
        return false;
    }
    if case.beside_is_ahead() && !(migrates || case.starts_empty() || case.adopts_data()) {
        return false;
    }
    if case.populated() || migrates || case.starts_empty() {
        return true;
    }
    // Nothing is there.
    let announced = case.state == State::NewCluster;
    if case.sel == Sel::NotThereByState && !announced {
        return false;
    }
    let remembered = memory.held || memory.pinned != Pinned::No || memory.noted != Noted::Nothing;
    let begun = memory.allowed || case.sel == Sel::Bootstrapped;
    let may_be_new = match case.age {
        Some(VolumeAge::Young) => true,
        Some(VolumeAge::Old) => memory.made_here && begun,
        Some(VolumeAge::NoProvider) => memory.made_here || !memory.allowed || case.sel == Sel::Bootstrapped,
        None => memory.made_here,
    };
    !remembered && case.fresh && may_be_new
}

fn every_case(mut visit: impl FnMut(&Case, &StartEvidence, &StartPolicy)) {
    let (no_provider, young) = (Some(VolumeAge::NoProvider), Some(VolumeAge::Young));
    let ages = [(no_provider, true), (young, true), (Some(VolumeAge::Old), true), (None, true), (young, false)];
    for memory in memories() {
        let records = records_of(&memory);
        for sel in SELS {
            for beside in BESIDES {
                for state in STATES {
                    let mut evidence = with_records(volume(sel, beside, state), Records::default());
                    for answer in ANSWERS {
                        evidence.records = Observed::Seen(Records { adoption: answer, ..records.clone() });
                        for (age, fresh) in ages {
                            evidence.age = match age {
                                Some(age) => Observed::Seen(age),
                                None => Observed::Unknown(eio()),
                            };
                            let policy = StartPolicy { fresh, ..policy() };
                            visit(&Case { sel, beside, state, memory, answer, age, fresh }, &evidence, &policy);
                        }
                    }
                }
            }
        }
    }
}

/// 28 memories × 8 selections × 7 dirs beside × 6 states × 5 answers × 5 ages with their policy.
#[test]
fn every_combination_is_decided_as_the_oracle_decides_it() {
    let (mut states, mut started) = (0_u64, 0_u64);
    every_case(|case, evidence, policy| {
        let verdict = may_start(evidence, policy);
        states += 1;
        let start = match &verdict {
            StartVerdict::Start { how, .. } => {
                properties_of_a_start(case, *how);
                true
            }
            StartVerdict::Hold { reasons } => {
                assert!(!reasons.is_empty(), "held without a reason: {case:?}");
                false
            }
        };
        started += u64::from(start);
        assert_eq!(start, oracle(case), "{case:?} gave {verdict:#?}");
        assert!(start || !healthy_and_known(case), "a healthy node was held: {case:?} {verdict:#?}");
    });
    assert_eq!(states, 29 * 8 * 7 * 6 * 5 * 5);
    assert_eq!(started, STARTED);
}

/// Counted once by the oracle; a rule that changes moves it.
const STARTED: u64 = 59_000;

/// What must be true of everything that starts, whatever the rows say.
fn properties_of_a_start(case: &Case, how: StartKind) {
    assert_ne!(case.state, State::Unknown, "unknown is never healthy: {case:?}");
    assert_ne!(case.sel, Sel::Damaged, "no answer lifts damage: {case:?}");
    let contradicts = [Pinned::OtherCluster, Pinned::OtherMember].contains(&case.memory.pinned);
    if case.sel == Sel::Healthy && contradicts {
        assert!(
            case.answer.is_some() || how == StartKind::IdentityChanged || how == StartKind::MigrationUnderWay,
            "data with other ids than the pinned ones started by itself: {case:?}"
        );
    }
    if !case.populated() && case.memory.held {
        assert!(case.starts_empty() || how == StartKind::MigrationUnderWay, "nothing started where data was: {case:?}");
    }
    if !case.populated() && case.beside_is_ahead() {
        assert!(
            case.starts_empty() || how == StartKind::MigrationUnderWay || case.continues(),
            "an empty etcd started beside old data: {case:?}"
        );
    }
    match how {
        StartKind::Fresh => assert!(!case.populated() && case.fresh, "{case:?}"),
        StartKind::Adopted => assert!(case.answer.is_some(), "{case:?}"),
        StartKind::Continues => assert!(case.continues() && case.memory.pinned == Pinned::Ours, "{case:?}"),
        StartKind::FirstUse => assert!(case.populated() && case.memory.pinned == Pinned::No, "{case:?}"),
        StartKind::IdentityChanged => assert!(case.memory.changed, "{case:?}"),
        StartKind::MigrationUnderWay => assert!(case.migrates(), "{case:?}"),
        StartKind::Running => panic!("nothing runs here: {case:?}"),
    }
}

/// Existing data that agrees with the node's own record: starts whatever lies beside it, whoever cannot be reached.
fn healthy_and_known(case: &Case) -> bool {
    case.sel == Sel::Healthy
        && case.memory.pinned == Pinned::Ours
        && case.memory.noted == Noted::Reached
        && !case.memory.other_filesystem
        && !case.memory.other_volume
        && case.state != State::Unknown
}

#[test]
fn no_unknown_source_ever_lets_anything_start() {
    let mut seen = 0;
    every_case(|case, evidence, policy| {
        // Age does not bear on this, and neither does the policy for a fresh start.
        if case.age != Some(VolumeAge::Young) || !case.fresh || case.beside != Beside::None {
            return;
        }
        let each = [
            StartEvidence { filesystem: Observed::Unknown(eio()), ..evidence.clone() },
            StartEvidence { volume: Observed::Unknown(eio()), ..evidence.clone() },
            StartEvidence { records: Observed::Unknown(eio()), ..evidence.clone() },
            StartEvidence { running: Observed::Unknown(eio()), ..evidence.clone() },
        ];
        for evidence in each {
            seen += 1;
            assert!(matches!(may_start(&evidence, policy), StartVerdict::Hold { .. }), "{case:?}");
        }
    });
    assert_eq!(seen, 29 * 8 * 6 * 5 * 4);
}

#[test]
fn a_running_etcd_is_adopted_in_every_case() {
    every_case(|case, evidence, policy| {
        if case.age.is_some() || case.answer.is_some() {
            return;
        }
        let running = Observed::Seen(Some(RunningEtcd { pid: 1, data_dir: "data/live".into() }));
        let evidence = StartEvidence { running, ..evidence.clone() };
        assert!(
            matches!(may_start(&evidence, policy), StartVerdict::Start { how: StartKind::Running, .. }),
            "{case:?}"
        );
    });
}

/// What configuration may say besides bears on nothing of data that continues its record.
#[test]
fn healthy_continuing_data_starts_whatever_the_optional_configuration_says() {
    let mut seen = 0;
    for data_dir in [None, Some("data/live".to_owned())] {
        for member in [None, Some("etcd-a".to_owned())] {
            for peer_url in [None, Some("https://a:2380".to_owned())] {
                for fresh in [true, false] {
                    for min_keys_percent in [0, 50, 100] {
                        for far_behind_percent in [0, 50, 100] {
                            let policy = StartPolicy {
                                fresh,
                                data_dir: data_dir.clone(),
                                publish: Vec::new(),
                                member: member.clone(),
                                peer_url: peer_url.clone(),
                                min_keys_percent,
                                far_behind_percent,
                                runs_as: None,
                            };
                            for beside in BESIDES {
                                let memory =
                                    Memory { pinned: Pinned::Ours, noted: Noted::Reached, held: true, ..NO_MEMORY };
                                let evidence =
                                    with_records(volume(Sel::Healthy, beside, State::None), records_of(&memory));
                                let verdict = may_start(&evidence, &policy);
                                seen += 1;
                                assert!(
                                    matches!(verdict, StartVerdict::Start { how: StartKind::Continues, .. }),
                                    "{policy:?} {beside:?}: {verdict:#?}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }
    assert_eq!(seen, 2 * 2 * 2 * 2 * 3 * 3 * 7);
}
