//! Positioned reads of integers out of bytes that nobody vouches for: out of range is `None`, never a panic.

/// `N` bytes at `at`.
pub(crate) fn array<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// `len` bytes at `at`.
pub(crate) fn slice(data: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    data.get(at..at.checked_add(len)?)
}

pub(crate) fn le16(data: &[u8], at: usize) -> Option<u16> {
    array(data, at).map(u16::from_le_bytes)
}

pub(crate) fn le32(data: &[u8], at: usize) -> Option<u32> {
    array(data, at).map(u32::from_le_bytes)
}

pub(crate) fn le64(data: &[u8], at: usize) -> Option<u64> {
    array(data, at).map(u64::from_le_bytes)
}

pub(crate) fn be16(data: &[u8], at: usize) -> Option<u16> {
    array(data, at).map(u16::from_be_bytes)
}

pub(crate) fn be32(data: &[u8], at: usize) -> Option<u32> {
    array(data, at).map(u32::from_be_bytes)
}

pub(crate) fn be64(data: &[u8], at: usize) -> Option<u64> {
    array(data, at).map(u64::from_be_bytes)
}

/// CRC-32C over `data` with the four bytes at `hole` read as zero, as formats do whose checksum lies inside what it covers.
pub(crate) fn crc32c_without(data: &[u8], hole: usize) -> Option<u32> {
    let after = hole.checked_add(4)?;
    let head = crc32c::crc32c(data.get(..hole)?);
    Some(crc32c::crc32c_append(crc32c::crc32c_append(head, &[0; 4]), data.get(after..)?))
}

/// Text of a fixed field: up to the first NUL, lossy, without control characters; `None` where that leaves nothing.
pub(crate) fn text(field: &[u8]) -> Option<String> {
    let until_nul = field.split(|byte| *byte == 0).next()?;
    let text: String =
        String::from_utf8_lossy(until_nul).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let text = text.trim_end().to_owned();
    if text.is_empty() { None } else { Some(text) }
}

/// CRC-32 (IEEE 802.3, reflected) from `crc` on, not inverted at the end. Bit by bit: what it is asked for has a block at most.
pub(crate) fn crc32(crc: u32, data: &[u8]) -> u32 {
    data.iter().fold(crc, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 != 0 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}
