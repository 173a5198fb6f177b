//! What other tools say of a volume that holds something, measured: the answer to "but blkid says it is empty".
//!
//! `tests/it/probe.rs` asks the tools of the machine it runs on and compares.

/// One volume, and what is said of it.
#[derive(Debug, Clone, Copy)]
pub struct BlindSpot {
    /// The image under `tests/fixtures/blk` that it was measured on.
    pub image: &'static str,
    /// What was done to the volume.
    pub what: &'static str,
    /// `blkid -p`, `wipefs -n` and `lsblk -f`: `nothing` or `found`, or `ambivalent`.
    pub blkid: &'static str,
    pub wipefs: &'static str,
    pub lsblk: &'static str,
    /// What `file -s` begins with.
    pub file: &'static str,
    /// Part of what volhold refuses with.
    pub volhold: &'static str,
}

const fn unseen(image: &'static str, what: &'static str, volhold: &'static str) -> BlindSpot {
    BlindSpot { image, what, blkid: "nothing", wipefs: "nothing", lsblk: "nothing", file: "data", volhold }
}

/// Where `blkid -p` exits with 2, most tools format. Measured with util-linux 2.38.1 and file 5.44, through a loop device.
pub const BLIND_SPOTS: &[BlindSpot] = &[
    unseen("bs01-ext4-first4k-zero", "ext4, first 4 KiB zeroed", "a backup superblock of an ext2/3/4 filesystem"),
    unseen("bs07-ext4-first32m-zero", "ext4, first 32 MiB zeroed", "a backup superblock of an ext2/3/4 filesystem"),
    unseen("bs08-ext4-sb-garbage", "ext4, superblock overwritten", "a backup superblock of an ext2/3/4 filesystem"),
    unseen(
        "bs05-ext4-sparse2-nobackup",
        "ext4 without any superblock",
        "a block of the journal of an ext3/4 filesystem",
    ),
    unseen("bs14-mbr-wiped-ext4-at-1m", "partition table wiped, ext4 behind it", "an ext2/3/4 superblock"),
    unseen("bs09-xfs-sb-zero", "XFS, superblock zeroed", "an allocation-group header of an XFS filesystem"),
    unseen("bs13-btrfs-first64m-zero", "btrfs, first 64 MiB zeroed", "superblock of btrfs"),
    unseen("bs18-lvm-label-zero", "LVM, label zeroed", "metadata of the volume group vgetcd"),
    unseen("bs19-lvm-first1m-zero", "LVM, first MiB zeroed", "a directory of etcd"),
    unseen("bs23-bbolt-raw-at-8m", "etcd's backend without a filesystem", "a meta page of a bolt file"),
    unseen("bs25-etcd-wal-raw", "etcd's log without a filesystem", "the head of an etcd WAL file"),
    unseen("bs35-luks2-both-hdr-zero", "LUKS2, both headers zeroed", "key slots of a LUKS2 header"),
    unseen("bs33-random-detached-luks", "LUKS with its header elsewhere", "the device holds noise"),
    unseen("bs37-bcache-sb-zero", "bcache, superblock zeroed", "ext4 of"),
    unseen("bs39-exfat-boot-zero", "exFAT, boot sector zeroed", "exfat"),
    unseen("bs40-jfs-primary-zero", "JFS, primary superblock zeroed", "jfs"),
    unseen("bs41-f2fs-both-sb-zero", "F2FS, both superblocks zeroed", "f2fs"),
    unseen("bs36-swap-header-zero", "swap, header zeroed", "bits of entropy in a byte"),
    unseen("bs28-one-byte-middle", "one byte in the middle", "bits of entropy in a byte"),
    unseen("bs30-last-512-of-unaligned", "one byte in the last odd sector", "bits of entropy in a byte"),
    BlindSpot {
        file: "POSIX tar archive",
        ..unseen("bs44-tar-raw", "a tar archive with etcd's files", "the head of an etcd WAL file")
    },
    BlindSpot { file: "ASCII text", ..unseen("bs45-textfile-raw", "a text", "bits of entropy in a byte") },
    BlindSpot {
        wipefs: "found",
        file: "LVM2 PV",
        ..unseen("bc04-lvm-label-crc", "LVM, one bit of the label flipped", "its checksum is wrong")
    },
    BlindSpot {
        blkid: "ambivalent",
        wipefs: "found",
        file: "BTRFS Filesystem",
        ..unseen("am02-ext4-plus-btrfs", "ext4 and btrfs at once", "btrfs")
    },
];

/// The table as lines of text.
pub fn table() -> String {
    let mut lines = vec![format!("{:38}{:11}{:9}{:9}{}", "", "blkid -p", "wipefs", "lsblk", "file -s")];
    for spot in BLIND_SPOTS {
        let BlindSpot { image: _, what, blkid, wipefs, lsblk, file, volhold } = spot;
        lines.push(format!("{what:38}{blkid:11}{wipefs:9}{lsblk:9}{file}"));
        lines.push(format!("    volhold: {volhold}"));
    }
    lines.join("\n")
}
