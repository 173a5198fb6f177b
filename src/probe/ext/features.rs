//! The feature bits of ext2, ext3 and ext4, and which of them both e2fsck 1.47 and kernel 6.1 can handle.
//!
//! Sources: e2fsprogs 1.47.0 lib/ext2fs/ext2_fs.h and ext2fs.h (`EXT2_LIB_FEATURE_*_SUPP`), kernel 6.1 fs/ext4/ext4.h
//! (`EXT4_FEATURE_*_SUPP`; unknown compat bits do not stop the kernel, but they stop e2fsck).

use crate::probe::features::{self, Table};

/// Needed to read the bits that other parts of this room ask for.
pub(super) const COMPAT_HAS_JOURNAL: u32 = 0x4;
pub(super) const INCOMPAT_RECOVER: u32 = 0x4;
pub(super) const INCOMPAT_JOURNAL_DEV: u32 = 0x8;
pub(super) const INCOMPAT_64BIT: u32 = 0x80;
pub(super) const RO_COMPAT_METADATA_CSUM: u32 = 0x400;
pub(super) const RO_COMPAT_BIGALLOC: u32 = 0x200;
/// What ext3 and its predecessor know; anything beyond makes it ext4.
pub(super) const EXT3_INCOMPAT: u32 = 0x2 | 0x4 | 0x10;
pub(super) const EXT3_RO_COMPAT: u32 = 0x1 | 0x2 | 0x4;

const COMPAT: &Table = &[
    (0x1, "dir_prealloc", true),
    (0x2, "imagic_inodes", true),
    (0x4, "has_journal", true),
    (0x8, "ext_attr", true),
    (0x10, "resize_inode", true),
    (0x20, "dir_index", true),
    (0x40, "lazy_bg", false),
    (0x80, "exclude_inode", false),
    (0x100, "exclude_bitmap", false),
    (0x200, "sparse_super2", true),
    (0x400, "fast_commit", true),
    (0x800, "stable_inodes", true),
    (0x1000, "orphan_file", true),
];

const INCOMPAT: &Table = &[
    (0x1, "compression", false),
    (0x2, "filetype", true),
    (0x4, "needs_recovery", true),
    (0x8, "journal_dev", false),
    (0x10, "meta_bg", true),
    (0x40, "extents", true),
    (0x80, "64bit", true),
    (0x100, "mmp", true),
    (0x200, "flex_bg", true),
    (0x400, "ea_inode", true),
    (0x1000, "dirdata", false),
    (0x2000, "metadata_csum_seed", true),
    (0x4000, "large_dir", true),
    (0x8000, "inline_data", true),
    (0x10000, "encrypt", true),
    (0x20000, "casefold", true),
];

const RO_COMPAT: &Table = &[
    (0x1, "sparse_super", true),
    (0x2, "large_file", true),
    (0x4, "btree_dir", true),
    (0x8, "huge_file", true),
    (0x10, "uninit_bg", true),
    (0x20, "dir_nlink", true),
    (0x40, "extra_isize", true),
    (0x80, "has_snapshot", false),
    (0x100, "quota", true),
    (0x200, "bigalloc", true),
    (0x400, "metadata_csum", true),
    (0x800, "replica", false),
    (0x1000, "read-only", true),
    (0x2000, "project", true),
    (0x4000, "shared_blocks", false),
    (0x8000, "verity", true),
    (0x10000, "orphan_present", true),
];

/// Every set bit that is not handled.
pub(super) fn unknown(compat: u32, incompat: u32, ro_compat: u32) -> Vec<String> {
    features::unknown(&[
        ("compat", compat, COMPAT),
        ("incompat", incompat, INCOMPAT),
        ("ro_compat", ro_compat, RO_COMPAT),
    ])
}
