//! What is known of each kind of filesystem that volhold makes: its program, with what it is told, and how its superblock is
//! told apart from another. Nothing here runs or reads anything.

use crate::model::{FsUuid, Fstype};
use uuid::Uuid;

/// One kind of filesystem.
pub(in crate::act) struct Kind {
    pub program: &'static str,
    /// Words that come in any case, between the program and the device.
    arguments: &'static [&'static str],
    /// Features that are switched by suboptions (`-m crc=1,…`), of which not every release of the program knows each.
    switches: &'static [(&'static str, &'static [Switch])],
    /// What stands before the UUID.
    uuid_option: (&'static str, &'static str),
    pub superblock: Layout,
}

/// A feature that mkfs is told to have or not to have.
struct Switch {
    name: &'static str,
    wanted: bool,
}

/// Where things are in a superblock.
pub(in crate::act) struct Layout {
    /// Of the primary one, from the beginning of the device.
    pub at: u64,
    magic: (usize, &'static [u8]),
    uuid: usize,
    /// Words of feature bits, and which of them our mkfs may have set.
    features: &'static [(&'static str, usize, Order, u32)],
    /// A byte that is not zero while mkfs has not come to its end.
    in_progress: Option<usize>,
}

#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}

/// Bytes of a superblock in which everything above lies.
pub(in crate::act) const SUPERBLOCK_LEN: usize = 1024;

/// The description of a kind.
pub(in crate::act) fn kind(fstype: Fstype) -> &'static Kind {
    match fstype {
        Fstype::Ext4 => &EXT4,
        Fstype::Xfs => &XFS,
    }
}

/// ext4. The whole feature set is given, from `none` upwards: mke2fs.conf differs between distributions and releases.
/// Everything here is known to e2fsck 1.43 (2016) and kernel 4.x. Left out on purpose, though e2fsprogs 1.47 enables them:
/// `metadata_csum_seed` and `orphan_file`, which an e2fsck of 1.46 refuses.
///
/// `nodiscard`: a discard proves nothing and may take minutes. Tables and journal are written now, not lazily: a fresh
/// encrypted volume is full of noise, which nobody should find in an inode table when group flags are damaged; and the
/// kernel does not write in the background while the volume is examined. One percent is kept for root: enough for volhold
/// to write its ledger on a volume that etcd has filled.
static EXT4: Kind = Kind {
    program: "mkfs.ext4",
    arguments: &[
        "-q",
        "-t",
        "ext4",
        "-b",
        "4096",
        "-I",
        "256",
        "-m",
        "1",
        "-O",
        "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,\
         dir_nlink,extra_isize,metadata_csum",
        "-E",
        "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
    ],
    switches: &[],
    uuid_option: ("-U", ""),
    // `fs/ext4/ext4.h`, struct ext4_super_block.
    superblock: Layout {
        at: 1024,
        magic: (0x38, &[0x53, 0xef]),
        uuid: 0x68,
        features: &[
            ("compat", 0x5c, Order::Little, 0x3c),
            ("incompat", 0x60, Order::Little, 0x2c2),
            ("ro_compat", 0x64, Order::Little, 0x46b),
        ],
        in_progress: None,
    },
};

/// XFS that every kernel from 5.10 on mounts without a warning, and 4.2 as well. `-K`: no discard, as for ext4. `-f` is
/// never given: mkfs.xfs refuses where libblkid sees anything.
///
/// | feature | here | why |
/// |---|---|---|
/// | `crc` | on | version 5: all metadata carries checksum and UUID, which the examination of a damaged volume lives on (kernel 3.10) |
/// | `finobt` | on | finds free inodes without a walk; the default of all releases that make `crc` (3.16) |
/// | `sparse` | on | inodes can be had on a volume whose free space is in pieces, as etcd's is when full (4.2) |
/// | `ftype` | on | not to be had without in version 5 |
/// | `rmapbt` | off | only online repair reads it; it costs writes |
/// | `reflink` | off | etcd clones no files; the tree reserves space in each group |
/// | `inobtcount` | off | 5.10 calls it experimental; saves time only on the mount of large filesystems |
/// | `bigtime` | off | 5.10 calls it experimental; times end in 2038 without it, and `xfs_admin -O bigtime=1` adds it later |
/// | `nrext64` | off | kernel 5.19; for files of more than 2^31 extents |
/// | `exchange`, `parent`, `metadir` | off | kernel 6.10 and 6.13 |
///
/// What is off is told to a mkfs.xfs that knows the word. One that does not know it makes no such filesystem.
static XFS: Kind = Kind {
    program: "mkfs.xfs",
    arguments: &["-q", "-K", "-b", "size=4096"],
    switches: &[
        (
            "-m",
            &[
                on("crc"),
                on("finobt"),
                off("rmapbt"),
                off("reflink"),
                off("inobtcount"),
                off("bigtime"),
                off("metadir"),
            ],
        ),
        ("-i", &[on("sparse"), off("nrext64"), off("exchange")]),
        ("-n", &[on("ftype"), off("parent")]),
    ],
    uuid_option: ("-m", "uuid="),
    // `fs/xfs/libxfs/xfs_format.h`, struct xfs_dsb.
    superblock: Layout {
        at: 0,
        magic: (0, b"XFSB"),
        uuid: 32,
        features: &[
            ("compat", 208, Order::Big, 0),
            // finobt
            ("ro_compat", 212, Order::Big, 0x1),
            // ftype, sparse inodes
            ("incompat", 216, Order::Big, 0x3),
            ("log_incompat", 220, Order::Big, 0),
        ],
        in_progress: Some(126),
    },
};

const fn on(name: &'static str) -> Switch {
    Switch { name, wanted: true }
}

const fn off(name: &'static str) -> Switch {
    Switch { name, wanted: false }
}

impl Kind {
    /// Does the list of words depend on what the installed program knows?
    pub(in crate::act) fn asks_program(&self) -> bool {
        !self.switches.is_empty()
    }

    /// Everything between program and device. `usage` is what the program prints about its options.
    pub(in crate::act) fn arguments(&self, uuid: FsUuid, usage: &str) -> Vec<String> {
        let mut words: Vec<String> = self.arguments.iter().map(|&word| word.to_owned()).collect();
        let known = |name: &str| usage.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == name);
        for (option, switches) in self.switches {
            let given: Vec<String> = switches
                .iter()
                .filter(|switch| switch.wanted || known(switch.name))
                .map(|switch| format!("{}={}", switch.name, u8::from(switch.wanted)))
                .collect();
            words.extend([(*option).to_owned(), given.join(",")]);
        }
        let (option, prefix) = self.uuid_option;
        words.extend([option.to_owned(), format!("{prefix}{uuid}")]);
        words
    }
}

impl Layout {
    /// The UUID of the filesystem whose superblock this is; `None` where it is none of this kind.
    pub(in crate::act) fn uuid_in(&self, superblock: &[u8]) -> Option<FsUuid> {
        let (at, magic) = self.magic;
        let stands = field(superblock, at, magic.len())? == magic;
        let uuid = Uuid::from_slice(field(superblock, self.uuid, 16)?).ok()?;
        stands.then_some(FsUuid(uuid))
    }

    /// What speaks against this being the filesystem that was asked for, as one sentence.
    pub(in crate::act) fn objection(&self, superblock: &[u8], uuid: FsUuid) -> Option<String> {
        match self.uuid_in(superblock) {
            None => return Some(format!("no such superblock at offset {}", self.at)),
            Some(found) if found != uuid => return Some(format!("UUID {found}, expected {uuid}")),
            Some(_) => {}
        }
        if self.in_progress.is_some_and(|at| field(superblock, at, 1) != Some(&[0])) {
            return Some("its superblock says that mkfs did not come to its end".to_owned());
        }
        for (name, at, order, allowed) in self.features {
            let Some(bytes) = field(superblock, *at, 4).and_then(|bytes| bytes.try_into().ok()) else {
                return Some("the superblock is cut short".to_owned());
            };
            let set = match order {
                Order::Little => u32::from_le_bytes(bytes),
                Order::Big => u32::from_be_bytes(bytes),
            };
            if set & !allowed != 0 {
                let more = set & !allowed;
                return Some(format!(
                    "feature bits {name} {more:#x}, which were not asked for: older systems may not mount it"
                ));
            }
        }
        None
    }
}

fn field(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..)?.get(..length)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
    use super::*;

    fn uuid() -> FsUuid {
        FsUuid(Uuid::from_u128(0x8f1d_4c5e_0b7a_4a53_9d8e_2f6b_1c3d_4e5f))
    }

    /// Usage texts of mkfs.xfs, as far as they name features.
    const USAGE_5_0: &str =
        "[-m crc=0|1,finobt=0|1,uuid=xxx,rmapbt=0|1,reflink=0|1]\n [-i size=num,attr=0|1|2,sparse=0|1]";
    const USAGE_6_13: &str = "[-m crc=0|1,finobt=0|1,uuid=xxx,rmapbt=0|1,reflink=0|1,\n inobtcount=0|1,bigtime=0|1,autofsck=xxx,\n \
                              metadir=0|1]\n [-i sparse=0|1,nrext64=0|1,\n exchange=0|1]\n [-n version=2|ci,ftype=0|1,parent=0|1]]";

    #[test]
    fn an_old_mkfs_xfs_is_told_no_word_that_it_does_not_know() {
        let words = kind(Fstype::Xfs).arguments(uuid(), USAGE_5_0).join(" ");
        assert_eq!(
            words,
            "-q -K -b size=4096 -m crc=1,finobt=1,rmapbt=0,reflink=0 -i sparse=1 -n ftype=1 \
             -m uuid=8f1d4c5e-0b7a-4a53-9d8e-2f6b1c3d4e5f"
        );
    }

    #[test]
    fn a_new_mkfs_xfs_is_told_to_leave_out_everything_that_an_old_kernel_cannot_mount() {
        let words = kind(Fstype::Xfs).arguments(uuid(), USAGE_6_13);
        assert!(
            words.contains(&"crc=1,finobt=1,rmapbt=0,reflink=0,inobtcount=0,bigtime=0,metadir=0".to_owned()),
            "{words:?}"
        );
        assert!(words.contains(&"sparse=1,nrext64=0,exchange=0".to_owned()), "{words:?}");
        assert!(words.contains(&"ftype=1,parent=0".to_owned()), "{words:?}");
        let forced = |word: &String| word.starts_with("-f") || word.starts_with("-F");
        for fstype in [Fstype::Ext4, Fstype::Xfs] {
            assert!(!kind(fstype).arguments(uuid(), USAGE_6_13).iter().any(forced), "{fstype}");
        }
    }

    fn superblock(fstype: Fstype) -> Vec<u8> {
        let layout = &kind(fstype).superblock;
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        let (at, magic) = layout.magic;
        bytes[at..at + magic.len()].copy_from_slice(magic);
        bytes[layout.uuid..layout.uuid + 16].copy_from_slice(uuid().0.as_bytes());
        bytes
    }

    #[test]
    fn what_is_read_back_is_the_filesystem_that_was_asked_for_or_it_is_said_what_is_wrong() {
        for fstype in [Fstype::Ext4, Fstype::Xfs] {
            let layout = &kind(fstype).superblock;
            let good = superblock(fstype);
            assert_eq!(layout.objection(&good, uuid()), None, "{fstype}");
            let other = layout.objection(&good, FsUuid(Uuid::from_u128(1))).unwrap();
            assert!(other.contains("expected 00000000-"), "{other}");
            let nothing = layout.objection(&vec![0; SUPERBLOCK_LEN], uuid()).unwrap();
            assert!(nothing.contains("no such superblock"), "{nothing}");
            assert!(layout.objection(&good[..64], uuid()).is_some(), "{fstype}");
            for (name, at, order, allowed) in layout.features {
                let bits = |bits: u32| {
                    let mut more = good.clone();
                    more[*at..*at + 4].copy_from_slice(&match order {
                        Order::Little => bits.to_le_bytes(),
                        Order::Big => bits.to_be_bytes(),
                    });
                    layout.objection(&more, uuid())
                };
                assert_eq!(bits(*allowed), None, "{fstype} {name}");
                for bit in (0..32).map(|shift| 1 << shift).filter(|bit| allowed & bit == 0) {
                    let said = bits(allowed | bit).unwrap();
                    assert!(said.contains(&format!("{name} {bit:#x}")), "{said}");
                }
            }
        }
    }

    #[test]
    fn a_superblock_of_a_mkfs_that_was_cut_short_is_not_the_filesystem() {
        let mut cut = superblock(Fstype::Xfs);
        cut[126] = 1;
        let said = kind(Fstype::Xfs).superblock.objection(&cut, uuid()).unwrap();
        assert!(said.contains("did not come to its end"), "{said}");
    }
}
