//! Healthy lives (volhold-runbook(7), HEALTHY LIVES) through the start rules, from dirs that real etcds left: each is held
//! where the table says so, under that name, and its answer lifts it; and nowhere else.

use crate::common::start::{self, UUID};
use crate::common::{Guard, Loop, Node, Tmp, disk, fixture};
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use volhold::cli::manual::lives::LIVES;
use volhold::decide::start::may_start;
use volhold::etcd::{VolumeHints, examine_volume};
use volhold::model::{
    Adoption, DataDirReport, EtcdToRun, NamedBy, Observed, Records, StartEvidence, StartVerdict, VolumeAge, VolumeId,
    VolumeReading,
};

struct World(Tmp);

impl World {
    /// A volume with this case of the corpus, or with one folder of it.
    fn volume(&self, case: &str, folder: Option<&str>) -> VolumeReading {
        let root = self.0.join(case);
        if !root.exists() {
            fixture::etcd_tree(case, &root);
        }
        let root = folder.map_or(root.clone(), |folder| root.join(folder));
        let dir = File::open(root).expect("the folder can be opened");
        examine_volume(dir.as_fd(), &VolumeHints::default())
    }

    fn nothing(&self) -> VolumeReading {
        let root = self.0.join("nothing");
        std::fs::create_dir_all(&root).expect("a folder");
        let dir = File::open(root).expect("the folder can be opened");
        examine_volume(dir.as_fd(), &VolumeHints::default())
    }
}

fn etcd(version: &str) -> Observed<Option<EtcdToRun>> {
    let version = Some(version.parse().expect("a version"));
    Observed::Seen(Some(EtcdToRun { version, by: NamedBy::Config, at: None, flags: None }))
}

fn looked(volume: VolumeReading, records: Records) -> StartEvidence {
    StartEvidence { age: Observed::Seen(VolumeAge::Old), ..start::evidence(volume, records) }
}

fn selected(volume: &VolumeReading) -> &DataDirReport {
    let path = &volume.selected.as_ref().expect("one dir is selected").path;
    volume.data_dirs.iter().find(|dir| dir.path == *path).expect("its report")
}

/// The record of a guard that was open until this moment, noted at this second.
fn record(volume: &VolumeReading, second: i64) -> Records {
    start::record_of(selected(volume), second)
}

const NOW: i64 = 1_800_000_000;

/// A volume that its guard knows, and the etcd that will open it.
fn known(volume: VolumeReading, version: &str) -> StartEvidence {
    let records = record(&volume, NOW);
    StartEvidence { to_run: etcd(version), ..looked(volume, records) }
}

/// What the guard sees on the way of a life, and the answer of a person where it is to be held.
fn walk(world: &World, life: &str) -> (Vec<StartEvidence>, Option<Adoption>) {
    let of = |case: &str| world.volume(case, None);
    let lived = |case: &str, version: &str| known(of(case), version);
    match life {
        "first boot of a cluster, its members in any order" => {
            let made = Records { formatted: vec![UUID], fs_uuids: vec![UUID], ..Records::default() };
            let empty = StartEvidence { age: Observed::Seen(VolumeAge::Young), ..looked(world.nothing(), made) };
            let mut steps = vec![empty];
            for (case, version) in
                [("v3.4.23-3member", "3.4.23"), ("v3.5.30-3member", "3.5.30"), ("v3.6.12-3member", "3.6.12")]
            {
                steps.extend(["m2", "m3", "m1"].map(|member| {
                    let volume = world.volume(case, Some(member));
                    StartEvidence { to_run: etcd(version), ..looked(volume, Records::default()) }
                }));
            }
            (steps, None)
        }
        "stop and start of an instance" => {
            let cases = [
                ("v3.4.23-basic", "3.4.23"),
                ("v3.5.30-multiwal-64MB", "3.5.30"),
                ("v3.6.12-3member-removed", "3.6.12"),
            ];
            let steps = cases.map(|(case, version)| match case {
                "v3.6.12-3member-removed" => known(world.volume(case, Some("m1")), version),
                _ => lived(case, version),
            });
            (steps.into(), None)
        }
        "replaced instance, same volume" => {
            let learner = known(world.volume("v3.5.16-3member-learner", Some("m4")), "3.5.16");
            (vec![lived("v3.5.16-auth", "3.5.16"), learner], None)
        }
        "replaced volume of a member that ran (member remove, member add)" => {
            (vec![looked(world.nothing(), Records::default())], Some(Adoption::Replacement))
        }
        "data dir wiped on purpose, to join again" => {
            let records = record(&of("v3.5.30-basic"), NOW);
            (vec![looked(world.nothing(), records)], Some(Adoption::Replacement))
        }
        "minor upgrade, as kubeadm does it, one after the other" => {
            let steps = [
                ("v3.3.25-basic", "3.4.23"),
                ("v3.4.23-basic", "3.5.16"),
                ("upgrade-3.4.23-3.5.16", "3.5.30"),
                ("v3.5.30-basic", "3.6.12"),
                ("upgrade-3.3.25-3.4.23-3.5.30-3.6.12", "3.6.12"),
                ("upgrade-3.5.30-3.6.12-3.7.1", "3.7.1"),
            ];
            (steps.map(|(case, version)| lived(case, version)).into(), None)
        }
        "kops upgrade within etcd 3" => (vec![lived("kops-running-3.4", "3.5.16")], None),
        "upgrade over several minor versions at once" => {
            (vec![lived("v3.3.25-basic", "3.5.30")], Some(Adoption::Identity))
        }
        "etcd's package goes back below its data" => (vec![lived("v3.5.30-basic", "3.4.23")], None),
        "downgrade from 3.6 to 3.5 by `etcdctl downgrade enable`" => {
            let steps = [("v3.6.12-downgrade-enabled", "3.5.30"), ("v3.6.12-downgrade-enabled-then-3.5.30", "3.5.30")];
            (steps.map(|(case, version)| lived(case, version)).into(), None)
        }
        "etcd-manager's own migration from etcd 2 to 3" => {
            let before = lived("kops-adopted-legacy", "3.1.12");
            let during = looked(of("kops-stopped-empty-state"), Records::default());
            (vec![before, during], None)
        }
        "an etcd-manager that restores, quarantined" => {
            (vec![looked(of("kops-events-3nodes-quarantined"), Records::default())], None)
        }
        "volume made from a snapshot" => {
            let volume = of("v3.5.30-basic");
            let records = Records { names_other_volume: Some(VolumeId("vol-0".into())), ..record(&volume, NOW) };
            (vec![looked(volume, records)], Some(Adoption::Restored))
        }
        "dir made by `etcdctl snapshot restore`, as a new cluster" => {
            let records = record(&of("v3.5.30-basic"), NOW);
            let mut restored = record(&of("v3.5.30-restored"), NOW);
            restored.pin.as_mut().expect("a pin").cluster_id = records.pin.as_ref().expect("a pin").cluster_id;
            restored.high_water = None;
            (vec![looked(of("v3.5.30-restored"), restored)], Some(Adoption::Identity))
        }
        "older state of the same member put in its place" => {
            let volume = of("v3.5.30-basic");
            let mut records = record(&volume, NOW);
            let mark = records.high_water.as_mut().expect("a mark");
            mark.revision = mark.revision.map(|revision| revision + 100_000);
            mark.consistent_index = mark.consistent_index.map(|index| index + 100_000);
            (vec![looked(volume, records)], Some(Adoption::Restored))
        }
        "compaction and defragmentation" => {
            let volume = of("v3.5.16-basic");
            let mut records = record(&volume, NOW);
            // Before that it held more: keys that were deleted, pages that are given back.
            let mark = records.high_water.as_mut().expect("a mark");
            mark.keys = mark.keys.map(|keys| keys * 100);
            (vec![looked(volume, records)], None)
        }
        "NOSPACE alarm, set or disarmed" => {
            let cases = [
                ("v3.2.26-alarm-nospace", "3.2.26"),
                ("v3.4.23-alarm-nospace", "3.4.23"),
                ("v3.6.12-alarm-nospace", "3.6.12"),
            ];
            (cases.map(|(case, version)| lived(case, version)).into(), None)
        }
        "`etcd --force-new-cluster`" => {
            (vec![lived("v3.4.23-force-new-cluster", "3.4.23"), lived("v3.6.12-force-new-cluster", "3.6.12")], None)
        }
        "kill or power cut in the middle of writing" => {
            let cases = ["v3.1.12-sigkill", "v3.4.23-sigkill", "v3.5.30-sigkill", "v3.6.12-sigkill", "v3.7.1-sigkill"];
            (cases.map(|case| known(of(case), &case[1..].replace("-sigkill", ""))).into(), None)
        }
        "clock set back by ten years" => {
            let volume = of("v3.4.23-basic");
            let records = record(&volume, NOW + 10 * 365 * 86_400);
            (vec![looked(volume, records)], None)
        }
        other => panic!("nobody walks through: {other}"),
    }
}

fn verdict(evidence: &StartEvidence) -> StartVerdict {
    may_start(evidence, &start::policy())
}

#[test]
fn every_healthy_life_is_held_where_the_table_says_so_and_its_answer_lifts_it() {
    let world = World(Tmp::new());
    let mut wrong = Vec::new();
    for life in LIVES {
        let (steps, answer) = walk(&world, life.what);
        for (number, step) in steps.iter().enumerate() {
            match (verdict(step), life.held) {
                (StartVerdict::Start { .. }, None) => {}
                (StartVerdict::Hold { reasons }, Some((code, _))) => {
                    let codes: Vec<&str> = reasons.iter().map(|reason| reason.code.as_str()).collect();
                    // The first one explains the rest, and the answer has to lift them all.
                    if codes.first() != Some(&code) {
                        wrong.push(format!("{}: held by {reasons:#?}", life.what));
                    }
                }
                (verdict, _) => wrong.push(format!("{}, step {number}: {verdict:#?}", life.what)),
            }
            let Some(answer) = answer else { continue };
            let mut answered = step.clone();
            if let Observed::Seen(records) = &mut answered.records {
                records.adoption = Some(answer);
                records.answered = true;
            }
            if let StartVerdict::Hold { reasons } = verdict(&answered) {
                wrong.push(format!("{}: {answer:?} does not lift {reasons:#?}", life.what));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_dir_that_etcds_user_cannot_use_is_held_until_it_is_his() {
    let tmp = Tmp::new();
    let tree = tmp.join("tree");
    fixture::etcd_tree("v3.4.23-basic", &tree);
    let image = disk::sparse(&tmp.join("volume"), 256 << 20);
    disk::mkfs_ext4(&image, Some(&tree));
    let device = Loop::new(&image);
    let mut node = Node::new();
    let mut guard = Guard::enforce("main", device.node(), &node.path("mnt"));
    guard.more = "owner = \"12345:12345\"\n".to_owned();
    node.configure(&[guard.clone()]);
    node.start();
    let status = node.await_held("main", "wrong-owner");
    let message = status["reasons"][0]["message"].as_str().expect("a message");
    assert!(message.contains("as user 12345, group 12345"), "{message}");
    // Whose it is belongs to the tree: given to him, it opens.
    assert_eq!(node.stop_agent(), Some(0));
    drop(device);
    let given = Command::new("chown").args(["-R", "12345:12345"]).arg(&tree).status().expect("chown");
    assert!(given.success());
    let image = disk::sparse(&tmp.join("given"), 256 << 20);
    disk::mkfs_ext4(&image, Some(&tree));
    let device = Loop::new(&image);
    let mut node = Node::new();
    guard.device = device.node().display().to_string();
    guard.publish = node.path("mnt");
    node.configure(&[guard]);
    node.start();
    node.await_open("main");
}

#[test]
fn every_dir_that_was_restored_is_told_as_that_and_no_other() {
    let world = World(Tmp::new());
    for (case, restored) in [
        ("v3.1.12-restored", true),
        ("v3.4.23-restored", true),
        ("v3.5.30-restored", true),
        ("v3.5.30-restored-bumped", true),
        ("v3.6.12-restored", true),
        ("v3.7.1-restored", true),
        ("v3.1.12-basic", false),
        ("v3.4.23-force-new-cluster", false),
        ("v3.5.30-basic", false),
        ("v3.6.12-basic", false),
    ] {
        let told = |volume: VolumeReading| {
            let mut records = record(&volume, NOW);
            records.pin.as_mut().expect("a pin").cluster_id.0 ^= 1;
            records.high_water = None;
            let StartVerdict::Hold { reasons } = verdict(&looked(volume, records)) else { panic!("{case} starts") };
            assert_eq!(reasons[0].code.as_str(), "other-cluster", "{case}");
            reasons[0].message.contains("snapshot restore")
        };
        let volume = world.volume(case, None);
        assert_eq!(told(volume.clone()), restored, "{case}");
        // One that ran may stop with all of its log in its snapshot, too; it has had an election.
        let mut elected = volume;
        let path = selected(&elected).path.clone();
        let dir = elected.data_dirs.iter_mut().find(|dir| dir.path == path).expect("its report");
        dir.fingerprint.as_mut().expect("a fingerprint").raft.term = Some(2);
        assert!(!told(elected), "{case}, with an election");
    }
}
