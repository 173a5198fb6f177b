//! Words and numbers as people read them, shared by the rules so that the same thing is always said the same way.

use crate::model::{Reason, ReasonCode, Why};

/// `1 key`, `3 keys`, `at least 10,000 keys`.
pub fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{} {one}s", grouped(count)) }
}

/// Thousands apart: `10,000`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len());
    for (position, digit) in digits.chars().rev().enumerate() {
        if position > 0 && position % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text.chars().rev().collect()
}

/// A size in bytes with a rounded one beside it: `134217728 bytes (128 MiB)`.
pub fn bytes(size: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        let whole = size >> shift;
        if whole > 0 {
            return format!("{size} bytes ({whole} {unit})");
        }
    }
    format!("{size} bytes")
}

/// What a source that said nothing usable means for the verdict. `what` names the source: "the content scan".
pub fn unknown(what: &str, why: &Why) -> Reason {
    let (code, said) = match why {
        Why::Unreadable { .. } => (ReasonCode::Unreadable, "could not be read"),
        Why::Short { .. } => (ReasonCode::ShortRead, "came back short"),
        Why::TimedOut { .. } => (ReasonCode::TimedOut, "gave no answer in time"),
        Why::ReaderFailed { .. } => {
            (ReasonCode::ReaderFailed, "failed: its reader crashed, was killed or answered nonsense")
        }
        // Not asking is no way to learn that nothing is there.
        Why::NotRun { .. } => (ReasonCode::Unreadable, "is not known, since nobody has looked"),
    };
    let detail = why.detail();
    let message = if detail.is_empty() { format!("{what} {said}") } else { format!("{what} {said} ({detail})") };
    Reason::new(code, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(counted(1, "live key"), "1 live key");
        assert_eq!(counted(10_000, "live key"), "10,000 live keys");
    }

    #[test]
    fn sizes_carry_the_exact_number_and_a_rounded_one() {
        assert_eq!(bytes(512), "512 bytes");
        assert_eq!(bytes(134_217_728), "134217728 bytes (128 MiB)");
        assert_eq!(bytes(20 << 30), "21474836480 bytes (20 GiB)");
    }

    #[test]
    fn every_kind_of_not_knowing_has_its_code() {
        let said = |why| unknown("the content scan", &why).code;
        let detail = || "x".to_owned();
        assert_eq!(said(Why::Unreadable { detail: detail() }), ReasonCode::Unreadable);
        assert_eq!(said(Why::Short { detail: detail() }), ReasonCode::ShortRead);
        assert_eq!(said(Why::TimedOut { detail: detail() }), ReasonCode::TimedOut);
        assert_eq!(said(Why::ReaderFailed { detail: detail() }), ReasonCode::ReaderFailed);
        assert_eq!(said(Why::NotRun { detail: detail() }), ReasonCode::Unreadable);
    }
}
