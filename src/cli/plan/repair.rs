//! `plan repair NAME`: from a damaged filesystem, of which copies of the superblock were found, to an open gate. On a copy
//! first.

use super::way::{Check, Command, Way, print, records};
use crate::cli::exit::Exit;
use crate::cli::explain;
use crate::cli::output::{Context, Failure};
use crate::model::{Decision, Finding, FindingKind, Fstype, GuardName, Validated};

pub fn run(context: &Context, name: &GuardName) -> Result<Exit, Failure> {
    let config = context.config()?;
    let guard = explain::known(&config, name)?;
    let decision = explain::decision(&config, name)?.ok_or_else(|| {
        Failure::new(Exit::TryLater, format!("nothing was decided about {name} yet")).advise("volhold status")
    })?;
    let Some(found) = backups(&decision, guard.fstype) else {
        return Err(Failure::new(Exit::NoMatch, format!("no copy of a superblock was found on the volume of {name}"))
            .advise(format!("what was found: volhold explain {name}")));
    };
    let device = decision.evidence.device.as_ref();
    let node = device.map_or_else(|| "DEVICE".to_owned(), |device| device.node.clone());
    let volume = device.map(|device| device.volume_id.to_string());
    let mut checks = vec![Check::good("found", found.says.clone())];
    let known =
        records(&config, guard, Some(&decision)).and_then(|records| records.fs_uuids.last().map(ToString::to_string));
    checks.push(match (&found.uuid, known) {
        (Some(uuid), Some(known)) if *uuid == known => Check::good("recorded", format!("filesystem {known}: the same")),
        (Some(uuid), Some(known)) => Check::bad(
            "recorded",
            format!(
                "filesystem {known}, and the copy is of {uuid}: it is not the one that volhold knows on this volume"
            ),
        ),
        (_, None) => Check::unknown("recorded", "this node has no record of the filesystem on this volume"),
        (None, Some(known)) => Check::unknown("recorded", format!("filesystem {known}; the copy carries no UUID")),
    });
    let copy = format!("/elsewhere/{name}.img");
    let mut commands = Vec::new();
    if let Some(id) = volume.as_ref().filter(|id| id.starts_with("vol-")) {
        commands.push(Command::safe(format!("volhold snapshot {name}"), format!("Keeps {id} as it is now, in EC2.")));
    }
    commands.push(Command::safe(
        format!("dd if={node} of={copy} bs=1M conv=noerror,sync,sparse"),
        "A copy to try it on; needs as much room as the volume has data.",
    ));
    let dry = found.tool.dry(&copy);
    commands.push(Command::safe(dry, "On the copy, changing nothing: does the filesystem hold together?"));
    commands.push(Command::safe(found.tool.repair(&copy), "On the copy: repairs it. Keep what it says."));
    commands.push(Command::safe(
        format!("mount -o loop,ro {copy} /mnt && volhold inspect /mnt; umount /mnt"),
        "Every data dir on the repaired copy. Is the member's data there, and healthy (volhold verify)? If not, stop here \
         and restore from a backup: volhold plan restore.",
    ));
    commands.push(Command::unsafe_(
        format!("volhold release {name} --for 1h"),
        format!("Lets your tools open {node}. While it is let go, anything else on this machine can take it too."),
    ));
    commands.push(Command::unsafe_(found.tool.repair(&node), "The same on the volume itself."));
    commands.push(Command::safe(format!("volhold retry {name}"), "The agent looks again, and opens if all is right."));
    commands.push(Command::unsafe_(
        format!("volhold adopt {name} --restored"),
        "Only where it is held for having been restored or replaced, and you know why.",
    ));
    let title = format!("Repair the filesystem of {name} ({}), from a copy of its superblock", guard.fstype.as_str());
    print(context, &Way { api_version: "volhold/v1", kind: "RepairPlan", guard: name.clone(), title, checks, commands })
}

/// What can be repaired, and from where.
struct Backup {
    says: String,
    uuid: Option<String>,
    tool: Tool,
}

enum Tool {
    /// Number of the block with the copy, and bytes of a block.
    E2fsck(u64, u64),
    XfsRepair,
}

impl Tool {
    fn dry(&self, on: &str) -> String {
        match self {
            Tool::E2fsck(block, size) => format!("e2fsck -fn -b {block} -B {size} {on}"),
            Tool::XfsRepair => format!("xfs_repair -n {on}"),
        }
    }

    fn repair(&self, on: &str) -> String {
        match self {
            Tool::E2fsck(block, size) => format!("e2fsck -fy -b {block} -B {size} {on}"),
            Tool::XfsRepair => format!("xfs_repair {on}"),
        }
    }
}

/// The copy to trust most: one whose checksum is right before one that only looks right, and then the first.
fn backups(decision: &Decision, fstype: Fstype) -> Option<Backup> {
    let reading = decision.evidence.reading.as_ref()?;
    let findings = &reading.content.seen()?.findings;
    let rank = |finding: &&Finding| match finding.validated {
        Validated::Checksum => 0,
        Validated::Structure => 1,
        Validated::Magic => 2,
    };
    // Of a filesystem of another kind, or one that begins elsewhere, what is left says nothing of this one; and a repair with it
    // would write all over what is here.
    let from_here = |f: &&Finding| f.detail.as_deref().is_none_or(|detail| !detail.contains(" begins at "));
    let ext = findings.iter().filter(|f| fstype == Fstype::Ext4 && f.kind == FindingKind::ExtBackupSuperblock);
    let ext = ext.filter(from_here);
    let ext =
        ext.filter_map(|finding| Some((finding, block_size(finding.detail.as_deref()?)?))).min_by_key(|(f, _)| rank(f));
    if let Some((finding, size)) = ext {
        let block = finding.offset.checked_div(size)?;
        return Some(Backup {
            says: format!(
                "a copy of an ext superblock in block {block} (byte {}): {}",
                finding.offset,
                finding.detail.as_deref().unwrap_or("nothing more is known of it")
            ),
            uuid: finding.uuid.clone(),
            tool: Tool::E2fsck(block, size),
        });
    }
    let xfs = findings
        .iter()
        .filter(|f| fstype == Fstype::Xfs && matches!(f.kind, FindingKind::XfsAgHeader | FindingKind::XfsSuperblock));
    xfs.min_by_key(rank).map(|finding| Backup {
        says: format!("headers of an XFS, the first at byte {}", finding.offset),
        uuid: finding.uuid.clone(),
        tool: Tool::XfsRepair,
    })
}

/// As `probe` words it: `ext4 of 40960 blocks of 4096 bytes, …`.
fn block_size(detail: &str) -> Option<u64> {
    let (_, after) = detail.split_once(" blocks of ")?;
    let size: u64 = after.split(' ').next()?.parse().ok()?;
    matches!(size, 1024 | 2048 | 4096 | 8192 | 16384 | 32768 | 65536).then_some(size)
}
