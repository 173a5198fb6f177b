//! Numbers out of byte slices, without a way to read beyond them.

/// `len` bytes from `at`, if the slice has them.
pub(super) fn slice(bytes: &[u8], at: usize, len: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(len)?)
}

macro_rules! number {
    ($name:ident, $type:ty, $from:ident) => {
        pub(super) fn $name(bytes: &[u8], at: usize) -> Option<$type> {
            Some(<$type>::$from(slice(bytes, at, size_of::<$type>())?.try_into().ok()?))
        }
    };
}

number!(u16_le, u16, from_le_bytes);
number!(u32_le, u32, from_le_bytes);
number!(u64_le, u64, from_le_bytes);
number!(u64_be, u64, from_be_bytes);
number!(i64_be, i64, from_be_bytes);

/// A protobuf varint at `at`: its value and how many bytes it takes. `None` when it is cut or longer than ten bytes.
pub(super) fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value: u64 = 0;
    for step in 0..10_usize {
        let byte = *bytes.get(at.checked_add(step)?)?;
        let shift = u32::try_from(step).ok()?.checked_mul(7)?;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((value, step.checked_add(1)?));
        }
    }
    None
}

/// Text from the disk, fit to be shown: control characters, escapes and broken UTF-8 become visible escapes, and no more
/// than `200` characters are kept. A hostile file name must not be able to draw on a terminal or forge a log line.
pub(super) fn printable(raw: &[u8]) -> String {
    let mut out = String::new();
    for chunk in raw.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Beyond control characters: line and paragraph separators and bidirectional overrides reorder what is shown.
            let hidden = matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
            if c.is_control() || hidden || c == '\\' {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
        if out.len() > 200 {
            let end = out.char_indices().map(|(at, _)| at).take_while(|at| *at <= 200).last().unwrap_or(0);
            out.truncate(end);
            out.push('…');
            break;
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_shown_escaped_and_short() {
        assert_eq!(printable(b"a\n\x1b[31mb\xff"), "a\\n\\u{1b}[31mb\\xff");
        assert_eq!(printable("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert!(printable(&[b'x'; 5000]).chars().count() <= 202);
    }

    #[test]
    fn varints_end_or_are_refused() {
        assert_eq!(varint(&[0xac, 0x02], 0), Some((300, 2)));
        assert_eq!(varint(&[0x80], 0), None);
        assert_eq!(varint(&[0x80; 11], 0), None);
    }
}
