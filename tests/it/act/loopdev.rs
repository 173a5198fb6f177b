//! Image files become loop devices.

use crate::common::{Loop, Tmp, disk, output};
use crate::device::open;
use crate::needs_root;
use std::fs;
use std::path::PathBuf;
use volhold::act::Change;
use volhold::act::loopdev::attach;
use volhold::device::{Sysfs, loops};
use volhold::model::ReasonCode;

/// Detaches also when the test fails.
struct Detach(PathBuf);

impl Drop for Detach {
    fn drop(&mut self) {
        output("losetup", &["--detach", self.0.to_str().unwrap()]);
    }
}

#[test]
fn an_image_is_attached_once_and_found_again_by_whatever_name() {
    needs_root!();
    let tmp = Tmp::new();
    let sysfs = Sysfs::default();
    let image = disk::sparse(&tmp.join("disk"), 8 * disk::MIB);
    assert_eq!(loops::showing(&sysfs, &image).unwrap(), None);
    let first = attach(&image, &sysfs).unwrap();
    let _detach = Detach(first.node.clone());
    assert_eq!(first.change, Change::Done);
    assert_eq!(open(&first.node).size(), 8 * disk::MIB);
    // By device and inode, not by path.
    let link = tmp.join("hard-link");
    fs::hard_link(&image, &link).unwrap();
    let second = attach(&link, &sysfs).unwrap();
    assert_eq!((second.node, second.change), (first.node, Change::Already));
    let another = disk::sparse(&tmp.join("another"), 8 * disk::MIB);
    assert_eq!(loops::showing(&sysfs, &another).unwrap(), None);
}

#[test]
fn a_loop_device_on_a_part_of_the_image_is_not_taken_for_the_whole() {
    needs_root!();
    let tmp = Tmp::new();
    let image = disk::sparse(&tmp.join("disk"), 8 * disk::MIB);
    let part = output("losetup", &["--find", "--show", "--offset", "1048576", image.to_str().unwrap()]);
    let part = Detach(String::from_utf8(part.stdout).unwrap().trim().into());
    assert_eq!(loops::showing(&Sysfs::default(), &image).unwrap(), None);
    drop(part);
    let whole = Loop::new(&image);
    let found = loops::showing(&Sysfs::default(), &image).unwrap().unwrap();
    assert_eq!(found.node, whole.node());
}

#[test]
fn an_image_that_is_not_there_is_a_missing_device() {
    needs_root!();
    let tmp = Tmp::new();
    let error = attach(&tmp.join("no-image"), &Sysfs::default()).unwrap_err();
    assert_eq!(error.reason().code, ReasonCode::DeviceMissing, "{error:?}");
}
