//! From an EBS volume's id to a node of this machine, without udev, without links and without asking EC2.
//!
//! On NVMe instances (Nitro) the controller's serial is the volume id, with or without its dash. On Xen there is no serial:
//! there a disk is found only under the name that EC2 says it is attached as, and only with the size that EC2 says it has.
//! Instance store is never taken: its serial is no volume id, and its model says what it is.

use super::error::DeviceError;
use super::sysfs::{Sysfs, attribute};
use crate::model::VolumeId;
use std::path::PathBuf;

/// Model of instance store disks (EC2 user guide, "NVMe instance store volumes").
const INSTANCE_STORE: &str = "Amazon EC2 NVMe Instance Storage";
/// sysfs counts sizes in sectors of this many bytes, whatever the disk's own are.
const SECTOR: u64 = 512;

/// A volume's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    pub volume: VolumeId,
    pub node: PathBuf,
    /// By its serial; otherwise by EC2's name for it and its size.
    pub by_serial: bool,
}

/// Finds the disk of one of these volumes. `attached_as`: the name and the size in bytes that EC2 says `ids` has here.
pub fn locate(
    sysfs: &Sysfs,
    requested: &str,
    ids: &[VolumeId],
    attached_as: Option<&(String, u64)>,
) -> Result<Located, DeviceError> {
    let mut found = Vec::new();
    for entry in sysfs.all()? {
        if !entry.whole_disk() || attribute(&entry.dir.join("hidden"))?.as_deref() == Some("1") {
            continue;
        }
        let Some(serial) = sysfs.serial(&entry)? else { continue };
        let Some(volume) = VolumeId::of_serial(&serial).filter(|volume| ids.contains(volume)) else { continue };
        let node = sysfs.dev.join(&entry.name);
        if let Some(model) = attribute(&entry.dir.join("device/model"))?
            && model.starts_with(INSTANCE_STORE)
        {
            let detail = format!("its serial is {serial}, and its model `{model}` says that it is instance store");
            return Err(DeviceError::NotTheVolume { requested: requested.to_owned(), node, detail });
        }
        found.push(Located { volume, node, by_serial: true });
    }
    match (found.len(), found.pop(), attached_as, ids) {
        (1, Some(only), _, _) => Ok(only),
        (0, None, Some((name, size)), [id]) => by_name(sysfs, requested, id, name, *size),
        (0, None, _, _) => Err(missing(requested, "no disk of this machine has it as its serial".to_owned())),
        (_, last, _, _) => {
            let nodes = found.into_iter().chain(last).map(|located| located.node).collect();
            Err(DeviceError::Ambiguous { requested: requested.to_owned(), nodes })
        }
    }
}

/// The links that udev makes for the volume's disk on NVMe instances: systemd's `60-persistent-storage.rules`, from model and
/// serial, with the namespace at the end in newer versions.
pub fn links(volume: &VolumeId) -> [PathBuf; 2] {
    let serial = volume.0.replacen("vol-", "vol", 1);
    let link = format!("/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{serial}");
    [PathBuf::from(format!("{link}_1")), PathBuf::from(link)]
}

fn missing(requested: &str, detail: String) -> DeviceError {
    DeviceError::Missing { requested: requested.to_owned(), detail }
}

/// Xen: `/dev/sdf` is `xvdf` here, or `sdf`.
fn by_name(sysfs: &Sysfs, requested: &str, id: &VolumeId, name: &str, size: u64) -> Result<Located, DeviceError> {
    let short = name.strip_prefix("/dev/").unwrap_or(name);
    let letters = short.strip_prefix("xvd").or_else(|| short.strip_prefix("sd"));
    let Some(letters) = letters.filter(|letters| letters.chars().all(|c| c.is_ascii_lowercase())) else {
        return Err(missing(
            requested,
            format!("no disk has it as its serial, and `{name}` is no name of a whole disk"),
        ));
    };
    let names = [format!("xvd{letters}"), format!("sd{letters}")];
    for entry in sysfs.all()? {
        if !names.contains(&entry.name) || !entry.whole_disk() {
            continue;
        }
        let node = sysfs.dev.join(&entry.name);
        let not_it = |detail: String| {
            Err(DeviceError::NotTheVolume { requested: requested.to_owned(), node: node.clone(), detail })
        };
        if let Some(serial) = sysfs.serial(&entry)? {
            return not_it(format!(
                "EC2 says that it is attached as {name}, and this disk has a serial of its own, {serial}"
            ));
        }
        let sectors = attribute(&entry.dir.join("size"))?.and_then(|text| text.parse::<u64>().ok());
        let kernel = sectors.and_then(|sectors| sectors.checked_mul(SECTOR));
        if kernel != Some(size) {
            let kernel = kernel.map_or("a size that cannot be read".to_owned(), |bytes| format!("{bytes} bytes"));
            return not_it(format!("it has {kernel}, and EC2 says {size} bytes"));
        }
        return Ok(Located { volume: id.clone(), node, by_serial: false });
    }
    Err(missing(requested, format!("no disk has it as its serial, and there is no disk under the name {name} of EC2")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::model::ReasonCode;
    use std::fs;
    use std::path::Path;

    /// Bytes of every disk here.
    const SIZE: u64 = 2048 * SECTOR;

    struct World {
        _dir: tempfile::TempDir,
        sysfs: Sysfs,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let sysfs = Sysfs::at(dir.path());
            fs::create_dir_all(sysfs.sys.join("class/block")).unwrap();
            World { _dir: dir, sysfs }
        }

        fn disk(self, name: &str, files: &[(&str, &str)]) -> Self {
            let entry = self.sysfs.sys.join("devices").join(name);
            fs::create_dir_all(entry.join("device")).unwrap();
            fs::write(entry.join("size"), "2048\n").unwrap();
            for (file, text) in files {
                fs::write(entry.join(file), format!("{text}\n")).unwrap();
            }
            std::os::unix::fs::symlink(&entry, self.sysfs.sys.join("class/block").join(name)).unwrap();
            self
        }

        fn partition(self, disk: &str, name: &str) -> Self {
            let entry = self.sysfs.sys.join("devices").join(disk).join(name);
            fs::create_dir_all(&entry).unwrap();
            fs::write(entry.join("size"), "1024\n").unwrap();
            fs::write(entry.join("partition"), "1\n").unwrap();
            std::os::unix::fs::symlink(&entry, self.sysfs.sys.join("class/block").join(name)).unwrap();
            self
        }

        fn locate(&self, attached_as: Option<(&str, u64)>) -> Result<Located, ReasonCode> {
            let id = VolumeId("vol-0123456789abcdef0".into());
            let attached_as = attached_as.map(|(name, size)| (name.to_owned(), size));
            locate(&self.sysfs, "vol", &[id], attached_as.as_ref()).map_err(|error| error.reason().code)
        }

        fn name(&self, attached_as: Option<(&str, u64)>) -> String {
            let node = self.locate(attached_as).unwrap().node;
            Path::new(&node).file_name().unwrap().to_string_lossy().into_owned()
        }
    }

    const OURS: (&str, &str) = ("device/serial", "vol0123456789abcdef0");
    const EBS: (&str, &str) = ("device/model", "Amazon Elastic Block Store");

    #[test]
    fn the_serial_finds_the_disk_whatever_it_is_called_and_however_it_is_spelled() {
        let other = ("device/serial", "vol0fedcba9876543210");
        let world =
            World::new().disk("nvme0n1", &[other, EBS]).disk("nvme1n1", &[OURS, EBS]).partition("nvme1n1", "nvme1n1p1");
        assert_eq!(world.name(None), "nvme1n1");
        let dashed = World::new().disk("nvme7n1", &[("device/serial", "  vol-0123456789abcdef0 "), EBS]);
        assert_eq!(dashed.name(None), "nvme7n1");
        // The serial outweighs EC2's name, which NVMe ignores.
        let both = World::new().disk("xvdf", &[]).disk("nvme1n1", &[OURS]);
        assert_eq!(both.name(Some(("/dev/sdf", SIZE))), "nvme1n1");
    }

    #[test]
    fn no_disk_with_the_serial_is_a_missing_device_and_two_are_ambiguous() {
        let world = World::new().disk("nvme0n1", &[("device/serial", "vol0fedcba9876543210")]).disk("vda", &[]);
        assert_eq!(world.locate(None), Err(ReasonCode::DeviceMissing));
        let world = World::new().disk("nvme0n1", &[OURS]).disk("nvme0n2", &[OURS]);
        assert_eq!(world.locate(None), Err(ReasonCode::VolumeAmbiguous));
        let paths = World::new().disk("nvme0n1", &[OURS]).disk("nvme0c0n1", &[OURS, ("hidden", "1")]);
        assert_eq!(paths.name(None), "nvme0n1");
    }

    #[test]
    fn instance_store_is_never_taken() {
        let store = ("device/model", "Amazon EC2 NVMe Instance Storage");
        let world = World::new().disk("nvme1n1", &[("device/serial", "AWS1A2B3C4D5E6F70809"), store]);
        assert_eq!(world.locate(Some(("/dev/sdf", SIZE))), Err(ReasonCode::DeviceMissing));
        let lying = World::new().disk("nvme1n1", &[OURS, store]);
        assert_eq!(lying.locate(None), Err(ReasonCode::IdentityMismatch));
    }

    #[test]
    fn without_serials_the_name_of_ec2_counts_only_with_the_size_of_ec2() {
        let world = World::new().disk("xvda", &[]).disk("xvdf", &[]).partition("xvda", "xvda1");
        assert_eq!(world.name(Some(("/dev/sdf", SIZE))), "xvdf");
        assert_eq!(world.name(Some(("xvdf", SIZE))), "xvdf");
        assert_eq!(World::new().disk("sdf", &[]).name(Some(("/dev/sdf", SIZE))), "sdf");
        assert!(!world.locate(Some(("/dev/sdf", SIZE))).unwrap().by_serial);
        assert_eq!(world.locate(Some(("/dev/sdf", SIZE + 1))), Err(ReasonCode::IdentityMismatch));
        assert_eq!(world.locate(Some(("/dev/sdg", SIZE))), Err(ReasonCode::DeviceMissing));
        assert_eq!(world.locate(Some(("/dev/sda1", SIZE))), Err(ReasonCode::DeviceMissing));
        assert_eq!(world.locate(None), Err(ReasonCode::DeviceMissing));
        let serial = World::new().disk("sdf", &[("device/serial", "WD-123")]);
        assert_eq!(serial.locate(Some(("/dev/sdf", SIZE))), Err(ReasonCode::IdentityMismatch));
    }
}
