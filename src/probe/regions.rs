//! Where a volume tells first what it is: the places that are read before anything else, computed from the size alone, so
//! that the first and the second reading are of the same bytes.

/// Bytes `[offset, offset + len)`; both multiples of [`BLOCK`] but for the device's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub offset: u64,
    pub len: usize,
}

/// Blocks in which content is judged.
pub(crate) const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// No region is longer, so that one request in flight is not either.
const LONGEST: u64 = MIB;

/// Head and tail: the tail as far as the last odd sector, for the backup GPT (512 or 4096 byte sectors), md 0.90 and 1.0,
/// nilfs2, drbd.
pub(crate) fn ends(size: u64) -> Vec<Region> {
    merge(vec![(0, MIB.min(size)), (floor(size.saturating_sub(MIB)), size)])
}

/// The telling regions between head and tail of a device of `size` bytes, in order, without overlap.
pub(crate) fn between(size: u64) -> Vec<Region> {
    let tail = floor(size.saturating_sub(MIB));
    let blocks = ext_backups(size)
        .into_iter()
        .chain(xfs_groups(size))
        // btrfs mirrors (BTRFS_SUPER_INFO_OFFSET, then 64 MiB and 256 GiB); the first lies in the head.
        .chain([64 * MIB, 256 * GIB])
        // LUKS2 secondary headers beyond the head (cryptsetup, LUKS2 on-disk format: header sizes of 16 KiB to 4 MiB).
        .chain([MIB, 2 * MIB, 4 * MIB])
        .map(floor)
        .filter(|start| *start >= MIB && *start < tail)
        .map(|start| (start, start.saturating_add(BLOCK)))
        .collect();
    merge(blocks)
}

/// All telling regions, in order.
pub(crate) fn telling(size: u64) -> Vec<Region> {
    let mut regions = ends(size);
    regions.extend(between(size));
    regions.sort_unstable_by_key(|region| region.offset);
    regions
}

/// Samples that are taken between head and tail. A volume of which a hundredth is written is known by them in all but one case
/// of thirteen, for the price of one megabyte.
const SAMPLES: u64 = 256;
/// Smaller parts than this need no sample each: the pass is soon there.
const LEAST_PART: u64 = 256 << 10;

/// One block out of each equal part of the device, by chance but always the same for the same `seed`, in order.
pub(crate) fn samples(size: u64, seed: u64) -> Vec<Region> {
    let span = size.saturating_sub(2 * MIB);
    let count = span.checked_div(LEAST_PART).unwrap_or(0).min(SAMPLES);
    let Some(part) = span.checked_div(count).map(floor).filter(|part| *part >= BLOCK) else { return Vec::new() };
    let mut state = seed;
    (0..count)
        .map(|number| {
            // splitmix64 (Steele, Lea, Flood 2014): any seed will do, zero too.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^= word >> 31;
            let within = floor(word.checked_rem(part).unwrap_or(0));
            let offset = MIB.saturating_add(number.saturating_mul(part)).saturating_add(within);
            Region { offset, len: BLOCK as usize }
        })
        .collect()
}

/// How far a name is looked for behind a block that is not blank: an eighth of a second of the slowest volume.
const LOOK_FOR_A_NAME: u64 = 16 * MIB;

/// The stretch from `first_other` on in which the thing that begins there may say what it is.
pub(crate) fn behind(first_other: u64, size: u64) -> Vec<Region> {
    let start = floor(first_other);
    merge(vec![(start, start.saturating_add(LOOK_FOR_A_NAME).min(size))])
}

/// The same bytes, without any twice.
pub(crate) fn joined(regions: &[Region]) -> Vec<Region> {
    merge(regions.iter().map(|region| (region.offset, region.offset.saturating_add(region.len as u64))).collect())
}

fn floor(offset: u64) -> u64 {
    offset.saturating_sub(offset % BLOCK)
}

/// Sorts, joins what touches or overlaps, and cuts what is too long.
fn merge(mut blocks: Vec<(u64, u64)>) -> Vec<Region> {
    blocks.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in blocks {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            Some(_) | None => joined.push((start, end)),
        }
    }
    let mut regions = Vec::new();
    for (start, end) in joined {
        let mut at = start;
        while at < end {
            let len = end.saturating_sub(at).min(LONGEST);
            regions.push(Region { offset: at, len: usize::try_from(len).unwrap_or(0) });
            at = at.saturating_add(len);
        }
    }
    regions
}

/// Where mke2fs puts copies of the superblock of a filesystem that fills the device, for 1, 2, 4 and 64 KiB blocks: groups
/// 1 and the powers of 3, 5 and 7 (`sparse_super`), group 2 as well (a filesystem without it), and the last one
/// (`sparse_super2`). Sorted. Source: e2fsprogs 1.47, lib/ext2fs/closefs.c `ext2fs_bg_has_super`.
pub(crate) fn ext_backups(size: u64) -> Vec<u64> {
    let mut offsets = Vec::new();
    for shift in [10_u32, 11, 12, 16] {
        let block = 1_u64 << shift;
        // A group is what one block of bitmap can map, but no more than 65528 blocks.
        let per_group = block.saturating_mul(8).min(65528);
        let first_block = u64::from(shift == 10);
        let blocks = size.checked_div(block).unwrap_or(0);
        let Some(last_group) =
            blocks.checked_sub(first_block.saturating_add(1)).and_then(|last| last.checked_div(per_group))
        else {
            continue;
        };
        let mut groups = vec![1, 2, last_group];
        for base in [3_u64, 5, 7] {
            let mut group = base;
            while group <= last_group {
                groups.push(group);
                group = group.saturating_mul(base);
            }
        }
        for group in groups {
            if group == 0 || group > last_group {
                continue;
            }
            let block_number = group.saturating_mul(per_group).saturating_add(first_block);
            offsets.push(block_number.saturating_mul(block));
        }
    }
    offsets.retain(|offset| *offset < size);
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

/// Volume sizes in GiB that people ask for: a filesystem made at one of them and grown since keeps its first group size.
const USUAL_SIZES: [u64; 26] =
    [1, 2, 4, 5, 8, 10, 12, 15, 16, 20, 24, 25, 30, 32, 40, 50, 64, 80, 100, 120, 128, 200, 250, 256, 500, 512];

/// Where allocation groups begin in an XFS that mkfs.xfs made over the whole device with 4 KiB blocks: four groups up to
/// 4 TiB, groups of (almost) 1 TiB above; further the second group of one made at a smaller usual size and grown.
/// Source: xfsprogs 6.1, libfrog/../libxfs/topology.c `calc_default_ag_geometry`.
fn xfs_groups(size: u64) -> Vec<u64> {
    let blocks = size >> 12;
    let mut offsets = Vec::new();
    let quarter = blocks.div_ceil(4).saturating_mul(BLOCK);
    let half = blocks.div_ceil(2).saturating_mul(BLOCK);
    for number in 1..4 {
        offsets.push(quarter.saturating_mul(number));
    }
    offsets.push(half);
    // XFS_AG_MAX_BLOCKS: one block less than 1 TiB.
    offsets.push((GIB << 10).saturating_sub(BLOCK));
    for gib in USUAL_SIZES {
        let made_at = gib.saturating_mul(GIB);
        if made_at < size {
            offsets.push(made_at >> 2);
        }
    }
    offsets
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    #[test]
    fn regions_never_overlap_and_stay_inside_of_the_device() {
        for size in [4096, 4608, MIB, MIB + 512, 3 * MIB, 64 * MIB + 512, 20 * GIB, (1 << 40) + 1536, 16 << 40] {
            let regions = telling(size);
            let mut end = 0;
            for region in &regions {
                assert!(region.offset >= end && region.len > 0, "{size}: {region:?}");
                assert_eq!(region.offset % BLOCK, 0, "{size}: {region:?}");
                end = region.offset + region.len as u64;
            }
            assert_eq!(regions[0].offset, 0);
            assert_eq!(end, size, "the last byte is told");
        }
    }

    #[test]
    fn what_is_read_first_stays_small_on_any_device() {
        for size in [GIB, 20 * GIB, 1 << 40, 16 << 40, 1 << 60] {
            let regions = telling(size);
            let bytes: usize = regions.iter().map(|region| region.len).sum();
            assert!(regions.len() < 400 && bytes < (4 << 20), "{size}: {} regions, {bytes} bytes", regions.len());
        }
    }

    #[test]
    fn samples_are_spread_evenly_and_the_same_seed_takes_the_same() {
        for size in [MIB, 2 * MIB, 4 * MIB + 512, 64 * MIB, 20 * GIB, 1 << 40, 16 << 40] {
            let taken = samples(size, 7);
            assert_eq!(taken, samples(size, 7), "{size}");
            assert!(taken.iter().all(|r| r.offset % BLOCK == 0 && r.offset + r.len as u64 <= size), "{size}");
            // No part of the device is left out: two neighbours are never further apart than two parts.
            let widest = taken.windows(2).map(|pair| pair[1].offset - pair[0].offset).max().unwrap_or(0);
            assert!(widest <= (2 * size / SAMPLES).max(2 * LEAST_PART), "{size}: {widest}");
            assert_eq!(taken.len() as u64, (size.saturating_sub(2 * MIB) / LEAST_PART).min(SAMPLES), "{size}");
        }
        assert_ne!(samples(GIB, 7), samples(GIB, 8));
    }

    #[test]
    fn backup_superblocks_are_expected_where_mke2fs_puts_them() {
        // dumpe2fs of a 256 MiB filesystem with 4 KiB blocks: backup at 32768; of 48 MiB with 1 KiB: 8193, 24577, 40961.
        assert!(ext_backups(256 * MIB).contains(&(32768 * 4096)));
        let small = ext_backups(48 * MIB);
        for block in [8193_u64, 24577, 40961] {
            assert!(small.contains(&(block * 1024)), "{block}");
        }
    }

    #[test]
    fn the_second_group_of_an_xfs_is_a_telling_region_also_after_a_grow() {
        let covers = |size: u64, offset: u64| {
            telling(size).iter().any(|r| r.offset <= offset && offset < r.offset + r.len as u64)
        };
        assert!(covers(320 * MIB, 80 * MIB));
        assert!(covers(40 * GIB, 5 * GIB), "made at 20 GiB, grown to 40");
    }
}
