//! `plan restore NAME --from FILE`: from a saved snapshot to an open gate. Verifies what can be verified, and prints the
//! commands for exactly this member.

use super::way::{Check, Command, Way, print, quoted, records};
use crate::cli::exit::Exit;
use crate::cli::explain::{self, why_line};
use crate::cli::inspect::block_on;
use crate::cli::output::{Context, Failure, io_failure};
use crate::cli::text::count;
use crate::model::{
    BackendFile, Decision, EtcdFile, Fingerprint, GuardName, MetaState, Observed, Records, Time, VolumeReading,
};
use crate::worker::{self, Deadline};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// Whole snapshots are read: 8 GiB at 25 MB/s.
const READ: Duration = Duration::from_secs(330);
/// Writes that the record may not know of: marks are minutes apart.
const MARGIN: i64 = 1_000_000;
/// Where no record says how far the member was: more than any cluster writes between a snapshot and its loss.
const FAR: i64 = 1_000_000_000;

pub fn run(context: &Context, name: &GuardName, from: &Path) -> Result<Exit, Failure> {
    let config = context.config()?;
    let guard = explain::known(&config, name)?;
    let decision = explain::decision(&config, name)?;
    let file = File::open(from).map_err(|e| io_failure(format!("cannot open {}", from.display()), &e))?;
    let named_db = from.extension().is_some_and(|e| e == "db") || from.file_name().is_some_and(|name| name == "db");
    let read = worker::etcd_file(file.into(), named_db, Deadline::quiet(READ), |_, _| {});
    let (sha256, backend) = match block_on(read)? {
        Observed::Seen(Some(EtcdFile::Backend { sha256, backend })) => (sha256, backend),
        Observed::Seen(_) => {
            return Err(Failure::new(Exit::NoMatch, format!("{} is no snapshot of etcd 3", from.display()))
                .advise("what it is: volhold inspect FILE"));
        }
        Observed::Unknown(why) => {
            return Err(Failure::new(Exit::Error, format!("{}: {}", from.display(), why_line(&why))));
        }
    };
    let known = Known::of(decision.as_ref(), records(&config, guard, decision.as_ref()).as_ref());
    let mut checks = vec![of_checksum(sha256), of_pages(&backend)];
    let bump = bump(&mut checks, backend.revision, known.revision);

    let member = known.member(guard.member.as_deref(), guard.peer_url.as_deref());
    checks.push(match &member.missing {
        None => Check::good("member", format!("{} of {}", member.name, member.peers)),
        Some(what) => Check::unknown("member", format!("{what} is not known: put it in where it stands in capitals")),
    });
    let at = format!("/mnt/{name}");
    let dir = known.selected.clone().or_else(|| guard.data_dir.clone()).unwrap_or_else(|| "DATA-DIR".to_owned());
    let node = known.node.clone().unwrap_or_else(|| "DEVICE".to_owned());
    let flags = bump.map_or_else(String::new, |bump| format!(" --bump-revision {bump} --mark-compacted"));
    let restore = format!(
        "etcdutl snapshot restore {} --name {} --initial-cluster {} --initial-cluster-token {} \
         --initial-advertise-peer-urls {} --data-dir {}{flags}",
        quoted(&from.display().to_string()),
        quoted(&member.name),
        quoted(&member.cluster),
        quoted(&member.token),
        quoted(&member.peers),
        quoted(&format!("{at}/{dir}")),
    );
    let mut commands = Vec::new();
    if known.selected_exists {
        commands.push(Command::safe(
            format!("volhold quarantine {name} {}", quoted(&dir)),
            "What is there now goes out of the way, on the same volume. Nothing is deleted.",
        ));
    }
    commands.push(Command::unsafe_(
        format!("volhold release {name} --for 1h"),
        format!("Lets your tools open {node}. While it is let go, anything else on this machine can take it too."),
    ));
    commands.push(Command::safe(format!("mkdir -p {at} && mount {node} {at}"), "By hand, where etcd does not look."));
    commands.push(Command::unsafe_(
        restore,
        "Into a place where nothing is. Every member of the cluster is restored from the same snapshot, with the same token, each \
         with its own name and URLs, and none may start before all are. etcdutl knows --bump-revision and --mark-compacted from late \
         patch releases of 3.4 and 3.5 on (etcdutl snapshot restore --help); an older one writes what a newer etcd of its \
         line reads.",
    ));
    if let Some(owner) = &guard.owner {
        let owner = quoted(&format!("{}:{}", owner.user, owner.group));
        commands.push(Command::safe(format!("chown -R {owner} {}", quoted(&format!("{at}/{dir}"))), "As etcd runs."));
    }
    commands.push(Command::safe(
        format!("volhold verify --deep {} && umount {at}", quoted(&format!("{at}/{dir}"))),
        "Would etcd start on it, and lose nothing?",
    ));
    commands
        .push(Command::safe(format!("volhold retry {name}"), "Ends the release: the agent claims the volume again."));
    commands.push(Command::unsafe_(
        format!("volhold adopt {name} --restored"),
        "Says that this was meant; the agent pins the new cluster and opens the gate. On every member.",
    ));
    let title = format!("Restore {name} from {}", from.display());
    print(
        context,
        &Way { api_version: "volhold/v1", kind: "RestorePlan", guard: name.clone(), title, checks, commands },
    )
}

fn of_checksum(sha256: Option<bool>) -> Check {
    match sha256 {
        Some(true) => Check::good("checksum", "as it was saved with"),
        Some(false) => Check::bad("checksum", "WRONG: the file is not what was saved"),
        None => Check::unknown(
            "checksum",
            "none: a copy of a backend and no saved snapshot (restore needs --skip-hash-check)",
        ),
    }
}

fn of_pages(backend: &BackendFile) -> Check {
    let metas = backend.metas.iter().all(|meta| *meta == MetaState::Valid);
    match &backend.deep {
        Some(deep) if metas && deep.fault_count == 0 && deep.content_count == 0 => {
            Check::good("pages", "every one was read, and none is damaged")
        }
        Some(deep) => {
            Check::bad("pages", format!("DAMAGED: {} faults", deep.fault_count.saturating_add(deep.content_count)))
        }
        None => Check::bad("pages", "DAMAGED: no meta page leads anywhere"),
    }
}

/// By how much the revision has to be raised, so that nobody who watched sees it go back.
fn bump(checks: &mut Vec<Check>, snapshot: Option<i64>, recorded: Option<i64>) -> Option<i64> {
    let shown = |revision: i64| u64::try_from(revision).map_or_else(|_| revision.to_string(), count);
    match (snapshot, recorded) {
        (None, _) => {
            checks.push(Check::bad("revision", "the snapshot has none"));
            None
        }
        (Some(snapshot), None) => {
            let says = format!("{}; no record says how far this member was", shown(snapshot));
            checks.push(Check::unknown("revision", says));
            Some(FAR)
        }
        (Some(snapshot), Some(recorded)) => {
            let behind = recorded.saturating_sub(snapshot).max(0);
            let says = if behind > 0 {
                format!(
                    "{}, and this member was at {}: what was written in the {} revisions between is not in it",
                    shown(snapshot),
                    shown(recorded),
                    shown(behind)
                )
            } else {
                format!("{}, and the record knows of none above {}", shown(snapshot), shown(recorded))
            };
            checks.push(Check::good("revision", says));
            Some(behind.saturating_add(MARGIN))
        }
    }
}

/// What record and last look say of this member.
#[derive(Default)]
struct Known {
    revision: Option<i64>,
    print: Option<Fingerprint>,
    pinned_name: Option<String>,
    nodes: Vec<(String, String)>,
    token: Option<String>,
    selected: Option<String>,
    selected_exists: bool,
    node: Option<String>,
}

struct Member {
    name: String,
    peers: String,
    cluster: String,
    token: String,
    missing: Option<&'static str>,
}

impl Known {
    fn of(decision: Option<&Decision>, records: Option<&Records>) -> Self {
        let Some(decision) = decision else { return Known::default() };
        let start = decision.evidence.start.as_ref();
        let volume: Option<&VolumeReading> = start.and_then(|start| start.volume.seen());
        let pin = records.and_then(|records| records.pin.as_ref());
        // The pinned identity's dir, else the one with most keys.
        let mut dirs: Vec<_> = volume.into_iter().flat_map(|volume| &volume.data_dirs).collect();
        dirs.sort_by_key(|dir| {
            let print = dir.fingerprint.as_ref();
            let pinned = pin.is_some() && print.and_then(|print| print.cluster_id) == pin.map(|pin| pin.cluster_id);
            std::cmp::Reverse((pinned, print.and_then(|print| print.keys)))
        });
        let state = volume.and_then(|volume| volume.manager_state.as_ref()).and_then(Observed::seen);
        let nodes = state.into_iter().flat_map(|state| &state.nodes);
        let selection = volume.and_then(|volume| volume.selected.as_ref());
        Known {
            revision: records.and_then(|records| records.high_water.as_ref()).and_then(|mark| mark.revision),
            print: dirs.first().and_then(|dir| dir.fingerprint.clone()),
            pinned_name: pin.and_then(|pin| pin.name.clone()),
            nodes: nodes.flat_map(|n| n.peer_urls.iter().map(|url| (n.name.clone(), url.clone()))).collect(),
            token: state.and_then(|state| state.cluster_token.clone()),
            selected: selection.map(|selection| selection.path.clone()),
            selected_exists: selection.is_some_and(|selection| selection.exists),
            node: decision.evidence.device.as_ref().map(|device| device.node.clone()),
        }
    }

    fn member(&self, configured: Option<&str>, peer_url: Option<&str>) -> Member {
        let of_print = self.print.as_ref().and_then(|print| print.name.clone()).filter(|name| !name.is_empty());
        let name = configured.map(str::to_owned).or_else(|| self.pinned_name.clone()).or(of_print);
        let mut all: Vec<(String, String)> = self.nodes.clone();
        if all.is_empty() {
            let members = self.print.iter().flat_map(|print| &print.members);
            all = members.flat_map(|m| m.peer_urls.iter().map(|url| (m.name.clone(), url.clone()))).collect();
        }
        let of_name: Vec<String> =
            all.iter().filter(|(other, _)| Some(other) == name.as_ref()).map(|(_, url)| url.clone()).collect();
        let own = peer_url.map(str::to_owned).or_else(|| (!of_name.is_empty()).then(|| of_name.join(",")));
        let cluster: Vec<String> = all.iter().map(|(name, url)| format!("{name}={url}")).collect();
        let missing = match (&name, &own, cluster.is_empty()) {
            (None, _, _) => Some("its name"),
            (_, None, _) => Some("its peer URL"),
            (_, _, true) => Some("the list of members"),
            (Some(_), Some(_), false) => None,
        };
        Member {
            name: name.unwrap_or_else(|| "NAME".to_owned()),
            peers: own.unwrap_or_else(|| "PEER-URL".to_owned()),
            cluster: if cluster.is_empty() { "NAME=PEER-URL,…".to_owned() } else { cluster.join(",") },
            // etcd-manager's names the dir. Elsewhere one of this day: two restores with one token have equal ids and different
            // histories.
            token: self.token.clone().unwrap_or_else(|| {
                let today: String = Time::now().to_string().chars().take(10).filter(|c| *c != '-').collect();
                format!("restored-{today}")
            }),
            missing,
        }
    }
}
