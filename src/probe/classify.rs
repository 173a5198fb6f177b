//! What a block of bytes is: all zero, uniform (not to be told from random), or other.
//!
//! A never-written block of an encrypted volume decrypts to noise, so noise alone does not say that somebody wrote. Text,
//! tables, code, a superblock, a single byte among zeroes: all of these have byte counts that noise does not have.

use crate::model::BlockSample;

/// What one block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Zero,
    Uniform,
    Other,
}

/// Judges a block of at most 4096 bytes.
pub(crate) fn classify(block: &[u8]) -> Class {
    if is_zero(block) {
        Class::Zero
    } else if is_uniform(block) {
        Class::Uniform
    } else {
        Class::Other
    }
}

/// Every byte is zero. Written as a fold over chunks so that the compiler makes vector code of it: this is the one loop that
/// every byte of a blank device goes through.
pub(crate) fn is_zero(data: &[u8]) -> bool {
    let (chunks, rest) = data.as_chunks::<64>();
    let mut pieces = chunks.chunks(64);
    pieces.all(|piece| {
        let folded = piece.iter().fold([0_u8; 64], |mut all, chunk| {
            for (sum, byte) in all.iter_mut().zip(chunk) {
                *sum |= byte;
            }
            all
        });
        folded.iter().all(|byte| *byte == 0)
    }) && rest.iter().all(|byte| *byte == 0)
}

/// Chi-square over the 256 byte values: within these bounds random bytes stay but for one block in about 10^12 on either
/// side. Found for 512 to 4096 bytes by importance sampling of the multinomial distribution (tilted Poisson cells), because
/// the chi-square distribution with 255 degrees of freedom is only its limit: 448.2 there is exceeded in 1.2e-12 of the
/// blocks of 4096 bytes, 126.4 undercut in 0.6e-12; blocks of 512 bytes differ from that by a factor of three at most.
/// The lower bound catches what is more even than chance: counters, permutations.
const EVEN_AS_CHANCE: std::ops::RangeInclusive<f64> = 126.0..=450.0;

/// With fewer bytes than this, counts say nothing: an odd tail that is not zero is other.
const LEAST_FOR_COUNTING: usize = 512;

fn is_uniform(block: &[u8]) -> bool {
    block.len() >= LEAST_FOR_COUNTING && EVEN_AS_CHANCE.contains(&chi_square(block))
}

fn chi_square(block: &[u8]) -> f64 {
    // Four tables, so that equal neighbours do not wait for each other's count; bytes come eight at a load. No count can wrap:
    // a block has at most 4096 bytes.
    let mut counts = [[0_u16; 256]; 4];
    let [one, two, three, four] = &mut counts;
    let (words, rest) = block.as_chunks::<8>();
    let add = |table: &mut [u16; 256], byte: u8| {
        if let Some(count) = table.get_mut(usize::from(byte)) {
            *count = count.wrapping_add(1);
        }
    };
    for word in words {
        let [a, b, c, d, e, f, g, h] = u64::from_le_bytes(*word).to_le_bytes();
        add(one, a);
        add(two, b);
        add(three, c);
        add(four, d);
        add(one, e);
        add(two, f);
        add(three, g);
        add(four, h);
    }
    for byte in rest {
        add(one, *byte);
    }
    // Sum of (count - expected)^2 / expected = sum of count^2 * 256 / n - n; whole numbers until the end.
    let squares: u64 = one
        .iter()
        .zip(two.iter())
        .zip(three.iter().zip(four.iter()))
        .map(|((a, b), (c, d))| {
            let count =
                u64::from(*a).saturating_add(u64::from(*b)).saturating_add(u64::from(*c)).saturating_add(u64::from(*d));
            count.saturating_mul(count)
        })
        .fold(0, u64::saturating_add);
    let n = block.len() as f64;
    squares as f64 * 256.0 / n - n
}

/// What a person wants to see of a block that is not zero, which begins at `offset`.
pub(crate) fn sample(block: &[u8], offset: u64) -> Option<BlockSample> {
    const LINE: usize = 16;
    let first = block.iter().position(|byte| *byte != 0)?;
    let begin = first.saturating_sub(first % LINE);
    let line = block.get(begin..)?;
    let line = line.get(..LINE).unwrap_or(line);
    let pairs: Vec<String> =
        line.chunks(2).map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    let letters: String = line
        .iter()
        .map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' })
        .collect();
    Some(BlockSample {
        offset: offset.saturating_add(begin as u64),
        entropy: entropy(block),
        hex: format!("{}  {letters}", pairs.join(" ")),
    })
}

/// In thousandths of a bit for each byte.
fn entropy(block: &[u8]) -> u32 {
    let mut counts = [0_u32; 256];
    for byte in block {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count = count.saturating_add(1);
        }
    }
    let len = block.len() as f64;
    let bits: f64 = counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| {
            let share = f64::from(*count) / len;
            -share * share.log2()
        })
        .sum();
    (bits * 1000.0).round() as u32
}
