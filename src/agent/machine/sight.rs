//! What the sight of the volume under an open gate means. It closes no gate and halts nothing: all of it is told.

use crate::model::{AccessSight, DeviceSight, MountSight, Reason, ReasonCode, SpaceSight, VolumeSight, WriteSight};

/// What speaks against the next start, and what is only worth a remark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    pub doubts: Vec<Reason>,
    pub remarks: Vec<Reason>,
}

/// `device`: how a person calls it. The sentences hold nothing that changes while the state does not, so that each is told once.
pub fn told(sight: &VolumeSight, device: &str) -> Told {
    let VolumeSight { mount, device: seen, access, filesystem_errors, write, space, etcd: _nothing_bad } = sight;
    let mut told = Told::default();
    told.doubts.extend(mount.as_ref().and_then(of_mount));
    told.doubts.extend((*seen).and_then(|seen| of_device(seen, device)));
    // Where the device is gone the rest is its consequence; it is said nevertheless, since each is another fact.
    told.doubts.extend(of_writing(access.as_ref(), write.as_ref(), device));
    // As at the start: it holds nothing, and is told.
    told.remarks.extend(of_space(*space, write.as_ref(), device));
    if filesystem_errors.is_some_and(|count| count > 0) {
        let message = format!(
            "the ext4 on {device} has met errors since it was last checked: its metadata may be damaged, and it is to be \
             checked before long"
        );
        told.remarks.push(Reason::new(ReasonCode::FilesystemErrors, message));
    }
    told
}

fn of_mount(mount: &MountSight) -> Option<Reason> {
    let message = match mount {
        MountSight::InPlace => return None,
        MountSight::Gone { at } => {
            format!("the volume is not mounted at {} any more, while its gate is open", at.display())
        }
        MountSight::Shadowed { at, by } => {
            format!("{by} is mounted over {} and hides the volume, while its gate is open", at.display())
        }
        MountSight::Replaced { at, by } => {
            format!("{by} is mounted at {} in the place of the volume, while its gate is open", at.display())
        }
    };
    Some(Reason::new(ReasonCode::MountLost, message))
}

fn of_device(seen: DeviceSight, device: &str) -> Option<Reason> {
    let message = match seen {
        DeviceSight::Present => return None,
        DeviceSight::Gone => format!("{device} is gone from this machine, while its gate is open"),
        DeviceSight::Empty => {
            format!("{device} has no size any more: the disk behind it is gone, while its gate is open")
        }
        DeviceSight::Another => format!("{device} is another disk than the one whose gate was opened"),
    };
    Some(Reason::new(ReasonCode::DeviceLost, message))
}

fn of_space(space: Option<SpaceSight>, write: Option<&WriteSight>, device: &str) -> Option<Reason> {
    let what = match (space, write) {
        (Some(SpaceSight::NoInodes), _) => "inodes",
        (Some(SpaceSight::Full), _) | (_, Some(WriteSight::NoRoom)) => "bytes",
        (Some(SpaceSight::Enough) | None, _) => return None,
    };
    let message = format!("the filesystem on {device} has hardly any {what} left: etcd fails at its next file");
    Some(Reason::new(ReasonCode::NoSpace, message))
}

/// One reason for one fault: a filesystem that says that it is read-only also refuses the test write.
fn of_writing(access: Option<&AccessSight>, write: Option<&WriteSight>, device: &str) -> Option<Reason> {
    if let Some(AccessSight::ReadOnly { says }) = access {
        let message = format!("the filesystem on {device} takes no writes: the kernel lists it as `{says}`");
        return Some(Reason::new(ReasonCode::FilesystemReadOnly, message));
    }
    let (code, message) = match write? {
        WriteSight::Done | WriteSight::NoRoom => return None,
        WriteSight::ReadOnly => (
            ReasonCode::FilesystemReadOnly,
            format!("the filesystem on {device} takes no writes (EROFS), whatever the mount table says"),
        ),
        WriteSight::Failed { error } => {
            (ReasonCode::WriteFailed, format!("a test write with fsync on {device} failed: {error}"))
        }
        WriteSight::Stalled => (
            ReasonCode::WriteStalled,
            format!("a test write with fsync on {device} does not come back: the disk stalls"),
        ),
    };
    Some(Reason::new(code, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::machine::is_hard;

    fn codes(sight: &VolumeSight) -> Vec<ReasonCode> {
        told(sight, "/dev/x").doubts.iter().map(|reason| reason.code).collect()
    }

    fn well() -> VolumeSight {
        VolumeSight {
            mount: Some(MountSight::InPlace),
            device: Some(DeviceSight::Present),
            access: Some(AccessSight::Writable),
            filesystem_errors: Some(0),
            write: Some(WriteSight::Done),
            space: Some(SpaceSight::Enough),
            etcd: None,
        }
    }

    #[test]
    fn what_is_well_and_what_nobody_can_tell_raises_nothing() {
        assert_eq!(told(&well(), "/dev/x"), Told::default());
        assert_eq!(told(&VolumeSight::default(), "/dev/x"), Told::default());
    }

    #[test]
    fn each_fault_has_one_reason_of_its_own_and_none_halts_anything() {
        let at = || std::path::PathBuf::from("/mnt");
        let by = || "tmpfs".to_owned();
        let read_only = || Some(AccessSight::ReadOnly { says: "ro".to_owned() });
        let failed = || Some(WriteSight::Failed { error: "EIO".to_owned() });
        let cases = [
            (VolumeSight { mount: Some(MountSight::Gone { at: at() }), ..well() }, ReasonCode::MountLost),
            (VolumeSight { mount: Some(MountSight::Shadowed { at: at(), by: by() }), ..well() }, ReasonCode::MountLost),
            (VolumeSight { mount: Some(MountSight::Replaced { at: at(), by: by() }), ..well() }, ReasonCode::MountLost),
            (VolumeSight { device: Some(DeviceSight::Gone), ..well() }, ReasonCode::DeviceLost),
            (VolumeSight { device: Some(DeviceSight::Empty), ..well() }, ReasonCode::DeviceLost),
            (VolumeSight { device: Some(DeviceSight::Another), ..well() }, ReasonCode::DeviceLost),
            (VolumeSight { access: read_only(), ..well() }, ReasonCode::FilesystemReadOnly),
            (VolumeSight { access: read_only(), write: failed(), ..well() }, ReasonCode::FilesystemReadOnly),
            (VolumeSight { write: Some(WriteSight::ReadOnly), ..well() }, ReasonCode::FilesystemReadOnly),
            (VolumeSight { write: failed(), ..well() }, ReasonCode::WriteFailed),
            (VolumeSight { write: Some(WriteSight::Stalled), ..well() }, ReasonCode::WriteStalled),
        ];
        for (sight, code) in cases {
            assert_eq!(codes(&sight), [code], "{sight:?}");
            assert!(!told(&sight, "/dev/x").doubts.iter().any(is_hard), "{code} would halt an etcd");
        }
    }

    #[test]
    fn a_filesystem_without_room_is_a_remark_as_it_is_at_the_start() {
        for sight in [
            VolumeSight { space: Some(SpaceSight::Full), ..well() },
            VolumeSight { space: Some(SpaceSight::NoInodes), ..well() },
            VolumeSight { write: Some(WriteSight::NoRoom), ..well() },
        ] {
            assert_eq!(codes(&sight), []);
            let remarks = told(&sight, "/dev/x").remarks;
            assert_eq!(
                remarks.iter().map(|reason| reason.code).collect::<Vec<_>>(),
                [ReasonCode::NoSpace],
                "{sight:?}"
            );
        }
    }

    #[test]
    fn errors_that_ext4_has_met_are_a_remark_and_no_doubt() {
        let sight = VolumeSight { filesystem_errors: Some(3), ..well() };
        assert_eq!(codes(&sight), []);
        let remarks = told(&sight, "/dev/x").remarks;
        assert_eq!(remarks.iter().map(|reason| reason.code).collect::<Vec<_>>(), [ReasonCode::FilesystemErrors]);
        // A count that grows is no news.
        assert_eq!(told(&VolumeSight { filesystem_errors: Some(4), ..well() }, "/dev/x").remarks, remarks);
    }
}
