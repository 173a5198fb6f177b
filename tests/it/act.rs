//! Changing real loop devices: mkfs, fsck, mounts, seals.

mod format;
mod fsck;
mod loopdev;
mod mount;
mod seal;
mod volume_ledger;
