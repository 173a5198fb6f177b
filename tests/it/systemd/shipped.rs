//! What is shipped beside the units: the udev rule, asked of a real udev about a disk that a made-up sysfs describes, and the
//! run directory's tmpfiles. (The journal's catalog: `bypass`.)

use crate::container::Container;
use crate::needs_root;

/// A sysfs with one NVMe disk, in a mount namespace of its own. Only the rule under test may make the link: the machine's own
/// is masked, as on images that lack it.
const DISK: &str = r#"
set -eu
mkdir -p /run/udev/rules.d
# What an earlier run knew of the disk.
rm -rf /run/udev/data /run/udev/links
ln -sf /dev/null /run/udev/rules.d/60-persistent-storage.rules
mount -t tmpfs tmpfs /sys
disk=/sys/devices/pci0/nvme/nvme1/nvme1n1
mkdir -p $disk/nvme1n1p1 /sys/class/nvme /sys/class/block /sys/dev/block
ln -s /sys/class/nvme $disk/../subsystem
echo "$1" >$disk/../model
echo "$2" >$disk/../serial
printf 'MAJOR=240\nMINOR=1\nDEVNAME=nvme1\n' >$disk/../uevent
ln -s /sys/class/block $disk/subsystem
printf 'MAJOR=259\nMINOR=1\nDEVNAME=nvme1n1\nDEVTYPE=disk\n' >$disk/uevent
ln -s /sys/class/block $disk/nvme1n1p1/subsystem
printf 'MAJOR=259\nMINOR=2\nDEVNAME=nvme1n1p1\nDEVTYPE=partition\n' >$disk/nvme1n1p1/uevent
SYSTEMD_DEVICE_VERIFY_SYSFS=0 udevadm test --action=add $disk/$3 2>&1
"#;

/// What udev says of the disk, or of a part of it.
#[track_caller]
fn udev(machine: &Container, model: &str, serial: &str, part: &str) -> String {
    let said = machine.run(&["unshare", "--mount", "sh", "-c", DISK, "sh", model, serial, part]);
    assert_eq!(said.code, Some(0), "{said:#?}");
    assert!(said.stdout.contains("66-volhold.rules"), "the rule is not read: {}", said.stdout);
    let faults: Vec<&str> =
        said.stdout.lines().filter(|line| line.contains("66-volhold.rules:") && !line.contains(" LINK ")).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    said.stdout
}

#[test]
fn the_udev_rule_names_an_ebs_volume_by_its_id_and_nothing_else() {
    needs_root!();
    let mut machine = Container::new();
    machine.boot();
    // The kernel pads the model with blanks.
    let ebs = "Amazon Elastic Block Store              ";
    let id = "vol0123456789abcdef0";
    let link = format!("/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{id}");
    let said = udev(&machine, ebs, id, ".");
    assert!(said.lines().any(|line| line == format!("DEVLINKS={link}")), "{said}");
    for (model, serial, part) in
        [("Amazon EC2 NVMe Instance Storage", id, "."), (ebs, "AWS0123456789ABCDEF", "."), (ebs, id, "nvme1n1p1")]
    {
        let said = udev(&machine, model, serial, part);
        assert!(!said.contains("nvme-Amazon_Elastic_Block_Store"), "{model} {serial} {part}: {said}");
    }
}

#[test]
fn the_run_directory_is_there_before_the_agent_and_closed_where_nobody_has_to_look() {
    needs_root!();
    let mut machine = Container::new();
    machine.boot();
    let modes = machine.sh("cd /run/volhold && stat -c '%n %a %U' . open published bypass requests claims");
    let wanted = ". 755 root\nopen 755 root\npublished 755 root\nbypass 755 root\nrequests 700 root\nclaims 700 root";
    assert_eq!(modes, wanted);
}
