//! The searches: from which worlds, with how much going wrong.

use super::doing::Nature;
use super::happenings::Sort::{self, Agent, Death, Disk, Ec2, Person, Power};
use super::known::{Known, Line, Told};
use super::world::{At, Content, Data, MOST, Master, Volume, World};
use super::{Search, readings};
use crate::agent::machine::GuardPolicy;
use crate::model::{FormatPolicy, Fstype, Mode, StartPolicy};

/// Where a cluster stands when the search begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// Blank volumes, made an hour ago at most.
    New,
    /// A cluster of months: data, ledgers, the volumes attached, the machines just booted.
    Grown,
    /// The same, on instances that know nothing of it.
    Replaced,
}

fn policy() -> GuardPolicy {
    GuardPolicy {
        mode: Mode::Enforce,
        fstype: Fstype::Ext4,
        format: FormatPolicy::IfBlank,
        start: StartPolicy {
            fresh: true,
            data_dir: Some(readings::DIR.into()),
            publish: Vec::new(),
            member: None,
            peer_url: None,
            min_keys_percent: 50,
            far_behind_percent: 50,
            runs_as: None,
        },
    }
}

const NATURE: Nature = Nature { encrypted: false, tags: false, no_ec2: false, any_member: false };

fn volume(slot: u8, young: bool) -> Volume {
    Volume {
        content: Content::Blank,
        ledger: 0,
        at: At::Nowhere,
        seq: 0,
        made: 0,
        tags: None,
        young,
        from_snapshot: false,
        slot,
        person: false,
        unsynced: false,
        held: false,
        told: Data::None,
        beside: false,
        copy: false,
        consent: None,
    }
}

fn search(
    name: &'static str,
    begins: Begins,
    (masters, spare): (u8, u8),
    faults: u8,
    nature: Nature,
    sorts: &[Sort],
) -> Search {
    let mut known = Known::new(policy());
    let mut world = World { volumes: [None; MOST], masters: [None; MOST], faults };
    for m in 0..masters {
        let mut master = Master {
            instance: 0,
            boot: 0,
            ledger: 0,
            entries: 0,
            wants: m,
            agent: None,
            mounted: None,
            gate: None,
            etcd: false,
        };
        let mut of = volume(m, begins == Begins::New);
        if begins != Begins::New {
            let (fs, data) = (16 * (m + 1), Data::Member { member: m, progress: 1 });
            let line = |number, told| Line { id: (m, 0, number), boot: 0, volume: m, fs: Some(fs), told };
            let ledger =
                known.ledger(vec![line(0, Told::Pinned { member: m, adopted: false }), line(1, Told::Holds(data))]);
            of = Volume {
                content: Content::Fs { uuid: fs, data, aside: Data::None },
                ledger,
                held: true,
                told: data,
                ..of
            };
            match begins {
                Begins::Grown => {
                    (of.at, of.seq) = (At::Here(m), 1);
                    (master.ledger, master.entries, master.boot) = (ledger, 2, 1);
                }
                Begins::Replaced => master.instance = 1,
                Begins::New => {}
            }
        }
        world.masters[usize::from(m)] = Some(master);
        world.volumes[usize::from(m)] = Some(of);
    }
    for v in masters..masters + spare {
        world.volumes[usize::from(v)] = Some(volume(0, true));
    }
    Search { name, starts: world, nature, sorts: sorts.to_vec(), known }
}

const ALL: &[Sort] = &[Agent, Power, Death, Ec2, Disk, Person];

/// How much larger than in CI: `VOLHOLD_CHECKER=1`, `2`, … adds so many faults to each search, and lets everything go wrong in
/// each.
fn more() -> u8 {
    std::env::var("VOLHOLD_CHECKER").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn sorts(in_ci: &'static [Sort]) -> &'static [Sort] {
    if more() > 0 { ALL } else { in_ci }
}

fn run(search: Search) {
    let name = search.name;
    let began = std::time::Instant::now();
    match search.run() {
        Ok(seen) => {
            println!(
                "{name}: {} states of {} guards, {} transitions, {} with an open gate, {} healthy, {:.1} s",
                seen.states,
                seen.guards,
                seen.transitions,
                seen.opened,
                seen.healthy,
                began.elapsed().as_secs_f64()
            );
            assert!(seen.opened > 0 && seen.healthy > 0, "nothing was asked of {name}");
        }
        Err(told) => panic!("{told}"),
    }
}

#[test]
fn one_new_master() {
    run(search("new, a spare volume", Begins::New, (1, 1), 1 + more(), NATURE, ALL));
}

#[test]
fn one_new_master_while_people_take_the_device() {
    run(search("new, power and people", Begins::New, (1, 0), 2 + more(), NATURE, sorts(&[Power, Person])));
}

#[test]
fn one_grown_master() {
    run(search("grown, a spare volume", Begins::Grown, (1, 1), 2 + more(), NATURE, ALL));
}

#[test]
fn an_encrypted_volume_with_tags_on_a_new_master() {
    let nature = Nature { encrypted: true, tags: true, ..NATURE };
    run(search("new, encrypted, tags, a spare volume", Begins::New, (1, 1), 1 + more(), nature, ALL));
}

#[test]
fn volumes_with_tags_and_instances_that_know_nothing() {
    let nature = Nature { tags: true, ..NATURE };
    run(search("replaced, tags, a spare volume", Begins::Replaced, (1, 1), 2 + more(), nature, ALL));
}

#[test]
fn a_grown_master_without_ec2() {
    let nature = Nature { no_ec2: true, ..NATURE };
    run(search("grown, no EC2", Begins::Grown, (1, 0), 2 + more(), nature, &[Agent, Power, Disk, Person]));
}

#[test]
fn two_masters_and_volumes_that_are_moved_between_them() {
    run(search("grown, two masters", Begins::Grown, (2, 0), 1 + more(), NATURE, sorts(&[Person])));
}

#[test]
fn two_new_instances_that_may_take_either_volume() {
    let nature = Nature { any_member: true, ..NATURE };
    run(search(
        "replaced, two masters, any member",
        Begins::Replaced,
        (2, 0),
        1 + more(),
        nature,
        sorts(&[Death, Ec2]),
    ));
}

#[test]
fn three_new_instances_that_may_take_any_volume() {
    // Too many interleavings for CI.
    if more() > 1 {
        let nature = Nature { any_member: true, ..NATURE };
        run(search("replaced, three masters, any member", Begins::Replaced, (3, 0), 0, nature, ALL));
    }
}
